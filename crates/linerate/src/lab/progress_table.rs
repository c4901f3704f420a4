//! The table below the progress of a running experiment: the results of each combination so far.

use linerate_analysis::experiment::judge::ResolvedDesign;
use linerate_analysis::experiment::sorted::ExperimentRecords;
use linerate_analysis::trial::figure::{in_words, mean};
use linerate_model::lab::{Cell, Experiment, Response};

use linerate_analysis::text::table::table;

/// The results of each combination for the deciding figure.
pub(super) struct ProgressTable {
    /// The names of the factors that distinguish combinations.
    heads: Vec<String>,
    rows: Vec<Row>,
    /// Trials so far.
    told: usize,
}

struct Row {
    cell: Cell,
    /// The levels of those factors.
    levels: Vec<String>,
    response: Option<Response>,
    values: Vec<f64>,
    /// When its last trial was reported, counted in trials.
    last: usize,
}

impl ProgressTable {
    /// The combinations, and what the record has of them.
    pub(super) fn of(
        experiment: &Experiment,
        laid: &ResolvedDesign,
        sorted: Option<&ExperimentRecords<'_>>,
    ) -> Self {
        let heads = laid.varied.iter().map(|at| experiment.factors[*at].name());
        let response = sorted.and_then(|sorted| sorted.responses().first().copied());
        let row = |cell: &Cell| {
            let names = experiment.level_names(cell);
            let told = sorted.zip(response);
            Row {
                cell: cell.clone(),
                levels: laid.varied.iter().map(|at| names[*at].clone()).collect(),
                response,
                values: told
                    .map_or_else(Vec::new, |(sorted, response)| sorted.values(response, cell)),
                last: 0,
            }
        };
        Self {
            heads: heads.map(str::to_owned).collect(),
            rows: laid.cells.iter().map(row).collect(),
            told: 0,
        }
    }

    /// A trial of a combination was made.
    pub(super) fn add(&mut self, cell: &[usize], response: Response, value: f64) {
        self.told += 1;
        if let Some(row) = self.rows.iter_mut().find(|row| row.cell == cell) {
            row.response = Some(response);
            row.values.push(value);
            row.last = self.told;
        }
    }

    /// The table in at most this many lines: if there are more combinations, those that were measured last.
    pub(super) fn lines(&self, most: usize) -> Vec<String> {
        let room = most.saturating_sub(1);
        let mut shown: Vec<usize> = (0..self.rows.len()).collect();
        let left_out = shown.len() > room;
        if left_out {
            shown.sort_by_key(|place| std::cmp::Reverse(self.rows[*place].last));
            shown.truncate(room.saturating_sub(1));
            shown.sort_unstable();
        }
        let mut heads = self.heads.clone();
        heads.extend(["trials", "mean", "least", "most"].map(str::to_owned));
        let rows = shown.iter().map(|place| self.rows[*place].words());
        let rows: Vec<Vec<String>> = std::iter::once(heads).chain(rows).collect();
        let mut lines = Vec::new();
        table(&mut lines, &rows);
        if left_out {
            let hidden = self.rows.len() - shown.len();
            lines.push(format!("  and {hidden} more combinations"));
        }
        lines.truncate(most);
        lines
    }
}

impl Row {
    fn words(&self) -> Vec<String> {
        let mut words = self.levels.clone();
        words.push(self.values.len().to_string());
        let least = self.values.iter().copied().reduce(f64::min);
        let most = self.values.iter().copied().reduce(f64::max);
        let figures = self.response.map_or([None; 3], |response| {
            [mean(response, &self.values), least, most].map(|value| Some((response, value?)))
        });
        let told = |figure: Option<(Response, f64)>| {
            figure.map_or_else(
                || "-".to_owned(),
                |(response, value)| in_words(response, value),
            )
        };
        words.extend(figures.map(told));
        words
    }
}

#[cfg(test)]
mod tests {
    use linerate_analysis::experiment::definition::parse;
    use linerate_analysis::experiment::judge::laid;

    use super::*;

    const FILE: &str = "title = \"one\"\nworkload = \"stream\"\n\
        [[factors]]\noption = \"flows\"\nlevels = [1, 2, 4, 8]\n[design]\nrepeats = 4\n";

    #[test]
    fn a_combination_tells_how_its_trials_went_so_far() {
        let experiment = parse(FILE).expect("an experiment");
        let laid = laid(&experiment, &[]).expect("a design");
        let mut table = ProgressTable::of(&experiment, &laid, None);
        assert!(
            table
                .lines(20)
                .iter()
                .skip(1)
                .all(|line| line.ends_with("0       -     -      -"))
        );
        table.add(&[1], Response::Rate, 1e9);
        table.add(&[1], Response::Rate, 4e9);
        let lines = table.lines(20);
        assert_eq!(lines.len(), 5);
        let words: Vec<&str> = lines[2].split_whitespace().collect();
        assert_eq!(
            words,
            ["2", "2", "2.00", "Gb/s", "1.00", "Gb/s", "4.00", "Gb/s"]
        );
    }

    #[test]
    fn where_not_all_fit_those_that_were_measured_last_are_shown() {
        let experiment = parse(FILE).expect("an experiment");
        let laid = laid(&experiment, &[]).expect("a design");
        let mut table = ProgressTable::of(&experiment, &laid, None);
        table.add(&[3], Response::Rate, 1e9);
        let lines = table.lines(3);
        assert_eq!(lines.len(), 3);
        assert!(lines[1].trim_start().starts_with("8 "), "{lines:?}");
        assert_eq!(lines[2], "  and 3 more combinations");
        for most in 0..9 {
            assert!(table.lines(most).len() <= most, "{most}");
        }
    }
}
