//! Where the subject of a setting is now.

use linerate_model::ids::NicName;
use linerate_model::setting::SettingKey;

/// Where an interface, disk, interrupt or RDMA device is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Located {
    /// Under the name that it had.
    Here,
    /// In this namespace, as the interface of this name.
    Named(NicName),
    /// It no longer exists, and its settings with it.
    Gone,
    /// It may exist, and its settings cannot be reached from here.
    Lost(String),
}

impl Located {
    /// Whether `key` is, by its name, a setting of what was located.
    pub(super) fn is_at(&self, key: &SettingKey) -> bool {
        match self {
            Self::Here => true,
            Self::Named(name) => key.interface() == Some(name.as_str()),
            Self::Gone | Self::Lost(_) => false,
        }
    }
}
