//! The threads of the kernel that take the submissions of io_urings (`SQPOLL`). Each is a task of this
//! process, next to the data thread that made the ring, and its time is in none of our counters.

use linerate_model::ids::CpuId;
use linerate_model::units::Nanoseconds;

use crate::sys::ThreadUse;

/// The tasks of this process.
const TASKS: &str = "/proc/self/task";
/// A kernel's ticks are reported in units of this many per second, whatever its own (`USER_HZ`).
const TICKS_PER_S: u64 = 100;

/// One such thread, at one point in time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Poller {
    task: u32,
    pub(super) used: ThreadUse,
    pub(super) cpu: Option<CpuId>,
}

impl Poller {
    /// As it is now; `None` when it is gone.
    pub(super) fn of(task: u32) -> Option<Self> {
        read(task)
    }

    /// The same now, with what it used since; `None` when it is gone.
    pub(super) fn since(&self) -> Option<Self> {
        let now = read(self.task)?;
        Some(Self {
            used: now.used.since(self.used),
            ..now
        })
    }
}

/// The tasks that poll the calling thread's rings: the kernel names them after it. None where it is known by
/// another number outside (a PID namespace), or where `/proc` is not to be read.
pub(super) fn of_this_thread() -> Vec<u32> {
    let name = format!(
        "iou-sqp-{}\n",
        rustix::thread::gettid().as_raw_nonzero().get()
    );
    #[expect(
        clippy::disallowed_methods,
        reason = "the kernel's account of this process, not of the host"
    )]
    let Ok(tasks) = std::fs::read_dir(TASKS) else {
        return Vec::new();
    };
    let tasks = tasks.filter_map(|task| task.ok()?.file_name().to_str()?.parse().ok());
    let named = tasks.filter(|task| text(*task, "comm").is_some_and(|comm| comm == name));
    named.collect()
}

fn text(task: u32, file: &str) -> Option<String> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the kernel's account of this process, not of the host"
    )]
    std::fs::read_to_string(format!("{TASKS}/{task}/{file}")).ok()
}

/// What task `task` used since it began: all of it is the kernel's, so it is system time.
fn read(task: u32) -> Option<Poller> {
    let stat = Stat::parse(&text(task, "stat")?)?;
    let status = text(task, "status").unwrap_or_default();
    let switches = |kind: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(kind));
        line.and_then(|count| count.trim().parse().ok())
            .unwrap_or(0)
    };
    // In nanoseconds where the kernel keeps such an account (CONFIG_SCHED_INFO), else in ticks.
    let schedstat = text(task, "schedstat");
    let exact = schedstat.and_then(|text| {
        let mut numbers = text.split_whitespace().map(str::parse);
        let (ran, waited) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        // A kernel without this accounting reports 0 for every task.
        (ran > 0).then_some((Nanoseconds::new(ran), Nanoseconds::new(waited)))
    });
    Some(Poller {
        task,
        cpu: stat.cpu,
        used: ThreadUse {
            user: Nanoseconds::default(),
            system: exact.map_or(stat.ran, |(ran, _)| ran),
            voluntary_switches: switches("voluntary_ctxt_switches:"),
            involuntary_switches: switches("nonvoluntary_ctxt_switches:"),
            waited_for_cpu: exact.map(|(_, waited)| waited),
            minor_faults: stat.minor_faults,
            major_faults: stat.major_faults,
        },
    })
}

/// What is used of `/proc/PID/stat` (proc_pid_stat(5)).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    minor_faults: u64,
    major_faults: u64,
    ran: Nanoseconds,
    cpu: Option<CpuId>,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name in parentheses may hold anything.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        // The first of these is field 3 of the manual.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let ticks = field(14)?.saturating_add(field(15)?);
        Some(Self {
            minor_faults: field(10)?,
            major_faults: field(12)?,
            ran: Nanoseconds::new(ticks.saturating_mul(1_000_000_000 / TICKS_PER_S)),
            cpu: field(39).and_then(|cpu| u32::try_from(cpu).ok()).map(CpuId),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_a_task_are_those_of_the_manual_whatever_its_name() {
        let text = "812 (iou-sqp-8) 11) R 1 2 3 0 -1 4194624 7 0 2 0 5 37 0 0 20 0 3 0 99 100 200 \
                    18446744073709551615 0 0 0 0 0 0 0 4096 0 1 0 0 17 6 0 0 0";
        assert_eq!(
            Stat::parse(text),
            Some(Stat {
                minor_faults: 7,
                major_faults: 2,
                ran: Nanoseconds::from_millis(420),
                cpu: Some(CpuId(6)),
            })
        );
        assert_eq!(Stat::parse("812 (x) R 1 2"), None);
        assert_eq!(Stat::parse(""), None);
    }
}
