//! One trial: makes a mesh, runs `linerate mesh` over it, and removes it.

use std::fmt::Write as _;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use linerate_bench_shared::running::tail;
use linerate_bench_shared::{Trouble, load, pause};
use linerate_testbed::mesh::Mesh;
use linerate_testbed::tie_to_parent;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::cases::{Case, Planted, peer, switch};

/// In the folder that the stage covers with its own tmpfs: it vanishes with it.
const STATE: &str = "/run/netns/.mesh";

/// The result of a trial.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) case: String,
    pub(super) number: u16,
    /// The faults, and the host that was killed.
    pub(super) injected: String,
    pub(super) is_right: bool,
    /// What was named.
    pub(super) named: Vec<String>,
    /// The hosts that were not reached.
    pub(super) unreached: Vec<String>,
    pub(super) code: Option<i32>,
    /// The relative standard deviation of one rate.
    pub(super) noise: Option<f64>,
    pub(super) rounds: u64,
    /// The duration of the trial of a pair.
    pub(super) time: String,
    pub(super) seconds: f64,
    pub(super) load: String,
}

/// What all trials have in common.
pub(super) struct Runner {
    pub(super) linerate: PathBuf,
    pub(super) time: String,
}

impl Runner {
    pub(super) fn trial(&self, case: Case, number: u16) -> Result<Row, Trouble> {
        let planted = case.planted(number);
        let failed = |what: &str| {
            let what = what.to_owned();
            move |error: &dyn std::fmt::Display| Trouble(format!("{what}: {error}"))
        };
        let state = Path::new(STATE);
        let made = fs::create_dir_all(state);
        made.map_err(|error| failed("make the state folder")(&error))?;
        let mut mesh = Mesh::open(state).map_err(|error| failed("open the mesh")(&error))?;
        mesh.add(&planted.spec)
            .map_err(|error| failed("make the mesh")(&error))?;
        let row = self.measured(case, number, &planted);
        mesh.remove()
            .map_err(|error| failed("remove the mesh")(&error))?;
        let removed = fs::remove_dir_all(state.join("runs"));
        removed.map_err(|error| failed("remove the stored run")(&error))?;
        row
    }

    fn measured(&self, case: Case, number: u16, planted: &Planted) -> Result<Row, Trouble> {
        let began = Instant::now();
        let mut child = self.start(number, planted)?;
        if let Some((host, after)) = planted.killed {
            kill_after(host, after, &mut child)?;
        }
        let output = child
            .wait_with_output()
            .map_err(|error| Trouble(format!("wait for linerate: {error}")))?;
        let document: Value = serde_json::from_slice(&output.stdout).map_err(|error| {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            Trouble(format!("read the result: {error}: {}", tail(&said)))
        })?;
        let list = |key: &str| document[key].as_array().into_iter().flatten();
        let unreached = list("hosts").filter(|host| host["state"] == "unreached");
        let faults = planted.spec.faults.iter().map(ToString::to_string);
        let killed = planted
            .killed
            .map(|(host, after)| format!("killed:{host} after {after} flows"));
        Ok(Row {
            case: case.name().to_owned(),
            number,
            injected: faults.chain(killed).collect::<Vec<_>>().join(", "),
            is_right: planted.is_right(&document),
            named: list("named").map(in_short).collect(),
            unreached: unreached.map(|host| host["name"].to_string()).collect(),
            code: output.status.code(),
            noise: document["noise"].as_f64(),
            rounds: document["rounds"].as_u64().unwrap_or_default(),
            time: self.time.clone(),
            seconds: began.elapsed().as_secs_f64(),
            load: load(),
        })
    }

    fn start(&self, number: u16, planted: &Planted) -> Result<Child, Trouble> {
        let mut hosts = String::new();
        for host in 0..planted.spec.hosts {
            let (peer, switch) = (peer(host), switch(host));
            let _ = writeln!(hosts, "[[host]]\npeer = \"{peer}\"\nswitch = \"{switch}\"");
        }
        let file = format!("{STATE}/hosts.toml");
        fs::write(&file, hosts).map_err(|error| Trouble(format!("write {file}: {error}")))?;
        let mut command = Command::new(&self.linerate);
        command.args([
            "--state", STATE, "--format", "json", "mesh", "--hosts", &file,
        ]);
        command.args(["--time", &self.time, "--round-timeout", "4s"]);
        command.args(["--seed", &number.to_string()]);
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        tie_to_parent(&mut command);
        let child = command.spawn();
        child.map_err(|error| Trouble(format!("run {}: {error}", self.linerate.display())))
    }
}

/// A result in a few words.
fn in_short(named: &Value) -> String {
    let mut words = named["what"].as_str().unwrap_or_default().to_owned();
    for of in [
        &named["host"],
        &named["to"],
        &named["group"]["name"],
        &named["failure"],
    ] {
        if let Some(of) = of.as_str() {
            let _ = write!(words, " {of}");
        }
    }
    if let Some(effect) = named["effect"]["relative"].as_f64() {
        let _ = write!(words, " {:+.1} %", effect * 100.0);
    }
    words
}

/// Kills everything that runs on a host once this many flows are stored.
fn kill_after(host: u32, after: usize, child: &mut Child) -> Result<(), Trouble> {
    while stored_flows() < after {
        if let Ok(Some(status)) = child.try_wait() {
            let mut said = String::new();
            if let Some(stderr) = &mut child.stderr {
                // Best effort: only for the message.
                let _ = stderr.read_to_string(&mut said);
            }
            let words = format!("kill a host: linerate has ended: {status}: {}", tail(&said));
            return Err(Trouble(words));
        }
        pause(Duration::from_millis(20));
    }
    let name = format!("/run/netns/lr-m{host}");
    let own = fs::metadata(&name)
        .map_err(|error| Trouble(format!("read {name}: {error}")))?
        .ino();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let inside = pids.filter(|pid| {
        let space = fs::metadata(format!("/proc/{pid}/ns/net"));
        space.is_ok_and(|space| space.ino() == own)
    });
    let mut killed = 0;
    for pid in inside.filter_map(Pid::from_raw) {
        killed += usize::from(kill_process(pid, Signal::KILL).is_ok());
    }
    if killed == 0 {
        return Err(Trouble(format!("find the agent of host {host}")));
    }
    Ok(())
}

/// The flows in the records of the run.
fn stored_flows() -> usize {
    let runs = fs::read_dir(Path::new(STATE).join("runs")).into_iter();
    let folders = runs.flatten().flatten();
    let texts = folders.filter_map(|run| fs::read(run.path().join("records.jsonl")).ok());
    texts
        .map(|text| {
            String::from_utf8_lossy(&text)
                .matches("{\"mesh-flow\"")
                .count()
        })
        .sum()
}
