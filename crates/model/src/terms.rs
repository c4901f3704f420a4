//! What the owner of a listening agent permits, and where the data of its trials arrives.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::ports::PortRange;
use crate::protocol::{Failure, FailureKind};
use crate::units::{BitRate, Bytes, Nanoseconds};
use crate::workload::{Direction, TrialSpec, Workload};

/// What a session of a listening agent may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionTerms {
    /// Whether settings may be changed.
    pub changes: bool,
    /// Whether commands may be run (`failover --do-remote`).
    pub commands: bool,
    /// What a trial may take.
    pub limits: TrialLimits,
    /// The ports that sockets may listen on which cannot share the agent's; `None` is any free one.
    pub ports: Option<PortRange>,
    /// The address of the agent's host that the controller has reached.
    pub reached: IpAddr,
    /// The process that listens, which has the controller's connection.
    pub listener_pid: u32,
}

/// What a trial may take; `None` is no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialLimits {
    /// Its duration.
    pub duration_ns: Option<Nanoseconds>,
    /// Its rate, in each direction.
    pub rate_bit_per_s: Option<BitRate>,
    /// Its flows, in each direction.
    pub flows: Option<u32>,
    /// The memory of its buffers.
    pub memory_bytes: Option<Bytes>,
    /// The names of its workloads; empty is all.
    pub workloads: Vec<String>,
}

impl TrialLimits {
    /// Refuses a trial that would exceed a limit.
    pub fn check(&self, spec: &TrialSpec) -> Result<(), Failure> {
        let name = spec.workload.name();
        if !self.workloads.is_empty() && !self.workloads.iter().any(|one| one == name) {
            let all = self.workloads.join(", ");
            return Err(refused(&format!("the workload `{name}`; it permits {all}")));
        }
        if let Some(most) = self.duration_ns.filter(|most| spec.duration_ns > *most) {
            let asked = spec.duration_ns;
            return Err(refused(&format!(
                "a trial of {asked}; its maximum is {most}"
            )));
        }
        if let Some(most) = self.flows.filter(|most| spec.flows > *most) {
            let asked = spec.flows;
            return Err(refused(&format!("{asked} flows; its maximum is {most}")));
        }
        if let Some(most) = self.memory_bytes.filter(|most| spec.memory() > *most) {
            let asked = spec.memory();
            return Err(refused(&format!(
                "buffers of {asked}; its maximum is {most}"
            )));
        }
        match self.rate_bit_per_s {
            Some(most) => check_rate(spec, most),
            None => Ok(()),
        }
    }

    /// The pacing rate of each connection of this end, so that what it sends stays below the limit whatever the other end
    /// asks for; `None` where nothing is limited or the kernel does not pace.
    pub fn pacing(&self, spec: &TrialSpec) -> Option<BitRate> {
        let most = self.rate_bit_per_s.filter(|_| spec.verbs.is_none())?;
        let share =
            BitRate::from_bit_per_s((most.as_bit_per_s() / u64::from(spec.flows.max(1))).max(8));
        Some(spec.pacing_bit_per_s.map_or(share, |own| own.min(share)))
    }
}

/// How many bytes a session may still move: a bucket that fills at the limit of its trials, and holds a second's worth.
/// A tenth more than the limit is permitted: a paced sender bursts.
#[derive(Debug, Clone, Copy)]
pub struct RateBudget {
    bytes_per_s: u64,
    left: i128,
}

impl RateBudget {
    /// A full one.
    pub fn of(limit: BitRate) -> Self {
        let bytes_per_s = limit.as_bit_per_s() / 8 * 11 / 10;
        Self {
            bytes_per_s,
            left: bytes_per_s.into(),
        }
    }

    /// Takes what `directions` directions have moved together in `elapsed_ns`; whether that was permitted.
    pub fn take(&mut self, bytes: u64, elapsed_ns: Nanoseconds, directions: u64) -> bool {
        let per_s = i128::from(self.bytes_per_s) * i128::from(directions);
        let filled = per_s * i128::from(elapsed_ns.as_u64()) / 1_000_000_000;
        self.left = (self.left + filled).min(per_s) - i128::from(bytes);
        self.left >= 0
    }
}

/// Refuses a bulk transfer that is not limited to `most` by its own pacing. The rate of other workloads follows from the
/// responses, and is only watched.
fn check_rate(spec: &TrialSpec, most: BitRate) -> Result<(), Failure> {
    let (option, each) = match &spec.workload {
        Workload::Udp(udp) => ("--rate", udp.rate_bit_per_s),
        Workload::Stream(_) if spec.verbs.is_none() => ("--pacing", spec.pacing_bit_per_s),
        Workload::Rdma(_) | Workload::Stream(_) => {
            let why =
                format!("RDMA: RDMA has no pacing that keeps it to its maximum rate of {most}");
            return Err(refused(&why));
        }
        _ => return Ok(()),
    };
    let flows = u64::from(spec.flows.max(1));
    let sum = each.map(|each| each.as_bit_per_s().saturating_mul(flows));
    if sum.is_some_and(|sum| sum <= most.as_bit_per_s()) {
        return Ok(());
    }
    let share = rounded_down(most.as_bit_per_s() / flows);
    let both = if spec.direction == Direction::Bidirectional {
        " in each direction"
    } else {
        ""
    };
    Err(refused(&format!(
        "this rate: its maximum is {most}{both}; pass `{option} {share}` (of each flow)"
    )))
}

/// A rate as an option takes it, not above `bit_per_s`.
fn rounded_down(bit_per_s: u64) -> String {
    match bit_per_s {
        1_000_000.. => format!("{}Mb/s", bit_per_s / 1_000_000),
        1_000.. => format!("{}kb/s", bit_per_s / 1_000),
        _ => format!("{bit_per_s}b/s"),
    }
}

fn refused(what: &str) -> Failure {
    Failure {
        kind: FailureKind::Permission,
        message: format!("the agent's owner does not permit {what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> TrialLimits {
        TrialLimits {
            duration_ns: Some(Nanoseconds::from_millis(10_000)),
            rate_bit_per_s: Some(BitRate::from_bit_per_s(1_000_000_000)),
            flows: Some(4),
            memory_bytes: Some(Bytes::mib(16)),
            workloads: vec!["stream".to_owned(), "udp".to_owned()],
        }
    }

    fn paced() -> TrialSpec {
        TrialSpec {
            flows: 4,
            pacing_bit_per_s: Some(BitRate::from_bit_per_s(250_000_000)),
            ..TrialSpec::default()
        }
    }

    #[test]
    fn a_trial_at_its_limits_is_permitted_and_each_limit_refuses_what_exceeds_it() {
        assert_eq!(limits().check(&paced()), Ok(()));
        let cases = [
            (
                TrialSpec {
                    flows: 5,
                    ..paced()
                },
                "5 flows",
            ),
            (
                TrialSpec {
                    duration_ns: Nanoseconds::from_millis(10_001),
                    ..paced()
                },
                "its maximum is 10.00 s",
            ),
            (
                TrialSpec {
                    buffer_bytes: Bytes::mib(5),
                    ..paced()
                },
                "buffers of 20 MiB",
            ),
            (
                TrialSpec {
                    socket_buffer_bytes: Some(Bytes::mib(2)),
                    ..paced()
                },
                "buffers of",
            ),
            (
                TrialSpec {
                    pacing_bit_per_s: None,
                    ..paced()
                },
                "`--pacing 250Mb/s`",
            ),
            (
                TrialSpec {
                    pacing_bit_per_s: None,
                    flows: 3,
                    ..paced()
                },
                "`--pacing 333Mb/s`",
            ),
            (
                TrialSpec {
                    pacing_bit_per_s: Some(BitRate::from_bit_per_s(250_000_001)),
                    ..paced()
                },
                "its maximum is 1.00 Gb/s",
            ),
            (
                TrialSpec {
                    workload: Workload::Transfer(crate::workload::Transfer {
                        bytes: Bytes::kib(1),
                        repetitions: None,
                        data_check: false,
                    }),
                    ..paced()
                },
                "it permits stream, udp",
            ),
        ];
        for (spec, why) in cases {
            let failure = limits().check(&spec).expect_err(why);
            assert_eq!(failure.kind, FailureKind::Permission);
            assert!(failure.message.contains(why), "{why}: {failure}");
        }
    }

    #[test]
    fn without_limits_everything_is_permitted_and_nothing_is_paced() {
        assert_eq!(TrialLimits::default().check(&TrialSpec::default()), Ok(()));
        assert_eq!(TrialLimits::default().pacing(&paced()), None);
    }

    #[test]
    fn each_connection_is_paced_to_its_share_or_to_what_was_requested() {
        let pacing = |pacing_bit_per_s, flows| {
            let spec = TrialSpec {
                flows,
                pacing_bit_per_s,
                ..TrialSpec::default()
            };
            limits().pacing(&spec).map(BitRate::as_bit_per_s)
        };
        assert_eq!(pacing(None, 4), Some(250_000_000));
        assert_eq!(
            pacing(Some(BitRate::from_mbit_per_s(1)), 4),
            Some(1_000_000)
        );
        assert_eq!(
            pacing(Some(BitRate::from_mbit_per_s(900)), 4),
            Some(250_000_000)
        );
    }

    #[test]
    fn a_session_that_keeps_to_its_rate_is_never_stopped_and_short_bursts_do_not_add_up() {
        let second = Nanoseconds::from_millis(1_000);
        let mut steady = RateBudget::of(BitRate::from_bit_per_s(1_000_000_000));
        assert!((0..1_000).all(|_| steady.take(125_000_000, second, 1)));
        // Trials of 0.1 s with a second's worth each.
        let mut bursts = RateBudget::of(BitRate::from_bit_per_s(1_000_000_000));
        let tenth = Nanoseconds::from_millis(100);
        let permitted = (0..10)
            .take_while(|_| bursts.take(125_000_000, tenth, 1))
            .count();
        assert_eq!(permitted, 1);
        // Idle time does not add up either.
        let mut idle = RateBudget::of(BitRate::from_bit_per_s(1_000_000_000));
        assert!(idle.take(0, Nanoseconds::from_millis(3_600_000), 1));
        assert!(!idle.take(300_000_000, Nanoseconds::new(0), 1));
    }
}
