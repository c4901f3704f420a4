//! More connections that are answered faster than fewer ones: not the network but the CPUs, which sleep deeply between
//! the operations of few connections and have to wake up for each (Documentation/admin-guide/pm/cpuidle.rst).

use linerate_model::lab::{Cell, Response, Unit};
use linerate_model::sample::{Flag, Sample};
use linerate_stats::summary::median;

use super::sorted::ExperimentRecords;

/// One note for each two combinations that differ in nothing but their connections, where more of them have the shorter
/// times and the flags of the trials show why.
pub(super) fn notes(sorted: &ExperimentRecords<'_>, cells: &[Cell]) -> Vec<String> {
    let mut responses = sorted.responses().into_iter();
    let Some(response) = responses.find(|one| one.unit() == Unit::S) else {
        return Vec::new();
    };
    let mut notes = Vec::new();
    for fewer in cells {
        for more in cells {
            notes.extend(note(sorted, response, fewer, more));
        }
    }
    notes
}

fn note(
    sorted: &ExperimentRecords<'_>,
    response: Response,
    fewer: &Cell,
    more: &Cell,
) -> Option<String> {
    let differing = fewer.iter().zip(more).filter(|(one, other)| one != other);
    if differing.count() != 1 {
        return None;
    }
    let (few, many) = (sorted.samples(fewer), sorted.samples(more));
    let flows = |samples: &[&Sample]| Some(samples.first()?.spec.flows);
    let (fewer_flows, more_flows) = (flows(&few)?, flows(&many)?);
    let time = |cell: &Cell| median(&sorted.values(response, cell)).ok();
    let (slow, fast) = (time(fewer)?, time(more)?);
    let slept = |samples: &[&Sample]| {
        let flagged = |sample: &&&Sample| sample.flags.contains(&Flag::DeepSleep);
        samples.iter().filter(flagged).count() * 2 > samples.len()
    };
    if fewer_flows >= more_flows || fast >= slow || !slept(&few) {
        return None;
    }
    Some(format!(
        "{} of {} with {fewer_flows} and {} with {more_flows} connections ({}): between the operations of few \
         connections the CPUs slept in deep idle states (deep-sleep), and each had to wake up; `linerate tune hold` \
         keeps them awake",
        response.word(),
        micros(slow),
        micros(fast),
        sorted.experiment.level_names(fewer).join(", "),
    ))
}

fn micros(seconds: f64) -> String {
    format!("{:.1} us", seconds * 1e6)
}

#[cfg(test)]
mod tests {
    use linerate_model::latency::Histogram;
    use linerate_model::sample::Operations;
    use linerate_model::units::{Bytes, Nanoseconds};
    use linerate_model::workload::{Http, Workload};

    use super::super::{definition, judge, sorted::sort};
    use super::*;
    use crate::made_up;
    use crate::record::Record;

    /// The notes of two combinations: one connection answered in `one_us`, five in `five_us`.
    fn notes_of(one_us: u64, five_us: u64, flags: &[Flag]) -> Vec<String> {
        let text = "title = \"t\"\nworkload = \"http\"\nresponse = [\"operations\", \"mean\"]\n[[factors]]\noption = \
                    \"flows\"\nlevels = [1, 5]\n[design]\nrepeats = 3\n";
        let experiment = definition::parse(text).expect("a sound experiment");
        let trial = |flows: u32, us: u64, flags: &[Flag]| {
            let mut sample = *made_up::flagged(flags);
            sample.spec.flows = flows;
            sample.spec.workload = Workload::Http(Http {
                path: "/".to_owned(),
                body_bytes: Bytes::new(111),
                rate_per_s: None,
                server: None,
            });
            let mut latency = Histogram::default();
            latency.record(Nanoseconds::new(us * 1_000));
            sample.local.operations = Some(Operations {
                completed: 1,
                latency,
                ..Operations::default()
            });
            sample
        };
        let cell = |block: u32, level: usize| Record::Cell {
            block,
            levels: vec![level],
            samples: vec![match level {
                0 => trial(1, one_us, flags),
                _ => trial(5, five_us, &[]),
            }],
            why: None,
        };
        let mut records = vec![Record::Lab {
            experiment: Box::new(experiment.clone()),
            include_way_in: false,
            own_hosts: false,
        }];
        records.extend((0..3).flat_map(|block| [cell(block, 0), cell(block, 1)]));
        let sorted = sort(&records).expect("an experiment");
        let laid = judge::laid(&experiment, &[]).expect("two combinations");
        notes(&sorted, &laid.cells)
    }

    #[test]
    fn more_connections_that_are_faster_are_explained_by_deep_sleep_where_it_was_seen() {
        let noted = notes_of(40, 25, &[Flag::DeepSleep]);
        assert_eq!(noted.len(), 1, "{noted:?}");
        assert!(
            noted[0].starts_with("mean of 40.0 us with 1 and 25.0 us with 5 connections (1)"),
            "{noted:?}"
        );
        assert!(notes_of(40, 25, &[]).is_empty());
        assert!(notes_of(25, 40, &[Flag::DeepSleep]).is_empty());
    }
}
