//! Parallel jobs: those that wait (an emulated single-threaded guest, tests that sleep) leave a CPU to the others.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::tally::{Output, Tally};

/// The number of parallel jobs: two that compute, on a machine with two CPUs, and one that mostly waits. With four the
/// CPUs are never idle, and tests that time something are disturbed.
const LANES: usize = 3;
/// How many of the slowest jobs are listed at the end.
const SLOWEST: usize = 10;

/// A gate, a test program or a set of tests.
pub(crate) struct Job<'a> {
    title: String,
    run: Box<dyn FnOnce() -> Outcome + Send + 'a>,
}

/// A job's output and its counts.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Shown when the job has finished.
    pub(crate) output: Output,
    /// Added to the sum.
    pub(crate) tally: Tally,
}

impl<'a> Job<'a> {
    /// A job with a title.
    pub(crate) fn new(title: impl Into<String>, run: impl FnOnce() -> Outcome + Send + 'a) -> Self {
        Self {
            title: title.into(),
            run: Box::new(run),
        }
    }
}

/// Runs all jobs in order, each as soon as a worker is free. A job's output is shown when it ends, so that outputs do
/// not mix; in CI, whose readers see only a part of a long log, only the results of what passed.
pub(crate) fn run(jobs: Vec<Job<'_>>) -> Tally {
    let is_brief = std::env::var_os("CI").is_some();
    let queue = Mutex::new(VecDeque::from(jobs));
    let sum = Mutex::new((Tally::default(), Vec::new()));
    let lane = || {
        loop {
            let Some(Job { title, run }) = lock(&queue).pop_front() else {
                return;
            };
            println!("-- started: {title}");
            let began = Instant::now();
            let Outcome { output, tally } = run();
            let took = began.elapsed();
            let (all, times) = &mut *lock(&sum);
            print!("{}", report(&title, took, &output, is_brief));
            all.add(tally);
            times.push((took, title));
        }
    };
    thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(lane);
        }
    });
    let (all, times) = sum.into_inner().unwrap_or_else(PoisonError::into_inner);
    print!("{}", slowest(times));
    all
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The block of a job in the log.
fn report(title: &str, took: Duration, output: &Output, is_brief: bool) -> String {
    let mut text = format!("\n== {title} ({:.1} s)\n", took.as_secs_f64());
    for line in output.stdout.lines().chain(output.stderr.lines()) {
        if !is_brief || !output.success || line.starts_with("test result: ") {
            let _ = writeln!(text, "{line}");
        }
    }
    text
}

fn slowest(mut times: Vec<(Duration, String)>) -> String {
    times.sort_by_key(|(took, _)| std::cmp::Reverse(*took));
    let mut text = "\n== the slowest\n".to_owned();
    for (took, title) in times.iter().take(SLOWEST) {
        let _ = writeln!(text, "{:8.1} s  {title}", took.as_secs_f64());
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    fn passed() -> Outcome {
        Outcome {
            output: Output::default(),
            tally: Tally {
                passed: 1,
                ..Tally::default()
            },
        }
    }

    #[test]
    fn jobs_run_side_by_side_and_are_summed() {
        let both = Barrier::new(LANES);
        let together = || {
            both.wait();
            passed()
        };
        let jobs = (0..2 * LANES).map(|number| Job::new(number.to_string(), together));
        assert_eq!(run(jobs.collect()).passed, 2 * LANES);
    }

    #[test]
    fn a_brief_report_has_the_results_of_what_passed_and_all_of_what_failed() {
        let mut output = Output {
            stdout: "test a ... ok\ntest result: ok. 1 passed\n".to_owned(),
            stderr: "warned\n".to_owned(),
            success: true,
        };
        let took = Duration::from_millis(1_500);
        assert_eq!(
            report("host", took, &output, true),
            "\n== host (1.5 s)\ntest result: ok. 1 passed\n"
        );
        output.success = false;
        let whole = "\n== host (1.5 s)\ntest a ... ok\ntest result: ok. 1 passed\nwarned\n";
        assert_eq!(report("host", took, &output, true), whole);
    }

    #[test]
    fn the_slowest_jobs_come_first_and_are_at_most_ten() {
        let times = (0..12).map(|number| (Duration::from_secs(number), format!("job {number}")));
        let text = slowest(times.collect());
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(lines.len(), SLOWEST);
        assert_eq!(lines[0], "    11.0 s  job 11");
    }
}
