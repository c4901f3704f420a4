//! Rules to the kernel and back.

use linerate_model::setting::parse_class_rules;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::netlink::headers::compare;

#[test]
fn the_attributes_have_the_numbers_of_the_kernels_header() {
    compare(
        "netfilter/nf_tables.h",
        &[
            ("NFT_MSG_GETTABLE", GET_TABLE & 0xff),
            ("NFT_MSG_DELTABLE", DELETE_TABLE & 0xff),
            ("NFT_MSG_NEWCHAIN", NEW_CHAIN & 0xff),
            ("NFT_MSG_NEWRULE", NEW_RULE & 0xff),
            ("NFT_MSG_GETRULE", GET_RULE & 0xff),
            ("NFTA_TABLE_NAME", TABLE_NAME),
            ("NFTA_CHAIN_TABLE", OF_TABLE),
            ("NFTA_CHAIN_NAME", CHAIN_NAME),
            ("NFTA_CHAIN_HOOK", CHAIN_HOOK),
            ("NFTA_CHAIN_TYPE", CHAIN_TYPE),
            ("NFTA_HOOK_HOOKNUM", HOOK_NUMBER),
            ("NFTA_HOOK_PRIORITY", HOOK_PRIORITY),
            ("NFTA_HOOK_DEV", HOOK_DEVICE),
            ("NFTA_RULE_CHAIN", RULE_CHAIN),
            ("NFTA_RULE_EXPRESSIONS", RULE_EXPRESSIONS),
        ],
    );
    compare("netfilter/nf_tables.h", expression::NUMBERS);
}

#[test]
fn each_interface_has_a_table_of_its_own() {
    let table = |name: &str| table_of(&name.parse().expect("a name"));
    assert_eq!(table("eth1.10"), "linerate_qos_eth1.10");
    assert_eq!(table("a@b"), "linerate_qos_0x614062");
    // The plain name of another interface is not the encoded name of one.
    assert_eq!(table("0x614062"), "linerate_qos_0x3078363134303632");
}

/// What a dump has of rules.
fn dumped(rules: &[ClassRule]) -> Vec<Option<KernelRule>> {
    let nic = "e0".parse().expect("a name");
    let requests = new_table("t", &nic, rules).into_iter().skip(2);
    let rules = requests.map(|request| {
        let body = request.into_body();
        let attributes = Attributes::after(&body, NETDEV.len()).expect("our own");
        KernelRule::parse(&attributes, RULE_EXPRESSIONS).expect("our own")
    });
    rules.collect()
}

const ALL: &str = "priority 1 -> 1:10; vlan 10 -> 1:20; dscp af21 -> 1:20; port 5001 -> 1:30; \
    mark 1 -> 1:30; priority 65552 -> 1:1; dscp 63 -> 1:2; vlan 4094 -> 1:3; port 65535 -> 1:4";

#[test]
fn rules_are_read_back_from_their_expressions() {
    let rules = parse_class_rules(ALL).expect("rules");
    let found = dumped(&rules);
    assert_eq!(found.len(), 5 + 2 * 2 + 2 * 4);
    assert_eq!(grouped(found.clone()), Some(rules));
    // A rule of somebody else, and a part of one of ours.
    let mut other = found.clone();
    other[0] = None;
    assert_eq!(grouped(other), None);
    let mut part = found;
    part.remove(3);
    assert_eq!(grouped(part), None);
}

proptest! {
    #[test]
    fn no_bytes_panic_a_parser(body in vec(any::<u8>(), 0..200)) {
        if let Ok(attributes) = Attributes::parse(&body) {
            let _ = KernelRule::parse(&attributes, RULE_EXPRESSIONS);
        }
    }
}
