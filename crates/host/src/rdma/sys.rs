//! A context on a uverbs node: three commands of the write interface (`<rdma/ib_user_verbs.h>`), whose responses the
//! kernel writes to an address that is part of the command, and one of the ioctl interface (`<rdma/rdma_user_ioctl_cmds.h>`,
//! `<rdma/ib_user_ioctl_cmds.h>`, Linux 5.10).
#![allow(
    unsafe_code,
    reason = "the kernel writes its answer to memory that is named in the bytes of a question"
)]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};

use super::uverbs::{DEVICE_BYTES, GID_ENTRY_BYTES, PORT_BYTES};

/// `IB_USER_VERBS_CMD_GET_CONTEXT`.
const GET_CONTEXT: u32 = 0;
/// `IB_USER_VERBS_CMD_QUERY_DEVICE`.
const QUERY_DEVICE: u32 = 1;
/// `IB_USER_VERBS_CMD_QUERY_PORT`.
const QUERY_PORT: u32 = 2;

/// `RDMA_VERBS_IOCTL`: `_IOWR(0x1b, 1, struct ib_uverbs_ioctl_hdr)`. Architectures differ in the bits of the direction.
const VERBS_IOCTL: libc::c_ulong = {
    let both = if cfg!(any(
        target_arch = "powerpc",
        target_arch = "powerpc64",
        target_arch = "mips",
        target_arch = "mips64",
        target_arch = "sparc64"
    )) {
        0x6000_0000
    } else {
        0xc000_0000
    };
    both | (IOCTL_HEAD_BYTES as libc::c_ulong) << 16 | 0x1b01
};
/// `struct ib_uverbs_ioctl_hdr` without its attributes.
const IOCTL_HEAD_BYTES: usize = 24;
/// `struct ib_uverbs_attr`.
const IOCTL_ATTRIBUTE_BYTES: usize = 16;
/// More drivers than there are (`enum rdma_driver_id`: 20 in Linux 6.12).
const DRIVERS_MAX: u32 = 63;
/// `UVERBS_OBJECT_DEVICE`.
const OBJECT_DEVICE: u16 = 0;
/// `UVERBS_METHOD_QUERY_GID_TABLE`.
const QUERY_GID_TABLE: u16 = 5;
/// `UVERBS_ATTR_F_MANDATORY`.
const MANDATORY: u16 = 1;
/// As many entries as the length of an attribute allows, 16 bits; a device with more set GIDs is read by its files.
const GIDS_MAX: usize = u16::MAX as usize / GID_ENTRY_BYTES;

/// The header and the address of the response.
const HEAD_BYTES: usize = 16;
/// The size of a response buffer. Some drivers write their own part of a context's response (the largest is below 200
/// bytes) whatever size they were given.
const ANSWER_BYTES: usize = 4096;
/// That size in words of four bytes, for the header.
const ANSWER_WORDS: u16 = 1024;

/// Driver-specific data for opening a context. Most drivers need none. mlx5 needs the number of doorbell registers
/// (`struct mlx5_ib_alloc_ucontext_req`: 16, of which 4 low latency, as in its library), irdma its ABI version
/// (`struct irdma_alloc_ucontext_req`: 4, at the same offset).
const DRIVER_WORDS: [&[u32]; 2] = [&[], &[16, 4]];

/// An open context. Closing the file ends it, with all driver resources.
#[derive(Debug)]
pub(crate) struct Context(File);

/// The memory for a response.
#[repr(C, align(8))]
struct Answer([u8; ANSWER_BYTES]);

impl Context {
    /// Opens the node at `path`, which must be the character device `number` (major, minor): opening another might
    /// load a module, and the command might mean something else to it.
    pub(crate) fn open(path: &str, number: (u32, u32)) -> io::Result<Self> {
        check(&fs::metadata(path)?, number)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)?;
        check(&file.metadata()?, number)?;
        let context = Self(file);
        let mut words = DRIVER_WORDS.iter();
        loop {
            let Some(driver) = words.next() else {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            };
            match context.make(driver) {
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
                made => return made.map(|()| context),
            }
        }
    }

    fn make(&self, driver: &[u32]) -> io::Result<()> {
        let body: Vec<u8> = driver.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let answer = self.ask(GET_CONTEXT, &body)?;
        let events = answer
            .0
            .first_chunk()
            .copied()
            .map_or(-1, i32::from_ne_bytes);
        if events >= 0 {
            // SAFETY: the kernel has just made this descriptor of the context's events for us and told
            // its number to nobody else; without it the field would still hold -1.
            drop(unsafe { OwnedFd::from_raw_fd(events) });
        }
        Ok(())
    }

    /// The device's capabilities: `struct ib_uverbs_query_device_resp`.
    pub(crate) fn device(&self) -> io::Result<Vec<u8>> {
        let answer = self.ask(QUERY_DEVICE, &[])?;
        Ok(answer.0.iter().take(DEVICE_BYTES).copied().collect())
    }

    /// The port's attributes: `struct ib_uverbs_query_port_resp`.
    pub(crate) fn port(&self, port: u32) -> io::Result<Vec<u8>> {
        let port = u8::try_from(port).map_err(|_| io::ErrorKind::InvalidInput)?;
        let answer = self.ask(QUERY_PORT, &[port, 0, 0, 0, 0, 0, 0, 0])?;
        Ok(answer.0.iter().take(PORT_BYTES).copied().collect())
    }

    /// The set entries of the GID tables of all ports: `struct ib_uverbs_gid_entry`, one after the other. An older kernel
    /// reports `EPROTONOSUPPORT` or `ENOTTY`.
    pub(crate) fn gids(&self) -> io::Result<Vec<u8>> {
        let mut driver = 0;
        loop {
            match self.gids_of(driver) {
                // The driver's number is an argument that the kernel compares, and no file shows it.
                Err(error)
                    if error.raw_os_error() == Some(libc::EINVAL) && driver < DRIVERS_MAX =>
                {
                    driver += 1;
                }
                answer => return answer,
            }
        }
    }

    /// The same, if the driver has this number.
    fn gids_of(&self, driver: u32) -> io::Result<Vec<u8>> {
        // Words of eight bytes: the kernel's structure has 64-bit members.
        let mut entries = vec![0u64; GID_ENTRY_BYTES / 8 * GIDS_MAX];
        let mut count = 0u64;
        // Number, length, and the address of an output, or the value of an input of up to eight bytes: the size of an
        // entry, no flags, the table, and how many of its entries are filled.
        let attributes: [(u16, usize, u64); 4] = [
            (0, 8, GID_ENTRY_BYTES as u64),
            (1, 4, 0),
            (
                2,
                GID_ENTRY_BYTES * GIDS_MAX,
                entries.as_mut_ptr().expose_provenance() as u64,
            ),
            (3, 8, (&raw mut count).expose_provenance() as u64),
        ];
        let length = IOCTL_HEAD_BYTES + attributes.len() * IOCTL_ATTRIBUTE_BYTES;
        let short = |length: usize| {
            u16::try_from(length).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
        };
        let head = [
            short(length)?,
            OBJECT_DEVICE,
            QUERY_GID_TABLE,
            short(attributes.len())?,
        ];
        // A reserved field, the driver, and another reserved field.
        let mut question = vec![of_shorts(head), 0, of_words([driver, 0])];
        for (number, length, data) in attributes {
            question.push(of_shorts([number, short(length)?, MANDATORY, 0]));
            question.push(data);
        }
        // SAFETY: the descriptor is open, and is a uverbs node by its device number; the pointer describes `question`,
        // whose length is in it. The kernel writes to `question`, and to the two addresses in it, at most as much as the
        // lengths beside them: `entries` and `count`, ours alone, which outlive the call.
        let result =
            unsafe { libc::ioctl(self.0.as_raw_fd(), VERBS_IOCTL as _, question.as_mut_ptr()) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the address of `count` was given to the kernel, which may have written to it.
        let count = unsafe { std::ptr::read_volatile(&raw const count) };
        let count = usize::try_from(count).unwrap_or(GIDS_MAX).min(GIDS_MAX);
        let words = entries.into_iter().take(count * GID_ENTRY_BYTES / 8);
        Ok(words.flat_map(u64::to_ne_bytes).collect())
    }

    /// Sends a command with `body` after the header; its length is a multiple of four.
    fn ask(&self, command: u32, body: &[u8]) -> io::Result<Box<Answer>> {
        let length = HEAD_BYTES + body.len();
        let words = u16::try_from(length / 4).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut answer = Box::new(Answer([0xff; ANSWER_BYTES]));
        let address = (&raw mut answer.0).expose_provenance() as u64;
        let mut question = Vec::with_capacity(length);
        question.extend_from_slice(&command.to_ne_bytes());
        question.extend_from_slice(&words.to_ne_bytes());
        question.extend_from_slice(&ANSWER_WORDS.to_ne_bytes());
        question.extend_from_slice(&address.to_ne_bytes());
        question.extend_from_slice(body);
        // SAFETY: the descriptor is open, and is a uverbs node by its device number; the pointer and the
        // length describe `question`, which is only read. The kernel writes to the address inside it,
        // before the call returns and never after: that is `answer`, ours alone and longer than any
        // answer to these three commands, none of which registers memory.
        let written =
            unsafe { libc::write(self.0.as_raw_fd(), question.as_ptr().cast(), question.len()) };
        if written < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(answer)
    }
}

/// Four fields of two bytes, as they stand in memory.
fn of_shorts(four: [u16; 4]) -> u64 {
    let mut bytes = [0; 8];
    for (pair, short) in bytes.chunks_exact_mut(2).zip(four) {
        pair.copy_from_slice(&short.to_ne_bytes());
    }
    u64::from_ne_bytes(bytes)
}

/// Two fields of four bytes.
fn of_words(two: [u32; 2]) -> u64 {
    let mut bytes = [0; 8];
    for (part, word) in bytes.chunks_exact_mut(4).zip(two) {
        part.copy_from_slice(&word.to_ne_bytes());
    }
    u64::from_ne_bytes(bytes)
}

fn check(found: &fs::Metadata, (major, minor): (u32, u32)) -> io::Result<()> {
    let own = (
        rustix::fs::major(found.rdev()),
        rustix::fs::minor(found.rdev()),
    );
    if found.file_type().is_char_device() && own == (major, minor) {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "it is not the character device {major}:{minor}"
    )))
}
