//! Completion channels, completion queues, queue pairs.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use linerate_verbs::sys::abi::{
    IBV_QPT_RC, IBV_QPT_UD, ibv_comp_channel, ibv_context, ibv_cq, ibv_pd, ibv_qp, ibv_qp_attr,
    ibv_qp_init_attr,
};

use super::{child_born, child_died, device_of, fails, give, is_gone, take_back};
use crate::sys::carry;
use crate::sys::completion::{Channel, ChannelObject, Queue, QueueObject, Teller};
use crate::sys::number::{EVENT_CQ_ERR, EVENT_QP_ACCESS_ERR, QPS_RESET};
use crate::sys::queue_pair::{QueuePair, Slots};
use crate::sys::world::{DeviceEvent, Kind, QueueEntry, World, world};
use crate::{COMPLETIONS_MAX, DEPTH_MAX, Fault, INLINE_MAX, Link};

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    let mut world = world();
    let device = device_of(&world, context);
    if is_gone(&world, device) {
        return fails(libc::EIO);
    }
    let teller = Arc::new(Teller::new());
    let (raw, address) = give(ChannelObject {
        base: ibv_comp_channel {
            context,
            fd: teller.fd,
            refcnt: 0,
        },
        teller: Arc::clone(&teller),
    });
    let channel = Channel {
        teller,
        device,
        queues: 0,
    };
    world.channels.insert(address, channel);
    let own = world.contexts.get_mut(&context.addr());
    own.expect("it was there").children += 1;
    world.born(device, Kind::Channel);
    raw.cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    let mut world = world();
    let own = world.channels.get(&channel.addr());
    if own.expect("a channel that is alive").queues > 0 {
        return libc::EBUSY;
    }
    let own = world.channels.remove(&channel.addr());
    let device = own.expect("it was there").device;
    // SAFETY: it was given out as such and is alive.
    let context = unsafe { (*channel).context };
    let context = world.contexts.get_mut(&context.addr());
    context.expect("a channel keeps it open").children -= 1;
    world.died(device, Kind::Channel);
    // SAFETY: it was given out as such and is removed.
    unsafe { take_back(channel.cast::<ChannelObject>()) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    depth: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    vector: c_int,
) -> *mut ibv_cq {
    let mut world = world();
    let device = device_of(&world, context);
    if is_gone(&world, device) {
        return fails(libc::EIO);
    }
    let room = u32::try_from(depth).unwrap_or(0);
    if !(1..=COMPLETIONS_MAX).contains(&room) || vector != 0 {
        return fails(libc::EINVAL);
    }
    let told = (!channel.is_null()).then(|| channel.addr());
    let teller = told.map(|channel| {
        let own = world.channels.get_mut(&channel);
        let own = own.expect("a channel that is alive");
        own.queues += 1;
        Arc::clone(&own.teller)
    });
    let queue = Arc::new(Queue::new(room as usize, teller));
    let (raw, address) = give(QueueObject {
        base: ibv_cq {
            context,
            channel,
            cq_context,
            handle: 0,
            cqe: depth,
        },
        queue: Arc::clone(&queue),
    });
    world.queues.insert(
        address,
        QueueEntry {
            context: context.addr(),
            channel: told,
            queue,
            users: 0,
        },
    );
    let own = world.contexts.get_mut(&context.addr());
    own.expect("it was there").children += 1;
    world.born(device, Kind::Queue);
    raw.cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_cq(queue: *mut ibv_cq) -> c_int {
    let mut world = world();
    let address = queue.addr();
    let own = world.queues.get(&address);
    let own = own.expect("a completion queue that is alive");
    if own.users > 0 {
        return libc::EBUSY;
    }
    // The real one waits for ever.
    let left = own.queue.unacknowledged.load(Ordering::Relaxed);
    assert_eq!(left, 0, "events of a completion queue are not acknowledged");
    let own = world.queues.remove(&address).expect("it was there");
    if let Some(channel) = own.channel.and_then(|own| world.channels.get_mut(&own)) {
        channel.queues -= 1;
        channel.teller.forget(|told| *told == address);
    }
    let context = world.contexts.get_mut(&own.context);
    let context = context.expect("a queue keeps it open");
    context.children -= 1;
    let about = DeviceEvent {
        kind: EVENT_CQ_ERR,
        element: address,
    };
    context.teller.forget(|told| *told == about);
    let device = context.device;
    world.died(device, Kind::Queue);
    // SAFETY: it was given out as such and is removed.
    unsafe { take_back(queue.cast::<QueueObject>()) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    queue: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller's channel is alive, so it is such an object.
    let teller = unsafe { Arc::clone(&(*channel.cast::<ChannelObject>()).teller) };
    let Some(told) = teller.take() else {
        return -1;
    };
    let world = world();
    let own = world.queues.get(&told);
    let own = own.expect("a queue that is destroyed takes its events with it");
    own.queue.unacknowledged.fetch_add(1, Ordering::Relaxed);
    let raw: *mut ibv_cq = std::ptr::with_exposed_provenance_mut(told);
    // SAFETY: the caller's places; the queue is alive.
    unsafe {
        queue.write(raw);
        cq_context.write((*raw).cq_context);
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_cq_events(queue: *mut ibv_cq, count: c_uint) {
    let world = world();
    let own = world.queues.get(&queue.addr());
    let own = own.expect("a completion queue that is alive");
    let before = own
        .queue
        .unacknowledged
        .fetch_sub(count as usize, Ordering::Relaxed);
    assert!(before >= count as usize, "more acknowledged than taken");
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_qp(
    domain: *mut ibv_pd,
    asked: *mut ibv_qp_init_attr,
) -> *mut ibv_qp {
    let mut world = world();
    let device = world.device_of_domain(domain.addr());
    if is_gone(&world, device) {
        return fails(libc::EIO);
    }
    // SAFETY: the caller's structure.
    let asked = unsafe { &mut *asked };
    let room = asked.cap;
    let is_too_much = room.max_send_wr.max(room.max_recv_wr) > DEPTH_MAX
        || room.max_send_sge.max(room.max_recv_sge) > 4
        || room.max_inline_data > INLINE_MAX;
    if is_too_much || !matches!(asked.qp_type, IBV_QPT_RC | IBV_QPT_UD) || !asked.srq.is_null() {
        return fails(libc::EINVAL);
    }
    if world.devices[device].link == Link::Iwarp && asked.qp_type != IBV_QPT_RC {
        return fails(libc::EOPNOTSUPP);
    }
    let limit = world.devices[device].fault(Fault::QueuePairs);
    let made = world.devices[device].alive[Kind::QueuePair as usize];
    if limit != 0 && made >= limit {
        return fails(libc::ENOMEM);
    }
    for queue in [asked.send_cq, asked.recv_cq] {
        let own = world.queues.get_mut(&queue.addr());
        own.expect("a completion queue that is alive").users += 1;
    }
    let number = world.next_number();
    // SAFETY: the domain is alive (looked up above).
    let context = unsafe { (*domain).context };
    let (raw, address) = give(ibv_qp {
        context,
        qp_context: asked.qp_context,
        pd: domain,
        send_cq: asked.send_cq,
        recv_cq: asked.recv_cq,
        srq: std::ptr::null_mut(),
        handle: number,
        qp_num: number,
        state: QPS_RESET,
        qp_type: asked.qp_type,
    });
    let own = QueuePair {
        address,
        device,
        domain: domain.addr(),
        datagrams: asked.qp_type == IBV_QPT_UD,
        signals_all: asked.sq_sig_all != 0,
        send_queue: asked.send_cq.addr(),
        receive_queue: asked.recv_cq.addr(),
        room,
        state: QPS_RESET,
        set: ibv_qp_attr::default(),
        jobs: std::collections::VecDeque::new(),
        rooms: std::collections::VecDeque::new(),
        sends: Slots::default(),
        receives: Slots::default(),
    };
    world.queue_pairs.insert(number, own);
    child_born(&mut world, domain, Kind::QueuePair);
    carry::start(&mut world);
    raw
}

/// # Safety
///
/// The queue pair is alive.
unsafe fn number_of(world: &World, queue_pair: *mut ibv_qp) -> u32 {
    // SAFETY: the caller's word.
    let number = unsafe { (*queue_pair).qp_num };
    let own = world.queue_pairs.get(&number);
    let is_it = own.is_some_and(|own| own.address == queue_pair.addr());
    assert!(is_it, "a queue pair that is alive");
    number
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_qp(
    queue_pair: *mut ibv_qp,
    given: *mut ibv_qp_attr,
    mask: c_int,
) -> c_int {
    let mut world = world();
    // SAFETY: the caller's queue pair.
    let number = unsafe { number_of(&world, queue_pair) };
    let device = world.queue_pairs[&number].device;
    if is_gone(&world, device) {
        return libc::EIO;
    }
    // SAFETY: the caller's structure.
    match world.modify(number, unsafe { &*given }, mask) {
        Ok(()) => {
            // SAFETY: the caller's queue pair.
            unsafe { (*queue_pair).state = world.queue_pairs[&number].state };
            0
        }
        Err(errno) => errno,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_qp(queue_pair: *mut ibv_qp) -> c_int {
    let mut world = world();
    // SAFETY: the caller's queue pair.
    let number = unsafe { number_of(&world, queue_pair) };
    let own = world.queue_pairs.remove(&number).expect("it was there");
    for queue in [own.send_queue, own.receive_queue] {
        let queue = world.queues.get_mut(&queue);
        queue.expect("a queue pair keeps it alive").users -= 1;
    }
    let context = world.domains[&own.domain].context;
    let about = DeviceEvent {
        kind: EVENT_QP_ACCESS_ERR,
        element: own.address,
    };
    let teller = &world.contexts[&context].teller;
    teller.forget(|told| *told == about);
    child_died(&mut world, own.domain, Kind::QueuePair);
    world.hang_up(number);
    world.wake();
    // SAFETY: it was given out as such and is removed.
    unsafe { take_back(queue_pair) };
    0
}
