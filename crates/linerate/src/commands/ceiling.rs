//! `linerate ceiling`: the computed upper bounds of a path, from an interface, from both ends of a path,
//! or from figures alone.

use std::collections::BTreeSet;
use std::path::Path as FilePath;

use clap::ArgMatches;
use clap::parser::ValueSource;
use linerate_model::ceiling::{
    self, Bound, Ceiling, EthernetPath, IwarpPath, Packets, PathCeilings, PathFacts, RocePath,
    TIMESTAMPS_BYTES, Tunnel, UnknownCeiling,
};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Gap, Known};
use linerate_model::plan::End;
use linerate_model::units::{BitRate, Ratio};
use linerate_model::workload::Direction;
use linerate_report::doctor::Missing;
use linerate_runtime::cli::{CeilingArgs, PeerArgs, ReachArgs, TunnelArg};
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::say::{Format, Say};
use linerate_runtime::endpoint::host_source::{check_nic, host_from};
use linerate_runtime::endpoint::trial::{copy_bandwidth, open_path};
use serde::Serialize;

/// Figures of packets, and figures that complete another; the others make a bound by themselves.
const OF_PACKETS: [&str; 5] = ["mtu", "timestamps", "tcp_options", "vlan_tags", "tunnel"];
const COMPLETING: [(&str, &[&str]); 4] = [
    ("outer_ipv6", &["tunnel", "vxlan"]),
    ("links", &["speed"]),
    ("rdma_mtu", &["roce", "infiniband"]),
    ("max_payload", &["pcie"]),
];

/// `linerate ceiling`; `typed` are the options that stood on the command line.
pub(crate) fn run(
    args: &CeilingArgs,
    typed: &TypedOptions,
    state: &FilePath,
    say: &Say,
) -> Outcome<()> {
    refuse_idle(typed)?;
    let mut all = bounds_of_figures(args)?;
    match (&args.nic, &args.peer) {
        (_, Some(_)) => join(&mut all, bounds_towards_peer(args, state, say)?),
        (Some(nic), None) => join(&mut all, bounds_of_nic(args, typed, nic)?),
        (None, None) => {}
    }
    all.ceilings.sort_by_key(|bound| bound.bit_per_s);
    if all.ceilings.is_empty() && all.undetermined.is_empty() {
        return Err(
            Stop::new(Code::Usage, "no data to compute a bound from").hint(
                "pass an interface, or figures such as `--speed 40G --mtu 1500 --timestamps off`",
            ),
        );
    }
    if say.format == Format::Json {
        return say.json(&document(&all, args.rate, args.speed));
    }
    say.lines(&ceiling_text(&all, args.rate, args.speed))
}

/// The names of the options that stood on the command line, as opposed to those with their default.
#[derive(Debug, Default)]
pub(crate) struct TypedOptions(BTreeSet<String>);

impl TypedOptions {
    /// Those of `ceiling`; none of any other command.
    pub(crate) fn of(matches: &ArgMatches) -> Self {
        // clap passes global options of a subcommand up to commands that do not have them, where asking for one panics.
        let chosen = matches.subcommand().filter(|(name, _)| *name == "ceiling");
        let chosen = chosen.map(|(_, own)| own);
        let typed = chosen.into_iter().flat_map(|own| {
            let ids = own.ids().map(clap::Id::as_str);
            ids.filter(|id| own.value_source(id) == Some(ValueSource::CommandLine))
        });
        Self(typed.map(str::to_owned).collect())
    }

    fn has(&self, id: &str) -> bool {
        self.0.contains(id)
    }
}

/// A figure that nothing is computed from is a mistake: it would seem to have been counted.
fn refuse_idle(typed: &TypedOptions) -> Outcome<()> {
    let alone = typed.has("nic") && !typed.has("peer");
    let has_packets = alone || typed.has("speed");
    let idle = |id: &str| match id {
        // A shaper's bound knows no VLAN and no tunnel.
        "vlan_tags" | "tunnel" | "vxlan" => !has_packets,
        _ => !has_packets && !typed.has("shaper"),
    };
    let packets = OF_PACKETS.iter().chain(&["vxlan"]);
    if let Some(id) = packets.filter(|id| typed.has(id)).find(|id| idle(id)) {
        return Err(
            Stop::new(Code::Usage, format!("`{}` does not apply here", option(id))).hint(
                if typed.has("peer") {
                    "with `--peer` both hosts report it; use it with `--speed` or an interface"
                } else {
                    "use it with `--speed` or an interface"
                },
            ),
        );
    }
    for (id, partners) in COMPLETING {
        if typed.has(id) && !partners.iter().any(|partner| typed.has(partner)) {
            let partners: Vec<String> = partners.iter().map(|id| option(id)).collect();
            return Err(
                Stop::new(Code::Usage, format!("`{}` does not apply here", option(id)))
                    .hint(format!("use it with `{}`", partners.join("` or `"))),
            );
        }
    }
    Ok(())
}

fn option(id: &str) -> String {
    format!("--{}", id.replace('_', "-"))
}

fn join(all: &mut PathCeilings, more: PathCeilings) {
    all.ceilings.extend(more.ceilings);
    all.undetermined.extend(more.undetermined);
}

/// What `linerate ceiling --format json` prints: every bound of a path with its arithmetic, and the lowest one.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CeilingDocument<'a> {
    schema: &'static str,
    /// The lowest of the bounds; null when none could be computed.
    ceiling: Option<ShownBound<'a>>,
    bounds: Vec<ShownBound<'a>>,
    /// The rate given with --rate.
    rate_bit_per_s: Option<BitRate>,
    /// The share of that rate of the gross --speed.
    share_of_line: Option<f64>,
    gaps: Vec<MissingBound<'a>>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ShownBound<'a> {
    #[serde(flatten)]
    bound: &'a Ceiling,
    /// The share of this bound that --rate reaches.
    #[serde(skip_serializing_if = "Option::is_none")]
    share: Option<f64>,
}

impl<'a> ShownBound<'a> {
    fn of(bound: &'a Ceiling, rate: Option<BitRate>) -> Self {
        let share = rate.and_then(|rate| bound.share(rate));
        Self {
            bound,
            share: share.map(Ratio::as_f64),
        }
    }
}

/// A bound that could not be computed, and the value that is missing for it.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct MissingBound<'a> {
    #[serde(flatten)]
    missing: Missing<'a>,
    /// The kind of bound.
    bound: Bound,
    end: Option<End>,
    /// The subject on that host, `nic/eth2`.
    subject: Option<&'a str>,
}

fn document(
    all: &PathCeilings,
    rate: Option<BitRate>,
    speed: Option<BitRate>,
) -> CeilingDocument<'_> {
    let shown = |bound| ShownBound::of(bound, rate);
    let of_line = rate
        .zip(speed)
        .and_then(|(rate, speed)| ceiling::share(rate, speed));
    CeilingDocument {
        schema: "linerate.ceiling/1",
        ceiling: all.lowest().map(shown),
        bounds: all.ceilings.iter().map(shown).collect(),
        rate_bit_per_s: rate,
        share_of_line: of_line.map(Ratio::as_f64),
        gaps: all.undetermined.iter().map(MissingBound::from).collect(),
    }
}

impl<'a> From<&'a UnknownCeiling> for MissingBound<'a> {
    fn from(unknown: &'a UnknownCeiling) -> Self {
        Self {
            missing: Missing::from(&unknown.missing),
            bound: unknown.bound,
            end: unknown.end,
            subject: unknown.subject.as_deref(),
        }
    }
}

fn ceiling_text(all: &PathCeilings, rate: Option<BitRate>, speed: Option<BitRate>) -> String {
    let mut lines = Vec::new();
    for (place, bound) in all.ceilings.iter().enumerate() {
        let mark = if place == 0 { "the ceiling" } else { "" };
        let whose = match (bound.end, &bound.subject) {
            (Some(end), Some(subject)) => format!(" ({end} {subject})"),
            (None, Some(subject)) => format!(" ({subject})"),
            _ => String::new(),
        };
        lines.push(format!(
            "{:>12}  {mark:<12} {}{whose}: {}",
            bound.bit_per_s.to_string(),
            bound.bound,
            bound.reason
        ));
        if let Some((rate, share)) = rate.and_then(|rate| Some((rate, bound.share(rate)?))) {
            let above = if share.as_f64() > 1.0 {
                ": above the bound, so one of the figures is wrong"
            } else {
                ""
            };
            lines.push(format!(
                "{:>12}  {:<12} {rate} is {share} of it{above}",
                "", ""
            ));
        }
    }
    // Reports often state the share of the gross rate: shown too, so that theirs can be compared with it.
    if let Some((rate, speed)) = rate.zip(speed)
        && let Some(share) = ceiling::share(rate, speed)
    {
        lines.push(format!("{speed:>12}  line rate    {rate} is {share} of it"));
    }
    for unknown in &all.undetermined {
        let subject = unknown.subject.as_deref().unwrap_or_default();
        lines.push(format!(
            "{:>12}  {:<12} {} {subject}: {}",
            "unknown", "", unknown.bound, unknown.missing
        ));
    }
    lines.join("\n")
}

fn tunnel(args: &CeilingArgs) -> Option<Tunnel> {
    match args.tunnel {
        Some(TunnelArg::Vxlan) => Some(Tunnel::Vxlan),
        Some(TunnelArg::Geneve) => Some(Tunnel::Geneve),
        Some(TunnelArg::Gre) => Some(Tunnel::Gre),
        Some(TunnelArg::Ipip) => Some(Tunnel::Ipip),
        None => args.vxlan.then_some(Tunnel::Vxlan),
    }
}

fn options_bytes(args: &CeilingArgs) -> u32 {
    let timestamps = if args.timestamps { TIMESTAMPS_BYTES } else { 0 };
    args.tcp_options.unwrap_or(timestamps)
}

/// The bounds that the given figures make, whatever a host reports.
fn bounds_of_figures(args: &CeilingArgs) -> Outcome<PathCeilings> {
    let mut bounds = Vec::new();
    if let Some(speed) = args.speed {
        bounds.push(bound_of_wire(args, speed));
    }
    if let Some(link) = args.infiniband {
        bounds.push(match args.rdma_mtu {
            Some(mtu) => ceiling::infiniband_payload(link.speed, link.lanes, mtu),
            None => Known::Value(ceiling::infiniband(link.speed, link.lanes)),
        });
    }
    if let Some(link) = args.pcie {
        bounds.push(ceiling::pcie_of(link.rate, link.lanes, args.max_payload));
    }
    if let Some(rate) = args.shaper {
        bounds.push(match args.datagram {
            Some(datagram) => ceiling::shaper_of_datagrams(rate, args.mtu, datagram, args.ipv6),
            None => ceiling::shaper(rate, args.mtu, options_bytes(args), args.ipv6),
        });
    }
    if let (Some(window), Some(rtt)) = (args.window, args.rtt) {
        bounds.push(ceiling::window_rtt(window, rtt, args.flows));
    }
    if let Some(bandwidth) = args.copy {
        bounds.push(Known::Value(ceiling::copy(bandwidth, args.flows, None)));
    }
    if let Some(of_all) = args.allowance {
        let bound = ceiling::allowance(of_all, args.flow_allowance, args.flows);
        bounds.push(Known::Value(bound));
    }
    let mut all = PathCeilings::default();
    for bound in bounds {
        match bound {
            Known::Value(bound) => all.ceilings.push(bound),
            Known::Unknown(gap) => return Err(Stop::new(Code::BadInput, gap.to_string())),
        }
    }
    Ok(all)
}

/// What a link of `speed` carries: of TCP, or of RDMA where its version is given; of a bond of such
/// links, what the flows can use.
fn bound_of_wire(args: &CeilingArgs, speed: BitRate) -> Known<Ceiling> {
    let one = match args.roce {
        _ if args.iwarp => ceiling::iwarp(
            &IwarpPath {
                speed,
                mtu: args.mtu,
                options_bytes: options_bytes(args),
                ipv6: args.ipv6,
                vlan_tags: args.vlan_tags,
                is_tagged: true,
                is_software: false,
            },
            None,
        ),
        Some(version) => ceiling::roce(&RocePath {
            speed,
            rdma_mtu: args.rdma_mtu.unwrap_or(4096),
            version,
            ipv6: args.ipv6,
            vlan_tags: args.vlan_tags,
        }),
        None => ceiling::ethernet(&EthernetPath {
            speed,
            mtu: args.mtu,
            options_bytes: options_bytes(args),
            ipv6: args.ipv6,
            vlan_tags: args.vlan_tags,
            tunnel: tunnel(args),
            outer_ipv6: args.outer_ipv6,
            datagram_bytes: args.datagram,
        }),
    };
    if args.links == 1 {
        return one;
    }
    one.and_then(|one| {
        let links = vec![one; usize::try_from(args.links).unwrap_or(1)];
        match ceiling::bond(&links, args.flows) {
            Some(bound) => Known::Value(bound),
            None => Known::unknown(Cause::Absent, "--links", "a bond has links"),
        }
    })
}

fn packets(args: &CeilingArgs, typed: &TypedOptions) -> Packets {
    Packets {
        mtu: typed.has("mtu").then_some(args.mtu),
        outer_ipv6: args.outer_ipv6,
        options_bytes: options_bytes(args),
        ipv6: args.ipv6,
        vlan_tags: args.vlan_tags,
        tunnel: tunnel(args),
        flows: args.flows,
        datagram_bytes: args.datagram,
    }
}

fn bounds_of_nic(args: &CeilingArgs, typed: &TypedOptions, nic: &NicName) -> Outcome<PathCeilings> {
    let host = host_from(args.from.as_deref())?;
    check_nic(&host, Some(nic))?;
    let Some(nic) = host.nic(nic) else {
        return Ok(PathCeilings::default());
    };
    let mut all = ceiling::ceilings_of_nic(&host, nic, packets(args, typed));
    // Of one interface alone there is one end; which one is irrelevant.
    for bound in &mut all.ceilings {
        bound.end = None;
    }
    for unknown in &mut all.undetermined {
        unknown.end = None;
    }
    if all.ceilings.is_empty() && all.undetermined.is_empty() {
        all.undetermined.push(UnknownCeiling {
            bound: Bound::Copy,
            end: None,
            subject: Some(format!("nic/{}", nic.name)),
            missing: Gap::new(
                Cause::Absent,
                format!("/sys/class/net/{}/speed", nic.name),
                "virtual interface: its rate is bound by memory copies (`--peer` measures them)",
            ),
        });
    }
    Ok(all)
}

/// The bounds of the whole path to a peer: both hosts read, the copy bandwidth measured.
fn bounds_towards_peer(args: &CeilingArgs, state: &FilePath, say: &Say) -> Outcome<PathCeilings> {
    let Some(peer) = &args.peer else {
        return Ok(PathCeilings::default());
    };
    let interrupt = Interrupt::listen()?;
    say.note(&format!(
        "reading both ends of the path to {peer} and measuring memory copies, about 1 s"
    ));
    let reach = ReachArgs {
        push: args.push,
        ..ReachArgs::default()
    };
    let peer_args = PeerArgs::reached(peer, reach);
    let mut path = open_path(&peer_args, state, &interrupt, say)?;
    if let Some(nic) = &args.nic {
        check_nic(&path.local, Some(nic))?;
        path.local_nic = nic.clone();
    }
    let all = ceiling::ceilings_of_path(&PathFacts {
        local: &path.local,
        local_nic: &path.local_nic,
        remote: &path.remote,
        remote_nic: &path.remote_nic,
        flows: args.flows,
        direction: Direction::Forward,
        ipv6: args.ipv6 || path.address.is_ipv6(),
        datagram_bytes: args.datagram,
        copy_bandwidth: copy_bandwidth(&path),
        sample: None,
    });
    path.peer.leave_after_result(say)?;
    Ok(all)
}
