//! One module per directory below `/sys` (Documentation/ABI/{stable,testing} in the kernel's source). `parse_*` takes
//! text and does no I/O; `read_*` takes a root.

pub(crate) mod block;
pub(crate) mod bond;
pub(crate) mod caches;
pub(crate) mod cgroups;
pub(crate) mod config_space;
pub mod cpus;
pub(crate) mod function;
pub(crate) mod gids;
pub(crate) mod hwmon;
pub(crate) mod idle;
mod inapplicable;
pub(crate) mod irq_names;
pub(crate) mod isolation;
pub(crate) mod kernel;
pub(crate) mod kinds;
pub(crate) mod locality;
pub(crate) mod nic_kind;
pub(crate) mod nics;
pub mod nodes;
pub(crate) mod nvme;
pub mod pci;
pub(crate) mod pci_ids;
pub(crate) mod power;
pub(crate) mod psid;
pub(crate) mod queue_irqs;
pub(crate) mod queues;
pub(crate) mod rdma;
pub(crate) mod stack;
pub(crate) mod unasked;
