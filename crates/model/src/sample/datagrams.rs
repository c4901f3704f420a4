//! What each end of a flow of datagrams counted.

use serde::{Deserialize, Serialize};

use crate::failover::ProbeRecord;
use crate::latency::Histogram;
use crate::units::Nanoseconds;
use crate::workload::DatagramBatch;

/// The datagrams of one end of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Datagrams {
    /// At the sender: sent; at the receiver: received, including duplicates.
    pub count: u64,
    /// At the receiver: sent (reported by the sender at the end) but not received.
    pub lost: u64,
    /// At the receiver: received after one that was sent later.
    pub reordered: u64,
    /// At the receiver: duplicates.
    pub duplicated: u64,
    /// At the receiver: interarrival jitter (RFC 3550, 6.4.1).
    pub jitter_ns: Nanoseconds,
    /// At the receiver: one-way delay, if both ends share a clock; otherwise empty.
    pub delay: Option<Histogram>,
    /// At the receiver: datagrams dropped by its socket, mostly because its buffer was full (`SO_MEMINFO`); with
    /// `UDP_GRO`, each coalesced packet counts once. Empty if the kernel does not report it.
    #[serde(default)]
    pub socket_drops: Option<u64>,
    /// At the receiver: those that arrived on time; empty if an older linerate recorded the trial.
    #[serde(default)]
    pub on_time: Option<OnTime>,
    /// How they were actually sent and received: `UDP_SEGMENT` cannot segment datagrams above the path MTU.
    #[serde(default)]
    pub batch: Option<DatagramBatch>,
    /// Of probes: the lost and late ones with the times around them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Box<ProbeRecord>>,
    /// At the receiver: the runs of lost datagrams; empty if an older linerate or another program recorded the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gaps: Option<DatagramGaps>,
}

/// Runs of consecutive datagrams of a flow that were lost, in the sender's time. A pause between two arrivals without a lost
/// datagram is no gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DatagramGaps {
    /// How many.
    pub count: u64,
    /// The longest: from the last datagram before it that arrived to the first one after it, less a step; known to within a
    /// step, or within the longest send gap. Null without a gap.
    pub longest_ns: Option<Nanoseconds>,
    /// When it began, since the flow's first datagram was sent.
    pub longest_at_ns: Option<Nanoseconds>,
    /// The resolution: the planned time between two datagrams of the flow, or without a rate the mean.
    pub step_ns: Nanoseconds,
    /// The longest time between two datagrams of the sender of which none was lost.
    pub longest_send_gap_ns: Nanoseconds,
}

impl DatagramGaps {
    /// Those of two flows: of all together the longest.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let longer = if other.longest_ns > self.longest_ns {
            other
        } else {
            self
        };
        Self {
            count: self.count.saturating_add(other.count),
            longest_ns: longer.longest_ns,
            longest_at_ns: longer.longest_at_ns,
            step_ns: self.step_ns.max(other.step_ns),
            longest_send_gap_ns: self.longest_send_gap_ns.max(other.longest_send_gap_ns),
        }
    }
}

/// What arrived within the trial's planned duration, counted from the first datagram. A sender that keeps its rate
/// sends everything in that time; what arrives later stood in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnTime {
    /// When the first datagram arrived, since this end's start.
    pub first_ns: Nanoseconds,
    /// How many arrived within the planned duration from then on, including duplicates.
    pub count: u64,
}
