//! `socket-drops`: packets are dropped at sockets. Counters of `/proc/net/netstat` and `/proc/net/snmp`
//! (Documentation/networking/snmp_counter.rst).

use super::facts::{Floor, answer, sysctl_evidence, too_low};
use super::{ALWAYS, Draft, remedy, watched};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Remedy, Rule, Severity, Stage, Status,
};
use crate::known::{Gap, Known};
use crate::setting::{Class, SettingKey, Value};
use crate::units::{Ratio, real};
use crate::watch::Watch;

pub(super) const RULE: Rule = Rule {
    id: "socket-drops",
    number: 62,
    status: Status::InPart("drops per socket (inet_diag) are not checked"),
    title: "packets are dropped at sockets",
    severity: Severity::Warn,
    stage: Stage::Errors,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts, Basis::Counters],
    threshold: "any drop at a socket while watched (warn); receive buffers pruned or zero windows without a \
                drop (note); somaxconn below 128, or socket buffers at 90 % of tcp_mem or udp_mem (warn)",
    effect: "TCP retransmits a dropped packet, UDP loses it; no general figure",
    source: "Documentation/networking/snmp_counter.rst",
    fix: Fix::Proposed(&[Class::R1]),
    persist: "the program's listen backlog and SO_RCVBUF; /etc/sysctl.d/90-linerate.conf for their limits",
    contested: None,
    page: include_str!("../../../../docs/rules/socket-drops.md"),
    check,
};

/// Counters with one cause.
struct Trouble {
    severity: Severity,
    what: &'static str,
    mend: &'static str,
    keys: &'static [&'static str],
}

const TROUBLES: [Trouble; 4] = [
    Trouble {
        severity: Severity::Warn,
        what: "connections were dropped because accept queues were full",
        mend: "raise the program's listen backlog and net.core.somaxconn, or accept faster",
        keys: &[
            "netstat/TcpExt/ListenOverflows",
            "netstat/TcpExt/ListenDrops",
            "netstat/TcpExt/TCPReqQFullDrop",
        ],
    },
    Trouble {
        severity: Severity::Warn,
        what: "segments were dropped at TCP sockets",
        mend: "the reader is too slow or its buffer too small",
        keys: &[
            "netstat/TcpExt/TCPBacklogDrop",
            "netstat/TcpExt/RcvPruned",
            "netstat/TcpExt/TCPOFODrop",
            "netstat/TcpExt/TCPZeroWindowDrop",
            "netstat/TcpExt/TCPRcvQDrop",
            "netstat/TcpExt/TCPMemoryPressures",
        ],
    },
    Trouble {
        severity: Severity::Warn,
        what: "datagrams were dropped at UDP sockets",
        mend: "raise SO_RCVBUF (and net.core.rmem_max), or read faster",
        keys: &[
            "snmp/Udp/RcvbufErrors",
            "snmp/Udp/SndbufErrors",
            "snmp/Udp/MemErrors",
        ],
    },
    Trouble {
        severity: Severity::Note,
        what: "receive buffers ran full without a drop",
        mend: "the reader is slower than the sender, which may be intended",
        keys: &[
            "netstat/TcpExt/PruneCalled",
            "netstat/TcpExt/TCPRcvCollapsed",
            "netstat/TcpExt/TCPToZeroWindowAdv",
        ],
    },
];

const SOMAXCONN: &str = "net.core.somaxconn";
/// The kernel's default since 5.4.
const SOMAXCONN_WANTED: u64 = 4096;
/// From this share of the limit on, the next burst reaches it.
const FULL: Ratio = Ratio::new(0.9);
/// The default of older kernels: listen(2) of a server that asks for more is cut to it.
const FLOOR: Floor = Floor {
    name: SOMAXCONN,
    least: 128,
    usual: SOMAXCONN_WANTED,
    effect: "accept queues overflow with a few connections at once",
};

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let mut missing: Vec<Gap> = Vec::new();
    let mut said: Vec<Draft> = Vec::from_iter(too_low(context, &FLOOR, &mut missing));
    let kernel = &context.host.kernel;
    said.extend(memory(
        context,
        "TCP",
        "net.ipv4.tcp_mem",
        &kernel.tcp_memory_pages,
    ));
    said.extend(memory(
        context,
        "UDP",
        "net.ipv4.udp_mem",
        &kernel.udp_memory_pages,
    ));
    let watch = match watched(rule, context) {
        Ok(watch) => watch,
        // What is known without counters is the answer already.
        Err(_) if !said.is_empty() => return answer(rule, context, "host", said, missing),
        Err(unsure) => return unsure,
    };
    let troubles = TROUBLES.iter();
    said.extend(troubles.filter_map(|trouble| judge(context, watch, trouble, &mut missing)));
    answer(rule, context, "host", said, missing)
}

/// Socket buffers near the limit of all sockets together. Above it, the kernel shrinks windows and drops packets.
fn memory(context: &Context<'_>, protocol: &str, limit: &str, pages: &Known<u64>) -> Option<Draft> {
    let limits = context.host.sysctl(limit);
    let most: u64 = limits.value()?.split_whitespace().nth(2)?.parse().ok()?;
    let pages = *pages.value()?;
    let share = real(pages) / real(most.max(1));
    (share >= FULL.as_f64()).then(|| Draft {
        severity: Severity::Warn,
        subject: "host".to_owned(),
        summary: format!(
            "{protocol} socket buffers use {} of the limit in {limit}: find the sockets that do not read, or raise \
             the limit",
            Ratio::new(share)
        ),
        evidence: vec![
            Evidence::new(
                format!("pages of {protocol} socket buffers"),
                pages,
                "/proc/net/sockstat",
            ),
            sysctl_evidence(limit, most),
        ],
        remedies: Vec::new(),
    })
}

fn judge(
    context: &Context<'_>,
    watch: &Watch,
    trouble: &Trouble,
    missing: &mut Vec<Gap>,
) -> Option<Draft> {
    let mut sum: u64 = 0;
    let mut evidence: Vec<Evidence> = Vec::new();
    for key in trouble.keys {
        match watch.grown(key) {
            Known::Value(0) => {}
            Known::Value(by) => {
                sum = sum.saturating_add(by);
                let name = key.rsplit('/').next().unwrap_or(key);
                let value = format!("+{by} in {}", watch.span_ns);
                evidence.push(Evidence::new(name, value, watch.path(key)));
            }
            // The set of counters depends on the kernel.
            Known::Unknown(gap) if !gap.leaves_a_question() => {}
            Known::Unknown(gap) if missing.contains(&gap) => {}
            Known::Unknown(gap) => missing.push(gap),
        }
    }
    let overflow = trouble.keys.contains(&"netstat/TcpExt/ListenOverflows");
    (sum > 0).then(|| Draft {
        severity: trouble.severity,
        subject: "host".to_owned(),
        summary: format!(
            "{} ({sum} events in {}): {}",
            trouble.what, watch.span_ns, trouble.mend
        ),
        evidence,
        remedies: overflow
            .then(|| backlog(context))
            .flatten()
            .into_iter()
            .collect(),
    })
}

/// The limit of every backlog, if it is below the kernel's default.
fn backlog(context: &Context<'_>) -> Option<Remedy> {
    let now: u64 = context
        .host
        .sysctl(SOMAXCONN)
        .value()?
        .trim()
        .parse()
        .ok()?;
    let key = SettingKey::Sysctl(SOMAXCONN.to_owned());
    let to = Value::Text(SOMAXCONN_WANTED.to_string());
    (now < SOMAXCONN_WANTED)
        .then(|| remedy(context, key, to))
        .flatten()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding, remedies};
    use super::*;
    use crate::build;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("a full accept queue", || {
                grew("netstat/TcpExt/ListenOverflows")
            }),
            ("a slow reader of UDP", || grew("snmp/Udp/RcvbufErrors")),
            ("no memory for TCP", || {
                let host = build::host().sysctl("net.ipv4.tcp_mem", "100 150 1000");
                World::of(
                    host.with(|host| host.kernel.tcp_memory_pages = 980.into())
                        .build(),
                )
            }),
            ("room for 16 connections", || {
                World::of(build::host().sysctl(SOMAXCONN, "16").build())
            }),
            ("a closed window", || {
                grew("netstat/TcpExt/TCPToZeroWindowAdv")
            }),
        ],
        silent: &[
            ("none moved", || {
                World::of(build::host().build()).watched(|w| w)
            }),
            ("a kernel without such counters", || {
                World::of(build::host().build())
                    .watched(|w| w.without("netstat/TcpExt/TCPRcvQDrop"))
            }),
        ],
        undetermined: &[("not watched", || World::of(build::host().build()))],
    };

    fn grew(key: &'static str) -> World {
        World::of(build::host().build()).watched(|w| w.grew(key, 5))
    }

    #[test]
    fn a_drop_is_a_warning_and_a_closed_window_a_note() {
        let severity = |key| finding(ID, &grew(key).context()).severity;
        assert_eq!(severity("netstat/TcpExt/TCPBacklogDrop"), Severity::Warn);
        assert_eq!(severity("netstat/TcpExt/TCPRcvCollapsed"), Severity::Note);
    }

    #[test]
    fn a_low_limit_of_backlogs_is_raised() {
        let host = build::host().sysctl(SOMAXCONN, "128").build();
        let world = World::of(host).watched(|w| w.grew("netstat/TcpExt/ListenDrops", 1));
        let said = finding(ID, &world.context());
        assert_eq!(remedies(&said), ["sysctl/net.core.somaxconn: 128 -> 4096"]);
    }
}
