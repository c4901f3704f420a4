//! The numbers in the kernel's own headers, for tests that compare ours to them.

use std::collections::BTreeMap;

/// The numbers of every enumeration in `/usr/include/linux/FILE`, if the kernel's headers are installed; otherwise
/// nothing, with a skip.
#[expect(clippy::disallowed_methods, reason = "a skip must be seen")]
pub(super) fn numbers(file: &str) -> Option<BTreeMap<String, u64>> {
    let path = format!("/usr/include/linux/{file}");
    let text = std::fs::read_to_string(&path).ok();
    if text.is_none() {
        use std::io::Write;
        writeln!(std::io::stderr(), "SKIP: {path} is not installed").expect("stderr is open");
    }
    text.map(|text| parse(&text))
}

fn parse(text: &str) -> BTreeMap<String, u64> {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, comment)) = rest.split_once("/*") {
        plain.push_str(before);
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    plain.push_str(rest);
    let code: Vec<&str> = plain
        .lines()
        .filter(|line| !line.trim_start().starts_with('#'))
        .collect();
    let code = code.join(" ");
    let mut numbers = BTreeMap::new();
    for body in code.split("enum ").skip(1) {
        let Some((_, body)) = body.split_once('{') else {
            continue;
        };
        let mut next = Some(0);
        for entry in body.split('}').next().unwrap_or_default().split(',') {
            let (name, value) = match entry.split_once('=') {
                Some((name, value)) => (name.trim(), value_of(value.trim(), &numbers)),
                None => (entry.trim(), next),
            };
            if let Some(value) = value {
                numbers.insert(name.to_owned(), value);
            }
            next = value.map(|value| value + 1);
        }
    }
    numbers
}

fn value_of(text: &str, numbers: &BTreeMap<String, u64>) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok().or_else(|| numbers.get(text).copied()),
    }
}

/// Compares `ours` with the numbers of a header; one that an older header does not have is skipped.
pub(super) fn compare(file: &str, ours: &[(&str, u16)]) {
    let Some(theirs) = numbers(file) else {
        return;
    };
    let mut seen = 0;
    for (name, number) in ours {
        if let Some(theirs) = theirs.get(*name) {
            assert_eq!(u64::from(*number), *theirs, "{name}");
            seen += 1;
        }
    }
    assert!(seen * 2 > ours.len(), "{file} has {seen} of {}", ours.len());
}
