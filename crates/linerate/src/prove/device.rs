//! `linerate prove DEVICE`: the fixes that the rules suggest for a block device of this host, such as those of
//! `blk-mq-config`, tested with reads of the device as the workload.

use std::path::Path as FilePath;

use linerate_analysis::record::Header;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::plan::End;
use linerate_model::units::Nanoseconds;
use linerate_report::metrics::MeasuredPath;
use linerate_runtime::cli::place_word::Where;
use linerate_runtime::cli::{Placing, ProveArgs, WeighArgs};
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::random::fresh_seed;
use linerate_runtime::console::say::Say;
use linerate_runtime::endpoint::ends::Ends;
use linerate_runtime::endpoint::recover::recover_first;
use linerate_store::Run;

use super::session::{Session, Source};
use super::{announce, check_recorded, folder_of, header, intent, options, show_and_publish};
use crate::measure::block::ends::{BLOCK_DEVICE, BlockOptions, DeviceEnds};
use crate::metrics::MetricsOutput;

/// The duration of a trial, as of a stream.
const TIME: Nanoseconds = Nanoseconds::from_millis(1_000);

/// Carries it out.
pub(super) fn prove(
    args: &ProveArgs,
    device: &FilePath,
    state: &FilePath,
    metrics: &MetricsOutput<'_>,
    say: &Say,
) -> Outcome<()> {
    let weigh = &args.weigh;
    check_recorded(weigh)?;
    let place = place(weigh)?;
    let asked = args.from.as_deref().map(intent::read).transpose()?;
    let seed = weigh.seed.map_or_else(fresh_seed, Ok)?;
    let interrupt = Interrupt::listen()?;
    recover_first(state, say)?;
    let name = device.display().to_string();
    let disrupts = weigh.allow_management_disruption;
    let mut ends = DeviceEnds::open(&name, disrupts, state, &interrupt)?;
    let trial = BlockOptions {
        trial: &args.block,
        place: place.as_ref(),
        memory: weigh.stream.trial.memory.as_ref(),
        time: weigh.stream.trial.time.unwrap_or(TIME),
    };
    let spec = trial.trial(&name, ends.host(End::Local))?;
    let source = match asked {
        None => Source::Rules,
        Some(asked) => Source::Given(intent::given(asked, &ends)?),
    };
    let header = Header {
        local_nic: ends.nic(End::Local).clone(),
        ..header(weigh, BLOCK_DEVICE, &name, seed)
    };
    let workload = spec.workload.name();
    let options = options(weigh, spec, seed, source);
    let folder = folder_of("prove", weigh, &header, state);
    let mut run = Run::create(&folder, &header)?;
    announce("prove", &header, (&options, &folder), say);
    Session::new(&mut ends, &mut run, options, say).prove()?;
    let measured = MeasuredPath {
        peer: BLOCK_DEVICE,
        nic: Some(header.local_nic.as_str()),
    };
    show_and_publish(&folder, (workload, &measured), metrics, say)
}

/// Where the jobs run. An option that is only for a path is refused.
fn place(args: &WeighArgs) -> Outcome<Option<Where>> {
    let trial = &args.stream.trial;
    let of_path = [
        ("--flows", trial.flows != 1),
        ("--reverse", trial.reverse),
        ("--bidir", trial.bidir),
        ("--omit", trial.omit.is_some()),
        ("--threads", trial.threads.is_some()),
        ("--socket-buffer", trial.socket_buffer.is_some()),
        ("--cc", trial.cc.is_some()),
        ("--mss", trial.mss.is_some()),
        ("--pacing", trial.pacing.is_some()),
        ("--wait", trial.wait.is_some()),
        ("--perf", trial.perf.is_some()),
        ("--rr", args.rr),
        ("--push", args.reach.push),
        ("--address", args.reach.address.is_some()),
        ("--port", args.port.is_some()),
    ];
    if let Some((option, _)) = of_path.iter().find(|(_, is_set)| *is_set) {
        let why = format!("`{option}` does not apply to a block device");
        return Err(Stop::new(Code::Usage, why));
    }
    match &trial.place {
        None => Ok(None),
        Some(Placing::At(place)) => Ok(Some(place.clone())),
        Some(Placing::Roles(..)) => {
            let why = "`--place` of a block device is near, far, node:N or cpu:LIST";
            Err(Stop::new(Code::Usage, why))
        }
    }
}
