//! The table of all rules, `docs/rules/README.md`, against the rules themselves.

use std::collections::BTreeSet;
use std::fs;

use linerate_model::finding::{Outcome, Profile, Rule, Scene};
use linerate_model::plan::End;
use linerate_model::rules::{CATALOGUE, RULES, Status, find, judge};

use super::archives::{HEALTHY, archive, host, repository};
use super::rules::PROFILES;

/// One row of the table, its cells as they are written.
struct Row {
    cells: Vec<String>,
}

impl Row {
    fn cell(&self, column: usize) -> &str {
        self.cells.get(column).map_or("", String::as_str)
    }

    fn number(&self) -> &str {
        self.cell(0)
    }

    /// `[id](id.md)` of the second cell.
    fn id(&self) -> &str {
        self.cell(1)
            .strip_prefix('[')
            .and_then(|rest| rest.split_once(']'))
            .map_or("", |(id, _)| id)
    }

    fn judges_by(&self) -> Vec<&str> {
        self.cell(4).split(", ").collect()
    }
}

fn rows() -> Vec<Row> {
    let page = fs::read_to_string(repository("docs/rules/README.md")).expect("the page");
    page.lines()
        .filter(|line| line.contains("](") && line.starts_with("| "))
        .map(|line| {
            // A bar within a cell is written `\|`.
            let hidden = line.replace("\\|", "\u{0}");
            let cells = hidden
                .trim_matches('|')
                .split('|')
                .map(|cell| cell.trim().replace('\u{0}', "|"))
                .collect();
            Row { cells }
        })
        .filter(|row| row.cells.len() == 8)
        .collect()
}

fn row<'a>(rows: &'a [Row], rule: &Rule) -> &'a Row {
    rows.iter()
        .find(|row| row.id() == rule.id)
        .unwrap_or_else(|| panic!("docs/rules/README.md has no row of {}", rule.id))
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

#[test]
fn every_rule_has_one_row_in_the_order_of_their_numbers() {
    let written: Vec<String> = rows().iter().map(|row| row.id().to_owned()).collect();
    let catalogue = CATALOGUE.iter().map(|entry| entry.id);
    let own = RULES.iter().filter(|rule| rule.number > 80);
    let all: Vec<&str> = catalogue.chain(own.map(|rule| rule.id)).collect();
    assert_eq!(written, all);
}

#[test]
fn a_row_says_what_the_code_says() {
    let rows = rows();
    for rule in RULES {
        let row = row(&rows, rule);
        let entry = CATALOGUE.iter().find(|entry| entry.id == rule.id);
        let number = entry.map_or("+".to_owned(), |entry| entry.number.to_string());
        assert_eq!(row.number(), number, "{}", rule.id);
        let status = match entry.map_or(Status::Implemented, |entry| entry.status) {
            Status::Implemented => "implemented".to_owned(),
            Status::AdviceOnly => "advice only".to_owned(),
            Status::InPart(missing) => format!("in part: {missing}"),
        };
        let expected = [
            format!("[{0}]({0}.md)", rule.id),
            rule.severity.to_string(),
            profiles(rule),
        ];
        assert_eq!(row.cells[1..4], expected, "{}", rule.id);
        assert_eq!(row.cell(5), status, "{}", rule.id);
        assert_eq!(row.cell(7), rule.persist, "{}", rule.id);
    }
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
    let linked: BTreeSet<String> = rows().iter().map(|row| row.id().to_owned()).collect();
    assert_eq!(pages, linked);
}

#[test]
fn a_change_that_a_rule_proposes_is_of_the_class_in_its_row() {
    let rows = rows();
    for case in super::cases::all() {
        let edited = host(case.edit.applied(archive(case.fixture)));
        let other = case.other.map(|name| host(archive(name)));
        let sample = case.sample.map(|make| make());
        let scene = Scene {
            end: End::Local,
            host: &edited,
            nic: None,
            other: other.as_ref(),
            sample: sample.as_ref(),
            watch: None,
            profile: Profile::Throughput,
            owns_shapers: true,
        };
        let rule = find(case.rule).expect("a rule of the list");
        for outcome in judge(rule, &scene) {
            let Outcome::Finding(finding) = outcome else {
                continue;
            };
            for remedy in finding.remedies {
                let written = row(&rows, rule).cell(6);
                assert!(
                    written
                        .split(", ")
                        .any(|class| class == remedy.class.to_string()),
                    "{}: {} is {}, the row says `{written}`",
                    rule.id,
                    remedy.change,
                    remedy.class
                );
            }
        }
    }
}

#[test]
fn a_rule_that_cannot_judge_for_want_of_counters_is_said_to_judge_by_them() {
    let rows = rows();
    for name in HEALTHY {
        let healthy = host(archive(name));
        for (rule, profile) in RULES
            .iter()
            .flat_map(|rule| PROFILES.map(|profile| (rule, profile)))
        {
            let scene = Scene {
                end: End::Local,
                host: &healthy,
                nic: None,
                other: None,
                sample: None,
                watch: None,
                profile,
                owns_shapers: false,
            };
            let unwatched = judge(rule, &scene).iter().any(|outcome| {
                matches!(outcome, Outcome::Undetermined(unsure)
                    if unsure.missing.iter().any(|gap| gap.path == "counters"))
            });
            let said = row(&rows, rule).judges_by();
            assert!(!unwatched || said.contains(&"C"), "{}: {said:?}", rule.id);
            assert!(said.iter().all(|class| ["S", "C", "M"].contains(class)));
        }
    }
}
