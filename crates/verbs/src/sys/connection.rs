//! Connections by the RDMA connection manager (rdma_cm(7)). It finds the way and carries a few bytes of ours;
//! the queue pair stays the caller's own, which follows what the manager says of each state.
//!
//! ```text
//! calling end                              listening end
//!   Calling::new (address, route)
//!   follow(Initialize)
//!   call(queue pair, data)       -->         Listener::next_request
//!                                            follow(Initialize, Receive, Send)
//!                                <--         Request::accept(queue pair)
//!   follow(Receive, Send)
//!   establish                    -->         Connection
//! ```

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::abi::{
    IBV_QP_AV, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, RDMA_CM_EVENT_ADDR_RESOLVED,
    RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_ESTABLISHED,
    RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, RDMA_PS_TCP, ibv_qp_attr,
    rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel,
};
use super::address::RawAddress;
use super::load::{Rdmacm, rdmacm, text};
use super::memory::Access;
use super::queue::RETRIES;
use super::{last_errno, outcome};
use crate::VerbsError;

/// How long is waited for the far end, and what ends the waiting early.
#[derive(Debug, Clone, Copy)]
pub struct Patience<'a> {
    /// Until when.
    pub until: Instant,
    /// Readable when there is nothing to wait for any more.
    pub stop: BorrowedFd<'a>,
}

/// A state that a queue pair goes on to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Ready for receives.
    Initialize,
    /// Ready to receive.
    Receive,
    /// Ready to send.
    Send,
}

/// What the manager says of a state of the queue pair.
#[derive(Clone, Copy)]
pub struct Attributes {
    pub(super) values: ibv_qp_attr,
    pub(super) mask: i32,
    /// What the far end may do with this end's memory.
    pub access: Access,
    /// The path MTU, where it shall be smaller than what the manager found.
    pub mtu: Option<u32>,
    /// As that of a [`Path`](super::Path), where it shall not be what the manager takes.
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
    /// The port of this end; 0 where it is not told.
    pub fn port(&self) -> u8 {
        self.values.port_num
    }

    /// The index of this end's GID, where the state has a way ([`Step::Receive`]) and it goes by GIDs.
    pub fn gid_index(&self) -> Option<u32> {
        let address = &self.values.ah_attr;
        (self.mask & IBV_QP_AV != 0 && address.is_global != 0)
            .then(|| u32::from(address.grh.sgid_index))
    }
}

/// Where the manager tells what happens; one for each connection under way, so that nothing is mixed up.
struct Channel {
    library: &'static Rdmacm,
    raw: *mut rdma_event_channel,
    /// What came for another identifier than the one that was waited for.
    held: RefCell<VecDeque<Told>>,
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
struct Told {
    event: i32,
    status: i32,
    /// The identifier of a new request.
    id: *mut rdma_cm_id,
    private: Vec<u8>,
    reads_asked: u8,
}

fn refused(doing: &'static str) -> impl FnOnce(Errno) -> VerbsError {
    move |errno| VerbsError::Manager {
        doing,
        event: match errno {
            Errno::NODEV => "no RDMA device carries this address".to_owned(),
            Errno::NOENT | Errno::NOSYS => {
                "the kernel's connection manager is not there; `modprobe rdma_ucm` loads it"
                    .to_owned()
            }
            Errno::ADDRINUSE => "others have the port, or all that were tried".to_owned(),
            _ => "it refused".to_owned(),
        },
        reason: errno.to_string(),
    }
}

impl Channel {
    fn new() -> Result<Self, VerbsError> {
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

    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel has this descriptor for as long as it is there.
        unsafe { BorrowedFd::borrow_raw((*self.raw).fd) }
    }

    /// Forgets what came for an identifier that is no longer used: another one may get its address.
    fn forget(&self, id: *mut rdma_cm_id) {
        self.held.borrow_mut().retain(|told| told.id != id);
    }

    /// Waits for the next event that `concerns` the caller.
    fn next_that(
        &self,
        doing: &'static str,
        patience: Patience<'_>,
        concerns: impl Fn(&Told) -> bool,
    ) -> Result<Told, VerbsError> {
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
    fn next(&self, doing: &'static str, patience: Patience<'_>) -> Result<Told, VerbsError> {
        loop {
            let mut event: *mut rdma_cm_event = std::ptr::null_mut();
            // SAFETY: the library writes the event, which is given back below.
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
            return Err(over("the far end did not answer in time"));
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
            Err(over("the trial was given up"))
        }
    }

    /// Reads an event and gives it back.
    fn read(&self, event: *mut rdma_cm_event) -> Told {
        // SAFETY: the library gave the event out and keeps it until it is acknowledged, which is done here once;
        // its private data has the length stated. What a connection carries lies at the same place in every event,
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
            let told = Told {
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
    fn unexpected(&self, doing: &'static str, told: &Told) -> VerbsError {
        // SAFETY: the library's texts live for ever.
        let event = unsafe { text((self.library.rdma_event_str)(told.event)) };
        let reason = match told.status {
            0 => "no reason was given".to_owned(),
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
    fn expect(
        &self,
        doing: &'static str,
        id: *mut rdma_cm_id,
        events: &[i32],
        patience: Patience<'_>,
    ) -> Result<Told, VerbsError> {
        let told = self.next_that(doing, patience, |told| told.id == id)?;
        if events.contains(&told.event) {
            return Ok(told);
        }
        Err(self.unexpected(doing, &told))
    }
}

/// An identifier of the manager; it is destroyed before its channel.
struct Identifier {
    library: &'static Rdmacm,
    raw: *mut rdma_cm_id,
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
    fn new(channel: &Channel) -> Result<Self, VerbsError> {
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
    fn device(&self) -> Option<String> {
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

    fn attributes(&self, step: Step, access: Access) -> Result<Attributes, VerbsError> {
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
        outcome(told).map_err(refused("tell a queue pair's attributes"))?;
        Ok(Attributes {
            values,
            mask,
            access,
            mtu: None,
            ack_timeout: None,
        })
    }

    fn set_traffic_class(&self, class: u8) -> Result<(), VerbsError> {
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

fn parameters(queue_pair: u32, private: &[u8], reads: (u8, u8)) -> rdma_conn_param {
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

/// The device, and its port where that is told, which the connection manager takes for an address of this host: also
/// where no GID is that address (InfiniBand under IPoIB, iWARP). `None` when it knows of none; an error when it cannot
/// be asked.
pub fn device_of(address: IpAddr) -> Result<Option<(String, Option<u8>)>, VerbsError> {
    let channel = Channel::new()?;
    let identifier = Identifier::new(&channel)?;
    let mut own = RawAddress::new(SocketAddr::new(address, 0));
    // SAFETY: the identifier is alive, the address is one of its family.
    let bound = unsafe { (channel.library.rdma_bind_addr)(identifier.raw, own.as_mut_ptr()) };
    match outcome(bound) {
        Err(Errno::NODEV | Errno::ADDRNOTAVAIL) => return Ok(None),
        bound => bound.map_err(refused("find the device of an address"))?,
    }
    let Some(name) = identifier.device() else {
        return Ok(None);
    };
    let first = identifier.attributes(Step::Initialize, Access::default());
    let port = first.ok().map(|first| first.port());
    Ok(Some((name, port.filter(|port| *port > 0))))
}

/// Waits for requests at an address. It is there until the last of its connections is gone.
#[derive(Clone)]
pub struct Listener(Rc<Listening>);

struct Listening {
    identifier: Identifier,
    channel: Channel,
    port: u16,
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listener(port {})", self.0.port)
    }
}

/// How long the kernel looks for addresses and routes.
const RESOLVE: Duration = Duration::from_secs(2);

/// How many ports that somebody has are passed over where none was asked for. The manager chooses one that nobody
/// has of it; that TCP has it, which iWARP shares it with, is seen only when it is used (`siw_create_listen` and
/// `siw_connect` bind a socket of TCP to it).
const PASSED_OVER_MAX: usize = 100;

/// The identifiers whose port somebody has. They keep it, so that it is not chosen again.
#[derive(Default)]
struct PassedOver(Vec<Identifier>);

impl PassedOver {
    /// Whether a call that ended so is made again with another port.
    fn goes_on(&self, asked: SocketAddr, ended: Result<(), Errno>) -> bool {
        ended == Err(Errno::ADDRINUSE) && asked.port() == 0 && self.0.len() < PASSED_OVER_MAX
    }
}

impl Listener {
    /// Listens at `address`; port 0 is one that is free.
    pub fn new(address: SocketAddr) -> Result<Self, VerbsError> {
        let channel = Channel::new()?;
        let mut own = RawAddress::new(address);
        let mut passed_over = PassedOver::default();
        let identifier = loop {
            let identifier = Identifier::new(&channel)?;
            // SAFETY: the identifier is alive, the address is one of its family.
            let bound =
                unsafe { (channel.library.rdma_bind_addr)(identifier.raw, own.as_mut_ptr()) };
            outcome(bound).map_err(refused("listen at this address"))?;
            // SAFETY: the identifier is alive.
            let listens = outcome(unsafe { (channel.library.rdma_listen)(identifier.raw, 128) });
            if !passed_over.goes_on(address, listens) {
                listens.map_err(refused("listen at this address"))?;
                break identifier;
            }
            passed_over.0.push(identifier);
        };
        // SAFETY: the identifier is bound.
        let port = u16::from_be(unsafe { (channel.library.rdma_get_src_port)(identifier.raw) });
        Ok(Self(Rc::new(Listening {
            identifier,
            channel,
            port,
        })))
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.0.port
    }

    /// Waits for a request.
    pub fn next_request(&self, patience: Patience<'_>) -> Result<Request, VerbsError> {
        let doing = "wait for a request";
        let asks = |told: &Told| told.event == RDMA_CM_EVENT_CONNECT_REQUEST;
        let told = self.0.channel.next_that(doing, patience, asks)?;
        Ok(Request {
            brought: Brought {
                identifier: Identifier {
                    library: self.0.identifier.library,
                    raw: told.id,
                },
                listener: self.clone(),
            },
            private: told.private,
            reads_asked: told.reads_asked,
        })
    }
}

/// An identifier that a request brought, on its listener's channel.
struct Brought {
    identifier: Identifier,
    listener: Listener,
}

impl Drop for Brought {
    fn drop(&mut self) {
        self.listener.0.channel.forget(self.identifier.raw);
    }
}

/// Somebody calls. Dropped, it is rejected.
pub struct Request {
    brought: Brought,
    private: Vec<u8>,
    reads_asked: u8,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Request({} bytes)", self.private.len())
    }
}

impl Request {
    /// What the calling end says; what its transport adds may follow.
    pub fn private(&self) -> &[u8] {
        &self.private
    }

    /// The device that it came to.
    pub fn device(&self) -> Option<String> {
        self.brought.identifier.device()
    }

    /// Reads and atomics that the calling end wants to have under way.
    pub fn reads_asked(&self) -> u8 {
        self.reads_asked
    }

    /// What the queue pair's next state takes.
    pub fn attributes(&self, step: Step, access: Access) -> Result<Attributes, VerbsError> {
        self.brought.identifier.attributes(step, access)
    }

    /// Accepts with a queue pair that is ready to send; `reads` are those it asks for and answers at a time.
    pub fn accept(
        self,
        queue_pair: u32,
        reads: (u8, u8),
        patience: Patience<'_>,
    ) -> Result<Connection, VerbsError> {
        let mut given = parameters(queue_pair, &[], reads);
        let (own, channel) = (&self.brought.identifier, &self.brought.listener.0.channel);
        // SAFETY: the identifier is alive, the library only reads the structure.
        let accepted = unsafe { (own.library.rdma_accept)(own.raw, &raw mut given) };
        outcome(accepted).map_err(refused("accept a request"))?;
        let established = [RDMA_CM_EVENT_ESTABLISHED];
        channel.expect("establish a connection", own.raw, &established, patience)?;
        Ok(Connection {
            _end: Kept::Accepted {
                _brought: self.brought,
            },
        })
    }
}

/// A connection that is there until it is dropped.
pub struct Connection {
    _end: Kept,
}

/// What keeps a connection.
enum Kept {
    Accepted {
        _brought: Brought,
    },
    /// The identifier is dropped before its channel.
    Called {
        _identifier: Identifier,
        _channel: Channel,
    },
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}

/// A call whose way is known.
pub struct Calling {
    identifier: Identifier,
    channel: Channel,
    way: Ends,
}

/// What a way is looked for between.
#[derive(Clone, Copy)]
struct Ends {
    from: SocketAddr,
    to: SocketAddr,
    traffic_class: u8,
}

impl Ends {
    /// An identifier that has found the way.
    fn find_way(self, channel: &Channel, patience: Patience<'_>) -> Result<Identifier, VerbsError> {
        let identifier = Identifier::new(channel)?;
        if self.traffic_class != 0 {
            identifier.set_traffic_class(self.traffic_class)?;
        }
        let (mut source, mut target) = (RawAddress::new(self.from), RawAddress::new(self.to));
        let limit = i32::try_from(RESOLVE.as_millis()).unwrap_or(i32::MAX);
        let doing = "find the far end's address";
        // SAFETY: the identifier is alive, both addresses are of their family.
        let asked = unsafe {
            (channel.library.rdma_resolve_addr)(
                identifier.raw,
                source.as_mut_ptr(),
                target.as_mut_ptr(),
                limit,
            )
        };
        outcome(asked).map_err(refused(doing))?;
        let found = [RDMA_CM_EVENT_ADDR_RESOLVED];
        channel.expect(doing, identifier.raw, &found, patience)?;
        let doing = "find the way to the far end";
        // SAFETY: the identifier is alive and has an address.
        let asked = unsafe { (channel.library.rdma_resolve_route)(identifier.raw, limit) };
        outcome(asked).map_err(refused(doing))?;
        let found = [RDMA_CM_EVENT_ROUTE_RESOLVED];
        channel.expect(doing, identifier.raw, &found, patience)?;
        Ok(identifier)
    }
}

impl fmt::Debug for Calling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Calling")
    }
}

impl Calling {
    /// Finds the way from an address of this host to that of a listener.
    pub fn new(
        from: SocketAddr,
        to: SocketAddr,
        traffic_class: u8,
        patience: Patience<'_>,
    ) -> Result<Self, VerbsError> {
        let channel = Channel::new()?;
        let way = Ends {
            from,
            to,
            traffic_class,
        };
        let identifier = way.find_way(&channel, patience)?;
        Ok(Self {
            identifier,
            channel,
            way,
        })
    }

    /// The device that the way begins with.
    pub fn device(&self) -> Option<String> {
        self.identifier.device()
    }

    /// What the queue pair's next state takes.
    pub fn attributes(&self, step: Step, access: Access) -> Result<Attributes, VerbsError> {
        self.identifier.attributes(step, access)
    }

    /// Calls with a queue pair that is initialized, and waits for the answer; `false` when the connection is
    /// established by it already (iWARP).
    pub fn call(
        &mut self,
        queue_pair: u32,
        private: &[u8],
        reads: (u8, u8),
        patience: Patience<'_>,
    ) -> Result<bool, VerbsError> {
        let mut given = parameters(queue_pair, private, reads);
        let mut passed_over = PassedOver::default();
        loop {
            let own = &self.identifier;
            // SAFETY: the identifier is alive, the library only reads the structure and the data it names.
            let called = outcome(unsafe { (own.library.rdma_connect)(own.raw, &raw mut given) });
            if !passed_over.goes_on(self.way.from, called) {
                called.map_err(refused("call the far end"))?;
                break;
            }
            let next = self.way.find_way(&self.channel, patience)?;
            (passed_over.0).push(std::mem::replace(&mut self.identifier, next));
        }
        let answers = [RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_ESTABLISHED];
        let told = (self.channel).expect(
            "connect to the far end",
            self.identifier.raw,
            &answers,
            patience,
        )?;
        Ok(told.event == RDMA_CM_EVENT_CONNECT_RESPONSE)
    }

    /// Tells the far end that the queue pair is ready, when [`Calling::call`] wants it.
    pub fn establish(self, wanted: bool) -> Result<Connection, VerbsError> {
        if wanted {
            // SAFETY: the identifier is alive.
            let told = unsafe { (self.identifier.library.rdma_establish)(self.identifier.raw) };
            outcome(told).map_err(refused("establish the connection"))?;
        }
        Ok(Connection {
            _end: Kept::Called {
                _identifier: self.identifier,
                _channel: self.channel,
            },
        })
    }
}
