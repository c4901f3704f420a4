//! `bench/aa`: how often an experiment shows a difference where there is none. Factors whose levels are the same are
//! varied as any other would be, by real trials between two network namespaces; every effect that is shown is wrong.

#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a developer's tool that talks to its terminal"
)]

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use clap::Parser;
use linerate_bench_shared::running::tail;
use linerate_bench_shared::{StageArgs, Trouble, load, two_hosts};
use linerate_testbed::{Netns, Stage};
use serde_json::Value;

/// Factors of two equal levels: 16 combinations, 4 effects of one and 6 of two.
const FACTORS: usize = 4;
/// The share of effects that may be significant by chance, at the level of the intervals.
const STATED: f64 = 0.05;
/// In the folder that the stage covers with its own tmpfs: it vanishes with the stage.
const STATE: &str = "/run/netns/.aa";

/// A/A test: counts the significant differences between identical settings
#[derive(Debug, Parser)]
#[command(name = "bench/aa")]
struct Args {
    /// Minimum number of comparisons
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(10..=100_000))]
    comparisons: u32,
    /// Blocks per experiment
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(3..=1_000))]
    repeats: u32,
    /// Duration of each trial, in milliseconds
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(50..=10_000))]
    time: u64,
    #[command(flatten)]
    stage: StageArgs,
}

/// The totals over all experiments.
#[derive(Default)]
struct Count {
    effects: u32,
    shown: u32,
    shown_among_all: u32,
    experiments: u32,
    /// Experiments with any effect that is shown among all.
    wrong: u32,
}

fn main() -> ExitCode {
    let args = Args::parse();
    args.stage.exit_code(|| conduct(&args))
}

fn conduct(args: &Args) -> Result<bool, Trouble> {
    // First of all, while this process has one thread.
    let stage = Stage::enter().map_err(|error| Trouble(error.to_string()))?;
    let linerate = args.stage.linerate()?;
    let (near, _far) = two_hosts(&stage, ["10.83.0.1/24", "10.83.0.2/24"])?;
    let seed = args.stage.seed.unwrap_or_default();
    let each = FACTORS + FACTORS * (FACTORS - 1) / 2;
    let experiments = u64::from(args.comparisons).div_ceil(each as u64);
    let trials = experiments * u64::from(args.repeats) * (1 << FACTORS);
    eprintln!(
        "{experiments} experiments of {each} effects, {trials} trials of {} ms, {} minutes or more; seed {seed}; load \
         {}; Ctrl-C stops it",
        args.time,
        (trials * (args.time + 60)).div_ceil(60_000),
        load(),
    );
    let state = Path::new(STATE);
    let trouble = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| Trouble(format!("{what}: {error}"))
    };
    fs::create_dir_all(state).map_err(trouble("make the state folder"))?;
    let file = state.join("aa.toml");
    fs::write(&file, experiment(args)).map_err(trouble("write the experiment"))?;
    let mut count = Count::default();
    for number in 0..experiments {
        let document = run(&linerate, &near, &file, seed.wrapping_add(number))?;
        count.add(&document)?;
        eprintln!(
            "{:>4}: {} of {} effects significant",
            number + 1,
            count.shown,
            count.effects
        );
    }
    count.tell();
    Ok(count.holds())
}

/// Levels that differ by their names alone.
fn experiment(args: &Args) -> String {
    let text = format!(
        "title = \"A/A\"\nworkload = \"stream\"\nresponse = \"rate\"\n[options]\ntime = \"{}ms\"\n[design]\nrepeats = \
         {}\n",
        args.time, args.repeats
    );
    let factor = |number: usize| {
        format!(
            "[[factors]]\nname = \"f{number}\"\nlevels = [{{ name = \"a\" }}, {{ name = \"b\" }}]\n"
        )
    };
    let factors: Vec<String> = (0..FACTORS).map(factor).collect();
    text + &factors.concat()
}

fn run(linerate: &Path, near: &Netns, file: &Path, seed: u64) -> Result<Value, Trouble> {
    let out = Path::new(STATE).join("run");
    let _ = fs::remove_dir_all(&out);
    let mut command = Command::new(linerate);
    command
        .args([
            "--quiet", "--format", "json", "--state", STATE, "lab", "run",
        ])
        .arg(file)
        .args(["netns:far", "--seed", &seed.to_string(), "--out"])
        .arg(&out)
        .stdin(Stdio::null());
    let entered = near.enter_in_child(&mut command);
    entered.map_err(|error| Trouble(format!("enter a namespace: {error}")))?;
    let output = command
        .output()
        .map_err(|error| Trouble(format!("start linerate: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Trouble(format!("run an experiment: {}", tail(&said))));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| Trouble(format!("understand what linerate printed: {error}")))
}

impl Count {
    fn add(&mut self, document: &Value) -> Result<(), Trouble> {
        let effects = document["responses"][0]["effects"].as_array();
        let effects = effects.ok_or_else(|| Trouble("read the effects".to_owned()))?;
        let is = |key: &str| effects.iter().filter(|effect| effect[key] == true).count();
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        self.effects += number(effects.len());
        self.shown += number(is("shown"));
        self.shown_among_all += number(is("shown_among_all"));
        self.experiments += 1;
        self.wrong += u32::from(is("shown_among_all") > 0);
        Ok(())
    }

    fn tell(&self) {
        let line = |what: &str, of: u32, all: u32| {
            let (low, high) = wilson(of, all);
            println!(
                "{what}: {of} of {all}, {:.1} % [{:.1}, {:.1}]; stated: at most {:.0} %",
                f64::from(of) / f64::from(all.max(1)) * 100.0,
                low * 100.0,
                high * 100.0,
                STATED * 100.0
            );
        };
        line("significant effects", self.shown, self.effects);
        line(
            "experiments with a significant effect",
            self.wrong,
            self.experiments,
        );
    }

    /// Neither rate is shown to be above the stated one.
    fn holds(&self) -> bool {
        let above = |of, all| wilson(of, all).0 > STATED;
        !above(self.shown, self.effects) && !above(self.wrong, self.experiments)
    }
}

/// The 95 % interval of a share (E. B. Wilson, "Probable inference, the law of succession, and statistical inference",
/// Journal of the American Statistical Association 22, 1927).
fn wilson(of: u32, all: u32) -> (f64, f64) {
    const Z: f64 = 1.959_964;
    if all == 0 {
        return (0.0, 1.0);
    }
    let (n, share) = (f64::from(all), f64::from(of) / f64::from(all));
    let middle = share + Z * Z / (2.0 * n);
    let reach = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
    let whole = 1.0 + Z * Z / n;
    (
        ((middle - reach) / whole).max(0.0),
        ((middle + reach) / whole).min(1.0),
    )
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn the_interval_of_a_share_is_the_published_one() {
        // R: prop.test(20, 400, correct = FALSE)$conf.int
        let (low, high) = wilson(20, 400);
        assert!(
            (low - 0.032_605).abs() < 1e-4 && (high - 0.075_938).abs() < 1e-4,
            "{low} {high}"
        );
        assert_eq!(wilson(0, 0), (0.0, 1.0));
    }
}
