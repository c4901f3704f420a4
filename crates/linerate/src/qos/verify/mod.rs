//! `qos verify`: each class alone, all at once, and what each does to the others.
//!
//! Each class has its own session with the peer and sends as its traffic does: over its VLAN, with its priority, DSCP, mark
//! or port. A round is one trial of each class alone, one of all at once, one of the round trips of all while none sends, and
//! for each class one in which it sends beside the round trips of the others: in random order, so that the host's drift
//! cancels. Classes of this host are read every 20 ms while they send.

mod arms;
pub(crate) mod document;
mod observe;
mod sampler;
mod set_up;
mod text;

use std::path::Path;

use arms::{Arm, Kind, Part, WARM_UP};
use linerate_analysis::qos::{Round, Strayed, Verdict, overall};
use linerate_analysis::text::words::{count, seconds_in_words};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::Host;
use linerate_model::qos::Selector;
use linerate_model::sample::Sample;
use linerate_model::units::{BitRate, Nanoseconds};
use linerate_model::workload::{Direction, TrialSpec};
use linerate_runtime::cli::{NicArg, QosVerifyArgs};
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::random::{fresh_seed, fresh_token};
use linerate_runtime::console::say::{Format, Say};
use linerate_runtime::endpoint::local::LocalEndpoint;
use linerate_runtime::endpoint::nics::open_paths;
use linerate_runtime::endpoint::together::run_together;
use linerate_runtime::endpoint::trial::PeerPath;
use linerate_stats::{Random, Seed};
use observe::{ClassOf, Sent};
use sampler::{Readings, sampled};
use set_up::{SetUp, class_of, set_up};

/// Trials that only show whether the connections of a class are answered.
const PROBE: Nanoseconds = Nanoseconds::from_millis(50);

/// Measures whether the limits of a file hold.
pub(super) fn run(args: &QosVerifyArgs, state: &Path, say: &Say) -> Outcome<()> {
    let (_, qos) = super::file::read(&args.file)?;
    if args.peer.port.is_some() {
        let why =
            "`--port` cannot be used here: each class has its own connections at the same time";
        return Err(Stop::new(Code::Usage, why));
    }
    let interrupt = Interrupt::listen()?;
    let host = LocalEndpoint::open(state)?.read_host();
    let set_up = set_up(qos, &host)?;
    if set_up.qos.classes.is_empty() {
        return Err(Stop::new(
            Code::BadInput,
            "no class can send from this host",
        ));
    }
    let mut verify = Verify {
        paths: paths(&set_up, args, state, &interrupt, say)?,
        seed: args.seed.map_or_else(fresh_seed, Ok)?,
        directions: if args.bidir {
            vec![Direction::Forward, Direction::Reverse]
        } else {
            vec![Direction::Forward]
        },
        set_up,
        args,
    };
    verify.announce(say);
    verify.probe()?;
    let rounds = verify.rounds(&interrupt, say)?;
    interrupt.check()?;
    let document = document::document(&verify, &rounds);
    if say.format == Format::Json {
        say.json(&document)?;
    } else {
        say.lines(&text::text(&document))?;
    }
    let verdict = overall(document.all());
    for path in verify.paths {
        path.peer.leave_after_result(say)?;
    }
    match verdict {
        Verdict::Holds => Ok(()),
        Verdict::Fails => Err(Stop::new(Code::Regression, "a limit does not hold")),
        Verdict::CannotTell => Err(Stop::new(
            Code::Inconclusive,
            "the trials cannot show whether every limit holds",
        )),
    }
}

/// The path of each class, over its own VLAN or the interface itself.
fn paths(
    set_up: &SetUp,
    args: &QosVerifyArgs,
    state: &Path,
    interrupt: &Interrupt,
    say: &Say,
) -> Outcome<Vec<PeerPath>> {
    let classes = &set_up.qos.classes;
    let nics: Vec<NicArg> = classes
        .iter()
        .map(|class| match &class.vlan {
            Some(vlan) => NicArg {
                nic: vlan.device.clone(),
                address: None,
            },
            None => NicArg {
                nic: set_up.qos.interface.clone(),
                address: args.peer.reach.address,
            },
        })
        .collect();
    let mut paths = open_paths(&args.peer, &nics, state, interrupt, say)?;
    for (path, class) in paths.iter_mut().zip(classes) {
        if let (Selector::Ports(ports), false) = (&class.selector, args.udp) {
            path.port = ports.first().copied();
        }
    }
    Ok(paths)
}

/// The measurement.
pub(super) struct Verify<'a> {
    args: &'a QosVerifyArgs,
    set_up: SetUp,
    paths: Vec<PeerPath>,
    seed: u64,
    directions: Vec<Direction>,
}

/// The trials of an arm.
struct Done {
    arm: Arm,
    /// The sample of each class that had a part, with its number.
    samples: Vec<(usize, Sample)>,
    readings: Readings,
}

/// The rounds of one direction.
pub(super) struct Rounds {
    pub(super) direction: Direction,
    pub(super) rounds: Vec<Round>,
}

impl Verify<'_> {
    /// Announces what will happen and how long it takes.
    fn announce(&self, say: &Say) {
        for left_out in &self.set_up.left_out {
            say.note(left_out);
        }
        let names = self.set_up.expected.iter().map(|class| &*class.name);
        let names: Vec<&str> = names.collect();
        let arms = Arm::all(self.paths.len(), &self.directions).len();
        let each = self.args.time.as_u64().saturating_add(WARM_UP.as_u64());
        let total = each
            .saturating_mul(arms as u64)
            .saturating_mul(u64::from(self.args.rounds));
        say.note(&format!(
            "verifying the classes {} of {}: {} of {} in random order, {} in total, seed {}; Ctrl-C stops it without a result",
            names.join(", "),
            self.set_up.qos.interface,
            count(self.args.rounds as usize, "round"),
            count(arms, "trial"),
            seconds_in_words(Nanoseconds::new(total)),
            self.seed
        ));
    }

    fn spec(&self, at: usize, part: Part, direction: Direction) -> TrialSpec {
        let path = &self.paths[at];
        let limit = self.set_up.expected[at].limit_bit_per_s;
        let mtu = path
            .local
            .nic(&path.local_nic)
            .and_then(|nic| nic.mtu.get());
        arms::spec(
            part,
            &self.set_up.qos.classes[at],
            limit.and_then(BitRate::from_f64),
            direction,
            self.args,
            &path.local,
            mtu,
        )
    }

    /// A short trial of each class, so that one whose connections are not answered is named.
    fn probe(&mut self) -> Outcome<()> {
        for direction in self.directions.clone() {
            for at in 0..self.paths.len() {
                let short = TrialSpec {
                    duration_ns: PROBE,
                    interval_ns: PROBE,
                    omit_ns: None,
                    unrecorded: true,
                    ..self.spec(at, Part::Sends, direction)
                };
                let tried = self.paths[at].run(&short, fresh_token()?);
                let class = &self.set_up.expected[at].name;
                tried.map_err(|stop| Stop {
                    message: format!("class {class}: {}", stop.message),
                    ..stop
                })?;
            }
        }
        Ok(())
    }

    /// Makes round after round until there are enough, or it is to end early.
    fn rounds(&mut self, interrupt: &Interrupt, say: &Say) -> Outcome<Vec<Rounds>> {
        let mut random = Random::new(Seed(self.seed));
        let mut all: Vec<Rounds> = self
            .directions
            .iter()
            .map(|direction| Rounds {
                direction: *direction,
                rounds: Vec::new(),
            })
            .collect();
        for number in 0..self.args.rounds {
            let mut arms = Arm::all(self.paths.len(), &self.directions);
            random.shuffle(&mut arms);
            let mut round = Vec::with_capacity(arms.len());
            for arm in arms {
                let done = self.trial(arm);
                if interrupt.is_ending_early() {
                    return Err(Stop::interrupted());
                }
                round.push(done?);
            }
            for of in &mut all {
                of.rounds.push(self.round(of.direction, &round));
            }
            say.note(&format!(
                "round {} of {} done",
                number + 1,
                self.args.rounds
            ));
        }
        Ok(all)
    }

    /// The trials of one arm.
    fn trial(&mut self, arm: Arm) -> Outcome<Done> {
        let parts = (0..self.paths.len()).filter_map(|at| Some((at, arm.part(at)?)));
        let specs: Vec<(usize, TrialSpec)> = parts
            .map(|(at, part)| (at, self.spec(at, part, arm.direction)))
            .collect();
        let holders = self.set_up.holders.clone();
        let used = self.paths.iter_mut().enumerate().filter_map(|(at, path)| {
            let spec = specs.iter().find(|(own, _)| *own == at)?;
            Some((path, &spec.1))
        });
        let used: Vec<(&mut PeerPath, &TrialSpec)> = used.collect();
        let (samples, readings) = sampled(&holders, || run_together(used))?;
        let numbers = specs.iter().map(|(at, _)| *at);
        Ok(Done {
            arm,
            samples: numbers.zip(samples).collect(),
            readings,
        })
    }

    fn hosts(&self) -> (&Host, &Host) {
        (&self.paths[0].local, &self.paths[0].remote)
    }

    /// The trials of one direction as they are judged.
    fn round(&self, direction: Direction, done: &[Done]) -> Round {
        let classes = self.paths.len();
        let own = self.own_classes(direction, done);
        let find = |kind: Kind| {
            let arm = Arm { kind, direction };
            done.iter().find(|done| done.arm == arm)
        };
        let sent = |done: &Done, at: usize| -> Option<Sample> {
            let own = done.samples.iter().find(|(own, _)| *own == at)?;
            Some(own.1.clone())
        };
        let streamed = |kind: Kind, at: usize| {
            let done = find(kind)?;
            let sample = sent(done, at)?;
            let sent = self.sent(at, &sample, &own[at].0, &done.readings);
            let mut streamed = sent.streamed();
            if matches!(kind, Kind::Alone(_)) {
                streamed.strayed.clone_from(&own[at].1);
            }
            Some(streamed)
        };
        let probed = |kind: Kind, at: usize| {
            let done = find(kind)?;
            (done.arm.part(at)? == Part::Probes).then(|| observe::probed(&sent(done, at)?))?
        };
        let all = || 0..classes;
        Round {
            alone: all()
                .filter_map(|at| streamed(Kind::Alone(at), at))
                .collect(),
            // A class that is the only one is alone also when all send.
            together: if classes == 1 {
                streamed(Kind::Alone(0), 0).into_iter().collect()
            } else {
                all()
                    .filter_map(|at| streamed(Kind::Together, at))
                    .collect()
            },
            quiet: all().map(|at| probed(Kind::Quiet, at)).collect(),
            beside: all()
                .map(|sending| all().map(|at| probed(Kind::Beside(sending), at)).collect())
                .collect(),
        }
    }

    fn sent<'s>(
        &'s self,
        at: usize,
        sample: &'s Sample,
        own: &'s [ClassOf],
        readings: &'s Readings,
    ) -> Sent<'s> {
        Sent {
            set_up: &self.set_up,
            at,
            sample,
            own,
            readings,
            is_ipv6: self.paths[at].address.is_ipv6(),
            counted: self.args.time,
        }
    }

    /// The classes that count the bytes of each class of the file, and where its bytes passed if not through them. Where
    /// none has the number that linerate gives it, it is the one that most bytes of the class alone passed.
    fn own_classes(
        &self,
        direction: Direction,
        done: &[Done],
    ) -> Vec<(Vec<ClassOf>, Option<Strayed>)> {
        let (local, remote) = self.hosts();
        let none = Readings::default();
        let mut all: Vec<(Vec<ClassOf>, Option<Strayed>)> = Vec::new();
        let mut found: Vec<Option<ClassOf>> = Vec::new();
        for at in 0..self.paths.len() {
            let arm = Arm {
                kind: Kind::Alone(at),
                direction,
            };
            let trial = done.iter().find(|done| done.arm == arm);
            let sample = trial.and_then(|done| done.samples.first());
            let Some((_, sample)) = sample else {
                all.push((Vec::new(), None));
                found.push(None);
                continue;
            };
            let sent = self.sent(at, sample, &[], &none);
            let number = self.set_up.numbers[at];
            let numbered = self.set_up.holders.iter().filter_map(|name| {
                let class = class_of(local.nic(name)?, number)?;
                Some((name.clone(), class.handle))
            });
            let numbered: Vec<ClassOf> = numbered.collect();
            if numbered.is_empty() {
                let busiest = sent.busiest(local, remote);
                all.push((busiest.clone().into_iter().collect(), None));
                found.push(busiest);
            } else {
                all.push((numbered, sent.strayed(local, remote)));
                found.push(None);
            }
        }
        for at in 0..all.len() {
            let Some(class) = &found[at] else { continue };
            let another =
                (0..all.len()).find(|other| *other != at && all[*other].0.contains(class));
            if let Some(other) = another {
                let mut strayed = observe::into(&self.set_up, &class.0, class.1);
                if strayed.class.is_none() {
                    let name = &self.set_up.expected[other].name;
                    strayed.into = format!("{}, as that of class {name}", strayed.into);
                }
                strayed.class = Some(other);
                all[at].1 = Some(strayed);
            }
        }
        all
    }
}
