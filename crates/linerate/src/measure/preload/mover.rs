//! `linerate mover`: one end of the traffic by plain socket calls, in a separate process, so that a library can be
//! preloaded. It reads its order from a line on its standard input, reports in lines on its
//! standard output, stops sending when anything more comes in, and exits when its input ends.

use std::io::{self, BufRead, Read};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use linerate_host::trust::{Trust, Untrusted};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_runtime::cli::{MoverArgs, PreloadArg};
use linerate_runtime::console::say::Say;
use linerate_traffic::mover::{Carried, Door, Order, send};
use serde::{Deserialize, Serialize};

/// The order for a mover.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Task {
    /// Where it listens, or what it connects to.
    pub(super) address: SocketAddr,
    pub(super) role: Role,
    pub(super) order: Order,
}

/// Which end it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Role {
    Sends,
    Receives,
}

/// The report of a mover.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum MoverReport {
    /// It listens on this port.
    Listens(u16),
    /// It finished.
    Carried(Carried),
}

/// A longer task is not one of ours: ping-pong has up to 256 sizes.
const TASK_BYTES_MAX: u64 = 64 << 10;

/// Carries out `mover`.
pub(crate) fn run(args: &MoverArgs, say: &Say) -> Outcome<()> {
    if let Some(preload) = &args.preload {
        return Err(again_with(&library(preload)?));
    }
    if let Some(library) = &args.loaded {
        check_loaded(library)?;
    }
    let mut line = String::new();
    io::stdin()
        .lock()
        .take(TASK_BYTES_MAX)
        .read_line(&mut line)
        .map_err(|error| Stop::io("read the task", error))?;
    let task: Task = serde_json::from_str(&line)
        .map_err(|error| Stop::new(Code::BadInput, "invalid task for a mover").because(error))?;
    let ends_early = end_with_input()?;
    let failed = |error: io::Error| {
        let code = Stop::io("", io::Error::from(error.kind())).code;
        Stop::new(code, error.to_string())
    };
    let carried = match task.role {
        Role::Receives => {
            let door = Door::open(task.address, task.order.flows).map_err(failed)?;
            tell(say, &MoverReport::Listens(door.port()))?;
            door.receive(&task.order)
        }
        Role::Sends => send(task.address, &task.order, &ends_early),
    };
    tell(say, &MoverReport::Carried(carried.map_err(failed)?))
}

fn tell(say: &Say, said: &MoverReport) -> Outcome<()> {
    say.json_line(said)
}

/// This program again in place of this process, with `library` loaded before it. It comes back with why not.
fn again_with(library: &Path) -> Stop {
    let own = match std::env::current_exe() {
        Ok(own) => own,
        Err(error) => return Stop::io("find the path of this program", error),
    };
    let mut again = Command::new(own);
    again
        .args(["--quiet", "mover", "--loaded"])
        .arg(library)
        .env("LD_PRELOAD", library);
    Stop::io("start this program again", again.exec())
}

/// Whether the dynamic linker has loaded `library`: it prints only a warning if it cannot, and nothing for a program
/// with file capabilities, where it ignores LD_PRELOAD (ld.so(8), secure-execution mode).
fn check_loaded(library: &Path) -> Outcome<()> {
    const MAPS: &str = "/proc/self/maps";
    let maps =
        std::fs::read_to_string(MAPS).map_err(|error| Stop::io(format!("read {MAPS}"), error))?;
    if is_mapped(&maps, library) {
        return Ok(());
    }
    let why = format!(
        "cannot preload {}: the dynamic linker did not load it",
        library.display()
    );
    let stop = if cfg!(target_feature = "crt-static") {
        Stop::new(Code::NotSupported, why).hint("use the glibc build: this one is static")
    } else {
        let hint = "check it with `ldd -r`; a program with file capabilities loads none (`getcap`)";
        Stop::new(Code::BadInput, why).hint(hint)
    };
    Err(stop)
}

/// Whether a mapping of proc_pid_maps(5) is of the file.
fn is_mapped(maps: &str, file: &Path) -> bool {
    let names = maps
        .lines()
        .filter_map(|line| line.find('/').and_then(|at| line.get(at..)));
    names.into_iter().any(|name| Path::new(name) == file)
}

/// The file of the library, without links: rsocket where distributions install it, another one at its path. Root loads
/// none that other users can have written.
pub(super) fn library(preload: &PreloadArg) -> Outcome<PathBuf> {
    match preload {
        PreloadArg::Rsocket => rsocket(),
        PreloadArg::Library(path) => {
            let what = || format!("preload {}", path.display());
            let found = if rustix::process::geteuid().is_root() {
                Trust::of_this_process().and_then(|trust| trust.follow_program(path))
            } else {
                path.canonicalize().and_then(|found| {
                    let is_file = found.is_file();
                    is_file.then_some(found).ok_or_else(|| {
                        io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")
                    })
                })
            };
            found.map_err(|error| match Untrusted::of(&error) {
                Some(untrusted) => {
                    let hint = "copy it to a path that only root can write to";
                    Stop::new(Code::BadInput, format!("cannot {}: {untrusted}", what())).hint(hint)
                }
                None => Stop::io(what(), error),
            })
        }
    }
}

fn rsocket() -> Outcome<PathBuf> {
    let machine = std::env::consts::ARCH;
    let folders = [
        format!("/usr/lib/{machine}-linux-gnu"),
        "/usr/lib64".to_owned(),
        "/usr/lib".to_owned(),
    ];
    let files = folders
        .iter()
        .map(|folder| PathBuf::from(folder).join("rsocket/librspreload.so"));
    // The name in /proc/self/maps is that without links.
    let mut there = files.filter_map(|file| file.canonicalize().ok());
    there.next().ok_or_else(|| {
        Stop::new(
            Code::NotSupported,
            format!(
                "librspreload.so is in none of {}; install rdma-core (Debian: librdmacm1)",
                folders.map(|folder| folder + "/rsocket").join(", ")
            ),
        )
    })
}

/// Ends this process when its parent is gone. What it returns is set once the parent sends anything more.
fn end_with_input() -> Outcome<Arc<AtomicBool>> {
    let ends_early = Arc::<AtomicBool>::default();
    let heard = Arc::clone(&ends_early);
    let watch = move || {
        let mut rest = [0; 64];
        while io::stdin()
            .lock()
            .read(&mut rest)
            .is_ok_and(|some| some > 0)
        {
            heard.store(true, Ordering::Relaxed);
        }
        #[expect(clippy::exit, reason = "the parent process exited")]
        std::process::exit(Code::PeerUnreachable.number().into());
    };
    let started = std::thread::Builder::new()
        .name("input".to_owned())
        .spawn(watch);
    started
        .map(|_| ends_early)
        .map_err(|error| Stop::io("start a thread", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_mapping_of_the_file_itself_shows_that_it_was_loaded() {
        let maps = "7f00-7f01 r-xp 00000000 fe:00 12    /usr/lib/libvma.so.8\n\
            7f02-7f03 rw-p 00000000 00:00 0 \n\
            7f04-7f05 r-xp 00000000 00:00 0    [vdso]\n";
        assert!(is_mapped(maps, Path::new("/usr/lib/libvma.so.8")));
        for other in ["/usr/lib/libvma.so", "/lib/libvma.so.8", "/"] {
            assert!(!is_mapped(maps, Path::new(other)), "{other}");
        }
    }
}
