//! The global state: the devices, what was created from them, the faults. One lock for all; only a poll of an
//! empty completion queue does without.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ffi::c_int;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard};
use std::time::Instant;

use linerate_verbs::sys::abi::{
    ibv_ah_attr, ibv_async_event, ibv_context, ibv_context_ops, ibv_wc,
};

use super::completion::{Channel, Queue, Slot, Teller, lock};
use super::device::Device;
use super::number::{EVENT_CQ_ERR, EVENT_DEVICE_FATAL, EVENT_PORT_ACTIVE, EVENT_PORT_ERR};
use super::queue_pair::QueuePair;
use super::region::Region;
use crate::{Fault, Link};

/// What is given out and counted, in the order of `crate::KINDS`.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Context,
    Domain,
    Region,
    Channel,
    Queue,
    QueuePair,
    Handle,
    Event,
}

/// An event, raised for everyone who has the device open.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct DeviceEvent {
    pub(super) kind: c_int,
    /// The number of a port, or the address of an object; different for every device.
    pub(super) element: usize,
}

/// The object given out, the library's part first.
#[repr(C)]
pub(super) struct ContextObject {
    pub(super) base: ibv_context,
    pub(super) teller: Arc<Teller<DeviceEvent>>,
}

pub(super) struct Context {
    pub(super) device: usize,
    pub(super) teller: Arc<Teller<DeviceEvent>>,
    /// Domains, channels and completion queues made from it.
    pub(super) children: usize,
}

pub(super) struct Domain {
    pub(super) context: usize,
    /// Regions, queue pairs and address handles in it.
    pub(super) children: usize,
}

pub(super) struct Handle {
    pub(super) domain: usize,
    pub(super) way: ibv_ah_attr,
}

pub(super) struct QueueEntry {
    pub(super) context: usize,
    pub(super) channel: Option<usize>,
    pub(super) queue: Arc<Queue>,
    /// Queue pairs that use it, counted once for each side.
    pub(super) users: usize,
}

/// Objects are known by their addresses, memory and queue pairs by key and number.
#[derive(Default)]
pub(super) struct World {
    /// The kernel has no RDMA.
    pub(super) no_kernel: bool,
    pub(super) devices: Vec<Device>,
    pub(super) contexts: HashMap<usize, Context>,
    pub(super) domains: HashMap<usize, Domain>,
    pub(super) regions: HashMap<u32, Region>,
    pub(super) channels: HashMap<usize, Channel>,
    pub(super) queues: HashMap<usize, QueueEntry>,
    pub(super) queue_pairs: HashMap<u32, QueuePair>,
    pub(super) handles: HashMap<usize, Handle>,
    /// The last key and number given out.
    last: u32,
    /// Queue pairs with something to do.
    pub(super) ready: VecDeque<u32>,
    /// Queue pairs that wait for the remote end, until something changes or the time comes.
    pub(super) stalled: BTreeSet<u32>,
    /// Completions that come later, by their time and order.
    pub(super) late: BTreeMap<(Instant, u64), (usize, ibv_wc, Slot)>,
    order: u64,
    /// Events that were taken and not acknowledged, and whose they are.
    pub(super) unacknowledged: Vec<(DeviceEvent, usize)>,
    /// Where a message is while it is in flight.
    pub(super) bytes: Vec<u8>,
    /// Whether the thread that executes requests is running.
    pub(super) works: bool,
}

static WORLD: LazyLock<Mutex<World>> = LazyLock::new(|| Mutex::new(World::of_environment()));
/// There is something to do.
pub(super) static NEWS: Condvar = Condvar::new();

pub(super) fn world() -> MutexGuard<'static, World> {
    lock(&WORLD)
}

impl World {
    fn of_environment() -> Self {
        let mut world = Self::default();
        let (mut count, mut link, mut faults) = (1, Link::Roce, [0; Fault::ALL.len()]);
        let words = std::env::var("LINERATE_VERBS_FAKE").unwrap_or_default();
        for word in words.split(',').filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').unwrap_or((word, "1"));
            let value: u64 = value
                .parse()
                .unwrap_or_else(|_| panic!("LINERATE_VERBS_FAKE: `{value}` is not a number"));
            if let Some(named) = Link::ALL.iter().find(|link| link.name() == name) {
                link = *named;
                continue;
            }
            match Fault::ALL.iter().find(|fault| fault.name() == name) {
                Some(fault) => faults[*fault as usize] = value,
                None if name == "devices" => count = value,
                None if name == "no-kernel" => world.no_kernel = true,
                None => panic!("LINERATE_VERBS_FAKE: `{name}` is none of its words"),
            }
        }
        for _ in 0..count {
            let device = world.add_device(link) as usize;
            world.devices[device].faults = faults;
        }
        world
    }

    /// One more device; its number.
    pub(super) fn add_device(&mut self, link: Link) -> u32 {
        let number = u32::try_from(self.devices.len()).expect("few devices");
        self.devices.push(Device::new(number, link));
        number
    }

    /// A number that no key and no queue pair has had.
    pub(super) fn next_number(&mut self) -> u32 {
        self.last += 1;
        // Queue pairs have 24 bits, and two of them are special.
        assert!(self.last < 1 << 23, "the fake has no number left");
        self.last + 0x10
    }

    pub(super) fn born(&mut self, device: usize, kind: Kind) {
        self.devices[device].alive[kind as usize] += 1;
    }

    pub(super) fn died(&mut self, device: usize, kind: Kind) {
        self.devices[device].alive[kind as usize] -= 1;
    }

    pub(super) fn device_of_domain(&self, domain: usize) -> usize {
        let domain = self.domains.get(&domain).expect("a domain that is alive");
        self.contexts[&domain.context].device
    }

    /// Has something go wrong from now on.
    pub(super) fn set(&mut self, device: usize, fault: Fault, value: u64) {
        let before = std::mem::replace(&mut self.devices[device].faults[fault as usize], value);
        if (before == 0) != (value == 0) {
            // A port's number has the first four bytes; in the others we find whose event it is.
            let own = (device + 1) << 32;
            match fault {
                Fault::PortDown if value == 0 => self.tell(device, EVENT_PORT_ACTIVE, own | 1),
                Fault::PortDown => self.tell(device, EVENT_PORT_ERR, own | 1),
                Fault::Gone if value != 0 => self.tell(device, EVENT_DEVICE_FATAL, own),
                _ => {}
            }
        }
        self.wake();
    }

    /// Counts a message of a device, with what comes after so many.
    pub(super) fn count_message(&mut self, device: usize) {
        self.devices[device].messages += 1;
        let own = &self.devices[device];
        let is_now = |fault| own.has(fault) && own.messages == own.fault(fault);
        let (down, gone) = (is_now(Fault::PortDownAfter), is_now(Fault::GoneAfter));
        let other_down = is_now(Fault::OtherPortDownAfter);
        if down {
            self.set(device, Fault::PortDown, 1);
        }
        if gone {
            self.set(device, Fault::Gone, 1);
        }
        if other_down {
            self.tell(device, EVENT_PORT_ERR, (device + 1) << 32 | 2);
        }
    }

    /// Raises an event for everyone who has the device open.
    pub(super) fn tell(&self, device: usize, kind: c_int, element: usize) {
        for context in self.contexts.values() {
            if context.device == device {
                context.teller.tell(DeviceEvent { kind, element });
            }
        }
    }

    /// Threads that wait for the remote end check again.
    pub(super) fn wake(&mut self) {
        if !self.stalled.is_empty() {
            self.ready.extend(std::mem::take(&mut self.stalled));
            NEWS.notify_one();
        }
    }

    /// Completes a request, now or later.
    pub(super) fn complete(&mut self, device: usize, queue: usize, entry: ibv_wc, slot: Slot) {
        let own = &self.devices[device];
        if own.has(Fault::Gone) || own.has(Fault::Hang) {
            return;
        }
        let delay = own.fault(Fault::DelayMicroseconds);
        if delay == 0 && self.late.is_empty() {
            self.add_completion(device, queue, entry, slot);
            return;
        }
        let due = Instant::now() + std::time::Duration::from_micros(delay);
        self.order += 1;
        self.late.insert((due, self.order), (queue, entry, slot));
        NEWS.notify_one();
    }

    fn add_completion(&mut self, device: usize, address: usize, entry: ibv_wc, slot: Slot) {
        let Some(own) = self.queues.get(&address) else {
            return; // destroyed meanwhile
        };
        if !own.queue.add(address, entry, slot) {
            self.tell(device, EVENT_CQ_ERR, address);
        }
    }

    /// Adds what is due; when the next one is.
    pub(super) fn add_due(&mut self) -> Option<Instant> {
        loop {
            let (&(due, order), &(queue, ..)) = self.late.first_key_value()?;
            if due > Instant::now() {
                return Some(due);
            }
            let (_, entry, slot) = self.late.remove(&(due, order))?;
            if let Some(own) = self.queues.get(&queue) {
                let device = self.contexts[&own.context].device;
                self.add_completion(device, queue, entry, slot);
            }
        }
    }
}

/// The event as the library writes it.
pub(super) fn event_of(told: DeviceEvent) -> ibv_async_event {
    ibv_async_event {
        element: std::ptr::with_exposed_provenance_mut(told.element),
        event_type: told.kind,
    }
}

/// The provider's functions.
pub(super) fn operations() -> ibv_context_ops {
    ibv_context_ops {
        before_poll_cq: [std::ptr::null_mut(); 11],
        poll_cq: Some(super::hot::poll_cq),
        req_notify_cq: Some(super::hot::req_notify_cq),
        before_post_send: [std::ptr::null_mut(); 12],
        post_send: Some(super::hot::post_send),
        post_recv: Some(super::hot::post_recv),
        after_post_recv: [std::ptr::null_mut(); 5],
    }
}
