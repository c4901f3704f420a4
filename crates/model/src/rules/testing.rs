//! Helpers for the tests of all rules.

use super::*;
use crate::build::{self, WatchBuilder};
use crate::sample::Sample;

/// The input of a rule in tests: a whole context that owns its parts.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(super) host: Host,
    pub(super) other: Option<Host>,
    pub(super) sample: Option<Sample>,
    pub(super) watch: Option<Watch>,
    end: End,
    profile: Profile,
    owns_shapers: bool,
}

impl World {
    /// The local end of `host` alone, for bulk transfer, without counters.
    pub(crate) fn of(host: Host) -> Self {
        Self {
            host,
            other: None,
            sample: None,
            watch: None,
            end: End::Local,
            profile: Profile::Throughput,
            owns_shapers: false,
        }
    }

    /// The role of the host.
    pub(crate) fn profile(self, profile: Profile) -> Self {
        Self { profile, ..self }
    }

    /// Its counters over ten seconds: unchanged, except for `change`.
    pub(crate) fn watched(self, change: impl FnOnce(WatchBuilder) -> WatchBuilder) -> Self {
        let watch = Some(change(build::watch(&self.host)).build());
        Self { watch, ..self }
    }

    /// The host at the other end.
    pub(crate) fn towards(self, other: Host) -> Self {
        let other = Some(other);
        Self { other, ..self }
    }

    /// A trial over the path.
    pub(crate) fn tried(self, sample: Sample) -> Self {
        let sample = Some(sample);
        Self { sample, ..self }
    }

    /// The same as the remote end.
    pub(crate) fn remote(self) -> Self {
        let end = End::Remote;
        Self { end, ..self }
    }

    /// The context.
    pub(crate) fn context(&self) -> Context<'_> {
        Context {
            end: self.end,
            host: &self.host,
            nic: None,
            other: self.other.as_ref(),
            sample: self.sample.as_ref(),
            watch: self.watch.as_ref(),
            profile: self.profile,
            owns_shapers: self.owns_shapers,
        }
    }
}

/// A test case of a rule: a name, and its input.
pub(crate) type Case = (&'static str, fn() -> World);

/// Where a rule fires, where it does not, and where it is skipped: at least one of each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cases {
    pub(crate) fires: &'static [Case],
    pub(crate) silent: &'static [Case],
    pub(crate) undetermined: &'static [Case],
}

/// A context of the local end of `host` alone, for bulk transfer.
pub(crate) fn context(host: &Host) -> Context<'_> {
    Context {
        end: End::Local,
        host,
        nic: None,
        other: None,
        sample: None,
        watch: None,
        profile: Profile::Throughput,
        owns_shapers: false,
    }
}

/// The same with a trial towards `other`.
pub(crate) fn with_trial<'a>(host: &'a Host, other: &'a Host, sample: &'a Sample) -> Context<'a> {
    Context {
        other: Some(other),
        sample: Some(sample),
        ..context(host)
    }
}

/// The only finding of a rule.
pub(crate) fn finding(id: &str, context: &Context<'_>) -> Finding {
    let rule = find(id).expect("a rule of the list");
    match judge(rule, context).as_slice() {
        [Outcome::Finding(finding)] => finding.clone(),
        other => panic!("{id}: expected one finding, got {other:?}"),
    }
}

/// The gaps of a skipped rule.
pub(crate) fn missing(id: &str, context: &Context<'_>) -> Vec<Gap> {
    let rule = find(id).expect("a rule of the list");
    match judge(rule, context).as_slice() {
        [Outcome::Undetermined(unknown)] => unknown.missing.clone(),
        other => panic!("{id}: expected that it cannot judge, got {other:?}"),
    }
}

/// Whether a rule has no outcome.
pub(crate) fn silent(id: &str, context: &Context<'_>) -> bool {
    judge(find(id).expect("a rule of the list"), context).is_empty()
}

/// The remedies of a finding as text.
pub(crate) fn remedies(finding: &Finding) -> Vec<String> {
    finding
        .remedies
        .iter()
        .map(|remedy| remedy.change.to_string())
        .collect()
}
