//! ethtool's messages: numbers as in the kernel's header, replies as a kernel sent them.

use super::*;

/// `/usr/include/linux/ethtool_netlink.h`, when the kernel's headers are installed; else, with a skip,
/// nothing.
#[expect(clippy::disallowed_methods, reason = "a skip must be seen")]
fn kernel_header() -> Option<String> {
    const PATH: &str = "/usr/include/linux/ethtool_netlink.h";
    let text = std::fs::read_to_string(PATH).ok();
    if text.is_none() {
        use io::Write;
        writeln!(io::stderr(), "SKIP: {PATH} is not installed").expect("stderr is open");
    }
    text
}

/// The number of `name` in the C enumeration that holds it (none of these assigns numbers).
fn number_in(header: &str, name: &str) -> usize {
    let is_name = |line: &&str| {
        line.trim()
            .split([',', ' ', '\t', '/'])
            .next()
            .is_some_and(|own| own == name)
    };
    let at = header.lines().position(|line| is_name(&line)).expect(name);
    let before: Vec<&str> = header.lines().take(at).collect();
    before
        .iter()
        .rev()
        .take_while(|line| !line.contains("enum {"))
        .filter(|line| line.trim().starts_with("ETHTOOL_"))
        .count()
}

#[test]
fn the_commands_have_the_numbers_of_the_kernels_header() {
    let table = [
        ("FEATURES_GET", Command::FeaturesGet, 11),
        ("FEATURES_SET", Command::FeaturesSet, 12),
        ("RINGS_GET", Command::RingsGet, 15),
        ("RINGS_SET", Command::RingsSet, 16),
        ("CHANNELS_GET", Command::ChannelsGet, 17),
        ("CHANNELS_SET", Command::ChannelsSet, 18),
        ("COALESCE_GET", Command::CoalesceGet, 19),
        ("COALESCE_SET", Command::CoalesceSet, 20),
    ];
    let header = kernel_header();
    for (name, command, number) in table {
        assert_eq!(command as u8, number, "{name}");
        if let Some(header) = &header {
            let theirs = number_in(header, &format!("ETHTOOL_MSG_{name}"));
            assert_eq!(theirs, usize::from(number), "{name}");
        }
    }
}

#[test]
fn the_attributes_have_the_numbers_of_the_kernels_header() {
    let Some(header) = kernel_header() else {
        return;
    };
    for (name, number) in [
        ("HEADER_DEV_NAME", HEADER_DEVICE_NAME),
        ("FEATURES_HEADER", HEADER),
        ("RINGS_HEADER", HEADER),
        ("CHANNELS_HEADER", HEADER),
        ("COALESCE_HEADER", HEADER),
        ("BITSET_NOMASK", BITSET_NOMASK),
        ("BITSET_BITS", BITSET_BITS),
        ("BITSET_BITS_BIT", BITS_BIT),
        ("BITSET_BIT_NAME", BIT_NAME),
        ("BITSET_BIT_VALUE", BIT_VALUE),
        ("FEATURES_HW", FEATURES_HARDWARE),
        ("FEATURES_WANTED", FEATURES_WANTED),
        ("FEATURES_ACTIVE", FEATURES_ACTIVE),
        ("FEATURES_NOCHANGE", FEATURES_NOCHANGE),
        ("RINGS_RX_MAX", RINGS_RX_MAX),
        ("RINGS_TX_MAX", RINGS_TX_MAX),
        ("RINGS_RX", RINGS_RX),
        ("RINGS_TX", RINGS_TX),
        ("CHANNELS_RX_MAX", CHANNELS_RX_MAX),
        ("CHANNELS_TX_MAX", CHANNELS_TX_MAX),
        ("CHANNELS_COMBINED_MAX", CHANNELS_COMBINED_MAX),
        ("CHANNELS_RX_COUNT", CHANNELS_RX),
        ("CHANNELS_TX_COUNT", CHANNELS_TX),
        ("CHANNELS_COMBINED_COUNT", CHANNELS_COMBINED),
        ("COALESCE_RX_USECS", COALESCE_RX_USECS),
        ("COALESCE_TX_USECS", COALESCE_TX_USECS),
        ("COALESCE_USE_ADAPTIVE_RX", COALESCE_ADAPTIVE_RX),
        ("COALESCE_USE_ADAPTIVE_TX", COALESCE_ADAPTIVE_TX),
    ] {
        let theirs = number_in(&header, &format!("ETHTOOL_A_{name}"));
        assert_eq!(theirs, usize::from(number), "{name}");
    }
}

#[test]
fn an_answer_without_its_fields_says_absent_and_not_zero() {
    let nic = "eth2".parse().expect("a name");
    let rings = parse_rings(&Attributes::default(), &nic).expect("nothing is wrong");
    assert_eq!(rings.rx.gap().map(|gap| gap.cause), Some(Cause::Absent));
    assert_eq!(
        rings.tx_max.gap().map(|gap| gap.path.as_str()),
        Some("netlink/ethtool/eth2/rings/tx-max")
    );
}

#[cfg(target_endian = "little")]
mod captured {
    use proptest::prelude::*;

    use super::super::*;
    use crate::netlink::captured::{answers, bytes};

    fn nic(name: &str) -> NicName {
        name.parse().expect("a name")
    }

    #[test]
    fn a_kernels_rings_channels_and_moderation_are_read() {
        let body = &answers(include_str!("../captured/rings.hex"))[0].body;
        let rings = Attributes::after(body, GENERIC_HEADER_BYTES).expect("the kernel's own");
        let rings = parse_rings(&rings, &nic("eth0")).expect("rings");
        assert_eq!((rings.rx.get(), rings.rx_max.get()), (Some(256), Some(256)));
        assert_eq!((rings.tx.get(), rings.tx_max.get()), (Some(256), Some(256)));

        let body = &answers(include_str!("../captured/channels.hex"))[0].body;
        let channels = Attributes::after(body, GENERIC_HEADER_BYTES).expect("the kernel's own");
        let channels = parse_channels(&channels, &nic("near0")).expect("channels");
        assert_eq!(
            (channels.rx.get(), channels.rx_max.get()),
            (Some(1), Some(2))
        );
        assert_eq!(
            (channels.tx.get(), channels.tx_max.get()),
            (Some(1), Some(2))
        );
        assert!(channels.combined.gap().is_some());

        let body = &answers(include_str!("../captured/coalesce.hex"))[0].body;
        let coalesce = Attributes::after(body, GENERIC_HEADER_BYTES).expect("the kernel's own");
        let coalesce = parse_coalesce(&coalesce, &nic("eth0")).expect("moderation");
        assert_eq!(
            (coalesce.rx_usecs.get(), coalesce.tx_usecs.get()),
            (Some(0), Some(0))
        );
        assert_eq!(coalesce.adaptive_rx.get(), Some(false));
        assert!(coalesce.adaptive_tx.gap().is_some());
    }

    #[test]
    fn a_kernels_features_are_read_by_name() {
        let body = &answers(include_str!("../captured/features.hex"))[0].body;
        let features = Attributes::after(body, GENERIC_HEADER_BYTES).expect("the kernel's own");
        let features = parse_features(&features).expect("features");
        let feature = |active, changeable| Some(Feature { active, changeable });
        // Taken just after `tx-tcp-segmentation` was switched off.
        assert_eq!(
            features.get("tx-tcp-segmentation").copied(),
            feature(false, true)
        );
        assert_eq!(
            features.get("tx-generic-segmentation").copied(),
            feature(true, true)
        );
        assert_eq!(
            features.get("tx-checksum-ipv4").copied(),
            feature(false, false)
        );
        assert_eq!(features.get("tx-lockless").copied(), None);
        assert!(features.len() > 40, "{}", features.len());
    }

    #[test]
    fn the_family_is_found_among_all() {
        let found: Vec<u16> = answers(include_str!("../captured/families.hex"))
            .iter()
            .filter_map(|answer| parse_ethtool_family(&answer.body).expect("the kernel's own"))
            .collect();
        assert_eq!(found, [21]);
    }

    #[test]
    fn the_requests_are_byte_for_byte_those_a_kernel_took() {
        let set_off = request(21, Command::FeaturesSet, &nic("near0"), |request| {
            put_feature(request, "tx-tcp-segmentation", false);
        });
        let expected = "480000001500050002000000000000000c010000100001800a0002006e6561723000000024000380\
             200003801c0001801800020074782d7463702d7365676d656e746174696f6e00";
        assert_eq!(set_off.to_bytes(5, 2).expect("short"), bytes(expected));
        let set_on = request(21, Command::FeaturesSet, &nic("near0"), |request| {
            put_feature(request, "tx-tcp-segmentation", true);
        });
        let expected = "4c0000001500050005000000000000000c010000100001800a0002006e6561723000000028000380\
             24000380200001801800020074782d7463702d7365676d656e746174696f6e0004000300";
        assert_eq!(set_on.to_bytes(5, 5).expect("short"), bytes(expected));
        let channels = request(21, Command::ChannelsSet, &nic("near0"), |request| {
            put_numbers(request, &[(CHANNELS_RX, Some(2)), (CHANNELS_TX, None)]);
        });
        let expected = "2c00000015000500030000000000000012010000100001800a0002006e6561723000000008000600\
             02000000";
        assert_eq!(channels.to_bytes(5, 3).expect("short"), bytes(expected));
    }

    proptest! {
        #[test]
        fn a_damaged_answer_panics_no_parser(at in 0usize..4280, byte in any::<u8>()) {
            let nic = nic("eth0");
            let mut body = answers(include_str!("../captured/features.hex"))[0].body.clone();
            let at = at % body.len();
            body[at] = byte;
            if let Ok(attributes) = Attributes::after(&body, GENERIC_HEADER_BYTES) {
                let _ = parse_features(&attributes);
                let _ = parse_rings(&attributes, &nic);
                let _ = parse_channels(&attributes, &nic);
                let _ = parse_coalesce(&attributes, &nic);
            }
            let _ = parse_ethtool_family(&body);
        }
    }
}
