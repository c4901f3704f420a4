//! The server that an experiment loaded, and its hits over time: operations per second in steps of 5 s, as load tests of
//! web applications report them.

use linerate_model::lab::{Cell, LoadedServer, ServerAt};
use linerate_model::sample::Sample;
use linerate_model::units::Nanoseconds;
use linerate_stats::summary;

use super::document::{HitsDocument, ServerDocument};
use super::judge::ResolvedDesign;
use super::sorted::ExperimentRecords;
use crate::trial::operations::{askers, ops_per_s, real};

/// The step of a trial that has at least [`STEPS_MIN`] of them.
const STEP: Nanoseconds = Nanoseconds::from_millis(5_000);
/// Fewer steps show no course.
const STEPS_MIN: u64 = 4;
/// The steps of a shorter trial.
const STEPS_OF_SHORT: u64 = 12;

/// The server of an experiment; none if it is linerate's own.
pub(super) fn document(
    sorted: &ExperimentRecords<'_>,
    laid: &ResolvedDesign,
) -> Option<ServerDocument> {
    let server = sorted.experiment.server.as_ref()?;
    let cells = laid.cells.iter();
    Some(ServerDocument {
        url: server.url.clone(),
        command: server.command.clone(),
        at: word(server),
        hits: cells.filter_map(|cell| of_cell(sorted, cell)).collect(),
    })
}

fn word(server: &LoadedServer) -> &'static str {
    match server.at {
        ServerAt::Here => "here",
        ServerAt::Peer => "peer",
        ServerAt::Elsewhere => "elsewhere",
    }
}

/// The means over the trials of a combination, step by step.
fn of_cell(sorted: &ExperimentRecords<'_>, cell: &Cell) -> Option<HitsDocument> {
    let samples = sorted.samples(cell);
    let step = step_of(samples.first()?.spec.duration_ns);
    let courses: Vec<Vec<f64>> = samples.iter().map(|sample| course(sample, step)).collect();
    let courses: Vec<Vec<f64>> = courses.into_iter().filter(|one| !one.is_empty()).collect();
    let steps = courses.iter().map(Vec::len).min()?;
    let mean_of = |at: usize| {
        let rates: Vec<f64> = courses
            .iter()
            .filter_map(|one| one.get(at).copied())
            .collect();
        summary::mean(&rates).ok()
    };
    let rates: Vec<f64> = samples
        .iter()
        .filter_map(|sample| ops_per_s(sample))
        .collect();
    Some(HitsDocument {
        levels: sorted.experiment.level_names(cell),
        trials: courses.len(),
        step_s: step.as_secs_f64(),
        per_s: (0..steps).map_while(mean_of).collect(),
        mean_per_s: summary::mean(&rates).ok()?,
    })
}

impl ServerDocument {
    /// The server, for a person.
    pub fn in_words(&self) -> String {
        in_words(&self.url, self.command.as_deref(), self.at)
    }
}

/// A server, for a person.
pub fn server_in_words(server: &LoadedServer) -> String {
    in_words(&server.url, server.command.as_deref(), word(server))
}

fn in_words(url: &str, command: Option<&str>, at: &str) -> String {
    match (command, at) {
        (Some(command), _) => format!("server: {url}, started for each trial by `{command}`"),
        (None, "here") => format!("server: {url}, running on this host"),
        (None, "peer") => format!("server: {url}, running at the peer"),
        (None, _) => format!("server: {url}, on a host that linerate does not run on"),
    }
}

impl HitsDocument {
    /// What the table of them shows, for a person.
    pub fn step_in_words(&self) -> String {
        // To the millisecond, without trailing zeros.
        let step = (self.step_s * 1e3).round() / 1e3;
        format!("hits/s in steps of {step} s, mean of the trials of each combination")
    }
}

/// Hits per second, for a person: three digits.
pub fn hits_in_words(per_s: f64) -> String {
    match per_s {
        few if few < 10.0 => format!("{few:.2}"),
        some if some < 100.0 => format!("{some:.1}"),
        many => format!("{many:.0}"),
    }
}

/// The width of the steps of a trial of this duration.
fn step_of(duration: Nanoseconds) -> Nanoseconds {
    if duration.as_u64() >= STEPS_MIN * STEP.as_u64() {
        STEP
    } else {
        Nanoseconds::new(duration.as_u64() / STEPS_OF_SHORT)
    }
}

/// The rate within each whole step of a trial. Counts between two readings are interpolated.
fn course(sample: &Sample, step: Nanoseconds) -> Vec<f64> {
    let Some((_, operations)) = askers(sample).next() else {
        return Vec::new();
    };
    let readings = operations.steps.iter();
    let readings = readings.map(|reading| (reading.at_ns.as_secs_f64(), real(reading.completed)));
    let readings: Vec<(f64, f64)> = std::iter::once((0.0, 0.0)).chain(readings).collect();
    let width = step.as_secs_f64();
    let count = |at: f64| {
        let pair = readings.windows(2).find(|pair| pair[1].0 >= at)?;
        let ((from, before), (to, after)) = (pair[0], pair[1]);
        let share = if to > from {
            (at - from) / (to - from)
        } else {
            1.0
        };
        Some(before + (after - before) * share)
    };
    // Only what was begun in the planned time: a trial ends a little later than that.
    let steps = sample.spec.duration_ns.as_u64().checked_div(step.as_u64());
    let edges = (0..=steps.unwrap_or(0)).map(|edge| count(real(edge) * width));
    let counts: Vec<f64> = edges.map_while(|count| count).collect();
    let rates = counts.windows(2).map(|pair| (pair[1] - pair[0]) / width);
    rates.collect()
}

#[cfg(test)]
mod tests {
    use linerate_model::build;
    use linerate_model::sample::{Operations, Step};

    use super::*;

    fn trial(seconds: u64, readings: &[(u64, u64)]) -> Sample {
        let mut sample = build::sample().build();
        sample.spec.duration_ns = Nanoseconds::from_millis(seconds * 1_000);
        let steps = readings.iter().map(|(at, completed)| Step {
            at_ns: Nanoseconds::from_millis(*at),
            completed: *completed,
        });
        sample.local.operations = Some(Operations {
            steps: steps.collect(),
            ..Operations::default()
        });
        sample.remote.operations = None;
        sample
    }

    #[test]
    fn a_long_trial_has_steps_of_five_seconds_and_a_short_one_twelve() {
        let seconds = |seconds: u64| step_of(Nanoseconds::from_millis(seconds * 1_000));
        assert_eq!(seconds(40), STEP);
        assert_eq!(seconds(20), STEP);
        assert_eq!(seconds(6), Nanoseconds::from_millis(500));
    }

    #[test]
    fn a_step_has_what_was_completed_in_it_also_between_readings() {
        // 100 per second for 5 s, then 200 per second; the readings do not fall on the edges.
        let sample = trial(
            20,
            &[(4_000, 400), (5_000, 500), (12_000, 1_900), (20_050, 3_510)],
        );
        let rates = course(&sample, STEP);
        let expected = [100.0, 200.0, 200.0, 200.0];
        assert_eq!(rates.len(), expected.len());
        for (rate, expected) in rates.iter().zip(expected) {
            assert!((rate - expected).abs() < 1e-6, "{rates:?}");
        }
    }

    #[test]
    fn a_trial_that_ended_early_has_only_the_steps_that_it_reached() {
        assert_eq!(
            course(&trial(20, &[(5_000, 50), (7_000, 70)]), STEP),
            [10.0]
        );
        assert!(course(&trial(20, &[]), STEP).is_empty());
    }
}
