//! Made-up traces with the figures of real set-ups (keepalived 2.2.7, FRR 8.4.4, bonding): what took the time there.

use std::net::IpAddr;

use proptest::prelude::*;

use super::*;
use crate::failover::events::{
    BondMember, Change, Event, Hop, LinkState, NextHopObject, Route, Source, VrrpSeries,
};
use crate::known::{Cause, Gap};

/// When the outages begin, on each host's clock.
const BEGIN: u64 = 10_000_000;

/// A time of a host, in microseconds after the begin of the outage.
fn time(micros: i64) -> Nanoseconds {
    Nanoseconds::from_micros(BEGIN.saturating_add_signed(micros))
}

fn ms(milliseconds: u64) -> Nanoseconds {
    Nanoseconds::from_millis(milliseconds)
}

fn event(micros: i64, change: Change) -> Event {
    Event {
        at_ns: time(micros),
        change,
    }
}

fn down(nic: &str, micros: i64) -> Event {
    event(
        micros,
        Change::Link(LinkState {
            nic: nic.parse().expect("a name"),
            up: true,
            carrier: false,
            operstate: "down".to_owned(),
            removed: false,
        }),
    )
}

fn withdrawn(protocol: &str, micros: i64) -> Event {
    event(
        micros,
        Change::Route(Route {
            destination: "10.2.0.0/24".to_owned(),
            table: 254,
            protocol: protocol.to_owned(),
            metric: Some(20),
            next_hop_id: None,
            next_hops: vec![Hop {
                nic: None,
                gateway: Some(IpAddr::from([10, 1, 0, 2])),
                dead: false,
            }],
            removed: false,
        }),
    )
}

fn expired(actor_state: u8, micros: i64) -> Event {
    event(
        micros,
        Change::BondMember(BondMember {
            bond: "bond0".parse().expect("a name"),
            nic: "eth0".parse().expect("a name"),
            state: "active".to_owned(),
            mii_status: "up".to_owned(),
            aggregator: Some(1),
            actor_state: Some(actor_state),
            partner_state: Some(61),
        }),
    )
}

/// Advertisements of router `last`, from and to a time, in microseconds.
fn adverts(last: u8, interval: u64, first: i64, end: i64) -> VrrpSeries {
    VrrpSeries {
        nic: "eth0".parse().expect("a name"),
        version: 3,
        source: IpAddr::from([10, 205, 1, last]),
        router_id: 51,
        priority: if last == 2 { 150 } else { 100 },
        interval_ns: ms(interval),
        address: None,
        first_ns: time(first),
        last_ns: time(end),
        count: 2,
    }
}

fn record(events: Vec<Event>, vrrp: Vec<VrrpSeries>) -> HostEvents {
    HostEvents {
        events,
        vrrp,
        ..HostEvents::default()
    }
}

/// An outage of the given length in microseconds, and what both ends saw.
struct Case {
    outage: u64,
    stall: Option<u64>,
    restored: Option<u64>,
    timers: Vec<Timer>,
    local: HostEvents,
    remote: HostEvents,
}

impl Case {
    fn new(outage: u64, local: HostEvents) -> Self {
        Self {
            outage,
            stall: None,
            restored: None,
            timers: Vec::new(),
            local,
            remote: HostEvents::default(),
        }
    }

    fn judge(&self) -> Verdict {
        let offset = i64::try_from(BEGIN * 1_000).expect("small");
        let trace = |end, events| Trace {
            end,
            events,
            offset_ns: -offset,
        };
        let at = |micros: u64| At(i64::try_from(micros * 1_000).expect("small"));
        judge(&Incident {
            sender: End::Local,
            outage: Some(Interruption {
                begin: At(0),
                end: at(self.outage),
            }),
            resolution: ms(1),
            tcp_stall: self.stall.map(Nanoseconds::from_micros),
            caused: None,
            restored: self.restored.map(at),
            timers: &self.timers,
            traces: &[
                trace(End::Local, &self.local),
                trace(End::Remote, &self.remote),
            ],
        })
    }
}

fn timer(protocol: Protocol, interval: u64, timeout: u64) -> Timer {
    Timer {
        protocol,
        interval_ns: ms(interval),
        timeout_ns: ms(timeout),
    }
}

/// Whether the time lies in what was expected, give or take the step of the probes.
fn is_expected(verdict: &Verdict) -> bool {
    let (Some(range), Some(took)) = (verdict.expected, verdict.detection_ns) else {
        return false;
    };
    took.as_u64() + 1_000_000 >= range.min_ns.as_u64()
        && took.as_u64() <= range.max_ns.as_u64() + 1_000_000
}

#[test]
fn a_dead_vrrp_router_is_found_by_its_advertisements() {
    // advert_int 0.1: 308 ms lost; the last advertisement 60 ms before the failure, taken over after 360.9 ms.
    let tenth = record(
        Vec::new(),
        vec![
            adverts(2, 100, -9_000_000, -60_000),
            adverts(3, 100, 301_000, 5_000_000),
        ],
    );
    let mut case = Case::new(308_000, tenth);
    // Established connections: 329 ms, 3 retransmits.
    case.stall = Some(329_000);
    let verdict = case.judge();
    assert_eq!(verdict.phase, Phase::Detection, "{verdict:?}");
    assert_eq!(verdict.mechanism, Some(Mechanism::Vrrp));
    assert!(is_expected(&verdict), "{verdict:?}");
    assert_eq!(verdict.convergence_ns, Some(ms(7)));
    assert_eq!(verdict.tcp_backoff_ns, Some(ms(21)));
    assert!(
        verdict.summary.contains("10.205.1.3 took over"),
        "{}",
        verdict.summary
    );
    // advert_int 1: 3543 ms lost, connections stalled for 3715 ms.
    let second = record(
        Vec::new(),
        vec![
            adverts(2, 1_000, -9_000_000, -80_000),
            adverts(3, 1_000, 3_529_000, 9_000_000),
        ],
    );
    let mut case = Case::new(3_543_000, second);
    case.stall = Some(3_715_000);
    let verdict = case.judge();
    assert_eq!(verdict.phase, Phase::Detection);
    assert!(is_expected(&verdict), "{verdict:?}");
    let advice = verdict.advice.expect("a shorter interval");
    assert!(advice.contains("advert_int 0.1"), "{advice}");
}

#[test]
fn a_side_that_is_silent_alone_is_not_taken_over_under_a_sync_group() {
    let mut case = Case::new(
        2_008_000,
        record(
            Vec::new(),
            vec![
                adverts(2, 100, -9_000_000, -50_000),
                adverts(2, 100, 2_010_000, 5_000_000),
            ],
        ),
    );
    case.remote = record(Vec::new(), vec![adverts(2, 100, -9_000_000, 5_000_000)]);
    case.restored = Some(2_001_000);
    let verdict = case.judge();
    assert_eq!((verdict.phase, verdict.mechanism), (Phase::Detection, None));
    assert_eq!(verdict.detection_ns, Some(ms(2_008)));
    assert!(
        verdict.summary.contains("stopped at the local end"),
        "{}",
        verdict.summary
    );
    assert!(verdict.advice.expect("advice").contains("sync group"));
}

#[test]
fn a_lost_carrier_is_seen_at_once_and_the_rest_is_convergence() {
    // ECMP with BFD 50 ms x 3, the carrier of the other end's link lost: 122 ms in the direction that BFD must find.
    let mut case = Case::new(122_000, record(vec![down("eth0", 400)], Vec::new()));
    let verdict = case.judge();
    assert_eq!(
        (verdict.phase, verdict.mechanism),
        (Phase::Convergence, Some(Mechanism::Carrier))
    );
    assert_eq!(verdict.detection_ns, Some(Nanoseconds::from_micros(400)));
    assert!(
        verdict.summary.contains("eth0 lost its carrier"),
        "{}",
        verdict.summary
    );
    // In the other direction the sender sees only its routes: the carrier at the far end is no sign for it.
    case.remote = std::mem::take(&mut case.local);
    case.local = record(vec![withdrawn("bgp", 118_000)], Vec::new());
    case.timers = vec![timer(Protocol::Bfd, 50, 150)];
    let verdict = case.judge();
    assert_eq!(
        (verdict.phase, verdict.mechanism),
        (Phase::Detection, Some(Mechanism::Routing))
    );
    assert!(is_expected(&verdict), "{verdict:?}");
    assert!(verdict.summary.contains("by BFD"), "{}", verdict.summary);
    // An interface that is not on the path says nothing.
    let mut other = Case::new(122_000, record(vec![down("veth9", 400)], Vec::new()));
    other.local.nics = vec!["eth0".parse().expect("a name")];
    assert_eq!(other.judge().phase, Phase::NotDetermined);
}

#[test]
fn a_silent_wire_below_lacp_takes_its_time_out() {
    // lacp_rate fast, both ends silent: 2191 to 2307 ms lost.
    let fast = Case::new(2_299_000, record(vec![expired(191, 2_290_000)], Vec::new())).judge();
    assert_eq!(
        (fast.phase, fast.mechanism),
        (Phase::Detection, Some(Mechanism::Lacp))
    );
    assert!(is_expected(&fast), "{fast:?}");
    assert!(fast.advice.expect("advice").contains("2 to 3 s"));
    let slow = Case::new(
        75_000_000,
        record(vec![expired(189, 74_990_000)], Vec::new()),
    )
    .judge();
    assert!(is_expected(&slow), "{slow:?}");
    assert!(slow.advice.expect("advice").contains("lacp_rate fast"));
}

#[test]
fn a_dead_next_hop_takes_the_time_out_of_the_protocol_that_watches_it() {
    for (protocol, timers, outage, sign) in [
        ("bgp", vec![timer(Protocol::Bfd, 50, 150)], 178_000, 149_000),
        (
            "ospf",
            vec![timer(Protocol::Bfd, 50, 150)],
            141_000,
            121_000,
        ),
        (
            "bgp",
            vec![timer(Protocol::Bfd, 300, 900)],
            874_000,
            850_000,
        ),
        (
            "bgp",
            vec![timer(Protocol::Bgp, 1_000, 3_000)],
            2_606_000,
            2_590_000,
        ),
        (
            "ospf",
            vec![timer(Protocol::Ospf, 1_000, 4_000)],
            3_090_000,
            3_040_000,
        ),
    ] {
        let mut case = Case::new(outage, record(vec![withdrawn(protocol, sign)], Vec::new()));
        case.timers = timers;
        let verdict = case.judge();
        assert_eq!(verdict.phase, Phase::Detection, "{verdict:?}");
        assert_eq!(verdict.mechanism, Some(Mechanism::Routing));
        assert!(is_expected(&verdict), "{protocol} {outage}: {verdict:?}");
        let short = case.timers[0].timeout_ns <= ms(150);
        let advice = verdict.advice.expect("advice");
        assert_eq!(advice.contains("shorter BFD intervals"), short, "{advice}");
        // Without its configuration the time is known, and what was expected is not.
        case.timers.clear();
        let verdict = case.judge();
        assert_eq!((verdict.phase, verdict.expected), (Phase::Detection, None));
    }
}

#[test]
fn a_next_hop_that_forwards_nothing_and_answers_is_not_detected() {
    let mut case = Case::new(2_003_000, HostEvents::default());
    case.restored = Some(2_000_000);
    let verdict = case.judge();
    assert_eq!(verdict.phase, Phase::Detection);
    assert!(verdict.summary.contains("until the failure was restored"));
    // What follows the restoration is no sign of the failure.
    case.local = record(vec![withdrawn("bgp", 2_002_000)], Vec::new());
    assert_eq!(case.judge().mechanism, None);
}

#[test]
fn a_group_that_shrinks_at_once_leaves_nothing_to_wait_for() {
    let change = Change::NextHop(NextHopObject {
        id: 10,
        hop: None,
        members: vec![2],
        resilient: true,
        removed: false,
    });
    let case = Case::new(13_000, record(vec![event(-200, change)], Vec::new()));
    let verdict = case.judge();
    assert_eq!(verdict.phase, Phase::Convergence);
    assert_eq!(verdict.detection_ns, Some(ms(0)));
    assert!(
        verdict.summary.contains("nexthop group 10"),
        "{}",
        verdict.summary
    );
}

#[test]
fn connections_that_stall_longer_than_the_path_waited_for_their_timer() {
    let mut case = Case::new(50_000, record(vec![down("eth0", 2_000)], Vec::new()));
    case.stall = Some(208_000);
    let verdict = case.judge();
    assert_eq!(verdict.phase, Phase::TcpBackoff);
    assert_eq!(verdict.tcp_backoff_ns, Some(ms(158)));
    assert!(
        verdict
            .advice
            .expect("advice")
            .contains("tcp_thin_linear_timeouts")
    );
}

#[test]
fn nothing_is_claimed_without_facts() {
    let mut case = Case::new(700_000, HostEvents::default());
    let verdict = case.judge();
    assert_eq!(verdict.phase, Phase::NotDetermined);
    assert_eq!((verdict.detection_ns, verdict.advice), (None, None));
    case.local.gaps = vec![Gap::new(Cause::Denied, "packet(7)", "needs CAP_NET_RAW")];
    case.local.losses = vec![Loss {
        source: Source::Rtnetlink,
        from_ns: time(-1_000),
        to_ns: time(10),
        reason: "ENOBUFS".to_owned(),
    }];
    let shown: Vec<String> = case
        .judge()
        .evidence
        .into_iter()
        .map(|own| own.what)
        .collect();
    assert_eq!(
        shown,
        ["local: not recorded", "local: events may be missing"]
    );
}

#[test]
fn no_loss_is_no_outage() {
    let incident = Incident {
        sender: End::Local,
        outage: None,
        resolution: ms(1),
        tcp_stall: None,
        caused: None,
        restored: None,
        timers: &[],
        traces: &[],
    };
    let verdict = judge(&incident);
    assert_eq!(verdict.phase, Phase::None);
    assert_eq!(
        verdict.summary,
        "no packet lost or late, resolution 1.00 ms"
    );
}

proptest! {
    #[test]
    fn the_phases_of_an_outage_with_a_sign_add_up(outage in 1u64..100_000_000, sign in 0i64..100_000_000) {
        let case = Case::new(outage, record(vec![withdrawn("bgp", sign)], Vec::new()));
        let verdict = case.judge();
        if sign <= i64::try_from(outage).expect("small") {
            let sum = verdict.detection_ns.expect("a sign").as_u64() + verdict.convergence_ns.expect("a sign").as_u64();
            prop_assert_eq!(sum, outage * 1_000);
        }
    }

    #[test]
    fn no_times_panic(outage in any::<(i64, i64)>(), offset in any::<i64>(), at in any::<u64>(), stall in any::<u64>()) {
        let mut events = record(vec![withdrawn("bgp", 0)], vec![adverts(2, 100, 0, 0), adverts(3, u64::from(u32::MAX), 0, 0)]);
        events.events[0].at_ns = Nanoseconds::new(at);
        let _ = judge(&Incident {
            sender: End::Remote,
            outage: Some(Interruption { begin: At(outage.0), end: At(outage.1) }),
            resolution: Nanoseconds::new(at),
            tcp_stall: Some(Nanoseconds::new(stall)),
            caused: Some(At(offset)),
            restored: Some(At(outage.1)),
            timers: &[timer(Protocol::Bfd, 50, 150)],
            traces: &[Trace { end: End::Local, events: &events, offset_ns: offset }],
        });
    }
}
