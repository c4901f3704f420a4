//! Of an experiment's page: what moved within trials, how long operations took, and what the CPUs did.
//!
//! Each picture shows any number of trials: what cannot be drawn is thinned, and the lead reports it.

use std::collections::BTreeMap;

use linerate_analysis::experiment::document::LabDocument;
use linerate_analysis::text::words::count;
use linerate_analysis::trial::operations::real;
use linerate_model::ids::CpuId;
use serde_json::{Value, json};

use super::course;
use super::data::{EndOfTrial, KINDS, LabData, QUANTILES, Times, Trial, bin_s, moved_unit};
use super::draw::{LINES_DRAWN, apart, name, spread, varied};
use crate::chart::{
    Axis, Course, OverTime, Style, decades, draw, folded, height_of_rows, label, rows, short,
};
use crate::html::{escape, section, table};

/// Pictures of what moved within trials, and trials in each.
const SERIES_DRAWN: usize = 6;
const TRIALS_DRAWN: usize = 8;
/// A trial with fewer points has no meaningful course.
pub(super) const POINTS_MIN: usize = 4;
/// Combinations whose operations' times are drawn.
const STRIPS_DRAWN: usize = 24;
/// Columns and CPUs of a picture of CPU time.
const COLUMNS_DRAWN: usize = 240;
const CPUS_DRAWN: usize = 12;
/// A kind of CPU time that never reached this share is in the table only.
pub(super) const SHARE_DRAWN: f64 = 0.02;
/// With at most this many columns each box has space for its number.
const COLUMNS_NUMBERED: usize = 16;

/// The name of a combination, and its trials.
pub(super) type Combination<'s> = (String, Vec<&'s Trial>);

/// Every combination, in the order of the first figure's table of means.
pub(super) fn combinations<'s>(document: &LabDocument, seen: &'s LabData) -> Vec<Combination<'s>> {
    let mut by_levels = seen.by_combination();
    let factors = varied(document);
    let cells = document.responses.iter().take(1);
    cells
        .flat_map(|response| &response.cells)
        .map(|cell| {
            let trials = by_levels.remove(&cell.levels).unwrap_or_default();
            (name(document, &cell.levels, &factors), trials)
        })
        .collect()
}

/// What the raw records show in addition to the analyzed figures.
pub(super) fn within_trials(
    document: &LabDocument,
    seen: &LabData,
    drawn: &mut Vec<Value>,
) -> String {
    let all = combinations(document, seen);
    [
        series(&all, drawn),
        distribution(&all, drawn),
        cpu_time(document, &all, seen, drawn),
    ]
    .concat()
}

/// The combinations whose course is drawn, and their axes.
struct Courses<'s> {
    shown: Vec<(&'s str, Vec<&'s Trial>)>,
    /// Combinations that have one.
    of: usize,
    /// The end of the longest trial, seconds.
    longest: f64,
    /// The highest rate.
    highest: f64,
    /// Whether one axis of rates works for all: the lowest is still visible next to the highest.
    alike: bool,
}

/// The highest rate of some trials.
fn top(trials: &[&Trial]) -> f64 {
    let points = trials.iter().flat_map(|trial| &trial.series);
    points.map(|(_, rate)| *rate).fold(0.0, f64::max)
}

/// Of the combinations that have such trials some with those trials, by their places among all, and how many have any.
/// Of many they are some from the slowest to the fastest.
pub(super) fn some_with<'s>(
    all: &[Combination<'s>],
    is_such: impl Fn(&Trial) -> bool,
) -> (Vec<(usize, Vec<&'s Trial>)>, usize) {
    let mut known: Vec<(usize, Vec<&Trial>)> = Vec::new();
    for (place, (_, trials)) in all.iter().enumerate() {
        let such = trials.iter().copied().filter(|trial| is_such(trial));
        let such: Vec<&Trial> = such.collect();
        if !such.is_empty() {
            known.push((place, such));
        }
    }
    let of = known.len();
    if of > SERIES_DRAWN {
        known.sort_by(|one, other| top(&one.1).total_cmp(&top(&other.1)));
    }
    let places = spread(of, SERIES_DRAWN).into_iter();
    (places.map(|place| known[place].clone()).collect(), of)
}

impl<'s> Courses<'s> {
    fn of(all: &'s [Combination<'s>]) -> Self {
        let (some, of) = some_with(all, |trial| trial.series.len() >= POINTS_MIN);
        let shown: Vec<(&str, Vec<&Trial>)> = (some.into_iter())
            .map(|(place, trials)| (all[place].0.as_str(), trials))
            .collect();
        let tops = || shown.iter().map(|(_, trials)| top(trials));
        let highest = tops().fold(0.0, f64::max);
        let trials = shown.iter().flat_map(|(_, trials)| trials);
        let points = trials.flat_map(|trial| &trial.series);
        Self {
            of,
            longest: points.map(|(at, _)| *at).fold(0.0, f64::max),
            highest,
            alike: tops().fold(f64::INFINITY, f64::min) >= highest / 10.0,
            shown,
        }
    }

    fn picture(&self, name: &str, trials: &[&Trial], drawn: &mut Vec<Value>) -> String {
        let Some((by, title)) = trials.first().map(|trial| moved_unit(trial.moved)) else {
            return String::new();
        };
        let highest = if self.alike {
            self.highest
        } else {
            top(trials)
        };
        let courses: Vec<Course<'_>> = (trials.iter().take(TRIALS_DRAWN))
            .map(|trial| Course {
                kind: "",
                points: trial.series.clone(),
            })
            .collect();
        let chart = OverTime {
            height: 130,
            rate: (
                Axis::new(
                    title,
                    json!({"domain": [0, short(1.05 * highest / by)]}),
                    json!({"tickCount": 4}),
                ),
                by,
            ),
            end_s: self.longest,
            warm_up_s: trials
                .iter()
                .map(|trial| trial.warm_up_s)
                .fold(0.0, f64::max),
            styles: &[Style {
                kind: "",
                color: "var(--accent)",
                dash: [1, 0],
            }],
            ceiling_bit_per_s: None,
        };
        let about = "The rate of each trial over time; the table of all trials has their means.";
        chart.draw(&courses, drawn, (name, about))
    }
}

/// Rates over time: a small picture for each combination.
fn series(all: &[Combination<'_>], drawn: &mut Vec<Value>) -> String {
    let courses = Courses::of(all);
    if courses.shown.is_empty() {
        return String::new();
    }
    let mut charts = String::new();
    for (name, trials) in &courses.shown {
        charts.push_str(&courses.picture(name, trials, drawn));
    }
    let picked = if courses.of > courses.shown.len() {
        format!(
            " {} of {} combinations are shown, from the slowest to the fastest.",
            courses.shown.len(),
            courses.of
        )
    } else {
        String::new()
    };
    let axes = if courses.alike {
        "all charts share the same axes"
    } else {
        "the rates differ too much for a shared axis"
    };
    section(
        "series",
        "Within the trials",
        &format!(
            "One line per trial of a combination, {TRIALS_DRAWN} or fewer; {axes}. The shaded \
             part was cut as warm-up.{picked}"
        ),
        &format!("<div class=\"grid\">{charts}</div>"),
    )
}

/// The combinations with trials whose operations were timed, and these trials.
fn timed<'s>(all: &'s [Combination<'s>]) -> Vec<(&'s str, Vec<&'s Trial>)> {
    let of = |(name, trials): &'s Combination<'s>| {
        let timed = trials.iter().filter(|trial| trial.times.is_some());
        let timed: Vec<&Trial> = timed.copied().collect();
        (!timed.is_empty()).then_some((name.as_str(), timed))
    };
    all.iter().filter_map(of).collect()
}

/// How long operations took: a strip for each combination, and the quantiles on it.
fn distribution(all: &[Combination<'_>], drawn: &mut Vec<Value>) -> String {
    let timed = timed(all);
    if timed.is_empty() {
        return String::new();
    }
    let (mut data, mut marks, mut lines) = (Vec::new(), Vec::new(), Vec::new());
    let places = spread(timed.len(), STRIPS_DRAWN);
    for (place, (name, trials)) in timed.iter().enumerate() {
        let times = || trials.iter().filter_map(|trial| trial.times.as_ref());
        let quantiles = quantiles(times().map(|times| &times.quantiles[..]));
        let operations: u64 = times().map(|times| times.count).sum();
        let mut line = vec![escape(name), operations.to_string()];
        line.extend(quantiles.iter().map(|time| seconds(*time)));
        lines.push(line);
        if !places.contains(&place) {
            continue;
        }
        let name = folded(name);
        data.extend(strip(&name, times()));
        marks.extend(
            quantiles
                .iter()
                .zip(QUANTILES)
                .filter(|(_, (_, what))| *what != "90 %")
                .map(|(time, (_, what))| {
                    json!({"name": name, "at": short(time * 1e6), "what": what, "text": seconds(*time)})
                }),
        );
    }
    let names = places.iter().map(|place| folded(timed[*place].0));
    let names: Vec<String> = names.collect();
    let height = height_of_rows(names.iter().map(String::as_str), 30);
    let picture = draw(
        drawn,
        height,
        &data,
        &strip_layers(&data, &marks),
        (
            "Operation latency",
            "One strip per combination: darker where more operations had that latency. The table \
             below has the percentiles.",
        ),
    );
    let tail = tail(&timed, drawn);
    let mut head = vec!["combination", "operations"];
    head.extend(QUANTILES.map(|(_, what)| what));
    let picked = if timed.len() > places.len() {
        format!(
            " {} of {} combinations are shown.",
            places.len(),
            timed.len()
        )
    } else {
        String::new()
    };
    section(
        "times",
        "Operation latency",
        &format!(
            "All operations of all trials, log scale; marks show percentiles (the median over the \
             trials) and the overall maximum.{picked}"
        ),
        &format!(
            "{picture}{tail}{}",
            table("Operation latency", &head, &lines)
        ),
    )
}

/// The strip of a combination: a box for each bin that holds any time.
fn strip<'t>(name: &str, times: impl Iterator<Item = &'t Times>) -> Vec<Value> {
    let mut bins: BTreeMap<i32, u64> = BTreeMap::new();
    for (bin, count) in times.flat_map(|times| &times.bins) {
        *bins.entry(*bin).or_default() += count;
    }
    let most = real(bins.values().copied().max().unwrap_or(1));
    let one = |(bin, count): (&i32, &u64)| {
        let (from, to) = bin_s(*bin);
        // The faintest is still visible: it was the time of some operation.
        let shade = 0.08 + 0.72 * (real(*count) / most).sqrt();
        json!({"name": name, "from": short(from * 1e6), "to": short(to * 1e6), "shade": short(shade)})
    };
    bins.iter().map(one).collect()
}

/// Latencies in us on a logarithmic scale, each tick in the unit that suits it.
fn of_latency(data: &[Value], [low, high]: [&str; 2]) -> Axis {
    const IN_WORDS: &str = "datum.value >= 1e6 ? format(datum.value / 1e6, '~r') + ' s' : \
        datum.value >= 1e3 ? format(datum.value / 1e3, '~r') + ' ms' : format(datum.value, '~r') + ' us'";
    Axis::new(
        "operation latency (log scale)",
        json!({"type": "log", "nice": false, "padding": 6}),
        json!({"values": ticks_of(data, [low, high]), "labelExpr": IN_WORDS, "labelOverlap": true}),
    )
}

/// The ticks of a logarithmic axis for the smallest `low` to the largest `high` of the rows.
fn ticks_of(data: &[Value], [low, high]: [&str; 2]) -> Vec<f64> {
    let of = |field: &str| {
        data.iter()
            .filter_map(|row| row[field].as_f64())
            .collect::<Vec<f64>>()
    };
    let least = of(low).into_iter().fold(f64::INFINITY, f64::min);
    decades(least, of(high).into_iter().fold(0.0, f64::max))
}

/// The share of operations that took longer, over the latency: the tail that a few quantiles do not show.
fn tail(timed: &[(&str, Vec<&Trial>)], drawn: &mut Vec<Value>) -> String {
    let shown = spread(timed.len(), LINES_DRAWN);
    let names: Vec<&str> = shown.iter().map(|place| timed[*place].0).collect();
    let mut data = Vec::new();
    for place in shown {
        let (name, trials) = &timed[place];
        let mut bins: BTreeMap<i32, u64> = BTreeMap::new();
        let times = trials.iter().filter_map(|trial| trial.times.as_ref());
        for (bin, count) in times.flat_map(|times| &times.bins) {
            *bins.entry(*bin).or_default() += count;
        }
        let all = real(bins.values().sum::<u64>().max(1));
        let mut left = all;
        for (bin, count) in bins {
            let (_, to) = bin_s(bin);
            left -= real(count);
            if left > 0.0 {
                data.push(json!({"line": name, "at": short(to * 1e6), "share": short(100.0 * left / all)}));
            }
        }
    }
    let [colour, dash, _] = apart(&names);
    let share = Axis::new(
        "slower operations, % (log scale)",
        json!({"type": "log", "nice": false, "domainMax": 100}),
        json!({"values": ticks_of(&data, ["share", "share"]), "format": "~r", "labelOverlap": true}),
    );
    let latency = of_latency(&data, ["at", "at"]);
    let layer = [
        json!({"mark": {"type": "line", "strokeWidth": 1.8, "interpolate": "step-after"},
        "encoding": {"x": latency.by("at"), "y": share.by("share"), "color": colour, "strokeDash": dash}}),
    ];
    let about = "For each combination, the share of operations that took longer than a latency (CCDF). The table below \
        has the percentiles.";
    draw(
        drawn,
        240,
        &data,
        &layer,
        ("Share of operations that took longer (CCDF)", about),
    )
}

/// The strips, and `marks` on them.
fn strip_layers(data: &[Value], marks: &[Value]) -> Vec<Value> {
    let x = of_latency(data, ["from", "to"]);
    vec![
        json!({"mark": {"type": "bar", "height": {"band": 0.72}, "color": "var(--accent)"},
            "encoding": {"y": rows("name"), "x": x.by("from"), "x2": {"field": "to"},
                "opacity": {"field": "shade", "type": "quantitative", "scale": Value::Null, "legend": Value::Null}}}),
        json!({"data": {"values": marks},
            "mark": {"type": "point", "size": 70, "filled": false, "opacity": 1, "color": "var(--ink)",
                     "fill": "var(--card)", "strokeWidth": 1.3},
            "encoding": {"y": rows("name"), "x": x.by("at"),
                "shape": {"field": "what", "type": "nominal", "sort": Value::Null,
                    "scale": {"domain": ["median", "99 %", "99.9 %", "longest"],
                              "range": ["circle", "triangle-up", "diamond", "stroke"]},
                    "legend": {"symbolSize": 90,
                               "columnPadding": 12, "columns": {"expr": "containerSize()[0] < 480 ? 2 : 4"}}},
                "tooltip": [{"field": "what", "title": "quantile"}, {"field": "text", "title": "time"}]}}),
    ]
}

/// The quantiles of several trials together: the geometric mean of each, and the longest of all.
fn quantiles<'t>(trials: impl Iterator<Item = &'t [f64]>) -> Vec<f64> {
    let trials: Vec<&[f64]> = trials.collect();
    (0..QUANTILES.len())
        .map(|place| {
            let times = trials.iter().filter_map(|times| times.get(place));
            if place + 1 == QUANTILES.len() {
                return times.copied().fold(0.0, f64::max);
            }
            let logs = times.map(|time| time.max(1e-9).ln());
            (logs.sum::<f64>() / real(trials.len().max(1) as u64)).exp()
        })
        .collect()
}

/// A time as text.
fn seconds(time: f64) -> String {
    match time {
        small if small < 1e-3 => format!("{:.1} us", small * 1e6),
        middle if middle < 1.0 => format!("{:.2} ms", middle * 1e3),
        large => format!("{large:.2} s"),
    }
}

/// What the CPUs of both hosts spent their time on, trial by trial.
fn cpu_time(
    document: &LabDocument,
    all: &[Combination<'_>],
    seen: &LabData,
    drawn: &mut Vec<Value>,
) -> String {
    let mut trials = seen.trials();
    let Some(first) = trials.next() else {
        return String::new();
    };
    let shared = first.shared_kernel && trials.all(|trial| trial.shared_kernel);
    let mut body = String::new();
    if shared {
        body.push_str(&cpus_of_end(all, 0, "Both ends, on one kernel", drawn));
    } else {
        body.push_str(&cpus_of_end(all, 0, "This host", drawn));
        let of_peer = with(all, None);
        body.push_str(&cpus_of_end(&of_peer, 1, "The peer", drawn));
        for other in &seen.peers {
            let of_other = with(all, Some(&other.at));
            body.push_str(&cpus_of_end(&of_other, 1, &other.at, drawn));
        }
    }
    body.push_str(&course::over_the_time_of_one(document, all, drawn));
    section(
        "cpu-time",
        "CPU time",
        &format!(
            "Share of each CPU's time by kind: darker is more. {} Softirq time is the kernel's \
             packet processing.",
            columns_in_words(all)
        ),
        &body,
    )
}

/// The combinations in their order with only those trials whose remote end was the peer, or another host.
fn with<'s>(all: &[Combination<'s>], peer: Option<&str>) -> Vec<Combination<'s>> {
    let of = |trials: &[&'s Trial]| {
        let trials = trials.iter().copied();
        trials
            .filter(|trial| trial.peer.as_deref() == peer)
            .collect()
    };
    all.iter()
        .map(|(name, trials)| (name.clone(), of(trials)))
        .collect()
}

/// One column of the picture: its position on the axis of combinations, and the trials that it is the mean of.
struct Column<'t> {
    from: f64,
    to: f64,
    trials: Vec<&'t Trial>,
}

/// A column for each trial, or where those are too many for each combination.
fn columns<'t>(all: &[Combination<'t>]) -> Vec<Column<'t>> {
    let trials: usize = all.iter().map(|(_, trials)| trials.len()).sum();
    let each = trials <= COLUMNS_DRAWN;
    let places = spread(all.len(), COLUMNS_DRAWN);
    let mut columns = Vec::new();
    for place in places {
        let (start, trials) = (real(place as u64), &all[place].1);
        if !each {
            columns.push(Column {
                from: start,
                to: start + 1.0,
                trials: trials.clone(),
            });
            continue;
        }
        let width = 1.0 / real(trials.len().max(1) as u64);
        columns.extend(trials.iter().enumerate().map(|(number, trial)| {
            let from = start + real(number as u64) * width;
            Column {
                from,
                to: from + width,
                trials: vec![*trial],
            }
        }));
    }
    columns
}

/// The label of a column.
fn columns_in_words(all: &[Combination<'_>]) -> String {
    let trials: usize = all.iter().map(|(_, trials)| trials.len()).sum();
    if trials <= COLUMNS_DRAWN {
        return "One column per trial, grouped by combination under its number in the table of \
            means."
            .to_owned();
    }
    let left_out = all.len().saturating_sub(COLUMNS_DRAWN);
    let what =
        "One column per combination (mean of its trials), under its number in the table of means";
    match left_out {
        0 => format!("{what}."),
        some => format!("{what}; {some} of them are not shown."),
    }
}

/// The mean of a CPU's shares over trials.
fn mean_shares<'t>(
    trials: impl Iterator<Item = &'t EndOfTrial>,
    cpu: CpuId,
) -> Option<[f64; KINDS.len()]> {
    let mut sums = [0.0; KINDS.len()];
    let mut number = 0;
    for shares in trials.filter_map(|end| end.cpus.get(&cpu)) {
        for (sum, share) in sums.iter_mut().zip(shares) {
            *sum += share;
        }
        number += 1;
    }
    (number > 0).then(|| sums.map(|sum| sum / real(number)))
}

fn cpus_of_end(all: &[Combination<'_>], end: usize, what: &str, drawn: &mut Vec<Value>) -> String {
    let of_all = || {
        let trials = all.iter().flat_map(|(_, trials)| trials);
        trials.map(move |trial| &trial.ends[end])
    };
    let mut cpus: BTreeMap<CpuId, [f64; KINDS.len()]> = BTreeMap::new();
    for cpu in of_all().flat_map(|end| end.cpus.keys()) {
        if !cpus.contains_key(cpu)
            && let Some(shares) = mean_shares(of_all(), *cpu)
        {
            cpus.insert(*cpu, shares);
        }
    }
    if cpus.is_empty() {
        let why = of_all().next().map_or("", |end| &end.why_no_cpus);
        return format!("<p>{}: unknown: {}.</p>", escape(what), escape(why));
    }
    let busy = |shares: &[f64; KINDS.len()]| shares.iter().sum::<f64>();
    let mut busiest: Vec<(&CpuId, f64)> = (cpus.iter())
        .map(|(cpu, shares)| (cpu, busy(shares)))
        .collect();
    busiest.sort_by(|one, other| other.1.total_cmp(&one.1));
    let mut shown: Vec<CpuId> = (busiest.iter().take(CPUS_DRAWN))
        .map(|(cpu, _)| **cpu)
        .collect();
    shown.sort_unstable();
    let picture = heat(all, end, &shown, (what, cpus.len()), drawn);
    let lines: Vec<Vec<String>> = (cpus.iter())
        .map(|(cpu, shares)| {
            let mut line = vec![format!("CPU {cpu}")];
            line.extend(shares.iter().map(|share| format!("{:.1} %", share * 100.0)));
            line.push(format!("{:.1} %", (1.0 - busy(shares)).max(0.0) * 100.0));
            line
        })
        .collect();
    let mut head = vec!["CPU"];
    head.extend(KINDS);
    head.push("idle");
    let table = table(&format!("{what}: means of all trials"), &head, &lines);
    if cpus.len() > CPUS_DRAWN {
        return format!(
            "{picture}<details><summary>All {} CPUs</summary>{table}</details>",
            cpus.len()
        );
    }
    format!("{picture}{table}")
}

/// The boxes of the picture, with their numbers where they fit, and how many kinds are drawn.
fn boxes(
    columns: &[Column<'_>],
    end: usize,
    cpus: &[CpuId],
    numbered: bool,
) -> (Vec<Value>, usize) {
    let mut data = Vec::new();
    let mut kinds_seen = [false; KINDS.len()];
    let mut boxes: Vec<(CpuId, usize, &Column<'_>, f64)> = Vec::new();
    for cpu in cpus {
        for column in columns {
            let ends = column.trials.iter().map(|trial| &trial.ends[end]);
            let Some(shares) = mean_shares(ends, *cpu) else {
                continue;
            };
            for (kind, share) in shares.into_iter().enumerate() {
                kinds_seen[kind] |= share > SHARE_DRAWN;
                boxes.push((*cpu, kind, column, share));
            }
        }
    }
    // Rows are in the order of the data.
    boxes.sort_by_key(|(cpu, kind, ..)| (*cpu, *kind));
    for (cpu, kind, column, share) in boxes {
        if !kinds_seen[kind] {
            continue;
        }
        let mut one = json!({"row": format!("CPU {cpu} {}", KINDS[kind]), "from": short(column.from),
                             "to": short(column.to), "share": short((share * 1e3).round() / 1e3)});
        if numbered {
            one["middle"] = short(f64::midpoint(column.from, column.to));
            one["text"] = json!(format!("{:.0}", share * 100.0));
        }
        data.push(one);
    }
    let kinds = kinds_seen.iter().filter(|seen| **seen).count();
    (data, kinds)
}

/// The picture: a row for each CPU and kind, a column for each trial.
fn heat(
    all: &[Combination<'_>],
    end: usize,
    cpus: &[CpuId],
    (what, of): (&str, usize),
    drawn: &mut Vec<Value>,
) -> String {
    let columns = columns(all);
    let numbered = columns.len() <= COLUMNS_NUMBERED;
    let (data, kinds) = boxes(&columns, end, cpus, numbered);
    let number = real(all.len() as u64);
    let every = all.len().div_ceil(24).max(1);
    let ticks: Vec<f64> = (0..all.len())
        .step_by(every)
        .map(|place| real(place as u64) + 0.5)
        .collect();
    let x = Axis::new(
        "combination",
        json!({"domain": [0, number], "nice": false}),
        json!({"values": ticks, "labelExpr": "format(datum.value + 0.5, 'd')", "grid": false, "ticks": false}),
    );
    let mut layer = vec![json!({
        "mark": {"type": "bar", "height": {"band": 1}, "color": "var(--accent)"},
        "encoding": {"y": rows("row"), "x": x.by("from"), "x2": {"field": "to"},
            "opacity": {"field": "share", "type": "quantitative", "scale": {"domain": [0, 1], "range": [0, 0.92]},
                "legend": {"format": ".0%", "values": [0.25, 0.5, 1], "symbolType": "square",
                           "symbolFillColor": "var(--accent)", "symbolStrokeWidth": 0, "symbolSize": 180}},
            "tooltip": [{"field": "row", "title": "what"},
                        {"field": "share", "type": "quantitative", "format": ".1%"}]}})];
    let edges: Vec<Value> = (1..all.len()).map(|edge| json!({"edge": edge})).collect();
    if all.len() <= COLUMNS_DRAWN / 2 {
        layer.push(json!({"data": {"values": edges},
            "mark": {"type": "rule", "color": "var(--card)", "strokeWidth": 3}, "encoding": {"x": x.by("edge")}}));
    }
    if numbered {
        layer.push(
            json!({"mark": label(json!({"fontSize": 10, "strokeWidth": 2.5})),
            "encoding": {"y": rows("row"), "x": x.by("middle"), "text": {"field": "text"}}}),
        );
    }
    let height = (cpus.len() * kinds).max(1) * 18;
    let title = if of > cpus.len() {
        format!("{what}: the {} busiest of {}", cpus.len(), count(of, "CPU"))
    } else {
        what.to_owned()
    };
    let about = "CPU time by kind as shares, one column per trial. The table below has the means.";
    draw(drawn, height, &data, &layer, (&title, about))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_trials_are_their_middle_and_the_longest_is_the_longest() {
        let one = [1e-6, 2e-6, 3e-6, 4e-6, 5e-6];
        let other = [4e-6, 8e-6, 12e-6, 16e-6, 50e-6];
        let all = quantiles([&one[..], &other[..]].into_iter());
        assert!((all[0] - 2e-6).abs() < 1e-12 && (all[3] - 8e-6).abs() < 1e-12);
        assert!((all[4] - 50e-6).abs() < 1e-15);
    }

    #[test]
    fn times_are_written_in_the_unit_that_suits_them() {
        assert_eq!(seconds(64.26e-6), "64.3 us");
        assert_eq!(seconds(0.012_49), "12.49 ms");
        assert_eq!(seconds(1.5), "1.50 s");
    }
}
