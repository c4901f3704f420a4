//! Responses that only hardware gives, written by hand in the kernel's form.

use linerate_model::setting::numbers::ethtool::LINK_AUTONEG;
use proptest::prelude::*;

use super::super::*;
use super::*;

fn nic() -> NicName {
    "eth0".parse().expect("a name")
}

/// The attributes that `fill` puts, as bytes.
fn made(fill: impl FnOnce(&mut Request)) -> Vec<u8> {
    let mut request = Request::new(0, &[]);
    fill(&mut request);
    request.into_body()
}

fn read<T>(bytes: &[u8], parse: impl FnOnce(&Attributes<'_>) -> Result<T, Failure>) -> T {
    let attributes = Attributes::parse(bytes).expect("our own");
    parse(&attributes).expect("well formed")
}

fn put_bits(request: &mut Request, kind: u16, is_list: bool, bits: &[(&str, bool)]) {
    request.nest(kind, |bitset| {
        if is_list {
            bitset.put(BITSET_NOMASK, &[]);
        }
        bitset.nest(BITSET_BITS, |list| {
            for (name, on) in bits {
                list.nest(BITS_BIT, |bit| {
                    bit.put_text(BIT_NAME, name);
                    if *on {
                        bit.put(BIT_VALUE, &[]);
                    }
                });
            }
        });
    });
}

#[test]
fn what_a_port_can_do_and_what_it_offers_are_told_apart() {
    let bytes = made(|request| {
        request.put(LINK_AUTONEG, &[1]);
        let ours = [
            ("100000baseCR4/Full", true),
            ("10000baseKR/Full", false),
            ("RS", true),
        ];
        put_bits(request, linkmodes::OURS, false, &ours);
        put_bits(
            request,
            linkmodes::PEER,
            true,
            &[("100000baseCR4/Full", false)],
        );
        request
            .put_u32(linkmodes::SPEED, 100_000)
            .put_u32(linkmodes::LANES, 4);
        request.put(linkmodes::DUPLEX, &[1]);
    });
    let modes = read(&bytes, |attributes| {
        linkmodes::parse_modes(attributes, &nic())
    });
    assert_eq!(
        modes.supported,
        ["100000baseCR4/Full", "10000baseKR/Full", "RS"]
    );
    assert_eq!(modes.advertised, ["100000baseCR4/Full", "RS"]);
    assert_eq!(modes.partner, ["100000baseCR4/Full"]);
    let speed = modes.speed_bit_per_s.get();
    assert_eq!(
        speed,
        Some(linerate_model::units::BitRate::from_mbit_per_s(100_000))
    );
    assert_eq!(
        (modes.lanes.get(), modes.duplex),
        (Some(4), Known::Value("full".to_owned()))
    );
}

#[test]
fn a_link_that_is_down_says_why_in_the_words_of_ethtool() {
    let state = |reason: u8, detail: Option<u8>| {
        let bytes = made(|request| {
            request
                .put(linkstate::LINK, &[0])
                .put(linkstate::REASON, &[reason]);
            if let Some(detail) = detail {
                request.put(linkstate::DETAIL, &[detail]);
            }
        });
        let state = read(&bytes, |attributes| {
            linkstate::parse_state(attributes, &nic())
        });
        let text = |known: &Known<String>| known.value().cloned().unwrap_or_default();
        (text(&state.extended_state), text(&state.extended_substate))
    };
    let words = |state: (&str, &str)| (state.0.to_owned(), state.1.to_owned());
    assert_eq!(
        state(5, Some(1)),
        words(("Cable issue", "Unsupported cable"))
    );
    assert_eq!(
        state(0, Some(5)),
        words(("Autoneg", "FEC mismatch during override"))
    );
    assert_eq!(
        state(10, Some(1)).1,
        "CMIS module is not in ModuleReady state"
    );
    assert_eq!(state(4, None), words(("No cable", "")));
    assert_eq!(state(99, Some(0)), words(("reason 99", "detail 0")));
}

#[test]
fn error_correction_has_its_name_and_the_sums_of_its_counters() {
    let bytes = made(|request| {
        put_bits(request, fec::MODES, true, &[("RS", false)]);
        request.put(fec::AUTO, &[0]).put_u32(fec::ACTIVE, 50);
        request.nest(fec::STATISTICS, |counts| {
            let lanes: Vec<u8> = [30u64, 10, 20]
                .iter()
                .flat_map(|n| n.to_ne_bytes())
                .collect();
            counts
                .put(fec::CORRECTED, &lanes)
                .put(fec::CORRECTED_BITS, &[]);
        });
    });
    let told = read(&bytes, |attributes| fec::parse_fec(attributes, &nic()));
    assert_eq!(told.active, Known::Value("RS".to_owned()));
    assert_eq!(
        (told.configured, told.auto),
        (vec!["RS".to_owned()], Known::Value(false))
    );
    let counts = read(&bytes, fec::parse_fec_counts);
    assert_eq!(counts, [("corrected".to_owned(), 30)]);
    let no_link = read(&[], |attributes| fec::parse_fec(attributes, &nic()));
    assert_eq!(
        no_link.active.gap().map(|gap| gap.cause),
        Some(Cause::NotSaid)
    );
}

#[test]
fn standard_counters_have_the_names_of_their_standards() {
    let bytes = made(|request| {
        for (id, number, value) in [(0, 0, 5), (1, 4, 7), (9, 0, 1)] {
            request.nest(stats::GROUP, |group| {
                group
                    .put_u32(stats::GROUP_ID, id)
                    .nest(stats::GROUP_STAT, |stat| {
                        stat.put(number, &u64::to_ne_bytes(value));
                    });
            });
        }
        request.nest(stats::GROUP, |group| {
            group
                .put_u32(stats::GROUP_ID, 3)
                .nest(stats::HISTOGRAM_RX, |bucket| {
                    bucket
                        .put_u32(stats::BUCKET_LOW, 65)
                        .put_u32(stats::BUCKET_HIGH, 127);
                    bucket.put(stats::BUCKET_VALUE, &9u64.to_ne_bytes());
                });
        });
    });
    let told = read(&bytes, stats::parse_counts);
    let mut counts = NicCounts::default();
    put_standard(&mut counts, "p", Known::Value(told));
    let values: Vec<_> = counts
        .values
        .iter()
        .map(|(key, (value, _))| (key.as_str(), *value))
        .collect();
    assert_eq!(
        values,
        [
            ("mac/FrameCheckSequenceErrors", 7),
            ("phy/SymbolErrorDuringCarrier", 5),
            ("rmon/rx-etherStatsPkts65to127Octets", 9),
        ]
    );
    assert_eq!(counts.gaps.keys().collect::<Vec<_>>(), ["ctrl"]);
}

#[test]
fn tunnel_ports_flags_and_the_split_of_headers_are_read() {
    let bytes = made(|request| {
        request.nest(tunnels::UDP_PORTS, |ports| {
            for (port, kind) in [(4789u16, 0), (6081, 1)] {
                ports.nest(tunnels::TABLE, |table| {
                    table.nest(tunnels::ENTRY, |entry| {
                        entry.put(tunnels::ENTRY_PORT, &port.to_be_bytes());
                        entry.put_u32(tunnels::ENTRY_TYPE, kind);
                    });
                });
            }
        });
    });
    let ports = read(&bytes, tunnels::parse_tunnel_ports);
    let ports: Vec<_> = ports
        .iter()
        .map(|port| (port.port, port.kind.as_str()))
        .collect();
    assert_eq!(ports, [(4789, "vxlan"), (6081, "geneve")]);
    let split = made(|request| {
        request.put(flags::TCP_DATA_SPLIT, &[2]);
    });
    let split = read(&split, |attributes| {
        Ok(flags::parse_tcp_data_split(attributes, &nic()))
    });
    assert_eq!(split, Known::Value("on".to_owned()));
}

#[test]
fn a_part_of_a_module_is_asked_for_by_address_page_and_offset() {
    let part = eeprom_half(0x11);
    let bytes = made(|request| module::put_half(request, part));
    let asked = Attributes::parse(&bytes).expect("our own");
    let number = |kind| asked.u32(kind).ok().flatten();
    assert_eq!(
        (number(module::OFFSET), number(module::LENGTH)),
        (Some(128), Some(128))
    );
    assert_eq!(asked.bytes(module::PAGE), Some(&[0x11][..]));
    assert_eq!(asked.bytes(module::ADDRESS), Some(&[0x50][..]));
}

fn eeprom_half(page: u8) -> crate::eeprom::Half {
    crate::eeprom::Half::Upper {
        address: 0x50,
        page,
    }
}

proptest! {
    #[test]
    fn no_attributes_panic_a_parser(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(attributes) = Attributes::parse(&bytes) {
            let _ = linkmodes::parse_modes(&attributes, &nic());
            let _ = linkmodes::parse_port(&attributes, &nic());
            let _ = linkstate::parse_state(&attributes, &nic());
            let _ = fec::parse_fec(&attributes, &nic());
            let _ = fec::parse_fec_counts(&attributes);
            let _ = pause::parse_pause(&attributes, &nic());
            let _ = pause::parse_pause_counts(&attributes);
            let _ = timestamping::parse_timestamping(&attributes, &nic());
            let _ = tunnels::parse_tunnel_ports(&attributes);
            let _ = stats::parse_counts(&attributes);
            let _ = module::parse_half(&attributes);
        }
    }
}
