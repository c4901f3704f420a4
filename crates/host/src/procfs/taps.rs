//! Packet sockets and protocol handlers that receive a copy of packets: `/proc/net/packet` (net/packet/af_packet.c,
//! `packet_seq_show`; packet(7)) and `/proc/net/ptype` (net/core/net-procfs.c, `ptype_seq_show`).

use linerate_model::host::{Nic, Tap};
use linerate_model::known::{Cause, Gap, Known};

use crate::attributes::understood;
use crate::root::{HostRoot, absolute};

const SOCKETS: &str = "proc/net/packet";
const HANDLERS: &str = "proc/net/ptype";

/// `ETH_P_ALL` (include/uapi/linux/if_ether.h).
const ALL: u32 = 3;

/// One line of `/proc/net/packet`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PacketSocket {
    /// The protocol; 0 receives nothing.
    pub(crate) protocol: u32,
    /// The interface's index; 0 is all.
    pub(crate) index: u32,
    /// Whether it is bound and receives packets.
    pub(crate) is_running: bool,
}

/// Reads both files; `nics` provides interface names by index.
pub(crate) fn read_taps(root: &HostRoot, nics: &[Nic], gaps: &mut Vec<Gap>) -> Known<Vec<Tap>> {
    let sockets = root
        .read_used(SOCKETS, used_socket_lines)
        .and_then(|text| understood(SOCKETS, &text, parse_sockets));
    let handlers = root.read(HANDLERS).map(|text| parse_handlers(&text));
    let name = |index: u32| {
        let mut found = nics.iter().filter(|nic| nic.index.get() == Some(index));
        match (index, found.next()) {
            (0, _) => None,
            (_, Some(nic)) => Some(nic.name.to_string()),
            (index, None) => Some(format!("index {index}")),
        }
    };
    let of_socket = |socket: PacketSocket| Tap {
        nic: name(socket.index),
        protocol: socket.protocol,
        name: "packet socket".to_owned(),
        path: absolute(SOCKETS),
    };
    let of_handler = |(nic, handler): (Option<String>, String)| Tap {
        nic,
        protocol: ALL,
        name: handler,
        path: absolute(HANDLERS),
    };
    let sockets = sockets.map(|sockets| {
        let taking = sockets.into_iter();
        let taking = taking.filter(|socket| socket.is_running && socket.protocol != 0);
        taking.map(of_socket).collect::<Vec<_>>()
    });
    match (sockets, handlers) {
        (Known::Value(sockets), Known::Value(handlers)) => {
            let others = handlers
                .into_iter()
                .filter(|(_, handler)| !is_socket(handler));
            Known::Value(sockets.into_iter().chain(others.map(of_handler)).collect())
        }
        // Absent: a kernel without packet sockets, or with the module not loaded. Otherwise the handlers show at least
        // the sockets of all protocols.
        (Known::Unknown(gap), Known::Value(handlers))
            if gap.cause == Cause::Absent || !handlers.is_empty() =>
        {
            if gap.leaves_a_question() {
                gaps.push(gap);
            }
            Known::Value(handlers.into_iter().map(of_handler).collect())
        }
        (Known::Value(sockets), Known::Unknown(gap)) => {
            gaps.push(gap);
            Known::Value(sockets)
        }
        (Known::Unknown(gap), _) => Known::Unknown(gap),
    }
}

/// `sk RefCnt Type Proto Iface R Rmem User Inode`, the protocol in hexadecimal.
pub(crate) fn parse_sockets(text: &str) -> Result<Vec<PacketSocket>, String> {
    let socket = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, protocol, index, running, ..] = words[..] else {
            return Err(format!("a line has {} columns", words.len()));
        };
        Ok(PacketSocket {
            protocol: u32::from_str_radix(protocol, 16).map_err(|error| error.to_string())?,
            index: index
                .parse()
                .map_err(|_| "an index is not a number".to_owned())?,
            is_running: running == "1",
        })
    };
    text.lines().skip(1).map(socket).collect()
}

/// Whether a handler is that of a plain packet socket, which is also in the other file. Only this file shows a mapped
/// ring (`tpacket_rcv`), and captures have one.
fn is_socket(handler: &str) -> bool {
    handler.starts_with("packet_rcv")
}

/// The handlers of all protocols. Returns the interface (none
/// for all) and the function without its offset. Lines: `ALL  eth0     function+0x0/0x50 [module]`.
pub(crate) fn parse_handlers(text: &str) -> Vec<(Option<String>, String)> {
    let handler = |line: &str| {
        let rest = line.strip_prefix("ALL")?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        // The module in brackets and the device are optional.
        let named: Vec<&str> = words
            .into_iter()
            .filter(|word| !word.starts_with('['))
            .collect();
        let (nic, function) = match named[..] {
            [function] => (None, function),
            [nic, function, ..] => (Some(nic.to_owned()), function),
            [] => return None,
        };
        let function = function.split('+').next().unwrap_or(function);
        Some((nic, function.to_owned()))
    };
    text.lines().skip(1).filter_map(handler).collect()
}

/// `/proc/net/packet` without kernel addresses, users and inodes, which are not used here.
fn used_socket_lines(text: &str) -> String {
    let used = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [_, _, kind, protocol, index, running, ..] => {
                format!("0 0 {kind} {protocol} {index} {running} 0 0 0")
            }
            // Read as malformed also from a capture.
            _ => "malformed".to_owned(),
        }
    };
    let head = text.lines().next().unwrap_or_default().to_owned();
    let lines: Vec<String> = std::iter::once(head)
        .chain(text.lines().skip(1).map(used))
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn sockets_tell_protocol_interface_and_whether_they_run() {
        let text = "sk               RefCnt Type Proto  Iface R Rmem   User   Inode\n\
            ffff8881 3      3    0003   2     1 0      0      20482\n\
            ffff8882 3      3    88cc   0     0 0      101    20483";
        let sockets = parse_sockets(text).expect("two");
        assert_eq!((sockets[0].protocol, sockets[0].index), (3, 2));
        assert!(sockets[0].is_running && !sockets[1].is_running);
        assert_eq!(sockets[1].protocol, 0x88cc);
        let kept = used_socket_lines(text);
        assert_eq!(parse_sockets(&kept), Ok(sockets));
        assert!(!kept.contains("20482") && !kept.contains("ffff8881"));
    }

    #[test]
    fn handlers_of_all_protocols_and_rings_are_told_from_plain_packet_sockets() {
        assert!(is_socket("packet_rcv") && is_socket("packet_rcv_fanout"));
        assert!(!is_socket("tpacket_rcv"));
        let text = "Type Device      Function\n\
            ALL  eth0     tpacket_rcv+0x0/0x9a0 [af_packet]\n\
            ALL           packet_rcv\n\
            ALL           sniff+0x0/0x10 [probe]\n\
            ALL  eth1     look\n\
            0800          ip_rcv";
        let handlers = parse_handlers(text);
        assert_eq!(
            handlers,
            [
                (Some("eth0".to_owned()), "tpacket_rcv".to_owned()),
                (None, "packet_rcv".to_owned()),
                (None, "sniff".to_owned()),
                (Some("eth1".to_owned()), "look".to_owned())
            ]
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(lines in proptest::collection::vec("(ALL|[0-9a-f ]{0,30}).{0,30}", 0..5)) {
            let text = lines.join("\n");
            let _ = parse_handlers(&text);
            if let Ok(sockets) = parse_sockets(&text) {
                prop_assert_eq!(parse_sockets(&used_socket_lines(&text)), Ok(sockets));
            }
        }
    }
}
