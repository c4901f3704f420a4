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

/// A place in the far end's memory.
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
    /// Writes it to the far end's memory.
    Write(Remote),
    /// Fills it from the far end's memory.
    Read(Remote),
    /// Sends it as a message.
    Send,
    /// Sends it as a message with a number.
    SendNumber(u32),
    /// Sends it as a datagram.
    SendTo(To<'r>),
    /// Adds to 8 bytes of the far end's memory; the slice gets what was there.
    FetchAdd(Remote, u64),
}

/// Where a datagram goes.
#[derive(Debug, Clone, Copy)]
pub struct To<'r> {
    /// The way to its port.
    pub handle: &'r AddressHandle,
    /// The number of the queue pair there.
    pub queue_pair: u32,
    /// The key that it accepts.
    pub key: u32,
    /// The number that goes with it.
    pub number: Option<u32>,
}

/// One request of the sending side.
#[derive(Debug, Clone, Copy)]
pub struct Send<'r> {
    /// What its completion says.
    pub id: u64,
    /// This end's memory.
    pub local: Slice<'r>,
    /// What is done.
    pub work: Work<'r>,
    /// Whether its end is told; an error always is.
    pub signaled: bool,
    /// Whether its payload travels in the request: the memory is free again at once.
    pub inline: bool,
}

/// One request of the receiving side.
#[derive(Debug, Clone, Copy)]
pub struct Receive<'r> {
    /// What its completion says.
    pub id: u64,
    /// Where the message goes.
    pub local: Slice<'r>,
}

fn piece(slice: Slice<'_>) -> ibv_sge {
    ibv_sge {
        addr: slice.address,
        length: slice.length,
        lkey: slice.key,
    }
}

/// Linked requests of the sending side.
pub struct Sends<'r> {
    requests: Box<[ibv_send_wr]>,
    /// What the requests point at.
    _pieces: Box<[ibv_sge]>,
    regions: PhantomData<&'r ()>,
}

impl fmt::Debug for Sends<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sends({})", self.requests.len())
    }
}

impl<'r> Sends<'r> {
    /// Requests in their order.
    pub fn new(sends: &[Send<'r>]) -> Self {
        let mut pieces: Box<[ibv_sge]> = sends.iter().map(|send| piece(send.local)).collect();
        let mut requests: Box<[ibv_send_wr]> = (sends.iter().zip(&mut pieces))
            .map(|(send, piece)| request(send, piece))
            .collect();
        for index in 1..requests.len() {
            let next = &raw mut requests[index];
            requests[index - 1].next = next;
        }
        Self {
            requests,
            _pieces: pieces,
            regions: PhantomData,
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Asks for or against the telling of the end of request `index`.
    #[inline]
    pub fn set_signaled(&mut self, index: usize, signaled: bool) {
        let flags = &mut self.requests[index].send_flags;
        *flags = (*flags & !IBV_SEND_SIGNALED) | if signaled { IBV_SEND_SIGNALED } else { 0 };
    }

    /// Gives request `index` another number for its completion.
    #[inline]
    pub fn set_id(&mut self, index: usize, id: u64) {
        self.requests[index].wr_id = id;
    }

    /// Posts `count` requests from `first` on, by one call. The error says how many were taken before it.
    #[inline]
    pub fn post(
        &mut self,
        queue_pair: &QueuePair,
        first: usize,
        count: usize,
    ) -> Result<(), (usize, Errno)> {
        let requests = &mut self.requests[first..first + count];
        let Some(last) = requests.last_mut() else {
            return Ok(());
        };
        let next = std::mem::replace(&mut last.next, std::ptr::null_mut());
        let start = requests.as_mut_ptr();
        // SAFETY: a chain of `count` requests that ends with null; requests and pieces live in boxes of
        // `self`, the memory they name is registered while `'r` lasts, and the provider copies them.
        let refused = unsafe { queue_pair.post_sends(start) };
        requests[count - 1].next = next;
        refused.map_err(|(bad, errno)| {
            let taken = requests.iter().position(|one| std::ptr::eq(one, bad));
            (taken.unwrap_or(0), errno)
        })
    }
}

fn request(send: &Send<'_>, piece: &mut ibv_sge) -> ibv_send_wr {
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
        num_sge: i32::from(piece.length > 0),
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
    requests: Box<[ibv_recv_wr]>,
    /// What the requests point at.
    _pieces: Box<[ibv_sge]>,
    regions: PhantomData<&'r ()>,
}

impl fmt::Debug for Receives<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receives({})", self.requests.len())
    }
}

impl<'r> Receives<'r> {
    /// Requests in their order.
    pub fn new(receives: &[Receive<'r>]) -> Self {
        let mut pieces: Box<[ibv_sge]> = receives.iter().map(|one| piece(one.local)).collect();
        let mut requests: Box<[ibv_recv_wr]> = (receives.iter().zip(&mut pieces))
            .map(|(receive, piece)| ibv_recv_wr {
                wr_id: receive.id,
                next: std::ptr::null_mut(),
                num_sge: i32::from(piece.length > 0),
                sg_list: piece,
            })
            .collect();
        for index in 1..requests.len() {
            let next = &raw mut requests[index];
            requests[index - 1].next = next;
        }
        Self {
            requests,
            _pieces: pieces,
            regions: PhantomData,
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Posts `count` requests from `first` on, by one call. The error says how many were taken before it.
    #[inline]
    pub fn post(
        &mut self,
        queue_pair: &QueuePair,
        first: usize,
        count: usize,
    ) -> Result<(), (usize, Errno)> {
        let requests = &mut self.requests[first..first + count];
        let Some(last) = requests.last_mut() else {
            return Ok(());
        };
        let next = std::mem::replace(&mut last.next, std::ptr::null_mut());
        let start = requests.as_mut_ptr();
        // SAFETY: as in `Sends::post`.
        let refused = unsafe { queue_pair.post_receives(start) };
        requests[count - 1].next = next;
        refused.map_err(|(bad, errno)| {
            let taken = requests.iter().position(|one| std::ptr::eq(one, bad));
            (taken.unwrap_or(0), errno)
        })
    }
}

/// What a post answered: the request that was refused, and why.
pub(super) fn posted<T>(result: i32, bad: *mut T) -> Result<(), (*mut T, Errno)> {
    outcome(result).map_err(|errno| (bad, errno))
}
