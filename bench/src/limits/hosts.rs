//! The two hosts of one run, what is injected in them, and the measurement.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use linerate_bench_shared::{child_of, pause, run_inside};
use linerate_model::sample::Sample;
use linerate_testbed::{Impairment, Netns, Relay, RelayOptions, Stage, join, tie_to_parent};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::Value;

use crate::Trouble;
use crate::kinds::{InjectedLimit, Kind};

const NEAR: &str = "10.80.0.1";
const FAR: &str = "10.80.0.2";
const NIC: &str = "near0";
/// In the folder that the stage covers with its own tmpfs: it vanishes with the stage.
const STATE: &str = "/run/netns/.limits";
/// How long a measurement may take altogether.
const OVERALL_MAX: Duration = Duration::from_secs(60);

/// What one measurement gave.
#[derive(Debug)]
pub(crate) struct Measured {
    /// The reported bottleneck, as in `limit.what`.
    pub(crate) named: String,
    /// Whether it was proved (`--why`).
    pub(crate) proved: bool,
    pub(crate) bit_per_s: f64,
    pub(crate) sample: Sample,
    /// The whole document.
    pub(crate) document: String,
}

#[derive(Debug, Deserialize)]
struct Document {
    total: Total,
    limit: Value,
    raw: Sample,
}

#[derive(Debug, Deserialize)]
struct Total {
    rate_bit_per_s: Option<f64>,
}

/// Two hosts with a bottleneck injected between them. All of it is removed when the value is dropped.
pub(crate) struct TestHosts {
    near: Netns,
    far: Netns,
    busy: Vec<Child>,
    realtime: bool,
    _relay: Option<Relay>,
}

impl Drop for TestHosts {
    fn drop(&mut self) {
        for program in &mut self.busy {
            // It computes until it is killed, and it is ours to wait for.
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}

fn trouble(doing: &str) -> impl FnOnce(std::io::Error) -> Trouble {
    move |error| Trouble(format!("{doing}: {error}"))
}

impl TestHosts {
    /// Makes two hosts, numbered so that no two runs share any, and plants.
    pub(crate) fn set(
        stage: &Stage,
        number: usize,
        plant: &InjectedLimit,
        seed: u64,
    ) -> Result<Self, Trouble> {
        let host = |end: &str| {
            let name = format!("{end}{number}");
            stage
                .add_host(&name)
                .map_err(|error| Trouble(error.to_string()))
        };
        let (near, far) = (host("near")?, host("far")?);
        let nic = |name: &str| name.parse().map_err(|error| Trouble(format!("{error}")));
        let (near_nic, far_nic) = (nic(NIC)?, nic("far0")?);
        let (near_address, far_address) = (format!("{NEAR}/24"), format!("{FAR}/24"));
        let ends = (
            (&near, &near_nic, near_address.as_str()),
            (&far, &far_nic, far_address.as_str()),
        );
        let relay = match plant.relay {
            None => {
                join(ends.0, ends.1).map_err(trouble("join the hosts"))?;
                None
            }
            Some((delay, loss)) => {
                let way = |loss| Impairment {
                    delay,
                    loss,
                    ..Impairment::default()
                };
                let options = RelayOptions {
                    there: way(loss),
                    back: way(0.0),
                    seed,
                    // Loss takes single packets; a relay that only delays shall not be the limit.
                    large_packets: loss <= 0.0,
                };
                Some(Relay::join(ends.0, ends.1, options).map_err(trouble("start the relay"))?)
            }
        };
        let mut hosts = Self {
            near,
            far,
            busy: Vec::new(),
            realtime: may_be_realtime(),
            _relay: relay,
        };
        hosts.plant(plant)?;
        Ok(hosts)
    }

    fn plant(&mut self, plant: &InjectedLimit) -> Result<(), Trouble> {
        // The largest buffers of a fast host, so that only the injected bottleneck limits.
        let buffer = |planted: Option<u64>, largest: u64| match planted {
            Some(bytes) => format!("4096 {} {bytes}", bytes.min(16_384)),
            None => format!("4096 131072 {largest}"),
        };
        let write = buffer(plant.send_buffer, 16 << 20);
        let read = buffer(plant.receive_buffer, 32 << 20);
        set(&self.near, "net/ipv4/tcp_wmem", &write)?;
        let read = match plant.fixed_receive_buffer {
            Some(bytes) => format!("4096 {bytes} {}", 32 << 20),
            None => read,
        };
        set(&self.far, "net/ipv4/tcp_rmem", &read)?;
        if plant.fixed_receive_buffer.is_some() {
            set(&self.far, "net/ipv4/tcp_moderate_rcvbuf", "0")?;
        }
        if let Some(rate) = plant.ingress {
            self.shape_what_comes_in(rate)?;
        }
        for command in &plant.shaper {
            run_inside(&self.near, "tc", &command.replace("NIC", NIC)).map_err(Trouble)?;
        }
        if let Some(segments) = plant.congestion_window {
            let route =
                format!("route replace 10.80.0.0/24 dev {NIC} src {NEAR} cwnd lock {segments}");
            run_inside(&self.near, "ip", &route).map_err(Trouble)?;
        }
        if let Some((cpu, programs)) = plant.busy {
            for _ in 0..programs {
                let own =
                    std::env::current_exe().map_err(trouble("find this program's own file"))?;
                let mut program = Command::new(own);
                program
                    .arg("--spin-on")
                    .arg(cpu.to_string())
                    .stdin(Stdio::null());
                tie_to_parent(&mut program);
                self.busy
                    .push(program.spawn().map_err(trouble("start a busy program"))?);
            }
        }
        Ok(())
    }

    fn shape_what_comes_in(&self, mbit: u64) -> Result<(), Trouble> {
        let burst = (mbit * 1000 / 8 * 4).max(128 * 1024);
        let commands = [
            ("ip", "link add ifb0 type ifb".to_owned()),
            ("ip", "link set ifb0 up".to_owned()),
            ("tc", format!("qdisc add dev ifb0 root tbf rate {mbit}mbit burst {burst}b latency 20ms")),
            ("tc", "qdisc add dev far0 ingress".to_owned()),
            (
                "tc",
                "filter add dev far0 parent ffff: protocol ip u32 match u32 0 0 action mirred egress redirect dev ifb0"
                    .to_owned(),
            ),
        ];
        commands.iter().try_for_each(|(tool, words)| {
            run_inside(&self.far, tool, words)
                .map(drop)
                .map_err(Trouble)
        })
    }

    /// Measures with the injected bottleneck.
    pub(crate) fn measure(
        &self,
        linerate: &Path,
        plant: &InjectedLimit,
        time: Duration,
        why: bool,
    ) -> Result<Measured, Trouble> {
        if plant.congestion_window.is_some() {
            // The kernel keeps a route's locked window among what it knows of the peer, and has that
            // from the second connection on (net/ipv4/tcp_metrics.c).
            self.once(linerate, plant, Duration::from_millis(100), false)?;
        }
        self.once(linerate, plant, time, why)
    }

    /// linerate, so that it runs first.
    fn program(&self, linerate: &Path, plant: &InjectedLimit) -> Command {
        // Other programs on the machine wait for ours, not the reverse. If CPUs are the bottleneck, or this
        // program has to run concurrently, the niceness that ours inherit must do.
        let near_first = match plant.kind {
            // Its remote end is started without.
            Kind::BusyReceiver => Some("--reset-on-fork"),
            kind if kind.is_of_cpus() || plant.stalls.is_some() => None,
            _ => Some("--rr"),
        };
        match near_first.filter(|_| self.realtime) {
            Some(how) => {
                let mut first = Command::new("chrt");
                first.args([how, "--rr", "1"]).arg(linerate);
                first
            }
            None => Command::new(linerate),
        }
    }

    fn once(
        &self,
        linerate: &Path,
        plant: &InjectedLimit,
        time: Duration,
        why: bool,
    ) -> Result<Measured, Trouble> {
        let printed = PathBuf::from(format!("{STATE}.json"));
        let out = fs::File::create(&printed).map_err(trouble("make a file for the result"))?;
        let mut command = self.program(linerate, plant);
        command.args(["--format", "json", "--state", STATE, "measure", "stream"]);
        command.arg(format!("netns:{}", self.far.name()));
        command.args(["--time", &format!("{}ms", time.as_millis())]);
        command.args([
            "--flows",
            &plant.flows.to_string(),
            "--cc",
            plant.congestion_control,
        ]);
        if why {
            command.arg("--why");
        }
        if let Some((from, to)) = plant.place {
            command.args(["--place", &format!("{from}:{to}")]);
        }
        command
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(Stdio::piped());
        self.near
            .enter_in_child(&mut command)
            .map_err(trouble("enter a namespace"))?;
        let mut child = command.spawn().map_err(trouble("start linerate"))?;
        let mut said = BufReader::new(
            child
                .stderr
                .take()
                .ok_or_else(|| Trouble("read linerate's output".to_owned()))?,
        );
        let mut first = String::new();
        // It announces what it does before it measures.
        said.read_line(&mut first)
            .map_err(trouble("read linerate's output"))?;
        if plant.kind == Kind::BusySender && self.realtime {
            far_first(child.id());
        }
        let ended = match plant.stalls {
            Some((run, stop, sender)) => stall(&mut child, run, stop, sender),
            None => child.wait().map_err(trouble("wait for linerate")),
        };
        let ended = ended?;
        if !ended.success() {
            let mut rest = first;
            said.lines()
                .map_while(Result::ok)
                .for_each(|line| rest.push_str(&line));
            return Err(Trouble(format!("measure: {}", rest.trim())));
        }
        let document = fs::read_to_string(&printed).map_err(trouble("read the result"))?;
        let parsed: Document = serde_json::from_str(&document)
            .map_err(|error| Trouble(format!("understand the result: {error}")))?;
        Ok(Measured {
            named: parsed.limit["what"]
                .as_str()
                .unwrap_or("not determined")
                .to_owned(),
            proved: parsed.limit["status"] == "proved",
            bit_per_s: parsed.total.rate_bit_per_s.unwrap_or(0.0),
            sample: parsed.raw,
            document,
        })
    }
}

/// Whether chrt(1) is there and we have the right.
fn may_be_realtime() -> bool {
    let mut command = Command::new("chrt");
    command.args(["--rr", "1", "true"]);
    let quiet = command.stdin(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

fn set(host: &Netns, name: &str, value: &str) -> Result<(), Trouble> {
    let path = format!("/proc/sys/{name}");
    let written = host
        .inside(|| fs::write(&path, value))
        .map_err(trouble("enter a namespace"))?;
    written.map_err(trouble(&format!("write {value} to {path}")))
}

/// Stops one end's program again and again (SIGSTOP, SIGCONT) until the measurement ends: to its socket
/// that is a program that sleeps.
fn stall(
    child: &mut Child,
    run: Duration,
    stop: Duration,
    sender: bool,
) -> Result<std::process::ExitStatus, Trouble> {
    let near = child.id();
    let pid = if sender { Some(near) } else { child_of(near) };
    let pid = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    let pid = pid.ok_or_else(|| Trouble("find the remote end's process".to_owned()))?;
    let start = Instant::now();
    loop {
        if let Some(ended) = child.try_wait().map_err(trouble("wait for linerate"))? {
            return Ok(ended);
        }
        if start.elapsed() > OVERALL_MAX {
            let _ = child.kill();
            return Err(Trouble(format!("measure within {OVERALL_MAX:?}")));
        }
        // The remote end may just have gone.
        let _ = kill_process(pid, Signal::STOP);
        pause(stop);
        let _ = kill_process(pid, Signal::CONT);
        pause(run);
    }
}

/// Has the remote end of the measurement `near` run before others; refused, its runs are disturbed.
fn far_first(near: u32) {
    if let Some(far) = child_of(near) {
        let mut command = Command::new("chrt");
        command.args(["--all-tasks", "--rr", "--pid", "1", &far.to_string()]);
        let _ = command.stdin(Stdio::null()).status();
    }
}
