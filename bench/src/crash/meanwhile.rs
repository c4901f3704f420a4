//! What other programs do between a change and its undo: an interface is renamed, moved to another namespace, or
//! created again; the wall clock is set.

use std::path::{Path, PathBuf};
use std::process::Command;

use linerate_bench_shared::Trouble;

/// What happens to the changed interface, before the maker of the change dies or its undo begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meanwhile {
    Nothing,
    /// It gets another name, and another interface gets its own.
    Renamed,
    /// It moves to another namespace, and back after a first recovery.
    Moved,
    /// It is removed, and another one is made with its name.
    MadeAgain,
}

const RENAME: &str = "ip link set near0 down && ip link set near0 name lan0 && ip link set lan0 up \
    && ip link add near0 mtu 1400 type veth peer name other0";
const RENAME_BACK: &str = "if ip link show lan0; then
    ip link del near0; ip link set lan0 down && ip link set lan0 name near0 && ip link set near0 up
fi";
const MOVE: &str = "ip link set near0 netns far";
const MOVE_BACK: &str = "if ip -n far link show near0; then ip -n far link set near0 netns near && ip link set near0 up; fi";
const MAKE_AGAIN: &str = "ip link del near0 && ip link add near0 type veth peer name far0 netns far \
    && ip link set near0 up && ip -n far link set far0 up";

impl Meanwhile {
    pub(crate) const TO_INTERFACES: [Self; 3] = [Self::Renamed, Self::Moved, Self::MadeAgain];

    /// As the table names it.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Renamed => ", interface renamed",
            Self::Moved => ", interface moved",
            Self::MadeAgain => ", interface made again",
        }
    }

    /// What is done, in the near host.
    pub(crate) fn begin(self) -> &'static str {
        match self {
            Self::Nothing => "true",
            Self::Renamed => RENAME,
            Self::Moved => MOVE,
            Self::MadeAgain => MAKE_AGAIN,
        }
    }

    /// Restores the interface's name and place, after [`Self::begin`].
    pub(crate) fn end(self) -> Option<&'static str> {
        match self {
            Self::Nothing | Self::MadeAgain => None,
            Self::Renamed => Some(RENAME_BACK),
            Self::Moved => Some(MOVE_BACK),
        }
    }
}

/// How a process's wall clock is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clock {
    Forward,
    Back,
    /// To and fro within one transaction.
    Walks,
}

impl Clock {
    pub(crate) const ALL: [Self; 3] = [Self::Forward, Self::Back, Self::Walks];

    /// As the table names it.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Forward => "clock 1 h forward",
            Self::Back => "clock 1 h back",
            Self::Walks => "clock to and fro",
        }
    }

    /// What has a process see it so.
    pub(crate) fn variables(self, preloaded: &str) -> [(&'static str, &str); 2] {
        let setting = match self {
            Self::Forward => ("CLOCK_STEP_S", "3600"),
            Self::Back => ("CLOCK_STEP_S", "-3600"),
            Self::Walks => ("CLOCK_WALKS", "1"),
        };
        [("LD_PRELOAD", preloaded), setting]
    }
}

/// Builds what is preloaded to set a process's clock.
pub(crate) fn build_clock(folder: &Path) -> Result<PathBuf, Trouble> {
    const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/crash/clock.c");
    let library = folder.join("clock.so");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(SOURCE)
        .status();
    match built {
        Ok(status) if status.success() => Ok(library),
        Ok(status) => Err(Trouble(format!("build {SOURCE}: cc ended with {status}"))),
        Err(error) => Err(Trouble(format!("build {SOURCE}: cc: {error}"))),
    }
}
