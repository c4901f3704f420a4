//! `roce-pfc-ecn-mismatch`: the lossless priority for RoCE differs between NIC, peer and switch. Facts
//! from dcb(8), IEEE 802.1Qbb and `RTM_GETDCB`.

use super::devices::{Notice, Port, RDMA, judged, ports, unknown};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{Dcb, Host, Nic};
use crate::known::Known;
use crate::setting::Class;

pub(super) const RULE: Rule = Rule {
    id: "roce-pfc-ecn-mismatch",
    number: 71,
    status: Status::InPart("whether DCQCN is enabled has no stable interface to read"),
    title: "the lossless priority for RoCE differs between NIC, peer and switch",
    severity: Severity::Crit,
    stage: Stage::Errors,
    profiles: RDMA,
    judges_by: &[Basis::Facts],
    threshold: "PFC priorities that differ from the DCBX peer's (crit; one side has none: warn) or from the remote \
                end's (crit); more than one, link-level pause together with PFC, or a lossless priority that untagged \
                packets never get (warn); neither PFC nor pause (note)",
    effect: "RoCE packets are paused instead of dropped on the whole path; no verified figure",
    source: "dcb-pfc(8), dcb-apptrust(8); IEEE 802.1Qbb",
    fix: Fix::Advised(&[Class::R3]),
    persist: "lldpad, or a systemd unit that runs `dcb pfc` and `dcb apptrust` at boot; on both ends and the \
              switches",
    contested: None,
    page: include_str!("../../../../docs/rules/roce-pfc-ecn-mismatch.md"),
    check,
};

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let all = ports(context).into_iter();
    all.filter(|port| port.is_roce() && port.is_active())
        .filter_map(|port| {
            let nic = port.nic(context)?;
            // Software RoCE and NICs without DCB have no priorities to compare.
            let Known::Value(dcb) = &nic.shaping.dcb else {
                let missing = Vec::from_iter(unknown(&nic.shaping.dcb));
                return judged(rule, context, port.subject(), Vec::new(), missing);
            };
            let Some(lossless) = dcb.pfc_enabled.get() else {
                let missing = Vec::from_iter(unknown(&dcb.pfc_enabled));
                return judged(rule, context, port.subject(), Vec::new(), missing);
            };
            let notices = [
                with_peer(nic, dcb, lossless),
                with_other_end(context, nic, lossless),
                several(nic, lossless),
                beside_pause(nic, lossless),
                unreachable(nic, dcb, lossless),
                none(port, nic, lossless),
            ];
            let notices = notices.into_iter().flatten().collect();
            judged(rule, context, port.subject(), notices, Vec::new())
        })
        .collect()
}

/// The priorities whose bits are set, `3` or `3 4`; `none`.
fn priorities(bits: u32) -> String {
    let set: Vec<String> = (0..8)
        .filter(|priority| bits >> priority & 1 == 1)
        .map(|priority: u32| priority.to_string())
        .collect();
    if set.is_empty() {
        "none".to_owned()
    } else {
        set.join(" ")
    }
}

fn own(nic: &Nic, lossless: u32) -> Evidence {
    let path = format!("RTM_GETDCB {}: DCB_ATTR_IEEE_PFC pfc_en", nic.name);
    Evidence::new(
        format!("lossless priorities of {}", nic.name),
        priorities(lossless),
        path,
    )
}

fn with_peer(nic: &Nic, dcb: &Dcb, lossless: u32) -> Option<Notice> {
    let peer = dcb
        .peer_pfc_enabled
        .get()
        .filter(|peer| *peer != lossless)?;
    // A peer without any may also be one that does not report them.
    let severity = if peer == 0 || lossless == 0 {
        Severity::Warn
    } else {
        Severity::Crit
    };
    let summary = format!(
        "lossless priorities are {1} on {0} and {2} on its switch port: configure the same on both",
        nic.name,
        priorities(lossless),
        priorities(peer)
    );
    let path = format!("RTM_GETDCB {}: DCB_ATTR_IEEE_PEER_PFC", nic.name);
    let told = Evidence::new(
        "lossless priorities of the DCBX peer",
        priorities(peer),
        path,
    );
    Some(Notice::new(severity, summary).with([own(nic, lossless), told]))
}

/// The lossless priorities of every RoCE interface of a host.
fn of_host(host: &Host) -> Vec<(&Nic, u32)> {
    let with_rdma = |nic: &&Nic| {
        let of_port = |port: &crate::host::RdmaPort| port.netdev.value() == Some(&nic.name);
        host.rdma
            .iter()
            .flat_map(|device| &device.ports)
            .any(of_port)
    };
    let bits = |nic: &Nic| nic.shaping.dcb.value()?.pfc_enabled.get();
    let nics = host.nics.iter().filter(with_rdma);
    nics.filter_map(|nic| Some((nic, bits(nic)?))).collect()
}

fn with_other_end(context: &Context<'_>, nic: &Nic, lossless: u32) -> Option<Notice> {
    let others = of_host(context.other?);
    let (other, bits) = others.first().copied()?;
    // One of several interfaces may be the one on the path.
    if others.iter().any(|(_, bits)| *bits == lossless) {
        return None;
    }
    let summary = format!(
        "lossless priorities are {1} on {0} and {3} on {2} at the remote end: configure the same on both",
        nic.name,
        priorities(lossless),
        other.name,
        priorities(bits)
    );
    let told = Evidence::new(
        format!("lossless priorities of {} at the remote end", other.name),
        priorities(bits),
        format!("RTM_GETDCB {}: DCB_ATTR_IEEE_PFC pfc_en", other.name),
    );
    Some(Notice::new(Severity::Crit, summary).with([own(nic, lossless), told]))
}

fn several(nic: &Nic, lossless: u32) -> Option<Notice> {
    (lossless.count_ones() > 1).then(|| {
        let summary = format!(
            "{} has {} lossless priorities ({}), each of which takes buffer and may spread pauses: one is \
             enough",
            nic.name,
            lossless.count_ones(),
            priorities(lossless)
        );
        Notice::new(Severity::Warn, summary).with([own(nic, lossless)])
    })
}

fn beside_pause(nic: &Nic, lossless: u32) -> Option<Notice> {
    let pause = nic.wire.pause.value()?;
    let on = pause.rx.get() == Some(true) || pause.tx.get() == Some(true);
    (on && lossless != 0).then(|| {
        let summary = format!(
            "{} uses link-level pause together with PFC on priority {}: turn link-level pause off",
            nic.name,
            priorities(lossless)
        );
        let word = |fact: &Known<bool>| match fact.get() {
            Some(true) => "on",
            Some(false) => "off",
            None => "unknown",
        };
        let value = format!("receive {}, send {}", word(&pause.rx), word(&pause.tx));
        let path = format!("ETHTOOL_MSG_PAUSE_GET {}", nic.name);
        Notice::new(Severity::Warn, summary).with([
            own(nic, lossless),
            Evidence::new("link-level pause", value, path),
        ])
    })
}

/// With priorities from the VLAN tag only, an untagged packet has priority 0.
fn unreachable(nic: &Nic, dcb: &Dcb, lossless: u32) -> Option<Notice> {
    let trust = dcb.trust.value()?;
    let by_tag = !trust.iter().any(|word| word.eq_ignore_ascii_case("dscp"));
    let untagged = nic.upper().is_empty() && nic.stack.vlan.is_none();
    (by_tag && untagged && lossless != 0 && lossless & 1 == 0).then(|| {
        let summary = format!(
            "{} has no VLAN and trusts PCP only, so no packet gets lossless priority {}: trust DSCP",
            nic.name,
            priorities(lossless)
        );
        let path = format!("RTM_GETDCB {}: DCB_ATTR_DCB_APP_TRUST_TABLE", nic.name);
        Notice::new(Severity::Warn, summary)
            .with([own(nic, lossless), Evidence::new("trusted for priority", trust.join(" "), path)])
    })
}

/// RoCE also works without a lossless class, with ECN and retransmission: a note only.
fn none(port: Port<'_>, nic: &Nic, lossless: u32) -> Option<Notice> {
    let paused = nic
        .wire
        .pause
        .value()
        .is_some_and(|pause| pause.rx.get() == Some(true));
    (lossless == 0 && !paused).then(|| {
        let summary = format!(
            "{} has no lossless priority and no pause, so RoCE relies on ECN and retransmission: check the \
             fabric's plan",
            port.name()
        );
        Notice::new(Severity::Note, summary).with([own(nic, lossless)])
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::devices::testing::roce;
    use super::super::testing::{Cases, World, finding};
    use super::*;
    use crate::build;
    use crate::finding::Profile;
    use crate::host::Pause;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("another priority than the peer's", || {
                world(1 << 3, |dcb| dcb.peer_pfc_enabled = Known::Value(1 << 4))
            }),
            ("two lossless priorities", || world(3 << 3, |_| {})),
            ("told by tag, and no VLAN", || {
                world(1 << 3, |dcb| {
                    dcb.trust = Known::Value(vec!["pcp".to_owned()]);
                })
            }),
            ("another priority at the other end", || {
                world(1 << 3, |_| {}).towards(host(1 << 4, |_| {}))
            }),
            ("pause beside PFC", || {
                let mut host = host(1 << 3, |_| {});
                host.nics[0].wire.pause = Known::Value(pause(true));
                World::of(host).profile(Profile::Rdma)
            }),
            ("none at all", || world(0, |_| {})),
        ],
        silent: &[
            ("one, like the peer's", || {
                world(1 << 3, |dcb| dcb.peer_pfc_enabled = Known::Value(1 << 3))
            }),
            ("bulk transfer by TCP", || {
                world(3 << 3, |_| {}).profile(Profile::Throughput)
            }),
            ("no RDMA", || {
                World::of(build::host().build()).profile(Profile::Rdma)
            }),
        ],
        undetermined: &[("not queried", || {
            let mut host = host(0, |_| {});
            host.nics[0].shaping.dcb = Known::not_asked("RTM_GETDCB");
            World::of(host).profile(Profile::Rdma)
        })],
    };

    fn pause(on: bool) -> Pause {
        Pause {
            autoneg: Known::Value(false),
            rx: Known::Value(on),
            tx: Known::Value(on),
        }
    }

    fn host(lossless: u32, change: impl FnOnce(&mut Dcb)) -> Host {
        let mut dcb = Dcb {
            pfc_enabled: Known::Value(lossless),
            trust: Known::Value(vec!["dscp".to_owned(), "pcp".to_owned()]),
            ..Dcb::default()
        };
        change(&mut dcb);
        build::host()
            .nic("eth0", |nic| {
                nic.with(|nic| {
                    nic.shaping.dcb = Known::Value(dcb);
                    nic.wire.pause = Known::Value(pause(false));
                })
            })
            .with(|host| host.rdma.push(roce("mlx5_0", "eth0")))
            .build()
    }

    fn world(lossless: u32, change: impl FnOnce(&mut Dcb)) -> World {
        World::of(host(lossless, change)).profile(Profile::Rdma)
    }

    #[test]
    fn a_peer_with_another_priority_is_critical_and_none_at_all_a_note() {
        let other = world(1 << 3, |dcb| dcb.peer_pfc_enabled = Known::Value(1 << 4));
        let said = finding(ID, &other.context());
        assert_eq!(said.severity, Severity::Crit);
        assert_eq!(
            (
                said.evidence[0].value.as_str(),
                said.evidence[1].value.as_str()
            ),
            ("3", "4")
        );
        assert_eq!(
            finding(ID, &world(0, |_| {}).context()).severity,
            Severity::Note
        );
    }
}
