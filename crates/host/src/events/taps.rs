//! The packet sockets of a recorder: one for each protocol, so that the kernel does not hand them packets that this host
//! sends, each with a filter that passes only what is recorded.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::packet::{Packet, parse_arp, parse_ip4, parse_ip6};
use super::sys::{self, Instruction, Received};

/// `ETH_P_ARP`, `ETH_P_IP`, `ETH_P_IPV6`.
const ARP: u16 = 0x0806;
const IP4: u16 = 0x0800;
const IP6: u16 = 0x86dd;

/// The groups of VRRP's 224.0.0.18 and ff02::12 (RFC 1112, 6.4; RFC 2464, 7).
const VRRP_GROUPS: [(u16, [u8; 6]); 2] = [
    (IP4, [0x01, 0x00, 0x5e, 0, 0, 0x12]),
    (IP6, [0x33, 0x33, 0, 0, 0, 0x12]),
];

/// As much of a packet as is parsed.
const PACKET_BYTES_MAX: u32 = 512;

/// `BPF_LD | BPF_W | BPF_ABS`, `BPF_LD | BPF_B | BPF_ABS`, `BPF_LD | BPF_H | BPF_ABS`, `BPF_MISC | BPF_TAX`,
/// `BPF_JMP | BPF_JEQ | BPF_K` and `| BPF_X`, `BPF_RET | BPF_K` (`<linux/bpf_common.h>`, `<linux/filter.h>`).
const LOAD_WORD: u16 = 0x20;
const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF: u16 = 0x28;
const TO_INDEX: u16 = 0x07;
const EQUAL: u16 = 0x15;
const EQUAL_INDEX: u16 = 0x1d;
const RETURN: u16 = 0x06;

/// Replies, and requests whose two addresses are equal; the addresses are those of Ethernet and IPv4. Other lengths pass.
const ARP_FILTER: [Instruction; 10] = [
    (LOAD_HALF, 0, 0, 6),
    (EQUAL, 6, 0, 2),
    (LOAD_HALF, 0, 0, 4),
    (EQUAL, 0, 4, 0x0604),
    (LOAD_WORD, 0, 0, 14),
    (TO_INDEX, 0, 0, 0),
    (LOAD_WORD, 0, 0, 24),
    (EQUAL_INDEX, 0, 1, 0),
    (RETURN, 0, 0, PACKET_BYTES_MAX),
    (RETURN, 0, 0, 0),
];

/// Protocol 112.
const IP4_FILTER: [Instruction; 4] = [
    (LOAD_BYTE, 0, 0, 9),
    (EQUAL, 0, 1, 112),
    (RETURN, 0, 0, PACKET_BYTES_MAX),
    (RETURN, 0, 0, 0),
];

/// Next header 112; or 58 of type 136.
const IP6_FILTER: [Instruction; 7] = [
    (LOAD_BYTE, 0, 0, 6),
    (EQUAL, 3, 0, 112),
    (EQUAL, 0, 3, 58),
    (LOAD_BYTE, 0, 0, 40),
    (EQUAL, 0, 1, 136),
    (RETURN, 0, 0, PACKET_BYTES_MAX),
    (RETURN, 0, 0, 0),
];

/// A socket and the parser of its packets.
#[derive(Debug)]
pub(super) struct Tap {
    socket: OwnedFd,
    protocol: u16,
    buffer: Vec<u8>,
}

impl Tap {
    /// All of them, in this thread's network namespace. Needs CAP_NET_RAW.
    pub(super) fn open_all() -> io::Result<[Self; 3]> {
        let open = |protocol, filter: &[Instruction]| {
            Ok::<_, io::Error>(Self {
                socket: sys::open(protocol, filter)?,
                protocol,
                buffer: vec![0; PACKET_BYTES_MAX as usize],
            })
        };
        Ok([
            open(ARP, &ARP_FILTER)?,
            open(IP4, &IP4_FILTER)?,
            open(IP6, &IP6_FILTER)?,
        ])
    }

    /// Has the interface receive VRRP advertisements of the socket's protocol.
    pub(super) fn join(&self, interface: u32) -> io::Result<()> {
        let groups = VRRP_GROUPS.iter();
        let mut own = groups.filter(|(protocol, _)| *protocol == self.protocol);
        own.try_for_each(|(_, group)| sys::join(&self.socket, interface, *group))
    }

    /// The next packet that is of interest; `None` if nothing is left for now.
    pub(super) fn next(&mut self) -> io::Result<Option<(Received, Packet)>> {
        loop {
            let received = match sys::receive(self.socket.as_fd(), &mut self.buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                // The error of an interface that went down; the packets before it are still there.
                Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => continue,
                Err(error) => return Err(error),
            };
            let bytes = &self.buffer[..received.length];
            let packet = match self.protocol {
                ARP => parse_arp(bytes),
                IP4 => parse_ip4(bytes),
                _ => parse_ip6(bytes),
            };
            if let Some(packet) = packet.filter(|_| !received.is_own) {
                return Ok(Some((received, packet)));
            }
        }
    }

    /// How many packets were dropped since the last call.
    pub(super) fn drops(&self) -> u32 {
        sys::drops(&self.socket).unwrap_or(0)
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
