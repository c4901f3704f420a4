//! The rows of the module or cable: its identity, its cable, its monitors.

use linerate_model::host::{Module, ModuleLane};
use linerate_model::known::Known;

use super::text::{Rows, speed_text};
use crate::map::text::{show, show_with};

/// Optical power of 1 mW is 0 dBm.
const NW_PER_MW: f64 = 1e6;

/// Adds the rows of `module`.
pub(super) fn module_rows(module: &Known<Module>, rows: &mut Rows) {
    let first = |module: &Module| {
        let mut parts = vec![format!("{} ({})", module.form_factor, module.standard)];
        let name = format!("{} {}", show(&module.vendor), show(&module.part));
        let revision = match &module.revision {
            Known::Value(revision) => format!(" rev {revision}"),
            Known::Unknown(_) => String::new(),
        };
        parts.push(format!("{name}{revision}"));
        parts.push("serial withheld".to_owned());
        parts.join(", ")
    };
    rows.fact("module", module, first);
    let Known::Value(module) = module else {
        return;
    };
    rows.add("", cable_text(module));
    rows.add("", monitors_text(module));
    for lane in &module.lanes {
        rows.add("", lane_text(lane));
    }
    let raised: Vec<String> = (module.alarms.iter().map(|alarm| format!("ALARM {alarm}")))
        .chain(
            module
                .warnings
                .iter()
                .map(|warning| format!("warning {warning}")),
        )
        .collect();
    if !raised.is_empty() {
        rows.add("", raised.join(", "));
    }
}

/// Technology, length, rate and attenuation.
fn cable_text(module: &Module) -> String {
    let connector = match show(&module.connector) {
        none if none.starts_with("No ") => none.to_lowercase(),
        connector => connector,
    };
    let mut parts = vec![
        show(&module.technology),
        show_with(&module.length_dm, |length| length_text(*length)),
        connector,
        show_with(&module.rated_bit_per_s, |rate| {
            format!("rated {}", speed_text(*rate))
        }),
    ];
    if let Known::Value(all) = &module.attenuation_db {
        let list: Vec<String> = all
            .iter()
            .map(|(at, decibel)| format!("{decibel} dB at {at}"))
            .collect();
        parts.push(format!("attenuation {}", list.join(", ")));
    }
    parts.join(", ")
}

/// `2 m`, `0.5 m`.
fn length_text(decimeters: u32) -> String {
    match decimeters % 10 {
        0 => format!("{} m", decimeters / 10),
        rest => format!("{}.{rest} m", decimeters / 10),
    }
}

/// The digital optical monitoring (DOM).
fn monitors_text(module: &Module) -> String {
    let mut parts = match (&module.temperature_mc, &module.voltage_mv) {
        (Known::Unknown(one), Known::Unknown(other)) if one.cause == other.cause => {
            vec![format!("monitors ? ({}): {}", one.cause, one.reason)]
        }
        (temperature, voltage) => vec![
            show_with(temperature, |value| format!("{} C", value / 1000)),
            show_with(voltage, |value| {
                format!("{}.{:02} V", value / 1000, value % 1000 / 10)
            }),
        ],
    };
    if let Known::Value(state) = &module.state {
        parts.push(state.clone());
    }
    parts.join(", ")
}

fn lane_text(lane: &ModuleLane) -> String {
    let power = |fact: &Known<u32>| show_with(fact, |value| power_text(*value));
    let bias = show_with(&lane.bias_ua, |value| {
        format!("{}.{} mA", value / 1000, value % 1000 / 100)
    });
    format!(
        "lane {}: rx {}, tx {}, bias {bias}",
        lane.lane,
        power(&lane.rx_power_nw),
        power(&lane.tx_power_nw)
    )
}

fn power_text(nanowatts: u32) -> String {
    if nanowatts == 0 {
        return "no light".to_owned();
    }
    format!(
        "{:.1} dBm",
        10.0 * (f64::from(nanowatts) / NW_PER_MW).log10()
    )
}
