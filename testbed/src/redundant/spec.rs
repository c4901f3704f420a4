//! What a redundant network is to be: its kind and the settings that decide how fast it recovers.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::record::Recorded;

/// The routing protocol of an ECMP network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Igp {
    /// eBGP, hold time 3 s.
    Bgp,
    /// OSPFv2 and OSPFv3, dead interval 4 s.
    Ospf,
    /// Static routes with nexthop groups.
    Static,
}

/// What forms the LAG of an MLAG network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Lag {
    /// The kernel's bonding driver, 802.3ad.
    Bonding,
    /// Open vSwitch with its datapath in user space.
    Openvswitch,
}

/// How often a port of a LAG sends LACPDUs: the partner expires after three.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum LacpRate {
    /// Every second.
    Fast,
    /// Every 30 seconds.
    Slow,
}

impl Recorded for Spec {
    const NAME: &'static str = "testbed-redundant";
}

impl LacpRate {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Slow => "slow",
        }
    }
}

/// A redundant network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Spec {
    /// A virtual gateway address on both sides, by keepalived.
    Vrrp {
        /// The advertisement interval.
        advert_ms: u32,
    },
    /// Two next hops of equal cost at each side.
    Ecmp {
        /// What finds the routes.
        igp: Igp,
        /// The BFD interval; null without BFD.
        bfd_ms: Option<u32>,
        /// Whether the nexthop groups are resilient (static routes only).
        resilient: bool,
    },
    /// The same gateway address and MAC on both routers.
    Magp,
    /// A LAG over two switches.
    Mlag {
        /// What forms it.
        lag: Lag,
        /// The LACP rate.
        lacp_rate: LacpRate,
    },
    /// A bond in mode active-backup over two switches.
    ActiveBackup {
        /// The interval of link monitoring; 0 without it.
        miimon_ms: u32,
    },
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Vrrp { advert_ms } => write!(
                f,
                "VRRP: two routers, keepalived, advertisement interval {advert_ms} ms"
            ),
            Self::Ecmp {
                igp,
                bfd_ms,
                resilient,
            } => {
                let routes = match (igp, resilient) {
                    (Igp::Bgp, _) => "BGP (FRR)",
                    (Igp::Ospf, _) => "OSPF (FRR)",
                    (Igp::Static, false) => "static nexthop groups",
                    (Igp::Static, true) => "static resilient nexthop groups",
                };
                write!(f, "ECMP: two routers, {routes}")?;
                match bfd_ms {
                    Some(bfd) => write!(f, ", BFD {bfd} ms x 3"),
                    None if *igp == Igp::Static => Ok(()),
                    None => f.write_str(", no BFD"),
                }
            }
            Self::Magp => f.write_str(
                "MAGP stand-in: the same gateway address and MAC on two routers (macvlan)",
            ),
            Self::Mlag { lag, lacp_rate } => write!(
                f,
                "MLAG stand-in: a LAG over two switches, {}, LACP {}",
                match lag {
                    Lag::Bonding => "bonding 802.3ad",
                    Lag::Openvswitch => "Open vSwitch",
                },
                lacp_rate.word()
            ),
            Self::ActiveBackup { miimon_ms: 0 } => {
                f.write_str("active-backup: a bond over two switches, no miimon")
            }
            Self::ActiveBackup { miimon_ms } => write!(
                f,
                "active-backup: a bond over two switches, miimon {miimon_ms} ms"
            ),
        }
    }
}
