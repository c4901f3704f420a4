//! `rdma-mtu`: the active RDMA MTU is below the maximum. What an interface's MTU leaves for RoCE from
//! `iboe_get_mtu` (include/rdma/ib_addr.h).

use super::devices::{Notice, Port, RDMA, judged, ports, severity_for};
use super::{ALWAYS, remedy};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::Nic;
use crate::known::{Gap, Known};
use crate::setting::{Class, NicKnob, SettingKey, Value};
use crate::units::{BitRate, Bytes};

pub(super) const RULE: Rule = Rule {
    id: "rdma-mtu",
    number: 69,
    status: Status::Implemented,
    title: "the active RDMA MTU is below the maximum",
    severity: Severity::Warn,
    stage: Stage::Offloads,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "active_mtu below max_mtu and below 4096 bytes (note); at 100 Gb/s or more in the roles rdma \
                and storage (warn)",
    effect: "MTU 1024 instead of 4096 means four times the packets",
    source: "ibv_query_port(3); iboe_get_mtu in include/rdma/ib_addr.h",
    fix: Fix::Proposed(&[Class::R3]),
    persist: "RoCE: MTU of the interface in a systemd .link file or its connection; InfiniBand: the subnet \
              manager",
    contested: None,
    page: include_str!("../../../../docs/rules/rdma-mtu.md"),
    check,
};

const WANTED: u64 = 4096;
const FAST: BitRate = BitRate::from_mbit_per_s(100_000);
/// Headers that the kernel subtracts from the interface MTU: GRH 40, UDP 8, BTH 12, XRC 4, atomic 28, ICRC 4.
const HEADERS: u32 = 96;
/// An MTU that holds 4096 bytes and the headers, and the common one for jumbo frames.
const ENOUGH: u32 = 4200;
const JUMBO: u32 = 9000;

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let all = ports(context).into_iter();
    all.filter(|port| port.is_active() && (port.is_infiniband() || port.is_roce()))
        .filter_map(|port| match in_use(context, port) {
            Ok((active, evidence)) => {
                let notices = small(context, port, active, evidence);
                judged(
                    rule,
                    context,
                    port.subject(),
                    Vec::from_iter(notices),
                    Vec::new(),
                )
            }
            Err(gap) => judged(rule, context, port.subject(), Vec::new(), vec![gap]),
        })
        .collect()
}

/// The active MTU, queried from the device or computed from the interface of a RoCE port.
fn in_use(context: &Context<'_>, port: Port<'_>) -> Result<(u64, Evidence), Gap> {
    let path = format!("ibv_query_port {}: active_mtu", port.name());
    let gap = match &port.port.mtu_active {
        Known::Value(mtu) => {
            let bytes = mtu.as_u64();
            return Ok((
                bytes,
                Evidence::new("active_mtu", format!("{bytes} bytes"), path),
            ));
        }
        Known::Unknown(gap) => gap,
    };
    let nic = port.nic(context).filter(|_| port.is_roce());
    let Some((nic, mtu)) = nic.and_then(|nic| Some((nic, nic.mtu.get()?))) else {
        return Err(gap.clone());
    };
    let left = mtu.saturating_sub(HEADERS);
    let active = [4096, 2048, 1024, 512, 256]
        .into_iter()
        .find(|size| *size <= left);
    let path = format!("/sys/class/net/{}/mtu", nic.name);
    let active = active.unwrap_or(256);
    let value = format!("{mtu} bytes, which allows an RDMA MTU of {active} bytes");
    Ok((
        u64::from(active),
        Evidence::new(format!("MTU of {}", nic.name), value, path),
    ))
}

fn small(context: &Context<'_>, port: Port<'_>, active: u64, evidence: Evidence) -> Option<Notice> {
    let most = port.port.mtu_max.get().map_or(WANTED, Bytes::as_u64);
    if active >= most.min(WANTED) {
        return None;
    }
    let fast = port
        .port
        .rate_bit_per_s
        .get()
        .is_some_and(|rate| rate >= FAST);
    let severity = if fast {
        severity_for(context, RDMA, Severity::Warn)
    } else {
        Severity::Note
    };
    let nic = port.nic(context).filter(|_| port.is_roce());
    let what = match nic {
        Some(nic) => format!(
            "raise the MTU of {} (all hosts and switches on the path first)",
            nic.name
        ),
        None if port.is_roce() => {
            "raise the MTU of its interface, which is not visible from here".to_owned()
        }
        None => "set the MTU of the subnet manager's partition to 4096".to_owned(),
    };
    let summary = format!(
        "{} uses an RDMA MTU of {active} of {most} bytes: {what}",
        port.name()
    );
    let max = port.port.mtu_max.get().map(|mtu| {
        let path = format!("ibv_query_port {}: max_mtu", port.name());
        Evidence::new("max_mtu", format!("{} bytes", mtu.as_u64()), path)
    });
    let own = nic.and_then(|nic| {
        let path = format!("/sys/class/net/{}/mtu", nic.name);
        let mtu = nic.mtu.get()?;
        let of_device = port.port.mtu_active.value().is_some();
        of_device
            .then(|| Evidence::new(format!("MTU of {}", nic.name), format!("{mtu} bytes"), path))
    });
    Some(
        Notice::new(severity, summary)
            .with([evidence])
            .with(max)
            .with(own)
            .fixed_by(nic.and_then(|nic| raised(context, nic))),
    )
}

fn raised(context: &Context<'_>, nic: &Nic) -> Option<crate::finding::Remedy> {
    let now = nic.mtu.get()?;
    let most = nic.stack.mtu_max.get()?;
    let to = [JUMBO, ENOUGH].into_iter().find(|mtu| *mtu <= most)?;
    if now >= ENOUGH {
        return None;
    }
    let key = SettingKey::Nic(nic.name.clone(), NicKnob::Mtu);
    remedy(context, key, Value::Integer(u64::from(to)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::devices::testing::{infiniband, roce};
    use super::super::testing::{Cases, World, finding, remedies};
    use super::*;
    use crate::build;
    use crate::finding::Profile;
    use crate::host::RdmaPort;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("1024 of 4096", || {
                world(1500, |port| {
                    port.mtu_active = Known::Value(Bytes::new(1024));
                })
            }),
            ("worked out from the interface", || {
                world(1500, |port| port.mtu_active = Known::not_asked("uverbs"))
            }),
            ("a small partition", || {
                let mut device = infiniband("mlx5_0");
                device.ports[0].mtu_active = Known::Value(Bytes::new(2048));
                World::of(build::host().with(|host| host.rdma.push(device)).build())
            }),
        ],
        silent: &[
            ("4096 of 4096", || world(9000, |_| {})),
            ("an MTU of 4200 is enough", || {
                world(4200, |port| port.mtu_active = Known::not_asked("uverbs"))
            }),
            ("no RDMA", || World::of(build::host().build())),
        ],
        undetermined: &[("not queried", || {
            let mut device = infiniband("mlx5_0");
            device.ports[0].mtu_active = Known::not_asked("uverbs");
            World::of(build::host().with(|host| host.rdma.push(device)).build())
        })],
    };

    fn world(mtu: u32, change: impl FnOnce(&mut RdmaPort)) -> World {
        let mut device = roce("mlx5_0", "eth0");
        change(&mut device.ports[0]);
        let host = build::host()
            .nic("eth0", |nic| {
                nic.gbit(100).with(|nic| nic.mtu = Known::Value(mtu))
            })
            .with(|host| host.rdma.push(device));
        World::of(host.build()).profile(Profile::Rdma)
    }

    #[test]
    fn the_interface_is_raised_to_jumbo_frames() {
        let said = finding(
            ID,
            &world(1500, |port| {
                port.mtu_active = Known::Value(Bytes::new(1024));
            })
            .context(),
        );
        assert_eq!(said.severity, Severity::Warn);
        assert_eq!(remedies(&said), ["nic/eth0/mtu: 1500 -> 9000"]);
    }

    #[test]
    fn a_roce_port_whose_interface_is_elsewhere_does_not_mention_a_subnet_manager() {
        let said = finding(
            ID,
            &world(1500, |port| {
                port.mtu_active = Known::Value(Bytes::new(1024));
                port.netdev = Known::Value("eth9".parse().expect("a name"));
            })
            .context(),
        );
        assert!(
            said.summary.contains("not visible from here"),
            "{}",
            said.summary
        );
        assert!(remedies(&said).is_empty());
    }
}
