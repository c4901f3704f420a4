//! `vm-host-limits`: the hypervisor or a CPU quota takes CPU time, or a virtual function is rate-limited. Facts from
//! proc_stat(5), `cpu.max` (Documentation/admin-guide/cgroup-v2.rst) and `IFLA_VF_INFO` (ip-link(8)).

use super::devices::{Notice, growth, judged, or_unwatched, unknown};
use super::{ALWAYS, each_nic, subject};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{Nic, VirtualFunction};
use crate::known::{Gap, Known};
use crate::setting::Class;
use crate::units::{BitRate, Ratio, real};
use crate::watch::Watch;

pub(super) const RULE: Rule = Rule {
    id: "vm-host-limits",
    number: 79,
    status: Status::AdviceOnly,
    title: "the hypervisor or a CPU quota takes CPU time, or a virtual function is rate-limited",
    severity: Severity::Warn,
    stage: Stage::HardCeiling,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts, Basis::Counters],
    threshold: "steal above 10 % of a CPU's time while watched (warn), above 1 % (note); a cgroup CPU quota of less than one CPU, or that \
                stops this process for 5 % of the time (warn), of less than all CPUs (note); a VF rate below link speed, or \
                32 or more CPUs in one node (note)",
    effect: "a ceiling: only the hypervisor, or the owner of the control group, can lift it",
    source: "proc_stat(5); ip-link(8), vf; Documentation/admin-guide/cgroup-v2.rst, cpu.max; \
             Documentation/scheduler/sched-bwc.rst",
    fix: Fix::Advised(&[Class::R4]),
    persist: "on the hypervisor: pinned virtual CPUs, no overcommitment, `ip link set PF vf N max_tx_rate`",
    contested: None,
    page: include_str!("../../../../docs/rules/vm-host-limits.md"),
    check,
};

const STOLEN: Ratio = Ratio::new(0.01);
/// A guest on a shared machine has a little steal time occasionally, in the kernel's ticks of 10 ms; above this share
/// it lacks CPU time.
const STOLEN_MUCH: Ratio = Ratio::new(0.1);
/// A quota that stops a process for this share of the time limits what it measures.
const QUOTA: Ratio = Ratio::new(0.05);
/// From this size on the physical machine most likely has more than one node.
const MANY_CPUS: usize = 32;

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let mut said = each_nic(rule, context, |nic| {
        judged(
            rule,
            context,
            subject(nic),
            Vec::from_iter(capped(nic)),
            Vec::new(),
        )
    });
    let hypervisor = &context.host.kernel.hypervisor;
    // Bare metal has no steal time. A kernel that reports no hypervisor may still run on one.
    let (guest, maybe) = match hypervisor {
        Known::Value(name) => (name != "none", name != "none"),
        Known::Unknown(_) => (false, unknown(hypervisor).is_some()),
    };
    if guest || maybe {
        let notices = [stolen(context), flat(context).filter(|_| guest)];
        let notices = notices.into_iter().flatten().collect();
        let missing = Vec::from_iter(uncounted(context).filter(|_| guest));
        said.extend(judged(rule, context, "host".to_owned(), notices, missing));
    }
    said.extend(judged(
        rule,
        context,
        "cgroup".to_owned(),
        Vec::from_iter(quota(context)),
        Vec::from_iter(unknown(&context.host.process.cpu_quotas)),
    ));
    or_unwatched(rule, context, guest || maybe, said)
}

/// The CPU quota of a control group of this process, or of one above it: the same for every program in it.
fn quota(context: &Context<'_>) -> Option<Notice> {
    let stopped = context.watch.and_then(throttled);
    let cpus = context.host.online_cpus().len();
    let quotas = context.host.process.cpu_quotas.value();
    let smallest = quotas
        .into_iter()
        .flatten()
        .map(|quota| (quota, real(quota.quota_us) / real(quota.period_us.max(1))))
        .min_by(|(_, one), (_, other)| one.total_cmp(other));
    let limit =
        smallest.filter(|(_, share)| *share < real(u64::try_from(cpus).unwrap_or(u64::MAX)));
    let mut evidence = Vec::new();
    if let Some((quota, _)) = limit {
        let value = format!("{} us in {} us", quota.quota_us, quota.period_us);
        evidence.push(Evidence::new("CPU quota", value, &*quota.path));
        if let (Some(throttled), Some(periods)) = (quota.nr_throttled.get(), quota.nr_periods.get())
        {
            let folder = quota.path.rsplit_once('/').map_or("", |(folder, _)| folder);
            evidence.push(Evidence::new(
                "periods throttled since the group was created",
                format!("{throttled} of {periods}"),
                format!("{folder}/cpu.stat"),
            ));
        }
    }
    let notice = match (stopped, limit) {
        (Some(stopped), _) => stopped,
        (None, Some((quota, share))) => {
            let severity = if share < 1.0 {
                Severity::Warn
            } else {
                Severity::Note
            };
            let summary = format!(
                "a CPU quota of {} allows {share:.2} CPUs of {cpus}: raise cpu.max or cpu.cfs_quota_us (systemd: CPUQuota=)",
                group(quota.above),
            );
            Notice::new(severity, summary)
        }
        (None, None) => return None,
    };
    Some(notice.with(evidence))
}

fn group(above: u32) -> String {
    match above {
        0 => "the control group of this process".to_owned(),
        above => format!("a control group {above} above this process"),
    }
}

fn throttled(watch: &Watch) -> Option<Notice> {
    let (above, by) = watch
        .below("cgroup/")
        .filter_map(|(rest, by, _)| {
            let (above, name) = rest.split_once('/')?;
            (name == "throttled_us").then_some((above.parse().ok()?, by))
        })
        .max_by_key(|(_, by)| *by)?;
    let share = Ratio::new(real(by) / (watch.span_ns.as_secs_f64() * 1e6));
    (share.as_f64() > QUOTA.as_f64()).then(|| {
        let summary = format!(
            "the CPU quota of {} stopped its threads for {share} of the time (all CPUs added): raise cpu.max or \
             cpu.cfs_quota_us (systemd: CPUQuota=)",
            group(above)
        );
        let key = format!("cgroup/{above}/throttled_us");
        let evidence = growth(watch, "time throttled, us", &key, by);
        Notice::new(Severity::Warn, summary).with([evidence])
    })
}

/// Why steal time is not known for any CPU, if counters were read.
fn uncounted(context: &Context<'_>) -> Option<Gap> {
    let watch = context.watch?;
    let mut all = context
        .host
        .cpus
        .iter()
        .map(|cpu| watch.grown(&format!("cpu/{}/time/steal", cpu.id)));
    let first = all.next()?.gap().cloned()?;
    all.all(|steal| steal.get().is_none()).then_some(first)
}

fn stolen(context: &Context<'_>) -> Option<Notice> {
    let watch = context.watch?;
    let span = watch.span_ns.as_secs_f64() * 1e9;
    let key = |cpu: &crate::ids::CpuId| format!("cpu/{cpu}/time/steal");
    let all: Vec<_> = context
        .host
        .cpus
        .iter()
        .filter_map(|cpu| Some((cpu.id, watch.grown(&key(&cpu.id)).get()?)))
        .map(|(cpu, by)| (cpu, by, part(by, span)))
        .filter(|(_, _, share)| share.as_f64() > STOLEN.as_f64())
        .collect();
    let (cpu, _, share) = all.iter().max_by_key(|(_, by, _)| *by)?;
    let severity = if share.as_f64() > STOLEN_MUCH.as_f64() {
        Severity::Warn
    } else {
        Severity::Note
    };
    let summary = format!(
        "steal time is {share} on CPU {cpu}{}: the hypervisor overcommits its CPUs",
        match all.len() {
            1 => String::new(),
            count => format!(", and above 1 % on {} others", count - 1),
        }
    );
    let evidence = all.iter().map(|(cpu, by, share)| {
        let what = format!("steal time of CPU {cpu}, ns ({share})");
        growth(watch, &what, &key(cpu), *by)
    });
    Some(Notice::new(severity, summary).with(evidence))
}

#[expect(clippy::cast_precision_loss, reason = "a share needs three digits")]
fn part(ns: u64, span: f64) -> Ratio {
    Ratio::new(ns as f64 / span)
}

fn flat(context: &Context<'_>) -> Option<Notice> {
    let cpus = context.host.online_cpus();
    if cpus.len() < MANY_CPUS || context.host.nodes.len() != 1 {
        return None;
    }
    let summary = format!(
        "this guest sees {} CPUs in one NUMA node, so locality is unknown: expose the topology on the \
         hypervisor",
        cpus.len()
    );
    Some(Notice::new(Severity::Note, summary).with([
        Evidence::new("CPUs online", cpus, "/sys/devices/system/cpu/online"),
        Evidence::new("NUMA nodes", 1, "/sys/devices/system/node"),
    ]))
}

/// The virtual functions of a NIC with a rate limit below its link speed, or a disabled link.
fn capped(nic: &Nic) -> Option<Notice> {
    let link = nic.link_bit_per_s.get();
    let cap = |vf: &VirtualFunction| {
        let none = BitRate::from_bit_per_s(0);
        vf.max_bit_per_s
            .get()
            .filter(|rate| *rate > none && link.is_none_or(|link| *rate < link))
    };
    let off = |vf: &VirtualFunction| {
        vf.link_state
            .value()
            .is_some_and(|state| state == "disable")
    };
    let all = nic.stack.virtual_functions.value()?;
    let path = |what: &str| format!("RTM_GETLINK {}: IFLA_VF_INFO {what}", nic.name);
    let evidence: Vec<Evidence> = all
        .iter()
        .flat_map(|vf| {
            let index = vf.index;
            let rate = cap(vf).map(|rate| {
                Evidence::new(format!("max_tx_rate of VF {index}"), rate, path("rate"))
            });
            let state = off(vf).then(|| {
                Evidence::new(format!("link of VF {index}"), "disable", path("link_state"))
            });
            rate.into_iter().chain(state)
        })
        .collect();
    let first = evidence.first()?;
    let summary = format!(
        "{} limits virtual functions, {}: {}; check whether that is intended",
        nic.name, first.what, first.value
    );
    Some(Notice::new(Severity::Note, summary).with(evidence))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding};
    use super::*;
    use crate::build;
    use crate::host::{CpuQuota, Host};

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("5 % of a CPU is stolen", || {
                World::of(guest(2)).watched(|watch| watch.grew("cpu/1/time/steal", 500_000_000))
            }),
            ("a CPU quota", || {
                World::of(build::host().build())
                    .watched(|watch| watch.grew("cgroup/0/throttled_us", 8_000_000))
            }),
            ("a quota of half a CPU", || World::of(limited(50_000))),
            ("a quota of one of two CPUs", || World::of(limited(100_000))),
            ("a capped virtual function", || {
                World::of(with_function(1_000))
            }),
            ("64 CPUs in one node", || World::of(guest(64))),
        ],
        silent: &[
            ("bare metal", || World::of(build::host().build())),
            ("a quota of more CPUs than there are", || {
                World::of(limited(400_000))
            }),
            ("a guest that loses nothing", || {
                World::of(guest(2)).watched(|watch| watch.grew("cpu/1/time/steal", 50_000_000))
            }),
            ("a virtual function without a cap", || {
                World::of(with_function(0))
            }),
        ],
        undetermined: &[
            ("a guest that was not watched", || World::of(guest(2))),
            ("a guest whose stolen time is not told", || {
                World::of(guest(2)).watched(|watch| watch.without("cpu/"))
            }),
            ("the control group was not captured", || {
                let mut host = limited(50_000);
                host.process.cpu_quotas = Known::not_asked("/proc/self/cgroup");
                World::of(host)
            }),
            ("nobody knows whether it is a guest", || {
                let unasked = Known::not_asked("/sys/hypervisor");
                World::of(
                    build::host()
                        .with(|host| host.kernel.hypervisor = unasked)
                        .build(),
                )
            }),
        ],
    };

    fn guest(cpus: u32) -> Host {
        let kvm = Known::Value("kvm".to_owned());
        build::host()
            .nodes(1, cpus)
            .with(|host| host.kernel.hypervisor = kvm)
            .build()
    }

    /// Two CPUs, and a quota in periods of 100 ms of the group above.
    fn limited(quota_us: u64) -> Host {
        let quota = CpuQuota {
            above: 1,
            quota_us,
            period_us: 100_000,
            nr_periods: Known::Value(200),
            nr_throttled: Known::Value(188),
            path: "/sys/fs/cgroup/app/cpu.max".to_owned(),
        };
        build::host()
            .with(|host| host.process.cpu_quotas = Known::Value(vec![quota]))
            .build()
    }

    #[test]
    fn a_quota_below_one_cpu_is_a_warning_and_its_counters_are_evidence() {
        let said = finding(ID, &World::of(limited(50_000)).context());
        assert_eq!(
            (said.severity, said.subject.as_str()),
            (Severity::Warn, "cgroup")
        );
        assert!(
            said.summary.contains("allows 0.50 CPUs of 2"),
            "{}",
            said.summary
        );
        assert_eq!(said.evidence[1].value, "188 of 200");
        assert_eq!(said.evidence[1].path, "/sys/fs/cgroup/app/cpu.stat");
        let said = finding(ID, &World::of(limited(100_000)).context());
        assert_eq!(said.severity, Severity::Note);
    }

    #[test]
    fn a_quota_that_stops_the_process_is_found_where_only_a_group_above_has_one() {
        let world = World::of(limited(100_000))
            .watched(|watch| watch.grew("cgroup/1/throttled_us", 8_000_000));
        let said = finding(ID, &world.context());
        assert_eq!(said.severity, Severity::Warn);
        assert!(
            said.evidence
                .iter()
                .any(|one| one.value == "100000 us in 100000 us")
        );
    }

    fn with_function(mbit: u64) -> Host {
        let function = VirtualFunction {
            max_bit_per_s: Known::Value(BitRate::from_mbit_per_s(mbit)),
            link_state: Known::Value("auto".to_owned()),
            ..VirtualFunction::default()
        };
        build::host()
            .nic("eth0", |nic| {
                nic.with(|nic| nic.stack.virtual_functions = Known::Value(vec![function]))
            })
            .build()
    }

    #[test]
    fn stolen_time_names_the_worst_cpu_and_its_share() {
        let world = World::of(guest(4)).watched(|watch| {
            watch
                .grew("cpu/1/time/steal", 500_000_000)
                .grew("cpu/3/time/steal", 2_000_000_000)
        });
        let said = finding(ID, &world.context());
        assert_eq!(said.severity, Severity::Warn);
        assert!(said.summary.contains("20.0 % on CPU 3"), "{}", said.summary);
    }
}
