//! `testbed`: what people type.

use std::net::Ipv4Addr;

use clap::{Args, Subcommand, ValueEnum};
use linerate_host::soft_roce::Wire;
use linerate_model::ids::NicName;
use linerate_testbed::mesh::{self, MeshFault};
use linerate_testbed::redundant;

use super::parse_nonzero_time;

/// `testbed`.
#[derive(Debug, Subcommand)]
pub enum TestbedAction {
    /// Soft-RoCE devices (rdma_rxe) over Ethernet interfaces, for functional tests.
    Rxe {
        /// What to do.
        #[command(subcommand)]
        action: RxeAction,
    },
    /// A mesh of network namespaces on a bridge, for tests of `mesh`.
    Mesh {
        /// What to do.
        #[command(subcommand)]
        action: MeshTestbedAction,
    },
    /// A redundant network of network namespaces, for failover tests.
    Redundant {
        /// What to do.
        #[command(subcommand)]
        action: RedundantAction,
    },
}

/// `testbed mesh`.
#[derive(Debug, Subcommand)]
pub enum MeshTestbedAction {
    /// Create the hosts lr-m0, lr-m1, ..., each limited to 50 Mb/s in both directions.
    Add {
        /// How many hosts.
        #[arg(value_name = "N", value_parser = clap::value_parser!(u32).range(2..=i64::from(mesh::HOSTS_MAX)))]
        hosts: u32,
        /// A fault to inject; repeat for several: send:N, receive:N, pair:FROM-TO, loss:N, mtu:N-N, group:FIRST-LAST, shared:FIRST-LAST or separate:FIRST-LAST.
        ///
        /// 15 % less when a host sends or receives, from one host to another, or for a group of hosts; 0.5 % of a host's packets lost;
        /// packets above 1,400 bytes dropped between two hosts; 50 Mb/s for what a range of hosts receives, in one HTB class that they share or in
        /// a class for each (for `mesh --pattern incast`). Hosts are numbered from 0.
        #[arg(long = "fault", value_name = "FAULT")]
        faults: Vec<MeshFault>,
    },
    /// Remove the hosts and the bridge.
    Remove,
    /// Show the hosts and their faults.
    List,
}

/// `testbed redundant`.
#[derive(Debug, Subcommand)]
pub enum RedundantAction {
    /// Create the network; waits until it forwards.
    Add {
        /// What makes it redundant.
        #[command(subcommand)]
        kind: RedundantKind,
    },
    /// Remove the network: its daemons, namespaces and files.
    Remove,
    /// Show the network, its daemons and the commands that inject faults.
    List,
    /// Stop the daemons of a namespace.
    Stop {
        /// The namespace, such as lr-r1.
        namespace: String,
        /// Send SIGKILL instead of SIGTERM.
        #[arg(long)]
        kill: bool,
    },
    /// Start the daemons of a namespace that are not running.
    Start {
        /// The namespace, such as lr-r1.
        namespace: String,
    },
}

/// `testbed redundant add`.
#[derive(Debug, Subcommand)]
pub enum RedundantKind {
    /// Two routers with virtual gateway addresses (keepalived, VRRP version 3).
    Vrrp {
        /// Advertisement interval, from 10ms to 40s.
        #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_advert)]
        advert: u32,
    },
    /// Two next hops of equal cost at each side (FRR, or static nexthop groups).
    Ecmp(EcmpArgs),
    /// The same gateway address and MAC on two routers (macvlan), as with MAGP.
    Magp,
    /// A LAG over two switches (bonding 802.3ad, or Open vSwitch).
    Mlag {
        /// What forms the LAG [default: bonding if the kernel has it].
        #[arg(long)]
        lag: Option<LagArg>,
        /// How often LACPDUs are sent: fast is every second, slow every 30 s.
        #[arg(long, value_name = "RATE", default_value = "fast")]
        lacp_rate: LacpRateArg,
    },
    /// A bond in mode active-backup over two switches (needs the kernel's bonding driver).
    ActiveBackup {
        /// Interval of link monitoring, from 10ms to 60s, or off: then the bond does not notice a lost carrier.
        #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_bfd)]
        miimon: BfdArg,
    },
}

/// `testbed redundant add ecmp`.
#[derive(Debug, Args)]
pub struct EcmpArgs {
    /// Routing protocol.
    #[arg(long, value_name = "PROTOCOL", default_value = "bgp")]
    pub igp: IgpArg,
    /// BFD interval, from 10ms to 60s, or off; a neighbor is down after three [default: 50ms].
    #[arg(long, value_name = "TIME", value_parser = parse_bfd)]
    pub bfd: Option<BfdArg>,
    /// Use resilient nexthop groups (static only).
    #[arg(long)]
    pub resilient: bool,
}

/// The BFD interval in milliseconds; none without BFD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BfdArg(pub Option<u32>);

/// The routing protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum IgpArg {
    /// eBGP, hold time 3 s.
    Bgp,
    /// OSPFv2 and OSPFv3, dead interval 4 s.
    Ospf,
    /// Static routes with nexthop groups.
    Static,
}

impl From<IgpArg> for redundant::Igp {
    fn from(arg: IgpArg) -> Self {
        match arg {
            IgpArg::Bgp => Self::Bgp,
            IgpArg::Ospf => Self::Ospf,
            IgpArg::Static => Self::Static,
        }
    }
}

/// What forms a LAG.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LagArg {
    /// The kernel's bonding driver.
    Bonding,
    /// Open vSwitch in user space.
    Openvswitch,
}

impl From<LagArg> for redundant::Lag {
    fn from(arg: LagArg) -> Self {
        match arg {
            LagArg::Bonding => Self::Bonding,
            LagArg::Openvswitch => Self::Openvswitch,
        }
    }
}

/// The LACP rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LacpRateArg {
    /// Every second.
    Fast,
    /// Every 30 seconds.
    Slow,
}

impl From<LacpRateArg> for redundant::LacpRate {
    fn from(arg: LacpRateArg) -> Self {
        match arg {
            LacpRateArg::Fast => Self::Fast,
            LacpRateArg::Slow => Self::Slow,
        }
    }
}

/// keepalived counts the interval of VRRP version 3 in hundredths of a second, in 12 bits (RFC 9568).
fn parse_advert(text: &str) -> Result<u32, String> {
    let interval = parse_interval_ms(text, 10, 40_000)?;
    if interval % 10 == 0 {
        Ok(interval)
    } else {
        Err("expected a multiple of 10ms".to_owned())
    }
}

/// The limits are FRR's.
fn parse_bfd(text: &str) -> Result<BfdArg, String> {
    if text == "off" {
        return Ok(BfdArg(None));
    }
    parse_interval_ms(text, 10, 60_000).map(|interval| BfdArg(Some(interval)))
}

fn parse_interval_ms(text: &str, min: u32, max: u32) -> Result<u32, String> {
    let time = std::time::Duration::from(parse_nonzero_time(text)?);
    let interval = u32::try_from(time.as_millis()).ok();
    interval
        .filter(|ms| (min..=max).contains(ms) && time.subsec_nanos() % 1_000_000 == 0)
        .ok_or_else(|| format!("expected whole milliseconds, from {min}ms to {max}ms"))
}

/// `testbed rxe`.
#[derive(Debug, Subcommand)]
pub enum RxeAction {
    /// Create a device on an interface; loads the module if needed.
    Add {
        /// The interface.
        #[arg(value_name = "IFACE")]
        nic: NicName,
        /// Device name [default: the first free of rxe0, rxe1, ...].
        #[arg(long, value_parser = parse_device)]
        name: Option<String>,
    },
    /// Create two connected devices, rxe-a and rxe-b, over a veth pair on this host.
    Pair {
        /// The /30 network for the two ends.
        #[arg(long, value_name = "ADDRESS", default_value_t = Wire::NETWORK)]
        network: Ipv4Addr,
        /// MTU of the veth pair: 1500 gives an RDMA MTU of 1024, 4200 of 4096.
        #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(1280..=65_535))]
        mtu: u32,
    },
    /// Remove a device, with its pair if it has one; unloads the module with the last device.
    Remove {
        /// The device.
        #[arg(value_parser = parse_device, required_unless_present = "all")]
        name: Option<String>,
        /// Remove everything that `testbed rxe` created.
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
    /// List the devices that `testbed rxe` created.
    List,
}

/// The kernel's longest name of an RDMA device (`IB_DEVICE_NAME_MAX`), its zero byte included.
const NAME_MAX: usize = 64;

/// Parses a valid device name; rejects patterns (`rxe%d`).
fn parse_device(text: &str) -> Result<String, String> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if text.is_empty()
        || text.len() >= NAME_MAX
        || !text.chars().all(is_good)
        || text.starts_with('.')
    {
        return Err("expected a name of letters, digits, `-`, `_` and `.`".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_the_limits_of_the_programs_that_use_them() {
        assert_eq!(parse_advert("100ms"), Ok(100));
        assert_eq!(parse_advert("1s"), Ok(1000));
        for refused in ["15ms", "1ms", "41s", "0s", "often"] {
            assert!(parse_advert(refused).is_err(), "{refused}");
        }
        assert_eq!(parse_bfd("50ms"), Ok(BfdArg(Some(50))));
        assert_eq!(parse_bfd("off"), Ok(BfdArg(None)));
        assert!(parse_bfd("61s").is_err());
    }
}
