//! `conntrack-cost`: the conntrack table drops connections or is nearly full. Facts from
//! Documentation/networking/nf_conntrack-sysctl.rst and `/proc/net/stat/nf_conntrack`.

use super::devices::{Notice, grown, growth, judged, or_unwatched, unknown};
use super::facts::if_read;
use super::{ALWAYS, remedy};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Profile, Rule, Severity, Stage, Status,
};
use crate::host::{Conntrack, Nic};
use crate::known::Known;
use crate::setting::{Class, SettingKey, Value};
use crate::units::Ratio;

pub(super) const RULE: Rule = Rule {
    id: "conntrack-cost",
    number: 64,
    status: Status::InPart("the number of firewall rules is not read"),
    title: "the conntrack table drops connections or is nearly full",
    severity: Severity::Crit,
    stage: Stage::Errors,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts, Basis::Counters],
    threshold: "table more than 80 % full (warn), full (crit); while watched: any drop (crit), early_drop \
                (warn) or insert_failed (note: a race that clients retry); 4 or more connections per bucket on \
                average (note); otherwise, in the roles forwarding, latency and measurement: any tracked \
                connection, or a bridge whose packets pass iptables (note)",
    effect: "new connections are no longer dropped; the cost of tracking per packet must be measured",
    source: "Documentation/networking/nf_conntrack-sysctl.rst; conntrack(8)",
    fix: Fix::Proposed(&[Class::R1]),
    persist: "net.netfilter.nf_conntrack_max in /etc/sysctl.d; notrack rules in the firewall's own file",
    contested: None,
    page: include_str!("../../../../docs/rules/conntrack-cost.md"),
    check,
};

const FULL: Ratio = Ratio::new(0.8);
const CHAIN: u64 = 4;
const MAX: &str = "net.netfilter.nf_conntrack_max";
/// The roles in which the lookup per packet is itself worth reporting.
const EACH_PACKET: &[Profile] = &[Profile::Forwarding, Profile::Latency, Profile::Measurement];

fn file(name: &str) -> String {
    format!("/proc/sys/net/netfilter/nf_conntrack_{name}")
}

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let subject = || "host".to_owned();
    let fact = &context.host.software.conntrack;
    let bridges = bridged(context);
    let table = match fact {
        Known::Value(table) => table,
        Known::Unknown(_) => {
            let missing = Vec::from_iter(unknown(fact));
            let said = judged(rule, context, subject(), Vec::from_iter(bridges), missing);
            return said.into_iter().collect();
        }
    };
    let mut notices: Vec<Notice> = [fill(context, table), chains(table)]
        .into_iter()
        .flatten()
        .collect();
    notices.extend(lost(context));
    notices.extend(bridges);
    if notices.is_empty() {
        notices.extend(every_packet(context, table));
    }
    let drops = context.watch.map(|watch| watch.grown("conntrack/drop"));
    let drops = drops.and_then(|drops| drops.gap().cloned());
    let missing = [unknown(&table.count), unknown(&table.max), drops];
    let missing = missing.into_iter().flatten().collect();
    let said = judged(rule, context, subject(), notices, missing);
    or_unwatched(rule, context, true, said.into_iter().collect())
}

#[expect(clippy::cast_precision_loss, reason = "a share needs three digits")]
fn share(part: u64, whole: u64) -> Ratio {
    Ratio::new(part as f64 / whole as f64)
}

fn fill(context: &Context<'_>, table: &Conntrack) -> Option<Notice> {
    let (count, max) = (table.count.get()?, table.max.get()?);
    // A maximum of 0 is no limit.
    if max == 0 || share(count, max).as_f64() <= FULL.as_f64() {
        return None;
    }
    let severity = if count >= max {
        Severity::Crit
    } else {
        Severity::Warn
    };
    let summary = format!(
        "the conntrack table holds {count} of {max} connections ({}) and drops new ones when full: raise {MAX}",
        share(count, max)
    );
    let more = Value::Text(max.saturating_mul(2).to_string());
    Some(
        Notice::new(severity, summary)
            .with([
                Evidence::new("connections tracked", count, file("count")),
                Evidence::new("maximum", max, file("max")),
            ])
            .fixed_by(remedy(context, SettingKey::Sysctl(MAX.to_owned()), more)),
    )
}

fn chains(table: &Conntrack) -> Option<Notice> {
    let (count, buckets) = (table.count.get()?, table.buckets.get()?);
    if buckets == 0 || count / buckets < CHAIN {
        return None;
    }
    let summary = format!(
        "{count} tracked connections in {buckets} hash buckets make long chains: raise the \
                           number of buckets"
    );
    Some(Notice::new(Severity::Note, summary).with([
        Evidence::new("connections tracked", count, file("count")),
        Evidence::new("buckets", buckets, file("buckets")),
    ]))
}

/// The table's losses over the interval. `insert_failed` alone is a race that clients retry.
fn lost(context: &Context<'_>) -> Option<Notice> {
    let watch = context.watch?;
    let key = |name: &str| format!("conntrack/{name}");
    let lost = grown(watch, ["drop", "early_drop", "insert_failed"], key);
    let severity = match lost.first() {
        Some(("drop", _)) => Severity::Crit,
        Some(("early_drop", _)) => Severity::Warn,
        Some(_) => Severity::Note,
        None => return None,
    };
    let words: Vec<String> = lost
        .iter()
        .map(|(name, by)| format!("{name} {by}"))
        .collect();
    let summary = format!(
        "conntrack dropped packets or connections while watched ({}): find what fills the table",
        words.join(", ")
    );
    let evidence = lost
        .iter()
        .map(|(name, by)| growth(watch, name, &key(name), *by));
    Some(Notice::new(severity, summary).with(evidence))
}

/// Bridged packets pass the rules and the connection tracking of IP (br_netfilter).
fn bridged(context: &Context<'_>) -> Option<Notice> {
    if !EACH_PACKET.contains(&context.profile) {
        return None;
    }
    let filters = |nic: &&Nic| {
        let bridge = nic.stack.bridge.as_ref();
        bridge.is_some_and(|bridge| if_read(&bridge.calls_iptables) == Some(&true))
    };
    let nic = context.host.nics.iter().find(filters)?;
    let summary = format!(
        "packets that {} forwards pass iptables (bridge-nf-call-iptables): set it to 0, unless its rules need them",
        nic.name
    );
    let path = format!("/sys/class/net/{}/bridge/nf_call_iptables", nic.name);
    Some(Notice::new(Severity::Note, summary).with([Evidence::new("calls iptables", "yes", path)]))
}

fn every_packet(context: &Context<'_>, table: &Conntrack) -> Option<Notice> {
    let count = table.count.get().filter(|count| *count > 0)?;
    EACH_PACKET.contains(&context.profile).then(|| {
        let summary = format!(
            "{count} connections are tracked, at a table lookup per packet: compare with `notrack` for bulk \
             traffic"
        );
        let evidence = Evidence::new("connections tracked", count, file("count"));
        Notice::new(Severity::Note, summary).with([evidence])
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding, remedies};
    use super::*;
    use crate::build;
    use crate::known::Cause;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("the table is 90 % full", || tracking(900, 1000)),
            ("it drops", || {
                tracking(10, 1000).watched(|watch| watch.grew("conntrack/drop", 3))
            }),
            ("long chains", || tracking(400, 1000)),
            ("a router tracks", || {
                tracking(10, 1000)
                    .profile(Profile::Forwarding)
                    .watched(|watch| watch)
            }),
        ],
        silent: &[
            ("the module is not loaded", || {
                World::of(build::host().build())
            }),
            ("few connections and no drop", || {
                tracking(10, 1000).watched(|watch| watch)
            }),
        ],
        undetermined: &[
            ("not watched", || tracking(10, 1000)),
            ("the drops are not counted here", || {
                tracking(10, 1000).watched(|watch| watch.without("conntrack/"))
            }),
            ("the table may not be read", || {
                World::of(
                    build::host()
                        .with(|host| {
                            host.software.conntrack =
                                Known::unknown(Cause::Denied, file("count"), "needs root");
                        })
                        .build(),
                )
            }),
        ],
    };

    fn tracking(count: u64, max: u64) -> World {
        let table = Conntrack {
            count: Known::Value(count),
            max: Known::Value(max),
            buckets: Known::Value(if count == 400 { 50 } else { max }),
        };
        let host = build::host()
            .sysctl(MAX, &max.to_string())
            .with(|host| host.software.conntrack = Known::Value(table));
        World::of(host.build())
    }

    #[test]
    fn a_full_table_is_critical_and_is_doubled() {
        let world = tracking(1000, 1000);
        let said = finding(ID, &world.context());
        assert_eq!(said.severity, Severity::Crit);
        assert_eq!(
            remedies(&said),
            ["sysctl/net.netfilter.nf_conntrack_max: 1000 -> 2000"]
        );
        let world = tracking(900, 1000);
        assert_eq!(finding(ID, &world.context()).severity, Severity::Warn);
    }

    #[test]
    fn a_failed_insert_alone_is_a_note() {
        let world = tracking(10, 1000).watched(|watch| watch.grew("conntrack/insert_failed", 2));
        assert_eq!(finding(ID, &world.context()).severity, Severity::Note);
    }
}
