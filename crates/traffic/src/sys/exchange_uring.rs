//! An io_uring for request/response messages: sends and receives from one buffer that the ring owns, so that
//! the kernel never writes to memory that has another owner.

use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use io_uring::{IoUring, opcode, squeue, types};
use linerate_model::ids::NodeId;
use linerate_model::known::Known;
use linerate_verbs::Memory as _;
use rustix::io::Errno;

use super::Mapping;
use super::uring::await_kernel_thread;

/// The lowest bit of an entry's user data distinguishes a send from a receive.
const SEND: u64 = 1;
/// How long the kernel's thread of an `SQPOLL` ring stays awake without work.
const SQPOLL_IDLE_MS: u32 = 1_000;

/// What the kernel refused, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NotThere {
    pub(crate) doing: &'static str,
    pub(crate) errno: Errno,
}

/// A completed operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Finished {
    /// The token that it was set going with.
    pub(crate) token: u64,
    /// Whether it was a send.
    pub(crate) sent: bool,
    /// Bytes moved.
    pub(crate) result: Result<usize, Errno>,
}

/// The ring and its memory.
pub(crate) struct ExchangeRing {
    ring: IoUring,
    memory: ManuallyDrop<Mapping>,
    /// Where it begins; no borrow of it is made while the kernel writes there.
    base: *mut u8,
    size: usize,
    /// Sends and receives that the kernel has not finished.
    under_way: usize,
}

impl std::fmt::Debug for ExchangeRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExchangeRing")
            .field("memory", &self.memory)
            .field("under_way", &self.under_way)
            .finish_non_exhaustive()
    }
}

impl ExchangeRing {
    /// A ring for so many connections, made by the thread that will use it; with `kernel_thread` a thread
    /// of the kernel takes the submissions.
    pub(crate) fn new(
        connections: usize,
        kernel_thread: bool,
        memory: Mapping,
    ) -> Result<Self, NotThere> {
        let entries = u32::try_from(2 * connections + 1)
            .unwrap_or(u32::MAX)
            .next_power_of_two()
            .max(8);
        let mut plain = IoUring::builder();
        let mut best = IoUring::builder();
        if kernel_thread {
            plain.setup_sqpoll(SQPOLL_IDLE_MS);
            best.setup_sqpoll(SQPOLL_IDLE_MS).setup_single_issuer();
        } else {
            // Completions are worked off when the thread asks for them, not in the middle of others.
            best.setup_single_issuer().setup_defer_taskrun();
        }
        // Kernels before 6.1 do not know the flags.
        let ring = best.build(entries).or_else(|_| plain.build(entries));
        let ring = ring.and_then(|mut ring| {
            if kernel_thread {
                await_kernel_thread(&mut ring)?;
            }
            Ok(ring)
        });
        let (base, size) = (memory.start(), memory.length());
        Ok(Self {
            base,
            size,
            ring: ring.map_err(|error| refused("set up an io_uring", &error))?,
            memory: ManuallyDrop::new(memory),
            under_way: 0,
        })
    }

    /// The memory. Nothing may be in flight.
    pub(crate) fn memory(&mut self) -> &mut [u8] {
        assert_eq!(self.under_way, 0, "the kernel holds places of the memory");
        self.memory.bytes()
    }

    /// Copies from byte `at` of the memory on, where nothing is in flight.
    pub(crate) fn read(&self, at: usize, into: &mut [u8]) {
        let (start, _) = self.place(at..at.saturating_add(into.len()));
        // SAFETY: within the memory, which is this ring's alone and of which no borrow lives. The kernel may still
        // write there when the caller errs: then bytes change, and nothing is done with them but to compare them.
        unsafe { std::ptr::copy_nonoverlapping(start, into.as_mut_ptr(), into.len()) };
    }

    /// Copies `bytes` to byte `at` of the memory on, where nothing is in flight.
    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) {
        let (start, _) = self.place(at..at.saturating_add(bytes.len()));
        // SAFETY: as in `read`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len()) };
    }

    /// The node that it is on.
    pub(crate) fn node(&self) -> Known<NodeId> {
        self.memory.node()
    }

    /// Whether the kernel holds places of the memory.
    pub(crate) fn is_busy(&self) -> bool {
        self.under_way > 0
    }

    /// Has `token` finish once when `fd` is readable. `fd` must stay open as long as the ring.
    pub(crate) fn watch(&mut self, token: u64, fd: BorrowedFd<'_>) -> Result<(), NotThere> {
        let events = u32::try_from(libc::POLLIN).unwrap_or_default();
        let entry = opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), events).build();
        self.push(&entry.user_data(token))
    }

    /// Sends `range` of the memory.
    pub(crate) fn send(
        &mut self,
        token: u64,
        socket: BorrowedFd<'_>,
        range: Range<usize>,
    ) -> Result<(), NotThere> {
        let (start, length) = self.place(range);
        // WAITALL: the kernel continues by itself when the socket's buffer takes only a part.
        let entry = opcode::Send::new(types::Fd(socket.as_raw_fd()), start, length)
            .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
            .build();
        self.push(&entry.user_data(token << 1 | SEND))?;
        self.under_way += 1;
        Ok(())
    }

    /// Receives into `range` of the memory; with `whole`, all of it unless the connection ends.
    pub(crate) fn receive(
        &mut self,
        token: u64,
        socket: BorrowedFd<'_>,
        range: Range<usize>,
        whole: bool,
    ) -> Result<(), NotThere> {
        let (start, length) = self.place(range);
        let flags = if whole { libc::MSG_WAITALL } else { 0 };
        let entry = opcode::Recv::new(types::Fd(socket.as_raw_fd()), start, length)
            .flags(flags)
            .build();
        self.push(&entry.user_data(token << 1))?;
        self.under_way += 1;
        Ok(())
    }

    /// Hands what was set going to the kernel and waits until something finished, at most `limit`.
    pub(crate) fn wait(&mut self, limit: Option<Duration>) -> Result<(), NotThere> {
        let waited = match limit {
            None => self.ring.submit_and_wait(1),
            Some(limit) => {
                let limit = types::Timespec::from(limit);
                let limited = types::SubmitArgs::new().timespec(&limit);
                self.ring.submitter().submit_with_args(1, &limited)
            }
        };
        match waited {
            Ok(_) => Ok(()),
            // The time is over; interrupted; completions must be taken first.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(refused("wait for an io_uring", &error)),
        }
    }

    /// The next completed operation.
    pub(crate) fn finished(&mut self) -> Option<Finished> {
        let entry = self.ring.completion().next()?;
        let data = entry.user_data();
        let result = usize::try_from(entry.result())
            .map_err(|_| Errno::from_raw_os_error(entry.result().wrapping_neg()));
        if data == u64::MAX {
            return Some(Finished {
                token: data,
                sent: false,
                result,
            });
        }
        self.under_way -= 1;
        Some(Finished {
            token: data >> 1,
            sent: data & SEND == SEND,
            result,
        })
    }

    fn place(&self, range: Range<usize>) -> (*mut u8, u32) {
        assert!(
            range.start <= range.end && range.end <= self.size,
            "a place within the memory"
        );
        let length = u32::try_from(range.len()).unwrap_or(u32::MAX);
        (self.base.wrapping_add(range.start), length)
    }

    fn push(&mut self, entry: &squeue::Entry) -> Result<(), NotThere> {
        loop {
            // SAFETY: the entry names a descriptor that its conversation keeps open, and a place of the
            // memory that this ring owns and hands to nothing else while anything is in flight; when the ring
            // is dropped before the kernel has finished, the memory is leaked.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return Ok(());
            }
            self.ring
                .submit()
                .map_err(|error| refused("submit to an io_uring", &error))?;
        }
    }
}

impl Drop for ExchangeRing {
    fn drop(&mut self) {
        if self.under_way == 0 {
            // SAFETY: the kernel holds no place of the memory any more, and nobody uses it after this.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

fn refused(doing: &'static str, error: &std::io::Error) -> NotThere {
    NotThere {
        doing,
        errno: Errno::from_io_error(error).unwrap_or(Errno::IO),
    }
}
