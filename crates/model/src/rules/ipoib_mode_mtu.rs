//! `ipoib-mode-mtu`: IPoIB runs in connected mode, or with an MTU below what the port supports. Facts
//! from Documentation/infiniband/ipoib.rst.

use super::devices::{Notice, Port, judged, ports, unknown};
use super::{ALWAYS, each_nic, remedy, subject};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{Nic, NicKind};
use crate::setting::{Class, NicKnob, SettingKey, Value};
use crate::units::Bytes;

pub(super) const RULE: Rule = Rule {
    id: "ipoib-mode-mtu",
    number: 75,
    status: Status::Implemented,
    title: "IPoIB runs in connected mode, or with an MTU below what the port supports",
    severity: Severity::Note,
    stage: Stage::Tuning,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "connected mode; datagram mode with an MTU more than 4 bytes below that of the port",
    effect: "datagram mode has checksum and segmentation offloads, connected mode 64 KiB packets: measure both",
    source: "Documentation/infiniband/ipoib.rst",
    fix: Fix::Proposed(&[Class::R3]),
    persist: "transport mode and MTU in the connection (NetworkManager or the distribution's files); the same \
              on all hosts of the subnet",
    contested: Some(
        "for datagram: stateless offloads and several queues; for connected: MTU 65520, so fewer packets",
    ),
    page: include_str!("../../../../docs/rules/ipoib-mode-mtu.md"),
    check,
};

/// The encapsulation's header.
const HEADER: u64 = 4;

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    each_nic(rule, context, |nic| {
        if nic.kind != NicKind::Ipoib {
            return None;
        }
        let mode = nic.stack.ipoib_mode.as_ref()?;
        let mut missing = Vec::from_iter(unknown(mode));
        missing.extend(unknown(&nic.mtu));
        let notice = match mode.value().map(String::as_str) {
            Some("connected") => Some(connected(context, nic)),
            Some("datagram") => datagram(context, nic),
            _ => None,
        };
        judged(rule, context, subject(nic), Vec::from_iter(notice), missing)
    })
}

fn mode_of(nic: &Nic, mode: &str) -> Evidence {
    Evidence::new("mode", mode, format!("/sys/class/net/{}/mode", nic.name))
}

fn mtu_of(nic: &Nic) -> Option<Evidence> {
    let path = format!("/sys/class/net/{}/mtu", nic.name);
    let mtu = nic.mtu.get()?;
    Some(Evidence::new("MTU", format!("{mtu} bytes"), path))
}

fn connected(context: &Context<'_>, nic: &Nic) -> Notice {
    let key = SettingKey::Nic(nic.name.clone(), NicKnob::IpoibMode);
    let summary = format!(
        "{} is in connected mode, which has no offloads: compare with datagram mode, on all hosts",
        nic.name
    );
    Notice::new(Severity::Note, summary)
        .with([mode_of(nic, "connected")])
        .with(mtu_of(nic))
        .fixed_by(remedy(context, key, Value::Text("datagram".to_owned())))
}

fn datagram(context: &Context<'_>, nic: &Nic) -> Option<Notice> {
    let mtu = u64::from(nic.mtu.get()?);
    let port = ports(context)
        .into_iter()
        .find(|port| port.nic(context).is_some_and(|own| own.name == nic.name))?;
    let carries = port.port.mtu_active.get().map(Bytes::as_u64);
    let could = port.port.mtu_max.get().map(Bytes::as_u64);
    // The interface may use the port's active MTU; a larger one requires the subnet manager.
    let (most, now) = match (carries, could) {
        (Some(now), _) if mtu + HEADER < now => (now, true),
        (_, Some(most)) if mtu + HEADER < most => (most, false),
        _ => return None,
    };
    let to = most.saturating_sub(HEADER);
    let what = if now {
        "raise it"
    } else {
        "set the MTU of the subnet manager's partition first"
    };
    let summary = format!(
        "{} has MTU {mtu}, its port supports {to}: {what}, on all hosts",
        nic.name
    );
    let key = SettingKey::Nic(nic.name.clone(), NicKnob::Mtu);
    let change = now
        .then(|| remedy(context, key, Value::Integer(to)))
        .flatten();
    Some(
        Notice::new(Severity::Note, summary)
            .with([mode_of(nic, "datagram")])
            .with(mtu_of(nic))
            .with([of_port(port, most, now)])
            .fixed_by(change),
    )
}

fn of_port(port: Port<'_>, most: u64, now: bool) -> Evidence {
    let (what, field) = if now {
        ("active MTU of the port", "active_mtu")
    } else {
        ("maximum MTU of the port", "max_mtu")
    };
    let path = format!("ibv_query_port {}: {field}", port.name());
    Evidence::new(what, format!("{most} bytes"), path)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::devices::testing::infiniband;
    use super::super::testing::{Cases, World, finding, remedies};
    use super::*;
    use crate::build;
    use crate::known::Known;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("connected", || {
                world(65_520, Known::Value("connected".to_owned()), 4096)
            }),
            ("2044 where 4092 passes", || world(2044, datagram(), 4096)),
            ("2044 by the subnet manager", || {
                world(2044, datagram(), 2048)
            }),
        ],
        silent: &[
            ("4092", || world(4092, datagram(), 4096)),
            ("an Ethernet card", || {
                World::of(build::host().nic("eth0", |nic| nic).build())
            }),
        ],
        undetermined: &[("not queried", || {
            world(2044, Known::not_asked("mode"), 4096)
        })],
    };

    fn datagram() -> Known<String> {
        Known::Value("datagram".to_owned())
    }

    fn world(mtu: u32, mode: Known<String>, active: u64) -> World {
        let mut device = infiniband("mlx5_0");
        device.ports[0].netdev = Known::Value("ib0".parse().expect("a name"));
        device.ports[0].mtu_active = Known::Value(Bytes::new(active));
        let host = build::host()
            .nic("ib0", |nic| {
                nic.with(|nic| {
                    nic.kind = NicKind::Ipoib;
                    nic.mtu = Known::Value(mtu);
                    nic.stack.ipoib_mode = Some(mode);
                })
            })
            .with(|host| host.rdma.push(device));
        World::of(host.build())
    }

    #[test]
    fn the_mtu_is_raised_only_as_far_as_the_port_carries_now() {
        let said = finding(ID, &world(2044, datagram(), 4096).context());
        assert_eq!(remedies(&said), ["nic/ib0/mtu: 2044 -> 4092"]);
        let said = finding(ID, &world(2044, datagram(), 2048).context());
        assert_eq!(said.remedies.len(), 0);
        let connected = world(65_520, Known::Value("connected".to_owned()), 4096);
        assert_eq!(
            remedies(&finding(ID, &connected.context())),
            ["nic/ib0/ipoib/mode: connected -> datagram"]
        );
    }
}
