//! `big-tcp-off`: GSO/GRO packets stop at 64 KiB although the NIC supports larger ones (BIG TCP). Sizes
//! from rtnetlink (`IFLA_GSO_MAX_SIZE`, `IFLA_GRO_MAX_SIZE`, their IPv4 twins, `IFLA_TSO_MAX_SIZE`).

use super::judged::{Judged, judge_each, offered, runs_at, speed};
use super::{BULK, Draft, remedy, subject};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::Nic;
use crate::known::Known;
use crate::setting::{Class, NicKnob, SettingKey, Value};
use crate::units::Bytes;

pub(super) const RULE: Rule = Rule {
    id: "big-tcp-off",
    number: 31,
    status: Status::Implemented,
    title: "GSO/GRO packets stop at 64 KiB although the NIC supports larger ones (BIG TCP)",
    severity: Severity::Note,
    stage: Stage::Tuning,
    profiles: BULK,
    judges_by: &[Basis::Facts],
    threshold: "gso_max_size or gro_max_size is 64 KiB and tso_max_size is larger, on a link of 100 Gb/s or \
                more",
    effect: "8887 -> 12839 transactions/s of 80 kB at 100 Gb/s (+44 %), p99 172 -> 132 us (BIG TCP cover \
             letter); no gain for one flow at 200 Gb/s on gve",
    source: "BIG TCP patch series on netdev; Documentation/netlink/specs/rt-link.yaml; ip-link(8)",
    fix: Fix::Proposed(&[Class::R1]),
    persist: "a systemd unit at boot, or a .link file (option names not verified)",
    contested: Some(
        "for: +27 to +44 % transactions in the patch series; against: no gain for one flow on gve, and \
         captures, BPF programs and drivers may assume 64 KiB",
    ),
    page: include_str!("../../../../docs/rules/big-tcp-off.md"),
    check,
};

/// From this speed on, in Gb/s.
const FROM_GBIT: u64 = 100;
/// The limit of an IP packet's length field.
const LEGACY: Bytes = Bytes::kib(64);
/// What the kernel's authors tried: 185000.
const WANTED: Bytes = Bytes::new(185_000);

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    judge_each(rule, context, |nic| check_nic(context, nic))
}

fn check_nic(context: &Context<'_>, nic: &Nic) -> Judged {
    if !nic.kind.has_wire() || !runs_at(nic, FROM_GBIT)? {
        return Ok(None);
    }
    // A kernel without this limit has no BIG TCP either.
    let Some(hardware) = offered(&nic.stack.tso_max_bytes)?.filter(|most| **most > LEGACY) else {
        return Ok(None);
    };
    let stack = &nic.stack;
    let limits: [(&str, &Known<Bytes>, NicKnob); 4] = [
        ("gso_max_size", &stack.gso_max_bytes, NicKnob::GsoMaxBytes),
        ("gro_max_size", &stack.gro_max_bytes, NicKnob::GroMaxBytes),
        (
            "gso_ipv4_max_size",
            &stack.gso_ipv4_max_bytes,
            NicKnob::GsoIpv4MaxBytes,
        ),
        (
            "gro_ipv4_max_size",
            &stack.gro_ipv4_max_bytes,
            NicKnob::GroIpv4MaxBytes,
        ),
    ];
    let to = WANTED.min(*hardware);
    let path = |what: &str| format!("netlink/route/{}/{what}", nic.name);
    let mut evidence: Vec<Evidence> = speed(nic).into_iter().collect();
    let mut remedies = Vec::new();
    for (name, limit, knob) in limits {
        if let Some(limit) = offered(limit)?.filter(|limit| **limit <= LEGACY) {
            evidence.push(Evidence::new(name, limit, path(name)));
            let key = SettingKey::Nic(nic.name.clone(), knob);
            remedies.extend(remedy(context, key, Value::Integer(to.as_u64())));
        }
    }
    if remedies.is_empty() {
        return Ok(None);
    }
    evidence.push(Evidence::new(
        "tso_max_size",
        hardware,
        path("tso_max_size"),
    ));
    Ok(Some(Draft {
        severity: Severity::Note,
        subject: subject(nic),
        summary: format!(
            "GSO/GRO packets of {} stop at 64 KiB, the NIC supports {hardware}: try {to} on both ends and \
             measure",
            nic.name
        ),
        evidence,
        remedies,
    }))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding, remedies};
    use super::*;
    use crate::build;
    use crate::host::Host;

    pub(crate) const CASES: Cases = Cases {
        fires: &[("64 KiB of 512 KiB at 100 Gb/s", || {
            World::of(card(100, 512))
        })],
        silent: &[
            ("25 Gb/s", || World::of(card(25, 512))),
            ("the card takes no more", || World::of(card(100, 64))),
        ],
        undetermined: &[("not asked", || {
            let mut host = card(100, 512);
            host.nics[0].stack.tso_max_bytes = Known::not_asked("netlink/route/eth0/tso_max_size");
            World::of(host)
        })],
    };

    fn card(gbit: u64, kib: u64) -> Host {
        build::host()
            .nic("eth0", |nic| {
                nic.gbit(gbit)
                    .with(|nic| nic.stack.tso_max_bytes = Known::Value(Bytes::kib(kib)))
            })
            .build()
    }

    #[test]
    fn all_limits_are_raised_to_what_the_hardware_takes() {
        let host = card(100, 128);
        let said = finding(RULE.id, &context(&host));
        assert_eq!(said.severity, Severity::Note);
        assert_eq!(
            remedies(&said),
            [
                "nic/eth0/gso-max-bytes: 65536 -> 131072",
                "nic/eth0/gro-max-bytes: 65536 -> 131072",
                "nic/eth0/gso-ipv4-max-bytes: 65536 -> 131072",
                "nic/eth0/gro-ipv4-max-bytes: 65536 -> 131072"
            ]
        );
    }
}
