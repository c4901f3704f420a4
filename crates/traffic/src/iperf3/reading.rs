//! What the kernel reports of a sending connection at a reading: the figures that iperf3 prints for each
//! interval. By offset, as in [`crate::tcp::info`].

use std::os::fd::AsFd;

use linerate_model::units::{Bytes, Nanoseconds};

use crate::sys::{TCP_INFO_BYTES_MAX, tcp_info};
use crate::tcp::info::word;

/// A connection's figures at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// Since the start.
    pub at_ns: Nanoseconds,
    /// Segments retransmitted until then.
    pub retransmits: u64,
    /// The congestion window.
    pub cwnd_bytes: Bytes,
    /// The window that the peer grants (0 on kernels before 5.4, as iperf3 prints it).
    pub window_bytes: Bytes,
    /// The smoothed round-trip time.
    pub rtt_ns: Nanoseconds,
    /// Its variation.
    pub rtt_variation_ns: Nanoseconds,
    /// The path's MTU.
    pub path_mtu_bytes: Bytes,
    /// The number of segments by which the path is known to reorder.
    pub reordering: u32,
}

/// A UDP receiver's figures at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DatagramReading {
    /// Since the start.
    pub at_ns: Nanoseconds,
    /// How many had been sent, as far as it was known.
    pub packets: u64,
    /// Of them, how many were missing.
    pub lost: u64,
    /// The smoothed difference of transit times.
    pub jitter_ns: Nanoseconds,
}

/// Asks the kernel; none if it does not report it.
pub(super) fn read(socket: impl AsFd, at_ns: Nanoseconds) -> Option<Reading> {
    let mut raw = [0; TCP_INFO_BYTES_MAX];
    let length = tcp_info(socket, &mut raw).ok()?;
    parse(&raw[..length], at_ns)
}

fn parse(raw: &[u8], at_ns: Nanoseconds) -> Option<Reading> {
    let mss = u64::from(word(raw, 16)?);
    let micros = |at| Some(Nanoseconds::from_micros(u64::from(word(raw, at)?)));
    Some(Reading {
        at_ns,
        retransmits: u64::from(word(raw, 100)?),
        cwnd_bytes: Bytes::new(u64::from(word(raw, 80)?) * mss),
        window_bytes: Bytes::new(u64::from(word(raw, 228).unwrap_or(0))),
        rtt_ns: micros(68)?,
        rtt_variation_ns: micros(72)?,
        path_mtu_bytes: Bytes::new(u64::from(word(raw, 60)?)),
        reordering: word(raw, 88)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_cut_short_is_no_reading_and_never_panics() {
        let raw = [1; 280];
        for length in 0..104 {
            assert_eq!(parse(&raw[..length], Nanoseconds::new(0)), None);
        }
        let whole = parse(&raw, Nanoseconds::new(0)).expect("all of it");
        assert_eq!(whole.cwnd_bytes.as_u64(), 0x0101_0101 * 0x0101_0101);
        assert_eq!(whole.rtt_ns, Nanoseconds::from_micros(0x0101_0101));
    }
}
