//! The command line as runs keep it.

use linerate_model::pairing::Pairing;

/// The words of this command. A pairing line is only the name of its peer: its token is a secret.
pub fn command_line() -> Vec<String> {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    words.map(|word| without_token(&word)).collect()
}

fn without_token(word: &str) -> String {
    let (option, value) = match word.split_once('=') {
        Some((option, value)) if option.starts_with("--") => (format!("{option}="), value),
        _ => (String::new(), word),
    };
    match value.parse::<Pairing>() {
        Ok(pairing) => format!("{option}tls://{}", pairing.at),
        Err(_) => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pairing_line_is_kept_without_its_token() {
        let line = format!("tls://apricot:7#{}.{}.9", "a5".repeat(32), "0f".repeat(16));
        assert_eq!(without_token(&line), "tls://apricot:7");
        assert_eq!(
            without_token(&format!("--pair={line}")),
            "--pair=tls://apricot:7"
        );
        for word in ["measure", "--time=3", "tls://apricot", "a=b"] {
            assert_eq!(without_token(word), word);
        }
    }
}
