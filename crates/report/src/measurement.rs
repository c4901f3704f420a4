//! The page of a stored measurement.

use linerate_analysis::record::{Header, Measurement};
use linerate_analysis::text::timestamp::utc;
use linerate_analysis::trial::figure::in_words;
use linerate_analysis::trial::first_kept;
use linerate_model::analysis::rate_series;
use linerate_model::host::Host;
use linerate_model::ids::{CpuSet, NicName};
use linerate_model::lab::Response;
use linerate_model::units::BitRate;
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
    let title = format!(
        "linerate measure {} {}",
        workload.unwrap_or_default(),
        header.peer
    );
    let parts = [
        results(page, &title),
        rates(page, &mut drawn),
        figures(page),
        path(page),
        again(page),
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

/// What the command printed.
fn results(page: &MeasurementPage<'_>, title: &str) -> String {
    let each = page.results.iter().map(|one| {
        let label = one.result.label.as_deref();
        let label = label.map(|label| format!("<h2>{}</h2>", escape(label)));
        format!(
            "{}<pre>{}</pre>",
            label.unwrap_or_default(),
            lines(&one.lines)
        )
    });
    format!(
        "<section><h1>{}</h1>{}</section>\n",
        escape(title),
        each.collect::<String>()
    )
}

/// Text with its line breaks.
fn lines(text: &str) -> String {
    text.lines().map(escape).collect::<Vec<_>>().join("\n")
}

/// The rate of each stored trial over its time.
fn rates(page: &MeasurementPage<'_>, drawn: &mut Vec<Value>) -> String {
    let mut charts = String::new();
    for one in page.results {
        let Some(sample) = &one.result.sample else {
            continue;
        };
        let series = rate_series(sample).total;
        let points = series
            .iter()
            .map(|point| (point.at_ns.as_secs_f64(), point.bit_per_s.as_f64()));
        let points = whole(points);
        let Some((end_s, _)) = points.last().copied().filter(|_| points.len() > 1) else {
            continue;
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
        let name = one.result.label.as_deref().unwrap_or("Rate over time");
        let about = format!("{name}: the rate of one trial in each interval");
        charts.push_str(&chart.draw(&[Course { kind: "", points }], drawn, (name, &about)));
    }
    if charts.is_empty() {
        return charts;
    }
    section(
        "rates",
        "Rate over time",
        "One trial. The shaded part was cut as warm-up and is excluded from all figures. The dashed line is the ceiling; \
         with ↑ it is far above the chart.",
        &format!(
            "{charts}<noscript><p class=\"note\">The charts need JavaScript; the table has all figures.</p></noscript>"
        ),
    )
}

/// Every figure of every result.
fn figures(page: &MeasurementPage<'_>) -> String {
    let mut rows = Vec::new();
    for one in page.results {
        for response in Response::ALL {
            let values = one.result.figures.of(response);
            let Ok(middle) = median(values) else {
                continue;
            };
            let name = match &one.result.label {
                Some(label) => format!("{label}, {}", response.word()),
                None => response.word().to_owned(),
            };
            let end = |of: fn(f64, f64) -> f64| values.iter().copied().fold(middle, of);
            let words = |value| escape(&in_words(response, value));
            rows.push(vec![
                escape(&name),
                words(middle),
                words(end(f64::min)),
                words(end(f64::max)),
                values.len().to_string(),
            ]);
        }
    }
    let head = ["Figure", "Median", "Least", "Most", "Trials"];
    let lead = "Over all whole trials.";
    section(
        "figures",
        "Figures",
        lead,
        &table("All figures", &head, &rows),
    )
}

/// Both ends, with the CPUs of the data threads.
fn path(page: &MeasurementPage<'_>) -> String {
    let sample = page
        .results
        .iter()
        .find_map(|one| one.result.sample.as_ref());
    let placement = sample.map(|sample| sample.spec.placement.clone());
    let placement = placement.unwrap_or_default();
    let none = CpuSet::empty();
    let near = PathEnd {
        name: "this host",
        host: page.local,
        nic: Some(&page.header.local_nic),
        sender_cpus: &placement.sender_cpus,
        receiver_cpus: &none,
        hot: None,
    };
    let far = PathEnd {
        name: &page.header.peer,
        host: page.remote,
        nic: Some(&page.header.remote_nic),
        sender_cpus: &none,
        receiver_cpus: &placement.receiver_cpus,
        hot: None,
    };
    // Of a host with a program of others nothing is known.
    let is_known = page.header.remote_nic != NicName::unheard();
    let wire = wire(page.local, &page.header.local_nic);
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

fn again(page: &MeasurementPage<'_>) -> String {
    let command = typed_again(page.header.command.iter().map(String::as_str));
    section(
        "again",
        "Measure again",
        "The command line of this measurement.",
        &format!("<p>{}</p>", code(&command)),
    )
}
