//! `nexthop-group`: a nexthop group with a member that the kernel does not use, with one member, or with a resilient
//! table that busy flows keep unbalanced. Facts from Documentation/networking/nexthop-group-resilient.rst and
//! ip-nexthop(8).

use super::devices::{Notice, judged, unknown};
use super::{ALWAYS, undetermined};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{GroupMember, NexthopGroup, ResilientGroup};
use crate::setting::Class;

pub(super) const RULE: Rule = Rule {
    id: "nexthop-group",
    number: 111,
    status: Status::AdviceOnly,
    title: "a nexthop group lacks a member, or its table is not balanced",
    severity: Severity::Warn,
    stage: Stage::Tuning,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "a member that is dead or has no carrier (warn); a group of one member (note); a resilient group with \
                idle_timer 0 (note), or unbalanced with unbalanced_timer 0 (note)",
    effect: "with one member left, the next failure interrupts all flows; an unbalanced table leaves a member that \
             returned without its share",
    source: "Documentation/networking/nexthop-group-resilient.rst; ip-nexthop(8)",
    fix: Fix::Advised(&[Class::R2]),
    persist: "the routing daemon's configuration, or `ip nexthop` commands at boot",
    contested: None,
    page: include_str!("../../../../docs/rules/nexthop-group.md"),
    check,
};

const PATH: &str = "netlink/route/nexthops";

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let groups = &context.host.routing.groups;
    if let Some(gap) = unknown(groups) {
        return vec![undetermined(rule, context, "host".to_owned(), vec![gap])];
    }
    let all = groups.value().into_iter().flatten();
    all.filter_map(|group| {
        let subject = format!("nexthop group {}", group.id);
        judged(rule, context, subject, notices(group), Vec::new())
    })
    .collect()
}

fn notices(group: &NexthopGroup) -> Vec<Notice> {
    let mut all = Vec::from_iter(fewer(group));
    if let Some(table) = group.resilient {
        all.extend(timers(group, table));
    }
    all
}

/// Members that are not used, or a group that is none.
fn fewer(group: &NexthopGroup) -> Option<Notice> {
    let (dead, alive): (Vec<&GroupMember>, Vec<&GroupMember>) =
        group.members.iter().partition(|member| member.hop.is_dead);
    if let Some(first) = dead.first() {
        let summary = format!(
            "nexthop group {} does not use {} of its {} members ({}): check the link to it",
            group.id,
            dead.len(),
            group.members.len(),
            words(first)
        );
        let evidence = dead
            .iter()
            .map(|member| Evidence::new(format!("nexthop {}", member.id), "dead", PATH));
        return Some(Notice::new(Severity::Warn, summary).with(evidence));
    }
    let [only] = alive.as_slice() else {
        return None;
    };
    let summary = format!(
        "nexthop group {} has one member ({}): the kernel removes a nexthop from its groups when its link goes down, and \
         `ip nexthop replace` adds it again",
        group.id,
        words(only)
    );
    let evidence = Evidence::new("members", only.id, PATH);
    Some(Notice::new(Severity::Note, summary).with([evidence]))
}

fn words(member: &GroupMember) -> String {
    let id = format!("id {}", member.id);
    let gateway = member.hop.gateway.map(|gateway| format!("via {gateway}"));
    let nic = member.hop.nic.as_ref().map(|nic| format!("dev {nic}"));
    let words: Vec<String> = [Some(id), gateway, nic].into_iter().flatten().collect();
    words.join(" ")
}

/// "If it is zero, all buckets are idle": any change of the group moves flows at once, as in a group that is not
/// resilient. Without the unbalanced timer, buckets of busy flows never move.
fn timers(group: &NexthopGroup, table: ResilientGroup) -> Option<Notice> {
    let summary = if table.idle_timer_ms == 0 {
        format!(
            "resilient nexthop group {} has idle_timer 0, so flows move to other members whenever the group changes: set \
             it above the longest pause of a flow",
            group.id
        )
    } else if table.unbalanced_timer_ms == 0 && table.unbalanced_ms > 0 {
        format!(
            "resilient nexthop group {} has been unbalanced for {} s and has unbalanced_timer 0: buckets that are never \
             idle for {} s are never moved",
            group.id,
            table.unbalanced_ms / 1_000,
            table.idle_timer_ms / 1_000
        )
    } else {
        return None;
    };
    let evidence = [
        ("idle_timer, ms", table.idle_timer_ms),
        ("unbalanced_timer, ms", table.unbalanced_timer_ms),
        ("unbalanced_time, ms", table.unbalanced_ms),
    ];
    let evidence = evidence.map(|(what, value)| Evidence::new(what, value, PATH));
    Some(Notice::new(Severity::Note, summary).with(evidence))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding};
    use super::*;
    use crate::build;
    use crate::host::{Host, RouteHop};
    use crate::known::Known;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("a dead member", || World::of(host(&[false, true], None))),
            ("one member", || World::of(host(&[false], None))),
            ("no idle timer", || {
                World::of(host(&[false, false], Some(table(0, 0, 0))))
            }),
            ("unbalanced for good", || {
                World::of(host(&[false, false], Some(table(120_000, 0, 5_000))))
            }),
        ],
        silent: &[
            ("two members", || World::of(host(&[false, false], None))),
            ("balanced", || {
                World::of(host(&[false, false], Some(table(120_000, 0, 0))))
            }),
            ("it will be balanced", || {
                let table = table(120_000, 60_000, 5_000);
                World::of(host(&[false, false], Some(table)))
            }),
            ("no group", || World::of(build::host().build())),
            ("a kernel without nexthop objects", || {
                let mut host = build::host().build();
                let gap = Known::unknown(crate::known::Cause::Absent, PATH, "no nexthop objects");
                host.routing.groups = gap;
                World::of(host)
            }),
        ],
        undetermined: &[("the groups are not known", || {
            let mut host = host(&[false, true], None);
            host.routing.groups = Known::not_asked(PATH);
            World::of(host)
        })],
    };

    fn table(idle_timer_ms: u64, unbalanced_timer_ms: u64, unbalanced_ms: u64) -> ResilientGroup {
        ResilientGroup {
            buckets: 64,
            idle_timer_ms,
            unbalanced_timer_ms,
            unbalanced_ms,
        }
    }

    fn host(dead: &[bool], resilient: Option<ResilientGroup>) -> Host {
        let members = (1..).zip(dead).map(|(id, is_dead)| GroupMember {
            id,
            hop: RouteHop {
                gateway: Some(std::net::IpAddr::from([10, 0, 0, 1])),
                is_dead: *is_dead,
                ..RouteHop::default()
            },
        });
        let mut host = build::host().build();
        host.routing.groups = Known::Value(vec![NexthopGroup {
            id: 10,
            members: members.collect(),
            resilient,
        }]);
        host
    }

    #[test]
    fn a_dead_member_is_worse_than_a_timer() {
        let host = host(&[false, true], Some(table(0, 0, 0)));
        let found = finding(RULE.id, &context(&host));
        assert_eq!(found.severity, Severity::Warn);
        assert!(
            found
                .summary
                .contains("1 of its 2 members (id 2 via 10.0.0.1)")
        );
    }
}
