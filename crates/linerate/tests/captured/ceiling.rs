//! `linerate ceiling`: the bounds of captured interfaces and of given figures.

use serde_json::Value;

use super::archives::place;
use super::documents::document;
use super::program::{linerate, on};

fn of(name: &str, nic: &str) -> Value {
    document(&on(&place(name), &["ceiling", nic, "--format", "json"]).with_code(0))
}

#[test]
fn the_lowest_bound_is_the_ceiling() {
    // 100 Gb/s x 8948 / 9038 with timestamps; PCIe passes more.
    let healthy = of("two-socket-healthy", "eth2");
    assert_eq!(healthy["ceiling"]["bound"], "ethernet");
    let rate = healthy["ceiling"]["bit_per_s"].as_u64().expect("a rate");
    assert_eq!(rate / 100_000_000, 990, "{healthy}");
    assert_eq!(healthy["gaps"], serde_json::json!([]));
    let narrow = of("two-socket-remote-irqs-narrow-pcie", "eth2");
    assert_eq!(narrow["ceiling"]["bound"], "pcie");
    let rate = narrow["ceiling"]["bit_per_s"].as_u64().expect("a rate");
    assert!(rate <= 31_504_000_000, "{narrow}");
}

#[test]
fn a_given_mtu_is_counted_in_place_of_the_interfaces_own() {
    let path = place("two-socket-healthy");
    let own = on(&path, &["ceiling", "eth2"]).with_code(0);
    assert!(own.contains("8948/9038"), "{own}");
    for (mtu, share) in [("1500", "1448/1538"), ("4000", "3948/4038")] {
        let given = on(&path, &["ceiling", "eth2", "--mtu", mtu]).with_code(0);
        assert!(given.contains(share) && !given.contains("8948"), "{given}");
    }
    let tunnelled = |more: &[&str]| {
        let words = ["ceiling", "eth2", "--tunnel", "vxlan"];
        on(&path, &[&words, more].concat()).with_code(0)
    };
    assert_ne!(tunnelled(&[]), tunnelled(&["--outer-ipv6"]));
}

#[test]
fn a_figure_that_nothing_is_computed_from_is_refused() {
    for words in [
        "--mtu 9000 --pcie 3x8",
        "--timestamps off --infiniband QDR",
        "--shaper 1G --tunnel vxlan",
        "--peer netns:nobody --mtu 9000",
        "eth0 --peer netns:nobody --vlan-tags 1",
        "--speed 40G --outer-ipv6",
        "--pcie 3x8 --links 2",
        "--speed 40G --rdma-mtu 4096",
        "eth0 --max-payload 256",
    ] {
        let all: Vec<&str> = std::iter::once("ceiling").chain(words.split(' ')).collect();
        let said = linerate(&all);
        assert_eq!(said.code, Some(2), "{words}");
    }
}

#[test]
fn bounds_that_cannot_be_computed_are_gaps_and_never_a_number() {
    for (name, nic) in [
        ("veth-pair-near", "near0"),
        ("vm-two-cpus", "eth0"),
        ("vm-virtio", "ens3"),
    ] {
        let said = of(name, nic);
        assert_eq!(said["ceiling"], Value::Null, "{name}");
        assert_eq!(said["bounds"], serde_json::json!([]), "{name}");
        assert!(
            said["gaps"].as_array().is_some_and(|all| !all.is_empty()),
            "{name}"
        );
        let text = on(&place(name), &["ceiling", nic]).with_code(0);
        assert!(text.contains("unknown"), "{text}");
    }
}

#[test]
fn given_figures_give_the_bounds_that_a_person_computes() {
    let words = ["--speed", "40G", "--mtu", "1500", "--timestamps", "off"];
    let all: Vec<&str> = ["ceiling", "--format", "json"]
        .iter()
        .chain(&words)
        .copied()
        .collect();
    let said = document(&linerate(&all).with_code(0));
    let rate = said["ceiling"]["bit_per_s"].as_u64().expect("a rate");
    assert_eq!(rate, 40_000_000_000 * 1460 / 1538);
    assert_eq!(linerate(&["ceiling"]).code, Some(2));
}

/// The figures of the field reports, recomputed: text of `linerate ceiling` must hold each.
#[test]
fn the_figures_of_the_field_reports_come_out() {
    for (words, expected) in [
        (
            "--speed 40G --mtu 1500 --timestamps off --rate 37.9G",
            ["37.97 Gb/s", "99.8 %"],
        ),
        ("--pcie 3x8 --rate 55.1G", ["63.008 Gb/s", "87.4 %"]),
        (
            "--speed 40G --roce v2 --rate 4613MiB/s",
            ["39.21 Gb/s", "98.7 %"],
        ),
        ("--infiniband QDR", ["32.00 Gb/s", "8b/10b"]),
        ("--speed 40G --mtu 1500", ["37.66 Gb/s", "1448/1538"]),
        (
            "--speed 40G --tunnel geneve --outer-ipv6 --mtu 1430",
            ["1378/1538", "Geneve"],
        ),
        (
            "--speed 25G --links 4 --flows 2",
            ["47.07 Gb/s", "of 4 links"],
        ),
        (
            "--allowance 50G --flow-allowance 5G",
            ["5.00 Gb/s", "for each flow"],
        ),
    ] {
        let words: Vec<&str> = std::iter::once("ceiling").chain(words.split(' ')).collect();
        let text = linerate(&words).with_code(0);
        for part in expected {
            assert!(text.contains(part), "{words:?}: no {part} in {text}");
        }
    }
}

#[test]
fn figures_that_cannot_be_are_refused_with_what_would_do() {
    for (words, code) in [
        ("--pcie 9x8", 2),
        ("--pcie 3x7", 2),
        ("--infiniband 3xQDR", 2),
        ("--infiniband WARP", 2),
        ("--speed 40G --roce v2 --rdma-mtu 1500", 23),
        ("--speed 40G --roce v3", 2),
        ("--window 1MiB", 2),
    ] {
        let all: Vec<&str> = std::iter::once("ceiling").chain(words.split(' ')).collect();
        assert_eq!(linerate(&all).code, Some(code), "{words}");
    }
}
