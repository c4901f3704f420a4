//! Concurrent paths between the same two ends: the one that is analyzed and changed, and those that only load; to each
//! host that an experiment holds against another.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path as FilePath;
use std::thread;

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::Host;
use linerate_model::ids::NicName;
use linerate_model::known::Known;
use linerate_model::lab::LoadedServer;
use linerate_model::path::PathView;
use linerate_model::plan::{End, Plan};
use linerate_model::sample::Sample;
use linerate_model::setting::{SettingKey, Value};
use linerate_model::workload::TrialSpec;
use linerate_runtime::cli::PeerArgs;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::random::fresh_token;
use linerate_runtime::console::say::Say;
use linerate_runtime::endpoint::ends::Ends;
use linerate_runtime::endpoint::trial::{PeerPath, address_of_kind, open_path};

use super::server::with_server;

/// The paths to one host. Each has its own agent at the remote end.
#[derive(Debug)]
struct HostPaths {
    first: PeerPath,
    beside: Vec<PeerPath>,
    /// Where data goes by default.
    home: IpAddr,
}

impl HostPaths {
    fn open(
        peer: &PeerArgs,
        beside: usize,
        state: &FilePath,
        interrupt: &Interrupt,
        say: &Say,
    ) -> Outcome<Self> {
        let open = || open_path(peer, state, interrupt, say);
        let first = open()?;
        Ok(Self {
            home: first.address,
            first,
            beside: (0..beside).map(|_| open()).collect::<Outcome<_>>()?,
        })
    }

    fn leave(self) -> Outcome<()> {
        let all = std::iter::once(self.first).chain(self.beside);
        worst_of(all.map(|path| path.peer.leave()))
    }
}

/// Every agent leaves; then the first error, but changes that may not be rolled back before all others.
fn worst_of(left: impl Iterator<Item = Outcome<()>>) -> Outcome<()> {
    // Not lazily: the first error must not keep the others.
    let errors: Vec<Stop> = left.filter_map(Result::err).collect();
    let is_in_doubt = |stop: &Stop| stop.code == Code::RestoreIncomplete;
    let worst = errors.iter().position(is_in_doubt).unwrap_or(0);
    errors.into_iter().nth(worst).map_or(Ok(()), Err)
}

/// The paths to the peer of an experiment, and to each other host that is a level: all are kept open for the whole run,
/// and one of them is turned to. This end's settings are changed through the first alone, which holds their journal.
#[derive(Debug)]
pub(super) struct LabPaths {
    ways: Vec<HostPaths>,
    now: usize,
    /// The other hosts, as the experiment names them: the indices of their paths, or why there is none.
    others: BTreeMap<String, Result<usize, Stop>>,
    /// The server that the trials load instead of linerate's own.
    server: Option<LoadedServer>,
    interrupt: Interrupt,
}

impl LabPaths {
    /// Opens the paths to the peer and to `others`, each with this many more paths. Another host that cannot
    /// be reached is an unavailable level.
    pub(super) fn open(
        peer: &PeerArgs,
        others: &BTreeMap<String, PeerArgs>,
        beside: usize,
        state: &FilePath,
        interrupt: &Interrupt,
        say: &Say,
    ) -> Outcome<Self> {
        let mut paths = Self {
            ways: vec![HostPaths::open(peer, beside, state, interrupt, say)?],
            now: 0,
            others: BTreeMap::new(),
            server: None,
            interrupt: interrupt.clone(),
        };
        for (name, peer) in others {
            let way = match HostPaths::open(peer, beside, state, interrupt, say) {
                Ok(way) => {
                    paths.ways.push(way);
                    Ok(paths.ways.len() - 1)
                }
                Err(stop) if interrupt.asked() => return Err(stop),
                Err(stop) => Err(stop),
            };
            paths.others.insert(name.clone(), way);
        }
        Ok(paths)
    }

    /// The path to the peer of the experiment.
    pub(super) fn home(&self) -> &PeerPath {
        &self.ways[0].first
    }

    /// From now on, changes may disturb the interfaces that ssh connections to all ends come in by.
    pub(super) fn include_way_in(&mut self) {
        let firsts = self.ways.iter_mut().map(|way| &mut way.first);
        firsts.for_each(PeerPath::include_way_in);
    }

    /// From now on, the trials load this server.
    pub(super) fn load(&mut self, server: Option<&LoadedServer>) {
        self.server = server.cloned();
    }

    /// What is known of the path to each other host.
    pub(super) fn others(&self) -> impl Iterator<Item = (&String, Result<PathView<'_>, &Stop>)> {
        let others = self.others.iter();
        others.map(|(name, way)| {
            let view = way.as_ref().map(|way| self.ways[*way].first.view());
            (name, view)
        })
    }

    /// Takes leave of every agent.
    pub(super) fn leave(self) -> Outcome<()> {
        worst_of(self.ways.into_iter().map(HostPaths::leave))
    }

    fn way(&self) -> &HostPaths {
        &self.ways[self.now]
    }

    fn way_mut(&mut self) -> &mut HostPaths {
        &mut self.ways[self.now]
    }

    /// Runs one trial, and others at the same time.
    fn run(&mut self, specs: &[TrialSpec]) -> Outcome<Vec<Sample>> {
        let tokens = specs.iter().map(|_| fresh_token());
        let tokens = tokens.collect::<Outcome<Vec<_>>>()?;
        let way = self.way_mut();
        let paths = std::iter::once(&mut way.first).chain(&mut way.beside);
        let paths = paths.map(PeerPath::data_side).zip(specs.iter().zip(tokens));
        let paths: Vec<_> = paths.collect();
        if paths.len() < specs.len() {
            return Err(Stop::new(Code::Bug, "more trials at once than paths"));
        }
        thread::scope(|scope| {
            let running: Vec<_> = paths
                .into_iter()
                .map(|(mut data_side, (spec, token))| {
                    scope.spawn(move || data_side.run(spec, token))
                })
                .collect();
            let ended = running.into_iter().map(|data_side| match data_side.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            // All have ended before the first failure is reported.
            let ended: Vec<Outcome<Sample>> = ended.collect();
            ended.into_iter().collect()
        })
    }

    /// The path that changes an end.
    fn changer(&mut self, end: End) -> &mut PeerPath {
        let way = match end {
            End::Local => 0,
            End::Remote => self.now,
        };
        &mut self.ways[way].first
    }
}

impl Ends for LabPaths {
    fn host(&self, end: End) -> &Host {
        self.way().first.host(end)
    }

    fn nic(&self, end: End) -> &NicName {
        self.way().first.nic(end)
    }

    fn address(&self) -> IpAddr {
        self.way().home
    }

    fn settings(&mut self, end: End, keys: &[SettingKey]) -> Outcome<Vec<Known<Value>>> {
        self.way_mut().first.settings(end, keys)
    }

    fn read_again(&mut self) -> Outcome<()> {
        self.way_mut().first.read_again()
    }

    fn trial(&mut self, spec: &TrialSpec) -> Outcome<Sample> {
        self.way_mut().first.trial(spec)
    }

    fn turn(&mut self, peer: Option<&str>) -> Outcome<()> {
        self.now = match peer.map(|name| (name, self.others.get(name))) {
            None => 0,
            Some((_, Some(Ok(way)))) => *way,
            Some((name, Some(Err(stop)))) => {
                return Err(Stop::new(stop.code, format!("{name}: {}", stop.message)));
            }
            Some((name, None)) => {
                return Err(Stop::new(
                    Code::Bug,
                    format!("no path to {name} was opened"),
                ));
            }
        };
        Ok(())
    }

    fn aim(&mut self, address: Option<&str>) -> Outcome<()> {
        let way = self.way_mut();
        let (local, remote) = (&way.first.local, &way.first.remote);
        let address = match address.map(|text| (text, text.strip_prefix('@'))) {
            None => way.home,
            Some((_, Some(kind))) => address_of_kind(local, remote, kind)?,
            Some((text, None)) => text.parse().map_err(|_| {
                let why = format!("`{text}` is not an address: expected a peer address or `@KIND`");
                Stop::new(Code::BadInput, why)
            })?,
        };
        let paths = std::iter::once(&mut way.first).chain(&mut way.beside);
        paths.for_each(|path| path.address = address);
        Ok(())
    }

    fn trials(&mut self, specs: &[TrialSpec]) -> Outcome<Vec<Sample>> {
        let interrupt = self.interrupt.clone();
        match self.server.clone() {
            None => self.run(specs),
            Some(server) => with_server(&server, specs, &interrupt, || self.run(specs)),
        }
    }

    fn apply(&mut self, end: End, plan: &Plan) -> Outcome<()> {
        self.changer(end).apply(end, plan)
    }

    fn undo(&mut self, end: End) -> Outcome<()> {
        self.changer(end).undo(end)
    }

    fn commit(&mut self, end: End) -> Outcome<()> {
        self.changer(end).commit(end)
    }
}
