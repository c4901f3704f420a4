//! The metrics that identify a limit: shares of time and bytes over all flows of one direction.

use super::OneWay;
use crate::finding::Evidence;
use crate::ids::CpuId;
use crate::sample::{CpuTimes, FlowRecord, Role, Sample, SideSample, TcpInfo, ThreadRecord};
use crate::threshold;
use crate::units::{Bytes, Nanoseconds, Ratio};
use crate::workload::{TrialSpec, Waiting};

/// Shares of the trial's time for the threads of one role (mean over the threads).
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Turns {
    /// The share spent on a CPU.
    pub on_cpu: Option<Ratio>,
    /// The share spent runnable, waiting for a CPU.
    pub waited: Option<Ratio>,
    /// The mean length of a sleep.
    pub each_sleep: Option<Nanoseconds>,
    /// Whether it busy-polls, so that time on a CPU shows nothing.
    pub spins: bool,
}

impl Turns {
    /// The share in which it was running or runnable; unknown for threads that busy-poll.
    pub fn wanted(&self) -> Option<Ratio> {
        let waited = self.waited.map_or(0.0, Ratio::as_f64);
        let on_cpu = self.on_cpu.filter(|_| !self.spins)?;
        Some(Ratio::new(on_cpu.as_f64() + waited))
    }

    /// The share in which it waited for something other than a CPU.
    pub fn slept(&self) -> Option<Ratio> {
        let wanted = self.wanted()?.as_f64();
        Some(Ratio::new((1.0 - wanted).max(0.0)))
    }

    /// Whether it was limited by CPU.
    pub fn used_up(&self) -> bool {
        let hindered = self
            .waited
            .zip(self.slept())
            .is_some_and(|(waited, slept)| waited >= threshold::WAITED_SHARE && waited >= slept);
        hindered
            || self
                .wanted()
                .is_some_and(|share| share >= threshold::CPU_SHARE)
    }
}

/// Shares of one direction; `None` if a flow did not report the value, never 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// Share of the trial's time with data outstanding or unsent.
    pub busy: Option<Ratio>,
    /// Share of the busy time limited by the receive window.
    pub rwnd_limited: Option<Ratio>,
    /// Share of the busy time limited by the send buffer.
    pub sndbuf_limited: Option<Ratio>,
    /// Share of the sent bytes that were retransmitted.
    pub retransmitted: Option<Ratio>,
    /// Share of the sent bytes that were retransmitted, without those that the receiver reported as duplicates.
    pub lost: Option<Ratio>,
    /// The sending threads.
    pub sender: Turns,
    /// The receiving threads.
    pub receiver: Turns,
    /// The smallest RTT of any flow.
    pub rtt_min: Option<Nanoseconds>,
    /// The smoothed RTT at the end, mean over the flows.
    pub rtt: Option<Nanoseconds>,
    /// Bytes in flight per RTT of one flow while it was busy: its rate times `rtt`.
    pub per_round_trip: Option<Bytes>,
    /// The share of the time in which the receiving threads read nothing for intervals and RTTs at a stretch.
    pub reader_paused: Option<Ratio>,
}

impl Figures {
    /// The metrics of one direction.
    pub fn of(way: &OneWay<'_>, spec: &TrialSpec) -> Self {
        let senders: Vec<&FlowRecord> = way.sender.senders().collect();
        let infos: Option<Vec<&TcpInfo>> = senders.iter().map(|flow| flow.tcp.value()).collect();
        let infos = infos.unwrap_or_default();
        let sum =
            |pick: fn(&TcpInfo) -> u64| -> f64 { infos.iter().map(|tcp| to_f64(pick(tcp))).sum() };
        let busy = sum(|tcp| tcp.busy_ns.as_u64());
        let sent = sum(|tcp| tcp.bytes_sent.as_u64());
        let flows = to_f64(infos.len() as u64);
        let time = to_f64(way.sender.elapsed_ns.as_u64()) * flows;
        let rtt = share(sum(|tcp| tcp.rtt_ns.as_u64()), flows).map(|mean| whole(mean.as_f64()));
        // Per flow: both sums, of bytes and of busy times, are over all flows.
        let per_round_trip = share(sum(moved), busy)
            .zip(rtt)
            .map(|(rate, rtt)| Bytes::new(whole(rate.as_f64() * to_f64(rtt))));
        Self {
            busy: share(busy, time),
            rwnd_limited: share(sum(|tcp| tcp.rwnd_limited_ns.as_u64()), busy),
            sndbuf_limited: share(sum(|tcp| tcp.sndbuf_limited_ns.as_u64()), busy),
            retransmitted: share(sum(|tcp| tcp.bytes_retransmitted.as_u64()), sent),
            lost: share(sum(lost), sent),
            sender: turns(way.sender, Role::Sender, spec.waiting_at(way.from)),
            receiver: turns(
                way.receiver,
                Role::Receiver,
                spec.waiting_at(way.from.other()),
            ),
            rtt_min: way.rtt_min(),
            rtt: rtt.map(Nanoseconds::new),
            per_round_trip,
            reader_paused: paused(way.receiver, spec, rtt.map(Nanoseconds::new)),
        }
    }

    /// Whether the RTT is that of the path: long, and without queueing delay.
    pub fn round_trip_is_the_paths(&self) -> bool {
        self.rtt_min.zip(self.rtt).is_some_and(|(least, mean)| {
            least >= threshold::PATH_RTT
                && mean.as_secs_f64() <= least.as_secs_f64() * threshold::QUEUE_FACTOR
        })
    }

    /// Whether the receiver had most of what was retransmitted: it came late, or its acknowledgment did.
    pub fn was_mostly_in_vain(&self) -> bool {
        self.retransmitted
            .zip(self.lost)
            .is_some_and(|(all, lost)| {
                let needed = 1.0 - threshold::IN_VAIN_SHARE.as_f64();
                lost.as_f64() <= all.as_f64() * needed
            })
    }

    /// Whether there is queueing delay: then something after the sender is the bottleneck, and the congestion control
    /// only adapts to it.
    pub fn queue_on_the_path(&self) -> bool {
        self.rtt.zip(self.rtt_min).is_some_and(|(mean, least)| {
            let waits = mean.as_secs_f64() - least.as_secs_f64();
            waits > threshold::PATH_RTT.as_secs_f64()
                && mean.as_secs_f64() > least.as_secs_f64() * threshold::QUEUE_FACTOR
        })
    }

    /// Whether the thread of `turns` slept much longer than a connection needs to respond: it was not waiting for the
    /// connection.
    pub fn sleeps_long(&self, turns: Turns) -> Option<bool> {
        let (each, rtt) = turns.each_sleep.zip(self.rtt)?;
        Some(each.as_secs_f64() >= threshold::LONG_SLEEP_FACTOR * rtt.as_secs_f64())
    }

    /// Whether the reader was away for a good part of the time, however short its other sleeps were.
    pub fn reader_pauses(&self) -> bool {
        self.reader_paused
            .is_some_and(|share| share >= threshold::SLEPT_SHARE)
    }

    /// Whether one RTT of a flow's data fills a buffer of `size`.
    pub fn fills(&self, size: Bytes) -> bool {
        let least = threshold::FILLED_SHARE.as_f64() * to_f64(size.as_u64());
        self.per_round_trip
            .is_some_and(|moved| to_f64(moved.as_u64()) >= least)
    }

    /// Whether one RTT of a flow's data fills the window that its peer announces, while its congestion window has room;
    /// not known before Linux 5.4. The kernel counts what a closed window holds back only while nothing else does: not
    /// what BBR paces.
    pub fn fills_receive_window(&self, way: &OneWay<'_>) -> Option<bool> {
        let windows = way.sender.senders().map(|flow| {
            let tcp = flow.tcp.value()?;
            let own = u64::from(tcp.cwnd_segments).saturating_mul(tcp.snd_mss_bytes.as_u64());
            Some((tcp.snd_wnd_bytes?, own))
        });
        let windows: Vec<(Bytes, u64)> = windows.collect::<Option<_>>()?;
        let moved = to_f64(self.per_round_trip?.as_u64());
        let full = |(peers, own): &(Bytes, u64)| {
            let peers = peers.as_u64();
            moved >= threshold::FILLED_WINDOW_SHARE.as_f64() * to_f64(peers)
                && *own >= peers.saturating_add(peers / 4)
        };
        (!windows.is_empty()).then(|| windows.iter().all(full))
    }

    /// Whether a buffer of `size` holds so many RTTs of data that it cannot be what a flow waits for.
    pub fn is_ample(&self, size: Bytes) -> Option<bool> {
        let needed = to_f64(self.per_round_trip?.as_u64());
        Some(to_f64(size.as_u64()) >= threshold::AMPLE_FACTOR * needed)
    }

    /// Every metric that is known, with its source.
    pub fn evidence(&self) -> Vec<Evidence> {
        const RUSAGE: &str = "getrusage(RUSAGE_THREAD)";
        const SCHEDSTAT: &str = "/proc/thread-self/schedstat";
        let shares = [
            (
                "busy (data to send), share of the time",
                self.busy,
                "TCP_INFO tcpi_busy_time",
            ),
            (
                "limited by the receive window, share of busy time",
                self.rwnd_limited,
                "TCP_INFO tcpi_rwnd_limited / tcpi_busy_time",
            ),
            (
                "limited by the send buffer, share of busy time",
                self.sndbuf_limited,
                "TCP_INFO tcpi_sndbuf_limited / tcpi_busy_time",
            ),
            (
                "bytes retransmitted, share of bytes sent",
                self.retransmitted,
                "TCP_INFO tcpi_bytes_retrans / tcpi_bytes_sent",
            ),
            (
                "bytes lost, share of bytes sent",
                self.lost,
                "TCP_INFO tcpi_bytes_retrans - tcpi_dsack_dups x tcpi_snd_mss",
            ),
            ("sending thread on a CPU", self.sender.on_cpu, RUSAGE),
            (
                "sending thread runnable, waiting for a CPU",
                self.sender.waited,
                SCHEDSTAT,
            ),
            ("receiving thread on a CPU", self.receiver.on_cpu, RUSAGE),
            (
                "receiving thread runnable, waiting for a CPU",
                self.receiver.waited,
                SCHEDSTAT,
            ),
        ];
        let shares = shares
            .into_iter()
            .filter_map(|(what, share, path)| Some(Evidence::new(what, share?, path)));
        shares.chain(self.times()).collect()
    }

    /// The metrics that are not shares.
    fn times(&self) -> Vec<Evidence> {
        const SLEEP: &str = "sleep time / ru_nvcsw";
        let times = [
            ("mean sender sleep time", self.sender.each_sleep, SLEEP),
            ("mean receiver sleep time", self.receiver.each_sleep, SLEEP),
            ("minimum RTT", self.rtt_min, "TCP_INFO tcpi_min_rtt"),
            ("final smoothed RTT", self.rtt, "TCP_INFO tcpi_rtt"),
        ];
        let times = times
            .into_iter()
            .filter_map(|(what, time, path)| Some(Evidence::new(what, time?, path)));
        let bytes = self.per_round_trip.map(|bytes| {
            let path = "TCP_INFO tcpi_bytes_sent / tcpi_busy_time x tcpi_rtt";
            Evidence::new("bytes per flow per RTT", bytes, path)
        });
        times.chain(bytes).collect()
    }
}

/// New bytes sent, without retransmissions.
fn moved(tcp: &TcpInfo) -> u64 {
    let again = tcp.bytes_retransmitted.as_u64();
    tcp.bytes_sent.as_u64().saturating_sub(again)
}

/// Retransmitted bytes that were needed; all of them if the peer's reports are not known.
pub(crate) fn lost(tcp: &TcpInfo) -> u64 {
    let twice = tcp.duplicate_segments.unwrap_or(0);
    let in_vain = twice.saturating_mul(tcp.snd_mss_bytes.as_u64());
    tcp.bytes_retransmitted.as_u64().saturating_sub(in_vain)
}

/// The share of the time in which receiving threads read nothing for at least [`threshold::PAUSE_INTERVALS`] intervals and
/// [`threshold::LONG_SLEEP_FACTOR`] RTTs at a stretch: data that arrives wakes a thread within an RTT, and it then notes its
/// byte counter once per interval. Mean over the flows; unknown with a single reading.
fn paused(side: &SideSample, spec: &TrialSpec, rtt: Option<Nanoseconds>) -> Option<Ratio> {
    let intervals = threshold::PAUSE_INTERVALS * spec.interval_ns.as_secs_f64();
    let least = intervals.max(threshold::LONG_SLEEP_FACTOR * rtt?.as_secs_f64());
    let flows: Vec<f64> = side
        .flows
        .iter()
        .filter(|flow| flow.role == Role::Receiver && flow.at_ns.len() > 1)
        .map(|flow| {
            let times = flow.at_ns.windows(2).filter_map(|pair| match pair {
                [from, to] => Some(to.as_secs_f64() - from.as_secs_f64()),
                _ => None,
            });
            times.filter(|time| *time >= least).sum()
        })
        .collect();
    let time = side.elapsed_ns.as_secs_f64() * to_f64(flows.len() as u64);
    share(flows.iter().sum(), time)
}

/// The data threads of `role`. A kernel thread that polls a ring is always busy, so it is left out.
fn data_threads(side: &SideSample, role: Role) -> impl Iterator<Item = &ThreadRecord> {
    let ours = move |thread: &&ThreadRecord| thread.role == role && thread.polls_for.is_none();
    side.threads.iter().filter(ours)
}

fn turns(side: &SideSample, role: Role, waiting: Waiting) -> Turns {
    let flows: Vec<&FlowRecord> = side.flows.iter().filter(|flow| flow.role == role).collect();
    let threads = || data_threads(side, role);
    let waited: Option<Vec<f64>> = threads()
        .map(|thread| Some(thread.waited_for_cpu_ns.value()?.as_secs_f64()))
        .collect();
    let waited = waited.filter(|times| !times.is_empty()).and_then(|times| {
        let time = side.elapsed_ns.as_secs_f64() * to_f64(times.len() as u64);
        share(times.iter().sum(), time)
    });
    let mut turns = Turns {
        on_cpu: mean_cpu(side, role, &flows),
        waited,
        each_sleep: None,
        spins: waiting == Waiting::Spin,
    };
    let (count, sleeps) = threads().fold((0u64, 0u64), |(count, sleeps), thread| {
        (count + 1, sleeps.saturating_add(thread.voluntary_switches))
    });
    let time = side.elapsed_ns.as_secs_f64() * to_f64(count);
    turns.each_sleep = turns
        .slept()
        .and_then(|slept| share(slept.as_f64() * time * 1e9, to_f64(sleeps)))
        .map(|each| Nanoseconds::new(whole(each.as_f64())));
    turns
}

/// The busy share of `cpu` during the trial; steal time counts as busy.
pub(crate) fn cpu_busy(side: &SideSample, cpu: CpuId) -> Option<Ratio> {
    busy_of(
        side.cpu
            .machine
            .value()?
            .iter()
            .filter(|times| times.cpu == cpu),
    )
}

/// The busy share of all CPUs of the machine.
pub(crate) fn machine_busy(side: &SideSample) -> Option<Ratio> {
    busy_of(side.cpu.machine.value()?.iter())
}

/// The busiest of the CPUs that this end's threads are pinned to. A thread that may migrate is not held up by one
/// busy CPU.
pub(crate) fn busiest_pinned_cpu(side: &SideSample) -> Option<(CpuId, Ratio)> {
    side.flows
        .iter()
        .filter_map(|flow| flow.pinned_to)
        .filter_map(|cpu| Some((cpu, cpu_busy(side, cpu)?)))
        .max_by(|one, other| one.1.as_f64().total_cmp(&other.1.as_f64()))
}

/// The share of the CPU time of the busier host that neither the threads of the trial nor interrupts had; `None` if an
/// end did not report it.
pub fn other_work(sample: &Sample) -> Option<Ratio> {
    let of = |side: &SideSample, own: f64| {
        let cpus = side.cpu.machine.value()?.iter();
        let (used, all) = cpus.fold((0.0, 0.0), |(used, all), times| {
            let programs = times.user_ns.as_secs_f64() + times.system_ns.as_secs_f64();
            (used + programs, all + times.total().as_secs_f64())
        });
        share((used - own).max(0.0), all)
    };
    let own = |side: &SideSample| {
        side.cpu.threads_user_ns.as_secs_f64() + side.cpu.threads_system_ns.as_secs_f64()
    };
    let (near, far) = (own(&sample.local), own(&sample.remote));
    let both = if sample.shared_kernel {
        near + far
    } else {
        0.0
    };
    let near = of(&sample.local, near.max(both))?;
    let far = of(&sample.remote, far.max(both))?;
    Some(if near > far { near } else { far })
}

fn busy_of<'a>(cpus: impl Iterator<Item = &'a CpuTimes>) -> Option<Ratio> {
    let (busy, all) = cpus.fold((0.0, 0.0), |(busy, all), times| {
        let stolen = times.steal_ns.as_secs_f64();
        (
            busy + times.busy().as_secs_f64() + stolen,
            all + times.total().as_secs_f64(),
        )
    });
    share(busy, all)
}

/// From the threads if they were recorded; a thread with several flows then counts once.
fn mean_cpu(side: &SideSample, role: Role, flows: &[&FlowRecord]) -> Option<Ratio> {
    let elapsed = side.elapsed_ns.as_secs_f64();
    let threads: Vec<f64> = data_threads(side, role)
        .map(|thread| thread.user_ns.as_secs_f64() + thread.system_ns.as_secs_f64())
        .collect();
    if !threads.is_empty() {
        return share(threads.iter().sum(), elapsed * to_f64(threads.len() as u64));
    }
    let shares: Option<Vec<f64>> = flows
        .iter()
        .map(|flow| flow.cpu_share(side.elapsed_ns).map(Ratio::as_f64))
        .collect();
    let shares = shares?;
    share(shares.iter().sum(), to_f64(shares.len() as u64))
}

/// The share of `cpu`'s time spent in hard interrupts and softirqs.
pub(crate) fn interrupts_share(side: &SideSample, cpu: CpuId) -> Option<Ratio> {
    let times = side
        .cpu
        .machine
        .value()?
        .iter()
        .find(|times| times.cpu == cpu)?;
    let interrupts = times.irq_ns.as_secs_f64() + times.softirq_ns.as_secs_f64();
    share(interrupts, times.total().as_secs_f64())
}

/// The largest share of any CPU that interrupts and softirqs took.
pub(crate) fn interrupts_most(side: &SideSample) -> Option<Ratio> {
    let cpus = side.cpu.machine.value()?.iter().map(|times| times.cpu);
    let shares = cpus.filter_map(|cpu| interrupts_share(side, cpu));
    shares.max_by(|one, other| one.as_f64().total_cmp(&other.as_f64()))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rounded quantity that is not negative; a cast saturates"
)]
pub(crate) fn whole(value: f64) -> u64 {
    value.round() as u64
}

fn share(part: f64, whole: f64) -> Option<Ratio> {
    (whole > 0.0).then(|| Ratio::new(part / whole))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "104 days of nanoseconds fit in 2^53"
)]
fn to_f64(value: u64) -> f64 {
    value as f64
}
