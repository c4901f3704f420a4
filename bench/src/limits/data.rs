//! The injected bottlenecks as data: `bench/limits.d/*.toml`, whose first file describes the format.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use linerate_model::limit::LimitKind;
use linerate_stats::Random;
use serde::Deserialize;

use crate::Trouble;
use crate::conditions::{Conditions, FACTORS, Values};

/// The names that a kind may call right: those of `limit.what` for a stream.
const NAMES: [LimitKind; 14] = [
    LimitKind::Shaper,
    LimitKind::Pcie,
    LimitKind::Wire,
    LimitKind::SharedCpu,
    LimitKind::SenderCpu,
    LimitKind::ReceiverCpu,
    LimitKind::Machine,
    LimitKind::Loss,
    LimitKind::ReceiveWindow,
    LimitKind::SendBuffer,
    LimitKind::WindowRtt,
    LimitKind::ReceiverProgram,
    LimitKind::SenderProgram,
    LimitKind::CongestionControl,
];

/// All kinds, and the other load.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Data {
    /// Draws that all kinds have; a kind's own of the same name replaces it.
    draw: BTreeMap<String, Draw>,
    /// What "beside other load" adds.
    pub(crate) load: Load,
    /// The kinds.
    #[serde(rename = "kind")]
    pub(crate) kinds: Vec<Kind>,
}

/// The other load.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Load {
    draw: BTreeMap<String, Draw>,
    pub(crate) steps: Vec<String>,
}

/// One kind of bottleneck.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct Kind {
    pub(crate) name: String,
    /// One sentence.
    pub(crate) what: String,
    /// The names that are right.
    pub(crate) right: Vec<String>,
    /// Whether "not determined" is right too: no name is better.
    pub(crate) undetermined_is_right: bool,
    /// Whether its author had not read how linerate decides.
    pub(crate) blind: bool,
    /// The levels of the conditions under which it binds; a factor that is missing has all of its levels.
    pub(crate) only: BTreeMap<String, Vec<String>>,
    /// Combinations of levels under which it does not.
    pub(crate) except: Vec<Values>,
    /// The parameters and their ranges.
    pub(crate) draw: BTreeMap<String, Draw>,
    /// Whether a third host forwards between the two.
    pub(crate) router: bool,
    /// Impairments of the relay, each by the name of a parameter.
    pub(crate) relay: RelayNames,
    /// What is run before the measurement.
    pub(crate) steps: Vec<String>,
    /// What is run while linerate measures, from its first message on.
    pub(crate) during: Vec<String>,
    /// What removes that which does not end with the namespaces.
    pub(crate) undo: Vec<String>,
    /// Options of linerate that belong to the bottleneck.
    pub(crate) options: String,
    /// The ends whose threads wait for a CPU because of the bottleneck.
    pub(crate) waits: BTreeSet<End>,
    /// What shows that it binds.
    pub(crate) held_by: HeldBy,
}

/// Names of parameters: shares in millionths, times in microseconds.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(crate) struct RelayNames {
    pub(crate) loss: Option<String>,
    pub(crate) loss_back: Option<String>,
    pub(crate) reorder: Option<String>,
    pub(crate) reorder_by: Option<String>,
}

impl RelayNames {
    fn all(&self) -> [&Option<String>; 4] {
        [&self.loss, &self.loss_back, &self.reorder, &self.reorder_by]
    }

    /// Whether the relay is part of the bottleneck.
    pub(crate) fn impairs(&self) -> bool {
        self.all().into_iter().any(Option::is_some)
    }
}

/// One end of the stream: `near` sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum End {
    Near,
    Far,
}

/// What shows that a bottleneck binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum HeldBy {
    /// The rate falls.
    #[default]
    Rate,
    /// linerate's own threads use up the CPUs.
    Cpus,
}

/// How a parameter is chosen.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Draw {
    /// A whole number, each doubling as likely as any other.
    Log([f64; 2]),
    /// A whole number, each as likely as any other.
    Uniform([u64; 2]),
    /// One of these.
    One(Vec<String>),
}

impl Draw {
    fn value(&self, random: &mut Random) -> String {
        match self {
            Self::Log([low, high]) => {
                format!("{:.0}", low * (high / low).powf(random.unit()))
            }
            Self::Uniform([low, high]) => (low + random.below(high - low + 1)).to_string(),
            Self::One(values) => {
                let index = random.below(values.len() as u64);
                values[usize::try_from(index).unwrap_or(0)].clone()
            }
        }
    }

    /// Whether a value can be chosen.
    fn is_sound(&self) -> bool {
        match self {
            Self::Log([low, high]) => 1.0 <= *low && low < high,
            Self::Uniform([low, high]) => low < high,
            Self::One(values) => !values.is_empty(),
        }
    }
}

impl Data {
    /// The conditions and the parameters of one trial of `kind`.
    pub(crate) fn draw(&self, kind: &Kind, conditions: &Conditions, random: &mut Random) -> Values {
        let mut values = conditions.values();
        let load = conditions.is_loaded().then_some(&self.load.draw);
        let draws = [Some(&self.draw), load, Some(&kind.draw)];
        for (name, draw) in draws.into_iter().flatten().flatten() {
            values.insert(name.clone(), draw.value(random));
        }
        values
    }
}

/// The place of a step, whether it stays in the background, and the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step<'a> {
    pub(crate) place: Place,
    pub(crate) stays: bool,
    pub(crate) command: &'a str,
}

/// Where a step runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Near,
    Far,
    Router,
    /// The machine, for control groups: namespaces have a `/sys` of their own.
    Cgroup,
}

impl<'a> Step<'a> {
    pub(crate) fn parse(text: &'a str) -> Result<Self, Trouble> {
        let rest = text.strip_prefix("start ");
        let (place, command) = rest
            .unwrap_or(text)
            .split_once(' ')
            .ok_or_else(|| Trouble(format!("understand the step `{text}`: no command")))?;
        let place = match place {
            "near" => Place::Near,
            "far" => Place::Far,
            "router" => Place::Router,
            "cgroup" => Place::Cgroup,
            _ => {
                return Err(Trouble(format!(
                    "understand the step `{text}`: it starts with near, far, router or cgroup"
                )));
            }
        };
        Ok(Self {
            place,
            stays: rest.is_some(),
            command,
        })
    }
}

impl Kind {
    /// The conditions under which it binds.
    pub(crate) fn conditions(&self) -> Vec<Conditions> {
        Conditions::all(&self.only, &self.except)
    }

    /// Whether `named` is right, wrong, or no claim.
    pub(crate) fn is_right(&self, named: &str) -> Option<bool> {
        if named == LimitKind::NotDetermined.to_string() {
            return self.undetermined_is_right.then_some(true);
        }
        Some(self.right.iter().any(|right| right == named))
    }

    fn check(&self, data: &Data) -> Result<(), String> {
        let names = NAMES.map(|name| name.to_string());
        if let Some(right) = self.right.iter().find(|right| !names.contains(right)) {
            let names = names.join(", ");
            return Err(format!(
                "no bottleneck is called `{right}`; choose from {names}"
            ));
        }
        if self.name.is_empty() || self.what.is_empty() || self.right.is_empty() {
            return Err("`name`, `what` and `right` are required".to_owned());
        }
        let except = self.except.iter().flatten();
        let except = except.map(|(factor, level)| (factor, std::slice::from_ref(level)));
        let only = self
            .only
            .iter()
            .map(|(factor, levels)| (factor, levels.as_slice()));
        for (factor, levels) in only.chain(except) {
            let known = FACTORS.iter().find(|(name, _)| name == factor);
            let known = known.map_or(&[][..], |(_, levels)| levels);
            if levels.is_empty() || levels.iter().any(|level| !known.contains(&level.as_str())) {
                return Err(format!("{factor} = {levels:?} is no condition"));
            }
        }
        if self.conditions().is_empty() {
            return Err("no condition remains".to_owned());
        }
        let all = self.draw.iter().chain(&data.draw).chain(&data.load.draw);
        for (name, draw) in all {
            if !draw.is_sound() {
                return Err(format!("`{name}`: nothing can be drawn"));
            }
        }
        for name in self.relay.all().into_iter().flatten() {
            if !self.draw.contains_key(name) {
                return Err(format!("the relay's `{name}` is not drawn"));
            }
        }
        let steps = self.steps.iter().chain(&self.during).chain(&self.undo);
        for step in steps.chain(&data.load.steps) {
            let parsed = Step::parse(step).map_err(|trouble| trouble.0)?;
            if parsed.place == Place::Router && !self.router {
                return Err(format!("`{step}`: there is no router"));
            }
            if parsed.place == Place::Cgroup && !parsed.command.contains("$cgroup") {
                return Err(format!("`{step}`: it concerns no control group"));
            }
        }
        Ok(())
    }
}

/// Reads the data: every `*.toml` of the folder `limits.d` next to this crate.
pub(crate) fn read() -> Result<Data, Trouble> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("limits.d");
    let trouble = |error: std::io::Error| Trouble(format!("read {}: {error}", folder.display()));
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).map_err(trouble)? {
        files.push(entry.map_err(trouble)?.path());
    }
    files.retain(|path| path.extension().is_some_and(|end| end == "toml"));
    files.sort();
    let mut text = String::new();
    for path in &files {
        text.push_str(&fs::read_to_string(path).map_err(trouble)?);
        text.push('\n');
    }
    parse(&text).map_err(|what| Trouble(format!("read {}: {what}", folder.display())))
}

fn parse(text: &str) -> Result<Data, String> {
    let data: Data = toml::from_str(text).map_err(|error| error.to_string())?;
    let mut names = BTreeSet::new();
    for kind in &data.kinds {
        kind.check(&data)
            .map_err(|what| format!("`{}`: {what}", kind.name))?;
        if !names.insert(&kind.name) {
            return Err(format!("two kinds are called `{}`", kind.name));
        }
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use linerate_stats::Seed;

    use super::*;
    use crate::conditions::Balance;

    #[test]
    fn the_data_have_seventeen_kinds_of_each_half() {
        let data = read().expect("the data beside this crate");
        let blind = data.kinds.iter().filter(|kind| kind.blind).count();
        assert!(blind >= 17, "{blind}");
        assert!(data.kinds.len() - blind >= 17, "{}", data.kinds.len());
    }

    #[test]
    fn the_same_seed_draws_the_same_and_every_kind_can_be_left_out() {
        let data = read().expect("the data beside this crate");
        for kind in &data.kinds {
            for conditions in kind.conditions() {
                let draw = || data.draw(kind, &conditions, &mut Random::new(Seed(5)));
                assert_eq!(draw(), draw(), "{}", kind.name);
            }
            let binds = !kind.steps.is_empty()
                || !kind.during.is_empty()
                || !kind.options.is_empty()
                || kind.relay.impairs()
                || kind.held_by == HeldBy::Cpus;
            assert!(binds, "{}: nothing is injected", kind.name);
        }
    }

    /// The conditions of `trials` trials of the data, with their kinds.
    fn chosen(trials: usize) -> Vec<(Kind, Values)> {
        let kinds = read().expect("the data beside this crate").kinds;
        let (mut random, mut balance) = (Random::new(Seed(7)), Balance::default());
        let rounds = kinds.iter().cycle().take(trials);
        rounds
            .map(|kind| {
                let next = balance.next(&kind.name, kind.conditions(), &mut random);
                (kind.clone(), next.values())
            })
            .collect()
    }

    #[test]
    fn each_level_is_about_equally_often_for_a_kind() {
        let chosen = chosen(600);
        for (kind, _) in chosen.iter().filter(|(kind, _)| kind.except.is_empty()) {
            let own = || chosen.iter().filter(|(other, _)| other.name == kind.name);
            for (factor, levels) in FACTORS {
                let permitted = kind.conditions();
                let counts = levels
                    .iter()
                    .filter(|level| permitted.iter().any(|one| one.values()[factor] == **level))
                    .map(|level| own().filter(|(_, values)| values[factor] == *level).count());
                let counts: Vec<usize> = counts.collect();
                let (low, high) = (counts.iter().min(), counts.iter().max());
                let apart = high.zip(low).map(|(high, low)| high - low);
                assert!(apart <= Some(2), "{} {factor}: {counts:?}", kind.name);
            }
        }
    }

    #[test]
    fn each_level_has_a_share_over_all() {
        let chosen = chosen(300);
        for (factor, levels) in FACTORS {
            for level in levels {
                let with = chosen.iter().filter(|(_, values)| values[factor] == *level);
                let even = 300 / levels.len();
                assert!(with.count() * 2 > even, "{factor} {level}");
            }
        }
    }

    #[test]
    fn values_are_within_their_ranges() {
        let mut random = Random::new(Seed(9));
        for _ in 0..500 {
            let log: u64 = Draw::Log([8.0, 80.0])
                .value(&mut random)
                .parse()
                .expect("whole");
            assert!((8..=80).contains(&log));
            let even: u64 = Draw::Uniform([3, 5])
                .value(&mut random)
                .parse()
                .expect("whole");
            assert!((3..=5).contains(&even));
        }
    }

    #[test]
    fn a_mistake_in_the_data_is_an_error() {
        let with = |kind: &str| {
            parse(&format!(
                "draw = {{}}\n[load]\ndraw = {{}}\nsteps = []\n[[kind]]\nname = \"a\"\nwhat = \"b\"\n{kind}"
            ))
        };
        let right = "right = [\"a shaper\"]\n";
        assert!(with(right).is_ok());
        for wrong in [
            "right = [\"a shape\"]".to_owned(),
            "right = []".to_owned(),
            format!("{right}only.rtt = [\"5\"]"),
            format!("{right}only.luck = [\"good\"]"),
            format!("{right}except = [{{ flows = \"1\" }}, {{ flows = \"8\" }}]"),
            format!("{right}draw.rate = {{ log = [9, 3] }}"),
            format!("{right}steps = [\"router true\"]"),
            format!("{right}steps = [\"mid true\"]"),
            format!("{right}steps = [\"cgroup ip link\"]"),
            format!("{right}relay.loss = \"loss\""),
            format!("{right}relay_loss = \"loss\""),
        ] {
            assert!(with(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_step_names_its_place() {
        let step = Step::parse("start far $bench --spin-on 1").expect("sound");
        assert_eq!(
            (step.place, step.stays, step.command),
            (Place::Far, true, "$bench --spin-on 1")
        );
        assert!(!Step::parse("near tc qdisc").expect("sound").stays);
    }
}
