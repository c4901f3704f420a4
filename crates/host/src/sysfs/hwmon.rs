//! The temperatures of a NIC (Documentation/hwmon/sysfs-interface.rst): thousandths of a degree.

use linerate_model::host::Temperature;
use linerate_model::known::{Cause, Known};

use crate::attributes::{number, numbered};
use crate::root::{HostRoot, absolute};

/// A NIC has a handful; an untrusted directory may have any number.
const TEMPERATURES_MAX: usize = 64;

/// Reads the temperatures of the device in `folder`.
pub(crate) fn read_temperatures(root: &HostRoot, folder: &str) -> Known<Vec<Temperature>> {
    let monitors = format!("{folder}/hwmon");
    let names = match root.list(&monitors) {
        Known::Value(names) => names,
        Known::Unknown(gap) if gap.cause == Cause::Absent => {
            let reason = "the driver registers no hardware monitor";
            return Known::unknown(Cause::Absent, gap.path, reason);
        }
        Known::Unknown(gap) => return Known::Unknown(gap),
    };
    let mut all = Vec::new();
    for monitor in numbered(&names, "hwmon") {
        let folder = format!("{monitors}/hwmon{monitor}");
        let files = root.list(&folder);
        let files = files.value().map_or(&[][..], Vec::as_slice);
        for sensor in sensors(files).into_iter().take(TEMPERATURES_MAX) {
            let file = |what: &str| format!("{folder}/temp{sensor}_{what}");
            let label = root.read(&file("label"));
            all.push(Temperature {
                label: label
                    .value()
                    .cloned()
                    .unwrap_or_else(|| format!("temp{sensor}")),
                value_mc: number(root, &file("input")),
                critical_mc: number(root, &file("crit")),
            });
        }
    }
    if all.is_empty() {
        let reason = "its monitor has no temperature";
        return Known::unknown(Cause::Absent, absolute(&monitors), reason);
    }
    Known::Value(all)
}

/// The numbers of the sensors with a value, in order.
fn sensors(files: &[String]) -> Vec<u32> {
    let inputs: Vec<String> = files
        .iter()
        .filter_map(|name| name.strip_suffix("_input").map(str::to_owned))
        .collect();
    numbered(&inputs, "temp")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sensors_are_told_by_their_inputs() {
        let files = [
            "temp10_input",
            "temp2_input",
            "temp3_crit",
            "fan1_input",
            "temp_input",
        ];
        assert_eq!(sensors(&files.map(String::from)), [2, 10]);
    }
}
