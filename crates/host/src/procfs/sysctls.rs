//! Sysctls: `/proc/sys` (Documentation/admin-guide/sysctl/net.rst, kernel.rst, vm.rst;
//! Documentation/networking/ip-sysctl.rst).

use std::collections::BTreeMap;

use linerate_model::known::{Cause, Known};

use crate::root::{HostRoot, NOT_THERE};

/// The sysctls that are read: those used by rules and settings.
pub const SYSCTLS: [&str; 55] = [
    "kernel.nmi_watchdog",
    "kernel.numa_balancing",
    "kernel.sched_rt_runtime_us",
    "kernel.timer_migration",
    "net.bridge.bridge-nf-call-ip6tables",
    "net.bridge.bridge-nf-call-iptables",
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.default_qdisc",
    "net.core.dev_weight",
    "net.core.flow_limit_cpu_bitmap",
    "net.core.gro_normal_batch",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.netdev_max_backlog",
    "net.core.optmem_max",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.rps_default_mask",
    "net.core.rps_sock_flow_entries",
    "net.core.somaxconn",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.ip_forward",
    "net.ipv4.ip_no_pmtu_disc",
    "net.ipv4.tcp_allowed_congestion_control",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_dsack",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_limit_output_bytes",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_min_snd_mss",
    "net.ipv4.tcp_min_tso_segs",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_shrink_window",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_tso_win_divisor",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
    "net.ipv4.udp_mem",
    "net.ipv4.udp_rmem_min",
    "net.ipv4.udp_wmem_min",
    "net.ipv6.conf.all.forwarding",
    "net.netfilter.nf_conntrack_max",
    "vm.min_free_kbytes",
    "vm.stat_interval",
    "vm.swappiness",
    "vm.zone_reclaim_mode",
];

/// Those of them that every kernel has: one that is not there was not captured, or is hidden.
const IN_EVERY_KERNEL: [&str; 29] = [
    "net.core.dev_weight",
    MACHINE_WIDE_PROBE,
    "net.core.netdev_max_backlog",
    "net.core.optmem_max",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.somaxconn",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.ip_forward",
    "net.ipv4.ip_no_pmtu_disc",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_dsack",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_no_metrics_save",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_tso_win_divisor",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
    "net.ipv4.udp_mem",
    "net.ipv4.udp_rmem_min",
    "vm.min_free_kbytes",
    "vm.swappiness",
];

/// Exists only in the initial network namespace, on every kernel.
const MACHINE_WIDE_PROBE: &str = "net.core.netdev_budget";

/// The file of a sysctl.
pub fn path_of(name: &str) -> String {
    format!("proc/sys/{}", name.replace('.', "/"))
}

/// Reads the sysctls. Machine-wide ones are not visible in other network namespaces: there they are absent, although
/// the kernel has them.
pub(crate) fn read_sysctls(root: &HostRoot) -> BTreeMap<String, Known<String>> {
    let mut sysctls: BTreeMap<String, Known<String>> = SYSCTLS
        .iter()
        .map(|name| ((*name).to_owned(), root.read(&path_of(name))))
        .collect();
    let is_absent = |value: Option<&Known<String>>| {
        value
            .and_then(Known::gap)
            .is_some_and(|gap| gap.cause == Cause::Absent)
    };
    // Without net.core the namespace cannot be identified.
    let in_namespace =
        is_absent(sysctls.get(MACHINE_WIDE_PROBE)) && !is_absent(sysctls.get("net.core.somaxconn"));
    if in_namespace {
        let hidden = sysctls
            .iter_mut()
            .filter(|(name, _)| name.starts_with("net.core."))
            .filter(|(_, value)| is_absent(Some(value)));
        for (_, value) in hidden {
            if let Known::Unknown(gap) = value {
                "machine-wide, not visible in this network namespace".clone_into(&mut gap.reason);
            }
        }
    }
    for name in IN_EVERY_KERNEL {
        let of_namespace = in_namespace && name.starts_with("net.core.");
        if let Some(Known::Unknown(gap)) = sysctls.get_mut(name)
            && gap.cause == Cause::Absent
            && !of_namespace
        {
            gap.cause = Cause::Unreadable;
            NOT_THERE.clone_into(&mut gap.reason);
        }
    }
    sysctls
}
