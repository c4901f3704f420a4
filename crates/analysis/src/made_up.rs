//! Records of runs for tests: small, and of every kind.

use linerate_model::build;
use linerate_model::factor::{Factor, Level};
use linerate_model::known::Known;
use linerate_model::sample::{Flag, Sample};
use linerate_model::units::Nanoseconds;

use crate::record::{Header, Record, SCHEMA};

/// A header of a run with `seed` that began at `created_unix_s`.
pub fn header(seed: u64, created_unix_s: u64) -> Header {
    Header {
        schema: SCHEMA.to_owned(),
        version: "0.0.0".to_owned(),
        created_unix_s,
        command: vec!["linerate".to_owned()],
        seed,
        trials: 1,
        peer: "netns:far".to_owned(),
        local_nic: "near0".parse().expect("a name"),
        remote_nic: "far0".parse().expect("a name"),
        address: "10.77.0.2".to_owned(),
        copy_bit_per_s: None,
    }
}

/// A trial.
pub fn trial(mbit: u64) -> Box<Sample> {
    Box::new(build::sample().mbit(mbit).build())
}

/// A trial that carries `flags`.
pub fn flagged(flags: &[Flag]) -> Box<Sample> {
    let mut sample = trial(9_000);
    sample.flags = flags.to_vec();
    sample
}

/// Both hosts, the far one called `far`.
pub fn hosts(far: &str) -> Record {
    let (near, mut other) = build::veth_pair();
    other.identity.hostname = Known::Value(far.to_owned());
    Record::Hosts {
        local: Box::new(near),
        remote: Box::new(other),
    }
}

/// The records of `prove`: before, a trial without a remedy that was repeated, one with it, after.
pub fn proof() -> Vec<Record> {
    let staged = |place, without: &[usize], sample| Record::Staged {
        stage: 0,
        place,
        without: without.to_vec(),
        sample,
    };
    vec![
        hosts("host"),
        Record::Before(trial(9_000)),
        Record::Remedy {
            remedy: 0,
            rule: "tcp-buffer-below-bdp".to_owned(),
            changes: Vec::new(),
            level: 0.045,
            beside: Vec::new(),
        },
        staged(0, &[0], flagged(&[Flag::Steal, Flag::NotSettled])),
        staged(0, &[0], trial(9_100)),
        staged(1, &[], trial(18_000)),
        Record::After(trial(18_000)),
        Record::Ended {
            restored: true,
            kept: false,
        },
    ]
}

/// What `tune search` records: a trial, and levels that could not be made.
pub fn search() -> Vec<Record> {
    let level = |words: &str| Level {
        words: words.to_owned(),
        changes: Vec::new(),
    };
    let explored = |level, sample| Record::Explored {
        levels: vec![level],
        screening: true,
        sample,
    };
    vec![
        hosts("host"),
        Record::Factors(vec![Factor {
            name: "local ring".to_owned(),
            levels: vec![level("baseline"), level("4096, \"all\"")],
        }]),
        explored(1, Some(trial(8_000))),
        explored(0, None),
    ]
}

/// What `lab` records of an experiment of one factor, called `name`, with the levels 1 and 12: a pilot, a combination
/// with another concurrent workload, one that was repeated, and one that is unavailable.
pub fn experiment(name: &str) -> Vec<Record> {
    let name = serde_json::to_string(name).expect("a text");
    let text = format!(
        "title = \"t\"\nworkload = \"stream\"\n[[factors]]\nname = {name}\noption = \"flows\"\nlevels = [1, 12]\n"
    );
    let experiment = crate::experiment::definition::parse(&text).expect("a sound experiment");
    let cell = |block, level, samples: Vec<Box<Sample>>, why: Option<&str>| Record::Cell {
        block,
        levels: vec![level],
        samples: samples.into_iter().map(|sample| *sample).collect(),
        why: why.map(str::to_owned),
    };
    vec![
        Record::Lab {
            experiment: Box::new(experiment),
            include_way_in: false,
            own_hosts: false,
        },
        hosts("host"),
        Record::Pilot(trial(9_000)),
        cell(0, 0, vec![trial(9_000), trial(1_000)], None),
        cell(0, 1, vec![flagged(&[Flag::Steal])], None),
        cell(0, 1, vec![trial(17_000)], None),
        cell(1, 0, Vec::new(), Some("the peer has no such port")),
        Record::Ended {
            restored: true,
            kept: false,
        },
    ]
}

/// The whole of TCP against RDMA in three blocks, as the experiment that comes with linerate has it: the work takes
/// 0.2 s for each GB, and over verbs the kernel has nothing to do.
pub fn tcp_vs_rdma() -> Vec<Record> {
    let text = include_str!("../../linerate/experiments/tcp-vs-rdma.toml");
    let experiment = crate::experiment::definition::parse(text).expect("a sound experiment");
    let laid = crate::experiment::judge::laid(&experiment, &[]).expect("a sound design");
    let mut records = vec![
        Record::Lab {
            experiment: Box::new(experiment),
            include_way_in: false,
            own_hosts: false,
        },
        hosts("far"),
    ];
    for block in 0..3 {
        records.extend(laid.cells.iter().map(|levels| {
            // 8 / 40 and 8 / 20 seconds for each GB, which move with the block.
            let mbit = [40_000, 20_000][levels[1]] * (100 + u64::from(block)) / 100;
            let mut sample = build::sample().mbit(mbit).build();
            for side in [&mut sample.local, &mut sample.remote] {
                side.cpu.threads_user_ns = Nanoseconds::from_millis(300);
                let system = [500, 0][levels[0]] + 10 * u64::from(block) * [1, 0][levels[0]];
                side.cpu.threads_system_ns = Nanoseconds::from_millis(system);
            }
            Record::Cell {
                block,
                levels: levels.clone(),
                samples: vec![sample],
                why: None,
            }
        }));
    }
    records
}
