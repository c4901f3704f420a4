//! This end as a client of an iperf3 server.

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use linerate_model::sample::{Role, SideSample};
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{Direction, ReceiveMode, SendMode, TrialSpec, Waiting, Workload};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use super::datagram;
use super::line::{ANSWER_MAX, Line};
use super::mover::{self, Orders};
use super::reading::{self, DatagramReading, Reading};
use super::sides::results_of;
use crate::iperf3_protocol::{
    COOKIE_BYTES, ClientStep, ClientTalk, Cookie, Frame, Parameters, REPLIES, Results, SALUTE,
    ServerResults, State, TalkError,
};
use crate::tcp::{Flow, Side, role, socket};
use crate::trial::{Counter, FarEnd, SharedState, Start, carry_out_with};
use crate::{Abort, TrafficError};

/// How long the receivers wait for the server to close after the end. Then they take what has arrived.
const PATIENCE: Duration = Duration::from_secs(2);

/// A measurement against an iperf3 server.
#[derive(Debug, Clone)]
pub struct Foreign {
    /// What this end recorded.
    pub local: SideSample,
    /// The server's results.
    pub server: ServerResults,
    /// Both ends of each connection, in flow order.
    pub connections: Vec<Connection>,
    /// For each connection, the kernel's figures at each reading; none if this end received.
    pub readings: Vec<Vec<Reading>>,
    /// For each UDP connection that this end received on, its figures at each reading.
    pub datagrams: Vec<Vec<DatagramReading>>,
    /// The cookie of the test.
    pub cookie: String,
    /// The largest payload of a segment before data moved (`TCP_MAXSEG` of the control connection).
    pub mss: Option<Bytes>,
    /// `SO_SNDBUF` of the first data connection, as the kernel reports.
    pub send_buffer: Option<Bytes>,
    /// Its `SO_RCVBUF`.
    pub receive_buffer: Option<Bytes>,
}

/// Both ends of a connection, and its local descriptor, by which iperf3 names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// The descriptor.
    pub socket: i32,
    /// The local end.
    pub local: SocketAddr,
    /// The remote end.
    pub remote: SocketAddr,
}

/// Runs `spec`, a `stream` or `udp`, with the iperf3 server at `server`. This end uses
/// blocking calls, one thread for each flow; any other request of `spec` is an error. If this end receives an amount
/// of bytes, the test ends at the first reading after it.
///
/// It returns at the latest half a minute after the duration, and at once when it is aborted.
pub fn measure(
    spec: &TrialSpec,
    server: SocketAddr,
    abort: &Abort,
) -> Result<Foreign, TrafficError> {
    spec.check()?;
    let wrong = |source| TrafficError::Iperf3 {
        address: server,
        source,
    };
    check(spec).map_err(wrong)?;
    let parameters = Parameters::of_spec(spec).map_err(wrong)?;
    let line = Line::connect(server, abort)?;
    let outcome = Test::begin(spec, &parameters, &line).and_then(Test::run);
    if outcome.is_err() {
        // The server then need not find out by itself. It may be the one that is gone.
        let _ = line.say(State::ClientTerminate);
    }
    line.leave();
    outcome
}

/// What this end does not support with a foreign remote end.
fn check(spec: &TrialSpec) -> Result<(), TalkError> {
    let modes = match &spec.workload {
        Workload::Stream(stream) => {
            stream.send == SendMode::Write
                && matches!(stream.receive, ReceiveMode::Read | ReceiveMode::Trunc)
        }
        _ => true,
    };
    let not = |what| Err(TalkError::NotSupported { what });
    if matches!(&spec.workload, Workload::Stream(stream) if stream.data_check) {
        return not("a check of every byte");
    }
    if !modes {
        return not("a send or receive mode other than write, read and trunc");
    }
    if spec.waiting != Waiting::Blocking {
        return not("a waiting mode other than blocking");
    }
    if spec.threads.is_some_and(|threads| threads < spec.flows) {
        return not("more than one flow per thread");
    }
    if spec.placement.by_receive_cpu {
        return not("placement by receive CPU");
    }
    Ok(())
}

/// A running test.
struct Test<'a> {
    spec: TrialSpec,
    parameters: &'a Parameters,
    line: &'a Line<'a>,
    talk: ClientTalk,
    cookie: Cookie,
}

impl<'a> Test<'a> {
    /// Presents a new cookie.
    fn begin(
        spec: &TrialSpec,
        parameters: &'a Parameters,
        line: &'a Line<'a>,
    ) -> Result<Self, TrafficError> {
        let mut random = [0u8; COOKIE_BYTES - 1];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(|errno| TrafficError::of_errno("make a cookie", errno))?;
        let cookie = Cookie::of_random(&random);
        // A busy server reports it and closes, whether or not it was read: its message is more useful than our failure.
        if let Err(error) = line.write(cookie.bytes(), "room in the connection") {
            line.read_byte("its request for the parameters", ANSWER_MAX)
                .map_err(|_| error)?;
        }
        Ok(Self {
            spec: TrialSpec {
                // With UDP the size of a send is that of a datagram.
                buffer_bytes: parameters.len,
                threads: None,
                ..spec.clone()
            },
            parameters,
            line,
            talk: ClientTalk::default(),
            cookie,
        })
    }

    /// Waits for the server's next state.
    fn hear(&mut self) -> Result<ClientStep, TrafficError> {
        let greeted = self.talk == ClientTalk::default();
        match self.line.read_byte(self.talk.awaited(), ANSWER_MAX) {
            Ok(byte) => step(self.line, &mut self.talk, byte),
            // A busy server closes without reading our cookie: the reset may overtake its message.
            Err(TrafficError::Iperf3 {
                source: TalkError::Closed { .. },
                ..
            }) if greeted => Err(self.line.wrong(TalkError::Busy)),
            Err(error) => Err(error),
        }
    }

    fn run(mut self) -> Result<Foreign, TrafficError> {
        let mut flows = Vec::new();
        while self.hear()? == ClientStep::SendParameters {
            self.line.write_json(&self.parameters.write())?;
        }
        for number in 0..self.parameters.streams() {
            flows.push(self.open(number)?);
        }
        let connections = flows
            .iter()
            .map(Connection::of)
            .collect::<Result<Vec<_>, _>>()?;
        let size = |size: rustix::io::Result<usize>| size.ok().map(|size| Bytes::new(size as u64));
        let send_buffer = size(sockopt::socket_send_buffer_size(&flows[0].socket));
        let receive_buffer = size(sockopt::socket_recv_buffer_size(&flows[0].socket));
        let orders = self.orders();
        let udp = self.parameters.udp;
        let work = |data_thread: &mut crate::trial::DataThread<'_>| {
            if udp {
                datagram::udp(data_thread, &orders)
            } else {
                mover::tcp(data_thread, &orders)
            }
        };
        let far = Server::new(self.line, self.talk, self.parameters, &orders);
        let spec = &self.spec;
        let abort = self.line.abort();
        let local = carry_out_with(spec, &flows, &far, &work, abort)?;
        drop(flows);
        let heard = far.heard.into_inner();
        self.talk = far
            .talk
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let Noted {
            readings,
            datagrams,
        } = far
            .noted
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        if !heard && self.hear()? != ClientStep::ExchangeResults {
            return Err(self.line.wrong(TalkError::Terminated));
        }
        let server = self.exchange(&local)?;
        Ok(Foreign {
            local,
            server,
            connections,
            readings,
            datagrams,
            cookie: self.cookie.to_string(),
            mss: sockopt_mss(self.line),
            send_buffer,
            receive_buffer,
        })
    }

    fn orders(&self) -> Orders {
        Orders {
            rate: self.parameters.bandwidth,
            amount: self.parameters.bytes.map(Bytes::as_u64),
            truncate: matches!(
                &self.spec.workload,
                Workload::Stream(stream) if stream.receive == ReceiveMode::Trunc
            ),
            wide: self.parameters.counters_64bit,
            settle: true,
            progress: Orders::progress_of(self.parameters.streams()),
            ..Orders::default()
        }
    }

    /// Opens stream `number`.
    fn open(&self, number: u32) -> Result<Flow, TrafficError> {
        let (address, abort) = (self.line.address, self.line.abort());
        let socket = if self.parameters.udp {
            salute(&self.spec, address, self.line)?
        } else {
            let socket = socket::new(&self.spec, address)?;
            socket::finish_connect(&socket, address, ANSWER_MAX, abort)?;
            let stream = Line::of_stream(socket, address, abort);
            stream.write(self.cookie.bytes(), "room in a data connection")?;
            stream.into_socket()
        };
        rustix::io::ioctl_fionbio(&socket, false)
            .map_err(|errno| TrafficError::of_errno("make a data connection ready", errno))?;
        Ok(Flow {
            number,
            side: Side::Connecting,
            role: role(&self.spec, Side::Connecting, number),
            socket,
            cpu: None,
            ports: None,
        })
    }

    /// Sends the server this end's results and reads those of the other.
    fn exchange(&mut self, local: &SideSample) -> Result<Results, TrafficError> {
        let ours = results_of(local, &[], Duration::ZERO);
        self.line.write_json(&ours.write())?;
        let theirs = self
            .line
            .read_frame(Frame::RESULTS_MAX, "its results", ANSWER_MAX)?;
        let theirs = Results::read(&theirs).map_err(|error| self.line.wrong(error))?;
        self.hear()?;
        self.line.say(State::IperfDone)?;
        Ok(theirs)
    }
}

/// What the server's word `byte` asks for.
fn step(line: &Line<'_>, talk: &mut ClientTalk, byte: u8) -> Result<ClientStep, TrafficError> {
    match talk.hear(byte) {
        Ok(ClientStep::ReadFailure) => Err(line.read_failure()),
        Ok(step) => Ok(step),
        Err(error) => Err(line.wrong(error)),
    }
}

fn sockopt_mss(line: &Line<'_>) -> Option<Bytes> {
    let mss = crate::sys::get_option(line, libc::IPPROTO_TCP, libc::TCP_MAXSEG).ok()?;
    Some(Bytes::new(u64::from(mss)))
}

/// Opens a UDP stream: four bytes there, four bytes back, maybe behind the first data.
fn salute(spec: &TrialSpec, address: SocketAddr, line: &Line<'_>) -> Result<OwnedFd, TrafficError> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let failed = |errno| TrafficError::of_errno("open a UDP stream", errno);
    let socket = socket_with(family, SocketType::DGRAM, flags, None).map_err(failed)?;
    if let Some(size) = spec.socket_buffer_bytes {
        socket::set_buffers(&socket, size)?;
    }
    rustix::net::connect(&socket, &address).map_err(failed)?;
    let stream = Line::of_stream(socket, address, line.abort());
    stream.write(&SALUTE, "room for a datagram")?;
    let until = Instant::now() + ANSWER_MAX;
    let mut answer = [0; 64];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let count = stream.read_some(&mut answer, "its answer to a UDP stream", left)?;
        if REPLIES.contains(&&answer[..count]) {
            return Ok(stream.into_socket());
        }
    }
}

impl Connection {
    fn of(flow: &Flow) -> Result<Self, TrafficError> {
        use std::os::fd::AsRawFd;
        let failed = |errno| TrafficError::of_errno("read a connection's address", errno);
        let local = rustix::net::getsockname(&flow.socket).and_then(SocketAddr::try_from);
        let remote = rustix::net::getpeername(&flow.socket)
            .and_then(|address| SocketAddr::try_from(address.ok_or(rustix::io::Errno::NOTCONN)?));
        Ok(Self {
            socket: flow.socket.as_raw_fd(),
            local: local.map_err(failed)?,
            remote: remote.map_err(failed)?,
        })
    }
}

/// The server, as the engine knows it.
struct Server<'a> {
    line: &'a Line<'a>,
    talk: Mutex<ClientTalk>,
    udp: bool,
    /// The bytes expected here, all flows together.
    amount: Option<u64>,
    /// The server has reported the end of its data.
    heard: AtomicBool,
    orders: &'a Orders,
    noted: Mutex<Noted>,
}

/// What was noted of each connection at each reading.
#[derive(Debug, Default)]
struct Noted {
    readings: Vec<Vec<Reading>>,
    datagrams: Vec<Vec<DatagramReading>>,
}

impl<'a> Server<'a> {
    fn new(
        line: &'a Line<'a>,
        talk: ClientTalk,
        parameters: &Parameters,
        orders: &'a Orders,
    ) -> Self {
        // Of what is sent each thread knows its share; in both directions they stop each other.
        let arrives = parameters.direction != Direction::Forward;
        let flows = parameters.streams() as usize;
        Self {
            line,
            talk: Mutex::new(talk),
            udp: parameters.udp,
            amount: parameters.bytes.map(Bytes::as_u64).filter(|_| arrives),
            heard: AtomicBool::new(false),
            orders,
            noted: Mutex::new(Noted {
                readings: vec![Vec::new(); flows],
                datagrams: vec![Vec::new(); flows],
            }),
        }
    }

    fn talk(&self) -> std::sync::MutexGuard<'_, ClientTalk> {
        self.talk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, now: Duration, flows: &[Flow]) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        let at_ns = Nanoseconds::from(now);
        for (index, flow) in flows.iter().enumerate() {
            match (flow.role, self.udp) {
                (Role::Sender, false) => {
                    noted.readings[index].extend(reading::read(&flow.socket, at_ns));
                }
                (Role::Receiver, true) => {
                    let progress = &self.orders.progress[index];
                    noted.datagrams[index].push(DatagramReading {
                        at_ns,
                        packets: progress.packets.load(Ordering::Relaxed),
                        lost: progress.lost.load(Ordering::Relaxed),
                        jitter_ns: Nanoseconds::new(progress.jitter_ns.load(Ordering::Relaxed)),
                    });
                }
                _ => {}
            }
        }
    }
}

impl FarEnd for Server<'_> {
    fn start(
        &self,
        flows: &[Flow],
        shared_state: &SharedState,
        _: &Abort,
    ) -> Result<Start, TrafficError> {
        let mut talk = self.talk();
        loop {
            let byte = self.line.read_byte(talk.awaited(), ANSWER_MAX)?;
            if step(self.line, &mut talk, byte)? == ClientStep::Run {
                break;
            }
        }
        let at = Instant::now();
        let start = Start { at, asked: at };
        shared_state.open_gate(start);
        self.note(Duration::ZERO, flows);
        Ok(start)
    }

    fn voice(&self) -> Option<BorrowedFd<'_>> {
        use std::os::fd::AsFd;
        (!self.heard.load(Ordering::Relaxed)).then(|| self.line.as_fd())
    }

    fn hear(&self) -> Result<bool, TrafficError> {
        let mut talk = self.talk();
        let byte = self.line.read_byte(talk.awaited(), Duration::ZERO)?;
        if step(self.line, &mut talk, byte)? == ClientStep::ExchangeResults {
            self.heard.store(true, Ordering::Relaxed);
        }
        Ok(false)
    }

    fn beat(
        &self,
        now: Duration,
        flows: &[Flow],
        counters: &[Counter],
    ) -> Result<bool, TrafficError> {
        self.note(now, flows);
        let arrived = flows.iter().zip(counters);
        let arrived = arrived.filter(|(flow, _)| flow.role == Role::Receiver);
        let arrived: u64 = arrived.map(|(_, counter)| counter.bytes()).sum();
        Ok(self.amount.is_some_and(|amount| arrived >= amount))
    }

    fn stopped(&self) {
        let word = self.talk().end();
        // If it cannot be sent, waiting for the answer returns the cause.
        let _ = self.line.say(word);
    }

    fn patience(&self) -> Option<Duration> {
        Some(if self.udp { Duration::ZERO } else { PATIENCE })
    }
}
