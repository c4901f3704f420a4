//! The system calls of the testbed that need unsafe code. Sources: unshare(2), setns(2), mount(2), prctl(2),
//! sched_setaffinity(2), signal-safety(7) for what a hook between fork and exec may do.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

fn checked(answer: libc::c_int) -> io::Result<()> {
    if answer < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Enters a new mount namespace, and a new user namespace if `user`.
pub(crate) fn unshare_stage(user: bool) -> io::Result<()> {
    let flags = if user {
        libc::CLONE_NEWUSER | libc::CLONE_NEWNS
    } else {
        libc::CLONE_NEWNS
    };
    // SAFETY: unshare reads no memory of ours; descriptors stay shared with the other threads.
    checked(unsafe { libc::unshare(flags) })
}

/// Moves this thread into a new network namespace.
pub(crate) fn unshare_net() -> io::Result<()> {
    // SAFETY: unshare reads no memory of ours.
    checked(unsafe { libc::unshare(libc::CLONE_NEWNET) })
}

/// mount(2) without data.
pub(crate) fn mount(
    source: &CStr,
    target: &CStr,
    kind: Option<&CStr>,
    flags: libc::c_ulong,
) -> io::Result<()> {
    let kind = kind.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: the strings end in NUL and outlive the call; a null type and null data are allowed.
    checked(unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind,
            flags,
            std::ptr::null(),
        )
    })
}

/// Brings the loopback of this thread's network namespace up (netdevice(7)).
pub(crate) fn loopback_up() -> io::Result<()> {
    // SAFETY: all zeroes is a valid ifreq, a name and a union of plain numbers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_UP).expect("IFF_UP is 1");
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        None,
    )?;
    // SAFETY: the request is an ifreq as SIOCSIFFLAGS takes it, and outlives the call.
    checked(unsafe {
        libc::ioctl(
            socket.as_raw_fd(),
            libc::SIOCSIFFLAGS as _,
            &raw const request,
        )
    })
}

/// Creates a TUN interface in this thread's network namespace; it exists as long as the descriptor, which reads and
/// writes one packet per call, without blocking. With `large`, each packet has a virtio_net_hdr and may be as large
/// as the kernel's own (tuntap.rst).
pub(crate) fn make_tun(name: &str, large: bool) -> io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags, open};
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let tun = open("/dev/net/tun", flags, Mode::empty())?;
    // SAFETY: all zeroes is a valid ifreq, a name and a union of plain numbers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    let header = if large { libc::IFF_VNET_HDR } else { 0 };
    let kind = libc::IFF_TUN | libc::IFF_NO_PI | header;
    request.ifr_ifru.ifru_flags = i16::try_from(kind).map_err(io::Error::other)?;
    // SAFETY: the request is an ifreq as TUNSETIFF takes it, and outlives the call.
    checked(unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) })?;
    if large {
        let offloads = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
        let offloads = libc::c_ulong::from(offloads);
        // SAFETY: TUNSETOFFLOAD takes a number.
        checked(unsafe { libc::ioctl(tun.as_raw_fd(), libc::TUNSETOFFLOAD as _, offloads) })?;
    }
    Ok(tun)
}

fn die_with_parent(parent: u32) -> io::Result<()> {
    // SAFETY: this prctl takes numbers only.
    checked(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) })?;
    // SAFETY: getppid has no arguments and cannot fail.
    let now = unsafe { libc::getppid() };
    if u32::try_from(now).is_ok_and(|now| now == parent) {
        Ok(())
    } else {
        // The parent died before the signal was requested, so none will be sent.
        Err(io::Error::from_raw_os_error(libc::ESRCH))
    }
}

/// Ties this process to its parent again: a change of credentials clears the signal.
pub(crate) fn renew_tie(parent: u32) -> io::Result<()> {
    die_with_parent(parent)
}

/// The child will be killed when the calling thread ends.
pub(crate) fn tie(command: &mut Command) {
    let parent = std::process::id();
    // SAFETY: the hook makes two system calls and allocates nothing.
    unsafe { command.pre_exec(move || die_with_parent(parent)) };
}

/// The child will ignore SIGINT; execve(2) keeps that.
pub(crate) fn ignore_interrupts(command: &mut Command) {
    let hook = || {
        // SAFETY: the disposition of a signal is set in the child alone; no handler is installed.
        let former = unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
        if former == libc::SIG_ERR {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    };
    // SAFETY: the hook makes one system call and allocates nothing.
    unsafe { command.pre_exec(hook) };
}

/// The child will run in `netns` with a `/sys` that shows it.
pub(crate) fn enter_netns(command: &mut Command, netns: OwnedFd) {
    let hook = move || {
        enter_thread(netns.as_fd())?;
        mount_own_sysfs()
    };
    // SAFETY: the hook makes system calls only, with strings that are constants.
    unsafe { command.pre_exec(hook) };
}

/// A directory that a daemon sees in place of another one.
#[derive(Debug)]
pub(crate) struct Cover {
    /// What is shown; an empty tmpfs without it.
    pub(crate) source: Option<CString>,
    /// Where.
    pub(crate) target: CString,
}

/// The child will be a daemon in `netns`: in a session of its own, with its own `/sys`, and with `covers` that no other
/// process sees. It writes its line of `/proc/self/stat` (proc_pid_stat(5)) to `identity` before its program starts, so
/// that there is no daemon without a record.
pub(crate) fn daemonize(
    command: &mut Command,
    netns: OwnedFd,
    covers: Vec<Cover>,
    identity: OwnedFd,
) {
    let hook = move || {
        rustix::process::setsid()?;
        enter_thread(netns.as_fd())?;
        mount_own_sysfs()?;
        for cover in &covers {
            match &cover.source {
                Some(source) => mount(source, &cover.target, None, libc::MS_BIND)?,
                None => mount(c"tmpfs", &cover.target, Some(c"tmpfs"), libc::MS_NOSUID)?,
            }
        }
        run_before_others();
        write_own_stat(identity.as_fd())
    };
    // SAFETY: the hook makes system calls only, with strings and descriptors made before the fork; it allocates
    // nothing.
    unsafe { command.pre_exec(hook) };
}

/// Schedules this process before all that is not real-time (sched(7)): a router does not wait behind the other work of
/// its machine, and BFD's 150 ms pass quickly. Without the permission it runs like everything else.
fn run_before_others() {
    // SAFETY: a structure of plain numbers, for which all zeros is a value.
    let mut parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    parameters.sched_priority = 1;
    // SAFETY: the call reads one structure, which is alive.
    let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_RR, &raw const parameters) };
}

fn write_own_stat(to: BorrowedFd<'_>) -> io::Result<()> {
    use rustix::fs::{Mode, OFlags, open};
    let stat = open(
        c"/proc/self/stat",
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let mut line = [0u8; 1024];
    let length = rustix::io::read(&stat, &mut line)?;
    // A regular file takes so few bytes at once.
    rustix::io::write(to, &line[..length])?;
    Ok(())
}

/// Gives this thread its own mount namespace in which `/sys` shows its network namespace: a sysfs shows the namespace
/// it was mounted in, not the reader's.
pub(crate) fn mount_own_sysfs() -> io::Result<()> {
    // SAFETY: unshare reads no memory of ours; the calling thread alone leaves the shared table.
    checked(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    // Later mounts of the stage are visible here; mounts made here stay here.
    mount(c"none", c"/", None, libc::MS_REC | libc::MS_SLAVE)?;
    mount(c"sysfs", c"/sys", Some(c"sysfs"), 0)
}

/// Moves this thread into `netns`.
pub(crate) fn enter_thread(netns: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: setns reads no memory of ours; the descriptor is open for the length of the borrow.
    checked(unsafe { libc::setns(netns.as_raw_fd(), libc::CLONE_NEWNET) })
}

/// The child will run on these CPUs.
pub(crate) fn pin(command: &mut Command, cpus: rustix::thread::CpuSet) {
    // SAFETY: the hook makes one system call on a value that was copied before the fork.
    unsafe { command.pre_exec(move || Ok(rustix::thread::sched_setaffinity(None, &cpus)?)) };
}
