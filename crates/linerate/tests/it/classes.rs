//! Settings of traffic classes on a host of the lab: a qdisc hierarchy, its class rules, addresses and the state of an
//! interface, all in one plan, rolled back as a whole.

use crate::job::Job;
use crate::lab::{Lab, text};

/// What tc(8), nft(8) and ip(8) print of the interface, without the handles that the kernel chooses.
const LOOK: &str = "(tc -j -d qdisc show dev near0; tc -j -d class show dev near0) | sed 's/ [89a-f][0-9a-f]*:/ H:/g; s/\"[89a-f][0-9a-f]*:/\"H:/g'
    tc -j -d filter show dev near0 parent 1: 2>/dev/null
    nft list ruleset
    ip -j -d addr show dev near0 | sed 's/\"tentative\":true,//g'
    ip -4 route show; ip -j -d link show dev near0";

const PLAN: &str = "[settings]
\"nic/near0/qdisc\" = \"htb default 30 class 1 rate 10gbit quantum 60000 class 10 parent 1 rate 50mbit leaf pfifo limit 100 class 30 parent 1 rate 5gbit ceil 10gbit quantum 60000\"
\"nic/near0/class-rules\" = \"priority 1 -> 1:10; dscp af21 -> 1:10; port 5001 -> 1:30\"
\"nic/near0/addresses\" = \"ADDRESSES\"
";

/// The plan, with an address more than the interface has.
fn plan(lab: &Lab) -> std::path::PathBuf {
    let addresses = lab.shell("near", "ip -j addr show dev near0");
    let addresses: serde_json::Value = serde_json::from_str(&addresses).expect("JSON");
    let own = addresses[0]["addr_info"].as_array().expect("a list").iter();
    let global = own.filter(|one| one["scope"] == "global");
    let mut all: Vec<String> = global
        .map(|one| {
            format!(
                "{}/{}",
                one["local"].as_str().expect("text"),
                one["prefixlen"]
            )
        })
        .collect();
    all.push("12.0.10.2/24".to_owned());
    let file = lab.path("classes.toml");
    std::fs::write(&file, PLAN.replace("ADDRESSES", &all.join(" "))).expect("the lab's folder");
    file
}

#[test]
fn classes_and_what_goes_to_them_are_one_plan_and_are_taken_back_whole() {
    let Some(lab) = Lab::new() else { return };
    if lab
        .shell("near", "nft list ruleset 2>&1 || echo missing")
        .contains("missing")
    {
        return;
    }
    let before = lab.shell("near", LOOK);
    let file = plan(&lab);
    let apply = ["tune", "apply", "--no-confirm", "--from", text(&file)];
    lab.run(&apply).expect_code(0);
    let made = lab.shell("near", LOOK);
    for part in [
        "12.0.10.2",
        "linerate_qos_near0",
        "\"kind\":\"pfifo\"",
        "1:10",
    ] {
        assert!(made.contains(part), "{part}: {made}");
    }
    let again = lab.run(&apply).expect_code(0);
    assert!(again.err.contains("nothing to change"), "{}", again.err);
    assert_eq!(lab.shell("near", LOOK), made);
    lab.run(&["tune", "undo"]).expect_code(0);
    assert_eq!(lab.shell("near", LOOK), before);
}

#[test]
fn a_change_that_fails_rolls_the_classes_back_too() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.shell("near", LOOK);
    let file = plan(&lab);
    let plan = std::fs::read_to_string(&file).expect("it was written");
    // The kernel refuses the last one.
    let plan = format!("{plan}\"sysctl/net.ipv4.tcp_congestion_control\" = \"nosuchcc\"\n");
    std::fs::write(&file, plan).expect("the lab's folder");
    let refused = lab.run(&["tune", "apply", "--no-confirm", "--from", text(&file)]);
    assert_ne!(refused.code, Some(0));
    assert_eq!(lab.shell("near", LOOK), before);
}

#[test]
fn whoever_is_killed_the_classes_are_the_old_or_the_new_ones() {
    let Some(lab) = Lab::new() else { return };
    let file = plan(&lab);
    let before = lab.shell("near", LOOK);
    let apply = ["tune", "apply", "--no-confirm", "--from", text(&file)];
    lab.run(&apply).expect_code(0);
    let after = lab.shell("near", LOOK);
    lab.run(&["tune", "undo"]).expect_code(0);
    for victims in ["self", "both"] {
        let mut steps = 0;
        loop {
            steps += 1;
            let mut command = lab.linerate(&apply);
            command.env("LINERATE_CRASH", format!("maker:{steps}:{victims}"));
            let done = Job::start(command).end();
            let where_ = format!("{victims} killed at step {steps}: {}", done.err);
            if victims == "both" {
                lab.run(&["tune", "recover"]).expect_code(0);
            }
            let now = lab.shell("near", LOOK);
            if now == after {
                lab.run(&["tune", "undo"]).expect_code(0);
                assert_eq!(lab.shell("near", LOOK), before, "{where_}");
                if done.code == Some(0) {
                    break;
                }
            } else {
                assert_eq!(now, before, "{where_}");
            }
        }
        assert!(steps > 20, "three changes have more steps than {steps}");
    }
}

#[test]
fn an_interface_with_routes_of_others_is_not_taken_down() {
    let Some(lab) = Lab::new() else { return };
    lab.shell(
        "near",
        "ip link add spare0 type veth peer name spare1; ip link set spare0 up; ip link set spare1 up
        ip addr add 192.0.2.1/24 dev spare0; ip addr add 2001:db8:7::1/64 dev spare0 nodad",
    );
    let look =
        "ip -j addr show dev spare0 | sed 's/\"tentative\":true,//g'; ip route show dev spare0";
    let told = || {
        let all = lab.shell("near", look);
        let has_global = all.contains("2001:db8:7::1");
        (
            all.contains("192.0.2.1"),
            has_global,
            all.contains("192.0.2.0/24"),
        )
    };
    let before = told();
    assert_eq!(before, (true, true, true));
    let file = lab.path("down.toml");
    std::fs::write(&file, "[settings]\n\"nic/spare0/up\" = false\n").expect("the lab's folder");
    let apply = ["tune", "apply", "--no-confirm", "--from", text(&file)];
    lab.run(&apply).expect_code(0);
    assert!(!told().2, "its route goes with it");
    lab.run(&["tune", "undo"]).expect_code(0);
    assert_eq!(told(), before);
    lab.shell(
        "near",
        "ip route add 198.51.100.0/24 via 192.0.2.9 dev spare0",
    );
    let refused = lab.run(&apply).expect_code(22);
    assert!(
        refused
            .err
            .contains("routes besides those of its addresses"),
        "{}",
        refused.err
    );
    assert_eq!(told(), before);
}

#[test]
fn a_vlan_device_needs_a_kernel_with_vlans_and_a_name_that_is_one() {
    let Some(lab) = Lab::new() else { return };
    let file = lab.path("vlan.toml");
    let apply = ["tune", "apply", "--no-confirm", "--from", text(&file)];
    let has_vlans = lab
        .shell("near", "ip link add link near0 name probe type vlan id 9 2>&1 && ip link del probe && echo made; true")
        .contains("made");
    std::fs::write(
        &file,
        "[settings]\n\"nic/v10/vlan/link\" = \"near0 id 10\"\n\"nic/v10/up\" = true\n\
        \"nic/v10/addresses\" = \"12.0.10.2/24\"\n",
    )
    .expect("the lab's folder");
    if !has_vlans {
        let refused = lab.run(&apply).expect_code(22);
        assert!(refused.err.contains("8021q"), "{}", refused.err);
        assert!(!lab.shell("near", "ip link").contains("v10"));
    }
    // The name of an interface of another kind.
    std::fs::write(
        &file,
        "[settings]\n\"nic/near0/vlan/link\" = \"lo id 10\"\n",
    )
    .expect("the lab's folder");
    let refused = lab.run(&apply).expect_code(22);
    assert!(refused.err.contains("not a VLAN device"), "{}", refused.err);
    // Settings of a name that the plan does not make.
    std::fs::write(&file, "[settings]\n\"nic/v11/up\" = true\n").expect("the lab's folder");
    let refused = lab.run(&apply).expect_code(22);
    assert!(refused.err.contains("no such interface"), "{}", refused.err);
}
