//! Taking CPUs offline and online: what the kernel changes along with them.
//!
//! Sources: `migrate_one_irq`, kernel/irq/cpuhotplug.c (an interrupt whose CPUs are all offline moves to all online
//! CPUs and stays there; one with a remaining CPU keeps its configured affinity; a managed one is shut down and comes
//! back by itself); `cpufreq_offline`, drivers/cpufreq/cpufreq.c (the last CPU of a policy takes its governor along;
//! it comes back, but a driver's energy preference may not); `cpuhp_smt_disable` and `cpuhp_smt_enable`, kernel/cpu.c
//! (`off` takes all but the first SMT sibling of each core offline, `on` brings every present CPU online). RPS and
//! XPS masks are kept: an offline CPU is skipped per packet. A thread's affinity is lost if all of its CPUs go
//! offline (`select_fallback_rq`, kernel/sched/core.c), which is why the class is R4.

use linerate_model::ids::{CpuId, CpuSet, IrqNumber};
use linerate_model::known::{Cause, Gap};
use linerate_model::setting::{CpuKnob, MachineKnob, NicKnob, PolicyKnob, SettingKey};

use crate::nic_control::NicRead;
use crate::root::HostRoot;
use crate::sysfs::nics::irqs_of_queues;

const CPUS: &str = "sys/devices/system/cpu";

/// Why this machine rejects `text` for `key`, if that is known in advance.
pub(super) fn refusal(root: &HostRoot, key: &SettingKey, text: &str) -> Option<&'static str> {
    if *key != SettingKey::Machine(MachineKnob::Smt) {
        return None;
    }
    let control = root.read(&format!("{CPUS}/smt/control"));
    match control.value().map(String::as_str) {
        Some("notsupported") => Some("the CPUs have one thread for each core"),
        Some("notimplemented") => Some("this kernel cannot switch it on this architecture"),
        Some("forceoff") => Some("it was switched off until the next boot"),
        // POWER also accepts the number of SMT siblings per core.
        _ if ["on", "off"].contains(&text) || text.parse::<u32>().is_ok() => None,
        _ => Some("only `on` and `off` can be rolled back"),
    }
}

/// Advice for a cpufreq policy that cannot be read or written because all of its CPUs are offline (`show` and
/// `store`, drivers/cpufreq/cpufreq.c, return EBUSY).
pub(super) fn out_of_use(root: &HostRoot, key: &SettingKey, gap: &Gap) -> Option<Gap> {
    let SettingKey::Policy(number, _) = key else {
        return None;
    };
    let switch = format!("{CPUS}/cpu{number}/online");
    let is_off = root.read(&switch).value().map(|text| text.trim()) == Some("0");
    (is_off && gap.cause == Cause::Unreadable).then(|| Gap {
        reason: format!("CPU {number} is out of use: `echo 1 >/{switch}` brings it back"),
        ..gap.clone()
    })
}

/// The side effects of switching SMT. In either direction: `on` also brings CPUs online that the user took offline.
pub(super) fn disturbed_by_smt(root: &HostRoot, nics: &dyn NicRead) -> Vec<SettingKey> {
    let names = root.list(CPUS);
    let numbers = names.value().into_iter().flatten();
    let cpus = numbers.filter_map(|name| name.strip_prefix("cpu")?.parse().ok().map(CpuId));
    let cpus: Vec<CpuId> = cpus.collect();
    let going: CpuSet = cpus
        .iter()
        .copied()
        .filter(|cpu| is_second(root, *cpu))
        .collect();
    // A CPU that cannot go offline has no such file; usually the first.
    let is_movable = |cpu: &CpuId| root.exists(&format!("{CPUS}/cpu{}/online", cpu.0));
    let movable = cpus.into_iter().filter(is_movable);
    let mut keys: Vec<SettingKey> = movable
        .map(|cpu| SettingKey::Cpu(cpu, CpuKnob::Online))
        .collect();
    keys.extend(going.iter().flat_map(|cpu| policy_of(root, cpu)));
    keys.extend(interrupts_only_of(root, nics, &going));
    keys
}

/// The side effects of taking one CPU offline.
pub(super) fn disturbed_by_offline(
    root: &HostRoot,
    nics: &dyn NicRead,
    cpu: CpuId,
) -> Vec<SettingKey> {
    let mut keys = policy_of(root, cpu);
    keys.extend(interrupts_only_of(root, nics, &CpuSet::from_iter([cpu])));
    keys
}

/// Whether a CPU is not the first SMT sibling of its core.
fn is_second(root: &HostRoot, cpu: CpuId) -> bool {
    let siblings = root.read(&format!(
        "{CPUS}/cpu{}/topology/thread_siblings_list",
        cpu.0
    ));
    let siblings: Option<CpuSet> = siblings.value().and_then(|text| text.trim().parse().ok());
    let first = siblings
        .as_ref()
        .and_then(|siblings| siblings.iter().next());
    first.is_some_and(|first| first != cpu)
}

/// The frequency settings of a CPU's cpufreq policy.
fn policy_of(root: &HostRoot, cpu: CpuId) -> Vec<SettingKey> {
    let link = root.link(&format!("{CPUS}/cpu{}/cpufreq", cpu.0));
    let number = link.value().and_then(|link| {
        let name = link.rsplit('/').next()?;
        name.strip_prefix("policy")?.parse().ok()
    });
    let knobs = [PolicyKnob::Governor, PolicyKnob::EnergyPreference];
    let key = |number| knobs.map(|knob| SettingKey::Policy(number, knob));
    number.map_or_else(Vec::new, |number| key(number).to_vec())
}

/// The interrupts without an online CPU left once `going` are offline, each by the queue that it serves, so that a
/// plan that places the queue recognizes it, or by its number.
fn interrupts_only_of(root: &HostRoot, nics: &dyn NicRead, going: &CpuSet) -> Vec<SettingKey> {
    let cpus_of = |path: &str| -> Option<CpuSet> { root.read(path).value()?.trim().parse().ok() };
    let online = cpus_of(&format!("{CPUS}/online"));
    let is_left = |cpu: CpuId| {
        let is_online = online.as_ref().is_none_or(|online| online.contains(cpu));
        is_online && !going.contains(cpu)
    };
    let numbers = root.list("proc/irq");
    let numbers = numbers.value().into_iter().flatten();
    let mut moved: Vec<IrqNumber> = numbers
        .filter_map(|name| name.parse().ok().map(IrqNumber))
        .filter(|number| {
            let asked = cpus_of(&format!("proc/irq/{number}/smp_affinity_list"));
            asked.is_some_and(|asked| !asked.is_empty() && !asked.iter().any(is_left))
        })
        .collect();
    if moved.is_empty() {
        return Vec::new();
    }
    let mut keys = Vec::new();
    let names = root.list("sys/class/net");
    for name in names.value().into_iter().flatten() {
        let Ok(nic) = name.parse() else { continue };
        for ((kind, index), irq) in irqs_of_queues(root, nics, &nic) {
            let Some(at) = moved.iter().position(|own| irq.get() == Some(*own)) else {
                continue;
            };
            moved.remove(at);
            keys.push(SettingKey::Nic(nic.clone(), NicKnob::IrqCpus(kind, index)));
        }
    }
    keys.extend(moved.into_iter().map(SettingKey::IrqCpus));
    keys
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::apply::fake::NoNics;

    /// Two cores with two SMT siblings each; the second core's second one is offline.
    fn machine() -> (tempfile::TempDir, HostRoot) {
        let folder = tempfile::tempdir().expect("a folder for the captured host");
        let cpus = "sys/devices/system/cpu";
        for (path, text) in [
            ("online", "0-2"),
            ("smt/control", "on"),
            ("cpu0/topology/thread_siblings_list", "0,2"),
            ("cpu1/topology/thread_siblings_list", "1,3"),
            ("cpu2/topology/thread_siblings_list", "0,2"),
            ("cpu1/online", "1"),
            ("cpu2/online", "1"),
            ("cpu3/online", "0"),
        ]
        .map(|(path, text)| (format!("{cpus}/{path}"), text))
        .into_iter()
        .chain(
            [
                ("7", "2"),
                ("8", "0-3"),
                ("9", "2-3"),
                ("10", "1"),
                ("11", "1,3"),
            ]
            .map(|(irq, text)| (format!("proc/irq/{irq}/smp_affinity_list"), text)),
        ) {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        let link = folder.path().join(cpus).join("cpu2/cpufreq");
        symlink("../cpufreq/policy2", link).expect("a link");
        let root = HostRoot::open(folder.path()).expect("the folder that was just made");
        (folder, root)
    }

    fn words(keys: &[SettingKey]) -> Vec<String> {
        keys.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_cpu_that_goes_takes_along_its_frequency_and_the_interrupts_that_named_no_other() {
        let (_folder, root) = machine();
        let keys = disturbed_by_offline(&root, &NoNics, CpuId(2));
        assert_eq!(
            words(&keys),
            [
                "cpu/policy2/governor",
                "cpu/policy2/energy-preference",
                "irq/7/cpus",
                "irq/9/cpus",
            ]
        );
        let keys = disturbed_by_offline(&root, &NoNics, CpuId(1));
        assert_eq!(words(&keys), ["irq/10/cpus", "irq/11/cpus"]);
    }

    #[test]
    fn multithreading_takes_the_second_threads_and_brings_back_every_cpu() {
        let (_folder, root) = machine();
        let keys = words(&disturbed_by_smt(&root, &NoNics));
        assert_eq!(
            keys,
            [
                "cpu/cpu1/online",
                "cpu/cpu2/online",
                "cpu/cpu3/online",
                "cpu/policy2/governor",
                "cpu/policy2/energy-preference",
                "irq/7/cpus",
                "irq/9/cpus",
            ]
        );
    }

    #[test]
    fn multithreading_is_not_switched_where_it_could_not_be_switched_back() {
        let (folder, root) = machine();
        let smt = SettingKey::Machine(MachineKnob::Smt);
        let control = folder.path().join("sys/devices/system/cpu/smt/control");
        assert_eq!(refusal(&root, &smt, "off"), None);
        assert!(refusal(&root, &smt, "forceoff").is_some());
        for state in ["forceoff", "notsupported", "notimplemented"] {
            fs::write(&control, state).expect("a file");
            assert!(refusal(&root, &smt, "off").is_some(), "{state}");
        }
        assert_eq!(
            refusal(&root, &SettingKey::Cpu(CpuId(1), CpuKnob::Online), "0"),
            None
        );
    }
}
