//! Part of an experiment's page: the CPU time over the course of one trial, step by step.

use std::collections::BTreeMap;

use linerate_analysis::experiment::document::LabDocument;
use linerate_analysis::text::words::count;
use linerate_analysis::trial::operations::real;
use linerate_model::ids::CpuId;
use linerate_model::sample::{CpuStep, CpuTimes};
use linerate_stats::summary::median;
use serde_json::{Value, json};

use super::charts::{Combination, POINTS_MIN, SHARE_DRAWN, some_with};
use super::data::{COUNTED_MIN_S, KINDS, Trial, shares};
use crate::chart::{Axis, draw, rows, short};
use crate::html::escape;

/// CPUs of each end of a trial whose course is kept: the busiest.
const CPUS_KEPT: usize = 8;
/// More steps than these are put together.
const COLUMNS_MAX: usize = 60;
/// Resolution of a share: the kernel counts ticks of 10 ms, of which a step of a second has a hundred.
const PARTS: f64 = 200.0;
/// What is kept where a share is not known.
const UNKNOWN: u8 = u8::MAX;
/// A step that came so much later than usual describes the usual time before it, and nothing of the rest.
const LATE: f64 = 1.5;
/// Next to the longest trial one of this share of its time would be hard to read: then each has its own axis.
const SHORT: f64 = 0.3;
/// Height of a row of a picture.
const ROW: usize = 16;

/// What the CPUs of an end did over the time of a trial, small enough to be kept of thousands of trials.
#[derive(Debug, Default)]
pub(super) struct Course {
    /// Where each column begins and ends, seconds since the start.
    columns: Vec<(f32, f32)>,
    /// What has a share worth drawing: a CPU, and the place of a kind.
    rows: Vec<(CpuId, usize)>,
    /// The shares of each row, one row after the other.
    parts: Vec<u8>,
    /// CPUs that worked.
    worked: usize,
}

/// A step of the record with its bounds in seconds.
struct Step<'s> {
    from: f64,
    to: f64,
    cpus: &'s [CpuTimes],
}

impl Step<'_> {
    /// The shares of a CPU's time by kind. One that is not in a step was idle all the time.
    fn shares(&self, cpu: CpuId) -> Option<[f64; KINDS.len()]> {
        let times = self.cpus.iter().find(|times| times.cpu == cpu);
        times.map_or(Some([0.0; KINDS.len()]), shares)
    }
}

/// The steps that are long enough for the kernel to have counted anything.
fn steps(series: &[CpuStep]) -> Vec<Step<'_>> {
    let ends = || series.iter().map(|step| step.at_ns.as_secs_f64());
    let bounds = || std::iter::once(0.0).chain(ends()).zip(ends());
    let widths: Vec<f64> = bounds().map(|(from, to)| to - from).collect();
    let usual = median(&widths).unwrap_or(0.0);
    (bounds().zip(series))
        .filter(|((from, to), _)| to - from >= COUNTED_MIN_S)
        .map(|((from, to), step)| Step {
            from: if to - from > usual * LATE {
                to - usual
            } else {
                from
            },
            to,
            cpus: &step.cpus,
        })
        .collect()
}

/// Where the columns begin and end: the steps themselves, or equal parts of the time.
fn columns(steps: &[Step<'_>]) -> Vec<(f64, f64)> {
    if steps.len() <= COLUMNS_MAX {
        return steps.iter().map(|step| (step.from, step.to)).collect();
    }
    let end = steps.last().map_or(0.0, |step| step.to);
    let width = end / real(COLUMNS_MAX as u64);
    let at = |column: usize| real(column as u64) * width;
    (0..COLUMNS_MAX)
        .map(|column| (at(column), at(column + 1)))
        .collect()
}

/// The mean of what is known of a column, where that is at least half of it.
fn mean_within(
    (from, to): (f64, f64),
    steps: &[Step<'_>],
    shares: &[Option<[f64; KINDS.len()]>],
) -> Option<[f64; KINDS.len()]> {
    let (mut sums, mut known) = ([0.0; KINDS.len()], 0.0);
    for (step, shares) in steps.iter().zip(shares) {
        let within = step.to.min(to) - step.from.max(from);
        let (true, Some(shares)) = (within > 0.0, shares) else {
            continue;
        };
        known += within;
        for (sum, share) in sums.iter_mut().zip(shares) {
            *sum += share * within;
        }
    }
    (known >= (to - from) / 2.0).then(|| sums.map(|sum| sum / known))
}

fn part(share: f64) -> u8 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from 0 to PARTS"
    )]
    let part = (share.clamp(0.0, 1.0) * PARTS).round() as u8;
    part
}

impl Course {
    /// The course of the busiest CPUs; empty of a trial that is too short to have one.
    pub(super) fn of(series: &[CpuStep]) -> Self {
        let steps = steps(series);
        if steps.len() < POINTS_MIN {
            return Self::default();
        }
        let mut busy: BTreeMap<CpuId, f64> = BTreeMap::new();
        for step in &steps {
            for times in step.cpus {
                let share = shares(times).map_or(0.0, |shares| shares.iter().sum());
                *busy.entry(times.cpu).or_default() += share * (step.to - step.from);
            }
        }
        let worked = busy.len();
        let mut busiest: Vec<(CpuId, f64)> = busy.into_iter().collect();
        busiest.sort_by(|one, other| other.1.total_cmp(&one.1));
        busiest.truncate(CPUS_KEPT);
        busiest.sort_by_key(|(cpu, _)| *cpu);
        let columns = columns(&steps);
        let (mut rows, mut parts) = (Vec::new(), Vec::new());
        for (cpu, _) in busiest {
            let of_steps: Vec<_> = steps.iter().map(|step| step.shares(cpu)).collect();
            let means = columns
                .iter()
                .map(|column| mean_within(*column, &steps, &of_steps));
            let means: Vec<Option<[f64; KINDS.len()]>> = means.collect();
            for kind in 0..KINDS.len() {
                let shares = || means.iter().map(|mean| mean.map(|shares| shares[kind]));
                if shares().flatten().any(|share| share > SHARE_DRAWN) {
                    rows.push((cpu, kind));
                    parts.extend(shares().map(|share| share.map_or(UNKNOWN, part)));
                }
            }
        }
        // Kept of thousands of trials: nothing is left over.
        parts.shrink_to_fit();
        rows.shrink_to_fit();
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a place in a picture, to a part of a second"
        )]
        let columns = columns.iter().map(|(from, to)| (*from as f32, *to as f32));
        Self {
            columns: columns.collect(),
            rows,
            parts,
            worked,
        }
    }

    /// Whether there is anything to draw.
    fn is_known(&self) -> bool {
        !self.rows.is_empty()
    }

    /// The end of the last column.
    fn end_s(&self) -> f64 {
        self.columns.last().map_or(0.0, |(_, to)| f64::from(*to))
    }

    /// The rows with the shares of their columns, each none where it is not known.
    fn rows(&self) -> impl Iterator<Item = (CpuId, usize, Vec<Option<f64>>)> {
        let of_rows = self.parts.chunks(self.columns.len().max(1));
        let share = |part: &u8| (*part != UNKNOWN).then(|| f64::from(*part) / PARTS);
        let rows = self.rows.iter().zip(of_rows);
        rows.map(move |((cpu, kind), parts)| (*cpu, *kind, parts.iter().map(share).collect()))
    }

    /// How many CPUs have a row.
    fn cpus(&self) -> usize {
        let mut cpus: Vec<CpuId> = self.rows.iter().map(|(cpu, _)| *cpu).collect();
        cpus.dedup();
        cpus.len()
    }

    /// The picture: a row for each CPU and kind, a column for each step. What was measured is framed, so that a gap is not
    /// taken for idleness.
    fn picture(&self, title: &str, longest: f64, drawn: &mut Vec<Value>) -> String {
        let place = |seconds: f32| short(f64::from(seconds));
        let (mut data, mut frames) = (Vec::new(), Vec::new());
        for (cpu, kind, shares) in self.rows() {
            let row = format!("CPU {cpu} {}", KINDS[kind]);
            let mut measured: Option<(f32, f32)> = None;
            let mut end_of_frame = |measured: &mut Option<(f32, f32)>| {
                if let Some((from, to)) = measured.take() {
                    frames.push(json!({"row": row, "from": place(from), "to": place(to)}));
                }
            };
            for ((from, to), share) in self.columns.iter().zip(shares) {
                // Columns that touch have one frame.
                if measured.is_some_and(|(_, end)| share.is_none() || *from > end) {
                    end_of_frame(&mut measured);
                }
                let Some(share) = share else {
                    continue;
                };
                measured = Some((measured.map_or(*from, |(start, _)| start), *to));
                if share > 0.0 {
                    data.push(
                        json!({"row": row, "from": place(*from), "to": place(*to), "share": share}),
                    );
                }
            }
            end_of_frame(&mut measured);
        }
        let x = Axis::of_trial(longest);
        let layer = [
            json!({"data": {"values": frames},
                "mark": {"type": "bar", "height": {"band": 0.88}, "fill": "none", "stroke": "var(--line)"},
                "encoding": {"y": rows("row"), "x": x.by("from"), "x2": {"field": "to"}}}),
            json!({"mark": {"type": "bar", "height": {"band": 0.88}, "color": "var(--accent)"},
                "encoding": {"y": rows("row"), "x": x.by("from"), "x2": {"field": "to"},
                    "opacity": {"field": "share", "type": "quantitative", "scale": {"domain": [0, 1], "range": [0, 0.92]},
                        "legend": {"format": ".0%", "values": [0.25, 0.5, 1], "symbolType": "square",
                                   "symbolFillColor": "var(--accent)", "symbolStrokeWidth": 0, "symbolSize": 140}},
                    "tooltip": [{"field": "row", "title": "what"},
                                {"field": "to", "title": "until, s", "type": "quantitative", "format": ".3~g"},
                                {"field": "share", "type": "quantitative", "format": ".1%"}]}}),
        ];
        let shown = self.cpus();
        let title = if self.worked > CPUS_KEPT {
            let of = count(self.worked, "CPU");
            format!("{title}, the {shown} busiest of {of}")
        } else {
            title.to_owned()
        };
        let about = "CPU time by kind as shares over the time of one trial. The tables above have \
            the means.";
        draw(drawn, ROW * self.rows.len(), &data, &layer, (&title, about))
    }
}

/// The median trial by the first figure; if none has it, the one in the middle of the order.
fn middle<'t>(document: &LabDocument, place: usize, trials: &[&'t Trial]) -> Option<&'t Trial> {
    let response = document.responses.first()?;
    let levels = &response.cells.get(place)?.levels;
    let of_these = document.trials.iter().filter(|one| one.levels == *levels);
    let values: BTreeMap<u32, f64> = of_these
        .filter_map(|one| Some((one.block, *one.values.get(response.response.word())?)))
        .collect();
    let mut told: Vec<(f64, &Trial)> = (trials.iter())
        .filter_map(|trial| Some((*values.get(&trial.block)?, *trial)))
        .collect();
    told.sort_by(|one, other| one.0.total_cmp(&other.0));
    let middle = told.get(told.len() / 2).map(|(_, trial)| *trial);
    middle.or_else(|| trials.get(trials.len() / 2).copied())
}

/// What CPUs did over the time of one trial: a picture for each end of a trial of some combinations.
pub(super) fn over_the_time_of_one(
    document: &LabDocument,
    all: &[Combination<'_>],
    drawn: &mut Vec<Value>,
) -> String {
    let (some, of) = some_with(all, |trial| {
        trial.ends.iter().any(|end| end.course.is_known())
    });
    let shown: Vec<(&str, &Trial)> = (some.iter())
        .filter_map(|(place, trials)| {
            Some((all[*place].0.as_str(), middle(document, *place, trials)?))
        })
        .collect();
    let ends = |trial: &Trial| if trial.shared_kernel { 1 } else { 2 };
    let mut courses = Vec::new();
    for (name, trial) in &shown {
        for (number, end) in trial.ends.iter().take(ends(trial)).enumerate() {
            if end.course.is_known() {
                let whose = match (trial.shared_kernel, number, &trial.peer) {
                    (true, ..) => "both ends",
                    (false, 0, _) => "this host",
                    (false, _, None) => "the peer",
                    (false, _, Some(at)) => at,
                };
                let title = format!("{name}: {whose}, block {}", trial.block + 1);
                courses.push((title, &end.course));
            }
        }
    }
    let all_ends = || courses.iter().map(|(_, course)| course.end_s());
    let longest = all_ends().fold(0.0, f64::max);
    let alike = all_ends().all(|end| end >= longest * SHORT);
    let charts: String = (courses.iter())
        .map(|(title, course)| {
            let end = if alike { longest } else { course.end_s() };
            course.picture(title, end, drawn)
        })
        .collect();
    let without = all.len() - of;
    let lead = if charts.is_empty() {
        format!(
            "Not shown: no trial has {POINTS_MIN} CPU time samples of at least 1 s with a busy \
             CPU."
        )
    } else {
        let word = document.responses.first();
        let word = word.map_or("order", |response| response.response.word());
        let mut lead = format!(
            "The median trial of each combination by {word}, over time. Gaps in a frame were not \
             measured. Kinds that never reached {:.0} % of a CPU are omitted.",
            SHARE_DRAWN * 100.0
        );
        if !alike {
            lead.push_str(" The trial durations differ too much for a shared axis.");
        }
        if of > shown.len() {
            lead.push_str(&format!(" {} of {of} combinations are shown.", shown.len()));
        }
        if without > 0 {
            lead.push_str(&format!(
                " {} no trial with {POINTS_MIN} or more samples of at least 1 s.",
                match without {
                    1 => "One combination has".to_owned(),
                    some => format!("{some} combinations have"),
                }
            ));
        }
        lead
    };
    format!(
        "<h3>Over the time of one trial</h3><p class=\"lead\">{}</p><div class=\"grid\">{charts}</div>",
        escape(&lead)
    )
}

#[cfg(test)]
mod tests {
    use linerate_model::build;
    use linerate_model::units::Nanoseconds;

    use super::*;

    /// A CPU that spent this many milliseconds of a one-second step in user mode and on softirqs.
    fn worked(cpu: u32, user: u64, softirq: u64) -> CpuTimes {
        build::cpu_times(cpu, user, softirq, 1_000 - user - softirq)
    }

    fn step(at_ms: u64, cpus: Vec<CpuTimes>) -> CpuStep {
        CpuStep {
            at_ns: Nanoseconds::from_millis(at_ms),
            cpus,
        }
    }

    #[test]
    fn a_course_holds_the_shares_of_the_record() {
        let series: Vec<CpuStep> = (1..=5)
            .map(|at| step(at * 1_000, vec![worked(3, 100 * at, 250)]))
            .collect();
        let course = Course::of(&series);
        let rows: Vec<_> = course.rows().collect();
        let user = [0.1, 0.2, 0.3, 0.4, 0.5].map(Some).to_vec();
        assert_eq!(rows[0], (CpuId(3), 0, user));
        assert_eq!(rows[1], (CpuId(3), 2, vec![Some(0.25); 5]));
        assert_eq!(rows.len(), 2, "kinds that took nothing have no row");
        assert_eq!(course.columns[4], (4.0, 5.0));
    }

    #[test]
    fn what_is_not_in_a_step_was_idle_and_a_step_that_is_missing_is_a_gap() {
        let series = [1, 2, 3, 6, 7].map(|at| match at {
            2 => step(2_000, Vec::new()),
            at => step(at * 1_000, vec![worked(0, 500, 0)]),
        });
        let course = Course::of(&series);
        let rows: Vec<_> = course.rows().collect();
        let half = Some(0.5);
        assert_eq!(
            rows,
            [(CpuId(0), 0, vec![half, Some(0.0), half, half, half])]
        );
        let bounds = [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0), (5.0, 6.0), (6.0, 7.0)];
        assert_eq!(course.columns, bounds);
        let mut drawn = Vec::new();
        course.picture("a trial", 7.0, &mut drawn);
        let frames = &drawn[0]["layer"][0]["data"]["values"];
        let spans: Vec<_> = (frames.as_array().expect("a list").iter())
            .map(|one| (one["from"].clone(), one["to"].clone()))
            .collect();
        let at = |at: f64| short(at);
        assert_eq!(spans, [(at(0.0), at(3.0)), (at(5.0), at(7.0))]);
        assert_eq!(drawn[0]["data"].as_array().map(Vec::len), Some(4));
    }

    #[test]
    fn a_short_trial_has_no_course() {
        let of = |ends: &[u64]| {
            let steps = ends.iter().map(|at| step(*at, vec![worked(0, 500, 0)]));
            Course::of(&steps.collect::<Vec<_>>())
        };
        assert!(!of(&[1_000, 2_000, 3_000]).is_known());
        // What is read at the end, right behind another reading, is no step.
        assert!(!of(&[1_000, 2_000, 3_000, 3_020]).is_known());
        assert!(of(&[1_000, 2_000, 3_000, 4_000]).is_known());
        assert!(!of(&[4_000, 3_000, 2_000, 1_000]).is_known(), "times fall");
    }

    #[test]
    fn a_long_trial_of_many_cpus_is_kept_small_and_keeps_its_gap() {
        let steps = (1..=600u64).filter(|at| !(300..330).contains(at));
        let cpus = |at: u64| {
            (0..64)
                .map(|cpu| worked(cpu, u64::from(cpu) * 10 + at % 2 * 20, 0))
                .collect()
        };
        let series: Vec<CpuStep> = steps.map(|at| step(at * 1_000, cpus(at))).collect();
        let course = Course::of(&series);
        assert_eq!((course.columns.len(), course.worked), (COLUMNS_MAX, 64));
        let cpus: Vec<u32> = course.rows().map(|(cpu, ..)| cpu.0).collect();
        assert_eq!(cpus, (56..64).collect::<Vec<u32>>());
        let (.., shares) = course.rows().last().expect("a row");
        assert_eq!(shares[0], Some(0.64));
        assert_eq!(shares.iter().filter(|share| share.is_none()).count(), 3);
        assert!(course.parts.len() + course.columns.len() * 8 < 1_000);
    }
}
