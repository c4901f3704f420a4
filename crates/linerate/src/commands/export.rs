//! `linerate export`: the trials of stored runs as one flat table.

use std::path::{Path, PathBuf};

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_runtime::cli::ExportArgs;
use linerate_runtime::console::say::{Format, Say};
use linerate_store::export::{Export, TableFormat};
use linerate_store::named::find;

/// Carries out `export`.
pub(crate) fn run(args: &ExportArgs, state: &Path, say: &Say) -> Outcome<()> {
    // One that is not found is named with those that cannot be read, and the others are written.
    let found = |run: &PathBuf| {
        let found = find(&state.join("runs"), run.as_os_str(), None);
        found.unwrap_or_else(|_| run.clone())
    };
    let found: Vec<PathBuf> = args.runs.iter().map(found).collect();
    let format = format_of(args, say.format);
    let note = |words: &str| say.note(words);
    let export = Export::of(&found, &note);
    let unread = match &args.out {
        None if format == TableFormat::Parquet => {
            let stop = Stop::new(Code::Usage, "cannot print a Parquet table: it is binary");
            return Err(stop.hint("write it to a file with `--out`"));
        }
        None => say
            .stream(|out| export.print(format, out))?
            .unwrap_or_default(),
        Some(file) => export.write_file(format, file)?,
    };
    if unread.is_empty() {
        return Ok(());
    }
    let why = format!(
        "{} of {} runs cannot be read and are missing from the table:\n  {}",
        unread.len(),
        export.runs(),
        unread.join("\n  ")
    );
    Err(Stop::new(Code::BadInput, why))
}

/// The requested format, else that of the file name's extension.
fn format_of(args: &ExportArgs, printed: Format) -> TableFormat {
    let by_name = || TableFormat::of_name(args.out.as_deref()?);
    let usual = match printed {
        Format::Json => TableFormat::Jsonl,
        Format::Text | Format::OpenMetrics => TableFormat::Csv,
    };
    args.to
        .map(TableFormat::from)
        .or_else(by_name)
        .unwrap_or(usual)
}

#[cfg(test)]
mod tests {
    use linerate_runtime::cli::TableFormatArg;
    use linerate_store::made_up;

    use super::*;

    #[test]
    fn the_format_is_the_requested_one_else_that_of_the_file_s_name_else_that_of_the_output() {
        use TableFormat::{Csv, Jsonl, Parquet};
        let format = |to, out: Option<&str>, printed| {
            let args = ExportArgs {
                runs: Vec::new(),
                to,
                out: out.map(PathBuf::from),
            };
            format_of(&args, printed)
        };
        assert_eq!(format(None, None, Format::Text), Csv);
        assert_eq!(format(None, None, Format::Json), Jsonl);
        assert_eq!(format(None, Some("a.parquet"), Format::Text), Parquet);
        let asked = Some(TableFormatArg::Csv);
        assert_eq!(format(asked, Some("a.parquet"), Format::Json), Csv);
    }

    #[test]
    fn a_binary_table_is_not_printed_and_runs_that_cannot_be_read_are_named() {
        let place = tempfile::tempdir().expect("a folder");
        let runs = made_up::three_runs(place.path());
        let say = Say {
            format: Format::Text,
            quiet: true,
        };
        let mut args = ExportArgs {
            runs: vec![runs.join("a-prove-7")],
            to: Some(TableFormatArg::Parquet),
            out: None,
        };
        assert_eq!(
            run(&args, place.path(), &say).expect_err("no file").code,
            Code::Usage
        );
        args.out = Some(place.path().join("table"));
        run(&args, place.path(), &say).expect("a table");
        args.runs.push(place.path().join("no such run"));
        let stop = run(&args, place.path(), &say).expect_err("one cannot be read");
        assert_eq!(stop.code, Code::BadInput);
        assert!(stop.message.contains("1 of 2 runs"), "{stop}");
        assert!(stop.message.contains("no such run"), "{stop}");
    }
}
