//! Patterns of keys and files: paths whose segments may end in a placeholder in capitals, `nic/NAME/queue/rx-N/rps-cpus`.

/// A segment's fixed start, and its placeholder.
fn split(segment: &str) -> (&str, &str) {
    let fixed = segment.trim_end_matches(|c: char| c.is_ascii_uppercase());
    segment.split_at(fixed.len())
}

/// `pattern` without its first `segments` segments.
pub(super) fn below(pattern: &str, segments: usize) -> &str {
    let mut rest = pattern;
    for _ in 0..segments {
        rest = rest.split_once('/').map_or("", |(_, rest)| rest);
    }
    rest
}

/// The segment of `pattern` with its placeholder: `rx-N`; empty without one.
pub(super) fn variable(pattern: &str) -> &str {
    let mut segments = pattern.split('/');
    let found = segments.find(|segment| !split(segment).1.is_empty());
    found.unwrap_or_default()
}

/// `pattern` with each placeholder replaced by its word.
pub(super) fn filled(pattern: &str, word: impl Fn(&str) -> Option<String>) -> String {
    let segments = pattern.split('/').map(|segment| match split(segment) {
        (fixed, "") => fixed.to_owned(),
        (fixed, name) => format!("{fixed}{}", word(name).unwrap_or_default()),
    });
    segments.collect::<Vec<_>>().join("/")
}

/// The word in place of the placeholder, if `path` matches; empty without a placeholder. Words that become part of a
/// file's name or a command are plain.
pub(super) fn capture<'p>(pattern: &str, path: &'p str) -> Option<&'p str> {
    let mut found = "";
    let mut segments = path.split('/');
    for wanted in pattern.split('/') {
        let segment = segments.next()?;
        match split(wanted) {
            (fixed, "") if fixed == segment => {}
            (_, "") => return None,
            (fixed, name) => {
                found = segment.strip_prefix(fixed)?;
                let must_be_plain = matches!(name, "KIND" | "STATE");
                if found.is_empty() || (must_be_plain && !is_plain(found)) {
                    return None;
                }
            }
        }
    }
    segments.next().is_none().then_some(found)
}

/// Whether a word can be used in a sysfs path.
pub(super) fn is_plain(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-!:".contains(&b);
    !name.is_empty() && name.bytes().all(plain) && name != "." && name != ".."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_its_pattern_with_a_word_in_place_of_the_placeholder() {
        let pattern = "queue/rx-N/rps-cpus";
        assert_eq!(capture(pattern, "queue/rx-12/rps-cpus"), Some("12"));
        for other in ["queue/tx-1/rps-cpus", "queue/rx-1", "queue/rx-/rps-cpus"] {
            assert_eq!(capture(pattern, other), None, "{other}");
        }
        assert_eq!(capture("ring/rx", "ring/rx"), Some(""));
        assert_eq!(capture("ring/rx", "ring/rx/x"), None);
        assert_eq!(capture("pci/STATE", "pci/.."), None);
        let filled = filled(pattern, |name| (name == "N").then(|| "7".to_owned()));
        assert_eq!(filled, "queue/rx-7/rps-cpus");
        assert_eq!(variable(pattern), "rx-N");
        assert_eq!(variable("ring/rx"), "");
        assert_eq!(below("nic/NAME/ring/rx", 2), "ring/rx");
    }
}
