//! `mesh` started by launchers that exist, each on four hosts: Slurm, Open MPI and MPICH as Debian packages them. A host is a
//! namespace of `testbed mesh` with a host name of its own; what a host's ssh would start is started by `on` instead.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::fitting;
use crate::job::{Done, Job, run};
use crate::lab::text;
use crate::mesh::{Mesh, observations, stored_flows};

/// Runs a command on a host: its network, and its name in `/etc/hosts` and in the kernel.
const ON: &str = r#"#!/bin/sh
host=$1; shift
exec ip netns exec "$host" unshare --uts sh -c 'hostname "$0" && exec "$@"' "$host" "$@"
"#;

/// The same with ssh's habits: options first, and the words make a line for a shell. This is the agent of mpirun and of Hydra.
const SSH: &str = r#"#!/bin/sh
while :; do case $1 in -[olFiJpSE]) shift 2 ;; -*) shift ;; *) break ;; esac; done
host=$1; shift
exec "$(dirname "$0")/on" "$host" sh -c "$*"
"#;

/// slurmctld on the first host, a slurmd on each. One munged serves all: its socket is a file, which has no network namespace.
const SLURM: &str = r#"set -e
slurm=$1; shift
mkdir -p "$slurm/state" "$slurm/munge"
chmod 755 "$slurm" "$slurm/munge"
head -c 128 /dev/urandom >"$slurm/munge.key"
chmod 600 "$slurm/munge.key"
# `ip netns exec` mounts a /sys without control groups.
echo CgroupPlugin=cgroup/v1 >"$slurm/cgroup.conf"
cat >"$slurm/slurm.conf" <<END
ClusterName=linerate
SlurmctldHost=$1
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$slurm/munge/socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
StateSaveLocation=$slurm/state
SlurmctldPidFile=$slurm/slurmctld.pid
SlurmdSpoolDir=$slurm/%n.spool
SlurmdPidFile=$slurm/%n.pid
SlurmdParameters=config_overrides
MessageTimeout=100
$(for host; do echo "NodeName=$host CPUs=2 State=UNKNOWN"; done)
PartitionName=all Nodes=ALL Default=YES MaxTime=10 State=UP OverSubscribe=FORCE:4
END
export SLURM_CONF=$slurm/slurm.conf
on=$(dirname "$slurm")/on
"$on" "$1" munged --force --key-file="$slurm/munge.key" --socket="$slurm/munge/socket" --pid-file="$slurm/munge/pid" \
    --log-file="$slurm/munge/log" --seed-file="$slurm/munge/seed" >"$slurm/munge/out" 2>&1
"$on" "$1" slurmctld >"$slurm/slurmctld.out" 2>&1
for host; do
    mkdir "$slurm/$host.spool"
    "$on" "$host" slurmd -N "$host" >"$slurm/$host.out" 2>&1
done
until [ "$("$on" "$1" sinfo -h -t idle -o %D 2>/dev/null)" = $# ]; do :; done
"#;

/// Four hosts, and what is needed to start a program on them.
struct Site {
    mesh: Mesh,
    hosts: Vec<String>,
}

impl Drop for Site {
    fn drop(&mut self) {
        // The daemons of an engine, too: a host's processes end with it.
        for host in &self.hosts {
            let mut kill = self.mesh.lab.outside("sh");
            let line = format!("ip netns pids {host} | xargs -r kill -9");
            kill.args(["-c", &line]);
            run(kill);
        }
    }
}

impl Site {
    /// Makes the hosts; none where that is not possible or a program is missing, with a line that says so.
    #[track_caller]
    fn new(programs: &[(&str, &str)]) -> Option<Self> {
        for (program, package) in programs {
            if !std::env::split_paths(&search_path()).any(|folder| folder.join(program).is_file()) {
                eprintln!("SKIP: {program} is not installed (Debian: {package})");
                return None;
            }
        }
        let mesh = Mesh::add(4, &[])?;
        if mesh.lab.is_user() {
            eprintln!("SKIP: the daemons of a launcher need root");
            return None;
        }
        let hosts: Vec<String> = mesh
            .peers
            .iter()
            .map(|peer| peer.trim_start_matches("netns:").to_owned())
            .collect();
        let site = Self { mesh, hosts };
        for (name, script) in [("on", ON), ("ssh", SSH)] {
            let file = site.path(name);
            fs::write(&file, script).expect("the lab's folder");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("our own file");
        }
        // Daemons that drop their privileges go through it.
        let folder = fs::Permissions::from_mode(0o755);
        fs::set_permissions(site.path(""), folder).expect("our own folder");
        let names = site.hosts.iter().enumerate();
        let lines = names.map(|(at, host)| format!("10.206.0.{} {host}\n", 10 + at));
        let names = format!("127.0.0.1 localhost\n{}", lines.collect::<String>());
        fs::write(site.path("hosts"), names).expect("the lab's folder");
        let mut mount = site.mesh.lab.outside("mount");
        mount.args(["--bind", text(&site.path("hosts")), "/etc/hosts"]);
        run(mount).expect_code(0);
        Some(site)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.mesh.lab.path(name)
    }

    /// A command on a host. The loopback of a namespace is its own: nothing reaches this machine's own daemons.
    fn on(&self, host: usize, words: &[&str]) -> Command {
        let mut command = self.mesh.lab.outside(text(&self.path("on")));
        command.arg(&self.hosts[host]).args(words);
        command
            .env("PATH", search_path())
            .env("SLURM_CONF", self.path("slurm/slurm.conf"))
            .env("TMPDIR", self.path(""))
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command
    }

    fn start_slurm(&self) {
        let slurm = self.path("slurm");
        fs::create_dir(&slurm).expect("the lab's folder");
        // The script runs each daemon on its own host.
        let mut start = self.mesh.lab.outside("sh");
        start.args(["-c", SLURM, "slurm"]).arg(&slurm);
        start.args(&self.hosts).env("PATH", search_path());
        run(start).expect_code(0);
    }

    fn mpirun(&self) -> Vec<String> {
        let hosts = self.hosts.join(",");
        let ssh = text(&self.path("ssh")).to_owned();
        let words = format!(
            "mpirun.openmpi --host {hosts} --map-by ppr:1:node --bind-to none --mca plm_rsh_agent {ssh} \
             --mca oob_tcp_if_include eth0"
        );
        words.split(' ').map(str::to_owned).collect()
    }

    fn hydra(&self) -> Vec<String> {
        let hosts = self.hosts.join(",");
        let ssh = text(&self.path("ssh")).to_owned();
        let words = format!(
            "mpiexec.hydra -launcher ssh -launcher-exec {ssh} -hosts {hosts} -ppn 1 -n 4 -iface eth0"
        );
        words.split(' ').map(str::to_owned).collect()
    }

    /// Whether all hosts have taken part, under their own names, and every pair was measured in both directions.
    #[track_caller]
    fn check(&self, done: &Done) {
        // What four hosts of a busy machine show of each other is not asked here.
        assert!(
            matches!(done.code, Some(0 | 10 | 12)),
            "{:?}\n{}\n{}",
            done.code,
            done.out,
            done.err
        );
        let document: Value = fitting(&done.out);
        let hosts = document["hosts"].as_array().expect("a list");
        let names: BTreeSet<&str> = hosts
            .iter()
            .filter_map(|host| host["name"].as_str())
            .collect();
        let expected: BTreeSet<&str> = self.hosts.iter().map(String::as_str).collect();
        assert_eq!(names, expected, "{}", done.err);
        let mut pairs = BTreeSet::new();
        for (from, to, outcome) in observations(&self.mesh.records()) {
            assert_eq!(outcome["outcome"], "measured", "{outcome}");
            pairs.insert((from, to));
        }
        assert_eq!(pairs.len(), 12, "{pairs:?}");
    }

    /// Waits until something is stored, or the job has ended.
    fn wait_for_results(&self, job: &Job) {
        while stored_flows(&self.mesh.lab.state()) == 0 && !job.has_ended() {
            std::thread::yield_now();
        }
    }

    /// Kills the processes of a host whose program is `name`.
    #[track_caller]
    fn kill(&self, host: usize, name: &str) {
        const KILL: &str = r#"for pid in $(ip netns pids "$1"); do
            case $(readlink "/proc/$pid/exe") in */"$2"*) echo "$pid"; kill -9 "$pid" ;; esac
        done"#;
        let mut kill = self.mesh.lab.outside("sh");
        kill.args(["-c", KILL, "kill", &self.hosts[host], name]);
        let killed = run(kill).expect_code(0).out;
        assert!(!killed.is_empty(), "no {name} ran");
    }

    /// Waits until no process of linerate is left on any host: one that stays is an error of this test's guard.
    #[track_caller]
    fn check_nothing_is_left(&self) {
        const WAIT: &str = r#"while :; do
            left=
            for host; do for pid in $(ip netns pids "$host"); do
                [ "$(readlink "/proc/$pid/exe")" != "$linerate" ] || left="$left $pid"
            done; done
            [ -n "$left" ] || exit 0
        done"#;
        let mut wait = self.mesh.lab.outside("sh");
        wait.args(["-c", WAIT, "wait"]).args(&self.hosts);
        wait.env(
            "linerate",
            fs::canonicalize(crate::LINERATE).expect("our own program"),
        );
        run(wait).expect_code(0);
    }
}

/// `linerate` with its state folder and these words.
fn own<'a>(state: &'a Path, words: &[&'a str]) -> Vec<&'a str> {
    let own = [crate::LINERATE, "--state", text(state), "--json"];
    [&own[..], words].concat()
}

/// Daemons are beside the programs of an administrator.
fn search_path() -> String {
    std::env::var("PATH").expect("a search path") + ":/usr/sbin:/sbin"
}

const QUICK: [&str; 4] = ["mesh", "--time", "1s", "--no-retest"];
const SLURM_PROGRAMS: [(&str, &str); 4] = [
    ("slurmctld", "slurmctld"),
    ("slurmd", "slurmd"),
    ("srun", "slurm-client"),
    ("munged", "munge"),
];
const OPEN_MPI: [(&str, &str); 1] = [("mpirun.openmpi", "openmpi-bin")];
const MPICH: [(&str, &str); 1] = [("mpiexec.hydra", "mpich")];
const SRUN: [&str; 3] = ["srun", "-N4", "--ntasks-per-node=1"];

#[test]
fn srun_starts_a_mesh_of_four_hosts_that_find_the_root_by_pmi() {
    let Some(site) = Site::new(&SLURM_PROGRAMS) else {
        return;
    };
    site.start_slurm();
    let state = site.mesh.lab.state();
    let words = [&SRUN[..], &["--mpi=pmi2"], &own(&state, &QUICK)].concat();
    let done = run(site.on(0, &words));
    // srun ends with the highest exit code of its tasks.
    site.check(&done);
    site.check_nothing_is_left();
}

#[test]
fn a_mesh_that_starts_srun_hands_the_pairing_over_and_ends_with_it() {
    let Some(site) = Site::new(&SLURM_PROGRAMS) else {
        return;
    };
    site.start_slurm();
    let state = site.mesh.lab.state();
    let rank = own(&state, &["mesh"]);
    let outer = [&QUICK[..], &["--size", "4", "--"], &SRUN, &rank].concat();
    let done = run(site.on(0, &own(&state, &outer)));
    site.check(&done);
    site.check_nothing_is_left();
}

#[test]
fn a_launcher_that_ends_before_its_ranks_join_ends_the_mesh_with_its_own_words() {
    let Some(site) = Site::new(&SLURM_PROGRAMS) else {
        return;
    };
    site.start_slurm();
    let state = site.mesh.lab.state();
    // There is no such partition: srun refuses.
    let outer = [
        &QUICK[..],
        &["--join-timeout", "1h", "--size", "4", "--"],
        &SRUN,
    ]
    .concat();
    let outer = [&outer[..], &["--partition=none"], &own(&state, &["mesh"])].concat();
    let done = run(site.on(0, &own(&state, &outer))).expect_code(20);
    assert!(done.err.contains("srun: "), "{}", done.err);
    let why = "the launcher `srun` ended before all 4 ranks had joined: exit status: 1";
    assert!(done.err.contains(why), "{}", done.err);
}

#[test]
fn a_task_of_srun_that_is_killed_is_a_lost_host_and_the_others_go_on() {
    let Some(site) = Site::new(&SLURM_PROGRAMS) else {
        return;
    };
    site.start_slurm();
    let state = site.mesh.lab.state();
    let mesh = ["mesh", "--time", "1s", "--repeats", "4", "--no-retest"];
    let words = [&SRUN[..], &["--mpi=pmi2"], &own(&state, &mesh)].concat();
    let job = Job::start(site.on(0, &words));
    site.wait_for_results(&job);
    site.kill(2, "linerate");
    let done = job.end();
    // 128 + SIGKILL, of the task that was killed.
    assert_eq!(done.code, Some(137), "{}", done.err);
    assert!(done.err.contains("lr-m2 is lost"), "{}", done.err);
    let document = fitting(&done.out);
    let hosts = document["hosts"].as_array().expect("a list");
    let unreached = hosts.iter().filter(|host| host["state"] == "unreached");
    let names: Vec<&Value> = unreached.map(|host| &host["name"]).collect();
    assert_eq!(names, ["lr-m2"]);
    site.check_nothing_is_left();
}

#[test]
fn scancel_ends_a_mesh_with_what_was_measured_and_leaves_nothing_running() {
    let Some(site) = Site::new(&SLURM_PROGRAMS) else {
        return;
    };
    site.start_slurm();
    let state = site.mesh.lab.state();
    let mesh = ["mesh", "--time", "500ms", "--repeats", "1000"];
    let rank = own(&state, &["mesh"]);
    let outer = [&mesh[..], &["--size", "4", "--"], &SRUN, &rank].concat();
    let job = Job::start(site.on(0, &own(&state, &outer)));
    site.wait_for_results(&job);
    run(site.on(0, &["scancel", "--user=root"])).expect_code(0);
    // The mesh is not a task of the job: it prints what it has.
    let done = job.end().expect_code(12);
    let document = fitting(&done.out);
    assert_eq!(document["schema"], "linerate.mesh/1");
    site.check_nothing_is_left();
}

#[test]
fn mpirun_of_open_mpi_is_started_by_a_mesh_of_four_hosts() {
    let Some(site) = Site::new(&OPEN_MPI) else {
        return;
    };
    let state = site.mesh.lab.state();
    let mpirun = site.mpirun();
    let mpirun: Vec<&str> = mpirun.iter().map(String::as_str).collect();
    let rank = own(&state, &["mesh"]);
    let variable = ["-x", "LINERATE_ROOT"];
    let outer = [
        &QUICK[..],
        &["--size", "4", "--"],
        &mpirun,
        &variable,
        &rank,
    ]
    .concat();
    let done = run(site.on(0, &own(&state, &outer)));
    site.check(&done);
    site.check_nothing_is_left();
}

#[test]
fn ranks_of_open_mpi_find_the_root_by_a_shared_file() {
    let Some(site) = Site::new(&OPEN_MPI) else {
        return;
    };
    let state = site.mesh.lab.state();
    let mpirun = site.mpirun();
    let mpirun: Vec<&str> = mpirun.iter().map(String::as_str).collect();
    let file = format!("LINERATE_ROOT_FILE={}", text(&site.path("root")));
    let words = [&mpirun[..], &["-x", &file], &own(&state, &QUICK)].concat();
    site.check(&run(site.on(0, &words)));
    assert!(!site.path("root").exists());
    site.check_nothing_is_left();
}

#[test]
fn hydra_of_mpich_starts_a_mesh_of_four_hosts_that_find_the_root_by_pmi() {
    let Some(site) = Site::new(&MPICH) else {
        return;
    };
    let state = site.mesh.lab.state();
    let hydra = site.hydra();
    let hydra: Vec<&str> = hydra.iter().map(String::as_str).collect();
    let words = [&hydra[..], &own(&state, &QUICK)].concat();
    site.check(&run(site.on(0, &words)));
    site.check_nothing_is_left();
}

#[test]
fn hydra_of_mpich_is_started_by_a_mesh_of_four_hosts() {
    let Some(site) = Site::new(&MPICH) else {
        return;
    };
    let state = site.mesh.lab.state();
    let hydra = site.hydra();
    let hydra: Vec<&str> = hydra.iter().map(String::as_str).collect();
    let rank = own(&state, &["mesh"]);
    let outer = [&QUICK[..], &["--size", "4", "--"], &hydra, &rank].concat();
    site.check(&run(site.on(0, &own(&state, &outer))));
    site.check_nothing_is_left();
}

#[test]
fn pdsh_starts_a_mesh_by_the_explicit_variables() {
    let Some(site) = Site::new(&[("pdsh", "pdsh")]) else {
        return;
    };
    let hosts = site.hosts.join(",");
    let (state, root) = (site.mesh.lab.state(), site.path("root"));
    let rank = format!(
        "LINERATE_RANK=%n LINERATE_SIZE=4 LINERATE_ROOT_FILE={} {}",
        text(&root),
        own(&state, &QUICK).join(" ")
    );
    let ssh = site.path("ssh");
    let pdsh = ["pdsh", "-N", "-R", "exec", "-w", &hosts];
    let words = [&pdsh[..], &[text(&ssh), "%h", &rank]].concat();
    // The result of rank 0 is all that is printed.
    site.check(&run(site.on(0, &words)));
    assert!(!root.exists());
    site.check_nothing_is_left();
}

#[test]
fn a_launcher_that_is_killed_ends_the_mesh_with_what_was_measured_and_leaves_nothing_running() {
    let both: Vec<_> = OPEN_MPI.into_iter().chain(MPICH).collect();
    let Some(site) = Site::new(&both) else {
        return;
    };
    for (launcher, name) in [(site.mpirun(), "orterun"), (site.hydra(), "mpiexec")] {
        let state = site.path(name);
        let launcher: Vec<&str> = launcher.iter().map(String::as_str).collect();
        let variable: &[&str] = if name == "orterun" {
            &["-x", "LINERATE_ROOT"]
        } else {
            &[]
        };
        let rank = own(&state, &["mesh"]);
        let mesh = [
            "mesh",
            "--time",
            "500ms",
            "--repeats",
            "1000",
            "--size",
            "4",
            "--",
        ];
        let outer = [&mesh[..], &launcher, variable, &rank].concat();
        let job = Job::start(site.on(0, &own(&state, &outer)));
        while stored_flows(&state) == 0 && !job.has_ended() {
            std::thread::yield_now();
        }
        site.kill(0, name);
        let done = job.end().expect_code(12);
        assert_eq!(fitting(&done.out)["schema"], "linerate.mesh/1");
        site.check_nothing_is_left();
    }
}

#[test]
fn a_signal_ends_a_mesh_and_its_launcher() {
    let Some(site) = Site::new(&MPICH) else {
        return;
    };
    let state = site.mesh.lab.state();
    let hydra = site.hydra();
    let hydra: Vec<&str> = hydra.iter().map(String::as_str).collect();
    let rank = own(&state, &["mesh"]);
    let mesh = [
        "mesh",
        "--time",
        "500ms",
        "--repeats",
        "1000",
        "--size",
        "4",
        "--",
    ];
    let outer = [&mesh[..], &hydra, &rank].concat();
    let job = Job::start(site.on(0, &own(&state, &outer)));
    site.wait_for_results(&job);
    job.send(Signal::TERM);
    let done = job.end().expect_code(12);
    assert!(
        done.err.contains("interrupted: the result is that of"),
        "{}",
        done.err
    );
    site.check_nothing_is_left();
}
