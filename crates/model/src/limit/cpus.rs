//! Limits by CPUs: threads that were always running or runnable.
//!
//! Each thread has its own record of time on a CPU and time spent waiting for one. If the kernel does not record the
//! waiting time, the CPUs' own times are used instead.

use super::{LimitKind, Named, Trial};
use crate::analysis::OneWay;
use crate::analysis::figures::{self, Figures, Turns};
use crate::finding::Evidence;
use crate::ids::CpuId;
use crate::plan::End;
use crate::sample::{FlowRecord, Role, SideSample};
use crate::units::{Ratio, real};
use crate::{rules, threshold};

/// Threads of both ends on one CPU, which they fill.
pub(super) fn by_shared_cpu(trial: &Trial<'_>) -> Option<Named> {
    let cpu = rules::shared_cpu(trial.sample).ok()??;
    let busy = figures::cpu_busy(&trial.sample.local, cpu)?;
    // Other processes may also fill the CPU: then all wait for it, but not because the ends share it.
    let own = own_share(trial);
    let filled = own.is_none_or(|own| own >= threshold::SHARED_CPU_SHARE);
    (busy >= threshold::CPU_SHARE && filled).then(|| {
        let mut evidence = vec![
            Evidence::new("CPU of all threads of both ends", cpu, "the trial"),
            Evidence::new(format!("busy share of CPU {cpu}"), busy, "/proc/stat"),
        ];
        evidence.extend(own.map(|own| {
            let what = "share taken by both ends' threads";
            Evidence::new(what, own, "getrusage(RUSAGE_THREAD)")
        }));
        Named {
            what: LimitKind::SharedCpu,
            rule: Some(("endpoints-share-cpu", End::Local)),
            evidence,
            threshold: format!(
                "at least {} of the CPU's time, {} by the threads themselves",
                threshold::CPU_SHARE,
                threshold::SHARED_CPU_SHARE
            ),
        }
    })
}

/// The CPU time of the data threads of both ends, in CPUs.
fn own_share(trial: &Trial<'_>) -> Option<Ratio> {
    let side = |side: &SideSample| {
        let all = side.cpu.threads_user_ns.as_secs_f64() + side.cpu.threads_system_ns.as_secs_f64();
        // The kernel's polling threads run on other CPUs.
        let pollers: f64 = (side.threads.iter())
            .filter(|thread| thread.polls_for.is_some())
            .map(|thread| thread.user_ns.as_secs_f64() + thread.system_ns.as_secs_f64())
            .sum();
        let own = all - pollers;
        let elapsed = side.elapsed_ns.as_secs_f64();
        (elapsed > 0.0).then(|| own / elapsed)
    };
    Some(Ratio::new(
        side(&trial.sample.local)? + side(&trial.sample.remote)?,
    ))
}

/// Threads that lacked CPU time by their own record.
pub(super) fn by_threads(trial: &Trial<'_>, way: &OneWay<'_>, figures: &Figures) -> Option<Named> {
    let (sender, receiver) = (figures.sender, figures.receiver);
    let what = match (sender.used_up(), receiver.used_up()) {
        (false, false) => return None,
        _ if crowded_out(trial, way, figures) => LimitKind::Machine,
        // If both are saturated, a sender that waits for the window actually has time left.
        (true, true) if over(figures.rwnd_limited) || wants_more(receiver, sender) => {
            LimitKind::ReceiverCpu
        }
        // A sender held back by the window has time left, however high its cost per byte.
        (true, false) if over(figures.rwnd_limited) => return None,
        // Both waited for CPUs that other processes use: it is not known which of them the flow waited for.
        (true, true) if figures.sender.waited >= Some(threshold::WAITED_SHARE) => return None,
        (true, _) => LimitKind::SenderCpu,
        (false, true) => LimitKind::ReceiverCpu,
    };
    let mut evidence: Vec<Evidence> = match what {
        LimitKind::SenderCpu => work_of(way.sender, Role::Sender, sender)
            .into_iter()
            .collect(),
        LimitKind::ReceiverCpu => {
            let work = work_of(way.receiver, Role::Receiver, receiver);
            work.into_iter().collect()
        }
        _ => machine_evidence(way.sender).into_iter().collect(),
    };
    evidence.extend(figures.evidence());
    Some(Named {
        what,
        rule: None,
        evidence,
        threshold: format!(
            "a thread running or runnable for at least {} of the time, or runnable for at least \
             {} and longer than in any other wait",
            threshold::CPU_SHARE,
            threshold::WAITED_SHARE
        ),
    })
}

fn over(share: Option<Ratio>) -> bool {
    share.is_some_and(|share| share > threshold::LIMITED_SHARE)
}

fn wants_more(one: Turns, other: Turns) -> bool {
    let wanted = |turns: Turns| turns.wanted().map_or(0.0, Ratio::as_f64);
    wanted(one) > wanted(other) + threshold::CPU_MARGIN
}

/// Whether all CPUs are busy and unpinned threads wait.
fn crowded_out(trial: &Trial<'_>, way: &OneWay<'_>, figures: &Figures) -> bool {
    let pinned = [way.sender, way.receiver]
        .into_iter()
        .any(|side| side.flows.iter().any(|flow| flow.pinned_to.is_some()));
    let full =
        figures::machine_busy(way.sender).is_some_and(|busy| busy >= threshold::MACHINE_SHARE);
    trial.sample.shared_kernel && !pinned && full && both_waited(figures)
}

/// Whether the threads of both ends waited for CPUs, one of them for long. Where only one did, it lacks the CPUs that it
/// may use (a cpuset, a CPU that another program keeps), not those of the machine.
fn both_waited(figures: &Figures) -> bool {
    let waited = [figures.sender, figures.receiver].map(|turns| turns.waited);
    let reach =
        |least: Ratio| move |share: &Option<Ratio>| share.is_none_or(|share| share >= least);
    waited.iter().all(reach(threshold::WHY_WAITED))
        && waited.iter().any(reach(threshold::WAITED_SHARE))
}

fn machine_evidence(side: &SideSample) -> Option<Evidence> {
    let busy = figures::machine_busy(side)?;
    Some(Evidence::new("busy share of all CPUs", busy, "/proc/stat"))
}

/// What kept the CPU busy: the thread's own copying, interrupts, or other processes.
fn work_of(side: &SideSample, role: Role, turns: Turns) -> Option<Evidence> {
    let mut flows = side.flows.iter().filter(|flow| flow.role == role);
    let cpu = flows.find_map(FlowRecord::cpu)?;
    let own = turns.on_cpu?.as_f64();
    let interrupts = figures::interrupts_share(side, cpu).map_or(0.0, Ratio::as_f64);
    let others = turns.waited.map_or(0.0, Ratio::as_f64);
    let thread = match role {
        Role::Sender => "sending",
        Role::Receiver => "reading",
    };
    if let Some(evidence) = throttled(side) {
        return Some(evidence);
    }
    let words = if others >= own && others >= interrupts {
        format!("other programs, while the {thread} thread waited on CPU {cpu}")
    } else if interrupts > own / 2.0 {
        format!(
            "softirq on CPU {cpu}, {} of its time",
            Ratio::new(interrupts)
        )
    } else {
        format!("the {thread} thread and its copies on CPU {cpu}")
    };
    Some(Evidence::new(
        "what used the CPU",
        words,
        "/proc/stat and the thread's own times",
    ))
}

/// A CPU quota that kept this end's program from running for a good part of the time: its threads are runnable then, as if
/// others used the CPU.
fn throttled(side: &SideSample) -> Option<Evidence> {
    let watch = side.counters.value()?;
    let group = |name: &'static str| {
        let all = watch.below("cgroup/");
        all.filter_map(move |(rest, grown, counter)| {
            let (depth, own) = rest.split_once('/')?;
            (own == name).then_some((depth, grown, counter))
        })
    };
    let (depth, stood, counter) = group("throttled_us").max_by_key(|(_, grown, _)| *grown)?;
    let share =
        Ratio::new(real(stood) / 1e6 / side.elapsed_ns.as_secs_f64().max(f64::MIN_POSITIVE));
    let of = |name: &str| watch.grown(&format!("cgroup/{depth}/{name}")).get();
    let periods = match (of("nr_throttled"), of("nr_periods")) {
        (Some(throttled), Some(periods)) => format!("{throttled} of {periods} periods"),
        _ => "periods not known".to_owned(),
    };
    (share >= threshold::THROTTLED_SHARE).then(|| {
        Evidence::new(
            "what kept the thread from a CPU",
            format!("the CPU quota of its control group, {share} of the time ({periods})"),
            counter.path.clone(),
        )
    })
}

/// CPUs that are saturated although no thread reports waiting: interrupts used them, or the kernel does not record
/// how long a thread waited.
pub(super) fn by_machine(trial: &Trial<'_>, way: &OneWay<'_>, figures: &Figures) -> Option<Named> {
    let sides = [
        (way.sender, figures.sender, LimitKind::SenderCpu),
        (way.receiver, figures.receiver, LimitKind::ReceiverCpu),
    ];
    let pinned = sides.iter().find_map(|(side, turns, what)| {
        let (cpu, busy) = figures::busiest_pinned_cpu(side)?;
        let evidence = vec![
            Evidence::new("what used the CPU", took(side, cpu, *turns), "/proc/stat"),
            Evidence::new(
                format!("busy share of CPU {cpu}, where a thread is pinned"),
                busy,
                "/proc/stat",
            ),
        ];
        (busy >= threshold::MACHINE_SHARE && lacked(side, cpu, *turns)).then_some((*what, evidence))
    });
    let whole = || {
        sides.iter().find_map(|(side, turns, what)| {
            let busy = figures::machine_busy(side)?;
            let what = if trial.sample.shared_kernel && both_waited(figures) {
                LimitKind::Machine
            } else {
                *what
            };
            let lacked = turns
                .waited
                .is_none_or(|waited| waited >= threshold::WAITED_SHARE);
            let evidence = Evidence::new("busy share of all CPUs", busy, "/proc/stat");
            (busy >= threshold::MACHINE_SHARE && lacked).then_some((what, vec![evidence]))
        })
    };
    let (what, mut evidence) = pinned.or_else(whole)?;
    evidence.extend(figures.evidence());
    Some(Named {
        what,
        rule: None,
        evidence,
        threshold: format!("at least {} busy", threshold::MACHINE_SHARE),
    })
}

/// Whether the thread could not get more of `cpu`: it fills it together with interrupts, or that is unknown.
fn lacked(side: &SideSample, cpu: CpuId, turns: Turns) -> bool {
    if turns.waited.is_none() {
        return true;
    }
    let interrupts = figures::interrupts_share(side, cpu).map_or(0.0, Ratio::as_f64);
    let wanted = turns.wanted().map_or(0.0, Ratio::as_f64);
    // Without exact accounting a softirq in a thread's context counts for both.
    interrupts > 0.5 && wanted + interrupts >= threshold::CPU_SHARE.as_f64()
}

fn took(side: &SideSample, cpu: CpuId, turns: Turns) -> String {
    let interrupts = figures::interrupts_share(side, cpu).unwrap_or(Ratio::new(0.0));
    let own = turns.on_cpu.unwrap_or(Ratio::new(0.0));
    format!("the thread {own}, softirq and interrupts {interrupts} of CPU {cpu}")
}
