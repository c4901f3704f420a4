//! The head of the page: the verdict, and the remedies behind it.

use linerate_analysis::text::words::{change, effect_in_figures};
use linerate_model::propose::name_of;
use linerate_model::prove::{ProveDocument, Rate, RemedyResult};
use serde_json::Value;

use super::data::ReportData;
use super::figures::{
    Fate, Times, cost, cross, doubt, effect_interval, effect_meaning, end_state, gain, gain_words,
    place_of, rate, rate_interval, scores, share, tried,
};
use super::html::{code, escape, section, table};
use super::prove_charts::{bars, effects_and_trials};
use super::text::ceiling_words;

/// The first element of the page.
pub(super) fn verdict(data: &ReportData, drawn: &mut Vec<Value>) -> String {
    let prove = &data.prove;
    let ratio = gain(prove);
    let words = gain_words(prove).map_or_else(String::new, |words| {
        format!("<span class=\"times\">{}</span>", cross(&words))
    });
    let big = format!(
        "<p class=\"headline\"><span class=\"was\">{}</span><span class=\"arrow\"><span aria-hidden=\"true\">→</span><span class=\"spoken\"> became </span></span><span class=\"is\">{}</span>{words}</p>",
        spaced(&rate(prove.before.rate_bit_per_s)),
        spaced(&rate(prove.after.rate_bit_per_s))
    );
    format!(
        "<section class=\"verdict\" aria-labelledby=\"verdict\"><h1 id=\"verdict\">{}</h1>{big}<p class=\"summary\">{}</p>{}{}</section>\n",
        escape(&data.title),
        escape(&summary(prove)),
        facts(prove, ratio),
        bars(prove, drawn) + &verdict_table(prove)
    )
}

/// The number large, its unit small.
fn spaced(text: &str) -> String {
    match text.split_once(' ') {
        Some((number, unit)) => format!("{}<small> {}</small>", escape(number), escape(unit)),
        None => escape(text),
    }
}

fn summary(prove: &ProveDocument) -> String {
    let ceiling = match (prove.ceiling.bit_per_s, prove.ceiling.share) {
        (Some(bound), Some(part)) if prove.ceiling.is_wrong() => format!(
            "The computed ceiling of {} is wrong: the measurement reached {} of it.",
            rate(bound),
            share(part)
        ),
        (Some(bound), Some(part)) => {
            format!("That is {} of the ceiling, {}.", share(part), rate(bound))
        }
        (Some(bound), None) => format!("The ceiling is {}.", rate(bound)),
        (None, _) => "The ceiling is unknown.".to_owned(),
    };
    let doubt = doubt(prove).map_or_else(String::new, |doubt| format!("Inconclusive: {doubt}. "));
    format!(
        "{doubt}{ceiling} Bottleneck before any change: {}. {}",
        prove.limit.in_words(),
        tried(prove)
    )
}

/// Short facts: a name, the fact, and its notes.
fn facts(prove: &ProveDocument, ratio: Option<Times>) -> String {
    let mut facts: Vec<(&str, String, String)> = Vec::new();
    if let Some(ratio) = ratio {
        let range = format!("[{}, {}]", change(ratio.low), change(ratio.high));
        let bounds = format!("{}, bounds from the two CIs", cross(&range));
        facts.push(("Change", cross(&change(ratio.value)), bounds));
    }
    let not_known = || "unknown".to_owned();
    let bound = prove.ceiling.bit_per_s.map_or_else(not_known, rate);
    let reached = prove.ceiling.share.map_or_else(not_known, share);
    facts.push(("Ceiling", bound, "computed".to_owned()));
    facts.push((
        "Share of the ceiling",
        reached,
        "rate after / ceiling".to_owned(),
    ));
    if !prove.planted.is_empty() {
        let scores = scores(prove);
        let planted = scores.iter().filter(|score| score.planted);
        let hits = planted.filter(|score| score.found).count();
        let besides = scores.iter().filter(|score| !score.planted).count();
        facts.push((
            "Injected faults found",
            format!("{hits} of {}", prove.planted.len()),
            format!("{besides} more found"),
        ));
    }
    let (state, how) = match end_state(prove) {
        Ok(words) if prove.keeps => ("✓ fixes applied", words),
        Ok(words) if prove.remedies.is_empty() => ("✓ unchanged", words),
        Ok(words) => ("✓ restored", words),
        Err(hint) => ("✗ NOT RESTORED", hint.to_owned()),
    };
    facts.push(("Settings", state.to_owned(), how));
    let items: Vec<String> = facts
        .iter()
        .map(|(name, fact, more)| {
            format!(
                "<div><dt>{name}</dt><dd>{}<small>{}</small></dd></div>",
                escape(fact),
                escape(more)
            )
        })
        .collect();
    format!("<dl class=\"facts\">{}</dl>", items.concat())
}

fn verdict_table(prove: &ProveDocument) -> String {
    let row = |name: &str, measured: &Rate| {
        vec![
            name.to_owned(),
            escape(&rate(measured.rate_bit_per_s)),
            escape(&rate_interval(measured)),
            measured.cpu_s_per_gb.map_or("unknown".to_owned(), cost),
        ]
    };
    let ceiling = vec![
        "Ceiling".to_owned(),
        prove.ceiling.bit_per_s.map_or("unknown".to_owned(), rate),
        escape(&ceiling_words(prove)),
        "–".to_owned(),
    ];
    table(
        "Before, after and the ceiling",
        &["What", "Rate (median)", "CI or reason", "CPU, both ends"],
        &[
            row("Before", &prove.before),
            row("After", &prove.after),
            ceiling,
        ],
    )
}

/// Every remedy with the result of its experiment.
pub(super) fn remedies(prove: &ProveDocument, drawn: &mut Vec<Value>) -> String {
    if prove.remedies.is_empty() {
        return section("remedies", "Fixes", "No finding had a fix to try.", "");
    }
    let rows: Vec<Vec<String>> = prove.remedies.iter().map(remedy_row).collect();
    let body = format!(
        "{}{}{}",
        effects_and_trials(prove, drawn),
        table(
            "All fixes",
            &["Fix", "Changes", "Effect", "Interval", "Result", "Outcome"],
            &rows
        ),
        planted(prove)
    );
    section(
        "remedies",
        "Fixes",
        "The fixes were tested together: trials with all of them and trials without each, in random order. A fix \
         helped only if its whole CI is above 0 % (ratio above 1×) and no guard got worse; the others were rolled \
         back. The intervals are so wide that the chance of keeping any fix without effect is at most 5 % for the \
         whole run.",
        &body,
    )
}

fn remedy_row(remedy: &RemedyResult) -> Vec<String> {
    let mut changes: Vec<String> = remedy
        .changes
        .iter()
        .map(|change| {
            format!(
                "<li>{} <span class=\"soft\">{}: {} → {}</span></li>",
                code(&change.change.setting.to_string()),
                place_of(change),
                escape(&change.change.from.to_string()),
                escape(&change.change.to.to_string())
            )
        })
        .collect();
    if changes.is_empty() {
        changes.push(format!(
            "<li>{} <span class=\"soft\">{}: {} → {}</span></li>",
            code(&remedy.setting),
            remedy.end,
            escape(&remedy.from),
            escape(&remedy.to)
        ));
    }
    let note = remedy.note.as_ref().map_or_else(String::new, |note| {
        format!("<br><span class=\"soft\">{}</span>", escape(note))
    });
    let fate = Fate::of(remedy);
    let (effect, interval, meaning) = match &remedy.effect {
        Some(effect) => (
            format!(
                "<strong class=\"n\">{}</strong>",
                cross(&effect_in_figures(effect))
            ),
            no_break(&cross(&effect_interval(effect))),
            format!("{}{note}", cross(&escape(&effect_meaning(effect)))),
        ),
        None => (
            "none".to_owned(),
            "none".to_owned(),
            format!("no effect measured{note}"),
        ),
    };
    vec![
        escape(&name_of(&remedy.rule, &remedy.changes)),
        format!("<ul class=\"changes\">{}</ul>", changes.concat()),
        effect,
        interval,
        meaning,
        format!(
            "<span class=\"fate {}\">{} {}</span>",
            fate.word().replace(' ', "-"),
            fate.mark(),
            fate.word()
        ),
    ]
}

/// A number is not separated from its unit, or an interval from its numbers.
fn no_break(text: &str) -> String {
    let Some((level, rest)) = text.split_once('[') else {
        return format!("<span class=\"soft\">{}</span>", escape(text));
    };
    let (numbers, trials) = rest.split_once(']').unwrap_or((rest, ""));
    let numbers: Vec<String> = numbers
        .split(", ")
        .map(|number| format!("<span class=\"n\">{}</span>", escape(number)))
        .collect();
    format!(
        "[{}] <span class=\"soft\">({}{})</span>",
        numbers.join(", "),
        escape(level.trim_end()),
        escape(trials)
    )
}

fn planted(prove: &ProveDocument) -> String {
    if prove.planted.is_empty() {
        return String::new();
    }
    let yes = |is: bool| if is { "✓ yes" } else { "– no" }.to_owned();
    let rows: Vec<Vec<String>> = scores(prove)
        .iter()
        .map(|score| {
            vec![
                escape(score.rule),
                yes(score.planted),
                yes(score.found),
                score.word().to_owned(),
            ]
        })
        .collect();
    table(
        "Injected faults, found or missed: a separate process injected them without disclosing \
         them to linerate",
        &["Rule", "Injected", "Found", "Result"],
        &rows,
    )
}
