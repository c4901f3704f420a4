//! The figures of one stream of an iperf3 document: what both ends know of it, in a span of time.

use linerate_model::sample::{Datagrams, FlowRecord, Role, Sample, TcpInfo};
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{TrialSpec, Workload};
use linerate_traffic::iperf3::{DatagramReading, Foreign, Reading, bytes_at};
use serde_json::{Map, Value, json};

/// One stream, as the end that linerate was started on sees it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream<'a> {
    pub(super) spec: &'a TrialSpec,
    pub(super) here: &'a FlowRecord,
    pub(super) there: Option<&'a FlowRecord>,
    /// The descriptor by which iperf3 names it; of our own trials, where none is kept, its number.
    pub(super) socket: i64,
    readings: &'a [Reading],
    datagrams: &'a [DatagramReading],
    /// Segments retransmitted, as a remote iperf3 reports them.
    told_retransmits: Option<u64>,
    foreign: bool,
}

/// Some time of a test.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) from: Nanoseconds,
    pub(super) to: Nanoseconds,
}

impl Span {
    pub(super) fn seconds(self) -> f64 {
        self.to.as_secs_f64() - self.from.as_secs_f64()
    }

    /// `start`, `end`, `seconds`, `bytes` and `bits_per_second`, after what is there.
    pub(super) fn put(self, into: &mut Map<String, Value>, bytes: Bytes) {
        into.insert("start".to_owned(), json!(self.from.as_secs_f64()));
        into.insert("end".to_owned(), json!(self.to.as_secs_f64()));
        into.insert("seconds".to_owned(), json!(self.seconds()));
        into.insert("bytes".to_owned(), json!(bytes.as_u64()));
        let rate = Span::rate(bytes, self.seconds());
        into.insert("bits_per_second".to_owned(), json!(rate));
    }

    #[expect(clippy::cast_precision_loss, reason = "a relative error of 2^-53")]
    fn rate(bytes: Bytes, seconds: f64) -> f64 {
        if seconds > 0.0 {
            8.0 * bytes.as_u64() as f64 / seconds
        } else {
            0.0
        }
    }
}

/// What is known of datagrams in a span.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Arrivals {
    pub(super) jitter_ms: Option<f64>,
    pub(super) lost: Option<u64>,
    pub(super) packets: Option<u64>,
}

impl Arrivals {
    pub(super) fn put(self, into: &mut Map<String, Value>) {
        let percent = self
            .lost
            .zip(self.packets)
            .map(|(lost, all)| percent(lost, all));
        into.insert("jitter_ms".to_owned(), json!(self.jitter_ms));
        into.insert("lost_packets".to_owned(), json!(self.lost));
        into.insert("packets".to_owned(), json!(self.packets));
        into.insert("lost_percent".to_owned(), json!(percent));
    }

    /// Of several streams: sums, and the mean jitter.
    pub(super) fn sum(all: &[Self]) -> Self {
        let count = |of: fn(&Self) -> Option<u64>| sum_of(all.iter().map(of));
        let jitter = all.iter().map(|one| one.jitter_ms).sum::<Option<f64>>();
        let streams = u32::try_from(all.len().max(1)).unwrap_or(u32::MAX);
        Self {
            jitter_ms: jitter.map(|sum| sum / f64::from(streams)),
            lost: count(|one| one.lost),
            packets: count(|one| one.packets),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a relative error of 2^-53")]
fn percent(lost: u64, all: u64) -> f64 {
    if all == 0 {
        0.0
    } else {
        100.0 * lost as f64 / all as f64
    }
}

impl<'a> Stream<'a> {
    /// All streams of a sample, in flow order.
    pub(super) fn all(sample: &'a Sample, foreign: Option<&'a Foreign>) -> Vec<Self> {
        let stream = |(index, here): (usize, &'a FlowRecord)| {
            let there = sample
                .remote
                .flows
                .iter()
                .find(|flow| flow.flow == here.flow);
            let connection = foreign.and_then(|foreign| foreign.connections.get(index));
            let told = foreign.and_then(|foreign| foreign.server.stream(here.flow));
            Self {
                spec: &sample.spec,
                here,
                there,
                socket: connection.map_or(i64::from(here.flow), |one| i64::from(one.socket)),
                readings: foreign.map_or(&[], |foreign| readings_of(&foreign.readings, index)),
                datagrams: foreign.map_or(&[], |foreign| readings_of(&foreign.datagrams, index)),
                told_retransmits: told.and_then(|told| told.retransmits),
                foreign: foreign.is_some(),
            }
        };
        sample.local.flows.iter().enumerate().map(stream).collect()
    }

    /// Whether this end sends on it.
    pub(super) fn sends(self) -> bool {
        self.here.role == Role::Sender
    }

    pub(super) fn is_udp(self) -> bool {
        matches!(self.spec.workload, Workload::Udp(_))
    }

    pub(super) fn sender(self) -> Option<&'a FlowRecord> {
        if self.sends() {
            Some(self.here)
        } else {
            self.there
        }
    }

    pub(super) fn receiver(self) -> Option<&'a FlowRecord> {
        if self.sends() {
            self.there
        } else {
            Some(self.here)
        }
    }

    /// What this end moved in `span`.
    pub(super) fn bytes_in(self, span: Span) -> Bytes {
        let (from, to) = (bytes_at(self.here, span.from), bytes_at(self.here, span.to));
        Bytes::new(to.saturating_sub(from))
    }

    /// The last reading of the connection until `time`.
    fn reading(self, time: Nanoseconds) -> Option<&'a Reading> {
        // A reading at a beat is made some microseconds after it.
        let beat = Nanoseconds::new(time.as_u64().saturating_add(5_000_000));
        let until = self.readings.partition_point(|one| one.at_ns <= beat);
        self.readings.get(until.checked_sub(1)?)
    }

    fn datagram_reading(self, time: Nanoseconds) -> Option<DatagramReading> {
        let beat = Nanoseconds::new(time.as_u64().saturating_add(5_000_000));
        let until = self.datagrams.partition_point(|one| one.at_ns <= beat);
        self.datagrams.get(until.checked_sub(1)?).copied()
    }

    /// Segments retransmitted in `span`; at the end of all the kernel's final value counts.
    pub(super) fn retransmits_in(self, span: Span) -> Option<u64> {
        let until = |time: Nanoseconds| match self.tcp() {
            Some(tcp) if time >= self.end() => Some(u64::from(tcp.retransmits)),
            _ => self.reading(time).map(|one| one.retransmits),
        };
        let before = if span.from == Nanoseconds::default() {
            Some(0)
        } else {
            until(span.from)
        };
        Some(until(span.to)?.saturating_sub(before?))
    }

    fn tcp(self) -> Option<&'a TcpInfo> {
        self.here.tcp.value()
    }

    fn end(self) -> Nanoseconds {
        self.here.at_ns.last().copied().unwrap_or_default()
    }

    /// When the stream ended at the end of `role`.
    pub(super) fn end_at(self, record: Option<&FlowRecord>) -> Nanoseconds {
        let end = record.and_then(|record| record.at_ns.last().copied());
        end.unwrap_or_else(|| self.end())
    }

    /// The datagrams that arrived here in `span`.
    pub(super) fn arrivals_in(self, span: Span) -> Arrivals {
        if span.from == Nanoseconds::default() && span.to >= self.end() {
            return self.arrivals();
        }
        let Some(to) = self.datagram_reading(span.to) else {
            return Arrivals::default();
        };
        let from = self.datagram_reading(span.from);
        let from = from.filter(|_| span.from > Nanoseconds::default());
        let (packets, lost) = from.map_or((0, 0), |from| (from.packets, from.lost));
        Arrivals {
            jitter_ms: Some(millis(to.jitter_ns)),
            lost: Some(to.lost.saturating_sub(lost)),
            packets: Some(to.packets.saturating_sub(packets)),
        }
    }

    /// The datagrams of the whole test, by the word of the end that they arrived at.
    pub(super) fn arrivals(self) -> Arrivals {
        let told = |flow: &'a FlowRecord| flow.datagrams.as_ref();
        let received = self.receiver().and_then(told);
        let sent = self.sender().and_then(told).map(|sent| sent.count);
        Arrivals {
            jitter_ms: received.map(|received| millis(received.jitter_ns)),
            lost: received.map(|received| received.lost),
            packets: sent.or(received.map(all_of)),
        }
    }

    /// Datagrams sent in `span`: each has its full size.
    pub(super) fn packets_in(self, span: Span) -> Option<u64> {
        match &self.spec.workload {
            Workload::Udp(udp) => {
                Some(self.bytes_in(span).as_u64() / udp.datagram_bytes.as_u64().max(1))
            }
            _ => None,
        }
    }

    /// Datagrams out of their order, where the end that they arrived at reports it.
    pub(super) fn out_of_order(self) -> Option<u64> {
        let received = self.receiver()?.datagrams.as_ref()?;
        // An iperf3 receiver does not report it; it prints 0 itself.
        Some(received.reordered)
    }

    /// `retransmits` and what iperf3 prints of the connection in each interval.
    pub(super) fn put_interval_tcp(self, into: &mut Map<String, Value>, span: Span) {
        let reading = self.reading(span.to);
        let mut put = |key: &str, value: Option<u64>| into.insert(key.to_owned(), json!(value));
        put("retransmits", self.retransmits_in(span));
        put("snd_cwnd", reading.map(|one| one.cwnd_bytes.as_u64()));
        put("snd_wnd", reading.map(|one| one.window_bytes.as_u64()));
        put("rtt", reading.map(|one| micros(one.rtt_ns)));
        put("rttvar", reading.map(|one| micros(one.rtt_variation_ns)));
        put("pmtu", reading.map(|one| one.path_mtu_bytes.as_u64()));
        put("reorder", reading.map(|one| u64::from(one.reordering)));
    }

    /// Segments retransmitted in the whole test, as the sender reports them.
    pub(super) fn retransmits(self) -> Option<u64> {
        let tcp = self.sender().and_then(|sender| sender.tcp.value());
        tcp.map(|tcp| u64::from(tcp.retransmits))
            .or(self.told_retransmits)
    }

    /// `retransmits` and what iperf3 prints of a sender at the end. Of one that is iperf3 itself only the
    /// first is reported: the others are 0, as it prints them.
    pub(super) fn put_end_tcp(self, into: &mut Map<String, Value>) {
        let figures = self.end_figures();
        let mut put = |key: &str, value: Option<u64>| into.insert(key.to_owned(), json!(value));
        put("retransmits", self.retransmits());
        let keys = [
            "max_snd_cwnd",
            "max_snd_wnd",
            "max_rtt",
            "min_rtt",
            "mean_rtt",
            "reorder",
        ];
        for (key, figure) in keys.into_iter().zip(figures) {
            put(key, figure);
        }
    }

    fn end_figures(self) -> [Option<u64>; 6] {
        if self.foreign && !self.sends() {
            return [Some(0); 6];
        }
        if !self.readings.is_empty() {
            let figures = |of: fn(&Reading) -> u64| self.readings.iter().map(of);
            let rtts = || figures(|one| micros(one.rtt_ns)).filter(|rtt| *rtt > 0);
            let mean = rtts().fold(0, u64::saturating_add)
                / u64::try_from(rtts().count().max(1)).unwrap_or(1);
            return [
                figures(|one| one.cwnd_bytes.as_u64()).max(),
                figures(|one| one.window_bytes.as_u64()).max(),
                rtts().max().or(Some(0)),
                rtts().min().or(Some(0)),
                Some(mean),
                figures(|one| u64::from(one.reordering)).max(),
            ];
        }
        let tcp = self.sender().and_then(|sender| sender.tcp.value());
        let rtt = tcp.map(|tcp| micros(tcp.rtt_ns));
        [
            tcp.map(|tcp| u64::from(tcp.cwnd_segments).saturating_mul(tcp.snd_mss_bytes.as_u64())),
            tcp.and_then(|tcp| tcp.snd_wnd_bytes).map(Bytes::as_u64),
            rtt,
            rtt,
            rtt,
            tcp.and_then(|tcp| tcp.reordering).map(u64::from),
        ]
    }
}

fn readings_of<T>(all: &[Vec<T>], index: usize) -> &[T] {
    all.get(index).map_or(&[], Vec::as_slice)
}

/// The sum, as far as all are known. A foreign end may report any number.
pub(super) fn sum_of(counts: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    let mut counts = counts;
    counts.try_fold(0_u64, |all, one| Some(all.saturating_add(one?)))
}

/// All that were sent, as far as a receiver knows.
fn all_of(received: &Datagrams) -> u64 {
    let all = received.count.saturating_add(received.lost);
    all.saturating_sub(received.duplicated)
}

fn micros(time: Nanoseconds) -> u64 {
    time.as_u64() / 1_000
}

fn millis(time: Nanoseconds) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_a_foreign_end_do_not_wrap_around() {
        let received = Datagrams {
            count: u64::MAX,
            lost: 2,
            duplicated: 1,
            ..Datagrams::default()
        };
        assert_eq!(all_of(&received), u64::MAX - 1);
        let one = Arrivals {
            jitter_ms: Some(1.0),
            lost: Some(u64::MAX),
            packets: Some(1),
        };
        let sum = Arrivals::sum(&[one, one]);
        assert_eq!((sum.lost, sum.packets), (Some(u64::MAX), Some(2)));
        assert_eq!(sum_of([Some(1), None].into_iter()), None);
    }
}
