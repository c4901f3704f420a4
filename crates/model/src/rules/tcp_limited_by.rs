//! `tcp-limited-by`: flows of a trial were limited by a buffer, a window or packet loss. TCP_INFO
//! (include/uapi/linux/tcp.h: `tcpi_rwnd_limited`, `tcpi_sndbuf_limited`, `tcpi_bytes_retrans`);
//! thresholds and figures are those by which `limit` names a trial's limit.

use super::facts::answer;
use super::{BULK, Draft, RULES, judge};
use crate::analysis::{self, Figures, OneWay};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::known::Gap;
use crate::threshold;
use crate::units::{Nanoseconds, Ratio};

pub(super) const RULE: Rule = Rule {
    id: "tcp-limited-by",
    number: 58,
    status: Status::InPart(
        "checks the flows of linerate's own trials, not the sockets of other programs",
    ),
    title: "flows of a trial were limited by a buffer, a window or packet loss",
    severity: Severity::Warn,
    stage: Stage::Errors,
    profiles: BULK,
    judges_by: &[Basis::Trial],
    threshold: "more than 20 % of the busy time limited by the receive window or the send buffer, with no \
                thread CPU-bound (note; warn if tcp-buffer-below-bdp fires too); more than 0.1 % of the bytes \
                retransmitted (warn up to 2 ms RTT, else note)",
    effect: "shows what to fix: buffers, a slow reader, or packet loss",
    source: "tcp_get_info_chrono_stats in net/ipv4/tcp.c; include/uapi/linux/tcp.h",
    fix: Fix::Elsewhere,
    persist: "see the rule that it refers to",
    contested: None,
    page: include_str!("../../../../docs/rules/tcp-limited-by.md"),
    check,
};

/// Within a site.
const NEAR_RTT: Nanoseconds = Nanoseconds::from_millis(2);
const BUFFERS: &str = "tcp-buffer-below-bdp";

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    // Without a trial there is nothing to classify.
    let Some(sample) = context.sample else {
        return Vec::new();
    };
    let mut said = Vec::new();
    let mut missing: Vec<Gap> = Vec::new();
    for way in analysis::ways(sample) {
        let sender = way.from == context.end;
        let figures = Figures::of(&way, &sample.spec);
        if sender {
            said.extend(loss(&way, &figures));
            let gaps = way.sender.senders().filter_map(|flow| flow.tcp.gap());
            missing.extend(gaps.take(1).cloned());
        }
        if cpu_is_left(&figures) {
            said.extend(wait(context, &way, sender, &figures));
        }
    }
    answer(rule, context, "host", said, missing)
}

/// If a thread has no CPU time left, the other end's wait is only a symptom.
fn cpu_is_left(figures: &Figures) -> bool {
    [figures.sender.on_cpu, figures.receiver.on_cpu]
        .into_iter()
        .all(|share| share.is_none_or(|share| share < threshold::CPU_SHARE))
}

/// The send buffer is the sender's, the window the receiver's.
fn wait(context: &Context<'_>, way: &OneWay<'_>, sender: bool, figures: &Figures) -> Option<Draft> {
    let (share, what, sysctl, else_mend) = if sender {
        let fix = "the program sets a small SO_SNDBUF, or the path needs more";
        let sysctl = "net.ipv4.tcp_wmem at the sender";
        (figures.sndbuf_limited, "send buffer", sysctl, fix)
    } else {
        let fix = "the program reads slowly or sets a small SO_RCVBUF";
        let sysctl = "net.ipv4.tcp_rmem at the receiver";
        (figures.rwnd_limited, "receive window", sysctl, fix)
    };
    let share = share.filter(|share| *share > threshold::LIMITED_SHARE)?;
    let explained = RULES.iter().any(|rule| {
        let found = |outcome: &Outcome| matches!(outcome, Outcome::Finding(_));
        rule.id == BUFFERS && judge(rule, context).iter().any(found)
    });
    let fix = if explained {
        format!("raise {sysctl}, see {BUFFERS}")
    } else {
        else_mend.to_owned()
    };
    let flows = match way.sender.senders().count() {
        1 => "1 flow was".to_owned(),
        many => format!("{many} flows were"),
    };
    Some(Draft {
        // A flow may be limited by a buffer that is large enough: that is no fault.
        severity: if explained {
            Severity::Warn
        } else {
            Severity::Note
        },
        subject: "host".to_owned(),
        summary: format!("{flows} limited by the {what} for {share} of the busy time: {fix}"),
        evidence: figures.evidence(),
        remedies: Vec::new(),
    })
}

fn loss(way: &OneWay<'_>, figures: &Figures) -> Option<Draft> {
    let again: Ratio = figures
        .retransmitted
        .filter(|share| *share > threshold::LOSS_SHARE)?;
    let rtt = way.rtt_min();
    let mut evidence: Vec<Evidence> = figures.evidence();
    evidence.extend(rtt.map(|rtt| Evidence::new("minimum RTT", rtt, "TCP_INFO tcpi_min_rtt")));
    // On long paths, packets are lost outside of either end's control.
    let near = rtt.is_some_and(|rtt| rtt <= NEAR_RTT);
    Some(Draft {
        severity: if near { Severity::Warn } else { Severity::Note },
        subject: "host".to_owned(),
        summary: format!(
            "{again} of the bytes were retransmitted: check both ends for drops in rings, qdiscs, shapers and \
             switches, and for cable errors"
        ),
        evidence,
        remedies: Vec::new(),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding};
    use super::*;
    use crate::build::{self, SampleBuilder};
    use crate::known::Known;
    use crate::units::Bytes;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("the send buffer for half of the time", || {
                trial(build::sample().limited(0.0, 0.5))
            }),
            ("the receive window, at the receiver", || {
                trial(build::sample().limited(0.5, 0.0)).remote()
            }),
            ("a hundredth sent again", || trial(lossy(25_000_000))),
        ],
        silent: &[
            ("no trial", || World::of(build::host().build())),
            ("nothing waited", || trial(build::sample())),
            ("the receive window is not the sender's", || {
                trial(build::sample().limited(0.5, 0.0))
            }),
            ("a thread without time left", || {
                trial(build::sample().limited(0.0, 0.5).cpu_share(0.97, 0.5))
            }),
            ("a few bytes sent again", || trial(lossy(250_000))),
        ],
        undetermined: &[("the kernel says nothing of the flow", || {
            let mut sample = build::sample().build();
            for flow in &mut sample.local.flows {
                flow.tcp = Known::not_asked("TCP_INFO");
            }
            World::of(build::host().build()).tried(sample)
        })],
    };

    fn trial(sample: SampleBuilder) -> World {
        World::of(build::host().build()).tried(sample.build())
    }

    fn lossy(bytes: u64) -> SampleBuilder {
        build::sample().tcp(|tcp| tcp.bytes_retransmitted = Bytes::new(bytes))
    }

    #[test]
    fn it_points_to_the_buffers_only_where_they_are_too_small() {
        let said = |wmem: &str| {
            let host = build::host().sysctl("net.ipv4.tcp_wmem", wmem).build();
            let sample = build::sample().limited(0.0, 0.5).build();
            let world = World::of(host).tried(sample);
            finding(ID, &world.context())
        };
        let small = said("4096 16384 65536");
        assert_eq!(small.severity, Severity::Warn);
        assert!(small.summary.contains(BUFFERS), "{}", small.summary);
        let large = said("4096 16384 67108864");
        assert_eq!(large.severity, Severity::Note);
        assert!(large.summary.contains("SO_SNDBUF"), "{}", large.summary);
    }
}
