//! A stored run of `failover`, judged and shown again from its trials.

use std::net::IpAddr;
use std::path::Path;

use linerate_analysis::failover::{FailoverPlan, FailoverTrial};
use linerate_analysis::record::{Header, Record};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::Host;
use linerate_report::failover::{FailoverPage, TrialView, failover_page};
use linerate_runtime::console::say::{Format, Say};
use linerate_store as store;

use super::document::{FailoverDocument, TrialResult};
use super::judge::judge;
use super::text;
use crate::stored_runs;

/// The records before the first trial.
pub(super) fn first((local, remote): (&Host, &Host), plan: &FailoverPlan) -> Vec<Record> {
    vec![
        Record::Hosts {
            local: Box::new(local.clone()),
            remote: Box::new(remote.clone()),
        },
        Record::Failover(Box::new(plan.clone())),
    ]
}

/// Shows a stored run, and writes its page.
pub(crate) fn show(folder: &Path, page: &Path, say: &Say) -> Outcome<()> {
    let stored = stored_runs::read(folder, say)?;
    let read = Read::of(&stored.records, folder)?;
    let document = read.document(&stored.header);
    store::write_page(folder, page, &read.page(&stored.header, &document))?;
    if say.format == Format::Json {
        return say.json(&document);
    }
    say.lines(&text::text(&document, false))
}

/// The page of a stored run, computed from its records, without writing anything.
pub(crate) fn page_of(folder: &Path) -> Outcome<String> {
    let stored = store::read(folder)?;
    let read = Read::of(&stored.records, folder)?;
    Ok(read.page(&stored.header, &read.document(&stored.header)))
}

/// The page of the records of a run.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn page_of_records(records: &[Record], header: &Header) -> Outcome<String> {
    let read = Read::of(records, Path::new("fuzz"))?;
    Ok(read.page(header, &read.document(header)))
}

/// The records, sorted.
pub(super) struct Read<'a> {
    pub(super) plan: &'a FailoverPlan,
    pub(super) hosts: (&'a Host, &'a Host),
    trials: Vec<&'a FailoverTrial>,
    is_whole: bool,
}

impl<'a> Read<'a> {
    pub(super) fn of(records: &'a [Record], folder: &Path) -> Outcome<Self> {
        let (mut hosts, mut plan) = (None, None);
        let mut trials = Vec::new();
        let (mut is_stopped, mut is_ended) = (false, false);
        for record in records {
            match record {
                Record::Hosts { local, remote } => hosts = Some((&**local, &**remote)),
                Record::Failover(asked) => plan = Some(&**asked),
                Record::FailoverTrial(trial) => trials.push(&**trial),
                Record::Stopped(_) => is_stopped = true,
                Record::Ended { .. } => is_ended = true,
                _ => {}
            }
        }
        let (Some(hosts), Some(plan), false) = (hosts, plan, trials.is_empty()) else {
            let why = format!("{} has no trial with a result", folder.display());
            return Err(Stop::new(Code::Inconclusive, why));
        };
        Ok(Self {
            plan,
            hosts,
            trials,
            is_whole: is_ended && !is_stopped,
        })
    }

    /// What each trial shows.
    pub(super) fn results(&self) -> Vec<TrialResult> {
        self.trials.iter().map(|trial| judge(trial)).collect()
    }

    /// As `failover` printed it.
    fn document(&self, header: &Header) -> FailoverDocument {
        FailoverDocument::new(header, self.plan, self.results(), self.is_whole)
    }

    /// The first router of the path from here, if the peer is not on the link and there is only one.
    fn gateway(&self, header: &Header) -> Option<IpAddr> {
        let trials = self.trials.iter();
        let mut events = trials.filter_map(|trial| trial.sample.local.events.as_deref());
        let peer: Option<IpAddr> = header.address.parse().ok();
        let gateway = events.find_map(|events| match events.gateways[..] {
            [only] => Some(only),
            _ => None,
        });
        gateway.filter(|gateway| Some(*gateway) != peer)
    }

    fn page(&self, header: &Header, document: &FailoverDocument) -> String {
        let trials = (1..).zip(&document.trials);
        let trials = trials.map(|(number, trial)| TrialView {
            timeline: &trial.timeline,
            details: text::evidence(number, trial),
        });
        let rows = text::rows(&document.summary, &document.trials);
        failover_page(&FailoverPage {
            header,
            local: self.hosts.0,
            remote: self.hosts.1,
            gateway: self.gateway(header),
            answer: text::answers(document),
            head: &text::HEAD,
            rows: rows.into_iter().map(Vec::from).collect(),
            trials: trials.collect(),
            longest: document.longest().map(|(number, _)| number - 1),
        })
    }
}
