//! What the host shows while a trial runs: CPU times, the device's counters, the requests that the driver has, and the
//! device's interrupts.

use std::collections::BTreeMap;

use linerate_host::block_device::{Counters, Device, Interrupts};
use linerate_host::counters::CpuCounters;
use linerate_host::root::HostRoot;
use linerate_model::ids::{CpuId, CpuSet};
use linerate_model::known::{Cause, Known};
use linerate_model::sample::CpuTimes;
use linerate_model::units::BitRate;
use linerate_traffic::block::Moment;

/// An interrupt of the device during a trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fired {
    pub(super) irq: u32,
    pub(super) name: String,
    /// Its effective affinity.
    pub(super) cpus: CpuSet,
    /// How often, on each CPU.
    pub(super) counts: BTreeMap<CpuId, u64>,
}

/// The figures of one trial.
#[derive(Debug)]
pub(super) struct Observed {
    /// The times of each CPU.
    pub(super) cpus: Known<Vec<CpuTimes>>,
    /// What the device did in this time, for whichever program.
    pub(super) device: Known<Counters>,
    /// The mean number of requests that the driver had.
    pub(super) issued: Known<f64>,
    /// The interrupts that came.
    pub(super) interrupts: Vec<Fired>,
    /// The bandwidth of its PCIe link.
    pub(super) pcie: Known<BitRate>,
}

/// The counters at one end of a trial.
#[derive(Debug)]
struct Reading {
    cpus: Known<CpuCounters>,
    device: Known<Counters>,
    interrupts: Interrupts,
}

/// Reads the host at the start, during and at the end of a trial.
#[derive(Debug)]
pub(super) struct Observer<'a> {
    root: &'a HostRoot,
    device: &'a Device,
    first: Option<Reading>,
    last: Option<Reading>,
    in_flight: Vec<Known<u64>>,
}

impl<'a> Observer<'a> {
    pub(super) fn new(root: &'a HostRoot, device: &'a Device) -> Self {
        Self {
            root,
            device,
            first: None,
            last: None,
            in_flight: Vec::new(),
        }
    }

    pub(super) fn at(&mut self, moment: Moment) {
        match moment {
            Moment::Start => self.first = Some(self.read()),
            Moment::Reading => self.in_flight.push(self.device.in_flight(self.root)),
            Moment::End => self.last = Some(self.read()),
        }
    }

    fn read(&self) -> Reading {
        // The CPU times last: they are those of the trial.
        let interrupts = self.device.interrupts(self.root);
        Reading {
            device: self.device.counters(self.root),
            cpus: CpuCounters::read(self.root),
            interrupts,
        }
    }

    pub(super) fn observed(self) -> Observed {
        let none = || "the trial did not start";
        let (cpus, device, interrupts) = match (&self.first, &self.last) {
            (Some(first), Some(last)) => (
                last.cpus.clone().and_then(|now| {
                    let then = first.cpus.clone();
                    then.map(|then| now.since(&then))
                }),
                since(&first.device, &last.device),
                fired(&first.interrupts, &last.interrupts),
            ),
            _ => (
                Known::unknown(Cause::NotAsked, "/proc/stat", none()),
                Known::unknown(Cause::NotAsked, "/sys/block", none()),
                Vec::new(),
            ),
        };
        Observed {
            cpus,
            device,
            issued: mean(&self.in_flight),
            interrupts,
            pcie: self.device.pcie(self.root),
        }
    }
}

fn since(first: &Known<Counters>, last: &Known<Counters>) -> Known<Counters> {
    last.clone().and_then(|now| {
        let then = first.clone();
        then.map(|then| Counters {
            operations: now.operations.saturating_sub(then.operations),
            request_ms: now.request_ms.saturating_sub(then.request_ms),
        })
    })
}

fn mean(readings: &[Known<u64>]) -> Known<f64> {
    let mut sum = 0.0;
    for reading in readings {
        match reading {
            Known::Value(value) => sum += super::document::real(*value),
            Known::Unknown(gap) => return Known::Unknown(gap.clone()),
        }
    }
    if readings.is_empty() {
        let why = "the trial was too short for a reading";
        return Known::unknown(Cause::NotAsked, "/sys/block/DISK/inflight", why);
    }
    Known::Value(sum / super::document::real(readings.len() as u64))
}

fn fired(first: &Interrupts, last: &Interrupts) -> Vec<Fired> {
    let before = |irq: u32| first.iter().find(|(own, ..)| *own == irq);
    let grown = |(irq, name, cpus, now): &(u32, String, CpuSet, BTreeMap<CpuId, u64>)| {
        let then = before(*irq).map(|(.., counts)| counts);
        let counts: BTreeMap<CpuId, u64> = (now.iter())
            .map(|(cpu, count)| {
                let earlier = then.and_then(|then| then.get(cpu)).copied().unwrap_or(0);
                (*cpu, count.saturating_sub(earlier))
            })
            .filter(|(_, count)| *count > 0)
            .collect();
        (!counts.is_empty()).then(|| Fired {
            irq: *irq,
            name: name.clone(),
            cpus: cpus.clone(),
            counts,
        })
    };
    last.iter().filter_map(grown).collect()
}
