//! Starts the program under test, with its own state folder.

use std::path::Path;
use std::process::Command;

/// What the program printed, and how it ended.
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs `linerate` with `words`.
pub(crate) fn linerate(words: &[&str]) -> Ended {
    let state = tempfile::tempdir().expect("a state folder");
    within(state.path(), words)
}

/// The same, with the state folder that is given.
pub(crate) fn within(state: &Path, words: &[&str]) -> Ended {
    let output = Command::new(env!("CARGO_BIN_EXE_linerate"))
        .arg("--state")
        .arg(state)
        .args(words)
        .output()
        .expect("the program starts");
    Ended {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).expect("UTF-8 on stdout"),
        err: String::from_utf8(output.stderr).expect("UTF-8 on stderr"),
    }
}

/// The same, of a captured host.
pub(crate) fn on(from: &Path, words: &[&str]) -> Ended {
    let from = from.to_str().expect("a path in UTF-8");
    let words: Vec<&str> = words.iter().copied().chain(["--from", from]).collect();
    linerate(&words)
}

impl Ended {
    /// What was printed, when it ended with `code`.
    #[track_caller]
    pub(crate) fn with_code(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}", self.err);
        self.out
    }
}
