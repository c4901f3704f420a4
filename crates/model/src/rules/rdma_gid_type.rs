//! `rdma-gid-type`: RoCE uses GID type v1, or has no routable GID. Facts from
//! Documentation/ABI/testing/sysfs-class-infiniband (`gid_attrs`) and configfs-rdma_cm.

use super::devices::{Notice, Port, RDMA, judged, ports, severity_for, unknown};
use super::{ALWAYS, remedy};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::Gid;
use crate::known::Known;
use crate::setting::{Class, RdmaKnob, SettingKey, Value};

pub(super) const RULE: Rule = Rule {
    id: "rdma-gid-type",
    number: 68,
    status: Status::Implemented,
    title: "RoCE uses GID type v1, or has no routable GID",
    severity: Severity::Warn,
    stage: Stage::Tuning,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "an active RoCE port without a RoCE v2 GID, or whose rdma_cm default is RoCE v1 (roles rdma and \
                storage: warn; others: note); only link-local GIDs (note)",
    effect: "routable packets with the DSCP and ECN bits that congestion control needs",
    source: "Documentation/ABI/testing/configfs-rdma_cm; \
             Documentation/ABI/stable/sysfs-class-infiniband",
    fix: Fix::Proposed(&[Class::R1]),
    persist: "a systemd unit that writes default_roce_mode at boot; or the program's own GID index",
    contested: None,
    page: include_str!("../../../../docs/rules/rdma-gid-type.md"),
    check,
};

const V2: &str = "RoCE v2";

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let all = ports(context).into_iter();
    all.filter(|port| port.is_roce() && port.is_active())
        .filter_map(|port| {
            let notices = [by_default(context, port), of_gids(context, port)];
            let missing = [
                unknown(&port.port.gids),
                unknown(&port.port.default_gid_type),
            ];
            let notices = notices.into_iter().flatten().collect();
            let missing = missing.into_iter().flatten().collect();
            judged(rule, context, port.subject(), notices, missing)
        })
        .collect()
}

fn by_default(context: &Context<'_>, port: Port<'_>) -> Option<Notice> {
    let default = port.port.default_gid_type.value()?;
    if default == V2 {
        return None;
    }
    let (device, number) = (&port.device.name, port.port.port);
    let key = SettingKey::Rdma(device.clone(), number, RdmaKnob::DefaultGidType);
    let path = format!("/sys/kernel/config/rdma_cm/{device}/ports/{number}/default_roce_mode");
    let summary = format!(
        "the rdma_cm default on {} is {default}: set it to {V2}",
        port.name()
    );
    Some(
        Notice::new(severity_for(context, RDMA, Severity::Warn), summary)
            .with([Evidence::new("default_roce_mode of rdma_cm", default, path)])
            .fixed_by(remedy(context, key, Value::Text(V2.to_owned()))),
    )
}

fn of_gids(context: &Context<'_>, port: Port<'_>) -> Option<Notice> {
    let gids = port.port.gids.value()?;
    // A type that could not be read may be the right one.
    if gids.is_empty() || gids.iter().any(|gid| gid.kind.value().is_none()) {
        return None;
    }
    let of_v2: Vec<&Gid> = gids
        .iter()
        .filter(|gid| gid.kind.value().is_some_and(|kind| kind == V2))
        .collect();
    let evidence = gids.iter().take(8).map(|gid| {
        let kind = gid.kind.value().map_or("", String::as_str);
        Evidence::new(
            format!("GID {} ({})", gid.index, gid.gid),
            kind,
            port.file(&format!("gid_attrs/types/{}", gid.index)),
        )
    });
    if of_v2.is_empty() {
        let summary = format!(
            "{} has no {V2} GID, so its packets are not routable and carry no ECN: give its interface an IP \
             address",
            port.name()
        );
        return Some(
            Notice::new(severity_for(context, RDMA, Severity::Warn), summary).with(evidence),
        );
    }
    let link_local = |gid: &&Gid| gid.gid.to_ascii_lowercase().starts_with("fe80");
    if !of_v2.iter().all(link_local) {
        return None;
    }
    let nic = match &port.port.netdev {
        Known::Value(nic) => nic.as_str(),
        Known::Unknown(_) => "interface",
    };
    let summary = format!(
        "{} has only link-local GIDs: give {nic} an address",
        port.name()
    );
    Some(Notice::new(Severity::Note, summary).with(evidence))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::devices::testing::{infiniband, roce};
    use super::super::testing::{Cases, World, finding, remedies};
    use super::*;
    use crate::build;
    use crate::finding::Profile;
    use crate::host::RdmaPort;
    use crate::known::Cause;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("version 1 by default", || world(v1_by_default)),
            ("no version 2", || {
                world(|port| {
                    keep(port, |gid| {
                        gid.kind == Known::Value("IB/RoCE v1".to_owned())
                    });
                })
            }),
            ("link-local only", || {
                world(|port| keep(port, |gid| gid.gid.starts_with("fe80")))
            }),
        ],
        silent: &[
            ("version 2", || world(|_| {})),
            ("configfs is not there", || {
                world(|port| {
                    port.default_gid_type =
                        Known::unknown(Cause::Absent, "default_roce_mode", "none");
                })
            }),
            ("InfiniBand", || {
                World::of(
                    build::host()
                        .with(|host| host.rdma.push(infiniband("mlx5_0")))
                        .build(),
                )
            }),
            ("a port without a link", || {
                world(|port| {
                    port.state = Known::Value("DOWN".to_owned());
                    v1_by_default(port);
                })
            }),
        ],
        undetermined: &[("not queried", || {
            world(|port| port.gids = Known::not_asked("gid_attrs"))
        })],
    };

    fn v1_by_default(port: &mut RdmaPort) {
        port.default_gid_type = Known::Value("IB/RoCE v1".to_owned());
    }

    fn keep(port: &mut RdmaPort, which: impl Fn(&Gid) -> bool) {
        let mut gids = port.gids.value().cloned().unwrap_or_default();
        gids.retain(which);
        port.gids = Known::Value(gids);
    }

    fn world(change: impl FnOnce(&mut RdmaPort)) -> World {
        let mut device = roce("mlx5_0", "eth0");
        change(&mut device.ports[0]);
        let host = build::host()
            .nic("eth0", |nic| nic)
            .with(|host| host.rdma.push(device));
        World::of(host.build()).profile(Profile::Rdma)
    }

    #[test]
    fn it_warns_where_rdma_matters_and_proposes_version_2() {
        let said = finding(ID, &world(v1_by_default).context());
        assert_eq!(said.severity, Severity::Warn);
        assert_eq!(
            remedies(&said),
            ["rdma/mlx5_0/1/default-gid-type: IB/RoCE v1 -> RoCE v2"]
        );
        let bulk = world(v1_by_default).profile(Profile::Throughput);
        assert_eq!(finding(ID, &bulk.context()).severity, Severity::Note);
    }
}
