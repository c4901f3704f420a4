//! The files that set sysctls: sysctl.d(5) and, read last of all by `sysctl --system`,
//! `/etc/sysctl.conf` (sysctl.conf(5), sysctl(8)).
//!
//! Only lines that set a sysctl known to linerate are read: the others are not needed, and must not be in a capture.

use std::collections::BTreeMap;

use linerate_model::host::SysctlLine;
use linerate_model::known::{Cause, Gap, Known};

use crate::procfs::sysctls::SYSCTLS;
use crate::root::{HostRoot, absolute};

/// The directories, highest precedence first: a file hides those with the same name in later directories.
pub(crate) const FOLDERS: [&str; 5] = [
    "etc/sysctl.d",
    "run/sysctl.d",
    "usr/local/lib/sysctl.d",
    "usr/lib/sysctl.d",
    "lib/sysctl.d",
];
/// Those that packages install into; files in the others are local.
pub(crate) const PACKAGED: [&str; 2] = ["usr/lib/sysctl.d", "lib/sysctl.d"];
const LAST: &str = "etc/sysctl.conf";

/// Sysctls from old tuning guides that no longer have an effect: not read as settings, but reported.
const OBSOLETE: [&str; 4] = [
    "net.ipv4.tcp_adv_win_scale",
    "net.ipv4.tcp_fack",
    "net.ipv4.tcp_low_latency",
    "net.ipv4.tcp_tw_recycle",
];

/// The maximum number of lines.
const LINES_MAX: usize = 4096;

/// Reads every line in the order in which they take effect.
pub(crate) fn read_sysctl_lines(root: &HostRoot, gaps: &mut Vec<Gap>) -> Known<Vec<SysctlLine>> {
    let mut unread = Vec::new();
    let mut is_any_read = false;
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for folder in FOLDERS {
        match list(root, folder) {
            Known::Value(names) => {
                is_any_read = true;
                for name in names {
                    let path = format!("{folder}/{name}");
                    files.entry(name).or_insert(path);
                }
            }
            Known::Unknown(gap) => unread.push(gap),
        }
    }
    // Debian links it into the directory, and then it is read in that position.
    let is_linked = (root.link_unlogged("etc/sysctl.d/99-sysctl.conf").value())
        .is_some_and(|target| crate::attributes::joined("etc/sysctl.d", target) == LAST);
    let last = (!is_linked).then(|| LAST.to_owned());
    let mut lines = Vec::new();
    for path in files.into_values().chain(last) {
        match root.read_used(&path, used_sysctl_lines) {
            Known::Value(text) => {
                is_any_read = true;
                lines.extend(parse_sysctl_lines(&absolute(&path), &text));
            }
            Known::Unknown(gap) => unread.push(gap),
        }
    }
    if lines.len() > LINES_MAX {
        let reason = format!("{} lines set sysctls", lines.len());
        return Known::unknown(Cause::Unreadable, absolute(FOLDERS[0]), reason);
    }
    // A missing file sets nothing; a dangling link even hides the files with its name.
    let mut failed = unread.into_iter().filter(|gap| gap.cause != Cause::Absent);
    if is_any_read {
        gaps.extend(failed.filter(|gap| gap.cause != Cause::NotAsked));
        return Known::Value(lines);
    }
    failed.next().map_or_else(
        || {
            let reason = "no file sets sysctls";
            Known::unknown(Cause::Absent, absolute(FOLDERS[0]), reason)
        },
        Known::Unknown,
    )
}

/// The names of the files that are read; a capture does not contain the others.
fn list(root: &HostRoot, folder: &str) -> Known<Vec<String>> {
    let names = root.list_unlogged(folder).map(|mut names| {
        names.retain(|name| {
            name.strip_suffix("conf")
                .is_some_and(|rest| rest.ends_with('.'))
        });
        names
    });
    root.note_list(folder, &names);
    names
}

/// The lines of one file as parsed by systemd-sysctl(8): comments begin with `#` or `;`, a `-` prefix ignores errors.
pub(crate) fn parse_sysctl_lines(file: &str, text: &str) -> Vec<SysctlLine> {
    let line = |(number, line): (u32, &str)| {
        let (name, value) = parse_line(line)?;
        Some(SysctlLine {
            file: file.to_owned(),
            line: number,
            name,
            value,
        })
    };
    (1..).zip(text.lines()).filter_map(line).collect()
}

/// The sysctl and its value, if the line sets one known to linerate.
fn parse_line(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    if line.starts_with(['#', ';']) {
        return None;
    }
    let (name, value) = line.strip_prefix('-').unwrap_or(line).split_once('=')?;
    let name = dotted(name.trim());
    let is_read = SYSCTLS.iter().any(|(read, _)| *read == name);
    let is_spoken_of = is_read || OBSOLETE.contains(&name.as_str());
    // Text after a `#` is meant as a comment, although the kernel would receive it too.
    let value = value.split(" #").next().unwrap_or_default().trim();
    is_spoken_of.then(|| (name, value.to_owned()))
}

/// The dotted name. The first of `/` and `.` in a name is the separator; the other is then a literal character of a
/// file name (sysctl.d(5)).
fn dotted(name: &str) -> String {
    match name.find(['/', '.']).map(|at| name.as_bytes().get(at)) {
        Some(Some(b'/')) => name
            .chars()
            .map(|c| match c {
                '/' => '.',
                '.' => '/',
                c => c,
            })
            .collect(),
        _ => name.to_owned(),
    }
}

/// A file as stored in a capture: the used lines in their positions.
fn used_sysctl_lines(text: &str) -> String {
    let used = |line: &str| {
        parse_line(line).map_or_else(String::new, |(name, value)| format!("{name} = {value}"))
    };
    let lines: Vec<String> = text.lines().map(used).collect();
    lines.join("\n").trim_end().to_owned()
}

/// Replacement names for local files, given the full list of names and those from packages: a name may identify the
/// machine. The sort order of all names is preserved.
pub(crate) fn withheld_names<'a>(
    all: impl Iterator<Item = &'a str>,
    packaged: impl Fn(&str) -> bool,
) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    let mut before = "";
    for (rank, name) in all.enumerate() {
        if packaged(name) {
            before = name;
        } else {
            names.insert(name.to_owned(), format!("{before}-withheld-{rank:04}.conf"));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_are_read_as_systemd_reads_them() {
        let text = "# a comment\n; another\n\n net.core.rmem_max = 1048576 \n\
            -net/ipv4/tcp_congestion_control=bbr\nkernel.core_pattern = |/opt/acme/dump\n\
            net.ipv4.tcp_low_latency=1 # as the blog says\nno assignment";
        let lines = parse_sysctl_lines("/etc/sysctl.d/a.conf", text);
        let said: Vec<_> = lines
            .iter()
            .map(|line| (line.line, line.name.as_str(), line.value.as_str()))
            .collect();
        assert_eq!(
            said,
            [
                (4, "net.core.rmem_max", "1048576"),
                (5, "net.ipv4.tcp_congestion_control", "bbr"),
                (7, "net.ipv4.tcp_low_latency", "1"),
            ]
        );
        let kept = used_sysctl_lines(text);
        assert!(!kept.contains("acme") && !kept.contains("blog"));
        assert_eq!(parse_sysctl_lines("/etc/sysctl.d/a.conf", &kept), lines);
    }

    #[test]
    fn withheld_names_keep_their_place_among_the_others() {
        let all = [
            "10-a.conf",
            "50-acme.conf",
            "60-b.conf",
            "61-acme.conf",
            "62-acme.conf",
        ];
        let packaged = |name: &str| !name.contains("acme");
        let withheld = withheld_names(all.into_iter(), packaged);
        let name = |name: &str| withheld.get(name).cloned().unwrap_or(name.to_owned());
        let renamed: Vec<String> = all.into_iter().map(name).collect();
        assert!(renamed.is_sorted(), "{renamed:?}");
        assert!(!renamed.concat().contains("acme"));
        assert_eq!(withheld.len(), 3);
    }

    proptest! {
        #[test]
        fn no_text_panics_and_the_kept_lines_say_the_same(lines in proptest::collection::vec(
            "-?(net.core.rmem_max|net/ipv4/tcp_rmem|kernel.x) ?= ?[0-9 ]{0,8}( # x)?|[#;]?.{0,20}", 0..6,
        )) {
            let text = lines.join("\n");
            let kept = used_sysctl_lines(&text);
            prop_assert_eq!(parse_sysctl_lines("f", &text), parse_sysctl_lines("f", &kept));
        }
    }
}
