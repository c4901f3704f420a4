//! The identity of the device that a setting was changed on, for devices that keep their name as long as they exist:
//! after one is removed, another can get its name or number. Interfaces, which can be renamed, are in
//! [`super::interface`].
//!
//! Sources: `/sys/block/DISK/diskseq` increases with each disk of a boot (Documentation/ABI/stable/sysfs-block, since
//! Linux 5.15); `/sys/kernel/irq/N/chip_name` and `hwirq` identify the source of an interrupt
//! (Documentation/ABI/testing/sysfs-kernel-irq); `node_guid` identifies an RDMA device
//! (Documentation/ABI/stable/sysfs-class-infiniband).

use linerate_model::setting::SettingKey;
use serde::{Deserialize, Serialize};

use super::located::Located;
use crate::root::HostRoot;

/// A device by its name and by an identifier that is unique in this boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// `block/nvme0n1`, `irq/42`, `rdma/mlx5_0`.
    pub name: String,
    /// The text of its files.
    pub known_by: String,
}

/// The name of the device that the setting `key` belongs to.
pub(super) fn name_of(key: &SettingKey) -> Option<String> {
    match key {
        SettingKey::Block(disk, _) => Some(format!("block/{disk}")),
        SettingKey::IrqCpus(number) => Some(format!("irq/{number}")),
        SettingKey::Rdma(device, ..) | SettingKey::RdmaDefaults(device) => {
            Some(format!("rdma/{device}"))
        }
        _ => None,
    }
}

/// The identity of the device of `key`; none if the kernel does not report one, or the setting does not belong to
/// such a device.
pub(super) fn read(root: &HostRoot, key: &SettingKey) -> Option<Device> {
    of(root, name_of(key)?)
}

impl Device {
    /// Whether its name still refers to it.
    pub(super) fn locate(&self, root: &HostRoot) -> Located {
        match of(root, self.name.clone()) {
            Some(found) if found == *self => Located::Here,
            _ => Located::Gone,
        }
    }
}

fn of(root: &HostRoot, device: String) -> Option<Device> {
    let (kind, name) = device.split_once('/')?;
    let files: &[&str] = match kind {
        "block" => &["sys/block/NAME/diskseq"],
        "irq" => &["sys/kernel/irq/NAME/chip_name", "sys/kernel/irq/NAME/hwirq"],
        _ => &["sys/class/infiniband/NAME/node_guid"],
    };
    let texts = files.iter().map(|file| {
        let text = root.read(&file.replace("NAME", name));
        text.value().filter(|text| !text.is_empty()).cloned()
    });
    let known_by = texts.collect::<Option<Vec<String>>>()?.join(" ");
    Some(Device {
        name: device,
        known_by,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_device_is_known_by_what_the_kernel_says_of_it_and_not_by_its_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        };
        file("sys/block/nvme0n1/diskseq", "9\n");
        file("sys/kernel/irq/42/chip_name", "PCI-MSIX-0000:83:00.0\n");
        file("sys/kernel/irq/42/hwirq", "3\n");
        file(
            "sys/class/infiniband/mlx5_0/node_guid",
            "0c42:a103:0065:c2b4\n",
        );
        let root = HostRoot::open(folder.path()).expect("a root");
        let known_by = |key: &str| {
            let key: SettingKey = key.parse().expect("a key");
            read(&root, &key).map(|device| device.known_by)
        };
        assert_eq!(known_by("block/nvme0n1/scheduler").as_deref(), Some("9"));
        assert_eq!(
            known_by("irq/42/cpus").as_deref(),
            Some("PCI-MSIX-0000:83:00.0 3")
        );
        assert_eq!(
            known_by("rdma/mlx5_0/cm-defaults").as_deref(),
            Some("0c42:a103:0065:c2b4")
        );
        for absent in [
            "block/sda/scheduler",
            "irq/43/cpus",
            "nic/eth0/mtu",
            "cpu/turbo",
        ] {
            assert_eq!(known_by(absent), None, "{absent}");
        }
        let disk = of(&root, "block/nvme0n1".to_owned()).expect("it is there");
        assert_eq!(disk.locate(&root), Located::Here);
        // Another disk has its name.
        file("sys/block/nvme0n1/diskseq", "10\n");
        assert_eq!(disk.locate(&root), Located::Gone);
    }
}
