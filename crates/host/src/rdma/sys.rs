//! A context on a uverbs node: three questions of the write interface (`<rdma/ib_user_verbs.h>`), whose
//! answers the kernel writes to an address that stands inside the question.
#![allow(
    unsafe_code,
    reason = "the kernel writes its answer to memory that is named in the bytes of a question"
)]

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};

use super::uverbs::{DEVICE_BYTES, PORT_BYTES};

/// `IB_USER_VERBS_CMD_GET_CONTEXT`.
const GET_CONTEXT: u32 = 0;
/// `IB_USER_VERBS_CMD_QUERY_DEVICE`.
const QUERY_DEVICE: u32 = 1;
/// `IB_USER_VERBS_CMD_QUERY_PORT`.
const QUERY_PORT: u32 = 2;

/// The header and the address of the answer.
const HEAD_BYTES: usize = 16;
/// The room for an answer. Some drivers write their own part of a context's (the largest is below 200
/// bytes) whatever length they were told of.
const ANSWER_BYTES: usize = 4096;
/// That number in words of four bytes, as the header wants it.
const ANSWER_WORDS: u16 = 1024;

/// What drivers want to be told when a context is opened. Most want nothing. mlx5 wants numbers of
/// doorbell registers (`struct mlx5_ib_alloc_ucontext_req`: 16, of which 4 of low latency, as its library
/// does), irdma the version of its interface (`struct irdma_alloc_ucontext_req`: 4, at the same place).
const DRIVER_WORDS: [&[u32]; 2] = [&[], &[16, 4]];

/// An open context. It ends, with all that the driver made for it, when the file is closed.
#[derive(Debug)]
pub(crate) struct Context(File);

/// The memory that the kernel writes an answer to.
#[repr(C, align(8))]
struct Answer([u8; ANSWER_BYTES]);

impl Context {
    /// Opens the node at `path`, which must be the character device `number` (major, minor): of another
    /// the kernel might load a module, and a question might mean something else to it.
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

    /// What the device can do: `struct ib_uverbs_query_device_resp`.
    pub(crate) fn device(&self) -> io::Result<Vec<u8>> {
        let answer = self.ask(QUERY_DEVICE, &[])?;
        Ok(answer.0.iter().take(DEVICE_BYTES).copied().collect())
    }

    /// How a port is: `struct ib_uverbs_query_port_resp`.
    pub(crate) fn port(&self, port: u32) -> io::Result<Vec<u8>> {
        let port = u8::try_from(port).map_err(|_| io::ErrorKind::InvalidInput)?;
        let answer = self.ask(QUERY_PORT, &[port, 0, 0, 0, 0, 0, 0, 0])?;
        Ok(answer.0.iter().take(PORT_BYTES).copied().collect())
    }

    /// Asks, with `body` behind the head; its length is a multiple of four.
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
