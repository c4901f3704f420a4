//! The page of an experiment: the story first, then the pictures, then every table. It says everything without
//! JavaScript; with it, the pictures are drawn by the bundle from what is written here.

use linerate_model::host::Host;
use linerate_model::lab::Response;
use serde_json::{Value, json};

use super::figures::{count, flag_in_words};
use super::html::{chart, code, escape, section, table};
use super::page::shell;
use crate::lab::figure::in_words;
use crate::lab::judge::{EffectDocument, LabDocument, ResponseDocument};
use crate::store::Header;

/// Room for a row of a picture.
const ROW: usize = 34;
/// More combinations than these are told by their table alone.
const CELLS_DRAWN: usize = 60;
/// More trials than these are drawn as every n-th.
const TRIALS_DRAWN: usize = 2_000;

/// The page of an experiment as one HTML document.
pub fn lab_page(document: &LabDocument, header: &Header, hosts: Option<(&Host, &Host)>) -> String {
    let mut drawn: Vec<Value> = Vec::new();
    let mut body = story(document);
    for (place, response) in document.responses.iter().enumerate() {
        let number = place + 1;
        body.push_str(&effects(response, number, &mut drawn));
        body.push_str(&means(document, response, number, &mut drawn));
    }
    if let Some(response) = document.responses.first() {
        body.push_str(&over_time(document, response, &mut drawn));
        body.push_str(&checks(document, response));
    }
    body.push_str(&trials(document));
    if let Some((local, remote)) = hosts {
        body.push_str(&both_hosts(local, remote));
    }
    body.push_str(&again(document, header));
    let data = json!({"report": Value::Null, "cpu": [], "drawn": drawn});
    let created = super::fill::utc(header.created_unix_s);
    let body = format!(
        "<a class=\"skip\" href=\"#effects-1\">To the effects</a>\n<header class=\"top\"><p class=\"brand\">linerate \
         <span>experiment</span></p><p>{} · {} to {}</p></header>\n<main>\n{body}</main>\n",
        escape(&created),
        escape(header.local_nic.as_str()),
        escape(&header.peer),
    );
    shell(&document.title, &header.version, &body, &data.to_string())
}

/// What came of it, in sentences.
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
        if !any {
            let seen = (response.effects.iter())
                .map(|effect| effect.smallest_detectable)
                .fold(0.0, f64::max);
            say(format!(
                "No effect on {} was shown; one of {:.1} % would have been, of every factor.",
                response.response.word(),
                seen * 100.0
            ));
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
        say(format!("The run stopped before its end: {why}"));
    }
    match document.restored {
        Some(true) => say("Every setting is as it was found.".to_owned()),
        Some(false) => say("NOT every setting is as it was found.".to_owned()),
        None => {}
    }
    out.push_str("</ul></section>\n");
    out
}

/// An effect as a sentence: `flows 12 against 1: +158.0 % [+140.1, +177.2] rate, better.`
fn sentence(effect: &EffectDocument, response: &ResponseDocument) -> String {
    let better = (effect.relative > 0.0) == response.more_is_better;
    format!(
        "{}: {:+.1} % [{:+.1}, {:+.1}] of {}: {}.",
        effect.in_words(),
        effect.relative * 100.0,
        effect.low * 100.0,
        effect.high * 100.0,
        response.response.word(),
        if better { "better" } else { "worse" }
    )
}

/// What a figure is divided by for a picture, and the unit that it has then.
fn scale(response: Response) -> (f64, &'static str) {
    match response {
        Response::Rate => (1e9, "Gb/s"),
        Response::Operations => (1.0, "1/s"),
        Response::Cpu | Response::CpuLocal | Response::CpuPeer => (1.0, "s/GB"),
        Response::Mean | Response::P50 | Response::P99 => (1e-6, "us"),
    }
}

/// A mark with its place on the axes and its colour.
fn axis(field: &str, title: &str) -> Value {
    json!({"field": field, "type": "quantitative", "title": title, "scale": {"zero": false}})
}

fn rows(field: &str) -> Value {
    json!({"field": field, "type": "nominal", "sort": Value::Null, "title": Value::Null,
           "axis": {"labelLimit": 320, "domain": false, "ticks": false}})
}

/// The picture of the effects of a figure.
fn draw_effects(response: &ResponseDocument, drawn: &mut Vec<Value>) {
    let word = response.response.word();
    let data: Vec<Value> = (response.effects.iter())
        .map(|effect| {
            json!({"name": effect.in_words(), "low": effect.low * 100.0, "high": effect.high * 100.0,
                   "middle": effect.relative * 100.0,
                   "shown": if effect.shown { "shown" } else { "not shown" }})
        })
        .collect();
    let title = format!("change of {word}, per cent");
    let x = axis("low", &title);
    drawn.push(json!({
        "height": ROW * data.len(),
        "data": data,
        "layer": [
            {"mark": {"type": "rule", "color": "var(--ink-soft)", "strokeDash": [4, 4]},
             "data": {"values": [{"zero": 0}]}, "encoding": {"x": axis("zero", &title)}},
            {"mark": {"type": "rule", "strokeWidth": 2, "color": "var(--accent)"},
             "encoding": {"x": x, "x2": {"field": "high"}, "y": rows("name")}},
            {"mark": {"type": "point", "size": 90, "color": "var(--accent)"},
             "encoding": {"x": axis("middle", &title), "y": rows("name"),
                          "fill": {"condition": {"test": "datum.shown === 'shown'", "value": "var(--accent)"},
                                   "value": "var(--card)"}}}
        ]
    }));
}

fn effects(response: &ResponseDocument, number: usize, drawn: &mut Vec<Value>) -> String {
    let word = response.response.word();
    if response.effects.is_empty() {
        return section(
            &format!("effects-{number}"),
            &format!("Effects on {word}"),
            "No effect can be told: it takes three whole blocks.",
            "",
        );
    }
    draw_effects(response, drawn);
    let rows: Vec<Vec<String>> = (response.effects.iter())
        .map(|effect| {
            let verdict = effect.verdict(response.more_is_better);
            vec![
                escape(&effect.in_words()),
                format!("{:+.1} %", effect.relative * 100.0),
                format!(
                    "{:+.1} % to {:+.1} %",
                    effect.low * 100.0,
                    effect.high * 100.0
                ),
                format!("{:.1} %", effect.smallest_detectable * 100.0),
                verdict.to_owned(),
            ]
        })
        .collect();
    let head = [
        "effect",
        "change",
        "95 % interval",
        "would have been seen",
        "verdict",
    ];
    let body = format!(
        "{}{}",
        chart(
            "drawn",
            Some(drawn.len() - 1),
            &format!(
                "Effects on {word} with 95 % intervals; a filled point is one whose interval excludes zero"
            ),
            "The table below holds the same figures.",
        ),
        table(&format!("Effects on {word}"), &head, &rows)
    );
    section(
        &format!("effects-{number}"),
        &format!("Effects on {word}"),
        "What a level changes against the first one, over all levels of the others; of two factors, what they do together \
         beyond what each does alone. A verdict of better or worse would hold if all of these were to be right at once.",
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
    let names = document.factors.iter().map(|factor| factor.name.as_str());
    let mut head: Vec<&str> = vec!["combination"];
    head.extend(names);
    head.extend(["mean", "least", "most", "trials"]);
    let rows_of_table: Vec<Vec<String>> = (response.cells.iter().enumerate())
        .map(|(place, cell)| {
            let mut row = vec![(place + 1).to_string()];
            row.extend(cell.levels.iter().map(|level| escape(level)));
            row.extend([words(cell.mean), words(cell.least), words(cell.most)]);
            row.push(cell.trials.to_string());
            row
        })
        .collect();
    let mut body = String::new();
    if response.cells.len() <= CELLS_DRAWN {
        let (by, unit) = scale(response.response);
        let drawable = |value: Option<f64>| value.map(|value| value / by);
        let data: Vec<Value> = (response.cells.iter())
            .filter(|cell| cell.mean.is_some())
            .map(|cell| {
                json!({"name": cell.levels.join(", "), "mean": drawable(cell.mean),
                       "least": drawable(cell.least), "most": drawable(cell.most)})
            })
            .collect();
        let title = format!("{word}, {unit}");
        drawn.push(json!({
            "height": ROW * data.len().max(1),
            "data": data,
            "layer": [
                {"mark": {"type": "rule", "strokeWidth": 2, "color": "var(--ink-soft)"},
                 "encoding": {"x": axis("least", &title), "x2": {"field": "most"}, "y": rows("name")}},
                {"mark": {"type": "point", "size": 90, "color": "var(--accent)", "filled": true},
                 "encoding": {"x": axis("mean", &title), "y": rows("name")}}
            ]
        }));
        body.push_str(&chart(
            "drawn",
            Some(drawn.len() - 1),
            &format!("Means of {word}, and from the least to the most"),
            "The table below holds the same figures.",
        ));
    }
    body.push_str(&table(&format!("Means of {word}"), &head, &rows_of_table));
    section(
        &format!("means-{number}"),
        &format!("Every combination: {word}"),
        "Geometric means of the trials.",
        &body,
    )
}

fn over_time(
    document: &LabDocument,
    response: &ResponseDocument,
    drawn: &mut Vec<Value>,
) -> String {
    let word = response.response.word();
    let (by, unit) = scale(response.response);
    let every = document.trials.len().div_ceil(TRIALS_DRAWN).max(1);
    let data: Vec<Value> = (document.trials.iter().step_by(every))
        .filter_map(|trial| {
            let value = trial.values.get(word)? / by;
            Some(json!({"order": trial.order + 1, "value": value,
                        "first": trial.levels.first(), "block": trial.block + 1}))
        })
        .collect();
    let title = format!("{word}, {unit}");
    drawn.push(json!({
        "height": 260,
        "data": data,
        "layer": [
            {"mark": {"type": "point", "size": 40},
             "encoding": {"x": axis("order", "trial, in the order they were made"), "y": axis("value", &title),
                          "shape": {"field": "first", "type": "nominal"},
                          "color": {"field": "first", "type": "nominal",
                                    "scale": {"range": ["var(--accent)", "var(--warm)", "var(--ink-soft)", "var(--ink)"]}}}}
        ]
    }));
    let about = "Every trial stands in the last table.";
    let body = chart(
        "drawn",
        Some(drawn.len() - 1),
        &format!("{word} of every trial, by the level of the first factor"),
        about,
    );
    section(
        "time",
        "Over time",
        "Drift shows as a slope of all levels alike; a trial far from its kind as a point alone.",
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
            "A steady drift: {:+.2} % from each block to the next, in all combinations alike.",
            drift.relative_per_block * 100.0
        ),
        Some(_) => "No steady drift over the blocks.".to_owned(),
        None => "Too few blocks to see a drift.".to_owned(),
    });
    items.push(match response.outliers.len() {
        0 => "No trial lies far from the others.".to_owned(),
        some => format!(
            "{} far from the others: kept in the figures.",
            count(some, "trial")
        ),
    });
    let all = document.trials.len();
    let flags = document.flags().into_iter();
    items.extend(
        flags.map(|(flag, count)| format!("{} ({count} of {all} trials)", flag_in_words(flag))),
    );
    let list = list(items.iter().map(|item| escape(item)));
    section(
        "checks",
        "What may have disturbed it",
        "Flags say why a trial may not be trusted, or how its figures must be read.",
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
            let doubt = trial.doubtful.then(|| "not to be trusted".to_owned());
            row.push(escape(&trial.why.clone().or(doubt).unwrap_or_default()));
            row
        })
        .collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let body = format!(
        "<details><summary>All {} trials</summary>{}</details>",
        rows.len(),
        table("Every trial", &head, &rows)
    );
    section("trials", "Every trial", "As they were made.", &body)
}

/// What of both hosts a reader asks for first, and whether they differ.
fn both_hosts(local: &Host, remote: &Host) -> String {
    let facts = |host: &Host| -> Vec<(&'static str, String)> {
        let told = |value: Option<&String>| value.cloned().unwrap_or_else(|| "?".to_owned());
        vec![
            ("name", told(host.identity.hostname.value())),
            ("kernel", told(host.identity.kernel_release.value())),
            (
                "command line of the kernel",
                told(host.identity.command_line.value()),
            ),
            ("CPU", told(host.identity.cpu_model.value())),
            ("CPUs", host.cpus.len().to_string()),
            ("nodes", host.nodes.len().to_string()),
        ]
    };
    let pairs = facts(local).into_iter().zip(facts(remote));
    let mut rows: Vec<Vec<String>> = pairs
        .map(|((what, here), (_, there))| row_of(what, &here, &there))
        .collect();
    for (name, here) in &local.sysctls {
        let there = remote.sysctls.get(name);
        if there != Some(here) {
            let text = |value: Option<&linerate_model::known::Known<String>>| {
                value
                    .and_then(|value| value.value().cloned())
                    .unwrap_or_else(|| "?".to_owned())
            };
            rows.push(row_of(name, &text(Some(here)), &text(there)));
        }
    }
    section(
        "hosts",
        "Both hosts",
        "What they run, and the sysctls in which they differ.",
        &table("Both hosts", &["what", "here", "peer"], &rows),
    )
}

fn row_of(what: &str, here: &str, there: &str) -> Vec<String> {
    vec![escape(what), escape(here), escape(there)]
}

fn again(document: &LabDocument, header: &Header) -> String {
    let run = document.run.as_deref().unwrap_or("RUN");
    let lines = [
        format!("{} --seed {}", header.command.join(" "), header.seed),
        format!("linerate lab show {run}"),
    ];
    let list = list(lines.iter().map(|line| code(line)));
    section(
        "again",
        "Do it again",
        "The seed gives the same order; the second command judges the raw records of this run once more.",
        &list,
    )
}
