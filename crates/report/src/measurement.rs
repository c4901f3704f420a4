//! The page of a stored measurement.

use std::net::IpAddr;

use linerate_analysis::record::{Header, Measurement};
use linerate_analysis::text::timestamp::utc;
use linerate_analysis::trial::figure::in_words;
use linerate_analysis::trial::first_kept;
use linerate_model::analysis::rate_series;
use linerate_model::host::Host;
use linerate_model::ids::{CpuSet, NicName};
use linerate_model::lab::Response;
use linerate_model::units::BitRate;
use linerate_model::workload::Placement;
use linerate_stats::summary::median;
use serde_json::{Value, json};

use crate::chart::{Axis, Course, GIGA, OverTime, RATE, Style, whole};
use crate::fill::{typed_again, wire};
use crate::html::{code, escape, section, table};
use crate::map::picture::{Layout, PathEnd, path_svg};
use crate::page::shell;

/// What a page shows.
#[derive(Debug)]
pub struct MeasurementPage<'a> {
    /// The run.
    pub header: &'a Header,
    /// The host that linerate was started on.
    pub local: &'a Host,
    /// The peer.
    pub remote: &'a Host,
    /// One result, or several.
    pub results: &'a [ShownResult<'a>],
    /// The title, if it is not that of `measure`.
    pub title: Option<String>,
    /// What the command printed, if that is not the lines of its results.
    pub summary: Option<String>,
}

/// A result, and what follows from its counters.
#[derive(Debug)]
pub struct ShownResult<'a> {
    /// The result.
    pub result: &'a Measurement,
    /// The lines that `measure` prints of it.
    pub lines: String,
    /// The lowest ceiling and its rate.
    pub ceiling: Option<BitRate>,
}

/// The page of a stored measurement as one HTML document.
pub fn measurement_page(page: &MeasurementPage<'_>) -> String {
    let header = page.header;
    let mut drawn: Vec<Value> = Vec::new();
    let workload = page.results.first().map(|one| one.result.workload.as_str());
    let title = page.title.clone().unwrap_or_else(|| {
        format!(
            "linerate measure {} {}",
            workload.unwrap_or_default(),
            header.peer
        )
    });
    let parts = [
        results(page, &title),
        rates(page, &mut drawn),
        figures(page),
        path(page),
        again(page.header),
    ];
    let body = format!(
        "<a class=\"skip\" href=\"#figures\">Skip to the figures</a>\n<header class=\"top\"><p class=\"brand\">linerate \
         <span>measurement</span></p><p>{} · {} to {}</p></header>\n<main>\n{}</main>\n",
        escape(&utc(header.created_unix_s)),
        escape(header.local_nic.as_str()),
        escape(&header.peer),
        parts.concat(),
    );
    let data = json!({"drawn": drawn});
    shell(&title, &header.version, &body, &data.to_string())
}

/// What the command printed; of several results each on a line.
fn results(page: &MeasurementPage<'_>, title: &str) -> String {
    let text = match (&page.summary, page.results) {
        (Some(summary), _) => summary.clone(),
        (None, [one]) => one.lines.clone(),
        (None, several) => {
            let line = |one: &ShownResult<'_>| {
                let label = one.result.label.as_deref().unwrap_or_default();
                format!("{label}: {}", one.result.headline())
            };
            several.iter().map(line).collect::<Vec<_>>().join("\n")
        }
    };
    // The columns of a table stay in line on a narrow screen, where it scrolls: also by the keyboard.
    let kind = match page.summary {
        Some(_) => " class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Result\"",
        None => "",
    };
    format!(
        "<section><h1>{}</h1><pre{kind}>{}</pre></section>\n",
        escape(title),
        lines(&text)
    )
}

/// Text with its line breaks.
pub(crate) fn lines(text: &str) -> String {
    text.lines().map(escape).collect::<Vec<_>>().join("\n")
}

/// The rate of the stored trial over its time, if there is one result.
fn rates(page: &MeasurementPage<'_>, drawn: &mut Vec<Value>) -> String {
    let [one] = page.results else {
        return String::new();
    };
    let Some(sample) = &one.result.sample else {
        return String::new();
    };
    let series = rate_series(sample).total;
    let points = series
        .iter()
        .map(|point| (point.at_ns.as_secs_f64(), point.bit_per_s.as_f64()));
    let points = whole(points);
    let Some((end_s, _)) = points.last().copied().filter(|_| points.len() > 1) else {
        return String::new();
    };
    let warm_up = first_kept(sample)
        .checked_sub(1)
        .and_then(|last| series.get(last));
    let chart = OverTime {
        height: 210,
        rate: (
            Axis::new(RATE, json!({"zero": true}), json!({"tickCount": 5})),
            GIGA,
        ),
        end_s,
        warm_up_s: warm_up.map_or(0.0, |point| point.at_ns.as_secs_f64()),
        styles: &[Style {
            kind: "",
            color: "var(--accent)",
            dash: [1, 0],
        }],
        ceiling_bit_per_s: one.ceiling.map(BitRate::as_f64),
    };
    let words = ("One trial", "The rate of one trial in each interval");
    let chart = chart.draw(&[Course { kind: "", points }], drawn, words);
    section(
        "rates",
        "Rate over time",
        "The shaded part was cut as warm-up and is excluded from all figures. The dashed line is the ceiling; with ↑ it is \
         far above the chart.",
        &format!(
            "{chart}<noscript><p class=\"note\">The chart needs JavaScript; the table has all figures.</p></noscript>"
        ),
    )
}

/// Every figure: of one result a row for each, of several a column for each.
fn figures(page: &MeasurementPage<'_>) -> String {
    let table = match page.results {
        [one] => figures_of(one.result),
        several => figures_of_all(several),
    };
    let about = match page.summary {
        Some(_) => "Over all whole trials. Rates here count payload, whatever those above count.",
        None => "Over all whole trials.",
    };
    section("figures", "Figures", about, &table)
}

fn figures_of(result: &Measurement) -> String {
    let values = |response| result.figures.of(response);
    let trials = Response::ALL.map(|response| values(response).len());
    let is_single = trials.into_iter().max() == Some(1);
    let rows = Response::ALL.into_iter().filter_map(|response| {
        let values = values(response);
        let middle = median(values).ok()?;
        let end = |of: fn(f64, f64) -> f64| values.iter().copied().fold(middle, of);
        let words = |value| escape(&in_words(response, value));
        let mut row = vec![response.word().to_owned(), words(middle)];
        if !is_single {
            row.extend([words(end(f64::min)), words(end(f64::max))]);
            row.push(values.len().to_string());
        }
        Some(row)
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let head: &[&str] = if is_single {
        &["Figure", "Value"]
    } else {
        &["Figure", "Median", "Least", "Most", "Trials"]
    };
    table("All figures", head, &rows)
}

/// The medians of several results.
fn figures_of_all(results: &[ShownResult<'_>]) -> String {
    let has = |response: &Response| {
        let mut all = results.iter();
        all.any(|one| !one.result.figures.of(*response).is_empty())
    };
    let responses: Vec<Response> = Response::ALL.into_iter().filter(has).collect();
    let rows = results.iter().map(|ShownResult { result, .. }| {
        let trials = result.figures.of(result.response).len();
        let name = result.label.as_deref().unwrap_or_default();
        let medians = responses.iter().map(|response| {
            let middle = median(result.figures.of(*response));
            middle.map_or_else(
                |_| "-".to_owned(),
                |value| escape(&in_words(*response, value)),
            )
        });
        let head = [escape(name), trials.to_string()].into_iter();
        head.chain(medians).collect()
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let words = responses.iter().map(|response| response.word());
    let head: Vec<&str> = ["Result", "Trials"].into_iter().chain(words).collect();
    table("Medians", &head, &rows)
}

/// Both ends, with the CPUs of the data threads.
fn path(page: &MeasurementPage<'_>) -> String {
    let sample = page
        .results
        .iter()
        .find_map(|one| one.result.sample.as_ref());
    let placement = sample.map(|sample| sample.spec.placement.clone());
    let placement = placement.unwrap_or_default();
    path_section(page.header, (page.local, page.remote), &placement, None)
}

/// Both ends, with the CPUs that the threads of `placement` were pinned to; `gateway` is the first router between them.
pub(crate) fn path_section(
    header: &Header,
    (local, remote): (&Host, &Host),
    placement: &Placement,
    gateway: Option<IpAddr>,
) -> String {
    let none = CpuSet::empty();
    let near = PathEnd {
        name: "this host",
        host: local,
        nic: Some(&header.local_nic),
        sender_cpus: &placement.sender_cpus,
        receiver_cpus: &none,
        hot: None,
    };
    let far = PathEnd {
        name: &header.peer,
        host: remote,
        nic: Some(&header.remote_nic),
        sender_cpus: &none,
        receiver_cpus: &placement.receiver_cpus,
        hot: None,
    };
    // Of a host with a program of others nothing is known.
    let is_known = header.remote_nic != NicName::unheard();
    let wire = match gateway {
        Some(gateway) => format!("network via {gateway}"),
        None => wire(local, &header.local_nic),
    };
    let picture = |layout| {
        let far = is_known.then_some((&far, wire.as_str()));
        path_svg(&near, far, layout)
    };
    section(
        "path",
        "The path",
        "S marks CPUs with sending threads, R with receiving threads, where they were pinned. Solid lines connect queues \
         to the CPUs of their interrupts, dashed lines to CPUs selected by RPS or XPS; arrowheads mark CPUs on another \
         NUMA node than the NIC.",
        &format!(
            "<div class=\"map wide\">{}</div><div class=\"map narrow\">{}</div>",
            picture(Layout::Beside),
            picture(Layout::Stacked)
        ),
    )
}

/// The command line of a measurement.
pub(crate) fn again(header: &Header) -> String {
    let command = typed_again(header.command.iter().map(String::as_str));
    section(
        "again",
        "Measure again",
        "The command line of this measurement.",
        &format!("<p>{}</p>", code(&command)),
    )
}
