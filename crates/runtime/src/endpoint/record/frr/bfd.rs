//! The changes of FRR's BFD sessions while a trial runs. FRR's JSON has the age of a state in seconds only, so the sessions
//! are read again and again, and a change lies between two readings.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use linerate_host::events::clocks;
use linerate_model::failover::events::{BfdSession, Change, Event};
use linerate_model::ids::NicName;
use linerate_model::units::Nanoseconds;
use serde_json::Value;

/// The pause between two readings: each starts a `vtysh`, which takes about 40 ms of CPU time.
const EVERY: Duration = Duration::from_millis(500);
/// More changes than these are not recorded.
const CHANGES_MAX: usize = 256;

/// A session's neighbor and interface.
type Key = (IpAddr, Option<NicName>);

/// The states of the sessions, with FRR's reason.
type Sessions = BTreeMap<Key, (String, String)>;

/// The changes from now until `is_over` is closed; `read` is `show bfd peers json`. Without a session there is nothing to
/// watch.
pub(super) fn changes(read: impl Fn() -> io::Result<Value>, is_over: &Receiver<()>) -> Vec<Event> {
    let mut all = Vec::new();
    let mut read_at = clocks().monotonic_ns;
    let Ok(mut known) = read().map(|value| sessions(&value)) else {
        return all;
    };
    while !known.is_empty() {
        let over = is_over.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout);
        let begun = clocks().monotonic_ns;
        // A daemon that does not answer may do so the next time.
        if let Ok(value) = read() {
            let now = sessions(&value);
            let times = (read_at, clocks().monotonic_ns);
            let room = CHANGES_MAX - all.len();
            all.extend(between(&known, &now, times).into_iter().take(room));
            (known, read_at) = (now, begun);
        }
        if over {
            break;
        }
    }
    all
}

fn sessions(value: &Value) -> Sessions {
    let peers = value.as_array().into_iter().flatten();
    let session = |peer: &Value| {
        let text = |key: &str| peer[key].as_str();
        let nic = text("interface").and_then(|name| name.parse().ok());
        let key = (text("peer")?.parse().ok()?, nic);
        let diagnostic = text("diagnostic").unwrap_or_default();
        Some((key, (text("status")?.to_owned(), diagnostic.to_owned())))
    };
    peers.filter_map(session).collect()
}

/// The sessions whose state differs, read between `from` and `to`.
fn between(old: &Sessions, new: &Sessions, (from, to): (Nanoseconds, Nanoseconds)) -> Vec<Event> {
    let changed = new
        .iter()
        .filter(|(key, (state, _))| old.get(*key).is_some_and(|(before, _)| before != state));
    let events = changed.map(|((peer, nic), (state, diagnostic))| Event {
        at_ns: to,
        change: Change::Bfd(BfdSession {
            peer: *peer,
            nic: nic.clone(),
            state: state.clone(),
            diagnostic: diagnostic.clone(),
            not_before_ns: from,
        }),
    });
    events.collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::mpsc;

    use serde_json::json;

    use super::*;

    fn peers(state: &str, diagnostic: &str) -> Value {
        json!([
            {"peer": "10.205.11.2", "interface": "to-r1", "status": state, "diagnostic": diagnostic},
            {"peer": "10.205.12.2", "interface": "to-r2", "status": "up", "diagnostic": "ok"}
        ])
    }

    #[test]
    fn a_session_that_is_down_at_the_last_reading_is_a_change_with_its_reason() {
        let (over, is_over) = mpsc::channel::<()>();
        drop(over);
        let readings = Cell::new(0);
        let read = || {
            readings.set(readings.get() + 1);
            Ok(match readings.get() {
                1 => peers("up", "ok"),
                _ => peers("down", "control detection time expired"),
            })
        };
        let found = changes(read, &is_over);
        assert_eq!((found.len(), readings.get()), (1, 2), "{found:?}");
        let Change::Bfd(session) = &found[0].change else {
            panic!("{found:?}");
        };
        assert_eq!(session.peer, IpAddr::from([10, 205, 11, 2]));
        assert_eq!(session.state, "down");
        assert_eq!(session.diagnostic, "control detection time expired");
        assert!(session.not_before_ns <= found[0].at_ns, "{found:?}");
    }

    #[test]
    fn without_a_session_there_is_one_reading() {
        let (_over, is_over) = mpsc::channel::<()>();
        let readings = Cell::new(0);
        let read = || {
            readings.set(readings.get() + 1);
            Ok(json!([]))
        };
        assert_eq!(changes(read, &is_over), []);
        assert_eq!(readings.get(), 1);
    }
}
