//! A link of the path that went down during the trial: nothing else that waited in that time limited it.

use super::{LimitKind, Named, Trial};
use crate::analysis::OneWay;
use crate::end::End;
use crate::finding::Evidence;
use crate::sample::{FlowRecord, SideSample};
use crate::threshold;
use crate::units::{Nanoseconds, Ratio, real};

/// The counter of an interface whose increase shows that its link went down or up
/// (Documentation/ABI/testing/sysfs-class-net).
const CARRIER_CHANGES: &str = "/stat/carrier_changes";

/// A link that went down while the receiver of a direction got nothing for a considerable part of the trial.
pub(super) fn by_link(trial: &Trial<'_>, ways: &[OneWay<'_>]) -> Option<Named> {
    let mut evidence: Vec<Evidence> = [End::Local, End::Remote]
        .into_iter()
        .flat_map(|end| changes(end, trial.side(end)))
        .collect();
    if evidence.is_empty() {
        return None;
    }
    let stalled = ways.iter().map(|way| stall(way.receiver));
    let (time, elapsed) = stalled.max()?;
    if elapsed == Nanoseconds::new(0) {
        return None;
    }
    let share = Ratio::new(real(time.as_u64()) / real(elapsed.as_u64()));
    if share < threshold::STALLED_SHARE {
        return None;
    }
    evidence.insert(
        0,
        Evidence::new("nothing received", format!("{time} of {elapsed}"), "flows"),
    );
    Some(Named {
        what: LimitKind::LinkDown,
        rule: None,
        evidence,
        threshold: format!(
            "a link of the path went down, and nothing was received for at least {} of the trial",
            threshold::STALLED_SHARE
        ),
    })
}

/// The interfaces of an end whose carrier changed.
fn changes(end: End, side: &SideSample) -> Vec<Evidence> {
    let keys = side.counters.value().into_iter().flat_map(|watch| {
        let keys = watch.counters.keys();
        keys.filter(|key| key.starts_with("nic/") && key.ends_with(CARRIER_CHANGES))
            .filter_map(|key| Some((key, watch.grown(key).get().filter(|grown| *grown > 0)?)))
    });
    let lost = side
        .events
        .as_ref()
        .and_then(|events| events.lost_carrier());
    let lost = lost.map(|(nic, at)| {
        let began = side
            .events
            .as_ref()
            .and_then(|events| events.trial_began_ns);
        let since = at
            .as_u64()
            .saturating_sub(began.unwrap_or_default().as_u64());
        let what = format!("{end}: {nic} went down");
        Evidence::new(
            what,
            format!("+{}", Nanoseconds::new(since)),
            "rtnetlink(7)",
        )
    });
    let changed = keys.map(|(key, grown)| {
        let nic = key.split('/').nth(1).unwrap_or_default();
        Evidence::new(format!("{end}: carrier changes of {nic}"), grown, key)
    });
    changed.chain(lost).collect()
}

/// How long no flow received anything, and how long the end ran.
fn stall(receiver: &SideSample) -> (Nanoseconds, Nanoseconds) {
    let flows: Vec<&FlowRecord> = receiver.receivers().collect();
    let readings = flows.iter().map(|flow| flow.at_ns.len()).min().unwrap_or(0);
    let total = |reading: usize| -> u64 {
        let bytes = flows.iter().filter_map(|flow| flow.bytes.get(reading));
        bytes.map(|bytes| bytes.as_u64()).sum()
    };
    let at = |reading: usize| flows.first().map_or(0, |flow| flow.at_ns[reading].as_u64());
    let idle = (1..readings)
        .filter(|&reading| total(reading) == total(reading - 1))
        .map(|reading| at(reading).saturating_sub(at(reading - 1)));
    (Nanoseconds::new(idle.sum()), receiver.elapsed_ns)
}
