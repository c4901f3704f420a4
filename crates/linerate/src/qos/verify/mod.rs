//! `qos verify`: each class alone, all at once, and what each does to the others.
//!
//! Each class has its own session with the peer and sends as its traffic does: over its VLAN, with its priority, DSCP, mark
//! or port. A round is one trial of each class alone, one of all at once, one of the round trips of all while none sends, and
//! for each class one in which it sends beside the round trips of the others: in random order, so that the host's drift
//! cancels. Classes of this host are read every 20 ms while they send. Each trial is stored (`crate::kept`), and the verdict is
//! computed from the trials (`judged`), also of a stored run (`stored`).

mod arms;
mod configuration;
pub(crate) mod document;
mod judged;
mod kept;
mod observe;
mod sampler;
mod set_up;
pub(crate) mod stored;
mod text;

use std::path::Path;

use arms::WARM_UP;
use document::QosDocument;
use judged::Judged;
use linerate_analysis::qos::Verdict;
use linerate_analysis::qos::verification::{Arm, ArmTrial, Part, Verification};
use linerate_analysis::record::{Header, Record, RunKind, SCHEMA};
use linerate_analysis::text::words::{count, seconds_in_words};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::Host;
use linerate_model::peer_address::PeerAddress;
use linerate_model::qos::{QosClass, Selector};
use linerate_model::sample::Flag;
use linerate_model::units::{BitRate, Nanoseconds};
use linerate_model::workload::{Direction, TrialSpec};
use linerate_runtime::cli::{NicArg, QosVerifyArgs};
use linerate_runtime::console::clock::now_unix_s;
use linerate_runtime::console::command_line::command_line;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::random::{fresh_seed, fresh_token};
use linerate_runtime::console::say::{Format, Say};
use linerate_runtime::endpoint::local::LocalEndpoint;
use linerate_runtime::endpoint::nics::open_paths;
use linerate_runtime::endpoint::together::run_together;
use linerate_runtime::endpoint::trial::PeerPath;
use linerate_stats::{Random, Seed};
use sampler::sampled;
use set_up::{SetUp, set_up};

use crate::kept::Kept;

/// Trials that only show whether the connections of a class are answered.
const PROBE: Nanoseconds = Nanoseconds::from_millis(50);

/// Measures whether the limits of a file hold.
pub(super) fn run(args: &QosVerifyArgs, state: &Path, say: &Say) -> Outcome<()> {
    let (file, qos) = super::file::read(&args.file)?;
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
    let began_unix_s = now_unix_s();
    let paths = paths(&set_up, args, state, &interrupt, say)?;
    let asked = asked(args, file, &set_up, &paths);
    let remote = paths[0].remote.clone();
    let mut verify = Verify {
        seed: args.seed.map_or_else(fresh_seed, Ok)?,
        trials: Vec::new(),
        paths,
        asked,
        set_up,
        host,
        remote,
        args,
    };
    let header = verify.header(began_unix_s);
    let first = kept::first(&verify.judged());
    let mut kept = Kept::new(&args.store, (state, say), (RunKind::Qos, header), first)?;
    verify.announce(say);
    let early = say.clone();
    interrupt.keep_what_was_measured(move || early.note("ending early; Ctrl-C again aborts"));
    let ended = verify
        .probe()
        .and_then(|()| verify.rounds(&interrupt, &mut kept, say));
    // The second Ctrl-C: no result.
    interrupt.check()?;
    let is_early = interrupt.is_ending_early();
    let stopped = match ended {
        _ if is_early => Some(Stop::interrupted()),
        Err(stop) if verify.trials.is_empty() => return Err(stop),
        ended => ended.err(),
    };
    let document = document::document(&verify.judged(), verify.seed, stopped.is_some());
    if say.format == Format::Json {
        say.json(&document)?;
    } else {
        say.lines(&text::text(&document))?;
    }
    kept.end(kept::last(&verify.judged(), &document), stopped.as_ref());
    if is_early {
        let (rounds, trials) = (document.rounds, verify.trials.len());
        let (rounds, trials) = (count(rounds, "complete round"), count(trials, "trial"));
        // There is a result: no error.
        say.note(&format!(
            "interrupted: the result is that of {rounds}, {trials}"
        ));
        return Err(Stop::interrupted().already_told());
    }
    stopped.map_or(Ok(()), Err)?;
    for path in verify.paths {
        path.peer.leave_after_result(say)?;
    }
    outcome(&document)
}

/// The exit code of a whole verification.
fn outcome(document: &QosDocument) -> Outcome<()> {
    match document.verdict {
        Verdict::Holds => Ok(()),
        Verdict::Fails => Err(Stop::new(Code::Regression, "a limit does not hold")),
        Verdict::CannotTell | Verdict::NotTried => Err(Stop::new(
            Code::Inconclusive,
            "the trials cannot show whether every limit holds",
        )),
    }
}

/// What is stored of the command line, with what it reaches.
fn asked(args: &QosVerifyArgs, file: String, set_up: &SetUp, paths: &[PeerPath]) -> Verification {
    let classes = set_up.expected.iter().map(|class| class.name.clone());
    Verification {
        file,
        flows: args.flows,
        time_ns: args.time,
        rounds: args.rounds,
        within: args.within,
        udp: args.udp,
        verbs: args.verbs,
        directions: if args.bidir {
            vec![Direction::Forward, Direction::Reverse]
        } else {
            vec![Direction::Forward]
        },
        classes: classes.collect(),
        addresses: paths.iter().map(|path| path.address).collect(),
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
    without_ports(classes, &args.peer.peer)?;
    open_paths(&args.peer, &nics, state, interrupt, say)
}

/// A listening agent takes the connections of all classes at one port: they could not be distinguished by it.
fn without_ports(classes: &[QosClass], peer: &PeerAddress) -> Outcome<()> {
    let PeerAddress::Tls { at, .. } = peer else {
        return Ok(());
    };
    for class in classes {
        if let Selector::Ports(_) = &class.selector {
            let why = format!(
                "cannot verify class {} with {peer}: a listening agent takes the data of all classes at its own port {}",
                class.name, at.port
            );
            let hint = "name the peer by ssh, whose agent listens at a port of the class";
            return Err(Stop::new(Code::BadInput, why).hint(hint));
        }
    }
    Ok(())
}

/// The port at the peer of the connections of `class`; none for any. Datagrams have the port of the class at this end.
fn port_of(class: &QosClass, part: Part, args: &QosVerifyArgs) -> Option<u16> {
    let Selector::Ports(ports) = &class.selector else {
        return None;
    };
    let is_own = args.udp && part == Part::Sends;
    ports.first().copied().filter(|_| !is_own)
}

/// The measurement.
struct Verify<'a> {
    args: &'a QosVerifyArgs,
    asked: Verification,
    set_up: SetUp,
    paths: Vec<PeerPath>,
    /// This host and the peer, as they were before the first trial.
    host: Host,
    remote: Host,
    seed: u64,
    trials: Vec<ArmTrial>,
}

impl Verify<'_> {
    fn judged(&self) -> Judged<'_> {
        Judged {
            asked: &self.asked,
            set_up: &self.set_up,
            local: &self.host,
            remote: &self.remote,
            trials: &self.trials,
        }
    }

    /// The header of its run.
    fn header(&self, created_unix_s: u64) -> Header {
        let path = &self.paths[0];
        Header {
            schema: SCHEMA.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            created_unix_s,
            command: command_line(),
            seed: self.seed,
            trials: self.asked.rounds,
            peer: self.args.peer.peer.to_string(),
            local_nic: self.set_up.qos.interface.clone(),
            remote_nic: path.remote_nic.clone(),
            address: path.address.to_string(),
            copy_bit_per_s: None,
        }
    }

    /// Announces what will happen and how long it takes.
    fn announce(&self, say: &Say) {
        for note in self.set_up.left_out.iter().chain(&self.set_up.unread) {
            say.note(note);
        }
        let names = self.set_up.expected.iter().map(|class| &*class.name);
        let names: Vec<&str> = names.collect();
        let arms = Arm::all(self.paths.len(), &self.asked.directions).len();
        let each = self.args.time.as_u64().saturating_add(WARM_UP.as_u64());
        let total = each
            .saturating_mul(arms as u64)
            .saturating_mul(u64::from(self.args.rounds));
        say.note(&format!(
            "verifying the classes {} of {}: {} of {} in random order, {} in total, seed {}; Ctrl-C ends it early",
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
        for direction in self.asked.directions.clone() {
            for at in 0..self.paths.len() {
                let short = TrialSpec {
                    duration_ns: PROBE,
                    interval_ns: PROBE,
                    omit_ns: None,
                    unrecorded: true,
                    ..self.spec(at, Part::Sends, direction)
                };
                let class = &self.set_up.qos.classes[at];
                self.paths[at].port = port_of(class, Part::Sends, self.args);
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
    fn rounds(&mut self, interrupt: &Interrupt, kept: &mut Kept<'_>, say: &Say) -> Outcome<()> {
        let mut random = Random::new(Seed(self.seed));
        for number in 0..self.args.rounds {
            let mut arms = Arm::all(self.paths.len(), &self.asked.directions);
            random.shuffle(&mut arms);
            for arm in arms {
                let trial = self.trial(number, arm);
                if interrupt.is_ending_early() && !trial.as_ref().is_ok_and(is_whole) {
                    return Ok(());
                }
                let trial = trial?;
                kept.add(|| Record::QosTrial(Box::new(trial.clone())));
                self.trials.push(trial);
            }
            say.note(&format!(
                "round {} of {} done",
                number + 1,
                self.args.rounds
            ));
        }
        Ok(())
    }

    /// The trials of one arm.
    fn trial(&mut self, round: u32, arm: Arm) -> Outcome<ArmTrial> {
        let parts = (0..self.paths.len()).filter_map(|at| Some((at, arm.part(at)?)));
        let specs: Vec<(usize, TrialSpec)> = parts
            .map(|(at, part)| (at, self.spec(at, part, arm.direction)))
            .collect();
        let holders = self.set_up.holders.clone();
        let (classes, args) = (&self.set_up.qos.classes, self.args);
        let used = self.paths.iter_mut().enumerate().filter_map(|(at, path)| {
            let spec = specs.iter().find(|(own, _)| *own == at)?;
            path.port = port_of(classes.get(at)?, arm.part(at)?, args);
            Some((path, &spec.1))
        });
        let used: Vec<(&mut PeerPath, &TrialSpec)> = used.collect();
        let (samples, readings) = sampled(&holders, || run_together(used))?;
        let numbers = specs.iter().map(|(at, _)| *at);
        Ok(ArmTrial {
            round,
            arm,
            samples: numbers.zip(samples).collect(),
            readings,
        })
    }
}

/// Whether all trials of an arm ran for their whole time.
fn is_whole(trial: &ArmTrial) -> bool {
    let mut flags = trial.samples.iter().flat_map(|(_, sample)| &sample.flags);
    !flags.any(|flag| *flag == Flag::CutShort)
}
