//! Numbers and names as a report prints them: always with a unit, with an interval where there is one,
//! and a `?` where there is no number. Shared by the page, the map and the terminal.

use linerate_analysis::text::words::{
    change, count, detectable, interval_in_figures, is_too_noisy,
};
use linerate_model::propose::{GIVEN, name_of};
use linerate_model::prove::{EffectDocument, EndChange, ProveDocument, Rate, RemedyResult};
use linerate_model::sample::Flag;
use linerate_model::setting::Scope;
use linerate_model::threshold;
use linerate_model::units::BitRate;

use super::data::{Arm, CpuCost, ReportData, TrialCpu};

/// A rate in bit/s with its unit; `?` when it is not a rate at all.
pub(super) fn rate(bit_per_s: f64) -> String {
    BitRate::from_f64(bit_per_s).map_or_else(|| "?".to_owned(), |rate| rate.to_string())
}

/// A rate's interval and how many trials stand behind it.
pub(super) fn rate_interval(measured: &Rate) -> String {
    format!(
        "95 % CI [{}, {}], {}",
        rate(measured.low_bit_per_s),
        rate(measured.high_bit_per_s),
        count(measured.trials, "trial")
    )
}

/// CPU seconds per gigabyte, with enough digits to distinguish small costs.
pub(super) fn cost(s_per_gb: f64) -> String {
    if !s_per_gb.is_finite() {
        return "?".to_owned();
    }
    // Three significant figures.
    let digits = match s_per_gb {
        ..0.0995 => 4,
        ..0.9995 => 3,
        ..9.995 => 2,
        _ => 1,
    };
    format!("{s_per_gb:.digits$} s/GB")
}

/// A share in percent.
pub(super) fn share(ratio: f64) -> String {
    if ratio.is_finite() {
        format!("{:.1} %", ratio * 100.0)
    } else {
        "?".to_owned()
    }
}

/// A quotient of two rates with the bounds that the ends of their intervals allow: wider than an
/// interval of the quotient would be, never narrower.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Times {
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Times {
    /// How many times `after` is of `before`; `None` when there is nothing to divide by.
    pub(super) fn of(before: &Rate, after: &Rate) -> Option<Self> {
        let times = Self {
            value: after.rate_bit_per_s / before.rate_bit_per_s,
            low: after.low_bit_per_s / before.high_bit_per_s,
            high: after.high_bit_per_s / before.low_bit_per_s,
        };
        [times.value, times.low, times.high]
            .iter()
            .all(|number| number.is_finite() && *number >= 0.0)
            .then_some(times)
    }

    /// Whether the intervals are compatible with "no difference".
    pub(super) fn holds_one(self) -> bool {
        self.low <= 1.0 && self.high >= 1.0
    }
}

/// What became of a remedy. Each word also has a mark, so that no meaning hangs on color.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Helped,
    RolledBack,
    NotTried,
}

impl Fate {
    pub(super) fn of(remedy: &RemedyResult) -> Self {
        match (&remedy.effect, remedy.kept) {
            (_, true) => Self::Helped,
            (Some(_), false) => Self::RolledBack,
            // Trials without a figure to show for them are trials all the same.
            (None, false) if !remedy.without_bit_per_s.is_empty() => Self::RolledBack,
            (None, false) => Self::NotTried,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Helped => "helped",
            Self::RolledBack => "rolled back",
            Self::NotTried => "not tried",
        }
    }

    pub(super) fn mark(self) -> &'static str {
        match self {
            Self::Helped => "●",
            Self::RolledBack => "○",
            Self::NotTried => "?",
        }
    }
}

/// How many remedies were tried, kept, and not tried at all, as a sentence.
pub(super) fn tried(prove: &ProveDocument) -> String {
    let of = |fate| {
        prove
            .remedies
            .iter()
            .filter(|remedy| Fate::of(remedy) == fate)
            .count()
    };
    let (helped, untried) = (of(Fate::Helped), of(Fate::NotTried));
    let tried = match prove.remedies.len() - untried {
        // The remedies that could not be tried are all there is to report.
        0 if untried == 1 => return "1 fix was found but could not be tried.".to_owned(),
        0 if untried > 1 => {
            return format!("{untried} fixes were found, but none could be tried.");
        }
        0 => "No fix was tried".to_owned(),
        1 => format!("1 fix was tried, {helped} helped"),
        all => format!("{all} fixes were tried, {helped} helped"),
    };
    match untried {
        0 => format!("{tried}."),
        some => format!("{tried}; {some} not tried."),
    }
}

/// The gain of the kept remedies; none where nothing was kept, for then a difference between before and
/// after is the machine's own.
pub(super) fn gain(prove: &ProveDocument) -> Option<Times> {
    let kept = prove.remedies.iter().any(|remedy| remedy.kept);
    Times::of(&prove.before, &prove.after).filter(|_| kept)
}

/// The headline's comparison of the two rates.
pub(super) fn gain_words(prove: &ProveDocument) -> Option<String> {
    let ratio = Times::of(&prove.before, &prove.after)?;
    Some(if doubt(prove).is_some() {
        "inconclusive".to_owned()
    } else if ratio.holds_one() {
        "not significant".to_owned()
    } else if gain(prove).is_some() {
        change(ratio.value)
    } else {
        "but no change was kept: the machine itself changed".to_owned()
    })
}

/// Why a run without a significant difference shows nothing: other work had the CPUs.
pub(super) fn doubt(prove: &ProveDocument) -> Option<String> {
    // Where nothing could be tried, a quiet machine would not help.
    if !prove.remedies.is_empty() && prove.remedies.iter().all(|one| one.effect.is_none()) {
        return None;
    }
    let busy = prove
        .cpu_other_work
        .filter(|share| *share >= threshold::OTHER_WORK.as_f64())?;
    let is_seen = Times::of(&prove.before, &prove.after).is_some_and(|ratio| !ratio.holds_one())
        && gain(prove).is_some();
    (!is_seen).then(|| {
        format!(
            "CPUs {:.0} % busy with other work; try again when the machine is quiet, or with `--trials 9`",
            busy * 100.0
        )
    })
}

/// The multiplication sign, which a page has and a terminal may lack.
pub(super) fn cross(times: &str) -> String {
    times.replace('x', "×")
}

/// The meaning of an effect's interval, in words.
pub(super) fn effect_meaning(effect: &EffectDocument) -> String {
    if is_too_noisy(effect) && effect.low <= 0.0 && effect.high >= 0.0 {
        "not significant".to_owned()
    } else if effect.low > 0.0 {
        "faster".to_owned()
    } else if effect.high < 0.0 {
        "slower".to_owned()
    } else {
        format!(
            "not significant (minimum detectable effect {})",
            detectable(effect)
        )
    }
}

/// An interval of an effect with its level and numbers of trials.
pub(super) fn effect_interval(effect: &EffectDocument) -> String {
    let interval =
        interval_in_figures(effect).map_or_else(String::new, |figures| format!(" {figures}"));
    format!("{} % CI{interval}, {}", level(effect), trials(effect))
}

/// A level in percent with the digits that tell it from 100: 95, 98.9, 99.7.
pub(super) fn level(effect: &EffectDocument) -> String {
    let percent = format!("{:.1}", effect.level * 100.0);
    percent.trim_end_matches(".0").to_owned()
}

/// `9 trials with, 3 without`
pub(super) fn trials(effect: &EffectDocument) -> String {
    format!(
        "{} with, {} without",
        count(effect.trials_with, "trial"),
        effect.trials_without
    )
}

/// Where a change is made.
pub(super) fn place_of(change: &EndChange) -> String {
    match change.change.setting.spec().scope {
        Scope::Trial => "test connection".to_owned(),
        Scope::Netns | Scope::Machine => change.end.to_string(),
    }
}

/// Every change of a remedy: `local: setting: from -> to`.
pub(super) fn remedy_changes(remedy: &RemedyResult) -> Vec<String> {
    if remedy.changes.is_empty() {
        let RemedyResult {
            end,
            setting,
            from,
            to,
            ..
        } = remedy;
        return vec![format!("{end}: {setting}: {from} -> {to}")];
    }
    let one = |change: &EndChange| format!("{}: {}", place_of(change), change.change);
    remedy.changes.iter().map(one).collect()
}

/// What was tested: the fix of the rule's fault, or the given setting.
pub(super) fn fix_name(remedy: &RemedyResult) -> String {
    let name = name_of(&remedy.rule, &remedy.changes);
    if remedy.rule == GIVEN {
        name
    } else {
        format!("fix {name}")
    }
}

/// The state of the settings after the run, in words; as an error what was not rolled back.
pub(super) fn end_state(prove: &ProveDocument) -> Result<String, &'static str> {
    if !prove.restored {
        return Err("run `linerate tune recover` to roll back the remaining changes");
    }
    let helped = prove.remedies.iter().filter(|remedy| remedy.kept).count();
    Ok(match (prove.keeps, helped) {
        (true, 1) => {
            "the fix that helped stays applied (`linerate tune undo` rolls it back); no other \
                      setting differs from the baseline"
                .to_owned()
        }
        (true, _) => {
            "the fixes that helped stay applied (`linerate tune undo` rolls them back); no \
                      other setting differs from the baseline"
                .to_owned()
        }
        (false, 0) => "no setting differs from the baseline".to_owned(),
        (false, _) => {
            "all changes were rolled back (--undo): no setting differs from the baseline".to_owned()
        }
    })
}

/// An injected or found rule, and which of the two it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Score<'a> {
    pub(super) rule: &'a str,
    pub(super) planted: bool,
    pub(super) found: bool,
}

impl Score<'_> {
    pub(super) fn word(&self) -> &'static str {
        match (self.planted, self.found) {
            (true, true) => "injected and found",
            (true, false) => "injected, NOT found",
            (false, true) => "found, not injected",
            (false, false) => "neither",
        }
    }
}

/// Injected against found, the injected ones first.
pub(super) fn scores(prove: &ProveDocument) -> Vec<Score<'_>> {
    let mut rules: Vec<&str> = Vec::new();
    for rule in prove.planted.iter().chain(&prove.found) {
        if !rules.contains(&rule.as_str()) {
            rules.push(rule);
        }
    }
    rules
        .into_iter()
        .map(|rule| Score {
            rule,
            planted: prove.planted.iter().any(|other| other == rule),
            found: prove.found.iter().any(|other| other == rule),
        })
        .collect()
}

/// How a flag is called in JSON, and what it means for the reader.
pub(super) fn flag(flag: Flag) -> (&'static str, &'static str) {
    match flag {
        Flag::SharedKernel => (
            "shared-kernel",
            "both ends share one kernel: softirq time and machine counters are shared",
        ),
        Flag::TickAccounting => (
            "tick-accounting",
            "the kernel accounts CPU time by ticks: CPU figures are coarse",
        ),
        Flag::Steal => ("steal", "CPU steal time above 2 %"),
        Flag::CeilingWrong => (
            "ceiling-wrong",
            "the rate exceeds the computed ceiling: the ceiling is wrong",
        ),
        Flag::CountsDisagree => (
            "counts-disagree",
            "the byte counts of the two ends differ by more than the data in flight",
        ),
        Flag::NotSettled => ("not-settled", "the rate did not stabilize within the trial"),
        Flag::CutShort => ("cut-short", "the trial ended early"),
        Flag::Migrated => ("migrated", "a pinned thread ran on another CPU or migrated"),
        Flag::MemoryElsewhere => (
            "memory-elsewhere",
            "a buffer was not on the requested NUMA node",
        ),
        Flag::CopiedAfterAll => (
            "copied-after-all",
            "the kernel copied data despite zero-copy",
        ),
        Flag::FrequencyMoved => (
            "frequency-moved",
            "the CPU frequency changed or was in turbo: rates with few and many cores are not \
             comparable",
        ),
        Flag::DeepSleep => (
            "deep-sleep",
            "CPUs entered deep C-states between operations: higher load may look faster",
        ),
        Flag::OtherTraffic => ("other-traffic", "other traffic on the interface"),
        Flag::OtherLoad => (
            "other-load",
            "other programs used more than 10 % of the time of the trial's CPUs",
        ),
        Flag::RateNotKept => (
            "rate-not-kept",
            "the sender could not sustain the requested rate",
        ),
        Flag::ForeignPeer => (
            "foreign-peer",
            "the remote end is not linerate: some figures are missing",
        ),
        Flag::PollingUncounted => (
            "polling-uncounted",
            "the CPU time of the kernel's SQPOLL thread could not be read: CPU figures are too low",
        ),
        Flag::GridsDiffer => (
            "grids-differ",
            "the grids of the two ends differ: memory, a device or the path corrupts data",
        ),
        Flag::UnequalFlows => (
            "unequal-flows",
            "the flows share the path unequally: Jain's fairness index is below 0.8",
        ),
        Flag::BytesOnAnotherInterface => (
            "bytes-on-another-interface",
            "the payload did not go over the interface that it was meant for",
        ),
    }
}

/// Flags that only say how to read the figures.
pub const EXPECTED_FLAGS: [&str; 3] = ["shared-kernel", "tick-accounting", "foreign-peer"];

/// A flag's name.
pub fn flag_name(one: Flag) -> &'static str {
    flag(one).0
}

/// A flag's name and what it means, for a terminal.
pub fn flag_in_words(one: Flag) -> String {
    let (name, meaning) = flag(one);
    format!("{name} ({meaning})")
}

/// CPU cost of one kind at one end in one arm, over all its trials.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct CpuBar {
    pub(super) arm: Arm,
    pub(super) end: String,
    pub(super) kind: &'static str,
    /// Mean, lowest and highest of the trials; none when any trial does not know.
    pub(super) s_per_gb: Option<[f64; 3]>,
    pub(super) trials: usize,
}

type Side = fn(&TrialCpu) -> Option<&CpuCost>;

/// CPU cost before and after by end and kind. Kinds that no trial of an end knows are left out when
/// the shared kernel has them.
pub(super) fn cpu_bars(data: &ReportData) -> Vec<CpuBar> {
    let sides: [(&str, Side); 3] = [
        (&data.local.name, |cpu| Some(&cpu.local)),
        (&data.remote.name, |cpu| Some(&cpu.remote)),
        ("shared kernel", |cpu| cpu.shared.as_ref()),
    ];
    let mut bars = Vec::new();
    for arm in [Arm::Before, Arm::After] {
        let trials: Vec<&TrialCpu> = data
            .trials
            .iter()
            .filter(|trial| trial.arm == arm)
            .map(|trial| &trial.cpu)
            .collect();
        let shared = trials.iter().any(|cpu| cpu.shared.is_some());
        for (end, side) in sides {
            let costs: Vec<&CpuCost> = trials.iter().filter_map(|cpu| side(cpu)).collect();
            for (index, kind) in ["user", "system", "softirq", "irq", "steal"]
                .iter()
                .enumerate()
            {
                let known: Option<Vec<f64>> =
                    costs.iter().map(|cost| cost.kinds()[index].1).collect();
                let nobody = costs.iter().all(|cost| cost.kinds()[index].1.is_none());
                if costs.is_empty() || (shared && nobody) {
                    continue;
                }
                bars.push(CpuBar {
                    arm,
                    end: end.to_owned(),
                    kind,
                    s_per_gb: known.and_then(|values| mean_and_range(&values)),
                    trials: costs.len(),
                });
            }
        }
    }
    bars
}

#[expect(clippy::cast_precision_loss, reason = "the number of trials is small")]
fn mean_and_range(values: &[f64]) -> Option<[f64; 3]> {
    let low = values.iter().copied().reduce(f64::min)?;
    let high = values.iter().copied().reduce(f64::max)?;
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    mean.is_finite().then_some([mean, low, high])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(rate: f64, low: f64, high: f64) -> Rate {
        Rate {
            rate_bit_per_s: rate,
            low_bit_per_s: low,
            high_bit_per_s: high,
            trials: 5,
            cpu_s_per_gb: None,
        }
    }

    #[test]
    fn what_is_not_a_rate_is_a_question_mark_and_never_zero() {
        assert_eq!(rate(f64::NAN), "?");
        assert_eq!(rate(-1.0), "?");
        assert_eq!(rate(f64::INFINITY), "?");
        assert_eq!(rate(3.1e9), "3.10 Gb/s");
    }

    #[test]
    fn a_quotient_has_bounds_and_none_without_a_divisor() {
        let times = Times::of(&measured(2.0, 1.0, 4.0), &measured(8.0, 6.0, 9.0));
        let times = times.expect("both are rates");
        assert!((times.value - 4.0).abs() < 1e-12);
        assert!((times.low - 1.5).abs() < 1e-12);
        assert!((times.high - 9.0).abs() < 1e-12);
        assert_eq!(
            Times::of(&measured(0.0, 0.0, 0.0), &measured(8.0, 6.0, 9.0)),
            None
        );
    }
}
