//! The system calls that have no safe wrapper, each in one small function: affinity of any CPU number
//! (sched_setaffinity(2); the usual wrappers stop at 1024), CPU time of a thread (getrusage(2)), socket
//! options, the kernel's account of a connection (`TCP_INFO`, tcp(7)), memory of a chosen node, payload
//! without a copy, many datagrams in one call, io_uring; and vectors that a processor may lack.

#![expect(unsafe_code, reason = "the one module of this crate that calls libc")]

mod block_ring;
mod exchange_uring;
mod inherited;
mod memory;
mod mmsg;
mod plain;
mod turns;
pub(crate) mod uring;
pub(crate) mod vectors;
pub(crate) mod zerocopy;

use std::os::fd::{AsFd, AsRawFd};

use linerate_model::ids::{CpuId, CpuSet};
use linerate_model::units::Nanoseconds;
use rustix::io::Errno;

pub(crate) use block_ring::BlockRing;
pub(crate) use exchange_uring::{ExchangeRing, Finished, NotThere};
pub use inherited::{inherited_listener, inherited_stream};
pub(crate) use memory::{Mapping, NodeBuffer, node_of, set_thread_policy};
pub(crate) use mmsg::{
    MESSAGES_MAX, Message, Messages, force_receive_buffer, receive_stamps, socket_drops,
};
pub(crate) use plain::Plain;
pub(crate) use turns::Turns;

const WORD_BITS: u32 = u64::BITS;
const MASK_WORDS: usize = (CpuSet::CPU_MAX / WORD_BITS + 1) as usize;

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Binds the calling thread to `cpus`.
pub(crate) fn pin_thread(cpus: &CpuSet) -> Result<(), Errno> {
    let mut mask = [0u64; MASK_WORDS];
    for CpuId(cpu) in cpus.iter() {
        // A CPU number above CPU_MAX can be made by hand (the field is public): no such CPU.
        let word = mask
            .get_mut((cpu / WORD_BITS) as usize)
            .ok_or(Errno::INVAL)?;
        *word |= 1 << (cpu % WORD_BITS);
    }
    // SAFETY: the mask is an initialized array of the size stated, which the kernel only reads; bit n
    // of a little-endian word array is CPU n on every architecture with 64-bit longs.
    let result = unsafe { libc::sched_setaffinity(0, size_of_val(&mask), mask.as_ptr().cast()) };
    if result == 0 {
        Ok(())
    } else {
        Err(last_errno())
    }
}

/// The CPUs that the calling thread may run on.
pub(crate) fn allowed_cpus() -> Result<CpuSet, Errno> {
    let mut mask = [0u64; MASK_WORDS];
    // SAFETY: the kernel writes at most the size stated into the array; any bit pattern is a valid u64.
    let result =
        unsafe { libc::sched_getaffinity(0, size_of_val(&mask), mask.as_mut_ptr().cast()) };
    if result != 0 {
        return Err(last_errno());
    }
    Ok((0..=CpuSet::CPU_MAX)
        .filter(|cpu| mask[(cpu / WORD_BITS) as usize] >> (cpu % WORD_BITS) & 1 == 1)
        .map(CpuId)
        .collect())
}

/// What one thread used since it began.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ThreadUse {
    pub(crate) user: Nanoseconds,
    pub(crate) system: Nanoseconds,
    pub(crate) voluntary_switches: u64,
    pub(crate) involuntary_switches: u64,
    /// The kernel's statistics with `CONFIG_SCHED_INFO`, which every distribution enables.
    pub(crate) waited_for_cpu: Option<Nanoseconds>,
    pub(crate) minor_faults: u64,
    pub(crate) major_faults: u64,
}

impl ThreadUse {
    /// What was used since `earlier`. The kernel scales the two kinds of time from one exact sum, so a
    /// kind may step back by a tick between two readings: that is no time, not a wrapped one.
    pub(crate) fn since(self, earlier: Self) -> Self {
        let minus = |now: Nanoseconds, then: Nanoseconds| {
            Nanoseconds::new(now.as_u64().saturating_sub(then.as_u64()))
        };
        Self {
            user: minus(self.user, earlier.user),
            system: minus(self.system, earlier.system),
            voluntary_switches: (self.voluntary_switches)
                .saturating_sub(earlier.voluntary_switches),
            involuntary_switches: (self.involuntary_switches)
                .saturating_sub(earlier.involuntary_switches),
            waited_for_cpu: (self.waited_for_cpu.zip(earlier.waited_for_cpu))
                .map(|(now, then)| minus(now, then)),
            minor_faults: self.minor_faults.saturating_sub(earlier.minor_faults),
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
        }
    }
}

/// What the calling thread used.
pub(crate) fn thread_use() -> Result<ThreadUse, Errno> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the pointer is valid for writes of one rusage.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    if result != 0 {
        return Err(last_errno());
    }
    // SAFETY: getrusage succeeded, so it filled the whole structure.
    let usage = unsafe { usage.assume_init() };
    let count = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
    let nanoseconds = |time: libc::timeval| {
        let (s, us) = (
            u64::try_from(time.tv_sec).unwrap_or(0),
            u64::try_from(time.tv_usec).unwrap_or(0),
        );
        Nanoseconds::new(s.saturating_mul(1_000_000_000).saturating_add(us * 1_000))
    };
    Ok(ThreadUse {
        user: nanoseconds(usage.ru_utime),
        system: nanoseconds(usage.ru_stime),
        voluntary_switches: count(usage.ru_nvcsw),
        involuntary_switches: count(usage.ru_nivcsw),
        waited_for_cpu: waited_for_cpu(),
        minor_faults: count(usage.ru_minflt),
        major_faults: count(usage.ru_majflt),
    })
}

/// How long the calling thread was ready to run and had no CPU (Documentation/scheduler/sched-stats.rst).
fn waited_for_cpu() -> Option<Nanoseconds> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the kernel's account of this thread, not of the host"
    )]
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let waited = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(Nanoseconds::new(waited))
}

/// Sets a socket option whose value is one number of `T`'s size.
pub(crate) fn set_option<T: Copy>(
    socket: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
    value: T,
) -> Result<(), Errno> {
    let length = libc::socklen_t::try_from(size_of::<T>()).map_err(|_| Errno::INVAL)?;
    // SAFETY: the kernel reads at most `length` bytes of `value`, which lives for the whole call; the
    // descriptor is borrowed.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            length,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(last_errno())
    }
}

/// Has an epoll instance poll the devices' queues for `micros` before it sleeps (`EPIOCSPARAMS`,
/// include/uapi/linux/eventpoll.h, Linux 6.9).
pub(crate) fn set_epoll_busy_poll(epoll: impl AsFd, micros: u32) -> Result<(), Errno> {
    #[repr(C)]
    struct Parameters {
        busy_poll_usecs: u32,
        busy_poll_budget: u16,
        prefer_busy_poll: u8,
        pad: u8,
    }
    /// `_IOW(0x8A, 0x01, struct epoll_params)`.
    const EPIOCSPARAMS: libc::c_ulong = 0x4008_8A01;
    let parameters = Parameters {
        busy_poll_usecs: micros,
        // The kernel's own default; more needs CAP_NET_ADMIN.
        busy_poll_budget: 8,
        prefer_busy_poll: 1,
        pad: 0,
    };
    // SAFETY: the kernel only reads the structure, whose layout is the kernel's; the descriptor is
    // borrowed for the whole call.
    let result = unsafe {
        libc::ioctl(
            epoll.as_fd().as_raw_fd(),
            EPIOCSPARAMS as _,
            &raw const parameters,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(last_errno())
    }
}

/// Reads a socket option whose value is one 32-bit number.
pub(crate) fn get_option(
    socket: impl AsFd,
    level: libc::c_int,
    name: libc::c_int,
) -> Result<u32, Errno> {
    let mut value = 0u32;
    let mut length: libc::socklen_t = 4;
    // SAFETY: the kernel writes at most `length` bytes into `value` and the new length into `length`; any
    // bit pattern is a valid u32, and the descriptor is borrowed for the whole call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    if result == 0 {
        Ok(value)
    } else {
        Err(last_errno())
    }
}

/// More than any kernel's `struct tcp_info` (Linux 6.18: 280 bytes).
pub(crate) const TCP_INFO_BYTES_MAX: usize = 512;

/// Fills `into` with the kernel's `struct tcp_info` and returns how many bytes of it the kernel knows.
pub(crate) fn tcp_info(
    socket: impl AsFd,
    into: &mut [u8; TCP_INFO_BYTES_MAX],
) -> Result<usize, Errno> {
    let mut length = libc::socklen_t::try_from(into.len()).expect("512 fits");
    // SAFETY: the kernel writes at most `length` bytes into the array and the new length into
    // `length`; the descriptor is borrowed for the whole call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            into.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result == 0 {
        Ok((length as usize).min(into.len()))
    } else {
        Err(last_errno())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_beyond_every_kernel_is_refused_and_never_wraps() {
        assert_eq!(pin_thread(&CpuSet::one(CpuId(u32::MAX))), Err(Errno::INVAL));
        assert_eq!(pin_thread(&CpuSet::one(CpuId(16_383))), Err(Errno::INVAL));
    }

    #[test]
    fn pinning_to_what_is_allowed_changes_nothing() {
        let allowed = allowed_cpus().expect("the kernel says");
        assert!(!allowed.is_empty());
        pin_thread(&allowed).expect("every one is allowed");
        assert_eq!(allowed_cpus(), Ok(allowed));
    }
}
