//! Results in a file, one JSON object a line, so that a run of an hour can be interrupted and continued.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::Trouble;

/// The results so far, and the file that gets each further one.
#[derive(Debug)]
pub struct Results<T> {
    rows: Vec<T>,
    file: Option<File>,
}

impl<T: Serialize + DeserializeOwned> Results<T> {
    /// Reads the file, if there is one; without a path nothing is kept.
    ///
    /// # Errors
    ///
    /// The file that cannot be used, or its line that is no result.
    pub fn open(path: Option<&Path>) -> Result<Self, Trouble> {
        let Some(path) = path else {
            return Ok(Self {
                rows: Vec::new(),
                file: None,
            });
        };
        let name = path.display();
        let failed = |error: io::Error| Trouble(format!("use {name}: {error}"));
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(failed)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        // A run that was killed leaves the start of a line.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).map_err(failed)?;
        let rows = rows(&text[..whole])
            .map_err(|(line, error)| Trouble(format!("read line {line} of {name}: {error}")))?;
        Ok(Self {
            rows,
            file: Some(file),
        })
    }

    /// The results so far.
    pub fn rows(&self) -> &[T] {
        &self.rows
    }

    /// Adds a result.
    ///
    /// # Errors
    ///
    /// Why the file was not written.
    pub fn push(&mut self, row: T) -> Result<(), Trouble> {
        if let Some(file) = &mut self.file {
            let mut line = serde_json::to_vec(&row)
                .map_err(|error| Trouble(format!("write a result: {error}")))?;
            line.push(b'\n');
            file.write_all(&line)
                .map_err(|error| Trouble(format!("write a result: {error}")))?;
        }
        self.rows.push(row);
        Ok(())
    }
}

fn rows<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, (usize, serde_json::Error)> {
    let lines = (1..).zip(text.lines());
    lines
        .map(|(line, text)| serde_json::from_str(text).map_err(|error| (line, error)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_goes_on_after_the_last_whole_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("results");
        std::fs::write(&path, "1\n2\n3").expect("a file");
        let mut results = Results::<u32>::open(Some(&path)).expect("two rows");
        assert_eq!(results.rows(), [1, 2]);
        results.push(4).expect("written");
        assert_eq!(results.rows(), [1, 2, 4]);
        drop(results);
        let text = std::fs::read_to_string(&path).expect("a file");
        assert_eq!(text, "1\n2\n4\n");
    }

    #[test]
    fn a_line_that_is_no_result_is_named() {
        let bad = rows::<u32>("1\nx\n").expect_err("not a number");
        assert_eq!(bad.0, 2);
    }
}
