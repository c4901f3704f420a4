//! The functions that a device's provider fills in: posting, polling, arming.

use std::ffi::c_int;

use linerate_verbs::sys::abi::{
    IBV_QPS_ERR, IBV_QPS_RTS, IBV_SEND_INLINE, IBV_SEND_SIGNALED, IBV_WR_ATOMIC_FETCH_AND_ADD,
    IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, ibv_cq, ibv_qp,
    ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_wc,
};

use super::completion::QueueObject;
use super::number::QPS_RESET;
use super::queue_pair::{Job, QueuePair, Room, Task};
use super::world::{World, world};
use crate::Fault;

pub(super) unsafe extern "C" fn poll_cq(
    queue: *mut ibv_cq,
    room: c_int,
    into: *mut ibv_wc,
) -> c_int {
    let Ok(room) = usize::try_from(room) else {
        return -1;
    };
    // SAFETY: the caller's queue is one that this library made, which is such an object.
    let own = unsafe { &(*queue.cast::<QueueObject>()).queue };
    let polled = own.poll(room, |index, entry| {
        // SAFETY: the caller has room for so many.
        unsafe { into.add(index).write(entry) };
    });
    polled.map_or(-1, |count| c_int::try_from(count).unwrap_or(c_int::MAX))
}

pub(super) unsafe extern "C" fn req_notify_cq(queue: *mut ibv_cq, _: c_int) -> c_int {
    // SAFETY: as in `poll_cq`.
    unsafe { &(*queue.cast::<QueueObject>()).queue }.arm();
    0
}

/// The pieces of a request.
///
/// # Safety
///
/// `first` names `count` of them.
unsafe fn pieces(first: *const ibv_sge, count: c_int) -> Vec<ibv_sge> {
    match usize::try_from(count) {
        // SAFETY: the caller's word.
        Ok(count @ 1..) => unsafe { std::slice::from_raw_parts(first, count) }.to_vec(),
        _ => Vec::new(),
    }
}

/// The task of a request; an error number if it is invalid.
///
/// # Safety
///
/// The request is one for this queue pair, its union as its opcode requires.
unsafe fn task(world: &World, own: &QueuePair, request: &ibv_send_wr) -> Result<Task, c_int> {
    // SAFETY: the caller's word.
    unsafe {
        let (rdma, atomic, ud) = (request.wr.rdma, request.wr.atomic, request.wr.ud);
        Ok(match (request.opcode, own.datagrams) {
            (IBV_WR_RDMA_WRITE, false) => Task::Write {
                address: rdma.remote_addr,
                key: rdma.rkey,
            },
            (IBV_WR_RDMA_READ, false) => Task::Read {
                address: rdma.remote_addr,
                key: rdma.rkey,
            },
            (IBV_WR_ATOMIC_FETCH_AND_ADD, false) => Task::FetchAdd {
                address: atomic.remote_addr,
                key: atomic.rkey,
                add: atomic.compare_add,
            },
            (IBV_WR_SEND, false) => Task::Send { number: None },
            (IBV_WR_SEND_WITH_IMM, false) => Task::Send {
                number: Some(request.imm_data),
            },
            (IBV_WR_SEND | IBV_WR_SEND_WITH_IMM, true) => {
                let handle = world.handles.get(&ud.ah.addr()).ok_or(libc::EINVAL)?;
                if handle.domain != own.domain {
                    return Err(libc::EINVAL);
                }
                let tells = request.opcode == IBV_WR_SEND_WITH_IMM;
                Task::Datagram {
                    number: tells.then_some(request.imm_data),
                    to: ud.remote_qpn,
                    key: ud.remote_qkey,
                    way: handle.way,
                }
            }
            _ => return Err(libc::EINVAL),
        })
    }
}

/// The bytes that a request takes with it now.
///
/// # Safety
///
/// The pieces name memory that can be read.
unsafe fn inline(pieces: &[ibv_sge]) -> Vec<u8> {
    let mut bytes = Vec::<u8>::new();
    for piece in pieces {
        let length = piece.length as usize;
        let start = usize::try_from(piece.addr).expect("an address");
        let start: *const u8 = std::ptr::with_exposed_provenance(start);
        bytes.reserve(length);
        // SAFETY: the caller's word, and the room was just reserved. Copied without a reference: devices may write
        // there.
        unsafe {
            let end = bytes.as_mut_ptr().add(bytes.len());
            std::ptr::copy_nonoverlapping(start, end, length);
            bytes.set_len(bytes.len() + length);
        }
    }
    bytes
}

/// Takes one request.
///
/// # Safety
///
/// As of `ibv_post_send`.
unsafe fn take_send(world: &mut World, number: u32, request: &ibv_send_wr) -> Result<(), c_int> {
    let own = &world.queue_pairs[&number];
    if !matches!(own.state, IBV_QPS_RTS | IBV_QPS_ERR) {
        return Err(libc::EINVAL);
    }
    if request.num_sge < 0 || request.num_sge.cast_unsigned() > own.room.max_send_sge {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's word.
    let (task, pieces) = unsafe {
        let pieces = pieces(request.sg_list, request.num_sge);
        (task(world, own, request)?, pieces)
    };
    let is_inline = request.send_flags & IBV_SEND_INLINE != 0;
    let fetches = matches!(task, Task::Read { .. } | Task::FetchAdd { .. });
    let length: u64 = pieces.iter().map(|piece| u64::from(piece.length)).sum();
    if is_inline && (fetches || length > own.room.max_inline_data.into()) {
        return Err(libc::EINVAL);
    }
    // SAFETY: as above.
    let inline = is_inline.then(|| unsafe { inline(&pieces) });
    let own = world.queue_pairs.get_mut(&number).expect("it was there");
    let slot = own.sends.take(own.room.max_send_wr).ok_or(libc::ENOMEM)?;
    own.jobs.push_back(Job {
        id: request.wr_id,
        task,
        pieces,
        inline,
        signaled: request.send_flags & IBV_SEND_SIGNALED != 0,
        slot,
        until: None,
    });
    Ok(())
}

/// Takes one request.
///
/// # Safety
///
/// As of `ibv_post_recv`.
unsafe fn take_receive(world: &mut World, number: u32, request: &ibv_recv_wr) -> Result<(), c_int> {
    let own = world.queue_pairs.get_mut(&number).expect("it is alive");
    let is_too_many = request.num_sge.cast_unsigned() > own.room.max_recv_sge;
    if own.state == QPS_RESET || is_too_many {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's word.
    let pieces = unsafe { pieces(request.sg_list, request.num_sge) };
    let slot = own.receives.take(own.room.max_recv_wr);
    own.rooms.push_back(Room {
        id: request.wr_id,
        pieces,
        slot: slot.ok_or(libc::ENOMEM)?,
    });
    Ok(())
}

/// Takes a chain of requests; the first that is refused, with the error number.
///
/// # Safety
///
/// `queue_pair` is alive; `request` begins a chain that ends with null.
unsafe fn take_all<T>(
    queue_pair: *mut ibv_qp,
    mut request: *mut T,
    bad: *mut *mut T,
    next: impl Fn(&T) -> *mut T,
    take: impl Fn(&mut World, u32, &T) -> Result<(), c_int>,
    after: impl Fn(&mut World, u32),
) -> c_int {
    let mut world = world();
    let world = &mut *world;
    // SAFETY: the caller's word.
    let number = unsafe { (*queue_pair).qp_num };
    let own = world.queue_pairs.get(&number);
    let device = own.expect("a queue pair that is alive").device;
    let mut result = 0;
    while !request.is_null() {
        // SAFETY: the caller's word.
        let own = unsafe { &*request };
        let taken = if world.devices[device].has(Fault::Gone) {
            Err(libc::EIO)
        } else {
            take(world, number, own)
        };
        if let Err(errno) = taken {
            // SAFETY: the caller's word.
            unsafe { bad.write(request) };
            result = errno;
            break;
        }
        request = next(own);
    }
    if world.queue_pairs[&number].state == IBV_QPS_ERR {
        world.flush(number);
    }
    after(world, number);
    result
}

pub(super) unsafe extern "C" fn post_send(
    queue_pair: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the conditions of this function are those of the others.
    unsafe {
        take_all(
            queue_pair,
            first,
            bad,
            |request| request.next,
            |world, number, request| take_send(world, number, request),
            World::leave,
        )
    }
}

pub(super) unsafe extern "C" fn post_recv(
    queue_pair: *mut ibv_qp,
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the conditions of this function are those of the others.
    unsafe {
        take_all(
            queue_pair,
            first,
            bad,
            |request| request.next,
            |world, number, request| take_receive(world, number, request),
            |world, _| world.wake(),
        )
    }
}
