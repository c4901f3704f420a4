//! Reads a hosts file: TOML with a `[[host]]` for each, or a peer on each line.

use linerate_model::mesh::{HostsFile, ListedHost, hosts_of_lines};

/// The hosts of a text; else what is wrong, with its line.
pub fn hosts_of_text(text: &str) -> Result<Vec<ListedHost>, String> {
    let is_toml = text
        .lines()
        .any(|line| line.trim_start().starts_with("[[host]]"));
    if !is_toml {
        return hosts_of_lines(text).map_err(|error| error.to_string());
    }
    let file: HostsFile = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let line = text[..at.min(text.len())].matches('\n').count() + 1;
        let why = error.message().trim().replace('\n', "; ");
        format!("line {line}: {why}")
    })?;
    file.read().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_hosts_file_are_read() {
        let toml = "[[host]]\npeer = \"netns:h0\"\nnic = \"eth0\"\nswitch = \"leaf1\"\n\n[[host]]\npeer = \"h1\"\n";
        let hosts = hosts_of_text(toml).expect("hosts");
        assert_eq!(hosts[0].host.switch.as_deref(), Some("leaf1"));
        assert_eq!(hosts[1].host.name, "h1");
        let lines = hosts_of_text("netns:h0\nh1\n").expect("hosts");
        assert_eq!(lines[1], hosts[1]);
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_line() {
        let wrong = hosts_of_text("[[host]]\npeer = \"h0\"\nrate = 1\n").expect_err("refused");
        assert!(wrong.starts_with("line 3: unknown field `rate`"), "{wrong}");
    }
}
