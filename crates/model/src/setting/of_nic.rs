//! The settings of one interface: which there are, from the rows and the interface's queues, features and flags.

use std::collections::BTreeMap;

use super::knobs::Part;
use super::{Access, NicKnob, path};
use crate::host::{Nic, QueueKind};

/// The segments of a pattern before the path of an interface's knob: `nic/NAME`.
const SUBJECT: usize = 2;

impl NicKnob {
    /// The queue that it belongs to.
    pub fn queue(&self) -> Option<(QueueKind, u32)> {
        let path = self.to_string();
        let queue = path.strip_prefix("queue/")?.split('/').next()?;
        Part::parse(queue)
    }

    /// Whether it is a file of a queue. The kernel creates it with the queue, with its default value.
    pub fn is_file_of_queue(&self) -> bool {
        let row = self.spec();
        row.pattern.contains("/queue/") && matches!(row.access, Access::File(..))
    }

    /// The settings of one queue.
    pub fn of_queue(kind: QueueKind, index: u32) -> Vec<Self> {
        of_rows(|placeholder| queue_word(placeholder, kind, index).into_iter().collect())
    }

    /// Every setting of `nic`, in the order of the rows. The host's description may not have the value of each.
    pub fn all_of(nic: &Nic) -> Vec<Self> {
        of_rows(|placeholder| {
            let queues = nic.queues.iter();
            let of_queues =
                queues.filter_map(|queue| queue_word(placeholder, queue.kind, queue.index));
            let dispatch = &nic.dispatch;
            match placeholder {
                "" => vec![String::new()],
                "FEATURE" => names(nic.features.value().map(BTreeMap::keys)),
                "FLAG" => names(dispatch.private_flags.value().map(BTreeMap::keys)),
                "KIND" => {
                    let rss = dispatch.rss.value();
                    names(rss.and_then(|rss| rss.fields.value()).map(BTreeMap::keys))
                }
                _ => of_queues.collect(),
            }
        })
    }
}

fn names<'n>(names: Option<impl Iterator<Item = &'n String>>) -> Vec<String> {
    names.into_iter().flatten().cloned().collect()
}

/// The word of a queue for the placeholder of a row, with its direction: `rx-N`.
fn queue_word(placeholder: &str, kind: QueueKind, index: u32) -> Option<String> {
    match (placeholder, kind) {
        ("QUEUE", _) => Some(Part::word(&(kind, index))),
        ("rx-N", QueueKind::Rx) | ("tx-N", QueueKind::Tx) => Some(index.to_string()),
        _ => None,
    }
}

/// The knobs of all rows, with each of the words that their placeholders stand for.
fn of_rows(words: impl Fn(&str) -> Vec<String>) -> Vec<NicKnob> {
    let rows = NicKnob::ROWS.iter().enumerate();
    let knobs = rows.flat_map(|(row, spec)| {
        let words = words(path::variable(path::below(spec.pattern, SUBJECT)));
        words
            .into_iter()
            .filter_map(move |word| NicKnob::at(row, &word))
    });
    knobs.collect()
}
