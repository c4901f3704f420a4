//! QSFP+, QSFP28 (SFF-8636 rev 2.10a): all at one address, four lanes.

use linerate_model::host::{Module, ModuleLane};
use linerate_model::known::Known;
use linerate_model::units::BitRate;

use super::alarms::{Raised, crossed, either, levels, signed, unsigned};
use super::sff8024::{NO_SEPARABLE_CONNECTOR, Technology, connector, rate_of_compliance};
use super::{
    Half, LOWER, Pages, View, attenuations, bias_ua, longest, power_nw, rated, temperature_mc,
    voltage_mv,
};

const IDENTITY: Half = Half::page(0x00);
const BOUNDS: Half = Half::page(0x03);
const LANES: u8 = 4;

/// Byte 2, bit 2: there is no other page.
const FLAT: (u8, u8) = (2, 2);

/// The parts that are used.
pub(super) fn parts(pages: &Pages, wanted: &mut Vec<Half>) {
    wanted.push(IDENTITY);
    let (at, bit) = FLAT;
    if !pages.view(LOWER).bit(at, bit) && is_powered(pages) {
        wanted.push(BOUNDS);
    }
}

fn technology(pages: &Pages) -> Known<Technology> {
    let transmitter = pages.view(IDENTITY).byte(147);
    transmitter.map(|code| Technology::of_transmitter(code >> 4))
}

/// Whether it has monitors: a passive cable does not.
fn is_powered(pages: &Pages) -> bool {
    technology(pages).get() != Some(Technology::PassiveCopper)
}

pub(super) fn decode(pages: &Pages, form_factor: String) -> Module {
    let (lower, identity) = (pages.view(LOWER), pages.view(IDENTITY));
    let technology = technology(pages);
    let mut raised = Raised::default();
    let monitored = is_powered(pages);
    if monitored {
        raise_module(pages, &mut raised);
        raise_lanes(pages, &mut raised);
    }
    let monitor = |bit: u8| {
        // Byte 220 shows the monitors since revision 2.8 (8 in byte 1); before that, every powered module has them.
        let said = lower.flags(1) >= 8;
        monitored && (!said || identity.bit(220, bit))
    };
    Module {
        form_factor,
        standard: "SFF-8636".to_owned(),
        vendor: identity.text::<16>(148),
        part: identity.text::<16>(168),
        revision: identity.text::<2>(184),
        technology: technology.clone().map(Technology::words),
        rated_bit_per_s: rate(pages),
        length_dm: length(pages, technology.get()),
        connector: identity.byte(130).and_then(|code| match connector(code) {
            Some(words) => Known::Value(words),
            None => pages.not_said("the module does not report its connector"),
        }),
        attenuation_db: match technology.get() {
            Some(Technology::PassiveCopper | Technology::ActiveCopper) => attenuations(
                pages,
                identity,
                &[
                    (186, "2.5 GHz"),
                    (187, "5 GHz"),
                    (188, "7 GHz"),
                    (189, "12.9 GHz"),
                ],
            ),
            _ => pages.not_said("not a copper cable"),
        },
        state: pages.not_said("only CMIS modules have a module state"),
        temperature_mc: if monitor(5) {
            lower.signed(22).map(temperature_mc)
        } else {
            pages.not_said("not monitored by the module")
        },
        voltage_mv: if monitor(4) {
            lower.word(26).map(voltage_mv)
        } else {
            pages.not_said("not monitored by the module")
        },
        lanes: lanes(pages, technology.get()),
        alarms: raised.alarms,
        warnings: raised.warnings,
    }
}

/// Byte 192 (extended compliance), 131 (10 and 40 Gb/s), otherwise the signaling rate at 140 and 222.
fn rate(pages: &Pages) -> Known<BitRate> {
    let identity = pages.view(IDENTITY);
    let lanes = u64::from(LANES);
    let older = match identity.flags(131) & 0x7f {
        codes if codes & 0x0f != 0 => Some(40),
        codes if codes & 0x70 != 0 => Some(10),
        _ => None,
    };
    let extended = rate_of_compliance(identity.flags(192), lanes);
    rated(
        pages,
        extended.or(older),
        identity.byte(140),
        identity.byte(222),
        lanes,
    )
}

/// Bytes 142 to 146: the reach by fiber type, or the length of a cable assembly.
fn length(pages: &Pages, technology: Option<Technology>) -> Known<u32> {
    let identity = pages.view(IDENTITY);
    let is_cable = technology.is_some_and(|technology| technology != Technology::Optical)
        || identity.flags(130) == NO_SEPARABLE_CONNECTOR;
    if is_cable {
        return longest(pages, [(identity.byte(146), 10)]);
    }
    let reaches = [(142, 10_000), (143, 20), (144, 10), (145, 10), (146, 20)];
    longest(pages, reaches.map(|(at, unit)| (identity.byte(at), unit)))
}

/// Bytes 34 to 57: three monitors for each of four lanes.
fn lanes(pages: &Pages, technology: Option<Technology>) -> Vec<ModuleLane> {
    if technology.is_some_and(|technology| technology != Technology::Optical) {
        return Vec::new();
    }
    let (lower, identity) = (pages.view(LOWER), pages.view(IDENTITY));
    let tells_tx_power = identity.bit(220, 2);
    (0..LANES)
        .map(|lane| ModuleLane {
            lane: u32::from(lane) + 1,
            rx_power_nw: lower.word(34 + 2 * lane).map(power_nw),
            tx_power_nw: if tells_tx_power {
                lower.word(50 + 2 * lane).map(power_nw)
            } else {
                pages.not_said("not monitored by the module")
            },
            bias_ua: lower.word(42 + 2 * lane).map(bias_ua),
        })
        .collect()
}

/// The flags at 6 and 7, the thresholds at 03h 128 and 144.
fn raise_module(pages: &Pages, raised: &mut Raised) {
    let (lower, bounds) = (pages.view(LOWER), pages.view(BOUNDS));
    let temperature = lower.signed(22).get().map(i32::from);
    let beyond = crossed(temperature, bounds.bounds(128).map(signed));
    raised.add(
        None,
        "temperature",
        either(levels(lower.flags(6) >> 4), beyond),
    );
    let voltage = lower.word(26).get().map(i32::from);
    let beyond = crossed(voltage, bounds.bounds(144).map(unsigned));
    raised.add(
        None,
        "supply voltage",
        either(levels(lower.flags(7) >> 4), beyond),
    );
}

/// The flags at 3 to 5 and 9 to 14, the thresholds from 03h 176.
fn raise_lanes(pages: &Pages, raised: &mut Raised) {
    let (lower, bounds) = (pages.view(LOWER), pages.view(BOUNDS));
    let is_optical = technology(pages).get() == Some(Technology::Optical);
    for lane in 0..LANES {
        let number = Some(u32::from(lane) + 1);
        for (what, flags_at, value_at, bounds_at) in [
            ("receive power", 9, 34, 176),
            ("transmit bias", 11, 42, 184),
            ("transmit power", 13, 50, 192),
        ] {
            // Two lanes per byte, the first in the upper four bits.
            let shift = if lane % 2 == 0 { 4 } else { 0 };
            let flagged = levels(lower.flags(flags_at + lane / 2) >> shift);
            let tells = is_optical && is_told(pages.view(IDENTITY), value_at);
            let value = lower.word(value_at + 2 * lane).get().filter(|_| tells);
            let own = bounds.bounds(bounds_at).map(unsigned);
            let beyond = crossed(value.map(i32::from), own);
            raised.add(number, what, either(flagged, beyond));
        }
        let number = u32::from(lane) + 1;
        raised.fault(number, "transmit fault", lower.bit(4, lane));
        raised.fault(number, "receive loss of signal", lower.bit(3, lane));
        raised.fault(number, "transmit loss of signal", lower.bit(3, lane + 4));
        raised.fault(number, "receive loss of lock", lower.bit(5, lane));
        raised.fault(number, "transmit loss of lock", lower.bit(5, lane + 4));
    }
}

/// Transmit power is the only optional lane monitor (byte 220, bit 2).
fn is_told(identity: View<'_>, value_at: u8) -> bool {
    value_at != 50 || identity.bit(220, 2)
}
