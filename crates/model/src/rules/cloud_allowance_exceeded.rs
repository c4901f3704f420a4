//! `cloud-allowance-exceeded`: the cloud instance exceeded its network allowance and is shaped. Counters
//! of the ENA driver (Documentation/networking/device_drivers/ethernet/amazon/ena.rst).

use super::judged::{Judged, growth, judge_watched};
use super::{ALWAYS, Draft, subject};
use crate::finding::{Basis, Context, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::Nic;
use crate::setting::Class;
use crate::units::{Ratio, real};
use crate::watch::{Watch, total};

pub(super) const RULE: Rule = Rule {
    id: "cloud-allowance-exceeded",
    number: 26,
    status: Status::AdviceOnly,
    title: "the cloud instance exceeded its network allowance and is shaped",
    severity: Severity::Crit,
    stage: Stage::HardCeiling,
    profiles: ALWAYS,
    judges_by: &[Basis::Counters],
    threshold: "packets queued or dropped for exceeding the allowance: more than 0.1 % (crit), fewer (note)",
    effect: "a hard ceiling: no host setting lifts it",
    source: "drivers/net/ethernet/amazon/ena/ena_ethtool.c; amzn-drivers, \
             ENA_Linux_Best_Practices.rst",
    fix: Fix::Advised(&[Class::R4]),
    persist: "a larger instance; no setting of the host",
    contested: None,
    page: include_str!("../../../../docs/rules/cloud-allowance-exceeded.md"),
    check,
};

/// Above this share of packets the allowance is the limit; below it, only a burst exceeded it.
const SHARE: Ratio = Ratio::new(0.001);

const ALLOWANCES: [&str; 5] = [
    "driver/bw_in_allowance_exceeded",
    "driver/bw_out_allowance_exceeded",
    "driver/pps_allowance_exceeded",
    "driver/conntrack_allowance_exceeded",
    "driver/linklocal_allowance_exceeded",
];

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let is_ena = |nic: &Nic| nic.driver.value().is_some_and(|driver| driver == "ena");
    judge_watched(rule, context, is_ena, check_nic)
}

fn check_nic(nic: &Nic, watch: &Watch) -> Judged {
    let exceeded = growth(watch, nic, &ALLOWANCES);
    if exceeded.grew.is_empty() {
        return exceeded.quiet_if_read();
    }
    let passed = growth(watch, nic, &["stat/rx_packets", "stat/tx_packets"]);
    let packets = total(passed.grew.iter().map(|(_, by, _)| *by));
    let share = real(exceeded.most()) / real(packets.max(1));
    let severity = if share > SHARE.as_f64() {
        Severity::Crit
    } else {
        Severity::Note
    };
    let mut evidence = exceeded.evidence();
    evidence.extend(passed.evidence());
    Ok(Some(Draft {
        severity,
        subject: subject(nic),
        summary: format!(
            "{} exceeded its instance allowance ({}), no host setting helps: use a larger instance, or more \
             flows",
            nic.name,
            exceeded.words()
        ),
        evidence,
        remedies: Vec::new(),
    }))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding};
    use super::*;
    use crate::build;
    use crate::host::Host;
    use crate::known::Known;

    pub(crate) const CASES: Cases = Cases {
        fires: &[("bandwidth used up", || {
            World::of(ena()).watched(|w| w.grew("nic/ens5/driver/bw_out_allowance_exceeded", 900))
        })],
        silent: &[
            ("within the allowance", || {
                World::of(ena()).watched(|w| w.grew("nic/ens5/driver/bw_out_allowance_exceeded", 0))
            }),
            ("another driver", || {
                World::of(build::host().nic("eth0", |nic| nic).build())
            }),
        ],
        undetermined: &[
            ("counters not watched", || World::of(ena())),
            ("the driver's counters are not there", || {
                World::of(ena()).watched(|w| w.without("nic/ens5/driver"))
            }),
        ],
    };

    fn ena() -> Host {
        build::host()
            .nic("ens5", |nic| {
                nic.with(|nic| nic.driver = Known::Value("ena".to_owned()))
            })
            .build()
    }

    #[test]
    fn a_burst_is_a_note() {
        let world = World::of(ena()).watched(|w| {
            w.grew("nic/ens5/driver/bw_out_allowance_exceeded", 9)
                .grew("nic/ens5/stat/tx_packets", 1_000_000)
        });
        assert_eq!(finding(RULE.id, &world.context()).severity, Severity::Note);
    }
}
