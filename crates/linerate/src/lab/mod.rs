//! `linerate lab`: designed experiments.
//!
//! `definition` reads the file of an experiment, `resolve` makes of a combination of levels the trials and settings
//! it stands for, `session` runs them in randomised blocks, `judge` makes of the record what is printed as JSON,
//! `text` what a person reads. `compare` holds two runs against each other.

pub(crate) mod compare;
pub(crate) mod definition;
mod document;
pub(crate) mod figure;
pub mod judge;
mod lanes;
pub mod resolve;
pub mod session;
mod text;

use std::path::Path as FilePath;
use std::process::Command;

use linerate_model::lab::{Experiment, Factor};
use linerate_model::units::BitRate;
use linerate_testbed::Stage;

use self::definition::Definition;
#[cfg(test)]
pub(crate) use self::definition::parse;
use self::lanes::Lanes;
use self::resolve::Resolver;
use self::session::{Asked, Session};
use crate::cli::{LabAction, LabRunArgs, LabStep, PeerArgs};
use crate::commands::{now_unix_s, run_folder};
use crate::demo::{enter, hosts, stage_stop, wait_for};
use crate::draw::fresh_seed;
use crate::exit::{Code, Outcome, Stop};
use crate::interrupt::Interrupt;
use crate::measure::copy_bandwidth;
use crate::peer::PeerAddress;
use crate::prove::seconds_in_words;
use crate::report;
use crate::say::{Format, Say};
use crate::store::{self, Header, Log, Record, Run, StoredRun};
use crate::tune::recover_first;

/// The page in a run's folder.
const PAGE: &str = "report.html";

/// Carries out `lab`.
pub fn run(action: &LabAction, state: &FilePath, say: &Say) -> Outcome<()> {
    match action {
        LabAction::List => list(say),
        LabAction::Run(args) => begin(args, state, say),
        LabAction::Resume { run, step } => resume(run, *step, state, say),
        LabAction::Show { run } => show(run, None, say),
    }
}

/// The experiments that come with linerate.
fn list(say: &Say) -> Outcome<()> {
    let shipped: Vec<Definition> = definition::SHIPPED
        .iter()
        .map(|(name, _)| definition::read(name))
        .collect::<Outcome<_>>()?;
    if say.format == Format::Json {
        let one = |definition: &Definition| {
            let experiment = &definition.experiment;
            serde_json::json!({
                "name": definition.name,
                "title": experiment.title,
                "question": experiment.question,
                "factors": experiment.factors.iter().map(Factor::name).collect::<Vec<_>>(),
            })
        };
        let document = serde_json::json!({
            "schema": "linerate.lab-list/1",
            "experiments": shipped.iter().map(one).collect::<Vec<_>>(),
        });
        return say.json(&document);
    }
    let width = shipped.iter().map(|one| one.name.len()).max().unwrap_or(0);
    let line = |one: &Definition| format!("{:<width$}  {}", one.name, one.experiment.title);
    let lines: Vec<String> = shipped.iter().map(line).collect();
    say.data(&lines.join("\n"))
}

/// `lab run`.
fn begin(args: &LabRunArgs, state: &FilePath, say: &Say) -> Outcome<()> {
    if args.step == Some(LabStep::Stage) {
        return on_stage(Some("netns:far"));
    }
    let experiment = as_asked(args)?;
    let interrupt = Interrupt::listen()?;
    let Some(peer) = peer_of(args, &experiment)? else {
        return between_own_hosts(&interrupt, say);
    };
    let seed = args.seed.map_or_else(fresh_seed, Ok)?;
    recover_first(state, say)?;
    let mut lanes = Lanes::open(&peer, experiment.beside.len(), state, &interrupt)?;
    if args.include_way_in {
        lanes.first.include_way_in();
    }
    let created_unix_s = now_unix_s();
    let header = Header {
        schema: store::SCHEMA.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        created_unix_s,
        command: std::env::args().collect(),
        seed,
        pairs: experiment.design.repeats,
        peer: peer.peer.to_string(),
        local_nic: lanes.first.local_nic.clone(),
        remote_nic: lanes.first.remote_nic.clone(),
        address: lanes.first.address.to_string(),
        copy_bit_per_s: copy_bandwidth(&lanes.first).map(BitRate::as_bit_per_s),
    };
    let resolver = Resolver::new(experiment, lanes.first.view());
    let asked = Asked {
        seed,
        anyway: args.anyway,
    };
    resolver.check()?;
    say_plan(&resolver, &header, say)?;
    if args.plan {
        return lanes.leave();
    }
    let out = args.out.clone();
    let folder = out.unwrap_or_else(|| run_folder(state, "lab", created_unix_s, seed));
    let mut run = Run::create(&folder, &header)?;
    say.note(&format!(
        "seed {seed}; Ctrl-C puts every setting back, and `linerate lab resume {0}` goes on\n\
         the run is kept in {0}",
        folder.display()
    ));
    run.add(Record::Lab {
        experiment: Box::new(resolver.experiment.clone()),
        include_way_in: args.include_way_in,
        own_hosts: args.step == Some(LabStep::Inside),
    })?;
    Session::new(&mut lanes, &mut run, &resolver, asked, say)
        .run()
        .map_err(|stop| resumable(stop, &folder))?;
    lanes.leave()?;
    show(&folder, Some(&folder.join(PAGE)), say)
}

/// What will be done, before it is.
fn say_plan(resolver: &Resolver, header: &Header, say: &Say) -> Outcome<()> {
    let laid = judge::laid(&resolver.experiment, &[])?;
    let trial = resolver.trials(&laid.cells[0])?;
    let design = &resolver.experiment.design;
    let cells = laid.cells.len() as u64;
    let trials = cells.saturating_mul(design.repeats.into());
    let time = trial[0].duration_ns.as_u64().saturating_mul(trials);
    let by_itself = trial[0].workload.ends_by_itself();
    say.note(&format!(
        "{}: {}\n{} -> {} ({}): {} combinations ({}), each {} times in blocks of random order: {trials} trials{}",
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
            format!(", {} of moving bytes", seconds_in_words(time))
        },
    ));
    for words in resolver.changed_in_words()? {
        say.note(&format!("  {words}"));
    }
    for words in laid.confounding(&resolver.experiment) {
        say.note(&format!("  note: {words}"));
    }
    Ok(())
}

/// The experiment, as the command line changes it.
fn as_asked(args: &LabRunArgs) -> Outcome<Experiment> {
    let definition = definition::read(&args.experiment)?;
    let mut experiment = definition.experiment;
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
    experiment
        .check()
        .map_err(|error| Stop::new(Code::BadInput, error.to_string()))?;
    Ok(experiment)
}

/// A stop of a run that can go on later.
fn resumable(stop: Stop, folder: &FilePath) -> Stop {
    let goes_on = matches!(
        stop.code,
        Code::Interrupted | Code::PeerUnreachable | Code::TimeOut | Code::Resource
    );
    if !goes_on || stop.hint.is_some() {
        return stop;
    }
    stop.hint(format!(
        "`linerate lab resume {}` goes on",
        folder.display()
    ))
}

/// The peer of the command line, or of the experiment; none where neither names one.
fn peer_of(args: &LabRunArgs, experiment: &Experiment) -> Outcome<Option<PeerArgs>> {
    let peer = match (&args.peer, &experiment.peer.at) {
        (Some(peer), _) => peer.clone(),
        (None, Some(text)) => text
            .parse::<PeerAddress>()
            .map_err(|error| Stop::new(Code::BadInput, format!("`peer.at`: {error}")))?,
        (None, None) => return Ok(None),
    };
    Ok(Some(PeerArgs {
        peer,
        push: args.push,
        address: args.address,
        port: None,
    }))
}

/// Runs this command again between two hosts of its own.
fn between_own_hosts(interrupt: &Interrupt, say: &Say) -> Outcome<()> {
    say.note("no peer is named: two hosts are made in namespaces here, and vanish with the run");
    let mut command = again("stage")?;
    linerate_testbed::tie_to_parent(&mut command);
    wait_for(command, "stage", interrupt)
}

/// This program as it was started, as another step.
fn again(step: &str) -> Outcome<Command> {
    let own =
        std::env::current_exe().map_err(|error| Stop::io("find this program's own file", error))?;
    let mut command = Command::new(own);
    let words = std::env::args_os().skip(1);
    command.args(words.filter(|word| word != "--step=stage"));
    command.arg(format!("--step={step}"));
    Ok(command)
}

/// Makes two hosts, and runs the command between them, with the peer's name behind it where it takes one.
fn on_stage(peer: Option<&str>) -> Outcome<()> {
    // First of all, while this process has one thread.
    let stage = Stage::enter().map_err(|error| stage_stop(&error))?;
    let interrupt = Interrupt::listen()?;
    let (near, _far) = hosts(&stage)?;
    let mut command = again("inside")?;
    command.args(peer);
    enter(&near, &mut command)?;
    wait_for(command, "inside", &interrupt)
}

/// `lab resume`: the same experiment between the same ends, from where its record stops.
fn resume(folder: &FilePath, step: Option<LabStep>, state: &FilePath, say: &Say) -> Outcome<()> {
    if step == Some(LabStep::Stage) {
        return on_stage(None);
    }
    let stored = store::read(folder)?;
    let (experiment, include_way_in) = experiment_of(&stored)?;
    if judge::is_whole(&stored.records) {
        say.note("the run came to its end: there is nothing left to do");
        return show(folder, None, say);
    }
    if has_own_hosts(&stored) && step.is_none() {
        return between_own_hosts(&Interrupt::listen()?, say);
    }
    let mut run = Run::resume(folder)?;
    let header = &stored.header;
    let interrupt = Interrupt::listen()?;
    recover_first(state, say)?;
    let wrong = |error: String| Stop::new(Code::BadInput, format!("the run's peer: {error}"));
    let peer = PeerArgs {
        peer: header.peer.parse().map_err(wrong)?,
        push: false,
        address: header.address.parse().ok(),
        port: None,
    };
    let mut lanes = Lanes::open(&peer, experiment.beside.len(), state, &interrupt)?;
    if include_way_in {
        lanes.first.include_way_in();
    }
    let path = &lanes.first;
    if (&path.local_nic, &path.remote_nic) != (&header.local_nic, &header.remote_nic) {
        let why = format!(
            "the run went from {} to {}, and the way is from {} to {} now",
            header.local_nic, header.remote_nic, path.local_nic, path.remote_nic
        );
        return Err(Stop::new(Code::NotSupported, why).hint("begin another run"));
    }
    let resolver = Resolver::new(experiment.clone(), path.view());
    let asked = Asked {
        seed: header.seed,
        anyway: true,
    };
    let done = judge::trials_made(&stored.records);
    say.note(&format!("{} goes on after {done} trials", folder.display()));
    run.add(Record::Resumed {
        unix_s: now_unix_s(),
    })?;
    Session::new(&mut lanes, &mut run, &resolver, asked, say)
        .run()
        .map_err(|stop| resumable(stop, folder))?;
    lanes.leave()?;
    show(folder, Some(&folder.join(PAGE)), say)
}

/// The experiment of a run.
pub(crate) fn experiment_of(stored: &StoredRun) -> Outcome<(&Experiment, bool)> {
    let lab = stored.records.iter().find_map(|record| match record {
        Record::Lab {
            experiment,
            include_way_in,
            ..
        } => Some((&**experiment, *include_way_in)),
        _ => None,
    });
    lab.ok_or_else(|| {
        let why = format!("{} is no run of an experiment", stored.folder.display());
        Stop::new(Code::BadInput, why).hint("`linerate report` shows runs of `prove` and `demo`")
    })
}

/// Whether an experiment makes its own two hosts.
fn has_own_hosts(stored: &StoredRun) -> bool {
    let is_own = |record: &Record| {
        matches!(
            record,
            Record::Lab {
                own_hosts: true,
                ..
            }
        )
    };
    stored.records.iter().any(is_own)
}

/// Whether a stored run is one of an experiment.
pub(crate) fn is_lab(stored: &StoredRun) -> bool {
    experiment_of(stored).is_ok()
}

/// Judges a run of an experiment from its records, prints what they say, and writes its page.
pub fn show(folder: &FilePath, page: Option<&FilePath>, say: &Say) -> Outcome<()> {
    let stored = store::read(folder)?;
    if stored.torn {
        say.note("the run was cut off while it was written: its last record is left out");
    }
    experiment_of(&stored)?;
    let mut document = judge::document(&stored.header, &stored.records)?;
    document.run = Some(folder.display().to_string());
    document.report = page.map(|page| page.display().to_string());
    if let Some(page) = page {
        let hosts = stored.records.iter().find_map(|record| match record {
            Record::Hosts { local, remote } => Some((&**local, &**remote)),
            _ => None,
        });
        let text = report::lab_page(&document, &stored.header, hosts);
        store::write_whole(page, text.as_bytes())
            .map_err(|error| store::cannot_write(folder, error))?;
    }
    if !document.complete {
        say.note(&format!(
            "the run has not come to its end: `linerate lab resume {}` goes on",
            folder.display()
        ));
    }
    if say.format == Format::Json {
        say.json(&document)
    } else {
        say.data(&text::text(&document))
    }
}
