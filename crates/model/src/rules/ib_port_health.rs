//! `ib-port-health`: an InfiniBand port has no subnet manager, runs below its width or speed, or counts
//! errors. Facts from Documentation/ABI/stable/sysfs-class-infiniband.

use super::ALWAYS;
use super::devices::{Notice, Port, grown, growth, judged, or_unwatched, ports, unknown};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Profile, Rule, Severity, Stage, Status,
};
use crate::known::Gap;
use crate::units::{BitRate, Ratio, real};
use crate::watch::Watch;

pub(super) const RULE: Rule = Rule {
    id: "ib-port-health",
    number: 74,
    status: Status::AdviceOnly,
    title: "an InfiniBand port has no subnet manager, runs below its width or speed, or counts errors",
    severity: Severity::Crit,
    stage: Stage::Errors,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts, Basis::Counters],
    threshold: "link up but not ACTIVE, or no subnet manager; width 1x; rate 5 % below width x speed; SDR; \
                role rdma: a RoCE port down while its interface is up; while watched: any link recovery or link \
                down, more than 10 errors per hour, or waiting for credits for a fifth of the busy time",
    effect: "the link runs at full rate, without packets lost to errors",
    source: "Documentation/ABI/stable/sysfs-class-infiniband; ibqueryerrors(8)",
    fix: Fix::Elsewhere,
    persist: "nothing to set: fix the cable, port or subnet manager",
    contested: None,
    page: include_str!("../../../../docs/rules/ib-port-health.md"),
    check,
};

/// As a share of width x speed.
const RATE_SHARE: f64 = 0.95;
const PER_HOUR: f64 = 10.0;
/// The share of the busy time without credits from which the rate suffers.
const CONGESTED: Ratio = Ratio::new(0.2);
/// The unit of `port_xmit_data`; linerate has it in octets.
const OCTETS_PER_TICK: u64 = 4;
/// Below this many ticks per second the port hardly waited, whatever it sent.
const WAITS_PER_SECOND: f64 = 1_000_000.0;

/// Each increment is a link failure.
const LINK: [&str; 2] = ["link_downed", "link_error_recovery"];
/// Errors of the cable, and packets dropped.
const ERRORS: [&str; 10] = [
    "symbol_error",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_rcv_constraint_errors",
    "port_xmit_constraint_errors",
    "port_xmit_discards",
    "local_link_integrity_errors",
    "excessive_buffer_overrun_errors",
    "VL15_dropped",
];

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let all = ports(context);
    let counts = all.iter().any(Port::is_active);
    let said: Vec<Outcome> = all
        .into_iter()
        .filter_map(|port| {
            let mut notices = Vec::from_iter(state(context, port));
            let mut missing = Vec::from_iter(unknown(&port.port.state));
            if port.is_infiniband() && port.is_active() {
                notices.extend(no_manager(port));
                notices.extend(width(port));
                notices.extend(rate(port));
                missing.extend(unknown(&port.port.rate_bit_per_s));
            }
            if let Some(watch) = context.watch {
                notices.extend(link_lost(watch, port));
                notices.extend(errors(watch, port));
                notices.extend(congested(watch, port));
                missing.extend(uncounted(watch, port));
            }
            judged(rule, context, port.subject(), notices, missing)
        })
        .collect();
    or_unwatched(rule, context, counts, said)
}

fn state(context: &Context<'_>, port: Port<'_>) -> Option<Notice> {
    let state = port.port.state.value()?;
    let physical = port.port.physical_state.value();
    let is = |word: &str| physical.is_some_and(|own| own.ends_with(word));
    if port.is_active() {
        return None;
    }
    let name = port.name();
    let (severity, summary) = if is("LinkUp") && port.is_infiniband() {
        let what = "has a link but no subnet manager configured it: start one, or restore its path to this \
                    port";
        (Severity::Crit, format!("{name} {what}"))
    } else if is("LinkUp") {
        let what = "has a link but is not ACTIVE: bring its interface up";
        (Severity::Warn, format!("{name} {what}"))
    } else if is("LinkErrorRecovery") {
        let what = "is in link error recovery: check cable and module";
        (Severity::Crit, format!("{name} {what}"))
    } else if port.is_roce() && context.profile == Profile::Rdma && has_link(context, port) {
        let what = "is down while its network interface is up: enable it in the adapter's firmware or driver";
        (Severity::Warn, format!("{name} {what}"))
    } else if port.is_infiniband() && context.profile == Profile::Rdma {
        // A port without a cable is normal.
        (Severity::Note, format!("{name} has no link"))
    } else {
        return None;
    };
    let physical =
        physical.map(|own| Evidence::new("physical state", own, port.file("phys_state")));
    Some(
        Notice::new(severity, summary)
            .with([Evidence::new("state", state, port.file("state"))])
            .with(physical),
    )
}

/// Whether the network interface of the port is up.
fn has_link(context: &Context<'_>, port: Port<'_>) -> bool {
    let nic = port.nic(context);
    nic.is_some_and(|nic| nic.operstate.value().is_some_and(|state| state == "up"))
}

fn no_manager(port: Port<'_>) -> Option<Notice> {
    let lid = port.port.subnet_manager_lid.get()?;
    (lid == 0).then(|| {
        let summary = format!(
            "{} has no subnet manager (sm_lid 0), so routes and members cannot change: start one",
            port.name()
        );
        let evidence = Evidence::new(
            "LID of the subnet manager (sm_lid)",
            lid,
            port.file("sm_lid"),
        );
        Notice::new(Severity::Warn, summary).with([evidence])
    })
}

/// Cables have four lanes or more; a port of a split HDR or NDR cable two. A width of one is a fault.
fn width(port: Port<'_>) -> Option<Notice> {
    let width = port.port.width.get()?;
    (width == 1).then(|| {
        let summary = format!(
            "{} runs at width 1x: reseat or replace the cable",
            port.name()
        );
        Notice::new(Severity::Warn, summary).with([Evidence::new("width", "1X", port.file("rate"))])
    })
}

/// The kernel's rate for one lane of each speed, Mb/s (drivers/infiniband/core/sysfs.c).
fn lane_mbit(speed: &str) -> Option<u64> {
    Some(match speed {
        "SDR" => 2_500,
        "DDR" => 5_000,
        "QDR" | "FDR10" => 10_000,
        "FDR" => 14_000,
        "EDR" => 25_000,
        "HDR" => 50_000,
        "NDR" => 100_000,
        "XDR" => 200_000,
        _ => return None,
    })
}

fn rate(port: Port<'_>) -> Option<Notice> {
    let own = port.port.rate_bit_per_s.get()?;
    let speed = port.port.speed.value()?;
    let said = Evidence::new("rate", format!("{own} ({speed})"), port.file("rate"));
    if speed == "SDR" {
        let summary = format!(
            "{} came up at SDR, the fallback speed: check cable and peer",
            port.name()
        );
        return Some(Notice::new(Severity::Warn, summary).with([said]));
    }
    let lanes = u64::from(port.port.width.get()?);
    let whole = BitRate::from_bit_per_s(
        lane_mbit(speed)?
            .saturating_mul(1_000_000)
            .saturating_mul(lanes),
    );
    (own.as_f64() < RATE_SHARE * whole.as_f64()).then(|| {
        let summary = format!(
            "{} runs at {own}, {lanes}X {speed} is {whole}: check cable and peer",
            port.name()
        );
        let width = Evidence::new("width", format!("{lanes}X"), port.file("rate"));
        Notice::new(Severity::Warn, summary).with([said, width])
    })
}

/// Why no counter of an active port is known; software RoCE and many Ethernet NICs have none.
fn uncounted(watch: &Watch, port: Port<'_>) -> Option<Gap> {
    let grown = |name: &str| watch.grown(&port.key(&format!("counter/{name}")));
    if !port.is_active()
        || LINK
            .iter()
            .chain(&ERRORS)
            .any(|name| grown(name).get().is_some())
    {
        return None;
    }
    let gap = grown("link_downed").gap().cloned()?;
    (port.is_infiniband() || gap.leaves_a_question()).then_some(gap)
}

fn link_lost(watch: &Watch, port: Port<'_>) -> Option<Notice> {
    let key = |name: &str| port.key(&format!("counter/{name}"));
    let lost = grown(watch, LINK, key);
    let (name, by) = lost.first()?;
    let summary = format!(
        "{}: {name} grew by {by} while watched: check cable, module and peer",
        port.name()
    );
    let evidence = lost
        .iter()
        .map(|(name, by)| growth(watch, name, &key(name), *by));
    Some(Notice::new(Severity::Crit, summary).with(evidence))
}

/// The port had data to send and no credits. `port_xmit_wait` counts ticks, in each of which the port could have sent
/// one unit of `port_xmit_data` (InfiniBand Architecture Specification, PortXmitWait).
fn congested(watch: &Watch, port: Port<'_>) -> Option<Notice> {
    let key = |name: &str| port.key(&format!("counter/{name}"));
    let grown = |name: &str| watch.grown(&key(name)).get();
    let (waited, octets) = (grown("port_xmit_wait")?, grown("port_xmit_data")?);
    let sent = octets / OCTETS_PER_TICK;
    let often = real(waited) > WAITS_PER_SECOND * watch.span_ns.as_secs_f64();
    let summary = format!(
        "{} waited for credits for {} of the time in which it had data: the fabric or a receiver is congested",
        port.name(),
        Ratio::new(real(waited) / real(waited.saturating_add(sent).max(1)))
    );
    (often && real(waited) > CONGESTED.as_f64() * real(waited.saturating_add(sent))).then(|| {
        let evidence = [("port_xmit_wait", waited), ("port_xmit_data", octets)];
        Notice::new(Severity::Warn, summary)
            .with(evidence.map(|(name, by)| growth(watch, name, &key(name), by)))
    })
}

fn errors(watch: &Watch, port: Port<'_>) -> Option<Notice> {
    let key = |name: &str| port.key(&format!("counter/{name}"));
    let often = |name: &str| {
        watch
            .per_second(&key(name))
            .get()
            .is_some_and(|rate| rate * 3600.0 > PER_HOUR)
    };
    let seen: Vec<_> = grown(watch, ERRORS, key)
        .into_iter()
        .filter(|(name, _)| often(name))
        .collect();
    let (name, by) = seen.iter().max_by_key(|(_, by)| *by)?;
    // A few dropped management packets are normal on a healthy fabric.
    let harmless = seen.iter().all(|(name, _)| *name == "VL15_dropped");
    let severity = if harmless {
        Severity::Note
    } else {
        Severity::Warn
    };
    let summary = format!(
        "{}: {name} grew by {by} while watched{}: check cable, module and congestion",
        port.name(),
        if seen.len() > 1 {
            ", others as well"
        } else {
            ""
        }
    );
    let evidence = seen
        .iter()
        .map(|(name, by)| growth(watch, name, &key(name), *by));
    Some(Notice::new(severity, summary).with(evidence))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::devices::testing::{infiniband, roce};
    use super::super::testing::{Cases, World, context, finding, silent};
    use super::*;
    use crate::build;
    use crate::host::{Host, RdmaPort};
    use crate::known::Known;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("no subnet manager", || {
                World::of(host(|port| port.state = Known::Value("INIT".to_owned())))
            }),
            ("one lane", || {
                World::of(host(|port| port.width = Known::Value(1)))
            }),
            ("SDR", || {
                World::of(host(|port| port.speed = Known::Value("SDR".to_owned())))
            }),
            ("errors of symbols", || {
                World::of(host(|_| {}))
                    .watched(|watch| watch.grew("rdma/mlx5_0/1/counter/symbol_error", 9))
            }),
            ("no credits for most of the time", || {
                World::of(host(|_| {})).watched(|watch| {
                    watch
                        .grew("rdma/mlx5_0/1/counter/port_xmit_wait", 9_000_000_000)
                        .grew("rdma/mlx5_0/1/counter/port_xmit_data", 2_000_000_000)
                })
            }),
            ("the link went", || {
                World::of(host(|_| {}))
                    .watched(|watch| watch.grew("rdma/mlx5_0/1/counter/link_downed", 1))
            }),
        ],
        silent: &[
            ("healthy and watched", || {
                World::of(host(|_| {})).watched(|watch| watch)
            }),
            ("short waits", || {
                World::of(host(|_| {})).watched(|watch| {
                    watch
                        .grew("rdma/mlx5_0/1/counter/port_xmit_wait", 9_000_000)
                        .grew("rdma/mlx5_0/1/counter/port_xmit_data", 9_000_000_000)
                })
            }),
            ("without a cable", || World::of(host(unplugged))),
            ("two lanes of HDR, a split cable", || {
                World::of(host(|port| {
                    port.speed = Known::Value("HDR".to_owned());
                    port.width = Known::Value(2);
                }))
                .watched(|watch| watch)
            }),
            ("no RDMA", || World::of(build::host().build())),
        ],
        undetermined: &[
            ("not watched", || World::of(host(|_| {}))),
            ("its errors are not counted", || {
                World::of(host(|_| {})).watched(|watch| watch.without("rdma/"))
            }),
            ("the state may not be read", || {
                World::of(host(|port| port.state = Known::not_asked("state")))
            }),
        ],
    };

    fn unplugged(port: &mut RdmaPort) {
        port.state = Known::Value("1: DOWN".to_owned());
        port.physical_state = Known::Value("2: Polling".to_owned());
    }

    fn host(change: impl FnOnce(&mut RdmaPort)) -> Host {
        let mut device = infiniband("mlx5_0");
        change(&mut device.ports[0]);
        build::host().with(|host| host.rdma.push(device)).build()
    }

    #[test]
    fn without_a_subnet_manager_it_is_critical() {
        let host = host(|port| port.state = Known::Value("2: INIT".to_owned()));
        assert_eq!(finding(ID, &context(&host)).severity, Severity::Crit);
    }

    #[test]
    fn a_rate_below_its_lanes_warns_with_both_figures() {
        let host =
            host(|port| port.rate_bit_per_s = Known::Value(BitRate::from_mbit_per_s(50_000)));
        let said = finding(ID, &context(&host));
        assert_eq!(said.severity, Severity::Warn);
        assert!(said.summary.contains("100.0 Gb/s"), "{}", said.summary);
    }

    #[test]
    fn a_port_without_a_cable_is_a_note_at_most_and_an_ethernet_port_has_no_manager() {
        let down = World::of(host(unplugged)).profile(Profile::Rdma);
        assert_eq!(finding(ID, &down.context()).severity, Severity::Note);
        let ethernet = build::host()
            .with(|host| host.rdma.push(roce("mlx5_0", "eth0")))
            .build();
        let world = World::of(ethernet).watched(|watch| watch);
        assert!(silent(ID, &world.context()));
    }
}
