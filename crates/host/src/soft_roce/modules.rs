//! Kernel modules: loaded by `modprobe`, which knows their paths and dependencies; removed by delete_module(2).
//! Loaded modules and their users are in `/proc/modules` (proc_modules(5)).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::process::{Command, Stdio};

use linerate_model::known::Cause;
use rustix::io::Errno;
use rustix::thread::CapabilitySet;
use serde::Serialize;

use super::error::SoftRoceError;
use super::exists;
use crate::root::LiveHost;
use crate::trust::find_program;

const TABLE: &str = "proc/modules";

/// A module that stays loaded because others use it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoadedModule {
    /// Its name.
    pub name: String,
    /// Modules, or for the driver devices; empty if a program uses it.
    pub used_by: Vec<String>,
}

/// Every module with its users.
type Modules = BTreeMap<String, BTreeSet<String>>;

fn table() -> Result<Modules, SoftRoceError> {
    let wrong = |error| SoftRoceError::doing(format!("read /{TABLE}"))(error);
    let live = LiveHost::open().map_err(wrong)?;
    match live.root().read(TABLE).ok() {
        Ok(text) => Ok(parse(text)),
        // A kernel without module support.
        Err(gap) if gap.cause == Cause::Absent => Ok(Modules::new()),
        Err(gap) => Err(wrong(io::Error::other(gap.to_string()))),
    }
}

fn parse(text: &str) -> Modules {
    let module = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let name = words.next()?.to_owned();
        let users = words
            .nth(2)?
            .split(',')
            .filter(|user| !matches!(*user, "" | "-"));
        // May contain a flag such as [permanent].
        let users = users.filter(|user| !user.starts_with('['));
        Some((name, users.map(str::to_owned).collect()))
    };
    text.lines().filter_map(module).collect()
}

/// The loaded modules.
pub(super) fn loaded() -> Result<BTreeSet<String>, SoftRoceError> {
    Ok(table()?.into_keys().collect())
}

/// Loads a module and its dependencies. `lock` stays locked until modprobe has exited, even if this process dies
/// before.
pub(super) fn load(name: &str, lock: &File) -> Result<(), SoftRoceError> {
    // A built-in module is not in this table, but usually in this directory.
    if exists(&format!("sys/module/{name}")) {
        return Ok(());
    }
    let owned = || name.to_owned();
    let is_there = modprobe(&["--dry-run", "--quiet", name], None);
    let is_there = is_there.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => SoftRoceError::NoModprobe { name: owned() },
        _ => SoftRoceError::doing("run modprobe")(error),
    })?;
    if is_there.is_err() {
        let release = rustix::system::uname();
        return Err(SoftRoceError::NoModule {
            name: owned(),
            release: release.release().to_string_lossy().into_owned(),
        });
    }
    let loaded = modprobe(&[name], Some(lock)).map_err(SoftRoceError::doing("run modprobe"))?;
    loaded.map_err(|why| {
        if may_load() {
            SoftRoceError::NotLoaded { name: owned(), why }
        } else {
            SoftRoceError::MayNotLoad { name: owned() }
        }
    })
}

/// Runs modprobe; the inner error is its message.
#[expect(
    clippy::disallowed_methods,
    reason = "modprobe is the way to load a module with what it needs; its exit code alone counts"
)]
fn modprobe(arguments: &[&str], lock: Option<&File>) -> io::Result<Result<(), String>> {
    // Its directory is often not in an ordinary user's PATH.
    let program = find_program("modprobe", "/usr/sbin:/sbin")?;
    let input = lock.map(File::try_clone).transpose()?;
    let mut command = Command::new(program);
    command.args(arguments).env("LC_ALL", "C");
    command.stdin(input.map_or_else(Stdio::null, Stdio::from));
    let output = command.output()?;
    if output.status.success() {
        return Ok(Ok(()));
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Ok(Err(said.split_whitespace().collect::<Vec<_>>().join(" ")))
}

/// Whether this process has CAP_SYS_MODULE, which root in a user namespace does not.
fn may_load() -> bool {
    let sets = rustix::thread::capabilities(None);
    let is_first = LiveHost::open().is_ok_and(|live| {
        let map = live.root().read("proc/self/uid_map");
        let first = ["0", "0", "4294967295"];
        map.value()
            .is_some_and(|map| map.split_ascii_whitespace().eq(first))
    });
    is_first && sets.is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_MODULE))
}

/// Removes the modules `asked` and the dependencies that only they needed, except those loaded `before`.
pub(super) fn unload(
    asked: &[&str],
    before: &BTreeSet<String>,
) -> Result<Vec<LoadedModule>, SoftRoceError> {
    let mut left = ours(&table()?, asked, before);
    loop {
        let now = table()?;
        left.retain(|name| now.contains_key(name));
        let free = |name: &&String| now.get(*name).is_some_and(BTreeSet::is_empty);
        let mut is_any_gone = false;
        for name in left.iter().filter(free) {
            is_any_gone |= delete(name)?;
        }
        if !is_any_gone {
            let used_by = |name: &String| now[name].iter().cloned().collect();
            let left = left.iter().map(|name| LoadedModule {
                used_by: used_by(name),
                name: name.clone(),
            });
            return Ok(left.collect());
        }
    }
}

/// Those of `asked` that are loaded, and their dependencies, except those loaded `before`.
fn ours(table: &Modules, asked: &[&str], before: &BTreeSet<String>) -> BTreeSet<String> {
    let is_new = |name: &&str| table.contains_key(*name) && !before.contains(*name);
    let mut ours = BTreeSet::new();
    let mut next: Vec<&str> = asked.iter().copied().filter(is_new).collect();
    while let Some(name) = next.pop() {
        if ours.insert(name.to_owned()) {
            let needed = table.iter().filter(|(_, users)| users.contains(name));
            next.extend(needed.map(|(needed, _)| needed.as_str()).filter(is_new));
        }
    }
    ours
}

/// Removes a module; `false` if it is in use.
fn delete(name: &str) -> Result<bool, SoftRoceError> {
    let text = CString::new(name).expect("a line of /proc holds no zero byte");
    match rustix::system::delete_module(&text, libc::O_NONBLOCK) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN | Errno::BUSY | Errno::NOENT) => Ok(false),
        Err(error) => Err(SoftRoceError::doing(format!("unload the module {name}"))(
            error.into(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOADED: &str = "\
rdma_ucm 28672 0 - Live 0x0
rdma_rxe 188416 0 - Live 0x0
ib_uverbs 188416 2 rdma_ucm,rdma_rxe, Live 0x0
rdma_cm 147456 1 rdma_ucm, Live 0x0
ip6_udp_tunnel 16384 2 rdma_rxe,vxlan, Live 0x0
udp_tunnel 28672 2 rdma_rxe,vxlan, Live 0x0
vxlan 147456 0 - Live 0x0
ib_umad 40960 0 - Live 0x0
ib_core 450560 5 rdma_ucm,rdma_rxe,ib_uverbs,rdma_cm,ib_umad, Live 0x0
keeper 16384 1 [permanent], Live 0x0
";

    #[test]
    fn a_modules_users_are_told() {
        let table = parse(LOADED);
        let users: Vec<&str> = table["ib_uverbs"].iter().map(String::as_str).collect();
        assert_eq!(users, ["rdma_rxe", "rdma_ucm"]);
        assert!(table["vxlan"].is_empty());
        assert!(table["keeper"].is_empty());
    }

    #[test]
    fn what_was_asked_for_and_what_it_needs_is_ours_and_nothing_that_was_there_before() {
        let before = ["vxlan", "udp_tunnel", "ip6_udp_tunnel", "keeper"];
        let before = before.into_iter().map(str::to_owned).collect();
        let ours = ours(
            &parse(LOADED),
            &["rdma_rxe", "ib_uverbs", "rdma_ucm"],
            &before,
        );
        let ours: Vec<&str> = ours.iter().map(String::as_str).collect();
        let expected = ["ib_core", "ib_uverbs", "rdma_cm", "rdma_rxe", "rdma_ucm"];
        assert_eq!(ours, expected);
    }
}
