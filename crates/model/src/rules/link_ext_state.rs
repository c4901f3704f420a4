//! `link-ext-state`: an enabled port has no link. The kernel's words from `ETHTOOL_MSG_LINKSTATE_GET`
//! (`ETHTOOL_A_LINKSTATE_EXT_STATE`, Documentation/networking/ethtool-netlink.rst).

use super::facts::if_read;
use super::judged::{Judged, ethtool, outcome};
use super::{ALWAYS, Draft, each_nic, subject};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{Host, LinkState, Nic};
use crate::known::Known;

pub(super) const RULE: Rule = Rule {
    id: "link-ext-state",
    number: 37,
    status: Status::AdviceOnly,
    title: "an enabled port has no link, or its bridge blocks it",
    severity: Severity::Crit,
    stage: Stage::HardCeiling,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "no link, and the driver reports a fault (crit); no cable or no link partner: crit if the \
                interface was named, warn if it is a bond slave, else note; a bridge port with a link in state blocking or disabled (warn)",
    effect: "exact: no traffic without link",
    source: "Documentation/networking/ethtool-netlink.rst (LINKSTATE_GET, extended link state)",
    fix: Fix::Elsewhere,
    persist: "nothing on the host: cable, module, link partner, or its FEC and speed",
    contested: None,
    page: include_str!("../../../../docs/rules/link-ext-state.md"),
    check,
};

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    if context.nic.is_some() || context.host.nics.is_empty() {
        return each_nic(rule, context, |nic| {
            outcome(rule, context, nic, check_nic(context, nic))
        });
    }
    // The other rules skip interfaces that are down; this one is about them.
    let nics = context.host.nics.iter();
    nics.filter_map(|nic| outcome(rule, context, nic, check_nic(context, nic)))
        .collect()
}

fn check_nic(context: &Context<'_>, nic: &Nic) -> Judged {
    let up = nic.operstate.value().is_some_and(|state| state == "up");
    if nic.kind.has_wire() && up {
        return Ok(blocked(nic));
    }
    if !nic.kind.has_wire() {
        return Ok(None);
    }
    let state = match &nic.wire.state {
        Known::Value(state) => state,
        Known::Unknown(gap) if !gap.leaves_a_question() => return Ok(None),
        Known::Unknown(gap) => return Err(gap.clone()),
    };
    if state.link.get() != Some(false) {
        return Ok(None);
    }
    let asked = context.nic.is_some();
    let Some(why) = state.extended_state.value() else {
        // A disabled port, or one whose driver gives no reason, is checked only if requested by name.
        return Ok(asked.then(|| no_reason(nic)));
    };
    let severity = if !unplugged(state, why) || asked {
        Severity::Crit
    } else if counted_on(context.host, nic) {
        Severity::Warn
    } else {
        Severity::Note
    };
    let path = ethtool(nic, "linkstate");
    let mut evidence = vec![Evidence::new("extended link state", why, path.clone())];
    let mut reason = why.clone();
    if let Some(finer) = state.extended_substate.value() {
        evidence.push(Evidence::new("extended link substate", finer, path));
        reason = format!("{why}, {finer}");
    }
    Ok(Some(Draft {
        severity,
        subject: subject(nic),
        summary: format!("{} has no link: {reason}. {}", nic.name, advice(why)),
        evidence,
        remedies: Vec::new(),
    }))
}

/// A port of a bridge with a link, through which no packets pass.
fn blocked(nic: &Nic) -> Option<Draft> {
    let state = if_read(nic.stack.bridge_port_state.as_ref()?)?;
    matches!(state.as_str(), "blocking" | "disabled").then(|| {
        let path = format!("/sys/class/net/{}/brport/state", nic.name);
        Draft {
            severity: Severity::Warn,
            subject: subject(nic),
            summary: format!(
                "{} has a link, but its bridge does not forward through it ({state}): find the loop that the \
                 spanning tree protocol cuts here, or the path cost that prefers another port",
                nic.name
            ),
            evidence: vec![Evidence::new("state of the bridge port", state, path)],
            remedies: Vec::new(),
        }
    })
}

fn no_reason(nic: &Nic) -> Draft {
    let is = |driver: &str| nic.driver.value().is_some_and(|own| own == driver);
    let name = &nic.name;
    // mlx5 passes on only some of its status opcodes (`crate::status_opcode`).
    let summary = if matches!(nic.wire.module, Known::Value(_)) && is("mlx5_core") {
        format!(
            "{name} has no link and mlx5 gives no reason, as with a wrong module type (opcode 1036): check that it is \
             enabled and its partner up, or try another module"
        )
    } else {
        format!(
            "{name} has no link and its driver reports no reason: check that it is enabled, plugged in and its \
             partner up"
        )
    };
    Draft {
        severity: Severity::Crit,
        subject: subject(nic),
        summary,
        evidence: vec![Evidence::new("link", "none", ethtool(nic, "linkstate"))],
        remedies: Vec::new(),
    }
}

/// A spare port without a cable.
fn unplugged(state: &LinkState, why: &str) -> bool {
    let is = |text: &str, word: &str| text.to_ascii_lowercase().contains(word);
    let finer = state.extended_substate.value();
    is(why, "no cable") || finer.is_some_and(|finer| is(finer, "no partner"))
}

/// Whether it is a port of a bond or team.
fn counted_on(host: &Host, nic: &Nic) -> bool {
    use crate::host::NicKind::{Bond, Team};
    let bond = |own: &Nic| matches!(own.kind, Bond | Team) && own.lower().contains(&nic.name);
    nic.stack.bond_port.is_some() || host.nics.iter().any(bond)
}

/// The remedy for each of the kernel's states.
fn advice(why: &str) -> &'static str {
    const ADVICE: [(&str, &str); 13] = [
        (
            "autoneg",
            "Compare the speeds and FEC modes that both ends advertise.",
        ),
        ("link training", "Reseat or replace the cable."),
        (
            "logical mismatch",
            "Set the same speed and FEC on both ends.",
        ),
        ("signal integrity", "Clean or replace cable and module."),
        ("no cable", "Plug in the cable."),
        (
            "cable issue",
            "Use a cable that the NIC supports, or replace it.",
        ),
        ("eeprom", "Replace the module or cable: it cannot be read."),
        ("calibration", "Replace the module, or reset the NIC."),
        ("power budget", "Use a module that needs less power."),
        ("overheat", "Cool the NIC or module."),
        ("otp speed", "Use a speed that the NIC is licensed for."),
        (
            "bmc request",
            "The BMC holds the port down: check its settings.",
        ),
        ("module", "Reseat or replace the module."),
    ];
    let why = why.to_ascii_lowercase();
    let found = ADVICE.iter().find(|(word, _)| why.contains(word));
    found.map_or("Check module, cable and partner.", |(_, advice)| advice)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding};
    use super::*;
    use crate::build;
    use crate::ids::NicName;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("a bad cable", || {
                World::of(down(Some("Bad signal integrity")))
            }),
            ("a port that spanning tree blocks", || {
                let blocking = Known::Value("blocking".to_owned());
                let host = build::host().nic("eth0", |nic| {
                    nic.with(|nic| nic.stack.bridge_port_state = Some(blocking))
                });
                World::of(host.build())
            }),
            ("an empty port", || World::of(down(Some("No cable")))),
        ],
        silent: &[
            ("a link", || {
                World::of(build::host().nic("eth0", |nic| nic).build())
            }),
            ("a port that is switched off", || World::of(down(None))),
        ],
        undetermined: &[("not asked", || {
            let mut host = down(None);
            host.nics[0].wire.state = Known::not_asked("netlink/ethtool/eth0/linkstate");
            World::of(host)
        })],
    };

    fn down(why: Option<&str>) -> Host {
        build::host()
            .nic("eth0", |nic| {
                nic.with(|nic| {
                    nic.operstate = Known::Value("down".to_owned());
                    if let Known::Value(state) = &mut nic.wire.state {
                        state.link = Known::Value(false);
                        if let Some(why) = why {
                            state.extended_state = Known::Value(why.to_owned());
                        }
                    }
                })
            })
            .build()
    }

    #[test]
    fn an_empty_port_matters_to_who_counts_on_it() {
        let host = down(Some("No cable"));
        let world = World::of(host.clone());
        assert_eq!(finding(RULE.id, &world.context()).severity, Severity::Note);
        let name: NicName = "eth0".parse().expect("a name");
        let asked = Context {
            nic: Some(&name),
            ..world.context()
        };
        assert_eq!(finding(RULE.id, &asked).severity, Severity::Crit);
        let mut slave = host;
        slave.nics[0].stack.bond_port = Some(crate::host::BondPort::default());
        let world = World::of(slave);
        assert_eq!(finding(RULE.id, &world.context()).severity, Severity::Warn);
    }

    #[test]
    fn a_named_port_without_a_link_is_found_although_the_driver_reports_no_reason() {
        let world = World::of(down(None));
        let name: NicName = "eth0".parse().expect("a name");
        let asked = Context {
            nic: Some(&name),
            ..world.context()
        };
        assert!(
            finding(RULE.id, &asked)
                .summary
                .contains("reports no reason")
        );
    }

    #[test]
    fn an_mlx5_port_with_a_module_and_no_reason_may_have_the_wrong_module() {
        let mut host = down(None);
        host.nics[0].wire.module = Known::Value(build::cable(None));
        let world = World::of(host);
        let name: NicName = "eth0".parse().expect("a name");
        let asked = Context {
            nic: Some(&name),
            ..world.context()
        };
        let summary = finding(RULE.id, &asked).summary;
        assert!(summary.contains("wrong module type"), "{summary}");
    }
}
