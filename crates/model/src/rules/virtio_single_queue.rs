//! `virtio-single-queue`: one virtio queue pair in a guest with several CPUs. Facts from
//! `ETHTOOL_MSG_CHANNELS_GET`, `/sys/class/net/*/queues` and the virtio specification (multiqueue).

use super::devices::{Notice, judged, unknown};
use super::{each_nic, remedy, subject};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Profile, Rule, Severity, Stage, Status,
};
use crate::host::{Nic, QueueKind};
use crate::known::{Gap, Known};
use crate::setting::{Class, NicKnob, SettingKey, Value};

pub(super) const RULE: Rule = Rule {
    id: "virtio-single-queue",
    number: 78,
    status: Status::Implemented,
    title: "one virtio queue pair in a guest with several CPUs",
    severity: Severity::Warn,
    stage: Stage::Saturation,
    profiles: &[
        Profile::Throughput,
        Profile::Latency,
        Profile::Forwarding,
        Profile::Storage,
        Profile::Mixed,
        Profile::Measurement,
    ],
    judges_by: &[Basis::Facts],
    threshold: "driver virtio_net with one combined queue and more than one CPU online (note); the hypervisor \
                offers more, and more than 2 CPUs (warn)",
    effect: "several CPUs receive and send; no verified figure, measure with several flows",
    source: "VIRTIO 1.2, 5.1 (VIRTIO_NET_F_MQ); ethtool(8), --show-channels; Irqbalance/irqbalance#93",
    fix: Fix::Proposed(&[Class::R2]),
    persist: "a systemd .link file (CombinedChannels=) in the guest, and queues='N' of the interface on the \
              hypervisor",
    contested: None,
    page: include_str!("../../../../docs/rules/virtio-single-queue.md"),
    check,
};

/// With so few CPUs a second queue pair gains little.
const FEW_CPUS: usize = 2;

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let cpus = context.host.online_cpus().len();
    each_nic(rule, context, |nic| {
        let driver = nic.driver.value()?;
        if driver != "virtio_net" || cpus < 2 {
            return None;
        }
        let notice = match in_use(nic) {
            Ok((1, evidence)) => one_queue(context, nic, cpus, evidence),
            Ok(_) => return None,
            Err(gap) => return judged(rule, context, subject(nic), Vec::new(), vec![gap]),
        };
        judged(rule, context, subject(nic), vec![notice], Vec::new())
    })
}

/// The number of queue pairs in use: from ethtool, otherwise from sysfs.
fn in_use(nic: &Nic) -> Result<(u32, Evidence), Gap> {
    let channels = nic.channels.clone().and_then(|channels| channels.combined);
    if let Some(count) = channels.get() {
        let path = format!("ETHTOOL_MSG_CHANNELS_GET {}", nic.name);
        return Ok((count, Evidence::new("combined queues", count, path)));
    }
    let listed = nic
        .queues
        .iter()
        .filter(|queue| queue.kind == QueueKind::Rx)
        .count();
    match u32::try_from(listed) {
        Ok(count) if count > 0 => {
            let path = format!("/sys/class/net/{}/queues", nic.name);
            Ok((count, Evidence::new("receive queues", count, path)))
        }
        _ => Err(unknown(&channels).unwrap_or_else(|| {
            let path = format!("/sys/class/net/{}/queues", nic.name);
            Gap::new(crate::known::Cause::Absent, path, "no queue is listed")
        })),
    }
}

fn one_queue(context: &Context<'_>, nic: &Nic, cpus: usize, evidence: Evidence) -> Notice {
    let most = match &nic.channels {
        Known::Value(channels) => channels.combined_max.get(),
        Known::Unknown(_) => None,
    };
    let online = Evidence::new(
        "CPUs online",
        context.host.online_cpus(),
        "/sys/devices/system/cpu/online",
    );
    let offered = most.map(|most| {
        let path = format!("ETHTOOL_MSG_CHANNELS_GET {}", nic.name);
        Evidence::new("maximum combined queues", most, path)
    });
    let notice = match most {
        Some(most) if most > 1 => {
            let severity = if cpus > FEW_CPUS {
                Severity::Warn
            } else {
                Severity::Note
            };
            let to = most.min(u32::try_from(cpus).unwrap_or(u32::MAX));
            let summary = format!(
                "{} uses 1 of {most} queue pairs for {cpus} CPUs: use {to}",
                nic.name
            );
            let key = SettingKey::Nic(nic.name.clone(), NicKnob::ChannelsCombined);
            let change = remedy(context, key, Value::Integer(u64::from(to)));
            Notice::new(severity, summary).fixed_by(change)
        }
        Some(_) => {
            let summary = format!(
                "the hypervisor exposes one queue pair on {} for {cpus} CPUs: enable multiqueue on the hypervisor \
                 (libvirt: <driver queues='N'/>; QEMU: queues=N on the netdev, mq=on on the device)",
                nic.name
            );
            Notice::new(Severity::Note, summary)
        }
        None => {
            let summary = format!(
                "{} uses one queue pair for {cpus} CPUs: check whether the hypervisor offers more (ethtool -l)",
                nic.name
            );
            Notice::new(Severity::Note, summary)
        }
    };
    notice.with([evidence, online]).with(offered)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding, remedies};
    use super::*;
    use crate::build;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("1 of 4 for 8 CPUs", || guest(8, &[0], 4)),
            ("the host gives one", || guest(8, &[0], 1)),
            ("two CPUs", || guest(2, &[0], 2)),
        ],
        silent: &[
            ("four queue pairs", || guest(4, &[0, 1, 2, 3], 4)),
            ("one CPU", || guest(1, &[0], 1)),
            ("another driver", || {
                World::of(build::host().nic("eth0", |nic| nic).build())
            }),
        ],
        undetermined: &[("neither ethtool nor sysfs says", || {
            let host = build::host().nodes(1, 4).nic("eth0", |nic| {
                nic.with(|nic| {
                    nic.driver = Known::Value("virtio_net".to_owned());
                    nic.channels = Known::not_asked("ETHTOOL_MSG_CHANNELS_GET");
                    nic.queues.clear();
                })
            });
            World::of(host.build())
        })],
    };

    fn guest(cpus: u32, queues: &[u32], most: u32) -> World {
        let host = build::host().nodes(1, cpus).nic("eth0", |nic| {
            nic.queues(queues).with(|nic| {
                nic.driver = Known::Value("virtio_net".to_owned());
                if let Known::Value(channels) = &mut nic.channels {
                    channels.combined_max = Known::Value(most);
                }
            })
        });
        World::of(host.build())
    }

    #[test]
    fn it_warns_where_the_guest_itself_can_mend_it() {
        let said = finding(ID, &guest(8, &[0], 4).context());
        assert_eq!(said.severity, Severity::Warn);
        assert_eq!(remedies(&said), ["nic/eth0/channels/combined: 1 -> 4"]);
        for world in [guest(8, &[0], 1), guest(2, &[0], 2)] {
            assert_eq!(finding(ID, &world.context()).severity, Severity::Note);
        }
    }
}
