//! The conditions of a trial, and which of them the next trial gets: a random subset of all combinations in which each
//! level is about equally often, for each kind and over all.

use std::collections::BTreeMap;

use linerate_stats::Random;

/// Levels of factors, and parameters of a trial, by name: what steps read as shell variables.
pub(crate) type Values = BTreeMap<String, String>;

/// The factors and their levels. The RTT is in milliseconds; 0.03 is a plain veth pair.
pub(crate) const FACTORS: [(&str, &[&str]); 4] = [
    ("cc", &["bbr", "cubic", "reno"]),
    ("rtt", &["0.03", "1", "20"]),
    ("flows", &["1", "8"]),
    ("load", &["no", "yes"]),
];

/// How much a level's surplus over all kinds counts against one within the kind, and at most: kinds that have one level
/// only would otherwise push all others to the remaining levels.
const OVERALL: (f64, f64) = (0.25, 0.9);

/// One level of each factor, in their order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Conditions([&'static str; FACTORS.len()]);

impl Conditions {
    /// All combinations of the levels in `only`, where a factor that is missing has all of its levels, but those in
    /// `except`.
    pub(crate) fn all(only: &BTreeMap<String, Vec<String>>, except: &[Values]) -> Vec<Self> {
        let mut all = vec![Self([""; FACTORS.len()])];
        for (index, (factor, levels)) in FACTORS.iter().enumerate() {
            let only = only.get(*factor);
            let fits = |level: &&&str| {
                only.is_none_or(|only| only.iter().any(|allowed| allowed == **level))
            };
            let levels: Vec<&'static str> = levels.iter().filter(fits).copied().collect();
            all = all
                .into_iter()
                .flat_map(|so_far| {
                    levels.iter().map(move |level| {
                        let mut with = so_far.clone();
                        with.0[index] = level;
                        with
                    })
                })
                .collect();
        }
        all.retain(|one| !except.iter().any(|except| one.matches(except)));
        all
    }

    fn matches(&self, except: &Values) -> bool {
        let values = self.values();
        except
            .iter()
            .all(|(factor, level)| values.get(factor) == Some(level))
    }

    /// Its levels by the names of their factors.
    pub(crate) fn values(&self) -> Values {
        let levels = FACTORS.iter().zip(self.0);
        levels
            .map(|((factor, _), level)| ((*factor).to_owned(), level.to_owned()))
            .collect()
    }

    pub(crate) fn is_loaded(&self) -> bool {
        self.0[3] == "yes"
    }
}

/// How often each level was chosen: minimization (S. J. Pocock, R. Simon, "Sequential treatment assignment with
/// balancing for prognostic factors in the controlled clinical trial", Biometrics 31(1), 1975).
#[derive(Debug, Default)]
pub(crate) struct Balance {
    of_kind: BTreeMap<String, Counts>,
    overall: Counts,
}

#[derive(Debug, Default, Clone)]
struct Counts {
    levels: BTreeMap<(usize, &'static str), u32>,
    combinations: BTreeMap<Conditions, u32>,
}

impl Counts {
    fn level(&self, factor: usize, level: &'static str) -> f64 {
        self.levels
            .get(&(factor, level))
            .copied()
            .unwrap_or(0)
            .into()
    }

    fn add(&mut self, conditions: &Conditions) {
        for (factor, level) in conditions.0.iter().enumerate() {
            *self.levels.entry((factor, level)).or_default() += 1;
        }
        *self.combinations.entry(conditions.clone()).or_default() += 1;
    }

    /// By how much the chosen levels are ahead of the rarest ones that `all` permits.
    fn surplus(&self, conditions: &Conditions, all: &[Conditions], limit: f64) -> f64 {
        let levels = conditions.0.iter().enumerate();
        let ahead = levels.map(|(factor, level)| {
            let others = all.iter().map(|other| self.level(factor, other.0[factor]));
            let rarest = others.fold(f64::INFINITY, f64::min);
            (self.level(factor, level) - rarest).min(limit)
        });
        ahead.sum()
    }
}

impl Balance {
    /// Which of `all` the next trial of the kind `name` gets.
    pub(crate) fn next(
        &mut self,
        name: &str,
        mut all: Vec<Conditions>,
        random: &mut Random,
    ) -> Conditions {
        // Among equals, the first of a random order.
        random.shuffle(&mut all);
        let own = self.of_kind.entry(name.to_owned()).or_default();
        let cost = |one: &Conditions| {
            let again = f64::from(own.combinations.get(one).copied().unwrap_or(0));
            let (weight, limit) = OVERALL;
            let overall = self.overall.surplus(one, &all, limit / weight) * weight;
            own.surplus(one, &all, f64::INFINITY) + overall + again
        };
        let next = all
            .iter()
            .min_by(|a, b| cost(a).total_cmp(&cost(b)))
            .expect("the reader refuses a kind without conditions")
            .clone();
        own.add(&next);
        self.overall.add(&next);
        next
    }
}

#[cfg(test)]
mod tests {
    use linerate_stats::Seed;

    use super::*;

    #[test]
    fn a_kind_gets_only_the_levels_under_which_it_binds() {
        let level = |factor: &str, level: &str| (factor.to_owned(), level.to_owned());
        let only = BTreeMap::from([("cc".to_owned(), vec!["reno".to_owned()])]);
        let except = [Values::from([level("rtt", "20"), level("load", "yes")])];
        let all = Conditions::all(&only, &except);
        assert_eq!(all.len(), 3 * 2 * 2 - 2);
        for one in &all {
            assert_eq!(one.0[0], "reno");
            assert!(!(one.0[1] == "20" && one.is_loaded()));
        }
    }

    #[test]
    fn the_same_seed_chooses_the_same() {
        let choose = || {
            let (mut balance, mut random) = (Balance::default(), Random::new(Seed(3)));
            let all = || Conditions::all(&BTreeMap::new(), &[]);
            (0..30)
                .map(|_| balance.next("kind", all(), &mut random))
                .collect::<Vec<_>>()
        };
        assert_eq!(choose(), choose());
    }

    #[test]
    fn every_combination_is_chosen_before_one_is_repeated_often() {
        let (mut balance, mut random) = (Balance::default(), Random::new(Seed(3)));
        let all = || Conditions::all(&BTreeMap::new(), &[]);
        for _ in 0..72 {
            balance.next("kind", all(), &mut random);
        }
        let often = balance.overall.combinations.values().max();
        assert!(often.is_some_and(|often| *often <= 4), "{often:?} of 72");
    }
}
