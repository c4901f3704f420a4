//! Events on descriptors: completions, and device events.

use std::os::fd::BorrowedFd;

use linerate_verbs::{Event, Opcode, Receive, Receives, Send, Sends, Status, Work};
use linerate_verbs_fake::{Fault, MTU};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::ends::{End, Plan, device, pair};

/// Waits until a descriptor is readable.
fn wait(fd: BorrowedFd<'_>) {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    while poll(&mut fds, None) != Ok(1) {}
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())) == Ok(1)
}

/// The next completion, waited for by events as one does: arm, look once more, wait.
fn told_end(end: &End) -> (u64, Result<Opcode, Status>) {
    let channel = end.queue.channel().expect("it tells");
    let mut found = [linerate_verbs::Completion::default()];
    loop {
        end.queue.arm().expect("an armed queue");
        if end.queue.poll(&mut found).expect("a poll") == 1 {
            return (found[0].id(), found[0].status().map(|()| found[0].opcode()));
        }
        wait(channel);
        assert_eq!(end.queue.take_event(), Ok(Event::Notified));
    }
}

fn with_events() -> Plan {
    Plan {
        tells: true,
        ..Plan::default()
    }
}

#[test]
fn two_threads_that_wait_for_events_pass_a_message_to_and_fro() {
    const ROUNDS: u64 = 200;
    let (fake, device) = device();
    let (tell, told) = std::sync::mpsc::channel();
    let (tell_back, told_back) = std::sync::mpsc::channel();
    let far_device = device.clone();
    let far = std::thread::spawn(move || {
        let end = End::new(&far_device, with_events());
        tell.send(end.queue_pair.number()).expect("it waits");
        end.connect(told_back.recv().expect("a number"));
        play(&end, ROUNDS, false, &mut || tell.send(0).expect("it waits"));
    });
    let end = End::new(&device, with_events());
    let number = told.recv().expect("a number");
    tell_back.send(end.queue_pair.number()).expect("it waits");
    end.connect(number);
    told.recv().expect("it is ready");
    play(&end, ROUNDS, true, &mut || {});
    far.join().expect("the far end");
    let message = u64::from_ne_bytes(std::array::from_fn(|at| end.region.look(at)));
    assert_eq!(message, 2 * ROUNDS - 1);
    drop((end, device));
    assert_eq!(fake.alive(), []);
}

/// One end: counts the message up and sends it back.
fn play(end: &End, rounds: u64, begins: bool, ready: &mut dyn FnMut()) {
    let mut rooms = Receives::new(&[Receive {
        id: 1,
        local: end.region.slice(0..8),
    }]);
    let mut sends = Sends::new(&[Send {
        id: 2,
        local: end.region.slice(0..8),
        work: Work::Send,
        signaled: true,
        inline: false,
    }]);
    rooms.post(&end.queue_pair, 0, 1).expect("a post");
    ready();
    for round in 0..rounds {
        if !begins || round > 0 {
            assert_eq!(told_end(end), (1, Ok(Opcode::Received)));
            let number = u64::from_ne_bytes(std::array::from_fn(|at| end.region.look(at)));
            assert_eq!(number, 2 * round - u64::from(begins));
            end.region.write(0, &(number + 1).to_ne_bytes());
            rooms.post(&end.queue_pair, 0, 1).expect("a post");
        }
        sends.post(&end.queue_pair, 0, 1).expect("a post");
        assert_eq!(told_end(end), (2, Ok(Opcode::Sent)));
    }
    if begins {
        assert_eq!(told_end(end), (1, Ok(Opcode::Received)));
    }
}

#[test]
fn a_queue_tells_once_for_each_time_it_is_armed() {
    let (_fake, device) = device();
    let (near, far) = pair(&device, with_events());
    let channel = near.queue.channel().expect("it tells");
    let mut sends = Sends::new(
        &[Send {
            id: 0,
            local: near.region.slice(0..8),
            work: Work::Write(far.region.remote(0)),
            signaled: true,
            inline: false,
        }; 3],
    );
    assert_eq!(near.queue.take_event(), Ok(Event::Nothing));
    sends.post(&near.queue_pair, 0, 1).expect("a post");
    near.ends(1);
    assert!(!is_readable(channel), "nobody asked");
    near.queue.arm().expect("an armed queue");
    sends.post(&near.queue_pair, 0, 3).expect("a post");
    near.ends(3);
    wait(channel);
    assert_eq!(near.queue.take_event(), Ok(Event::Notified));
    assert!(!is_readable(channel), "it was asked for one");
    assert_eq!(near.queue.take_event(), Ok(Event::Nothing));
    let silent = End::new(&device, Plan::default());
    assert!(silent.queue.channel().is_none());
    assert_eq!(silent.queue.take_event(), Ok(Event::Nothing));
}

#[test]
fn a_queue_that_is_dropped_takes_what_it_told_with_it() {
    let (fake, device) = device();
    let (near, far) = pair(&device, with_events());
    near.queue.arm().expect("an armed queue");
    let mut sends = Sends::new(&[Send {
        id: 0,
        local: near.region.slice(0..8),
        work: Work::Write(far.region.remote(0)),
        signaled: true,
        inline: false,
    }]);
    sends.post(&near.queue_pair, 0, 1).expect("a post");
    wait(near.queue.channel().expect("it tells"));
    drop(sends);
    drop((near, far, device));
    assert_eq!(fake.alive(), []);
}

#[test]
fn a_port_that_goes_down_is_told_and_seen() {
    let (fake, device) = device();
    let up = device.port(1).expect("a port");
    assert!(up.is_active && up.is_ethernet);
    assert_eq!((up.mtu, up.state), (MTU, 4));
    assert!(!is_readable(device.events()));
    assert_eq!(device.next_event(), None);
    fake.set(Fault::PortDown, 1);
    wait(device.events());
    let event = device.next_event().expect("it is told");
    assert!(event.is_fatal_for(1) && !event.is_fatal_for(2));
    assert_eq!((event.kind, event.what.as_str()), (10, "port error"));
    assert_eq!(event.port, Some(1));
    assert!(!device.port(1).expect("a port").is_active);
    fake.set(Fault::PortDown, 0);
    let event = device.next_event().expect("it is told");
    assert!(!event.is_fatal_for(1));
    assert_eq!(event.port, Some(1));
    assert_eq!(device.next_event(), None);
    let refused = device.port(2).expect_err("there is one");
    assert!(refused.to_string().contains("cannot query the port on"));
    drop(device);
    assert_eq!(fake.alive(), []);
}

#[test]
fn a_device_that_goes_refuses_everything_and_gets_everything_back() {
    let (fake, device) = device();
    let (near, far) = pair(&device, Plan::default());
    let mut sends = Sends::new(&[Send {
        id: 0,
        local: near.region.slice(0..8),
        work: Work::Write(far.region.remote(0)),
        signaled: true,
        inline: false,
    }]);
    fake.set(Fault::Gone, 1);
    let event = device.next_event().expect("it is told");
    assert!(event.is_fatal_for(1));
    assert_eq!((event.kind, event.port), (8, None));
    assert_eq!(sends.post(&near.queue_pair, 0, 1), Err((0, Errno::IO)));
    let refused = device.attributes().expect_err("it is gone");
    let said = refused.to_string();
    assert!(said.contains("the device was removed or reset"), "{said}");
    assert!(device.gids().is_err() && device.port(1).is_err());
    drop(sends);
    drop((near, far, device));
    assert_eq!(fake.alive(), []);
}

#[test]
fn a_refused_access_is_told_to_the_end_that_refused() {
    let (_fake, device) = device();
    let (near, far) = pair(&device, Plan::default());
    let mut at = far.region.remote(0);
    at.key = 1;
    let mut sends = Sends::new(&[Send {
        id: 3,
        local: near.region.slice(0..8),
        work: Work::Write(at),
        signaled: false,
        inline: false,
    }]);
    sends.post(&near.queue_pair, 0, 1).expect("a post");
    assert_eq!(near.end(), (3, Err(Status::RemoteAccess)));
    wait(device.events());
    let event = device.next_event().expect("it is told");
    assert!(!event.is_fatal_for(1), "the device is well");
    assert_eq!((event.kind, event.port), (3, None));
}
