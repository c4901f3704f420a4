//! What `diffusion` leaves of the grid that an end of a pair held last.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::units::Nanoseconds;
use crate::workload::Diffusion;

/// The grid of one end of one pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GridRecord {
    /// How often it went there and back.
    pub repetitions: u64,
    /// Of every byte of the buffer that this end held last: what the asking end got back, what the answering
    /// end put back.
    pub checksum: Checksum,
    /// Time that this end worked on the grid: of the asking end the setting of the boundary, of the answering
    /// end the steps.
    pub work_ns: Nanoseconds,
    /// What the steps were made with, at the end that made them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vectors: Option<Vectors>,
    /// Pictures that were asked for, ascending in repetitions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pictures: Vec<GridPicture>,
}

impl GridRecord {
    /// What there is of it that a far end could claim too much of: the name, how much, and the most.
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

/// A grid after some repetitions: small enough to look at, and one cut through it as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GridPicture {
    /// How often it had been there and back.
    pub repetitions: u64,
    /// The side of the grid in cells.
    pub side: u32,
    /// The side of the picture in blocks of cells.
    pub blocks: u32,
    /// The mean of each block in hundredths, row by row.
    pub means: Vec<u32>,
    /// Every cell of the row through the middle: the bits of a double (IEEE 754, binary64), so that none of
    /// them is lost on the way.
    pub section: Vec<u64>,
}

impl GridPicture {
    /// The most blocks on a side.
    pub const BLOCKS_MAX: usize = 96;

    /// The cells of the row through the middle.
    pub fn cells(&self) -> impl Iterator<Item = f64> {
        self.section.iter().map(|bits| f64::from_bits(*bits))
    }
}

/// What steps are made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Vectors {
    /// What every processor of its kind has: SSE2 on x86-64.
    Portable,
    /// Four doubles at a time.
    Avx2,
    /// Eight doubles at a time (AVX-512F).
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

/// 64 bits that tell two buffers apart; in documents 16 hexadecimal digits.
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
