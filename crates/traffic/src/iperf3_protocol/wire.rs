//! The messages on iperf3's control connection: one byte for the state of the test, the
//! cookie that ties connections to a test, and JSON with a length prefix.

use std::fmt;

use super::TalkError;

/// The state of a test. All but three are sent by the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i8)]
pub enum State {
    /// Server: all streams are there.
    TestStart = 1,
    /// Server: move data.
    TestRunning = 2,
    /// Client: the data has ended.
    TestEnd = 4,
    /// Server: send the parameters.
    ParamExchange = 9,
    /// Server: open the streams.
    CreateStreams = 10,
    /// Server: it aborts the test.
    ServerTerminate = 11,
    /// Client: it aborts the test.
    ClientTerminate = 12,
    /// Server: send the results, mine follow.
    ExchangeResults = 13,
    /// Server: the results are yours to print.
    DisplayResults = 14,
    /// Client: nothing more will come.
    IperfDone = 16,
    /// Server: it is busy, or does not want this client.
    AccessDenied = -1,
    /// Server: it failed; two numbers follow, its own of the failure and errno.
    ServerError = -2,
}

impl State {
    const ALL: [Self; 12] = [
        Self::TestStart,
        Self::TestRunning,
        Self::TestEnd,
        Self::ParamExchange,
        Self::CreateStreams,
        Self::ServerTerminate,
        Self::ClientTerminate,
        Self::ExchangeResults,
        Self::DisplayResults,
        Self::IperfDone,
        Self::AccessDenied,
        Self::ServerError,
    ];

    /// Its byte on the connection.
    pub const fn byte(self) -> u8 {
        (self as i8).cast_unsigned()
    }

    /// The state that `byte` means, if any.
    pub fn of_byte(byte: u8) -> Result<Self, TalkError> {
        let found = Self::ALL.into_iter().find(|state| state.byte() == byte);
        found.ok_or(TalkError::NotAState { byte })
    }
}

/// The length of a cookie on the connection.
pub const COOKIE_BYTES: usize = 37;

/// What a client presents on each of its connections, so that the server knows which belong together: 36
/// characters, and a NUL.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cookie([u8; COOKIE_BYTES]);

impl Cookie {
    /// The characters of iperf3's own cookies.
    const ALPHABET: &'static [u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

    /// A cookie of these random bytes.
    pub fn of_random(random: &[u8; COOKIE_BYTES - 1]) -> Self {
        let mut bytes = [0; COOKIE_BYTES];
        for (place, byte) in bytes.iter_mut().zip(random) {
            *place = Self::ALPHABET[usize::from(byte % 32)];
        }
        Self(bytes)
    }

    /// The cookie that was presented. What is not visible characters and a NUL is none: another process's
    /// protocol.
    pub fn read(bytes: &[u8; COOKIE_BYTES]) -> Result<Self, TalkError> {
        let (text, end) = bytes.split_at(COOKIE_BYTES - 1);
        if end == [0] && text.iter().all(u8::is_ascii_alphanumeric) {
            Ok(Self(*bytes))
        } else {
            Err(TalkError::NotACookie)
        }
    }

    /// Its form on the connection.
    pub fn bytes(&self) -> &[u8; COOKIE_BYTES] {
        &self.0
    }
}

impl fmt::Display for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.0[..COOKIE_BYTES - 1];
        text.iter()
            .try_for_each(|&byte| write!(f, "{}", char::from(byte)))
    }
}

impl fmt::Debug for Cookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cookie({self})")
    }
}

/// JSON behind its length (32 bits, big endian), read as it arrives. It never asks for a byte of what
/// comes after it, and uses no more memory than has arrived.
#[derive(Debug)]
pub struct Frame {
    limit: usize,
    head: Vec<u8>,
    body: Vec<u8>,
}

/// Maximum that is read at once.
const PIECE: usize = 64 << 10;

impl Frame {
    /// What a server takes as parameters: iperf3's own limit.
    pub const PARAMETERS_MAX: usize = 8 << 10;
    /// What we take as results: those of 256 streams have a hundredth of it, and the rest is for the output
    /// that some servers add.
    pub const RESULTS_MAX: usize = 4 << 20;

    /// Nothing has arrived yet; longer than `limit` it must not be.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            head: Vec::new(),
            body: Vec::new(),
        }
    }

    fn length(&self) -> Option<usize> {
        let head: [u8; 4] = self.head.as_slice().try_into().ok()?;
        usize::try_from(u32::from_be_bytes(head)).ok()
    }

    /// How many bytes to read next; 0 when it is whole.
    pub fn wanted(&self) -> usize {
        match self.length() {
            None => 4 - self.head.len(),
            Some(length) => (length - self.body.len()).min(PIECE),
        }
    }

    /// Takes what was read, at most as much as was wanted.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), TalkError> {
        let bytes = &bytes[..bytes.len().min(self.wanted())];
        if self.length().is_some() {
            self.body.extend_from_slice(bytes);
            return Ok(());
        }
        self.head.extend_from_slice(bytes);
        match self.length() {
            Some(length) if length > self.limit => Err(TalkError::TooLong {
                length,
                limit: self.limit,
            }),
            _ => Ok(()),
        }
    }

    /// The JSON.
    pub fn into_body(self) -> Vec<u8> {
        self.body
    }

    /// `json` behind its length.
    pub fn write(json: &str) -> Vec<u8> {
        let length = u32::try_from(json.len()).unwrap_or(u32::MAX);
        let mut bytes = length.to_be_bytes().to_vec();
        bytes.extend_from_slice(json.as_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_state_reads_back_and_no_other_byte_is_one() {
        let states = (0..=u8::MAX).filter_map(|byte| State::of_byte(byte).ok());
        assert_eq!(states.count(), State::ALL.len());
        assert_eq!(State::of_byte(0xFF), Ok(State::AccessDenied));
        assert_eq!(State::of_byte(0xFE), Ok(State::ServerError));
        assert!(State::of_byte(3).is_err());
    }

    proptest! {
        #[test]
        fn a_cookie_of_ours_reads_back(random: [u8; 32]) {
            let mut bytes = [7; COOKIE_BYTES - 1];
            bytes[..32].copy_from_slice(&random);
            let cookie = Cookie::of_random(&bytes);
            prop_assert_eq!(Cookie::read(cookie.bytes()), Ok(cookie));
            prop_assert_eq!(cookie.to_string().len(), 36);
        }

        #[test]
        fn a_frame_reads_back_in_pieces_of_any_size_and_leaves_what_follows(
            json in "\\PC{0,300}",
            pieces in proptest::collection::vec(1usize..50, 1..400),
        ) {
            let mut bytes = Frame::write(&json);
            bytes.extend_from_slice(&[14, 14]);
            let mut frame = Frame::new(Frame::PARAMETERS_MAX);
            let mut left = bytes.as_slice();
            let mut pieces = pieces.iter().cycle();
            while frame.wanted() > 0 {
                let count = frame.wanted().min(*pieces.next().expect("a cycle"));
                let (piece, rest) = left.split_at(count);
                frame.push(piece).expect("short enough");
                left = rest;
            }
            prop_assert_eq!(left, &[14, 14]);
            prop_assert_eq!(frame.into_body(), json.as_bytes());
        }

        #[test]
        fn a_frame_that_says_it_is_too_long_is_refused_before_it_is_read(length in 8193u32..) {
            let mut frame = Frame::new(Frame::PARAMETERS_MAX);
            prop_assert!(frame.push(&length.to_be_bytes()).is_err());
        }
    }
}
