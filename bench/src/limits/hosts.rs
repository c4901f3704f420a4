//! The hosts of one trial, what is injected in them, and the measurement.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use linerate_bench_shared::{child_of, pause, running};
use linerate_model::ids::NicName;
use linerate_model::sample::Sample;
use linerate_testbed::{Impairment, LinkEnd, Netns, Relay, RelayOptions, Stage, join};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use serde_json::Value;

use crate::Trouble;
use crate::conditions::Values;
use crate::data::{Data, End, Kind, Place, Step};

/// In the folder that the stage covers with its own tmpfs: it vanishes with the stage.
const STATE: &str = "/run/netns/.limits";
/// How long a measurement may take altogether.
const OVERALL_MAX: Duration = Duration::from_secs(60);
/// The settings of fast hosts, so that only the injected bottleneck limits.
const BASELINE: [&str; 2] = [
    "near sysctl -qw net.ipv4.tcp_wmem='4096 131072 16777216'",
    "far sysctl -qw net.ipv4.tcp_rmem='4096 131072 33554432'",
];
/// A router that both ends take for their peer: all three have addresses of one subnet (proxy ARP).
const ROUTER: [&str; 3] = [
    "router sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.proxy_arp=1 \
     net.ipv4.neigh.left0.proxy_delay=0 net.ipv4.neigh.right0.proxy_delay=0 net.ipv4.conf.all.send_redirects=0",
    "router ip route add 10.80.0.1/32 dev left0",
    "router ip route add 10.80.0.2/32 dev right0",
];

/// What one measurement gave.
#[derive(Debug)]
pub(crate) struct Measured {
    /// The reported bottleneck, as in `limit.what`.
    pub(crate) named: String,
    /// Whether it was proved (`--why`).
    pub(crate) proved: bool,
    pub(crate) bit_per_s: f64,
    pub(crate) sample: Sample,
    /// The share of the machine's CPUs that neither this benchmark nor linerate used meanwhile.
    pub(crate) foreign: f64,
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

/// One trial: a kind under its conditions, with its parameters.
#[derive(Debug, Clone)]
pub(crate) struct Trial<'a> {
    pub(crate) kind: &'a Kind,
    pub(crate) values: Values,
    /// Without the injected bottleneck it is the reference.
    pub(crate) injected: bool,
}

impl Trial<'_> {
    pub(crate) fn value(&self, name: &str) -> &str {
        self.values.get(name).map_or("", String::as_str)
    }

    fn number(&self, name: Option<&String>) -> f64 {
        name.and_then(|name| self.value(name).parse().ok())
            .unwrap_or(0.0)
    }

    pub(crate) fn is_loaded(&self) -> bool {
        self.value("load") == "yes"
    }

    /// The same path without the injected bottleneck.
    pub(crate) fn reference(&self) -> Self {
        let mut without = self.clone();
        without.injected = false;
        // A path that must ramp up within the trial: the control that does it fastest.
        if self.round_trip().is_some() {
            without.values.insert("cc".to_owned(), "bbr".to_owned());
        }
        without
    }

    /// The RTT that the relay adds, if there is one.
    fn round_trip(&self) -> Option<Duration> {
        let ms: f64 = self.value("rtt").parse().unwrap_or(0.0);
        (ms >= 1.0).then(|| Duration::from_secs_f64(ms / 1e3))
    }

    /// The relay between the near end and what follows it.
    fn relay(&self, seed: u64) -> Option<RelayOptions> {
        let names = &self.kind.relay;
        if self.round_trip().is_none() && !names.impairs() {
            return None;
        }
        let delay = self.round_trip().unwrap_or_default() / 2;
        let effect = if self.injected { 1e-6 } else { 0.0 };
        let share = |name: &Option<String>| self.number(name.as_ref()) * effect;
        let there = Impairment {
            delay,
            loss: share(&names.loss),
            reorder: share(&names.reorder),
            reorder_by: Duration::from_secs_f64(share(&names.reorder_by)),
            ..Impairment::default()
        };
        let back = Impairment {
            delay,
            loss: share(&names.loss_back),
            ..Impairment::default()
        };
        Some(RelayOptions {
            there,
            back,
            seed,
            // Loss takes single packets; a relay that only delays shall not be the limit.
            large_packets: !names.impairs(),
        })
    }
}

/// The hosts of a trial. All of it is removed when the value is dropped.
pub(crate) struct TestHosts<'a> {
    trial: &'a Trial<'a>,
    near: Netns,
    far: Netns,
    router: Option<Netns>,
    environment: Values,
    started: Vec<Child>,
    realtime: bool,
    _relay: Option<Relay>,
}

impl Drop for TestHosts<'_> {
    fn drop(&mut self) {
        for program in &mut self.started {
            // It runs until it is killed, and it is ours to wait for.
            let _ = program.kill();
            let _ = program.wait();
        }
        if self.trial.injected {
            for step in &self.trial.kind.undo {
                // What was not made cannot be removed.
                let _ = self.run(step);
            }
        }
    }
}

fn trouble(doing: &str) -> impl FnOnce(std::io::Error) -> Trouble {
    move |error| Trouble(format!("{doing}: {error}"))
}

impl<'a> TestHosts<'a> {
    /// Makes the hosts, numbered so that no two trials share any, and injects.
    pub(crate) fn set(
        stage: &Stage,
        number: usize,
        (linerate, data): (&Path, &Data),
        trial: &'a Trial<'a>,
        seed: u64,
    ) -> Result<Self, Trouble> {
        let host = |end: &str| {
            let name = format!("{end}{number}");
            stage
                .add_host(&name)
                .map_err(|error| Trouble(error.to_string()))
        };
        let (near, far) = (host("near")?, host("far")?);
        let router = trial.kind.router.then(|| host("router")).transpose()?;
        let nic = |name: &str| name.parse().map_err(|error| Trouble(format!("{error}")));
        let (near_nic, far_nic): (NicName, NicName) = (nic("near0")?, nic("far0")?);
        let (left, right): (NicName, NicName) = (nic("left0")?, nic("right0")?);
        let near_end = (&near, &near_nic, "10.80.0.1/24");
        let far_end = (&far, &far_nic, "10.80.0.2/24");
        let relay = match &router {
            None => connect(near_end, far_end, trial.relay(seed))?,
            Some(router) => {
                join((router, &right, "10.80.0.253/32"), far_end)
                    .map_err(trouble("join the hosts"))?;
                connect(
                    near_end,
                    (router, &left, "10.80.0.254/32"),
                    trial.relay(seed),
                )?
            }
        };
        let own = std::env::current_exe().map_err(trouble("find this program's own file"))?;
        let mut environment = trial.values.clone();
        for (name, value) in [
            ("near", near.name()),
            ("far", far.name()),
            ("state", STATE),
            ("cgroup", &cgroup()),
            ("linerate", &linerate.display().to_string()),
            ("bench", &own.display().to_string()),
        ] {
            environment.insert(name.to_owned(), value.to_owned());
        }
        let mut hosts = Self {
            trial,
            near,
            far,
            router,
            environment,
            started: Vec::new(),
            realtime: may_be_realtime(),
            _relay: relay,
        };
        BASELINE.iter().try_for_each(|step| hosts.run(step))?;
        if hosts.router.is_some() {
            ROUTER.iter().try_for_each(|step| hosts.run(step))?;
        }
        if trial.is_loaded() {
            data.load
                .steps
                .iter()
                .try_for_each(|step| hosts.run(step))?;
        }
        if trial.injected {
            trial
                .kind
                .steps
                .iter()
                .try_for_each(|step| hosts.run(step))?;
        }
        Ok(hosts)
    }

    /// Runs a step: to its end, or, if it stays, in the background until the trial ends.
    fn run(&mut self, text: &str) -> Result<(), Trouble> {
        let step = Step::parse(text)?;
        let mut command = Command::new("sh");
        // A background program replaces the shell, so that it is the one that is killed.
        let exec = if step.stays { "exec " } else { "" };
        command
            .args(["-euc", &format!("{exec}{}", step.command)])
            .envs(&self.environment)
            .stdin(Stdio::null());
        let host = match step.place {
            Place::Near => Some(&self.near),
            Place::Far => Some(&self.far),
            Place::Router => self.router.as_ref(),
            Place::Cgroup => None,
        };
        match host {
            Some(host) => host
                .enter_in_child(&mut command)
                .map_err(trouble("enter a namespace"))?,
            None => linerate_testbed::tie_to_parent(&mut command),
        }
        let doing = format!("run `{text}`");
        if step.stays {
            command.stdout(Stdio::null()).stderr(Stdio::null());
            self.started.push(command.spawn().map_err(trouble(&doing))?);
            return Ok(());
        }
        let output = command.output().map_err(trouble(&doing))?;
        if output.status.success() {
            return Ok(());
        }
        let message = String::from_utf8_lossy(&output.stderr);
        Err(Trouble(format!("{doing}: {}", message.trim())))
    }

    /// The ends that run before other programs. If CPUs are part of the bottleneck or of the conditions, or others have
    /// to run meanwhile, the niceness that ours inherit must do.
    fn goes_first(&self, end: End) -> bool {
        let kind = self.trial.kind;
        let others = self.trial.is_loaded() || kind.waits.contains(&end) || !kind.during.is_empty();
        self.realtime && !others
    }

    fn command(&self, time: Duration, why: bool) -> String {
        let first = match (self.goes_first(End::Near), self.goes_first(End::Far)) {
            (true, true) => "chrt --rr 1",
            // Its remote end is started without.
            (true, false) => "chrt --reset-on-fork --rr 1",
            _ => "",
        };
        let injected = if self.trial.injected {
            self.trial.kind.options.as_str()
        } else {
            ""
        };
        format!(
            "exec {first} \"$linerate\" --format json --state $state measure --no-store stream netns:$far --time {}ms \
             --flows $flows --cc $cc $place {injected} {}",
            time.as_millis(),
            if why { "--why" } else { "" }
        )
    }

    /// Measures.
    pub(crate) fn measure(&mut self, time: Duration, why: bool) -> Result<Measured, Trouble> {
        let printed = format!("{STATE}.json");
        let out = fs::File::create(&printed).map_err(trouble("make a file for the result"))?;
        let mut command = Command::new("sh");
        command
            .args(["-euc", &self.command(time, why)])
            .envs(&self.environment)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(Stdio::piped());
        self.near
            .enter_in_child(&mut command)
            .map_err(trouble("enter a namespace"))?;
        let before = self.foreign_ticks();
        let start = Instant::now();
        let mut child = command.spawn().map_err(trouble("start linerate"))?;
        let mut messages = BufReader::new(
            child
                .stderr
                .take()
                .ok_or_else(|| Trouble("read linerate's output".to_owned()))?,
        );
        let mut first = String::new();
        // It announces what it does before it measures.
        messages
            .read_line(&mut first)
            .map_err(trouble("read linerate's output"))?;
        let meanwhile = self.meanwhile(child.id());
        if meanwhile.is_err() || !running::wait(&child, OVERALL_MAX) {
            let _ = child.kill();
        }
        let ended = child.wait().map_err(trouble("wait for linerate"))?;
        meanwhile?;
        if !ended.success() {
            let mut rest = first;
            messages
                .lines()
                .map_while(Result::ok)
                .for_each(|line| rest.push_str(&line));
            return Err(Trouble(format!("measure: {}", rest.trim())));
        }
        let foreign = self.foreign_ticks() - before;
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
            foreign: foreign / 100.0 / start.elapsed().as_secs_f64() / crate::cpus(),
            document,
        })
    }

    /// Has the remote end run first if only it may, and runs what happens during the measurement `near`.
    fn meanwhile(&mut self, near: u32) -> Result<(), Trouble> {
        // Without it linerate is about to end, and to print why.
        let Some(far) = child_of(near) else {
            return Ok(());
        };
        if !self.goes_first(End::Near) && self.goes_first(End::Far) {
            let mut command = Command::new("chrt");
            command.args(["--all-tasks", "--rr", "--pid", "1", &far.to_string()]);
            // Refused, its trials are disturbed.
            let _ = command.stdin(Stdio::null()).status();
        }
        let pids = [("near_pid", near), ("far_pid", far)];
        let pids = pids.map(|(name, pid)| (name.to_owned(), pid.to_string()));
        self.environment.extend(pids);
        if self.trial.injected {
            let trial = self.trial;
            trial
                .kind
                .during
                .iter()
                .try_for_each(|step| self.run(step))?;
        }
        Ok(())
    }

    /// CPU time of programs that are not ours, in ticks of 10 ms (USER_HZ).
    fn foreign_ticks(&self) -> f64 {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        // user, nice and system of the first line (proc(5)).
        let fields = stat.split_ascii_whitespace().skip(1).take(3);
        let all: f64 = fields.filter_map(|field| field.parse::<f64>().ok()).sum();
        let background = self.started.iter().map(|child| ticks_of(child.id()));
        all - ticks_of(std::process::id()) - background.sum::<f64>()
    }
}

/// Fields 14 to 17 of `/proc/PID/stat`: the time of a process and of its children that have ended.
fn ticks_of(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let fields = fields.split_ascii_whitespace().skip(11).take(4);
    fields.filter_map(|field| field.parse::<f64>().ok()).sum()
}

/// The control group of a trial: of the controller `cpu` (version 1), or of all (version 2). One that an interrupted run
/// left behind is used, and then removed.
fn cgroup() -> String {
    let root = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"];
    let root = root.into_iter().find(|folder| Path::new(folder).is_dir());
    let root = root.unwrap_or("/sys/fs/cgroup");
    format!("{root}/linerate-bench")
}

fn connect(
    near: LinkEnd<'_>,
    far: LinkEnd<'_>,
    relay: Option<RelayOptions>,
) -> Result<Option<Relay>, Trouble> {
    match relay {
        None => join(near, far)
            .map(|()| None)
            .map_err(trouble("join the hosts")),
        Some(options) => Relay::join(near, far, options)
            .map(Some)
            .map_err(trouble("start the relay")),
    }
}

/// Whether chrt(1) is there and we have the right.
fn may_be_realtime() -> bool {
    let mut command = Command::new("chrt");
    command.args(["--rr", "1", "true"]);
    let quiet = command.stdin(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// Stops a process again and again (SIGSTOP, SIGCONT), until it is gone: to its socket that is a program that sleeps.
pub(crate) fn stall(pid: u32, run: Duration, stop: Duration) -> Result<bool, Trouble> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| Trouble("stall a process without a number".to_owned()))?;
    while kill_process(pid, Signal::STOP).is_ok() {
        pause(stop);
        let _ = kill_process(pid, Signal::CONT);
        pause(run);
    }
    Ok(true)
}

/// A name for the parameters of a trial, and its conditions first.
pub(crate) fn words(values: &Values) -> String {
    let mut rest: BTreeMap<&str, &str> = values
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let mut take = |name: &str| rest.remove(name).unwrap_or_default().to_owned();
    let mut words = vec![
        take("cc"),
        format!("{} ms", take("rtt")),
        format!("{} flows", take("flows")),
    ];
    if take("load") == "yes" {
        words.push("other load".to_owned());
    }
    words.extend(Some(take("place")).filter(|place| !place.is_empty()));
    words.extend(rest.iter().map(|(name, value)| format!("{name} {value}")));
    words.join(", ")
}
