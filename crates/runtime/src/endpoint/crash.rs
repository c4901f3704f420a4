//! Deaths on demand, for tests and `bench/crash`: a debug build kills itself, its reverter or both at the
//! step of the writer that `LINERATE_CRASH` names, and leaves out what `LINERATE_MUTANT` names. A release
//! build knows nothing of it.

use std::sync::Arc;

use linerate_host::apply::Faults;

/// What a process is to a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It makes the changes.
    Maker,
    /// It takes them back when the maker is gone.
    Reverter,
    /// It rolls back what both left.
    Recovery,
}

#[cfg(not(debug_assertions))]
mod planned {
    use super::{Arc, Faults, Role};

    /// No fault is injected.
    pub fn faults(_: Role, _: Option<u32>) -> Option<Arc<dyn Faults>> {
        None
    }
}

#[cfg(debug_assertions)]
mod planned {
    use std::path::PathBuf;
    use std::process::Command;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::{env, fs};

    use linerate_host::apply::Moment;
    use rustix::process::{Pid, Signal, kill_process};

    use super::{Arc, Faults, Role};

    /// The faults injected into this process, whose reverter has the number `reverter`.
    ///
    /// `LINERATE_CRASH=maker:7:both` kills maker and reverter at the maker's seventh step; the roles are
    /// `maker`, `reverter` and `recovery`, the victims `self`, `reverter`, `both` and `power`, which is that of the
    /// project's virtual machine; several deaths are separated by commas. `LINERATE_MARK_SYNCED` records how much of a
    /// journal is on stable storage.
    /// `LINERATE_BEFORE_DEATH=COMMAND` has the victims die after that command of sh, which simulates another process
    /// at that step.
    /// `LINERATE_COUNT_STEPS=maker:FILE` writes the number of the maker's steps so far to a file.
    /// `LINERATE_MUTANT=skip-sync` omits syncing records to stable storage, `skip-undo` what the
    /// reverter writes.
    pub fn faults(role: Role, reverter: Option<u32>) -> Option<Arc<dyn Faults>> {
        let crash = env::var("LINERATE_CRASH").ok();
        let death = crash.as_deref().and_then(|all| {
            all.split(',')
                .find_map(|text| PlannedKill::of(text, role, reverter))
        });
        let mutant = env::var("LINERATE_MUTANT").unwrap_or_default();
        let marks = env::var_os("LINERATE_MARK_SYNCED").is_some();
        let counts = env::var("LINERATE_COUNT_STEPS").ok();
        let count_in = counts.as_deref().and_then(|text| {
            let (who, file) = text.split_once(':')?;
            role.is(who).then(|| file.into())
        });
        if death.is_none() && mutant.is_empty() && !marks && count_in.is_none() {
            return None;
        }
        Some(Arc::new(Planned {
            death,
            skips_sync: mutant == "skip-sync",
            skips_writes: mutant == "skip-undo" && role == Role::Reverter,
            marks,
            count_in,
        }))
    }

    /// The steps of this process so far, whatever they were for.
    static STEPS: AtomicU32 = AtomicU32::new(0);

    impl Role {
        fn is(self, name: &str) -> bool {
            name == match self {
                Self::Maker => "maker",
                Self::Reverter => "reverter",
                Self::Recovery => "recovery",
            }
        }
    }

    #[derive(Debug)]
    struct PlannedKill {
        at: u32,
        victims: Vec<u32>,
        power: bool,
    }

    impl PlannedKill {
        fn of(text: &str, role: Role, reverter: Option<u32>) -> Option<Self> {
            let [who, at, victims] = text.split(':').collect::<Vec<_>>().try_into().ok()?;
            let reverter = reverter.filter(|_| victims != "self");
            let own = Some(std::process::id()).filter(|_| victims != "reverter");
            role.is(who).then_some(Self {
                at: at.parse().ok()?,
                victims: reverter.into_iter().chain(own).collect(),
                power: victims == "power",
            })
        }
    }

    fn kill(pid: u32) {
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            // One that is dead already is what was wanted.
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// The machine is off at once, with what was not on its disk: a reset, at which the virtual machine ends
    /// (Documentation/admin-guide/sysrq.rst). Nothing on any other machine.
    fn cut_power() {
        let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
        if line.split_whitespace().any(|word| word == "linerate.guest") {
            let _ = fs::write("/proc/sysrq-trigger", "b");
        }
    }

    #[derive(Debug)]
    struct Planned {
        death: Option<PlannedKill>,
        skips_sync: bool,
        skips_writes: bool,
        /// Whether to record how much of a journal a power cut would leave, in the file `synced` next to it.
        marks: bool,
        /// Where to write the number of steps.
        count_in: Option<PathBuf>,
    }

    impl Faults for Planned {
        fn lets(&self, moment: Moment<'_>) -> bool {
            let step = STEPS.fetch_add(1, Ordering::SeqCst) + 1;
            if let Some(file) = &self.count_in {
                let _ = fs::write(file, step.to_string());
            }
            if let Some(death) = &self.death
                && death.at == step
            {
                if death.power {
                    cut_power();
                }
                if let Ok(command) = env::var("LINERATE_BEFORE_DEATH") {
                    // What it did is inspected afterwards.
                    let _ = Command::new("sh").args(["-c", &command]).status();
                }
                death.victims.iter().copied().for_each(kill);
            }
            match moment {
                Moment::Sync => !self.skips_sync,
                Moment::Write => !self.skips_writes,
                Moment::Synced(folder, whole) => {
                    if self.marks {
                        let _ = fs::write(folder.join("synced"), whole.to_string());
                    }
                    true
                }
                Moment::Append | Moment::Appended | Moment::Written | Moment::File => true,
            }
        }
    }
}

pub use planned::faults;
