//! Root qdiscs, compared with `tc(8)`: a removed qdisc is restored byte for byte.

use std::io;
use std::os::fd::AsFd;

use linerate_host::netlink::NetlinkError;
use linerate_host::nic_control::{NicRead, NicWrite};
use linerate_model::host::Qdisc;
use linerate_model::ids::NicName;
use linerate_model::setting::{QdiscSpec, Value};
use linerate_model::units::{BitRate, Bytes};

use crate::lab::{in_lab, name, skip, tool};

/// The output of `tc qdisc show` at the local end.
fn shown(nic: &NicName) -> Option<String> {
    tool(&format!("tc qdisc show dev {nic}"))
}

#[test]
fn a_shaper_made_by_tc_is_taken_away_and_put_back_byte_for_byte() {
    in_lab(|lab| {
        let plain = lab.netlink.qdisc(&lab.nic);
        assert_eq!(plain.value(), Some(&Qdisc::plain("noqueue")));
        for (options, rate) in [
            (
                "handle 8001: root tbf rate 100mbit burst 32k limit 100k",
                BitRate::from_mbit_per_s(100),
            ),
            (
                "root tbf rate 1gbit burst 128k latency 50ms peakrate 2gbit mtu 2000",
                BitRate::from_mbit_per_s(1_000),
            ),
            (
                "handle a: root tbf rate 50gbit burst 1m limit 10m",
                BitRate::from_mbit_per_s(50_000),
            ),
            (
                "handle b: root tbf rate 7mbit burst 12345 limit 54321 overhead 24 mpu 64 linklayer atm",
                BitRate::from_mbit_per_s(7),
            ),
        ] {
            let Some(before_shaper) = shown(&lab.nic) else {
                return;
            };
            tool(&format!("tc qdisc replace dev {} {options}", lab.nic));
            let before = shown(&lab.nic).expect("tc is here");
            let shaper = lab.netlink.qdisc(&lab.nic);
            let shaper = shaper.value().expect("a shaper");
            assert_eq!(shaper.kind, "tbf");
            assert_eq!(shaper.rate_bit_per_s, Some(rate), "{options}");

            let plain = plain.value().expect("it was read");
            lab.netlink.set_qdisc(&lab.nic, plain).expect("taken away");
            assert_eq!(shown(&lab.nic).expect("tc is here"), before_shaper);
            assert_eq!(lab.netlink.qdisc(&lab.nic).value(), Some(plain));

            lab.netlink.set_qdisc(&lab.nic, shaper).expect("put back");
            assert_eq!(shown(&lab.nic).expect("tc is here"), before, "{options}");
            assert_eq!(lab.netlink.qdisc(&lab.nic).value(), Some(shaper));
            lab.netlink.set_qdisc(&lab.nic, plain).expect("taken away");
        }
    });
}

#[test]
fn one_shaper_takes_the_place_of_another_under_the_same_handle() {
    in_lab(|lab| {
        let put = |rate, handle| {
            let (burst, limit) = (Bytes::kib(64), Bytes::kib(256));
            lab.netlink
                .add_tbf(
                    &lab.nic,
                    BitRate::from_mbit_per_s(rate),
                    burst,
                    limit,
                    handle,
                )
                .expect("a veth takes a shaper");
            let now = lab.netlink.qdisc(&lab.nic);
            now.value().expect("a qdisc").clone()
        };
        let slow = put(100, 0x8001_0000);
        assert_eq!(slow.rate_bit_per_s, Some(BitRate::from_mbit_per_s(100)));
        let fast = put(40_000, 0x8001_0000);
        assert_eq!(fast.rate_bit_per_s, Some(BitRate::from_mbit_per_s(40_000)));
        let fifo = Qdisc {
            handle: 0x8001_0000,
            options: "e8030000".to_owned(),
            words: "pfifo limit 1000".to_owned(),
            ..Qdisc::plain("pfifo")
        };
        for wanted in [&slow, &fifo, &fast, &slow, &slow] {
            lab.netlink
                .set_qdisc(&lab.nic, wanted)
                .expect("in its place");
            assert_eq!(lab.netlink.qdisc(&lab.nic).value(), Some(wanted));
        }
    });
}

#[test]
fn the_shaper_of_a_testbed_is_the_one_tc_would_have_made() {
    in_lab(|lab| {
        lab.netlink
            .add_tbf(
                &lab.nic,
                BitRate::from_mbit_per_s(500),
                Bytes::kib(128),
                Bytes::kib(512),
                0x8001_0000,
            )
            .expect("a veth takes a shaper");
        let Some(ours) = shown(&lab.nic) else { return };
        let device = &lab.nic;
        tool(&format!("tc qdisc del dev {device} root"));
        tool(&format!(
            "tc qdisc add dev {device} handle 8001: root tbf rate 500mbit burst 128k limit 512k"
        ));
        assert_eq!(ours, shown(&lab.nic).expect("tc is here"));
    });
}

#[test]
fn a_root_with_classes_has_their_rate_only_if_it_is_one() {
    in_lab(|lab| {
        let device = &lab.nic;
        if tool(&format!(
            "tc qdisc add dev {device} handle 1: root htb default 10"
        ))
        .is_none()
        {
            return;
        }
        let rate = || {
            lab.netlink
                .qdisc(&lab.nic)
                .value()
                .expect("a root")
                .rate_bit_per_s
        };
        assert_eq!(rate(), None, "without a class nothing is shaped");
        tool(&format!(
            "tc class add dev {device} parent 1: classid 1:10 htb rate 50mbit quantum 1514"
        ));
        assert_eq!(rate(), Some(BitRate::from_mbit_per_s(50)));
        tool(&format!(
            "tc class add dev {device} parent 1: classid 1:11 htb rate 9gbit quantum 1514"
        ));
        assert_eq!(rate(), None, "two classes have no single rate");
    });
}

/// A qdisc requested in tc(8) syntax.
fn asked(words: &str) -> Qdisc {
    Qdisc::asked(&QdiscSpec::parse(words).expect(words))
}

#[test]
fn a_discipline_asked_for_in_words_is_the_one_tc_makes_of_them() {
    in_lab(|lab| {
        let plain = lab.netlink.qdisc(&lab.nic);
        let plain = plain.value().expect("a root");
        let told = |what: &str| tool(&format!("tc -d {what} show dev {}", lab.nic));
        for (words, class) in [
            ("tbf rate 1gbit burst 128k latency 50ms", None),
            ("tbf rate 50gbit burst 1m limit 10m", None),
            (
                "htb default 10 r2q 20",
                Some("rate 1gbit ceil 2gbit burst 128k cburst 256k quantum 3000"),
            ),
            ("htb default 2a", Some("rate 80gbit quantum 60000")),
        ] {
            let wanted = match class {
                Some(class) => asked(&format!("{words} {class}")),
                None => asked(words),
            };
            lab.netlink.set_qdisc(&lab.nic, &wanted).expect(words);
            let (ours, ours_class) = (told("qdisc"), told("class"));
            let made = lab.netlink.qdisc(&lab.nic);
            let made = made.value().expect("a root").clone();
            assert!(Value::Qdisc(wanted).is_met_by(&Value::Qdisc(made.clone())));
            // Set again without a change; removed and restored.
            lab.netlink.set_qdisc(&lab.nic, &made).expect("it is so");
            lab.netlink.set_qdisc(&lab.nic, plain).expect("taken away");
            lab.netlink.set_qdisc(&lab.nic, &made).expect("put back");
            assert_eq!(lab.netlink.qdisc(&lab.nic).value(), Some(&made));
            assert_eq!(
                (told("qdisc"), told("class")),
                (ours.clone(), ours_class.clone())
            );
            lab.netlink.set_qdisc(&lab.nic, plain).expect("taken away");

            let handle = made.handle >> 16;
            let root = format!(
                "tc qdisc add dev {} root handle {handle:x}: {words}",
                lab.nic
            );
            if tool(&root).is_none() {
                return;
            }
            if let Some(class) = class {
                let default = words.split_whitespace().nth(2).expect("its number");
                tool(&format!(
                    "tc class add dev {} parent {handle:x}: classid {handle:x}:{default} htb {class}",
                    lab.nic
                ));
            }
            assert_eq!(
                (told("qdisc"), told("class")),
                (ours, ours_class),
                "{words}"
            );
            // Another user's qdisc is restored, too.
            let theirs = lab.netlink.qdisc(&lab.nic);
            let theirs = theirs.value().expect("a root").clone();
            let other = asked("tbf rate 10mbit burst 64k limit 64k");
            lab.netlink.set_qdisc(&lab.nic, &other).expect("replaced");
            lab.netlink.set_qdisc(&lab.nic, &theirs).expect("put back");
            assert_eq!(lab.netlink.qdisc(&lab.nic).value(), Some(&theirs));
            lab.netlink.set_qdisc(&lab.nic, plain).expect("taken away");
        }
    });
}

#[test]
fn a_qdisc_the_kernel_does_not_have_is_an_error_in_its_words() {
    in_lab(|lab| {
        let error = lab
            .netlink
            .set_qdisc(&lab.nic, &Qdisc::plain("no_such_qdisc"))
            .expect_err("no such kind");
        assert!(error.to_string().contains("qdisc"), "{error}");
        assert!(
            NetlinkError::of(&error)
                .and_then(NetlinkError::kernel_message)
                .is_some()
        );
        let odd = Qdisc {
            options: "abc".to_owned(),
            ..Qdisc::plain("pfifo")
        };
        let error = lab
            .netlink
            .set_qdisc(&lab.nic, &odd)
            .expect_err("half a byte");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let long = Qdisc {
            options: "00".repeat(70_000),
            ..Qdisc::plain("pfifo")
        };
        let error = lab.netlink.set_qdisc(&lab.nic, &long).expect_err("70 kB");
        assert!(error.to_string().contains("64 KiB"), "{error}");
        assert_eq!(
            lab.netlink.qdisc(&lab.nic).value(),
            Some(&Qdisc::plain("noqueue"))
        );
    });
}

#[test]
fn an_interface_that_is_down_has_a_root_too() {
    in_lab(|lab| {
        let (down, other) = (name("down0"), name("down1"));
        lab.netlink
            .create_veth(&down, &other, Some(lab.far.as_fd()))
            .expect("a second pair");
        assert_eq!(
            lab.netlink.qdisc(&down).value(),
            Some(&Qdisc::plain("noop"))
        );
        let again = lab
            .netlink
            .create_veth(&down, &other, Some(lab.far.as_fd()))
            .expect_err("it is there");
        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists, "{again}");
    });
}

#[test]
fn the_kernels_own_choice_of_qdisc_is_put_back_byte_for_byte() {
    in_lab(|lab| {
        let made = std::process::Command::new("ip")
            .args("link add queue0 type ifb".split_whitespace())
            .status();
        if !made.is_ok_and(|status| status.success()) {
            return skip("no `ip`, or no ifb devices in this kernel");
        }
        let nic = name("queue0");
        let shown = || tool("tc qdisc show dev queue0").unwrap_or_default();
        lab.netlink.set_up(&nic).expect("up");
        let (before, read) = (shown(), lab.netlink.qdisc(&nic));
        let own = read.value().expect("a root");
        assert_eq!(own.handle, 0, "{own:?}");
        assert_ne!(own.kind, "noqueue", "an ifb has a queue");
        let (rate, size) = (BitRate::from_mbit_per_s(100), Bytes::kib(64));
        lab.netlink
            .add_tbf(&nic, rate, size, size, 0)
            .expect("a shaper with the kernel's handle");
        assert_ne!(shown(), before);
        lab.netlink.set_qdisc(&nic, own).expect("put back");
        assert_eq!(shown(), before);
        assert_eq!(lab.netlink.qdisc(&nic), read);
        // A plain request for the kernel's default changes nothing.
        lab.netlink
            .set_qdisc(&nic, &Qdisc::plain(&own.kind))
            .expect("nothing to do");
        assert_eq!(shown(), before);
    });
}

#[test]
fn a_plain_kind_is_made_with_the_kernels_defaults() {
    in_lab(|lab| {
        lab.netlink
            .set_qdisc(&lab.nic, &Qdisc::plain("pfifo"))
            .expect("every kernel with qdiscs has it");
        let now = lab.netlink.qdisc(&lab.nic);
        let now = now.value().expect("a root");
        assert_eq!(now.kind, "pfifo");
        assert_ne!(now.handle, 0);
        lab.netlink
            .set_qdisc(&lab.nic, &Qdisc::plain("noqueue"))
            .expect("taken away");
        let now = lab.netlink.qdisc(&lab.nic);
        assert_eq!(now.value(), Some(&Qdisc::plain("noqueue")));
    });
}

#[test]
fn a_root_that_cannot_be_made_leaves_the_former_one() {
    in_lab(|lab| {
        let (rate, size) = (BitRate::from_mbit_per_s(100), Bytes::kib(64));
        lab.netlink
            .add_tbf(&lab.nic, rate, size, size, 0x8001_0000)
            .expect("a veth takes a shaper");
        let before = lab.netlink.qdisc(&lab.nic);
        let impossible = |kind: &str, handle, options: &str| Qdisc {
            handle,
            options: options.to_owned(),
            ..Qdisc::plain(kind)
        };
        for wanted in [
            impossible("no_such_qdisc", 0, ""),
            impossible("no_such_qdisc", 0x8001_0000, ""),
            impossible("no_such_qdisc", 0x9001_0000, ""),
            impossible("tbf", 0x8001_0000, "0000"),
            impossible("tbf", 0x9001_0000, "00ff00ff"),
            impossible("pfifo", 0x8001_0000, "01"),
        ] {
            let error = lab.netlink.set_qdisc(&lab.nic, &wanted);
            error.expect_err("the kernel cannot make it");
            assert_eq!(lab.netlink.qdisc(&lab.nic), before, "{wanted:?}");
        }
    });
}
