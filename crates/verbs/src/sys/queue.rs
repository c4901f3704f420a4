//! Protection domains, completion queues, queue pairs.

use std::fmt;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use rustix::io::Errno;

use super::abi::{
    Gid16, IBV_ACCESS_LOCAL_WRITE, IBV_QP_ACCESS_FLAGS, IBV_QP_AV, IBV_QP_DEST_QPN,
    IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU,
    IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN,
    IBV_QP_SQ_PSN, IBV_QP_STATE, IBV_QP_TIMEOUT, IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RTR,
    IBV_QPS_RTS, IBV_QPT_RC, IBV_QPT_UD, IBV_WC_RECV, IBV_WC_WITH_IMM, ibv_ah, ibv_ah_attr,
    ibv_comp_channel, ibv_cq, ibv_global_route, ibv_pd, ibv_qp, ibv_qp_attr, ibv_qp_cap,
    ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr, ibv_wc,
};
use super::device::{Device, mtu_of_bytes};
use super::manager::Attributes;
use super::memory::Access;
use super::work::posted;
use super::{last_errno, outcome};
use crate::VerbsError;
use crate::gid::Gid;
use crate::status::Status;

/// What regions and queue pairs belong to. Clones are the same one; everything created from it stays in the
/// thread that made it.
#[derive(Clone)]
pub struct ProtectionDomain(Rc<Domain>);

struct Domain {
    raw: *mut ibv_pd,
    device: Device,
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProtectionDomain")
            .field(&self.0.device)
            .finish()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: everything made from it holds this value, so nothing is left.
        let _ = outcome(unsafe { (self.device.library().ibv_dealloc_pd)(self.raw) });
    }
}

impl ProtectionDomain {
    /// A separate domain on `device`.
    pub fn new(device: &Device) -> Result<Self, VerbsError> {
        // SAFETY: the context is open.
        let raw = unsafe { (device.library().ibv_alloc_pd)(device.context()) };
        if raw.is_null() {
            return Err(device.refused("make a protection domain", last_errno()));
        }
        let device = device.clone();
        Ok(Self(Rc::new(Domain { raw, device })))
    }

    /// Its device.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    pub(super) fn raw(&self) -> *mut ibv_pd {
        self.0.raw
    }
}

/// Where a device signals that a completion queue is no longer empty.
struct CompletionChannel {
    raw: *mut ibv_comp_channel,
    device: Device,
}

impl fmt::Debug for CompletionChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CompletionChannel")
            .field(&self.device)
            .finish()
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        // SAFETY: the queues that use it hold it, so none is left.
        let _ = outcome(unsafe { (self.device.library().ibv_destroy_comp_channel)(self.raw) });
    }
}

impl CompletionChannel {
    /// A channel that is asked and never waited in.
    fn new(device: &Device) -> Result<Self, VerbsError> {
        // SAFETY: the context is open.
        let raw = unsafe { (device.library().ibv_create_comp_channel)(device.context()) };
        if raw.is_null() {
            return Err(device.refused("make a completion channel", last_errno()));
        }
        let channel = Self {
            raw,
            device: device.clone(),
        };
        rustix::io::ioctl_fionbio(channel.fd(), true)
            .map_err(|errno| device.refused("make a completion channel", errno))?;
        Ok(channel)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel has this descriptor for as long as it is there.
        unsafe { BorrowedFd::borrow_raw((*self.raw).fd) }
    }
}

/// Where requests complete.
#[derive(Clone)]
pub struct CompletionQueue(Rc<Queue>);

struct Queue {
    raw: *mut ibv_cq,
    device: Device,
    /// Dropped after the queue.
    channel: Option<CompletionChannel>,
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CompletionQueue")
            .field(&self.0.device)
            .finish()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: queue pairs hold it, so none is left; every event that was taken is acknowledged.
        let _ = outcome(unsafe { (self.device.library().ibv_destroy_cq)(self.raw) });
    }
}

/// What a completed request was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opcode {
    /// One of the sending side.
    Sent,
    /// A message came.
    Received,
}

/// The end of a request.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct Completion(ibv_wc);

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion")
            .field("id", &self.id())
            .field("status", &self.status())
            .field("opcode", &self.opcode())
            .finish_non_exhaustive()
    }
}

impl Completion {
    /// The request's own number.
    #[inline]
    pub fn id(&self) -> u64 {
        self.0.wr_id
    }

    /// How it ended.
    #[inline]
    pub fn status(&self) -> Result<(), Status> {
        if self.0.status == 0 {
            return Ok(());
        }
        Err(Status::of(self.0.status))
    }

    /// What it was; of one that failed this is not known.
    #[inline]
    pub fn opcode(&self) -> Opcode {
        if self.0.opcode & IBV_WC_RECV == 0 {
            Opcode::Sent
        } else {
            Opcode::Received
        }
    }

    /// For a received message: its bytes; for a datagram including the 40 of its route header.
    #[inline]
    pub fn bytes(&self) -> u32 {
        self.0.byte_len
    }

    /// For a received message: its immediate data, if it has any.
    #[inline]
    pub fn number(&self) -> Option<u32> {
        (self.0.wc_flags & IBV_WC_WITH_IMM != 0).then(|| u32::from_be(self.0.imm_data))
    }

    /// The queue pair it was posted to.
    #[inline]
    pub fn queue_pair(&self) -> u32 {
        self.0.qp_num
    }
}

/// Whether there was an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The queue has something new.
    Notified,
    /// Nothing yet.
    Nothing,
}

impl CompletionQueue {
    /// A queue for at least `depth` completions, which raises events if it `tells`.
    pub fn new(device: &Device, depth: u32, tells: bool) -> Result<Self, VerbsError> {
        let channel = tells.then(|| CompletionChannel::new(device)).transpose()?;
        let target = (channel.as_ref()).map_or(std::ptr::null_mut(), |channel| channel.raw);
        let depth = i32::try_from(depth).unwrap_or(i32::MAX);
        // SAFETY: the context is open, the channel is kept as long as the queue.
        let raw = unsafe {
            (device.library().ibv_create_cq)(
                device.context(),
                depth,
                std::ptr::null_mut(),
                target,
                0,
            )
        };
        if raw.is_null() {
            return Err(device.refused("make a completion queue", last_errno()));
        }
        let device = device.clone();
        Ok(Self(Rc::new(Queue {
            raw,
            device,
            channel,
        })))
    }

    /// Takes completions, at most as many as `into` holds; returns how many.
    #[inline]
    pub fn poll(&self, into: &mut [Completion]) -> Result<usize, VerbsError> {
        let room = i32::try_from(into.len()).unwrap_or(i32::MAX);
        // SAFETY: the queue and its context are alive and this thread's; the provider writes at most `room`
        // completions, of which the type has the layout.
        let count = unsafe {
            let poll = (*(*self.0.raw).context).ops.poll_cq;
            poll.map_or(-1, |poll| {
                poll(self.0.raw, room, into.as_mut_ptr().cast::<ibv_wc>())
            })
        };
        // Any negative number is a failure, and none is an error's (ibv_poll_cq(3)).
        usize::try_from(count).map_err(|_| VerbsError::Refused {
            doing: "poll a completion queue",
            device: self.0.device.name().to_owned(),
            errno: Errno::IO,
            hint: "; it overflowed, or the device was removed".to_owned(),
        })
    }

    /// Requests an event for the next completion. One that is there already raises none: poll once more.
    #[inline]
    pub fn arm(&self) -> Result<(), VerbsError> {
        // SAFETY: the queue and its context are alive and this thread's.
        let result = unsafe {
            let arm = (*(*self.0.raw).context).ops.req_notify_cq;
            arm.map_or(libc::ENOSYS, |arm| arm(self.0.raw, 0))
        };
        outcome(result).map_err(|errno| self.0.device.refused("arm a completion queue", errno))
    }

    /// Readable when [`CompletionQueue::take_event`] has something; `None` for a queue without events.
    pub fn channel(&self) -> Option<BorrowedFd<'_>> {
        self.0.channel.as_ref().map(CompletionChannel::fd)
    }

    /// Takes an event without waiting.
    pub fn take_event(&self) -> Result<Event, VerbsError> {
        let Some(channel) = &self.0.channel else {
            return Ok(Event::Nothing);
        };
        let library = self.0.device.library();
        let (mut queue, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the library writes the queue and its context, and the channel has one queue only.
        let result =
            unsafe { (library.ibv_get_cq_event)(channel.raw, &raw mut queue, &raw mut context) };
        match outcome(result) {
            Ok(()) => {
                // SAFETY: one event of this queue was taken.
                unsafe { (library.ibv_ack_cq_events)(queue, 1) };
                Ok(Event::Notified)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(Event::Nothing),
            Err(errno) => Err(self.0.device.refused("take a completion event", errno)),
        }
    }
}

/// The capacity of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePairNeeds {
    /// Whether it is of unreliable datagrams.
    pub datagrams: bool,
    /// Requests of the sending side in flight.
    pub sends: u32,
    /// Requests of the receiving side.
    pub receives: u32,
    /// Bytes of the largest message that travels in its request; the device may give less.
    pub inline: u32,
}

/// Two work queues that a device processes in order.
pub struct QueuePair {
    raw: *mut ibv_qp,
    domain: ProtectionDomain,
    pub(super) datagrams: bool,
    inline: u32,
    /// Dropped after the queue pair.
    _queue: CompletionQueue,
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("number", &self.number())
            .finish_non_exhaustive()
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: it was made by `new` and is destroyed once.
        let _ = outcome(unsafe { (self.device().library().ibv_destroy_qp)(self.raw) });
    }
}

/// The path from a queue pair to its other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// This end's port.
    pub port: u8,
    /// The index of this end's GID; `None` within an InfiniBand subnet.
    pub gid_index: Option<u32>,
    /// The path MTU in bytes.
    pub mtu: u32,
    /// The remote end's GID.
    pub gid: Gid,
    /// The remote end's address within an InfiniBand subnet.
    pub lid: u16,
    /// The number of the remote end's queue pair.
    pub queue_pair: u32,
    /// The number of the first packet that comes.
    pub receive_packet_number: u32,
    /// The number of the first packet that is sent.
    pub send_packet_number: u32,
    /// The traffic class of the global route header.
    pub traffic_class: u8,
    /// The service level.
    pub service_level: u8,
    /// What is not acknowledged within 4.096 us x 2^N is retransmitted; `None` is [`Path::ACK_TIMEOUT`].
    pub ack_timeout: Option<u8>,
    /// Reads and atomics that this end has in flight.
    pub reads_asked: u8,
    /// Reads and atomics of the remote end that this end answers at a time.
    pub reads_answered: u8,
}

/// Retries before a request fails: after half a second, or some more, depending on the device. Not 7, the maximum,
/// which soft-RoCE takes for "without end".
pub(super) const RETRIES: u8 = 6;
/// Retries while the remote end has no receive posted: unlimited, as this is the flow control.
const RECEIVER_NOT_READY_RETRIES: u8 = 7;
/// How long the remote end waits before it retries when we had no receive posted: 10 us (the shortest).
const RECEIVER_NOT_READY_TIMER: u8 = 1;
/// Hops that a packet may take.
const HOPS: u8 = 64;

impl Path {
    /// 4.096 us x 2^14 = 67 ms, as in perftest.
    pub const ACK_TIMEOUT: u8 = 14;

    /// The address as the library has it, if an index has 8 bits.
    fn address(&self) -> Result<ibv_ah_attr, Errno> {
        let index = u8::try_from(self.gid_index.unwrap_or(0)).map_err(|_| Errno::INVAL)?;
        Ok(ibv_ah_attr {
            grh: ibv_global_route {
                dgid: Gid16(self.gid.0),
                flow_label: 0,
                sgid_index: index,
                hop_limit: HOPS,
                traffic_class: self.traffic_class,
            },
            dlid: self.lid,
            sl: self.service_level,
            src_path_bits: 0,
            static_rate: 0,
            is_global: u8::from(self.gid_index.is_some()),
            port_num: self.port,
        })
    }
}

impl QueuePair {
    /// A queue pair whose two sides complete in `queue`.
    pub fn new(
        domain: &ProtectionDomain,
        queue: &CompletionQueue,
        needs: QueuePairNeeds,
    ) -> Result<Self, VerbsError> {
        let mut inline = needs.inline;
        loop {
            let mut asked = ibv_qp_init_attr {
                qp_context: std::ptr::null_mut(),
                send_cq: queue.0.raw,
                recv_cq: queue.0.raw,
                srq: std::ptr::null_mut(),
                cap: ibv_qp_cap {
                    max_send_wr: needs.sends,
                    max_recv_wr: needs.receives,
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline_data: inline,
                },
                qp_type: if needs.datagrams {
                    IBV_QPT_UD
                } else {
                    IBV_QPT_RC
                },
                sq_sig_all: 0,
            };
            // SAFETY: domain and queue are alive and kept; the library reads and updates the structure.
            let raw =
                unsafe { (domain.device().library().ibv_create_qp)(domain.raw(), &raw mut asked) };
            if !raw.is_null() {
                return Ok(Self {
                    raw,
                    domain: domain.clone(),
                    datagrams: needs.datagrams,
                    inline: asked.cap.max_inline_data.min(inline),
                    _queue: queue.clone(),
                });
            }
            let errno = last_errno();
            if inline == 0 {
                return Err(domain.device().refused("make a queue pair", errno));
            }
            // Devices refuse more than they support, and none reports the limit.
            inline /= 2;
        }
    }

    fn device(&self) -> &Device {
        self.domain.device()
    }

    /// Its number on its device.
    pub fn number(&self) -> u32 {
        // SAFETY: the queue pair is alive.
        unsafe { (*self.raw).qp_num }
    }

    /// Bytes of the largest message that travels in its request.
    pub fn inline(&self) -> u32 {
        self.inline
    }

    fn modify(
        &self,
        doing: &'static str,
        mut attributes: ibv_qp_attr,
        mask: i32,
    ) -> Result<(), VerbsError> {
        // SAFETY: the queue pair is alive, the library only reads the structure.
        let result =
            unsafe { (self.device().library().ibv_modify_qp)(self.raw, &raw mut attributes, mask) };
        outcome(result).map_err(|errno| self.device().refused(doing, errno))
    }

    /// Makes it ready for receives. Datagrams are accepted with `key` only.
    pub fn initialize(&self, port: u8, access: Access, key: u32) -> Result<(), VerbsError> {
        let mut attributes = ibv_qp_attr {
            qp_state: IBV_QPS_INIT,
            port_num: port,
            ..ibv_qp_attr::default()
        };
        let mut mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
        if self.datagrams {
            attributes.qkey = key;
            mask |= IBV_QP_QKEY;
        } else {
            attributes.qp_access_flags = access.remote_bits();
            mask |= IBV_QP_ACCESS_FLAGS;
        }
        self.modify("initialize a queue pair", attributes, mask)
    }

    /// Connects it: from now on it receives and sends. For datagrams only the PSN of its own packets matters.
    pub fn connect(&self, path: &Path) -> Result<(), VerbsError> {
        let mut receive = ibv_qp_attr {
            qp_state: IBV_QPS_RTR,
            ..ibv_qp_attr::default()
        };
        let mut send = ibv_qp_attr {
            qp_state: IBV_QPS_RTS,
            sq_psn: path.send_packet_number,
            ..ibv_qp_attr::default()
        };
        let (mut receive_mask, mut send_mask) = (IBV_QP_STATE, IBV_QP_STATE | IBV_QP_SQ_PSN);
        if !self.datagrams {
            receive.path_mtu = mtu_of_bytes(path.mtu);
            receive.dest_qp_num = path.queue_pair;
            receive.rq_psn = path.receive_packet_number;
            receive.max_dest_rd_atomic = path.reads_answered;
            receive.min_rnr_timer = RECEIVER_NOT_READY_TIMER;
            let doing = "use this GID index for a queue pair";
            let address = path.address();
            receive.ah_attr = address.map_err(|errno| self.device().refused(doing, errno))?;
            receive_mask |= IBV_QP_AV
                | IBV_QP_PATH_MTU
                | IBV_QP_DEST_QPN
                | IBV_QP_RQ_PSN
                | IBV_QP_MAX_DEST_RD_ATOMIC
                | IBV_QP_MIN_RNR_TIMER;
            send.timeout = path.ack_timeout.unwrap_or(Path::ACK_TIMEOUT);
            send.retry_cnt = RETRIES;
            send.rnr_retry = RECEIVER_NOT_READY_RETRIES;
            send.max_rd_atomic = path.reads_asked;
            send_mask |=
                IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
        }
        self.modify("make a queue pair ready to receive", receive, receive_mask)?;
        self.modify("make a queue pair ready to send", send, send_mask)
    }

    /// Moves to the state that the connection manager's attributes are for.
    pub fn follow(&self, attributes: &Attributes) -> Result<(), VerbsError> {
        let (mut given, mut mask) = (attributes.values, attributes.mask);
        if mask & IBV_QP_ACCESS_FLAGS != 0 {
            given.qp_access_flags |= attributes.access.remote_bits() | IBV_ACCESS_LOCAL_WRITE;
        }
        if mask & IBV_QP_MIN_RNR_TIMER != 0 {
            given.min_rnr_timer = RECEIVER_NOT_READY_TIMER;
        }
        if let Some(mtu) = attributes.mtu.filter(|_| mask & IBV_QP_PATH_MTU != 0) {
            given.path_mtu = given.path_mtu.min(mtu_of_bytes(mtu));
        }
        if let Some(timeout) = attributes.ack_timeout {
            given.timeout = timeout;
        }
        // Set by the connection manager of some kernels without a value.
        mask &= !IBV_QP_QKEY;
        self.modify("connect a queue pair", given, mask)
    }

    /// Ends it: what is in flight comes back as flushed.
    pub fn flush(&self) -> Result<(), VerbsError> {
        let attributes = ibv_qp_attr {
            qp_state: IBV_QPS_ERR,
            ..ibv_qp_attr::default()
        };
        self.modify("end a queue pair", attributes, IBV_QP_STATE)
    }

    /// Posts a chain of requests.
    ///
    /// # Safety
    ///
    /// `first` begins a chain that ends with null, every request and what it points at is there for the call,
    /// and the memory that they name until they end.
    pub(super) unsafe fn post_sends(
        &self,
        first: *mut ibv_send_wr,
    ) -> Result<(), (*mut ibv_send_wr, Errno)> {
        let mut bad = first;
        // SAFETY: the queue pair and its context are alive and this thread's; the rest is the caller's word.
        let result = unsafe {
            let post = (*(*self.raw).context).ops.post_send;
            post.map_or(libc::ENOSYS, |post| post(self.raw, first, &raw mut bad))
        };
        posted(result, bad)
    }

    /// Posts a chain of requests.
    ///
    /// # Safety
    ///
    /// As of [`QueuePair::post_sends`].
    pub(super) unsafe fn post_receives(
        &self,
        first: *mut ibv_recv_wr,
    ) -> Result<(), (*mut ibv_recv_wr, Errno)> {
        let mut bad = first;
        // SAFETY: as in `post_sends`.
        let result = unsafe {
            let post = (*(*self.raw).context).ops.post_recv;
            post.map_or(libc::ENOSYS, |post| post(self.raw, first, &raw mut bad))
        };
        posted(result, bad)
    }
}

/// The path of datagrams to a port.
pub struct AddressHandle {
    raw: *mut ibv_ah,
    domain: ProtectionDomain,
    thread: PhantomData<Rc<()>>,
}

impl fmt::Debug for AddressHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AddressHandle")
    }
}

impl AddressHandle {
    /// The path to the port at the end of `path`.
    pub fn new(domain: &ProtectionDomain, path: &Path) -> Result<Self, VerbsError> {
        let doing = "use this GID index for datagrams";
        let address = path.address();
        let mut address = address.map_err(|errno| domain.device().refused(doing, errno))?;
        // SAFETY: the domain is alive, the library only reads the structure.
        let raw =
            unsafe { (domain.device().library().ibv_create_ah)(domain.raw(), &raw mut address) };
        if raw.is_null() {
            let errno = last_errno();
            return Err(domain.device().refused("make an address handle", errno));
        }
        Ok(Self {
            raw,
            domain: domain.clone(),
            thread: PhantomData,
        })
    }

    pub(super) fn raw(&self) -> *mut ibv_ah {
        self.raw
    }
}

impl Drop for AddressHandle {
    fn drop(&mut self) {
        // SAFETY: it was made by `new` and is destroyed once.
        let _ = outcome(unsafe { (self.domain.device().library().ibv_destroy_ah)(self.raw) });
    }
}
