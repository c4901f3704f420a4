//! A path whose truth is known: it makes the full sample of a trial in microseconds, from a seed, with
//! effects of settings, noise, drift, outliers and a slow start that are all stated. What reads samples
//! (warm-up cut, intervals, effects, the session's loop) is proved against it.
//!
//! The model of one trial: `rate = min(base x factors of the settings in force, cap)` is the truth;
//! then, relative to it, drift with the number of the trial, normal noise between trials, and now and
//! then an outlier. Within a trial the rate rises linearly during `ramp` and stays, with normal noise
//! between readings.

use std::collections::{BTreeMap, BTreeSet};

use linerate_model::ids::CpuId;
use linerate_model::known::{Cause, Known};
use linerate_model::sample::{FlowRecord, Role, Sample, SideSample, TcpInfo, ThreadRecord};
use linerate_model::units::{BitRate, Bytes, Nanoseconds};
use linerate_model::workload::{Direction, Placement, TrialSpec};

use crate::TrafficError;
use crate::trial::{cpu_of_threads, elapsed};

/// A path that exists only as numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct SimulatedPath {
    /// Everything random comes from it and from the trial's number.
    pub seed: u64,
    /// The rate with no setting in force, in each direction.
    pub base: BitRate,
    /// What each setting does to the rate when it is in force: 0.7 takes 30 %, 1.1 adds 10 %.
    pub factors: BTreeMap<String, f64>,
    /// A shaper: the rate never gets above it, whatever the settings are.
    pub cap: Option<BitRate>,
    /// Standard deviation between trials, relative to the rate.
    pub noise_sd: f64,
    /// Standard deviation between the readings of a trial, relative to the rate.
    pub reading_noise_sd: f64,
    /// Change of the rate from one trial to the next, relative to the rate.
    pub drift_per_trial: f64,
    /// How often a trial is an outlier.
    pub outlier_probability: f64,
    /// What an outlier does to the rate.
    pub outlier_factor: f64,
    /// How long the rate rises at the start of a trial.
    pub ramp: Nanoseconds,
}

impl SimulatedPath {
    /// A path of `base` without any noise.
    pub fn exact(seed: u64, base: BitRate) -> Self {
        Self {
            seed,
            base,
            factors: BTreeMap::new(),
            cap: None,
            noise_sd: 0.0,
            reading_noise_sd: 0.0,
            drift_per_trial: 0.0,
            outlier_probability: 0.0,
            outlier_factor: 1.0,
            ramp: Nanoseconds::new(0),
        }
    }

    /// The truth: the steady rate of one direction with the settings of `active` in force. A setting
    /// without a factor has no effect.
    pub fn true_rate(&self, active: &BTreeSet<String>) -> BitRate {
        let factors = active.iter().filter_map(|name| self.factors.get(name));
        let rate = BitRate::from_f64(self.base.as_f64() * factors.product::<f64>());
        // A product that is not a rate is the tester's mistake: a path that lets nothing through.
        let rate = rate.unwrap_or_default();
        self.cap.map_or(rate, |cap| rate.min(cap))
    }

    /// Trial number `trial` of `spec` with the settings of `active` in force; the same every time.
    pub fn trial(
        &self,
        spec: &TrialSpec,
        active: &BTreeSet<String>,
        trial: u64,
    ) -> Result<Sample, TrafficError> {
        spec.check()?;
        let mut random = Random::new(self.seed, trial);
        let rate = self.true_rate(active).as_f64() * self.disturbance(&mut random, trial);
        let (mut local, mut remote) = (Vec::new(), Vec::new());
        for number in 0..crate::tcp::connections(spec) {
            let forward = match spec.direction {
                Direction::Forward => true,
                Direction::Reverse => false,
                Direction::Bidirectional => number < spec.flows,
            };
            let readings = self.readings(spec, rate / f64::from(spec.flows), &mut random);
            let sender = flow_record(spec, number, Role::Sender, &readings);
            let receiver = flow_record(spec, number, Role::Receiver, &readings);
            let (here, there) = if forward {
                (sender, receiver)
            } else {
                (receiver, sender)
            };
            local.push(here);
            remote.push(there);
        }
        Ok(Sample {
            spec: spec.clone(),
            local: side(local),
            remote: side(remote),
            shared_kernel: false,
            flags: Vec::new(),
        })
    }

    /// What this trial's rate is of the true one.
    fn disturbance(&self, random: &mut Random, trial: u64) -> f64 {
        let drift = 1.0 + self.drift_per_trial * to_f64(trial);
        let noise = 1.0 + self.noise_sd * random.normal();
        let outlier = if random.uniform() < self.outlier_probability {
            self.outlier_factor
        } else {
            1.0
        };
        // Noise so wide that a rate falls below nothing is cut off there.
        (drift * noise * outlier).max(0.0)
    }

    /// The counter of a flow of `rate` bit/s, read at every interval and at the end.
    fn readings(&self, spec: &TrialSpec, rate: f64, random: &mut Random) -> Readings {
        let (duration, interval) = (spec.duration_ns.as_u64(), spec.interval_ns.as_u64());
        let mut readings = Readings::default();
        let (mut bytes, mut then) = (0.0, 0u64);
        while then < duration {
            let now = then.saturating_add(interval).min(duration);
            let noise = (1.0 + self.reading_noise_sd * random.normal()).max(0.0);
            let seconds = self.full_rate_seconds(now) - self.full_rate_seconds(then);
            bytes += rate / 8.0 * seconds * noise;
            readings.at.push(Nanoseconds::new(now));
            readings.bytes.push(whole_bytes(bytes));
            then = now;
        }
        readings
    }

    /// How many seconds at the full rate move what passes from the start until `now`.
    fn full_rate_seconds(&self, now: u64) -> f64 {
        let (now, ramp) = (to_f64(now) / 1e9, self.ramp.as_secs_f64());
        if now < ramp {
            now * now / (2.0 * ramp)
        } else {
            now - ramp / 2.0
        }
    }
}

#[derive(Debug, Default)]
struct Readings {
    at: Vec<Nanoseconds>,
    bytes: Vec<Bytes>,
}

impl Readings {
    fn total(&self) -> Bytes {
        self.bytes.last().copied().unwrap_or_default()
    }
}

fn side(flows: Vec<FlowRecord>) -> SideSample {
    let threads: Vec<ThreadRecord> = flows.iter().map(thread_record).collect();
    SideSample {
        cpu: cpu_of_threads(&threads),
        elapsed_ns: elapsed(&flows),
        flows,
        threads,
        operations: None,
        counters: Known::not_asked("/proc"),
        profile: Known::not_asked("perf_event_open(2)"),
        interface: None,
        events: None,
        commands: Vec::new(),
    }
}

/// The thread of a simulated flow.
fn thread_record(flow: &FlowRecord) -> ThreadRecord {
    ThreadRecord {
        thread: flow.thread,
        role: flow.role,
        pinned_to: flow.pinned_to,
        seen_on: flow.pinned_to.into_iter().collect(),
        moves_seen: 0,
        memory_node: Known::not_asked("move_pages(2)"),
        user_ns: flow.user_ns,
        system_ns: flow.system_ns,
        voluntary_switches: 0,
        involuntary_switches: 0,
        polls_for: None,
        waited_for_cpu_ns: Known::Value(Nanoseconds::new(0)),
        minor_faults: 0,
        major_faults: 0,
    }
}

fn flow_record(spec: &TrialSpec, number: u32, role: Role, readings: &Readings) -> FlowRecord {
    let total = readings.total();
    let cpus = match role {
        Role::Sender => &spec.placement.sender_cpus,
        Role::Receiver => &spec.placement.receiver_cpus,
    };
    let pinned_to = Placement::cpu_of(cpus, (number % spec.flows) as usize);
    let nowhere = |what: &str| -> Known<CpuId> {
        Known::unknown(Cause::Absent, what, "a simulated flow runs on no CPU")
    };
    FlowRecord {
        flow: number,
        role,
        thread: number,
        at_ns: readings.at.clone(),
        bytes: readings.bytes.clone(),
        pinned_to,
        last_cpu: pinned_to.map_or_else(|| nowhere("getcpu(2)"), Known::Value),
        incoming_cpu: nowhere("getsockopt(SO_INCOMING_CPU)"),
        incoming_napi: Known::not_asked("getsockopt(SO_INCOMING_NAPI_ID)"),
        // Stated costs, so that a reader of CPU time has something to find: 0.02 s of user and 0.2 s
        // of system time per 10^9 bytes.
        user_ns: Nanoseconds::new(total.as_u64() / 50),
        system_ns: Nanoseconds::new(total.as_u64() / 5),
        tcp: Known::Value(tcp_info(spec, role, total)),
        copies: None,
        datagrams: None,
        drained: None,
        grid: None,
        verbs: None,
    }
}

/// A connection over a clean path of 50 us with a full-sized Ethernet frame.
fn tcp_info(spec: &TrialSpec, role: Role, total: Bytes) -> TcpInfo {
    const SEGMENT: u64 = 1448;
    let (sent, busy) = match role {
        Role::Sender => (total, spec.duration_ns),
        Role::Receiver => (Bytes::new(0), Nanoseconds::new(0)),
    };
    TcpInfo {
        rtt_ns: Nanoseconds::from_micros(60),
        rtt_min_ns: Nanoseconds::from_micros(50),
        snd_mss_bytes: Bytes::new(SEGMENT),
        cwnd_segments: 1_000,
        busy_ns: busy,
        rwnd_limited_ns: Nanoseconds::new(0),
        sndbuf_limited_ns: Nanoseconds::new(0),
        bytes_sent: sent,
        bytes_retransmitted: Bytes::new(0),
        segments_out: sent.as_u64().div_ceil(SEGMENT),
        retransmits: 0,
        delivery_rate_bit_per_s: BitRate::of(sent, spec.duration_ns).unwrap_or_default(),
        snd_wnd_bytes: Some(Bytes::mib(4)),
        congestion_control: Some(
            spec.congestion_control
                .clone()
                .unwrap_or_else(|| "cubic".to_owned()),
        ),
        timestamps: true,
        ..TcpInfo::default()
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "trial numbers and a day of nanoseconds stay below 2^53"
)]
fn to_f64(value: u64) -> f64 {
    value as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "never negative; a count beyond u64 saturates"
)]
fn whole_bytes(bytes: f64) -> Bytes {
    Bytes::new(bytes as u64)
}

/// SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable pseudorandom number generators").
struct Random(u64);

impl Random {
    fn new(seed: u64, trial: u64) -> Self {
        // One step each, so that neighboring trials share nothing.
        let mut random = Self(seed);
        random.0 = random.next() ^ trial;
        random.0 = random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to below 1.
    fn uniform(&mut self) -> f64 {
        to_f64(self.next() >> 11) / to_f64(1 << 53)
    }

    /// Mean 0, standard deviation 1 (Box and Muller 1958).
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}
