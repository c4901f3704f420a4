//! `tx-segmentation-or-csum-off`: TSO, GSO, transmit checksum or scatter-gather is off. Feature names and
//! their dependences from Documentation/networking/netdev-features.rst and `netdev_fix_features` in
//! net/core/dev.c.

use std::collections::BTreeMap;

use super::facts::if_read;
use super::{BULK, Draft, each_nic, found, remedy, sends, subject, undetermined};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{Feature, Nic, NicKind};
use crate::known::Known;
use crate::setting::{Class, NicKnob, SettingKey, Value};
use crate::shell;
use crate::units::{BitRate, Bytes};

pub(super) const RULE: Rule = Rule {
    id: "tx-segmentation-or-csum-off",
    number: 28,
    status: Status::Implemented,
    title: "TSO, GSO, transmit checksum or scatter-gather is off",
    severity: Severity::Warn,
    stage: Stage::Offloads,
    profiles: BULK,
    judges_by: &[Basis::Facts],
    threshold: "TSO, GSO, transmit checksum or scatter-gather inactive and changeable, on a NIC or veth, or gso_max_size \
                below 8 KiB on a NIC; note below 5 Gb/s",
    effect: "fewer passes through the stack per byte: 11 -> 18 Gb/s for one flow over veth \
             (measured for linerate, Linux 6.18, two CPUs)",
    source: "Documentation/networking/segmentation-offloads.rst; \
             Documentation/networking/netdev-features.rst",
    fix: Fix::Proposed(&[Class::R2]),
    persist: "a systemd .link file (TCPSegmentationOffload=, GenericSegmentationOffload=) or nmcli \
              ethtool.feature-*",
    contested: None,
    page: include_str!("../../../../docs/rules/tx-segmentation-or-csum-off.md"),
    check,
};

/// In the order in which they must be turned on: segmentation depends on the checksum, and that on scatter-gather.
const FEATURES: [&str; 7] = [
    "tx-scatter-gather",
    "tx-checksum-ip-generic",
    "tx-checksum-ipv4",
    "tx-checksum-ipv6",
    "tx-tcp-segmentation",
    "tx-tcp6-segmentation",
    "tx-generic-segmentation",
];

/// Below this rate one CPU segments and checksums without effort; the drivers of many cheap NICs start without.
const SLOW: BitRate = BitRate::from_mbit_per_s(5_000);

/// A quarter of the default. Some drivers limit it to about 16 KiB.
const SMALL: Bytes = Bytes::kib(8);

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    each_nic(rule, context, |nic| check_nic(rule, context, nic))
}

fn check_nic(rule: &Rule, context: &Context<'_>, nic: &Nic) -> Option<Outcome> {
    // A bridge, bond, VLAN or tunnel inherits its features from its lower interfaces, and a program sets those of its
    // tun: features listed as changeable there cannot simply be turned on.
    if !nic.kind.has_wire() && nic.kind != NicKind::Veth {
        return None;
    }
    let features = match &nic.features {
        Known::Value(features) => features,
        Known::Unknown(gap) => {
            return Some(undetermined(rule, context, subject(nic), vec![gap.clone()]));
        }
    };
    let off = off(features);
    if off.is_empty() {
        return small_segments(nic).map(|said| found(rule, context, said));
    }
    let evidence = off
        .iter()
        .map(|name| {
            Evidence::new(
                format!("feature {name}"),
                "off, could be on",
                format!("ethtool -k {}", shell::quoted(nic.name.as_str())),
            )
        })
        .collect();
    let sends = sends(context);
    let remedies = off
        .iter()
        .filter(|_| sends)
        .filter_map(|name| {
            let knob = NicKnob::Feature((*name).to_owned());
            remedy(
                context,
                SettingKey::Nic(nic.name.clone(), knob),
                Value::Switch(true),
            )
        })
        .collect();
    let slow = nic.kind.has_wire() && nic.link_bit_per_s.get().is_some_and(|link| link < SLOW);
    let (severity, advice) = match (sends, slow) {
        (true, false) => (Severity::Warn, "turn on"),
        (true, true) => (Severity::Note, "little cost at this link speed, but try"),
        (false, _) => (
            Severity::Note,
            "the trial sent nothing from this end, but for traffic that does, turn on",
        ),
    };
    Some(found(
        rule,
        context,
        Draft {
            severity,
            subject: subject(nic),
            summary: format!(
                "TSO/GSO or checksum offload is off on {}: {advice} {}",
                nic.name,
                off.join(", ")
            ),
            evidence,
            remedies,
        },
    ))
}

/// ip-link(8), `gso_max_size`: the largest packet that the stack builds for the NIC or GSO to segment.
fn small_segments(nic: &Nic) -> Option<Draft> {
    let most = *if_read(&nic.stack.gso_max_bytes).filter(|most| **most < SMALL)?;
    let fast = nic.link_bit_per_s.get().is_some_and(|link| link >= SLOW);
    (nic.kind.has_wire() && fast).then(|| Draft {
        severity: Severity::Warn,
        subject: subject(nic),
        summary: format!(
            "gso_max_size of {} is {most}, so TSO and GSO send small packets: set the default, 65536",
            nic.name
        ),
        evidence: vec![Evidence::new(
            "gso_max_size",
            most,
            format!("ip -d link show dev {}", shell::quoted(nic.name.as_str())),
        )],
        remedies: Vec::new(),
    })
}

/// The features that are off and could be on. The kernel forbids the generic checksum feature together with the
/// per-protocol ones (`netdev_fix_features`), so only the generic one counts if both are available.
fn off(features: &BTreeMap<String, Feature>) -> Vec<&'static str> {
    let could = |name: &str| {
        features
            .get(name)
            .is_some_and(|f| !f.active && f.changeable)
    };
    let active = |name: &str| features.get(name).is_some_and(|f| f.active);
    let generic = "tx-checksum-ip-generic";
    let by_protocol = |name: &str| matches!(name, "tx-checksum-ipv4" | "tx-checksum-ipv6");
    let sums_by_protocol = active("tx-checksum-ipv4") || active("tx-checksum-ipv6");
    FEATURES
        .into_iter()
        .filter(|name| could(name))
        .filter(|name| !(by_protocol(name) && (active(generic) || could(generic))))
        .filter(|name| !(*name == generic && sums_by_protocol))
        .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{
        Cases, World, context, finding, missing, remedies, silent, with_trial,
    };
    use super::*;
    use crate::build;
    use crate::finding::Profile;
    use crate::host::Host;
    use crate::plan::End;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("TSO and GSO off", || World::of(both_off())),
            ("segments of 2 KiB", || {
                let host = build::host().nic("eth0", |nic| {
                    nic.with(|nic| nic.stack.gso_max_bytes = Known::Value(Bytes::kib(2)))
                });
                World::of(host.build())
            }),
        ],
        silent: &[("both on", || {
            World::of(build::host().nic("eth0", |nic| nic).build())
        })],
        undetermined: &[("features not read", || {
            let mut host = both_off();
            host.nics[0].features = Known::not_asked("ETHTOOL");
            World::of(host)
        })],
    };

    fn both_off() -> Host {
        build::host()
            .nic("near0", |nic| {
                nic.veth()
                    .feature("tx-tcp-segmentation", false, true)
                    .feature("tx-generic-segmentation", false, true)
            })
            .build()
    }

    #[test]
    fn what_is_off_and_could_be_on_is_switched_on_together() {
        let host = both_off();
        let finding = finding(ID, &context(&host));
        assert_eq!(finding.severity, Severity::Warn);
        assert_eq!(finding.subject, "nic/near0");
        assert_eq!(
            remedies(&finding),
            [
                "nic/near0/feature/tx-tcp-segmentation: off -> on",
                "nic/near0/feature/tx-generic-segmentation: off -> on"
            ]
        );
    }

    #[test]
    fn what_the_driver_cannot_do_or_does_already_is_no_fault() {
        let host = build::host()
            .nic("eth0", |nic| {
                nic.feature("tx-tcp-segmentation", false, false)
            })
            .build();
        assert!(silent(ID, &context(&host)));
        let rdma = Context {
            profile: Profile::Rdma,
            ..context(&host)
        };
        assert!(silent(ID, &rdma));
    }

    #[test]
    fn a_slow_link_gets_a_note_and_a_tun_or_bridge_nothing() {
        let with = |mbit: u64, kind: NicKind| {
            build::host()
                .nic("eth0", |nic| {
                    nic.feature("tx-tcp-segmentation", false, true).with(|nic| {
                        nic.kind = kind;
                        nic.link_bit_per_s = BitRate::from_mbit_per_s(mbit).into();
                    })
                })
                .build()
        };
        let severity = |host: Host| finding(ID, &context(&host)).severity;
        assert_eq!(severity(with(1_000, NicKind::Physical)), Severity::Note);
        assert_eq!(severity(with(10_000, NicKind::Physical)), Severity::Warn);
        assert_eq!(severity(with(1_000, NicKind::Veth)), Severity::Warn);
        for kind in [NicKind::Tun, NicKind::Bridge, NicKind::Bond, NicKind::Vlan] {
            assert!(silent(ID, &context(&with(10_000, kind))));
        }
    }

    #[test]
    fn the_two_kinds_of_checksum_are_never_asked_for_together() {
        let host = build::host()
            .nic("eth0", |nic| nic.feature("tx-checksum-ipv4", false, true))
            .build();
        assert!(silent(ID, &context(&host)), "the general one is on");
        let host = build::host()
            .nic("eth0", |nic| {
                nic.feature("tx-checksum-ip-generic", false, true)
                    .feature("tx-checksum-ipv4", false, true)
                    .feature("tx-checksum-ipv6", false, true)
            })
            .build();
        assert_eq!(
            remedies(&finding(ID, &context(&host))),
            ["nic/eth0/feature/tx-checksum-ip-generic: off -> on"]
        );
    }

    #[test]
    fn the_end_that_only_received_gets_a_note_and_nothing_to_try() {
        let host = both_off();
        let sample = build::sample().build();
        let context = Context {
            end: End::Remote,
            ..with_trial(&host, &host, &sample)
        };
        let finding = finding(ID, &context);
        assert_eq!(finding.severity, Severity::Note);
        assert_eq!(remedies(&finding), [""; 0]);
    }

    #[test]
    fn unknown_features_are_not_passed() {
        let host = build::host()
            .nic("eth0", |nic| {
                nic.with(|nic| nic.features = Known::not_asked("ETHTOOL"))
            })
            .build();
        assert_eq!(missing(ID, &context(&host))[0].path, "ETHTOOL");
    }
}
