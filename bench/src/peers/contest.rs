//! The two hosts, and one trial of one program in them.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use linerate_model::ids::NicName;
use linerate_testbed::{Netns, Stage, tie_to_parent};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::cases::{Contestant, Place};
use crate::table::Trial;

const NEAR_ADDRESS: &str = "10.79.0.1";
const FAR_ADDRESS: &str = "10.79.0.2";
pub(crate) const FAR: &str = "far";
pub(crate) const NEAR_NIC: &str = "near0";
/// In the folder that the stage covers with a tmpfs of its own: it vanishes with it.
const STATE: &str = "/run/netns/.linerate-bench";
/// How much longer than its time a client may take.
const GRACE: Duration = Duration::from_secs(30);
/// How long a server may take until it listens.
const LISTENS: Duration = Duration::from_secs(10);
/// How often it is looked for.
const LOOK: Duration = Duration::from_millis(5);

/// Why it cannot go on.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Problem(pub(crate) String);

/// Two hosts joined by a virtual Ethernet pair; over the loopback both ends are in the first.
#[derive(Debug)]
pub(crate) struct Scene {
    near: Netns,
    far: Netns,
    loopback: bool,
}

impl Scene {
    pub(crate) fn set(stage: &Stage, loopback: bool) -> Result<Self, Problem> {
        let host = |name| {
            let made = stage.add_host(name);
            made.map_err(|error| Problem(format!("cannot make the host `{name}`: {error}")))
        };
        let (near, far) = (host("near")?, host(FAR)?);
        let nic = |name: &str| {
            name.parse::<NicName>()
                .map_err(|error| Problem(error.to_string()))
        };
        linerate_testbed::join(
            (&near, &nic(NEAR_NIC)?, &format!("{NEAR_ADDRESS}/24")),
            (&far, &nic("far0")?, &format!("{FAR_ADDRESS}/24")),
        )
        .map_err(|error| Problem(format!("cannot join the hosts: {error}")))?;
        fs::create_dir_all(STATE)
            .map_err(|error| Problem(format!("cannot make a folder for the servers: {error}")))?;
        Ok(Self {
            near,
            far,
            loopback,
        })
    }

    pub(crate) fn place(&self, linerate: PathBuf, seconds: u32) -> Place {
        let (address, peer) = if self.loopback {
            ("127.0.0.1".to_owned(), "local".to_owned())
        } else {
            (FAR_ADDRESS.to_owned(), format!("netns:{FAR}"))
        };
        Place {
            address,
            peer,
            seconds,
            linerate,
            state: PathBuf::from(STATE),
            cpus: allowed_cpus(),
            mpi: None,
        }
    }

    pub(crate) fn cpus(&self) -> String {
        let cpus = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
        let read = |host: &Netns| {
            let file = "/proc/sys/net/ipv4/tcp_congestion_control";
            host.inside(|| fs::read_to_string(file))
                .and_then(|text| text)
        };
        let congestion = read(&self.near).unwrap_or_default();
        format!("{cpus} CPUs, {}", congestion.trim())
    }

    fn server_host(&self) -> &Netns {
        if self.loopback { &self.near } else { &self.far }
    }

    /// One trial.
    pub(crate) fn trial(&self, one: &Contestant, seconds: u32) -> Result<Trial, Problem> {
        let server = match &one.server {
            None => None,
            Some((command, port)) => Some(self.serve(one.name, command, *port)?),
        };
        let busy_before = busy_seconds();
        let mut client = start(&self.near, &one.client, Stdio::piped())?;
        // Read while it runs: what it prints may be more than a pipe holds.
        let printed = client.stdout.take().map(|mut out| {
            std::thread::spawn(move || {
                let mut text = String::new();
                // What cannot be read is not understood below either.
                let _ = out.read_to_string(&mut text);
                text
            })
        });
        let ended = wait(&client, Duration::from_secs(seconds.into()) + GRACE);
        let busy = busy_before
            .zip(busy_seconds())
            .map(|(before, after)| after - before);
        if !ended {
            let _ = client.kill();
        }
        let _ = client.wait();
        let printed = printed
            .and_then(|reading| reading.join().ok())
            .unwrap_or_default();
        if let Some(mut server) = server {
            let _ = server.kill();
            let _ = server.wait();
        }
        if !ended {
            return Err(Problem(format!("{} did not come to its end", one.name)));
        }
        let figure = (one.figure)(&printed)
            .filter(|figure| figure.value > 0.0)
            .ok_or_else(|| {
                Problem(format!(
                    "{} printed no figure: {}",
                    one.name,
                    tail(&printed)
                ))
            })?;
        Ok(Trial {
            value: figure.value,
            cost: busy
                .filter(|_| figure.amount > 0.0)
                .map(|busy| busy / figure.amount),
        })
    }

    /// A server that listens. Looked up, not tried: some serve one connection only.
    fn serve(&self, name: &str, command: &[String], port: u16) -> Result<Child, Problem> {
        let host = self.server_host();
        let mut server = start(host, command, Stdio::null())?;
        let until = Instant::now() + LISTENS;
        loop {
            let sockets = ["tcp", "tcp6"].map(|table| {
                let file = format!("/proc/thread-self/net/{table}");
                let text = host
                    .inside(|| fs::read_to_string(&file))
                    .and_then(|text| text);
                text.unwrap_or_default()
            });
            if sockets.iter().any(|table| has_listener(table, port)) {
                return Ok(server);
            }
            if wait(&server, LOOK) || Instant::now() > until {
                let _ = server.kill();
                let _ = server.wait();
                return Err(Problem(format!(
                    "the server of {name} does not listen on {port}"
                )));
            }
        }
    }
}

fn start(host: &Netns, command: &[String], out: Stdio) -> Result<Child, Problem> {
    let (program, arguments) = command
        .split_first()
        .ok_or_else(|| Problem("a contestant without a command".to_owned()))?;
    let mut process = Command::new(program);
    process
        .args(arguments)
        // neper writes a log where it stands.
        .current_dir(STATE)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(Stdio::null());
    host.enter_in_child(&mut process)
        .map_err(|error| Problem(format!("cannot enter a namespace: {error}")))?;
    tie_to_parent(&mut process);
    process
        .spawn()
        .map_err(|error| Problem(format!("cannot start {program}: {error}")))
}

/// The first and the last CPU that this process may use.
fn allowed_cpus() -> (u32, u32) {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap_or_default();
    let most = u32::try_from(rustix::thread::CpuSet::MAX_CPU).unwrap_or(0);
    let mut may = (0..most).filter(|cpu| allowed.is_set(*cpu as usize));
    let first = may.next().unwrap_or(0);
    (first, may.next_back().unwrap_or(first))
}

/// The kernel's release.
pub(crate) fn kernel() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    text.trim().to_owned()
}

/// The end of what was printed, for a message.
fn tail(text: &str) -> &str {
    let text = text.trim();
    let start = text.len().saturating_sub(200);
    text.get(start..).unwrap_or(text)
}

/// Whether a socket listens on `port`: state 0A in /proc/net/tcp (include/net/tcp_states.h).
fn has_listener(table: &str, port: u16) -> bool {
    let ending = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let local = fields.next().unwrap_or_default();
        local.ends_with(&ending) && fields.nth(1) == Some("0A")
    })
}

/// Waits for the end of a child, at most `limit`; whether it ended.
fn wait(child: &Child, limit: Duration) -> bool {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let Some(watched) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
        return true;
    };
    let until = Instant::now() + limit;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let Ok(left) = Timespec::try_from(left) else {
            return false;
        };
        match poll(&mut [PollFd::new(&watched, PollFlags::IN)], Some(&left)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(_) if Instant::now() >= until => return false,
            Err(_) => {}
        }
    }
}

/// Seconds that the machine's CPUs worked: user, nice, system, irq, softirq of /proc/stat. What others do on
/// the machine counts too, so this wants a quiet one.
fn busy_seconds() -> Option<f64> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    busy_ticks(&text).map(|ticks| ticks / 100.0)
}

fn busy_ticks(stat: &str) -> Option<f64> {
    let line = stat.lines().find(|line| line.starts_with("cpu "))?;
    let fields: Vec<f64> = line
        .split_ascii_whitespace()
        .skip(1)
        .filter_map(|field| field.parse().ok())
        .collect();
    let at = |index: usize| fields.get(index).copied();
    Some(at(0)? + at(1)? + at(2)? + at(5)? + at(6)?)
}

/// Whether a program can be started by that name.
pub(crate) fn is_on_path(program: &str) -> bool {
    if program.contains('/') {
        return PathBuf::from(program).is_file();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_told_from_a_connection() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue\n";
        let line = |state: &str| format!("{head}   0: 02004E0A:1451 00000000:0000 {state} 0:0\n");
        assert!(has_listener(&line("0A"), 5201));
        assert!(!has_listener(&line("01"), 5201) && !has_listener(&line("0A"), 5202));
    }

    #[test]
    fn idle_waiting_and_stolen_time_is_not_busy() {
        let stat = "cpu  1 2 4 800 1600 8 16 3200 0 0\ncpu0 9 9 9 9 9 9 9 9 0 0\n";
        assert_eq!(busy_ticks(stat), Some(31.0));
    }
}
