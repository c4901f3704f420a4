//! The stage: the process in which network namespaces can be made, as root or not, and in which all
//! of it ends when it ends. Facts: user_namespaces(7), mount_namespaces(7), ip-netns(8).

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

/// The right to make network namespaces, held by a process that [`Stage::enter`]ed.
#[derive(Debug)]
pub struct Stage(());

/// The child of `command` is killed when this thread ends, however it ends.
///
/// Of this *thread*: start the child from one that lives as long as the child shall (the main one). The
/// tie is not inherited by what the child starts itself.
pub fn tie_to_parent(command: &mut Command) {
    sys::tie(command);
}

/// The child of `command` does not hear Ctrl-C: a terminal sends it to every process of the job, and a
/// far end must live to put back what it changed. It ends when its standard input does.
pub fn shield_from_interrupts(command: &mut Command) {
    sys::ignore_interrupts(command);
}

/// The child of `command` runs on the CPUs that the process `pid` may run on now, so that a planted
/// process and the one it is compared with have the same machine.
pub fn pin_like(command: &mut Command, pid: u32) -> io::Result<()> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let cpus = rustix::thread::sched_getaffinity(Some(pid))?;
    sys::pin(command, cpus);
    Ok(())
}

impl Stage {
    /// Makes this process a stage. For an ordinary user it must have one thread still: call it first
    /// thing in a child process made for it, started with [`tie_to_parent`].
    ///
    /// After it the process is root in a user namespace of its own (unless it was root), `/run/netns`
    /// is empty, and no mount that it makes is seen outside.
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

    /// Makes a host: a network namespace of this name with its loopback up. It can be opened by name
    /// with [`crate::netns::open`] in this process and its children.
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
        // In a thread of its own, because a namespace is a thread's and ours must stay.
        let made = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                sys::unshare_net().map_err(of_unshare_net)?;
                sys::loopback_up().map_err(StageError::step("bring lo up"))?;
                let target = c_path(&path);
                sys::mount(c"/proc/thread-self/ns/net", &target, None, libc::MS_BIND)
                    .map_err(StageError::step(format!("mount {}", path.display())))?;
                // Tried here, where the refusal can be explained: a child's hook cannot.
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
            // Best effort: an empty file in a folder that ends with the stage.
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

/// Puts an empty folder over `/run/netns`, so that nothing of the machine's own is touched. Where there
/// is none, all of `/run` is covered, because making one would leave a folder behind.
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
