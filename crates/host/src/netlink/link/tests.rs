//! Links and addresses as described by a real kernel.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn no_bytes_panic_a_parser(body in vec(any::<u8>(), 0..200)) {
        let _ = parse(&body);
        let _ = parse_address(&body);
        let _ = parse_identity(&body);
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

    let veth = &answers(include_str!("../captured/link-veth.hex"))[0];
    assert_eq!(
        parse(&veth.body).expect("the kernel's own"),
        Link {
            index: 2,
            kind: Some(NicKind::Veth),
            qdisc: Some("noqueue".to_owned()),
        }
    );
    let loopback = &answers(include_str!("../captured/link-loopback.hex"))[0];
    let loopback = parse(&loopback.body).expect("the kernel's own");
    assert_eq!(loopback.kind, Some(NicKind::Loopback));
    assert_eq!(loopback.qdisc.as_deref(), Some("noop"));

    let addresses: Vec<(u32, String)> = answers(include_str!("../captured/addresses.hex"))
        .iter()
        .filter_map(|answer| parse_address(&answer.body).expect("the kernel's own"))
        .collect();
    let expected = ["10.9.0.1/24", "10.9.0.2/24", "fd00:9::1/64"];
    assert_eq!(addresses, expected.map(|text| (2, text.to_owned())));
}

#[test]
fn an_interface_is_known_by_its_permanent_address_where_it_has_one() {
    let identity = |attributes: &[(u16, &[u8])]| {
        let mut request = Request::new(0, &link_header(7, 0, 0));
        request.put_text(libc::IFLA_IFNAME, "eth2");
        for (kind, bytes) in attributes {
            request.put(*kind, bytes);
        }
        let identity = parse_identity(&request.into_body()).expect("whole");
        identity.expect("a name").address
    };
    let (own, of_the_bond) = ([2, 0, 0, 0, 0, 7], [2, 0, 0, 0, 0, 9]);
    let both: [(u16, &[u8]); 2] = [
        (libc::IFLA_ADDRESS, &of_the_bond),
        (IFLA_PERM_ADDRESS, &own),
    ];
    assert_eq!(identity(&both).as_deref(), Some("02:00:00:00:00:07"));
    assert_eq!(identity(&both[..1]).as_deref(), Some("02:00:00:00:00:09"));
    assert_eq!(identity(&[(libc::IFLA_ADDRESS, &[0; 6])]), None);
    assert_eq!(identity(&[]), None);
}

#[test]
fn every_interface_of_this_namespace_is_listed_with_what_it_is_known_by() {
    let listed = crate::netlink::interfaces().expect("a netlink socket");
    let loopback = listed.iter().find(|one| one.name.as_str() == "lo");
    let loopback = loopback.expect("every namespace has one");
    assert_eq!((loopback.index, &loopback.address), (1, &None));
}
