//! Readings of the classes of some interfaces while trials run.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use linerate_analysis::qos::series::ClassReading;
use linerate_host::netlink::{ClassCounts, Netlink};
use linerate_model::exit::{Outcome, Stop};
use linerate_model::ids::NicName;

/// How often classes are read: a sender that waits for a CPU is to be seen.
const EVERY: Duration = Duration::from_millis(20);

/// The readings of each class, by interface and handle.
#[derive(Debug, Default)]
pub(super) struct Readings(BTreeMap<(NicName, u32), Vec<ClassReading>>);

impl Readings {
    /// The sum of the classes with these handles; empty without any.
    pub(super) fn of(&self, classes: &[(NicName, u32)]) -> Vec<ClassReading> {
        let mut all: Vec<ClassReading> = Vec::new();
        for own in classes.iter().filter_map(|class| self.0.get(class)) {
            if all.is_empty() {
                all.clone_from(own);
                continue;
            }
            for (sum, one) in all.iter_mut().zip(own) {
                sum.bytes = sum.bytes.saturating_add(one.bytes);
                sum.packets = sum.packets.saturating_add(one.packets);
                sum.backlog_bytes = sum.backlog_bytes.saturating_add(one.backlog_bytes);
            }
        }
        all
    }

    fn take(&mut self, at_s: f64, nic: &NicName, class: &ClassCounts) {
        let readings = self.0.entry((nic.clone(), class.handle)).or_default();
        readings.push(ClassReading {
            at_s,
            bytes: class.bytes,
            packets: class.packets,
            backlog_bytes: class.backlog_bytes,
        });
    }
}

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
                        let at_s = begun.elapsed().as_secs_f64();
                        for class in classes.value().into_iter().flatten() {
                            readings.take(at_s, nic, class);
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
