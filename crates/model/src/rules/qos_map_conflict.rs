//! `qos-map-conflict`: conflicting QoS configuration: priorities, ETS shares or DCBX owners. Facts from
//! dcb(8), IEEE 802.1Qaz and `RTM_GETDCB`.

use super::devices::{Notice, RDMA, judged, severity_for, unknown};
use super::{ALWAYS, each_nic, subject};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{Dcb, Nic, NicKind};
use crate::known::Known;
use crate::setting::Class;

pub(super) const RULE: Rule = Rule {
    id: "qos-map-conflict",
    number: 67,
    status: Status::Implemented,
    title: "conflicting QoS configuration: priorities, ETS shares or DCBX owners",
    severity: Severity::Warn,
    stage: Stage::Tuning,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "ETS shares that do not add up to 100 %; a priority in an ETS class of 0 %; ETS shares that \
                differ from the peer's; firmware DCBX together with lldpad; a VLAN without egress-qos-map on \
                an interface that trusts PCP",
    effect: "traffic gets its intended class; no verified figure",
    source: "dcb(8), dcb-ets(8), dcb-apptrust(8); IEEE 802.1Qaz",
    fix: Fix::Advised(&[Class::R2, Class::R3]),
    persist: "lldpad, or a systemd unit that runs `dcb ets` at boot; one owner only",
    contested: None,
    page: include_str!("../../../../docs/rules/qos-map-conflict.md"),
    check,
};

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    each_nic(rule, context, |nic| {
        if nic.kind != NicKind::Physical {
            return None;
        }
        let Known::Value(dcb) = &nic.shaping.dcb else {
            let missing = Vec::from_iter(unknown(&nic.shaping.dcb));
            return judged(rule, context, subject(nic), Vec::new(), missing);
        };
        let notices = [
            shares(nic, dcb),
            starved(nic, dcb),
            peers(nic, dcb),
            owners(context, nic, dcb),
            untagged(context, nic, dcb),
        ];
        let notices = notices.into_iter().flatten().collect();
        judged(rule, context, subject(nic), notices, Vec::new())
    })
}

fn path(nic: &Nic, what: &str) -> String {
    format!("RTM_GETDCB {}: {what}", nic.name)
}

fn list<T: ToString>(values: &[T]) -> String {
    let words: Vec<String> = values.iter().map(ToString::to_string).collect();
    words.join(" ")
}

/// The ETS classes and their shares.
fn ets_classes(dcb: &Dcb) -> Vec<(usize, u32)> {
    let (Some(share), Some(how)) = (dcb.class_bandwidth.value(), dcb.class_algorithm.value())
    else {
        return Vec::new();
    };
    let pairs = share.iter().zip(how).enumerate();
    pairs
        .filter(|(_, (_, how))| how.eq_ignore_ascii_case("ets"))
        .map(|(class, (share, _))| (class, *share))
        .collect()
}

fn shares(nic: &Nic, dcb: &Dcb) -> Option<Notice> {
    let classes = ets_classes(dcb);
    let sum: u32 = classes
        .iter()
        .fold(0, |sum, (_, share)| sum.saturating_add(*share));
    if sum == 0 || sum == 100 {
        return None;
    }
    let summary = format!(
        "the ETS shares of {} add up to {sum} %, not 100 %: set them again",
        nic.name
    );
    let all = list(dcb.class_bandwidth.value()?);
    let evidence = Evidence::new("ETS share of each class, %", all, path(nic, "tc_tx_bw"));
    Some(Notice::new(Severity::Warn, summary).with([evidence]))
}

fn starved(nic: &Nic, dcb: &Dcb) -> Option<Notice> {
    let classes = ets_classes(dcb);
    // All zeros means that no shares were set.
    let set = classes.iter().any(|(_, share)| *share > 0);
    let map = dcb.priority_class.value()?;
    let empty = |class: u32| {
        classes
            .iter()
            .any(|(own, share)| u32::try_from(*own) == Ok(class) && *share == 0)
    };
    let priority = (0u32..).zip(map).find(|(_, class)| empty(**class));
    let (priority, class) = priority.filter(|_| set)?;
    let summary = format!(
        "priority {priority} of {} maps to traffic class {class}, whose ETS share is 0 %: give it a share",
        nic.name
    );
    Some(Notice::new(Severity::Warn, summary).with([
        Evidence::new(
            "traffic class of each priority",
            list(map),
            path(nic, "prio_tc"),
        ),
        Evidence::new(
            "ETS share of each class, %",
            list(dcb.class_bandwidth.value()?),
            path(nic, "tc_tx_bw"),
        ),
    ]))
}

fn peers(nic: &Nic, dcb: &Dcb) -> Option<Notice> {
    let (own, peer) = (
        dcb.class_bandwidth.value()?,
        dcb.peer_class_bandwidth.value()?,
    );
    let set = |shares: &[u32]| shares.iter().any(|share| *share > 0);
    if own == peer || !set(own) || !set(peer) {
        return None;
    }
    let summary = format!(
        "{} and its DCBX peer have different ETS shares: configure the same on both",
        nic.name
    );
    Some(Notice::new(Severity::Warn, summary).with([
        Evidence::new(
            "ETS share of each class, %",
            list(own),
            path(nic, "tc_tx_bw"),
        ),
        Evidence::new(
            "ETS share of the peer, %",
            list(peer),
            path(nic, "DCB_ATTR_IEEE_PEER_ETS"),
        ),
    ]))
}

fn owners(context: &Context<'_>, nic: &Nic, dcb: &Dcb) -> Option<Notice> {
    let dcbx = dcb.dcbx.value()?;
    let firmware = dcbx
        .iter()
        .any(|word| word.eq_ignore_ascii_case("firmware"));
    let owners = context.host.software.owners.value()?;
    let lldpad = owners.iter().find(|owner| owner.name == "lldpad")?;
    firmware.then(|| {
        let summary = format!(
            "the firmware of {} and lldpad both run DCBX: disable one of them",
            nic.name
        );
        Notice::new(Severity::Warn, summary).with([
            Evidence::new("DCBX", list(dcbx), path(nic, "DCB_CMD_GDCBX")),
            Evidence::new("lldpad", format!("process {}", lldpad.pid), &*lldpad.path),
        ])
    })
}

/// Lossless priorities that depend on the VLAN tag, and VLANs that tag everything with priority 0.
fn untagged(context: &Context<'_>, nic: &Nic, dcb: &Dcb) -> Option<Notice> {
    let lossless = dcb.pfc_enabled.get().filter(|bits| bits & !1 != 0)?;
    let trust = dcb.trust.value()?;
    if trust.iter().any(|word| word.eq_ignore_ascii_case("dscp")) {
        return None;
    }
    let vlan = context.host.nics.iter().find(|upper| {
        let egress = upper
            .stack
            .vlan
            .as_ref()
            .and_then(|vlan| vlan.egress.value());
        let over = upper.lower().contains(&nic.name) || nic.upper().contains(&upper.name);
        over && egress.is_some_and(|map| map.iter().all(|(_, to)| *to == 0))
    })?;
    let summary = format!(
        "{} tags every packet with priority 0, but the lossless priorities of {} are others and selected by \
         PCP: set egress-qos-map",
        vlan.name, nic.name
    );
    Some(
        Notice::new(severity_for(context, RDMA, Severity::Warn), summary).with([
            Evidence::new(
                "lossless priorities, bitmap",
                format!("{lossless:#04x}"),
                path(nic, "pfc_en"),
            ),
            Evidence::new(
                "trusted for priority",
                list(trust),
                path(nic, "DCB_ATTR_DCB_APP_TRUST_TABLE"),
            ),
            Evidence::new(
                format!("egress map of {}", vlan.name),
                "none",
                format!("/proc/net/vlan/{}", vlan.name),
            ),
        ]),
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding};
    use super::*;
    use crate::build;
    use crate::finding::Profile;
    use crate::host::{Owner, Vlan};
    use crate::known::Cause;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("60 + 60 %", || world(&[60, 60], |_| {})),
            ("a priority in a class of 0 %", || world(&[100, 0], |_| {})),
            ("the peer shares differently", || {
                world(&[50, 50], |dcb| {
                    dcb.peer_class_bandwidth = Known::Value(vec![70, 30]);
                })
            }),
            ("two owners", || {
                world(&[50, 50], |dcb| dcb.dcbx = words(&["firmware", "IEEE"]))
            }),
            ("a VLAN without egress map", || {
                world(&[50, 50], |dcb| {
                    dcb.pfc_enabled = Known::Value(1 << 3);
                    dcb.trust = words(&["pcp"]);
                })
                .profile(Profile::Rdma)
            }),
        ],
        silent: &[
            ("50 + 50 %", || world(&[50, 50], |_| {})),
            ("nothing set", || world(&[0, 0], |_| {})),
            ("told by DSCP", || {
                world(&[50, 50], |dcb| {
                    dcb.pfc_enabled = Known::Value(1 << 3);
                    dcb.trust = words(&["dscp", "pcp"]);
                })
            }),
            ("a veth", || World::of(build::veth_pair().0)),
        ],
        undetermined: &[("not queried", || {
            World::of(
                build::host()
                    .nic("eth0", |nic| {
                        nic.with(|nic| nic.shaping.dcb = Known::not_asked("RTM_GETDCB"))
                    })
                    .build(),
            )
        })],
    };

    fn words(words: &[&str]) -> Known<Vec<String>> {
        Known::Value(words.iter().map(|word| (*word).to_owned()).collect())
    }

    fn world(shares: &[u32], change: impl FnOnce(&mut Dcb)) -> World {
        let mut dcb = Dcb {
            priority_class: Known::Value(vec![0, 1, 0, 0, 0, 0, 0, 0]),
            class_bandwidth: Known::Value(shares.to_vec()),
            class_algorithm: words(&["ets", "ets"]),
            pfc_enabled: Known::Value(0),
            dcbx: words(&["host", "IEEE"]),
            peer_class_bandwidth: Known::unknown(Cause::Absent, "DCB_ATTR_IEEE_PEER_ETS", "none"),
            ..Dcb::default()
        };
        change(&mut dcb);
        let vlan = Vlan {
            egress: Known::Value(Vec::new()),
            ..Vlan::default()
        };
        let host = build::host()
            .nic("eth0", |nic| {
                nic.with(|nic| nic.shaping.dcb = Known::Value(dcb))
            })
            .nic("eth0.5", |nic| {
                nic.with(|nic| {
                    nic.kind = NicKind::Vlan;
                    nic.lower = vec!["eth0".parse().expect("a name")].into();
                    nic.stack.vlan = Some(vlan);
                })
            })
            .with(|host| {
                host.software.owners = Known::Value(vec![Owner {
                    name: "lldpad".to_owned(),
                    pid: 700,
                    detail: None,
                    path: "/proc/700/comm".to_owned(),
                }]);
            });
        World::of(host.build())
    }

    #[test]
    fn what_contradicts_itself_is_named_with_its_figures() {
        let said = finding(ID, &world(&[60, 60], |_| {}).context());
        assert!(said.summary.contains("120 %"), "{}", said.summary);
        assert_eq!(said.evidence[0].value, "60 60");
    }
}
