//! What the server sends, made before the first request comes.

use std::io::IoSlice;
use std::os::fd::AsFd;

use linerate_model::units::Bytes;
use linerate_model::workload::MemoryPolicy;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};

use crate::TrafficError;
use crate::buffer::Buffer;
use crate::http::parse::request::{After, Refusal, Request};

/// Maximum part of a body that is kept in memory: a longer body repeats it.
const CHUNK_BYTES: u64 = 256 * 1024;
/// Answers up to this size are kept several times in a row, for requests that come in one piece.
const SEVERAL_BYTES: usize = 16 * 1024;
/// A thread that sends a large body to a fast reader looks after the others in between.
const SENDS_A_TURN: u32 = 8;

/// Which answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Answer { head_only: bool, after: After },
    Refusal(Refusal),
}

impl Kind {
    pub(super) fn of(request: Request) -> Self {
        Self::Answer {
            head_only: request.head_only,
            after: request.after,
        }
    }

    /// Whether the connection is kept.
    pub(super) fn stays(self) -> bool {
        match self {
            Self::Answer { after, .. } => after != After::Close,
            Self::Refusal(_) => false,
        }
    }

    fn has_body(self) -> bool {
        matches!(
            self,
            Self::Answer {
                head_only: false,
                ..
            }
        )
    }

    /// The one that everybody gets, and the only one that is kept several times.
    pub(super) fn is_usual(self) -> bool {
        let after = After::Stay;
        self == Self::Answer {
            head_only: false,
            after,
        }
    }
}

/// Answers that a connection is owed, all of one kind, and how far they are sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owed {
    pub(super) kind: Kind,
    pub(super) count: u64,
    sent: u64,
}

impl Owed {
    pub(super) fn new(kind: Kind, count: u64) -> Self {
        Self {
            kind,
            count,
            sent: 0,
        }
    }
}

/// How a turn of sending ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// Nothing is owed any more.
    All,
    /// The socket takes no more now, or others have their turn.
    Part,
    /// The connection is gone.
    Broken,
}

/// The heads of the answers that have a body.
#[derive(Debug)]
struct Heads {
    stay: Vec<u8>,
    stay_as_asked: Vec<u8>,
    close: Vec<u8>,
}

impl Heads {
    fn of(&self, kind: Kind) -> &[u8] {
        match kind {
            Kind::Answer { after, .. } => match after {
                After::Stay => &self.stay,
                After::StayAsAsked => &self.stay_as_asked,
                After::Close => &self.close,
            },
            Kind::Refusal(refusal) => refusal_text(refusal),
        }
    }
}

/// All answers of one thread.
#[derive(Debug)]
pub(super) struct Answers {
    heads: Heads,
    body: u64,
    chunk: Buffer,
    /// The usual answer, repeated up to `most` times; empty when it is large.
    several: Vec<u8>,
    /// How many usual answers go out with one call.
    pub(super) most: u64,
}

impl Answers {
    pub(super) fn new(body: Bytes, policy: &MemoryPolicy) -> Result<Self, TrafficError> {
        let body = body.as_u64();
        let mut chunk = Buffer::new(Bytes::new(body.clamp(1, CHUNK_BYTES)), policy)?;
        // Sixty-four visible characters: a terminal survives them, and they do not compress to nothing.
        chunk
            .bytes()
            .iter_mut()
            .for_each(|byte| *byte = b'0' + (*byte & 63));
        let head = |more: &str| {
            format!("HTTP/1.1 200 OK\r\nContent-Length: {body}\r\n{more}\r\n").into_bytes()
        };
        let stay = head("");
        let whole = stay
            .len()
            .saturating_add(usize::try_from(body).unwrap_or(usize::MAX));
        let most = (SEVERAL_BYTES / whole).max(1);
        let mut several = Vec::new();
        if whole <= SEVERAL_BYTES {
            several = [&stay, &*chunk.bytes()].concat();
            several.truncate(whole);
            several = several.repeat(most);
        }
        Ok(Self {
            heads: Heads {
                stay,
                stay_as_asked: head("Connection: keep-alive\r\n"),
                close: head("Connection: close\r\n"),
            },
            body,
            chunk,
            several,
            most: most as u64,
        })
    }

    pub(super) fn memory(&self) -> &Buffer {
        &self.chunk
    }

    /// Sends of `owed` what the socket takes; counts it in `bytes`.
    pub(super) fn send(&mut self, socket: impl AsFd, owed: &mut Owed, bytes: &mut u64) -> Sent {
        let body = if owed.kind.has_body() { self.body } else { 0 };
        let whole = self.heads.of(owed.kind).len() as u64 + body;
        let all = whole * owed.count;
        for _ in 0..SENDS_A_TURN {
            let result = if owed.kind.is_usual() && !self.several.is_empty() {
                let part = &self.several[place(owed.sent)..place(all)];
                send(&socket, part, SendFlags::NOSIGNAL)
            } else {
                self.send_part(&socket, owed.kind, owed.sent, whole)
            };
            match result {
                Ok(count) => {
                    owed.sent += count as u64;
                    *bytes += count as u64;
                    if owed.sent == all {
                        return Sent::All;
                    }
                }
                Err(Errno::AGAIN) => return Sent::Part,
                Err(Errno::INTR) => {}
                Err(_) => return Sent::Broken,
            }
        }
        Sent::Part
    }

    /// Sends from place `from` of one answer: what is left of its head, and of its body a chunk.
    fn send_part(
        &mut self,
        socket: impl AsFd,
        kind: Kind,
        from: u64,
        whole: u64,
    ) -> rustix::io::Result<usize> {
        let head = self.heads.of(kind);
        let of_head = &head[place(from.min(head.len() as u64))..];
        let left = whole - from - of_head.len() as u64;
        let chunk = self.chunk.bytes();
        // Every answer has the same body, however its sends were cut.
        let at = from.saturating_sub(head.len() as u64) % chunk.len() as u64;
        let of_body = &chunk[place(at)..place((at + left).min(chunk.len() as u64))];
        if of_head.is_empty() {
            return send(socket, of_body, SendFlags::NOSIGNAL);
        }
        let parts = [IoSlice::new(of_head), IoSlice::new(of_body)];
        let mut nothing_beside = SendAncillaryBuffer::default();
        sendmsg(socket, &parts, &mut nothing_beside, SendFlags::NOSIGNAL)
    }
}

/// A place in memory.
fn place(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

fn refusal_text(refusal: Refusal) -> &'static [u8] {
    match refusal {
        Refusal::Bad => b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        Refusal::Method => {
            b"HTTP/1.1 405 Method Not Allowed\r\nAllow: GET, HEAD\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        }
        Refusal::Late => b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        Refusal::Body => b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        Refusal::Head => {
            b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        }
        Refusal::Version => {
            b"HTTP/1.1 505 HTTP Version Not Supported\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_of_111_bytes_makes_the_sources_answer_of_151() {
        let body = crate::http::SOURCE_BODY;
        let answers = Answers::new(body, &MemoryPolicy::Default).expect("memory");
        assert_eq!(answers.several.len() as u64, 151 * answers.most);
        assert!(answers.most > 50);
    }

    #[test]
    fn a_large_body_is_not_kept_whole() {
        let answers = Answers::new(Bytes::mib(1024), &MemoryPolicy::Default).expect("memory");
        assert!(answers.several.is_empty());
        assert_eq!(answers.most, 1);
    }
}
