//! Records what happens to this host's network while a trial runs: rtnetlink's notifications (`rtnetlink(7)`), the LACP
//! and link states of bond members every 50 ms, and received packets that show who serves the gateway's address
//! (`packet(7)`, with CAP_NET_RAW).
//!
//! `log` turns both into the record, without a system call; `packet` parses packets, `taps` receives them. Everything
//! from the return of [`Recorder::start`] to the call of [`Recorder::stop`] is recorded: the sockets queue it in the
//! meantime. What they cannot hold is noted as a loss.

mod flow_hops;
pub(crate) mod log;
pub(crate) mod packet;
mod sys;
mod taps;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use linerate_model::failover::events::{Clocks, HostEvents, Loss, Source};
use linerate_model::known::{Cause, Gap};
use linerate_model::units::Nanoseconds;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

pub use self::flow_hops::FlowHops;
use self::log::Log;
use self::taps::Tap;
use crate::netlink::monitor::{Heard, Monitor};

/// How often the states of bond members are read: not every change of LACP's states is notified.
const MEMBERS_EVERY: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 50_000_000,
};
/// The maximum number of bond members that are read.
const MEMBERS_MAX: usize = 64;
/// A kernel's time stamp that is older is wrong: the clock was set.
const STAMP_AGE_MAX: Duration = Duration::from_secs(10);

const GROUPS: &str = "rtnetlink(7) notifications";
const PACKETS: &str = "packet(7)";

/// A running recording.
#[derive(Debug)]
pub struct Recorder {
    stop: OwnedFd,
    recording: Option<JoinHandle<HostEvents>>,
}

impl Recorder {
    /// Records from now on what happens in the network namespace of this thread; of routes, neighbors and ARP, what
    /// concerns the path to `peer`. What cannot be recorded is a gap of the record; an error means that there can be
    /// no thread.
    pub fn start(peer: Option<IpAddr>) -> io::Result<Self> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mut log = Log::new(peer);
        log.record_mut().began = clocks();
        let monitor = match Monitor::open() {
            Ok(mut monitor) => {
                begin(&mut monitor, &mut log, peer);
                Some(monitor)
            }
            Err(error) => {
                log.gap(gap(GROUPS, &error, "links, addresses and routes"));
                None
            }
        };
        let taps = match Tap::open_all() {
            Ok(taps) => Vec::from(taps),
            Err(error) => {
                log.gap(gap(
                    PACKETS,
                    &error,
                    "ARP, neighbor advertisements and VRRP",
                ));
                Vec::new()
            }
        };
        let mut worker = Worker {
            stop: stop.try_clone()?,
            heard_at: log.record_mut().began.monotonic_ns,
            monitor,
            taps,
            log,
        };
        worker.join(peer);
        let recording = thread::Builder::new()
            .name("linerate-events".to_owned())
            .spawn(move || worker.run())?;
        Ok(Self {
            stop,
            recording: Some(recording),
        })
    }

    /// Ends the recording, after everything that happened before this call.
    pub fn stop(mut self) -> HostEvents {
        self.signal();
        match self.recording.take().map(JoinHandle::join) {
            Some(Ok(events)) => events,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => HostEvents::default(),
        }
    }

    fn signal(&self) {
        // Full only if it was signaled before.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.signal();
    }
}

/// Both clocks, now.
pub fn clocks() -> Clocks {
    let time = |id| Duration::try_from(clock_gettime(id)).unwrap_or_default();
    Clocks {
        monotonic_ns: time(ClockId::Monotonic).into(),
        realtime_ns: time(ClockId::Realtime).into(),
    }
}

fn now() -> Nanoseconds {
    clocks().monotonic_ns
}

fn gap(path: &str, error: &io::Error, what: &str) -> Gap {
    let (cause, why) = match error.kind() {
        io::ErrorKind::PermissionDenied => (Cause::Denied, "needs CAP_NET_RAW".to_owned()),
        _ => (Cause::Unreadable, error.to_string()),
    };
    Gap::new(cause, path, format!("{why}; {what} are not recorded"))
}

/// Reads the states at the start and finds the gateways of the path.
fn begin(monitor: &mut Monitor, log: &mut Log, peer: Option<IpAddr>) {
    match monitor.links() {
        Ok(links) => log.begin(links),
        Err(error) => log.gap(gap(GROUPS, &error, "the states of links at the start")),
    }
    match peer.map(|peer| monitor.route_to(peer)) {
        Some(Ok(Some(route))) => log.follow(&route),
        Some(Ok(None)) | None => {}
        Some(Err(error)) => log.gap(gap(GROUPS, &error, "the gateways at the start")),
    }
}

/// The thread that records.
#[derive(Debug)]
struct Worker {
    stop: OwnedFd,
    monitor: Option<Monitor>,
    taps: Vec<Tap>,
    log: Log,
    /// When the notifications were last complete.
    heard_at: Nanoseconds,
}

impl Worker {
    /// Has the interfaces of the path to `peer` receive VRRP advertisements.
    fn join(&mut self, peer: Option<IpAddr>) {
        let (Some(peer), Some(monitor)) = (peer, &mut self.monitor) else {
            return;
        };
        let Ok(Some(route)) = monitor.route_to(peer) else {
            return;
        };
        for interface in route.hops.iter().filter_map(|hop| hop.interface) {
            for tap in &self.taps {
                if let Err(error) = tap.join(interface) {
                    let why = gap(PACKETS, &error, "VRRP advertisements of some interfaces");
                    self.log.gap(why);
                }
            }
        }
    }

    fn run(mut self) -> HostEvents {
        loop {
            let over = self.wait();
            self.drain();
            self.read_members();
            if over {
                break;
            }
        }
        self.log.record_mut().ended = clocks();
        self.log.finish()
    }

    /// Waits for something to record, or until bond members are due; true when the recording is to end.
    fn wait(&self) -> bool {
        let all = [self.stop.as_fd()];
        let monitor = self.monitor.iter().map(Monitor::as_fd);
        let all = all.into_iter().chain(monitor);
        let all = all.chain(self.taps.iter().map(AsFd::as_fd));
        let mut waited: Vec<PollFd<'_>> = all
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let every = (!self.log.members().is_empty()).then_some(MEMBERS_EVERY);
        match poll(&mut waited, every.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return true,
        }
        waited[0].revents().contains(PollFlags::IN)
    }

    /// Takes everything that is there.
    fn drain(&mut self) {
        if let Err(error) = self.drain_notifications() {
            self.log.gap(gap(GROUPS, &error, "later changes"));
            self.monitor = None;
        }
        if let Err(error) = self.drain_packets() {
            self.log.gap(gap(PACKETS, &error, "later packets"));
            self.taps.clear();
        }
    }

    fn drain_notifications(&mut self) -> io::Result<()> {
        loop {
            let Some(monitor) = &mut self.monitor else {
                return Ok(());
            };
            let heard = monitor.hear()?;
            let at = now();
            match heard {
                Heard::Nothing => {
                    self.heard_at = at;
                    return Ok(());
                }
                Heard::Changes(changes, wrong) => {
                    for change in changes {
                        self.log.take(at, Source::Rtnetlink, change);
                    }
                    if wrong > 0 {
                        self.lose(Source::Rtnetlink, at, "a notification could not be parsed");
                    }
                }
                Heard::Lost => {
                    self.lose(
                        Source::Rtnetlink,
                        at,
                        "the kernel dropped notifications: the socket's buffer was full (ENOBUFS)",
                    );
                    self.resynchronize(at)?;
                }
            }
        }
    }

    fn lose(&mut self, source: Source, at: Nanoseconds, reason: &str) {
        self.log.lose(Loss {
            source,
            from_ns: self.heard_at,
            to_ns: at,
            reason: reason.to_owned(),
        });
    }

    /// After a loss, the states of links are read; other changes in between remain unknown.
    fn resynchronize(&mut self, at: Nanoseconds) -> io::Result<()> {
        let Some(monitor) = &mut self.monitor else {
            return Ok(());
        };
        for link in monitor.links()? {
            self.log.take(at, Source::Rtnetlink, link);
        }
        Ok(())
    }

    fn drain_packets(&mut self) -> io::Result<()> {
        let mut dropped = 0;
        for tap in &mut self.taps {
            let mut any = false;
            while let Some((received, packet)) = tap.next()? {
                let at = on_monotonic(clocks(), received.at);
                self.log.hear(at, received.interface, &received.mac, packet);
                any = true;
            }
            if any {
                dropped += tap.drops();
            }
        }
        if dropped > 0 {
            let reason = format!("the kernel dropped {dropped} packets: a buffer was full");
            self.lose(Source::Packets, now(), &reason);
        }
        Ok(())
    }

    fn read_members(&mut self) {
        let members = self.log.members();
        let Some(monitor) = &mut self.monitor else {
            return;
        };
        if members.len() > MEMBERS_MAX {
            let why = format!("{} bond members; {MEMBERS_MAX} are read", members.len());
            self.log
                .gap(Gap::new(Cause::NotAsked, "netlink/route", why));
        }
        for interface in members.into_iter().take(MEMBERS_MAX) {
            // One that is gone has a notification on the way.
            if let Ok(Some(link)) = monitor.link(interface) {
                self.log.take(now(), Source::Bonds, link);
            }
        }
    }
}

/// The kernel's time stamp on `CLOCK_MONOTONIC`.
fn on_monotonic(clocks: Clocks, stamp: Option<Duration>) -> Nanoseconds {
    let age = stamp.and_then(|stamp| Duration::from(clocks.realtime_ns).checked_sub(stamp));
    let age = age.filter(|age| *age <= STAMP_AGE_MAX).unwrap_or_default();
    let at = Duration::from(clocks.monotonic_ns).saturating_sub(age);
    at.into()
}
