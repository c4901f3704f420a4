//! What `qos plan` and `qos status` print.

use linerate_analysis::text::table::table;
use linerate_host::procfs::managers::read_managers;
use linerate_host::root::HostRoot;
use linerate_model::exit::{Outcome, Stop};
use linerate_model::ids::NicName;
use linerate_model::known::Known;
use linerate_model::peer_address::PeerAddress;
use linerate_model::plan::Plan;
use linerate_model::qos::{
    Framing, Manager, ManagerFile, Mechanism, QosClass, manager_files, manager_notes,
};
use linerate_model::units::BitRate;
use linerate_runtime::console::say::{Format, Say};
use serde::Serialize;

use super::Asked;
use super::applied::Applied;
use crate::prove::intent::{IntendedChange, Intent};

/// What `linerate qos plan --format json` prints.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct QosPlanDocument<'a> {
    schema: &'static str,
    /// The interface of the file.
    interface: &'a NicName,
    /// What holds the limits.
    mechanism: Mechanism,
    /// Why this mechanism.
    why: &'a str,
    /// What it can and what it cannot.
    notes: &'a [String],
    /// Which bytes the limits count.
    limit_of: Framing,
    /// The rate of the line.
    line_bit_per_s: BitRate,
    /// The interfaces that hold the limits.
    holders: &'a [NicName],
    /// The classes in the file's order.
    classes: Vec<PlannedLine>,
    /// What this host does not have yet, in the order in which it is made.
    changes: &'a [IntendedChange],
    /// The programs that manage the interfaces that change, with the files that would make the VLANs.
    managers: &'a [Managed],
    /// Why it is not known which programs do; null if it is.
    managers_unknown: Option<&'a str>,
    /// The peer that was named; null without one.
    peer: Option<&'a OtherEnd>,
}

/// The other end of the interface.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct OtherEnd {
    /// How it was named.
    address: String,
    /// Where it does not fit what would be made here; empty if it does.
    conflicts: Vec<String>,
}

impl OtherEnd {
    pub(super) fn of(address: &PeerAddress, conflicts: Vec<String>) -> Self {
        Self {
            address: address.to_string(),
            conflicts,
        }
    }

    fn lines(&self) -> Vec<String> {
        let address = &self.address;
        if self.conflicts.is_empty() {
            return vec![format!("no conflict found with {address}")];
        }
        let all = self.conflicts.iter();
        all.map(|one| format!("conflict with {address}: {one}"))
            .collect()
    }
}

/// A program that manages an interface of the file.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Managed {
    #[serde(flatten)]
    manager: Manager,
    /// What it does to what `apply` makes.
    notes: Vec<String>,
    /// The files that make the VLANs of the classes at boot in place of `qos persist`; empty without VLANs.
    files: Vec<ManagerFile>,
}

impl Managed {
    /// The programs that manage the interface of the file, the ports that hold the limits, or a VLAN of it.
    pub(super) fn all(asked: &Asked, root: &HostRoot) -> Known<Vec<Self>> {
        let mut nics = vec![asked.qos.interface.clone()];
        let vlans = asked.qos.classes.iter().filter_map(|class| {
            let vlan = class.vlan.as_ref()?;
            Some(vlan.device.clone())
        });
        nics.extend(asked.plan.holders.iter().cloned().chain(vlans));
        let mut found: Vec<Self> = Vec::new();
        let mut seen: Vec<&NicName> = Vec::new();
        for nic in &nics {
            let is_there = root.exists(&format!("sys/class/net/{nic}"));
            if seen.contains(&nic) || !is_there {
                continue;
            }
            seen.push(nic);
            match read_managers(root, nic) {
                Known::Value(managers) => {
                    found.extend(managers.into_iter().map(|manager| {
                        let is_port = manager.interface == asked.qos.interface;
                        let files = manager_files(&asked.qos, &manager);
                        let files = if is_port { files } else { Vec::new() };
                        Self {
                            notes: manager_notes(&manager, &files),
                            files,
                            manager,
                        }
                    }));
                }
                Known::Unknown(gap) => return Known::Unknown(gap),
            }
        }
        Known::Value(found)
    }

    /// What a person reads.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = (self.notes.iter())
            .map(|note| format!("note: {note}"))
            .collect();
        if !self.files.is_empty() {
            let name = self.manager.name.word();
            lines.push(format!(
                "to have {name} make the VLANs at boot (not their limits), in place of `linerate qos persist`:"
            ));
        }
        for file in &self.files {
            lines.push(format!("  # {}", file.path));
            lines.extend(file.lines.iter().map(|line| format!("  {line}")));
        }
        lines
    }
}

/// A class of a plan.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PlannedLine {
    /// Its name.
    name: String,
    /// What belongs to it.
    traffic: String,
    /// What it may send as the file counts bytes; null for no limit.
    limit_bit_per_s: Option<BitRate>,
    /// What it may send whatever the others do, as the mechanism counts bytes; null if the mechanism guarantees nothing.
    guaranteed_bit_per_s: Option<BitRate>,
    /// What it may send if the others leave it room, as the mechanism counts bytes.
    ceil_bit_per_s: BitRate,
    /// The number of its class: of the `htb`, or the traffic class.
    number: String,
}

/// What belongs to a class.
pub(super) fn traffic(class: &QosClass) -> String {
    match (&class.vlan, class.priority) {
        (Some(vlan), Some(priority)) => format!("VLAN {} with PCP {priority}", vlan.id),
        (Some(vlan), None) => format!("VLAN {}", vlan.id),
        _ => class.selector.to_string(),
    }
}

/// Prints a plan.
pub(super) fn plan(
    asked: &Asked,
    peer: Option<&OtherEnd>,
    root: &HostRoot,
    say: &Say,
) -> Outcome<()> {
    let managed = Managed::all(asked, root);
    let number = |number: u16| match asked.plan.mechanism {
        Mechanism::Htb => format!("1:{number:x}"),
        Mechanism::Dcb | Mechanism::Offload | Mechanism::Mqprio => number.to_string(),
    };
    let lines = asked.qos.classes.iter().zip(&asked.plan.classes);
    let lines = lines.map(|(class, planned)| PlannedLine {
        name: class.name.clone(),
        traffic: traffic(class),
        limit_bit_per_s: planned.limit,
        guaranteed_bit_per_s: planned.guaranteed,
        ceil_bit_per_s: planned.rates.ceil,
        number: number(planned.number),
    });
    let document = QosPlanDocument {
        schema: "linerate.qos-plan/1",
        interface: &asked.qos.interface,
        mechanism: asked.plan.mechanism,
        why: &asked.plan.why,
        notes: &asked.plan.notes,
        limit_of: asked.qos.limit_of,
        line_bit_per_s: asked.plan.line,
        holders: &asked.plan.holders,
        classes: lines.collect(),
        changes: &asked.intent.changes,
        managers: managed.value().map_or(&[][..], Vec::as_slice),
        managers_unknown: match &managed {
            Known::Unknown(gap) => Some(gap.reason.as_str()),
            Known::Value(_) => None,
        },
        peer,
    };
    if say.format == Format::Json {
        return say.json(&document);
    }
    for line in plan_lines(&document) {
        say.data(&line)?;
    }
    changes(&asked.intent, say)?;
    let managers = document.managers.iter().flat_map(Managed::lines);
    let conflicts = peer.into_iter().flat_map(OtherEnd::lines);
    for line in managers.chain(conflicts) {
        say.data(&line)?;
    }
    Ok(())
}

/// Prints what changes, a line each: the settings are explained by `explain`.
pub(super) fn changes(intent: &Intent, say: &Say) -> Outcome<()> {
    if intent.changes.is_empty() {
        return say.data("no changes: the host has all of it");
    }
    for wanted in &intent.changes {
        say.data(&wanted.change.to_string())?;
    }
    Ok(())
}

fn plan_lines(document: &QosPlanDocument<'_>) -> Vec<String> {
    let mut lines = vec![format!(
        "{}: {} ({})",
        document.interface,
        document.mechanism.word(),
        document.why
    )];
    let holders: Vec<String> = document.holders.iter().map(ToString::to_string).collect();
    lines.push(format!(
        "a line of {}; limits count bytes of {}; held by {}",
        document.line_bit_per_s,
        document.limit_of.word(),
        holders.join(", ")
    ));
    let head = [
        "class",
        "traffic",
        "limit",
        "guaranteed",
        "at most",
        "number",
    ];
    let row = |class: &PlannedLine| {
        let limit = class
            .limit_bit_per_s
            .map_or_else(|| "none".to_owned(), |rate| rate.to_string());
        let guaranteed = class
            .guaranteed_bit_per_s
            .map_or_else(|| "-".to_owned(), |rate| rate.to_string());
        vec![
            class.name.clone(),
            class.traffic.clone(),
            limit,
            guaranteed,
            class.ceil_bit_per_s.to_string(),
            class.number.clone(),
        ]
    };
    let mut rows = vec![Vec::from(head.map(ToOwned::to_owned))];
    rows.extend(document.classes.iter().map(row));
    table(&mut lines, &rows);
    lines.extend(document.notes.iter().map(|note| format!("note: {note}")));
    if let Some(why) = document.managers_unknown {
        lines.push(format!(
            "note: whether another program manages {} is not known: {why}",
            document.interface
        ));
    }
    lines
}

/// What `linerate qos status --format json` prints.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct QosStatusDocument {
    schema: &'static str,
    /// The interfaces with an applied file.
    interfaces: Vec<Status>,
}

/// What is applied to one interface.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Status {
    /// The interface.
    interface: NicName,
    /// The transactions that made it, oldest first.
    transactions: Vec<String>,
    /// `applied`; `open`: waits for confirmation; `kept`: is made at the next boot.
    state: &'static str,
    /// Whether every boot makes it.
    persistent: bool,
    /// What the host has otherwise now; empty if it has all of it.
    differs: Vec<String>,
    /// Why that could not be found out; null if it could.
    unknown: Option<String>,
    /// The file as it was applied last.
    file: String,
}

impl Status {
    pub(super) fn of(interface: NicName, all: &[Applied], differs: Outcome<Plan>) -> Self {
        let name = |applied: &Applied| {
            applied
                .entry
                .name
                .clone()
                .unwrap_or(applied.entry.id.clone())
        };
        let last = all.last();
        let (differs, unknown) = match differs {
            Ok(plan) => (plan.changes.iter().map(ToString::to_string).collect(), None),
            Err(Stop { message, .. }) => (Vec::new(), Some(message)),
        };
        Self {
            interface,
            transactions: all.iter().map(name).collect(),
            state: last.map_or("applied", |last| last.entry.state),
            persistent: all.iter().all(|applied| applied.entry.kept),
            differs,
            unknown,
            file: last.map(|last| last.note.file.clone()).unwrap_or_default(),
        }
    }

    fn lines(&self) -> Vec<String> {
        let persistent = if self.persistent { ", persistent" } else { "" };
        let transactions = self.transactions.join(", ");
        let mut lines = vec![format!(
            "{}  {}{persistent}  by {transactions}",
            self.interface, self.state
        )];
        match (&self.unknown, self.differs.as_slice()) {
            (Some(why), _) => lines.push(format!(
                "  cannot tell whether the host still has it: {why}"
            )),
            (None, []) => lines.push("  the host has all of the file".to_owned()),
            (None, differs) => {
                lines.push(
                    "  the host differs from the file; `linerate qos apply` would change:"
                        .to_owned(),
                );
                lines.extend(differs.iter().map(|change| format!("    {change}")));
            }
        }
        lines
    }
}

/// Prints what is applied.
pub(super) fn status(interfaces: Vec<Status>, say: &Say) -> Outcome<()> {
    if say.format == Format::Json {
        return say.json(&QosStatusDocument {
            schema: "linerate.qos-status/1",
            interfaces,
        });
    }
    if interfaces.is_empty() {
        return say.data("no file of classes is applied");
    }
    for line in interfaces.iter().flat_map(Status::lines) {
        say.data(&line)?;
    }
    Ok(())
}
