//! What `qos verify --format json` prints.

use linerate_analysis::qos::{ClassResult, Verdict, judge, overall};
use linerate_model::ids::NicName;
use linerate_model::qos::Framing;
use linerate_model::workload::Direction;
use serde::Serialize;

use super::judged::Judged;

/// What `linerate qos verify FILE PEER --format json` prints.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct QosDocument {
    schema: &'static str,
    /// The port or bond.
    pub(super) interface: NicName,
    /// Which bytes the limits and rates count.
    pub(super) limit_of: Framing,
    /// The transport of the flows.
    #[cfg_attr(test, schemars(extend("enum" = ["tcp", "udp", "verbs"])))]
    pub(super) transport: &'static str,
    /// Flows of each class.
    flows: u32,
    /// The counted length of each trial.
    seconds: f64,
    /// The seed of the order of trials in each round.
    pub(super) seed: u64,
    /// The number of complete rounds.
    pub(super) rounds: usize,
    /// The number of rounds that were asked for.
    pub(super) rounds_asked: u32,
    /// Whether it ended early: what was not tried until then is `not-tried`, and nothing is judged by fewer than three trials.
    pub(super) interrupted: bool,
    /// How far a rate may be from its limit, as a share of it.
    pub(super) within: f64,
    /// The worst of the classes.
    pub(super) verdict: Verdict,
    /// Each direction.
    pub(super) directions: Vec<DirectionResult>,
    /// Classes that are left out, and why.
    pub(super) left_out: Vec<String>,
    /// What of this host's configuration is not read: filters of other programs.
    pub(super) unread: Vec<String>,
}

/// The classes of one direction.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct DirectionResult {
    /// forward: from here to the peer.
    pub(super) direction: Direction,
    /// In the order of the file.
    pub(super) classes: Vec<ClassResult>,
}

impl QosDocument {
    /// Each class of each direction.
    pub(super) fn all(&self) -> impl Iterator<Item = &ClassResult> {
        self.directions.iter().flat_map(|one| &one.classes)
    }
}

pub(super) fn document(judged: &Judged<'_>, seed: u64, interrupted: bool) -> QosDocument {
    let (asked, set_up) = (judged.asked, judged.set_up);
    let results = asked.directions.iter().map(|direction| {
        let mut expected = set_up.expected.clone();
        if *direction == Direction::Reverse {
            // They are of this host's configuration.
            for class in &mut expected {
                class.wrong.clear();
                class.configured = None;
            }
        }
        DirectionResult {
            direction: *direction,
            classes: judge(&expected, &judged.rounds(*direction), asked.within),
        }
    });
    let directions: Vec<DirectionResult> = results.collect();
    QosDocument {
        schema: "linerate.qos/1",
        interface: set_up.qos.interface.clone(),
        limit_of: set_up.qos.limit_of,
        transport: match (asked.udp, asked.verbs) {
            (true, _) => "udp",
            (_, true) => "verbs",
            _ => "tcp",
        },
        flows: asked.flows,
        seconds: asked.time_ns.as_secs_f64(),
        seed,
        rounds: judged.complete(),
        rounds_asked: asked.rounds,
        interrupted,
        within: asked.within,
        verdict: overall(directions.iter().flat_map(|one| &one.classes)),
        directions,
        left_out: set_up.left_out.clone(),
        unread: set_up.unread.clone(),
    }
}
