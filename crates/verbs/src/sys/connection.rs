//! Connections by the RDMA connection manager (rdma_cm(7)). It resolves the route and carries a few bytes of ours;
//! the caller owns the queue pair, whose states follow the manager's attributes.
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

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use rustix::io::Errno;

use super::abi::{
    RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_RESPONSE,
    RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_ROUTE_RESOLVED,
};
use super::address::RawAddress;
use super::manager::{
    Attributes, Channel, Identifier, ManagerEvent, Patience, Step, parameters, refused,
};
use super::memory::Access;
use super::outcome;
use crate::VerbsError;

/// The device, and its port if reported, which the connection manager selects for an address of this host: also
/// if no GID is that address (InfiniBand under IPoIB, iWARP). `None` if it knows of none; an error if it cannot
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

/// How many ports in use are skipped if none was requested. The manager chooses one that is free
/// for it; that TCP uses it, with which iWARP shares it, is detected only when it is used (`siw_create_listen` and
/// `siw_connect` bind a socket of TCP to it).
const PASSED_OVER_MAX: usize = 100;

/// The identifiers whose port is in use. They keep it, so that it is not chosen again.
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
        let asks = |told: &ManagerEvent| told.event == RDMA_CM_EVENT_CONNECT_REQUEST;
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

/// The identifier of a request, on its listener's channel.
struct Brought {
    identifier: Identifier,
    listener: Listener,
}

impl Drop for Brought {
    fn drop(&mut self) {
        self.listener.0.channel.forget(self.identifier.raw);
    }
}

/// An incoming connection request. Dropped, it is rejected.
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
    /// The private data of the calling end; what its transport adds may follow.
    pub fn private(&self) -> &[u8] {
        &self.private
    }

    /// The device that it arrived at.
    pub fn device(&self) -> Option<String> {
        self.brought.identifier.device()
    }

    /// Reads and atomics that the calling end wants to have in flight.
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
            _end: ConnectionOwner::Accepted {
                _brought: self.brought,
            },
        })
    }
}

/// A connection that is there until it is dropped.
pub struct Connection {
    _end: ConnectionOwner,
}

/// What keeps a connection.
enum ConnectionOwner {
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

/// A call whose route is resolved.
pub struct Calling {
    identifier: Identifier,
    channel: Channel,
    way: Ends,
}

/// The addresses between which a route is resolved.
#[derive(Clone, Copy)]
struct Ends {
    from: SocketAddr,
    to: SocketAddr,
    traffic_class: u8,
}

impl Ends {
    /// An identifier that has resolved the route.
    fn find_way(self, channel: &Channel, patience: Patience<'_>) -> Result<Identifier, VerbsError> {
        let identifier = Identifier::new(channel)?;
        if self.traffic_class != 0 {
            identifier.set_traffic_class(self.traffic_class)?;
        }
        let (mut source, mut target) = (RawAddress::new(self.from), RawAddress::new(self.to));
        let limit = i32::try_from(RESOLVE.as_millis()).unwrap_or(i32::MAX);
        let doing = "resolve the remote address";
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
        let doing = "resolve the route to the remote end";
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
    /// Resolves the route from an address of this host to that of a listener.
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

    /// The device that the route begins with.
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
                called.map_err(refused("connect to the remote end"))?;
                break;
            }
            let next = self.way.find_way(&self.channel, patience)?;
            (passed_over.0).push(std::mem::replace(&mut self.identifier, next));
        }
        let answers = [RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_ESTABLISHED];
        let told = (self.channel).expect(
            "connect to the remote end",
            self.identifier.raw,
            &answers,
            patience,
        )?;
        Ok(told.event == RDMA_CM_EVENT_CONNECT_RESPONSE)
    }

    /// Notifies the remote end that the queue pair is ready, if [`Calling::call`] requires it.
    pub fn establish(self, wanted: bool) -> Result<Connection, VerbsError> {
        if wanted {
            // SAFETY: the identifier is alive.
            let told = unsafe { (self.identifier.library.rdma_establish)(self.identifier.raw) };
            outcome(told).map_err(refused("establish the connection"))?;
        }
        Ok(Connection {
            _end: ConnectionOwner::Called {
                _identifier: self.identifier,
                _channel: self.channel,
            },
        })
    }
}
