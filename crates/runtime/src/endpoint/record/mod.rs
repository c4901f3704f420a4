//! One end of a trial, recorded: the traffic engine's own account, the machine's counters,
//! its CPUs over time and, if requested, a profile.
//!
//! The counters are read before the gate opens and after the last thread has ended, so that the trial is
//! neither longer nor disturbed; what is read meanwhile (`/proc/stat`, frequencies) is read once a second or
//! less often, by a thread that keeps off the trial's CPUs. Where both ends are on one kernel, what belongs
//! to the machine (CPUs, softnet, context switches, page faults) is of both.

mod frr;

use std::net::IpAddr;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use linerate_host::counters::{CpuCounters, read_frequency};
use linerate_host::events::{FlowHops, Recorder, clocks};
use linerate_host::netlink::Netlink;
use linerate_host::profile::{Profiler, Samples};
use linerate_host::root::{HostRoot, LiveHost};
use linerate_host::watch::Reading;
use linerate_host::watch::scope::WatchScope;
use linerate_model::failover::events::{EVENTS_MAX, HostEvents};
use linerate_model::ids::{CpuId, CpuSet, NicName};
use linerate_model::known::{Cause, Gap, Known};
use linerate_model::protocol::{Failure, FailureKind};
use linerate_model::sample::{CpuFrequency, CpuStep, CpuTimes, Profile, SideSample};
use linerate_model::units::Nanoseconds;
use linerate_model::watch::Watch;
use linerate_model::workload::{TrialSpec, Verbs};
use linerate_traffic::tcp::Connected;
use linerate_traffic::{Abort, TrafficError, cpu_time_of_this_thread};
use rustix::thread::{CpuSet as Affinity, sched_setaffinity};

use self::frr::Frr;
use crate::endpoint::place::allowed_here;

/// With more counters than this, those that did not change are omitted from the record.
const COUNTERS_MAX: usize = 256;
/// A longer trial needs no finer steps of its CPU series than [`LONG_STEP`].
const LONG: Duration = Duration::from_secs(120);
const LONG_STEP: Duration = Duration::from_secs(5);
const SHORT_STEP: Duration = Duration::from_secs(1);
/// Maximum size of the CPU series, steps times CPUs: about 2 MiB of a record.
const SERIES_MAX: u128 = 16_384;
/// Minimum interval between readings of frequencies, and the maximum number of CPUs.
const BEAT_MIN: Duration = Duration::from_millis(50);
const FREQUENCIES_MAX: usize = 64;

/// Runs one end of a trial and adds the machine's readings of that time.
pub fn record_side(
    connected: Connected,
    spec: &TrialSpec,
    abort: &Abort,
) -> Result<SideSample, Failure> {
    let addresses = (connected.local_address(), connected.peer_address());
    let hops = spec.events.then(FlowHops::open);
    let run = || {
        connected.carry_out_with(abort, &|one| {
            if let Some(hops) = &hops {
                hops.add(one.flow, (one.local, one.peer));
            }
        })
    };
    let settle = |side: &mut SideSample| connected.settle(side, abort);
    let recorded = record_settled(spec, addresses, None, run, settle);
    drop(connected);
    let mut side = recorded?;
    if let (Some(events), Some(hops)) = (&mut side.events, hops) {
        hops.close(events);
    }
    Ok(side)
}

/// Runs this end of a trial of `spec`, whatever moves its bytes, and adds the machine's readings of that time.
/// `address` is this end's own of the data connections: it determines the interface. `step` is the resolution of the
/// CPU series; by default a second, five of a long trial, and no finer than the intervals.
pub fn record(
    spec: &TrialSpec,
    address: Option<IpAddr>,
    step: Option<Duration>,
    run: impl FnOnce() -> Result<SideSample, TrafficError>,
) -> Result<SideSample, Failure> {
    record_settled(spec, (address, None), step, run, |_| ())
}

/// The same; `settle` waits for data in flight when `run` has ended, before the counters are read
/// again.
fn record_settled(
    spec: &TrialSpec,
    (address, peer): (Option<IpAddr>, Option<IpAddr>),
    step: Option<Duration>,
    run: impl FnOnce() -> Result<SideSample, TrafficError>,
    settle: impl FnOnce(&mut SideSample),
) -> Result<SideSample, Failure> {
    if spec.unrecorded {
        return unrecorded(run, settle);
    }
    let events = spec.events.then(|| Recorder::start(peer));
    let frr = spec.events.then(Frr::start);
    let begun = cpu_time_of_this_thread();
    let live = LiveHost::open().map_err(|error| Failure {
        kind: FailureKind::Other,
        message: format!("cannot open the root directory: {error}"),
    })?;
    let root = live.root();
    let machine = Machine::look(root, spec, address);
    let beside = CpuSampler {
        root,
        step: step.unwrap_or_else(|| step_of(spec, machine.online.len())),
        duration: spec.duration_ns.into(),
        data: asked_for(spec),
        online: machine.online.clone(),
    };
    // Started by this thread, before the data threads: if only this process may be profiled, they are
    // profiled.
    let profiler = spec
        .profile_hz
        .map(|hz| Profiler::start(root, &machine.online, hz));
    let before = machine.read();
    let ready = cpu_time_of_this_thread();
    let (mut side, seen, ended) = beside.run(run);
    if let Ok(side) = &mut side {
        settle(side);
    }
    let over = cpu_time_of_this_thread();
    let after = machine.read();
    let samples = profiler.map(|profiler| profiler.map(Profiler::stop));
    let events = events.map(recorded_events);
    let frr = frr.map(Frr::finish).unwrap_or_default();
    let mut side = side.map_err(|error| Failure::from(&error))?;
    side.cpu.machine = times_between(&before, &after);
    side.cpu.series = seen.series(ended, side.elapsed_ns);
    side.cpu.frequency = seen.frequency;
    side.counters = watch_between(&before, &after);
    side.interface = machine.interface();
    side.events = events.map(|events| {
        let trial_began_ns = began(ended, side.elapsed_ns);
        let mut gaps = events.gaps;
        gaps.extend(frr.gaps);
        let mut all = events.events;
        let room = EVENTS_MAX.saturating_sub(all.len());
        all.extend(frr.changes.into_iter().take(room));
        all.sort_by_key(|event| event.at_ns);
        Box::new(HostEvents {
            trial_began_ns,
            timers: frr.timers,
            events: all,
            gaps,
            ..events
        })
    });
    // The engine has counted its own readings. Resolving a profile's symbols is not part of recording.
    let before = ready.saturating_sub(begun);
    let own = before + cpu_time_of_this_thread().saturating_sub(over) + seen.took;
    let engines = side.cpu.recording_ns;
    side.cpu.recording_ns = engines.map(|time| (Duration::from(time) + own).into());
    side.profile = named(root, samples, &receiving(&machine.online, &side.counters));
    Ok(side)
}

/// The events of a recorder; why there are none is a gap.
fn recorded_events(recorder: std::io::Result<Recorder>) -> HostEvents {
    recorder.map_or_else(
        |error| HostEvents {
            gaps: vec![Gap::new(
                Cause::Unreadable,
                "pthread_create(3), eventfd(2)",
                error.to_string(),
            )],
            ..HostEvents::default()
        },
        Recorder::stop,
    )
}

/// When a trial began that lasted for `elapsed` and whose last thread ended at `ended`, on `CLOCK_MONOTONIC`.
fn began(ended: Instant, elapsed: Nanoseconds) -> Option<Nanoseconds> {
    let now = Duration::from(clocks().monotonic_ns);
    let began = now.checked_sub(ended.elapsed() + Duration::from(elapsed));
    began.map(Nanoseconds::from)
}

/// Moves the bytes, and marks everything else as not requested.
fn unrecorded(
    run: impl FnOnce() -> Result<SideSample, TrafficError>,
    settle: impl FnOnce(&mut SideSample),
) -> Result<SideSample, Failure> {
    let mut side = run().map_err(|error| Failure::from(&error))?;
    settle(&mut side);
    let gap = |path: &str| Gap::new(Cause::NotAsked, path, "recording is off for this trial");
    side.cpu.machine = Known::Unknown(gap("/proc/stat"));
    side.cpu.frequency = Known::Unknown(gap("/sys/devices/system/cpu"));
    side.counters = Known::Unknown(gap("rtnetlink, /proc/net, /proc/interrupts"));
    Ok(side)
}

fn named(root: &HostRoot, samples: Option<Known<Samples>>, receiving: &CpuSet) -> Known<Profile> {
    let asked = samples.unwrap_or_else(|| Known::not_asked("perf_event_open(2)"));
    asked.map(|samples| samples.name(root, receiving))
}

/// The CPUs whose softirqs handled at least 1 % of the received packets: fewer are other traffic of the host.
fn receiving(online: &CpuSet, counters: &Known<Watch>) -> CpuSet {
    let Known::Value(watch) = counters else {
        return CpuSet::default();
    };
    let handled = |cpu: CpuId| {
        let key = format!("cpu/{cpu}/softnet/processed");
        watch.grown(&key).get().unwrap_or(0)
    };
    let all: u64 = online.iter().map(handled).sum();
    let much = |cpu: &CpuId| handled(*cpu) > all / 100;
    online.iter().filter(much).collect()
}

/// The CPUs that the placement names; none if it names none.
fn asked_for(spec: &TrialSpec) -> CpuSet {
    let placement = &spec.placement;
    let all = placement.sender_cpus.iter();
    all.chain(placement.receiver_cpus.iter()).collect()
}

/// The RDMA devices that the trial names; both ends know which of them is theirs.
fn named_devices(verbs: &Verbs) -> Vec<&str> {
    let choices = [&verbs.local, &verbs.remote];
    choices
        .into_iter()
        .filter_map(|choice| choice.device.as_deref())
        .collect()
}

/// The resolution of the series of `cpus` CPUs.
fn step_of(spec: &TrialSpec, cpus: usize) -> Duration {
    let duration = Duration::from(spec.duration_ns);
    let usual = if duration > LONG {
        LONG_STEP
    } else {
        SHORT_STEP
    };
    let readings = duration.as_nanos().saturating_mul(cpus.max(1) as u128);
    let bounded = u64::try_from(readings / SERIES_MAX).unwrap_or(u64::MAX);
    usual
        .max(Duration::from(spec.interval_ns))
        .max(Duration::from_nanos(bounded))
}

/// The data source for the readings before and after.
struct Machine<'a> {
    root: &'a HostRoot,
    /// The counters to read, and the reader.
    way: Known<(WatchScope, Netlink)>,
    online: CpuSet,
}

/// The machine's counters at one point in time.
struct Moment {
    cpus: Known<CpuCounters>,
    counters: Known<Reading>,
    at: Instant,
}

impl<'a> Machine<'a> {
    fn look(root: &'a HostRoot, spec: &TrialSpec, address: Option<IpAddr>) -> Self {
        let way = match (address, Netlink::open()) {
            (Some(address), Ok(netlink)) => {
                let way = WatchScope::find(root, &netlink, address, asked_for(spec));
                let way = match &spec.verbs {
                    Some(verbs) => way.with_rdma(root, &named_devices(verbs)),
                    None => way,
                };
                Known::Value((way, netlink))
            }
            (None, _) => Known::unknown(
                Cause::NotSaid,
                "getsockname(2)",
                "cannot map the data connections to an interface",
            ),
            (_, Err(error)) => Known::unknown(Cause::Unreadable, "netlink", error.to_string()),
        };
        let online = way.value().map(|(way, _)| way.online().clone());
        Self {
            root,
            online: online.unwrap_or_else(allowed_here),
            way,
        }
    }

    fn read(&self) -> Moment {
        let counters = match &self.way {
            Known::Value((way, netlink)) => Known::Value(way.read(self.root, netlink)),
            Known::Unknown(gap) => Known::Unknown(gap.clone()),
        };
        Moment {
            cpus: CpuCounters::read(self.root),
            counters,
            at: Instant::now(),
        }
    }

    fn interface(&self) -> Option<NicName> {
        let (way, _) = self.way.value()?;
        way.interface().value().cloned()
    }
}

fn watch_between(before: &Moment, after: &Moment) -> Known<Watch> {
    let span = Nanoseconds::from(after.at.duration_since(before.at));
    match (&before.counters, &after.counters) {
        (Known::Value(before), Known::Value(after)) => {
            Known::Value(after.since(before, span).without_still(COUNTERS_MAX))
        }
        (Known::Unknown(gap), _) | (_, Known::Unknown(gap)) => Known::Unknown(gap.clone()),
    }
}

fn times_between(before: &Moment, after: &Moment) -> Known<Vec<CpuTimes>> {
    match (&before.cpus, &after.cpus) {
        (Known::Value(before), Known::Value(after)) => Known::Value(after.since(before)),
        (Known::Unknown(gap), _) | (_, Known::Unknown(gap)) => Known::Unknown(gap.clone()),
    }
}

/// The thread that samples the CPUs while the trial runs.
struct CpuSampler<'a> {
    root: &'a HostRoot,
    step: Duration,
    duration: Duration,
    /// The CPUs of the data threads, as far as they are placed.
    data: CpuSet,
    online: CpuSet,
}

/// What it sampled.
struct CpuSamples {
    steps: Vec<(Instant, Vec<CpuTimes>)>,
    frequency: Known<Vec<CpuFrequency>>,
    /// CPU time of sampling.
    took: Duration,
}

impl CpuSampler<'_> {
    /// Runs the trial, and returns its outcome, what was sampled meanwhile, and when it ended.
    fn run<T>(&self, run: impl FnOnce() -> T) -> (T, CpuSamples, Instant) {
        thread::scope(|scope| {
            let (over, is_over) = mpsc::channel();
            let looking = thread::Builder::new()
                .name("linerate-cpus".to_owned())
                .spawn_scoped(scope, move || self.look(&is_over));
            let outcome = run();
            let ended = Instant::now();
            drop::<mpsc::Sender<()>>(over);
            let seen = match looking.map(thread::ScopedJoinHandle::join) {
                Ok(Ok(seen)) => seen,
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                // A limit on threads is no reason to lose the trial.
                Err(error) => CpuSamples {
                    steps: Vec::new(),
                    frequency: Known::unknown(
                        Cause::Unreadable,
                        "pthread_create(3)",
                        error.to_string(),
                    ),
                    took: Duration::ZERO,
                },
            };
            (outcome, seen, ended)
        })
    }

    fn look(&self, is_over: &Receiver<()>) -> CpuSamples {
        self.leave_data_cpus();
        let mut last = CpuCounters::read(self.root);
        let mut frequencies = Frequencies::of(self);
        let mut steps = Vec::new();
        let beat = self.step.min(self.duration / 4).max(BEAT_MIN);
        let begun = Instant::now();
        let (mut next_beat, mut next_step) = (begun + beat, begun + self.step);
        loop {
            let wait = next_beat
                .min(next_step)
                .saturating_duration_since(Instant::now());
            let over = is_over.recv_timeout(wait) != Err(RecvTimeoutError::Timeout);
            let now = Instant::now();
            if now >= next_beat && !over {
                frequencies.read(self.root);
                next_beat = now + beat;
            }
            if now >= next_step || over {
                let read = CpuCounters::read(self.root);
                if let (Known::Value(last), Known::Value(read)) = (&last, &read) {
                    steps.push((now, worked(read.since(last))));
                }
                last = read;
                next_step = now + self.step;
            }
            if over {
                break;
            }
        }
        CpuSamples {
            steps,
            frequency: frequencies.seen,
            took: cpu_time_of_this_thread(),
        }
    }

    /// Moves the calling thread off the trial's CPUs where others are allowed.
    fn leave_data_cpus(&self) {
        let others = allowed_here().minus(&self.data);
        if self.data.is_empty() || others.is_empty() {
            return;
        }
        let mut affinity = Affinity::new();
        others.iter().for_each(|cpu| affinity.set(cpu.0 as usize));
        // A refusal only means that we stay where we are.
        let _ = sched_setaffinity(None, &affinity);
    }
}

/// The CPUs that were not always idle.
fn worked(times: Vec<CpuTimes>) -> Vec<CpuTimes> {
    let mut times = times;
    times.retain(|cpu| cpu.busy() > Nanoseconds::new(0) || cpu.steal_ns > Nanoseconds::new(0));
    times
}

impl CpuSamples {
    /// The steps since the start of this end: it ended at `ended`, and had lasted for `elapsed`.
    fn series(&self, ended: Instant, elapsed: Nanoseconds) -> Vec<CpuStep> {
        let ended_at = Duration::from(elapsed);
        let steps = self.steps.iter().map(|(at, cpus)| {
            let before_end = ended.saturating_duration_since(*at);
            CpuStep {
                at_ns: ended_at.saturating_sub(before_end).into(),
                cpus: cpus.clone(),
            }
        });
        // A step that was over before the start is not part of the trial.
        steps
            .filter(|step| step.at_ns > Nanoseconds::new(0))
            .collect()
    }
}

/// The frequencies seen so far.
struct Frequencies {
    cpus: Vec<CpuId>,
    seen: Known<Vec<CpuFrequency>>,
}

impl Frequencies {
    fn of(beside: &CpuSampler<'_>) -> Self {
        let cpus = if beside.data.is_empty() {
            &beside.online
        } else {
            &beside.data
        };
        let cpus: Vec<CpuId> = cpus.iter().take(FREQUENCIES_MAX).collect();
        // One CPU shows for all whether there is such a file.
        let seen = match cpus.first().map(|cpu| read_frequency(beside.root, *cpu)) {
            Some(Known::Value(_)) => Known::Value(Vec::new()),
            Some(Known::Unknown(gap)) => Known::Unknown(gap),
            None => Known::Unknown(Gap::new(
                Cause::Absent,
                "/sys/devices/system/cpu",
                "the online CPUs are unknown",
            )),
        };
        Self { cpus, seen }
    }

    fn read(&mut self, root: &HostRoot) {
        let Known::Value(seen) = &mut self.seen else {
            return;
        };
        for &cpu in &self.cpus {
            let Known::Value(khz) = read_frequency(root, cpu) else {
                continue;
            };
            match seen.iter_mut().find(|one| one.cpu == cpu) {
                Some(one) => {
                    one.lowest_khz = one.lowest_khz.min(khz);
                    one.highest_khz = one.highest_khz.max(khz);
                    one.readings += 1;
                }
                None => seen.push(CpuFrequency {
                    cpu,
                    lowest_khz: khz,
                    highest_khz: khz,
                    readings: 1,
                }),
            }
        }
    }
}

#[cfg(test)]
mod tests;
