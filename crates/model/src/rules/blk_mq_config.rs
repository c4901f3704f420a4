//! `blk-mq-config`: the I/O scheduler or the hardware queues of a block device cost IOPS. Facts from
//! Documentation/ABI/stable/sysfs-block and Documentation/block/blk-mq.rst.

use super::devices::{Notice, judged, unknown};
use super::facts::if_read;
use super::remedy;
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Profile, Rule, Severity, Stage, Status,
};
use crate::host::BlockDevice;
use crate::known::Cause;
use crate::setting::{BlockKnob, Class, SettingKey, Value};

pub(super) const RULE: Rule = Rule {
    id: "blk-mq-config",
    number: 76,
    status: Status::InPart(
        "checks scheduler, hardware queues, rq_affinity and very low nr_requests; nomerges and \
                            polling depend on the workload",
    ),
    title: "the I/O scheduler or the hardware queues of a block device cost IOPS",
    severity: Severity::Warn,
    stage: Stage::Tuning,
    profiles: &[Profile::Storage],
    judges_by: &[Basis::Facts],
    threshold: "multi-queue NVMe with a scheduler other than none (kyber: note), or nr_requests below 16 (warn); note: fewer hardware queues \
                than CPUs, rq_affinity 0, a rotational disk without a scheduler",
    effect: "all of Blockbridge's NVMe/TCP tuning, not this setting alone: -40 % latency, +65 % IOPS at queue \
             depth 1 (not verified)",
    source: "Documentation/ABI/stable/sysfs-block; seastar, perftune.py",
    fix: Fix::Proposed(&[Class::R1]),
    persist: "a udev rule: ACTION==\"add|change\", KERNEL==\"nvme*n*\", ATTR{queue/scheduler}=\"none\"",
    contested: None,
    page: include_str!("../../../../docs/rules/blk-mq-config.md"),
    check,
};

/// NVMe devices of clouds have queues of 31 or 63 requests, others 127 or 1023.
const FEW_REQUESTS: u32 = 16;

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let devices = context.host.block.iter();
    devices
        .filter_map(|device| {
            let subject = format!("block/{}", device.name);
            let mut missing = Vec::new();
            let mut notices = Vec::new();
            if is_nvme(device) {
                missing.extend(unknown(&device.scheduler));
                notices.extend(scheduler(context, device));
                notices.extend(queues(context, device));
                notices.extend(completions(context, device));
                notices.extend(few_requests(device));
            } else if is(device, "scsi") {
                notices.extend(rotating(context, device));
                notices.extend(completions(context, device));
            }
            judged(rule, context, subject, notices, missing)
        })
        .collect()
}

fn is(device: &BlockDevice, transport: &str) -> bool {
    device.transport.value().is_some_and(|own| own == transport)
}

/// By its transport; if that was not read, by its name.
fn is_nvme(device: &BlockDevice) -> bool {
    match device.transport.value() {
        Some(transport) => transport == "nvme",
        None => device.name.starts_with("nvme"),
    }
}

fn file(device: &BlockDevice, name: &str) -> String {
    format!("/sys/block/{}/queue/{name}", device.name)
}

fn key(device: &BlockDevice, knob: BlockKnob) -> SettingKey {
    SettingKey::Block(device.name.clone(), knob)
}

fn scheduler(context: &Context<'_>, device: &BlockDevice) -> Option<Notice> {
    let own = device.scheduler.value().filter(|own| *own != "none")?;
    // With one hardware queue the kernel's default is mq-deadline; kyber is designed for fast devices.
    let several = device
        .hardware_queues
        .get()
        .is_some_and(|queues| queues > 1);
    let severity = if several && own != "kyber" {
        Severity::Warn
    } else {
        Severity::Note
    };
    let summary = format!(
        "{} uses the scheduler {own}, which costs CPU time on NVMe: set none",
        device.name
    );
    let evidence = [Evidence::new("scheduler", own, file(device, "scheduler"))];
    let queues = device.hardware_queues.get().map(|queues| {
        Evidence::new(
            "hardware queues",
            queues,
            format!("/sys/block/{}/mq", device.name),
        )
    });
    let none = Value::Text("none".to_owned());
    Some(
        Notice::new(severity, summary)
            .with(evidence)
            .with(queues)
            .fixed_by(remedy(context, key(device, BlockKnob::Scheduler), none)),
    )
}

fn queues(context: &Context<'_>, device: &BlockDevice) -> Option<Notice> {
    let own = device.hardware_queues.get()?;
    let cpus = context.host.online_cpus().len();
    if usize::try_from(own).is_ok_and(|own| own >= cpus) || own == 0 {
        return None;
    }
    let summary = format!(
        "{} has {own} hardware queues for {cpus} CPUs: some CPUs share one",
        device.name
    );
    Some(Notice::new(Severity::Note, summary).with([
        Evidence::new(
            "hardware queues",
            own,
            format!("/sys/block/{}/mq", device.name),
        ),
        Evidence::new(
            "CPUs online",
            context.host.online_cpus(),
            "/sys/devices/system/cpu/online",
        ),
    ]))
}

fn completions(context: &Context<'_>, device: &BlockDevice) -> Option<Notice> {
    let own = device.rq_affinity.get().filter(|own| *own == 0)?;
    // A device without requests of its own, as the head of an NVMe multipath subsystem, passes on what it gets.
    let queues = device.hardware_queues.gap();
    if queues.is_some_and(|gap| gap.cause == Cause::Absent) {
        return None;
    }
    let summary = format!(
        "{} completes requests on any CPU (rq_affinity 0): set rq_affinity to 1",
        device.name
    );
    Some(
        Notice::new(Severity::Note, summary)
            .with([Evidence::new(
                "rq_affinity",
                own,
                file(device, "rq_affinity"),
            )])
            .fixed_by(remedy(
                context,
                key(device, BlockKnob::RqAffinity),
                Value::Integer(1),
            )),
    )
}

/// Fewer than any NVMe queue has: set by hand.
fn few_requests(device: &BlockDevice) -> Option<Notice> {
    let own = *if_read(&device.nr_requests).filter(|own| **own < FEW_REQUESTS)?;
    let summary = format!(
        "{} queues {own} requests only (nr_requests), so its queue depth is limited: set the depth of its hardware \
         queues",
        device.name
    );
    let evidence = [Evidence::new(
        "nr_requests",
        own,
        file(device, "nr_requests"),
    )];
    Some(Notice::new(Severity::Warn, summary).with(evidence))
}

fn rotating(context: &Context<'_>, device: &BlockDevice) -> Option<Notice> {
    device.rotational.get().filter(|rotates| *rotates)?;
    let own = device.scheduler.value().filter(|own| *own == "none")?;
    let summary = format!(
        "{} is rotational and has no I/O scheduler: set mq-deadline",
        device.name
    );
    let offered = device.schedulers.value();
    let to = offered.is_none_or(|all| all.iter().any(|one| one == "mq-deadline"));
    let change = remedy(
        context,
        key(device, BlockKnob::Scheduler),
        Value::Text("mq-deadline".to_owned()),
    );
    Some(
        Notice::new(Severity::Note, summary)
            .with([
                Evidence::new("scheduler", own, file(device, "scheduler")),
                Evidence::new("rotates", "yes", file(device, "rotational")),
            ])
            .fixed_by(change.filter(|_| to)),
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding, remedies};
    use super::*;
    use crate::build::{self, block};
    use crate::known::Known;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("bfq on NVMe", || {
                world("nvme0n1", "nvme", |device| schedule(device, "bfq"))
            }),
            ("one queue for two CPUs", || {
                world("nvme0n1", "nvme", |device| {
                    device.hardware_queues = Known::Value(1);
                })
            }),
            ("four requests", || {
                world("nvme0n1", "nvme", |device| {
                    device.nr_requests = Known::Value(4);
                })
            }),
            ("completions on any CPU", || {
                world("nvme0n1", "nvme", |device| {
                    device.rq_affinity = Known::Value(0);
                })
            }),
            ("a disk that rotates without a scheduler", || {
                world("sda", "scsi", |device| {
                    device.rotational = Known::Value(true);
                })
            }),
        ],
        silent: &[
            ("NVMe without a scheduler", || {
                world("nvme0n1", "nvme", |_| {})
            }),
            (
                "the head of a multipath subsystem, which has no queues",
                || {
                    world("nvme0n1", "nvme", |device| {
                        device.rq_affinity = Known::Value(0);
                        device.hardware_queues = Known::unknown(
                            Cause::Absent,
                            "/sys/block/nvme0n1/mq",
                            "no such folder",
                        );
                    })
                },
            ),
            ("a loop device and a virtio disk", || {
                world("loop0", "loop", |device| schedule(device, "mq-deadline"))
            }),
            ("a virtio disk", || {
                world("vda", "virtio", |device| {
                    schedule(device, "mq-deadline");
                    device.rotational = Known::Value(true);
                })
            }),
            ("bulk transfer", || {
                world("nvme0n1", "nvme", |device| schedule(device, "bfq"))
                    .profile(Profile::Throughput)
            }),
        ],
        undetermined: &[("not queried", || {
            world("nvme0n1", "nvme", |device| {
                device.scheduler = Known::not_asked("scheduler");
            })
        })],
    };

    fn schedule(device: &mut BlockDevice, by: &str) {
        device.scheduler = Known::Value(by.to_owned());
    }

    fn world(name: &str, transport: &str, change: impl FnOnce(&mut BlockDevice)) -> World {
        let mut device = block(name, transport);
        change(&mut device);
        World::of(build::host().with(|host| host.block.push(device)).build())
            .profile(Profile::Storage)
    }

    #[test]
    fn a_scheduler_that_somebody_chose_warns_and_the_kernels_own_choice_is_a_note() {
        let bfq = |queues| {
            world("nvme0n1", "nvme", |device| {
                schedule(device, "mq-deadline");
                device.hardware_queues = Known::Value(queues);
            })
        };
        let said = finding(ID, &bfq(8).context());
        assert_eq!(said.severity, Severity::Warn);
        assert_eq!(
            remedies(&said),
            ["block/nvme0n1/scheduler: mq-deadline -> none"]
        );
        assert_eq!(finding(ID, &bfq(1).context()).severity, Severity::Note);
    }
}
