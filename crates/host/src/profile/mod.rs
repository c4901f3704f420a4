//! A CPU profile by perf_event_open(2), symbolized and counted: this process, and the softirqs on its CPUs.
//!
//! Uses hardware cycles if available, otherwise the kernel's timer (`cpu-clock`), which does not sample code with
//! interrupts disabled. All CPUs are sampled, because softirqs run on idle CPUs and in `ksoftirqd`; what belongs to
//! other processes is only counted. If the user may not sample all CPUs, only this process is sampled, and the reason
//! is reported. A thread drains the kernel's rings five times a second; symbols are resolved at the end.

mod elf;
mod mapped;
mod named;
mod symbols;
pub(crate) mod sys;

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use linerate_model::ids::{CpuId, CpuSet};
use linerate_model::known::{Cause, Gap, Known};
use linerate_model::sample::{Profile, ProfileScope};

use self::named::{Scope, name_all};
use self::sys::{Event, Ring, Whose};
use crate::root::HostRoot;

const CALL: &str = "perf_event_open(2)";
const PARANOID: &str = "proc/sys/kernel/perf_event_paranoid";
const RATE_MAX: &str = "proc/sys/kernel/perf_event_max_sample_rate";

/// A ring of this many pages lasts a second at the highest rate, and is within the limit of an unprivileged user.
const RING_PAGES: usize = 64;
/// The interval at which the rings are drained.
const BEAT: Duration = Duration::from_millis(200);
/// The maximum number of distinct addresses; more would use too much memory.
const ADDRESSES_MAX: usize = 1 << 20;

/// A running profile.
#[derive(Debug)]
pub struct Profiler {
    event: &'static str,
    hz: u32,
    scope: ProfileScope,
    gaps: Vec<Gap>,
    stop: Arc<(Mutex<bool>, Condvar)>,
    taking: JoinHandle<Counts>,
}

/// A sample: whether it is kernel code, the process (0: an idle CPU's), the address, and the CPU.
type Place = (bool, u32, u64, CpuId);

/// The sample counts.
#[derive(Debug, Default)]
struct Counts {
    at: HashMap<Place, u64>,
    lost: u64,
}

/// How a sampler is opened on one CPU.
type Open<'a> = &'a dyn Fn(Event, Whose, u32) -> io::Result<Ring>;

impl Profiler {
    /// Starts sampling the CPUs `online`, at `hz` samples per second each. If only this process may be sampled, that
    /// covers the calling thread and threads that it starts later.
    pub fn start(root: &HostRoot, online: &CpuSet, hz: u32) -> Known<Self> {
        let most = root.read(RATE_MAX);
        let most = most.value().and_then(|text| text.trim().parse().ok());
        let hz = hz.clamp(1, most.unwrap_or(u32::MAX).max(1));
        let open = |event, whose, cpu| Ring::open(event, whose, cpu, hz, RING_PAGES);
        match open_best(root, online, &open) {
            Ok(opened) => begin(opened, hz),
            Err(gap) => Known::Unknown(gap),
        }
    }

    /// Stops sampling. Symbols are resolved later, since that takes a while.
    pub fn stop(self) -> Samples {
        let (stopped, bell) = &*self.stop;
        *stopped.lock().unwrap_or_else(PoisonError::into_inner) = true;
        bell.notify_all();
        let counts = match self.taking.join() {
            Ok(counts) => counts,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        Samples {
            event: self.event,
            hz: self.hz,
            scope: self.scope,
            gaps: self.gaps,
            counts,
        }
    }
}

/// A finished profile, with unresolved addresses.
#[derive(Debug)]
pub struct Samples {
    event: &'static str,
    hz: u32,
    scope: ProfileScope,
    gaps: Vec<Gap>,
    counts: Counts,
}

impl Samples {
    /// Resolves the symbols. Those of programs that have exited are no longer available. `receiving` are CPUs whose
    /// softirqs belong to the trial although no thread of this process ran there: they received packets.
    pub fn name(self, root: &HostRoot, receiving: &CpuSet) -> Profile {
        let mut gaps = self.gaps;
        let scope = match self.scope {
            ProfileScope::Trial => Some(Scope::of(
                root,
                std::process::id(),
                &self.counts.at,
                receiving,
            )),
            _ => None,
        };
        let named = name_all(root, &self.counts.at, scope.as_ref(), &mut gaps);
        Profile {
            event: self.event.to_owned(),
            hz: Some(self.hz),
            samples: named.samples,
            elsewhere: named.elsewhere,
            lost: self.counts.lost,
            symbols: named.symbols,
            scope: self.scope,
            gaps,
        }
    }
}

/// Open but stopped samplers.
#[derive(Debug)]
struct Opened {
    /// In the order of the CPUs.
    rings: Vec<(CpuId, Ring)>,
    event: Event,
    whose: Whose,
    gaps: Vec<Gap>,
}

/// Opens the samplers with the widest scope that the kernel permits.
fn open_best(root: &HostRoot, online: &CpuSet, open: Open<'_>) -> Result<Opened, Gap> {
    let own = |user_only| Whose::Own { user_only };
    let mut denied = None;
    let mut refused = None;
    for whose in [Whose::All, own(false), own(true)] {
        for event in [Event::Cycles, Event::CpuClock] {
            let rings: io::Result<Vec<(CpuId, Ring)>> = online
                .iter()
                .map(|cpu| Ok((cpu, open(event, whose, cpu.0)?)))
                .collect();
            match rings {
                Ok(rings) => {
                    let gaps = denied.map(|_| forbidden(root)).into_iter().collect();
                    return Ok(Opened {
                        rings,
                        event,
                        whose,
                        gaps,
                    });
                }
                Err(error) if is_denial(&error) => denied = Some(error),
                // This processor or hypervisor has no such counter.
                Err(error) => refused = Some(error),
            }
        }
    }
    match (denied, refused) {
        (Some(_), _) => Err(forbidden(root)),
        (None, Some(error)) => {
            let absent = matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::ENOENT));
            let cause = if absent {
                Cause::Absent
            } else {
                Cause::Unreadable
            };
            Err(Gap::new(cause, CALL, error.to_string()))
        }
        (None, None) => Err(Gap::new(
            Cause::Absent,
            CALL,
            "no CPU is known to be online",
        )),
    }
}

fn is_denial(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}

/// What the kernel forbids, the responsible setting, and the remedy.
fn forbidden(root: &HostRoot) -> Gap {
    let level = root.read(PARANOID);
    let level = level.value().map_or("not readable", |text| text.trim());
    let reason = format!(
        "the kernel does not let this user look at all CPUs (kernel.perf_event_paranoid is {level}): run \
         as root or with CAP_PERFMON, or set it to -1"
    );
    Gap::new(Cause::Denied, CALL, reason)
}

fn begin(opened: Opened, hz: u32) -> Known<Profiler> {
    let Opened {
        rings,
        event,
        whose,
        gaps,
    } = opened;
    for (_, ring) in &rings {
        if let Err(error) = ring.enable() {
            return Known::unknown(Cause::Unreadable, CALL, error.to_string());
        }
    }
    let stop = Arc::new((Mutex::new(false), Condvar::new()));
    let asked = Arc::clone(&stop);
    let name = "linerate-profile".to_owned();
    let taking = thread::Builder::new()
        .name(name)
        .spawn(move || take_until_stopped(rings, &asked));
    let taking = match taking {
        Ok(taking) => taking,
        Err(error) => return Known::unknown(Cause::Unreadable, CALL, error.to_string()),
    };
    Known::Value(Profiler {
        event: match event {
            Event::Cycles => "cycles",
            Event::CpuClock => "cpu-clock",
        },
        hz,
        scope: match whose {
            Whose::All => ProfileScope::Trial,
            Whose::Own { user_only: false } => ProfileScope::Process,
            Whose::Own { user_only: true } => ProfileScope::ProcessUser,
        },
        gaps,
        stop,
        taking,
    })
}

fn take_until_stopped(mut rings: Vec<(CpuId, Ring)>, stop: &(Mutex<bool>, Condvar)) -> Counts {
    let mut counts = Counts::default();
    let mut records = Vec::new();
    let (stopped, bell) = stop;
    let mut over = false;
    while !over {
        let guard = stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = bell.wait_timeout_while(guard, BEAT, |stopped| !*stopped);
        let (guard, _) = waited.unwrap_or_else(PoisonError::into_inner);
        over = *guard;
        drop(guard);
        for (cpu, ring) in &mut rings {
            if over {
                // A sampler that continues only fills its ring.
                let _ = ring.disable();
            }
            ring.take(&mut records);
            counts.add(*cpu, &records);
        }
    }
    counts
}

/// `PERF_RECORD_LOST`, `PERF_RECORD_SAMPLE`.
const LOST: u32 = 2;
const SAMPLE: u32 = 9;
/// `PERF_RECORD_MISC_CPUMODE_MASK` and the accepted modes.
const MODE_MASK: u16 = 7;
const MODE_KERNEL: u16 = 1;
const MODE_USER: u16 = 2;

impl Counts {
    /// Counts a sequence of records: a header with type (4 bytes), mode (2) and size (2), and its payload.
    fn add(&mut self, cpu: CpuId, mut records: &[u8]) {
        fn word<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
            bytes.get(at..at + N)?.try_into().ok()
        }
        while let (Some(kind), Some(mode), Some(size)) =
            (word(records, 0), word(records, 4), word(records, 6))
        {
            let (kind, mode) = (
                u32::from_ne_bytes(kind),
                u16::from_ne_bytes(mode) & MODE_MASK,
            );
            let size = usize::from(u16::from_ne_bytes(size));
            let (Some(record), 8..) = (records.get(..size), size) else {
                return;
            };
            match (kind, word(record, 8), word(record, 16)) {
                (SAMPLE, Some(address), Some(process)) => {
                    let (address, process) =
                        (u64::from_ne_bytes(address), u32::from_ne_bytes(process));
                    self.add_sample(mode, address, process, cpu);
                }
                // The first number is the event's ID, the second the count.
                (LOST, ..) => {
                    let lost = word(record, 16).map_or(0, u64::from_ne_bytes);
                    self.lost = self.lost.saturating_add(lost);
                }
                _ => {}
            }
            records = &records[size..];
        }
    }

    fn add_sample(&mut self, mode: u16, address: u64, process: u32, cpu: CpuId) {
        let place = match mode {
            MODE_KERNEL => (true, process, address, cpu),
            MODE_USER => (false, process, address, cpu),
            _ => return,
        };
        if self.at.len() < ADDRESSES_MAX || self.at.contains_key(&place) {
            *self.at.entry(place).or_insert(0) += 1;
        } else {
            self.lost += 1;
        }
    }
}

#[cfg(test)]
mod tests;
