//! SFP, SFP+, SFP28 (SFF-8472 rev 12.4): identity at A0h, and diagnostics at A2h if the module has them.

use linerate_model::host::{Module, ModuleLane};
use linerate_model::known::Known;
use linerate_model::units::BitRate;

use super::alarms::{Raised, crossed, either, levels, signed, unsigned};
use super::sff8024::{Technology, connector, rate_of_compliance};
use super::{
    DIAGNOSTICS, Half, LOWER, Pages, View, attenuations, bias_ua, longest, power_nw, rated,
    temperature_mc, voltage_mv,
};

const A2: Half = Half::Lower {
    address: DIAGNOSTICS,
};

/// Byte 92 of A0h: whether there are diagnostics, how they are calibrated, and whether an address change is needed to
/// read them, which the kernel does not do.
const IMPLEMENTED: u8 = 6;
const EXTERNALLY_CALIBRATED: u8 = 4;
const ADDRESS_CHANGE: u8 = 2;

/// The parts that are used.
pub(super) fn parts(pages: &Pages, wanted: &mut Vec<Half>) {
    if has_diagnostics(pages.view(LOWER)) {
        wanted.push(A2);
    }
}

fn has_diagnostics(a0: View<'_>) -> bool {
    a0.bit(92, IMPLEMENTED) && !a0.bit(92, ADDRESS_CHANGE)
}

pub(super) fn decode(pages: &Pages, form_factor: String) -> Module {
    let a0 = pages.view(LOWER);
    let technology = technology(a0);
    let readings = Readings::of(pages);
    let mut raised = Raised::default();
    if has_diagnostics(a0) {
        readings.raise(pages, &mut raised);
    }
    Module {
        form_factor,
        standard: "SFF-8472".to_owned(),
        vendor: a0.text::<16>(20),
        part: a0.text::<16>(40),
        revision: a0.text::<4>(56),
        technology: a0.byte(3).and_then(|_| match technology {
            Some(technology) => Known::Value(technology.words()),
            None => pages.not_said("the module does not report its transceiver type"),
        }),
        rated_bit_per_s: rate(pages),
        length_dm: length(pages, technology),
        connector: a0.byte(2).and_then(|code| match connector(code) {
            Some(words) => Known::Value(words),
            None => pages.not_said("the module does not report its connector"),
        }),
        attenuation_db: attenuations(pages, a0, &[]),
        state: pages.not_said("SFP modules have no module state"),
        temperature_mc: readings.temperature.clone().map(temperature_mc),
        voltage_mv: readings.voltage.clone().map(voltage_mv),
        lanes: readings.lanes(technology),
        alarms: raised.alarms,
        warnings: raised.warnings,
    }
}

/// Bytes 3 to 10 (compliance), 36 (extended compliance) and 60 (wavelength).
fn technology(a0: View<'_>) -> Option<Technology> {
    let compliance = Technology::of_compliance(a0.flags(36));
    if a0.bit(8, 2) {
        return Some(Technology::PassiveCopper);
    }
    if a0.bit(8, 3) {
        // An active cable may be optical.
        return Some(match compliance {
            Some(Technology::Optical) => Technology::Optical,
            _ => Technology::ActiveCopper,
        });
    }
    if a0.bit(6, 3) {
        return Some(Technology::BaseT);
    }
    let wavelength = a0.word(60).get().unwrap_or(0);
    compliance.or((wavelength > 0).then_some(Technology::Optical))
}

/// Byte 36 (extended compliance), 3 and 6 (10 and 1 Gb/s), otherwise the signaling rate at 12 and 66.
fn rate(pages: &Pages) -> Known<BitRate> {
    let a0 = pages.view(LOWER);
    let older = match (a0.flags(3) & 0xf0, a0.flags(6) & 0x0f) {
        (0, 0) => None,
        (0, _) => Some(1),
        _ => Some(10),
    };
    let extended = rate_of_compliance(a0.flags(36), 1);
    rated(pages, extended.or(older), a0.byte(12), a0.byte(66), 1)
}

/// Bytes 14 to 19; 18 is meters of cable, or tens of meters of OM4.
fn length(pages: &Pages, technology: Option<Technology>) -> Known<u32> {
    let a0 = pages.view(LOWER);
    if matches!(
        technology,
        Some(Technology::PassiveCopper | Technology::ActiveCopper | Technology::BaseT)
    ) {
        return longest(pages, [(a0.byte(18), 10)]);
    }
    let reaches = [
        (14, 10_000),
        (15, 1_000),
        (16, 100),
        (17, 100),
        (18, 100),
        (19, 100),
    ];
    longest(pages, reaches.map(|(at, unit)| (a0.byte(at), unit)))
}

/// The calibrated monitors, in the units of the EEPROM.
struct Readings {
    temperature: Known<i16>,
    voltage: Known<u16>,
    bias: Known<u16>,
    tx_power: Known<u16>,
    rx_power: Known<u16>,
}

impl Readings {
    fn of(pages: &Pages) -> Self {
        let (a0, a2) = (pages.view(LOWER), pages.view(A2));
        if !has_diagnostics(a0) {
            return Self::none(pages);
        }
        let raw = Self {
            temperature: a2.signed(96),
            voltage: a2.word(98),
            bias: a2.word(100),
            tx_power: a2.word(102),
            rx_power: a2.word(104),
        };
        if a0.bit(92, EXTERNALLY_CALIBRATED) {
            raw.calibrated(a2)
        } else {
            raw
        }
    }

    fn none(pages: &Pages) -> Self {
        fn none<T>(pages: &Pages) -> Known<T> {
            pages.not_said("the module has no diagnostics")
        }
        Self {
            temperature: none(pages),
            voltage: none(pages),
            bias: none(pages),
            tx_power: none(pages),
            rx_power: none(pages),
        }
    }

    /// With the constants at A2h 56 to 91 (section 9.3): linear for every monitor but the received power, which is a
    /// polynomial.
    fn calibrated(self, a2: View<'_>) -> Self {
        let line = |raw: i64, at: u8| {
            let (slope, offset) = (a2.word(at), a2.signed(at.saturating_add(2)));
            let slope = slope.map(|slope| raw * i64::from(slope) / 256);
            slope.and_then(|product| offset.map(|offset| product + i64::from(offset)))
        };
        let unsigned = |raw: Known<u16>, at: u8| {
            raw.and_then(|raw| line(i64::from(raw), at))
                .map(|value| u16::try_from(value.max(0)).unwrap_or(u16::MAX))
        };
        let temperature = self.temperature.and_then(|raw| line(i64::from(raw), 84));
        Self {
            temperature: temperature.map(|value| {
                let (low, high) = (i64::from(i16::MIN), i64::from(i16::MAX));
                i16::try_from(value.clamp(low, high)).unwrap_or(i16::MAX)
            }),
            voltage: unsigned(self.voltage, 88),
            bias: unsigned(self.bias, 76),
            tx_power: unsigned(self.tx_power, 80),
            rx_power: self.rx_power.and_then(|raw| polynomial(raw, a2)),
        }
    }

    fn lanes(&self, technology: Option<Technology>) -> Vec<ModuleLane> {
        if technology.is_some_and(|technology| technology != Technology::Optical) {
            return Vec::new();
        }
        vec![ModuleLane {
            lane: 1,
            rx_power_nw: self.rx_power.clone().map(power_nw),
            tx_power_nw: self.tx_power.clone().map(power_nw),
            bias_ua: self.bias.clone().map(bias_ua),
        }]
    }

    /// The thresholds at A2h 0 to 39, the flags at 112 to 117, the status at 110.
    fn raise(&self, pages: &Pages, raised: &mut Raised) {
        let (a0, a2) = (pages.view(LOWER), pages.view(A2));
        // Byte 93 of A0h shows which of them the module has.
        let options = |bit| a0.bit(93, bit);
        let flagged = |at: u8, shift: u8| {
            let pair = |at: u8| (a2.flags(at) >> shift) & 0b11;
            let flags = (pair(at) << 2) | pair(at.saturating_add(4));
            levels(if options(7) { flags } else { 0 })
        };
        // Thresholds of an externally calibrated module are raw as well, and not worth a second line.
        let internal = !a0.bit(92, EXTERNALLY_CALIBRATED);
        let bounds = |at: u8| a2.bounds(at).filter(|_| internal);
        let temperature = self.temperature.get().map(i32::from);
        let beyond = crossed(temperature, bounds(0).map(signed));
        raised.add(None, "temperature", either(flagged(112, 6), beyond));
        let over = |value: &Known<u16>, at: u8| {
            crossed(value.get().map(i32::from), bounds(at).map(unsigned))
        };
        let beyond = over(&self.voltage, 8);
        raised.add(None, "supply voltage", either(flagged(112, 4), beyond));
        for (what, value, at, byte, shift) in [
            ("transmit bias", &self.bias, 16, 112, 2),
            ("transmit power", &self.tx_power, 24, 112, 0),
            ("receive power", &self.rx_power, 32, 113, 6),
        ] {
            raised.add(Some(1), what, either(flagged(byte, shift), over(value, at)));
        }
        raised.fault(1, "transmit fault", options(5) && a2.bit(110, 2));
        raised.fault(1, "receive loss of signal", options(4) && a2.bit(110, 1));
    }
}

/// The received power: five floating-point coefficients at 56, the highest power first.
fn polynomial(raw: u16, a2: View<'_>) -> Known<u16> {
    let mut sum = 0.0;
    for at in [56, 60, 64, 68, 72] {
        match a2.bytes(at).map(f32::from_be_bytes) {
            Known::Value(factor) => sum = sum * f64::from(raw) + f64::from(factor),
            Known::Unknown(gap) => return Known::Unknown(gap),
        }
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is clamped, and what is no number becomes 0"
    )]
    let power = sum.clamp(0.0, f64::from(u16::MAX)) as u16;
    Known::Value(power)
}
