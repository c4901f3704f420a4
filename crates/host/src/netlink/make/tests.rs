//! The testbed's requests, byte for byte as accepted by a real kernel.

use super::*;
use crate::netlink::message::Attributes;
use crate::netlink::qdisc_entry::TBF_RATE64;

#[test]
fn a_shaper_out_of_range_is_refused() {
    let tbf = |rate, burst, limit| {
        tbf_options(
            BitRate::from_bit_per_s(rate),
            Bytes::new(burst),
            Bytes::new(limit),
        )
    };
    assert!(tbf(1_000_000, 32_768, 100_000).is_ok());
    assert!(
        tbf(7, 32_768, 100_000).is_err(),
        "less than a byte per second"
    );
    assert!(tbf(1_000_000, 1 << 32, 100_000).is_err());
    assert!(tbf(1_000_000, 32_768, 1 << 32).is_err());
    assert!(
        tbf(8, u64::from(u32::MAX), 1).is_err(),
        "a burst of a century"
    );
    assert!(tbf(u64::MAX, 1, 1).is_ok());
}

#[test]
fn a_rate_beyond_32_bit_has_an_attribute_of_its_own() {
    let (burst, limit) = (Bytes::mib(1), Bytes::mib(8));
    let options = tbf_options(BitRate::from_mbit_per_s(100_000), burst, limit).expect("in range");
    let options = Attributes::parse(&options).expect("our own");
    assert_eq!(
        options.u64(TBF_RATE64).expect("8 bytes"),
        Some(12_500_000_000)
    );
}

#[test]
fn a_tunnel_s_end_is_asked_for_with_both_of_its_addresses() {
    let name: NicName = "vxlan0".parse().expect("a name");
    let request = new_vxlan(&name, 77, 3, [10, 77, 0, 1].into(), [10, 77, 0, 2].into());
    let bytes = request.to_bytes(5, 1).expect("short");
    // After the headers of the message and of the link.
    let link = Attributes::parse(&bytes[32..]).expect("our own");
    let info = link.nest(libc::IFLA_LINKINFO).expect("our own");
    assert_eq!(
        info.text(libc::IFLA_INFO_KIND).expect("text").as_deref(),
        Some("vxlan")
    );
    let data = info.nest(libc::IFLA_INFO_DATA).expect("our own");
    assert_eq!(data.u32(kinds::VXLAN_ID).expect("4 bytes"), Some(77));
    assert_eq!(data.u32(kinds::VXLAN_LINK).expect("4 bytes"), Some(3));
    assert_eq!(data.bytes(kinds::VXLAN_LOCAL), Some(&[10, 77, 0, 1][..]));
    assert_eq!(data.bytes(kinds::VXLAN_GROUP), Some(&[10, 77, 0, 2][..]));
    assert_eq!(data.bytes(kinds::VXLAN_PORT), Some(&[0x12, 0xb5][..]));
}

#[cfg(target_endian = "little")]
#[test]
fn the_requests_are_byte_for_byte_those_a_kernel_took() {
    use crate::netlink::captured::bytes;

    let name = |text: &str| text.parse::<NicName>().expect("a name");
    let veth = new_veth(&name("near0"), &name("far0"), Some(3));
    let expected = "68000000100005060100000000000000\
         00000000000000000000000000000000\
         0a0003006e65617230000000\
         3c001280 090001007665746800000000\
         2c000280 28000180 00000000000000000000000000000000 0900030066617230 00000000\
         08001c0003000000";
    assert_eq!(veth.to_bytes(5, 1).expect("short"), bytes(expected));

    let address = new_address(2, "fd00:9::1/64").expect("an address");
    let expected = "400000001400050609000000000000000a40020002000000\
         14000200fd000009000000000000000000000001\
         14000100fd000009000000000000000000000001";
    assert_eq!(address.to_bytes(5, 9).expect("short"), bytes(expected));

    let (rate, burst) = (BitRate::from_mbit_per_s(500), Bytes::kib(128));
    let options = tbf_options(rate, burst, Bytes::kib(512)).expect("in range");
    let shaper = qdisc::new_root(2, 0x8001_0000, "tbf", &options, CREATE | REPLACE);
    let expected = "60000000240005050500000000000000\
         00000000 02000000 00000180 ffffffff 00000000\
         0800010074626600 34000200\
         28000100 0001000000000000a0acb903 000000000000000000000000 00000800 00800000 00000000\
         0800060000000200";
    assert_eq!(shaper.to_bytes(5, 5).expect("short"), bytes(expected));
}
