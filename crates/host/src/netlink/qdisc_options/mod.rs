//! Converts between the kernel's qdisc options (`<linux/pkt_sched.h>`) and tc(8) syntax.

use linerate_model::setting::QdiscSpec;
use linerate_model::setting::qdisc_spec::{
    CLASSES_MAX, Ets, Htb, Mqprio, Named, PRIORITIES, Tbf, Waiting, burst_bytes, burst_ticks,
};
use linerate_model::units::BitRate;

use super::error::Failure;
use super::message::{Attributes, Request, u16_at, u32_at};
use super::qdisc_entry::{
    CEIL_AT, Entry, HTB_CEIL64, HTB_DEFAULT_CLASS_AT, HTB_INIT, HTB_PARAMETERS, HTB_RATE64,
    RATE_AT, TBF_PARAMETERS, TBF_RATE64, rate,
};

pub(super) const TBF_BURST: u16 = 6;
/// `TC_LINKLAYER_ETHERNET`: if it is set explicitly, the kernel does not need a rate table to guess it.
pub(super) const LINKLAYER_ETHERNET: u8 = 1;
/// `struct tc_ratespec`, and `struct tc_tbf_qopt` with two of them.
const RATE_BYTES: usize = 12;
const TBF_BYTES: usize = 36;
/// `HTB_VER` of sch_htb.c, in the upper half of the version.
const HTB_VERSION: u32 = 3;
/// `struct tc_htb_glob`, and the offset of its packet counter.
const HTB_GLOBAL_BYTES: usize = 20;
const HTB_DIRECT_AT: usize = 16;
pub(super) const HTB_OFFLOAD: u16 = 9;
/// `struct tc_htb_opt`.
const HTB_BYTES: usize = 44;
pub(super) const ETS_BANDS: u16 = 1;
pub(super) const ETS_STRICT: u16 = 2;
pub(super) const ETS_QUANTA: u16 = 3;
pub(super) const ETS_QUANTA_BAND: u16 = 4;
pub(super) const ETS_MAP: u16 = 5;
pub(super) const ETS_MAP_BAND: u16 = 6;
/// `struct tc_mqprio_qopt`, and the offsets of its arrays.
const MQPRIO_BYTES: usize = 82;
const MQPRIO_HARDWARE_AT: usize = 17;
const MQPRIO_COUNT_AT: usize = 18;
const MQPRIO_OFFSET_AT: usize = 50;
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
/// The times among `TCA_CODEL_*`: as in `fq_codel`.
const CODEL_TIMES: [u16; 3] = [1, 3, 5];
const FQ_CODEL_TIMES: [u16; 3] = [1, 3, 7];

/// The options of a root that is requested by parameters.
pub(super) fn options(qdisc_spec: &QdiscSpec) -> Result<Vec<u8>, Failure> {
    let mut options = Request::new(0, &[]);
    match qdisc_spec {
        QdiscSpec::Tbf(tbf) => put_tbf(&mut options, tbf)?,
        QdiscSpec::Htb(htb) => {
            let words = [
                HTB_VERSION,
                htb.rate_to_quantum,
                u32::from(htb.default),
                0,
                0,
            ];
            options.put(HTB_INIT, &words.map(u32::to_ne_bytes).concat());
        }
        QdiscSpec::Mqprio(mqprio) => {
            options.put_fixed(&mqprio_bytes(mqprio));
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

/// The options of the only class of `htb`.
pub(super) fn class_options(htb: &Htb) -> Result<Vec<u8>, Failure> {
    let ((rate, long), (ceil, long_ceil)) = (rate_bytes(htb.rate), rate_bytes(htb.ceil));
    let ticks = |word, rate| burst_ticks(htb.burst(word), rate).ok_or_else(|| out_of_range(word));
    let named = |word: &str| htb.class.get(word).copied().unwrap_or(0);
    let mut parameters = [rate, ceil].concat();
    for word in [
        ticks("burst", htb.rate)?,
        ticks("cburst", htb.ceil)?,
        named("quantum"), // with 0 the kernel reckons it
        0,                // its level is told, not asked for
        named("prio"),
    ] {
        parameters.extend_from_slice(&word.to_ne_bytes());
    }
    let mut options = Request::new(0, &[]);
    options.put(HTB_PARAMETERS, &parameters);
    for (kind, long) in [(HTB_RATE64, long), (HTB_CEIL64, long_ceil)] {
        if let Some(long) = long {
            options.put(kind, &long.to_ne_bytes());
        }
    }
    Ok(options.into_body())
}

fn mqprio_bytes(mqprio: &Mqprio) -> Vec<u8> {
    let mut bytes = vec![0; MQPRIO_BYTES];
    bytes[0] = mqprio.classes;
    bytes[1..=PRIORITIES].copy_from_slice(&mqprio.map);
    bytes[MQPRIO_HARDWARE_AT] = u8::from(mqprio.in_hardware);
    for (class, (count, offset)) in mqprio.queues.iter().take(CLASSES_MAX).enumerate() {
        for (at, number) in [(MQPRIO_COUNT_AT, count), (MQPRIO_OFFSET_AT, offset)] {
            let at = at + 2 * class;
            bytes[at..at + 2].copy_from_slice(&number.to_ne_bytes());
        }
    }
    bytes
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

/// A root in tc(8) syntax: nothing if that does not describe it completely. For an `htb` without a class it describes
/// the root alone, which is incomplete as a request.
pub(super) fn words(root: &Entry, classes: &[Entry]) -> Result<String, Failure> {
    let options = &root.options;
    let qdisc_spec = match root.kind.as_str() {
        "tbf" => tbf(options)?.map(QdiscSpec::Tbf),
        "htb" if classes.is_empty() => {
            return Ok(
                htb_global(options)?.map_or_else(String::new, |(_, default)| {
                    format!("htb default {default:x}")
                }),
            );
        }
        "htb" => htb(root, classes)?.map(QdiscSpec::Htb),
        "mqprio" => mqprio(options)?.map(QdiscSpec::Mqprio),
        "ets" => ets(options)?.map(QdiscSpec::Ets),
        "fq" => Some(QdiscSpec::Fq(fq(options)?)),
        "fq_codel" => {
            let options = Attributes::parse(options)?;
            Some(QdiscSpec::FqCodel(numbers(&options, &FQ_CODEL)?))
        }
        _ => None,
    };
    Ok(qdisc_spec.map_or_else(String::new, |qdisc_spec| qdisc_spec.to_string()))
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

/// A root's `r2q` and its default class; nothing if it is offloaded.
fn htb_global(options: &[u8]) -> Result<Option<(u32, u16)>, Failure> {
    let options = Attributes::parse(options)?;
    let Some(global) = options.bytes(HTB_INIT) else {
        return Ok(None);
    };
    let default = u32_at(global, HTB_DEFAULT_CLASS_AT)?;
    let is_ours = options.bytes(HTB_OFFLOAD).is_none() && default != 0;
    let default = u16::try_from(default).ok().filter(|_| is_ours);
    let divisor = u32_at(global, 4)?;
    Ok(default.map(|default| (divisor, default)))
}

/// A root with a single default class.
fn htb(root: &Entry, classes: &[Entry]) -> Result<Option<Htb>, Failure> {
    let [class] = classes else { return Ok(None) };
    let Some((rate_to_quantum, default)) = htb_global(&root.options)? else {
        return Ok(None);
    };
    if class.handle != root.handle | u32::from(default) {
        return Ok(None);
    }
    let options = Attributes::parse(&class.options)?;
    let parameters = options.bytes(HTB_PARAMETERS).unwrap_or_default();
    let rates = (
        rate(&options, HTB_PARAMETERS, RATE_AT, HTB_RATE64)?,
        rate(&options, HTB_PARAMETERS, CEIL_AT, HTB_CEIL64)?,
    );
    let (Some(rate), Some(ceil)) = rates else {
        return Ok(None);
    };
    let plain = [0, RATE_BYTES].map(|at| is_plain(parameters.get(at..at + RATE_BYTES)));
    if plain != [true; 2] || options.bytes(HTB_OFFLOAD).is_some() {
        return Ok(None);
    }
    let word = |from_end: usize| u32_at(parameters, HTB_BYTES - 4 * from_end);
    let bursts = (burst_bytes(word(5)?, rate), burst_bytes(word(4)?, ceil));
    let (Some(burst), Some(cburst)) = bursts else {
        return Ok(None);
    };
    let class = Named::from([
        ("burst", burst),
        ("cburst", cburst),
        ("quantum", word(3)?),
        ("prio", word(1)?),
    ]);
    Ok(Some(Htb {
        default,
        rate_to_quantum,
        rate,
        ceil,
        class,
    }))
}

/// The options of `htb` without their counters, for comparing two readings.
pub(super) fn without_count(mut options: Vec<u8>) -> Vec<u8> {
    let mut at = 0;
    while let (Ok(length), Ok(kind)) = (u16_at(&options, at), u16_at(&options, at + 2)) {
        let payload = at + 4;
        let is_whole = usize::from(length) >= 4 + HTB_GLOBAL_BYTES;
        if kind == HTB_INIT && is_whole {
            let count = payload + HTB_DIRECT_AT;
            if let Some(count) = options.get_mut(count..count + 4) {
                count.fill(0);
            }
        }
        at += usize::from(length).max(4).next_multiple_of(4);
    }
    options
}

fn mqprio(options: &[u8]) -> Result<Option<Mqprio>, Failure> {
    // Followed by the modes, shapers and rates of classes.
    let Some(bytes) = options.get(..MQPRIO_BYTES) else {
        return Ok(None);
    };
    let behind = Attributes::after(options, MQPRIO_BYTES)?;
    let classes = bytes[0];
    let map = <[u8; PRIORITIES]>::try_from(&bytes[1..=PRIORITIES]).ok();
    let named = usize::from(classes);
    if behind.iter().any(|(kind, _)| MQPRIO_MORE.contains(&kind)) || named > CLASSES_MAX {
        return Ok(None);
    }
    let queues = (0..named).map(|class| {
        let count = u16_at(bytes, MQPRIO_COUNT_AT + 2 * class)?;
        Ok((count, u16_at(bytes, MQPRIO_OFFSET_AT + 2 * class)?))
    });
    let queues = queues.collect::<Result<Vec<_>, Failure>>()?;
    Ok(map.map(|map| Mqprio {
        map,
        queues,
        classes,
        in_hardware: bytes[MQPRIO_HARDWARE_AT] != 0,
    }))
}

/// `TCA_MQPRIO_MODE`, `_SHAPER`, `_MIN_RATE64` and `_MAX_RATE64`.
const MQPRIO_MORE: [u16; 4] = [1, 2, 3, 4];

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
