//! Injected bottlenecks compared with those that were named, as Markdown.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use linerate_bench_shared::markdown;
use linerate_stats::share;

use crate::data::Kind;

/// The aims: the maximum share of wrong names, and the minimum share of right ones.
const AIMS: (f64, f64) = (0.02, 0.75);
/// The confidence level of the bounds.
const LEVEL: f64 = 0.95;

/// The result of one trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// This was named.
    Named {
        /// The limit.
        what: String,
        /// Whether interventions proved it.
        proved: bool,
    },
    /// The injected bottleneck did not bind: the trial does not count.
    NotHeld,
    /// Other programs used the machine, also in the last attempt: the trial does not count.
    Disturbed,
    /// It could not be injected or measured.
    Failed,
}

/// All trials.
#[derive(Debug, Default)]
pub(crate) struct Table(BTreeMap<String, Vec<Verdict>>);

/// Trials of some kinds, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Tally {
    right: u32,
    wrong: u32,
    not_determined: u32,
    not_held: u32,
    disturbed: u32,
    failed: u32,
    /// Of those that were named, how many were said to be proved, and how many of these are wrong.
    proved: u32,
    proved_wrong: u32,
}

impl Tally {
    /// The trials that count.
    fn judged(self) -> u32 {
        self.right + self.wrong + self.not_determined
    }

    /// A failed trial proves nothing, and neither do none.
    fn reaches_the_aims(self) -> bool {
        let (wrong, right) = AIMS;
        let share = |count: u32| f64::from(count) / f64::from(self.judged());
        self.judged() > 0
            && self.failed == 0
            && share(self.wrong) <= wrong
            && share(self.right) >= right
    }
}

/// A count, its share, and the bound of the share.
fn with_bound(count: u32, all: u32, sign: &str, bound: fn(u32, u32, f64) -> f64) -> String {
    if all == 0 {
        return "-".to_owned();
    }
    let percent = f64::from(count) / f64::from(all) * 100.0;
    let bound = bound(count, all, LEVEL) * 100.0;
    format!("{count}: {percent:.1} % ({sign}{bound:.1} %)")
}

impl Table {
    pub(crate) fn add(&mut self, kind: &Kind, verdict: Verdict) {
        self.0.entry(kind.name.clone()).or_default().push(verdict);
    }

    fn of(&self, kind: &Kind) -> &[Verdict] {
        self.0.get(&kind.name).map_or(&[], Vec::as_slice)
    }

    /// The trials of `kinds` together.
    fn tally<'a>(&self, kinds: impl IntoIterator<Item = &'a Kind>) -> Tally {
        let mut tally = Tally::default();
        for kind in kinds {
            for verdict in self.of(kind) {
                let place = match verdict {
                    Verdict::NotHeld => &mut tally.not_held,
                    Verdict::Disturbed => &mut tally.disturbed,
                    Verdict::Failed => &mut tally.failed,
                    Verdict::Named { what, proved } => {
                        let right = kind.is_right(what);
                        if *proved {
                            tally.proved += 1;
                            tally.proved_wrong += u32::from(right == Some(false));
                        }
                        match right {
                            Some(true) => &mut tally.right,
                            Some(false) => &mut tally.wrong,
                            None => &mut tally.not_determined,
                        }
                    }
                };
                *place += 1;
            }
        }
        tally
    }

    /// Whether the aims hold for each half of which there are kinds.
    pub(crate) fn reaches_the_aims(&self, kinds: &[Kind]) -> bool {
        let reached = |blind: bool| {
            let mut half = kinds.iter().filter(|kind| kind.blind == blind).peekable();
            half.peek().is_none() || self.tally(half).reaches_the_aims()
        };
        reached(false) && reached(true)
    }

    /// The confusion table of `kinds`.
    pub(crate) fn confusion(&self, title: &str, kinds: &[Kind]) -> String {
        let mut text = format!("{title}:\n\n");
        let verdicts = kinds.iter().flat_map(|kind| self.of(kind));
        let names: BTreeSet<&str> = verdicts
            .filter_map(|verdict| match verdict {
                Verdict::Named { what, .. } => Some(what.as_str()),
                _ => None,
            })
            .collect();
        let letters: Vec<(char, &str)> = ('A'..='Z').zip(names).collect();
        for (letter, name) in &letters {
            let _ = writeln!(text, "* {letter} = {name}");
        }
        let named: Vec<String> = letters
            .iter()
            .map(|(letter, _)| format!(">{letter}"))
            .collect();
        let columns = ["injected", "blind"].into_iter();
        let columns: Vec<&str> = columns
            .chain(named.iter().map(String::as_str))
            .chain([">not held", ">disturbed", ">failed", ">right"])
            .collect();
        let _ = write!(text, "\n{}", markdown::head(&columns));
        for kind in kinds.iter().filter(|kind| !self.of(kind).is_empty()) {
            let count = |wanted: &str| {
                let named =
                    |one: &&Verdict| matches!(one, Verdict::Named { what, .. } if what == wanted);
                self.of(kind).iter().filter(named).count()
            };
            let blind = if kind.blind { "blind" } else { "" };
            let mut cells = vec![kind.name.clone(), blind.to_owned()];
            cells.extend(letters.iter().map(|(_, name)| match count(name) {
                0 => ".".to_owned(),
                some => some.to_string(),
            }));
            let tally = self.tally([kind]);
            let apart = [tally.not_held, tally.disturbed, tally.failed];
            cells.extend(apart.map(|count| count.to_string()));
            cells.push(format!("{}/{}", tally.right, tally.judged()));
            text += &markdown::row(cells);
        }
        text
    }

    /// The shares of each half, and of all.
    pub(crate) fn score(&self, kinds: &[Kind]) -> String {
        let (wrong, right) = AIMS;
        let mut text = format!(
            "In parentheses: one-sided {:.0} % bounds (Clopper-Pearson). Aims: right at least {:.0} %, wrong at most \
             {:.0} % of the judged trials.\n\n",
            LEVEL * 100.0,
            right * 100.0,
            wrong * 100.0
        );
        text += &markdown::head(&[
            "kinds",
            ">judged",
            ">right",
            ">wrong",
            ">not determined",
            ">not held",
            ">disturbed",
            ">failed",
            ">proved",
            ">proved and wrong",
            "aims reached",
        ]);
        let half = |blind: bool| kinds.iter().filter(move |kind| kind.blind == blind);
        let rows = [
            ("known", self.tally(half(false))),
            ("blind", self.tally(half(true))),
            ("all", self.tally(kinds)),
        ];
        for (name, tally) in rows {
            let all = tally.judged();
            let mut cells = vec![name.to_owned(), all.to_string()];
            cells.push(with_bound(tally.right, all, ">= ", share::at_least));
            cells.push(with_bound(tally.wrong, all, "<= ", share::at_most));
            let counts = [
                tally.not_determined,
                tally.not_held,
                tally.disturbed,
                tally.failed,
                tally.proved,
            ];
            cells.extend(counts.map(|count| count.to_string()));
            cells.push(with_bound(
                tally.proved_wrong,
                tally.proved,
                "<= ",
                share::at_most,
            ));
            // All together reach them if each half does.
            let reached = match name {
                "all" => self.reaches_the_aims(kinds),
                _ => tally.reaches_the_aims(),
            };
            let reached = if reached { "yes" } else { "no" };
            cells.push(if all == 0 { "-" } else { reached }.to_owned());
            text += &markdown::row(cells);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use linerate_model::limit::LimitKind;

    use super::*;

    fn kind(name: &str, right: LimitKind, blind: bool) -> Kind {
        Kind {
            name: name.to_owned(),
            right: vec![right.to_string()],
            blind,
            ..Kind::default()
        }
    }

    fn named(what: LimitKind, proved: bool) -> Verdict {
        Verdict::Named {
            what: what.to_string(),
            proved,
        }
    }

    #[test]
    fn trials_that_show_nothing_are_in_no_share() {
        let tbf = [kind("tbf", LimitKind::Shaper, false)];
        let mut table = Table::default();
        (0..49).for_each(|_| table.add(&tbf[0], named(LimitKind::Shaper, false)));
        table.add(&tbf[0], named(LimitKind::NotDetermined, false));
        table.add(&tbf[0], Verdict::NotHeld);
        table.add(&tbf[0], Verdict::Disturbed);
        let tally = table.tally(&tbf);
        assert_eq!((tally.judged(), tally.right), (50, 49));
        assert!(table.reaches_the_aims(&tbf));
        table.add(&tbf[0], named(LimitKind::Wire, true));
        table.add(&tbf[0], named(LimitKind::Wire, true));
        assert!(!table.reaches_the_aims(&tbf), "2 of 52 are wrong");
        assert!(
            !Table::default().reaches_the_aims(&tbf),
            "nothing proves nothing"
        );
    }

    #[test]
    fn each_half_has_to_reach_the_aims() {
        let kinds = [
            kind("tbf", LimitKind::Shaper, false),
            kind("policer", LimitKind::Shaper, true),
        ];
        let mut table = Table::default();
        (0..200).for_each(|_| table.add(&kinds[0], named(LimitKind::Shaper, true)));
        table.add(&kinds[1], named(LimitKind::Loss, true));
        assert!(!table.reaches_the_aims(&kinds));
        let text = table.score(&kinds);
        assert!(
            text.contains("| known | 200 | 200: 100.0 % (>= 98.5 %) | 0: 0.0 % (<= 1.5 %) |"),
            "{text}"
        );
        assert!(
            text.contains("| 201 | 1: 0.5 % (<= 2.3 %) | no |"),
            "{text}"
        );
    }

    #[test]
    fn a_failed_trial_reaches_no_aim() {
        let kinds = [kind("tbf", LimitKind::Shaper, true)];
        let mut table = Table::default();
        table.add(&kinds[0], named(LimitKind::Shaper, false));
        assert!(table.reaches_the_aims(&kinds));
        table.add(&kinds[0], Verdict::Failed);
        assert!(!table.reaches_the_aims(&kinds));
    }

    #[test]
    fn not_determined_is_right_where_no_name_is_better() {
        let mut kinds = [kind("odd", LimitKind::Shaper, true)];
        let mut table = Table::default();
        table.add(&kinds[0], named(LimitKind::NotDetermined, false));
        assert_eq!(table.tally(&kinds).right, 0);
        kinds[0].undetermined_is_right = true;
        assert_eq!(table.tally(&kinds).right, 1);
    }

    #[test]
    fn the_table_shows_each_name_once() {
        let kinds = [
            kind("htb", LimitKind::Shaper, false),
            kind("loss", LimitKind::Loss, true),
        ];
        let mut table = Table::default();
        table.add(&kinds[1], named(LimitKind::Loss, false));
        table.add(&kinds[0], named(LimitKind::Shaper, false));
        let text = table.confusion("title", &kinds);
        assert!(text.contains("* A = a shaper\n* B = loss\n"), "{text}");
        assert!(
            text.contains("| loss | blind | . | 1 | 0 | 0 | 0 | 1/1 |"),
            "{text}"
        );
    }
}
