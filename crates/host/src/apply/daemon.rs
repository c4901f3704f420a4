//! Settings of irqbalance: whether it is stopped, so that interrupts are not moved, and which interrupts are banned.
//! A stopped process does nothing and loses nothing; messages sent meanwhile are handled when it continues.
//!
//! State and signals: proc_pid_status(5), kill(2). Any user can give a program this name: only a process whose
//! effective user is root counts (in a user namespace, that namespace's root). A process is held by a pidfd
//! (pidfd_open(2)) between checking its name and the signal, so that no other process gets it. Its socket
//! (`sock_handle` in irqbalance.c, version 1.2 and later): one message of less than 500 bytes per connection, with
//! the sender's credentials; `setup` is answered by `SLEEP n IRQ n LOAD n DIFF n CLASS n ... BANNED mask`, `settings
//! ban irqs n n` and `... NONE` by nothing. The kernel reports who listens on it (SO_PEERCRED, unix(7)): it must be
//! the process that was found, running as root.

use std::collections::BTreeSet;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use linerate_model::known::{Cause, Known};
use linerate_model::setting::Value;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, UCred, connect, recv, sendmsg, socket_with,
};
use rustix::process::{
    Pid, PidfdFlags, Signal, getegid, geteuid, getpid, pidfd_open, pidfd_send_signal,
};

use crate::procfs::owners::{is_of_root, line_of, process_ids};
use crate::root::HostRoot;

const IRQBALANCE: &str = "irqbalance";
/// A running process handles a signal soon, a sleeping one at once.
const HEARS_WITHIN: Duration = Duration::from_secs(2);
/// irqbalance answers between two scans of the machine, which take a while with many CPUs and interrupts.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// Whether every irqbalance is stopped.
pub(super) fn is_paused(root: &HostRoot) -> Known<Value> {
    let stopped: Vec<bool> = processes(root)
        .into_iter()
        .map(|(_, stopped)| stopped)
        .collect();
    if stopped.is_empty() {
        return Known::unknown(Cause::Absent, "/proc/*/comm", "no irqbalance runs");
    }
    Known::Value(Value::Switch(stopped.iter().all(|stopped| *stopped)))
}

/// Stops or continues every irqbalance.
pub(super) fn pause(root: &HostRoot, paused: bool) -> io::Result<()> {
    let signal = if paused { Signal::STOP } else { Signal::CONT };
    let all = processes(root);
    if all.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "no irqbalance runs",
        ));
    }
    for (pid, _) in all {
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let process = process.ok_or(io::ErrorKind::InvalidData)?;
        let held = pidfd_open(process, PidfdFlags::empty())?;
        if state_of(root, pid).is_some() {
            pidfd_send_signal(&held, signal)?;
        }
    }
    let until = Instant::now() + HEARS_WITHIN;
    while processes(root)
        .iter()
        .any(|(_, stopped)| *stopped != paused)
    {
        if Instant::now() >= until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// The irqbalance processes, and whether each is stopped.
fn processes(root: &HostRoot) -> Vec<(u32, bool)> {
    let names = root.list("proc");
    let pids = names.value().map(|names| process_ids(names));
    let pids = pids.into_iter().flatten();
    pids.filter_map(|pid| Some((pid, state_of(root, pid)?)))
        .collect()
}

/// Whether a process is stopped; `None` if it is not irqbalance or has ended.
fn state_of(root: &HostRoot, pid: u32) -> Option<bool> {
    let status = root.read(&format!("proc/{pid}/status"));
    is_stopped(status.value()?)
}

/// The same from a `/proc/PID/status`: its name, state and user are read at once.
fn is_stopped(status: &str) -> Option<bool> {
    let state = line_of(status, "State")?.chars().next()?;
    let counts = line_of(status, "Name") == Some(IRQBALANCE)
        && is_of_root(status)
        && !matches!(state, 'Z' | 'X');
    counts.then_some(matches!(state, 'T' | 't'))
}

/// The maximum message that irqbalance accepts.
const MESSAGE_MAX: usize = 499;
/// The maximum size of a response: every interrupt of a large machine takes 60 bytes.
const ANSWER_MAX: usize = 1 << 20;

/// The interrupts banned by a message.
pub(super) fn bans(root: &HostRoot) -> Known<Value> {
    let Some((pid, path)) = socket_of(root) else {
        return Known::unknown(
            Cause::Absent,
            "/run/irqbalance",
            "no irqbalance runs that has a socket",
        );
    };
    match ask(pid, &path, "setup") {
        Ok(answer) => match parse_setup(&answer) {
            Some(bans) => Known::Value(Value::Text(words(&bans))),
            None => Known::unknown(Cause::Unreadable, path, "no answer of irqbalance's"),
        },
        Err(error) => Known::unknown(Cause::Unreadable, path, error.to_string()),
    }
}

/// Bans these interrupts, and unbans all others that were banned by a message.
pub(super) fn ban(root: &HostRoot, text: &str) -> io::Result<()> {
    let wrong = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why.to_owned());
    let numbers = text.split_whitespace().map(str::parse::<u32>);
    let numbers: Result<BTreeSet<u32>, _> = numbers.collect();
    let numbers = numbers.map_err(|_| wrong("interrupts are numbers with blanks between"))?;
    // In its list it marks the end.
    if numbers.contains(&0) {
        return Err(wrong("irqbalance takes no interrupt 0"));
    }
    let list = if numbers.is_empty() {
        "NONE".to_owned()
    } else {
        words(&numbers)
    };
    let message = format!("settings ban irqs {list}");
    if message.len() > MESSAGE_MAX {
        return Err(wrong("irqbalance takes less than 500 bytes at a time"));
    }
    let (pid, path) = socket_of(root).ok_or(io::ErrorKind::NotFound)?;
    ask(pid, &path, &message).map(drop)
}

fn words(numbers: &BTreeSet<u32>) -> String {
    let words = numbers.iter().map(ToString::to_string);
    words.collect::<Vec<_>>().join(" ")
}

/// The running irqbalance, and its socket.
fn socket_of(root: &HostRoot) -> Option<(u32, String)> {
    let (pid, _) = processes(root).into_iter().next()?;
    let path = format!("run/irqbalance/irqbalance{pid}.sock");
    root.exists(&path).then(|| (pid, format!("/{path}")))
}

/// Sends a message to process `pid`, and returns the response.
fn ask(pid: u32, path: &str, message: &str) -> io::Result<String> {
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // A stopped one accepts the connection and never answers.
    for way in [Timeout::Recv, Timeout::Send] {
        set_socket_timeout(&socket, way, Some(ANSWERS_WITHIN))?;
    }
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    let listener = socket_peercred(&socket)?;
    let is_that = u32::try_from(listener.pid.as_raw_nonzero().get()) == Ok(pid);
    if !(is_that && listener.uid.is_root()) {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "another process than irqbalance listens there",
        ));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
    let mut own = SendAncillaryBuffer::new(&mut space);
    own.push(SendAncillaryMessage::ScmCredentials(UCred {
        pid: getpid(),
        uid: geteuid(),
        gid: getegid(),
    }));
    let message = [IoSlice::new(message.as_bytes())];
    sendmsg(&socket, &message, &mut own, SendFlags::NOSIGNAL)?;
    let mut answer = Vec::new();
    let mut part = [0_u8; 4096];
    loop {
        let (_, length) = recv(&socket, &mut part, RecvFlags::empty()).map_err(silent)?;
        match part.get(..length) {
            Some([]) | None => break,
            Some(bytes) => answer.extend_from_slice(bytes),
        }
        if answer.len() > ANSWER_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The meaning of a timeout, which the kernel reports as "temporarily unavailable".
fn silent(errno: Errno) -> io::Error {
    if errno != Errno::AGAIN {
        return errno.into();
    }
    let seconds = ANSWERS_WITHIN.as_secs();
    io::Error::new(
        io::ErrorKind::TimedOut,
        format!("irqbalance did not answer within {seconds} s; is it stopped?"),
    )
}

/// The interrupts in a response to `setup`.
pub(crate) fn parse_setup(answer: &str) -> Option<BTreeSet<u32>> {
    let mut words = answer.split_whitespace();
    if words.next() != Some("SLEEP") {
        return None;
    }
    let mut bans = BTreeSet::new();
    while let Some(word) = words.next() {
        match word {
            "IRQ" => {
                bans.insert(words.next()?.parse().ok()?);
            }
            "BANNED" => return Some(bans),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_a_process_of_root_is_irqbalance() {
        let status = |name: &str, state: &str, users: &str| {
            format!(
                "Name:\t{name}\nUmask:\t0022\nState:\t{state}\nUid:\t{users}\nGid:\t0\t0\t0\t0\n"
            )
        };
        let root = "0\t0\t0\t0";
        for (state, stopped) in [
            ("S (sleeping)", Some(false)),
            ("T (stopped)", Some(true)),
            ("t (tracing stop)", Some(true)),
            ("Z (zombie)", None),
        ] {
            assert_eq!(
                is_stopped(&status(IRQBALANCE, state, root)),
                stopped,
                "{state}"
            );
        }
        let sleeps = "S (sleeping)";
        assert_eq!(is_stopped(&status("irqbalance2", sleeps, root)), None);
        // A process of an ordinary user; one that was started by root and dropped privileges; one that is root only
        // in a child user namespace.
        for users in [
            "1000\t1000\t1000\t1000",
            "0\t1000\t0\t1000",
            "65534\t65534\t65534\t65534",
        ] {
            assert_eq!(
                is_stopped(&status(IRQBALANCE, "T (stopped)", users)),
                None,
                "{users}"
            );
        }
        assert_eq!(is_stopped(""), None);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test is the other process")]
    fn a_socket_that_another_process_listens_on_is_not_asked() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("irqbalance1.sock");
        let listener = UnixListener::bind(&path).expect("our own folder");
        let path = path.to_str().expect("text");
        let own = std::process::id();
        let error = ask(own + 1, path, "setup").expect_err("it is ours");
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        let (mut asked, _) = listener.accept().expect("it has connected");
        let mut heard = Vec::new();
        asked.read_to_end(&mut heard).expect("it is gone");
        assert_eq!(heard, b"", "it was told something");

        let answers = std::thread::spawn(move || {
            let (mut asked, _) = listener.accept()?;
            asked.read_exact(&mut [0; 5])?;
            asked.write_all(b"SLEEP 10 BANNED 0")
        });
        let answer = ask(own, path, "setup");
        if geteuid().is_root() {
            assert_eq!(answer.expect("it answers"), "SLEEP 10 BANNED 0");
        } else {
            let error = answer.expect_err("it is no root");
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        }
        // There may have been no listener.
        let _ = answers.join().expect("no panic");
    }

    #[test]
    fn the_interrupts_of_an_answer_are_told_apart_from_the_cpus() {
        let some =
            "SLEEP 10 IRQ 25 LOAD 0 DIFF 0 CLASS 3 IRQ 24 LOAD 7 DIFF 1 CLASS 3 BANNED 0000000f";
        assert_eq!(parse_setup(some), Some(BTreeSet::from([24, 25])));
        assert_eq!(
            parse_setup("SLEEP 10 BANNED 00000000"),
            Some(BTreeSet::new())
        );
        for cut in ["", "SLEEP 10 IRQ", "SLEEP 10 IRQ 2", "TYPE 0 NUMBER 0"] {
            assert_eq!(parse_setup(cut), None, "{cut:?}");
        }
    }

    proptest! {
        #[test]
        fn no_answer_panics(text in "(SLEEP )?((IRQ|LOAD|BANNED|[0-9]{1,12}|.{0,5}) ){0,12}") {
            let _ = parse_setup(&text);
        }
    }
}
