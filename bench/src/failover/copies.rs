//! Packets that a relay sends twice or lets change places: `failover` must count each of them, and no other.

use std::path::Path;
use std::process::{Command, Stdio};

use linerate_bench_shared::Trouble;
use linerate_bench_shared::markdown::{head, row};
use linerate_bench_shared::running::tail;
use linerate_testbed::{Counts, Impairment, Relay, RelayOptions, Stage};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Args;
use linerate_bench_shared::results::Results;

/// In the folder that the stage covers with its own tmpfs.
const STATE: &str = "/run/netns/.failover";
/// A probe of 64 bytes with the headers of UDP and IPv4: the packets before the trial are left alone.
const PROBE: usize = 64 + 8 + 20;

/// What was counted of one direction.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Counted {
    duplicated: [u64; 2],
    reordered: [u64; 2],
}

impl Counted {
    fn is_exact(&self) -> bool {
        let Self {
            duplicated,
            reordered,
        } = self;
        duplicated[0] == duplicated[1] && reordered[0] == reordered[1]
    }
}

/// Runs all; whether every count is exact.
pub(super) fn conduct(args: &Args) -> Result<bool, Trouble> {
    let stage = Stage::enter().map_err(|error| Trouble(error.to_string()))?;
    let linerate = args.stage.linerate()?;
    let seed = args.stage.seed.unwrap_or_default();
    let mut results = Results::<Vec<Counted>>::open(args.results.as_deref())?;
    for number in results.rows().len()..args.trials.into() {
        let counted = trial(&stage, &linerate, seed.wrapping_add(number as u64))?;
        results.push(counted)?;
    }
    let all: Vec<&Counted> = results.rows().iter().flatten().collect();
    let exact = all.iter().filter(|one| one.is_exact()).count();
    let sum = |of: fn(&Counted) -> u64| all.iter().map(|one| of(one)).sum::<u64>().to_string();
    let mut text = head(&[
        "packets",
        ">injected",
        ">counted",
        ">trials and directions exact",
    ]);
    let share = format!("{exact} of {}", all.len());
    text += &row([
        "sent twice".to_owned(),
        sum(|one| one.duplicated[0]),
        sum(|one| one.duplicated[1]),
        share.clone(),
    ]);
    text += &row([
        "overtaken".to_owned(),
        sum(|one| one.reordered[0]),
        sum(|one| one.reordered[1]),
        share,
    ]);
    args.out.show(&text, results.rows())?;
    Ok(exact == all.len())
}

/// One trial over a relay that does both, in both directions.
fn trial(stage: &Stage, linerate: &Path, seed: u64) -> Result<Vec<Counted>, Trouble> {
    let host = |name: &str| {
        let made = stage.add_host(&format!("{name}-{seed}"));
        made.map_err(|error| Trouble(error.to_string()))
    };
    let (near, far) = (host("near")?, host("far")?);
    let nic = |name: &str| name.parse().map_err(|error| Trouble(format!("{error}")));
    let impairment = Impairment {
        duplicate: 0.01,
        swap: 0.01,
        only_bytes: PROBE,
        ..Impairment::default()
    };
    let options = RelayOptions {
        there: impairment,
        back: impairment,
        seed,
        large_packets: false,
    };
    let relay = Relay::join(
        (&near, &nic("near0")?, "10.83.0.1/24"),
        (&far, &nic("far0")?, "10.83.0.2/24"),
        options,
    )
    .map_err(|error| Trouble(format!("join the hosts: {error}")))?;
    let mut command = Command::new(linerate);
    command.args(["--state", STATE, "--format", "json", "failover"]);
    command.arg(format!("netns:far-{seed}"));
    command.args([
        "--address",
        "10.83.0.2",
        "--time",
        "2s",
        "--workload",
        "udp",
    ]);
    command.stdin(Stdio::null());
    near.enter_in_child(&mut command)
        .map_err(|error| Trouble(format!("enter a namespace: {error}")))?;
    let output = command
        .output()
        .map_err(|error| Trouble(format!("run linerate: {error}")))?;
    let document: Value = serde_json::from_slice(&output.stdout).map_err(|error| {
        let said = String::from_utf8_lossy(&output.stderr);
        Trouble(format!(
            "read what linerate printed: {error}: {}",
            tail(&said)
        ))
    })?;
    let directions = [("forward", relay.there()), ("reverse", relay.back())];
    directions
        .into_iter()
        .map(|(direction, counts)| counted(&document, direction, counts))
        .collect()
}

fn counted(document: &Value, direction: &str, counts: Counts) -> Result<Counted, Trouble> {
    let parts = document["trials"][0]["parts"].as_array();
    let mut parts = parts.into_iter().flatten();
    let part = parts.find(|part| part["direction"] == direction);
    let number = |key: &str| part.and_then(|part| part[key].as_u64());
    number("duplicated")
        .zip(number("reordered"))
        .map(|(duplicated, reordered)| Counted {
            duplicated: [counts.duplicated, duplicated],
            reordered: [counts.swapped, reordered],
        })
        .ok_or_else(|| Trouble(format!("find the direction {direction} in the document")))
}
