//! The engine on a file, which io_uring reads and writes like a device.

use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};

use linerate_model::block::{Access, Area, Pattern};
use linerate_model::ids::{CpuId, CpuSet};
use linerate_model::workload::{MemoryPolicy, TrialSpec};

use super::*;

const BLOCK: Bytes = Bytes::kib(4);
const SIZE: Bytes = Bytes::mib(4);

fn file() -> File {
    let mut file = tempfile::tempfile().expect("a file");
    let size = usize::try_from(SIZE.as_u64()).expect("a few MiB");
    file.write_all(&vec![7; size]).expect("space");
    file
}

fn spec(access: Access, pattern: Pattern) -> BlockSpec {
    BlockSpec {
        access,
        pattern,
        block: BLOCK,
        depth: 8,
        polled: false,
        seed: 7,
        // A job without a CPU for as long as that completes nothing.
        duration_ns: Nanoseconds::from_millis(400),
        area: Area {
            start: Bytes::mib(1),
            length: Bytes::mib(2),
        },
        jobs: vec![CpuSet::empty(); 2],
        memory: MemoryPolicy::Default,
    }
}

/// The sample, or none where this kernel or its administrator does not allow io_uring.
fn measured(file: &File, spec: &BlockSpec, abort: &Abort) -> Option<BlockSample> {
    match measure(file.as_fd(), spec, Bytes::new(512), abort, &mut |_| {}) {
        Ok(sample) => Some(sample),
        Err(error @ (TrafficError::NotSupported { .. } | TrafficError::NotPermitted { .. })) => {
            skipped(&error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[expect(clippy::print_stderr, reason = "a skip is shown")]
fn skipped(why: &TrafficError) {
    eprintln!("SKIP: {why}");
}

#[test]
fn every_operation_is_counted_once_in_the_rate_the_latency_and_by_cpu() {
    let abort = Abort::new().expect("eventfds");
    for pattern in [Pattern::Random, Pattern::Sequential] {
        let Some(sample) = measured(&file(), &spec(Access::Read, pattern), &abort) else {
            return;
        };
        assert_eq!(sample.jobs.len(), 2);
        assert!(!sample.cut_short);
        for job in &sample.jobs {
            assert!(job.operations > 0, "{job:?}");
            assert_eq!(job.latency.count(), job.operations);
            // Those in flight at the end were submitted, and did not complete in time.
            let submitted: u64 = job.by_cpu.iter().map(|(_, count)| count).sum();
            let late = submitted - job.operations;
            assert!(late <= 8, "{late} of {submitted}");
        }
        let sum: u64 = sample.jobs.iter().map(|job| job.operations).sum();
        assert_eq!(sample.operations(), sum);
    }
}

#[test]
fn writes_change_nothing_outside_the_area() {
    use std::io::Read as _;
    let abort = Abort::new().expect("eventfds");
    let mut file = file();
    if measured(&file, &spec(Access::Write, Pattern::Random), &abort).is_none() {
        return;
    }
    let mut all = Vec::new();
    file.seek(SeekFrom::Start(0)).expect("a file");
    file.read_to_end(&mut all).expect("a file");
    let mib = 1 << 20;
    assert_eq!(all.len() as u64, SIZE.as_u64());
    assert!(
        all[..mib]
            .iter()
            .chain(&all[3 * mib..])
            .all(|byte| *byte == 7)
    );
    assert!(all[mib..3 * mib].iter().any(|byte| *byte != 7));
}

#[test]
fn a_read_beyond_the_end_is_an_error_that_names_the_place() {
    let abort = Abort::new().expect("eventfds");
    let mut beyond = spec(Access::Read, Pattern::Sequential);
    beyond.area.start = SIZE;
    let outcome = measure(
        file().as_fd(),
        &beyond,
        Bytes::new(512),
        &abort,
        &mut |_| {},
    );
    match outcome {
        Err(TrafficError::NotSupported { .. } | TrafficError::NotPermitted { .. }) => {}
        Err(error @ TrafficError::BlockOperation { .. }) => {
            assert!(
                error.to_string().contains("of the device: only 0 B"),
                "{error}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_trial_that_ends_early_keeps_what_it_measured() {
    let abort = Abort::new().expect("eventfds");
    let mut long = spec(Access::Read, Pattern::Random);
    long.duration_ns = Nanoseconds::from_millis(3_600_000);
    let end = abort.clone();
    let mut moments = Vec::new();
    let outcome = measure(
        file().as_fd(),
        &long,
        Bytes::new(512),
        &abort,
        &mut |moment| {
            if moment == Moment::Reading {
                end.end_early();
            }
            moments.push(moment);
        },
    );
    match outcome {
        Ok(sample) => {
            assert!(sample.cut_short && sample.operations() > 0);
            assert_eq!(moments, [Moment::Start, Moment::Reading, Moment::End]);
        }
        Err(TrafficError::NotSupported { .. } | TrafficError::NotPermitted { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_job_on_a_cpu_that_does_not_exist_ends_the_others_too() {
    let abort = Abort::new().expect("eventfds");
    let mut wrong = spec(Access::Read, Pattern::Random);
    wrong.jobs[1] = CpuSet::one(CpuId(CpuSet::CPU_MAX));
    let outcome = measure(file().as_fd(), &wrong, Bytes::new(512), &abort, &mut |_| {});
    assert!(outcome.is_err(), "{outcome:?}");
}

#[test]
fn an_aborted_trial_is_an_error() {
    let abort = Abort::new().expect("eventfds");
    abort.trigger();
    let mut long = spec(Access::Read, Pattern::Random);
    long.duration_ns = Nanoseconds::from_millis(3_600_000);
    let outcome = measure(file().as_fd(), &long, Bytes::new(512), &abort, &mut |_| {});
    assert!(outcome.is_err(), "{outcome:?}");
}

#[test]
fn a_trial_is_recorded_as_the_end_of_a_path_that_receives() {
    let abort = Abort::new().expect("eventfds");
    let file = file();
    let block = spec(Access::Read, Pattern::Random);
    let block = BlockSpec {
        duration_ns: Nanoseconds::from_millis(60),
        ..block
    };
    let trial = TrialSpec::of_block("/dev/nvme0n1", &block);
    assert_eq!(trial.block_spec(block.area), Some(block.clone()));
    let side = match read(&trial, file.as_fd(), (block.area, Bytes::new(512)), &abort) {
        Ok(side) => side,
        Err(error @ (TrafficError::NotSupported { .. } | TrafficError::NotPermitted { .. })) => {
            return skipped(&error);
        }
        Err(error) => panic!("{error}"),
    };
    assert_eq!(side.check(&trial), Ok(()));
    let operations = side.operations.as_ref().expect("operations");
    assert_eq!(operations.latency.count(), operations.completed);
    assert_eq!(
        operations.per_thread.iter().sum::<u64>(),
        operations.completed
    );
    assert_eq!(side.threads.len(), 2);
    assert_eq!(
        side.flows[0].total().as_u64(),
        operations.completed * BLOCK.as_u64()
    );
    let times: Vec<Nanoseconds> = operations.steps.iter().map(|step| step.at_ns).collect();
    assert!(times.is_sorted() && times.last() == Some(&side.elapsed_ns));
    let more = TrialSpec { flows: 3, ..trial };
    assert!(more.check().is_err(), "as many jobs as flows");
    let write = TrialSpec::of_block("/dev/nvme0n1", &spec(Access::Write, Pattern::Random));
    let refused = read(&write, file.as_fd(), (block.area, Bytes::new(512)), &abort);
    assert!(refused.is_err(), "what is stored is no reason to write");
}
