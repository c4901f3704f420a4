//! Our own record of an end in iperf3's terms, and the other end's results in ours.

use std::time::Duration;

use linerate_model::known::{Cause, Known};
use linerate_model::sample::{CpuRecord, Datagrams, Flag, FlowRecord, Role, Sample, SideSample};
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{TrialSpec, Workload};

use super::client::Foreign;
use crate::iperf3_protocol::{Omitted, Results, StreamResults, stream_id};

/// This end's results. `omitted` are the datagrams that do not count, by flow, of the time
/// `omit` at the beginning.
pub(super) fn results_of(side: &SideSample, omitted: &[(u32, Omitted)], omit: Duration) -> Results {
    let percent = |time: Nanoseconds| {
        let elapsed = side.elapsed_ns.as_secs_f64();
        if elapsed > 0.0 {
            100.0 * time.as_secs_f64() / elapsed
        } else {
            0.0
        }
    };
    let user = percent(side.cpu.threads_user_ns);
    let system = percent(side.cpu.threads_system_ns);
    let sends = side.senders().next().is_some();
    let streams = side.flows.iter().map(|flow| {
        let omitted = omitted.iter().find(|(number, _)| *number == flow.flow);
        stream_of(flow, omitted.map(|(_, omitted)| *omitted), omit)
    });
    let streams: Vec<StreamResults> = streams.collect();
    let knows = streams.iter().any(|stream| stream.retransmits.is_some());
    let congestion = side.flows.iter().find_map(|flow| flow.tcp.value());
    Results {
        cpu_percent: user + system,
        cpu_user_percent: user,
        cpu_system_percent: system,
        has_retransmits: sends.then_some(knows),
        congestion: congestion.and_then(|tcp| tcp.congestion_control.clone()),
        streams,
    }
}

fn stream_of(flow: &FlowRecord, omitted: Option<Omitted>, omit: Duration) -> StreamResults {
    let sends = flow.role == Role::Sender;
    let datagrams = flow.datagrams.as_ref();
    let lost = datagrams.map_or(0, |datagrams| datagrams.lost);
    // A receiver counts lost datagrams as sent, and duplicates as sent once.
    // The losses are computed from the client's numbers, which may be arbitrary.
    let packets = datagrams.map_or(0, |datagrams| {
        let all = datagrams.count.saturating_add(lost);
        all.saturating_sub(datagrams.duplicated)
    });
    let end = flow.at_ns.last().copied().unwrap_or_default();
    let before = bytes_at(flow, Nanoseconds::from(omit));
    let counted = flow.total().as_u64().saturating_sub(before);
    StreamResults {
        id: stream_id(flow.flow),
        bytes: Bytes::new(counted),
        retransmits: (flow.tcp.value().filter(|_| sends)).map(|tcp| u64::from(tcp.retransmits)),
        jitter_s: datagrams.map_or(0.0, |datagrams| datagrams.jitter_ns.as_secs_f64()),
        errors: lost,
        packets,
        omitted,
        start_s: 0.0,
        end_s: (end.as_secs_f64() - omit.as_secs_f64()).max(0.0),
    }
}

/// What a flow had moved by `time`, between two readings in proportion.
pub fn bytes_at(flow: &FlowRecord, time: Nanoseconds) -> u64 {
    if time == Nanoseconds::default() {
        return 0;
    }
    let next = flow.at_ns.partition_point(|&at| at < time);
    let point = |index: usize| {
        let (at, bytes) = (flow.at_ns.get(index)?, flow.bytes.get(index)?);
        Some((at.as_u64(), bytes.as_u64()))
    };
    let (from_at, from_bytes) = next.checked_sub(1).and_then(point).unwrap_or((0, 0));
    let Some((to_at, to_bytes)) = point(next) else {
        return from_bytes;
    };
    let width = to_at.saturating_sub(from_at);
    let part = time.as_u64().saturating_sub(from_at);
    let grown = to_bytes.saturating_sub(from_bytes);
    let moved = u128::from(grown) * u128::from(part) / u128::from(width.max(1));
    from_bytes.saturating_add(u64::try_from(moved).unwrap_or(u64::MAX))
}

impl Foreign {
    /// Both ends as one sample of ours. Of the remote end only the server's results are known: its bytes at its
    /// end, its CPU time (of its whole process), its datagrams.
    pub fn sample(&self, spec: &TrialSpec) -> Sample {
        Sample {
            spec: spec.clone(),
            remote: self.remote(spec),
            local: self.local.clone(),
            shared_kernel: false,
            flags: vec![Flag::ForeignPeer],
        }
    }

    /// The server's results, as a record of ours.
    pub fn remote(&self, spec: &TrialSpec) -> SideSample {
        let untold = |what: &str| format!("an iperf3 server does not report {what}");
        let path = "results of the iperf3 server";
        let elapsed = self.local.elapsed_ns;
        let share = |percent: f64| {
            let time = elapsed.as_secs_f64() * (percent / 100.0).max(0.0);
            Duration::try_from_secs_f64(time).map_or(Nanoseconds::default(), Nanoseconds::from)
        };
        let udp = matches!(spec.workload, Workload::Udp(_));
        let flows = self.local.flows.iter().filter_map(|flow| {
            let told = self.server.stream(flow.flow)?;
            let role = match flow.role {
                Role::Sender => Role::Receiver,
                Role::Receiver => Role::Sender,
            };
            let end = Duration::try_from_secs_f64(told.end_s - told.start_s).ok();
            let end = end.filter(|end| !end.is_zero()).map(Nanoseconds::from);
            Some(FlowRecord {
                flow: flow.flow,
                role,
                thread: flow.flow,
                at_ns: vec![end.unwrap_or(elapsed)],
                bytes: vec![told.bytes],
                pinned_to: None,
                last_cpu: Known::unknown(Cause::NotSaid, path, untold("its CPUs")),
                incoming_cpu: Known::unknown(Cause::NotSaid, path, untold("its CPUs")),
                incoming_napi: Known::unknown(Cause::NotSaid, path, untold("its NAPI")),
                user_ns: Nanoseconds::default(),
                system_ns: Nanoseconds::default(),
                tcp: Known::unknown(Cause::NotSaid, path, untold("its TCP_INFO")),
                copies: None,
                datagrams: udp.then(|| datagrams_of(told, role)),
                drained: None,
                grid: None,
                verbs: None,
            })
        });
        SideSample {
            flows: flows.collect(),
            cpu: CpuRecord {
                threads_user_ns: share(self.server.cpu_user_percent),
                threads_system_ns: share(self.server.cpu_system_percent),
                machine: Known::unknown(Cause::NotSaid, path, untold("its machine's CPU time")),
                series: Vec::new(),
                frequency: Known::unknown(Cause::NotSaid, path, untold("its CPUs' frequencies")),
                recording_ns: Known::unknown(Cause::NotSaid, path, untold("what its record cost")),
            },
            elapsed_ns: elapsed,
            threads: Vec::new(),
            operations: None,
            counters: Known::unknown(Cause::NotSaid, path, untold("its counters")),
            profile: Known::unknown(Cause::NotSaid, path, untold("a profile")),
            interface: None,
            events: None,
            commands: Vec::new(),
        }
    }
}

fn datagrams_of(told: &StreamResults, role: Role) -> Datagrams {
    let receives = role == Role::Receiver;
    let lost = if receives { told.errors } else { 0 };
    let jitter = Duration::try_from_secs_f64(told.jitter_s).unwrap_or_default();
    Datagrams {
        count: told.packets.saturating_sub(lost),
        lost,
        jitter_ns: Nanoseconds::from(jitter),
        ..Datagrams::default()
    }
}

#[cfg(test)]
mod tests {
    use linerate_model::build;

    use super::*;

    #[test]
    fn between_two_readings_bytes_grow_in_proportion() {
        let mut flow = build::sample().flows(1).build().local.flows[0].clone();
        flow.at_ns = [100, 200].map(Nanoseconds::new).to_vec();
        flow.bytes = [1_000, 3_000].map(Bytes::new).to_vec();
        let at = |time| bytes_at(&flow, Nanoseconds::new(time));
        assert_eq!([at(0), at(50), at(100), at(150)], [0, 500, 1_000, 2_000]);
        assert_eq!([at(200), at(900)], [3_000, 3_000]);
    }

    #[test]
    fn numbers_of_a_foreign_sender_do_not_wrap_around() {
        let mut account = super::super::datagram::Account::default();
        for number in [1, u64::MAX, 2, u64::MAX, 3] {
            let sent = Duration::from_secs(number % 7);
            let header = super::super::datagram::Header { sent, number };
            account.take(header, Duration::ZERO);
        }
        let mut side = build::sample().flows(1).build().local;
        side.flows[0].datagrams = Some(account.record());
        let told = results_of(&side, &[], Duration::ZERO);
        let lost = account.record().lost;
        assert!(
            told.streams[0].packets >= lost && lost > u64::MAX - 8,
            "{told:?}"
        );
    }

    #[test]
    fn a_record_that_runs_backwards_gives_no_bytes_and_no_panic() {
        let mut flow = build::sample().flows(1).build().local.flows[0].clone();
        flow.at_ns = [200, 100, u64::MAX].map(Nanoseconds::new).to_vec();
        flow.bytes = [u64::MAX, 5, 1].map(Bytes::new).to_vec();
        for time in [0, 50, 100, 150, 250, u64::MAX] {
            let _ = bytes_at(&flow, Nanoseconds::new(time));
        }
    }
}
