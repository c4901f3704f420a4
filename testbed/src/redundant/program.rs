//! The programs that a redundant network is made of, and how one of them is run to its end. Only exit codes decide; the
//! text of a program is passed on to the user when it fails.

use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use linerate_host::trust::find_program;

use super::error::RedundantError;
use crate::netns::Netns;
use crate::sys;

/// A program, and the Debian package that has it.
#[derive(Debug, PartialEq, Eq)]
pub struct Program {
    /// Its name.
    pub name: &'static str,
    /// The package.
    pub package: &'static str,
    /// Where it is besides the directories of `PATH`.
    folders: &'static str,
}

const SYSTEM: &str = "/usr/sbin:/sbin";
/// FRR's daemons are not on the `PATH`: Debian's place, and Fedora's.
const FRR: &str = "/usr/lib/frr:/usr/libexec/frr:/usr/sbin";

macro_rules! programs {
    ($($constant:ident = $name:literal from $package:literal in $folders:ident;)*) => {
        $(pub(crate) const $constant: Program = Program {
            name: $name,
            package: $package,
            folders: $folders,
        };)*
    };
}

programs! {
    IP = "ip" from "iproute2" in SYSTEM;
    ETHTOOL = "ethtool" from "ethtool" in SYSTEM;
    MODPROBE = "modprobe" from "kmod" in SYSTEM;
    TC = "tc" from "iproute2" in SYSTEM;
    NFT = "nft" from "nftables" in SYSTEM;
    KEEPALIVED = "keepalived" from "keepalived" in SYSTEM;
    ZEBRA = "zebra" from "frr" in FRR;
    BGPD = "bgpd" from "frr" in FRR;
    OSPFD = "ospfd" from "frr" in FRR;
    OSPF6D = "ospf6d" from "frr" in FRR;
    BFDD = "bfdd" from "frr" in FRR;
    OVSDB_SERVER = "ovsdb-server" from "openvswitch-switch" in SYSTEM;
    OVSDB_TOOL = "ovsdb-tool" from "openvswitch-switch" in SYSTEM;
    OVS_VSWITCHD = "ovs-vswitchd" from "openvswitch-switch" in SYSTEM;
    OVS_VSCTL = "ovs-vsctl" from "openvswitch-switch" in SYSTEM;
}

impl Program {
    /// Its file.
    pub(crate) fn find(&'static self) -> Result<PathBuf, RedundantError> {
        find_program(self.name, self.folders).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => RedundantError::Missing {
                programs: vec![self],
            },
            _ => RedundantError::doing(format!("run {}", self.name))(error),
        })
    }

    /// Whether it is installed.
    pub(crate) fn is_there(&'static self) -> bool {
        self.find().is_ok()
    }

    /// A command that depends on nothing of the user's environment.
    pub(crate) fn command(&'static self) -> Result<Command, RedundantError> {
        let mut command = Command::new(self.find()?);
        command
            .env_clear()
            .env("LC_ALL", "C")
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .current_dir("/");
        Ok(command)
    }

    /// Runs it to its end with `arguments`, in `netns` if given, and returns its output.
    pub(crate) fn run(
        &'static self,
        netns: Option<&Netns>,
        arguments: &[&str],
    ) -> Result<String, RedundantError> {
        self.run_with_input(netns, arguments, "")
    }

    /// The same, with `input` on its standard input.
    pub(crate) fn run_with_input(
        &'static self,
        netns: Option<&Netns>,
        arguments: &[&str],
        input: &str,
    ) -> Result<String, RedundantError> {
        let mut command = self.command()?;
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        crate::shield_from_interrupts(&mut command);
        if let Some(netns) = netns {
            let netns = netns.as_fd().try_clone_to_owned();
            let netns = netns.map_err(RedundantError::doing("open a namespace again"))?;
            sys::enter_netns(&mut command, netns);
        }
        // Last: the steps before it change the process's permissions.
        crate::tie_to_parent(&mut command);
        let doing = || format!("run `{} {}`", self.name, arguments.join(" "));
        let failed = |error| RedundantError::doing(doing())(error);
        let mut child = command.spawn().map_err(failed)?;
        let mut to = child.stdin.take().expect("piped");
        // A program that does not read to the end reports why it did not.
        match to.write_all(input.as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(failed(error)),
            _ => drop(to),
        }
        let output = child.wait_with_output().map_err(failed)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let text = String::from_utf8_lossy(&output.stderr);
        let why: Vec<&str> = text.split_whitespace().collect();
        Err(RedundantError::Refused {
            doing: doing(),
            why: match why.join(" ") {
                none if none.is_empty() => output.status.to_string(),
                why => why,
            },
        })
    }
}

/// Refuses unless all of `programs` are installed.
pub(crate) fn check(programs: &[&'static Program]) -> Result<(), RedundantError> {
    let missing: Vec<&'static Program> = programs
        .iter()
        .copied()
        .filter(|program| !program.is_there())
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(RedundantError::Missing { programs: missing })
    }
}
