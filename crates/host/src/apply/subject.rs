//! The identity of a setting's subject beyond its name: names are reused.

use linerate_model::setting::SettingKey;
use serde::{Deserialize, Serialize};

use super::device::{self, Device};
use super::located::Located;
use crate::netlink::{self, Interface};
use crate::root::HostRoot;

/// The subject of a setting, if its name could refer to another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// A network interface.
    Interface(Interface),
    /// A disk, an interrupt or an RDMA device.
    Device(Device),
}

impl Subject {
    /// Whether `key` is one of its settings, by its original name.
    pub(super) fn has(&self, key: &SettingKey) -> bool {
        match self {
            Self::Interface(interface) => key.interface() == Some(interface.name.as_str()),
            Self::Device(device) => device::name_of(key).as_ref() == Some(&device.name),
        }
    }

    /// The subject of `key` on this machine, in this thread's network namespace.
    pub(super) fn read(root: &HostRoot, key: &SettingKey) -> Option<Self> {
        let Some(name) = key.interface() else {
            return device::read(root, key).map(Self::Device);
        };
        // Not through /sys, which may show another namespace's interfaces; a socket always belongs to this thread's
        // own.
        let all = netlink::interfaces().ok()?.into_iter();
        let mut named = all.filter(|one| one.name.as_str() == name);
        named.next().map(Self::Interface)
    }

    /// Finds it on this machine.
    pub(super) fn locate(&self, root: &HostRoot) -> Located {
        match self {
            Self::Device(device) => device.locate(root),
            Self::Interface(interface) => match netlink::interfaces() {
                Ok(all) => interface
                    .among(&all)
                    .unwrap_or_else(|| interface.elsewhere()),
                Err(error) => Located::Lost(error.to_string()),
            },
        }
    }
}
