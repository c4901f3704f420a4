//! One test of one client, from its cookie to its end.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use linerate_model::ids::{CpuId, CpuSet};
use linerate_model::sample::{Role, SideSample};
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{
    DatagramBatch, Direction, Placement, Stream, TrialSpec, Udp, Workload,
};
use rustix::event::PollFlags;
use rustix::net::sockopt;

use super::datagram;
use super::desk::{Desk, Place};
use super::door::Caller;
use super::line::{ANSWER_MAX, Line};
use super::mover::{self, Orders};
use super::sides::results_of;
use crate::abort::take_signals;
use crate::iperf3_protocol::{Frame, Parameters, Results, ServerTalk, State, TalkError};
use crate::sys::set_option;
use crate::tcp::socket::{Woken, wait};
use crate::tcp::{Flow, Side, role};
use crate::trial::{Counter, DataThread, FarEnd, SharedState, Start, carry_out_with};
use crate::{Abort, TrafficError};

/// A test whose bytes do not move for so long has lost its client.
const IDLE_MAX: Duration = Duration::from_secs(120);

/// How long the parameters may take: a client has them ready when it connects.
const PARAMETERS_TIME_MAX: Duration = Duration::from_secs(5);

/// How long data in flight is waited for when the client has ended the test. Its streams may
/// stay open: iperf3 closes them at the very end.
const GRACE: Duration = Duration::from_millis(100);

/// How long a test may continue beyond the time that its client requested.
const OVERTIME_MAX: Duration = Duration::from_secs(60);

/// What was done for a client.
#[derive(Debug)]
pub struct Finished {
    /// The client.
    pub client: SocketAddr,
    /// The client's parameters; none if they did not arrive.
    pub parameters: Option<Parameters>,
    /// What this end recorded; nothing when no data moved to the end.
    pub local: Option<SideSample>,
    /// The results that this end sent.
    pub told: Option<Results>,
    /// The client's results.
    pub heard: Option<Results>,
    /// Whether the test completed, or why not.
    pub outcome: Result<(), TrafficError>,
}

/// Serves one client.
pub(super) fn serve(caller: Caller, place: &Arc<Place>, desk: &Desk, abort: &Abort) -> Finished {
    let client = caller.client;
    let mut finished = Finished {
        client,
        parameters: None,
        local: None,
        told: None,
        heard: None,
        outcome: Ok(()),
    };
    let line = Line::of(caller.socket, client, abort);
    finished.outcome = Session {
        line: &line,
        place,
        desk,
    }
    .run(&mut finished);
    if let Err(error) = &finished.outcome {
        tell(&line, error);
    }
    line.leave();
    finished
}

/// Sends the client the reason why its test ends; it may have disconnected.
fn tell(line: &Line<'_>, error: &TrafficError) {
    let _ = match error {
        TrafficError::Aborted => line.say(State::ServerTerminate),
        TrafficError::Iperf3 {
            source: TalkError::NoRoom { .. },
            ..
        } => line.say(State::AccessDenied),
        TrafficError::Iperf3 { source, .. } => line.say_failed(source.number()),
        // The client requested something that is not available on this host: a congestion control or a CPU.
        _ => line.say_failed(TalkError::NOT_HERE),
    };
}

struct Session<'a> {
    line: &'a Line<'a>,
    place: &'a Arc<Place>,
    desk: &'a Desk,
}

impl Session<'_> {
    fn run(&self, finished: &mut Finished) -> Result<(), TrafficError> {
        let line = self.line;
        line.say(State::ParamExchange)?;
        let json = line.read_frame(Frame::PARAMETERS_MAX, "its parameters", PARAMETERS_TIME_MAX)?;
        let parameters = Parameters::read(&json).map_err(|error| line.wrong(error))?;
        let asked = &*finished.parameters.insert(parameters);
        if !self.desk.give_streams(self.place, asked.streams()) {
            let what = "all streams that this server has for a client";
            return Err(line.wrong(TalkError::NoRoom { what }));
        }
        let streams = self.streams(asked)?;
        let spec = spec_of(asked);
        let flows = flows_of(asked, &spec, streams)?;
        let orders = Orders {
            rate: asked.bandwidth,
            truncate: asked.skip_rx_copy,
            wide: asked.counters_64bit,
            omit: Duration::from_secs(asked.omit_s.into()),
            ..Orders::default()
        };
        let local = self.move_data(&spec, &flows, &orders, asked.udp)?;
        // The client takes the end of its streams as the sign that all is counted.
        drop(flows);
        let omitted = orders
            .omitted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let told = results_of(&local, &omitted, orders.omit);
        finished.local = Some(local);
        line.say(State::ExchangeResults)?;
        let heard = line.read_frame(Frame::RESULTS_MAX, "its results", ANSWER_MAX)?;
        let heard = Results::read(&heard).map_err(|error| line.wrong(error))?;
        line.write_json(&told.write())?;
        finished.told = Some(told);
        finished.heard = Some(heard);
        line.say(State::DisplayResults)?;
        self.hear(ServerTalk::Showing)
    }

    /// Waits for the word that is due.
    fn hear(&self, talk: ServerTalk) -> Result<(), TrafficError> {
        let byte = self.line.read_byte(talk.awaited(), ANSWER_MAX)?;
        talk.hear(byte).map_err(|error| self.line.wrong(error))
    }

    /// Has the client open its streams.
    fn streams(&self, asked: &Parameters) -> Result<Vec<OwnedFd>, TrafficError> {
        let streams = asked.streams() as usize;
        let until = Instant::now() + ANSWER_MAX;
        if asked.udp {
            while !self.desk.take_turn(self.place, streams) {
                self.wait_for_news(until)?;
            }
        } else {
            self.place.want_tcp(streams);
        }
        self.line.say(State::CreateStreams)?;
        let until = Instant::now() + ANSWER_MAX;
        while !self.place.is_complete() {
            self.wait_for_news(until)?;
        }
        self.desk.end_turn(self.place);
        Ok(self.place.take())
    }

    /// Sleeps until there is news. The client sends nothing meanwhile, unless it leaves.
    fn wait_for_news(&self, until: Instant) -> Result<(), TrafficError> {
        let waited = [
            (self.place.news.as_fd(), PollFlags::IN),
            (self.line.as_fd(), PollFlags::IN),
        ];
        let talk = ServerTalk::Preparing;
        let mut ready = Vec::new();
        if wait(waited, until, self.line.abort(), &mut ready)? == Woken::Aborted {
            return Err(TrafficError::Aborted);
        }
        if ready[1] {
            self.hear(talk)?;
        }
        take_signals(&self.place.news);
        if Instant::now() >= until {
            let (awaited, waited) = (talk.awaited(), ANSWER_MAX);
            return Err(self.line.wrong(TalkError::Silent { awaited, waited }));
        }
        Ok(())
    }

    fn move_data(
        &self,
        spec: &TrialSpec,
        flows: &[Flow],
        orders: &Orders,
        udp: bool,
    ) -> Result<SideSample, TrafficError> {
        let client = Client {
            line: self.line,
            ended: AtomicBool::new(false),
            times: Mutex::default(),
            moved: Mutex::default(),
        };
        let work = |data_thread: &mut DataThread<'_>| {
            if udp {
                datagram::udp(data_thread, orders)
            } else {
                mover::tcp(data_thread, orders)
            }
        };
        let abort = self.line.abort();
        let mut local = carry_out_with(spec, flows, &client, &work, abort)?;
        end_with_the_client(&mut local, client.duration());
        if !client.ended.into_inner() {
            // Its streams have ended before it reported it.
            self.hear(ServerTalk::Running)?;
        }
        Ok(local)
    }
}

/// The trial specification of a client's test.
fn spec_of(asked: &Parameters) -> TrialSpec {
    let time = asked
        .time_s
        .map(|time| Duration::from_secs(u64::from(time + asked.omit_s)));
    let time = time.map_or(Duration::from_secs(Parameters::TIME_MAX), |time| {
        time + OVERTIME_MAX
    });
    let cpus = (asked.server_affinity).map_or_else(CpuSet::default, |cpu| CpuSet::one(CpuId(cpu)));
    let workload = if asked.udp {
        Workload::Udp(Udp {
            datagram_bytes: asked.len,
            rate_bit_per_s: asked.bandwidth,
            batch: DatagramBatch::Single,
            probe: None,
        })
    } else {
        Workload::Stream(Stream::default())
    };
    TrialSpec {
        workload,
        flows: asked.parallel,
        direction: asked.direction,
        duration_ns: time.into(),
        // A thousand readings or two, however long the test.
        interval_ns: Nanoseconds::from((time / 1_000).max(Duration::from_millis(100))),
        buffer_bytes: asked.len,
        placement: Placement {
            sender_cpus: cpus.clone(),
            receiver_cpus: cpus,
            ..Placement::default()
        },
        ..TrialSpec::default()
    }
}

/// The client's streams, in the order in which it opened them, with the requested options set.
fn flows_of(
    asked: &Parameters,
    spec: &TrialSpec,
    streams: Vec<OwnedFd>,
) -> Result<Vec<Flow>, TrafficError> {
    let failed = |errno| TrafficError::of_errno("make a stream ready", errno);
    let flow = |(number, socket): (u32, OwnedFd)| {
        rustix::io::ioctl_fionbio(&socket, false).map_err(failed)?;
        if let Some(window) = asked.window {
            // The client sees in its own buffers what the kernel granted instead.
            let size = usize::try_from(window.as_u64()).unwrap_or(usize::MAX);
            let _ = sockopt::set_socket_send_buffer_size(&socket, size);
            let _ = sockopt::set_socket_recv_buffer_size(&socket, size);
        }
        if let Some(rate) = asked.fqrate {
            let rate = rate.as_bit_per_s() / 8;
            set_option(&socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, rate)
                .map_err(failed)?;
        }
        if !asked.udp {
            sockopt::set_tcp_nodelay(&socket, asked.nodelay).map_err(failed)?;
            if let Some(name) = &asked.congestion {
                crate::tcp::socket::set_congestion_control(&socket, name)?;
            }
        }
        if asked.tos > 0 {
            // Of the family that it is not it fails.
            let _ = sockopt::set_ip_tos(&socket, asked.tos);
            let _ = set_option(
                &socket,
                libc::IPPROTO_IPV6,
                libc::IPV6_TCLASS,
                i32::from(asked.tos),
            );
        }
        Ok(Flow {
            number,
            side: Side::Listening,
            role: role(spec, Side::Listening, number),
            socket,
            cpu: None,
            ports: None,
        })
    };
    (0..).zip(streams).map(flow).collect()
}

/// A flow whose receiver was ended only by [`GRACE`] ended when the client had reported it.
fn end_with_the_client(side: &mut SideSample, said: Option<Duration>) {
    let Some(said) = said else { return };
    let (said, late) = (Nanoseconds::from(said), Nanoseconds::from(said + GRACE));
    for flow in &mut side.flows {
        let late = flow.at_ns.last().is_some_and(|end| *end >= late);
        if flow.role == Role::Receiver && late {
            let total = flow.total();
            let before = flow.at_ns.partition_point(|at| *at < said);
            flow.at_ns.truncate(before);
            flow.bytes.truncate(before);
            flow.at_ns.push(said);
            flow.bytes.push(total);
        }
    }
    let ends = side.flows.iter().filter_map(|flow| flow.at_ns.last());
    side.elapsed_ns = ends.max().copied().unwrap_or(side.elapsed_ns);
}

/// The client, as the engine knows it: it ends the test.
struct Client<'a> {
    line: &'a Line<'a>,
    ended: AtomicBool,
    /// When the test began at this end, and when its client had ended it.
    times: Mutex<(Option<Instant>, Option<Instant>)>,
    /// What had moved when something moved last, and when that was.
    moved: Mutex<(u64, Duration)>,
}

impl Client<'_> {
    fn times(&self) -> MutexGuard<'_, (Option<Instant>, Option<Instant>)> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the test took, by the client's word.
    fn duration(&self) -> Option<Duration> {
        let (begun, ended) = *self.times();
        Some(ended?.duration_since(begun?))
    }
}

impl FarEnd for Client<'_> {
    fn start(
        &self,
        _: &[Flow],
        shared_state: &SharedState,
        _: &Abort,
    ) -> Result<Start, TrafficError> {
        self.line.say(State::TestStart)?;
        let at = Instant::now();
        let start = Start { at, asked: at };
        self.times().0 = Some(at);
        // The receivers are ready before the senders start.
        shared_state.open_gate(start);
        self.line.say(State::TestRunning)?;
        Ok(start)
    }

    fn voice(&self) -> Option<BorrowedFd<'_>> {
        (!self.ended.load(Ordering::Relaxed)).then(|| self.line.as_fd())
    }

    fn hear(&self) -> Result<bool, TrafficError> {
        let talk = ServerTalk::Running;
        let byte = self.line.read_byte(talk.awaited(), Duration::ZERO)?;
        talk.hear(byte).map_err(|error| self.line.wrong(error))?;
        self.times().1 = Some(Instant::now());
        self.ended.store(true, Ordering::Relaxed);
        Ok(true)
    }

    fn beat(&self, now: Duration, _: &[Flow], counters: &[Counter]) -> Result<bool, TrafficError> {
        let bytes = counters.iter().map(Counter::bytes).sum();
        let mut moved = self.moved.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes != moved.0 {
            *moved = (bytes, now);
        }
        let waited = now.saturating_sub(moved.1);
        if waited >= IDLE_MAX {
            return Err(self.line.wrong(TalkError::Idle { waited }));
        }
        Ok(false)
    }

    fn patience(&self) -> Option<Duration> {
        Some(GRACE)
    }
}

/// What moved in a test, by this end's count: what it sent, and what arrived.
pub(super) fn moved(side: &SideSample) -> (Bytes, Bytes) {
    let sum = |bytes: &mut dyn Iterator<Item = u64>| Bytes::new(bytes.sum());
    (
        sum(&mut side.senders().map(|flow| flow.total().as_u64())),
        sum(&mut side.receivers().map(|flow| flow.total().as_u64())),
    )
}

impl Finished {
    /// The directions of the test, seen from here: bytes sent and bytes that arrived, and for how long.
    pub fn moved(&self) -> Option<(Bytes, Bytes, Nanoseconds)> {
        let side = self.local.as_ref()?;
        let (sent, arrived) = moved(side);
        Some((sent, arrived, side.elapsed_ns))
    }

    /// The direction of the bytes, seen from the client.
    pub fn direction(&self) -> Option<Direction> {
        Some(self.parameters.as_ref()?.direction)
    }
}

#[cfg(test)]
mod tests {
    use linerate_model::build;

    use super::*;

    #[test]
    fn a_receiver_that_only_grace_ended_has_ended_when_its_client_said_so() {
        let mut side = build::sample().build().remote;
        let flow = &mut side.flows[0];
        flow.at_ns = [900, 1_000, 1_050, 1_120]
            .map(Nanoseconds::from_millis)
            .to_vec();
        flow.bytes = [9, 10, 11, 12].map(Bytes::new).to_vec();
        end_with_the_client(&mut side, Some(Duration::from_millis(1_010)));
        assert_eq!(side.flows[0].at_ns[2..], [Nanoseconds::from_millis(1_010)]);
        assert_eq!(side.flows[0].bytes, [9, 10, 12].map(Bytes::new));
        assert_eq!(side.elapsed_ns, Nanoseconds::from_millis(1_010));
    }
}
