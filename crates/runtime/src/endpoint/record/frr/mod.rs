//! The time-outs of FRR's neighbors, so that the expected time of a failover stands beside the measured one: BFD, BGP and
//! OSPF, if their daemons run in this network namespace; and the states of its BFD sessions while a trial runs (`bfd`). `vtysh` prints them as JSON (docs.frrouting.org). It is the one
//! program whose output linerate reads: FRR has no other interface that every build offers.

mod bfd;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linerate_model::failover::events::{Event, TIMERS_MAX};
use linerate_model::failover::phase::{Protocol, Timer};
use linerate_model::known::{Cause, Gap};
use linerate_model::units::Nanoseconds;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

/// How long one request may take: a daemon may hang.
const REQUEST_MAX: Duration = Duration::from_secs(2);
/// More output than this is not read.
const OUTPUT_MAX: u64 = 4 << 20;
/// Where the daemons listen unless they are started with `--vty_socket`.
const SOCKETS: &str = "/var/run/frr";

/// A daemon, what it is asked, and how its answer is read.
struct Query {
    daemon: &'static str,
    command: &'static str,
    parse: fn(&Value) -> Vec<Timer>,
}

const BFD: Query = Query {
    daemon: "bfdd",
    command: "show bfd peers json",
    parse: bfd_timers,
};

const QUERIES: [Query; 4] = [
    BFD,
    Query {
        daemon: "bgpd",
        command: "show bgp neighbors json",
        parse: bgp,
    },
    Query {
        daemon: "ospfd",
        command: "show ip ospf interface json",
        parse: ospf,
    },
    Query {
        daemon: "ospf6d",
        command: "show ipv6 ospf6 interface json",
        parse: ospf6,
    },
];

/// What was read, and what could not be.
#[derive(Debug, Default)]
pub(super) struct FrrAnswers {
    pub(super) timers: Vec<Timer>,
    /// Changes of BFD sessions.
    pub(super) changes: Vec<Event>,
    pub(super) gaps: Vec<Gap>,
}

/// What FRR reports, read beside the trial.
#[derive(Debug)]
pub(super) struct Frr {
    reading: Option<JoinHandle<FrrAnswers>>,
    /// Its end is that of the reading.
    over: Sender<()>,
}

impl Frr {
    /// Asks the daemons of the calling thread's network namespace.
    pub(super) fn start() -> Self {
        let daemons = daemons(Path::new("/proc"));
        let (over, is_over) = mpsc::channel();
        if daemons.is_empty() {
            return Self {
                reading: None,
                over,
            };
        }
        let read = move || {
            let mut all = configured(&daemons);
            if let Some(sockets) = daemons.get(BFD.daemon) {
                all.changes = bfd::changes(|| answer(&BFD, sockets), &is_over);
            }
            all
        };
        let thread = std::thread::Builder::new().name("vtysh".to_owned());
        Self {
            reading: thread.spawn(read).ok(),
            over,
        }
    }

    /// The answers; each request is bounded.
    pub(super) fn finish(self) -> FrrAnswers {
        drop(self.over);
        let joined = self.reading.map(JoinHandle::join);
        match joined {
            Some(Ok(answers)) => answers,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => FrrAnswers::default(),
        }
    }
}

/// The folder of the sockets of each daemon of this network namespace, as this process can reach it.
fn daemons(proc: &Path) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    let Ok(own) = fs::read_link(proc.join("thread-self/ns/net")) else {
        return found;
    };
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    for folder in entries.map(|entry| entry.path()) {
        let Ok(name) = fs::read_to_string(folder.join("comm")) else {
            continue;
        };
        let name = name.trim_end();
        let is_asked = QUERIES.iter().any(|query| query.daemon == name);
        let is_here = || fs::read_link(folder.join("ns/net")).is_ok_and(|net| net == own);
        if is_asked && is_here() {
            let line = fs::read(folder.join("cmdline")).unwrap_or_default();
            let sockets = sockets(&line);
            // It may see other files than this process does.
            let seen = folder
                .join("root")
                .join(sockets.strip_prefix('/').unwrap_or(&sockets));
            found.insert(name.to_owned(), seen);
        }
    }
    found
}

/// The folder of a daemon's sockets, from its command line (zebra(8): `--vty_socket`, `-N`).
fn sockets(line: &[u8]) -> String {
    let line = String::from_utf8_lossy(line);
    let words: Vec<&str> = line.split('\0').collect();
    let option = |names: [&str; 2]| {
        words.iter().enumerate().find_map(|(at, word)| {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let next = words.get(at + 1).copied().unwrap_or("");
            let value = if value.is_empty() { next } else { value };
            (names.contains(&name) && !value.is_empty()).then(|| value.to_owned())
        })
    };
    if let Some(folder) = option(["--vty_socket", "--vty-socket"]) {
        return folder;
    }
    match option(["-N", "--pathspace"]) {
        Some(space) => format!("{SOCKETS}/{space}"),
        None => SOCKETS.to_owned(),
    }
}

fn configured(daemons: &BTreeMap<String, PathBuf>) -> FrrAnswers {
    let mut all = FrrAnswers::default();
    for query in &QUERIES {
        let Some(sockets) = daemons.get(query.daemon) else {
            continue;
        };
        match answer(query, sockets) {
            Ok(value) => {
                for timer in (query.parse)(&value) {
                    if !all.timers.contains(&timer) && all.timers.len() < TIMERS_MAX {
                        all.timers.push(timer);
                    }
                }
            }
            Err(error) => {
                let cause = match error.kind() {
                    io::ErrorKind::NotFound => Cause::Absent,
                    io::ErrorKind::PermissionDenied => Cause::Denied,
                    _ => Cause::Unreadable,
                };
                let path = format!("vtysh -d {} -c '{}'", query.daemon, query.command);
                all.gaps.push(Gap::new(cause, path, error.to_string()));
            }
        }
    }
    all
}

fn answer(query: &Query, sockets: &Path) -> io::Result<Value> {
    let mut command = Command::new("vtysh");
    command.arg("--vty_socket").arg(sockets);
    command.args(["-d", query.daemon, "-c", query.command]);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let output = read_within(&mut child, REQUEST_MAX);
    if output.is_err() {
        // It may have ended.
        let _ = child.kill();
    }
    let status = child.wait()?;
    let output = output?;
    if output.is_empty() || !status.success() {
        let message = format!("{status}, {} bytes of output", output.len());
        return Err(io::Error::other(message));
    }
    Ok(serde_json::from_slice(&output)?)
}

/// What `child` prints until it closes its output.
fn read_within(child: &mut Child, limit: Duration) -> io::Result<Vec<u8>> {
    let Some(mut stdout) = child.stdout.take() else {
        return Ok(Vec::new());
    };
    let until = Instant::now() + limit;
    let mut all = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).map_err(io::Error::other)?;
        let mut wait = [PollFd::from_borrowed_fd(stdout.as_fd(), PollFlags::IN)];
        if rustix::io::retry_on_intr(|| poll(&mut wait, Some(&left)))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let length = stdout.read(&mut buffer)?;
        if length == 0 {
            return Ok(all);
        }
        all.extend_from_slice(&buffer[..length]);
        if all.len() as u64 > OUTPUT_MAX {
            return Err(io::Error::other("it printed too much"));
        }
    }
}

fn timer(protocol: Protocol, interval_ms: u64, timeout_ms: u64) -> Timer {
    let nanoseconds = |ms: u64| Nanoseconds::new(ms.saturating_mul(1_000_000));
    Timer {
        protocol,
        interval_ns: nanoseconds(interval_ms),
        timeout_ns: nanoseconds(timeout_ms),
    }
}

/// The sessions that are up. RFC 5880, 6.8.4: the detection time is the remote multiplier times the greater of the own
/// receive interval and the remote transmit interval.
fn bfd_timers(value: &Value) -> Vec<Timer> {
    let peers = value.as_array().into_iter().flatten();
    let up = peers.filter(|peer| peer["status"] == "up");
    up.filter_map(|peer| {
        let number = |key: &str| peer[key].as_u64();
        let receive = number("receive-interval")?;
        let interval = receive.max(number("remote-transmit-interval")?);
        let times = number("remote-detect-multiplier")?;
        Some(timer(
            Protocol::Bfd,
            interval,
            interval.saturating_mul(times),
        ))
    })
    .collect()
}

/// The established sessions, by their negotiated times.
fn bgp(value: &Value) -> Vec<Timer> {
    let peers = value.as_object().into_iter().flat_map(|all| all.values());
    let up = peers.filter(|peer| peer["bgpState"] == "Established");
    up.filter_map(|peer| {
        let hold = peer["bgpTimerHoldTimeMsecs"].as_u64();
        let keepalive = peer["bgpTimerKeepAliveIntervalMsecs"].as_u64();
        // RFC 4271, 4.2: without a hold time a session never expires.
        Some(timer(
            Protocol::Bgp,
            keepalive?,
            hold.filter(|hold| *hold > 0)?,
        ))
    })
    .collect()
}

fn ospf(value: &Value) -> Vec<Timer> {
    let interfaces = value["interfaces"].as_object().into_iter();
    let with_neighbors = interfaces
        .flat_map(|all| all.values())
        .filter(|own| own["nbrCount"].as_u64() > Some(0));
    with_neighbors
        .filter_map(|own| {
            let dead = own["timerDeadSecs"].as_u64()?.saturating_mul(1_000);
            Some(timer(Protocol::Ospf, own["timerMsecs"].as_u64()?, dead))
        })
        .collect()
}

fn ospf6(value: &Value) -> Vec<Timer> {
    let interfaces = value.as_object().into_iter().flat_map(|all| all.values());
    interfaces
        .filter_map(|own| {
            let hello = own["timerIntervalsConfigHello"].as_u64()?;
            let dead = own["timerIntervalsConfigDead"].as_u64()?;
            let ms = |seconds: u64| seconds.saturating_mul(1_000);
            Some(timer(Protocol::Ospf, ms(hello), ms(dead)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_folder_of_the_sockets_is_that_of_the_command_line() {
        for (line, folder) in [
            ("bgpd\0--vty_socket\0/etc/frr\0", "/etc/frr"),
            ("bgpd\0--vty_socket=/run/x\0-d\0", "/run/x"),
            ("bgpd\0-N\0blue\0", "/var/run/frr/blue"),
            ("bgpd\0-d\0-A\x00127.0.0.1\0", "/var/run/frr"),
        ] {
            assert_eq!(sockets(line.as_bytes()), folder, "{line:?}");
        }
    }

    #[test]
    fn the_slower_end_of_a_bfd_session_decides() {
        let peers = json!([
            {"status": "up", "receive-interval": 50, "remote-transmit-interval": 300,
             "remote-detect-multiplier": 3},
            {"status": "down", "receive-interval": 50, "remote-transmit-interval": 1000,
             "remote-detect-multiplier": 3}
        ]);
        assert_eq!(bfd_timers(&peers), [timer(Protocol::Bfd, 300, 900)]);
    }

    #[test]
    fn a_session_without_a_hold_time_has_no_time_out() {
        let peers = json!({
            "10.0.0.1": {"bgpState": "Established", "bgpTimerHoldTimeMsecs": 3000,
                         "bgpTimerKeepAliveIntervalMsecs": 1000},
            "10.0.0.2": {"bgpState": "Established", "bgpTimerHoldTimeMsecs": 0,
                         "bgpTimerKeepAliveIntervalMsecs": 0},
            "10.0.0.3": {"bgpState": "Idle", "bgpTimerHoldTimeMsecs": 180_000,
                         "bgpTimerKeepAliveIntervalMsecs": 60_000}
        });
        assert_eq!(bgp(&peers), [timer(Protocol::Bgp, 1_000, 3_000)]);
    }

    #[test]
    fn interfaces_of_ospf_without_neighbors_do_not_count() {
        let interfaces = json!({"interfaces": {
            "to-r1": {"timerMsecs": 1000, "timerDeadSecs": 4, "nbrCount": 1},
            "to-client": {"timerMsecs": 10_000, "timerDeadSecs": 40, "nbrCount": 0}
        }});
        assert_eq!(ospf(&interfaces), [timer(Protocol::Ospf, 1_000, 4_000)]);
        let of_six =
            json!({"to-r1": {"timerIntervalsConfigHello": 1, "timerIntervalsConfigDead": 4}});
        assert_eq!(ospf6(&of_six), [timer(Protocol::Ospf, 1_000, 4_000)]);
    }

    #[test]
    fn a_program_that_does_not_end_is_given_up() {
        let mut command = Command::new("sleep");
        let mut child = command
            .arg("1000")
            .stdout(Stdio::piped())
            .spawn()
            .expect("coreutils");
        let read = read_within(&mut child, Duration::from_millis(1));
        child.kill().expect("it runs");
        child.wait().expect("our child");
        assert_eq!(read.expect_err("no output").kind(), io::ErrorKind::TimedOut);
    }
}
