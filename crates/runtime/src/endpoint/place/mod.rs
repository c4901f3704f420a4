//! Named placement of threads and memory: `--place near`, `--memory bind:1`. A word is resolved against
//! one host's map, and becomes the CPUs and nodes of a [`Placement`].
//!
//! A word that chooses CPUs never takes those that are offline, isolated (`isolcpus=`: they are reserved
//! for something else) or outside what this process may use. A list, `cpu:2,4`, is used as it is
//! given: isolated CPUs too, but nothing that cannot run a thread.

use std::collections::{BTreeMap, BTreeSet};

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::{Host, Nic, RdmaDevice};
use linerate_model::ids::{CpuId, CpuSet, NicName, NodeId};
use linerate_model::known::Known;
use linerate_model::sample::Role;
use linerate_model::workload::{Direction, MemoryPolicy, Placement};

use crate::cli::place_word::{MemoryWhere, Where};

/// The resolved placement on one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placed {
    /// Thread *i* runs on the *i*-th of these, modulo their number.
    Cpus(CpuSet),
    /// Each thread runs where its connection is received.
    ByReceiveCpu,
    /// The scheduler decides.
    Free,
}

/// One end: its host, the interface that the data uses, and what was requested there.
#[derive(Debug, Clone)]
pub struct Site<'a> {
    /// The host.
    pub host: &'a Host,
    /// The interface that the route to the peer uses.
    pub nic: &'a NicName,
    /// The RDMA device that carries the data, when one does.
    pub rdma: Option<&'a RdmaDevice>,
    /// The CPUs that linerate may use there, when that is known.
    pub allowed: Option<&'a CpuSet>,
    /// The CPUs of its threads.
    pub cpus: &'a Where,
    /// The memory policy of its buffers.
    pub memory: &'a MemoryWhere,
    /// The data threads of each role there.
    pub threads: u32,
}

/// The placement of a trial's threads and buffers.
pub fn placement(direction: Direction, local: &Site<'_>, remote: &Site<'_>) -> Outcome<Placement> {
    let by_receive_cpu = [local, remote].map(|site| *site.cpus == Where::ByReceiveCpu);
    if by_receive_cpu[0] != by_receive_cpu[1] {
        let other = if by_receive_cpu[0] { remote } else { local };
        if *other.cpus != Where::Free {
            return Err(bad(
                "`by-rx-cpu` places both ends: it cannot be combined with another placement",
            ));
        }
    }
    let (sending, receiving): (Vec<&Site<'_>>, Vec<&Site<'_>>) = match direction {
        Direction::Forward => (vec![local], vec![remote]),
        Direction::Reverse => (vec![remote], vec![local]),
        Direction::Bidirectional => (vec![local, remote], vec![local, remote]),
    };
    let (sender_cpus, sender_memory) = of_role(&sending, Role::Sender)?;
    let (receiver_cpus, receiver_memory) = of_role(&receiving, Role::Receiver)?;
    Ok(Placement {
        sender_cpus,
        receiver_cpus,
        sender_memory,
        receiver_memory,
        by_receive_cpu: by_receive_cpu.contains(&true),
    })
}

/// The CPUs and the memory of one role. Where both ends have it they share one list.
fn of_role(sites: &[&Site<'_>], role: Role) -> Outcome<(CpuSet, MemoryPolicy)> {
    let mut found: Option<(CpuSet, MemoryPolicy)> = None;
    for site in sites {
        let placed = if sites.len() > 1 && *site.cpus == Where::Spread {
            Placed::Cpus(site.half_of_spread(role)?)
        } else {
            resolve(site, role)?
        };
        let cpus = match placed {
            Placed::Cpus(cpus) => cpus,
            Placed::ByReceiveCpu | Placed::Free => CpuSet::empty(),
        };
        let here = (cpus, resolve_memory(site)?);
        if found.as_ref().is_some_and(|found| *found != here) {
            return Err(bad(
                "`--bidir` uses the same placement on both ends, but the CPU or node \
                numbers of these hosts differ",
            )
            .hint("measure one direction at a time, or use the same `cpu:LIST` on both ends"));
        }
        found = Some(here);
    }
    Ok(found.unwrap_or_default())
}

fn bad(message: impl Into<String>) -> Stop {
    Stop::new(Code::BadInput, message)
}

/// The word is right, and this host has no such place.
fn not_here(message: impl Into<String>) -> Stop {
    Stop::new(Code::NotSupported, message)
}

/// The CPUs that the word of `site` resolves to, for its threads of `role`.
pub fn resolve(site: &Site<'_>, role: Role) -> Outcome<Placed> {
    let cpus = match site.cpus {
        Where::Free => return Ok(Placed::Free),
        Where::ByReceiveCpu => return Ok(Placed::ByReceiveCpu),
        Where::Cpus(cpus) => return site.as_given(cpus).map(Placed::Cpus),
        Where::Near => site.usable_of(&site.near_cpus()?)?,
        Where::Far => site.usable_of(&site.cpus_of(site.far_node()?)?)?,
        Where::Node(node) => site.usable_of(&site.cpus_of(*node)?)?,
        Where::Spread => site.spread(site.threads)?,
        Where::SameCore => site.one_core(role)?,
    };
    Ok(Placed::Cpus(cpus))
}

/// The policy that the memory word of `site` resolves to.
pub fn resolve_memory(site: &Site<'_>) -> Outcome<MemoryPolicy> {
    let policy = match site.memory {
        MemoryWhere::Policy(policy) => policy.clone(),
        MemoryWhere::Near => MemoryPolicy::Bind(site.near_nodes()?),
        MemoryWhere::Far => MemoryPolicy::Bind(vec![site.far_node()?]),
    };
    let nodes: &[NodeId] = match &policy {
        MemoryPolicy::Default | MemoryPolicy::Local => &[],
        MemoryPolicy::Bind(nodes) | MemoryPolicy::Interleave(nodes) => nodes,
        MemoryPolicy::Preferred(node) => std::slice::from_ref(node),
    };
    for node in nodes {
        let found = site.node(*node)?;
        if found
            .memory_bytes
            .get()
            .is_some_and(|bytes| bytes.as_u64() == 0)
        {
            return Err(bad(format!("node {node} has no memory")));
        }
    }
    Ok(policy)
}

impl Site<'_> {
    fn node(&self, id: NodeId) -> Outcome<&linerate_model::host::Node> {
        let nodes = &self.host.nodes;
        nodes.iter().find(|node| node.id == id).ok_or_else(|| {
            let all: Vec<String> = nodes.iter().map(|node| node.id.to_string()).collect();
            let all = all.join(", ");
            bad(format!("no NUMA node {id}; this host has {all}"))
        })
    }

    fn cpus_of(&self, id: NodeId) -> Outcome<CpuSet> {
        match &self.node(id)?.cpus {
            Known::Value(cpus) if cpus.is_empty() => {
                Err(bad(format!("node {id} has memory but no CPUs")))
            }
            Known::Value(cpus) => Ok(cpus.clone()),
            Known::Unknown(gap) => Err(bad(format!("the CPUs of node {id} are unknown: {gap}"))),
        }
    }

    /// The CPUs that a word may choose among.
    fn usable(&self) -> CpuSet {
        let mut usable = self.host.online_cpus();
        if let Known::Value(isolated) = &self.host.isolation.isolated {
            usable = usable.minus(isolated);
        }
        self.allowed
            .map_or(usable.clone(), |allowed| usable.and(allowed))
    }

    /// The usable part of `cpus`; an error that explains why nothing is left.
    fn usable_of(&self, cpus: &CpuSet) -> Outcome<CpuSet> {
        let usable = cpus.and(&self.usable());
        if !usable.is_empty() {
            return Ok(usable);
        }
        let online = self.host.online_cpus();
        let none = CpuSet::empty();
        let isolated = self.host.isolation.isolated.value().unwrap_or(&none);
        let why = [
            ("offline", cpus.minus(&online)),
            ("isolated", cpus.and(isolated)),
            (
                "outside linerate's cpuset",
                self.allowed
                    .map_or(none.clone(), |allowed| cpus.minus(allowed)),
            ),
        ];
        let why = why.iter().filter(|(_, cpus)| !cpus.is_empty());
        let why: Vec<String> = why.map(|(what, cpus)| format!("{cpus} {what}")).collect();
        Err(bad(format!(
            "`{}` resolves to CPUs {cpus}, none of which is usable: {}",
            self.cpus,
            why.join(", ")
        ))
        .hint("list CPUs with `cpu:LIST`"))
    }

    /// A list as it was given, when every CPU of it can run a thread.
    fn as_given(&self, cpus: &CpuSet) -> Outcome<CpuSet> {
        let offline = cpus.minus(&self.host.online_cpus());
        if !offline.is_empty() {
            let online = self.host.online_cpus();
            return Err(bad(format!(
                "CPUs {offline} do not exist or are offline; online are {online}"
            )));
        }
        if let Some(allowed) = self.allowed {
            let outside = cpus.minus(allowed);
            if !outside.is_empty() {
                return Err(bad(format!(
                    "CPUs {outside} are outside linerate's allowed CPUs ({allowed})"
                ))
                .hint("check its cpuset or `taskset -p`"));
            }
        }
        Ok(cpus.clone())
    }

    /// The interfaces with a device below the data's interface, or that one.
    fn devices(&self) -> Vec<&Nic> {
        let mut names = BTreeSet::from([self.nic]);
        let mut open = vec![self.nic];
        let mut devices = Vec::new();
        while let Some(nic) = open.pop().and_then(|name| self.host.nic(name)) {
            if nic.lower().is_empty() {
                devices.push(nic);
            }
            open.extend(nic.lower().iter().filter(|lower| names.insert(lower)));
        }
        devices
    }

    /// What the buffers of a trial over verbs are bound to by default: the device reads and writes
    /// them, not a CPU. On a machine of one node, or where the device's is not known, that is nothing.
    pub fn memory_of_device(&self) -> MemoryPolicy {
        let has_memory = |node: &NodeId| {
            let node = self.host.nodes.iter().find(|one| one.id == *node);
            node.is_some_and(|node| {
                node.memory_bytes
                    .get()
                    .is_some_and(|size| size.as_u64() > 0)
            })
        };
        match self.near_nodes() {
            Ok(near) if self.host.nodes.len() > 1 && near.iter().all(has_memory) => {
                MemoryPolicy::Bind(near)
            }
            _ => MemoryPolicy::Default,
        }
    }

    /// The nodes of the RDMA device, or of the interface, ascending; all there is on a machine of one.
    fn near_nodes(&self) -> Outcome<Vec<NodeId>> {
        if let [only] = &self.host.nodes[..] {
            return Ok(vec![only.id]);
        }
        if let Some(node) = self.rdma.and_then(|device| device.numa_node.get()) {
            return Ok(vec![node]);
        }
        let nodes = self
            .devices()
            .into_iter()
            .filter_map(|nic| nic.numa_node.get());
        let nodes: BTreeSet<NodeId> = nodes.collect();
        if nodes.is_empty() {
            return Err(self.node_unknown());
        }
        Ok(nodes.into_iter().collect())
    }

    fn node_unknown(&self) -> Stop {
        let devices = self.devices();
        let gap = devices.iter().find_map(|nic| nic.numa_node.gap());
        let why = gap.map_or_else(|| "no such interface".to_owned(), ToString::to_string);
        not_here(format!("the NUMA node of {} is unknown: {why}", self.nic))
            .hint("choose a node with `node:N` (`linerate map` lists them)")
    }

    /// The CPUs of its nodes; where the node is not known, those that its device calls local.
    fn near_cpus(&self) -> Outcome<CpuSet> {
        match self.near_nodes() {
            Ok(nodes) => {
                let sets: Outcome<Vec<CpuSet>> =
                    nodes.into_iter().map(|node| self.cpus_of(node)).collect();
                Ok(sets?.iter().flat_map(CpuSet::iter).collect())
            }
            Err(unknown) => {
                let devices = self.devices();
                let local = devices.iter().filter_map(|nic| nic.local_cpus.value());
                let local: CpuSet = local.flat_map(CpuSet::iter).collect();
                if local.is_empty() {
                    Err(unknown)
                } else {
                    Ok(local)
                }
            }
        }
    }

    /// The node with CPUs that is farthest from the interface.
    fn far_node(&self) -> Outcome<NodeId> {
        let has_cpus = |node: &&linerate_model::host::Node| {
            node.cpus.value().is_some_and(|cpus| !cpus.is_empty())
        };
        if self.host.nodes.iter().filter(has_cpus).count() < 2 {
            let why = "this machine has a single NUMA node with CPUs: there is no far node";
            return Err(not_here(why));
        }
        let near = self.near_nodes()?;
        let others = self.host.nodes.iter().filter(has_cpus);
        let others: Vec<_> = others.filter(|node| !near.contains(&node.id)).collect();
        if let [only] = others[..] {
            return Ok(only.id);
        }
        let place = |id: NodeId| self.host.nodes.iter().position(|node| node.id == id);
        let distance = |node: &linerate_model::host::Node| {
            let all = node.distances.value()?;
            let to_near = near.iter().map(|id| all.get(place(*id)?).copied());
            to_near.collect::<Option<Vec<u32>>>()?.into_iter().min()
        };
        let mut farthest: Option<(u32, NodeId)> = None;
        for node in others {
            let Some(distance) = distance(node) else {
                let id = node.id;
                return Err(not_here(format!(
                    "the distance from node {id} to {} is unknown",
                    self.nic
                ))
                .hint("choose a node with `node:N`"));
            };
            if farthest.is_none_or(|(most, _)| distance > most) {
                farthest = Some((distance, node.id));
            }
        }
        farthest.map(|(_, node)| node).ok_or_else(|| {
            let nic = self.nic;
            not_here(format!(
                "{nic} is local to every node: there is no far node"
            ))
        })
    }

    /// The usable CPUs by core, each core's ascending.
    fn cores(&self) -> Vec<Vec<CpuId>> {
        let usable = self.usable();
        let mut seen = BTreeSet::new();
        let mut cores = Vec::new();
        for cpu in usable.iter() {
            if seen.contains(&cpu) {
                continue;
            }
            let siblings = self.host.cpu(cpu).and_then(|cpu| cpu.siblings.value());
            // Where siblings are not known each CPU is taken for a core.
            let core: Vec<CpuId> = siblings.map_or_else(
                || vec![cpu],
                |siblings| siblings.and(&usable).iter().collect(),
            );
            seen.extend(core.iter().copied());
            cores.push(core);
        }
        cores
    }

    /// A CPU for each thread: every core once, node by node in turn; then the cores' other CPUs.
    fn spread(&self, threads: u32) -> Outcome<CpuSet> {
        let mut nodes: BTreeMap<Option<NodeId>, Vec<Vec<CpuId>>> = BTreeMap::new();
        for core in self.cores() {
            let first = core.first().and_then(|cpu| self.host.cpu(*cpu));
            let node = first.and_then(|cpu| cpu.node.get());
            nodes.entry(node).or_default().push(core);
        }
        let depth = |cores: &Vec<Vec<CpuId>>| cores.iter().map(Vec::len).max().unwrap_or(0);
        let deepest = nodes.values().map(depth).max().unwrap_or(0);
        let longest = nodes.values().map(Vec::len).max().unwrap_or(0);
        let turns = (0..deepest).flat_map(|level| (0..longest).map(move |core| (level, core)));
        let order = turns.flat_map(|(level, core)| {
            let of_nodes = nodes.values();
            of_nodes.filter_map(move |cores| cores.get(core)?.get(level).copied())
        });
        let cpus: CpuSet = order.take(threads.max(1) as usize).collect();
        if cpus.is_empty() {
            return self.usable_of(&self.host.online_cpus());
        }
        Ok(cpus)
    }

    /// The same where both roles are at this end: they share no CPU as far as there are enough.
    fn half_of_spread(&self, role: Role) -> Outcome<CpuSet> {
        let all = self.spread(self.threads.saturating_mul(2))?;
        let first = all.len().div_ceil(2);
        let half: CpuSet = match role {
            Role::Sender => all.iter().take(first).collect(),
            Role::Receiver => all.iter().skip(first).collect(),
        };
        Ok(if half.is_empty() { all } else { half })
    }

    /// One core near the interface where that is known: its first CPU for senders, its second, if it has one, for
    /// receivers.
    fn one_core(&self, role: Role) -> Outcome<CpuSet> {
        let near = self.near_cpus().unwrap_or_else(|_| self.host.online_cpus());
        let cores = self.cores();
        let mut near = cores
            .iter()
            .filter(|core| core.iter().all(|cpu| near.contains(*cpu)));
        let core = near
            .clone()
            .find(|core| core.len() > 1)
            .or_else(|| near.next());
        let Some(core) = core.or_else(|| cores.first()) else {
            return self.usable_of(&self.host.online_cpus());
        };
        let at = match role {
            Role::Sender => 0,
            Role::Receiver => core.len().min(2) - 1,
        };
        Ok(CpuSet::one(core[at]))
    }
}

/// The CPUs that this process may use.
pub fn allowed_here() -> CpuSet {
    let allowed = rustix::thread::sched_getaffinity(None).unwrap_or_default();
    let most = u32::try_from(rustix::thread::CpuSet::MAX_CPU).unwrap_or(0);
    let may = (0..most).filter(|cpu| allowed.is_set(*cpu as usize));
    may.map(CpuId).collect()
}

#[cfg(test)]
mod tests;
