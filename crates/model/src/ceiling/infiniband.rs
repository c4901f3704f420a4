//! InfiniBand links by their encoding (InfiniBand Architecture Specification, volume 2): the nominal rate is the
//! signaling rate up to FDR, and the data rate from EDR on.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Bound, Ceiling, scaled};
use crate::ids::IdError;
use crate::units::BitRate;

/// The generation of an InfiniBand link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[expect(missing_docs, reason = "the trade's names for the generations")]
pub enum InfinibandSpeed {
    Sdr,
    Ddr,
    Qdr,
    Fdr10,
    Fdr,
    Edr,
    Hdr,
    Ndr,
    Xdr,
}

impl InfinibandSpeed {
    /// The data rate of one lane in Mb/s and its encoding: 8b/10b up to QDR, 64b/66b up to EDR; from HDR on the
    /// nominal rate is the data rate.
    fn lane(self) -> (u64, &'static str) {
        match self {
            Self::Sdr => (2_000, "2.5 GBd, 8b/10b"),
            Self::Ddr => (4_000, "5 GBd, 8b/10b"),
            Self::Qdr => (8_000, "10 GBd, 8b/10b"),
            Self::Fdr10 => (10_000, "10.3125 GBd, 64b/66b"),
            Self::Fdr => (13_636, "14.0625 GBd, 64b/66b"),
            Self::Edr => (25_000, "25.78125 GBd, 64b/66b"),
            Self::Hdr => (50_000, "nominal 50 Gb/s"),
            Self::Ndr => (100_000, "nominal 100 Gb/s"),
            Self::Xdr => (200_000, "nominal 200 Gb/s"),
        }
    }
}

impl FromStr for InfinibandSpeed {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.trim().to_ascii_uppercase().as_str() {
            "SDR" => Self::Sdr,
            "DDR" => Self::Ddr,
            "QDR" => Self::Qdr,
            "FDR10" => Self::Fdr10,
            "FDR" => Self::Fdr,
            "EDR" => Self::Edr,
            "HDR" => Self::Hdr,
            "NDR" => Self::Ndr,
            "XDR" => Self::Xdr,
            _ => {
                return Err(IdError {
                    text: text.to_owned(),
                    what: "InfiniBand speed",
                    why: "expected SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR or XDR",
                });
            }
        })
    }
}

/// The data rate of an InfiniBand link with `lanes` lanes after encoding (packet headers are not subtracted).
pub fn infiniband(speed: InfinibandSpeed, lanes: u32) -> Ceiling {
    let (mbit, encoding) = speed.lane();
    let bound = scaled(BitRate::from_mbit_per_s(mbit), u64::from(lanes), 1);
    let reason = format!(
        "{lanes} lanes x {} ({encoding}) = {bound}: data without the encoding",
        BitRate::from_mbit_per_s(mbit)
    );
    Ceiling::new(Bound::Infiniband, bound, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn infiniband_by_its_encoding() {
        let gbit = |speed, lanes| infiniband(speed, lanes).bit_per_s.to_string();
        assert_eq!(gbit(InfinibandSpeed::Qdr, 4), "32.00 Gb/s");
        assert_eq!(gbit(InfinibandSpeed::Fdr, 4), "54.54 Gb/s");
        assert_eq!(gbit(InfinibandSpeed::Edr, 4), "100.0 Gb/s");
        assert_eq!("qdr".parse(), Ok(InfinibandSpeed::Qdr));
    }
}
