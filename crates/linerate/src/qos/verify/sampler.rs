//! Readings of the classes of some interfaces while trials run.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use linerate_analysis::qos::series::ClassReading;
use linerate_analysis::qos::verification::Readings;
use linerate_host::netlink::{ClassCounts, Netlink};
use linerate_model::exit::{Outcome, Stop};
use linerate_model::ids::NicName;
use linerate_model::units::Nanoseconds;

/// How often classes are read: a sender that waits for a CPU is to be seen.
const EVERY: Duration = Duration::from_millis(20);

/// Runs `trials` and reads the classes of `nics` meanwhile.
pub(super) fn sampled<T>(
    nics: &[NicName],
    trials: impl FnOnce() -> Outcome<T>,
) -> Outcome<(T, Readings)> {
    let netlink = Netlink::open().map_err(|error| Stop::io("open netlink", error))?;
    thread::scope(|scope| {
        let (over, is_over) = mpsc::channel::<()>();
        let sampler = thread::Builder::new()
            .name("linerate-classes".to_owned())
            .spawn_scoped(scope, move || {
                let mut readings = Readings::default();
                let begun = Instant::now();
                loop {
                    for nic in nics {
                        let classes = netlink.classes(nic);
                        let at_ns = Nanoseconds::from(begun.elapsed());
                        for class in classes.value().into_iter().flatten() {
                            readings.add(nic, class.handle, reading(at_ns, class));
                        }
                    }
                    if is_over.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
                        return readings;
                    }
                }
            })
            .map_err(|error| Stop::io("start a thread", error))?;
        let outcome = trials();
        drop(over);
        let readings = match sampler.join() {
            Ok(readings) => readings,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        Ok((outcome?, readings))
    })
}

fn reading(at_ns: Nanoseconds, class: &ClassCounts) -> ClassReading {
    ClassReading {
        at_ns,
        bytes: class.bytes,
        packets: class.packets,
        backlog_bytes: class.backlog_bytes,
    }
}
