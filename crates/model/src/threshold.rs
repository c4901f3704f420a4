//! All thresholds for finding limits, in one place; each is printed beside the value.

use crate::units::{Bytes, Nanoseconds, Ratio};

/// At or above this share of a shaper's ceiling, the shaper is the limit.
pub const SHAPER_SHARE: Ratio = Ratio::new(0.85);
/// At or above this share of the link's goodput, the link is the limit.
pub const WIRE_SHARE: Ratio = Ratio::new(0.90);
/// At or above this share of the PCIe bandwidth, PCIe is the limit: packet headers and descriptors use the rest.
pub const PCIE_SHARE: Ratio = Ratio::new(0.80);
/// Above this share the ceiling is wrong and explains nothing (a shaper's burst may exceed it a little).
pub const CEILING_WRONG_SHARE: Ratio = Ratio::new(1.05);
/// A thread that is running or runnable for at least this share of the time lacks CPU; so does everything on a CPU
/// that is this busy.
pub const CPU_SHARE: Ratio = Ratio::new(0.90);
/// A thread that waited for a CPU for at least this share, and longer than for anything else, lacks CPU too.
pub const WAITED_SHARE: Ratio = Ratio::new(0.20);
/// Two ends' threads that together run on one CPU for at least this share fill it by themselves.
pub const SHARED_CPU_SHARE: Ratio = Ratio::new(0.70);
/// At or above this busy share of all CPUs, the machine is the limit.
pub const MACHINE_SHARE: Ratio = Ratio::new(0.95);
/// A flow that waited for a buffer or window for more than this share of its busy time is limited by it: linerate's
/// own threshold for `tcpi_rwnd_limited` and `tcpi_sndbuf_limited` (include/uapi/linux/tcp.h).
pub const LIMITED_SHARE: Ratio = Ratio::new(0.20);
/// At or above this RTT, it is the path's, not the hosts' processing time ...
pub const PATH_RTT: Nanoseconds = Nanoseconds::from_micros(500);
/// ... if the smoothed RTT is at most this multiple of the minimum: no queueing delay.
pub const QUEUE_FACTOR: f64 = 1.5;
/// A buffer of this multiple of a flow's data per RTT is not the limit.
pub const AMPLE_FACTOR: f64 = 8.0;
/// A thread whose sleeps last this many RTTs does not wait for its connection.
pub const LONG_SLEEP_FACTOR: f64 = 4.0;
/// A reader that notes nothing for this many intervals was away, if that is also many RTTs.
pub const PAUSE_INTERVALS: f64 = 2.0;
/// A buffer is full if a flow's data per RTT is at least this share of it: the kernel counts its own overhead as part
/// of the buffer.
pub const FILLED_SHARE: Ratio = Ratio::new(0.40);
/// The peer's window is full at this share of it: the kernel keeps it at twice the data per RTT while its buffer may
/// grow (tcp_rcv_space_adjust).
pub const FILLED_WINDOW_SHARE: Ratio = Ratio::new(0.80);
/// A congestion window above this multiple of the data per RTT is not the limit.
pub const WINDOW_FACTOR: u64 = 4;
/// Ends whose CPU demand differs by less than this are treated as equal.
pub const CPU_MARGIN: f64 = 0.10;
/// A program that slept for at least this share, with an ample buffer full or empty, is the limit.
pub const SLEPT_SHARE: Ratio = Ratio::new(0.20);
/// Programs other than linerate that have this share of a host's CPU time make a comparison inconclusive.
pub const OTHER_WORK: Ratio = Ratio::new(0.30);
/// A link that went down is the limit if nothing was received for at least this share of the trial: linerate's own
/// threshold.
pub const STALLED_SHARE: Ratio = Ratio::new(0.05);
/// Above this share of lost bytes, loss is the limit (rule 58: 0.1 % within a site).
pub const LOSS_SHARE: Ratio = Ratio::new(0.001);
/// A requested rate is reached from this share on.
pub const RATE_KEPT: Ratio = Ratio::new(0.99);
/// A place of packet drops is the limit if its drops may be at least this share of the loss.
pub const EXPLAINED_SHARE: Ratio = Ratio::new(0.50);
/// The maximum size of a dropped packet: one that only the NIC segments.
pub const DROPPED_MAX: Bytes = Bytes::kib(64);
/// A flow that had data to send for less than this share of the time waited for its program, ...
pub const PROGRAM_SHARE: Ratio = Ratio::new(0.80);
/// ... if that program was on a CPU for less than this share: one that computes all the time is slow, not idle.
pub const PROGRAM_CPU_SHARE: Ratio = Ratio::new(0.50);
/// A machine busier than this may have kept a thread waiting for a CPU: then neither the program nor the congestion
/// control is reported as the limit.
pub const CROWDED_SHARE: Ratio = Ratio::new(0.90);
/// A flow that had data to send for at least this share of the time, and waited for nothing else, waited for its
/// congestion control.
pub const CONGESTION_SHARE: Ratio = Ratio::new(0.95);
/// Verbs: at or above this share of depth x size / latency of a single message, the depth is the limit.
pub const DEPTH_SHARE: Ratio = Ratio::new(0.85);
/// Queue pairs that had nothing in flight before at least this share of their messages were not kept full.
pub const DRY_SHARE: Ratio = Ratio::new(0.50);
/// A polling thread with at most this share of time in empty polls always has work ...
pub const POLLED_SHARE: Ratio = Ratio::new(0.10);
/// ... with this assumed duration of a poll: an upper bound.
pub const POLL_MOST: Nanoseconds = Nanoseconds::from_micros(1);
/// A quota that kept the program from running for at least this share of the time is what it waited for.
pub const THROTTLED_SHARE: Ratio = Ratio::new(0.10);
/// `--why`: a rate with an intervention is higher if it is this multiple of that without it, times the noise, ...
pub const WHY_CHANGE: f64 = 1.25;
/// ... and not higher up to this multiple, ...
pub const WHY_SAME: f64 = 1.12;
/// ... if the trials without it differ by this multiple at most.
pub const WHY_NOISE: f64 = 1.3;
/// The trials without an intervention must reach the measured rate within this factor.
pub const WHY_LIKE: f64 = 1.5;
/// A trial with more connections or datagrams whose threads want a CPU for this share of the time may have been held up.
pub const WHY_BUSY: Ratio = Ratio::new(0.85);
/// On a crowded machine it may have been held up if they waited for a CPU for this share.
pub const WHY_WAITED: Ratio = Ratio::new(0.10);
/// A thread that was running or runnable for less than this share does not lack CPU.
pub const WHY_IDLE: Ratio = Ratio::new(0.70);
/// A receive window that limited for less than this share was never closed by the reader.
pub const WHY_CLOSED: Ratio = Ratio::new(0.01);
/// A loss is the limit if the congestion control can carry at most this multiple of the rate with it.
pub const LOSS_FACTOR: f64 = 2.0;
/// Losses that come together leave a connection more than this multiple of what losses at random do.
pub const LOSS_FACTOR_SEEN: f64 = 4.0;
/// So few packets that a sender's own host refuses in a trial do not hold its congestion window down.
pub const REFUSED_FEW: u64 = 2;
/// Retransmissions of which at least this share was unnecessary show no loss.
pub const IN_VAIN_SHARE: Ratio = Ratio::new(0.50);
/// A path that carried this share of the datagrams is not what limits them.
pub const WHY_ARRIVED: Ratio = Ratio::new(0.90);
/// A rate of this share of what the path carries at most is limited by the path, ...
pub const WHY_CARRIED: Ratio = Ratio::new(0.80);
/// ... and one of this share may be if it lost some of it: a connection stays below a rate above which everything is
/// dropped.
pub const WHY_POLICED: Ratio = Ratio::new(0.50);
/// A paced trial shows whether a loss depends on the rate if this many lost segments were to be expected: none of so
/// many is lost by chance once in 3,000 times.
pub const WHY_LOST_LEAST: f64 = 8.0;
/// With at most this share of them the loss is gone, ...
pub const WHY_LOSS_GONE: Ratio = Ratio::new(0.10);
/// ... if this share of the segments at most is still lost, ...
pub const WHY_LOSS_NONE: Ratio = Ratio::new(0.000_1);
/// ... and with at least this share it stays.
pub const WHY_LOSS_STAYS: Ratio = Ratio::new(0.40);
