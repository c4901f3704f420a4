//! The host that is changed, and a transaction on it that is killed.

use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use linerate_bench_shared::Trouble;
use linerate_model::ids::NicName;
use linerate_testbed::{Netns, Stage, join};

use crate::kinds::{Kind, LOOK};

/// In the folder that the stage covers with a tmpfs of its own: it vanishes with it.
const STATE: &str = "/run/netns/.crash";

/// Two hosts joined by virtual Ethernet, of which the near one is changed.
pub(crate) struct Host {
    pub(crate) near: Netns,
    pub(crate) far: Netns,
    linerate: PathBuf,
    mutant: String,
}

/// The far host's address.
pub(crate) const NEAR: &str = "10.82.0.1";
const FAR: &str = "10.82.0.2";

/// How a transaction ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Whether it came to its end by itself, and said that it was done.
    pub(crate) done: bool,
    /// What it said.
    pub(crate) said: String,
}

impl Host {
    pub(crate) fn make(stage: &Stage, linerate: &Path, mutant: &str) -> Result<Self, Trouble> {
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
            mutant: mutant.to_owned(),
        })
    }

    /// Everything that could be changed, as other tools see it.
    pub(crate) fn look(&self) -> Result<String, Trouble> {
        let mut command = Command::new("sh");
        command.args(["-c", LOOK]);
        let output = self.output(command)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn output(&self, mut command: Command) -> Result<Output, Trouble> {
        let failed = |error: io::Error| Trouble(format!("run a program on the near host: {error}"));
        command.stdin(Stdio::null());
        self.near.enter_in_child(&mut command).map_err(failed)?;
        // The reverter has the same standard error: this waits for its end, too.
        command.output().map_err(failed)
    }

    /// A plan file for these settings.
    pub(crate) fn plan(&self, kinds: &[Kind]) -> Result<PathBuf, Trouble> {
        let features = self.look()?;
        let gro = features.contains("generic-receive-offload: on");
        let other = if gro { "false" } else { "true" };
        let lines = kinds
            .iter()
            .map(|kind| format!("\"{}\" = {}\n", kind.key, kind.to.replace("OTHER", other)));
        let text = format!("[settings]\n{}", lines.collect::<String>());
        let file = Path::new(STATE).join("plan.toml");
        fs::write(&file, text).map_err(|error| Trouble(format!("write a plan: {error}")))?;
        Ok(file)
    }

    /// linerate on the near host.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.linerate);
        command.args(["--state", STATE]).args(arguments);
        command
    }

    /// What linerate says on the near host; `crash` is who dies where.
    pub(crate) fn run(&self, arguments: &[&str], crash: &str) -> Result<Ended, Trouble> {
        self.run_mutant(arguments, crash, "")
    }

    /// The same of the linerate that is to be judged, which may leave something out.
    pub(crate) fn judge(&self, arguments: &[&str], crash: &str) -> Result<Ended, Trouble> {
        self.run_mutant(arguments, crash, &self.mutant)
    }

    fn run_mutant(&self, arguments: &[&str], crash: &str, mutant: &str) -> Result<Ended, Trouble> {
        let mut command = self.command(arguments);
        command
            .env("LINERATE_MUTANT", mutant)
            .env("LINERATE_CRASH", crash)
            .env("LINERATE_MARK_SYNCED", "1");
        let output = self.output(command)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        Ok(Ended {
            done: output.status.success(),
            said: format!(
                "{}{}{}",
                text(&output.stdout),
                text(&output.stderr),
                output
                    .status
                    .signal()
                    .map_or_else(String::new, |signal| format!(" (signal {signal})"))
            ),
        })
    }
}

/// Takes away from the journals what a power cut would: all that was not on stable storage.
pub(crate) fn cut_power() -> Result<(), Trouble> {
    let failed = |error: io::Error| Trouble(format!("cut the journals: {error}"));
    let txn = Path::new(STATE).join("txn");
    for entry in fs::read_dir(txn).map_err(failed)? {
        let folder = entry.map_err(failed)?.path();
        let synced = fs::read_to_string(folder.join("synced")).unwrap_or_default();
        let whole: u64 = synced.trim().parse().unwrap_or(0);
        let journal = folder.join("journal");
        let file = fs::OpenOptions::new()
            .write(true)
            .open(&journal)
            .map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        file.set_len(whole.min(length)).map_err(failed)?;
    }
    Ok(())
}
