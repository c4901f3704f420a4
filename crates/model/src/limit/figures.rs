//! The figures by which a limit is named: shares of time and bytes of all flows of one direction.

use crate::analysis::Way;
use crate::finding::Evidence;
use crate::ids::CpuId;
use crate::sample::{CpuTimes, FlowRecord, SideSample, TcpInfo};
use crate::units::{Nanoseconds, Ratio};

/// Shares of one direction; each is `None` where a flow did not say, never 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// Of the trial's time, that in which data was outstanding or unsent.
    pub busy: Option<Ratio>,
    /// Of the busy time, that in which the receive window held the flows back.
    pub rwnd_limited: Option<Ratio>,
    /// Of the busy time, that in which the send buffer did.
    pub sndbuf_limited: Option<Ratio>,
    /// Of the bytes sent, those sent again.
    pub retransmitted: Option<Ratio>,
    /// Of the trial's time, that in which a sending thread was on a CPU (mean of the threads).
    pub sender_cpu: Option<Ratio>,
    /// The same for the receiving threads.
    pub receiver_cpu: Option<Ratio>,
}

impl Figures {
    /// The figures of one direction.
    pub fn of(way: &Way<'_>) -> Self {
        let senders: Vec<&FlowRecord> = way.sender.senders().collect();
        let receivers: Vec<&FlowRecord> = way.receiver.receivers().collect();
        let infos: Option<Vec<&TcpInfo>> = senders.iter().map(|flow| flow.tcp.value()).collect();
        let infos = infos.unwrap_or_default();
        let sum =
            |pick: fn(&TcpInfo) -> u64| -> f64 { infos.iter().map(|tcp| to_f64(pick(tcp))).sum() };
        let busy = sum(|tcp| tcp.busy_ns.as_u64());
        let time = to_f64(way.sender.elapsed_ns.as_u64()) * to_f64(infos.len() as u64);
        Self {
            busy: share(busy, time),
            rwnd_limited: share(sum(|tcp| tcp.rwnd_limited_ns.as_u64()), busy),
            sndbuf_limited: share(sum(|tcp| tcp.sndbuf_limited_ns.as_u64()), busy),
            retransmitted: share(
                sum(|tcp| tcp.bytes_retransmitted.as_u64()),
                sum(|tcp| tcp.bytes_sent.as_u64()),
            ),
            sender_cpu: mean_cpu(&senders, way.sender.elapsed_ns),
            receiver_cpu: mean_cpu(&receivers, way.receiver.elapsed_ns),
        }
    }

    /// Every figure that is known, with where it came from.
    pub fn evidence(&self) -> Vec<Evidence> {
        [
            (
                "share of the time with data to send",
                self.busy,
                "TCP_INFO tcpi_busy_time",
            ),
            (
                "share of the busy time limited by the receive window",
                self.rwnd_limited,
                "TCP_INFO tcpi_rwnd_limited",
            ),
            (
                "share of the busy time limited by the send buffer",
                self.sndbuf_limited,
                "TCP_INFO tcpi_sndbuf_limited",
            ),
            (
                "share of the bytes sent again",
                self.retransmitted,
                "TCP_INFO tcpi_bytes_retrans",
            ),
            (
                "sending thread on a CPU",
                self.sender_cpu,
                "getrusage(RUSAGE_THREAD)",
            ),
            (
                "receiving thread on a CPU",
                self.receiver_cpu,
                "getrusage(RUSAGE_THREAD)",
            ),
        ]
        .into_iter()
        .filter_map(|(what, share, path)| Some(Evidence::new(what, share?, path)))
        .collect()
    }
}

/// The busy share of `cpu` during the trial; time stolen by the hypervisor was not to be had.
pub(super) fn cpu_busy(side: &SideSample, cpu: CpuId) -> Option<Ratio> {
    busy_of(
        side.cpu
            .machine
            .value()?
            .iter()
            .filter(|times| times.cpu == cpu),
    )
}

/// The busy share of all CPUs of the machine.
pub(super) fn machine_busy(side: &SideSample) -> Option<Ratio> {
    busy_of(side.cpu.machine.value()?.iter())
}

/// The busiest of the CPUs that threads of this end are pinned to. Where a thread could move, a busy CPU
/// would not have held it.
pub(super) fn busiest_pinned_cpu(side: &SideSample) -> Option<(CpuId, Ratio)> {
    side.flows
        .iter()
        .filter_map(|flow| flow.pinned_to)
        .filter_map(|cpu| Some((cpu, cpu_busy(side, cpu)?)))
        .max_by(|one, other| one.1.as_f64().total_cmp(&other.1.as_f64()))
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

fn mean_cpu(flows: &[&FlowRecord], elapsed: Nanoseconds) -> Option<Ratio> {
    let shares: Option<Vec<f64>> = flows
        .iter()
        .map(|flow| flow.cpu_share(elapsed).map(Ratio::as_f64))
        .collect();
    let shares = shares?;
    share(shares.iter().sum(), to_f64(shares.len() as u64))
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
