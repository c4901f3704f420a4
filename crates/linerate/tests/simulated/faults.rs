//! Every fault at every step: afterwards both hosts are unchanged, or the exit code reports that they may
//! not be and the message how to fix it; and whatever was recorded can be read.

use linerate_analysis::proof::document;
use linerate_analysis::record::Record;
use linerate_model::exit::{Code, Outcome};
use linerate_model::plan::End;
use linerate_store::Log;

use crate::world::{Cost, Fault, Memory, Planned, World, put};
use crate::{header, options, prove};

/// A remedy of this end that helps, one of both ends that helps, and one of the remote end that does not.
fn world() -> World {
    let mut world = World::new(1, 25, |near, far| {
        put(near, "nic/near0/feature/tx-tcp-segmentation", "off");
        put(near, "sysctl/net.ipv4.tcp_wmem", "4096 16384 65536");
        put(far, "sysctl/net.ipv4.tcp_rmem", "4096 65536 65536");
        put(far, "nic/far0/queue/rx-0/rps-cpus", "1");
    });
    world.costs = vec![
        Cost {
            end: End::Local,
            key: "nic/near0/feature/tx-tcp-segmentation",
            holds: |value| value == "off",
            factor: 0.6,
        },
        Cost {
            end: End::Remote,
            key: "sysctl/net.ipv4.tcp_rmem",
            holds: |value| value.ends_with(" 65536"),
            factor: 0.7,
        },
    ];
    world.path.noise_sd = 0.005;
    world
}

/// What is left after a session with a fault.
struct Left {
    outcome: Outcome<()>,
    world: World,
    log: Memory,
    as_before: bool,
}

/// A session that the fault strikes at its `at`-th chance; `None` when it ended before.
fn struck(fault: Fault, at: usize, undo: bool) -> Option<Left> {
    let mut world = world();
    let before = world.truth.clone();
    let mut log = Memory::default();
    world.planned = Some(Planned { fault, at });
    if fault == Fault::DiskFull {
        log.room = Some(at);
    }
    let mut options = options(1);
    options.undo = undo;
    let outcome = prove(&mut world, &mut log, options);
    let came = match fault {
        Fault::DiskFull => outcome.is_err(),
        _ => world.struck,
    };
    let as_before = world.truth == before;
    came.then_some(Left {
        outcome,
        world,
        log,
        as_before,
    })
}

/// The promise that holds after any fault.
fn check_promise(left: &Left, undo: bool, what: &str) {
    let nothing_open = left.world.open.iter().all(Vec::is_empty);
    match &left.outcome {
        Ok(()) => {
            assert!(nothing_open, "{what}: left open");
            assert!(
                !undo || left.as_before,
                "{what}: changed, and said to be done"
            );
        }
        Err(stop) if stop.code == Code::RestoreIncomplete => {
            let text = stop.to_string();
            assert!(text.contains("linerate tune recover"), "{what}: {text}");
        }
        Err(stop) => {
            assert!(left.as_before, "{what}: changed, but `{stop}`");
            assert!(nothing_open, "{what}: left open, but `{stop}`");
        }
    }
    check_records(left, what);
}

fn check_records(left: &Left, what: &str) {
    let records = left.log.records();
    let stopped = records
        .iter()
        .position(|record| matches!(record, Record::Stopped(_)));
    if let Some(place) = stopped {
        let after = &records[place + 1..];
        let only_the_end = matches!(after, [] | [Record::Ended { .. }]);
        assert!(only_the_end, "{what}: more after the reason to stop");
    }
    if left.outcome.is_err() && left.log.room.is_none() {
        assert!(stopped.is_some(), "{what}: the record does not say why");
    }
    let said = document(&header(1), records);
    if said.restored && stopped.is_some() {
        assert!(left.as_before, "{what}: the record says restored");
    }
}

/// Strikes at every chance there is, and returns how many there were and the codes that came of it.
fn at_every_step(fault: Fault, undo: bool) -> Vec<Option<Code>> {
    let mut codes = Vec::new();
    while let Some(left) = struck(fault, codes.len(), undo) {
        let what = format!("{fault:?} at {}, undo {undo}", codes.len());
        check_promise(&left, undo, &what);
        codes.push(left.outcome.err().map(|stop| stop.code));
    }
    codes
}

fn at_every_step_both_ways(fault: Fault) -> Vec<Option<Code>> {
    let mut codes = at_every_step(fault, true);
    codes.extend(at_every_step(fault, false));
    codes
}

#[test]
fn a_change_that_cannot_be_made_is_skipped() {
    for code in [Code::NotSupported, Code::PermissionMissing] {
        let codes = at_every_step_both_ways(Fault::Refused(code));
        assert!(codes.len() > 30, "{}", codes.len());
        // A remedy that was shown to help and cannot be kept is another matter than one not tried.
        let stopped: Vec<_> = codes.iter().flatten().collect();
        assert!(stopped.iter().all(|stop| **stop == code), "{stopped:?}");
        assert!(stopped.len() < codes.len() / 4, "{stopped:?}");
    }
}

#[test]
fn a_change_that_fails_ends_the_run_and_everything_is_put_back() {
    let codes = at_every_step_both_ways(Fault::Refused(Code::FailedRestored));
    assert!(codes.len() > 30, "{}", codes.len());
    assert!(codes.iter().all(|code| *code == Some(Code::FailedRestored)));
}

#[test]
fn an_undo_that_fails_is_never_passed_over() {
    let codes = at_every_step_both_ways(Fault::UndoFails);
    assert!(codes.len() > 30, "{}", codes.len());
    let told = Some(Code::RestoreIncomplete);
    assert!(codes.iter().all(|code| *code == told), "{codes:?}");
}

#[test]
fn a_commit_that_fails_is_never_passed_over() {
    let codes = at_every_step(Fault::CommitFails, false);
    // The remote end's comes first, and then both can still be restored.
    assert_eq!(codes, [Some(Code::Resource), Some(Code::RestoreIncomplete)]);
    let left = struck(Fault::CommitFails, 1, false).expect("two commits");
    assert_eq!(left.world.truth[0], world().truth[0], "this end can be");
    assert_eq!(
        left.world
            .value(End::Local, "nic/near0/feature/tx-tcp-segmentation"),
        "off"
    );
}

#[test]
fn a_peer_that_is_killed_at_any_moment_leaves_no_silent_change() {
    let codes = at_every_step_both_ways(Fault::PeerKilled);
    assert!(codes.len() > 100, "{}", codes.len());
    assert!(codes.contains(&Some(Code::PeerUnreachable)));
    assert!(codes.contains(&Some(Code::RestoreIncomplete)));
}

#[test]
fn a_peer_that_is_killed_before_it_answers_leaves_no_silent_change() {
    let codes = at_every_step_both_ways(Fault::AnswerLost);
    assert!(codes.contains(&Some(Code::RestoreIncomplete)));
}

#[test]
fn ctrl_c_at_any_moment_puts_everything_back() {
    let codes = at_every_step_both_ways(Fault::Interrupt);
    assert!(codes.len() > 100, "{}", codes.len());
    // After the last trial there is nothing left to interrupt.
    assert!(
        codes
            .iter()
            .all(|code| matches!(code, None | Some(Code::Interrupted)))
    );
    let ended = codes.iter().filter(|code| code.is_none()).count();
    assert!(ended < 20, "{ended} of {} were not heard", codes.len());
}

#[test]
fn a_disk_that_fills_up_at_any_record_puts_everything_back() {
    let codes = at_every_step_both_ways(Fault::DiskFull);
    assert!(codes.len() > 70, "{}", codes.len());
    assert!(codes.iter().all(|code| *code == Some(Code::Resource)));
}
