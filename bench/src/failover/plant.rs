//! Interruptions of known length: packets that nftables drops, or a link that is down.

use std::time::{Duration, Instant};

use linerate_bench_shared::{Trouble, pause, run_inside};
use linerate_stats::Random;
use linerate_testbed::Netns;
use serde::{Deserialize, Serialize};

/// The lengths that are injected, in milliseconds.
pub(super) const LENGTHS_MS: [u64; 5] = [0, 5, 50, 500, 3_600];

/// Counters that outlive the rules, and the hooks that all packets of near0 pass.
const TABLE: &str = "table netdev hole { counter there { } ; counter back { } ; \
    chain out { type filter hook egress device \"near0\" priority 0 ; } ; \
    chain in { type filter hook ingress device \"near0\" priority 0 ; } ; }";

/// An interface that is not up by then never will be.
const UP_MAX: Duration = Duration::from_secs(30);

/// How packets are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// Dropped by a rule: every carrier is up.
    Silent,
    /// The peer's interface is down, and this one loses its carrier. Both directions and all flows.
    Carrier,
}

/// An interruption.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Hole {
    pub(super) length_ms: u64,
    pub(super) kind: Kind,
    /// Whether packets to the peer, and packets from it, are lost.
    pub(super) directions: [bool; 2],
    /// Only the flows of every fourth port.
    pub(super) is_quarter: bool,
    /// A busy loop for each CPU runs beside it.
    pub(super) beside_load: bool,
}

/// What was really injected.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Bounds {
    /// The shortest and the longest that it can have been: from the end of the command that began it to the start of the one
    /// that ended it, and from start to end; of a carrier, until both hosts have resolved each other again.
    pub(super) min_ns: u64,
    pub(super) max_ns: u64,
    /// The packets that the rules dropped; none of a carrier.
    pub(super) dropped: Option<[u64; 2]>,
}

impl Hole {
    pub(super) fn seeded(length_ms: u64, kind: Kind, random: &mut Random) -> Self {
        let directions = match random.below(3) {
            0 => [true, false],
            1 => [false, true],
            _ => [true, true],
        };
        let is_carrier = kind == Kind::Carrier;
        Self {
            length_ms,
            kind,
            directions: directions.map(|is_lost| length_ms > 0 && (is_carrier || is_lost)),
            is_quarter: !is_carrier && random.below(2) == 0,
            beside_load: random.below(2) == 0,
        }
    }

    /// Injects it between two hosts.
    pub(super) fn inject(&self, (near, far): (&Netns, &Netns)) -> Result<Bounds, Trouble> {
        if self.length_ms == 0 {
            return Ok(Bounds {
                dropped: Some([0, 0]),
                ..Bounds::default()
            });
        }
        let (host, program, begin, end) = match self.kind {
            Kind::Silent => (
                near,
                "nft",
                self.rules(),
                "flush chain netdev hole out ; flush chain netdev hole in".to_owned(),
            ),
            Kind::Carrier => (
                far,
                "ip",
                "link set far0 down".to_owned(),
                "link set far0 up".to_owned(),
            ),
        };
        let first = Instant::now();
        run_inside(host, program, &begin).map_err(Trouble)?;
        let begun = Instant::now();
        pause(Duration::from_millis(self.length_ms));
        let last = Instant::now();
        run_inside(host, program, &end).map_err(Trouble)?;
        if self.kind == Kind::Carrier {
            until_reached(near, "near0")?;
            until_reached(far, "far0")?;
        }
        let ended = Instant::now();
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let dropped = match self.kind {
            Kind::Silent => Some([dropped(near, "there")?, dropped(near, "back")?]),
            Kind::Carrier => None,
        };
        Ok(Bounds {
            min_ns: nanoseconds(last.duration_since(begun)),
            max_ns: nanoseconds(ended.duration_since(first)),
            dropped,
        })
    }

    fn rules(&self) -> String {
        let ports = |side: &str| {
            if self.is_quarter {
                format!("udp {side} and 3 == 0 ")
            } else {
                "meta l4proto udp ".to_owned()
            }
        };
        let there = format!(
            "add rule netdev hole out {}counter name there drop",
            ports("sport")
        );
        let back = format!(
            "add rule netdev hole in {}counter name back drop",
            ports("dport")
        );
        let rules = self.directions.into_iter().zip([there, back]);
        let rules = rules.filter(|(is_lost, _)| *is_lost);
        let rules: Vec<String> = rules.map(|(_, rule)| rule).collect();
        rules.join(" ; ")
    }
}

/// Waits until an interface sends again, and its host has resolved the other one. The kernel reports a carrier that
/// changed twice within a second up to a second late and restarts the qdisc only then (net/core/link_watch.c), and it
/// repeats an ARP request that was lost meanwhile after a second (`retrans_time_ms`).
fn until_reached(host: &Netns, nic: &str) -> Result<(), Trouble> {
    let link = format!("-o link show dev {nic}");
    let neighbor = format!("-4 neigh show dev {nic}");
    let shows = |words: &str, what: &str| -> Result<bool, Trouble> {
        let shown = run_inside(host, "ip", words).map_err(Trouble)?;
        Ok(shown.contains(what))
    };
    let until = Instant::now() + UP_MAX;
    while !(shows(&link, " state UP ")? && shows(&neighbor, " lladdr ")?) {
        if Instant::now() > until {
            return Err(Trouble(format!("wait for the carrier of {nic}")));
        }
        pause(Duration::from_millis(2));
    }
    Ok(())
}

/// Replaces the table, so that its counters are zero.
pub(super) fn prepare(near: &Netns) -> Result<(), Trouble> {
    // It is not there at first.
    let _ = run_inside(near, "nft", "delete table netdev hole");
    run_inside(near, "nft", TABLE).map_err(Trouble)?;
    Ok(())
}

/// What a counter counted.
fn dropped(near: &Netns, name: &str) -> Result<u64, Trouble> {
    let words = format!("list counter netdev hole {name}");
    let shown = run_inside(near, "nft", &words).map_err(Trouble)?;
    packets(&shown).ok_or_else(|| Trouble(format!("read the counter {name}: {shown}")))
}

fn packets(shown: &str) -> Option<u64> {
    let mut words = shown.split_whitespace();
    words.find(|word| *word == "packets")?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_read_as_nft_lists_it() {
        let shown = "table netdev hole {\n\tcounter there {\n\t\tpackets 42 bytes 3864\n\t}\n}\n";
        assert_eq!(packets(shown), Some(42));
        assert_eq!(packets(""), None);
    }
}
