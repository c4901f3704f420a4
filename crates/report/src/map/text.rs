//! `linerate map` for a terminal: one host as a tree within 80 columns, NIC - PCIe - NUMA - CPU - queue -
//! interrupt. A fact that is not known is `? (cause)`.

use linerate_analysis::text::visible::visible;
use linerate_analysis::text::words::{count, wrap};
use linerate_model::activity::Activity;
use linerate_model::host::{Host, Nic, PcieHop, Queue, QueueKind};
use linerate_model::known::{Cause, Known};
use linerate_model::units::TransferRate;

use super::devices::{block_branches, rdma_branch};
use super::interface::{nic_branches, unasked_branch};
use super::machine::{cpus_in_words, denied, machine_branches};
use super::one::one_branches;
use super::watch::{cpus_branch, nic_activity, uncounted_branch};

const WIDTH: usize = 80;

/// One line of the tree and what hangs on it.
pub(super) struct Branch {
    pub(super) text: String,
    pub(super) below: Vec<Branch>,
}

impl Branch {
    pub(super) fn leaf(text: String) -> Self {
        Self {
            text,
            below: Vec::new(),
        }
    }
}

/// What a map shows in addition to the host.
#[derive(Debug, Clone, Copy, Default)]
pub struct MapExtras<'a> {
    /// The whole host, where `host` holds one of its interfaces: that is shown with all its settings.
    pub whole: Option<&'a Host>,
    /// What it did while it was watched.
    pub activity: Option<&'a Activity>,
}

/// The host as a tree of text lines, none longer than 80 characters.
pub fn map_text(host: &Host) -> String {
    map_text_with(host, &MapExtras::default())
}

/// Like [`map_text`], with additional data about the host.
pub fn map_text_with(host: &Host, beside: &MapExtras<'_>) -> String {
    let identity = &host.identity;
    let head = format!(
        "{}: Linux {}, {}, {}, {}",
        show(&identity.hostname),
        show(&identity.kernel_release),
        show(&identity.architecture),
        cpus_in_words(host),
        show(&identity.cpu_model)
    );
    let mut below = machine_branches(host);
    below.extend(beside.activity.and_then(cpus_branch));
    below.extend(nic_branches(host, &|nic| {
        let mut more = one_branches(nic, beside.whole);
        more.extend(beside.activity.and_then(|all| nic_activity(nic, all)));
        more
    }));
    below.extend(unasked_branch(host));
    below.extend(host.rdma.iter().map(rdma_branch));
    below.extend(block_branches(&host.block));
    if !host.gaps.is_empty() {
        let gaps = host
            .gaps
            .iter()
            .map(|gap| Branch::leaf(gap.to_string()))
            .collect();
        below.push(Branch {
            text: format!("{} more", count(host.gaps.len(), "gap")),
            below: gaps,
        });
    }
    below.extend(beside.activity.and_then(uncounted_branch));
    below.extend(denied(host));
    let mut out = String::new();
    write_branch(&Branch { text: head, below }, "", "", &mut out);
    out
}

/// The kind as the JSON calls it.
pub(crate) fn kind_word(nic: &Nic) -> String {
    serde_json::to_value(nic.kind)
        .ok()
        .and_then(|kind| kind.as_str().map(str::to_owned))
        .unwrap_or_else(|| "?".to_owned())
}

/// The link's speed; that of a virtual device is marked as claimed.
pub(crate) fn link_text(nic: &Nic) -> String {
    let speed = show(&nic.link_bit_per_s);
    if nic.kind.has_wire() && is_unreported(&nic.link_bit_per_s) {
        "link speed unknown".to_owned()
    } else if nic.kind.has_wire() {
        format!("link {speed}")
    } else if nic.link_bit_per_s.value().is_some() {
        format!("reports {speed}, virtual")
    } else {
        "virtual, no link speed".to_owned()
    }
}

/// The root qdisc, and the rate of a shaper.
pub(crate) fn qdisc_text(nic: &Nic) -> String {
    show_with(&nic.qdisc, |qdisc| match qdisc.rate_bit_per_s {
        Some(rate) => format!("{}, shaped to {rate}", visible(&qdisc.kind)),
        None => visible(&qdisc.kind),
    })
}

/// One PCIe link: what it runs at, and what it could.
pub(super) fn hop_text(hop: &PcieHop) -> String {
    let now = link_pair(&hop.transfer_mt_per_s, &hop.width);
    let most = link_pair(&hop.transfer_max_mt_per_s, &hop.width_max);
    if now == most && now.starts_with('?') {
        format!("{}: {now}", hop.address)
    } else {
        format!("{}: {now} (max {most})", hop.address)
    }
}

/// `16.0 GT/s x16`; two facts that are unknown for one cause are one question mark.
pub(crate) fn link_pair(rate: &Known<TransferRate>, width: &Known<u32>) -> String {
    match (rate, width) {
        (Known::Unknown(one), Known::Unknown(other)) if one.cause == other.cause => {
            format!("? ({})", one.cause)
        }
        _ => format!("{} x{}", show(rate), show(width)),
    }
}

/// `rx-0`, as setting keys call it.
pub(super) fn queue_name(queue: &Queue) -> String {
    match queue.kind {
        QueueKind::Rx => format!("rx-{}", queue.index),
        QueueKind::Tx => format!("tx-{}", queue.index),
    }
}

/// A fact, `n/a` where there is none to know, or `? (cause)`.
pub(crate) fn show<T: ToString>(fact: &Known<T>) -> String {
    show_with(fact, |value| visible(&value.to_string()))
}

/// Whether the kernel reports the value as unknown, which is common for virtual devices.
pub(super) fn is_unreported<T>(fact: &Known<T>) -> bool {
    fact.gap().is_some_and(|gap| gap.cause == Cause::NotSaid)
}

/// Like [`show`], for a fact without a text form.
pub(crate) fn show_with<T>(fact: &Known<T>, text: impl Fn(&T) -> String) -> String {
    match fact {
        Known::Value(value) => text(value),
        Known::Unknown(gap) if gap.cause == Cause::Inapplicable => "n/a".to_owned(),
        Known::Unknown(gap) => format!("? ({})", gap.cause),
    }
}

fn write_branch(branch: &Branch, first: &str, rest: &str, out: &mut String) {
    // The lines below a wrapped line keep the tree's bars unbroken.
    let hang = if branch.below.is_empty() {
        "    "
    } else {
        "│   "
    };
    for (index, line) in wrap(&visible(&branch.text), WIDTH - rest.chars().count() - 4)
        .iter()
        .enumerate()
    {
        let prefix = if index == 0 {
            first.to_owned()
        } else {
            format!("{rest}{hang}")
        };
        out.push_str(format!("{prefix}{line}").trim_end());
        out.push('\n');
    }
    for (index, below) in branch.below.iter().enumerate() {
        let (tee, bar) = if index + 1 == branch.below.len() {
            ("└─ ", "   ")
        } else {
            ("├─ ", "│  ")
        };
        write_branch(below, &format!("{rest}{tee}"), &format!("{rest}{bar}"), out);
    }
}
