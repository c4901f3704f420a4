//! QSFP-DD, OSFP and later (CMIS 5.2): identity on page 00h, supported monitors on 01h, thresholds on 02h, lanes on
//! 11h. For more than eight lanes only the first bank is read.

use linerate_model::host::{Module, ModuleLane};
use linerate_model::known::Known;
use linerate_model::units::BitRate;

use super::alarms::{Levels, Raised, crossed, either, signed, unsigned};
use super::sff8024::{Technology, connector, rate_of_interface};
use super::{
    Half, LOWER, Pages, attenuations, bias_ua, longest, power_nw, temperature_mc, voltage_mv,
};

const IDENTITY: Half = Half::page(0x00);
const ADVERTISED: Half = Half::page(0x01);
const BOUNDS: Half = Half::page(0x02);
const LANES: Half = Half::page(0x11);

/// The pages that are used.
pub(super) fn parts(pages: &Pages, wanted: &mut Vec<Half>) {
    wanted.push(IDENTITY);
    if !is_flat(pages) {
        wanted.extend([ADVERTISED, BOUNDS, LANES]);
    }
}

/// Byte 2, bit 7: there is only page 00h, as in passive cables.
fn is_flat(pages: &Pages) -> bool {
    pages.view(LOWER).bit(2, 7)
}

pub(super) fn decode(pages: &Pages, form_factor: String) -> Module {
    let (lower, identity) = (pages.view(LOWER), pages.view(IDENTITY));
    let technology = technology(pages);
    let mut raised = Raised::default();
    if !is_flat(pages) {
        raise_module(pages, &mut raised);
        raise_lanes(pages, &mut raised);
    }
    let revision = lower.flags(1);
    Module {
        form_factor,
        standard: format!("CMIS {}.{}", revision >> 4, revision & 0xf),
        vendor: identity.text::<16>(129),
        part: identity.text::<16>(148),
        revision: identity.text::<2>(164),
        technology: technology.clone().map(Technology::words),
        rated_bit_per_s: rate(pages),
        length_dm: length(pages),
        connector: identity.byte(203).and_then(|code| match connector(code) {
            Some(words) => Known::Value(words),
            None => pages.not_said("the module does not report its connector"),
        }),
        attenuation_db: match technology.get() {
            Some(Technology::PassiveCopper | Technology::ActiveCopper) => attenuations(
                pages,
                identity,
                &[
                    (204, "5 GHz"),
                    (205, "7 GHz"),
                    (206, "12.9 GHz"),
                    (207, "25.8 GHz"),
                ],
            ),
            _ => pages.not_said("not a copper cable"),
        },
        state: state(pages),
        temperature_mc: monitored(pages, 159, 0, lower.signed(14)).map(temperature_mc),
        voltage_mv: monitored(pages, 159, 1, lower.word(16)).map(voltage_mv),
        lanes: lanes(pages, technology.get()),
        alarms: raised.alarms,
        warnings: raised.warnings,
    }
}

/// Byte 85 (media) and, of active cables, byte 212 (transmitter).
fn technology(pages: &Pages) -> Known<Technology> {
    let transmitter = || {
        let code = pages.view(IDENTITY).byte(212);
        code.map(Technology::of_transmitter)
    };
    pages.view(LOWER).byte(85).and_then(|media| match media {
        0x01 | 0x02 => Known::Value(Technology::Optical),
        0x03 => Known::Value(Technology::PassiveCopper),
        0x05 => Known::Value(Technology::BaseT),
        _ => transmitter(),
    })
}

/// The fastest of the first eight applications: descriptors of four bytes from 86, each starting with its host interface.
fn rate(pages: &Pages) -> Known<BitRate> {
    let lower = pages.view(LOWER);
    let codes = (0..8).map(|place| lower.byte(86 + 4 * place));
    let mut fastest = None;
    for code in codes {
        match code {
            // The end of the list.
            Known::Value(0xff) => break,
            Known::Value(code) => fastest = fastest.max(rate_of_interface(code)),
            Known::Unknown(gap) => return Known::Unknown(gap),
        }
    }
    match fastest {
        Some(gbit) => Known::Value(BitRate::from_mbit_per_s(gbit * 1_000)),
        None => pages.not_said("none of the module's applications is one of Ethernet"),
    }
}

/// Byte 3, bits 3 to 1.
fn state(pages: &Pages) -> Known<String> {
    pages.view(LOWER).byte(3).and_then(|byte| {
        let state = match byte >> 1 & 0b111 {
            1 => "ModuleLowPwr",
            2 => "ModulePwrUp",
            3 => "ModuleReady",
            4 => "ModulePwrDn",
            5 => "ModuleFault",
            _ => return pages.not_said("the module state is a reserved value"),
        };
        Known::Value(state.to_owned())
    })
}

/// Byte 202 for a cable assembly, otherwise page 01h bytes 132 to 136.
fn length(pages: &Pages) -> Known<u32> {
    let cable = pages.view(IDENTITY).byte(202);
    match cable {
        Known::Value(0) if is_flat(pages) => {
            return pages.not_said("the module does not report its length");
        }
        Known::Value(0) => {}
        cable => {
            // In steps of 0.1, 1, 10 and 100 m.
            return cable.map(|byte| u32::from(byte & 0x3f) * 10u32.pow(u32::from(byte >> 6)));
        }
    }
    let advertised = pages.view(ADVERTISED);
    let single_mode = advertised.byte(132);
    // In steps of 0.1 and 1 km; no others are defined.
    let step = match single_mode.get().unwrap_or(0) >> 6 {
        0 => 1_000,
        _ => 10_000,
    };
    let reaches = [(133, 20), (134, 20), (135, 20), (136, 10)];
    let reaches = reaches.map(|(at, unit)| (advertised.byte(at), unit));
    let single_mode = (single_mode.map(|byte| byte & 0x3f), step);
    longest(pages, reaches.into_iter().chain([single_mode]))
}

/// `value`, if `bit` of byte `at` on page 01h is set: it is monitored.
fn monitored<T>(pages: &Pages, at: u8, bit: u8, value: Known<T>) -> Known<T> {
    if is_flat(pages) {
        return pages.not_said("the module has no monitors");
    }
    pages.view(ADVERTISED).byte(at).and_then(|said| {
        if said >> bit & 1 == 1 {
            value
        } else {
            pages.not_said("not monitored by the module")
        }
    })
}

/// The lanes of this end (byte 210: a set bit is a lane that does not exist).
fn present(pages: &Pages) -> impl Iterator<Item = u8> + '_ {
    (0..8).filter(|lane| !pages.view(IDENTITY).bit(210, *lane))
}

/// A lane's monitors on page 11h, if supported according to byte 160 of page 01h.
const RX_POWER: (u8, u8) = (186, 2);
const TX_POWER: (u8, u8) = (154, 1);
const BIAS: (u8, u8) = (170, 0);

fn reading(pages: &Pages, (at, bit): (u8, u8), lane: u8) -> Known<u16> {
    let value = pages.view(LANES).word(at + 2 * lane);
    monitored(pages, 160, bit, value)
}

fn lanes(pages: &Pages, technology: Option<Technology>) -> Vec<ModuleLane> {
    if technology.is_some_and(|technology| technology != Technology::Optical) {
        return Vec::new();
    }
    // Bits 4 and 3 of byte 160: the unit of the bias is one, two or four times 2 microamperes.
    let scale = 1u32 << (pages.view(ADVERTISED).flags(160) >> 3 & 0b11).min(2);
    let lane = |lane| ModuleLane {
        lane: u32::from(lane) + 1,
        rx_power_nw: reading(pages, RX_POWER, lane).map(power_nw),
        tx_power_nw: reading(pages, TX_POWER, lane).map(power_nw),
        bias_ua: reading(pages, BIAS, lane).map(|raw| bias_ua(raw) * scale),
    };
    present(pages).map(lane).collect()
}

/// The flags of byte 9, the thresholds at 02h 128 and 136.
fn raise_module(pages: &Pages, raised: &mut Raised) {
    let (lower, bounds) = (pages.view(LOWER), pages.view(BOUNDS));
    // From the lowest bit: high alarm, low alarm, high warning, low warning.
    let flagged = |shift: u8| -> Levels { [0, 1, 2, 3].map(|bit| lower.bit(9, shift + bit)) };
    let temperature = monitored(pages, 159, 0, lower.signed(14)).get();
    let beyond = crossed(temperature.map(i32::from), bounds.bounds(128).map(signed));
    raised.add(None, "temperature", either(flagged(0), beyond));
    let voltage = monitored(pages, 159, 1, lower.word(16)).get();
    let beyond = crossed(voltage.map(i32::from), bounds.bounds(136).map(unsigned));
    raised.add(None, "supply voltage", either(flagged(4), beyond));
}

/// The flags at 11h 135 to 152, a bit for each lane, and the thresholds from 02h 176.
fn raise_lanes(pages: &Pages, raised: &mut Raised) {
    let (flags, bounds) = (pages.view(LANES), pages.view(BOUNDS));
    for lane in present(pages) {
        let number = u32::from(lane) + 1;
        for (what, flags_at, place, bounds_at) in [
            ("transmit power", 139, TX_POWER, 176),
            ("transmit bias", 143, BIAS, 184),
            ("receive power", 149, RX_POWER, 192),
        ] {
            let flagged: Levels = [0, 1, 2, 3].map(|level| flags.bit(flags_at + level, lane));
            let value = reading(pages, place, lane).get().map(i32::from);
            let beyond = crossed(value, bounds.bounds(bounds_at).map(unsigned));
            raised.add(Some(number), what, either(flagged, beyond));
        }
        for (what, at) in [
            ("transmit fault", 135),
            ("transmit loss of signal", 136),
            ("transmit loss of lock", 137),
            ("receive loss of signal", 147),
            ("receive loss of lock", 148),
        ] {
            raised.fault(number, what, flags.bit(at, lane));
        }
    }
}
