//! An io_uring for fixed-size reads and writes of one file: the file and one buffer are registered with the ring
//! (io_uring_register(2)), so that the kernel neither looks up the one nor pins the pages of the other for each
//! operation. The ring owns the buffer and returns it only when no operation is in flight.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{IoUring, opcode, squeue, types};
use linerate_model::block::Access;
use linerate_model::ids::NodeId;
use linerate_model::known::Known;
use linerate_verbs::Memory as _;
use rustix::io::Errno;

use super::{Mapping, NotThere};

/// The index of the registered file, and of the registered buffer.
const FIRST: u16 = 0;
/// The user data of the operation that watches for the end.
const WATCH: u64 = u64::MAX;

/// The ring and its buffer of `slots` blocks.
pub(crate) struct BlockRing {
    ring: IoUring,
    memory: ManuallyDrop<Mapping>,
    /// Where the buffer begins; no borrow of it is made while the kernel uses it.
    base: *mut u8,
    access: Access,
    block: u32,
    in_flight: u32,
}

impl BlockRing {
    /// A ring for `depth` operations of `block` bytes on `file`, to be used by the calling thread alone. `memory` has a
    /// block for each.
    pub(crate) fn new(
        file: BorrowedFd<'_>,
        access: Access,
        (depth, block): (u32, u32),
        polled: bool,
        mut memory: Mapping,
    ) -> Result<Self, NotThere> {
        let refused = |doing| move |error: io::Error| refused(doing, &error);
        let needed = usize::try_from(u64::from(depth) * u64::from(block)).unwrap_or(usize::MAX);
        assert!(memory.length() >= needed, "a block for each operation");
        // One more for the watch.
        let ring = build(depth.saturating_add(1), polled).map_err(refused("set up an io_uring"))?;
        let submitter = ring.submitter();
        submitter
            .register_files(&[file.as_raw_fd()])
            .map_err(refused("register the device with an io_uring"))?;
        let buffer = libc::iovec {
            iov_base: memory.bytes().as_mut_ptr().cast(),
            iov_len: needed,
        };
        // SAFETY: the mapping is this ring's alone and stays where it is until the ring is dropped, which unregisters
        // it; with operations in flight it is leaked.
        unsafe { submitter.register_buffers(&[buffer]) }
            .map_err(refused("register the buffers with an io_uring"))?;
        Ok(Self {
            base: memory.start(),
            memory: ManuallyDrop::new(memory),
            ring,
            access,
            block,
            in_flight: 0,
        })
    }

    /// The node of the buffer.
    pub(crate) fn node(&self) -> Known<NodeId> {
        self.memory.node()
    }

    /// Operations that have not completed.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Has the next [`Self::submit_and_wait`] return when `event` is readable. A polled ring cannot: it never sleeps.
    pub(crate) fn watch(&mut self, event: BorrowedFd<'_>) -> Result<(), NotThere> {
        let events = u32::try_from(libc::POLLIN).unwrap_or_default();
        let entry = opcode::PollAdd::new(types::Fd(event.as_raw_fd()), events).build();
        self.push(&entry.user_data(WATCH))
    }

    /// Queues the operation of `slot` at byte `offset` of the device.
    #[inline]
    pub(crate) fn queue(&mut self, slot: u32, offset: u64) -> Result<(), NotThere> {
        let file = types::Fixed(u32::from(FIRST));
        let place = self.base.wrapping_add(slot as usize * self.block as usize);
        let entry = match self.access {
            Access::Read => opcode::ReadFixed::new(file, place, self.block, FIRST)
                .offset(offset)
                .build(),
            Access::Write => opcode::WriteFixed::new(file, place, self.block, FIRST)
                .offset(offset)
                .build(),
        };
        self.push(&entry.user_data(u64::from(slot)))?;
        self.in_flight += 1;
        Ok(())
    }

    /// Hands what was queued to the kernel, and waits until an operation completed. Returns at once if one has.
    #[inline]
    pub(crate) fn submit_and_wait(&self) -> Result<(), NotThere> {
        match self.ring.submit_and_wait(1) {
            Ok(_) => Ok(()),
            // Interrupted; out of requests for now; completions must be taken first.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)
                ) =>
            {
                Ok(())
            }
            Err(error) => Err(refused("wait for an io_uring", &error)),
        }
    }

    /// Takes every completion that there is: `each` gets its slot and result. Whether the watched event came.
    #[inline]
    pub(crate) fn completed(&mut self, mut each: impl FnMut(u32, Result<u32, Errno>)) -> bool {
        let mut ended = false;
        for entry in self.ring.completion() {
            let Ok(slot) = u32::try_from(entry.user_data()) else {
                ended = true;
                continue;
            };
            self.in_flight -= 1;
            let result = u32::try_from(entry.result())
                .map_err(|_| Errno::from_raw_os_error(entry.result().wrapping_neg()));
            each(slot, result);
        }
        ended
    }

    fn push(&mut self, entry: &squeue::Entry) -> Result<(), NotThere> {
        // SAFETY: the entry names the registered file, or an event that outlives the ring, and a place within the
        // registered buffer, which this ring owns; with operations in flight the buffer is leaked.
        unsafe { self.ring.submission().push(entry) }.map_err(|_| NotThere {
            doing: "queue an operation of an io_uring",
            errno: Errno::AGAIN,
        })
    }
}

impl Drop for BlockRing {
    fn drop(&mut self) {
        if self.in_flight == 0 {
            // SAFETY: the kernel uses no place of the buffer any more, and nobody reads it after this. The pages stay
            // pinned until the ring is gone, which follows.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}

impl std::fmt::Debug for BlockRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BlockRing")
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}

fn build(entries: u32, polled: bool) -> io::Result<IoUring> {
    let basic = || {
        let mut builder = IoUring::builder();
        builder.setup_clamp();
        if polled {
            builder.setup_iopoll();
        }
        builder
    };
    // Completions are processed when the thread asks for them. Kernels before 6.1 do not know the flags.
    let best = basic()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(entries);
    best.or_else(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => basic().build(entries),
        _ => Err(error),
    })
}

fn refused(doing: &'static str, error: &io::Error) -> NotThere {
    NotThere {
        doing,
        errno: Errno::from_io_error(error).unwrap_or(Errno::IO),
    }
}
