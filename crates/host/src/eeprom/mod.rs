//! Decodes the EEPROM of a pluggable module or cable. Its first byte selects one of three memory maps (SFF-8024 table
//! 4-1): SFF-8472 for SFP, SFF-8636 for QSFP, CMIS for QSFP-DD and later. All functions are pure: [`next`] names the
//! part to read next, [`decode`] decodes the parts. The serial number is not read.

use std::collections::BTreeMap;
use std::fmt;

use linerate_model::host::Module;
use linerate_model::known::{Cause, Gap, Known};
use linerate_model::units::BitRate;

mod alarms;
mod cmis;
mod sff8024;
mod sff8472;
mod sff8636;
#[cfg(test)]
mod tests;

/// The EEPROM is read in half pages.
pub(crate) const HALF_BYTES: u32 = 128;
/// The I2C address of the EEPROM (A0h without its read bit).
const MAIN: u8 = 0x50;
/// The I2C address of an SFP's diagnostics (A2h).
const DIAGNOSTICS: u8 = 0x51;

const LOWER: Half = Half::Lower { address: MAIN };

/// A part of the EEPROM: 128 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Half {
    /// Bytes 0 to 127 at an I2C address.
    Lower {
        /// The address.
        address: u8,
    },
    /// Bytes 128 to 255 of a page.
    Upper {
        /// The address.
        address: u8,
        /// The page.
        page: u8,
    },
}

impl Half {
    /// The upper half of `page` at the module's main address.
    const fn page(page: u8) -> Self {
        Self::Upper {
            address: MAIN,
            page,
        }
    }

    /// The offset of its first byte.
    const fn first(self) -> u8 {
        match self {
            Self::Lower { .. } => 0,
            Self::Upper { .. } => 128,
        }
    }
}

impl fmt::Display for Half {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lower { address } => write!(f, "{address:#x}/lower"),
            Self::Upper { address, page } => write!(f, "{address:#x}/{page:02x}h"),
        }
    }
}

/// The parts read so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pages {
    path: String,
    halves: BTreeMap<Half, Known<Vec<u8>>>,
}

impl Pages {
    /// An empty set of parts for the module at `path`.
    pub(crate) fn new(path: String) -> Self {
        Self {
            path,
            halves: BTreeMap::new(),
        }
    }

    /// Where the module is read from.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Adds a part, or why it could not be read.
    pub(crate) fn insert(&mut self, half: Half, bytes: Known<Vec<u8>>) {
        self.halves.insert(half, bytes);
    }

    fn view(&self, half: Half) -> View<'_> {
        View {
            pages: self,
            half,
            bytes: self.halves.get(&half),
        }
    }

    /// A value that the module does not report.
    fn not_said<T>(&self, why: &str) -> Known<T> {
        Known::unknown(Cause::NotSaid, self.path.clone(), why)
    }
}

/// One part, with byte offsets as in its standard (0 to 255).
#[derive(Debug, Clone, Copy)]
struct View<'a> {
    pages: &'a Pages,
    half: Half,
    bytes: Option<&'a Known<Vec<u8>>>,
}

impl View<'_> {
    fn bytes<const N: usize>(&self, at: u8) -> Known<[u8; N]> {
        let path = || format!("{}/{}", self.pages.path, self.half);
        match self.bytes {
            None => Known::not_asked(path()),
            Some(Known::Unknown(gap)) => Known::Unknown(gap.clone()),
            Some(Known::Value(bytes)) => at
                .checked_sub(self.half.first())
                .and_then(|at| bytes.get(usize::from(at)..)?.first_chunk())
                .map_or_else(
                    || {
                        let gap =
                            Gap::new(Cause::Unreadable, path(), "the EEPROM data are truncated");
                        Known::Unknown(gap)
                    },
                    |bytes| Known::Value(*bytes),
                ),
        }
    }

    fn byte(&self, at: u8) -> Known<u8> {
        self.bytes(at).map(|[byte]| byte)
    }

    /// The byte, or 0 if it could not be read: for flags, where only set bits matter.
    fn flags(&self, at: u8) -> u8 {
        self.byte(at).get().unwrap_or(0)
    }

    fn bit(&self, at: u8, bit: u8) -> bool {
        self.flags(at) >> bit & 1 == 1
    }

    /// A 16-bit number, big-endian as in all three maps.
    fn word(&self, at: u8) -> Known<u16> {
        self.bytes(at).map(u16::from_be_bytes)
    }

    /// A signed 16-bit number.
    fn signed(&self, at: u8) -> Known<i16> {
        self.bytes(at).map(i16::from_be_bytes)
    }

    /// ASCII without surrounding spaces.
    fn text<const N: usize>(&self, at: u8) -> Known<String> {
        self.bytes::<N>(at).and_then(|bytes| {
            let text: String = bytes
                .iter()
                .map(|byte| char::from(*byte))
                .map(|c| if c.is_ascii_graphic() { c } else { ' ' })
                .collect();
            match text.trim() {
                "" => self
                    .pages
                    .not_said("the field is empty in the module's EEPROM"),
                text => Known::Value(text.to_owned()),
            }
        })
    }

    /// The thresholds at `at`: high alarm, low alarm, high warning, low warning.
    fn bounds(&self, at: u8) -> Option<[[u8; 2]; 4]> {
        let bytes: [u8; 8] = self.bytes(at).get()?;
        let (bounds, _) = bytes.as_chunks();
        bounds.try_into().ok()
    }
}

/// The memory map of a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Map {
    Sff8472,
    Sff8636,
    Cmis,
}

fn map_of(identifier: u8) -> Option<Map> {
    match identifier {
        0x02 | 0x03 | 0x0b => Some(Map::Sff8472),
        0x0c | 0x0d | 0x11 => Some(Map::Sff8636),
        0x18 | 0x19 | 0x1b | 0x1e..=0x21 => Some(Map::Cmis),
        _ => None,
    }
}

/// The part to read next; `None` if [`decode`] needs no more.
pub(crate) fn next(pages: &Pages) -> Option<Half> {
    let mut wanted = vec![LOWER];
    if let Some(identifier) = pages.view(LOWER).byte(0).get() {
        match map_of(identifier) {
            Some(Map::Sff8472) => sff8472::parts(pages, &mut wanted),
            Some(Map::Sff8636) => sff8636::parts(pages, &mut wanted),
            Some(Map::Cmis) => cmis::parts(pages, &mut wanted),
            None => {}
        }
    }
    wanted
        .into_iter()
        .find(|half| !pages.halves.contains_key(half))
}

/// Decodes the parts; the gap of the first part if that could not be read.
pub(crate) fn decode(pages: &Pages) -> Known<Module> {
    pages.view(LOWER).byte(0).and_then(|identifier| {
        let form_factor = sff8024::form_factor(identifier);
        match map_of(identifier) {
            Some(Map::Sff8472) => Known::Value(sff8472::decode(pages, form_factor)),
            Some(Map::Sff8636) => Known::Value(sff8636::decode(pages, form_factor)),
            Some(Map::Cmis) => Known::Value(cmis::decode(pages, form_factor)),
            None => pages.not_said(&format!(
                "the module's memory has no map known here: {form_factor} (SFF-8024 identifier \
                 {identifier:#04x})"
            )),
        }
    })
}

/// A temperature of 1/256 degree in thousandths of a degree Celsius.
fn temperature_mc(raw: i16) -> i32 {
    i32::from(raw) * 1000 / 256
}

/// A voltage of 100 microvolts in millivolts.
fn voltage_mv(raw: u16) -> u32 {
    u32::from(raw) / 10
}

/// An optical power of 0.1 microwatts in nanowatts.
fn power_nw(raw: u16) -> u32 {
    u32::from(raw) * 100
}

/// A laser's bias of 2 microamperes in microamperes.
fn bias_ua(raw: u16) -> u32 {
    u32::from(raw) * 2
}

/// The longest of several reaches, in decimeters; a reach of 0 is not reported.
fn longest(pages: &Pages, reaches: impl IntoIterator<Item = (Known<u8>, u32)>) -> Known<u32> {
    let mut longest = 0;
    for (count, decimetres) in reaches {
        match count {
            Known::Value(count) => longest = longest.max(u32::from(count) * decimetres),
            Known::Unknown(gap) => return Known::Unknown(gap),
        }
    }
    match longest {
        0 => pages.not_said("the module does not report its length"),
        longest => Known::Value(longest),
    }
}

/// The rate that a module declares: by its compliance codes in Gb/s, otherwise the signaling rate of all lanes (`nominal`
/// in units of 100 MBd, 255 for `high` in units of 250 MBd).
fn rated(
    pages: &Pages,
    compliance: Option<u64>,
    nominal: Known<u8>,
    high: Known<u8>,
    lanes: u64,
) -> Known<BitRate> {
    if let Some(gbit) = compliance {
        return Known::Value(BitRate::from_mbit_per_s(gbit * 1_000));
    }
    let mbaud = nominal.and_then(|nominal| match nominal {
        0xff => high.map(|high| u64::from(high) * 250),
        nominal => Known::Value(u64::from(nominal) * 100),
    });
    mbaud.and_then(|mbaud| match mbaud {
        0 => pages.not_said("the module does not report its rate"),
        mbaud => Known::Value(BitRate::from_mbit_per_s(mbaud * lanes)),
    })
}

/// The non-zero attenuations, each with its frequency.
fn attenuations(pages: &Pages, view: View<'_>, places: &[(u8, &str)]) -> Known<Vec<(String, u32)>> {
    let mut all = Vec::new();
    for (at, frequency) in places {
        match view.byte(*at) {
            Known::Value(0) => {}
            Known::Value(decibel) => all.push(((*frequency).to_owned(), u32::from(decibel))),
            Known::Unknown(gap) => return Known::Unknown(gap),
        }
    }
    if all.is_empty() {
        pages.not_said("the module does not report its attenuation")
    } else {
        Known::Value(all)
    }
}
