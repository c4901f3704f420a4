//! Data connections on their way from the port that the agent listens on to the process of the session whose trial they are
//! for: the process announces the tokens of its trials, and gets each connection that presents one (`SCM_RIGHTS`, unix(7)),
//! with the greeting that was read from it. The process verifies the greeting.
//!
//! ```text
//! process                        listener
//!   1, token (16)           -->                 connections with this token are for me
//!                           <--   greeting (28), and a descriptor
//!   0, token (16)           -->                 no more
//! ```

use std::collections::HashSet;
use std::io::{self, IoSlice, IoSliceMut, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use linerate_model::greeting::GREETING_BYTES;
use linerate_model::protocol::Token;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, sendmsg, socketpair,
};

/// The maximum number of trials of a session that are prepared at a time: its process has one.
const TOKENS_MAX: usize = 16;
/// The maximum length of a session's terms.
const TERMS_BYTES_MAX: usize = 64 << 10;

/// The listener's end.
#[derive(Debug)]
pub(crate) struct Passing {
    socket: OwnedFd,
    tokens: HashSet<[u8; 16]>,
}

impl Passing {
    /// Both ends; the second is for the process.
    pub(crate) fn pair() -> io::Result<(Self, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (socket, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let tokens = HashSet::new();
        Ok((Self { socket, tokens }, theirs))
    }

    /// Reads what the process has announced; false when it is gone.
    pub(crate) fn read_announced(&mut self) -> bool {
        let mut message = [0; 17];
        loop {
            match recv(&self.socket, &mut message, RecvFlags::DONTWAIT) {
                Ok((17, _)) => {
                    let Some((&[word], token)) = message.split_first_chunk::<1>() else {
                        return false;
                    };
                    let Ok(token) = <[u8; 16]>::try_from(token) else {
                        return false;
                    };
                    if word == 0 {
                        self.tokens.remove(&token);
                    } else if self.tokens.len() < TOKENS_MAX {
                        self.tokens.insert(token);
                    }
                }
                Err(Errno::AGAIN) => return true,
                Err(Errno::INTR) => {}
                _ => return false,
            }
        }
    }

    /// Whether a trial of the process expects connections with this token.
    pub(crate) fn expects(&self, token: Token) -> bool {
        self.tokens.contains(&token.0)
    }

    /// Whether a trial of the process expects connections.
    pub(crate) fn expects_any(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// Hands over a connection; false when the process has too many waiting already.
    pub(crate) fn hand_over(
        &self,
        connection: BorrowedFd<'_>,
        greeting: &[u8; GREETING_BYTES],
    ) -> bool {
        // Of a full queue, and of too many descriptors on their way (unix(7), ETOOMANYREFS).
        let sent = send_with(&self.socket, greeting, connection);
        !matches!(sent, Err(Errno::AGAIN | Errno::TOOMANYREFS))
    }
}

impl AsFd for Passing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn send_with(
    socket: impl AsFd,
    bytes: &[u8],
    descriptor: BorrowedFd<'_>,
) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    control.push(SendAncillaryMessage::ScmRights(&descriptors));
    sendmsg(
        socket,
        &[IoSlice::new(bytes)],
        &mut control,
        SendFlags::NOSIGNAL,
    )
}

/// Sends a session's process its terms, and its end of the passing, over its standard input.
pub(crate) fn send_terms(input: &OwnedFd, terms: &[u8], passing: &OwnedFd) -> io::Result<()> {
    let length = u32::try_from(terms.len()).map_err(io::Error::other)?;
    send_with(input, &length.to_be_bytes(), passing.as_fd())?;
    let mut input = std::fs::File::from(input.try_clone()?);
    input.write_all(terms)
}

/// In the session's process: reads its terms, and where its data connections come from, off its standard input, before
/// anything else.
pub fn receive_terms(input: BorrowedFd<'_>) -> io::Result<(Vec<u8>, OwnedFd)> {
    let invalid = || {
        io::Error::new(
            io::ErrorKind::InvalidData,
            "no listening agent has started this process",
        )
    };
    let mut header = [0; 4];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        input,
        &mut [IoSliceMut::new(&mut header)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    );
    let received = match received {
        Err(Errno::NOTSOCK) => return Err(invalid()),
        received => received?,
    };
    let passing = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let length = usize::try_from(u32::from_be_bytes(header)).unwrap_or(usize::MAX);
    let passing = passing.ok_or_else(invalid)?;
    if received.bytes != header.len() || length > TERMS_BYTES_MAX {
        return Err(invalid());
    }
    let mut terms = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match recv(input, &mut terms[filled..], RecvFlags::empty()) {
            Ok((0, _)) => return Err(invalid()),
            Ok((count, _)) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok((terms, passing))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;

    use rustix::net::send;

    use super::*;

    #[test]
    fn a_process_gets_its_terms_and_only_its_own_connections() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let (mut passing, process) = Passing::pair().expect("a pair");
        send_terms(&ours.try_clone().expect("open").into(), b"{}", &process).expect("sent");
        drop(process);
        let (terms, process) = receive_terms(theirs.as_fd()).expect("received");
        assert_eq!(terms, b"{}");
        let (own, other) = (Token([1; 16]), Token([2; 16]));
        let announce = |word: u8| {
            let message = [&[word][..], &own.0].concat();
            send(&process, &message, SendFlags::empty()).expect("sent");
        };
        announce(1);
        assert!(passing.read_announced());
        assert!(passing.expects(own) && !passing.expects(other));
        let (mut near, far) = UnixStream::pair().expect("a pair");
        assert!(passing.hand_over(far.as_fd(), &[7; GREETING_BYTES]));
        drop(far);
        let mut greeting = [0; GREETING_BYTES];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        recvmsg(
            &process,
            &mut [IoSliceMut::new(&mut greeting)],
            &mut control,
            RecvFlags::empty(),
        )
        .expect("a connection");
        let Some(RecvAncillaryMessage::ScmRights(mut taken)) = control.drain().next() else {
            panic!("no descriptor")
        };
        let taken = UnixStream::from(taken.next().expect("one"));
        (&taken).write_all(b"x").expect("sent");
        drop(taken);
        let mut text = String::new();
        near.read_to_string(&mut text).expect("read");
        assert_eq!((text.as_str(), greeting), ("x", [7; GREETING_BYTES]));
        announce(0);
        assert!(passing.read_announced() && !passing.expects(own));
        drop(process);
        assert!(!passing.read_announced(), "the process is gone");
    }

    #[test]
    fn a_process_that_no_listener_started_says_so() {
        let (reader, _writer) = io::pipe().expect("a pipe");
        let error = receive_terms(reader.as_fd()).expect_err("it is a pipe");
        assert!(error.to_string().contains("no listening agent"), "{error}");
        let (near, far) = UnixStream::pair().expect("a pair");
        (&near).write_all(&[0, 0, 0, 2, b'{', b'}']).expect("sent");
        receive_terms(far.as_fd()).expect_err("there is no descriptor");
    }
}
