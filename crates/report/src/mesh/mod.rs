//! A mesh as text and as a page, and how a named host differs from most others.

mod differs;
mod page;
mod text;

pub use differs::{HostFacts, add_differences};
pub use page::mesh_page;
pub use text::mesh_text;

use linerate_analysis::mesh::{Effect, Loss, MeshDocument, Named, RateUnit, What};
use linerate_analysis::text::words::count;
use linerate_model::mesh::Failure;

use crate::figures;

/// A rate in the unit of the mesh.
fn rate(unit: RateUnit, value: f64) -> String {
    match unit {
        RateUnit::BitPerSecond => figures::rate(value),
        RateUnit::PerSecond => format!("{value:.0}/s"),
    }
}

fn percent(ratio: f64) -> String {
    format!("{:.1} %", ratio * 100.0)
}

/// `15.2 % (95 % CI 12.1 to 18.0 %)` less.
fn less(effect: &Effect) -> String {
    format!(
        "{} less ({:.1} % CI {:.1} to {:.1} %)",
        percent(-effect.relative),
        effect.level * 100.0,
        -effect.high * 100.0,
        -effect.low * 100.0
    )
}

/// `0.51 % of segments retransmitted (95 % CI 0.42 to 0.61 %, most hosts 0 %)`.
fn retransmitted(loss: &Loss) -> String {
    format!(
        "{:.2} % of segments retransmitted ({:.1} % CI {:.2} to {:.2} %; most hosts: {:.2} %)",
        loss.share * 100.0,
        loss.level * 100.0,
        loss.low * 100.0,
        loss.high * 100.0,
        loss.most * 100.0
    )
}

fn failure(failure: Failure) -> &'static str {
    match failure {
        Failure::Connect => "the data connection is not established",
        Failure::Stalled => "no data arrives (packet loss, MTU black hole)",
        Failure::Broken => "the data connection breaks",
        Failure::Deadline => "trials do not end (packet loss, MTU black hole)",
    }
}

/// What is named, in one line.
fn headline(named: &Named) -> String {
    let host = named.host.as_deref().unwrap_or_default();
    let to = named.to.as_deref().unwrap_or_default();
    let group = named
        .group
        .as_ref()
        .map(ToString::to_string)
        .unwrap_or_default();
    let subject = match named.what {
        What::HostSend | What::AdapterSend => format!("{host} sends"),
        What::HostReceive | What::AdapterReceive => format!("{host} receives"),
        What::Direction => format!("{host} to {to}:"),
        What::Pair => format!("{host} to {to} and back:"),
        What::GroupSend => format!("{group} sends"),
        What::GroupReceive => format!("{group} receives"),
        What::LossSend => format!("from {host}:"),
        What::LossReceive => format!("to {host}:"),
    };
    let loss = named.loss.as_ref().filter(|_| named.effect.is_none());
    if let Some(loss) = loss {
        return format!("{subject} {}", retransmitted(loss));
    }
    match (&named.effect, named.failure) {
        (Some(effect), _) => format!("{subject} {}", less(effect)),
        (None, Some(kind)) => format!("{}: {}", subject.trim_end_matches(':'), failure(kind)),
        (None, None) => subject,
    }
}

/// The evidence of a name, line by line.
fn evidence(named: &Named) -> Vec<String> {
    let mut lines = Vec::new();
    let first = named.first.map_or_else(String::new, |first| {
        format!("; {} less before it", percent(-first))
    });
    lines.push(format!("retest: {}{first}", count(named.results, "result")));
    if let (Some(loss), true) = (&named.loss, named.effect.is_some()) {
        lines.push(retransmitted(loss));
    }
    if matches!(named.what, What::LossSend | What::LossReceive) {
        lines.push("the rate is not lower".to_owned());
    }
    if matches!(named.what, What::AdapterSend | What::AdapterReceive) {
        lines.push("another NIC of this host is not slow".to_owned());
    }
    if !named.members.is_empty() {
        lines.push(format!("hosts: {}", named.members.join(", ")));
    }
    for finding in &named.findings {
        lines.push(format!(
            "{}: {} ({})",
            finding.rule, finding.summary, finding.subject
        ));
    }
    let value = |value: &Option<serde_json::Value>| match value {
        Some(serde_json::Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => "none".to_owned(),
    };
    for one in &named.differs {
        lines.push(format!(
            "{}: {} (most: {}, {})",
            one.key,
            value(&one.value),
            value(&one.most),
            count(one.hosts, "host")
        ));
    }
    lines
}

/// The result in one line.
fn result(document: &MeshDocument) -> String {
    use linerate_analysis::mesh::HostVerdict::{Named, NotTried, Ok, Unreached};
    format!(
        "{}: {} ok, {} named, {} unreached, {} not tried",
        count(document.hosts.len(), "host"),
        document.count(Ok),
        document.count(Named),
        document.count(Unreached),
        document.count(NotTried)
    )
}

#[cfg(test)]
mod tests;
