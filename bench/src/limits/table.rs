//! Injected bottlenecks compared with those that were named.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use linerate_bench_shared::markdown;
use linerate_model::limit::LimitKind;

use crate::kinds::Kind;

/// The result of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// This was named.
    Named {
        /// The limit.
        what: String,
        /// Whether interventions proved it.
        proved: bool,
    },
    /// The injected bottleneck did not bind: the run does not count.
    NotHeld,
    /// Other programs used the machine, also in the last attempt: the run does not count.
    Disturbed,
}

/// All runs.
#[derive(Debug, Default)]
pub(crate) struct Table(BTreeMap<Kind, Vec<Verdict>>);

/// Runs of some kinds, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    pub(crate) right: usize,
    pub(crate) wrong: usize,
    pub(crate) not_determined: usize,
    pub(crate) not_held: usize,
    pub(crate) disturbed: usize,
    /// Of those that were named, how many were said to be proved, and how many of these are wrong.
    pub(crate) proved: usize,
    pub(crate) proved_wrong: usize,
}

impl Tally {
    /// The runs that count.
    pub(crate) fn judged(self) -> usize {
        self.right + self.wrong + self.not_determined
    }

    pub(crate) fn right_share(self) -> f64 {
        share(self.right, self.judged())
    }

    pub(crate) fn wrong_share(self) -> f64 {
        share(self.wrong, self.judged())
    }

    /// Whether at least 95 % are right and less than 2 % wrong.
    pub(crate) fn reaches_the_aims(self) -> bool {
        self.judged() > 0 && self.right_share() >= 0.95 && self.wrong_share() < 0.02
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of runs")]
fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// Whether `named` is right, wrong, or no claim.
pub(crate) fn is_right(kind: Kind, named: &str) -> Option<bool> {
    if named == LimitKind::NotDetermined.to_string() {
        return None;
    }
    Some(kind.right().iter().any(|right| right.to_string() == named))
}

impl Table {
    pub(crate) fn add(&mut self, kind: Kind, verdict: Verdict) {
        self.0.entry(kind).or_default().push(verdict);
    }

    /// The runs of `kinds` together.
    pub(crate) fn tally(&self, kinds: &[Kind]) -> Tally {
        let mut tally = Tally::default();
        for kind in kinds {
            for verdict in self.0.get(kind).into_iter().flatten() {
                let place = match verdict {
                    Verdict::NotHeld => &mut tally.not_held,
                    Verdict::Disturbed => &mut tally.disturbed,
                    Verdict::Named { what, proved } => {
                        let right = is_right(*kind, what);
                        if *proved {
                            tally.proved += 1;
                            tally.proved_wrong += usize::from(right == Some(false));
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

    /// The confusion table of `kinds` and the shares below it.
    pub(crate) fn text(&self, title: &str, kinds: &[Kind]) -> String {
        let mut text = format!("{title}\n");
        let names: BTreeSet<&str> = kinds
            .iter()
            .flat_map(|kind| self.0.get(kind).into_iter().flatten())
            .filter_map(|verdict| match verdict {
                Verdict::Named { what, .. } => Some(what.as_str()),
                _ => None,
            })
            .collect();
        let letters: Vec<(char, &str)> = ('A'..='Z').zip(names).collect();
        for (letter, name) in &letters {
            let _ = writeln!(text, "  {letter} = {name}");
        }
        let named = letters.iter().map(|(letter, _)| format!(">{letter}"));
        let named: Vec<String> = named.collect();
        let named = named.iter().map(String::as_str);
        let columns = std::iter::once("injected").chain(named);
        let columns: Vec<&str> = columns
            .chain([">not held", ">disturbed", ">right"])
            .collect();
        let _ = write!(text, "\n{}", markdown::head(&columns));
        for kind in kinds.iter().filter(|kind| self.0.contains_key(kind)) {
            let runs = &self.0[kind];
            let count = |wanted: &str| {
                let named =
                    |one: &&Verdict| matches!(one, Verdict::Named { what, .. } if what == wanted);
                runs.iter().filter(named).count()
            };
            let mut cells = vec![kind.name().to_owned()];
            cells.extend(letters.iter().map(|(_, name)| match count(name) {
                0 => ".".to_owned(),
                some => some.to_string(),
            }));
            let tally = self.tally(&[*kind]);
            cells.extend([tally.not_held, tally.disturbed].map(|count| count.to_string()));
            cells.push(format!("{}/{}", tally.right, tally.judged()));
            text += &markdown::row(cells);
        }
        let all = self.tally(kinds);
        let _ = writeln!(
            text,
            "\n{} runs judged: right {:.1} % (aim 95 %), wrong {:.1} % (aim below 2 %), not determined {}; \
             not held {}, disturbed {}",
            all.judged(),
            all.right_share() * 100.0,
            all.wrong_share() * 100.0,
            all.not_determined,
            all.not_held,
            all.disturbed,
        );
        if all.proved > 0 {
            let _ = writeln!(
                text,
                "{} of them said to be proved, {} of these wrong",
                all.proved, all.proved_wrong
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(what: LimitKind) -> Verdict {
        Verdict::Named {
            what: what.to_string(),
            proved: false,
        }
    }

    #[test]
    fn runs_that_say_nothing_are_in_no_share() {
        let mut table = Table::default();
        (0..19).for_each(|_| table.add(Kind::Tbf, named(LimitKind::Shaper)));
        table.add(Kind::Tbf, named(LimitKind::NotDetermined));
        table.add(Kind::Tbf, Verdict::NotHeld);
        table.add(Kind::Tbf, Verdict::Disturbed);
        let tally = table.tally(&[Kind::Tbf]);
        assert_eq!((tally.judged(), tally.right), (20, 19));
        assert!(tally.reaches_the_aims());
        table.add(Kind::Tbf, named(LimitKind::Wire));
        assert!(!table.tally(&[Kind::Tbf]).reaches_the_aims());
        assert!(
            !Tally::default().reaches_the_aims(),
            "nothing proves nothing"
        );
    }

    #[test]
    fn the_table_shows_each_name_once() {
        let mut table = Table::default();
        table.add(Kind::Loss, named(LimitKind::Loss));
        table.add(Kind::Htb, named(LimitKind::Shaper));
        let text = table.text("title", &[Kind::Htb, Kind::Loss]);
        assert!(
            text.contains("A = a shaper") && text.contains("B = loss"),
            "{text}"
        );
        assert!(text.contains("2 runs judged: right 100.0 %"), "{text}");
    }
}
