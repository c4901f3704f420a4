//! What every command that changes something does first: it rolls back what a killed linerate left.

use std::path::Path as FilePath;

use linerate_model::exit::{Code, Outcome};
use linerate_model::peer_address::PeerAddress;

use crate::console::say::Say;
use crate::endpoint::lease::{self, Far};
use crate::endpoint::transactions;

/// Rolls back what a killed linerate left incomplete: nothing builds on a partial state.
pub fn recover_first(state: &FilePath, say: &Say) -> Outcome<()> {
    recover_first_with(None, state, say)
}

/// The same, by a command that names a peer.
pub fn recover_first_with(given: Option<&PeerAddress>, state: &FilePath, say: &Say) -> Outcome<()> {
    let recovered = transactions::recover(state);
    let far = || lease::recover(Far { state, given });
    let recovered = recovered.and_then(|own| Ok([own, far()?].concat()));
    let recovered = match recovered {
        // It may be of another namespace, and is reported at each start until it is fixed.
        Err(stop) if stop.code == Code::RestoreIncomplete => {
            say.note(&stop.to_string());
            return Ok(());
        }
        recovered => recovered?,
    };
    for entry in recovered {
        if entry.state == "restored" {
            let (id, about) = (entry.id, entry.about);
            say.note(&format!("{id} was incomplete and is rolled back: {about}"));
        }
    }
    Ok(())
}
