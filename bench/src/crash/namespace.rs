//! A host that is a network namespace of this machine, joined to another.

use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use linerate_bench_shared::Trouble;
use linerate_model::ids::NicName;
use linerate_testbed::{Netns, Stage, join};

use crate::host::{Ended, Host};
use crate::kinds::{Kind, LOOK, VETH};
use crate::{DEATHS, Death};

/// In the folder that the stage covers with its own tmpfs: it vanishes with it.
const STATE: &str = "/run/netns/.crash";

/// Two hosts joined by virtual Ethernet, of which the near one is changed.
pub(crate) struct Namespace {
    pub(crate) near: Netns,
    pub(crate) far: Netns,
    linerate: PathBuf,
}

/// The far host's address.
pub(crate) const NEAR: &str = "10.82.0.1";
const FAR: &str = "10.82.0.2";

impl Namespace {
    pub(crate) fn make(stage: &Stage, linerate: &Path) -> Result<Self, Trouble> {
        fs::create_dir_all(STATE)
            .map_err(|error| Trouble(format!("make a folder for the journals: {error}")))?;
        let host = |name| {
            stage
                .add_host(name)
                .map_err(|error| Trouble(error.to_string()))
        };
        let (near, far) = (host("near")?, host("far")?);
        let nic = |name: &str| {
            name.parse::<NicName>()
                .map_err(|error| Trouble(error.to_string()))
        };
        let (near_nic, far_nic) = (nic("near0")?, nic("far0")?);
        join(
            (&near, &near_nic, &format!("{NEAR}/24")),
            (&far, &far_nic, &format!("{FAR}/24")),
        )
        .map_err(|error| Trouble(format!("join the hosts: {error}")))?;
        Ok(Self {
            near,
            far,
            linerate: linerate.to_owned(),
        })
    }

    /// linerate on the near host.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.linerate);
        command.args(["--state", STATE]).args(arguments);
        command
    }
}

impl Host for Namespace {
    fn kinds(&self) -> &'static [Kind] {
        VETH
    }

    fn look_script(&self) -> &'static str {
        LOOK
    }

    fn linerate(&self) -> (&Path, &Path) {
        (&self.linerate, Path::new(STATE))
    }

    fn shell(&mut self, script: &str) -> Result<Ended, Trouble> {
        let failed = |error: io::Error| Trouble(format!("run a program on the near host: {error}"));
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        self.near.enter_in_child(&mut command).map_err(failed)?;
        // The reverter has the same standard error: this waits for its end, too.
        let output = command.output().map_err(failed)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        Ok(Ended {
            done: output.status.success(),
            killed: output.status.signal() == Some(9),
            said: text(&output.stdout) + &text(&output.stderr),
        })
    }

    fn deaths(&self) -> &'static [Death] {
        &DEATHS
    }
}

/// Takes away from the journals what a power cut would: all that was not on stable storage.
pub(crate) fn lose_unsynced() -> io::Result<()> {
    for entry in fs::read_dir(Path::new(STATE).join("txn"))? {
        let folder = entry?.path();
        let synced = fs::read_to_string(folder.join("synced")).unwrap_or_default();
        let whole: u64 = synced.trim().parse().unwrap_or(0);
        let journal = fs::OpenOptions::new()
            .write(true)
            .open(folder.join("journal"))?;
        let length = journal.metadata()?.len();
        journal.set_len(whole.min(length))?;
    }
    Ok(())
}
