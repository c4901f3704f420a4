//! `rss-fields-narrow`: the RSS hash does not include the ports. Facts from
//! Documentation/networking/scaling.rst and ethtool(8), `rx-flow-hash`.

use super::spreading::{in_use, needed};
use super::{ALWAYS, Draft, each_nic, found, remedy, subject, undetermined};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Remedy, Rule, Severity, Stage, Status,
};
use crate::host::{Host, Nic, QueueKind, Rss};
use crate::setting::{Class, NicKnob, SettingKey, Value};
use crate::shell;

pub(super) const RULE: Rule = Rule {
    id: "rss-fields-narrow",
    number: 11,
    status: Status::Implemented,
    title: "the RSS hash does not include the ports",
    severity: Severity::Warn,
    stage: Stage::Locality,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "ports not hashed for TCP, or for UDP below a VXLAN or Geneve tunnel (warn), for other UDP \
                (note); symmetric hash (note)",
    effect: "without ports, all flows between two hosts use one queue and one core; no general figure",
    source: "Documentation/networking/scaling.rst; ethtool(8), rx-flow-hash",
    fix: Fix::Proposed(&[Class::R1]),
    persist: "a systemd unit at boot",
    contested: None,
    page: include_str!("../../../../docs/rules/rss-fields-narrow.md"),
    check,
};

/// The flow types with ports.
const WITH_PORTS: [&str; 4] = ["tcp4", "tcp6", "udp4", "udp6"];

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    each_nic(rule, context, |nic| check_nic(rule, context, nic))
}

fn check_nic(rule: &Rule, context: &Context<'_>, nic: &Nic) -> Option<Outcome> {
    // With one queue there is nothing to hash for.
    if !nic.kind.has_wire() || in_use(nic, QueueKind::Rx).len() < 2 {
        return None;
    }
    let rss = match nic.dispatch.rss.ok() {
        Ok(rss) => rss,
        Err(gap) => {
            return Some(undetermined(
                rule,
                context,
                subject(nic),
                vec![needed(gap)?],
            ));
        }
    };
    let symmetric = rss.symmetric.get() == Some(true);
    let fields = match rss.fields.ok() {
        Ok(fields) => fields,
        Err(gap) if !symmetric => {
            return Some(undetermined(
                rule,
                context,
                subject(nic),
                vec![needed(gap)?],
            ));
        }
        Err(_) => return Some(found(rule, context, made_symmetric(nic, rss))),
    };
    let narrow: Vec<(&str, &String)> = WITH_PORTS
        .iter()
        .filter_map(|kind| Some((*kind, fields.get(*kind)?)))
        // A driver that reports no field at all does not show what it hashes.
        .filter(|(_, hashed)| !hashed.is_empty())
        .filter(|(_, hashed)| !(hashed.contains('f') && hashed.contains('n')))
        .collect();
    if narrow.is_empty() {
        return symmetric.then(|| found(rule, context, made_symmetric(nic, rss)));
    }
    let tcp = narrow.iter().any(|(kind, _)| kind.starts_with("tcp"));
    let tunnel = tunnel_on(context.host, nic);
    let kinds: Vec<&str> = narrow.iter().map(|(kind, _)| *kind).collect();
    Some(found(
        rule,
        context,
        Draft {
            severity: if tcp || tunnel.is_some() {
                Severity::Warn
            } else {
                Severity::Note
            },
            subject: subject(nic),
            summary: format!(
                "the RSS hash of {} does not include the ports of {}, so these flows between two hosts share one \
                 queue: {}",
                nic.name,
                kinds.join(", "),
                commands(nic, &kinds)
            ),
            evidence: evidence(nic, &narrow, tunnel),
            remedies: narrow
                .iter()
                .filter_map(|(kind, _)| widen(context, nic, kind))
                .collect(),
        },
    ))
}

fn evidence(nic: &Nic, narrow: &[(&str, &String)], tunnel: Option<&Nic>) -> Vec<Evidence> {
    let hashed = narrow.iter().map(|(kind, hashed)| {
        Evidence::new(
            format!("RSS hash fields of {kind}"),
            hashed,
            format!("ioctl ETHTOOL_GRXFH {} {kind}", nic.name),
        )
    });
    let tunnel = tunnel.map(|upper| {
        let path = format!("/sys/class/net/{}", upper.name);
        Evidence::new("tunnel on the NIC", &upper.name, path)
    });
    hashed.chain(tunnel).collect()
}

/// The command for the first flow type, and the names of the others.
fn commands(nic: &Nic, kinds: &[&str]) -> String {
    let [first, others @ ..] = kinds else {
        return String::new();
    };
    let name = shell::quoted(nic.name.as_str());
    let also = match others {
        [] => String::new(),
        others => format!(" (the same for {})", others.join(", ")),
    };
    format!("ethtool -N {name} rx-flow-hash {first} sdfn{also}")
}

fn widen(context: &Context<'_>, nic: &Nic, kind: &str) -> Option<Remedy> {
    let knob = NicKnob::RssFields(kind.to_owned());
    let key = SettingKey::Nic(nic.name.clone(), knob);
    remedy(context, key, Value::Text("sdfn".to_owned()))
}

/// A UDP tunnel over `nic`; its flows differ in the outer source port only.
fn tunnel_on<'a>(host: &'a Host, nic: &Nic) -> Option<&'a Nic> {
    host.nics.iter().find(|upper| {
        upper.stack.tunnel.as_ref().is_some_and(|tunnel| {
            let kind = tunnel.kind.value().map(String::as_str);
            let by = tunnel.link.value() == Some(&nic.name) || upper.lower().contains(&nic.name);
            matches!(kind, Some("vxlan" | "geneve")) && by
        })
    })
}

fn made_symmetric(nic: &Nic, rss: &Rss) -> Draft {
    let request = format!("netlink ethtool RSS_GET {}", nic.name);
    let function = rss.function.value().map_or("unknown", String::as_str);
    Draft {
        severity: Severity::Note,
        subject: subject(nic),
        summary: format!(
            "the RSS hash of {} is symmetric, which spreads flows less: turn that off unless a program needs \
             it",
            nic.name
        ),
        evidence: vec![
            Evidence::new("input transformation", "symmetric-xor", request.clone()),
            Evidence::new("hash function", function, request),
        ],
        remedies: Vec::new(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding, remedies};
    use super::*;
    use crate::build;
    use crate::host::{NicKind, Tunnel};
    use crate::known::Known;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("UDP by addresses only", || World::of(server("sdfn", "sd"))),
            ("TCP by addresses only", || World::of(server("sd", "sdfn"))),
            ("a symmetric hash", || {
                let mut host = server("sdfn", "sdfn");
                if let Known::Value(rss) = &mut host.nics[0].dispatch.rss {
                    rss.symmetric = Known::Value(true);
                }
                World::of(host)
            }),
        ],
        silent: &[
            ("addresses and ports", || World::of(server("sdfn", "sdfn"))),
            ("a pair without a wire", || World::of(build::veth_pair().0)),
        ],
        undetermined: &[("not queried", || {
            let mut host = server("sd", "sd");
            host.nics[0].dispatch.rss = Known::not_asked("ioctl ETHTOOL_GRXFH");
            World::of(host)
        })],
    };

    fn server(tcp: &str, udp: &str) -> Host {
        let fields = [("tcp4", tcp), ("tcp6", tcp), ("udp4", udp), ("udp6", udp)];
        build::host()
            .nic("eth2", |nic| {
                nic.queues(&[0, 1]).with(|nic| {
                    if let Known::Value(rss) = &mut nic.dispatch.rss {
                        let own = |(kind, hashed): &(&str, &str)| {
                            ((*kind).to_owned(), (*hashed).to_owned())
                        };
                        rss.fields = Known::Value(fields.iter().map(own).collect());
                    }
                })
            })
            .build()
    }

    #[test]
    fn udp_alone_is_a_note_and_under_a_tunnel_a_warning() {
        let host = server("sdfn", "sd");
        let said = finding(ID, &context(&host));
        assert_eq!(said.severity, Severity::Note);
        assert_eq!(
            remedies(&said),
            [
                "nic/eth2/rss/fields/udp4: sd -> sdfn",
                "nic/eth2/rss/fields/udp6: sd -> sdfn"
            ]
        );
        let mut host = host;
        let mut tunnel = host.nics[0].clone();
        tunnel.name = "vxlan7".parse().expect("a name");
        tunnel.kind = NicKind::Tunnel;
        tunnel.stack.tunnel = Some(Tunnel {
            kind: Known::Value("vxlan".to_owned()),
            link: Known::Value(host.nics[0].name.clone()),
            ..Tunnel::default()
        });
        host.nics.push(tunnel);
        assert_eq!(finding(ID, &context(&host)).severity, Severity::Warn);
    }
}
