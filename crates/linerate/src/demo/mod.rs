//! `linerate demo`: two hosts in namespaces, three injected faults, and a complete `prove`. `mesh` is the demo of `linerate mesh`.
//!
//! Four processes, each tied to the one before it, so that nothing survives a `kill -9` of the first:
//!
//! ```text
//! demo            the process that the user started: waits, and forwards Ctrl-C
//! `- conduct      creates the two hosts in namespaces that only it and its children see
//!    |- plant     injects the faults, and measures that each one has a cost
//!    `- prove     the same command that a user would run; the faults are not disclosed to it
//!       `- agent  the remote end
//! ```

mod fault;
mod mesh;
mod plant;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use linerate_analysis::record::Record;
use linerate_host::private_folder::PrivateFolder;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_runtime::cli::{DemoArgs, DemoOf, DemoStage};
use linerate_runtime::console::clock::now_unix_s;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::random::fresh_seed;
use linerate_runtime::console::say::Say;
use linerate_runtime::endpoint::stage::{STATE, enter, hosts, stage_stop, wait_for};
use linerate_runtime::endpoint::transactions;
use linerate_store::{Log, Run, run_folder};
use linerate_testbed::Stage;

use crate::prove::show::show;

/// How long each trial of the proof lasts, seconds.
const TRIAL_SECONDS: &str = "0.8";

/// Carries out the demo, or one of its inner steps.
pub(crate) fn run(args: &DemoArgs, state: &Path, say: &Say) -> Outcome<()> {
    if let Some(DemoOf::Mesh) = args.of {
        return match args.stage {
            None => mesh::start(args, state, say),
            Some(_) => mesh::conduct(args, state, say),
        };
    }
    match (args.stage, &args.folder) {
        (None, None) => start(args, state, say),
        (Some(DemoStage::Conduct), Some(folder)) => conduct(args, state, folder, say),
        (Some(DemoStage::Plant), Some(folder)) => plant::run(args, state, folder, say),
        _ => Err(Stop::new(
            Code::Usage,
            "`--stage` and `--folder` go together",
        )),
    }
}

/// What the person started.
fn start(args: &DemoArgs, state: &Path, say: &Say) -> Outcome<()> {
    let interrupt = Interrupt::listen()?;
    sweep(state, say)?;
    let seed = args.seed.map_or_else(fresh_seed, Ok)?;
    let out = args
        .out
        .clone()
        .unwrap_or_else(|| run_folder(state, "demo", now_unix_s(), seed));
    let out =
        std::path::absolute(&out).map_err(|error| Stop::io("find the run's directory", error))?;
    say.note(&format!(
        "linerate demo: creates two network namespaces, injects three faults between\nthem, and \
         runs `linerate prove` to find them. Takes about two minutes and\nchanges nothing on this \
         machine; Ctrl-C stops it. Seed {seed}."
    ));
    let name = format!("demo-{}", std::process::id());
    let folder = state.join(&name);
    PrivateFolder::make(state)
        .and_then(|state| state.make_folder(&name))
        .map_err(|e| Stop::io(format!("make {}", folder.display()), e))?;
    let mut command = myself(state, say)?;
    command
        .args(["demo", "--stage", "conduct", "--folder"])
        .arg(&folder);
    command
        .args([
            "--seed",
            &seed.to_string(),
            "--trials",
            &args.trials.to_string(),
            "--out",
        ])
        .arg(&out);
    linerate_testbed::tie_to_parent(&mut command);
    let code = wait_for(command, "conduct", &interrupt);
    // What the inner steps left for each other; the run itself is elsewhere.
    let _ = fs::remove_dir_all(&folder);
    code?;
    if !say.quiet {
        say.note("the namespaces are removed: no setting of this machine changed");
    }
    Ok(())
}

/// Removes what killed demos left: folders of dead processes, and journals whose namespaces are gone.
fn sweep(state: &Path, say: &Say) -> Outcome<()> {
    let names = PrivateFolder::open(state).and_then(|state| state.names());
    for name in names.into_iter().flatten() {
        let pid = name
            .to_str()
            .and_then(|name| name.strip_prefix("demo-")?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir_all(state.join(&name));
        }
    }
    let recovered = transactions::recover(state)?;
    if !recovered.is_empty() {
        say.note(&format!(
            "removed {} journals of killed runs",
            recovered.len()
        ));
    }
    Ok(())
}

/// Makes the hosts and runs the other steps in them.
fn conduct(args: &DemoArgs, state: &Path, folder: &Path, say: &Say) -> Outcome<()> {
    // First of all, while this process has one thread.
    let stage = Stage::enter().map_err(|error| stage_stop(&error))?;
    let interrupt = Interrupt::listen()?;
    let (near, _far) = hosts(&stage)?;
    let seed = args.seed.unwrap_or_default();
    say.note("\nInjecting three faults, each measured to cost at least 10 % (half a minute):");
    let stage_state = Path::new(STATE);
    let mut plant = myself(&stage_state.join("plant"), say)?;
    plant
        .args([
            "demo",
            "--stage",
            "plant",
            "--seed",
            &seed.to_string(),
            "--folder",
        ])
        .arg(folder);
    enter(&near, &mut plant)?;
    wait_for(plant, "plant", &interrupt)?;
    let planted = plant::read(folder)?;

    let out = args
        .out
        .clone()
        .unwrap_or_else(|| run_folder(state, "demo", now_unix_s(), seed));
    say.note("\nRunning `linerate prove netns:far`; the faults are not disclosed to it:");
    let mut prove = myself(&stage_state.join("prove"), say)?;
    prove.args([
        "prove",
        "netns:far",
        "--undo",
        "--allow-shaper-removal",
        "--netns-only",
    ]);
    prove.args([
        "--time",
        TRIAL_SECONDS,
        "--trials",
        &args.trials.to_string(),
    ]);
    prove.args(["--seed", &seed.to_string(), "--out"]).arg(&out);
    // Its output is generated again below, with the injected faults in it.
    prove.stdout(Stdio::null());
    enter(&near, &mut prove)?;
    wait_for(prove, "prove", &interrupt)?;

    let mut run = Run::append_to(&out)?;
    run.add(Record::Planted(planted))?;
    say.note("");
    show(&out, &out.join("report.html"), say)
}

/// This program, with the arguments that every step shares.
fn myself(state: &Path, say: &Say) -> Outcome<Command> {
    let own = std::env::current_exe().map_err(|e| Stop::io("find the path of this program", e))?;
    let mut command = Command::new(own);
    command.arg("--state").arg(state);
    if say.quiet {
        command.arg("--quiet");
    }
    if say.format == linerate_runtime::console::say::Format::Json {
        command.args(["--format", "json"]);
    }
    Ok(command)
}

/// The file in the step's folder that lists the injected faults.
fn planted_file(folder: &Path) -> PathBuf {
    folder.join("planted.json")
}
