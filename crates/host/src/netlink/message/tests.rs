//! Messages: encoded data decode to the same, captured messages can be parsed, and no bytes panic.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn attributes_strategy() -> impl Strategy<Value = Vec<(u16, Vec<u8>)>> {
    vec((0..=TYPE_MASK, vec(any::<u8>(), 0..40)), 0..12)
}

proptest! {
    #[test]
    fn attributes_read_back_as_they_were_put(all in attributes_strategy()) {
        let mut request = Request::new(16, &[1, 2, 3, 4]);
        for (kind, payload) in &all {
            request.put(*kind, payload);
        }
        let bytes = request.to_bytes(REQUEST, 7).expect("short enough");
        let messages = parse_messages(&bytes).expect("our own bytes");
        prop_assert_eq!(messages.len(), 1);
        prop_assert_eq!((messages[0].kind, messages[0].sequence), (16, 7));
        let read = Attributes::after(messages[0].body, 4).expect("our own attributes");
        let read: Vec<(u16, Vec<u8>)> = read.iter().map(|(k, p)| (k, p.to_vec())).collect();
        prop_assert_eq!(read, all);
    }

    #[test]
    fn no_bytes_panic_a_parser(bytes in vec(any::<u8>(), 0..300)) {
        for message in parse_messages(&bytes).unwrap_or_default() {
            let _ = parse_outcome(&message);
            let _ = Attributes::parse(message.body);
        }
        let message = Message { kind: ERROR, flags: ACK_TLVS, sequence: 0, body: &bytes };
        let _ = parse_outcome(&message);
        let _ = parse_outcome(&Message { kind: DONE, ..message.clone() });
        let _ = parse_outcome(&Message { flags: ACK_TLVS | CAPPED, ..message });
        if let Ok(attributes) = Attributes::parse(&bytes) {
            for kind in 0..16 {
                let _ = attributes.u16(kind);
                let _ = attributes.u32(kind);
                let _ = attributes.u64(kind);
                let _ = attributes.switch(kind);
                let _ = attributes.text(kind);
                let _ = attributes.nest(kind);
            }
        }
    }

    #[test]
    fn a_list_of_attributes_cut_short_is_refused_or_whole(all in attributes_strategy(), cut in 1usize..4) {
        let mut request = Request::new(0, &[]);
        for (kind, payload) in &all {
            request.put(*kind, payload);
        }
        let body = request.into_body();
        let kept = &body[..body.len().saturating_sub(cut)];
        if let Ok(read) = Attributes::parse(kept) {
            // Only padding was missing.
            prop_assert_eq!(read.iter().count(), all.len());
        }
    }
}

#[test]
fn flags_and_types_are_those_of_the_system_header() {
    let flag = |value: libc::c_int| u16::try_from(value).expect("flags have 16 bits");
    assert_eq!(REQUEST, flag(libc::NLM_F_REQUEST));
    assert_eq!(ACK, flag(libc::NLM_F_ACK));
    assert_eq!(DUMP_INTERRUPTED, flag(libc::NLM_F_DUMP_INTR));
    assert_eq!(DUMP, flag(libc::NLM_F_DUMP));
    assert_eq!(REPLACE, flag(libc::NLM_F_REPLACE));
    assert_eq!(EXCLUSIVE, flag(libc::NLM_F_EXCL));
    assert_eq!(CREATE, flag(libc::NLM_F_CREATE));
    assert_eq!(ERROR, flag(libc::NLMSG_ERROR));
    assert_eq!(DONE, flag(libc::NLMSG_DONE));
    assert_eq!(OVERRUN, flag(libc::NLMSG_OVERRUN));
    assert_eq!(NESTED, flag(libc::NLA_F_NESTED));
    assert_eq!(TYPE_MASK, flag(libc::NLA_TYPE_MASK & 0xffff));
}

#[test]
fn a_value_too_long_for_an_attribute_is_refused() {
    let mut request = Request::new(16, &[]);
    request.put(1, &vec![0; 65_532]);
    assert!(request.to_bytes(REQUEST, 1).is_err());
    let mut request = Request::new(16, &[]);
    request.nest(1, |nest| {
        nest.put(1, &vec![0; 40_000]);
        nest.put(2, &vec![0; 40_000]);
    });
    assert!(request.to_bytes(REQUEST, 1).is_err());
}

#[test]
fn a_text_with_a_zero_byte_is_refused() {
    let mut request = Request::new(16, &[]);
    request.put_text(1, "eth0\0eth1");
    assert!(request.to_bytes(REQUEST, 1).is_err());
}

#[test]
fn a_message_longer_than_its_datagram_is_refused() {
    let mut bytes = Request::new(16, &[0; 8]).to_bytes(0, 1).expect("short");
    bytes.truncate(20);
    assert!(parse_messages(&bytes).is_err());
    assert!(
        parse_messages(&[0; 16]).is_err(),
        "a length of 0 would never end"
    );
}

#[cfg(target_endian = "little")]
#[test]
fn the_kernels_explanation_of_a_refusal_is_read() {
    let bytes = crate::netlink::captured::bytes(include_str!("../captured/refusal.hex"));
    let messages = parse_messages(&bytes).expect("the kernel's own bytes");
    let failure = parse_outcome(&messages[0]).expect_err("a refusal");
    assert!(matches!(
        failure,
        Failure::Kernel { errno: libc::EINVAL, message: Some(text) }
            if text == "requested channel count exceeds maximum"
    ));
}

#[test]
fn an_acknowledgement_and_a_plain_end_are_no_errors() {
    fn outcome(kind: u16, body: &[u8]) -> Result<(), Failure> {
        parse_outcome(&Message {
            kind,
            flags: 0,
            sequence: 1,
            body,
        })
    }
    assert!(outcome(ERROR, &[0; 20]).is_ok());
    assert!(outcome(DONE, &[]).is_ok());
    assert!(outcome(DONE, &[0; 4]).is_ok());
    assert!(outcome(DONE, &(-5i32).to_ne_bytes()).is_err());
    assert!(outcome(ERROR, &i32::MIN.to_ne_bytes()).is_err());
}
