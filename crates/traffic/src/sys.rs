//! The system calls that have no safe wrapper, each in one small function: affinity of any CPU number
//! (sched_setaffinity(2); the usual wrappers stop at 1024), CPU time of a thread (getrusage(2)), and
//! the kernel's account of a connection (`TCP_INFO`, tcp(7)).

#![expect(unsafe_code, reason = "the one module of this crate that calls libc")]

use std::os::fd::{AsFd, AsRawFd};

use linerate_model::ids::{CpuId, CpuSet, NodeId};
use linerate_model::units::{Bytes, Nanoseconds};
use rustix::io::Errno;

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
    // SAFETY: the mask is an initialised array of the size stated, which the kernel only reads; bit n
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

/// CPU time of one thread since it began.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ThreadTime {
    pub(crate) user: Nanoseconds,
    pub(crate) system: Nanoseconds,
}

impl ThreadTime {
    /// What was used since `earlier`. The kernel scales the two kinds from one exact sum, so a kind may
    /// step back by a tick between two readings: that is no time, not a wrapped one.
    pub(crate) fn since(self, earlier: Self) -> Self {
        let minus = |now: Nanoseconds, then: Nanoseconds| {
            Nanoseconds::new(now.as_u64().saturating_sub(then.as_u64()))
        };
        Self {
            user: minus(self.user, earlier.user),
            system: minus(self.system, earlier.system),
        }
    }
}

/// The CPU time of the calling thread.
pub(crate) fn thread_time() -> Result<ThreadTime, Errno> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the pointer is valid for writes of one rusage.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    if result != 0 {
        return Err(last_errno());
    }
    // SAFETY: getrusage succeeded, so it filled the whole structure.
    let usage = unsafe { usage.assume_init() };
    let nanoseconds = |time: libc::timeval| {
        let (s, us) = (
            u64::try_from(time.tv_sec).unwrap_or(0),
            u64::try_from(time.tv_usec).unwrap_or(0),
        );
        Nanoseconds::new(s.saturating_mul(1_000_000_000).saturating_add(us * 1_000))
    };
    Ok(ThreadTime {
        user: nanoseconds(usage.ru_utime),
        system: nanoseconds(usage.ru_stime),
    })
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

/// Nodes that a node mask can name here: what the largest kernel is built for.
const NODES_MAX: u32 = 1024;
const NODE_WORDS: usize = (NODES_MAX / WORD_BITS) as usize;

/// Memory of one NUMA node, whole pages, every one of them touched there.
#[derive(Debug)]
pub(crate) struct NodeBuffer {
    start: *mut libc::c_void,
    length: usize,
}

impl NodeBuffer {
    /// `size` bytes on `node`. A kernel without NUMA has one node, 0.
    pub(crate) fn new(size: Bytes, node: NodeId) -> Result<Self, Errno> {
        let length = usize::try_from(size.as_u64()).map_err(|_| Errno::NOMEM)?;
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches no memory of ours.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(last_errno());
        }
        let mut buffer = Self { start, length };
        buffer.bind(node)?;
        // SAFETY: advice about our own whole mapping; a kernel without huge pages refuses, no harm done.
        unsafe { libc::madvise(start, length, libc::MADV_HUGEPAGE) };
        buffer.words().fill(1);
        if buffer.is_elsewhere(node) {
            return Err(Errno::NOMEM);
        }
        Ok(buffer)
    }

    fn bind(&self, node: NodeId) -> Result<(), Errno> {
        let mut mask = [0u64; NODE_WORDS];
        let word = mask
            .get_mut((node.0 / WORD_BITS) as usize)
            .ok_or(Errno::INVAL)?;
        *word |= 1 << (node.0 % WORD_BITS);
        // SAFETY: the mapping is ours; the mask is an initialised array of `NODES_MAX` bits, which the
        // kernel only reads (mbind(2); it counts one bit more than the mask has).
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.start,
                self.length,
                libc::MPOL_BIND,
                mask.as_ptr(),
                libc::c_ulong::from(NODES_MAX) + 1,
                0,
            )
        };
        match result {
            0 => Ok(()),
            _ if last_errno() == Errno::NOSYS && node.0 == 0 => Ok(()),
            _ => Err(last_errno()),
        }
    }

    /// Whether the kernel says that the first page is on another node.
    fn is_elsewhere(&self, node: NodeId) -> bool {
        let mut status: libc::c_int = -1;
        // SAFETY: one page of our own mapping is asked about; `status` takes the one answer, and without
        // a list of nodes nothing is moved (move_pages(2)).
        let result = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                0,
                1 as libc::c_ulong,
                &raw const self.start,
                std::ptr::null::<libc::c_int>(),
                &raw mut status,
                0,
            )
        };
        result == 0 && status >= 0 && u32::try_from(status) != Ok(node.0)
    }

    /// Its words.
    pub(crate) fn words(&mut self) -> &mut [u64] {
        let words = self.length / size_of::<u64>();
        // SAFETY: the mapping is page-aligned, readable and writable, as long as stated, initialised by
        // the kernel (with zeroes), and lives as long as `self`, of which this is the only borrow.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast(), words) }
    }
}

impl Drop for NodeBuffer {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length, and nothing borrows it any more.
        unsafe { libc::munmap(self.start, self.length) };
    }
}
