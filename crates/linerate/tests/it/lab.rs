//! Two hosts, `near` and `far`, joined by a veth pair, made with util-linux and iproute2 alone: the code
//! under test that does this (`linerate_testbed`) must not test itself.
//!
//! A shell in its own namespaces holds them; everything else enters there (nsenter(1)). It ends
//! with its standard input, so nothing of a lab outlives this test program, whatever ends it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::fitting;
use crate::job::{self, Done, Job};

/// One lab at a time: tests that measure must not disturb each other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Names for the hosts where nobody else sees them, addresses that never change by themselves.
const SETUP: &str = "set -e
if [ -d /run/netns ]; then mount -t tmpfs tmpfs /run/netns
else mount -t tmpfs tmpfs /run; mkdir /run/netns; fi
ip netns add near
ip netns add far
ip -n near link add near0 type veth peer name far0 netns far
for end in near:1 far:2; do
    host=${end%:*}
    ip -n $host link set $host'0' addrgenmode none
    ip -n $host address add 10.77.0.${end#*:}/24 dev $host'0'
    ip -n $host link set lo up
    ip -n $host link set $host'0' up
    ip netns exec $host true
done
# The kernel tells a carrier up to a second later (net/core/link_watch.c): only then nothing moves.
for host in near far; do
    until ip -n $host link show $host'0' | grep -q 'state UP'; do :; done
done
echo ready
exec cat >/dev/null";

/// Everything of a host that linerate could change, as other tools print it.
const DUMP: &str = "ip -d address; ip -d link; tc -d qdisc
for nic in $(ls /sys/class/net); do
    for what in -k -c -g -l; do echo \"ethtool $what $nic\"; ethtool $what $nic 2>&1 || true; done
    for file in /sys/class/net/$nic/queues/*/*_cpus /sys/class/net/$nic/queues/*/rps_flow_cnt \
                /sys/class/net/$nic/gro_flush_timeout /sys/class/net/$nic/threaded; do
        echo \"$file $(cat $file 2>/dev/null)\"
    done
done
sysctl -a 2>/dev/null | grep '^net\\.' |
grep -v -e '_count =' -e 'tcp_available_congestion' -e 'tcp_allowed_congestion' -e 'nf_conntrack'";

/// A control channel to `far`.
#[derive(Debug)]
enum Channel {
    /// `ssh://`, by an `ssh` of the lab's own in this folder.
    Ssh(PathBuf),
    /// `tls://`, to this listening agent.
    Tls(#[expect(dead_code, reason = "it ends with the lab")] FarAgent),
}

/// The two hosts.
#[derive(Debug)]
pub(crate) struct Lab {
    holder: Child,
    folder: TempDir,
    is_user: bool,
    /// How `far` is reached instead of by its namespace.
    channel: Option<Channel>,
    /// The last to go.
    _turn: MutexGuard<'static, ()>,
}

impl Lab {
    /// Creates the two hosts; a test returns silently when there are none.
    pub(crate) fn new() -> Option<Self> {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        match Self::build(turn) {
            Ok(lab) => Some(lab),
            Err(reason) => {
                eprintln!("SKIP: two hosts cannot be made here: {reason}");
                None
            }
        }
    }

    /// The same hosts for each kind of control channel: `netns:far` means `ssh://` first, and then a listening agent there
    /// (`tls://`).
    pub(crate) fn for_each_channel() -> impl Iterator<Item = Self> {
        [false, true].into_iter().filter_map(|is_tls| {
            let mut lab = Self::new()?;
            let channel = if is_tls {
                Channel::Tls(lab.listen(&["--allow-changes"]))
            } else {
                Channel::Ssh(lab.ssh())
            };
            lab.channel = Some(channel);
            Some(lab)
        })
    }

    /// The folder of an `ssh` that runs its command on `far`, where `linerate` is the program under test: what linerate does
    /// with ssh(1) is tested, without a server and keys.
    fn ssh(&self) -> PathBuf {
        let (near, far) = (self.path("near-bin"), self.path("far-bin"));
        let ssh = format!(
            "for command; do :; done\nexec ip netns exec far env PATH=\"{}:$PATH\" sh -c \"$command\"",
            far.display()
        );
        let linerate = format!(
            "exec '{}' --state '{}' \"$@\"",
            crate::LINERATE,
            self.path("agent").display()
        );
        for (folder, name, script) in [(&near, "ssh", ssh), (&far, "linerate", linerate)] {
            std::fs::create_dir(folder).expect("the lab's folder");
            let file = folder.join(name);
            job::script(&file, &script);
        }
        near
    }

    /// Starts a listening agent on `far`, and pairs `near` with it.
    #[track_caller]
    pub(crate) fn listen(&self, options: &[&str]) -> FarAgent {
        let agent = self.listen_unpaired(options);
        let line = FarAgent::pairing_line(self, &[]);
        self.run(&["peers", "pair", &line]).expect_code(0);
        agent
    }

    /// Starts a listening agent on `far`.
    #[track_caller]
    pub(crate) fn listen_unpaired(&self, options: &[&str]) -> FarAgent {
        let mut command = self.on("far", crate::LINERATE);
        command.arg("--state").arg(self.path("agent"));
        command
            .args(["agent", "--listen", "--no-pairing"])
            .args(options);
        let job = Job::start(command);
        job.wait_for_line(|line| line.starts_with("listening on "));
        FarAgent(Some(job))
    }

    /// What linerate does with the pairings of the agent on `far`.
    pub(crate) fn of_agent(&self, words: &[&str]) -> Command {
        let mut command = self.on("far", crate::LINERATE);
        command
            .arg("--state")
            .arg(self.path("agent"))
            .arg("agent")
            .args(words);
        command
    }

    fn build(turn: MutexGuard<'static, ()>) -> Result<Self, String> {
        for (tool, argument) in [
            ("ip", "-V"),
            ("tc", "-V"),
            ("ethtool", "--version"),
            ("nsenter", "-V"),
        ] {
            Command::new(tool)
                .arg(argument)
                .stdout(Stdio::null())
                .status()
                .map_err(|error| format!("{tool}: {error}"))?;
        }
        let is_user = !rustix::process::geteuid().is_root();
        let mut command = Command::new("unshare");
        if is_user {
            command.args(["--user", "--map-root-user"]);
        }
        command
            .args([
                "--mount",
                "--net",
                "--propagation",
                "private",
                "sh",
                "-c",
                SETUP,
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut holder = command
            .spawn()
            .map_err(|error| format!("unshare: {error}"))?;
        let mut line = String::new();
        let out = holder.stdout.take().expect("piped");
        // The end of the stream is an answer too.
        let _ = BufReader::new(out).read_line(&mut line);
        if line != "ready\n" {
            drop(holder.stdin.take());
            let output = holder.wait_with_output().expect("our own child");
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        Ok(Self {
            holder,
            folder: tempfile::tempdir().expect("a temporary folder"),
            is_user,
            channel: None,
            _turn: turn,
        })
    }

    /// Whether this is an ordinary user's lab: root there is root of the two hosts only.
    pub(crate) fn is_user(&self) -> bool {
        self.is_user
    }

    /// A path in the lab's own folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Whether the far end is a listening agent.
    pub(crate) fn is_listening(&self) -> bool {
        matches!(self.channel, Some(Channel::Tls(_)))
    }

    /// The state folder of linerate in the lab.
    pub(crate) fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// A program where the hosts are made, on neither of them.
    pub(crate) fn outside(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args([
            "--target",
            &self.holder.id().to_string(),
            "--mount",
            "--net",
        ]);
        if self.is_user {
            command.args(["--user", "--preserve-credentials"]);
        }
        command.args(["--", program]);
        command
    }

    /// A program on a host.
    pub(crate) fn on(&self, host: &str, program: &str) -> Command {
        let mut command = self.outside("ip");
        command.args(["netns", "exec", host, program]);
        command
    }

    /// linerate on `near`, with the lab's state folder.
    pub(crate) fn linerate(&self, arguments: &[&str]) -> Command {
        let mut command = self.on("near", crate::LINERATE);
        command.arg("--state").arg(self.state());
        if let Some(Channel::Ssh(folder)) = &self.channel {
            let path = std::env::var("PATH").expect("a search path");
            command.env("PATH", format!("{}:{path}", folder.display()));
        }
        command.args(arguments.iter().map(|word| match (*word, &self.channel) {
            ("netns:far", Some(Channel::Ssh(_))) => SSH_FAR,
            ("netns:far", Some(Channel::Tls(_))) => FAR,
            (word, _) => word,
        }));
        command
    }

    /// The document of a short stream to `far`.
    #[track_caller]
    pub(crate) fn stream(&self, more: &[&str]) -> Value {
        let fixed = [
            "--format",
            "json",
            "measure",
            "stream",
            "netns:far",
            "--time",
            "0.6",
        ];
        fitting(&self.run(&[&fixed, more].concat()).expect_code(0).out)
    }

    /// What linerate on `near` does.
    #[track_caller]
    pub(crate) fn run(&self, arguments: &[&str]) -> Done {
        job::run(self.linerate(arguments))
    }

    /// What a shell on a host prints; it must not fail.
    #[track_caller]
    pub(crate) fn shell(&self, host: &str, script: &str) -> String {
        let mut command = self.on(host, "sh");
        command.args(["-ec", script]);
        linerate_testbed::without_counters(&job::run(command).expect_code(0).out)
    }

    /// Everything of both hosts that linerate could change, as printed by ip, tc, ethtool and sysctl.
    #[track_caller]
    pub(crate) fn dump(&self) -> String {
        let of = |host: &str| format!("# {host}\n{}", self.shell(host, DUMP));
        format!("{}{}", of("near"), of("far"))
    }

    /// A counter of a host's interface.
    #[track_caller]
    pub(crate) fn counter(&self, host: &str, name: &str) -> u64 {
        let file = format!("/sys/class/net/{host}0/statistics/{name}");
        let text = self.shell(host, &format!("cat {file}"));
        text.trim().parse().expect("a number")
    }

    /// Mounts a file system of `size` bytes in the lab's folder and returns its place.
    #[track_caller]
    pub(crate) fn small_disk(&self, name: &str, size: &str) -> PathBuf {
        let place = self.path(name);
        std::fs::create_dir(&place).expect("the lab's folder");
        let mut mount = self.outside("mount");
        mount.args([
            "-t",
            "tmpfs",
            "-o",
            &format!("size={size},mode=755"),
            "tmpfs",
        ]);
        mount.arg(&place);
        job::run(mount).expect_code(0);
        place
    }
}

/// `far` by the lab's `ssh`.
const SSH_FAR: &str = "ssh://root@10.77.0.2";

/// The listening agent on `far`, as `near` calls it.
pub(crate) const FAR: &str = "tls://10.77.0.2:5210";

/// A listening agent; it ends with this.
#[derive(Debug)]
pub(crate) struct FarAgent(Option<Job>);

impl FarAgent {
    /// A line that pairs a host with it.
    #[track_caller]
    pub(crate) fn pairing_line(lab: &Lab, options: &[&str]) -> String {
        let words = [&["pair", "--advertise", "10.77.0.2"], options].concat();
        let done = job::run(lab.of_agent(&words)).expect_code(0);
        done.out.trim_end().to_owned()
    }

    /// The program.
    pub(crate) fn job(&self) -> &Job {
        self.0.as_ref().expect("it runs until it is taken")
    }

    /// Its program, which does not end with this any more.
    pub(crate) fn take(mut self) -> Job {
        self.0.take().expect("it runs until it is taken")
    }
}

impl Drop for FarAgent {
    fn drop(&mut self) {
        if let Some(job) = self.0.take() {
            job.send(Signal::TERM);
            // A failed test shows its own failure, not that of its agent.
            if !std::thread::panicking() {
                job.end().expect_code(0);
            }
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.channel = None;
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("temporary folders are in UTF-8")
}

/// The first line in which two dumps differ, for a person.
pub(crate) fn difference(before: &str, after: &str) -> Option<String> {
    if before == after {
        return None;
    }
    let lines = before
        .lines()
        .zip(after.lines())
        .find(|(one, other)| one != other);
    Some(lines.map_or_else(
        || "one is longer".to_owned(),
        |(one, other)| format!("before: {one}\nafter:  {other}"),
    ))
}

/// Panics when a dump taken now is not byte for byte the one before.
#[track_caller]
pub(crate) fn assert_same(lab: &Lab, before: &str, when: &str) {
    if let Some(difference) = difference(before, &lab.dump()) {
        panic!("{when}: not as before\n{difference}");
    }
}
