//! What people type. Types only; what each command does is in its own module.

mod diffusion;
mod lab;
mod ladder;
mod measure;
mod prove;
mod requirement;
mod store;
mod testbed;
mod tune;
mod verbs;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use linerate_model::ceiling::{InfinibandSpeed, Roce, pcie_generation};
use linerate_model::finding::{Profile, Severity};
use linerate_model::ids::NicName;
use linerate_model::units::{BitRate, Bytes, Nanoseconds, TransferRate};

pub use diffusion::MeasureDiffusion;
pub use lab::{CompareArgs, LabAction, LabRunArgs, LabStep};
pub use ladder::LadderArgs;
pub use measure::{
    AgentArgs, BatchArg, MeasureAction, MeasureHttp, MeasurePingpong, MeasureRr, MeasureStream,
    MeasureTransfer, MeasureUdp, MoverArgs, PeerOrForeign, Placing, PreloadArg, ReceiveArg,
    SendArg, StreamArgs, TrialArgs, UntilArgs,
};
pub use prove::{ProveArgs, SearchArgs, WeighArgs};
pub use requirement::Requirement;
pub use store::{ExportArgs, ReportArgs, RunsArgs, TableFormat};
pub use testbed::{RxeAction, TestbedAction};
pub use tune::{ApplyArgs, HoldArgs, PersistArgs, StayArgs, TuneAction, WantedArgs};
pub use verbs::{ConnectArg, MeasureRdma, ServiceArg, TransportArg, TransportArgs, VerbsArgs};

use crate::peer::PeerAddress;
use crate::say::Format;

/// The options that every command takes stand apart from its own.
const EVERYWHERE: &str = "Options of every command";

/// Finds out why a fast link is slow, proves it by measuring, fixes it, and can take the fix back.
#[derive(Debug, Parser)]
#[command(
    name = "linerate",
    version,
    about,
    propagate_version = true,
    max_term_width = 100
)]
#[command(
    after_help = "Data goes to stdout, talk to stderr. Exit codes: see `linerate explain exit-codes`."
)]
pub struct Cli {
    /// How the result is printed: text or json; `map` also as dot or svg, `doctor` as sarif or junit,
    /// `measure stream` and `udp` as iperf3-json.
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "text",
        hide_possible_values = true,
        help_heading = EVERYWHERE
    )]
    pub format: FormatArg,
    /// Leave out talk and progress.
    #[arg(long, short, global = true, help_heading = EVERYWHERE)]
    pub quiet: bool,
    /// Where runs and undo journals are kept; as root a folder that only root may write to [default:
    /// /var/lib/linerate as root, else $XDG_STATE_HOME/linerate].
    #[arg(long, global = true, value_name = "DIR", help_heading = EVERYWHERE)]
    pub state: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The formats of `--format`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FormatArg {
    /// For a person.
    Text,
    /// One JSON document with its schema's name first.
    Json,
    /// Graphviz (`map` only).
    Dot,
    /// A picture (`map` only).
    Svg,
    /// Static Analysis Results Interchange Format 2.1.0 (`doctor` only).
    Sarif,
    /// JUnit's XML (`doctor` only).
    Junit,
    /// The JSON of `iperf3 -J` (`measure stream` and `udp` only).
    Iperf3Json,
}

impl From<FormatArg> for Format {
    fn from(format: FormatArg) -> Self {
        if matches!(
            format,
            FormatArg::Json | FormatArg::Sarif | FormatArg::Iperf3Json
        ) {
            Self::Json
        } else {
            Self::Text
        }
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Two hosts in namespaces, three planted faults, the whole story, a report (about two minutes).
    Demo(DemoArgs),
    /// The picture of a host: NIC, PCIe, NUMA node, CPU, queue, interrupt.
    Map(MapArgs),
    /// What is wrong on a host, worst first.
    Doctor(DoctorArgs),
    /// Why a rule exists, how it judges, how to check it by hand.
    Explain {
        /// The rule's id; `rules` lists them, `settings` and `exit-codes` explain those.
        rule: String,
    },
    /// The computed upper bounds of a path, with their arithmetic.
    Ceiling(CeilingArgs),
    /// One measurement.
    Measure {
        /// What to move.
        #[command(subcommand)]
        action: Box<MeasureAction>,
    },
    /// Map both ends, measure, name the limit, try the remedies as experiments, keep what helps.
    Prove(ProveArgs),
    /// Designed experiments: what each option and setting is worth, and what two do together.
    Lab {
        /// What to do.
        #[command(subcommand)]
        action: LabAction,
    },
    /// Hold two runs of an experiment against each other: two kernels, two drivers, two days. Exit code 11 when it
    /// got worse, 12 when the runs cannot tell.
    Compare(CompareArgs),
    /// Plan, apply and undo settings.
    Tune {
        /// What to do with them.
        #[command(subcommand)]
        action: TuneAction,
    },
    /// The far end of a measurement.
    Agent(AgentArgs),
    /// One end of a stream by plain calls, told by its standard input.
    #[command(hide = true)]
    Mover(MoverArgs),
    /// Takes back what the process at the other end of standard input leaves undecided.
    #[command(hide = true)]
    Reverter {
        /// That process.
        #[arg(long, value_name = "PID")]
        of: u32,
        /// A capability that putting back takes, by the kernel's name; once for each.
        #[arg(long, value_name = "CAPABILITY")]
        hold: Vec<String>,
    },
    /// Hardware that this machine lacks, in software.
    Testbed {
        /// Which.
        #[command(subcommand)]
        action: TestbedAction,
    },
    /// Write this host into one reviewable text archive, names and addresses made anonymous.
    Capture {
        /// The archive to write.
        #[arg(value_name = "FILE.lrcap")]
        file: PathBuf,
    },
    /// Make the report of a stored run again, from its raw records; or show all runs in a browser.
    Report(ReportArgs),
    /// List the stored runs of the state folder, newest first.
    Runs(RunsArgs),
    /// Write every trial of stored runs as a row of one flat table, for a data frame or a database.
    Export(ExportArgs),
    /// Print shell completions.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// `demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Fixes which faults are planted, the order of trials and the intervals.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Pairs of trials for each remedy.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(3..=1000))]
    pub pairs: u32,
    /// Where the run is stored [default: runs/ in the state folder].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Inner steps of the demo, each a process of its own.
    #[arg(long, hide = true, value_enum)]
    pub stage: Option<DemoStage>,
    /// The folder that the inner steps share.
    #[arg(long, hide = true)]
    pub folder: Option<PathBuf>,
}

/// The processes of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DemoStage {
    /// Makes the two hosts and conducts.
    Conduct,
    /// Plants the faults.
    Plant,
}

/// `map`.
#[derive(Debug, Args)]
pub struct MapArgs {
    /// Only this interface.
    pub nic: Option<NicName>,
    /// Measure, too, what the CPUs of each NUMA node make of the memory of each: latency, and bandwidth of
    /// reading, writing and copying by one core and by all (about 3 s for each pair of nodes).
    #[arg(long, conflicts_with_all = ["from", "diff", "why"])]
    pub memory: bool,
    /// Read the counters twice, so long apart, and show what happened: traffic, interrupts and who took
    /// them, errors of the link, busy CPUs.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value = "0",
        hide_default_value = true,
        value_parser = parse_watch,
        conflicts_with_all = ["from", "diff", "why"]
    )]
    pub watch: Duration,
    /// Every fact on a line of its own with the file or request that it comes from.
    #[arg(long)]
    pub why: bool,
    /// What differs between two captured hosts, or between one and this host now.
    #[arg(long, value_names = ["BEFORE", "AFTER"], num_args = 1..=2, conflicts_with_all = ["from", "why"])]
    pub diff: Vec<PathBuf>,
    /// A captured host instead of this one: an archive or a folder that holds `sys` and `proc`.
    #[arg(long, value_name = "PATH")]
    pub from: Option<PathBuf>,
}

/// `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Only this interface.
    pub nic: Option<NicName>,
    /// A captured host instead of this one: an archive or a folder that holds `sys` and `proc`.
    #[arg(long, value_name = "PATH")]
    pub from: Option<PathBuf>,
    /// Watch the counters for so long; 0 leaves out the rules that judge them.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = parse_watch, conflicts_with = "from")]
    pub watch: Duration,
    /// A later capture of the same host: counters are judged by what they did between the two.
    #[arg(long, value_name = "PATH", requires = "from")]
    pub then: Option<PathBuf>,
    /// What the host is used for: throughput, latency, forwarding, rdma, storage, mixed, measurement.
    #[arg(long, default_value = "throughput", value_parser = parse_role)]
    pub role: Profile,
    /// From which severity on the exit code is 10: note, warn, crit, never.
    #[arg(long, value_name = "SEVERITY", default_value = "warn", value_parser = parse_fail_on)]
    pub fail_on: FailOn,
    /// Evidence and what could not be judged, too.
    #[arg(long, short)]
    pub verbose: bool,
}

/// The severity from which on `doctor` exits with 10.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailOn(pub Option<Severity>);

/// `ceiling`.
#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the command line"
)]
pub struct CeilingArgs {
    /// The interface; without one, figures or a peer must be given.
    pub nic: Option<NicName>,
    /// The whole path to a peer: both ends are read, memory copies measured.
    #[arg(long, value_name = "PEER", conflicts_with = "from")]
    pub peer: Option<PeerAddress>,
    /// Copy this program to the peer unless it has this build (ssh only).
    #[arg(long, requires = "peer")]
    pub push: bool,
    /// The speed of an Ethernet link, `40G`.
    #[arg(long)]
    pub speed: Option<BitRate>,
    /// The MTU in bytes.
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u32).range(68..=65_535))]
    pub mtu: u32,
    /// TCP timestamps: `on` or `off`.
    #[arg(long, default_value = "on", value_parser = parse_switch, action = clap::ArgAction::Set)]
    pub timestamps: bool,
    /// All TCP options of a segment in bytes, in place of `--timestamps`.
    #[arg(long, value_name = "BYTES", conflicts_with = "timestamps", value_parser = clap::value_parser!(u32).range(0..=40))]
    pub tcp_options: Option<u32>,
    /// UDP datagrams of so many bytes of payload instead of TCP.
    #[arg(long, value_name = "BYTES", conflicts_with_all = ["roce", "infiniband"], value_parser = clap::value_parser!(u32).range(1..=65_507))]
    pub datagram: Option<u32>,
    /// IPv6 instead of IPv4.
    #[arg(long)]
    pub ipv6: bool,
    /// Number of VLAN tags.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=2))]
    pub vlan_tags: u32,
    /// In a tunnel.
    #[arg(long, value_enum)]
    pub tunnel: Option<TunnelArg>,
    /// The same as `--tunnel vxlan`.
    #[arg(long, conflicts_with = "tunnel")]
    pub vxlan: bool,
    /// The tunnel's outer packets are IPv6.
    #[arg(long)]
    pub outer_ipv6: bool,
    /// RDMA over that link instead of TCP: RoCE `v1` or `v2`.
    #[arg(long, value_name = "VERSION", value_parser = parse_roce, requires = "speed")]
    pub roce: Option<Roce>,
    /// The same by iWARP: long writes, in the TCP segments of a device.
    #[arg(long, requires = "speed", conflicts_with_all = ["roce", "datagram", "tunnel", "vxlan"])]
    pub iwarp: bool,
    /// The RDMA MTU: 256, 512, 1024, 2048 or 4096 [default: 4096 for RoCE].
    #[arg(long, value_name = "BYTES")]
    pub rdma_mtu: Option<u32>,
    /// An InfiniBand link: `QDR`, `4xEDR`; four lanes unless said.
    #[arg(long, value_name = "LINK", value_parser = parse_infiniband)]
    pub infiniband: Option<InfinibandLink>,
    /// A PCIe link, generation and lanes: `3x8`, or `8GT/s x8`.
    #[arg(long, value_name = "LINK", value_parser = parse_pcie)]
    pub pcie: Option<PcieFigures>,
    /// MaxPayload of the PCIe link: takes the headers of its packets off.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(128..=4096))]
    pub max_payload: Option<u32>,
    /// Links of `--speed` in a bond.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub links: u32,
    /// Connections.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub flows: u32,
    /// A window, for the bound window/RTT.
    #[arg(long, requires = "rtt")]
    pub window: Option<Bytes>,
    /// The round-trip time.
    #[arg(long, requires = "window")]
    pub rtt: Option<Nanoseconds>,
    /// A shaper's rate.
    #[arg(long)]
    pub shaper: Option<BitRate>,
    /// What one thread copies from memory to memory.
    #[arg(long, value_name = "RATE")]
    pub copy: Option<BitRate>,
    /// What the provider of a virtual machine lets pass.
    #[arg(long, value_name = "RATE")]
    pub allowance: Option<BitRate>,
    /// What the provider lets each flow have.
    #[arg(long, value_name = "RATE", requires = "allowance")]
    pub flow_allowance: Option<BitRate>,
    /// A measured rate, to see its share of each bound: `37.9G`, `4613MB/s`.
    #[arg(long)]
    pub rate: Option<BitRate>,
    /// A captured host instead of this one.
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

/// Longer is a mistake: a rule's answer would come tomorrow.
const WATCH_MAX_S: f64 = 86_400.0;

fn parse_watch(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .trim()
        .trim_end_matches('s')
        .trim_end()
        .parse()
        .map_err(|_| "expected seconds, such as `2` or `0.5`".to_owned())?;
    if seconds.is_finite() && (0.0..=WATCH_MAX_S).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(format!("expected 0 to {WATCH_MAX_S} seconds"))
    }
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

/// What is common to everything that talks to a peer.
#[derive(Debug, Args)]
pub struct PeerArgs {
    /// The peer: `[ssh://][user@]host[:port]`, `netns:NAME`, `exec:COMMAND`, `local`.
    #[arg(value_name = "PEER")]
    pub peer: PeerAddress,
    /// Copy this program to the peer unless it has this build (ssh only).
    #[arg(long)]
    pub push: bool,
    /// The address of the peer that data goes to [default: one on a common subnet, else the ssh host].
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<std::net::IpAddr>,
    /// The TCP port at the peer that data goes to, for a firewall that lets only some pass [default:
    /// one that is free].
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
}

impl PeerArgs {
    /// As they are when only the peer is said.
    pub fn of(peer: &PeerAddress) -> Self {
        Self {
            peer: peer.clone(),
            push: false,
            address: None,
            port: None,
        }
    }
}

fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("expected `on` or `off`".to_owned()),
    }
}

fn parse_role(text: &str) -> Result<Profile, String> {
    serde_json::from_value(serde_json::Value::String(text.to_owned())).map_err(|_| {
        "expected throughput, latency, forwarding, rdma, storage, mixed or measurement".to_owned()
    })
}

fn parse_fail_on(text: &str) -> Result<FailOn, String> {
    match text {
        "never" => Ok(FailOn(None)),
        "note" => Ok(FailOn(Some(Severity::Note))),
        "warn" => Ok(FailOn(Some(Severity::Warn))),
        "crit" => Ok(FailOn(Some(Severity::Crit))),
        _ => Err("expected note, warn, crit or never".to_owned()),
    }
}

/// Seconds as people write them after `--time`: a plain number, or with a unit.
fn parse_seconds(text: &str) -> Result<Nanoseconds, String> {
    let with_unit = if text.ends_with(|c: char| c.is_ascii_digit()) {
        format!("{text}s")
    } else {
        text.to_owned()
    };
    with_unit
        .parse()
        .map_err(|error: linerate_model::units::UnitError| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn seconds_are_seconds() {
        assert_eq!(parse_seconds("10"), Ok(Nanoseconds::from_millis(10_000)));
        assert_eq!(parse_seconds("0.5"), Ok(Nanoseconds::from_millis(500)));
        assert_eq!(parse_seconds("250ms"), Ok(Nanoseconds::from_millis(250)));
        assert!(parse_seconds("soon").is_err());
    }
}
