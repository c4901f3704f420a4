//! The errors of a link before and after forward error correction (FEC): which counters report them, and what they
//! count (Documentation/networking/ethtool-netlink.rst, FEC_GET; mlx5 counters.rst; IEEE 802.3 clause 30).

use serde::{Deserialize, Serialize};

use crate::ber::{self, ErrorRate};
use crate::host::{Nic, Temperature};
use crate::known::{Cause, Known};
use crate::watch::Watch;

/// The unit in which errors are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Counted {
    /// Bit errors.
    Bits,
    /// FEC blocks with at least one bit error each: a lower bound for the bit error rate.
    Codewords,
    /// Symbols, frames or blocks received with at least one bit error each.
    Events,
}

/// An error rate and its sources.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CountedRate {
    /// Errors per bit, with the 95 % CI.
    #[serde(flatten)]
    pub rate: ErrorRate,
    /// What was counted as an error.
    pub counted: Counted,
    /// The counters that were read.
    pub counters: Vec<String>,
}

/// The errors of a link, and what helps to find their cause.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LinkErrors {
    /// Before correction.
    pub before: Known<CountedRate>,
    /// After correction: data lost.
    pub after: Known<CountedRate>,
    /// One sentence of advice.
    pub advice: String,
    /// Copper: attenuation in dB by frequency.
    pub attenuation_db: Known<Vec<(String, u32)>>,
    /// Temperature of the module in thousandths of a degree Celsius.
    pub module_temperature_mc: Known<i32>,
    /// Temperatures of the NIC.
    pub card_temperatures: Known<Vec<Temperature>>,
    /// The board ID.
    pub board: Known<String>,
}

const MENDED_BITS: [&str; 2] = ["fec/corrected-bits", "driver/rx_corrected_bits_phy"];
const MENDED_BLOCKS: [&str; 1] = ["fec/corrected"];
const LOST_BLOCKS: [&str; 1] = ["fec/uncorrectable"];
/// Several of these counters often count the same events.
const DAMAGED: [&str; 7] = [
    "driver/rx_pcs_symbol_err_phy",
    "driver/rx_symbol_err_phy",
    "driver/rx_crc_errors_phy",
    "phy/SymbolErrorDuringCarrier",
    "mac/FrameCheckSequenceErrors",
    "stat/rx_crc_errors",
    "stat/rx_frame_errors",
];

pub(super) fn errors(nic: &Nic, watch: &Watch) -> LinkErrors {
    let lost = Counts::of(nic, watch, &LOST_BLOCKS);
    let damaged = Counts::of(nic, watch, &DAMAGED);
    let bits = Counts::of(nic, watch, &MENDED_BITS);
    let blocks = Counts::of(nic, watch, &MENDED_BLOCKS);
    // An error that FEC did not correct was also an error before correction.
    let before = if bits.names.is_empty() {
        rate(nic, watch, Counted::Codewords, blocks, lost.most)
    } else {
        rate(nic, watch, Counted::Bits, bits, lost.most)
    };
    let mut after = damaged;
    after.names.splice(0..0, lost.names);
    after.most = after.most.max(lost.most);
    let after = rate(nic, watch, Counted::Events, after, 0);
    let link = nic.link_bit_per_s.get();
    let lanes = nic.wire.modes.value().and_then(|modes| modes.lanes.get());
    let advice = link.map_or_else(
        || "Unknown: the link speed is unknown.",
        |link| {
            let rate_of = |side: &Known<CountedRate>| side.value().map(|side| side.rate);
            let (before, after) = (rate_of(&before), rate_of(&after));
            ber::advice(before.as_ref(), after.as_ref(), ber::limits(link, lanes))
        },
    );
    let module = &nic.wire.module;
    LinkErrors {
        before,
        after,
        advice: advice.to_owned(),
        attenuation_db: module.clone().and_then(|module| module.attenuation_db),
        module_temperature_mc: module.clone().and_then(|module| module.temperature_mc),
        card_temperatures: nic.card.temperatures.clone(),
        board: nic.card.board.clone(),
    }
}

/// Counters of one kind, combined.
struct Counts {
    /// Those that could be read.
    names: Vec<String>,
    /// The largest increase of any of them.
    most: u64,
    /// Why the first of the others could not be read, unless the driver has no such counter.
    gap: Option<crate::known::Gap>,
}

impl Counts {
    fn of(nic: &Nic, watch: &Watch, names: &[&str]) -> Self {
        let mut counts = Self {
            names: Vec::new(),
            most: 0,
            gap: None,
        };
        for name in names {
            match watch.grown(&format!("nic/{}/{name}", nic.name)) {
                Known::Value(by) => {
                    counts.names.push((*name).to_owned());
                    counts.most = counts.most.max(by);
                }
                Known::Unknown(gap) if gap.leaves_a_question() && counts.gap.is_none() => {
                    counts.gap = Some(gap);
                }
                Known::Unknown(_) => {}
            }
        }
        counts
    }
}

fn rate(
    nic: &Nic,
    watch: &Watch,
    counted: Counted,
    counts: Counts,
    lost: u64,
) -> Known<CountedRate> {
    if counts.names.is_empty() {
        return match counts.gap {
            Some(gap) => Known::Unknown(gap),
            None => Known::unknown(
                Cause::Absent,
                format!("netlink/ethtool/{}/fec", nic.name),
                "the driver counts neither corrected bits nor corrected blocks, nor damaged symbols",
            ),
        };
    }
    nic.link_bit_per_s.clone().and_then(|speed| {
        let errors = counts.most.saturating_add(lost);
        match ber::error_rate(errors, speed, watch.span_ns) {
            Some(rate) => Known::Value(CountedRate {
                rate,
                counted,
                counters: counts.names,
            }),
            None => Known::unknown(
                Cause::NotSaid,
                format!("nic/{}", nic.name),
                "no bit passed between the readings",
            ),
        }
    })
}
