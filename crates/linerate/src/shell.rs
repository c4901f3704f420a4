//! Words for a shell's command line, for commands that are printed to be pasted.

/// A word that a POSIX shell takes for itself (XCU 2.2.2).
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_reads_a_quoted_word_as_it_was() {
        for word in [
            "",
            "a",
            "it's $(id) `id`",
            "exec:sh -c \"x\"\n",
            "*",
            "~",
            "-x;y",
        ] {
            let script = format!("printf %s {}", quoted(word));
            let done = Command::new("sh").args(["-c", &script]).output();
            assert_eq!(done.expect("a shell").stdout, word.as_bytes());
        }
    }
}
