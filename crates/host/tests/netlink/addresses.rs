//! Static addresses and the state of an interface, compared with ip(8).

use linerate_host::nic_control::{NicRead, NicValue, NicWrite};
use linerate_model::setting::{address_words, parse_addresses};

use crate::lab::{Lab, in_lab, json, tool};

/// What ip(8) prints of the interface's addresses, IPv6 sorted: the kernel lists a new one first.
fn shown(lab: &Lab) -> Option<Vec<String>> {
    let all = json(&format!("ip -j -d addr show dev {}", lab.nic))?;
    let all = all[0]["addr_info"].as_array().expect("a list").clone();
    let (mut v6, mut v4): (Vec<_>, Vec<_>) = all
        .into_iter()
        .filter(|one| one["scope"] == "global")
        .partition(|one| one["family"] == "inet6");
    for one in &mut v6 {
        one.as_object_mut().expect("an object").remove("tentative");
    }
    v6.sort_by_key(ToString::to_string);
    v4.extend(v6);
    Some(v4.iter().map(ToString::to_string).collect())
}

fn set(lab: &Lab, text: &str) {
    let addresses = parse_addresses(text).expect(text);
    lab.netlink
        .set_value(&lab.nic, &NicValue::Addresses(addresses))
        .expect(text);
}

fn read(lab: &Lab) -> String {
    let addresses = lab.netlink.static_addresses(&lab.nic);
    address_words(addresses.value().expect("addresses"))
}

#[test]
fn addresses_of_ip_are_read_removed_and_restored_as_they_were() {
    in_lab(|lab| {
        let nic = &lab.nic;
        for add in [
            "10.7.0.2/24 brd + label near0:1",
            "10.7.0.1/24 metric 9",
            "10.8.0.1 peer 10.8.0.2/32",
            "2001:db8:7::1/64",
            "2001:db8:7::2/64 noprefixroute",
        ] {
            if tool(&format!("ip addr add {add} dev {nic}")).is_none() {
                return;
            }
        }
        // One that expires, and one of the link: neither read nor changed.
        for add in [
            "10.9.0.1/24 valid_lft 900 preferred_lft 900",
            "169.254.7.1/16 scope link",
        ] {
            tool(&format!("ip addr add {add} dev {nic}"));
        }
        let (before, text) = (shown(lab), read(lab));
        assert!(
            text.starts_with("10.7.0.2/24 broadcast 10.7.0.255 label near0:1 "),
            "{text}"
        );
        assert!(text.contains("10.8.0.1/32 peer 10.8.0.2"), "{text}");
        assert!(
            !text.contains("10.9.0.1") && !text.contains("169.254"),
            "{text}"
        );
        for other in ["none", "10.7.0.1/24", "192.0.2.1/24 2001:db8:7::1/64"] {
            set(lab, other);
            let dynamic = shown(lab).expect("ip is here").concat();
            assert!(dynamic.contains("10.9.0.1"), "{dynamic}");
            set(lab, &text);
            let lifetimes = |all: Option<Vec<String>>| -> Vec<String> {
                let all = all.expect("ip is here").into_iter();
                let mut all: Vec<String> = all.filter(|one| !one.contains("10.9.0.1")).collect();
                all.sort();
                all
            };
            assert_eq!(lifetimes(shown(lab)), lifetimes(before.clone()), "{other}");
        }
    });
}

#[test]
fn an_interface_goes_down_only_if_its_routes_come_back() {
    use linerate_host::nic_control::Loss;
    in_lab(|lab| {
        let up = || lab.netlink.is_up(&lab.nic).get();
        assert_eq!(up(), Some(true));
        let lost = || {
            let lost = lab.netlink.lost_without(&lab.nic, Loss::Routes);
            lost.value().expect("routes").clone()
        };
        set(lab, "10.7.0.1/24 2001:db8:7::1/64");
        assert_eq!(lost(), None);
        let route = format!("ip route add 198.51.100.0/24 via 10.7.0.9 dev {}", lab.nic);
        if tool(&route).is_none() {
            return;
        }
        let why = lost().expect("a route");
        assert!(why.contains("IPv4 routes"), "{why}");
        for state in [false, true] {
            let done = lab.netlink.set_value(&lab.nic, &NicValue::Up(state));
            done.expect("a veth");
            assert_eq!(up(), Some(state));
        }
    });
}
