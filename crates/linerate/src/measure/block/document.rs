//! What `measure block --format json` prints (schema `linerate.block/1`).

use std::collections::BTreeMap;

use linerate_model::block::limit::{DepthProbe, Facts, Named};
use linerate_model::block::{Access, JobRecord, Pattern};
use linerate_model::ids::{CpuSet, NodeId};
use linerate_model::known::Known;
use linerate_model::sample::{CpuTimes, Flag};
use linerate_model::units::{BitRate, Bytes, Nanoseconds};
use serde::Serialize;

use super::super::document::{HostLine, Latency};
use super::Measured;
use super::place::queue_of;
use crate::measure::repeat::Repeats;
use crate::measure::require::Judged;

/// Steal above this share of the CPU time is a flag.
const STEAL_SHARE: f64 = 0.02;

/// What `linerate measure block DEVICE --format json` prints: the trial, its cost, its ceiling and its limit. With
/// `--until-ci`, the trial nearest to the median.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct BlockDocument<'a> {
    schema: &'static str,
    device: DeviceFacts<'a>,
    access: Access,
    pattern: Pattern,
    block_bytes: Bytes,
    /// Operations in flight of each job.
    depth: u32,
    /// Whether completions were polled for (IORING_SETUP_IOPOLL).
    polled: bool,
    /// The seed of the random offsets.
    seed: u64,
    /// The part of the device that was used.
    area: UsedArea,
    /// The planned duration.
    seconds: f64,
    /// Whether Ctrl-C or SIGTERM ended the measurement early.
    interrupted: bool,
    pub(super) total: Total,
    repeats: Option<&'a Repeats>,
    /// The requirements of `--require`, and whether they hold.
    pub(super) requirements: Vec<Judged>,
    /// From the submission of an operation to the return of its completion.
    latency_ns: Latency,
    pub(super) cpu: Cpu,
    jobs: Vec<Job>,
    /// Operations by hardware queue, from the CPUs that submitted them; null if a queue is not known.
    pub(super) queues: Option<Vec<Queue>>,
    /// The interrupts of the device's PCI function that came during the trial; empty for a device without one.
    pub(super) interrupts: Vec<Interrupt>,
    pub(super) in_flight: InFlight,
    pub(super) ceiling: Ceiling,
    pub(super) limit: Named,
    /// Short trials at twice the depth; null if none were made.
    depth_probe: Option<&'a DepthProbe>,
    over_time: OverTime,
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub(super) flags: Vec<Flag>,
    host: HostLine<'a>,
}

/// The device.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct DeviceFacts<'a> {
    path: String,
    /// The kernel's name.
    name: &'a str,
    /// The disk of a partition; the same name for a disk. What follows is the disk's.
    disk: &'a str,
    size_bytes: Bytes,
    logical_block_bytes: Bytes,
    transport: Option<&'a str>,
    numa_node: Option<NodeId>,
    scheduler: Option<&'a str>,
    hardware_queues: Option<u32>,
    nr_requests: Option<u32>,
    rq_affinity: Option<u32>,
    nomerges: Option<u32>,
    rotational: Option<bool>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct UsedArea {
    start_bytes: Bytes,
    length_bytes: Bytes,
}

/// The result.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Total {
    operations: u64,
    /// Null if no operation completed.
    pub(super) ops_per_s: Option<f64>,
    pub(super) rate_bit_per_s: Option<f64>,
    bytes: u64,
    /// From the common start to the end.
    pub(super) elapsed_s: f64,
}

/// CPU time.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Cpu {
    /// User time of the job threads.
    user_s: f64,
    /// System time of the job threads.
    system_s: f64,
    /// How long the job threads were ready to run and had no CPU; null if the kernel does not report it.
    waited_s: Option<f64>,
    /// All CPUs of the host, other programs included; null if /proc/stat could not be read.
    host: Option<HostCpu>,
    /// CPU seconds per million operations; null if no operation completed.
    pub(super) s_per_million_ops: Option<PerMillion>,
}

/// All CPUs together.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[expect(clippy::struct_field_names, reason = "the unit in every key")]
struct HostCpu {
    user_s: f64,
    system_s: f64,
    irq_s: f64,
    softirq_s: f64,
    steal_s: f64,
    idle_s: f64,
}

/// CPU seconds per million operations, by kind.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct PerMillion {
    /// Of the job threads.
    pub(super) user: f64,
    /// Of the job threads.
    pub(super) system: f64,
    /// System time of all other threads: kernel threads of the device, and other programs. Null if unknown.
    pub(super) other_system: Option<f64>,
    /// Of all CPUs. Null if unknown.
    pub(super) irq: Option<f64>,
    /// Of all CPUs. Null if unknown.
    pub(super) softirq: Option<f64>,
}

/// One job.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Job {
    /// The CPUs that its thread was pinned to; empty: none.
    #[cfg_attr(test, schemars(with = "String"))]
    cpus: CpuSet,
    /// The node of its buffers.
    buffer_node: Option<NodeId>,
    operations: u64,
    user_s: f64,
    system_s: f64,
    /// System calls that submitted operations and waited for completions.
    system_calls: u64,
    /// Operations by the CPU that submitted them.
    by_cpu: BTreeMap<u32, u64>,
}

/// One hardware queue.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Queue {
    /// Its number in `/sys/block/DISK/mq`.
    pub(super) index: u32,
    #[cfg_attr(test, schemars(with = "String"))]
    cpus: CpuSet,
    pub(super) operations: u64,
    pub(super) share: f64,
}

/// One interrupt.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Interrupt {
    pub(super) irq: u32,
    /// The driver's name of it.
    pub(super) name: String,
    /// Its effective affinity.
    #[cfg_attr(test, schemars(with = "String"))]
    cpus: CpuSet,
    /// How often, on each CPU.
    pub(super) counts: BTreeMap<u32, u64>,
}

/// Where the operations in flight were.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct InFlight {
    /// Depth times jobs.
    pub(super) jobs: u64,
    /// The mean of `/sys/block/DISK/inflight`: requests that the driver had. Null if not known.
    pub(super) driver: Option<f64>,
    /// `nr_requests` times the hardware queues that were used. Null if not known.
    pub(super) tags: Option<u64>,
    /// Requests that the device completed, for whichever program: a large operation may be several. Null if not known.
    device_operations: Option<u64>,
    /// The mean time of such a request (diskstats; resolution 1 ms in sum). Null if not known.
    device_latency_ns: Option<f64>,
}

/// The bound of the rate.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Ceiling {
    pub(super) bit_per_s: Option<BitRate>,
    /// The share of it that was reached.
    pub(super) share: Option<f64>,
    pub(super) reason: String,
}

/// Operations over time.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct OverTime {
    at_s: Vec<f64>,
    ops_per_s: Vec<f64>,
}

#[expect(clippy::cast_precision_loss, reason = "a relative error of 2^-53")]
pub(super) fn real(value: u64) -> f64 {
    value as f64
}

/// The document of a measurement.
pub(super) fn document<'a>(measured: &'a Measured<'_>) -> BlockDocument<'a> {
    let (spec, sample) = (measured.spec, &measured.trial.sample);
    let ops_per_s = sample.ops_per_s();
    let bit_per_operation = real(spec.block.as_u64()) * 8.0;
    let rate = ops_per_s.map(|ops| ops * bit_per_operation);
    let queues = queues(measured);
    let ceiling = ceiling(measured, rate);
    let tags = tags(measured, queues.as_deref());
    let limit = limit(measured, tags, ceiling.share);
    let operations = sample.operations();
    BlockDocument {
        schema: "linerate.block/1",
        device: device(measured),
        access: spec.access,
        pattern: spec.pattern,
        block_bytes: spec.block,
        depth: spec.depth,
        polled: spec.polled,
        seed: spec.seed,
        area: UsedArea {
            start_bytes: spec.area.start,
            length_bytes: spec.area.length,
        },
        seconds: spec.duration_ns.as_secs_f64(),
        interrupted: measured.interrupted,
        total: Total {
            operations,
            ops_per_s,
            rate_bit_per_s: rate,
            bytes: operations.saturating_mul(spec.block.as_u64()),
            elapsed_s: sample.elapsed_ns.as_secs_f64(),
        },
        repeats: measured.repeats.as_ref(),
        requirements: Vec::new(),
        latency_ns: Latency::of(&sample.latency()),
        cpu: cpu(measured),
        jobs: sample.jobs.iter().map(job).collect(),
        queues,
        interrupts: interrupts(measured),
        in_flight: in_flight(measured, tags),
        flags: flags(measured, ceiling.share),
        ceiling,
        limit,
        depth_probe: measured.probe.as_ref(),
        over_time: over_time(&sample.readings),
        host: HostLine::from(measured.host),
    }
}

fn device<'a>(measured: &'a Measured<'_>) -> DeviceFacts<'a> {
    let (device, facts) = (measured.device, measured.facts);
    let number = |pick: fn(&linerate_model::host::BlockDevice) -> &Known<u32>| {
        facts.and_then(|facts| pick(facts).get())
    };
    DeviceFacts {
        path: device.path.display().to_string(),
        name: &device.name,
        disk: &device.disk,
        size_bytes: device.size,
        logical_block_bytes: device.logical_block,
        transport: facts.and_then(|facts| facts.transport.value().map(String::as_str)),
        numa_node: facts.and_then(|facts| facts.numa_node.get()),
        scheduler: facts.and_then(|facts| facts.scheduler.value().map(String::as_str)),
        hardware_queues: number(|facts| &facts.hardware_queues),
        nr_requests: number(|facts| &facts.nr_requests),
        rq_affinity: number(|facts| &facts.rq_affinity),
        nomerges: number(|facts| &facts.nomerges),
        rotational: facts.and_then(|facts| facts.rotational.get()),
    }
}

fn job(job: &JobRecord) -> Job {
    Job {
        cpus: job.cpus.clone(),
        buffer_node: job.buffer_node.get(),
        operations: job.operations,
        user_s: job.user_ns.as_secs_f64(),
        system_s: job.system_ns.as_secs_f64(),
        system_calls: job.system_calls,
        by_cpu: job
            .by_cpu
            .iter()
            .map(|(cpu, count)| (cpu.0, *count))
            .collect(),
    }
}

fn queues(measured: &Measured<'_>) -> Option<Vec<Queue>> {
    let cpus = measured.facts?.queue_cpus.value()?;
    let mut counts = vec![0u64; cpus.len()];
    let jobs = measured.trial.sample.jobs.iter();
    for (cpu, count) in jobs.flat_map(|job| &job.by_cpu) {
        let queue = queue_of(*cpu, cpus, measured.spec.polled)?;
        *counts.get_mut(queue)? += count;
    }
    let all = real(counts.iter().sum()).max(1.0);
    let numbered = (0..).zip(cpus).zip(counts);
    Some(
        numbered
            .map(|((index, cpus), operations)| Queue {
                index,
                cpus: cpus.clone(),
                operations,
                share: real(operations) / all,
            })
            .collect(),
    )
}

/// The tags of the hardware queues that were used.
fn tags(measured: &Measured<'_>, queues: Option<&[Queue]>) -> Option<u64> {
    let each = u64::from(measured.facts?.nr_requests.get()?);
    let used = queues?.iter().filter(|queue| queue.operations > 0).count() as u64;
    (used > 0).then(|| each.saturating_mul(used))
}

fn in_flight(measured: &Measured<'_>, tags: Option<u64>) -> InFlight {
    let observed = &measured.trial.observed;
    let device = observed.device.get();
    InFlight {
        jobs: measured.spec.in_flight(),
        driver: observed.issued.get(),
        tags,
        device_operations: device.map(|device| device.operations),
        device_latency_ns: device
            .filter(|device| device.operations > 0)
            .map(|device| real(device.request_ms) * 1e6 / real(device.operations)),
    }
}

fn interrupts(measured: &Measured<'_>) -> Vec<Interrupt> {
    let fired = measured.trial.observed.interrupts.iter();
    fired
        .map(|one| Interrupt {
            irq: one.irq,
            name: one.name.clone(),
            cpus: one.cpus.clone(),
            counts: one
                .counts
                .iter()
                .map(|(cpu, count)| (cpu.0, *count))
                .collect(),
        })
        .collect()
}

fn summed(cpus: &[CpuTimes], pick: fn(&CpuTimes) -> Nanoseconds) -> f64 {
    cpus.iter().map(|cpu| pick(cpu).as_secs_f64()).sum()
}

fn cpu(measured: &Measured<'_>) -> Cpu {
    let sample = &measured.trial.sample;
    let sum = |pick: fn(&JobRecord) -> Nanoseconds| -> f64 {
        sample.jobs.iter().map(|job| pick(job).as_secs_f64()).sum()
    };
    let (user_s, system_s) = (sum(|job| job.user_ns), sum(|job| job.system_ns));
    let waited: Option<Vec<Nanoseconds>> = sample.jobs.iter().map(|job| job.waited_ns).collect();
    let host = measured.trial.observed.cpus.value().map(|cpus| HostCpu {
        user_s: summed(cpus, |cpu| cpu.user_ns),
        system_s: summed(cpus, |cpu| cpu.system_ns),
        irq_s: summed(cpus, |cpu| cpu.irq_ns),
        softirq_s: summed(cpus, |cpu| cpu.softirq_ns),
        steal_s: summed(cpus, |cpu| cpu.steal_ns),
        idle_s: summed(cpus, |cpu| cpu.idle_ns),
    });
    let operations = sample.operations();
    let each = |seconds: f64| seconds * 1e6 / real(operations);
    let per_million = (operations > 0).then(|| PerMillion {
        user: each(user_s),
        system: each(system_s),
        other_system: host
            .as_ref()
            .map(|host| each((host.system_s - system_s).max(0.0))),
        irq: host.as_ref().map(|host| each(host.irq_s)),
        softirq: host.as_ref().map(|host| each(host.softirq_s)),
    });
    Cpu {
        user_s,
        system_s,
        waited_s: waited.map(|all| all.iter().map(|time| time.as_secs_f64()).sum()),
        host,
        s_per_million_ops: per_million,
    }
}

fn ceiling(measured: &Measured<'_>, rate: Option<f64>) -> Ceiling {
    match &measured.trial.observed.pcie {
        Known::Value(pcie) => Ceiling {
            bit_per_s: Some(*pcie),
            share: rate.map(|rate| rate / pcie.as_f64().max(1.0)),
            reason: "the narrowest PCIe link between the device and the root".to_owned(),
        },
        Known::Unknown(gap) => Ceiling {
            bit_per_s: None,
            share: None,
            reason: format!("no bound is known: {gap}"),
        },
    }
}

fn flags(measured: &Measured<'_>, share: Option<f64>) -> Vec<Flag> {
    let mut flags = Vec::new();
    if let Some(cpus) = measured.trial.observed.cpus.value() {
        let all = |cpu: &CpuTimes| {
            let idle = cpu.idle_ns.as_secs_f64() + cpu.steal_ns.as_secs_f64();
            busy(cpu) + idle
        };
        let steal = summed(cpus, |cpu| cpu.steal_ns);
        let whole: f64 = cpus.iter().map(all).sum();
        if steal > STEAL_SHARE * whole {
            flags.push(Flag::Steal);
        }
    }
    if share.is_some_and(|share| share > linerate_model::threshold::CEILING_WRONG_SHARE.as_f64()) {
        flags.push(Flag::CeilingWrong);
    }
    if measured.trial.sample.cut_short {
        flags.push(Flag::CutShort);
    }
    flags
}

fn busy(cpu: &CpuTimes) -> f64 {
    [cpu.user_ns, cpu.system_ns, cpu.irq_ns, cpu.softirq_ns]
        .iter()
        .map(|time| time.as_secs_f64())
        .sum()
}

fn limit(measured: &Measured<'_>, tags: Option<u64>, pcie: Option<f64>) -> Named {
    let (spec, sample) = (measured.spec, &measured.trial.sample);
    let observed = &measured.trial.observed;
    let cpus = observed.cpus.value().map(Vec::as_slice).unwrap_or_default();
    let whole = |cpu: &CpuTimes| busy(cpu) + cpu.idle_ns.as_secs_f64() + cpu.steal_ns.as_secs_f64();
    let of_interrupts = |cpu: &CpuTimes| {
        let time = cpu.irq_ns.as_secs_f64() + cpu.softirq_ns.as_secs_f64();
        (cpu.cpu, time / whole(cpu).max(f64::MIN_POSITIVE))
    };
    let all: f64 = cpus.iter().map(whole).sum();
    let shares = sample.cpu_shares();
    let operations = sample.jobs.iter().map(|job| job.operations);
    Facts {
        jobs: shares.into_iter().zip(operations).collect(),
        interrupted: (cpus.iter().map(of_interrupts))
            .max_by(|one, other| one.1.total_cmp(&other.1)),
        machine: (all > 0.0).then(|| cpus.iter().map(busy).sum::<f64>() / all),
        in_flight: real(spec.in_flight()),
        issued: observed.issued.get(),
        tags,
        scheduler: measured
            .facts
            .and_then(|facts| facts.scheduler.value().map(String::as_str)),
        pcie,
        probe: measured.probe.as_ref(),
    }
    .named()
}

/// The rate between successive readings.
fn over_time(readings: &[(Nanoseconds, u64)]) -> OverTime {
    let mut before = (0.0, 0);
    let (mut at_s, mut ops_per_s) = (Vec::new(), Vec::new());
    for (at, operations) in readings {
        let (now, grown) = (at.as_secs_f64(), operations.saturating_sub(before.1));
        let time = now - before.0;
        if time > 0.0 {
            at_s.push(now);
            ops_per_s.push(real(grown) / time);
        }
        before = (now, *operations);
    }
    OverTime { at_s, ops_per_s }
}
