//! `nvme-path-numa`: the NVMe multipath policy does not fit the NUMA topology, or a path is down. Facts
//! from Documentation/admin-guide/nvme-multipath.rst.

use std::collections::BTreeSet;

use super::devices::{Notice, judged, unknown};
use super::facts::if_read;
use super::remedy;
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Profile, Rule, Severity, Stage, Status,
};
use crate::host::{BlockDevice, NvmePath};
use crate::setting::{BlockKnob, Class, SettingKey, Value};

pub(super) const RULE: Rule = Rule {
    id: "nvme-path-numa",
    number: 77,
    status: Status::Implemented,
    title: "the NVMe multipath policy does not fit the NUMA topology, or a path is down",
    severity: Severity::Warn,
    stage: Stage::Locality,
    profiles: &[Profile::Storage, Profile::Rdma],
    judges_by: &[Basis::Facts],
    threshold: "two or more live paths: policy numa with all of them on one node, or round-robin with paths on \
                several nodes (note); a path that is not live (warn)",
    effect: "all paths carry I/O, or no I/O crosses sockets; no verified figure",
    source: "Documentation/admin-guide/nvme-multipath.rst",
    fix: Fix::Proposed(&[Class::R1]),
    persist: "a udev rule on SUBSYSTEM==\"nvme-subsystem\": ATTR{iopolicy}=\"queue-depth\"",
    contested: Some(
        "numa keeps I/O local and leaves paths idle; round-robin and queue-depth use all paths and cross nodes",
    ),
    page: include_str!("../../../../docs/rules/nvme-path-numa.md"),
    check,
};

/// From here on one connection is fewer than drivers choose: one for each CPU.
const SEVERAL_CPUS: usize = 4;

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let devices = context.host.block.iter();
    devices
        .filter_map(|device| {
            let subject = format!("block/{}", device.name);
            let is_nvme = device.name.starts_with("nvme");
            let Some(paths) = device.paths.value() else {
                let missing = unknown(&device.paths).filter(|_| is_nvme);
                return judged(rule, context, subject, Vec::new(), Vec::from_iter(missing));
            };
            let mut notices = Vec::from_iter(lost(device, paths));
            notices.extend(one_queue(context, device, paths));
            let live: Vec<&NvmePath> = paths.iter().filter(|path| is(path, "live")).collect();
            let mut missing = Vec::new();
            if live.len() > 1 {
                missing.extend(unknown(&device.io_policy));
                notices.extend(policy(context, device, &live));
            }
            judged(rule, context, subject, notices, missing)
        })
        .collect()
}

fn is(path: &NvmePath, state: &str) -> bool {
    path.state.value().is_some_and(|own| own == state)
}

fn state(path: &NvmePath) -> Option<Evidence> {
    let file = format!("/sys/class/nvme/{}/state", path.controller);
    Some(Evidence::new(
        format!("state of {}", path.controller),
        path.state.value()?,
        file,
    ))
}

fn lost(device: &BlockDevice, paths: &[NvmePath]) -> Option<Notice> {
    let lost =
        |path: &&NvmePath| path.state.value().is_some() && !is(path, "live") && !is(path, "new");
    let first = paths.iter().find(lost)?;
    let summary = format!(
        "path {} of {} is {}, so fewer paths carry its I/O: restore it",
        first.controller,
        device.name,
        first.state.value().map_or("not live", String::as_str)
    );
    Some(Notice::new(Severity::Warn, summary).with(paths.iter().filter_map(state)))
}

/// Over a network each I/O queue is a connection, which one CPU serves.
fn one_queue(context: &Context<'_>, device: &BlockDevice, paths: &[NvmePath]) -> Option<Notice> {
    let remote = |path: &&NvmePath| {
        let transport = path.transport.value().map(String::as_str);
        matches!(transport, Some("tcp" | "rdma"))
    };
    let cpus = context.host.online_cpus().len();
    let path = paths
        .iter()
        .filter(remote)
        .find(|path| if_read(&path.io_queues).is_some_and(|queues| *queues == 1))?;
    (cpus >= SEVERAL_CPUS).then(|| {
        let summary = format!(
            "path {} of {} has one I/O queue for {cpus} CPUs: connect with --nr-io-queues",
            path.controller, device.name
        );
        let file = format!("/sys/class/nvme/{}/queue_count", path.controller);
        let evidence = Evidence::new("I/O queues (queue_count without the admin queue)", 1, file);
        Notice::new(Severity::Warn, summary).with([evidence])
    })
}

fn policy(context: &Context<'_>, device: &BlockDevice, live: &[&NvmePath]) -> Option<Notice> {
    let own = device.io_policy.value()?;
    let nodes: BTreeSet<_> = live
        .iter()
        .filter_map(|path| path.numa_node.get())
        .collect();
    let (summary, to) = match own.as_str() {
        "numa" if nodes.len() < 2 => (
            format!(
                "{} has {} live paths on one node, of which policy numa uses one: try queue-depth and measure",
                device.name,
                live.len()
            ),
            "queue-depth",
        ),
        "round-robin" if nodes.len() > 1 && context.host.nodes.len() > 1 => (
            format!(
                "{} uses round-robin over paths on {} nodes, so part of its I/O crosses nodes: try numa and \
                 measure",
                device.name,
                nodes.len()
            ),
            "numa",
        ),
        _ => return None,
    };
    let key = SettingKey::Block(device.name.clone(), BlockKnob::IoPolicy);
    let evidence = Evidence::new("I/O policy", own, "/sys/class/nvme-subsystem/*/iopolicy");
    let of_paths = live.iter().filter_map(|path| {
        let file = format!("/sys/class/nvme/{}/numa_node", path.controller);
        let node = path.numa_node.get()?;
        Some(Evidence::new(
            format!("NUMA node of live path {}", path.controller),
            node,
            file,
        ))
    });
    Some(
        Notice::new(Severity::Note, summary)
            .with([evidence])
            .with(live.iter().filter_map(|path| state(path)))
            .with(of_paths)
            .fixed_by(remedy(context, key, Value::Text(to.to_owned()))),
    )
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding, remedies};
    use super::*;
    use crate::build::{self, block};
    use crate::ids::NodeId;
    use crate::known::Known;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("one connection for four CPUs", || {
                let mut world = world("numa", &[("live", 0)]);
                if let Known::Value(paths) = &mut world.host.block[0].paths {
                    paths[0].io_queues = Known::Value(1);
                }
                world
            }),
            ("numa on one node", || {
                world("numa", &[("live", 0), ("live", 0)])
            }),
            ("round-robin over two nodes", || {
                world("round-robin", &[("live", 0), ("live", 1)])
            }),
            ("a path is gone", || {
                world("numa", &[("live", 0), ("connecting", 1)])
            }),
        ],
        silent: &[
            ("one queue for each CPU, over two nodes", || {
                world("numa", &[("live", 0), ("live", 1)])
            }),
            ("one path", || world("numa", &[("live", 0)])),
            ("no NVMe", || {
                World::of(build::host().build()).profile(Profile::Storage)
            }),
        ],
        undetermined: &[("not queried", || {
            let mut device = block("nvme0n1", "nvme");
            device.paths = Known::not_asked("nvme-subsystem");
            World::of(build::host().with(|host| host.block.push(device)).build())
                .profile(Profile::Storage)
        })],
    };

    fn world(policy: &str, paths: &[(&str, u32)]) -> World {
        let mut device = block("nvme0n1", "nvme");
        device.io_policy = Known::Value(policy.to_owned());
        let path = |(number, (state, node)): (usize, &(&str, u32))| NvmePath {
            controller: format!("nvme{number}"),
            state: Known::Value((*state).to_owned()),
            transport: Known::Value("tcp".to_owned()),
            numa_node: Known::Value(NodeId(*node)),
            io_queues: Known::Value(4),
        };
        device.paths = Known::Value(paths.iter().enumerate().map(path).collect());
        let host = build::host()
            .nodes(2, 2)
            .with(|host| host.block.push(device));
        World::of(host.build()).profile(Profile::Storage)
    }

    #[test]
    fn the_policy_is_a_note_to_be_measured_and_a_lost_path_warns() {
        let said = finding(ID, &world("numa", &[("live", 0), ("live", 0)]).context());
        assert_eq!(said.severity, Severity::Note);
        assert_eq!(
            remedies(&said),
            ["block/nvme0n1/io-policy: numa -> queue-depth"]
        );
        let said = finding(ID, &world("numa", &[("live", 0), ("dead", 0)]).context());
        assert_eq!(said.severity, Severity::Warn);
    }
}
