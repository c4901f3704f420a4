//! `tcp-retransmit`: TCP retransmits more than a path without loss needs. Counters of RFC 4022 (`tcpRetransSegs`,
//! `tcpOutSegs`) from `/proc/net/snmp`; Documentation/networking/snmp_counter.rst.

use super::facts::answer;
use super::{ALWAYS, Draft, watched};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::known::Known;
use crate::units::{Ratio, real};
use crate::watch::Watch;

pub(super) const RULE: Rule = Rule {
    id: "tcp-retransmit",
    number: 103,
    status: Status::AdviceOnly,
    title: "TCP retransmits a large share of its segments",
    severity: Severity::Warn,
    stage: Stage::Errors,
    profiles: ALWAYS,
    judges_by: &[Basis::Counters],
    threshold: "at least 1 % of at least 1000 segments were retransmissions while watched (warn); 0.1 % (note); \
                more than one segment per second with a bad checksum (warn)",
    effect: "loss-based congestion control: the rate falls with the square root of the loss (Mathis et al., 1997)",
    source: "RFC 4022 (tcpRetransSegs, tcpOutSegs); Documentation/networking/snmp_counter.rst; thresholds of \
             linerate",
    fix: Fix::Elsewhere,
    persist: "nothing to set: find where packets are lost",
    contested: None,
    page: include_str!("../../../../docs/rules/tcp-retransmit.md"),
    check,
};

const RETRANSMITTED: &str = "snmp/Tcp/RetransSegs";
const SENT: &str = "snmp/Tcp/OutSegs";
/// A path without loss retransmits next to nothing.
const NOTE: Ratio = Ratio::new(0.001);
const WARN: Ratio = Ratio::new(0.01);
/// Fewer segments say nothing about the path.
const ENOUGH: u64 = 1_000;
/// Received segments that were dropped for their checksum, since Linux 3.10; before, among `InErrs`.
const DAMAGED: [&str; 2] = ["snmp/Tcp/InCsumErrors", "snmp/Tcp/InErrs"];
/// Bad checksums per second that no stray packet explains.
const DAMAGED_PER_SECOND: f64 = 1.0;
/// Counters that show why.
const SIGNS: [&str; 5] = [
    "netstat/TcpExt/TCPTimeouts",
    "netstat/TcpExt/TCPLostRetransmit",
    "netstat/TcpExt/TCPDSACKRecv",
    "netstat/TcpExt/TCPSpuriousRtxHostQueues",
    "netstat/TcpExt/TCPRetransFail",
];

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let watch = match watched(rule, context) {
        Ok(watch) => watch,
        Err(unsure) => return unsure,
    };
    let damaged = damaged(watch);
    let (again, sent) = match (watch.grown(RETRANSMITTED), watch.grown(SENT)) {
        (Known::Value(again), Known::Value(sent)) => (again, sent),
        (Known::Unknown(gap), _) | (_, Known::Unknown(gap)) => {
            return answer(rule, context, "host", None, vec![gap]);
        }
    };
    // The kernel counts retransmissions apart from `OutSegs`.
    let all = sent.saturating_add(again);
    let share = real(again) / real(all.max(1));
    if all < ENOUGH || share < NOTE.as_f64() {
        return answer(rule, context, "host", damaged, Vec::new());
    }
    let severity = if share < WARN.as_f64() {
        Severity::Note
    } else {
        Severity::Warn
    };
    let signs = SIGNS.iter().map(|key| (*key, watch.grown(key)));
    let signs = signs.filter_map(|(key, grown)| match grown {
        Known::Value(by) if by > 0 => Some((key, by)),
        _ => None,
    });
    let grew = [(RETRANSMITTED, again), (SENT, sent)]
        .into_iter()
        .chain(signs);
    let evidence = grew.map(|(key, by)| {
        let name = key.rsplit('/').next().unwrap_or(key);
        Evidence::new(name, format!("+{by} in {}", watch.span_ns), watch.path(key))
    });
    let said = Draft {
        severity,
        subject: "host".to_owned(),
        summary: format!(
            "TCP retransmitted {} of its segments ({again} in {}): find the drops on the path, at both NICs and in \
             qdiscs",
            Ratio::new(share),
            watch.span_ns
        ),
        evidence: evidence.collect(),
        remedies: Vec::new(),
    };
    let said = std::iter::once(said).chain(damaged);
    answer(rule, context, "host", said, Vec::new())
}

/// Segments that arrived with a bad checksum: something between the sender's checksum and this stack changes packets.
fn damaged(watch: &Watch) -> Option<Draft> {
    let (key, by) = DAMAGED
        .into_iter()
        .find_map(|key| Some((key, watch.grown(key).get()?)))?;
    let often = DAMAGED_PER_SECOND * watch.span_ns.as_secs_f64();
    (real(by) > often).then(|| {
        let name = key.rsplit('/').next().unwrap_or(key);
        let grew = format!("+{by} in {}", watch.span_ns);
        Draft {
            severity: Severity::Warn,
            subject: "host".to_owned(),
            summary: format!(
                "TCP dropped received segments with a bad checksum or header ({name} {grew}): a NIC, driver, tunnel \
                 or middlebox on the path changes packets; turn off rx-checksum for comparison"
            ),
            evidence: vec![Evidence::new(name, grew, watch.path(key))],
            remedies: Vec::new(),
        }
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding};
    use super::*;
    use crate::build;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("4 % of the segments", || sent(96_000, 4_000)),
            ("bad checksums", || {
                sent(1_000_000, 0).watched(|w| w.grew("snmp/Tcp/InCsumErrors", 900))
            }),
            ("0.2 %", || sent(998_000, 2_000)),
        ],
        silent: &[
            ("one in a hundred thousand", || sent(1_000_000, 10)),
            ("a handful of segments", || sent(10, 5)),
        ],
        undetermined: &[
            ("not watched", || World::of(build::host().build())),
            ("the counters were not read", || {
                sent(96_000, 4_000).watched(|w| w.without(RETRANSMITTED))
            }),
        ],
    };

    fn sent(segments: u64, again: u64) -> World {
        World::of(build::host().build())
            .watched(|w| w.grew(SENT, segments).grew(RETRANSMITTED, again))
    }

    #[test]
    fn the_share_decides_about_the_severity() {
        let severity = |again| finding(RULE.id, &sent(100_000, again).context()).severity;
        assert_eq!(severity(900), Severity::Note);
        assert_eq!(severity(1_100), Severity::Warn);
        let said = finding(RULE.id, &sent(96_000, 4_000).context());
        assert!(
            said.summary.contains("4.0 %") || said.summary.contains("4 %"),
            "{}",
            said.summary
        );
    }
}
