//! Injected faults compared with the doctor's findings: recall and precision of each rule.

use std::collections::{BTreeMap, BTreeSet};

use linerate_model::finding::{Context, Diagnosis, Finding, Profile, Severity};
use linerate_model::host::Host;
use linerate_model::plan::End;
use linerate_model::rules;

use crate::data::{Fault, NO_RULE, Stated};
use crate::shapes::WatchedHost;

/// Every profile, worst known first in no order.
pub(crate) const PROFILES: [Profile; 7] = [
    Profile::Throughput,
    Profile::Latency,
    Profile::Forwarding,
    Profile::Rdma,
    Profile::Storage,
    Profile::Mixed,
    Profile::Measurement,
];

/// What was found and what not of one rule.
#[derive(Debug, Default, Clone, Copy)]
struct Tally {
    planted: usize,
    found: usize,
    /// Its right findings of warn or worse.
    right: usize,
    /// Its wrong ones.
    wrong: usize,
}

/// The faults written without knowledge of the rules, and the healthy hosts that came with them.
#[derive(Debug, Default)]
struct Fresh {
    tally: Tally,
    /// Missed, but the rule reported that its check was skipped.
    skipped: usize,
    /// No rule reports such a fault.
    without_rule: usize,
    healthy: usize,
}

/// The figures as they grow.
#[derive(Debug, Default)]
pub(crate) struct Score {
    rules: BTreeMap<String, Tally>,
    shapes: BTreeSet<String>,
    healthy: usize,
    fresh: Fresh,
    /// Each miss and each false alarm, as text.
    pub(crate) complaints: Vec<String>,
    /// Correct findings on healthy hosts.
    pub(crate) stated: Vec<String>,
}

/// The doctor's diagnosis of a host.
pub(crate) fn ask(seen: &WatchedHost, other: Option<&Host>, profile: Profile) -> Diagnosis {
    let context = Context {
        end: End::Local,
        host: &seen.host,
        nic: None,
        other,
        sample: None,
        watch: seen.watch.as_ref(),
        profile,
        owns_shapers: false,
    };
    rules::diagnose(&context)
}

fn is_loud(finding: &Finding) -> bool {
    finding.severity >= Severity::Warn
}

fn same(one: &Finding, other: &Finding) -> bool {
    one.rule == other.rule
        && one.subject == other.subject
        && one.severity == other.severity
        && one.summary == other.summary
}

impl Score {
    /// One fault: the diagnoses before and after it was injected.
    pub(crate) fn take(&mut self, fault: &Fault, before: &Diagnosis, after: &Diagnosis) {
        self.shapes.insert(fault.shape.clone());
        let is_new = |finding: &&Finding| !before.findings.iter().any(|old| same(old, finding));
        let new: Vec<&Finding> = after.findings.iter().filter(is_new).collect();
        let is_it = |finding: &Finding| {
            finding.rule == fault.rule
                && finding.subject == fault.subject
                && finding.severity >= fault.severity
        };
        let is_found = new.iter().any(|finding| is_it(finding));
        let tally = self.rules.entry(fault.rule.clone()).or_default();
        tally.planted += 1;
        tally.found += usize::from(is_found);
        if !is_found {
            let said = what_was_said(fault, &new, after);
            self.complaints.push(format!(
                "MISSED {} on {} ({} of {}): {}. Reported: {said}",
                fault.rule, fault.shape, fault.severity, fault.subject, fault.what
            ));
        }
        if fault.fresh {
            let is_skipped = after.undetermined.iter().any(|one| one.rule == fault.rule);
            self.fresh.tally.planted += 1;
            self.fresh.tally.found += usize::from(is_found);
            self.fresh.skipped += usize::from(!is_found && is_skipped);
            self.fresh.without_rule += usize::from(fault.rule == NO_RULE);
        }
        for finding in new.into_iter().filter(|finding| is_loud(finding)) {
            let of_rule = finding.rule == fault.rule && finding.subject == fault.subject;
            let is_right = of_rule || fault.also.contains(&finding.rule);
            let tally = self.rules.entry(finding.rule.clone()).or_default();
            let right = usize::from(is_right);
            tally.right += right;
            tally.wrong += 1 - right;
            if fault.fresh {
                self.fresh.tally.right += right;
                self.fresh.tally.wrong += 1 - right;
            }
            if !is_right {
                self.complaints.push(format!(
                    "FALSE on {}, where only this is wrong: {}. Reported: {}",
                    fault.shape,
                    fault.what,
                    line(finding)
                ));
            }
        }
    }

    /// A healthy host, in every profile.
    pub(crate) fn take_healthy(
        &mut self,
        name: &str,
        seen: &WatchedHost,
        stated: &[Stated],
        is_fresh: bool,
    ) {
        self.healthy += 1;
        self.fresh.healthy += usize::from(is_fresh);
        let mut told = BTreeSet::new();
        for profile in PROFILES {
            for finding in ask(seen, None, profile)
                .findings
                .iter()
                .filter(|all| is_loud(all))
            {
                let is_stated = |one: &&Stated| one.rule == finding.rule && one.profile == profile;
                if let Some(why) = stated.iter().find(is_stated) {
                    self.stated.push(format!(
                        "{name}, {profile:?}: {}. Right: {}",
                        line(finding),
                        why.why
                    ));
                } else if told.insert((finding.rule.clone(), finding.subject.clone())) {
                    self.rules.entry(finding.rule.clone()).or_default().wrong += 1;
                    self.fresh.tally.wrong += usize::from(is_fresh);
                    self.complaints.push(format!(
                        "FALSE on the healthy {name}, {profile:?}: {}",
                        line(finding)
                    ));
                }
            }
        }
    }

    /// The table, and recall and precision of all.
    pub(crate) fn table(&self) -> (String, f64, f64) {
        let mut all = Tally::default();
        let mut text = format!(
            "{:<36} {:>7} {:>6} {:>7} {:>6} {:>6} {:>10}\n",
            "rule", "faults", "found", "recall", "right", "wrong", "precision"
        );
        for (rule, tally) in &self.rules {
            text += &row(rule, tally);
            all.planted += tally.planted;
            all.found += tally.found;
            all.right += tally.right;
            all.wrong += tally.wrong;
        }
        text += &row("all", &all);
        let tested = self
            .rules
            .values()
            .filter(|tally| tally.planted > 0)
            .count();
        let sum = format!(
            "\n{} faults of {tested} rules on {} shapes; {} healthy shapes in {} profiles each\n",
            all.planted,
            self.shapes.len(),
            self.healthy,
            PROFILES.len()
        );
        text.push_str(&sum);
        text.push_str(&self.fresh_line());
        (
            text,
            share(all.found, all.planted),
            share(all.right, all.right + all.wrong),
        )
    }
}

impl Score {
    /// The score of the faults that were written without knowledge of the rules.
    fn fresh_line(&self) -> String {
        let Fresh {
            tally,
            skipped,
            without_rule,
            healthy,
        } = &self.fresh;
        if tally.planted == 0 {
            return String::new();
        }
        format!(
            "fresh: {} of {} found ({:.1} %), {} missed ({without_rule} without a rule, {skipped} checks skipped); \
             {} of {} warnings right, {healthy} healthy hosts\n",
            tally.found,
            tally.planted,
            100.0 * share(tally.found, tally.planted),
            tally.planted - tally.found,
            tally.right,
            tally.right + tally.wrong,
        )
    }
}

/// What the doctor reported instead of the expected finding.
fn what_was_said(fault: &Fault, new: &[&Finding], after: &Diagnosis) -> String {
    let unsure = after
        .undetermined
        .iter()
        .filter(|one| one.rule == fault.rule);
    let unsure = unsure.flat_map(|one| &one.missing);
    let said: Vec<String> = new
        .iter()
        .map(|finding| line(finding))
        .chain(unsure.map(|gap| format!("check skipped: {gap}")))
        .collect();
    if said.is_empty() {
        "no new finding".to_owned()
    } else {
        said.join("; ")
    }
}

fn line(finding: &Finding) -> String {
    format!(
        "{} {} {}: {}",
        finding.severity, finding.rule, finding.subject, finding.summary
    )
}

#[expect(clippy::cast_precision_loss, reason = "a few hundred faults")]
fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 {
        1.0
    } else {
        part as f64 / whole as f64
    }
}

/// A rule that gave no loud finding (all of its faults are notes) has no precision.
fn row(name: &str, tally: &Tally) -> String {
    let percent = |part, whole| match whole {
        0 => "-".to_owned(),
        whole => format!("{:.1} %", 100.0 * share(part, whole)),
    };
    format!(
        "{name:<36} {:>7} {:>6} {:>7} {:>6} {:>6} {:>10}\n",
        tally.planted,
        tally.found,
        percent(tally.found, tally.planted),
        tally.right,
        tally.wrong,
        percent(tally.right, tally.right + tally.wrong)
    )
}
