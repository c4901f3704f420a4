//! `rdma-limits-and-caps`: the locked-memory limit is too small for RDMA, or the device allows one
//! outstanding read at most. Facts from getrlimit(2), `/proc/self/limits` and `struct ib_device_attr`.

use super::ALWAYS;
use super::devices::{Notice, Port, judged, ports, severity_for, unknown};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Profile, Rule, Severity, Stage, Status,
};
use crate::host::{Limit, RdmaDevice};
use crate::setting::Class;
use crate::units::Bytes;

pub(super) const RULE: Rule = Rule {
    id: "rdma-limits-and-caps",
    number: 70,
    status: Status::Implemented,
    title: "the locked-memory limit is too small for RDMA, or the device allows one outstanding read at most",
    severity: Severity::Warn,
    stage: Stage::Offloads,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "RLIMIT_MEMLOCK of 64 MiB or less on a host with an active RDMA port (note), 1 MiB or less in \
                the role rdma (warn); max_qp_rd_atom of 1 or 0 (note)",
    effect: "large buffers can be registered; no figure",
    source: "getrlimit(2), RLIMIT_MEMLOCK; ibv_query_device(3)",
    fix: Fix::Advised(&[Class::R1]),
    persist: "LimitMEMLOCK=infinity in the unit of the service, or a file in /etc/security/limits.d",
    contested: None,
    page: include_str!("../../../../docs/rules/rdma-limits-and-caps.md"),
    check,
};

/// Far above the kernel's defaults (64 KiB; 8 MiB since 5.16), far below what RDMA programs register.
const LITTLE: Bytes = Bytes::mib(64);

/// Below this hardly any queue pair can be created. Above it is a note: the limit is that of the calling shell, a
/// service may have another, and every distribution's default is 8 MiB.
const NOTHING: Bytes = Bytes::mib(1);

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let active: Vec<_> = ports(context).into_iter().filter(Port::is_active).collect();
    if active.is_empty() {
        return Vec::new();
    }
    let locked = &context.host.kernel.locked_memory;
    let missing = unknown(locked).into_iter().collect();
    let notices = match locked.get() {
        Some(Limit::Bytes(limit)) if limit <= LITTLE => Vec::from([few_pages(context, limit)]),
        _ => Vec::new(),
    };
    let of_host = judged(rule, context, "host".to_owned(), notices, missing);
    let mut said = Vec::from_iter(of_host);
    let mut names: Vec<&str> = Vec::new();
    for port in active {
        if !names.contains(&port.device.name.as_str()) {
            names.push(&port.device.name);
            let subject = format!("rdma/{}", port.device.name);
            let notices = Vec::from_iter(few_reads(port.device));
            said.extend(judged(rule, context, subject, notices, Vec::new()));
        }
    }
    said
}

fn few_pages(context: &Context<'_>, limit: Bytes) -> Notice {
    let summary = format!(
        "the locked-memory limit here is {limit}, too small for RDMA buffers: set LimitMEMLOCK=infinity for \
         the service"
    );
    // RDMA storage is in the kernel; the limit applies to programs only.
    let severity = if limit <= NOTHING {
        severity_for(context, &[Profile::Rdma], Severity::Warn)
    } else {
        Severity::Note
    };
    Notice::new(severity, summary).with([Evidence::new(
        "RLIMIT_MEMLOCK",
        limit,
        "/proc/self/limits",
    )])
}

fn few_reads(device: &RdmaDevice) -> Option<Notice> {
    let reads = *device.limits.value()?.get("max_qp_rd_atom")?;
    (reads <= 1).then(|| {
        let summary = format!(
            "{} allows at most {reads} outstanding RDMA read per connection",
            device.name
        );
        let path = format!("ibv_query_device {}: max_qp_rd_atom", device.name);
        Notice::new(Severity::Note, summary).with([Evidence::new("max_qp_rd_atom", reads, path)])
    })
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use super::super::devices::testing::infiniband;
    use super::super::testing::{Cases, World, finding};
    use super::*;
    use crate::build;
    use crate::known::{Cause, Known};

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("8 MiB", || world(Known::Value(Limit::Bytes(Bytes::mib(8))))),
            ("no read outstanding", || {
                let mut device = infiniband("mlx5_0");
                device.limits = Known::Value(BTreeMap::from([("max_qp_rd_atom".to_owned(), 0)]));
                World::of(build::host().with(|host| host.rdma.push(device)).build())
            }),
        ],
        silent: &[
            ("no limit", || world(Known::Value(Limit::Unlimited))),
            ("no RDMA", || {
                let little = Known::Value(Limit::Bytes(Bytes::mib(8)));
                World::of(
                    build::host()
                        .with(|host| host.kernel.locked_memory = little)
                        .build(),
                )
            }),
        ],
        undetermined: &[("the limits may not be read", || {
            world(Known::unknown(
                Cause::Denied,
                "/proc/self/limits",
                "Permission denied",
            ))
        })],
    };

    fn world(limit: Known<Limit>) -> World {
        let host = build::host().with(|host| {
            host.kernel.locked_memory = limit;
            host.rdma.push(infiniband("mlx5_0"));
        });
        World::of(host.build()).profile(Profile::Rdma)
    }

    #[test]
    fn it_warns_only_where_programs_use_rdma() {
        let little = || world(Known::Value(Limit::Bytes(Bytes::kib(64))));
        let default = world(Known::Value(Limit::Bytes(Bytes::mib(8))));
        assert_eq!(finding(ID, &default.context()).severity, Severity::Note);
        assert_eq!(finding(ID, &little().context()).severity, Severity::Warn);
        let storage = little().profile(Profile::Storage);
        assert_eq!(finding(ID, &storage.context()).severity, Severity::Note);
    }
}
