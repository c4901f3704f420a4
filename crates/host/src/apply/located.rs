//! The current location of a setting's subject.

use linerate_model::ids::NicName;
use linerate_model::setting::SettingKey;

/// The current location of an interface, disk, interrupt or RDMA device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Located {
    /// Under its original name.
    Here,
    /// In this namespace, as the interface with this name.
    Named(NicName),
    /// It no longer exists, and its settings with it.
    Gone,
    /// It may exist, but its settings are not reachable from here.
    Lost(String),
}

impl Located {
    /// Whether `key` is, by its name, a setting of this subject.
    pub(super) fn is_at(&self, key: &SettingKey) -> bool {
        match self {
            Self::Here => true,
            Self::Named(name) => key.interface() == Some(name.as_str()),
            Self::Gone | Self::Lost(_) => false,
        }
    }
}
