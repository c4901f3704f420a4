//! An experiment on block devices of this host: `lab run NAME DEVICE`. One device is that of the experiment, others may be
//! levels of a factor (`--path NAME=DEVICE`), such as the same disk with one and with many hardware queues.

use std::collections::BTreeSet;
use std::path::Path as FilePath;

use linerate_analysis::experiment::resolve::Resolver;
use linerate_analysis::record::{Header, SCHEMA};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::lab::{Experiment, LevelTable};
use linerate_model::plan::End;
use linerate_model::workload::TrialSpec;
use linerate_runtime::cli::{LabRunArgs, MeasureAction, Target};
use linerate_runtime::console::clock::now_unix_s;
use linerate_runtime::console::command_line::command_line;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::random::fresh_seed;
use linerate_runtime::console::say::Say;
use linerate_runtime::endpoint::ends::Ends;
use linerate_runtime::endpoint::recover::recover_first;
use linerate_store::earlier::missing;

use super::trials::action;
use super::{PAGE, levels, run_new, show};
use crate::measure::block::ends::{BLOCK_DEVICE, BlockOptions, DeviceEnds};

/// Runs it from its start.
pub(super) fn begin(
    args: &LabRunArgs,
    mut experiment: Experiment,
    interrupt: &Interrupt,
    state: &FilePath,
    say: &Say,
) -> Outcome<()> {
    let device = device_of(args, &experiment)?;
    experiment.device = Some(device.clone());
    let seed = args.seed.map_or_else(fresh_seed, Ok)?;
    let earlier = missing(&experiment, &[])?;
    recover_first(state, say)?;
    let disrupts = args.allow_management_disruption;
    let (mut ends, resolver) = open(experiment, disrupts, interrupt, state)?;
    let header = Header {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        created_unix_s: now_unix_s(),
        command: command_line(),
        seed,
        trials: resolver.experiment.design.repeats,
        peer: BLOCK_DEVICE.to_owned(),
        local_nic: ends.nic(End::Local).clone(),
        remote_nic: ends.nic(End::Remote).clone(),
        address: device,
        copy_bit_per_s: None,
    };
    let run = run_new((&resolver, &header), earlier, &mut ends, args, state, say)?;
    run.map_or(Ok(()), |folder| {
        show(&folder, Some(&folder.join(PAGE)), say)
    })
}

/// The device of the command line, of the experiment, or the first that is a level.
fn device_of(args: &LabRunArgs, experiment: &Experiment) -> Outcome<String> {
    let name = &args.experiment;
    match &args.target {
        Some(Target::Device(device)) => return Ok(device.display().to_string()),
        Some(Target::Peer(peer)) => {
            let why = format!("{name} reads a block device of this host, not the peer {peer}");
            return Err(Stop::new(Code::Usage, why).hint(hint(name)));
        }
        None => {}
    }
    let first = || levels(experiment).find_map(|level| level.device);
    experiment.device.clone().or_else(first).ok_or_else(|| {
        let why = format!("{name} reads a block device, and none is given");
        Stop::new(Code::Usage, why).hint(hint(name))
    })
}

fn hint(experiment: &str) -> String {
    format!("`linerate lab run {experiment} /dev/nvme0n1`; `linerate map` lists the block devices")
}

/// The devices of an experiment, opened. One that is a level and cannot be opened is an unavailable level.
pub(super) fn open(
    experiment: Experiment,
    includes_way_in: bool,
    interrupt: &Interrupt,
    state: &FilePath,
) -> Outcome<(DeviceEnds, Resolver)> {
    let device = experiment.device.clone().unwrap_or_default();
    let mut ends = DeviceEnds::open(&device, includes_way_in, state, interrupt)?;
    let others = levels(&experiment).filter_map(|level| level.device);
    let all: BTreeSet<String> = others.chain([device]).collect();
    let mut resolver = Resolver::new(experiment, ends.view());
    for device in all {
        let disk = ends.add(&device);
        resolver = resolver.with_disk(&device, disk.as_deref());
    }
    Ok((ends, resolver))
}

/// The trial of a combination.
pub(super) fn trial(resolver: &Resolver, at: &LevelTable) -> Outcome<TrialSpec> {
    let workload = at.workload.as_deref().unwrap_or_default();
    let MeasureAction::Block(args) = action(workload, &at.options)? else {
        let why = format!("`{workload}` is not measured on a block device");
        return Err(Stop::new(Code::Bug, why));
    };
    let options = BlockOptions {
        trial: &args.trial,
        place: args.place.as_ref(),
        memory: args.memory.as_ref(),
        time: args.time,
    };
    let device = at.device.as_deref().unwrap_or_default();
    options.trial(device, resolver.path(None)?.local)
}
