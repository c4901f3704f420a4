//! The guest, for as long as this program lives: `testbed/vm/vm hold` switches it off when its standard
//! input ends, whatever ended us.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::schema::fitting;

/// The program under test, on the host: the guest sees the host's files at their own paths.
const BUILT: &str = env!("CARGO_BIN_EXE_linerate");
/// Where root installs it in the guest: a boot may run this one, wherever the checkout is and whoever owns it.
const LINERATE: &str = "/run/disk/bin/linerate";
const VM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testbed/vm/vm");
/// Makes two RDMA devices of software that reach each other; run in the guest.
pub(crate) const SOFT_RDMA: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../testbed/vm/soft-rdma");
/// Where the guest's disk is mounted: what outlives a power cut.
pub(crate) const DISK: &str = "/run/disk";
/// The exit code of `vm` when the guest does not answer.
const DEAD: i32 = 255;
/// A diagnosis of facts and settings, which ends with 0 whatever it finds.
pub(crate) const DOCTOR: [&str; 5] = ["doctor", "--watch", "0", "--fail-on", "never"];
/// Applies the plan that follows, with a deadline that does not pass: the clock leaps while programs are read from the host.
pub(crate) const APPLY: [&str; 6] = [
    "tune",
    "apply",
    "--no-confirm",
    "--deadline",
    "36000",
    "--from",
];
/// In front of a script with a deadline that is short for a busy host: a guest that is never idle has a clock that does not
/// leap while it waits for the host's files.
pub(crate) const AWAKE: &str = "while :; do :; done & spinning=$!; trap 'kill $spinning' EXIT\n";
/// More than any command here takes, in seconds of the guest, which pass quickly while it waits for files
/// of a busy host.
const LIMIT: &str = "300";

/// How a command in the guest ended, and its output.
#[derive(Debug)]
pub(crate) struct Done {
    /// Its exit code; 124 when it took too long.
    pub(crate) code: i32,
    /// Standard output.
    pub(crate) out: String,
    /// Standard error.
    pub(crate) err: String,
}

/// A guest that answers.
#[derive(Debug)]
pub(crate) struct Guest {
    holder: Child,
    /// Its output.
    said: Mutex<BufReader<ChildStdout>>,
    /// It stopped answering: no further test waits for it.
    is_dead: AtomicBool,
}

impl Guest {
    /// Boots a fresh guest; none where that cannot be, with a `SKIP:` line.
    pub(crate) fn hold() -> Option<Self> {
        if !Path::new(VM).exists() {
            eprintln!("SKIP: {VM} is not there");
            return None;
        }
        let mut holder = Command::new(VM)
            .arg("hold")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the testbed's program starts");
        let mut said = BufReader::new(holder.stdout.take().expect("piped"));
        if is_up(&mut said) {
            let guest = Self {
                holder,
                said: Mutex::new(said),
                is_dead: AtomicBool::new(false),
            };
            // Synced, for a power cut.
            guest.shell(&format!(
                "install -D -m 755 '{BUILT}' {LINERATE}; sync {LINERATE}"
            ));
            return Some(guest);
        }
        drop(holder.stdin.take());
        let status = holder.wait().expect("our own child");
        assert_eq!(
            status.code(),
            Some(77),
            "{VM} failed; where there can be no guest it ends with 77 and the reason"
        );
        None
    }

    /// Runs a program in the guest.
    #[track_caller]
    pub(crate) fn run(&self, command: &[&str]) -> Done {
        self.run_with(&[], command)
    }

    /// Runs a program in the guest with more options of `vm run`.
    #[track_caller]
    fn run_with(&self, options: &[&str], command: &[&str]) -> Done {
        assert!(
            !self.is_dead.load(Ordering::Relaxed),
            "the guest stopped answering in a test before this one"
        );
        let output = vm(&[&["run", "-t", LIMIT], options, command].concat());
        let done = Done {
            code: output.status.code().unwrap_or(DEAD),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        };
        if done.code == DEAD {
            self.is_dead.store(true, Ordering::Relaxed);
        }
        done
    }

    /// What a program in the guest prints; it must not fail.
    #[track_caller]
    pub(crate) fn succeed(&self, command: &[&str]) -> String {
        let done = self.run(command);
        assert_eq!(
            done.code, 0,
            "{command:?}\n--- stdout\n{}\n--- stderr\n{}",
            done.out, done.err
        );
        done.out
    }

    /// What a shell in the guest prints; no command of the script may fail.
    #[track_caller]
    pub(crate) fn shell(&self, script: &str) -> String {
        linerate_testbed::without_counters(&self.succeed(&["bash", "-ec", script]))
    }

    /// What linerate prints in the guest, as a document.
    #[track_caller]
    pub(crate) fn linerate(&self, arguments: &[&str]) -> Value {
        self.document(&[], arguments)
    }

    /// Applies a plan for good.
    #[track_caller]
    pub(crate) fn apply(&self, plan: &str) -> Value {
        self.linerate(&[&APPLY[..], &[plan]].concat())
    }

    /// The same for a script.
    pub(crate) fn command_to_apply(plan: &str) -> String {
        format!("{} {} {plan}", Self::command(), APPLY.join(" "))
    }

    /// What linerate prints in a network namespace of the guest.
    #[track_caller]
    pub(crate) fn linerate_in(&self, netns: &str, arguments: &[&str]) -> Value {
        self.document(&["ip", "netns", "exec", netns], arguments)
    }

    #[track_caller]
    fn document(&self, before: &[&str], arguments: &[&str]) -> Value {
        let state = format!("{DISK}/state");
        let fixed = [LINERATE, "--quiet", "--format", "json", "--state", &state];
        let out = self.succeed(&[before, &fixed, arguments].concat());
        fitting(&out)
    }

    /// linerate's path, for a script.
    pub(crate) const PROGRAM: &str = LINERATE;

    /// The command line of linerate with its state on the disk, for a script.
    pub(crate) fn command() -> String {
        format!("'{LINERATE}' --quiet --state {DISK}/state")
    }

    /// The map of the guest.
    #[track_caller]
    pub(crate) fn map(&self) -> Value {
        let mut map = self.linerate(&["map"]);
        map["host"].take()
    }

    /// What the doctor finds in the guest, whatever it finds.
    #[track_caller]
    pub(crate) fn findings(&self) -> Value {
        self.linerate(&DOCTOR)["findings"].take()
    }

    /// What the doctor finds in a network namespace of the guest.
    #[track_caller]
    pub(crate) fn findings_in(&self, netns: &str) -> Value {
        self.linerate_in(netns, &DOCTOR)["findings"].take()
    }

    /// Switches the guest off at once and boots it again with its disk.
    #[track_caller]
    pub(crate) fn power_cut(&self) {
        let mut said = self.said.lock().expect("no test failed with it");
        let mut holder = self.holder.stdin.as_ref().expect("piped");
        let told = writeln!(holder, "power-cut");
        if told.is_err() || !is_up(&mut *said) {
            self.is_dead.store(true, Ordering::Relaxed);
            panic!("the guest did not come back");
        }
        self.is_dead.store(false, Ordering::Relaxed);
        drop(said);
        self.read_ahead(LINERATE);
    }

    /// Reads `files`, as a shell names them, into the guest's memory: its clock leaps to the next timer while it waits for
    /// the host, so a deadline may pass while a program or a library is read.
    #[track_caller]
    pub(crate) fn read_ahead(&self, files: &str) {
        self.shell(&format!("cat {files} >/dev/null"));
    }

    /// What the guest's kernel reported.
    #[expect(
        clippy::unused_self,
        reason = "there is a console while there is a guest"
    )]
    pub(crate) fn console(&self) -> String {
        String::from_utf8_lossy(&vm(&["console"]).stdout).into_owned()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

/// Waits until the guest answers; `false` when it never will.
fn is_up(said: &mut impl BufRead) -> bool {
    let mut line = String::new();
    // The end of the stream is an answer too.
    let _ = said.read_line(&mut line);
    line == "up\n"
}

fn vm(arguments: &[&str]) -> std::process::Output {
    Command::new(VM)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("the testbed's program starts")
}

/// The entry of a list in a document whose `key` is `value`.
#[track_caller]
pub(crate) fn entry<'a>(list: &'a Value, key: &str, value: impl Into<Value>) -> &'a Value {
    let value = value.into();
    let mut entries = list.as_array().expect("a list").iter();
    let found = entries.find(|entry| entry[key] == value);
    found.unwrap_or_else(|| panic!("no {key} {value} in {list:#}"))
}

/// What a rule finds of a subject.
#[track_caller]
pub(crate) fn finding<'a>(findings: &'a Value, rule: &str, subject: &str) -> &'a Value {
    let mut all = findings.as_array().expect("findings").iter();
    let found = all.find(|found| found["rule"] == rule && found["subject"] == subject);
    found.unwrap_or_else(|| panic!("no {rule} of {subject} in {findings:#}"))
}

pub(crate) fn a_command_brings_back_its_output_exit_code_and_time(guest: &Guest) {
    let file = concat!(env!("CARGO_TARGET_TMPDIR"), "/vm-seconds");
    let script = "echo out; echo err >&2; sleep 3; exit 7";
    let done = guest.run_with(&["--time", file], &["bash", "-c", script]);
    assert_eq!(
        (done.code, done.out.as_str(), done.err.as_str()),
        (7, "out\n", "err\n")
    );
    let seconds = std::fs::read_to_string(file).expect("the time was asked for");
    let seconds: f64 = seconds.trim().parse().expect("seconds");
    assert!(seconds >= 3.0, "{seconds}");
}
