//! `tcp-idle-and-lowat`: cwnd is reset after idle, or the unsent queue is unlimited.
//! Documentation/networking/ip-sysctl.rst (`tcp_slow_start_after_idle`, `tcp_notsent_lowat`); RFC 2861.

use super::facts::{answer, sysctl_evidence, sysctl_number};
use super::{Draft, remedy};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Profile, Remedy, Rule, Severity, Stage, Status,
};
use crate::known::Gap;
use crate::setting::{Class, SettingKey, Value};

pub(super) const RULE: Rule = Rule {
    id: "tcp-idle-and-lowat",
    number: 61,
    status: Status::Implemented,
    title: "cwnd is reset after idle, or the unsent queue is unlimited",
    severity: Severity::Note,
    stage: Stage::Tuning,
    profiles: &[Profile::Latency, Profile::Storage],
    judges_by: &[Basis::Facts],
    threshold: "tcp_slow_start_after_idle is 1; role latency: also tcp_notsent_lowat is unlimited",
    effect: "no verified figure: it matters to long connections with idle periods; measure it",
    source: "Documentation/networking/ip-sysctl.rst (tcp_slow_start_after_idle, tcp_notsent_lowat); \
             TuneD, profile network-throughput",
    fix: Fix::Proposed(&[Class::R1]),
    persist: "/etc/sysctl.d/90-linerate.conf",
    contested: Some(
        "TuneD's network-throughput sets 0 and 131072; the kernel's defaults avoid bursts into the network",
    ),
    page: include_str!("../../../../docs/rules/tcp-idle-and-lowat.md"),
    check,
};

const IDLE: &str = "net.ipv4.tcp_slow_start_after_idle";
const LOWAT: &str = "net.ipv4.tcp_notsent_lowat";
/// The kernel's default: unlimited. Older kernels print -1.
const UNBOUNDED: u64 = 4_294_967_295;
const LOWAT_WANTED: &str = "131072";

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let mut missing: Vec<Gap> = Vec::new();
    let mut words: Vec<&str> = Vec::new();
    let mut evidence: Vec<Evidence> = Vec::new();
    let mut remedies: Vec<Remedy> = Vec::new();
    let to = |name: &str, value: &str| {
        let key = SettingKey::Sysctl(name.to_owned());
        remedy(context, key, Value::Text(value.to_owned()))
    };
    if let Some(mode) = sysctl_number(context.host, IDLE, &mut missing).filter(|mode| *mode != 0) {
        words.push("tcp_slow_start_after_idle resets cwnd after an idle period");
        evidence.push(sysctl_evidence(IDLE, mode));
        remedies.extend(to(IDLE, "0"));
    }
    let lowat = match context.profile {
        Profile::Latency => sysctl_number(context.host, LOWAT, &mut missing),
        _ => None,
    };
    if let Some(bound) = lowat.filter(|bound| *bound >= UNBOUNDED) {
        words.push("tcp_notsent_lowat does not limit unsent data");
        evidence.push(sysctl_evidence(LOWAT, bound));
        remedies.extend(to(LOWAT, LOWAT_WANTED));
    }
    let said = (!words.is_empty()).then(|| Draft {
        severity: Severity::Note,
        subject: "host".to_owned(),
        summary: format!(
            "{}, the kernel's default: try changing it and measure",
            words.join(", ")
        ),
        evidence,
        remedies,
    });
    answer(rule, context, "host", said, missing)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding, remedies};
    use super::*;
    use crate::build;
    use crate::host::Host;
    use crate::known::{Cause, Known};

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("a storage host", || {
                World::of(build::host().build()).profile(Profile::Storage)
            }),
            ("latency", || latency(build::host().build())),
        ],
        silent: &[
            ("bulk transfer", || World::of(build::host().build())),
            ("both set", || {
                latency(
                    build::host()
                        .sysctl(IDLE, "0")
                        .sysctl(LOWAT, "131072")
                        .build(),
                )
            }),
        ],
        undetermined: &[("not readable", || {
            let host = build::host().sysctl(LOWAT, "131072").with(|host| {
                let gap = Known::unknown(Cause::Denied, crate::buffers::path(IDLE), "denied");
                host.sysctls.insert(IDLE.to_owned(), gap);
            });
            latency(host.build())
        })],
    };

    fn latency(host: Host) -> World {
        World::of(host).profile(Profile::Latency)
    }

    #[test]
    fn both_defaults_are_named_in_one_note() {
        let world = latency(build::host().build());
        let said = finding(ID, &world.context());
        assert_eq!(said.severity, Severity::Note);
        assert_eq!(
            remedies(&said),
            [
                "sysctl/net.ipv4.tcp_slow_start_after_idle: 1 -> 0",
                "sysctl/net.ipv4.tcp_notsent_lowat: 4294967295 -> 131072"
            ]
        );
    }
}
