//! A qdisc or a class in an rtnetlink dump (`<linux/pkt_sched.h>`), and the rate in its options.

use linerate_model::units::BitRate;

use super::error::Failure;
use super::message::{Attributes, u32_at};

/// `struct tcmsg`.
pub(super) const HEADER_BYTES: usize = 20;
/// `TC_H_ROOT`: the parent of a root.
pub(super) const ROOT: u32 = 0xffff_ffff;

/// `TCA_CHAIN`.
pub(super) const TCA_CHAIN: u16 = 11;
pub(super) const TBF_PARAMETERS: u16 = 1;
pub(super) const TBF_RATE64: u16 = 4;
pub(super) const HTB_PARAMETERS: u16 = 1;
pub(super) const HTB_INIT: u16 = 2;
pub(super) const HTB_RATE64: u16 = 6;
/// The offset of the rate in `struct tc_ratespec`; both shapers' parameters begin with one.
pub(super) const RATE_AT: usize = 8;
/// The offset of the default class in `struct tc_htb_glob`.
pub(super) const HTB_DEFAULT_CLASS_AT: usize = 8;
pub(super) const HTB_CEIL64: u16 = 7;
/// The offset of the ceiling's rate in `struct tc_htb_opt`.
pub(super) const CEIL_AT: usize = 20;

/// A qdisc or a class, as a dump lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) interface: u32,
    pub(super) handle: u32,
    pub(super) parent: u32,
    pub(super) kind: String,
    pub(super) options: Vec<u8>,
    pub(super) has_size_table: bool,
    /// The priority and protocol of a filter (`tcm_info`), and its chain.
    pub(super) info: u32,
    pub(super) chain: u32,
}

impl Entry {
    #[cfg(test)]
    pub(super) fn made_up(kind: &str, handle: u32, parent: u32, options: Vec<u8>) -> Self {
        Self {
            interface: 2,
            handle,
            parent,
            kind: kind.to_owned(),
            options,
            has_size_table: false,
            info: 0,
            chain: 0,
        }
    }

    pub(super) fn parse(body: &[u8]) -> Result<Self, Failure> {
        let attributes = Attributes::after(body, HEADER_BYTES)?;
        Ok(Self {
            interface: u32_at(body, 4)?,
            handle: u32_at(body, 8)?,
            parent: u32_at(body, 12)?,
            kind: attributes.text(libc::TCA_KIND)?.unwrap_or_default(),
            options: attributes
                .bytes(libc::TCA_OPTIONS)
                .unwrap_or_default()
                .to_vec(),
            has_size_table: attributes.bytes(libc::TCA_STAB).is_some(),
            info: u32_at(body, 16)?,
            chain: attributes.u32(TCA_CHAIN)?.unwrap_or(0),
        })
    }
}

/// A rate in bit/s from a shaper's parameters, at byte `at` of them: 32 bits of bytes per second, or 64 if those are
/// too few.
pub(super) fn rate(
    options: &Attributes<'_>,
    parameters: u16,
    at: usize,
    rate64: u16,
) -> Result<Option<BitRate>, Failure> {
    let Some(parameters) = options.bytes(parameters) else {
        return Ok(None);
    };
    let short = u64::from(u32_at(parameters, at)?);
    let bytes_per_s = options.u64(rate64)?.unwrap_or(short);
    Ok(bytes_per_s.checked_mul(8).map(BitRate::from_bit_per_s))
}
