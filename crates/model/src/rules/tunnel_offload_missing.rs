//! `tunnel-offload-missing`: tunnel offload is missing or off. Ports from `ETHTOOL_MSG_TUNNEL_INFO_GET`,
//! features from `ETHTOOL_MSG_FEATURES_GET` (Documentation/networking/segmentation-offloads.rst,
//! vxlan.rst).

use super::judged::{Judged, could_be_on, ethtool, feature, judge_each, offered};
use super::{ALWAYS, Draft, remedy, subject};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Remedy, Rule, Severity, Stage, Status,
};
use crate::host::{Host, Nic};
use crate::known::Gap;
use crate::setting::{Class, NicKnob, SettingKey, Value};

pub(super) const RULE: Rule = Rule {
    id: "tunnel-offload-missing",
    number: 32,
    status: Status::Implemented,
    title: "tunnel offload is missing or off",
    severity: Severity::Warn,
    stage: Stage::Offloads,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "a VXLAN or Geneve tunnel on a NIC whose port table lacks the tunnel's UDP port, or whose \
                tunnel segmentation is off and changeable",
    effect: "segmentation, checksum and RSS of the inner packets in hardware; no verified figure",
    source: "Documentation/networking/segmentation-offloads.rst; Documentation/networking/vxlan.rst; \
             Documentation/networking/ethtool-netlink.rst (TUNNEL_INFO_GET)",
    fix: Fix::Proposed(&[Class::R2]),
    persist: "a systemd .link file (the features) or .netdev file (DestinationPort= of the tunnel)",
    contested: None,
    page: include_str!("../../../../docs/rules/tunnel-offload-missing.md"),
    check,
};

const SEGMENTATION: [&str; 2] = ["tx-udp_tnl-segmentation", "tx-udp_tnl-csum-segmentation"];
/// If this is on, the kernel offloads the ports to the NIC.
const LEARNS: &str = "rx-udp_tunnel-port-offload";

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    judge_each(rule, context, |nic| check_nic(context, nic))
}

fn check_nic(context: &Context<'_>, nic: &Nic) -> Judged {
    let tunnels = tunnels_on(context.host, nic);
    if !nic.kind.has_wire() || tunnels.is_empty() {
        return Ok(None);
    }
    let mut evidence = Vec::new();
    let mut remedies: Vec<Remedy> = Vec::new();
    let on = |name: &str| {
        let key = SettingKey::Nic(nic.name.clone(), NicKnob::Feature(name.to_owned()));
        remedy(context, key, Value::Switch(true))
    };
    for name in SEGMENTATION {
        if could_be_on(nic, name)? {
            evidence.push(Evidence::new(
                format!("feature {name}"),
                "off, could be on",
                ethtool(nic, "features"),
            ));
            remedies.extend(on(name));
        }
    }
    let unknown = unknown_ports(nic, &tunnels)?;
    if !unknown.is_empty() && could_be_on(nic, LEARNS)? {
        remedies.extend(on(LEARNS));
    }
    evidence.extend(unknown);
    if evidence.is_empty() {
        return Ok(None);
    }
    let names: Vec<&str> = tunnels
        .iter()
        .map(|tunnel| tunnel.name.as_str())
        .take(3)
        .collect();
    let advice = if remedies.is_empty() {
        "use a UDP port that the NIC offloads (4789, 6081)"
    } else {
        "turn the features on"
    };
    Ok(Some(Draft {
        severity: Severity::Warn,
        subject: subject(nic),
        summary: format!(
            "{} does not offload packets inside {}: {advice}",
            nic.name,
            names.join(", ")
        ),
        evidence,
        remedies,
    }))
}

/// The tunnels over `nic`: by its name, or by their local address.
fn tunnels_on<'a>(host: &'a Host, nic: &Nic) -> Vec<&'a Nic> {
    let sends_by = |own: &&Nic| {
        own.stack.tunnel.as_ref().is_some_and(|tunnel| {
            let udp = matches!(
                tunnel.kind.value().map(String::as_str),
                Some("vxlan" | "geneve")
            );
            udp && if let Some(link) = tunnel.link.value() {
                *link == nic.name
            } else if let Some(local) = tunnel.local.value() {
                let with = host.nic_with_address(local);
                with.is_some_and(|with| with.name == nic.name)
            } else {
                own.lower().contains(&nic.name)
            }
        })
    };
    host.nics.iter().filter(sends_by).collect()
}

/// The ports of `tunnels` that the NIC does not have, if it has a table and reports it.
fn unknown_ports(nic: &Nic, tunnels: &[&Nic]) -> Result<Vec<Evidence>, Gap> {
    if feature(nic, LEARNS)?.is_none() {
        return Ok(Vec::new());
    }
    let Some(known) = offered(&nic.dispatch.tunnel_ports)? else {
        return Ok(Vec::new());
    };
    let has: Vec<String> = known.iter().map(|own| own.port.to_string()).collect();
    let missing = |tunnel: &&Nic| {
        let port = tunnel.stack.tunnel.as_ref()?.port.get()?;
        (!known.iter().any(|own| own.port == port)).then(|| {
            let has = if has.is_empty() {
                "none".to_owned()
            } else {
                has.join(", ")
            };
            Evidence::new(
                format!("offloaded UDP ports, without {port} of {}", tunnel.name),
                has,
                ethtool(nic, "tunnel-info"),
            )
        })
    };
    Ok(tunnels.iter().filter_map(missing).collect())
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding, remedies};
    use super::*;
    use crate::build::{self, NicBuilder};
    use crate::host::{NicKind, Tunnel, TunnelPort};
    use crate::known::Known;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("segmentation off", || {
                World::of(host(4789, |nic| nic.feature(SEGMENTATION[0], false, true)))
            }),
            ("a port that the card does not know", || {
                World::of(host(8472, |nic| nic))
            }),
        ],
        silent: &[
            ("all on", || World::of(host(4789, |nic| nic))),
            ("no tunnel", || {
                World::of(build::host().nic("eth0", |nic| nic).build())
            }),
            ("a card that cannot", || {
                World::of(host(8472, |nic| {
                    nic.with(|nic| {
                        if let Known::Value(features) = &mut nic.features {
                            features.retain(|name, _| !name.contains("tnl") && name != LEARNS);
                        }
                    })
                }))
            }),
        ],
        undetermined: &[("ports not asked for", || {
            World::of(host(4789, |nic| {
                nic.with(|nic| nic.dispatch.tunnel_ports = Known::not_asked("TUNNEL_INFO_GET"))
            }))
        })],
    };

    fn host(port: u32, change: impl FnOnce(NicBuilder) -> NicBuilder) -> Host {
        build::host()
            .nic("eth0", |nic| {
                let nic = SEGMENTATION
                    .into_iter()
                    .chain([LEARNS])
                    .fold(nic, |nic, name| nic.feature(name, true, true))
                    .with(|nic| {
                        let kind = "vxlan".to_owned();
                        nic.dispatch.tunnel_ports = vec![TunnelPort { port: 4789, kind }].into();
                    });
                change(nic)
            })
            .nic("vxlan0", |nic| {
                nic.veth().with(|nic| {
                    nic.kind = NicKind::Tunnel;
                    nic.stack.tunnel = Some(Tunnel {
                        kind: Known::Value("vxlan".to_owned()),
                        port: Known::Value(port),
                        link: Known::Value("eth0".parse().expect("a name")),
                        ..Tunnel::default()
                    });
                })
            })
            .build()
    }

    #[test]
    fn what_is_off_is_switched_on_and_a_strange_port_is_named() {
        let off = host(4789, |nic| nic.feature(SEGMENTATION[1], false, true));
        let said = finding(RULE.id, &context(&off));
        assert_eq!(
            remedies(&said),
            ["nic/eth0/feature/tx-udp_tnl-csum-segmentation: off -> on"]
        );
        let strange = host(8472, |nic| nic);
        let said = finding(RULE.id, &context(&strange));
        assert!(said.evidence[0].what.contains("8472"), "{said:?}");
        assert_eq!(remedies(&said), [""; 0]);
    }
}
