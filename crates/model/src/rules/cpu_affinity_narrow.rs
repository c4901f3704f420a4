//! `cpu-affinity-narrow`: linerate itself may run on too few CPUs, or on none that is local to the NIC, so what it
//! measures is the limit of these CPUs. Facts from proc_pid_status(5) and cpuset(7).

use super::app_remote_numa::carriers;
use super::devices::unknown;
use super::spreading::{brief, local_cpus, needed};
use super::{ALWAYS, Draft, found, subject, undetermined};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::Nic;
use crate::ids::CpuSet;
use crate::known::{Gap, Known};
use crate::setting::Class;

pub(super) const RULE: Rule = Rule {
    id: "cpu-affinity-narrow",
    number: 105,
    status: Status::Implemented,
    title: "linerate may run on too few CPUs, or on none that is local to the NIC",
    severity: Severity::Warn,
    stage: Stage::Locality,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "no CPU local to the NIC is allowed, or one CPU of 4 or more is (warn); less than a quarter of the CPUs is (note)",
    effect: "every measurement from here is limited by these CPUs; no general figure",
    source: "proc_pid_status(5), Cpus_allowed_list; cpuset(7); thresholds of linerate",
    fix: Fix::Advised(&[Class::R0]),
    persist: "the unit's CPUAffinity= and AllowedCPUs=, the container's cpuset, or the job's CPU binding",
    contested: None,
    page: include_str!("../../../../docs/rules/cpu-affinity-narrow.md"),
    check,
};

/// On smaller machines a single CPU is a large part.
const CPUS_FROM: usize = 4;
/// Less than one of this many CPUs is few.
const PART: usize = 4;

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let host = context.host;
    let isolation = &host.isolation.isolated;
    let facts = [unknown(&host.process.cpus_allowed), unknown(isolation)];
    let missing: Vec<Gap> = facts.into_iter().flatten().collect();
    if !missing.is_empty() {
        return vec![undetermined(rule, context, "host".to_owned(), missing)];
    }
    let online = host.online_cpus();
    // The kernel starts every program on the CPUs that are not isolated.
    let usual = match isolation {
        Known::Value(isolated) => online.minus(isolated),
        Known::Unknown(_) => online.clone(),
    };
    let allowed = match &host.process.cpus_allowed {
        Known::Value(allowed) => allowed.and(&online),
        Known::Unknown(_) => return Vec::new(),
    };
    if allowed.is_empty() || usual.is_subset(&allowed) {
        return Vec::new();
    }
    let mut outcomes: Vec<Outcome> = carriers(context)
        .into_iter()
        .filter_map(|nic| remote(rule, context, nic, &usual, &allowed))
        .collect();
    if !outcomes
        .iter()
        .any(|one| matches!(one, Outcome::Finding(_)))
    {
        outcomes.extend(few(rule, context, &usual, &allowed));
    }
    outcomes
}

fn allowed_evidence(allowed: &CpuSet) -> Evidence {
    Evidence::new("CPUs allowed to linerate", allowed, "/proc/self/status")
}

/// None of the allowed CPUs is local to `nic`.
fn remote(
    rule: &Rule,
    context: &Context<'_>,
    nic: &Nic,
    usual: &CpuSet,
    allowed: &CpuSet,
) -> Option<Outcome> {
    let (local, path) = match local_cpus(context.host, nic) {
        Known::Value(local) => local,
        Known::Unknown(gap) => {
            let missing = vec![needed(&gap)?];
            return Some(undetermined(rule, context, subject(nic), missing));
        }
    };
    let near = local.and(usual);
    if near.is_empty() || !near.is_disjoint(allowed) {
        return None;
    }
    let near = brief(&near);
    let summary = format!(
        "linerate may run on CPUs {} only, and {} is local to CPUs {near}: start it with `taskset -c {near}`, or widen its \
         cpuset",
        brief(allowed),
        nic.name,
    );
    let said = Draft {
        severity: Severity::Warn,
        subject: subject(nic),
        summary,
        evidence: vec![
            allowed_evidence(allowed),
            Evidence::new(format!("CPUs local to {}", nic.name), local, path),
        ],
        remedies: Vec::new(),
    };
    Some(found(rule, context, said))
}

/// A small part of the CPUs is allowed.
fn few(rule: &Rule, context: &Context<'_>, usual: &CpuSet, allowed: &CpuSet) -> Option<Outcome> {
    let severity = match (allowed.len(), usual.len()) {
        (1, CPUS_FROM..) => Severity::Warn,
        (some, all) if some * PART < all => Severity::Note,
        _ => return None,
    };
    let usual = brief(usual);
    let said = Draft {
        severity,
        subject: "host".to_owned(),
        summary: format!(
            "linerate may run on CPUs {} only: start it with `taskset -c {usual}`, or widen its cpuset",
            brief(allowed)
        ),
        evidence: vec![
            allowed_evidence(allowed),
            Evidence::new(
                "CPUs online and not isolated",
                usual,
                "/sys/devices/system/cpu/online, isolated",
            ),
        ],
        remedies: Vec::new(),
    };
    Some(found(rule, context, said))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding, silent};
    use super::*;
    use crate::build;
    use crate::host::Host;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("only CPUs of the other node", || World::of(server("0-5"))),
            ("one of twelve CPUs", || World::of(server("7"))),
            ("two of twelve CPUs", || World::of(server("6-7"))),
        ],
        silent: &[
            ("all CPUs", || World::of(server("0-11"))),
            ("the CPUs of the NIC's node", || World::of(server("6-11"))),
            ("all but the isolated CPUs", || {
                let mut host = server("0-1");
                host.isolation.isolated = Known::Value("2-11".parse().expect("a list"));
                World::of(host)
            }),
        ],
        undetermined: &[
            ("its CPUs were not captured", || {
                let mut host = server("0-5");
                host.process.cpus_allowed = Known::not_asked("/proc/self/status");
                World::of(host)
            }),
            ("the NIC's node is not known", || {
                let mut host = server("0-5");
                host.nics[0].numa_node =
                    Known::unknown(crate::known::Cause::NotSaid, "numa_node", "-1");
                World::of(host)
            }),
        ],
    };

    /// A NIC on node 1 (CPUs 6-11); linerate may run on `allowed`.
    fn server(allowed: &str) -> Host {
        build::host()
            .nodes(2, 6)
            .nic("eth2", |nic| {
                nic.node(1)
                    .with(|nic| nic.addresses = vec!["10.0.0.1/24".to_owned()].into())
            })
            .with(|host| {
                host.process.cpus_allowed = Known::Value(allowed.parse().expect("a list"));
            })
            .build()
    }

    #[test]
    fn remote_cpus_are_reported_for_the_nic_and_one_cpu_for_the_host() {
        let remote = finding(ID, &context(&server("0-5")));
        assert_eq!(
            (remote.severity, remote.subject.as_str()),
            (Severity::Warn, "nic/eth2")
        );
        assert!(
            remote.summary.contains("`taskset -c 6-11`"),
            "{}",
            remote.summary
        );
        let one = finding(ID, &context(&server("7")));
        assert_eq!(
            (one.severity, one.subject.as_str()),
            (Severity::Warn, "host")
        );
        let two = finding(ID, &context(&server("6-7")));
        assert_eq!(two.severity, Severity::Note);
        // One remote CPU is one finding, about the worse of its two faults.
        assert_eq!(finding(ID, &context(&server("0"))).subject, "nic/eth2");
    }

    #[test]
    fn one_of_two_cpus_is_half_of_the_machine() {
        let mut host = build::host().nodes(1, 2).build();
        host.process.cpus_allowed = Known::Value("1".parse().expect("a list"));
        assert!(silent(ID, &context(&host)));
    }
}
