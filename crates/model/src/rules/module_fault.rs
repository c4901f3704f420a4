//! `module-fault`: the transceiver module or cable raises an alarm or is not ready. Facts from
//! `ETHTOOL_MSG_MODULE_EEPROM_GET` (SFF-8472, SFF-8636, CMIS) and mlx5 counters.rst.

use super::judged::{Judged, ethtool, growth, judge_each, offered, runs_at};
use super::{ALWAYS, Draft, subject};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{Module, Nic};
use crate::setting::Class;

pub(super) const RULE: Rule = Rule {
    id: "module-fault",
    number: 40,
    status: Status::AdviceOnly,
    title: "the transceiver module or cable raises an alarm or is not ready",
    severity: Severity::Warn,
    stage: Stage::Errors,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts, Basis::Counters],
    threshold: "any alarm flag, a low-RX-power warning, or a CMIS state other than ModuleReady (warn); other \
                warning flags (note)",
    effect: "a failing module loses frames or the link; no figure",
    source: "SFF-8472, SFF-8636, CMIS; Documentation/networking/ethtool-netlink.rst \
             (MODULE_EEPROM_GET)",
    fix: Fix::Advised(&[Class::R3]),
    persist: "nothing on the host: clean, reseat or replace the module",
    contested: None,
    page: include_str!("../../../../docs/rules/module-fault.md"),
    check,
};

/// Slower links are often copper without a module, and a missing value is not worth reporting.
const ASKED_FROM_GBIT: u64 = 10;

/// mlx5 module counters.
const EVENTS: [&str; 3] = [
    "driver/module_bus_stuck",
    "driver/module_high_temp",
    "driver/module_bad_shorted",
];

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    judge_each(rule, context, |nic| check_nic(context, nic))
}

fn check_nic(context: &Context<'_>, nic: &Nic) -> Judged {
    if !nic.kind.has_wire() {
        return Ok(None);
    }
    let events = context.watch.map(|watch| growth(watch, nic, &EVENTS));
    let events = events.map(|events| events.evidence()).unwrap_or_default();
    let module = match offered(&nic.wire.module) {
        Ok(module) => module,
        Err(gap) if events.is_empty() && may_have_one(nic)? => return Err(gap),
        Err(_) => None,
    };
    let said = module.map_or_else(Vec::new, complaints);
    let path = ethtool(nic, "module-eeprom");
    let severity = said.iter().map(|(severity, _)| *severity);
    let severity = severity.chain(events.first().map(|_| Severity::Warn)).max();
    let Some(severity) = severity else {
        return Ok(None);
    };
    let mut words: Vec<String> = said.iter().map(|(_, what)| what.clone()).collect();
    words.extend(events.iter().map(|event| event.what.clone()));
    let mut evidence: Vec<Evidence> = said
        .into_iter()
        .map(|(severity, what)| {
            let kind = if severity == Severity::Note {
                "warning"
            } else {
                "fault"
            };
            Evidence::new(format!("{kind} of the module"), what, path.clone())
        })
        .collect();
    evidence.extend(events);
    let more = match words.len() {
        0..=2 => String::new(),
        all => format!(" and {} more", all - 2),
    };
    words.truncate(2);
    Ok(Some(Draft {
        severity,
        subject: subject(nic),
        summary: format!(
            "the module of {} reports {}{more}: clean, reseat or replace it",
            nic.name,
            short(&words.join("; "))
        ),
        evidence,
        remedies: Vec::new(),
    }))
}

/// Whether a module that could not be read may exist.
fn may_have_one(nic: &Nic) -> Result<bool, crate::known::Gap> {
    let port = nic.wire.modes.value().and_then(|modes| modes.port.value());
    let copper = port.is_some_and(|port| port == "Twisted Pair");
    Ok(!copper && runs_at(nic, ASKED_FROM_GBIT)?)
}

/// A module's alarm or warning, with its severity.
fn complaints(module: &Module) -> Vec<(Severity, String)> {
    let mut said: Vec<(Severity, String)> = Vec::new();
    if let Some(state) = module.state.value().filter(|state| *state != "ModuleReady") {
        said.push((Severity::Warn, format!("state {state}")));
    }
    said.extend(
        module
            .alarms
            .iter()
            .map(|alarm| (Severity::Warn, alarm.clone())),
    );
    said.extend(module.warnings.iter().map(|warning| {
        let text = warning.to_ascii_lowercase();
        let dark =
            text.contains("low") && (text.contains("receive power") || text.contains("rx power"));
        let severity = if dark { Severity::Warn } else { Severity::Note };
        (severity, warning.clone())
    }));
    // The worst first, so that the summary names it.
    said.sort_by_key(|(severity, _)| std::cmp::Reverse(*severity));
    said
}

/// A module's text may be long; the evidence has all of it.
fn short(text: &str) -> String {
    text.chars().take(110).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding};
    use super::*;
    use crate::build;
    use crate::host::Host;
    use crate::known::{Cause, Known};

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("an alarm", || {
                World::of(with(
                    &["lane 2: receive power low alarm"],
                    &[],
                    "ModuleReady",
                ))
            }),
            ("not ready", || World::of(with(&[], &[], "ModuleLowPwr"))),
            ("the card counts its heat", || {
                World::of(with(&[], &[], "ModuleReady"))
                    .watched(|w| w.grew("nic/eth0/driver/module_high_temp", 1))
            }),
        ],
        silent: &[
            ("a good module", || World::of(with(&[], &[], "ModuleReady"))),
            ("no module", || {
                World::of(build::host().nic("eth0", |nic| nic).build())
            }),
            ("not asked of a port of twisted pair", || {
                let mut host = unread();
                if let Known::Value(modes) = &mut host.nics[0].wire.modes {
                    modes.port = Known::Value("Twisted Pair".to_owned());
                }
                World::of(host)
            }),
        ],
        undetermined: &[("only root may read it", || World::of(unread()))],
    };

    fn unread() -> Host {
        let mut host = build::host().nic("eth0", |nic| nic).build();
        host.nics[0].wire.module = Known::unknown(Cause::Denied, "module-eeprom", "needs root");
        host
    }

    fn with(alarms: &[&str], warnings: &[&str], state: &str) -> Host {
        let owned = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let mut host = unread();
        host.nics[0].wire.module = Known::Value(Module {
            form_factor: "QSFP-DD".to_owned(),
            standard: "CMIS 5.0".to_owned(),
            vendor: Known::Value("a vendor".to_owned()),
            part: Known::default(),
            revision: Known::default(),
            technology: Known::Value("Optical".to_owned()),
            rated_bit_per_s: Known::default(),
            length_dm: Known::default(),
            connector: Known::default(),
            attenuation_db: Known::default(),
            state: Known::Value(state.to_owned()),
            temperature_mc: Known::Value(40_000),
            voltage_mv: Known::Value(3_300),
            lanes: Vec::new(),
            alarms: owned(alarms),
            warnings: owned(warnings),
        });
        host
    }

    #[test]
    fn too_little_light_is_worse_than_a_warm_module() {
        let warm = with(&[], &["temperature high warning"], "ModuleReady");
        assert_eq!(finding(RULE.id, &context(&warm)).severity, Severity::Note);
        let dark = with(
            &[],
            &[
                "temperature high warning",
                "lane 1: receive power low warning",
            ],
            "ModuleReady",
        );
        let said = finding(RULE.id, &context(&dark));
        assert_eq!(said.severity, Severity::Warn);
        assert!(said.summary.contains("reports lane 1"), "{}", said.summary);
    }

    #[test]
    fn a_talkative_module_fits_one_line() {
        let long = "alarm ".repeat(60);
        let host = with(&[&long, &long, &long], &[], "ModuleFault");
        assert!(finding(RULE.id, &context(&host)).summary.len() <= 200);
    }
}
