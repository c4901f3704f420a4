//! Which phase of a failover took the time: detection (until the first sign of the failure reached the end that sends),
//! convergence (from there until traffic flowed again), or the back-off of TCP's retransmission timer (established
//! connections stalled for longer than the path was interrupted). "Not determined" if the recorded facts do not say.
//!
//! The terms are those of RFC 6413, 2 (failure detection, convergence); `signs` finds the signs.

mod signs;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use self::signs::{Sign, signs};
use super::events::{HostEvents, Loss};
use crate::end::End;
use crate::units::Nanoseconds;

/// A time on an axis that both ends share, in nanoseconds; its origin is the caller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct At(pub i64);

impl At {
    /// The time from `earlier` to this; 0 if it is not later.
    pub fn since(self, earlier: Self) -> Nanoseconds {
        let between = self.0.saturating_sub(earlier.0);
        Nanoseconds::new(u64::try_from(between).unwrap_or(0))
    }

    fn minus(self, time: Nanoseconds) -> Self {
        Self(self.0.saturating_sub_unsigned(time.as_u64()))
    }

    fn plus(self, time: Nanoseconds) -> Self {
        Self(self.0.saturating_add_unsigned(time.as_u64()))
    }
}

/// An interruption of the path in one direction, by send times: no packet that was sent between the two arrived in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interruption {
    /// When the last packet before it was sent.
    pub begin: At,
    /// When the first packet after it was sent.
    pub end: At,
}

impl Interruption {
    /// Its length.
    pub fn length(&self) -> Nanoseconds {
        self.end.since(self.begin)
    }
}

/// The events of one end, and what to add to its times to get to the common axis.
#[derive(Debug, Clone, Copy)]
pub struct Trace<'a> {
    /// The end.
    pub end: End,
    /// Its events.
    pub events: &'a HostEvents,
    /// What is added to its `CLOCK_MONOTONIC`.
    pub offset_ns: i64,
}

impl Trace<'_> {
    fn at(&self, time: Nanoseconds) -> At {
        At(self.offset_ns).plus(time)
    }
}

/// A protocol whose time-out detects that a neighbor is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// BFD (RFC 5880): interval x multiplier.
    Bfd,
    /// BGP (RFC 4271): the hold time.
    Bgp,
    /// OSPF (RFC 2328): the dead interval.
    Ospf,
}

impl Protocol {
    fn name(self) -> &'static str {
        match self {
            Self::Bfd => "BFD",
            Self::Bgp => "BGP's hold time",
            Self::Ospf => "OSPF's dead interval",
        }
    }
}

/// A configured time-out. It expires so long after the last message, which was sent up to one interval before the failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Timer {
    /// The protocol.
    pub protocol: Protocol,
    /// The interval between its messages.
    pub interval_ns: Nanoseconds,
    /// The time-out.
    pub timeout_ns: Nanoseconds,
}

impl Timer {
    fn range(&self) -> Range {
        Range::of_timeout(self.timeout_ns, self.interval_ns)
    }
}

/// What is known about an interruption in one direction.
#[derive(Debug, Clone, Copy)]
pub struct Incident<'a> {
    /// The end that sent; what it noticed counts before what the other end noticed.
    pub sender: End,
    /// The interruption of the path; none if no packet was lost or late.
    pub outage: Option<Interruption>,
    /// How exactly its times are known: the interval of the probes, and the error between the two clocks.
    pub resolution: Nanoseconds,
    /// The longest stall of an established TCP connection in the same direction, if there was one.
    pub tcp_stall: Option<Nanoseconds>,
    /// When the failure was caused, if that is known.
    pub caused: Option<At>,
    /// When it was restored, if that is known.
    pub restored: Option<At>,
    /// The configured time-outs, as far as they are known.
    pub timers: &'a [Timer],
    /// The events of the ends.
    pub traces: &'a [Trace<'a>],
}

/// A phase of a failover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Nothing was interrupted.
    None,
    /// Until the failure was detected.
    Detection,
    /// From then until traffic flowed again.
    Convergence,
    /// TCP waited for its retransmission timer although the path worked again.
    TcpBackoff,
    /// The facts do not say.
    NotDetermined,
}

/// What detected a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Mechanism {
    /// The carrier of an interface.
    Carrier,
    /// Link monitoring of a bond (`miimon`, `arp_interval`).
    LinkMonitoring,
    /// The time-out of LACP.
    Lacp,
    /// A backup router took over by VRRP.
    Vrrp,
    /// The gateway's address moved to another link-layer address.
    GatewayMoved,
    /// A route or a nexthop was withdrawn or changed.
    Routing,
    /// Neighbor unreachability detection.
    Neighbor,
}

/// How long something takes at least and at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Range {
    /// The shortest.
    pub min_ns: Nanoseconds,
    /// The longest.
    pub max_ns: Nanoseconds,
}

impl Range {
    /// A time-out after the last message, which was sent up to an interval before the failure.
    fn of_timeout(timeout: Nanoseconds, interval: Nanoseconds) -> Self {
        let min = timeout.as_u64().saturating_sub(interval.as_u64());
        Self {
            min_ns: Nanoseconds::new(min),
            max_ns: timeout,
        }
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} to {}", self.min_ns, self.max_ns)
    }
}

/// What held up the traffic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Verdict {
    /// The phase that took the most time.
    pub phase: Phase,
    /// What detected the failure.
    pub mechanism: Option<Mechanism>,
    /// From the interruption of the path to the first sign.
    pub detection_ns: Option<Nanoseconds>,
    /// What detection takes by the intervals that were seen or configured.
    pub expected: Option<Range>,
    /// From the first sign until traffic flowed again.
    pub convergence_ns: Option<Nanoseconds>,
    /// How much longer established TCP connections stalled.
    pub tcp_backoff_ns: Option<Nanoseconds>,
    /// The result in a sentence.
    pub summary: String,
    /// What would shorten it.
    pub advice: Option<String>,
    /// The signs, the earliest first, and what is missing.
    pub evidence: Vec<Observation>,
}

/// What an end saw, or why it may have missed something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Observation {
    /// The end, and what it saw.
    pub what: String,
    /// When, since the begin of the interruption; or the reason why it is missing.
    pub value: String,
    /// The source: a notification, a packet.
    pub path: String,
}

impl Observation {
    fn new(what: String, value: impl Into<String>, path: impl Into<String>) -> Self {
        Self {
            what,
            value: value.into(),
            path: path.into(),
        }
    }
}

/// Maximum signs that are shown.
const SIGNS_SHOWN: usize = 12;

/// Finds the phase that took the time.
pub fn judge(incident: &Incident<'_>) -> Verdict {
    let stall = incident.tcp_stall.unwrap_or_default();
    let Some(outage) = incident.outage else {
        return without_outage(incident, stall);
    };
    let all = signs(incident, outage);
    let at_sender = all.iter().find(|sign| sign.end == incident.sender);
    let first = at_sender.or_else(|| all.first());
    let backoff = Nanoseconds::new(stall.as_u64().saturating_sub(outage.length().as_u64()));
    let backoff = (backoff > incident.resolution).then_some(backoff);
    let mut verdict = match first {
        Some(sign) => by_sign(incident, outage, sign, backoff),
        None => without_sign(incident, outage, backoff),
    };
    // A router announces its addresses several times.
    let mut seen = BTreeSet::new();
    let first = all
        .iter()
        .filter(|sign| seen.insert((sign.end, sign.what.as_str())));
    let shown = first.take(SIGNS_SHOWN);
    verdict.evidence = shown.map(|sign| sign.evidence(outage.begin)).collect();
    verdict.evidence.extend(missing(incident, outage));
    verdict
}

fn without_outage(incident: &Incident<'_>, stall: Nanoseconds) -> Verdict {
    let resolution = incident.resolution;
    let stalled = stall > resolution;
    let summary = if stalled {
        format!(
            "no packet lost or late, resolution {resolution}; established TCP connections stalled for {stall}"
        )
    } else {
        format!("no packet lost or late, resolution {resolution}")
    };
    Verdict {
        phase: if stalled {
            Phase::NotDetermined
        } else {
            Phase::None
        },
        mechanism: None,
        detection_ns: None,
        expected: None,
        convergence_ns: None,
        tcp_backoff_ns: None,
        summary,
        advice: None,
        evidence: Vec::new(),
    }
}

fn by_sign(
    incident: &Incident<'_>,
    outage: Interruption,
    sign: &Sign,
    backoff: Option<Nanoseconds>,
) -> Verdict {
    let detection = sign.at.since(outage.begin);
    let convergence = outage.end.since(sign.at.max(outage.begin));
    let waited = backoff.unwrap_or_default();
    let (phase, summary) = if waited > detection.max(convergence) {
        (
            Phase::TcpBackoff,
            format!(
                "TCP back-off: established connections stalled {waited} longer than the path, which was \
                 interrupted for {}",
                outage.length()
            ),
        )
    } else if detection >= convergence {
        let expected = sign.expected.map(|range| format!(" (expected {range})"));
        (
            Phase::Detection,
            format!(
                "detection: {detection}{} of {} until {}",
                expected.unwrap_or_default(),
                outage.length(),
                sign.what
            ),
        )
    } else {
        (
            Phase::Convergence,
            format!(
                "convergence: {convergence} of {} after {}",
                outage.length(),
                sign.what
            ),
        )
    };
    let advice = match phase {
        Phase::TcpBackoff => Some(tcp_advice()),
        Phase::Convergence if convergence > incident.resolution => sign.convergence_advice(),
        Phase::Detection if detection > incident.resolution => sign.detection_advice(),
        _ => None,
    };
    Verdict {
        phase,
        mechanism: Some(sign.mechanism),
        detection_ns: Some(detection),
        expected: sign.expected,
        convergence_ns: Some(convergence),
        tcp_backoff_ns: backoff,
        summary,
        advice,
        evidence: Vec::new(),
    }
}

fn tcp_advice() -> String {
    "each retransmission doubles TCP's timer, so a shorter outage shortens the back-off most; \
     `net.ipv4.tcp_thin_linear_timeouts=1` keeps the timer constant for connections with little data in flight \
     (`net.ipv4.tcp_retries2` decides when a connection is given up, not when it goes on)"
        .to_owned()
}

/// Without a sign: either nothing detected the failure until it was restored, or what did is not among the facts.
fn without_sign(
    incident: &Incident<'_>,
    outage: Interruption,
    backoff: Option<Nanoseconds>,
) -> Verdict {
    let length = outage.length();
    let waited_for_restore = incident
        .restored
        .is_some_and(|restored| outage.end >= restored.minus(incident.resolution));
    let (phase, summary, advice) = if backoff.is_some_and(|backoff| backoff > length) {
        let waited = backoff.unwrap_or_default();
        let summary = format!(
            "TCP back-off: established connections stalled {waited} longer than the path, which was interrupted \
             for {length}"
        );
        (Phase::TcpBackoff, summary, Some(tcp_advice()))
    } else if waited_for_restore {
        let (why, advice) = signs::undetected(incident, outage);
        let summary = format!("detection: {length}, until the failure was restored: {why}");
        (Phase::Detection, summary, Some(advice))
    } else {
        let summary = format!(
            "not determined: the path was interrupted for {length}, and neither end saw a change of links, bonds, \
             routes, neighbors or virtual routers in that time"
        );
        (Phase::NotDetermined, summary, None)
    };
    Verdict {
        phase,
        mechanism: None,
        detection_ns: (phase == Phase::Detection).then_some(length),
        expected: None,
        convergence_ns: None,
        tcp_backoff_ns: backoff,
        summary,
        advice,
        evidence: Vec::new(),
    }
}

/// Configured time-outs; and what could have shown more: sources that were not recorded, and losses during the outage.
fn missing(incident: &Incident<'_>, outage: Interruption) -> Vec<Observation> {
    let mut all = Vec::new();
    for end in [End::Local, End::Remote] {
        let Some(trace) = incident.traces.iter().find(|trace| trace.end == end) else {
            let what = format!("{end}: events");
            all.push(Observation::new(what, "not recorded", "events"));
            continue;
        };
        for timer in &trace.events.timers {
            let what = format!("{end}: {}", timer.protocol.name());
            let value = format!(
                "{}, a message every {}",
                timer.timeout_ns, timer.interval_ns
            );
            all.push(Observation::new(what, value, "vtysh"));
        }
        for gap in &trace.events.gaps {
            let what = format!("{end}: not recorded");
            all.push(Observation::new(what, &gap.reason, gap.path.clone()));
        }
        let overlaps = |loss: &&Loss| {
            trace.at(loss.from_ns) <= outage.end && trace.at(loss.to_ns) >= outage.begin
        };
        for loss in trace.events.losses.iter().filter(overlaps) {
            let what = format!("{end}: events may be missing");
            let span = At(0).plus(loss.to_ns).since(At(0).plus(loss.from_ns));
            all.push(Observation::new(what, format!("for {span}"), &loss.reason));
        }
    }
    all
}

#[cfg(test)]
mod tests;
