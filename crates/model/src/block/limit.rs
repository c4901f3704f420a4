//! What limited the operations per second of a block device: named by evidence, or not determined.
//!
//! A job keeps `depth` operations in flight, so by Little's law its rate is depth / latency. Where the latency comes from
//! decides the limit: a thread without idle CPU time, requests that wait for a tag or in the I/O scheduler
//! (Documentation/block/blk-mq.rst), or the device. `/sys/block/DISK/inflight` counts the requests that were issued to
//! the driver (Documentation/ABI/stable/sysfs-block). Whether the device takes more is shown by trials at twice the
//! depth.

use std::fmt;

use serde::Serialize;

use crate::ids::CpuId;
use crate::threshold::{CPU_SHARE, MACHINE_SHARE, PCIE_SHARE};

/// At or above this share of the jobs' operations in flight, the driver has them all.
pub const ISSUED_SHARE: f64 = 0.80;
/// Below this share, the operations wait above the driver.
pub const WAITING_SHARE: f64 = 0.60;
/// At or above this share of the tags in use, the tags are the limit.
pub const TAGS_SHARE: f64 = 0.85;
/// At twice the depth, more than this ratio of the rate shows that the depth was the limit.
pub const DEPTH_GAIN: f64 = 1.05;

/// What limited the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The CPU time: of the job threads, of one CPU with interrupts, or of the whole machine.
    Cpu,
    /// The queue: the depth of the jobs, or the tags of the hardware queues (`nr_requests`).
    Queue,
    /// The device.
    Device,
    /// The I/O scheduler, which held requests that the driver had room for.
    Scheduler,
    /// The evidence does not show one.
    NotDetermined,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "CPU",
            Self::Queue => "queue",
            Self::Device => "device",
            Self::Scheduler => "scheduler",
            Self::NotDetermined => "not determined",
        })
    }
}

/// The limit, and what shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Named {
    /// The limit.
    pub what: Limit,
    /// The figures that show it, one sentence each.
    pub evidence: Vec<String>,
    /// What to try next.
    pub hint: Option<String>,
}

/// Short trials at twice the depth, each beside one at the same depth.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DepthProbe {
    /// The depth that was tried.
    pub depth: u32,
    /// The rate at that depth relative to the rate at the depth of the measurement, of each pair.
    pub ratios: Vec<f64>,
}

impl DepthProbe {
    /// Whether more operations in flight gave more operations per second; none without pairs.
    pub fn gains(&self) -> Option<bool> {
        let gained = |ratio: &&f64| **ratio > DEPTH_GAIN;
        let count = self.ratios.iter().filter(gained).count();
        match self.ratios.len() {
            0 => None,
            all if count == all => Some(true),
            _ if count == 0 => Some(false),
            _ => None,
        }
    }
}

/// What is known of a trial. A figure that could not be read is none, and decides nothing.
#[derive(Debug, Clone, Default)]
pub struct Facts<'a> {
    /// The share of the time that each job's thread used a CPU, and its operations.
    pub jobs: Vec<(f64, u64)>,
    /// The CPU with the largest share of irq and softirq time.
    pub interrupted: Option<(CpuId, f64)>,
    /// The busy share of all CPUs.
    pub machine: Option<f64>,
    /// The operations that the jobs kept in flight.
    pub in_flight: f64,
    /// The mean number of requests that the driver had.
    pub issued: Option<f64>,
    /// The tags of the hardware queues in use together.
    pub tags: Option<u64>,
    /// The active I/O scheduler.
    pub scheduler: Option<&'a str>,
    /// The share of the PCIe bandwidth.
    pub pcie: Option<f64>,
    /// Trials at twice the depth.
    pub probe: Option<&'a DepthProbe>,
}

impl Facts<'_> {
    /// Names the limit. CPUs come first: a thread without CPU time left makes every queue look short or long.
    pub fn named(&self) -> Named {
        (self.cpu())
            .or_else(|| self.bandwidth())
            .or_else(|| self.waiting())
            .or_else(|| self.depth_or_device())
            .unwrap_or_else(|| self.unknown())
    }

    fn cpu(&self) -> Option<Named> {
        let limit = CPU_SHARE.as_f64();
        let all: u64 = self.jobs.iter().map(|(_, operations)| operations).sum();
        let full = self.jobs.iter().filter(|(share, _)| *share >= limit);
        let of_full: u64 = full.map(|(_, operations)| operations).sum();
        if all > 0 && of_full.saturating_mul(2) >= all {
            let most = self.jobs.iter().map(|(share, _)| *share);
            let evidence = format!(
                "the job threads use {:.0} % of a CPU (limit: {:.0} %)",
                most.fold(0.0, f64::max) * 100.0,
                limit * 100.0
            );
            let hint = "use more jobs (`--jobs per-cpu`), or larger blocks";
            return Some(self.with_scheduler(Limit::Cpu, evidence, hint));
        }
        if let Some((cpu, share)) = self.interrupted.filter(|(_, share)| *share >= limit) {
            let evidence = format!(
                "CPU {cpu} spends {:.0} % of its time in irq and softirq",
                share * 100.0
            );
            let hint = "spread the interrupts over more CPUs, or place the jobs elsewhere";
            return Some(self.with_scheduler(Limit::Cpu, evidence, hint));
        }
        let machine = (self.machine).filter(|share| *share >= MACHINE_SHARE.as_f64())?;
        let evidence = format!("all CPUs together are {:.0} % busy", machine * 100.0);
        let hint = "end other programs; a device that is made of software (loop, zram, dm) needs CPU itself";
        Some(self.with_scheduler(Limit::Cpu, evidence, hint))
    }

    fn with_scheduler(&self, what: Limit, evidence: String, hint: &str) -> Named {
        let mut evidence = vec![evidence];
        if let Some(scheduler) = self.scheduler.filter(|own| *own != "none") {
            evidence.push(format!(
                "the I/O scheduler {scheduler} takes a part of the system time"
            ));
        }
        Named {
            what,
            evidence,
            hint: Some(hint.to_owned()),
        }
    }

    fn bandwidth(&self) -> Option<Named> {
        let share = self.pcie.filter(|share| *share >= PCIE_SHARE.as_f64())?;
        Some(Named {
            what: Limit::Device,
            evidence: vec![format!(
                "the PCIe link carries {:.0} % of its bandwidth",
                share * 100.0
            )],
            hint: None,
        })
    }

    /// Requests that wait above the driver.
    fn waiting(&self) -> Option<Named> {
        let issued = self.issued?;
        let tags = self.tags.map(super::real);
        if let Some(tags) = tags
            && self.in_flight > tags
            && issued >= TAGS_SHARE * tags
        {
            return Some(Named {
                what: Limit::Queue,
                evidence: vec![format!(
                    "{:.0} operations in flight need more tags than the {tags:.0} of the hardware queues in use \
                     (nr_requests); the driver had {issued:.0}",
                    self.in_flight
                )],
                hint: Some("use more hardware queues (`--jobs per-queue`)".to_owned()),
            });
        }
        let scheduler = self.scheduler.filter(|own| *own != "none")?;
        let has_room = tags.is_some_and(|tags| tags >= self.in_flight);
        (has_room && issued < WAITING_SHARE * self.in_flight).then(|| Named {
            what: Limit::Scheduler,
            evidence: vec![format!(
                "the driver had {issued:.1} of {:.0} operations; {scheduler} held the rest",
                self.in_flight
            )],
            hint: Some("compare with the scheduler none".to_owned()),
        })
    }

    fn depth_or_device(&self) -> Option<Named> {
        let probe = self.probe?;
        let ratios: Vec<String> = (probe.ratios.iter())
            .map(|ratio| format!("{ratio:.2}x"))
            .collect();
        let seen = format!("at depth {}: {} the rate", probe.depth, ratios.join(", "));
        if probe.gains()? {
            return Some(Named {
                what: Limit::Queue,
                evidence: vec![seen],
                hint: Some("raise `--depth` or `--jobs`".to_owned()),
            });
        }
        let issued = self.issued?;
        (issued >= ISSUED_SHARE * self.in_flight).then(|| Named {
            what: Limit::Device,
            evidence: vec![
                seen,
                format!(
                    "the driver had {issued:.1} of {:.0} operations",
                    self.in_flight
                ),
            ],
            hint: None,
        })
    }

    fn unknown(&self) -> Named {
        let mut evidence = Vec::new();
        if let Some(issued) = self.issued {
            evidence.push(format!(
                "the driver had {issued:.1} of {:.0} operations",
                self.in_flight
            ));
        }
        Named {
            what: Limit::NotDetermined,
            evidence,
            hint: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(ratios: &[f64]) -> DepthProbe {
        DepthProbe {
            depth: 64,
            ratios: ratios.to_vec(),
        }
    }

    fn facts() -> Facts<'static> {
        Facts {
            jobs: vec![(0.3, 1000)],
            in_flight: 32.0,
            issued: Some(31.0),
            tags: Some(128),
            scheduler: Some("none"),
            ..Facts::default()
        }
    }

    fn limit(facts: &Facts<'_>) -> Limit {
        facts.named().what
    }

    #[test]
    fn jobs_without_idle_time_are_limited_by_cpu_even_if_the_depth_would_help() {
        let probe = probe(&[1.3, 1.4, 1.3]);
        let facts = Facts {
            jobs: vec![(0.97, 1000), (0.2, 100)],
            probe: Some(&probe),
            ..facts()
        };
        assert_eq!(limit(&facts), Limit::Cpu);
    }

    #[test]
    fn one_busy_job_of_many_is_not_the_limit() {
        let facts = Facts {
            jobs: vec![(0.97, 100), (0.2, 1000)],
            ..facts()
        };
        assert_eq!(limit(&facts), Limit::NotDetermined);
    }

    #[test]
    fn a_cpu_with_interrupts_or_a_busy_machine_is_the_limit() {
        let interrupted = Facts {
            interrupted: Some((CpuId(3), 0.95)),
            ..facts()
        };
        let crowded = Facts {
            machine: Some(0.99),
            ..facts()
        };
        assert_eq!(
            (limit(&interrupted), limit(&crowded)),
            (Limit::Cpu, Limit::Cpu)
        );
        assert!(interrupted.named().evidence[0].contains("CPU 3"));
    }

    #[test]
    fn requests_that_need_more_tags_than_there_are_wait_in_the_queue() {
        let facts = Facts {
            in_flight: 256.0,
            issued: Some(126.0),
            ..facts()
        };
        assert_eq!(limit(&facts), Limit::Queue);
    }

    #[test]
    fn a_scheduler_is_named_only_if_the_driver_had_room() {
        let held = Facts {
            issued: Some(4.0),
            scheduler: Some("bfq"),
            ..facts()
        };
        assert_eq!(limit(&held), Limit::Scheduler);
        let unknown = Facts { tags: None, ..held };
        assert_eq!(limit(&unknown), Limit::NotDetermined);
    }

    #[test]
    fn more_depth_that_helps_names_the_queue_and_more_that_does_not_the_device() {
        let (more, same, mixed) = (probe(&[1.5, 1.4]), probe(&[1.0, 0.99]), probe(&[1.2, 0.9]));
        let with = |probe| {
            limit(&Facts {
                probe: Some(probe),
                ..facts()
            })
        };
        assert_eq!(with(&more), Limit::Queue);
        assert_eq!(with(&same), Limit::Device);
        assert_eq!(with(&mixed), Limit::NotDetermined);
        assert_eq!(with(&probe(&[])), Limit::NotDetermined);
    }

    #[test]
    fn a_device_is_not_named_if_what_the_driver_had_is_unknown() {
        let same = probe(&[1.0, 1.0]);
        let facts = Facts {
            issued: None,
            probe: Some(&same),
            ..facts()
        };
        assert_eq!(limit(&facts), Limit::NotDetermined);
    }
}
