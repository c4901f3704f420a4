//! perf_event_open(2): its ring buffer, and counters of a tracepoint.
#![allow(
    unsafe_code,
    reason = "perf_event_open and its ring have no safe wrapper in rustix"
)]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// `PERF_SAMPLE_IP | PERF_SAMPLE_TID`.
const SAMPLE_TYPE: u64 = 1 | 2;
const FLAG_DISABLED: u64 = 1;
const FLAG_INHERIT: u64 = 1 << 1;
const FLAG_EXCLUDE_KERNEL: u64 = 1 << 5;
const FLAG_EXCLUDE_HV: u64 = 1 << 6;
/// A sampling frequency is given, not a period.
const FLAG_FREQ: u64 = 1 << 10;
/// `PERF_FLAG_FD_CLOEXEC`.
const OPEN_CLOEXEC: libc::c_ulong = 8;
/// `PERF_EVENT_IOC_ENABLE`, `PERF_EVENT_IOC_DISABLE`.
const ENABLE: libc::c_ulong = 0x2400;
const DISABLE: libc::c_ulong = 0x2401;
/// `PERF_EVENT_IOC_SET_FILTER`: `_IOW('$', 6, char *)`. Architectures differ in the bit for a write and in the size.
const SET_FILTER: libc::c_ulong = {
    let write = if cfg!(any(
        target_arch = "powerpc",
        target_arch = "powerpc64",
        target_arch = "mips",
        target_arch = "mips64",
        target_arch = "sparc64"
    )) {
        0x8000_0000
    } else {
        0x4000_0000
    };
    write | (size_of::<usize>() as libc::c_ulong) << 16 | 0x2406
};
/// `PERF_TYPE_TRACEPOINT`.
const TRACEPOINT: u32 = 2;
/// The offsets of `data_head` and `data_tail` in `struct perf_event_mmap_page`.
const HEAD_AT: usize = 1024;
const TAIL_AT: usize = 1032;

/// The sampling event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    /// `PERF_COUNT_HW_CPU_CYCLES`.
    Cycles,
    /// `PERF_COUNT_SW_CPU_CLOCK`: a timer on each CPU.
    CpuClock,
}

/// The scope of sampling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// All processes.
    All,
    /// The calling thread and threads that it starts later.
    Own {
        /// Whether kernel code is excluded.
        user_only: bool,
    },
}

/// The first version of `struct perf_event_attr` (include/uapi/linux/perf_event.h), which every kernel accepts.
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    frequency: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
}

/// Opens an event of `pid` (-1: of everything) on `cpu`.
fn open_event(attributes: &Attributes, pid: libc::pid_t, cpu: u32) -> io::Result<OwnedFd> {
    let cpu = libc::c_int::try_from(cpu).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the kernel only reads the structure, which has its layout and says its own size.
    let result = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const *attributes,
            pid,
            cpu,
            -1 as libc::c_int,
            OPEN_CLOEXEC,
        )
    };
    let Ok(fd) = libc::c_int::try_from(result) else {
        return Err(io::ErrorKind::Other.into());
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just given this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A counter of the hits of a tracepoint on one CPU.
#[derive(Debug)]
pub(crate) struct Hits {
    event: OwnedFd,
}

impl Hits {
    /// Opens a counter of the tracepoint `id` on `cpu` that counts what `filter` matches
    /// (Documentation/trace/events.rst, "Event filtering"). It counts from now on.
    pub(crate) fn open(id: u64, cpu: u32, filter: &CStr) -> io::Result<Self> {
        let attributes = Attributes {
            kind: TRACEPOINT,
            size: u32::try_from(size_of::<Attributes>()).expect("64 bytes"),
            config: id,
            frequency: 0,
            sample_type: 0,
            read_format: 0,
            // A counter that counts before it has its filter would count other hits.
            flags: FLAG_DISABLED,
            wakeup_events: 0,
            bp_type: 0,
            config1: 0,
        };
        let event = open_event(&attributes, -1, cpu)?;
        // SAFETY: the kernel reads the filter, a string with its end, and keeps no reference to it.
        let result = unsafe { libc::ioctl(event.as_raw_fd(), SET_FILTER as _, filter.as_ptr()) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        control(&event, ENABLE)?;
        Ok(Self { event })
    }

    /// The hits since it was opened.
    pub(crate) fn read(&self) -> io::Result<u64> {
        let mut bytes = [0; 8];
        match rustix::io::read(&self.event, &mut bytes)? {
            8 => Ok(u64::from_ne_bytes(bytes)),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

fn control(event: &OwnedFd, request: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the descriptor is open for the length of the call, and the request takes no memory.
    let result = unsafe { libc::ioctl(event.as_raw_fd(), request as _, 0) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The samples of one CPU, in the kernel's order.
#[derive(Debug)]
pub(super) struct Ring {
    event: OwnedFd,
    start: NonNull<u8>,
    page: usize,
    /// A power of two.
    data: usize,
}

// SAFETY: the mapping is this value's alone, and is reached only through its borrows.
unsafe impl Send for Ring {}

impl Ring {
    /// Opens a stopped sampler of `event` on `cpu`, with a ring of `pages` pages (a power of two).
    pub(super) fn open(
        event: Event,
        whose: Whose,
        cpu: u32,
        hz: u32,
        pages: usize,
    ) -> io::Result<Self> {
        let (pid, flags): (libc::pid_t, u64) = match whose {
            Whose::All => (-1, 0),
            Whose::Own { user_only: false } => (0, FLAG_INHERIT),
            Whose::Own { user_only: true } => (0, FLAG_INHERIT | FLAG_EXCLUDE_KERNEL),
        };
        let (kind, config) = match event {
            Event::Cycles => (0, 0),
            Event::CpuClock => (1, 0),
        };
        let attributes = Attributes {
            kind,
            size: u32::try_from(size_of::<Attributes>()).expect("64 bytes"),
            config,
            frequency: hz.into(),
            sample_type: SAMPLE_TYPE,
            read_format: 0,
            flags: FLAG_DISABLED | FLAG_EXCLUDE_HV | FLAG_FREQ | flags,
            wakeup_events: 0,
            bp_type: 0,
            config1: 0,
        };
        let event = open_event(&attributes, pid, cpu)?;
        let page = rustix::param::page_size();
        let data = page * pages;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory of ours.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                page + data,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::Other)?;
        Ok(Self {
            event,
            start,
            page,
            data,
        })
    }

    /// Starts sampling.
    pub(super) fn enable(&self) -> io::Result<()> {
        control(&self.event, ENABLE)
    }

    /// Stops sampling.
    pub(super) fn disable(&self) -> io::Result<()> {
        control(&self.event, DISABLE)
    }

    /// Appends what was written since the last call to `into`, as one sequence of records.
    pub(super) fn take(&mut self, into: &mut Vec<u8>) {
        into.clear();
        // SAFETY: the first page of the mapping holds `struct perf_event_mmap_page`, whose `data_head` and
        // `data_tail` are aligned 64-bit numbers that the kernel too reads and writes as a whole.
        let (head, tail) = unsafe {
            let at = |offset: usize| AtomicU64::from_ptr(self.start.as_ptr().add(offset).cast());
            (at(HEAD_AT), at(TAIL_AT))
        };
        // Data written before the head was moved is visible.
        let written = head.load(Ordering::Acquire);
        let taken = tail.load(Ordering::Relaxed);
        let room = self.data as u64;
        let length = written.wrapping_sub(taken).min(room);
        let index = |position: u64| usize::try_from(position % room).unwrap_or(0);
        let (from, length) = (index(taken), usize::try_from(length).unwrap_or(0));
        let first = length.min(self.data - from);
        // SAFETY: `page..page + data` is mapped and initialised by the kernel; `from + first` and
        // `length - first` are at most `data`; the kernel writes nothing between tail and head.
        unsafe {
            let data = self.start.as_ptr().add(self.page);
            into.extend_from_slice(std::slice::from_raw_parts(data.add(from), first));
            into.extend_from_slice(std::slice::from_raw_parts(data, length - first));
        }
        // Only now may the kernel overwrite that part.
        tail.store(written, Ordering::Release);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: `open` made the mapping with this length, and nothing borrows it any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.page + self.data) };
    }
}
