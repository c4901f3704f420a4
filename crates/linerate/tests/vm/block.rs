//! `measure block` on devices that only the guest has: null_blk with one and several hardware queues and with polled ones,
//! scsi_debug, disks of virtio-scsi and NVMe, and the virtio disk, which is on a NUMA node and has interrupts. The
//! experiment `blk-mq`, and the fixes of `blk-mq-config`. No speed of an emulated device means anything.

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

/// The name of the SCSI disk of this vendor or model, once its driver has found it.
fn scsi_disk(guest: &Guest, model: &str) -> String {
    let name = guest.shell(&format!(
        "until f=$(grep -ls '{model}' /sys/block/sd*/device/model); do sleep 0.1; done
        f=${{f%/device/model}}; echo ${{f##*/}}"
    ));
    name.trim().to_owned()
}

/// Runs an experiment on devices that are levels, and checks what every one has in common.
fn experiment(guest: &Guest, words: &[&str]) -> Value {
    guest.shell("rm -rf /run/lab");
    let common = ["--seed", "3", "--time", "0.05", "--out", "/run/lab"];
    let document = guest.linerate(&[&["lab", "run"], words, &common].concat());
    assert_eq!(document["complete"], true);
    assert_eq!(document["restored"], true);
    document
}

/// The cells of a response of an experiment that have trials, by the names of their levels.
fn measured_cells(document: &Value, response: usize) -> Vec<String> {
    let cells = document["responses"][response]["cells"].as_array();
    let cells = cells.expect("cells").iter();
    let measured = cells.filter(|cell| cell["trials"] == json!(3));
    measured.map(|cell| cell["levels"].to_string()).collect()
}

pub(crate) fn the_experiment_compares_one_queue_with_several_and_polls_where_there_are_polled_queues(
    guest: &Guest,
) {
    guest.shell(
        "modprobe null_blk nr_devices=0
        mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
        cd /sys/kernel/config/nullb
        for device in 'nullb0 1 0' 'nullb1 4 2'; do
            set -- $device; mkdir $1
            echo $2 >$1/submit_queues; echo $3 >$1/poll_queues; echo 2 >$1/queue_mode; echo 64 >$1/size
            echo 1 >$1/power
        done",
    );
    guest.shell(&format!("cat >/run/queues.toml <<'END'{QUEUES}END"));
    let paths = ["--path", "several=/dev/nullb1", "--path", "one=/dev/nullb0"];
    let document = experiment(guest, &[&["/run/queues.toml"], &paths[..]].concat());
    for response in 0..3 {
        let cells = measured_cells(&document, response);
        // Two devices, each with two schedulers, two depths; polling on the one that can.
        assert_eq!(cells.len(), 12, "{cells:?}");
        let polled = cells.iter().filter(|cell| cell.contains("polled"));
        assert!(polled.clone().count() == 4 && polled.clone().all(|cell| cell.contains("several")));
    }
    let cells = document["responses"][0]["cells"].as_array().expect("cells");
    let refused = cells.iter().find(|cell| cell["trials"] == json!(0));
    let why = refused.expect("polling on one queue")["why"].to_string();
    assert!(why.contains("io_poll is 0"), "{why}");
    let plan = guest.shell(&format!(
        "{} lab run blk-mq /dev/nullb1 --plan",
        Guest::command()
    ));
    assert!(
        plan.contains("varied: completion: interrupt, polled"),
        "{plan}"
    );
    guest.shell("rmdir /sys/kernel/config/nullb/nullb?; rmmod null_blk");
}

const QUEUES: &str = r#"
title = "Queues"
workload = "block"
response = ["operations", "p99", "cpu-op-local"]

[[factors]]
setting = "block/@/scheduler"
on = "local"
levels = ["none", "mq-deadline"]

[[factors]]
option = "depth"
levels = [1, 16]

[[factors]]
name = "completion"
levels = [{ name = "interrupt" }, { name = "polled", options = { poll = true } }]

[design]
repeats = 3
"#;

pub(crate) fn the_experiment_reads_scsi_disks_with_each_scheduler_and_restores_it(guest: &Guest) {
    guest
        .shell("modprobe sd_mod; modprobe virtio_scsi; modprobe scsi_debug dev_size_mb=64 delay=0");
    let (debug, virtio) = (scsi_disk(guest, "scsi_debug"), scsi_disk(guest, "QEMU"));
    let before = guest.shell(&format!(
        "cat /sys/block/{{{debug},{virtio}}}/queue/{{scheduler,nr_requests}}"
    ));
    guest.shell(&format!(
        "cat >/run/scsi.toml <<'END'{}END",
        QUEUES.replace("levels = [1, 16]", "levels = [16, 4]\nquick = [0, 1]")
    ));
    let paths = [
        format!("debug=/dev/{debug}"),
        format!("virtio=/dev/{virtio}"),
    ];
    let words = ["/run/scsi.toml", "--path", &paths[0], "--path", &paths[1]];
    let document = experiment(guest, &words);
    let cells = measured_cells(&document, 0);
    assert_eq!(cells.len(), 8, "{cells:?}");
    let skipped = document["factors"][3]["levels"][1]["skipped"].to_string();
    assert!(skipped.contains("has no polled queues"), "{skipped}");
    let after = guest.shell(&format!(
        "cat /sys/block/{{{debug},{virtio}}}/queue/{{scheduler,nr_requests}}"
    ));
    assert_eq!(after, before);
    guest.shell("rmmod scsi_debug virtio_scsi");
}

pub(crate) fn the_fix_of_a_scheduler_on_nvme_is_tested_and_kept_only_if_it_helps(guest: &Guest) {
    // Without multipath: its head is no blk-mq device, and has no scheduler.
    guest.shell(
        "modprobe nvme_core multipath=N; modprobe nvme; until [ -b /dev/nvme0n1 ]; do sleep 0.1; done
        echo mq-deadline >/sys/block/nvme0n1/queue/scheduler",
    );
    guest.shell("rm -rf /run/proof");
    let common = ["--time", "0.1", "--seed", "3", "--out", "/run/proof"];
    let document = guest.linerate(&[&["prove", "/dev/nvme0n1"], &common[..]].concat());
    let finding = &document["findings"][0];
    assert_eq!(finding["rule"], "blk-mq-config", "{document:#}");
    let remedies = document["remedies"].as_array().expect("remedies");
    // All changes of a rule are one fix.
    let of_scheduler = |one: &&Value| {
        one["changes"]
            .to_string()
            .contains("block/nvme0n1/scheduler")
    };
    let tested = remedies.iter().rfind(of_scheduler).expect("it was tested");
    assert_eq!(tested["rule"], "blk-mq-config");
    assert!(tested["effect"]["relative"].is_number(), "{tested:#}");
    let now = guest.shell("cat /sys/block/nvme0n1/queue/scheduler");
    let is_kept = tested["kept"] == json!(true);
    assert_eq!(now.contains("[none]"), is_kept, "{now} {tested:#}");
    assert_eq!(now.contains("[mq-deadline]"), !is_kept, "{now} {tested:#}");
    if is_kept {
        guest.linerate(&["tune", "undo"]);
        let undone = guest.shell("cat /sys/block/nvme0n1/queue/scheduler");
        assert!(undone.contains("[mq-deadline]"), "{undone}");
    }
    guest.shell("rmmod nvme nvme_core");
}

pub(crate) fn a_longer_queue_that_helps_is_kept_and_undone_by_one_command(guest: &Guest) {
    // A device that takes 1 ms for each request, and has room for 2: the rate follows the number of requests.
    guest.shell(
        "modprobe null_blk nr_devices=1 gb=1 queue_mode=2 submit_queues=1 irqmode=2 completion_nsec=1000000
        echo 2 >/sys/block/nullb0/queue/nr_requests || echo 4 >/sys/block/nullb0/queue/nr_requests",
    );
    let few = guest.shell("cat /sys/block/nullb0/queue/nr_requests");
    guest.shell(
        "rm -rf /run/proof; printf '[settings]\n\"block/nullb0/nr-requests\" = 32\n' >/run/plan.toml",
    );
    let common = ["--time", "0.1", "--seed", "3", "--out", "/run/proof"];
    let given = ["prove", "/dev/nullb0", "--from", "/run/plan.toml"];
    let document = guest.linerate(&[&given[..], &common[..]].concat());
    let tested = &document["remedies"][0];
    assert_eq!(tested["kept"], true, "{tested:#}");
    let requests = "cat /sys/block/nullb0/queue/nr_requests";
    assert_eq!(guest.shell(requests).trim(), "32");
    guest.shell(&format!("{} tune undo", Guest::command()));
    assert_eq!(guest.shell(requests), few);
    guest.shell("rmmod null_blk");
}
