//! Converts between the kernel's qdisc options (`<linux/pkt_sched.h>`) and tc(8) syntax.

mod htb;
mod mqprio;

use linerate_model::host::{QdiscPart, QdiscPartIs};
use linerate_model::setting::QdiscSpec;
use linerate_model::setting::qdisc_spec::{
    CLASSES_MAX, Ets, Leaves, Named, PRIORITIES, Tbf, Waiting, burst_bytes, burst_ticks,
};
use linerate_model::units::BitRate;

pub(super) use self::htb::global as htb_global;
pub(super) use self::htb::{
    HTB_LEVEL_AT, HTB_OFFLOAD, class, class_options, request_options, without_count,
};
pub(super) use self::mqprio::spec as mqprio_root;
use super::error::Failure;
use super::hexadecimal::from_hex;
use super::message::{Attributes, Request, u16_at, u32_at};
use super::qdisc_entry::{RATE_AT, TBF_PARAMETERS, TBF_RATE64, rate};

pub(super) const TBF_BURST: u16 = 6;
/// `TC_LINKLAYER_ETHERNET`: if it is set explicitly, the kernel does not need a rate table to guess it.
pub(super) const LINKLAYER_ETHERNET: u8 = 1;
/// `struct tc_ratespec`, and `struct tc_tbf_qopt` with two of them.
const RATE_BYTES: usize = 12;
const TBF_BYTES: usize = 36;
pub(super) const ETS_BANDS: u16 = 1;
pub(super) const ETS_STRICT: u16 = 2;
pub(super) const ETS_QUANTA: u16 = 3;
pub(super) const ETS_QUANTA_BAND: u16 = 4;
pub(super) const ETS_MAP: u16 = 5;
pub(super) const ETS_MAP_BAND: u16 = 6;
/// `TCA_FQ_BUCKETS_LOG`, which is a logarithm.
pub(super) const FQ_BUCKETS_LOG: u16 = 8;
/// `CODEL_SHIFT`: times are in units of 1.024 microseconds.
const CODEL_UNIT_NS: u64 = 1 << 10;

/// `TCA_FQ_*`, each 32 bits wide.
pub(super) const FQ: [(&str, u16); 12] = [
    ("limit", 1),
    ("flow_limit", 2),
    ("quantum", 3),
    ("initial_quantum", 4),
    ("pacing", 5),
    ("maxrate", 7),
    ("buckets", FQ_BUCKETS_LOG),
    ("orphan_mask", 10),
    ("low_rate_threshold", 11),
    ("ce_threshold", 12),
    ("timer_slack", 13),
    ("horizon", 14),
];
/// `TCA_FQ_HORIZON_DROP`, one byte.
pub(super) const FQ_HORIZON_DROP: u16 = 15;
const HORIZON_DROP: &str = "horizon_drop";

/// `TCA_FQ_CODEL_*`, each 32 bits wide.
pub(super) const FQ_CODEL: [(&str, u16); 9] = [
    ("target", 1),
    ("limit", 2),
    ("interval", 3),
    ("ecn", 4),
    ("flows", 5),
    ("quantum", 6),
    ("ce_threshold", 7),
    ("drop_batch", 8),
    ("memory_limit", 9),
];
/// The limit of `pfifo` and `bfifo`.
const FIFO_LIMIT: &str = "limit";
/// The times among `TCA_CODEL_*`: as in `fq_codel`.
const CODEL_TIMES: [u16; 3] = [1, 3, 5];
const FQ_CODEL_TIMES: [u16; 3] = [1, 3, 7];

/// The options of a root that is requested by parameters.
pub(super) fn options(qdisc_spec: &QdiscSpec) -> Result<Vec<u8>, Failure> {
    let mut options = Request::new(0, &[]);
    match qdisc_spec {
        QdiscSpec::Tbf(tbf) => put_tbf(&mut options, tbf)?,
        QdiscSpec::Htb(one) => htb::put(&mut options, one),
        QdiscSpec::Mqprio(one) => mqprio::put(&mut options, one),
        QdiscSpec::Mq(_) => {}
        QdiscSpec::Pfifo(named) | QdiscSpec::Bfifo(named) => {
            // `struct tc_fifo_qopt`: without it, the kernel's limit.
            if let Some(limit) = named.get(FIFO_LIMIT) {
                options.put_fixed(&limit.to_ne_bytes());
            }
        }
        QdiscSpec::Ets(ets) => put_ets(&mut options, ets),
        QdiscSpec::Fq(named) => put_fq(&mut options, named),
        QdiscSpec::FqCodel(named) => {
            for (name, kind) in FQ_CODEL {
                if let Some(number) = named.get(name) {
                    options.put_u32(kind, *number);
                }
            }
        }
    }
    Ok(options.into_body())
}

fn out_of_range(what: &str) -> Failure {
    Failure::BadInput(format!("the shaper's {what} is out of range"))
}

/// `struct tc_ratespec`; a rate above 32 bits has its own attribute.
fn rate_bytes(rate: BitRate) -> ([u8; RATE_BYTES], Option<u64>) {
    let per_s = rate.as_bit_per_s() / 8;
    let mut bytes = [0; RATE_BYTES];
    bytes[1] = LINKLAYER_ETHERNET;
    let short = u32::try_from(per_s).unwrap_or(u32::MAX);
    bytes[RATE_AT..].copy_from_slice(&short.to_ne_bytes());
    let long = u32::try_from(per_s).is_err().then_some(per_s);
    (bytes, long)
}

/// `TCA_OPTIONS` of a token bucket filter: `struct tc_tbf_qopt` and attributes for values above 32 bits.
fn put_tbf(options: &mut Request, tbf: &Tbf) -> Result<(), Failure> {
    let ticks = burst_ticks(tbf.burst, tbf.rate).ok_or_else(|| out_of_range("burst"))?;
    let limit = tbf.limit_bytes().ok_or_else(|| out_of_range("limit"))?;
    let (rate, long) = rate_bytes(tbf.rate);
    let mut parameters = rate.to_vec();
    parameters.extend_from_slice(&[0; RATE_BYTES]); // no peak rate
    for word in [limit, ticks, 0] {
        parameters.extend_from_slice(&word.to_ne_bytes());
    }
    options.put(TBF_PARAMETERS, &parameters);
    options.put_u32(TBF_BURST, tbf.burst);
    if let Some(long) = long {
        options.put(TBF_RATE64, &long.to_ne_bytes());
    }
    Ok(())
}

fn put_ets(options: &mut Request, ets: &Ets) {
    options.put(ETS_BANDS, &[ets.bands]);
    if ets.strict > 0 {
        options.put(ETS_STRICT, &[ets.strict]);
    }
    if !ets.quanta.is_empty() {
        options.nest(ETS_QUANTA, |quanta| {
            for quantum in &ets.quanta {
                quanta.put_u32(ETS_QUANTA_BAND, *quantum);
            }
        });
    }
    if !ets.map.is_empty() {
        options.nest(ETS_MAP, |map| {
            for band in &ets.map {
                map.put(ETS_MAP_BAND, &[*band]);
            }
        });
    }
}

fn put_fq(options: &mut Request, named: &Named) {
    for (name, kind) in FQ {
        match named.get(name) {
            Some(buckets) if kind == FQ_BUCKETS_LOG => {
                options.put_u32(kind, buckets.checked_ilog2().unwrap_or(0));
            }
            Some(number) => {
                options.put_u32(kind, *number);
            }
            None => {}
        }
    }
    if let Some(drop) = named.get(HORIZON_DROP) {
        options.put(FQ_HORIZON_DROP, &[u8::from(*drop != 0)]);
    }
}

/// A root in tc(8) syntax, with `below` it: nothing if that does not describe it completely. For an `htb` without a
/// class it describes the root alone, which is incomplete as a request.
pub(super) fn words(
    kind: &str,
    handle: u32,
    options: &[u8],
    below: &[QdiscPart],
) -> Result<String, Failure> {
    let spec = match kind {
        "htb" => htb::spec(handle, options, below)?.map(QdiscSpec::Htb),
        "mqprio" => match (mqprio::spec(options)?, leaves(handle, below)?) {
            (Some(mut mqprio), Some(leaves)) => {
                mqprio.leaves = leaves;
                Some(QdiscSpec::Mqprio(mqprio))
            }
            _ => None,
        },
        "mq" if !below.is_empty() => leaves(handle, below)?.map(QdiscSpec::Mq),
        kind if below.is_empty() => spec(kind, options)?,
        _ => None,
    };
    Ok(spec.map_or_else(String::new, |spec| spec.to_string()))
}

/// A qdisc without classes of its own; none if its parameters are not all in tc(8) syntax.
fn spec(kind: &str, options: &[u8]) -> Result<Option<QdiscSpec>, Failure> {
    Ok(match kind {
        "tbf" => tbf(options)?.map(QdiscSpec::Tbf),
        "ets" => ets(options)?.map(QdiscSpec::Ets),
        "fq" => Some(QdiscSpec::Fq(fq(options)?)),
        "fq_codel" => {
            let options = Attributes::parse(options)?;
            Some(QdiscSpec::FqCodel(numbers(&options, &FQ_CODEL)?))
        }
        "pfifo" => Some(QdiscSpec::Pfifo(fifo(options)?)),
        "bfifo" => Some(QdiscSpec::Bfifo(fifo(options)?)),
        _ => None,
    })
}

fn fifo(options: &[u8]) -> Result<Named, Failure> {
    Ok(Named::from([(FIFO_LIMIT, u32_at(options, 0)?)]))
}

/// A leaf; none if words do not describe it.
pub(super) fn leaf(part: &QdiscPart) -> Result<Option<QdiscSpec>, Failure> {
    if part.is != QdiscPartIs::Qdisc || part.kind == "ets" {
        return Ok(None);
    }
    spec(&part.kind, &from_hex(&part.options)?)
}

/// The leaves of a root's queues; none if that is not all that is below it.
fn leaves(handle: u32, below: &[QdiscPart]) -> Result<Option<Leaves>, Failure> {
    let mut leaves = Leaves::new();
    for part in below {
        let (Some(minor), Some(leaf)) = (minor_below(handle, part.parent), leaf(part)?) else {
            return Ok(None);
        };
        leaves.insert(minor, leaf);
    }
    Ok(Some(leaves))
}

/// The minor number of a class of the qdisc `handle`.
fn minor_below(handle: u32, class: u32) -> Option<u16> {
    let is_own = class & 0xffff_0000 == handle;
    u16::try_from(class & 0xffff)
        .ok()
        .filter(|minor| is_own && *minor != 0)
}

/// Whether a `struct tc_ratespec` has only a rate (no overhead, minimum packet size or cell size).
fn is_plain(rate: Option<&[u8]>) -> bool {
    rate.is_some_and(|rate| rate.len() >= RATE_AT && rate[1] & 0xf <= LINKLAYER_ETHERNET)
        && rate.is_some_and(|rate| rate[2..4] == [0; 2] && rate[6..8] == [0; 2])
}

fn tbf(options: &[u8]) -> Result<Option<Tbf>, Failure> {
    let options = Attributes::parse(options)?;
    let parameters = options.bytes(TBF_PARAMETERS).unwrap_or_default();
    let Some(rate) = rate(&options, TBF_PARAMETERS, RATE_AT, TBF_RATE64)? else {
        return Ok(None);
    };
    let has_peak = u32_at(parameters, RATE_BYTES + RATE_AT)? != 0;
    let burst = burst_bytes(u32_at(parameters, TBF_BYTES - 8)?, rate);
    if has_peak || !is_plain(parameters.get(..RATE_BYTES)) || rate.as_bit_per_s() == 0 {
        return Ok(None);
    }
    let limit = u32_at(parameters, TBF_BYTES - 12)?;
    Ok(burst.map(|burst| Tbf {
        rate,
        burst,
        queue: Waiting::Limit(limit),
    }))
}

fn ets(options: &[u8]) -> Result<Option<Ets>, Failure> {
    let options = Attributes::parse(options)?;
    let byte = |kind| options.bytes(kind).and_then(<[u8]>::first).copied();
    let Some(bands) = byte(ETS_BANDS) else {
        return Ok(None);
    };
    let quanta = options.nest(ETS_QUANTA)?;
    let quanta = quanta.iter().map(|(_, quantum)| u32_at(quantum, 0));
    let map = options.nest(ETS_MAP)?;
    let map = map.iter().filter_map(|(_, band)| band.first().copied());
    Ok(Some(Ets {
        bands,
        strict: byte(ETS_STRICT).unwrap_or(0),
        quanta: quanta.take(CLASSES_MAX).collect::<Result<_, _>>()?,
        map: map.take(PRIORITIES).collect(),
    }))
}

fn numbers(options: &Attributes<'_>, kinds: &[(&'static str, u16)]) -> Result<Named, Failure> {
    let mut named = Named::new();
    for (name, kind) in kinds {
        if let Some(number) = options.u32(*kind)? {
            named.insert(name, number);
        }
    }
    Ok(named)
}

fn fq(options: &[u8]) -> Result<Named, Failure> {
    let options = Attributes::parse(options)?;
    let mut named = numbers(&options, &FQ)?;
    if let Some(log) = named.get("buckets").copied() {
        named.insert("buckets", 1u32.checked_shl(log).unwrap_or(0));
    }
    // No limit, and no threshold.
    named
        .retain(|name, number| !matches!(*name, "maxrate" | "ce_threshold") || *number != u32::MAX);
    if let Some(drop) = options.switch(FQ_HORIZON_DROP)? {
        named.insert(HORIZON_DROP, u32::from(drop));
    }
    Ok(named)
}

/// Options that were read, adjusted so that setting them reads back the same: `codel` rounds a time down when it is
/// set and again when it is dumped, so that each time round it would be shorter.
pub(super) fn asked_again(kind: &str, mut options: Vec<u8>) -> Vec<u8> {
    let times = match kind {
        "fq_codel" => FQ_CODEL_TIMES,
        "codel" => CODEL_TIMES,
        _ => return options,
    };
    let mut at = 0;
    while let (Ok(length), Ok(kind)) = (u16_at(&options, at), u16_at(&options, at + 2)) {
        if let (8, true, Ok(told)) = (length, times.contains(&kind), u32_at(&options, at + 4)) {
            let units = (u64::from(told) * 1_000).div_ceil(CODEL_UNIT_NS);
            let again = (units * CODEL_UNIT_NS).div_ceil(1_000);
            let again = u32::try_from(again).unwrap_or(told).to_ne_bytes();
            options[at + 4..at + 8].copy_from_slice(&again);
        }
        at += usize::from(length).max(4).next_multiple_of(4);
    }
    options
}

#[cfg(test)]
mod tests;
