//! Why a request has no answer, by what the agent or its channel wrote.

use linerate_model::exit::{Code, Stop};
use linerate_model::protocol::Failure;

/// Why a request has no answer.
#[derive(Debug)]
pub enum FarError {
    /// The remote end has failed to do it.
    Failure(Failure),
    /// Anything else.
    Stop(Stop),
}

impl From<Stop> for FarError {
    fn from(stop: Stop) -> Self {
        Self::Stop(stop)
    }
}

impl From<FarError> for Stop {
    fn from(error: FarError) -> Self {
        match error {
            FarError::Failure(failure) => failure.into(),
            FarError::Stop(stop) => stop,
        }
    }
}

/// What ssh(1) has found, by its message: the kernel's words, in English where it is run without a locale of another language.
pub(super) fn cause_of_ssh(words: &str) -> &'static str {
    if words.contains("timed out") {
        "the host is down, or a firewall drops the packets; "
    } else if words.contains("refused") {
        "no ssh server listens on this port, or a firewall rejects it; "
    } else {
        ""
    }
}

/// Why `linerate channel` has ended: its own words, which name the peer and come last. Its other codes are the agent's.
pub(super) fn stop_of_channel(code: i32, words: &str) -> Option<Stop> {
    const OWN: [Code; 5] = [
        Code::PeerUnreachable,
        Code::PermissionMissing,
        Code::BadInput,
        Code::TimeOut,
        Code::Resource,
    ];
    let code = OWN
        .into_iter()
        .find(|one| i32::from(one.number()) == code)?;
    let (_, said) = words.rsplit_once("error: ")?;
    let (message, hint) = match said.split_once("hint: ") {
        Some((message, hint)) => (message, Some(hint)),
        None => (said, None),
    };
    let stop = Stop::new(code, message.trim());
    Some(match hint {
        Some(hint) => stop.hint(hint.trim()),
        None => stop,
    })
}
