//! UDP with iperf3: each datagram begins with its sender's time and its number, counted from 1, big endian.
//! The number has 64 bits if the client requested it.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use linerate_model::known::Known;
use linerate_model::sample::{Datagrams, Role};
use linerate_model::units::{Bytes, Nanoseconds};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::mover::{Orders, Pace, Progress, since};
use crate::TrafficError;
use crate::buffer::Buffer;
use crate::iperf3_protocol::Omitted;
use crate::tcp::info;
use crate::trial::{DataThread, FlowEnd, Start, ThreadFlow, WorkResult};

/// The header of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// When it was sent, by its sender's clock.
    pub sent: Duration,
    /// Its number, from 1.
    pub number: u64,
}

impl Header {
    /// Its length.
    pub const fn length(wide: bool) -> usize {
        if wide { 16 } else { 12 }
    }

    /// The header of a datagram; nothing of one that is too short.
    pub fn read(bytes: &[u8], wide: bool) -> Option<Self> {
        let word = |at: usize| -> Option<u32> {
            let bytes = bytes.get(at..at + 4)?;
            Some(u32::from_be_bytes(bytes.try_into().ok()?))
        };
        let sent =
            Duration::from_secs(u64::from(word(0)?)) + Duration::from_micros(u64::from(word(4)?));
        let number = if wide {
            u64::from(word(8)?) << 32 | u64::from(word(12)?)
        } else {
            u64::from(word(8)?)
        };
        Some(Self { sent, number })
    }

    /// Writes it to the beginning of `bytes`, which are long enough.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "seconds of a test, and a number whose upper half goes on its own"
    )]
    pub fn write(self, bytes: &mut [u8], wide: bool) {
        bytes[..4].copy_from_slice(&(self.sent.as_secs() as u32).to_be_bytes());
        bytes[4..8].copy_from_slice(&self.sent.subsec_micros().to_be_bytes());
        if wide {
            bytes[8..16].copy_from_slice(&self.number.to_be_bytes());
        } else {
            bytes[8..12].copy_from_slice(&(self.number as u32).to_be_bytes());
        }
    }
}

/// How far back a number can be recognized as late or duplicate.
const WINDOW: u64 = 4_096;

/// Statistics that a receiver derives from the numbers and times of its datagrams.
#[derive(Debug, Clone)]
pub struct Account {
    arrived: u64,
    highest: u64,
    lost: u64,
    reordered: u64,
    duplicated: u64,
    jitter_ns: f64,
    transit_ns: Option<i128>,
    /// A bit for each of the last [`WINDOW`] numbers: whether it has arrived.
    seen: [u64; 64],
}

impl Default for Account {
    fn default() -> Self {
        Self {
            arrived: 0,
            highest: 0,
            lost: 0,
            reordered: 0,
            duplicated: 0,
            jitter_ns: 0.0,
            transit_ns: None,
            seen: [0; 64],
        }
    }
}

impl Account {
    /// Takes a datagram that arrived at `now`, of the receiver's clock.
    pub fn take(&mut self, header: Header, now: Duration) {
        self.arrived += 1;
        let number = header.number;
        if number > self.highest {
            let missing = number - self.highest - 1;
            self.lost = self.lost.saturating_add(missing);
            for skipped in (self.highest + 1..number).rev().take(64 * 64) {
                self.mark(skipped, false);
            }
            self.mark(number, true);
            self.highest = number;
        } else if self.highest - number < WINDOW && self.is_marked(number) {
            self.duplicated += 1;
        } else {
            self.mark_if_near(number);
            self.reordered += 1;
            self.lost = self.lost.saturating_sub(1);
        }
        self.time(header.sent, now);
    }

    /// RFC 3550, 6.4.1, in floating point.
    #[expect(clippy::cast_precision_loss, reason = "a difference of times, in ns")]
    fn time(&mut self, sent: Duration, now: Duration) {
        let ns = |time: Duration| i128::try_from(time.as_nanos()).unwrap_or(i128::MAX);
        let transit = ns(now) - ns(sent);
        if let Some(before) = self.transit_ns.replace(transit) {
            let difference = transit.abs_diff(before) as f64;
            self.jitter_ns += (difference - self.jitter_ns) / 16.0;
        }
    }

    fn place(number: u64) -> (usize, u64) {
        let place = number % WINDOW;
        (usize::try_from(place / 64).unwrap_or(0), 1 << (place % 64))
    }

    fn mark(&mut self, number: u64, arrived: bool) {
        let (word, bit) = Self::place(number);
        if arrived {
            self.seen[word] |= bit;
        } else {
            self.seen[word] &= !bit;
        }
    }

    fn mark_if_near(&mut self, number: u64) {
        if self.highest - number < WINDOW {
            self.mark(number, true);
        }
    }

    fn is_marked(&self, number: u64) -> bool {
        let (word, bit) = Self::place(number);
        self.seen[word] & bit != 0
    }

    /// Reports the progress.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a time of at most a test's length"
    )]
    fn show(&self, progress: &Progress) {
        progress.packets.store(self.highest, Ordering::Relaxed);
        progress.lost.store(self.lost, Ordering::Relaxed);
        let jitter_ns = self.jitter_ns as u64;
        progress.jitter_ns.store(jitter_ns, Ordering::Relaxed);
    }

    /// What is lost, and how many were sent as far as it is known.
    fn so_far(&self) -> Omitted {
        Omitted {
            errors: self.lost,
            packets: self.highest,
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a time of at most a test's length"
    )]
    /// As it is recorded.
    pub fn record(&self) -> Datagrams {
        Datagrams {
            count: self.arrived,
            lost: self.lost,
            reordered: self.reordered,
            duplicated: self.duplicated,
            jitter_ns: Nanoseconds::new(self.jitter_ns as u64),
            delay: None,
            socket_drops: None,
            on_time: None,
            batch: None,
            probe: None,
            gaps: None,
        }
    }
}

/// What runs on each data thread of a UDP test.
pub(super) fn udp(
    data_thread: &mut DataThread<'_>,
    orders: &Orders,
) -> Result<Option<WorkResult>, TrafficError> {
    let size = match data_thread.role {
        Role::Sender => data_thread.spec.buffer_bytes,
        // The other end may send longer datagrams than announced.
        Role::Receiver => Bytes::kib(64),
    };
    let mut buffer = Buffer::new(size, data_thread.memory())?;
    let Some(start) = data_thread.ready()? else {
        return Ok(None);
    };
    let one = data_thread.flows[0];
    let (bytes, datagrams) = match data_thread.role {
        Role::Sender => send_datagrams(data_thread, one, buffer.bytes(), orders, start)?,
        Role::Receiver => receive_datagrams(data_thread, one, buffer.bytes(), orders, start)?,
    };
    let found = FlowEnd {
        at: Instant::now().duration_since(start.at),
        bytes,
        incoming_cpu: info::incoming_cpu(&one.flow.socket),
        incoming_napi: info::incoming_napi(&one.flow.socket),
        tcp: Known::default(),
        datagrams: Some(datagrams),
        ..FlowEnd::default()
    };
    Ok(Some(WorkResult {
        flows: vec![found],
        operations: None,
        memory_node: buffer.node(),
    }))
}

/// Notes what a flow has when the time that does not count is over.
fn note_omitted(orders: &Orders, one: ThreadFlow<'_>, omitted: Omitted) {
    let mut all = orders
        .omitted
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    all.push((one.flow.number, omitted));
}

fn send_datagrams(
    data_thread: &DataThread<'_>,
    one: ThreadFlow<'_>,
    buffer: &mut [u8],
    orders: &Orders,
    start: Start,
) -> Result<(u64, Datagrams), TrafficError> {
    let pace = orders.rate.map(|rate| Pace::new(rate, start.at));
    let mut omitting = !orders.omit.is_zero();
    let (mut bytes, mut sent) = (0u64, 0u64);
    while !data_thread.shared_state.is_stopped() {
        if pace.is_some_and(|pace| !pace.wait(bytes, data_thread.shared_state)) {
            continue;
        }
        let now = since(start);
        if omitting && now >= orders.omit {
            omitting = false;
            let packets = sent;
            note_omitted(orders, one, Omitted { errors: 0, packets });
        }
        let header = Header {
            sent: now,
            number: sent + 1,
        };
        header.write(buffer, orders.wide);
        match send(&one.flow.socket, buffer, SendFlags::NOSIGNAL) {
            Ok(count) => {
                sent += 1;
                bytes += count as u64;
                one.counter.set_bytes(bytes);
            }
            // Nothing reads there yet, or any more; the control connection shows which.
            Err(Errno::INTR | Errno::CONNREFUSED | Errno::NOBUFS | Errno::AGAIN) => {}
            Err(errno) => return Err(TrafficError::of_errno("send a datagram", errno)),
        }
    }
    let record = Datagrams {
        count: sent,
        ..Datagrams::default()
    };
    Ok((bytes, record))
}

fn receive_datagrams(
    data_thread: &DataThread<'_>,
    one: ThreadFlow<'_>,
    buffer: &mut [u8],
    orders: &Orders,
    start: Start,
) -> Result<(u64, Datagrams), TrafficError> {
    let mut omitting = !orders.omit.is_zero();
    let progress = orders.progress.get(one.flow.number as usize);
    let mut account = Account::default();
    let mut bytes = 0u64;
    loop {
        match recv(&one.flow.socket, &mut *buffer, RecvFlags::empty()) {
            // What the kernel held is read, and the socket is shut down.
            Ok((0, _)) if data_thread.shared_state.is_stopped() => {
                return Ok((bytes, account.record()));
            }
            Ok((count, _)) => {
                let now = since(start);
                if omitting && now >= orders.omit {
                    omitting = false;
                    note_omitted(orders, one, account.so_far());
                }
                let Some(header) = Header::read(&buffer[..count], orders.wide) else {
                    // A late greeting: not of the test's data.
                    continue;
                };
                account.take(header, now);
                if let Some(progress) = progress {
                    account.show(progress);
                }
                bytes += count as u64;
                one.counter.set_bytes(bytes);
            }
            Err(Errno::INTR | Errno::CONNREFUSED) => {}
            Err(errno) => return Err(TrafficError::of_errno("receive a datagram", errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn account(numbers: &[u64]) -> Datagrams {
        let mut account = Account::default();
        for &number in numbers {
            let sent = Duration::ZERO;
            account.take(Header { sent, number }, sent);
        }
        account.record()
    }

    #[test]
    fn lost_late_and_doubled_datagrams_are_told_apart() {
        let told = account(&[1, 2, 5, 3, 3, 6, 1]);
        assert_eq!((told.count, told.lost), (7, 1));
        assert_eq!((told.reordered, told.duplicated), (1, 2));
    }

    #[test]
    fn a_number_of_any_size_is_taken_in_no_time() {
        let told = account(&[u64::MAX, 1, 0]);
        assert_eq!((told.count, told.reordered), (3, 2));
    }

    #[test]
    fn a_steady_stream_has_no_jitter_and_a_late_one_a_sixteenth_of_its_lateness() {
        let mut account = Account::default();
        let ms = Duration::from_millis;
        for (number, now) in [(1, 5), (2, 6), (3, 7)] {
            account.take(
                Header {
                    sent: ms(number),
                    number,
                },
                ms(now + 90),
            );
        }
        assert_eq!(account.record().jitter_ns, Nanoseconds::new(0));
        account.take(
            Header {
                sent: ms(4),
                number: 4,
            },
            ms(98 + 16),
        );
        assert_eq!(account.record().jitter_ns, Nanoseconds::from_millis(1));
    }

    proptest! {
        #[test]
        fn a_header_reads_back(secs: u32, micros in 0u32..1_000_000, number: u64, wide: bool) {
            let number = if wide { number } else { number & u64::from(u32::MAX) };
            let sent = Duration::new(u64::from(secs), micros * 1_000);
            let header = Header { sent, number };
            let mut bytes = [0; 16];
            header.write(&mut bytes, wide);
            prop_assert_eq!(Header::read(&bytes[..Header::length(wide)], wide), Some(header));
            prop_assert_eq!(Header::read(&bytes[..Header::length(wide) - 1], wide), None);
        }

        #[test]
        fn what_arrives_in_any_order_within_the_window_is_all_there(
            order in Just((1u64..=500).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let told = account(&order);
            prop_assert_eq!((told.lost, told.duplicated, told.count), (0, 0, 500));
        }
    }
}
