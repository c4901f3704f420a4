//! Correct set-ups of classes, and one thing wrong with them.

use linerate_bench_shared::{Trouble, run_inside};
use linerate_stats::Random;
use linerate_testbed::Netns;
use serde::Serialize;

/// The classes: name, how the file selects it, how a rule does, and its limit in Mb/s. The last has the rest.
const CLASSES: [(&str, &str, &str, u32); 3] = [
    ("storage", "priority = 1", "meta priority 0:1", 20),
    ("backup", "mark = 7", "meta mark 7", 30),
    ("rest", "", "", 40),
];

/// The classes of a bond that have a VLAN.
pub(crate) const OF_BOND: [&str; 2] = ["low", "middle"];

/// What is wrong with a set-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Wrong {
    /// Nothing.
    Clean,
    /// A limit is 5 % too high.
    High,
    /// A limit is 5 % too low.
    Low,
    /// A rule misses the traffic of its class.
    Missed,
    /// All share a parent, and none is guaranteed anything.
    Shared,
    /// A port of a bond has no limit.
    Port,
    /// A VLAN maps no priority.
    Map,
}

/// One set-up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Planted {
    pub(crate) wrong: Wrong,
    /// The class that it is about; that of `Shared` and `Port` is each.
    pub(crate) class: usize,
}

impl Planted {
    pub(crate) fn clean() -> Self {
        Self {
            wrong: Wrong::Clean,
            class: 0,
        }
    }

    /// One thing at random of those that a bond with VLANs can lack.
    pub(crate) fn seeded_of_bond(random: &mut Random) -> Self {
        Self {
            wrong: [Wrong::Port, Wrong::Map][random.index(2)],
            class: random.index(OF_BOND.len()),
        }
    }

    /// One thing at random.
    pub(crate) fn seeded(random: &mut Random) -> Self {
        let wrong = [Wrong::High, Wrong::Low, Wrong::Missed, Wrong::Shared];
        let wrong = wrong[random.index(wrong.len())];
        // The rest has no rule.
        let classes = if wrong == Wrong::Missed { 2 } else { 3 };
        Self {
            wrong,
            class: random.index(classes),
        }
    }

    /// The class that is wrong; none of several or of none.
    pub(crate) fn class(&self) -> Option<&'static str> {
        match self.wrong {
            Wrong::Clean | Wrong::Shared | Wrong::Port => None,
            Wrong::Map => Some(OF_BOND[self.class]),
            Wrong::High | Wrong::Low | Wrong::Missed => Some(CLASSES[self.class].0),
        }
    }

    /// Which check finds it.
    pub(crate) fn check(&self) -> &'static str {
        match self.wrong {
            Wrong::Clean => "none",
            Wrong::High | Wrong::Low => "alone",
            Wrong::Missed => "class",
            Wrong::Shared => "together",
            Wrong::Port | Wrong::Map => "configuration",
        }
    }

    /// Makes it on `near0` of that host, in place of what was there.
    pub(crate) fn make(&self, host: &Netns) -> Result<(), Trouble> {
        let _ = run_inside(host, "tc", "qdisc del dev near0 root");
        let _ = run_inside(host, "nft", "delete table netdev qos");
        let run = |program: &str, words: &str| {
            run_inside(host, program, words).map(drop).map_err(Trouble)
        };
        let top = if self.wrong == Wrong::Shared {
            "40mbit"
        } else {
            "10gbit"
        };
        run("tc", "qdisc add dev near0 root handle 1: htb default 30")?;
        run(
            "tc",
            &format!(
                "class add dev near0 parent 1: classid 1:1 htb rate {top} ceil {top} quantum 60000"
            ),
        )?;
        run("nft", "add table netdev qos")?;
        run(
            "nft",
            "add chain netdev qos classes { type filter hook egress device near0 priority 0 ; }",
        )?;
        for (at, (_, _, rule, limit)) in CLASSES.iter().enumerate() {
            let number = (at + 1) * 10;
            let is_own = at == self.class;
            let ceil = match self.wrong {
                Wrong::High if is_own => limit * 1050,
                Wrong::Low if is_own => limit * 950,
                _ => limit * 1000,
            };
            let rate = if self.wrong == Wrong::Shared {
                1000
            } else {
                ceil
            };
            run(
                "tc",
                &format!(
                    "class add dev near0 parent 1:1 classid 1:{number} htb rate {rate}kbit ceil {ceil}kbit burst 15k cburst 15k quantum 60000"
                ),
            )?;
            run(
                "tc",
                &format!("qdisc add dev near0 parent 1:{number} pfifo limit 100"),
            )?;
            let is_missed = self.wrong == Wrong::Missed && is_own;
            if !rule.is_empty() && !is_missed {
                run(
                    "nft",
                    &format!("add rule netdev qos classes {rule} meta priority set 1:{number}"),
                )?;
            }
        }
        Ok(())
    }
}

/// The file that all of them should hold.
pub(crate) fn file() -> String {
    let class = |(name, selector, _, limit): &(&str, &str, &str, u32)| {
        format!("[[class]]\nname = \"{name}\"\n{selector}\nlimit = \"{limit}mbit\"\n")
    };
    let classes: String = CLASSES.iter().map(class).collect();
    format!("[qos]\ninterface = \"near0\"\n{classes}")
}
