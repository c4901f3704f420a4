//! What `measure stream --nic --format json` prints. Everything except `trials[].raw` can be recomputed from that, and from
//! the facts of both hosts.

use std::net::IpAddr;

use linerate_analysis::nics::bound::SharedBound;
use linerate_analysis::nics::elsewhere::Elsewhere;
use linerate_analysis::nics::{Change, Figures, Rate, Verdict};
use linerate_model::ceiling::Ceiling;
use linerate_model::ids::NicName;
use linerate_model::sample::{Flag, Sample};
use linerate_model::units::{BitRate, Bytes, Ratio};
use linerate_model::workload::Direction;
use linerate_runtime::endpoint::trial::PeerPath;
use serde::Serialize;

use super::super::document::{self, BothEnds, EndPlacement, HostLine};
use super::{Arm, Comparison};

/// What `linerate measure stream PEER --nic NIC,NIC --format json` prints: several NICs, each alone and all at once.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct NicsDocument<'a> {
    schema: &'static str,
    #[cfg_attr(test, schemars(extend("enum" = ["stream"])))]
    workload: &'static str,
    #[cfg_attr(test, schemars(extend("enum" = ["tcp"])))]
    transport: &'static str,
    /// forward: from here to the peer.
    direction: Direction,
    /// Connections of each NIC, in each direction.
    flows: u32,
    buffer_bytes: Bytes,
    /// The wait mode of the threads (`--wait`).
    waiting: String,
    /// The length of each trial.
    seconds: f64,
    /// The seed of the order of trials in each round, and of the intervals.
    pub(super) seed: u64,
    /// The number of whole rounds.
    pub(super) rounds: usize,
    /// In the order of the command.
    pub(super) nics: Vec<NicLine<'a>>,
    /// The sum of the rates of each alone.
    pub(super) sum_alone: Rate,
    /// The sum of the rates while all are used.
    pub(super) together: Rate,
    pub(super) interaction: Interaction,
    /// The bound that the NICs share; null if they do not move significantly less together than alone.
    pub(super) bound: Option<&'a SharedBound>,
    /// The flags of any trial.
    pub(super) flags: Vec<Flag>,
    /// Why the comparison ended early.
    stopped: Option<String>,
    hosts: BothEnds<HostLine<'a>>,
    /// Every trial of the whole rounds, in the order in which they ran; all together as one for each NIC.
    trials: &'a [Trial],
}

/// All together relative to the sum of each alone, minus 1; paired by round.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Interaction {
    #[serde(flatten)]
    pub(super) change: Change,
    /// What the interval shows.
    pub(super) verdict: Verdict,
}

/// One NIC and its path.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct NicLine<'a> {
    pub(super) nic: &'a NicName,
    /// The peer's interface that has the address.
    pub(super) remote_nic: &'a NicName,
    /// The peer's address.
    #[cfg_attr(test, schemars(with = "String"))]
    address: IpAddr,
    /// The local address that the connections are bound to.
    #[cfg_attr(test, schemars(with = "Option<String>"))]
    source: Option<IpAddr>,
    pub(super) bound_by: BoundBy,
    placement: BothEnds<Option<EndPlacement>>,
    /// The rate while only this NIC is used.
    pub(super) alone: Rate,
    /// Its rate while all are used.
    pub(super) together: Rate,
    /// From alone to together.
    pub(super) change: Change,
    /// The lowest computed bound of its path; null if none can be computed.
    ceiling: Option<CeilingLine<'a>>,
    /// Payload that the interface of an end did not carry, of the last trial where it did not.
    pub(super) elsewhere: &'a [Elsewhere],
}

/// What the connections are bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(super) enum BoundBy {
    /// The interface (SO_BINDTODEVICE) and its address.
    Device,
    /// The address only: the routes choose the interface.
    Address,
}

/// A computed bound.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct CeilingLine<'a> {
    bit_per_s: f64,
    /// The share of it that is reached alone.
    share: Option<f64>,
    reason: &'a str,
}

impl<'a> CeilingLine<'a> {
    fn of(ceiling: &'a Ceiling, alone: Rate) -> Self {
        let rate = BitRate::from_f64(alone.rate_bit_per_s);
        Self {
            bit_per_s: ceiling.bit_per_s.as_f64(),
            share: rate.and_then(|rate| ceiling.share(rate)).map(Ratio::as_f64),
            reason: &ceiling.reason,
        }
    }
}

/// One NIC's part of a trial.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Trial {
    round: u32,
    #[cfg_attr(test, schemars(extend("enum" = ["alone", "together"])))]
    arm: &'static str,
    nic: NicName,
    /// After the warm-up, as the receivers counted.
    rate_bit_per_s: Option<f64>,
    flags: Vec<Flag>,
    /// The record as stored: only counters and times. A missing value is an object with `unknown`, `path` and `reason`
    /// here.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        test,
        schemars(with = "std::collections::BTreeMap<String, serde_json::Value>")
    )]
    raw: Option<Sample>,
}

impl Trial {
    pub(super) fn new(
        round: u32,
        arm: Arm,
        nic: NicName,
        rate_bit_per_s: Option<f64>,
        sample: Sample,
        keeps_raw: bool,
    ) -> Self {
        Self {
            round,
            arm: match arm {
                Arm::Alone(_) => "alone",
                Arm::Together => "together",
            },
            nic,
            rate_bit_per_s,
            flags: sample.flags.clone(),
            raw: keeps_raw.then_some(sample),
        }
    }
}

pub(super) fn document<'a>(
    comparison: &'a Comparison,
    paths: &'a [PeerPath],
    figures: &Figures,
    bound: Option<&'a SharedBound>,
    stopped: Option<String>,
) -> NicsDocument<'a> {
    let spec = &comparison.specs[0];
    let mut flags: Vec<Flag> = Vec::new();
    for flag in comparison.trials.iter().flat_map(|trial| &trial.flags) {
        if !flags.contains(flag) {
            flags.push(*flag);
        }
    }
    NicsDocument {
        schema: "linerate.nics/1",
        workload: spec.workload.name(),
        transport: spec.transport(),
        direction: spec.direction,
        flows: spec.flows,
        buffer_bytes: spec.buffer_bytes,
        waiting: spec.waiting.to_string(),
        seconds: spec.duration_ns.as_secs_f64(),
        seed: comparison.seed,
        rounds: comparison.rounds.len(),
        nics: nics(comparison, paths, figures),
        sum_alone: figures.sum_alone,
        together: figures.together,
        interaction: Interaction {
            change: figures.interaction,
            verdict: figures.interaction.verdict(),
        },
        bound,
        flags,
        stopped,
        hosts: BothEnds {
            local: HostLine::from(&paths[0].local),
            remote: HostLine::from(&paths[0].remote),
        },
        trials: &comparison.trials,
    }
}

fn nics<'a>(
    comparison: &'a Comparison,
    paths: &'a [PeerPath],
    figures: &Figures,
) -> Vec<NicLine<'a>> {
    let all = paths.iter().zip(&comparison.specs).zip(&figures.nics);
    let facts = comparison.ceilings.iter().zip(&comparison.elsewhere);
    all.zip(facts)
        .map(|(((path, spec), nic), (ceiling, elsewhere))| {
            let source = path.source.as_ref();
            let is_bound = source.is_some_and(|source| source.device.is_some());
            NicLine {
                nic: &path.local_nic,
                remote_nic: &path.remote_nic,
                address: path.address,
                source: source.map(|source| source.address),
                bound_by: if is_bound {
                    BoundBy::Device
                } else {
                    BoundBy::Address
                },
                placement: document::placement(spec),
                alone: nic.alone,
                together: nic.together,
                change: nic.change,
                ceiling: ceiling
                    .as_ref()
                    .map(|ceiling| CeilingLine::of(ceiling, nic.alone)),
                elsewhere,
            }
        })
        .collect()
}
