//! Turns the raw counters of a sample into results: rates, CPU time per byte, whether both ends counted the same, and
//! the flags for doubtful trials. Pure functions: a stored run is analyzed again with the same code. The warm-up cut
//! is computed in `linerate-stats` and passed in.

mod cost;
pub(crate) mod figures;

pub use cost::{
    SideCost, cost_of_local, cost_of_remote, gigabytes_received, s_per_gb, s_per_gb_of_role,
};
pub use figures::{Figures, Turns, other_work};
use serde::{Deserialize, Serialize};

use crate::ids::CpuId;
use crate::plan::End;
use crate::sample::{FlowRecord, Role, Sample, SideSample, TcpInfo};
use crate::units::{BitRate, Bytes, Nanoseconds, Ratio};
use crate::workload::{Direction, Workload};

/// One direction of a trial's data transfer.
#[derive(Debug, Clone, Copy)]
pub struct OneWay<'a> {
    /// The end that sends.
    pub from: End,
    /// What the sending end recorded.
    pub sender: &'a SideSample,
    /// What the receiving end recorded.
    pub receiver: &'a SideSample,
    /// Whether the receiving program does not see what arrives (RDMA write, read and atomic).
    pub one_sided: bool,
}

/// The directions of `sample`: one, or two at once.
pub fn ways(sample: &Sample) -> Vec<OneWay<'_>> {
    let one_sided = sample.spec.workload.is_one_sided();
    let forward = OneWay {
        from: End::Local,
        sender: &sample.local,
        receiver: &sample.remote,
        one_sided,
    };
    let reverse = OneWay {
        from: End::Remote,
        sender: &sample.remote,
        receiver: &sample.local,
        one_sided,
    };
    match sample.spec.direction {
        Direction::Forward => vec![forward],
        Direction::Reverse => vec![reverse],
        Direction::Bidirectional => vec![forward, reverse],
    }
}

/// Whether `end` sent in this trial.
pub fn sends(sample: &Sample, end: End) -> bool {
    ways(sample).iter().any(|way| way.from == end)
}

impl<'a> OneWay<'a> {
    /// The records that count received bytes: the receivers', or the senders' if only a completion reports them.
    pub fn counted(&self) -> impl Iterator<Item = &'a FlowRecord> + use<'a> {
        let (side, role) = if self.one_sided {
            (self.sender, Role::Sender)
        } else {
            (self.receiver, Role::Receiver)
        };
        side.flows.iter().filter(move |flow| flow.role == role)
    }

    /// What TCP reports of its first sender.
    pub fn first_tcp(&self) -> Option<&'a TcpInfo> {
        self.sender.senders().next()?.tcp.value()
    }

    /// The smallest RTT that any of its senders saw.
    pub fn rtt_min(&self) -> Option<Nanoseconds> {
        self.sender
            .senders()
            .filter_map(|flow| flow.tcp.value())
            .map(|tcp| tcp.rtt_min_ns)
            // Before the first RTT measurement the kernel reports 0 or the maximum value.
            .filter(|rtt| rtt.as_u64() > 0 && rtt.as_u64() < u64::from(u32::MAX) * 1_000)
            .min()
    }
}

impl FlowRecord {
    /// The CPU of its thread: the one it was pinned to, otherwise the one it last ran on.
    pub fn cpu(&self) -> Option<CpuId> {
        self.pinned_to.or_else(|| self.last_cpu.get())
    }

    /// The share of `elapsed` that its thread spent on a CPU.
    pub fn cpu_share(&self, elapsed: Nanoseconds) -> Option<Ratio> {
        let busy = self.user_ns.as_secs_f64() + self.system_ns.as_secs_f64();
        (elapsed.as_u64() > 0).then(|| Ratio::new(busy / elapsed.as_secs_f64()))
    }

    /// For datagrams: when the first arrived, and the bytes that did within the planned duration from then on.
    fn on_time(&self, sample: &Sample) -> Option<(Nanoseconds, u64)> {
        let Workload::Udp(udp) = &sample.spec.workload else {
            return None;
        };
        let datagrams = self.datagrams.as_ref()?;
        let on_time = datagrams.on_time?;
        let count = on_time.count.min(datagrams.count);
        let bytes = count.saturating_mul(udp.datagram_bytes.as_u64());
        Some((on_time.first_ns, bytes))
    }

    /// The bytes counted by `time`, interpolated linearly between two readings.
    fn bytes_by(&self, time: Nanoseconds) -> u64 {
        let index = self.at_ns.partition_point(|at| *at <= time);
        let reading = |index: usize| {
            let at = self.at_ns.get(index)?.as_u64();
            Some((at, self.bytes.get(index)?.as_u64()))
        };
        let (at0, bytes0) = index.checked_sub(1).and_then(reading).unwrap_or((0, 0));
        let Some((at1, bytes1)) = reading(index) else {
            return bytes0;
        };
        let (gained, span) = (bytes1.saturating_sub(bytes0), at1.saturating_sub(at0));
        let part = u128::from(gained) * u128::from(time.as_u64().saturating_sub(at0));
        let part = part.checked_div(u128::from(span)).unwrap_or(0);
        bytes0.saturating_add(u64::try_from(part).unwrap_or(u64::MAX))
    }
}

/// The rate of one interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RatePoint {
    /// The end of the interval, since the start of the trial.
    pub at_ns: Nanoseconds,
    /// The mean rate within it.
    pub bit_per_s: BitRate,
}

/// The rates of one flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowSeries {
    /// The number of the connection.
    pub flow: u32,
    /// The end that sent.
    pub from: End,
    /// Its rate in each interval.
    pub points: Vec<RatePoint>,
}

/// The rates of a trial as counted by its receivers (for one-sided verbs: the senders' completions), all on the same
/// intervals.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RateSeries {
    /// Each flow.
    pub flows: Vec<FlowSeries>,
    /// The sum of all flows.
    pub total: Vec<RatePoint>,
}

/// The interval boundaries (the first is 0): those of the receiver that was read longest, up to the planned end of
/// the trial. Bytes that arrive later (while queues drain) do not count. A last interval of less than half is part of the
/// one before: a rate over a few microseconds is noise.
fn boundaries(sample: &Sample) -> Vec<Nanoseconds> {
    let last = sample
        .spec
        .duration_ns
        .as_u64()
        .saturating_add(sample.spec.interval_ns.as_u64() / 2);
    let ways = ways(sample);
    let longest = ways
        .iter()
        .flat_map(OneWay::counted)
        .max_by_key(|flow| flow.at_ns.last().copied());
    let mut times = vec![Nanoseconds::new(0)];
    for at in longest.into_iter().flat_map(|flow| &flow.at_ns) {
        let newest = times[times.len() - 1];
        if *at > newest && at.as_u64() <= last {
            times.push(*at);
        }
    }
    if let [_, .., sliver, end] = times[..]
        && end.as_u64() - sliver.as_u64() < sample.spec.interval_ns.as_u64() / 2
    {
        times.remove(times.len() - 2);
    }
    times
}

fn points(times: &[Nanoseconds], bytes_by: impl Fn(Nanoseconds) -> u64) -> Vec<RatePoint> {
    let bytes: Vec<u64> = times.iter().map(|at| bytes_by(*at)).collect();
    times
        .windows(2)
        .zip(bytes.windows(2))
        .filter_map(|(at, bytes)| {
            let span = Nanoseconds::new(at[1].as_u64() - at[0].as_u64());
            let gained = Bytes::new(bytes[1].saturating_sub(bytes[0]));
            Some(RatePoint {
                at_ns: at[1],
                bit_per_s: BitRate::of(gained, span)?,
            })
        })
        .collect()
}

/// The mean rate of one direction over the whole trial.
pub fn rate_of_way(sample: &Sample, way: &OneWay<'_>) -> Option<BitRate> {
    let end = *boundaries(sample).last()?;
    rate_between(sample, way.counted(), Nanoseconds::new(0), end)
}

/// The rate of some flows together from `start` to `end`. The window of datagrams ends when the last of those that were
/// sent within the planned duration should have arrived.
fn rate_between<'a>(
    sample: &Sample,
    flows: impl Iterator<Item = &'a FlowRecord>,
    start: Nanoseconds,
    end: Nanoseconds,
) -> Option<BitRate> {
    let whole = end
        .as_u64()
        .saturating_add(sample.spec.interval_ns.as_u64() / 2)
        >= sample.spec.duration_ns.as_u64();
    let mut gained: u64 = 0;
    let mut on_time: u64 = 0;
    for flow in flows {
        let Some((first, bytes)) = flow.on_time(sample).filter(|_| whole) else {
            let bytes = flow.bytes_by(end).saturating_sub(flow.bytes_by(start));
            gained = gained.saturating_add(bytes);
            continue;
        };
        // Before the first datagram there was none, whatever lies on the line between two readings.
        let before = if start > first {
            flow.bytes_by(start)
        } else {
            0
        };
        let until = first
            .as_u64()
            .saturating_add(sample.spec.duration_ns.as_u64());
        let span = Nanoseconds::new(until.saturating_sub(start.max(first).as_u64()));
        let rate = BitRate::of(Bytes::new(bytes.saturating_sub(before)), span)?;
        on_time = on_time.saturating_add(rate.as_bit_per_s());
    }
    let span = Nanoseconds::new(end.as_u64().saturating_sub(start.as_u64()));
    let rest = BitRate::of(Bytes::new(gained), span)?.as_bit_per_s();
    Some(BitRate::from_bit_per_s(rest.saturating_add(on_time)))
}

/// The bytes of all receivers by `time`. Each end measures time from its own start; the starts differ by about one
/// RTT.
fn received_by(sample: &Sample, time: Nanoseconds) -> u64 {
    ways(sample)
        .iter()
        .flat_map(OneWay::counted)
        .fold(0, |sum: u64, flow| sum.saturating_add(flow.bytes_by(time)))
}

/// The rates of a trial over time, per flow and in total.
pub fn rate_series(sample: &Sample) -> RateSeries {
    let times = boundaries(sample);
    let mut flows = Vec::new();
    for way in ways(sample) {
        for flow in way.counted() {
            flows.push(FlowSeries {
                flow: flow.flow,
                from: way.from,
                points: points(&times, |at| flow.bytes_by(at)),
            });
        }
    }
    RateSeries {
        flows,
        total: points(&times, |at| received_by(sample, at)),
    }
}

/// The mean rate of all flows together from interval `first_kept` (counted from 0) to the end; `None`
/// when nothing is left.
pub fn rate_after(sample: &Sample, first_kept: usize) -> Option<BitRate> {
    let times = boundaries(sample);
    let start = *times.get(first_kept)?;
    let end = *times.last()?;
    let ways = ways(sample);
    let counted = ways.iter().flat_map(OneWay::counted);
    rate_between(sample, counted, start, end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;
    use crate::sample::{Datagrams, OnTime};
    use crate::workload::{DatagramBatch, Udp};

    const SECOND: u64 = 1_000_000_000;

    fn readings(flow: &mut FlowRecord, readings: &[(u64, u64)]) {
        flow.at_ns = readings
            .iter()
            .map(|(at, _)| Nanoseconds::new(*at))
            .collect();
        flow.bytes = readings
            .iter()
            .map(|(_, bytes)| Bytes::new(*bytes))
            .collect();
    }

    #[test]
    fn a_sliver_at_the_end_is_part_of_the_interval_before() {
        let mut sample = build::sample().build();
        let interval = sample.spec.interval_ns.as_u64();
        let end = sample.spec.duration_ns.as_u64();
        let times = (1..)
            .map(|number| number * interval)
            .take_while(|at| *at < end);
        let times: Vec<(u64, u64)> = times.chain([end - 1, end]).map(|at| (at, at)).collect();
        for flow in &mut sample.remote.flows {
            readings(flow, &times);
        }
        let series = rate_series(&sample).total;
        let last = &series[series.len() - 2..];
        assert_eq!(last[1].at_ns.as_u64() - last[0].at_ns.as_u64(), interval);
        assert_eq!(last[1].bit_per_s, last[0].bit_per_s);
    }

    #[test]
    fn the_rate_is_what_the_receivers_counted() {
        let sample = build::sample().flows(2).gbit(10).build();
        let series = rate_series(&sample);
        assert_eq!(series.flows.len(), 2);
        assert!(
            series
                .total
                .iter()
                .all(|p| p.bit_per_s.to_string() == "10.00 Gb/s")
        );
        assert!(
            series.flows[0]
                .points
                .iter()
                .all(|p| p.bit_per_s.to_string() == "5.00 Gb/s")
        );
        assert_eq!(
            rate_after(&sample, 0).map(|r| r.to_string()),
            Some("10.00 Gb/s".to_owned())
        );
    }

    #[test]
    fn warm_up_is_left_out_of_the_rate() {
        let mut sample = build::sample().build();
        sample.spec.duration_ns = Nanoseconds::new(3 * SECOND);
        let slow_first = [(SECOND, 125), (2 * SECOND, 375), (3 * SECOND, 625)];
        readings(&mut sample.remote.flows[0], &slow_first);
        let bit_per_s = |kept| rate_after(&sample, kept).map(BitRate::as_bit_per_s);
        assert_eq!(bit_per_s(0), Some(1_666));
        assert_eq!(bit_per_s(1), Some(2_000));
        assert_eq!(bit_per_s(3), None);
        assert_eq!(bit_per_s(usize::MAX), None);
    }

    #[test]
    fn flows_read_at_other_times_are_put_on_common_intervals() {
        let mut sample = build::sample().flows(2).build();
        sample.spec.duration_ns = Nanoseconds::new(2 * SECOND);
        readings(
            &mut sample.remote.flows[0],
            &[(SECOND, 1000), (2 * SECOND, 2000)],
        );
        let odd = [
            (SECOND / 2, 500),
            (3 * SECOND / 2, 1500),
            (2 * SECOND - 1, 2000),
        ];
        readings(&mut sample.remote.flows[1], &odd);
        let total = rate_series(&sample).total;
        let rates: Vec<u64> = total.iter().map(|p| p.bit_per_s.as_bit_per_s()).collect();
        assert_eq!(rates, [16_000, 16_000]);
    }

    #[test]
    fn what_drains_after_the_planned_end_is_no_part_of_the_rate() {
        let mut sample = build::sample().build();
        sample.spec.duration_ns = Nanoseconds::new(SECOND);
        sample.spec.interval_ns = Nanoseconds::from_millis(100);
        let tail = [(SECOND, 1_000_000), (2 * SECOND, 1_000_001)];
        readings(&mut sample.remote.flows[0], &tail);
        assert_eq!(
            rate_after(&sample, 0),
            Some(BitRate::from_bit_per_s(8_000_000))
        );
    }

    #[test]
    fn the_rate_of_datagrams_is_that_of_the_time_in_which_they_were_sent() {
        let mut sample = build::sample().build();
        sample.spec.duration_ns = Nanoseconds::new(SECOND);
        sample.spec.interval_ns = Nanoseconds::from_millis(100);
        let datagram_bytes = Bytes::new(1_000);
        sample.spec.workload = Workload::Udp(Udp {
            datagram_bytes,
            rate_bit_per_s: None,
            batch: DatagramBatch::Single,
            probe: None,
        });
        // The receiver started 23 ms before the first of 2,500 datagrams came.
        let first_ns = Nanoseconds::from_millis(23);
        let flow = &mut sample.remote.flows[0];
        readings(
            flow,
            &[(SECOND, 2_442_000), (SECOND + SECOND / 40, 2_500_000)],
        );
        let came = |count, on_time| Datagrams {
            count,
            on_time: Some(OnTime {
                first_ns,
                count: on_time,
            }),
            ..Datagrams::default()
        };
        flow.datagrams = Some(came(2_500, 2_500));
        let rate = |sample: &Sample| rate_after(sample, 0).map(BitRate::as_bit_per_s);
        assert_eq!(rate(&sample), Some(20_000_000));
        // What stood in a queue when everything was sent is no part of the rate, and a count beyond all is none.
        sample.remote.flows[0].datagrams = Some(came(2_500, 2_000));
        assert_eq!(rate(&sample), Some(16_000_000));
        sample.remote.flows[0].datagrams = Some(came(2_500, u64::MAX));
        assert_eq!(rate(&sample), Some(20_000_000));
        // A trial that was cut short has no such time.
        sample.spec.duration_ns = Nanoseconds::new(9 * SECOND);
        assert_eq!(rate(&sample), Some(19_512_195));
    }

    #[test]
    fn both_directions_add_up_and_each_is_its_receivers() {
        let sample = build::sample()
            .direction(Direction::Bidirectional)
            .gbit(6)
            .build();
        assert_eq!(ways(&sample).len(), 2);
        let series = rate_series(&sample);
        assert_eq!(series.flows.len(), 2);
        assert_eq!(series.total[0].bit_per_s.to_string(), "12.00 Gb/s");
    }

    #[test]
    fn a_broken_record_gives_no_rate_and_no_panic() {
        let mut sample = build::sample().build();
        sample.remote.flows[0].bytes.clear();
        assert_eq!(rate_after(&sample, 0).map(BitRate::as_bit_per_s), Some(0));
        readings(
            &mut sample.remote.flows[0],
            &[(5, 9), (5, 3), (2, u64::MAX)],
        );
        let _ = rate_series(&sample);
        sample.remote.flows[0].role = Role::Sender;
        assert_eq!(rate_after(&sample, 0), None);
        assert!(rate_series(&sample).total.is_empty());
    }
}
