//! What a device or its remote end refuses: each error names its cause.

use std::ops::Range;

use linerate_verbs::{
    Access, AddressHandle, CompletionQueue, Device, Gid, Opcode, ProtectionDomain, QueuePair,
    QueuePairNeeds, Receive, Receives, Region, Remote, Send, Sends, Status, To, VerbsError, Work,
};
use linerate_verbs_fake::{Buffer, COMPLETIONS_MAX, DEPTH_MAX, Fault, INLINE_MAX};
use rustix::io::Errno;

use crate::ends::{End, KEY, Plan, device, pair, path};

fn one<'r>(end: &'r End, id: u64, range: Range<usize>, work: Work<'r>) -> Send<'r> {
    Send {
        id,
        local: end.region.slice(range),
        work,
        signaled: false,
        inline: false,
    }
}

/// Posts a request and one behind it; how the first ended. The other must be flushed.
fn failure(near: &End, range: Range<usize>, work: Work<'_>) -> Status {
    let behind = Work::Send;
    let chain = [one(near, 1, range, work), one(near, 2, 0..1, behind)];
    let mut sends = Sends::new(&chain);
    sends.post(&near.queue_pair, 0, 2).expect("a post");
    let ends = near.ends(2);
    assert_eq!((ends[0].id(), ends[1].id()), (1, 2));
    assert_eq!(ends[1].status(), Err(Status::Flushed));
    ends[0].status().expect_err("it is refused")
}

fn closed() -> Plan {
    Plan {
        access: Access::default(),
        ..Plan::default()
    }
}

#[test]
fn a_wrong_key_an_address_outside_and_a_missing_right_are_refused_by_the_far_end() {
    let (_fake, device) = device();
    let refused = |what: &str, access: Access, make: &dyn Fn(&End) -> Work<'static>| {
        let (near, far) = pair(&device, Plan::default());
        let target = Region::new(&far.domain, Buffer::new(4096), access).expect("a region");
        let far = End {
            region: target,
            ..far
        };
        let rooms = [Receive {
            id: 9,
            local: far.region.slice(0..8),
        }];
        Receives::new(&rooms)
            .post(&far.queue_pair, 0, 1)
            .expect("a post");
        let work = make(&far);
        assert_eq!(failure(&near, 0..8, work), Status::RemoteAccess, "{what}");
        // The remote end's queue pair is ended by it too.
        assert_eq!(far.end(), (9, Err(Status::Flushed)), "{what}");
        assert_eq!(far.region.look(0), 0, "{what}");
    };
    let all = Plan::default().access;
    refused("a wrong key", all, &|far| {
        let mut at = far.region.remote(0);
        at.key ^= 0x100;
        Work::Write(at)
    });
    refused("behind the end", all, &|far| {
        Work::Write(far.region.remote(4089))
    });
    refused("before the start", all, &|far| {
        Work::Read(far.region.remote(0).at(u64::MAX))
    });
    let none = Access::default();
    refused("no right to write", none, &|far| {
        Work::Write(far.region.remote(0))
    });
    refused("no right to read", none, &|far| {
        Work::Read(far.region.remote(0))
    });
    refused("no right to change", none, &|far| {
        Work::FetchAdd(far.region.remote(0), 1)
    });
}

#[test]
fn what_the_far_queue_pair_does_not_allow_is_refused_as_invalid() {
    let (_fake, device) = device();
    let works: [fn(Remote) -> Work<'static>; 3] =
        [Work::Write, Work::Read, |at| Work::FetchAdd(at, 1)];
    for work in works {
        let (near, far) = pair(&device, closed());
        let all = Plan::default().access;
        let target = Region::new(&far.domain, Buffer::new(8), all).expect("a region");
        let status = failure(&near, 0..8, work(target.remote(0)));
        assert_eq!(status, Status::RemoteRequest);
    }
    let (near, far) = pair(&device, Plan::default());
    let askew = Work::FetchAdd(far.region.remote(4), 1);
    assert_eq!(failure(&near, 0..8, askew), Status::RemoteRequest);
}

#[test]
fn a_message_that_is_longer_than_its_room_fails_at_both_ends() {
    let (_fake, device) = device();
    let (near, far) = pair(&device, Plan::default());
    let rooms = [Receive {
        id: 4,
        local: far.region.slice(0..8),
    }];
    let mut rooms = Receives::new(&rooms);
    rooms.post(&far.queue_pair, 0, 1).expect("a post");
    assert_eq!(failure(&near, 0..9, Work::Send), Status::RemoteRequest);
    assert_eq!(far.end(), (4, Err(Status::LocalLength)));
    // After that the queue pair takes requests and gives them back.
    rooms.post(&far.queue_pair, 0, 1).expect("a post");
    assert_eq!(far.end(), (4, Err(Status::Flushed)));
}

#[test]
fn memory_of_another_domain_is_not_registered_for_this_end() {
    let (_fake, device) = device();
    let (near, far) = pair(&device, closed());
    let mut sends = Sends::new(&[Send {
        id: 1,
        local: far.region.slice(0..8),
        work: Work::Send,
        signaled: true,
        inline: false,
    }]);
    sends.post(&near.queue_pair, 0, 1).expect("a post");
    assert_eq!(near.end(), (1, Err(Status::LocalProtection)));
}

#[test]
fn a_far_end_that_is_gone_unknown_or_down_does_not_answer() {
    let (fake, device) = device();
    let (near, far) = pair(&device, Plan::default());
    let at = far.region.remote(0);
    drop(far);
    assert_eq!(failure(&near, 0..8, Work::Write(at)), Status::NoAnswer);

    let (near, far) = (
        End::new(&device, Plan::default()),
        End::new(&device, Plan::default()),
    );
    let mut elsewhere = path(&device, far.queue_pair.number());
    elsewhere.gid = Gid::of("192.0.2.1".parse().expect("an address"));
    near.queue_pair.connect(&elsewhere).expect("a queue pair");
    far.connect(near.queue_pair.number());
    assert_eq!(failure(&near, 0..8, Work::Send), Status::NoAnswer);

    let (near, far) = pair(&device, Plan::default());
    fake.set(Fault::PortDown, 1);
    let work = Work::Read(far.region.remote(0));
    let status = failure(&near, 0..8, work);
    assert_eq!(status, Status::NoAnswer);
    let said = status.to_string();
    assert!(said.contains("its port is down"), "{said}");
}

#[test]
fn a_far_end_that_is_not_connected_yet_is_waited_for() {
    let (_fake, device) = device();
    let (near, far) = (
        End::new(&device, Plan::default()),
        End::new(&device, Plan::default()),
    );
    near.connect(far.queue_pair.number());
    let mut send = one(&near, 1, 0..8, Work::Write(far.region.remote(0)));
    send.signaled = true;
    let mut sends = Sends::new(&[send]);
    sends.post(&near.queue_pair, 0, 1).expect("a post");
    far.connect(near.queue_pair.number());
    assert_eq!(near.end(), (1, Ok(Opcode::Sent)));
}

#[test]
fn datagrams_with_another_key_or_without_room_are_dropped_and_none_is_longer_than_a_packet() {
    let (_fake, device) = device();
    let plan = Plan {
        datagrams: true,
        ..Plan::default()
    };
    let (near, far) = pair(&device, plan);
    let number = far.queue_pair.number();
    let handle = AddressHandle::new(&near.domain, &path(&device, number)).expect("a handle");
    let to = |key| To {
        handle: &handle,
        queue_pair: number,
        key,
        number: None,
    };
    let send = |id, key, length| Send {
        signaled: true,
        ..one(&near, id, 0..length, Work::SendTo(to(key)))
    };
    let mut sends = Sends::new(&[
        send(1, KEY, 8),
        send(2, KEY + 1, 8),
        send(3, KEY, 16),
        send(4, KEY, 1025),
    ]);
    sends.post(&near.queue_pair, 0, 1).expect("a post");
    assert_eq!(near.end(), (1, Ok(Opcode::Sent)));
    let rooms = [Receive {
        id: 7,
        local: far.region.slice(0..1064),
    }];
    Receives::new(&rooms)
        .post(&far.queue_pair, 0, 1)
        .expect("a post");
    sends.post(&near.queue_pair, 1, 3).expect("a post");
    let came = far.ends(1)[0];
    assert_eq!((came.id(), came.bytes()), (7, 40 + 16));
    let ends = near.ends(3);
    assert!(ends[0].status().is_ok() && ends[1].status().is_ok());
    assert_eq!(ends[2].status(), Err(Status::LocalLength));
}

#[test]
fn nothing_is_posted_to_a_queue_pair_that_is_not_ready() {
    let (_fake, device) = device();
    let end = End::new(&device, Plan::default());
    let needs = QueuePairNeeds {
        datagrams: false,
        sends: 1,
        receives: 1,
        inline: 0,
    };
    let fresh = QueuePair::new(&end.domain, &end.queue, needs).expect("a queue pair");
    let rooms = [Receive {
        id: 0,
        local: end.region.slice(0..8),
    }];
    let mut rooms = Receives::new(&rooms);
    assert_eq!(rooms.post(&fresh, 0, 1), Err((0, Errno::INVAL)));
    rooms
        .post(&end.queue_pair, 0, 1)
        .expect("it is initialized");
    let mut sends = Sends::new(&[one(&end, 1, 0..8, Work::Send)]);
    let refused = sends.post(&end.queue_pair, 0, 1);
    assert_eq!(refused, Err((0, Errno::INVAL)));
    let refused = fresh.connect(&path(&device, 1)).expect_err("a state apart");
    let said = refused.to_string();
    let name = device.name();
    assert!(
        said.starts_with(&format!(
            "cannot make a queue pair ready to receive on {name}: "
        )),
        "{said}"
    );
    assert!(fresh.initialize(2, Access::default(), KEY).is_err());
}

#[test]
fn a_queue_pair_that_is_ended_gives_everything_back() {
    let (_fake, device) = device();
    let (near, far) = pair(&device, Plan::default());
    let chain: Vec<Send<'_>> = (0..5).map(|id| one(&near, id, 0..8, Work::Send)).collect();
    Sends::new(&chain)
        .post(&near.queue_pair, 0, 5)
        .expect("a post");
    near.queue_pair.flush().expect("an end");
    for (index, end) in (0..).zip(near.ends(5)) {
        assert_eq!((end.id(), end.status()), (index, Err(Status::Flushed)));
    }
    drop(far);
}

#[test]
fn a_device_gives_the_inline_room_that_it_has() {
    let (_fake, device) = device();
    for (asked, given) in [(0, 0), (8, 8), (INLINE_MAX, INLINE_MAX), (400, 50)] {
        let plan = Plan {
            inline: asked,
            ..Plan::default()
        };
        assert_eq!(End::new(&device, plan).queue_pair.inline(), given);
    }
}

/// A refusal, and its message.
fn refused<T>(result: Result<T, VerbsError>) -> (VerbsError, String) {
    let error = result.err().expect("it is refused");
    let said = error.to_string();
    (error, said)
}

#[test]
fn what_a_device_has_too_little_of_is_said_with_what_to_do() {
    let (fake, device) = device();
    let domain = ProtectionDomain::new(&device).expect("a domain");
    let queue = CompletionQueue::new(&device, 8, false).expect("a queue");

    fake.set(Fault::Memlock, 8192);
    let first = Region::new(&domain, Buffer::new(8192), Access::default()).expect("a region");
    let more = Region::new(&domain, Buffer::new(1), Access::default());
    let (error, said) = refused(more);
    assert!(error.is_resource() && !error.is_permission());
    assert!(said.starts_with("cannot register memory on fake"), "{said}");
    assert!(said.contains("`ulimit -l`"), "{said}");
    let on_demand = Access {
        on_demand: true,
        ..Access::default()
    };
    Region::new(&domain, Buffer::new(8192), on_demand).expect("it is not pinned");
    drop(first);
    Region::new(&domain, Buffer::new(8192), Access::default()).expect("there is room again");

    fake.set(Fault::QueuePairs, 1);
    let needs = QueuePairNeeds {
        datagrams: false,
        sends: 1,
        receives: 1,
        inline: INLINE_MAX,
    };
    let _first = QueuePair::new(&domain, &queue, needs).expect("a queue pair");
    let (error, said) = refused(QueuePair::new(&domain, &queue, needs));
    assert!(error.is_resource(), "{said}");
    fake.set(Fault::QueuePairs, 0);

    let deep = QueuePairNeeds {
        sends: DEPTH_MAX + 1,
        ..needs
    };
    let (_, said) = refused(QueuePair::new(&domain, &queue, deep));
    assert!(said.starts_with("cannot make a queue pair on"), "{said}");
    let (_, said) = refused(CompletionQueue::new(&device, COMPLETIONS_MAX + 1, true));
    assert!(said.starts_with("cannot make a completion queue"), "{said}");
}

#[test]
fn a_device_without_on_demand_paging_is_said_with_what_to_leave_out() {
    let (fake, device) = device();
    let domain = ProtectionDomain::new(&device).expect("a domain");
    let on_demand = Access {
        on_demand: true,
        ..Access::default()
    };
    for errno in [Errno::OPNOTSUPP, Errno::INVAL] {
        fake.set(
            Fault::PagingRefused,
            errno.raw_os_error().unsigned_abs().into(),
        );
        let (error, said) = refused(Region::new(&domain, Buffer::new(8), on_demand));
        assert!(matches!(error, VerbsError::NotSupported { .. }), "{said}");
        assert!(said.contains("leave `--on-demand` out"), "{said}");
    }
    Region::new(&domain, Buffer::new(8), Access::default()).expect("it is pinned");
}

#[test]
fn a_device_whose_file_is_missing_is_said_to_be_out_of_the_container() {
    let (fake, device) = device();
    drop(device);
    fake.set(Fault::NodeMissing, 1);
    let (error, said) = refused(Device::open(fake.name()));
    assert!(matches!(error, VerbsError::NodeMissing { .. }), "{said}");
    assert!(!error.is_permission() && !error.is_resource(), "{said}");
    assert!(said.contains("is not in this container"), "{said}");
}

#[test]
fn a_device_that_may_not_be_opened_is_a_right_missing() {
    let (fake, device) = device();
    fake.set(Fault::OpenDenied, 1);
    let (error, said) = refused(Device::open(fake.name()));
    assert!(error.is_permission() && !error.is_resource(), "{said}");
    assert!(said.contains("the nodes below /dev/infiniband"), "{said}");
    drop(device);
    let (error, said) = refused(Device::open("mlx5_9"));
    assert!(
        matches!(error, VerbsError::NoSuchDevice { .. }) && said.contains(fake.name()),
        "{said}"
    );
}

#[test]
fn a_completion_queue_with_more_than_it_has_room_for_is_an_error() {
    let (_fake, device) = device();
    let domain = ProtectionDomain::new(&device).expect("a domain");
    let queue = CompletionQueue::new(&device, 2, false).expect("a queue");
    let needs = QueuePairNeeds {
        datagrams: false,
        sends: 1,
        receives: 3,
        inline: 0,
    };
    let queue_pair = QueuePair::new(&domain, &queue, needs).expect("a queue pair");
    let region = Region::new(&domain, Buffer::new(8), Access::default()).expect("a region");
    queue_pair
        .initialize(1, Access::default(), KEY)
        .expect("a queue pair");
    let rooms = [Receive {
        id: 0,
        local: region.slice(0..8),
    }; 3];
    Receives::new(&rooms)
        .post(&queue_pair, 0, 3)
        .expect("a post");
    queue_pair.flush().expect("an end");
    let (error, said) = refused(queue.poll(&mut []));
    assert!(!error.is_permission(), "{said}");
    assert!(said.contains("it overflowed"), "{said}");
    let event = device.next_event().expect("it is told");
    assert_eq!((event.kind, event.what.as_str()), (0, "CQ error"));
}

#[test]
fn an_index_that_the_library_cannot_take_is_refused_and_no_other_taken() {
    let (_fake, device) = device();
    let end = End::new(&device, Plan::default());
    let mut far = path(&device, end.queue_pair.number());
    far.gid_index = Some(256 + 3);
    let (_, said) = refused(end.queue_pair.connect(&far));
    assert!(said.contains("use this GID index"), "{said}");
    let (_, said) = refused(AddressHandle::new(&end.domain, &far));
    assert!(said.contains("use this GID index"), "{said}");
}
