//! io_uring(7) for bulk transfer: sends (with and without a copy) from one buffer that never
//! changes, and multishot receives into pieces of one buffer that is never read.
//!
//! A [`Ring`] owns its buffer and returns it to the system only when no operation is in flight, so that
//! the kernel never writes to memory that is something else by then.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use io_uring::squeue::Entry;
use io_uring::types::{CancelBuilder, Fd, Fixed, Napi, SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, cqueue, opcode};
use linerate_model::workload::Waiting;
use linerate_verbs::Memory;
use rustix::io::Errno;

use super::Mapping;

/// `IORING_SEND_ZC_REPORT_USAGE` (include/uapi/linux/io_uring.h, Linux 6.2).
const REPORT_USAGE: u16 = 1 << 3;
/// `IORING_NOTIF_USAGE_ZC_COPIED`.
const USAGE_COPIED: u32 = 1 << 31;
/// The group of the entries.
const GROUP: u16 = 0;
/// How long the kernel's thread that takes submissions (SQPOLL) polls for more before it sleeps. Its CPU time
/// belongs to the process, and not to the data thread: it is read separately (`trial::polling`).
const POLL_IDLE_MS: u32 = 100;
/// How long a ring that ends waits for operations in flight.
const SETTLE: Duration = Duration::from_millis(100);

/// The result of an operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Completion {
    /// The token of the operation.
    pub(crate) token: u64,
    /// What was moved.
    pub(crate) result: Result<u32, Errno>,
    /// Whether the operation continues.
    pub(crate) more: bool,
    /// Not a result, but the notification that a zero-copy send is done with its buffer: whether it was copied.
    pub(crate) released: Option<bool>,
    /// The entry that was received into.
    pub(crate) buffer: Option<u16>,
}

/// A submission and a completion queue, the sockets and the buffer that they work on.
pub(crate) struct Ring {
    queues: IoUring,
    spins: bool,
    /// Operations that have not completed.
    under_way: usize,
    buffer: Option<Mapping>,
    provided: Option<Provided>,
}

/// `struct io_uring_buf` (include/uapi/linux/io_uring.h). The tail of the ring is in the reserved part of the first.
/// No reference to one is made: the kernel reads them, and the tail, at any time.
#[repr(C)]
struct ProvidedEntry {
    address: u64,
    length: u32,
    index: u16,
    tail: u16,
}

/// The entries that the kernel takes as payload arrives (`IORING_REGISTER_PBUF_RING`, Linux 5.19).
struct Provided {
    entries: Mapping,
    /// A power of two.
    count: u16,
    tail: u16,
}

/// Waits until the kernel's thread of a new `SQPOLL` ring has taken a first submission, which does nothing.
/// Before that it may not have run at all, and does not have its name yet.
pub(super) fn await_kernel_thread(queues: &mut IoUring) -> std::io::Result<()> {
    let nothing = opcode::Nop::new().build();
    // SAFETY: the operation refers to no memory.
    let pushed = unsafe { queues.submission().push(&nothing) };
    debug_assert!(pushed.is_ok(), "a new ring has room");
    loop {
        match queues.submit_and_wait(1) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if queues.completion().next().is_some() {
            return Ok(());
        }
    }
}

impl Ring {
    /// A ring for at most `operations` operations at a time, to be used by the calling thread alone.
    pub(crate) fn new(waiting: Waiting, operations: u32, buffer: Mapping) -> Result<Self, Errno> {
        let entries = operations.next_power_of_two().clamp(8, 4_096);
        let completions = (operations * 4).next_power_of_two().clamp(256, 65_536);
        let basic = || {
            let mut builder = IoUring::builder();
            builder.setup_clamp().setup_cqsize(completions);
            builder
        };
        let made = match waiting {
            Waiting::UringSqpoll => basic().setup_sqpoll(POLL_IDLE_MS).build(entries),
            // A spinning thread polls the completion queue itself: the kernel must not wait for it to call.
            Waiting::Spin => basic().build(entries),
            _ => basic()
                .setup_single_issuer()
                .setup_defer_taskrun()
                .build(entries)
                // Before Linux 6.1 a completion interrupts the thread wherever it is.
                .or_else(|error| match error.raw_os_error() {
                    Some(libc::EINVAL) => basic().build(entries),
                    _ => Err(error),
                }),
        };
        let mut queues = made.map_err(|error| errno_of(&error))?;
        if waiting == Waiting::UringSqpoll {
            await_kernel_thread(&mut queues).map_err(|error| errno_of(&error))?;
        }
        if let Waiting::BusyPoll(micros) = waiting {
            let mut napi = Napi::new()
                .set_busy_poll_timeout(micros)
                .set_prefer_busy_poll(true);
            queues
                .submitter()
                .register_napi(&mut napi)
                .map_err(|error| errno_of(&error))?;
        }
        Ok(Self {
            queues,
            spins: waiting == Waiting::Spin,
            under_way: 0,
            buffer: Some(buffer),
            provided: None,
        })
    }

    /// Whether the kernel has multishot receives: they came with Linux 6.0, as zero-copy sends did, and only
    /// the latter can be probed.
    pub(crate) fn has_multishot_receive(&self) -> bool {
        let mut probe = Probe::new();
        self.queues.submitter().register_probe(&mut probe).is_ok()
            && probe.is_supported(opcode::SendZc::CODE)
    }

    /// Whether the kernel has zero-copy sends that report whether they copied after all (Linux 6.2): probed with
    /// one to no socket, whose flags are inspected first.
    pub(crate) fn has_zerocopy_send(&mut self) -> Result<bool, Errno> {
        let nowhere = opcode::SendZc::new(Fd(-1), std::ptr::null(), 0)
            .zc_flags(REPORT_USAGE)
            .build();
        self.push(&nowhere)?;
        let mut completions = Vec::new();
        let mut refused = None;
        while !self.is_idle() {
            self.wait(&mut completions, None)?;
            for one in completions.iter().filter(|one| one.released.is_none()) {
                refused = one.result.err();
            }
        }
        Ok(refused == Some(Errno::BADF))
    }

    /// Registers the sockets, which operations name by their place in the list: saves taking a reference
    /// for each operation.
    pub(crate) fn register_sockets(&self, sockets: &[RawFd]) -> Result<(), Errno> {
        self.queues
            .submitter()
            .register_files(sockets)
            .map_err(|error| errno_of(&error))
    }

    /// Registers the buffer for zero-copy sends: its pages are looked up and locked once.
    pub(crate) fn register_buffer(&self) -> Result<(), Errno> {
        let (start, length) = self.place();
        let piece = libc::iovec {
            iov_base: start.cast(),
            iov_len: length,
        };
        // SAFETY: the mapping is as long as stated and outlives the ring (see `drop`).
        unsafe { self.queues.submitter().register_buffers(&[piece]) }
            .map_err(|error| errno_of(&error))
    }

    /// Lends the buffer for receives, `count` (a power of two) times: the payload is not read, so all
    /// entries may be the same memory, which stays in the CPU's cache as that of a plain read does.
    pub(crate) fn provide_buffer(&mut self, count: u16) -> Result<(), Errno> {
        let entries = Mapping::new(usize::from(count) * size_of::<ProvidedEntry>())?;
        let start = entries.start().expose_provenance() as u64;
        // SAFETY: the entries are whole pages as long as stated; they outlive the ring (see `drop`).
        unsafe { (self.queues.submitter()).register_buf_ring_with_flags(start, count, GROUP, 0) }
            .map_err(|error| errno_of(&error))?;
        self.provided = Some(Provided {
            entries,
            count,
            tail: 0,
        });
        (0..count).for_each(|index| self.give_back(index));
        Ok(())
    }

    /// Returns an entry to the kernel.
    pub(crate) fn give_back(&mut self, index: u16) {
        let (Some(provided), Some(buffer)) = (&mut self.provided, &self.buffer) else {
            return;
        };
        let place = usize::from(provided.tail & (provided.count - 1));
        let entries: *mut ProvidedEntry = provided.entries.start().cast();
        provided.tail = provided.tail.wrapping_add(1);
        // SAFETY: `place` is below the count that the entries were made for; the kernel does not read an
        // entry before the tail includes it, and of the buffer only the address is taken. The tail is in the
        // first entry, at an even address, and is read by the kernel and written by us alone.
        unsafe {
            let entry = entries.add(place);
            (&raw mut (*entry).address).write(buffer.start().expose_provenance() as u64);
            (&raw mut (*entry).length).write(u32::try_from(buffer.length()).unwrap_or(u32::MAX));
            (&raw mut (*entry).index).write(index);
            AtomicU16::from_ptr(&raw mut (*entries).tail).store(provided.tail, Ordering::Release);
        }
    }

    /// Where the buffer is, and its length. No reference to it is made: the kernel may write there.
    fn place(&self) -> (*mut u8, usize) {
        let buffer = self.buffer.as_ref();
        buffer.map_or((std::ptr::null_mut(), 0), |buffer| {
            (buffer.start(), buffer.length())
        })
    }

    fn push(&mut self, entry: &Entry) -> Result<(), Errno> {
        loop {
            // SAFETY: operations are created below, on registered sockets and on the ring's own buffer, which
            // is kept until they are done.
            if unsafe { self.queues.submission().push(entry) }.is_ok() {
                self.under_way += 1;
                return Ok(());
            }
            self.queues.submit().map_err(|error| errno_of(&error))?;
            if self.queues.params().is_setup_sqpoll() {
                self.queues
                    .submitter()
                    .squeue_wait()
                    .map_err(|error| errno_of(&error))?;
            }
        }
    }

    /// Sends the first `length` bytes of the buffer on socket `socket`.
    pub(crate) fn send(&mut self, socket: u32, length: u32, token: u64) -> Result<(), Errno> {
        let (start, most) = self.place();
        let length = length.min(u32::try_from(most).unwrap_or(u32::MAX));
        let entry = opcode::Send::new(Fixed(socket), start, length)
            .flags(libc::MSG_NOSIGNAL)
            .build()
            .user_data(token);
        self.push(&entry)
    }

    /// The same from the registered buffer, without a copy if the kernel can.
    pub(crate) fn send_zerocopy(
        &mut self,
        socket: u32,
        length: u32,
        token: u64,
    ) -> Result<(), Errno> {
        let (start, most) = self.place();
        let length = length.min(u32::try_from(most).unwrap_or(u32::MAX));
        let entry = opcode::SendZc::new(Fixed(socket), start, length)
            .buf_index(Some(0))
            .flags(libc::MSG_NOSIGNAL)
            .zc_flags(REPORT_USAGE)
            .build()
            .user_data(token);
        self.push(&entry)
    }

    /// Receives on socket `socket` repeatedly, into provided buffers.
    pub(crate) fn receive(&mut self, socket: u32, token: u64) -> Result<(), Errno> {
        let entry = opcode::RecvMulti::new(Fixed(socket), GROUP)
            .build()
            .user_data(token);
        self.push(&entry)
    }

    /// Submits what was requested and fills `completions` with what is done; waits for one, at most
    /// `limit`. When it spins, or is interrupted, it may return with nothing.
    pub(crate) fn wait(
        &mut self,
        completions: &mut Vec<Completion>,
        limit: Option<Duration>,
    ) -> Result<(), Errno> {
        completions.clear();
        let outcome = match limit {
            _ if self.spins || !self.queues.completion().is_empty() => self.queues.submit(),
            None => self.queues.submit_and_wait(1),
            Some(limit) => {
                let limit = Timespec::from(limit);
                let arguments = SubmitArgs::new().timespec(&limit);
                self.queues.submitter().submit_with_args(1, &arguments)
            }
        };
        match outcome.map_err(|error| errno_of(&error)) {
            // BUSY: completions must be taken before more can be submitted.
            Ok(_) | Err(Errno::INTR | Errno::TIME | Errno::BUSY | Errno::AGAIN) => {}
            Err(errno) => return Err(errno),
        }
        for entry in self.queues.completion() {
            let more = cqueue::more(entry.flags());
            self.under_way -= usize::from(!more);
            let said = entry.result();
            let released =
                cqueue::notif(entry.flags()).then(|| said.cast_unsigned() & USAGE_COPIED != 0);
            completions.push(Completion {
                token: entry.user_data(),
                // A notification has only flags, and any number.
                result: match u32::try_from(said) {
                    Err(_) if released.is_none() => Err(Errno::from_raw_os_error(-said)),
                    moved => Ok(moved.unwrap_or(0)),
                },
                more,
                released,
                buffer: cqueue::buffer_select(entry.flags()),
            });
        }
        Ok(())
    }

    /// Whether nothing is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        self.under_way == 0
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if !self.is_idle() {
            // A kernel that cannot cancel (before Linux 6.0) finishes them when the sockets are shut down.
            let _ = self
                .queues
                .submitter()
                .register_sync_cancel(Some(Timespec::from(SETTLE)), CancelBuilder::any());
            self.spins = false;
            let mut completions = Vec::new();
            while !self.is_idle() {
                let waited = self.wait(&mut completions, Some(SETTLE));
                if waited.is_err() || completions.is_empty() {
                    break;
                }
            }
        }
        if !self.is_idle() {
            // The kernel may still use them: memory lost is better than memory overwritten.
            std::mem::forget(self.buffer.take());
            std::mem::forget(self.provided.take());
        }
    }
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::super::last_errno;
    use super::*;

    #[test]
    fn an_entry_is_laid_out_as_the_kernel_has_it() {
        use io_uring::types::BufRingEntry;
        assert_eq!(size_of::<ProvidedEntry>(), size_of::<BufRingEntry>());
        assert_eq!(align_of::<ProvidedEntry>(), align_of::<BufRingEntry>());
        // SAFETY: an entry is plain numbers, of which 0 is one.
        let mut theirs: BufRingEntry = unsafe { std::mem::zeroed() };
        theirs.set_addr(0x0102_0304_0506_0708);
        theirs.set_len(0x1112_1314);
        theirs.set_bid(0x2122);
        // SAFETY: an entry is plain numbers of the same size, all of them set.
        let ours: ProvidedEntry = unsafe { std::mem::transmute(theirs) };
        assert_eq!(ours.address, 0x0102_0304_0506_0708);
        assert_eq!(
            (ours.length, ours.index, ours.tail),
            (0x1112_1314, 0x2122, 0)
        );
    }

    /// Has every io_uring_setup(2) of the calling thread fail with `errno`, as a kernel without io_uring or
    /// a sandbox does (seccomp(2)). It is permanent: use a separate thread.
    fn forbid_io_uring(errno: Errno) {
        let answer = libc::SECCOMP_RET_ERRNO | errno.raw_os_error().cast_unsigned();
        let call = u32::try_from(libc::SYS_io_uring_setup).expect("a small number");
        let step = |code: u32, jt, jf, k| libc::sock_filter {
            code: u16::try_from(code).expect("a small number"),
            jt,
            jf,
            k,
        };
        let mut filter = [
            // The number of the call is the first word.
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, answer),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog {
            len: 4,
            filter: filter.as_mut_ptr(),
        };
        // SAFETY: the program and its four steps live for the whole call, which copies them.
        let outcome = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            )
        };
        assert_eq!(outcome, 0, "{}", last_errno());
    }

    #[test]
    fn where_io_uring_is_missing_or_forbidden_there_is_no_ring_and_the_reason_is_kept() {
        for errno in [Errno::NOSYS, Errno::PERM] {
            let made = std::thread::spawn(move || {
                forbid_io_uring(errno);
                let buffer = Mapping::new(4096).expect("a page");
                Ring::new(Waiting::Blocking, 8, buffer).err()
            });
            assert_eq!(made.join().expect("no panic"), Some(errno));
        }
    }
}
