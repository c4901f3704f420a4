//! What people type after `ceiling`.

use std::path::PathBuf;

use clap::Args;
use linerate_model::ceiling::{InfinibandSpeed, Roce, pcie_generation};
use linerate_model::ids::NicName;
use linerate_model::peer_address::PeerAddress;
use linerate_model::units::{BitRate, Bytes, Nanoseconds, TransferRate};

/// `ceiling`.
#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
pub struct CeilingArgs {
    /// The interface; without it, pass `--peer` or the figures of a link.
    pub nic: Option<NicName>,
    /// Compute the whole path to a peer.
    ///
    /// Reads both ends and measures memory copies.
    #[arg(long, value_name = "PEER", conflicts_with = "from")]
    pub peer: Option<PeerAddress>,
    /// Copy this program to the peer if the peer does not have this build.
    ///
    /// Over ssh only.
    #[arg(long, requires = "peer")]
    pub push: bool,
    /// Ethernet link speed, such as `40G`.
    #[arg(long)]
    pub speed: Option<BitRate>,
    /// MTU in bytes.
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u32).range(68..=65_535))]
    pub mtu: u32,
    /// TCP timestamps: `on` or `off`.
    #[arg(long, hide_short_help = true, default_value = "on", value_parser = parse_switch, action = clap::ArgAction::Set)]
    pub timestamps: bool,
    /// Total size of the TCP options of a segment, instead of `--timestamps`.
    #[arg(long, hide_short_help = true, value_name = "BYTES", conflicts_with = "timestamps", value_parser = clap::value_parser!(u32).range(0..=40))]
    pub tcp_options: Option<u32>,
    /// UDP datagrams with a payload of BYTES instead of TCP.
    #[arg(long, hide_short_help = true, value_name = "BYTES", conflicts_with_all = ["roce", "infiniband"], value_parser = clap::value_parser!(u32).range(1..=65_507))]
    pub datagram: Option<u32>,
    /// IPv6 instead of IPv4.
    #[arg(long)]
    pub ipv6: bool,
    /// Number of VLAN tags.
    #[arg(long, hide_short_help = true, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=2))]
    pub vlan_tags: u32,
    /// Tunnel encapsulation.
    #[arg(long, value_enum)]
    pub tunnel: Option<TunnelArg>,
    /// Short for `--tunnel vxlan`.
    #[arg(long, hide_short_help = true, conflicts_with = "tunnel")]
    pub vxlan: bool,
    /// IPv6 outer headers of the tunnel.
    #[arg(long, hide_short_help = true)]
    pub outer_ipv6: bool,
    /// RoCE `v1` or `v2` over that link instead of TCP.
    #[arg(long, value_name = "VERSION", value_parser = parse_roce, requires = "speed")]
    pub roce: Option<Roce>,
    /// iWARP over that link: large RDMA writes in the device's TCP segments.
    #[arg(long, hide_short_help = true, requires = "speed", conflicts_with_all = ["roce", "datagram", "tunnel", "vxlan"])]
    pub iwarp: bool,
    /// RDMA path MTU: 256, 512, 1024, 2048 or 4096 [default: 4096 for RoCE].
    #[arg(long, hide_short_help = true, value_name = "BYTES")]
    pub rdma_mtu: Option<u32>,
    /// InfiniBand link, such as `QDR` or `4xEDR`; 4x by default.
    #[arg(long, value_name = "LINK", value_parser = parse_infiniband)]
    pub infiniband: Option<InfinibandLink>,
    /// PCIe link, generation and width: `3x8`, or `8GT/s x8`.
    #[arg(long, value_name = "LINK", value_parser = parse_pcie)]
    pub pcie: Option<PcieFigures>,
    /// MaxPayload of the PCIe link: subtracts the TLP headers.
    #[arg(long, hide_short_help = true, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(128..=4096))]
    pub max_payload: Option<u32>,
    /// Number of `--speed` links in a bond.
    #[arg(long, hide_short_help = true, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub links: u32,
    /// Number of connections.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub flows: u32,
    /// TCP window, for the bound window/RTT.
    #[arg(long, requires = "rtt")]
    pub window: Option<Bytes>,
    /// Round-trip time.
    #[arg(long, requires = "window")]
    pub rtt: Option<Nanoseconds>,
    /// Rate of a traffic shaper.
    #[arg(long)]
    pub shaper: Option<BitRate>,
    /// Memory copy rate of one thread.
    #[arg(long, hide_short_help = true, value_name = "RATE")]
    pub copy: Option<BitRate>,
    /// Bandwidth allowance of a virtual machine.
    #[arg(long, hide_short_help = true, value_name = "RATE")]
    pub allowance: Option<BitRate>,
    /// Bandwidth allowance of each flow.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "RATE",
        requires = "allowance"
    )]
    pub flow_allowance: Option<BitRate>,
    /// Measured rate, to show as a percentage of each bound.
    ///
    /// For example `37.9G` or `4613MiB/s` (perftest and IMB before 2018 print MiB/s as MB/s).
    #[arg(long)]
    pub rate: Option<BitRate>,
    /// Read a captured host instead of this one.
    #[arg(long, value_name = "PATH", requires = "nic")]
    pub from: Option<PathBuf>,
}

/// A tunnel's kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum TunnelArg {
    /// VXLAN (RFC 7348).
    Vxlan,
    /// Geneve (RFC 8926).
    Geneve,
    /// GRE (RFC 2784).
    Gre,
    /// IP in IP (RFC 2003).
    Ipip,
}

/// An InfiniBand link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InfinibandLink {
    /// Its generation.
    pub speed: InfinibandSpeed,
    /// Its lanes.
    pub lanes: u32,
}

/// A PCIe link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PcieFigures {
    /// Its transfer rate.
    pub rate: TransferRate,
    /// Its lanes.
    pub lanes: u32,
}

fn parse_roce(text: &str) -> Result<Roce, String> {
    match text.to_ascii_lowercase().as_str() {
        "v1" | "1" => Ok(Roce::V1),
        "v2" | "2" => Ok(Roce::V2),
        _ => Err("expected `v1` or `v2`".to_owned()),
    }
}

fn parse_infiniband(text: &str) -> Result<InfinibandLink, String> {
    let text = text.trim().to_ascii_uppercase();
    let (lanes, speed) = match text.split_once('X') {
        Some((lanes, speed)) if lanes.bytes().all(|b| b.is_ascii_digit()) && !lanes.is_empty() => {
            (lanes.parse().ok(), speed.trim())
        }
        _ => (Some(4), text.as_str()),
    };
    let lanes = lanes
        .filter(|lanes| matches!(lanes, 1 | 2 | 4 | 8 | 12))
        .ok_or("an InfiniBand link has 1, 2, 4, 8 or 12 lanes")?;
    let speed = speed
        .parse::<InfinibandSpeed>()
        .map_err(|error| error.to_string())?;
    Ok(InfinibandLink { speed, lanes })
}

fn parse_pcie(text: &str) -> Result<PcieFigures, String> {
    let wrong = || "expected a generation and lanes such as `3x8`, or `8GT/s x8`".to_owned();
    let (rate, lanes) = text.trim().rsplit_once(['x', 'X']).ok_or_else(wrong)?;
    let lanes: u32 = lanes.trim().parse().map_err(|_| wrong())?;
    if !matches!(lanes, 1 | 2 | 4 | 8 | 12 | 16 | 32) {
        return Err("a PCIe link has 1, 2, 4, 8, 12, 16 or 32 lanes".to_owned());
    }
    let rate = rate.trim();
    let rate = if let Some((number, _)) = rate.split_once("GT/s") {
        let known = [
            ("2.5", 2_500),
            ("5", 5_000),
            ("8", 8_000),
            ("16", 16_000),
            ("32", 32_000),
            ("64", 64_000),
        ];
        let number = number.trim().trim_end_matches(".0");
        let found = known.iter().find(|(name, _)| *name == number);
        found.map(|(_, rate)| TransferRate::from_mt_per_s(*rate))
    } else {
        let generation = rate.trim_start_matches(|c: char| !c.is_ascii_digit());
        generation.parse().ok().and_then(pcie_generation)
    };
    rate.map(|rate| PcieFigures { rate, lanes })
        .ok_or_else(wrong)
}

fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("expected `on` or `off`".to_owned()),
    }
}
