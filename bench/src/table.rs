//! A comparison as text for people, and as the JSON that is stored.

use std::fmt::Write as _;

use linerate_stats::StatsError;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::environment::Environment;
use crate::figures::{Agreement, CasePairs, Figures, LEVEL, figures};
use crate::work::Work;

const SCHEMA: &str = "linerate.bench-stream/1";

/// Everything that was asked and recorded; the figures are computed from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Comparison {
    pub(crate) seed: u64,
    pub(crate) environment: Environment,
    pub(crate) work: Work,
    pub(crate) cases: Vec<CasePairs>,
}

impl Comparison {
    /// The document that is stored: the schema, the figures, and the record.
    pub(crate) fn json(&self) -> Result<Value, StatsError> {
        Ok(json!({
            "schema": SCHEMA,
            "figures": figures(&self.cases, self.seed)?,
            "record": self,
        }))
    }

    /// Reads a stored document; the figures in it are not believed but computed again.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut document: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if document["schema"] != SCHEMA {
            return Err(format!(
                "its schema is {}, not {SCHEMA}",
                document["schema"]
            ));
        }
        serde_json::from_value(document["record"].take()).map_err(|error| error.to_string())
    }

    /// The tables.
    pub(crate) fn text(&self) -> Result<String, StatsError> {
        let figures = figures(&self.cases, self.seed)?;
        let mut text = format!("{}\n{}\n\n", self.environment.text(), self.settings());
        if !figures.is_empty() {
            text.push_str(&rate_table(&figures));
            text.push_str(&cost_table(&figures));
        }
        let short = self.cases.len() - figures.len();
        if short > 0 {
            let _ = writeln!(text, "\n{short} cases have too few pairs for an interval.");
        }
        Ok(text)
    }

    fn settings(&self) -> String {
        let case = |what: &dyn Fn(&CasePairs) -> Option<String>| self.cases.iter().find_map(what);
        let fixed = case(&|case| {
            let size = case.case.socket_buffer_bytes?;
            Some(format!("SO_SNDBUF and SO_RCVBUF {} KiB", size / 1024))
        });
        let pinned = case(&|case| {
            let pins = case.case.pins?;
            Some(format!(
                "senders on CPU {}, receivers on CPU {}",
                pins.sender, pins.receiver
            ))
        });
        format!(
            "seed {}; {} s a trial, the first {} s not compared; {} KiB a call; {}\n\
             fixed: {}; auto: the kernel's autotuning\n\
             pinned: {}; free: the scheduler's choice",
            self.seed,
            self.work.seconds,
            self.work.warmup_s,
            self.work.buffer_bytes / 1024,
            self.work.congestion_control,
            fixed.unwrap_or_else(|| "not run".to_owned()),
            pinned.unwrap_or_else(|| "not run".to_owned()),
        )
    }
}

fn rate_table(figures: &[Figures]) -> String {
    let mut text = format!(
        "{:<30} {:>5} {:>9} {:>9} {:>7} {:>7} {:>15} {:>9} {:>9}\n",
        "", "pairs", "linerate", "iperf3", "ratio", "mean", "interval", "within", "at least"
    );
    let _ = writeln!(
        text,
        "{:<30} {:>5} {:>9} {:>9} {:>7} {:>7} {:>15} {:>9} {:>9}",
        "case",
        "",
        "Gb/s",
        "Gb/s",
        "median",
        "",
        format!("{:.0} %", LEVEL * 100.0),
        "5 %",
        "as fast"
    );
    for one in figures {
        let agrees = match one.agrees_within_5_percent {
            Agreement::Yes => "yes",
            Agreement::No => "no",
            Agreement::Undecided => "undecided",
        };
        let as_fast = match one.at_least_as_fast {
            Some(true) => "yes",
            Some(false) => "no",
            None => "too few",
        };
        let _ = writeln!(
            text,
            "{:<30} {:>5} {:>9.2} {:>9.2} {:>7.3} {:>7.3} {:>15} {:>9} {:>9}",
            one.name,
            one.pairs,
            one.linerate_bit_per_s_median / 1e9,
            one.iperf3_bit_per_s_median / 1e9,
            one.ratio_median,
            one.ratio_mean,
            format!("{:.3} to {:.3}", one.ratio_low, one.ratio_high),
            agrees,
            as_fast,
        );
    }
    text.push_str(
        "ratio: linerate / iperf3 of pairs taken one after the other, bytes received in the same \
         window.\nThe interval is about the mean; \"undecided\": it crosses the border of 5 %.\n",
    );
    text
}

fn cost_table(figures: &[Figures]) -> String {
    let mut text = format!(
        "\n{:<30} {:>9} {:>9} {:>11} {:>11} {:>9}\n",
        "medians", "linerate", "iperf3", "linerate", "iperf3", "printed"
    );
    let _ = writeln!(
        text,
        "{:<30} {:>9} {:>9} {:>11} {:>11} {:>9}",
        "case", "s per GB", "s per GB", "command s", "command s", "ratio"
    );
    for one in figures {
        let _ = writeln!(
            text,
            "{:<30} {:>9.3} {:>9.3} {:>11.2} {:>11.2} {:>9.3}",
            one.name,
            one.linerate_cpu_s_per_gb_median,
            one.iperf3_cpu_s_per_gb_median,
            one.linerate_cpu_command_s_median,
            one.iperf3_cpu_command_s_median,
            one.printed_ratio_median,
        );
    }
    text.push_str(
        "s per GB: CPU seconds of both ends for 10^9 bytes while moving them, as each program accounts\n\
         for itself. command s: of all its processes from start to exit, as the kernel charged them.\n\
         printed ratio: of the rates as the programs print them, each by its own rule of what to count.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::tests::case_of;
    use crate::work::work_for_tests;

    fn comparison() -> Comparison {
        let environment = Environment {
            kernel: Some("6.1".to_owned()),
            cpu_model: None,
            cpus: 2,
            governor: None,
            compiler: None,
            linerate: None,
            iperf3: None,
            load_before: None,
            load_after: None,
        };
        Comparison {
            seed: 7,
            environment,
            work: work_for_tests(),
            cases: vec![case_of(&[1010, 1020, 1030, 1020]), case_of(&[1000])],
        }
    }

    #[test]
    fn the_table_has_rate_ratio_and_interval_and_says_what_it_left_out() {
        let text = comparison().text().expect("pairs are positive");
        let row = text
            .lines()
            .find(|line| line.starts_with("1 flow forward free fixed"));
        let row = row.expect("the case has a row");
        for part in ["8.16", "8.00", "1.020", " to ", "yes", "too few"] {
            assert!(row.contains(part), "{part} is not in {row}");
        }
        assert!(text.contains("seed 7"), "{text}");
        assert!(text.contains("1 cases have too few pairs"), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 110),
            "{text}"
        );
    }

    #[test]
    fn a_stored_comparison_gives_the_same_tables() {
        let stored = comparison().json().expect("pairs are positive").to_string();
        let read = Comparison::parse(&stored).expect("it was just written");
        assert_eq!(read, comparison());
        assert_eq!(read.text(), comparison().text());
    }

    #[test]
    fn another_document_is_refused_by_its_schema() {
        let error = Comparison::parse(r#"{"schema":"linerate.map/1"}"#).expect_err("another");
        assert!(error.contains("linerate.map/1"), "{error}");
        assert!(Comparison::parse("{").is_err());
    }
}
