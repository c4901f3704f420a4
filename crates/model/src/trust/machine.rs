//! Machine conditions that make trials hard to compare: changing frequencies, deep idle states, other traffic on the
//! interface, and other programs on the CPUs.

use std::collections::BTreeSet;

use crate::host::{Host, Nic, NicKind};
use crate::ids::{CpuId, CpuSet};
use crate::sample::{FlowRecord, Role, SideSample};
use crate::units::{Bytes, Nanoseconds, real};
use crate::workload::{TrialSpec, Verb, Workload};

/// A CPU whose frequency range exceeded this share was not steady.
const FREQUENCY_SPREAD: f64 = 0.05;
/// Idle states with an exit latency above this, as in the rule `cpu-deep-cstates`.
const DEEP_EXIT_US: u32 = 10;
/// Above this share of time in them.
const DEEP_SHARE: f64 = 0.10;
/// Above this share beyond the trial's own bytes.
const OTHERS_SHARE: f64 = 0.05;
/// Above this share of the time of the CPUs that worked.
const LOAD_SHARE: f64 = 0.10;
/// Ten ticks of the coarsest accounting: less than this is no sign of another program.
const LOAD_MIN: Nanoseconds = Nanoseconds::from_millis(100);
/// Ethernet with a VLAN tag, IPv6, TCP with timestamps: an upper bound of a segment's headers.
const HEADERS_BYTES: u64 = 18 + 40 + 20 + 12;
/// The payload of a segment if the kernel does not report it.
const SEGMENT_BYTES: u64 = 1_448;

/// The CPUs that worked for this end: of its threads, and those that received packets for them.
fn workers(side: &SideSample) -> BTreeSet<CpuId> {
    let threads = side.threads.iter().flat_map(|thread| &thread.seen_on);
    let flows = side.flows.iter();
    let ran = flows.clone().filter_map(FlowRecord::cpu);
    let received = flows.filter_map(|flow| flow.incoming_cpu.get());
    threads.copied().chain(ran).chain(received).collect()
}

/// Whether a busy CPU did not keep its frequency, or was in the turbo range: few busy cores then run faster than
/// many, and what looks like bad scaling is the clock. Without readings there is no flag.
pub(super) fn frequency_moved(side: &SideSample, host: &Host) -> bool {
    let workers = workers(side);
    let above = |khz: u64, than: u64| real(khz) > (1.0 + FREQUENCY_SPREAD) * real(than);
    let seen = side.cpu.frequency.value().into_iter().flatten();
    seen.filter(|cpu| workers.contains(&cpu.cpu)).any(|cpu| {
        // A single reading shows no change.
        let moved = cpu.readings > 1 && above(cpu.highest_khz, cpu.lowest_khz);
        let turbo = host.power.turbo.get() == Some(true)
            && base_khz(cpu.cpu, host).is_none_or(|base| above(cpu.highest_khz, base));
        moved || turbo
    })
}

/// The frequency of `cpu` without turbo.
fn base_khz(cpu: CpuId, host: &Host) -> Option<u64> {
    let mut policies = host.power.frequency.value()?.iter();
    let has = |cpus: &CpuSet| cpus.contains(cpu);
    let own = policies.find(|policy| policy.cpus.value().is_some_and(has))?;
    own.base_khz.get()
}

/// Whether a busy CPU spent much of its time in deep idle states: more load keeps it awake, and more connections then
/// appear faster than one.
pub(super) fn slept_deeply(side: &SideSample, host: &Host) -> bool {
    let (Some(watch), Some(states)) = (side.counters.value(), host.power.idle_states.value())
    else {
        return false;
    };
    let deep: Vec<&str> = states
        .iter()
        .filter(|state| state.exit_latency_us.get() > Some(DEEP_EXIT_US))
        .map(|state| state.name.as_str())
        .collect();
    let span_us = real(watch.span_ns.as_u64() / 1_000);
    workers(side).iter().any(|cpu| {
        let slept: u64 = deep
            .iter()
            .filter_map(|state| {
                watch
                    .grown(&format!("cpu/{cpu}/idle/{state}/time_us"))
                    .get()
            })
            .fold(0, u64::saturating_add);
        span_us > 0.0 && real(slept) > DEEP_SHARE * span_us
    })
}

/// Whether the interface carried more than the trial's own bytes with their headers, in either direction. Only for
/// interfaces with a physical link: on virtual ones both ends may count, and bytes may be forwarded through them.
/// ACKs are within the tolerance.
pub(super) fn other_traffic(spec: &TrialSpec, side: &SideSample, host: &Host) -> bool {
    let (Some(watch), Some(name)) = (side.counters.value(), &side.interface) else {
        return false;
    };
    let on_wire = host.nic(name).is_some_and(|nic| stands_on_wire(nic, host));
    if !on_wire || !spec.workload.is_bulk() {
        return false;
    }
    // Bytes moved by one-sided verbs are known only to the posting end.
    if spec.workload.is_one_sided() && side.senders().next().is_none() {
        return false;
    }
    let ours = |role| {
        let flows = side.flows.iter().filter(|flow| flow.role == role);
        flows.fold(0, |sum: u64, flow| {
            sum.saturating_add(frames_bytes(spec, flow))
        })
    };
    let (posted, arrived) = (ours(Role::Sender), ours(Role::Receiver));
    let (sent, received) = match &spec.workload {
        Workload::Rdma(rdma) if rdma.verb == Verb::Read => (arrived, posted),
        // Each request has a response of the same size.
        Workload::Rdma(rdma) if rdma.verb == Verb::Atomic => (posted, posted),
        _ => (posted, arrived),
    };
    let allowed = OTHERS_SHARE * real(sent.max(received));
    [("tx_bytes", sent), ("rx_bytes", received)]
        .into_iter()
        .any(|(counter, own)| {
            let key = format!("nic/{name}/stat/{counter}");
            let counted = watch.grown(&key).get();
            counted.is_some_and(|counted| real(counted.saturating_sub(own)) > allowed)
        })
}

/// Whether other programs used the CPUs that worked for the ends in `sharing`, which are on one kernel. Judged by user
/// time: the kernel's own work for the trial (softirqs, zero-copy, polling threads) has none.
pub(super) fn other_load(sharing: &[&SideSample]) -> bool {
    let Some(machine) = sharing.first().and_then(|side| side.cpu.machine.value()) else {
        return false;
    };
    let workers: BTreeSet<CpuId> = sharing.iter().flat_map(|side| workers(side)).collect();
    let own = sharing.iter().map(|side| side.cpu.threads_user_ns.as_u64());
    let own = own.fold(0, u64::saturating_add);
    let (mut user, mut total) = (0_u64, 0.0);
    for cpu in machine.iter().filter(|cpu| workers.contains(&cpu.cpu)) {
        user = user.saturating_add(cpu.user_ns.as_u64());
        total += cpu.total().as_secs_f64();
    }
    let others = Nanoseconds::new(user.saturating_sub(own));
    others > LOAD_MIN && others.as_secs_f64() > LOAD_SHARE * total
}

/// A NIC's port, or a bond, team or VLAN on such ports.
fn stands_on_wire(nic: &Nic, host: &Host) -> bool {
    let bundles = matches!(nic.kind, NicKind::Bond | NicKind::Team | NicKind::Vlan);
    let has_wire = |nic: &Nic| nic.kind.has_wire();
    let mut below = nic.lower().iter().filter_map(|lower| host.nic(lower));
    has_wire(nic) || bundles && below.any(has_wire)
}

/// An upper bound of the bytes in one flow's frames.
fn frames_bytes(spec: &TrialSpec, flow: &FlowRecord) -> u64 {
    let tcp = flow.tcp.value();
    let payload = match (flow.role, tcp) {
        (Role::Sender, Some(tcp)) => flow.total().max(tcp.bytes_sent),
        _ => flow.total(),
    };
    let segment = match (&spec.workload, flow.role, tcp) {
        (Workload::Udp(udp), _, _) => udp.datagram_bytes.as_u64().min(SEGMENT_BYTES),
        // Each packet has a part of one message, with headers no larger than those of TCP.
        (Workload::Rdma(rdma), _, _) => {
            let least = rdma.sizes.iter().map(|size| size.as_u64()).min();
            let mtu = flow
                .verbs
                .as_ref()
                .and_then(|verbs| verbs.mtu)
                .map_or(SEGMENT_BYTES, u64::from);
            least.unwrap_or(SEGMENT_BYTES).min(mtu)
        }
        (_, Role::Sender, Some(tcp)) => tcp.snd_mss_bytes.as_u64(),
        (_, Role::Receiver, Some(tcp)) => tcp.rcv_mss_bytes.map_or(SEGMENT_BYTES, Bytes::as_u64),
        _ => SEGMENT_BYTES,
    };
    let segments = payload.as_u64().div_ceil(segment.max(1));
    payload
        .as_u64()
        .saturating_add(segments.saturating_mul(HEADERS_BYTES))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::build;
    use crate::host::IdleState;
    use crate::known::Known;
    use crate::sample::{CpuFrequency, Sample};
    use crate::units::Nanoseconds;
    use crate::watch::{Counter, Watch};

    fn watch(grown: &[(&str, u64)]) -> Known<Watch> {
        let counter = |(key, grown): &(&str, u64)| {
            let counter = Counter {
                before: 7,
                after: 7 + grown,
                path: (*key).to_owned(),
            };
            ((*key).to_owned(), counter)
        };
        Known::Value(Watch {
            span_ns: Nanoseconds::from_millis(2_000),
            counters: grown.iter().map(counter).collect(),
            gaps: BTreeMap::new(),
        })
    }

    fn at_frequency(cpu: u32, lowest_khz: u64, highest_khz: u64, readings: u32) -> Sample {
        let mut sample = build::sample().build();
        sample.local.cpu.frequency = Known::Value(vec![CpuFrequency {
            cpu: CpuId(cpu),
            lowest_khz,
            highest_khz,
            readings,
        }]);
        sample
    }

    #[test]
    fn a_frequency_that_moved_on_a_cpu_that_worked_is_flagged() {
        let host = build::host().with(|host| host.power.turbo = Known::Value(false));
        let host = host.build();
        // The builder's local end uses CPU 0.
        let moved = |cpu, lowest_khz, highest_khz, readings| {
            let sample = at_frequency(cpu, lowest_khz, highest_khz, readings);
            frequency_moved(&sample.local, &host)
        };
        assert!(moved(0, 2_000_000, 2_200_000, 2));
        assert!(!moved(0, 2_000_000, 2_090_000, 2));
        assert!(!moved(1, 800_000, 3_000_000, 2), "it only idled");
        assert!(!moved(0, 800_000, 3_000_000, 1));
        assert!(!frequency_moved(&build::sample().build().local, &host));
    }

    #[test]
    fn turbo_is_flagged_where_it_was_used_or_may_have_been() {
        let sample = at_frequency(0, 3_000_000, 3_000_000, 4);
        let flagged = |base: Known<u64>| {
            let host = build::host().with(|host| {
                host.power.turbo = Known::Value(true);
                if let Known::Value(policies) = &mut host.power.frequency {
                    policies[0].base_khz = base;
                }
            });
            frequency_moved(&sample.local, &host.build())
        };
        assert!(flagged(Known::Value(2_400_000)));
        assert!(!flagged(Known::Value(3_000_000)));
        assert!(flagged(Known::default()));
    }

    #[test]
    fn sleep_counts_when_it_is_deep_and_on_a_cpu_that_worked() {
        let state = |name: &str, exit: u32| IdleState {
            name: name.to_owned(),
            exit_latency_us: Known::Value(exit),
            disabled_on: Known::Value(CpuSet::empty()),
        };
        let host = build::host()
            .with(|host| {
                host.power.idle_states = Known::Value(vec![state("C1", 2), state("C6", 133)]);
            })
            .build();
        let mut sample = build::sample().build();
        let mut slept = |key, time_us| {
            sample.local.counters = watch(&[(key, time_us)]);
            slept_deeply(&sample.local, &host)
        };
        assert!(slept("cpu/0/idle/C6/time_us", 300_000));
        assert!(!slept("cpu/0/idle/C6/time_us", 150_000));
        assert!(!slept("cpu/0/idle/C1/time_us", 1_900_000));
        assert!(!slept("cpu/1/idle/C6/time_us", 1_900_000));
        assert!(
            !slept_deeply(&build::sample().build().local, &host),
            "nobody counted"
        );
    }

    fn on(nic: &str, tx_bytes: u64) -> Sample {
        let mut sample = build::sample().build();
        sample.local.interface = Some(nic.parse().expect("a name"));
        let key = format!("nic/{nic}/stat/tx_bytes");
        sample.local.counters = watch(&[(&key, tx_bytes)]);
        sample
    }

    #[test]
    fn bytes_of_others_on_a_wire_are_told_from_our_headers() {
        let host = build::host().nic("eth0", |nic| nic).build();
        // 10 Gb/s for two seconds.
        let payload = 2_500_000_000u64;
        let others = |tx_bytes| {
            let sample = on("eth0", tx_bytes);
            other_traffic(&sample.spec, &sample.local, &host)
        };
        assert!(!others(payload / 1_448 * 1_514));
        assert!(!others(payload / 1_448 * 1_514 + payload / 30));
        assert!(others(payload / 1_448 * 1_514 + payload / 10));
    }

    #[test]
    fn user_time_that_is_not_the_trials_own_is_load_of_others() {
        let mut sample = build::sample().build();
        let load = |sample: &Sample| other_load(&[&sample.local]);
        assert!(!load(&sample));
        let worker = *workers(&sample.local).first().expect("a thread ran");
        let Known::Value(machine) = &mut sample.local.cpu.machine else {
            panic!("the builder knows the machine's times");
        };
        let cpu = machine.iter_mut().find(|cpu| cpu.cpu == worker);
        let cpu = cpu.expect("its times are known");
        (cpu.user_ns, cpu.idle_ns) = (Nanoseconds::from_millis(400), Nanoseconds::default());
        assert!(load(&sample));
        // As much of its own is none of others, and neither is what the other end on this kernel used.
        sample.remote.cpu.threads_user_ns = Nanoseconds::from_millis(400);
        assert!(!other_load(&[&sample.local, &sample.remote]));
        sample.local.cpu.threads_user_ns = Nanoseconds::from_millis(400);
        assert!(!load(&sample));
    }

    #[test]
    fn a_virtual_interface_has_no_others() {
        let (near, _) = build::veth_pair();
        let sample = on("near0", 9_000_000_000);
        assert!(!other_traffic(&sample.spec, &sample.local, &near));
    }
}
