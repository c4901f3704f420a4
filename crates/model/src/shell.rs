//! Quoting of commands that users paste into a shell.

use std::path::Path;

/// `text` as one word of a POSIX shell (POSIX.1-2024, Shell Command Language, 2.2.2 Single-Quotes). Plain words stay
/// unquoted.
pub fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    // zsh replaces `=COMMAND` by the command's path.
    if !text.is_empty() && !text.starts_with('=') && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// A path as one word that no program parses as an option.
pub fn quoted_path(path: &Path) -> String {
    let path = path.to_string_lossy();
    if path.starts_with('-') {
        quoted(&format!("./{path}"))
    } else {
        quoted(&path)
    }
}

/// The words of `text`, separated by spaces, each [`quoted`].
pub fn quoted_words(text: &str) -> String {
    let words: Vec<String> = text.split_whitespace().map(quoted).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    /// How a shell splits `words`: each in angle brackets.
    #[expect(
        clippy::disallowed_methods,
        reason = "a test: only a shell knows what it makes of words"
    )]
    fn taken_by_sh(words: &str) -> String {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("printf '<%s>' {words}")]);
        let output = shell.output().expect("a shell");
        assert!(output.status.success(), "{words}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    proptest! {
        #[test]
        fn a_quoted_text_is_one_word_and_the_same_for_a_shell(text in "[^\0]{0,40}") {
            prop_assert_eq!(taken_by_sh(&quoted(&text)), format!("<{text}>"));
        }

        #[test]
        fn quoted_words_are_as_many_and_the_same_for_a_shell(
            words in prop::collection::vec("[!-~]{1,12}", 1..6)
        ) {
            let taken = format!("<{}>", words.join("><"));
            prop_assert_eq!(taken_by_sh(&quoted_words(&words.join(" "))), taken);
        }
    }

    #[test]
    fn what_a_shell_would_read_as_more_than_a_word_is_quoted_and_plain_words_are_not() {
        for (text, written) in [
            ("/var/lib/linerate/runs/1", "/var/lib/linerate/runs/1"),
            ("--time=1,2", "--time=1,2"),
            ("", "''"),
            ("=ls", "'=ls'"),
            ("~root", "'~root'"),
            ("it's", "'it'\\''s'"),
            ("$(reboot)", "'$(reboot)'"),
        ] {
            assert_eq!(quoted(text), written);
        }
        assert_eq!(quoted_path(Path::new("-rf x")), "'./-rf x'");
    }
}
