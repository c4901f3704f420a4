//! `linerate map`: the picture of a host, every fact with its place, and what differs between two.

use linerate_model::activity::{Activity, activity};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::Host;
use linerate_report::doctor::Missing;
use linerate_report::flat::{Change, Fact, changes, facts, shown};
use linerate_report::{self as report, MapDocument, MapExtras, WatchDocument};
use linerate_runtime::cli::{FormatArg, MapArgs};
use linerate_runtime::console::say::Say;
use linerate_runtime::endpoint::host_source::{check_nic, host_from};
use serde::Serialize;
use serde_json::Value;

use crate::commands::memory::{matrix, memory_cells, memory_text};
use crate::commands::watched::Live;

/// `linerate map`.
pub(crate) fn run(args: &MapArgs, format: FormatArg, say: &Say) -> Outcome<()> {
    if !args.diff.is_empty() {
        return diff(args, format, say);
    }
    if args.memory || !args.watch.is_zero() {
        no_picture(format)?;
    }
    let (whole, activity) = read(args, say)?;
    let host = one(args, whole.clone())?;
    if args.why {
        return why(&host, format, say);
    }
    let memory = if args.memory {
        Some(matrix(&host, say)?)
    } else {
        None
    };
    match format {
        FormatArg::Json => say.json(&MapDocument {
            host: &host,
            memory: memory.as_deref().map(memory_cells),
            watch: activity.as_ref().map(WatchDocument::from),
        }),
        FormatArg::Dot => say.data(&report::map_dot(&host)),
        FormatArg::Svg => say.data(&report::map_svg(&host)),
        FormatArg::Text
        | FormatArg::Sarif
        | FormatArg::Junit
        | FormatArg::Iperf3Json
        | FormatArg::Openmetrics => {
            let beside = MapExtras {
                whole: args.nic.is_some().then_some(&whole),
                activity: activity.as_ref(),
            };
            say.data(&report::map_text_with(&host, &beside))?;
            memory.map_or(Ok(()), |rows| say.data(&memory_text(&rows)))
        }
    }
}

/// The host, and what it did where that is asked.
fn read(args: &MapArgs, say: &Say) -> Outcome<(Host, Option<Activity>)> {
    if args.watch.is_zero() {
        return Ok((host_from(args.from.as_deref())?, None));
    }
    let live = Live::open()?;
    let host = live.host();
    let shown = one(args, host.clone())?;
    let watch = live.watch(&shown, args.watch, "", say)?;
    Ok((host, Some(activity(&shown, &watch))))
}

/// The host, with only the interface that was requested.
fn one(args: &MapArgs, mut host: Host) -> Outcome<Host> {
    check_nic(&host, args.nic.as_ref())?;
    if let Some(name) = &args.nic {
        host.nics.retain(|nic| nic.name == *name);
    }
    Ok(host)
}

fn no_picture(format: FormatArg) -> Outcome<()> {
    if matches!(format, FormatArg::Dot | FormatArg::Svg) {
        return Err(Stop::new(
            Code::Usage,
            "`--why`, `--memory` and `--watch` support only text and json",
        ));
    }
    Ok(())
}

/// Every fact with its place.
fn why(host: &Host, format: FormatArg, say: &Say) -> Outcome<()> {
    no_picture(format)?;
    let all = facts(host);
    if format == FormatArg::Json {
        let list = all.iter().map(|(key, fact)| ShownFact::of(key, fact));
        return say.json(&FactsDocument {
            schema: "linerate.facts/1",
            facts: list.collect(),
        });
    }
    let lines = all.iter().map(|(key, fact)| match &fact.value {
        Ok(value) => format!("{key} = {}  [{}]", shown(value), fact.source),
        Err(gap) => format!(
            "{key} = ? ({}: {})  [{}]",
            gap.cause, gap.reason, fact.source
        ),
    });
    say.data(&lines.collect::<Vec<_>>().join("\n"))
}

/// What `linerate map --why --format json` prints: every fact of a host with its source.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct FactsDocument<'a> {
    schema: &'static str,
    facts: Vec<ShownFact<'a>>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ShownFact<'a> {
    /// The path within the host: nics/eth2/mtu.
    key: &'a str,
    /// The value, as in `linerate map --format json`; null if it is not known.
    value: Option<&'a Value>,
    /// Why it is not known; null if it is.
    gap: Option<Missing<'a>>,
    /// The file or request that it comes from.
    source: &'a str,
}

impl<'a> ShownFact<'a> {
    fn of(key: &'a str, fact: &'a Fact) -> Self {
        Self {
            key,
            value: fact.value.as_ref().ok(),
            gap: fact.value.as_ref().err().map(Missing::from),
            source: &fact.source,
        }
    }
}

/// What `linerate map --diff A B --format json` prints: the facts that differ between two hosts, or between two times on
/// one.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DiffDocument<'a> {
    schema: &'static str,
    changes: Vec<ShownChange<'a>>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct ShownChange<'a> {
    /// The path within the host: nics/eth2/mtu.
    key: &'a str,
    /// The fact on the first host; null if it has no such fact.
    from: Option<ShownFact<'a>>,
    /// The fact on the second host; null if it has no such fact.
    to: Option<ShownFact<'a>>,
}

impl<'a> From<&'a Change> for ShownChange<'a> {
    fn from(change: &'a Change) -> Self {
        let side = |fact: &'a Option<Fact>| {
            let fact = fact.as_ref();
            fact.map(|fact| ShownFact::of(&change.key, fact))
        };
        Self {
            key: &change.key,
            from: side(&change.from),
            to: side(&change.to),
        }
    }
}

/// The differences between two hosts, or between two captures of one.
fn diff(args: &MapArgs, format: FormatArg, say: &Say) -> Outcome<()> {
    no_picture(format)?;
    let read = |place: Option<&std::path::PathBuf>| {
        one(args, host_from(place.map(std::path::PathBuf::as_path))?)
    };
    let before = read(args.diff.first())?;
    let after = read(args.diff.get(1))?;
    let all = changes(&before, &after);
    if format == FormatArg::Json {
        return say.json(&DiffDocument {
            schema: "linerate.map-diff/1",
            changes: all.iter().map(ShownChange::from).collect(),
        });
    }
    if all.is_empty() {
        return say.data("no differences");
    }
    say.data(&all.iter().map(change_line).collect::<Vec<_>>().join("\n"))
}

fn change_line(change: &Change) -> String {
    let side = |fact: &Option<Fact>| match fact.as_ref().map(|fact| &fact.value) {
        Some(Ok(value)) => shown(value),
        Some(Err(gap)) => format!("? ({})", gap.cause),
        None => "none".to_owned(),
    };
    format!(
        "{}: {} -> {}",
        change.key,
        side(&change.from),
        side(&change.to)
    )
}
