//! Changing the machine, and rolling changes back: the only functions in the project that write to it.
//!
//! A [`Transaction`] makes a plan's changes one by one, each announced in an undo journal on stable storage before it
//! is made. Whatever happens next (a failed write, a panic, SIGKILL, a power failure), the machine ends in the old or
//! the new state: the transaction rolls everything back, or [`recover`] does.
//!
//! Settings that are persistent across reboots are in the [kept set](KeptSet): the only thing here that outlives a
//! boot.
//!
//! There is one transaction per plan. A process that makes changes arms a [`reverter`](stand_by) first, and holds the
//! lock of its namespace (and of the machine, for machine-wide settings) until they are committed or rolled back.

mod clock;
mod cpus;
mod daemon;
mod device;
mod effects;
pub mod fake;
mod fault;
mod files;
mod guard;
pub(crate) mod identity;
mod interface;
pub(crate) mod journal;
mod kept;
mod located;
mod lock;
mod machine;
mod netns;
mod nic_values;
mod rdma_defaults;
mod records;
mod recover;
mod reported;
mod restore;
mod reverter;
mod rights;
pub mod settings;
mod subject;
#[expect(unsafe_code, reason = "system calls that no safe wrapper offers")]
mod sys;
#[cfg(test)]
mod tests;
mod transaction;
mod write_error;

pub use clock::Boottime;
pub use device::Device;
pub use effects::disturbed_by;
pub use fault::{Faults, Faulty, Moment};
pub use guard::Guard;
pub use identity::{IdentityError, NetnsIdentity, Owner, boot_id, is_first_netns};
pub use journal::{Ending, JournalError, JournalOptions, folder_of};
pub use kept::{
    BootAttempts, BootFiles, Here, KEPT_VERSION, KeptError, KeptSet, NotForBoot, PersistentSet,
    Verdict, device_of, forget, keep, kept_set, note_try, tidy, tried,
};
pub use located::Located;
pub use lock::{Lock, LockError, REVERTING, Scope};
pub use machine::{LiveMachine, Machine};
pub use netns::{OpenNics, Reach, reach};
pub use records::{Header, JOURNAL_VERSION, Unrestored, UnrestoredWhy};
pub use recover::{
    JournalContents, Listed, Outcome, Recovered, Surroundings, journal_listing, recover,
    undo_committed,
};
pub use restore::Undone;
pub use reverter::{close_inherited, stand_by};
pub use rights::missing as missing_rights;
pub use subject::Subject;
pub use transaction::{ApplyError, ForeignChange, StepError, Transaction};
pub use write_error::WriteError;
