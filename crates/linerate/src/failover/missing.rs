//! A trial that has taken the control channel with it: each end keeps its record. This end reconnects and fetches the peer's;
//! if it cannot, it writes what it has to a file, which `failover --join` completes later.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use linerate_analysis::failover::{FailoverPlan, FailoverTrial};
use linerate_analysis::record::{Header, Record, RunKind};
use linerate_host::private_folder::PrivateFolder;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::Host;
use linerate_model::protocol::{Reply, Request, Token};
use linerate_model::sample::{Flag, Sample, SideSample};
use linerate_model::shell::{quoted, quoted_path};
use linerate_model::workload::TrialSpec;
use linerate_runtime::cli::{FailoverArgs, PeerArgs};
use linerate_runtime::console::clock::now_unix_s;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::random::fresh_seed;
use linerate_runtime::console::say::Say;
use linerate_runtime::endpoint::peer::Peer;
use linerate_runtime::endpoint::trial::PeerPath;
use serde::{Deserialize, Serialize};

use super::document::FailoverDocument;
use super::{judge, print, require, stored, text};
use crate::kept::Kept;

/// The time between two attempts that fail at once.
const PAUSE: Duration = Duration::from_secs(1);
/// How much longer than its duration the peer may take over a trial, with the command that ends a failure.
const TRIAL_ENDS: Duration = Duration::from_secs(75);
/// The folder of the files, below the state folder.
const FOLDER: &str = "failover";
const SCHEMA: &str = "linerate.failover-incomplete/1";
/// The maximum length of a file: 1,000 short trials, or a few with thousands of interruptions.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// The record of this end of a trial.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Half {
    pub(super) token: Token,
    pub(super) local: Box<SideSample>,
    pub(super) shared_kernel: bool,
    pub(super) flags: Vec<Flag>,
}

impl Half {
    /// The trial, with the record of the peer.
    pub(super) fn joined(self, spec: &TrialSpec, remote: SideSample) -> Sample {
        Sample {
            spec: spec.clone(),
            local: *self.local,
            remote,
            shared_kernel: self.shared_kernel,
            flags: self.flags,
        }
    }
}

/// What this end has of a run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Incomplete {
    schema: String,
    header: Header,
    plan: FailoverPlan,
    local: Box<Host>,
    remote: Box<Host>,
    /// The trials that are complete.
    trials: Vec<FailoverTrial>,
    /// The one that is not.
    half: Half,
}

impl Incomplete {
    pub(super) fn new(
        (header, plan): (&Header, &FailoverPlan),
        (local, remote): (&Host, &Host),
        trials: &[FailoverTrial],
        half: Half,
    ) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            header: header.clone(),
            plan: plan.clone(),
            local: Box::new(local.clone()),
            remote: Box::new(remote.clone()),
            trials: trials.to_vec(),
            half,
        }
    }

    /// Writes it; returns the file.
    pub(super) fn write(&self, state: &Path) -> Outcome<PathBuf> {
        let token = self.half.token.0;
        let name = format!("{}-{:02x}{:02x}.json", now_unix_s(), token[0], token[1]);
        let path = state.join(FOLDER).join(&name);
        let cannot = |error| Stop::io(format!("write {}", path.display()), error);
        let bytes = serde_json::to_vec(self).map_err(|error| cannot(error.into()))?;
        let folder = PrivateFolder::make(&state.join(FOLDER)).map_err(cannot)?;
        folder.replace(&name, &bytes).map_err(cannot)?;
        Ok(path)
    }

    /// Reads what [`Incomplete::write`] has written.
    pub(super) fn read(path: &Path) -> Outcome<Self> {
        let cannot = |why: String| {
            let what = format!("cannot read {} as an incomplete run: {why}", path.display());
            Stop::new(Code::BadInput, what)
        };
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(|error| cannot(error.to_string()))?;
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
        if !is_file {
            return Err(cannot("it is no regular file".to_owned()));
        }
        file.take(FILE_BYTES_MAX)
            .read_to_end(&mut bytes)
            .map_err(|error| cannot(error.to_string()))?;
        let run: Self =
            serde_json::from_slice(&bytes).map_err(|error| cannot(error.to_string()))?;
        if run.schema != SCHEMA {
            return Err(cannot(format!(
                "its schema is {}, not {SCHEMA}",
                run.schema
            )));
        }
        let spec = &run.plan.spec;
        spec.check().map_err(|error| cannot(error.to_string()))?;
        let samples = run.trials.iter().map(|trial| &trial.sample);
        for side in samples.flat_map(|one| [&one.local, &one.remote]) {
            side.check(spec)
                .map_err(|error| cannot(error.to_string()))?;
        }
        let half = run.half.local.check(spec);
        half.map_err(|error| cannot(error.to_string()))?;
        Ok(run)
    }
}

/// `failover --join`: the trials of an earlier run, with the record that the peer has kept.
pub(super) fn join(args: &FailoverArgs, file: &Path, state: &Path, say: &Say) -> Outcome<()> {
    let Incomplete {
        mut header,
        mut plan,
        local,
        remote,
        mut trials,
        half,
        ..
    } = Incomplete::read(file)?;
    let interrupt = Interrupt::listen()?;
    let address = args.peer.peer_to_pair()?;
    // The trials before this one may be a run already.
    header.created_unix_s = now_unix_s();
    header.seed = fresh_seed()?;
    plan.require = args.require.iter().map(|one| one.text.clone()).collect();
    let first = stored::first((&local, &remote), &plan);
    let run = (RunKind::Failover, header.clone());
    let mut kept = Kept::new(&args.store, (state, say), run, first)?;
    let mut peer = Peer::start(&address, args.peer.reach.push, state, &interrupt, Some(say))?;
    let fetched = fetch(&mut peer, &plan.spec, half.token)?;
    trials.push(FailoverTrial::new(half.joined(&plan.spec, fetched)));
    let results = trials.iter().map(judge::judge).collect();
    let asked = plan.repeats.and_then(|repeats| repeats.try_into().ok());
    let stopped = asked.filter(|asked| trials.len() < *asked).map(|_| {
        let why = "the control connection was lost in the last trial";
        Stop::new(Code::PeerUnreachable, why)
    });
    for trial in trials {
        kept.add(|| Record::FailoverTrial(Box::new(trial)));
    }
    let document = FailoverDocument::new(&header, &plan, results, stopped.is_none());
    print(&document, args, say)?;
    let result = Record::FailoverResult(text::headline(&document));
    kept.end(vec![result], stopped.as_ref());
    // The peer's part is printed now, and no longer there: a file that cannot be removed is only useless.
    if std::fs::remove_file(file).is_err() {
        say.note(&format!("{} is no longer needed", file.display()));
    }
    peer.leave_after_result(say)?;
    require::outcome(&document.requirements)
}

/// What to type when the peer can be reached again.
pub(super) fn hint(peer: &PeerArgs, file: &Path) -> String {
    how_to_join(&quoted(&peer.peer.to_string()), file)
}

/// What to type for a peer.
pub(super) fn how_to_join(peer: &str, file: &Path) -> String {
    format!(
        "when the peer can be reached again, join the records of both ends: `linerate failover {peer} --join {}`",
        quoted_path(file)
    )
}

/// Reconnects and fetches the peer's record of a trial.
pub(super) fn reconnect(
    path: &mut PeerPath,
    (args, state): (&FailoverArgs, &Path),
    spec: &TrialSpec,
    token: Token,
    (interrupt, say): (&Interrupt, &Say),
) -> Outcome<SideSample> {
    say.note(&format!(
        "reconnecting to {}, for at most {}, to fetch its record",
        args.peer.peer, args.reconnect
    ));
    let until = Instant::now() + args.reconnect.into();
    loop {
        let fetched = path
            .reconnect(&args.peer, state)
            .and_then(|()| fetch(&mut path.peer, spec, token));
        match fetched {
            Err(stop)
                if matches!(stop.code, Code::PeerUnreachable | Code::TimeOut)
                    && Instant::now() < until =>
            {
                interrupt.comes_within(PAUSE);
                interrupt.check()?;
                if interrupt.is_ending_early() {
                    return Err(Stop::interrupted());
                }
            }
            fetched => return fetched,
        }
    }
}

/// The peer's record of a trial, which it no longer keeps then.
fn fetch(peer: &mut Peer, spec: &TrialSpec, token: Token) -> Outcome<SideSample> {
    let request = Request::Fetch { token };
    peer.send(&request)?;
    let limit = Duration::from(spec.duration_ns) + TRIAL_ENDS;
    let Reply::Done(side) = peer.hear(&request, limit)? else {
        return Err(Stop::new(Code::Bug, "an answer passed that does not fit"));
    };
    side.check(spec).map_err(|error| {
        let what = format!("{} sent an invalid response: {error}", peer.address);
        Stop::new(Code::PeerUnreachable, what)
    })?;
    // The peer removes it when it needs the room.
    let _ = peer.ask(&Request::Discard { token });
    Ok(*side)
}
