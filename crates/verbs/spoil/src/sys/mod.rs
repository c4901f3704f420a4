//! The functions that linerate looks up, each handed on.

#![expect(unsafe_code, reason = "it wraps a C library")]
#![allow(
    clippy::missing_safety_doc,
    missing_docs,
    unreachable_pub,
    reason = "the functions are those of ibverbs(3), with what their pages ask for"
)]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use linerate_verbs::sys::abi::{
    IBV_SEND_SIGNALED, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, PollCq,
    PostSend, ibv_ah, ibv_ah_attr, ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq,
    ibv_device, ibv_device_attr, ibv_gid_entry, ibv_mr, ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_attr,
    ibv_qp_init_attr, ibv_send_wr, ibv_wc,
};

/// One message in so many is changed.
const EVERY: u64 = 3;

/// The address of a function of the real library.
fn real(name: &'static CStr) -> *mut c_void {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    let library = *LIBRARY.get_or_init(|| {
        let file = c"libibverbs.so.1";
        // SAFETY: the name is a string; the constructors are those of the real library.
        unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) }.addr()
    });
    assert!(library != 0, "libibverbs is there");
    // SAFETY: the handle is never closed.
    let found = unsafe {
        libc::dlsym(
            std::ptr::with_exposed_provenance_mut(library),
            name.as_ptr(),
        )
    };
    assert!(!found.is_null(), "{name:?} is there");
    found
}

macro_rules! handed_on {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)+) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
            let name = CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes())
                .expect("one null");
            // SAFETY: the real function has this signature, and the caller keeps to its page.
            unsafe {
                let real: unsafe extern "C" fn($($type),*) $(-> $result)? = std::mem::transmute(real(name));
                real($($argument),*)
            }
        }
    )+};
}

handed_on! {
    ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device;
    ibv_free_device_list(list: *mut *mut ibv_device);
    ibv_close_device(context: *mut ibv_context) -> c_int;
    ibv_query_device(context: *mut ibv_context, into: *mut ibv_device_attr) -> c_int;
    ibv_query_port(context: *mut ibv_context, port: u8, into: *mut ibv_port_attr) -> c_int;
    _ibv_query_gid_table(context: *mut ibv_context, into: *mut ibv_gid_entry, room: usize, flags: u32, size: usize) -> isize;
    ibv_get_async_event(context: *mut ibv_context, into: *mut ibv_async_event) -> c_int;
    ibv_ack_async_event(event: *mut ibv_async_event);
    ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    ibv_dealloc_pd(domain: *mut ibv_pd) -> c_int;
    ibv_reg_mr_iova2(domain: *mut ibv_pd, start: *mut c_void, length: usize, at: u64, access: c_uint) -> *mut ibv_mr;
    ibv_dereg_mr(region: *mut ibv_mr) -> c_int;
    ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
    ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
    ibv_create_cq(context: *mut ibv_context, depth: c_int, own: *mut c_void, channel: *mut ibv_comp_channel, vector: c_int) -> *mut ibv_cq;
    ibv_destroy_cq(queue: *mut ibv_cq) -> c_int;
    ibv_get_cq_event(channel: *mut ibv_comp_channel, queue: *mut *mut ibv_cq, own: *mut *mut c_void) -> c_int;
    ibv_ack_cq_events(queue: *mut ibv_cq, count: c_uint);
    ibv_create_qp(domain: *mut ibv_pd, asked: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    ibv_modify_qp(pair: *mut ibv_qp, to: *mut ibv_qp_attr, mask: c_int) -> c_int;
    ibv_destroy_qp(pair: *mut ibv_qp) -> c_int;
    ibv_create_ah(domain: *mut ibv_pd, to: *mut ibv_ah_attr) -> *mut ibv_ah;
    ibv_destroy_ah(handle: *mut ibv_ah) -> c_int;
    ibv_event_type_str(event: c_int) -> *const c_char;
}

/// The device's own functions.
static POST: AtomicUsize = AtomicUsize::new(0);
static POLL: AtomicUsize = AtomicUsize::new(0);
/// Messages so far, and the bytes that are changed when they have come.
static MESSAGES: AtomicU64 = AtomicU64::new(0);
static AWAITED: Mutex<Vec<Awaited>> = Mutex::new(Vec::new());

/// Opens the device, and wraps its functions that move data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    // SAFETY: the real function has this signature; a context is its opener's, and its table of functions is
    // filled before it is returned.
    unsafe {
        let open: unsafe extern "C" fn(*mut ibv_device) -> *mut ibv_context =
            std::mem::transmute(real(c"ibv_open_device"));
        let context = open(device);
        if let Some(opened) = context.as_mut() {
            let (post, poll) = (opened.ops.post_send, opened.ops.poll_cq);
            POST.store(post.map_or(0, |post| post as usize), Ordering::Relaxed);
            POLL.store(poll.map_or(0, |poll| poll as usize), Ordering::Relaxed);
            opened.ops.post_send = Some(post_send);
            opened.ops.poll_cq = Some(poll_cq);
        }
        context
    }
}

/// What of each third message is changed: the bit of a byte, or the key of the remote end's memory.
fn spoils_key() -> bool {
    static KEY: OnceLock<bool> = OnceLock::new();
    *KEY.get_or_init(|| std::env::var_os("LINERATE_SPOIL").is_some_and(|what| what == "key"))
}

/// Changes the byte at `address`.
unsafe fn spoil(address: usize) {
    let byte = std::ptr::with_exposed_provenance_mut::<u8>(address);
    // SAFETY: it is of memory that a request names, which is there until the request has ended.
    unsafe { byte.write_volatile(byte.read_volatile() ^ 0x10) };
}

/// Received data is changed when its completion is reported: earlier, it would overwrite the change.
struct Awaited {
    queue_pair: u32,
    /// The request whose completion reports it.
    id: u64,
    address: usize,
}

fn awaited() -> MutexGuard<'static, Vec<Awaited>> {
    AWAITED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The first request from `request` on whose completion is reported.
unsafe fn told_by(request: &ibv_send_wr) -> Option<u64> {
    let mut next: *const ibv_send_wr = request;
    // SAFETY: the chain ends with null.
    while let Some(one) = unsafe { next.as_ref() } {
        if one.send_flags & IBV_SEND_SIGNALED != 0 {
            return Some(one.wr_id);
        }
        next = one.next;
    }
    None
}

/// Changes the message of `request`: now, or when it has come.
unsafe fn spoil_message(pair: *const ibv_qp, request: &ibv_send_wr) {
    // SAFETY: the request names a piece of memory.
    let piece = unsafe { *request.sg_list };
    let middle =
        usize::try_from(piece.addr).expect("a place in memory") + piece.length as usize / 2;
    match request.opcode {
        IBV_WR_RDMA_READ | IBV_WR_ATOMIC_FETCH_AND_ADD => {
            // SAFETY: the queue pair is there, and the request is of a chain.
            let (queue_pair, told) = unsafe { ((*pair).qp_num, told_by(request)) };
            awaited().extend(told.map(|id| Awaited {
                queue_pair,
                id,
                address: middle,
            }));
        }
        // SAFETY: it is within that piece.
        _ => unsafe { spoil(middle) },
    }
}

/// Changes the key of the remote end's memory in `request`, if it has one.
unsafe fn spoil_key(request: &mut ibv_send_wr) {
    // SAFETY: the part of the union that the verb has.
    unsafe {
        match request.opcode {
            IBV_WR_RDMA_READ | IBV_WR_RDMA_WRITE => request.wr.rdma.rkey ^= 0x100,
            IBV_WR_ATOMIC_FETCH_AND_ADD => request.wr.atomic.rkey ^= 0x100,
            _ => {}
        }
    }
}

unsafe extern "C" fn post_send(
    pair: *mut ibv_qp,
    first: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    // SAFETY: the caller posts a chain that ends with null, whose pieces are registered memory; the function
    // was the device's own.
    unsafe {
        let mut next = first;
        while let Some(request) = next.as_mut() {
            let number = MESSAGES.fetch_add(1, Ordering::Relaxed) + 1;
            if number.is_multiple_of(EVERY) {
                if spoils_key() {
                    spoil_key(request);
                } else if request.num_sge > 0 {
                    spoil_message(pair, request);
                }
            }
            next = request.next;
        }
        let post: PostSend = std::mem::transmute(POST.load(Ordering::Relaxed));
        post(pair, first, bad)
    }
}

unsafe extern "C" fn poll_cq(queue: *mut ibv_cq, room: c_int, into: *mut ibv_wc) -> c_int {
    // SAFETY: the function was the device's own; what is awaited is memory of a request that ended just now.
    unsafe {
        let poll: PollCq = std::mem::transmute(POLL.load(Ordering::Relaxed));
        let count = poll(queue, room, into);
        for index in 0..usize::try_from(count).unwrap_or(0) {
            let ended = *into.add(index);
            awaited().retain(|one| {
                let is_it = (one.queue_pair, one.id) == (ended.qp_num, ended.wr_id);
                if is_it {
                    spoil(one.address);
                }
                !is_it
            });
        }
        count
    }
}
