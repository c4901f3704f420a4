//! What people type after `export` and `runs`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use linerate_model::sample::Flag;

use crate::moment;
use crate::store::RunKind;

/// `export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The runs' folders, such as `STATE/runs/*`.
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// The table's format [default: by the file's name, else csv, with `--format json` jsonl].
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub to: Option<TableFormat>,
    /// The file to write [default: standard output].
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// The formats of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TableFormat {
    /// Comma-separated values with a line of names; an empty cell is not known.
    Csv,
    /// A JSON object a line; null is not known.
    Jsonl,
    /// Apache Parquet.
    Parquet,
}

/// `runs`.
#[derive(Debug, Args)]
pub struct RunsArgs {
    /// Only those with this host at either end.
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Only those over this interface of either end.
    #[arg(long, value_name = "NAME")]
    pub nic: Option<String>,
    /// Only those with trials of this workload, such as `stream`.
    #[arg(long, value_name = "WORKLOAD")]
    pub workload: Option<String>,
    /// Only those with this peer, as it was typed.
    #[arg(long, value_name = "PEER")]
    pub peer: Option<String>,
    /// Only those that began at this moment or later: `2026-11-21`, `2026-11-21T04:02Z` (UTC).
    #[arg(long, value_name = "DATE", value_parser = moment::parse)]
    pub since: Option<u64>,
    /// Only those with a trial that carries this flag, such as `steal`.
    #[arg(long, value_name = "FLAG", value_parser = parse_flag)]
    pub flag: Option<Flag>,
    /// Only those of this command: lab, prove, demo, search.
    #[arg(long, value_enum, hide_possible_values = true)]
    pub kind: Option<RunKind>,
    /// Read every run anew.
    #[arg(long)]
    pub rebuild: bool,
}

fn parse_flag(text: &str) -> Result<Flag, String> {
    serde_json::from_value(serde_json::Value::String(text.to_owned()))
        .map_err(|_| "there is no such flag: docs/reference/flags.md lists them".to_owned())
}
