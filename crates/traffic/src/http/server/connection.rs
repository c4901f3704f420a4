//! One client's connection: reads requests, sends answers, and holds no more memory than a head and a
//! reading's rest whatever the client does.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};

use super::answers::{Answers, Kind, Owed, Sent};
use crate::http::parse::request::{Refusal, parse};
use crate::source::Source;

/// What one reading takes. With a head's limit it bounds what a connection may hold.
pub(super) const READ_BYTES: usize = 16 * 1024;

/// Seconds that a client may be silent between requests.
pub(super) const IDLE_S: u32 = 75;
/// Seconds that any client may be silent before its first request.
/// (The connections of a trial wait for its start.)
pub(super) const FIRST_S: u32 = 10;
/// Seconds from a head's first byte to its last.
const HEAD_S: u32 = 10;
/// Seconds that a client may leave an answer in the socket buffer.
const STALL_S: u32 = 10;
/// Seconds, and bytes, that a refused client is listened to: closing with its bytes unread would reset the
/// connection, and the refusal would never be read (RFC 9112, 9.6).
const LINGER_S: u32 = 2;
const LINGER_BYTES: usize = 1 << 20;

/// What all connections of a thread share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) answers: Answers,
    pub(super) buffer: Vec<u8>,
    /// Seconds since the start.
    pub(super) now_s: u32,
    /// Seconds that a client may be silent before its first request.
    pub(super) first_s: u32,
    pub(super) bytes: u64,
    pub(super) requests: u64,
    pub(super) refused: u64,
}

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    /// The first request.
    First,
    /// The next request.
    Idle,
    /// The rest of a request.
    Head,
    /// Space in the socket buffer.
    Writing,
    /// The client to close.
    Lingering { left: usize },
}

/// What is to be watched of a connection from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Read,
    Write,
    Close,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) socket: OwnedFd,
    /// What is watched of it.
    pub(super) watched: Next,
    /// Where it comes from.
    pub(super) source: Source,
    doing: Doing,
    since_s: u32,
    /// Bytes that came and are not dealt with.
    kept: Vec<u8>,
    owed: Option<Owed>,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd, source: Source, now_s: u32) -> Self {
        Self {
            socket,
            source,
            watched: Next::Read,
            doing: Doing::First,
            since_s: now_s,
            kept: Vec::new(),
            owed: None,
        }
    }

    /// Continues after an event.
    pub(super) fn advance(&mut self, shared: &mut Shared) -> Next {
        if let Doing::Lingering { left } = self.doing {
            return self.linger(left, shared);
        }
        if let Some(owed) = self.owed {
            return match self.pay(shared) {
                Sent::All if owed.kind.stays() => self.answer_kept(shared),
                Sent::All => self.take_leave(shared.now_s),
                Sent::Part => Next::Write,
                Sent::Broken => Next::Close,
            };
        }
        match recv(&self.socket, &mut shared.buffer[..], RecvFlags::empty()) {
            Ok((0, _)) => Next::Close,
            Ok((count, _)) if self.kept.is_empty() => {
                // Lent out while the rest is borrowed; an empty Vec allocates nothing.
                let buffer = std::mem::take(&mut shared.buffer);
                let next = self.answer(&buffer[..count], shared);
                shared.buffer = buffer;
                next
            }
            Ok((count, _)) => {
                self.kept.extend_from_slice(&shared.buffer[..count]);
                self.answer_kept(shared)
            }
            Err(Errno::AGAIN | Errno::INTR) => self.watched,
            Err(_) => Next::Close,
        }
    }

    fn answer_kept(&mut self, shared: &mut Shared) -> Next {
        let kept = std::mem::take(&mut self.kept);
        self.answer(&kept, shared)
    }

    /// Answers the requests in `data` as far as the socket takes it, and keeps the rest.
    fn answer(&mut self, mut data: &[u8], shared: &mut Shared) -> Next {
        loop {
            let (run, length) = next_run(data, shared.answers.most);
            let Some(run) = run else {
                self.keep(data, shared.now_s);
                return Next::Read;
            };
            data = &data[length..];
            match run.kind {
                Kind::Answer { .. } => shared.requests += run.count,
                Kind::Refusal(_) => shared.refused += 1,
            }
            let stays = run.kind.stays();
            self.owed = Some(run);
            match self.pay(shared) {
                Sent::All if stays => {}
                Sent::All => return self.take_leave(shared.now_s),
                Sent::Part => {
                    self.kept = if stays { data.to_vec() } else { Vec::new() };
                    return Next::Write;
                }
                Sent::Broken => return Next::Close,
            }
        }
    }

    /// Keeps the beginning of a request.
    fn keep(&mut self, data: &[u8], now_s: u32) {
        let doing = if data.is_empty() {
            Doing::Idle
        } else {
            Doing::Head
        };
        // The time of a head counts from its first byte, whatever trickles in after it.
        if doing == Doing::Idle || self.doing != Doing::Head {
            self.since_s = now_s;
        }
        self.doing = doing;
        self.kept = data.to_vec();
    }

    /// Sends what is owed, and takes leave after the last answer.
    fn pay(&mut self, shared: &mut Shared) -> Sent {
        let Some(owed) = &mut self.owed else {
            return Sent::All;
        };
        let before = shared.bytes;
        let sent = shared.answers.send(&self.socket, owed, &mut shared.bytes);
        match sent {
            Sent::All => {
                self.doing = Doing::Idle;
                self.since_s = shared.now_s;
                self.owed = None;
            }
            Sent::Part => {
                if shared.bytes > before || self.doing != Doing::Writing {
                    self.since_s = shared.now_s;
                }
                self.doing = Doing::Writing;
            }
            Sent::Broken => {}
        }
        sent
    }

    /// The last answer is out: reports it, and waits for the client to close.
    fn take_leave(&mut self, now_s: u32) -> Next {
        // It fails when the client is gone, and then the next reading reports it.
        let _ = shutdown(&self.socket, Shutdown::Write);
        self.kept = Vec::new();
        self.doing = Doing::Lingering { left: LINGER_BYTES };
        self.since_s = now_s;
        Next::Read
    }

    fn linger(&mut self, left: usize, shared: &mut Shared) -> Next {
        match recv(&self.socket, &mut shared.buffer[..], RecvFlags::empty()) {
            Ok((count, _)) if count > 0 && count < left => {
                self.doing = Doing::Lingering { left: left - count };
                Next::Read
            }
            Err(Errno::AGAIN | Errno::INTR) => Next::Read,
            _ => Next::Close,
        }
    }

    /// Checks whether the client has exceeded its time limit.
    pub(super) fn tick(&mut self, shared: &mut Shared) -> Next {
        let silent = shared.now_s.saturating_sub(self.since_s);
        match self.doing {
            Doing::Head if silent >= HEAD_S => {
                shared.refused += 1;
                self.owed = Some(Owed::new(Kind::Refusal(Refusal::Late), 1));
                match self.pay(shared) {
                    Sent::All => self.take_leave(shared.now_s),
                    Sent::Part | Sent::Broken => Next::Close,
                }
            }
            Doing::First if silent >= shared.first_s => Next::Close,
            Doing::Idle if silent >= IDLE_S => Next::Close,
            Doing::Writing if silent >= STALL_S => Next::Close,
            Doing::Lingering { .. } if silent >= LINGER_S => Next::Close,
            _ => self.watched,
        }
    }
}

/// The answers to the requests that `data` begins with, as far as they are of one kind and at most `most`;
/// and the bytes of those requests.
fn next_run(data: &[u8], most: u64) -> (Option<Owed>, usize) {
    let (kind, mut length) = match parse(data) {
        Ok(None) => return (None, 0),
        Ok(Some(request)) => (Kind::of(request), request.length),
        Err(refusal) => return (Some(Owed::new(Kind::Refusal(refusal), 1)), data.len()),
    };
    let mut count = 1;
    while kind.is_usual() && count < most {
        match parse(&data[length..]) {
            Ok(Some(request)) if Kind::of(request) == kind => {
                length += request.length;
                count += 1;
            }
            _ => break,
        }
    }
    (Some(Owed::new(kind, count)), length)
}
