//! Rules on captured hosts: firing, silent and skipped, each by one changed fact (`fixtures/rules`).

use std::collections::BTreeSet;

use linerate_model::finding::{Context, Finding, Outcome, Profile, Severity};
use linerate_model::host::Host;
use linerate_model::known::{Gap, Known};
use linerate_model::plan::End;
use linerate_model::rules::{RULES, diagnose, find, judge};
use linerate_model::sample::Sample;
use linerate_model::setting::{SettingKey, current};

use super::archives::{HEALTHY, archive, host};
use super::cases::{Case, Expect, Trial, all};

pub(crate) const PROFILES: [Profile; 7] = [
    Profile::Throughput,
    Profile::Latency,
    Profile::Forwarding,
    Profile::Rdma,
    Profile::Storage,
    Profile::Mixed,
    Profile::Measurement,
];

/// What a case shows to its rule; the caller owns what shapes, as the demo does.
struct Shown {
    host: Host,
    other: Option<Host>,
    sample: Option<Sample>,
    profile: Profile,
}

impl Shown {
    fn of(case: &Case, edited: bool) -> Self {
        let archive = archive(&case.host);
        let archive = if edited {
            case.edits.applied(archive)
        } else {
            archive
        };
        Self {
            host: host(archive),
            other: case
                .other
                .as_ref()
                .map(|name| host(super::archives::archive(name))),
            sample: case.trial.map(Trial::sample),
            profile: case.profile,
        }
    }

    fn judged(&self, rule: &str) -> Vec<Outcome> {
        let context = Context {
            end: End::Local,
            host: &self.host,
            nic: None,
            other: self.other.as_ref(),
            sample: self.sample.as_ref(),
            watch: None,
            profile: self.profile,
            owns_shapers: true,
        };
        judge(find(rule).expect("a rule of the list"), &context)
    }
}

/// `/sys/a/b` and `sys/a/b` are one place, and so is a file of a device that one names through the link
/// of its interface and the other by its real folder.
fn same_place(one: &str, other: &str) -> bool {
    let (one, other) = (one.trim_start_matches('/'), other.trim_start_matches('/'));
    let file = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    let through_link = |path: &str| path.contains("/device/");
    one == other || (through_link(one) != through_link(other) && file(one) == file(other))
}

fn check_finding(at: &str, shown: &Shown, case: &Case, finding: &Finding) {
    let Expect::Fires(fires) = case.expect() else {
        panic!("{at}: it fires: {}", finding.summary);
    };
    let place = &fires.evidence;
    assert_eq!(
        finding.severity, fires.severity,
        "{at}: {}",
        finding.summary
    );
    assert_eq!(finding.subject, fires.subject, "{at}");
    let mut changed = case.edits.files.keys();
    if let (Some(changed), None) = (changed.next(), changed.next()) {
        assert!(
            same_place(changed, &place.path),
            "{at}: it must name {changed}"
        );
    }
    let named = finding
        .evidence
        .iter()
        .any(|one| one.value == place.value && one.path.trim_start_matches('/') == place.path);
    assert!(
        named,
        "{at}: no `{}` [{}] in {:#?}",
        place.value, place.path, finding.evidence
    );
    let words: Vec<String> = finding
        .remedies
        .iter()
        .map(|remedy| remedy.change.to_string())
        .collect();
    assert_eq!(words, fires.remedies, "{at}");
    for rule in &fires.also {
        assert!(find(rule).is_some(), "{at}: no rule `{rule}`");
    }
    for remedy in &finding.remedies {
        let change = &remedy.change;
        let now = match &change.setting {
            SettingKey::Trial(_) => shown.sample.as_ref().map(|sample| {
                linerate_model::setting::Value::Text(sample.spec.placement.sender_cpus.to_string())
            }),
            key => current(&shown.host, key).value().cloned(),
        };
        assert_eq!(now.as_ref(), Some(&change.from), "{at}: what the host has");
        assert_ne!(change.from, change.to, "{at}");
    }
}

fn is_undetermined(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Undetermined(_))
}

fn missing(outcome: &Outcome) -> &[Gap] {
    match outcome {
        Outcome::Undetermined(unsure) => &unsure.missing,
        Outcome::Finding(_) => &[],
    }
}

fn check(case: &Case) {
    let at = format!("{}, {}", case.rule, case.what);
    let expect = case.expect();
    let shown = Shown::of(case, true);
    let before = Shown::of(case, false);
    let mut said = shown.judged(&case.rule);
    if matches!(expect, Expect::Fires(_)) {
        // What could not be judged besides (counters that nobody watched) takes nothing from the finding.
        said.retain(|outcome| matches!(outcome, Outcome::Finding(_)));
    }
    match (&expect, said.as_slice()) {
        (Expect::Silent, []) => {}
        (Expect::Fires(_), [Outcome::Finding(finding)]) => {
            check_finding(&at, &shown, case, finding);
        }
        (Expect::Skipped(path), said) if said.iter().all(is_undetermined) => {
            let missing: Vec<&Gap> = said.iter().flat_map(missing).collect();
            let named = missing.iter().any(|gap| same_place(&gap.path, path));
            assert!(named, "{at}: {path} is not among {missing:#?}");
            assert!(missing.iter().all(|gap| !gap.reason.is_empty()), "{at}");
        }
        (_, said) => panic!("{at}: it says {said:#?}"),
    }
    // The one fact made the difference: of the host always, of the verdict unless the case is silent.
    assert_ne!(shown.host, before.host, "{at}: the edit changes nothing");
    if !matches!(expect, Expect::Silent) {
        assert_ne!(said, before.judged(&case.rule), "{at}");
    }
}

#[test]
fn each_rule_answers_each_of_its_cases_on_a_captured_host() {
    for case in &all() {
        check(case);
    }
}

/// `CASES` of each rule's file in `crates/model` ensures that it has all three kinds of case.
#[test]
fn every_case_is_of_a_rule_that_exists_and_many_rules_fire_on_a_captured_host() {
    let cases = all();
    let known: BTreeSet<&str> = RULES.iter().map(|rule| rule.id).collect();
    let strangers: Vec<&str> = cases
        .iter()
        .map(|case| case.rule.as_str())
        .filter(|rule| !known.contains(rule))
        .collect();
    assert_eq!(strangers, [""; 0], "cases of rules that are not there");
    let fire: BTreeSet<&str> = cases
        .iter()
        .filter(|case| case.expect().word() == "firing")
        .map(|case| case.rule.as_str())
        .collect();
    assert!(fire.len() >= 25, "only {} rules fire: {fire:?}", fire.len());
}

#[test]
fn a_healthy_host_has_no_warning_in_any_profile() {
    for name in HEALTHY {
        let host = host(archive(name));
        for profile in PROFILES {
            let context = Context {
                end: End::Local,
                host: &host,
                nic: None,
                other: None,
                sample: None,
                watch: None,
                profile,
                owns_shapers: false,
            };
            let said = diagnose(&context);
            let loud: Vec<&Finding> = said
                .findings
                .iter()
                .filter(|finding| finding.severity > Severity::Note)
                .collect();
            assert!(loud.is_empty(), "{name}, {profile:?}: {loud:#?}");
        }
    }
}

#[test]
fn a_finding_speaks_of_the_interface_that_was_asked_for_only() {
    let host = host(archive("two-socket-remote-irqs-narrow-pcie"));
    let judged = |name: &str| {
        let nic = name.parse().expect("a name");
        let context = Context {
            end: End::Local,
            host: &host,
            nic: Some(&nic),
            other: None,
            sample: None,
            watch: None,
            profile: Profile::Throughput,
            owns_shapers: false,
        };
        diagnose(&context)
    };
    let subjects: BTreeSet<String> = judged("eth2")
        .findings
        .into_iter()
        .map(|finding| finding.subject)
        .collect();
    assert_eq!(subjects, BTreeSet::from(["nic/eth2".to_owned()]));
    assert_eq!(judged("lo").findings, []);
}

#[test]
fn the_ends_of_a_captured_veth_pair_are_known_to_share_a_kernel() {
    let (near, far) = (
        host(archive("veth-pair-near")),
        host(archive("veth-pair-far")),
    );
    assert!(matches!(near.identity.boot_id, Known::Value(_)));
    assert_eq!(near.identity.boot_id, far.identity.boot_id);
    let subnet = |host: &Host, name: &str| {
        let nic = host.nic(&name.parse().expect("a name")).expect("its end");
        let addresses = nic.addresses.value().expect("addresses").clone();
        let (net, _) = addresses[0].rsplit_once('.').expect("an IPv4 address");
        net.to_owned()
    };
    assert_eq!(subnet(&near, "near0"), subnet(&far, "far0"));
}
