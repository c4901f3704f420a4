//! Power management, isolation, kernel and software of a machine for tests, all healthy.

use std::collections::BTreeMap;

use crate::host::{
    FrequencyPolicy, IdleState, Isolation, Kernel, Limit, Power, Process, Routing, Software,
};
use crate::ids::CpuSet;
use crate::known::{Cause, Known};

fn text(word: &str) -> Known<String> {
    Known::Value(word.to_owned())
}

fn absent<T>(file: &str) -> Known<T> {
    Known::unknown(Cause::Absent, file, "no such file")
}

pub(super) fn power() -> Power {
    let none = || Known::Value(CpuSet::empty());
    let idle = |name: &str, exit_latency_us: u32| IdleState {
        name: name.to_owned(),
        exit_latency_us: Known::Value(exit_latency_us),
        disabled_on: none(),
    };
    Power {
        frequency: Known::Value(vec![FrequencyPolicy {
            number: Known::Value(0),
            cpus: none(),
            driver: text("intel_pstate"),
            governor: text("performance"),
            energy_preference: text("performance"),
            min_khz: Known::Value(1_200_000),
            max_khz: Known::Value(3_600_000),
            hardware_max_khz: Known::Value(3_600_000),
            base_khz: Known::Value(3_000_000),
            available_max_khz: absent("scaling_available_frequencies"),
            highest_perf: absent("acpi_cppc/highest_perf"),
            nominal_perf: absent("acpi_cppc/nominal_perf"),
        }]),
        turbo: Known::Value(true),
        pstate_mode: text("active"),
        pstate_max_percent: Known::Value(100),
        smt: text("off"),
        idle_driver: text("intel_idle"),
        idle_states: Known::Value(vec![idle("POLL", 0), idle("C1", 2), idle("C1E", 10)]),
        latency_limit_us: Known::Value(2_000_000_000),
    }
}

pub(super) fn isolation() -> Isolation {
    let none = || Known::Value(CpuSet::empty());
    Isolation {
        isolated: none(),
        nohz_full: none(),
        offline: none(),
        default_irq_cpus: none(),
        workqueue_cpus: none(),
    }
}

pub(super) fn kernel() -> Kernel {
    Kernel {
        clocksource: text("tsc"),
        clocksources: Known::Value(vec!["tsc".to_owned(), "hpet".to_owned()]),
        mitigations: Known::Value(BTreeMap::from([(
            "meltdown".to_owned(),
            "Not affected".to_owned(),
        )])),
        transparent_hugepages: text("madvise"),
        transparent_hugepages_defrag: text("madvise"),
        hypervisor: text("none"),
        steal_ppm: Known::Value(0),
        locked_memory: Known::Value(Limit::Unlimited),
        aspm_policy: text("performance"),
        tcp_memory_pages: Known::Value(3),
        udp_memory_pages: Known::Value(2),
    }
}

pub(super) fn process() -> Process {
    Process {
        cpus_allowed: Known::Value(CpuSet::empty()),
        cpu_quotas: Known::Value(Vec::new()),
    }
}

pub(super) fn routing() -> Routing {
    Routing {
        routes: Known::Value(Vec::new()),
        groups: Known::Value(Vec::new()),
        neighbor_timers: Vec::new(),
    }
}

pub(super) fn software() -> Software {
    Software {
        owners: Known::Value(Vec::new()),
        taps: Known::Value(Vec::new()),
        conntrack: Known::unknown(
            Cause::Absent,
            "/proc/sys/net/netfilter/nf_conntrack_count",
            "connection tracking is not loaded",
        ),
        sysctl_lines: Known::Value(Vec::new()),
        nfs_mounts: Known::Value(Vec::new()),
        socket_owners: Known::Value(Vec::new()),
    }
}
