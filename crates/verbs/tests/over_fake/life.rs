//! Everything is released, once, in whatever order a program drops it.

use std::any::Any;

use linerate_verbs::{
    AddressHandle, CompletionQueue, Device, ProtectionDomain, QueuePair, QueuePairNeeds, Region,
    device_names, entry_of,
};
use linerate_verbs_fake::{Buffer, COMPLETIONS_MAX, DEPTH_MAX};
use proptest::prelude::*;

use crate::ends::{HERE, KEY, Plan, device, pair, path};

/// One of each, of which none borrows another.
fn things(device: Device) -> Vec<Box<dyn Any>> {
    let plan = Plan::default();
    let domain = ProtectionDomain::new(&device).expect("a domain");
    let told = CompletionQueue::new(&device, 8, true).expect("a queue");
    let silent = CompletionQueue::new(&device, 8, false).expect("a queue");
    let needs = QueuePairNeeds {
        datagrams: false,
        sends: 4,
        receives: 4,
        inline: 0,
    };
    let connected = QueuePair::new(&domain, &told, needs).expect("a queue pair");
    connected
        .initialize(1, plan.access, KEY)
        .expect("a queue pair");
    let fresh = QueuePair::new(&domain, &silent, needs).expect("a queue pair");
    let region = Region::new(&domain, Buffer::new(64), plan.access).expect("a region");
    let handle = AddressHandle::new(&domain, &path(&device, 1)).expect("a handle");
    vec![
        Box::new(domain.clone()),
        Box::new(told.clone()),
        Box::new(connected),
        Box::new(fresh),
        Box::new(region),
        Box::new(handle),
        Box::new(device.clone()),
        Box::new(domain),
        Box::new(silent),
        Box::new(told),
        Box::new(device),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_order_of_drops_gives_everything_back(order in Just((0..11_usize).collect::<Vec<_>>()).prop_shuffle()) {
        let (fake, device) = device();
        let mut things: Vec<Option<Box<dyn Any>>> = things(device).into_iter().map(Some).collect();
        prop_assert_eq!(things.len(), order.len());
        for (dropped, index) in order.into_iter().enumerate() {
            prop_assert!(!fake.alive().is_empty(), "after {dropped}");
            things[index] = None;
        }
        prop_assert_eq!(fake.alive(), []);
    }
}

#[test]
fn what_is_alive_is_counted_by_kind() {
    let (fake, device) = device();
    let (near, far) = pair(&device, Plan::default());
    assert_eq!(
        fake.alive(),
        [
            ("contexts", 1),
            ("protection domains", 2),
            ("regions", 2),
            ("completion queues", 2),
            ("queue pairs", 2)
        ]
    );
    drop(device);
    drop(near);
    drop(far);
    assert_eq!(fake.alive(), []);
}

#[test]
fn a_device_says_what_it_is() {
    let (fake, device) = device();
    let names = device_names().expect("devices");
    assert!(names.iter().any(|name| name == fake.name()), "{names:?}");
    assert_eq!(device.name(), fake.name());
    assert!(!device.is_iwarp());
    let most = device.attributes().expect("attributes");
    assert_eq!(most.queue_depth_max, DEPTH_MAX);
    assert_eq!(most.completions_max, COMPLETIONS_MAX);
    assert_eq!((most.reads_asked_max, most.reads_answered_max), (16, 16));
    assert!(most.atomics);
    assert_eq!(most.ports, 1);
    let gids = device.gids().expect("GIDs");
    assert_eq!(gids.len(), 6);
    let alone = entry_of(&gids, fake.address()).expect("its own");
    assert_eq!(alone.index, 5);
    let own = entry_of(&gids, HERE).expect("this host's");
    assert_eq!((own.index, own.kind.to_string()), (3, "RoCE v2".to_owned()));
}

#[test]
fn memory_is_given_back_while_the_far_end_writes_it() {
    use linerate_verbs::{Send, Sends, Status, Work};
    let (fake, device) = device();
    let plan = Plan {
        depth: 65,
        ..Plan::default()
    };
    let (near, far) = pair(&device, plan);
    let target = far.region.remote(0);
    let send = Send {
        id: 0,
        local: near.region.slice(0..4096),
        work: Work::Write(target),
        signaled: false,
        inline: false,
    };
    let mut sends = Sends::new(&[send; 64]);
    sends.post(&near.queue_pair, 0, 64).expect("a post");
    drop(far.region); // what is under way finds no region, or was through
    sends.set_signaled(0, true);
    sends.post(&near.queue_pair, 0, 1).expect("a post");
    let end = near.ends(1)[0];
    assert_eq!(end.status(), Err(Status::RemoteAccess));
    drop(sends);
    drop((near, far.queue_pair, far.queue, far.domain, device));
    // The remote end's event of the refused access went with its queue pair.
    assert_eq!(fake.alive(), []);
}
