//! The protocol between two ends as state machines without I/O: bytes and messages in, actions out. The loops that
//! read and write are in `linerate_runtime::endpoint::{agent, peer}`.

use std::net::SocketAddr;

use crate::failover::TrialCommands;
use crate::plan::Plan;
use crate::protocol::{Failure, FailureKind, PROTOCOL, Reply, Request, Token};
use crate::setting::SettingKey;
use crate::units::Nanoseconds;
use crate::workload::TrialSpec;

/// Splits a stream of bytes into lines, and rejects a line above its limit.
#[derive(Debug, Default)]
pub struct Lines {
    held: Vec<u8>,
    searched: usize,
    /// The bytes of `held` after the last line end: each byte is scanned once, however long the message.
    unfinished: usize,
}

/// A line exceeded this many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a message is longer than {0} bytes")]
pub struct LineTooLong(pub usize);

impl Lines {
    /// Adds received bytes. `bytes_max` is the limit of a line, by its beginning.
    pub fn push(
        &mut self,
        bytes: &[u8],
        bytes_max: impl Fn(&[u8]) -> usize,
    ) -> Result<(), LineTooLong> {
        self.held.extend_from_slice(bytes);
        self.unfinished = match bytes.iter().rposition(|&byte| byte == b'\n') {
            Some(end) => bytes.len() - end - 1,
            None => self.unfinished + bytes.len(),
        };
        let most = bytes_max(&self.held[self.held.len() - self.unfinished..]);
        if self.unfinished > most {
            Err(LineTooLong(most))
        } else {
            Ok(())
        }
    }

    /// The next complete line, without its end.
    pub fn next_line(&mut self) -> Option<Vec<u8>> {
        let found = self.held[self.searched..]
            .iter()
            .position(|&byte| byte == b'\n');
        let Some(offset) = found else {
            self.searched = self.held.len();
            return None;
        };
        let rest = self.held.split_off(self.searched + offset + 1);
        let mut line = std::mem::replace(&mut self.held, rest);
        self.searched = 0;
        line.pop();
        Some(line)
    }
}

/// The agent's protocol state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AgentState {
    Greeting,
    Idle,
    Prepared,
    Running,
    Over,
}

/// The agent's side of the protocol.
#[derive(Debug)]
pub struct AgentTalk {
    state: AgentState,
    version: &'static str,
}

/// The agent's next action. Every action but [`AgentAction::Close`] ends in one reply.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentAction {
    /// Answer the greeting.
    Greet,
    /// Read the host.
    ReadHost,
    /// Read the clocks.
    ReadClock,
    /// Read settings.
    ReadSettings(Vec<SettingKey>),
    /// Apply a plan.
    Apply {
        /// The plan.
        plan: Plan,
        /// Whether the controller's management path may be disrupted.
        include_way_in: bool,
    },
    /// Undo the newest plan.
    Undo,
    /// Commit.
    Commit,
    /// Apply a plan with a timeout.
    Lease {
        /// The plan.
        plan: Plan,
        /// Whether the controller's management path may be disrupted.
        include_way_in: bool,
        /// The timeout.
        seconds: u32,
    },
    /// Undo a committed transaction.
    TakeBack {
        /// The transaction.
        id: String,
    },
    /// Listen for the data connections of a trial.
    Prepare {
        /// The trial.
        spec: Box<TrialSpec>,
        /// The token of each connection.
        token: Token,
        /// The address to listen on.
        bind: String,
        /// How often its progress is reported.
        report_ns: Option<Nanoseconds>,
        /// The commands that this end runs in it.
        commands: Option<Box<TrialCommands>>,
        /// Whether its record is kept.
        keep: bool,
    },
    /// Send the record of an earlier trial.
    Fetch(Token),
    /// Remove the record of an earlier trial.
    Discard(Token),
    /// Add records to the run of this rank.
    Keep(Vec<String>),
    /// Open the data connections of a trial with another agent; the reply comes when they are open.
    Connect {
        /// The trial.
        spec: Box<TrialSpec>,
        /// The token of each connection.
        token: Token,
        /// Where the other agent listens.
        target: SocketAddr,
    },
    /// Begin the prepared trial: now, or at a time of `CLOCK_MONOTONIC`.
    Start(Option<Nanoseconds>),
    /// End the trial early, if it still runs.
    EndEarly,
    /// Abort the trial.
    Abort,
    /// Answer with this failure.
    Refuse(Failure),
    /// Undo what is not committed, and end.
    Close,
}

impl AgentTalk {
    /// A session that waits for its greeting; `version` is this program's own.
    pub fn new(version: &'static str) -> Self {
        Self {
            state: AgentState::Greeting,
            version,
        }
    }

    /// The action for one line from the controller.
    pub fn on_line(&mut self, line: &[u8]) -> AgentAction {
        let request = str::from_utf8(line)
            .map_err(serde::de::Error::custom)
            .and_then(serde_json::from_str);
        match request {
            Ok(request) => self.on_request(request),
            Err(error) => refuse(
                FailureKind::BadInput,
                format!("cannot parse the request: {error}"),
            ),
        }
    }

    /// The action for a request.
    pub fn on_request(&mut self, request: Request) -> AgentAction {
        use AgentState::{Greeting, Idle, Over, Prepared, Running};
        match (self.state, request) {
            (_, Request::Bye) => {
                self.state = Over;
                AgentAction::Close
            }
            (Greeting, Request::Hello { protocol, version }) => {
                if protocol != PROTOCOL {
                    return refuse(
                        FailureKind::Version,
                        format!(
                            "the controller (linerate {version}) speaks protocol {protocol}, this agent \
                             (linerate {}) speaks {PROTOCOL}",
                            self.version
                        ),
                    );
                }
                self.state = Idle;
                AgentAction::Greet
            }
            // The trial goes on.
            (Idle | Prepared | Running, Request::Keep(records)) => AgentAction::Keep(records),
            (Idle, request) if is_of_host(&request) => of_host(request),
            (Idle, request @ (Request::Prepare { .. } | Request::Connect { .. })) => {
                let action = preparation(request);
                if !matches!(action, AgentAction::Refuse(_)) {
                    self.state = Prepared;
                }
                action
            }
            (Prepared, Request::Start) => {
                self.state = Running;
                AgentAction::Start(None)
            }
            (Prepared, Request::StartAt { at_ns }) => {
                self.state = Running;
                AgentAction::Start(Some(at_ns))
            }
            // It may be over before it is to end early.
            (Idle | Running, Request::EndEarly) => AgentAction::EndEarly,
            (Idle | Prepared | Running, Request::Abort) => {
                self.state = Idle;
                AgentAction::Abort
            }
            (state, request) => refuse(
                FailureKind::BadInput,
                format!(
                    "unexpected `{}` (the agent is in state {state:?})",
                    name(&request)
                ),
            ),
        }
    }

    /// The trial ended, or could not be prepared.
    pub fn on_trial_over(&mut self) {
        if matches!(self.state, AgentState::Prepared | AgentState::Running) {
            self.state = AgentState::Idle;
        }
    }
}

/// Whether a request concerns the host, not a trial.
fn is_of_host(request: &Request) -> bool {
    !matches!(
        request,
        Request::Hello { .. }
            | Request::Prepare { .. }
            | Request::Connect { .. }
            | Request::Start
            | Request::StartAt { .. }
            | Request::EndEarly
            | Request::Abort
            | Request::Bye
    )
}

/// The action of an idle agent for a request that concerns its host.
fn of_host(request: Request) -> AgentAction {
    match request {
        Request::ReadHost => AgentAction::ReadHost,
        Request::ReadClock => AgentAction::ReadClock,
        Request::ReadSettings(keys) => AgentAction::ReadSettings(keys),
        Request::Apply {
            plan,
            include_way_in,
        } => AgentAction::Apply {
            plan,
            include_way_in,
        },
        Request::Undo => AgentAction::Undo,
        Request::Commit => AgentAction::Commit,
        Request::Lease {
            plan,
            include_way_in,
            seconds,
        } => AgentAction::Lease {
            plan,
            include_way_in,
            seconds,
        },
        Request::TakeBack { id } => AgentAction::TakeBack { id },
        Request::Fetch { token } => AgentAction::Fetch(token),
        Request::Discard { token } => AgentAction::Discard(token),
        other => refuse(
            FailureKind::BadInput,
            format!("`{}` is only valid during a trial", name(&other)),
        ),
    }
}

/// What prepares a trial at either of its ends; a refusal for any other request.
fn preparation(request: Request) -> AgentAction {
    match request {
        Request::Prepare {
            spec,
            token,
            bind,
            report_ns,
            commands,
            keep,
        } => {
            if let Err(failure) = check(&spec) {
                return AgentAction::Refuse(failure);
            }
            if let Some(why) = commands.as_ref().and_then(|one| one.refusal()) {
                return refuse(FailureKind::BadInput, why);
            }
            AgentAction::Prepare {
                spec,
                token,
                bind,
                report_ns,
                commands,
                keep,
            }
        }
        Request::Connect {
            spec,
            token,
            target,
        } => match check(&spec) {
            Ok(()) => AgentAction::Connect {
                spec,
                token,
                target,
            },
            Err(failure) => AgentAction::Refuse(failure),
        },
        request => refuse(
            FailureKind::BadInput,
            format!("`{}` prepares no trial", name(&request)),
        ),
    }
}

/// Refuses a trial that no two hosts can run.
fn check(spec: &TrialSpec) -> Result<(), Failure> {
    let refused = |message| Failure {
        kind: FailureKind::BadInput,
        message,
    };
    spec.check().map_err(|error| refused(error.to_string()))?;
    if spec.workload.is_local() {
        let why = format!("`{}` runs on one host alone", spec.workload.name());
        return Err(refused(why));
    }
    Ok(())
}

fn refuse(kind: FailureKind, message: String) -> AgentAction {
    AgentAction::Refuse(Failure { kind, message })
}

fn name(request: &Request) -> &'static str {
    match request {
        Request::Hello { .. } => "hello",
        Request::ReadHost => "read-host",
        Request::ReadClock => "read-clock",
        Request::ReadSettings(_) => "read-settings",
        Request::Apply { .. } => "apply",
        Request::Undo => "undo",
        Request::Commit => "commit",
        Request::Lease { .. } => "lease",
        Request::TakeBack { .. } => "take-back",
        Request::Prepare { .. } => "prepare",
        Request::Connect { .. } => "connect",
        Request::Start => "start",
        Request::StartAt { .. } => "start-at",
        Request::EndEarly => "end-early",
        Request::Abort => "abort",
        Request::Fetch { .. } => "fetch",
        Request::Discard { .. } => "discard",
        Request::Keep(_) => "keep",
        Request::Bye => "bye",
    }
}

/// The controller's side: which reply answers which request.
///
/// A failure passes through; a reply to another request means that the two ends are out of sync, and nothing after it
/// can be trusted.
pub fn answer(asked: &Request, reply: Reply) -> Result<Reply, Failure> {
    let fits = matches!(
        (asked, &reply),
        (Request::ReadSettings(keys), Reply::Settings(values)) if keys.len() == values.len()
    ) || matches!(
        (asked, &reply),
        (Request::Hello { .. }, Reply::Hello { .. })
            | (Request::ReadHost, Reply::Host(_))
            | (Request::ReadClock, Reply::Clock { .. })
            | (Request::Apply { .. }, Reply::Applied)
            | (Request::Undo | Request::TakeBack { .. }, Reply::Undone)
            | (Request::Lease { .. }, Reply::Leased { .. })
            | (Request::Commit, Reply::Committed)
            | (Request::Prepare { .. }, Reply::Prepared { .. })
            | (Request::Connect { .. }, Reply::Connected)
            | (
                Request::Start | Request::StartAt { .. } | Request::Fetch { .. },
                Reply::Done(_)
            )
            | (Request::Discard { .. }, Reply::Discarded)
            | (Request::Keep(_), Reply::Kept)
            | (Request::Abort, Reply::Aborted)
    );
    match reply {
        Reply::Failed(failure) => Err(failure),
        Reply::Hello {
            protocol, version, ..
        } if protocol != PROTOCOL => Err(Failure {
            kind: FailureKind::Version,
            message: format!(
                "the remote end runs linerate {version} with protocol {protocol}, this end uses \
                 protocol {PROTOCOL}"
            ),
        }),
        reply if fits => Ok(reply),
        _ => Err(Failure {
            kind: FailureKind::Other,
            message: format!(
                "the remote end sent an unexpected response to `{}`",
                name(asked)
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::protocol::{SETTINGS_MAX, request_bytes_max};

    fn spec() -> TrialSpec {
        TrialSpec {
            duration_ns: Nanoseconds::from_millis(500),
            interval_ns: Nanoseconds::from_millis(50),
            ..TrialSpec::default()
        }
    }

    fn prepare() -> Request {
        Request::Prepare {
            spec: Box::new(spec()),
            token: Token([7; 16]),
            bind: String::new(),
            report_ns: None,
            commands: None,
            keep: false,
        }
    }

    fn hello(protocol: u32) -> Request {
        Request::Hello {
            protocol,
            version: "0.0.0".to_owned(),
        }
    }

    fn greeted() -> AgentTalk {
        let mut talk = AgentTalk::new("0.0.0");
        assert_eq!(talk.on_request(hello(PROTOCOL)), AgentAction::Greet);
        talk
    }

    #[test]
    fn nothing_is_done_before_the_greeting() {
        let mut talk = AgentTalk::new("0.0.0");
        assert!(matches!(
            talk.on_request(Request::ReadHost),
            AgentAction::Refuse(_)
        ));
        assert!(matches!(talk.on_request(prepare()), AgentAction::Refuse(_)));
    }

    #[test]
    fn another_protocol_is_refused_by_name() {
        let mut talk = AgentTalk::new("0.0.0");
        let AgentAction::Refuse(failure) = talk.on_request(hello(PROTOCOL + 1)) else {
            panic!("it was not refused")
        };
        assert_eq!(failure.kind, FailureKind::Version);
    }

    #[test]
    fn no_setting_changes_while_a_trial_runs() {
        let mut talk = greeted();
        assert!(matches!(
            talk.on_request(prepare()),
            AgentAction::Prepare { .. }
        ));
        assert_eq!(talk.on_request(Request::Start), AgentAction::Start(None));
        let change = Request::Apply {
            plan: Plan::default(),
            include_way_in: false,
        };
        assert!(matches!(
            talk.on_request(change.clone()),
            AgentAction::Refuse(_)
        ));
        talk.on_trial_over();
        assert!(matches!(talk.on_request(change), AgentAction::Apply { .. }));
    }

    #[test]
    fn a_trial_that_was_given_up_can_be_prepared_again() {
        let mut talk = greeted();
        assert!(matches!(
            talk.on_request(prepare()),
            AgentAction::Prepare { .. }
        ));
        assert_eq!(talk.on_request(Request::Abort), AgentAction::Abort);
        assert!(matches!(
            talk.on_request(prepare()),
            AgentAction::Prepare { .. }
        ));
    }

    #[test]
    fn the_connecting_end_of_a_trial_starts_like_the_listening_one() {
        let connect = || Request::Connect {
            spec: Box::new(spec()),
            token: Token([7; 16]),
            target: "10.0.0.1:5000".parse().expect("an address"),
        };
        let at_ns = Nanoseconds::new(7);
        let mut talk = greeted();
        let early = talk.on_request(Request::StartAt { at_ns });
        assert!(matches!(early, AgentAction::Refuse(_)), "{early:?}");
        let action = talk.on_request(connect());
        assert!(matches!(action, AgentAction::Connect { .. }), "{action:?}");
        let twice = talk.on_request(connect());
        assert!(matches!(twice, AgentAction::Refuse(_)), "{twice:?}");
        let start = talk.on_request(Request::StartAt { at_ns });
        assert_eq!(start, AgentAction::Start(Some(at_ns)));
        talk.on_trial_over();
        let clock = talk.on_request(Request::ReadClock);
        assert_eq!(clock, AgentAction::ReadClock);
    }

    #[test]
    fn an_answer_to_another_question_is_not_taken() {
        let failure = answer(&Request::Undo, Reply::Applied).expect_err("it does not fit");
        assert!(failure.message.contains("undo"), "{failure}");
    }

    proptest! {
        #[test]
        fn lines_come_out_as_they_went_in(
            lines in proptest::collection::vec("[a-z]{0,20}", 0..20), cut in 1usize..7,
        ) {
            let stream: Vec<u8> = lines.iter().flat_map(|l| format!("{l}\n").into_bytes()).collect();
            let mut cutter = Lines::default();
            let mut seen = Vec::new();
            for piece in stream.chunks(cut) {
                cutter.push(piece, |_| 20).expect("short lines");
                while let Some(line) = cutter.next_line() {
                    seen.push(String::from_utf8(line).expect("ASCII"));
                }
            }
            prop_assert_eq!(seen, lines);
        }

        #[test]
        fn no_line_panics_the_agent(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut talk = greeted();
            let _ = talk.on_line(&line);
        }
    }

    #[test]
    fn a_request_is_refused_as_soon_as_it_is_longer_than_its_kind_may_be() {
        for (start, most) in [
            (r#"{"apply":{"plan":"#, 16 << 20),
            (r#"{"read-settings":[""#, 4 << 20),
            (r#"{"prepare":{"#, 4 << 20),
            (r#""read-host""#, 64 << 10),
            ("no request", 64 << 10),
            ("", 64 << 10),
        ] {
            let mut lines = Lines::default();
            lines
                .push(b"\"abort\"\n", request_bytes_max)
                .expect("it is short");
            lines
                .push(start.as_bytes(), request_bytes_max)
                .expect("it is short");
            let filler = vec![b' '; most - start.len()];
            assert_eq!(lines.push(&filler, request_bytes_max), Ok(()), "{start}");
            let refused = lines.push(b" ", request_bytes_max);
            assert_eq!(refused, Err(LineTooLong(most)), "{start}");
        }
    }

    #[test]
    fn more_settings_than_may_be_asked_for_are_refused_while_they_are_read() {
        let keys = |count| {
            let keys = vec![r#""sysctl/net.ipv4.tcp_rmem""#; count].join(",");
            format!(r#"{{"read-settings":[{keys}]}}"#)
        };
        let mut talk = greeted();
        let action = talk.on_line(keys(SETTINGS_MAX).as_bytes());
        assert!(matches!(action, AgentAction::ReadSettings(_)));
        let AgentAction::Refuse(failure) = talk.on_line(keys(SETTINGS_MAX + 1).as_bytes()) else {
            panic!("it was not refused")
        };
        assert!(failure.message.contains("16384 items"), "{failure}");
        // As are values without a request.
        let values = format!(r#"{{"settings":[{}0]}}"#, "0,".repeat(SETTINGS_MAX));
        serde_json::from_str::<Reply>(&values).expect_err("it is one too many");
    }
}
