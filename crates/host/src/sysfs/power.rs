//! Frequency and idle state management (Documentation/admin-guide/pm/cpufreq.rst, intel_pstate.rst, amd-pstate.rst,
//! cpuidle.rst; Documentation/admin-guide/cputopology.rst).

use linerate_model::host::{FrequencyPolicy, Power};
use linerate_model::ids::{CpuId, CpuSet};
use linerate_model::known::{Cause, Known};
use linerate_model::setting::parse_chosen;

use super::cpus::FOLDER;
use super::idle::read_idle_states;
use crate::attributes::{number, numbered, or_if_absent, parsed, understood};
use crate::parallel;
use crate::root::{HostRoot, absolute};

const LATENCY: &str = "dev/cpu_dma_latency";

/// Reads everything except `frequency`, which is read before the CPUs.
pub(crate) fn read_power(
    root: &HostRoot,
    cpus: &[CpuId],
    frequency: Known<Vec<FrequencyPolicy>>,
) -> Power {
    let pstate = |file: &str| root.read(&format!("{FOLDER}/{file}"));
    Power {
        frequency,
        turbo: or_if_absent(flag(root, "intel_pstate/no_turbo").map(|no| !no), || {
            flag(root, "cpufreq/boost")
        }),
        pstate_mode: or_if_absent(pstate("intel_pstate/status"), || {
            pstate("amd_pstate/status")
        }),
        pstate_max_percent: number(root, &format!("{FOLDER}/intel_pstate/max_perf_pct")),
        smt: or_if_absent(root.read(&format!("{FOLDER}/smt/control")), || {
            flag(root, "smt/active").map(|on| if on { "on" } else { "off" }.to_owned())
        }),
        idle_driver: root.read(&format!("{FOLDER}/cpuidle/current_driver")),
        idle_states: read_idle_states(root, cpus),
        latency_limit_us: root.read_bytes(LATENCY, 4).and_then(|bytes| {
            match parse_latency(&bytes) {
                Some(limit) => Known::Value(limit),
                None => Known::unknown(
                    Cause::Unreadable,
                    absolute(LATENCY),
                    format!("expected 4 bytes, got {}", bytes.len()),
                ),
            }
        }),
    }
}

fn flag(root: &HostRoot, file: &str) -> Known<bool> {
    parsed(root, &format!("{FOLDER}/{file}"), super::cpus::parse_online)
}

/// A signed 32-bit number in host byte order (kernel/power/qos.c, `cpu_latency_qos_read`). A capture stores the bytes
/// unchanged; every architecture but s390 has the same byte order.
pub(crate) fn parse_latency(bytes: &[u8]) -> Option<u32> {
    let bytes: [u8; 4] = bytes.try_into().ok()?;
    u32::try_from(i32::from_ne_bytes(bytes)).ok()
}

/// Reads the cpufreq policies; `usable` are the online CPUs. Older kernels have them only below the CPUs
/// (`cpuN/cpufreq`), not in `cpufreq/policyN`.
pub(crate) fn read_frequency(root: &HostRoot, usable: &[CpuId]) -> Known<Vec<FrequencyPolicy>> {
    let folder = format!("{FOLDER}/cpufreq");
    let numbers = match root.list(&folder) {
        Known::Value(names) => numbered(&names, "policy"),
        Known::Unknown(gap) if gap.cause == Cause::Absent => Vec::new(),
        Known::Unknown(gap) => return Known::Unknown(gap),
    };
    let Some((first, others)) = numbers.split_first() else {
        return match read_below_cpus(root, usable) {
            Known::Value(policies) if policies.is_empty() => {
                Known::unknown(Cause::Absent, absolute(&folder), "no cpufreq driver")
            }
            policies => policies,
        };
    };
    // A policy has the number of its first CPU: as many policies as CPUs means one CPU each.
    let one_each = numbers.iter().copied().eq(usable.iter().map(|cpu| cpu.0));
    let read = |number: u32, like: Option<&FrequencyPolicy>| {
        let policy = read_policy(root, &format!("{folder}/policy{number}"), like, || {
            one_each.then(|| CpuSet::one(CpuId(number)))
        });
        FrequencyPolicy {
            number: Known::Value(number),
            ..policy
        }
    };
    let first = read(*first, None);
    let others = parallel::each(others, |number| read(*number, Some(&first)));
    Known::Value(std::iter::once(first).chain(others).collect())
}

/// The policies of kernels that have them only below their CPUs: in the folder of the first, with links from the others,
/// or with a folder for each.
fn read_below_cpus(root: &HostRoot, usable: &[CpuId]) -> Known<Vec<FrequencyPolicy>> {
    let mut policies: Vec<FrequencyPolicy> = Vec::new();
    for cpu in usable {
        let known = |policy: &FrequencyPolicy| {
            let cpus = policy.cpus.value();
            cpus.is_some_and(|cpus| cpus.contains(*cpu))
        };
        if policies.iter().any(known) {
            continue;
        }
        let folder = format!("{FOLDER}/cpu{}/cpufreq", cpu.0);
        match root.list(&folder) {
            Known::Value(_) => {
                let policy = read_policy(root, &folder, policies.first(), || None);
                policies.push(FrequencyPolicy {
                    number: Known::unknown(
                        Cause::Absent,
                        absolute(&folder),
                        "this kernel does not number policies",
                    ),
                    cpus: or_if_absent(policy.cpus, || Known::Value(CpuSet::one(*cpu))),
                    ..policy
                });
            }
            Known::Unknown(gap) if gap.cause == Cause::Absent => {}
            Known::Unknown(gap) => return Known::Unknown(gap),
        }
    }
    Known::Value(policies)
}

/// Reads one policy. All have the same driver and so the same files: files missing in `like` are not read again.
fn read_policy(
    root: &HostRoot,
    folder: &str,
    like: Option<&FrequencyPolicy>,
    cpus: impl FnOnce() -> Option<CpuSet>,
) -> FrequencyPolicy {
    let khz = |file: &str| number::<u64>(root, &format!("{folder}/{file}"));
    let text = |file: &str| root.read(&format!("{folder}/{file}"));
    let cpus = match cpus() {
        Some(cpus) => Known::Value(cpus),
        None => parsed(root, &format!("{folder}/affected_cpus"), parse_cpus),
    };
    // Collaborative Processor Performance Control of ACPI (Documentation/admin-guide/acpi/cppc_sysfs.rst).
    let first = cpus.value().and_then(CpuSet::first).unwrap_or(CpuId(0));
    let perf = |file: &str| {
        let path = format!("{FOLDER}/cpu{}/acpi_cppc/{file}", first.0);
        number::<u64>(root, &path).and_then(|value| match value {
            0 => Known::unknown(Cause::Absent, absolute(&path), "the firmware has none"),
            value => Known::Value(value),
        })
    };
    FrequencyPolicy {
        number: Known::default(),
        cpus,
        driver: match like.map(|like| &like.driver) {
            Some(Known::Value(driver)) => Known::Value(driver.clone()),
            _ => text("scaling_driver"),
        },
        governor: text("scaling_governor"),
        energy_preference: unless_absent(like.map(|like| &like.energy_preference), || {
            text("energy_performance_preference")
        }),
        min_khz: khz("scaling_min_freq"),
        max_khz: khz("scaling_max_freq"),
        hardware_max_khz: khz("cpuinfo_max_freq"),
        base_khz: unless_absent(like.map(|like| &like.base_khz), || {
            or_if_absent(khz("base_frequency"), || {
                perf("nominal_freq").map(|mhz| mhz * 1000)
            })
        }),
        available_max_khz: unless_absent(like.map(|like| &like.available_max_khz), || {
            let path = format!("{folder}/scaling_available_frequencies");
            parsed(root, &path, parse_frequencies)
        }),
        highest_perf: unless_absent(like.map(|like| &like.highest_perf), || perf("highest_perf")),
        nominal_perf: unless_absent(like.map(|like| &like.nominal_perf), || perf("nominal_perf")),
    }
}

fn unless_absent<T: Clone>(like: Option<&Known<T>>, read: impl FnOnce() -> Known<T>) -> Known<T> {
    match like {
        Some(Known::Unknown(gap)) if gap.cause == Cause::Absent => Known::Unknown(gap.clone()),
        _ => read(),
    }
}

/// `scaling_available_frequencies`: kHz separated by spaces, in any order.
pub(crate) fn parse_frequencies(text: &str) -> Result<u64, String> {
    let number = |word: &str| {
        word.parse()
            .map_err(|_| format!("`{word}` is not a frequency"))
    };
    let all: Result<Vec<u64>, String> = text.split_whitespace().map(number).collect();
    all?.into_iter()
        .max()
        .ok_or_else(|| "no frequency".to_owned())
}

/// `affected_cpus`: numbers separated by spaces.
pub(crate) fn parse_cpus(text: &str) -> Result<CpuSet, String> {
    let number = |word: &str| match word.parse::<u32>() {
        Ok(cpu) if cpu <= CpuSet::CPU_MAX => Ok(CpuId(cpu)),
        _ => Err(format!("`{word}` is not a CPU")),
    };
    text.split_whitespace().map(number).collect()
}

/// Reads the word in brackets of a file.
pub(crate) fn chosen(root: &HostRoot, path: &str) -> Known<String> {
    root.read(path)
        .and_then(|text| understood(path, &text, parse_chosen))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_kernels_own_forms_are_read() {
        assert_eq!(
            parse_latency(&2_000_000_000i32.to_ne_bytes()),
            Some(2_000_000_000)
        );
        assert_eq!(parse_latency(&[0xff; 4]), None);
        assert_eq!(parse_latency(b"abc"), None);
        let cpus = parse_cpus("0 2 4").map(|cpus| cpus.to_string());
        assert_eq!(cpus.as_deref(), Ok("0,2,4"));
        assert_eq!(parse_frequencies("2250000 1800000 1500000 "), Ok(2_250_000));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9 ]{0,20}|.{0,20}", bytes in proptest::collection::vec(any::<u8>(), 0..6)) {
            let _ = (parse_cpus(&text), parse_frequencies(&text), parse_chosen(&text), parse_latency(&bytes));
        }
    }
}
