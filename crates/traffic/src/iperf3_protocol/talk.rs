//! The state machines of the two ends of an iperf3 test, without their connections: which messages are valid
//! when, and which action follows.

use std::time::Duration;

use linerate_model::protocol::FailureKind;

use super::wire::State;

/// Why the control dialog with an iperf3 client or server failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TalkError {
    /// The server runs another test.
    #[error(
        "it refused the test: it is busy with another test or just finished one, or it requires \
         authentication; an iperf3 server runs one test at a time"
    )]
    Busy,
    /// The server reported a failure.
    #[error("it failed: its error number is {error}, errno {errno}")]
    Failed {
        /// iperf3's number.
        error: i32,
        /// The kernel's.
        errno: i32,
    },
    /// The other end was interrupted.
    #[error("it was interrupted")]
    Terminated,
    /// The other end closed the control connection.
    #[error("it closed the control connection while waiting for {awaited}")]
    Closed {
        /// What was to come.
        awaited: &'static str,
    },
    /// The other end sent nothing.
    #[error("nothing arrived for {waited:.1?} while waiting for {awaited}")]
    Silent {
        /// What was to come.
        awaited: &'static str,
        /// How long was waited.
        waited: Duration,
    },
    /// No data came any more, though the test went on.
    #[error("no data was transferred for {waited:.1?}: the other end vanished")]
    Idle {
        /// How long.
        waited: Duration,
    },
    /// A byte that is no state.
    #[error("it sent {byte:#04x}, which is not a test state")]
    NotAState {
        /// The byte.
        byte: u8,
    },
    /// A state out of turn.
    #[error("it sent {state:?} while we expected {awaited}")]
    OutOfTurn {
        /// What came.
        state: State,
        /// What was to come.
        awaited: &'static str,
    },
    /// What a connection began with is not iperf3's.
    #[error("it does not speak iperf3's protocol")]
    NotACookie,
    /// JSON longer than is taken.
    #[error("it announced {length} bytes of JSON, above the limit of {limit}")]
    TooLong {
        /// What was announced.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// JSON that cannot be read.
    #[error("its {what} cannot be read: {reason}")]
    Unreadable {
        /// Parameters or results.
        what: &'static str,
        /// Why not.
        reason: String,
    },
    /// A parameter out of its limits.
    #[error("its parameter `{key}` is {given}: allowed is {allowed}")]
    Limit {
        /// The key.
        key: &'static str,
        /// What it was.
        given: String,
        /// What it may be.
        allowed: &'static str,
    },
    /// Something that we do not do with iperf3.
    #[error("{what} is not supported with iperf3 at the other end")]
    NotSupported {
        /// What.
        what: &'static str,
    },
    /// The server has no capacity for one more test, or for its streams.
    #[error("it was refused: {what} are in use")]
    NoRoom {
        /// What there are too many of.
        what: &'static str,
    },
}

impl TalkError {
    /// The kind of failure, which decides the exit code.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Silent { .. } | Self::Idle { .. } => FailureKind::TimeOut,
            Self::NotSupported { .. } => FailureKind::NotSupported,
            Self::Busy | Self::NoRoom { .. } => FailureKind::Resource,
            Self::Limit { .. } => FailureKind::BadInput,
            _ => FailureKind::Other,
        }
    }

    /// "An option you are trying to set is not implemented yet".
    pub(crate) const NOT_HERE: i32 = 13;
    /// "Unable to receive parameters from client".
    pub(super) const NO_PARAMETERS: i32 = 114;

    /// The error number of iperf3 that is sent to a client, which prints it in words (observed by sending each to a
    /// real one).
    pub(crate) fn number(&self) -> i32 {
        match self {
            Self::Limit { key: "time", .. } => 5,
            Self::Limit {
                key: "parallel", ..
            } => 6,
            Self::Limit { key: "len", .. } => 7,
            Self::Limit { key: "window", .. } => 8,
            Self::Limit { key: "MSS", .. } => 10,
            Self::Limit { key: "omit", .. } => 12,
            Self::NotSupported { .. } => Self::NOT_HERE,
            _ => Self::NO_PARAMETERS,
        }
    }
}

/// What a client does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientStep {
    /// Send the parameters.
    SendParameters,
    /// Open the streams.
    OpenStreams,
    /// Get ready: the request to run follows at once.
    MakeReady,
    /// Move data.
    Run,
    /// Send the results, and read the server's.
    ExchangeResults,
    /// Report that the test is done.
    Finish,
    /// Read the two numbers of the server's failure ([`ClientTalk::failure`]).
    ReadFailure,
}

/// The client's side of a talk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientTalk(ClientStage);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientStage {
    Greeted,
    Described,
    Opened,
    Ready,
    Running,
    Ended,
    Exchanged,
    Done,
}

impl Default for ClientTalk {
    fn default() -> Self {
        Self(ClientStage::Greeted)
    }
}

impl ClientTalk {
    /// What is expected next, in words.
    pub fn awaited(self) -> &'static str {
        match self.0 {
            ClientStage::Greeted => "its request for the parameters",
            ClientStage::Described => "its request to open the streams",
            ClientStage::Opened | ClientStage::Ready => "the start",
            ClientStage::Running => "the end of the test",
            ClientStage::Ended => "its request for the results",
            ClientStage::Exchanged => "its confirmation of the end",
            ClientStage::Done => "nothing more",
        }
    }

    /// Takes a byte of the server.
    pub fn hear(&mut self, byte: u8) -> Result<ClientStep, TalkError> {
        use ClientStage as Stage;
        let state = State::of_byte(byte)?;
        let (next, step) = match (self.0, state) {
            (_, State::AccessDenied) => return Err(TalkError::Busy),
            (_, State::ServerTerminate) => return Err(TalkError::Terminated),
            (stage, State::ServerError) => (stage, ClientStep::ReadFailure),
            (Stage::Greeted, State::ParamExchange) => {
                (Stage::Described, ClientStep::SendParameters)
            }
            (Stage::Described, State::CreateStreams) => (Stage::Opened, ClientStep::OpenStreams),
            (Stage::Opened, State::TestStart) => (Stage::Ready, ClientStep::MakeReady),
            (Stage::Ready, State::TestRunning) => (Stage::Running, ClientStep::Run),
            (Stage::Ended, State::ExchangeResults) => {
                (Stage::Exchanged, ClientStep::ExchangeResults)
            }
            (Stage::Exchanged, State::DisplayResults) => (Stage::Done, ClientStep::Finish),
            (_, state) => {
                let awaited = self.awaited();
                return Err(TalkError::OutOfTurn { state, awaited });
            }
        };
        self.0 = next;
        Ok(step)
    }

    /// The data has ended at this end; returns the state to send to the server.
    pub fn end(&mut self) -> State {
        self.0 = ClientStage::Ended;
        State::TestEnd
    }

    /// The server's failure: the two numbers after [`State::ServerError`].
    pub fn failure(numbers: [u8; 8]) -> TalkError {
        let half = |at: usize| {
            let bytes = [0, 1, 2, 3].map(|place| numbers[at + place]);
            i32::from_be_bytes(bytes)
        };
        TalkError::Failed {
            error: half(0),
            errno: half(4),
        }
    }
}

/// The valid messages of a client, by the state of the test at the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerTalk {
    /// Parameters, streams and results are being exchanged: no state byte is due.
    Preparing,
    /// Data moves: the client ends it.
    Running,
    /// The client has the results.
    Showing,
}

impl ServerTalk {
    /// What is expected next, in words.
    pub fn awaited(self) -> &'static str {
        match self {
            Self::Preparing => "its streams",
            Self::Running => "the end of the test",
            Self::Showing => "its confirmation of the end",
        }
    }

    /// Takes a byte of the client; `Ok` is the one that is due.
    pub fn hear(self, byte: u8) -> Result<(), TalkError> {
        match (self, State::of_byte(byte)?) {
            (Self::Running, State::TestEnd) | (Self::Showing, State::IperfDone) => Ok(()),
            (_, State::ClientTerminate) => Err(TalkError::Terminated),
            (_, state) => Err(TalkError::OutOfTurn {
                state,
                awaited: self.awaited(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_test_goes_through_all_its_steps_in_order() {
        let mut talk = ClientTalk::default();
        let mut hear = |byte| talk.hear(byte).expect("in turn");
        assert_eq!(hear(9), ClientStep::SendParameters);
        assert_eq!(hear(10), ClientStep::OpenStreams);
        assert_eq!(hear(1), ClientStep::MakeReady);
        assert_eq!(hear(2), ClientStep::Run);
        assert_eq!(talk.end().byte(), 4);
        let mut hear = |byte| talk.hear(byte).expect("in turn");
        assert_eq!(hear(13), ClientStep::ExchangeResults);
        assert_eq!(hear(14), ClientStep::Finish);
    }

    #[test]
    fn a_busy_and_a_failed_server_are_told_apart() {
        let mut talk = ClientTalk::default();
        assert_eq!(talk.hear(0xFF), Err(TalkError::Busy));
        assert_eq!(talk.hear(0xFE), Ok(ClientStep::ReadFailure));
        let failed = ClientTalk::failure([0, 0, 0, 205, 0, 0, 0, 9]);
        assert_eq!(
            failed,
            TalkError::Failed {
                error: 205,
                errno: 9
            }
        );
    }

    proptest! {
        #[test]
        fn no_order_of_words_leads_a_client_past_a_step(words in proptest::collection::vec(0u8..20, 0..40)) {
            let order = [
                ClientStep::SendParameters,
                ClientStep::OpenStreams,
                ClientStep::MakeReady,
                ClientStep::Run,
            ];
            let mut talk = ClientTalk::default();
            let steps: Vec<_> = words.iter().filter_map(|&word| talk.hear(word).ok()).collect();
            prop_assert!(order.starts_with(&steps), "{:?}", steps);
        }

        #[test]
        fn a_server_takes_only_the_word_that_is_due(byte: u8) {
            prop_assert!(ServerTalk::Preparing.hear(byte).is_err());
            prop_assert_eq!(ServerTalk::Running.hear(byte).is_ok(), byte == 4);
            prop_assert_eq!(ServerTalk::Showing.hear(byte).is_ok(), byte == 16);
        }
    }
}
