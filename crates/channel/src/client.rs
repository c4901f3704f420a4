//! The calling end: pairs with an agent, and opens a session.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use linerate_model::pairing::{HostPort, Pairing, PublicKey};

use crate::ChannelError;
use crate::frame::Kind;
use crate::identity::Identity;
use crate::keys::{KeyList, KnownKey};
use crate::pump::{Link, LinkEnd, Passed, Sink, Source, pump};
use crate::{socket, tls};

/// How long an agent that was connected to may take to authenticate; a busy host takes seconds.
const HANDSHAKE: Duration = Duration::from_secs(20);
/// How long it may take to end a connection after pairing.
const FAREWELL: Duration = Duration::from_secs(5);

/// An open session of an agent.
#[derive(Debug)]
pub struct Session {
    at: HostPort,
    link: Link,
}

/// Pairs with an agent: afterwards each end knows the other's key. `now_unix_s` is the time. Returns whether the agent is a
/// new one to this host.
pub fn pair(state: &Path, pairing: &Pairing, now_unix_s: u64) -> Result<bool, ChannelError> {
    let at = &pairing.at;
    let known = KeyList::Agents.named(state, &at.to_string())?;
    if let Some(known) = known.filter(|known| *known != pairing.key) {
        return Err(ChannelError::KnownByAnotherKey {
            at: at.clone(),
            known,
            line: pairing.key,
        });
    }
    let identity = Identity::of(state)?;
    // This end's clock decides nothing: the agent's does.
    let asked = call(at, &identity, pairing.key, Kind::Pair, &pairing.token.0);
    let mut link = asked.map_err(|error| match error {
        ChannelError::Refused { .. } if pairing.expires_unix_s < now_unix_s => {
            ChannelError::Expired { at: at.clone() }
        }
        ChannelError::WrongKey { at, found, .. } if known.is_none() => ChannelError::WrongLine {
            at,
            line: pairing.key,
            found,
        },
        error => error,
    })?;
    link.finish(Instant::now() + FAREWELL);
    let paired = KnownKey {
        key: pairing.key,
        since_unix_s: now_unix_s,
        name: at.to_string(),
    };
    KeyList::Agents.add(state, paired)?;
    Ok(known.is_none())
}

/// Opens a session of a known agent.
pub fn open(state: &Path, at: &HostPort) -> Result<Session, ChannelError> {
    let Some(expected) = KeyList::Agents.named(state, &at.to_string())? else {
        let names = KeyList::Agents.all(state)?.into_iter();
        let mut known = names.filter_map(|one| one.name.parse::<HostPort>().ok());
        return Err(ChannelError::NotPaired {
            at: at.clone(),
            known: known.find(|one| one.host == at.host),
        });
    };
    let identity = Identity::of(state)?;
    let link = call(at, &identity, expected, Kind::Open, &[])?;
    let at = at.clone();
    Ok(Session { at, link })
}

impl Session {
    /// Passes the agent's streams on until it ends; its exit code.
    pub fn run(
        mut self,
        input: OwnedFd,
        output: OwnedFd,
        errors: OwnedFd,
    ) -> Result<u8, ChannelError> {
        let streams = || -> io::Result<_> {
            Ok((
                Source::new(input, Kind::Input, Some(Kind::InputEnd))?,
                Sink::new(output, Kind::Output, None)?,
                Sink::new(errors, Kind::Errors, None)?,
            ))
        };
        let (input, output, errors) =
            streams().map_err(ChannelError::files("use the standard streams"))?;
        let broken = |why| ChannelError::Broken {
            at: self.at.clone(),
            why,
        };
        match pump(&mut self.link, &mut [input], &mut [output, errors]) {
            Ok(Passed::Exit(code)) => Ok(code),
            Ok(Passed::Drained) => Err(broken("it ended without an exit code".to_owned())),
            Err(LinkEnd::Closed) => Err(broken("the agent closed it".to_owned())),
            Err(LinkEnd::Broken(why)) => Err(broken(why)),
        }
    }
}

/// Connects, verifies the agent's key, and asks for something.
fn call(
    at: &HostPort,
    identity: &Identity,
    expected: PublicKey,
    kind: Kind,
    payload: &[u8],
) -> Result<Link, ChannelError> {
    let no_agent = |why: String| ChannelError::NoAgent {
        at: at.clone(),
        why,
    };
    let socket = socket::connect(at)?;
    let (connection, verifier) =
        tls::client(identity, expected).map_err(|error| no_agent(error.to_string()))?;
    let mut link = Link::new(connection, socket);
    link.queue(kind, payload);
    let answer = link.await_frame(Instant::now() + HANDSHAKE);
    if let Some(found) = verifier.other() {
        return Err(ChannelError::WrongKey {
            at: at.clone(),
            expected,
            found,
        });
    }
    let late = || format!("it did not answer within {} s", HANDSHAKE.as_secs());
    let answer = match answer {
        Ok(answer) => answer.ok_or_else(|| no_agent(late()))?,
        Err(LinkEnd::Closed) => {
            return Err(no_agent(
                "it closed the connection before it answered".to_owned(),
            ));
        }
        Err(LinkEnd::Broken(why)) => return Err(no_agent(why)),
    };
    match (answer.kind, answer.payload.split_first()) {
        (Kind::Ready, _) => Ok(link),
        (Kind::Refused, Some((&code, why))) => Err(ChannelError::Refused {
            at: at.clone(),
            code,
            why: String::from_utf8_lossy(why).into_owned(),
        }),
        (kind, _) => Err(no_agent(format!("unexpected frame {kind:?}"))),
    }
}
