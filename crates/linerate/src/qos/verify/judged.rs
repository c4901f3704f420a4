//! From the trials of a verification to the verdict, while it runs and from a stored run alike.

use std::collections::BTreeMap;

use linerate_analysis::qos::verification::{Arm, ArmTrial, Kind, Part, Readings, Verification};
use linerate_analysis::qos::{Round, Strayed};
use linerate_model::host::Host;
use linerate_model::ids::NicName;
use linerate_model::sample::Sample;
use linerate_model::workload::Direction;

use super::observe::{self, ClassOf, Sent};
use super::set_up::{SetUp, class_of};

/// What was asked, what should hold it, and the trials.
#[derive(Debug, Clone, Copy)]
pub(super) struct Judged<'a> {
    pub(super) asked: &'a Verification,
    pub(super) set_up: &'a SetUp,
    pub(super) local: &'a Host,
    pub(super) remote: &'a Host,
    pub(super) trials: &'a [ArmTrial],
}

impl<'a> Judged<'a> {
    /// The rounds of one direction, in their order.
    pub(super) fn rounds(&self, direction: Direction) -> Vec<Round> {
        let mut rounds: BTreeMap<u32, Vec<&ArmTrial>> = BTreeMap::new();
        for trial in self.trials {
            rounds.entry(trial.round).or_default().push(trial);
        }
        let rounds = rounds.into_values();
        rounds.map(|done| self.round(direction, &done)).collect()
    }

    /// How many rounds are complete.
    pub(super) fn complete(&self) -> usize {
        let arms = Arm::all(self.classes(), &self.asked.directions).len();
        let mut made: BTreeMap<u32, usize> = BTreeMap::new();
        for trial in self.trials {
            *made.entry(trial.round).or_default() += 1;
        }
        made.into_values().filter(|made| *made >= arms).count()
    }

    fn classes(&self) -> usize {
        self.set_up.expected.len()
    }

    /// The trials of one direction as they are judged.
    fn round(&self, direction: Direction, done: &[&'a ArmTrial]) -> Round {
        let classes = self.classes();
        let own = self.own_classes(direction, done);
        let find = |kind: Kind| {
            let arm = Arm { kind, direction };
            done.iter().find(|done| done.arm == arm)
        };
        let streamed = |kind: Kind, at: usize| {
            let done = find(kind)?;
            let sample = sample_of(done, at)?;
            let sent = self.sent(at, sample, &own[at].0, &done.readings);
            let mut streamed = sent.streamed();
            if matches!(kind, Kind::Alone(_)) {
                streamed.strayed.clone_from(&own[at].1);
            }
            Some(streamed)
        };
        let probed = |kind: Kind, at: usize| {
            let done = find(kind)?;
            let probes = done.arm.part(at)? == Part::Probes;
            probes.then(|| observe::probed(sample_of(done, at)?))?
        };
        let all = || 0..classes;
        Round {
            alone: all().map(|at| streamed(Kind::Alone(at), at)).collect(),
            // A class that is the only one is alone also when all send.
            together: if classes == 1 {
                vec![streamed(Kind::Alone(0), 0)]
            } else {
                all().map(|at| streamed(Kind::Together, at)).collect()
            },
            quiet: all().map(|at| probed(Kind::Quiet, at)).collect(),
            beside: all()
                .map(|sending| all().map(|at| probed(Kind::Beside(sending), at)).collect())
                .collect(),
        }
    }

    fn sent<'s>(
        &'s self,
        at: usize,
        sample: &'s Sample,
        own: &'s [ClassOf],
        readings: &'s Readings,
    ) -> Sent<'s> {
        let address = self.asked.addresses.get(at);
        Sent {
            set_up: self.set_up,
            at,
            sample,
            own,
            readings,
            is_ipv6: address.is_some_and(std::net::IpAddr::is_ipv6),
            counted: self.asked.time_ns,
        }
    }

    /// The classes that count the bytes of each class of the file, and where its bytes passed if not through them. Where
    /// none has the number that linerate gives it, it is the one that most bytes of the class alone passed.
    fn own_classes(
        &self,
        direction: Direction,
        done: &[&'a ArmTrial],
    ) -> Vec<(Vec<ClassOf>, Option<Strayed>)> {
        let none = Readings::default();
        let mut all: Vec<(Vec<ClassOf>, Option<Strayed>)> = Vec::new();
        let mut found: Vec<Option<ClassOf>> = Vec::new();
        for at in 0..self.classes() {
            let arm = Arm {
                kind: Kind::Alone(at),
                direction,
            };
            let trial = done.iter().find(|done| done.arm == arm);
            let Some(sample) = trial.and_then(|done| sample_of(done, at)) else {
                all.push((self.numbered(at), None));
                found.push(None);
                continue;
            };
            let sent = self.sent(at, sample, &[], &none);
            let numbered = self.numbered(at);
            if numbered.is_empty() {
                let busiest = sent.busiest(self.local, self.remote);
                all.push((busiest.clone().into_iter().collect(), None));
                found.push(busiest);
            } else {
                all.push((numbered, sent.strayed(self.local, self.remote)));
                found.push(None);
            }
        }
        for at in 0..all.len() {
            let Some(class) = &found[at] else { continue };
            let another =
                (0..all.len()).find(|other| *other != at && all[*other].0.contains(class));
            if let Some(other) = another {
                let mut strayed = observe::into(self.set_up, &class.0, class.1);
                if strayed.class.is_none() {
                    let name = &self.set_up.expected[other].name;
                    strayed.into = format!("{}, as that of class {name}", strayed.into);
                }
                strayed.class = Some(other);
                all[at].1 = Some(strayed);
            }
        }
        all
    }

    /// The classes of the interfaces with the number that linerate gives class `at`.
    fn numbered(&self, at: usize) -> Vec<ClassOf> {
        let number = self.set_up.numbers[at];
        let numbered = self.set_up.holders.iter().filter_map(|name: &NicName| {
            let class = class_of(self.local.nic(name)?, number)?;
            Some((name.clone(), class.handle))
        });
        numbered.collect()
    }
}

/// The sample of class `at` in a trial.
pub(super) fn sample_of(trial: &ArmTrial, at: usize) -> Option<&Sample> {
    let own = trial.samples.iter().find(|(own, _)| *own == at)?;
    Some(&own.1)
}
