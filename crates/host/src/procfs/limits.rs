//! Resource limits of this process: `/proc/self/limits` (proc_pid_limits(5), setrlimit(2)).

use linerate_model::host::Limit;
use linerate_model::known::Known;
use linerate_model::units::Bytes;

use crate::attributes::understood;
use crate::root::HostRoot;

const FILE: &str = "proc/self/limits";
const LOCKED: &str = "Max locked memory";

/// The locked memory limit.
pub(crate) fn read_locked_memory(root: &HostRoot) -> Known<Limit> {
    root.read_used(FILE, used_limit_lines)
        .and_then(|text| understood(FILE, &text, parse_locked_memory))
}

/// `Max locked memory         8388608              8388608              bytes`: the soft limit.
pub(crate) fn parse_locked_memory(text: &str) -> Result<Limit, String> {
    let rest = text
        .lines()
        .find_map(|line| line.strip_prefix(LOCKED))
        .ok_or_else(|| format!("no line begins with `{LOCKED}`"))?;
    match rest.split_whitespace().next().unwrap_or_default() {
        "unlimited" => Ok(Limit::Unlimited),
        word => match word.parse() {
            Ok(bytes) => Ok(Limit::Bytes(Bytes::new(bytes))),
            Err(error) => Err(format!("`{word}`: {error}")),
        },
    }
}

/// The line that is used here.
fn used_limit_lines(text: &str) -> String {
    let used = text.lines().find(|line| line.starts_with(LOCKED));
    used.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_soft_limit_counts() {
        let text =
            "Limit   Soft Limit   Hard Limit   Units\nMax locked memory  65536  unlimited  bytes";
        assert_eq!(
            parse_locked_memory(text),
            Ok(Limit::Bytes(Bytes::new(65536)))
        );
        let text = "Max locked memory  unlimited  unlimited  bytes";
        assert_eq!(parse_locked_memory(text), Ok(Limit::Unlimited));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(Max locked memory)?.{0,30}") {
            let _ = (parse_locked_memory(&text), used_limit_lines(&text));
        }
    }
}
