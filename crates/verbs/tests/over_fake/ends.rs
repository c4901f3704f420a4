//! Both ends of a connection, in one thread.

use std::net::{IpAddr, Ipv4Addr};

use linerate_verbs::{
    Access, Completion, CompletionQueue, Device, Opcode, Path, ProtectionDomain, QueuePair,
    QueuePairNeeds, Region, Status, entry_of,
};
use linerate_verbs_fake::{Buffer, Fake, FakeDevice, MTU};

/// The key of datagrams.
pub(crate) const KEY: u32 = 0x1111_1111;
/// Where everybody is.
pub(crate) const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A device of this test's own.
pub(crate) fn device() -> (FakeDevice, Device) {
    let fake = Fake::install().device();
    let device = Device::open(fake.name()).expect("a device");
    (fake, device)
}

/// What an end is made with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) datagrams: bool,
    pub(crate) bytes: usize,
    pub(crate) depth: u32,
    pub(crate) access: Access,
    pub(crate) tells: bool,
    pub(crate) inline: u32,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            datagrams: false,
            bytes: 4096,
            depth: 64,
            access: Access {
                remote_write: true,
                remote_read: true,
                remote_atomic: true,
                ..Access::default()
            },
            tells: false,
            inline: 0,
        }
    }
}

/// One end; its parts are dropped in this order.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) queue_pair: QueuePair,
    pub(crate) queue: CompletionQueue,
    pub(crate) region: Region<Buffer>,
    pub(crate) domain: ProtectionDomain,
}

impl End {
    pub(crate) fn new(device: &Device, plan: Plan) -> Self {
        let domain = ProtectionDomain::new(device).expect("a domain");
        let queue =
            CompletionQueue::new(device, 2 * plan.depth, plan.tells).expect("a completion queue");
        let needs = QueuePairNeeds {
            datagrams: plan.datagrams,
            sends: plan.depth,
            receives: plan.depth,
            inline: plan.inline,
        };
        let queue_pair = QueuePair::new(&domain, &queue, needs).expect("a queue pair");
        let region = Region::new(&domain, Buffer::new(plan.bytes), plan.access).expect("a region");
        queue_pair
            .initialize(1, plan.access, KEY)
            .expect("an initialized queue pair");
        Self {
            queue_pair,
            queue,
            region,
            domain,
        }
    }

    pub(crate) fn connect(&self, far: u32) {
        let path = path(self.domain.device(), far);
        self.queue_pair
            .connect(&path)
            .expect("a connected queue pair");
    }

    /// The next `count` completions.
    pub(crate) fn ends(&self, count: usize) -> Vec<Completion> {
        let mut all = Vec::new();
        let mut some = [Completion::default(); 16];
        while all.len() < count {
            let room = some.len().min(count - all.len());
            let polled = self.queue.poll(&mut some[..room]).expect("a poll");
            all.extend_from_slice(&some[..polled]);
        }
        all
    }

    /// The next completion: its number, and how it ended.
    pub(crate) fn end(&self) -> (u64, Result<Opcode, Status>) {
        let end = self.ends(1)[0];
        (end.id(), end.status().map(|()| end.opcode()))
    }
}

/// What a region holds now.
pub(crate) fn all_of(region: &Region<Buffer>) -> Vec<u8> {
    let mut all = vec![0; region.length()];
    region.read(0, &mut all);
    all
}

/// The way to a queue pair.
pub(crate) fn path(device: &Device, far: u32) -> Path {
    let own = entry_of(&device.gids().expect("GIDs"), HERE).expect("this host's GID");
    Path {
        port: own.port,
        gid_index: Some(own.index),
        mtu: MTU,
        gid: own.gid,
        lid: 0,
        queue_pair: far,
        receive_packet_number: 7,
        send_packet_number: 7,
        traffic_class: 0,
        service_level: 0,
        ack_timeout: None,
        reads_asked: 1,
        reads_answered: 1,
    }
}

/// Two ends that are connected.
pub(crate) fn pair(device: &Device, plan: Plan) -> (End, End) {
    let (near, far) = (End::new(device, plan), End::new(device, plan));
    near.connect(far.queue_pair.number());
    far.connect(near.queue_pair.number());
    (near, far)
}
