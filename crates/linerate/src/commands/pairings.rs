//! `linerate peers` and `linerate agent pair|paired|forget`: who knows whom.

use std::io::{BufRead as _, Read as _};
use std::path::Path;

use linerate_analysis::text::timestamp::utc;
use linerate_channel::client::pair;
use linerate_channel::keys::{ForgetError, KeyList, KnownKey, PREFIX_MIN};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::pairing::{HostPort, Pairing};
use linerate_runtime::cli::{AgentAction, PairingArg, PeersAction};
use linerate_runtime::console::clock::now_unix_s;
use linerate_runtime::console::say::{Format, Say};
use linerate_runtime::endpoint::listen;
use serde::Serialize;

/// A pairing line is much shorter.
const LINE_BYTES_MAX: u64 = 4_096;

/// The keys of a list, in JSON.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct KeysDocument {
    schema: &'static str,
    /// Oldest first.
    keys: Vec<KeyEntry>,
}

/// A known key.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct KeyEntry {
    /// `host:port` of an agent; the address that a host has paired from.
    name: String,
    /// Ed25519, in hexadecimal.
    key: String,
    /// When they were paired.
    paired_unix_s: u64,
}

/// `linerate peers`.
pub(crate) fn peers(action: &PeersAction, state: &Path, say: &Say) -> Outcome<()> {
    match action {
        PeersAction::List => print(KeyList::Agents, state, say),
        PeersAction::Pair { line, at } => {
            let line = match line {
                PairingArg::Given(line) => line.clone(),
                PairingArg::Stdin => read_line()?,
            };
            let pairing = Pairing {
                at: at.clone().unwrap_or_else(|| line.at.clone()),
                ..line.clone()
            };
            let already = if pair(state, &pairing, now_unix_s())? {
                ""
            } else {
                " already"
            };
            say.note(&format!(
                "paired{already}: the peer is tls://{}",
                pairing.at
            ));
            Ok(())
        }
        PeersAction::Forget { which } => forget(KeyList::Agents, which, state, say),
    }
}

/// A pairing line from standard input.
fn read_line() -> Outcome<Pairing> {
    let mut text = String::new();
    let read = std::io::stdin()
        .lock()
        .take(LINE_BYTES_MAX)
        .read_line(&mut text);
    read.map_err(|error| Stop::io("read the pairing line", error))?;
    text.parse()
        .map_err(|why: String| Stop::new(Code::BadInput, why))
}

/// What a listening agent's owner does with its pairings.
pub(crate) fn agent(action: &AgentAction, state: &Path, say: &Say) -> Outcome<()> {
    match action {
        AgentAction::Pair {
            advertise,
            pair_within,
        } => listen::pair(state, advertise.clone(), *pair_within, say),
        AgentAction::Paired => print(KeyList::Callers, state, say),
        AgentAction::Forget { which } => forget(KeyList::Callers, which, state, say),
    }
}

fn print(list: KeyList, state: &Path, say: &Say) -> Outcome<()> {
    let all = list.all(state)?;
    if say.format == Format::Json {
        let entry = |one: KnownKey| KeyEntry {
            name: one.name,
            key: one.key.to_string(),
            paired_unix_s: one.since_unix_s,
        };
        return say.json(&KeysDocument {
            schema: "linerate.keys/1",
            keys: all.into_iter().map(entry).collect(),
        });
    }
    if all.is_empty() {
        let of = state.display();
        say.note(&match list {
            KeyList::Agents => format!("this host is paired with no listening agent (in {of})"),
            KeyList::Callers => format!("no host is paired with an agent of the state folder {of}"),
        });
    }
    let width = all.iter().map(|one| one.name.len()).max().unwrap_or(0);
    for one in &all {
        say.data(&format!(
            "{:<width$}  key {}..  paired {}",
            one.name,
            one.key.short(),
            utc(one.since_unix_s),
        ))?;
    }
    Ok(())
}

fn forget(list: KeyList, which: &str, state: &Path, say: &Say) -> Outcome<()> {
    // A peer has its port in the list; a key may have been copied with its dots.
    let peer = which.strip_prefix("tls://").map(str::parse::<HostPort>);
    let which = match peer {
        Some(Ok(at)) => at.to_string(),
        _ => which.trim_end_matches('.').to_owned(),
    };
    let which = which.as_str();
    let refused = |why: String, hint: String| Err(Stop::new(Code::BadInput, why).hint(hint));
    let (what, command) = match list {
        KeyList::Agents => ("agent", "linerate peers list"),
        KeyList::Callers => ("host", "linerate agent paired"),
    };
    match list.forget(state, which) {
        Ok(Some(one)) => {
            say.note(&format!("forgot {} (key {}..)", one.name, one.key.short()));
            Ok(())
        }
        Ok(None) => refused(
            format!(
                "no paired {what} is called `{which}` in {}",
                state.display()
            ),
            format!("`{command}` lists them; of a key give at least {PREFIX_MIN} digits"),
        ),
        Err(ForgetError::Several(all)) => {
            let keys: Vec<_> = all
                .iter()
                .map(|one| format!("{}..", one.key.short()))
                .collect();
            refused(
                format!(
                    "{} paired {what}s match `{which}`; none was forgotten",
                    all.len()
                ),
                format!("give the key of one: {}", keys.join(", ")),
            )
        }
        Err(ForgetError::Files(error)) => Err(error.into()),
    }
}
