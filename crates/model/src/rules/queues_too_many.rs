//! `queues-too-many`: more receive queues than CPUs that serve them. Facts from
//! Documentation/networking/scaling.rst ("the number of interrupts grows with each additional queue").

use super::spreading::{brief, channel_count, homes, in_use, irq_gaps, needed, taken, used};
use super::{ALWAYS, Draft, each_nic, found, remedy, subject, undetermined};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{Nic, QueueKind};
use crate::known::Known;
use crate::setting::{Class, NicKnob, SettingKey, Value};

pub(super) const RULE: Rule = Rule {
    id: "queues-too-many",
    number: 9,
    status: Status::Implemented,
    title: "more receive queues than CPUs that serve them",
    severity: Severity::Note,
    stage: Stage::Tuning,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "more receive queues than CPUs that handle their interrupts, and than local CPUs",
    effect: "fewer interrupts for the same packets; no general figure",
    source: "Documentation/networking/scaling.rst; scylladb/seastar#503",
    fix: Fix::Proposed(&[Class::R2]),
    persist: "CombinedChannels= in a systemd .link file, or NetworkManager's ethtool.channels-combined",
    contested: None,
    page: include_str!("../../../../docs/rules/queues-too-many.md"),
    check,
};

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    each_nic(rule, context, |nic| check_nic(rule, context, nic))
}

fn check_nic(rule: &Rule, context: &Context<'_>, nic: &Nic) -> Option<Outcome> {
    let queues = in_use(nic, QueueKind::Rx);
    if !nic.kind.has_wire() || queues.len() < 2 {
        return None;
    }
    let all = taken(&queues);
    let homes = homes(context.host, nic);
    // With any affinity, each queue can have its own CPU.
    if queues.len() <= homes.len() {
        return None;
    }
    if all.is_empty() {
        let missing = irq_gaps(&queues);
        return (!missing.is_empty()).then(|| undetermined(rule, context, subject(nic), missing));
    }
    let (count, path) = match &nic.channels {
        Known::Value(channels) => (
            channel_count(channels, QueueKind::Rx).map(|count| count as usize)?,
            format!("netlink ethtool CHANNELS_GET {}", nic.name),
        ),
        // sysfs may list unused queues; those with an interrupt are counted.
        Known::Unknown(gap) if needed(gap).is_none() => {
            (all.len(), format!("/sys/class/net/{}/queues", nic.name))
        }
        Known::Unknown(gap) => {
            return Some(undetermined(rule, context, subject(nic), vec![gap.clone()]));
        }
    };
    let cpus = used(&all);
    if count <= cpus.len() || count <= homes.len() {
        return None;
    }
    let evidence = vec![
        Evidence::new("receive queues in use", count, path),
        Evidence::new(
            "CPUs that handle their interrupts",
            &cpus,
            "/proc/irq/*/effective_affinity_list",
        ),
        Evidence::new(
            "CPUs local to the NIC",
            &homes,
            super::spreading::device_file(nic, "local_cpulist"),
        ),
    ];
    let most = u64::try_from(homes.len()).unwrap_or(u64::MAX);
    let key = SettingKey::Nic(nic.name.clone(), NicKnob::ChannelsCombined);
    Some(found(
        rule,
        context,
        Draft {
            severity: Severity::Note,
            subject: subject(nic),
            summary: format!(
                "{} has {count} receive queues, but only CPUs {} serve them: try {most} queues",
                nic.name,
                brief(&cpus)
            ),
            evidence,
            remedies: remedy(context, key, Value::Integer(most))
                .into_iter()
                .collect(),
        },
    ))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding, remedies};
    use super::*;
    use crate::build;
    use crate::host::Host;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[("eight queues on two CPUs", || {
            World::of(server(&[0, 1, 0, 1, 0, 1, 0, 1]))
        })],
        silent: &[
            ("one for each CPU", || World::of(server(&[0, 1]))),
            ("one queue", || World::of(server(&[0]))),
        ],
        undetermined: &[("nobody asked how many there are", || {
            let mut host = server(&[0, 1, 0, 1]);
            host.nics[0].channels = Known::not_asked("netlink ethtool CHANNELS_GET eth2");
            World::of(host)
        })],
    };

    fn server(cpus: &[u32]) -> Host {
        build::host().nic("eth2", |nic| nic.queues(cpus)).build()
    }

    #[test]
    fn as_many_as_cpus_are_tried() {
        let said = finding(ID, &context(&server(&[0, 1, 0, 1])));
        assert_eq!(said.severity, Severity::Note);
        assert_eq!(remedies(&said), ["nic/eth2/channels/combined: 4 -> 2"]);
    }
}
