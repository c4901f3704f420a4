//! `linerate nic --from`: NICs, modules and links from published dumps on a made host, each with the text that was
//! reviewed (`LINERATE_BLESS=1` regenerates `fixtures/nic`).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use linerate_host::capture::{Archive, NicAnswers};
use linerate_model::build;
use linerate_model::host::{
    Fec, FirmwareVersion, HealthReporter, LinkModes, LinkState, Module, ModuleLane, VersionState,
};
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Known};
use linerate_model::units::BitRate;
use serde_json::Value;

use super::archives::{archive, names, place, repository};
use super::documents::{document, nulls};
use super::program::{linerate, on};

const CARD: &str = "sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0/0000:82:00.0/0000:83:00.0";
/// The lines of `pci.ids` for the NIC that is made.
const NAMES: &str = "15b3  Mellanox Technologies\n\t1013  MT27700 Family [ConnectX-4]\n\
                     \t\t15b3 0033  ConnectX-4 VPI IB EDR/100 GbE Dual Port QSFP28 Adapter\n";

fn text(word: &str) -> Known<String> {
    Known::Value(word.to_owned())
}

fn gbit(gbit: u64) -> BitRate {
    BitRate::from_mbit_per_s(gbit * 1_000)
}

fn absent<T>(why: &str) -> Known<T> {
    Known::unknown(Cause::Absent, "netlink", why)
}

/// A ConnectX-4 with the values of a published `mlxfwmanager` and `mlxlink`: PSID, firmware, speeds.
fn connectx(answers: &mut NicAnswers) {
    let card = &mut answers.card;
    card.driver = text("mlx5_core");
    card.driver_version = text("6.12.0");
    card.firmware = text("12.28.1002 (LNV2190110032)");
    card.board = text("LNV2190110032");
    card.psid = text("LNV2190110032");
    card.port_type = text("Ethernet");
    card.port_type_desired = absent("it was not set");
    card.firmware_stored = Known::Value(BTreeMap::new());
    card.versions = Known::Value(versions("12.28.1002", "12.28.1002"));
    card.health = Known::Value(vec![HealthReporter {
        name: "fw".to_owned(),
        state: text("healthy"),
        errors: Known::Value(0),
        recoveries: Known::Value(0),
    }]);
    let modes = |modes: &[&str]| modes.iter().map(|mode| (*mode).to_owned()).collect();
    let all = [
        "1000baseKX/Full",
        "25000baseCR/Full",
        "50000baseCR2/Full",
        "100000baseCR4/Full",
    ];
    answers.wire.modes = Known::Value(LinkModes {
        autoneg: Known::Value(true),
        speed_bit_per_s: Known::Value(gbit(100)),
        duplex: text("full"),
        lanes: Known::Value(4),
        supported: modes(&all),
        advertised: modes(&all),
        partner: Vec::new(),
        port: text("Direct Attach Copper"),
    });
    answers.wire.state = Known::Value(state(true, None));
    answers.wire.fec = Known::Value(Fec {
        active: text("RS"),
        configured: vec!["Auto".to_owned()],
        auto: Known::Value(true),
    });
    answers.wire.module = Known::Value(build::cable(Some(103_000)));
}

fn versions(running: &str, stored: &str) -> Vec<FirmwareVersion> {
    let list = [
        ("fw.psid", VersionState::Fixed, "LNV2190110032"),
        ("fw.version", VersionState::Running, running),
        ("fw.version", VersionState::Stored, stored),
    ];
    let version = |(name, state, version): (&str, VersionState, &str)| FirmwareVersion {
        name: name.to_owned(),
        state,
        version: version.to_owned(),
    };
    list.into_iter().map(version).collect()
}

fn state(link: bool, why: Option<(&str, &str)>) -> LinkState {
    let reason = |word: Option<&str>| {
        word.map_or_else(
            || Known::unknown(Cause::NotSaid, "netlink", "the driver gives no reason"),
            text,
        )
    };
    LinkState {
        link: Known::Value(link),
        extended_state: reason(why.map(|(state, _)| state)),
        extended_substate: reason(why.map(|(_, detail)| detail)),
        signal_quality: absent("the driver has none"),
    }
}

/// An optical module with its monitors, as `ethtool -m` shows a 100GBASE-SR4 module.
fn optical() -> Module {
    let lane = |lane, rx_nw| ModuleLane {
        lane,
        rx_power_nw: Known::Value(rx_nw),
        tx_power_nw: Known::Value(891_000),
        bias_ua: Known::Value(7_500),
    };
    Module {
        vendor: text("ACME OPTICS"),
        part: text("QSFP28-SR4"),
        technology: text("Optical"),
        rated_bit_per_s: Known::Value(gbit(100)),
        length_dm: Known::Value(1_000),
        connector: text("MPO 1x12"),
        attenuation_db: Known::unknown(Cause::NotSaid, "module", "not a copper cable"),
        temperature_mc: Known::Value(38_500),
        voltage_mv: Known::Value(3_290),
        lanes: vec![
            lane(1, 812_000),
            lane(2, 100),
            lane(3, 794_000),
            lane(4, 801_000),
        ],
        alarms: vec!["lane 2: receive power low alarm".to_owned()],
        ..build::cable(None)
    }
}

/// The made host with a ConnectX-4 as `eth2`, changed by `change`; without a link if `is_up` is false.
fn with(is_up: bool, change: impl Fn(&mut NicAnswers)) -> Archive {
    let nic: NicName = "eth2".parse().expect("a name");
    let mut host = archive("two-socket-healthy");
    let mut answers = host.nic(&nic).expect("the NIC").clone();
    connectx(&mut answers);
    change(&mut answers);
    host = host.with_nic(nic, answers);
    let files = [
        ("vendor", "0x15b3"),
        ("device", "0x1013"),
        ("subsystem_vendor", "0x15b3"),
        ("subsystem_device", "0x0033"),
        ("class", "0x020000"),
        ("hwmon/hwmon0/temp1_input", "57000"),
        ("hwmon/hwmon0/temp1_crit", "105000"),
        ("hwmon/hwmon0/temp1_label", "asic"),
        ("net/eth2/duplex", "full"),
    ];
    for folder in ["hwmon", "hwmon/hwmon0"] {
        host = host.with_folder(&format!("{CARD}/{folder}"));
    }
    for (file, text) in files {
        host = host.edited(&format!("{CARD}/{file}"), Some(text));
    }
    if !is_up {
        host = host.edited(&format!("{CARD}/net/eth2/operstate"), Some("down"));
        host = host.edited(&format!("{CARD}/net/eth2/speed"), Some("-1"));
    }
    host.edited("usr/share/hwdata/pci.ids", Some(NAMES))
}

struct Written {
    folder: tempfile::TempDir,
}

impl Written {
    fn file(&self, name: &str, archive: &Archive) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, archive.to_text()).expect("an archive");
        path
    }
}

fn folder() -> Written {
    Written {
        folder: tempfile::tempdir().expect("a folder"),
    }
}

/// The text of `linerate nic` on `host`, which must be the reviewed one.
fn reviewed(name: &str, host: &Archive, more: &[&str]) -> String {
    let folder = folder();
    let path = folder.file("host.lrcap", host);
    let words: Vec<&str> = ["nic", "eth2"].iter().chain(more).copied().collect();
    let out = on(&path, &words).with_code(0);
    is_reviewed(name, &out);
    let json = document(&on(&path, &[&words[..], &["--format", "json"]].concat()).with_code(0));
    each_null_is_explained(&json);
    out
}

fn is_reviewed(name: &str, out: &str) {
    let kept = repository(&format!("fixtures/nic/{name}.txt"));
    if std::env::var_os("LINERATE_BLESS").is_some() {
        fs::write(&kept, out).expect("a snapshot");
    }
    let expected = fs::read_to_string(&kept).expect("LINERATE_BLESS=1 writes it");
    assert_eq!(out, expected, "{name}: LINERATE_BLESS=1 regenerates it");
    for line in out.lines() {
        assert!(line.chars().count() <= 80, "{name}: {line}");
    }
    assert!(out.lines().count() <= 30, "{name}: {out}");
}

/// Every null below `nic` has its gap or cannot exist.
fn each_null_is_explained(json: &Value) {
    let fields = json["gaps"].as_array().expect("a list").iter();
    let mut explained: Vec<String> = fields
        .flat_map(|gap| gap["fields"].as_array().expect("a list"))
        .chain(json["inapplicable"].as_array().expect("a list"))
        .map(|field| field.as_str().expect("a pointer").to_owned())
        .collect();
    explained.sort();
    let none = |pointer: &String| {
        let ends = ["/acs_redirect", "/rate"];
        ends.iter().any(|end| pointer.ends_with(end))
    };
    let mut nulls: Vec<String> = nulls(&json["nic"]).into_iter().collect();
    nulls.retain(|pointer| !none(pointer));
    nulls.sort();
    assert_eq!(nulls, explained);
}

#[test]
fn a_healthy_card_has_its_model_psid_and_module_in_one_view() {
    let out = reviewed("connectx-healthy", &with(true, |_| {}), &[]);
    assert!(out.starts_with("eth2: Mellanox ConnectX-4, 100 Gb/s, link up: no problem found"));
    assert!(out.contains("PSID LNV2190110032"), "{out}");
    assert!(out.contains("serial withheld"), "{out}");
}

#[test]
fn firmware_that_waits_for_a_reset_is_pending() {
    let host = with(true, |answers| {
        let stored = BTreeMap::from([("fw.version".to_owned(), "12.28.2006".to_owned())]);
        answers.card.firmware_stored = Known::Value(stored);
        answers.card.versions = Known::Value(versions("12.28.1002", "12.28.2006"));
    });
    let out = reviewed("connectx-pending-firmware", &host, &[]);
    let joined = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        joined.contains("pending 12.28.2006 (runs after a reset)"),
        "{out}"
    );
}

#[test]
fn an_optical_module_shows_its_monitors_and_the_lane_without_light() {
    let host = with(true, |answers| {
        answers.wire.module = Known::Value(optical());
    });
    let out = reviewed("optical-alarm", &host, &[]);
    assert!(out.contains("lane 2: rx -40.0 dBm"), "{out}");
    assert!(out.contains("warn  module-fault"), "{out}");
}

#[test]
fn a_foreign_cable_at_1_gbit_is_a_finding_that_names_it() {
    let host = with(true, |answers| {
        if let Known::Value(modes) = &mut answers.wire.modes {
            modes.speed_bit_per_s = Known::Value(gbit(1));
            modes.lanes = Known::Value(1);
        }
    });
    let host = host.edited(&format!("{CARD}/net/eth2/speed"), Some("1000"));
    let out = reviewed("foreign-cable-1g", &host, &[]);
    assert!(out.contains("warn  link-speed-below-module"), "{out}");
    assert!(out.contains("OPTCORE Q-100G-DAC-P2M"), "{out}");
}

#[test]
fn a_link_that_is_down_shows_the_kernels_reason_and_what_to_do() {
    let host = with(false, |answers| {
        answers.wire.state = Known::Value(state(false, Some(("Cable issue", "Unsupported cable"))));
    });
    let out = reviewed("no-link-cable-issue", &host, &[]);
    assert!(
        out.contains("down: Cable issue, Unsupported cable"),
        "{out}"
    );
    assert!(
        out.contains("cable that the NIC supports, or replace it"),
        "{out}"
    );
}

#[test]
fn a_wrong_module_type_is_explained_by_the_opcode_that_the_kernel_does_not_report() {
    let host = with(false, |answers| {
        answers.wire.state = Known::Value(state(false, None));
    });
    let out = reviewed("no-link-no-reason", &host, &[]);
    assert!(
        out.contains("`mlxlink -d 0000:83:00.0` prints a status opcode"),
        "{out}"
    );
    let out = reviewed("no-link-opcode-1036", &host, &["--opcode", "1036"]);
    assert!(out.contains("1036: wrong module type"), "{out}");
    let folder = folder();
    let path = folder.file("host.lrcap", &host);
    let refused = on(&path, &["nic", "lo", "--opcode", "1036"]);
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    let unlisted = on(&path, &["nic", "eth2", "--opcode", "999"]).with_code(0);
    assert!(unlisted.contains("999: ? (absent)"), "{unlisted}");
}

#[test]
fn bit_errors_have_an_interval_if_there_are_two_captures() {
    let counted = |uptime: &str, bits: u64| {
        let host = with(true, |answers| {
            let key = |name: &str| format!("fec/{name}");
            let path = "netlink/ethtool/eth2/fec".to_owned();
            answers.counts.values = BTreeMap::from([
                (key("corrected-bits"), (bits, path.clone())),
                (key("uncorrectable"), (0, path)),
            ]);
        });
        host.edited("proc/uptime", Some(uptime))
    };
    let folder = folder();
    let first = folder.file("first.lrcap", &counted("100.00 0.00", 500));
    let second = folder.file("second.lrcap", &counted("110.00 0.00", 2_500));
    let then = second.to_str().expect("a path in UTF-8");
    let out = on(&first, &["nic", "eth2", "--then", then]).with_code(0);
    is_reviewed("bit-errors", &out);
    assert!(out.contains("raw 2.0e-9 ("), "{out}");
    assert!(out.contains("effective below 3.0e-12 (no error"), "{out}");
    let json = on(&first, &["nic", "eth2", "--then", then, "-J"]).with_code(0);
    let json = document(&json);
    assert_eq!(json["nic"]["bit_errors"]["seconds"], 10.0);
    assert_eq!(json["nic"]["bit_errors"]["before"]["errors"], 2_000);
    each_null_is_explained(&json);
}

#[test]
fn a_veth_has_no_hardware_and_the_view_says_so() {
    let path = place("veth-pair-near");
    let host = super::archives::host(archive("veth-pair-near"));
    let veth = host.nics.iter().find(|nic| nic.name.as_str() != "lo");
    let name = veth.expect("a veth").name.to_string();
    let out = on(&path, &["nic", &name]).with_code(0);
    is_reviewed("veth", &out);
    assert!(out.contains("a veth interface has none"), "{out}");
    let json = document(&on(&path, &["nic", &name, "-J"]).with_code(0));
    each_null_is_explained(&json);
}

#[test]
fn every_interface_of_every_captured_host_has_a_view() {
    for host in names() {
        for nic in super::archives::host(archive(&host)).nics {
            let name = nic.name.as_str();
            let out = on(&place(&host), &["nic", name]).with_code(0);
            assert!(out.starts_with(&format!("{name}: ")), "{host}: {out}");
            let long = out.lines().find(|line| line.chars().count() > 80);
            assert_eq!(long, None, "{host}");
            let json = on(&place(&host), &["nic", name, "-J"]).with_code(0);
            each_null_is_explained(&document(&json));
        }
    }
}

#[test]
fn an_interface_that_is_not_there_is_refused_with_the_list_of_those_that_are() {
    let ended = on(&place("two-socket-healthy"), &["nic", "eth9"]);
    assert_eq!(ended.code, Some(23), "{}", ended.err);
    assert!(
        ended.err.contains("no such interface: `eth9`"),
        "{}",
        ended.err
    );
    assert!(ended.err.contains("interfaces: lo, eth2"), "{}", ended.err);
    let map = on(&place("two-socket-healthy"), &["map", "eth9"]);
    assert_eq!(map.code, ended.code, "as `map` does");
    assert_eq!(linerate(&["nic"]).code, Some(2), "it needs an interface");
    assert!(Path::new(&repository("fixtures/nic")).is_dir());
}
