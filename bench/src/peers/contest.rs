//! The two hosts, and one trial of one program in them.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use linerate_bench_shared::Trouble;
use linerate_bench_shared::ratios::Trial;
use linerate_bench_shared::running::{busy_seconds, has_listener, tail, wait};
use linerate_model::ids::NicName;
use linerate_testbed::{Netns, Stage, tie_to_parent};

use crate::cases::{Contestant, Place};

const NEAR_ADDRESS: &str = "10.79.0.1";
const FAR_ADDRESS: &str = "10.79.0.2";
pub(crate) const FAR: &str = "far";
pub(crate) const NEAR_NIC: &str = "near0";
/// In the folder that the stage covers with its own tmpfs: it vanishes with it.
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

impl From<Problem> for Trouble {
    fn from(problem: Problem) -> Self {
        let what = problem.0.strip_prefix("cannot ");
        Self(what.unwrap_or(&problem.0).to_owned())
    }
}

/// Two hosts joined by a virtual Ethernet pair; over the loopback both ends are in the first.
#[derive(Debug)]
pub(crate) struct HostPair {
    near: Netns,
    far: Netns,
    loopback: bool,
}

impl HostPair {
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
            return Err(Problem(format!("{} did not finish", one.name)));
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
        // neper writes a log to its working directory.
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
