//! Cases of the machine: CPUs, power, clocks, memory, disks, sockets, programs.

use linerate_model::finding::{Profile, Severity};

use super::super::archives::Edit;
use super::{Case, Expect, NEAR, SERVER, VM, advice, case, mended, used_for};

const ISOLATED: &str = "sys/devices/system/cpu/isolated";
const GOVERNOR: &str = "sys/devices/system/cpu/cpufreq/policy5/scaling_governor";
const CLOCK: &str = "sys/devices/system/clocksource/clocksource0/current_clocksource";
const RECLAIM: &str = "proc/sys/vm/zone_reclaim_mode";
const SCHEDULER: &str = "sys/block/nvme0n1/queue/scheduler";
const IDLE: &str = "proc/sys/net/ipv4/tcp_slow_start_after_idle";
const SCALING: &str = "proc/sys/net/ipv4/tcp_window_scaling";
const ENTRIES: &str = "proc/sys/net/core/rps_sock_flow_entries";
const FLOWS: &str = "sys/class/net/eth2/queues/rx-0/rps_flow_cnt";
const TRACKED_MAX: &str = "proc/sys/net/netfilter/nf_conntrack_max";
const SYSCTL_CONF: &str = "etc/sysctl.conf";

/// Every case of the machine.
pub(super) fn all() -> Vec<Case> {
    [processors(), memory_and_disks(), sockets(), software()]
        .into_iter()
        .flatten()
        .collect()
}

fn processors() -> Vec<Case> {
    vec![
        case(
            "irq-on-isolated-cpu",
            SERVER,
            Edit::File(ISOLATED, Some("5")),
            mended(
                Severity::Note,
                "nic/eth2",
                "5",
                ISOLATED,
                &["nic/eth2/queue/rx-1/irq-cpus: 5 -> 4"],
            ),
        ),
        // CPUs that take no interrupt of the card may be set apart.
        case(
            "irq-on-isolated-cpu",
            SERVER,
            Edit::File(ISOLATED, Some("2-3")),
            Expect::Silent,
        ),
        // Which programs run there is asked of the live machine only.
        case(
            "isolation-misuse",
            SERVER,
            Edit::File(ISOLATED, Some("2-3")),
            Expect::Undetermined { path: "/proc/*/fd" },
        ),
        case(
            "cpu-frequency-low",
            SERVER,
            Edit::File(GOVERNOR, Some("powersave")),
            mended(
                Severity::Warn,
                "host",
                "powersave",
                GOVERNOR,
                &["cpu/policy5/governor: powersave -> performance"],
            ),
        ),
        case(
            "clock-and-timestamps",
            SERVER,
            Edit::File(CLOCK, Some("hpet")),
            mended(
                Severity::Warn,
                "host",
                "hpet",
                CLOCK,
                &["cpu/clocksource: hpet -> tsc"],
            ),
        ),
        // The captured guest does not say what else it could use.
        case(
            "clock-and-timestamps",
            VM,
            Edit::File(CLOCK, Some("acpi_pm")),
            advice(Severity::Warn, "host", "acpi_pm", CLOCK),
        ),
        case(
            "clock-and-timestamps",
            SERVER,
            Edit::File(CLOCK, Some("kvm-clock")),
            Expect::Silent,
        ),
        // A kernel that has no such file offers no choice.
        case(
            "clock-and-timestamps",
            SERVER,
            Edit::File(CLOCK, None),
            Expect::Silent,
        ),
    ]
}

fn memory_and_disks() -> Vec<Case> {
    vec![
        case(
            "numa-memory-policy",
            SERVER,
            Edit::File(RECLAIM, Some("1")),
            mended(
                Severity::Warn,
                "host",
                "1",
                RECLAIM,
                &["sysctl/vm.zone_reclaim_mode: 1 -> 0"],
            ),
        ),
        case(
            "numa-memory-policy",
            SERVER,
            Edit::File(RECLAIM, Some("0")),
            Expect::Silent,
        ),
        case(
            "numa-memory-policy",
            SERVER,
            Edit::File(RECLAIM, Some("what")),
            Expect::Undetermined { path: RECLAIM },
        ),
        used_for(
            Profile::Storage,
            case(
                "blk-mq-config",
                SERVER,
                Edit::File(SCHEDULER, Some("none [mq-deadline] kyber")),
                mended(
                    Severity::Warn,
                    "block/nvme0n1",
                    "mq-deadline",
                    SCHEDULER,
                    &["block/nvme0n1/scheduler: mq-deadline -> none"],
                ),
            ),
        ),
    ]
}

fn sockets() -> Vec<Case> {
    vec![
        case(
            "tcp-options-off",
            NEAR,
            Edit::File(SCALING, Some("0")),
            mended(
                Severity::Warn,
                "host",
                "0",
                SCALING,
                &["sysctl/net.ipv4.tcp_window_scaling: 0 -> 1"],
            ),
        ),
        case(
            "tcp-options-off",
            NEAR,
            Edit::File(SCALING, None),
            Expect::Undetermined { path: SCALING },
        ),
        used_for(
            Profile::Storage,
            case(
                "tcp-idle-and-lowat",
                NEAR,
                Edit::File(IDLE, Some("0")),
                Expect::Silent,
            ),
        ),
        // The sockets have a table, the queues have none ...
        case(
            "rfs-half-configured",
            SERVER,
            Edit::File(ENTRIES, Some("32768")),
            mended(
                Severity::Warn,
                "host",
                "32768",
                ENTRIES,
                &[
                    "nic/eth2/queue/rx-0/rps-flow-cnt: 0 -> 8192",
                    "nic/eth2/queue/rx-1/rps-flow-cnt: 0 -> 8192",
                    "nic/eth2/queue/rx-2/rps-flow-cnt: 0 -> 8192",
                    "nic/eth2/queue/rx-3/rps-flow-cnt: 0 -> 8192",
                ],
            ),
        ),
        // ... and the other way round.
        case(
            "rfs-half-configured",
            SERVER,
            Edit::File(FLOWS, Some("4096")),
            mended(
                Severity::Warn,
                "nic/eth2",
                "4096",
                FLOWS,
                &["sysctl/net.core.rps_sock_flow_entries: 0 -> 32768"],
            ),
        ),
        case(
            "rfs-half-configured",
            SERVER,
            Edit::File(ENTRIES, Some("many")),
            Expect::Undetermined { path: ENTRIES },
        ),
    ]
}

fn software() -> Vec<Case> {
    vec![
        case(
            "sysctl-legacy-or-harmful",
            SERVER,
            Edit::File(SYSCTL_CONF, Some("net.ipv4.tcp_tw_recycle = 1")),
            advice(Severity::Note, "host", "`1`", SYSCTL_CONF),
        ),
        case(
            "sysctl-legacy-or-harmful",
            SERVER,
            Edit::File(SYSCTL_CONF, Some("net.ipv4.tcp_sack = 1")),
            Expect::Silent,
        ),
        case(
            "conntrack-cost",
            SERVER,
            Edit::File(TRACKED_MAX, Some("900")),
            mended(
                Severity::Warn,
                "host",
                "900",
                TRACKED_MAX,
                &["sysctl/net.netfilter.nf_conntrack_max: 900 -> 1800"],
            ),
        ),
        case(
            "conntrack-cost",
            SERVER,
            Edit::File(TRACKED_MAX, Some("812")),
            mended(
                Severity::Crit,
                "host",
                "812",
                TRACKED_MAX,
                &["sysctl/net.netfilter.nf_conntrack_max: 812 -> 1624"],
            ),
        ),
    ]
}
