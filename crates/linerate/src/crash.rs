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
    /// It takes back what both left.
    Recovery,
}

#[cfg(not(debug_assertions))]
mod planned {
    use super::{Arc, Faults, Role};

    /// Nothing goes wrong by plan.
    pub fn faults(_: Role, _: Option<u32>) -> Option<Arc<dyn Faults>> {
        None
    }
}

#[cfg(debug_assertions)]
mod planned {
    use std::env;
    use std::fs;
    use std::sync::atomic::{AtomicU32, Ordering};

    use linerate_host::apply::Moment;
    use rustix::process::{Pid, Signal, kill_process};

    use super::{Arc, Faults, Role};

    /// What goes wrong in this process, whose reverter has the number `reverter`.
    ///
    /// `LINERATE_CRASH=maker:7:both` kills maker and reverter at the maker's seventh step; the roles are
    /// `maker`, `reverter` and `recovery`, the victims `self`, `reverter` and `both`; several deaths have commas
    /// between them. `LINERATE_MARK_SYNCED` has it told how much of a journal is on stable storage.
    /// `LINERATE_MUTANT=skip-sync` leaves out what puts records on stable storage, `skip-undo` what the
    /// reverter writes.
    pub fn faults(role: Role, reverter: Option<u32>) -> Option<Arc<dyn Faults>> {
        let crash = env::var("LINERATE_CRASH").ok();
        let death = crash.as_deref().and_then(|all| {
            all.split(',')
                .find_map(|text| Death::of(text, role, reverter))
        });
        let mutant = env::var("LINERATE_MUTANT").unwrap_or_default();
        let marks = env::var_os("LINERATE_MARK_SYNCED").is_some();
        if death.is_none() && mutant.is_empty() && !marks {
            return None;
        }
        Some(Arc::new(Planned {
            death,
            steps: AtomicU32::new(0),
            skips_sync: mutant == "skip-sync",
            skips_writes: mutant == "skip-undo" && role == Role::Reverter,
            marks,
        }))
    }

    #[derive(Debug)]
    struct Death {
        at: u32,
        victims: Vec<u32>,
    }

    impl Death {
        fn of(text: &str, role: Role, reverter: Option<u32>) -> Option<Self> {
            let [who, at, victims] = text.split(':').collect::<Vec<_>>().try_into().ok()?;
            let is_meant = match role {
                Role::Maker => who == "maker",
                Role::Reverter => who == "reverter",
                Role::Recovery => who == "recovery",
            };
            let reverter = reverter.filter(|_| victims != "self");
            let own = Some(std::process::id()).filter(|_| victims != "reverter");
            is_meant.then_some(Self {
                at: at.parse().ok()?,
                victims: reverter.into_iter().chain(own).collect(),
            })
        }
    }

    fn kill(pid: u32) {
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            // One that is dead already is what was wanted.
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    #[derive(Debug)]
    struct Planned {
        death: Option<Death>,
        steps: AtomicU32,
        skips_sync: bool,
        skips_writes: bool,
        /// Whether to tell how much of a journal a power cut would leave, in the file `synced` beside it.
        marks: bool,
    }

    impl Faults for Planned {
        fn lets(&self, moment: Moment<'_>) -> bool {
            let step = self.steps.fetch_add(1, Ordering::SeqCst) + 1;
            if let Some(death) = &self.death
                && death.at == step
            {
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
                Moment::Append | Moment::Appended | Moment::Written => true,
            }
        }
    }
}

pub use planned::faults;
