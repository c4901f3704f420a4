//! Shared by the rules about RDMA ports, bonds, block devices and the host's software.

use super::{Draft, found, undetermined};
use crate::finding::{Context, Evidence, Outcome, Profile, Remedy, Rule, Severity};
use crate::host::{Nic, RdmaDevice, RdmaPort};
use crate::known::{Gap, Known};
use crate::watch::Watch;

/// The roles in which RDMA matters.
pub(super) const RDMA: &[Profile] = &[Profile::Rdma, Profile::Storage];

/// Why a value is not known. What is absent does not apply here and is not a gap.
pub(super) fn unknown<T>(fact: &Known<T>) -> Option<Gap> {
    let gap = fact.gap()?;
    gap.leaves_a_question().then(|| gap.clone())
}

/// `severity` in the roles concerned, otherwise a note.
pub(super) fn severity_for(
    context: &Context<'_>,
    concerned: &[Profile],
    severity: Severity,
) -> Severity {
    if concerned.contains(&context.profile) {
        severity
    } else {
        Severity::Note
    }
}

/// One observation of a rule about a subject.
pub(super) struct Notice {
    pub(super) severity: Severity,
    summary: String,
    evidence: Vec<Evidence>,
    remedies: Vec<Remedy>,
}

impl Notice {
    pub(super) fn new(severity: Severity, summary: impl Into<String>) -> Self {
        Self {
            severity,
            summary: summary.into(),
            evidence: Vec::new(),
            remedies: Vec::new(),
        }
    }

    pub(super) fn with(mut self, evidence: impl IntoIterator<Item = Evidence>) -> Self {
        self.evidence.extend(evidence);
        self
    }

    pub(super) fn fixed_by(mut self, remedies: impl IntoIterator<Item = Remedy>) -> Self {
        self.remedies.extend(remedies);
        self
    }
}

/// The maximum length of a summary, bytes.
const LINE: usize = 200;

/// All observations about one subject as one finding, the worst first; without any, the skipped checks; without
/// those, nothing.
pub(super) fn judged(
    rule: &Rule,
    context: &Context<'_>,
    subject: String,
    mut notices: Vec<Notice>,
    missing: Vec<Gap>,
) -> Option<Outcome> {
    notices.sort_by_key(|notice| std::cmp::Reverse(notice.severity));
    let Some(worst) = notices.first() else {
        return (!missing.is_empty()).then(|| undetermined(rule, context, subject, missing));
    };
    let severity = worst.severity;
    // Names come from the host and may have any length.
    let mut summary: String = worst.summary.clone();
    while summary.len() > LINE {
        summary.pop();
    }
    for notice in notices.iter().skip(1) {
        if summary.len() + "; ".len() + notice.summary.len() <= LINE {
            summary.push_str("; ");
            summary.push_str(&notice.summary);
        }
    }
    let mut evidence: Vec<Evidence> = Vec::new();
    let mut remedies = Vec::new();
    for notice in notices {
        for one in notice.evidence {
            if !evidence.contains(&one) {
                evidence.push(one);
            }
        }
        remedies.extend(notice.remedies);
    }
    Some(found(
        rule,
        context,
        Draft {
            severity,
            subject,
            summary,
            evidence,
            remedies,
        },
    ))
}

/// Adds that counters were not read, if the rule applies and found nothing without them.
pub(super) fn or_unwatched(
    rule: &Rule,
    context: &Context<'_>,
    applies: bool,
    mut outcomes: Vec<Outcome>,
) -> Vec<Outcome> {
    let found_any = outcomes.iter().any(|o| matches!(o, Outcome::Finding(_)));
    if applies
        && !found_any
        && let Err(said) = super::watched(rule, context)
    {
        outcomes.extend(said);
    }
    outcomes
}

/// Those of `keys` that increased, with their increase.
pub(super) fn grown<'a>(
    watch: &Watch,
    keys: impl IntoIterator<Item = &'a str>,
    full: impl Fn(&str) -> String,
) -> Vec<(&'a str, u64)> {
    keys.into_iter()
        .filter_map(|key| Some((key, watch.grown(&full(key)).get()?)))
        .filter(|(_, by)| *by > 0)
        .collect()
}

/// A counter's increase as evidence.
pub(super) fn growth(watch: &Watch, what: &str, key: &str, by: u64) -> Evidence {
    let value = format!("grew by {by} in {:.1} s", watch.span_ns.as_secs_f64());
    Evidence::new(what, value, watch.path(key))
}

/// A port of an RDMA device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Port<'a> {
    pub(super) device: &'a RdmaDevice,
    pub(super) port: &'a RdmaPort,
}

impl<'a> Port<'a> {
    /// `mlx5_0/1`.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.device.name, self.port.port)
    }

    pub(super) fn subject(&self) -> String {
        format!("rdma/{}", self.name())
    }

    /// The key of one of its counters.
    pub(super) fn key(&self, counter: &str) -> String {
        format!("rdma/{}/{counter}", self.name())
    }

    /// One of its files.
    pub(super) fn file(&self, name: &str) -> String {
        let Self { device, port } = self;
        format!(
            "/sys/class/infiniband/{}/ports/{}/{name}",
            device.name, port.port
        )
    }

    /// `4: ACTIVE` as sysfs prints it, or `ACTIVE`.
    pub(super) fn is_active(&self) -> bool {
        let state = self.port.state.value();
        state.is_some_and(|state| state.ends_with("ACTIVE"))
    }

    pub(super) fn is_infiniband(&self) -> bool {
        let layer = self.port.link_layer.value();
        layer.is_some_and(|layer| layer == "InfiniBand")
    }

    /// Whether it uses RoCE: Ethernet, and not iWARP (`RNIC`), which has neither GID types nor IB MTUs.
    pub(super) fn is_roce(&self) -> bool {
        let layer = self.port.link_layer.value();
        let kind = self.device.node_type.value();
        layer.is_some_and(|layer| layer == "Ethernet")
            && !self.device.is_iwarp()
            && !kind.is_some_and(|kind| kind.contains("usNIC"))
    }

    /// The network interface of the same port.
    pub(super) fn nic(&self, context: &Context<'a>) -> Option<&'a Nic> {
        let of_port = self.port.netdev.value();
        context.host.nics.iter().find(|nic| match of_port {
            Some(name) => nic.name == *name,
            None => nic.rdma.value() == Some(&self.device.name) && self.device.ports.len() == 1,
        })
    }
}

/// The ports to check: those of the requested interface, otherwise all.
pub(super) fn ports<'a>(context: &Context<'a>) -> Vec<Port<'a>> {
    context
        .host
        .rdma
        .iter()
        .flat_map(|device| device.ports.iter().map(move |port| Port { device, port }))
        .filter(|port| {
            context
                .nic
                .is_none_or(|name| port.nic(context).is_some_and(|nic| nic.name == *name))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;

    #[test]
    fn what_was_noticed_is_one_line_with_the_worst_first_and_each_value_once() {
        let host = build::host().build();
        let context = crate::rules::testing::context(&host);
        let rule = &crate::rules::conntrack_cost::RULE;
        let value = Evidence::new("what", 1, "path");
        let notices = vec![
            Notice::new(Severity::Note, "small").with([value.clone()]),
            Notice::new(Severity::Warn, "ü".repeat(90)).with([value.clone()]),
            Notice::new(Severity::Note, "x".repeat(190)).with([value]),
        ];
        let said = judged(rule, &context, "host".to_owned(), notices, Vec::new());
        let Some(Outcome::Finding(finding)) = said else {
            panic!("notices make a finding");
        };
        assert_eq!(finding.severity, Severity::Warn);
        assert_eq!(finding.summary, format!("{}; small", "ü".repeat(90)));
        assert_eq!(finding.evidence.len(), 1);
        let long = vec![Notice::new(Severity::Note, "ü".repeat(300))];
        match judged(rule, &context, "host".to_owned(), long, Vec::new()) {
            Some(Outcome::Finding(finding)) => assert_eq!(finding.summary.len(), LINE),
            other => panic!("a notice makes a finding, not {other:?}"),
        }
        assert_eq!(
            judged(rule, &context, "host".to_owned(), Vec::new(), Vec::new()),
            None
        );
    }
}

#[cfg(test)]
pub(super) mod testing {
    pub(crate) use crate::build::{infiniband, roce};
}
