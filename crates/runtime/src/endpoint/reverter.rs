//! The process of the reverter, `linerate reverter`, which people need not know: it rolls changes back once the one
//! that made them is gone.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use linerate_host::apply::{JournalOptions, close_inherited, stand_by};
use linerate_model::exit::{Outcome, Stop};

use crate::console::say::Say;
use crate::endpoint::crash;
use crate::endpoint::transactions::{settle, this_machine};

/// `linerate reverter --of PID --hold CAPABILITY`: serves the process at the other end of standard input.
pub fn run(parent: u32, rights: &[String], state: &Path, say: &Say) -> Outcome<()> {
    // Nothing was opened yet.
    close_inherited();
    // Ctrl-C and the end of the terminal are for the process that makes the changes.
    let _ = rustix::process::setsid();
    let faults = crash::faults(crash::Role::Reverter, None);
    let machine =
        this_machine(faults.clone()).map_err(|error| Stop::io("open this machine", error))?;
    let beside = JournalOptions {
        guard: None,
        faults,
    };
    let channel = io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_err(|error| Stop::io("keep the channel", error))?;
    let recovered = stand_by(channel.into(), parent, state, &machine, rights, &beside)
        .map_err(|error| Stop::io("stand by", error))?;
    for entry in settle(recovered)? {
        let (id, about) = (entry.id, entry.about);
        say.note(&format!("{id} was rolled back by the reverter: {about}"));
    }
    Ok(())
}
