//! `testbed`: what people type.

use std::net::Ipv4Addr;

use clap::Subcommand;
use linerate_host::soft_roce::Wire;
use linerate_model::ids::NicName;

/// `testbed`.
#[derive(Debug, Subcommand)]
pub enum TestbedAction {
    /// RDMA devices over Ethernet interfaces (soft-RoCE, the kernel's rdma_rxe): for trying out, not for speed.
    Rxe {
        /// What to do.
        #[command(subcommand)]
        action: RxeAction,
    },
}

/// `testbed rxe`.
#[derive(Debug, Subcommand)]
pub enum RxeAction {
    /// Make a device on an interface; the module is loaded when it is not.
    Add {
        /// The interface.
        #[arg(value_name = "IFACE")]
        nic: NicName,
        /// The device's name [default: the first of rxe0, rxe1, ... that is free].
        #[arg(long, value_parser = parse_device)]
        name: Option<String>,
    },
    /// Make two devices, rxe-a and rxe-b, that reach each other over a wire from this host to itself.
    Pair {
        /// The network of four addresses for the two ends.
        #[arg(long, value_name = "ADDRESS", default_value_t = Wire::NETWORK)]
        network: Ipv4Addr,
        /// The MTU of the wire: 1500 makes RDMA packets of 1024 bytes, 4200 of 4096.
        #[arg(long, value_name = "BYTES", default_value_t = 1500, value_parser = clap::value_parser!(u32).range(1280..=65_535))]
        mtu: u32,
    },
    /// Take away what was made: a device, with its pair when it has one; with the last the module.
    Remove {
        /// The device.
        #[arg(value_parser = parse_device, required_unless_present = "all")]
        name: Option<String>,
        /// Everything that `testbed rxe` made.
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
    /// Show what was made.
    List,
}

/// The kernel's longest name of an RDMA device (`IB_DEVICE_NAME_MAX`), its zero byte included.
const NAME_MAX: usize = 64;

/// A name that the kernel takes, and no pattern (`rxe%d`).
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
