//! Links and addresses as a kernel described them.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn no_bytes_panic_a_parser(body in vec(any::<u8>(), 0..200)) {
        let _ = parse(&body);
        let _ = parse_address(&body);
    }
}

#[test]
fn every_kind_has_its_word() {
    assert_eq!(kind_of("geneve"), NicKind::Tunnel);
    assert_eq!(kind_of("erspan"), NicKind::Tunnel);
    assert_eq!(kind_of("gretap"), NicKind::Tunnel);
    assert_eq!(kind_of("ipvlan"), NicKind::Macvlan);
    assert_eq!(kind_of("dummy"), NicKind::Other);
}

#[test]
fn an_address_of_a_wrong_length_is_refused() {
    let mut request = Request::new(0, &[2, 24, 0, 0, 1, 0, 0, 0]);
    request.put(libc::IFA_LOCAL, &[10, 0, 0]);
    assert!(parse_address(&request.into_body()).is_err());
}

#[test]
fn infiniband_hardware_is_known_without_a_kind() {
    let mut header = link_header(7, 0, 0);
    header[2..4].copy_from_slice(&32u16.to_ne_bytes());
    let link = parse(&header).expect("a header is enough");
    assert_eq!(link.kind, Some(NicKind::Ipoib));
    assert_eq!(parse(&link_header(7, 0, 0)).expect("a header").kind, None);
}

#[cfg(target_endian = "little")]
#[test]
fn a_kernels_links_and_addresses_are_read() {
    use crate::netlink::captured::answers;

    let veth = &answers(include_str!("captured/link-veth.hex"))[0];
    assert_eq!(
        parse(&veth.body).expect("the kernel's own"),
        Link {
            index: 2,
            kind: Some(NicKind::Veth),
            qdisc: Some("noqueue".to_owned()),
        }
    );
    let loopback = &answers(include_str!("captured/link-loopback.hex"))[0];
    let loopback = parse(&loopback.body).expect("the kernel's own");
    assert_eq!(loopback.kind, Some(NicKind::Loopback));
    assert_eq!(loopback.qdisc.as_deref(), Some("noop"));

    let addresses: Vec<(u32, String)> = answers(include_str!("captured/addresses.hex"))
        .iter()
        .filter_map(|answer| parse_address(&answer.body).expect("the kernel's own"))
        .collect();
    let expected = ["10.9.0.1/24", "10.9.0.2/24", "fd00:9::1/64"];
    assert_eq!(addresses, expected.map(|text| (2, text.to_owned())));
}
