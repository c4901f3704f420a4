//! Paths side by side between the same two ends: the one that is judged and changed, and those that only load.

use std::net::IpAddr;
use std::path::Path as FilePath;
use std::thread;

use linerate_model::host::Host;
use linerate_model::ids::NicName;
use linerate_model::known::Known;
use linerate_model::plan::{End, Plan};
use linerate_model::sample::Sample;
use linerate_model::setting::{SettingKey, Value};
use linerate_model::workload::TrialSpec;

use crate::cli::PeerArgs;
use crate::draw::fresh_token;
use crate::ends::Ends;
use crate::exit::{Code, Outcome, Stop};
use crate::interrupt::Interrupt;
use crate::measure::open_path;
use crate::trial::{Path, address_of_kind};

/// The paths. Each has an agent of its own at the far end.
#[derive(Debug)]
pub(super) struct Lanes {
    pub(super) first: Path,
    beside: Vec<Path>,
    /// Where data goes when nothing else is said.
    home: IpAddr,
}

impl Lanes {
    /// Opens a path, and so many beside it.
    pub(super) fn open(
        peer: &PeerArgs,
        beside: usize,
        state: &FilePath,
        interrupt: &Interrupt,
    ) -> Outcome<Self> {
        let open = || open_path(peer, state, interrupt);
        let first = open()?;
        Ok(Self {
            home: first.address,
            first,
            beside: (0..beside).map(|_| open()).collect::<Outcome<_>>()?,
        })
    }

    /// Takes leave of every agent.
    pub(super) fn leave(self) -> Outcome<()> {
        for path in self.beside {
            path.peer.leave()?;
        }
        self.first.peer.leave()
    }
}

impl Ends for Lanes {
    fn host(&self, end: End) -> &Host {
        self.first.host(end)
    }

    fn nic(&self, end: End) -> &NicName {
        self.first.nic(end)
    }

    fn settings(&mut self, end: End, keys: &[SettingKey]) -> Outcome<Vec<Known<Value>>> {
        self.first.settings(end, keys)
    }

    fn read_again(&mut self) -> Outcome<()> {
        self.first.read_again()
    }

    fn trial(&mut self, spec: &TrialSpec) -> Outcome<Sample> {
        self.first.trial(spec)
    }

    fn aim(&mut self, address: Option<&str>) -> Outcome<()> {
        let (local, remote) = (&self.first.local, &self.first.remote);
        let address = match address.map(|text| (text, text.strip_prefix('@'))) {
            None => self.home,
            Some((_, Some(kind))) => address_of_kind(local, remote, kind)?,
            Some((text, None)) => text.parse().map_err(|_| {
                let why = format!("`{text}` is no address: expected one of the peer, or `@KIND`");
                Stop::new(Code::BadInput, why)
            })?,
        };
        self.first.address = address;
        self.beside
            .iter_mut()
            .for_each(|path| path.address = address);
        Ok(())
    }

    fn trials(&mut self, specs: &[TrialSpec]) -> Outcome<Vec<Sample>> {
        let tokens = specs.iter().map(|_| fresh_token());
        let tokens = tokens.collect::<Outcome<Vec<_>>>()?;
        let paths = std::iter::once(&mut self.first).chain(&mut self.beside);
        let lanes = paths.map(Path::lane).zip(specs.iter().zip(tokens));
        let lanes: Vec<_> = lanes.collect();
        if lanes.len() < specs.len() {
            return Err(Stop::new(Code::Bug, "more trials at once than paths"));
        }
        thread::scope(|scope| {
            let running: Vec<_> = lanes
                .into_iter()
                .map(|(mut lane, (spec, token))| scope.spawn(move || lane.run(spec, token)))
                .collect();
            let ended = running.into_iter().map(|lane| match lane.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            // Each has come to its end before the first failure is told.
            let ended: Vec<Outcome<Sample>> = ended.collect();
            ended.into_iter().collect()
        })
    }

    fn apply(&mut self, end: End, plan: &Plan) -> Outcome<()> {
        self.first.apply(end, plan)
    }

    fn undo(&mut self, end: End) -> Outcome<()> {
        self.first.undo(end)
    }

    fn commit(&mut self, end: End) -> Outcome<()> {
        self.first.commit(end)
    }
}
