//! `linerate doctor`: what is wrong on a host, worst first; and `linerate explain`, why.

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::finding::{Context, Diagnosis, Profile, Rule, Severity, Stage, Status};
use linerate_model::host::Host;
use linerate_model::plan::End;
use linerate_model::rules::{self, RULES};
use linerate_model::watch::Watch;
use linerate_report::doctor::{CheckedHost, doctor_json, doctor_junit, doctor_sarif, doctor_text};
use linerate_report::metrics::doctor_metrics;
use linerate_runtime::cli::{DoctorArgs, FormatArg};
use linerate_runtime::console::say::{Format, Say};
use linerate_runtime::endpoint::host_source::check_nic;
use serde::Serialize;

use crate::commands::watched::read_watched;
use crate::metrics::{MetricsOutput, provenance};

/// `linerate doctor`.
pub(crate) fn run(
    args: &DoctorArgs,
    format: FormatArg,
    metrics: &MetricsOutput<'_>,
    say: &Say,
) -> Outcome<Code> {
    let (host, watch) = read_watched(args, say)?;
    check_nic(&host, args.nic.as_ref())?;
    let diagnosis = diagnose(args, &host, watch.as_ref());
    let visit = CheckedHost {
        profile: args.role,
        watched_s: watch.as_ref().map(|watch| watch.span_ns.as_secs_f64()),
        is_captured: args.from.is_some(),
        diagnosis: &diagnosis,
    };
    match format {
        FormatArg::Json => say.json(&doctor_json(&visit))?,
        FormatArg::Sarif => say.json(&doctor_sarif(&visit))?,
        FormatArg::Junit => say.data(&doctor_junit(&visit))?,
        FormatArg::Text | FormatArg::Dot | FormatArg::Svg | FormatArg::Iperf3Json => {
            say.lines(&doctor_text(&visit, args.verbose, say.columns()))?;
        }
        FormatArg::Openmetrics => {}
    }
    metrics.publish(say, true, || {
        Ok(doctor_metrics(&visit, args.nic.as_ref(), &provenance()))
    })?;
    let worst = diagnosis
        .findings
        .iter()
        .map(|finding| finding.severity)
        .max();
    match (worst, args.fail_on.0) {
        (Some(worst), Some(limit)) if worst >= limit => Ok(Code::Findings),
        _ => Ok(Code::Done),
    }
}

fn diagnose(args: &DoctorArgs, host: &Host, watch: Option<&Watch>) -> Diagnosis {
    rules::diagnose(&Context {
        end: End::Local,
        host,
        nic: args.nic.as_ref(),
        other: None,
        sample: None,
        watch,
        profile: args.role,
        owns_shapers: false,
    })
}

/// `linerate explain`.
pub(crate) fn explain(topic: &str, say: &Say) -> Outcome<()> {
    let is_json = say.format == Format::Json;
    match topic {
        "rules" if is_json => return say.json(&RulesDocument::all()),
        "rules" => return say.data(&rules_text()),
        "exit-codes" => {
            return page(
                "exit-codes",
                include_str!("../../../../docs/reference/exit-codes.md"),
                say,
            );
        }
        "settings" => return page("settings", &crate::commands::settings_page::page(), say),
        _ => {}
    }
    if let Some(text) = crate::commands::settings_page::one(topic) {
        return page(topic, &text, say);
    }
    if let Some(text) = super::words::experiment(topic) {
        return page(topic, &text, say);
    }
    let Some(found) = rules::find(topic) else {
        if let Some(text) = super::words::word(topic) {
            return page(topic, &text, say);
        }
        let near = near_rules(topic);
        let hint = if near.is_empty() {
            "`linerate explain rules` lists the rules, `explain settings` the settings, `lab list` the experiments"
                .to_owned()
        } else {
            let rest = "`linerate explain rules` lists all";
            format!("similar: {}; {rest}", near.join(", "))
        };
        return Err(Stop::new(
            Code::BadInput,
            format!("no such rule, setting or experiment: `{topic}`"),
        )
        .hint(hint));
    };
    if is_json {
        return say.json(&RuleDocument::from(*found));
    }
    say.data(found.page)
}

/// Rules that share words with what was typed: those that share most, at most five. Words match
/// by their first three letters, so `irqs` finds those of `irq`.
fn near_rules(topic: &str) -> Vec<&'static str> {
    let words = |text: &'_ str| -> Vec<String> {
        let split = text.split(|c: char| !c.is_alphanumeric());
        split
            .map(str::to_lowercase)
            .filter(|word| !word.is_empty())
            .collect()
    };
    let is_alike = |one: &str, other: &str| {
        one == other
            || one
                .get(..3)
                .is_some_and(|start| other.get(..3) == Some(start))
    };
    let typed = words(topic);
    let shared = |rule: &Rule| {
        let id = words(rule.id);
        let found = typed
            .iter()
            .filter(|word| id.iter().any(|own| is_alike(word, own)));
        found.count()
    };
    let mut near: Vec<(usize, &'static str)> = RULES
        .iter()
        .map(|rule| (shared(rule), rule.id))
        .filter(|(shared, _)| *shared > 0)
        .collect();
    near.sort_by_key(|(shared, _)| std::cmp::Reverse(*shared));
    near.into_iter().map(|(_, id)| id).take(NEAR_MAX).collect()
}

/// Rules that are suggested.
const NEAR_MAX: usize = 5;

/// What `linerate explain RULE --format json` prints.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RuleDocument {
    schema: &'static str,
    /// A rule's id; linerate explain ID.
    id: &'static str,
    /// Its number: 1 to 80 in the catalog, from 101 for linerate's own rules.
    number: u8,
    title: &'static str,
    /// The worst severity that it reports.
    severity: Severity,
    /// Its place in the order of rules, and of testing their remedies.
    stage: Stage,
    /// The roles in which it is active.
    profiles: &'static [Profile],
    threshold: &'static str,
    /// The expected effect of the fix, with its source.
    effect: &'static str,
    source: &'static str,
    /// How a remedy is made persistent across reboots.
    persist: &'static str,
    /// Where sources disagree, both positions: measure the remedy; null where they agree.
    contested: Option<&'static str>,
    /// The page of docs/rules, Markdown.
    page: &'static str,
}

impl From<Rule> for RuleDocument {
    fn from(rule: Rule) -> Self {
        Self {
            schema: "linerate.rule/1",
            id: rule.id,
            number: rule.number,
            title: rule.title,
            severity: rule.severity,
            stage: rule.stage,
            profiles: rule.profiles,
            threshold: rule.threshold,
            effect: rule.effect,
            source: rule.source,
            persist: rule.persist,
            contested: rule.contested,
            page: rule.page,
        }
    }
}

/// What `linerate explain settings --format json` and `linerate explain exit-codes --format json` print.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct TopicDocument<'a> {
    schema: &'static str,
    #[cfg_attr(test, schemars(extend("enum" = ["settings", "exit-codes"])))]
    topic: &'a str,
    /// The page, Markdown.
    page: &'a str,
}

fn page(topic: &str, text: &str, say: &Say) -> Outcome<()> {
    if say.format == Format::Json {
        return say.json(&TopicDocument {
            schema: "linerate.page/1",
            topic,
            page: text,
        });
    }
    say.data(text)
}

/// All rules, one a line.
fn rules_text() -> String {
    let line = |rule: &&Rule| {
        let number = rule
            .catalogue_number()
            .map_or_else(|| "+".to_owned(), |number| number.to_string());
        let more = match rule.status {
            Status::Implemented => String::new(),
            Status::AdviceOnly | Status::InPart(_) => format!(" ({})", rule.status),
        };
        let Rule { id, title, .. } = rule;
        let severity = rule.severity.to_string();
        format!("{number:>3}  {id:<36} {severity:<4}  {title}{more}")
    };
    RULES.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// What `linerate explain rules --format json` prints: the catalog with the status of each rule, then linerate's own
/// rules.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RulesDocument {
    schema: &'static str,
    rules: Vec<ListedRule>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ListedRule {
    /// Its number in the catalog; null for linerate's own rules.
    number: Option<u8>,
    /// A rule's id; linerate explain ID.
    id: &'static str,
    /// Whether it covers everything in the catalog, a part of it, or gives advice only.
    #[cfg_attr(test, schemars(extend("enum" = ["implemented", "in-part", "advice-only"])))]
    status: &'static str,
    /// What a rule that is implemented in part does not cover.
    missing: Option<&'static str>,
    title: &'static str,
    /// The worst severity that it reports.
    severity: Severity,
    /// Its place in the order of rules, and of testing their remedies.
    stage: Stage,
    /// The roles in which it is active.
    profiles: &'static [Profile],
    threshold: &'static str,
}

impl RulesDocument {
    fn all() -> Self {
        Self {
            schema: "linerate.rules/1",
            rules: RULES.iter().map(|rule| ListedRule::from(**rule)).collect(),
        }
    }
}

impl From<Rule> for ListedRule {
    fn from(rule: Rule) -> Self {
        let (status, missing) = match rule.status {
            Status::Implemented => ("implemented", None),
            Status::AdviceOnly => ("advice-only", None),
            Status::InPart(missing) => ("in-part", Some(missing)),
        };
        Self {
            number: rule.catalogue_number(),
            id: rule.id,
            status,
            missing,
            title: rule.title,
            severity: rule.severity,
            stage: rule.stage,
            profiles: rule.profiles,
            threshold: rule.threshold,
        }
    }
}
