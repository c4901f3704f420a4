//! Of an experiment's page: how long a message takes and how much it carries by its size, of trials that go through
//! several sizes themselves.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use linerate_analysis::experiment::document::LabDocument;
use linerate_analysis::trial::figure::in_words;
use linerate_analysis::trial::operations::{askers, real};
use linerate_model::lab::Response;
use linerate_model::latency::Histogram;
use linerate_model::sample::{Sample, SizeRecord};
use linerate_model::units::Bytes;
use linerate_model::workload::Workload;
use serde_json::{Value, json};

use super::charts::{Combination, combinations};
use super::data::LabData;
use super::draw::{COLOURS, IN_BYTES, LINES_DRAWN, apart, spread};
use crate::chart::{Axis, RATE, draw, short};
use crate::html::{escape, section, table};

/// More rows than these are not written: those of the combinations that are drawn are.
const ROWS_MAX: usize = 2_000;
/// More rows than these are folded.
const ROWS_OPEN: usize = 40;

/// The axis extends this factor beyond the figures.
const ROOM: f64 = 1.15;

/// The result of a trial for one of its sizes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OfSize {
    bytes: Bytes,
    /// Whether its times are one-way times, and not those of a whole operation.
    is_one_way: bool,
    /// The median and the 99th percentile of its times, seconds.
    times: Option<[f64; 2]>,
    /// Bits a second.
    rate: Option<f64>,
}

/// The results of a trial for its sizes; none for a trial of one size.
pub(super) fn of_sizes(sample: &Sample) -> Vec<OfSize> {
    let several = match &sample.spec.workload {
        Workload::Pingpong(pingpong) => pingpong.sizes.len() > 1,
        Workload::Rdma(rdma) => rdma.sizes.len() > 1,
        _ => false,
    };
    if !several {
        return Vec::new();
    }
    // Where both ends ask, what they did together.
    let mut by_size: BTreeMap<Bytes, Vec<&SizeRecord>> = BTreeMap::new();
    for size in askers(sample).flat_map(|(_, operations)| &operations.sizes) {
        by_size.entry(size.bytes).or_default().push(size);
    }
    let one = |(bytes, records): (Bytes, Vec<&SizeRecord>)| {
        let times = match &records[..] {
            [only] => Cow::Borrowed(&only.one_way),
            several => {
                let mut together = Histogram::default();
                for record in several {
                    together.add(&record.one_way);
                }
                Cow::Owned(together)
            }
        };
        let quantile = |share| Some(times.quantile(share)?.as_secs_f64());
        let is_one_way = matches!(sample.spec.workload, Workload::Pingpong(_));
        let rate = rate(&sample.spec.workload, bytes, &times, &records);
        OfSize {
            bytes,
            is_one_way,
            times: quantile(0.5)
                .zip(quantile(0.99))
                .map(|(p50, p99)| [p50, p99]),
            rate: rate.filter(|rate| rate.is_finite() && *rate > 0.0),
        }
    };
    by_size.into_iter().map(one).collect()
}

/// The rate of a size's payload, as `measure` reports it: for round trips that of the mean time, as in IMB; one
/// operation at a time yields a latency, and no rate.
fn rate(workload: &Workload, bytes: Bytes, times: &Histogram, of: &[&SizeRecord]) -> Option<f64> {
    let bits = real(bytes.as_u64()) * 8.0;
    match workload {
        Workload::Pingpong(_) => Some(bits * 1e9 / times.mean_ns()?),
        Workload::Rdma(rdma) if rdma.latency => None,
        _ => {
            let per_s = |one: &&SizeRecord| real(one.repetitions) / one.elapsed_ns.as_secs_f64();
            Some(of.iter().map(per_s).sum::<f64>() * bits)
        }
    }
}

/// A figure of a size over the trials of a combination.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Middle {
    /// The geometric mean.
    mean: f64,
    least: f64,
    most: f64,
}

impl Middle {
    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.filter(|value| *value > 0.0).collect();
        let least = values.iter().copied().reduce(f64::min)?;
        let most = values.iter().copied().reduce(f64::max)?;
        let logs: f64 = values.iter().map(|value| value.ln()).sum();
        let mean = (logs / real(values.len() as u64)).exp();
        // Of equal values the mean may differ in the last digit.
        let mean = mean.clamp(least, most);
        Some(Self { mean, least, most })
    }
}

/// The results of a combination's trials for a size.
struct Point {
    bytes: Bytes,
    median: Option<Middle>,
    p99: Option<Middle>,
    rate: Option<Middle>,
}

/// A combination over its sizes.
struct Line<'s> {
    name: &'s str,
    points: Vec<Point>,
}

impl<'s> Line<'s> {
    /// None of a combination whose trials have one size.
    fn of((name, trials): &'s Combination<'_>) -> Option<Self> {
        let mut by_size: BTreeMap<Bytes, Vec<&OfSize>> = BTreeMap::new();
        for size in trials.iter().flat_map(|trial| &trial.sizes) {
            by_size.entry(size.bytes).or_default().push(size);
        }
        let time = |sizes: &[&OfSize], place: usize| {
            Middle::of(sizes.iter().filter_map(|size| Some(size.times?[place])))
        };
        let points = by_size.iter().map(|(bytes, sizes)| Point {
            bytes: *bytes,
            median: time(sizes, 0),
            p99: time(sizes, 1),
            rate: Middle::of(sizes.iter().filter_map(|size| size.rate)),
        });
        let points: Vec<Point> = points.collect();
        (points.len() > 1).then_some(Self { name, points })
    }

    /// How fast it is with its largest messages.
    fn pace(&self) -> f64 {
        self.points.last().map_or(0.0, |point| {
            let time = point.median.map(|median| 1.0 / median.mean);
            point.rate.map(|rate| rate.mean).or(time).unwrap_or(0.0)
        })
    }
}

/// One figure as a picture: a line for each combination, and the range of its trials.
struct Figure {
    title: String,
    /// What values are divided by.
    by: f64,
    pick: fn(&Point) -> Option<Middle>,
}

impl Figure {
    fn picture(&self, lines: &[&Line<'_>], drawn: &mut Vec<Value>) -> String {
        let mut data = Vec::new();
        let mut sizes: BTreeSet<u64> = BTreeSet::new();
        let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
        for (number, line) in lines.iter().enumerate() {
            for point in &line.points {
                let (bytes, Some(middle)) = (point.bytes.as_u64(), (self.pick)(point)) else {
                    continue;
                };
                // An axis of tenfolds has no place for none.
                if bytes > 0 {
                    sizes.insert(bytes);
                    low = low.min(middle.least / self.by);
                    high = high.max(middle.most / self.by);
                    let of = |value: f64| short(value / self.by);
                    data.push(
                        json!({"line": line.name, "number": number, "at": bytes, "middle": of(middle.mean),
                                     "least": of(middle.least), "most": of(middle.most)}),
                    );
                }
            }
        }
        if data.is_empty() {
            return String::new();
        }
        let names: Vec<&str> = lines.iter().map(|line| line.name).collect();
        let ticks = ticks(low, high);
        let [colour, dash, shape] = apart(&names);
        let size = Axis::new(
            "message size",
            json!({"type": "log", "base": 2, "nice": false, "padding": 14}),
            json!({"values": sizes, "grid": false, "labelOverlap": true, "labelSeparation": 6, "labelExpr": IN_BYTES}),
        );
        let x = size.by("at");
        let y = Axis::new(
            &self.title,
            json!({"type": "log", "nice": false, "domain": [short(low / ROOM), short(high * ROOM)]}),
            json!({"values": ticks, "format": "~g"}),
        );
        // A layer for each band: of one layer for all the legend would take the pale colors.
        let band = |(number, colour): (usize, &&str)| {
            json!({"transform": [{"filter": {"field": "number", "equal": number}}],
                "mark": {"type": "area", "opacity": 0.16, "color": colour},
                "encoding": {"x": x, "y": y.by("least"), "y2": {"field": "most"}}})
        };
        let bands = COLOURS.iter().take(lines.len()).enumerate().map(band);
        let mut layer: Vec<Value> = bands.collect();
        layer.extend([
            json!({"mark": {"type": "line", "strokeWidth": 1.8},
                "encoding": {"x": x, "y": y.by("middle"), "color": colour, "strokeDash": dash}}),
            json!({"mark": {"type": "point", "size": 44, "filled": true, "opacity": 1},
                "encoding": {"x": x, "y": y.by("middle"), "color": colour, "shape": shape,
                    "tooltip": [{"field": "line", "title": "combination"},
                                {"field": "at", "title": "bytes", "type": "quantitative"},
                                {"field": "middle", "type": "quantitative", "format": ".4~g"},
                                {"field": "least", "type": "quantitative", "format": ".4~g"},
                                {"field": "most", "type": "quantitative", "format": ".4~g"}]}}),
        ]);
        let about = "One line per combination over the message sizes; the table below has the \
            same figures.";
        draw(drawn, 300, &data, &layer, (&self.title, about))
    }
}

/// Round numbers of a logarithmic axis, as many as fit; none where only its script knows some.
fn ticks(low: f64, high: f64) -> Option<Vec<f64>> {
    let tenfolds = (high / low).log10();
    let of_each: &[f64] = if tenfolds < 0.7 {
        &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0]
    } else if tenfolds < 2.5 {
        &[1.0, 2.0, 5.0]
    } else {
        &[1.0]
    };
    let tenth_powers = -12..=12;
    let all = tenth_powers.flat_map(|power| of_each.iter().map(move |of| of * 10f64.powi(power)));
    let ticks: Vec<f64> = all
        .filter(|at| low / ROOM <= *at && *at <= high * ROOM)
        .collect();
    (ticks.len() > 1).then_some(ticks)
}

/// The figures of every size as a table, as far as any trial has them.
fn figures(lines: &[&Line<'_>], time: &str) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let timed = points().any(|point| point.median.is_some());
    let rated = points().any(|point| point.rate.is_some());
    let (p50, p99) = (format!("{time}, median"), format!("{time}, 99 %"));
    let mut head = vec!["size", "combination"];
    if timed {
        head.extend([p50.as_str(), "min median", "max median", p99.as_str()]);
    }
    if rated {
        head.extend(["rate", "min rate", "max rate"]);
    }
    let words = |response, value: Option<f64>| {
        value.map_or_else(|| "-".to_owned(), |value| in_words(response, value))
    };
    let sizes: BTreeSet<Bytes> = points().map(|point| point.bytes).collect();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for size in sizes {
        for line in lines {
            let Some(point) = line.points.iter().find(|point| point.bytes == size) else {
                continue;
            };
            let mut row = vec![size.to_string(), escape(line.name)];
            let mut add = |response, middle: Option<Middle>, with_range: bool| {
                row.push(words(response, middle.map(|middle| middle.mean)));
                if with_range {
                    row.push(words(response, middle.map(|middle| middle.least)));
                    row.push(words(response, middle.map(|middle| middle.most)));
                }
            };
            if timed {
                add(Response::P50, point.median, true);
                add(Response::P99, point.p99, false);
            }
            if rated {
                add(Response::Rate, point.rate, true);
            }
            rows.push(row);
        }
    }
    let table = table("Figures by size", &head, &rows);
    if rows.len() <= ROWS_OPEN {
        return table;
    }
    format!(
        "<details><summary>All {} figures by size</summary>{table}</details>",
        rows.len()
    )
}

/// Curves over the sizes that each trial went through, and their figures.
pub(super) fn by_size(document: &LabDocument, seen: &LabData, drawn: &mut Vec<Value>) -> String {
    let all = combinations(document, seen);
    let lines: Vec<Line<'_>> = all.iter().filter_map(Line::of).collect();
    if lines.is_empty() {
        return String::new();
    }
    let mut shown: Vec<&Line<'_>> = lines.iter().collect();
    if shown.len() > LINES_DRAWN {
        shown.sort_by(|one, other| one.pace().total_cmp(&other.pace()));
        let places = spread(shown.len(), LINES_DRAWN).into_iter();
        shown = places.map(|place| shown[place]).collect();
    }
    let mut told = seen.trials().flat_map(|trial| &trial.sizes);
    let time = if told.all(|size| size.is_one_way) {
        "one way"
    } else {
        "message latency"
    };
    let pictures = [
        Figure {
            title: format!("{time} (median), us"),
            by: 1e-6,
            pick: |point| point.median,
        },
        Figure {
            title: RATE.to_owned(),
            by: 1e9,
            pick: |point| point.rate,
        },
    ];
    let pictures: String = (pictures.iter())
        .map(|figure| figure.picture(&shown, drawn))
        .collect();
    let mut lead = "Each trial measured all of these sizes. A line is the geometric mean over the \
        trials of a combination, its band the range from minimum to maximum; for latency, each \
        trial contributes its median."
        .to_owned();
    let points = || lines.iter().flat_map(|line| &line.points);
    if points().any(|point| point.bytes.as_u64() == 0) {
        lead.push_str(" Messages without payload appear only in the table.");
    }
    if lines.len() > shown.len() {
        lead.push_str(&format!(
            " {} of {} combinations are shown, from the slowest to the fastest at the largest \
             message size.",
            shown.len(),
            lines.len()
        ));
    }
    let of_all: Vec<&Line<'_>> = lines.iter().collect();
    let table = if points().count() > ROWS_MAX {
        lead.push_str(" The table lists the ones shown.");
        figures(&shown, time)
    } else {
        figures(&of_all, time)
    };
    section(
        "sizes",
        "By message size",
        &lead,
        &format!("{pictures}{table}"),
    )
}

#[cfg(test)]
mod tests {
    use linerate_model::build;
    use linerate_model::sample::Operations;
    use linerate_model::units::Nanoseconds;
    use linerate_model::workload::{Pingpong, Verb};

    use super::*;

    fn size(bytes: u64, times_us: &[u64]) -> SizeRecord {
        let mut one_way = Histogram::default();
        for us in times_us {
            one_way.record(Nanoseconds::from_micros(*us));
        }
        SizeRecord {
            bytes: Bytes::new(bytes),
            repetitions: times_us.len() as u64,
            elapsed_ns: Nanoseconds::from_micros(times_us.iter().sum::<u64>() * 2),
            one_way,
            peak_bit_per_s: None,
            alone_ns: None,
        }
    }

    fn operations(sizes: Vec<SizeRecord>) -> Operations {
        Operations {
            sizes,
            ..Operations::default()
        }
    }

    fn near(told: f64, so: f64) {
        assert!((told / so - 1.0).abs() < 0.003, "{told} and not {so}");
    }

    #[test]
    fn a_pingpong_tells_the_times_of_each_size_and_the_rate_of_their_mean() {
        let mut sample = build::sample().build();
        let sizes = [0, 1_000].map(Bytes::new).to_vec();
        sample.spec.workload = Workload::Pingpong(Pingpong {
            sizes,
            repetitions: 4,
            volume_bytes: Pingpong::imb_volume(),
            data_check: false,
        });
        sample.local.operations =
            Some(operations(vec![size(0, &[5]), size(1_000, &[4, 4, 4, 12])]));
        let told = of_sizes(&sample);
        assert_eq!((told[0].bytes.as_u64(), told[0].rate), (0, None));
        let [p50, p99] = told[1].times.expect("it was timed");
        near(p50, 4e-6);
        near(p99, 12e-6);
        near(told[1].rate.expect("it has payload"), 8_000.0 / 6e-6);
        assert!(told[1].is_one_way);
    }

    #[test]
    fn a_sweep_of_rates_has_no_times_and_one_size_is_no_sweep() {
        let one = build::over_verbs(build::sample().build(), build::rdma(Verb::Write, 64));
        assert_eq!(of_sizes(&one), []);
        let mut sweep = one.clone();
        let Workload::Rdma(rdma) = &mut sweep.spec.workload else {
            panic!("another workload")
        };
        rdma.sizes = [64, 4_096].map(Bytes::new).to_vec();
        let rate = |bytes, repetitions| SizeRecord {
            repetitions,
            elapsed_ns: Nanoseconds::from_millis(500),
            one_way: Histogram::default(),
            ..size(bytes, &[])
        };
        // Both ends post.
        sweep.local.operations = Some(operations(vec![rate(64, 1_000), rate(4_096, 1_000)]));
        sweep.remote.operations = Some(operations(vec![rate(64, 3_000)]));
        let told = of_sizes(&sweep);
        assert!(told.iter().all(|size| size.times.is_none()));
        near(told[0].rate.expect("a rate"), 8_000.0 * 64.0 * 8.0);
        near(told[1].rate.expect("a rate"), 2_000.0 * 4_096.0 * 8.0);
    }

    #[test]
    fn an_axis_of_tenfolds_has_round_numbers_where_it_has_room_for_them() {
        assert_eq!(ticks(4.2, 160.0), Some(vec![5.0, 10.0, 20.0, 50.0, 100.0]));
        assert_eq!(ticks(26.0, 51.0), Some(vec![30.0, 50.0]));
        let wide = ticks(0.004, 45.0).expect("tenfolds");
        assert_eq!(wide.len(), 4);
        assert_eq!(ticks(2.3, 2.5), None);
    }

    #[test]
    fn the_middle_of_trials_is_their_geometric_mean_within_their_range() {
        let middle = Middle::of([4.0, 1.0].into_iter()).expect("two trials");
        assert!((middle.mean - 2.0).abs() < 1e-12);
        assert_eq!((middle.least, middle.most), (1.0, 4.0));
        let alike = Middle::of([0.1; 3].into_iter()).expect("three trials");
        assert!(alike.least <= alike.mean && alike.mean <= alike.most);
        assert_eq!(Middle::of(std::iter::empty()), None);
    }
}
