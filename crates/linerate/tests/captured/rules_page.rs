//! The table of all rules, `docs/rules/README.md`, against the rules themselves.

use std::collections::BTreeSet;
use std::fs;

use linerate_model::finding::{Basis, Context, Fix, Outcome, Profile, Rule, Status};
use linerate_model::plan::End;
use linerate_model::rules::{RULES, find, judge};

use super::archives::{HEALTHY, archive, host, repository};
use super::cases::Trial;
use super::rules::PROFILES;

/// The ids of the rules that the table has, in its order: `| 1 | [id](id.md) | ...`.
fn listed() -> Vec<String> {
    let page = fs::read_to_string(repository("docs/rules/README.md")).expect("the page");
    page.lines()
        .filter_map(|line| {
            let (_, cell) = line.strip_prefix("| ")?.split_once(" | [")?;
            let (id, rest) = cell.split_once(']')?;
            let is_row = rest.starts_with(&format!("({id}.md) | "));
            is_row.then(|| id.to_owned())
        })
        .collect()
}

fn profiles(rule: &Rule) -> String {
    if PROFILES
        .iter()
        .all(|profile| rule.profiles.contains(profile))
    {
        return "all".to_owned();
    }
    let word = |profile: &Profile| format!("{profile:?}").to_lowercase();
    rule.profiles
        .iter()
        .map(word)
        .collect::<Vec<_>>()
        .join(", ")
}

/// The row of a rule as the page should have it.
fn row_of(rule: &Rule) -> String {
    let number = rule
        .catalogue_number()
        .map_or_else(|| "+".to_owned(), |number| number.to_string());
    let basis: Vec<String> = rule.judges_by.iter().map(Basis::to_string).collect();
    let cells = [
        number,
        format!("[{0}]({0}.md)", rule.id),
        rule.severity.to_string(),
        profiles(rule),
        basis.join(", "),
        rule.status.to_string(),
        rule.fix.to_string(),
        rule.persist.to_owned(),
    ];
    let cells = cells.map(|cell| cell.replace('|', "\\|"));
    format!("| {} |\n", cells.join(" | "))
}

#[test]
fn every_rule_has_one_row_in_the_order_of_their_numbers() {
    let written = listed();
    let all: Vec<&str> = RULES.iter().map(|rule| rule.id).collect();
    assert_eq!(written, all);
}

/// `LINERATE_BLESS=1` writes the table anew.
#[test]
fn a_row_says_what_the_code_says() {
    let place = repository("docs/rules/README.md");
    let page = fs::read_to_string(&place).expect("the page");
    let (head, _) = page.split_once("| 1 | [").expect("the table of rules");
    let made: String = RULES.iter().map(|rule| row_of(rule)).collect();
    let made = format!("{head}{made}");
    if std::env::var_os("LINERATE_BLESS").is_some() {
        fs::write(&place, &made).expect("the page is writable");
        return;
    }
    assert_eq!(
        page, made,
        "docs/rules/README.md is stale; LINERATE_BLESS=1 regenerates it"
    );
}

#[test]
fn every_page_of_a_rule_is_linked_and_there_is_no_other() {
    let folder = repository("docs/rules");
    let pages: BTreeSet<String> = fs::read_dir(folder)
        .expect("the folder of pages")
        .map(|entry| entry.expect("an entry").file_name())
        .filter_map(|name| name.into_string().ok())
        .filter_map(|name| name.strip_suffix(".md").map(str::to_owned))
        .filter(|name| name != "README")
        .collect();
    let linked: BTreeSet<String> = listed().into_iter().collect();
    assert_eq!(pages, linked);
}

#[test]
fn pages_that_count_the_rules_have_their_number() {
    let all = RULES.len();
    let is_in_part = |rule: &&&Rule| matches!(rule.status, Status::InPart(_));
    let in_part = RULES.iter().filter(is_in_part).count();
    for (page, words) in [
        ("README.md", format!("with {all} rules")),
        (
            "README.md",
            format!("{in_part} rules are partially implemented"),
        ),
        ("CHANGELOG.md", format!("with {all} rules")),
        (
            "docs/book/guides/diagnose-a-host.md",
            format!("with [{all} rules]"),
        ),
    ] {
        let text = fs::read_to_string(repository(page)).expect("a page");
        assert!(text.contains(&words), "{page} should say: {words}");
    }
}

#[test]
fn a_change_that_a_rule_proposes_is_of_the_class_in_its_row() {
    for case in super::cases::all() {
        let edited = host(case.edits.applied(archive(&case.host)));
        let other = case.other.as_ref().map(|name| host(archive(name)));
        let sample = case.trial.map(Trial::sample);
        let context = Context {
            end: End::Local,
            host: &edited,
            nic: None,
            other: other.as_ref(),
            sample: sample.as_ref(),
            watch: None,
            profile: Profile::Throughput,
            owns_shapers: true,
        };
        let rule = find(&case.rule).expect("a rule of the list");
        for outcome in judge(rule, &context) {
            let Outcome::Finding(finding) = outcome else {
                continue;
            };
            for remedy in finding.remedies {
                let is_listed = match rule.fix {
                    Fix::Proposed(classes) => classes.contains(&remedy.class),
                    Fix::Advised(_) | Fix::Elsewhere => false,
                };
                assert!(
                    is_listed,
                    "{}: {} is {}, the rule says `{}`",
                    rule.id, remedy.change, remedy.class, rule.fix
                );
            }
        }
    }
}

#[test]
fn a_rule_that_cannot_judge_for_want_of_counters_is_said_to_judge_by_them() {
    for name in HEALTHY {
        let healthy = host(archive(name));
        for (rule, profile) in RULES
            .iter()
            .flat_map(|rule| PROFILES.map(|profile| (rule, profile)))
        {
            let context = Context {
                end: End::Local,
                host: &healthy,
                nic: None,
                other: None,
                sample: None,
                watch: None,
                profile,
                owns_shapers: false,
            };
            let unwatched = judge(rule, &context).iter().any(|outcome| {
                matches!(outcome, Outcome::Undetermined(unsure)
                    if unsure.missing.iter().any(|gap| gap.path == "counters"))
            });
            let said = rule.judges_by;
            assert!(!said.is_empty(), "{}", rule.id);
            assert!(
                !unwatched || said.contains(&Basis::Counters),
                "{}: {said:?}",
                rule.id
            );
        }
    }
}
