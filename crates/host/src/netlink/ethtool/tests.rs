//! ethtool messages: numbers as in the kernel's header, replies from a real kernel.

use linerate_model::setting::numbers::ethtool;

use super::*;

/// `/usr/include/linux/ethtool_netlink.h` (Linux 6.15 moved its numbers to a second file), if the kernel's headers
/// are installed; otherwise nothing, with a skip.
#[expect(clippy::disallowed_methods, reason = "a skip must be seen")]
fn kernel_header() -> Option<String> {
    const PATH: &str = "/usr/include/linux/ethtool_netlink.h";
    const GENERATED: &str = "/usr/include/linux/ethtool_netlink_generated.h";
    let generated = std::fs::read_to_string(GENERATED).unwrap_or_default();
    let text = std::fs::read_to_string(PATH)
        .ok()
        .map(|text| text + &generated);
    if text.is_none() {
        use io::Write;
        writeln!(io::stderr(), "SKIP: {PATH} is not installed").expect("stderr is open");
    }
    text
}

/// The number of `name` in the C enumeration that contains it (none of these assigns explicit numbers).
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
        ("LINKINFO_GET", Command::LinkInfoGet, 2),
        ("LINKMODES_GET", Command::LinkModesGet, 4),
        ("LINKMODES_SET", Command::LinkModesSet, 5),
        ("LINKSTATE_GET", Command::LinkStateGet, 6),
        ("PRIVFLAGS_GET", Command::PrivateFlagsGet, 13),
        ("PRIVFLAGS_SET", Command::PrivateFlagsSet, 14),
        ("PAUSE_GET", Command::PauseGet, 21),
        ("PAUSE_SET", Command::PauseSet, 22),
        ("EEE_GET", Command::EeeGet, 23),
        ("EEE_SET", Command::EeeSet, 24),
        ("TSINFO_GET", Command::TimestampingGet, 25),
        ("TUNNEL_INFO_GET", Command::TunnelInfoGet, 28),
        ("FEC_GET", Command::FecGet, 29),
        ("FEC_SET", Command::FecSet, 30),
        ("MODULE_EEPROM_GET", Command::ModuleEepromGet, 31),
        ("STATS_GET", Command::StatsGet, 32),
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
        ("COALESCE_RX_MAX_FRAMES", COALESCE_RX_FRAMES),
        ("COALESCE_TX_USECS", COALESCE_TX_USECS),
        ("COALESCE_TX_MAX_FRAMES", COALESCE_TX_FRAMES),
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

#[test]
fn the_attributes_of_what_is_only_read_have_the_numbers_of_the_kernels_header() {
    let Some(header) = kernel_header() else {
        return;
    };
    for (name, number) in [
        ("HEADER_FLAGS", HEADER_FLAGS),
        ("STATS_HEADER", STATS_HEADER),
        ("LINKMODES_HEADER", HEADER),
        ("LINKMODES_AUTONEG", ethtool::LINK_AUTONEG),
        ("LINKMODES_OURS", linkmodes::OURS),
        ("LINKMODES_PEER", linkmodes::PEER),
        ("LINKMODES_SPEED", linkmodes::SPEED),
        ("LINKMODES_DUPLEX", linkmodes::DUPLEX),
        ("LINKMODES_LANES", linkmodes::LANES),
        ("LINKINFO_PORT", linkmodes::PORT),
        ("LINKSTATE_LINK", linkstate::LINK),
        ("LINKSTATE_SQI", linkstate::QUALITY),
        ("LINKSTATE_SQI_MAX", linkstate::QUALITY_MAX),
        ("LINKSTATE_EXT_STATE", linkstate::REASON),
        ("LINKSTATE_EXT_SUBSTATE", linkstate::DETAIL),
        ("FEC_HEADER", HEADER),
        ("FEC_MODES", fec::MODES),
        ("FEC_AUTO", fec::AUTO),
        ("FEC_ACTIVE", fec::ACTIVE),
        ("FEC_STATS", fec::STATISTICS),
        ("FEC_STAT_CORRECTED", fec::CORRECTED),
        ("FEC_STAT_UNCORR", fec::UNCORRECTABLE),
        ("FEC_STAT_CORR_BITS", fec::CORRECTED_BITS),
        ("PAUSE_AUTONEG", ethtool::PAUSE_AUTONEG),
        ("PAUSE_RX", ethtool::PAUSE_RX),
        ("PAUSE_TX", ethtool::PAUSE_TX),
        ("PAUSE_STATS", pause::STATISTICS),
        ("PAUSE_STAT_TX_FRAMES", pause::TX_FRAMES),
        ("PAUSE_STAT_RX_FRAMES", pause::RX_FRAMES),
        ("EEE_ACTIVE", pause::EEE_ACTIVE),
        ("EEE_ENABLED", ethtool::EEE_ENABLED),
        ("TSINFO_TIMESTAMPING", timestamping::CAPABILITIES),
        ("TSINFO_TX_TYPES", timestamping::TX_TYPES),
        ("TSINFO_RX_FILTERS", timestamping::RX_FILTERS),
        ("TSINFO_PHC_INDEX", timestamping::PHC_INDEX),
        ("PRIVFLAGS_FLAGS", flags::FLAGS),
        ("RINGS_TCP_DATA_SPLIT", flags::TCP_DATA_SPLIT),
        ("TUNNEL_INFO_UDP_PORTS", tunnels::UDP_PORTS),
        ("TUNNEL_UDP_TABLE", tunnels::TABLE),
        ("TUNNEL_UDP_TABLE_ENTRY", tunnels::ENTRY),
        ("TUNNEL_UDP_ENTRY_PORT", tunnels::ENTRY_PORT),
        ("TUNNEL_UDP_ENTRY_TYPE", tunnels::ENTRY_TYPE),
        ("MODULE_EEPROM_HEADER", HEADER),
        ("MODULE_EEPROM_OFFSET", module::OFFSET),
        ("MODULE_EEPROM_LENGTH", module::LENGTH),
        ("MODULE_EEPROM_PAGE", module::PAGE),
        ("MODULE_EEPROM_BANK", module::BANK),
        ("MODULE_EEPROM_I2C_ADDRESS", module::ADDRESS),
        ("MODULE_EEPROM_DATA", module::DATA),
        ("STATS_GROUPS", stats::GROUPS),
        ("STATS_GRP", stats::GROUP),
        ("STATS_GRP_ID", stats::GROUP_ID),
        ("STATS_GRP_STAT", stats::GROUP_STAT),
        ("STATS_GRP_HIST_RX", stats::HISTOGRAM_RX),
        ("STATS_GRP_HIST_TX", stats::HISTOGRAM_TX),
        ("STATS_GRP_HIST_BKT_LOW", stats::BUCKET_LOW),
        ("STATS_GRP_HIST_BKT_HI", stats::BUCKET_HIGH),
        ("STATS_GRP_HIST_VAL", stats::BUCKET_VALUE),
        // The last name of the longest list, which fixes the position of all before it.
        ("STATS_ETH_MAC_25_TOO_LONG_ERR", 21),
        ("STATS_RMON_JABBER", 3),
    ] {
        let theirs = number_in(&header, &format!("ETHTOOL_A_{name}"));
        assert_eq!(theirs, usize::from(number), "{name}");
    }
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
        // Captured just after `tx-tcp-segmentation` was turned off.
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
    fn a_virtio_port_says_what_it_does_not_know() {
        let body = &answers(include_str!("../captured/linkmodes.hex"))[0].body;
        let modes = Attributes::after(body, GENERIC_HEADER_BYTES).expect("the kernel's own");
        let modes = linkmodes::parse_modes(&modes, &nic("eth0")).expect("modes");
        assert_eq!(modes.autoneg, Known::Value(false));
        let cause = modes.speed_bit_per_s.gap().map(|gap| gap.cause);
        assert_eq!(cause, Some(Cause::NotSaid));
        assert!(modes.duplex.gap().is_some() && modes.supported.is_empty());

        let body = &answers(include_str!("../captured/linkinfo.hex"))[0].body;
        let port = Attributes::after(body, GENERIC_HEADER_BYTES).expect("the kernel's own");
        let port = linkmodes::parse_port(&port, &nic("eth0"));
        assert_eq!(port, Known::Value("Other".to_owned()));

        let body = &answers(include_str!("../captured/linkstate.hex"))[0].body;
        let state = Attributes::after(body, GENERIC_HEADER_BYTES).expect("the kernel's own");
        let state = linkstate::parse_state(&state, &nic("eth0")).expect("a state");
        assert_eq!(state.link, Known::Value(true));
        assert!(state.extended_state.gap().is_some());
    }

    #[test]
    fn a_virtio_nic_stamps_in_software_and_counts_no_standard_counter() {
        let body = &answers(include_str!("../captured/tsinfo.hex"))[0].body;
        let stamps = Attributes::after(body, GENERIC_HEADER_BYTES).expect("the kernel's own");
        let stamps = timestamping::parse_timestamping(&stamps, &nic("eth0")).expect("whole");
        assert_eq!(
            stamps.capabilities,
            [
                "software-transmit",
                "software-receive",
                "software-system-clock"
            ]
        );
        assert!(stamps.phc_index.gap().is_some());
        let body = &answers(include_str!("../captured/stats.hex"))[0].body;
        let counts = Attributes::after(body, GENERIC_HEADER_BYTES).expect("the kernel's own");
        assert_eq!(stats::parse_counts(&counts).expect("whole"), []);
    }

    #[test]
    fn the_requests_are_byte_for_byte_those_a_kernel_took() {
        let set_off = request(21, Command::FeaturesSet, &nic("near0"), |request| {
            put_bit(request, FEATURES_WANTED, "tx-tcp-segmentation", false);
        });
        let expected = "480000001500050002000000000000000c010000100001800a0002006e6561723000000024000380\
             200003801c0001801800020074782d7463702d7365676d656e746174696f6e00";
        assert_eq!(set_off.to_bytes(5, 2).expect("short"), bytes(expected));
        let set_on = request(21, Command::FeaturesSet, &nic("near0"), |request| {
            put_bit(request, FEATURES_WANTED, "tx-tcp-segmentation", true);
        });
        let expected = "4c0000001500050005000000000000000c010000100001800a0002006e6561723000000028000380\
             24000380200001801800020074782d7463702d7365676d656e746174696f6e0004000300";
        assert_eq!(set_on.to_bytes(5, 5).expect("short"), bytes(expected));
        let channels = request(21, Command::ChannelsSet, &nic("near0"), |request| {
            put_scalar(request, CHANNELS_RX, Scalar::Number(2));
        });
        let expected = "2c00000015000500030000000000000012010000100001800a0002006e6561723000000008000600\
             02000000";
        assert_eq!(channels.to_bytes(5, 3).expect("short"), bytes(expected));
    }

    #[test]
    fn one_value_is_one_attribute_and_a_list_of_corrections_is_exactly_that() {
        let said = |value: &NicValue<'_>| {
            let request = request(21, Command::FecSet, &nic("near0"), |r| put_value(r, value));
            request.to_bytes(1, 1).expect("short")[16..].to_vec()
        };
        let attribute = |value: &NicValue<'_>, kind: u16| {
            let body = said(value);
            let attributes = Attributes::after(&body, GENERIC_HEADER_BYTES).expect("our own");
            byte(&attributes, kind)
        };
        let scalar = |kind, scalar| {
            let request = request(21, Command::FecSet, &nic("near0"), |r| {
                put_scalar(r, kind, scalar);
            });
            request.to_bytes(1, 1).expect("short")[16..].to_vec()
        };
        let adaptive = scalar(COALESCE_ADAPTIVE_TX, Scalar::Switch(true));
        let adaptive = Attributes::after(&adaptive, GENERIC_HEADER_BYTES).expect("our own");
        assert_eq!(byte(&adaptive, COALESCE_ADAPTIVE_TX), Some(1));
        let frames = scalar(COALESCE_TX_FRAMES, Scalar::Number(64));
        let frames = Attributes::after(&frames, GENERIC_HEADER_BYTES).expect("our own");
        assert_eq!(frames.u32(COALESCE_TX_FRAMES).expect("a number"), Some(64));
        assert_eq!(frames.u32(COALESCE_RX_FRAMES).expect("none"), None);
        for (word, number) in [("auto", 0), ("off", 1), ("on", 2)] {
            let split = NicValue::TcpDataSplit(word);
            assert_eq!(attribute(&split, flags::TCP_DATA_SPLIT), Some(number));
        }
        let body = said(&NicValue::Fec(vec!["RS", "BASER"]));
        let attributes = Attributes::after(&body, GENERIC_HEADER_BYTES).expect("our own");
        let fec = fec::parse_fec(&attributes, &nic("near0")).expect("our own");
        assert_eq!(fec.configured, ["RS", "BASER"]);
        assert_eq!(fec.auto.get(), Some(false));
        assert_eq!(attribute(&NicValue::Fec(Vec::new()), fec::AUTO), Some(1));
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
