//! Two readings of a hand-written host, and texts of every kind.

use std::collections::BTreeMap;

use linerate_model::host::{Channels, Coalesce, Feature, NicKind, Qdisc, Rings};
use linerate_model::ids::NicName;
use proptest::prelude::*;

use super::devices::{parse_aer_total, parse_block, parse_rdma_counter, rdma_ports};
use super::interrupts::{parse_counts, parse_table};
use super::*;
use crate::nic_control::NicCounts;
use crate::read::read_host;
use crate::root::tree::{Entry, Tree};

const BRIDGE: &str = "sys/devices/pci0000:00/0000:00:03.0";
const FUNCTION: &str = "sys/devices/pci0000:00/0000:00:03.0/0000:17:00.0";

/// Reports everything as not supported for each interface, except its counters.
struct Counts(NicCounts);

fn absent<T>() -> Known<T> {
    Known::unknown(Cause::Absent, "netlink", "not offered")
}

impl NicRead for Counts {
    fn counts(&self, _nic: &NicName) -> NicCounts {
        self.0.clone()
    }
    fn kind(&self, _nic: &NicName) -> Known<NicKind> {
        absent()
    }
    fn addresses(&self, _nic: &NicName) -> Known<Vec<String>> {
        absent()
    }
    fn features(&self, _nic: &NicName) -> Known<BTreeMap<String, Feature>> {
        absent()
    }
    fn rings(&self, _nic: &NicName) -> Known<Rings> {
        absent()
    }
    fn channels(&self, _nic: &NicName) -> Known<Channels> {
        absent()
    }
    fn coalesce(&self, _nic: &NicName) -> Known<Coalesce> {
        absent()
    }
    fn qdisc(&self, _nic: &NicName) -> Known<Qdisc> {
        absent()
    }
}

fn corrected(value: u64) -> Counts {
    let fec = ("fec/corrected".to_owned(), (value, "netlink/x".to_owned()));
    Counts(NicCounts {
        values: BTreeMap::from([fec]),
        gaps: BTreeMap::from([("phy".to_owned(), Gap::new(Cause::Denied, "p", "needs root"))]),
    })
}

/// A file of the host and its text.
type File = (String, String);

fn file(path: impl Into<String>, text: impl std::fmt::Display) -> File {
    (path.into(), text.to_string())
}

fn cpu_files(moved: u64) -> Vec<File> {
    let folder = "sys/devices/system/cpu";
    let mut files = Vec::new();
    for name in ["online", "present", "possible"] {
        files.push(file(format!("{folder}/{name}"), "0-1"));
    }
    for cpu in ["cpu0", "cpu1"].map(|cpu| format!("{folder}/{cpu}")) {
        let throttle = format!("{cpu}/thermal_throttle");
        files.push(file(format!("{cpu}/topology/core_id"), 0));
        files.push(file(format!("{throttle}/core_throttle_count"), moved));
        files.push(file(format!("{throttle}/package_throttle_count"), 4));
        files.push(file(format!("{cpu}/cpuidle/state0/name"), "C1"));
        files.push(file(format!("{cpu}/cpuidle/state0/usage"), 10 + moved));
        files.push(file(format!("{cpu}/cpuidle/state0/time"), 5));
    }
    files
}

fn proc_files(moved: u64) -> Vec<File> {
    let user = 5 + moved;
    let processed = u32::MAX.wrapping_add(u32::try_from(moved).expect("small"));
    let stat = format!("cpu0 {user} 0 0 9 0 0 3 0 0 0\ncpu1 0 0 0 0 0 0 0 0");
    let softnet = format!("{processed:x} 0 {moved:x} 0 0 0 0 0 0 0 0 0 1");
    let snmp = format!("Tcp: CurrEstab RetransSegs\nTcp: 9 {}", 7 + moved);
    let conntrack = format!("entries drop\n1 {moved:x}\n1 {moved:x}");
    vec![
        file("proc/uptime", format!("{}.25 9.00", 100 + moved)),
        file("proc/stat", stat),
        file("proc/net/softnet_stat", softnet),
        file(
            "proc/net/netstat",
            format!("TcpExt: ListenDrops\nTcpExt: {moved}"),
        ),
        file("proc/net/snmp", snmp),
        file(
            "proc/vmstat",
            format!("nr_free_pages 8\nallocstall_normal {moved}"),
        ),
        file("proc/net/stat/nf_conntrack", conntrack),
        file(
            "proc/pressure/irq",
            format!("full avg10=0.00 total={moved}"),
        ),
        file("proc/irq/45/smp_affinity_list", "0-1"),
        file("sys/kernel/irq/45/actions", "eth0-TxRx-0"),
        file("sys/kernel/irq/45/per_cpu_count", format!("17,{moved}")),
    ]
}

fn device_files(moved: u64) -> Vec<File> {
    let eth = format!("{FUNCTION}/net/eth0");
    let sent = format!("{eth}/queues/tx-0");
    let port = "sys/class/infiniband/mlx5_0/ports/1";
    let received = 1000 * (5 - moved);
    let corrected = format!("RxErr 1\nTOTAL_ERR_COR {moved}");
    let fatal = format!("Undefined 0\nTOTAL_ERR_FATAL {moved}");
    let overrun = format!("{port}/counters/excessive_buffer_overrun_errors");
    let block = format!("{} 0 8 1 0 0 0 0 3 4 5", 10 + moved);
    vec![
        file(format!("{FUNCTION}/msi_irqs/45"), "msix"),
        file(format!("{FUNCTION}/class"), "0x020000"),
        file(format!("{FUNCTION}/aer_dev_correctable"), corrected),
        file(format!("{BRIDGE}/aer_dev_fatal"), fatal),
        file(format!("{eth}/ifindex"), 2),
        file(format!("{eth}/carrier_changes"), 2 + moved),
        file(format!("{eth}/statistics/rx_bytes"), received),
        file(format!("{eth}/statistics/tx_bytes"), 1000 * moved),
        file(format!("{eth}/queues/rx-0/rps_cpus"), 0),
        file(format!("{sent}/tx_timeout"), moved),
        file(format!("{sent}/byte_queue_limits/stall_cnt"), 1),
        file(format!("{port}/counters/port_xmit_data"), 100 + moved),
        file(overrun, "N/A (no PMA)"),
        file(format!("{port}/hw_counters/out_of_sequence"), moved),
        file(format!("{port}/hw_counters/lifespan"), 12),
        file("sys/block/nvme0n1/stat", &block),
        file("sys/block/loop0/stat", block),
    ]
}

/// The host's files; `moved` is the increase of its counters.
fn tree(moved: u64) -> Tree {
    let mut tree = Tree::new(true);
    for files in [cpu_files(moved), proc_files(moved), device_files(moved)] {
        for (path, text) in files {
            tree.put(
                &path,
                Entry::File {
                    mode: 0o444,
                    text: text.into(),
                },
            );
        }
    }
    let eth = format!("{FUNCTION}/net/eth0");
    let pci = "sys/bus/pci/devices";
    for (path, target) in [
        ("sys/class/net/eth0", format!("../../../{eth}")),
        (&format!("{eth}/device"), "../../../0000:17:00.0".to_owned()),
        (
            &format!("{pci}/0000:17:00.0"),
            format!("../../../../{FUNCTION}"),
        ),
        (
            &format!("{pci}/0000:00:03.0"),
            format!("../../../../{BRIDGE}"),
        ),
    ] {
        tree.put(path, Entry::Link { target });
    }
    tree
}

fn reading(moved: u64) -> Reading {
    let root = HostRoot::in_memory(tree(moved));
    let nics = corrected(40 + moved);
    let host = read_host(&root, &nics);
    read_counters(&root, &nics, &host)
}

fn watch() -> Watch {
    let (first, second) = (reading(0), reading(3));
    let span = second.span_since(&first);
    assert_eq!(span, Known::Value(Nanoseconds::from_millis(3_000)));
    second.since(&first, Nanoseconds::from_millis(3_000))
}

#[test]
fn every_group_of_counters_is_watched_by_its_key() {
    let watch = watch();
    for (key, grown) in [
        ("nic/eth0/stat/tx_bytes", 3_000),
        ("nic/eth0/stat/carrier_changes", 3),
        ("nic/eth0/queue/tx-0/tx_timeout", 3),
        ("nic/eth0/queue/tx-0/stall_cnt", 0),
        ("nic/eth0/fec/corrected", 3),
        ("pci/0000:17:00.0/aer_correctable", 3),
        ("pci/0000:00:03.0/aer_fatal", 3),
        ("cpu/1/softnet/time_squeeze", 3),
        ("cpu/0/time/user", 30_000_000),
        ("cpu/0/time/softirq", 0),
        ("cpu/0/throttle/core", 3),
        ("cpu/1/throttle/package", 0),
        ("cpu/1/idle/C1/usage", 3),
        ("irq/45/cpu/0", 0),
        ("irq/45/cpu/1", 3),
        ("netstat/TcpExt/ListenDrops", 3),
        ("snmp/Tcp/RetransSegs", 3),
        ("vmstat/allocstall_normal", 3),
        ("conntrack/drop", 6),
        ("rdma/mlx5_0/1/counter/port_xmit_data", 12),
        ("rdma/mlx5_0/1/hw/out_of_sequence", 3),
        ("block/nvme0n1/read_ios", 3),
        ("pressure/irq/total_us", 3),
    ] {
        assert_eq!(watch.grown(key), Known::Value(grown), "{key}");
    }
    for key in [
        "snmp/Tcp/CurrEstab",
        "rdma/mlx5_0/1/hw/lifespan",
        "vmstat/nr_free_pages",
        "block/loop0/read_ios",
    ] {
        assert!(!watch.counters.contains_key(key), "{key} is no counter");
    }
    assert_eq!(
        watch.path("irq/45/cpu/1"),
        "/sys/kernel/irq/45/per_cpu_count"
    );
}

#[test]
fn the_rdma_ports_of_a_trials_interface_are_found_and_those_that_it_names() {
    let mut tree = tree(0);
    for (path, text) in [
        // A NIC's port reports it by its first GID, a software device by its parent.
        ("mlx5_0/ports/1/gid_attrs/ndevs/0", "eth0\n"),
        ("rxe0/parent", "eth0\n"),
        ("rxe0/ports/1/hw_counters/sent_pkts", "5"),
        ("rxe1/parent", "eth1\n"),
        ("rxe1/ports/1/hw_counters/sent_pkts", "5"),
    ] {
        let text = text.to_owned();
        let path = format!("sys/class/infiniband/{path}");
        tree.put(
            &path,
            Entry::File {
                mode: 0o444,
                text: text.into(),
            },
        );
    }
    let root = HostRoot::in_memory(tree);
    let nic: NicName = "eth0".parse().expect("a name");
    let found = |nics: &[NicName], named: &[&str]| {
        let ports = rdma_ports(&root, nics, named);
        ports
            .iter()
            .map(|(device, port)| format!("{device}/{port}"))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        found(std::slice::from_ref(&nic), &[]),
        ["mlx5_0/1", "rxe0/1"]
    );
    assert_eq!(found(&[nic], &["rxe1"]), ["mlx5_0/1", "rxe0/1", "rxe1/1"]);
    assert_eq!(found(&[], &[]), [""; 0]);
}

#[test]
fn a_nic_that_was_reset_counts_nothing_known() {
    let watch = watch();
    let cause = |key: &str| watch.grown(key).gap().map(|gap| gap.cause);
    assert_eq!(cause("nic/eth0/stat/rx_bytes"), Some(Cause::Unreadable));
    assert_eq!(cause("nic/eth0/phy/SymbolError"), Some(Cause::Denied));
    assert_eq!(cause("nic/eth0/pause/rx-frames"), Some(Cause::Absent));
}

#[test]
fn a_short_counter_that_ran_over_goes_on() {
    assert_eq!(watch().grown("cpu/1/softnet/processed"), Known::Value(3));
}

#[test]
fn what_came_or_went_in_between_is_said_to_have() {
    let (mut first, mut second) = (reading(0), reading(3));
    first.counters.remove("nic/eth0/stat/tx_bytes");
    second.counters.remove("netstat/TcpExt/ListenDrops");
    let watch = second.since(&first, Nanoseconds::from_millis(1));
    let reason = |key: &str| watch.grown(key).gap().map(|gap| gap.reason.clone());
    let came = reason("nic/eth0/stat/tx_bytes").expect("a gap");
    assert!(came.contains("first reading"), "{came}");
    let went = reason("netstat/TcpExt/ListenDrops").expect("a gap");
    assert!(went.contains("second reading"), "{went}");
    assert!(
        first.span_since(&second).value().is_none(),
        "time runs forward"
    );
}

#[test]
fn a_reading_reads_back_as_it_was_stored() {
    let first = reading(1);
    let text = serde_json::to_string(&first).expect("plain data");
    let again: Reading = serde_json::from_str(&text).expect("what was written");
    assert_eq!(again, first);
}

#[test]
fn an_empty_host_leaves_gaps_and_no_counter() {
    let root = HostRoot::in_memory(Tree::new(true));
    let nics = Counts(NicCounts::default());
    let host = read_host(&root, &nics);
    let reading = read_counters(&root, &nics, &host);
    assert!(reading.counters.is_empty());
    assert!(reading.uptime_ns.value().is_none());
}

#[test]
fn counts_belong_to_the_cpus_that_are_possible() {
    let possible = "0,2".parse().expect("a list");
    let counts = parse_counts("5,7", Some(&possible)).expect("two numbers");
    assert_eq!(counts, BTreeMap::from([(0, 5), (2, 7)]));
    assert!(parse_counts("5", Some(&possible)).is_err());
    let table = "     CPU0 CPU3\n 45:  9  2  PCI-MSI 1-edge eth0\n 46: 1 1 x\nNMI: 4 4 n";
    let table = parse_table(table, &BTreeSet::from([45]));
    assert_eq!(
        table,
        BTreeMap::from([(45, BTreeMap::from([(0, 9), (3, 2)]))])
    );
}

#[test]
fn uptime_is_read_to_the_hundredth_of_a_second() {
    assert_eq!(
        parse_uptime("1785.02 2898.26"),
        Ok(Nanoseconds::new(1_785_020_000_000))
    );
    assert!(parse_uptime("x").is_err() && parse_uptime("1.5 2").is_err());
}

proptest! {
    #[test]
    fn no_text_panics(text in "(TOTAL_ERR_)?[0-9., ]{0,24}|( CPU[0-9]{0,2}){0,2}\n[0-9: ]{0,12}|.{0,30}") {
        let _ = (parse_uptime(&text), parse_aer_total(&text), parse_block(&text));
        let _ = (parse_rdma_counter("port_xmit_data", &text), parse_counts(&text, None));
        let _ = parse_table(&text, &BTreeSet::from([1]));
    }
}
