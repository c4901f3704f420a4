//! A listening agent whose sessions run `cat`, and everybody who calls it: paired hosts, and strangers of every kind.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use linerate_channel::ChannelError;
use linerate_channel::client::{Session, open, pair};
use linerate_channel::identity::Identity;
use linerate_channel::keys::{KeyList, invite};
use linerate_channel::listen::{AgentProcess, Caller, Event, Listen, bind, listen};
use linerate_model::pairing::{HostPort, Pairing, PairingToken, PublicKey};
use tempfile::TempDir;

/// In the future of every clock.
const LATER: u64 = 1 << 40;

/// A session that sends back what it gets, after the terms that every session gets first: a Python program would need
/// Python, and a shell passes its standard input on.
struct Cat;

impl AgentProcess for Cat {
    fn command(&self, _: &Caller) -> io::Result<(Command, Vec<u8>)> {
        let mut command = Command::new("sh");
        // The length of the terms (4 bytes) and the terms.
        command.args(["-c", "head -c 9 >/dev/null; cat; echo done >&2; exit 7"]);
        Ok((command, b"terms".to_vec()))
    }
}

/// An agent that listens until it is dropped.
struct Agent {
    folder: TempDir,
    address: SocketAddr,
    events: Arc<Mutex<Vec<Event>>>,
    stop: Option<io::PipeWriter>,
    thread: Option<JoinHandle<Result<(), ChannelError>>>,
}

impl Agent {
    fn start() -> Self {
        Self::in_folder(tempfile::tempdir().expect("a folder"), 0, &[])
    }

    fn in_folder(folder: TempDir, port: u16, networks: &[&str]) -> Self {
        let socket = bind((Ipv4Addr::LOCALHOST, port).into()).expect("a free port");
        let address = socket.local_addr().expect("bound");
        let networks = networks.iter().map(|text| text.parse().expect("a network"));
        let options = Listen {
            socket,
            state: folder.path().to_owned(),
            networks: networks.collect(),
            sessions_max: 2,
        };
        let events = Arc::<Mutex<Vec<Event>>>::default();
        let seen = Arc::clone(&events);
        let (stopped, stop) = io::pipe().expect("a pipe");
        let thread = thread::spawn(move || {
            let report = move |event| seen.lock().expect("nobody panics").push(event);
            listen(&options, &Cat, &report, stopped.as_fd())
        });
        Self {
            folder,
            address,
            events,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    fn state(&self) -> &Path {
        self.folder.path()
    }

    fn at(&self) -> HostPort {
        HostPort {
            host: self.address.ip().to_string(),
            port: self.address.port(),
        }
    }

    fn invite(&self, token: u8, expires: u64) -> Pairing {
        let token = PairingToken([token; 16]);
        invite(self.state(), token, 0, expires).expect("written");
        Pairing {
            at: self.at(),
            key: Identity::of(self.state()).expect("its key").key(),
            token,
            expires_unix_s: expires,
        }
    }

    /// Ends it; its folder stays.
    fn end(mut self) -> (TempDir, u16) {
        self.finish();
        let port = self.address.port();
        (
            std::mem::replace(&mut self.folder, tempfile::tempdir().expect("a folder")),
            port,
        )
    }

    fn finish(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic").expect("it listened");
        }
    }

    fn count(&self, is_meant: impl Fn(&Event) -> bool) -> usize {
        let events = self.events.lock().expect("nobody panics");
        events.iter().filter(|event| is_meant(event)).count()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.finish();
    }
}

/// A host that calls.
fn host() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

/// A session that runs, and the other ends of its streams.
struct Running {
    input: io::PipeWriter,
    output: io::PipeReader,
    errors: io::PipeReader,
    thread: JoinHandle<Result<u8, ChannelError>>,
}

impl Running {
    fn of(session: Session) -> Self {
        let (input, to_session) = io::pipe().expect("a pipe");
        let (from_session, output) = io::pipe().expect("a pipe");
        let (its_errors, errors) = io::pipe().expect("a pipe");
        let streams = [OwnedFd::from(input), output.into(), errors.into()];
        let thread = thread::spawn(move || {
            let [input, output, errors] = streams;
            session.run(input, output, errors)
        });
        Self {
            input: to_session,
            output: from_session,
            errors: its_errors,
            thread,
        }
    }
}

/// What comes back when `text` is sent through a session, and its exit code.
fn echo(state: &Path, at: &HostPort, text: &[u8]) -> Result<(Vec<u8>, String, u8), ChannelError> {
    let Running {
        mut input,
        mut output,
        mut errors,
        thread,
    } = Running::of(open(state, at)?);
    let (mut back, mut words) = (Vec::new(), String::new());
    thread::scope(|scope| {
        scope.spawn(move || input.write_all(text).expect("it is read"));
        scope.spawn(|| output.read_to_end(&mut back).expect("a pipe"));
        scope.spawn(|| errors.read_to_string(&mut words).expect("text"));
    });
    let code = thread.join().expect("no panic")?;
    Ok((back, words, code))
}

#[test]
fn a_paired_host_has_sessions_that_survive_restarts_of_both_ends() {
    let agent = Agent::start();
    let near = host();
    let line = agent.invite(1, LATER);
    pair(near.path(), &line, 5).expect("paired");
    // More than any buffer on the way holds, both ways at once.
    let text: Vec<u8> = (0..3_000_000u32)
        .map(|number| (number % 251) as u8)
        .collect();
    let (back, words, code) = echo(near.path(), &agent.at(), &text).expect("a session");
    assert!(back == text, "{} bytes came back", back.len());
    assert_eq!((words.as_str(), code), ("done\n", 7));
    let (folder, port) = agent.end();
    let agent = Agent::in_folder(folder, port, &[]);
    let (back, ..) = echo(near.path(), &agent.at(), b"again").expect("a session");
    assert_eq!(back, b"again");
    assert_eq!(agent.count(|event| matches!(event, Event::Paired(_))), 0);
    assert_eq!(agent.count(|event| matches!(event, Event::Began(_))), 1);
}

#[test]
fn a_token_pairs_one_host_once_and_an_expired_or_wrong_one_nobody() {
    let agent = Agent::start();
    let (first, second) = (host(), host());
    let line = agent.invite(1, LATER);
    pair(first.path(), &line, 5).expect("paired");
    let refused = |state: &TempDir, line: &Pairing, now| {
        let error = pair(state.path(), line, now).expect_err("it is refused");
        assert!(matches!(
            open(state.path(), &agent.at()),
            Err(ChannelError::NotPaired { .. })
        ));
        error.to_string()
    };
    let used = refused(&second, &line, 5);
    assert!(used.contains("wrong, used or expired"), "{used}");
    let late = agent.invite(2, 100);
    assert!(refused(&second, &late, 200).contains("has expired"));
    // A clock of the caller that is wrong changes nothing.
    assert!(refused(&second, &late, 50).contains("wrong, used or expired"));
    let guessed = Pairing {
        token: PairingToken([9; 16]),
        ..line
    };
    refused(&second, &guessed, 5);
    assert_eq!(agent.count(|event| matches!(event, Event::Paired(_))), 1);
    assert_eq!(KeyList::Callers.all(agent.state()).expect("read").len(), 1);
}

#[test]
fn another_key_than_the_pinned_one_is_refused_before_anything_is_sent() {
    let agent = Agent::start();
    let near = host();
    let line = agent.invite(1, LATER);
    let other = Pairing {
        key: PublicKey([3; 32]),
        ..line.clone()
    };
    let error = pair(near.path(), &other, 5).expect_err("another key");
    assert!(
        matches!(error, ChannelError::WrongLine { found, .. } if found == line.key),
        "{error}"
    );
    // The token was not sent: it still pairs.
    pair(near.path(), &line, 5).expect("paired");
    // An agent of another key at the address of a known one.
    let (_folder, port) = agent.end();
    let impostor = Agent::in_folder(host(), port, &[]);
    let error = open(near.path(), &impostor.at()).expect_err("another key");
    assert!(matches!(error, ChannelError::WrongKey { expected, .. } if expected == line.key));
    assert_eq!(
        impostor.count(|_| true),
        0,
        "it has learned nothing of the caller"
    );
    // Nor does a new pairing line replace a known key.
    let error = pair(near.path(), &impostor.invite(1, LATER), 5).expect_err("another key");
    assert!(
        matches!(error, ChannelError::KnownByAnotherKey { .. }),
        "{error}"
    );
}

#[test]
fn a_forgotten_host_must_pair_again() {
    let agent = Agent::start();
    let near = host();
    pair(near.path(), &agent.invite(1, LATER), 5).expect("paired");
    let key = Identity::of(near.path()).expect("its key").key().short();
    let gone = KeyList::Callers.forget(agent.state(), &key);
    assert!(gone.expect("removed").is_some());
    let error = open(near.path(), &agent.at()).expect_err("forgotten");
    assert!(
        matches!(error, ChannelError::Refused { code: 21, .. }),
        "{error}"
    );
    pair(near.path(), &agent.invite(2, LATER), 5).expect("paired");
    open(near.path(), &agent.at()).expect("a session");
    let name = agent.at().to_string();
    let gone = KeyList::Agents.forget(near.path(), &name);
    assert!(gone.expect("removed").is_some());
    let error = open(near.path(), &agent.at()).expect_err("forgotten");
    assert!(matches!(error, ChannelError::NotPaired { .. }), "{error}");
}

#[test]
fn a_session_too_many_is_refused_and_one_that_ends_makes_room() {
    let agent = Agent::start();
    let near = host();
    pair(near.path(), &agent.invite(1, LATER), 5).expect("paired");
    let open = || open(near.path(), &agent.at());
    let first = open().expect("a session");
    let _second = open().expect("a session");
    let error = open().expect_err("one too many");
    assert!(
        matches!(error, ChannelError::Refused { code: 41, .. }),
        "{error}"
    );
    drop(first);
    let deadline = Instant::now() + Duration::from_secs(60);
    while agent.count(|event| matches!(event, Event::Ended(_))) == 0 {
        assert!(Instant::now() < deadline, "its process goes on");
        thread::yield_now();
    }
    // It is reported a moment before its place is free.
    while open().is_err() {
        assert!(Instant::now() < deadline, "its place is taken");
    }
}

#[test]
fn an_address_outside_of_the_permitted_networks_is_not_answered() {
    let agent = Agent::in_folder(host(), 0, &["10.0.0.0/8", "fd00::/8"]);
    let near = host();
    let error = pair(near.path(), &agent.invite(1, LATER), 5).expect_err("it is not permitted");
    assert!(matches!(error, ChannelError::NoAgent { .. }), "{error}");
    let outside = |event: &Event| matches!(event, Event::Outside(_));
    assert_eq!(agent.count(outside), 1, "its owner sees why");
    let (folder, port) = agent.end();
    let agent = Agent::in_folder(folder, port, &["127.0.0.0/8"]);
    pair(near.path(), &agent.invite(2, LATER), 5).expect("paired");
}

/// Passes a connection on to `to`, and keeps what the caller has sent.
fn tapped(to: SocketAddr) -> (SocketAddr, JoinHandle<Vec<u8>>) {
    cut(to, usize::MAX)
}

/// The same, and closes the connection after the first `length` bytes of the caller.
fn cut(to: SocketAddr, length: usize) -> (SocketAddr, JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = listener.local_addr().expect("bound");
    let thread = thread::spawn(move || {
        let (mut near, _) = listener.accept().expect("a caller");
        let mut far = TcpStream::connect(to).expect("the agent");
        let (mut back, mut out) = (
            far.try_clone().expect("open"),
            near.try_clone().expect("open"),
        );
        let answers = thread::spawn(move || {
            let _ = io::copy(&mut back, &mut out);
            let _ = out.shutdown(Shutdown::Both);
        });
        let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
        while all.len() < length
            && let Ok(count @ 1..) = near.read(&mut buffer)
        {
            let count = count.min(length - all.len());
            all.extend_from_slice(&buffer[..count]);
            if far.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = far.shutdown(Shutdown::Write);
        answers.join().expect("no panic");
        all
    });
    (address, thread)
}

/// What the agent answers to `bytes`, until it closes the connection.
fn answer_to(agent: &Agent, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(agent.address).expect("it listens");
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .expect("a socket");
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn what_was_recorded_pairs_nobody_when_it_is_replayed_whole_or_cut_anywhere() {
    let agent = Agent::start();
    let near = host();
    let line = agent.invite(1, LATER);
    let (address, tap) = tapped(agent.address);
    let through = Pairing {
        at: HostPort {
            host: address.ip().to_string(),
            port: address.port(),
        },
        ..line.clone()
    };
    pair(near.path(), &through, 5).expect("paired");
    let recorded = tap.join().expect("no panic");
    assert_eq!(agent.count(|event| matches!(event, Event::Paired(_))), 1);
    assert!(recorded.len() > 200, "{} bytes", recorded.len());
    assert!(
        !recorded.windows(16).any(|window| window == line.token.0),
        "the token is readable"
    );
    // Only the first flight of a caller can be answered at all: the agent's part of the key is another each time.
    for length in 0..=recorded.len() {
        answer_to(&agent, &recorded[..length]);
    }
    assert_eq!(agent.count(|_| true), 1, "an event of a replay");
    open(near.path(), &agent.at()).expect_err("another name, not a known agent");
    KeyList::Agents
        .add(
            near.path(),
            linerate_channel::keys::KnownKey {
                key: line.key,
                since_unix_s: 5,
                name: agent.at().to_string(),
            },
        )
        .expect("written");
    open(near.path(), &agent.at()).expect("the agent is as it was");
}

#[test]
fn a_pairing_that_is_cut_at_any_byte_pairs_nobody_and_its_line_still_works() {
    let agent = Agent::start();
    let line = agent.invite(1, LATER);
    // The same host each time; it learns nothing from a pairing that fails.
    let near = host();
    let mut length = 0;
    let sent = loop {
        let (address, tap) = cut(agent.address, length);
        let through = Pairing {
            at: HostPort {
                host: address.ip().to_string(),
                port: address.port(),
            },
            ..line.clone()
        };
        let paired = pair(near.path(), &through, 5);
        let sent = tap.join().expect("no panic");
        let callers = KeyList::Callers.all(agent.state()).expect("read");
        let agents = KeyList::Agents.all(near.path()).expect("read");
        if paired.is_ok() {
            assert_eq!((callers.len(), agents.len()), (1, 1));
            break sent;
        }
        assert_eq!((callers.len(), agents.len()), (0, 0), "{length} bytes");
        length += 1;
    };
    assert!(sent.len() > 200, "{} bytes were enough", sent.len());
    let others = agent.count(|event| !matches!(event, Event::Paired(_)));
    assert_eq!(others, 0, "an event of a cut pairing");
}

/// The first message of TLS 1.2 (RFC 5246): without `supported_versions`, and with its ciphers only.
fn hello_of_tls_1_2() -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.push(0);
    body.extend([0, 4, 0xC0, 0x2B, 0xC0, 0x2F]);
    body.extend([1, 0]);
    let extensions = [
        0x00, 0x0A, 0, 4, 0, 2, 0, 0x1D, // supported_groups: x25519
        0x00, 0x0D, 0, 4, 0, 2, 8, 7, // signature_algorithms: ed25519
    ];
    body.extend(
        u16::try_from(extensions.len())
            .expect("short")
            .to_be_bytes(),
    );
    body.extend(extensions);
    let mut message = vec![1, 0];
    message.extend(u16::try_from(body.len()).expect("short").to_be_bytes());
    message.extend(body);
    let mut record = vec![0x16, 3, 1];
    record.extend(u16::try_from(message.len()).expect("short").to_be_bytes());
    record.extend(message);
    record
}

#[test]
fn an_earlier_version_of_tls_is_answered_by_an_alert() {
    let agent = Agent::start();
    let answer = answer_to(&agent, &hello_of_tls_1_2());
    // A record of type alert, fatal (2), protocol_version (70).
    assert_eq!(
        (answer.first(), answer.get(5..7)),
        (Some(&21), Some(&[2, 70][..])),
        "{answer:?}"
    );
}

/// A figure of this process.
fn status(key: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("proc is mounted");
    let line = text
        .lines()
        .find(|line| line.starts_with(key))
        .expect("the key");
    line.split_whitespace()
        .nth(1)
        .and_then(|word| word.parse().ok())
        .expect("a number")
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd")
        .expect("proc is mounted")
        .count()
}

/// The first flight of a caller, which costs the agent an answer, and garbage instead of the second.
fn hello_of(agent: &Agent, line: &Pairing) -> Vec<u8> {
    let (address, tap) = tapped(agent.address);
    let through = Pairing {
        at: HostPort {
            host: address.ip().to_string(),
            port: address.port(),
        },
        // It ends after the first flight.
        key: PublicKey([3; 32]),
        ..line.clone()
    };
    pair(host().path(), &through, 5).expect_err("another key");
    let mut hello = tap.join().expect("no panic");
    let record = 5 + usize::from(u16::from_be_bytes([hello[3], hello[4]]));
    hello.truncate(record);
    assert!(answer_to(agent, &hello).len() > 100, "it is not answered");
    hello.extend([7; 100]);
    hello
}

#[test]
fn ten_thousand_strangers_and_slow_ones_leave_a_session_memory_and_descriptors_as_they_were() {
    let agent = Agent::start();
    let near = host();
    let line = agent.invite(1, LATER);
    pair(near.path(), &line, 5).expect("paired");
    let hello = hello_of(&agent, &line);
    let mut running = Running::of(open(near.path(), &agent.at()).expect("a session"));
    let mut ask = |text: &[u8]| {
        running.input.write_all(text).expect("the session runs");
        let mut back = vec![0; text.len()];
        running
            .output
            .read_exact(&mut back)
            .expect("the session runs");
        assert_eq!(back, text);
    };
    ask(b"before");
    let flood = |count: u32| {
        for number in 0..count {
            let Ok(mut stream) = TcpStream::connect(agent.address) else {
                panic!("it does not listen any more")
            };
            // Garbage, the start of a handshake, the start of a greeting, and nothing; now and then a handshake that is
            // answered, and then garbage.
            let bytes: &[u8] = match number % 4 {
                _ if number % 20 == 1 => &hello,
                0 => b"GET / HTTP/1.1\r\n\r\n",
                1 => &[0x16, 3, 1, 2, 0, 1],
                2 => b"LNRT\0\0\0\x01xxxxxxxxxxxxxxxx",
                _ => b"",
            };
            let _ = stream.write_all(bytes);
        }
    };
    // Slow ones: they hold every place that there is, and are never finished.
    let slow: Vec<TcpStream> = (0..200)
        .map(|_| TcpStream::connect(agent.address).expect("it listens"))
        .collect();
    flood(500);
    ask(b"during");
    let (memory, open_files, threads) = (status("VmRSS"), descriptors(), status("Threads"));
    flood(9_500);
    ask(b"after");
    // All before this one were taken, or the handshake of the host with a key would wait for theirs.
    answer_to(&agent, b"GET / HTTP/1.1\r\n\r\n");
    // A host with a key gets in between them.
    let (back, ..) = echo(near.path(), &agent.at(), b"between").expect("a session");
    assert_eq!(back, b"between");
    drop(slow);
    assert!(
        status("VmRSS") < memory + 4_096,
        "{} KiB, {memory} before",
        status("VmRSS")
    );
    // Other tests of this program run at the same time, and have some of their own.
    assert!(
        descriptors() < open_files + 100,
        "{}, {open_files} before",
        descriptors()
    );
    assert!(
        status("Threads") < threads + 50,
        "{}, {threads} before",
        status("Threads")
    );
    drop(running.input);
    let code = (running.thread)
        .join()
        .expect("no panic")
        .expect("a session");
    assert_eq!(code, 7);
    let callers = |event: &Event| matches!(event, Event::Refused(..) | Event::Failed(_));
    assert_eq!(agent.count(callers), 0, "strangers are no lines in a log");
}

#[test]
fn a_caller_that_vanishes_ends_its_process_and_an_agent_that_ends_ends_its_sessions() {
    let agent = Agent::start();
    let near = host();
    pair(near.path(), &agent.invite(1, LATER), 5).expect("paired");
    drop(open(near.path(), &agent.at()).expect("a session"));
    let running = Running::of(open(near.path(), &agent.at()).expect("a session"));
    // Joins its sessions, each of which waits for its process.
    drop(agent);
    let error = (running.thread)
        .join()
        .expect("no panic")
        .expect_err("the agent is gone");
    assert!(matches!(error, ChannelError::Broken { .. }), "{error}");
}

#[test]
fn a_port_that_nobody_listens_on_and_one_that_talks_something_else_are_told_apart() {
    let near = host();
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = free.local_addr().expect("bound");
    drop(free);
    let line = |address: SocketAddr| Pairing {
        at: HostPort {
            host: address.ip().to_string(),
            port: address.port(),
        },
        key: PublicKey([1; 32]),
        token: PairingToken([1; 16]),
        expires_unix_s: LATER,
    };
    let error = pair(near.path(), &line(address), 5).expect_err("nobody listens");
    assert!(matches!(error, ChannelError::PortClosed { .. }), "{error}");
    let other = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let address = other.local_addr().expect("bound");
    let web = thread::spawn(move || {
        let (mut stream, _) = other.accept().expect("a caller");
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    });
    let error = pair(near.path(), &line(address), 5).expect_err("it is a web server");
    assert!(matches!(error, ChannelError::NoAgent { .. }), "{error}");
    web.join().expect("no panic");
}
