//! A server that the trials of an experiment load, instead of linerate's own.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::{Experiment, ExperimentError, Factor, LevelTable, Words, wrong};

/// The server of `lab run --url` and `--server`. It is part of a stored run, and of no file: a file could be anybody's,
/// and the command is executed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LoadedServer {
    /// The URL as it was given.
    pub url: String,
    /// Its address.
    pub address: SocketAddr,
    /// The `Host` of the requests.
    pub host: String,
    /// The path of the requests.
    pub path: String,
    /// The shell command that starts it for each trial; none if it runs already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Where it runs.
    pub at: ServerAt,
}

/// Where a server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerAt {
    /// On this host: the peer loads it.
    Here,
    /// At the peer: this host loads it.
    Peer,
    /// On a host that linerate does not run on: this host loads it.
    Elsewhere,
}

impl Experiment {
    /// Checks that a server of others can take the place of linerate's own in every trial.
    pub fn check_for_server(&self) -> Result<(), ExperimentError> {
        let levels = || self.factors.iter().flat_map(levels_of);
        let workloads = levels().filter_map(|level| level.workload);
        let mut workloads = workloads.chain([self.workload.clone()]);
        if let Some(other) = workloads.find(|workload| workload != "http") {
            return Err(wrong(
                "workload",
                format!(
                    "the experiment measures `{other}`, and a URL can be loaded with `http` only"
                ),
            ));
        }
        if levels().any(|level| level.peer.at.is_some() || level.address.is_some()) {
            let why = "a level has another peer or address, and the server has one URL";
            return Err(wrong("factors", why));
        }
        Ok(())
    }

    /// Loads `server` in every trial. Only the settings of its host are changed: the other end is the load generator. A
    /// factor with a level that changes nothing else is left out; returns which, and why, as text.
    pub fn load(&mut self, server: LoadedServer) -> Result<Vec<String>, ExperimentError> {
        let clear = |local: &mut Words, peer: &mut Words| match server.at {
            ServerAt::Peer => local.clear(),
            ServerAt::Here | ServerAt::Elsewhere => peer.clear(),
        };
        clear(&mut self.settings, &mut self.peer.settings);
        let mut left_out: Vec<(String, String)> = Vec::new();
        for factor in &mut self.factors {
            let tables = (0..factor.levels.len()).filter_map(|place| factor.level(place));
            let mut tables: Vec<LevelTable> = tables.collect();
            if tables.iter().all(has_no_setting) {
                continue;
            }
            factor.name = Some(factor.name().to_owned());
            factor.setting = None;
            factor.on = None;
            for table in &mut tables {
                let had_none = has_no_setting(table);
                clear(&mut table.settings, &mut table.peer.settings);
                if !had_none && has_no_setting(table) {
                    let why = format!(
                        "`{}` changes only the host that generates the load, not the server's",
                        table.name
                    );
                    left_out.push((factor.name().to_owned(), why));
                    break;
                }
            }
            factor.levels = tables.into_iter().map(super::Level::Table).collect();
        }
        self.leave_out(&left_out)?;
        let touches = |key: &String| {
            let of_levels = self.factors.iter().flat_map(levels_of);
            let mut tables = of_levels.map(|level| [level.settings, level.peer.settings]);
            tables.any(|[local, peer]| local.contains_key(key) || peer.contains_key(key))
                || self.settings.contains_key(key)
                || self.peer.settings.contains_key(key)
        };
        let optional = std::mem::take(&mut self.optional);
        self.optional = optional.into_iter().filter(touches).collect();
        self.server = Some(server);
        let words = left_out.iter().map(|(name, why)| format!("{name}: {why}"));
        Ok(words.collect())
    }

    /// Removes factors, and what names them: a published figure of one has no counterpart.
    fn leave_out(&mut self, factors: &[(String, String)]) -> Result<(), ExperimentError> {
        let is_out = |name: &str| factors.iter().any(|(out, _)| out == name);
        let (Some((name, why)), difference) = (factors.first(), self.difference.as_ref()) else {
            return Ok(());
        };
        let nothing_left = self.factors.iter().all(|factor| is_out(factor.name()));
        if nothing_left || difference.is_some_and(|one| is_out(&one.factor)) {
            return Err(wrong(name, why));
        }
        self.factors.retain(|factor| !is_out(factor.name()));
        self.design.crossed.retain(|name| !is_out(name));
        self.design.apart.retain(|name| !is_out(name));
        for published in &mut self.published {
            let named = |figure: &super::PublishedFigure| figure.at.keys().any(|name| is_out(name));
            published.figures.retain(|figure| !named(figure));
        }
        self.published
            .retain(|published| !published.figures.is_empty());
        Ok(())
    }
}

fn levels_of(factor: &Factor) -> impl Iterator<Item = LevelTable> {
    (0..factor.levels.len()).filter_map(|place| factor.level(place))
}

fn has_no_setting(table: &LevelTable) -> bool {
    table.settings.is_empty() && table.peer.settings.is_empty()
}
