//! `linerate lab`: designed experiments.
//!
//! `definition` reads its file, `trials` turns a combination of levels into trials, `session` runs an experiment in
//! randomized blocks, `text` formats it as text, `progress_table` is the table while it runs. `paths` are the paths to the
//! peer and to other hosts that are levels. `resume` continues a run. `compare` compares runs before and after a change. `server` starts and loads
//! another program as the server.
//! The definition of an experiment, and the analysis of its record, are in [`linerate_analysis::experiment`].

pub(crate) mod compare;
pub(crate) mod definition;
mod device;
mod paths;
mod progress_table;
mod resume;
pub(crate) mod server;
pub mod session;
mod text;
mod trials;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path as FilePath, PathBuf};
use std::process::Command;

use linerate_analysis::experiment::document::LabDocument;
use linerate_analysis::experiment::experiment_of;
use linerate_analysis::experiment::hits::server_in_words;
use linerate_analysis::experiment::judge::{self, ResolvedDesign};
use linerate_analysis::experiment::resolve::Resolver;
use linerate_analysis::record::{Header, Record, RunKind, SCHEMA, StoredRun};
use linerate_analysis::text::words::seconds_in_words;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::ids::NicName;
use linerate_model::known::Known;
use linerate_model::lab::{DesignKind, Experiment, Factor, Level, LevelTable, LoadedServer};
use linerate_model::peer_address::PeerAddress;
use linerate_model::plan::End;
use linerate_model::units::BitRate;
use linerate_model::workload::TrialSpec;
use linerate_report::{self as report, LabData};
use linerate_runtime::cli::{
    LabAction, LabRunArgs, LabStep, NamedPath, PathTarget, PeerArgs, ReachArgs, Target,
};
use linerate_runtime::console::clock::now_unix_s;
use linerate_runtime::console::command_line::command_line;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::random::fresh_seed;
use linerate_runtime::console::say::{Format, Say};
use linerate_runtime::endpoint::ends::Ends;
use linerate_runtime::endpoint::recover::recover_first;
use linerate_runtime::endpoint::stage::{enter, hosts, stage_stop, wait_for};
use linerate_runtime::endpoint::trial::copy_bandwidth;
use linerate_store::earlier::missing;
use linerate_store::{self as store, Log, Run, run_folder};
use linerate_testbed::{Netns, Stage, TunnelEnd};
use linerate_traffic::diffusion::film;
use serde::Serialize;

use self::definition::Definition;
use self::paths::LabPaths;
use self::resume::{resumable, resume, resume_command};
use self::server::elsewhere::{HTTP_SERVER, UrlPath};
use self::session::{RunOptions, Session};
use self::trials::{check, trials};
use crate::stored_runs::note_torn;

/// The page in a run's folder.
const PAGE: &str = "report.html";

/// Runs `lab`.
pub fn run(action: &LabAction, state: &FilePath, say: &Say) -> Outcome<()> {
    match action {
        LabAction::List { experiment: None } => list(say),
        LabAction::List {
            experiment: Some(name),
        } => say.data(definition::text_of(name)?.trim_end()),
        LabAction::Run(args) => begin(args, state, say),
        LabAction::Resume {
            run,
            peers,
            server,
            step,
        } => {
            let named_commands = (peers.as_slice(), server.as_deref());
            resume(&named(run, state)?, named_commands, *step, state, say)
        }
        LabAction::Show { run } => show(&named(run, state)?, None, say),
    }
}

/// A run of an experiment as it was typed.
fn named(run: &FilePath, state: &FilePath) -> Outcome<PathBuf> {
    store::named::find(&state.join("runs"), run.as_os_str(), Some(RunKind::Lab))
}

/// What `linerate lab list --format json` prints: the included experiments.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ExperimentList<'a> {
    schema: &'static str,
    experiments: Vec<ListedExperiment<'a>>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ListedExperiment<'a> {
    name: &'a str,
    title: &'a str,
    question: &'a str,
    factors: Vec<&'a str>,
}

impl<'a> From<&'a Definition> for ListedExperiment<'a> {
    fn from(definition: &'a Definition) -> Self {
        let experiment = &definition.experiment;
        Self {
            name: &definition.name,
            title: &experiment.title,
            question: &experiment.question,
            factors: experiment.factors.iter().map(Factor::name).collect(),
        }
    }
}

/// The built-in experiments.
fn list(say: &Say) -> Outcome<()> {
    let shipped: Vec<Definition> = definition::SHIPPED
        .iter()
        .map(|(name, _)| definition::read(name))
        .collect::<Outcome<_>>()?;
    if say.format == Format::Json {
        return say.json(&ExperimentList {
            schema: "linerate.lab-list/1",
            experiments: shipped.iter().map(ListedExperiment::from).collect(),
        });
    }
    let width = shipped.iter().map(|one| one.name.len()).max().unwrap_or(0);
    let line = |one: &Definition| format!("{:<width$}  {}", one.name, one.experiment.title);
    let lines: Vec<String> = shipped.iter().map(line).collect();
    say.data(&lines.join("\n"))
}

/// `lab run`.
fn begin(args: &LabRunArgs, state: &FilePath, say: &Say) -> Outcome<()> {
    let mut experiment = as_asked(args)?;
    let server = server::requested(args, &experiment)?;
    if args.step == Some(LabStep::Stage) {
        return on_stage(&experiment, Some("netns:far"), say);
    }
    let interrupt = Interrupt::listen()?;
    if experiment.is_local() {
        return device::begin(args, experiment, &interrupt, state, say);
    }
    let Some(peer) = peer_of(args, &experiment)? else {
        return match server {
            Some(server) if server.command.is_none() => {
                elsewhere(args, experiment, server, &interrupt, state, say)
            }
            _ => between_own_hosts(&interrupt, say),
        };
    };
    let seed = args.seed.map_or_else(fresh_seed, Ok)?;
    let earlier = missing(&experiment, &[])?;
    recover_first(state, say)?;
    let others = others_of(&experiment, args.push)?;
    let beside = experiment.beside.len();
    let mut paths = LabPaths::open(&peer, &others, beside, state, &interrupt, say)?;
    if args.allow_management_disruption {
        paths.include_way_in();
    }
    if let Some(server) = server {
        load(&mut experiment, server::placed(server, paths.home())?, say)?;
        paths.load(experiment.server.as_ref());
    }
    let home = paths.home();
    let created_unix_s = now_unix_s();
    let header = Header {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        created_unix_s,
        command: command_line(),
        seed,
        trials: experiment.design.repeats,
        peer: peer.peer.to_string(),
        local_nic: home.local_nic.clone(),
        remote_nic: home.remote_nic.clone(),
        address: home.address.to_string(),
        copy_bit_per_s: copy_bandwidth(home).map(BitRate::as_bit_per_s),
    };
    let resolver = resolver(experiment, &paths);
    let run = run_new((&resolver, &header), earlier, &mut paths, args, state, say)?;
    paths.leave()?;
    run.map_or(Ok(()), |folder| {
        show(&folder, Some(&folder.join(PAGE)), say)
    })
}

/// Announces a new run and carries it out; only announces it with `--plan`. Returns its folder.
fn run_new(
    (resolver, header): (&Resolver, &Header),
    earlier: Vec<Record>,
    ends: &mut dyn Ends,
    args: &LabRunArgs,
    state: &FilePath,
    say: &Say,
) -> Outcome<Option<PathBuf>> {
    let seed = header.seed;
    let asked = RunOptions {
        seed,
        anyway: args.force,
    };
    check(resolver)?;
    let plan = plan_in_words(resolver, header)?.join("\n");
    if args.plan {
        if say.format != Format::Text {
            let why = "`--plan` supports only text";
            return Err(Stop::new(Code::Usage, why));
        }
        return say.data(&plan).map(|()| None);
    }
    say.note(&plan);
    let out = args.out.clone();
    let folder = out.unwrap_or_else(|| run_folder(state, "lab", header.created_unix_s, seed));
    let mut run = Run::create(&folder, header)?;
    say.note(&format!(
        "seed {seed}; Ctrl-C rolls back all settings, `{}` continues the run\nrun stored in {}",
        resume_command(&folder, header, &resolver.experiment),
        folder.display()
    ));
    run.add(Record::Lab {
        experiment: Box::new(resolver.experiment.clone()),
        include_way_in: args.allow_management_disruption,
        own_hosts: args.step == Some(LabStep::Inside),
    })?;
    earlier
        .into_iter()
        .try_for_each(|earlier| run.add(earlier))?;
    Session::new(ends, &mut run, resolver, asked, say)
        .run()
        .map_err(|stop| resumable(stop, &folder, header, &resolver.experiment))?;
    Ok(Some(folder))
}

/// `lab run --url URL` without a peer: this host loads a server on a host that linerate does not run on.
fn elsewhere(
    args: &LabRunArgs,
    mut experiment: Experiment,
    server: LoadedServer,
    interrupt: &Interrupt,
    state: &FilePath,
    say: &Say,
) -> Outcome<()> {
    let seed = args.seed.map_or_else(fresh_seed, Ok)?;
    let earlier = missing(&experiment, &[])?;
    recover_first(state, say)?;
    let disrupts = args.allow_management_disruption;
    let mut path = UrlPath::open(&server, disrupts, state, interrupt)?;
    let header = Header {
        schema: SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        created_unix_s: now_unix_s(),
        command: command_line(),
        seed,
        trials: experiment.design.repeats,
        peer: HTTP_SERVER.to_owned(),
        local_nic: path.nic(End::Local).clone(),
        remote_nic: path.nic(End::Remote).clone(),
        address: path.address().to_string(),
        copy_bit_per_s: None,
    };
    load(&mut experiment, server, say)?;
    let resolver = Resolver::new(experiment, path.view());
    let run = run_new((&resolver, &header), earlier, &mut path, args, state, say)?;
    run.map_or(Ok(()), |folder| {
        show(&folder, Some(&folder.join(PAGE)), say)
    })
}

/// Loads `server` in every trial; factors of the load generator are left out, with a note.
fn load(experiment: &mut Experiment, server: LoadedServer, say: &Say) -> Outcome<()> {
    let loaded = experiment.load(server);
    let left_out =
        loaded.map_err(|error| Stop::new(Code::Usage, format!("cannot use `--url`: {error}")))?;
    for words in left_out {
        say.note(&format!("factor left out: {words}"));
    }
    Ok(())
}

/// The resolver of the experiment for its open paths.
fn resolver(experiment: Experiment, paths: &LabPaths) -> Resolver {
    let home = Resolver::new(experiment, paths.home().view());
    paths
        .others()
        .fold(home, |resolver, (name, way)| resolver.with_other(name, way))
}

/// The other hosts that are levels, as the experiment names them.
fn others_of(experiment: &Experiment, push: bool) -> Outcome<BTreeMap<String, PeerArgs>> {
    let mut others: BTreeMap<String, PeerArgs> = BTreeMap::new();
    for level in levels(experiment) {
        let Some(name) = level.peer.at else {
            continue;
        };
        // `@KIND` is resolved when both hosts are known.
        let address = level.address.and_then(|address| address.parse().ok());
        let peer = peer_address(&name)?;
        let reach = ReachArgs {
            push,
            address,
            ..ReachArgs::default()
        };
        let other = others
            .entry(name)
            .or_insert(PeerArgs::reached(&peer, reach));
        // Levels of the same host by several addresses: the path to it is the usual one, and each trial has its target.
        if other.reach.address != address {
            other.reach.address = None;
        }
    }
    Ok(others)
}

/// Every level of every factor.
fn levels(experiment: &Experiment) -> impl Iterator<Item = LevelTable> {
    let factors = experiment.factors.iter();
    factors.flat_map(|factor| (0..factor.levels.len()).filter_map(|level| factor.level(level)))
}

fn peer_address(text: &str) -> Outcome<PeerAddress> {
    let bad = |why: &str| Stop::new(Code::BadInput, format!("`peer.at`: {why}"));
    match text.parse().map_err(|why: String| bad(&why))? {
        PeerAddress::Tls {
            at,
            pairing: Some(_),
        } => Err(
            bad("must not contain a pairing line: its token is a secret").hint(format!(
                "pair with `linerate peers pair`, and name the peer `tls://{at}`"
            )),
        ),
        peer => Ok(peer),
    }
}

/// The plan in words: what will run, what it changes, and what is skipped.
fn plan_in_words(resolver: &Resolver, header: &Header) -> Outcome<Vec<String>> {
    let skipped = resolver.unsupported();
    let left_out: Vec<_> = skipped
        .iter()
        .map(|(factor, level, _)| (*factor, *level))
        .collect();
    let laid = judge::laid(&resolver.experiment, &left_out)?;
    // Any available one: which are unavailable is found out later, and all last as long.
    let first = laid
        .cells
        .iter()
        .find_map(|cell| trials(resolver, cell).ok());
    let alone = judge::without_factors(&resolver.experiment);
    let trial = first.map_or_else(|| trials(resolver, &alone), Ok)?;
    let mut lines = vec![head_of_plan(resolver, header, &laid, &trial[0])];
    for &at in &laid.varied {
        let factor = &resolver.experiment.factors[at];
        let names = laid.kept[at]
            .iter()
            .filter_map(|level| factor.level(*level));
        let names: Vec<String> = names.map(|level| level.name).collect();
        lines.push(format!("  varied: {}: {}", factor.name(), names.join(", ")));
    }
    if let Some(server) = &resolver.experiment.server {
        lines.push(format!("  {}", server_in_words(server)));
    }
    for level in levels(&resolver.experiment) {
        if let Some(run) = level.run {
            let words = "an earlier run, neither repeated nor interleaved with these";
            lines.push(format!("  {}: {words}: {run}", level.name));
        }
    }
    for words in resolver.others_in_words() {
        lines.push(format!("  {words}"));
    }
    for words in resolver.changed_in_words() {
        lines.push(format!("  {words}"));
    }
    // Levels of one factor that are skipped for one reason share a line.
    for same in skipped.chunk_by(|one, other| (one.0, &one.2) == (other.0, &other.2)) {
        let (factor, _, why) = &same[0];
        let of = &resolver.experiment.factors[*factor];
        let levels = same.iter().filter_map(|(_, level, _)| of.level(*level));
        let levels: Vec<String> = levels.map(|level| level.name).collect();
        lines.push(format!(
            "  skipped: {} {}: {why}",
            of.name(),
            levels.join(", ")
        ));
    }
    for words in resolver.goes_without_in_words() {
        lines.push(format!("  note: {words}"));
    }
    for words in laid.confounding(&resolver.experiment) {
        lines.push(format!("  note: {words}"));
    }
    Ok(lines)
}

/// What is run how often, and how long that takes.
fn head_of_plan(
    resolver: &Resolver,
    header: &Header,
    laid: &ResolvedDesign,
    trial: &TrialSpec,
) -> String {
    let design = &resolver.experiment.design;
    let cells = laid.cells.len() as u64;
    let trials = cells.saturating_mul(design.repeats.into());
    let time = trial.duration_ns.as_u64().saturating_mul(trials);
    let by_itself = trial.workload.ends_by_itself();
    format!(
        "{}: {}\n{} -> {} ({}): {} combinations ({}), {} randomized blocks: {trials} trials{}",
        resolver.experiment.title,
        resolver.experiment.question,
        header.local_nic,
        header.address,
        header.peer,
        cells,
        design.kind.word(),
        design.repeats,
        if by_itself {
            String::new()
        } else {
            let time = linerate_model::units::Nanoseconds::new(time);
            format!(", {} of data transfer", seconds_in_words(time))
        },
    )
}

/// The experiment with the changes of the command line.
fn as_asked(args: &LabRunArgs) -> Outcome<Experiment> {
    let definition = definition::read(&args.experiment)?;
    let mut experiment = definition.experiment;
    // It is stored, also if the command line names another peer.
    experiment
        .peer
        .at
        .as_deref()
        .map(peer_address)
        .transpose()?;
    if args.quick {
        experiment = experiment.quick();
    }
    if let Some(repeats) = args.repeats {
        experiment.design.repeats = repeats;
    }
    if let Some(time) = args.time {
        let time = linerate_model::lab::Word::Text(format!("{}ns", time.as_u64()));
        experiment.options.insert("time".to_owned(), time);
    }
    if !args.path.is_empty() {
        let paths = paths_as_factor(&args.path);
        if experiment.design.kind == DesignKind::OneAtATime {
            let name = paths.name().to_owned();
            experiment.design.crossed.push(name);
        }
        experiment.factors.insert(0, paths);
    }
    experiment
        .check()
        .map_err(|error| Stop::new(Code::BadInput, error.to_string()))?;
    Ok(experiment)
}

/// The factor whose levels are the paths of the command line; a single one is compared with the default.
fn paths_as_factor(paths: &[NamedPath]) -> Factor {
    let level = |path: &NamedPath| {
        let mut level = LevelTable {
            name: path.name.clone(),
            ..LevelTable::default()
        };
        match &path.to {
            PathTarget::Address(address) => level.address = Some(address.to_string()),
            PathTarget::Peer(peer) => level.peer.at = Some(peer.to_string()),
            PathTarget::Device(device) => level.device = Some(device.display().to_string()),
        }
        Level::Table(level)
    };
    let default = LevelTable {
        name: "default".to_owned(),
        ..LevelTable::default()
    };
    let default = (paths.len() == 1).then_some(Level::Table(default));
    let is_device = |path: &NamedPath| matches!(path.to, PathTarget::Device(_));
    let name = if paths.iter().all(is_device) {
        "device"
    } else {
        "path"
    };
    Factor {
        name: Some(name.to_owned()),
        levels: default.into_iter().chain(paths.iter().map(level)).collect(),
        ..Factor::default()
    }
}

/// The peer of the command line, or of the experiment; none where neither names one.
fn peer_of(args: &LabRunArgs, experiment: &Experiment) -> Outcome<Option<PeerArgs>> {
    let peer = match (&args.target, &experiment.peer.at) {
        (Some(Target::Peer(peer)), _) => peer.clone(),
        (Some(Target::Device(device)), _) => {
            let why = format!(
                "`{}` needs a peer, not the block device {}",
                experiment.workload,
                device.display()
            );
            return Err(Stop::new(Code::Usage, why).hint("`linerate lab run blk-mq DEVICE`"));
        }
        (None, Some(text)) => peer_address(text)?,
        (None, None) => return Ok(None),
    };
    let reach = ReachArgs {
        push: args.push,
        address: args.address,
        ..ReachArgs::default()
    };
    Ok(Some(PeerArgs::reached(&peer, reach)))
}

/// Runs this command again between its own two hosts.
fn between_own_hosts(interrupt: &Interrupt, say: &Say) -> Outcome<()> {
    say.note("no peer given: using two temporary network namespaces on this host");
    let mut command = again("stage")?;
    linerate_testbed::tie_to_parent(&mut command);
    wait_for(command, "stage", interrupt)
}

/// This program as it was started, for another step.
fn again(step: &str) -> Outcome<Command> {
    let own =
        std::env::current_exe().map_err(|error| Stop::io("find this program's own file", error))?;
    let mut command = Command::new(own);
    let words = std::env::args_os().skip(1);
    command.args(words.filter(|word| word != "--step=stage"));
    command.arg(format!("--step={step}"));
    Ok(command)
}

/// Creates two hosts, and runs the command between them, with the peer's name appended if it takes one.
fn on_stage(experiment: &Experiment, peer: Option<&str>, say: &Say) -> Outcome<()> {
    // Before anything else, while this process has one thread.
    let stage = Stage::enter().map_err(|error| stage_stop(&error))?;
    let interrupt = Interrupt::listen()?;
    let (near, far) = hosts(&stage)?;
    if goes_by_tunnel(experiment)
        && let Err(error) = tunnel(&near, &far)
    {
        say.note(&format!("cannot create a VXLAN between them: {error}"));
    }
    let mut command = again("inside")?;
    command.args(peer);
    enter(&near, &mut command)?;
    wait_for(command, "inside", &interrupt)
}

/// Whether some level sends data over a tunnel that both hosts have.
fn goes_by_tunnel(experiment: &Experiment) -> bool {
    let is_tunnel = |level: LevelTable| level.address.as_deref() == Some("@tunnel");
    levels(experiment).any(is_tunnel)
}

/// A VXLAN between the two hosts, over their link.
fn tunnel(near: &Netns, far: &Netns) -> io::Result<()> {
    let name = |text: &str| text.parse::<NicName>().map_err(io::Error::other);
    let (near_nic, far_nic) = (name("near0")?, name("far0")?);
    let near = TunnelEnd {
        host: near,
        over: &near_nic,
        outer: [10, 77, 0, 1].into(),
        inner: "10.78.0.1/24",
    };
    let far = TunnelEnd {
        host: far,
        over: &far_nic,
        outer: [10, 77, 0, 2].into(),
        inner: "10.78.0.2/24",
    };
    // Created after the interfaces that it uses, so that those are the default.
    linerate_testbed::tunnel(&name("vxlan0")?, near, far)
}

/// Reads a run of an experiment, and what its pictures show, without what is not analyzed: counters, profiles and
/// CPU time step by step are most of a trial, and stay on disk.
pub(crate) fn read_run(folder: &FilePath) -> Outcome<(StoredRun, LabData)> {
    let mut seen = LabData::default();
    let stored = store::read_keeping(folder, |record| {
        seen.see(record);
        let samples = match record {
            Record::Cell { samples, .. } => samples.as_mut_slice(),
            Record::Pilot(sample) => std::slice::from_mut(&mut **sample),
            _ => &mut [],
        };
        for side in samples
            .iter_mut()
            .flat_map(|sample| [&mut sample.local, &mut sample.remote])
        {
            side.counters = Known::default();
            side.profile = Known::default();
            side.cpu.series = Vec::new();
            // A list that was read has capacity for up to twice as much as is in it.
            side.flows.shrink_to_fit();
            for flow in &mut side.flows {
                flow.at_ns.shrink_to_fit();
                flow.bytes.shrink_to_fit();
            }
        }
    })?;
    Ok((stored, seen))
}

/// The page of an experiment, with the grid that its trials computed.
pub(crate) fn page(document: &LabDocument, header: &Header, mut seen: LabData) -> String {
    seen.film = seen.film_wanted().map(|(bytes, after)| film(bytes, &after));
    report::lab_page(document, header, &seen)
}

/// Analyzes a run of an experiment from its records, prints the result, and writes its page.
pub fn show(folder: &FilePath, page: Option<&FilePath>, say: &Say) -> Outcome<()> {
    let (stored, seen) = read_run(folder)?;
    note_torn(&stored, say);
    let (experiment, _) = experiment_of(&stored)?;
    let mut document = judge::document(&stored.header, &stored.records)?;
    document.run = Some(folder.display().to_string());
    document.report = page.map(|page| page.display().to_string());
    if let Some(page) = page {
        let page_text = self::page(&document, &stored.header, seen);
        store::write_page(folder, page, &page_text)?;
    }
    if !document.complete {
        say.note(&format!(
            "the run is incomplete: continue with `{}`",
            resume_command(folder, &stored.header, experiment)
        ));
    }
    if say.format == Format::Json {
        say.json(&document)
    } else {
        say.data(&text::text(&document))
    }
}
