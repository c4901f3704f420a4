//! `measure block` on devices that only the guest has: null_blk with one and several hardware queues and with polled ones,
//! scsi_debug, and the virtio disk, which is on a NUMA node and has interrupts.

use serde_json::{Value, json};

use crate::guest::Guest;

/// Short: the clock of the guest does not depend on the load.
const TIME: &str = "100ms";

fn measured(guest: &Guest, words: &[&str]) -> Value {
    guest.linerate(&[&["measure", "block"], words, &["--time", TIME]].concat())
}

/// The exit code and the message of a refused measurement.
fn refused(guest: &Guest, words: &str, code: i32) -> String {
    let command = Guest::command();
    guest.shell(&format!(
        "set +e; {command} measure block {words} --time {TIME} 2>&1; [ $? = {code} ]"
    ))
}

fn used_queues(document: &Value) -> usize {
    let queues = document["queues"].as_array().expect("queues");
    let used = queues
        .iter()
        .filter(|queue| queue["operations"] != json!(0));
    used.count()
}

pub(crate) fn null_blk_is_measured_on_one_queue_on_several_and_polled(guest: &Guest) {
    let load = |parameters: &str| {
        guest.shell(&format!(
            "modprobe null_blk nr_devices=1 gb=1 queue_mode=2 {parameters}"
        ));
    };
    load("submit_queues=1 poll_queues=0");
    let one = measured(guest, &["nullb0", "--jobs", "per-cpu"]);
    assert_eq!(one["device"]["hardware_queues"], 1);
    assert_eq!(
        (used_queues(&one), &one["device"]["transport"]),
        (1, &json!("null"))
    );
    let why = refused(guest, "nullb0 --poll", 22);
    assert!(why.contains("null_blk.poll_queues"), "{why}");
    guest.shell("rmmod null_blk");

    load("submit_queues=4 poll_queues=0");
    let several = measured(guest, &["nullb0", "--jobs", "per-queue"]);
    assert_eq!(several["jobs"].as_array().map(Vec::len), Some(4));
    assert_eq!(used_queues(&several), 4);
    let far = measured(guest, &["nullb0", "--jobs", "per-cpu", "--place", "node:1"]);
    let cpus: Vec<&Value> = (far["jobs"].as_array().expect("jobs").iter())
        .map(|job| &job["cpus"])
        .collect();
    assert_eq!(cpus, [&json!("2"), &json!("3")]);
    guest.shell("rmmod null_blk");

    load("submit_queues=4 poll_queues=2");
    let polled = measured(guest, &["nullb0", "--poll", "--depth", "4"]);
    assert_eq!(polled["polled"], true);
    assert!(
        polled["total"]["operations"].as_u64() > Some(0),
        "{polled:#}"
    );
    let queues = polled["queues"].as_array().expect("queues");
    let used = queues
        .iter()
        .position(|queue| queue["operations"] != json!(0));
    assert!(
        used >= Some(4),
        "a polled queue comes after the others: {queues:?}"
    );
    guest.shell("rmmod null_blk");
}

pub(crate) fn a_scsi_disk_is_read_with_each_scheduler_and_not_written_while_the_roots_disk_is_unknown(
    guest: &Guest,
) {
    // Nothing loads sd_mod by itself: the guest has no udev.
    guest.shell("modprobe sd_mod; modprobe scsi_debug dev_size_mb=64 delay=0");
    let name = guest.shell(
        "until f=$(grep -ls scsi_debug /sys/block/sd*/device/model); do sleep 0.1; done
        f=${f%/device/model}; echo ${f##*/}",
    );
    let name = name.trim();
    for scheduler in ["none", "mq-deadline"] {
        guest.shell(&format!(
            "echo {scheduler} > /sys/block/{name}/queue/scheduler"
        ));
        let read = measured(guest, &[name]);
        assert_eq!(read["device"]["scheduler"], scheduler);
        assert_eq!(read["device"]["transport"], "scsi");
        assert_eq!(read["access"], "read");
    }
    // The guest's root is an overlay of directories that are mounted nowhere any more.
    let why = refused(guest, &format!("{name} --write {name}"), 23);
    assert!(
        why.contains("the disk of the root file system is not known"),
        "{why}"
    );
    guest.shell(&format!("mkswap /dev/{name}; swapon /dev/{name}"));
    let why = refused(guest, &format!("{name} --write {name}"), 23);
    assert!(why.contains("is a swap area in use"), "{why}");
    guest.shell(&format!("swapoff /dev/{name}"));
    guest.shell("rmmod scsi_debug");
}

pub(crate) fn a_virtio_disk_has_interrupts_and_a_node(guest: &Guest) {
    let document = measured(guest, &["vda", "--place", "near", "--depth", "4"]);
    let fired = document["interrupts"].as_array().expect("interrupts");
    assert!(!fired.is_empty(), "{document:#}");
    let placed = &document["jobs"][0]["cpus"];
    assert!(
        placed.as_str().is_some_and(|cpus| !cpus.is_empty()),
        "{placed}"
    );
    // It is mounted in the guest.
    let why = refused(guest, "vda --write vda", 23);
    assert!(why.contains("vda is mounted on"), "{why}");
}
