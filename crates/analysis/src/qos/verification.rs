//! What a run of `qos verify` stores: what was asked, and the samples and readings of each trial. Everything that is printed
//! is computed from these, so that `report` shows it again.

use std::collections::BTreeMap;
use std::net::IpAddr;

use linerate_model::ids::NicName;
use linerate_model::sample::Sample;
use linerate_model::units::Nanoseconds;
use linerate_model::workload::Direction;
use serde::{Deserialize, Serialize};

use super::series::ClassReading;

/// What was asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verification {
    /// The text of the file of classes.
    pub file: String,
    /// Flows of each class.
    pub flows: u32,
    /// The counted length of each trial.
    pub time_ns: Nanoseconds,
    /// The number of rounds that were asked for.
    pub rounds: u32,
    /// How far a rate may be from its limit, as a share of it.
    pub within: f64,
    /// Whether datagrams were sent in place of TCP.
    pub udp: bool,
    /// Whether RDMA verbs were used in place of sockets.
    pub verbs: bool,
    /// The directions in which the classes sent.
    pub directions: Vec<Direction>,
    /// The names of the measured classes, in the order of the file.
    pub classes: Vec<String>,
    /// The address of the peer that each of them sent to.
    pub addresses: Vec<IpAddr>,
}

/// The trials that run at the same time, one for each class that is part of them. The numbers are those of the measured
/// classes, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// One class sends.
    Alone(usize),
    /// All send.
    Together,
    /// None sends; the round trips of all are watched.
    Quiet,
    /// One sends; the round trips of the others are watched.
    Beside(usize),
}

/// Some trials in one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    /// Which classes send.
    pub kind: Kind,
    /// Where to.
    pub direction: Direction,
}

/// What a class does in a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// It sends as much as it can.
    Sends,
    /// Its round trips are watched.
    Probes,
}

impl Arm {
    /// All of a round with `classes` classes.
    pub fn all(classes: usize, directions: &[Direction]) -> Vec<Self> {
        let mut kinds: Vec<Kind> = (0..classes).map(Kind::Alone).collect();
        if classes > 1 {
            kinds.extend([Kind::Together, Kind::Quiet]);
            kinds.extend((0..classes).map(Kind::Beside));
        }
        let of = |direction: &Direction| {
            let direction = *direction;
            kinds.iter().map(move |kind| Self {
                kind: *kind,
                direction,
            })
        };
        directions.iter().flat_map(of).collect()
    }

    /// What it shows, with the names of the classes.
    pub fn in_words(self, classes: &[String]) -> String {
        let name = |at: usize| classes.get(at).map_or("?", String::as_str);
        let what = match self.kind {
            Kind::Alone(at) => format!("{} alone", name(at)),
            Kind::Together => "all together".to_owned(),
            Kind::Quiet => "round trips while no class sends".to_owned(),
            Kind::Beside(at) => format!("round trips while {} sends", name(at)),
        };
        match self.direction {
            Direction::Reverse => format!("{what}, from the peer"),
            _ => what,
        }
    }

    /// Whether class `at` sends, or its round trips are watched; none if it has no part.
    pub fn part(self, at: usize) -> Option<Part> {
        match self.kind {
            Kind::Alone(own) => (own == at).then_some(Part::Sends),
            Kind::Together => Some(Part::Sends),
            Kind::Beside(own) if own == at => Some(Part::Sends),
            Kind::Quiet | Kind::Beside(_) => Some(Part::Probes),
        }
    }
}

/// The trials of an arm, as they were made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArmTrial {
    /// Its round, from 0.
    pub round: u32,
    /// Which classes sent, and where to.
    pub arm: Arm,
    /// The sample of each class that had a part, with its number.
    pub samples: Vec<(usize, Sample)>,
    /// The classes of this host meanwhile.
    pub readings: Readings,
}

/// The readings of each class, by interface and handle.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<ReadingsOf>", into = "Vec<ReadingsOf>")]
pub struct Readings(BTreeMap<(NicName, u32), Vec<ClassReading>>);

/// One class of [`Readings`], as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct ReadingsOf {
    nic: NicName,
    handle: u32,
    readings: Vec<ClassReading>,
}

impl From<Vec<ReadingsOf>> for Readings {
    fn from(all: Vec<ReadingsOf>) -> Self {
        let all = all.into_iter();
        Self(
            all.map(|one| ((one.nic, one.handle), one.readings))
                .collect(),
        )
    }
}

impl From<Readings> for Vec<ReadingsOf> {
    fn from(all: Readings) -> Self {
        let all = all.0.into_iter();
        all.map(|((nic, handle), readings)| ReadingsOf {
            nic,
            handle,
            readings,
        })
        .collect()
    }
}

impl Readings {
    /// Adds one.
    pub fn add(&mut self, nic: &NicName, handle: u32, reading: ClassReading) {
        let readings = self.0.entry((nic.clone(), handle)).or_default();
        readings.push(reading);
    }

    /// The sum of the classes with these handles; empty without any.
    pub fn of(&self, classes: &[(NicName, u32)]) -> Vec<ClassReading> {
        let mut all: Vec<ClassReading> = Vec::new();
        for own in classes.iter().filter_map(|class| self.0.get(class)) {
            if all.is_empty() {
                all.clone_from(own);
                continue;
            }
            for (sum, one) in all.iter_mut().zip(own) {
                sum.bytes = sum.bytes.saturating_add(one.bytes);
                sum.packets = sum.packets.saturating_add(one.packets);
                sum.backlog_bytes = sum.backlog_bytes.saturating_add(one.backlog_bytes);
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_are_the_same_after_they_were_stored() {
        let mut readings = Readings::default();
        let nic: NicName = "eth0".parse().expect("a name");
        for at in 0..3_u32 {
            let reading = ClassReading {
                at_ns: Nanoseconds::from_millis(u64::from(at) * 20),
                bytes: u64::from(at) * 1_514,
                packets: at.into(),
                backlog_bytes: 7,
            };
            readings.add(&nic, 0x1_0010, reading);
            readings.add(&nic, 0x1_0020, reading);
        }
        let text = serde_json::to_string(&readings).expect("JSON");
        let back: Readings = serde_json::from_str(&text).expect("the same JSON");
        assert_eq!(back, readings);
        let sum = back.of(&[(nic.clone(), 0x1_0010), (nic, 0x1_0020)]);
        assert_eq!(
            sum.iter().map(|one| one.bytes).collect::<Vec<_>>(),
            [0, 3_028, 6_056]
        );
        assert!(back.of(&[]).is_empty());
    }

    #[test]
    fn a_round_of_one_class_is_one_trial_in_each_direction() {
        let both = [Direction::Forward, Direction::Reverse];
        assert_eq!(Arm::all(1, &both).len(), 2);
        assert_eq!(Arm::all(3, &both).len(), 16);
    }
}
