//! CPU quotas of this process's control group and of those above it
//! (Documentation/admin-guide/cgroup-v2.rst, "CPU"; Documentation/scheduler/sched-bwc.rst for the first version), and
//! how long they stopped its processes (`cpu.stat`).

use std::collections::BTreeMap;

use linerate_model::host::CpuQuota;
use linerate_model::known::{Cause, Gap, Known};

use crate::attributes::understood;
use crate::root::{HostRoot, absolute};

/// The control groups of this process.
pub(crate) const OWN: &str = "proc/self/cgroup";
/// Where control groups are mounted.
pub(crate) const MOUNT: &str = "sys/fs/cgroup";
/// The mount points with the CPU controller of the first version. `/proc/self/cgroup` may name the controllers in another
/// order.
const FIRST: [&str; 3] = ["cpu,cpuacct", "cpuacct,cpu", "cpu"];
/// Deeper hierarchies are unusual.
const DEPTH_MAX: usize = 16;

/// The control group with the CPU controller.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    /// Where its hierarchy may be mounted, below [`MOUNT`].
    mounts: Vec<String>,
    /// Its folder there, and those above it.
    folders: Vec<String>,
    is_second: bool,
}

/// The counters of a group: how many levels it is above the process's own, their file, and their values.
pub(crate) type Counters = (u32, String, BTreeMap<String, u64>);

/// A file of a group: how many levels it is above the process's own, its path and its text.
type Level = (u32, String, String);

impl Group {
    fn read(root: &HostRoot) -> Known<Self> {
        root.read_used(OWN, used_lines)
            .and_then(|text| understood(OWN, &text, parse))
    }

    /// The file `name` of the group and of those above it that have one, at the first place with any; and why another
    /// one could not be read.
    fn levels(&self, root: &HostRoot, name: &str) -> (Vec<Level>, Option<Gap>) {
        let mut unread = None;
        for mount in &self.mounts {
            let mut levels = Vec::new();
            for (above, folder) in (0u32..).zip(&self.folders) {
                let path = format!("{mount}{folder}/{name}");
                match root.read(&path) {
                    Known::Value(text) => levels.push((above, path, text)),
                    Known::Unknown(gap) if gap.leaves_a_question() => {
                        unread.get_or_insert(gap);
                    }
                    Known::Unknown(_) => {}
                }
            }
            if !levels.is_empty() {
                return (levels, unread);
            }
        }
        (Vec::new(), unread)
    }

    /// Whether a group without the files of a quota has none: the root of a hierarchy, and a group of the second
    /// version to which the CPU controller is not delegated. Otherwise the hierarchy is mounted elsewhere.
    fn is_unlimited(&self, root: &HostRoot) -> Result<(), Gap> {
        let own = match self.folders.first() {
            Some(own) if !own.is_empty() => own,
            _ => return Ok(()),
        };
        let controllers = format!("{MOUNT}{own}/cgroup.controllers");
        match root.read(&controllers) {
            Known::Value(_) if self.is_second => Ok(()),
            Known::Unknown(gap) if gap.leaves_a_question() => Err(gap),
            _ => Err(Gap::new(
                Cause::NotSaid,
                absolute(MOUNT),
                "the control group of this process is not visible here",
            )),
        }
    }
}

/// The quotas, the own one first.
pub(crate) fn read_quotas(root: &HostRoot) -> Known<Vec<CpuQuota>> {
    let group = match Group::read(root) {
        Known::Value(group) => group,
        Known::Unknown(gap) => return Known::Unknown(gap),
    };
    quotas_of(root, &group).map_or_else(Known::Unknown, Known::Value)
}

fn quotas_of(root: &HostRoot, group: &Group) -> Result<Vec<CpuQuota>, Gap> {
    let file = if group.is_second {
        "cpu.max"
    } else {
        "cpu.cfs_quota_us"
    };
    let (levels, unread) = group.levels(root, file);
    if levels.is_empty() && unread.is_none() {
        group.is_unlimited(root)?;
    }
    let mut quotas = Vec::new();
    for (above, path, mut text) in levels {
        let folder = path.trim_end_matches(file).to_owned();
        if !group.is_second && text.trim() != "-1" {
            let period = root.read(&format!("{folder}cpu.cfs_period_us"));
            text = format!("{text} {}", period.ok().map_err(Clone::clone)?);
        }
        let quota = match understood(&path, &text, parse_quota) {
            Known::Value(quota) => quota,
            Known::Unknown(gap) => return Err(gap),
        };
        let Some((quota_us, period_us)) = quota else {
            continue;
        };
        let stat = root.read(&format!("{folder}cpu.stat"));
        let counter = |name: &str| {
            stat.clone().and_then(|text| {
                let missing = || Gap::new(Cause::Absent, absolute(&folder), format!("no {name}"));
                let value = parse_stat(&text).get(name).copied();
                value.map_or_else(|| Known::Unknown(missing()), Known::Value)
            })
        };
        quotas.push(CpuQuota {
            above,
            quota_us,
            period_us,
            nr_periods: counter("nr_periods"),
            nr_throttled: counter("nr_throttled"),
            path: absolute(&path),
        });
    }
    // A quota limits the process whatever those are that could not be read.
    match unread {
        Some(gap) if quotas.is_empty() => Err(gap),
        _ => Ok(quotas),
    }
}

/// The counters of each group: its level above the process, the file, and `nr_periods`, `nr_throttled` and
/// `throttled_us`; and why another one could not be read. Groups without a quota never grow, or do not have them.
pub(crate) fn read_throttled(root: &HostRoot) -> (Vec<Counters>, Option<Gap>) {
    let (levels, unread) = match Group::read(root) {
        Known::Value(group) => group.levels(root, "cpu.stat"),
        Known::Unknown(gap) => (Vec::new(), Some(gap)),
    };
    let read = |(above, path, text): Level| (above, path, parse_stat(&text));
    (levels.into_iter().map(read).collect(), unread)
}

/// The lines that are used here: the other controllers' groups tell nothing.
fn used_lines(text: &str) -> String {
    let used: Vec<&str> = text.lines().filter(|line| is_used(line)).collect();
    used.join("\n")
}

fn is_used(line: &str) -> bool {
    let controllers = line.split(':').nth(1);
    controllers.is_some_and(|all| all.is_empty() || all.split(',').any(|name| name == "cpu"))
}

/// `4:cpu,cpuacct:/system.slice` of the first version, `0::/system.slice` of the second. Where both are mounted, the
/// one that has the CPU controller counts.
fn parse(text: &str) -> Result<Group, String> {
    let lines = || text.lines().filter(|line| is_used(line));
    let words = |line: &str| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        Some((controllers.to_owned(), path.to_owned()))
    };
    let all: Vec<(String, String)> = lines().filter_map(words).collect();
    let first = all.iter().find(|(controllers, _)| !controllers.is_empty());
    let (controllers, path) = first.or(all.first()).ok_or("no group has CPUs")?;
    // Outside of this process's namespace of control groups.
    if path.contains("/..") {
        return Err("the group is outside of this namespace".to_owned());
    }
    let is_second = controllers.is_empty();
    let mounts = if is_second {
        vec![MOUNT.to_owned()]
    } else {
        FIRST.map(|name| format!("{MOUNT}/{name}")).to_vec()
    };
    let mut folders = Vec::new();
    let mut path = path.trim_end_matches('/');
    for _ in 0..DEPTH_MAX {
        folders.push(path.to_owned());
        let Some((above, _)) = path.rsplit_once('/') else {
            break;
        };
        path = above;
    }
    Ok(Group {
        mounts,
        folders,
        is_second,
    })
}

/// `20000 100000`: quota and period; `max` or -1 is no quota.
fn parse_quota(text: &str) -> Result<Option<(u64, u64)>, String> {
    let mut words = text.split_whitespace();
    let number = |word: Option<&str>| -> Result<u64, String> {
        let word = word.ok_or("expected a quota and a period")?;
        word.parse().map_err(|error| format!("`{word}`: {error}"))
    };
    match words.next() {
        Some("max" | "-1") => Ok(None),
        quota => match (number(quota)?, number(words.next())?) {
            (_, 0) => Err("the period is 0".to_owned()),
            both => Ok(Some(both)),
        },
    }
}

/// The counters of `cpu.stat`, in microseconds in both versions.
fn parse_stat(stat: &str) -> BTreeMap<String, u64> {
    let one = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        let value: u64 = value.trim().parse().ok()?;
        let (name, value) = match name {
            "nr_periods" | "nr_throttled" => (name, value),
            "throttled_usec" => ("throttled_us", value),
            "throttled_time" => ("throttled_us", value / 1_000),
            _ => return None,
        };
        Some((name.to_owned(), value))
    };
    stat.lines().filter_map(one).collect()
}

/// `/cpu,cpuacct/a/b` below the mount point: the hierarchy, and the path in it.
pub(crate) fn controllers_of(path: &str) -> (&str, &str) {
    for name in FIRST {
        let rest = path
            .strip_prefix('/')
            .and_then(|path| path.strip_prefix(name));
        if let Some(rest) = rest.filter(|rest| rest.is_empty() || rest.starts_with('/')) {
            return path.split_at(path.len() - rest.len());
        }
    }
    ("", path)
}

/// All parsers of a text, for the fuzzer.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn parse_any(text: &str) -> bool {
    parse(&used_lines(text)).is_ok() | parse_quota(text).is_ok() | parse_stat(text).is_empty()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::root::tree::{Entry, Tree};

    fn root(files: &[(&str, &str)]) -> HostRoot {
        let mut tree = Tree::new(true);
        for (path, text) in files {
            let text = (*text).into();
            tree.put(path, Entry::File { mode: 0o444, text });
        }
        HostRoot::in_memory(tree)
    }

    fn quotas(files: &[(&str, &str)]) -> Vec<(u32, u64, u64)> {
        let all = read_quotas(&root(files));
        let all = all.value().expect("quotas").iter();
        all.map(|quota| (quota.above, quota.quota_us, quota.period_us))
            .collect()
    }

    #[test]
    fn a_quota_of_a_group_above_the_process_is_found_in_the_second_version() {
        let files = [
            ("proc/self/cgroup", "0::/user.slice/job"),
            ("sys/fs/cgroup/user.slice/job/cpu.max", "max 100000"),
            ("sys/fs/cgroup/user.slice/cpu.max", "20000 100000"),
            (
                "sys/fs/cgroup/user.slice/cpu.stat",
                "usage_usec 7\nnr_periods 94\nnr_throttled 80\nthrottled_usec 5",
            ),
        ];
        assert_eq!(quotas(&files), [(1, 20_000, 100_000)]);
        let all = read_quotas(&root(&files));
        let quota = &all.value().expect("quotas")[0];
        assert_eq!(quota.nr_throttled, Known::Value(80));
        assert_eq!(quota.path, "/sys/fs/cgroup/user.slice/cpu.max");
    }

    #[test]
    fn the_first_version_is_found_although_its_mount_point_names_the_controllers_in_another_order()
    {
        let own = "4:cpuacct,cpu:/job\n1:name=systemd:/job\n0::/job";
        let folder = "sys/fs/cgroup/cpu,cpuacct/job";
        let (quota, period) = (
            format!("{folder}/cpu.cfs_quota_us"),
            format!("{folder}/cpu.cfs_period_us"),
        );
        let files = |limit| {
            [
                ("proc/self/cgroup", own),
                (quota.as_str(), limit),
                (period.as_str(), "100000"),
            ]
        };
        assert_eq!(quotas(&files("50000")), [(0, 50_000, 100_000)]);
        assert_eq!(quotas(&files("-1")), []);
    }

    #[test]
    fn a_quota_is_found_beside_a_group_that_could_not_be_read() {
        let at = |limit| {
            let mut tree = Tree::new(false);
            for (path, text) in [
                ("proc/self/cgroup", "0::/a/b"),
                ("sys/fs/cgroup/a/b/cpu.max", limit),
            ] {
                let text = text.into();
                tree.put(path, Entry::File { mode: 0o444, text });
            }
            read_quotas(&HostRoot::in_memory(tree))
        };
        assert_eq!(at("5000 10000").value().map(Vec::len), Some(1));
        assert_eq!(
            at("max 10000").gap().map(|gap| gap.cause),
            Some(Cause::NotAsked)
        );
    }

    #[test]
    fn a_group_without_quota_files_has_no_quota_only_where_it_is_visible() {
        let own = ("proc/self/cgroup", "0::/job");
        let hidden = read_quotas(&root(&[own]));
        assert_eq!(hidden.gap().map(|gap| gap.cause), Some(Cause::NotSaid));
        let seen = [own, ("sys/fs/cgroup/job/cgroup.controllers", "memory")];
        assert_eq!(quotas(&seen), []);
        assert_eq!(quotas(&[("proc/self/cgroup", "0::/")]), []);
        let none = read_quotas(&root(&[]));
        assert_eq!(none.gap().map(|gap| gap.cause), Some(Cause::Absent));
        let outside = read_quotas(&root(&[("proc/self/cgroup", "0::/../elsewhere")]));
        assert_eq!(outside.gap().map(|gap| gap.cause), Some(Cause::Unreadable));
    }

    #[test]
    fn throttled_time_of_both_versions_is_in_microseconds() {
        let second = "usage_usec 7\nnr_periods 94\nnr_throttled 80\nthrottled_usec 5000\n";
        let first = "nr_periods 94\nnr_throttled 80\nthrottled_time 5000000\nburst_time x\n";
        for stat in [second, first] {
            let expected = [
                ("nr_periods", 94),
                ("nr_throttled", 80),
                ("throttled_us", 5_000),
            ];
            let expected = expected.map(|(name, value)| (name.to_owned(), value));
            assert_eq!(parse_stat(stat), BTreeMap::from(expected));
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "([0-9]:(cpu)?:/[a./]{0,9}|max|[0-9]{0,21}| |\n){0,6}|.{0,30}") {
            let _ = parse_any(&text);
        }
    }
}
