//! Rules about the rules of `crates/model`: what each of their files must contain, and where its page is listed.

use std::collections::BTreeSet;

use super::{Problem, TreeFile};

const FOLDER: &str = "crates/model/src/rules/";
const PAGES: &str = "docs/rules/README.md";

/// The files that declare a rule.
fn declaring(files: &[TreeFile]) -> impl Iterator<Item = &TreeFile> {
    files.iter().filter(|file| {
        file.path.starts_with(FOLDER) && file.text.contains(concat!("const RU", "LE: Rule"))
    })
}

/// The compiler requires the cases, and a test of the model runs them; this checks without a build that none of the
/// three lists is empty.
pub(super) fn every_rule_has_its_three_kinds_of_case(files: &[TreeFile]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in declaring(files) {
        // A rule's tests may stand in a file of their own.
        let apart = file.path.replace("/mod.rs", "/tests.rs");
        let mut places = files
            .iter()
            .filter(|own| own.path == file.path || own.path == apart);
        let split = |own: &TreeFile| {
            let (_, cases) = own.text.split_once(concat!("const CA", "SES: Cases"))?;
            Some(cases.to_owned())
        };
        let Some(cases) = places.find_map(split) else {
            problems.push(Problem::new(file, None, "a rule without its `CASES`"));
            continue;
        };
        for kind in ["fires", "silent", "undetermined"] {
            let list = cases.split_once(&format!("{kind}: &["));
            if list.is_none_or(|(_, list)| list.trim_start().starts_with(']')) {
                let what = format!("its `CASES` show no world where it {}", verb(kind));
                problems.push(Problem::new(file, None, what));
            }
        }
    }
    problems
}

fn verb(kind: &str) -> String {
    if kind == "fires" {
        kind.to_owned()
    } else {
        format!("is {kind}")
    }
}

pub(super) fn every_page_of_a_rule_is_listed(files: &[TreeFile]) -> Vec<Problem> {
    let listed: BTreeSet<&str> = files
        .iter()
        .filter(|file| file.path == PAGES)
        .flat_map(|file| file.text.split(['(', ')', ' ', '`', '|']))
        .filter_map(|word| word.strip_suffix(".md"))
        .collect();
    let ids = declaring(files).filter_map(|file| {
        let (_, rest) = file.text.split_once("id: \"")?;
        Some((file, rest.split('"').next()?))
    });
    ids.filter(|(_, id)| !listed.contains(id))
        .map(|(file, id)| Problem::new(file, None, format!("the rule `{id}` is not in {PAGES}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    const WHOLE: &str = "pub(super) const RULE: Rule = Rule { id: \"eee-on\" };\n\
        pub(crate) const CASES: Cases = Cases { fires: &[(\"a\", a)], silent: &[\n(\"b\", b)],\n\
        undetermined: &[(\"c\", c)] };";

    fn rule(text: &str) -> Vec<Problem> {
        every_rule_has_its_three_kinds_of_case(&[file("crates/model/src/rules/eee_on.rs", text)])
    }

    #[test]
    fn a_rule_that_lacks_a_kind_of_case_is_named() {
        assert_eq!(rule(WHOLE), []);
        let without = WHOLE.replace("(\"c\", c)", "");
        let said = rule(&without).pop().expect("a problem").to_string();
        assert!(said.contains("is undetermined"), "{said}");
        let none = WHOLE.replace("const CASES", "const OTHERS");
        assert_eq!(rule(&none).len(), 1);
        assert_eq!(rule("//! What rules share.\n"), []);
    }

    #[test]
    fn a_page_that_the_list_does_not_name_is_named() {
        let listed = |list: &str| {
            every_page_of_a_rule_is_listed(&[
                file("crates/model/src/rules/eee_on.rs", WHOLE),
                file("docs/rules/README.md", list),
            ])
        };
        assert_eq!(listed("| 42 | [`eee-on`](eee-on.md) | note |"), []);
        assert_eq!(listed("| 42 | eee-on | note |").len(), 1);
    }
}
