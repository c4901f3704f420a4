//! The gaps of a map: one entry for one reason. A request that did not answer leaves many facts open, and
//! what one CPU, interrupt or queue lacks, its neighbors lack too: hundreds of entries would hide the one
//! that matters.

use std::collections::BTreeMap;

use linerate_model::known::Cause;
use serde::Serialize;

use crate::gaps::Noted;

/// One gap, or several of the same reason.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    path: String,
    reason: String,
    cause: Cause,
    /// The JSON pointers (RFC 6901) of the nulls that this explains.
    fields: Vec<String>,
}

impl From<Noted> for Entry {
    fn from(noted: Noted) -> Self {
        Self {
            path: noted.path,
            reason: noted.reason,
            cause: noted.cause,
            fields: noted.field.into_iter().collect(),
        }
    }
}

/// A missing value, and why it is missing.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub(crate) struct MapGap {
    /// The source that was read: a file, a netlink request. For several with the same reason: with an asterisk for each
    /// number that differs (/proc/irq/*/node), or in braces if all are absent (netlink/ethtool/eth0/{eee,fec}).
    path: String,
    reason: String,
    cause: Cause,
    /// The first of `fields`.
    field: Option<String>,
    /// The JSON pointers (RFC 6901), within `host`, `nic` or `watch`, of the nulls that this explains; empty for a source without a
    /// field of its own.
    fields: Vec<String>,
}

impl From<Entry> for MapGap {
    fn from(entry: Entry) -> Self {
        Self {
            path: entry.path,
            reason: entry.reason,
            cause: entry.cause,
            field: entry.fields.first().cloned(),
            fields: entry.fields,
        }
    }
}

impl Entry {
    /// Leaves out the fields of a list that is not part of the document.
    pub(super) fn without_fields_of(mut self, list: &str) -> Self {
        if self.fields.first().is_some_and(|at| at.starts_with(list)) {
            self.fields.clear();
        }
        self
    }

    /// The part of the host that it belongs to: one interface or RDMA device, else the kind of fact.
    fn owner(&self) -> String {
        let field = self.fields.first().map_or("", String::as_str);
        let mut words = field.split('/').skip(1);
        match (words.next(), words.next()) {
            (Some(list @ ("nics" | "rdma")), Some(index)) => format!("{list}/{index}"),
            (Some(list), _) => list.to_owned(),
            (None, _) => String::new(),
        }
    }

    /// Whether it is one of a numbered series that all lack the same.
    fn is_numbered(&self) -> bool {
        let rows = ["/cpus/", "/irqs/", "/block/"];
        let within = ["/queues/", "/napis/", "/queue_coalesce/"];
        self.fields.first().is_some_and(|field| {
            rows.iter().any(|row| field.starts_with(row))
                || within.iter().any(|row| field.contains(row))
        })
    }
}

/// The same gaps with one entry for one reason, in their order:
/// places of a numbered row that differ in a number only (`/proc/irq/*/node`), and
/// absent places of one folder, and requests of one family (`netlink/ethtool/eth0/{eee,fec}`).
pub(super) fn gathered(entries: Vec<Entry>) -> Vec<Entry> {
    let rows = grouped(
        entries,
        |entry| {
            if entry.is_numbered() {
                starred(&entry.path)
            } else {
                entry.path.clone()
            }
        },
        with_stars,
    );
    grouped(
        rows,
        |entry| {
            let folder = entry.path.rsplit_once('/').map(|(folder, _)| folder);
            request(&entry.path)
                .or(folder.filter(|_| entry.cause == Cause::Absent))
                .unwrap_or(&entry.path)
                .to_owned()
        },
        with_braces,
    )
}

/// Makes one entry of those with the same cause, reason, owner and `place`.
fn grouped(
    entries: Vec<Entry>,
    place: impl Fn(&Entry) -> String,
    path_of: impl Fn(&[String]) -> String,
) -> Vec<Entry> {
    let mut groups: Vec<(Entry, Vec<String>)> = Vec::new();
    let mut at: BTreeMap<[String; 4], usize> = BTreeMap::new();
    for entry in entries {
        let known = [
            entry.cause.to_string(),
            entry.reason.clone(),
            entry.owner(),
            place(&entry),
        ];
        // What has no separate field is the reader's own word, and is kept.
        let found = at.get(&known).copied().filter(|_| !entry.fields.is_empty());
        if let Some((group, paths)) = found.and_then(|index| groups.get_mut(index)) {
            if !paths.contains(&entry.path) {
                paths.push(entry.path);
            }
            group.fields.extend(entry.fields);
        } else {
            if !entry.fields.is_empty() {
                at.insert(known, groups.len());
            }
            groups.push((entry.clone(), vec![entry.path]));
        }
    }
    let named = groups.into_iter().map(|(mut entry, paths)| {
        if paths.len() > 1 {
            entry.path = path_of(&paths);
        }
        entry
    });
    named.collect()
}

/// A path in pieces: runs of digits, and what is between them.
fn pieces(path: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = path;
    while let Some(first) = rest.chars().next() {
        let is_digit = first.is_ascii_digit();
        let end = rest
            .find(|c: char| c.is_ascii_digit() != is_digit)
            .unwrap_or(rest.len());
        let (piece, after) = rest.split_at(end);
        pieces.push(piece);
        rest = after;
    }
    pieces
}

fn is_number(piece: &str) -> bool {
    piece.starts_with(|c: char| c.is_ascii_digit())
}

fn starred(path: &str) -> String {
    let words = pieces(path);
    let words = words
        .into_iter()
        .map(|p| if is_number(p) { "*" } else { p });
    words.collect()
}

/// Paths that differ in numbers only as one, with a star for each number that differs.
fn with_stars(paths: &[String]) -> String {
    let Some((first, others)) = paths.split_first() else {
        return String::new();
    };
    let mut all: Vec<&str> = pieces(first);
    for other in others {
        for (own, its) in all.iter_mut().zip(pieces(other)) {
            if *own != its {
                *own = "*";
            }
        }
    }
    all.concat()
}

/// The family and interface of a request (`netlink/ethtool/eth0`), where a path is one.
fn request(path: &str) -> Option<&str> {
    if !path.starts_with("netlink/") && !path.starts_with("ioctl/") {
        return None;
    }
    let (end, _) = path.match_indices('/').nth(2)?;
    path.get(..end)
}

/// Paths as one: the folder that all share, and what differs in braces.
fn with_braces(paths: &[String]) -> String {
    let split: Vec<Vec<&str>> = paths.iter().map(|path| path.split('/').collect()).collect();
    let Some((first, others)) = split.split_first() else {
        return String::new();
    };
    let is_shared = |at: &usize| {
        at + 1 < first.len() && others.iter().all(|other| other.get(*at) == first.get(*at))
    };
    let shared = (0..first.len()).take_while(is_shared).count();
    let rest = split.iter().map(|words| words.iter().skip(shared));
    let rest: Vec<String> = rest
        .map(|words| words.copied().collect::<Vec<_>>().join("/"))
        .collect();
    let folder: Vec<&str> = first.iter().take(shared).copied().collect();
    format!("{}/{{{}}}", folder.join("/"), rest.join(","))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(field: &str, path: &str, cause: &str) -> Entry {
        Entry::from(Noted {
            path: path.to_owned(),
            reason: "why".to_owned(),
            cause: serde_json::from_value(json!(cause)).expect("a cause"),
            field: Some(field.to_owned()),
        })
    }

    fn paths(entries: Vec<Entry>) -> Vec<(String, usize)> {
        let all = gathered(entries);
        all.into_iter()
            .map(|one| (one.path, one.fields.len()))
            .collect()
    }

    #[test]
    fn what_a_row_of_cpus_and_queues_lacks_is_one_gap() {
        let found = paths(vec![
            entry("/cpus/0/die", "/sys/cpu8/cpu0/die", "not-said"),
            entry("/cpus/1/die", "/sys/cpu8/cpu1/die", "not-said"),
            entry("/cpus/1/core", "/sys/cpu8/cpu1/die", "not-said"),
            entry("/nics/0/queues/0/irq", "/net/eth0/rx-0", "absent"),
            entry("/nics/0/queues/1/irq", "/net/eth0/rx-1", "absent"),
            entry("/nics/1/queues/0/irq", "/net/eth1/rx-0", "absent"),
        ]);
        let wanted = [
            ("/sys/cpu8/cpu*/die", 3),
            ("/net/eth0/rx-*", 2),
            ("/net/eth1/rx-0", 1),
        ];
        assert_eq!(found, wanted.map(|(path, n)| (path.to_owned(), n)));
    }

    #[test]
    fn what_an_interface_does_not_have_is_one_gap_but_each_refusal_stays() {
        let found = paths(vec![
            entry("/nics/0/wire/eee", "netlink/ethtool/lo/eee", "absent"),
            entry(
                "/nics/0/wire/state",
                "netlink/ethtool/lo/state/quality",
                "absent",
            ),
            entry("/nics/0/wire/pause", "netlink/ethtool/lo/pause", "denied"),
            entry("/nics/0/wire/modes", "netlink/ethtool/lo/modes", "denied"),
            entry(
                "/nics/1/numa_node",
                "/sys/0000:02:00.0/numa_node",
                "not-said",
            ),
            entry(
                "/nics/2/numa_node",
                "/sys/0000:02:00.1/numa_node",
                "not-said",
            ),
        ]);
        assert_eq!(found.len(), 4, "{found:?}");
        assert_eq!(
            found[0],
            ("netlink/ethtool/lo/{eee,state/quality}".to_owned(), 2)
        );
        assert_eq!(found[1].0, "netlink/ethtool/lo/{pause,modes}");
    }

    #[test]
    fn no_field_is_lost_whatever_the_paths_are() {
        let texts = [
            "",
            "/",
            "7",
            "7/",
            "ä9/ä",
            "//12//",
            "x",
            "/x/99999999999999999999",
            "/x/y",
        ];
        let entries = texts.iter().enumerate();
        let entries = entries.map(|(n, path)| entry(&format!("/cpus/{n}/x"), path, "absent"));
        let all = gathered(entries.collect());
        let fields: usize = all.iter().map(|one| one.fields.len()).sum();
        assert_eq!(fields, texts.len());
        for text in texts {
            assert_eq!(pieces(text).concat(), text);
        }
    }
}
