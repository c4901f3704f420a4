//! `tcp-cc-qdisc`: congestion control other than cubic, or bbr without fq. Disputed advice: always a note that
//! recommends measuring. Sources: tcp_bbr.c ("BBR might depend on pacing ... fq") and
//! Documentation/networking/ip-sysctl.rst.

use std::collections::BTreeSet;

use super::{BULK, Draft, found, nics, remedy, sends, undetermined};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Remedy, Rule, Severity, Stage, Status,
};
use crate::host::Nic;
use crate::known::{Cause, Gap, Known};
use crate::plan::{Change, End};
use crate::setting::{Class, SettingKey, TrialKnob, Value};
use crate::shell;

pub(super) const RULE: Rule = Rule {
    id: "tcp-cc-qdisc",
    number: 59,
    status: Status::Implemented,
    title: "congestion control other than cubic, or bbr without fq",
    severity: Severity::Note,
    stage: Stage::Tuning,
    profiles: BULK,
    judges_by: &[Basis::Facts],
    threshold: "congestion control other than cubic, except bbr with fq as root qdisc",
    effect: "depends on the path, measure it: one flow over veth reached 18 Gb/s with bbr and 25 Gb/s with \
             cubic (measured for linerate, Linux 6.18); at 10 % loss bpftune reports cubic 58 and bbr 490 Mb/s",
    source: "net/ipv4/tcp_bbr.c; tc-fq(8); oracle/bpftune",
    fix: Fix::Proposed(&[Class::R0, Class::R1]),
    persist: "/etc/sysctl.d/90-linerate.conf",
    contested: Some(
        "bbr with fq avoids a pacing timer per socket (tcp_bbr.c); on a path without loss cubic is often as \
         fast",
    ),
    page: include_str!("../../../../docs/rules/tcp-cc-qdisc.md"),
    check,
};

const CONTROL: &str = "net.ipv4.tcp_congestion_control";
const AVAILABLE: &str = "net.ipv4.tcp_available_congestion_control";
/// Outside the initial network namespace, only these may be the default (`tcp_set_default_congestion_control` in
/// net/ipv4/tcp_cong.c).
const ALLOWED: &str = "net.ipv4.tcp_allowed_congestion_control";

const FORBIDDEN: &str = " (not in tcp_allowed_congestion_control: needs CAP_NET_ADMIN)";

const BBR_WITHOUT_FQ: &str = "and without fq each connection paces with its own timer: use fq as root qdisc, or \
                              try cubic and measure";

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    // Only the sender's congestion control moves data.
    if !sends(context) {
        return Vec::new();
    }
    let unsure = |missing| vec![undetermined(rule, context, "host".to_owned(), missing)];
    let control = match context.host.sysctl(CONTROL) {
        Known::Value(text) => text.trim().to_owned(),
        Known::Unknown(gap) => return unsure(vec![gap]),
    };
    let mut evidence = vec![Evidence::new(
        "congestion control",
        &control,
        crate::buffers::path(CONTROL),
    )];
    let why = match control.as_str() {
        "cubic" => return Vec::new(),
        "bbr" => match paced_by(context) {
            Ok(without_fq) if without_fq.is_empty() => return Vec::new(),
            Ok(without_fq) => {
                evidence.extend(without_fq);
                BBR_WITHOUT_FQ
            }
            Err(missing) => return unsure(missing),
        },
        _ => "not the default, cubic: try cubic and measure",
    };
    // A trial with its own congestion control does not use the sysctl.
    let follows = context
        .sample
        .is_none_or(|sample| sample.spec.congestion_control.is_none());
    let names_cubic = |text: &str| text.split_whitespace().any(|name| name == "cubic");
    let available = match context.host.sysctl(AVAILABLE) {
        Known::Value(text) => names_cubic(&text),
        Known::Unknown(gap) => return unsure(vec![gap]),
    };
    let forbidden = match context.host.sysctl(ALLOWED) {
        Known::Value(text) if available && !names_cubic(&text) => {
            evidence.push(Evidence::new(
                "allowed congestion controls",
                crate::setting::fold_blanks(&text),
                crate::buffers::path(ALLOWED),
            ));
            true
        }
        _ => false,
    };
    let cubic = || {
        if forbidden {
            return in_the_stream(context, &control);
        }
        let key = SettingKey::Sysctl(CONTROL.to_owned());
        remedy(context, key, Value::Text("cubic".to_owned()))
    };
    vec![found(
        rule,
        context,
        Draft {
            severity: Severity::Note,
            subject: "host".to_owned(),
            summary: format!(
                "congestion control is {control}, {why}{}",
                if forbidden { FORBIDDEN } else { "" }
            ),
            evidence,
            remedies: (available && follows)
                .then(cubic)
                .flatten()
                .into_iter()
                .collect(),
        },
    )]
}

/// If a namespace cannot have it as its default, a socket still can: what the trial's sockets show, an application
/// can use. Without a trial there is no stream to change.
fn in_the_stream(context: &Context<'_>, control: &str) -> Option<Remedy> {
    context.sample?;
    let change = Change {
        setting: SettingKey::Trial(TrialKnob::CongestionControl),
        from: Value::Text(control.to_owned()),
        to: Value::Text("cubic".to_owned()),
    };
    let class = change.setting.spec().class;
    Some(Remedy {
        end: End::Local,
        change,
        class,
    })
}

/// The interfaces whose root qdisc does not pace, or the missing values.
fn paced_by(context: &Context<'_>) -> Result<Vec<Evidence>, Vec<Gap>> {
    let mut without_fq = Vec::new();
    let mut missing = Vec::new();
    let judged = nics(context);
    if judged.is_empty() {
        let why = "no interface to check: it does not exist, or none is up";
        missing.push(Gap::new(Cause::Absent, "/sys/class/net", why));
    }
    for nic in judged {
        let path = format!("tc qdisc show dev {}", shell::quoted(nic.name.as_str()));
        match &nic.qdisc {
            Known::Value(qdisc) if qdisc.kind == "fq" => {}
            Known::Value(qdisc) if matches!(qdisc.kind.as_str(), "mq" | "mqprio") => {
                match leaves(nic) {
                    Ok(leaves) if leaves.is_empty() => {
                        let why = format!("the leaves below {} are not read", qdisc.kind);
                        missing.push(Gap::new(Cause::NotAsked, path, why));
                    }
                    Ok(leaves) if leaves.iter().all(|kind| *kind == "fq") => {}
                    Ok(leaves) => {
                        let what = format!("qdiscs below {} of {}", qdisc.kind, nic.name);
                        let kinds: BTreeSet<&str> = leaves.into_iter().collect();
                        let kinds: Vec<&str> = kinds.into_iter().collect();
                        without_fq.push(Evidence::new(what, kinds.join(" "), path));
                    }
                    Err(gap) => missing.push(gap.clone()),
                }
            }
            Known::Value(qdisc) => {
                let what = format!("root qdisc of {}", nic.name);
                without_fq.push(Evidence::new(what, &qdisc.kind, path));
            }
            Known::Unknown(gap) => missing.push(gap.clone()),
        }
    }
    if without_fq.is_empty() && !missing.is_empty() {
        return Err(missing);
    }
    Ok(without_fq)
}

/// The kinds of the qdiscs below the root.
fn leaves(nic: &Nic) -> Result<Vec<&str>, &Gap> {
    let tree = nic.shaping.tree.ok()?;
    let below = tree.iter().filter(|node| node.parent != ROOT);
    Ok(below.map(|node| node.kind.as_str()).collect())
}

/// `TC_H_ROOT`.
const ROOT: u32 = u32::MAX;

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{
        Cases, World, context, finding, missing, remedies, silent, with_trial,
    };
    use super::*;
    use crate::build::{self, HostBuilder};
    use crate::host::Qdisc;
    use crate::plan::End;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[("bbr without fq", || {
            World::of(host("bbr", "noqueue").build())
        })],
        silent: &[("cubic", || World::of(host("cubic", "noqueue").build()))],
        undetermined: &[("no such sysctl", || {
            World::of(host("bbr", "noqueue").without_sysctl(CONTROL).build())
        })],
    };

    fn host(control: &str, qdisc: &str) -> HostBuilder {
        build::host()
            .sysctl(CONTROL, control)
            .nic("near0", |nic| nic.veth().qdisc(Qdisc::plain(qdisc)))
    }

    #[test]
    fn bbr_without_fq_is_a_note_with_cubic_to_try() {
        let host = host("bbr", "noqueue").build();
        let said = finding(ID, &context(&host));
        assert_eq!(said.severity, Severity::Note);
        assert_eq!(
            remedies(&said),
            ["sysctl/net.ipv4.tcp_congestion_control: bbr -> cubic"]
        );
        assert!(said.summary.contains("and measure"));
    }

    #[test]
    fn any_other_control_is_a_note_too() {
        let host = host("reno", "fq").build();
        assert_eq!(finding(ID, &context(&host)).severity, Severity::Note);
    }

    #[test]
    fn cubic_bbr_with_fq_and_the_end_that_only_received_are_no_fault() {
        assert!(silent(ID, &context(&host("cubic", "noqueue").build())));
        assert!(silent(ID, &context(&host("bbr", "fq").build())));
        let host = host("bbr", "noqueue").build();
        let sample = build::sample().build();
        let context = Context {
            end: End::Remote,
            ..with_trial(&host, &host, &sample)
        };
        assert!(silent(ID, &context));
    }

    #[test]
    fn cubic_is_proposed_only_where_it_is_there_and_would_be_used() {
        let without = host("bbr", "noqueue").sysctl(AVAILABLE, "reno bbr").build();
        assert_eq!(remedies(&finding(ID, &context(&without))), [""; 0]);
        let host = host("bbr", "noqueue").build();
        let mut sample = build::sample().build();
        sample.spec.congestion_control = Some("bbr".to_owned());
        let said = finding(ID, &with_trial(&host, &host, &sample));
        assert_eq!(remedies(&said), [""; 0]);
    }

    #[test]
    fn cubic_that_a_namespace_may_not_choose_is_not_proposed() {
        let host = host("bbr", "noqueue").sysctl(ALLOWED, "reno bbr").build();
        let said = finding(ID, &context(&host));
        assert_eq!(remedies(&said), [""; 0]);
        assert!(
            said.summary.contains("not in tcp_allowed"),
            "{}",
            said.summary
        );
    }

    #[test]
    fn what_is_not_known_is_not_passed() {
        for name in [CONTROL, AVAILABLE] {
            let host = host("bbr", "noqueue").without_sysctl(name).build();
            assert_eq!(missing(ID, &context(&host))[0].cause, Cause::Absent);
        }
        assert!(!missing(ID, &context(&host("bbr", "mq").build())).is_empty());
    }

    #[test]
    fn the_leaves_below_mq_are_what_paces() {
        let with = |kind: &str| {
            let mut host = host("bbr", "mq").build();
            if let Known::Value(tree) = &mut host.nics[0].shaping.tree {
                let mut leaf = tree[0].clone();
                leaf.kind = kind.to_owned();
                leaf.parent = 0x8001_0001;
                tree.push(leaf);
            }
            host
        };
        assert!(silent(ID, &context(&with("fq"))));
        let host = with("fq_codel");
        assert_eq!(finding(ID, &context(&host)).severity, Severity::Note);
    }

    #[test]
    fn the_longest_summary_stays_one_line() {
        let host = host("bbr", "noqueue").sysctl(ALLOWED, "reno bbr").build();
        let said = finding(ID, &context(&host));
        assert!(said.summary.len() <= 200, "{}", said.summary);
    }
}
