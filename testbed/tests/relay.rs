//! The relay: its delay, its drop rate, and that it does not corrupt a stream. This program is its own test and
//! stage: the first argument selects the role.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test's main talks"
)]

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::{Duration, Instant};

use linerate_testbed::{Impairment, Netns, Obstacle, Relay, RelayOptions, Stage, tie_to_parent};

const NEAR: &str = "10.79.0.1";
const FAR: &str = "10.79.0.2";
/// A timeout for a hanging test: normal runs are far below it.
const HANG_GUARD: Duration = Duration::from_secs(60);

fn main() {
    if std::env::args().nth(1).as_deref() == Some("stage") {
        return all_tests();
    }
    let mut stage = Command::new(std::env::current_exe().expect("this program has a path"));
    stage.arg("stage");
    tie_to_parent(&mut stage);
    let status = stage.status().expect("this program runs again");
    assert!(status.success(), "a test failed");
}

type Test = (&'static str, fn(&Hosts));

fn all_tests() {
    let stage = match Stage::enter() {
        Ok(stage) => stage,
        Err(error) if error.obstacle() != Obstacle::Failed => {
            eprintln!("SKIP: {error}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    if let Err(error) = fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/net/tun")
    {
        eprintln!("SKIP: no relay: /dev/net/tun: {error}");
        return;
    }
    let tests: [Test; 5] = [
        (
            "the_round_trip_is_the_delay_of_both_ways",
            the_round_trip_is_the_delay_of_both_ways,
        ),
        (
            "what_the_relay_drops_is_what_the_receiver_misses",
            what_the_relay_drops_is_what_the_receiver_misses,
        ),
        (
            "packets_that_are_held_longer_are_overtaken",
            packets_that_are_held_longer_are_overtaken,
        ),
        (
            "copies_and_swapped_packets_arrive_exactly_as_counted",
            copies_and_swapped_packets_arrive_exactly_as_counted,
        ),
        (
            "a_stream_passes_whole_in_packets_of_either_size",
            a_stream_passes_whole_in_packets_of_either_size,
        ),
    ];
    for (number, (name, test)) in tests.into_iter().enumerate() {
        println!("test {name} ...");
        test(&Hosts::new(&stage, number));
    }
    println!("ok");
}

struct Hosts {
    near: Netns,
    far: Netns,
}

impl Hosts {
    fn new(stage: &Stage, number: usize) -> Self {
        let host = |end: &str| {
            let host = stage
                .add_host(&format!("{end}{number}"))
                .expect("a namespace");
            // IPv6's own packets would be counted too. A kernel without IPv6 sends none.
            let quiet = || fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            let _ = host.inside(quiet).expect("a thread in the namespace");
            host
        };
        Self {
            near: host("near"),
            far: host("far"),
        }
    }

    fn relay(&self, options: RelayOptions) -> Relay {
        let nic = |text: &str| text.parse().expect("an interface's name");
        Relay::join(
            (&self.near, &nic("near0"), &format!("{NEAR}/24")),
            (&self.far, &nic("far0"), &format!("{FAR}/24")),
            options,
        )
        .expect("a relay")
    }

    fn sockets(&self) -> (UdpSocket, UdpSocket) {
        let socket = |host: &Netns, own: &str, other: &str| {
            let socket = host
                .inside(|| UdpSocket::bind((own, 9_000)))
                .expect("a thread in the namespace")
                .expect("a free port");
            socket
                .connect((other, 9_000))
                .expect("an address on the link");
            socket.set_read_timeout(Some(HANG_GUARD)).expect("a time");
            socket
        };
        (socket(&self.near, NEAR, FAR), socket(&self.far, FAR, NEAR))
    }
}

/// The minimum and maximum of several round trips.
fn round_trips(hosts: &Hosts) -> (Duration, Duration) {
    let (near, far) = hosts.sockets();
    let mut byte = [0];
    let times: Vec<Duration> = (0..30)
        .map(|_| {
            let start = Instant::now();
            near.send(&[1]).expect("sent");
            far.recv(&mut byte).expect("it arrives");
            far.send(&[2]).expect("sent");
            near.recv(&mut byte).expect("the answer arrives");
            start.elapsed()
        })
        .collect();
    let least = times.iter().min().expect("thirty times");
    let most = times.iter().max().expect("thirty times");
    (*least, *most)
}

fn the_round_trip_is_the_delay_of_both_ways(hosts: &Hosts) {
    let relay = hosts.relay(RelayOptions::default());
    let (_, bare) = round_trips(hosts);
    drop(relay);
    let delay = |millis| Impairment {
        delay: Duration::from_millis(millis),
        ..Impairment::default()
    };
    let relay = hosts.relay(RelayOptions {
        there: delay(7),
        back: delay(5),
        ..RelayOptions::default()
    });
    let (least, _) = round_trips(hosts);
    let asked = Duration::from_millis(12);
    let late = relay.there().latest + relay.back().latest;
    assert!(least >= asked, "{least:?} is less than the delay");
    assert!(
        least <= asked + late + bare,
        "{least:?}, the relay was late by {late:?}, bare {bare:?}"
    );
}

fn what_the_relay_drops_is_what_the_receiver_misses(hosts: &Hosts) {
    let there = Impairment {
        loss: 0.05,
        ..Impairment::default()
    };
    let relay = hosts.relay(RelayOptions {
        there,
        seed: 11,
        ..RelayOptions::default()
    });
    let (near, far) = hosts.sockets();
    let mut arrived = vec![false; 2_000];
    for number in 0..arrived.len() {
        let sent = u32::try_from(number).expect("small").to_be_bytes();
        near.send(&sent).expect("sent");
        // One at a time, so that only the relay drops packets.
        let handled = || relay.there().packets + relay.there().lost;
        while handled() <= number as u64 {
            std::thread::yield_now();
        }
        if relay.there().packets > arrived.iter().filter(|seen| **seen).count() as u64 {
            let mut word = [0; 4];
            assert_eq!(far.recv(&mut word).expect("it was handed on"), 4);
            arrived[u32::from_be_bytes(word) as usize] = true;
        }
    }
    let missed = arrived.iter().filter(|seen| !**seen).count() as u64;
    assert_eq!(missed, relay.there().lost);
    assert!((60..140).contains(&missed), "{missed} of 2000 at 5 %");
    assert_eq!(relay.there().refused, 0);
}

fn packets_that_are_held_longer_are_overtaken(hosts: &Hosts) {
    let there = Impairment {
        reorder: 0.2,
        reorder_by: Duration::from_millis(30),
        ..Impairment::default()
    };
    let relay = hosts.relay(RelayOptions {
        there,
        seed: 3,
        ..RelayOptions::default()
    });
    let (near, far) = hosts.sockets();
    for number in 0..100u8 {
        near.send(&[number]).expect("sent");
    }
    let mut byte = [0];
    let order: Vec<u8> = (0..100)
        .map(|_| {
            far.recv(&mut byte).expect("none is lost");
            byte[0]
        })
        .collect();
    let late = order.windows(2).filter(|two| two[1] < two[0]).count();
    assert!(relay.there().reordered > 0 && late > 0, "{order:?}");
    assert_eq!(relay.there().lost, 0);
}

fn copies_and_swapped_packets_arrive_exactly_as_counted(hosts: &Hosts) {
    let there = Impairment {
        duplicate: 0.1,
        swap: 0.1,
        ..Impairment::default()
    };
    let relay = hosts.relay(RelayOptions {
        there,
        seed: 5,
        ..RelayOptions::default()
    });
    let (near, far) = hosts.sockets();
    let (mut seen, mut highest) = ([false; 200], 0);
    let (mut copies, mut overtaken) = (0, 0);
    for number in 0..200u8 {
        near.send(&[number]).expect("sent");
    }
    let mut byte = [0];
    // The last one may wait for a next packet that never comes.
    while (0..199).any(|number| !seen[number]) {
        far.recv(&mut byte).expect("none is lost");
        let number = usize::from(byte[0]);
        copies += u64::from(seen[number]);
        overtaken += u64::from(!seen[number] && number < highest);
        seen[number] = true;
        highest = highest.max(number);
    }
    while copies < relay.there().duplicated {
        far.recv(&mut byte).expect("the last copies");
        copies += u64::from(seen[usize::from(byte[0])]);
        seen[usize::from(byte[0])] = true;
    }
    let counts = relay.there();
    assert_eq!((copies, overtaken), (counts.duplicated, counts.swapped));
    assert!(copies > 0 && overtaken > 0, "{counts:?}");
}

fn a_stream_passes_whole_in_packets_of_either_size(hosts: &Hosts) {
    for large_packets in [false, true] {
        let relay = hosts.relay(RelayOptions {
            large_packets,
            ..RelayOptions::default()
        });
        let listener = hosts
            .far
            .inside(|| TcpListener::bind((FAR, 0)))
            .expect("a thread");
        let listener = listener.expect("a free port");
        let target = listener.local_addr().expect("bound");
        let total: u32 = 64 << 20;
        let block: Vec<u8> = (0..=255).cycle().take(1 << 20).collect();
        let start = Instant::now();
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let stream = hosts
                    .near
                    .inside(|| TcpStream::connect(target))
                    .expect("a thread");
                let mut stream = stream.expect("a way there");
                (0..total >> 20).for_each(|_| stream.write_all(&block).expect("sent"));
            });
            let (mut stream, _) = listener.accept().expect("it connects");
            let mut received = vec![0; block.len()];
            for _ in 0..total >> 20 {
                stream.read_exact(&mut received).expect("it all arrives");
                assert!(received == block, "other bytes than were sent");
            }
            sender.join().expect("no panic");
        });
        let rate = f64::from(total) * 8e-9 / start.elapsed().as_secs_f64();
        println!(
            "large packets {large_packets}: {rate:.2} Gb/s, {:?}",
            relay.there()
        );
        assert!(relay.there().bytes >= u64::from(total));
    }
}
