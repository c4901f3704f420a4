//! One run of a program: its wall time and its peak memory.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::sys;

/// Why the comparison could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing}: {source}")]
pub(crate) struct BenchError {
    doing: String,
    source: io::Error,
}

impl BenchError {
    pub(crate) fn new(doing: &str, source: io::Error) -> Self {
        Self {
            doing: doing.to_owned(),
            source,
        }
    }
}

/// A program and its arguments.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) name: String,
    program: PathBuf,
    words: Vec<String>,
}

/// What one run took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) seconds: f64,
    pub(crate) peak_kib: u64,
}

impl Process {
    pub(crate) fn new(name: &str, program: &Path, words: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            program: program.to_owned(),
            words: words.iter().map(|word| (*word).to_owned()).collect(),
        }
    }

    fn run(&self) -> Result<Taken, BenchError> {
        let doing = |what: &str| format!("{what} {}", self.program.display());
        let begun = Instant::now();
        let child = Command::new(&self.program)
            .args(&self.words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|source| BenchError::new(&doing("start"), source))?;
        let (ended_well, peak_kib) =
            sys::wait(child).map_err(|source| BenchError::new(&doing("wait for"), source))?;
        if !ended_well {
            let source = io::Error::other(format!("it failed with {:?}", self.words));
            return Err(BenchError::new(&doing("run"), source));
        }
        Ok(Taken {
            seconds: begun.elapsed().as_secs_f64(),
            peak_kib,
        })
    }
}

/// `runs` runs of each, round by round, after one round that only warms caches; each round begins with
/// another program, so that none always follows the same one.
pub(crate) fn interleaved(all: &[Process], runs: u16) -> Result<Vec<Vec<Taken>>, BenchError> {
    for process in all {
        process.run()?;
    }
    let mut taken = vec![Vec::new(); all.len()];
    for round in 0..usize::from(runs) {
        for place in 0..all.len() {
            let at = (place + round) % all.len();
            taken[at].push(all[at].run()?);
        }
    }
    Ok(taken)
}
