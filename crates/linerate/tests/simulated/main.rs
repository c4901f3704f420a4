//! The session's loop between simulated hosts: compared with known truth, and against every fault at
//! every step. No network, no clock, no root; each session takes milliseconds.

mod faults;
mod lab;
mod lab_difference;
mod lab_levels;
mod search;
mod statistics;
mod stored;
mod truth;
mod world;

use linerate::prove::{Options, Session, Source};
use linerate_analysis::proof::document;
use linerate_analysis::record::{Header, Record, SCHEMA};
use linerate_model::exit::Outcome;
use linerate_model::prove::ProveDocument;
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{Direction, Placement, TrialSpec};
use linerate_runtime::console::say::{Format, Say};
use linerate_store::Log;
use world::{Memory, World};

/// The default options of a session in these tests.
fn options(seed: u64) -> Options {
    Options {
        spec: TrialSpec {
            flows: 1,
            direction: Direction::Forward,
            duration_ns: Nanoseconds::from_millis(1_000),
            interval_ns: Nanoseconds::from_millis(50),
            buffer_bytes: Bytes::kib(128),
            socket_buffer_bytes: None,
            congestion_control: None,
            placement: Placement::default(),
            ..TrialSpec::default()
        },
        trials: 3,
        seed,
        undo: true,
        owns_shapers: true,
        spares_machine: false,
        accepts_worse: Vec::new(),
        source: Source::Rules,
    }
}

fn prove(world: &mut World, log: &mut dyn Log, options: Options) -> Outcome<()> {
    let say = Say {
        format: Format::Json,
        quiet: true,
    };
    world.counts_from = options.spec.duration_ns;
    Session::new(world, log, options, &say).prove()
}

fn header(seed: u64) -> Header {
    Header {
        schema: SCHEMA.to_owned(),
        version: "0.0.0".to_owned(),
        created_unix_s: 0,
        command: vec!["linerate".to_owned()],
        seed,
        trials: 3,
        peer: "netns:far".to_owned(),
        local_nic: "near0".parse().expect("a name"),
        remote_nic: "far0".parse().expect("a name"),
        address: "10.0.0.2".to_owned(),
        copy_bit_per_s: None,
    }
}

/// A whole session and the document of its run.
fn proved(world: &mut World, options: Options) -> (ProveDocument, Memory) {
    let seed = options.seed;
    let mut log = Memory::default();
    prove(world, &mut log, options).expect("nothing goes wrong");
    let document = document(&header(seed), log.records());
    (document, log)
}

/// Every try in its order: the rule, and whether it was kept.
fn tries(document: &ProveDocument) -> Vec<(&str, bool)> {
    let remedies = document.remedies.iter();
    remedies.map(|r| (r.rule.as_str(), r.kept)).collect()
}

/// How many records there are of a kind.
fn count(log: &dyn Log, is: impl Fn(&Record) -> bool) -> usize {
    log.records().iter().filter(|record| is(record)).count()
}
