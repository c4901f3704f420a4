//! How long CPU quotas kept this process's control groups from running: `cpu.stat` of its own group and of those above
//! it (Documentation/admin-guide/cgroup-v2.rst, "CPU"; Documentation/scheduler/sched-bwc.rst for the first version).

use std::collections::BTreeMap;

use linerate_model::known::Known;

use super::Reading;
use crate::root::HostRoot;

const OWN: &str = "proc/self/cgroup";
const MOUNT: &str = "sys/fs/cgroup";
/// Deeper hierarchies are unusual.
const DEPTH_MAX: usize = 16;

/// Adds `cgroup/N/nr_periods`, `nr_throttled` and `throttled_us` of each group. Those without a quota never grow, or are
/// absent.
pub(super) fn read(root: &HostRoot, reading: &mut Reading) {
    let groups = match root.read(OWN) {
        Known::Value(text) => groups(&text),
        Known::Unknown(gap) => return reading.miss("cgroup".to_owned(), gap),
    };
    for (number, folder) in groups.into_iter().enumerate() {
        let path = format!("{folder}/cpu.stat");
        let group = format!("cgroup/{number}");
        reading.take_table(&group, root, &path, |stat| Ok(parse(stat)));
    }
}

/// The folders of the process's group and of those above it that can have a quota, the own one first.
fn groups(text: &str) -> Vec<String> {
    let of_line = |line: &str| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        // The first version has a hierarchy for each controller, the second one has no names.
        let mount = match controllers.split(',').any(|name| name == "cpu") {
            true => format!("{MOUNT}/{controllers}"),
            false if controllers.is_empty() => MOUNT.to_owned(),
            false => return None,
        };
        // Outside of this process's namespace of control groups.
        (!path.contains("/..")).then_some((mount, path.to_owned()))
    };
    let lines: Vec<(String, String)> = text.lines().filter_map(of_line).collect();
    let mut folders = Vec::new();
    for (mount, path) in lines {
        let mut path = path.trim_end_matches('/');
        for _ in 0..DEPTH_MAX {
            folders.push(format!("{mount}{path}"));
            let Some((above, _)) = path.rsplit_once('/') else {
                break;
            };
            path = above;
        }
    }
    folders
}

/// The counters of `cpu.stat`, in microseconds in both versions.
fn parse(stat: &str) -> BTreeMap<String, u64> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_of_both_versions_are_found_with_those_above_them() {
        let second = groups("0::/user.slice/job\n");
        let expected = [
            "sys/fs/cgroup/user.slice/job",
            "sys/fs/cgroup/user.slice",
            "sys/fs/cgroup",
        ];
        assert_eq!(second, expected);
        let first = groups("5:memory:/a\n4:cpu,cpuacct:/a\n0::/\n");
        let expected = [
            "sys/fs/cgroup/cpu,cpuacct/a",
            "sys/fs/cgroup/cpu,cpuacct",
            "sys/fs/cgroup",
        ];
        assert_eq!(first, expected);
        assert_eq!(groups("0::/../elsewhere\nnonsense\n"), Vec::<String>::new());
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
            assert_eq!(parse(stat), BTreeMap::from(expected));
        }
    }
}
