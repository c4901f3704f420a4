//! The processes below another one, and the CPU time that they used. Source: proc_pid_stat(5).

use std::collections::{BTreeMap, BTreeSet};
use std::{fs, io};

use linerate_model::units::Nanoseconds;
use rustix::param::clock_ticks_per_second;

use crate::apply::identity::ProcessStat;

/// User and system time. The kernel counts it in clock ticks of 10 ms for other processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuUse {
    /// User time.
    pub user: Nanoseconds,
    /// System time.
    pub system: Nanoseconds,
}

impl CpuUse {
    /// What was used since an earlier reading.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        let less = |now: Nanoseconds, then: Nanoseconds| {
            Nanoseconds::new(now.as_u64().saturating_sub(then.as_u64()))
        };
        Self {
            user: less(self.user, earlier.user),
            system: less(self.system, earlier.system),
        }
    }
}

/// A process as it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    parent: u32,
    /// Ended, and not waited for.
    is_zombie: bool,
    /// Its own ticks, user and system.
    own: [u64; 2],
    /// Those of its children that were waited for.
    waited_for: [u64; 2],
}

impl Seen {
    fn parse(stat: &str) -> Option<Self> {
        let identity = ProcessStat::parse(stat)?;
        let (_, fields) = stat.rsplit_once(')')?;
        // utime, stime, cutime and cstime are fields 14 to 17; what follows the name is field 3.
        let times = fields.split_ascii_whitespace().skip(14 - 3).take(4);
        let times: Vec<u64> = times.filter_map(|time| time.parse().ok()).collect();
        let &[user, system, user_waited, system_waited] = times.as_slice() else {
            return None;
        };
        Some(Self {
            parent: identity.parent,
            is_zombie: "ZXx".contains(identity.state),
            own: [user, system],
            waited_for: [user_waited, system_waited],
        })
    }
}

/// The living processes below `pid`: its children, their children and so on.
pub fn descendants(pid: u32) -> io::Result<Vec<u32>> {
    let all = all()?;
    let below = below(pid, &all).into_iter();
    let lives = |pid: &u32| all.get(pid).is_some_and(|seen| !seen.is_zombie);
    Ok(below.filter(lives).collect())
}

/// The CPU time of the processes below `pid`, including those that have ended and that a process of this tree has
/// waited for.
pub fn cpu_use_below(pid: u32) -> io::Result<CpuUse> {
    let all = all()?;
    let [user, system] = ticks_below(pid, &all);
    let per_s = clock_ticks_per_second().max(1);
    let time = |ticks: u64| Nanoseconds::new(ticks.saturating_mul(1_000_000_000 / per_s));
    Ok(CpuUse {
        user: time(user),
        system: time(system),
    })
}

fn ticks_below(pid: u32, all: &BTreeMap<u32, Seen>) -> [u64; 2] {
    let ended = all.get(&pid).map(|seen| seen.waited_for);
    let below = below(pid, all);
    let living = below.iter().filter_map(|pid| all.get(pid));
    let living = living.flat_map(|seen| [seen.own, seen.waited_for]);
    living
        .chain(ended)
        .fold([0, 0], |sum, one| [sum[0] + one[0], sum[1] + one[1]])
}

/// All processes. One that ends meanwhile is left out.
fn all() -> io::Result<BTreeMap<u32, Seen>> {
    // tidy: the processes of this machine at this moment, which no captured host has
    let entries = fs::read_dir("/proc")?;
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let read = |pid: u32| {
        // tidy: as above
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((pid, Seen::parse(&stat)?))
    };
    Ok(pids.filter_map(read).collect())
}

fn below(pid: u32, all: &BTreeMap<u32, Seen>) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        let children = all.iter().filter(|(_, seen)| seen.parent == parent);
        for (&child, _) in children {
            if found.insert(child) {
                parents.push(child);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(name: &str, state: char, parent: u32, ticks: [u64; 4]) -> Seen {
        let [a, b, c, d] = ticks;
        let text = format!(
            "7 ({name}) {state} {parent} 7 7 0 -1 4194560 1 2 3 4 {a} {b} {c} {d} 20 0 1 0 99 1 2"
        );
        Seen::parse(&text).expect("a stat line")
    }

    #[test]
    fn a_tree_is_all_processes_below_one_and_nobody_else() {
        let all = BTreeMap::from([
            (10, stat("keeper", 'S', 1, [100, 100, 5, 6])),
            (11, stat("sh) S 1 (", 'S', 10, [1, 2, 3, 4])),
            (12, stat("worker", 'R', 11, [10, 20, 0, 0])),
            (13, stat("gone", 'Z', 11, [7, 8, 0, 0])),
            (14, stat("other", 'S', 1, [1_000, 1_000, 0, 0])),
        ]);
        assert_eq!(below(10, &all), BTreeSet::from([11, 12, 13]));
        // The time of the first process itself is not included.
        assert_eq!(
            ticks_below(10, &all),
            [1 + 3 + 10 + 7 + 5, 2 + 4 + 20 + 8 + 6]
        );
    }

    #[test]
    fn a_line_that_ends_early_is_no_process() {
        assert_eq!(Seen::parse("7 (x) S 1 7 7 0 -1 4194560 1 2 3 4 5 6"), None);
    }

    #[test]
    fn this_process_is_below_its_parent() {
        let parent = rustix::process::getppid().expect("a parent");
        let parent = u32::try_from(parent.as_raw_nonzero().get()).expect("positive");
        let found = descendants(parent).expect("proc is mounted");
        assert!(found.contains(&std::process::id()));
    }
}
