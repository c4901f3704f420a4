//! One trial over a path, and the path itself: both ends, their hosts, and the address in between.

use std::net::{IpAddr, SocketAddr};
use std::path::Path as FilePath;
use std::time::{Duration, Instant};

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::failover::{COMMAND_TIME_MAX, TrialCommands};
use linerate_model::host::{Host, Nic};
use linerate_model::ids::NicName;
use linerate_model::known::Known;
use linerate_model::peer_address::PeerAddress;
use linerate_model::plan::{End, Plan};
use linerate_model::protocol::{Failure, FailureKind, Reply, Request, Token};
use linerate_model::sample::{Flag, Sample, SideSample};
use linerate_model::setting::{SettingKey, Value};
use linerate_model::units::BitRate;
use linerate_model::workload::TrialSpec;
use linerate_traffic::Abort;
use linerate_traffic::tcp::{Connected, Source};

use crate::cli::PeerArgs;
use crate::console::interrupt::Interrupt;
use crate::console::random::fresh_token;
use crate::console::say::Say;
use crate::endpoint::ends::Ends;
use crate::endpoint::local::LocalEndpoint;
use crate::endpoint::peer::{FarError, Peer};
use crate::endpoint::record::record_side;
use crate::endpoint::together::{self, Place};
use crate::endpoint::watch::Watch;

/// How long the data connections may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How much longer than its duration the remote end may take over a trial.
const GRACE: Duration = Duration::from_secs(30);
/// How long the remote end may take to notice that this end has failed, before it is notified.
const NOTICES: Duration = Duration::from_secs(2);

/// Both ends of a path, and the path between them.
#[derive(Debug)]
pub struct PeerPath {
    /// This end.
    pub endpoint: LocalEndpoint,
    /// The remote end.
    pub peer: Peer,
    /// This host, as last read.
    pub local: Host,
    /// The remote host, as last read.
    pub remote: Host,
    /// The interface that the data is sent from.
    pub local_nic: NicName,
    /// The interface that has the remote address.
    pub remote_nic: NicName,
    /// The remote address.
    pub address: IpAddr,
    /// The remote port, if it is fixed.
    pub port: Option<u16>,
    /// Where the data connections leave this host; by default the kernel's routes choose.
    pub source: Option<Source>,
    /// Whether changes may disrupt the management path of both ends.
    pub includes_way_in: bool,
    /// Receives the progress of running trials.
    pub watch: Option<Watch>,
    /// Set for trials in which the path may fail.
    pub failing: Option<Failing>,
    /// Ctrl-C.
    pub interrupt: Interrupt,
}

impl PeerPath {
    /// Starts the remote end, reads both hosts and determines the path between them.
    pub fn open(
        endpoint: LocalEndpoint,
        peer: Peer,
        address: Option<IpAddr>,
        interrupt: &Interrupt,
    ) -> Outcome<Self> {
        let mut peer = peer;
        let local = endpoint.read_host();
        let remote = host_of(peer.ask(&Request::ReadHost)?)?;
        let address = match address {
            Some(address) => address,
            None => choose_address(&local, &peer)?,
        };
        let local_nic = outgoing_nic(&local, address)?;
        // Behind port forwarding a listening agent knows under which address of its own it was reached.
        let own = [Some(address), peer.reached];
        let mut own = own.into_iter().flatten();
        let remote_nic = own.find_map(|own| remote.nic_with_address(&own.to_string()));
        let remote_nic = remote_nic.map(|nic| nic.name.clone()).ok_or_else(|| {
            no_remote_nic(&peer, address)
                .hint("behind NAT, pass an address of the peer with `--address`")
        })?;
        let interrupt = interrupt.clone();
        Ok(Self {
            endpoint,
            peer,
            local,
            remote,
            local_nic,
            remote_nic,
            address,
            port: None,
            source: None,
            includes_way_in: false,
            watch: None,
            failing: None,
            interrupt,
        })
    }

    /// From now on, changes may disrupt the management path of both ends.
    pub fn include_way_in(&mut self) {
        self.endpoint.disturb_way_in(true);
        self.includes_way_in = true;
    }

    /// This end's interface.
    pub fn local_interface(&self) -> Option<&Nic> {
        self.local.nic(&self.local_nic)
    }

    /// Runs one trial.
    pub fn run(&mut self, spec: &TrialSpec, token: Token) -> Outcome<Sample> {
        self.data_side().run(spec, token)
    }

    /// Replaces the control channel, which was lost, by a new one.
    pub fn reconnect(&mut self, args: &PeerArgs, state: &FilePath) -> Outcome<()> {
        let address = &self.peer.address;
        let peer = Peer::start(address, args.reach.push, state, &self.interrupt, None)?;
        std::mem::replace(&mut self.peer, peer).abandon();
        Ok(())
    }

    /// The part of the path that a trial uses.
    pub fn data_side(&mut self) -> DataSide<'_> {
        DataSide {
            shared_kernel: self.shared_kernel(),
            peer: &mut self.peer,
            address: self.address,
            port: self.port,
            source: self.source.as_ref(),
            place: None,
            watch: self.watch.as_ref(),
            failing: self.failing.as_mut(),
            interrupt: &self.interrupt,
        }
    }

    /// Has the remote end change itself; an answer that does not match the request is rejected.
    fn far(&mut self, request: &Request) -> Outcome<()> {
        self.peer.see_through(request).map(|_| ())
    }
}

/// The data side of a trial: another thread than that of its path may run it.
#[derive(Debug)]
pub struct DataSide<'a> {
    peer: &'a mut Peer,
    address: IpAddr,
    port: Option<u16>,
    source: Option<&'a Source>,
    /// Among the trials that start together with this one.
    place: Option<Place>,
    watch: Option<&'a Watch>,
    failing: Option<&'a mut Failing>,
    interrupt: &'a Interrupt,
    shared_kernel: bool,
}

impl DataSide<'_> {
    /// Has the next trial start together with others.
    pub(super) fn start_with(&mut self, place: Place) {
        self.place = Some(place);
    }

    /// Runs one trial.
    pub fn run(&mut self, spec: &TrialSpec, token: Token) -> Outcome<Sample> {
        self.interrupt.check()?;
        if self.interrupt.is_ending_early() {
            return Err(Stop::interrupted());
        }
        let result = self.run_unguarded(spec, token);
        match result {
            Err(_) if self.interrupt.asked() => {
                self.peer.abort_trial()?;
                Err(Stop::interrupted())
            }
            // Its late answer would be taken for that of the next request, and while it believes that
            // a trial is running it refuses to roll back.
            Err(stop) if stop.code == Code::TimeOut && !self.is_kept() => {
                self.peer.abort_trial()?;
                Err(stop)
            }
            result => result,
        }
    }

    /// The commands that the remote end runs.
    fn commands(&self) -> Option<Box<TrialCommands>> {
        let commands = self.failing.as_ref().map(|one| one.commands.clone());
        commands.filter(|one| !one.is_empty()).map(Box::new)
    }

    /// Whether the record of this end is kept although the remote end was lost.
    fn is_kept(&self) -> bool {
        self.failing.as_ref().is_some_and(|one| one.kept.is_some())
    }

    /// Prepares the trial at the remote end, and returns where it listens.
    fn prepare(&mut self, spec: &TrialSpec, token: Token) -> Outcome<SocketAddr> {
        let bind = match self.port {
            Some(port) => SocketAddr::new(self.address, port).to_string(),
            None => self.address.to_string(),
        };
        let prepare = Request::Prepare {
            spec: Box::new(spec.at_other_end()),
            token,
            bind,
            report_ns: self.watch.map(|watch| watch.every().into()),
            commands: self.commands(),
            keep: self.failing.is_some(),
        };
        self.peer.report_to(self.watch);
        if let Some(watch) = self.watch {
            watch.this_end(self.interrupt.abort());
        }
        let Reply::Prepared { port } = self.peer.ask(&prepare)? else {
            return Err(Stop::new(Code::Bug, "an answer passed that does not fit"));
        };
        let port = match (&self.peer.address, port) {
            (PeerAddress::Tls { at, .. }, 0) => at.port,
            _ => port,
        };
        Ok(SocketAddr::new(self.address, port))
    }

    /// This end has failed by itself, or was aborted: why the trial has ended.
    fn failed_here(&mut self, failure: &Failure) -> Outcome<Stop> {
        let mut stop = Stop::from(failure.clone());
        if self.interrupt.abort().is_triggered() {
            // Before its time: the remote end would go on.
            if !self.interrupt.asked() {
                self.peer.abort_trial()?;
            }
            return Ok(stop);
        }
        // A remote end that no longer receives data would wait for its own time limit.
        match self.peer.answer_to(&Request::Start, NOTICES) {
            // That its connection broke is a consequence of the failure here.
            Ok(_)
            | Err(FarError::Failure(Failure {
                kind: FailureKind::Broken,
                ..
            })) => {}
            // A remote end that is lost is the cause.
            Err(FarError::Stop(far)) if far.code == Code::TimeOut => self.peer.abort_trial()?,
            // With iWARP a queue pair fails at once when the remote end is gone.
            Err(FarError::Stop(far)) if far.code == Code::PeerUnreachable => return Ok(far),
            // Either of the two may be the cause of the other.
            Err(FarError::Failure(far)) if !far.message.ends_with(&stop.message) => {
                stop.message = format!("{}; {}", stop.message, far.message);
            }
            Err(_) => {}
        }
        Ok(stop)
    }

    /// The record of the remote end; if that is lost, `local` is kept where it keeps its own.
    fn remote_record(
        &mut self,
        spec: &TrialSpec,
        local: Option<&SideSample>,
    ) -> Outcome<SideSample> {
        let ends = self.commands().map(|_| Duration::from(COMMAND_TIME_MAX));
        let limit = Duration::from(spec.duration_ns) + GRACE + ends.unwrap_or_default();
        let answer = match self.peer.answer_to(&Request::Start, limit) {
            Err(FarError::Stop(stop)) => {
                let is_lost = matches!(stop.code, Code::PeerUnreachable | Code::TimeOut);
                if let (true, Some(failing), Some(side)) = (is_lost, &mut self.failing, local) {
                    failing.kept = Some(Box::new(side.clone()));
                }
                return Err(stop);
            }
            answer => answer?,
        };
        let Reply::Done(side) = answer else {
            return Err(Stop::new(Code::Bug, "an answer passed that does not fit"));
        };
        side.check(spec).map_err(|error| {
            let peer = &self.peer.address;
            let what = format!("{peer} sent an invalid response: {error}");
            Stop::new(Code::PeerUnreachable, what)
        })?;
        Ok(*side)
    }

    fn run_unguarded(&mut self, spec: &TrialSpec, token: Token) -> Outcome<Sample> {
        let target = self.prepare(spec, token)?;
        let abort = self.interrupt.abort().clone();
        let deadline = Instant::now() + CONNECT;
        let source = self.source;
        let connect = Connected::connect_from(source, spec, target, token, deadline, &abort);
        let connected = match connect {
            Ok(connected) => connected,
            Err(error) => {
                let failure = Failure::from(&error);
                if !self.interrupt.asked() {
                    self.peer.abort_trial()?;
                }
                return Err(failure.into());
            }
        };
        if !self.place.take().is_none_or(Place::wait) {
            self.peer.abort_trial()?;
            return Err(together::gave_up());
        }
        self.peer.send(&Request::Start)?;
        let ends_early = self.interrupt.during_trial(self.peer.early_end());
        let local = record_side(connected, spec, &abort);
        if let Err(failure) = &local
            && (failure.kind != FailureKind::Broken || abort.is_triggered())
        {
            return Err(self.failed_here(failure)?);
        }
        let remote = self.remote_record(spec, local.as_ref().ok())?;
        drop(ends_early);
        if self.failing.is_some() {
            // A record that is left is removed when its room is needed.
            let _ = self.peer.ask(&Request::Discard { token });
        }
        Ok(Sample {
            spec: spec.clone(),
            local: local?,
            remote,
            shared_kernel: self.shared_kernel,
            flags: cut_short(&abort),
        })
    }
}

/// A trial in which the path may fail, and the control channel with it: the remote end keeps its record, and goes on.
#[derive(Debug, Default)]
pub struct Failing {
    /// What the remote end runs.
    pub commands: TrialCommands,
    /// The record of this end, if the remote end was lost.
    pub kept: Option<Box<SideSample>>,
}

/// The flag of a trial that was ended early.
pub fn cut_short(abort: &Abort) -> Vec<Flag> {
    abort
        .is_ending()
        .then_some(Flag::CutShort)
        .into_iter()
        .collect()
}

impl Ends for PeerPath {
    fn host(&self, end: End) -> &Host {
        match end {
            End::Local => &self.local,
            End::Remote => &self.remote,
        }
    }

    fn nic(&self, end: End) -> &NicName {
        match end {
            End::Local => &self.local_nic,
            End::Remote => &self.remote_nic,
        }
    }

    fn address(&self) -> IpAddr {
        self.address
    }

    fn read_again(&mut self) -> Outcome<()> {
        self.local = self.endpoint.read_host();
        // Also after Ctrl-C: only reading the host shows whether everything was restored.
        self.remote = host_of(self.peer.see_through(&Request::ReadHost)?)?;
        Ok(())
    }

    fn settings(&mut self, end: End, keys: &[SettingKey]) -> Outcome<Vec<Known<Value>>> {
        if end == End::Local {
            return Ok(keys
                .iter()
                .map(|key| self.endpoint.read_setting(key))
                .collect());
        }
        match self.peer.ask(&Request::ReadSettings(keys.to_vec()))? {
            Reply::Settings(values) => Ok(values),
            _ => Err(Stop::new(Code::Bug, "an answer passed that does not fit")),
        }
    }

    fn trial(&mut self, spec: &TrialSpec) -> Outcome<Sample> {
        self.run(spec, fresh_token()?)
    }

    fn apply(&mut self, end: End, plan: &Plan) -> Outcome<()> {
        match end {
            End::Local => {
                // The settings of an experiment are not known in advance.
                self.endpoint.expect_any();
                Ok(self.endpoint.apply(plan)?)
            }
            End::Remote => self.far(&Request::Apply {
                plan: plan.clone(),
                include_way_in: self.includes_way_in,
            }),
        }
    }

    fn undo(&mut self, end: End) -> Outcome<()> {
        match end {
            End::Local => Ok(self.endpoint.undo()?),
            End::Remote => self.far(&Request::Undo),
        }
    }

    fn commit(&mut self, end: End) -> Outcome<()> {
        match end {
            End::Local => Ok(self.endpoint.commit()?),
            End::Remote => self.far(&Request::Commit),
        }
    }
}

/// Opens the path to a peer.
pub fn open_path(
    args: &PeerArgs,
    state: &FilePath,
    interrupt: &Interrupt,
    say: &Say,
) -> Outcome<PeerPath> {
    let endpoint = LocalEndpoint::open(state)?;
    let address = args.peer_to_pair()?;
    if args.port.is_some() && matches!(address, PeerAddress::Tls { .. }) {
        let why = "`--port` cannot be used with a listening agent: it takes data at its own port";
        return Err(Stop::new(Code::Usage, why));
    }
    let peer = Peer::start(&address, args.reach.push, state, interrupt, Some(say))?;
    let path = PeerPath::open(endpoint, peer, args.reach.address, interrupt)?;
    if args.reach.address.is_none() {
        note_other_paths(&path, say);
    }
    Ok(PeerPath {
        port: args.port,
        ..path
    })
}

/// The subnets that both hosts share beside the one that is used: none is chosen silently.
fn note_other_paths(path: &PeerPath, say: &Say) {
    // Of other peers the path is the one that they were named by.
    if matches!(
        path.peer.address,
        PeerAddress::Tls { .. } | PeerAddress::Local
    ) {
        return;
    }
    let own = addresses_of(&path.local);
    let theirs = path.peer.addresses.iter();
    let theirs = theirs.filter_map(|one| parse_prefixed(&one.address));
    let mut others: Vec<String> = theirs
        .filter_map(|(address, _)| {
            let is_common =
                |(_, mine, prefix): &&(NicName, IpAddr, u8)| same_subnet(*mine, address, *prefix);
            let (nic, ..) = own.iter().find(is_common)?;
            (usable(address) && *nic != path.local_nic).then(|| format!("{address} over {nic}"))
        })
        .collect();
    others.sort();
    others.dedup();
    if !others.is_empty() {
        say.note(&format!(
            "of several paths this is over {} to {}; others, for `--address`: {}",
            path.local_nic,
            path.address,
            others.join(", ")
        ));
    }
}

/// The memory copy rate of one core, for a path without a wire: its only bound.
pub fn copy_bandwidth(path: &PeerPath) -> Option<BitRate> {
    let wire = path
        .local_interface()
        .is_some_and(|nic| nic.kind.has_wire());
    if wire {
        return None;
    }
    // An upper bound: other work on the machine only ever reduces a sample.
    let sample = |_| {
        let budget = Duration::from_millis(15);
        linerate_traffic::copy::cached_copy_bandwidth(None, budget).ok()
    };
    (0..4).filter_map(sample).max()
}

/// The host that the other end has read.
pub fn host_of(reply: Reply) -> Outcome<Host> {
    match reply {
        Reply::Host(host) => Ok(*host),
        _ => Err(Stop::new(Code::Bug, "an answer passed that does not fit")),
    }
}

/// The remote address on an interface of a kind that both hosts have, in a subnet of both.
pub fn address_of_kind(local: &Host, remote: &Host, kind: &str) -> Outcome<IpAddr> {
    let addresses = |host: &Host| -> Vec<(IpAddr, u8)> {
        let is_kind = |nic: &&Nic| serde_json::to_value(nic.kind).is_ok_and(|word| word == kind);
        let nics = host.nics.iter().filter(is_kind);
        let texts = nics.flat_map(|nic| nic.addresses.value().into_iter().flatten());
        let parsed = texts.filter_map(|text| parse_prefixed(text));
        parsed.filter(|(address, _)| usable(*address)).collect()
    };
    let own = addresses(local);
    let theirs = addresses(remote).into_iter().map(|(address, _)| address);
    let near = |theirs: &IpAddr| {
        own.iter()
            .any(|(mine, prefix)| mine != theirs && same_subnet(*mine, *theirs, *prefix))
    };
    theirs.into_iter().find(near).ok_or_else(|| {
        let why = format!("the hosts share no subnet on interfaces of kind `{kind}`");
        Stop::new(Code::NotSupported, why)
    })
}

/// An address of the peer on a subnet that this host is on too; else the host that ssh connects to.
fn choose_address(local: &Host, peer: &Peer) -> Outcome<IpAddr> {
    let own = addresses_of(local);
    let theirs = peer
        .addresses
        .iter()
        .filter_map(|a| parse_prefixed(&a.address));
    let mut theirs: Vec<IpAddr> = theirs.map(|(address, _)| address).collect();
    if let PeerAddress::Tls { at, .. } = &peer.address {
        let resolved = std::net::ToSocketAddrs::to_socket_addrs(&(at.host.as_str(), at.port));
        let all: Vec<IpAddr> = (resolved.into_iter().flatten())
            .map(|one| one.ip().to_canonical())
            .collect();
        // The one of the control connection; another only behind address translation.
        let reached = all.iter().find(|address| Some(**address) == peer.reached);
        return reached.or(all.first()).copied().ok_or_else(no_address);
    }
    if peer.address == PeerAddress::Local {
        theirs.retain(|address| own.iter().any(|(_, mine, _)| mine == address));
        return theirs
            .into_iter()
            .next()
            .or(Some(IpAddr::from([127, 0, 0, 1])))
            .ok_or_else(no_address);
    }
    let common = theirs
        .iter()
        .copied()
        .filter(|a| usable(*a))
        .find(|theirs| {
            own.iter()
                .any(|(_, mine, prefix)| mine != theirs && same_subnet(*mine, *theirs, *prefix))
        });
    if let Some(address) = common {
        return Ok(address);
    }
    if let PeerAddress::Ssh { destination, .. } = &peer.address {
        let host = destination.rsplit('@').next().unwrap_or(destination);
        if let Ok(mut found) = std::net::ToSocketAddrs::to_socket_addrs(&(host, 0))
            && let Some(address) = found.next()
        {
            return Ok(address.ip());
        }
    }
    Err(no_address())
}

/// The usable addresses of a host: interface, address, prefix length.
pub(super) fn addresses_of(host: &Host) -> Vec<(NicName, IpAddr, u8)> {
    let all = host.nics.iter().flat_map(|nic| {
        let addresses = nic.addresses.value().into_iter().flatten();
        let parsed = addresses.filter_map(|text| parse_prefixed(text));
        parsed.map(|(address, prefix)| (nic.name.clone(), address, prefix))
    });
    all.filter(|(_, address, _)| usable(*address)).collect()
}

/// No interface of the peer has the address that data is to be sent to.
pub(super) fn no_remote_nic(peer: &Peer, address: IpAddr) -> Stop {
    Stop::new(
        Code::BadInput,
        format!("no interface of {} has the address {address}", peer.address),
    )
}

fn no_address() -> Stop {
    Stop::new(
        Code::BadInput,
        "the two hosts share no subnet, so the data path is ambiguous",
    )
    .hint("pass the peer's address with `--address`")
}

pub(super) fn parse_prefixed(text: &str) -> Option<(IpAddr, u8)> {
    let (address, prefix) = text.split_once('/')?;
    Some((address.parse().ok()?, prefix.parse().ok()?))
}

/// Loopback and link-local addresses need a scope and are not reachable from elsewhere.
pub(super) fn usable(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
    }
}

pub(super) fn same_subnet(one: IpAddr, other: IpAddr, prefix: u8) -> bool {
    let bits = |address: IpAddr| match address {
        IpAddr::V4(v4) => (u128::from(v4.to_bits()) << 96, 32),
        IpAddr::V6(v6) => (v6.to_bits(), 128),
    };
    let ((one, width), (other, other_width)) = (bits(one), bits(other));
    if width != other_width || prefix > width {
        return false;
    }
    let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
    one & mask == other & mask
}

/// The interface that the kernel uses to send to `address`: found by connecting a UDP socket,
/// which sends nothing.
pub fn outgoing_nic(local: &Host, address: IpAddr) -> Outcome<NicName> {
    let source = source_towards(address).map_err(|error| {
        Stop::new(Code::PeerUnreachable, format!("no route to {address}")).because(error)
    })?;
    let nic = local.nic_with_address(&source.to_string());
    nic.map(|nic| nic.name.clone()).ok_or_else(|| {
        Stop::new(
            Code::NotSupported,
            format!("no local interface has the address {source}"),
        )
    })
}

/// The local address that the kernel uses for connections to `address`. Nothing is sent.
pub fn source_towards(address: IpAddr) -> std::io::Result<IpAddr> {
    let any = if address.is_ipv4() {
        "0.0.0.0:0"
    } else {
        "[::]:0"
    };
    let socket = std::net::UdpSocket::bind(any)?;
    socket.connect((address, 9))?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_subnet_are_told_from_others() {
        let ip = |text: &str| text.parse::<IpAddr>().expect(text);
        assert!(same_subnet(ip("10.77.0.1"), ip("10.77.0.2"), 24));
        assert!(!same_subnet(ip("10.77.0.1"), ip("10.77.1.2"), 24));
        assert!(same_subnet(ip("fd00::1"), ip("fd00::2"), 64));
        assert!(!same_subnet(ip("10.0.0.1"), ip("fd00::2"), 0));
        assert!(same_subnet(ip("1.2.3.4"), ip("200.2.3.4"), 0));
    }
}
