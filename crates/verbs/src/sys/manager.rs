//! The connection manager's objects: its event channel, its identifiers, and its attributes for a queue pair's
//! states. [`connection`](super::connection) builds connections from them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::abi::{
    IBV_QP_AV, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, RDMA_CM_EVENT_CONNECT_REQUEST,
    RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, RDMA_PS_TCP, ibv_qp_attr, rdma_cm_event, rdma_cm_id,
    rdma_conn_param, rdma_event_channel,
};
use super::load::{Rdmacm, rdmacm, text};
use super::memory::Access;
use super::queue::RETRIES;
use super::{last_errno, outcome};
use crate::VerbsError;

/// How long is waited for the remote end, and what ends the waiting early.
#[derive(Debug, Clone, Copy)]
pub struct Patience<'a> {
    /// Until when.
    pub until: Instant,
    /// Readable when there is nothing to wait for any more.
    pub stop: BorrowedFd<'a>,
}

/// A state transition of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Ready for receives.
    Initialize,
    /// Ready to receive.
    Receive,
    /// Ready to send.
    Send,
}

/// The manager's attributes for a state of the queue pair.
#[derive(Clone, Copy)]
pub struct Attributes {
    pub(super) values: ibv_qp_attr,
    pub(super) mask: i32,
    /// What the remote end may do with this end's memory.
    pub access: Access,
    /// The path MTU, if it must be smaller than what the manager found.
    pub mtu: Option<u32>,
    /// As that of a [`Path`](super::Path), if it must differ from the manager's.
    pub ack_timeout: Option<u8>,
}

impl fmt::Debug for Attributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Attributes(state {}, mask {:#x})",
            self.values.qp_state, self.mask
        )
    }
}

impl Attributes {
    /// The port of this end; 0 if not reported.
    pub fn port(&self) -> u8 {
        self.values.port_num
    }

    /// The index of this end's GID, if the state has a path ([`Step::Receive`]) and it uses GIDs.
    pub fn gid_index(&self) -> Option<u32> {
        let address = &self.values.ah_attr;
        (self.mask & IBV_QP_AV != 0 && address.is_global != 0)
            .then(|| u32::from(address.grh.sgid_index))
    }
}

/// The manager's event channel; one per connection in progress, so that events are not mixed up.
pub(super) struct Channel {
    pub(super) library: &'static Rdmacm,
    pub(super) raw: *mut rdma_event_channel,
    /// What came for another identifier than the one that was waited for.
    held: RefCell<VecDeque<ManagerEvent>>,
}

impl Drop for Channel {
    fn drop(&mut self) {
        for told in self.held.get_mut() {
            if told.event == RDMA_CM_EVENT_CONNECT_REQUEST {
                // SAFETY: the identifier of a request that nobody took is ours, its event is acknowledged.
                unsafe { (self.library.rdma_destroy_id)(told.id) };
            }
        }
        // SAFETY: identifiers that use it are destroyed before it.
        unsafe { (self.library.rdma_destroy_event_channel)(self.raw) };
    }
}

/// What came.
pub(super) struct ManagerEvent {
    pub(super) event: i32,
    status: i32,
    /// The identifier of a new request.
    pub(super) id: *mut rdma_cm_id,
    pub(super) private: Vec<u8>,
    pub(super) reads_asked: u8,
}

pub(super) fn refused(doing: &'static str) -> impl FnOnce(Errno) -> VerbsError {
    move |errno| VerbsError::Manager {
        doing,
        event: match errno {
            Errno::NODEV => "no RDMA device carries this address".to_owned(),
            Errno::NOENT | Errno::NOSYS => {
                "the kernel's RDMA connection manager is not loaded; run `modprobe rdma_ucm`"
                    .to_owned()
            }
            Errno::ADDRINUSE => "the port is in use, or all ports tried are".to_owned(),
            _ => "it refused".to_owned(),
        },
        reason: errno.to_string(),
    }
}

impl Channel {
    pub(super) fn new() -> Result<Self, VerbsError> {
        let library = rdmacm()?;
        // SAFETY: the call has no arguments.
        let raw = unsafe { (library.rdma_create_event_channel)() };
        if raw.is_null() {
            let errno = last_errno();
            return Err(match errno {
                Errno::NODEV => VerbsError::NoDevice,
                Errno::ACCESS | Errno::PERM => {
                    VerbsError::refused("open the RDMA connection manager", "this host", errno)
                }
                _ => refused("open its channel")(errno),
            });
        }
        let channel = Self {
            library,
            raw,
            held: RefCell::default(),
        };
        rustix::io::ioctl_fionbio(channel.fd(), true).map_err(refused("open its channel"))?;
        Ok(channel)
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel has this descriptor for as long as it is there.
        unsafe { BorrowedFd::borrow_raw((*self.raw).fd) }
    }

    /// Discards the events of an identifier that is no longer used: another one may get its address.
    pub(super) fn forget(&self, id: *mut rdma_cm_id) {
        self.held.borrow_mut().retain(|told| told.id != id);
    }

    /// Waits for the next event that `concerns` the caller.
    pub(super) fn next_that(
        &self,
        doing: &'static str,
        patience: Patience<'_>,
        concerns: impl Fn(&ManagerEvent) -> bool,
    ) -> Result<ManagerEvent, VerbsError> {
        let mut held = self.held.borrow_mut();
        if let Some(told) = held.iter().position(&concerns) {
            return Ok(held.remove(told).expect("it was found there"));
        }
        loop {
            let told = self.next(doing, patience)?;
            if concerns(&told) {
                return Ok(told);
            }
            held.push_back(told);
        }
    }

    /// Waits for the next event.
    fn next(
        &self,
        doing: &'static str,
        patience: Patience<'_>,
    ) -> Result<ManagerEvent, VerbsError> {
        loop {
            let mut event: *mut rdma_cm_event = std::ptr::null_mut();
            // SAFETY: the library writes the event, which is returned below.
            let taken = unsafe { (self.library.rdma_get_cm_event)(self.raw, &raw mut event) };
            match outcome(taken) {
                Ok(()) => return Ok(self.read(event)),
                Err(Errno::AGAIN | Errno::INTR) => self.sleep(doing, patience)?,
                Err(errno) => return Err(refused(doing)(errno)),
            }
        }
    }

    fn sleep(&self, doing: &'static str, patience: Patience<'_>) -> Result<(), VerbsError> {
        let left = patience.until.saturating_duration_since(Instant::now());
        let over = |event: &str| VerbsError::Manager {
            doing,
            event: event.to_owned(),
            reason: "nothing more was waited for".to_owned(),
        };
        if left.is_zero() {
            return Err(over("the remote end timed out"));
        }
        let mut fds = [
            PollFd::from_borrowed_fd(self.fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(patience.stop, PollFlags::IN),
        ];
        let limit = Timespec::try_from(left).ok();
        // An interrupted poll only means that we look once more.
        let _ = poll(&mut fds, limit.as_ref());
        if fds[1].revents().is_empty() {
            Ok(())
        } else {
            Err(over("the trial was aborted"))
        }
    }

    /// Reads an event and acknowledges it.
    fn read(&self, event: *mut rdma_cm_event) -> ManagerEvent {
        // SAFETY: the library handed the event out and keeps it until it is acknowledged, which is done here once;
        // its private data has the length stated. The fields of a connection are at the same place in every event,
        // zeroed where it has none.
        unsafe {
            let given = &*event;
            let connection = &given.param.conn;
            let private = if connection.private_data.is_null() {
                Vec::new()
            } else {
                let start = connection.private_data.cast::<u8>();
                std::slice::from_raw_parts(start, connection.private_data_len.into()).to_vec()
            };
            let told = ManagerEvent {
                event: given.event,
                status: given.status,
                id: given.id,
                private,
                reads_asked: connection.initiator_depth,
            };
            (self.library.rdma_ack_cm_event)(event);
            told
        }
    }

    /// What came in place of what was waited for.
    fn unexpected(&self, doing: &'static str, told: &ManagerEvent) -> VerbsError {
        // SAFETY: the library's texts live for ever.
        let event = unsafe { text((self.library.rdma_event_str)(told.event)) };
        let reason = match told.status {
            0 => "no reason given".to_owned(),
            status if status < 0 => Errno::from_raw_os_error(status.saturating_abs()).to_string(),
            status => format!("reason {status}"),
        };
        VerbsError::Manager {
            doing,
            event,
            reason,
        }
    }

    /// Waits for what happens to `id`, which must be one of `events`.
    pub(super) fn expect(
        &self,
        doing: &'static str,
        id: *mut rdma_cm_id,
        events: &[i32],
        patience: Patience<'_>,
    ) -> Result<ManagerEvent, VerbsError> {
        let told = self.next_that(doing, patience, |told| told.id == id)?;
        if events.contains(&told.event) {
            return Ok(told);
        }
        Err(self.unexpected(doing, &told))
    }
}

/// An identifier of the manager; it is destroyed before its channel.
pub(super) struct Identifier {
    pub(super) library: &'static Rdmacm,
    pub(super) raw: *mut rdma_cm_id,
}

impl Drop for Identifier {
    fn drop(&mut self) {
        // SAFETY: it was made by the library, every event of it is acknowledged, and it is destroyed once. A
        // connection that is gone already cannot be disconnected, which does not matter.
        unsafe {
            (self.library.rdma_disconnect)(self.raw);
            (self.library.rdma_destroy_id)(self.raw);
        }
    }
}

impl Identifier {
    pub(super) fn new(channel: &Channel) -> Result<Self, VerbsError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the channel is alive; the library writes the identifier.
        let made = unsafe {
            (channel.library.rdma_create_id)(
                channel.raw,
                &raw mut raw,
                std::ptr::null_mut(),
                RDMA_PS_TCP,
            )
        };
        outcome(made).map_err(refused("make an identifier"))?;
        Ok(Self {
            library: channel.library,
            raw,
        })
    }

    /// The name of the device that carries it, once that is known.
    pub(super) fn device(&self) -> Option<String> {
        // SAFETY: the identifier is alive; its device, once set, is one that the library keeps open, and the
        // name ends with a null byte.
        unsafe {
            let context = (*self.raw).verbs;
            if context.is_null() {
                return None;
            }
            let name = std::ffi::CStr::from_ptr((&raw const (*(*context).device).name).cast());
            Some(name.to_string_lossy().into_owned())
        }
    }

    pub(super) fn attributes(&self, step: Step, access: Access) -> Result<Attributes, VerbsError> {
        let mut values = ibv_qp_attr {
            qp_state: match step {
                Step::Initialize => IBV_QPS_INIT,
                Step::Receive => IBV_QPS_RTR,
                Step::Send => IBV_QPS_RTS,
            },
            ..ibv_qp_attr::default()
        };
        let mut mask = 0;
        // SAFETY: the identifier is alive; the library fills both.
        let told =
            unsafe { (self.library.rdma_init_qp_attr)(self.raw, &raw mut values, &raw mut mask) };
        outcome(told).map_err(refused("get a queue pair's attributes"))?;
        Ok(Attributes {
            values,
            mask,
            access,
            mtu: None,
            ack_timeout: None,
        })
    }

    pub(super) fn set_traffic_class(&self, class: u8) -> Result<(), VerbsError> {
        let mut value = class;
        // SAFETY: the library reads one byte.
        let set = unsafe {
            (self.library.rdma_set_option)(
                self.raw,
                RDMA_OPTION_ID,
                RDMA_OPTION_ID_TOS,
                (&raw mut value).cast(),
                1,
            )
        };
        outcome(set).map_err(refused("set the traffic class"))
    }
}

pub(super) fn parameters(queue_pair: u32, private: &[u8], reads: (u8, u8)) -> rdma_conn_param {
    rdma_conn_param {
        private_data: if private.is_empty() {
            std::ptr::null()
        } else {
            private.as_ptr().cast()
        },
        private_data_len: u8::try_from(private.len()).unwrap_or(u8::MAX),
        responder_resources: reads.1,
        initiator_depth: reads.0,
        flow_control: 1,
        retry_count: RETRIES,
        rnr_retry_count: 7,
        srq: 0,
        qp_num: queue_pair,
    }
}
