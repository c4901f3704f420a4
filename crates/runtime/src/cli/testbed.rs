//! `testbed`: what people type.

use std::net::Ipv4Addr;

use clap::Subcommand;
use linerate_host::soft_roce::Wire;
use linerate_model::ids::NicName;

/// `testbed`.
#[derive(Debug, Subcommand)]
pub enum TestbedAction {
    /// Soft-RoCE devices (rdma_rxe) over Ethernet interfaces, for functional tests.
    Rxe {
        /// What to do.
        #[command(subcommand)]
        action: RxeAction,
    },
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
