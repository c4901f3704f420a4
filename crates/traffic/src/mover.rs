//! A stream by the plainest calls there are: blocking sockets of the C library, one thread per flow. For a
//! library that intercepts those calls (rsocket(7)): it shows what such a library achieves for an unmodified program,
//! and without it the same program's TCP.
//!
//! The connecting end sends the trial's token first. The receiver counts what arrives from the time when all are
//! connected to the end of the last, and sends each sender its count, which must match what that sent.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use linerate_model::protocol::Token;
use linerate_model::units::{Bytes, Nanoseconds};
use serde::{Deserialize, Serialize};

use crate::sys::Plain;

/// What both ends are given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// Connections, a thread each.
    pub flows: u32,
    /// What one call sends or receives at most.
    pub buffer_bytes: Bytes,
    /// How long is sent.
    pub duration_ns: Nanoseconds,
    /// What each connection begins with.
    pub token: Token,
}

/// What an end did.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Carried {
    /// Payload.
    pub bytes: u64,
    /// From the time when all connections were established to the end of the last.
    pub seconds: f64,
    /// CPU seconds of this process meanwhile, user and system.
    pub cpu_s: f64,
    /// The kernel's TCP carried it, or some of it.
    pub by_kernel: bool,
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

    /// Takes what comes, until every sender has ended.
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
        each(&sockets, order, |socket, buffer, _| {
            let mut bytes = 0;
            loop {
                match socket.receive(buffer).map_err(while_doing("receive"))? {
                    0 => break,
                    some => bytes += some as u64,
                }
            }
            send_all(socket, &bytes.to_be_bytes()).map_err(while_doing("send the byte count"))?;
            Ok(bytes)
        })
    }
}

/// Sends to `to` for the duration of the order, or until `ends_early` is set.
pub fn send(to: SocketAddr, order: &Order, ends_early: &AtomicBool) -> io::Result<Carried> {
    let mut sockets = Vec::new();
    for _ in 0..order.flows {
        let socket = Plain::connect(to).map_err(while_doing("connect to the peer"))?;
        send_all(&socket, &order.token.0).map_err(while_doing("send the token"))?;
        sockets.push(socket);
    }
    each(&sockets, order, |socket, buffer, began| {
        let duration = Duration::from(order.duration_ns);
        let mut bytes = 0;
        while began.elapsed() < duration && !ends_early.load(Ordering::Relaxed) {
            bytes += socket.send(buffer).map_err(while_doing("send"))? as u64;
        }
        socket.end_sending().map_err(while_doing("end"))?;
        let mut count = [0; 8];
        receive_all(socket, &mut count).map_err(while_doing("receive the byte count"))?;
        match u64::from_be_bytes(count) {
            told if told == bytes => Ok(bytes),
            told => Err(io::Error::other(format!(
                "{bytes} bytes were sent and {told} arrived"
            ))),
        }
    })
}

/// Runs `work` on every connection in a separate thread, and adds up.
fn each(
    sockets: &[Plain],
    order: &Order,
    work: impl Fn(&Plain, &mut [u8], Instant) -> io::Result<u64> + Sync,
) -> io::Result<Carried> {
    let length = usize::try_from(order.buffer_bytes.as_u64()).unwrap_or(usize::MAX);
    let mut buffers: Vec<Vec<u8>> = sockets.iter().map(|_| vec![0; length]).collect();
    let (cpu, began, work) = (cpu_now(), Instant::now(), &work);
    let counts: io::Result<Vec<u64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = sockets
            .iter()
            .zip(&mut buffers)
            .map(|(socket, buffer)| scope.spawn(move || work(socket, buffer, began)))
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
    Ok(Carried {
        bytes: counts?.iter().sum(),
        seconds: began.elapsed().as_secs_f64(),
        cpu_s: cpu_now().saturating_sub(cpu).as_secs_f64(),
        by_kernel: sockets.iter().any(Plain::is_kernels),
    })
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
            buffer_bytes: Bytes::kib(64),
            duration_ns: Nanoseconds::from_millis(50),
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
            assert!(received.seconds > 0.0 && received.by_kernel && sent.by_kernel);
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
}
