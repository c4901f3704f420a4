//! Trials that go well: what both ends record, compared with each other and against what was sent.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use linerate_model::ids::{CpuId, CpuSet};
use linerate_model::sample::{Role, SideSample};
use linerate_model::units::Bytes;
use linerate_model::workload::{Direction, Placement, TrialSpec};

use crate::both_ends::{
    abort, check_record, hang_guard, listen, read_byte, ready_peer, run_both, spec,
};

/// Runs `spec`, checks what must hold for every trial, and gives (connecting end, listening end).
fn run_and_check(spec: &TrialSpec) -> (SideSample, SideSample) {
    let (near, far) = run_both(spec);
    let (near, far) = (near.expect("the near end"), far.expect("the far end"));
    assert_eq!(near.flows.len(), far.flows.len());
    for (index, (here, there)) in near.flows.iter().zip(&far.flows).enumerate() {
        assert_eq!((here.flow as usize, there.flow as usize), (index, index));
        assert_ne!(here.role, there.role);
        check_record(here, spec);
        check_record(there, spec);
        assert_eq!(
            here.total(),
            there.total(),
            "flow {index}: bytes sent and received"
        );
    }
    // Not each of them: on a busy machine a thread may get no CPU in the time of so short a trial.
    assert!(near.flows.iter().any(|flow| flow.total() > Bytes::new(0)));
    (near, far)
}

#[test]
fn both_ends_count_the_same_bytes_forward() {
    let (near, far) = run_and_check(&spec(1, Direction::Forward));
    assert_eq!(near.senders().count(), 1);
    assert_eq!(far.receivers().count(), 1);
}

#[test]
fn both_ends_count_the_same_bytes_in_reverse() {
    let (near, far) = run_and_check(&spec(2, Direction::Reverse));
    assert_eq!(near.receivers().count(), 2);
    assert_eq!(far.senders().count(), 2);
}

#[test]
fn of_a_bidirectional_trial_the_first_half_of_the_flows_goes_forward() {
    let (near, far) = run_and_check(&spec(3, Direction::Bidirectional));
    let roles = |side: &SideSample| side.flows.iter().map(|flow| flow.role).collect::<Vec<_>>();
    let (sender, receiver) = (Role::Sender, Role::Receiver);
    assert_eq!(
        roles(&near),
        [sender, sender, sender, receiver, receiver, receiver]
    );
    assert_eq!(
        roles(&far),
        [receiver, receiver, receiver, sender, sender, sender]
    );
}

#[test]
fn twenty_three_flows_are_all_there_and_all_agree() {
    let (near, _) = run_and_check(&spec(23, Direction::Forward));
    assert_eq!(near.flows.len(), 23);
}

#[test]
fn every_byte_of_a_known_number_is_counted_and_no_other() {
    let spec = spec(1, Direction::Forward);
    let (listening, address) = listen(&spec);
    let abort = abort();
    let record = thread::scope(|scope| {
        let far = scope.spawn(|| listening.accept(hang_guard(), &abort)?.run(&abort));
        let mut peer = ready_peer(address, 0);
        assert_eq!(read_byte(&mut peer), Some(0x47), "the receiver says GO");
        let begun = Instant::now();
        for _ in 0..22 {
            peer.write_all(&[1; 997]).expect("it reads");
        }
        // An end before the duration would be a peer that vanished: the last part comes after it.
        // tidy: time itself is the subject
        thread::sleep(Duration::from(spec.duration_ns).saturating_sub(begun.elapsed()));
        peer.write_all(&[1; 997]).expect("it reads");
        drop(peer);
        far.join().expect("it does not panic")
    });
    let record = record.expect("the peer kept its word");
    assert_eq!(record.flows[0].total(), Bytes::new(23 * 997));
}

#[test]
fn a_buffer_of_one_byte_moves_bytes_too() {
    run_and_check(&TrialSpec {
        buffer_bytes: Bytes::new(1),
        ..spec(1, Direction::Forward)
    });
}

#[test]
fn the_kernels_account_agrees_with_ours() {
    let spec = TrialSpec {
        congestion_control: Some("reno".to_owned()),
        ..spec(1, Direction::Forward)
    };
    let (near, far) = run_and_check(&spec);
    let flow = &near.flows[0];
    let tcp = flow.tcp.ok().expect("this kernel tells");
    assert_eq!(tcp.congestion_control.as_deref(), Some("reno"));
    assert!(tcp.busy_ns.as_u64() > 0 && tcp.snd_mss_bytes > Bytes::new(0));
    let once = tcp.bytes_sent.as_u64() - tcp.bytes_retransmitted.as_u64();
    // The greeting and READY went the same way; what waits in the send buffer is not sent yet.
    let most = flow.total().as_u64() + 28 + 1;
    assert!(once > 0 && once <= most, "{once} of {most}");
    let drained = (flow.drained).expect("the far end told that it has everything");
    let once = drained.bytes_sent.as_u64() - drained.bytes_retransmitted.as_u64();
    assert_eq!(once, most, "sent when the far end had everything");
    assert!(far.flows[0].incoming_cpu.value().is_some());
    let threads = near.cpu.threads_user_ns.as_u64() + near.cpu.threads_system_ns.as_u64();
    assert!(threads > 0, "moving bytes takes CPU time");
    assert!(
        near.cpu.machine.gap().is_some(),
        "the machine's counters are not this crate's"
    );
}

#[test]
fn pinned_threads_report_the_cpu_they_were_pinned_to() {
    let allowed = rustix::thread::sched_getaffinity(None).expect("the kernel says");
    let allowed: Vec<CpuId> = (0..1024u32)
        .filter(|&cpu| allowed.is_set(cpu as usize))
        .map(CpuId)
        .collect();
    let (first, last) = (allowed[0], allowed[allowed.len() - 1]);
    let spec = TrialSpec {
        placement: Placement {
            sender_cpus: CpuSet::one(first),
            receiver_cpus: allowed.iter().copied().collect(),
            ..Placement::default()
        },
        ..spec(allowed.len().try_into().expect("few"), Direction::Forward)
    };
    let (near, far) = run_and_check(&spec);
    for flow in &near.flows {
        assert_eq!(
            (flow.pinned_to, flow.last_cpu.get()),
            (Some(first), Some(first))
        );
    }
    for (flow, &cpu) in far.flows.iter().zip(&allowed) {
        assert_eq!(
            (flow.pinned_to, flow.last_cpu.get()),
            (Some(cpu), Some(cpu))
        );
    }
    assert_eq!(far.flows.last().and_then(|flow| flow.pinned_to), Some(last));
}
