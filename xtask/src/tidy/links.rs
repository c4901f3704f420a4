//! Links between documents: every relative link leads to a file or folder of the tree, and its `#part` to a heading
//! (as GitHub and mdBook name them). Every page of the book is in its table of contents.

use std::collections::BTreeSet;

use super::{Problem, TreeFile};

const SUMMARY: &str = "docs/book/SUMMARY.md";
const README_WORDS: usize = 900;

/// Every relative link leads somewhere.
pub(super) fn every_link_leads_to_a_file(files: &[TreeFile]) -> Vec<Problem> {
    let mut places: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    for file in files {
        places.extend(file.path.match_indices('/').map(|(at, _)| &file.path[..at]));
    }
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| file.is(&["md"])) {
        for (line, link) in links(&file.text) {
            let (path, part) = link.split_once('#').unwrap_or((link, ""));
            if path.contains(':') || link.contains('…') {
                continue; // another site, or a sketch
            }
            let target = match path {
                "" => Some(file.path.clone()),
                path => resolved(&file.path, path),
            };
            let is_there = target
                .as_deref()
                .is_some_and(|to| to.is_empty() || places.contains(to));
            if !is_there {
                let what = format!("links to {path}, which is not there");
                problems.push(Problem::new(file, Some(line), what));
                continue;
            }
            let page = files
                .iter()
                .find(|page| Some(&page.path) == target.as_ref());
            let has_part = |page: &TreeFile| headings(&page.text).contains(part);
            if !part.is_empty() && page.is_some_and(|page| page.is(&["md"]) && !has_part(page)) {
                let what = format!("links to #{part}, which is no heading of {path}");
                problems.push(Problem::new(file, Some(line), what));
            }
        }
    }
    problems
}

/// Every page below docs/book is in its table of contents.
pub(super) fn every_page_of_the_book_is_listed(files: &[TreeFile]) -> Vec<Problem> {
    let Some(summary) = files.iter().find(|file| file.path == SUMMARY) else {
        return Vec::new();
    };
    let listed: Vec<Option<String>> = links(&summary.text)
        .into_iter()
        .map(|(_, link)| resolved(SUMMARY, link))
        .collect();
    let pages = files.iter().filter(|file| {
        file.is(&["md"]) && file.path.starts_with("docs/book/") && file.path != SUMMARY
    });
    pages
        .filter(|page| !listed.contains(&Some(page.path.clone())))
        .map(|page| Problem::new(page, None, format!("is not in {SUMMARY}")))
        .collect()
}

/// The README is short enough to be read.
pub(super) fn the_readme_is_short(files: &[TreeFile]) -> Vec<Problem> {
    let words = |file: &TreeFile| file.text.split_whitespace().count();
    let readme = files.iter().find(|file| file.path == "README.md");
    let long = readme.filter(|file| words(file) > README_WORDS);
    long.map(|file| {
        Problem::new(
            file,
            None,
            format!("has {} words, more than {README_WORDS}", words(file)),
        )
    })
    .into_iter()
    .collect()
}

/// The path of a link from a file; none if it leads out of the tree.
fn resolved(from: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.trim_end_matches('/').split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The lines of a document that are text: not those of a code block.
fn text_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence).then_some((index + 1, line))
    })
}

/// The targets of `[text](target)`, with their lines.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (number, line) in text_lines(text) {
        let mut rest = line;
        while let Some((before, after)) = rest.split_once("](") {
            let is_code = before.matches('`').count() % 2 == 1;
            let Some((target, later)) = after.split_once(')') else {
                break;
            };
            if !is_code && !target.contains(' ') {
                found.push((number, target));
            }
            rest = later;
        }
    }
    found
}

/// The names of a document's headings: lower case, spaces as hyphens, without punctuation.
fn headings(text: &str) -> BTreeSet<String> {
    let headings = text_lines(text).filter_map(|(_, line)| {
        let title = line.trim_start_matches('#');
        (title.len() < line.len()).then(|| title.trim().to_lowercase())
    });
    headings
        .map(|title| {
            let kept = title
                .chars()
                .filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
            kept.map(|c| if c == ' ' { '-' } else { c }).collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn a_link_to_a_file_or_heading_that_is_not_there_is_a_problem() {
        let page = file(
            "docs/a.md",
            "# One: two\n[x](b/c.md) [y](b) [z](#one-two) [w](https://example.org/no)\n`[q](no)`\n```\n[r](no)\n```\n",
        );
        let other = file("docs/b/c.md", "[up](../a.md#one-two)\n");
        assert!(every_link_leads_to_a_file(&[page, other]).is_empty());
        for wrong in [
            "[x](gone.md)",
            "[x](../../out.md)",
            "[x](#other)",
            "![p](p.png)",
        ] {
            let page = file("docs/a.md", &format!("# One\n{wrong}\n"));
            let problems = every_link_leads_to_a_file(&[page]);
            assert_eq!(problems.len(), 1, "{wrong}");
            assert_eq!(problems[0].line, Some(2));
        }
    }

    #[test]
    fn a_readme_of_more_than_900_words_is_a_problem() {
        let readme = |words: usize| [file("README.md", &"word ".repeat(words))];
        assert!(the_readme_is_short(&readme(900)).is_empty());
        assert_eq!(the_readme_is_short(&readme(901)).len(), 1);
    }

    #[test]
    fn a_page_that_the_table_of_contents_leaves_out_is_a_problem() {
        let summary = file(SUMMARY, "- [a](a.md)\n- [r](../reference/r.md)\n");
        let files = [
            summary,
            file("docs/book/a.md", ""),
            file("docs/book/b.md", ""),
        ];
        let problems = every_page_of_the_book_is_listed(&files);
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].path, "docs/book/b.md");
    }
}
