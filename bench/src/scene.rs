//! The two namespaces, and a trial of either program in them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::str::FromStr;
use std::time::{Duration, Instant};

use linerate_model::ids::NicName;
use linerate_testbed::{Netns, Stage};

use crate::cases::{Case, Program};
use crate::trial::{BenchError, Trial, children_cpu_s, finish, start, successful, wait_until};
use crate::work::{FAR, FAR_ADDRESS, Work};
use crate::{iperf3, linerate};

const NEAR_ADDRESS: &str = "10.78.0.1";

/// Where linerate keeps its journals meanwhile: in the folder that the stage covers with a tmpfs of its
/// own, so that they vanish with it, however it ends.
const STATE: &str = "/run/netns/.linerate-bench";

/// How much longer than its duration a trial may take.
const GRACE: Duration = Duration::from_secs(60);
/// How often we look whether the server listens. (It says so only where it does not print JSON.)
const LOOK: Duration = Duration::from_millis(5);

/// Two hosts joined by a virtual Ethernet pair, and the programs that run in them.
#[derive(Debug)]
pub(crate) struct Scene {
    near: Netns,
    far: Netns,
    linerate: PathBuf,
    iperf3: PathBuf,
}

impl Scene {
    /// Makes the hosts; they are gone when this process is.
    pub(crate) fn set(stage: &Stage, linerate: &Path) -> Result<Self, BenchError> {
        let near = stage.add_host("near")?;
        let far = stage.add_host(FAR)?;
        let nic = |name| NicName::from_str(name).expect("a short name of letters and digits");
        linerate_testbed::join(
            (&near, &nic("near0"), &format!("{NEAR_ADDRESS}/24")),
            (&far, &nic("far0"), &format!("{FAR_ADDRESS}/24")),
        )
        .map_err(BenchError::io("join the two hosts by a veth pair"))?;
        Ok(Self {
            near,
            far,
            linerate: linerate.to_owned(),
            iperf3: find_iperf3()?,
        })
    }

    /// Sets the congestion control of both hosts where one is asked for, and says which they have.
    ///
    /// Neither program is told: iperf3 3.12 sets its option on the connected socket, so the default's
    /// start has run by then, and what bbr asked for (`SK_PACING_NEEDED`, net/ipv4/tcp_bbr.c) stays: the
    /// kernel goes on pacing a connection that calls itself cubic. On a host whose default is bbr that
    /// cost iperf3 more than half of its rate, and the ratio told nothing of the programs.
    pub(crate) fn congestion_control(&self, asked: Option<&str>) -> Result<String, BenchError> {
        const FILE: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
        let given = |host: &Netns| {
            if let Some(name) = asked {
                let set = host
                    .inside(|| fs::write(FILE, name))
                    .and_then(|result| result);
                set.map_err(|source| BenchError::CongestionControl {
                    name: name.to_owned(),
                    source,
                })?;
            }
            host.inside(|| fs::read_to_string(FILE))
                .and_then(|text| text)
                .map(|name| name.trim().to_owned())
                .map_err(BenchError::io(format!("read {FILE}")))
        };
        let (near, far) = (given(&self.near)?, given(&self.far)?);
        if near == far {
            Ok(near)
        } else {
            let what = format!("the hosts have `{near}` and `{far}`, and must have the same");
            Err(BenchError::Unreadable {
                program: "the kernel",
                what,
            })
        }
    }

    /// Runs one trial.
    pub(crate) fn run(
        &self,
        program: Program,
        case: &Case,
        work: &Work,
    ) -> Result<Trial, BenchError> {
        let limit = Duration::from_secs(work.seconds.into()) + GRACE;
        let before = children_cpu_s()?;
        let mut trial = match program {
            Program::Linerate => self.run_linerate(case, work, limit)?,
            Program::Iperf3 => self.run_iperf3(case, work, limit)?,
        };
        trial.cpu_command_s = children_cpu_s()? - before;
        Ok(trial)
    }

    fn run_linerate(&self, case: &Case, work: &Work, limit: Duration) -> Result<Trial, BenchError> {
        let mut command = linerate::command(&self.linerate, Path::new(STATE), case, work);
        enter(&self.near, &mut command)?;
        let child = start(&mut command, linerate::NAME)?;
        let printed = successful(finish(child, linerate::NAME, limit)?, linerate::NAME)?;
        linerate::parse(&printed, case, work)
    }

    fn run_iperf3(&self, case: &Case, work: &Work, limit: Duration) -> Result<Trial, BenchError> {
        let mut server = iperf3::server(&self.iperf3);
        enter(&self.far, &mut server)?;
        let server = start(&mut server, iperf3::NAME)?;
        let server = self.await_listener(server)?;
        let mut client = iperf3::client(&self.iperf3, case, work);
        enter(&self.near, &mut client)?;
        let client = start(&mut client, iperf3::NAME)?;
        let printed = finish(client, iperf3::NAME, limit);
        // Waited for in any case: its CPU time counts, and its port must be free for the next.
        let server = finish(server, iperf3::NAME, GRACE);
        let printed = successful(printed?, iperf3::NAME)?;
        successful(server?, iperf3::NAME)?;
        iperf3::parse(&printed, case, work)
    }

    /// Gives the server back when it listens. Looked up, not tried: a connection would be its one test.
    fn await_listener(&self, server: Child) -> Result<Child, BenchError> {
        let until = Instant::now() + GRACE;
        loop {
            let listens = self
                .far
                .inside(|| fs::read_to_string("/proc/thread-self/net/tcp"))
                .and_then(|text| text)
                .map_err(BenchError::io("read the sockets of the far host"))?;
            if has_listener(&listens, iperf3::PORT) {
                return Ok(server);
            }
            if wait_until(&server, LOOK)? || Instant::now() > until {
                let output = finish(server, iperf3::NAME, Duration::ZERO)?;
                return Err(BenchError::Failed {
                    program: iperf3::NAME,
                    status: output.status.to_string(),
                    said: String::from_utf8_lossy(&output.stdout).into_owned(),
                });
            }
        }
    }
}

fn enter(host: &Netns, command: &mut std::process::Command) -> Result<(), BenchError> {
    host.enter_in_child(command).map_err(BenchError::io(format!(
        "enter the namespace `{}`",
        host.name()
    )))
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

/// iperf3 on the path.
pub(crate) fn find_iperf3() -> Result<PathBuf, BenchError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(iperf3::NAME))
        .find(|file| file.is_file())
        .ok_or(BenchError::Missing {
            name: iperf3::NAME,
            package: iperf3::PACKAGE,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_told_from_a_connection() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue\n";
        let line = |state: &str| format!("{head}   0: 02004E0A:1451 00000000:0000 {state} 0:0\n");
        assert!(has_listener(&line("0A"), 5201));
        assert!(!has_listener(&line("01"), 5201));
        assert!(!has_listener(&line("0A"), 5202));
        assert!(!has_listener(head, 5201));
    }

    #[test]
    fn a_missing_iperf3_is_named_with_its_package() {
        let error = BenchError::Missing {
            name: iperf3::NAME,
            package: iperf3::PACKAGE,
        };
        assert_eq!(
            error.to_string(),
            "find the program `iperf3`: it is the Debian package `iperf3`"
        );
    }
}
