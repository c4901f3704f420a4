//! Whether a record reports where threads really ran: a separate program, because a thread is found by its
//! name, and other tests have threads of that name too.

#![expect(
    clippy::disallowed_methods,
    reason = "a test may look at the kernel behind the engine"
)]

use std::net::Ipv4Addr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use linerate_model::ids::CpuId;
use linerate_model::protocol::Token;
use linerate_model::sample::SideSample;
use linerate_model::units::Nanoseconds;
use linerate_model::workload::TrialSpec;
use linerate_traffic::Abort;
use linerate_traffic::tcp::{Connected, Listening};
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

const TOKEN: Token = Token([0x3C; 16]);

/// The data threads of both ends; each end has one.
fn data_threads() -> Vec<Pid> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("procfs");
    let named = tasks.filter_map(|task| {
        let path = task.ok()?.path();
        // A thread may end meanwhile.
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        let number = path.file_name()?.to_str()?.parse().ok()?;
        (name.trim() == "linerate-0").then(|| Pid::from_raw(number))?
    });
    named.collect()
}

fn only(cpu: usize) -> CpuSet {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    cpus
}

#[expect(clippy::print_stderr, reason = "a skip is a result and is reported")]
fn skip(why: &str) {
    eprintln!("skipped: {why}");
}

#[test]
fn a_thread_that_is_moved_from_outside_is_seen_to_move() {
    let allowed = sched_getaffinity(None).expect("the kernel says");
    let cpus: Vec<usize> = (0..1024)
        .filter(|&cpu| allowed.is_set(cpu))
        .take(2)
        .collect();
    let [one, other] = cpus[..] else {
        return skip("one CPU is not enough to move a thread");
    };
    let spec = TrialSpec {
        duration_ns: Nanoseconds::from_millis(1_500),
        interval_ns: Nanoseconds::from_millis(5),
        ..TrialSpec::default()
    };
    let listening = Listening::open(&spec, TOKEN, "127.0.0.1").expect("a free port");
    let address = (Ipv4Addr::LOCALHOST, listening.port()).into();
    let abort = Abort::new().expect("an eventfd");
    let guard = Instant::now() + Duration::from_secs(60);
    let (over, is_over) = mpsc::channel::<()>();
    let (near, far): (SideSample, SideSample) = thread::scope(|scope| {
        let far = scope.spawn(|| listening.accept(guard, &abort)?.run(&abort));
        scope.spawn(move || {
            // To and fro until the trial is over, some readings on each CPU.
            let pace = Duration::from_millis(50);
            for cpu in [one, other].into_iter().cycle() {
                for thread in data_threads() {
                    // It fails when the thread has just ended.
                    let _ = sched_setaffinity(Some(thread), &only(cpu));
                }
                if is_over.recv_timeout(pace) != Err(mpsc::RecvTimeoutError::Timeout) {
                    return;
                }
            }
        });
        let near = Connected::connect(&spec, address, TOKEN, guard, &abort)
            .and_then(|connected| connected.run(&abort));
        let far = far.join().expect("it does not panic");
        drop(over);
        (near.expect("the near end"), far.expect("the far end"))
    });
    let id = |cpu: usize| CpuId(u32::try_from(cpu).expect("small"));
    for side in [near, far] {
        let thread = &side.threads[0];
        assert_eq!(thread.seen_on, [id(one), id(other)]);
        assert!(
            thread.moves_seen >= 2,
            "seen to move {} times",
            thread.moves_seen
        );
        assert_eq!(thread.pinned_to, None);
    }
}
