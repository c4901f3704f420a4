//! Rules about Rust source. They check lines, not syntax: a rule that needs more belongs in clippy. A comment `//
//! tidy: REASON` exempts the line of code below it. Search words are written in two halves, so that a rule does not
//! match itself.

use super::{Problem, TreeFile};

/// Above the first size a file is listed, above the second it is rejected (`docs/ARCHITECTURE.md`, sizes).
const LINES_NOTED: usize = 700;
const LINES_MAX: usize = 1_000;

/// The only file of the product that talks to a terminal.
const SAY: &str = "crates/runtime/src/console/say.rs";

pub(super) fn every_file_says_what_it_is(files: &[TreeFile]) -> Vec<Problem> {
    rust(files)
        .filter(|file| !file.is_generated() && !file.text.starts_with("//!"))
        .map(|file| Problem::new(file, Some(1), "does not begin with `//!`: say what it is"))
        .collect()
}

pub(super) fn no_file_is_too_long(files: &[TreeFile]) -> Vec<Problem> {
    lengths(files)
        .filter(|(_, lines)| *lines > LINES_MAX)
        .map(|(file, lines)| {
            let what = format!("{lines} lines: {LINES_MAX} is the most; split it by noun");
            Problem::new(file, None, what)
        })
        .collect()
}

/// A module is a file, or a folder with its contents page in `mod.rs`.
pub(super) fn no_file_stands_beside_its_folder(files: &[TreeFile]) -> Vec<Problem> {
    let is_in = |folder: &str| {
        let prefix = format!("{folder}/");
        rust(files).any(|file| file.path.starts_with(&prefix))
    };
    let sources = rust(files).filter(|file| file.path.contains("/src/"));
    sources
        .filter(|file| file.path.strip_suffix(".rs").is_some_and(is_in))
        .map(|file| {
            let folder = file.path.trim_end_matches(".rs");
            Problem::new(file, None, format!("move it to {folder}/mod.rs"))
        })
        .collect()
}

/// Files that are longer than they should be, but still allowed.
pub(super) fn long_files(files: &[TreeFile]) -> Vec<String> {
    lengths(files)
        .filter(|(_, lines)| (LINES_NOTED + 1..=LINES_MAX).contains(lines))
        .map(|(file, lines)| format!("{}: {lines} lines, {LINES_NOTED} is enough", file.path))
        .collect()
}

fn lengths(files: &[TreeFile]) -> impl Iterator<Item = (&TreeFile, usize)> {
    rust(files)
        .filter(|file| !file.is_generated())
        .map(|file| (file, file.text.lines().count()))
}

pub(super) fn only_say_prints(files: &[TreeFile]) -> Vec<Problem> {
    let macros = ["println!", "print!", "eprintln!", "eprint!", "dbg!"];
    let product = rust(files).filter(|file| {
        file.path.starts_with("crates/") && file.path.contains("/src/") && file.path != SAY
    });
    product
        .flat_map(|file| {
            code(file)
                .filter(|line| !line.is_test && macros.iter().any(|name| has_word(line.text, name)))
                .map(|line| Problem::new(file, Some(line.number), format!("only {SAY} prints")))
        })
        .collect()
}

pub(super) fn no_test_is_ignored_or_sleeps(files: &[TreeFile]) -> Vec<Problem> {
    let ignore = concat!("#[", "ignore");
    let sleep = concat!("thread::", "sleep");
    rust(files)
        .flat_map(|file| {
            code(file).filter_map(move |line| {
                let what = if line.text.contains(ignore) {
                    "a test that is not run is no test: let it skip with its reason"
                } else if line.is_test && line.text.contains(sleep) {
                    "a test waits for an event, not for time"
                } else {
                    return None;
                };
                Some(Problem::new(file, Some(line.number), what))
            })
        })
        .collect()
}

pub(super) fn unsafe_code_lives_in_sys(files: &[TreeFile]) -> Vec<Problem> {
    let starts = ["{", "fn", "impl", "extern", "trait"].map(|next| format!("{} {next}", "unsafe"));
    let others = rust(files).filter(|file| file.name() != "sys.rs" && !file.path.contains("/sys/"));
    others
        .flat_map(|file| {
            let starts = &starts;
            code(file)
                .filter(move |line| {
                    !line.in_sys && starts.iter().any(|start| has_word(line.text, start))
                })
                .map(|line| {
                    let what = "unsafe code lives in `sys.rs` or a `sys/` folder";
                    Problem::new(file, Some(line.number), what)
                })
        })
        .collect()
}

pub(super) fn host_reads_the_kernel_through_its_root(files: &[TreeFile]) -> Vec<Problem> {
    let opens = [
        "File::open(",
        "File::create(",
        "read_to_string(",
        "fs::read(",
        "fs::write(",
    ];
    let kernel = ["\"/proc", "\"/sys"];
    let host = rust(files).filter(|file| {
        file.path.starts_with("crates/host/src/")
            && !file.path.starts_with("crates/host/src/root/")
            && !file.path.starts_with("crates/host/src/apply/") // works on the live machine only
    });
    host.flat_map(|file| {
        code(file)
            .filter(|line| {
                !line.is_test
                    && opens.iter().any(|open| line.text.contains(open))
                    && kernel.iter().any(|path| line.text.contains(path))
            })
            .map(|line| {
                let what = "read through `HostRoot`, so that a captured host is read alike";
                Problem::new(file, Some(line.number), what)
            })
    })
    .collect()
}

fn rust(files: &[TreeFile]) -> impl Iterator<Item = &TreeFile> {
    files.iter().filter(|file| file.is(&["rs"]))
}

/// A line of code: comments are passed over, and what a `// tidy:` comment excepts.
struct Line<'a> {
    number: usize,
    text: &'a str,
    is_test: bool,
    /// Whether the line is in a module `sys` of its file.
    in_sys: bool,
}

fn code(file: &TreeFile) -> impl Iterator<Item = Line<'_>> {
    let mut is_test = file.path.contains("/tests/") || file.name().ends_with("tests.rs");
    let mut in_sys = false;
    let mut after_attribute = false;
    let mut excepted = false;
    file.lines().filter_map(move |(number, text)| {
        let trimmed = text.trim();
        if trimmed.starts_with("//") {
            excepted |= trimmed.starts_with("// tidy: ");
            return None;
        }
        // Test modules stand at the end of their file.
        is_test |= after_attribute && trimmed.starts_with("mod ");
        after_attribute = trimmed == "#[cfg(test)]" || after_attribute && trimmed.starts_with("#[");
        in_sys = match text {
            "mod sys {" => true,
            "}" => false,
            _ => in_sys,
        };
        let line = Line {
            number,
            text,
            is_test,
            in_sys,
        };
        (!std::mem::take(&mut excepted)).then_some(line)
    })
}

/// Whether `word` occurs in `text` on its own, not as the end of a longer word.
fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '"' || c == '`')
    })
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn a_file_without_a_head_is_found() {
        let files = [file("a.rs", "//! Says.\n"), file("b.rs", "fn main() {}\n")];
        let problems = every_file_says_what_it_is(&files);
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].path, "b.rs");
    }

    #[test]
    fn a_long_file_is_noted_and_a_longer_one_refused() {
        let long = file("a.rs", &"\n".repeat(LINES_NOTED + 1));
        let longer = file("b.rs", &"\n".repeat(LINES_MAX + 1));
        let table = file("c.rs", &format!("// @generated\n{}", longer.text));
        let files = [long, longer, table];
        assert_eq!(long_files(&files).len(), 1);
        assert_eq!(no_file_is_too_long(&files).len(), 1);
    }

    #[test]
    fn a_file_beside_a_folder_of_its_name_is_found() {
        let files = [
            file("crates/host/src/a.rs", ""),
            file("crates/host/src/a/b.rs", ""),
            file("crates/host/src/c/mod.rs", ""),
            file("crates/host/src/c/d.rs", ""),
            file("crates/host/tests/e.rs", ""),
            file("crates/host/tests/e/f.rs", ""),
        ];
        let problems = no_file_stands_beside_its_folder(&files);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].path, "crates/host/src/a.rs");
    }

    #[test]
    fn printing_is_found_in_product_code_only() {
        let print = "fn f() { println!(\"x\") }\n";
        let tests = format!("//! x\n#[cfg(test)]\n#[expect(x)]\nmod tests {{ {print} }}\n");
        let files = [
            file("crates/host/src/a.rs", print),
            file("crates/host/src/b.rs", &tests),
            file("crates/host/tests/it/c.rs", print),
            file("testbed/src/lib.rs", print),
            file(SAY, print),
        ];
        let problems = only_say_prints(&files);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].path, "crates/host/src/a.rs");
    }

    #[test]
    fn an_ignored_or_sleeping_test_is_found() {
        let ignored = format!("#[test]\n{}]\nfn t() {{}}\n", concat!("#[", "ignore"));
        let sleep = concat!("std::thread::", "sleep(x);");
        let files = [
            file("crates/host/tests/a.rs", &ignored),
            file("crates/host/tests/b.rs", sleep),
            file("crates/traffic/src/c.rs", sleep),
            file(
                "crates/traffic/tests/d.rs",
                &format!("// tidy: time itself is the subject\n{sleep}"),
            ),
        ];
        assert_eq!(no_test_is_ignored_or_sleeps(&files).len(), 2);
    }

    #[test]
    fn unsafe_code_outside_sys_is_found() {
        let code = format!("    let x = {} {{ f() }};\n", "unsafe");
        let files = [
            file("crates/host/src/a.rs", &code),
            file("crates/host/src/sys.rs", &code),
            file("crates/host/src/sys/b.rs", &code),
            file("crates/host/tests/c.rs", &format!("mod sys {{\n{code}}}\n")),
            file("crates/model/src/lib.rs", "#![forbid(unsafe_code)]\n"),
        ];
        assert_eq!(unsafe_code_lives_in_sys(&files).len(), 1);
    }

    #[test]
    fn a_reader_that_goes_past_the_root_is_found() {
        let read = "let x = std::fs::read_to_string(\"/proc/stat\");\n";
        let files = [
            file("crates/host/src/procfs/stat.rs", read),
            file("crates/host/src/root/mod.rs", read),
        ];
        assert_eq!(host_reads_the_kernel_through_its_root(&files).len(), 1);
    }
}
