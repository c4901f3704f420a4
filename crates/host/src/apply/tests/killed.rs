//! On the real kernel: a process that changes sysctls in a network namespace is killed (SIGKILL, by itself, at a
//! chosen step), and its changes are recovered. Interface features are kept in a file, because a namespace created by
//! an ordinary user has only `lo`.

#![expect(
    clippy::disallowed_methods,
    reason = "the test is its own parent and child"
)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use linerate_model::host::{Channels, Coalesce, Feature, NicKind, Qdisc, Rings};
use linerate_model::ids::NicName;
use linerate_model::known::Known;
use linerate_model::plan::Plan;
use linerate_model::setting::{SettingKey, Settings, Value};

use super::sys;
use crate::apply::fake::{Mortal, NoNics};
use crate::apply::{
    Header, JournalOptions, LiveMachine, Machine, Outcome, Owner, REVERTING, Reach, Surroundings,
    Transaction, boot_id, reach, recover,
};
use crate::nic_control::{NicRead, NicValue, NicWrite};
use crate::root::LiveHost;

static NOBODY: JournalOptions = JournalOptions::NOBODY;

const STATE: &str = "LINERATE_TEST_STATE";
const DIE_AT: &str = "LINERATE_TEST_DIE_AT";
const TASK: &str = "LINERATE_TEST_TASK";

const CHECKSUM: &str = "tx-checksum-ip-generic";
const TSO: &str = "tx-tcp-segmentation";

/// Features in a file, so that they outlive the process as the kernel's do.
#[derive(Debug)]
struct FileNics(PathBuf);

impl FileNics {
    fn load(&self) -> BTreeMap<String, bool> {
        let text = fs::read_to_string(&self.0).unwrap_or_else(|_| "{}".to_owned());
        serde_json::from_str(&text).expect("what `set_value` wrote")
    }
}

impl NicRead for FileNics {
    fn features(&self, _: &NicName) -> Known<BTreeMap<String, Feature>> {
        let switched = self.load();
        let on = |name: &str| switched.get(name).copied().unwrap_or(true);
        let feature = |active| Feature {
            active,
            changeable: true,
        };
        Known::Value(BTreeMap::from([
            (CHECKSUM.to_owned(), feature(on(CHECKSUM))),
            (TSO.to_owned(), feature(on(TSO) && on(CHECKSUM))),
        ]))
    }
    fn kind(&self, nic: &NicName) -> Known<NicKind> {
        NoNics.kind(nic)
    }
    fn addresses(&self, nic: &NicName) -> Known<Vec<String>> {
        NoNics.addresses(nic)
    }
    fn rings(&self, nic: &NicName) -> Known<Rings> {
        NoNics.rings(nic)
    }
    fn channels(&self, nic: &NicName) -> Known<Channels> {
        NoNics.channels(nic)
    }
    fn coalesce(&self, nic: &NicName) -> Known<Coalesce> {
        NoNics.coalesce(nic)
    }
    fn qdisc(&self, nic: &NicName) -> Known<Qdisc> {
        NoNics.qdisc(nic)
    }
}

impl NicWrite for FileNics {
    fn set_value(&self, nic: &NicName, value: &NicValue<'_>) -> io::Result<()> {
        let NicValue::Feature(feature, on) = value else {
            return NoNics.set_value(nic, value);
        };
        let mut all = self.load();
        all.insert((*feature).to_owned(), *on);
        // By rename: after a kill the features are the old or the new ones.
        let new = self.0.with_extension("new");
        fs::write(&new, serde_json::to_string(&all)?)?;
        fs::rename(new, &self.0)
    }
}

fn state() -> PathBuf {
    PathBuf::from(std::env::var_os(STATE).expect("the parent names the state folder"))
}

#[expect(clippy::unnecessary_wraps, reason = "the shape of OpenNics")]
fn open_nics() -> io::Result<Box<dyn NicWrite>> {
    Ok(Box::new(FileNics(state().join("features"))))
}

fn machine() -> LiveMachine {
    let live = LiveHost::open().expect("this machine");
    LiveMachine::new(live, open_nics().expect("a file"))
}

fn desired() -> Settings {
    let text = |key: &str, value: &str| {
        let key: SettingKey = key.parse().expect("a key");
        let value = key.parse_value(value).expect("a value");
        (key, value)
    };
    Settings::from([
        text("sysctl/net.ipv4.tcp_rmem", "4096 16384 65536"),
        text("sysctl/net.ipv4.tcp_sack", "0"),
        text(&format!("nic/lo/feature/{CHECKSUM}"), "off"),
    ])
}

fn look(machine: &impl Machine) -> BTreeMap<String, Value> {
    let mut keys: Vec<SettingKey> = desired().into_keys().collect();
    keys.push(format!("nic/lo/feature/{TSO}").parse().expect("a key"));
    let value = |key: SettingKey| match machine.read(&key) {
        Known::Value(value) => (key.to_string(), value),
        Known::Unknown(gap) => panic!("{gap}"),
    };
    keys.into_iter().map(value).collect()
}

/// Not a test itself: the task of the child processes of the tests below.
#[test]
fn a_child_process_does_its_task() {
    match std::env::var(TASK).as_deref() {
        Ok("apply") => apply(),
        Ok("recover") => take_back(),
        Ok("look") => {}
        _ => return,
    }
    let seen = serde_json::to_string(&look(&machine())).expect("plain data");
    fs::write(state().join("seen"), seen).expect("the state folder is writable");
}

fn apply() {
    let die_at = std::env::var(DIE_AT).expect("the parent names the step");
    let die_at = die_at.parse().expect("a number");
    let kill = || {
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::KILL).expect("our own");
    };
    let machine = Mortal::new(machine(), die_at, kill);
    let now: Settings = desired()
        .into_keys()
        .map(|key| match machine.read(&key) {
            Known::Value(value) => (key, value),
            Known::Unknown(gap) => panic!("{gap}"),
        })
        .collect();
    let plan = Plan::towards(&now, &desired()).expect("every setting is known");
    let header = Header::here(1).expect("this process");
    let mut transaction =
        Transaction::begin(machine, &state(), &header, &NOBODY).expect("a state folder");
    transaction.apply(&plan).expect("nothing refuses");
    transaction.commit().expect("a writable journal");
}

fn recover_here(
    reach: &dyn Fn(&crate::apply::NetnsIdentity) -> Reach,
    state: &Path,
) -> Vec<Outcome> {
    let around = Surroundings {
        boot_id: &boot_id().expect("this boot"),
        is_alive: &Owner::is_alive,
        reach,
        patience: REVERTING,
        beside: &NOBODY,
    };
    let recovered = recover(state, &around).expect("a readable state folder");
    recovered.into_iter().map(|one| one.outcome).collect()
}

fn take_back() {
    let outcomes = recover_here(&|netns| reach(netns, open_nics), &state());
    let settled =
        |outcome: &Outcome| matches!(outcome, Outcome::Restored(undone) if undone.left.is_empty());
    assert!(outcomes.iter().all(settled), "{outcomes:?}");
}

fn skip(reason: &str) {
    // Not `eprintln!`, which the harness hides for a passing test.
    writeln!(io::stderr(), "SKIP: {reason}").expect("somebody listens");
}

/// A process that keeps a user and a network namespace alive until it is dropped.
struct Keeper {
    process: Child,
    user: File,
    net: File,
}

impl Keeper {
    /// None, with a message, if no namespace can be created.
    fn start() -> Option<Self> {
        let mut cat = Command::new("cat");
        cat.stdin(Stdio::piped()).stdout(Stdio::null());
        sys::in_new_namespaces(&mut cat);
        let process = match cat.spawn() {
            Ok(process) => process,
            Err(error) => {
                skip(&format!(
                    "no user and network namespace can be made here: {error}"
                ));
                return None;
            }
        };
        let open = |name: &str| File::open(format!("/proc/{}/ns/{name}", process.id()));
        let (user, net) = (open("user").expect("alive"), open("net").expect("alive"));
        Some(Self { process, user, net })
    }

    /// Runs a task in the namespaces; None if it was killed by SIGKILL.
    fn run(&self, task: &str, die_at: usize, state: &Path) -> Option<BTreeMap<String, Value>> {
        let own = std::env::current_exe().expect("this test");
        let mut child = Command::new(own);
        child
            .args([
                "--exact",
                "apply::tests::killed::a_child_process_does_its_task",
            ])
            .env(TASK, task)
            .env(DIE_AT, die_at.to_string())
            .env(STATE, state)
            .stdin(Stdio::null());
        sys::in_namespaces(&mut child, &self.user, &self.net);
        let output = child.output().expect("this test runs again");
        if output.status.signal() == Some(9) {
            return None;
        }
        assert!(output.status.success(), "{task}: {output:?}");
        let seen = fs::read_to_string(state.join("seen")).expect("what the task wrote");
        Some(serde_json::from_str(&seen).expect("what the task wrote"))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.process.kill().expect("our own child");
        self.process.wait().expect("our own child");
    }
}

#[test]
fn a_process_killed_at_any_step_leaves_what_recovery_takes_back() {
    let Some(keeper) = Keeper::start() else {
        return;
    };
    let state = tempfile::tempdir().expect("a state folder");
    let before = keeper.run("look", 0, state.path()).expect("nobody dies");
    let mut deaths = 0;
    loop {
        let survived = keeper.run("apply", deaths, state.path());
        if let Some(after) = survived {
            assert_ne!(after, before);
            break;
        }
        deaths += 1;
        let recovered = keeper.run("recover", 0, state.path()).expect("nobody dies");
        assert_eq!(recovered, before, "killed at step {deaths}");
    }
    assert!(deaths > 30, "three changes have more steps than {deaths}");
}

#[expect(clippy::unnecessary_wraps, reason = "the shape of OpenNics")]
fn no_nics() -> io::Result<Box<dyn NicWrite>> {
    Ok(Box::new(NoNics))
}

fn sysctls(seen: &BTreeMap<String, Value>) -> Vec<(&String, &Value)> {
    let all = seen.iter();
    all.filter(|(key, _)| key.starts_with("sysctl/")).collect()
}

/// Late enough that every sysctl is changed, before the commit.
const LATE: usize = 30;

#[test]
fn a_namespace_is_restored_from_outside() {
    let Some(keeper) = Keeper::start() else {
        return;
    };
    let state = tempfile::tempdir().expect("a state folder");
    let before = keeper.run("look", 0, state.path()).expect("nobody dies");
    assert!(keeper.run("apply", LATE, state.path()).is_none());
    let changed = keeper.run("look", 0, state.path()).expect("nobody dies");
    assert_ne!(sysctls(&changed), sysctls(&before));
    let outcomes = recover_here(&|netns| reach(netns, no_nics), state.path());
    if !rustix::process::geteuid().is_root() {
        assert!(
            matches!(&outcomes[..], [Outcome::LeftAlone(_)]),
            "{outcomes:?}"
        );
        skip("entering a network namespace from outside needs root");
        return;
    }
    assert!(
        matches!(&outcomes[..], [Outcome::Restored(_)]),
        "{outcomes:?}"
    );
    let after = keeper.run("look", 0, state.path()).expect("nobody dies");
    assert_eq!(sysctls(&after), sysctls(&before));
}

#[test]
fn a_transaction_whose_namespace_is_gone_is_closed() {
    let Some(keeper) = Keeper::start() else {
        return;
    };
    let state = tempfile::tempdir().expect("a state folder");
    assert!(keeper.run("apply", LATE, state.path()).is_none());
    drop(keeper);
    let outcomes = recover_here(&|netns| reach(netns, no_nics), state.path());
    assert!(
        matches!(&outcomes[..], [Outcome::NothingLeft(_)]),
        "{outcomes:?}"
    );
    let again = recover_here(&|netns| reach(netns, no_nics), state.path());
    assert!(again.is_empty(), "{again:?}");
}
