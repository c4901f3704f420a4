//! The EEPROMs of three modules, written by hand from the standards, and random ones.

use proptest::prelude::*;

use super::*;

/// A builder of an EEPROM: parts filled with zeros.
struct Image(Pages);

impl Image {
    fn new(halves: &[Half]) -> Self {
        let mut pages = Pages::new("module".to_owned());
        for half in halves {
            pages.insert(*half, Known::Value(vec![0; 128]));
        }
        Self(pages)
    }

    fn put(&mut self, half: Half, at: u8, bytes: &[u8]) -> &mut Self {
        let at = usize::from(at - half.first());
        match self.0.halves.get_mut(&half) {
            Some(Known::Value(part)) => part[at..at + bytes.len()].copy_from_slice(bytes),
            _ => panic!("{half} is no part of this image"),
        }
        self
    }

    fn words(&mut self, half: Half, at: u8, words: &[u16]) -> &mut Self {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        self.put(half, at, &bytes)
    }

    fn decoded(&self) -> Module {
        assert_eq!(next(&self.0), None, "the image has every part that is read");
        decode(&self.0).value().expect("a known map").clone()
    }
}

fn text(value: &Known<String>) -> Option<&str> {
    value.value().map(String::as_str)
}

const A2: Half = Half::Lower {
    address: DIAGNOSTICS,
};

fn sfp_optical() -> Image {
    let mut image = Image::new(&[LOWER, A2]);
    image
        .put(LOWER, 0, &[0x03, 0x04, 0x07, 0x10])
        .put(LOWER, 16, &[8, 3, 0, 30])
        .put(LOWER, 20, b"ACME OPTICS     ")
        .put(LOWER, 40, b"SFP-10G-SR      ")
        .put(LOWER, 56, b"A2  ")
        .words(LOWER, 60, &[850])
        .put(LOWER, 68, b"SECRET-SERIAL   ")
        // Diagnostics, internally calibrated; with flags, loss of signal and fault.
        .put(LOWER, 92, &[0x68, 0xf0])
        .words(A2, 0, &[0x4b00, 0xfb00, 0x4600, 0x0000])
        .words(A2, 8, &[36_300, 29_700, 34_650, 31_350])
        .words(A2, 16, &[6_000, 500, 5_000, 1_000])
        .words(A2, 24, &[10_000, 1_000, 8_000, 1_500])
        .words(A2, 32, &[10_000, 100, 8_000, 200])
        .words(A2, 96, &[0x2a80, 33_000, 3_000, 5_000, 150])
        // The module flags only the warning; the threshold gives the same.
        .put(A2, 117, &[0x40]);
    image
}

#[test]
fn an_optical_sfp_is_decoded() {
    let module = sfp_optical().decoded();
    assert_eq!(
        (module.form_factor.as_str(), module.standard.as_str()),
        ("SFP", "SFF-8472")
    );
    assert_eq!(text(&module.vendor), Some("ACME OPTICS"));
    assert_eq!(text(&module.part), Some("SFP-10G-SR"));
    assert_eq!(text(&module.revision), Some("A2"));
    assert_eq!(text(&module.technology), Some("Optical"));
    assert_eq!(text(&module.connector), Some("LC"));
    assert_eq!(module.length_dm, Known::Value(3_000), "300 m of OM3");
    assert_eq!(module.temperature_mc, Known::Value(42_500));
    assert_eq!(module.voltage_mv, Known::Value(3_300));
    let [lane] = module.lanes.as_slice() else {
        panic!("{:?}", module.lanes)
    };
    assert_eq!(lane.bias_ua, Known::Value(6_000));
    assert_eq!(lane.tx_power_nw, Known::Value(500_000));
    assert_eq!(lane.rx_power_nw, Known::Value(15_000));
    assert!(module.alarms.is_empty(), "{:?}", module.alarms);
    assert_eq!(module.warnings, ["lane 1: receive power low warning"]);
    assert!(module.attenuation_db.gap().is_some() && module.state.gap().is_some());
    assert!(!format!("{module:?}").contains("SECRET"));
}

#[test]
fn readings_that_are_calibrated_outside_are_calibrated() {
    let mut image = sfp_optical();
    image
        .put(LOWER, 92, &[0x58, 0])
        // Bias: times 2 and 10 less. Power: times 1. Temperature: times 1 and 1 degree more.
        .words(
            A2,
            76,
            &[0x0200, 0xfff6, 0x0100, 0, 0x0100, 0x0100, 0x0100, 0],
        );
    let factors = [0.0f32, 0.0, 0.0, 2.0, 100.0];
    let bytes: Vec<u8> = factors
        .iter()
        .flat_map(|factor| factor.to_be_bytes())
        .collect();
    image.put(A2, 56, &bytes);
    let module = image.decoded();
    assert_eq!(module.temperature_mc, Known::Value(43_500));
    assert_eq!(module.lanes[0].bias_ua, Known::Value(2 * (6_000 - 10)));
    assert_eq!(module.lanes[0].tx_power_nw, Known::Value(500_000));
    assert_eq!(module.lanes[0].rx_power_nw, Known::Value(40_000));
}

#[test]
fn an_sfp_without_diagnostics_says_nothing_rather_than_zero() {
    let mut image = Image::new(&[LOWER]);
    image
        .put(LOWER, 0, &[0x03, 0x04, 0x21])
        .put(LOWER, 8, &[0x04]);
    image
        .put(LOWER, 18, &[3])
        .put(LOWER, 20, b"ACME CABLES     ");
    let module = image.decoded();
    assert_eq!(text(&module.technology), Some("Passive copper"));
    assert_eq!(module.length_dm, Known::Value(30));
    let cause = module.temperature_mc.gap().map(|gap| gap.cause);
    assert_eq!(cause, Some(Cause::NotSaid));
    assert!(module.lanes.is_empty());
}

#[test]
fn a_passive_copper_qsfp28_is_decoded() {
    let page = Half::page(0);
    let mut image = Image::new(&[LOWER, page]);
    image
        .put(LOWER, 0, &[0x11, 0x07, 0x00])
        // Passive cables may have anything in their flags and monitors.
        .put(LOWER, 3, &[0xff; 12])
        .put(page, 128, &[0x11, 0, 0x23])
        .put(page, 146, &[2, 0xa0])
        .put(page, 148, b"ACME CABLES     ")
        .put(page, 168, b"QSFP28-DAC-2M   ")
        .put(page, 184, b"B1")
        .put(page, 186, &[3, 5, 6, 9])
        .put(page, 192, &[0x0b]);
    let module = image.decoded();
    assert_eq!(
        (module.form_factor.as_str(), module.standard.as_str()),
        ("QSFP28", "SFF-8636")
    );
    assert_eq!(text(&module.part), Some("QSFP28-DAC-2M"));
    assert_eq!(text(&module.technology), Some("Passive copper"));
    assert_eq!(text(&module.connector), Some("No separable connector"));
    assert_eq!(module.length_dm, Known::Value(20));
    let attenuation = module.attenuation_db.value().expect("copper");
    assert_eq!(attenuation[1], ("5 GHz".to_owned(), 5));
    assert_eq!(attenuation[3], ("12.9 GHz".to_owned(), 9));
    assert!(module.temperature_mc.gap().is_some() && module.voltage_mv.gap().is_some());
    assert!(module.lanes.is_empty() && module.alarms.is_empty() && module.warnings.is_empty());
}

/// Made from a published dump: the cable that a ConnectX-4 runs at 1 Gb/s only. The dump has no compliance code; the
/// signaling rate is that of a 100 Gb/s cable.
#[test]
fn a_cable_without_a_compliance_code_is_rated_by_its_signaling_rate() {
    let page = Half::page(0);
    let mut image = Image::new(&[LOWER, page]);
    image
        .put(LOWER, 0, &[0x11, 0x07, 0x04])
        .put(page, 128, &[0x11, 0, 0x23])
        .put(page, 140, &[0xff])
        .put(page, 146, &[2, 0xa0])
        .put(page, 148, b"OPTCORE         ")
        .put(page, 168, b"Q-100G-DAC-P2M  ")
        .put(page, 184, b"5 ")
        .put(page, 186, &[4, 6, 8, 11])
        .put(page, 196, b"SECRET-SERIAL   ")
        .put(page, 222, &[103]);
    let module = image.decoded();
    assert_eq!(
        module.rated_bit_per_s,
        Known::Value(BitRate::from_mbit_per_s(103_000))
    );
    assert_eq!(text(&module.vendor), Some("OPTCORE"));
    assert_eq!(text(&module.part), Some("Q-100G-DAC-P2M"));
    assert_eq!(module.length_dm, Known::Value(20));
    let attenuation = module.attenuation_db.value().expect("copper");
    assert_eq!(attenuation.len(), 4);
    assert_eq!(attenuation[3], ("12.9 GHz".to_owned(), 11));
    assert!(!format!("{module:?}").contains("SECRET"));
}

#[test]
fn compliance_codes_state_the_rate_of_a_lane_or_of_the_whole_module() {
    let page = Half::page(0);
    let rate_of = |lower: &[u8], code: (u8, u8)| {
        let mut image = Image::new(&[LOWER, page, Half::page(3)]);
        image.put(LOWER, 0, lower).put(page, code.0, &[code.1]);
        decode(&image.0)
            .value()
            .expect("known")
            .rated_bit_per_s
            .get()
    };
    let gbit = |gbit: u64| Some(BitRate::from_mbit_per_s(gbit * 1_000));
    let qsfp = [0x11, 0x08, 0x00];
    assert_eq!(rate_of(&qsfp, (192, 0x0b)), gbit(100), "four lanes of 25");
    assert_eq!(rate_of(&qsfp, (192, 0x40)), gbit(200), "four lanes of 50");
    assert_eq!(rate_of(&qsfp, (192, 0x25)), gbit(100), "100GBASE-DR");
    assert_eq!(rate_of(&qsfp, (131, 0x04)), gbit(40), "40GBASE-SR4");
    assert_eq!(rate_of(&qsfp, (131, 0x00)), None, "nothing is declared");
    let mut sfp = Image::new(&[LOWER]);
    sfp.put(LOWER, 0, &[0x03]).put(LOWER, 36, &[0x02]);
    assert_eq!(sfp.decoded().rated_bit_per_s.get(), gbit(25), "one lane");
    sfp.put(LOWER, 36, &[0]).put(LOWER, 6, &[0x01]);
    assert_eq!(sfp.decoded().rated_bit_per_s.get(), gbit(1), "1000BASE-SX");
    let mut cmis = qsfp_dd();
    cmis.put(LOWER, 86, &[0x0d, 0, 0, 0, 0x11, 0, 0, 0, 0xff]);
    assert_eq!(cmis.decoded().rated_bit_per_s.get(), gbit(400));
}

#[test]
fn an_optical_qsfp28_flags_the_lane_without_light() {
    let (page, bounds) = (Half::page(0), Half::page(3));
    let mut image = Image::new(&[LOWER, page, bounds]);
    image
        .put(LOWER, 0, &[0x11, 0x08, 0x00, 0x02])
        .put(LOWER, 9, &[0x04])
        .words(LOWER, 22, &[0x1e00])
        .words(LOWER, 26, &[32_500])
        .words(
            LOWER,
            34,
            &[10_000, 1, 9_000, 8_000, 3_500, 3_500, 3_500, 3_500],
        )
        .put(page, 130, &[0x0c])
        .put(page, 143, &[35, 0, 0, 50, 0x00])
        .put(page, 220, &[0x30])
        .words(bounds, 128, &[0x4b00, 0xfb00, 0x4600, 0])
        .words(bounds, 176, &[20_000, 100, 15_000, 200]);
    let module = image.decoded();
    assert_eq!(module.length_dm, Known::Value(1_000), "100 m of OM4");
    assert_eq!(module.temperature_mc, Known::Value(30_000));
    assert_eq!(module.lanes.len(), 4);
    assert_eq!(module.lanes[0].rx_power_nw, Known::Value(1_000_000));
    assert!(module.lanes[0].tx_power_nw.gap().is_some(), "not monitored");
    assert_eq!(
        module.alarms,
        [
            "lane 2: receive power low alarm",
            "lane 2: receive loss of signal"
        ]
    );
    assert_eq!(module.warnings, ["lane 2: receive power low warning"]);
}

fn qsfp_dd() -> Image {
    let [identity, advertised, bounds, lanes] = [0x00, 0x01, 0x02, 0x11].map(Half::page);
    let mut image = Image::new(&[LOWER, identity, advertised, bounds, lanes]);
    image
        .put(LOWER, 0, &[0x18, 0x50, 0x00, 0x07])
        .put(LOWER, 9, &[0x04])
        .words(LOWER, 14, &[0x4700, 33_010])
        .put(LOWER, 85, &[0x02])
        .put(identity, 129, b"ACME OPTICS     ")
        .put(identity, 148, b"QDD-400G-DR4    ")
        .put(identity, 164, b"01")
        .put(identity, 202, &[0, 0x0c])
        // Four lanes: 5 to 8 do not exist.
        .put(identity, 210, &[0xf0, 0, 0x06])
        .put(advertised, 132, &[5])
        .put(advertised, 159, &[0x03, 0x0f])
        .words(bounds, 128, &[0x4b00, 0xfb00, 0x4600, 0])
        .words(bounds, 192, &[30_000, 500, 25_000, 1_000])
        .put(lanes, 147, &[0x04])
        .words(lanes, 154, &[10_000; 4])
        .words(lanes, 170, &[20_000; 4])
        .words(lanes, 186, &[9_000, 8_000, 10, 9_500]);
    image
}

#[test]
fn an_optical_qsfp_dd_is_decoded() {
    let module = qsfp_dd().decoded();
    assert_eq!(
        (module.form_factor.as_str(), module.standard.as_str()),
        ("QSFP-DD", "CMIS 5.0")
    );
    assert_eq!(text(&module.vendor), Some("ACME OPTICS"));
    assert_eq!(text(&module.part), Some("QDD-400G-DR4"));
    assert_eq!(text(&module.state), Some("ModuleReady"));
    assert_eq!(text(&module.technology), Some("Optical"));
    assert_eq!(text(&module.connector), Some("MPO 1x12"));
    assert_eq!(module.length_dm, Known::Value(5_000), "500 m");
    assert_eq!(module.temperature_mc, Known::Value(71_000));
    assert_eq!(module.voltage_mv, Known::Value(3_301));
    assert_eq!(module.lanes.len(), 4);
    assert_eq!(module.lanes[3].rx_power_nw, Known::Value(950_000));
    assert_eq!(
        module.lanes[0].bias_ua,
        Known::Value(80_000),
        "in twice the unit"
    );
    assert_eq!(
        module.alarms,
        [
            "lane 3: receive power low alarm",
            "lane 3: receive loss of signal"
        ]
    );
    assert_eq!(
        module.warnings,
        [
            "temperature high warning",
            "lane 3: receive power low warning"
        ]
    );
}

#[test]
fn a_page_that_may_not_be_read_is_a_gap_of_its_own_facts() {
    let mut image = qsfp_dd();
    let denied = Known::unknown(Cause::Denied, "module/page", "no");
    image.0.insert(Half::page(0x11), denied);
    let module = image.decoded();
    let cause = module.lanes[0].rx_power_nw.gap().map(|gap| gap.cause);
    assert_eq!(cause, Some(Cause::Denied));
    assert_eq!(text(&module.part), Some("QDD-400G-DR4"));
}

#[test]
fn a_module_that_cannot_be_read_or_is_of_no_known_kind_is_a_gap() {
    let mut pages = Pages::new("module".to_owned());
    assert_eq!(next(&pages), Some(LOWER));
    pages.insert(LOWER, Known::unknown(Cause::Denied, "module", "root"));
    assert_eq!(next(&pages), None);
    assert_eq!(
        decode(&pages).gap().map(|gap| gap.cause),
        Some(Cause::Denied)
    );
    pages.insert(LOWER, Known::Value(vec![0x7f; 128]));
    assert_eq!(next(&pages), None);
    assert_eq!(
        decode(&pages).gap().map(|gap| gap.cause),
        Some(Cause::NotSaid)
    );
    pages.insert(LOWER, Known::Value(Vec::new()));
    assert_eq!(
        decode(&pages).gap().map(|gap| gap.cause),
        Some(Cause::Unreadable)
    );
}

proptest! {
    #[test]
    fn no_memory_panics_the_decoder(
        identifier in prop::sample::select(vec![0u8, 3, 0x0d, 0x11, 0x18, 0x19, 0x1e, 0xff]),
        parts in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 8),
    ) {
        let mut pages = Pages::new("module".to_owned());
        let mut parts = parts.into_iter();
        while let Some(half) = next(&pages) {
            let mut part = parts.next().expect("no map has more than eight parts");
            if let (Some(first), LOWER) = (part.first_mut(), half) {
                *first = identifier;
            }
            pages.insert(half, Known::Value(part));
        }
        let _ = decode(&pages);
    }
}
