//! Phrases that read like a translation (`phrases.txt`), in what a user or the next developer reads.

use std::str::FromStr;

use proc_macro2::{TokenStream, TokenTree};

use super::modules::{end_of_item, is_test_attribute};
use super::{Problem, TreeFile};

const LIST: &str = include_str!("phrases.txt");

/// String literals, doc comments, --help and documentation use the words of the field.
pub(super) fn no_listed_phrase(files: &[TreeFile]) -> Vec<Problem> {
    let phrases: Vec<(&str, &str)> = LIST
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(" = "))
        .collect();
    let mut problems = Vec::new();
    for file in files {
        for (line, text) in texts(file) {
            let text = text.to_lowercase();
            for (phrase, better) in phrases
                .iter()
                .filter(|(phrase, _)| has_phrase(&text, phrase))
            {
                let what = format!("`{phrase}`: write {better} (xtask/src/tidy/phrases.txt)");
                problems.push(Problem::new(file, Some(line), what));
            }
        }
    }
    problems
}

/// What of a file is read by people, with its lines.
fn texts(file: &TreeFile) -> Vec<(usize, String)> {
    let is_help = file.path.starts_with("crates/linerate/tests/help/");
    let is_source = file.path.contains("/src/") || file.path.starts_with("src/");
    if file.is(&["md"]) || is_help || (is_source && file.is(&["ts"])) {
        return file
            .lines()
            .map(|(number, line)| (number, line.to_owned()))
            .collect();
    }
    let is_test = file.path.contains("/tests/") || file.path.ends_with("tests.rs");
    let mut found = Vec::new();
    if file.is(&["rs"]) && is_source && !is_test {
        // What does not parse is reported by the compiler.
        if let Ok(tokens) = TokenStream::from_str(&file.text) {
            literals(tokens, &mut found);
        }
    }
    found
}

/// Every literal outside of tests; a doc comment is one too.
fn literals(tokens: TokenStream, found: &mut Vec<(usize, String)>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        if is_test_attribute(&tokens[at..]) {
            at = end_of_item(&tokens, at + 2);
            continue;
        }
        match &tokens[at] {
            TokenTree::Group(group) => literals(group.stream(), found),
            TokenTree::Literal(literal) => {
                // A string that goes on behind a line's end has its next words behind a backslash.
                let text = literal.to_string();
                let text: Vec<&str> = text.split("\\\n").map(str::trim_start).collect();
                found.push((literal.span().start().line, text.concat()));
            }
            _ => {}
        }
        at += 1;
    }
}

/// Whether `text` (lower case) has the phrase as whole words, and not as a JSON key or a part of a name.
fn has_phrase(text: &str, phrase: &str) -> bool {
    let is_part = |byte: Option<&u8>| {
        byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'\''))
    };
    text.match_indices(phrase).any(|(at, _)| {
        let (before, after) = (
            &text.as_bytes()[..at],
            &text.as_bytes()[at + phrase.len()..],
        );
        !is_part(before.last()) && !is_part(after.first())
    })
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn a_listed_phrase_is_found_in_strings_doc_comments_help_and_pages() {
        let source = "/// It is Taken back.\n// taken back: no doc comment\nconst A: &str = \"is \\\n   mended\";\n\
                      #[cfg(test)]\nmod tests { const B: &str = \"mended\"; }\n";
        let files = [
            file("crates/made/src/lib.rs", source),
            file("crates/made/src/tests.rs", "const A: &str = \"mended\";"),
            file("crates/linerate/tests/help/map.txt", "one\nthe way in\n"),
            file("docs/page.md", "`mend`\nrecommended, mend-it, mend_it\n"),
        ];
        let problems = no_listed_phrase(&files);
        let found: Vec<(&str, Option<usize>)> = problems
            .iter()
            .map(|problem| (problem.path.as_str(), problem.line))
            .collect();
        let expected = [
            ("crates/made/src/lib.rs", Some(1)),
            ("crates/made/src/lib.rs", Some(3)),
            ("crates/linerate/tests/help/map.txt", Some(2)),
            ("docs/page.md", Some(1)),
        ];
        assert_eq!(found, expected, "{problems:#?}");
    }

    #[test]
    fn every_line_of_the_list_has_a_phrase_and_better_words() {
        for line in LIST.lines().filter(|line| !line.starts_with('#')) {
            let (phrase, better) = line.split_once(" = ").expect(line);
            assert_eq!(phrase, phrase.to_lowercase());
            assert!(!better.is_empty() && !has_phrase(better, phrase), "{line}");
        }
    }
}
