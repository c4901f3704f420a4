//! `linerate tune`: show, apply, undo and recover settings of this host.
//!
//! `hold` keeps settings while a command runs, `persist` across reboots, `confirm` waits for the user's word, `probe` checks
//! that the peer can still be reached.

pub(crate) mod confirm;
pub(crate) mod hold;
pub(crate) mod persist;
mod probe;

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::path::Path as FilePath;
use std::time::Duration;

use linerate_host::apply::{Boottime, folder_of};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::finding::Profile;
use linerate_model::peer_address::PeerAddress;
use linerate_model::plan::Change;
use linerate_runtime::cli::{
    ApplyArgs, PeerArgs, PersistArgs, ProveArgs, ReachArgs, StayArgs, TuneAction, WantedArgs,
};
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::say::{Format, Say};
use linerate_runtime::endpoint::guard::EARLIER;
use linerate_runtime::endpoint::lease::{self, Far};
use linerate_runtime::endpoint::local::LocalEndpoint;
use linerate_runtime::endpoint::recover::{recover_first, recover_first_with};
use linerate_runtime::endpoint::transactions::{self, Entry};
use linerate_runtime::endpoint::trial::open_path;
use serde::Serialize;

use self::confirm::{ConfirmRequest, Control, Decision};
use crate::metrics::MetricsOutput;
use crate::prove::intent::{self, IntendedChange, Intent};
use crate::prove::{prove as run_prove, search};
use crate::tune::probe::reach;

/// What `linerate tune ACTION --format json` prints: changes for plan, apply and affinity, transactions for the others.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct TuneDocument<'a> {
    schema: &'static str,
    #[cfg_attr(test, schemars(extend("enum" = ["plan", "apply", "affinity", "confirm", "undo", "persist", "recover", "status"])))]
    action: &'static str,
    /// In the order in which they are made.
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<&'a [IntendedChange]>,
    /// Those of the peer, if both ends change together.
    #[serde(skip_serializing_if = "Option::is_none")]
    peer_changes: Option<&'a [Change]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transactions: Option<&'a [Entry]>,
}

impl TuneDocument<'_> {
    fn of(action: &'static str) -> Self {
        Self {
            schema: "linerate.tune/1",
            action,
            ..Self::default()
        }
    }
}

/// Carries out a `tune` action.
pub(crate) fn run(action: &TuneAction, state: &FilePath, say: &Say) -> Outcome<()> {
    match action {
        TuneAction::Plan { wanted } => plan(wanted, state, say),
        TuneAction::Apply(args) => apply_as_asked(args, state, say),
        TuneAction::Hold(args) => hold::run(args, state, say).map(drop),
        TuneAction::Search(args) => search(args, state, say),
        TuneAction::Confirm { id } => confirm(state, meant(state, id.as_ref())?.as_deref(), say),
        TuneAction::Affinity {
            nic,
            dry_run,
            persist,
        } => {
            if !dry_run {
                recover_first(state, say)?;
            }
            let endpoint = LocalEndpoint::open(state)?;
            let intent = Intent::affinity(&endpoint, nic)?;
            if *dry_run {
                return show("affinity", &intent, say);
            }
            // Changing interrupt affinity disconnects nobody.
            let stay = StayArgs {
                persist: *persist,
                ..StayArgs::at_once()
            };
            let made = Made::plainly("affinity", &intent);
            apply(&made, endpoint, state, &stay, say)
        }
        TuneAction::Persist(args) => {
            let args = &PersistArgs {
                id: meant(state, args.id.as_ref())?,
                ..args.clone()
            };
            let names = Names::of(state);
            let mut entries = persist::persist(args, state)?;
            names.add_to(&mut entries);
            entries.extend(lease::other_halves(state, &entries, args.remove)?);
            report("persist", &entries, say)
        }
        TuneAction::Boot => persist::boot(state, say),
        TuneAction::Undo { id, peer } => {
            // A rollback is not interrupted.
            let _interrupt = Interrupt::listen()?;
            let given = peer.as_ref();
            undo(
                Far { state, given },
                meant(state, id.as_ref())?.as_deref(),
                say,
            )
        }
        TuneAction::Recover { peer } => {
            let _interrupt = Interrupt::listen()?;
            let names = Names::of(state);
            let mut own = transactions::recover(state)?;
            names.add_to(&mut own);
            let given = peer.as_ref();
            let far = lease::recover(Far { state, given })?;
            report("recover", &[own, far].concat(), say)
        }
        TuneAction::Status => {
            let mut entries = transactions::status(state)?;
            lease::tell(state, &mut entries)?;
            report("status", &entries, say)
        }
    }
}

/// The requested changes; what a plan that comes with linerate goes without is noted.
fn asked(wanted: &WantedArgs, endpoint: &LocalEndpoint, say: &Say) -> Outcome<Intent> {
    let intent = Intent::of(wanted, endpoint)?;
    for line in &intent.without {
        say.note(line);
    }
    Ok(intent)
}

fn plan(wanted: &WantedArgs, state: &FilePath, say: &Say) -> Outcome<()> {
    let endpoint = LocalEndpoint::open(state)?;
    let intent = asked(wanted, &endpoint, say)?;
    let (needs, lacks) = intent.needs();
    let listed = |names: BTreeSet<&str>| Vec::from_iter(names).join(", ");
    if !needs.is_empty() {
        let needs = listed(needs);
        say.note(&if lacks.is_empty() {
            format!("applying requires {needs}")
        } else {
            format!(
                "applying requires {needs}; this process lacks {}",
                listed(lacks)
            )
        });
    }
    if wanted.from.is_none() && wanted.role == Profile::Measurement {
        say.note(
            "to hold these settings and keep the CPUs awake during a measurement: `linerate tune \
             hold [-- COMMAND]`",
        );
    }
    show("plan", &intent, say)
}

fn apply_as_asked(args: &ApplyArgs, state: &FilePath, say: &Say) -> Outcome<()> {
    let ApplyArgs {
        wanted,
        stay,
        prove,
        peer,
    } = args;
    if let Some(peer) = prove {
        if wanted.from.is_none() && wanted.role != Profile::Throughput {
            let why = "`--prove` compares throughput: no other `--role` is supported";
            return Err(Stop::new(Code::Usage, why));
        }
        let mut args = ProveArgs::of(peer);
        args.from.clone_from(&wanted.from);
        args.weigh.allow_management_disruption = stay.allow_management_disruption;
        return run_prove(&args, state, &MetricsOutput::to(None), say);
    }
    if let Some(peer) = peer {
        return apply_to_both(wanted, stay, peer, state, say);
    }
    recover_first(state, say)?;
    let endpoint = LocalEndpoint::open(state)?;
    let intent = asked(wanted, &endpoint, say)?;
    let made = Made::plainly("apply", &intent);
    apply(&made, endpoint, state, stay, say)
}

/// Changes this host and a peer together.
fn apply_to_both(
    wanted: &WantedArgs,
    stay: &StayArgs,
    peer: &PeerAddress,
    state: &FilePath,
    say: &Say,
) -> Outcome<()> {
    let Some(file) = &wanted.from else {
        let why = "`--peer` needs a plan for both hosts: pass it with `--from`";
        return Err(Stop::new(Code::Usage, why));
    };
    let asked = intent::read_both(file)?;
    recover_first_with(Some(peer), state, say)?;
    let interrupt = Interrupt::listen()?;
    let mut path = open_path(
        &PeerArgs::reached(peer, ReachArgs::default()),
        state,
        &interrupt,
        say,
    )?;
    let (intent, far) = intent::both(asked, &mut path)?;
    let near = intent.plan()?;
    if near.changes.is_empty() && far.changes.is_empty() {
        say.note("nothing to change: every setting already has its value");
        path.peer.leave()?;
    } else {
        lease::apply(path, (&near, &far), stay, state, &interrupt, say)?;
    }
    if say.format == Format::Json {
        return say.json(&TuneDocument {
            changes: Some(&intent.changes),
            peer_changes: Some(&far.changes),
            ..TuneDocument::of("apply")
        });
    }
    for line in intent.lines() {
        say.data(&line)?;
    }
    for change in far.changes {
        say.data(&format!("peer: {change}"))?;
    }
    Ok(())
}

/// Changes to be made, and what there is to say about them.
pub(crate) struct Made<'a> {
    /// The action, as the document names it.
    pub(crate) action: &'static str,
    /// The changes.
    pub(crate) intent: &'a Intent,
    /// Notes whose transaction it is, by its id, once the changes are made.
    pub(crate) mark: &'a dyn Fn(&str) -> Outcome<()>,
    /// The command that rolls them back.
    pub(crate) undo: &'static str,
    /// The command that confirms the transaction of this name.
    pub(crate) confirm: fn(&str) -> String,
    /// Prints them as text.
    pub(crate) show: fn(&Intent, &Say) -> Outcome<()>,
}

impl<'a> Made<'a> {
    /// Changes that only the list of transactions knows.
    fn plainly(action: &'static str, intent: &'a Intent) -> Self {
        Self {
            action,
            intent,
            mark: &|_| Ok(()),
            undo: "linerate tune undo",
            confirm: |name| format!("linerate tune confirm {name}"),
            show: lines,
        }
    }
}

/// Carries a plan out, sees to it that it is confirmed or rolled back, and shows it.
pub(crate) fn apply(
    made: &Made<'_>,
    mut endpoint: LocalEndpoint,
    state: &FilePath,
    stay: &StayArgs,
    say: &Say,
) -> Outcome<()> {
    let Made { action, intent, .. } = *made;
    let plan = intent.plan()?;
    if plan.changes.is_empty() {
        say.note("nothing to change: every setting already has its value");
        return show_as(action, intent, made.show, say);
    }
    say.note(&match plan.changes.len() {
        1 => "changing 1 setting".to_owned(),
        all => format!("changing {all} settings"),
    });
    for address in &stay.probe {
        reach(address).map_err(|stop| {
            stop.hint("every probe must also succeed before the change; nothing was changed")
        })?;
    }
    let interrupt = Interrupt::listen()?;
    let deadline = Boottime::now().plus(Duration::from_secs(stay.deadline.into()));
    endpoint.allow_until(deadline);
    endpoint.disturb_way_in(stay.allow_management_disruption);
    endpoint.apply(&plan).map_err(|failure| {
        let stop = Stop::from(failure);
        let (_, lacks) = intent.needs();
        if stop.code == Code::PermissionMissing && !lacks.is_empty() {
            let lacks = Vec::from_iter(lacks).join(", ");
            return stop.hint(format!("run it as root: this process lacks {lacks}"));
        }
        stop
    })?;
    let marked = endpoint.open_id().map_or(Ok(()), |id| (made.mark)(&id));
    let decided =
        marked.and_then(|()| decide(made, &endpoint, (state, stay), deadline, &interrupt, say));
    let (stop, asker) = match decided {
        Ok(Decision::Confirmed(asker)) => {
            for moved in endpoint.moved() {
                say.note(&moved);
            }
            let committed = endpoint.commit().map_err(Stop::from);
            if let Some(asker) = asker {
                asker.hears(&committed);
            }
            committed?;
            // The lock is released with it.
            drop(endpoint);
            if stay.persist {
                let id = transactions::applied(state, None)?.0;
                persist::persist(&PersistArgs::of(id), state)
                    .map_err(|stop| stop.hint("changes applied until the next boot"))?;
                say.note("persistent: applied at every boot");
            }
            say.note(&format!("to roll back: `{}`", made.undo));
            return show_as(action, intent, made.show, say);
        }
        Ok(Decision::Interrupted) => (Stop::interrupted().rolled_back(), None),
        Ok(Decision::Refused(asker)) => {
            let stop = Stop::new(Code::FailedRestored, "undo requested");
            (stop.rolled_back(), asker)
        }
        Ok(Decision::Late) => {
            let limit = stay.deadline;
            let stop = Stop::new(Code::TimeOut, format!("not confirmed within {limit} s"));
            (stop.rolled_back(), None)
        }
        Err(stop) => (stop.rolled_back(), None),
    };
    let undone = endpoint.undo().map_err(Stop::from);
    if let Some(asker) = asker {
        asker.hears(&undone);
    }
    undone.and(Err(stop))
}

/// Whether changes that were just made are to be kept.
fn decide(
    made: &Made<'_>,
    endpoint: &LocalEndpoint,
    (state, stay): (&FilePath, &StayArgs),
    deadline: Boottime,
    interrupt: &Interrupt,
    say: &Say,
) -> Outcome<Decision> {
    let applied = Boottime::now();
    if interrupt.asked() {
        return Ok(Decision::Interrupted);
    }
    if !stay.probe.is_empty() {
        for address in &stay.probe {
            reach(address)?;
        }
        return Ok(Decision::Confirmed(None));
    }
    let Some(folder) = endpoint.open_folder().filter(|_| !stay.no_confirm) else {
        return Ok(Decision::Confirmed(None));
    };
    let control = Control::open(&folder)?;
    let id = folder.file_name().unwrap_or_default().to_string_lossy();
    let id = Names::of(state).get(&id).unwrap_or_else(|| id.into_owned());
    let until = deadline.before(EARLIER);
    let seconds = until.remaining().as_secs();
    let stdin = std::io::stdin();
    let is_asked = !say.quiet && control.is_on_console();
    let keyboard = is_asked.then(|| stdin.as_fd());
    if keyboard.is_some() {
        say.note(&format!("changed; {}", endpoint.with_both_killed()));
        say.note(&format!(
            "Keep these changes? [y/N] (restored in {seconds} s)"
        ));
    } else {
        say.note(&format!(
            "changed; run `{}` over a new connection within {seconds} s to keep the changes; otherwise they are rolled \
             back; {}",
            (made.confirm)(&id),
            endpoint.with_both_killed()
        ));
    }
    Ok(control.wait(applied, until, interrupt, keyboard))
}

/// Confirms the changes to the process that waits for it.
pub(crate) fn confirm(state: &FilePath, id: Option<&str>, say: &Say) -> Outcome<()> {
    let id = waiting(state, id)?;
    let name = Names::of(state).get(&id).unwrap_or_else(|| id.clone());
    confirm::tell(&folder_of(state, &id), ConfirmRequest::Confirm)?;
    say.note(&format!(
        "{name} is kept; to roll back: `linerate tune undo {name}`"
    ));
    let changed = transactions::status(state)?
        .into_iter()
        .filter(|entry| entry.id == id);
    report("confirm", &changed.collect::<Vec<_>>(), say)
}

/// Rolls back what is applied, or has the process that waits for a decision do so.
fn undo(far: Far<'_>, id: Option<&str>, say: &Say) -> Outcome<()> {
    let state = far.state;
    let names = Names::of(state);
    let waits = |id: &str| waiting(state, Some(id)).is_ok();
    match id {
        Some(id) if waits(id) => {
            confirm::tell(&folder_of(state, id), ConfirmRequest::Undo)?;
            let undone = Entry {
                id: id.to_owned(),
                name: None,
                state: "restored",
                about: "by the process that made the changes".to_owned(),
                kept: false,
            };
            report("undo", &names.added(vec![undone]), say)
        }
        id => {
            let far = lease::undo_far_half(far, id)?;
            let own = transactions::undo_committed(state, id)?;
            for entry in &own {
                lease::forget(state, &entry.id)?;
            }
            let own = names.added(own);
            report("undo", &far.into_iter().chain(own).collect::<Vec<_>>(), say)
        }
    }
}

/// The id of the transaction that the command line names.
fn meant(state: &FilePath, name: Option<&String>) -> Outcome<Option<String>> {
    name.map(|name| transactions::id_of(state, name))
        .transpose()
}

/// The short names of the transactions, read before an action that may remove them.
struct Names(Vec<Entry>);

impl Names {
    /// Without a readable state folder there are none: the action itself reports that.
    fn of(state: &FilePath) -> Self {
        Self(transactions::status(state).unwrap_or_default())
    }

    fn get(&self, id: &str) -> Option<String> {
        let of_id = self.0.iter().find(|entry| entry.id == id);
        of_id.and_then(|entry| entry.name.clone())
    }

    fn add_to(&self, entries: &mut [Entry]) {
        for entry in entries {
            if entry.name.is_none() {
                entry.name = self.get(&entry.id);
            }
        }
    }

    fn added(&self, mut entries: Vec<Entry>) -> Vec<Entry> {
        self.add_to(&mut entries);
        entries
    }
}

/// The transaction that is meant: `id`, or the newest that is open.
fn waiting(state: &FilePath, id: Option<&str>) -> Outcome<String> {
    let open = transactions::status(state)?.into_iter().rev();
    let mut open = open.filter(|entry| entry.state == "open");
    match id {
        Some(id) => open
            .find(|entry| entry.id == id)
            .map(|entry| entry.id)
            .ok_or_else(|| {
                Stop::new(
                    Code::BadInput,
                    format!("transaction `{id}` is not waiting for confirmation"),
                )
                .hint("`linerate tune status` lists them")
            }),
        None => open.next().map(|entry| entry.id).ok_or_else(|| {
            Stop::new(Code::BadInput, "no transaction is waiting for confirmation")
                .hint("`linerate tune status` lists them")
        }),
    }
}

fn show(action: &'static str, intent: &Intent, say: &Say) -> Outcome<()> {
    show_as(action, intent, lines, say)
}

fn show_as(
    action: &'static str,
    intent: &Intent,
    text: fn(&Intent, &Say) -> Outcome<()>,
    say: &Say,
) -> Outcome<()> {
    if say.format == Format::Json {
        return say.json(&TuneDocument {
            changes: Some(&intent.changes),
            ..TuneDocument::of(action)
        });
    }
    text(intent, say)
}

/// The changes as text, each with what there is to know of it.
fn lines(intent: &Intent, say: &Say) -> Outcome<()> {
    if intent.changes.is_empty() {
        return say.data("no changes");
    }
    for line in intent.lines() {
        say.data(&line)?;
    }
    Ok(())
}

pub(crate) fn report(action: &'static str, lines: &[Entry], say: &Say) -> Outcome<()> {
    if say.format == Format::Json {
        return say.json(&TuneDocument {
            transactions: Some(lines),
            ..TuneDocument::of(action)
        });
    }
    if lines.is_empty() {
        return say.data(match action {
            "persist" => "no persistent transactions",
            "recover" => "nothing to recover: no incomplete transactions",
            "undo" => "nothing to undo: no applied transactions",
            _ => "no transactions",
        });
    }
    for Entry {
        id,
        name,
        state,
        about,
        kept,
    } in lines
    {
        let kept = if *kept && *state != "kept" {
            ", persistent"
        } else {
            ""
        };
        let name = name.as_ref().unwrap_or(id);
        say.data(&format!("{name}  {state}{kept}  {about}"))?;
    }
    Ok(())
}
