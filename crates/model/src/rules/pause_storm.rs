//! `pause-storm`: pause frames stop the link for a large share of the time. Counts from
//! `ETHTOOL_MSG_PAUSE_GET` (IEEE 802.3 clause 31B), durations and storm events from mlx5 counters.rst.

use super::judged::{Growth, Judged, growth, judge_watched};
use super::{ALWAYS, Draft, subject};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::Nic;
use crate::setting::Class;
use crate::units::{Ratio, real};
use crate::watch::Watch;

pub(super) const RULE: Rule = Rule {
    id: "pause-storm",
    number: 41,
    status: Status::Implemented,
    title: "pause frames stop the link for a large share of the time",
    severity: Severity::Crit,
    stage: Stage::Errors,
    profiles: ALWAYS,
    judges_by: &[Basis::Counters],
    threshold: "paused for more than 1 % of the time, from a duration counter, or from frames x the maximum \
                pause if only frames are counted, from 10 per second on (warn); a pause storm warning event \
                (warn) or error event (crit)",
    effect: "exact: the share of time in which the paused side cannot send",
    source: "IEEE 802.3 Annex 31B; Documentation/networking/ethtool-netlink.rst (PAUSE_GET); \
             Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst",
    fix: Fix::Advised(&[Class::R3]),
    persist: "a systemd .link file (RxFlowControl=, TxFlowControl=) to change pause frames",
    contested: None,
    page: include_str!("../../../../docs/rules/pause-storm.md"),
    check,
};

/// The tolerated share of time in which the link is paused.
const PAUSED: Ratio = Ratio::new(0.01);
/// Below this many frames per second it is only a short burst.
const FRAMES_PER_SECOND: f64 = 10.0;
/// The maximum pause of one frame: 65535 quanta of 512 bit times.
const LONGEST_PAUSE_BITS: f64 = 65_535.0 * 512.0;

const STORM_ERROR: &str = "driver/tx_pause_storm_error_events";
const STORM_WARNING: &str = "driver/tx_pause_storm_warning_events";

/// One direction of pause frames.
struct PauseDirection {
    frames: &'static str,
    /// What drivers without the standard counters count (Intel igb, e1000e, ixgbe, ice; Broadcom bnxt, tg3; mlx4).
    own_frames: &'static [&'static str],
    duration: &'static str,
    /// The mlx5 priority counters for it.
    prefix: &'static str,
    means: &'static str,
}

const WAYS: [PauseDirection; 2] = [
    PauseDirection {
        frames: "pause/tx-frames",
        own_frames: &[
            "driver/tx_flow_control_xoff",
            "driver/tx_xoff.nic",
            "driver/link_xoff_tx",
            "driver/tx_pause_frames",
            "driver/tx_xoff_sent",
            "driver/tx_pause",
        ],
        duration: "driver/tx_global_pause_duration",
        prefix: "tx_prio",
        means: "pauses its link partner: this host receives too slowly, check PCIe, memory and CPU",
    },
    PauseDirection {
        frames: "pause/rx-frames",
        own_frames: &[
            "driver/rx_flow_control_xoff",
            "driver/rx_xoff.nic",
            "driver/link_xoff_rx",
            "driver/rx_pause_frames",
            "driver/rx_xoff_pause_rcvd",
            "driver/rx_pause",
        ],
        duration: "driver/rx_global_pause_duration",
        prefix: "rx_prio",
        means: "is paused by its link partner: the network or the peer receives too slowly",
    },
];

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    judge_watched(rule, context, |nic| nic.kind.has_wire(), check_nic)
}

fn check_nic(nic: &Nic, watch: &Watch) -> Judged {
    let storms = growth(watch, nic, &[STORM_ERROR, STORM_WARNING]);
    let mut evidence = storms.evidence();
    let mut severity = match (storms.by(STORM_ERROR), storms.by(STORM_WARNING)) {
        (0, 0) => None,
        (0, _) => Some(Severity::Warn),
        _ => Some(Severity::Crit),
    };
    let mut words = format!("{} reports a pause storm ({})", nic.name, storms.words());
    let mut unread = storms.quiet();
    for way in &WAYS {
        let seen = growth(watch, nic, &[way.frames, way.duration]).and_below(
            watch,
            nic,
            "driver",
            |name| name.starts_with(way.prefix) && name.ends_with("_pause_duration"),
        );
        unread = unread.and(seen.quiet());
        let own = own_frames(nic, watch, way, &seen);
        let frames = own.as_ref().map_or(seen.by(way.frames), Growth::most);
        let Some((share, how)) = share(nic, watch, way, &seen, frames) else {
            continue;
        };
        evidence.extend(seen.evidence());
        evidence.extend(own.iter().flat_map(Growth::evidence));
        evidence.push(Evidence::new(
            format!("share of time paused ({})", way.frames),
            format!("{how} {}", Ratio::new(share)),
            watch.path(&format!("nic/{}/{}", nic.name, way.frames)),
        ));
        if severity.is_none() {
            words = format!("{} {}", nic.name, way.means);
            severity = Some(Severity::Warn);
        }
    }
    let Some(severity) = severity else {
        return unread;
    };
    Ok(Some(Draft {
        severity,
        subject: subject(nic),
        summary: words,
        evidence,
        remedies: Vec::new(),
    }))
}

/// The frames by the driver's own counters, where the standard one is not read.
fn own_frames(nic: &Nic, watch: &Watch, way: &PauseDirection, seen: &Growth) -> Option<Growth> {
    let key = format!("nic/{}/{}", nic.name, way.frames);
    let has_standard = watch.counters.contains_key(&key) || seen.by(way.frames) > 0;
    (!has_standard).then(|| {
        growth(watch, nic, &[]).and_below(watch, nic, "driver", |name| {
            let name = format!("driver/{name}");
            way.own_frames.contains(&name.as_str())
        })
    })
}

/// The share of time that one direction was paused, if above the threshold: as counted by the NIC in microseconds,
/// otherwise the maximum that its frames can request.
fn share(
    nic: &Nic,
    watch: &Watch,
    way: &PauseDirection,
    seen: &Growth,
    frames: u64,
) -> Option<(f64, &'static str)> {
    let seconds = watch.span_ns.as_secs_f64();
    if seconds <= 0.0 {
        return None;
    }
    let frames = real(frames);
    let durations = seen.grew.iter().filter(|(name, ..)| *name != way.frames);
    let counted = watch
        .counters
        .contains_key(&format!("nic/{}/{}", nic.name, way.duration));
    let longest = durations.map(|(_, by, _)| *by).max();
    let (share, how) = match longest {
        Some(longest) => (real(longest) / 1e6 / seconds, "counted"),
        None if counted || frames / seconds < FRAMES_PER_SECOND => return None,
        None => {
            let speed = nic.link_bit_per_s.get()?.as_f64().max(1.0);
            (
                (frames * LONGEST_PAUSE_BITS / speed / seconds).min(1.0),
                "at most",
            )
        }
    };
    (share > PAUSED.as_f64()).then_some((share, how))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding};
    use super::*;
    use crate::build;
    use crate::host::Host;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("many pause frames come in", || {
                World::of(card()).watched(|w| w.grew("nic/eth0/pause/rx-frames", 5_000))
            }),
            ("counted by the driver only", || {
                World::of(card()).watched(|w| {
                    w.without("nic/eth0/pause")
                        .grew("nic/eth0/driver/rx_flow_control_xoff", 5_000)
                })
            }),
            ("two per cent of the time, counted", || {
                World::of(card())
                    .watched(|w| w.grew("nic/eth0/driver/tx_global_pause_duration", 200_000))
            }),
            ("of one priority", || {
                World::of(card())
                    .watched(|w| w.grew("nic/eth0/driver/rx_prio3_pause_duration", 200_000))
            }),
        ],
        silent: &[
            ("none", || World::of(card()).watched(|w| w)),
            ("a burst", || {
                World::of(card()).watched(|w| w.grew("nic/eth0/pause/rx-frames", 20))
            }),
            ("many frames that were released at once", || {
                World::of(card()).watched(|w| {
                    w.grew("nic/eth0/pause/rx-frames", 5_000)
                        .grew("nic/eth0/driver/rx_global_pause_duration", 900)
                })
            }),
        ],
        undetermined: &[
            ("counters not watched", || World::of(card())),
            ("the counters may not be read", || {
                World::of(card()).watched(|w| w.denied("nic/eth0/pause"))
            }),
        ],
    };

    fn card() -> Host {
        build::host().nic("eth0", |nic| nic).build()
    }

    #[test]
    fn who_is_slow_depends_on_the_direction() {
        let said = |key: &str| {
            let world = World::of(card()).watched(|w| w.grew(key, 5_000));
            finding(RULE.id, &world.context())
        };
        let tx = said("nic/eth0/pause/tx-frames");
        assert!(tx.summary.contains("this host"), "{}", tx.summary);
        let rx = said("nic/eth0/pause/rx-frames");
        assert!(rx.summary.contains("the peer"), "{}", rx.summary);
        assert_eq!(rx.severity, Severity::Warn);
        let storm = said("nic/eth0/driver/tx_pause_storm_error_events");
        assert_eq!(storm.severity, Severity::Crit);
    }
}
