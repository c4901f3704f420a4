//! What the records of a run say. Everything here can be computed again from a stored run.

use linerate_model::analysis::{rate_after, rate_series};
use linerate_model::ceiling::{Ceiling, PathCeilings, PathFacts, ceilings_of_path, share};
use linerate_model::finding::Diagnosis;
use linerate_model::host::{Host, Nic};
use linerate_model::limit::{Limit, name_limit};
use linerate_model::plan::End;
use linerate_model::prove::{
    CeilingDocument, EffectDocument, EndChange, LimitDocument, ProveDocument, Rate, RemedyResult,
    SCHEMA,
};
use linerate_model::sample::{Flag, Sample};
use linerate_model::setting::{NicKnob, SettingKey, current};
use linerate_model::units::{BitRate, Ratio};
use linerate_stats::Seed;
use linerate_stats::effect::paired_relative;
use linerate_stats::summary::{median, median_interval};
use linerate_stats::warmup;

use crate::store::{Arm, Header, Record};

/// The level of every interval.
pub const LEVEL: f64 = 0.95;

fn warm_up(sample: &Sample) -> warmup::Warmup {
    let rates: Vec<f64> = rate_series(sample)
        .total
        .iter()
        .map(|point| point.bit_per_s.as_f64())
        .collect();
    warmup::cut(&rates)
}

/// How many leading intervals of a trial are warm-up.
pub fn first_kept(sample: &Sample) -> usize {
    warm_up(sample).first_kept
}

/// The flag of a trial whose rate was still moving, or of which too little is known to say.
pub fn settling_flag(sample: &Sample) -> Option<Flag> {
    (!warm_up(sample).settled).then_some(Flag::NotSettled)
}

/// The rate of a trial after its warm-up, as the receivers counted it.
pub fn rate_of(sample: &Sample) -> Option<BitRate> {
    rate_after(sample, first_kept(sample))
}

/// The median of some rates with its interval.
pub fn rate_document(samples: &[&Sample]) -> Rate {
    let rates: Vec<f64> = samples
        .iter()
        .filter_map(|s| rate_of(s))
        .map(BitRate::as_f64)
        .collect();
    let middle = median(&rates).unwrap_or(f64::NAN);
    let (low, high) = median_interval(&rates, LEVEL)
        .map_or((middle, middle), |interval| (interval.low, interval.high));
    let costs: Vec<f64> = samples
        .iter()
        .filter_map(|sample| cpu_s_per_gb(sample))
        .collect();
    Rate {
        rate_bit_per_s: middle,
        low_bit_per_s: low,
        high_bit_per_s: high,
        trials: rates.len(),
        cpu_s_per_gb: median(&costs).ok(),
    }
}

/// CPU seconds of linerate's threads on both ends per gigabyte moved.
fn cpu_s_per_gb(sample: &Sample) -> Option<f64> {
    use linerate_model::analysis::{cost_of_local, cost_of_remote};
    Some(cost_of_local(sample).s_per_gb? + cost_of_remote(sample).s_per_gb?)
}

/// A line that tells a person what some trials gave.
pub fn rates_in_words(rates: &[f64]) -> String {
    let Ok(middle) = median(rates) else {
        return "no rate could be told".to_owned();
    };
    let word = |rate| BitRate::from_f64(rate).map_or_else(|| "?".to_owned(), |r| r.to_string());
    match median_interval(rates, LEVEL) {
        Ok(interval) => format!(
            "{} (95 % interval {} to {}, {} trials)",
            word(middle),
            word(interval.low),
            word(interval.high),
            rates.len()
        ),
        Err(_) => format!("{} ({} trials)", word(middle), rates.len()),
    }
}

/// The pairs of a remedy's experiment, (without, with), in the order they were made.
pub fn pairs_of(records: &[Record], remedy: usize) -> Vec<(f64, f64)> {
    let rate = |wanted_pair: u32, wanted_arm: Arm| {
        records.iter().find_map(|record| match record {
            Record::Paired {
                remedy: r,
                pair,
                arm,
                sample,
            } if *r == remedy && *pair == wanted_pair && *arm == wanted_arm => {
                rate_of(sample).map(BitRate::as_f64)
            }
            _ => None,
        })
    };
    let pairs = records.iter().filter_map(|record| match record {
        Record::Paired {
            remedy: r,
            pair,
            arm: Arm::With,
            ..
        } if *r == remedy => Some(*pair),
        _ => None,
    });
    pairs
        .filter_map(|pair| Some((rate(pair, Arm::Without)?, rate(pair, Arm::With)?)))
        .collect()
}

/// The effect of a remedy, as far as its pairs tell.
pub fn effect_of(records: &[Record], remedy: usize, seed: u64) -> Option<EffectDocument> {
    let effect = paired_relative(&pairs_of(records, remedy), LEVEL, Seed(seed)).ok()?;
    Some(EffectDocument {
        relative: effect.relative,
        low: effect.interval.low,
        high: effect.interval.high,
        level: effect.interval.level,
        pairs: effect.pairs,
        smallest_detectable: effect.smallest_detectable,
    })
}

/// A line that tells a person what an experiment said.
pub fn effect_in_words(effect: Option<&EffectDocument>, changes: &[EndChange]) -> String {
    let what: Vec<String> = changes
        .iter()
        .map(|EndChange { end, change }| format!("{end} {change}"))
        .collect();
    let Some(effect) = effect else {
        return format!("no effect could be told ({})", what.join("; "));
    };
    let signed = |value: f64| format!("{:+.1} %", value * 100.0);
    let verdict = if effect.low > 0.0 {
        "kept".to_owned()
    } else {
        format!(
            "undone; {} would have been seen",
            signed(effect.smallest_detectable)
        )
    };
    format!(
        "{} [{}, {}], {verdict} ({})",
        signed(effect.relative),
        signed(effect.low),
        signed(effect.high),
        what.join("; ")
    )
}

/// The settings of an end that are not as they were. Only what a setting can change is compared: where
/// an interrupt was delivered last, or how many packets passed, is nobody's doing.
pub fn moved_settings(before: &Host, after: &Host, end: End) -> Vec<(End, SettingKey)> {
    let mut moved: Vec<(End, SettingKey)> = Vec::new();
    let mut compare = |key: SettingKey| {
        if current(before, &key).value() != current(after, &key).value() {
            moved.push((end, key));
        }
    };
    for name in before.sysctls.keys() {
        compare(SettingKey::Sysctl(name.clone()));
    }
    for nic in &before.nics {
        for knob in knobs_of(nic) {
            compare(SettingKey::Nic(nic.name.clone(), knob));
        }
    }
    moved
}

/// Every knob that linerate could turn on an interface.
fn knobs_of(nic: &Nic) -> Vec<NicKnob> {
    use linerate_model::host::QueueKind::{Rx, Tx};
    let mut knobs = vec![
        NicKnob::Mtu,
        NicKnob::Qdisc,
        NicKnob::RingRx,
        NicKnob::RingTx,
        NicKnob::ChannelsCombined,
        NicKnob::ChannelsRx,
        NicKnob::ChannelsTx,
        NicKnob::CoalesceRxUsecs,
        NicKnob::CoalesceTxUsecs,
        NicKnob::CoalesceAdaptiveRx,
    ];
    let features = nic.features.value().into_iter().flatten();
    knobs.extend(features.map(|(name, _)| NicKnob::Feature(name.clone())));
    for queue in &nic.queues {
        match queue.kind {
            Rx => knobs.extend([
                NicKnob::RpsCpus(queue.index),
                NicKnob::RpsFlowCnt(queue.index),
            ]),
            Tx => knobs.push(NicKnob::XpsCpus(queue.index)),
        }
    }
    knobs
}

/// A run's records, sorted by what they are.
#[derive(Debug, Default)]
pub struct Sorted<'a> {
    /// Both hosts before anything was done.
    pub hosts: Option<(&'a Host, &'a Host)>,
    /// Trials before any change.
    pub before: Vec<&'a Sample>,
    /// Trials with every kept remedy.
    pub after: Vec<&'a Sample>,
    /// What the rules said, first to last.
    pub diagnoses: Vec<&'a Diagnosis>,
    /// Each remedy: rule, changes, what was decided.
    pub remedies: Vec<SortedRemedy<'a>>,
    /// Whether both hosts are as they were found.
    pub restored: bool,
    /// What the demo planted.
    pub planted: Vec<String>,
}

/// One remedy's records.
#[derive(Debug)]
pub struct SortedRemedy<'a> {
    /// The rule that proposed it.
    pub rule: &'a str,
    /// What it changes.
    pub changes: &'a [EndChange],
    /// Whether it was kept.
    pub kept: bool,
    /// Why it could not be tried.
    pub note: Option<&'a str>,
}

/// Sorts a run's records.
pub fn sort(records: &[Record]) -> Sorted<'_> {
    let mut sorted = Sorted::default();
    for record in records {
        match record {
            Record::Hosts { local, remote } => sorted.hosts = Some((local, remote)),
            Record::Before(sample) => sorted.before.push(sample),
            Record::After(sample) => sorted.after.push(sample),
            Record::Diagnosis(diagnosis) => sorted.diagnoses.push(diagnosis),
            Record::Remedy { rule, changes, .. } => {
                sorted.remedies.push(SortedRemedy {
                    rule,
                    changes,
                    kept: false,
                    note: None,
                });
            }
            Record::Decided { remedy, kept, note } => {
                if let Some(sorted) = sorted.remedies.get_mut(*remedy) {
                    sorted.kept = *kept;
                    sorted.note = note.as_deref();
                }
            }
            Record::Ended { restored, .. } => sorted.restored = *restored,
            Record::Planted(rules) => sorted.planted.clone_from(rules),
            Record::Paired { .. } | Record::Stopped(_) => {}
        }
    }
    sorted
}

/// The ceilings of a run's path, with one of its trials in view.
pub fn ceilings(header: &Header, sorted: &Sorted<'_>, sample: Option<&Sample>) -> PathCeilings {
    let (Some((local, remote)), Some(spec)) = (
        sorted.hosts,
        sorted.before.first().map(|sample| &sample.spec),
    ) else {
        return PathCeilings::default();
    };
    ceilings_of_path(&PathFacts {
        local,
        local_nic: &header.local_nic,
        remote,
        remote_nic: &header.remote_nic,
        flows: spec.flows,
        direction: spec.direction,
        copy_bandwidth: header.copy_bit_per_s.map(BitRate::from_bit_per_s),
        sample,
    })
}

/// The trial whose rate is the median of `samples`.
pub fn median_sample<'a>(samples: &[&'a Sample]) -> Option<&'a Sample> {
    let mut rated: Vec<(BitRate, &Sample)> = samples
        .iter()
        .filter_map(|sample| Some((rate_of(sample)?, *sample)))
        .collect();
    rated.sort_by_key(|(rate, _)| *rate);
    rated.get(rated.len() / 2).map(|(_, sample)| *sample)
}

/// What limited the path before any change.
pub fn limit_of(header: &Header, sorted: &Sorted<'_>) -> Option<Limit> {
    let sample = median_sample(&sorted.before)?;
    let (local, remote) = sorted.hosts?;
    let ceilings = ceilings(header, sorted, Some(sample));
    Some(name_limit(
        sample,
        local,
        remote,
        &ceilings.ceilings,
        rate_of(sample)?,
    ))
}

/// The document of a run.
pub fn document(header: &Header, records: &[Record]) -> ProveDocument {
    let sorted = sort(records);
    let after = if sorted.after.is_empty() {
        &sorted.before
    } else {
        &sorted.after
    };
    let ceilings = ceilings_after(header, &sorted);
    let rate_after = rate_document(after);
    let remedies: Vec<RemedyResult> = sorted
        .remedies
        .iter()
        .enumerate()
        .map(|(index, remedy)| remedy_result(header, records, index, remedy))
        .collect();
    let limit = limit_of(header, &sorted);
    let found = found(&remedies, limit.as_ref());
    ProveDocument {
        schema: SCHEMA.to_owned(),
        before: rate_document(&sorted.before),
        ceiling: ceiling_document(ceilings.lowest(), rate_after.rate_bit_per_s),
        after: rate_after,
        limit: limit_document(limit),
        findings: sorted
            .diagnoses
            .first()
            .map(|first| first.findings.clone())
            .unwrap_or_default(),
        remedies,
        restored: sorted.restored,
        planted: sorted.planted,
        found,
        seed: header.seed,
        run: None,
        report: None,
    }
}

/// The ceilings of the path as the kept remedies leave it. The hosts in the records are those from
/// before any change, so what was kept is put into them first.
fn ceilings_after(header: &Header, sorted: &Sorted<'_>) -> PathCeilings {
    let Some((local, remote)) = sorted.hosts else {
        return PathCeilings::default();
    };
    let (mut local, mut remote) = (local.clone(), remote.clone());
    for remedy in sorted.remedies.iter().filter(|remedy| remedy.kept) {
        for EndChange { end, change } in remedy.changes {
            let host = if *end == End::Local {
                &mut local
            } else {
                &mut remote
            };
            linerate_model::setting::put(host, &change.setting, &change.to);
        }
    }
    let changed = Sorted {
        hosts: Some((&local, &remote)),
        before: sorted.before.clone(),
        ..Sorted::default()
    };
    let samples = if sorted.after.is_empty() {
        &sorted.before
    } else {
        &sorted.after
    };
    ceilings(header, &changed, median_sample(samples))
}

fn ceiling_document(ceiling: Option<&Ceiling>, rate: f64) -> CeilingDocument {
    let Some(ceiling) = ceiling else {
        return CeilingDocument {
            bit_per_s: None,
            share: None,
            reason: "no bound of this path could be computed".to_owned(),
        };
    };
    let reached = BitRate::from_f64(rate).and_then(|rate| share(rate, ceiling.bit_per_s));
    CeilingDocument {
        bit_per_s: Some(ceiling.bit_per_s.as_f64()),
        share: reached.map(Ratio::as_f64),
        reason: ceiling.reason.clone(),
    }
}

fn limit_document(limit: Option<Limit>) -> LimitDocument {
    limit.map_or_else(
        || LimitDocument {
            what: "not determined".to_owned(),
            evidence: Vec::new(),
        },
        |limit| LimitDocument {
            what: limit.what.to_string(),
            evidence: limit.evidence,
        },
    )
}

fn remedy_result(
    header: &Header,
    records: &[Record],
    index: usize,
    remedy: &SortedRemedy<'_>,
) -> RemedyResult {
    let first = remedy.changes.first();
    let word = |pick: fn(&EndChange) -> String| first.map(pick).unwrap_or_default();
    RemedyResult {
        rule: remedy.rule.to_owned(),
        end: first.map_or(End::Local, |change| change.end),
        setting: word(|c| c.change.setting.to_string()),
        from: word(|c| c.change.from.to_string()),
        to: word(|c| c.change.to.to_string()),
        changes: remedy.changes.to_vec(),
        effect: effect_of(records, index, header.seed),
        kept: remedy.kept,
        note: remedy.note.map(ToOwned::to_owned),
        pairs_bit_per_s: pairs_of(records, index),
    }
}

/// The rules whose remedy's interval lies above zero, and the rule of the named limit.
fn found(remedies: &[RemedyResult], limit: Option<&Limit>) -> Vec<String> {
    let helped = |remedy: &&RemedyResult| remedy.effect.as_ref().is_some_and(|e| e.low > 0.0);
    let mut found: Vec<String> = remedies
        .iter()
        .filter(helped)
        .map(|remedy| remedy.rule.clone())
        .collect();
    if let Some(rule) = limit.and_then(|limit| limit.rule.clone()) {
        found.push(rule);
    }
    found.sort();
    found.dedup();
    found
}
