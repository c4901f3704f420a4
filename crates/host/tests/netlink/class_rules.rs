//! Class rules, compared with nft(8): the table is the one that nft makes of the same rules, and nothing is left of it.

use std::io;

use linerate_host::nic_control::{NicRead, NicValue, NicWrite};
use linerate_model::setting::{ClassRule, class_rule_words, parse_class_rules};

use crate::lab::{Lab, in_lab, skip, tool};

const RULES: &str =
    "priority 1 -> 1:10; vlan 10 -> 1:20; dscp af21 -> 1:20; port 5001 -> 1:30; mark 7 -> 1:30";

/// What nft(8) prints of all tables.
fn shown() -> Option<String> {
    tool("nft list ruleset")
}

fn set(lab: &Lab, text: &str) -> io::Result<()> {
    let rules = parse_class_rules(text).expect(text);
    lab.netlink
        .set_value(&lab.nic, &NicValue::ClassRules(rules))
}

fn read(lab: &Lab) -> Vec<ClassRule> {
    let rules = lab.netlink.class_rules(&lab.nic);
    rules.value().expect("rules").clone()
}

#[test]
fn rules_are_those_that_nft_makes_and_leave_nothing_behind() {
    in_lab(|lab| {
        let Some(before) = shown() else { return };
        match set(lab, RULES) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                return skip(&error.to_string());
            }
            done => done.expect("rules"),
        }
        assert_eq!(class_rule_words(&read(lab)), RULES);
        let ours = shown().expect("nft is here");
        // The same table, made by nft of what it printed.
        let lines: Vec<String> = [
            "meta priority 0:1 meta priority set 1:10 accept",
            "vlan id 10 meta priority set 1:20 accept",
            "ip dscp af21 meta priority set 1:20 accept",
            "ip6 dscp af21 meta priority set 1:20 accept",
            "tcp sport 5001 meta priority set 1:30 accept",
            "tcp dport 5001 meta priority set 1:30 accept",
            "udp sport 5001 meta priority set 1:30 accept",
            "udp dport 5001 meta priority set 1:30 accept",
            "meta mark 0x00000007 meta priority set 1:30 accept",
        ]
        .map(|line| format!("\t\t{line}\n"))
        .into();
        let wanted = format!(
            "table netdev linerate_qos_near0 {{\n\tchain egress {{\n\t\ttype filter hook egress device \"near0\" \
             priority filter; policy accept;\n{}\t}}\n}}\n",
            lines.concat()
        );
        assert_eq!(ours, wanted);
        let other = "dscp 63 -> ffff:1; priority 65552 -> 1:2";
        set(lab, other).expect("other rules");
        assert_eq!(class_rule_words(&read(lab)), other);
        set(lab, RULES).expect("the first ones again");
        assert_eq!(shown().expect("nft is here"), wanted);
        set(lab, "none").expect("no rules");
        assert!(read(lab).is_empty());
        assert_eq!(shown().expect("nft is here"), before);
        set(lab, "none").expect("nothing to do");
    });
}

#[test]
fn a_rule_of_somebody_else_in_the_table_is_reported_and_kept() {
    in_lab(|lab| {
        if set(lab, "vlan 10 -> 1:20").is_err() {
            return skip("this kernel has no nf_tables egress hook");
        }
        if tool("nft add rule netdev linerate_qos_near0 egress meta mark 9 drop").is_none() {
            return;
        }
        let rules = lab.netlink.class_rules(&lab.nic);
        let gap = rules.gap().expect("not linerate's");
        assert!(gap.reason.contains("linerate did not make"), "{gap}");
    });
}
