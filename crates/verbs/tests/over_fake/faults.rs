//! The faults for tests of workloads have the stated effect.

use linerate_verbs::{
    AddressHandle, Completion, Opcode, Receive, Receives, Region, Send, Sends, Status, To, Work,
};
use linerate_verbs_fake::{Buffer, Fault};
use rustix::io::Errno;

use crate::ends::{End, KEY, Plan, all_of, device, pair, path};

fn signaled<'r>(near: &'r Region<Buffer>, work: Work<'r>) -> Send<'r> {
    Send {
        id: 1,
        local: near.slice(0..64),
        work,
        signaled: true,
        inline: false,
    }
}

#[test]
fn every_third_message_has_one_byte_changed() {
    let (fake, device) = device();
    let (near, far) = pair(&device, Plan::default());
    fake.set(Fault::CorruptEvery, 3);
    let wrong: Vec<usize> = (0..6)
        .map(|_| {
            far.region.write(0, &vec![0; far.region.length()]);
            let work = Work::Write(far.region.remote(0));
            let mut sends = Sends::new(&[signaled(&near.region, work)]);
            sends.post(&near.queue_pair, 0, 1).expect("a post");
            assert_eq!(near.end(), (1, Ok(Opcode::Sent)));
            drop(sends);
            all_of(&far.region)
                .iter()
                .filter(|byte| **byte != 0)
                .count()
        })
        .collect();
    assert_eq!(wrong, [0, 0, 1, 0, 0, 1]);
    assert_eq!(fake.messages(), 6);
}

#[test]
fn every_fourth_datagram_is_lost() {
    let (fake, device) = device();
    let plan = Plan {
        datagrams: true,
        ..Plan::default()
    };
    let (near, far) = pair(&device, plan);
    fake.set(Fault::LoseEvery, 4);
    let rooms = [Receive {
        id: 0,
        local: far.region.slice(0..128),
    }; 8];
    Receives::new(&rooms)
        .post(&far.queue_pair, 0, 8)
        .expect("a post");
    let number = far.queue_pair.number();
    let handle = AddressHandle::new(&near.domain, &path(&device, number)).expect("a handle");
    let to = To {
        handle: &handle,
        queue_pair: number,
        key: KEY,
        number: None,
    };
    let send = signaled(&near.region, Work::SendTo(to));
    Sends::new(&[send; 8])
        .post(&near.queue_pair, 0, 8)
        .expect("a post");
    near.ends(8);
    far.queue_pair.flush().expect("an end");
    let came = far
        .ends(8)
        .iter()
        .filter(|end| end.status().is_ok())
        .count();
    assert_eq!(came, 6);
}

#[test]
fn late_completions_come_in_their_order() {
    let (fake, device) = device();
    let (near, far) = pair(&device, Plan::default());
    fake.set(Fault::DelayMicroseconds, 2000);
    let begin = std::time::Instant::now();
    let sends: Vec<Send<'_>> = (0..8)
        .map(|id| Send {
            id,
            ..signaled(&near.region, Work::Write(far.region.remote(0)))
        })
        .collect();
    Sends::new(&sends)
        .post(&near.queue_pair, 0, 8)
        .expect("a post");
    let ids: Vec<u64> = near.ends(8).iter().map(Completion::id).collect();
    assert_eq!(ids, (0..8).collect::<Vec<_>>());
    assert!(begin.elapsed().as_micros() >= 2000);
}

#[test]
fn a_port_that_fails_in_mid_run_ends_what_is_under_way() {
    let (fake, device) = device();
    let (near, far) = pair(&device, Plan::default());
    fake.set(Fault::PortDownAfter, 3);
    let sends = [signaled(&near.region, Work::Write(far.region.remote(0))); 5];
    Sends::new(&sends)
        .post(&near.queue_pair, 0, 5)
        .expect("a post");
    let ends: Vec<Result<(), Status>> = near.ends(5).iter().map(Completion::status).collect();
    let (no_answer, flushed) = (Err(Status::NoAnswer), Err(Status::Flushed));
    assert_eq!(ends, [Ok(()), Ok(()), Ok(()), no_answer, flushed]);
    let event = device.next_event().expect("it is told");
    assert!(event.is_fatal_for(1) && !event.is_fatal_for(2));
}

#[test]
fn another_port_that_fails_is_told_with_its_number_and_ends_nothing() {
    let (fake, device) = device();
    let (near, far) = pair(&device, Plan::default());
    fake.set(Fault::OtherPortDownAfter, 2);
    let sends = [signaled(&near.region, Work::Write(far.region.remote(0))); 5];
    Sends::new(&sends)
        .post(&near.queue_pair, 0, 5)
        .expect("a post");
    assert!(near.ends(5).iter().all(|end| end.status().is_ok()));
    let event = device.next_event().expect("it is told");
    assert_eq!((event.kind, event.port), (10, Some(2)));
    assert!(event.is_fatal_for(2) && !event.is_fatal_for(1));
    assert_eq!(device.next_event(), None);
}

#[test]
fn a_device_that_goes_in_mid_run_ends_nothing_any_more() {
    let (fake, device) = device();
    let (near, far) = pair(&device, Plan::default());
    fake.set(Fault::GoneAfter, 3);
    let sends = [signaled(&near.region, Work::Write(far.region.remote(0))); 5];
    let mut sends = Sends::new(&sends);
    sends.post(&near.queue_pair, 0, 5).expect("a post");
    near.ends(2);
    let event = loop {
        if let Some(event) = device.next_event() {
            break event;
        }
    };
    assert!(event.is_fatal_for(1));
    assert_eq!(sends.post(&near.queue_pair, 0, 1), Err((0, Errno::IO)));
    let mut none = [Completion::default()];
    assert_eq!(near.queue.poll(&mut none), Ok(0));
    drop(sends);
    drop((near, far, device));
    assert_eq!(fake.alive(), []);
}

#[test]
fn a_device_that_hangs_is_silent_until_it_no_longer_does() {
    let (fake, device) = device();
    let (near, far) = pair(&device, Plan::default());
    fake.set(Fault::Hang, 1);
    let mut sends = Sends::new(&[signaled(&near.region, Work::Write(far.region.remote(0)))]);
    sends.post(&near.queue_pair, 0, 1).expect("a post");
    // What another device was given after it has ended, and this one's not.
    let (_other_fake, other) = crate::ends::device();
    let (well, target) = pair(&other, Plan::default());
    let mut others = Sends::new(&[signaled(&well.region, Work::Write(target.region.remote(0)))]);
    others.post(&well.queue_pair, 0, 1).expect("a post");
    well.ends(1);
    let mut none = [Completion::default()];
    assert_eq!(near.queue.poll(&mut none), Ok(0));
    fake.set(Fault::Hang, 0);
    assert_eq!(near.end(), (1, Ok(Opcode::Sent)));
}

#[test]
fn devices_are_joined_and_each_has_its_own_faults() {
    let ((fake, device), (other_fake, other)) = (device(), device());
    let (near, far) = (
        End::new(&device, Plan::default()),
        End::new(&other, Plan::default()),
    );
    near.connect(far.queue_pair.number());
    far.connect(near.queue_pair.number());
    other_fake.set(Fault::OpenDenied, 1);
    let mut sends = Sends::new(&[signaled(&near.region, Work::Write(far.region.remote(0)))]);
    sends.post(&near.queue_pair, 0, 1).expect("a post");
    assert_eq!(near.end(), (1, Ok(Opcode::Sent)));
    assert_eq!((fake.messages(), other_fake.messages()), (1, 0));
    assert_ne!(fake.name(), other_fake.name());
}
