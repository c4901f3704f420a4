//! iperf3 at the other end: `measure --iperf3` and `agent --iperf3`, and its JSON document for tools that
//! read it.

mod document;
mod start;
mod streams;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

pub use document::{Iperf3Run, iperf3_json};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::protocol::Failure;
use linerate_model::sample::Sample;
use linerate_model::units::{BitRate, Bytes, Nanoseconds};
use linerate_model::workload::{Direction, TrialSpec};
use linerate_traffic::TrafficError;
use linerate_traffic::iperf3::{Finished, Foreign, Iperf3Server, measure};
use linerate_traffic::iperf3_protocol::TalkError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

use crate::console::clock::now_unix_s;
use crate::console::interrupt::Interrupt;
use crate::console::say::{Format, Say};
use crate::endpoint::record::record;
use crate::endpoint::trial::{cut_short, source_towards};

/// How long a server is given to be free again after a test, and how often it is asked: iperf3's is within
/// a second.
const FREE_MAX: Duration = Duration::from_secs(5);
const FREE_BEAT: Duration = Duration::from_millis(100);

/// A measurement against an iperf3 server.
#[derive(Debug)]
pub struct ForeignMeasurement {
    /// Both ends as one sample, flagged `foreign-peer`: of the remote end only what iperf3 reports is known.
    pub sample: Sample,
    /// Data from the server, and the connections.
    pub foreign: Foreign,
    /// When it began, in seconds since 1970.
    pub began_unix_s: u64,
}

/// Measures `spec`, a `stream` or `udp`, with the iperf3 server at `server`, and records this end as any.
pub fn measure_foreign(
    spec: &TrialSpec,
    server: SocketAddr,
    interrupt: &Interrupt,
) -> Outcome<ForeignMeasurement> {
    measured(spec, server, interrupt).map_err(Unmeasured::stop)
}

/// The same right after another test there: a server that is not free again by then is waited for.
pub fn measure_foreign_again(
    spec: &TrialSpec,
    server: SocketAddr,
    interrupt: &Interrupt,
) -> Outcome<ForeignMeasurement> {
    let until = Instant::now() + FREE_MAX;
    loop {
        match measured(spec, server, interrupt) {
            Err(unmeasured) if unmeasured.is_busy() && Instant::now() < until => {
                let mut given_up = [PollFd::new(interrupt.abort(), PollFlags::IN)];
                // An interrupted or failed poll only means that it is asked once more.
                let _ = poll(&mut given_up, Timespec::try_from(FREE_BEAT).ok().as_ref());
                interrupt.check()?;
            }
            outcome => return outcome.map_err(Unmeasured::stop),
        }
    }
}

/// Why there is no measurement.
enum Unmeasured {
    Traffic(TrafficError),
    Other(Stop),
}

impl Unmeasured {
    fn is_busy(&self) -> bool {
        let Self::Traffic(error) = self else {
            return false;
        };
        matches!(
            error,
            TrafficError::Iperf3 {
                source: TalkError::Busy,
                ..
            }
        )
    }

    fn stop(self) -> Stop {
        match self {
            Self::Traffic(error) => stop_of(&error),
            Self::Other(stop) => stop,
        }
    }
}

fn measured(
    spec: &TrialSpec,
    server: SocketAddr,
    interrupt: &Interrupt,
) -> Result<ForeignMeasurement, Unmeasured> {
    let began_unix_s = now_unix_s();
    let (mut heard, mut failed) = (None, None);
    // If there is no route to the server, connecting reports it.
    let source = source_towards(server.ip()).ok();
    let abort = interrupt.abort().clone();
    let ends_early = interrupt.during_trial(move || abort.end_early());
    let local = record(spec, source, None, || {
        match measure(spec, server, interrupt.abort()) {
            Ok(foreign) => Ok(heard.insert(foreign).local.clone()),
            Err(error) => {
                failed = Some(error);
                Err(TrafficError::Aborted)
            }
        }
    });
    drop(ends_early);
    if let Some(error) = failed {
        return Err(Unmeasured::Traffic(error));
    }
    interrupt.check().map_err(Unmeasured::Other)?;
    let local = local.map_err(|failure| Unmeasured::Other(failure.into()))?;
    let Some(foreign) = heard else {
        let what = "a record of a test without results from the server";
        return Err(Unmeasured::Other(Stop::new(Code::Bug, what)));
    };
    let foreign = Foreign { local, ..foreign };
    let mut sample = foreign.sample(spec);
    sample.flags.extend(cut_short(interrupt.abort()));
    Ok(ForeignMeasurement {
        sample,
        foreign,
        began_unix_s,
    })
}

/// Serves iperf3's clients on `address` until it is interrupted, with a line for each test on stdout: as
/// text, or one JSON object a line.
pub fn serve(address: SocketAddr, interrupt: &Interrupt, say: &Say) -> Outcome<()> {
    let server = Iperf3Server::open(address).map_err(|error| stop_of(&error))?;
    say.note(&format!(
        "serving iperf3 clients on {} (TCP and UDP); no authentication; Ctrl-C stops it",
        server.address()
    ));
    let served = server.serve(interrupt.abort(), |finished| {
        // A reader that has gone away is no reason to stop serving.
        let _ = match say.format {
            Format::Json => say.json_line(&test_document(&finished)),
            Format::Text | Format::OpenMetrics => say.data(&line_of(&finished)),
        };
    });
    served.map_err(|error| stop_of(&error))
}

fn stop_of(error: &TrafficError) -> Stop {
    match error {
        TrafficError::Aborted => Stop::interrupted(),
        TrafficError::Refused { address } => Stop::new(
            Code::PeerUnreachable,
            format!("connection refused by {address}"),
        )
        .hint("start an iperf3 server there: `iperf3 -s`"),
        _ => Stop::from(Failure::from(error)),
    }
}

/// One finished test, for a person.
fn line_of(finished: &Finished) -> String {
    let client = finished.client;
    let what = finished.parameters.as_ref().map_or_else(
        || "no test".to_owned(),
        |asked| {
            let streams = asked.parallel;
            format!(
                "{} {}, {streams} stream{}",
                if asked.udp { "UDP" } else { "TCP" },
                words(asked.direction),
                if streams == 1 { "" } else { "s" },
            )
        },
    );
    match &finished.outcome {
        Err(error) => format!("{client}  {what}: {error}"),
        Ok(()) => format!("{client}  {what}: {}", moved(finished)),
    }
}

fn words(direction: Direction) -> &'static str {
    match direction {
        Direction::Forward => "from the client",
        Direction::Reverse => "to the client",
        Direction::Bidirectional => "both directions",
    }
}

fn moved(finished: &Finished) -> String {
    let Some((sent, arrived, time)) = finished.moved() else {
        return "nothing recorded".to_owned();
    };
    let part = |what: &str, bytes: Bytes| {
        let rate = BitRate::of(bytes, time).unwrap_or_default();
        format!("{what} {bytes} at {rate}")
    };
    let parts = [("sent", sent), ("received", arrived)];
    let parts = parts.into_iter().filter(|(_, bytes)| bytes.as_u64() > 0);
    let parts: Vec<String> = parts.map(|(what, bytes)| part(what, bytes)).collect();
    format!("{} in {:.2} s", parts.join(", "), time.as_secs_f64())
}

/// One finished test, for a program (schema `linerate.iperf3-test/1`).
pub fn test_document(finished: &Finished) -> Value {
    let asked = finished.parameters.as_ref();
    let moved = finished.moved();
    let rate = |bytes: Bytes, time: Nanoseconds| BitRate::of(bytes, time).map(BitRate::as_f64);
    json!({
        "schema": "linerate.iperf3-test/1",
        "client": finished.client.to_string(),
        "transport": asked.map(|asked| if asked.udp { "udp" } else { "tcp" }),
        "direction": finished.direction(),
        "flows": asked.map(|asked| asked.parallel),
        "seconds": moved.map(|(_, _, time)| time.as_secs_f64()),
        "sent_bytes": moved.map(|(sent, _, _)| sent.as_u64()),
        "received_bytes": moved.map(|(_, arrived, _)| arrived.as_u64()),
        "sent_bit_per_s": moved.and_then(|(sent, _, time)| rate(sent, time)),
        "received_bit_per_s": moved.and_then(|(_, arrived, time)| rate(arrived, time)),
        "error": finished.outcome.as_ref().err().map(ToString::to_string),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_came_to_nothing_is_a_line_that_says_why() {
        let finished = Finished {
            client: ([192, 0, 2, 1], 40_000).into(),
            parameters: None,
            local: None,
            told: None,
            heard: None,
            outcome: Err(TrafficError::Aborted),
        };
        let expected = "192.0.2.1:40000  no test: the trial was aborted";
        assert_eq!(line_of(&finished), expected);
        let json = test_document(&finished);
        assert_eq!(json["error"], "the trial was aborted");
        assert!(json["sent_bytes"].is_null());
    }
}
