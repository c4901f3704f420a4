//! Data that only ethtool's ioctls provide, or provide on more kernels than netlink does, with the numbers and
//! structures of `<linux/ethtool.h>`: the driver and its counters, RSS (`ETHTOOL_MSG_RSS_GET` needs Linux 6.3),
//! per-queue coalescing. No privilege is needed to read.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use linerate_model::host::{QueueCoalesce, QueueKind, Rss};
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Known};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::error::Failure;
use super::message::u32_at;
use super::sys::{Memory, ethtool};
use crate::nic_control::Moderation;

/// The command numbers (`ETHTOOL_G*`, `ETHTOOL_S*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Command {
    DriverInfo = 0x03,
    Coalesce = 0x0e,
    SetCoalesce = 0x0f,
    Strings = 0x1b,
    Statistics = 0x1d,
    HashFields = 0x29,
    SetHashFields = 0x2a,
    SetInfo = 0x37,
    SetTable = 0x39,
    Rss = 0x46,
    SetRss = 0x47,
    PerQueue = 0x4b,
}

/// `ETH_SS_STATS`: the names of the driver's counters.
const STATISTICS_SET: u32 = 1;
/// `ETH_GSTRING_LEN`.
const NAME_BYTES: usize = 32;
/// The maximum number of counters read; large NICs have some thousands.
const NAMES_MAX: usize = 16_384;
/// `MAX_NUM_QUEUE`.
const QUEUES_MAX: usize = 4096;
/// The maximum size of an indirection table; the largest known has 16,384 entries.
const TABLE_MAX: usize = 65_536;

/// The headers of `struct ethtool_gstrings` and `struct ethtool_stats`.
const STRINGS_HEAD: usize = 12;
const STATISTICS_HEAD: usize = 8;
/// The header of `struct ethtool_rxfh`, before its table and key.
const RSS_HEAD: usize = 24;
/// `ETH_RXFH_INDIR_NO_CHANGE`: keep the table.
const TABLE_STAYS: u32 = u32::MAX;
/// The maximum key length; the longest known key has 52 bytes.
const KEY_MAX: u32 = 256;
/// The header of `struct ethtool_per_queue_op`, and `struct ethtool_coalesce`.
const PER_QUEUE_HEAD: usize = 8 + QUEUES_MAX / 8;
const COALESCE_BYTES: usize = 23 * 4;
/// The offsets in it for one direction: usecs, frames, and adaptive.
const RX_USECS_AT: usize = 4;
const RX_FRAMES_AT: usize = 8;
const TX_USECS_AT: usize = 20;
const TX_FRAMES_AT: usize = 24;
const RX_ADAPTIVE_AT: usize = 40;
const TX_ADAPTIVE_AT: usize = 44;
/// The size of the longest list.
const ROOM: usize = STRINGS_HEAD + NAMES_MAX * NAME_BYTES;

/// The driver of an interface, as reported by the driver; fields may be empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DriverInfo {
    pub(super) driver: String,
    pub(super) version: String,
    pub(super) firmware: String,
}

/// A socket for ioctls and their memory.
#[derive(Debug)]
pub(super) struct Control {
    socket: OwnedFd,
    memory: Memory,
    /// A script that answers in the kernel's place.
    #[cfg(any(test, feature = "fuzz"))]
    script: Option<super::script::Script>,
}

impl Control {
    /// A socket in the network namespace of this thread.
    pub(super) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC;
        Ok(Self {
            socket: socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?,
            memory: Memory::new(ROOM)?,
            #[cfg(any(test, feature = "fuzz"))]
            script: None,
        })
    }

    /// One that `script` answers.
    #[cfg(any(test, feature = "fuzz"))]
    pub(super) fn scripted(script: super::script::Script) -> io::Result<Self> {
        Ok(Self {
            socket: std::fs::File::open("/dev/null")?.into(),
            memory: Memory::new(ROOM)?,
            script: Some(script),
        })
    }

    /// The driver's name and version and the firmware's.
    pub(super) fn driver_info(&mut self, nic: &NicName) -> Result<DriverInfo, Failure> {
        self.ask(Command::DriverInfo, nic, &[]).map(|answer| {
            let text = |at: usize| text(answer.get(at..at + 32).unwrap_or_default());
            DriverInfo {
                driver: text(4),
                version: text(36),
                firmware: text(68),
            }
        })
    }

    /// The driver's private counters by its own names, in its order.
    pub(super) fn statistics(&mut self, nic: &NicName) -> Result<Vec<(String, u64)>, Failure> {
        let count = self.count_of_statistics(nic)?;
        if count > NAMES_MAX {
            return Err(Failure::Malformed(
                "the driver has more than 16384 counters",
            ));
        }
        if count == 0 {
            return Ok(Vec::new());
        }
        let answer = self.ask(Command::Strings, nic, &[STATISTICS_SET])?;
        let names = parse_names(answer, count)?;
        let answer = self.ask(Command::Statistics, nic, &[])?;
        parse_statistics(answer, names)
    }

    /// The number of the driver's counters (`struct ethtool_sset_info`).
    fn count_of_statistics(&mut self, nic: &NicName) -> Result<usize, Failure> {
        let mask = (1u64 << STATISTICS_SET).to_ne_bytes();
        let words = [u32_at(&mask, 0)?, u32_at(&mask, 4)?];
        let answer = self.ask(Command::SetInfo, nic, &[0, words[0], words[1]])?;
        // The kernel clears the bit of a set that the driver does not have.
        if answer.get(8..16).is_none_or(|left| left == [0; 8]) {
            return Ok(0);
        }
        u32_at(answer, 16).map(|count| count as usize)
    }

    /// RSS; one request for the hash fields of each flow type.
    pub(super) fn rss(&mut self, nic: &NicName) -> Result<Rss, Failure> {
        let answer = self.ask_rss(nic)?;
        let mut rss = parse_rss(answer, nic)?;
        let fields = self.hash_fields(nic);
        let path = format!("ioctl/ethtool/{nic}/rx-flow-hash");
        rss.fields = super::known(fields, path, super::NO_DRIVER);
        Ok(rss)
    }

    /// Sets the indirection table (`struct ethtool_rxfh_indir`) to `queues`, repeated to its size; the key and the
    /// function are kept. A configured table blocks a reduction of the queue count (`ethtool_check_max_channel`): the
    /// kernel's default table is therefore restored as such.
    pub(super) fn set_rss_table(
        &mut self,
        nic: &NicName,
        queues: &[u32],
        is_default: bool,
    ) -> Result<(), Failure> {
        let size = if is_default {
            0
        } else {
            u32_at(self.ask_rss(nic)?, 8)?
        };
        let table = queues.iter().copied().cycle().take(size as usize);
        let words: Vec<u32> = std::iter::once(size).chain(table).collect();
        self.ask(Command::SetTable, nic, &words).map(drop)
    }

    /// The hash key, which follows the table.
    pub(super) fn rss_key(&mut self, nic: &NicName) -> Result<Vec<u8>, Failure> {
        let answer = self.ask(Command::Rss, nic, &[0, 0, 0, 0, 0])?;
        let (entries, bytes) = (u32_at(answer, 8)?, key_bytes(answer)?);
        let answer = self.ask(Command::Rss, nic, &[0, entries, bytes, 0, 0])?;
        parse_rss_key(answer)
    }

    /// Sets the key; table, function and transformation are kept. Netlink can do the same (`ETHTOOL_MSG_RSS_SET`),
    /// but only since Linux 6.17.
    pub(super) fn set_rss_key(&mut self, nic: &NicName, key: &[u8]) -> Result<(), Failure> {
        let words = with_key(self.ask(Command::Rss, nic, &[0, 0, 0, 0, 0])?, key)?;
        self.ask(Command::SetRss, nic, &words).map(drop)
    }

    /// `struct ethtool_rxfh` with its table. Without buffer space it returns the sizes, and with space for the table
    /// the table; the key is a secret and is not read.
    fn ask_rss(&mut self, nic: &NicName) -> Result<&[u8], Failure> {
        let answer = self.ask(Command::Rss, nic, &[0, 0, 0, 0, 0])?;
        let entries = u32_at(answer, 8)?;
        if entries as usize > TABLE_MAX {
            return Err(Failure::Malformed(
                "the indirection table has more than 65536 entries",
            ));
        }
        self.ask(Command::Rss, nic, &[0, entries, 0, 0, 0])
    }

    /// Sets the hash fields of a flow type.
    pub(super) fn set_hash_fields(
        &mut self,
        nic: &NicName,
        kind: &str,
        letters: &str,
    ) -> Result<(), Failure> {
        let flow = FLOWS.iter().find(|(name, _)| *name == kind);
        let fields = letters_field(letters);
        match (flow, fields) {
            (Some((_, flow)), Some(fields)) => {
                let question = [*flow, fields, 0];
                self.ask(Command::SetHashFields, nic, &question).map(drop)
            }
            (None, _) => Err(Failure::BadInput(format!(
                "`{kind}` is not a flow type: tcp4, udp4, tcp6 or udp6"
            ))),
            (_, None) => Err(Failure::BadInput(format!(
                "`{letters}` is not a valid ethtool rx-flow-hash field list"
            ))),
        }
    }

    /// The hash fields of TCP and UDP (`TCP_V4_FLOW` and others).
    fn hash_fields(&mut self, nic: &NicName) -> Result<BTreeMap<String, String>, Failure> {
        let mut fields = BTreeMap::new();
        let mut refusal = None;
        for (name, flow) in FLOWS {
            // `struct ethtool_rxnfc`: command, flow type, 64 bits of fields.
            match self.ask(Command::HashFields, nic, &[flow, 0, 0]) {
                Ok(answer) => {
                    fields.insert(name.to_owned(), field_letters(u32_at(answer, 8)?));
                }
                Err(failure) => refusal = Some(failure),
            }
        }
        match refusal {
            Some(failure) if fields.is_empty() => Err(failure),
            // A NIC without such a hash reports no fields for any flow type.
            _ if fields.values().all(String::is_empty) => Err(Failure::Kernel {
                errno: libc::EOPNOTSUPP,
                message: None,
            }),
            _ => Ok(fields),
        }
    }

    /// Interrupt coalescing of queue 0 and up to `queues` of them.
    pub(super) fn queue_coalesce(
        &mut self,
        nic: &NicName,
        queues: usize,
    ) -> Result<Vec<QueueCoalesce>, Failure> {
        let queues = queues.min(QUEUES_MAX);
        let words = per_queue(Command::Coalesce, 0..queues);
        let answer = self.ask(Command::PerQueue, nic, &words)?;
        parse_queue_coalesce(answer, queues)
    }

    /// Interrupt coalescing of one queue.
    pub(super) fn coalesce_of_queue(
        &mut self,
        nic: &NicName,
        queue: u32,
    ) -> Result<QueueCoalesce, Failure> {
        let answer = self.ask_queue(nic, queue)?;
        let first = parse_queue_coalesce(answer, 1)?.pop();
        let own = first.ok_or(Failure::Malformed("the list of queues is truncated"))?;
        Ok(QueueCoalesce { queue, ..own })
    }

    /// Sets one coalescing parameter of a queue; the others are written back as read, as the kernel sets all at once.
    pub(super) fn set_moderation(
        &mut self,
        nic: &NicName,
        kind: QueueKind,
        queue: u32,
        told: Moderation,
    ) -> Result<(), Failure> {
        let words = with_moderation(self.ask_queue(nic, queue)?, kind, queue, told)?;
        self.ask(Command::PerQueue, nic, &words).map(drop)
    }

    fn ask_queue(&mut self, nic: &NicName, queue: u32) -> Result<&[u8], Failure> {
        if queue as usize >= QUEUES_MAX {
            return Err(Failure::BadInput(format!(
                "no interface has a queue {queue}"
            )));
        }
        let words = per_queue(Command::Coalesce, [queue as usize]);
        self.ask(Command::PerQueue, nic, &words)
    }

    /// Writes the request `command` followed by `words`; the response replaces the request in memory.
    fn ask(&mut self, command: Command, nic: &NicName, words: &[u32]) -> Result<&[u8], Failure> {
        let memory = self.memory.bytes_mut();
        // A structure may be longer than the part we fill.
        let room = (4 * (1 + words.len())).max(1024);
        let (head, _) = memory.split_at_mut(memory.len().min(room));
        head.fill(0);
        let question = std::iter::once(command as u32).chain(words.iter().copied());
        for (to, word) in head.chunks_exact_mut(4).zip(question) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        #[cfg(any(test, feature = "fuzz"))]
        if let Some(script) = &mut self.script {
            script.fill(self.memory.bytes_mut())?;
            return Ok(self.memory.bytes());
        }
        ethtool(self.socket.as_fd(), nic, &mut self.memory).map_err(refused)?;
        Ok(self.memory.bytes())
    }
}

fn refused(error: io::Error) -> Failure {
    match error.raw_os_error() {
        Some(errno) => Failure::Kernel {
            errno,
            message: None,
        },
        None => Failure::Socket(error),
    }
}

/// A text of a fixed-size field: up to its NUL, if it has one, without surrounding spaces.
fn text(field: &[u8]) -> String {
    let end = field.iter().position(|byte| *byte == 0);
    let text = String::from_utf8_lossy(field.get(..end.unwrap_or(field.len())).unwrap_or_default());
    text.trim()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// `struct ethtool_gstrings` with `count` names.
fn parse_names(answer: &[u8], count: usize) -> Result<Vec<String>, Failure> {
    if u32_at(answer, 8)? as usize != count {
        return Err(Failure::Unsteady);
    }
    let names = answer.get(STRINGS_HEAD..STRINGS_HEAD + count * NAME_BYTES);
    let names = names.ok_or(Failure::Malformed("the list of names is truncated"))?;
    Ok(names.chunks_exact(NAME_BYTES).map(text).collect())
}

/// `struct ethtool_stats`, with the names of its values.
fn parse_statistics(answer: &[u8], names: Vec<String>) -> Result<Vec<(String, u64)>, Failure> {
    if u32_at(answer, 4)? as usize != names.len() {
        return Err(Failure::Unsteady);
    }
    let values = answer.get(STATISTICS_HEAD..STATISTICS_HEAD + names.len() * 8);
    let values = values.ok_or(Failure::Malformed("the list of counters is truncated"))?;
    let (values, _) = values.as_chunks();
    let values = values.iter().map(|value| u64::from_ne_bytes(*value));
    let named = names.into_iter().zip(values);
    Ok(named.filter(|(name, _)| !name.is_empty()).collect())
}

/// `struct ethtool_rxfh`, without the hash fields.
fn parse_rss(answer: &[u8], nic: &NicName) -> Result<Rss, Failure> {
    let (entries, key_bytes) = (u32_at(answer, 8)? as usize, u32_at(answer, 12)?);
    let end = entries
        .checked_mul(4)
        .and_then(|bytes| bytes.checked_add(RSS_HEAD));
    let table = end.and_then(|end| answer.get(RSS_HEAD..end));
    let table = table.ok_or(Failure::Malformed("the indirection table is truncated"))?;
    let (table, _) = table.as_chunks();
    let table: Vec<u32> = table
        .iter()
        .map(|queue| u32::from_ne_bytes(*queue))
        .collect();
    let [function, transform, ..] = u32_at(answer, 16)?.to_ne_bytes();
    let function = match function {
        0 => None,
        1 => Some("toeplitz".to_owned()),
        2 => Some("xor".to_owned()),
        4 => Some("crc32".to_owned()),
        bits => Some(format!("functions {bits:#x}")),
    };
    let path = |what: &str| format!("ioctl/ethtool/{nic}/rss/{what}");
    Ok(Rss {
        table: or_absent((!table.is_empty()).then_some(table), path("table")),
        function: or_absent(function, path("function")),
        key_bytes: or_absent((key_bytes > 0).then_some(key_bytes), path("key")),
        // `RXH_XFRM_SYM_XOR`, `RXH_XFRM_SYM_OR_XOR`; not available before Linux 6.8.
        symmetric: Known::Value(transform & 0b11 != 0 && transform != u8::MAX),
        fields: Known::not_asked(path("fields")),
    })
}

/// The length of the NIC's key.
fn key_bytes(answer: &[u8]) -> Result<u32, Failure> {
    match u32_at(answer, 12)? {
        0 => Err(Failure::Kernel {
            errno: libc::EOPNOTSUPP,
            message: None,
        }),
        bytes if bytes > KEY_MAX => Err(Failure::Malformed("the hash key has more than 256 bytes")),
        bytes => Ok(bytes),
    }
}

/// The key in `struct ethtool_rxfh`.
fn parse_rss_key(answer: &[u8]) -> Result<Vec<u8>, Failure> {
    let (entries, bytes) = (u32_at(answer, 8)? as usize, key_bytes(answer)? as usize);
    let start = entries
        .checked_mul(4)
        .and_then(|table| table.checked_add(RSS_HEAD));
    let key = start.and_then(|start| answer.get(start..start.checked_add(bytes)?));
    let key = key.ok_or(Failure::Malformed("the hash key is truncated"))?;
    Ok(key.to_vec())
}

/// The request that sets another key on a NIC with the response `answer`. A transformation of 0 would turn off the
/// current one; kernels before Linux 6.8 have none, and report 0.
fn with_key(answer: &[u8], key: &[u8]) -> Result<Vec<u32>, Failure> {
    let bytes = key_bytes(answer)?;
    if bytes as usize != key.len() {
        let why = format!("the NIC's hash key has {bytes} bytes, not {}", key.len());
        return Err(Failure::BadInput(why));
    }
    let [_, transform, ..] = u32_at(answer, 16)?.to_ne_bytes();
    let kept = u32::from_ne_bytes([0, transform, 0, 0]);
    let mut words = vec![0, TABLE_STAYS, bytes, kept, 0];
    words.extend(key.chunks(4).map(|chunk| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        u32::from_ne_bytes(word)
    }));
    Ok(words)
}

fn or_absent<T>(value: Option<T>, path: String) -> Known<T> {
    let absent = |path| Known::unknown(Cause::Absent, path, "not reported by the driver");
    value.map_or_else(|| absent(path), Known::Value)
}

/// `TCP_V4_FLOW` and others.
const FLOWS: [(&str, u32); 4] = [("tcp4", 1), ("udp4", 2), ("tcp6", 5), ("udp6", 6)];

/// `RXH_*` and the letters of ethtool(8), `rx-flow-hash`.
const LETTERS: [(u32, char); 10] = [
    (1, 'm'),  // RXH_L2DA: destination MAC address
    (2, 'v'),  // RXH_VLAN
    (3, 't'),  // RXH_L3_PROTO
    (4, 's'),  // RXH_IP_SRC
    (5, 'd'),  // RXH_IP_DST
    (6, 'f'),  // RXH_L4_B_0_1: source port
    (7, 'n'),  // RXH_L4_B_2_3: destination port
    (8, 'e'),  // RXH_GTP_TEID
    (9, 'l'),  // RXH_IP6_FL: flow label
    (31, 'r'), // RXH_DISCARD
];

/// The bits of letters; none if one is not valid.
fn letters_field(letters: &str) -> Option<u32> {
    letters.chars().try_fold(0, |fields, letter| {
        let (bit, _) = LETTERS.iter().find(|(_, own)| *own == letter)?;
        Some(fields | 1 << bit)
    })
}

/// The letters of bits.
fn field_letters(fields: u32) -> String {
    let set = LETTERS.iter().filter(|(bit, _)| fields >> bit & 1 == 1);
    set.map(|(_, letter)| letter).collect()
}

/// The header of `struct ethtool_per_queue_op`: the command, and the mask of queues.
fn per_queue(command: Command, queues: impl IntoIterator<Item = usize>) -> Vec<u32> {
    let mut words = vec![0; 1 + QUEUES_MAX / 32];
    words[0] = command as u32;
    for queue in queues {
        if let Some(word) = words.get_mut(1 + queue / 32) {
            *word |= 1 << (queue % 32);
        }
    }
    words
}

/// The request that sets the coalescing of `queue` to that in `answer`, with one parameter changed.
fn with_moderation(
    answer: &[u8],
    kind: QueueKind,
    queue: u32,
    told: Moderation,
) -> Result<Vec<u32>, Failure> {
    let own = answer.get(PER_QUEUE_HEAD..PER_QUEUE_HEAD + COALESCE_BYTES);
    let own = own.ok_or(Failure::Malformed("the list of queues is truncated"))?;
    let (own, _) = own.as_chunks();
    let mut words = per_queue(Command::SetCoalesce, [queue as usize]);
    let (told_at, told) = match (kind, told) {
        (QueueKind::Rx, Moderation::Usecs(usecs)) => (RX_USECS_AT, usecs),
        (QueueKind::Tx, Moderation::Usecs(usecs)) => (TX_USECS_AT, usecs),
        (QueueKind::Rx, Moderation::Frames(frames)) => (RX_FRAMES_AT, frames),
        (QueueKind::Tx, Moderation::Frames(frames)) => (TX_FRAMES_AT, frames),
        (QueueKind::Rx, Moderation::Adaptive(on)) => (RX_ADAPTIVE_AT, u32::from(on)),
        (QueueKind::Tx, Moderation::Adaptive(on)) => (TX_ADAPTIVE_AT, u32::from(on)),
    };
    words.extend(own.iter().enumerate().map(|(at, word)| match at {
        0 => Command::SetCoalesce as u32,
        at if at * 4 == told_at => told,
        _ => u32::from_ne_bytes(*word),
    }));
    Ok(words)
}

/// `struct ethtool_per_queue_op` with a `struct ethtool_coalesce` for each of `queues` queues.
fn parse_queue_coalesce(answer: &[u8], queues: usize) -> Result<Vec<QueueCoalesce>, Failure> {
    let list = answer.get(PER_QUEUE_HEAD..PER_QUEUE_HEAD + queues * COALESCE_BYTES);
    let list = list.ok_or(Failure::Malformed("the list of queues is truncated"))?;
    let all = list.chunks_exact(COALESCE_BYTES).zip(0..);
    all.map(|(coalesce, queue)| {
        Ok(QueueCoalesce {
            queue,
            rx_usecs: Known::Value(u32_at(coalesce, RX_USECS_AT)?),
            tx_usecs: Known::Value(u32_at(coalesce, TX_USECS_AT)?),
            adaptive_rx: Known::Value(u32_at(coalesce, RX_ADAPTIVE_AT)? != 0),
            adaptive_tx: Known::Value(u32_at(coalesce, TX_ADAPTIVE_AT)? != 0),
            rx_frames: Known::Value(u32_at(coalesce, RX_FRAMES_AT)?),
            tx_frames: Known::Value(u32_at(coalesce, TX_FRAMES_AT)?),
        })
    })
    .collect()
}

#[cfg(test)]
mod tests;
