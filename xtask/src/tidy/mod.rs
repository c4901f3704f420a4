//! Project rules that the compiler, clippy and cargo-deny do not check. Each rule is a function from the tree's files
//! to problems, so that its own test can pass it a tree that violates it.

mod links;
mod modules;
mod papers;
mod phrases;
mod rules;
mod source;

use std::fmt;
use std::fs;
use std::path::Path;

use crate::tally::Output;

/// One text file of the tree.
#[derive(Debug)]
pub(crate) struct TreeFile {
    /// Its path from the root of the tree.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// A violation of a rule.
#[derive(Debug, PartialEq, Eq)]
struct Problem {
    path: String,
    line: Option<usize>,
    what: String,
}

type Rule = fn(&[TreeFile]) -> Vec<Problem>;

const RULES: [Rule; 23] = [
    source::every_file_says_what_it_is,
    source::no_file_is_too_long,
    source::no_file_stands_beside_its_folder,
    source::only_say_prints,
    source::no_test_is_ignored_or_sleeps,
    source::unsafe_code_lives_in_sys,
    source::host_reads_the_kernel_through_its_root,
    modules::top_level_modules_form_no_cycle,
    papers::no_control_characters,
    papers::what_is_left_to_do_has_an_issue,
    papers::no_machine_or_registry_of_ours,
    papers::every_rule_has_a_page,
    rules::every_rule_has_its_three_kinds_of_case,
    rules::every_page_of_a_rule_is_listed,
    papers::every_exit_code_is_documented,
    papers::the_change_log_is_open,
    papers::every_schema_names_itself,
    papers::every_decision_is_listed,
    papers::every_test_that_security_names_exists,
    phrases::no_listed_phrase,
    links::every_link_leads_to_a_file,
    links::every_page_of_the_book_is_listed,
    links::the_readme_is_short,
];

/// Directories without committed files.
const PASSED_OVER: [&str; 5] = [".git", ".test", "target", "node_modules", "dist-check"];
/// One that does so at the root of the tree.
const RUNS: &str = "runs";
/// What `make dist` makes there.
const DIST: &str = "dist";

/// Every problem and note; a success when the tree is tidy.
pub(crate) fn run(root: &Path) -> Output {
    let files = read_tree(root);
    let problems: Vec<Problem> = RULES.iter().flat_map(|rule| rule(&files)).collect();
    let mut lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    lines.extend(
        source::long_files(&files)
            .into_iter()
            .map(|note| format!("note: {note}")),
    );
    lines.push(format!(
        "{} files, {} problems\n",
        files.len(),
        problems.len()
    ));
    Output {
        stdout: lines.join("\n"),
        success: problems.is_empty(),
        ..Output::default()
    }
}

/// Every file below `root`, by path. Not `git ls-files`: a source archive has no git, and git
/// refuses a checkout that belongs to another user.
pub(crate) fn read_tree(root: &Path) -> Vec<TreeFile> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            let kind = entry.file_type();
            let is_made = [RUNS, DIST].contains(&name.as_str()) && folder == root;
            if is_made || PASSED_OVER.contains(&name.as_str()) {
                continue; // `.git` is a file in a work tree of git
            }
            if kind.as_ref().is_ok_and(fs::FileType::is_dir) {
                folders.push(path);
            } else if kind.is_ok_and(|kind| kind.is_file()) {
                // A picture has no text; links lead to it.
                let text = fs::read_to_string(&path).unwrap_or_default();
                let path = path.strip_prefix(root).unwrap_or(&path);
                let path = path.to_string_lossy().into_owned();
                files.push(TreeFile { path, text });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

impl Problem {
    fn new(file: &TreeFile, line: Option<usize>, what: impl Into<String>) -> Self {
        Self {
            path: file.path.clone(),
            line,
            what: what.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.what),
            None => write!(f, "{}: {}", self.path, self.what),
        }
    }
}

impl TreeFile {
    /// A file of that name, when it is one of these.
    fn is(&self, extensions: &[&str]) -> bool {
        let extension = Path::new(&self.path).extension().unwrap_or_default();
        extensions.iter().any(|wanted| extension == *wanted)
    }

    /// Whether it is generated.
    fn is_generated(&self) -> bool {
        self.path.contains("/dist/")
            || self.path.contains(".min.")
            || self
                .text
                .lines()
                .take(5)
                .any(|line| line.contains("@generated"))
    }

    /// The name without its folders.
    fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// Its lines with their numbers.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line))
    }
}

#[cfg(test)]
fn file(path: &str, text: &str) -> TreeFile {
    TreeFile {
        path: path.to_owned(),
        text: text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_tidy() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = root.parent().expect("xtask lies in the workspace's folder");
        let files = read_tree(root);
        assert!(
            files
                .iter()
                .any(|file| file.path == "crates/model/src/lib.rs")
        );
        let problems: Vec<String> = RULES
            .iter()
            .flat_map(|rule| rule(&files))
            .map(|problem| problem.to_string())
            .collect();
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }
}
