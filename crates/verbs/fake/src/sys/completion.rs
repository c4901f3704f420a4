//! Completion queues, and event channels.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use linerate_verbs::sys::abi::{ibv_comp_channel, ibv_cq, ibv_wc};

/// A descriptor that is readable once per event, with the events.
pub(super) struct Teller<T> {
    pub(super) fd: c_int,
    told: Mutex<VecDeque<T>>,
}

impl<T> Teller<T> {
    pub(super) fn new() -> Self {
        // SAFETY: the call has no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_SEMAPHORE | libc::EFD_CLOEXEC) };
        assert!(fd >= 0, "the fake has no descriptor left");
        Self {
            fd,
            told: Mutex::default(),
        }
    }

    pub(super) fn tell(&self, what: T) {
        let mut told = lock(&self.told);
        told.push_back(what);
        let one = 1_u64;
        // SAFETY: 8 bytes of a number that lives during the call.
        let written = unsafe { libc::write(self.fd, (&raw const one).cast(), 8) };
        assert_eq!(written, 8, "an eventfd takes small numbers");
    }

    /// The next one, waiting if the descriptor does; `None` leaves the reason in `errno`.
    pub(super) fn take(&self) -> Option<T> {
        loop {
            let mut told = lock(&self.told);
            if let Some(what) = told.pop_front() {
                self.count_one();
                return Some(what);
            }
            drop(told);
            // SAFETY: the descriptor is open, the calls have no other pointers; this thread's own `errno`.
            unsafe {
                if libc::fcntl(self.fd, libc::F_GETFL) & libc::O_NONBLOCK != 0 {
                    *libc::__errno_location() = libc::EAGAIN;
                    return None;
                }
                let mut wanted = libc::pollfd {
                    fd: self.fd,
                    events: libc::POLLIN,
                    revents: 0,
                };
                if libc::poll(&raw mut wanted, 1, -1) < 0 {
                    return None;
                }
            }
        }
    }

    /// Counts one less, under the lock: the counter is one above the number of events.
    fn count_one(&self) {
        let mut count = 0_u64;
        // SAFETY: as in `tell`.
        let read = unsafe { libc::read(self.fd, (&raw mut count).cast(), 8) };
        assert_eq!(read, 8, "as many as were told");
    }

    /// Withdraws events that nobody took yet.
    pub(super) fn forget(&self, is_it: impl Fn(&T) -> bool) {
        let mut told = lock(&self.told);
        let before = told.len();
        told.retain(|own| !is_it(own));
        for _ in told.len()..before {
            self.count_one();
        }
    }
}

impl<T> Drop for Teller<T> {
    fn drop(&mut self) {
        // SAFETY: the descriptor is its own and is closed once.
        unsafe { libc::close(self.fd) };
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A slot of a queue pair's queue that is free again when its completion was taken.
#[derive(Clone)]
pub(super) struct Slot {
    pub(super) freed: Arc<AtomicU64>,
    /// All before this one are free with it.
    pub(super) upto: u64,
}

/// The event of a completion channel: the queue.
pub(super) struct Channel {
    pub(super) teller: Arc<Teller<usize>>,
    pub(super) device: usize,
    pub(super) queues: usize,
}

/// The object given out, the library's part first.
#[repr(C)]
pub(super) struct ChannelObject {
    pub(super) base: ibv_comp_channel,
    pub(super) teller: Arc<Teller<usize>>,
}

/// The object given out, the library's part first.
#[repr(C)]
pub(super) struct QueueObject {
    pub(super) base: ibv_cq,
    pub(super) queue: Arc<Queue>,
}

/// A completion queue.
pub(super) struct Queue {
    /// How many are there, to be inspected without a lock.
    waiting: AtomicUsize,
    pub(super) unacknowledged: AtomicUsize,
    inner: Mutex<Inner>,
}

struct Inner {
    entries: VecDeque<(ibv_wc, Slot)>,
    room: usize,
    armed: bool,
    broken: bool,
    teller: Option<Arc<Teller<usize>>>,
}

impl Queue {
    pub(super) fn new(room: usize, teller: Option<Arc<Teller<usize>>>) -> Self {
        Self {
            waiting: AtomicUsize::new(0),
            unacknowledged: AtomicUsize::new(0),
            inner: Mutex::new(Inner {
                entries: VecDeque::with_capacity(room),
                room,
                armed: false,
                broken: false,
                teller,
            }),
        }
    }

    /// Adds one; `false` if it overflowed, which is permanent.
    pub(super) fn add(&self, address: usize, entry: ibv_wc, slot: Slot) -> bool {
        let mut inner = lock(&self.inner);
        if inner.broken {
            return true;
        }
        if inner.entries.len() == inner.room {
            inner.broken = true;
            self.waiting.store(1, Ordering::Release); // so that a poll looks
            return false;
        }
        inner.entries.push_back((entry, slot));
        self.waiting.store(inner.entries.len(), Ordering::Release);
        if std::mem::take(&mut inner.armed)
            && let Some(teller) = &inner.teller
        {
            teller.tell(address);
        }
        true
    }

    pub(super) fn arm(&self) {
        lock(&self.inner).armed = true;
    }

    /// Takes what is there, in its order, into `into`; `None` of a queue that broke.
    pub(super) fn poll(&self, room: usize, mut into: impl FnMut(usize, ibv_wc)) -> Option<usize> {
        if self.waiting.load(Ordering::Acquire) == 0 {
            make_room();
            return Some(0);
        }
        let mut inner = lock(&self.inner);
        if inner.broken {
            return None;
        }
        let count = room.min(inner.entries.len());
        for (index, (entry, slot)) in inner.entries.drain(..count).enumerate() {
            slot.freed.fetch_max(slot.upto, Ordering::Relaxed);
            into(index, entry);
        }
        self.waiting.store(inner.entries.len(), Ordering::Release);
        Some(count)
    }
}

/// Lets a thread that polls in a loop leave the processor to the one that it waits for. sched_yield(2) would not do: each call
/// postpones the deadline of its thread, and beside busy programs one that has yielded thousands of times is not chosen for
/// seconds (`yield_task_fair`, kernel/sched/fair.c).
#[expect(
    clippy::disallowed_methods,
    reason = "what it polls for is no event that could be waited for"
)]
fn make_room() {
    const POLLS: u32 = 64;
    const PAUSE: Duration = Duration::from_micros(50);
    thread_local!(static EMPTY: Cell<u32> = const { Cell::new(0) });
    let count = EMPTY.get().wrapping_add(1);
    EMPTY.set(count);
    if count.is_multiple_of(POLLS) {
        std::thread::sleep(PAUSE);
    }
}
