//! Real, user and system seconds of each process of a matrix, as time(1) prints them and report 001 lists them: the mean of
//! one client and one server of each combination.

use linerate_model::plan::End;
use linerate_model::sample::Sample;
use linerate_stats::summary::mean;
use serde::Serialize;

use super::judge::ResolvedDesign;
use super::sorted::ExperimentRecords;
use crate::trial::diffusion::{EndFigures, Figures, figures};
use crate::trial::operations::real;

/// The CPU and wall-clock times of each combination of `diffusion`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TimesDocument {
    /// Each combination with a trial.
    pub cells: Vec<TimesOfCell>,
}

/// The times of one combination: the mean over its trials, of one pair.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TimesOfCell {
    /// The names of its levels.
    pub levels: Vec<String>,
    /// How many trials it has.
    pub trials: usize,
    /// How many pairs of a client and a server each trial has.
    pub pairs: u32,
    /// Gigabytes (10^9 bytes) that a pair moved each way.
    pub gb_each_way: f64,
    /// The end that asks.
    pub client: TimesOfProcess,
    /// The end that answers.
    pub server: TimesOfProcess,
}

/// The times of one process, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TimesOfProcess {
    /// Where it ran.
    pub end: End,
    /// Wall-clock time.
    pub real_s: f64,
    /// User time.
    pub user_s: f64,
    /// System time.
    pub system_s: f64,
}

/// None where no combination is of `diffusion`.
pub(super) fn document(
    sorted: &ExperimentRecords<'_>,
    laid: &ResolvedDesign,
) -> Option<TimesDocument> {
    let cells = laid
        .cells
        .iter()
        .filter_map(|cell| of_cell(&sorted.samples(cell), sorted.experiment.level_names(cell)));
    let cells: Vec<TimesOfCell> = cells.collect();
    (!cells.is_empty()).then_some(TimesDocument { cells })
}

fn of_cell(samples: &[&Sample], levels: Vec<String>) -> Option<TimesOfCell> {
    let first = samples.first()?;
    let all: Vec<Figures> = samples.iter().filter_map(|one| figures(one)).collect();
    let pairs = first.spec.flows.max(1);
    let of_pair = |seconds: f64| seconds / f64::from(pairs);
    let mean_of = |of: &dyn Fn(&Figures) -> f64| mean(&all.iter().map(of).collect::<Vec<_>>()).ok();
    let asks = if first.local.operations.is_some() {
        End::Local
    } else {
        End::Remote
    };
    let process = |end: End| {
        let side = |figures: &Figures| -> EndFigures {
            match end {
                End::Local => figures.local.clone(),
                End::Remote => figures.remote.clone(),
            }
        };
        Some(TimesOfProcess {
            end,
            real_s: mean_of(&|one| side(one).real_s)?,
            user_s: of_pair(mean_of(&|one| side(one).user_s)?),
            system_s: of_pair(mean_of(&|one| side(one).system_s)?),
        })
    };
    let answers = match asks {
        End::Local => End::Remote,
        End::Remote => End::Local,
    };
    Some(TimesOfCell {
        levels,
        trials: all.len(),
        pairs,
        gb_each_way: of_pair(mean_of(&|one| real(one.bytes) / 2e9)?),
        client: process(asks)?,
        server: process(answers)?,
    })
}

impl TimesDocument {
    /// A row for each combination.
    pub fn table(&self) -> Vec<Vec<String>> {
        let head = [
            "combination",
            "GB each way",
            "client real",
            "client user",
            "client sys",
            "server real",
            "server user",
            "server sys",
        ];
        let rows = self.cells.iter().map(|cell| {
            let mut row = vec![cell.levels.join(", "), format!("{:.2}", cell.gb_each_way)];
            for process in [cell.client, cell.server] {
                let times = [process.real_s, process.user_s, process.system_s];
                row.extend(times.map(|seconds| format!("{seconds:.3} s")));
            }
            row
        });
        std::iter::once(head.map(str::to_owned).to_vec())
            .chain(rows)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use linerate_model::build;
    use linerate_model::sample::{Checksum, GridRecord, Operations};
    use linerate_model::units::{Bytes, Nanoseconds};
    use linerate_model::workload::{Diffusion, Workload};

    use super::*;

    #[test]
    fn a_process_has_its_share_of_the_cpu_time_and_the_whole_wall_clock_time() {
        let mut sample = build::sample().flows(2).build();
        sample.spec.workload = Workload::Diffusion(Diffusion {
            bytes: Bytes::new(1_000_000),
            repetitions: None,
            work: true,
            data_check: false,
            pictures: false,
        });
        sample.local.operations = Some(Operations::default());
        sample.remote.operations = None;
        for flow in &mut sample.local.flows {
            flow.grid = Some(GridRecord {
                repetitions: 500,
                checksum: Checksum(0),
                work_ns: Nanoseconds::new(0),
                vectors: None,
                pictures: Vec::new(),
            });
        }
        sample.local.cpu.threads_user_ns = Nanoseconds::from_millis(400);
        sample.remote.cpu.threads_system_ns = Nanoseconds::from_millis(3_000);
        let cell = of_cell(&[&sample, &sample], vec!["tcp".to_owned()]).expect("figures");
        assert_eq!((cell.trials, cell.pairs), (2, 2));
        assert_eq!(
            (cell.client.end, cell.server.end),
            (End::Local, End::Remote)
        );
        let near = |value: f64, want: f64| (value - want).abs() < 1e-9;
        assert!(near(cell.gb_each_way, 0.5), "{cell:?}");
        assert!(
            near(cell.client.user_s, 0.2) && near(cell.client.real_s, 2.0),
            "{cell:?}"
        );
        assert!(near(cell.server.system_s, 1.5), "{cell:?}");
        let stream = build::sample().build();
        assert_eq!(of_cell(&[&stream], Vec::new()), None);
    }
}
