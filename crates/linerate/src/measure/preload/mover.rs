//! `linerate mover`: one end of a stream by plain socket calls, in a separate process, so that a library can be
//! preloaded. It reads its order from a line on its standard input, reports in lines on its
//! standard output, stops sending when anything more comes in, and exits when its input ends.

use std::io::{self, BufRead, Read};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// A longer task is not one of ours.
const TASK_BYTES_MAX: u64 = 4_096;

/// Carries out `mover`.
pub(crate) fn run(args: &MoverArgs, say: &Say) -> Outcome<()> {
    if let Some(preload) = args.preload {
        return Err(again_with(&library(preload)?));
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
    again.args(["--quiet", "mover"]).env("LD_PRELOAD", library);
    Stop::io("start this program again", again.exec())
}

/// The library where distributions install it: never at a path that a user names.
fn library(preload: PreloadArg) -> Outcome<PathBuf> {
    let PreloadArg::Rsocket = preload;
    let machine = std::env::consts::ARCH;
    let folders = [
        format!("/usr/lib/{machine}-linux-gnu"),
        "/usr/lib64".to_owned(),
        "/usr/lib".to_owned(),
    ];
    let files = folders
        .iter()
        .map(|folder| PathBuf::from(folder).join("rsocket/librspreload.so"));
    let mut there = files.filter(|file| file.exists());
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
