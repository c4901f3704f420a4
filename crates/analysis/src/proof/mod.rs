//! Derives results from the records of a run. Everything here can be recomputed from a stored run.

mod search;
mod staged;

use std::collections::BTreeSet;

use linerate_model::analysis::{other_work, s_per_gb};
use linerate_model::ceiling::{Ceiling, PathCeilings, PathFacts, ceilings_of_path, share};
use linerate_model::factor::Factor;
use linerate_model::finding::Diagnosis;
use linerate_model::host::Host;
use linerate_model::limit::why::{Status, Tried, decide};
use linerate_model::limit::{Limit, LimitKind, name_limit};
use linerate_model::plan::End;
use linerate_model::propose::{GIVEN, name_of};
use linerate_model::prove::{
    CeilingDocument, EffectDocument, EndChange, GuardDocument, LimitDocument, ProveDocument, Rate,
    RemedyResult, SCHEMA,
};
use linerate_model::sample::Sample;
use linerate_model::setting::{Class, NicKnob, Scope, SettingKey, current};
use linerate_model::units::{BitRate, Ratio};
use linerate_model::workload::Workload;
use linerate_stats::summary::{median, median_interval};

pub use self::staged::{FixTrials, Stages, Verdict};
use crate::record::{Header, Record};
use crate::text::words::{detectable, effect_in_figures, interval_in_figures};
use crate::trial::{LEVEL, rate_of};

/// The median of some rates with its CI.
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
        .filter_map(|sample| s_per_gb(sample))
        .collect();
    Rate {
        rate_bit_per_s: middle,
        low_bit_per_s: low,
        high_bit_per_s: high,
        trials: rates.len(),
        cpu_s_per_gb: median(&costs).ok(),
    }
}

/// A remedy's name in text: its rule, or its setting if the user specified it, and the end that it changes.
pub fn remedy_in_words(rule: &str, changes: &[EndChange]) -> String {
    let name = name_of(rule, changes);
    let of_host = |change: &&EndChange| change.change.setting.spec().scope != Scope::Trial;
    let ends: BTreeSet<End> = changes.iter().filter(of_host).map(|c| c.end).collect();
    let place = match (ends.first(), ends.len()) {
        (None, _) => "test connection".to_owned(),
        (Some(end), 1) => end.to_string(),
        _ => "local+remote".to_owned(),
    };
    // A rule is the name of a fault: what was tested is its fix.
    let fix = if rule == GIVEN { "" } else { "fix " };
    format!("{fix}{name} ({place})")
}

/// The guards that got worse by more than allowed, as text.
pub fn price_in_words(worse: &[GuardDocument]) -> Option<String> {
    let one = |one: &GuardDocument| {
        let (guard, effect) = (one.guard.words(), figures_in_words(&one.effect));
        format!("{guard} {effect}")
    };
    let all: Vec<String> = worse.iter().map(one).collect();
    (!all.is_empty()).then(|| format!("regression: {}", all.join(", ")))
}

/// An effect with its interval.
fn figures_in_words(effect: &EffectDocument) -> String {
    let figures = effect_in_figures(effect);
    match interval_in_figures(effect) {
        Some(interval) => format!("{figures} {interval}"),
        None => figures,
    }
}

/// A line of text with the result of an experiment; `price` is what got worse by more than allowed; the
/// changes themselves are in the verdict.
pub fn effect_in_words(effect: Option<&EffectDocument>, price: Option<&str>) -> String {
    let Some(effect) = effect else {
        return "no effect measured, rolled back".to_owned();
    };
    let verdict = if effect.low > 0.0 {
        price.map_or_else(
            || "faster".to_owned(),
            |price| format!("faster, but {price}; rolled back"),
        )
    } else if effect.high < 0.0 {
        "slower, rolled back".to_owned()
    } else {
        format!(
            "not significant, rolled back; minimum detectable effect {}",
            detectable(effect)
        )
    };
    format!("{} {verdict}", figures_in_words(effect))
}

/// The settings of an end that differ from the baseline. Only what a setting can change is compared: not where
/// an interrupt was delivered last, or how many packets passed. What changes by itself is compared only if it is among
/// `touched`.
pub fn moved_settings(
    before: &Host,
    after: &Host,
    end: End,
    touched: &[(End, SettingKey)],
) -> Vec<(End, SettingKey)> {
    let mut moved: Vec<(End, SettingKey)> = Vec::new();
    let mut compare = |key: SettingKey| {
        let changed = current(before, &key).value() != current(after, &key).value();
        if changed && !moved.contains(&(end, key.clone())) {
            moved.push((end, key));
        }
    };
    for (_, key) in touched.iter().filter(|(of, _)| *of == end) {
        compare(key.clone());
    }
    for name in before.sysctls.keys() {
        compare(SettingKey::Sysctl(name.clone()));
    }
    for nic in &before.nics {
        let knobs = NicKnob::all_of(nic).into_iter();
        for knob in knobs.filter(|knob| !changes_by_itself(knob)) {
            compare(SettingKey::Nic(nic.name.clone(), knob));
        }
    }
    moved
}

/// Daemons change the allowed CPUs of an interrupt all the time; speed and pause are what the link partner agrees to.
fn changes_by_itself(knob: &NicKnob) -> bool {
    matches!(
        knob,
        NicKnob::IrqCpus(..) | NicKnob::LinkSpeed | NicKnob::PauseRx | NicKnob::PauseTx
    )
}

/// A run's records, by kind.
#[derive(Debug, Default)]
pub struct ProofRecords<'a> {
    /// Both hosts before anything was done.
    pub hosts: Option<(&'a Host, &'a Host)>,
    /// Trials before any change.
    pub before: Vec<&'a Sample>,
    /// Trials with every kept remedy.
    pub after: Vec<&'a Sample>,
    /// What was tried to find what limits the path, before any change.
    pub tried_before: &'a [Tried],
    /// The same with every kept remedy.
    pub tried_after: &'a [Tried],
    /// The diagnoses of the rules, first to last.
    pub diagnoses: Vec<&'a Diagnosis>,
    /// Each remedy: rule, changes, decision.
    pub remedies: Vec<SortedRemedy<'a>>,
    /// The trials of the remedies.
    pub stages: Stages<'a>,
    /// Remedies that were deliberately not tried.
    pub held_back: Vec<HeldBack<'a>>,
    /// What a search could vary.
    pub factors: &'a [Factor],
    /// The trials of a search.
    pub explored: Vec<Explored<'a>>,
    /// Why the run stopped before its end.
    pub stopped: Option<&'a str>,
    /// Whether it finished with everything restored or kept.
    pub ended: bool,
    /// Whether both hosts equal their baseline.
    pub restored: bool,
    /// Whether kept remedies stay applied after the run.
    pub keeps: bool,
    /// The injected faults of the demo.
    pub planted: Vec<String>,
}

/// A trial of a search.
#[derive(Debug)]
pub struct Explored<'a> {
    /// The level of each factor.
    pub levels: &'a [usize],
    /// Whether it is one of the screening design's.
    pub screening: bool,
    /// The trial, if those levels could be combined.
    pub sample: Option<&'a Sample>,
}

/// One remedy's records.
#[derive(Debug)]
pub struct SortedRemedy<'a> {
    /// The rule that proposed it.
    pub rule: &'a str,
    /// What it changes.
    pub changes: &'a [EndChange],
    /// The rules of the remedies that were in place in both arms.
    pub beside: &'a [String],
    /// Whether it was kept.
    pub kept: bool,
    /// Why it could not be tried.
    pub note: Option<&'a str>,
    /// Its trials.
    pub trials: FixTrials<'a>,
}

/// A remedy that was advice only.
#[derive(Debug)]
pub struct HeldBack<'a> {
    /// The rule that proposed it.
    pub rule: &'a str,
    /// What it would change.
    pub changes: &'a [EndChange],
    /// Why it was not tried.
    pub class: Class,
}

/// Sorts a run's records by kind.
pub fn sort(records: &[Record]) -> ProofRecords<'_> {
    let mut sorted = ProofRecords::default();
    for record in records {
        sorted.stages.add(record);
        match record {
            Record::Hosts { local, remote } => sorted.hosts = Some((local, remote)),
            Record::Before(sample) => sorted.before.push(sample),
            Record::After(sample) => sorted.after.push(sample),
            Record::Interventions { after, tried } => {
                let place = if *after {
                    &mut sorted.tried_after
                } else {
                    &mut sorted.tried_before
                };
                *place = tried;
            }
            Record::Diagnosis(diagnosis) => sorted.diagnoses.push(diagnosis),
            Record::Remedy {
                rule,
                changes,
                beside,
                ..
            } => {
                sorted.remedies.push(SortedRemedy {
                    rule,
                    changes,
                    beside,
                    kept: false,
                    note: None,
                    trials: FixTrials::default(),
                });
            }
            Record::HeldBack {
                rule,
                changes,
                class,
            } => sorted.held_back.push(HeldBack {
                rule,
                changes,
                class: *class,
            }),
            Record::Decided { remedy, kept, note } => {
                if let Some(sorted) = sorted.remedies.get_mut(*remedy) {
                    sorted.kept = *kept;
                    sorted.note = note.as_deref();
                }
            }
            Record::Factors(factors) => sorted.factors = factors,
            Record::Explored {
                levels,
                screening,
                sample,
            } => sorted.explored.push(Explored {
                levels,
                screening: *screening,
                sample: sample.as_deref(),
            }),
            Record::Ended { restored, kept } => {
                sorted.restored = *restored;
                sorted.keeps = *kept;
                sorted.ended = true;
            }
            Record::Stopped(why) => sorted.stopped = Some(why),
            Record::Planted(rules) => sorted.planted.clone_from(rules),
            // A trial between two rounds; and records of an experiment, which `lab` analyzes.
            _ => {}
        }
    }
    for (number, remedy) in sorted.remedies.iter_mut().enumerate() {
        remedy.trials = sorted.stages.of_remedy(number);
    }
    sorted
}

/// The ceilings of a run's path at its baseline, based on one of its trials.
pub fn ceilings(
    header: &Header,
    sorted: &ProofRecords<'_>,
    sample: Option<&Sample>,
) -> PathCeilings {
    sorted.hosts.map_or_else(PathCeilings::default, |hosts| {
        ceilings_between(header, sorted, hosts, sample)
    })
}

fn ceilings_between(
    header: &Header,
    sorted: &ProofRecords<'_>,
    (local, remote): (&Host, &Host),
    sample: Option<&Sample>,
) -> PathCeilings {
    let Some(spec) = sorted.before.first().map(|sample| &sample.spec) else {
        return PathCeilings::default();
    };
    ceilings_of_path(&PathFacts {
        local,
        local_nic: &header.local_nic,
        remote,
        remote_nic: &header.remote_nic,
        flows: spec.flows,
        direction: spec.direction,
        ipv6: header.address.contains(':'),
        datagram_bytes: None,
        copy_bandwidth: header.copy_bit_per_s.map(BitRate::from_bit_per_s),
        sample,
    })
}

/// The trial with the median rate of `samples`.
pub fn median_sample<'a>(samples: &[&'a Sample]) -> Option<&'a Sample> {
    let mut rated: Vec<(BitRate, &Sample)> = samples
        .iter()
        .filter_map(|sample| Some((rate_of(sample)?, *sample)))
        .collect();
    rated.sort_by_key(|(rate, _)| *rate);
    rated.get(rated.len() / 2).map(|(_, sample)| *sample)
}

/// The bottleneck in some trials of the path, with both hosts as they were then.
fn limit_of(
    header: &Header,
    sorted: &ProofRecords<'_>,
    hosts: (&Host, &Host),
    trials: &[&Sample],
    tried: &[Tried],
) -> Option<Limit> {
    let sample = median_sample(trials)?;
    if sample.spec.workload.is_local() {
        return None;
    }
    let ceilings = ceilings_between(header, sorted, hosts, Some(sample));
    let (local, remote) = hosts;
    let rate = rate_of(sample)?;
    let limit = name_limit(sample, local, remote, &ceilings.ceilings, rate);
    if tried.is_empty() {
        return Some(limit);
    }
    Some(decide(sample, &limit.suggested, tried).limit(tried, limit))
}

/// The document of a run. For an incomplete run it contains what there is: what was not measured is
/// not a number.
pub fn document(header: &Header, records: &[Record]) -> ProveDocument {
    let sorted = sort(records);
    let rate_after = rate_document(&sorted.after);
    let hosts_after = hosts_after(&sorted);
    let changed = hosts_after.as_ref().map(|(local, remote)| (local, remote));
    let ceilings = changed.map_or_else(PathCeilings::default, |hosts| {
        let trials = if sorted.after.is_empty() {
            &sorted.before
        } else {
            &sorted.after
        };
        ceilings_between(header, &sorted, hosts, median_sample(trials))
    });
    let limit = sorted
        .hosts
        .and_then(|hosts| limit_of(header, &sorted, hosts, &sorted.before, sorted.tried_before));
    let limit_after = changed
        .and_then(|hosts| limit_of(header, &sorted, hosts, &sorted.after, sorted.tried_after));
    let remedies = remedy_results(&sorted);
    let found = found(&remedies, limit.as_ref());
    let findings = sorted.diagnoses.first().map(|first| first.findings.clone());
    let search = search::document(&sorted);
    let ends = sorted.before.iter().chain(&sorted.after);
    let others: Vec<f64> = ends
        .filter_map(|sample| Some(other_work(sample)?.as_f64()))
        .collect();
    ProveDocument {
        schema: SCHEMA.to_owned(),
        before: rate_document(&sorted.before),
        ceiling: ceiling_document(ceilings.lowest(), rate_after.rate_bit_per_s),
        limit: limit_document(limit),
        limit_after: (!sorted.after.is_empty()).then(|| limit_document(limit_after)),
        after: rate_after,
        findings: findings.unwrap_or_default(),
        remedies,
        restored: sorted.restored,
        keeps: sorted.keeps,
        planted: sorted.planted,
        found,
        operation_bytes: sorted
            .before
            .iter()
            .find_map(|sample| operation_bytes(sample)),
        cpu_other_work: median(&others).ok(),
        search,
        seed: header.seed,
        run: None,
        report: None,
    }
}

/// The bytes of each operation on a block device.
fn operation_bytes(sample: &Sample) -> Option<u64> {
    match &sample.spec.workload {
        Workload::Block(block) => Some(block.block_bytes.as_u64()),
        _ => None,
    }
}

/// Both hosts after the kept remedies. Those in the records are from before any change, so the
/// kept changes are applied to them.
fn hosts_after(sorted: &ProofRecords<'_>) -> Option<(Host, Host)> {
    let (local, remote) = sorted.hosts?;
    let (mut local, mut remote) = (local.clone(), remote.clone());
    for remedy in sorted.remedies.iter().filter(|remedy| remedy.kept) {
        for EndChange { end, change } in remedy.changes {
            let host = match end {
                End::Local => &mut local,
                End::Remote => &mut remote,
            };
            linerate_model::setting::put(host, &change.setting, &change.to);
        }
    }
    Some((local, remote))
}

fn ceiling_document(ceiling: Option<&Ceiling>, rate: f64) -> CeilingDocument {
    let Some(ceiling) = ceiling else {
        return CeilingDocument {
            bit_per_s: None,
            share: None,
            tolerance: 0.0,
            reason: "no bound of this path can be computed".to_owned(),
        };
    };
    let reached = BitRate::from_f64(rate).and_then(|rate| share(rate, ceiling.bit_per_s));
    CeilingDocument {
        bit_per_s: Some(ceiling.bit_per_s.as_f64()),
        share: reached.map(Ratio::as_f64),
        tolerance: ceiling.bound.tolerance().0.as_f64(),
        reason: ceiling.reason.clone(),
    }
}

fn limit_document(limit: Option<Limit>) -> LimitDocument {
    limit.map_or_else(
        || LimitDocument {
            what: LimitKind::NotDetermined.to_string(),
            status: Status::NotDetermined,
            evidence: Vec::new(),
        },
        |limit| LimitDocument {
            what: limit.what.to_string(),
            status: limit.status,
            evidence: limit.evidence,
        },
    )
}

/// Every tried remedy with the notes on its effect, then those that were not tried.
fn remedy_results(sorted: &ProofRecords<'_>) -> Vec<RemedyResult> {
    let mut results: Vec<RemedyResult> = Vec::new();
    for (number, remedy) in sorted.remedies.iter().enumerate() {
        let mut notes: Vec<String> = remedy.note.map(ToOwned::to_owned).into_iter().collect();
        notes.extend(remedy.trials.note());
        notes.extend(note_on_groups(sorted, number));
        for before in results.iter_mut().filter(|b| same_remedy(b, remedy)) {
            before.tried_again = true;
            before.note = Some("retried after another bottleneck was removed".to_owned());
            let seen = if remedy.kept {
                "masked by another bottleneck in the first trial"
            } else {
                "also tried before, without success"
            };
            if !notes.iter().any(|note| note == seen) {
                notes.push(seen.to_owned());
            }
        }
        let (without_bit_per_s, with_bit_per_s) = remedy.trials.rates();
        results.push(RemedyResult {
            effect: remedy.trials.effect(),
            guards: remedy.trials.guards(),
            kept: remedy.kept,
            note: (!notes.is_empty()).then(|| notes.join("; ")),
            without_bit_per_s,
            with_bit_per_s,
            beside: remedy.beside.to_vec(),
            ..untried(remedy.rule, remedy.changes)
        });
    }
    results.extend(sorted.held_back.iter().map(|held| RemedyResult {
        note: Some(format!(
            "not tried: class {}, {}: linerate does not change it automatically; change it by \
             hand, then run prove again",
            held.class,
            held.class.words()
        )),
        ..untried(held.rule, held.changes)
    }));
    results
}

/// What the trials without several remedies together showed about one of them.
fn note_on_groups(sorted: &ProofRecords<'_>, number: usize) -> Option<String> {
    let groups = sorted.stages.groups();
    let group = groups.into_iter().rfind(|group| group.contains(&number))?;
    let effect = sorted.stages.without(group).together()?;
    let others = group.iter().filter(|other| **other != number);
    let rules: Vec<&str> = others
        .filter_map(|other| Some(sorted.remedies.get(*other)?.rule))
        .collect();
    Some(format!(
        "together with {}: {}",
        rules.join(", "),
        figures_in_words(&effect)
    ))
}

/// Whether an unsuccessful try was of the same settings for the same reason.
fn same_remedy(before: &RemedyResult, remedy: &SortedRemedy<'_>) -> bool {
    let settings = |changes: &[EndChange]| -> BTreeSet<(End, SettingKey)> {
        let pair = |change: &EndChange| (change.end, change.change.setting.clone());
        changes.iter().map(pair).collect()
    };
    !before.kept
        && before.rule == remedy.rule
        && settings(&before.changes) == settings(remedy.changes)
}

fn untried(rule: &str, changes: &[EndChange]) -> RemedyResult {
    let first = changes.first();
    let word = |pick: fn(&EndChange) -> String| first.map(pick).unwrap_or_default();
    RemedyResult {
        rule: rule.to_owned(),
        end: first.map_or(End::Local, |change| change.end),
        setting: word(|c| c.change.setting.to_string()),
        from: word(|c| c.change.from.to_string()),
        to: word(|c| c.change.to.to_string()),
        changes: changes.to_vec(),
        effect: None,
        guards: Vec::new(),
        kept: false,
        tried_again: false,
        note: None,
        beside: Vec::new(),
        without_bit_per_s: Vec::new(),
        with_bit_per_s: Vec::new(),
    }
}

/// The rules whose remedy's interval is above zero, and the rule of the reported bottleneck.
fn found(remedies: &[RemedyResult], limit: Option<&Limit>) -> Vec<String> {
    let is_faster = |remedy: &&RemedyResult| remedy.effect.as_ref().is_some_and(|e| e.low > 0.0);
    let helped = |remedy: &&RemedyResult| remedy.rule != GIVEN && is_faster(remedy);
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
