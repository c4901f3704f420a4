//! `measure stream --ladder`: every send and receive mode, compared.
//!
//! Rounds of one trial of each mode, in random order, so that the host's drift cancels out of the
//! ratios. A mode that the kernel or the device refuses has the reason instead of figures, and the others
//! go on.

mod rung;
mod text;

use std::path::Path as FilePath;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use linerate_analysis::record::Measurement;
use linerate_analysis::text::words::seconds_in_words;
use linerate_analysis::trial::LEVEL;
use linerate_analysis::trial::figure::Figures;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::peer_address::PeerAddress;
use linerate_model::sample::Sample;
use linerate_model::units::{BitRate, Bytes, Nanoseconds};
use linerate_model::workload::{Direction, ReceiveMode, SendMode, Stream, TrialSpec, Workload};
use linerate_runtime::cli::{MeasureStream, ReceiveArg, SendArg};
use linerate_runtime::console::clock::now_unix_s;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::random::{fresh_seed, fresh_token};
use linerate_runtime::console::say::{Format, Say};
use linerate_runtime::endpoint::ends::Ends;
use linerate_runtime::endpoint::trial::{PeerPath, open_path};
use linerate_stats::sequential::{is_look, level_at_look, number_of_looks};
use linerate_stats::{Random, Seed};
use rung::{RatioToPlain, Rung, Trial};
use serde::Serialize;

use super::OutputOptions;
use super::document::{self, BothEnds, EndPlacement, HostLine};
use super::keep::{self, Between};
use super::live::confirm_early_end;
use super::measured::Measured;
use super::{EarlyEnd, is_whole};
use crate::measure::trial_spec::{self, placed};

/// The default duration of each trial: there are many of them.
const TIME: Nanoseconds = Nanoseconds::from_millis(2_000);
/// The default number of rounds.
const ROUNDS: u32 = 3;
/// With fewer rounds a ratio has no interval.
const ROUNDS_MIN: u32 = 3;
/// The rounds of the first look with `--until-ci`. With three, the t of two degrees of freedom is so wide that only
/// equal ratios end there.
const FIRST_LOOK: usize = 5;
/// More would take too long.
const ROUNDS_MAX: u32 = 1_000;

/// How payload is sent and received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PayloadMode {
    send: SendMode,
    receive: ReceiveMode,
}

/// What every other mode is compared with.
const PLAIN: PayloadMode = PayloadMode {
    send: SendMode::Write,
    receive: ReceiveMode::Read,
};

impl PayloadMode {
    /// The plain mode, each other send mode, each other receive mode.
    fn all() -> Vec<Self> {
        let sends = SendArg::value_variants().iter().map(|&send| Self {
            send: send.into(),
            ..PLAIN
        });
        let receives = ReceiveArg::value_variants().iter().map(|&receive| Self {
            receive: receive.into(),
            ..PLAIN
        });
        let others = sends.chain(receives).filter(|way| *way != PLAIN);
        std::iter::once(PLAIN).chain(others).collect()
    }

    fn in_words(self) -> String {
        if self == PLAIN {
            "write, read".to_owned()
        } else if self.send == PLAIN.send {
            format!("receive {}", self.receive)
        } else {
            format!("send {}", self.send)
        }
    }
}

/// When there are enough rounds.
#[derive(Debug, Clone, Copy)]
enum Enough {
    /// After so many.
    Rounds(u32),
    /// When at a look half the interval of every ratio is at most this part of it, or the time is over.
    Certain(f64, Duration),
}

impl Enough {
    /// The level of an interval after this many rounds: with repeated looks, one that holds at all of them together.
    fn level(self, rounds: u32) -> f64 {
        match self {
            Self::Rounds(_) => LEVEL,
            Self::Certain(..) => level_at_look(LEVEL, number_of_looks(FIRST_LOOK, rounds as usize)),
        }
    }
}

/// The trials so far.
#[derive(Debug)]
struct Ladder {
    spec: TrialSpec,
    seed: u64,
    enough: Enough,
    keeps_raw: bool,
    trials: Vec<Trial>,
    /// What is stored of each mode.
    results: Vec<Measurement>,
    refused: Vec<(PayloadMode, Stop)>,
}

/// Carries out `measure stream --ladder`.
pub(super) fn run(
    args: &MeasureStream,
    state: &FilePath,
    output: OutputOptions<'_>,
) -> Outcome<()> {
    let say = output.say;
    let Some(peer) = args.peer.peer() else {
        return Err(Stop::new(Code::Usage, "`--ladder` needs a linerate peer"));
    };
    let asked = trial_spec::stream(&args.stream, args.bytes, TIME)?;
    let interrupt = Interrupt::listen()?;
    let mut path = open_path(&peer, state, &interrupt, say)?;
    let asked = placed(&args.stream.trial, asked, path.view())?;
    let enough = match args.until.until_ci {
        Some(asked) => Enough::Certain(asked, args.until.max_time.into()),
        None => Enough::Rounds(args.comparison.rounds.unwrap_or(ROUNDS)),
    };
    let mut ladder = Ladder {
        seed: args.comparison.seed.map_or_else(fresh_seed, Ok)?,
        spec: asked,
        enough,
        keeps_raw: say.format == Format::Json,
        trials: Vec::new(),
        results: Vec::new(),
        refused: Vec::new(),
    };
    let began_unix_s = now_unix_s();
    ladder.announce(&path, &peer.peer, say);
    confirm_early_end(&interrupt, say, None);
    let ended = ladder.climb(&mut path, &interrupt, say);
    // The second Ctrl-C: no result.
    interrupt.check()?;
    let early = interrupt.is_ending_early();
    let rungs = ladder.rungs();
    if ladder.trials.is_empty() {
        // No figure: then the error of the plain mode is more useful than an empty table.
        ended?;
        if early {
            return Err(Stop::interrupted());
        }
        let plain = ladder.refused.iter().position(|(way, _)| *way == PLAIN);
        return Err(ladder.refused.swap_remove(plain.unwrap_or(0)).1);
    }
    let stopped = match &ended {
        Err(stop) => Some(stop.to_string()),
        Ok(()) => early.then(|| Stop::interrupted().to_string()),
    };
    if say.format == Format::Json {
        say.json(&document(&ladder, &path, &rungs, stopped))?;
    } else {
        say.lines(&text::text(&ladder, &path, &rungs))?;
    }
    let between = || Between::ends(&path, &peer, None);
    let mut results = std::mem::take(&mut ladder.results);
    let labels: Vec<String> = PayloadMode::all()
        .into_iter()
        .map(PayloadMode::in_words)
        .collect();
    results.sort_by_key(|one| {
        labels
            .iter()
            .position(|label| one.label.as_ref() == Some(label))
    });
    output.keep.keep(began_unix_s, between, results, &[]);
    ended?;
    path.peer.leave_after_result(say)?;
    if early {
        return EarlyEnd::at(ladder.counted()).or(say, || Ok(()));
    }
    match enough {
        Enough::Certain(asked, _) if !are_certain(&rungs, asked) => Err(Stop::new(
            Code::Inconclusive,
            "`--max-time` expired before every ratio reached the requested precision",
        )
        .hint("raise `--max-time`, or use longer trials with `--time`")),
        _ => Ok(()),
    }
}

/// Whether every ratio that can have one has an interval as narrow as was requested.
fn are_certain(rungs: &[Rung], asked: f64) -> bool {
    rungs
        .iter()
        .filter(|rung| rung.refused.is_none() && rung.way != PLAIN)
        .all(|rung| {
            let width = rung.ratio.and_then(RatioToPlain::half_width);
            width.is_some_and(|width| width <= asked)
        })
}

impl Ladder {
    /// Announces what will happen and how long it takes.
    fn announce(&self, path: &PeerPath, peer: &PeerAddress, say: &Say) {
        let ways = PayloadMode::all().len();
        let each = self.spec.duration_ns;
        let most = if self.spec.workload.ends_by_itself() {
            "at most "
        } else {
            ""
        };
        let whole = match self.enough {
            Enough::Rounds(rounds) => {
                let trials = u64::from(rounds) * ways as u64;
                let time = Nanoseconds::new(each.as_u64().saturating_mul(trials));
                let rounds = rounds_in_words(rounds);
                format!(
                    "{rounds} in random order, {most}{} in total",
                    seconds_in_words(time)
                )
            }
            Enough::Certain(asked, _) => format!(
                "rounds in random order until each ratio is within +-{:.2} %",
                asked * 100.0
            ),
        };
        say.note(&format!(
            "measuring the copy ladder over {} to {} ({peer}): {ways} modes, {whole} (trials of \
             {most}{}), seed {}; Ctrl-C ends it early",
            path.local_nic,
            path.address,
            seconds_in_words(each),
            self.seed,
        ));
    }

    /// Makes round after round until there are enough, or it is to end early.
    fn climb(&mut self, path: &mut PeerPath, interrupt: &Interrupt, say: &Say) -> Outcome<()> {
        let mut random = Random::new(Seed(self.seed));
        let begun = Instant::now();
        for round in 0..ROUNDS_MAX {
            if self.is_enough(round, begun) {
                break;
            }
            let mut order = PayloadMode::all();
            random.shuffle(&mut order);
            for way in order {
                if self.refused.iter().any(|(refused, _)| *refused == way) {
                    continue;
                }
                let sample = self.trial(path, way);
                if interrupt.is_ending_early() && !self.trials.is_empty() && !is_whole(&sample) {
                    return Ok(());
                }
                self.take(path, round, way, sample, say)?;
                if interrupt.is_ending_early() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn is_enough(&self, rounds: u32, begun: Instant) -> bool {
        let all_refused = self.refused.len() == PayloadMode::all().len();
        all_refused
            || match self.enough {
                Enough::Rounds(asked) => rounds >= asked,
                Enough::Certain(asked, time) => {
                    // As long again as a round took so far, at least.
                    let next = begun.elapsed() + begun.elapsed() / rounds.max(1);
                    let is_look = is_look(FIRST_LOOK, rounds as usize);
                    (rounds >= ROUNDS_MIN && next > time)
                        || (is_look && are_certain(&self.rungs(), asked))
                }
            }
    }

    /// One trial of one mode.
    fn trial(&self, path: &mut PeerPath, way: PayloadMode) -> Outcome<Sample> {
        let stream = match &self.spec.workload {
            Workload::Stream(stream) => stream.clone(),
            _ => Stream::default(),
        };
        let spec = TrialSpec {
            workload: Workload::Stream(Stream {
                send: way.send,
                receive: way.receive,
                ..stream
            }),
            ..self.spec.clone()
        };
        path.run(&spec, fresh_token()?)
    }

    /// Keeps what a trial gave; a refusal is an outcome, too.
    fn take(
        &mut self,
        path: &PeerPath,
        round: u32,
        way: PayloadMode,
        sample: Outcome<Sample>,
        say: &Say,
    ) -> Outcome<()> {
        let told = match sample {
            Ok(sample) => {
                let trial = self.kept(path, round, way, sample);
                let rate = trial.rate_bit_per_s.and_then(BitRate::from_f64);
                self.trials.push(trial);
                rate.map_or_else(|| "rate unknown".to_owned(), |rate| rate.to_string())
            }
            Err(stop) if is_refusal(&stop) => {
                let told = format!("refused: {}", stop.message);
                self.refused.push((way, stop));
                told
            }
            Err(stop) => return Err(stop),
        };
        say.note(&format!("round {}: {}: {told}", round + 1, way.in_words()));
        Ok(())
    }

    fn kept(&mut self, path: &PeerPath, round: u32, way: PayloadMode, sample: Sample) -> Trial {
        // No bound by copies: some of these modes do not copy.
        let measured = Measured::over_path(path, sample, None);
        let label = way.in_words();
        let mut results = self.results.iter_mut();
        if let Some(result) = results.find(|one| one.label.as_ref() == Some(&label)) {
            result.figures.add(&measured.sample);
        } else {
            let sample = measured.sample.clone();
            let result = keep::of_sample(Some(label), sample, Figures::default(), None, None);
            self.results.push(result);
        }
        Trial::new(round, way, measured.rate, measured.sample, self.keeps_raw)
    }

    /// How many trials there are, in words.
    fn counted(&self) -> String {
        let rounds = rounds_in_words(self.rounds());
        match &self.trials[..] {
            // The only trial that may be a part of one.
            [one] => format!("1 trial, {:.1} s", one.seconds),
            all => format!("{} trials in {rounds}", all.len()),
        }
    }

    /// The rounds that were begun.
    fn rounds(&self) -> u32 {
        let last = self.trials.iter().map(|trial| trial.round).max();
        last.map_or(0, |round| round + 1)
    }

    fn rungs(&self) -> Vec<Rung> {
        let refused = |way: PayloadMode| {
            let mut all = self.refused.iter();
            all.find(|(refused, _)| *refused == way)
                .map(|(_, stop)| stop.message.clone())
        };
        let level = self.enough.level(self.rounds());
        PayloadMode::all()
            .into_iter()
            .map(|way| Rung::new(way, &self.trials, refused(way), level, Seed(self.seed)))
            .collect()
    }
}

fn rounds_in_words(rounds: u32) -> String {
    match rounds {
        1 => "1 round".to_owned(),
        more => format!("{more} rounds"),
    }
}

/// Whether only this mode is unavailable; if the peer is gone, the next request reports it.
fn is_refusal(stop: &Stop) -> bool {
    matches!(
        stop.code,
        Code::NotSupported | Code::PermissionMissing | Code::Resource | Code::FailedRestored
    )
}

/// What `linerate measure stream PEER --ladder --format json` prints: a comparison of all copy modes. Everything except
/// `trials[].raw` can be recomputed from that.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct LadderDocument<'a> {
    schema: &'static str,
    #[cfg_attr(test, schemars(extend("enum" = ["stream"])))]
    workload: &'static str,
    #[cfg_attr(test, schemars(extend("enum" = ["tcp"])))]
    transport: &'static str,
    /// forward: from here to the peer.
    direction: Direction,
    /// Connections, in each direction.
    flows: u32,
    buffer_bytes: Bytes,
    /// The wait mode of the threads (`--wait`).
    waiting: String,
    placement: BothEnds<Option<EndPlacement>>,
    /// The length of each trial; the maximum if an amount was given.
    seconds: f64,
    /// The seed of the order of modes in each round, and of the intervals.
    seed: u64,
    /// The number of rounds that were started.
    rounds: u32,
    /// Whether the device that sent the payload has a wire. Without one, sender and receiver share a kernel.
    over_wire: Option<bool>,
    /// Plain write and read first.
    ways: &'a [Rung],
    /// Why the comparison ended early.
    stopped: Option<String>,
    hosts: BothEnds<HostLine<'a>>,
    /// Every trial, in the order in which they ran.
    trials: &'a [Trial],
}

fn document<'a>(
    ladder: &'a Ladder,
    path: &'a PeerPath,
    rungs: &'a [Rung],
    stopped: Option<String>,
) -> LadderDocument<'a> {
    let spec = &ladder.spec;
    LadderDocument {
        schema: "linerate.ladder/1",
        workload: spec.workload.name(),
        transport: spec.transport(),
        direction: spec.direction,
        flows: spec.flows,
        buffer_bytes: spec.buffer_bytes,
        waiting: spec.waiting.to_string(),
        placement: document::placement(spec),
        seconds: spec.duration_ns.as_secs_f64(),
        seed: ladder.seed,
        rounds: ladder.rounds(),
        over_wire: over_wire(path),
        ways: rungs,
        stopped,
        hosts: BothEnds {
            local: HostLine::from(&path.local),
            remote: HostLine::from(&path.remote),
        },
        trials: &ladder.trials,
    }
}

/// Whether the payload left this host by a device that has a wire.
fn over_wire(path: &PeerPath) -> Option<bool> {
    path.local_interface().map(|nic| nic.kind.has_wire())
}

#[cfg(test)]
mod tests {
    use rung::tests::trial;

    use super::*;

    /// A ladder of this many rounds of the plain mode and one other, every other mode refused.
    fn ladder(enough: Enough, rounds: u32, other: impl Fn(u32) -> f64) -> Ladder {
        let [plain, measured, rest @ ..] = &PayloadMode::all()[..] else {
            panic!("there are more than two ways");
        };
        let trials = (0..rounds).flat_map(|round| {
            [
                trial(round, *plain, 10.0),
                trial(round, *measured, other(round)),
            ]
        });
        let refused = |way: &PayloadMode| (*way, Stop::new(Code::NotSupported, "not here"));
        Ladder {
            spec: TrialSpec::default(),
            seed: 1,
            enough,
            keeps_raw: false,
            trials: trials.collect(),
            results: Vec::new(),
            refused: rest.iter().map(refused).collect(),
        }
    }

    #[test]
    fn rounds_go_on_until_every_ratio_is_certain_at_a_look_or_the_time_is_over() {
        let (now, hour) = (Instant::now(), Duration::from_secs(3_600));
        let certain = Enough::Certain(0.01, hour);
        let alike = |_| 12.0;
        let ends =
            |rounds: u32| (0..rounds).filter(|n| ladder(certain, *n, alike).is_enough(*n, now));
        assert_eq!(ends(20).collect::<Vec<_>>(), [5, 7, 10, 14, 19]);
        let noisy = |round| 12.0 + f64::from(round);
        assert!(!ladder(certain, 5, noisy).is_enough(5, now));
        let over = Enough::Certain(0.01, Duration::ZERO);
        assert!(ladder(over, 3, noisy).is_enough(3, now));
        assert!(
            !ladder(over, 2, noisy).is_enough(2, now),
            "the fewest come first"
        );
        assert!(ladder(Enough::Rounds(2), 2, noisy).is_enough(2, now));
    }

    #[test]
    fn intervals_that_may_end_the_rounds_are_wider_than_those_of_a_planned_number() {
        let noisy = |round| 12.0 + f64::from(round % 3) * 0.1;
        let width = |enough| {
            let rungs = ladder(enough, 7, noisy).rungs();
            rungs[1].ratio.and_then(RatioToPlain::half_width)
        };
        let planned = width(Enough::Rounds(7)).expect("an interval");
        let looked = width(Enough::Certain(0.01, Duration::ZERO)).expect("an interval");
        assert!(looked > 1.3 * planned, "{looked}, {planned}");
    }
}
