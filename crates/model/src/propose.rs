//! From findings to proposals: which remedies to try, and in what order.
//!
//! All remedies of one rule are one proposal, even if both ends need them (a send buffer here, a receive buffer
//! there): separately they may have no effect. The order is that of [`Stage`]: hard ceilings, errors, saturation,
//! locality, offloads and buffers, tuning.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::finding::{Finding, Severity, Stage};
use crate::plan::End;
use crate::prove::EndChange;
use crate::rules;
use crate::setting::{Class, Scope, SettingKey};

/// A set of changes that are tried together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// The rule that proposes it.
    pub rule: String,
    /// The faults it found, with the end, in the order of the findings.
    pub subjects: Vec<(End, String)>,
    /// The worst severity of its findings.
    pub severity: Severity,
    /// The changes, in the order they are made.
    pub changes: Vec<EndChange>,
    /// The class of the change that is hardest to roll back.
    pub class: Class,
}

/// Proposals to test, and proposals that are advice only.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Proposals {
    /// To test, in this order.
    pub to_try: Vec<Proposal>,
    /// Not tested: a change is of a class or scope above what is permitted, or linerate cannot write it.
    pub held_back: Vec<Proposal>,
}

/// What the caller permits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permit {
    /// The highest class of change that may be tested.
    pub class_max: Class,
    /// Whether both ends share a kernel: a machine-wide setting is then one setting, not two.
    pub shared_kernel: bool,
    /// Whether machine-wide settings are excluded, so that only those of a network namespace are tested.
    pub spares_machine: bool,
}

impl Default for Permit {
    /// The default: nothing that drops a link.
    fn default() -> Self {
        Self {
            class_max: Class::R2,
            shared_kernel: false,
            spares_machine: false,
        }
    }
}

/// The remedies of `findings` (of both ends) as proposals.
pub fn propose(findings: &[Finding], permit: Permit) -> Proposals {
    let mut merged: Vec<Proposal> = Vec::new();
    for finding in findings
        .iter()
        .filter(|finding| !finding.remedies.is_empty())
    {
        let subject = (finding.end, finding.subject.clone());
        let changes = finding.remedies.iter().map(|remedy| EndChange {
            end: remedy.end,
            change: remedy.change.clone(),
        });
        let class = finding.remedies.iter().map(|remedy| remedy.class).max();
        let class = class.unwrap_or(Class::R0);
        match merged
            .iter_mut()
            .find(|proposal| proposal.rule == finding.rule)
        {
            Some(proposal) => {
                proposal.subjects.push(subject);
                proposal.severity = proposal.severity.max(finding.severity);
                proposal.changes.extend(changes);
                proposal.class = proposal.class.max(class);
            }
            None => merged.push(Proposal {
                rule: finding.rule.clone(),
                subjects: vec![subject],
                severity: finding.severity,
                changes: changes.collect(),
                class,
            }),
        }
    }
    // The sort is stable: within a stage and a severity the findings keep their order.
    merged.sort_by(|one, other| {
        stage(one)
            .cmp(&stage(other))
            .then(other.severity.cmp(&one.severity))
    });
    sift(merged, permit)
}

/// The rule of a proposal that was given by the user.
pub const GIVEN: &str = "given";

/// The name of a proposal: its rule, or its setting if the user gave it.
pub fn name_of(rule: &str, changes: &[EndChange]) -> String {
    match changes.first() {
        Some(first) if rule == GIVEN => first.change.setting.to_string(),
        _ => rule.to_owned(),
    }
}

impl Proposal {
    /// Its name.
    pub fn name(&self) -> String {
        name_of(&self.rule, &self.changes)
    }
}

/// The proposals to test, in their order, each change once.
pub fn sift(all: Vec<Proposal>, permit: Permit) -> Proposals {
    let mut proposals = Proposals::default();
    let mut known: Vec<EndChange> = Vec::new();
    for mut proposal in all {
        once_each(&mut proposal, permit);
        // Changes that an earlier proposal already makes are not tested again.
        proposal.changes.retain(|change| !known.contains(change));
        if proposal.changes.is_empty() {
            continue;
        }
        let may_be_tried = |EndChange { change, .. }: &EndChange| {
            let spared = permit.spares_machine && change.setting.spec().scope == Scope::Machine;
            change.setting.is_writable() && !spared
        };
        if proposal.class > permit.class_max || !proposal.changes.iter().all(may_be_tried) {
            proposals.held_back.push(proposal);
        } else {
            known.extend(proposal.changes.iter().cloned());
            proposals.to_try.push(proposal);
        }
    }
    proposals
}

/// A rule that is not in the catalog (a stored run of another version) comes last.
fn stage(proposal: &Proposal) -> Stage {
    rules::find(&proposal.rule).map_or(Stage::Tuning, |rule| rule.stage)
}

/// A setting is changed once; of two conflicting values the first is kept.
fn once_each(proposal: &mut Proposal, permit: Permit) {
    let mut seen: BTreeSet<(Option<End>, SettingKey)> = BTreeSet::new();
    proposal.changes.retain(|EndChange { end, change }| {
        let common = match change.setting.spec().scope {
            // Placement belongs to the measurement, which both ends share.
            Scope::Trial => true,
            Scope::Machine => permit.shared_kernel,
            Scope::Netns => false,
        };
        seen.insert(((!common).then_some(*end), change.setting.clone()))
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;
    use crate::finding::{Context, Profile, Remedy};
    use crate::host::Host;
    use crate::plan::Change;
    use crate::plan::End::{Local, Remote};
    use crate::sample::Sample;
    use crate::setting::Value;

    /// The findings of both ends of a trial, as collected by `prove`.
    fn findings(near: &Host, far: &Host, sample: &Sample) -> Vec<Finding> {
        let context = |end, host, other| Context {
            end,
            host,
            nic: None,
            other: Some(other),
            sample: Some(sample),
            watch: None,
            profile: Profile::Throughput,
            owns_shapers: true,
        };
        let mut findings = rules::diagnose(&context(Local, near, far)).findings;
        findings.extend(rules::diagnose(&context(Remote, far, near)).findings);
        rules::sort(&mut findings);
        findings
    }

    fn one(rule: &str, end: End, key: &str, class: Class) -> Finding {
        let setting: SettingKey = key.parse().expect("a key");
        Finding {
            rule: rule.to_owned(),
            severity: Severity::Warn,
            end,
            subject: "host".to_owned(),
            summary: String::new(),
            evidence: Vec::new(),
            threshold: String::new(),
            remedies: vec![Remedy {
                end,
                change: Change {
                    setting,
                    from: Value::Integer(1),
                    to: Value::Integer(2),
                },
                class,
            }],
        }
    }

    #[test]
    fn the_planted_faults_of_the_demo_are_proposed_in_order_and_buffers_of_both_ends_together() {
        let faulty = |name: &str| {
            build::host()
                .sysctl("net.ipv4.tcp_wmem", "4096 16384 65536")
                .sysctl("net.ipv4.tcp_rmem", "4096 65536 65536")
                .sysctl("net.ipv4.tcp_congestion_control", "bbr")
                .nic(name, |nic| {
                    nic.veth()
                        .qdisc(build::tbf(5_000))
                        .feature("tx-tcp-segmentation", false, true)
                        .rps("1")
                })
                .build()
        };
        let sample = build::sample()
            .shared_kernel()
            .cpus(0, 0)
            .pinned()
            .mbit(4_700)
            .build();
        let found = findings(&faulty("near0"), &faulty("far0"), &sample);
        let proposals = propose(&found, Permit::default());
        let rules: Vec<&str> = proposals.to_try.iter().map(|p| p.rule.as_str()).collect();
        assert_eq!(
            rules,
            [
                "qdisc-shaper",
                "endpoints-share-cpu",
                "rps-wrong",
                "tx-segmentation-or-csum-off",
                "tcp-buffer-below-bdp",
                "tcp-cc-qdisc"
            ]
        );
        assert_eq!(proposals.held_back, []);
        let ends = |rule: &str| {
            let proposal = proposals
                .to_try
                .iter()
                .find(|p| p.rule == rule)
                .expect("proposed");
            proposal.changes.iter().map(|c| c.end).collect::<Vec<_>>()
        };
        assert_eq!(ends("tcp-buffer-below-bdp"), [Local, Local, Remote, Remote]);
        assert_eq!(ends("tcp-cc-qdisc"), [Local]);
        assert_eq!(ends("qdisc-shaper"), [Local]);
    }

    #[test]
    fn what_drops_the_link_is_held_back_unless_permitted() {
        let findings = [one("x", Local, "nic/eth0/mtu", Class::R3)];
        let proposals = propose(&findings, Permit::default());
        assert_eq!((proposals.to_try.len(), proposals.held_back.len()), (0, 1));
        let permit = Permit {
            class_max: Class::R3,
            ..Permit::default()
        };
        assert_eq!(propose(&findings, permit).to_try.len(), 1);
    }

    #[test]
    fn a_setting_of_the_machine_is_changed_once_where_both_ends_share_it() {
        let both = [
            one("x", Local, "sysctl/vm.swappiness", Class::R1),
            one("x", Remote, "sysctl/vm.swappiness", Class::R1),
        ];
        let changes = |shared_kernel| {
            let permit = Permit {
                shared_kernel,
                ..Permit::default()
            };
            propose(&both, permit).to_try[0].changes.len()
        };
        assert_eq!((changes(true), changes(false)), (1, 2));
    }

    #[test]
    fn a_setting_of_the_machine_is_held_back_where_it_must_be_spared() {
        let findings = [
            one("x", Local, "cpu/turbo", Class::R1),
            one("y", Local, "sysctl/net.core.somaxconn", Class::R1),
        ];
        let permit = Permit {
            spares_machine: true,
            ..Permit::default()
        };
        let proposals = propose(&findings, permit);
        assert_eq!(proposals.to_try[0].rule, "y");
        assert_eq!(proposals.held_back[0].rule, "x");
    }

    #[test]
    fn the_same_change_is_not_tried_for_two_rules() {
        let twice = [
            one("x", Local, "nic/eth0/ring/rx", Class::R2),
            one("y", Local, "nic/eth0/ring/rx", Class::R2),
        ];
        let proposals = propose(&twice, Permit::default());
        assert_eq!(proposals.to_try.len(), 1);
        assert_eq!(proposals.to_try[0].rule, "x");
    }

    #[test]
    fn a_finding_without_a_remedy_proposes_nothing() {
        let mut finding = one("x", Local, "nic/eth0/ring/rx", Class::R2);
        finding.remedies.clear();
        assert_eq!(propose(&[finding], Permit::default()), Proposals::default());
    }
}
