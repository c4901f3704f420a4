//! A run that nobody made: an experiment of three factors, whose trials scatter as real ones do and carry what real ones
//! carry, over twenty steps with the counters of every CPU.

use std::path::Path;

use linerate_analysis::record::{Header, Record, SCHEMA};
use linerate_bench_shared::Trouble;
use linerate_model::build;
use linerate_model::host::Host;
use linerate_model::ids::CpuId;
use linerate_model::known::Known;
use linerate_model::lab::Experiment;
use linerate_model::latency::Histogram;
use linerate_model::sample::{CpuStep, CpuTimes, Operations, Sample, SideSample, Step};
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{Rr, Workload};
use linerate_stats::{Random, Seed};
use linerate_store::{Log, Run};
use serde_json::json;

/// Levels of each factor: fifty combinations.
const LEVELS: [usize; 3] = [5, 5, 2];
const COMBINATIONS: u32 = 50;
const SEED: u64 = 7;
/// CPUs that have something to do in a trial.
const BUSY: usize = 3;
/// Steps of a trial.
const STEPS: u64 = 20;
/// Requests of a trial.
const REQUESTS: u64 = 20_000;

/// As many trials as whole blocks have.
pub(crate) fn whole_blocks(trials: u32) -> u32 {
    trials.next_multiple_of(COMBINATIONS)
}

/// What its trials move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// Streams, counted.
    Streams,
    /// Requests, each of which is timed.
    Requests,
}

/// Writes the run.
pub(crate) fn store(
    folder: &Path,
    traffic: Traffic,
    trials: u32,
    cpus: u32,
) -> Result<(), Trouble> {
    let blocks = whole_blocks(trials) / COMBINATIONS;
    let experiment = experiment(traffic, blocks)?;
    let word = |error: linerate_model::exit::Stop| Trouble(format!("write the run: {error}"));
    let name = |name: &str| {
        name.parse()
            .map_err(|_| Trouble(format!("use the name {name}")))
    };
    let header = Header {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        created_unix_s: 1_800_000_000,
        command: ["linerate", "lab", "run", "large.toml", "ssh://far"]
            .map(str::to_owned)
            .to_vec(),
        seed: SEED,
        trials: blocks,
        peer: "ssh://far".to_owned(),
        local_nic: name("near0")?,
        remote_nic: name("far0")?,
        address: "10.0.0.2".to_owned(),
        copy_bit_per_s: None,
    };
    let mut run = Run::create(folder, &header).map_err(word)?;
    let (near, far) = (host("near0", cpus), host("far0", cpus));
    let mut random = Random::new(Seed(SEED));
    run.add(Record::Lab {
        experiment: Box::new(experiment),
        include_way_in: false,
        own_hosts: false,
    })
    .map_err(word)?;
    run.add(Record::Hosts {
        local: Box::new(near.clone()),
        remote: Box::new(far.clone()),
    })
    .map_err(word)?;
    for block in 0..blocks {
        let mut order: Vec<usize> = (0..COMBINATIONS as usize).collect();
        random.shuffle(&mut order);
        for cell in order {
            let levels = levels_of(cell);
            let mut sample = trial(&levels, [&near, &far], &mut random);
            if traffic == Traffic::Requests {
                ask(&mut sample, &levels, &mut random);
            }
            run.add(Record::Cell {
                block,
                levels,
                samples: vec![sample],
                why: None,
            })
            .map_err(word)?;
        }
    }
    run.add(Record::Ended {
        restored: true,
        kept: false,
    })
    .map_err(word)
}

/// Three factors, fifty combinations.
fn experiment(traffic: Traffic, blocks: u32) -> Result<Experiment, Trouble> {
    let (workload, responses, size) = match traffic {
        Traffic::Streams => ("stream", ["rate", "cpu"], "buffer"),
        Traffic::Requests => ("rr", ["operations", "p99"], "response"),
    };
    serde_json::from_value(json!({
        "title": "the cost of a large experiment",
        "question": "Is its page small, and fast to write and to open?",
        "workload": workload,
        "response": responses,
        "factors": [
            {"name": "flows", "option": "flows", "levels": [1, 2, 4, 8, 12]},
            {"name": size, "option": size, "levels": ["16KiB", "64KiB", "128KiB", "256KiB", "1MiB"]},
            {"name": "segmentation", "setting": "nic/@/feature/tso", "levels": ["baseline", false]}
        ],
        "design": {"kind": "full", "repeats": blocks, "ask": ["flows", size, "segmentation", "flows*segmentation"]}
    }))
    .map_err(|error| Trouble(format!("describe the experiment: {error}")))
}

fn host(nic: &str, cpus: u32) -> Host {
    let made = build::host().nodes(2, cpus.div_ceil(2));
    made.nic(nic, |nic| nic.gbit(100)).build()
}

/// The combination of a number, the last factor fastest.
fn levels_of(mut cell: usize) -> Vec<usize> {
    let mut levels: Vec<usize> = Vec::new();
    for count in LEVELS.iter().rev() {
        levels.push(cell % count);
        cell /= count;
    }
    levels.reverse();
    levels
}

/// More flows and larger buffers carry more, without segmentation less; trials scatter by 3 %, steps by 5 %.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "synthetic rates"
)]
fn trial(levels: &[usize], hosts: [&Host; 2], random: &mut Random) -> Sample {
    let flows = [1, 2, 4, 8, 12][levels[0]];
    let rate = 20_000.0 * (1.0 + 0.3 * levels[0] as f64) * (1.0 + 0.05 * levels[1] as f64);
    let rate = rate * if levels[2] == 1 { 0.7 } else { 1.0 } * (0.03 * random.normal()).exp();
    let mut sample = build::sample().flows(flows).mbit(rate as u64).build();
    let steps: Vec<f64> = (0..sample.local.flows[0].bytes.len())
        .map(|_| (0.05 * random.normal()).exp())
        .collect();
    for (side, host) in [&mut sample.local, &mut sample.remote]
        .into_iter()
        .zip(hosts)
    {
        for flow in &mut side.flows {
            let each = flow.bytes[0].as_u64() as f64;
            let mut sum = 0.0;
            for (bytes, step) in flow.bytes.iter_mut().zip(&steps) {
                sum += each * step;
                *bytes = Bytes::new(sum as u64);
            }
        }
        record_host(side, host, random);
    }
    sample
}

/// Makes it a trial of requests: larger answers take longer, one in a hundred of them ten times as long.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "synthetic times"
)]
fn ask(sample: &mut Sample, levels: &[usize], random: &mut Random) {
    let kibibytes = [16, 64, 128, 256, 1_024][levels[1]];
    sample.spec.workload = Workload::Rr(Rr {
        request_bytes: Bytes::new(64),
        response_bytes: Bytes::new(kibibytes * 1_024),
        depth: 1,
        connect_each: false,
        rate_per_s: None,
    });
    let mut latency = Histogram::default();
    for number in 0..REQUESTS {
        let stalled = if number % 100 == 0 { 10.0 } else { 1.0 };
        let ns = (30_000.0 + 100.0 * kibibytes as f64) * stalled * (0.5 * random.normal()).exp();
        latency.record(Nanoseconds::new(ns as u64));
    }
    let step = |at: u64| Step {
        at_ns: Nanoseconds::from_millis(1_000 * at),
        completed: REQUESTS / STEPS * at,
    };
    sample.local.operations = Some(Operations {
        completed: REQUESTS,
        latency,
        steps: (1..=STEPS).map(step).collect(),
        ..Operations::default()
    });
}

/// What every trial records about its host in addition to the flows.
fn record_host(side: &mut SideSample, host: &Host, random: &mut Random) {
    let mut part = |of: u64| Nanoseconds::new(random.below(of));
    let mut times = |cpu: CpuId, span: u64| CpuTimes {
        cpu,
        user_ns: part(span / 8),
        system_ns: part(span / 2),
        irq_ns: Nanoseconds::new(0),
        softirq_ns: part(span / 8),
        steal_ns: Nanoseconds::new(0),
        idle_ns: part(span / 4),
    };
    let of_all = host.cpus.iter().map(|cpu| times(cpu.id, 2_000_000_000));
    side.cpu.machine = Known::Value(of_all.collect());
    // A second each, as those of a longer trial: shorter ones would not be drawn.
    let step = |at: u64, times: &mut dyn FnMut(CpuId, u64) -> CpuTimes| CpuStep {
        at_ns: Nanoseconds::from_millis(1_000 * at),
        cpus: host
            .cpus
            .iter()
            .take(BUSY)
            .map(|cpu| times(cpu.id, 1_000_000_000))
            .collect(),
    };
    side.cpu.series = (1..=STEPS).map(|at| step(at, &mut times)).collect();
    side.counters = Known::Value(build::watch(host).build());
}
