//! What the senders' kernels reported of the TCP connections that carry messages.

use linerate_model::failover::TcpTrack;
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_runtime::cli::FailoverWorkload;

use super::document::{BackoffResult, ClockResult, MtuChange, TcpResult};
use super::judge::Part;

/// Of a part of a trial; none of another workload, and if no sender could read it.
pub(super) fn of_part(part: &Part<'_>, clock: &ClockResult) -> Option<TcpResult> {
    if part.workload != FailoverWorkload::Tcp {
        return None;
    }
    let offset = part.sender_offset(clock);
    let here = |at: Nanoseconds| Nanoseconds::new(at.as_u64().saturating_add_signed(offset));
    let tracks: Vec<(u32, &TcpTrack)> = part
        .pairs
        .iter()
        .filter_map(|pair| Some((pair.flow, pair.sender?.departures.as_ref()?.tcp.as_ref()?)))
        .collect();
    let timers = tracks.iter().filter_map(|(_, track)| track.backoff);
    let backoff = timers.max_by_key(|timer| (timer.expirations, timer.timeout_ns));
    let changes = tracks.iter().flat_map(|(flow, track)| {
        let pairs = track.path_mtus.windows(2);
        pairs.map(|mtus| MtuChange {
            flow: *flow,
            at_ns: here(mtus[1].at_ns),
            from_bytes: mtus[0].bytes,
            to_bytes: mtus[1].bytes,
        })
    });
    (!tracks.is_empty()).then(|| TcpResult {
        backoff: backoff.map(|timer| BackoffResult {
            at_ns: here(timer.at_ns),
            expirations: timer.expirations,
            timeout_ns: timer.timeout_ns,
        }),
        path_mtu_changes: changes.collect(),
    })
}

/// In words, one line each: the longest timer, and how the path MTUs changed.
pub(super) fn in_words(result: &TcpResult) -> Vec<String> {
    let timer = result.backoff.as_ref().map(|timer| {
        format!(
            "retransmission timer expired up to {} in a row, time-out {}",
            match timer.expirations {
                1 => "once".to_owned(),
                times => format!("{times} times"),
            },
            timer.timeout_ns
        )
    });
    let mut changes: Vec<(Bytes, Bytes)> = Vec::new();
    for change in &result.path_mtu_changes {
        let one = (change.from_bytes, change.to_bytes);
        if !changes.contains(&one) {
            changes.push(one);
        }
    }
    let changes = changes.into_iter().map(|(from, to)| {
        let (from, to) = (from.as_u64(), to.as_u64());
        format!("path MTU {from} -> {to}")
    });
    timer.into_iter().chain(changes).collect()
}
