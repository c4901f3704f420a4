//! `tune undo` after the changed interface was renamed or moved by another program. Removed interfaces are tested in
//! `tune.rs`.

use crate::lab::{Lab, text};

const CHANGED: &str = "[settings]
\"nic/near0/mtu\" = 1400
\"sysctl/net.ipv4.conf.near0.rp_filter\" = 1
";

/// Two hosts, and `near0` changed on the first.
fn changed() -> Option<Lab> {
    let lab = Lab::new()?;
    lab.shell("near", "sysctl -qw net.ipv4.conf.near0.rp_filter=2");
    let file = lab.path("plan.toml");
    std::fs::write(&file, CHANGED).expect("the lab's folder");
    lab.run(&["tune", "apply", "--no-confirm", "--from", text(&file)])
        .expect_code(0);
    assert_eq!(mtu_and_filter(&lab, "near0"), ["1400", "1"]);
    Some(lab)
}

fn mtu_and_filter(lab: &Lab, nic: &str) -> [String; 2] {
    let read = |file: &str| lab.shell("near", &format!("cat {file}")).trim().to_owned();
    [
        // Of this namespace whatever is mounted at /sys.
        lab.shell("near", &format!("ip -o link show {nic}"))
            .split_whitespace()
            .skip_while(|word| *word != "mtu")
            .nth(1)
            .expect("an MTU")
            .to_owned(),
        read(&format!("/proc/sys/net/ipv4/conf/{nic}/rp_filter")),
    ]
}

#[test]
fn a_renamed_interface_is_restored_and_the_one_with_its_name_left_alone() {
    let Some(lab) = changed() else { return };
    lab.shell(
        "near",
        "ip link set near0 down && ip link set near0 name lan0 && ip link set lan0 up \
         && ip link add near0 mtu 1400 type veth peer name other0",
    );
    let undone = lab.run(&["tune", "undo"]).expect_code(0);
    assert_eq!(
        mtu_and_filter(&lab, "lan0"),
        ["1500", "2"],
        "{}",
        undone.out
    );
    assert_eq!(mtu_and_filter(&lab, "near0")[0], "1400");
    let status = lab.run(&["tune", "status"]).expect_code(0).out;
    assert!(!status.contains("applied"), "{status}");
}

#[test]
fn a_renamed_interface_is_restored_after_a_sigkill_too() {
    let Some(lab) = Lab::new() else { return };
    let file = lab.path("plan.toml");
    std::fs::write(&file, "[settings]\n\"nic/near0/mtu\" = 1400\n").expect("the lab's folder");
    let mut command = lab.linerate(&["tune", "apply", "--no-confirm", "--from", text(&file)]);
    // Maker and reverter die after the write to the kernel, before its record.
    command.env("LINERATE_CRASH", "maker:11:both");
    let done = crate::job::Job::start(command).end();
    if done.signal != Some(9) {
        eprintln!("SKIP: only a debug build can be killed at a chosen step");
        return;
    }
    assert_eq!(mtu_and_filter(&lab, "near0")[0], "1400");
    lab.shell(
        "near",
        "ip link set near0 down && ip link set near0 name lan0",
    );
    lab.run(&["tune", "recover"]).expect_code(0);
    assert_eq!(mtu_and_filter(&lab, "lan0")[0], "1500");
}

#[test]
fn an_interface_in_another_namespace_ends_with_31_and_is_restored_once_it_is_back() {
    let Some(lab) = changed() else { return };
    lab.shell("near", "ip link set near0 netns far");
    let undone = lab.run(&["tune", "undo"]).expect_code(31);
    assert!(
        undone.err.contains("near0 is in another network namespace"),
        "{}",
        undone.err
    );
    let status = lab.run(&["tune", "status"]).expect_code(0).out;
    assert!(status.contains("open"), "{status}");
    lab.shell("far", "ip link set near0 netns near");
    lab.run(&["tune", "recover"]).expect_code(0);
    assert_eq!(mtu_and_filter(&lab, "near0")[0], "1500");
    let status = lab.run(&["tune", "status"]).expect_code(0).out;
    assert!(!status.contains("open"), "{status}");
}
