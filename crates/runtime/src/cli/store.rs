//! What people type after `report`, `export` and `runs`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use linerate_analysis::record::RunKind;
use linerate_analysis::text::timestamp;
use linerate_model::sample::Flag;
use linerate_model::units::Bytes;
use linerate_store::export::TableFormat;

/// Where `measure` stores its result.
#[derive(Debug, Args)]
#[command(next_help_heading = "Stored results")]
pub struct StoreArgs {
    /// Do not store the result.
    #[arg(long, global = true, conflicts_with = "name", hide_short_help = true)]
    pub no_store: bool,
    /// Store the result under this name, such as `before-upgrade`; it is never removed.
    #[arg(
        long,
        global = true,
        value_name = "NAME",
        value_parser = parse_name,
        hide_short_help = true
    )]
    pub name: Option<String>,
    /// Remove the oldest results without a name when all of them take more than SIZE.
    #[arg(
        long,
        global = true,
        value_name = "SIZE",
        default_value = "1GB",
        hide_short_help = true
    )]
    pub store_limit: Bytes,
}

/// A name that is a directory of its own, and means no other run.
fn parse_name(text: &str) -> Result<String, String> {
    const LONGEST: usize = 64;
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphanumeric());
    if text.len() > LONGEST || !starts_well || !text.chars().all(is_allowed) {
        return Err(format!(
            "expected 1 to {LONGEST} letters, digits, `.`, `_` and `-`, the first a letter or digit, such as \
             `before-upgrade`"
        ));
    }
    if text == "last" {
        return Err("`last` is the newest run; give another name".to_owned());
    }
    Ok(text.to_owned())
}

/// `report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The run: a directory, the name of a stored run or a part of it, `last`, or `last~1` (the one before). Several
    /// runs that the ranks of one `mesh` have kept are joined.
    #[arg(required_unless_present = "serve", value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// The HTML file to write [default: report.html in the directory of the (first) run].
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Serve all stored runs and the progress of running ones to a browser on this machine, until Ctrl-C; prints the
    /// URL [default: a free port on 127.0.0.1].
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        num_args = 0..=1,
        default_missing_value = ANY_PORT,
        value_parser = parse_address,
        conflicts_with_all = ["runs", "out"]
    )]
    pub serve: Option<SocketAddr>,
}

/// `export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// Runs: directories such as `STATE/runs/*`, names of stored runs, or `last`.
    #[arg(required = true, value_name = "RUN")]
    pub runs: Vec<PathBuf>,
    /// Table format [default: from the file extension, else csv; with `--format json` jsonl].
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub to: Option<TableFormatArg>,
    /// The file to write [default: standard output].
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// The formats of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TableFormatArg {
    /// Comma-separated values with a header line; unknown values are empty.
    Csv,
    /// One JSON object per line; unknown values are null.
    Jsonl,
    /// Apache Parquet.
    Parquet,
}

impl From<TableFormatArg> for TableFormat {
    fn from(format: TableFormatArg) -> Self {
        match format {
            TableFormatArg::Csv => Self::Csv,
            TableFormatArg::Jsonl => Self::Jsonl,
            TableFormatArg::Parquet => Self::Parquet,
        }
    }
}

/// `runs`.
#[derive(Debug, Args)]
pub struct RunsArgs {
    /// Only runs with this host on either end, or as a level of an experiment.
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Only runs over this interface of either end, or of a host that is a level.
    #[arg(long, value_name = "NAME")]
    pub nic: Option<String>,
    /// Only runs with trials of this workload, such as `stream`.
    #[arg(long, value_name = "WORKLOAD")]
    pub workload: Option<String>,
    /// Only runs with this peer, or this host as a level, as typed on the command line.
    #[arg(long, value_name = "PEER")]
    pub peer: Option<String>,
    /// Only runs started at this time or later: `2026-11-21`, `2026-11-21T04:02Z` (UTC).
    #[arg(long, value_name = "DATE", value_parser = timestamp::parse)]
    pub since: Option<u64>,
    /// Only runs with a trial that has this flag, such as `steal`.
    #[arg(long, value_name = "FLAG", value_parser = parse_flag)]
    pub flag: Option<Flag>,
    /// Only runs of this command: lab, prove, demo, search, measure, qos, failover.
    #[arg(long, value_parser = kinds(), hide_possible_values = true)]
    pub kind: Option<RunKind>,
    /// Rebuild the index: read every run again.
    #[arg(long)]
    pub rebuild: bool,
}

/// The commands that store runs, by their names.
fn kinds() -> impl TypedValueParser<Value = RunKind> {
    PossibleValuesParser::new(RunKind::ALL.map(RunKind::word)).map(|word| {
        let is_meant = |kind: &RunKind| kind.word() == word;
        // The parser lets only these words pass.
        RunKind::ALL
            .into_iter()
            .find(is_meant)
            .unwrap_or(RunKind::Prove)
    })
}

fn parse_flag(text: &str) -> Result<Flag, String> {
    serde_json::from_value(serde_json::Value::String(text.to_owned()))
        .map_err(|_| "unknown flag: docs/reference/flags.md lists them".to_owned())
}

/// Where it listens when no address is named: a port that is free.
const ANY_PORT: &str = "127.0.0.1:0";

/// Reads an address of this machine alone: `127.0.0.1:8080`, `[::1]:8080`, or only a port.
fn parse_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::from(([127, 0, 0, 1], port)));
    }
    let address: SocketAddr = text
        .parse()
        .map_err(|_| "expected ADDRESS:PORT, such as 127.0.0.1:8080, or a port".to_owned())?;
    if address.ip().is_loopback() {
        return Ok(address);
    }
    let port = match address.port() {
        0 => "PORT".to_owned(),
        port => port.to_string(),
    };
    Err(format!(
        "{} is not a loopback address, and runs describe your hosts. From another machine use: \
         ssh -L {port}:127.0.0.1:{port} HOST",
        address.ip()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_this_machine_alone_are_served() {
        let ok = |text: &str| parse_address(text).map(|address| address.to_string());
        assert_eq!(ok("8080").as_deref(), Ok("127.0.0.1:8080"));
        assert_eq!(ok("127.3.2.1:1").as_deref(), Ok("127.3.2.1:1"));
        assert_eq!(ok("[::1]:0").as_deref(), Ok("[::1]:0"));
        for text in ["0.0.0.0:80", "[::]:80", "192.0.2.1:80"] {
            let why = parse_address(text).expect_err("anybody could reach it");
            assert!(
                why.contains("not a loopback") && why.contains("ssh -L"),
                "{why}"
            );
        }
        for text in ["", "localhost", "127.0.0.1", "70000", "RUN"] {
            assert!(parse_address(text).is_err(), "{text}");
        }
    }
}
