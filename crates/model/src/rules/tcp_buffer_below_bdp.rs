//! `tcp-buffer-below-bdp`: tcp_wmem or tcp_rmem maximum is too small for the path. Facts from
//! Documentation/networking/ip-sysctl.rst and RFC 7323 (bandwidth-delay product).

use super::facts::if_read;
use super::{BULK, Draft, found, receives, remedy, sends, undetermined};
use crate::analysis::{self, Figures, OneWay};
use crate::buffers::{self, Buffer, Limits};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::known::{Gap, Known};
use crate::plan::End;
use crate::setting::{Class, SettingKey, Value};
use crate::threshold;
use crate::units::{BitRate, Bytes, Nanoseconds, Ratio};

pub(super) const RULE: Rule = Rule {
    id: "tcp-buffer-below-bdp",
    number: 57,
    status: Status::Implemented,
    title: "tcp_wmem or tcp_rmem maximum is too small for the path",
    severity: Severity::Warn,
    stage: Stage::Offloads,
    profiles: BULK,
    judges_by: &[Basis::Facts, Basis::Trial],
    threshold: "tcp_wmem maximum below 4 MiB or tcp_rmem maximum below 6 MiB (the kernel's defaults; lower if \
                memory is below 1.5 GiB), or below 2 x rate x RTT of one flow (4 x if TCP_INFO shows the flow \
                limited by it for more than 20 % of its busy time)",
    effect: "one flow carries at most one window per RTT: with the whole buffer as window, 6 MiB carries 50 \
             Gb/s at 1 ms, 5 at 10 ms, 0.5 at 100 ms",
    source: "Documentation/networking/ip-sysctl.rst (tcp_rmem, tcp_wmem); tcp(7)",
    fix: Fix::Proposed(&[Class::R1]),
    persist: "/etc/sysctl.d/90-linerate.conf",
    contested: None,
    page: include_str!("../../../../docs/rules/tcp-buffer-below-bdp.md"),
    check,
};

/// The required size of one buffer.
struct Need {
    buffer: Buffer,
    limits: Limits,
    max: Bytes,
    /// What the present maximum is below, in words.
    bound: String,
    evidence: Vec<Evidence>,
}

const LIMIT_OUTPUT: &str = "net.ipv4.tcp_limit_output_bytes";
/// The default since Linux 4.20; newer kernels have more.
const LIMIT_OUTPUT_DEFAULT: u64 = 1_048_576;
const TSO_BYTES: u64 = 65_536;

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let mut needs = Vec::new();
    let mut missing: Vec<Gap> = Vec::new();
    for buffer in [Buffer::Send, Buffer::Receive] {
        match buffers::limits(context.host, buffer) {
            Known::Value(limits) => needs.extend(need(context, buffer, limits)),
            Known::Unknown(gap) => missing.push(gap),
        }
    }
    let mut outcomes = Vec::new();
    outcomes.extend(small_output(context).map(|said| found(rule, context, said)));
    if !needs.is_empty() {
        outcomes.push(finding(rule, context, &needs));
    }
    if !missing.is_empty() {
        outcomes.push(undetermined(rule, context, "host".to_owned(), missing));
    }
    outcomes
}

/// ip-sysctl.rst, `tcp_limit_output_bytes`: what a socket may have in the qdisc and the NIC. Less than one TSO packet
/// stops the sender after each.
fn small_output(context: &Context<'_>) -> Option<Draft> {
    // Captures of older versions do not have it.
    let text = context.host.sysctl(LIMIT_OUTPUT);
    let limit: u64 = if_read(&text)?.trim().parse().ok()?;
    if limit >= TSO_BYTES {
        return None;
    }
    let key = SettingKey::Sysctl(LIMIT_OUTPUT.to_owned());
    Some(Draft {
        severity: Severity::Warn,
        subject: "host".to_owned(),
        summary: format!(
            "{LIMIT_OUTPUT} is {limit}, less than one TSO packet, so each flow waits for its completion: set it to \
             {LIMIT_OUTPUT_DEFAULT}"
        ),
        evidence: vec![Evidence::new(
            LIMIT_OUTPUT,
            limit,
            buffers::path(LIMIT_OUTPUT),
        )],
        remedies: remedy(context, key, Value::Text(LIMIT_OUTPUT_DEFAULT.to_string()))
            .into_iter()
            .collect(),
    })
}

fn finding(rule: &Rule, context: &Context<'_>, needs: &[Need]) -> Outcome {
    let names: Vec<String> = needs
        .iter()
        .map(|need| {
            format!(
                "{} maximum is {}, below {}",
                need.buffer.sysctl(),
                need.limits.max,
                need.bound
            )
        })
        .collect();
    let targets: Vec<String> = needs.iter().map(|need| need.max.to_string()).collect();
    let remedies = needs
        .iter()
        .filter_map(|need| {
            // Only the maximum is changed: memory for idle connections and the initial window are kept.
            let raised = Limits {
                max: need.max,
                ..need.limits
            };
            let key = SettingKey::Sysctl(need.buffer.sysctl().to_owned());
            remedy(context, key, Value::Text(raised.to_string()))
        })
        .collect();
    found(
        rule,
        context,
        Draft {
            severity: Severity::Warn,
            subject: "host".to_owned(),
            summary: format!(
                "{}: raise {} to {}",
                names.join("; "),
                if needs.len() == 1 { "it" } else { "them" },
                targets.join(" and ")
            ),
            evidence: needs
                .iter()
                .flat_map(|need| need.evidence.clone())
                .collect(),
            remedies,
        },
    )
}

fn need(context: &Context<'_>, buffer: Buffer, limits: Limits) -> Option<Need> {
    let shipped = buffer.shipped_max(context.host);
    let demand = demand(context, buffer);
    let wanted = demand.as_ref().map_or(0, |demand| demand.wanted.as_u64());
    if limits.max >= shipped && limits.max.as_u64() >= wanted {
        return None;
    }
    let power = wanted
        .checked_next_power_of_two()
        .unwrap_or(wanted)
        .min(MAX_ADVISED);
    let max = Bytes::new(power).max(shipped);
    if max <= limits.max {
        return None;
    }
    let mut evidence = vec![Evidence::new(
        format!("{} (minimum, default, maximum {buffer})", buffer.sysctl()),
        limits,
        buffers::path(buffer.sysctl()),
    )];
    if limits.max < shipped {
        evidence.push(Evidence::new(
            "kernel default maximum",
            shipped,
            "net/ipv4/tcp.c tcp_init",
        ));
    }
    let bound = if limits.max < shipped {
        format!("the kernel default of {shipped}")
    } else {
        format!("the {} that the path needs", Bytes::new(wanted))
    };
    evidence.extend(demand.into_iter().flat_map(|demand| demand.evidence));
    Some(Need {
        buffer,
        limits,
        max,
        bound,
        evidence,
    })
}

/// A sysctl maximum is a 31-bit number to the kernel; half of it is the reasonable limit.
const MAX_ADVISED: u64 = 1 << 30;

/// The buffer size needed according to a trial.
struct Demand {
    wanted: Bytes,
    evidence: Vec<Evidence>,
}

fn demand(context: &Context<'_>, buffer: Buffer) -> Option<Demand> {
    let sample = context.sample?;
    // A program that sets its own buffers does not use these.
    if sample.spec.socket_buffer_bytes.is_some() {
        return None;
    }
    let (concerned, from) = match (buffer, context.end) {
        (Buffer::Send, end) => (sends(context), end),
        (Buffer::Receive, End::Local) => (receives(context), End::Remote),
        (Buffer::Receive, End::Remote) => (receives(context), End::Local),
    };
    if !concerned {
        return None;
    }
    let way = analysis::ways(sample)
        .into_iter()
        .find(|way| way.from == from)?;
    // The minimum RTT: the smoothed one includes the flow's own queueing delay.
    let rtt = way.rtt_min()?;
    let rate = rate_of_one_flow(context, &way)?;
    let bdp = bdp(rate, rtt);
    let figures = Figures::of(&way, &sample.spec);
    let limited = match buffer {
        Buffer::Send => figures.sndbuf_limited,
        Buffer::Receive => figures.rwnd_limited,
    };
    let often = limited.is_some_and(|share| share > threshold::LIMITED_SHARE);
    let times = if often { 4 } else { 2 };
    let mut evidence = vec![Evidence::new(
        "rate of one flow x minimum RTT",
        format!("{rate} x {rtt} = {bdp}"),
        "the trial, TCP_INFO tcpi_min_rtt",
    )];
    evidence.extend(limited.map(|share| limited_evidence(buffer, share)));
    Some(Demand {
        wanted: Bytes::new(bdp.as_u64().saturating_mul(times)),
        evidence,
    })
}

fn limited_evidence(buffer: Buffer, share: Ratio) -> Evidence {
    let field = match buffer {
        Buffer::Send => "tcpi_sndbuf_limited",
        Buffer::Receive => "tcpi_rwnd_limited",
    };
    Evidence::new(
        format!("share of busy time limited by the {buffer}"),
        share,
        format!("TCP_INFO {field} / tcpi_busy_time"),
    )
}

/// The rate of one flow, or the rate needed to fill the slower link, if both have a physical link.
fn rate_of_one_flow(context: &Context<'_>, way: &OneWay<'_>) -> Option<BitRate> {
    let sample = context.sample?;
    let flows = u64::try_from(way.receiver.receivers().count())
        .ok()
        .filter(|n| *n > 0)?;
    let link = context
        .nic
        .and_then(|name| context.host.nic(name))
        .filter(|nic| nic.kind.has_wire())
        .and_then(|nic| nic.link_bit_per_s.get());
    let measured = analysis::rate_of_way(sample, way)?;
    let all = link.map_or(measured, |link| link.max(measured));
    Some(BitRate::from_bit_per_s(all.as_bit_per_s() / flows))
}

fn bdp(rate: BitRate, rtt: Nanoseconds) -> Bytes {
    let bits = u128::from(rate.as_bit_per_s()) * u128::from(rtt.as_u64()) / 1_000_000_000;
    Bytes::new(u64::try_from(bits / 8).unwrap_or(u64::MAX))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{
        Cases, World, context, finding, missing, remedies, silent, with_trial,
    };
    use super::*;
    use crate::build::{self, HostBuilder};
    use crate::host::Host;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("64 KiB at most", || World::of(small())),
            ("a page in the qdisc", || {
                World::of(build::host().sysctl(LIMIT_OUTPUT, "4096").build())
            }),
        ],
        silent: &[("the kernel's defaults", || World::of(build::host().build()))],
        undetermined: &[("no such sysctl", || {
            World::of(build::host().without_sysctl("net.ipv4.tcp_rmem").build())
        })],
    };

    fn small() -> Host {
        build::host()
            .sysctl("net.ipv4.tcp_wmem", "4096\t16384\t65536")
            .sysctl("net.ipv4.tcp_rmem", "4096\t65536\t65536")
            .nic("near0", build::NicBuilder::veth)
            .build()
    }

    #[test]
    fn maxima_below_the_shipped_ones_are_raised_and_nothing_else_is_touched() {
        let host = small();
        let said = finding(ID, &context(&host));
        assert_eq!(said.severity, Severity::Warn);
        assert_eq!(
            remedies(&said),
            [
                "sysctl/net.ipv4.tcp_wmem: 4096 16384 65536 -> 4096 16384 4194304",
                "sysctl/net.ipv4.tcp_rmem: 4096 65536 65536 -> 4096 65536 6291456"
            ]
        );
    }

    #[test]
    fn the_defaults_of_any_kernel_are_no_fault() {
        for rmem in ["4096 131072 6291456", "4096 131072 33554432"] {
            let host = build::host().sysctl("net.ipv4.tcp_rmem", rmem).build();
            assert!(silent(ID, &context(&host)), "{rmem}");
        }
        let small_machine = build::host()
            .memory(Bytes::mib(512))
            .sysctl("net.ipv4.tcp_wmem", "4096 16384 2097152")
            .sysctl("net.ipv4.tcp_rmem", "4096 131072 2097152")
            .build();
        assert!(silent(ID, &context(&small_machine)));
    }

    #[test]
    fn a_long_path_needs_more_than_the_default_at_the_end_that_uses_it() {
        let host = build::host().nic("eth0", |nic| nic.gbit(10)).build();
        let sample = build::sample()
            .gbit(3)
            .tcp(|tcp| tcp.rtt_min_ns = Nanoseconds::from_millis(20))
            .build();
        let nic = "eth0".parse().expect("a name");
        let sender = Context {
            nic: Some(&nic),
            ..with_trial(&host, &host, &sample)
        };
        // 10 Gb/s x 20 ms = 25 MB; twice that is 50 MB, the next power of two 64 MiB.
        assert_eq!(
            remedies(&finding(ID, &sender)),
            ["sysctl/net.ipv4.tcp_wmem: 4096 16384 4194304 -> 4096 16384 67108864"]
        );
        let receiver = Context {
            end: End::Remote,
            ..sender
        };
        assert_eq!(
            remedies(&finding(ID, &receiver)),
            ["sysctl/net.ipv4.tcp_rmem: 4096 131072 33554432 -> 4096 131072 67108864"]
        );
    }

    #[test]
    fn a_flow_that_waits_for_its_buffer_needs_twice_the_room() {
        let host = build::host().build();
        let trial = |sndbuf| {
            build::sample()
                .gbit(1)
                .limited(0.0, sndbuf)
                .tcp(|tcp| tcp.rtt_min_ns = Nanoseconds::from_millis(10))
                .build()
        };
        // 1 Gb/s x 10 ms = 1.25 MB: twice that fits into 4 MiB, four times does not.
        assert!(silent(ID, &with_trial(&host, &host, &trial(0.1))));
        let often = trial(0.5);
        let said = finding(ID, &with_trial(&host, &host, &often));
        assert_eq!(
            remedies(&said),
            ["sysctl/net.ipv4.tcp_wmem: 4096 16384 4194304 -> 4096 16384 8388608"]
        );
        assert!(
            said.evidence.iter().any(|e| e.value == "50.0 %"),
            "{:?}",
            said.evidence
        );
    }

    #[test]
    fn a_program_with_its_own_buffers_is_not_judged_by_the_path() {
        let host = build::host().build();
        let mut sample = build::sample()
            .gbit(10)
            .tcp(|tcp| tcp.rtt_min_ns = Nanoseconds::from_millis(100))
            .build();
        sample.spec.socket_buffer_bytes = Some(Bytes::mib(1));
        assert!(silent(ID, &with_trial(&host, &host, &sample)));
    }

    #[test]
    fn one_unknown_buffer_does_not_hide_the_other() {
        let host: HostBuilder = build::host()
            .without_sysctl("net.ipv4.tcp_rmem")
            .sysctl("net.ipv4.tcp_wmem", "4096 16384 65536");
        let host = host.build();
        let outcomes = super::super::judge(&RULE, &context(&host));
        assert!(
            matches!(
                outcomes.as_slice(),
                [Outcome::Finding(_), Outcome::Undetermined(_)]
            ),
            "{outcomes:?}"
        );
        let host = build::host().sysctl("net.ipv4.tcp_wmem", "many").build();
        assert_eq!(missing(ID, &context(&host)).len(), 1);
    }
}
