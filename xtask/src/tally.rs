//! Counts what passed, failed and was skipped, from what libtest prints (`test result: ok. 3 passed;
//! ...`, and with `--show-output` a `---- NAME stdout ----` section for each test that printed).
//!
//! A test that prints `SKIP: reason` did not verify what its name says: libtest counts it as passed, this counts it
//! as skipped.

use std::collections::BTreeSet;
use std::fmt;

/// What passed, what failed and what was skipped.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// The number of tests that passed and were not skipped.
    pub(crate) passed: usize,
    /// What failed, each on a line, with the first lines of a test's panic below it.
    pub(crate) failures: Vec<String>,
    /// Every visible skip with its reason, one line each.
    pub(crate) skips: Vec<String>,
}

/// The output and exit status of one program.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// Its standard output.
    pub(crate) stdout: String,
    /// Its standard error.
    pub(crate) stderr: String,
    /// Whether it exited successfully.
    pub(crate) success: bool,
}

impl Tally {
    /// Adds another tally.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failures.extend(other.failures);
        self.skips.extend(other.skips);
    }

    /// One check that is not a test program: it failed, was skipped, or passed.
    pub(crate) fn of_gate(name: &str, output: &Output) -> Self {
        let mut tally = Self::default();
        let lines = output.stdout.lines().chain(output.stderr.lines());
        tally.skips.extend(
            lines
                .filter_map(skip_reason)
                .map(|why| format!("{name}: {why}")),
        );
        if !output.success {
            tally.failures.push(name.to_owned());
        } else if tally.skips.is_empty() {
            tally.passed = 1;
        }
        tally
    }

    /// One test program.
    pub(crate) fn of_tests(program: &str, output: &Output) -> Self {
        let mut reader = Reader::new(program);
        for line in output.stdout.lines() {
            reader.line(line);
        }
        // Output of a test or its child that bypassed libtest cannot be attributed to a test.
        for reason in output.stderr.lines().filter_map(skip_reason) {
            reader.skip_without_name(reason);
        }
        reader.finish(output.success)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            passed,
            failures,
            skips,
        } = self;
        let (failed, skipped) = (failures.len(), skips.len());
        write!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

/// How much of a panic is quoted with the failure.
const PANIC_LINES: usize = 25;
const PANIC_COLUMNS: usize = 400;

/// Walks through libtest's output line by line.
struct Reader<'a> {
    program: &'a str,
    tally: Tally,
    /// Whether the sections being read are those of tests that passed.
    in_successes: bool,
    section: Option<String>,
    /// How many more lines of the section's panic are quoted.
    of_panic: usize,
    skipped_tests: BTreeSet<String>,
    skips_without_name: usize,
    has_result: bool,
}

impl<'a> Reader<'a> {
    fn new(program: &'a str) -> Self {
        Self {
            program,
            tally: Tally::default(),
            in_successes: false,
            section: None,
            of_panic: 0,
            skipped_tests: BTreeSet::new(),
            skips_without_name: 0,
            has_result: false,
        }
    }

    fn line(&mut self, line: &str) {
        self.quote(line);
        let heading = line
            .strip_prefix("---- ")
            .and_then(|rest| rest.strip_suffix(" stdout ----"));
        if let Some(name) = heading {
            self.section = Some(name.to_owned());
            self.of_panic = 0;
        } else if line == "successes:" || line == "failures:" {
            self.in_successes = line == "successes:";
            self.section = None;
            self.of_panic = 0;
        } else if let Some(reason) = skip_reason(line) {
            match self.section.clone() {
                Some(test) => {
                    self.tally
                        .skips
                        .push(format!("{} {test}: {reason}", self.program));
                    if self.in_successes {
                        self.skipped_tests.insert(test);
                    }
                }
                None => self.skip_without_name(reason),
            }
        } else if let Some(name) = failed_test(line) {
            self.tally.failures.push(format!("{} {name}", self.program));
        } else if let Some((_, counts)) = line.split_once("test result: ") {
            self.has_result = true;
            self.tally.passed += count_of(counts, " passed");
            for _ in 0..count_of(counts, " ignored") {
                self.tally
                    .skips
                    .push(format!("{}: a test marked as ignored", self.program));
            }
            let failed = count_of(counts, " failed");
            while self.tally.failures.len() < failed {
                self.tally
                    .failures
                    .push(format!("{}: a test whose name was lost", self.program));
            }
        }
    }

    /// Adds a line to a failure if it belongs to its test's panic: the end of a log, which is there even if the middle
    /// is cut, shows why a test failed.
    fn quote(&mut self, line: &str) {
        let Some(test) = self.section.as_ref().filter(|_| !self.in_successes) else {
            return;
        };
        if line.starts_with("thread '") && line.contains(" panicked at ") {
            self.of_panic = PANIC_LINES;
        } else if line.starts_with("stack backtrace:") || line.starts_with("note: run with") {
            self.of_panic = 0;
        }
        if self.of_panic == 0 {
            return;
        }
        self.of_panic -= 1;
        let name = format!("{} {test}", self.program);
        let is_its = |failure: &&mut String| failure.lines().next() == Some(&name);
        if let Some(failure) = self.tally.failures.iter_mut().find(is_its) {
            let line: String = line.chars().take(PANIC_COLUMNS).collect();
            failure.push_str("\n    ");
            failure.push_str(&line);
        }
    }

    fn skip_without_name(&mut self, reason: &str) {
        self.skips_without_name += 1;
        self.tally.skips.push(format!("{}: {reason}", self.program));
    }

    fn finish(mut self, success: bool) -> Tally {
        if !self.has_result && success && self.tally.skips.is_empty() {
            self.tally.passed = 1; // a test program without libtest's harness is one test
        }
        if !success && self.tally.failures.is_empty() {
            self.tally
                .failures
                .push(format!("{}: ended without success", self.program));
        }
        self.tally.passed = self
            .tally
            .passed
            .saturating_sub(self.skipped_tests.len() + self.skips_without_name);
        self.tally
    }
}

/// The reason in a line that reports a skipped test; `test NAME ... ` may precede it if the test bypassed libtest.
fn skip_reason(line: &str) -> Option<&str> {
    let line = line.rsplit_once(" ... ").map_or(line, |(_, rest)| rest);
    line.trim().strip_prefix("SKIP:").map(str::trim)
}

fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

/// The number before `word` in `ok. 3 passed; 0 failed; 1 ignored`.
fn count_of(counts: &str, word: &str) -> usize {
    counts
        .split([';', '.'])
        .filter_map(|part| part.trim().strip_suffix(word.trim_start()))
        .find_map(|number| number.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(stdout: &str, stderr: &str, success: bool) -> Tally {
        let output = Output {
            stdout: stdout.to_owned(),
            stderr: stderr.to_owned(),
            success,
        };
        Tally::of_tests("host", &output)
    }

    #[test]
    fn passed_and_failed_tests_are_counted_by_name() {
        let tally = of(
            "test a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\nboom\n\n\
             failures:\n    b\n\ntest result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured\n",
            "",
            false,
        );
        assert_eq!(tally.to_string(), "1 passed, 1 failed, 0 skipped");
        assert_eq!(tally.failures, ["host b"]);
    }

    #[test]
    fn a_failure_quotes_its_panic_and_nothing_of_what_passed() {
        let tally = of(
            "test a ... FAILED\ntest b ... ok\n\nsuccesses:\n\n---- b stdout ----\n\
             thread 'x' (7) panicked at expected.rs:1:1:\nexpected\n\n\
             successes:\n    b\n\nfailures:\n\n---- a stdout ----\nbefore it\n\n\
             thread 'a' (9) panicked at a.rs:3:5:\nleft: 1\nright: 2\n\
             stack backtrace:\n   0: rust_begin_unwind\n\nfailures:\n    a\n\n\
             test result: FAILED. 1 passed; 1 failed; 0 ignored\n",
            "",
            false,
        );
        let quoted = "host a\n    thread 'a' (9) panicked at a.rs:3:5:\n    left: 1\n    right: 2";
        assert_eq!(tally.failures, [quoted]);
    }

    #[test]
    fn a_test_that_says_skip_is_not_counted_as_passed() {
        let tally = of(
            "test a ... ok\ntest b ... ok\n\nsuccesses:\n\n---- b stdout ----\nSKIP: no netem here\n\n\
             successes:\n    a\n    b\n\ntest result: ok. 2 passed; 0 failed; 0 ignored\n",
            "",
            true,
        );
        assert_eq!(tally.to_string(), "1 passed, 0 failed, 1 skipped");
        assert_eq!(tally.skips, ["host b: no netem here"]);
    }

    #[test]
    fn a_skip_written_past_libtest_is_counted_too() {
        let tally = of(
            "test a ... ok\ntest result: ok. 1 passed; 0 failed; 0 ignored\n",
            "SKIP: no user namespaces\n",
            true,
        );
        assert_eq!(tally.to_string(), "0 passed, 0 failed, 1 skipped");
    }

    #[test]
    fn two_skips_of_one_test_take_one_test_away() {
        let tally = of(
            "successes:\n---- a stdout ----\nSKIP: x\nSKIP: y\nsuccesses:\n    a\n    b\n\
             test result: ok. 2 passed; 0 failed; 0 ignored\n",
            "",
            true,
        );
        assert_eq!(tally.to_string(), "1 passed, 0 failed, 2 skipped");
    }

    #[test]
    fn a_test_program_that_dies_is_a_failure() {
        let tally = of("running 3 tests\ntest a ... ok\n", "signal 6\n", false);
        assert_eq!(tally.to_string(), "0 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn a_gate_passes_or_fails_or_says_why_it_skipped() {
        let gate = |stderr: &str, success| {
            let output = Output {
                stderr: stderr.to_owned(),
                success,
                ..Output::default()
            };
            Tally::of_gate("deny", &output).to_string()
        };
        assert_eq!(gate("", true), "1 passed, 0 failed, 0 skipped");
        assert_eq!(gate("", false), "0 passed, 1 failed, 0 skipped");
        assert_eq!(gate("SKIP: offline", true), "0 passed, 0 failed, 1 skipped");
    }
}
