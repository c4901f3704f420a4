//! `phy-errors`: the port receives damaged frames, or the link flaps. Counters of `struct
//! rtnl_link_stats64`, the standard groups of `ETHTOOL_MSG_STATS_GET` (IEEE 802.3 clause 30), and mlx5
//! counters.rst.

use super::judged::{Growth, Judged, growth, judge_watched};
use super::{ALWAYS, Draft, subject};
use crate::finding::{Basis, Context, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::Nic;
use crate::watch::Watch;

pub(super) const RULE: Rule = Rule {
    id: "phy-errors",
    number: 39,
    status: Status::AdviceOnly,
    title: "the port receives damaged frames, or the link flaps",
    severity: Severity::Warn,
    stage: Stage::Errors,
    profiles: ALWAYS,
    judges_by: &[Basis::Counters],
    threshold: "any CRC, symbol or alignment error, any frame lost to a missing carrier or a late collision, or any \
                link flap while watched (warn); length errors alone (note)",
    effect: "each damaged frame is lost, and each lost frame slows its connection; no figure",
    source: "Documentation/networking/statistics.rst; Documentation/networking/ethtool-netlink.rst \
             (STATS_GET); Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst",
    fix: Fix::Elsewhere,
    persist: "nothing on the host: cable, module or switch port",
    contested: None,
    page: include_str!("../../../../docs/rules/phy-errors.md"),
    check,
};

const DAMAGED: [&str; 8] = [
    "stat/rx_crc_errors",
    "stat/rx_frame_errors",
    "phy/SymbolErrorDuringCarrier",
    "mac/FrameCheckSequenceErrors",
    "mac/AlignmentErrors",
    "driver/rx_crc_errors_phy",
    "driver/rx_symbol_err_phy",
    "driver/rx_in_range_len_errors_phy",
];
/// Frames with an invalid length: caused by a cable, but also by a peer (an emulated one sends short frames without
/// padding).
const ODD: [&str; 1] = ["stat/rx_length_errors"];
/// Frames that the port could not send: no carrier, or a collision after the slot time, which only a duplex mismatch
/// or a cable that is too long causes.
const UNSENT: [&str; 4] = [
    "stat/tx_carrier_errors",
    "stat/tx_window_errors",
    "mac/FramesLostDueToIntMACXmitError",
    "mac/LateCollisions",
];
const FLAPS: [&str; 3] = [
    "stat/carrier_changes",
    "link/ext_down_cnt",
    "driver/link_down_events_phy",
];

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    judge_watched(rule, context, |nic| nic.kind.has_wire(), check_nic)
}

fn check_nic(nic: &Nic, watch: &Watch) -> Judged {
    let damaged = growth(watch, nic, &DAMAGED);
    let flaps = growth(watch, nic, &FLAPS);
    let unsent = growth(watch, nic, &UNSENT);
    let name = &nic.name;
    if damaged.grew.is_empty() && flaps.grew.is_empty() && !unsent.grew.is_empty() {
        return Ok(Some(lost_while_sending(nic, watch, &unsent)));
    }
    let what = match (damaged.grew.is_empty(), flaps.grew.is_empty()) {
        (true, true) => return odd_lengths(nic, watch, damaged.quiet_if_read()),
        (false, true) => format!("{name} receives damaged frames ({})", damaged.words()),
        (true, false) => format!("the link of {name} flaps ({})", flaps.words()),
        (false, false) => format!(
            "{name} receives damaged frames ({}) and its link flaps",
            damaged.words()
        ),
    };
    let mut evidence = damaged.evidence();
    evidence.extend(flaps.evidence());
    Ok(Some(Draft {
        severity: Severity::Warn,
        subject: subject(nic),
        summary: format!(
            "{what}: reseat or replace cable and module, and compare the counters of the link partner"
        ),
        evidence,
        remedies: Vec::new(),
    }))
}

/// The finding about frames that the port could not send.
fn lost_while_sending(nic: &Nic, watch: &Watch, unsent: &Growth) -> Draft {
    let collisions = growth(watch, nic, &["stat/collisions"]);
    Draft {
        severity: Severity::Warn,
        subject: subject(nic),
        summary: format!(
            "{} loses frames that it sends ({}): check the cable, and that both ends have the same duplex mode",
            nic.name,
            unsent.words()
        ),
        evidence: unsent
            .evidence()
            .into_iter()
            .chain(collisions.evidence())
            .collect(),
        remedies: Vec::new(),
    }
}

/// The result for an interface without damaged frames: frames with an invalid length.
fn odd_lengths(nic: &Nic, watch: &Watch, quiet: Judged) -> Judged {
    let odd = growth(watch, nic, &ODD);
    if odd.grew.is_empty() {
        return quiet;
    }
    Ok(Some(Draft {
        severity: Severity::Note,
        subject: subject(nic),
        summary: format!(
            "{} receives frames with length errors ({}): the link partner sends them, or the cable damages \
             them",
            nic.name,
            odd.words()
        ),
        evidence: odd.evidence(),
        remedies: Vec::new(),
    }))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding};
    use super::*;
    use crate::build;
    use crate::host::Host;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("damaged frames", || {
                World::of(card()).watched(|w| w.grew("nic/eth0/stat/rx_crc_errors", 1))
            }),
            ("symbols without a carrier", || {
                World::of(card()).watched(|w| w.grew("nic/eth0/phy/SymbolErrorDuringCarrier", 9))
            }),
            ("late collisions", || {
                World::of(card()).watched(|w| w.grew("nic/eth0/stat/tx_window_errors", 4))
            }),
            ("no carrier while sending", || {
                World::of(card()).watched(|w| w.grew("nic/eth0/stat/tx_carrier_errors", 4))
            }),
            ("the link went and came", || {
                World::of(card()).watched(|w| w.grew("nic/eth0/stat/carrier_changes", 2))
            }),
        ],
        silent: &[
            ("collisions alone, as half duplex has them", || {
                World::of(card()).watched(|w| w.grew("nic/eth0/stat/collisions", 50))
            }),
            ("nothing moved", || World::of(card()).watched(|w| w)),
            ("a veth has no wire", || World::of(build::veth_pair().0)),
        ],
        undetermined: &[
            ("counters not watched", || World::of(card())),
            ("no statistics", || {
                World::of(card()).watched(|w| w.without("nic/eth0/stat"))
            }),
        ],
    };

    fn card() -> Host {
        build::host().nic("eth0", |nic| nic).build()
    }

    #[test]
    fn frames_of_a_wrong_length_alone_are_a_note() {
        let world = World::of(card()).watched(|w| w.grew("nic/eth0/stat/rx_length_errors", 2));
        assert_eq!(finding(RULE.id, &world.context()).severity, Severity::Note);
    }

    #[test]
    fn everything_that_grew_is_shown() {
        let world = World::of(card()).watched(|w| {
            w.grew("nic/eth0/stat/rx_crc_errors", 3)
                .grew("nic/eth0/driver/link_down_events_phy", 1)
        });
        let said = finding(RULE.id, &world.context());
        assert_eq!(said.evidence.len(), 2);
        assert!(
            said.summary.contains("rx_crc_errors +3"),
            "{}",
            said.summary
        );
    }
}
