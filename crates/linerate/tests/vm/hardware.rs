//! The map and the diagnosis of the guest's hardware: node 0 has CPUs 0-1 and the NIC n1, node 1
//! has CPUs 2-3 and the NIC n0, each with four queues.

use serde_json::json;

use crate::guest::{Guest, entry, finding};
use crate::settings::apply_and_undo;

/// Up with a carrier, and so with interrupts.
const UP: &str = "for nic in n0 n1; do ip link set $nic up; done
    for nic in n0 n1; do until [ \"$(cat /sys/class/net/$nic/operstate)\" = up ]; do :; done; done";

pub(crate) fn a_nic_lies_on_its_node_with_its_queues_and_their_interrupts(guest: &Guest) {
    guest.shell(UP);
    let host = guest.map();
    for (node, cpus, nic) in [(0, "0-1", "n1"), (1, "2-3", "n0")] {
        let own = entry(&host["nodes"], "id", node);
        assert_eq!(own["cpus"], cpus);
        assert!(own["memory_bytes"].as_u64() > Some(500_000_000), "{own:#}");
        let nic = entry(&host["nics"], "name", nic);
        assert_eq!(nic["driver"], "igb");
        assert_eq!(nic["numa_node"], node);
        assert_eq!(nic["local_cpus"], cpus);
        let queues = nic["queues"].as_array().expect("queues");
        assert_eq!(queues.len(), 8);
        for queue in queues {
            let interrupt = entry(&host["irqs"], "number", queue["irq"].clone());
            let name = format!(
                "{}-{}-{}",
                nic["name"].as_str().expect("a name"),
                queue["kind"].as_str().expect("a kind"),
                queue["index"]
            );
            assert_eq!(interrupt["actions"], json!([name]));
            assert_eq!(interrupt["node"], node);
            assert_eq!(interrupt["effective"], queue["cpus"]);
        }
        // The card speaks the first PCIe's speed below a port of the fourth's with sixteen lanes.
        let links = &nic["pcie"]["links"];
        assert_eq!(
            (&links[0]["transfer_mt_per_s"], &links[0]["width"]),
            (&json!(2500), &json!(1))
        );
        assert_eq!(
            (&links[1]["transfer_max_mt_per_s"], &links[1]["width_max"]),
            (&json!(16_000), &json!(16))
        );
    }
}

pub(crate) fn an_interrupts_cpus_are_set_read_back_and_judged(guest: &Guest) {
    guest.shell(UP);
    let number = guest.shell("awk -F: '/n0-rx-1/ {print $1 + 0}' /proc/interrupts");
    let number: u32 = number.trim().parse().expect("n0-rx-1 has an interrupt");
    // A new affinity holds from the next interrupt on.
    let moved = |mask: &str, cpus: &str| {
        guest.shell(&format!(
            "cd /proc/irq/{number}; echo {mask} >smp_affinity
            until grep -qE '^({cpus})$' effective_affinity_list; do sleep 0.1; done"
        ));
    };
    moved("1", "0");
    let host = guest.map();
    let irq = entry(&host["irqs"], "number", number);
    assert_eq!(
        (&irq["requested"], &irq["effective"]),
        (&json!("0"), &json!("0"))
    );

    let findings = guest.findings();
    let found = finding(&findings, "irq-remote-numa", "nic/n0");
    assert_eq!(found["severity"], "warn");
    entry(&found["remedies"], "setting", "nic/n0/queue/rx-1/irq-cpus");
    // Queues are compared with the CPUs of their card's node, and against those that serve them.
    for (nic, cpus) in [("nic/n0", "CPUs 0,2-3"), ("nic/n1", "CPUs 0-1")] {
        let found = finding(&findings, "queues-too-many", nic);
        assert!(found["summary"].to_string().contains(cpus), "{found:#}");
    }
    moved("c", "[23]");
}

pub(crate) fn a_card_that_could_do_more_than_its_pcie_link_is_found(guest: &Guest) {
    guest.shell(UP);
    // The card as the kernel would show one of the fourth generation with four lanes.
    guest.shell(
        "echo '16.0 GT/s PCIe' >/run/speed; echo 4 >/run/width
        for what in speed width; do mount --bind /run/$what /sys/class/net/n0/device/max_link_$what; done",
    );
    let findings = guest.findings();
    let found = finding(&findings, "pcie-link-degraded", "nic/n0");
    let summary = found["summary"].to_string();
    assert!(
        summary.contains("2.000 Gb/s of the 63.0") && summary.contains("n0 supports"),
        "{summary}"
    );
    guest.shell("for what in speed width; do umount /sys/class/net/n0/device/max_link_$what; done");
}

pub(crate) fn a_block_device_tells_its_hardware_queues(guest: &Guest) {
    let mut counted = guest.shell(
        "modprobe null_blk nr_devices=1 submit_queues=4 poll_queues=0 gb=1
        ls /sys/block/nullb0/mq | wc -l",
    );
    counted.truncate(counted.trim_end().len());
    assert_eq!(counted, "4");
    let host = guest.map();
    let device = entry(&host["block"], "name", "nullb0");
    assert_eq!(device["hardware_queues"], 4);
    assert_eq!(device["queue_cpus"], json!(["0", "1", "2", "3"]));
    let scheduler = || guest.shell("cat /sys/block/nullb0/queue/scheduler");
    let before = scheduler();
    assert!(before.contains("[none]"), "{before}");
    apply_and_undo(guest, "block/nullb0/scheduler", "mq-deadline", || {
        assert!(scheduler().contains("[mq-deadline]"), "{}", scheduler());
    });
    assert_eq!(scheduler(), before);
    guest.shell("rmmod null_blk");
}
