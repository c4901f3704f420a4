//! Every threshold by which a limit is named, in one place; each is printed beside the value.

use crate::units::{Bytes, Nanoseconds, Ratio};

/// A rate of at least this share of a shaper's ceiling is held by the shaper.
pub const SHAPER_SHARE: Ratio = Ratio::new(0.85);
/// A rate of at least this share of what a link's frames carry has filled the link.
pub const WIRE_SHARE: Ratio = Ratio::new(0.90);
/// A rate of at least this share of the PCIe bandwidth has filled it: packet headers and descriptors
/// take the rest.
pub const PCIE_SHARE: Ratio = Ratio::new(0.80);
/// Above this share a ceiling is wrong and explains nothing (a shaper's burst may pass it a little).
pub const CEILING_WRONG_SHARE: Ratio = Ratio::new(1.05);
/// A thread that runs, or waits for a CPU, for at least this share of the time lacks a CPU; so does
/// everything on a CPU that is busy for so long.
pub const CPU_SHARE: Ratio = Ratio::new(0.90);
/// A thread that waited for a CPU for at least this share, and for longer than for all else, lacks
/// one too.
pub const WAITED_SHARE: Ratio = Ratio::new(0.20);
/// Two ends' threads that together run on their one CPU for at least this share fill it themselves.
pub const SHARED_CPU_SHARE: Ratio = Ratio::new(0.70);
/// All CPUs of a machine busy together for at least this share are used up.
pub const MACHINE_SHARE: Ratio = Ratio::new(0.95);
/// A flow that waited for a buffer or window for more than this share of its busy time is limited by
/// it: linerate's own threshold for `tcpi_rwnd_limited` and `tcpi_sndbuf_limited` (include/uapi/linux/tcp.h).
pub const LIMITED_SHARE: Ratio = Ratio::new(0.20);
/// A round trip from here on is the path's, not that of two hosts' own work ...
pub const PATH_RTT: Nanoseconds = Nanoseconds::from_micros(500);
/// ... if the smoothed one is at most so many times the smallest: no queue stands on the way.
pub const QUEUE_FACTOR: f64 = 1.5;
/// A buffer that holds so many times what a flow moves in a round trip is not what it waits for.
pub const AMPLE_FACTOR: f64 = 8.0;
/// A thread whose sleeps last so many round trips does not sleep for its connection.
pub const LONG_SLEEP_FACTOR: f64 = 4.0;
/// A buffer of which a flow moves at least this share in a round trip is full of it: the kernel
/// counts its own overhead as a part of the buffer.
pub const FILLED_SHARE: Ratio = Ratio::new(0.40);
/// A congestion window of more than so many times what a round trip moves does not hold a flow back.
pub const WINDOW_FACTOR: u64 = 4;
/// Ends that want a CPU for shares that differ by less are not told apart.
pub const CPU_MARGIN: f64 = 0.10;
/// A program that slept for at least this share, with an ample buffer full or empty, is what was
/// waited for.
pub const SLEPT_SHARE: Ratio = Ratio::new(0.20);
/// More than this share of bytes lost is loss (rule 58: 0.1 % within a site).
pub const LOSS_SHARE: Ratio = Ratio::new(0.001);
/// A rate that was asked for is kept from this share on.
pub const RATE_KEPT: Ratio = Ratio::new(0.99);
/// A place where packets were dropped decides if they may be at least this share of what was lost.
pub const EXPLAINED_SHARE: Ratio = Ratio::new(0.50);
/// The most that is dropped as one packet: what the kernel cuts into segments only on the card.
pub const DROPPED_MAX: Bytes = Bytes::kib(64);
/// A flow that had data to send for less than this share of the time waited for its program, ...
pub const PROGRAM_SHARE: Ratio = Ratio::new(0.80);
/// ... if that program was on a CPU for less than this share: one that computes all the time is slow,
/// not lazy.
pub const PROGRAM_CPU_SHARE: Ratio = Ratio::new(0.50);
/// A machine busier than this may have kept a thread waiting for a CPU: then neither the program nor
/// the congestion control is blamed.
pub const CROWDED_SHARE: Ratio = Ratio::new(0.90);
/// A flow that had data to send for at least this share of the time, and waited for nothing else,
/// waited for its congestion control.
pub const CONGESTION_SHARE: Ratio = Ratio::new(0.95);
/// Over verbs: a rate of at least this share of depth x size over the time of one message alone.
pub const DEPTH_SHARE: Ratio = Ratio::new(0.85);
/// Queue pairs that were found with nothing under way before at least this share of their messages were
/// not kept full.
pub const DRY_SHARE: Ratio = Ratio::new(0.50);
/// A thread that polls, in vain for at most this share of the time, has work all the time ...
pub const POLLED_SHARE: Ratio = Ratio::new(0.10);
/// ... at so long for each time that a completion queue is asked: more than it takes.
pub const POLL_MOST: Nanoseconds = Nanoseconds::from_micros(1);
