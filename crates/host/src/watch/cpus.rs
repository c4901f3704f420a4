//! The counters of CPUs: `/proc/net/softnet_stat`, `/proc/stat`, throttling
//! (`thermal_throttle`, Documentation/ABI/testing/sysfs-devices-system-cpu) and idle states
//! (Documentation/admin-guide/pm/cpuidle.rst).

use linerate_model::host::Host;
use linerate_model::ids::{CpuId, CpuSet};
use linerate_model::known::{Cause, Gap, Known};

use super::Reading;
use crate::attributes::{numbered, parsed, understood};
use crate::procfs::softnet::{SoftnetLine, parse_softnet};
use crate::procfs::stat::{parse_stat, parse_switches};
use crate::root::{HostRoot, absolute};

const SOFTNET: &str = "proc/net/softnet_stat";
const STAT: &str = "proc/stat";
const CPUS: &str = "sys/devices/system/cpu";

/// There are three files for each idle state, and about ten states per CPU: above this many CPUs only those that
/// serve a NIC's queues are read.
const IDLE_CPUS_MAX: usize = 32;

pub(super) fn read(root: &HostRoot, host: &Host, reading: &mut Reading) {
    let queues = host.nics.iter().flat_map(|nic| &nic.queues);
    let serving = queues.filter_map(|queue| queue.cpus.value());
    let serves = |cpu: &CpuId| serving.clone().any(|cpus| cpus.contains(*cpu));
    read_of(root, &host.online_cpus(), serves, reading);
}

/// Reads the counters of the CPUs `online`; if there are many, the idle states of those in `of_interest` only.
pub(super) fn read_of(
    root: &HostRoot,
    online: &CpuSet,
    of_interest: impl Fn(&CpuId) -> bool,
    reading: &mut Reading,
) {
    read_softnet(root, online, reading);
    read_times(root, online, reading);
    read_throttling(root, online, reading);
    read_idle(root, online, of_interest, reading);
}

fn read_softnet(root: &HostRoot, online: &CpuSet, reading: &mut Reading) {
    let lines = match parsed(root, SOFTNET, parse_softnet) {
        Known::Value(lines) => lines,
        Known::Unknown(gap) => return miss_each(online, "softnet", &gap, reading),
    };
    let in_order: Vec<CpuId> = online.iter().collect();
    for (at, line) in lines.iter().enumerate() {
        // Kernels before 5.10 do not print the CPU; their lines are those of the online CPUs in order.
        let by_order = (lines.len() == in_order.len()).then(|| in_order.get(at).copied());
        let Some(cpu) = line.cpu.get().or(by_order.flatten()) else {
            let why = "the kernel does not show which CPU a line belongs to";
            let gap = Gap::new(Cause::NotSaid, absolute(SOFTNET), why);
            return miss_each(online, "softnet", &gap, reading);
        };
        take_softnet(cpu, line, reading);
    }
}

/// Records that one group of counters is missing on every CPU.
fn miss_each(online: &CpuSet, group: &str, gap: &Gap, reading: &mut Reading) {
    for cpu in online.iter() {
        reading
            .gaps
            .insert(format!("cpu/{cpu}/{group}"), gap.clone());
    }
}

fn take_softnet(cpu: CpuId, line: &SoftnetLine, reading: &mut Reading) {
    let counters = [
        ("processed", Some(line.processed)),
        ("dropped", Some(line.dropped)),
        ("time_squeeze", Some(line.time_squeeze)),
        ("received_rps", line.received_rps.get()),
        ("flow_limit", line.flow_limit.get()),
    ];
    for (name, value) in counters {
        if let Some(value) = value {
            let key = format!("cpu/{cpu}/softnet/{name}");
            reading.take(key, value.into(), SOFTNET);
        }
    }
}

/// iowait can go backwards, but its sum with idle cannot.
fn read_times(root: &HostRoot, online: &CpuSet, reading: &mut Reading) {
    let text = root.read(STAT);
    let cpus = text
        .clone()
        .and_then(|text| understood(STAT, &text, parse_stat));
    if let Some(switches) = text.value().and_then(|text| parse_switches(text)) {
        reading.take("stat/ctxt".to_owned(), switches, STAT);
    }
    let cpus = match cpus {
        Known::Value(cpus) => cpus,
        Known::Unknown(gap) => return miss_each(online, "time", &gap, reading),
    };
    // USER_HZ is 100 on every architecture that a captured host may come from.
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    for (cpu, ticks) in cpus {
        let times = [
            ("user", ticks.user.saturating_add(ticks.nice)),
            ("system", ticks.system),
            ("irq", ticks.irq),
            ("softirq", ticks.softirq),
            ("steal", ticks.steal),
            ("idle", ticks.idle.saturating_add(ticks.iowait)),
        ];
        for (name, ticks) in times {
            let key = format!("cpu/{cpu}/time/{name}");
            reading.take(key, ticks.saturating_mul(tick_ns), STAT);
        }
    }
}

fn read_throttling(root: &HostRoot, online: &CpuSet, reading: &mut Reading) {
    // One CPU shows for all whether the processor has the counter.
    let first = online
        .first()
        .map(|cpu| format!("{CPUS}/cpu{cpu}/thermal_throttle"));
    if first.is_none_or(|folder| root.list(&folder).value().is_none()) {
        return;
    }
    for cpu in online.iter() {
        for name in ["core", "package"] {
            let path = format!("{CPUS}/cpu{cpu}/thermal_throttle/{name}_throttle_count");
            reading.take_file(format!("cpu/{cpu}/throttle/{name}"), root, &path);
        }
    }
}

fn read_idle(
    root: &HostRoot,
    online: &CpuSet,
    of_interest: impl Fn(&CpuId) -> bool,
    reading: &mut Reading,
) {
    let all_fit = online.len() <= IDLE_CPUS_MAX;
    let cpus = online.iter().filter(|cpu| all_fit || of_interest(cpu));
    for cpu in cpus.take(IDLE_CPUS_MAX) {
        let folder = format!("{CPUS}/cpu{cpu}/cpuidle");
        let Known::Value(names) = root.list(&folder) else {
            continue;
        };
        for state in numbered(&names, "state") {
            let at = format!("{folder}/state{state}");
            let Known::Value(name) = root.read(&format!("{at}/name")) else {
                continue;
            };
            let prefix = format!("cpu/{cpu}/idle/{name}");
            reading.take_file(format!("{prefix}/time_us"), root, &format!("{at}/time"));
            reading.take_file(format!("{prefix}/usage"), root, &format!("{at}/usage"));
        }
    }
}
