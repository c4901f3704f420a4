//! The side of a reverter that the process making the changes holds: its requests, and how it is dismissed.

use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::clock::Boottime;
use super::lock::Lock;

/// What the reverter says when it is armed.
pub(super) const ARMED: &[u8] = b"armed\n";
/// The line that accompanies a lock.
pub(super) const LOCK: &[u8] = b"lock\n";
/// The timeout for arming (it reads its whole program from disk) and for accepting a record.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The connection to an armed reverter.
#[derive(Debug)]
pub struct Guard {
    channel: UnixStream,
}

impl Guard {
    /// Waits until the reverter at the other end of `channel` is armed.
    pub fn armed(channel: UnixStream) -> io::Result<Self> {
        channel.set_read_timeout(Some(PATIENCE))?;
        channel.set_write_timeout(Some(PATIENCE))?;
        let mut said = [0; ARMED.len()];
        (&channel).read_exact(&mut said)?;
        if said != ARMED {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Self { channel })
    }

    /// Sets the deadline for rolling back everything undecided; without one, only when this process ends.
    pub fn allow_until(&self, deadline: Option<Boottime>) -> io::Result<()> {
        let nanoseconds = deadline.map_or(0, |at| at.since_boot().as_nanos());
        self.tell(&format!("deadline {nanoseconds}\n"))
    }

    /// Shares `lock` with the reverter: it ends with the last of both processes.
    pub fn hold(&self, lock: &Lock) -> io::Result<()> {
        let Some(descriptor) = lock.descriptor() else {
            return Ok(());
        };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [descriptor];
        if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let line = [IoSlice::new(LOCK)];
        // Five bytes are sent completely or not at all.
        sendmsg(&self.channel, &line, &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Ends the channel, and waits at most `patience` for the reverter to exit. A timeout is
    /// [`io::ErrorKind::TimedOut`].
    pub fn dismiss(&self, patience: Duration) -> io::Result<()> {
        let is_over = |error: io::Error| match error.kind() {
            io::ErrorKind::WouldBlock => Err(io::ErrorKind::TimedOut.into()),
            // It had exited before.
            io::ErrorKind::NotConnected
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => Ok(()),
            _ => Err(error),
        };
        self.channel.shutdown(Shutdown::Write).or_else(is_over)?;
        self.channel.set_read_timeout(Some(patience))?;
        // It sends nothing more; its end of the channel closes when it exits.
        loop {
            match (&self.channel).read(&mut [0]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => return read.map(drop).or_else(is_over),
            }
        }
    }

    pub(super) fn record(&self, id: &str, line: &str) -> io::Result<()> {
        self.tell(&format!("{id} {line}"))
    }

    fn tell(&self, line: &str) -> io::Result<()> {
        (&self.channel).write_all(line.as_bytes())
    }
}
