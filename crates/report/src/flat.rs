//! A host as a flat list of facts, each with a key of nouns (`nics/eth2/mtu`), its value and the place
//! it comes from: what `map --why` prints and `map --diff` compares.

use std::collections::BTreeMap;

use linerate_model::host::Host;
use linerate_model::known::Gap;
use serde_json::{Map, Value};

/// One fact of a host.
#[derive(Debug, Clone, PartialEq)]
pub struct Fact {
    /// The value; `Err` is the reason why it is unknown.
    pub value: Result<Value, Gap>,
    /// The file or request that it comes from.
    pub source: String,
}

/// Every fact of a host by its key.
pub fn facts(host: &Host) -> BTreeMap<String, Fact> {
    let mut all = BTreeMap::new();
    if let Ok(Value::Object(body)) = serde_json::to_value(host) {
        for (key, value) in &body {
            // The reader's own list of failed reads is not a fact of the machine.
            if key != "gaps" {
                walk(key.clone(), value, &mut all);
            }
        }
    }
    all
}

fn walk(key: String, value: &Value, all: &mut BTreeMap<String, Fact>) {
    match value {
        Value::Object(object) => {
            if let Some(gap) = gap_of(object) {
                let source = match gap.path.as_str() {
                    "" => source_of(&key),
                    path => path.to_owned(),
                };
                all.insert(
                    key,
                    Fact {
                        value: Err(gap),
                        source,
                    },
                );
                return;
            }
            for (name, inner) in object {
                walk(format!("{key}/{name}"), inner, all);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (index, item) in items.iter().enumerate() {
                walk(format!("{key}/{}", name_of(item, index)), item, all);
            }
        }
        plain => {
            let source = source_of(&key);
            let value = Ok(plain.clone());
            all.insert(key, Fact { value, source });
        }
    }
}

/// A serialized gap has exactly its three texts.
fn gap_of(object: &Map<String, Value>) -> Option<Gap> {
    if object.len() != 3 || !object.contains_key("unknown") {
        return None;
    }
    serde_json::from_value(Value::Object(object.clone())).ok()
}

/// The name of a list entry: its own name or number, else its index.
fn name_of(item: &Value, index: usize) -> String {
    let word = |key: &str| match &item[key] {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    if let (Some(kind @ ("rx" | "tx")), Some(index)) = (word("kind").as_deref(), word("index")) {
        return format!("{kind}-{index}");
    }
    [
        "name", "id", "number", "port", "address", "index", "lane", "handle", "label",
    ]
    .iter()
    .find_map(|key| word(key))
    .unwrap_or_else(|| index.to_string())
    .replace('/', "!")
}

/// The sources of facts: the first pattern that matches a key. `*` is one word and may be used in the source
/// as `{1}`, `{2}`; `**` is the rest. `ethtool`, `rtnetlink`, `netdev`, `devlink` name netlink requests.
const SOURCES: &[(&str, &str)] = &[
    ("identity/hostname", "/proc/sys/kernel/hostname"),
    ("identity/kernel_release", "/proc/sys/kernel/osrelease"),
    ("identity/architecture", "uname(2)"),
    ("identity/boot_id", "/proc/sys/kernel/random/boot_id"),
    ("identity/command_line", "/proc/cmdline"),
    ("identity/cpu_model", "/proc/cpuinfo"),
    (
        "identity/irq_time_accounting",
        "/boot/config-RELEASE, /proc/cmdline",
    ),
    ("cpus/*/online", "/sys/devices/system/cpu/online"),
    ("cpus/*/node", "/sys/devices/system/node/node*/cpulist"),
    (
        "cpus/*/package",
        "/sys/devices/system/cpu/cpu{1}/topology/physical_package_id",
    ),
    (
        "cpus/*/die",
        "/sys/devices/system/cpu/cpu{1}/topology/die_id",
    ),
    (
        "cpus/*/core",
        "/sys/devices/system/cpu/cpu{1}/topology/core_id",
    ),
    (
        "cpus/*/siblings",
        "/sys/devices/system/cpu/cpu{1}/topology/core_cpus_list",
    ),
    (
        "cpus/*/last_level_cache",
        "/sys/devices/system/cpu/cpu{1}/cache/index*/shared_cpu_list",
    ),
    (
        "cpus/*/kind",
        "/sys/devices/cpu_core/cpus, cpu_atom/cpus; cpu{1}/cpu_capacity",
    ),
    (
        "cpus/*/governor",
        "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor",
    ),
    ("cpus/*/**", "/sys/devices/system/cpu/cpu{1}"),
    (
        "power/frequency/**",
        "/sys/devices/system/cpu/cpufreq/policy*",
    ),
    (
        "power/turbo",
        "/sys/devices/system/cpu/intel_pstate/no_turbo or cpufreq/boost",
    ),
    (
        "power/pstate_mode",
        "/sys/devices/system/cpu/intel_pstate/status or amd_pstate/status",
    ),
    (
        "power/pstate_max_percent",
        "/sys/devices/system/cpu/intel_pstate/max_perf_pct",
    ),
    ("power/smt", "/sys/devices/system/cpu/smt/control"),
    (
        "power/idle_driver",
        "/sys/devices/system/cpu/cpuidle/current_driver",
    ),
    (
        "power/idle_states/**",
        "/sys/devices/system/cpu/cpu*/cpuidle/state*",
    ),
    ("power/latency_limit_us", "/dev/cpu_dma_latency"),
    ("isolation/isolated", "/sys/devices/system/cpu/isolated"),
    ("isolation/nohz_full", "/sys/devices/system/cpu/nohz_full"),
    ("isolation/offline", "/sys/devices/system/cpu/offline"),
    (
        "isolation/default_irq_cpus",
        "/proc/irq/default_smp_affinity",
    ),
    (
        "isolation/workqueue_cpus",
        "/sys/devices/virtual/workqueue/cpumask",
    ),
    (
        "kernel/clocksource",
        "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    ),
    (
        "kernel/clocksources",
        "/sys/devices/system/clocksource/clocksource0/available_clocksource",
    ),
    (
        "kernel/mitigations/*",
        "/sys/devices/system/cpu/vulnerabilities/{1}",
    ),
    (
        "kernel/transparent_hugepages",
        "/sys/kernel/mm/transparent_hugepage/enabled",
    ),
    (
        "kernel/transparent_hugepages_defrag",
        "/sys/kernel/mm/transparent_hugepage/defrag",
    ),
    (
        "kernel/hypervisor",
        "/sys/hypervisor/type, /sys/class/dmi/id, /proc/cpuinfo",
    ),
    ("kernel/steal_ppm", "/proc/stat"),
    ("kernel/locked_memory**", "/proc/self/limits"),
    (
        "kernel/aspm_policy",
        "/sys/module/pcie_aspm/parameters/policy",
    ),
    ("kernel/tcp_memory_pages", "/proc/net/sockstat"),
    ("kernel/udp_memory_pages", "/proc/net/sockstat"),
    ("process/cpus_allowed", "/proc/self/status"),
    (
        "process/cpu_quotas**",
        "/proc/self/cgroup, cpu.max or cpu.cfs_quota_us",
    ),
    ("nodes/*/cpus", "/sys/devices/system/node/node{1}/cpulist"),
    (
        "nodes/*/distances",
        "/sys/devices/system/node/node{1}/distance",
    ),
    (
        "nodes/*/memory_bytes",
        "/sys/devices/system/node/node{1}/meminfo",
    ),
    (
        "nodes/*/memory_free_bytes",
        "/sys/devices/system/node/node{1}/meminfo",
    ),
    ("nodes/*/**", "/sys/devices/system/node/node{1}"),
    ("nics/*/index", "/sys/class/net/{1}/ifindex"),
    (
        "nics/*/kind",
        "/sys/class/net/{1}/type, uevent; rtnetlink IFLA_INFO_KIND",
    ),
    ("nics/*/driver", "/sys/class/net/{1}/device/driver"),
    ("nics/*/pci_address", "/sys/class/net/{1}/device"),
    ("nics/*/numa_node", "/sys/class/net/{1}/device/numa_node"),
    (
        "nics/*/numa_node_source**",
        "/sys/class/net/{1}/device/numa_node, local_cpulist, the bridges above",
    ),
    (
        "nics/*/numa_node_report**",
        "/sys/class/net/{1}/device/numa_node, local_cpulist, the bridges above",
    ),
    (
        "nics/*/local_cpus",
        "/sys/class/net/{1}/device/local_cpulist",
    ),
    ("nics/*/link_bit_per_s", "/sys/class/net/{1}/speed"),
    ("nics/*/mtu", "/sys/class/net/{1}/mtu"),
    ("nics/*/operstate", "/sys/class/net/{1}/operstate"),
    ("nics/*/addresses", "rtnetlink RTM_GETADDR {1}"),
    (
        "nics/*/pcie/links/*/control/**",
        "/sys/bus/pci/devices/{2}/config",
    ),
    (
        "nics/*/pcie/links/*/transfer_mt_per_s",
        "/sys/bus/pci/devices/{2}/current_link_speed",
    ),
    (
        "nics/*/pcie/links/*/width",
        "/sys/bus/pci/devices/{2}/current_link_width",
    ),
    (
        "nics/*/pcie/links/*/transfer_max_mt_per_s",
        "/sys/bus/pci/devices/{2}/max_link_speed",
    ),
    (
        "nics/*/pcie/links/*/width_max",
        "/sys/bus/pci/devices/{2}/max_link_width",
    ),
    (
        "nics/*/pcie/**",
        "/sys/class/net/{1}/device and the bridges above: current_link_speed, current_link_width",
    ),
    ("nics/*/pci/aspm", "/sys/class/net/{1}/device/link"),
    (
        "nics/*/pci/iommu_type",
        "/sys/class/net/{1}/device/iommu_group/type",
    ),
    ("nics/*/pci/**", "/sys/class/net/{1}/device"),
    (
        "nics/*/card/temperatures/**",
        "/sys/class/net/{1}/device/hwmon",
    ),
    (
        "nics/*/card/health/**",
        "devlink DEVLINK_CMD_HEALTH_REPORTER_GET {1}",
    ),
    (
        "nics/*/card/firmware_stored/**",
        "devlink DEVLINK_CMD_INFO_GET {1}",
    ),
    ("nics/*/card/board", "devlink DEVLINK_CMD_INFO_GET {1}"),
    ("nics/*/card/**", "ioctl SIOCETHTOOL ETHTOOL_GDRVINFO {1}"),
    (
        "nics/*/wire/modes/**",
        "ethtool ETHTOOL_MSG_LINKMODES_GET, LINKINFO_GET {1}",
    ),
    (
        "nics/*/wire/state/**",
        "ethtool ETHTOOL_MSG_LINKSTATE_GET {1}",
    ),
    ("nics/*/wire/duplex", "/sys/class/net/{1}/duplex"),
    ("nics/*/wire/fec/**", "ethtool ETHTOOL_MSG_FEC_GET {1}"),
    ("nics/*/wire/pause/**", "ethtool ETHTOOL_MSG_PAUSE_GET {1}"),
    ("nics/*/wire/eee/**", "ethtool ETHTOOL_MSG_EEE_GET {1}"),
    (
        "nics/*/wire/module/**",
        "ethtool ETHTOOL_MSG_MODULE_EEPROM_GET {1}",
    ),
    (
        "nics/*/wire/timestamping/**",
        "ethtool ETHTOOL_MSG_TSINFO_GET {1}",
    ),
    (
        "nics/*/stack/bond/**",
        "rtnetlink IFLA_INFO_DATA; /sys/class/net/{1}/bonding",
    ),
    ("nics/*/stack/team/**", "team TEAM_CMD_OPTIONS_GET {1}"),
    (
        "nics/*/stack/bond_port/**",
        "rtnetlink IFLA_INFO_SLAVE_DATA; /sys/class/net/{1}/bonding_slave",
    ),
    (
        "nics/*/stack/vlan/**",
        "rtnetlink IFLA_INFO_DATA; /proc/net/vlan/{1}",
    ),
    (
        "nics/*/stack/bridge/**",
        "rtnetlink IFLA_INFO_DATA; /sys/class/net/{1}/bridge",
    ),
    (
        "nics/*/stack/tun/**",
        "rtnetlink IFLA_INFO_DATA; /sys/class/net/{1}/tun_flags",
    ),
    ("nics/*/stack/upper", "/sys/class/net/{1}/upper_*"),
    (
        "nics/*/stack/bridge_port_state",
        "/sys/class/net/{1}/brport/state",
    ),
    ("nics/*/stack/ipoib_mode", "/sys/class/net/{1}/mode"),
    (
        "nics/*/stack/tx_queue_len",
        "/sys/class/net/{1}/tx_queue_len",
    ),
    ("nics/*/stack/**", "rtnetlink RTM_GETLINK {1}"),
    (
        "nics/*/dispatch/rss/fields/*",
        "ioctl SIOCETHTOOL ETHTOOL_GRXFH {2} {1}",
    ),
    ("nics/*/dispatch/rss/**", "ethtool ETHTOOL_MSG_RSS_GET {1}"),
    ("nics/*/dispatch/napis/**", "netdev napi-get, queue-get {1}"),
    (
        "nics/*/dispatch/private_flags/**",
        "ethtool ETHTOOL_MSG_PRIVFLAGS_GET {1}",
    ),
    (
        "nics/*/dispatch/tunnel_ports**",
        "ethtool ETHTOOL_MSG_TUNNEL_INFO_GET {1}",
    ),
    (
        "nics/*/dispatch/gro_flush_timeout_ns",
        "/sys/class/net/{1}/gro_flush_timeout",
    ),
    (
        "nics/*/dispatch/defer_hard_irqs",
        "/sys/class/net/{1}/napi_defer_hard_irqs",
    ),
    ("nics/*/dispatch/threaded", "/sys/class/net/{1}/threaded"),
    (
        "nics/*/dispatch/tcp_data_split",
        "ethtool ETHTOOL_MSG_RINGS_GET {1}",
    ),
    (
        "nics/*/dispatch/queue_coalesce/**",
        "ioctl SIOCETHTOOL ETHTOOL_PERQUEUE {1}",
    ),
    ("nics/*/dispatch/**", "netdev dev-get {1}"),
    ("nics/*/shaping/dcb/**", "rtnetlink RTM_GETDCB {1}"),
    ("nics/*/shaping/class_rules**", "nf_tables {1}"),
    ("nics/*/shaping/classes**", "rtnetlink RTM_GETTCLASS {1}"),
    ("nics/*/shaping/**", "rtnetlink RTM_GETQDISC {1}"),
    (
        "nics/*/queues/*/irq",
        "netdev queue-get, napi-get; /sys/class/net/{1}/device/msi_irqs, /sys/kernel/irq/*/actions",
    ),
    (
        "nics/*/queues/*/cpus",
        "/proc/irq/*/effective_affinity_list of its interrupt",
    ),
    (
        "nics/*/queues/*/max_bit_per_s",
        "/sys/class/net/{1}/queues/{2}/tx_maxrate",
    ),
    ("nics/*/queues/*/napi", "netdev queue-get {1} {2}"),
    ("nics/*/queues/*/*", "/sys/class/net/{1}/queues/{2}/{3}"),
    ("nics/*/features/**", "ethtool ETHTOOL_MSG_FEATURES_GET {1}"),
    ("nics/*/rings/**", "ethtool ETHTOOL_MSG_RINGS_GET {1}"),
    ("nics/*/channels/**", "ethtool ETHTOOL_MSG_CHANNELS_GET {1}"),
    ("nics/*/coalesce/**", "ethtool ETHTOOL_MSG_COALESCE_GET {1}"),
    ("nics/*/qdisc/**", "rtnetlink RTM_GETQDISC {1}"),
    ("nics/*/lower", "/sys/class/net/{1}/lower_*"),
    (
        "nics/*/rdma",
        "/sys/class/infiniband/*/ports/*/gid_attrs/ndevs",
    ),
    ("nics/*/**", "/sys/class/net/{1}"),
    ("irqs/*/actions", "/sys/kernel/irq/{1}/actions"),
    ("irqs/*/requested", "/proc/irq/{1}/smp_affinity_list"),
    ("irqs/*/effective", "/proc/irq/{1}/effective_affinity_list"),
    ("irqs/*/managed", "mode of /proc/irq/{1}/smp_affinity"),
    ("irqs/*/**", "/proc/irq/{1}"),
    (
        "rdma/*/ports/*/rate_bit_per_s",
        "/sys/class/infiniband/{1}/ports/{2}/rate",
    ),
    (
        "rdma/*/ports/*/gids**",
        "/sys/class/infiniband/{1}/ports/{2}/gids, gid_attrs",
    ),
    ("rdma/*/ports/*/**", "/sys/class/infiniband/{1}/ports/{2}"),
    (
        "rdma/*/pcie/**",
        "/sys/class/infiniband/{1}/device: current_link_speed, current_link_width",
    ),
    ("rdma/*/**", "/sys/class/infiniband/{1}"),
    ("rdma", "/sys/class/infiniband"),
    ("block", "/sys/block"),
    (
        "block/*/numa_node",
        "/sys/block/{1}/device and its PCI function's numa_node",
    ),
    ("block/*/hardware_queues", "/sys/block/{1}/mq"),
    ("block/*/queue_cpus", "/sys/block/{1}/mq/*/cpu_list"),
    ("block/*/size_bytes", "/sys/block/{1}/size"),
    ("block/*/io_policy", "/sys/class/nvme-subsystem/*/iopolicy"),
    ("block/*/paths/**", "/sys/class/nvme"),
    ("block/*/schedulers", "/sys/block/{1}/queue/scheduler"),
    ("block/*/*", "/sys/block/{1}/queue/{2}"),
    ("routing/routes**", "rtnetlink RTM_GETROUTE"),
    ("routing/groups**", "rtnetlink RTM_GETNEXTHOP"),
    ("routing/neighbor_timers**", "/proc/sys/net/ipv4/neigh"),
    ("sysctls/*", "/proc/sys/{1}"),
    (
        "software/owners/**",
        "/proc/*/comm and the program's own files",
    ),
    ("software/taps**", "/proc/net/packet, /proc/net/ptype"),
    (
        "software/conntrack/**",
        "/proc/sys/net/netfilter/nf_conntrack_*",
    ),
    (
        "software/sysctl_lines**",
        "/etc/sysctl.d, /run/sysctl.d, /usr/lib/sysctl.d, /etc/sysctl.conf",
    ),
    ("software/nfs_mounts**", "/proc/self/mounts"),
    ("software/**", "/proc/*/stat, /proc/*/status"),
];

/// The source of the fact with this `key`.
fn source_of(key: &str) -> String {
    SOURCES
        .iter()
        .find_map(|(pattern, place)| Some(filled(place, &matched(pattern, key)?)))
        .unwrap_or_else(|| "read_host".to_owned())
}

/// The words that match a pattern's stars, if it matches.
fn matched<'a>(pattern: &str, key: &'a str) -> Option<Vec<&'a str>> {
    let mut words = Vec::new();
    let mut key = key.split('/');
    for part in pattern.split('/') {
        match part {
            "**" => return Some(words),
            "*" => words.push(key.next()?),
            // `name**`: the fact itself or anything below it.
            part if part.ends_with("**") => {
                return (key.next()? == part.trim_end_matches('*')).then_some(words);
            }
            part => {
                if key.next()? != part {
                    return None;
                }
            }
        }
    }
    key.next().is_none().then_some(words)
}

fn filled(place: &str, words: &[&str]) -> String {
    let mut text = place.to_owned();
    for (number, word) in (1..).zip(words) {
        let word = if place.starts_with("/proc/sys/") {
            word.replace('.', "/")
        } else {
            (*word).to_owned()
        };
        text = text.replace(&format!("{{{number}}}"), &word);
    }
    text
}

/// A value on one line.
pub fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let words: Vec<String> = items.iter().map(shown).collect();
            words.join(" ")
        }
        other => other.to_string(),
    }
}

/// One fact that differs between two hosts, or two captures of one.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The fact's key.
    pub key: String,
    /// The old value; none if the first host has no such fact.
    pub from: Option<Fact>,
    /// The new value; none if the second host has no such fact.
    pub to: Option<Fact>,
}

/// Readings that change by themselves from one second to the next: not a difference between two hosts, or
/// between two captures of one. `map --why` shows them.
const READINGS: &[&str] = &[
    "kernel/steal_ppm",
    "kernel/tcp_memory_pages",
    "kernel/udp_memory_pages",
    "process/cpu_quotas/*/nr_periods",
    "process/cpu_quotas/*/nr_throttled",
    "nodes/*/memory_free_bytes",
    "nodes/*/hugepages/*/free",
    "nics/*/card/temperatures/*/value_mc",
    "nics/*/wire/module/temperature_mc",
    "nics/*/wire/module/voltage_mv",
    "nics/*/wire/module/lanes/*/rx_power_nw",
    "nics/*/wire/module/lanes/*/tx_power_nw",
    "nics/*/wire/module/lanes/*/bias_ua",
    "nics/*/wire/state/signal_quality",
    "nics/*/shaping/tree/*/drops",
    "nics/*/shaping/tree/*/requeues",
    "nics/*/shaping/tree/*/overlimits",
    "software/conntrack/count",
    "software/socket_owners**",
];

pub(super) fn is_reading(key: &str) -> bool {
    READINGS
        .iter()
        .any(|pattern| matched(pattern, key).is_some())
}

/// The differences between two hosts, without readings that change by themselves.
pub fn changes(one: &Host, other: &Host) -> Vec<Change> {
    let (from, to) = (facts(one), facts(other));
    let keys: std::collections::BTreeSet<&String> = from.keys().chain(to.keys()).collect();
    keys.into_iter()
        .filter(|key| !is_reading(key))
        .filter_map(|key| {
            let (from, to) = (from.get(key), to.get(key));
            let value =
                |fact: Option<&Fact>| fact.map(|fact| fact.value.clone().map_err(|gap| gap.cause));
            (value(from) != value(to)).then(|| Change {
                key: key.clone(),
                from: from.cloned(),
                to: to.cloned(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use linerate_model::build;
    use linerate_model::known::Known;

    use super::*;

    #[test]
    fn every_fact_of_a_host_names_its_place() {
        let host = build::host()
            .nodes(2, 2)
            .nic("eth2", |nic| nic.gbit(100).queues(&[0, 1]))
            .build();
        let all = facts(&host);
        assert!(all.len() > 200, "{}", all.len());
        let lost: Vec<&String> = all
            .iter()
            .filter(|(_, fact)| fact.source.is_empty() || fact.source == "read_host")
            .map(|(key, _)| key)
            .collect();
        assert_eq!(lost, [""; 0]);
        let source = |key: &str| all.get(key).map(|fact| fact.source.as_str());
        assert_eq!(source("nics/eth2/mtu"), Some("/sys/class/net/eth2/mtu"));
        assert_eq!(
            source("nics/eth2/queues/rx-1/rps_cpus"),
            Some("/sys/class/net/eth2/queues/rx-1/rps_cpus")
        );
        assert_eq!(
            source("sysctls/net.ipv4.tcp_rmem"),
            Some("/proc/sys/net/ipv4/tcp_rmem")
        );
    }

    #[test]
    fn what_differs_is_named_by_key_with_both_values() {
        let host = |mtu| {
            build::host()
                .nic("eth0", |nic| nic.with(|nic| nic.mtu = mtu))
                .build()
        };
        let (one, other) = (host(1500.into()), host(9000.into()));
        let all = changes(&one, &other);
        let keys: Vec<&str> = all.iter().map(|change| change.key.as_str()).collect();
        assert_eq!(keys, ["nics/eth0/mtu"]);
        assert_eq!(changes(&one, &one), []);
        let mut later = one.clone();
        for node in &mut later.nodes {
            node.memory_free_bytes = Known::Value(linerate_model::units::Bytes::mib(7));
        }
        assert_ne!(later, one);
        assert_eq!(changes(&one, &later), [], "free memory moves by itself");
        let more = build::host().nic("eth1", |nic| nic).build();
        let all = changes(&one, &more);
        assert!(
            all.iter()
                .any(|c| c.key == "nics/eth1/mtu" && c.from.is_none())
        );
    }
}
