//! Where the jobs and their buffers are: the placement words of the command line, resolved against the device's node,
//! its hardware queues, and the CPUs that this process may use.

use linerate_host::block_device::Device;
use linerate_host::root::HostRoot;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::{BlockDevice, Host, Node};
use linerate_model::ids::{CpuId, CpuSet, NodeId};
use linerate_model::known::Known;
use linerate_model::workload::MemoryPolicy;
use linerate_runtime::cli::Jobs;
use linerate_runtime::cli::place_word::{MemoryWhere, Where};
use linerate_runtime::endpoint::place::allowed_here;

/// The host and the device, as far as placement needs them.
#[derive(Debug)]
pub(super) struct Site<'a> {
    pub(super) host: &'a Host,
    pub(super) facts: Option<&'a BlockDevice>,
    /// The CPUs that are local to the device, if that is known.
    pub(super) local: Known<CpuSet>,
    /// The CPUs that linerate may use.
    pub(super) allowed: CpuSet,
    pub(super) name: String,
}

/// The queue of each CPU: with polled queues a CPU has one of each kind, and the polled ones come last (block/blk-mq.h,
/// `enum hctx_type`). A CPU with three queues has one for reads as well: which of them was used is not known.
pub(super) fn queue_of(cpu: CpuId, queues: &[CpuSet], polled: bool) -> Option<usize> {
    let mut own = (0..queues.len()).filter(|queue| {
        let cpus = queues.get(*queue);
        cpus.is_some_and(|cpus| cpus.contains(cpu))
    });
    match (own.next(), own.next(), own.next()) {
        (Some(only), None, _) => Some(only),
        (Some(first), Some(last), None) => Some(if polled { last } else { first }),
        _ => None,
    }
}

fn not_here(why: impl Into<String>) -> Stop {
    Stop::new(Code::NotSupported, why)
}

impl<'a> Site<'a> {
    pub(super) fn of(
        host: &'a Host,
        facts: Option<&'a BlockDevice>,
        device: &Device,
        root: &HostRoot,
    ) -> Self {
        Self {
            host,
            facts,
            local: device.local_cpus(root),
            allowed: allowed_here(),
            name: device.disk.clone(),
        }
    }

    /// The CPUs of each job; an empty set is any.
    pub(super) fn jobs(
        &self,
        jobs: Jobs,
        place: Option<&Where>,
        polled: bool,
    ) -> Outcome<Vec<CpuSet>> {
        let placed = match place {
            None | Some(Where::Free) => None,
            Some(place) => Some(self.cpus(place)?),
        };
        let one = |cpu: CpuId| CpuSet::one(cpu);
        let all = || placed.clone().unwrap_or_else(|| self.usable());
        match jobs {
            Jobs::Number(number) => Ok(match &placed {
                None => vec![CpuSet::empty(); number],
                Some(cpus) => {
                    let cpus: Vec<CpuId> = cpus.iter().collect();
                    cpus.iter().cycle().take(number).copied().map(one).collect()
                }
            }),
            Jobs::PerCpu => Ok(all().iter().map(one).collect()),
            Jobs::PerQueue => {
                let (queues, cpus) = (self.queues()?, all());
                // A queue that no CPU submits to, such as a polled one, gets no job.
                let first = |queue: usize| {
                    let mut own = cpus.iter();
                    own.find(|cpu| queue_of(*cpu, queues, polled) == Some(queue))
                };
                let jobs: Vec<CpuSet> = (0..queues.len()).filter_map(first).map(one).collect();
                if jobs.is_empty() {
                    let why = format!(
                        "no hardware queue of {} has a CPU of the placement",
                        self.name
                    );
                    return Err(Stop::new(Code::BadInput, why));
                }
                Ok(jobs)
            }
        }
    }

    fn queues(&self) -> Outcome<&Vec<CpuSet>> {
        let name = &self.name;
        match self.facts.map(|facts| &facts.queue_cpus) {
            Some(Known::Value(queues)) if !queues.is_empty() => Ok(queues),
            Some(Known::Unknown(gap)) => Err(not_here(format!(
                "the hardware queues of {name} are not known: {gap}"
            ))),
            _ => Err(not_here(format!("{name} has no hardware queues"))),
        }
        .map_err(|stop| stop.hint("use a number of jobs, or `--jobs per-cpu`"))
    }

    /// The policy of the buffers: without one, the kernel takes pages of the node that the job runs on.
    pub(super) fn memory(&self, memory: Option<&MemoryWhere>) -> Outcome<MemoryPolicy> {
        let policy = match memory {
            None => return Ok(MemoryPolicy::Default),
            Some(MemoryWhere::Policy(policy)) => policy.clone(),
            Some(MemoryWhere::Near) => MemoryPolicy::Bind(vec![self.near_node()?]),
            Some(MemoryWhere::Far) => MemoryPolicy::Bind(vec![self.far_node()?]),
        };
        let nodes: &[NodeId] = match &policy {
            MemoryPolicy::Default | MemoryPolicy::Local => &[],
            MemoryPolicy::Bind(nodes) | MemoryPolicy::Interleave(nodes) => nodes,
            MemoryPolicy::Preferred(node) => std::slice::from_ref(node),
        };
        nodes
            .iter()
            .try_for_each(|node| self.node(*node).map(drop))?;
        Ok(policy)
    }

    /// Online, not isolated, and not outside what this process may use.
    fn usable(&self) -> CpuSet {
        let online = self.host.online_cpus();
        let free = match &self.host.isolation.isolated {
            Known::Value(isolated) => online.minus(isolated),
            Known::Unknown(_) => online,
        };
        free.and(&self.allowed)
    }

    fn cpus(&self, place: &Where) -> Outcome<CpuSet> {
        let wanted = match place {
            Where::Near => match &self.local {
                Known::Value(cpus) if !cpus.is_empty() => cpus.clone(),
                _ => self.cpus_of(self.near_node()?)?,
            },
            Where::Far => self.cpus_of(self.far_node()?)?,
            Where::Node(node) => self.cpus_of(*node)?,
            // As it is given: isolated CPUs too.
            Where::Cpus(cpus) => {
                let missing = cpus.minus(&self.host.online_cpus().and(&self.allowed));
                if missing.is_empty() {
                    return Ok(cpus.clone());
                }
                let why = format!("CPUs {missing} are offline or outside linerate's cpuset");
                return Err(Stop::new(Code::BadInput, why));
            }
            Where::Free | Where::Spread | Where::SameCore | Where::ByReceiveCpu => {
                let why = format!(
                    "`--place {place}` is for connections; for a block device use near, far, node:N or cpu:LIST"
                );
                return Err(Stop::new(Code::Usage, why));
            }
        };
        let usable = wanted.and(&self.usable());
        if usable.is_empty() {
            let why = format!(
                "CPUs {wanted} of `--place {place}` are offline, isolated or outside linerate's cpuset"
            );
            return Err(Stop::new(Code::BadInput, why));
        }
        Ok(usable)
    }

    fn node(&self, id: NodeId) -> Outcome<&Node> {
        let nodes = &self.host.nodes;
        nodes.iter().find(|node| node.id == id).ok_or_else(|| {
            let all: Vec<String> = nodes.iter().map(|node| node.id.to_string()).collect();
            let why = format!("no NUMA node {id}; this host has {}", all.join(", "));
            Stop::new(Code::BadInput, why)
        })
    }

    fn cpus_of(&self, id: NodeId) -> Outcome<CpuSet> {
        match &self.node(id)?.cpus {
            Known::Value(cpus) if !cpus.is_empty() => Ok(cpus.clone()),
            Known::Value(_) => Err(Stop::new(Code::BadInput, format!("node {id} has no CPUs"))),
            Known::Unknown(gap) => Err(not_here(format!(
                "the CPUs of node {id} are unknown: {gap}"
            ))),
        }
    }

    fn near_node(&self) -> Outcome<NodeId> {
        let node = self.facts.map(|facts| &facts.numa_node);
        match node {
            Some(Known::Value(node)) => Ok(*node),
            Some(Known::Unknown(gap)) => Err(not_here(format!(
                "the NUMA node of {} is not known: {gap}",
                self.name
            ))),
            None => Err(not_here(format!(
                "the NUMA node of {} is not known",
                self.name
            ))),
        }
        .map_err(|stop| stop.hint("choose a node with `node:N`"))
    }

    fn far_node(&self) -> Outcome<NodeId> {
        let near = self.near_node()?;
        let nodes = &self.host.nodes;
        let place = nodes.iter().position(|node| node.id == near);
        let has_cpus = |node: &&Node| node.cpus.value().is_some_and(|cpus| !cpus.is_empty());
        let others: Vec<&Node> = nodes
            .iter()
            .filter(has_cpus)
            .filter(|node| node.id != near)
            .collect();
        let distance = |node: &Node| node.distances.value()?.get(place?).copied();
        match others[..] {
            [] => Err(not_here(
                "this machine has a single NUMA node with CPUs: there is no far node",
            )),
            [only] => Ok(only.id),
            _ => {
                let known: Option<Vec<(u32, NodeId)>> = (others.iter())
                    .map(|node| distance(node).map(|distance| (distance, node.id)))
                    .collect();
                let farthest =
                    known.and_then(|all| all.into_iter().max_by_key(|(distance, _)| *distance));
                farthest.map(|(_, node)| node).ok_or_else(|| {
                    not_here(format!("the distances from node {near} are unknown"))
                        .hint("choose a node with `node:N`")
                })
            }
        }
    }
}
