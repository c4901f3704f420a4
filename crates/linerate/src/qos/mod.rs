//! `linerate qos`: bandwidth of VLANs and classes of one interface, from one file.
//!
//! `file` reads it, `linerate_model::qos` says by which settings of the catalog the interface can hold its limits, and the
//! transactions of `tune` make and undo them; `applied` notes which transaction is whose. `verify` measures whether the
//! limits hold, `import` writes a file of what is there.

mod applied;
mod file;
mod import;
mod text;
mod verify;

use std::collections::BTreeMap;
use std::path::Path;

use linerate_host::procfs::qdisc_kinds::QdiscKinds;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::Host;
use linerate_model::ids::NicName;
use linerate_model::peer_address::PeerAddress;
use linerate_model::protocol::Request;
use linerate_model::qos::{NotApplicable, Qos, QosPlan, conflicts, plan as plan_of};
use linerate_model::setting::{NicKnob, SettingKey, Settings, Value};
use linerate_runtime::cli::{PersistArgs, QosAction, QosApplyArgs};
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::say::Say;
use linerate_runtime::endpoint::local::LocalEndpoint;
use linerate_runtime::endpoint::peer::Peer;
use linerate_runtime::endpoint::recover::recover_first;
use linerate_runtime::endpoint::transactions;
use linerate_runtime::endpoint::trial::host_of;

use self::applied::{Applied, Note};
#[cfg(any(test, feature = "fuzz"))]
pub(crate) use self::file::parse as parse_file;
#[cfg(test)]
pub(crate) use self::text::{QosPlanDocument, QosStatusDocument};
#[cfg(test)]
pub(crate) use self::verify::document::QosDocument;
pub(crate) use self::verify::stored;
use crate::prove::intent::Intent;
use crate::tune;

/// Carries out a `qos` action.
pub(crate) fn run(action: &QosAction, state: &Path, say: &Say) -> Outcome<()> {
    match action {
        QosAction::Plan { file, peer, push } => {
            let endpoint = LocalEndpoint::open(state)?;
            let (_, asked) = Asked::of(file, &endpoint, state)?;
            let mut other = None;
            if let Some(peer) = peer {
                let remote = read_peer(peer, *push, state, say)?;
                let host = endpoint.read_host();
                let conflicts = conflicts(&asked.qos, &asked.plan, &host, &remote);
                other = Some(text::OtherEnd::of(peer, conflicts));
            }
            text::plan(&asked, other.as_ref(), endpoint.root(), say)
        }
        QosAction::Apply(args) => apply(args, state, say),
        QosAction::Confirm => {
            let open = applied::all(state, None)?.into_iter().rev();
            let mut open = open.filter(|applied| applied.entry.state == "open");
            let id = open.next().map(|applied| applied.entry.id).ok_or_else(|| {
                Stop::new(Code::BadInput, "no `qos apply` is waiting for confirmation")
            })?;
            tune::confirm(state, Some(&id), say)
        }
        QosAction::Verify(args) => verify::run(args, state, say),
        QosAction::Status => status(state, say),
        QosAction::Persist(args) => persist(args, state, say),
        QosAction::Undo { interface } => undo(interface.as_ref(), state, say),
        QosAction::Import { interface } => import::run(interface, state, say),
    }
}

/// The configuration of the peer.
fn read_peer(address: &PeerAddress, push: bool, state: &Path, say: &Say) -> Outcome<Host> {
    let interrupt = Interrupt::listen()?;
    let mut peer = Peer::start(address, push, state, &interrupt, Some(say))?;
    let host = host_of(peer.ask(&Request::ReadHost)?)?;
    peer.leave_after_result(say)?;
    Ok(host)
}

/// What a file asks of this host.
pub(super) struct Asked {
    pub(super) qos: Qos,
    pub(super) plan: QosPlan,
    /// What this host does not have of the plan, and what earlier files changed that it no longer names.
    pub(super) intent: Intent,
}

impl Asked {
    /// Reads a file, and what of it this host does not have yet.
    fn of(path: &Path, endpoint: &LocalEndpoint, state: &Path) -> Outcome<(String, Self)> {
        let (text, qos) = file::read(path)?;
        let asked = Self::with(qos, endpoint, state)?;
        Ok((text, asked))
    }

    fn with(qos: Qos, endpoint: &LocalEndpoint, state: &Path) -> Outcome<Self> {
        let host = endpoint.read_host();
        let kinds = QdiscKinds::read(endpoint.root());
        // A kind that may be there is tried: what fails is rolled back.
        let has = |kind: &str| kinds.has(kind) || (kind == "htb" && !kinds.is_complete());
        let plan = plan_of(&qos, &host, has).map_err(|error| not_here(&error))?;
        let mut settings = Settings::new();
        for planned in &plan.settings {
            let wrong =
                |error| Stop::new(Code::Bug, format!("cannot plan {}: {error}", planned.key));
            let key: SettingKey = planned.key.parse().map_err(wrong)?;
            let value = key.parse_value(&planned.value).map_err(wrong)?;
            settings.insert(key, value);
        }
        let earlier = applied::all(state, Some(&qos.interface))?;
        for (key, before) in given_up(&earlier, &settings) {
            settings.insert(key, before);
        }
        let intent = Intent::from_settings(&settings, endpoint)?;
        Ok(Self { qos, plan, intent })
    }
}

/// The settings that earlier files changed and this one does not name, with the values from before. A VLAN that goes takes
/// its own settings with it.
fn given_up(earlier: &[Applied], wanted: &Settings) -> Settings {
    let mut first: BTreeMap<&SettingKey, &Value> = BTreeMap::new();
    for change in earlier.iter().flat_map(|applied| &applied.note.changes) {
        first.entry(&change.setting).or_insert(&change.from);
    }
    first.retain(|key, _| !wanted.contains_key(*key));
    let is_device = |key: &SettingKey| matches!(key, SettingKey::Nic(_, NicKnob::VlanLink));
    let gone: Vec<String> = (first.keys().filter(|key| is_device(key)))
        .filter_map(|key| key.interface().map(ToOwned::to_owned))
        .collect();
    let of_gone = |key: &SettingKey| {
        key.interface()
            .is_some_and(|nic| gone.iter().any(|gone| gone == nic))
    };
    let kept = first.into_iter();
    let kept = kept.filter(|(key, _)| is_device(key) || !of_gone(key));
    kept.map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// The exit code of a file that does not fit this host.
fn not_here(error: &NotApplicable) -> Stop {
    let code = match error {
        NotApplicable::Mechanism { .. } | NotApplicable::NoMechanism(_) => Code::NotSupported,
        _ => Code::BadInput,
    };
    Stop::new(code, error.to_string())
}

fn apply(args: &QosApplyArgs, state: &Path, say: &Say) -> Outcome<()> {
    recover_first(state, say)?;
    let endpoint = LocalEndpoint::open(state)?;
    let (file, asked) = Asked::of(&args.file, &endpoint, state)?;
    say.note(&format!(
        "{}: {} ({})",
        asked.qos.interface,
        asked.plan.mechanism.word(),
        asked.plan.why
    ));
    let note = Note {
        interface: asked.qos.interface.clone(),
        file,
        changes: asked.intent.plan()?.changes,
    };
    let made = tune::Made {
        action: "apply",
        intent: &asked.intent,
        mark: &|id| applied::write(state, id, &note),
        undo: "linerate qos undo",
        confirm: |_| "linerate qos confirm".to_owned(),
        show: text::changes,
    };
    tune::apply(&made, endpoint, state, &args.stay, say)
}

fn status(state: &Path, say: &Say) -> Outcome<()> {
    let endpoint = LocalEndpoint::open(state)?;
    let mut newest: BTreeMap<NicName, Vec<Applied>> = BTreeMap::new();
    for applied in applied::all(state, None)? {
        newest
            .entry(applied.note.interface.clone())
            .or_default()
            .push(applied);
    }
    let mut entries = Vec::new();
    for (interface, all) in newest {
        let Some(last) = all.last() else { continue };
        let differs = file::parse(&last.note.file, "the applied file")
            .and_then(|qos| Asked::with(qos, &endpoint, state))
            .and_then(|asked| asked.intent.plan());
        entries.push(text::Status::of(interface, &all, differs));
    }
    text::status(entries, say)
}

fn persist(args: &PersistArgs, state: &Path, say: &Say) -> Outcome<()> {
    let applied = applied::all(state, None)?;
    if applied.is_empty() {
        return Err(nothing_applied(None));
    }
    let applied = to_persist(applied, args.id.as_deref(), args.remove)?;
    if !args.remove {
        name_managers(&applied, state, say)?;
    }
    let mut entries = Vec::new();
    for Applied { entry, .. } in applied {
        let args = PersistArgs {
            id: Some(entry.id),
            ..args.clone()
        };
        entries.extend(tune::persist::persist(&args, state)?);
    }
    tune::report("persist", &entries, say)
}

/// The one that the user names by its id or its short name, or all; of those that are to be forgotten, the persistent ones.
fn to_persist(all: Vec<Applied>, id: Option<&str>, remove: bool) -> Outcome<Vec<Applied>> {
    let is_meant = |Applied { entry, .. }: &Applied| match id {
        Some(id) => entry.id == id || entry.name.as_deref() == Some(id),
        None => !remove || entry.kept,
    };
    let meant: Vec<Applied> = all.into_iter().filter(is_meant).collect();
    if !meant.is_empty() {
        return Ok(meant);
    }
    let what = match id {
        Some(id) => format!("`{id}` is no transaction that `qos apply` made"),
        None => "no file of classes is persistent".to_owned(),
    };
    Err(Stop::new(Code::BadInput, what).hint("`linerate qos status` lists them"))
}

/// Names the programs that manage the interfaces of what is applied.
fn name_managers(applied: &[Applied], state: &Path, say: &Say) -> Outcome<()> {
    let endpoint = LocalEndpoint::open(state)?;
    let mut newest: BTreeMap<&NicName, &Applied> = BTreeMap::new();
    for one in applied {
        newest.insert(&one.note.interface, one);
    }
    for one in newest.into_values() {
        let asked = file::parse(&one.note.file, "the applied file")
            .and_then(|qos| Asked::with(qos, &endpoint, state));
        let Ok(asked) = asked else { continue };
        let managed = text::Managed::all(&asked, endpoint.root());
        for line in managed
            .value()
            .into_iter()
            .flatten()
            .flat_map(text::Managed::lines)
        {
            say.note(line.strip_prefix("note: ").unwrap_or(&line));
        }
    }
    Ok(())
}

/// Undoes the newest transaction first, so that each finds what it left.
fn undo(interface: Option<&NicName>, state: &Path, say: &Say) -> Outcome<()> {
    let _interrupt = Interrupt::listen()?;
    let applied = applied::all(state, interface)?;
    if applied.is_empty() {
        return Err(nothing_applied(interface));
    }
    let mut entries = Vec::new();
    for Applied { entry, .. } in applied.iter().rev() {
        let mut undone = transactions::undo_committed(state, Some(&entry.id))?;
        for one in &mut undone {
            one.name.clone_from(&entry.name);
        }
        entries.extend(undone);
    }
    // Their notes go with them.
    applied::all(state, interface)?;
    tune::report("undo", &entries, say)
}

fn nothing_applied(interface: Option<&NicName>) -> Stop {
    let of = interface
        .map(|nic| format!(" to {nic}"))
        .unwrap_or_default();
    Stop::new(Code::BadInput, format!("no file of classes is applied{of}"))
        .hint("`linerate qos status` lists them")
}

#[cfg(test)]
mod tests {
    use linerate_runtime::endpoint::transactions::Entry;

    use super::*;

    fn applied(name: &str, kept: bool) -> Applied {
        Applied {
            note: Note {
                interface: "eth1".parse().expect("a name"),
                file: String::new(),
                changes: Vec::new(),
            },
            entry: Entry {
                id: format!("id-of-{name}"),
                name: Some(name.to_owned()),
                state: "applied",
                about: String::new(),
                kept,
            },
        }
    }

    #[test]
    fn persist_takes_the_named_transaction_or_all_and_forgets_only_persistent_ones() {
        let all = || {
            vec![
                applied("t1", true),
                applied("t2", false),
                applied("t3", true),
            ]
        };
        let names = |id, remove| -> Outcome<Vec<String>> {
            let meant = to_persist(all(), id, remove)?;
            Ok(meant.into_iter().filter_map(|one| one.entry.name).collect())
        };
        for (id, remove, expected) in [
            (None, false, &["t1", "t2", "t3"][..]),
            (Some("t2"), false, &["t2"]),
            (Some("id-of-t3"), false, &["t3"]),
            (Some("t3"), true, &["t3"]),
            (None, true, &["t1", "t3"]),
        ] {
            let found = names(id, remove).expect("some");
            assert_eq!(found, expected, "{id:?} {remove}");
        }
        let error = names(Some("t4"), true).expect_err("there is none");
        assert_eq!(error.code, Code::BadInput);
        assert_eq!(
            error.message,
            "`t4` is no transaction that `qos apply` made"
        );
        let error = to_persist(vec![applied("t2", false)], None, true).expect_err("none is");
        assert_eq!(error.message, "no file of classes is persistent");
    }
}
