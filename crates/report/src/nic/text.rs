//! `linerate nic` for a terminal, within 80 columns: the answer, the findings, then the facts in one column.

use linerate_analysis::text::visible::visible;
use linerate_analysis::text::words::{count, wrap};
use linerate_model::activity::CountedRate;
use linerate_model::finding::Finding;
use linerate_model::host::{Fec, PciFunction, PcieHop, PcieLink, Temperature};
use linerate_model::known::{Cause, Known};
use linerate_model::units::BitRate;

use super::NicView;
use super::facts::{BitErrors, FirmwareFacts, LinkFacts, NicFacts, facts, text};
use super::module::module_rows;
use crate::map::interface::to_root;
use crate::map::text::{kind_word, link_pair, show, show_with};

const WIDTH: usize = 80;
/// The width of the column of labels, with two blanks after it.
const LABEL: usize = 13;
/// Below a severity and two blanks.
const UNDER: usize = 6;

/// The lines of one NIC, none longer than 80 characters.
pub fn nic_text(view: &NicView<'_>) -> String {
    let own = facts(view);
    let mut lines = wrapped("", 0, &headline(view, &own));
    for finding in &view.findings {
        lines.extend(finding_lines(finding));
    }
    let mut rows = Rows::default();
    if own.kind.has_wire() {
        physical(view, &own, &mut rows);
    } else {
        software(&own, &mut rows);
    }
    for (label, text) in &rows.shown {
        lines.extend(wrapped(&format!("{label:<LABEL$}"), LABEL, text));
    }
    if !rows.inapplicable.is_empty() {
        let what = rows.inapplicable.join(", ");
        let kind = kind_word(view.nic);
        lines.extend(wrapped(
            &format!("{:<LABEL$}", "n/a"),
            LABEL,
            &format!("{what}: a {kind} interface has none"),
        ));
    }
    lines.extend(closing(view));
    lines.join("\n")
}

/// `first` and `text`, continued below the column after `first`.
fn wrapped(first: &str, indent: usize, text: &str) -> Vec<String> {
    let lines = wrap(&visible(text), WIDTH - indent);
    let prefix = |at| {
        if at == 0 {
            first.to_owned()
        } else {
            " ".repeat(indent)
        }
    };
    let line = |(at, line): (usize, &String)| format!("{}{line}", prefix(at)).trim_end().to_owned();
    lines.iter().enumerate().map(line).collect()
}

/// `eth2: Mellanox ConnectX-4, 100 Gb/s, link up: no problem found`.
fn headline(view: &NicView<'_>, own: &NicFacts<'_>) -> String {
    let mut parts = vec![card_name(view, own)];
    if own.kind.has_wire() {
        parts.extend(own.link.speed_bit_per_s.get().map(speed_text));
    }
    parts.push(match &own.link.is_up {
        Known::Value(true) => "link up".to_owned(),
        Known::Value(false) => "link down".to_owned(),
        Known::Unknown(gap) => format!("link ? ({})", gap.cause),
    });
    let (problems, findings) = (view.problems(), view.findings.len());
    let mut verdict = match problems {
        0 => "no problem found".to_owned(),
        some => count(some, "problem"),
    };
    if findings > problems {
        verdict += &format!(", {}", count(findings - problems, "note"));
    }
    if !view.undetermined.is_empty() {
        let skipped = count(view.undetermined.len(), "check");
        verdict += &format!(" ({skipped} skipped: data not available)");
    }
    format!("{}: {}: {verdict}", own.name, parts.join(", "))
}

/// The vendor's first word and the product name, which pci.ids has in brackets; else the IDs, the driver or the kind.
fn card_name(view: &NicView<'_>, own: &NicFacts<'_>) -> String {
    let Known::Value(pci) = own.pci else {
        return match (&own.driver, own.kind.has_wire()) {
            (Known::Value(driver), true) => format!("{driver} interface"),
            _ => kind_word(view.nic),
        };
    };
    let names = match &pci.names {
        Known::Value(names) => (&names.vendor, &names.device),
        Known::Unknown(_) => return by_ids(view, pci),
    };
    match names {
        (Known::Value(vendor), Known::Value(device)) => {
            let inner = (device.split_once('['))
                .and_then(|(_, rest)| rest.split_once(']'))
                .map_or(device.as_str(), |(name, _)| name);
            let vendor = vendor.split_whitespace().next().unwrap_or_default();
            format!("{vendor} {inner}")
        }
        _ => by_ids(view, pci),
    }
}

fn by_ids(view: &NicView<'_>, pci: &PciFunction) -> String {
    match (&pci.vendor, &pci.device, &view.nic.driver) {
        (Known::Unknown(_), Known::Unknown(_), Known::Value(driver)) => {
            format!("{driver} interface")
        }
        _ => format!("PCI {}", ids(pci)),
    }
}

fn ids(pci: &PciFunction) -> String {
    id_pair(&pci.vendor, &pci.device)
}

/// `15b3:1015`; two IDs that are unknown for one cause are one question mark.
fn id_pair(vendor: &Known<String>, device: &Known<String>) -> String {
    let id = |fact: &Known<String>| show_with(fact, |id| id.trim_start_matches("0x").to_owned());
    match (vendor, device) {
        (Known::Unknown(one), Known::Unknown(other)) if one.cause == other.cause => {
            format!("? ({})", one.cause)
        }
        _ => format!("{}:{}", id(vendor), id(device)),
    }
}

/// `25 Gb/s`, `2.5 Gb/s`, `100 Mb/s`.
pub(super) fn speed_text(speed: BitRate) -> String {
    let (gbit, rest) = (
        speed.as_bit_per_s() / 1_000_000_000,
        speed.as_bit_per_s() % 1_000_000_000,
    );
    match rest {
        0 if gbit > 0 => format!("{gbit} Gb/s"),
        _ if gbit > 0 && rest % 100_000_000 == 0 => format!("{gbit}.{} Gb/s", rest / 100_000_000),
        _ if gbit == 0 && rest % 1_000_000 == 0 => format!("{} Mb/s", rest / 1_000_000),
        _ => speed.to_string(),
    }
}

fn finding_lines(finding: &Finding) -> Vec<String> {
    let first = format!("{:<4}  ", finding.severity);
    let text = format!("{}: {}", finding.rule, finding.summary);
    wrapped(&first, UNDER, &text)
}

/// The rows of the column.
#[derive(Default)]
pub(super) struct Rows {
    shown: Vec<(&'static str, String)>,
    /// What this kind of interface cannot have.
    inapplicable: Vec<&'static str>,
}

impl Rows {
    pub(super) fn add(&mut self, label: &'static str, text: String) {
        self.shown.push((label, text));
    }

    /// A fact; its gap with the reason where it is not known.
    pub(super) fn fact<T>(
        &mut self,
        label: &'static str,
        fact: &Known<T>,
        text: impl FnOnce(&T) -> String,
    ) {
        match fact {
            Known::Value(value) => self.add(label, text(value)),
            Known::Unknown(gap) if gap.cause == Cause::Inapplicable => {
                self.inapplicable.push(label);
            }
            Known::Unknown(gap) if gap.is_unread() => self.add(label, format!("? ({})", gap.cause)),
            Known::Unknown(gap) => self.add(label, format!("? ({}): {}", gap.cause, gap.reason)),
        }
    }
}

fn physical(view: &NicView<'_>, own: &NicFacts<'_>, rows: &mut Rows) {
    rows.fact("model", own.pci, model_text);
    rows.add("firmware", firmware_text(&own.firmware));
    rows.fact("driver", &own.driver, |driver| match own.driver_version {
        Known::Value(version) => format!("{driver} {version}"),
        Known::Unknown(_) => (*driver).to_owned(),
    });
    rows.add("port", port_text(own));
    rows.fact("temperature", own.temperatures, |all| temperatures(all));
    rows.fact("PCIe link", own.pcie, |pcie| {
        format!("{}: {}", show(own.pci_address), pcie_text(pcie))
    });
    module_rows(own.module, rows);
    rows.add("link", link_text(&own.link));
    if let Some(asked) = view.opcode {
        rows.add("opcode", opcode_text(asked));
    }
    rows.add("speeds", speeds_text(&own.link));
    rows.fact("FEC", own.link.fec, fec_text);
    rows.fact("BER", &own.bit_errors, ber_text);
    rows.fact("health", own.health, |all| {
        let bad = all
            .iter()
            .filter(|one| !matches!(&one.state, Known::Value(state) if state == "healthy"));
        let bad: Vec<String> = bad
            .map(|one| format!("{} {}", one.name, show(&one.state)))
            .collect();
        match (bad.is_empty(), all.len()) {
            (false, _) => bad.join(", "),
            (true, 0) => "the driver has no health reporters".to_owned(),
            (true, number) => format!("{} healthy", count(number, "reporter")),
        }
    });
    // The findings above state their own advice.
    let explains = view.opcode.is_some_and(|asked| asked.meaning.is_some());
    if view.findings.is_empty() || explains {
        let advice = view.advice();
        let first = advice
            .first()
            .map_or("", |advice| advice.trim_end_matches('.'));
        rows.add("advice", first.to_owned());
    }
}

/// What there is to know of an interface that software makes.
fn software(own: &NicFacts<'_>, rows: &mut Rows) {
    if let Known::Value(driver) = &own.driver {
        rows.add("driver", (*driver).to_owned());
    }
    let speed = match own.link.speed_bit_per_s {
        Known::Value(speed) => format!("reports {}, limited by the CPU", speed_text(*speed)),
        Known::Unknown(_) => "no link speed".to_owned(),
    };
    rows.add("link", format!("{}, {speed}", show(own.link.operstate)));
    rows.inapplicable.extend([
        "model",
        "firmware",
        "port type",
        "temperature",
        "PCIe link",
        "module",
        "FEC",
        "BER",
    ]);
}

fn model_text(pci: &PciFunction) -> String {
    let board = id_pair(&pci.subsystem_vendor, &pci.subsystem_device);
    match &pci.names {
        Known::Value(names) => {
            let board_name = match &names.subsystem {
                Known::Value(name) => format!("{name} "),
                Known::Unknown(_) => String::new(),
            };
            let (vendor, device) = (show(&names.vendor), show(&names.device));
            format!(
                "{vendor} {device} ({}), board {board_name}({board})",
                ids(pci)
            )
        }
        Known::Unknown(gap) => {
            format!("{}, board {board}; no names: {}", ids(pci), gap.reason)
        }
    }
}

fn firmware_text(firmware: &FirmwareFacts<'_>) -> String {
    // The driver adds the PSID in parentheses.
    let running = show_with(firmware.running, |text| {
        text.split(" (").next().unwrap_or(text).to_owned()
    });
    let mut parts = vec![format!("running {running}")];
    if !matches!(firmware.psid, Known::Unknown(gap) if gap.cause == Cause::Inapplicable) {
        parts.push(format!("PSID {}", show(firmware.psid)));
    }
    parts.push(stored_text(firmware));
    parts.join(", ")
}

/// The stored firmware, and what of it is pending.
fn stored_text(firmware: &FirmwareFacts<'_>) -> String {
    const MAIN: [&str; 3] = ["fw.version", "fw", "fw.mgmt"];
    let stored = match (&firmware.stored, firmware.pending) {
        (Known::Unknown(one), Known::Unknown(other)) if one.cause == other.cause => {
            return format!("stored and pending ? ({})", one.cause);
        }
        (Known::Value(stored), _) => {
            let version = MAIN.iter().find_map(|name| stored.get(name));
            let version = version.or_else(|| stored.values().next());
            format!("stored {}", version.unwrap_or(&"none"))
        }
        (Known::Unknown(gap), _) => format!("stored ? ({})", gap.cause),
    };
    let pending = match firmware.pending {
        Known::Value(pending) => {
            let version = MAIN.iter().find_map(|name| pending.get(*name));
            match version.or_else(|| pending.values().next()) {
                Some(version) => format!("pending {version} (runs after a reset)"),
                None => "none pending".to_owned(),
            }
        }
        Known::Unknown(gap) => format!("pending ? ({})", gap.cause),
    };
    format!("{stored}, {pending}")
}

fn port_text(own: &NicFacts<'_>) -> String {
    let mut parts = vec![show(&own.port.kind)];
    match &own.port.is_vpi {
        Known::Value(true) => parts.push("VPI (Ethernet or InfiniBand)".to_owned()),
        Known::Value(false) => {}
        Known::Unknown(gap) => parts.push(format!("VPI ? ({})", gap.cause)),
    }
    parts.push(match &own.port.connector {
        Known::Value(connector) => visible(connector),
        Known::Unknown(gap) => format!("connector ? ({})", gap.cause),
    });
    parts.join(", ")
}

fn temperatures(all: &[Temperature]) -> String {
    let one = |one: &Temperature| {
        let degrees = |fact: &Known<i32>| show_with(fact, |value| format!("{} C", value / 1000));
        let critical = match &one.critical_mc {
            Known::Value(limit) => format!(" (critical {} C)", limit / 1000),
            Known::Unknown(_) => String::new(),
        };
        format!("{} {}{critical}", one.label, degrees(&one.value_mc))
    };
    if all.is_empty() {
        return "the NIC reports none".to_owned();
    }
    all.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn pcie_text(pcie: &PcieLink) -> String {
    let is_known = |hop: &PcieHop| {
        matches!(hop.transfer_mt_per_s, Known::Value(_)) || matches!(hop.width, Known::Value(_))
    };
    if !pcie.links.iter().any(is_known) {
        return "no PCIe link information (emulated or integrated)".to_owned();
    }
    let pair = link_pair(&pcie.transfer_mt_per_s, &pcie.width);
    format!("{pair}, {}", to_root(pcie))
}

fn link_text(link: &LinkFacts<'_>) -> String {
    match &link.is_up {
        Known::Value(false) => match &link.extended_state {
            Known::Value(state) => match &link.extended_substate {
                Known::Value(detail) => format!("down: {state}, {detail}"),
                Known::Unknown(_) => format!("down: {state}"),
            },
            Known::Unknown(gap) => format!("down, reason ? ({}): {}", gap.cause, gap.reason),
        },
        Known::Value(true) => {
            let mut parts = vec![
                "up".to_owned(),
                show_with(link.speed_bit_per_s, |speed| speed_text(*speed)),
                format!("{} duplex", show(link.duplex)),
            ];
            if let Known::Value(lanes) = link.lanes {
                parts.push(count(usize::try_from(lanes).unwrap_or(usize::MAX), "lane"));
            }
            let switch = show_with(&link.autoneg, |on| {
                if *on { "on" } else { "off" }.to_owned()
            });
            parts.push(format!("autonegotiation {switch}"));
            if let Known::Value((quality, most)) = link.signal_quality {
                parts.push(format!("signal quality {quality} of {most}"));
            }
            parts.join(", ")
        }
        Known::Unknown(gap) => format!("? ({}): {}", gap.cause, gap.reason),
    }
}

fn opcode_text(asked: super::OpcodeAsked) -> String {
    let Some(meaning) = asked.meaning else {
        let why = "NVIDIA's documentation does not list it";
        return format!("{}: ? ({}): {why}", asked.opcode, Cause::Absent);
    };
    let kernel = match meaning.kernel_state {
        Some(state) => format!("ethtool shows `{state}`"),
        None => "the kernel does not report it".to_owned(),
    };
    format!("{}: {} ({kernel})", asked.opcode, meaning.reason)
}

fn speeds_text(link: &LinkFacts<'_>) -> String {
    let list = |speeds: &[BitRate]| {
        let words: Vec<String> = speeds.iter().map(|speed| speed_text(*speed)).collect();
        let all_gbit: Option<Vec<&str>> = words
            .iter()
            .map(|word| word.strip_suffix(" Gb/s"))
            .collect();
        all_gbit.map_or_else(
            || words.join(", "),
            |numbers| format!("{} Gb/s", numbers.join(", ")),
        )
    };
    let (enabled, supported) = (&link.enabled_bit_per_s, &link.supported_bit_per_s);
    match (enabled, supported) {
        (Known::Value(enabled), Known::Value(supported)) if enabled == supported => {
            format!("enabled {}, all that are supported", list(enabled))
        }
        (Known::Unknown(one), Known::Unknown(other)) if one == other => {
            format!("? ({}): {}", one.cause, one.reason)
        }
        _ => {
            let text = |fact: &Known<Vec<BitRate>>| show_with(fact, |speeds| list(speeds));
            format!("enabled {}; supported {}", text(enabled), text(supported))
        }
    }
}

fn fec_text(fec: &Fec) -> String {
    let configured = if fec.configured.is_empty() {
        String::new()
    } else {
        format!(", configured {}", fec.configured.join(", "))
    };
    format!("active {}{configured}", show(&fec.active))
}

fn ber_text(errors: &BitErrors<'_>) -> String {
    let rate = |fact: &Known<CountedRate>| show_with(fact, |rate| rate.rate.to_string());
    format!(
        "raw {}, effective {}; 95 % CI, {:.1} s",
        rate(errors.before),
        rate(errors.after),
        errors.seconds
    )
}

/// Where to read on.
fn closing(view: &NicView<'_>) -> Vec<String> {
    let name = view.nic.name.as_str();
    let mut lines = Vec::new();
    let driver = match text(&view.nic.driver) {
        Known::Value(driver) => driver,
        Known::Unknown(_) => "",
    };
    let down = !matches!(facts(view).link.is_up, Known::Value(true));
    let unexplained = match &view.nic.wire.state {
        Known::Value(state) => !matches!(state.extended_state, Known::Value(_)),
        Known::Unknown(_) => true,
    };
    if driver == "mlx5_core" && down && unexplained && view.opcode.is_none() {
        let how = format!(
            "`mlxlink -d {}` prints a status opcode; `linerate nic {name} --opcode N` explains it",
            show(&view.nic.pci_address)
        );
        lines.extend(wrapped(&format!("{:<LABEL$}", "see also"), LABEL, &how));
    }
    lines
}
