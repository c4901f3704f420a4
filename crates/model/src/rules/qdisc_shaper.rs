//! `qdisc-shaper`: the root queueing discipline holds packets back to keep a rate below what the path
//! could carry. Kinds and what they count from tc-tbf(8), tc-htb(8) and net/sched.

use super::{ALWAYS, Said, each_nic, found, remedy, sends, subject, undetermined};
use crate::analysis;
use crate::ceiling;
use crate::finding::{Evidence, Outcome, Rule, Scene, Severity, Stage};
use crate::host::{Nic, Qdisc};
use crate::known::Known;
use crate::limit::threshold;
use crate::setting::{NicKnob, SettingKey, Value};
use crate::units::BitRate;

pub(super) const RULE: Rule = Rule {
    id: "qdisc-shaper",
    number: 101,
    title: "a shaper holds the interface below what the path could carry",
    severity: Severity::Crit,
    stage: Stage::HardCeiling,
    profiles: ALWAYS,
    threshold: "a root qdisc with a rate below the link's; crit when a trial reached 85 % of what the \
                shaper lets pass",
    effect: "exact: TCP gets the shaper's rate x payload/frame (1448/1514 at MTU 1500), whatever the \
             link could do",
    source: "tc-tbf(8), tc-htb(8); qdisc_pkt_len_init in net/core/dev.c",
    persist: "nothing to keep after removing it, but find its owner (a unit, NetworkManager, a container \
              runtime), which may set it again",
    contested: None,
    page: include_str!("../../../../docs/rules/qdisc-shaper.md"),
    check,
};

fn check(rule: &Rule, scene: &Scene<'_>) -> Vec<Outcome> {
    each_nic(rule, scene, |nic| check_nic(rule, scene, nic))
}

fn check_nic(rule: &Rule, scene: &Scene<'_>, nic: &Nic) -> Option<Outcome> {
    let unsure = |gap| Some(undetermined(rule, scene, subject(nic), vec![gap]));
    let qdisc = match &nic.qdisc {
        Known::Value(qdisc) if qdisc.shapes() => qdisc,
        Known::Value(_) => return None,
        Known::Unknown(gap) => return unsure(gap.clone()),
    };
    let Some(rate) = qdisc.rate_bit_per_s else {
        return unsure(qdisc.rate_gap(&nic.name));
    };
    let link = nic.kind.has_wire().then_some(&nic.link_bit_per_s);
    if let Some(Known::Value(link)) = link
        && rate >= *link
    {
        return None;
    }
    let mut evidence = vec![Evidence::new(
        format!("rate of the root qdisc {}", qdisc.kind),
        rate,
        format!("tc qdisc show dev {}", nic.name),
    )];
    let severity = if sends(scene) {
        reached(scene, nic, rate, &mut evidence)
    } else {
        Severity::Note
    };
    // Without the link's speed only a trial at the shaper's ceiling says that the shaper is the lower.
    if let Some(Known::Unknown(gap)) = link
        && severity < Severity::Crit
    {
        return unsure(gap.clone());
    }
    let summary = if severity == Severity::Note {
        format!(
            "{} of {} shapes only acknowledgements here, to {rate}",
            qdisc.kind, nic.name
        )
    } else {
        format!("{} shapes what {} sends to {rate}", qdisc.kind, nic.name)
    };
    Some(found(
        rule,
        scene,
        Said {
            severity,
            subject: subject(nic),
            summary,
            evidence,
            remedies: without_shaper(scene, nic)
                .into_iter()
                .filter(|_| sends(scene))
                .collect(),
        },
    ))
}

/// How bad it is: a trial that came close to what the shaper lets pass was held by it.
fn reached(scene: &Scene<'_>, nic: &Nic, rate: BitRate, evidence: &mut Vec<Evidence>) -> Severity {
    let measured = scene.sample.and_then(|sample| {
        let way = analysis::ways(sample)
            .into_iter()
            .find(|way| way.from == scene.end)?;
        analysis::rate_of_way(sample, &way)
    });
    let bound = nic
        .mtu
        .get()
        .and_then(|mtu| ceiling::shaper(rate, mtu, ceiling::TIMESTAMPS_BYTES, false).value().cloned());
    let (Some(measured), Some(bound)) = (measured, bound) else {
        return Severity::Warn;
    };
    let Some(share) = bound.share(measured) else {
        return Severity::Warn;
    };
    evidence.push(Evidence::new(
        "measured rate",
        format!(
            "{measured}, {share} of the shaper's ceiling of {}",
            bound.bit_per_s
        ),
        "the trial",
    ));
    if share >= threshold::SHAPER_SHARE {
        Severity::Crit
    } else {
        Severity::Warn
    }
}

/// A shaper may be somebody's will: removing it is proposed only to its owner, and only where the kernel
/// itself would have put `noqueue`, on interfaces that are pure software.
fn without_shaper(scene: &Scene<'_>, nic: &Nic) -> Option<crate::finding::Remedy> {
    if !scene.owns_shapers || nic.kind.has_wire() {
        return None;
    }
    let key = SettingKey::Nic(nic.name.clone(), NicKnob::Qdisc);
    remedy(scene, key, Value::Qdisc(Qdisc::plain("noqueue")))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding, missing, remedies, scene, silent, with_trial};
    use super::*;
    use crate::build;
    use crate::host::Host;
    use crate::plan::End;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[("a token bucket of 5 Gb/s", || World::of(shaped(5_000)))],
        silent: &[("no shaper", || {
            World::of(build::host().nic("near0", build::NicBuilder::veth).build())
        })],
        undetermined: &[("the rate stands in classes", || {
            let htb = build::host().nic("eth0", |nic| nic.qdisc(Qdisc::plain("htb")));
            World::of(htb.build())
        })],
    };

    fn shaped(mbit: u64) -> Host {
        build::host()
            .nic("near0", |nic| nic.veth().qdisc(build::tbf(mbit)))
            .build()
    }

    #[test]
    fn a_trial_at_the_shapers_ceiling_makes_it_critical() {
        let host = shaped(5_000);
        let sample = build::sample().mbit(4_700).build();
        let said = finding(ID, &with_trial(&host, &host, &sample));
        assert_eq!(said.severity, Severity::Crit);
        assert!(
            said.evidence[1].value.contains("98.3 %"),
            "{:?}",
            said.evidence
        );
        let sample = build::sample().mbit(2_000).build();
        let said = finding(ID, &with_trial(&host, &host, &sample));
        assert_eq!(said.severity, Severity::Warn);
        assert_eq!(finding(ID, &scene(&host)).severity, Severity::Warn);
    }

    #[test]
    fn only_its_owner_is_told_to_remove_it() {
        let host = shaped(5_000);
        assert_eq!(remedies(&finding(ID, &scene(&host))), [""; 0]);
        let owner = Scene {
            owns_shapers: true,
            ..scene(&host)
        };
        assert_eq!(
            remedies(&finding(ID, &owner)),
            ["nic/near0/qdisc: tbf 5.00 Gb/s -> noqueue"]
        );
    }

    #[test]
    fn at_the_receiving_end_it_is_a_note() {
        let host = shaped(5_000);
        let sample = build::sample().mbit(4_700).build();
        let scene = Scene {
            end: End::Remote,
            owns_shapers: true,
            ..with_trial(&host, &host, &sample)
        };
        let said = finding(ID, &scene);
        assert_eq!((said.severity, said.remedies.len()), (Severity::Note, 0));
    }

    #[test]
    fn a_rate_that_the_link_cannot_pass_anyway_and_a_plain_qdisc_are_no_fault() {
        let host = build::host()
            .nic("eth0", |nic| nic.gbit(10).qdisc(build::tbf(10_000)))
            .nic("near0", build::NicBuilder::veth)
            .build();
        assert!(silent(ID, &scene(&host)));
    }

    #[test]
    fn beside_a_link_of_unknown_speed_only_a_trial_tells() {
        let host = build::host()
            .nic("eth0", |nic| {
                nic.qdisc(build::tbf(5_000))
                    .with(|nic| nic.link_bit_per_s = Known::not_asked("speed"))
            })
            .build();
        assert_eq!(missing(ID, &scene(&host))[0].path, "speed");
        let sample = build::sample().mbit(4_700).build();
        let said = finding(ID, &with_trial(&host, &host, &sample));
        assert_eq!(said.severity, Severity::Crit);
    }

    #[test]
    fn a_shaper_whose_rate_stands_in_its_classes_is_not_passed() {
        let host = build::host()
            .nic("eth0", |nic| nic.qdisc(Qdisc::plain("htb")))
            .build();
        assert_eq!(missing(ID, &scene(&host))[0].path, "tc class show dev eth0");
        let host = build::host()
            .nic("eth0", |nic| {
                nic.with(|nic| nic.qdisc = Known::not_asked("RTM_GETQDISC"))
            })
            .build();
        assert_eq!(missing(ID, &scene(&host))[0].path, "RTM_GETQDISC");
    }
}
