//! `linerate doctor`: what is wrong on a host, worst first; and `linerate explain`, why.

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::finding::{Context, Diagnosis, Rule, Status};
use linerate_model::host::Host;
use linerate_model::plan::End;
use linerate_model::rules::{self, RULES};
use linerate_model::watch::Watch;
use linerate_report::doctor::{CheckedHost, doctor_json, doctor_junit, doctor_sarif, doctor_text};
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::{DoctorArgs, FormatArg};
use crate::commands::watched::read_watched;
use crate::console::say::{Format, Say};
use crate::endpoint::host_source::check_nic;

/// `linerate doctor`.
pub(crate) fn run(args: &DoctorArgs, format: FormatArg, say: &Say) -> Outcome<Code> {
    let (host, watch) = read_watched(args, say)?;
    check_nic(&host, args.nic.as_ref())?;
    let diagnosis = diagnose(args, &host, watch.as_ref());
    let visit = CheckedHost {
        profile: args.role,
        watched_s: watch.as_ref().map(|watch| watch.span_ns.as_secs_f64()),
        diagnosis: &diagnosis,
    };
    match format {
        FormatArg::Json => say.json(&doctor_json(&visit))?,
        FormatArg::Sarif => say.json(&doctor_sarif(&visit))?,
        FormatArg::Junit => say.data(&doctor_junit(&visit))?,
        FormatArg::Text | FormatArg::Dot | FormatArg::Svg | FormatArg::Iperf3Json => {
            say.lines(&doctor_text(&visit, args.verbose, say.columns()))?;
        }
    }
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
        "rules" if is_json => return say.json(&rules_json()),
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
    let Some(found) = rules::find(topic) else {
        return Err(
            Stop::new(Code::BadInput, format!("no such rule: `{topic}`"))
                .hint("`linerate explain rules` lists the rules"),
        );
    };
    if is_json {
        return say.json(&json!({
            "schema": "linerate.rule/1",
            "id": found.id,
            "number": found.number,
            "title": found.title,
            "severity": found.severity,
            "stage": found.stage,
            "profiles": found.profiles,
            "threshold": found.threshold,
            "effect": found.effect,
            "source": found.source,
            "persist": found.persist,
            "contested": found.contested,
            "page": found.page,
        }));
    }
    say.data(found.page)
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

fn rules_json() -> Value {
    let one = |rule: &&Rule| {
        let (word, missing) = match rule.status {
            Status::Implemented => ("implemented", None),
            Status::AdviceOnly => ("advice-only", None),
            Status::InPart(missing) => ("in-part", Some(missing)),
        };
        json!({
            "number": rule.catalogue_number(),
            "id": rule.id,
            "status": word,
            "missing": missing,
            "title": rule.title,
            "severity": rule.severity,
            "stage": rule.stage,
            "profiles": rule.profiles,
            "threshold": rule.threshold,
        })
    };
    json!({
        "schema": "linerate.rules/1",
        "rules": RULES.iter().map(one).collect::<Vec<_>>(),
    })
}
