//! The only crate that touches the machine: reads a Linux host through a root handle and netlink, changes its
//! settings with an undo journal, and restores them.

pub mod apply;
mod attributes;
pub mod block_device;
pub mod capture;
pub mod counters;
mod eeprom;
pub mod events;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod hex;
pub mod hold;
pub mod management;
pub mod netlink;
pub mod nic_control;
pub(crate) mod parallel;
pub mod private_folder;
pub mod processes;
pub mod procfs;
pub mod profile;
pub mod rdma;
pub mod read;
pub mod regular_file;
pub mod root;
pub mod soft_roce;
pub(crate) mod sysctl_files;
pub mod sysfs;
pub mod trust;
pub mod watch;
