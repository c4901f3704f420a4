//! What is injected, and which result is right.

use linerate_stats::{Random, Seed};
use linerate_testbed::mesh::{MeshFault, MeshSpec};
use serde_json::Value;

/// Hosts of a switch, as the hosts file lists them.
pub(super) const OF_SWITCH: u32 = 4;

/// A kind of trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Case {
    Clean,
    Send,
    Receive,
    Direction,
    Loss,
    BlackHole,
    Group,
    Killed,
}

pub(super) const CASES: [Case; 8] = [
    Case::Clean,
    Case::Send,
    Case::Receive,
    Case::Direction,
    Case::Loss,
    Case::BlackHole,
    Case::Group,
    Case::Killed,
];

/// A trial: a mesh, and a host that is killed after this many flows.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Planted {
    pub(super) spec: MeshSpec,
    pub(super) killed: Option<(u32, usize)>,
}

impl Case {
    /// Its name in the results, and for `--only`.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Clean => "none",
            Self::Send => "a host sends 15 % slower",
            Self::Receive => "a host receives 15 % slower",
            Self::Direction => "one direction of a pair is 15 % slower",
            Self::Loss => "0.5 % loss at a host",
            Self::BlackHole => "large packets dropped between two hosts",
            Self::Group => "the 4 hosts of a switch are 15 % slower",
            Self::Killed => "a host killed in mid-run",
        }
    }

    /// What a right result is, in the table.
    pub(super) const fn rule(self) -> &'static str {
        match self {
            Self::Clean => "nothing is named",
            Self::Send => "`host-send` of that host alone",
            Self::Receive => "`host-receive` of that host alone",
            Self::Direction => "that direction alone",
            Self::Loss => "`loss` at that host, and no other host",
            Self::BlackHole => "that pair alone",
            Self::Group => "that switch alone",
            Self::Killed => "that host `unreached`, nothing named",
        }
    }

    pub(super) const fn hosts(self) -> u32 {
        match self {
            Self::Group => 12,
            _ => 8,
        }
    }

    /// The mesh of a trial, seeded by its number.
    pub(super) fn planted(self, number: u16) -> Planted {
        let mut random = Random::new(Seed(u64::from(number)));
        let hosts = self.hosts();
        let mut below = |count: u32| u32::try_from(random.below(count.into())).unwrap_or_default();
        let host = below(hosts);
        let other = (host + 1 + below(hosts - 1)) % hosts;
        let first = host / OF_SWITCH * OF_SWITCH;
        let fault = match self {
            Self::Clean | Self::Killed => None,
            Self::Send => Some(MeshFault::Send(host)),
            Self::Receive => Some(MeshFault::Receive(host)),
            Self::Direction => Some(MeshFault::Pair(host, other)),
            Self::Loss => Some(MeshFault::Loss(host)),
            Self::BlackHole => Some(MeshFault::Mtu(host, other)),
            Self::Group => Some(MeshFault::Group(first, first + OF_SWITCH - 1)),
        };
        // All pairs of 8 hosts in two directions are 56 flows.
        let after = 4 + below(40) as usize;
        Planted {
            spec: MeshSpec {
                hosts,
                faults: fault.into_iter().collect(),
            },
            killed: (self == Self::Killed).then_some((host, after)),
        }
    }
}

/// The name that the hosts file gives to a host.
pub(super) fn peer(host: u32) -> String {
    format!("netns:lr-m{host}")
}

pub(super) fn switch(host: u32) -> String {
    format!("leaf{}", host / OF_SWITCH)
}

impl Planted {
    /// Whether a document of `mesh` is right.
    pub(super) fn is_right(&self, document: &Value) -> bool {
        let all = document["named"].as_array();
        let named: Vec<&Value> = all.into_iter().flatten().collect();
        let is_of = |one: &Value, key: &str, host: u32| one[key] == peer(host);
        let alone = |what: &str, host| matches!(&named[..], [one] if one["what"] == what && is_of(one, "host", host));
        let Some(fault) = self.spec.faults.first() else {
            return named.is_empty()
                && self.killed.is_none_or(|(host, _)| {
                    let state = &document["hosts"][host as usize]["state"];
                    *state == "unreached"
                });
        };
        match *fault {
            MeshFault::Send(host) => alone("host-send", host),
            MeshFault::Receive(host) => alone("host-receive", host),
            MeshFault::Pair(from, to) => alone("direction", from) && is_of(named[0], "to", to),
            MeshFault::Loss(host) => {
                let own = named.iter().all(|one| is_of(one, "host", host));
                let mut kinds = named.iter().filter_map(|one| one["what"].as_str());
                own && kinds.any(|what| what.starts_with("loss"))
            }
            MeshFault::Mtu(one, other) => {
                let is_own = |named: &&&Value| {
                    let ends = [(one, other), (other, one)];
                    let is = |(from, to)| is_of(named, "host", from) && is_of(named, "to", to);
                    ends.into_iter().any(is) && named["failure"].is_string()
                };
                !named.is_empty() && named.iter().filter(is_own).count() == named.len()
            }
            MeshFault::Group(first, _) => {
                let is_own = |named: &&&Value| named["group"]["name"] == switch(first);
                !named.is_empty() && named.iter().filter(is_own).count() == named.len()
            }
            // Those of an incast, which names nothing.
            MeshFault::Shared(..) | MeshFault::Separate(..) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_planted_mesh_can_be_made_and_each_case_has_a_name_of_its_own() {
        let mut names = Vec::new();
        for case in CASES {
            for number in 0..40 {
                assert_eq!(case.planted(number).spec.check(), Ok(()));
            }
            names.push(case.name());
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CASES.len());
    }

    #[test]
    fn a_second_name_or_the_wrong_side_is_not_right() {
        let planted = |fault| Planted {
            spec: MeshSpec {
                hosts: 8,
                faults: vec![fault],
            },
            killed: None,
        };
        let named = |what: &str, host| json!({"what": what, "host": peer(host)});
        let send = planted(MeshFault::Send(2));
        assert!(send.is_right(&json!({"named": [named("host-send", 2)]})));
        assert!(!send.is_right(&json!({"named": [named("host-receive", 2)]})));
        assert!(!send.is_right(&json!({"named": [named("host-send", 2), named("host-send", 3)]})));
        assert!(!send.is_right(&json!({"named": []})));
        let hole = planted(MeshFault::Mtu(1, 4));
        let pair = json!({"what": "pair", "host": peer(4), "to": peer(1), "failure": "stalled"});
        assert!(hole.is_right(&json!({"named": [pair]})));
        assert!(!hole.is_right(&json!({"named": [named("host-send", 4)]})));
        let killed = Planted {
            spec: MeshSpec {
                hosts: 2,
                faults: Vec::new(),
            },
            killed: Some((1, 4)),
        };
        let states =
            |state: &str| json!({"named": [], "hosts": [{"state": "ok"}, {"state": state}]});
        assert!(killed.is_right(&states("unreached")) && !killed.is_right(&states("ok")));
    }
}
