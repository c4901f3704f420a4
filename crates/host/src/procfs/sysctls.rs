//! Sysctls: `/proc/sys` (Documentation/admin-guide/sysctl/net.rst, kernel.rst, vm.rst;
//! Documentation/networking/ip-sysctl.rst).

use std::collections::BTreeMap;

use linerate_model::known::{Cause, Known};

use crate::root::{HostRoot, NOT_THERE};

/// The sysctls that are read, those used by rules and settings, and whether every kernel has them.
pub(crate) const SYSCTLS: [(&str, bool); 56] = [
    ("kernel.nmi_watchdog", SOME_KERNELS),
    ("kernel.numa_balancing", SOME_KERNELS),
    ("kernel.sched_rt_runtime_us", SOME_KERNELS),
    ("kernel.timer_migration", SOME_KERNELS),
    ("net.bridge.bridge-nf-call-ip6tables", SOME_KERNELS),
    ("net.bridge.bridge-nf-call-iptables", SOME_KERNELS),
    ("net.core.busy_poll", SOME_KERNELS),
    ("net.core.busy_read", SOME_KERNELS),
    ("net.core.default_qdisc", SOME_KERNELS),
    ("net.core.dev_weight", EVERY_KERNEL),
    ("net.core.flow_limit_cpu_bitmap", SOME_KERNELS),
    ("net.core.gro_normal_batch", SOME_KERNELS),
    (MACHINE_WIDE_PROBE, EVERY_KERNEL),
    ("net.core.netdev_budget_usecs", SOME_KERNELS),
    ("net.core.netdev_max_backlog", EVERY_KERNEL),
    ("net.core.optmem_max", EVERY_KERNEL),
    ("net.core.rmem_default", EVERY_KERNEL),
    ("net.core.rmem_max", EVERY_KERNEL),
    ("net.core.rps_default_mask", SOME_KERNELS),
    ("net.core.rps_sock_flow_entries", SOME_KERNELS),
    ("net.core.somaxconn", EVERY_KERNEL),
    ("net.core.wmem_default", EVERY_KERNEL),
    ("net.core.wmem_max", EVERY_KERNEL),
    ("net.ipv4.fib_multipath_use_neigh", SOME_KERNELS),
    ("net.ipv4.ip_forward", EVERY_KERNEL),
    ("net.ipv4.ip_no_pmtu_disc", EVERY_KERNEL),
    ("net.ipv4.tcp_allowed_congestion_control", SOME_KERNELS),
    ("net.ipv4.tcp_available_congestion_control", EVERY_KERNEL),
    ("net.ipv4.tcp_congestion_control", EVERY_KERNEL),
    ("net.ipv4.tcp_dsack", EVERY_KERNEL),
    ("net.ipv4.tcp_ecn", EVERY_KERNEL),
    ("net.ipv4.tcp_limit_output_bytes", SOME_KERNELS),
    ("net.ipv4.tcp_mem", EVERY_KERNEL),
    ("net.ipv4.tcp_min_snd_mss", SOME_KERNELS),
    ("net.ipv4.tcp_min_tso_segs", SOME_KERNELS),
    ("net.ipv4.tcp_moderate_rcvbuf", EVERY_KERNEL),
    ("net.ipv4.tcp_mtu_probing", SOME_KERNELS),
    ("net.ipv4.tcp_no_metrics_save", EVERY_KERNEL),
    ("net.ipv4.tcp_notsent_lowat", SOME_KERNELS),
    ("net.ipv4.tcp_rmem", EVERY_KERNEL),
    ("net.ipv4.tcp_sack", EVERY_KERNEL),
    ("net.ipv4.tcp_shrink_window", SOME_KERNELS),
    ("net.ipv4.tcp_slow_start_after_idle", EVERY_KERNEL),
    ("net.ipv4.tcp_timestamps", EVERY_KERNEL),
    ("net.ipv4.tcp_tso_win_divisor", EVERY_KERNEL),
    ("net.ipv4.tcp_window_scaling", EVERY_KERNEL),
    ("net.ipv4.tcp_wmem", EVERY_KERNEL),
    ("net.ipv4.udp_mem", EVERY_KERNEL),
    ("net.ipv4.udp_rmem_min", EVERY_KERNEL),
    ("net.ipv4.udp_wmem_min", SOME_KERNELS),
    ("net.ipv6.conf.all.forwarding", SOME_KERNELS),
    ("net.netfilter.nf_conntrack_max", SOME_KERNELS),
    ("vm.min_free_kbytes", EVERY_KERNEL),
    ("vm.stat_interval", SOME_KERNELS),
    ("vm.swappiness", EVERY_KERNEL),
    ("vm.zone_reclaim_mode", SOME_KERNELS),
];
/// One that is not there was not captured, or is hidden.
const EVERY_KERNEL: bool = true;
/// It depends on the version and the configuration.
const SOME_KERNELS: bool = false;

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
        .map(|(name, _)| ((*name).to_owned(), root.read(&path_of(name))))
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
    for (name, _) in SYSCTLS.iter().filter(|(_, everywhere)| *everywhere) {
        let of_namespace = in_namespace && name.starts_with("net.core.");
        if let Some(Known::Unknown(gap)) = sysctls.get_mut(*name)
            && gap.cause == Cause::Absent
            && !of_namespace
        {
            gap.cause = Cause::Unreadable;
            NOT_THERE.clone_into(&mut gap.reason);
        }
    }
    sysctls
}
