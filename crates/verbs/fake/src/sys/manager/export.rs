//! The functions of librdmacm that `linerate_verbs` looks up, with the conventions of their manual pages.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use linerate_verbs::Gid;
use linerate_verbs::sys::abi::{
    Gid16, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_QP_ACCESS_FLAGS, IBV_QP_AV,
    IBV_QP_DEST_QPN, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER,
    IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY,
    IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT, IBV_QPS_INIT, IBV_QPS_RTR,
    IBV_QPS_RTS, RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_CONNECT_REQUEST,
    RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_ROUTE_RESOLVED,
    RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, RDMA_PS_TCP, ibv_qp_attr, rdma_cm_event, rdma_cm_id,
    rdma_cm_param, rdma_conn_param, rdma_event_channel,
};

use super::{ChannelObject, ManagerEvent, NO_SERVICE, REJECTED, State, device_at, manager};
use crate::Link;
use crate::sys::completion::Teller;
use crate::sys::number::MTU_1024;
use crate::sys::world::world;

const ADDR_ERROR: c_int = 1;
const UNREACHABLE: c_int = 7;

/// Bytes of ours in a request; what is unused comes as zeroes.
const PRIVATE: usize = 56;

/// The object given out, the library's part first.
#[repr(C)]
struct EventObject {
    base: rdma_cm_event,
    owner: usize,
    _private: Vec<u8>,
}

/// How a function that returns a number fails.
fn refuses(errno: c_int) -> c_int {
    // SAFETY: this thread's own `errno`.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// The object that a channel is: each was given out as one.
fn object(channel: *mut rdma_event_channel) -> *mut ChannelObject {
    channel.cast()
}

/// # Safety
///
/// `address` is one of its family.
unsafe fn address(address: *const libc::sockaddr) -> SocketAddr {
    // SAFETY: the caller's word.
    unsafe {
        if c_int::from((*address).sa_family) == libc::AF_INET6 {
            let own = address.cast::<libc::sockaddr_in6>().read_unaligned();
            let ip = IpAddr::from(own.sin6_addr.s6_addr);
            SocketAddr::new(ip, u16::from_be(own.sin6_port))
        } else {
            let own = address.cast::<libc::sockaddr_in>().read_unaligned();
            let ip = IpAddr::from(own.sin_addr.s_addr.to_ne_bytes());
            SocketAddr::new(ip, u16::from_be(own.sin_port))
        }
    }
}

/// Channels, identifiers and events that were handed out and not released.
#[unsafe(no_mangle)]
extern "C" fn fake_manager_alive() -> u64 {
    let manager = manager();
    let own = manager.identifiers.values();
    let events: usize = own.map(|own| own.unacknowledged).sum();
    (manager.channels + manager.identifiers.len() + events) as u64
}

#[unsafe(no_mangle)]
extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    let teller = Arc::new(Teller::new());
    let channel = Box::new(ChannelObject {
        base: rdma_event_channel { fd: teller.fd },
        teller,
    });
    manager().channels += 1;
    let raw = Box::into_raw(channel);
    raw.expose_provenance();
    raw.cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    let mut manager = manager();
    let own = manager.identifiers.values();
    let users = own.filter(|own| own.channel == channel.addr()).count();
    assert_eq!(users, 0, "identifiers use this channel");
    manager.channels -= 1;
    // SAFETY: it came from `rdma_create_event_channel` and is returned once.
    drop(unsafe { Box::from_raw(object(channel)) });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_id(
    channel: *mut rdma_event_channel,
    into: *mut *mut rdma_cm_id,
    _: *mut c_void,
    space: c_int,
) -> c_int {
    if space != RDMA_PS_TCP {
        return refuses(libc::EINVAL);
    }
    // SAFETY: the caller's channel is alive, so it is such an object.
    let teller = unsafe { Arc::clone(&(*object(channel)).teller) };
    let id = manager().give(channel.addr(), teller, State::Idle);
    // SAFETY: the caller's place.
    unsafe { into.write(std::ptr::with_exposed_provenance_mut(id)) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int {
    manager().destroy(id.addr());
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_bind_addr(id: *mut rdma_cm_id, to: *mut libc::sockaddr) -> c_int {
    // SAFETY: the caller's address.
    let mut own = unsafe { address(to) };
    let mut manager = manager();
    let device = device_at(own.ip());
    if device.is_none() && !own.ip().is_unspecified() {
        return refuses(libc::ENODEV);
    }
    if own.port() == 0 {
        own.set_port(manager.free_port());
    } else if manager.listener(own).is_some() {
        return refuses(libc::EADDRINUSE);
    }
    manager.identifier(id.addr()).own = Some(own);
    if let Some(place) = device {
        // SAFETY: the caller's identifier is alive.
        unsafe { (*id).verbs = manager.context(place.device) };
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, _: c_int) -> c_int {
    let mut manager = manager();
    let own = manager.identifier(id.addr());
    if own.state != State::Idle || own.own.is_none() {
        return refuses(libc::EINVAL);
    }
    if own.is_port_taken() {
        return refuses(libc::EADDRINUSE);
    }
    own.state = State::Listening;
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    let own = manager().identifier(id.addr()).own;
    own.map_or(0, |own| own.port().to_be())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    from: *mut libc::sockaddr,
    to: *mut libc::sockaddr,
    _: c_int,
) -> c_int {
    // SAFETY: the caller's addresses.
    let (own, far) = unsafe {
        let far = address(to);
        let own = if from.is_null() { far } else { address(from) };
        (own, far)
    };
    let mut manager = manager();
    let Some(place) = device_at(own.ip()) else {
        return refuses(libc::ENODEV);
    };
    let identifier = manager.identifier(id.addr());
    if identifier.state != State::Idle {
        return refuses(libc::EINVAL);
    }
    (identifier.own, identifier.far) = (Some(own), Some(far));
    let told = if device_at(far.ip()).is_some() {
        identifier.state = State::Addressed;
        // SAFETY: the caller's identifier is alive.
        unsafe { (*id).verbs = manager.context(place.device) };
        ManagerEvent::plain(id.addr(), RDMA_CM_EVENT_ADDR_RESOLVED, 0)
    } else {
        ManagerEvent::plain(id.addr(), ADDR_ERROR, -libc::EHOSTUNREACH)
    };
    manager.tell(told);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_resolve_route(id: *mut rdma_cm_id, _: c_int) -> c_int {
    let mut manager = manager();
    let own = manager.identifier(id.addr());
    if own.state != State::Addressed {
        return refuses(libc::EINVAL);
    }
    own.state = State::Routed;
    let told = ManagerEvent::plain(id.addr(), RDMA_CM_EVENT_ROUTE_RESOLVED, 0);
    manager.tell(told);
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    option: c_int,
    _: *mut c_void,
    length: usize,
) -> c_int {
    let _ = manager().identifier(id.addr());
    if (level, option, length) == (RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, 1) {
        return 0;
    }
    refuses(libc::EINVAL)
}

/// # Safety
///
/// The structure names its private data.
unsafe fn private(given: &rdma_conn_param) -> Vec<u8> {
    let length = usize::from(given.private_data_len);
    if length == 0 {
        return Vec::new();
    }
    // SAFETY: the caller's word.
    unsafe { std::slice::from_raw_parts(given.private_data.cast::<u8>(), length) }.to_vec()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_connect(id: *mut rdma_cm_id, given: *mut rdma_conn_param) -> c_int {
    // SAFETY: the caller's structure.
    let (given, mut private) = unsafe { (&*given, private(&*given)) };
    let caller = id.addr();
    let mut manager = manager();
    let own = manager.identifier(caller);
    if own.state != State::Routed || private.len() > PRIVATE {
        return refuses(libc::EINVAL);
    }
    if own.is_port_taken() {
        return refuses(libc::EADDRINUSE);
    }
    // What iWARP carries is as long as it was given.
    if own.place().is_none_or(|place| place.link != Link::Iwarp) {
        private.resize(PRIVATE, 0);
    }
    own.state = State::Calling;
    let (from, to) = (own.own, own.far.expect("it has a way"));
    let Some(listener) = manager.listener(to) else {
        manager.tell(ManagerEvent::plain(caller, REJECTED, NO_SERVICE));
        return 0;
    };
    let own = manager.identifier(listener);
    let (channel, teller) = (own.channel, Arc::clone(&own.teller));
    let called = manager.give(channel, teller, State::Called);
    manager.identifier(caller).peer = Some(called);
    let own = manager.identifier(called);
    (own.own, own.far, own.peer) = (Some(to), from, Some(caller));
    own.far_queue_pair = Some(given.qp_num);
    own.reads = (given.responder_resources, given.initiator_depth);
    if let Some(place) = device_at(to.ip()) {
        let raw: *mut rdma_cm_id = std::ptr::with_exposed_provenance_mut(called);
        // SAFETY: it was just created, and nothing else has it yet.
        unsafe { (*raw).verbs = manager.context(place.device) };
    }
    manager.tell(ManagerEvent {
        id: called,
        owner: listener,
        event: RDMA_CM_EVENT_CONNECT_REQUEST,
        status: 0,
        private,
        reads: (given.initiator_depth, given.responder_resources),
        queue_pair: given.qp_num,
    });
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_accept(id: *mut rdma_cm_id, given: *mut rdma_conn_param) -> c_int {
    // SAFETY: the caller's structure.
    let (given, private) = unsafe { (&*given, private(&*given)) };
    let mut manager = manager();
    let own = manager.identifier(id.addr());
    if own.state != State::Called {
        return refuses(libc::EINVAL);
    }
    own.state = State::Answered;
    let is_iwarp = own.place().is_some_and(|place| place.link == Link::Iwarp);
    let called_by = own.far_queue_pair;
    let caller = own
        .peer
        .filter(|peer| manager.identifiers.contains_key(peer));
    let Some(caller) = caller else {
        manager.tell(ManagerEvent::plain(
            id.addr(),
            UNREACHABLE,
            -libc::ETIMEDOUT,
        ));
        return 0;
    };
    let (mut state, mut event) = (State::Answered, RDMA_CM_EVENT_CONNECT_RESPONSE);
    if is_iwarp {
        // The kernel connects their queue pairs, and both are notified.
        let called_by = called_by.expect("a request has told it");
        if let Err(errno) = world().join(given.qp_num, called_by) {
            return refuses(errno);
        }
        (state, event) = (State::Connected, RDMA_CM_EVENT_ESTABLISHED);
        manager.identifier(id.addr()).state = state;
        manager.tell(ManagerEvent::plain(id.addr(), event, 0));
    }
    let far = manager.identifier(caller);
    far.state = state;
    far.far_queue_pair = Some(given.qp_num);
    far.reads = (given.responder_resources, given.initiator_depth);
    manager.tell(ManagerEvent {
        private,
        reads: (given.initiator_depth, given.responder_resources),
        queue_pair: given.qp_num,
        ..ManagerEvent::plain(caller, event, 0)
    });
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    let mut manager = manager();
    let own = manager.identifier(id.addr());
    if own.state != State::Answered {
        return refuses(libc::EINVAL);
    }
    own.state = State::Connected;
    if let Some(peer) = own.peer {
        manager.identifier(peer).state = State::Connected;
        manager.tell(ManagerEvent::plain(peer, RDMA_CM_EVENT_ESTABLISHED, 0));
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    let mut manager = manager();
    let own = manager.identifier(id.addr());
    if !matches!(own.state, State::Answered | State::Connected) {
        return refuses(libc::EINVAL);
    }
    manager.part(id.addr());
    manager.tell(ManagerEvent::plain(id.addr(), super::DISCONNECTED, 0));
    0
}

/// The attributes of a queue pair's states in iWARP: none for ready-to-send, which the kernel reaches itself
/// (`iw_cm_init_qp_attr`, with the port that `rdma_init_qp_attr` adds).
fn attributes_of_iwarp(values: &mut ibv_qp_attr, called: bool) -> c_int {
    values.port_num = 1;
    if values.qp_state == IBV_QPS_RTS {
        return IBV_QP_PORT;
    }
    if called {
        values.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    }
    IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PORT
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_init_qp_attr(
    id: *mut rdma_cm_id,
    into: *mut ibv_qp_attr,
    mask: *mut c_int,
) -> c_int {
    let mut manager = manager();
    let own = manager.identifier(id.addr());
    // SAFETY: the caller's structure.
    let state = unsafe { (*into).qp_state };
    let mut values = ibv_qp_attr {
        qp_state: state,
        ..ibv_qp_attr::default()
    };
    let told = match (state, own.far_queue_pair, own.far, own.place()) {
        (.., Some(place)) if place.link == Link::Iwarp => {
            attributes_of_iwarp(&mut values, own.peer.is_some())
        }
        (IBV_QPS_INIT, ..) => {
            values.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
            values.port_num = 1;
            IBV_QP_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT
        }
        (IBV_QPS_RTR, Some(number), Some(far), Some(place)) => {
            values.dest_qp_num = number;
            values.path_mtu = MTU_1024;
            values.max_dest_rd_atomic = own.reads.1;
            values.ah_attr.port_num = 1;
            if place.link == Link::Infiniband {
                values.ah_attr.dlid = device_at(far.ip()).map_or(0, |far| far.lid);
            } else {
                values.ah_attr.grh.dgid = Gid16(Gid::of(far.ip()).0);
                values.ah_attr.grh.sgid_index = place.gid_index;
                values.ah_attr.is_global = 1;
            }
            IBV_QP_STATE
                | IBV_QP_AV
                | IBV_QP_PATH_MTU
                | IBV_QP_DEST_QPN
                | IBV_QP_RQ_PSN
                | IBV_QP_MAX_DEST_RD_ATOMIC
                | IBV_QP_MIN_RNR_TIMER
        }
        (IBV_QPS_RTS, Some(_), ..) => {
            (values.timeout, values.retry_cnt, values.rnr_retry) = (14, 7, 7);
            values.max_rd_atomic = own.reads.0;
            IBV_QP_STATE
                | IBV_QP_SQ_PSN
                | IBV_QP_TIMEOUT
                | IBV_QP_RETRY_CNT
                | IBV_QP_RNR_RETRY
                | IBV_QP_MAX_QP_RD_ATOMIC
        }
        _ => return refuses(libc::EINVAL),
    };
    // SAFETY: the caller's places.
    unsafe {
        into.write(values);
        mask.write(told);
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    into: *mut *mut rdma_cm_event,
) -> c_int {
    // SAFETY: the caller's channel is alive, so it is such an object.
    let teller = unsafe { Arc::clone(&(*object(channel)).teller) };
    let Some(told) = teller.take() else {
        return -1;
    };
    manager().identifier(told.owner).unacknowledged += 1;
    let data = if told.private.is_empty() {
        std::ptr::null()
    } else {
        told.private.as_ptr().cast()
    };
    let connection = rdma_conn_param {
        private_data: data,
        private_data_len: u8::try_from(told.private.len()).expect("few bytes"),
        responder_resources: told.reads.1,
        initiator_depth: told.reads.0,
        flow_control: 0,
        retry_count: 7,
        rnr_retry_count: 7,
        srq: 0,
        qp_num: told.queue_pair,
    };
    let event = Box::new(EventObject {
        base: rdma_cm_event {
            id: std::ptr::with_exposed_provenance_mut(told.id),
            listen_id: std::ptr::with_exposed_provenance_mut(told.owner),
            event: told.event,
            status: told.status,
            param: rdma_cm_param { conn: connection },
        },
        owner: told.owner,
        _private: told.private,
    });
    // SAFETY: the caller's place.
    unsafe { into.write(Box::into_raw(event).cast()) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    // SAFETY: it came from `rdma_get_cm_event` and is returned once.
    let event = unsafe { Box::from_raw(event.cast::<EventObject>()) };
    manager().identifier(event.owner).unacknowledged -= 1;
    0
}

#[unsafe(no_mangle)]
extern "C" fn rdma_event_str(event: c_int) -> *const c_char {
    let text: &CStr = match event {
        0 => c"RDMA_CM_EVENT_ADDR_RESOLVED",
        1 => c"RDMA_CM_EVENT_ADDR_ERROR",
        2 => c"RDMA_CM_EVENT_ROUTE_RESOLVED",
        4 => c"RDMA_CM_EVENT_CONNECT_REQUEST",
        5 => c"RDMA_CM_EVENT_CONNECT_RESPONSE",
        7 => c"RDMA_CM_EVENT_UNREACHABLE",
        8 => c"RDMA_CM_EVENT_REJECTED",
        9 => c"RDMA_CM_EVENT_ESTABLISHED",
        10 => c"RDMA_CM_EVENT_DISCONNECTED",
        _ => c"UNKNOWN EVENT",
    };
    text.as_ptr()
}
