//! Designed experiments: what is varied, what is measured, and which effects are estimated.
//!
//! A factor is anything that a trial can be run with: an option of its workload, or settings of either host. Options
//! are named as in `linerate measure`, settings by the keys of a plan; here they are text, and the runner of the
//! experiment parses them.

pub mod design;
mod difference;
mod local;
mod published;
mod response;
mod server;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::end::End;

pub use self::design::{Cell, Contrast, Design, DesignKind, Layout, LayoutError};
pub use self::difference::{Difference, DifferencePlaces};
pub use self::published::{Amount, Published, PublishedFigure};
pub use self::response::{Response, Responses, Unit};
pub use self::server::{LoadedServer, ServerAt};
pub use self::words::{Share, Word};

/// `"key" = value`, as a file gives them.
pub type Words = BTreeMap<String, Word>;

/// The name of the schema of a file.
pub const SCHEMA: &str = "linerate.experiment/1";
/// The workload that needs no peer.
const LOCAL_WORKLOAD: &str = "block";
/// The maximum number of factors.
pub const FACTORS_MAX: usize = 32;
/// The maximum number of levels of a factor.
pub const LEVELS_MAX: usize = 64;

/// The file of `linerate lab run FILE.toml`. Options are those of `linerate measure WORKLOAD --help`; settings have the
/// keys of `linerate explain settings`, with `@` for the interface of the path (for the workload `block`: the disk),
/// `rx-*`, `tx-*`, `cpu*` and `policy*` for all of a kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Experiment {
    /// [`SCHEMA`], for editors that complete and validate a file by its schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// Its name.
    pub title: String,
    /// The question it should answer.
    #[serde(default)]
    pub question: String,
    /// The workload: a subcommand of `linerate measure`.
    pub workload: String,
    /// The block device of this host, `/dev/nvme0n1`, for the workload `block`; by default that of the command line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The responses: the first one decides, the others are reported.
    #[serde(default)]
    pub response: Responses,
    /// Options of the workload, for every trial.
    #[serde(default)]
    pub options: Words,
    /// Settings of this host for every trial.
    #[serde(default)]
    pub settings: Words,
    /// Settings of the peer for every trial.
    #[serde(default)]
    pub peer: OfPeer,
    /// Settings, written as in `settings`, that every combination goes without on a host whose kernel or driver does not
    /// have them. Without this, the level that changes such a setting is skipped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub optional: Vec<String>,
    /// A background workload.
    #[serde(default)]
    pub beside: Vec<Beside>,
    /// The factors.
    pub factors: Vec<Factor>,
    /// The design.
    #[serde(default)]
    pub design: Design,
    /// A factor of two levels: the difference of their times per GB moved, within the same block, for each combination
    /// of the other factors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<Difference>,
    /// What changes in the short form.
    #[serde(default)]
    pub quick: Quick,
    /// Published figures, to be printed next to the results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Published>,
    /// The server that the trials load instead of linerate's own; only in a stored run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub server: Option<LoadedServer>,
}

/// The peer's part.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct OfPeer {
    /// Its address, as on the command line; for a level, another host instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// Settings of the peer.
    #[serde(default)]
    pub settings: Words,
}

/// A workload that runs at the same time as the measured one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Beside {
    /// The workload: a subcommand of `linerate measure`.
    pub workload: String,
    /// Its options.
    #[serde(default)]
    pub options: Words,
}

/// A factor: something with several levels.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Factor {
    /// Its name; by default that of the option or the setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// An option of the workload, or `workload` itself: the levels are its values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub option: Option<String>,
    /// A setting: the levels are its values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setting: Option<String>,
    /// The hosts on which the setting is changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<On>,
    /// The levels; the others are compared with the first.
    pub levels: Vec<Level>,
    /// Each level makes the changes of those before it too, and is compared with the one before it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub steps: bool,
    /// The levels of the short form, by their places from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quick: Option<Vec<usize>>,
}

/// The hosts on which a setting is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum On {
    /// This one.
    Local,
    /// The peer.
    #[serde(alias = "remote")]
    Peer,
    /// Both.
    #[default]
    Both,
}

/// A level as a file writes it: a value, or a table of changes.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Level {
    /// A value of the factor's option or setting.
    Value(Word),
    /// A table of changes.
    Table(LevelTable),
}

/// Everything that a level changes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LevelTable {
    /// Its name.
    pub name: String,
    /// The folder of an earlier run, relative to this file, whose trials are this level's; the level has no other keys.
    /// They are not interleaved with the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The workload, if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    /// The peer's data address, if it differs: another path between the same hosts. `@KIND` is the address on
    /// interfaces of a kind that both hosts have, such as `@tunnel`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The block device, if it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Options of the workload.
    #[serde(default)]
    pub options: Words,
    /// Settings of this host.
    #[serde(default)]
    pub settings: Words,
    /// Of the peer.
    #[serde(default)]
    pub peer: OfPeer,
}

/// What changes in the short form.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Quick {
    /// Options of the workload.
    #[serde(default)]
    pub options: Words,
    /// How often the design is repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeats: Option<u32>,
}

/// Why an experiment is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {why}")]
pub struct ExperimentError {
    /// Where in the file: the nearest name.
    pub place: String,
    /// Why.
    pub why: String,
}

fn wrong(place: impl Into<String>, why: impl Into<String>) -> ExperimentError {
    ExperimentError {
        place: place.into(),
        why: why.into(),
    }
}

impl Factor {
    /// Its name.
    pub fn name(&self) -> &str {
        let own = self.name.as_deref().or(self.option.as_deref());
        own.or(self.setting.as_deref()).unwrap_or("factor")
    }

    /// Everything that a level changes, in one form.
    pub fn level(&self, place: usize) -> Option<LevelTable> {
        let mut level = self.own_changes(place)?;
        if self.steps {
            for before in (0..place).rev() {
                level.fill(self.own_changes(before)?);
            }
        }
        Some(level)
    }

    /// What a level itself names.
    fn own_changes(&self, place: usize) -> Option<LevelTable> {
        let word = match self.levels.get(place)? {
            Level::Table(table) => return Some(table.clone()),
            Level::Value(word) => word,
        };
        let mut table = LevelTable {
            name: word.to_string(),
            ..LevelTable::default()
        };
        match (self.option.as_deref(), &self.setting) {
            (Some("workload"), _) => table.workload = Some(word.to_string()),
            (Some(option), _) => {
                table.options.insert(option.to_owned(), word.clone());
            }
            (None, Some(setting)) => {
                let on = self.on.unwrap_or_default();
                if on != On::Peer {
                    table.settings.insert(setting.clone(), word.clone());
                }
                if on != On::Local {
                    table.peer.settings.insert(setting.clone(), word.clone());
                }
            }
            (None, None) => {}
        }
        Some(table)
    }

    /// The levels that are earlier runs, with their directories.
    pub fn runs(&self) -> impl Iterator<Item = (usize, &str)> {
        let levels = self.levels.iter().enumerate();
        levels.filter_map(|(at, level)| match level {
            Level::Table(table) => Some((at, table.run.as_deref()?)),
            Level::Value(_) => None,
        })
    }

    /// The names of its levels.
    pub fn level_names(&self) -> Vec<String> {
        let levels = (0..self.levels.len()).filter_map(|at| self.level(at));
        levels.map(|level| level.name).collect()
    }

    fn check(&self) -> Result<(), ExperimentError> {
        let name = self.name();
        let values = self.levels.iter();
        let has_values = values.clone().any(|level| matches!(level, Level::Value(_)));
        match (&self.option, &self.setting) {
            (Some(_), Some(_)) => {
                return Err(wrong(
                    name,
                    "a factor takes either an `option` or a `setting`, not both",
                ));
            }
            (None, None) if self.name.is_none() => {
                return Err(wrong(
                    "factors",
                    "a factor needs an `option`, a `setting`, or a `name` and levels that are tables",
                ));
            }
            (None, None) if has_values => {
                return Err(wrong(
                    name,
                    "without an `option` or a `setting` every level is a table, such as \
                     { name = \"off\", settings = { \"nic/@/feature/tso\" = false } }",
                ));
            }
            (Some(_), None) if self.on.is_some() => {
                return Err(wrong(name, "`on` applies to settings only"));
            }
            _ => {}
        }
        if !(2..=LEVELS_MAX).contains(&self.levels.len()) {
            let why = format!(
                "{} levels: a factor has 2 to {LEVELS_MAX}",
                self.levels.len()
            );
            return Err(wrong(name, why));
        }
        if name.contains('*') {
            return Err(wrong(
                name,
                "give it a `name` without `*`, which stands between the factors of an interaction",
            ));
        }
        let mut names = BTreeSet::new();
        for place in 0..self.levels.len() {
            let level = self.level(place).unwrap_or_default();
            level.check_run()?;
            if !names.insert(level.name.clone()) {
                return Err(wrong(
                    name,
                    format!("two levels are called `{}`", level.name),
                ));
            }
        }
        if self.runs().count() == self.levels.len() {
            let why = "every level is an earlier run, so nothing would be measured: compare the \
                runs with `linerate compare`";
            return Err(wrong(name, why));
        }
        match &self.quick {
            Some(quick) if !is_choice(quick, self.levels.len()) => {
                let why = format!(
                    "`quick` lists two or more level indexes, 0 to {}",
                    self.levels.len() - 1
                );
                Err(wrong(name, why))
            }
            _ => Ok(()),
        }
    }
}

impl LevelTable {
    /// Takes the changes of `other` that it does not make itself.
    fn fill(&mut self, other: Self) {
        self.workload = self.workload.take().or(other.workload);
        self.address = self.address.take().or(other.address);
        self.device = self.device.take().or(other.device);
        self.run = self.run.take().or(other.run);
        self.peer.at = self.peer.at.take().or(other.peer.at);
        let fill = |own: &mut Words, other: Words| {
            for (key, word) in other {
                own.entry(key).or_insert(word);
            }
        };
        fill(&mut self.options, other.options);
        fill(&mut self.settings, other.settings);
        fill(&mut self.peer.settings, other.peer.settings);
    }

    /// Checks the references to earlier runs.
    fn check_run(&self) -> Result<(), ExperimentError> {
        let Some(run) = &self.run else {
            return Ok(());
        };
        let alone = Self {
            name: self.name.clone(),
            run: self.run.clone(),
            ..Self::default()
        };
        if *self == alone {
            return Ok(());
        }
        let why = "a level with an earlier run takes only `name` and `run`";
        Err(wrong(run, why))
    }
}

impl Experiment {
    /// Checks that the experiment is consistent.
    pub fn check(&self) -> Result<(), ExperimentError> {
        if self
            .schema
            .as_deref()
            .is_some_and(|schema| schema != SCHEMA)
        {
            return Err(wrong("schema", format!("this linerate reads `{SCHEMA}`")));
        }
        if !(1..=FACTORS_MAX).contains(&self.factors.len()) {
            let why = format!(
                "{} factors: an experiment has 1 to {FACTORS_MAX}",
                self.factors.len()
            );
            return Err(wrong("factors", why));
        }
        let mut names = BTreeSet::new();
        let mut owners: BTreeMap<String, &str> = BTreeMap::new();
        for factor in &self.factors {
            factor.check()?;
            if !names.insert(factor.name()) {
                return Err(wrong(factor.name(), "two factors have this name"));
            }
            for at in 0..factor.levels.len() {
                for touched in touched(&factor.level(at).unwrap_or_default()) {
                    let owner = owners.entry(touched.clone()).or_insert(factor.name());
                    if *owner != factor.name() {
                        let why = format!("{touched} is varied by `{owner}` too");
                        return Err(wrong(factor.name(), why));
                    }
                }
            }
        }
        self.check_optional()?;
        self.check_local()?;
        self.check_runs()?;
        if let Some(difference) = &self.difference {
            difference.places(&self.factors)?;
        }
        for published in &self.published {
            published.check(self)?;
        }
        self.design.check("repeats")?;
        let quick = Design {
            repeats: self.quick.repeats.unwrap_or(self.design.repeats),
            until: None,
            ..self.design.clone()
        };
        quick.check("quick")?;
        for asked in &self.design.ask {
            self.effect(asked)?;
        }
        let of_design = [
            ("crossed", &self.design.crossed),
            ("apart", &self.design.apart),
        ];
        for (key, named) in of_design {
            if let Some(name) = named.iter().find(|name| !names.contains(name.as_str())) {
                let names: Vec<&str> = names.iter().copied().collect();
                let why = format!("no factor `{name}`; factors: {}", names.join(", "));
                return Err(wrong(key, why));
            }
        }
        Ok(())
    }

    /// Whether its trials run on this host alone.
    pub fn is_local(&self) -> bool {
        self.workload == LOCAL_WORKLOAD
    }

    fn check_optional(&self) -> Result<(), ExperimentError> {
        let levels = self
            .factors
            .iter()
            .flat_map(|factor| (0..factor.levels.len()).filter_map(|level| factor.level(level)));
        let tables = levels.map(|level| [level.settings, level.peer.settings]);
        let mut known: BTreeSet<String> = tables.flatten().flat_map(Words::into_keys).collect();
        known.extend(
            self.settings
                .keys()
                .chain(self.peer.settings.keys())
                .cloned(),
        );
        match self.optional.iter().find(|key| !known.contains(*key)) {
            Some(key) => Err(wrong("optional", format!("nothing changes `{key}`"))),
            None => Ok(()),
        }
    }

    /// The factor that has earlier runs among its levels.
    pub fn factor_of_runs(&self) -> Option<usize> {
        (self.factors.iter()).position(|factor| factor.runs().next().is_some())
    }

    fn check_runs(&self) -> Result<(), ExperimentError> {
        let mut with = (self.factors.iter()).filter(|factor| factor.runs().next().is_some());
        let Some(first) = with.next() else {
            return Ok(());
        };
        if let Some(other) = with.next() {
            let first = first.name();
            let why = format!("`{first}` has earlier runs as levels too: one factor may");
            return Err(wrong(other.name(), why));
        }
        if self.factors.len() == 1 {
            let why = "an earlier run needs another factor besides it: compare the runs with \
                `linerate compare`";
            return Err(wrong(first.name(), why));
        }
        if self.design.kind == DesignKind::Full {
            return Ok(());
        }
        let why = "an earlier run as a level takes a full design: `kind = \"full\"`";
        Err(wrong("kind", why))
    }

    /// The factors of a requested effect: one, or the two of an interaction `a*b`.
    pub fn effect(&self, asked: &str) -> Result<Vec<usize>, ExperimentError> {
        let place = |name: &str| {
            let name = name.trim();
            let found = (self.factors.iter()).position(|factor| factor.name() == name);
            found.ok_or_else(|| {
                let names: Vec<&str> = self.factors.iter().map(Factor::name).collect();
                let why = format!("no factor `{name}`; factors: {}", names.join(", "));
                wrong(asked, why)
            })
        };
        let effect: Vec<usize> = asked.split('*').map(place).collect::<Result<_, _>>()?;
        match effect[..] {
            [_] => Ok(effect),
            [one, other] if one != other => Ok(effect),
            _ => Err(wrong(
                asked,
                "an effect names one factor, or two different ones: `a*b`",
            )),
        }
    }

    /// The requested effects: those in the file; by default every factor, and every pair that the design can separate.
    pub fn asked(&self) -> Vec<Vec<usize>> {
        if !self.design.ask.is_empty() {
            let asked = self.design.ask.iter();
            return asked.filter_map(|name| self.effect(name).ok()).collect();
        }
        let named = |names: &[String], at: usize| {
            let name = self.factors[at].name();
            names.iter().any(|one| one == name)
        };
        let number = self.factors.len();
        let estimated = (0..number).filter(|at| !named(&self.design.apart, *at));
        let estimated: Vec<usize> = estimated.collect();
        let mut all: Vec<Vec<usize>> = estimated.iter().map(|factor| vec![*factor]).collect();
        let is_full = self.design.kind == DesignKind::Full;
        let crossed = |at: usize| named(&self.design.crossed, at);
        for (place, &one) in estimated.iter().enumerate() {
            let others = estimated[place + 1..].iter();
            let told = others.filter(|&&other| is_full || crossed(one) || crossed(other));
            all.extend(told.map(|&other| vec![one, other]));
        }
        all
    }

    /// The settings, as written, that some combination changes on the host of `end`.
    pub fn changed_on(&self, end: End) -> BTreeSet<String> {
        let of = |settings: &Words, peer: &OfPeer| match end {
            End::Local => settings.keys().cloned().collect::<Vec<_>>(),
            End::Remote => peer.settings.keys().cloned().collect(),
        };
        let factors = self.factors.iter();
        let levels = factors.flat_map(|factor| {
            (0..factor.levels.len()).filter_map(move |level| factor.level(level))
        });
        let of_levels = levels.flat_map(|level| of(&level.settings, &level.peer));
        of_levels.chain(of(&self.settings, &self.peer)).collect()
    }

    /// The name of an effect.
    pub fn effect_name(&self, effect: &[usize]) -> String {
        let names: Vec<&str> = (effect.iter())
            .filter_map(|factor| self.factors.get(*factor))
            .map(Factor::name)
            .collect();
        names.join("*")
    }

    /// The short form: fewer levels, and the changes in `quick`.
    #[must_use]
    pub fn quick(mut self) -> Self {
        for (name, word) in std::mem::take(&mut self.quick.options) {
            self.options.insert(name, word);
        }
        if let Some(repeats) = self.quick.repeats {
            self.design.repeats = repeats;
        }
        self.design.until = None;
        for factor in &mut self.factors {
            if let Some(places) = factor.quick.take() {
                let levels = places.iter().filter_map(|at| factor.levels.get(*at));
                factor.levels = levels.cloned().collect();
            }
        }
        self
    }

    /// The options and settings of a trial for `cell`: the first one given counts, levels before those for every
    /// trial. `peer.at` of a level names another host.
    pub fn at(&self, cell: &[usize]) -> LevelTable {
        let mut whole = LevelTable::default();
        let levels = self.factors.iter().zip(cell);
        for level in levels.filter_map(|(factor, level)| factor.level(*level)) {
            whole.fill(level);
        }
        whole.fill(LevelTable {
            workload: Some(self.workload.clone()),
            device: self.device.clone(),
            options: self.options.clone(),
            settings: self.settings.clone(),
            peer: OfPeer {
                at: None,
                settings: self.peer.settings.clone(),
            },
            ..LevelTable::default()
        });
        whole
    }

    /// The names of a cell's levels, in the order of the factors.
    pub fn level_names(&self, cell: &[usize]) -> Vec<String> {
        let levels = self.factors.iter().zip(cell);
        let names = levels.map(|(factor, level)| factor.level(*level).unwrap_or_default().name);
        names.collect()
    }
}

/// Whether these are at least two different valid indices.
fn is_choice(places: &[usize], number: usize) -> bool {
    let different: BTreeSet<usize> = places.iter().copied().collect();
    different.len() == places.len() && places.len() > 1 && places.iter().all(|at| *at < number)
}

/// Every key that a level can have.
fn touched(level: &LevelTable) -> Vec<String> {
    let options = level.options.keys().map(|key| format!("option `{key}`"));
    let local = level.settings.keys().map(|key| format!("setting `{key}`"));
    let peer = (level.peer.settings.keys()).map(|key| format!("the peer's setting `{key}`"));
    let workload = level.workload.iter().map(|_| "the workload".to_owned());
    let address = level.address.iter().map(|_| "the address".to_owned());
    let device = level.device.iter().map(|_| "the device".to_owned());
    let host = level.peer.at.iter().map(|_| "the peer".to_owned());
    options
        .chain(local)
        .chain(peer)
        .chain(workload)
        .chain(address)
        .chain(device)
        .chain(host)
        .collect()
}

#[cfg(test)]
mod tests;
