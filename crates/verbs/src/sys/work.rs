//! Work requests, linked once and posted as often as wanted: what is posted in the hot path is a pointer.

use std::fmt;
use std::marker::PhantomData;

use rustix::io::Errno;

use super::abi::{
    IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ,
    IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, ibv_recv_wr, ibv_send_wr, ibv_sge,
    wr_atomic, wr_kind, wr_rdma, wr_ud,
};
use super::memory::Slice;
use super::outcome;
use super::queue::{AddressHandle, QueuePair};

/// A place in the remote end's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// Its address there.
    pub address: u64,
    /// The key of its region.
    pub key: u32,
}

impl Remote {
    /// So many bytes further on.
    #[must_use]
    pub fn at(self, offset: u64) -> Self {
        Self {
            address: self.address.wrapping_add(offset),
            ..self
        }
    }
}

/// What a request does with its slice.
#[derive(Debug, Clone, Copy)]
pub enum Work<'r> {
    /// Writes it to the remote end's memory.
    Write(Remote),
    /// Fills it from the remote end's memory.
    Read(Remote),
    /// Sends it as a message.
    Send,
    /// Sends it as a message with a number.
    SendNumber(u32),
    /// Sends it as a datagram.
    SendTo(To<'r>),
    /// Adds to 8 bytes of the remote end's memory; the slice gets what was there.
    FetchAdd(Remote, u64),
}

/// The destination of a datagram.
#[derive(Debug, Clone, Copy)]
pub struct To<'r> {
    /// The path to its port.
    pub handle: &'r AddressHandle,
    /// The number of the queue pair there.
    pub queue_pair: u32,
    /// The key that it accepts.
    pub key: u32,
    /// Its immediate data.
    pub number: Option<u32>,
}

/// One request of the sending side.
#[derive(Debug, Clone, Copy)]
pub struct Send<'r> {
    /// The id in its completion.
    pub id: u64,
    /// This end's memory.
    pub local: Slice<'r>,
    /// What is done.
    pub work: Work<'r>,
    /// Whether it generates a completion; an error always does.
    pub signaled: bool,
    /// Whether its payload travels in the request: the memory is free again at once.
    pub inline: bool,
}

/// One request of the receiving side.
#[derive(Debug, Clone, Copy)]
pub struct Receive<'r> {
    /// The id in its completion.
    pub id: u64,
    /// Where the message is received.
    pub local: Slice<'r>,
}

fn piece(slice: Slice<'_>) -> ibv_sge {
    ibv_sge {
        addr: slice.address,
        length: slice.length,
        lkey: slice.key,
    }
}

impl QueuePair {
    /// Posts one request, for where there is no list to be linked before.
    #[inline]
    pub fn send(&self, send: &Send<'_>) -> Result<(), Errno> {
        let mut piece = piece(send.local);
        let mut request = request(send, &raw mut piece);
        // SAFETY: a chain of one request; it and its piece are there for the call, the memory it names is
        // registered while the slice's borrow lasts, and the provider copies the request.
        unsafe { self.post_sends(&raw mut request) }.map_err(|(_, errno)| errno)
    }

    /// Posts a receive for one message.
    #[inline]
    pub fn receive(&self, receive: &Receive<'_>) -> Result<(), Errno> {
        let mut piece = piece(receive.local);
        let mut request = ibv_recv_wr {
            wr_id: receive.id,
            next: std::ptr::null_mut(),
            num_sge: i32::from(piece.length > 0),
            sg_list: &raw mut piece,
        };
        // SAFETY: as in `send`.
        unsafe { self.post_receives(&raw mut request) }.map_err(|(_, errno)| errno)
    }
}

/// A request that names the next one.
trait Linked {
    fn next(&mut self) -> &mut *mut Self;
}

impl Linked for ibv_send_wr {
    fn next(&mut self) -> &mut *mut Self {
        &mut self.next
    }
}

impl Linked for ibv_recv_wr {
    fn next(&mut self) -> &mut *mut Self {
        &mut self.next
    }
}

/// Requests that point at each other and at their pieces. Both are reached by these two pointers alone: a box
/// or a slice of them would claim that nothing else points there.
struct Chain<T: Linked> {
    requests: *mut T,
    pieces: *mut ibv_sge,
    count: usize,
}

impl<T: Linked> Chain<T> {
    fn new(pieces: Box<[ibv_sge]>, request: impl Fn(usize, *mut ibv_sge) -> T) -> Self {
        let count = pieces.len();
        let pieces = Box::into_raw(pieces).cast::<ibv_sge>();
        // SAFETY: there are so many pieces.
        let piece = |index| unsafe { pieces.add(index) };
        let requests: Box<[T]> = (0..count)
            .map(|index| request(index, piece(index)))
            .collect();
        let requests = Box::into_raw(requests).cast::<T>();
        for index in 1..count {
            // SAFETY: there are so many requests, and this is their one user.
            unsafe { *(*requests.add(index - 1)).next() = requests.add(index) };
        }
        Self {
            requests,
            pieces,
            count,
        }
    }

    fn at(&mut self, index: usize) -> &mut T {
        assert!(index < self.count, "one of {} requests", self.count);
        // SAFETY: there are so many requests; the reference is the only one while it lasts.
        unsafe { &mut *self.requests.add(index) }
    }

    /// Has `post` take `count` requests from `first` on as one chain. The error contains how many were
    /// accepted before it.
    #[inline]
    fn post(
        &mut self,
        first: usize,
        count: usize,
        post: impl FnOnce(*mut T) -> Result<(), (*mut T, Errno)>,
    ) -> Result<(), (usize, Errno)> {
        let is_within = first
            .checked_add(count)
            .is_some_and(|end| end <= self.count);
        assert!(is_within, "{count} of {} requests from {first}", self.count);
        if count == 0 {
            return Ok(());
        }
        let next = std::mem::replace(self.at(first + count - 1).next(), std::ptr::null_mut());
        // SAFETY: there are so many requests.
        let start = unsafe { self.requests.add(first) };
        let refused = post(start);
        *self.at(first + count - 1).next() = next;
        refused.map_err(|(bad, errno)| {
            let taken = (0..count).position(|index| std::ptr::eq(start.wrapping_add(index), bad));
            (taken.unwrap_or(0), errno)
        })
    }
}

impl<T: Linked> Drop for Chain<T> {
    fn drop(&mut self) {
        let requests = std::ptr::slice_from_raw_parts_mut(self.requests, self.count);
        let pieces = std::ptr::slice_from_raw_parts_mut(self.pieces, self.count);
        // SAFETY: both were boxes of so many; providers keep no pointer to what was posted.
        unsafe {
            drop(Box::from_raw(requests));
            drop(Box::from_raw(pieces));
        }
    }
}

/// Linked requests of the sending side.
pub struct Sends<'r> {
    chain: Chain<ibv_send_wr>,
    /// Whether they are of datagrams, all or none: only those name where they go, and a provider believes them.
    datagrams: bool,
    regions: PhantomData<&'r ()>,
}

impl fmt::Debug for Sends<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sends({})", self.len())
    }
}

impl<'r> Sends<'r> {
    /// Requests in their order, of datagrams ([`Work::SendTo`]) all or none.
    pub fn new(sends: &[Send<'r>]) -> Self {
        let is_datagram = |send: &Send<'_>| matches!(send.work, Work::SendTo(_));
        let datagrams = sends.iter().any(is_datagram);
        assert!(
            !datagrams || sends.iter().all(is_datagram),
            "requests of one kind of queue pair"
        );
        let pieces = sends.iter().map(|send| piece(send.local)).collect();
        Self {
            chain: Chain::new(pieces, |index, piece| request(&sends[index], piece)),
            datagrams,
            regions: PhantomData,
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.chain.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets whether request `index` is signaled.
    #[inline]
    pub fn set_signaled(&mut self, index: usize, signaled: bool) {
        let flags = &mut self.chain.at(index).send_flags;
        *flags = (*flags & !IBV_SEND_SIGNALED) | if signaled { IBV_SEND_SIGNALED } else { 0 };
    }

    /// Sets another number for the completion of request `index`.
    #[inline]
    pub fn set_id(&mut self, index: usize, id: u64) {
        self.chain.at(index).wr_id = id;
    }

    /// Sets other immediate data for the message of request `index`, which was created with some.
    #[inline]
    pub fn set_number(&mut self, index: usize, number: u32) {
        self.chain.at(index).imm_data = number.to_be();
    }

    /// Posts `count` requests from `first` on, by one call. The error contains how many were accepted before it.
    #[inline]
    pub fn post(
        &mut self,
        queue_pair: &QueuePair,
        first: usize,
        count: usize,
    ) -> Result<(), (usize, Errno)> {
        assert_eq!(
            self.datagrams, queue_pair.datagrams,
            "datagrams go over their own queue pairs"
        );
        // SAFETY: a chain of `count` requests that ends with null; requests and pieces live as long as `self`,
        // the memory they name is registered while `'r` lasts, and the provider copies them. Those of a queue pair of
        // datagrams name an address handle.
        (self.chain).post(first, count, |start| unsafe {
            queue_pair.post_sends(start)
        })
    }
}

fn request(send: &Send<'_>, piece: *mut ibv_sge) -> ibv_send_wr {
    let rdma = |remote: Remote| wr_kind {
        rdma: wr_rdma {
            remote_addr: remote.address,
            rkey: remote.key,
        },
    };
    let nowhere = rdma(Remote { address: 0, key: 0 });
    let mut number = 0;
    let (opcode, wr) = match send.work {
        Work::Write(to) => (IBV_WR_RDMA_WRITE, rdma(to)),
        Work::Read(from) => (IBV_WR_RDMA_READ, rdma(from)),
        Work::Send => (IBV_WR_SEND, nowhere),
        Work::SendNumber(told) => {
            number = told.to_be();
            (IBV_WR_SEND_WITH_IMM, nowhere)
        }
        Work::SendTo(to) => {
            let ud = wr_ud {
                ah: to.handle.raw(),
                remote_qpn: to.queue_pair,
                remote_qkey: to.key,
            };
            number = to.number.unwrap_or(0).to_be();
            let opcode = to.number.map_or(IBV_WR_SEND, |_| IBV_WR_SEND_WITH_IMM);
            (opcode, wr_kind { ud })
        }
        Work::FetchAdd(at, add) => {
            let atomic = wr_atomic {
                remote_addr: at.address,
                compare_add: add,
                swap: 0,
                rkey: at.key,
            };
            (IBV_WR_ATOMIC_FETCH_AND_ADD, wr_kind { atomic })
        }
    };
    let mut flags = 0;
    if send.signaled {
        flags |= IBV_SEND_SIGNALED;
    }
    if send.inline {
        flags |= IBV_SEND_INLINE;
    }
    ibv_send_wr {
        wr_id: send.id,
        next: std::ptr::null_mut(),
        num_sge: i32::from(send.local.length > 0),
        sg_list: piece,
        opcode,
        send_flags: flags,
        imm_data: number,
        wr,
        xrc_remote_srqn: 0,
        rest: [0; 6],
    }
}

/// Linked requests of the receiving side.
pub struct Receives<'r> {
    chain: Chain<ibv_recv_wr>,
    regions: PhantomData<&'r ()>,
}

impl fmt::Debug for Receives<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receives({})", self.len())
    }
}

impl<'r> Receives<'r> {
    /// Requests in their order.
    pub fn new(receives: &[Receive<'r>]) -> Self {
        let pieces = receives.iter().map(|one| piece(one.local)).collect();
        let request = |index: usize, piece| ibv_recv_wr {
            wr_id: receives[index].id,
            next: std::ptr::null_mut(),
            num_sge: i32::from(receives[index].local.length > 0),
            sg_list: piece,
        };
        Self {
            chain: Chain::new(pieces, request),
            regions: PhantomData,
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.chain.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Posts `count` requests from `first` on, by one call. The error contains how many were accepted before it.
    #[inline]
    pub fn post(
        &mut self,
        queue_pair: &QueuePair,
        first: usize,
        count: usize,
    ) -> Result<(), (usize, Errno)> {
        // SAFETY: as in `Sends::post`.
        (self.chain).post(first, count, |start| unsafe {
            queue_pair.post_receives(start)
        })
    }
}

/// What a post answered: the request that was refused, and why.
pub(super) fn posted<T>(result: i32, bad: *mut T) -> Result<(), (*mut T, Errno)> {
    outcome(result).map_err(|errno| (bad, errno))
}
