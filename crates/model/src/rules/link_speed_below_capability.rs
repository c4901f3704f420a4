//! `link-speed-below-capability`: the link speed is below what both ends support. Modes from
//! `ETHTOOL_MSG_LINKMODES_GET` (Documentation/networking/ethtool-netlink.rst).

use super::facts::{gbit, rate_evidence, reported};
use super::judged::{Judged, ethtool, judge_each, offered};
use super::link_speed_below_module::slow_module;
use super::{ALWAYS, Draft, subject};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{LinkModes, Nic, NicKind, mode_speed};
use crate::known::Known;
use crate::setting::Class;
use crate::units::BitRate;

pub(super) const RULE: Rule = Rule {
    id: "link-speed-below-capability",
    number: 36,
    status: Status::Implemented,
    title: "the link speed is below what both ends support",
    severity: Severity::Warn,
    stage: Stage::HardCeiling,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "below the fastest mode that both ends advertise, or half duplex (warn); below the port's own \
                fastest mode if the partner advertises none (note; warn if a tenth or less was set by hand); without modes, less than 1 Gb/s on PCI (warn)",
    effect: "exact: the ratio of the speeds",
    source: "Documentation/networking/ethtool-netlink.rst (LINKMODES_GET)",
    fix: Fix::Advised(&[Class::R3]),
    persist: "a systemd .link file (BitsPerSecond=, AutoNegotiation=) if the speed was set by hand",
    contested: None,
    page: include_str!("../../../../docs/rules/link-speed-below-capability.md"),
    check,
};

/// PCI ports below this speed are not made any more.
const SLOWEST: BitRate = gbit(1);

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    judge_each(rule, context, check_nic)
}

fn check_nic(nic: &Nic) -> Judged {
    if !nic.kind.has_wire() {
        return Ok(None);
    }
    let modes = match offered(&nic.wire.modes) {
        Ok(Some(modes)) => modes,
        // sysfs has the speed and the duplex without the modes.
        Ok(None) => return Ok(slow_or_half(nic)),
        Err(gap) => return slow_or_half(nic).map_or(Err(gap), |said| Ok(Some(said))),
    };
    // A port without listed modes (virtio, many virtual functions) has no capability to compare.
    let Some(own) = fastest(&modes.supported) else {
        return Ok(None);
    };
    let speed = modes.speed_bit_per_s.get().or(nic.link_bit_per_s.get());
    let Some(speed) = speed.filter(|speed| speed.as_bit_per_s() > 0) else {
        // No link, no speed: see `link-ext-state`.
        return Ok(None);
    };
    let half = modes.duplex.value().is_some_and(|duplex| duplex == "half");
    let common = common(modes);
    let (severity, best) = match fastest(&common) {
        Some(best) => (Severity::Warn, best),
        None => (Severity::Note, own),
    };
    if speed >= best && !half {
        return Ok(None);
    }
    let by_hand = modes.autoneg.get() == Some(false);
    // A tenth of what the port supports is no choice of a module or a partner.
    let forced = by_hand && speed.as_bit_per_s() <= own.as_bit_per_s() / 10;
    let (severity, best) = match severity {
        Severity::Note if forced => (Severity::Warn, own),
        _ => (severity, best),
    };
    // One cause, one finding: that rule also knows the module.
    if severity == Severity::Note && !half && matches!(slow_module(nic), Ok(Some(_))) {
        return Ok(None);
    }
    let name = &nic.name;
    let (severity, summary) = if half {
        let summary =
            format!("{name} runs in half duplex at {speed}: enable autonegotiation on both ends");
        (Severity::Warn, summary)
    } else {
        let who = if best == own && fastest(&common).is_none() {
            "its port supports"
        } else {
            "both ends support"
        };
        let advice = match (by_hand, severity) {
            (true, _) => {
                "its speed is set by hand; check cable and partner, or enable autonegotiation"
            }
            (false, Severity::Note) => "check whether module, cable and partner support it too",
            (false, _) => "check the cable, and the modes that each end advertises",
        };
        (
            severity,
            format!("{name} runs at {speed}, {who} {best}: {advice}"),
        )
    };
    Ok(Some(Draft {
        severity,
        subject: subject(nic),
        summary,
        evidence: evidence(nic, modes, speed, best),
        remedies: Vec::new(),
    }))
}

/// Half duplex, or a speed below every port of a server, where the modes of the port are not known.
fn slow_or_half(nic: &Nic) -> Option<Draft> {
    let speed = reported(&nic.link_bit_per_s)?;
    let half = nic
        .wire
        .duplex
        .value()
        .is_some_and(|duplex| duplex == "half");
    let on_pci = matches!(nic.pci_address, Known::Value(_));
    let slow = *speed < SLOWEST && on_pci && nic.kind == NicKind::Physical;
    let name = &nic.name;
    let file = |file: &str| format!("/sys/class/net/{name}/{file}");
    let mut evidence = vec![rate_evidence(nic, *speed)];
    let summary = if half {
        evidence.push(Evidence::new("duplex", "half", file("duplex")));
        format!("{name} runs in half duplex at {speed}: enable autonegotiation on both ends")
    } else if slow {
        format!(
            "{name} runs at {speed}: check cable and partner, and the modes that each end advertises"
        )
    } else {
        return None;
    };
    Some(Draft {
        severity: Severity::Warn,
        subject: subject(nic),
        summary,
        evidence,
        remedies: Vec::new(),
    })
}

fn evidence(nic: &Nic, modes: &LinkModes, speed: BitRate, best: BitRate) -> Vec<Evidence> {
    let path = ethtool(nic, "linkmodes");
    let mut evidence = vec![
        Evidence::new("speed of the link", speed, path.clone()),
        Evidence::new("fastest mode", best, path.clone()),
    ];
    if let Some(duplex) = modes.duplex.value() {
        evidence.push(Evidence::new("duplex", duplex, path.clone()));
    }
    if let Some(autoneg) = modes.autoneg.get() {
        let word = if autoneg { "on" } else { "off" };
        evidence.push(Evidence::new("autonegotiation", word, path));
    }
    evidence
}

/// The modes that both ends advertise.
pub(super) fn common(modes: &LinkModes) -> Vec<String> {
    let both = (modes.partner.iter()).filter(|mode| modes.supported.contains(mode));
    both.cloned().collect()
}

/// The fastest of link modes by the kernel's names.
pub(super) fn fastest(modes: &[String]) -> Option<BitRate> {
    modes.iter().filter_map(|mode| mode_speed(mode)).max()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding};
    use super::*;
    use crate::build;
    use crate::host::Host;
    use crate::known::{Cause, Known};

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("1 Gb/s where both can 10", || {
                World::of(at(1_000, &["10000baseT/Full"]))
            }),
            ("the partner says nothing", || World::of(at(1_000, &[]))),
            ("a tenth, set by hand", || {
                let mut host = at(100, &[]);
                if let Known::Value(modes) = &mut host.nics[0].wire.modes {
                    modes.autoneg = Known::Value(false);
                }
                World::of(host)
            }),
            ("half duplex", || {
                let mut host = at(10_000, &[]);
                if let Known::Value(modes) = &mut host.nics[0].wire.modes {
                    modes.duplex = Known::Value("half".to_owned());
                }
                World::of(host)
            }),
            ("100 Mb/s in sysfs, where ethtool says nothing", || {
                let mut host = at(1_000, &[]);
                let nic = &mut host.nics[0];
                nic.wire.modes = Known::unknown(Cause::Denied, "linkmodes", "not permitted");
                nic.link_bit_per_s = BitRate::from_mbit_per_s(100).into();
                World::of(host)
            }),
        ],
        silent: &[
            ("as fast as it can", || World::of(at(10_000, &[]))),
            ("the partner can no more", || {
                World::of(at(1_000, &["1000baseT/Full"]))
            }),
            ("a card without modes", || {
                let mut host = at(1_000, &[]);
                host.nics[0].wire.modes = Known::unknown(Cause::Absent, "linkmodes", "none");
                World::of(host)
            }),
            ("a virtio that lists none", || {
                let mut host = at(1_000, &[]);
                if let Known::Value(modes) = &mut host.nics[0].wire.modes {
                    modes.supported.clear();
                }
                World::of(host)
            }),
        ],
        undetermined: &[("not asked", || {
            let mut host = at(1_000, &[]);
            host.nics[0].wire.modes = Known::not_asked("netlink/ethtool/eth0/linkmodes");
            World::of(host)
        })],
    };

    fn at(mbit: u64, partner: &[&str]) -> Host {
        build::host()
            .nic("eth0", |nic| {
                nic.with(|nic| {
                    if let Known::Value(modes) = &mut nic.wire.modes {
                        let own = ["TP", "Autoneg", "1000baseT/Full", "10000baseT/Full"];
                        modes.supported = own.map(str::to_owned).to_vec();
                        modes.partner = partner.iter().map(|mode| (*mode).to_owned()).collect();
                        modes.speed_bit_per_s = BitRate::from_mbit_per_s(mbit).into();
                    }
                })
            })
            .build()
    }

    #[test]
    fn what_both_can_is_a_fault_and_what_one_can_a_note() {
        let severity = |host: Host| finding(RULE.id, &World::of(host).context()).severity;
        assert_eq!(severity(at(1_000, &["10000baseT/Full"])), Severity::Warn);
        assert_eq!(severity(at(1_000, &[])), Severity::Note);
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(mode in "\\PC*", number in "[0-9]{0,30}") {
            let _ = fastest(&[mode, format!("{number}baseT/Full")]);
        }
    }

    #[test]
    fn names_of_modes_that_are_no_speed_are_passed_over() {
        let modes = [
            "Pause",
            "basex",
            "99999999999999999999base",
            "2500baseT/Full",
        ];
        let speed = fastest(&modes.map(str::to_owned));
        assert_eq!(speed, Some(BitRate::from_mbit_per_s(2_500)));
        assert_eq!(fastest(&[]), None);
    }
}
