//! Whether a trial did what its specification requested: placement of threads and buffers, zero-copy, and rate.

use std::collections::BTreeSet;

use crate::host::Host;
use crate::known::Known;
use crate::sample::{Role, SideSample, ThreadRecord};
use crate::threshold;
use crate::units::real;
use crate::workload::{MemoryPolicy, ReceiveMode, TrialSpec, Waiting, Workload};

/// Above this share of copied zero-copy sends, the trial counts as copying. The first sends of a connection may be
/// copied while its socket is being set up.
const COPIED_SHARE: f64 = 0.01;
/// Below this share of mapped payload, the receiver counts as copying.
const MAPPED_SHARE: f64 = 0.5;

/// Whether a pinned thread was seen on another CPU, or migrated. An unpinned thread may migrate freely.
pub(super) fn migrated(side: &SideSample) -> bool {
    side.threads.iter().any(|thread| {
        let Some(pinned) = thread.pinned_to else {
            return false;
        };
        thread.moves_seen > 0 || thread.seen_on.iter().any(|cpu| *cpu != pinned)
    })
}

/// Whether a buffer is known to be on another node than its policy requests. The default policy requests none.
pub(super) fn memory_elsewhere(spec: &TrialSpec, side: &SideSample, host: &Host) -> bool {
    side.threads.iter().any(|thread| {
        let policy = match thread.role {
            Role::Sender => &spec.placement.sender_memory,
            Role::Receiver => &spec.placement.receiver_memory,
        };
        let Known::Value(node) = &thread.memory_node else {
            return false;
        };
        match policy {
            MemoryPolicy::Default => false,
            MemoryPolicy::Local => own_node(thread, host).is_some_and(|own| own != *node),
            MemoryPolicy::Bind(nodes) | MemoryPolicy::Interleave(nodes) => !nodes.contains(node),
            MemoryPolicy::Preferred(asked) => asked != node,
        }
    })
}

/// The node of the CPU that a thread was pinned to: an unpinned one may have touched its buffer anywhere.
fn own_node(thread: &ThreadRecord, host: &Host) -> Option<crate::ids::NodeId> {
    host.cpu(thread.pinned_to?)?.node.get()
}

/// Whether the kernel copied data that was to be sent or received with zero-copy.
pub(super) fn copied_after_all(spec: &TrialSpec, side: &SideSample) -> bool {
    let maps = matches!(&spec.workload, Workload::Stream(stream) if stream.receive == ReceiveMode::Zerocopy);
    side.flows.iter().any(|flow| {
        let Some(copies) = flow.copies else {
            return false;
        };
        let copied = real(copies.copied_after_all) > COPIED_SHARE * real(copies.zerocopy_sends);
        let total = real(flow.total().as_u64());
        let unmapped = maps
            && flow.role == Role::Receiver
            && real(copies.mapped_bytes.as_u64()) < MAPPED_SHARE * total;
        copied || unmapped
    })
}

/// Whether the CPU time of the kernel's polling thread of a ring is missing.
pub(super) fn polling_uncounted(waiting: Waiting, side: &SideSample) -> bool {
    let polled: BTreeSet<u32> = side
        .threads
        .iter()
        .filter_map(|one| one.polls_for)
        .collect();
    waiting == Waiting::UringSqpoll
        && (side.threads.iter()).any(|one| one.polls_for.is_none() && !polled.contains(&one.thread))
}

/// Whether the generator at this end fell behind the requested rate. Operations in flight at the end do not count as
/// missing.
pub(super) fn rate_not_kept(spec: &TrialSpec, side: &SideSample) -> bool {
    let seconds = side.began_for(spec).as_secs_f64();
    let behind = |asked: f64, done: f64, under_way: f64| {
        seconds > 0.0 && done < threshold::RATE_KEPT.as_f64() * asked && done + under_way < asked
    };
    let operations = |rate: Option<u64>| {
        let (Some(rate), Some(operations)) = (rate, &side.operations) else {
            return false;
        };
        let under_way = f64::from(spec.flows);
        behind(real(rate) * seconds, real(operations.completed), under_way)
    };
    match &spec.workload {
        Workload::Rr(rr) => operations(rr.rate_per_s),
        Workload::Http(http) => operations(http.rate_per_s),
        Workload::Udp(udp) => udp.rate_bit_per_s.is_some_and(|rate| {
            let datagram = real(udp.datagram_bytes.as_u64());
            let asked = real(rate.as_bit_per_s()) / 8.0 * seconds;
            side.senders()
                .any(|flow| behind(asked, real(flow.total().as_u64()), datagram))
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;
    use crate::ids::{CpuId, NodeId};
    use crate::sample::{Copies, Operations, Sample};
    use crate::units::{BitRate, Bytes, Nanoseconds};
    use crate::workload::{DatagramBatch, Http, Stream, Udp};

    fn thread(role: Role, pinned: Option<u32>, seen: &[u32], moves: u32) -> ThreadRecord {
        let none = Nanoseconds::new(0);
        ThreadRecord {
            thread: 0,
            role,
            pinned_to: pinned.map(CpuId),
            seen_on: seen.iter().copied().map(CpuId).collect(),
            moves_seen: moves,
            memory_node: Known::default(),
            user_ns: none,
            system_ns: none,
            voluntary_switches: 0,
            involuntary_switches: 0,
            minor_faults: 0,
            major_faults: 0,
            waited_for_cpu_ns: Known::default(),
            polls_for: None,
        }
    }

    fn with_thread(thread: ThreadRecord) -> Sample {
        let mut sample = build::sample().build();
        sample.local.threads = vec![thread];
        sample
    }

    #[test]
    fn only_a_thread_that_was_told_where_to_run_can_have_migrated() {
        let of = |pinned, seen: &[u32], moves| {
            migrated(&with_thread(thread(Role::Sender, pinned, seen, moves)).local)
        };
        assert!(!of(Some(1), &[1], 0));
        assert!(of(Some(1), &[0], 0), "elsewhere");
        assert!(of(Some(1), &[1], 2), "there and back");
        assert!(!of(None, &[0, 1], 5), "the scheduler's own choice");
    }

    #[test]
    fn memory_is_held_against_what_its_policy_allows() {
        let host = build::host().nodes(2, 2).build();
        let elsewhere = |policy: MemoryPolicy, node: u32| {
            let mut one = thread(Role::Receiver, Some(3), &[3], 0);
            one.memory_node = Known::Value(NodeId(node));
            let mut sample = with_thread(one);
            sample.spec.placement.receiver_memory = policy;
            memory_elsewhere(&sample.spec, &sample.local, &host)
        };
        assert!(!elsewhere(MemoryPolicy::Default, 0));
        // CPU 3 is on node 1.
        assert!(elsewhere(MemoryPolicy::Local, 0) && !elsewhere(MemoryPolicy::Local, 1));
        let both = vec![NodeId(0), NodeId(1)];
        assert!(!elsewhere(MemoryPolicy::Interleave(both), 1));
        assert!(elsewhere(MemoryPolicy::Bind(vec![NodeId(1)]), 0));
        assert!(elsewhere(MemoryPolicy::Preferred(NodeId(0)), 1));
        let unknown = with_thread(thread(Role::Sender, None, &[], 0));
        assert!(!memory_elsewhere(&unknown.spec, &unknown.local, &host));
    }

    #[test]
    fn sends_that_were_copied_and_payload_that_was_not_mapped_are_copies() {
        let mut sample = build::sample().build();
        let copied = |sample: &mut Sample, sends, after_all| {
            sample.local.flows[0].copies = Some(Copies {
                zerocopy_sends: sends,
                copied_after_all: after_all,
                mapped_bytes: Bytes::new(0),
            });
            copied_after_all(&sample.spec, &sample.local)
        };
        assert!(!copied(&mut sample, 1000, 5));
        assert!(copied(&mut sample, 1000, 1000));
        assert!(!copied(&mut sample, 0, 0));
        sample.spec.workload = Workload::Stream(Stream {
            receive: ReceiveMode::Zerocopy,
            ..Stream::default()
        });
        let total = sample.remote.flows[0].total().as_u64();
        let mut mapped = |bytes| {
            sample.remote.flows[0].copies = Some(Copies {
                mapped_bytes: Bytes::new(bytes),
                ..Copies::default()
            });
            copied_after_all(&sample.spec, &sample.remote)
        };
        assert!(mapped(total / 3) && !mapped(total - 1));
    }

    #[test]
    fn a_polling_thread_that_is_in_no_account_is_missed() {
        let mut sample = build::sample().build();
        let mut missed = |threads: &[ThreadRecord], waiting| {
            sample.spec.waiting = waiting;
            sample.local.threads = threads.to_vec();
            polling_uncounted(sample.spec.waiting, &sample.local)
        };
        let data = thread(Role::Sender, None, &[0], 0);
        let poller = ThreadRecord {
            thread: 1,
            polls_for: Some(0),
            ..data.clone()
        };
        assert!(missed(std::slice::from_ref(&data), Waiting::UringSqpoll));
        assert!(!missed(&[data.clone(), poller], Waiting::UringSqpoll));
        assert!(!missed(&[data], Waiting::Uring));
        assert!(!missed(&[], Waiting::UringSqpoll));
    }

    #[test]
    fn an_open_loop_that_falls_behind_by_more_than_one_percent_says_so() {
        let mut sample = build::sample().flows(4).build();
        sample.spec.workload = Workload::Http(Http {
            path: "/".to_owned(),
            body_bytes: Bytes::new(0),
            rate_per_s: Some(1_000),
            server: None,
        });
        // The builder's trials last two seconds.
        let mut behind = |completed| {
            sample.local.operations = Some(Operations {
                completed,
                ..Operations::default()
            });
            rate_not_kept(&sample.spec, &sample.local)
        };
        assert!(behind(1_900) && !behind(1_985));
        assert!(
            !rate_not_kept(&sample.spec, &sample.remote),
            "it asks nothing"
        );
        if let Workload::Http(http) = &mut sample.spec.workload {
            http.rate_per_s = Some(1);
        }
        sample.local.operations = Some(Operations {
            completed: 1,
            ..Operations::default()
        });
        assert!(
            !rate_not_kept(&sample.spec, &sample.local),
            "the second one is under way"
        );
    }

    #[test]
    fn datagrams_that_were_sent_too_slowly_say_so() {
        let mut sample = build::sample().mbit(500).build();
        let mut slow = |mbit| {
            sample.spec.workload = Workload::Udp(Udp {
                datagram_bytes: Bytes::new(1_400),
                rate_bit_per_s: Some(BitRate::from_mbit_per_s(mbit)),
                batch: DatagramBatch::Gso,
                probe: None,
            });
            rate_not_kept(&sample.spec, &sample.local)
        };
        assert!(slow(600) && !slow(500));
    }
}
