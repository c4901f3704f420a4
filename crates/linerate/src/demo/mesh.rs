//! `linerate demo mesh`: eight hosts in namespaces, one of them slower, and `linerate mesh` to find it.

use std::path::Path;

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_runtime::cli::DemoArgs;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::random::fresh_seed;
use linerate_runtime::console::say::Say;
use linerate_runtime::endpoint::stage::{STATE, stage_stop, wait_for};
use linerate_stats::{Random, Seed};
use linerate_testbed::Stage;
use linerate_testbed::mesh::{Mesh, MeshFault, MeshSpec};

use super::myself;

/// More hosts take more rounds: this demo ends within 90 s.
const HOSTS: u32 = 8;
/// How long each trial lasts.
const TRIAL: &str = "300ms";

/// What the person started.
pub(super) fn start(args: &DemoArgs, state: &Path, say: &Say) -> Outcome<()> {
    let interrupt = Interrupt::listen()?;
    let seed = args.seed.map_or_else(fresh_seed, Ok)?;
    say.note(&format!(
        "linerate demo mesh: creates {HOSTS} network namespaces of 50 Mb/s on a bridge, makes one host\n15 % slower, and \
         runs `linerate mesh` to find it. Takes about a minute and changes\nnothing on this machine; Ctrl-C stops it. Seed \
         {seed}."
    ));
    let mut command = myself(state, say)?;
    command.args(["demo", "mesh", "--stage", "conduct"]);
    command.args(["--seed", &seed.to_string()]);
    linerate_testbed::tie_to_parent(&mut command);
    wait_for(command, "conduct", &interrupt)
}

/// Makes the hosts, and has them measured.
pub(super) fn conduct(args: &DemoArgs, state: &Path, say: &Say) -> Outcome<()> {
    // First of all, while this process has one thread.
    let _stage = Stage::enter().map_err(|error| stage_stop(&error))?;
    let interrupt = Interrupt::listen()?;
    let seed = args.seed.unwrap_or_default();
    let host = seeded_host(seed);
    let folder = Path::new(STATE);
    std::fs::create_dir_all(folder).map_err(|error| Stop::io("make the stage's folder", error))?;
    let mesh = Mesh::open(folder).and_then(|mut mesh| {
        let spec = MeshSpec {
            hosts: HOSTS,
            faults: vec![MeshFault::Send(host)],
        };
        mesh.add(&spec).map(|()| mesh.network())
    });
    let network = mesh
        .map_err(|error| Stop::new(Code::NotSupported, "cannot make the hosts").because(error))?
        .ok_or_else(|| Stop::new(Code::Bug, "the hosts that were made are not recorded"))?;
    let mut mesh = myself(state, say)?;
    mesh.arg("mesh");
    mesh.args(network.hosts.iter().map(|host| format!("netns:{host}")));
    mesh.args(["--time", TRIAL, "--seed", &seed.to_string()]);
    say.note("\nRunning `linerate mesh`; the fault is not disclosed to it:");
    match wait_for(mesh, "mesh", &interrupt) {
        // A host is named: what the demo shows.
        Err(stop) if stop.code == Code::Findings => {}
        other => other?,
    }
    say.note(&format!(
        "\nthe injected fault: lr-m{host} sends 15 % slower; `linerate report last` writes a page with the heat map"
    ));
    Ok(())
}

/// The host that is slow when it sends. The limit for receiving is at the bridge: no fact of a host would differ.
fn seeded_host(seed: u64) -> u32 {
    let mut random = Random::new(Seed(seed));
    u32::try_from(random.below(HOSTS.into())).unwrap_or_default()
}
