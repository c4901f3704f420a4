//! The kernel's account of a connection: `struct tcp_info` of include/uapi/linux/tcp.h, read by
//! offset. The structure only ever grows, and the kernel reports how much of it it knows: a field beyond
//! that length is not known, never 0.

use std::os::fd::AsFd;

use linerate_model::failover::Backoff;
use linerate_model::ids::CpuId;
use linerate_model::known::{Cause, Known};
use linerate_model::sample::TcpInfo;
use linerate_model::units::{BitRate, Bytes, Nanoseconds};
use rustix::net::sockopt;

use crate::sys::{TCP_INFO_BYTES_MAX, get_option, tcp_info};

const PATH: &str = "getsockopt(TCP_INFO)";

/// `TCPI_OPT_TIMESTAMPS`.
const OPTION_TIMESTAMPS: u8 = 1;
/// `TCPI_OPT_ECN`: ECN was negotiated.
const OPTION_ECN: u8 = 8;

/// Offsets of the fields, in bytes.
mod offset {
    pub(super) const BACKOFF: usize = 4;
    pub(super) const OPTIONS: usize = 5;
    pub(super) const RTO_US: usize = 8;
    pub(super) const SND_MSS: usize = 16;
    pub(super) const RCV_MSS: usize = 20;
    pub(super) const PMTU: usize = 60;
    pub(super) const RTT_US: usize = 68;
    pub(super) const SND_CWND: usize = 80;
    pub(super) const REORDERING: usize = 88;
    pub(super) const RCV_RTT_US: usize = 92;
    pub(super) const RCV_SPACE: usize = 96;
    pub(super) const TOTAL_RETRANS: usize = 100;
    pub(super) const BYTES_RECEIVED: usize = 128;
    pub(super) const SEGS_OUT: usize = 136;
    pub(super) const MIN_RTT_US: usize = 148;
    pub(super) const DELIVERY_RATE: usize = 160;
    pub(super) const BUSY_US: usize = 168;
    pub(super) const RWND_LIMITED_US: usize = 176;
    pub(super) const SNDBUF_LIMITED_US: usize = 184;
    pub(super) const DELIVERED_CE: usize = 196;
    pub(super) const BYTES_SENT: usize = 200;
    pub(super) const BYTES_RETRANS: usize = 208;
    pub(super) const DSACK_DUPS: usize = 216;
    pub(super) const REORD_SEEN: usize = 220;
    pub(super) const SND_WND: usize = 228;
}

/// Asks the kernel about the connection of `socket`.
pub(crate) fn read(socket: impl AsFd) -> Known<TcpInfo> {
    let mut raw = [0; TCP_INFO_BYTES_MAX];
    let length = match tcp_info(&socket, &mut raw) {
        Ok(length) => length,
        Err(errno) => return Known::unknown(Cause::Unreadable, PATH, errno.to_string()),
    };
    match parse(&raw[..length]) {
        Some(info) => Known::Value(TcpInfo {
            congestion_control: sockopt::tcp_congestion(&socket).ok(),
            ..info
        }),
        None => Known::unknown(
            Cause::Absent,
            PATH,
            format!("this kernel's tcp_info has {length} bytes, before bytes_retrans (Linux 4.19)"),
        ),
    }
}

/// The retransmission timer and the path MTU at `now`; none if the kernel does not report them.
pub(crate) fn timer_and_mtu(socket: impl AsFd, now: Nanoseconds) -> Option<(Backoff, Bytes)> {
    let mut raw = [0; TCP_INFO_BYTES_MAX];
    let length = tcp_info(&socket, &mut raw).ok()?;
    let raw = &raw[..length];
    let timer = Backoff {
        at_ns: now,
        expirations: *raw.get(offset::BACKOFF)?,
        timeout_ns: Nanoseconds::from_micros(word(raw, offset::RTO_US)?.into()),
    };
    Some((timer, Bytes::new(word(raw, offset::PMTU)?.into())))
}

/// Whether the peer's end of file has come, or the connection is gone.
pub(super) fn has_ended(socket: impl AsFd) -> bool {
    /// `TCP_ESTABLISHED` of include/net/tcp_states.h, in the first byte.
    const ESTABLISHED: u8 = 1;
    let mut raw = [0; TCP_INFO_BYTES_MAX];
    tcp_info(&socket, &mut raw).is_err() || raw[0] != ESTABLISHED
}

/// Everything but the congestion control; `None` when a field that is not optional is beyond the end.
fn parse(raw: &[u8]) -> Option<TcpInfo> {
    let rtt = word(raw, offset::RTT_US)?;
    // All ones is the kernel's "no measurement yet"; the smallest seen is then the only one it has.
    let rtt_min = Some(word(raw, offset::MIN_RTT_US)?).filter(|&us| us != u32::MAX);
    let micros = |at| double_word(raw, at).map(|us| Nanoseconds::new(us.saturating_mul(1_000)));
    let delivery_rate = double_word(raw, offset::DELIVERY_RATE)?.saturating_mul(8);
    Some(TcpInfo {
        rtt_ns: Nanoseconds::from_micros(rtt.into()),
        rtt_min_ns: Nanoseconds::from_micros(rtt_min.unwrap_or(rtt).into()),
        snd_mss_bytes: Bytes::new(word(raw, offset::SND_MSS)?.into()),
        cwnd_segments: word(raw, offset::SND_CWND)?,
        busy_ns: micros(offset::BUSY_US)?,
        rwnd_limited_ns: micros(offset::RWND_LIMITED_US)?,
        sndbuf_limited_ns: micros(offset::SNDBUF_LIMITED_US)?,
        bytes_sent: Bytes::new(double_word(raw, offset::BYTES_SENT)?),
        bytes_retransmitted: Bytes::new(double_word(raw, offset::BYTES_RETRANS)?),
        segments_out: word(raw, offset::SEGS_OUT)?.into(),
        retransmits: word(raw, offset::TOTAL_RETRANS)?,
        delivery_rate_bit_per_s: BitRate::from_bit_per_s(delivery_rate),
        snd_wnd_bytes: word(raw, offset::SND_WND).map(|window| Bytes::new(window.into())),
        congestion_control: None,
        timestamps: raw.get(offset::OPTIONS)? & OPTION_TIMESTAMPS != 0,
        ecn: Some(raw.get(offset::OPTIONS)? & OPTION_ECN != 0),
        delivered_ce: word(raw, offset::DELIVERED_CE).map(u64::from),
        reordering: word(raw, offset::REORDERING),
        reordering_seen: word(raw, offset::REORD_SEEN).map(u64::from),
        duplicate_segments: word(raw, offset::DSACK_DUPS).map(u64::from),
        rcv_mss_bytes: word(raw, offset::RCV_MSS).map(|mss| Bytes::new(mss.into())),
        // 0 is the kernel's "not measured".
        rcv_rtt_ns: word(raw, offset::RCV_RTT_US)
            .filter(|&us| us > 0)
            .map(|us| Nanoseconds::from_micros(us.into())),
        rcv_space_bytes: word(raw, offset::RCV_SPACE).map(|space| Bytes::new(space.into())),
        bytes_received: double_word(raw, offset::BYTES_RECEIVED).map(Bytes::new),
    })
}

pub(crate) fn word(raw: &[u8], at: usize) -> Option<u32> {
    let bytes = raw.get(at..at + 4)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

fn double_word(raw: &[u8], at: usize) -> Option<u64> {
    let bytes = raw.get(at..at + 8)?;
    Some(u64::from_ne_bytes(bytes.try_into().ok()?))
}

/// The CPU on which the kernel received the packets of `socket` last.
pub(crate) fn incoming_cpu(socket: impl AsFd) -> Known<CpuId> {
    const PATH: &str = "getsockopt(SO_INCOMING_CPU)";
    match sockopt::socket_incoming_cpu(socket) {
        // The kernel's -1: no packet has come in yet.
        Ok(u32::MAX) => Known::unknown(Cause::NotSaid, PATH, "no packet was received"),
        Ok(cpu) => Known::Value(CpuId(cpu)),
        Err(errno) => Known::unknown(Cause::Unreadable, PATH, errno.to_string()),
    }
}

/// The NAPI that received the packets of `socket` last.
pub(crate) fn incoming_napi(socket: impl AsFd) -> Known<u32> {
    const PATH: &str = "getsockopt(SO_INCOMING_NAPI_ID)";
    match get_option(socket, libc::SOL_SOCKET, libc::SO_INCOMING_NAPI_ID) {
        Ok(0) => Known::unknown(Cause::NotSaid, PATH, "no NAPI received a packet"),
        Ok(napi) => Known::Value(napi),
        Err(errno) => Known::unknown(Cause::Unreadable, PATH, errno.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel_reply(length: usize) -> Vec<u8> {
        let mut raw = vec![0; length];
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(place) = raw.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
            }
        };
        put(offset::OPTIONS, &[OPTION_TIMESTAMPS | 2]);
        put(offset::RTT_US, &250u32.to_ne_bytes());
        put(offset::MIN_RTT_US, &u32::MAX.to_ne_bytes());
        put(offset::DELIVERY_RATE, &1_000_000u64.to_ne_bytes());
        put(offset::BUSY_US, &7u64.to_ne_bytes());
        put(offset::SND_WND, &65_536u32.to_ne_bytes());
        raw
    }

    #[test]
    fn units_of_the_kernel_become_ours() {
        let info = parse(&kernel_reply(280)).expect("a full reply");
        assert_eq!(info.rtt_ns, Nanoseconds::from_micros(250));
        assert_eq!(info.rtt_min_ns, Nanoseconds::from_micros(250));
        assert_eq!(info.busy_ns, Nanoseconds::from_micros(7));
        assert_eq!(info.delivery_rate_bit_per_s, BitRate::from_mbit_per_s(8));
        assert_eq!(info.snd_wnd_bytes, Some(Bytes::kib(64)));
        assert!(info.timestamps);
    }

    #[test]
    fn an_old_kernels_shorter_reply_gives_no_send_window() {
        assert_eq!(parse(&kernel_reply(224)).expect("4.19").snd_wnd_bytes, None);
    }

    #[test]
    fn a_reply_cut_short_anywhere_is_unknown_and_never_panics() {
        for length in 0..offset::BYTES_RETRANS + 8 {
            assert_eq!(parse(&kernel_reply(length)), None, "{length} bytes");
        }
    }
}
