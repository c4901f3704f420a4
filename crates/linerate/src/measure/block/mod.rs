//! `linerate measure block`: IOPS, latency and CPU cost of one block device of this host, and what limits them.
//!
//! The device is found and opened by `host::block_device`, the trial runs in `traffic::block`, and the limit is named in
//! `model::block::limit`. Nothing is written unless `--write` names the device again.

pub(crate) mod document;
pub(crate) mod ends;
mod observe;
mod place;
mod text;

use std::os::fd::{AsFd, OwnedFd};

use linerate_analysis::text::words::seconds_in_words;
use linerate_host::block_device::{self, Device, DeviceError};
use linerate_host::root::{HostRoot, LiveHost};
use linerate_model::block::limit::DepthProbe;
use linerate_model::block::{Access, Area, BlockSample, BlockSpec, DEPTH_MAX};
use linerate_model::ceiling::PathCeilings;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::{BlockDevice, Host};
use linerate_model::protocol::Failure;
use linerate_model::sample::{Flag, Sample, SideSample};
use linerate_model::units::Nanoseconds;
use linerate_model::workload::TrialSpec;
use linerate_runtime::cli::{BlockTrialArgs, MeasureBlock, UntilArgs};
use linerate_runtime::console::clock::now_unix_s;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::random::fresh_seed;
use linerate_runtime::console::say::Format;
use linerate_runtime::endpoint::host_source::host_from;
use linerate_traffic::TrafficError;
use linerate_traffic::block::{measure, recorded};

use self::document::BlockDocument;
use self::ends::BLOCK_DEVICE;
use self::observe::{Observed, Observer};
use super::keep::{Between, of_sample};
use super::live::confirm_early_end;
use super::repeat::{Repeats, until_certain};
use super::require::{Requirements, junit};
use super::text::count;
use super::{EarlyEnd, OutputOptions, certain};

/// Pairs of short trials that show whether a greater depth helps.
const PROBE_PAIRS: u32 = 3;
/// Each takes this part of a trial's time, ...
const PROBE_PART: u64 = 20;
/// ... but not less or more than this.
const PROBE_MIN: Nanoseconds = Nanoseconds::from_millis(50);
const PROBE_MAX: Nanoseconds = Nanoseconds::from_millis(500);

/// A trial and what the host showed meanwhile.
#[derive(Debug)]
struct Trial {
    sample: BlockSample,
    observed: Observed,
}

impl Trial {
    /// As other workloads record theirs, for requirements and for the store.
    fn as_sample(&self, device: &Device, spec: &BlockSpec) -> Sample {
        let mut local = recorded(&self.sample, spec.block);
        local.cpu.machine = self.observed.cpus.clone();
        let is_short = self.sample.cut_short;
        Sample {
            spec: TrialSpec::of_block(&device.path.display().to_string(), spec),
            local,
            remote: SideSample::unheard(BLOCK_DEVICE),
            shared_kernel: false,
            flags: is_short.then_some(Flag::CutShort).into_iter().collect(),
        }
    }
}

/// Everything about one measurement.
#[derive(Debug)]
struct Measured<'a> {
    device: &'a Device,
    host: &'a Host,
    /// What the host's description has of the disk; none if it is not in it.
    facts: Option<&'a BlockDevice>,
    spec: &'a BlockSpec,
    trial: Trial,
    repeats: Option<Repeats>,
    probe: Option<DepthProbe>,
    interrupted: bool,
}

/// What trials run on.
struct Bench<'a> {
    root: &'a HostRoot,
    device: &'a Device,
    opened: OwnedFd,
    interrupt: &'a Interrupt,
}

/// Carries it out.
pub(super) fn run(args: &MeasureBlock, output: OutputOptions<'_>) -> Outcome<()> {
    check_output(output)?;
    let until = until(args);
    let requirements = Requirements::new(&until, output.as_junit)?;
    let say = output.say;
    let live = LiveHost::open().map_err(|error| Stop::io("open the root directory", error))?;
    let root = live.root();
    let device = block_device::find(root, &args.device).map_err(|error| stop_of(&error))?;
    let access = access(args, root, &device)?;
    check_polled(&args.trial, root, &device)?;
    let host = host_from(None)?;
    let facts = host.block.iter().find(|one| one.name == device.disk);
    let mut spec = spec(args, access, (&host, facts), (root, &device))?;
    check_spec(&spec, &device)?;
    let (opened, area) = opened(root, &device, access).map_err(|error| stop_of(&error))?;
    spec.area = area;
    check_spec(&spec, &device)?;
    let interrupt = Interrupt::listen()?;
    confirm_early_end(&interrupt, say, None);
    say.note(&announced(&device, &spec));
    let bench = Bench {
        root,
        device: &device,
        opened,
        interrupt: &interrupt,
    };
    let began_unix_s = now_unix_s();
    let (trial, repeats) = until_certain(
        &until,
        spec.duration_ns,
        |_| {
            let trial = bench.trial(&spec)?;
            requirements.see(&trial.as_sample(&device, &spec), PathCeilings::default)?;
            Ok(trial)
        },
        |trial| trial.sample.ops_per_s(),
        (
            || interrupt.is_ending_early(),
            || requirements.are_decided(),
        ),
    )?;
    let interrupted = interrupt.is_ending_early();
    let mut measured = Measured {
        device: &device,
        host: &host,
        facts,
        spec: &spec,
        trial,
        repeats,
        probe: None,
        interrupted,
    };
    if !interrupted {
        measured.probe = bench.probe(&spec)?;
    }
    let mut document = document::document(&measured);
    document.requirements = requirements.judge(interrupted);
    let shown = show(&measured, &document, output);
    let limit = document.limit.what.to_string();
    let sample = measured.trial.as_sample(&device, &spec);
    let result = of_sample(None, sample, requirements.into_figures(), Some(limit), None);
    let between = || Between::device(&device, &host);
    output.keep.keep(began_unix_s, between, vec![result], &[]);
    shown
}

/// Prints the result; the exit code reports whether it is as certain as requested, and as required.
fn show(
    measured: &Measured<'_>,
    document: &BlockDocument<'_>,
    output: OutputOptions<'_>,
) -> Outcome<()> {
    let say = output.say;
    match say.format {
        _ if output.as_junit => {
            say.data(&junit("linerate measure block", &document.requirements))?;
        }
        Format::Json => say.json(document)?,
        _ => {
            let lines = text::text(measured, document, output.verbose);
            say.styled_lines(&lines, super::summary::style)?;
        }
    }
    let end = if measured.interrupted {
        let of_what = match &measured.repeats {
            Some(repeats) => repeats.counted(),
            None => format!("{:.1} s", measured.trial.sample.elapsed_ns.as_secs_f64()),
        };
        EarlyEnd::at(of_what)
    } else {
        EarlyEnd(None)
    };
    end.or(say, || {
        certain(measured.repeats.as_ref(), &document.requirements)
    })
}

fn check_output(output: OutputOptions<'_>) -> Outcome<()> {
    let other = [
        (
            "--format openmetrics",
            output.say.format == Format::OpenMetrics,
        ),
        ("--metrics-file", output.metrics.has_file()),
    ];
    match other.iter().find(|(_, is_set)| *is_set) {
        Some((option, _)) => {
            let why = format!("`measure block` does not support `{option}`");
            Err(Stop::new(Code::Usage, why))
        }
        None => Ok(()),
    }
}

/// What repeats the trial, and decides.
fn until(args: &MeasureBlock) -> UntilArgs {
    UntilArgs {
        until_ci: args.until_ci,
        max_time: args.max_time,
        require: args.require.clone(),
        ..UntilArgs::once()
    }
}

fn check_spec(spec: &BlockSpec, device: &Device) -> Outcome<()> {
    let checked = spec.check(device.logical_block);
    checked.map_err(|error| {
        let why = format!("cannot measure {}: {error}", device.path.display());
        Stop::new(Code::BadInput, why)
    })
}

/// Refuses `--poll` on a device without polled queues.
fn check_polled(trial: &BlockTrialArgs, root: &HostRoot, device: &Device) -> Outcome<()> {
    let why = trial.poll.then(|| device.why_not_polled(root)).flatten();
    why.map_or(Ok(()), |why| {
        let why = format!("cannot poll {}: {why}", device.path.display());
        Err(Stop::new(Code::NotSupported, why).hint("leave out `--poll`"))
    })
}

/// Reads, unless `--write` names the same device.
fn access(args: &MeasureBlock, root: &HostRoot, device: &Device) -> Outcome<Access> {
    let Some(named) = &args.write else {
        return Ok(Access::Read);
    };
    let again = block_device::find(root, named).map_err(|error| stop_of(&error))?;
    if again.is(device) {
        return Ok(Access::Write);
    }
    let why = format!(
        "`--write` names {}, which is not {}: nothing was written",
        again.path.display(),
        device.path.display()
    );
    Err(Stop::new(Code::Usage, why).hint("name the device that is to be overwritten twice"))
}

/// The request, with the whole device as its area.
fn spec(
    args: &MeasureBlock,
    access: Access,
    (host, facts): (&Host, Option<&BlockDevice>),
    (root, device): (&HostRoot, &Device),
) -> Outcome<BlockSpec> {
    let site = place::Site::of(host, facts, device, root);
    Ok(BlockSpec {
        access,
        pattern: args.trial.pattern.into(),
        block: args.trial.block_size,
        depth: args.trial.depth,
        polled: args.trial.poll,
        seed: args.seed.map_or_else(fresh_seed, Ok)?,
        duration_ns: args.time,
        area: device.whole(),
        jobs: site.jobs(args.trial.jobs, args.place.as_ref(), args.trial.poll)?,
        memory: site.memory(args.memory.as_ref())?,
    })
}

fn opened(
    root: &HostRoot,
    device: &Device,
    access: Access,
) -> Result<(OwnedFd, Area), DeviceError> {
    match access {
        Access::Read => Ok((device.open_to_read()?, device.whole())),
        Access::Write => device.open_to_write(root),
    }
}

impl Bench<'_> {
    fn trial(&self, spec: &BlockSpec) -> Outcome<Trial> {
        let abort = self.interrupt.abort();
        let end = abort.clone();
        let running = self.interrupt.during_trial(move || end.end_early());
        let mut observer = Observer::new(self.root, self.device);
        let logical = self.device.logical_block;
        let sample = measure(self.opened.as_fd(), spec, logical, abort, &mut |moment| {
            observer.at(moment);
        });
        drop(running);
        let sample = sample.map_err(|error| match error {
            TrafficError::Aborted => Stop::interrupted(),
            error => Stop::from(Failure::from(&error)),
        })?;
        Ok(Trial {
            observed: observer.observed(),
            sample,
        })
    }

    /// Short trials at the depth and at twice the depth, in turn; none if a ring or its buffer cannot have twice.
    fn probe(&self, spec: &BlockSpec) -> Outcome<Option<DepthProbe>> {
        let time = spec.duration_ns.as_u64() / PROBE_PART;
        let same = BlockSpec {
            duration_ns: Nanoseconds::new(time).clamp(PROBE_MIN, PROBE_MAX),
            ..spec.clone()
        };
        let deeper = BlockSpec {
            depth: spec.depth.saturating_mul(2),
            ..same.clone()
        };
        if deeper.depth > DEPTH_MAX || deeper.check(self.device.logical_block).is_err() {
            return Ok(None);
        }
        let mut ratios = Vec::new();
        for pair in 0..PROBE_PAIRS {
            // The order alternates, so that a drift favors neither.
            let order = if pair % 2 == 0 {
                [&same, &deeper]
            } else {
                [&deeper, &same]
            };
            let mut rates = Vec::new();
            for one in order {
                let trial = self.trial(one)?;
                if self.interrupt.is_ending_early() {
                    return Ok(None);
                }
                rates.push((one.depth, trial.sample.ops_per_s()));
            }
            let of = |depth: u32| rates.iter().find(|(own, _)| *own == depth)?.1;
            if let Some((base, more)) = of(same.depth).zip(of(deeper.depth))
                && base > 0.0
            {
                ratios.push(more / base);
            }
        }
        Ok(Some(DepthProbe {
            depth: deeper.depth,
            ratios,
        }))
    }
}

fn announced(device: &Device, spec: &BlockSpec) -> String {
    format!(
        "measuring {} {} of {} on {}, depth {}, {}, seed {}, for {}; Ctrl-C ends it early",
        spec.pattern,
        spec.access.plural(),
        spec.block,
        device.path.display(),
        spec.depth,
        count(spec.jobs.len() as u64, "job"),
        spec.seed,
        seconds_in_words(spec.duration_ns)
    )
}

/// The exit code and the hint of each error.
fn stop_of(error: &DeviceError) -> Stop {
    let (code, hint) = match error {
        DeviceError::Denied(_) => (
            Code::PermissionMissing,
            "run as root, or as a member of the device's group",
        ),
        DeviceError::Missing(_) | DeviceError::NotBlock { .. } => {
            (Code::BadInput, "`linerate map` lists the block devices")
        }
        DeviceError::NotBlank { .. } => (
            Code::BadInput,
            "`blkdiscard --zeroout DEVICE` erases all of its data, if nobody needs it",
        ),
        DeviceError::InUse { .. } | DeviceError::Busy(_) => {
            (Code::BadInput, "choose a device that nothing uses")
        }
        DeviceError::NoDirect(_) => (Code::NotSupported, "measure the device below it"),
        _ => return Stop::new(Code::BadInput, error.to_string()),
    };
    Stop::new(code, error.to_string()).hint(hint)
}

#[cfg(test)]
mod tests;
