//! The TCP buffers of a host: `net.ipv4.tcp_wmem` and `net.ipv4.tcp_rmem`, three numbers each.
//!
//! Sources: Documentation/networking/ip-sysctl.rst and `tcp_init` in net/ipv4/tcp.c. Used by ceilings, limits and the
//! rule `tcp-buffer-below-bdp`, so that they agree.

use std::fmt;

use crate::host::Host;
use crate::known::{Cause, Known};
use crate::units::Bytes;

/// Which of the two buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Buffer {
    /// The send buffer, `tcp_wmem`.
    Send,
    /// The receive buffer, `tcp_rmem`.
    Receive,
}

impl Buffer {
    /// The sysctl that holds its limits.
    pub fn sysctl(self) -> &'static str {
        match self {
            Self::Send => "net.ipv4.tcp_wmem",
            Self::Receive => "net.ipv4.tcp_rmem",
        }
    }

    /// The sysctl that caps what a program asks for with `SO_SNDBUF`/`SO_RCVBUF`.
    pub fn cap_sysctl(self) -> &'static str {
        match self {
            Self::Send => "net.core.wmem_max",
            Self::Receive => "net.core.rmem_max",
        }
    }

    /// The kernel's default maximum on `host`: 4 MiB to send, 6 MiB to receive (32 MiB since 6.18, but a newer
    /// default is no reason to advise raising a limit). On small machines the kernel uses 1/128 of the memory that
    /// was free at boot; 1/256 of the total memory is a safe lower bound for that.
    pub fn shipped_max(self, host: &Host) -> Bytes {
        let usual = match self {
            Self::Send => Bytes::mib(4),
            Self::Receive => Bytes::mib(6),
        };
        let memory = host.nodes.iter().try_fold(0u64, |sum, node| {
            sum.checked_add(node.memory_bytes.get()?.as_u64())
        });
        match memory {
            Some(memory) if memory > 0 => usual.min(Bytes::new(memory / 256)),
            _ => by_tcp_mem(host).map_or(usual, |shipped| usual.min(shipped)),
        }
    }
}

/// Without NUMA nodes the total memory is not known from sysfs, but the second value of `tcp_mem` is 1/16 of the
/// pages that were free at boot (`tcp_init_mem`), and the default maximum is 1/128 of them. With pages larger than 4
/// KiB this is too low, which only means that no advice is given.
fn by_tcp_mem(host: &Host) -> Option<Bytes> {
    let text = host.sysctl("net.ipv4.tcp_mem");
    let pressure: u64 = text.value()?.split_whitespace().nth(1)?.parse().ok()?;
    Some(Bytes::new(pressure.saturating_mul(16 * 4096 / 128)))
}

impl fmt::Display for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "send buffer",
            Self::Receive => "receive buffer",
        })
    }
}

/// The three values of `tcp_wmem` or `tcp_rmem`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Granted even under memory pressure.
    pub min: Bytes,
    /// The initial size of a connection's buffer.
    pub start: Bytes,
    /// The maximum for autotuning.
    pub max: Bytes,
}

impl Limits {
    /// The largest buffer a connection can have: it starts at `start` even if that is above `max`.
    pub fn largest(self) -> Bytes {
        self.max.max(self.start)
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { min, start, max } = self;
        write!(f, "{} {} {}", min.as_u64(), start.as_u64(), max.as_u64())
    }
}

/// The limits of `buffer` on `host`, or why they are not known.
pub fn limits(host: &Host, buffer: Buffer) -> Known<Limits> {
    host.sysctl(buffer.sysctl()).and_then(|text| {
        let numbers: Option<Vec<u64>> = text.split_whitespace().map(|n| n.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[min, start, max]) => Known::Value(Limits {
                min: Bytes::new(min),
                start: Bytes::new(start),
                max: Bytes::new(max),
            }),
            _ => Known::unknown(
                Cause::Unreadable,
                path(buffer.sysctl()),
                format!("expected three numbers, found `{text}`"),
            ),
        }
    })
}

/// The largest buffer that a connection of `host` can have. Without autotuning (`tcp_moderate_rcvbuf`) a receive buffer
/// keeps its initial size. A program that sets a size gets twice that, capped by `net.core.*mem_max` (socket(7)), and no
/// autotuning.
pub fn largest(host: &Host, buffer: Buffer, asked: Option<Bytes>) -> Known<Bytes> {
    let Some(asked) = asked else {
        let moderated = host.sysctl("net.ipv4.tcp_moderate_rcvbuf");
        let is_fixed =
            buffer == Buffer::Receive && moderated.value().is_some_and(|value| value.trim() == "0");
        return limits(host, buffer).map(|limits| {
            if is_fixed {
                limits.start
            } else {
                limits.largest()
            }
        });
    };
    let cap = cap(host, buffer).map_or(u64::MAX, Bytes::as_u64);
    Known::Value(Bytes::new(asked.as_u64().min(cap).saturating_mul(2)))
}

/// The largest size that `host` grants a program that asks for one, before the kernel doubles it.
pub fn cap(host: &Host, buffer: Buffer) -> Option<Bytes> {
    let text = host.sysctl(buffer.cap_sysctl());
    text.value()?.trim().parse().ok().map(Bytes::new)
}

/// The file that a sysctl is read from.
pub fn path(sysctl: &str) -> String {
    format!("/proc/sys/{}", sysctl.replace('.', "/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;

    #[test]
    fn tabs_or_blanks_the_three_numbers_are_read() {
        let host = build::host().sysctl("net.ipv4.tcp_wmem", "4096\t16384\t4194304");
        let read = limits(&host.build(), Buffer::Send);
        assert_eq!(read.get().map(|l| l.max), Some(Bytes::mib(4)));
    }

    #[test]
    fn a_text_that_is_not_three_numbers_is_a_gap_and_not_zero() {
        for text in ["", "1 2", "1 2 x", "1 2 3 4", "-1 2 3"] {
            let host = build::host().sysctl("net.ipv4.tcp_rmem", text).build();
            assert_eq!(
                limits(&host, Buffer::Receive).gap().map(|gap| gap.cause),
                Some(Cause::Unreadable),
                "{text}"
            );
        }
    }

    #[test]
    fn without_autotuning_a_receive_buffer_keeps_its_first_size() {
        let host = |moderated| {
            build::host()
                .sysctl("net.ipv4.tcp_rmem", "4096 131072 33554432")
                .sysctl("net.ipv4.tcp_moderate_rcvbuf", moderated)
                .build()
        };
        let receive = |moderated| largest(&host(moderated), Buffer::Receive, None).get();
        assert_eq!(receive("1"), Some(Bytes::mib(32)));
        assert_eq!(receive("0"), Some(Bytes::kib(128)));
    }

    #[test]
    fn an_asked_size_is_doubled_and_capped() {
        let host = build::host().sysctl("net.core.rmem_max", "212992").build();
        let asked = |size| largest(&host, Buffer::Receive, Some(size)).get();
        assert_eq!(asked(Bytes::kib(64)), Some(Bytes::kib(128)));
        assert_eq!(asked(Bytes::mib(64)), Some(Bytes::new(425_984)));
    }

    #[test]
    fn a_small_machine_without_nodes_is_known_by_its_share_for_tcp() {
        let host = build::host()
            .sysctl("net.ipv4.tcp_mem", "2880 3840 5760")
            .with(|host| host.nodes.clear())
            .build();
        assert_eq!(Buffer::Send.shipped_max(&host), Bytes::new(3840 * 512));
    }

    #[test]
    fn a_small_machine_ships_with_smaller_maxima() {
        let host = build::host().memory(Bytes::mib(256)).build();
        assert_eq!(Buffer::Send.shipped_max(&host), Bytes::mib(1));
    }
}
