//! The limits of a trial: the agent validates a controller's request with them.

mod verbs;

pub(super) use verbs::check_reliable;

use super::{
    Block, Diffusion, Direction, Http, Marks, Pingpong, ReceiveMode, Rr, SendMode, Stream,
    Transfer, TrialSpec, Udp, Waiting, Workload,
};
use crate::block::{DEPTH_MAX, JOB_BUFFER_MAX};
use crate::units::{BitRate, Bytes, Nanoseconds};

/// A violated limit of [`TrialSpec`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} is {given}: allowed is {allowed}")]
pub struct SpecError {
    /// The field.
    pub what: &'static str,
    /// Its value.
    pub given: String,
    /// The allowed values.
    pub allowed: &'static str,
}

/// An error unless `holds`.
pub(super) fn require(
    holds: bool,
    what: &'static str,
    given: impl FnOnce() -> String,
    allowed: &'static str,
) -> Result<(), SpecError> {
    if holds {
        return Ok(());
    }
    Err(SpecError {
        what,
        given: given(),
        allowed,
    })
}

/// The message sizes of a trial; the results of a size are identified by its bytes.
fn check_sizes(sizes: &[Bytes]) -> Result<(), SpecError> {
    require(
        (1..=256).contains(&sizes.len()),
        "the number of sizes",
        || sizes.len().to_string(),
        "1 to 256",
    )?;
    let mut earlier = (0..).zip(sizes);
    let twice = earlier.find(|&(index, size)| sizes[..index].contains(size));
    require(
        twice.is_none(),
        "a size",
        || twice.map_or_else(String::new, |(_, size)| format!("{size}, twice")),
        "each once",
    )
}

/// The maximum size of a message, a request or a datagram's buffer.
const MESSAGE_MAX: u64 = 1 << 30;
/// The maximum total size of the buffers of all flows.
const MEMORY_MAX: u64 = 8 << 30;

impl TrialSpec {
    /// Checks what is excluded from the rate.
    fn check_omitted(&self) -> Result<(), SpecError> {
        let Some(omit) = self.omit_ns else {
            return Ok(());
        };
        // Latencies are recorded over the whole trial, sizes have their own part of it, and an amount ends when it is done.
        let has_one_rate =
            self.workload.is_bulk() && !self.workload.is_sweep() && !self.workload.ends_by_itself();
        let ends = omit.as_u64().saturating_add(self.interval_ns.as_u64());
        require(
            has_one_rate && !self.unrecorded && ends <= self.duration_ns.as_u64(),
            "the omitted start",
            || omit.to_string(),
            "at least one reading less than the duration; not with `--bytes` or `--no-record`, and only for `stream`, `udp` and `rdma-*` of one size",
        )
    }

    /// The kernel takes bytes per second, and 0 for no limit.
    fn check_pacing(&self) -> Result<(), SpecError> {
        require(
            (self.pacing_bit_per_s).is_none_or(|rate| rate.as_bit_per_s() >= 8),
            "the pacing rate",
            || self.pacing_bit_per_s.unwrap_or_default().to_string(),
            "8 b/s and more",
        )
    }

    /// Sockets are marked, not queue pairs, which have a traffic class and a service level.
    fn check_marks(&self) -> Result<(), SpecError> {
        let marks = &self.marks;
        require(
            marks.dscp.is_none_or(|dscp| dscp <= Marks::DSCP_MAX),
            "the DSCP",
            || marks.dscp.unwrap_or(0).to_string(),
            "0 to 63",
        )?;
        let is_udp = matches!(self.workload, Workload::Udp(_));
        require(
            marks.udp_port.is_none_or(|port| port > 0 && is_udp),
            "the port of the datagrams",
            || marks.udp_port.unwrap_or(0).to_string(),
            "1 to 65535, for `udp`",
        )?;
        require(
            self.verbs.is_none() || marks.is_none(),
            "the marks of the packets",
            || "over verbs".to_owned(),
            "none over verbs, where `--traffic-class` and `--service-level` are set",
        )
    }

    /// Checks that both ends can run it.
    pub fn check(&self) -> Result<(), SpecError> {
        self.check_end()?;
        // The other end may wait in a way that the workload does not have, or use more buffers.
        if self.threads_remote.is_some() || self.waiting_remote.is_some() {
            self.at_other_end().check_end()?;
        }
        Ok(())
    }

    fn check_end(&self) -> Result<(), SpecError> {
        require(
            (1..=Self::FLOWS_MAX).contains(&self.flows),
            "the number of flows",
            || self.flows.to_string(),
            "1 to 10000",
        )?;
        require(
            (1..=Self::THREADS_MAX).contains(&self.threads.unwrap_or(1)),
            "the number of threads",
            || self.threads.unwrap_or(0).to_string(),
            "1 to 1024",
        )?;
        self.check_omitted()?;
        require(
            (0.05..=86_400.0).contains(&self.duration_ns.as_secs_f64()),
            "the duration",
            || self.duration_ns.to_string(),
            "50 ms to 24 h",
        )?;
        self.check_interval()?;
        require(
            (1..=MESSAGE_MAX).contains(&self.buffer_bytes.as_u64()),
            "the buffer",
            || self.buffer_bytes.to_string(),
            "1 B to 1 GiB",
        )?;
        self.check_pacing()?;
        self.check_marks()?;
        require(
            self.socket_buffer_bytes
                .is_none_or(|size| size.as_u64() <= MESSAGE_MAX),
            "the socket buffer",
            || self.socket_buffer_bytes.unwrap_or_default().to_string(),
            "up to 1 GiB",
        )?;
        self.check_congestion_control()?;
        require(
            (self.mss_bytes).is_none_or(|mss| (88..=32_767).contains(&mss.as_u64())),
            "the segment size",
            || self.mss_bytes.unwrap_or_default().to_string(),
            "88 to 32767 bytes",
        )?;
        self.check_waiting()?;
        require(
            self.profile_hz.is_none_or(|hz| (1..=10_000).contains(&hz)),
            "the perf sampling rate",
            || self.profile_hz.unwrap_or(0).to_string(),
            "1 to 10000",
        )?;
        require(
            !self.placement.by_receive_cpu || self.keeps_its_connections(),
            "the placement by receive CPU",
            || {
                format!(
                    "asked of `{}` over {}",
                    self.workload.name(),
                    self.transport()
                )
            },
            "stream, rr, pingpong, transfer and diffusion on persistent TCP connections",
        )?;
        self.check_threads_remote()?;
        self.check_verbs()?;
        self.check_workload()
    }

    /// Where two threads keep in step, the remote end has as many as this one.
    fn check_threads_remote(&self) -> Result<(), SpecError> {
        let in_step = match self.workload {
            // Both ends serve the pairs of a thread in turn.
            Workload::Transfer(_) | Workload::Diffusion(_) => true,
            // Two threads connect their queue pairs.
            _ => self.verbs.is_some(),
        };
        require(
            !in_step || self.threads() == self.threads_remote(),
            "the number of threads of the remote end",
            || {
                let (threads, workload) = (self.threads_remote(), self.workload.name());
                format!("{threads}, of `{workload}` over {}", self.transport())
            },
            "as many as at this end for transfer and diffusion, and over verbs",
        )
    }

    fn check_waiting(&self) -> Result<(), SpecError> {
        if let Waiting::BusyPoll(micros) = self.waiting {
            require(
                (1..=1_000_000).contains(&micros),
                "the busy-poll time",
                || micros.to_string(),
                "1 to 1000000 us",
            )?;
        }
        Ok(())
    }

    fn check_congestion_control(&self) -> Result<(), SpecError> {
        let Some(name) = &self.congestion_control else {
            return Ok(());
        };
        let plain = (1..=15).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic());
        require(
            plain,
            "the congestion control",
            || name.clone(),
            "a name of 1 to 15 characters",
        )
    }

    /// Whether the payload goes over the connections that the trial is set up with.
    fn keeps_its_connections(&self) -> bool {
        self.verbs.is_none()
            && match &self.workload {
                Workload::Stream(_)
                | Workload::Pingpong(_)
                | Workload::Transfer(_)
                | Workload::Diffusion(_) => true,
                Workload::Rr(rr) => !rr.connect_each,
                Workload::Http(_) | Workload::Udp(_) | Workload::Rdma(_) | Workload::Block(_) => {
                    false
                }
            }
    }

    /// The number of flow readings in a trial.
    pub(crate) fn readings(&self) -> u64 {
        let intervals = self.duration_ns.as_u64() / self.interval_ns.as_u64().max(1);
        let ways = if self.direction == Direction::Bidirectional {
            2
        } else {
            1
        };
        intervals.saturating_mul(u64::from(self.flows) * ways)
    }

    fn check_interval(&self) -> Result<(), SpecError> {
        let in_range =
            self.interval_ns >= Nanoseconds::from_millis(1) && self.interval_ns <= self.duration_ns;
        require(
            in_range,
            "the interval",
            || self.interval_ns.to_string(),
            "1 ms to the duration",
        )?;
        // Limits the memory for readings, and keeps a record within the protocol's maximum line length.
        require(
            self.readings() <= 1_000_000,
            "the interval",
            || self.interval_ns.to_string(),
            "at most a million per trial, over all flows",
        )
    }

    fn check_workload(&self) -> Result<(), SpecError> {
        match &self.workload {
            Workload::Stream(stream) => self.check_stream(stream),
            Workload::Rr(rr) => Self::check_rr(rr),
            Workload::Pingpong(pingpong) => Self::check_pingpong(pingpong),
            Workload::Http(http) => check_http(http),
            Workload::Transfer(Transfer {
                bytes, repetitions, ..
            }) => {
                message("the buffer of a transfer", *bytes)?;
                check_repetitions(*repetitions)
            }
            Workload::Diffusion(diffusion) => Self::check_diffusion(diffusion),
            Workload::Udp(
                udp @ Udp {
                    datagram_bytes,
                    rate_bit_per_s,
                    ..
                },
            ) => {
                require(
                    (24..=65_507).contains(&datagram_bytes.as_u64()),
                    "the datagram",
                    || datagram_bytes.to_string(),
                    "24 to 65507 bytes",
                )?;
                require(
                    *rate_bit_per_s != Some(BitRate::default()),
                    "the rate of a flow",
                    || "0".to_owned(),
                    "1 bit/s and more, or none at all",
                )?;
                match &udp.probe {
                    Some(probe) => probe.check(udp, self),
                    None => Ok(()),
                }
            }
            Workload::Rdma(rdma) => self.check_rdma(rdma),
            Workload::Block(block) => self.check_block(block),
        }?;
        let (each, count) = self.buffers();
        require(
            each.as_u64().saturating_mul(u64::from(count)) <= MEMORY_MAX,
            "the buffers of all threads",
            || each.to_string(),
            "8 GiB together",
        )
    }

    /// The size of a buffer of an end, and their number.
    fn buffers(&self) -> (Bytes, u32) {
        let largest = |sizes: &[Bytes]| sizes.iter().copied().max().unwrap_or_default();
        // What is verified needs two additional buffers.
        let checked = |data_check: bool| if data_check { 3 } else { 1 };
        let (each, of_each) = match &self.workload {
            // A thread has one buffer, however many flows it serves.
            Workload::Stream(_) => return (self.buffer_bytes, self.threads()),
            Workload::Http(http) => return (http.body_bytes, self.threads()),
            Workload::Udp(udp) => return (udp.datagram_bytes, self.threads()),
            Workload::Rr(rr) => (rr.request_bytes.max(rr.response_bytes), 1),
            Workload::Pingpong(pingpong) => {
                (largest(&pingpong.sizes), checked(pingpong.data_check))
            }
            Workload::Transfer(transfer) => (transfer.bytes, 2),
            Workload::Diffusion(diffusion) => (diffusion.bytes, checked(diffusion.data_check)),
            Workload::Rdma(rdma) => (largest(&rdma.sizes), 2),
            Workload::Block(block) => (block.block_bytes, block.depth),
        };
        (each, self.flows.saturating_mul(of_each))
    }

    /// An upper bound of the memory that the buffers of an end take, those of its sockets included where their size is
    /// given.
    pub fn memory(&self) -> Bytes {
        let (each, count) = match &self.workload {
            // A thread's messages, and the account of each flow.
            Workload::Udp(_) => (Bytes::kib(264), self.threads().max(self.flows)),
            _ => self.buffers(),
        };
        let own = each.as_u64().saturating_mul(u64::from(count));
        // The kernel doubles what is requested, for each of the two buffers.
        let socket = self.socket_buffer_bytes.unwrap_or_default().as_u64();
        let sockets = socket.saturating_mul(4 * u64::from(self.flows));
        let roles = match self.direction {
            Direction::Bidirectional => 2,
            Direction::Forward | Direction::Reverse => 1,
        };
        Bytes::new(own.saturating_add(sockets).saturating_mul(roles))
    }

    fn check_stream(&self, stream: &Stream) -> Result<(), SpecError> {
        require(
            stream.bytes.is_none_or(|bytes| bytes.as_u64() > 0),
            "the amount",
            || "0".to_owned(),
            "1 B and more",
        )?;
        // Verified data is generated for each call and checked after each: the other methods resend one buffer, or do
        // not show the received data.
        let plain = stream.send == SendMode::Write
            && stream.receive == ReceiveMode::Read
            && !matches!(self.waiting, Waiting::Uring | Waiting::UringSqpoll);
        require(
            plain || !stream.data_check,
            "the mode of a stream with `--data-check`",
            || {
                format!(
                    "`{}` to `{}`, waiting by `{}`",
                    stream.send, stream.receive, self.waiting
                )
            },
            "`write` to `read`, with any wait method except io_uring",
        )
    }

    /// Its limits besides those of the device, which only its host knows.
    fn check_block(&self, block: &Block) -> Result<(), SpecError> {
        let jobs = u32::try_from(block.jobs.len()).unwrap_or(u32::MAX);
        require(
            (1..=Self::THREADS_MAX).contains(&jobs) && self.flows == jobs,
            "the number of jobs",
            || jobs.to_string(),
            "1 to 1024, as many as flows",
        )?;
        require(
            (1..=DEPTH_MAX).contains(&block.depth),
            "the depth",
            || block.depth.to_string(),
            "1 to 32768",
        )?;
        require(
            (1..=JOB_BUFFER_MAX.as_u64()).contains(&block.block_bytes.as_u64()),
            "the block size",
            || block.block_bytes.to_string(),
            "1 B to 1 GiB",
        )?;
        require(
            !self.unrecorded && self.direction == Direction::Reverse,
            "the direction",
            || "not from the device, or not recorded".to_owned(),
            "a recorded read",
        )
    }

    fn check_diffusion(diffusion: &Diffusion) -> Result<(), SpecError> {
        let range = Diffusion::BYTES_MIN.as_u64()..=MESSAGE_MAX;
        require(
            range.contains(&diffusion.bytes.as_u64()),
            "the buffer of a grid",
            || diffusion.bytes.to_string(),
            "512 B to 1 GiB",
        )?;
        check_repetitions(diffusion.repetitions)
    }

    fn check_rr(rr: &Rr) -> Result<(), SpecError> {
        message("the request", rr.request_bytes)?;
        message("the response", rr.response_bytes)?;
        require(
            (1..=4_096).contains(&rr.depth),
            "the depth",
            || rr.depth.to_string(),
            "1 to 4096",
        )?;
        require(
            !(rr.connect_each && rr.depth > 1),
            "the depth with a connection for each request",
            || rr.depth.to_string(),
            "1",
        )?;
        check_rate(rr.rate_per_s)
    }

    fn check_pingpong(pingpong: &Pingpong) -> Result<(), SpecError> {
        check_sizes(&pingpong.sizes)?;
        for &size in &pingpong.sizes {
            require(
                size.as_u64() <= MESSAGE_MAX,
                "a message",
                || size.to_string(),
                "0 B to 1 GiB",
            )?;
        }
        require(
            (1..=10_000_000).contains(&pingpong.repetitions),
            "the repetitions",
            || pingpong.repetitions.to_string(),
            "1 to 10000000",
        )
    }
}

fn check_http(http: &Http) -> Result<(), SpecError> {
    let plain = http.path.starts_with('/')
        && http.path.len() <= 4_096
        && http.path.bytes().all(|byte| byte.is_ascii_graphic());
    require(
        plain,
        "the path",
        || http.path.clone(),
        "`/` and up to 4095 visible ASCII characters",
    )?;
    require(
        http.body_bytes.as_u64() <= MESSAGE_MAX,
        "the body",
        || http.body_bytes.to_string(),
        "0 B to 1 GiB",
    )?;
    if let Some(server) = &http.server {
        // It goes into the head of each request: no space and no line break.
        let plain = (1..=300).contains(&server.host.len())
            && server.host.bytes().all(|byte| byte.is_ascii_graphic());
        require(
            plain,
            "the host of the requests",
            || server.host.clone(),
            "up to 300 visible ASCII characters",
        )?;
        require(
            server.port > 0,
            "the server's port",
            || server.port.to_string(),
            "1 to 65535",
        )?;
    }
    check_rate(http.rate_per_s)
}

fn check_repetitions(repetitions: Option<u64>) -> Result<(), SpecError> {
    require(
        repetitions.is_none_or(|count| count > 0),
        "the repetitions",
        || "0".to_owned(),
        "1 and more",
    )
}

fn message(what: &'static str, size: Bytes) -> Result<(), SpecError> {
    require(
        (1..=MESSAGE_MAX).contains(&size.as_u64()),
        what,
        || size.to_string(),
        "1 B to 1 GiB",
    )
}

fn check_rate(rate: Option<u64>) -> Result<(), SpecError> {
    require(
        rate.is_none_or(|rate| (1..=100_000_000).contains(&rate)),
        "the rate",
        || rate.unwrap_or(0).to_string(),
        "1 to 100000000 per second",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::end::End;
    use crate::workload::OtherServer;

    #[test]
    fn what_is_remote_for_one_end_is_its_own_for_the_other_and_checked_like_it() {
        let alike = TrialSpec::default();
        assert_eq!(alike.at_other_end(), alike);
        let apart = TrialSpec {
            flows: 8,
            threads: Some(1),
            threads_remote: Some(8),
            waiting: Waiting::Epoll,
            waiting_remote: Some(Waiting::Spin),
            ..TrialSpec::default()
        };
        let there = apart.at_other_end();
        assert_eq!((there.threads(), there.threads_remote()), (8, 1));
        assert_eq!(there.waiting, apart.waiting_at(End::Remote));
        assert_eq!(there.at_other_end(), apart);
        assert_eq!(apart.check(), Ok(()));
        for wrong in [
            TrialSpec {
                threads_remote: Some(0),
                ..apart.clone()
            },
            TrialSpec {
                waiting_remote: Some(Waiting::BusyPoll(0)),
                ..apart
            },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_host_of_another_server_is_one_word_of_the_head_of_a_request() {
        let spec = |port, host: &str| TrialSpec {
            workload: Workload::Http(Http {
                path: "/".to_owned(),
                body_bytes: Bytes::new(0),
                rate_per_s: None,
                server: Some(OtherServer {
                    port,
                    host: host.to_owned(),
                }),
            }),
            ..TrialSpec::default()
        };
        assert_eq!(spec(80, "[fd00::1]:80").check(), Ok(()));
        for (port, host) in [
            (0, "a.example"),
            (80, ""),
            (80, "a b"),
            (80, "a\r\nX: y"),
            (80, &"a".repeat(301)),
        ] {
            assert!(spec(port, host).check().is_err(), "{port} {host:?}");
        }
    }

    #[test]
    fn every_byte_of_a_stream_is_compared_only_where_it_is_written_and_read_plainly() {
        let spec = |send, receive, waiting, data_check| TrialSpec {
            workload: Workload::Stream(Stream {
                send,
                receive,
                bytes: None,
                data_check,
            }),
            waiting,
            ..TrialSpec::default()
        };
        for waiting in [
            Waiting::Blocking,
            Waiting::Epoll,
            Waiting::Spin,
            Waiting::BusyPoll(50),
        ] {
            let plain = spec(SendMode::Write, ReceiveMode::Read, waiting, true);
            assert_eq!(plain.check(), Ok(()));
        }
        for (send, receive, waiting) in [
            (SendMode::Zerocopy, ReceiveMode::Read, Waiting::Blocking),
            (SendMode::Sendfile, ReceiveMode::Read, Waiting::Blocking),
            (SendMode::Uring, ReceiveMode::Read, Waiting::Blocking),
            (SendMode::Write, ReceiveMode::Trunc, Waiting::Blocking),
            (SendMode::Write, ReceiveMode::Zerocopy, Waiting::Blocking),
            (SendMode::Write, ReceiveMode::Read, Waiting::Uring),
            (SendMode::Write, ReceiveMode::Read, Waiting::UringSqpoll),
        ] {
            assert_eq!(spec(send, receive, waiting, false).check(), Ok(()));
            let error = spec(send, receive, waiting, true).check();
            let said = error.expect_err("it cannot be compared").to_string();
            let words = format!("`{send}` to `{receive}`, waiting by `{waiting}`");
            assert!(said.contains(&words), "{said}");
        }
    }

    #[test]
    fn what_is_not_compared_is_written_as_it_was_before_it_could_be() {
        let stream = serde_json::to_string(&Stream::default()).expect("JSON");
        assert!(!stream.contains("data_check"), "{stream}");
        let mut pingpong = Pingpong {
            sizes: vec![Bytes::new(1)],
            repetitions: 1,
            volume_bytes: Pingpong::imb_volume(),
            data_check: false,
        };
        let before = serde_json::to_string(&pingpong).expect("JSON");
        assert!(!before.contains("data_check"), "{before}");
        assert_eq!(serde_json::from_str(&before).ok(), Some(pingpong.clone()));
        pingpong.data_check = true;
        let after = serde_json::to_string(&pingpong).expect("JSON");
        assert_eq!(serde_json::from_str(&after).ok(), Some(pingpong));
    }
}
