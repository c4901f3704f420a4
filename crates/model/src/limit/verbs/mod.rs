//! Limits of RDMA verbs. There is no TCP_INFO here: what a queue pair waited for is derived from the hardware
//! counters of both ports, from the share of empty polls, and from the latency of a single message.

mod pairs;

use self::pairs::{GrownCounter, Pairs, moved};
use super::{Limit, LimitKind, Named, Trial, by_ceiling, cpus};
use crate::analysis::OneWay;
use crate::analysis::figures::{self, Figures, Turns};
use crate::ceiling::Bound;
use crate::finding::Evidence;
use crate::plan::End;
use crate::rules::rdma_counters::{CONGESTION, LOSS, RECEIVER};
use crate::sample::{Role, SideSample};
use crate::threshold;
use crate::units::{Ratio, real};
use crate::workload::Service;

/// The limit of a trial over verbs, if there is evidence for one.
pub(super) fn name(trial: &Trial<'_>, ways: &[OneWay<'_>]) -> Option<Limit> {
    let directions: Vec<Direction<'_>> = ways.iter().map(|way| Direction::of(trial, way)).collect();
    // Datagram loss shows where the limit is, with more certainty than closeness to a ceiling.
    let lost = directions.iter().find_map(Direction::by_lost_datagrams);
    let lost = lost.map(|named| trial.limit(named));
    lost.or_else(|| by_ceiling(trial)).or_else(|| {
        let named = directions.iter().find_map(Direction::by_figures)?;
        Some(trial.limit(named))
    })
}

/// Every known metric of one direction.
pub(super) fn evidence(trial: &Trial<'_>, way: &OneWay<'_>) -> Vec<Evidence> {
    Direction::of(trial, way).evidence()
}

/// One direction of the trial.
struct Direction<'a> {
    trial: &'a Trial<'a>,
    way: &'a OneWay<'a>,
    figures: Figures,
    sender: Pairs,
    receiver: Pairs,
}

impl<'a> Direction<'a> {
    fn of(trial: &'a Trial<'a>, way: &'a OneWay<'a>) -> Self {
        let spec = &trial.sample.spec;
        Self {
            trial,
            way,
            figures: Figures::of(way, spec),
            sender: Pairs::of(way.sender, Role::Sender, spec),
            receiver: Pairs::of(way.receiver, Role::Receiver, spec),
        }
    }

    fn evidence(&self) -> Vec<Evidence> {
        let mut all = self.figures.evidence();
        all.extend(self.sender.evidence("posting"));
        all.extend(self.receiver.evidence("receiving"));
        all.extend(self.counters().into_iter().map(|one| one.evidence));
        all.extend(self.uncounted());
        all
    }

    fn named(
        &self,
        what: LimitKind,
        rule: Option<(&'static str, End)>,
        first: Vec<Evidence>,
        threshold: String,
    ) -> Named {
        let mut evidence = first;
        for one in self.evidence() {
            if !evidence.contains(&one) {
                evidence.push(one);
            }
        }
        Named {
            what,
            rule,
            evidence,
            threshold,
        }
    }

    /// What the queue pairs waited for; CPUs are checked after the ports' retransmissions, since retransmitting needs
    /// CPU time too.
    fn by_figures(&self) -> Option<Named> {
        self.by_receiver_not_ready()
            .or_else(|| self.by_retransmits())
            .or_else(|| self.by_cpus())
            .or_else(|| self.by_interrupts())
            .or_else(|| self.by_polling())
            .or_else(|| self.by_depth())
            .or_else(|| self.by_dry_queue_pairs())
            .or_else(|| self.by_congestion())
    }

    /// The counters of both ports for retransmissions, congestion and drops that increased.
    fn counters(&self) -> Vec<GrownCounter> {
        let names: Vec<&str> = [&LOSS[..], &RECEIVER, &CONGESTION].concat();
        self.moved(&names)
    }

    fn moved(&self, names: &[&str]) -> Vec<GrownCounter> {
        let mut all = moved(self.way.from, self.way.sender, names);
        let there = moved(self.way.from.other(), self.way.receiver, names);
        all.extend(
            there
                .into_iter()
                // Both ends may be one port.
                .filter(|one| {
                    !(self.trial.sample.shared_kernel && all.iter().any(|own| own.key == one.key))
                })
                .collect::<Vec<_>>(),
        );
        all
    }

    /// Why the retransmissions are not known.
    fn uncounted(&self) -> Option<Evidence> {
        let ends = [
            (self.way.from, self.way.sender),
            (self.way.from.other(), self.way.receiver),
        ];
        let blind = ends.into_iter().find_map(|(end, side)| {
            let gap = pairs::blind(side)?;
            Some((end, gap))
        });
        let what = "retransmitted or rejected";
        match blind {
            Some((end, gap)) => {
                let words = format!("unknown for the {end} end: {}", gap.reason);
                Some(Evidence::new(what, words, gap.path))
            }
            None if self.counters().is_empty() => {
                let words = "no counter of either port moved";
                Some(Evidence::new(what, words, "hw_counters of both ports"))
            }
            None => None,
        }
    }

    /// The largest of `counters` as a share of the packets.
    fn share(&self, counters: &[GrownCounter]) -> Option<Ratio> {
        let most = counters.iter().map(|one| one.by).max()?;
        let packets = self.packets();
        (packets > 0).then(|| Ratio::new(real(most) / real(packets)))
    }

    /// A lower bound of the number of payload packets.
    fn packets(&self) -> u64 {
        let size = self.sender.message.max(1);
        let of_each = (self.sender.mtu).map_or(1, |mtu| size.div_ceil(mtu.max(256).into()));
        self.sender.messages.saturating_mul(of_each)
    }

    fn over(&self, names: &[&str]) -> Option<(Ratio, Vec<Evidence>)> {
        let counters = self.moved(names);
        let share = self.share(&counters)?;
        let evidence = counters.into_iter().map(|one| one.evidence).collect();
        (share > threshold::LOSS_SHARE).then_some((share, evidence))
    }

    /// Messages that arrived before the receiver had posted a receive (RNR).
    fn by_receiver_not_ready(&self) -> Option<Named> {
        let (_, evidence) = self.over(&RECEIVER)?;
        let (what, words) = if self.receiver_lacks_cpu() {
            (LimitKind::ReceiverCpu, "; its thread was CPU-bound")
        } else {
            (LimitKind::ReceiverProgram, "")
        };
        let words = format!(
            "more than {} of the packets found no posted receive (RNR){words}",
            threshold::LOSS_SHARE
        );
        let rule = Some(("rdma-retransmit", self.way.from.other()));
        Some(self.named(what, rule, evidence, words))
    }

    fn receiver_lacks_cpu(&self) -> bool {
        self.figures.receiver.used_up()
            || never_waits(self.way.receiver, self.figures.receiver, &self.receiver)
    }

    fn by_retransmits(&self) -> Option<Named> {
        let (_, evidence) = self.over(&LOSS)?;
        let words = format!(
            "more than {} of the packets lost, or out of order",
            threshold::LOSS_SHARE
        );
        let rule = Some(("rdma-retransmit", self.way.from));
        Some(self.named(LimitKind::Loss, rule, evidence, words))
    }

    fn by_lost_datagrams(&self) -> Option<Named> {
        let verbs = self.trial.sample.spec.verbs.as_ref()?;
        if verbs.service != Service::Ud || self.way.one_sided {
            return None;
        }
        let (sent, came) = (self.sender.messages, self.receiver.messages);
        let lost = sent.saturating_sub(came);
        let share = Ratio::new(real(lost) / real(sent.max(1)));
        if share <= threshold::LOSS_SHARE {
            return None;
        }
        let mut evidence = vec![Evidence::new(
            "share of the datagrams lost",
            format!("{share}, {lost} of {sent}"),
            "completions of both ends",
        )];
        let not_taken = self.moved(&RECEIVER);
        let explained = not_taken.iter().map(|one| one.by).max().unwrap_or(0);
        let by_receiver = real(explained) >= threshold::EXPLAINED_SHARE.as_f64() * real(lost);
        evidence.extend(not_taken.into_iter().map(|one| one.evidence));
        let what = if self.receiver_lacks_cpu() {
            LimitKind::ReceiverCpu
        } else if by_receiver {
            LimitKind::ReceiverProgram
        } else {
            LimitKind::Loss
        };
        let words = format!("more than {} of the datagrams lost", threshold::LOSS_SHARE);
        Some(self.named(what, None, evidence, words))
    }

    /// Threads that lacked CPU time by their own record, as for sockets.
    fn by_cpus(&self) -> Option<Named> {
        let (trial, figures) = (self.trial, &self.figures);
        // The passive end of one-sided verbs has an idle thread: it does not compete for a CPU.
        let shared = || {
            (!self.way.one_sided)
                .then(|| cpus::by_shared_cpu(trial))
                .flatten()
        };
        // A CPU busy with polling is not saturated: only threads that wait for it show that.
        let told = |turns: Turns| !turns.spins || turns.waited.is_some();
        let machine = || {
            (told(figures.sender) && told(figures.receiver))
                .then(|| cpus::by_machine(trial, self.way, figures))
                .flatten()
        };
        let mut named = shared()
            .or_else(|| cpus::by_threads(trial, self.way, figures))
            .or_else(machine)?;
        named.evidence.extend(self.sender.evidence("posting"));
        Some(named)
    }

    /// A CPU filled by softirqs: a software device runs there, independent of our threads' CPUs.
    fn by_interrupts(&self) -> Option<Named> {
        let sides = [
            (self.way.receiver, LimitKind::ReceiverCpu),
            (self.way.sender, LimitKind::SenderCpu),
        ];
        let full = sides.into_iter().find_map(|(side, what)| {
            let machine = side.cpu.machine.value()?;
            let shares = machine
                .iter()
                .filter_map(|cpu| Some((cpu.cpu, figures::interrupts_share(side, cpu.cpu)?)));
            let (cpu, share) =
                shares.max_by(|one, other| one.1.as_f64().total_cmp(&other.1.as_f64()))?;
            (share >= threshold::CPU_SHARE).then_some((what, cpu, share))
        });
        let (what, cpu, share) = full?;
        let what = if self.trial.sample.shared_kernel {
            LimitKind::SharedCpu
        } else {
            what
        };
        let evidence = vec![Evidence::new(
            format!("share of CPU {cpu} in interrupts"),
            share,
            "/proc/stat",
        )];
        let words = format!(
            "at least {} of a CPU's time in interrupts",
            threshold::CPU_SHARE
        );
        Some(self.named(what, None, evidence, words))
    }

    /// Threads that poll with hardly any empty polls: their work takes all of their time.
    fn by_polling(&self) -> Option<Named> {
        let sender = never_waits(self.way.sender, self.figures.sender, &self.sender);
        let receiver = !self.way.one_sided
            && never_waits(self.way.receiver, self.figures.receiver, &self.receiver);
        let what = match (sender, receiver) {
            (true, _) => LimitKind::SenderCpu,
            (false, true) => LimitKind::ReceiverCpu,
            (false, false) => return None,
        };
        let words = format!(
            "a polling thread in the kernel for at least {} of the time, or on a CPU for as long \
             with empty polls for at most {} of it (at {} each)",
            threshold::CPU_SHARE,
            threshold::POLLED_SHARE,
            threshold::POLL_MOST
        );
        Some(self.named(what, None, Vec::new(), words))
    }

    /// The maximum in flight on the queue pairs, divided by the latency of a message.
    fn by_depth(&self) -> Option<Named> {
        if crate::analysis::ways(self.trial.sample).len() > 1 {
            return None;
        }
        let mut bounds = self.trial.ceilings.iter();
        let bound = bounds.find(|ceiling| ceiling.bound == Bound::WindowRtt)?;
        let share = bound.share(self.trial.rate)?;
        let within = share >= threshold::DEPTH_SHARE && share <= threshold::CEILING_WRONG_SHARE;
        within.then(|| {
            let value = format!("{} is {share} of {}", self.trial.rate, bound.bit_per_s);
            let mut evidence = vec![Evidence::new(
                "share of the rate of full queue pairs",
                value,
                bound.reason.clone(),
            )];
            evidence.extend(bound.evidence.iter().cloned());
            let words = format!(
                "at least {} of depth x size over the time of one message alone",
                threshold::DEPTH_SHARE
            );
            self.named(LimitKind::WindowRtt, None, evidence, words)
        })
    }

    /// Queue pairs that had nothing in flight when their thread came back.
    fn by_dry_queue_pairs(&self) -> Option<Named> {
        let dry = self.sender.ran_dry?;
        if self.sender.depth < 2 {
            return None;
        }
        // A queue pair that runs dry each time completes its depth between two polls.
        let moved = dry.saturating_mul(self.sender.depth.into());
        let share = real(moved) / real(self.sender.messages.max(1));
        (share >= threshold::DRY_SHARE.as_f64()).then(|| {
            let words = format!(
                "queue pairs were empty before at least {} of the messages",
                threshold::DRY_SHARE
            );
            self.named(LimitKind::SenderProgram, None, Vec::new(), words)
        })
    }

    /// Congestion notifications (CNPs), each of which slows a queue pair down.
    fn by_congestion(&self) -> Option<Named> {
        let (_, evidence) = self.over(&CONGESTION)?;
        let words = format!(
            "congestion notifications (CNP) for more than {} of the packets, and no other \
             resource exhausted",
            threshold::LOSS_SHARE
        );
        Some(self.named(LimitKind::CongestionControl, None, evidence, words))
    }
}

/// Whether a polling thread always had work. Polling needs no system call, so a thread in the kernel is working; and
/// a poll takes a bounded time, which bounds what it can have waited.
fn never_waits(side: &SideSample, turns: Turns, pairs: &Pairs) -> bool {
    let on_cpu = turns
        .on_cpu
        .is_some_and(|share| share >= threshold::CPU_SHARE);
    let in_kernel = pairs
        .system
        .is_some_and(|share| share >= threshold::CPU_SHARE);
    let time = side.elapsed_ns.as_secs_f64() * real(pairs.threads);
    let in_vain = real(pairs.polls_empty) * threshold::POLL_MOST.as_secs_f64();
    let busy = pairs.polls > 0 && in_vain <= threshold::POLLED_SHARE.as_f64() * time;
    turns.spins && on_cpu && (in_kernel || busy)
}

#[cfg(test)]
mod tests;
