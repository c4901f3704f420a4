//! Traffic by the plainest calls there are: blocking sockets of the C library, one thread per flow. For a library that
//! intercepts those calls (rsocket(7), libvma): it shows what such a library achieves for an unmodified program, and
//! without it the same program's TCP.
//!
//! The connecting end sends the trial's token first, and then a stream, or messages of which each is answered before
//! the next. The other end counts what arrives from the time when all are connected to the end of the last, and sends
//! each connecting end its count, which must match what that sent.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linerate_model::known::Known;
use linerate_model::latency::Histogram;
use linerate_model::protocol::Token;
use linerate_model::sample::SizeRecord;
use linerate_model::units::{Bytes, Nanoseconds};
use serde::{Deserialize, Serialize};

use crate::sys::Plain;

/// What both ends are given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// Connections, a thread each.
    pub flows: u32,
    /// What goes through each.
    pub work: Work,
    /// How long is sent; ping-pong ends by itself, and after this time at the latest.
    pub duration_ns: Nanoseconds,
    /// What each connection begins with.
    pub token: Token,
}

/// What goes through a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Work {
    /// Bulk data, one way.
    Stream {
        /// What one call sends or receives at most.
        buffer_bytes: Bytes,
    },
    /// Requests, each after the response to the one before.
    Requests {
        /// The size of a request.
        request_bytes: Bytes,
        /// The size of a response.
        response_bytes: Bytes,
    },
    /// Messages there and back, of each size in turn, after one of that size that does not count.
    Pingpong {
        /// The sizes in order.
        turns: Vec<Turn>,
    },
}

/// One size of ping-pong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Turn {
    /// The payload of a message. One without payload is a header on a stream, as in `exchange::pingpong`.
    pub bytes: Bytes,
    /// Round trips that count.
    pub repetitions: u32,
}

/// What a message without payload has on a stream.
const HEADER: usize = 8;

impl Turn {
    fn length(&self) -> usize {
        match length_of(self.bytes) {
            0 => HEADER,
            some => some,
        }
    }
}

impl Work {
    /// The largest message, or one call's part of a stream.
    fn buffer(&self) -> usize {
        match self {
            Self::Stream { buffer_bytes } => length_of(*buffer_bytes),
            Self::Requests {
                request_bytes,
                response_bytes,
            } => length_of(*request_bytes.max(response_bytes)),
            Self::Pingpong { turns } => turns.iter().map(Turn::length).max().unwrap_or(HEADER),
        }
    }
}

/// What an end did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Carried {
    /// Payload from the connecting end.
    pub bytes: u64,
    /// Payload to the connecting end.
    pub bytes_back: u64,
    /// From the time when all connections were established to the end of the last.
    pub seconds: f64,
    /// CPU seconds of this process meanwhile, user and system.
    pub cpu_s: f64,
    /// What the kernel's TCP carried of it, in both directions and with what is not payload; none if it carries no
    /// connection.
    pub by_kernel: Option<Known<u64>>,
    /// The time of every request; only of requests, at the connecting end.
    pub latency: Option<Histogram>,
    /// Each size of ping-pong that was begun, at the connecting end.
    pub sizes: Vec<SizeRecord>,
}

/// An open door for the connections of one trial.
#[derive(Debug)]
pub struct Door {
    listener: Plain,
    port: u16,
}

fn while_doing(doing: &'static str) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("cannot {doing}: {error}"))
}

fn cpu_now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

fn length_of(bytes: Bytes) -> usize {
    usize::try_from(bytes.as_u64()).unwrap_or(usize::MAX)
}

/// What one connection carried.
#[derive(Debug, Default)]
struct Part {
    bytes: u64,
    bytes_back: u64,
    latency: Option<Histogram>,
    sizes: Vec<SizeRecord>,
}

impl Part {
    fn add(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.bytes_back += other.bytes_back;
        match (&mut self.latency, other.latency) {
            (Some(own), Some(theirs)) => own.add(&theirs),
            (own, theirs) => *own = own.take().or(theirs),
        }
        for theirs in other.sizes {
            let own = self.sizes.iter_mut().find(|own| own.bytes == theirs.bytes);
            let Some(own) = own else {
                self.sizes.push(theirs);
                continue;
            };
            let elapsed = own
                .elapsed_ns
                .as_u64()
                .saturating_add(theirs.elapsed_ns.as_u64());
            own.elapsed_ns = Nanoseconds::new(elapsed);
            own.repetitions += theirs.repetitions;
            own.one_way.add(&theirs.one_way);
        }
    }
}

impl Door {
    /// Listens on `address`; port 0 is one that is free.
    pub fn open(address: SocketAddr, flows: u32) -> io::Result<Self> {
        let backlog = i32::try_from(flows).unwrap_or(i32::MAX);
        let (listener, port) =
            Plain::listen(address, backlog).map_err(while_doing("listen for the data"))?;
        Ok(Self { listener, port })
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Takes what comes and answers it, until every connecting end has ended.
    pub fn receive(self, order: &Order) -> io::Result<Carried> {
        let mut sockets = Vec::new();
        while sockets.len() < order.flows as usize {
            let socket = self
                .listener
                .accept()
                .map_err(while_doing("accept a data connection"))?;
            // Another program's is not ours to serve.
            if shows_token(&socket, order.token) {
                sockets.push(socket);
            }
        }
        each(&sockets, order, |socket, buffer| {
            let part = answer(&order.work, socket, buffer)?;
            send_all(socket, &part.bytes.to_be_bytes())
                .map_err(while_doing("send the byte count"))?;
            Ok(part)
        })
    }
}

/// The listening end of one connection.
fn answer(work: &Work, socket: &Plain, buffer: &mut [u8]) -> io::Result<Part> {
    let mut part = Part::default();
    match work {
        Work::Stream { .. } => loop {
            match socket.receive(buffer).map_err(while_doing("receive"))? {
                0 => return Ok(part),
                some => part.bytes += some as u64,
            }
        },
        Work::Requests {
            request_bytes,
            response_bytes,
        } => {
            let lengths = (length_of(*request_bytes), length_of(*response_bytes));
            while part.answer(socket, buffer, lengths)? {}
        }
        Work::Pingpong { turns } => {
            for turn in turns {
                for _ in 0..=turn.repetitions {
                    if !part.answer(socket, buffer, (turn.length(), turn.length()))? {
                        return Ok(part);
                    }
                }
            }
            if socket.receive(buffer).map_err(while_doing("receive"))? > 0 {
                return Err(io::Error::other("more messages came than were ordered"));
            }
        }
    }
    Ok(part)
}

impl Part {
    /// Answers the next message, unless the connecting end has ended.
    fn answer(
        &mut self,
        socket: &Plain,
        buffer: &mut [u8],
        (comes, goes): (usize, usize),
    ) -> io::Result<bool> {
        let message = part_of(buffer, comes);
        if !receive_message(socket, message).map_err(while_doing("receive a message"))? {
            return Ok(false);
        }
        self.bytes += comes as u64;
        send_all(socket, part_of(buffer, goes)).map_err(while_doing("answer a message"))?;
        self.bytes_back += goes as u64;
        Ok(true)
    }

    /// Sends a message and waits for the answer.
    fn ask(
        &mut self,
        socket: &Plain,
        buffer: &mut [u8],
        (goes, comes): (usize, usize),
    ) -> io::Result<()> {
        send_all(socket, part_of(buffer, goes)).map_err(while_doing("send a message"))?;
        self.bytes += goes as u64;
        receive_all(socket, part_of(buffer, comes)).map_err(while_doing("receive an answer"))?;
        self.bytes_back += comes as u64;
        Ok(())
    }
}

/// The first `length` bytes of a buffer, which is as long as the longest message.
fn part_of(buffer: &mut [u8], length: usize) -> &mut [u8] {
    let length = length.min(buffer.len());
    &mut buffer[..length]
}

/// Sends to `to` for the duration of the order, or until `ends_early` is set.
pub fn send(to: SocketAddr, order: &Order, ends_early: &AtomicBool) -> io::Result<Carried> {
    let mut sockets = Vec::new();
    for _ in 0..order.flows {
        let socket = Plain::connect(to).map_err(while_doing("connect to the peer"))?;
        send_all(&socket, &order.token.0).map_err(while_doing("send the token"))?;
        sockets.push(socket);
    }
    let began = Instant::now();
    let duration = Duration::from(order.duration_ns);
    let goes_on = || began.elapsed() < duration && !ends_early.load(Ordering::Relaxed);
    each(&sockets, order, |socket, buffer| {
        let part = match &order.work {
            Work::Stream { .. } => stream(socket, buffer, goes_on)?,
            Work::Requests {
                request_bytes,
                response_bytes,
            } => {
                let lengths = (length_of(*request_bytes), length_of(*response_bytes));
                request(socket, buffer, lengths, goes_on)?
            }
            Work::Pingpong { turns } => pingpong(socket, buffer, turns, goes_on)?,
        };
        socket.end_sending().map_err(while_doing("end"))?;
        let mut count = [0; 8];
        receive_all(socket, &mut count).map_err(while_doing("receive the byte count"))?;
        match u64::from_be_bytes(count) {
            arrived if arrived == part.bytes => Ok(part),
            arrived => Err(io::Error::other(format!(
                "{} bytes were sent and {arrived} arrived",
                part.bytes
            ))),
        }
    })
}

fn stream(socket: &Plain, buffer: &[u8], goes_on: impl Fn() -> bool) -> io::Result<Part> {
    let mut part = Part::default();
    while goes_on() {
        part.bytes += socket.send(buffer).map_err(while_doing("send"))? as u64;
    }
    Ok(part)
}

/// The end of one request is the start of the next.
fn request(
    socket: &Plain,
    buffer: &mut [u8],
    lengths: (usize, usize),
    goes_on: impl Fn() -> bool,
) -> io::Result<Part> {
    let mut part = Part::default();
    let mut latency = Histogram::default();
    let mut mark = Instant::now();
    while goes_on() {
        part.ask(socket, buffer, lengths)?;
        let now = Instant::now();
        latency.record(nanoseconds(now - mark));
        mark = now;
    }
    part.latency = Some(latency);
    Ok(part)
}

fn pingpong(
    socket: &Plain,
    buffer: &mut [u8],
    turns: &[Turn],
    goes_on: impl Fn() -> bool,
) -> io::Result<Part> {
    let mut part = Part::default();
    for turn in turns {
        let lengths = (turn.length(), turn.length());
        if !goes_on() {
            break;
        }
        part.ask(socket, buffer, lengths)?;
        let mut record = SizeRecord {
            bytes: turn.bytes,
            repetitions: 0,
            elapsed_ns: Nanoseconds::new(0),
            one_way: Histogram::default(),
            peak_bit_per_s: None,
            alone_ns: None,
        };
        let began = Instant::now();
        let mut mark = began;
        while record.repetitions < u64::from(turn.repetitions) && goes_on() {
            part.ask(socket, buffer, lengths)?;
            let now = Instant::now();
            record.one_way.record(nanoseconds((now - mark) / 2));
            record.repetitions += 1;
            mark = now;
        }
        record.elapsed_ns = nanoseconds(mark - began);
        if record.repetitions > 0 {
            part.sizes.push(record);
        }
    }
    Ok(part)
}

fn nanoseconds(time: Duration) -> Nanoseconds {
    Nanoseconds::new(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Runs `work` on every connection in a separate thread, and adds up.
fn each(
    sockets: &[Plain],
    order: &Order,
    work: impl Fn(&Plain, &mut [u8]) -> io::Result<Part> + Sync,
) -> io::Result<Carried> {
    if !matches!(order.work, Work::Stream { .. }) {
        let at_once = sockets.iter().try_for_each(Plain::send_at_once);
        at_once.map_err(while_doing("set TCP_NODELAY"))?;
    }
    let length = order.work.buffer();
    let mut buffers: Vec<Vec<u8>> = sockets.iter().map(|_| vec![0; length]).collect();
    let (cpu, began, work) = (cpu_now(), Instant::now(), &work);
    let parts: io::Result<Vec<Part>> = std::thread::scope(|scope| {
        let threads: Vec<_> = sockets
            .iter()
            .zip(&mut buffers)
            .map(|(socket, buffer)| scope.spawn(move || work(socket, buffer)))
            .collect();
        threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(io::Error::other("a data thread panicked")))
            })
            .collect()
    });
    let seconds = began.elapsed().as_secs_f64();
    let cpu_s = cpu_now().saturating_sub(cpu).as_secs_f64();
    let mut whole = Part::default();
    for part in parts? {
        whole.add(part);
    }
    Ok(Carried {
        bytes: whole.bytes,
        bytes_back: whole.bytes_back,
        seconds,
        cpu_s,
        by_kernel: by_kernel(sockets),
        latency: whole.latency,
        sizes: whole.sizes,
    })
}

/// What the kernel's TCP carried of all connections.
fn by_kernel(sockets: &[Plain]) -> Option<Known<u64>> {
    let counts = sockets.iter().filter_map(Plain::kernel_bytes);
    counts.reduce(|sum, one| sum.and_then(|sum| one.map(|one| sum.saturating_add(one))))
}

/// Receives a whole message; false if the connection ended before it.
fn receive_message(socket: &Plain, into: &mut [u8]) -> io::Result<bool> {
    let first = socket.receive(into)?;
    if first == 0 {
        return Ok(false);
    }
    receive_all(socket, into.get_mut(first..).unwrap_or_default())?;
    Ok(true)
}

fn shows_token(socket: &Plain, token: Token) -> bool {
    let mut shown = [0; 16];
    receive_all(socket, &mut shown).is_ok() && shown == token.0
}

fn send_all(socket: &Plain, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = socket.send(bytes)?;
        bytes = bytes.get(sent..).unwrap_or_default();
    }
    Ok(())
}

fn receive_all(socket: &Plain, mut into: &mut [u8]) -> io::Result<()> {
    while !into.is_empty() {
        match socket.receive(into)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            some => into = into.get_mut(some..).unwrap_or_default(),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(flows: u32) -> Order {
        Order {
            flows,
            work: Work::Stream {
                buffer_bytes: Bytes::kib(64),
            },
            duration_ns: Nanoseconds::from_millis(500),
            token: Token([7; 16]),
        }
    }

    #[test]
    fn what_is_sent_arrives_is_counted_and_the_kernels_tcp_is_known() {
        for (address, flows) in [("127.0.0.1:0", 1), ("[::1]:0", 3)] {
            let address: SocketAddr = address.parse().expect("an address");
            let door = Door::open(address, flows).expect("a free port");
            let to = SocketAddr::new(address.ip(), door.port());
            let order = order(flows);
            let (received, sent) = std::thread::scope(|scope| {
                let receiver = scope.spawn(|| door.receive(&order));
                // Another program's connection is not counted as one of ours.
                let stranger = Plain::connect(to).expect("it listens");
                send_all(&stranger, &[8; 16]).expect("it is read");
                let sent = send(to, &order, &AtomicBool::new(false));
                (receiver.join().expect("it ends"), sent)
            });
            let (received, sent) = (received.expect("all came"), sent.expect("all went"));
            assert!(sent.bytes > 0 && received.bytes == sent.bytes);
            assert!(received.seconds > 0.0 && sent.latency.is_none());
            for end in [&received, &sent] {
                // The token and the byte count go the same way.
                let Some(Known::Value(bytes)) = end.by_kernel else {
                    panic!("the kernel counts its own: {:?}", end.by_kernel);
                };
                assert!(bytes >= sent.bytes, "{bytes} of {}", sent.bytes);
            }
        }
    }

    #[test]
    fn nobody_there_is_an_error_that_says_so() {
        let door = Door::open("127.0.0.1:0".parse().expect("one"), 1).expect("a free port");
        let to = SocketAddr::from(([127, 0, 0, 1], door.port()));
        drop(door);
        let refused = send(to, &order(1), &AtomicBool::new(false)).expect_err("nobody listens");
        assert!(refused.to_string().contains("connect to the peer"));
    }

    #[test]
    fn a_sender_that_is_ended_early_has_sent_what_arrived() {
        let door = Door::open("127.0.0.1:0".parse().expect("one"), 2).expect("a free port");
        let to = SocketAddr::from(([127, 0, 0, 1], door.port()));
        let order = Order {
            duration_ns: Nanoseconds::from_millis(600_000),
            ..order(2)
        };
        let (received, sent) = std::thread::scope(|scope| {
            let receiver = scope.spawn(|| door.receive(&order));
            let sent = send(to, &order, &AtomicBool::new(true));
            (receiver.join().expect("it ends"), sent)
        });
        let (received, sent) = (received.expect("all came"), sent.expect("all went"));
        assert_eq!((sent.bytes, received.bytes), (0, 0));
    }

    /// Both ends of `work` on three connections.
    fn both(work: Work, millis: u64) -> (Carried, Carried) {
        let door = Door::open("127.0.0.1:0".parse().expect("one"), 3).expect("a free port");
        let to = SocketAddr::from(([127, 0, 0, 1], door.port()));
        let order = Order {
            work,
            duration_ns: Nanoseconds::from_millis(millis),
            ..order(3)
        };
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| door.receive(&order));
            let sent = send(to, &order, &AtomicBool::new(false)).expect("all went");
            (receiver.join().expect("it ends").expect("all came"), sent)
        })
    }

    #[test]
    fn every_request_is_answered_counted_and_timed() {
        for (request, response) in [(1, 1), (3, 40_000), (40_000, 3)] {
            let work = Work::Requests {
                request_bytes: Bytes::new(request),
                response_bytes: Bytes::new(response),
            };
            let (received, sent) = both(work, 500);
            let requests = sent.latency.as_ref().expect("each is timed").count();
            assert!(requests >= 3, "one of each connection");
            for end in [&received, &sent] {
                assert_eq!(end.bytes, requests * request);
                assert_eq!(end.bytes_back, requests * response);
            }
            assert!(received.latency.is_none() && sent.sizes.is_empty());
        }
    }

    #[test]
    fn every_size_has_its_round_trips_also_one_without_payload() {
        let turns: Vec<Turn> = [(0, 20), (1, 10), (100_000, 5)]
            .map(|(bytes, repetitions)| Turn {
                bytes: Bytes::new(bytes),
                repetitions,
            })
            .to_vec();
        let work = Work::Pingpong {
            turns: turns.clone(),
        };
        let (received, sent) = both(work, 600_000);
        assert_eq!(sent.sizes.len(), turns.len());
        for (row, turn) in sent.sizes.iter().zip(&turns) {
            let round_trips = 3 * u64::from(turn.repetitions);
            assert_eq!((row.bytes, row.repetitions), (turn.bytes, round_trips));
            assert_eq!(row.one_way.count(), round_trips);
        }
        // With the header of an empty message and one round trip of each size that does not count.
        let bytes = 3 * (21 * 8 + 11 + 6 * 100_000);
        assert_eq!((received.bytes, received.bytes_back), (bytes, bytes));
    }

    #[test]
    fn ping_pong_that_is_out_of_time_has_only_what_was_done() {
        let turns = vec![Turn {
            bytes: Bytes::new(1),
            repetitions: 5,
        }];
        let (received, sent) = both(Work::Pingpong { turns }, 0);
        assert_eq!((received.bytes, sent.bytes, sent.sizes.len()), (0, 0, 0));
    }
}
