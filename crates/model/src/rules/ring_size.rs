//! `ring-size`: the receive ring is too small and drops, or larger than low latency needs. Sizes from
//! `ETHTOOL_MSG_RINGS_GET`, drops from `struct rtnl_link_stats64` and the driver.

use super::judged::{Growth, Judged, ethtool, growth, judge_watched, offered};
use super::nic_discards_before_host::discards;
use super::{ALWAYS, Draft, remedy, subject};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Profile, Rule, Severity, Stage, Status,
};
use crate::host::Nic;
use crate::known::Gap;
use crate::setting::{Class, NicKnob, SettingKey, Value};
use crate::watch::Watch;

pub(super) const RULE: Rule = Rule {
    id: "ring-size",
    number: 22,
    status: Status::Implemented,
    title: "the receive ring is too small and drops, or larger than low latency needs",
    severity: Severity::Warn,
    stage: Stage::Errors,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts, Basis::Counters],
    threshold: "a packet dropped for lack of a receive descriptor (warn); \
                role latency: more than 1024 descriptors without a drop (note)",
    effect: "no more drops at the ring; no verified figure for throughput",
    source: "struct rtnl_link_stats64 in include/uapi/linux/if_link.h; \
             Documentation/networking/ethtool-netlink.rst (RINGS_GET); amzn-drivers, \
             ENA_Linux_Best_Practices.rst; \
             Documentation/networking/device_drivers/ethernet/intel/ice.rst",
    fix: Fix::Proposed(&[Class::R2]),
    persist: "a systemd .link file (RxBufferSize=) or nmcli ethtool.ring-rx",
    contested: None,
    page: include_str!("../../../../docs/rules/ring-size.md"),
    check,
};

/// Above this the ring is too long for low latency.
const LONG: u32 = 1024;

/// Counters of packets dropped for lack of a descriptor, by driver.
const DROPS: [&str; 6] = [
    "stat/rx_missed_errors",
    "stat/rx_fifo_errors",
    "qstat/rx-hw-drop-overruns",
    "driver/rx_out_of_buffer",
    "driver/rx_overruns",
    "driver/rx_no_dma_resources",
];

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    judge_watched(
        rule,
        context,
        |nic| nic.kind.has_wire(),
        |nic, watch| check_nic(context, nic, watch),
    )
}

fn check_nic(context: &Context<'_>, nic: &Nic, watch: &Watch) -> Judged {
    let drops = growth(watch, nic, &DROPS);
    if drops.grew.is_empty() && context.profile != Profile::Latency {
        return drops.quiet_if_read();
    }
    // Packets dropped before a descriptor is needed are not helped by a larger ring.
    if !discards(watch, nic).grew.is_empty() {
        return Ok(None);
    }
    let dropped = !drops.grew.is_empty();
    let sizes = sizes(nic);
    let Some((size, most)) = (if dropped {
        sizes.ok().flatten()
    } else {
        sizes?
    }) else {
        return Ok(dropped.then(|| full(nic, &drops, None)));
    };
    let at = |to: u32| {
        let key = SettingKey::Nic(nic.name.clone(), NicKnob::RingRx);
        remedy(context, key, Value::Integer(u64::from(to)))
    };
    let mut evidence = vec![Evidence::new(
        "receive ring",
        format!("{size} descriptors, maximum {most}"),
        ethtool(nic, "rings"),
    )];
    evidence.extend(drops.evidence());
    if dropped && size >= most {
        return Ok(Some(full(nic, &drops, Some(evidence))));
    }
    let said = |severity, summary, to| {
        Ok(Some(Draft {
            severity,
            subject: subject(nic),
            summary,
            evidence,
            remedies: at(to).into_iter().collect(),
        }))
    };
    if dropped {
        let to = size.saturating_mul(2).min(most);
        let summary = format!(
            "{} dropped packets for lack of receive descriptors ({}): double the receive ring of {size} to \
             {to}",
            nic.name,
            drops.words()
        );
        said(Severity::Warn, summary, to)
    } else if !dropped && context.profile == Profile::Latency && size > LONG {
        drops.quiet_if_read()?;
        let summary = format!(
            "the receive ring of {} has {size} descriptors and no drops: {LONG} may lower latency, measure it",
            nic.name
        );
        said(Severity::Note, summary, LONG)
    } else {
        Ok(None)
    }
}

/// The receive ring and its maximum; none if the driver has no such settings.
fn sizes(nic: &Nic) -> Result<Option<(u32, u32)>, Gap> {
    let Some(rings) = offered(&nic.rings)? else {
        return Ok(None);
    };
    let sizes = offered(&rings.rx)?.zip(offered(&rings.rx_max)?);
    Ok(sizes.map(|(size, most)| (*size, *most)))
}

/// Drops at a ring that cannot grow, or of unknown size: the CPU is slower than the packets.
fn full(nic: &Nic, drops: &Growth, evidence: Option<Vec<Evidence>>) -> Draft {
    let which = match evidence {
        Some(_) => "whose ring is at its maximum",
        None => "whose ring size is not known",
    };
    Draft {
        severity: Severity::Warn,
        subject: subject(nic),
        summary: format!(
            "{} dropped packets for lack of receive descriptors ({}), {which}: spread the load over more queues \
             and CPUs",
            nic.name,
            drops.words()
        ),
        evidence: evidence.unwrap_or_else(|| drops.evidence()),
        remedies: Vec::new(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding, remedies};
    use super::*;
    use crate::build;
    use crate::host::Host;
    use crate::known::Known;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("drops at a ring that could grow", || {
                World::of(host()).watched(|w| w.grew("nic/eth0/driver/rx_out_of_buffer", 7))
            }),
            ("drops at a ring that is as large as it can be", || {
                World::of(with_ring(8192)).watched(|w| w.grew("nic/eth0/stat/rx_missed_errors", 7))
            }),
            ("drops at a ring of unknown size", || {
                let mut host = host();
                host.nics[0].rings = Known::not_asked("netlink/ethtool/eth0/rings");
                World::of(host).watched(|w| w.grew("nic/eth0/stat/rx_missed_errors", 7))
            }),
            ("a long ring where answers must be fast", || {
                World::of(with_ring(4096))
                    .profile(Profile::Latency)
                    .watched(|w| w)
            }),
        ],
        silent: &[
            ("no drop", || World::of(host()).watched(|w| w)),
            ("the card drops before the ring", || {
                World::of(host()).watched(|w| {
                    w.grew("nic/eth0/driver/rx_discards_phy", 90)
                        .grew("nic/eth0/stat/rx_missed_errors", 7)
                })
            }),
            ("a veth has no ring", || World::of(build::veth_pair().0)),
        ],
        undetermined: &[
            ("counters not watched", || World::of(host())),
            ("the counters may not be read", || {
                World::of(host()).watched(|w| w.denied("nic/eth0/stat"))
            }),
            ("a low latency host, and nobody asked for the rings", || {
                let mut host = host();
                host.nics[0].rings = Known::not_asked("netlink/ethtool/eth0/rings");
                World::of(host).profile(Profile::Latency).watched(|w| w)
            }),
        ],
    };

    fn host() -> Host {
        build::host().nic("eth0", |nic| nic).build()
    }

    fn with_ring(size: u32) -> Host {
        let mut host = host();
        if let Known::Value(rings) = &mut host.nics[0].rings {
            rings.rx = Known::Value(size);
        }
        host
    }

    #[test]
    fn a_ring_at_its_maximum_is_not_the_remedy() {
        let world =
            World::of(with_ring(8192)).watched(|w| w.grew("nic/eth0/stat/rx_missed_errors", 7));
        let said = finding(RULE.id, &world.context());
        assert_eq!(said.severity, Severity::Warn);
        assert_eq!(remedies(&said), [""; 0]);
        assert!(said.summary.contains("more queues"), "{}", said.summary);
    }

    #[test]
    fn the_ring_is_doubled_and_never_made_larger_than_it_can_be() {
        for (size, remedy) in [(1024, "1024 -> 2048"), (6000, "6000 -> 8192")] {
            let world =
                World::of(with_ring(size)).watched(|w| w.grew("nic/eth0/stat/rx_missed_errors", 7));
            let said = finding(RULE.id, &world.context());
            assert_eq!(remedies(&said), [format!("nic/eth0/ring/rx: {remedy}")]);
        }
    }
}
