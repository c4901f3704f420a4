//! A path with loss, delay and reordering: two TUN interfaces, and this process, which forwards every packet between
//! them. netem does the same in the kernel but is missing on many machines.
//!
//! Each direction is a thread with a heap of packets ordered by departure time. Times are absolute, so that lateness
//! does not accumulate. Source: Documentation/networking/tuntap.rst.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linerate_host::netlink::Netlink;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::link::LinkEnd;
use crate::sys;

/// The maximum packet size, and the virtio_net header of large packets.
const PACKET_MAX: usize = 65_536 + 64;
/// The queue limit of one direction; packets beyond it are dropped and counted.
const QUEUE_MAX: usize = 256 << 20;
/// The maximum number of packets read before due packets are written.
const BATCH: usize = 64;

/// The impairments of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Impairment {
    /// The delay of each packet.
    pub delay: Duration,
    /// The drop probability, 0 to 1, independent for each packet.
    pub loss: f64,
    /// The share that is delayed by `reorder_by` in addition, so that later packets overtake it.
    pub reorder: f64,
    /// The additional delay.
    pub reorder_by: Duration,
    /// The share of UDP packets that is sent twice.
    pub duplicate: f64,
    /// The share of UDP packets that changes places with the next one of its flow, so that each arrives after exactly one
    /// that was sent later, however busy the machine is. One without a next packet is kept.
    pub swap: f64,
    /// Only UDP packets of this length, IP header included, are sent twice or change places; 0 for all.
    pub only_bytes: usize,
}

/// The options of a relay.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RelayOptions {
    /// From the first end to the second.
    pub there: Impairment,
    /// From the second to the first.
    pub back: Impairment,
    /// The seed of losses and reordering; they depend only on it and on packet numbers.
    pub seed: u64,
    /// Forwards packets of up to 64 KiB as a whole (segmentation offload), which is several times as fast. A loss
    /// then drops up to 64 KiB at once, so use it only for delay.
    pub large_packets: bool,
}

/// The counters of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Packets forwarded.
    pub packets: u64,
    /// Their bytes, IP headers included.
    pub bytes: u64,
    /// Packets dropped at random.
    pub lost: u64,
    /// Packets delayed for reordering.
    pub reordered: u64,
    /// Packets sent twice.
    pub duplicated: u64,
    /// Packets that changed places with the next one of their flow.
    pub swapped: u64,
    /// Packets dropped because the queue was full, or refused by the interface.
    pub refused: u64,
    /// The maximum lateness of a packet.
    pub latest: Duration,
}

#[derive(Debug, Default)]
struct Counters {
    packets: AtomicU64,
    bytes: AtomicU64,
    lost: AtomicU64,
    reordered: AtomicU64,
    duplicated: AtomicU64,
    swapped: AtomicU64,
    refused: AtomicU64,
    latest_ns: AtomicU64,
}

impl Counters {
    fn add(counter: &AtomicU64, value: u64) {
        counter.fetch_add(value, Ordering::Relaxed);
    }

    fn read(&self) -> Counts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            packets: of(&self.packets),
            bytes: of(&self.bytes),
            lost: of(&self.lost),
            reordered: of(&self.reordered),
            duplicated: of(&self.duplicated),
            swapped: of(&self.swapped),
            refused: of(&self.refused),
            latest: Duration::from_nanos(of(&self.latest_ns)),
        }
    }
}

/// Two hosts connected through this process. Dropping it removes its interfaces; they also end with the process.
#[derive(Debug)]
pub struct Relay {
    there: Arc<Counters>,
    back: Arc<Counters>,
    stop: Arc<OwnedFd>,
    threads: Vec<JoinHandle<()>>,
}

impl Relay {
    /// Connects two hosts by a relay, both ends up and with their addresses.
    pub fn join(near: LinkEnd<'_>, far: LinkEnd<'_>, options: RelayOptions) -> io::Result<Self> {
        let near = Arc::new(tun(near, options.large_packets)?);
        let far = Arc::new(tun(far, options.large_packets)?);
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let mut relay = Self {
            there: Arc::default(),
            back: Arc::default(),
            stop,
            threads: Vec::new(),
        };
        let there = Arc::clone(&relay.there);
        relay.start(
            "relay-there",
            [&near, &far],
            options.there,
            options.seed,
            there,
        )?;
        // Another seed for the return direction, so that losses do not have the same packet numbers.
        let (seed, back) = (!options.seed, Arc::clone(&relay.back));
        relay.start("relay-back", [&far, &near], options.back, seed, back)?;
        Ok(relay)
    }

    fn start(
        &mut self,
        name: &str,
        [from, to]: [&Arc<OwnedFd>; 2],
        impairment: Impairment,
        seed: u64,
        counters: Arc<Counters>,
    ) -> io::Result<()> {
        let direction = Direction {
            from: Arc::clone(from),
            to: Arc::clone(to),
            stop: Arc::clone(&self.stop),
            impairment,
            random: Random(seed),
            counters,
            held: BinaryHeap::new(),
            waiting: BTreeMap::new(),
            held_bytes: 0,
            number: 0,
        };
        let thread = std::thread::Builder::new().name(name.to_owned());
        self.threads.push(thread.spawn(move || direction.run())?);
        Ok(())
    }

    /// The counters from the first end to the second.
    pub fn there(&self) -> Counts {
        self.there.read()
    }

    /// The counters of the return direction.
    pub fn back(&self) -> Counts {
        self.back.read()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // An eventfd of our own takes a 1.
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        for thread in self.threads.drain(..) {
            // A relay that panicked has printed its message.
            let _ = thread.join();
        }
    }
}

fn tun((netns, nic, address): LinkEnd<'_>, large: bool) -> io::Result<OwnedFd> {
    netns.inside(|| {
        let tun = sys::make_tun(nic.as_str(), large)?;
        let netlink = Netlink::open()?;
        netlink.add_address(nic, address)?;
        netlink.set_up(nic)?;
        Ok(tun)
    })?
}

/// SplitMix64 (Steele, Lea, Flood 2014): sufficient for choosing packets.
#[derive(Debug)]
struct Random(u64);

impl Random {
    /// True with the given probability.
    fn happens(&mut self, probability: f64) -> bool {
        if probability <= 0.0 {
            return false;
        }
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
        let share = (mixed >> 11) as f64 / (1u64 << 53) as f64;
        share < probability
    }
}

/// The ports of a UDP packet.
type Flow = [u8; 4];

/// The ports of an IPv4 packet with UDP (RFC 791, RFC 768); none of another one.
fn flow_of(packet: &[u8]) -> Option<Flow> {
    let first = packet.first()?;
    let header = usize::from(first & 0x0f) * 4;
    let is_udp = first >> 4 == 4 && packet.get(9) == Some(&17);
    let ports = packet.get(header..header + 4)?;
    is_udp.then(|| ports.try_into().ok()).flatten()
}

/// A queued packet: ordered by its time, then by its number.
type QueuedPacket = Reverse<(Instant, u64, Vec<u8>)>;

struct Direction {
    from: Arc<OwnedFd>,
    to: Arc<OwnedFd>,
    stop: Arc<OwnedFd>,
    impairment: Impairment,
    random: Random,
    counters: Arc<Counters>,
    held: BinaryHeap<QueuedPacket>,
    /// Packets that wait for the next one of their flow.
    waiting: BTreeMap<Flow, Vec<u8>>,
    held_bytes: usize,
    number: u64,
}

impl Direction {
    fn run(mut self) {
        // The default of 50 us would be added to every wait. If this fails, waits are longer by that much.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut packet = vec![0; PACKET_MAX];
        loop {
            let mut full = true;
            for _ in 0..BATCH {
                match rustix::io::read(&*self.from, &mut packet) {
                    Ok(length) => self.take(&packet[..length]),
                    Err(Errno::INTR) => {}
                    Err(_) => {
                        full = false;
                        break;
                    }
                }
            }
            self.write_due();
            if self.is_stopped(full) {
                return;
            }
        }
    }

    /// Waits until a packet arrives or is due, unless more are ready; returns whether the relay should end.
    fn is_stopped(&self, full: bool) -> bool {
        let now = Instant::now();
        let next = self.held.peek().map(|Reverse((due, _, _))| *due);
        let wait = match next {
            _ if full => Some(Duration::ZERO),
            Some(due) => Some(due.saturating_duration_since(now)),
            None => None,
        };
        let wait = wait.map(|wait| Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: wait.subsec_nanos().into(),
        });
        let mut fds = [
            PollFd::from_borrowed_fd(self.from.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.stop.as_fd(), PollFlags::IN),
        ];
        // An interrupted or failed poll only means another iteration.
        let _ = poll(&mut fds, wait.as_ref());
        let gone = PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL;
        !fds[1].revents().is_empty() || fds[0].revents().intersects(gone)
    }

    /// Drops, doubles, swaps, delays or queues a received packet.
    fn take(&mut self, packet: &[u8]) {
        let Impairment {
            loss,
            duplicate,
            swap,
            only_bytes,
            ..
        } = self.impairment;
        if self.random.happens(loss) {
            Counters::add(&self.counters.lost, 1);
            return;
        }
        let is_meant = only_bytes == 0 || packet.len() == only_bytes;
        let Some(flow) = flow_of(packet).filter(|_| is_meant) else {
            return self.pass(packet);
        };
        if let Some(earlier) = self.waiting.remove(&flow) {
            Counters::add(&self.counters.swapped, 1);
            self.pass(packet);
            self.pass(&earlier);
        } else if self.random.happens(swap) {
            self.waiting.insert(flow, packet.to_owned());
        } else {
            self.pass(packet);
            if self.random.happens(duplicate) {
                Counters::add(&self.counters.duplicated, 1);
                self.pass(packet);
            }
        }
    }

    /// Delays or queues a packet.
    fn pass(&mut self, packet: &[u8]) {
        let Impairment {
            delay,
            reorder,
            reorder_by,
            ..
        } = self.impairment;
        let mut hold = delay;
        if self.random.happens(reorder) {
            Counters::add(&self.counters.reordered, 1);
            hold += reorder_by;
        }
        if hold.is_zero() && self.held.is_empty() {
            self.write(packet);
        } else if self.held_bytes + packet.len() > QUEUE_MAX {
            Counters::add(&self.counters.refused, 1);
        } else {
            self.number += 1;
            self.held_bytes += packet.len();
            let due = Instant::now() + hold;
            self.held
                .push(Reverse((due, self.number, packet.to_owned())));
        }
    }

    fn write_due(&mut self) {
        let mut now = Instant::now();
        while let Some(Reverse((due, _, _))) = self.held.peek() {
            if *due > now {
                now = Instant::now();
                if *due > now {
                    return;
                }
            }
            let late = u64::try_from((now - *due).as_nanos()).unwrap_or(u64::MAX);
            self.counters.latest_ns.fetch_max(late, Ordering::Relaxed);
            let Some(Reverse((_, _, packet))) = self.held.pop() else {
                return;
            };
            self.held_bytes -= packet.len();
            self.write(&packet);
        }
    }

    fn write(&self, packet: &[u8]) {
        match rustix::io::write(&*self.to, packet) {
            Ok(_) => {
                Counters::add(&self.counters.bytes, packet.len() as u64);
                Counters::add(&self.counters.packets, 1);
            }
            // The interface is down, or the packet is invalid.
            Err(_) => Counters::add(&self.counters.refused, 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_that_is_lost_is_the_share_that_was_asked_for() {
        let mut random = Random(7);
        let lost = (0..100_000).filter(|_| random.happens(0.03)).count();
        assert!((2_800..3_200).contains(&lost), "{lost}");
        assert!((0..1_000).all(|_| !random.happens(0.0)));
        assert!((0..1_000).all(|_| random.happens(1.0)));
    }

    #[test]
    fn only_udp_has_a_flow() {
        let mut packet = vec![0; 28];
        (packet[0], packet[9]) = (0x45, 17);
        packet[20..24].copy_from_slice(&[1, 2, 3, 4]);
        assert_eq!(flow_of(&packet), Some([1, 2, 3, 4]));
        packet[9] = 6;
        assert_eq!(flow_of(&packet), None);
        assert_eq!(flow_of(&packet[..12]), None);
    }

    #[test]
    fn the_packet_that_is_due_first_leaves_first_and_equals_keep_their_order() {
        let now = Instant::now();
        let later = now + Duration::from_millis(1);
        let mut held: BinaryHeap<QueuedPacket> = BinaryHeap::new();
        for (due, number) in [(later, 1), (now, 2), (now, 3), (later, 4)] {
            held.push(Reverse((due, number, vec![0; 3])));
        }
        let order: Vec<u64> =
            std::iter::from_fn(|| held.pop().map(|Reverse((_, n, _))| n)).collect();
        assert_eq!(order, [2, 3, 1, 4]);
    }
}
