//! `linerate` without a command: a check of this host in a few seconds. Changes nothing.

use std::time::Duration;

use linerate_model::exit::Outcome;
use linerate_model::finding::{Context, Profile};
use linerate_model::plan::End;
use linerate_model::rules;
use linerate_report::check_text;
use linerate_report::doctor::{CheckedHost, doctor_json};
use linerate_runtime::console::say::{Format, Say};

use crate::commands::watched::Live;

/// How long counters are watched.
const WATCH: Duration = Duration::from_secs(1);

/// Prints the check; as JSON it is the document of `doctor`.
pub(crate) fn run(say: &Say) -> Outcome<()> {
    let live = Live::open()?;
    let host = live.host_with_owners();
    let watch = live.watch(&host, WATCH, "", say)?;
    let diagnosis = rules::diagnose(&Context {
        end: End::Local,
        host: &host,
        nic: None,
        other: None,
        sample: None,
        watch: Some(&watch),
        profile: Profile::Throughput,
        owns_shapers: false,
    });
    let visit = CheckedHost {
        profile: Profile::Throughput,
        watched_s: Some(watch.span_ns.as_secs_f64()),
        is_captured: false,
        diagnosis: &diagnosis,
    };
    match say.format {
        Format::Json => say.json(&doctor_json(&visit)),
        Format::Text | Format::OpenMetrics => say.lines(&check_text(&host, &visit, say.columns())),
    }
}
