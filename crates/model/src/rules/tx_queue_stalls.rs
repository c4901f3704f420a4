//! `tx-queue-stalls`: a transmit queue stalled. `tx_timeout` and the stall counters of byte queue limits
//! from Documentation/ABI/testing/sysfs-class-net-queues; stops and wakes from
//! Documentation/netlink/specs/netdev.yaml.

use super::judged::{Growth, Judged, growth, judge_each, judge_watched};
use super::{ALWAYS, Draft, subject};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{Nic, QueueKind};
use crate::setting::Class;
use crate::units::{Ratio, real};
use crate::watch::{Watch, total};

pub(super) const RULE: Rule = Rule {
    id: "tx-queue-stalls",
    number: 25,
    status: Status::Implemented,
    title: "a transmit queue stalled",
    severity: Severity::Crit,
    stage: Stage::Errors,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts, Basis::Counters],
    threshold: "a transmit timeout while watched (crit), before (note); a BQL stall (warn); tx-stop for more than 1 % of \
                the packets (note)",
    effect: "no verified figure; a timeout resets the queue or the NIC and loses the queued packets",
    source: "Documentation/ABI/testing/sysfs-class-net-queues; \
             Documentation/netlink/specs/netdev.yaml (qstats-get); amzn-drivers, \
             ENA_Linux_Best_Practices.rst",
    fix: Fix::Advised(&[Class::R1, Class::R2]),
    persist: "a systemd .link file (TxBufferSize=) if the ring was the cause",
    contested: None,
    page: include_str!("../../../../docs/rules/tx-queue-stalls.md"),
    check,
};

/// The share of sent packets with queue stops that is worth a note.
const STOPPED_SHARE: Ratio = Ratio::new(0.01);
/// The minimum number of stops.
const STOPPED_FROM: u64 = 100;

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let mut outcomes = judge_watched(rule, context, |nic| nic.kind.has_wire(), check_nic);
    let since_boot = judge_each(rule, context, |nic| Ok(since_boot(nic)));
    // One outcome for each NIC: what happened while watched counts more.
    let is_new = |one: &Outcome| !outcomes.iter().any(|other| about(other) == about(one));
    let since_boot: Vec<Outcome> = since_boot.into_iter().filter(is_new).collect();
    outcomes.extend(since_boot);
    outcomes
}

fn about(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Finding(finding) => &finding.subject,
        Outcome::Undetermined(skipped) => &skipped.subject,
    }
}

/// Timeouts before linerate watched. When they happened is not known, so this is a note: but no healthy queue ever has
/// one.
fn since_boot(nic: &Nic) -> Option<Draft> {
    if !nic.kind.has_wire() {
        return None;
    }
    let sent = nic
        .queues
        .iter()
        .filter(|queue| queue.kind == QueueKind::Tx);
    let counts = sent.filter_map(|queue| Some((queue.index, queue.tx_timeout.get()?)));
    let stalled: Vec<(u32, u64)> = counts.filter(|(_, count)| *count > 0).collect();
    if stalled.is_empty() {
        return None;
    }
    let name = &nic.name;
    let evidence = stalled.iter().map(|(index, count)| {
        let path = format!("/sys/class/net/{name}/queues/tx-{index}/tx_timeout");
        Evidence::new(format!("transmit timeouts of tx-{index}"), count, path)
    });
    Some(Draft {
        severity: Severity::Note,
        subject: subject(nic),
        summary: format!(
            "transmit queues of {name} timed out before this check, in total {}: see `journalctl -k -g 'transmit queue'` for \
             when",
            times(total(stalled.iter().map(|(_, count)| *count)))
        ),
        evidence: evidence.collect(),
        remedies: Vec::new(),
    })
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    }
}

fn check_nic(nic: &Nic, watch: &Watch) -> Judged {
    let of_queues = |first: &[&str], ending: &str| {
        growth(watch, nic, first).and_below(watch, nic, "queue", |name| name.ends_with(ending))
    };
    let timeouts = of_queues(
        &[
            "driver/tx_timeout",
            "driver/tx_timeout_count",
            "health/tx/errors",
        ],
        "/tx_timeout",
    );
    // Without per-queue counters one question is left: was permission missing?
    let probe = growth(watch, nic, &["queue/tx-0/tx_timeout"]);
    let stalls = of_queues(&[], "/stall_cnt");
    let stops = growth(watch, nic, &["qstat/tx-stop", "qstat/tx-wake"]);
    let said = |severity, summary, seen: &Growth| {
        Ok(Some(Draft {
            severity,
            subject: subject(nic),
            summary,
            evidence: seen.evidence(),
            remedies: Vec::new(),
        }))
    };
    let name = &nic.name;
    if !timeouts.grew.is_empty() {
        let words = timeouts.words();
        let summary = format!(
            "transmit queues of {name} timed out ({words}): check the kernel log, the firmware, and for a \
             saturated CPU"
        );
        return said(Severity::Crit, summary, &timeouts);
    }
    if !stalls.grew.is_empty() {
        let summary = format!(
            "transmit queues of {name} stalled {} times: check for a saturated CPU, and for long tx coalescing",
            stalls.most()
        );
        return said(Severity::Warn, summary, &stalls);
    }
    let stopped = stops.by("qstat/tx-stop");
    let sent = growth(watch, nic, &["stat/tx_packets"]).most();
    let share = real(stopped) / real(sent.max(1));
    if stopped >= STOPPED_FROM && share > STOPPED_SHARE.as_f64() {
        let summary = format!(
            "{name} stopped a full transmit queue {stopped} times in {sent} packets: try a larger ring or less \
             tx coalescing, and measure"
        );
        return said(Severity::Note, summary, &stops);
    }
    probe.quiet()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::judge;
    use super::super::testing::{Cases, World, finding};
    use super::*;
    use crate::build;
    use crate::host::Host;
    use crate::known::Known;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("a timeout", || {
                World::of(host()).watched(|w| w.grew("nic/eth0/queue/tx-3/tx_timeout", 1))
            }),
            ("a stall", || {
                World::of(host()).watched(|w| w.grew("nic/eth0/queue/tx-3/stall_cnt", 4))
            }),
            ("stopped all the time", || {
                World::of(host()).watched(|w| {
                    w.grew("nic/eth0/qstat/tx-stop", 5_000)
                        .grew("nic/eth0/stat/tx_packets", 100_000)
                })
            }),
            ("timeouts since boot", || World::of(stalled(7))),
        ],
        silent: &[
            ("none", || {
                World::of(host()).watched(|w| w.grew("nic/eth0/queue/tx-0/tx_timeout", 0))
            }),
            ("stopped now and then", || {
                World::of(host()).watched(|w| {
                    w.grew("nic/eth0/qstat/tx-stop", 500)
                        .grew("nic/eth0/stat/tx_packets", 1_000_000)
                })
            }),
        ],
        undetermined: &[
            ("counters not watched", || World::of(host())),
            ("the queues may not be read", || {
                World::of(host()).watched(|w| w.denied("nic/eth0/queue"))
            }),
        ],
    };

    /// Its second transmit queue had `count` timeouts since boot.
    fn stalled(count: u64) -> Host {
        let mut host = build::host().nic("eth0", |nic| nic.queues(&[0, 1])).build();
        for queue in &mut host.nics[0].queues {
            if (queue.kind, queue.index) == (QueueKind::Tx, 1) {
                queue.tx_timeout = Known::Value(count);
            }
        }
        host
    }

    #[test]
    fn timeouts_since_boot_are_a_note_and_hidden_by_one_that_was_seen() {
        let said = judge(&RULE, &World::of(stalled(7)).context());
        let note = said.iter().find_map(|one| match one {
            Outcome::Finding(finding) => Some(finding),
            Outcome::Undetermined(_) => None,
        });
        let note = note.expect("a finding");
        assert_eq!(note.severity, Severity::Note);
        assert!(
            note.summary.contains("in total 7 times"),
            "{}",
            note.summary
        );
        assert_eq!(
            note.evidence[0].path,
            "/sys/class/net/eth0/queues/tx-1/tx_timeout"
        );
        assert!(said.len() == 2, "growth was not watched: {said:#?}");
        let world = World::of(stalled(8));
        let world = world.watched(|w| w.grew("nic/eth0/queue/tx-1/tx_timeout", 1));
        assert_eq!(finding(RULE.id, &world.context()).severity, Severity::Crit);
    }

    fn host() -> Host {
        build::host().nic("eth0", |nic| nic).build()
    }

    #[test]
    fn a_timeout_is_worse_than_a_stall() {
        let said = |key: &str| {
            let world = World::of(host()).watched(|w| w.grew(key, 1));
            finding(RULE.id, &world.context()).severity
        };
        assert_eq!(said("nic/eth0/queue/tx-0/tx_timeout"), Severity::Crit);
        assert_eq!(said("nic/eth0/queue/tx-0/stall_cnt"), Severity::Warn);
    }
}
