//! `packet-tap-or-generic-xdp`: a packet capture or generic XDP adds cost to every packet. Facts from
//! packet(7), `/proc/net/packet`, `/proc/net/ptype`; `IFLA_XDP_ATTACHED`;
//! Documentation/netlink/specs/netdev.yaml (`xdp-features`).

use super::devices::{Notice, judged, unknown};
use super::{ALWAYS, each_nic, subject};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{Nic, NicKind, Tap};
use crate::known::Known;
use crate::setting::Class;

pub(super) const RULE: Rule = Rule {
    id: "packet-tap-or-generic-xdp",
    number: 65,
    status: Status::Implemented,
    title: "a packet capture or generic XDP adds cost to every packet",
    severity: Severity::Warn,
    stage: Stage::Saturation,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "a known capture on an ETH_P_ALL socket, or generic XDP where the driver supports native XDP \
                (warn); other ETH_P_ALL sockets, other generic XDP, a promiscuous interface without an upper \
                interface (note)",
    effect: "one copy or clone less per packet; no verified figure, measure it",
    source: "packet(7); net/packet/af_packet.c; Documentation/netlink/specs/netdev.yaml \
             (xdp-features)",
    fix: Fix::Advised(&[Class::R1, Class::R2]),
    persist: "nothing to set: stop the capture; have the loader attach XDP in native mode",
    contested: None,
    page: include_str!("../../../../docs/rules/packet-tap-or-generic-xdp.md"),
    check,
};

/// `ETH_P_ALL` of linux/if_ether.h.
const ALL: u32 = 3;

/// Programs (and the handler of mapped rings, which libpcap uses) that receive every packet. Others, such as a DHCP
/// client, filter out all but a few and cost little.
const CAPTURES: &[&str] = &[
    "tpacket_rcv",
    "tcpdump",
    "dumpcap",
    "tshark",
    "wireshark",
    "suricata",
    "snort",
    "zeek",
    "ntopng",
    "softflowd",
];

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let taps = &context.host.software.taps;
    let all = || {
        taps.value()
            .into_iter()
            .flatten()
            .filter(|tap| tap.protocol == ALL)
    };
    let everywhere = tapped("all interfaces", all().filter(|tap| tap.nic.is_none()));
    // Without the list, one gap for the host covers all interfaces.
    let missing = unknown(taps).into_iter().collect();
    let of_host = judged(
        rule,
        context,
        "host".to_owned(),
        Vec::from_iter(everywhere),
        missing,
    );
    let mut said = each_nic(rule, context, |nic| {
        let here = all().filter(|tap| tap.nic.as_deref() == Some(nic.name.as_str()));
        let mut notices = Vec::from_iter(tapped(nic.name.as_str(), here));
        notices.extend(generic_xdp(nic));
        if notices.is_empty() {
            notices.extend(promiscuous(nic));
        }
        let missing = unknown(&nic.stack.xdp).into_iter().collect();
        judged(rule, context, subject(nic), notices, missing)
    });
    said.extend(of_host);
    said
}

fn tapped<'a>(whose: &str, taps: impl Iterator<Item = &'a Tap>) -> Option<Notice> {
    let taps: Vec<&Tap> = taps.collect();
    let captures = |tap: &Tap| {
        let name = tap.name.to_ascii_lowercase();
        CAPTURES.iter().any(|own| name.contains(own))
    };
    let worst = taps.iter().find(|tap| captures(tap)).or(taps.first())?;
    let (severity, what) = if captures(worst) {
        (Severity::Warn, "captures all packets")
    } else {
        (
            Severity::Note,
            "receives all packets, and may filter out most of them",
        )
    };
    let summary = format!(
        "{} {what} of {whose}: stop it unless it is needed",
        worst.name
    );
    Some(Notice::new(severity, summary).with(taps.iter().map(|tap| {
        Evidence::new(
            format!("ETH_P_ALL socket on {whose}"),
            &tap.name,
            &*tap.path,
        )
    })))
}

fn generic_xdp(nic: &Nic) -> Option<Notice> {
    let mode = nic.stack.xdp.value()?;
    if !matches!(mode.as_str(), "generic" | "skb") {
        return None;
    }
    let path = format!("RTM_GETLINK {}: IFLA_XDP_ATTACHED", nic.name);
    let evidence = Evidence::new("XDP mode", mode, path);
    let native = match &nic.dispatch.xdp_features {
        Known::Value(features) => features.iter().any(|feature| feature == "basic"),
        Known::Unknown(_) => true,
    };
    let notice = if native {
        let summary = format!(
            "XDP on {} runs in generic mode, after an skb is built: attach it in native mode",
            nic.name
        );
        Notice::new(Severity::Warn, summary)
    } else {
        let summary = format!(
            "XDP on {} runs in generic mode, after an skb is built, and the driver {} does not support native \
             XDP",
            nic.name,
            nic.driver.value().map_or("of it", String::as_str)
        );
        Notice::new(Severity::Note, summary)
    };
    let features = nic.dispatch.xdp_features.value().map(|features| {
        let path = format!("netdev dev-get {}: xdp-features", nic.name);
        let words = if features.is_empty() {
            "none".to_owned()
        } else {
            features.join(" ")
        };
        Evidence::new("XDP features of the driver", words, path)
    });
    Some(notice.with([evidence]).with(features))
}

/// A bridge port or the parent of a macvlan is promiscuous by design; otherwise something is capturing.
fn promiscuous(nic: &Nic) -> Option<Notice> {
    let users = nic.stack.promiscuity.get().filter(|users| *users > 0)?;
    let carries = !nic.upper().is_empty() || nic.stack.bond_port.is_some();
    if carries || matches!(nic.kind, NicKind::Bridge | NicKind::Tun) {
        return None;
    }
    let path = format!("RTM_GETLINK {}: IFLA_PROMISCUITY", nic.name);
    let summary = format!(
        "{} is promiscuous without an upper interface: find the program that requested it",
        nic.name
    );
    let evidence = Evidence::new("promiscuity count", users, path);
    Some(Notice::new(Severity::Note, summary).with([evidence]))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding};
    use super::*;
    use crate::build::{self, NicBuilder};
    use crate::host::Host;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("tcpdump on the interface", || {
                World::of(tap(Some("eth0"), "tcpdump", ALL))
            }),
            ("a capture of all interfaces", || {
                World::of(tap(None, "tpacket_rcv", ALL))
            }),
            ("generic XDP on a driver with native", || {
                World::of(xdp("generic", &["basic", "redirect"]))
            }),
            ("promiscuous alone", || {
                World::of(nic(|nic| {
                    nic.with(|nic| nic.stack.promiscuity = Known::Value(1))
                }))
            }),
        ],
        silent: &[
            ("no capture", || World::of(nic(|nic| nic))),
            ("a tap of one protocol", || {
                World::of(tap(Some("eth0"), "lldpd", 0x88cc))
            }),
            ("native XDP", || World::of(xdp("native", &["basic"]))),
        ],
        undetermined: &[("not queried", || {
            World::of(nic(|nic| {
                nic.with(|nic| nic.stack.xdp = Known::not_asked("RTM_GETLINK"))
            }))
        })],
    };

    fn nic(change: impl FnOnce(NicBuilder) -> NicBuilder) -> Host {
        build::host().nic("eth0", change).build()
    }

    fn tap(nic_name: Option<&str>, name: &str, protocol: u32) -> Host {
        let mut host = nic(|nic| nic);
        host.software.taps = Known::Value(vec![Tap {
            nic: nic_name.map(str::to_owned),
            protocol,
            name: name.to_owned(),
            path: "/proc/net/packet".to_owned(),
        }]);
        host
    }

    fn xdp(mode: &str, features: &[&str]) -> Host {
        nic(|nic| {
            nic.with(|nic| {
                nic.stack.xdp = Known::Value(mode.to_owned());
                let features = features.iter().map(|word| (*word).to_owned());
                nic.dispatch.xdp_features = Known::Value(features.collect());
            })
        })
    }

    #[test]
    fn a_capture_warns_and_a_dhcp_client_does_not() {
        let severity = |host: Host| finding(ID, &World::of(host).context()).severity;
        assert_eq!(severity(tap(Some("eth0"), "tcpdump", ALL)), Severity::Warn);
        assert_eq!(severity(tap(Some("eth0"), "dhclient", ALL)), Severity::Note);
        assert_eq!(severity(xdp("generic", &[])), Severity::Note);
    }
}
