//! The record of an end's last grid of `diffusion`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::units::Nanoseconds;
use crate::workload::Diffusion;

/// The grid of one end of one pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GridRecord {
    /// The number of round trips.
    pub repetitions: u64,
    /// The checksum of every byte of the buffer that this end had last: what the requesting end received, or what the
    /// responding end returned.
    pub checksum: Checksum,
    /// Time that this end computed on the grid: the boundary at the requesting end, the steps at the responding end.
    pub work_ns: Nanoseconds,
    /// The vector instructions used for the steps, at the end that computed them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vectors: Option<Vectors>,
    /// The requested snapshots, ascending in repetitions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pictures: Vec<GridPicture>,
}

impl GridRecord {
    /// The sizes that a peer could exceed: the name, the size, and the maximum.
    pub(super) fn amounts(&self) -> [(&'static str, usize, usize); 4] {
        let largest = |amount: fn(&GridPicture) -> usize| {
            let amounts = self.pictures.iter().map(amount);
            amounts.max().unwrap_or(0)
        };
        let side = |one: &GridPicture| usize::try_from(one.blocks).unwrap_or(usize::MAX);
        let most = GridPicture::BLOCKS_MAX;
        [
            (
                "pictures",
                self.pictures.len(),
                Diffusion::PICTURES_AFTER.len() + 1,
            ),
            ("blocks on the side of a picture", largest(side), most),
            (
                "blocks of a picture",
                largest(|one| one.means.len()),
                most.pow(2),
            ),
            (
                "cells of a row",
                largest(|one| one.section.len()),
                Diffusion::SIDE_MAX,
            ),
        ]
    }
}

/// A snapshot of the grid: downsampled, and one full row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GridPicture {
    /// The repetitions completed.
    pub repetitions: u64,
    /// The side of the grid in cells.
    pub side: u32,
    /// The side of the snapshot in blocks of cells.
    pub blocks: u32,
    /// The mean of each block in hundredths, row by row.
    pub means: Vec<u32>,
    /// Every cell of the middle row: the bits of a double (IEEE 754, binary64), so that no precision is lost in
    /// transfer.
    pub section: Vec<u64>,
}

impl GridPicture {
    /// The maximum number of blocks on a side.
    pub const BLOCKS_MAX: usize = 96;

    /// The cells of the middle row.
    pub fn cells(&self) -> impl Iterator<Item = f64> {
        self.section.iter().map(|bits| f64::from_bits(*bits))
    }
}

/// A grid over its repetitions, computed without a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Film {
    /// After each of the repetitions that were requested.
    pub pictures: Vec<GridPicture>,
    /// Checksum of the buffer after the last image; both ends of a pair report theirs.
    pub checksum: Checksum,
}

/// The vector instructions for the steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Vectors {
    /// The baseline of the architecture: SSE2 on x86-64.
    Portable,
    /// Four doubles per vector.
    Avx2,
    /// Eight doubles per vector (AVX-512F).
    Avx512,
}

impl fmt::Display for Vectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        })
    }
}

/// A 64-bit hash of a buffer; in documents 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Checksum(pub u64);

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for Checksum {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let value = u64::from_str_radix(text, 16).ok().filter(|_| digits);
        value.map(Self).ok_or("expected 16 hexadecimal digits")
    }
}

impl Serialize for Checksum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Checksum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_that_no_grid_has_are_too_much() {
        let picture = GridPicture {
            repetitions: 100,
            side: 8,
            blocks: 8,
            means: vec![0; 64],
            section: vec![0; 8],
        };
        let record = |pictures: Vec<GridPicture>| GridRecord {
            repetitions: 100,
            checksum: Checksum(1),
            work_ns: Nanoseconds::new(1),
            vectors: None,
            pictures,
        };
        let too_much = |record: &GridRecord| -> Vec<&'static str> {
            let over = record
                .amounts()
                .into_iter()
                .filter(|(_, given, most)| given > most);
            over.map(|(what, ..)| what).collect()
        };
        assert!(too_much(&record(vec![picture.clone(); 3])).is_empty());
        assert_eq!(too_much(&record(vec![picture.clone(); 4])), ["pictures"]);
        let wide = GridPicture {
            blocks: u32::MAX,
            means: vec![0; 10_000],
            section: vec![0; 20_000],
            ..picture
        };
        assert_eq!(too_much(&record(vec![wide])).len(), 3);
    }

    #[test]
    fn a_checksum_is_16_digits_and_reads_back() {
        let one = Checksum(0xABC);
        assert_eq!(one.to_string(), "0000000000000abc");
        assert_eq!(one.to_string().parse(), Ok(one));
        for wrong in ["abc", "+000000000000abc", "0000000000000abg", ""] {
            assert!(wrong.parse::<Checksum>().is_err(), "{wrong}");
        }
    }
}
