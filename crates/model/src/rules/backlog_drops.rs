//! `backlog-drops`: the per-CPU backlog queue overflows. It is used by RPS, veth, loopback and generic XDP. Sources:
//! Documentation/admin-guide/sysctl/net.rst (`netdev_max_backlog`) and `/proc/net/softnet_stat`.

use super::facts::{Floor, answer, too_low};
use super::{ALWAYS, Draft, found, remedy, watched};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Remedy, Rule, Severity, Stage, Status,
};
use crate::ids::CpuId;
use crate::known::{Gap, Known};
use crate::setting::{Class, SettingKey, Value};
use crate::watch::total;

pub(super) const RULE: Rule = Rule {
    id: "backlog-drops",
    number: 17,
    status: Status::Implemented,
    title: "the per-CPU backlog queue overflows",
    severity: Severity::Warn,
    stage: Stage::Errors,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts, Basis::Counters],
    threshold: "the `dropped` column of /proc/net/softnet_stat grows on any CPU; net.core.netdev_max_backlog \
                below 100",
    effect: "each drop is a packet that TCP retransmits and UDP loses; no general figure",
    source: "Documentation/admin-guide/sysctl/net.rst (netdev_max_backlog); \
             Documentation/networking/scaling.rst (RPS flow limit); Red Hat Enterprise Linux 10, \
             network performance tuning",
    fix: Fix::Proposed(&[Class::R1]),
    persist: "sysctl.d",
    contested: None,
    page: include_str!("../../../../docs/rules/backlog-drops.md"),
    check,
};

const BACKLOG: &str = "net.core.netdev_max_backlog";

/// A longer queue adds more latency than it saves drops.
const LONGEST: u64 = 10_000;

/// A burst of one GRO batch or of one softirq does not fit below it.
const FLOOR: Floor = Floor {
    name: BACKLOG,
    least: 100,
    usual: 1000,
    effect: "the backlog queue of a CPU drops short bursts",
};

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let watch = match watched(rule, context) {
        Ok(watch) => watch,
        Err(unsure) => {
            let mut missing = Vec::new();
            let low = too_low(context, &FLOOR, &mut missing);
            let said = answer(rule, context, "host", low, missing);
            return if said.is_empty() { unsure } else { said };
        }
    };
    let mut missing: Vec<Gap> = Vec::new();
    let mut dropped: Vec<(CpuId, u64)> = Vec::new();
    for cpu in context.host.online_cpus().iter() {
        match watch.grown(&format!("cpu/{cpu}/softnet/dropped")) {
            Known::Value(0) => {}
            Known::Value(grown) => dropped.push((cpu, grown)),
            Known::Unknown(gap) => missing.push(gap),
        }
    }
    dropped.sort_by_key(|(_, grown)| std::cmp::Reverse(*grown));
    let Some((worst, _)) = dropped.first().copied() else {
        missing.truncate(1);
        let low = too_low(context, &FLOOR, &mut missing);
        return answer(rule, context, "host", low, missing);
    };
    let sum = total(dropped.iter().map(|(_, grown)| *grown));
    let backlog = context.host.sysctl(BACKLOG);
    let mut evidence: Vec<Evidence> = Vec::new();
    for (cpu, grown) in &dropped {
        let key = format!("cpu/{cpu}/softnet/dropped");
        let what = format!("packets dropped by the backlog queue of CPU {cpu}");
        evidence.push(Evidence::new(what, grown, watch.path(&key)));
        let key = format!("cpu/{cpu}/softnet/flow_limit");
        let limited = watch.grown(&key).get().filter(|grown| *grown > 0);
        evidence.extend(limited.map(|grown| {
            let what = format!("of which dropped by flow_limit on CPU {cpu}");
            Evidence::new(what, grown, watch.path(&key))
        }));
    }
    evidence.extend(backlog.value().map(|text| {
        let path = "/proc/sys/net/core/netdev_max_backlog";
        Evidence::new("backlog queue limit", format!("{text} packets"), path)
    }));
    let said = Draft {
        severity: Severity::Warn,
        subject: format!("cpu/{worst}"),
        summary: format!(
            "backlog queues dropped {sum} packets while watched, most on CPU {worst}: take load off that CPU, \
             or raise net.core.netdev_max_backlog"
        ),
        evidence,
        remedies: lengthen(context, backlog.value()).into_iter().collect(),
    };
    vec![found(rule, context, said)]
}

/// Twice the length, within a reasonable limit.
fn lengthen(context: &Context<'_>, now: Option<&String>) -> Option<Remedy> {
    let now: u64 = now?.trim().parse().ok()?;
    let to = now.saturating_mul(2).clamp(2000, LONGEST);
    let key = SettingKey::Sysctl(BACKLOG.to_owned());
    (now < to).then(|| remedy(context, key, Value::Text(to.to_string())))?
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{self, Cases, World, finding};
    use super::*;
    use crate::build;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("a CPU drops", || dropping(40)),
            ("room for ten packets", || World::of(short())),
            ("room for ten packets, and none dropped", || {
                World::of(short()).watched(|w| w)
            }),
        ],
        silent: &[("none drops", || dropping(0))],
        undetermined: &[
            ("counters not watched", || World::of(build::veth_pair().0)),
            ("the kernel's file was not read", || {
                World::of(build::veth_pair().0).watched(|watch| watch.without("cpu/1/softnet"))
            }),
        ],
    };

    fn short() -> crate::host::Host {
        build::host().sysctl(BACKLOG, "10").build()
    }

    fn dropping(packets: u64) -> World {
        World::of(build::veth_pair().0)
            .watched(|watch| watch.grew("cpu/1/softnet/dropped", packets))
    }

    #[test]
    fn twice_the_length_is_tried() {
        let said = finding(ID, &dropping(40).context());
        assert_eq!(said.subject, "cpu/1");
        assert_eq!(
            testing::remedies(&said),
            ["sysctl/net.core.netdev_max_backlog: 1000 -> 2000"]
        );
    }
}
