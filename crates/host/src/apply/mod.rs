//! Changing the machine, and taking changes back: the only functions in the project that write to it.
//!
//! A [`Transaction`] makes a plan's changes one by one, each announced in an undo journal on stable
//! storage before it is made. Whatever happens next (a refused write, a panic, SIGKILL, a power cut),
//! the machine ends old or new: the transaction takes everything back, or [`recover`] does.
//!
//! One transaction per plan. Several may be open at once in different namespaces; a lock per machine,
//! the separate reverter and its timer belong to the full transaction, which is to come.

mod effects;
pub mod fake;
mod files;
pub(crate) mod identity;
pub(crate) mod journal;
mod machine;
mod netns;
mod recover;
mod restore;
pub mod settings;
#[expect(unsafe_code, reason = "system calls that no safe wrapper offers")]
mod sys;
#[cfg(test)]
mod tests;
mod transaction;

pub use identity::{IdentityError, NetnsIdentity, Owner, boot_id};
pub use journal::{Ending, Header, JOURNAL_VERSION, JournalError};
pub use machine::{LiveMachine, Machine};
pub use netns::{OpenNics, Reach, reach};
pub use recover::{
    Listed, Outcome, Recovered, Surroundings, Told, journal_listing, recover, undo_committed,
};
pub use restore::{Left, LeftWhy, Undone};
pub use settings::WriteError;
pub use transaction::{ApplyError, StepError, Transaction};
