//! The kernel's numbers of netlink attributes that are one setting each. The host's codec uses the same constants, and
//! its tests compare them with the kernel's headers.

/// Attributes of ethtool requests (`<linux/ethtool_netlink.h>`).
pub mod ethtool {
    /// `ETHTOOL_A_LINKMODES_AUTONEG`.
    pub const LINK_AUTONEG: u16 = 2;
    /// `ETHTOOL_A_RINGS_RX`.
    pub const RINGS_RX: u16 = 6;
    /// `ETHTOOL_A_RINGS_TX`.
    pub const RINGS_TX: u16 = 9;
    /// `ETHTOOL_A_CHANNELS_RX_COUNT`.
    pub const CHANNELS_RX: u16 = 6;
    /// `ETHTOOL_A_CHANNELS_TX_COUNT`.
    pub const CHANNELS_TX: u16 = 7;
    /// `ETHTOOL_A_CHANNELS_COMBINED_COUNT`.
    pub const CHANNELS_COMBINED: u16 = 9;
    /// `ETHTOOL_A_COALESCE_RX_USECS`.
    pub const COALESCE_RX_USECS: u16 = 2;
    /// `ETHTOOL_A_COALESCE_RX_MAX_FRAMES`.
    pub const COALESCE_RX_FRAMES: u16 = 3;
    /// `ETHTOOL_A_COALESCE_TX_USECS`.
    pub const COALESCE_TX_USECS: u16 = 6;
    /// `ETHTOOL_A_COALESCE_TX_MAX_FRAMES`.
    pub const COALESCE_TX_FRAMES: u16 = 7;
    /// `ETHTOOL_A_COALESCE_USE_ADAPTIVE_RX`.
    pub const COALESCE_ADAPTIVE_RX: u16 = 11;
    /// `ETHTOOL_A_COALESCE_USE_ADAPTIVE_TX`.
    pub const COALESCE_ADAPTIVE_TX: u16 = 12;
    /// `ETHTOOL_A_PAUSE_AUTONEG`.
    pub const PAUSE_AUTONEG: u16 = 2;
    /// `ETHTOOL_A_PAUSE_RX`.
    pub const PAUSE_RX: u16 = 3;
    /// `ETHTOOL_A_PAUSE_TX`.
    pub const PAUSE_TX: u16 = 4;
    /// `ETHTOOL_A_EEE_ENABLED`.
    pub const EEE_ENABLED: u16 = 5;
}

/// Attributes of a link (`<linux/if_link.h>`).
pub mod link {
    /// `IFLA_MTU`.
    pub const MTU: u16 = 4;
    /// `IFLA_GSO_MAX_SIZE`.
    pub const GSO_MAX_SIZE: u16 = 41;
    /// `IFLA_GRO_MAX_SIZE`.
    pub const GRO_MAX_SIZE: u16 = 58;
    /// `IFLA_GSO_IPV4_MAX_SIZE`, since Linux 6.3.
    pub const GSO_IPV4_MAX_SIZE: u16 = 63;
    /// `IFLA_GRO_IPV4_MAX_SIZE`, since Linux 6.3.
    pub const GRO_IPV4_MAX_SIZE: u16 = 64;
}
