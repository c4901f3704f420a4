//! What the map and the doctor tell of the guest's hardware: node 0 has CPUs 0-1 and the NIC n1, node 1
//! has CPUs 2-3 and the NIC n0, each with four queues.

use serde_json::{Value, json};

use crate::guest::{Guest, entry};

/// Up with a carrier, and so with interrupts.
const UP: &str = "for nic in n0 n1; do ip link set $nic up; done
    for nic in n0 n1; do until [ \"$(cat /sys/class/net/$nic/operstate)\" = up ]; do :; done; done";

pub(crate) fn a_nic_lies_on_its_node_with_its_queues_and_their_interrupts(guest: &Guest) {
    guest.shell(UP);
    let host = guest.map();
    for (node, cpus, nic) in [(0, "0-1", "n1"), (1, "2-3", "n0")] {
        assert_eq!(entry(&host["nodes"], "id", node)["cpus"], cpus);
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

pub(crate) fn an_interrupts_cpus_are_set_and_read_back(guest: &Guest) {
    guest.shell(UP);
    let irq = |host: &Value| {
        let queues = entry(&host["nics"], "name", "n0")["queues"].clone();
        let mut queues = queues.as_array().expect("queues").clone().into_iter();
        let queue = queues.find(|queue| queue["kind"] == "rx" && queue["index"] == 1);
        queue.expect("n0 has rx-1")["irq"].clone()
    };
    let number = irq(&guest.map());
    for (mask, cpus) in [("1", "0"), ("c", "2-3")] {
        let file = format!("/proc/irq/{number}/smp_affinity");
        let read = guest.shell(&format!("echo {mask} >{file}; cat {file}"));
        assert_eq!(read.trim(), mask);
        let host = guest.map();
        assert_eq!(
            entry(&host["irqs"], "number", irq(&host))["requested"],
            cpus
        );
    }
}

pub(crate) fn the_doctor_judges_queues_by_the_cpus_of_their_node(guest: &Guest) {
    guest.shell(UP);
    let diagnosis = guest.linerate(&["doctor", "--watch", "0"]);
    let findings = diagnosis["findings"].as_array().expect("findings");
    for (nic, cpus) in [("nic/n0", "CPUs 2-3"), ("nic/n1", "CPUs 0-1")] {
        let found = findings
            .iter()
            .find(|found| found["rule"] == "queues-too-many" && found["subject"] == nic);
        let summary =
            found.unwrap_or_else(|| panic!("{nic}: {findings:#?}"))["summary"].to_string();
        assert!(summary.contains(cpus), "{summary}");
    }
}

pub(crate) fn soft_roce_is_an_rdma_device_of_its_nic(guest: &Guest) {
    guest.shell(UP);
    guest.shell("modprobe rdma_rxe; rdma link add rxe0 type rxe netdev n0");
    let host = guest.map();
    let device = entry(&host["rdma"], "name", "rxe0");
    let port = entry(&device["ports"], "port", 1);
    assert_eq!(port["state"], "ACTIVE");
    assert_eq!(port["link_layer"], "Ethernet");
    assert_eq!(port["netdev"], "n0");
    assert_eq!(entry(&port["gids"], "index", 0)["kind"], "RoCE v2");
    assert_eq!(entry(&host["nics"], "name", "n0")["rdma"], "rxe0");
    guest.shell("rdma link delete rxe0");
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
    guest.shell("rmmod null_blk");
}
