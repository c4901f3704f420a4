//! Limits by CPUs: threads that ran, or wanted to, all the time.
//!
//! A thread says by itself what it lacked: the time on a CPU and the time it waited for one. Where the
//! kernel does not keep the latter, the CPUs' own times stand in for it.

use super::{LimitKind, Named, Trial};
use crate::analysis::Way;
use crate::analysis::figures::{self, Figures, Turns};
use crate::finding::Evidence;
use crate::ids::CpuId;
use crate::plan::End;
use crate::rules;
use crate::sample::{FlowRecord, Role, SideSample};
use crate::threshold;
use crate::units::Ratio;

/// Both ends' threads on one CPU, which they fill.
pub(super) fn by_shared_cpu(trial: &Trial<'_>) -> Option<Named> {
    let cpu = rules::shared_cpu(trial.sample).ok()??;
    let busy = figures::cpu_busy(&trial.sample.local, cpu)?;
    // Others may fill the CPU too: then it is what all wait for, but not because the ends share it.
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

/// What the data threads of both ends took together, in CPUs.
fn own_share(trial: &Trial<'_>) -> Option<Ratio> {
    let side = |side: &SideSample| {
        let all = side.cpu.threads_user_ns.as_secs_f64() + side.cpu.threads_system_ns.as_secs_f64();
        // The kernel's polling threads are on CPUs of their own.
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

/// Threads that lacked a CPU by their own account.
pub(super) fn by_threads(trial: &Trial<'_>, way: &Way<'_>, figures: &Figures) -> Option<Named> {
    let (sender, receiver) = (figures.sender, figures.receiver);
    let what = match (sender.used_up(), receiver.used_up()) {
        (false, false) => return None,
        _ if crowded_out(trial, way, figures) => LimitKind::Machine,
        // Where both are used up, a sender that waits for the window has time left in truth.
        (true, true) if over(figures.rwnd_limited) || wants_more(receiver, sender) => {
            LimitKind::ReceiverCpu
        }
        // A window that holds it back leaves the sender time in truth, however much each byte costs.
        (true, false) if over(figures.rwnd_limited) => return None,
        // Both had to wait for CPUs that others use: which of them the flow waited for is not said.
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

/// Whether all CPUs are full and threads that may run on any of them wait.
fn crowded_out(trial: &Trial<'_>, way: &Way<'_>, figures: &Figures) -> bool {
    let pinned = [way.sender, way.receiver]
        .into_iter()
        .any(|side| side.flows.iter().any(|flow| flow.pinned_to.is_some()));
    let waited = |turns: Turns| {
        turns
            .waited
            .is_some_and(|share| share >= threshold::WAITED_SHARE)
    };
    let full =
        figures::machine_busy(way.sender).is_some_and(|busy| busy >= threshold::MACHINE_SHARE);
    trial.sample.shared_kernel
        && !pinned
        && full
        && (waited(figures.sender) || waited(figures.receiver))
}

fn machine_evidence(side: &SideSample) -> Option<Evidence> {
    let busy = figures::machine_busy(side)?;
    Some(Evidence::new("busy share of all CPUs", busy, "/proc/stat"))
}

/// What kept the CPU busy: the thread's own copying, interrupts, or other programs.
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

/// CPUs that are full although no thread says that it lacked one: interrupts took them, or the kernel does
/// not say how long a thread waited.
pub(super) fn by_machine(trial: &Trial<'_>, way: &Way<'_>, figures: &Figures) -> Option<Named> {
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
            let what = if trial.sample.shared_kernel {
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

/// Whether the thread had no more to get of `cpu`: with interrupts it fills it, or nobody knows.
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
