//! Rules about files other than code: documents, schemas, lists that must be consistent. Search words are written in
//! two halves, so that a rule does not match itself.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::{Problem, TreeFile};

const TEXT: [&str; 12] = [
    "rs", "md", "toml", "json", "sh", "ts", "css", "html", "yml", "yaml", "mjs", "js",
];
const EXIT: &str = "crates/model/src/exit.rs";
const EXIT_PAGE: &str = "docs/reference/exit-codes.md";
const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";

pub(super) fn no_control_characters(files: &[TreeFile]) -> Vec<Problem> {
    let written = files
        .iter()
        .filter(|file| file.is(&TEXT) && !file.is_generated());
    written
        .flat_map(|file| {
            file.lines().filter_map(move |(number, line)| {
                let found = line.chars().find(|c| is_hidden(*c) && *c != '\t')?;
                let what = format!("U+{:04X}: a character that nobody sees", u32::from(found));
                Some(Problem::new(file, Some(number), what))
            })
        })
        .collect()
}

/// Control characters, and those that reorder or hide text (Unicode TR 36; "Trojan Source").
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

pub(super) fn what_is_left_to_do_has_an_issue(files: &[TreeFile]) -> Vec<Problem> {
    let words = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("X", "XX"),
    ];
    let written = files
        .iter()
        .filter(|file| file.is(&TEXT) && !file.is_generated());
    written
        .flat_map(|file| {
            file.lines().filter_map(move |(number, line)| {
                let word = words.iter().find(|word| left_without_issue(line, word))?;
                let what = format!("{word} without its issue: write `{word}(#12)`");
                Some(Problem::new(file, Some(number), what))
            })
        })
        .collect()
}

fn left_without_issue(line: &str, word: &str) -> bool {
    let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        let alone = !is_letter(before.chars().next_back()) && !is_letter(after.chars().next());
        let issue = after
            .strip_prefix("(#")
            .and_then(|rest| rest.split_once(')'));
        alone && issue.is_none_or(|(number, _)| number.parse::<u32>().is_err())
    })
}

pub(super) fn no_machine_or_registry_of_ours(files: &[TreeFile]) -> Vec<Problem> {
    let folders = [concat!("/wo", "rk/"), concat!("/ro", "ot/")];
    let mut problems = Vec::new();
    for file in files {
        for (number, line) in file.lines() {
            let trimmed = line.trim();
            let what = if folders.iter().any(|folder| names_folder(line, folder)) {
                "names a folder of the machine it was written on"
            } else if file.name() == "Cargo.lock"
                && trimmed.starts_with("source = ")
                && !trimmed.contains("github.com/rust-lang/crates.io-index")
            {
                "a package from elsewhere than the crates index"
            } else if file.name() == "package-lock.json" && trimmed.starts_with("\"resolved\"") {
                "names where a package was fetched from"
            } else if (file.name() == ".npmrc" && trimmed.contains("registry="))
                || trimmed.starts_with("[source.")
            {
                "where packages come from is each machine's own business"
            } else {
                continue;
            };
            problems.push(Problem::new(file, Some(number), what));
        }
    }
    problems
}

fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-~/}*".contains(c))
    })
}

pub(super) fn every_rule_has_a_page(files: &[TreeFile]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut ids = BTreeSet::new();
    for file in files
        .iter()
        .filter(|file| file.path.starts_with("crates/model/src/rules"))
    {
        for (number, line) in file.lines() {
            let Some(rest) = line.trim().strip_prefix("id: \"") else {
                continue;
            };
            let id = rest.split('"').next().unwrap_or_default();
            let page = format!("docs/rules/{id}.md");
            if !files.iter().any(|file| file.path == page) {
                let what = format!("the rule `{id}` has no page {page}");
                problems.push(Problem::new(file, Some(number), what));
            }
            ids.insert(id.to_owned());
        }
    }
    for file in files {
        let Some(name) = file.path.strip_prefix("docs/rules/") else {
            continue;
        };
        let id = name.strip_suffix(".md").unwrap_or_default();
        if id != "README" && !ids.contains(id) {
            problems.push(Problem::new(
                file,
                None,
                "the page of a rule that is not there",
            ));
        }
    }
    problems
}

pub(super) fn every_exit_code_is_documented(files: &[TreeFile]) -> Vec<Problem> {
    let find = |path: &str| files.iter().find(|file| file.path == path);
    let Some(code) = find(EXIT) else {
        return Vec::new();
    };
    let Some(page) = find(EXIT_PAGE) else {
        let what = format!("exit codes are documented in {EXIT_PAGE}, which is not there");
        return vec![Problem::new(code, None, what)];
    };
    let (own, documented) = (codes_in_source(code), codes_in_table(page));
    let missing = own.difference(&documented).map(|number| {
        Problem::new(
            code,
            None,
            format!("exit code {number} is not in {EXIT_PAGE}"),
        )
    });
    let gone = documented
        .difference(&own)
        .map(|number| Problem::new(page, None, format!("exit code {number} is not in {EXIT}")));
    missing.chain(gone).collect()
}

/// `= 20,`, `= 20;` and `=> 20,` before the tests of the file.
fn codes_in_source(file: &TreeFile) -> BTreeSet<u8> {
    let text = file.text.split("#[cfg(test)]").next().unwrap_or_default();
    text.lines()
        .filter(|line| !line.trim().starts_with("//"))
        .filter_map(|line| line.rsplit_once(['=', '>']))
        .filter_map(|(_, value)| value.trim().trim_end_matches([',', ';']).parse().ok())
        .collect()
}

/// The first column of the table, `| 20 | ...`.
fn codes_in_table(file: &TreeFile) -> BTreeSet<u8> {
    file.text
        .lines()
        .filter_map(|line| {
            line.strip_prefix('|')?
                .split('|')
                .next()?
                .trim()
                .parse()
                .ok()
        })
        .collect()
}

pub(super) fn the_change_log_is_open(files: &[TreeFile]) -> Vec<Problem> {
    let log = files.iter().find(|file| file.path == "CHANGELOG.md");
    match log {
        Some(log) if !log.text.contains("## [Unreleased]") => {
            vec![Problem::new(log, None, "has no heading `## [Unreleased]`")]
        }
        _ => Vec::new(),
    }
}

pub(super) fn every_schema_names_itself(files: &[TreeFile]) -> Vec<Problem> {
    let schemas = files
        .iter()
        .filter(|file| file.path.starts_with("schema/") && file.is(&["json"]));
    schemas
        .filter_map(|file| {
            let schema: Value = match serde_json::from_str(&file.text) {
                Ok(schema) => schema,
                Err(error) => {
                    return Some(Problem::new(file, Some(error.line()), error.to_string()));
                }
            };
            let what = wrong_with_schema(file.name(), &schema)?;
            Some(Problem::new(file, None, what))
        })
        .collect()
}

/// `map-1.json` describes what calls itself `linerate.map/1`.
fn wrong_with_schema(name: &str, schema: &Value) -> Option<String> {
    let Some((noun, version)) = name
        .strip_suffix(".json")
        .and_then(|stem| stem.rsplit_once('-'))
    else {
        return Some("a schema's file is called NOUN-VERSION.json".to_owned());
    };
    let expect = |found: &Value, key: &str, expected: &str| {
        (found != expected).then(|| format!("`{key}` is {found}, expected \"{expected}\""))
    };
    let id = format!("urn:linerate:schema:{noun}:{version}");
    let called = format!("linerate.{noun}/{version}");
    expect(&schema["$schema"], "$schema", DRAFT)
        .or_else(|| expect(&schema["$id"], "$id", &id))
        .or_else(|| {
            expect(
                &schema["properties"]["schema"]["const"],
                "properties.schema.const",
                &called,
            )
        })
}

pub(super) fn every_decision_is_listed(files: &[TreeFile]) -> Vec<Problem> {
    let list = files
        .iter()
        .find(|file| file.path == "docs/ARCHITECTURE.md");
    let list = list.map_or("", |file| file.text.as_str());
    files
        .iter()
        .filter(|file| file.path.starts_with("docs/decisions/") && !list.contains(file.name()))
        .map(|file| Problem::new(file, None, "is not listed in docs/ARCHITECTURE.md"))
        .collect()
}

/// A claim needs its test: SECURITY.md must not refer to a test that no longer exists.
pub(super) fn every_test_that_security_names_exists(files: &[TreeFile]) -> Vec<Problem> {
    let is_security = |file: &&TreeFile| file.path == "SECURITY.md";
    let Some(security) = files.iter().find(is_security) else {
        return Vec::new();
    };
    let is_test = |name: &&str| {
        name.matches('_').count() > 2 && name.chars().all(|c| c.is_ascii_lowercase() || c == '_')
    };
    let exists = |name: &str| {
        let written = format!("fn {name}(");
        let is_rust = |file: &&TreeFile| Path::new(&file.path).extension() == Some("rs".as_ref());
        let mut sources = files.iter().filter(is_rust);
        sources.any(|file| file.text.contains(&written))
    };
    let mut problems = Vec::new();
    for (number, line) in (1..).zip(security.text.lines()) {
        let names = line.split('`').skip(1).step_by(2).filter(is_test);
        for name in names.filter(|name| !exists(name)) {
            let what = format!("names the test `{name}`, which does not exist");
            problems.push(Problem::new(security, Some(number), what));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn hidden_characters_are_found_outside_generated_files() {
        let files = [
            file("a.rs", "let x = 1;\u{202e}\n"),
            file("b.md", "bell\u{7}\n"),
            file("c.rs", "\tfine: \u{e9}\n"),
            file("web/dist/page.js", "\u{1b}\n"),
        ];
        assert_eq!(no_control_characters(&files).len(), 2);
    }

    #[test]
    fn work_that_is_left_needs_an_issue() {
        let todo = concat!("// TO", "DO");
        let files = [
            file("a.rs", &format!("{todo}: later\n")),
            file("b.rs", &format!("{todo}(#12): later\n")),
            file("c.rs", &format!("{todo}S is another word\n")),
        ];
        let problems = what_is_left_to_do_has_an_issue(&files);
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].path, "a.rs");
    }

    #[test]
    fn folders_and_registries_of_one_machine_are_found() {
        let files = [
            file("a.md", concat!("see /wo", "rk/x\n")),
            file("b.md", concat!("https://x.org/net/wo", "rk/x\n")),
            file(
                "Cargo.lock",
                "source = \"registry+https://mirror.example/index\"\n",
            ),
            file(
                "web/package-lock.json",
                "  \"resolved\": \"http://mirror.example/x\",\n",
            ),
            file(".cargo/config.toml", "[source.crates-io]\n"),
        ];
        assert_eq!(no_machine_or_registry_of_ours(&files).len(), 4);
    }

    #[test]
    fn rules_and_their_pages_must_agree() {
        let files = [
            file(
                "crates/model/src/rules/a.rs",
                "    id: \"tso-off\",\n    id: \"no-page\",\n",
            ),
            file("docs/rules/README.md", ""),
            file("docs/rules/gone.md", ""),
            file("docs/rules/tso-off.md", ""),
        ];
        let problems = every_rule_has_a_page(&files);
        assert_eq!(problems.len(), 2, "{problems:?}");
    }

    #[test]
    fn exit_codes_and_their_page_must_agree() {
        let source = "//! x = 99\npub const DONE: u8 = 0;\n    Peer = 20,\n    Self::Bug => 70,\n";
        let page = "| code | meaning |\n|--:|---|\n| 0 | done |\n| 20 | peer |\n| 40 | gone |\n";
        let problems = every_exit_code_is_documented(&[file(EXIT, source), file(EXIT_PAGE, page)]);
        let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].contains("70") && said[1].contains("40"), "{said:?}");
    }

    #[test]
    fn a_schema_must_carry_its_own_name() {
        let right = format!(
            r#"{{"$schema":"{DRAFT}","$id":"urn:linerate:schema:map:1",
                "properties":{{"schema":{{"const":"linerate.map/1"}}}}}}"#
        );
        let files = [
            file("schema/map-1.json", &right),
            file("schema/map-2.json", &right),
            file("schema/broken-1.json", "{"),
        ];
        assert_eq!(every_schema_names_itself(&files).len(), 2);
    }

    #[test]
    fn a_closed_change_log_and_an_unlisted_decision_are_found() {
        assert_eq!(
            the_change_log_is_open(&[file("CHANGELOG.md", "## [1.0.0]\n")]).len(),
            1
        );
        let files = [
            file("docs/ARCHITECTURE.md", "decisions/0001-a.md"),
            file("docs/decisions/0001-a.md", ""),
            file("docs/decisions/0002-b.md", ""),
        ];
        assert_eq!(every_decision_is_listed(&files).len(), 1);
    }

    #[test]
    fn a_test_that_security_names_and_nobody_has_is_found() {
        let files = [
            file(
                "SECURITY.md",
                "| claim | `it_is_held_by_this`, `it_was_held_by_that` (`some/file.rs`), `no_new_privs` |\n",
            ),
            file("a.rs", "#[test]\nfn it_is_held_by_this() {}\n"),
        ];
        let problems = every_test_that_security_names_exists(&files);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].what.contains("it_was_held_by_that"));
    }
}
