//! The limits of verbs.

use super::{SpecError, check_sizes, message, require};
use crate::units::Bytes;
use crate::workload::{
    Connect, DeviceChoice, Direction, Rdma, ReceiveMode, SendMode, Service, TrialSpec, Verb, Verbs,
    Waiting, Workload,
};

/// The maximum number of work requests over all queue pairs of a trial.
const REQUESTS_MAX: u64 = 1 << 22;
/// The maximum inline size; devices allow less.
const INLINE_MAX: u64 = 4_096;
/// The largest path MTU.
const MTU_MAX: u32 = 4_096;

impl TrialSpec {
    /// Checks the transport against the rest of the trial.
    pub(super) fn check_verbs(&self) -> Result<(), SpecError> {
        let Some(verbs) = &self.verbs else {
            return Ok(());
        };
        self.check_carried()?;
        self.check_no_sockets()?;
        self.check_service(verbs)?;
        check_queue_pair(verbs)?;
        self.check_requests(verbs)?;
        check_managed(verbs)?;
        let requests = u64::from(self.flows).saturating_mul(verbs.depth.into());
        require(
            requests <= REQUESTS_MAX,
            "the depth of all queue pairs",
            || requests.to_string(),
            "at most 4194304 together",
        )?;
        check_device(&verbs.local)?;
        check_device(&verbs.remote)
    }

    /// Checks that the workload exists over verbs.
    fn check_carried(&self) -> Result<(), SpecError> {
        let carried = match &self.workload {
            Workload::Stream(_)
            | Workload::Pingpong(_)
            | Workload::Transfer(_)
            | Workload::Diffusion(_)
            | Workload::Rdma(_) => true,
            Workload::Rr(rr) => !rr.connect_each,
            Workload::Http(_) | Workload::Udp(_) | Workload::Block(_) => false,
        };
        require(
            carried,
            "the transport",
            || format!("verbs, of `{}`", self.workload.name()),
            "verbs of stream, rr on connections that last, pingpong, transfer, diffusion and rdma-*",
        )
    }

    /// Rejects options that only sockets have.
    fn check_no_sockets(&self) -> Result<(), SpecError> {
        let plain = match &self.workload {
            Workload::Stream(stream) => {
                stream.send == SendMode::Write && stream.receive == ReceiveMode::Read
            }
            _ => true,
        };
        require(
            plain,
            "the send or receive mode",
            || "one of sockets, over verbs".to_owned(),
            "none: verbs bypass the kernel",
        )?;
        let of_tcp = [
            (self.socket_buffer_bytes.is_some(), "a socket buffer"),
            (self.congestion_control.is_some(), "a congestion control"),
            (self.mss_bytes.is_some(), "a segment size"),
            (self.pacing_bit_per_s.is_some(), "a pacing rate"),
        ];
        let given = of_tcp.iter().find(|(given, _)| *given);
        require(
            given.is_none(),
            "an option of TCP",
            || format!("{}, over verbs", given.map_or("", |(_, what)| what)),
            "none of those: a queue pair has a depth, a path MTU and a traffic class",
        )?;
        require(
            matches!(self.waiting, Waiting::Blocking | Waiting::Spin),
            "the wait method",
            || format!("{}, over verbs", self.waiting),
            "`blocking` (completion events) or `spin` (polling)",
        )
    }

    /// The options for requests are allowed only for request workloads over verbs.
    fn check_requests(&self, verbs: &Verbs) -> Result<(), SpecError> {
        let (measured, timed) = match &self.workload {
            Workload::Stream(_) => (true, false),
            Workload::Rdma(rdma) => (true, rdma.latency),
            _ => (false, false),
        };
        require(
            measured || verbs.inline_bytes.is_none(),
            "what goes within a work request",
            || format!("asked for, of `{}`", self.workload.name()),
            "of a stream and of `rdma-*`; here each end chooses",
        )?;
        require(
            (measured && !timed) || verbs.moderation.is_none(),
            "completion moderation (`--cq-mod`)",
            || {
                let what = if timed { "the latency of " } else { "" };
                format!("asked for, of {what}`{}`", self.workload.name())
            },
            "of a stream and of the rate of `rdma-*`; here each end chooses",
        )
    }

    /// UD messages are a single packet, and can only be sent.
    fn check_service(&self, verbs: &Verbs) -> Result<(), SpecError> {
        if verbs.service == Service::Rc {
            return Ok(());
        }
        let sent = match &self.workload {
            Workload::Rdma(rdma) if rdma.verb == Verb::Send => Some(rdma),
            _ => None,
        };
        require(
            sent.is_some(),
            "the service",
            || format!("UD, of `{}`", self.workload.name()),
            "UD of `rdma-send` only: datagrams cannot access remote memory and may be lost",
        )?;
        require(
            verbs.connect == Connect::Gid,
            "the connecting of UD",
            || verbs.connect.to_string(),
            "gid",
        )?;
        let packet = u64::from(verbs.mtu.unwrap_or(MTU_MAX));
        let largest = sent.and_then(|rdma| rdma.sizes.iter().max());
        require(
            largest.is_none_or(|size| size.as_u64() <= packet),
            "a message of UD",
            || largest.copied().unwrap_or_default().to_string(),
            "up to the path MTU: it is one packet",
        )
    }

    pub(super) fn check_rdma(&self, rdma: &Rdma) -> Result<(), SpecError> {
        require(
            self.verbs.is_some(),
            "the transport",
            || format!("{}, of `{}`", self.transport(), self.workload.name()),
            "verbs, for what measures them",
        )?;
        check_sizes(&rdma.sizes)?;
        for &size in &rdma.sizes {
            message("a message", size)?;
            require(
                rdma.verb != Verb::Atomic || size == Verb::ATOMIC_BYTES,
                "an atomic operation",
                || size.to_string(),
                "8 B",
            )?;
        }
        require(
            rdma.repetitions.is_none_or(|count| count > 0),
            "the repetitions",
            || "0".to_owned(),
            "1 and more",
        )?;
        require(
            !(rdma.latency && rdma.verb == Verb::Write && self.waiting != Waiting::Spin),
            "the wait method",
            || format!("`{}`, of the latency of a write", self.waiting),
            "`spin`: a write gives the remote end no completion, so it polls its memory",
        )?;
        require(
            !(rdma.latency && self.direction == Direction::Bidirectional),
            "the direction",
            || "both at once, of latency".to_owned(),
            "one: a single message is outstanding at a time",
        )
    }
}

/// The options of reliable connections beside another workload.
pub(in crate::workload) fn check_reliable(verbs: &Verbs) -> Result<(), SpecError> {
    require(
        verbs.service == Service::Rc,
        "the service",
        || "UD, of writes".to_owned(),
        "RC: datagrams cannot access remote memory",
    )?;
    check_queue_pair(verbs)?;
    check_managed(verbs)?;
    check_device(&verbs.local)?;
    check_device(&verbs.remote)
}

fn check_queue_pair(verbs: &Verbs) -> Result<(), SpecError> {
    require(
        (1..=16_384).contains(&verbs.depth),
        "the depth of a queue pair",
        || verbs.depth.to_string(),
        "1 to 16384",
    )?;
    require(
        verbs
            .moderation
            .is_none_or(|every| (1..=verbs.depth).contains(&every)),
        "completion moderation (`--cq-mod`)",
        || verbs.moderation.unwrap_or(0).to_string(),
        "1 to the depth",
    )?;
    require(
        verbs
            .inline_bytes
            .is_none_or(|bytes| bytes <= Bytes::new(INLINE_MAX)),
        "what goes within a work request",
        || verbs.inline_bytes.unwrap_or_default().to_string(),
        "0 B to 4 KiB",
    )?;
    require(
        verbs
            .mtu
            .is_none_or(|mtu| matches!(mtu, 256 | 512 | 1024 | 2048 | 4096)),
        "the path MTU",
        || verbs.mtu.unwrap_or(0).to_string(),
        "256, 512, 1024, 2048 or 4096 bytes",
    )?;
    require(
        verbs.service_level < 16,
        "the service level",
        || verbs.service_level.to_string(),
        "0 to 15",
    )?;
    require(
        verbs.ack_timeout.is_none_or(|n| (1..32).contains(&n)),
        "the exponent of the acknowledgement's timeout",
        || verbs.ack_timeout.unwrap_or(0).to_string(),
        "1 to 31",
    )
}

/// The connection manager resolves the path itself.
fn check_managed(verbs: &Verbs) -> Result<(), SpecError> {
    if verbs.connect != Connect::Cm {
        return Ok(());
    }
    let chosen = [
        (verbs.service_level != 0, "a service level"),
        (verbs.local.gid_index.is_some(), "a GID index"),
        (verbs.remote.gid_index.is_some(), "a GID index"),
    ];
    let given = chosen.iter().find(|(given, _)| *given);
    require(
        given.is_none(),
        "the connection manager parameters",
        || given.map_or("", |(_, what)| what).to_owned(),
        "a traffic class, from which it takes the rest (`default_roce_tos`, `default_roce_mode` of its configfs)",
    )
}

/// A name becomes a part of a path at the peer.
fn check_device(choice: &DeviceChoice) -> Result<(), SpecError> {
    let plain = |name: &str| {
        (1..=63).contains(&name.len())
            && !name.starts_with('.')
            && (name.bytes()).all(|byte| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte))
    };
    require(
        choice.device.as_deref().is_none_or(plain),
        "the RDMA device",
        || choice.device.clone().unwrap_or_default(),
        "a name such as `mlx5_0`, of at most 63 letters, digits and `_-.:`",
    )?;
    require(
        choice.port != Some(0),
        "the port of the RDMA device",
        || "0".to_owned(),
        "1 to 255",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::BitRate;
    use crate::workload::{MemoryPolicy, Placement, Stream};

    fn rdma(verb: Verb, sizes: &[u64]) -> TrialSpec {
        TrialSpec {
            workload: Workload::Rdma(Rdma {
                verb,
                latency: false,
                sizes: sizes.iter().copied().map(Bytes::new).collect(),
                repetitions: None,
                data_check: false,
            }),
            verbs: Some(Verbs::default()),
            waiting: Waiting::Spin,
            ..TrialSpec::default()
        }
    }

    fn refused(spec: &TrialSpec) -> String {
        spec.check().expect_err("an error").to_string()
    }

    fn with(mut spec: TrialSpec, change: impl FnOnce(&mut TrialSpec, &mut Verbs)) -> TrialSpec {
        let mut verbs = spec.verbs.take().expect("verbs");
        change(&mut spec, &mut verbs);
        TrialSpec {
            verbs: Some(verbs),
            ..spec
        }
    }

    #[test]
    fn every_verb_and_every_workload_that_lasts_goes_over_verbs() {
        for (verb, size) in [
            (Verb::Write, 65_536),
            (Verb::Read, 2),
            (Verb::Send, 1),
            (Verb::Atomic, 8),
        ] {
            assert_eq!(rdma(verb, &[size]).check(), Ok(()));
        }
        let stream = TrialSpec {
            verbs: Some(Verbs::default()),
            ..TrialSpec::default()
        };
        assert_eq!(stream.check(), Ok(()));
        assert_eq!(stream.transport(), "verbs");
        let bare = TrialSpec {
            verbs: None,
            ..rdma(Verb::Write, &[8])
        };
        assert!(refused(&bare).contains("the transport is tcp, of `rdma-write`"));
    }

    #[test]
    fn a_size_is_asked_for_once() {
        assert_eq!(rdma(Verb::Write, &[64, 65]).check(), Ok(()));
        let said = refused(&rdma(Verb::Write, &[64, 2, 64]));
        assert!(
            said.contains("a size is 64 B, twice: allowed is each once"),
            "{said}"
        );
    }

    #[test]
    fn datagrams_are_sent_and_no_longer_than_a_packet() {
        let ud =
            |verb, sizes: &[u64]| with(rdma(verb, sizes), |_, verbs| verbs.service = Service::Ud);
        assert_eq!(ud(Verb::Send, &[2, 4_096]).check(), Ok(()));
        assert!(refused(&ud(Verb::Write, &[2])).contains("UD, of `rdma-write`"));
        assert!(refused(&ud(Verb::Send, &[2, 4_097])).contains("up to the path MTU"));
        let small = with(ud(Verb::Send, &[2_048]), |_, verbs| verbs.mtu = Some(1_024));
        assert!(refused(&small).contains("2 KiB"));
        let by_cm = with(ud(Verb::Send, &[2]), |_, verbs| verbs.connect = Connect::Cm);
        assert!(refused(&by_cm).contains("allowed is gid"));
    }

    #[test]
    fn what_sockets_have_is_refused_over_verbs() {
        type Change = fn(&mut TrialSpec, &mut Verbs);
        let changes: [(&str, Change); 8] = [
            ("congestion", |spec, _| {
                spec.congestion_control = Some("cubic".to_owned());
            }),
            ("segment", |spec, _| {
                spec.mss_bytes = Some(Bytes::new(1_400));
            }),
            ("pacing", |spec, _| {
                spec.pacing_bit_per_s = Some(BitRate::from_mbit_per_s(1));
            }),
            ("socket buffer", |spec, _| {
                spec.socket_buffer_bytes = Some(Bytes::kib(64));
            }),
            ("epoll", |spec, _| spec.waiting = Waiting::Epoll),
            ("kernel", |spec, _| {
                spec.workload = Workload::Stream(Stream {
                    send: SendMode::Zerocopy,
                    ..Stream::default()
                });
            }),
            ("receive CPU", |spec, _| {
                spec.workload = Workload::default();
                spec.placement = Placement {
                    by_receive_cpu: true,
                    sender_memory: MemoryPolicy::Default,
                    ..Placement::default()
                };
            }),
            ("udp", |spec, _| {
                spec.workload = Workload::Udp(crate::workload::Udp {
                    datagram_bytes: Bytes::new(100),
                    rate_bit_per_s: None,
                    batch: crate::workload::DatagramBatch::Gso,
                    probe: None,
                });
            }),
        ];
        for (word, change) in changes {
            let said = refused(&with(rdma(Verb::Write, &[8]), change));
            assert!(said.contains(word), "{word}: {said}");
        }
    }

    #[test]
    fn a_queue_pair_has_its_limits_too() {
        type Change = fn(&mut TrialSpec, &mut Verbs);
        let changes: [(&str, Change); 8] = [
            ("the depth of a queue pair is 0", |_, verbs| verbs.depth = 0),
            ("1 to the depth", |_, verbs| verbs.moderation = Some(129)),
            ("the path MTU is 1500", |_, verbs| verbs.mtu = Some(1_500)),
            ("the service level is 16", |_, verbs| {
                verbs.service_level = 16;
            }),
            ("8 KiB", |_, verbs| {
                verbs.inline_bytes = Some(Bytes::kib(8));
            }),
            ("../x", |_, verbs| {
                verbs.remote.device = Some("../x".to_owned());
            }),
            ("port", |_, verbs| verbs.local.port = Some(0)),
            ("4194304 together", |spec, verbs| {
                spec.flows = 1_000;
                verbs.depth = 16_384;
                spec.interval_ns = spec.duration_ns;
            }),
        ];
        for (words, change) in changes {
            let said = refused(&with(rdma(Verb::Write, &[8]), change));
            assert!(said.contains(words), "{words}: {said}");
        }
    }

    #[test]
    fn what_an_end_would_pass_over_is_refused() {
        type Change = fn(&mut TrialSpec, &mut Verbs);
        type Made = fn(&mut TrialSpec);
        let transfer: Made = |spec| {
            spec.workload = Workload::Transfer(crate::workload::Transfer {
                bytes: Bytes::kib(64),
                repetitions: None,
                data_check: false,
            });
        };
        let timed: Made = |spec| {
            if let Workload::Rdma(rdma) = &mut spec.workload {
                rdma.latency = true;
            }
        };
        let changes: [(&str, Made, Change); 5] = [
            ("of `transfer`", transfer, |_, verbs| {
                verbs.inline_bytes = Some(Bytes::new(64));
            }),
            ("of `transfer`", transfer, |_, verbs| {
                verbs.moderation = Some(4);
            }),
            ("the latency of `rdma-send`", timed, |_, verbs| {
                verbs.moderation = Some(1);
            }),
            (
                "a service level",
                |_| {},
                |_, verbs| {
                    verbs.connect = Connect::Cm;
                    verbs.service_level = 3;
                },
            ),
            (
                "a GID index",
                |_| {},
                |_, verbs| {
                    verbs.connect = Connect::Cm;
                    verbs.remote.gid_index = Some(3);
                },
            ),
        ];
        for (words, what, change) in changes {
            let mut spec = rdma(Verb::Send, &[8]);
            what(&mut spec);
            assert_eq!(spec.check(), Ok(()), "{words}");
            let said = refused(&with(spec, change));
            assert!(said.contains(words), "{words}: {said}");
        }
    }

    #[test]
    fn the_far_end_of_a_timed_write_can_only_poll() {
        let timed = |waiting| {
            with(rdma(Verb::Write, &[2]), |spec, _| {
                spec.waiting = waiting;
                if let Workload::Rdma(rdma) = &mut spec.workload {
                    rdma.latency = true;
                }
            })
        };
        assert_eq!(timed(Waiting::Spin).check(), Ok(()));
        assert!(refused(&timed(Waiting::Blocking)).contains("latency of a write"));
    }

    #[test]
    fn an_atomic_operation_has_eight_bytes_and_latency_one_direction() {
        assert!(refused(&rdma(Verb::Atomic, &[8, 16])).contains("an atomic operation is 16 B"));
        let both = with(rdma(Verb::Send, &[2]), |spec, _| {
            spec.direction = Direction::Bidirectional;
            if let Workload::Rdma(rdma) = &mut spec.workload {
                rdma.latency = true;
            }
        });
        assert!(refused(&both).contains("both at once, of latency"));
    }
}
