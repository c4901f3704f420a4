//! The fault injector: a separate process, so that the prover cannot know what it did. It makes both hosts
//! healthy, tries faults in random order, and injects the first three that cost at least 10 %.

use std::fs;
use std::path::Path as FilePath;

use linerate_analysis::trial::{LEVEL, rate_of};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::ids::CpuSet;
use linerate_model::peer_address::PeerAddress;
use linerate_model::plan::End;
use linerate_model::units::{BitRate, Bytes, Nanoseconds};
use linerate_model::workload::{Direction, Placement, TrialSpec};
use linerate_runtime::cli::DemoArgs;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::random::fresh_token;
use linerate_runtime::console::say::Say;
use linerate_runtime::endpoint::ends::{Ends, apply_changes, keep_changes, undo_changes};
use linerate_runtime::endpoint::local::LocalEndpoint;
use linerate_runtime::endpoint::peer::Peer;
use linerate_runtime::endpoint::trial::PeerPath;
use linerate_stats::effect::paired_relative;
use linerate_stats::summary::median;
use linerate_stats::{Random, Seed};
use linerate_store as store;

use super::fault::{Fault, candidates, congestion_control};
use super::planted_file;

/// How many faults are injected.
const FAULTS: usize = 3;
/// What a fault must cost at least: twice what is announced, so that the prover's few pairs can see it.
const COST_MIN: f64 = 0.20;
/// The minimum number of pairs of trials that show a fault's cost, and the maximum that is tried.
const PAIRS_MIN: usize = 4;
const PAIRS_MAX: usize = 12;

/// Plants, and writes the rules' ids where only the conductor looks.
pub(super) fn run(args: &DemoArgs, state: &FilePath, folder: &FilePath, say: &Say) -> Outcome<()> {
    let interrupt = Interrupt::listen()?;
    let far = PeerAddress::Netns("far".to_owned());
    let peer = Peer::start(&far, false, state, &interrupt, Some(say))?;
    let mut path = PeerPath::open(LocalEndpoint::open(state)?, peer, None, &interrupt)?;
    make_healthy(&mut path)?;
    let healthy = spec(&path);
    let clean = clean_rate(&mut path, &healthy)?;
    // Another stream than the prover's: the same seed must not reveal the order of the faults.
    let mut random = Random::new(Seed(args.seed.unwrap_or_default() ^ 0x706c_616e_7400));
    let mut faults = candidates(&path, clean)?;
    random.shuffle(&mut faults);
    let bar = say.progress(FAULTS as u64, "injecting");
    let mut planted = Vec::new();
    let candidates = faults.len();
    for (number, fault) in (1..).zip(faults) {
        if planted.len() == FAULTS {
            break;
        }
        // A number reveals no name: the order is random.
        bar.tell(&format!("trying candidate {number} of {candidates}"));
        if costs_enough(&mut path, &healthy, &fault, &mut random)? {
            planted.push(fault);
            bar.step("accepted");
        }
    }
    if planted.len() < FAULTS {
        return Err(Stop::new(
            Code::Inconclusive,
            format!(
                "only {} of {FAULTS} faults cost at least 10 % on this machine ({candidates} \
                 tried)",
                planted.len()
            ),
        )
        .hint(
            "the machine may be too busy to measure; try again when it is idle, or with another \
            `--seed`",
        ));
    }
    for fault in &planted {
        apply_changes(&mut path, &fault.changes)?;
        if let Some(cpu) = fault.confine {
            confine_conductor(cpu.0)?;
        }
    }
    keep_changes(&mut path)?;
    bar.done("three faults, disclosed at the end");
    let rules: Vec<&str> = planted.iter().map(|fault| fault.rule).collect();
    let text = serde_json::to_vec(&rules).map_err(|error| {
        Stop::new(Code::Bug, "cannot write the list of injected faults").because(error)
    })?;
    store::write_whole(&planted_file(folder), &text)
        .map_err(|error| Stop::io("write the list of injected faults", error))?;
    path.peer.leave()
}

/// The injected faults.
pub(super) fn read(folder: &FilePath) -> Outcome<Vec<String>> {
    let text = fs::read(planted_file(folder)).map_err(|e| {
        Stop::io(
            "read the list of injected \
        faults",
            e,
        )
    })?;
    serde_json::from_slice(&text).map_err(|error| {
        Stop::new(Code::Bug, "cannot read the list of injected faults").because(error)
    })
}

/// Some kernels begin with a congestion control that costs a quarter of the rate here: that is one of
/// the faults, so both hosts begin without it, where the kernel lets a namespace choose.
fn make_healthy(path: &mut PeerPath) -> Outcome<()> {
    let cubic = [End::Local, End::Remote]
        .into_iter()
        .filter_map(|end| congestion_control(path, end, "cubic"))
        .collect::<Vec<_>>();
    apply_changes(path, &cubic)?;
    keep_changes(path)?;
    path.read_again()
}

/// The trial on healthy hosts. Where a namespace may not have cubic as its default, the trial asks for it,
/// as the remedy of that would: a fault must cost something with all else in order.
fn spec(path: &PeerPath) -> TrialSpec {
    let names_cubic = |sysctl: &str| {
        let text = path.local.sysctl(sysctl);
        text.value()
            .is_some_and(|names| names.split_whitespace().any(|name| name == "cubic"))
    };
    let asks = names_cubic("net.ipv4.tcp_available_congestion_control")
        && !names_cubic("net.ipv4.tcp_congestion_control");
    TrialSpec {
        flows: 1,
        direction: Direction::Forward,
        duration_ns: Nanoseconds::from_millis(400),
        interval_ns: Nanoseconds::from_millis(20),
        buffer_bytes: Bytes::kib(128),
        socket_buffer_bytes: None,
        congestion_control: asks.then(|| "cubic".to_owned()),
        placement: Placement::default(),
        ..TrialSpec::default()
    }
}

fn trial(path: &mut PeerPath, spec: &TrialSpec) -> Outcome<f64> {
    let sample = path.run(spec, fresh_token()?)?;
    rate_of(&sample)
        .map(BitRate::as_f64)
        .ok_or_else(|| Stop::new(Code::Inconclusive, "a trial moved no data"))
}

fn clean_rate(path: &mut PeerPath, healthy: &TrialSpec) -> Outcome<BitRate> {
    let mut rates = Vec::new();
    for _ in 0..3 {
        rates.push(trial(path, healthy)?);
    }
    median(&rates)
        .ok()
        .and_then(BitRate::from_f64)
        .ok_or_else(|| Stop::new(Code::Inconclusive, "the two hosts exchange no data"))
}

/// Whether the fault costs at least 10 % beyond doubt: pairs are added until the interval reports it, or
/// until there is little hope that it will.
fn costs_enough(
    path: &mut PeerPath,
    healthy: &TrialSpec,
    fault: &Fault,
    random: &mut Random,
) -> Outcome<bool> {
    let mut pairs = Vec::new();
    while pairs.len() < PAIRS_MAX {
        pairs.push(pair(path, healthy, fault, random)?);
        if pairs.len() < PAIRS_MIN {
            continue;
        }
        let Ok(effect) = paired_relative(&pairs, LEVEL, Seed(1)) else {
            return Ok(false);
        };
        if effect.interval.high <= -COST_MIN {
            return Ok(true);
        }
        let weak = pairs.len() >= PAIRS_MAX / 2 && effect.relative > -1.5 * COST_MIN;
        if weak || effect.interval.low > -COST_MIN {
            return Ok(false);
        }
    }
    Ok(false)
}

/// The rates of one pair of trials, (clean, faulty), in random order.
fn pair(
    path: &mut PeerPath,
    healthy: &TrialSpec,
    fault: &Fault,
    random: &mut Random,
) -> Outcome<(f64, f64)> {
    let faulty_first = random.below(2) == 0;
    let (mut clean, mut faulty) = (0.0, 0.0);
    for is_faulty in [faulty_first, !faulty_first] {
        if is_faulty {
            apply_changes(path, &fault.changes)?;
            let cpus = fault.confine.map(CpuSet::one).unwrap_or_default();
            let placement = Placement {
                sender_cpus: cpus.clone(),
                receiver_cpus: cpus,
                ..Placement::default()
            };
            let spec = TrialSpec {
                placement,
                ..healthy.clone()
            };
            let rate = trial(path, &spec);
            undo_changes(path, &fault.changes)?;
            faulty = rate?;
        } else {
            clean = trial(path, healthy)?;
        }
    }
    Ok((clean, faulty))
}

/// Confines the conductor, and with it everything that it starts, to one CPU: what `taskset` or a
/// cpuset would do to a person's shell.
fn confine_conductor(cpu: u32) -> Outcome<()> {
    let mut cpus = rustix::thread::CpuSet::new();
    cpus.set(usize::try_from(cpu).unwrap_or(0));
    let parent = rustix::process::getppid();
    rustix::thread::sched_setaffinity(parent, &cpus)
        .map_err(|errno| Stop::io("confine the hosts to one CPU", errno.into()))
}
