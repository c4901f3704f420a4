//! `measure block` on loop devices of files of our own, as root: the figures, and that nothing is written that must not
//! be; experiments and proofs on them.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Signal, geteuid};
use serde_json::Value;

use crate::fitting;
use crate::job::{Done, Job, linerate, run};
use crate::lab::text;

const MIB: usize = 1 << 20;
/// The device, and what is kept blank at its ends.
const SIZE: usize = 16 * MIB;
const HEAD: usize = 8 * MIB;
const TAIL: usize = MIB;

/// A loop device on a file in a folder of its own.
struct LoopDevice {
    node: String,
    file: PathBuf,
    _folder: tempfile::TempDir,
}

impl LoopDevice {
    /// One with these bytes; none where this user cannot make one.
    fn new(bytes: &[u8]) -> Option<Self> {
        Self::with(bytes, &[])
    }

    /// The same with more options of losetup(8).
    fn with(bytes: &[u8], options: &[&str]) -> Option<Self> {
        if !geteuid().is_root() {
            eprintln!("SKIP: a loop device needs root");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("device");
        fs::write(&file, bytes).expect("space");
        let made = Command::new("losetup")
            .args(["--find", "--show"])
            .args(options)
            .arg(&file)
            .output();
        match made {
            Ok(made) if made.status.success() => Some(Self {
                node: String::from_utf8_lossy(&made.stdout).trim().to_owned(),
                file,
                _folder: folder,
            }),
            Ok(made) => {
                eprintln!("SKIP: losetup: {}", String::from_utf8_lossy(&made.stderr));
                None
            }
            Err(error) => {
                eprintln!("SKIP: losetup: {error}");
                None
            }
        }
    }

    /// What the device has, not what the page cache had before.
    fn bytes(&self) -> Vec<u8> {
        fs::read(&self.file).expect("the file")
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .args(["--detach", &self.node])
            .status();
    }
}

#[test]
fn a_measurement_is_stored_compared_and_fails_a_bound_that_does_not_hold() {
    let Some(device) = LoopDevice::new(&vec![1; SIZE]) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    let measure = |words: &[&str]| {
        let mut command = linerate(&["--state", text(&state), "measure", "block", &device.node]);
        command.args(["--time", "300ms"]).args(words);
        run(command)
    };
    let verbose = measure(&["-v", "--name", "before"]);
    if is_without_io_uring(&verbose) {
        return;
    }
    let lines = verbose.expect_code(0).out;
    assert!(lines.contains("I/O per system call"), "{lines}");
    measure(&["--name", "after", "--depth", "1"]).expect_code(0);
    let show = |words: &[&str]| {
        let json = ["--state", text(&state), "--json"];
        run(linerate(&[&json[..], words].concat()))
    };
    let listed = fitting(&show(&["runs"]).expect_code(0).out).to_string();
    assert!(listed.contains("a block device"), "{listed}");
    let report = fitting(&show(&["report", "before"]).expect_code(0).out);
    assert_eq!(report["results"][0]["workload"], "block");
    assert_eq!(report["results"][0]["response"], "operations");
    // A trial each: too few for a verdict, but runs of one workload.
    let compared = show(&["compare", "before", "after"]).expect_code(12);
    assert!(
        compared.out.contains("linerate.compare/1"),
        "{}",
        compared.err
    );
    let bound = |bound: &str, code| {
        // Trials that are correlated, as on a busy machine, are repeated until they decide.
        let until = ["--until-ci", "50%"];
        let words = [&["--no-store", "--json", "--require", bound][..], &until].concat();
        let done = measure(&words).expect_code(code);
        fitting(&done.out)["requirements"][0]["verdict"].clone()
    };
    assert_eq!(bound("operations>=1e12", 11), "broken");
    assert_eq!(bound("operations>=1", 0), "kept");
}

const FACTORS: &str = r#"
title = "Two devices"
workload = "block"
response = ["operations", "p99", "cpu-op-local"]
options = { time = "300ms", depth = 4 }

[[factors]]
name = "completion"
levels = [{ name = "interrupt" }, { name = "polled", options = { poll = true } }]

[[factors]]
setting = "block/@/nomerges"
on = "local"
levels = ["baseline", 2]

[design]
repeats = 3
"#;

#[test]
fn an_experiment_reads_each_device_with_each_setting_and_restores_them() {
    let Some((one, two)) = LoopDevice::new(&vec![1; SIZE]).zip(LoopDevice::new(&vec![2; SIZE]))
    else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("devices.toml");
    fs::write(&file, FACTORS).expect("space");
    let (state, out) = (folder.path().join("state"), folder.path().join("run"));
    let paths = [
        format!("one={}", one.node),
        format!("two={}", two.node),
        "gone=/dev/no-such-disk".to_owned(),
    ];
    let mut command = linerate(&["--state", text(&state), "--json", "lab", "run", text(&file)]);
    for path in &paths {
        command.args(["--path", path]);
    }
    command.args(["--seed", "3", "--out", text(&out)]);
    let done = run(command);
    if is_without_io_uring(&done) {
        return;
    }
    let document = fitting(&done.expect_code(0).out);
    assert_eq!(document["complete"], true);
    assert_eq!(document["restored"], true);
    assert_eq!(document["factors"][0]["name"], "device");
    let skipped = |factor: usize, level: usize| {
        let of = &document["factors"][factor]["levels"][level]["skipped"];
        of.as_str().unwrap_or_default().to_owned()
    };
    assert!(skipped(0, 2).contains("no such file"), "{}", skipped(0, 2));
    assert!(skipped(1, 1).contains("io_poll is 0"), "{}", skipped(1, 1));
    for response in document["responses"].as_array().expect("responses") {
        let cells = response["cells"].as_array().expect("cells");
        assert_eq!(cells.len(), 4, "two devices, two settings");
        assert!(cells.iter().all(|cell| cell["trials"] == 3), "{cells:#?}");
    }
    for device in [&one, &two] {
        let name = device.node.trim_start_matches("/dev/");
        let merges = fs::read_to_string(format!("/sys/block/{name}/queue/nomerges"));
        assert_eq!(merges.expect("sysfs").trim(), "0");
    }
    // The record is enough for the analysis, also where the devices are gone.
    drop((one, two));
    let again = run(linerate(&["--json", "lab", "show", text(&out)])).expect_code(0);
    assert_eq!(fitting(&again.out)["trials"], document["trials"]);
}

#[test]
fn a_change_is_proved_with_reads_of_the_device_and_rolled_back() {
    let Some(device) = LoopDevice::new(&vec![1; SIZE]) else {
        return;
    };
    let name = device.node.trim_start_matches("/dev/");
    let folder = tempfile::tempdir().expect("a folder");
    let plan = folder.path().join("plan.toml");
    fs::write(
        &plan,
        format!("[settings]\n\"block/{name}/nomerges\" = 2\n"),
    )
    .expect("space");
    let (state, out) = (folder.path().join("state"), folder.path().join("run"));
    let mut command = linerate(&["--state", text(&state), "--json", "prove", &device.node]);
    command.args(["--from", text(&plan), "--undo", "--time", "300ms"]);
    command.args(["--seed", "3", "--out", text(&out)]);
    let done = run(command);
    if is_without_io_uring(&done) {
        return;
    }
    let document = fitting(&done.expect_code(0).out);
    assert_eq!(document["operation_bytes"], 4096);
    assert_eq!(document["restored"], true);
    let remedies = document["remedies"].as_array().expect("remedies");
    let tested = &remedies[0];
    assert_eq!(tested["setting"], format!("block/{name}/nomerges"));
    assert!(tested["effect"]["relative"].is_number(), "{tested:#}");
    let refused = run(linerate(&["prove", &device.node, "--flows", "2"]));
    assert!(
        refused
            .expect_code(2)
            .err
            .contains("`--flows` does not apply")
    );
}

fn measured(words: &[&str]) -> Done {
    let state = tempfile::tempdir().expect("a folder");
    let mut command: Command =
        linerate(&["--state", text(state.path()), "--json", "measure", "block"]);
    command.args(words).args(["--time", "300ms", "--seed", "1"]);
    run(command)
}

/// Whether this kernel has no io_uring for us: then the test has nothing to say.
fn is_without_io_uring(done: &Done) -> bool {
    let is = done.code != Some(0) && done.err.contains("io_uring");
    if is {
        eprintln!("SKIP: {}", done.err);
    }
    is
}

#[test]
fn a_read_has_figures_that_fit_together_and_changes_nothing() {
    let bytes: Vec<u8> = (0..=250).cycle().take(SIZE).collect();
    let Some(device) = LoopDevice::new(&bytes) else {
        return;
    };
    let name = device.node.trim_start_matches("/dev/");
    for words in [
        &[name, "--depth", "4"][..],
        &[
            &device.node,
            "--pattern",
            "sequential",
            "--block-size",
            "64KiB",
            "--jobs",
            "2",
        ],
        &[name, "--jobs", "per-queue"],
        &[
            name, "--jobs", "per-cpu", "--depth", "1", "--place", "node:0",
        ],
    ] {
        let done = measured(words);
        if is_without_io_uring(&done) {
            return;
        }
        let document = fitting(&done.expect_code(0).out);
        let number = |value: &Value| value.as_u64().expect("a number");
        let operations = number(&document["total"]["operations"]);
        assert!(operations > 0, "{words:?}");
        assert_eq!(number(&document["latency_ns"]["count"]), operations);
        let block = number(&document["block_bytes"]);
        assert_eq!(number(&document["total"]["bytes"]), operations * block);
        let jobs = document["jobs"].as_array().expect("jobs");
        let sum: u64 = jobs.iter().map(|job| number(&job["operations"])).sum();
        assert_eq!(sum, operations, "{words:?}");
        let in_flight = number(&document["in_flight"]["jobs"]);
        assert_eq!(in_flight, number(&document["depth"]) * jobs.len() as u64);
        let queues = document["queues"]
            .as_array()
            .expect("a loop device has queues");
        let submitted: u64 = queues
            .iter()
            .map(|queue| number(&queue["operations"]))
            .sum();
        assert!((operations..=operations + in_flight).contains(&submitted));
        assert_eq!(document["device"]["disk"], name);
    }
    assert!(device.bytes() == bytes, "reading changed the device");
}

#[test]
fn the_text_has_iops_latency_cpu_and_limit() {
    let Some(device) = LoopDevice::new(&vec![1; SIZE]) else {
        return;
    };
    let done = run(linerate(&["measure", "block", &device.node, "-t", "300ms"]));
    if is_without_io_uring(&done) {
        return;
    }
    let done = done.expect_code(0);
    let labels: Vec<&str> = (done.out.lines())
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(labels[..3], ["IOPS", "latency", "CPU"], "{}", done.out);
    assert!(labels.contains(&"limit"), "{}", done.out);
    assert!(done.err.contains("Ctrl-C ends it early"), "{}", done.err);
}

#[test]
fn a_blank_device_is_written_between_its_ends_and_stays_blank() {
    let Some(device) = LoopDevice::new(&vec![0; SIZE]) else {
        return;
    };
    let name = device.node.trim_start_matches("/dev/").to_owned();
    for _ in 0..2 {
        // The name and the path are the same device.
        let done = measured(&[&name, "--write", &device.node]);
        if is_without_io_uring(&done) {
            return;
        }
        let document = fitting(&done.expect_code(0).out);
        assert_eq!(document["access"], "write");
        assert_eq!(document["area"]["start_bytes"], HEAD);
    }
    let bytes = device.bytes();
    let (head, rest) = bytes.split_at(HEAD);
    let (middle, tail) = rest.split_at(rest.len() - TAIL);
    assert!(
        head.iter().chain(tail).all(|byte| *byte == 0),
        "an end was written"
    );
    assert!(middle.iter().any(|byte| *byte != 0), "nothing was written");
}

#[test]
fn nothing_is_written_to_a_device_that_is_not_named_again() {
    let (Some(device), Some(other)) = (
        LoopDevice::new(&vec![0; SIZE]),
        LoopDevice::new(&vec![0; SIZE]),
    ) else {
        return;
    };
    let done = measured(&[&device.node, "--write", &other.node]).expect_code(2);
    assert!(done.err.contains("nothing was written"), "{}", done.err);
    for one in [&device, &other] {
        assert!(one.bytes().iter().all(|byte| *byte == 0));
    }
}

#[test]
fn nothing_is_written_to_a_device_with_a_signature_or_any_data_at_its_ends() {
    let (swap, gpt, lone) = (
        (4086, &b"SWAPSPACE2"[..], "a swap area"),
        (SIZE - 512, &b"EFI PART"[..], "a backup GPT partition table"),
        (HEAD - 1, &b"x"[..], "data at byte 8388607"),
    );
    for (offset, signature, name) in [swap, gpt, lone] {
        let mut bytes = vec![0; SIZE];
        bytes[offset..offset + signature.len()].copy_from_slice(signature);
        let Some(device) = LoopDevice::new(&bytes) else {
            return;
        };
        let done = measured(&[&device.node, "--write", &device.node]).expect_code(23);
        assert!(
            done.err.contains(&format!("not blank: {name}")),
            "{}",
            done.err
        );
        assert!(device.bytes() == bytes, "{name}: it was written to");
    }
}

#[test]
fn nothing_is_written_to_a_device_that_is_open_exclusively_or_read_only_or_small() {
    let Some(device) = LoopDevice::new(&vec![0; SIZE]) else {
        return;
    };
    // As a mount, device mapper or MD holds it.
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
    let holder = open(&device.node, flags, Mode::empty()).expect("our own device");
    let done = measured(&[&device.node, "--write", &device.node]).expect_code(23);
    assert!(done.err.contains("exclusively"), "{}", done.err);
    drop(holder);
    let Some(read_only) = LoopDevice::with(&vec![0; SIZE], &["--read-only"]) else {
        return;
    };
    let done = measured(&[&read_only.node, "--write", &read_only.node]).expect_code(23);
    assert!(done.err.contains("is read-only"), "{}", done.err);
    let Some(small) = LoopDevice::new(&vec![0; HEAD + TAIL]) else {
        return;
    };
    let done = measured(&[&small.node, "--write", &small.node]).expect_code(23);
    assert!(done.err.contains("are never written"), "{}", done.err);
    assert!(device.bytes().iter().all(|byte| *byte == 0));
}

#[test]
fn a_mounted_device_is_named_with_its_place_and_keeps_its_files() {
    let Some(device) = LoopDevice::new(&vec![0; SIZE]) else {
        return;
    };
    let made = Command::new("mkfs.ext4")
        .args(["-q", &device.node])
        .status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("SKIP: mkfs.ext4 is not installed");
        return;
    }
    let place = tempfile::tempdir().expect("a folder");
    let mounted = Command::new("mount")
        .arg(&device.node)
        .arg(place.path())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("SKIP: a file system cannot be mounted here");
        return;
    }
    fs::write(place.path().join("file"), "kept").expect("space");
    let done = measured(&[&device.node, "--write", &device.node]);
    let kept = fs::read_to_string(place.path().join("file"));
    let unmounted = Command::new("umount").arg(place.path()).status();
    assert!(unmounted.is_ok_and(|status| status.success()));
    let done = done.expect_code(23);
    assert!(done.err.contains("is mounted on"), "{}", done.err);
    assert_eq!(kept.expect("a file"), "kept");
}

#[test]
fn the_disk_of_the_root_file_system_is_never_written_to() {
    let number = fs::metadata("/").expect("the root").dev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let link = fs::read_link(format!("/sys/dev/block/{major}:{minor}"));
    let Some(name) = link
        .ok()
        .and_then(|link| link.file_name()?.to_str().map(str::to_owned))
    else {
        eprintln!("SKIP: the root file system is on no block device");
        return;
    };
    if !Path::new("/dev").join(&name).exists() {
        eprintln!("SKIP: the root file system's device has no node");
        return;
    }
    let done = measured(&[&name, "--write", &name]).expect_code(23);
    assert!(
        done.err.contains("the root file system is on"),
        "{}",
        done.err
    );
}

#[test]
fn what_cannot_be_measured_is_named_with_its_reason() {
    let missing = measured(&["no-such-device"]).expect_code(23);
    assert!(
        missing.err.contains("`/dev/no-such-device`: no such file"),
        "{}",
        missing.err
    );
    let null = measured(&["/dev/null"]).expect_code(23);
    assert!(
        null.err.contains("a character device, not a block device"),
        "{}",
        null.err
    );
    let Some(device) = LoopDevice::new(&vec![1; SIZE]) else {
        return;
    };
    let refused = |words: &[&str], code| {
        measured(&[&[device.node.as_str()], words].concat())
            .expect_code(code)
            .err
    };
    let odd = refused(&["--block-size", "1000"], 23);
    assert!(odd.contains("multiple of 512 B"), "{odd}");
    let large = refused(&["--block-size", "32MiB"], 23);
    assert!(large.contains("less than a block"), "{large}");
    let deep = refused(&["--depth", "40000"], 2);
    assert!(deep.contains("32768"), "{deep}");
    let polled = refused(&["--poll"], 22);
    assert!(polled.contains("queue/io_poll"), "{polled}");
    let near = refused(&["--place", "near"], 22);
    assert!(near.contains("NUMA node"), "{near}");
    let spread = refused(&["--place", "spread"], 2);
    assert!(spread.contains("is for connections"), "{spread}");
    let is_empty = |name: &String| {
        let size = fs::read_to_string(format!("/sys/block/{name}/size"));
        size.is_ok_and(|size| size.trim() == "0")
    };
    let names = (0..64).map(|number| format!("loop{number}"));
    if let Some(empty) = names
        .filter(|name| Path::new("/dev").join(name).exists())
        .find(is_empty)
    {
        let done = measured(&[&empty]);
        // Another test may have taken the device meanwhile.
        let is_named = done.err.contains("its size is 0");
        assert!(done.code == Some(0) || is_named, "{}", done.err);
    }
}

#[test]
fn a_user_without_the_group_is_denied() {
    if geteuid().is_root() {
        eprintln!("SKIP: root may read every device");
        return;
    }
    let names = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let mut nodes = names.map(|name| Path::new("/dev").join(name.file_name()));
    let is_denied = |node: &PathBuf| {
        let opened = fs::File::open(node);
        opened.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
            && fs::read_to_string(format!(
                "/sys/block/{}/size",
                node.file_name()
                    .and_then(|name| name.to_str())
                    .unwrap_or_default()
            ))
            .is_ok_and(|size| size.trim() != "0")
    };
    let Some(node) = nodes.find(is_denied) else {
        eprintln!("SKIP: no block device is denied to this user");
        return;
    };
    let done = measured(&[text(&node)]).expect_code(21);
    assert!(done.err.contains("permission denied"), "{}", done.err);
}

#[test]
fn ctrl_c_ends_a_trial_early_with_its_result() {
    let Some(device) = LoopDevice::new(&vec![1; SIZE]) else {
        return;
    };
    let job = Job::start(linerate(&[
        "--json",
        "measure",
        "block",
        &device.node,
        "--time",
        "600",
    ]));
    let name = device.node.trim_start_matches("/dev/");
    let reads = || {
        let text = fs::read_to_string(format!("/sys/block/{name}/stat")).expect("sysfs");
        text.split_whitespace()
            .next()
            .and_then(|count| count.parse::<u64>().ok())
    };
    let before = reads();
    while reads() < before.map(|count| count + 1_000) && !job.has_ended() {}
    job.send(Signal::INT);
    let done = job.end();
    if is_without_io_uring(&done) {
        return;
    }
    let done = done.expect_code(130);
    let document = fitting(&done.out);
    assert_eq!(document["interrupted"], true);
    let flags = document["flags"].as_array().expect("flags");
    assert!(flags.contains(&"cut-short".into()), "{flags:?}");
    assert!(document["total"]["operations"].as_u64() > Some(0));
}

#[test]
fn a_partition_is_measured_within_its_bounds() {
    let mut bytes = vec![0; SIZE];
    // One MBR entry: type 83, from sector 2048, 4 MiB.
    bytes[446 + 4] = 0x83;
    bytes[446 + 8..446 + 12].copy_from_slice(&2048u32.to_le_bytes());
    bytes[446 + 12..446 + 16].copy_from_slice(&8192u32.to_le_bytes());
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    let Some(device) = LoopDevice::with(&bytes, &["--partscan"]) else {
        return;
    };
    let partition = format!("{}p1", device.node);
    if !Path::new(&partition).exists() {
        eprintln!("SKIP: partitions of a loop device have no nodes here");
        return;
    }
    let done = measured(&[&partition]);
    if is_without_io_uring(&done) {
        return;
    }
    let document = fitting(&done.expect_code(0).out);
    assert_eq!(document["device"]["size_bytes"], 4 * MIB);
    let name = device.node.trim_start_matches("/dev/");
    assert_eq!(document["device"]["disk"], name);
    // The disk has partitions, whatever its first bytes are.
    let done = measured(&[&device.node, "--write", &device.node]).expect_code(23);
    assert!(done.err.contains("it has partitions"), "{}", done.err);
    assert!(device.bytes() == bytes, "it was written to");
}
