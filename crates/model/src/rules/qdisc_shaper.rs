//! `qdisc-shaper`: a shaper limits the interface below what the path could carry. Kinds and what they
//! count from tc-tbf(8), tc-htb(8) and net/sched.

use super::devices::{Notice, judged};
use super::facts::if_read;
use super::shapers::{self, Shaper};
use super::{ALWAYS, each_nic, remedy, sends, subject};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{Nic, Qdisc};
use crate::known::{Gap, Known};
use crate::setting::{Class, NicKnob, SettingKey, Value};
use crate::units::BitRate;
use crate::{analysis, ceiling, shell, threshold};

pub(super) const RULE: Rule = Rule {
    id: "qdisc-shaper",
    number: 101,
    status: Status::Implemented,
    title: "a shaper limits the interface below what the path could carry",
    severity: Severity::Crit,
    stage: Stage::HardCeiling,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts, Basis::Trial],
    threshold: "a qdisc, a default class, a queue or a traffic class with a rate below link speed (warn); a \
                trial reached 85 % of the shaper's ceiling (crit); a shaper of some flows only (note); netem on a NIC, or a \
                txqueuelen below 16 with pfifo_fast (warn)",
    effect: "exact: TCP gets the shaper's rate x payload/frame (1448/1514 at MTU 1500)",
    source: "tc-tbf(8), tc-htb(8); qdisc_pkt_len_init in net/core/dev.c",
    fix: Fix::Proposed(&[Class::R2]),
    persist: "removal is not persistent if its owner (a unit, NetworkManager, a container runtime) sets it \
              again: change it there",
    contested: None,
    page: include_str!("../../../../docs/rules/qdisc-shaper.md"),
    check,
};

/// A TSO packet of 64 KiB is one of these; a flow has several in flight.
const SHORT: u32 = 16;

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    each_nic(rule, context, |nic| check_nic(rule, context, nic))
}

fn check_nic(rule: &Rule, context: &Context<'_>, nic: &Nic) -> Option<Outcome> {
    let mut notices = Vec::new();
    let mut missing = Vec::new();
    match at_root(nic) {
        Ok(Some(shaper)) => match held(context, nic, shaper) {
            Ok(notice) => notices.extend(notice.map(|notice| {
                let change = without_shaper(context, nic).filter(|_| sends(context));
                notice.fixed_by(change)
            })),
            Err(gap) => missing.push(gap),
        },
        Ok(None) => {}
        Err(gap) => missing.push(gap),
    }
    notices.extend(emulated(nic));
    notices.extend(short_queue(nic));
    for shaper in shapers::beside_root(nic) {
        match held(context, nic, shaper) {
            Ok(notice) => notices.extend(notice),
            Err(gap) => missing.push(gap),
        }
    }
    judged(rule, context, subject(nic), notices, missing)
}

/// tc-netem(8): delay, loss, duplication or a rate, for experiments.
fn emulated(nic: &Nic) -> Option<Notice> {
    let root = nic.qdisc.value().filter(|qdisc| qdisc.kind == "netem")?;
    // With a rate it is reported as a shaper.
    if root.rate_bit_per_s.is_some() {
        return None;
    }
    let severity = if nic.kind.has_wire() {
        Severity::Warn
    } else {
        Severity::Note
    };
    let summary = format!(
        "netem of {} delays, drops or reorders what it sends: remove it, unless an experiment is running",
        nic.name
    );
    let path = format!("tc qdisc show dev {}", shell::quoted(nic.name.as_str()));
    Some(Notice::new(severity, summary).with([Evidence::new("root qdisc", "netem", path)]))
}

/// A queue without management drops every burst that is longer than it.
fn short_queue(nic: &Nic) -> Option<Notice> {
    let root = nic.qdisc.value()?;
    if !nic.kind.has_wire() || !matches!(root.kind.as_str(), "pfifo_fast" | "pfifo" | "bfifo") {
        return None;
    }
    let most = *if_read(&nic.stack.tx_queue_len).filter(|most| **most < SHORT)?;
    let summary = format!(
        "{} may queue {most} packets only (txqueuelen) under {}, so bursts are dropped: set the default, 1000",
        nic.name, root.kind
    );
    let path = format!("/sys/class/net/{}/tx_queue_len", nic.name);
    let evidence = [
        Evidence::new("tx_queue_len", most, path),
        Evidence::new("root qdisc", &root.kind, "RTM_GETQDISC"),
    ];
    Some(Notice::new(Severity::Warn, summary).with(evidence))
}

/// The rate limit of the root qdisc, its own or that of its classes.
fn at_root(nic: &Nic) -> Result<Option<Shaper>, Gap> {
    let qdisc = nic.qdisc.ok().map_err(Clone::clone)?;
    if !qdisc.shapes() {
        return Ok(None);
    }
    if let Some(rate) = qdisc.rate_bit_per_s {
        return Ok(Some(Shaper {
            what: qdisc.kind.clone(),
            rate,
            each: false,
            of_all: true,
            evidence: vec![Evidence::new(
                format!("rate of the root qdisc {}", qdisc.kind),
                rate,
                format!("tc qdisc show dev {}", shell::quoted(nic.name.as_str())),
            )],
        }));
    }
    if shapers::has_classes(nic) {
        Ok(shapers::of_root(nic, qdisc))
    } else {
        Err(qdisc.rate_gap(&nic.name))
    }
}

/// The effect of a shaper: none at or above the link speed; unknown if the link speed is unknown.
fn held(context: &Context<'_>, nic: &Nic, shaper: Shaper) -> Result<Option<Notice>, Gap> {
    let Shaper {
        what,
        rate,
        each,
        of_all,
        mut evidence,
    } = shaper;
    let link = nic.kind.has_wire().then_some(&nic.link_bit_per_s);
    if let Some(Known::Value(link)) = link
        && rate >= *link
    {
        return Ok(None);
    }
    let severity = if sends(context) && of_all {
        reached(context, nic, rate, &mut evidence)
    } else {
        Severity::Note
    };
    // Without the link speed only a trial at the shaper's ceiling shows that the shaper is the limit.
    if let Some(Known::Unknown(gap)) = link
        && severity < Severity::Crit
    {
        return Err(gap.clone());
    }
    let part = if of_all { "" } else { "part of " };
    let summary = match (sends(context), each) {
        (false, _) => format!(
            "{what} of {} shapes only acknowledgements, to {rate}",
            nic.name
        ),
        (true, false) => format!("{what} limits {part}what {} sends to {rate}", nic.name),
        (true, true) => {
            format!(
                "{part}what {} sends is limited by {what}, the lowest to {rate}",
                nic.name
            )
        }
    };
    Ok(Some(Notice::new(severity, summary).with(evidence)))
}

/// The severity: a trial close to the shaper's ceiling was limited by it.
fn reached(
    context: &Context<'_>,
    nic: &Nic,
    rate: BitRate,
    evidence: &mut Vec<Evidence>,
) -> Severity {
    let measured = context.sample.and_then(|sample| {
        let way = analysis::ways(sample)
            .into_iter()
            .find(|way| way.from == context.end)?;
        analysis::rate_of_way(sample, &way)
    });
    let bound = nic.mtu.get().and_then(|mtu| {
        ceiling::shaper(rate, mtu, ceiling::TIMESTAMPS_BYTES, false)
            .value()
            .cloned()
    });
    let (Some(measured), Some(bound)) = (measured, bound) else {
        return Severity::Warn;
    };
    let Some(share) = bound.share(measured) else {
        return Severity::Warn;
    };
    evidence.push(Evidence::new(
        "measured rate",
        format!(
            "{measured}, {share} of the shaper's ceiling of {}",
            bound.bit_per_s
        ),
        "the trial",
    ));
    if share >= threshold::SHAPER_SHARE {
        Severity::Crit
    } else {
        Severity::Warn
    }
}

/// A shaper may be intended: its removal is proposed only with `owns_shapers`, and only on software interfaces, where
/// the kernel's default is `noqueue`.
fn without_shaper(context: &Context<'_>, nic: &Nic) -> Option<crate::finding::Remedy> {
    if !context.owns_shapers || nic.kind.has_wire() {
        return None;
    }
    let key = SettingKey::Nic(nic.name.clone(), NicKnob::Qdisc);
    remedy(context, key, Value::Qdisc(Qdisc::plain("noqueue")))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{
        Cases, World, context, finding, missing, remedies, silent, with_trial,
    };
    use super::*;
    use crate::build;
    use crate::host::{Dcb, Host, QdiscClass};
    use crate::plan::End;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("a token bucket of 5 Gb/s", || World::of(shaped(5_000))),
            ("at the receiving end", || World::of(shaped(5_000)).remote()),
            ("a default class of 1 Gb/s", || {
                World::of(classful("htb", INIT, &[(0x10, 1_000)]))
            }),
            ("each class below the link", || {
                World::of(classful("htb", "", &[(0x10, 1_000), (0x20, 2_000)]))
            }),
            ("a bucket on a leaf of mq", || World::of(on_leaf(1_000))),
            ("netem", || {
                let netem = build::host().nic("eth0", |nic| nic.qdisc(Qdisc::plain("netem")));
                World::of(netem.build())
            }),
            ("a queue of one packet", || World::of(queue_of(1))),
            ("a rate of a queue", || World::of(on_queue(1_000))),
            ("a rate of a traffic class", || World::of(on_class(1_000))),
        ],
        silent: &[
            ("no shaper", || {
                World::of(build::host().nic("near0", build::NicBuilder::veth).build())
            }),
            (
                "a default class of the link's rate beside a slow one",
                || World::of(classful("htb", INIT, &[(0x10, 10_000), (0x20, 1_000)])),
            ),
            ("a rate above the link's on a leaf, a queue", || {
                World::of(on_leaf(40_000))
            }),
            ("a queue of the default length", || {
                World::of(queue_of(1000))
            }),
            ("a queue without a rate", || World::of(on_queue(0))),
            ("a traffic class without a rate", || World::of(on_class(0))),
        ],
        undetermined: &[("the rate stands in classes", || {
            let htb = build::host().nic("eth0", |nic| nic.qdisc(Qdisc::plain("htb")));
            World::of(htb.build())
        })],
    };

    /// The parameters of `htb default 10`.
    const INIT: &str = "18000200030000000a000000100000000000000000000000";

    /// A NIC of 10 Gb/s with classes (minor, Mb/s) below one of 10 Gb/s.
    fn classful(kind: &str, options: &str, classes: &[(u32, u64)]) -> Host {
        let class = |minor: u32, parent: u32, mbit: u64| QdiscClass {
            kind: kind.to_owned(),
            handle: 0x1_0000 | minor,
            parent,
            rate_bit_per_s: Some(BitRate::from_mbit_per_s(1)),
            ceil_bit_per_s: Some(BitRate::from_mbit_per_s(mbit)),
        };
        let mut all = vec![class(1, u32::MAX, 10_000)];
        all.extend(
            classes
                .iter()
                .map(|(minor, mbit)| class(*minor, 0x1_0001, *mbit)),
        );
        let root = Qdisc {
            handle: 0x1_0000,
            options: options.to_owned(),
            ..Qdisc::plain(kind)
        };
        build::host()
            .nic("eth0", |nic| {
                nic.qdisc(root)
                    .with(|nic| nic.shaping.classes = Known::Value(all))
            })
            .build()
    }

    fn on_leaf(mbit: u64) -> Host {
        build::host()
            .nic("eth0", |nic| {
                nic.qdisc(Qdisc::plain("mq")).with(|nic| {
                    if let Known::Value(tree) = &mut nic.shaping.tree
                        && let Some(mut leaf) = tree.first().cloned()
                    {
                        leaf.kind = "tbf".to_owned();
                        leaf.parent = 0x8001_0001;
                        leaf.rate_bit_per_s = Some(BitRate::from_mbit_per_s(mbit));
                        tree.push(leaf);
                    }
                })
            })
            .build()
    }

    fn queue_of(packets: u32) -> Host {
        build::host()
            .nic("eth0", |nic| {
                nic.qdisc(Qdisc::plain("pfifo_fast"))
                    .with(|nic| nic.stack.tx_queue_len = Known::Value(packets))
            })
            .build()
    }

    fn on_queue(mbit: u64) -> Host {
        build::host()
            .nic("eth0", |nic| {
                nic.with(|nic| {
                    let rate = Known::Value(BitRate::from_mbit_per_s(mbit));
                    nic.queues[1].max_bit_per_s = rate;
                })
            })
            .build()
    }

    fn on_class(mbit: u64) -> Host {
        let dcb = Dcb {
            class_max_bit_per_s: Known::Value(vec![BitRate::from_mbit_per_s(mbit)]),
            ..Dcb::default()
        };
        build::host()
            .nic("eth0", |nic| {
                nic.with(|nic| nic.shaping.dcb = Known::Value(dcb))
            })
            .build()
    }

    #[test]
    fn a_default_class_is_found_with_its_rate_and_its_trial() {
        let host = classful("htb", INIT, &[(0x10, 1_000), (0x20, 5_000)]);
        let said = finding(ID, &context(&host));
        assert_eq!(said.severity, Severity::Warn);
        assert_eq!(
            said.summary,
            "class 1:10 of htb limits what eth0 sends to 1.00 Gb/s"
        );
        let sample = build::sample().mbit(940).build();
        let said = finding(ID, &with_trial(&host, &host, &sample));
        assert_eq!(said.severity, Severity::Crit);
    }

    #[test]
    fn the_widest_class_tells_where_no_default_is_known_and_hfsc_has_upper_limits() {
        let host = classful("hfsc", "", &[(0x10, 1_000), (0x20, 2_000)]);
        let said = finding(ID, &context(&host));
        assert!(said.summary.contains("class 1:20"), "{}", said.summary);
        let mut unlimited = host;
        let classes = &mut unlimited.nics[0].shaping.classes;
        *classes = classes.clone().map(|mut all| {
            for class in &mut all {
                class.ceil_bit_per_s = None;
            }
            all
        });
        assert!(silent(ID, &context(&unlimited)));
    }

    #[test]
    fn a_shaper_beside_the_root_says_where_it_is() {
        for (host, place) in [
            (on_leaf(1_000), "1 qdisc below the root"),
            (on_queue(1_000), "1 queue by tx_maxrate"),
            (on_class(1_000), "1 traffic class by DCB"),
        ] {
            let said = finding(ID, &context(&host));
            assert_eq!(said.severity, Severity::Warn);
            assert!(said.summary.contains(place), "{}", said.summary);
        }
    }

    fn shaped(mbit: u64) -> Host {
        build::host()
            .nic("near0", |nic| nic.veth().qdisc(build::tbf(mbit)))
            .build()
    }

    #[test]
    fn a_trial_at_the_shapers_ceiling_makes_it_critical() {
        let host = shaped(5_000);
        let sample = build::sample().mbit(4_700).build();
        let said = finding(ID, &with_trial(&host, &host, &sample));
        assert_eq!(said.severity, Severity::Crit);
        assert!(
            said.evidence[1].value.contains("98.3 %"),
            "{:?}",
            said.evidence
        );
        let sample = build::sample().mbit(2_000).build();
        let said = finding(ID, &with_trial(&host, &host, &sample));
        assert_eq!(said.severity, Severity::Warn);
        assert_eq!(finding(ID, &context(&host)).severity, Severity::Warn);
    }

    #[test]
    fn only_its_owner_is_told_to_remove_it() {
        let host = shaped(5_000);
        assert_eq!(remedies(&finding(ID, &context(&host))), [""; 0]);
        let owner = Context {
            owns_shapers: true,
            ..context(&host)
        };
        assert_eq!(
            remedies(&finding(ID, &owner)),
            ["nic/near0/qdisc: tbf 5.00 Gb/s -> noqueue"]
        );
    }

    #[test]
    fn at_the_receiving_end_it_is_a_note() {
        let host = shaped(5_000);
        let sample = build::sample().mbit(4_700).build();
        let context = Context {
            end: End::Remote,
            owns_shapers: true,
            ..with_trial(&host, &host, &sample)
        };
        let said = finding(ID, &context);
        assert_eq!((said.severity, said.remedies.len()), (Severity::Note, 0));
    }

    #[test]
    fn a_rate_that_the_link_cannot_pass_anyway_and_a_plain_qdisc_are_no_fault() {
        let host = build::host()
            .nic("eth0", |nic| nic.gbit(10).qdisc(build::tbf(10_000)))
            .nic("near0", build::NicBuilder::veth)
            .build();
        assert!(silent(ID, &context(&host)));
    }

    #[test]
    fn beside_a_link_of_unknown_speed_only_a_trial_tells() {
        let host = build::host()
            .nic("eth0", |nic| {
                nic.qdisc(build::tbf(5_000))
                    .with(|nic| nic.link_bit_per_s = Known::not_asked("speed"))
            })
            .build();
        assert_eq!(missing(ID, &context(&host))[0].path, "speed");
        let sample = build::sample().mbit(4_700).build();
        let said = finding(ID, &with_trial(&host, &host, &sample));
        assert_eq!(said.severity, Severity::Crit);
    }

    #[test]
    fn a_shaper_whose_rate_stands_in_its_classes_is_not_passed() {
        let host = build::host()
            .nic("eth0", |nic| nic.qdisc(Qdisc::plain("htb")))
            .build();
        assert_eq!(
            missing(ID, &context(&host))[0].path,
            "tc class show dev eth0"
        );
        let host = build::host()
            .nic("eth0", |nic| {
                nic.with(|nic| nic.qdisc = Known::not_asked("RTM_GETQDISC"))
            })
            .build();
        assert_eq!(missing(ID, &context(&host))[0].path, "RTM_GETQDISC");
    }
}
