//! From the result of a flow to observations: one for each direction.

use linerate_analysis::trial::figure::figure;
use linerate_analysis::trial::operations::ops_per_s;
use linerate_analysis::trial::rate_of;
use linerate_model::analysis::{rate_after, ways};
use linerate_model::end::End;
use linerate_model::lab::Response;
use linerate_model::mesh::{Failure, Flow, HostIndex, Observation, Outcome, Retransmits, Round};
use linerate_model::sample::{Role, Sample, TcpInfo};
use linerate_model::units::{BitRate, Nanoseconds};
use linerate_model::workload::Direction;
use linerate_runtime::endpoint::remote_pairs::{FlowFailure, FlowStage};

/// What came out of a flow of a round.
pub(super) fn observations(
    round: &Round,
    flow: &Flow,
    result: &Result<Box<Sample>, FlowFailure>,
) -> Vec<Observation> {
    match result {
        Ok(sample) if flow.is_bidirectional => vec![
            observation(
                round,
                flow,
                (flow.from, flow.to),
                measured(&one_way(sample, End::Local)),
            ),
            observation(
                round,
                flow,
                (flow.to, flow.from),
                measured(&one_way(sample, End::Remote)),
            ),
        ],
        Ok(sample) => vec![observation(
            round,
            flow,
            (flow.from, flow.to),
            measured(sample),
        )],
        Err(failure) => both(round, flow, failed(failure)),
    }
}

/// The same outcome for all directions of a flow.
pub(super) fn both(round: &Round, flow: &Flow, outcome: Outcome) -> Vec<Observation> {
    let mut all = Vec::new();
    if flow.is_bidirectional {
        all.push(observation(
            round,
            flow,
            (flow.to, flow.from),
            outcome.clone(),
        ));
    }
    all.push(observation(round, flow, (flow.from, flow.to), outcome));
    all
}

fn observation(
    round: &Round,
    flow: &Flow,
    (from, to): (HostIndex, HostIndex),
    outcome: Outcome,
) -> Observation {
    Observation {
        round: round.number,
        step: round.step,
        from,
        to,
        role: flow.role,
        outcome,
    }
}

fn failed(failure: &FlowFailure) -> Outcome {
    let cause = failure.why.clone();
    if !failure.lost.is_empty() || failure.is_interrupted {
        return Outcome::NotTried { cause };
    }
    Outcome::Failed {
        failure: match failure.stage {
            FlowStage::Connect => Failure::Connect,
            FlowStage::Run => Failure::Broken,
            FlowStage::Deadline => Failure::Deadline,
        },
        cause,
    }
}

/// The figure of a trial in one direction.
fn measured(sample: &Sample) -> Outcome {
    let rate = if sample.spec.workload.is_bulk() {
        rate_of(sample).map(BitRate::as_f64)
    } else {
        ops_per_s(sample)
    };
    match rate.filter(|rate| *rate > 0.0) {
        Some(rate) => Outcome::Measured {
            rate,
            latency_ns_p99: figure(Response::P99, sample).and_then(nanoseconds),
            retransmits: retransmits(sample),
        },
        None => Outcome::Failed {
            failure: Failure::Stalled,
            cause: if rate_after(sample, 0).is_some_and(|rate| rate.as_bit_per_s() > 0) {
                "no data arrived after the warm-up".to_owned()
            } else {
                "the connection was established, and no data arrived".to_owned()
            },
        },
    }
}

/// What the connections of a trial in one direction retransmitted; none if the kernel did not report it of each.
fn retransmits(sample: &Sample) -> Option<Retransmits> {
    let ways = ways(sample);
    let [way] = &ways[..] else {
        return None;
    };
    let infos: Option<Vec<&TcpInfo>> = way.sender.senders().map(|flow| flow.tcp.value()).collect();
    let infos = infos.filter(|infos| !infos.is_empty())?;
    let sum = |of: fn(&TcpInfo) -> u64| -> u32 {
        let sum: u64 = infos.iter().map(|tcp| of(tcp)).sum();
        u32::try_from(sum).unwrap_or(u32::MAX)
    };
    Some(Retransmits {
        segments: sum(|tcp| tcp.segments_out),
        retransmitted: sum(|tcp| {
            u64::from(tcp.retransmits).saturating_sub(tcp.duplicate_segments.unwrap_or(0))
        }),
    })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float converts saturating, and a latency is positive"
)]
fn nanoseconds(seconds: f64) -> Option<Nanoseconds> {
    (seconds > 0.0).then(|| Nanoseconds::new((seconds * 1e9) as u64))
}

/// The data that `from` sent in a trial of both directions, as a trial of its own.
fn one_way(sample: &Sample, from: End) -> Sample {
    let mut one = sample.clone();
    if from == End::Remote {
        std::mem::swap(&mut one.local, &mut one.remote);
    }
    one.spec.direction = Direction::Forward;
    one.local.flows.retain(|flow| flow.role == Role::Sender);
    one.remote.flows.retain(|flow| flow.role == Role::Receiver);
    one.remote.operations = None;
    one
}
