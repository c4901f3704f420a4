//! The stage: a process that can create network namespaces, as root or not, and with which all of them end. Sources:
//! user_namespaces(7), mount_namespaces(7), ip-netns(8).

use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::parent_id;
use std::path::Path;
use std::process::Command;

use rustix::process::Pid;

use crate::error::StageError;
use crate::netns::{FOLDER, Netns, NetnsError};
use crate::sys;

/// The ability to create network namespaces, in a process that has called [`Stage::enter`].
#[derive(Debug)]
pub struct Stage(());

/// Kills the child of `command` when this thread ends, however it ends.
///
/// This *thread*: start the child from one that lives as long as the child should (the main one). The child's own
/// children do not inherit this.
pub fn tie_to_parent(command: &mut Command) {
    sys::tie(command);
}

/// Makes the child of `command` ignore Ctrl-C: a terminal sends it to every process of the job, and a remote end must
/// stay alive to roll back its changes. It ends when its standard input does.
pub fn shield_from_interrupts(command: &mut Command) {
    sys::ignore_interrupts(command);
}

/// Runs the child of `command` on the CPUs that the process `pid` may run on, so that an injected process and the one
/// it is compared with have the same machine.
pub fn pin_like(command: &mut Command, pid: u32) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let cpus = rustix::thread::sched_getaffinity(Some(pid))?;
    sys::pin(command, cpus);
    Ok(())
}

impl Stage {
    /// Makes this process a stage. For an ordinary user it must have only one thread: call it first in a child
    /// process created for it, started with [`tie_to_parent`].
    ///
    /// Afterwards the process is root in its own user namespace (unless it was root), `/run/netns` is empty, and its
    /// mounts are not visible outside.
    pub fn enter() -> Result<Self, StageError> {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        let parent = parent_id();
        let user = !uid.is_root();
        sys::unshare_stage(user).map_err(|source| StageError::of_unshare(source, user))?;
        if user {
            let map = |file: &str, text: String| {
                fs::write(format!("/proc/self/{file}"), text)
                    .map_err(StageError::step(format!("write /proc/self/{file}")))
            };
            // Since Linux 3.19 an ordinary user may map groups only after giving up setgroups(2).
            map("setgroups", "deny".to_owned())?;
            map("uid_map", format!("0 {} 1", uid.as_raw()))?;
            map("gid_map", format!("0 {} 1", gid.as_raw()))?;
        }
        sys::renew_tie(parent).map_err(StageError::step("stay tied to the parent process"))?;
        sys::mount(c"none", c"/", None, libc::MS_REC | libc::MS_PRIVATE)
            .map_err(StageError::step("make the mounts private"))?;
        cover_names()?;
        Ok(Self(()))
    }

    /// Creates a host: a network namespace with this name and its loopback up. It can be opened by name with
    /// [`crate::netns::open`] in this process and its children.
    pub fn add_host(&self, name: &str) -> Result<Netns, StageError> {
        let path = crate::netns::path(name).map_err(|error| match error {
            NetnsError::Open { source, .. } => StageError::step("name a namespace")(source),
            NetnsError::Name { .. } => {
                StageError::step(error.to_string())(io::Error::from(io::ErrorKind::InvalidInput))
            }
        })?;
        fs::File::create_new(&path).map_err(StageError::step(format!(
            "name a namespace {}",
            path.display()
        )))?;
        // In a new thread, because a namespace belongs to a thread and ours must stay.
        let made = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                sys::unshare_net().map_err(of_unshare_net)?;
                sys::loopback_up().map_err(StageError::step("bring lo up"))?;
                let target = c_path(&path);
                sys::mount(c"/proc/thread-self/ns/net", &target, None, libc::MS_BIND)
                    .map_err(StageError::step(format!("mount {}", path.display())))?;
                // Tried here, where the error can be reported: a hook in the child cannot.
                sys::mount_own_sysfs().map_err(StageError::step(
                    "show a host its own /sys (a container that masks parts of /sys forbids it)",
                ))
            });
            let panicked = || io::Error::other("the thread that made it panicked");
            thread
                .join()
                .unwrap_or_else(|_| Err(StageError::step("make a host")(panicked())))
        });
        if let Err(error) = made {
            // Best effort: an empty file in a directory that ends with the stage.
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        crate::netns::open(name).map_err(|error| match error {
            NetnsError::Open { source, .. } => StageError::step(format!("open `{name}`"))(source),
            NetnsError::Name { .. } => unreachable!("the name was good a moment ago"),
        })
    }
}

fn of_unshare_net(source: io::Error) -> StageError {
    match source.raw_os_error() {
        Some(libc::EINVAL | libc::ENOSYS) => StageError::NotSupported {
            what: "a network namespace",
        },
        _ => StageError::step("make a network namespace")(source),
    }
}

/// Mounts an empty directory over `/run/netns`, so that the machine's own is not touched. If it does not exist, all
/// of `/run` is covered, because creating it would leave a directory behind.
fn cover_names() -> Result<(), StageError> {
    let cover = |folder: &str| {
        let target = c_path(Path::new(folder));
        let flags = libc::MS_NOSUID | libc::MS_NODEV;
        sys::mount(c"tmpfs", &target, Some(c"tmpfs"), flags)
            .map_err(StageError::step(format!("mount a tmpfs on {folder}")))
    };
    if Path::new(FOLDER).is_dir() {
        return cover(FOLDER);
    }
    cover("/run")?;
    fs::create_dir(FOLDER).map_err(StageError::step(format!("make {FOLDER}")))
}

fn c_path(path: &Path) -> CString {
    let bytes = OsStr::as_bytes(path.as_os_str());
    CString::new(bytes).expect("names with NUL are refused before they become paths")
}
