//! `bench/crash`: a transaction killed at every step of its writer, for every kind of setting a namespace has:
//! old or new, never a mix. README.md in `bench/` explains the output.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a developer's tool that talks to its terminal"
)]

mod boots;
mod guest;
mod host;
mod kinds;
mod meanwhile;
mod namespace;
mod power;
mod reach;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use linerate_bench_shared::{Trouble, exit_code, linerate_file, markdown, restart_as_stage};
use linerate_testbed::Stage;

use crate::guest::Guest;
use crate::host::Host;
use crate::kinds::{EARLIER, Kind};
use crate::meanwhile::{Clock, Meanwhile, build_clock};
use crate::namespace::Namespace;

/// More steps than any plan here has: past it, the end of the plan is not seen.
const STEPS_MAX: u32 = 2_000;
/// The deadline of the transactions that cut the host off.
const DEADLINE: Duration = Duration::from_secs(4);

/// Kills a transaction at every step and checks the settings that remain
#[derive(Debug, Parser)]
#[command(name = "bench/crash")]
struct Args {
    /// Only settings whose name contains this
    #[arg(long, default_value = "")]
    only: String,
    /// Run a mutant of linerate that omits a step; the score must get worse
    #[arg(long, value_enum)]
    mutant: Option<Mutant>,
    /// The linerate to kill, a debug build [default: the one next to this program]
    #[arg(long, value_name = "FILE")]
    linerate: Option<PathBuf>,
    /// Run in the virtual machine (a NIC's settings, all at once) instead of namespaces
    #[arg(long)]
    guest: bool,
    /// Cut the virtual machine's power this many times instead of killing processes
    #[arg(long, value_name = "COUNT")]
    power_cuts: Option<u32>,
    /// Boot the virtual machine this many times with the classes of `qos persist`
    #[arg(long, value_name = "COUNT", conflicts_with = "power_cuts")]
    boots: Option<u32>,
    /// Only the cases with concurrent changes to the interface or a wrong clock
    #[arg(long)]
    meanwhile: bool,
    /// Internal: the process that holds the namespaces
    #[arg(long, hide = true)]
    stage: bool,
}

/// What is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mutant {
    /// What puts records on stable storage.
    SkipSync,
    /// What the reverter writes.
    SkipUndo,
}

/// Who is killed, and what happens then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Death {
    /// The process that makes the changes; its reverter takes them back.
    Maker,
    /// The reverter; the maker takes them back.
    Reverter,
    /// Both; `recover` takes them back.
    Both,
    /// Both, and what was not on stable storage is lost.
    Power,
    /// The maker late, and the reverter while it rolls back.
    ReverterAtWork,
    /// Both late, and the recovery while it rolls back.
    Recovery,
    /// The undo of what is committed; `recover` completes it.
    Undo,
}

const DEATHS: [Death; 7] = [
    Death::Maker,
    Death::Reverter,
    Death::Both,
    Death::Power,
    Death::ReverterAtWork,
    Death::Recovery,
    Death::Undo,
];

impl Death {
    /// As the table names it.
    fn words(self) -> &'static str {
        match self {
            Self::Maker => "maker",
            Self::Reverter => "reverter",
            Self::Both => "both",
            Self::Power => "both, unsynced writes lost",
            Self::ReverterAtWork => "maker, then the reverter at work",
            Self::Recovery => "both, then the recovery at work",
            Self::Undo => "the undo after the commit",
        }
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = if let Some(count) = args.power_cuts {
        cut_power(&args, count)
    } else if let Some(count) = args.boots {
        boot(&args, count)
    } else if args.guest {
        kill_in_guest(&args)
    } else if args.stage {
        kill_in_namespace(&args)
    } else {
        restart_as_stage(true).map_err(|error| Trouble(format!("start the stage: {error}")))
    };
    exit_code(result)
}

/// Cuts the power; whether what is kept was old or new each time.
fn cut_power(args: &Args, count: u32) -> Result<bool, Trouble> {
    let linerate = linerate_file(args.linerate.as_deref()).map_err(Trouble)?;
    let begun = Instant::now();
    let score = power::cuts(&linerate, &mutant(args), count)?;
    println!(
        "\n{} power cuts: {} old, {} new, {} mixed, in {} s",
        score.tried,
        score.old,
        score.new,
        score.mixed,
        begun.elapsed().as_secs()
    );
    if score.mixed > 0 {
        println!("A mixed state was left: stopped.");
    }
    Ok(score.mixed == 0)
}

/// Boots with persistent classes; whether each made the same.
fn boot(args: &Args, count: u32) -> Result<bool, Trouble> {
    let linerate = linerate_file(args.linerate.as_deref()).map_err(Trouble)?;
    let begun = Instant::now();
    let equal = boots::boots(&linerate, count)?;
    let took = begun.elapsed().as_secs();
    println!("{count} boots: {equal} as before the first, in {took} s");
    Ok(equal == count)
}

fn mutant(args: &Args) -> String {
    let mutant = args.mutant.and_then(|mutant| mutant.to_possible_value());
    mutant.map_or_else(String::new, |value| value.get_name().to_owned())
}

/// The results of the kills of one row.
#[derive(Debug, Default, Clone, Copy)]
struct Score {
    tried: u32,
    old: u32,
    new: u32,
    mixed: u32,
}

impl Score {
    /// The cells of a row.
    fn counts(self) -> [String; 4] {
        [self.tried, self.old, self.new, self.mixed].map(|count| count.to_string())
    }

    fn add(&mut self, other: Self) {
        self.tried += other.tried;
        self.old += other.old;
        self.new += other.new;
        self.mixed += other.mixed;
    }
}

/// Kills on a host of namespaces; whether it was old or new each time, and never cut off for longer than it should.
fn kill_in_namespace(args: &Args) -> Result<bool, Trouble> {
    // First of all, while this process has one thread.
    let stage = Stage::enter().map_err(|error| Trouble(error.to_string()))?;
    let linerate = linerate_file(args.linerate.as_deref()).map_err(Trouble)?;
    let mut host = Namespace::make(&stage, &linerate)?;
    let kinds = changing(&mut host, &args.only)?;
    let mut plans: Vec<(String, Vec<Kind>)> = kinds
        .iter()
        .map(|kind| (kind.name.to_owned(), vec![*kind]))
        .collect();
    let whole = all_at_once(&kinds);
    if kinds.len() > 1 {
        plans.push(whole.clone());
    }
    let mut is_good = args.meanwhile || kill_everybody(&mut host, &plans, &mutant(args))?;
    // First: an interface that was moved or made again has no address.
    if is_good && args.only.is_empty() && args.mutant.is_none() && !args.meanwhile {
        for gap in reach::gaps(&mut host, DEADLINE)? {
            println!("{gap}");
            is_good &= gap.longest < DEADLINE;
        }
    }
    if is_good && args.only.is_empty() {
        is_good = kill_while_others_work(&mut host, &whole, &mutant(args))?
            && kill_by_a_wrong_clock(&mut host, &whole, &mutant(args))?;
    }
    Ok(is_good)
}

/// Kills in the virtual machine, where a look takes seconds: all settings are in one plan.
fn kill_in_guest(args: &Args) -> Result<bool, Trouble> {
    let linerate = linerate_file(args.linerate.as_deref()).map_err(Trouble)?;
    let mut guest = Guest::boot(&linerate)?;
    guest.set_up()?;
    let kinds = changing(&mut guest, &args.only)?;
    kill_everybody(&mut guest, &[all_at_once(&kinds)], &mutant(args))
}

fn all_at_once(kinds: &[Kind]) -> (String, Vec<Kind>) {
    (format!("all {} at once", kinds.len()), kinds.to_vec())
}

/// The kinds of settings that a plan would change on this host.
fn changing(host: &mut dyn Host, only: &str) -> Result<Vec<Kind>, Trouble> {
    let mut kinds = Vec::new();
    for kind in host.kinds().iter().filter(|kind| kind.name.contains(only)) {
        // With those before it: some are of a device that another one makes.
        let with_earlier: Vec<Kind> = kinds.iter().copied().chain([*kind]).collect();
        let file = host.plan(&with_earlier)?;
        let planned = host.run(&["tune", "plan", "--from", &file], &[])?;
        if planned.done && planned.said.contains(&format!("{}: ", kind.key)) {
            kinds.push(*kind);
        } else {
            eprintln!("skipped: {}: {}", kind.name, planned.said);
        }
    }
    if kinds.is_empty() {
        return Err(Trouble("change anything here".to_owned()));
    }
    Ok(kinds)
}

/// Everybody, in every plan; whether no mix was left.
fn kill_everybody(
    host: &mut dyn Host,
    plans: &[(String, Vec<Kind>)],
    mutant: &str,
) -> Result<bool, Trouble> {
    let deaths = host.deaths();
    let rows = plans.iter().flat_map(|(name, kinds)| {
        let row = move |&death| Row {
            name: name.clone(),
            kinds,
            death,
            meanwhile: Meanwhile::Nothing,
            clock: Vec::new(),
        };
        deaths.iter().map(row)
    });
    kill_in(host, rows, mutant)
}

/// Those who can die while other programs change the interface, or with a wrong clock: a power cut is independent
/// of both.
const BUT_POWER: [Death; 6] = [
    Death::Maker,
    Death::Reverter,
    Death::Both,
    Death::ReverterAtWork,
    Death::Recovery,
    Death::Undo,
];

/// Everybody, while the interface is renamed, moved or made again; whether no mix was left.
fn kill_while_others_work(
    host: &mut dyn Host,
    (name, kinds): &(String, Vec<Kind>),
    mutant: &str,
) -> Result<bool, Trouble> {
    let rows = Meanwhile::TO_INTERFACES.into_iter().flat_map(|meanwhile| {
        let row = move |death| Row {
            name: format!("{name}{}", meanwhile.words()),
            kinds,
            death,
            meanwhile,
            clock: Vec::new(),
        };
        BUT_POWER.into_iter().map(row)
    });
    kill_in(host, rows, mutant)
}

/// Everybody, by a clock that was set after an earlier transaction; whether no mix was left, and the earlier one could
/// then be undone.
fn kill_by_a_wrong_clock(
    host: &mut dyn Host,
    (name, kinds): &(String, Vec<Kind>),
    mutant: &str,
) -> Result<bool, Trouble> {
    let library = build_clock(host.linerate().1)?.display().to_string();
    let first = host.look()?;
    for clock in Clock::ALL {
        // Each plan is written to the same file.
        let earlier = host.plan(EARLIER)?;
        host.must(&["tune", "apply", "--no-confirm", "--from", &earlier], &[])?;
        let row = |death| Row {
            name: format!("{name}, {}", clock.words()),
            kinds,
            death,
            meanwhile: Meanwhile::Nothing,
            clock: clock.variables(&library).to_vec(),
        };
        if !kill_in(host, BUT_POWER.into_iter().map(row), mutant)? {
            return Ok(false);
        }
        host.must(&["tune", "undo"], &[])?;
        let now = host.look()?;
        if now != first {
            println!(
                "A mixed state was left by the earlier transaction:\n{}",
                difference(&first, &now)
            );
            return Ok(false);
        }
    }
    Ok(true)
}

/// What is changed, who dies, and what else happens.
struct Row<'a> {
    name: String,
    kinds: &'a [Kind],
    death: Death,
    meanwhile: Meanwhile,
    /// What the process that makes the changes sees of the time.
    clock: Vec<(&'a str, &'a str)>,
}

/// A table of these; whether no mix was left.
fn kill_in<'a>(
    host: &mut dyn Host,
    rows: impl Iterator<Item = Row<'a>>,
    mutant: &str,
) -> Result<bool, Trouble> {
    let begun = Instant::now();
    let columns = ["setting", "killed", ">tried", ">old", ">new", ">mixed"];
    print!("{}", markdown::head(&columns));
    let mut whole = Score::default();
    for row in rows {
        let score = try_all(host, &row, mutant)?;
        let counts = score.counts();
        let cells = [row.name.clone(), row.death.words().to_string()];
        print!("{}", markdown::row(cells.into_iter().chain(counts)));
        whole.add(score);
        if whole.mixed > 0 {
            println!("\nA mixed state was left: the host cannot be trusted, stopped.");
            return Ok(false);
        }
    }
    println!(
        "\n{} kills: {} old, {} new, {} mixed, in {} s\n",
        whole.tried,
        whole.old,
        whole.new,
        whole.mixed,
        begun.elapsed().as_secs()
    );
    Ok(true)
}

/// A death at every step, until the transaction outlives them.
fn try_all(host: &mut dyn Host, row: &Row<'_>, mutant: &str) -> Result<Score, Trouble> {
    let &Row {
        kinds,
        death,
        meanwhile,
        ..
    } = row;
    let file = host.plan(kinds)?;
    let apply = ["tune", "apply", "--no-confirm", "--from", &file];
    // The side effects of moving an interface do not count as a change.
    happen(host, meanwhile)?;
    let old = host.look()?;
    let steps = host.steps(&apply)?;
    host.must(&apply, &row.clock)?;
    happen(host, meanwhile)?;
    let new = host.look()?;
    host.must(&["tune", "undo"], &[])?;
    if host.look()? != old || new == old {
        return Err(Trouble(format!("change and roll back {kinds:?}")));
    }
    let mut score = Score::default();
    for step in 1..=STEPS_MAX {
        let (said, is_over) = kill(host, &apply, row, (step, steps), mutant)?;
        let now = host.look()?;
        score.tried += 1;
        if now == old {
            score.old += 1;
        } else if now == new {
            score.new += 1;
            host.run(&["tune", "undo"], &[])?;
            if host.look()? != old {
                score.mixed += 1;
                eprintln!("{death:?}, step {step}: new, and not rolled back");
            }
        } else {
            score.mixed += 1;
            eprintln!("{death:?}, step {step}: {said}\n{}", difference(&old, &now));
        }
        if is_over || score.mixed > 0 {
            return Ok(score);
        }
    }
    Err(Trouble(format!(
        "see the end of {kinds:?} after {STEPS_MAX} steps"
    )))
}

/// Does what the other program does, from beginning to end.
fn happen(host: &mut dyn Host, meanwhile: Meanwhile) -> Result<(), Trouble> {
    for script in [Some(meanwhile.begin()), meanwhile.end()]
        .into_iter()
        .flatten()
    {
        let ended = host.shell(script)?;
        if !ended.done {
            return Err(Trouble(format!("run `{script}`: {}", ended.said)));
        }
    }
    Ok(())
}

/// One death, and what rolls back afterwards; returns the last output, and whether the victim had lived.
fn kill(
    host: &mut dyn Host,
    apply: &[&str],
    row: &Row<'_>,
    (step, steps): (u32, u32),
    mutant: &str,
) -> Result<(String, bool), Trouble> {
    let &Row {
        death, meanwhile, ..
    } = row;
    let late = steps.saturating_sub(LATE);
    let crash = match death {
        Death::Maker => format!("maker:{step}:self"),
        Death::Reverter => format!("maker:{step}:reverter"),
        Death::Both | Death::Power => format!("maker:{step}:both"),
        Death::ReverterAtWork => format!("maker:{late}:self,reverter:{step}:self"),
        Death::Recovery => format!("maker:{late}:both"),
        Death::Undo => String::new(),
    };
    let mut judged = vec![("LINERATE_CRASH", &*crash), ("LINERATE_MUTANT", mutant)];
    if meanwhile != Meanwhile::Nothing {
        judged.push(("LINERATE_BEFORE_DEATH", meanwhile.begin()));
    }
    judged.extend(&row.clock);
    let mut ended = host.run(apply, &judged)?;
    // The steps of the second one to die are over when it lived.
    let mut is_over = step > steps;
    if is_over || death == Death::Undo {
        // No process died that would have handled it.
        host.shell(meanwhile.begin())?;
    }
    match death {
        Death::Maker | Death::Reverter if meanwhile == Meanwhile::Nothing => {
            return Ok((ended.said, is_over));
        }
        Death::Maker | Death::Reverter | Death::Both => {}
        Death::Power => namespace::lose_unsynced()
            .map_err(|error| Trouble(format!("cut the journals: {error}")))?,
        Death::ReverterAtWork => is_over = REVERTED.iter().any(|said| ended.said.contains(said)),
        Death::Recovery | Death::Undo => {
            let action = if death == Death::Undo {
                "undo"
            } else {
                "recover"
            };
            let crash = format!("recovery:{step}:self");
            let died = [("LINERATE_CRASH", &*crash)];
            ended = host.run(&["tune", action], &died)?;
            is_over = !ended.killed;
        }
    }
    if let Some(script) = meanwhile.end() {
        host.run(&["tune", "recover"], &[])?;
        host.shell(script)?;
    }
    ended = host.run(&["tune", "recover"], &[])?;
    Ok((ended.said, is_over))
}

/// The output of a reverter that lived.
const REVERTED: [&str; 2] = [
    "rolled back by the reverter",
    "not all changes could be rolled back",
];

/// How many of a transaction's last steps come after its last change: the commit's.
const LATE: u32 = 4;

fn difference(old: &str, now: &str) -> String {
    let lines = old.lines().zip(now.lines()).filter(|(old, now)| old != now);
    lines.fold(String::new(), |text, (old, now)| {
        format!("{text}  was {old}\n  is  {now}\n")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Args::command().debug_assert();
    }

    #[test]
    fn a_difference_names_the_lines_that_differ() {
        assert_eq!(difference("a\nb\n", "a\nc\n"), "  was b\n  is  c\n");
    }
}
