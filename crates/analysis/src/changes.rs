//! What differs between a host in two runs, and between the options of two trials.

use linerate_model::host::Host;
use linerate_model::ids::NicName;
use linerate_model::known::Known;
use linerate_model::plan::End;
use linerate_model::setting::current;
use linerate_model::units::{BitRate, Bytes, Nanoseconds};
use linerate_model::workload::TrialSpec;
use serde::Serialize;
use serde_json::Value;

use crate::proof::moved_settings;

/// Something with another value in the later run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Change {
    /// What it is: `local kernel`, `remote sysctl/net.ipv4.tcp_rmem`, `option flows`.
    pub what: String,
    /// The value in the earlier run; null if it was not given.
    pub before: Option<String>,
    /// The value in the later run; null if it was not given.
    pub after: Option<String>,
}

impl Change {
    /// For a person: `local kernel 6.1, 6.12`.
    pub fn in_words(&self) -> String {
        let value =
            |value: &Option<String>| value.clone().unwrap_or_else(|| "not given".to_owned());
        format!(
            "{} {}, {}",
            self.what,
            value(&self.before),
            value(&self.after)
        )
    }
}

/// What differs in the host at `end`, whose data passes `nic`. A fact that only one of the runs could read is no
/// difference.
pub fn of_host(end: End, nic: &NicName, before: &Host, after: &Host) -> Vec<Change> {
    let card = |host: &Host| {
        host.nic(nic)
            .map(|nic| nic.card.clone())
            .unwrap_or_default()
    };
    let (card_before, card_after) = (card(before), card(after));
    let (was, is) = (&before.identity, &after.identity);
    let facts = [
        ("name", &was.hostname, &is.hostname),
        ("kernel", &was.kernel_release, &is.kernel_release),
        ("kernel command line", &was.command_line, &is.command_line),
        ("CPU", &was.cpu_model, &is.cpu_model),
        ("driver", &card_before.driver, &card_after.driver),
        (
            "driver version",
            &card_before.driver_version,
            &card_after.driver_version,
        ),
        ("firmware", &card_before.firmware, &card_after.firmware),
    ];
    let of_facts = facts.into_iter().filter_map(|(what, before, after)| {
        let of_nic = if what.contains("driver") || what == "firmware" {
            format!("{nic} ")
        } else {
            String::new()
        };
        change(format!("{end} {of_nic}{what}"), before, after)
    });
    let of_facts = of_facts.chain(mitigations(end, before, after));
    let settings = moved_settings(before, after, end, &[]).into_iter();
    let of_settings = settings.filter_map(|(_, key)| {
        let value = |host| current(host, &key).map(|value| value.to_string());
        change(format!("{end} {key}"), &value(before), &value(after))
    });
    of_facts.chain(of_settings).collect()
}

/// The mitigations of CPU vulnerabilities that differ: retpoline against IBRS, or none, is chosen at boot.
fn mitigations(end: End, before: &Host, after: &Host) -> Vec<Change> {
    let (Some(was), Some(is)) = (
        before.kernel.mitigations.value(),
        after.kernel.mitigations.value(),
    ) else {
        return Vec::new();
    };
    let changed = was.iter().filter_map(|(name, before)| {
        let after = is.get(name).filter(|after| *after != before)?;
        Some(Change {
            what: format!("{end} mitigation of {name}"),
            before: Some(before.clone()),
            after: Some(after.clone()),
        })
    });
    changed.collect()
}

fn change(what: String, before: &Known<String>, after: &Known<String>) -> Option<Change> {
    let (before, after) = (before.value()?, after.value()?);
    (before != after).then(|| Change {
        what,
        before: Some(before.clone()),
        after: Some(after.clone()),
    })
}

/// What differs in how two trials were asked for.
pub fn of_trials(before: &TrialSpec, after: &TrialSpec) -> Vec<Change> {
    let mut changes = Vec::new();
    let value = |spec: &TrialSpec| serde_json::to_value(spec).unwrap_or(Value::Null);
    compare("", &value(before), &value(after), &mut changes);
    // How often the counters are read follows from the duration.
    changes.retain(|change| change.what != "option interval");
    changes
}

/// A number of `key` for a person, with the name of the option without its unit.
fn in_unit(key: &str, value: u64) -> (&str, String) {
    if let Some(name) = key.strip_suffix("_ns") {
        (name, Nanoseconds::new(value).to_string())
    } else if let Some(name) = key.strip_suffix("_bit_per_s") {
        (name, BitRate::from_bit_per_s(value).to_string())
    } else if let Some(name) = key.strip_suffix("_bytes") {
        (name, Bytes::new(value).to_string())
    } else {
        (key, value.to_string())
    }
}

/// Compares two documents key by key.
fn compare(key: &str, before: &Value, after: &Value, changes: &mut Vec<Change>) {
    if before == after {
        return;
    }
    if let (Value::Object(one), Value::Object(other)) = (before, after) {
        let mut keys: Vec<&String> = one.keys().chain(other.keys()).collect();
        keys.sort_unstable();
        keys.dedup();
        for name in keys {
            let inner = if key.is_empty() {
                name.clone()
            } else {
                format!("{key}.{name}")
            };
            let of = |all: &serde_json::Map<String, Value>| {
                all.get(name).cloned().unwrap_or(Value::Null)
            };
            compare(&inner, &of(one), &of(other), changes);
        }
        return;
    }
    let in_words = |value: &Value| match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(match other.as_u64() {
            Some(number) => in_unit(key, number).1,
            None => other.to_string(),
        }),
    };
    let (name, _) = in_unit(key, 0);
    changes.push(Change {
        what: format!("option {name}"),
        before: in_words(before),
        after: in_words(after),
    });
}

#[cfg(test)]
mod tests {
    use linerate_model::build;
    use linerate_model::known::Cause;

    use super::*;

    #[test]
    fn another_kernel_firmware_and_setting_are_differences_and_what_one_could_not_read_is_none() {
        let (before, _) = build::veth_pair();
        let mut after = before.clone();
        after.identity.kernel_release = Known::Value("7.0".to_owned());
        after.identity.cpu_model = Known::unknown(Cause::NotSaid, "/proc/cpuinfo", "not read");
        let nic = before.nics[0].name.clone();
        after.nics[0].mtu = Known::Value(9_000);
        let found = of_host(End::Remote, &nic, &before, &after);
        let words: Vec<String> = found.iter().map(Change::in_words).collect();
        assert_eq!(words.len(), 2, "{words:?}");
        assert!(words[0].starts_with("remote kernel ") && words[0].ends_with(", 7.0"));
        assert!(words[1].starts_with("remote nic/") && words[1].ends_with(", 9000"));
        assert_eq!(of_host(End::Local, &nic, &before, &before), []);
    }

    #[test]
    fn two_boots_with_and_without_retpoline_are_told_apart() {
        let (mut before, _) = build::veth_pair();
        let nic = before.nics[0].name.clone();
        let mitigated = |how: &str| {
            let all = [("spectre_v2", how), ("meltdown", "Mitigation: PTI")];
            let all = all.map(|(name, how)| (name.to_owned(), how.to_owned()));
            Known::Value(all.into_iter().collect())
        };
        before.kernel.mitigations = mitigated("Mitigation: Retpolines; STIBP: disabled");
        before.identity.command_line = Known::Value("ro".to_owned());
        let mut after = before.clone();
        after.kernel.mitigations = mitigated("Vulnerable");
        after.identity.command_line = Known::Value("ro spectre_v2=off".to_owned());
        let found = of_host(End::Remote, &nic, &before, &after);
        let words: Vec<String> = found.iter().map(Change::in_words).collect();
        assert_eq!(
            words,
            [
                "remote kernel command line ro, ro spectre_v2=off",
                "remote mitigation of spectre_v2 Mitigation: Retpolines; STIBP: disabled, Vulnerable",
            ]
        );
    }

    #[test]
    fn options_are_compared_by_name_and_one_that_was_not_given_is_none() {
        let before = TrialSpec::default();
        let after = TrialSpec {
            flows: 8,
            duration_ns: Nanoseconds::from_millis(1_000),
            congestion_control: Some("bbr".to_owned()),
            ..TrialSpec::default()
        };
        let words: Vec<String> = of_trials(&before, &after)
            .iter()
            .map(Change::in_words)
            .collect();
        assert_eq!(
            words,
            [
                "option congestion_control not given, bbr",
                "option duration 10.00 s, 1.00 s",
                "option flows 1, 8"
            ]
        );
    }
}
