//! The machine's own branches of the map: nodes, CPUs, power, kernel, the programs that change settings.

use std::collections::BTreeSet;

use linerate_analysis::text::visible::visible;
use linerate_analysis::text::words::count;
use linerate_model::host::{Cpu, CpuKind, Host, IdleState, Node, Power};
use linerate_model::ids::CpuSet;
use linerate_model::known::{Cause, Known};

use super::text::{Branch, show, show_with};
use crate::gaps::gaps_of;

/// `48 CPUs (2 packages x 12 cores x 2 threads)`; the plain number where the shape is not even.
pub(super) fn cpus_in_words(host: &Host) -> String {
    let all = count(host.cpus.len(), "CPU");
    let online: Vec<&Cpu> = host
        .cpus
        .iter()
        .filter(|cpu| cpu.online.get() == Some(true))
        .collect();
    let packages: BTreeSet<u32> = online.iter().filter_map(|cpu| cpu.package.get()).collect();
    let cores: BTreeSet<CpuSet> = online
        .iter()
        .filter_map(|cpu| cpu.siblings.value().cloned())
        .collect();
    let (packages, cores) = (packages.len(), cores.len());
    if packages == 0 || cores == 0 || !cores.is_multiple_of(packages) {
        return all;
    }
    let threads = if online.len().is_multiple_of(cores) {
        online.len() / cores
    } else {
        return format!(
            "{all} ({}, {})",
            count(packages, "package"),
            count(cores, "core")
        );
    };
    format!(
        "{all} ({} x {} x {})",
        count(packages, "package"),
        count(cores / packages, "core"),
        count(threads, "thread")
    )
}

/// Nodes, then one line for each known aspect of the machine.
pub(super) fn machine_branches(host: &Host) -> Vec<Branch> {
    let mut all: Vec<Branch> = host
        .nodes
        .iter()
        .map(|node| node_branch(host, node))
        .collect();
    let lines = [
        kinds_line(host),
        power_line(host),
        sleep_line(&host.power),
        isolation_line(host),
        kernel_line(host),
        owners_line(host),
    ];
    all.extend(lines.into_iter().flatten().map(Branch::leaf));
    all
}

fn node_branch(host: &Host, node: &Node) -> Branch {
    let mut text = format!(
        "node {}: CPUs {}, memory {}, distances {}",
        node.id,
        show_with(&node.cpus, |cpus| {
            if cpus.is_empty() {
                "none".to_owned()
            } else {
                cpus.to_string()
            }
        }),
        show(&node.memory_bytes),
        show_with(&node.distances, |all| {
            let words: Vec<String> = all.iter().map(ToString::to_string).collect();
            words.join(" ")
        })
    );
    let caches: BTreeSet<&CpuSet> = host
        .cpus
        .iter()
        .filter(|cpu| cpu.node.get() == Some(node.id))
        .filter_map(|cpu| cpu.last_level_cache.value())
        .collect();
    if caches.len() > 1 {
        text += &format!(", {}", count(caches.len(), "last-level cache"));
    }
    for pages in node.hugepages.value().into_iter().flatten() {
        if pages.total.get().is_some_and(|total| total > 0) {
            text += &format!(
                ", {} huge pages of {}",
                show(&pages.total),
                pages.page_bytes
            );
        }
    }
    Branch::leaf(text)
}

/// The CPUs of each kind, on a hybrid processor only.
fn kinds_line(host: &Host) -> Option<String> {
    let of = |kind: CpuKind| -> CpuSet {
        let all = host.cpus.iter().filter(|cpu| cpu.kind.get() == Some(kind));
        all.map(|cpu| cpu.id).collect()
    };
    let (fast, efficient) = (of(CpuKind::Performance), of(CpuKind::Efficiency));
    (!fast.is_empty() || !efficient.is_empty())
        .then(|| format!("kinds of core: performance CPUs {fast}, efficiency CPUs {efficient}"))
}

fn power_line(host: &Host) -> Option<String> {
    let power = &host.power;
    let mut parts = Vec::new();
    let governors: BTreeSet<&str> = host
        .cpus
        .iter()
        .filter_map(|cpu| cpu.governor.value().map(String::as_str))
        .collect();
    if !governors.is_empty() {
        let words: Vec<String> = governors.into_iter().map(visible).collect();
        parts.push(format!("governor {}", words.join(" and ")));
    }
    if let Some(policy) = power.frequency.value().and_then(|all| all.first()) {
        if let Some(driver) = policy.driver.value() {
            let mode = power
                .pstate_mode
                .value()
                .map(|mode| format!(" {}", visible(mode)));
            parts.push(format!("{}{}", visible(driver), mode.unwrap_or_default()));
        }
        if let Some(preference) = policy.energy_preference.value() {
            parts.push(format!("prefers {}", visible(preference)));
        }
        if let Some(most) = policy.max_khz.get() {
            parts.push(format!("max {} MHz", most / 1000));
        }
    }
    if let Some(turbo) = power.turbo.get() {
        parts.push(format!("turbo {}", if turbo { "on" } else { "off" }));
    }
    if let Some(smt) = power.smt.value() {
        // The kernel's text, split (Documentation/ABI/testing/sysfs-devices-system-cpu).
        parts.push(match smt.as_str() {
            "notsupported" => "no SMT".to_owned(),
            "notimplemented" => "SMT not switchable".to_owned(),
            word => format!("SMT {}", visible(word)),
        });
    }
    (!parts.is_empty()).then(|| format!("power: {}", parts.join(", ")))
}

fn sleep_line(power: &Power) -> Option<String> {
    let states = power.idle_states.value()?;
    let allowed = |state: &&IdleState| {
        let limit = power.latency_limit_us.get().unwrap_or(u32::MAX);
        state
            .exit_latency_us
            .get()
            .is_some_and(|latency| latency <= limit)
    };
    let deepest = states.iter().rev().find(allowed)?;
    let driver = power.idle_driver.value().map_or("?", String::as_str);
    Some(format!(
        "cpuidle: {}, deepest state {} (exit latency {} us)",
        visible(driver),
        visible(&deepest.name),
        show(&deepest.exit_latency_us)
    ))
}

fn isolation_line(host: &Host) -> Option<String> {
    let sets = [
        ("offline", &host.isolation.offline),
        ("isolated", &host.isolation.isolated),
        ("nohz_full", &host.isolation.nohz_full),
    ];
    let parts: Vec<String> = sets
        .into_iter()
        .filter_map(|(name, set)| {
            let set = set.value().filter(|set| !set.is_empty())?;
            Some(format!("{name} {set}"))
        })
        .collect();
    (!parts.is_empty()).then(|| format!("isolated CPUs: {}", parts.join(", ")))
}

fn kernel_line(host: &Host) -> Option<String> {
    let kernel = &host.kernel;
    let mut parts = Vec::new();
    if let Some(clock) = kernel.clocksource.value() {
        parts.push(format!("clocksource {}", visible(clock)));
    }
    if let Some(all) = kernel.mitigations.value().filter(|all| !all.is_empty()) {
        let active = all.values().filter(|text| text.starts_with("Mitigation"));
        parts.push(match active.count() {
            0 => "no active CPU mitigations".to_owned(),
            some => count(some, "active CPU mitigation"),
        });
    }
    if let Some(pages) = kernel.transparent_hugepages.value() {
        parts.push(format!("transparent huge pages {}", visible(pages)));
    }
    let guest = kernel.hypervisor.value().filter(|name| *name != "none");
    parts.extend(guest.map(|name| format!("guest on {}", visible(name))));
    // A physical machine has no steal time, unless the kernel reports so.
    let steal = &kernel.steal_ppm;
    if guest.is_some() || steal.get().is_some_and(|ppm| ppm > 0) {
        parts.push(format!(
            "{} steal time since boot",
            show_with(steal, |ppm| steal_text(*ppm))
        ));
    }
    (!parts.is_empty()).then(|| format!("kernel: {}", parts.join(", ")))
}

/// A share of CPU time in percent; what is too small to be seen is not nothing.
fn steal_text(ppm: u32) -> String {
    match ppm {
        0 => "0 %".to_owned(),
        1..100 => "under 0.01 %".to_owned(),
        ppm => format!("{}.{:02} %", ppm / 10_000, ppm / 100 % 100),
    }
}

fn owners_line(host: &Host) -> Option<String> {
    let owners = host.software.owners.value()?;
    let words: Vec<String> = owners
        .iter()
        .map(|owner| match &owner.detail {
            Some(detail) => format!("{} ({})", visible(&owner.name), visible(detail)),
            None => visible(&owner.name),
        })
        .collect();
    (!words.is_empty()).then(|| format!("daemons that change settings: {}", words.join(", ")))
}

/// How much more root would see, when it would.
pub(super) fn denied(host: &Host) -> Option<Branch> {
    let gaps = gaps_of(host, Cause::Denied);
    let places: BTreeSet<&str> = gaps.iter().map(|gap| gap.path.as_str()).collect();
    (!places.is_empty()).then(|| {
        Branch::leaf(format!(
            "root would also see {} (`map --why` lists them)",
            count(places.len(), "place")
        ))
    })
}

/// Whether a fact is known and true.
pub(super) fn is_on(fact: &Known<bool>) -> bool {
    fact.get() == Some(true)
}

#[cfg(test)]
mod tests {
    use linerate_model::build;

    use super::*;

    #[test]
    fn active_mitigations_are_counted_and_none_is_a_word() {
        let line = |text: &str| {
            let mut host = build::host().build();
            let one = ("spectre_v2".to_owned(), text.to_owned());
            host.kernel.mitigations = Known::Value([one].into());
            kernel_line(&host).unwrap_or_default()
        };
        assert!(line("Mitigation: Retpolines").contains("1 active CPU mitigation"));
        assert!(line("Not affected").contains("no active CPU mitigations"));
    }

    #[test]
    fn stolen_time_is_told_of_guests_and_of_whoever_loses_some() {
        let line = |hypervisor: &str, steal: Known<u32>| {
            let mut host = build::host().build();
            host.kernel.hypervisor = Known::Value(hypervisor.to_owned());
            host.kernel.steal_ppm = steal;
            kernel_line(&host).unwrap_or_default()
        };
        let gap = || Known::unknown(Cause::Unreadable, "/proc/stat", "no line of all CPUs");
        assert!(!line("none", Known::Value(0)).contains("steal"));
        assert!(!line("none", gap()).contains("steal"));
        assert!(line("none", Known::Value(7)).contains(", under 0.01 % steal time"));
        assert!(line("KVM", Known::Value(0)).contains("guest on KVM, 0 % steal time"));
        assert!(line("KVM", Known::Value(123_456)).contains(" 12.34 % steal"));
        assert!(line("KVM", gap()).contains("? (unreadable) steal time"));
    }
}
