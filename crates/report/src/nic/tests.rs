//! The view of NICs that are built here; whole texts are compared in `crates/linerate/tests/captured/nic.rs`.

use linerate_model::build;
use linerate_model::finding::{Context, Diagnosis, Profile};
use linerate_model::host::Host;
use linerate_model::plan::End;
use linerate_model::rules::{RULES, diagnose};
use linerate_model::units::BitRate;

use super::*;

fn diagnosis(host: &Host) -> Diagnosis {
    let nic = &host.nics[0].name;
    diagnose(&Context {
        end: End::Local,
        host,
        nic: Some(nic),
        other: None,
        sample: None,
        watch: None,
        profile: Profile::Throughput,
        owns_shapers: false,
    })
}

fn text_of(host: &Host) -> String {
    nic_text(&NicView::new(&host.nics[0], &diagnosis(host), None, None))
}

#[test]
fn each_rule_on_the_health_of_a_nic_exists() {
    for id in HEALTH {
        assert!(RULES.iter().any(|rule| rule.id == id), "{id}");
    }
}

#[test]
fn a_finding_about_the_use_of_a_nic_is_no_finding_about_its_health() {
    let host = build::host()
        .nic("eth0", |nic| {
            nic.gbit(100).feature("tx-tcp-segmentation", false, true)
        })
        .build();
    let all = diagnosis(&host);
    let is_use = |one: &Finding| one.rule == "tx-segmentation-or-csum-off";
    assert!(all.findings.iter().any(is_use));
    let view = NicView::new(&host.nics[0], &all, None, None);
    assert_eq!(view.problems(), 0);
}

#[test]
fn a_narrow_pcie_link_is_a_problem_of_the_card_and_shows_what_limits_it() {
    let host = build::host()
        .nic("eth0", |nic| {
            nic.gbit(100)
                .pcie(build::pcie_link((8_000, 8), (8_000, 16)))
        })
        .build();
    let text = text_of(&host);
    assert!(text.contains("pcie-link-degraded"), "{text}");
    let limit = "limited by the link at 0000:16:00.0";
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(joined.contains(limit), "{text}");
}

#[test]
fn a_fact_that_is_unknown_is_shown_with_its_cause_and_never_left_out() {
    let host = build::host()
        .nic("eth0", |nic| {
            nic.with(|nic| {
                let denied = "only root can read the module EEPROM";
                nic.wire.module = Known::unknown(Cause::Denied, "module", denied);
            })
        })
        .build();
    let text = text_of(&host);
    let row = "module       ? (permission denied): only root can read the module EEPROM";
    assert!(text.contains(row), "{text}");
    let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(joined.contains("data not available"), "a check was skipped");
}

#[test]
fn the_advice_is_the_end_of_the_findings_summary() {
    let mut host = build::host()
        .nic("eth0", |nic| nic.module(build::cable(Some(103_000))))
        .build();
    host.nics[0].link_bit_per_s = BitRate::from_mbit_per_s(1_000).into();
    if let Known::Value(modes) = &mut host.nics[0].wire.modes {
        modes.speed_bit_per_s = BitRate::from_mbit_per_s(1_000).into();
        modes.supported = vec!["100000baseCR4/Full".to_owned()];
        modes.partner.clear();
    }
    let all = diagnosis(&host);
    let view = NicView::new(&host.nics[0], &all, None, Some(1036));
    let advice = view.advice();
    assert!(advice[0].starts_with("Use another type of module"));
    assert_eq!(advice[1], "try one that its vendor lists");
}

#[test]
fn text_from_a_module_cannot_steer_a_terminal() {
    let mut cable = build::cable(None);
    cable.vendor = Known::Value("\u{1b}[31mACME\u{7}".to_owned());
    let host = build::host().nic("eth0", |nic| nic.module(cable)).build();
    assert!(!text_of(&host).contains('\u{1b}'));
}
