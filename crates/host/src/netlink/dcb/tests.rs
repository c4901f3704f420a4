//! Data center bridging: numbers as in the kernel's header, hand-written responses.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::netlink::headers::compare;
use linerate_model::known::Cause;
use linerate_model::setting::{TrafficClasses, class_words, classes_of, parse_applications};

#[test]
fn the_attributes_have_the_numbers_of_the_kernels_header() {
    compare(
        "dcbnl.h",
        &[
            ("DCB_CMD_IEEE_SET", COMMAND_IEEE_SET.into()),
            ("DCB_CMD_IEEE_GET", COMMAND_IEEE_GET.into()),
            ("DCB_CMD_GDCBX", COMMAND_GET_DCBX.into()),
            ("DCB_CMD_IEEE_DEL", COMMAND_IEEE_DELETE.into()),
            ("DCB_ATTR_IEEE_APP", IEEE_APP),
            ("DCB_ATTR_DCB_APP", DCB_APP),
            ("DCB_APP_SEL_PCP", SELECTOR_PCP.into()),
            ("DCB_ATTR_IFNAME", NAME),
            ("DCB_ATTR_IEEE", IEEE),
            ("DCB_ATTR_DCBX", DCBX),
            ("DCB_ATTR_IEEE_ETS", ETS),
            ("DCB_ATTR_IEEE_PFC", PFC),
            ("DCB_ATTR_IEEE_APP_TABLE", APP_TABLE),
            ("DCB_ATTR_IEEE_PEER_ETS", PEER_ETS),
            ("DCB_ATTR_IEEE_PEER_PFC", PEER_PFC),
            ("DCB_ATTR_IEEE_MAXRATE", MAX_RATE),
            ("DCB_ATTR_DCB_BUFFER", BUFFER),
            ("DCB_ATTR_DCB_APP_TRUST_TABLE", TRUST_TABLE),
        ],
    );
}

/// `struct ieee_ets` with priority 3 in class 1, which has 60 per cent.
fn ets(willing: u8) -> [u8; 59] {
    let mut ets = [0; 59];
    ets[0] = willing;
    ets[ETS_BANDWIDTH_AT] = 40;
    ets[ETS_BANDWIDTH_AT + 1] = 60;
    ets[ETS_ALGORITHM_AT + 1] = 2;
    ets[ETS_ALGORITHM_AT + 2] = 255;
    ets[ETS_PRIORITY_CLASS_AT + 3] = 1;
    ets
}

fn pfc(enabled: u8) -> [u8; 136] {
    let mut pfc = [0; 136];
    pfc[PFC_ENABLED_AT] = enabled;
    pfc
}

fn answer() -> Vec<u8> {
    let mut request = Request::new(0, &[0, COMMAND_IEEE_GET, 0, 0]);
    request.put_text(NAME, "eth0");
    request.nest(IEEE, |ieee| {
        ieee.put(ETS, &ets(1)).put(PFC, &pfc(0b1000));
        let rates = [0_u64, 10_000_000, 0, 0, 0, 0, 0, 0];
        let rates: Vec<u8> = rates.iter().flat_map(|rate| rate.to_ne_bytes()).collect();
        ieee.put(MAX_RATE, &rates);
        let mut buffer = [0; 44];
        buffer[3] = 1;
        buffer[8..12].copy_from_slice(&50_000_u32.to_ne_bytes());
        buffer[12..16].copy_from_slice(&200_000_u32.to_ne_bytes());
        ieee.put(BUFFER, &buffer);
        ieee.nest(APP_TABLE, |table| {
            let [low, high] = 26_u16.to_ne_bytes();
            table.put(1, &[5, 3, low, high]);
        });
        ieee.nest(TRUST_TABLE, |table| {
            table.put(1, &[5]).put(2, &[255]);
        });
        ieee.put(PEER_PFC, &pfc(0b0100));
    });
    request.into_body()
}

#[test]
fn priorities_classes_and_what_the_peer_said_are_read() {
    let mut dcbx = Request::new(0, &[0, COMMAND_GET_DCBX, 0, 0]);
    dcbx.put(DCBX, &[0b1001]);
    let dcb = parse(&answer(), &Known::Value(dcbx.into_body()), "p");
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    assert_eq!(
        dcb.priority_class,
        Known::Value(vec![0, 0, 0, 1, 0, 0, 0, 0])
    );
    assert_eq!(
        dcb.class_bandwidth,
        Known::Value(vec![40, 60, 0, 0, 0, 0, 0, 0])
    );
    let algorithms = dcb.class_algorithm.value().expect("eight");
    assert_eq!(algorithms[..3], ["strict", "ets", "vendor"]);
    let rates = dcb.class_max_bit_per_s.value().expect("eight");
    assert_eq!(
        rates[..2],
        [BitRate::from_bit_per_s(0), BitRate::from_mbit_per_s(10_000)]
    );
    assert_eq!(
        (dcb.pfc_enabled.get(), dcb.peer_pfc_enabled.get()),
        (Some(8), Some(4))
    );
    assert_eq!(dcb.willing, Known::Value(true));
    let gap = dcb.peer_class_bandwidth.gap().map(|gap| gap.cause);
    assert_eq!(gap, Some(Cause::Absent), "the peer said nothing of it");
    assert_eq!(dcb.dcbx, Known::Value(words(&["host", "ieee"])));
    assert_eq!(dcb.app, Known::Value(vec![("dscp".to_owned(), 26, 3)]));
    assert_eq!(dcb.trust, Known::Value(words(&["dscp", "pcp"])));
    let buffers = dcb.buffer_bytes.value().expect("eight");
    assert_eq!(
        (buffers[0], buffers[3]),
        (Bytes::new(50_000), Bytes::new(200_000))
    );
}

#[test]
fn a_structure_is_set_as_it_was_told_but_for_the_one_value() {
    let (kind, structure) = changed(&answer(), &NicValue::Pfc(0b100)).expect("whole");
    assert_eq!((kind, structure), (PFC, pfc(0b100).to_vec()));

    let classes = TrafficClasses {
        of_priority: [0, 1, 2, 3, 4, 5, 6, 7],
        share: [10, 20, 70, 0, 0, 0, 0, 0],
        served: [2, 2, 2, 0, 0, 0, 0, 255],
    };
    let (kind, structure) = changed(&answer(), &NicValue::Ets(classes)).expect("whole");
    assert_eq!((kind, structure.len(), structure[0]), (ETS, 59, 1));
    let mut request = Request::new(0, &[0; 4]);
    request.nest(IEEE, |ieee| {
        ieee.put(ETS, &structure);
    });
    let dcb = parse(&request.into_body(), &Known::not_asked("p"), "p");
    let words = Known::Value(class_words(&classes));
    assert_eq!(classes_of(&dcb), words);

    let rates = [0, 10_000_000, 0, 0, 0, 0, 0, 0].map(|kbit| BitRate::from_bit_per_s(kbit * 1_000));
    let (kind, structure) = changed(&answer(), &NicValue::MaxRate(rates)).expect("whole");
    assert_eq!(
        (kind, max_rates(&structure).expect("eight")),
        (MAX_RATE, rates.to_vec())
    );
}

#[test]
fn an_application_is_asked_for_as_a_card_tells_it() {
    let table: BTreeSet<Application> =
        parse_applications("dscp-prio 26:3 pcp-prio 3de:2").expect("words");
    let entries: Vec<_> = table.into_iter().collect();
    let nic = "eth0".parse().expect("a name");
    let request = applications_request(&nic, COMMAND_IEEE_DELETE, &entries);
    let body = request.into_body();
    assert_eq!(body[..4], [0, COMMAND_IEEE_DELETE, 0, 0]);
    let ieee = Attributes::after(&body, HEADER_BYTES).expect("our own");
    let table = ieee.nest(IEEE).and_then(|ieee| ieee.nest(APP_TABLE));
    let kinds: Vec<u16> = table
        .expect("our own")
        .iter()
        .map(|(kind, _)| kind)
        .collect();
    assert_eq!(kinds, [IEEE_APP, DCB_APP]);
    let dcb = parse(&body, &Known::not_asked("p"), "p");
    let told = vec![("dscp".to_owned(), 26, 3), ("pcp".to_owned(), 11, 2)];
    assert_eq!(dcb.app, Known::Value(told));
}

#[test]
fn what_a_driver_does_not_tell_is_not_set_and_a_refusal_in_the_answer_is_one() {
    let mut request = Request::new(0, &[0; 4]);
    request.nest(IEEE, |ieee| {
        ieee.put(ETS, &ets(0)[..20]);
    });
    let body = request.into_body();
    let refused = changed(&body, &NicValue::Pfc(1)).expect_err("no such structure");
    assert!(matches!(
        refused,
        Failure::Kernel {
            errno: libc::EOPNOTSUPP,
            ..
        }
    ));
    let classes = one_class();
    assert!(matches!(
        changed(&body, &NicValue::Ets(classes)),
        Err(Failure::Malformed(_))
    ));

    let said = |byte: u8| {
        let mut request = Request::new(0, &[0, COMMAND_IEEE_SET, 0, 0]);
        request.put(IEEE, &[byte]);
        outcome(&request.into_body())
    };
    assert!(said(0).is_ok());
    let refused = said(22u8.wrapping_neg()).expect_err("a refusal");
    assert!(matches!(
        refused,
        Failure::Kernel {
            errno: libc::EINVAL,
            ..
        }
    ));
}

/// Everything in class 0.
fn one_class() -> TrafficClasses {
    TrafficClasses {
        of_priority: [0; 8],
        share: [100, 0, 0, 0, 0, 0, 0, 0],
        served: [2, 0, 0, 0, 0, 0, 0, 0],
    }
}

proptest! {
    #[test]
    fn no_bytes_panic_a_parser(body in vec(any::<u8>(), 0..160), part in 1u16..12) {
        let _ = outcome(&body);
        let _ = changed(&body, &NicValue::Pfc(1));
        let _ = parse(&body, &Known::Value(body.clone()), "p");
        let mut request = Request::new(0, &[0; 4]);
        request.nest(IEEE, |ieee| {
            ieee.put(part, &body);
        });
        let _ = parse(&request.into_body(), &Known::not_asked("p"), "p");
    }
}
