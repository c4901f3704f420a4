//! `link-speed-below-module`: the link runs at a fraction of what port and module support, as NICs do with a module that
//! they do not accept. Modes from `ETHTOOL_MSG_LINKMODES_GET`, the module's rate from its EEPROM (SFF-8024 tables 4-4 and
//! 4-5, SFF-8472, SFF-8636).

use super::judged::{ethtool, judge_each, offered};
use super::link_speed_below_capability::{common, fastest};
use super::{ALWAYS, Draft, subject};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{LinkModes, Module, Nic};
use crate::known::{Gap, Known};
use crate::units::BitRate;

pub(super) const RULE: Rule = Rule {
    id: "link-speed-below-module",
    number: 107,
    status: Status::AdviceOnly,
    title: "the link runs at a tenth or less of what port and module support",
    severity: Severity::Warn,
    stage: Stage::HardCeiling,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "autonegotiated speed a tenth or less of the port's fastest mode and of the module's rate, unless \
                the partner advertises no more (warn)",
    effect: "exact: the ratio of the speeds",
    source: "SFF-8024 tables 4-4 and 4-5, SFF-8472, SFF-8636; Documentation/networking/ethtool-netlink.rst \
             (LINKMODES_GET, MODULE_EEPROM_GET); the threshold is linerate's own",
    fix: Fix::Elsewhere,
    persist: "nothing on the host: a module or cable that the NIC's vendor lists",
    contested: None,
    page: include_str!("../../../../docs/rules/link-speed-below-module.md"),
    check,
};

/// The link runs at one part of these, or less. 25 Gb/s NICs with a 10 Gb/s link are common; a tenth is no choice.
const FRACTION: u64 = 10;

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    judge_each(rule, context, |nic| {
        let slow = slow_module(nic)?;
        Ok(slow.map(|slow| draft(nic, &slow)))
    })
}

/// A link that is far slower than its port and its module.
pub(super) struct SlowModule<'a> {
    module: &'a Module,
    speed: BitRate,
    port: BitRate,
    rated: BitRate,
}

/// The link of `nic`, if it is far slower than its port and its module.
pub(super) fn slow_module(nic: &Nic) -> Result<Option<SlowModule<'_>>, Gap> {
    if !nic.kind.has_wire() {
        return Ok(None);
    }
    let Some(modes) = offered(&nic.wire.modes)? else {
        return Ok(None);
    };
    let Some((speed, port)) = slow_link(nic, modes) else {
        return Ok(None);
    };
    let Some(module) = offered(&nic.wire.module)? else {
        return Ok(None);
    };
    let rated = match &module.rated_bit_per_s {
        Known::Value(rated) => *rated,
        Known::Unknown(gap) => return Err(gap.clone()),
    };
    Ok(is_fraction(speed, rated).then_some(SlowModule {
        module,
        speed,
        port,
        rated,
    }))
}

/// The speed of the link and of the port's fastest mode, if the first is a fraction of the second. A speed that was set
/// by hand is one of `link-speed-below-capability`.
fn slow_link(nic: &Nic, modes: &LinkModes) -> Option<(BitRate, BitRate)> {
    let speed = modes.speed_bit_per_s.get().or(nic.link_bit_per_s.get())?;
    let port = fastest(&modes.supported)?;
    let is_own = speed.as_bit_per_s() > 0 && is_fraction(speed, port);
    let by_hand = modes.autoneg.get() == Some(false);
    let partner_limits = fastest(&common(modes)).is_some_and(|best| best <= speed);
    (is_own && !by_hand && !partner_limits).then_some((speed, port))
}

fn is_fraction(speed: BitRate, of: BitRate) -> bool {
    speed.as_bit_per_s().saturating_mul(FRACTION) <= of.as_bit_per_s()
}

fn draft(nic: &Nic, slow: &SlowModule<'_>) -> Draft {
    let path = ethtool(nic, "module-eeprom");
    let mut evidence = vec![
        Evidence::new("speed of the link", slow.speed, ethtool(nic, "linkmodes")),
        Evidence::new("fastest mode", slow.port, ethtool(nic, "linkmodes")),
        Evidence::new("rate of the module", slow.rated, path.clone()),
    ];
    let mut name = Vec::new();
    for (what, text) in [("vendor", &slow.module.vendor), ("part", &slow.module.part)] {
        if let Some(text) = text.value() {
            evidence.push(Evidence::new(
                format!("{what} of the module"),
                text,
                path.clone(),
            ));
            name.push(text.as_str());
        }
    }
    let module = if name.is_empty() {
        String::new()
    } else {
        format!(" ({})", name.join(" "))
    };
    let supported = slow.port.min(slow.rated);
    Draft {
        severity: Severity::Warn,
        subject: subject(nic),
        summary: format!(
            "{} runs at {}, but its port and its module{module} support {supported}: the NIC may not accept \
             the module; try one that its vendor lists",
            nic.name, slow.speed
        ),
        evidence,
        remedies: Vec::new(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding};
    use super::*;
    use crate::build;
    use crate::host::Host;
    use crate::known::Cause;

    pub(crate) const CASES: Cases = Cases {
        fires: &[("a foreign 100 Gb/s cable at 1 Gb/s", || {
            World::of(at(1_000, Some(103_000)))
        })],
        silent: &[
            ("as fast as the module", || {
                World::of(at(100_000, Some(103_000)))
            }),
            ("a module of 1 Gb/s", || World::of(at(1_000, Some(1_000)))),
            ("a 10 Gb/s module in a port of 25", || {
                let mut host = at(10_000, Some(10_000));
                modes(&mut host).supported = vec!["25000baseCR/Full".to_owned()];
                World::of(host)
            }),
            ("a partner of 1 Gb/s", || {
                let mut host = at(1_000, Some(103_000));
                modes(&mut host).partner = vec!["1000baseKX/Full".to_owned()];
                World::of(host)
            }),
            ("set by hand", || {
                let mut host = at(1_000, Some(103_000));
                modes(&mut host).autoneg = Known::Value(false);
                World::of(host)
            }),
            ("a port without a module", || {
                let mut host = at(1_000, None);
                host.nics[0].wire.module = Known::unknown(Cause::Absent, "module", "none");
                World::of(host)
            }),
        ],
        undetermined: &[
            ("a module that does not report its rate", || {
                World::of(at(1_000, None))
            }),
            ("only root may read the module", || {
                let mut host = at(1_000, None);
                host.nics[0].wire.module = Known::unknown(Cause::Denied, "module", "root");
                World::of(host)
            }),
        ],
    };

    fn modes(host: &mut Host) -> &mut LinkModes {
        match &mut host.nics[0].wire.modes {
            Known::Value(modes) => modes,
            Known::Unknown(gap) => panic!("{gap}"),
        }
    }

    fn at(mbit: u64, rated: Option<u64>) -> Host {
        let mut host = build::host()
            .nic("eth0", |nic| nic.module(build::cable(rated)))
            .build();
        host.nics[0].link_bit_per_s = BitRate::from_mbit_per_s(mbit).into();
        let modes = modes(&mut host);
        modes.speed_bit_per_s = BitRate::from_mbit_per_s(mbit).into();
        modes.supported = ["1000baseKX/Full", "100000baseCR4/Full"]
            .map(str::to_owned)
            .to_vec();
        modes.partner.clear();
        host
    }

    #[test]
    fn the_finding_names_the_module_and_is_the_only_one_about_the_speed() {
        let world = World::of(at(1_000, Some(103_000)));
        let said = finding(RULE.id, &world.context());
        assert!(
            said.summary.contains("(OPTCORE Q-100G-DAC-P2M)"),
            "{}",
            said.summary
        );
        let all = super::super::diagnose(&world.context());
        let speed = |id: &&str| id.starts_with("link-speed");
        let ids: Vec<&str> = (all.findings.iter().map(|one| one.rule.as_str()))
            .filter(speed)
            .collect();
        assert_eq!(ids, [RULE.id]);
    }
}
