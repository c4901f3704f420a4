//! Compares meshes before a change with meshes after it, host by host.
//!
//! The unit is the directed pair: the logarithm of its rate after over before. These ratios are a table of senders and
//! receivers like the rates themselves, so a slower host does not make its partners slower ([`linerate_stats::two_way`]). The
//! rate of all hosts is a row of its own. Errors are those of [`crate::failover_comparison`]: the interval that decides
//! `worse` is corrected for all rows, that of `not-worse` needs no correction.

use std::collections::BTreeMap;

use linerate_model::mesh::{HostIndex, MeshHost};
use linerate_stats::Interval;
use linerate_stats::summary::median;
use linerate_stats::two_way::{Cell, Spread, TwoWay, shift};
use serde::Serialize;

use super::{Effect, Gathered, Side};
use crate::changes::Change;
use crate::experiment::compare::{ERROR, Verdict};

/// A host with fewer pairs is not compared.
const PAIRS_MIN: usize = 3;

/// What `linerate compare RUNS RUNS --format json` prints of runs of `mesh`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct MeshComparison {
    /// The name of this schema.
    pub schema: &'static str,
    /// The baseline runs, separated by commas.
    pub before: String,
    /// The runs that are compared with them.
    pub after: String,
    /// How many runs `before` has.
    pub runs_before: usize,
    /// How many runs `after` has.
    pub runs_after: usize,
    /// Slowdowns below this share are no regression.
    pub margin: f64,
    /// The probability of a wrong verdict, over all rows.
    pub error: f64,
    /// `worse` if a row is or a pair fails only after the change; `not-worse` if every row is and no pair is missing.
    pub verdict: Verdict,
    /// Why it is `cannot-tell`; null otherwise.
    pub why: Option<String>,
    /// All hosts together, then each host as the sender and as the receiver.
    pub rows: Vec<ComparedHost>,
    /// Directed pairs that were measured before and failed after.
    pub failed: Vec<[String; 2]>,
    /// Directed pairs that were measured on one side only and did not fail on the other.
    pub unmatched: usize,
    /// What differs between the hosts of the first runs of both sides.
    pub differences: Vec<Change>,
}

/// How the rate of a host changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ComparedHost {
    /// The host; null for all together.
    pub host: Option<String>,
    /// `send` or `receive`; null for all together.
    pub side: Option<&'static str>,
    /// How many directed pairs were compared.
    pub pairs: usize,
    /// The change of the rate with the interval that decides `not-worse`; null with too few pairs.
    pub effect: Option<Effect>,
    /// The same with the interval corrected for all rows, which decides `worse`.
    pub among_all: Option<Effect>,
    /// Whether it is faster by more than the margin, by the corrected interval.
    pub is_better: bool,
    /// The verdict.
    pub verdict: Verdict,
}

/// The meshes before a change, or those after it.
#[derive(Debug, Clone, Default)]
pub struct MeshSide {
    /// As they were named.
    pub name: String,
    /// How many runs.
    pub runs: usize,
    /// Of each directed pair the logarithms of its rates, and how often it failed.
    pairs: BTreeMap<(String, String), (Vec<f64>, u32)>,
}

impl MeshSide {
    /// A side without a run.
    pub fn named(name: String) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }

    /// Adds what a mesh of these hosts measured.
    pub fn add(&mut self, hosts: &[MeshHost], gathered: &Gathered) {
        self.runs += 1;
        let key = |from: usize, to: usize| (hosts[from].name.clone(), hosts[to].name.clone());
        for entry in gathered.judged() {
            let pair = self.pairs.entry(key(entry.from.into(), entry.to.into()));
            pair.or_default().0.push(f64::from(entry.log_rate));
        }
        for flow in &gathered.failed {
            let pair = self
                .pairs
                .entry(key(flow.from.position(), flow.to.position()));
            pair.or_default().1 += 1;
        }
    }
}

/// Compares two sides, whose first runs differ in `differences`; none if they have no pair in common.
pub fn compare(
    before: MeshSide,
    after: MeshSide,
    margin: f64,
    differences: Vec<Change>,
) -> Option<MeshComparison> {
    let mut names: Vec<&String> = before
        .pairs
        .keys()
        .flat_map(|(one, two)| [one, two])
        .collect();
    names.sort_unstable();
    names.dedup();
    let mut cells = Vec::new();
    let mut failed = Vec::new();
    let mut unmatched = 0;
    for (key, (was, _)) in &before.pairs {
        let (is, failures) = after.pairs.get(key).cloned().unwrap_or_default();
        match (median(was), median(&is)) {
            (Ok(was), Ok(is)) => cells.push(cell(&names, key, is - was)?),
            (Ok(_), Err(_)) if failures > 0 => failed.push([key.0.clone(), key.1.clone()]),
            (Ok(_), Err(_)) => unmatched += 1,
            (Err(_), _) => {}
        }
    }
    let only_after = after.pairs.iter().filter(|(key, (is, _))| {
        !is.is_empty()
            && before
                .pairs
                .get(*key)
                .is_none_or(|(was, failures)| was.is_empty() && *failures == 0)
    });
    unmatched += only_after.count();
    if cells.is_empty() && failed.is_empty() {
        return None;
    }
    let rows = rows(&names, &cells, margin);
    let (verdict, why) = overall(&rows, &failed, unmatched);
    Some(MeshComparison {
        schema: "linerate.mesh-compare/1",
        runs_before: before.runs,
        runs_after: after.runs,
        margin,
        error: ERROR,
        verdict,
        why,
        rows,
        failed,
        unmatched,
        differences,
        before: before.name,
        after: after.name,
    })
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "positions are below HOSTS_MAX, and 7 digits of a logarithm are enough"
)]
fn cell(names: &[&String], (from, to): &(String, String), value: f64) -> Option<Cell> {
    let position = |name| names.binary_search(&name).ok().map(|at| at as u32);
    Some(Cell {
        row: position(from)?,
        column: position(to)?,
        value: value as f32,
    })
}

/// All together, and each host on each side.
fn rows(names: &[&String], cells: &[Cell], margin: f64) -> Vec<ComparedHost> {
    let fit = TwoWay::fit(names.len(), names.len(), cells);
    // Of the center and the effects of the other side nothing is left; those of the own side remain.
    let own = |cell: &Cell, side: Side| {
        let host = match side {
            Side::Send => fit.rows[cell.row as usize],
            Side::Receive => fit.columns[cell.column as usize],
        };
        fit.center + host.unwrap_or(0.0) + fit.residual(cell)
    };
    let mut sides: BTreeMap<(HostIndex, Side), Vec<f64>> = BTreeMap::new();
    for cell in cells {
        for (host, side) in [(cell.row, Side::Send), (cell.column, Side::Receive)] {
            let values = sides.entry((HostIndex(host), side)).or_default();
            values.push(own(cell, side));
        }
    }
    let all: Vec<f64> = cells
        .iter()
        .map(|cell| fit.center + fit.residual(cell))
        .collect();
    let count = u32::try_from(sides.len() + 1).unwrap_or(u32::MAX);
    let of_each = ERROR / f64::from(count);
    let compared = |host: Option<(HostIndex, Side)>, values: &[f64]| {
        row(
            names,
            host,
            values,
            (fit.scale, fit.freedom),
            (margin, of_each),
        )
    };
    let hosts = sides
        .iter()
        .map(|(host, values)| compared(Some(*host), values));
    std::iter::once(compared(None, &all)).chain(hosts).collect()
}

fn row(
    names: &[&String],
    host: Option<(HostIndex, Side)>,
    values: &[f64],
    (scale, freedom): (Option<f64>, f64),
    (margin, error): (f64, f64),
) -> ComparedHost {
    let effect_at = |error: f64| -> Option<(f64, Interval)> {
        let spread = Spread {
            scale: scale?,
            freedom,
            inflation: 1.0,
            common: 0.0,
        };
        (values.len() >= PAIRS_MIN).then_some(())?;
        shift(values, spread, 1.0 - 2.0 * error)
    };
    let (plain, corrected) = (effect_at(ERROR), effect_at(error));
    let limit = (-margin).ln_1p();
    let verdict = match (plain, corrected) {
        (_, Some((_, one))) if one.high < limit => Verdict::Worse,
        (Some((_, one)), _) if one.low >= limit => Verdict::NotWorse,
        _ => Verdict::CannotTell,
    };
    ComparedHost {
        host: host.map(|(host, _)| names[host.position()].clone()),
        side: host.map(|(_, side)| match side {
            Side::Send => "send",
            Side::Receive => "receive",
        }),
        pairs: values.len(),
        effect: plain.map(Effect::of),
        among_all: corrected.map(Effect::of),
        is_better: corrected.is_some_and(|(_, one)| one.low > margin.ln_1p()),
        verdict,
    }
}

fn overall(
    rows: &[ComparedHost],
    failed: &[[String; 2]],
    unmatched: usize,
) -> (Verdict, Option<String>) {
    let is = |verdict: Verdict| move |row: &ComparedHost| row.verdict == verdict;
    if rows.iter().any(is(Verdict::Worse)) || !failed.is_empty() {
        return (Verdict::Worse, None);
    }
    if unmatched > 0 {
        let why = format!("{unmatched} directed pairs were measured on one side only");
        return (Verdict::CannotTell, Some(why));
    }
    if rows.iter().all(is(Verdict::NotWorse)) {
        return (Verdict::NotWorse, None);
    }
    let why = if rows.iter().any(|row| row.effect.is_none()) {
        "too few pairs"
    } else {
        "the rates scatter too much"
    };
    (Verdict::CannotTell, Some(why.to_owned()))
}

#[cfg(test)]
mod tests {
    use linerate_model::mesh::Pattern;
    use linerate_stats::Seed;

    use super::super::simulated::{Fault, Noise, SimulatedMesh};
    use super::*;

    fn side(faults: Vec<Fault>, seed: u64) -> MeshSide {
        let mut mesh = SimulatedMesh::clean(8, Noise::Normal, 0.003);
        mesh.hosts_scale = 0.0;
        mesh.faults = faults;
        let run = mesh.run(&Pattern::Pairs, Seed(seed));
        let mut side = MeshSide::default();
        side.add(&mesh.hosts, &run.first);
        side
    }

    fn verdicts(
        comparison: &MeshComparison,
        verdict: Verdict,
    ) -> Vec<(Option<&str>, Option<&str>)> {
        let rows = comparison.rows.iter().filter(|row| row.verdict == verdict);
        rows.map(|row| (row.host.as_deref(), row.side)).collect()
    }

    #[test]
    fn a_host_that_became_slower_is_worse_and_its_partners_are_not() {
        let slow = side(vec![Fault::Send(HostIndex(3), 0.8)], 2);
        let comparison = compare(side(Vec::new(), 1), slow, 0.02, Vec::new()).expect("pairs");
        assert_eq!(comparison.verdict, Verdict::Worse);
        let worse = verdicts(&comparison, Verdict::Worse);
        assert_eq!(worse, [(Some("h3"), Some("send"))]);
        let row = comparison
            .rows
            .iter()
            .find(|row| row.verdict == Verdict::Worse);
        let effect = row.and_then(|row| row.effect).expect("an effect");
        assert!(effect.low < -0.19 && effect.high > -0.21, "{effect:?}");
    }

    #[test]
    fn the_same_mesh_again_is_not_worse_and_a_faster_one_is_better() {
        let same = compare(side(Vec::new(), 1), side(Vec::new(), 2), 0.02, Vec::new());
        let same = same.expect("pairs");
        assert_eq!(same.verdict, Verdict::NotWorse, "{same:?}");
        assert_eq!(same.rows.len(), 17);
        let slow = side(vec![Fault::Receive(HostIndex(1), 0.8)], 3);
        let better = compare(slow, side(Vec::new(), 2), 0.02, Vec::new()).expect("pairs");
        let is_better = |row: &&ComparedHost| row.is_better && row.host.as_deref() == Some("h1");
        assert_eq!(better.rows.iter().filter(is_better).count(), 1);
        assert_eq!(better.verdict, Verdict::NotWorse);
    }

    #[test]
    fn a_pair_that_fails_after_the_change_is_worse_and_a_lost_host_is_inconclusive() {
        let hole = side(vec![Fault::BlackHole(HostIndex(0), HostIndex(1))], 2);
        let comparison = compare(side(Vec::new(), 1), hole, 0.02, Vec::new()).expect("pairs");
        assert_eq!(comparison.verdict, Verdict::Worse);
        assert_eq!(comparison.failed, [["h0".to_owned(), "h1".to_owned()]]);
        let lost = side(vec![Fault::Killed(HostIndex(2), 5)], 2);
        let lost = compare(side(Vec::new(), 1), lost, 0.02, Vec::new()).expect("pairs");
        assert!(lost.unmatched > 0 && lost.verdict != Verdict::NotWorse);
    }

    #[test]
    fn meshes_of_other_hosts_have_nothing_to_compare() {
        assert!(compare(side(Vec::new(), 1), MeshSide::default(), 0.02, Vec::new()).is_none());
    }
}
