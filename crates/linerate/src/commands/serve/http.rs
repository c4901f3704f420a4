//! An HTTP/1.1 server for the local user's browser: GET and HEAD, one answer per connection. Requests
//! are parsed by the strict parser of `linerate_traffic::http`, which is fuzzed. Everything is
//! bounded: the head of a request, the time of a connection, and their number; further ones wait
//! in the kernel's queue.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use linerate_runtime::console::interrupt::Interrupt;
use linerate_traffic::http::{HEAD_MAX, Refusal, RequestTarget, read_request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Conversations at once.
const AT_ONCE: usize = 16;
/// How long a connection may be silent: a browser opens some in advance, and opens others when these are closed.
const SILENT: Duration = Duration::from_secs(2);
/// How long a request may take to come.
const ASKING: Duration = Duration::from_secs(10);
/// How long an answer may take to go: a page of ten megabytes through a slow tunnel.
const ANSWERING: Duration = Duration::from_secs(120);
/// How long is waited for a client to read the end of an answer.
const LINGERING: Duration = Duration::from_secs(1);
/// How long is waited when the system has no capacity for another connection.
const NO_ROOM: Duration = Duration::from_millis(200);

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    status: Status,
    /// Its media type.
    kind: &'static str,
    /// What its page may do.
    policy: String,
    body: String,
}

/// The status of an answer (RFC 9110, 15).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    Bad,
    Forbidden,
    NotFound,
    Method,
    Late,
    Body,
    Misdirected,
    Head,
    Failed,
    Version,
}

impl Status {
    fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::Bad => "400 Bad Request",
            Self::Forbidden => "403 Forbidden",
            Self::NotFound => "404 Not Found",
            Self::Method => "405 Method Not Allowed",
            Self::Late => "408 Request Timeout",
            Self::Body => "413 Content Too Large",
            Self::Misdirected => "421 Misdirected Request",
            Self::Head => "431 Request Header Fields Too Large",
            Self::Failed => "500 Internal Server Error",
            Self::Version => "505 HTTP Version Not Supported",
        }
    }
}

impl Answer {
    /// A page, or a part of one.
    pub(super) fn page(body: String, policy: String) -> Self {
        Self {
            status: Status::Ok,
            kind: "text/html; charset=utf-8",
            policy,
            body,
        }
    }

    /// Plain text for the client, which is untrusted: no markup.
    pub(super) fn words(status: Status, words: &str) -> Self {
        Self {
            status,
            kind: "text/plain; charset=utf-8",
            policy: "default-src 'none'".to_owned(),
            body: format!("{}: {words}\n", status.line()),
        }
    }

    fn refusal(refusal: Refusal) -> Self {
        let (status, words) = match refusal {
            Refusal::Bad => (Status::Bad, "not an HTTP/1.1 request"),
            Refusal::Method => (
                Status::Method,
                "read-only server: only GET and HEAD are supported",
            ),
            Refusal::Late => (Status::Late, "request timed out"),
            Refusal::Body => (Status::Body, "request bodies are not supported"),
            Refusal::Head => (Status::Head, "request headers exceed 8 KiB"),
            Refusal::Version => (Status::Version, "only HTTP/1.1 is supported"),
        };
        Self::words(status, words)
    }

    /// The head: the content must not be cached, framed, sniffed or disclosed to others.
    fn head(&self) -> String {
        let allow = match self.status {
            Status::Method => "Allow: GET, HEAD\r\n",
            _ => "",
        };
        format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}\
             Content-Security-Policy: {}; frame-ancestors 'none'\r\n\
             X-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\n\
             Referrer-Policy: no-referrer\r\nCross-Origin-Opener-Policy: same-origin\r\n\
             Cross-Origin-Resource-Policy: same-origin\r\nCache-Control: no-store\r\n\
             Connection: close\r\n\r\n",
            self.status.line(),
            self.kind,
            self.body.len(),
            self.policy,
        )
    }
}

/// What a server does with those who come.
pub(super) trait Pages: Sync {
    /// Why a connection from `peer` to `here` is turned away, if it is.
    fn turns_away(&self, peer: SocketAddr, here: SocketAddr) -> Option<Answer>;

    /// The answer to a request for `path`, without its query.
    fn answer(&self, path: &str) -> Answer;
}

/// Answers until the interrupt comes. The listener does not block.
pub(super) fn serve(listener: &TcpListener, pages: &dyn Pages, interrupt: &Interrupt) {
    std::thread::scope(|scope| {
        // This thread counts as one: where no other can be started, it does the work alone.
        for _ in 1..AT_ONCE {
            let worker = std::thread::Builder::new().name("answers".to_owned());
            let started = worker.spawn_scoped(scope, || work(listener, pages, interrupt));
            if started.is_err() {
                break;
            }
        }
        work(listener, pages, interrupt);
    });
}

fn work(listener: &TcpListener, pages: &dyn Pages, interrupt: &Interrupt) {
    while !interrupt.asked() {
        let mut ready = [
            PollFd::new(listener, PollFlags::IN),
            PollFd::new(interrupt.abort(), PollFlags::IN),
        ];
        // A signal may cut the wait short: then it is inspected again.
        let _ = poll(&mut ready, None);
        match listener.accept() {
            Ok((stream, peer)) => {
                // A client that has disconnected needs no answer.
                let _ = converse(stream, peer, pages, interrupt);
            }
            Err(error) if is_passing(&error) => {}
            // Too many open files, most likely: some will be closed.
            Err(_) => {
                interrupt.comes_within(NO_ROOM);
            }
        }
    }
}

/// Another thread was first, or the client has gone away again (accept(2)).
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted
    )
}

fn converse(
    stream: TcpStream,
    peer: SocketAddr,
    pages: &dyn Pages,
    interrupt: &Interrupt,
) -> io::Result<()> {
    let here = stream.local_addr()?;
    let mut talk = Conversation::new(stream, interrupt)?;
    let mut head_only = false;
    let answer = match pages.turns_away(peer, here) {
        Some(answer) => answer,
        None => match talk.request(|asked| {
            head_only = asked.head_only;
            answer_to(pages, asked)
        })? {
            Some(answer) => answer,
            None => return Ok(()),
        },
    };
    talk.until = Instant::now() + ANSWERING;
    talk.write(answer.head().as_bytes())?;
    if !head_only {
        talk.write(answer.body.as_bytes())?;
    }
    talk.end()
}

fn answer_to(pages: &dyn Pages, asked: &RequestTarget<'_>) -> Answer {
    if !asked.host.is_some_and(is_own_name) {
        let words = "Host must be 127.0.0.1, [::1] or localhost";
        return Answer::words(Status::Misdirected, words);
    }
    let path = asked.target.split(['?', '#']).next().unwrap_or_default();
    if !path.starts_with('/') {
        return Answer::words(Status::Bad, "not a proxy");
    }
    // A run that cannot be shown must not take the others with it; what panicked has reported it on stderr.
    catch_unwind(AssertUnwindSafe(|| pages.answer(path)))
        .unwrap_or_else(|_| Answer::words(Status::Failed, "this is a bug in linerate"))
}

/// Whether a `Host` names this machine to itself. A page from elsewhere whose name was made to point here (DNS
/// rebinding) names that one. The port may be that of a tunnel.
fn is_own_name(host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (host, None),
    };
    let port_is_one = port.is_none_or(|port| port.parse::<u16>().is_ok());
    let bare = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    let is_loopback = match bare {
        Some(six) => six.parse().is_ok_and(|six| IpAddr::V6(six).is_loopback()),
        None => name
            .parse()
            .is_ok_and(|four| IpAddr::V4(four).is_loopback()),
    };
    port_is_one && (is_loopback || name.eq_ignore_ascii_case("localhost"))
}

/// A connection, each of whose waits ends in time, and with the server.
#[derive(Debug)]
struct Conversation<'a> {
    stream: TcpStream,
    until: Instant,
    interrupt: &'a Interrupt,
}

impl<'a> Conversation<'a> {
    fn new(stream: TcpStream, interrupt: &'a Interrupt) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        // An answer is sent in two writes.
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            until: Instant::now() + SILENT,
            interrupt,
        })
    }

    /// Reads a request and sends the answer of `answer`, or why it is refused; none if there was no request.
    fn request(
        &mut self,
        answer: impl FnOnce(&RequestTarget<'_>) -> Answer,
    ) -> io::Result<Option<Answer>> {
        let mut head = Vec::with_capacity(HEAD_MAX);
        let mut piece = [0; 2048];
        loop {
            match read_request(&head) {
                Ok(Some(asked)) => return Ok(Some(answer(&asked))),
                Err(refusal) => return Ok(Some(Answer::refusal(refusal))),
                Ok(None) => {}
            }
            match self.read(&mut piece) {
                Ok(0) => return Ok(None),
                Ok(read) => {
                    if head.is_empty() {
                        self.until = Instant::now() + ASKING;
                    }
                    head.extend_from_slice(&piece[..read]);
                }
                Err(error) if error.kind() == io::ErrorKind::TimedOut && !head.is_empty() => {
                    return Ok(Some(Answer::refusal(Refusal::Late)));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Ends the answer, and drains the client's data: a connection that is closed with unread bytes is reset, and the
    /// answer may be lost with it (RFC 9112, 9.6).
    fn end(&mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)?;
        self.until = Instant::now() + LINGERING;
        let mut rest = [0; 2048];
        while self.read(&mut rest)? > 0 && Instant::now() < self.until {}
        Ok(())
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stream.read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(PollFlags::IN)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }

    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(PollFlags::OUT)?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn wait(&self, flags: PollFlags) -> io::Result<()> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let limit = Timespec::try_from(left).unwrap_or_default();
        let mut ready = [
            PollFd::new(&self.stream, flags),
            PollFd::new(self.interrupt.abort(), PollFlags::IN),
        ];
        // A signal may cut the wait short: then it is tried again.
        let _ = poll(&mut ready, Some(&limit));
        if self.interrupt.asked() {
            return Err(io::Error::other("the server is shutting down"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_its_own() {
        for host in [
            "127.0.0.1",
            "127.0.0.1:8080",
            "127.1.2.3:1",
            "localhost:9",
            "LocalHost",
            "[::1]",
            "[::1]:80",
        ] {
            assert!(is_own_name(host), "{host}");
        }
        for host in [
            "",
            "example.org",
            "example.org:80",
            "localhost.example.org",
            "127.0.0.1.example.org",
            "127.0.0.1:80:80",
            "127.0.0.1:",
            "127.0.0.1:http",
            "10.0.0.1",
            "0.0.0.0",
            "::1",
            "[::1",
            "[::2]:80",
            "[127.0.0.1]",
            "localhost:99999",
        ] {
            assert!(!is_own_name(host), "{host}");
        }
    }

    #[test]
    fn no_answer_may_be_framed_sniffed_kept_or_run() {
        let answer = Answer::words(Status::NotFound, "no such run");
        let head = answer.head();
        assert!(head.starts_with("HTTP/1.1 404 Not Found\r\n") && head.ends_with("\r\n\r\n"));
        for words in [
            "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'",
            "X-Content-Type-Options: nosniff",
            "Cross-Origin-Resource-Policy: same-origin",
            "Cache-Control: no-store",
            "Content-Length: 27",
        ] {
            assert!(head.contains(words), "{words}: {head}");
        }
        assert_eq!(answer.body, "404 Not Found: no such run\n");
    }
}
