//! The page of a run of `failover`: the answer, the interruptions, the timeline of each trial, and what happened meanwhile.
//! Nothing in it needs JavaScript.

mod timeline;

use std::net::IpAddr;

use linerate_analysis::failover::timeline::Timeline;
use linerate_analysis::record::Header;
use linerate_analysis::text::timestamp::utc;
use linerate_model::host::Host;
use linerate_model::workload::Placement;
use serde_json::json;

use self::timeline::{KEY, events, picture};
use crate::html::{escape, section, table};
use crate::measurement::{again, lines, path_section};
use crate::page::shell;

/// What a page shows.
#[derive(Debug)]
pub struct FailoverPage<'a> {
    /// The run.
    pub header: &'a Header,
    /// The host that linerate was started on.
    pub local: &'a Host,
    /// The peer.
    pub remote: &'a Host,
    /// The first router of the path; none if the peer is on the link, or it is not known.
    pub gateway: Option<IpAddr>,
    /// The answer, a sentence each.
    pub answer: Vec<String>,
    /// The heads of the columns of the table of interruptions.
    pub head: &'a [&'a str],
    /// Its rows.
    pub rows: Vec<Vec<String>>,
    /// Each trial, in order.
    pub trials: Vec<TrialView<'a>>,
    /// The place in `trials` of the one with the longest interruption; none if no packet was lost or late.
    pub longest: Option<usize>,
}

/// A trial.
#[derive(Debug)]
pub struct TrialView<'a> {
    /// Its flows over time.
    pub timeline: &'a Timeline,
    /// Its evidence.
    pub details: Vec<String>,
}

/// The page of a stored run as one HTML document.
pub fn failover_page(page: &FailoverPage<'_>) -> String {
    let header = page.header;
    let title = format!("linerate failover {}", header.peer);
    let parts = [
        answer(page, &title),
        interruptions(page),
        timelines(page),
        trials(page),
        path_section(
            header,
            (page.local, page.remote),
            &Placement::default(),
            page.gateway,
        ),
        again(header),
    ];
    let body = format!(
        "<a class=\"skip\" href=\"#interruptions\">Skip to the interruptions</a>\n<header class=\"top\"><p class=\"brand\">\
         linerate <span>failover</span></p><p>{} · {} to {}</p></header>\n<main>\n{}</main>\n",
        escape(&utc(header.created_unix_s)),
        escape(header.local_nic.as_str()),
        escape(&header.peer),
        parts.concat(),
    );
    shell(
        &title,
        &header.version,
        &body,
        &json!({"drawn": []}).to_string(),
    )
}

fn answer(page: &FailoverPage<'_>, title: &str) -> String {
    let answer = page.answer.iter();
    // What explains the line before it is indented.
    let answer = answer.map(|line| {
        let class = match line.strip_prefix(' ') {
            Some(_) => "note",
            None => "summary",
        };
        format!("<p class=\"{class}\">{}</p>", escape(line))
    });
    format!(
        "<section class=\"verdict\"><h1>{}</h1>{}</section>\n",
        escape(title),
        answer.collect::<String>()
    )
}

fn interruptions(page: &FailoverPage<'_>) -> String {
    let rows = page.rows.iter();
    let rows: Vec<Vec<String>> = rows
        .map(|row| row.iter().map(|cell| escape(cell)).collect())
        .collect();
    section(
        "interruptions",
        "Interruptions",
        "Over all trials. Median and maximum are of the longest interruption of a flow in each trial; all back is the longest \
         time from the start of the command until all flows were back.",
        &table("Interruptions", page.head, &rows),
    )
}

/// The trial with the longest interruption, with what happened in it, then the others.
fn timelines(page: &FailoverPage<'_>) -> String {
    let shown = page.longest.unwrap_or(0);
    let Some(first) = page.trials.get(shown) else {
        return String::new();
    };
    let mut body = format!("<p class=\"note\">{KEY}</p>");
    let number = shown + 1;
    let heading = match page.longest {
        Some(_) if page.trials.len() > 1 => {
            format!("Trial {number}, with the longest interruption")
        }
        _ => format!("Trial {number}"),
    };
    body.push_str(&format!(
        "<h3>{}</h3>{}{}",
        escape(&heading),
        picture(first.timeline, number),
        events(first.timeline)
    ));
    let others = page.trials.iter().enumerate();
    for (at, trial) in others.filter(|(at, _)| *at != shown) {
        let number = at + 1;
        body.push_str(&format!(
            "<details><summary>Trial {number}</summary>{}{}</details>",
            picture(trial.timeline, number),
            events(trial.timeline)
        ));
    }
    section(
        "timeline",
        "Flows over time",
        "A row is a flow; neighboring flows that look alike are one block. Letters mark the events of the table below.",
        &body,
    )
}

fn trials(page: &FailoverPage<'_>) -> String {
    let each = (1..).zip(&page.trials).map(|(number, trial)| {
        format!(
            "<details><summary>Trial {number}</summary><pre>{}</pre></details>",
            lines(&trial.details.join("\n"))
        )
    });
    section(
        "evidence",
        "Evidence",
        "Each trial by direction and workload: its interruptions, what both hosts saw, and what the hosts themselves delayed.",
        &each.collect::<String>(),
    )
}

#[cfg(test)]
mod tests;
