//! Whether a combination of one experiment means the same in another: runs are only comparable if it does.

use linerate_model::lab::{Experiment, LevelTable, Word};

/// Something that two experiments give different values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Difference {
    /// What it is: "option `time`", "workload".
    pub(super) what: String,
    /// Its value in the one.
    pub(super) one: String,
    /// Its value in the other.
    pub(super) other: String,
}

impl Difference {
    fn of(what: impl Into<String>, one: Option<&String>, other: Option<&String>) -> Option<Self> {
        let in_words =
            |value: Option<&String>| value.map_or_else(|| "not given".to_owned(), Clone::clone);
        (one != other).then(|| Self {
            what: what.into(),
            one: in_words(one),
            other: in_words(other),
        })
    }
}

/// What else runs at the same time.
pub(super) fn difference_beside(one: &Experiment, other: &Experiment) -> Option<Difference> {
    let in_words = |experiment: &Experiment| {
        let beside = experiment.beside.iter().map(|beside| {
            let options = beside.options.iter();
            let options: Vec<String> = options
                .map(|(key, word)| format!(" {key}={word}"))
                .collect();
            format!("{}{}", beside.workload, options.concat())
        });
        let beside: Vec<String> = beside.collect();
        (!beside.is_empty()).then(|| beside.join(", "))
    };
    let what = "background workload";
    Difference::of(what, in_words(one).as_ref(), in_words(other).as_ref())
}

/// The first difference between the options and settings of two trials.
pub(super) fn difference_of_trials(one: &LevelTable, other: &LevelTable) -> Option<Difference> {
    let words = [
        ("option", &one.options, &other.options),
        ("setting", &one.settings, &other.settings),
        (
            "setting of the peer",
            &one.peer.settings,
            &other.peer.settings,
        ),
    ];
    let mut of_words = words.into_iter().filter_map(|(what, one, other)| {
        let mut keys = one.keys().chain(other.keys());
        keys.find_map(|key| {
            let (one, other) = (one.get(key), other.get(key));
            if one == other {
                return None;
            }
            let in_words = |word: Option<&Word>| word.map(ToString::to_string);
            let (one, other) = (in_words(one), in_words(other));
            Difference::of(format!("{what} `{key}`"), one.as_ref(), other.as_ref())
        })
    });
    of_words
        .next()
        .or_else(|| Difference::of("workload", one.workload.as_ref(), other.workload.as_ref()))
        .or_else(|| Difference::of("address", one.address.as_ref(), other.address.as_ref()))
        .or_else(|| Difference::of("peer", one.peer.at.as_ref(), other.peer.at.as_ref()))
}
