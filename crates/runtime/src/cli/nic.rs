//! The command line of `nic`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use linerate_model::ids::NicName;

use super::parse_watch;

/// `nic`.
#[derive(Debug, Args)]
pub struct NicArgs {
    /// The interface.
    #[arg(value_name = "IFACE")]
    pub nic: NicName,
    /// Read a captured host instead of this one: an archive, or a directory with `sys` and `proc`.
    #[arg(long, value_name = "PATH")]
    pub from: Option<PathBuf>,
    /// How long to count bit errors; 0 skips them.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_watch, conflicts_with = "from")]
    pub watch: Duration,
    /// A later capture of the same host: bit errors are counted between the two.
    #[arg(long, value_name = "PATH", requires = "from")]
    pub then: Option<PathBuf>,
    /// Also explain this status opcode of NVIDIA's firmware, as `mlxlink` prints it for a port without a link.
    #[arg(long, value_name = "N")]
    pub opcode: Option<u32>,
}
