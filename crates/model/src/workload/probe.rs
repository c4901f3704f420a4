//! Probes: datagrams that show when traffic was interrupted.

use serde::{Deserialize, Serialize};

use super::check::{SpecError, check_reliable, require};
use super::{TrialSpec, Udp, Verbs};
use crate::failover::{PATH_MTUS_MAX, RUNS_MAX, TRANSITS_MAX};
use crate::units::{Bytes, Nanoseconds};

/// Options of `udp` for a trial during which the path may fail. Each end goes on until its own clock says that the time
/// is over, whatever happens to the path; every lost or late number is recorded with the times around it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// A packet that takes this much longer than the fastest of its flow is late.
    pub late_ns: Nanoseconds,
    /// The flows of each direction whose TCP connections carry messages, too.
    #[serde(default)]
    pub message_flows: u32,
    /// The time between two messages of a flow.
    #[serde(default)]
    pub message_ns: Nanoseconds,
    /// Whether the receiver of a message answers it, so that it is a request.
    #[serde(default)]
    pub answers: Answers,
    /// The flows of each direction that also have a reliable connection over RDMA verbs, with a write as often as a message.
    #[serde(default)]
    pub write_flows: u32,
    /// How those are connected; set if there are any.
    #[serde(default)]
    pub verbs: Option<Verbs>,
    /// New TCP connections per second, from the end that connects.
    #[serde(default)]
    pub connects_per_s: u32,
}

/// Whether messages are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answers {
    /// No.
    #[default]
    None,
    /// Yes; both the messages and the answers are judged.
    Also,
    /// Yes, and only the answers are judged.
    Only,
}

impl Probe {
    /// The maximum number of flows in each direction.
    pub const FLOWS_MAX: u32 = 1_000;
    /// The maximum number of packets per second of all flows of a direction.
    pub const RATE_MAX: u64 = 1_000_000;
    /// The maximum number of connections that are not answered yet.
    pub const PENDING_MAX: u32 = 1_024;
    /// The length of a recorded run of lost or late numbers, as JSON, with what stands around it.
    const RUN_BYTES: usize = 400;
    /// The length of a recorded transit time, as JSON.
    const TRANSIT_BYTES: usize = 48;

    /// The maximum number of runs that a receiver records for each of `flows` flows: fewer for many flows, so that the
    /// record of the trial fits into a message.
    pub fn runs_max(flows: u32) -> usize {
        let flows = usize::try_from(flows).unwrap_or(usize::MAX).max(1);
        (60_000 / flows).clamp(16, RUNS_MAX)
    }

    /// The maximum length of the record of the probes of a trial of `flows` flows.
    pub(crate) fn record_bytes_max(flows: u32) -> usize {
        // In both directions, by datagrams, by messages, by their answers and by writes.
        let count = usize::try_from(flows).unwrap_or(usize::MAX).max(1);
        let each = Self::runs_max(flows) * Self::RUN_BYTES
            + (TRANSITS_MAX + PATH_MTUS_MAX) * Self::TRANSIT_BYTES;
        count.saturating_mul(8 * each)
    }

    fn has_interval(&self) -> bool {
        let interval = Nanoseconds::from_millis(1)..=Nanoseconds::from_millis(10_000);
        interval.contains(&self.message_ns)
    }

    pub(super) fn check(&self, udp: &Udp, spec: &TrialSpec) -> Result<(), SpecError> {
        require(
            spec.flows <= Self::FLOWS_MAX,
            "the number of flows that are probed",
            || spec.flows.to_string(),
            "1 to 1000",
        )?;
        let step = udp.step().map_or(0, Nanoseconds::as_u64);
        let per_s = u64::from(spec.flows) * 1_000_000_000 / step.max(1);
        require(
            (1_000..=10_000_000_000).contains(&step) && per_s <= Self::RATE_MAX,
            "the rate of the probes",
            || format!("{per_s} packets/s"),
            "one packet in 10 s of each flow to 1000000 packets/s of all",
        )?;
        require(
            (Nanoseconds::from_millis(1)..=Nanoseconds::from_millis(10_000))
                .contains(&self.late_ns),
            "what is late",
            || self.late_ns.to_string(),
            "1 ms to 10 s",
        )?;
        require(
            self.write_flows <= spec.flows
                && self.verbs.is_some() == (self.write_flows > 0)
                && (self.write_flows == 0 || self.has_interval()),
            "the RDMA writes",
            || format!("{} flows, one in {}", self.write_flows, self.message_ns),
            "no more flows than datagrams have, with the options of their connections; 1 ms to 10 s",
        )?;
        self.verbs.as_ref().map_or(Ok(()), check_reliable)?;
        require(
            self.message_flows <= spec.flows && (self.message_flows == 0 || self.has_interval()),
            "the messages on the TCP connections",
            || format!("{} flows, one in {}", self.message_flows, self.message_ns),
            "no more flows than datagrams have; 1 ms to 10 s",
        )?;
        require(
            self.connects_per_s <= 10_000,
            "the rate of new connections",
            || self.connects_per_s.to_string(),
            "0 to 10000 per second",
        )
    }
}

impl Udp {
    /// The time between two datagrams of a flow; none without a rate.
    pub fn step(&self) -> Option<Nanoseconds> {
        let rate = u128::from(self.rate_bit_per_s?.as_bit_per_s()).max(1);
        let bits = u128::from(self.datagram_bytes.as_u64()) * 8;
        let step = bits * 1_000_000_000 / rate;
        Some(Nanoseconds::new(u64::try_from(step).unwrap_or(u64::MAX)))
    }

    /// Probes of `bytes`, `per_s` packets per second of each flow.
    pub fn probing(bytes: Bytes, per_s: u32, probe: Probe) -> Self {
        let bits = bytes.as_u64() * 8 * u64::from(per_s);
        Self {
            datagram_bytes: bytes,
            rate_bit_per_s: Some(crate::units::BitRate::from_bit_per_s(bits)),
            batch: super::DatagramBatch::Single,
            probe: Some(probe),
        }
    }
}
