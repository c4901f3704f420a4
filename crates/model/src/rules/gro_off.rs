//! `gro-off`: GRO is off. The feature and what it does from
//! Documentation/networking/segmentation-offloads.rst; that a veth has it off by default from
//! `veth_disable_gro` in drivers/net/veth.c.

use super::judged::{Judged, could_be_on, ethtool, judge_each};
use super::{BULK, Draft, receives, remedy, subject};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{Nic, NicKind};
use crate::setting::{Class, NicKnob, SettingKey, Value};

pub(super) const RULE: Rule = Rule {
    id: "gro-off",
    number: 27,
    status: Status::Implemented,
    title: "GRO is off",
    severity: Severity::Warn,
    stage: Stage::Offloads,
    profiles: BULK,
    judges_by: &[Basis::Facts],
    threshold: "rx-gro inactive and changeable; on a veth only if its peer sends without segmentation offload",
    effect: "one pass through the stack for many packets; 4.10 -> 9.14 Gb/s in a userspace stack (Tailscale)",
    source: "Documentation/networking/segmentation-offloads.rst (Generic Receive Offload)",
    fix: Fix::Proposed(&[Class::R2]),
    persist: "a systemd .link file (GenericReceiveOffload=) or nmcli ethtool.feature-gro",
    contested: None,
    page: include_str!("../../../../docs/rules/gro-off.md"),
    check,
};

const GRO: &str = "rx-gro";
/// Features for sending GSO packets over a veth: with these there is nothing left to merge.
const CUTS_LATE: [&str; 2] = ["tx-tcp-segmentation", "tx-generic-segmentation"];

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    judge_each(rule, context, |nic| check_nic(context, nic))
}

fn check_nic(context: &Context<'_>, nic: &Nic) -> Judged {
    let veth = nic.kind == NicKind::Veth;
    // Merging applies only where packets enter the stack; a bridge port forwards.
    let enters = nic.kind.has_wire() || veth && nic.upper().is_empty();
    if !enters || !could_be_on(nic, GRO)? {
        return Ok(None);
    }
    let mut evidence = vec![Evidence::new(
        "feature rx-gro",
        "off, could be on",
        ethtool(nic, "features"),
    )];
    if veth {
        let cut: Vec<Evidence> = cut_before_sent(context, nic).collect();
        if cut.is_empty() {
            return Ok(None);
        }
        evidence.extend(cut);
    }
    let receives = receives(context);
    let key = SettingKey::Nic(nic.name.clone(), NicKnob::Feature(GRO.to_owned()));
    let (severity, advice) = if receives {
        (Severity::Warn, "turn on rx-gro")
    } else {
        (
            Severity::Note,
            "the trial sent little to this end, but turn on rx-gro for traffic that is received here",
        )
    };
    Ok(Some(Draft {
        severity,
        subject: subject(nic),
        summary: format!(
            "GRO is off on {}, so each received packet passes the stack alone: {advice}",
            nic.name
        ),
        evidence,
        remedies: remedy(context, key, Value::Switch(true))
            .filter(|_| receives)
            .into_iter()
            .collect(),
    }))
}

/// The veths that send to `nic` without GSO packets: those at the other end; if that is not known, the host's others.
/// Packets segmented by `nic` itself arrive at the other end.
fn cut_before_sent<'a>(context: &Context<'a>, own: &'a Nic) -> impl Iterator<Item = Evidence> + 'a {
    let sender = context.other.unwrap_or(context.host);
    let is_own = context.other.is_none();
    let veths = sender
        .nics
        .iter()
        .filter(move |nic| nic.kind == NicKind::Veth && !(is_own && nic.name == own.name));
    veths.flat_map(|nic| {
        let off = |name: &&str| {
            let features = nic.features.value();
            let feature = features.and_then(|all| all.get(*name));
            feature.is_some_and(|feature| !feature.active)
        };
        CUTS_LATE.into_iter().filter(off).map(|name| {
            let what = format!("feature {name} of {}", nic.name);
            Evidence::new(what, "off", ethtool(nic, "features"))
        })
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding, remedies};
    use super::*;
    use crate::build;
    use crate::finding::Profile;
    use crate::host::Host;
    use crate::known::Known;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("off on a card", || World::of(card())),
            ("off on a veth whose far end cuts by itself", || {
                World::of(veth()).towards(
                    build::host()
                        .nic("far0", |nic| {
                            nic.veth().feature("tx-tcp-segmentation", false, true)
                        })
                        .build(),
                )
            }),
        ],
        silent: &[
            ("on", || {
                World::of(build::host().nic("eth0", |nic| nic).build())
            }),
            ("the driver cannot", || {
                let host = build::host().nic("eth0", |nic| nic.feature(GRO, false, false));
                World::of(host.build())
            }),
            ("a router", || {
                World::of(card()).profile(Profile::Forwarding)
            }),
            ("off on a veth that cuts itself what it sends", || {
                let cuts = |nic: build::NicBuilder| {
                    nic.veth()
                        .feature(GRO, false, true)
                        .feature("tx-tcp-segmentation", false, true)
                };
                let near = build::host().nic("near0", cuts).build();
                World::of(near).towards(build::veth_pair().1)
            }),
            (
                "off on a veth that gets super-packets, the kernel's default",
                || World::of(veth()).towards(build::veth_pair().1),
            ),
        ],
        undetermined: &[("features not read", || {
            let mut host = card();
            host.nics[0].features = Known::not_asked("netlink/ethtool/eth0/features");
            World::of(host)
        })],
    };

    fn card() -> Host {
        build::host()
            .nic("eth0", |nic| nic.feature(GRO, false, true))
            .build()
    }

    fn veth() -> Host {
        build::host()
            .nic("near0", |nic| nic.veth().feature(GRO, false, true))
            .build()
    }

    #[test]
    fn the_end_that_receives_switches_it_on_and_the_other_is_told() {
        let host = card();
        let said = finding(RULE.id, &context(&host));
        assert_eq!(remedies(&said), ["nic/eth0/feature/rx-gro: off -> on"]);
        let sample = build::sample().build();
        let sender = World::of(host.clone()).tried(sample.clone());
        let said = finding(RULE.id, &sender.context());
        assert_eq!((said.severity, said.remedies), (Severity::Note, vec![]));
        let receiver = World::of(host).tried(sample).remote();
        assert_eq!(
            finding(RULE.id, &receiver.context()).severity,
            Severity::Warn
        );
    }
}
