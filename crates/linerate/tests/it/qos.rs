//! `qos`: classes of an interface planned, made, changed, kept in view and rolled back, each seen by tc(8) and nft(8).

use serde_json::Value;

use crate::fitting;
use crate::lab::{Lab, assert_same, text};

/// What `apply` may touch, as the tools that made it print it.
const SEEN: &str = "tc -j -d qdisc show dev near0; tc -j -d class show dev near0; tc -j -d filter show dev near0
    ip -j -d link show dev near0; ip -j addr show dev near0; nft -j list ruleset 2>/dev/null || true";

const CLASSES: &str = "[qos]
interface = \"near0\"

[[class]]
name = \"low\"
priority = 1
limit = \"50mbit\"

[[class]]
name = \"middle\"
mark = 7
limit = \"100mbit\"

[[class]]
name = \"web\"
ports = [80, 443]
limit = \"400mbit\"
guarantee = \"200mbit\"
";

fn written(lab: &Lab, name: &str, content: &str) -> std::path::PathBuf {
    let file = lab.path(name);
    std::fs::write(&file, content).expect("the lab's folder");
    file
}

fn seen(lab: &Lab) -> String {
    lab.shell("near", SEEN)
}

/// Applies a file; false on a kernel without what it needs, with a line that says so.
#[track_caller]
fn applied(lab: &Lab, file: &std::path::Path) -> bool {
    let done = lab.run(&["qos", "apply", text(file), "--no-confirm"]);
    if done.code == Some(22) {
        eprintln!("SKIP: this kernel cannot hold the limits: {}", done.err);
        return false;
    }
    done.expect_code(0);
    true
}

#[track_caller]
fn json(lab: &Lab, arguments: &[&str]) -> Value {
    let done = lab.run(&[&["--format", "json", "qos"], arguments].concat());
    fitting(&done.expect_code(0).out)
}

#[test]
fn classes_are_planned_made_once_and_rolled_back_to_the_byte() {
    let Some(lab) = Lab::new() else { return };
    let file = written(&lab, "classes.toml", CLASSES);
    let before = seen(&lab);
    let planned = json(&lab, &["plan", text(&file)]);
    assert_eq!(planned["mechanism"], "htb", "{planned:#}");
    let names: Vec<&str> = (planned["classes"].as_array().expect("a list").iter())
        .filter_map(|class| class["name"].as_str())
        .collect();
    assert_eq!(names, ["low", "middle", "web", "rest"]);
    assert_eq!(seen(&lab), before, "after `qos plan`");

    if !applied(&lab, &file) {
        return;
    }
    let after = seen(&lab);
    for part in ["\"1:10\"", "\"1:40\"", "linerate_qos", "\"htb\""] {
        assert!(after.contains(part), "{part}: {after}");
    }
    let again = lab.run(&["qos", "apply", text(&file), "--no-confirm"]);
    assert!(again.expect_code(0).err.contains("nothing to change"));
    assert_eq!(seen(&lab), after, "after the second `qos apply`");
    let status = json(&lab, &["status"]);
    let interfaces = status["interfaces"].as_array().expect("a list");
    assert_eq!(interfaces.len(), 1, "{status:#}");
    assert_eq!(interfaces[0]["interface"], "near0");
    assert_eq!(interfaces[0]["state"], "applied");
    assert_eq!(
        interfaces[0]["differs"],
        serde_json::json!([]),
        "{status:#}"
    );

    let map = lab.run(&["map", "near0"]).expect_code(0).out;
    // Without the breaks of its lines.
    let map = map.replace('│', " ");
    let map = map.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "any > priority 1 > class 1:10 > limit 50.00 Mb/s",
        "any > mark 7 > class 1:20 > limit 100.0 Mb/s",
        "any > port 443 > class 1:30 > limit 400.0 Mb/s, guaranteed 200.0 Mb/s",
        "any > everything else > class 1:40 > limit ",
    ] {
        assert!(map.contains(part), "{part}: {map}");
    }
    let picture = lab.run(&["--format", "svg", "map"]).expect_code(0).out;
    assert!(picture.contains("classes by htb:"), "{picture}");
    assert!(picture.contains("port 443"), "{picture}");

    lab.run(&["qos", "undo"]).expect_code(0);
    assert_eq!(seen(&lab), before, "after `qos undo`");
    let status = json(&lab, &["status"]);
    assert_eq!(status["interfaces"], serde_json::json!([]), "{status:#}");
    lab.run(&["qos", "undo"]).expect_code(23);
}

#[test]
fn an_edited_file_changes_only_what_differs_and_one_undo_takes_back_both() {
    let Some(lab) = Lab::new() else { return };
    let before = seen(&lab);
    let file = written(&lab, "classes.toml", CLASSES);
    if !applied(&lab, &file) {
        return;
    }
    let first = seen(&lab);
    let edited = CLASSES.replace("50mbit", "60mbit");
    let edited = edited
        .split("[[class]]\nname = \"middle\"")
        .next()
        .expect("a part");
    let file = written(&lab, "classes.toml", edited);
    let planned = json(&lab, &["plan", text(&file)]);
    let changes = planned["changes"].as_array().expect("a list");
    assert_eq!(changes.len(), 2, "{planned:#}");
    assert!(applied(&lab, &file));
    let second = seen(&lab);
    assert_ne!(second, first);
    assert!(
        !second.contains("\"1:30\""),
        "a class that is no longer in the file goes: {second}"
    );
    // Somebody else's change is seen.
    lab.shell(
        "near",
        "tc class change dev near0 parent 1:1 classid 1:10 htb rate 70mbit ceil 70mbit burst 15k cburst 15k quantum 60000",
    );
    let status = json(&lab, &["status"]);
    let differs = status["interfaces"][0]["differs"]
        .as_array()
        .expect("a list");
    assert_eq!(differs.len(), 1, "{status:#}");
    lab.shell(
        "near",
        "tc class change dev near0 parent 1:1 classid 1:10 htb rate 60mbit ceil 60mbit burst 15k cburst 15k quantum 60000",
    );
    lab.run(&["qos", "undo", "near0"]).expect_code(0);
    assert_eq!(seen(&lab), before, "after `qos undo`");
}

#[test]
fn an_unconfirmed_change_is_rolled_back() {
    let Some(lab) = Lab::new() else { return };
    let before = seen(&lab);
    let file = written(&lab, "classes.toml", CLASSES);
    let done = lab.run(&["qos", "apply", text(&file), "--deadline", "10s"]);
    if done.code == Some(22) {
        eprintln!("SKIP: this kernel cannot hold the limits: {}", done.err);
        return;
    }
    assert_eq!(done.code, Some(40), "{}", done.err);
    assert!(
        done.err
            .contains("run `linerate qos confirm` over a new connection"),
        "{}",
        done.err
    );
    assert_eq!(seen(&lab), before);
    let status = json(&lab, &["status"]);
    assert_eq!(status["interfaces"], serde_json::json!([]), "{status:#}");
}

#[test]
fn a_plan_names_what_the_peer_lacks() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let vlan = "[qos]\ninterface = \"near0\"\n[[class]]\nname = \"storage\"\nvlan = 10\naddress = \"12.0.10.2/24\"\n\
                limit = \"50mbit\"\npriority = 1\n";
    let file = written(&lab, "vlan.toml", vlan);
    let plan = |peer: &str| {
        let words = ["--format", "json", "qos", "plan", text(&file), peer];
        lab.run(&words)
    };
    let document = fitting(&plan("netns:far").expect_code(0).out);
    let conflicts = document["peer"]["conflicts"].to_string();
    assert!(
        conflicts.contains("far0 of the peer has no VLAN 10"),
        "{document:#}"
    );
    plan("netns:nowhere").expect_code(20);
    assert_same(&lab, &before, "after plans");
}

#[test]
fn a_file_that_cannot_be_meant_is_refused_and_nothing_changes() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let head = "[qos]\ninterface = \"near0\"\n";
    for (content, code, said) in [
        (
            "[qos]\ninterface = \"eth77\"\n[[class]]\nname = \"a\"\n",
            23,
            "no interface `eth77`",
        ),
        (head, 23, "there is no class"),
        ("[qos]\ninterface = \"near0\"\nclas = 1\n", 23, "line 3"),
        ("[qos\n", 23, "line 1"),
    ] {
        let file = written(&lab, "wrong.toml", content);
        let done = lab.run(&["qos", "apply", text(&file), "--no-confirm"]);
        assert!(done.err.contains(said), "{content}: {}", done.err);
        done.expect_code(code);
    }
    for (class, code, said) in [
        ("priority = 9", 23, "a priority is 0 to 7"),
        ("vlan = 4095", 23, "a VLAN ID is 1 to 4094"),
        ("mark = 1\nlimit = \"0gbit\"", 23, "is not a rate"),
        ("mark = 1\nlimit = \"900gbit\"", 23, "is above the line's"),
        ("mark = 1\npriority = 1", 23, "selects its traffic"),
        (
            "mark = 1\n[[class]]\nname = \"b\"\nmark = 1",
            23,
            "have the same mark 1",
        ),
    ] {
        let file = written(
            &lab,
            "wrong.toml",
            &format!("{head}[[class]]\nname = \"a\"\n{class}\n"),
        );
        let done = lab.run(&["qos", "apply", text(&file), "--no-confirm"]);
        assert!(done.err.contains(said), "{class}: {}", done.err);
        done.expect_code(code);
    }
    let missing = lab.run(&["qos", "plan", "/run/netns/no-such-file"]);
    assert!(missing.err.contains("no-such-file"), "{}", missing.err);
    assert_same(&lab, &before, "after what was refused");
}

#[test]
fn what_tc_made_is_imported_as_a_file_that_can_be_planned() {
    let Some(lab) = Lab::new() else { return };
    lab.shell(
        "near",
        "tc qdisc add dev near0 root handle 1: htb default 30
        tc class add dev near0 parent 1: classid 1:1 htb rate 1gbit quantum 60000
        tc class add dev near0 parent 1:1 classid 1:10 htb rate 50mbit quantum 60000
        tc class add dev near0 parent 1:1 classid 1:30 htb rate 100mbit ceil 1gbit quantum 60000",
    );
    let imported = lab.run(&["qos", "import", "near0"]).expect_code(0);
    for part in [
        "interface = \"near0\"",
        "limit = \"50mbit\"",
        "guarantee = \"100mbit\"",
    ] {
        assert!(imported.out.contains(part), "{part}: {}", imported.out);
    }
    let file = written(&lab, "imported.toml", &imported.out);
    lab.run(&["qos", "plan", text(&file)]).expect_code(0);
    lab.run(&["qos", "import", "eth77"]).expect_code(23);
    let matched = lab.shell(
        "near",
        "tc filter add dev near0 parent 1: protocol ip prio 1 u32 match ip tos 0x88 0xfc flowid 1:10 && echo made || true",
    );
    if !matched.contains("made") {
        eprintln!("SKIP: no u32 filters here");
        return;
    }
    let beside = lab.run(&["qos", "import", "near0"]).expect_code(0);
    assert_eq!(beside.out, imported.out, "filters do not hide the limits");
    let named = "near0 has filters of tc(8) (u32), which are not read";
    assert!(beside.err.contains(named), "{}", beside.err);
}

#[test]
fn without_rights_the_missing_capability_is_named_and_nothing_changes() {
    let Some(lab) = Lab::new() else { return };
    if lab.is_user() {
        return;
    }
    let before = lab.dump();
    let file = written(&lab, "classes.toml", CLASSES);
    let mut without = lab.on("near", "setpriv");
    without.args(["--bounding-set=-net_admin", "--inh-caps=-net_admin"]);
    without.arg(env!("CARGO_BIN_EXE_linerate"));
    without.args(["--state", text(&lab.path("other-state"))]);
    without.args(["qos", "apply", text(&file), "--no-confirm"]);
    let done = crate::job::run(without);
    assert!(done.err.contains("CAP_NET_ADMIN"), "{}", done.err);
    done.expect_code(21);
    assert_same(&lab, &before, "after what was refused");
}

const NETWORKD: &str = "/lib/systemd/systemd-networkd";

/// Runs a script on `near` beside systemd-networkd, whose files are those of `folder`, and which writes its log to `log`. It has
/// a `/run` of its own. It waits for udev unless `/sys` is read-only.
#[track_caller]
fn beside_networkd(
    lab: &Lab,
    folder: &std::path::Path,
    log: &std::path::Path,
    script: &str,
) -> String {
    let whole = format!(
        "mount -t tmpfs none /run; mount -o remount,bind,ro /sys
        mkdir -p /run/systemd/network; cp {folder}/* /run/systemd/network/
        SYSTEMD_LOG_LEVEL=debug SYSTEMD_LOG_TARGET=console {NETWORKD} >{log} 2>&1 &
        trap 'kill $!; wait $! || true' EXIT
        {script}",
        folder = folder.display(),
        log = log.display(),
    );
    let mut command = lab.on("near", "unshare");
    command.args(["-m", "sh", "-ec", &whole]);
    crate::job::run(command).expect_code(0).out
}

#[test]
fn networkd_is_named_as_the_manager_of_a_port_and_takes_the_lines_for_its_files() {
    let Some(lab) = Lab::new() else { return };
    if lab.is_user() || !std::path::Path::new(NETWORKD).exists() {
        eprintln!("SKIP: no systemd-networkd here, or no rights to run it");
        return;
    }
    let classes = "[qos]
interface = \"near0\"
[[class]]
name = \"storage\"
vlan = 10
address = \"12.0.10.2/24\"
priority = 5
limit = \"50mbit\"
";
    let file = written(&lab, "classes.toml", classes);
    let (folder, log) = (lab.path("networkd"), lab.path("networkd.log"));
    std::fs::create_dir(&folder).expect("the lab's folder");
    let network = "[Match]\nName=near0\n[Network]\nKeepConfiguration=yes\nLinkLocalAddressing=no\n";
    std::fs::write(folder.join("10-near0.network"), network).expect("a file");
    let plan = |format: &str| {
        let script = format!(
            "until grep -qs ^NETWORK_FILE=/run/systemd/network/10-near0.network /run/systemd/netif/links/*; do :; done
            {} --state {} --format {format} qos plan {}",
            crate::LINERATE,
            lab.state().display(),
            file.display()
        );
        beside_networkd(&lab, &folder, &log, &script)
    };
    let planned = fitting(&plan("json"));
    let manager = &planned["managers"][0];
    assert_eq!(manager["name"], "systemd-networkd", "{planned:#}");
    assert_eq!(manager["interface"], "near0");
    let own = "/run/systemd/network/10-near0.network";
    assert_eq!(manager["configuration"], own);
    let shown = plan("text");
    for part in [
        "systemd-networkd manages near0 (/run/systemd/network/10-near0.network)",
        "Kind=vlan",
        "EgressQOSMaps=0-5 1-5",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }

    // Its own parser takes all lines.
    for file in manager["files"].as_array().expect("a list") {
        let name = file["path"].as_str().expect("a path").rsplit('/').next();
        let lines = file["lines"].as_array().expect("a list").iter();
        let lines: Vec<&str> = lines.filter_map(Value::as_str).collect();
        let file = folder.join(name.expect("a name"));
        let mut text = std::fs::read_to_string(&file).unwrap_or_default();
        text.push_str(&lines.join("\n"));
        text.push('\n');
        std::fs::write(&file, text).expect("a file");
    }
    let script = format!(
        "until grep -q 'loaded .vlan.' {}; do :; done",
        log.display()
    );
    beside_networkd(&lab, &folder, &log, &script);
    let log = std::fs::read_to_string(&log).expect("its log");
    let complaints = log
        .lines()
        .filter(|line| line.starts_with("/run/systemd/network/"));
    assert_eq!(complaints.count(), 0, "{log}");
}
