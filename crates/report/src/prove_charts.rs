//! The charts of a run of `prove`: the rates before and after, the effect and the trials of each fix, the rates over time,
//! and the CPU cost.

use linerate_analysis::text::visible::visible;
use linerate_analysis::text::words::{Effect, TOO_NOISY, effect_figure, is_too_noisy};
use linerate_model::propose::GIVEN;
use linerate_model::prove::{EffectDocument, ProveDocument, RemedyResult};
use serde_json::{Value, json};

use super::chart::{
    Axis, Course, GIGA, OverTime, RATE, Style, ceiling, clear_of, draw, label, rows, short, whole,
};
use super::data::{Arm, CpuCost, ReportData, TrialSeries};
use super::figures::{CpuBar, Fate, cross, fix_name, level, rate, trials};

/// Height of the row of a fix, with its points and its text.
const ROW: usize = 54;
/// A name longer than this many characters is split into two lines.
const NAME_MAX: usize = 22;
const FIRST_LINE_MAX: usize = 20;
/// Points of a trial in a chart of half the page's width.
const POINTS_MAX: usize = 300;
/// A bar that is so much of the longest has space for its rate.
const LONG: f64 = 0.45;

/// Kinds of CPU time with a pale color, on which text is dark.
const PALE: [&str; 2] = ["system", "irq"];

const ARMS: [(Arm, Style<'_>); 5] = [
    (Arm::Before, line("before", "var(--warm)", [5, 3])),
    (Arm::Without, line("without", "var(--warm)", [5, 3])),
    (Arm::With, line("with", "var(--accent)", [1, 0])),
    (Arm::After, line("after", "var(--accent)", [1, 0])),
    (Arm::Confirm, line("confirm", "var(--ink-soft)", [2, 2])),
];

const fn line<'a>(kind: &'a str, color: &'a str, dash: [u8; 2]) -> Style<'a> {
    Style { kind, color, dash }
}

/// Before, after and the ceiling as bars with intervals.
pub(super) fn bars(prove: &ProveDocument, drawn: &mut Vec<Value>) -> String {
    let measured = [("before", &prove.before), ("after", &prove.after)];
    let bound = prove.ceiling.bit_per_s.filter(|bound| bound.is_finite());
    let highs = measured.map(|(_, measured)| measured.high_bit_per_s);
    let longest = highs.into_iter().filter(|high| high.is_finite());
    let longest = longest.fold(bound.unwrap_or(0.0), f64::max);
    let (mut data, mut within_bar, mut beside) = (Vec::new(), Vec::new(), Vec::new());
    let mut labeled = 0.0_f64;
    for (name, measured) in measured {
        let text = rate(measured.rate_bit_per_s);
        let [at, low, high] = [
            measured.rate_bit_per_s,
            measured.low_bit_per_s,
            measured.high_bit_per_s,
        ]
        .map(|bit_per_s| short(bit_per_s / GIGA));
        data.push(
            json!({"name": name, "rate": at, "low": low, "high": high, "text": text.clone()}),
        );
        if measured.low_bit_per_s > LONG * longest {
            within_bar.push(json!({"name": name, "at": low, "text": text}));
        } else {
            labeled = labeled.max(measured.high_bit_per_s / GIGA);
            beside.push(json!({"name": name, "at": high, "text": text}));
        }
    }
    let x = Axis::from_zero(RATE, longest * 1.04 / GIGA, (labeled, 110));
    let y = rows_of(&measured.map(|(name, _)| name.to_owned()));
    let text = |values: Vec<Value>, mark: Value| {
        json!({"data": {"values": values}, "mark": mark,
               "encoding": {"y": y, "x": x.by("at"), "text": {"field": "text"}}})
    };
    // Behind the bars, so that it does not run through their text.
    let mut layer = bound.map_or_else(Vec::new, |bound| {
        ceiling(bound, &x, Some((&y, "after"))).into()
    });
    layer.extend([
        json!({"mark": {"type": "bar", "height": {"band": 0.62}, "cornerRadiusEnd": 3},
            "encoding": {"y": y, "x": x.by("rate"), "tooltip": {"field": "text"},
                "color": {"field": "name", "type": "nominal", "legend": Value::Null,
                    "scale": {"domain": ["before", "after"], "range": ["var(--k5)", "var(--accent)"]}}}}),
        json!({"mark": {"type": "rule", "color": "var(--ink)", "strokeWidth": 2},
            "encoding": {"y": y, "x": x.by("low"), "x2": {"field": "high"}}}),
        text(within_bar, json!({"type": "text", "fontWeight": "bold", "fontSize": 13, "color": "var(--card)",
            "align": "right", "dx": -12})),
        text(beside, label(json!({"fontWeight": "bold", "fontSize": 13, "align": "left", "dx": 12}))),
    ]);
    draw(
        drawn,
        96,
        &data,
        &layer,
        (
            "Before, after, ceiling",
            "Bars of the rate before, the rate after and the ceiling, with confidence intervals; \
             the table below has the numbers",
        ),
    )
}

/// The names of the fixes on an axis, each once.
fn names(remedies: &[RemedyResult]) -> Vec<String> {
    let name = |remedy: &RemedyResult| {
        // One that no rule proposed is known by its setting.
        let name = if remedy.rule == GIVEN {
            remedy.setting.rsplit('/').next().unwrap_or_default()
        } else {
            &remedy.rule
        };
        folded(&visible(name))
    };
    let names: Vec<String> = remedies.iter().map(name).collect();
    let is_only = |name: &String| names.iter().filter(|other| *other == name).count() == 1;
    // A rule may propose more than one fix.
    let numbered = names.iter().enumerate().map(|(place, name)| {
        if is_only(name) {
            name.clone()
        } else {
            format!("{name} #{}", place + 1)
        }
    });
    numbered.collect()
}

/// A long name with a line break after a hyphen: a name that is cut off is not the name of any rule.
fn folded(name: &str) -> String {
    if name.chars().count() <= NAME_MAX {
        return name.to_owned();
    }
    let first_line = name.char_indices().take(FIRST_LINE_MAX);
    let hyphen = first_line.filter(|(_, c)| *c == '-').last();
    match hyphen.and_then(|(at, _)| name.split_at_checked(at + 1)) {
        Some((first, rest)) => format!("{first}\n{rest}"),
        None => name.to_owned(),
    }
}

/// The rows of the fixes, those without data too.
fn rows_of(names: &[String]) -> Value {
    let mut y = rows("name");
    y["scale"] = json!({"domain": names});
    y
}

/// The effect of each fix with its interval, and its trials.
pub(super) fn effects_and_trials(prove: &ProveDocument, drawn: &mut Vec<Value>) -> String {
    let names = names(&prove.remedies);
    let effects = effects(&prove.remedies, &names, drawn);
    let trials = trials_of(&prove.remedies, &names, drawn);
    if effects.is_empty() || trials.is_empty() {
        return effects + &trials;
    }
    format!("<div class=\"pair\">{effects}{trials}</div>")
}

fn effects(remedies: &[RemedyResult], names: &[String], drawn: &mut Vec<Value>) -> String {
    const NO_EFFECT: f64 = 1.0;
    let is_drawn = |effect: &&EffectDocument| !is_too_noisy(*effect);
    let tested = remedies.iter().filter_map(|remedy| remedy.effect.as_ref());
    let reach = tested.filter(is_drawn).flat_map(|effect| {
        let unseen = 1.0 + effect.smallest_detectable;
        [1.0 + effect.low, 1.0 + effect.high, unseen, 1.0 / unseen]
    });
    let x = Axis::of_ratios("the rate", reach);
    let (mut data, mut untried) = (Vec::new(), Vec::new());
    for (remedy, name) in remedies.iter().zip(names) {
        let fate = Fate::of(remedy);
        let Some(effect) = remedy.effect.as_ref().filter(is_drawn) else {
            let text = match &remedy.effect {
                Some(_) => format!("{TOO_NOISY}, {}", fate.word()),
                None => format!("{} {}", fate.mark(), fate.word()),
            };
            untried.push(json!({"name": name, "zero": NO_EFFECT, "text": text}));
            continue;
        };
        let figure = |ratio| cross(&effect_figure(effect)(ratio));
        let unseen = 1.0 + effect.smallest_detectable;
        let [relative, low, high] = effect.relative().map(|relative| short(1.0 + relative));
        data.push(
            json!({"name": name, "relative": relative, "low": low, "high": high, "unseen_low": short(1.0 / unseen),
                   "unseen_high": short(unseen), "fate": fate.word(),
                   "text": format!("{} {}", figure(effect.relative), fate.word()), "about": about(effect, figure)}),
        );
    }
    if data.is_empty() {
        return String::new();
    }
    let y = rows_of(names);
    let of_fate = |range: [&str; 2]| {
        json!({"field": "fate", "type": "nominal", "legend": Value::Null,
               "scale": {"domain": [Fate::Helped.word(), Fate::RolledBack.word()], "range": range}})
    };
    let note = json!([{"text": "gray: below the minimum detectable effect"}]);
    let layer = [
        json!({"mark": {"type": "bar", "height": {"band": 0.5}, "color": "var(--band)"},
            "encoding": {"y": y, "x": x.by("unseen_low"), "x2": {"field": "unseen_high"}}}),
        json!({"data": {"values": [{"zero": NO_EFFECT}]}, "mark": {"type": "rule", "color": "var(--ink)", "strokeWidth": 1},
            "encoding": {"x": x.by("zero")}}),
        json!({"mark": {"type": "errorbar", "ticks": {"size": 10, "thickness": 1.5, "color": "var(--ink)"},
                        "rule": {"strokeWidth": 1.5, "color": "var(--ink)"}},
            "encoding": {"y": y, "x": x.by("low"), "x2": {"field": "high"}}}),
        json!({"mark": {"type": "point", "size": 110, "filled": true, "stroke": "var(--ink)", "strokeWidth": 1.5, "opacity": 1},
            "encoding": {"y": y, "x": x.by("relative"), "shape": of_fate(["circle", "diamond"]),
                "fill": of_fate(["var(--accent)", "var(--card)"]), "tooltip": {"field": "about"}}}),
        json!({"mark": label(json!({"align": "left", "dx": clear_of(NO_EFFECT, "relative"), "dy": -17, "fontWeight": "bold"})),
            "encoding": {"y": y, "x": x.by("relative"), "text": {"field": "text"}}}),
        json!({"data": {"values": untried}, "mark": label(json!({"align": "left", "dx": 8, "color": "var(--ink-soft)"})),
            "encoding": {"y": y, "x": x.by("zero"), "text": {"field": "text"}}}),
        json!({"data": {"values": note}, "mark": {"type": "text", "align": "right", "baseline": "bottom",
                "color": "var(--ink-soft)", "fontSize": 11, "x": "width", "y": -4},
            "encoding": {"text": {"field": "text"}}}),
    ];
    draw(
        drawn,
        ROW * names.len(),
        &data,
        &layer,
        (
            "Effect on the rate with CI",
            "A point with its confidence interval for each fix against a line at no effect, on a logarithmic scale; the table \
             below has the numbers",
        ),
    )
}

/// `+20.7 %, +15.8 % to +25.1 % (98.9 %, 9 trials with, 3 without)`
fn about(effect: &EffectDocument, figure: impl Fn(f64) -> String) -> String {
    format!(
        "{}, {} to {} ({} %, {})",
        figure(effect.relative),
        figure(effect.low),
        figure(effect.high),
        level(effect),
        trials(effect)
    )
}

/// Each trial without a fix and each with all as a point.
fn trials_of(remedies: &[RemedyResult], names: &[String], drawn: &mut Vec<Value>) -> String {
    let mut data = Vec::new();
    for (remedy, name) in remedies.iter().zip(names) {
        let arms = [
            ("without", &remedy.without_bit_per_s),
            ("with", &remedy.with_bit_per_s),
        ];
        for (arm, rates) in arms {
            data.extend(rates.iter().map(|bit_per_s| {
                json!({"name": name, "arm": arm, "rate": short(bit_per_s / GIGA),
                       "about": format!("{} {arm}", rate(*bit_per_s))})
            }));
        }
    }
    if data.is_empty() {
        return String::new();
    }
    let (x, y) = (Axis::across(RATE), rows_of(names));
    let by_arm = |range: [&str; 2]| {
        json!({"field": "arm", "type": "nominal", "legend": Value::Null,
               "scale": {"domain": ["without", "with"], "range": range}})
    };
    let layer = [
        json!({"mark": {"type": "point", "size": 34, "filled": true, "strokeWidth": 1.3, "opacity": 1},
        "encoding": {"y": y, "x": x.by("rate"), "tooltip": {"field": "about"},
            "yOffset": {"field": "arm", "type": "nominal", "scale": {"domain": ["without", "with"], "paddingOuter": 0.5}},
            "fill": by_arm(["var(--card)", "var(--accent)"]), "stroke": by_arm(["var(--ink)", "var(--accent)"])}}),
    ];
    draw(
        drawn,
        ROW * names.len(),
        &data,
        &layer,
        (
            "All trials: rate without ○ the fix and with ● all fixes",
            "For each fix, a point for each trial without it and each with all fixes; the table of trials has the \
             numbers",
        ),
    )
}

/// The rates of all trials over time: a chart of those before and after, and one for each fix.
pub(super) fn over_time(data: &ReportData, drawn: &mut Vec<Value>) -> String {
    let bound = data
        .prove
        .ceiling
        .bit_per_s
        .filter(|bound| bound.is_finite());
    let mut charts = String::new();
    let ends = |trial: &&TrialSeries| !matches!(trial.arm, Arm::With | Arm::Without);
    let trials: Vec<&TrialSeries> = data.trials.iter().filter(ends).collect();
    let about = "The rate of every trial before and after over time";
    charts.push_str(&series(&trials, bound, drawn, ("Before and after", about)));
    for (index, remedy) in data.prove.remedies.iter().enumerate() {
        let is_without = |trial: &&TrialSeries| trial.remedy_index == Some(index);
        let stages: Vec<_> = (data.trials.iter().filter(is_without))
            .map(|trial| trial.stage)
            .collect();
        let is_with =
            |trial: &&TrialSeries| trial.arm == Arm::With && stages.contains(&trial.stage);
        let of_it = data.trials.iter();
        let trials: Vec<&TrialSeries> = of_it
            .filter(|trial| is_without(trial) || is_with(trial))
            .collect();
        let name = fix_name(remedy);
        let about = format!("The rate of every trial with and without {name} over time");
        charts.push_str(&series(&trials, bound, drawn, (&name, &about)));
    }
    charts
}

/// The rates of these trials over time; nothing of none.
fn series(
    trials: &[&TrialSeries],
    ceiling_bit_per_s: Option<f64>,
    drawn: &mut Vec<Value>,
    words: (&str, &str),
) -> String {
    let mut courses = Vec::new();
    let mut warm_up_s = 0.0_f64;
    for trial in trials {
        let trial = trial.thinned(POINTS_MAX);
        if let Some(last) = trial.first_kept.min(trial.at_s.len()).checked_sub(1) {
            warm_up_s = warm_up_s.max(trial.at_s.get(last).copied().unwrap_or(0.0));
        }
        courses.push(Course {
            kind: trial.arm.word(),
            points: whole(trial.at_s.into_iter().zip(trial.rate_bit_per_s)),
        });
    }
    let ends = courses.iter().filter_map(|course| course.points.last());
    let Some(end_s) = ends.map(|(at, _)| *at).reduce(f64::max) else {
        return String::new();
    };
    let styles = ARMS
        .iter()
        .filter(|(arm, _)| trials.iter().any(|trial| trial.arm == *arm));
    let styles: Vec<Style<'_>> = styles.map(|(_, style)| *style).collect();
    let chart = OverTime {
        height: 210,
        rate: (
            Axis::new(RATE, json!({"zero": true}), json!({"tickCount": 5})),
            GIGA,
        ),
        end_s,
        warm_up_s,
        styles: &styles,
        ceiling_bit_per_s,
    };
    chart.draw(&courses, drawn, words)
}

/// CPU seconds per gigabyte by kind, stacked: a bar for each end before and after.
pub(super) fn cpu(bars: &[CpuBar], drawn: &mut Vec<Value>) -> String {
    let known: Vec<(&CpuBar, f64)> = (bars.iter())
        .filter_map(|bar| Some((bar, bar.s_per_gb?[0])))
        .collect();
    // Bars of one end are next to each other, before above after.
    let mut ends: Vec<&str> = known.iter().map(|(bar, _)| bar.end.as_str()).collect();
    ends.sort_unstable_by_key(|end| known.iter().position(|(bar, _)| bar.end == **end));
    ends.dedup();
    let (mut data, mut sums, mut widest) = (Vec::new(), Vec::new(), 0.0_f64);
    for (end, arm) in ends
        .iter()
        .flat_map(|end| [(*end, Arm::Before), (*end, Arm::After)])
    {
        let name = folded(&visible(&format!("{end}, {}", arm.word())));
        let mut to = 0.0;
        for (bar, cost) in known
            .iter()
            .filter(|(bar, _)| bar.end == end && bar.arm == arm)
        {
            let from = to;
            to += cost;
            data.push(
                json!({"name": name, "kind": bar.kind, "from": short(from), "to": short(to),
                       "middle": short(f64::midpoint(from, to)), "text": format!("{} {cost:.2}", bar.kind),
                       "color": if PALE.contains(&bar.kind) { "var(--ink)" } else { "var(--card)" },
                       "about": format!("{} {cost:.3} s/GB", bar.kind)}),
            );
        }
        widest = widest.max(to);
        if to > 0.0 {
            sums.push(json!({"name": name, "to": short(to), "text": format!("{to:.2} s/GB")}));
        }
    }
    if data.is_empty() {
        return String::new();
    }
    let (x, y) = (
        Axis::from_zero("CPU time, s/GB", 0.0, (widest, 96)),
        rows("name"),
    );
    let kinds = CpuCost::default().kinds().map(|(kind, _)| kind);
    let (kinds, colors): (Vec<&str>, Vec<String>) = (kinds.into_iter().zip(1..))
        .filter(|(kind, _)| known.iter().any(|(bar, _)| bar.kind == *kind))
        .map(|(kind, number)| (kind, format!("var(--k{number})")))
        .unzip();
    let wide = "scale('x', datum.to) - scale('x', datum.from) > 7.2 * length(datum.text)";
    let layer = [
        json!({"mark": {"type": "bar", "height": {"band": 0.72}, "stroke": "var(--card)", "strokeWidth": 1.5},
            "encoding": {"y": y, "x": x.by("from"), "x2": {"field": "to"}, "tooltip": {"field": "about"},
                "color": {"field": "kind", "type": "nominal", "scale": {"domain": kinds, "range": colors},
                    "legend": {"columns": {"expr": "containerSize()[0] < 480 ? 3 : 5"}}}}}),
        json!({"mark": {"type": "text", "fontSize": 11, "color": {"expr": "datum.color"},
                        "text": {"expr": format!("{wide} ? datum.text : ''")}},
            "encoding": {"y": y, "x": x.by("middle")}}),
        json!({"data": {"values": sums}, "mark": label(json!({"align": "left", "dx": 6, "fontWeight": "bold"})),
            "encoding": {"y": y, "x": x.by("to"), "text": {"field": "text"}}}),
    ];
    draw(
        drawn,
        40 * sums.len(),
        &data,
        &layer,
        (
            "CPU seconds per gigabyte by kind",
            "Stacked bars of CPU seconds per gigabyte by kind, before and after, at each end; the \
             table below has the numbers",
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_continues_after_a_hyphen_and_keeps_every_character() {
        assert_eq!(folded("tso-gso-off"), "tso-gso-off");
        assert_eq!(
            folded("congestion-control-paced"),
            "congestion-control-\npaced"
        );
        assert_eq!(
            folded("a_name_without_any_hyphen_in_it"),
            "a_name_without_any_hyphen_in_it"
        );
    }
}
