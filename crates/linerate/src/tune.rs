//! `linerate tune`: show, apply, undo and recover settings of this host.

use std::fs;
use std::path::Path as FilePath;

use linerate_model::finding::{Profile, Scene};
use linerate_model::ids::NicName;
use linerate_model::known::Known;
use linerate_model::plan::{Change, End, Plan};
use linerate_model::propose::{Permit, propose};
use linerate_model::prove::EndChange;
use linerate_model::rules;
use linerate_model::setting::{SettingError, SettingKey, Settings, current};
use serde::Serialize;

use crate::cli::TuneAction;
use crate::exit::{Code, Outcome, Stop};
use crate::interrupt::Interrupt;
use crate::say::{Format, Say};
use crate::station::Station;

/// The document that `tune` prints.
#[derive(Debug, Serialize)]
struct TuneDocument<T> {
    schema: &'static str,
    action: &'static str,
    #[serde(flatten)]
    body: T,
}

/// Carries out a `tune` action.
pub fn run(action: &TuneAction, state: &FilePath, say: &Say) -> Outcome<()> {
    match action {
        TuneAction::Plan { from: Some(file) } => {
            let station = Station::open(state)?;
            let plan = plan_from_file(file, &station)?;
            show_plan("plan", &plan, say)
        }
        TuneAction::Plan { from: None } => show_plan("plan", &plan_from_rules(state)?, say),
        TuneAction::Apply { from } => {
            let station = Station::open(state)?;
            let plan = plan_from_file(from, &station)?;
            apply("apply", station, &plan, say)
        }
        TuneAction::Affinity { nic, dry_run } => {
            let station = Station::open(state)?;
            let plan = affinity_plan(&station, nic)?;
            if *dry_run {
                return show_plan("affinity", &plan, say);
            }
            apply("affinity", station, &plan, say)
        }
        TuneAction::Undo { id } => {
            // What puts things back is not stopped half way.
            let _interrupt = Interrupt::listen()?;
            report("undo", Station::undo_committed(state, id.as_deref())?, say)
        }
        TuneAction::Recover => {
            let _interrupt = Interrupt::listen()?;
            report("recover", Station::recover(state)?, say)
        }
        TuneAction::Status => report("status", Station::status(state)?, say),
    }
}

/// Carries a plan out, and shows it.
fn apply(action: &'static str, mut station: Station, plan: &Plan, say: &Say) -> Outcome<()> {
    if plan.changes.is_empty() {
        say.note("nothing to change: every setting has its value already");
    } else {
        say.note(&match plan.changes.len() {
            1 => "changing 1 setting".to_owned(),
            all => format!("changing {all} settings"),
        });
        let interrupt = Interrupt::listen()?;
        station.apply(plan)?;
        if interrupt.asked() {
            station.undo()?;
            return Err(Stop::interrupted());
        }
        station.commit()?;
        say.note("`linerate tune undo` takes it back");
    }
    show_plan(action, plan, say)
}

/// Each interrupt of the interface on a CPU of its own, close to it.
fn affinity_plan(station: &Station, name: &NicName) -> Outcome<Plan> {
    let host = station.read_host();
    let Some(nic) = host.nic(name) else {
        return Err(
            Stop::new(Code::BadInput, format!("there is no interface {name}"))
                .hint("`linerate map` lists those that are there"),
        );
    };
    let changes = match rules::affinity(&host, nic) {
        Known::Value(changes) => changes,
        Known::Unknown(gap) => {
            let why = format!("cannot place the interrupts of {name}: {gap}");
            return Err(Stop::new(Code::NotSupported, why));
        }
    };
    Plan::new(changes).map_err(|error| Stop::new(Code::Bug, error.to_string()))
}

fn show_plan(action: &'static str, plan: &Plan, say: &Say) -> Outcome<()> {
    if say.format == Format::Json {
        return say.json(&TuneDocument {
            schema: "linerate.tune/1",
            action,
            body: plan,
        });
    }
    if plan.changes.is_empty() {
        return say.data("no changes");
    }
    for change in &plan.changes {
        let spec = change.setting.spec();
        say.data(&format!("{change}   [{}, {}]", spec.class, spec.about))?;
    }
    Ok(())
}

fn report(action: &'static str, lines: Vec<crate::station::Entry>, say: &Say) -> Outcome<()> {
    #[derive(Serialize)]
    struct Entries {
        transactions: Vec<crate::station::Entry>,
    }
    if say.format == Format::Json {
        let body = Entries {
            transactions: lines,
        };
        return say.json(&TuneDocument {
            schema: "linerate.tune/1",
            action,
            body,
        });
    }
    if lines.is_empty() {
        return say.data(match action {
            "recover" => "nothing to take back: no linerate was killed at work",
            "undo" => "nothing to take back: no plan is applied",
            _ => "no transactions",
        });
    }
    for entry in &lines {
        say.data(&format!("{}  {}  {}", entry.id, entry.state, entry.about))?;
    }
    Ok(())
}

/// A plan file, from the settings as they are to those that it asks for.
fn plan_from_file(file: &FilePath, station: &Station) -> Outcome<Plan> {
    let text = fs::read_to_string(file)
        .map_err(|error| Stop::io(format!("read the plan {}", file.display()), error))?;
    let wrong = |why: String| Stop::new(Code::BadInput, format!("{}: {why}", file.display()));
    let desired = wanted_settings(&text).map_err(wrong)?;
    let mut now = Settings::new();
    for key in desired.keys() {
        match station.read_setting(key).ok() {
            Ok(from) => now.insert(key.clone(), from.clone()),
            Err(gap) => {
                return Err(Stop::new(
                    Code::NotSupported,
                    format!("cannot change {key}: {gap}"),
                ));
            }
        };
    }
    Plan::towards(&now, &desired).map_err(|error| wrong(error.to_string()))
}

/// What a plan file asks for: a TOML table `[settings]` of `"key" = value`.
pub(crate) fn wanted_settings(text: &str) -> Result<Settings, String> {
    let table: toml::Table = text
        .parse()
        .map_err(|error: toml::de::Error| error.to_string())?;
    for name in table.keys() {
        match name.as_str() {
            "settings" => {}
            "peer" => return Err("`[peer.settings]` needs a peer: use `linerate prove`".to_owned()),
            _ => {
                return Err(format!("`{name}` is not known here: expected `[settings]`"));
            }
        }
    }
    let settings = table
        .get("settings")
        .and_then(toml::Value::as_table)
        .ok_or("it has no table `[settings]`")?;
    let mut wanted = Settings::new();
    for (name, value) in settings {
        let wrong = |error: SettingError| error.to_string();
        let key: SettingKey = name.parse().map_err(wrong)?;
        let to = key.parse_value(&plain_text(value)).map_err(wrong)?;
        wanted.insert(key, to);
    }
    Ok(wanted)
}

/// A TOML value as a person would type it: `true` is `on`, a list is its items with blanks between.
fn plain_text(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        toml::Value::Array(items) => items.iter().map(plain_text).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

/// The remedies of the doctor's findings that this host can carry out alone and at once.
fn plan_from_rules(state: &FilePath) -> Outcome<Plan> {
    let station = Station::open(state)?;
    let host = station.read_host();
    let scene = Scene {
        end: End::Local,
        host: &host,
        nic: None,
        other: None,
        sample: None,
        watch: None,
        profile: Profile::Throughput,
        owns_shapers: false,
    };
    let diagnosis = rules::diagnose(&scene);
    let mut changes: Vec<Change> = Vec::new();
    for proposal in propose(&diagnosis.findings, Permit::default()).to_try {
        for EndChange { change, .. } in proposal.changes {
            let known = current(&host, &change.setting).value().is_some();
            if known && changes.iter().all(|other| other.setting != change.setting) {
                changes.push(change);
            }
        }
    }
    Plan::new(changes).map_err(|error| Stop::new(Code::Bug, error.to_string()))
}
