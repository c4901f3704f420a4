//! `measure diffusion`: a table (real, user and sys of each end, both directions' rate), whether both
//! ends hold the same grid, what the work costs, and pictures.

mod overhead;

use std::fs;
use std::path::Path as FilePath;

use linerate_analysis::record::Measurement;
use linerate_analysis::trial::diffusion::{EndFigures, figures, of, pictures, repetitions};
use linerate_analysis::trial::figure::Figures;
use linerate_analysis::trial::operations::real;
use linerate_host::regular_file;
use linerate_model::ceiling::PathCeilings;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::plan::End;
use linerate_model::sample::{Checksum, Flag, GridPicture, Sample, Vectors};
use linerate_model::units::Bytes;
use linerate_model::workload::{TrialSpec, Workload};
use linerate_report::metrics::peer_label;
use linerate_report::picture::{self, GridFigures};
use linerate_runtime::cli::MeasureDiffusion;
use linerate_runtime::console::clock::now_unix_s;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::random::fresh_token;
use linerate_runtime::endpoint::ends::Ends;
use linerate_runtime::endpoint::trial::open_path;
pub(super) use overhead::Overhead;
use serde::Serialize;

use super::keep::{self, Between};
use super::live::confirm_early_end;
use super::measured::Measured;
use super::require::Requirements;
use super::{EarlyEnd, OutputOptions, Trials, announced, show, text};
use crate::measure::trial_spec::{self, placed};

/// Carries it out.
pub(super) fn run(
    args: &MeasureDiffusion,
    state: &FilePath,
    output: OutputOptions<'_>,
) -> Outcome<()> {
    let say = output.say;
    let requirements = Requirements::new(&args.until, output.as_junit)?;
    // Contradicting options are reported before the peer is contacted.
    let spec = trial_spec::diffusion(args)?;
    let interrupt = Interrupt::listen()?;
    let mut path = open_path(&args.peer, state, &interrupt, say)?;
    let spec = placed(&args.trial, spec, path.view())?;
    let what = announced(&path, &spec, &args.peer);
    let mut interval = args.until.interval;
    let began_unix_s = now_unix_s();
    let mut idle = None;
    let (sample, overhead, repeats) = if let Some(pairs) = args.overhead {
        say.note(&format!(
            "{what} per trial, {pairs} trials with and {pairs} without the computation; Ctrl-C \
             ends it early"
        ));
        confirm_early_end(&interrupt, say, None);
        let trial = |spec: &TrialSpec, number| {
            say.note(&format!("trial {number} of {}", 2 * pairs));
            let sample = path.run(spec, fresh_token()?)?;
            match &spec.workload {
                Workload::Diffusion(asked) if !asked.work => keep_idle(&mut idle, &sample),
                _ => requirements.see(&sample, PathCeilings::default)?,
            }
            Ok(sample)
        };
        let ends_early = || interrupt.is_ending_early();
        let measured = overhead::measure(&spec, pairs, args.seed, trial, ends_early);
        // The second Ctrl-C: no result.
        interrupt.check()?;
        let (sample, overhead) = measured?;
        (sample, overhead, None)
    } else {
        say.note(&format!("{what}; Ctrl-C ends it early"));
        let until = &args.until;
        let trials = Trials::make(&mut path, &spec, until, &requirements, &interrupt, output)?;
        interval = trials.interval;
        (trials.sample, None, trials.repeats)
    };
    let end = match &overhead {
        Some(overhead) if interrupt.is_ending_early() => EarlyEnd::at(overhead.counted()),
        _ => EarlyEnd::of(&interrupt, &sample, repeats.as_ref()),
    };
    let measured = Measured {
        overhead,
        ..Measured::over_path(&path, sample, None).every(interval, &args.until)
    };
    if let Some(folder) = &args.pictures {
        write_pictures(folder, pictures(&measured.sample))?;
        say.note(&format!("images written to {}", folder.display()));
    }
    let shown = show(
        &measured,
        repeats.as_ref(),
        &requirements,
        &end,
        &peer_label(&args.peer.peer),
        output,
    );
    let label = idle.is_some().then(|| "with the computation".to_owned());
    let worked = keep::measurement(label, measured, requirements.into_figures());
    let results = std::iter::once(worked).chain(idle).collect();
    let between = || Between::ends(&path, &args.peer, None);
    output.keep.keep(began_unix_s, between, results, &[]);
    path.peer.leave_after_result(say)?;
    shown
}

/// Keeps a whole trial without the computation.
fn keep_idle(idle: &mut Option<Measurement>, sample: &Sample) {
    if sample.flags.contains(&Flag::CutShort) {
        return;
    }
    if let Some(result) = idle {
        result.figures.add(sample);
        return;
    }
    let label = Some("without the computation".to_owned());
    *idle = Some(keep::of_sample(
        label,
        sample.clone(),
        Figures::default(),
        None,
        None,
    ));
}

/// Writes pictures of the grid into a folder.
fn write_pictures(folder: &FilePath, pictures: &[GridPicture]) -> Outcome<()> {
    fs::create_dir_all(folder)
        .map_err(|error| Stop::io(format!("make {}", folder.display()), error))?;
    for (name, text) in picture::files(pictures) {
        let path = folder.join(name);
        regular_file::replace(&path, 0o666, text.as_bytes())
            .map_err(|error| Stop::io(format!("write {}", path.display()), error))?;
    }
    Ok(())
}

/// Ends as any changed byte does where the two ends do not hold the same grid.
pub(super) fn judge(sample: &Sample) -> Outcome<()> {
    if !sample.flags.contains(&Flag::GridsDiffer) {
        return Ok(());
    }
    Err(Stop::new(
        Code::FailedRestored,
        "the grids of the two ends differ: memory, a device or the path corrupts data",
    )
    .hint("`--data-check` shows the first wrong byte"))
}

/// For `diffusion`: the grid, the times of both ends, and the checksums.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct DiffusionFigures {
    /// The size of the buffer that is transferred to the peer and back.
    buffer_bytes: Bytes,
    /// The side of the grid, in cells of 8 bytes.
    side: usize,
    /// How often every pair's grid was transferred to the peer and back.
    repetitions: Option<u64>,
    pairs: u32,
    /// Whether a step was computed each time.
    work: bool,
    /// From the start to the end of the last pair, at the requesting end.
    real_s: f64,
    /// 10^9 bytes per second: 2 x buffer_bytes x repetitions x pairs / real_s.
    aggregate_gb_per_s: Option<f64>,
    local: EndWork,
    remote: EndWork,
    /// Whether the two ends of every pair held the same bytes at the end; null if one does not report it.
    same_grid: Option<bool>,
    /// With `--pictures`: the first grid after some repetitions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pictures: Vec<GridFigures>,
}

impl DiffusionFigures {
    pub(super) fn of(sample: &Sample) -> Option<Self> {
        let (diffusion, found) = (of(sample)?, figures(sample)?);
        Some(Self {
            buffer_bytes: diffusion.bytes,
            side: diffusion.side(),
            repetitions: repetitions(sample),
            pairs: sample.spec.flows,
            work: diffusion.work,
            real_s: found.real_s,
            aggregate_gb_per_s: found.rate().map(|rate| rate.as_f64() / 8e9),
            local: EndWork::of(&found.local),
            remote: EndWork::of(&found.remote),
            same_grid: found.is_same(),
            pictures: pictures(sample).iter().map(GridFigures::of).collect(),
        })
    }
}

/// The times of one end.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct EndWork {
    /// From the start to the end of this end's last pair.
    real_s: f64,
    /// Over all of its data threads.
    user_s: f64,
    /// Over all of its data threads.
    system_s: f64,
    /// Time spent on the grids themselves: the boundary at the requesting end, the steps at the other.
    work_s: f64,
    /// The instruction set of the steps, at the end that computes them.
    vectors: Option<Vectors>,
    /// Of each pair's buffer as last held by this end.
    checksums: Vec<Checksum>,
}

impl EndWork {
    fn of(end: &EndFigures) -> Self {
        Self {
            real_s: end.real_s,
            user_s: end.user_s,
            system_s: end.system_s,
            work_s: end.work_s,
            vectors: end.vectors,
            checksums: end.checksums.iter().map(|(_, sum)| *sum).collect(),
        }
    }
}

/// The lines for a person.
pub(super) fn text(lines: &mut Vec<String>, measured: &Measured<'_>) {
    let sample = &measured.sample;
    let (Some(diffusion), Some(found)) = (of(sample), figures(sample)) else {
        return;
    };
    let repetitions = repetitions(sample).unwrap_or(0);
    let side = diffusion.side();
    lines.push(format!(
        "grid      {side} x {side} doubles in {}, {repetitions} round trips, {}",
        diffusion.bytes,
        if diffusion.work {
            "one step each"
        } else {
            "no computation"
        },
    ));
    let pairs = match sample.spec.flows {
        1 => String::new(),
        pairs => format!(", sum of {pairs} pairs; real: until the last ended"),
    };
    lines.push(format!(
        "          {:>9} {:>9} {:>9} {:>9}   (seconds; compute: on the grid itself{pairs})",
        "real", "user", "sys", "compute"
    ));
    let rows = [(End::Local, &found.local), (End::Remote, &found.remote)];
    for (name, end) in rows {
        let vectors = end.vectors.map(|vectors| format!("   ({vectors})"));
        lines.push(format!(
            "{:<9} {:>9.3} {:>9.3} {:>9.3} {:>9.3}{}",
            name.to_string(),
            end.real_s,
            end.user_s,
            end.system_s,
            end.work_s,
            vectors.unwrap_or_default(),
        ));
    }
    let rate = found.rate().map_or_else(
        || "unknown".to_owned(),
        |rate| format!("{:.3} GB/s", rate.as_f64() / 8e9),
    );
    lines.push(format!(
        "aggregate {rate}   (2 x {:.3} GB of all pairs / {:.3} s)",
        real(found.bytes) / 2e9,
        found.real_s
    ));
    lines.push(match (found.is_same(), found.local.checksums.first()) {
        (Some(true), Some((_, checksum))) => {
            format!("same grid yes, on both ends of every pair: {checksum}")
        }
        (Some(true) | None, _) => "same grid unknown: one end does not report it".to_owned(),
        (Some(false), _) => "same grid NO: the grids of a pair differ".to_owned(),
    });
    if let Some(overhead) = &measured.overhead {
        overhead.text(lines);
    }
}

/// A time in seconds, with the unit that suits it; negative ones too.
fn seconds(value: f64) -> String {
    let sign = if value < 0.0 { "-" } else { "" };
    format!("{sign}{}", text::time(value.abs() * 1e9))
}

#[cfg(test)]
mod tests;
