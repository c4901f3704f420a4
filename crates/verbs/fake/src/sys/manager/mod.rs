//! The connection manager, librdmacm's part: identifiers that find each other by address and port within this
//! process, and their events.

mod export;

use std::collections::HashMap;
use std::ffi::c_int;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

use linerate_verbs::sys::abi::{
    RDMA_CM_EVENT_CONNECT_REQUEST, ibv_context, rdma_cm_id, rdma_event_channel,
};

use super::completion::{Teller, lock};
use super::world::{operations, world};
use crate::{Fault, Link};

const REJECTED: c_int = 8;
const DISCONNECTED: c_int = 10;

/// Why a call is rejected: no listener is there, or it rejects the call.
const NO_SERVICE: c_int = 8;
const BY_CONSUMER: c_int = 28;

/// Something that happened to an identifier.
pub(super) struct ManagerEvent {
    id: usize,
    /// Of a request, the identifier that listened; else that itself.
    owner: usize,
    event: c_int,
    status: c_int,
    private: Vec<u8>,
    /// Reads and atomics that the remote end has in flight, and answers.
    reads: (u8, u8),
    queue_pair: u32,
}

impl ManagerEvent {
    fn plain(id: usize, event: c_int, status: c_int) -> Self {
        Self {
            id,
            owner: id,
            event,
            status,
            private: Vec::new(),
            reads: (0, 0),
            queue_pair: 0,
        }
    }
}

/// How far an identifier has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Listening,
    Addressed,
    Routed,
    /// It called, and was not answered.
    Calling,
    /// It was called, and has not answered.
    Called,
    /// It answered, or was answered.
    Answered,
    Connected,
    Closed,
}

struct Identifier {
    channel: usize,
    teller: Arc<Teller<ManagerEvent>>,
    state: State,
    own: Option<SocketAddr>,
    far: Option<SocketAddr>,
    /// The identifier at the other end.
    peer: Option<usize>,
    far_queue_pair: Option<u32>,
    reads: (u8, u8),
    unacknowledged: usize,
}

/// The object given out, the library's part first.
#[repr(C)]
struct ChannelObject {
    base: rdma_event_channel,
    teller: Arc<Teller<ManagerEvent>>,
}

#[derive(Default)]
struct Manager {
    channels: usize,
    identifiers: HashMap<usize, Identifier>,
    /// The contexts that the library has opened, one for each device, for ever.
    contexts: HashMap<usize, usize>,
    last_port: u16,
}

static MANAGER: LazyLock<Mutex<Manager>> = LazyLock::new(Mutex::default);

fn manager() -> MutexGuard<'static, Manager> {
    lock(&MANAGER)
}

/// What an address leads to.
#[derive(Clone, Copy)]
struct Place {
    device: usize,
    link: Link,
    lid: u16,
    gid_index: u8,
}

/// The first device with that address.
fn device_at(address: IpAddr) -> Option<Place> {
    let world = world();
    (0..).zip(&world.devices).find_map(|(number, device)| {
        Some(Place {
            device: number,
            link: device.link,
            lid: device.lid,
            gid_index: device.index_at(address)?,
        })
    })
}

impl Identifier {
    /// Where it is at this end.
    fn place(&self) -> Option<Place> {
        device_at(self.own?.ip())
    }

    /// Whether TCP has its port already, which so many are not free of.
    fn is_port_taken(&self) -> bool {
        let Some(place) = self.place() else {
            return false;
        };
        let left = &mut world().devices[place.device].faults[Fault::PortsTaken as usize];
        let is_taken = *left > 0;
        *left = left.saturating_sub(1);
        is_taken
    }
}

impl Manager {
    fn identifier(&mut self, id: usize) -> &mut Identifier {
        let own = self.identifiers.get_mut(&id);
        own.expect("an identifier that is alive")
    }

    /// Makes an object of a new identifier.
    fn give(&mut self, channel: usize, teller: Arc<Teller<ManagerEvent>>, state: State) -> usize {
        let raw = Box::new(rdma_cm_id {
            verbs: std::ptr::null_mut(),
            channel: std::ptr::with_exposed_provenance_mut(channel),
            context: std::ptr::null_mut(),
            qp: std::ptr::null_mut(),
        });
        let address = Box::into_raw(raw).expose_provenance();
        let own = Identifier {
            channel,
            teller,
            state,
            own: None,
            far: None,
            peer: None,
            far_queue_pair: None,
            reads: (0, 0),
            unacknowledged: 0,
        };
        self.identifiers.insert(address, own);
        address
    }

    /// The context of a device, as the library has it open.
    fn context(&mut self, device: usize) -> *mut ibv_context {
        let make = || {
            let context = ibv_context {
                device: std::ptr::with_exposed_provenance_mut(world().devices[device].address),
                ops: operations(),
                cmd_fd: -1,
                async_fd: -1,
                num_comp_vectors: 1,
            };
            Box::into_raw(Box::new(context)).expose_provenance()
        };
        let address = *self.contexts.entry(device).or_insert_with(make);
        std::ptr::with_exposed_provenance_mut(address)
    }

    /// Raises an event of an identifier, if it still exists.
    fn tell(&mut self, told: ManagerEvent) {
        if let Some(own) = self.identifiers.get(&told.owner) {
            own.teller.tell(told);
        }
    }

    /// Who listens there.
    fn listener(&self, at: SocketAddr) -> Option<usize> {
        let listens = |own: &Identifier| {
            own.state == State::Listening
                && own.own.is_some_and(|own| {
                    own.port() == at.port() && (own.ip().is_unspecified() || own.ip() == at.ip())
                })
        };
        let found = self.identifiers.iter().find(|(_, own)| listens(own));
        found.map(|(id, _)| *id)
    }

    /// A free port.
    fn free_port(&mut self) -> u16 {
        loop {
            self.last_port = self.last_port.checked_add(1).unwrap_or(1).max(40_000);
            let port = self.last_port;
            let has = |own: &Identifier| own.own.is_some_and(|own| own.port() == port);
            if !self.identifiers.values().any(has) {
                return port;
            }
        }
    }

    /// Ends an identifier's connection with its peer, which is notified.
    fn part(&mut self, id: usize) {
        let own = self.identifier(id);
        let (peer, state) = (own.peer.take(), own.state);
        own.state = State::Closed;
        let Some(peer) = peer else {
            return;
        };
        let Some(far) = self.identifiers.get_mut(&peer) else {
            return;
        };
        far.peer = None;
        let told = match state {
            State::Called => ManagerEvent::plain(peer, REJECTED, BY_CONSUMER),
            State::Answered | State::Connected => {
                far.state = State::Closed;
                ManagerEvent::plain(peer, DISCONNECTED, 0)
            }
            _ => return,
        };
        self.tell(told);
    }

    /// Ends an identifier, with its pending requests.
    fn destroy(&mut self, id: usize) {
        self.part(id);
        let own = self.identifiers.remove(&id);
        let own = own.expect("an identifier that is alive");
        // The real one waits for ever.
        assert_eq!(own.unacknowledged, 0, "its events are not acknowledged");
        let mut requests = Vec::new();
        let requested = std::cell::RefCell::new(&mut requests);
        own.teller.forget(|told| {
            let is_its = told.owner == id || told.id == id;
            if is_its && told.event == RDMA_CM_EVENT_CONNECT_REQUEST {
                requested.borrow_mut().push(told.id);
            }
            is_its
        });
        for request in requests {
            self.destroy(request);
        }
        let raw: *mut rdma_cm_id = std::ptr::with_exposed_provenance_mut(id);
        // SAFETY: it came from `give` and is removed.
        drop(unsafe { Box::from_raw(raw) });
    }
}
