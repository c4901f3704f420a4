//! NVMe controllers and the subsystems that join several of them: `/sys/class/nvme`,
//! `/sys/class/nvme-subsystem` (drivers/nvme/host/sysfs.c, multipath.c).

use linerate_model::host::NvmePath;
use linerate_model::ids::NodeId;
use linerate_model::known::{Cause, Gap, Known};

use crate::attributes::{last_name, number, number_or_minus_one, numbered};
use crate::root::{HostRoot, absolute};

const CONTROLLERS: &str = "sys/class/nvme";
const SUBSYSTEMS: &str = "sys/class/nvme-subsystem";

/// One subsystem.
#[derive(Debug)]
struct Subsystem {
    name: String,
    controllers: Vec<String>,
    io_policy: Known<String>,
}

fn policy_file(subsystem: &str) -> String {
    format!("{SUBSYSTEMS}/{subsystem}/iopolicy")
}

/// Every controller and subsystem.
#[derive(Debug)]
pub(crate) struct Nvme {
    controllers: Vec<NvmePath>,
    subsystems: Known<Vec<Subsystem>>,
}

/// The NVMe data of one block device.
pub(crate) struct NvmeFiles {
    pub(crate) transport: Known<String>,
    pub(crate) io_policy: Known<String>,
    pub(crate) paths: Known<Vec<NvmePath>>,
}

/// Reads all of them once.
pub(crate) fn read_nvme(root: &HostRoot) -> Nvme {
    let controllers = root.list(CONTROLLERS).value().map_or_else(Vec::new, |all| {
        let numbers = numbered(all, "nvme");
        let of = |number: &u32| read_controller(root, &format!("nvme{number}"));
        numbers.iter().map(of).collect()
    });
    let subsystems = root.list(SUBSYSTEMS).map(|names| {
        let of = |name: String| {
            let folder = format!("{SUBSYSTEMS}/{name}");
            let inside = root.list(&folder).value().cloned().unwrap_or_default();
            let numbers = numbered(&inside, "nvme");
            let controllers = numbers.iter().map(|number| format!("nvme{number}"));
            Subsystem {
                controllers: controllers.collect(),
                io_policy: root.read(&policy_file(&name)),
                name,
            }
        };
        names.into_iter().map(of).collect()
    });
    Nvme {
        controllers,
        subsystems,
    }
}

fn read_controller(root: &HostRoot, name: &str) -> NvmePath {
    let folder = format!("{CONTROLLERS}/{name}");
    NvmePath {
        controller: name.to_owned(),
        state: root.read(&format!("{folder}/state")),
        transport: root.read(&format!("{folder}/transport")),
        numa_node: number_or_minus_one(
            root,
            &format!("{folder}/numa_node"),
            "the controller has no NUMA node",
        )
        .map(NodeId),
        io_queues: number::<u32>(root, &format!("{folder}/queue_count"))
            .map(|count| count.saturating_sub(1)),
    }
}

impl Nvme {
    /// The file with the I/O policy of the block device at the real directory `folder`.
    pub(crate) fn policy_file(&self, folder: &str) -> Known<String> {
        match self.subsystem_of(folder) {
            Some(subsystem) => Known::Value(policy_file(&subsystem.name)),
            None => self.no_subsystem(),
        }
    }

    fn subsystem_of(&self, folder: &str) -> Option<&Subsystem> {
        let above: Vec<&str> = folder.split('/').collect();
        self.subsystems.value()?.iter().find(|subsystem| {
            let holds = |name: &&str| subsystem.controllers.iter().any(|own| own == name);
            above.contains(&subsystem.name.as_str()) || above.iter().any(holds)
        })
    }

    fn no_subsystem<T>(&self) -> Known<T> {
        let reason = "no subsystem holds the device's controller";
        match &self.subsystems {
            Known::Unknown(gap) => Known::Unknown(gap.clone()),
            Known::Value(_) => Known::unknown(Cause::Absent, absolute(SUBSYSTEMS), reason),
        }
    }

    /// The NVMe data of the block device at the real directory `folder`.
    pub(crate) fn of(&self, folder: &str) -> NvmeFiles {
        if !is_nvme(folder) {
            return NvmeFiles::gap(&Gap::new(
                Cause::Absent,
                absolute(folder),
                "not an NVMe device",
            ));
        }
        let above: Vec<&str> = folder.split('/').collect();
        let subsystem = self.subsystem_of(folder);
        let is_path = |controller: &&NvmePath| match subsystem {
            Some(subsystem) => subsystem.controllers.contains(&controller.controller),
            None => above.contains(&controller.controller.as_str()),
        };
        let paths: Vec<NvmePath> = self.controllers.iter().filter(is_path).cloned().collect();
        if paths.is_empty() {
            return NvmeFiles::gap(&Gap::new(
                Cause::Absent,
                absolute(CONTROLLERS),
                "no controller of the device is listed",
            ));
        }
        NvmeFiles {
            transport: shared(&paths),
            io_policy: match subsystem {
                Some(subsystem) => subsystem.io_policy.clone(),
                None => self.no_subsystem(),
            },
            paths: Known::Value(paths),
        }
    }
}

impl NvmeFiles {
    /// The node of every path, if it is the same: a multipath device is not below any function itself.
    pub(crate) fn node(&self) -> Option<NodeId> {
        let (first, others) = self.paths.value()?.split_first()?;
        let is_shared = others.iter().all(|path| path.numa_node == first.numa_node);
        first.numa_node.get().filter(|_| is_shared)
    }

    fn gap(gap: &Gap) -> Self {
        Self {
            transport: Known::Unknown(gap.clone()),
            io_policy: Known::Unknown(gap.clone()),
            paths: Known::Unknown(gap.clone()),
        }
    }
}

fn is_nvme(folder: &str) -> bool {
    last_name(folder).starts_with("nvme")
}

/// The transport of every path, if it is the same.
fn shared(paths: &[NvmePath]) -> Known<String> {
    let Some((first, others)) = paths.split_first() else {
        return Known::default();
    };
    if others.iter().all(|path| path.transport == first.transport) {
        return first.transport.clone();
    }
    Known::unknown(
        Cause::NotSaid,
        absolute(&format!("{CONTROLLERS}/{}/transport", first.controller)),
        "its paths are of several transports, or one of them is not known",
    )
}
