//! Settings: the knobs of a host, in one catalog. Rules read settings, transactions write them, experiments vary
//! them; they all use the same key, typed value, domain, reversibility class and scope.

mod addresses;
mod applications;
mod by_hand;
mod class_rules;
mod fact;
mod file;
mod hash_key;
mod key;
mod knobs;
mod link;
mod made;
pub mod needs;
pub mod numbers;
mod of_host;
mod of_nic;
mod path;
mod priorities;
pub mod qdisc_spec;
mod read_value;
mod rows;
mod spec;
mod value;
mod vlan_link;
mod words;

use std::collections::BTreeMap;

pub use addresses::{StaticAddress, address_words, parse_addresses};
pub use applications::{Application, application_words, parse_applications};
pub use by_hand::by_hand;
pub use class_rules::{
    ClassRule, Packets, class_rule_words, dscp_word, parse_class_rules, parse_dscp,
};
pub use fact::{Fact, Field, egress_text};
pub use file::{Form, SettingFile, parse_chosen, parse_scheduler};
pub use hash_key::{key_words, parse_key};
pub use key::{SettingError, SettingKey};
pub use link::{LinkSpeed, is_speed, is_untold, link_words};
pub use of_host::{current, put};
pub use priorities::{
    TrafficClasses, class_words, classes_of, egress_words, parse_classes, parse_egress,
    parse_priorities, parse_rates, priority_words, rate_words,
};
pub use qdisc_spec::QdiscSpec;
pub use rows::{
    BlockKnob, CpuKnob, MachineKnob, NicKnob, PolicyKnob, RdmaKnob, TrialKnob, catalogue,
};
pub use spec::{
    Access, ByHand, Class, Domain, Effects, EthtoolRequest, Keeping, Scope, SettingSpec,
};
pub use value::{Value, fold_blanks};
pub use vlan_link::{FLAGS_DEFAULT, FLAGS_KNOWN, VlanLink, parse_vlan_link, vlan_link_words};
pub use words::{FEC_AUTO, fec_words, parse_table, table_words};

/// Settings with their values, for one end of a path.
pub type Settings = BTreeMap<SettingKey, Value>;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::host::{Qdisc, QueueKind};
    use crate::ids::NicName;

    #[test]
    fn a_key_of_each_row_reads_back_as_it_was_written_and_has_that_row() {
        for spec in catalogue() {
            let text = spec.example();
            let key: SettingKey = text.parse().expect(&text);
            assert_eq!(key.to_string(), text);
            assert_eq!(key.spec(), spec);
        }
    }

    #[test]
    fn each_row_is_complete_and_its_key_is_its_own() {
        let patterns: BTreeSet<&str> = catalogue().map(|spec| spec.pattern).collect();
        assert_eq!(patterns.len(), catalogue().count());
        for spec in catalogue() {
            assert!(
                !spec.about.is_empty() && !spec.source.is_empty(),
                "{spec:?}"
            );
            if let Effects::Siblings(others) = spec.effects {
                assert!(others.iter().all(|other| patterns.contains(other)));
            }
        }
    }

    #[test]
    fn a_setting_is_of_the_interface_whose_name_it_bears() {
        for (key, nic) in [
            ("nic/eth2/mtu", Some("eth2")),
            ("sysctl/net.ipv6.conf.eth2.mtu", Some("eth2")),
            (
                "sysctl/net.ipv4.neigh.eth2.100.gc_stale_time",
                Some("eth2.100"),
            ),
            ("sysctl/net.ipv4.conf.all.forwarding", None),
            ("sysctl/net.ipv4.tcp_rmem", None),
            ("cpu/turbo", None),
        ] {
            let key: SettingKey = key.parse().expect(key);
            assert_eq!(key.interface(), nic, "{key}");
        }
    }

    #[test]
    fn a_setting_of_an_interface_has_the_same_one_of_another() {
        let nic: NicName = "lan0.7".parse().expect("a name");
        for (key, renamed) in [
            ("nic/eth2/mtu", "nic/lan0.7/mtu"),
            (
                "nic/eth2/queue/rx-0/irq-cpus",
                "nic/lan0.7/queue/rx-0/irq-cpus",
            ),
            (
                "sysctl/net.ipv4.neigh.eth2.100.gc_stale_time",
                "sysctl/net.ipv4.neigh.lan0.7.gc_stale_time",
            ),
            (
                "sysctl/net.ipv4.conf.all.forwarding",
                "sysctl/net.ipv4.conf.all.forwarding",
            ),
            ("cpu/turbo", "cpu/turbo"),
        ] {
            let key: SettingKey = key.parse().expect(key);
            assert_eq!(key.of_interface(&nic).to_string(), renamed);
        }
    }

    #[test]
    fn what_can_be_written_outlives_a_boot_but_for_what_a_boot_numbers_anew() {
        let never = catalogue()
            .filter(|spec| spec.access.is_written() && matches!(spec.keeping, Keeping::Never(_)));
        let never: Vec<&str> = never.map(|spec| spec.pattern).collect();
        assert_eq!(
            never,
            [
                "irq/NUMBER/cpus",
                "placement/sender-cpus",
                "placement/receiver-cpus",
                "stream/congestion-control"
            ]
        );
        let mut reported = catalogue().filter(|spec| matches!(spec.access, Access::Reported(_)));
        assert!(reported.all(|spec| spec.keeping != Keeping::Persist));
    }

    #[test]
    fn the_short_names_of_features_are_the_kernels() {
        let key: SettingKey = "nic/eth2/feature/tso".parse().expect("an alias");
        assert_eq!(key.to_string(), "nic/eth2/feature/tx-tcp-segmentation");
    }

    #[test]
    fn what_is_not_in_the_catalogue_is_refused() {
        for text in [
            "",
            "sysctl/",
            "sysctl/net..x",
            "sysctl/../etc",
            "nic/eth0",
            "nic/a b/mtu",
            "cpu/warp",
            "cpu/policy3/online",
            "nic/eth2/queue/rx-0/tx-usecs",
            "irq/x/cpus",
            "block/../scheduler",
            "rdma/../cm-defaults",
            "rdma/mlx5_0/x/default-roce-tos",
        ] {
            assert!(text.parse::<SettingKey>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_discipline_is_asked_for_in_words_and_met_by_one_that_has_what_they_name() {
        let key: SettingKey = "nic/eth2/qdisc".parse().expect("a key");
        let asked = key.parse_value("fq limit 500").expect("words of tc");
        assert_eq!(asked.to_string(), "fq limit 500");
        let found = |words: &str| {
            Value::Qdisc(Qdisc {
                handle: 0x8001_0000,
                options: "0800".to_owned(),
                words: words.to_owned(),
                ..Qdisc::plain("fq")
            })
        };
        assert_eq!(found("fq limit 500 pacing").to_string(), "fq");
        assert!(asked.is_met_by(&found("fq limit 500 pacing")));
        assert!(!asked.is_met_by(&found("fq limit 501 pacing")));
        assert!(!asked.is_met_by(&found("")));
        let plain = key.parse_value("fq").expect("a kind");
        assert!(plain.is_met_by(&found("")));
        let queues = key.parse_value("mq").expect("a kind");
        assert_eq!(queues, Value::Qdisc(Qdisc::plain("mq")));
        for wrong in ["htb", "tbf rate 1gbit", "cake", "fq limit", ""] {
            assert!(key.parse_value(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_value_that_does_not_fit_is_refused_with_what_would() {
        let key: SettingKey = "nic/eth2/feature/tso".parse().expect("a key");
        let error = key.parse_value("maybe").expect_err("not a switch");
        assert_eq!(
            error.to_string(),
            "`maybe` is not a value for nic/eth2/feature/tx-tcp-segmentation: expected `on` or `off`"
        );
    }

    #[test]
    fn what_is_set_for_all_queues_is_set_before_what_is_set_for_one() {
        let one = NicKnob::QueueRxUsecs(0);
        for all in [
            NicKnob::CoalesceRxUsecs,
            NicKnob::CoalesceTxUsecs,
            NicKnob::CoalesceAdaptiveRx,
            NicKnob::CoalesceAdaptiveTx,
            NicKnob::CoalesceRxFrames,
            NicKnob::ChannelsCombined,
        ] {
            assert!(all < one, "{all}");
        }
    }

    #[test]
    fn what_makes_others_anew_is_set_before_them() {
        for (first, second) in [
            (NicKnob::ChannelsCombined, NicKnob::CoalesceRxUsecs),
            (NicKnob::ChannelsCombined, NicKnob::RssTable),
            (NicKnob::ChannelsCombined, NicKnob::XpsCpus(0)),
            (NicKnob::ChannelsCombined, NicKnob::Qdisc),
            (NicKnob::DcbEts, NicKnob::IrqCpus(QueueKind::Rx, 0)),
            (NicKnob::DcbPfc, NicKnob::PauseRx),
            (
                NicKnob::PrivateFlag("a".to_owned()),
                NicKnob::Feature("b".to_owned()),
            ),
            (NicKnob::Mtu, NicKnob::Feature("b".to_owned())),
            (NicKnob::GsoMaxBytes, NicKnob::GsoIpv4MaxBytes),
            (NicKnob::VlanLink, NicKnob::Up),
            (NicKnob::Up, NicKnob::Addresses),
            (NicKnob::Addresses, NicKnob::VlanEgress),
            (NicKnob::VlanEgress, NicKnob::Qdisc),
            (NicKnob::Qdisc, NicKnob::ClassRules),
        ] {
            assert!(first < second, "{first} {second}");
        }
    }
}
