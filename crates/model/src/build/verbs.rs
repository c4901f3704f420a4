//! Samples of RDMA verbs for tests.

use crate::known::{Cause, Known};
use crate::latency::Histogram;
use crate::sample::{FlowRecord, Operations, Role, Sample, SideSample, SizeRecord, VerbsRecord};
use crate::units::{Bytes, Nanoseconds};
use crate::workload::{Rdma, Verb, Verbs, Waiting, Workload};

/// A `verb` with messages of `bytes`, as many in flight as the depth allows, for the whole trial.
pub fn rdma(verb: Verb, bytes: u64) -> Rdma {
    Rdma {
        verb,
        latency: false,
        sizes: vec![Bytes::new(bytes)],
        repetitions: None,
        data_check: false,
    }
}

/// Turns the trial of `sample` into an `rdma` trial of one size on port 1 of `mlx5_0` at both ends: same rate,
/// polling threads, queue pairs always full.
pub fn over_verbs(mut sample: Sample, rdma: Rdma) -> Sample {
    let size = rdma.sizes.first().copied().unwrap_or_default();
    let one_sided = rdma.verb != Verb::Send;
    sample.spec.workload = Workload::Rdma(rdma);
    sample.spec.verbs = Some(Verbs::default());
    sample.spec.waiting = Waiting::Spin;
    for side in [&mut sample.local, &mut sample.remote] {
        posted(side, size);
        for flow in &mut side.flows {
            let receives = flow.role == Role::Receiver;
            let messages = messages(flow, size);
            flow.tcp = Known::unknown(Cause::Absent, "TCP_INFO", "the payload goes over verbs");
            if receives && one_sided {
                flow.bytes.clear();
                flow.at_ns.clear();
            }
            flow.verbs = Some(record(if receives && one_sided { 0 } else { messages }));
        }
    }
    sample
}

fn messages(flow: &FlowRecord, size: Bytes) -> u64 {
    flow.total().as_u64() / size.as_u64().max(1)
}

/// The records of the end that posts.
fn posted(side: &mut SideSample, size: Bytes) {
    let done: u64 = side.senders().map(|flow| messages(flow, size)).sum();
    if side.senders().next().is_none() {
        return;
    }
    side.operations = Some(Operations {
        completed: done,
        sizes: vec![SizeRecord {
            bytes: size,
            repetitions: done,
            elapsed_ns: side.elapsed_ns,
            one_way: Histogram::default(),
            peak_bit_per_s: None,
            alone_ns: Some(Nanoseconds::from_micros(2)),
        }],
        ..Operations::default()
    });
}

fn record(messages: u64) -> VerbsRecord {
    VerbsRecord {
        device: "mlx5_0".to_owned(),
        port: 1,
        gid_index: Some(3),
        gid: Some("::ffff:10.0.0.1".to_owned()),
        gid_kind: Some("RoCE v2".to_owned()),
        queue_pair: 131,
        mtu: Some(4_096),
        depth: Verbs::default_depth(),
        inline_bytes: Bytes::new(0),
        moderation: 1,
        registered_bytes: Bytes::kib(128),
        completions: messages,
        // Most polls are empty.
        polls: messages * 20,
        polls_empty: messages * 19,
        sleeps: 0,
        ran_dry: Some(0),
    }
}
