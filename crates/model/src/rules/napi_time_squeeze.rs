//! `napi-time-squeeze`: NAPI polling runs out of budget with packets left in the ring. Facts from
//! Documentation/admin-guide/sysctl/net.rst (`netdev_budget`), `time_squeeze` of
//! `/proc/net/softnet_stat`.

use super::facts::{Floor, answer, too_low};
use super::spreading::{percent, softirq_share};
use super::{ALWAYS, Draft, found, remedy, undetermined, watched};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Remedy, Rule, Severity, Stage, Status,
};
use crate::ids::CpuId;
use crate::known::{Gap, Known};
use crate::setting::{Class, SettingKey, Value};
use crate::watch::Watch;

pub(super) const RULE: Rule = Rule {
    id: "napi-time-squeeze",
    number: 16,
    status: Status::Implemented,
    title: "NAPI polling runs out of budget with packets left in the ring",
    severity: Severity::Warn,
    stage: Stage::Saturation,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts, Basis::Counters],
    threshold: "time_squeeze grows by more than 1 per second on a CPU with more than 50 % softirq, or by more than \
                100 per second on any CPU; net.core.netdev_budget below 64, netdev_budget_usecs below 1000 or \
                dev_weight below 16",
    effect: "the remaining packets wait in the ring and may be dropped there; no general figure",
    source: "Documentation/admin-guide/sysctl/net.rst (netdev_budget); net_rx_action in \
             net/core/dev.c; netutils-linux, network-top",
    fix: Fix::Proposed(&[Class::R1]),
    persist: "sysctl.d",
    contested: None,
    page: include_str!("../../../../docs/rules/napi-time-squeeze.md"),
    check,
};

const PER_SECOND: f64 = 1.0;
const BUSY: f64 = 0.5;
/// From this rate on the budget ends too early, however busy the CPU is: at 300 packets each it is 30,000 packets per
/// second that wait for the next softirq.
const OFTEN_PER_SECOND: f64 = 100.0;

/// A NAPI instance is polled for up to 64 packets at once (NAPI_POLL_WEIGHT); the budget's time is 2 jiffies.
const FLOORS: [Floor; 3] = [
    Floor {
        name: "net.core.netdev_budget",
        least: 64,
        usual: 300,
        effect: "each softirq ends after one poll with packets left in the ring",
    },
    Floor {
        name: "net.core.netdev_budget_usecs",
        least: 1000,
        usual: 2000,
        effect: "softirqs end early with packets left in the ring",
    },
    Floor {
        name: "net.core.dev_weight",
        least: 16,
        usual: 64,
        effect: "each poll of the backlog handles only a few packets",
    },
];

/// The budget to try, packets; the kernel's default is 300.
const BUDGET: u64 = 600;

const OF_CARD: [&str; 2] = ["stat/rx_missed_errors", "stat/rx_fifo_errors"];

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let mut missing = Vec::new();
    let floors = FLOORS.iter();
    let low: Vec<Draft> = floors
        .filter_map(|floor| too_low(context, floor, &mut missing))
        .collect();
    let is_low = !low.is_empty();
    let mut said = answer(rule, context, "host", low, missing);
    match watched(rule, context) {
        Ok(watch) => said.extend(squeezed(rule, context, watch)),
        // A budget that is too low is the answer already.
        Err(_) if is_low => {}
        Err(unsure) => said.extend(unsure),
    }
    said
}

fn squeezed(rule: &Rule, context: &Context<'_>, watch: &Watch) -> Vec<Outcome> {
    let mut missing: Vec<Gap> = Vec::new();
    let mut squeezed: Vec<(CpuId, f64, Option<f64>)> = Vec::new();
    for cpu in context.host.online_cpus().iter() {
        let key = format!("cpu/{cpu}/softnet/time_squeeze");
        let rate = match watch.per_second(&key) {
            Known::Value(rate) if rate > PER_SECOND => rate,
            Known::Value(_) => continue,
            Known::Unknown(gap) => {
                missing.push(gap);
                continue;
            }
        };
        match softirq_share(watch, cpu) {
            Known::Value(busy) if busy > BUSY || rate > OFTEN_PER_SECOND => {
                squeezed.push((cpu, rate, Some(busy)));
            }
            Known::Value(_) => {}
            Known::Unknown(_) if rate > OFTEN_PER_SECOND => squeezed.push((cpu, rate, None)),
            Known::Unknown(gap) => missing.push(gap),
        }
    }
    squeezed.sort_by(|one, other| other.1.total_cmp(&one.1));
    let Some((worst, rate, busy)) = squeezed.first().copied() else {
        missing.truncate(1);
        return if missing.is_empty() {
            Vec::new()
        } else {
            vec![undetermined(rule, context, "host".to_owned(), missing)]
        };
    };
    let drops = drops(context, watch);
    let advice = if drops.is_empty() {
        "spread the work over more CPUs; nothing was dropped"
    } else {
        "packets are dropped, so spread the work over more CPUs or raise netdev_budget"
    };
    let evidence = squeezed.iter().flat_map(|(cpu, rate, busy)| {
        let squeeze = Evidence::new(
            format!("time_squeeze of CPU {cpu}"),
            format!("{rate:.1} per second"),
            watch.path(&format!("cpu/{cpu}/softnet/time_squeeze")),
        );
        let softirq = busy.map(|busy| super::spreading::softirq_evidence(watch, *cpu, busy));
        std::iter::once(squeeze).chain(softirq)
    });
    let at = busy.map_or_else(String::new, |busy| {
        format!(", at {} softirq", percent(busy))
    });
    let said = Draft {
        severity: Severity::Warn,
        subject: format!("cpu/{worst}"),
        summary: format!(
            "NAPI polling on CPU {worst} ran out of budget {rate:.0} times per second{at}: {advice}"
        ),
        remedies: if drops.is_empty() {
            Vec::new()
        } else {
            remedies(context)
        },
        evidence: evidence.chain(drops).collect(),
    };
    vec![found(rule, context, said)]
}

/// The drops that may be caused by full rings.
fn drops(context: &Context<'_>, watch: &Watch) -> Vec<Evidence> {
    let keys = context.host.nics.iter().flat_map(|nic| {
        OF_CARD
            .iter()
            .map(move |name| format!("nic/{}/{name}", nic.name))
    });
    keys.filter_map(|key| {
        let grown = watch.grown(&key).get().filter(|grown| *grown > 0)?;
        Some(Evidence::new(key.clone(), grown, watch.path(&key)))
    })
    .collect()
}

/// The budget, and twice the time.
fn remedies(context: &Context<'_>) -> Vec<Remedy> {
    let number = |name: &str| {
        let text = context.host.sysctl(name);
        text.value()
            .and_then(|text| text.trim().parse::<u64>().ok())
    };
    let raise = |name: &str, to: u64| {
        let key = SettingKey::Sysctl(name.to_owned());
        remedy(context, key, Value::Text(to.to_string()))
    };
    let budget = number("net.core.netdev_budget")
        .filter(|now| *now < BUDGET)
        .and_then(|_| raise("net.core.netdev_budget", BUDGET));
    let time = number("net.core.netdev_budget_usecs")
        .and_then(|now| raise("net.core.netdev_budget_usecs", now.saturating_mul(2)));
    budget.into_iter().chain(time).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{self, Cases, World, finding};
    use super::*;
    use crate::build;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("often, on a busy CPU", || squeezed(50, 0.8)),
            ("833 times per second", || squeezed(8_330, 0.2)),
            ("one packet for each softirq", || {
                World::of(build::host().sysctl("net.core.netdev_budget", "1").build())
            }),
            ("no time for a softirq", || {
                let host = build::host().sysctl("net.core.netdev_budget_usecs", "10");
                World::of(host.build())
            }),
        ],
        silent: &[
            ("never", || squeezed(0, 0.8)),
            ("on a CPU with time left", || squeezed(50, 0.2)),
        ],
        undetermined: &[
            ("counters not watched", || World::of(build::veth_pair().0)),
            ("the kernel's file was not read", || {
                World::of(build::veth_pair().0).watched(|watch| watch.without("cpu/1/softnet"))
            }),
        ],
    };

    fn squeezed(times: u64, busy: f64) -> World {
        let host = build::host().nic("eth2", |nic| nic).build();
        World::of(host).watched(|watch| {
            watch
                .grew("cpu/1/softnet/time_squeeze", times)
                .softirq(1, busy)
        })
    }

    #[test]
    fn a_budget_of_one_packet_needs_no_counters() {
        let host = build::host().sysctl("net.core.netdev_budget", "1").build();
        let said = finding(ID, &World::of(host).context());
        assert_eq!(said.severity, Severity::Warn);
        assert_eq!(
            testing::remedies(&said),
            ["sysctl/net.core.netdev_budget: 1 -> 300"]
        );
    }

    #[test]
    fn the_budget_is_raised_only_when_packets_are_dropped() {
        let said = finding(ID, &squeezed(50, 0.8).context());
        assert_eq!(said.subject, "cpu/1");
        assert!(said.remedies.is_empty(), "spread first");
        let host = build::host().nic("eth2", |nic| nic).build();
        let world = World::of(host).watched(|watch| {
            watch
                .grew("cpu/1/softnet/time_squeeze", 50)
                .grew("nic/eth2/stat/rx_missed_errors", 7)
                .softirq(1, 0.8)
        });
        assert_eq!(
            testing::remedies(&finding(ID, &world.context())),
            [
                "sysctl/net.core.netdev_budget: 300 -> 600",
                "sysctl/net.core.netdev_budget_usecs: 2000 -> 4000"
            ]
        );
    }
}
