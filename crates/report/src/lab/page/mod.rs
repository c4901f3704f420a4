//! The page of an experiment: the result first, then the pictures, then every table. It is complete without
//! JavaScript; with it, the pictures are drawn by the bundle from what is written here.

use linerate_analysis::experiment::document::{
    EffectDocument, LabDocument, PublishedDocument, ResponseDocument,
};
use linerate_analysis::experiment::published::notes;
use linerate_analysis::record::Header;
use linerate_analysis::text::words::{
    Effect, TOO_NOISY, count, detectable, effect_figure, effect_in_figures, interval_in_figures,
    is_too_noisy,
};
use linerate_analysis::trial::figure::in_words;
use linerate_model::lab::Response;
use serde_json::{Value, json};

use super::data::LabData;
use super::draw::{ROW, highest, means_of, name, scale, varied};
use super::{charts, curves, difference, grid, hosts, map, matrix, others, sizes};
use crate::chart::{Axis, clear_of, draw, folded, height_of_rows, label, rows, short};
use crate::figures::flag_in_words;
use crate::html::{escape, section, table};
use crate::page::shell;

/// More combinations or effects than these are in their table only.
const CELLS_DRAWN: usize = 60;
/// More trials than these are drawn as every n-th.
const TRIALS_DRAWN: usize = 2_000;

/// Replaces the effects if too little was measured.
const UNTOLD: &str = "No effects: three complete blocks are required.";

/// Latency and rate of each path, transport or setting; nothing where the experiment does not measure both.
fn fabric(document: &LabDocument) -> String {
    let Some(found) = &document.fabric else {
        return String::new();
    };
    section(
        "fabric",
        "Latency and rate",
        "Means over the blocks. MiB are 2^20 bytes; net is what the path carries as payload, gross what its link signals.",
        &under_head("Latency and rate of each combination", &found.table()),
    )
}

/// The rate of each flow in each combination; nothing where none has several.
fn flows(document: &LabDocument) -> String {
    let Some(found) = &document.flows else {
        return String::new();
    };
    section(
        "flows",
        "Flows",
        "Mean rate of each flow over the trials, their sum, and Jain's fairness index: 1 if all are equal.",
        &under_head("Rate of each flow", &found.table()),
    )
}

/// Real, user and system seconds of a client and a server; nothing where no combination has them.
fn times(document: &LabDocument) -> String {
    let Some(found) = &document.times else {
        return String::new();
    };
    let clients = |one: &PublishedDocument| one.response == Some(Response::UserLocal);
    let notes = notes(&document.published, clients).into_iter();
    let notes = notes.map(|note| format!(" {}.", escape(note)));
    let notes: String = notes.collect();
    section(
        "times",
        "Seconds of each process",
        &format!(
            "Means over the trials, of one client and one server: wall-clock, user and system time, and the GB that the pair \
             moved in each direction meanwhile. GB are 10^9 bytes.{notes}"
        ),
        &under_head("Real, user and system seconds", &found.table()),
    )
}

/// A table whose first row is its head.
fn under_head(caption: &str, rows: &[Vec<String>]) -> String {
    let Some((head, rows)) = rows.split_first() else {
        return String::new();
    };
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let escaped = |row: &Vec<String>| row.iter().map(|cell| escape(cell)).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(escaped).collect();
    table(caption, &head, &rows)
}

/// The page of an experiment as one HTML document.
pub fn lab_page(document: &LabDocument, header: &Header, seen: &LabData) -> String {
    let mut drawn: Vec<Value> = Vec::new();
    let mut body = story(document);
    body.push_str(&fabric(document));

    let numbered = || (1..).zip(&document.responses);
    for (number, response) in numbered() {
        body.push_str(&curves::of_figure(document, response, number, &mut drawn));
    }
    body.push_str(&difference::difference(document, &mut drawn));
    for (number, response) in numbered() {
        body.push_str(&effects(response, number, &mut drawn));
        body.push_str(&matrix::matrix(document, response, number, &mut drawn));
        body.push_str(&means(document, response, number, &mut drawn));
    }
    body.push_str(&flows(document));
    body.push_str(&times(document));
    body.push_str(&sizes::by_size(document, seen, &mut drawn));
    body.push_str(&map::path(document, header, seen));
    body.push_str(&charts::within_trials(document, seen, &mut drawn));
    body.push_str(&others::hits(document));
    body.push_str(&grid::grids(seen));
    if let Some(response) = document.responses.first() {
        body.push_str(&over_time(document, response, &mut drawn));
        body.push_str(&checks(document, response));
    }
    body.push_str(&others::published(document));
    body.push_str(&trials(document));
    body.push_str(&hosts::both_hosts(document, header, seen));
    body.push_str(&others::other_hosts(document));
    body.push_str(&hosts::again(document, header, seen));
    let data = json!({"drawn": drawn});
    let created = linerate_analysis::text::timestamp::utc(header.created_unix_s);
    let body = format!(
        "<a class=\"skip\" href=\"#effects-1\">To the effects</a>\n<header class=\"top\"><p class=\"brand\">linerate \
         <span>experiment</span></p><p>{} · {} to {}</p></header>\n<main>\n{body}</main>\n",
        escape(&created),
        escape(header.local_nic.as_str()),
        escape(&header.peer),
    );
    shell(&document.title, &header.version, &body, &data.to_string())
}

/// The result, in sentences.
fn story(document: &LabDocument) -> String {
    let mut out = format!("<section><h1>{}</h1>", escape(&document.title));
    if !document.question.is_empty() {
        out.push_str(&format!(
            "<p class=\"lead\">{}</p>",
            escape(&document.question)
        ));
    }
    out.push_str("<ul>");
    let mut say = |text: String| out.push_str(&format!("<li>{}</li>", escape(&text)));
    if let Some(response) = document.responses.first() {
        let shown = response
            .effects
            .iter()
            .filter(|effect| effect.shown_among_all);
        let mut any = false;
        for effect in shown {
            any = true;
            say(sentence(effect, response));
        }
        let alone =
            (response.effects.iter()).filter(|effect| effect.shown && !effect.shown_among_all);
        let word = response.response.word();
        match (any, alone.count(), response.effects.is_empty()) {
            (true, ..) => {}
            (false, _, true) => say(match &response.left_out {
                Some(words) => format!("No effects on {word}: {words}."),
                None => format!("No effects on {word}: three complete blocks are required."),
            }),
            (false, 0, false) => say(none_significant(response)),
            (false, some, false) => say(format!(
                "No effect on {word} is significant after correction for multiple comparisons; \
                 {some} would be alone."
            )),
        }
    }
    for factor in &document.factors {
        for level in &factor.levels {
            if let Some(why) = &level.skipped {
                say(format!("Skipped: {} {}: {why}", factor.name, level.name));
            }
        }
    }
    if let Some(why) = &document.stopped {
        say(format!("The run stopped early: {why}"));
    }
    match document.restored {
        Some(true) => say("No setting differs from the baseline.".to_owned()),
        Some(false) => say("NOT all settings were restored to the baseline.".to_owned()),
        None => {}
    }
    out.push_str("</ul></section>\n");
    out
}

/// What the effects show if none is significant.
fn none_significant(response: &ResponseDocument) -> String {
    let word = response.response.word();
    let effects = &response.effects;
    let noisy = effects
        .iter()
        .filter(|effect| is_too_noisy(*effect))
        .count();
    if noisy > 0 {
        return format!(
            "No effect on {word} is significant; {noisy} of {} are {TOO_NOISY}: more or longer trials narrow the intervals.",
            effects.len()
        );
    }
    let least = effects.iter().min_by(|one, other| {
        let [one, other] = [one, other].map(|effect| effect.smallest_detectable());
        one.total_cmp(&other)
    });
    let least = least.map_or_else(String::new, |effect| detectable(effect));
    format!(
        "No effect on {word} is significant; the smallest minimum detectable effect is {least}."
    )
}

/// An effect as a sentence: `flows 12 against 1: +158.0 % [+140.1, +177.2] rate, better.`
fn sentence(effect: &EffectDocument, response: &ResponseDocument) -> String {
    let interval =
        interval_in_figures(effect).map_or_else(String::new, |figures| format!(" {figures}"));
    format!(
        "{}: {}{interval} of {}: {}.",
        effect.in_words(),
        effect_in_figures(effect),
        response.response.word(),
        effect.verdict(response.more_is_better)
    )
}

/// The picture of the effects of a figure.
fn draw_effects(response: &ResponseDocument, drawn: &mut Vec<Value>) -> String {
    let word = response.response.word();
    let ratios = |effect: &EffectDocument| effect.relative().map(|relative| 1.0 + relative);
    let (noisy, clear): (Vec<&EffectDocument>, Vec<&EffectDocument>) = response
        .effects
        .iter()
        .partition(|effect| is_too_noisy(*effect));
    let data: Vec<Value> = (clear.iter())
        .map(|effect| {
            let [middle, low, high] = ratios(effect).map(short);
            let figure = effect_figure(*effect);
            json!({"name": folded(&effect.in_words()), "middle": middle, "low": low, "high": high,
                   "about": format!("{} {}", figure(effect.relative), interval_in_figures(*effect).unwrap_or_default()),
                   "shown": if effect.shown { "shown" } else { "not significant" }})
        })
        .collect();
    let noisy: Vec<Value> = (noisy.iter())
        .map(|effect| json!({"name": folded(&effect.in_words()), "none": 1, "text": TOO_NOISY}))
        .collect();
    let names = response
        .effects
        .iter()
        .map(|effect| folded(&effect.in_words()));
    let names: Vec<String> = names.collect();
    if clear.is_empty() {
        return String::new();
    }
    let x = Axis::of_ratios(word, clear.iter().flat_map(|effect| ratios(effect)));
    let mut y = rows("name");
    y["scale"] = json!({"domain": names});
    let layer = [
        json!({"data": {"values": [{"none": 1}]},
            "mark": {"type": "rule", "color": "var(--ink-soft)", "strokeDash": [4, 4]}, "encoding": {"x": x.by("none")}}),
        json!({"data": {"values": noisy}, "mark": label(json!({"align": "left", "dx": clear_of(1.0, "none"), "color": "var(--ink-soft)"})),
            "encoding": {"y": y, "x": x.by("none"), "text": {"field": "text"}}}),
        json!({"mark": {"type": "rule", "strokeWidth": 2, "color": "var(--accent)"},
            "encoding": {"x": x.by("low"), "x2": {"field": "high"}, "y": y}}),
        json!({"mark": {"type": "point", "size": 90, "color": "var(--accent)", "opacity": 1},
            "encoding": {"x": x.by("middle"), "y": y, "tooltip": {"field": "about"},
                "fill": {"condition": {"test": "datum.shown === 'shown'", "value": "var(--accent)"},
                         "value": "var(--card)"}}}),
    ];
    let title = format!("Effects on {word} with 95 % CI; a filled point is significant by itself");
    let about = "The table below has the same figures.";
    let height = height_of_rows(names.iter().map(String::as_str), ROW);
    draw(drawn, height, &data, &layer, (&title, about))
}

fn effects(response: &ResponseDocument, number: usize, drawn: &mut Vec<Value>) -> String {
    let word = response.response.word();
    if response.effects.is_empty() {
        return section(
            &format!("effects-{number}"),
            &format!("Effects on {word}"),
            response.left_out.as_deref().unwrap_or(UNTOLD),
            "",
        );
    }
    let picture = if response.effects.len() <= CELLS_DRAWN {
        draw_effects(response, drawn)
    } else {
        format!("<p>More than {CELLS_DRAWN} effects: see the table.</p>")
    };
    let rows: Vec<Vec<String>> = (response.effects.iter())
        .map(|effect| {
            let verdict = effect.verdict(response.more_is_better);
            vec![
                escape(&effect.in_words()),
                effect_in_figures(effect),
                interval_in_figures(effect).unwrap_or_else(|| "-".to_owned()),
                if is_too_noisy(effect) {
                    "-".to_owned()
                } else {
                    detectable(effect)
                },
                verdict.to_owned(),
            ]
        })
        .collect();
    let head = [
        "effect",
        "change",
        "95 % CI",
        "minimum detectable",
        "verdict",
    ];
    let left_out = response.left_out.as_ref();
    let left_out = left_out.map_or_else(String::new, |why| format!("<p>{}</p>", escape(why)));
    let body = format!(
        "{picture}{}{left_out}",
        table(&format!("Effects on {word}"), &head, &rows)
    );
    section(
        &format!("effects-{number}"),
        &format!("Effects on {word}"),
        "Main effects compare each level with the first one, averaged over the other factors; \
         interactions are the joint effect of two factors beyond their separate effects. Verdicts \
         of better or worse are corrected for multiple comparisons.",
        &body,
    )
}

fn means(
    document: &LabDocument,
    response: &ResponseDocument,
    number: usize,
    drawn: &mut Vec<Value>,
) -> String {
    let word = response.response.word();
    let words = |value: Option<f64>| {
        value.map_or_else(
            || "-".to_owned(),
            |value| in_words(response.response, value),
        )
    };
    let factors = varied(document);
    let names = factors.iter().map(|at| document.factors[*at].name.as_str());
    let mut head: Vec<&str> = vec!["combination"];
    head.extend(names);
    head.extend(["mean", "min", "max", "trials"]);
    let bounded = response.cells.iter().any(|cell| cell.ceiling.is_some());
    head.extend(bounded.then_some("of the ceiling"));
    let rows_of_table: Vec<Vec<String>> = (response.cells.iter().enumerate())
        .map(|(place, cell)| {
            let mut row = vec![(place + 1).to_string()];
            let levels = factors.iter().filter_map(|at| cell.levels.get(*at));
            row.extend(levels.map(|level| escape(level)));
            row.extend([words(cell.mean), words(cell.least), words(cell.most)]);
            row.push(cell.trials.to_string());
            row.extend(bounded.then(|| cell.share_in_words().unwrap_or_else(|| "?".to_owned())));
            row
        })
        .collect();
    let mut body = String::new();
    if response.cells.len() <= CELLS_DRAWN {
        let most = highest(response.cells.iter().filter_map(|cell| cell.most));
        let least = response.cells.iter().filter_map(|cell| cell.least);
        let least = least.fold(f64::INFINITY, f64::min);
        let (by, unit) = scale(response.response, most);
        let drawable = |value: Option<f64>| value.map(|value| short(value / by));
        let data: Vec<Value> = (response.cells.iter())
            .filter(|cell| cell.mean.is_some())
            .map(|cell| {
                json!({"name": folded(&name(document, &cell.levels, &factors)), "mean": drawable(cell.mean),
                       "least": drawable(cell.least), "most": drawable(cell.most)})
            })
            .collect();
        let x = Axis::of_positive(&format!("{word}, {unit}"), least / by, most / by);
        let layer = [
            json!({"mark": {"type": "rule", "strokeWidth": 2, "color": "var(--ink-soft)"},
                "encoding": {"x": x.by("least"), "x2": {"field": "most"}, "y": rows("name")}}),
            json!({"mark": {"type": "point", "size": 90, "color": "var(--accent)", "filled": true, "opacity": 1},
                "encoding": {"x": x.by("mean"), "y": rows("name")}}),
        ];
        let title = format!(
            "{}: mean, minimum and maximum of each combination",
            capitalized(word)
        );
        let about = "The table below has the same figures.";
        let names = data.iter().filter_map(|row| row["name"].as_str());
        let height = height_of_rows(names, ROW);
        body.push_str(&draw(drawn, height, &data, &layer, (&title, about)));
    }
    body.push_str(&table(
        &format!("{} of each combination", capitalized(word)),
        &head,
        &rows_of_table,
    ));
    body.push_str(&ceilings(response));
    section(
        &format!("means-{number}"),
        &format!("All combinations: {word}"),
        &format!("{}.{}", means_of(response), constants(document, &factors)),
        &body,
    )
}

fn capitalized(word: &str) -> String {
    let mut rest = word.chars();
    let first = rest
        .next()
        .map(|first| first.to_uppercase().collect::<String>());
    first.unwrap_or_default() + rest.as_str()
}

/// The factors that had the same level in all combinations.
fn constants(document: &LabDocument, varied: &[usize]) -> String {
    let cells = document.responses.first().map(|response| &response.cells);
    let Some(first) = cells.and_then(|cells| cells.first()) else {
        return String::new();
    };
    let all = document.factors.iter().zip(&first.levels).enumerate();
    let constant = all.filter(|(at, _)| !varied.contains(at));
    let constant: Vec<String> = constant
        .map(|(_, (factor, level))| format!("{} {level}", factor.name))
        .collect();
    if constant.is_empty() {
        String::new()
    } else {
        format!(" The same in all of them: {}.", constant.join(", "))
    }
}

/// The ceilings that the combinations are compared with, each with its arithmetic once.
fn ceilings(response: &ResponseDocument) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut known: Vec<(String, Vec<String>)> = Vec::new();
    for (place, cell) in response.cells.iter().enumerate() {
        let Some(ceiling) = &cell.ceiling else {
            continue;
        };
        let number = (place + 1).to_string();
        match known.iter_mut().find(|(why, _)| *why == ceiling.reason) {
            Some((_, cells)) => cells.push(number),
            None => known.push((ceiling.reason.clone(), vec![number])),
        }
    }
    for (why, cells) in known {
        rows.push(vec![cells.join(", "), escape(&why)]);
    }
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "<details><summary>The ceilings and their arithmetic</summary>{}</details>",
        table(
            "The lowest bound of each combination's path",
            &["combination", "arithmetic"],
            &rows
        )
    )
}

fn over_time(
    document: &LabDocument,
    response: &ResponseDocument,
    drawn: &mut Vec<Value>,
) -> String {
    let word = response.response.word();
    let values = document
        .trials
        .iter()
        .filter_map(|trial| trial.values.get(word));
    let (by, unit) = scale(response.response, highest(values.copied()));
    let every = document.trials.len().div_ceil(TRIALS_DRAWN).max(1);
    let data: Vec<Value> = (document.trials.iter().step_by(every))
        .filter_map(|trial| {
            let value = trial.values.get(word)? / by;
            Some(json!({"order": trial.order + 1, "value": value,
                        "first": trial.levels.first(), "block": trial.block + 1}))
        })
        .collect();
    let order = Axis::new(
        "trial, in run order",
        json!({"zero": false, "nice": false, "padding": 8}),
        json!({"tickMinStep": 1, "format": "d", "grid": false}),
    );
    let value = Axis::new(
        &format!("{word}, {unit}"),
        json!({"zero": false, "padding": 6}),
        json!({"tickCount": 6}),
    );
    let layer = [json!({"mark": {"type": "point", "size": 40, "opacity": 1},
        "encoding": {"x": order.by("order"), "y": value.by("value"),
            "shape": {"field": "first", "type": "nominal"},
            "color": {"field": "first", "type": "nominal",
                "scale": {"range": ["var(--accent)", "var(--warm)", "var(--ink-soft)", "var(--ink)"]}}}})];
    let about = "The last table lists all trials.";
    let of = if every == 1 {
        "every trial".to_owned()
    } else {
        format!("one trial in {every}")
    };
    let title = format!("{word} of {of}, by the level of the first factor");
    let body = draw(drawn, 260, &data, &layer, (&title, about));
    section(
        "time",
        "Over time",
        "Drift appears as a common slope of all levels; an outlier as a single point.",
        &body,
    )
}

fn checks(document: &LabDocument, response: &ResponseDocument) -> String {
    let mut items = Vec::new();
    let design = &document.design;
    items.push(format!(
        "{} combinations ({}), {} blocks, {} trials in random order within blocks, seed {}",
        design.cells,
        design.kind,
        design.blocks,
        document.trials.len(),
        document.seed
    ));
    items.extend(design.confounding.iter().cloned());
    items.push(match &response.drift {
        Some(drift) if drift.steady => format!(
            "Linear drift: {:+.2} % per block, in all combinations.",
            drift.relative_per_block * 100.0
        ),
        Some(_) => "No linear drift over the blocks.".to_owned(),
        None => "Too few blocks to detect drift.".to_owned(),
    });
    items.push(match response.outliers.len() {
        0 => "No outliers.".to_owned(),
        some => format!("{}: kept in the figures.", count(some, "trial")),
    });
    let all = document.trials.len();
    let flags = document.flags().into_iter();
    items.extend(
        flags.map(|(flag, count)| format!("{} ({count} of {all} trials)", flag_in_words(flag))),
    );
    let list = list(items.iter().map(|item| escape(item)));
    section(
        "checks",
        "Possible disturbances",
        "Flags mark trials that may be invalid or need a caveat.",
        &list,
    )
}

/// A list of pieces of HTML.
fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    format!("<ul><li>{}</li></ul>", items.join("</li><li>"))
}

fn trials(document: &LabDocument) -> String {
    let mut head = vec!["trial".to_owned(), "block".to_owned()];
    head.extend(document.factors.iter().map(|factor| factor.name.clone()));
    let responses = document.responses.iter();
    head.extend(responses.map(|response| response.response.word().to_owned()));
    head.push("note".to_owned());
    let rows: Vec<Vec<String>> = (document.trials.iter())
        .map(|trial| {
            let mut row = vec![(trial.order + 1).to_string(), (trial.block + 1).to_string()];
            row.extend(trial.levels.iter().map(|level| escape(level)));
            row.extend(document.responses.iter().map(|response| {
                let value = trial.values.get(response.response.word());
                value.map_or_else(
                    || "-".to_owned(),
                    |value| in_words(response.response, *value),
                )
            }));
            let doubt = trial.doubtful.then(|| "invalid".to_owned());
            row.push(escape(&trial.why.clone().or(doubt).unwrap_or_default()));
            row
        })
        .collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let body = format!(
        "<details><summary>All {} trials</summary>{}</details>",
        rows.len(),
        table("All trials", &head, &rows)
    );
    section("trials", "All trials", "In run order.", &body)
}

#[cfg(test)]
mod tests;
