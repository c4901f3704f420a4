//! `queues-too-few`: fewer receive queues than useful cores. Facts from
//! Documentation/networking/scaling.rst, "Suggested Configuration".

use super::facts::{rate_evidence, reported};
use super::spreading::{
    channel_count, cores, homes, in_use, needed, percent, softirq_evidence, softirq_share, taken,
    used,
};
use super::{ALWAYS, Draft, each_nic, found, remedy, subject, undetermined};
use crate::ceiling::gigabits;
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{Channels, Nic, QueueKind};
use crate::known::Known;
use crate::setting::{Class, NicKnob, SettingKey, Value};
use crate::units::BitRate;

pub(super) const RULE: Rule = Rule {
    id: "queues-too-few",
    number: 8,
    status: Status::Implemented,
    title: "fewer receive queues than useful cores",
    severity: Severity::Warn,
    stage: Stage::Saturation,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts, Basis::Counters],
    threshold: "fewer than the NIC's maximum, its local cores and half of all cores (note); and also fewer \
                than one per 30 Gb/s of link speed, or one where four are useful at 10 Gb/s or more, or more \
                than 1 Gb/s received with a CPU above 60 % softirq (warn)",
    effect: "a core receives about 30 Gb/s of one flow at 3 GHz or more (fasterdata); that times the number of \
             queues is the limit",
    source: "Documentation/networking/scaling.rst; Documentation/networking/ethtool-netlink.rst \
             (CHANNELS_GET); fasterdata.es.net, 100G tuning",
    fix: Fix::Proposed(&[Class::R2]),
    persist: "CombinedChannels= in a systemd .link file, or NetworkManager's ethtool.channels-combined",
    contested: None,
    page: include_str!("../../../../docs/rules/queues-too-few.md"),
    check,
};

/// The receive rate of one core for one flow.
const OF_ONE_CORE: BitRate = BitRate::from_mbit_per_s(30_000);

/// From this rate on, one queue is too few.
const FAST: BitRate = BitRate::from_mbit_per_s(10_000);

/// The received amount above which a busy CPU is attributed to this NIC.
const MUCH: BitRate = BitRate::from_mbit_per_s(1_000);

/// Above this softirq share a CPU is close to saturation.
const BUSY: f64 = 0.6;

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    if context.host.online_cpus().len() < 2 {
        return Vec::new();
    }
    each_nic(rule, context, |nic| check_nic(rule, context, nic))
}

fn check_nic(rule: &Rule, context: &Context<'_>, nic: &Nic) -> Option<Outcome> {
    if !nic.kind.has_wire() {
        return None;
    }
    let channels = match &nic.channels {
        Known::Value(channels) => channels,
        Known::Unknown(gap) => {
            if let Some(said) = only_queue(context, nic) {
                return Some(found(rule, context, said));
            }
            // A driver without channel settings has a fixed number of queues.
            let gap = needed(gap)?;
            return Some(undetermined(rule, context, subject(nic), vec![gap]));
        }
    };
    let (knob, most) = most(channels)?;
    let count = channel_count(channels, QueueKind::Rx)?;
    let useful = most.min(useful(context, nic));
    if count == 0 || count >= useful {
        return None;
    }
    let measured = saturated(context, nic);
    let link = nic.link_bit_per_s.get();
    let capacity = OF_ONE_CORE.as_bit_per_s().saturating_mul(u64::from(count));
    let too_slow = link.is_some_and(|link| {
        capacity < link.as_bit_per_s() || (count == 1 && useful >= 4 && link >= FAST)
    });
    let severity = if measured.is_some() || too_slow {
        Severity::Warn
    } else {
        Severity::Note
    };
    let request = format!("netlink ethtool CHANNELS_GET {}", nic.name);
    let mut evidence = vec![
        Evidence::new("receive queues in use", count, request.clone()),
        Evidence::new("maximum receive queues", most, request),
        Evidence::new(
            "useful cores",
            useful,
            "/sys/devices/system/cpu/cpu*/topology/core_cpus_list",
        ),
    ];
    evidence.extend(link.map(|link| {
        let path = format!("/sys/class/net/{}/speed", nic.name);
        Evidence::new("link speed", gigabits(link), path)
    }));
    evidence.extend(measured.into_iter().flatten());
    let key = SettingKey::Nic(nic.name.clone(), knob);
    Some(found(
        rule,
        context,
        Draft {
            severity,
            subject: subject(nic),
            summary: format!(
                "{} uses {count} of {most} receive queues, {useful} cores could serve them: try {useful}",
                nic.name
            ),
            evidence,
            remedies: remedy(context, key, Value::Integer(u64::from(useful)))
                .into_iter()
                .collect(),
        },
    ))
}

/// One receive queue, as sysfs lists them, where a fast link needs several. How many the NIC has is not known.
fn only_queue(context: &Context<'_>, nic: &Nic) -> Option<Draft> {
    let rx = nic
        .queues
        .iter()
        .filter(|queue| queue.kind == QueueKind::Rx);
    let link = *reported(&nic.link_bit_per_s)?;
    let useful = useful(context, nic);
    if rx.count() != 1 || link < FAST || useful < 2 || (useful < 4 && link <= OF_ONE_CORE) {
        return None;
    }
    let folder = format!("/sys/class/net/{}/queues", nic.name);
    // Adapters of a channel subsystem (s390 qeth) or a platform bus have one queue by design.
    let severity = match nic.pci_address {
        Known::Unknown(ref gap) if !gap.leaves_a_question() => Severity::Note,
        _ => Severity::Warn,
    };
    Some(Draft {
        severity,
        subject: subject(nic),
        summary: format!(
            "{} receives {} through one queue, {useful} cores could serve more: try ethtool -L",
            nic.name,
            gigabits(link)
        ),
        evidence: vec![
            Evidence::new("receive queues", 1, folder),
            rate_evidence(nic, link),
        ],
        remedies: Vec::new(),
    })
}

/// The setting for the number of receive queues, and its maximum.
fn most(channels: &Channels) -> Option<(NicKnob, u32)> {
    let combined = channels.combined_max.get().filter(|most| *most > 0);
    let only_rx = channels.rx_max.get().filter(|most| *most > 0);
    let uses_rx = channels.rx.get().is_some_and(|count| count > 0);
    match (combined, only_rx) {
        (Some(most), _) if !uses_rx => Some((NicKnob::ChannelsCombined, most)),
        (_, Some(most)) => Some((NicKnob::ChannelsRx, most)),
        _ => None,
    }
}

/// One for each local core; drivers' defaults use at most half of all cores.
fn useful(context: &Context<'_>, nic: &Nic) -> u32 {
    let near = cores(context.host, &homes(context.host, nic));
    let all = cores(context.host, &context.host.online_cpus());
    let half = if all > 2 { all.div_ceil(2) } else { all };
    u32::try_from(near.min(half)).unwrap_or(u32::MAX)
}

/// High receive rate, with a CPU for the NIC's interrupts close to saturation.
fn saturated(context: &Context<'_>, nic: &Nic) -> Option<Vec<Evidence>> {
    let watch = context.watch?;
    let bytes = format!("nic/{}/stat/rx_bytes", nic.name);
    let rate = watch.per_second(&bytes).get()? * 8.0;
    if rate < MUCH.as_f64() {
        return None;
    }
    let cpus = used(&taken(&in_use(nic, QueueKind::Rx)));
    let busy = cpus
        .iter()
        .filter_map(|cpu| Some((cpu, softirq_share(watch, cpu).get()?)))
        .max_by(|one, other| one.1.total_cmp(&other.1))?;
    (busy.1 > BUSY).then(|| {
        let received = BitRate::from_f64(rate).unwrap_or(MUCH);
        vec![
            Evidence::new("receive rate", gigabits(received), watch.path(&bytes)),
            softirq_evidence(watch, busy.0, busy.1),
            Evidence::new("softirq threshold", percent(BUSY), "rule"),
        ]
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding, remedies};
    use super::*;
    use crate::build;
    use crate::host::Host;
    use crate::known::Cause;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("one queue of eight at 100 Gb/s", || {
                World::of(server(100, 1, 8))
            }),
            ("one of an adapter that is not on PCI", || {
                let mut host = server(10, 1, 8);
                let nic = &mut host.nics[0];
                nic.channels = Known::not_asked("netlink ethtool CHANNELS_GET eth2");
                nic.pci_address = Known::unknown(Cause::Absent, "device", "not on PCI");
                World::of(host)
            }),
            ("one of eight at 1 Gb/s", || World::of(server(1, 1, 8))),
            ("one in sysfs, and nobody asked for the channels", || {
                let mut host = server(100, 1, 8);
                host.nics[0].channels = Known::not_asked("netlink ethtool CHANNELS_GET eth2");
                World::of(host)
            }),
        ],
        silent: &[
            ("as many as half of the cores", || {
                World::of(server(100, 4, 8))
            }),
            ("the card has one", || World::of(server(100, 1, 1))),
            ("the driver has no such question", || {
                let mut host = server(100, 4, 8);
                host.nics[0].channels = Known::unknown(Cause::Absent, "channels", "unsupported");
                World::of(host)
            }),
            ("a pair without a wire", || World::of(build::veth_pair().0)),
        ],
        undetermined: &[("not queried", || {
            let mut host = server(100, 2, 8);
            host.nics[0].channels = Known::not_asked("netlink ethtool CHANNELS_GET eth2");
            World::of(host)
        })],
    };

    #[test]
    fn an_adapter_that_is_not_on_pci_has_one_queue_by_design() {
        let mut host = server(10, 1, 8);
        let nic = &mut host.nics[0];
        nic.channels = Known::not_asked("netlink ethtool CHANNELS_GET eth2");
        assert_eq!(finding(ID, &context(&host)).severity, Severity::Warn);
        host.nics[0].pci_address = Known::unknown(Cause::Absent, "device", "not on PCI");
        assert_eq!(finding(ID, &context(&host)).severity, Severity::Note);
    }

    fn server(gbit: u64, queues: usize, most: u32) -> Host {
        let cpus: Vec<u32> = (0..8).take(queues).collect();
        build::host()
            .nodes(1, 8)
            .nic("eth2", |nic| {
                nic.gbit(gbit).queues(&cpus).with(|nic| {
                    if let Known::Value(channels) = &mut nic.channels {
                        channels.combined_max = Known::Value(most);
                    }
                })
            })
            .build()
    }

    #[test]
    fn a_link_that_one_core_cannot_receive_is_warned_about() {
        let said = finding(ID, &context(&server(100, 1, 8)));
        assert_eq!(said.severity, Severity::Warn);
        assert_eq!(remedies(&said), ["nic/eth2/channels/combined: 1 -> 4"]);
        let slow = finding(ID, &context(&server(1, 1, 8)));
        assert_eq!(slow.severity, Severity::Note);
    }

    #[test]
    fn a_busy_cpu_shows_that_it_costs() {
        let world = World::of(server(5, 1, 8)).watched(|watch| {
            watch
                .grew("nic/eth2/stat/rx_bytes", 4_000_000_000)
                .softirq(0, 0.9)
        });
        assert_eq!(finding(ID, &world.context()).severity, Severity::Warn);
    }
}
