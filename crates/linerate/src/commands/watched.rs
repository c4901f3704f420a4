//! A host with its counters watched: the live one for some seconds, or two captures of one.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use linerate_host::capture::Captured;
use linerate_host::netlink::Netlink;
use linerate_host::procfs::sockets::read_socket_owners;
use linerate_host::read::read_host;
use linerate_host::root::{HostRoot, LiveHost};
use linerate_host::watch::read_counters;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::Host;
use linerate_model::known::Known;
use linerate_model::units::Nanoseconds;
use linerate_model::watch::Watch;
use linerate_runtime::cli::DoctorArgs;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::say::Say;
use linerate_runtime::endpoint::host_source::not_captured;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// The host that is asked about, and what its counters did while they were watched.
pub(super) fn read_watched(args: &DoctorArgs, say: &Say) -> Outcome<(Host, Option<Watch>)> {
    match &args.from {
        None => live(args, say),
        Some(from) => captured(from, args.then.as_deref()),
    }
}

fn live(args: &DoctorArgs, say: &Say) -> Outcome<(Host, Option<Watch>)> {
    let live = Live::open()?;
    // Walking the kernel's table of connections takes as long as all the rest: only for those who wait
    // anyway.
    if args.watch.is_zero() {
        return Ok((live.host(), None));
    }
    let host = live.host_with_owners();
    let hint = " (`--watch 0` skips this)";
    let watch = live.watch(&host, args.watch, hint, say)?;
    Ok((host, Some(watch)))
}

/// This machine, open for reading.
pub(super) struct Live {
    machine: LiveHost,
    netlink: Netlink,
}

impl Live {
    /// Opens it.
    pub(super) fn open() -> Outcome<Self> {
        let machine =
            LiveHost::open().map_err(|error| Stop::io("open the root directory", error))?;
        let netlink = Netlink::open().map_err(|error| Stop::io("open a netlink socket", error))?;
        Ok(Self { machine, netlink })
    }

    /// Reads it once.
    pub(super) fn host(&self) -> Host {
        read_host(self.machine.root(), &self.netlink)
    }

    /// Reads it and also which programs hold connections: the latter for the live machine only,
    /// never captured, and takes as long as the rest.
    pub(super) fn host_with_owners(&self) -> Host {
        let owners = || {
            let mut gaps = Vec::new();
            (read_socket_owners(&self.machine, &mut gaps), gaps)
        };
        thread::scope(|scope| {
            let beside = thread::Builder::new().spawn_scoped(scope, owners);
            let mut host = self.host();
            let (owners, gaps) = match beside.map(thread::ScopedJoinHandle::join) {
                Ok(Ok(read)) => read,
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                // A limit on threads is no reason not to read.
                Err(_) => owners(),
            };
            host.software.socket_owners = owners;
            host.gaps.extend(gaps);
            host
        })
    }

    /// Reads the counters of `host` twice, `time` apart, unless the user stops it; `hint` follows the
    /// message about that.
    pub(super) fn watch(
        &self,
        host: &Host,
        time: Duration,
        hint: &str,
        say: &Say,
    ) -> Outcome<Watch> {
        let seconds = time.as_secs_f64();
        say.note(&format!("watching the counters for {seconds} s{hint}"));
        let began = Instant::now();
        let before = read_counters(self.machine.root(), &self.netlink, host);
        wait(time)?;
        let span = began.elapsed();
        let after = read_counters(self.machine.root(), &self.netlink, host);
        let span = Nanoseconds::new(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
        Ok(after.since(&before, span))
    }
}

/// Waits, or stops at once when the person reports it: until the time is over or the interrupt's descriptor
/// becomes readable.
fn wait(time: Duration) -> Outcome<()> {
    let interrupt = Interrupt::listen()?;
    let end = Instant::now() + time;
    loop {
        interrupt.check()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        let mut fds = [PollFd::new(interrupt.abort(), PollFlags::IN)];
        let limit = Timespec::try_from(left)
            .map_err(|_| Stop::new(Code::BadInput, "`--watch` is too long"))?;
        match poll(&mut fds, Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(Stop::io("wait", errno.into())),
        }
    }
}

fn open(from: &Path) -> Outcome<Captured> {
    Captured::open(from).map_err(|error| not_captured(&error))
}

/// A captured host as it was: its counters moved between two captures, when a later one is given.
pub(super) fn captured(from: &Path, then: Option<&Path>) -> Outcome<(Host, Option<Watch>)> {
    let first = open(from)?;
    let host = first.host().map_err(|error| not_captured(&error))?;
    let Some(then) = then else {
        return Ok((host, None));
    };
    let counters = |captured: &Captured| {
        captured
            .counters(&host)
            .map_err(|error| not_captured(&error))
    };
    let before = counters(&first)?;
    let second = open(then)?;
    let boot = |root: &HostRoot| root.read("proc/sys/kernel/random/boot_id");
    if let (Known::Value(one), Known::Value(other)) = (boot(first.root()), boot(second.root()))
        && one != other
    {
        return Err(Stop::new(
            Code::BadInput,
            format!(
                "{} and {} are from different boots: the counter growth between them is unknown",
                from.display(),
                then.display()
            ),
        ));
    }
    let after = counters(&second)?;
    match after.span_since(&before) {
        Known::Value(span) => Ok((host, Some(after.since(&before, span)))),
        Known::Unknown(gap) => Err(Stop::new(
            Code::BadInput,
            format!(
                "cannot compute the time from {} to the capture {}: {gap}",
                from.display(),
                then.display()
            ),
        )),
    }
}
