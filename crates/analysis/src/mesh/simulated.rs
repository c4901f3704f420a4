//! A mesh with known truth: hosts, pairs and groups of planted rates, and noise of several kinds. The tests and
//! `bench/mesh` judge it by the code that judges real ones.

use std::collections::BTreeSet;

use linerate_model::mesh::{
    Failure, Flow, HostIndex, HostState, MeshHost, Observation, Outcome, Pattern, Retransmits,
    Round, Schedule, ScheduleOptions, Stage, Step,
};
use linerate_model::units::Nanoseconds;
use linerate_stats::{Random, Seed};

use super::{
    Gathered, MeshDocument, MeshSetup, RateUnit, Screening, Verdict, judge, mesh_schedule, screen,
};

/// How rates scatter. Each has about the same standard deviation, in the middle of its distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noise {
    /// Independent, normal on the scale of logarithms.
    Normal,
    /// Independent, Student's t with two degrees of freedom: no variance.
    HeavyTails,
    /// Normal, and each twentieth trial loses up to half of its rate.
    Outliers,
    /// A host's trials resemble those before them (an autoregressive process, 0.7), as under work that comes and goes.
    Autocorrelated,
    /// Normal, and all trials of a round share half of the variance.
    Rounds,
}

impl Noise {
    /// All kinds.
    pub const ALL: [Self; 5] = [
        Self::Normal,
        Self::HeavyTails,
        Self::Outliers,
        Self::Autocorrelated,
        Self::Rounds,
    ];
}

/// What is wrong with a mesh.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// A host sends at this factor of the rate.
    Send(HostIndex, f64),
    /// A host receives at this factor.
    Receive(HostIndex, f64),
    /// One direction between two hosts has this factor.
    Direction(HostIndex, HostIndex, f64),
    /// Random loss at a host: less on both sides, and varying.
    Loss(HostIndex),
    /// This share of the segments from and to a host is lost, and the rate is not lower.
    Retransmits(HostIndex, f64),
    /// Bulk data of one direction disappears.
    BlackHole(HostIndex, HostIndex),
    /// Hosts send and receive at this factor.
    Group(Vec<HostIndex>, f64),
    /// Pairs with one host within and one outside have this factor.
    Uplink(Vec<HostIndex>, f64),
    /// A host is gone from this round on.
    Killed(HostIndex, u32),
}

/// A mesh that can be measured.
#[derive(Debug, Clone)]
pub struct SimulatedMesh {
    /// The hosts.
    pub hosts: Vec<MeshHost>,
    /// What is wrong with them.
    pub faults: Vec<Fault>,
    /// How rates scatter.
    pub noise: Noise,
    /// The standard deviation of the logarithm of a rate.
    pub scale: f64,
    /// The standard deviation of the hosts' own rates, which differ a little between hosts of one type.
    pub hosts_scale: f64,
}

/// What a simulated mesh showed.
#[derive(Debug, Clone)]
pub struct SimulatedRun {
    /// The first part.
    pub screening: Screening,
    /// The verdict.
    pub verdict: Verdict,
    /// Which hosts were lost.
    pub states: Vec<HostState>,
    /// The first part's results.
    pub first: Gathered,
    /// The retest's results.
    pub retest: Option<Gathered>,
    /// The rounds of both parts.
    pub rounds: usize,
}

/// The rate of a healthy pair.
const RATE: f64 = 50e6;
const CORRELATION: f64 = 0.7;
/// Those of 300 ms at this rate.
const SEGMENTS: u32 = 1_300;

/// What a mesh keeps from one round to the next.
struct Weather {
    random: Random,
    send: Vec<f64>,
    receive: Vec<f64>,
    own: Vec<f64>,
}

impl SimulatedMesh {
    /// Hosts without a fault.
    pub fn clean(hosts: usize, noise: Noise, scale: f64) -> Self {
        let hosts = (0..hosts).map(|number| MeshHost::named(format!("h{number}")));
        Self {
            hosts: hosts.collect(),
            faults: Vec::new(),
            noise,
            scale,
            hosts_scale: 0.005,
        }
    }

    /// Measures a pattern, retests its suspects, and judges.
    pub fn run(&self, pattern: &Pattern, seed: Seed) -> SimulatedRun {
        let count = self.hosts.len();
        let mut random = Random::new(seed);
        let mut normal = |scale: f64| (0..count).map(|_| scale * random.normal()).collect();
        let (send, receive) = (normal(self.scale), normal(self.scale));
        let own = normal(self.hosts_scale);
        let mut weather = Weather {
            random,
            send,
            receive,
            own,
        };
        let options = ScheduleOptions {
            steps: vec![Step::Forward, Step::Reverse],
            repeats: 1,
        };
        let planned = |pattern: &Pattern, seed| {
            mesh_schedule(pattern, &self.hosts, &options, seed).expect("a schedule for these hosts")
        };
        let schedule = planned(pattern, seed);
        let first = self.measure(&schedule, 0, &mut weather);
        let mut states = self.states(schedule.len());
        let is_lost = |states: &[HostState]| -> Vec<bool> {
            states
                .iter()
                .map(|state| *state != HostState::Joined)
                .collect()
        };
        let screening = screen(&self.hosts, &is_lost(&states), &first);
        let mut rounds = schedule.len();
        let retest = screening.retest().map(|retest| {
            let schedule = planned(&Pattern::Suspects(retest), Seed(seed.0 ^ 1));
            let gathered = self.measure(&schedule, rounds, &mut weather);
            rounds += schedule.len();
            gathered
        });
        states = self.states(rounds);
        let verdict = judge(&screening, &first, retest.as_ref(), &is_lost(&states));
        SimulatedRun {
            screening,
            verdict,
            states,
            first,
            retest,
            rounds,
        }
    }

    /// Measures a pattern, retests its suspects, and makes the document.
    pub fn document(&self, pattern: &Pattern, seed: Seed) -> (MeshDocument, SimulatedRun) {
        let run = self.run(pattern, seed);
        let setup = MeshSetup {
            pattern: pattern.to_string(),
            workload: "stream".to_owned(),
            unit: RateUnit::BitPerSecond,
            time_ns: Nanoseconds::from_millis(1_000),
            seed: seed.0,
            rounds: run.rounds,
            stopped: None,
            clocks: Vec::new(),
            requirements: Vec::new(),
        };
        let document = MeshDocument::of(
            setup,
            &self.hosts,
            &run.states,
            &run.first,
            run.retest.as_ref(),
        );
        (document, run)
    }

    fn states(&self, rounds: usize) -> Vec<HostState> {
        let mut states = vec![HostState::Joined; self.hosts.len()];
        for fault in &self.faults {
            if let Fault::Killed(host, round) = fault
                && (*round as usize) < rounds
            {
                states[host.position()] = HostState::Unreached {
                    stage: Stage::Round,
                    round: Some(*round),
                    cause: "the connection was reset".to_owned(),
                };
            }
        }
        states
    }

    fn measure(&self, schedule: &Schedule, offset: usize, weather: &mut Weather) -> Gathered {
        let mut gathered = Gathered::default();
        for round in schedule.rounds() {
            let number = round.number + u32::try_from(offset).unwrap_or(u32::MAX);
            self.next_round(weather);
            let shared = match self.noise {
                Noise::Rounds => self.scale * weather.random.normal() / 2_f64.sqrt(),
                _ => 0.0,
            };
            self.measure_round(&round, number, shared, weather, &mut gathered);
        }
        gathered
    }

    fn next_round(&self, weather: &mut Weather) {
        if self.noise != Noise::Autocorrelated {
            return;
        }
        let step = self.scale * (1.0 - CORRELATION * CORRELATION).sqrt();
        for value in weather.send.iter_mut().chain(&mut weather.receive) {
            *value = CORRELATION * *value + step * weather.random.normal();
        }
    }

    fn measure_round(
        &self,
        round: &Round,
        number: u32,
        shared: f64,
        weather: &mut Weather,
        gathered: &mut Gathered,
    ) {
        for flow in &round.flows {
            let reversed = Flow {
                from: flow.to,
                to: flow.from,
                ..*flow
            };
            let back = flow.is_bidirectional.then_some(reversed);
            for flow in std::iter::once(*flow).chain(back) {
                let outcome = self.outcome(&flow, number, shared, weather);
                gathered.add(&Observation {
                    round: number,
                    step: round.step,
                    from: flow.from,
                    to: flow.to,
                    role: flow.role,
                    outcome,
                });
            }
        }
    }

    fn outcome(&self, flow: &Flow, round: u32, shared: f64, weather: &mut Weather) -> Outcome {
        let mut log = RATE.ln() + shared + self.scatter(flow, weather);
        log += weather.own[flow.from.position()] + weather.own[flow.to.position()];
        for fault in &self.faults {
            match fault {
                Fault::Send(host, factor) if flow.from == *host => log += factor.ln(),
                Fault::Receive(host, factor) if flow.to == *host => log += factor.ln(),
                Fault::Direction(from, to, factor) if (flow.from, flow.to) == (*from, *to) => {
                    log += factor.ln();
                }
                Fault::Group(hosts, factor) => {
                    let ends = [flow.from, flow.to].into_iter();
                    // The slower end decides.
                    if ends.filter(|end| hosts.contains(end)).count() > 0 {
                        log += factor.ln();
                    }
                }
                Fault::Uplink(hosts, factor)
                    if hosts.contains(&flow.from) != hosts.contains(&flow.to) =>
                {
                    log += factor.ln();
                }
                Fault::Loss(host) if flow.from == *host || flow.to == *host => {
                    // CUBIC at 0.5 % loss: about a third of the rate is left, give or take.
                    log += -0.8 + 0.3 * weather.random.normal();
                }
                Fault::BlackHole(from, to) if (flow.from, flow.to) == (*from, *to) => {
                    return failed(Failure::Stalled, "no data arrived");
                }
                Fault::Killed(host, from)
                    if round >= *from && (flow.from == *host || flow.to == *host) =>
                {
                    return if round == *from {
                        failed(Failure::Broken, "the connection was reset")
                    } else {
                        let cause = "the host is gone".to_owned();
                        Outcome::NotTried { cause }
                    };
                }
                _ => {}
            }
        }
        Outcome::Measured {
            rate: log.exp(),
            latency_ns_p99: None,
            retransmits: Some(self.retransmits(flow, &mut weather.random)),
        }
    }

    /// One flow in ten has a burst of retransmissions; those of a fault are a Poisson count (J. H. Ahrens and U. Dieter,
    /// "Computer generation of Poisson deviates", ACM TOMS 8(2), 1982, its product of uniform values).
    fn retransmits(&self, flow: &Flow, random: &mut Random) -> Retransmits {
        let lost = self.faults.iter().find_map(|fault| match fault {
            Fault::Retransmits(host, share) if flow.from == *host || flow.to == *host => {
                Some(*share)
            }
            _ => None,
        });
        let burst = if random.unit() < 0.1 {
            random.below(12)
        } else {
            0
        };
        let mut retransmitted = u32::try_from(burst).unwrap_or(0);
        let limit = (-lost.unwrap_or(0.0) * f64::from(SEGMENTS)).exp();
        let mut product = random.unit();
        while product > limit {
            retransmitted += 1;
            product *= random.unit();
        }
        Retransmits {
            segments: SEGMENTS,
            retransmitted,
        }
    }

    fn scatter(&self, flow: &Flow, weather: &mut Weather) -> f64 {
        let random = &mut weather.random;
        let normal = self.scale * random.normal();
        match self.noise {
            Noise::Normal => normal,
            Noise::Rounds => normal / 2_f64.sqrt(),
            Noise::HeavyTails => {
                // Student's t: a normal value over the root of a chi-squared one with two degrees of freedom.
                let chi = -(1.0 - random.unit()).ln();
                (normal / chi.sqrt()).clamp(-3.0, 3.0)
            }
            Noise::Outliers => {
                let is_outlier = random.unit() < 0.05;
                let loss = if is_outlier { 0.5 * random.unit() } else { 0.0 };
                normal + (1.0 - loss).ln()
            }
            Noise::Autocorrelated => {
                let hosts =
                    weather.send[flow.from.position()] + weather.receive[flow.to.position()];
                (normal + hosts) / 3_f64.sqrt()
            }
        }
    }
}

fn failed(failure: Failure, cause: &str) -> Outcome {
    Outcome::Failed {
        failure,
        cause: cause.to_owned(),
    }
}

/// The hosts of a group with these numbers.
pub fn members(numbers: std::ops::Range<u32>) -> Vec<HostIndex> {
    let unique: BTreeSet<u32> = numbers.collect();
    unique.into_iter().map(HostIndex).collect()
}
