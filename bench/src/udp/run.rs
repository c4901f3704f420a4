//! The two namespaces, and a trial of either program in them.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::str::FromStr;
use std::time::{Duration, Instant};

use linerate_model::ids::NicName;
use linerate_testbed::{Netns, Stage};
use serde_json::Value;

use crate::trial::{BenchError, finish, start, successful, wait_until};

const NEAR_ADDRESS: &str = "10.79.0.1";
const FAR_ADDRESS: &str = "10.79.0.2";
const ENGINE: &str = "linerate";
const IPERF3: &str = "iperf3";
const PORT: u16 = 5201;
/// How much longer than its duration a trial may take.
const GRACE: Duration = Duration::from_secs(60);
/// How often we look whether the server listens.
const LOOK: Duration = Duration::from_millis(5);

/// What lies between the ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Path {
    /// Both in one namespace.
    Loopback,
    /// A virtual Ethernet pair between two.
    Veth,
}

impl Path {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Veth => "veth",
        }
    }
}

/// Two hosts joined by a virtual Ethernet pair, and the programs that run in them.
#[derive(Debug)]
pub(crate) struct Scene {
    near: Netns,
    far: Netns,
    pub(crate) engine: PathBuf,
    pub(crate) iperf3: PathBuf,
}

impl Scene {
    /// Makes the hosts; they are gone when this process is.
    pub(crate) fn set(stage: &Stage, engine: PathBuf, iperf3: PathBuf) -> Result<Self, BenchError> {
        let near = stage.add_host("near")?;
        let far = stage.add_host("far")?;
        let nic = |name| NicName::from_str(name).expect("a short name of letters and digits");
        linerate_testbed::join(
            (&near, &nic("near0"), &format!("{NEAR_ADDRESS}/24")),
            (&far, &nic("far0"), &format!("{FAR_ADDRESS}/24")),
        )
        .map_err(BenchError::io("join the two hosts by a veth pair"))?;
        Ok(Self {
            near,
            far,
            engine,
            iperf3,
        })
    }

    /// The host that receives, and its address.
    fn receiver(&self, path: Path) -> (&Netns, &'static str) {
        match path {
            Path::Loopback => (&self.near, "127.0.0.1"),
            Path::Veth => (&self.far, FAR_ADDRESS),
        }
    }

    /// Datagrams that linerate received per second.
    pub(crate) fn linerate(
        &self,
        path: Path,
        batch: &str,
        seconds: u32,
        size: u32,
        buffer: u32,
    ) -> Result<f64, BenchError> {
        let (host, address) = self.receiver(path);
        let command = |role: &str| {
            let mut command = Command::new(&self.engine);
            command.args([role, &format!("{address}:{PORT}"), &seconds.to_string()]);
            command.args([&size.to_string(), batch, "0", &buffer.to_string()]);
            command
        };
        let mut receiver = command("listen");
        enter(host, &mut receiver)?;
        let receiver = start(&mut receiver, ENGINE)?;
        let receiver = await_listener(host, receiver, ENGINE)?;
        let mut sender = command("send");
        enter(&self.near, &mut sender)?;
        let sender = start(&mut sender, ENGINE)?;
        let limit = Duration::from_secs(seconds.into()) + GRACE;
        let sent = finish(sender, ENGINE, limit);
        let received = successful(finish(receiver, ENGINE, GRACE)?, ENGINE)?;
        successful(sent?, ENGINE)?;
        let document = parse(&received, ENGINE)?;
        per_second(&document["count"], f64::from(seconds), ENGINE)
    }

    /// Datagrams that iperf3 received per second.
    pub(crate) fn iperf3(
        &self,
        path: Path,
        seconds: u32,
        size: u32,
        buffer: u32,
    ) -> Result<f64, BenchError> {
        let (host, address) = self.receiver(path);
        let port = PORT.to_string();
        let mut server = Command::new(&self.iperf3);
        server.args(["--server", "--one-off", "--json", "--bind", address]);
        server.args(["--port", &port]);
        enter(host, &mut server)?;
        let server = start(&mut server, IPERF3)?;
        let server = await_listener(host, server, IPERF3)?;
        let mut client = Command::new(&self.iperf3);
        client.args(["--client", address, "--port", &port, "--json", "--udp"]);
        client.args(["--bitrate", "0", "--length", &size.to_string()]);
        client.args(["--time", &seconds.to_string()]);
        if buffer > 0 {
            client.args(["--window", &format!("{buffer}K")]);
        }
        enter(&self.near, &mut client)?;
        let client = start(&mut client, IPERF3)?;
        let limit = Duration::from_secs(seconds.into()) + GRACE;
        let printed = finish(client, IPERF3, limit);
        let server = finish(server, IPERF3, GRACE);
        let printed = successful(printed?, IPERF3)?;
        successful(server?, IPERF3)?;
        let document = parse(&printed, IPERF3)?;
        // What it received, in bytes: its counts of packets are those of the sequence numbers.
        let bytes = &document["end"]["sum_received"]["bytes"];
        Ok(per_second(bytes, f64::from(seconds), IPERF3)? / f64::from(size))
    }
}

fn parse(printed: &[u8], program: &'static str) -> Result<Value, BenchError> {
    serde_json::from_slice(printed).map_err(|error| BenchError::Unreadable {
        program,
        what: error.to_string(),
    })
}

fn per_second(count: &Value, seconds: f64, program: &'static str) -> Result<f64, BenchError> {
    let count = count.as_f64().filter(|&count| count > 0.0);
    count.map(|count| count / seconds).ok_or_else(|| {
        let what = "it received nothing, or does not say how much".to_owned();
        BenchError::Unreadable { program, what }
    })
}

fn enter(host: &Netns, command: &mut Command) -> Result<(), BenchError> {
    host.enter_in_child(command).map_err(BenchError::io(format!(
        "enter the namespace `{}`",
        host.name()
    )))
}

/// Gives the program back when it listens. Looked up, not tried: a connection would be its one test.
fn await_listener(host: &Netns, child: Child, program: &'static str) -> Result<Child, BenchError> {
    let until = Instant::now() + GRACE;
    loop {
        let listens = host
            .inside(|| fs::read_to_string("/proc/thread-self/net/tcp"))
            .and_then(|text| text)
            .map_err(BenchError::io("read the sockets of a host"))?;
        if has_listener(&listens) {
            return Ok(child);
        }
        if wait_until(&child, LOOK)? || Instant::now() > until {
            let output = finish(child, program, Duration::ZERO)?;
            let said = [output.stdout, output.stderr].concat();
            return Err(BenchError::Failed {
                program,
                status: output.status.to_string(),
                said: String::from_utf8_lossy(&said).into_owned(),
            });
        }
    }
}

/// Whether a socket listens on our port: state 0A in /proc/net/tcp (include/net/tcp_states.h).
fn has_listener(table: &str) -> bool {
    let ending = format!(":{PORT:04X}");
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
        .map(|folder| folder.join(IPERF3))
        .find(|file| file.is_file())
        .ok_or(BenchError::Missing {
            name: IPERF3,
            package: IPERF3,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_told_from_a_connection() {
        let line = |state: &str| format!("head\n 0: 02004F0A:1451 00000000:0000 {state} 0:0\n");
        assert!(has_listener(&line("0A")));
        assert!(!has_listener(&line("01")));
        assert!(!has_listener("head\n"));
    }

    #[test]
    fn nothing_received_is_an_error_and_not_a_rate_of_zero() {
        assert!(per_second(&Value::from(0), 1.0, ENGINE).is_err());
        assert!(per_second(&Value::Null, 1.0, ENGINE).is_err());
        let rate = per_second(&Value::from(50), 2.0, ENGINE).expect("a rate");
        assert!((rate - 25.0).abs() < 1e-9);
    }
}
