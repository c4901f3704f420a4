//! Notifications and packets in, the record out.

use std::net::Ipv6Addr;

use linerate_model::known::Cause;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::netlink::notification::MemberState;

const MILLISECOND: u64 = 1_000_000;

fn at(milliseconds: u64) -> Nanoseconds {
    Nanoseconds::from_millis(milliseconds)
}

fn link(interface: u32, name: &str, carrier: bool) -> LinkChange {
    LinkChange {
        interface,
        name: name.parse().ok(),
        up: true,
        carrier,
        operstate: if carrier { 6 } else { 2 },
        removed: false,
        master: None,
        lower: None,
        member: None,
    }
}

fn member(interface: u32, actor: u8) -> LinkChange {
    LinkChange {
        master: Some(9),
        member: Some(MemberState {
            state: 0,
            mii_status: 0,
            aggregator: Some(1),
            actor: Some(actor),
            partner: Some(61),
        }),
        ..link(interface, &format!("eth{interface}"), true)
    }
}

fn route(net: [u8; 4], prefix: u8, gateway: [u8; 4]) -> RouteChange {
    RouteChange {
        destination: net.into(),
        prefix,
        table: 254,
        protocol: 186,
        metric: Some(20),
        next_hop_id: None,
        hops: vec![HopIndex {
            interface: Some(1),
            gateway: Some(gateway.into()),
            dead: false,
        }],
        removed: false,
    }
}

fn vrrp(last: u8, priority: u8) -> Packet {
    Packet::Vrrp(Vrrp {
        version: 3,
        source: IpAddr::from([10, 0, 0, last]),
        router_id: 51,
        priority,
        interval: at(100),
        address: Some(IpAddr::from([10, 0, 0, 1])),
    })
}

#[test]
fn only_changes_are_events() {
    let mut log = Log::new(None);
    log.begin(vec![Notification::Link(link(1, "eth1", true))]);
    for carrier in [true, true, false, false, true] {
        let change = Notification::Link(link(1, "eth1", carrier));
        log.take(at(5), Source::Rtnetlink, change);
    }
    let record = log.finish();
    let carriers = record.events.iter().map(|event| match &event.change {
        Change::Link(link) => (link.nic.as_str(), link.carrier, link.operstate.as_str()),
        other => panic!("{other:?}"),
    });
    assert_eq!(
        carriers.collect::<Vec<_>>(),
        [("eth1", false, "down"), ("eth1", true, "up")]
    );
}

#[test]
fn a_member_that_is_listed_before_its_bond_has_its_bonds_name() {
    let mut log = Log::new(None);
    log.begin(vec![
        Notification::Link(member(2, 63)),
        Notification::Link(link(9, "bond0", true)),
    ]);
    assert_eq!(log.members(), BTreeSet::from([2]));
    // Expired: the partner is silent.
    log.take(at(7), Source::Bonds, Notification::Link(member(2, 191)));
    let mut free = link(2, "eth2", true);
    log.take(at(8), Source::Rtnetlink, Notification::Link(free.clone()));
    free.removed = true;
    log.take(at(9), Source::Rtnetlink, Notification::Link(free));
    let record = log.finish();
    let [expired, released, gone] = record.events.as_slice() else {
        panic!("{record:?}")
    };
    let Change::BondMember(expired) = &expired.change else {
        panic!("{expired:?}")
    };
    assert_eq!(expired.bond.as_str(), "bond0");
    assert!(!expired.carries());
    assert!(matches!(&released.change, Change::BondMember(own) if own.state == "released"));
    assert!(matches!(&gone.change, Change::Link(own) if own.removed && !own.carries()));
}

#[test]
fn the_path_is_the_interface_of_the_route_with_those_below_it() {
    let mut log = Log::new(None);
    let vlan = LinkChange {
        lower: Some(9),
        ..link(1, "bond0.7", true)
    };
    log.begin(vec![
        Notification::Link(vlan),
        Notification::Link(member(2, 63)),
        Notification::Link(link(3, "eth3", true)),
        Notification::Link(link(9, "bond0", true)),
    ]);
    log.follow(&route([0; 4], 0, [10, 1, 0, 1]));
    let nics = log.finish().nics;
    let names: Vec<&str> = nics.iter().map(NicName::as_str).collect();
    assert_eq!(names, ["bond0.7", "bond0", "eth2"]);
}

#[test]
fn routes_that_do_not_lead_to_the_peer_are_not_recorded() {
    let mut log = Log::new(Some(IpAddr::from([10, 2, 0, 7])));
    for (net, prefix) in [
        ([10, 2, 0, 0], 24),
        ([10, 3, 0, 0], 24),
        ([0, 0, 0, 0], 0),
        ([10, 2, 0, 7], 32),
    ] {
        let change = Notification::Route(route(net, prefix, [10, 1, 0, 2]));
        log.take(at(1), Source::Rtnetlink, change);
    }
    let mut six = route([0; 4], 0, [0; 4]);
    six.destination = Ipv6Addr::UNSPECIFIED.into();
    log.take(at(2), Source::Rtnetlink, Notification::Route(six));
    let record = log.finish();
    let kept = record.events.iter().map(|event| match &event.change {
        Change::Route(route) => (route.destination.as_str(), route.protocol.as_str()),
        other => panic!("{other:?}"),
    });
    assert_eq!(
        kept.collect::<Vec<_>>(),
        [
            ("10.2.0.0/24", "bgp"),
            ("default", "bgp"),
            ("10.2.0.7/32", "bgp")
        ]
    );
    assert_eq!(record.gateways, [IpAddr::from([10, 1, 0, 2])]);
}

#[test]
fn only_gateways_are_heard_and_a_question_of_theirs_is_no_evidence() {
    let mut log = Log::new(Some(IpAddr::from([10, 2, 0, 7])));
    log.follow(&route([0; 4], 0, [10, 1, 0, 1]));
    for (last, reply, gratuitous) in [
        (1, true, false),
        (1, false, true),
        (1, false, false),
        (2, true, false),
    ] {
        let packet = Packet::Arp {
            sender: IpAddr::from([10, 1, 0, last]),
            mac: vec![2, 0, 0, 0, 0, 9],
            reply,
            gratuitous,
        };
        log.hear(at(1), 1, &[], packet);
    }
    for (last, state) in [(1, 0x20), (1, 0x20), (3, 0x02)] {
        let change = Notification::Neighbor {
            interface: 1,
            address: IpAddr::from([10, 1, 0, last]),
            state,
            mac: None,
            removed: false,
        };
        log.take(at(2), Source::Rtnetlink, change);
    }
    let record = log.finish();
    assert_eq!(record.events.len(), 3, "{record:?}");
    let Change::Arp { mac, reply, .. } = &record.events[0].change else {
        panic!("{record:?}")
    };
    assert_eq!((mac.as_str(), *reply), ("02:00:00:00:00:09", true));
    assert!(
        matches!(&record.events[2].change, Change::Neighbor { state, .. } if state == "failed")
    );
}

#[test]
fn a_pause_of_more_than_two_intervals_ends_a_series_of_advertisements() {
    let mut log = Log::new(None);
    let times = [0, 100, 201, 400, 601, 700];
    for time in times {
        log.hear(at(time), 1, &[], vrrp(2, 150));
    }
    log.hear(at(750), 1, &[], vrrp(2, 0));
    log.hear(at(760), 1, &[], vrrp(3, 100));
    let record = log.finish();
    let series = record.vrrp.iter().map(|own| {
        let (first, last) = (own.first_ns.as_u64(), own.last_ns.as_u64());
        (
            own.priority,
            first / MILLISECOND,
            last / MILLISECOND,
            own.count,
        )
    });
    assert_eq!(
        series.collect::<Vec<_>>(),
        [
            (150, 0, 400, 4),
            (150, 601, 700, 2),
            (0, 750, 750, 1),
            (100, 760, 760, 1)
        ]
    );
}

#[test]
fn what_does_not_fit_is_a_loss_of_its_source() {
    let mut log = Log::new(None);
    for time in 0..EVENTS_MAX as u64 + 3 {
        let change = Notification::Link(link(1, "eth1", time % 2 == 0));
        log.take(at(time), Source::Rtnetlink, change);
    }
    log.gap(Gap::new(Cause::Denied, "packet(7)", "needs CAP_NET_RAW"));
    log.gap(Gap::new(Cause::Denied, "packet(7)", "needs CAP_NET_RAW"));
    let record = log.finish();
    assert_eq!(record.check(), Ok(()));
    assert_eq!((record.events.len(), record.gaps.len()), (EVENTS_MAX, 1));
    let [loss] = record.losses.as_slice() else {
        panic!("{:?}", record.losses)
    };
    assert_eq!(loss.source, Source::Rtnetlink);
    assert!(loss.reason.starts_with("3 events"), "{loss:?}");
}

proptest! {
    #[test]
    fn no_notifications_make_a_record_that_is_refused(
        changes in vec((0u32..4, any::<bool>(), any::<bool>(), proptest::option::of(0u32..4), any::<u8>()), 0..60),
        adverts in vec((any::<u64>(), any::<u8>(), any::<u8>()), 0..60),
    ) {
        let mut log = Log::new(None);
        for (time, (interface, carrier, removed, master, operstate)) in (0u64..).zip(changes) {
            let change = LinkChange { operstate, removed, master, ..member(interface, operstate) };
            let change = LinkChange { carrier, ..change };
            log.take(at(time), Source::Rtnetlink, Notification::Link(change));
        }
        for (time, last, priority) in adverts {
            log.hear(Nanoseconds::new(time), 1, &[], vrrp(last, priority));
        }
        let record = log.finish();
        prop_assert_eq!(record.check(), Ok(()));
        prop_assert!(record.events.is_sorted_by_key(|event| event.at_ns));
    }
}
