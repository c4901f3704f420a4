//! The options of RDMA verbs: of the transport, and of the workloads that measure the verbs themselves.

use clap::{Args, ValueEnum};
use linerate_model::units::Bytes;
use linerate_model::workload::{Connect, DeviceChoice, Registration, Service, Verbs};

use super::{PeerArgs, TrialArgs, UntilArgs};

/// The heading of the verbs options.
pub(super) const VERBS: &str = "RDMA verbs";

/// `--transport` and the verbs options.
#[derive(Debug, Args)]
pub struct TransportArgs {
    /// Transport of the payload.
    #[arg(long, value_enum, default_value_t, help_heading = VERBS)]
    pub transport: TransportArg,
    /// Verbs options.
    #[command(flatten)]
    pub verbs: VerbsArgs,
}

/// `--transport`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum TransportArg {
    /// TCP sockets.
    #[default]
    Tcp,
    /// RDMA: RoCE, InfiniBand or iWARP.
    Verbs,
}

/// How queue pairs are created. Each end chooses defaults for its device.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = VERBS)]
pub struct VerbsArgs {
    /// Connection setup: `gid` exchanges QP numbers and GIDs over linerate's control connection, `cm` uses the RDMA
    /// connection manager (required for iWARP) [default: gid].
    #[arg(long, value_enum, hide_possible_values = true)]
    pub connect: Option<ConnectArg>,
    /// Maximum inline message size, for stream and rdma-* [default: chosen for the device].
    #[arg(long, value_name = "SIZE")]
    pub inline: Option<Bytes>,
    /// Signal every Nth work request, for stream and for rdma-* without `--latency` [default: chosen from depth and
    /// size].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub cq_mod: Option<u32>,
    /// Path MTU: 256, 512, 1024, 2048 or 4096 [default: the smaller of the two ports' active MTUs].
    #[arg(long, value_name = "BYTES", value_parser = parse_mtu)]
    pub mtu: Option<u32>,
    /// Traffic class: DSCP and ECN bits of RoCE v2 [default: 0].
    #[arg(long, value_name = "N")]
    pub traffic_class: Option<u8>,
    /// Service level; the priority for RoCE [default: 0].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=15))]
    pub sl: Option<u8>,
    /// Retransmit packets not acknowledged within 4.096 us x 2^N, 1 to 31 [default: 14, or the connection manager's].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=31))]
    pub ack_timeout: Option<u8>,
    /// Local RDMA device, such as `mlx5_0` [default: the device of the local address].
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Peer's RDMA device [default: the device that owns the data address].
    #[arg(long, value_name = "NAME")]
    pub device_remote: Option<String>,
    /// Port of the local device, from 1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub rdma_port: Option<u8>,
    /// Port of the peer's device, from 1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub rdma_port_remote: Option<u8>,
    /// Local GID index [default: the RoCE v2 GID of the local address].
    #[arg(long, value_name = "N")]
    pub gid_index: Option<u32>,
    /// GID index on the peer.
    #[arg(long, value_name = "N")]
    pub gid_index_remote: Option<u32>,
    /// Allocate buffers in huge pages.
    #[arg(long)]
    pub huge_pages: bool,
    /// Register memory with on-demand paging (ODP): pages are not pinned.
    #[arg(long)]
    pub on_demand: bool,
    /// Register memory with PCIe relaxed ordering.
    #[arg(long)]
    pub relaxed_ordering: bool,
}

impl VerbsArgs {
    /// The first verbs option on the command line: none of them applies to sockets.
    pub fn given(&self) -> Option<&'static str> {
        let all = [
            ("--connect", self.connect.is_some()),
            ("--inline", self.inline.is_some()),
            ("--cq-mod", self.cq_mod.is_some()),
            ("--mtu", self.mtu.is_some()),
            ("--traffic-class", self.traffic_class.is_some()),
            ("--sl", self.sl.is_some()),
            ("--ack-timeout", self.ack_timeout.is_some()),
            ("--device", self.device.is_some()),
            ("--device-remote", self.device_remote.is_some()),
            ("--rdma-port", self.rdma_port.is_some()),
            ("--rdma-port-remote", self.rdma_port_remote.is_some()),
            ("--gid-index", self.gid_index.is_some()),
            ("--gid-index-remote", self.gid_index_remote.is_some()),
            ("--huge-pages", self.huge_pages),
            ("--on-demand", self.on_demand),
            ("--relaxed-ordering", self.relaxed_ordering),
        ];
        let mut given = all.into_iter().filter(|(_, given)| *given);
        given.next().map(|(name, _)| name)
    }

    /// The queue pairs of a trial, with `depth` outstanding work requests.
    pub fn verbs(&self, service: Service, depth: u32) -> Verbs {
        Verbs {
            service,
            connect: self.connect.unwrap_or_default().into(),
            depth,
            inline_bytes: self.inline,
            moderation: self.cq_mod,
            mtu: self.mtu,
            traffic_class: self.traffic_class.unwrap_or_default(),
            service_level: self.sl.unwrap_or_default(),
            ack_timeout: self.ack_timeout,
            local: DeviceChoice {
                device: self.device.clone(),
                port: self.rdma_port,
                gid_index: self.gid_index,
            },
            remote: DeviceChoice {
                device: self.device_remote.clone(),
                port: self.rdma_port_remote,
                gid_index: self.gid_index_remote,
            },
            memory: Registration {
                huge_pages: self.huge_pages,
                on_demand: self.on_demand,
                relaxed_ordering: self.relaxed_ordering,
            },
        }
    }
}

/// `--connect`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ConnectArg {
    /// Exchange GIDs over the control connection.
    #[default]
    Gid,
    /// RDMA connection manager.
    Cm,
}

impl From<ConnectArg> for Connect {
    fn from(arg: ConnectArg) -> Self {
        match arg {
            ConnectArg::Gid => Self::Gid,
            ConnectArg::Cm => Self::Cm,
        }
    }
}

/// `--service`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum ServiceArg {
    /// Reliable connection.
    #[default]
    Rc,
    /// Unreliable datagram (`rdma-send` only).
    Ud,
}

impl From<ServiceArg> for Service {
    fn from(arg: ServiceArg) -> Self {
        match arg {
            ServiceArg::Rc => Self::Rc,
            ServiceArg::Ud => Self::Ud,
        }
    }
}

/// `measure rdma-write`, `rdma-read`, `rdma-send` and `rdma-atomic`.
#[derive(Debug, Args)]
pub struct MeasureRdma {
    /// The peer.
    #[command(flatten)]
    pub peer: PeerArgs,
    /// The trial.
    #[command(flatten)]
    pub trial: TrialArgs,
    /// Measure latency, one message at a time, instead of the message rate at `--depth`.
    #[arg(long)]
    pub latency: bool,
    /// Message sizes, each for an equal share of the time [default: 64KiB; for UD the path MTU; with `--latency` 2B;
    /// for rdma-atomic 8B].
    #[arg(long, value_delimiter = ',', value_name = "SIZE")]
    pub sizes: Vec<Bytes>,
    /// Measure all powers of two from 2 B to 8 MiB (for UD up to the path MTU).
    #[arg(long, conflicts_with = "sizes")]
    pub sweep: bool,
    /// Messages of each size per queue pair [default: as many as the time allows].
    #[arg(long, value_name = "N")]
    pub repetitions: Option<u64>,
    /// Verify every received byte.
    #[arg(long, hide_short_help = true)]
    pub data_check: bool,
    /// Outstanding work requests per queue pair [default: 128].
    #[arg(long, conflicts_with = "latency", value_parser = clap::value_parser!(u32).range(1..=16_384))]
    pub depth: Option<u32>,
    /// Reliable connection, or unreliable datagrams up to the path MTU (`ud`, rdma-send only).
    #[arg(long, value_enum, default_value_t, help_heading = VERBS)]
    pub service: ServiceArg,
    /// Queue pairs.
    #[command(flatten)]
    pub verbs: VerbsArgs,
    /// Repetition.
    #[command(flatten)]
    pub until: UntilArgs,
}

fn parse_mtu(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(mtu @ (256 | 512 | 1024 | 2048 | 4096)) => Ok(mtu),
        _ => Err("expected 256, 512, 1024, 2048 or 4096".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_given_is_what_each_end_chooses() {
        let args = VerbsArgs::default();
        assert_eq!(args.given(), None);
        let depth = Verbs::default_depth();
        assert_eq!(args.verbs(Service::Rc, depth), Verbs::default());
    }

    #[test]
    fn every_option_says_that_it_was_given() {
        let args = VerbsArgs {
            sl: Some(3),
            ..VerbsArgs::default()
        };
        assert_eq!(args.given(), Some("--sl"));
        assert_eq!(args.verbs(Service::Ud, 4).service_level, 3);
        let args = VerbsArgs {
            huge_pages: true,
            ..VerbsArgs::default()
        };
        assert_eq!(args.given(), Some("--huge-pages"));
    }

    #[test]
    fn a_path_mtu_is_one_of_five() {
        assert_eq!(parse_mtu("1024"), Ok(1024));
        assert!(parse_mtu("1500").is_err() && parse_mtu("much").is_err());
    }
}
