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
                an interface that trusts PCP, or beside VLANs that have one; a rate limit of a class above the \
                link's rate; priority maps or limits that differ between the ports of a bond; priority maps \
                that differ between the two ends; PFC on one end only (ports without RDMA)",
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
            without_map(context, nic),
            above_line(nic, dcb),
            other_port(context, nic, dcb),
            other_end(context, nic, dcb),
            pfc_of_one_end(context, nic, dcb),
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

/// The VLANs on an interface, each with whether its map gives any priority.
fn vlans<'h>(context: &Context<'h>, nic: &Nic) -> Vec<(&'h Nic, bool)> {
    let of_nic =
        |upper: &&Nic| upper.lower().contains(&nic.name) || nic.upper().contains(&upper.name);
    let mapped = |upper: &'h Nic| {
        let vlan = upper.stack.vlan.as_ref()?;
        Some((upper, vlan.egress.value()?.iter().any(|(_, to)| *to != 0)))
    };
    let all = context.host.nics.iter().filter(of_nic);
    all.filter_map(mapped).collect()
}

/// One VLAN without a map beside others that have one.
fn without_map(context: &Context<'_>, nic: &Nic) -> Option<Notice> {
    let vlans = vlans(context, nic);
    let (with, _) = vlans.iter().find(|(_, is_mapped)| *is_mapped)?;
    let (without, _) = vlans.iter().find(|(_, is_mapped)| !*is_mapped)?;
    let summary = format!(
        "{} has no egress-qos-map, but {} on the same port has one: its frames have priority 0",
        without.name, with.name
    );
    let evidence = |vlan: &Nic, value: &str| {
        let file = format!("/proc/net/vlan/{}", vlan.name);
        Evidence::new(format!("egress map of {}", vlan.name), value, file)
    };
    Some(
        Notice::new(Severity::Note, summary)
            .with([evidence(without, "none"), evidence(with, "set")]),
    )
}

/// A limit that no traffic can reach.
fn above_line(nic: &Nic, dcb: &Dcb) -> Option<Notice> {
    let line = nic
        .link_bit_per_s
        .get()
        .filter(|line| line.as_bit_per_s() > 0)?;
    let rates = dcb.class_max_bit_per_s.value()?;
    let (class, rate) = rates.iter().enumerate().find(|(_, rate)| **rate > line)?;
    let summary = format!(
        "traffic class {class} of {} is limited to {rate}, above the link's {line}: the limit has no effect",
        nic.name
    );
    Some(Notice::new(Severity::Note, summary).with([
        Evidence::new(
            format!("limit of traffic class {class}"),
            rate.to_string(),
            path(nic, "tc_maxrate"),
        ),
        Evidence::new(
            "link rate",
            line.to_string(),
            format!("/sys/class/net/{}/speed", nic.name),
        ),
    ]))
}

/// What two interfaces that carry the same traffic must have in common: its name, and both values.
fn difference(one: &Dcb, other: &Dcb) -> Option<(&'static str, String, String)> {
    let maps = (one.priority_class.value(), other.priority_class.value());
    if let (Some(one), Some(other)) = maps
        && one != other
    {
        return Some(("traffic class of each priority", list(one), list(other)));
    }
    let limits = (
        one.class_max_bit_per_s.value(),
        other.class_max_bit_per_s.value(),
    );
    if let (Some(one), Some(other)) = limits
        && one != other
    {
        return Some(("limit of each traffic class", list(one), list(other)));
    }
    None
}

fn differing(
    (nic, of_nic): (&Nic, String),
    (other, of_other): (&Nic, String),
    what: &str,
    place: &str,
) -> Notice {
    let summary = format!(
        "{} and {}{place} differ in the {what}: configure the same on both",
        nic.name, other.name
    );
    Notice::new(Severity::Warn, summary).with([
        Evidence::new(
            format!("{what} of {}", nic.name),
            of_nic,
            path(nic, "ieee_ets"),
        ),
        Evidence::new(
            format!("{what} of {}", other.name),
            of_other,
            path(other, "ieee_ets"),
        ),
    ])
}

/// Another port of the same bond, which carries the same traffic.
fn other_port(context: &Context<'_>, nic: &Nic, dcb: &Dcb) -> Option<Notice> {
    let bond_of = |nic: &Nic| nic.stack.bond_port.as_ref()?.bond.value().cloned();
    let bond = bond_of(nic)?;
    // Each pair once.
    let others = context
        .host
        .nics
        .iter()
        .skip_while(|other| other.name != nic.name);
    let mut others = others
        .skip(1)
        .filter(|other| bond_of(other).as_ref() == Some(&bond));
    others.find_map(|other| {
        let (what, own, theirs) = difference(dcb, other.shaping.dcb.value()?)?;
        let place = format!(", ports of {bond},");
        Some(differing((nic, own), (other, theirs), what, &place))
    })
}

/// The interface of the other end, if it has but one with a map.
fn other_end(context: &Context<'_>, nic: &Nic, dcb: &Dcb) -> Option<Notice> {
    if context.nic.is_some_and(|own| *own != nic.name) {
        return None;
    }
    let with_map = |other: &&Nic| {
        let dcb = other.shaping.dcb.value();
        other.kind == NicKind::Physical
            && dcb.is_some_and(|dcb| dcb.priority_class.value().is_some())
    };
    let mut others = context.other?.nics.iter().filter(with_map);
    let (other, None) = (others.next()?, others.next()) else {
        return None;
    };
    let (own, theirs) = (dcb.priority_class.value()?, other.shaping.dcb.value()?);
    let theirs = theirs
        .priority_class
        .value()
        .filter(|theirs| *theirs != own)?;
    let values = ((nic, list(own)), (other, list(theirs)));
    let what = "traffic class of each priority";
    Some(differing(values.0, values.1, what, " at the remote end"))
}

/// Lossless priorities here and none at the DCBX peer or the remote end, or the reverse. Of ports with RDMA
/// `roce-pfc-ecn-mismatch` compares each priority.
fn pfc_of_one_end(context: &Context<'_>, nic: &Nic, dcb: &Dcb) -> Option<Notice> {
    if matches!(nic.rdma, Known::Value(_)) {
        return None;
    }
    let own = dcb.pfc_enabled.get()?;
    let differs = |theirs: &u32| (own == 0) != (*theirs == 0);
    let with_pfc = |other: &&Nic| {
        let dcb = other.shaping.dcb.value();
        other.kind == NicKind::Physical && dcb.is_some_and(|dcb| dcb.pfc_enabled.get().is_some())
    };
    let remote = || {
        if context.nic.is_some_and(|own| *own != nic.name) {
            return None;
        }
        let mut others = context.other?.nics.iter().filter(with_pfc);
        let (other, None) = (others.next()?, others.next()) else {
            return None;
        };
        let theirs = other.shaping.dcb.value()?.pfc_enabled.get()?;
        Some((theirs, format!("{} at the remote end", other.name)))
    };
    let peer = || {
        let theirs = dcb.peer_pfc_enabled.get()?;
        Some((theirs, "its DCBX peer".to_owned()))
    };
    let other_than_own = |found: &(u32, String)| differs(&found.0);
    let found = peer().filter(other_than_own);
    let (theirs, place) = found.or_else(|| remote().filter(other_than_own))?;
    let (on, off) = if own == 0 {
        (place.clone(), nic.name.to_string())
    } else {
        (nic.name.to_string(), place.clone())
    };
    let summary = format!(
        "PFC is on at {on} and off at {off}: pause frames of one end are not obeyed by the other"
    );
    let bitmap = |bits: u32| format!("{bits:#04x}");
    Some(
        Notice::new(severity_for(context, RDMA, Severity::Warn), summary).with([
            Evidence::new(
                format!("lossless priorities of {}, bitmap", nic.name),
                bitmap(own),
                path(nic, "pfc_en"),
            ),
            Evidence::new(
                format!("lossless priorities of {place}, bitmap"),
                bitmap(theirs),
                path(nic, "pfc_en"),
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
    use crate::host::{BondPort, Host, Owner, Vlan};
    use crate::known::Cause;
    use crate::units::BitRate;

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
            ("a VLAN without a map beside one with a map", || {
                changed(|host| {
                    let mut other = host.nics[1].clone();
                    other.name = "eth0.6".parse().expect("a name");
                    other.stack.vlan = Some(Vlan {
                        egress: Known::Value(vec![(0, 3)]),
                        ..Vlan::default()
                    });
                    host.nics.push(other);
                })
            }),
            ("a limit above the line", || {
                limited(&[BitRate::from_bit_per_s(11_000_000_000)])
            }),
            ("ports of a bond with other maps", || {
                bonded(vec![0, 0, 1, 1, 0, 0, 0, 0])
            }),
            ("PFC that the DCBX peer does not have", || {
                world(&[50, 50], |dcb| {
                    dcb.pfc_enabled = Known::Value(1 << 3);
                    dcb.trust = words(&["dscp"]);
                    dcb.peer_pfc_enabled = Known::Value(0);
                })
            }),
            ("PFC at the remote end only", || {
                let far = world(&[50, 50], |dcb| {
                    dcb.pfc_enabled = Known::Value(1 << 3);
                    dcb.trust = words(&["dscp"]);
                });
                let far = far.context().host.clone();
                world(&[50, 50], |_| {}).towards(far)
            }),
            ("another map at the remote end", || {
                let far = bonded(vec![0, 0, 1, 1, 0, 0, 0, 0]).context().host.clone();
                let far = build::host().with(|host| host.nics = vec![far.nics[2].clone()]);
                world(&[50, 50], |_| {}).towards(far.build())
            }),
        ],
        silent: &[
            ("PFC at both ends", || {
                let both = || {
                    world(&[50, 50], |dcb| {
                        dcb.pfc_enabled = Known::Value(1 << 3);
                        dcb.trust = words(&["dscp"]);
                    })
                };
                let far = both().context().host.clone();
                both().towards(far)
            }),
            ("ports of a bond with one map", || {
                bonded(vec![0, 1, 0, 0, 0, 0, 0, 0])
            }),
            ("a limit below the line", || {
                limited(&[BitRate::from_bit_per_s(1_000_000_000)])
            }),
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

    fn changed(change: impl FnOnce(&mut Host)) -> World {
        let mut host = world(&[50, 50], |_| {}).context().host.clone();
        change(&mut host);
        World::of(host)
    }

    fn limited(rates: &[BitRate]) -> World {
        let rates = rates.to_vec();
        world(&[50, 50], |dcb| {
            dcb.class_max_bit_per_s = Known::Value(rates);
        })
    }

    /// `eth0` and `eth1` in a bond, the second with this map.
    fn bonded(map: Vec<u32>) -> World {
        changed(|host| {
            host.nics[0].stack.bond_port = Some(BondPort {
                bond: Known::Value("bond0".parse().expect("a name")),
                ..BondPort::default()
            });
            let mut other = host.nics[0].clone();
            other.name = "eth1".parse().expect("a name");
            if let Known::Value(dcb) = &mut other.shaping.dcb {
                dcb.priority_class = Known::Value(map);
            }
            host.nics.push(other);
        })
    }

    fn words(words: &[&str]) -> Known<Vec<String>> {
        Known::Value(words.iter().map(|word| (*word).to_owned()).collect())
    }

    fn world(shares: &[u32], change: impl FnOnce(&mut Dcb)) -> World {
        let mut dcb = Dcb {
            priority_class: Known::Value(vec![0, 1, 0, 0, 0, 0, 0, 0]),
            class_bandwidth: Known::Value(shares.to_vec()),
            class_algorithm: words(&["ets", "ets"]),
            class_max_bit_per_s: Known::Value(Vec::new()),
            pfc_enabled: Known::Value(0),
            dcbx: words(&["host", "IEEE"]),
            peer_class_bandwidth: Known::unknown(Cause::Absent, "DCB_ATTR_IEEE_PEER_ETS", "none"),
            peer_pfc_enabled: Known::unknown(Cause::Absent, "DCB_ATTR_IEEE_PEER_PFC", "none"),
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
