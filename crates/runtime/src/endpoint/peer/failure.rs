//! Why a request has no answer, by how the agent or its channel ended and what they wrote.

use std::process::ExitStatus;

use linerate_model::exit::{Code, Stop};
use linerate_model::peer_address::PeerAddress;
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

/// How an agent, or the process that its session passes through, ended although it was still needed.
pub(super) fn how_it_ended(
    status: ExitStatus,
    address: &PeerAddress,
    has_answered: bool,
) -> String {
    match (status.code(), has_answered) {
        // Of a session over TLS this is the channel's: it reports that the other end is gone, not why.
        (Some(0), true) if matches!(address, PeerAddress::Tls { .. }) => {
            "closed its connection: it was killed, or its host went down".to_owned()
        }
        (Some(code), true) => format!("exited unexpectedly (exit code {code})"),
        (Some(code), false) => format!("ended with exit code {code} before it answered"),
        (None, _) => {
            // `signal: 9 (SIGKILL)`
            let signal = status.to_string();
            format!("was killed by {}", signal.replacen(": ", " ", 1))
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

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn an_agent_that_was_killed_is_reported_with_its_signal() {
        let exec: PeerAddress = "exec:true".parse().expect("an address");
        let tls: PeerAddress = "tls://h1:7000".parse().expect("an address");
        for (raw, address, has_answered, words) in [
            (9, &exec, true, "was killed by signal 9 (SIGKILL)"),
            (15, &tls, false, "was killed by signal 15 (SIGTERM)"),
            (3 << 8, &exec, true, "exited unexpectedly (exit code 3)"),
            (
                3 << 8,
                &tls,
                false,
                "ended with exit code 3 before it answered",
            ),
            (0, &exec, true, "exited unexpectedly (exit code 0)"),
            (
                0,
                &tls,
                true,
                "closed its connection: it was killed, or its host went down",
            ),
        ] {
            let status = ExitStatus::from_raw(raw);
            assert_eq!(how_it_ended(status, address, has_answered), words);
        }
    }
}
