//! The virtual machine (`testbed/vm`): a host with a NIC's settings, whose power can be cut.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use linerate_bench_shared::Trouble;

use crate::Death;
use crate::host::{Ended, Host};
use crate::kinds::{CARD, Kind, LOOK_CARD};

const VM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../testbed/vm/vm");
/// In the guest's memory.
const STATE: &str = "/run/crash";
/// Time limit of a command in the guest, in seconds of its time.
const LIMIT: &str = "300";
/// The guest did not answer: it is off.
pub(crate) const OFF: i32 = 255;
/// What is there before anything is changed. Without its module there is no fake0, and its settings are left out.
const SET_UP: &str = "mkdir -p /run/crash
    ip link add link n0 name vlan5 type vlan id 5
    for nic in n0 n1 n2 vlan5; do ip link set $nic up || exit 1; done
    ! modprobe -n fakenic 2>/dev/null || { modprobe fakenic && ip link set fake0 up; }";

/// A running guest.
pub(crate) struct Guest {
    holder: Child,
    said: BufReader<ChildStdout>,
    linerate: PathBuf,
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It switches the guest off at the end of its standard input.
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

/// Where root installs linerate in the guest: a boot may run it, wherever it was built, and whoever owns it there.
pub(crate) const INSTALLED: &str = "/run/disk/bin/linerate";

impl Guest {
    pub(crate) fn boot(linerate: &Path) -> Result<Self, Trouble> {
        let failed = |error| Trouble(format!("start {VM}: {error}"));
        let mut holder = Command::new(VM)
            .arg("hold")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let out = holder.stdout.take();
        let said = out.ok_or_else(|| Trouble("read from the guest".to_owned()))?;
        let mut guest = Self {
            holder,
            said: BufReader::new(said),
            linerate: PathBuf::from(INSTALLED),
        };
        guest.is_up()?;
        // Synced, for a power cut.
        guest.must(&format!(
            "install -D -m 755 '{}' {INSTALLED} && sync {INSTALLED}",
            linerate.display()
        ))?;
        Ok(guest)
    }

    fn is_up(&mut self) -> Result<(), Trouble> {
        let mut line = String::new();
        match self.said.read_line(&mut line) {
            Ok(count) if count > 0 => Ok(()),
            _ => Err(Trouble("boot the guest".to_owned())),
        }
    }

    /// With the NICs that the settings belong to.
    pub(crate) fn set_up(&mut self) -> Result<(), Trouble> {
        self.must(SET_UP).map(drop)
    }

    pub(crate) fn cut_power(&mut self) -> Result<(), Trouble> {
        let told = self
            .holder
            .stdin
            .as_mut()
            .map(|stdin| writeln!(stdin, "power-cut"));
        match told {
            Some(Ok(())) => self.is_up(),
            _ => Err(Trouble("write to the guest's holder".to_owned())),
        }
    }

    /// Exit code and output of a shell in the guest.
    pub(crate) fn run(&mut self, script: &str) -> Result<(i32, String), Trouble> {
        if let Some(status) = self.holder.try_wait().ok().flatten() {
            return Err(Trouble(format!(
                "keep the guest: its holder ended, {status}"
            )));
        }
        let output = Command::new(VM)
            .args(["run", "-t", LIMIT, "bash", "-c", script])
            .output()
            .map_err(|error| Trouble(format!("ask the guest: {error}")))?;
        let code = output.status.code().unwrap_or(OFF);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        Ok((code, if code == 0 { said } else { said + &error }))
    }

    pub(crate) fn must(&mut self, script: &str) -> Result<String, Trouble> {
        match self.run(script)? {
            (0, said) => Ok(said),
            (code, said) => Err(Trouble(format!("run `{script}`: {code}: {said}"))),
        }
    }
}

impl Host for Guest {
    fn kinds(&self) -> &'static [Kind] {
        CARD
    }

    fn look_script(&self) -> &'static str {
        LOOK_CARD
    }

    fn linerate(&self) -> (&Path, &Path) {
        (&self.linerate, Path::new(STATE))
    }

    fn shell(&mut self, script: &str) -> Result<Ended, Trouble> {
        // `cat` ends with the last who could write to it: the reverter, mostly.
        let waiting = format!("( {script}\n) 2>&1 | cat; exit ${{PIPESTATUS[0]}}");
        match self.run(&waiting)? {
            (OFF, said) => Err(Trouble(format!("read from the guest: {said}"))),
            (code, said) => Ok(Ended {
                done: code == 0,
                // As in a shell (128 and the signal's number).
                killed: code == 137,
                said: said.trim().to_owned(),
            }),
        }
    }

    /// What a setting's own writer has a part in.
    fn deaths(&self) -> &'static [Death] {
        &[Death::Maker, Death::Both, Death::Undo]
    }
}
