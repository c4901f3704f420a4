//! `tcp-options-off`: a TCP option that fast flows need is off. Documentation/networking/ip-sysctl.rst;
//! RFC 7323 (window scale, timestamps), RFC 2018 (SACK), RFC 2883 (D-SACK).

use super::facts::{answer, sysctl_evidence, sysctl_number};
use super::{Draft, remedy};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Profile, Remedy, Rule, Severity, Stage, Status,
};
use crate::known::Gap;
use crate::setting::{Class, SettingKey, Value};

pub(super) const RULE: Rule = Rule {
    id: "tcp-options-off",
    number: 60,
    status: Status::Implemented,
    title: "a TCP option that fast flows need is off",
    severity: Severity::Warn,
    stage: Stage::Offloads,
    profiles: &[
        Profile::Throughput,
        Profile::Latency,
        Profile::Storage,
        Profile::Mixed,
        Profile::Measurement,
    ],
    judges_by: &[Basis::Facts],
    threshold: "any of tcp_window_scaling, tcp_sack, tcp_timestamps, tcp_moderate_rcvbuf is 0 (warn), or \
                tcp_dsack (note)",
    effect: "without window scaling a flow has at most 64 KiB in flight: 0.5 Gb/s at 1 ms (computed)",
    source: "Documentation/networking/ip-sysctl.rst; RFC 7323; RFC 2018",
    fix: Fix::Proposed(&[Class::R1]),
    persist: "remove the line that sets it to 0 from sysctl.d; 1 is the kernel's default",
    contested: None,
    page: include_str!("../../../../docs/rules/tcp-options-off.md"),
    check,
};

/// Each option, and its effect on a flow if it is off.
const OPTIONS: [(&str, &str); 5] = [
    (
        "net.ipv4.tcp_window_scaling",
        "windows are limited to 64 KiB",
    ),
    ("net.ipv4.tcp_sack", "one lost packet is recovered per RTT"),
    (
        "net.ipv4.tcp_timestamps",
        "RTT is sampled rarely and PAWS is off",
    ),
    (
        "net.ipv4.tcp_moderate_rcvbuf",
        "receive buffers are not autotuned",
    ),
    (DSACK, "spurious retransmissions go unnoticed"),
];
const DSACK: &str = "net.ipv4.tcp_dsack";

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let mut missing: Vec<Gap> = Vec::new();
    let mut off: Vec<(&str, &str)> = Vec::new();
    for (name, without) in OPTIONS {
        let mut gaps = Vec::new();
        if sysctl_number(context.host, name, &mut gaps) == Some(0) {
            off.push((name, without));
        }
        missing.extend(gaps);
    }
    answer(rule, context, "host", judge(context, &off), missing)
}

fn judge(context: &Context<'_>, off: &[(&str, &str)]) -> Option<Draft> {
    let (_, without) = off.first()?;
    let names: Vec<&str> = off
        .iter()
        .map(|(name, _)| name.trim_start_matches("net.ipv4."))
        .collect();
    let on = |name: &str| -> Option<Remedy> {
        let key = SettingKey::Sysctl(name.to_owned());
        remedy(context, key, Value::Text("1".to_owned()))
    };
    let evidence: Vec<Evidence> = off
        .iter()
        .map(|(name, _)| sysctl_evidence(name, 0))
        .collect();
    Some(Draft {
        severity: if off.iter().all(|(name, _)| *name == DSACK) {
            Severity::Note
        } else {
            Severity::Warn
        },
        subject: "host".to_owned(),
        summary: format!(
            "{} is off ({without}): set it to 1, the kernel's default",
            names.join(", ")
        ),
        evidence,
        remedies: off.iter().filter_map(|(name, _)| on(name)).collect(),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding, remedies};
    use super::*;
    use crate::build;
    use crate::host::Host;
    use crate::known::Known;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("no window scaling", || World::of(off(&["window_scaling"]))),
            ("no autotuning", || World::of(off(&["moderate_rcvbuf"]))),
            ("all of them", || {
                let all = [
                    "window_scaling",
                    "sack",
                    "timestamps",
                    "moderate_rcvbuf",
                    "dsack",
                ];
                World::of(off(&all))
            }),
        ],
        silent: &[
            ("the kernel's defaults", || World::of(build::host().build())),
            ("a router", || {
                World::of(off(&["sack"])).profile(Profile::Forwarding)
            }),
        ],
        undetermined: &[("not captured", || {
            let mut host = build::host().build();
            let unread = Known::not_asked("/proc/sys/net/ipv4/tcp_sack");
            host.sysctls.insert("net.ipv4.tcp_sack".to_owned(), unread);
            World::of(host)
        })],
    };

    fn off(names: &[&str]) -> Host {
        let host = build::host();
        let off = |host: build::HostBuilder, name: &&str| {
            host.sysctl(&format!("net.ipv4.tcp_{name}"), "0")
        };
        names.iter().fold(host, off).build()
    }

    #[test]
    fn each_option_is_switched_on_again() {
        let said = finding(ID, &context(&off(&["sack", "timestamps"])));
        assert_eq!(said.severity, Severity::Warn);
        assert_eq!(
            remedies(&said),
            [
                "sysctl/net.ipv4.tcp_sack: 0 -> 1",
                "sysctl/net.ipv4.tcp_timestamps: 0 -> 1"
            ]
        );
        assert_eq!(
            finding(ID, &context(&off(&["dsack"]))).severity,
            Severity::Note
        );
    }
}
