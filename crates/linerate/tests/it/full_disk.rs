//! No space left, in the run and in the undo journals: exit 41, both hosts as before, and what was
//! written is kept and readable.

use crate::fitting;
use crate::lab::{Lab, assert_same, text};

#[test]
fn a_disk_that_fills_in_mid_run_ends_with_41_and_keeps_the_run_up_to_there() {
    let Some(lab) = Lab::new() else { return };
    lab.shell("near", crate::prove::NO_SEGMENTATION);
    let before = lab.dump();
    // Room for both hosts and some trials, not for a whole run.
    let disk = lab.small_disk("disk", "320k");
    let run = disk.join("run");
    let arguments = [
        "prove",
        "netns:far",
        "--undo",
        "--trials",
        "3",
        "--time",
        "0.1",
        "--flows",
        "4",
        "--out",
        text(&run),
    ];
    let done = lab.run(&arguments).expect_code(41);
    assert!(done.err.contains("o space left"), "{}", done.err);
    assert!(
        done.err.contains("--out"),
        "no way out is named: {}",
        done.err
    );
    assert_same(&lab, &before, "after the disk was full");
    // The page does not fit on that disk either: it goes elsewhere.
    let page = lab.path("page.html");
    let report = [
        "--format",
        "json",
        "report",
        text(&run),
        "--out",
        text(&page),
    ];
    let document = fitting(&lab.run(&report).expect_code(0).out);
    assert!(
        document["before"]["trials"].as_u64() > Some(0),
        "{document:#}"
    );
    assert!(page.exists());
    let status = lab.run(&["tune", "status"]).expect_code(0).out;
    assert!(status.contains("no transactions"), "{status}");
}

#[test]
fn without_room_for_an_undo_journal_nothing_is_changed() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let disk = lab.small_disk("disk", "16k");
    lab.shell(
        "near",
        &format!("cat /dev/zero > {}/filler || true", disk.display()),
    );
    let plan = lab.path("plan.toml");
    std::fs::write(&plan, "[settings]\n\"sysctl/net.ipv4.tcp_sack\" = 0\n")
        .expect("the lab's folder");
    let mut command = lab.on("near", crate::LINERATE);
    command.args([
        "--state",
        text(&disk),
        "tune",
        "apply",
        "--no-confirm",
        "--from",
        text(&plan),
    ]);
    let done = crate::job::run(command).expect_code(41);
    assert!(done.err.contains("undo journal"), "{}", done.err);
    assert_same(&lab, &before, "without room for a journal");
}

#[test]
fn on_a_read_only_disk_nothing_is_changed() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let disk = lab.small_disk("disk", "64k");
    let mut remount = lab.outside("mount");
    // For this mount only: an ordinary user may not repeat the options of the file system itself.
    remount.args(["-o", "remount,bind,ro"]).arg(&disk);
    crate::job::run(remount).expect_code(0);
    let plan = lab.path("plan.toml");
    std::fs::write(&plan, "[settings]\n\"sysctl/net.ipv4.tcp_sack\" = 0\n")
        .expect("the lab's folder");
    let mut command = lab.on("near", crate::LINERATE);
    command.args(["--state", text(&disk)]);
    command.args(["tune", "apply", "--no-confirm", "--from", text(&plan)]);
    let done = crate::job::run(command).expect_code(21);
    assert!(done.err.contains("Read-only file system"), "{}", done.err);
    assert_same(&lab, &before, "on a read-only disk");
}

#[test]
fn a_run_that_has_no_room_at_all_ends_before_anything_is_measured() {
    let Some(lab) = Lab::new() else { return };
    let disk = lab.small_disk("disk", "16k");
    lab.shell(
        "near",
        &format!("cat /dev/zero > {}/filler || true", disk.display()),
    );
    let run = disk.join("run");
    let done = lab
        .run(&["prove", "netns:far", "--out", text(&run)])
        .expect_code(41);
    assert!(!done.err.contains("proving"), "{}", done.err);
}
