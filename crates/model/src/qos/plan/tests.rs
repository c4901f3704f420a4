//! Mechanisms and settings of classes on made-up hosts.

use proptest::prelude::*;

use super::*;
use crate::build::{self, NicBuilder};
use crate::host::{Bond, BondPort, Dcb, Vlan};
use crate::known::Known;
use crate::qos::QosFile;
use crate::setting::SettingKey;

fn qos(text: &str) -> Qos {
    let file: QosFile = serde_json::from_str(text).expect("a file");
    file.read().expect("classes")
}

/// Three VLANs: two with a limit, one without.
fn three_vlans(head: &str) -> Qos {
    qos(&format!(
        r#"{{"qos": {{"interface": "eth1"{head}}}, "class": [
            {{"name": "low", "vlan": 10, "address": "12.0.10.2/24", "limit": "1gbit", "priority": 1}},
            {{"name": "middle", "vlan": 11, "limit": "5gbit", "priority": 2}},
            {{"name": "high", "vlan": 12, "limit": "none", "priority": 3}}
        ]}}"#
    ))
}

fn host(nic: impl FnOnce(NicBuilder) -> NicBuilder) -> Host {
    build::host().nic("eth1", nic).build()
}

fn plain(nic: NicBuilder) -> NicBuilder {
    nic.gbit(40)
}

fn with_dcb(nic: NicBuilder) -> NicBuilder {
    nic.gbit(40).with(|nic| {
        nic.shaping.dcb = Known::Value(Dcb {
            class_max_bit_per_s: Known::Value(vec![BitRate::from_bit_per_s(0); 8]),
            ..Dcb::default()
        });
    })
}

/// Its lines, each of which a plan file takes.
fn lines(plan: &QosPlan) -> Vec<String> {
    for setting in &plan.settings {
        let key: SettingKey = setting.key.parse().expect("a setting");
        key.parse_value(&setting.value).expect("a value");
    }
    let line = |setting: &PlannedSetting| format!("{} = {}", setting.key, setting.value);
    plan.settings.iter().map(line).collect()
}

fn planned(qos: &Qos, host: &Host) -> QosPlan {
    plan(qos, host, |_| true).expect("a plan")
}

fn why_not(qos: &Qos, host: &Host) -> String {
    plan(qos, host, |_| true)
        .expect_err("it does not fit")
        .to_string()
}

#[test]
fn only_rdma_devices_of_hardware_send_beside_the_kernels_qdiscs() {
    let notes = |qos: &Qos, device: Option<RdmaDevice>, nic: fn(NicBuilder) -> NicBuilder| {
        let mut host = host(nic);
        host.rdma = device.into_iter().collect();
        planned(qos, &host).notes.join("\n")
    };
    let hardware = |name: &str, nic: &str| {
        let mut device = build::roce(name, nic);
        device.pci_address = Known::Value("0000:3b:00.0".parse().expect("an address"));
        Some(device)
    };
    let soft = Some(build::roce("rxe0", "eth1"));
    let said = "RDMA traffic of mlx5_0 does not pass the kernel's qdiscs: no limit holds for it";
    let own = notes(&three_vlans(""), hardware("mlx5_0", "eth1"), plain);
    assert!(own.contains(said), "{own}");
    for other in [None, soft.clone(), hardware("mlx5_1", "eth2")] {
        let notes = notes(&three_vlans(""), other, plain);
        assert!(!notes.contains("RDMA"), "{notes}");
    }
    // The NIC's own limits are those of its RDMA traffic too.
    let by_nic = notes(&three_vlans(""), hardware("mlx5_0", "eth1"), with_dcb);
    assert!(!by_nic.contains(said), "{by_nic}");
    // What rxe sends has a ToS and no priority of a socket.
    let by = |selector: &str| {
        qos(&format!(
            r#"{{"qos": {{"interface": "eth1"}}, "class": [{{"name": "slow", {selector}, "limit": "1gbit"}}]}}"#
        ))
    };
    let said = "RDMA packets of rxe0 have no socket priority: select them by `dscp`";
    let by_priority = notes(&by(r#""priority": 3"#), soft.clone(), plain);
    assert!(by_priority.contains(said), "{by_priority}");
    let by_dscp = notes(&by(r#""dscp": "cs3""#), soft, plain);
    assert!(!by_dscp.contains("RDMA"), "{by_dscp}");
}

#[test]
fn queues_are_limited_by_the_nic_only_if_the_file_names_that() {
    let queues = |count: usize| move |nic: NicBuilder| nic.gbit(40).queues(&vec![0; count]);
    let named = three_vlans(r#", "mechanism": "mqprio-offload""#);
    let plan = planned(&named, &host(queues(9)));
    assert_eq!(plan.mechanism, Mechanism::Offload);
    assert!(plan.why.contains("the file names it"), "{}", plan.why);
    let lines = lines(&plan);
    // Four classes with two of nine queues each.
    let qdisc = "nic/eth1/qdisc = mqprio num_tc 4 map 0 0 0 0 0 0 0 0 0 0 0 0 0 3 2 1 queues 2@0 2@2 2@4 2@6 hw 1 mode channel \
                 shaper bw_rlimit max_rate 0bit 1gbit 5gbit 0bit";
    assert!(lines.contains(&qdisc.to_owned()), "{lines:#?}");
    let by_itself = planned(&three_vlans(""), &host(queues(9)));
    assert_eq!(by_itself.mechanism, Mechanism::Mqprio);
    assert!(!by_itself.why.contains("offload"), "{}", by_itself.why);
    let why = why_not(&named, &host(queues(3)));
    assert!(why.contains("too few transmit queues: 3 for 4"), "{why}");
    let guaranteed = r#"{"name": "low", "priority": 1, "limit": "2gbit", "guarantee": "1gbit"}"#;
    let guaranteed = qos(&format!(
        r#"{{"qos": {{"interface": "eth1", "mechanism": "mqprio-offload"}}, "class": [{guaranteed}]}}"#
    ));
    let guaranteed = self::lines(&planned(&guaranteed, &host(queues(2))));
    let rates = guaranteed[0].split_once("bw_rlimit ").expect("rates").1;
    assert!(
        rates.starts_with("min_rate 0bit 1") && rates.contains(" max_rate 0bit 2"),
        "{rates}"
    );
}

#[test]
fn a_nic_with_rates_of_its_classes_holds_the_limits_itself() {
    let plan = planned(&three_vlans(""), &host(with_dcb));
    assert_eq!(plan.mechanism, Mechanism::Dcb);
    assert_eq!(
        lines(&plan),
        [
            "nic/eth1.10/vlan/link = eth1 id 10",
            "nic/eth1.10/up = on",
            "nic/eth1.10/addresses = 12.0.10.2/24",
            "nic/eth1.10/vlan/egress = 0:1 1:1 2:1 3:1 4:1 5:1 6:1 7:1 8:1 9:1 10:1 11:1 12:1 13:1 14:1 15:1",
            "nic/eth1.11/vlan/link = eth1 id 11",
            "nic/eth1.11/up = on",
            "nic/eth1.11/vlan/egress = 0:2 1:2 2:2 3:2 4:2 5:2 6:2 7:2 8:2 9:2 10:2 11:2 12:2 13:2 14:2 15:2",
            "nic/eth1.12/vlan/link = eth1 id 12",
            "nic/eth1.12/up = on",
            "nic/eth1.12/vlan/egress = 0:3 1:3 2:3 3:3 4:3 5:3 6:3 7:3 8:3 9:3 10:3 11:3 12:3 13:3 14:3 15:3",
            "nic/eth1/dcb/ets = prio-tc 0:0 1:1 2:2 3:3 4:0 5:0 6:0 7:0 tc-bw 0:0 1:0 2:0 3:0 4:0 5:0 6:0 7:0 \
             tc-tsa 0:strict 1:strict 2:strict 3:strict 4:strict 5:strict 6:strict 7:strict",
            // 1542 bytes with a tag on the wire carry a frame of 1514.
            "nic/eth1/dcb/maxrate = 1:1018494000 2:5092470000",
        ]
    );
}

/// The shares and the service of each traffic class in the ETS setting of a plan.
fn ets_of(plan: &QosPlan) -> (Vec<u32>, Vec<String>) {
    let setting = |one: &&PlannedSetting| one.key.ends_with("dcb/ets");
    let ets = plan.settings.iter().find(setting).expect("ETS");
    let (_, ets) = ets.value.split_once(" tc-bw ").expect("shares");
    let (shares, service) = ets.split_once(" tc-tsa ").expect("service");
    let word = |pair: &str| pair.split_once(':').expect("a pair").1.to_owned();
    let shares = shares.split(' ').map(word);
    (
        shares
            .map(|share| share.parse().expect("per cent"))
            .collect(),
        service.split(' ').map(word).collect(),
    )
}

#[test]
fn guarantees_in_hardware_are_whole_shares_of_the_line_and_no_class_is_strict() {
    let of = |classes: &str| {
        let text = format!(
            r#"{{"qos": {{"interface": "eth1", "mechanism": "dcb", "limit-of": "wire"}}, "class": [{classes}]}}"#
        );
        ets_of(&planned(&qos(&text), &host(with_dcb)))
    };
    let (shares, service) = of(
        r#"{"name": "a", "priority": 1, "guarantee": "33.4%"}, {"name": "b", "priority": 2, "guarantee": "33.3%"},
           {"name": "c", "priority": 3, "guarantee": "33.3%"}"#,
    );
    assert_eq!(shares, [1, 33, 33, 33, 0, 0, 0, 0]);
    assert_eq!(service[..4], ["ets"; 4]);
    assert_eq!(service[4..], ["strict"; 4]);
    // A class without a guarantee, limited or not, is served by its share, too.
    let (shares, service) = of(
        r#"{"name": "a", "priority": 1, "guarantee": "50%"}, {"name": "b", "priority": 2, "guarantee": "20%"},
           {"name": "open", "priority": 3}, {"name": "slow", "priority": 4, "limit": "1gbit"},
           {"name": "rest", "limit": "4gbit"}"#,
    );
    assert_eq!(shares, [11, 50, 20, 17, 2, 0, 0, 0]);
    assert_eq!(service[..5], ["ets"; 5]);
}

#[test]
fn queues_and_strict_classes_guarantee_nothing() {
    let many = host(|nic| with_dcb(nic).queues(&[0, 1, 0, 1]));
    let guaranteed = |text: &str| {
        let all = planned(&qos(text), &many).classes.into_iter();
        all.map(|class| Some(class.guaranteed?.to_string()))
            .collect::<Vec<_>>()
    };
    let of = |mechanism: &str, guarantee: &str| {
        guaranteed(&format!(
            r#"{{"qos": {{"interface": "eth1", "mechanism": "{mechanism}", "limit-of": "wire"}}, "class": [
                {{"name": "a", "priority": 1, "limit": "1gbit"}}, {{"name": "b", "priority": 2{guarantee}}}]}}"#
        ))
    };
    assert_eq!(of("mqprio", ""), [None, None, None]);
    assert_eq!(of("dcb", ""), [None, None, None]);
    // Whole per cent of 40 Gb/s: 2, 51 and the remainder of 47.
    let guarantee = r#", "guarantee": "20.5gbit""#;
    assert_eq!(
        of("dcb", guarantee),
        ["800.0 Mb/s", "20.40 Gb/s", "18.80 Gb/s"].map(|rate| Some(rate.to_owned()))
    );
    let by_htb = of("htb", guarantee);
    assert!(by_htb.iter().all(Option::is_some), "{by_htb:?}");
}

#[derive(Debug)]
struct Wish {
    limit: Option<u32>,
    guarantee: Option<u32>,
}

fn any_wish() -> impl Strategy<Value = Wish> {
    let part = || proptest::option::of(1_u32..=100);
    (part(), part()).prop_map(|(limit, guarantee)| Wish {
        limit,
        // Small ones are accepted in any number.
        guarantee: guarantee.map(|part| if part > 60 { part } else { part / 4 + 1 }),
    })
}

proptest! {
    #[test]
    fn shares_of_every_accepted_file_sum_to_100(
        wishes in proptest::collection::vec(any_wish(), 1..=7),
        rest in any_wish(),
        gbit in 1_u64..=400,
    ) {
        let class = |(at, wish): (usize, &Wish)| {
            let selector = if at == 0 { String::new() } else { format!(r#", "priority": {at}"#) };
            let limit = wish.limit.map_or("none".to_owned(), |part| format!("{part} %"));
            let guarantee = wish.guarantee.map(|part| format!(r#", "guarantee": "{part} %""#));
            format!(
                r#"{{"name": "c{at}", "limit": "{limit}"{selector}{}}}"#,
                guarantee.unwrap_or_default()
            )
        };
        let classes: Vec<String> = [&rest].into_iter().chain(&wishes).enumerate().map(class).collect();
        let asked = qos(&format!(
            r#"{{"qos": {{"interface": "eth1", "mechanism": "dcb"}}, "class": [{}]}}"#,
            classes.join(",")
        ));
        let host = host(|nic| with_dcb(nic).gbit(gbit));
        let Ok(plan) = plan(&asked, &host, |_| true) else {
            // The guarantees are above the line, or one is above its limit.
            return Ok(());
        };
        lines(&plan);
        let (shares, service) = ets_of(&plan);
        let of_ets: Vec<bool> = service.iter().map(|word| word == "ets").collect();
        if asked.classes.iter().any(|class| class.guarantee.is_some()) {
            prop_assert_eq!(shares.iter().sum::<u32>(), 100);
            for (at, share) in shares.iter().enumerate() {
                prop_assert_eq!(of_ets[at], at < asked.classes.len());
                prop_assert_eq!(*share > 0, of_ets[at]);
            }
        } else {
            prop_assert_eq!(shares, vec![0; 8]);
            prop_assert!(!of_ets.contains(&true));
        }
    }
}

#[test]
fn a_class_without_a_priority_needs_one_in_hardware() {
    let text = r#"{"qos": {"interface": "eth1", "mechanism": "dcb"}, "class": [
        {"name": "a", "vlan": 10, "limit": "1gbit"}]}"#;
    assert_eq!(
        why_not(&qos(text), &host(with_dcb)),
        "`dcb` is not possible: class a has no priority, by which the NIC would know its frames"
    );
}

#[test]
fn without_hardware_classes_each_class_has_a_queue_or_a_class_of_htb() {
    let many = host(|nic| nic.gbit(40).queues(&[0, 1, 0, 1]));
    let plan = planned(&three_vlans(""), &many);
    assert_eq!(plan.mechanism, Mechanism::Mqprio, "{}", plan.why);
    let all = lines(&plan);
    assert_eq!(
        all[all.len() - 2..],
        [
            "nic/eth1/qdisc = mqprio num_tc 4 map 0 0 0 0 0 0 0 0 0 0 0 0 0 3 2 1 queues 1@0 1@1 1@2 1@3 hw 0 \
             leaf 2 tbf rate 1gbit burst 128k latency 50ms leaf 3 tbf rate 5gbit burst 610k latency 50ms",
            "nic/eth1/class-rules = vlan 10 -> 0:f; vlan 11 -> 0:e; vlan 12 -> 0:d",
        ]
    );
    let plan = planned(&three_vlans(r#", "mechanism": "htb""#), &many);
    let all = lines(&plan);
    assert_eq!(
        all[all.len() - 2..],
        [
            "nic/eth1/qdisc = htb default 40 \
             class 1 rate 40gbit ceil 40gbit burst 4882k cburst 4882k quantum 60000 \
             class 10 parent 1 rate 1gbit ceil 1gbit burst 122k cburst 122k quantum 60000 leaf fq_codel \
             class 20 parent 1 rate 5gbit ceil 5gbit burst 610k cburst 610k quantum 60000 leaf fq_codel \
             class 30 parent 1 rate 17gbit ceil 40gbit burst 2075k cburst 4882k quantum 60000 leaf fq_codel \
             class 40 parent 1 rate 17gbit ceil 40gbit burst 2075k cburst 4882k quantum 60000 leaf fq_codel",
            "nic/eth1/class-rules = vlan 10 -> 1:10; vlan 11 -> 1:20; vlan 12 -> 1:30",
        ]
    );
    assert_eq!(plan.why, "the file names it");
}

#[test]
fn the_reason_for_htb_is_what_the_others_lack() {
    let plan = planned(&three_vlans(""), &host(plain));
    assert_eq!(plan.mechanism, Mechanism::Htb);
    assert!(
        plan.why.contains("not dcb: eth1 has") && plan.why.contains("not mqprio: eth1 has"),
        "{}",
        plan.why
    );
}

#[test]
fn the_notes_say_what_a_mechanism_does_with_tso_and_how_accurate_it_is() {
    let notes = |mechanism: &str, guarantee: &str| {
        let text = format!(
            r#"{{"qos": {{"interface": "eth1", "mechanism": "{mechanism}"}}, "class": [
                {{"name": "a", "priority": 1, "limit": "1gbit"{guarantee}}}]}}"#
        );
        let many = host(|nic| with_dcb(nic).queues(&[0, 1]));
        planned(&qos(&text), &many).notes.join("\n")
    };
    let (whole, after) = (
        "a TSO packet counts at once",
        "frames after segmentation (TSO)",
    );
    for mechanism in ["htb", "mqprio"] {
        let notes = notes(mechanism, "");
        assert!(notes.contains(whole) && !notes.contains(after), "{notes}");
    }
    let by_nic = notes("dcb", "");
    assert!(
        by_nic.contains(after) && by_nic.contains("steps of 100 Mb/s"),
        "{by_nic}"
    );
    assert!(
        !by_nic.contains(whole) && !by_nic.contains("ETS"),
        "{by_nic}"
    );
    let shares = notes("dcb", r#", "guarantee": "500mbit""#);
    assert!(shares.contains("guarantees are rounded down"), "{shares}");
}

#[test]
fn a_kernel_without_htb_is_refused_with_the_name_of_the_module() {
    let why = |head: &str| {
        let error =
            plan(&three_vlans(head), &host(plain), |_| false).expect_err("nothing is possible");
        error.to_string()
    };
    assert_eq!(
        why(r#", "mechanism": "htb""#),
        "`htb` is not possible: this kernel has no module `sch_htb`"
    );
    assert_eq!(
        why(""),
        "no mechanism can hold the limits: not dcb: eth1 has no data center bridging; not mqprio: eth1 has too few \
         transmit queues: 1 for 4 classes; not htb: this kernel has no module `sch_htb`"
    );
}

#[test]
fn limits_of_payload_are_larger_in_frames_and_those_of_the_wire_smaller() {
    let of = |framing: &str| {
        let head = format!(r#", "mechanism": "htb", "limit-of": "{framing}""#);
        planned(&three_vlans(&head), &host(plain)).classes[0]
            .rates
            .ceil
            .as_bit_per_s()
    };
    // 1448 of 1514 bytes are payload; 1542 are on the wire with a tag.
    assert_eq!(of("payload"), 1_045_580_104);
    assert_eq!(of("frame"), 1_000_000_000);
    assert_eq!(of("wire"), 981_841_760);
}

#[test]
fn classes_are_selected_by_what_the_file_says() {
    let text = r#"{"qos": {"interface": "eth1"}, "class": [
        {"name": "a", "priority": 1, "limit": "50mbit"}, {"name": "b", "dscp": 18, "limit": "1 %"},
        {"name": "c", "ports": [5001, 5002]}, {"name": "d", "mark": 255}, {"name": "others", "limit": "1gbit"}]}"#;
    let plan = planned(&qos(text), &host(plain));
    assert_eq!(
        lines(&plan).last().expect("rules"),
        "nic/eth1/class-rules = priority 1 -> 1:10; dscp af21 -> 1:20; port 5001 -> 1:30; port 5002 -> 1:30; \
         mark 255 -> 1:40"
    );
    assert_eq!(
        plan.classes[1].limit,
        Some(BitRate::from_bit_per_s(400_000_000))
    );
    assert_eq!(plan.classes[4].name, "others");
}

#[test]
fn each_port_of_an_active_backup_bond_holds_the_limits_and_otherwise_the_bond() {
    let bond = |mode: &str| {
        let port = |nic: NicBuilder| {
            nic.gbit(10).with(|nic| {
                nic.stack.bond_port = Some(BondPort {
                    bond: Known::Value("eth1".parse().expect("a name")),
                    ..BondPort::default()
                });
            })
        };
        build::host()
            .nic("eth1", |nic| {
                nic.gbit(20).with(|nic| {
                    nic.kind = NicKind::Bond;
                    nic.stack.bond = Some(Bond {
                        mode: Known::Value(mode.to_owned()),
                        ..Bond::default()
                    });
                })
            })
            .nic("eth2", port)
            .nic("eth3", port)
            .build()
    };
    let names = |plan: &QosPlan| {
        plan.holders
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    let plan = planned(&three_vlans(""), &bond("active-backup"));
    assert_eq!(names(&plan), ["eth2", "eth3"]);
    assert_eq!(plan.line, BitRate::from_bit_per_s(10_000_000_000));
    let plan = planned(&three_vlans(""), &bond("802.3ad"));
    assert_eq!(names(&plan), ["eth1"]);
    assert_eq!(plan.line, BitRate::from_bit_per_s(20_000_000_000));
    assert_eq!(plan.mechanism, Mechanism::Htb);
    assert!(
        plan.why.contains("not mqprio: eth1 is a bond"),
        "{}",
        plan.why
    );
}

#[test]
fn what_does_not_fit_the_host_is_named() {
    let qos = three_vlans("");
    assert_eq!(
        why_not(&qos, &build::host().build()),
        "this host has no interface `eth1`; `linerate map` lists them"
    );
    let taken = build::host()
        .nic("eth1", plain)
        .nic("eth1.10", NicBuilder::veth)
        .build();
    assert_eq!(
        why_not(&qos, &taken),
        "class `low`: `eth1.10` exists and is not VLAN 10 of `eth1`; name another one with `device`"
    );
    let address = build::host()
        .nic("eth1", |nic| {
            plain(nic).with(|nic| nic.addresses = Known::Value(vec!["12.0.10.2/16".to_owned()]))
        })
        .build();
    assert_eq!(
        why_not(&qos, &address),
        "class `low`: `eth1` has the address 12.0.10.2/24 already"
    );
    let low = host(|nic| nic.gbit(1));
    assert_eq!(
        why_not(&qos, &low),
        "class `middle`: its limit of 5.00 Gb/s is above the line's 1.00 Gb/s; `none` is no limit"
    );
    let vlan = host(|nic| {
        nic.gbit(10).with(|nic| {
            nic.kind = NicKind::Vlan;
            nic.stack.vlan = Some(Vlan::default());
        })
    });
    assert_eq!(
        why_not(&qos, &vlan),
        "`eth1` is a VLAN: name the port or the bond below it"
    );
}
