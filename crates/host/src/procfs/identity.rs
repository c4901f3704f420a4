//! The identity of the machine and kernel: `/proc/sys/kernel`, `/proc/cmdline`, `/proc/cpuinfo`, and the kernel
//! configuration for its CPU time accounting.

use linerate_model::host::Identity;
use linerate_model::known::{Cause, Known};

use crate::root::{HostRoot, absolute};

/// Enough of `/proc/cpuinfo` for the first CPU. The whole file is a megabyte on a large machine, and some kernels
/// interrupt every CPU to print its frequency.
const CPUINFO_BYTES: u64 = 8192;

/// The configuration lines that [`parse_accounting`] reads.
const CONFIG_KEYS: [&str; 3] = [
    "CONFIG_IRQ_TIME_ACCOUNTING",
    "CONFIG_VIRT_CPU_ACCOUNTING_NATIVE",
    "CONFIG_HAVE_IRQ_TIME_ACCOUNTING",
];

/// The first part of `/proc/cpuinfo`.
pub(crate) fn read_cpuinfo(root: &HostRoot) -> Known<String> {
    root.read_start("proc/cpuinfo", CPUINFO_BYTES)
}

/// Reads the identity of the host.
pub(crate) fn read_identity(root: &HostRoot, cpuinfo: Known<String>) -> Identity {
    let kernel_release = root.read("proc/sys/kernel/osrelease");
    let command_line = root.read("proc/cmdline");
    Identity {
        hostname: root.read("proc/sys/kernel/hostname"),
        architecture: root.architecture(),
        boot_id: root.read("proc/sys/kernel/random/boot_id"),
        cpu_model: cpuinfo.and_then(|text| match parse_cpu_model(&text) {
            Some(model) => Known::Value(model),
            None => Known::unknown(
                Cause::NotSaid,
                "/proc/cpuinfo",
                "this architecture reports no CPU model there",
            ),
        }),
        irq_time_accounting: read_accounting(root, &kernel_release, &command_line),
        kernel_release,
        command_line,
    }
}

/// The model of the first CPU: `model name` (x86, Arm), `cpu` (POWER), `Processor` (old Arm), `vendor_id` and the
/// machine type (s390).
pub(crate) fn parse_cpu_model(text: &str) -> Option<String> {
    let value = |key: &str| {
        text.lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(name, value)| name.trim() == key && !value.trim().is_empty())
            .map(|(_, value)| value.trim().to_owned())
    };
    let s390 = || {
        let vendor = value("vendor_id").filter(|vendor| vendor == "IBM/S390")?;
        let machine = text.split_once("machine = ")?.1.lines().next()?.trim();
        Some(format!("{vendor} {machine}"))
    };
    value("model name")
        .or_else(|| value("cpu"))
        .or_else(|| value("Processor"))
        .or_else(s390)
}

/// Whether interrupt time is accounted exactly. No kernel file reports it; its configuration and command line decide.
/// `/proc/config.gz` is compressed and not read here: if only that exists, the value is unknown.
fn read_accounting(
    root: &HostRoot,
    release: &Known<String>,
    command_line: &Known<String>,
) -> Known<bool> {
    let release = match release {
        Known::Value(release) if !release.contains('/') => release,
        Known::Value(_) => {
            let reason = "the kernel's release names no file";
            return Known::unknown(Cause::Unreadable, "/proc/sys/kernel/osrelease", reason);
        }
        Known::Unknown(gap) => return Known::Unknown(gap.clone()),
    };
    let path = format!("boot/config-{release}");
    match root.read(&path) {
        Known::Unknown(gap) => Known::unknown(
            gap.cause,
            gap.path,
            format!(
                "{}; the kernel's configuration decides, and the packed /proc/config.gz is not read",
                gap.reason
            ),
        ),
        Known::Value(config) => {
            let command_line = command_line.value().map_or("", String::as_str);
            match parse_accounting(&config, command_line) {
                Some(exact) => Known::Value(exact),
                None => Known::unknown(
                    Cause::NotSaid,
                    absolute(&path),
                    "CONFIG_IRQ_TIME_ACCOUNTING is not in it",
                ),
            }
        }
    }
}

/// Exact if built in and not turned off: `tsc=noirqtime` and an unusable TSC do that on x86, `irqtime=0` elsewhere
/// (Documentation/admin-guide/kernel-parameters.txt). Native accounting (POWER, s390) is always exact.
pub(crate) fn parse_accounting(config: &str, command_line: &str) -> Option<bool> {
    let is_set = |key: &str| {
        config.lines().any(|line| {
            line.strip_prefix(key)
                .is_some_and(|rest| rest.trim() == "=y")
        })
    };
    if is_set("CONFIG_VIRT_CPU_ACCOUNTING_NATIVE") {
        return Some(true);
    }
    if is_set("CONFIG_IRQ_TIME_ACCOUNTING") {
        let switched_off = command_line.split_whitespace().any(|word| {
            matches!(
                word,
                "tsc=noirqtime" | "tsc=unstable" | "notsc" | "irqtime=0"
            )
        });
        return Some(!switched_off);
    }
    let is_named = config.lines().any(|line| {
        line.trim_start_matches(['#', ' '])
            .starts_with("CONFIG_IRQ_TIME_ACCOUNTING")
    });
    // On an architecture without support, the option is not listed.
    let is_a_configuration = config.lines().any(|line| line.starts_with("CONFIG_"));
    (is_named || is_a_configuration).then_some(false)
}

/// The lines of a kernel configuration that are used here, and one that identifies the file.
pub(crate) fn used_config_lines(config: &str) -> String {
    let first = config.lines().find(|line| line.starts_with("CONFIG_"));
    let used = config.lines().filter(|line| {
        let line = line.trim_start_matches(['#', ' ']);
        CONFIG_KEYS.iter().any(|key| line.starts_with(key))
    });
    first.into_iter().chain(used).collect::<Vec<_>>().join("\n")
}

/// The part of `/proc/cpuinfo` that is used here: the file also contains serial numbers, on s390 and some Arm.
pub(crate) fn used_cpuinfo_lines(text: &str) -> String {
    const KEYS: [&str; 4] = ["model name", "cpu", "Processor", "vendor_id"];
    let of_key = |key: &&str| {
        text.lines().find(|line| {
            line.split_once(':')
                .is_some_and(|(name, value)| name.trim() == *key && !value.trim().is_empty())
        })
    };
    let machine = text
        .split_once("machine = ")
        .and_then(|(_, rest)| rest.lines().next())
        .map(|machine| format!("machine = {machine}"));
    // Of the flags, only the one for a guest.
    let flags = parse_guest_flag(text).map(|is_guest| {
        let flag = if is_guest { "hypervisor" } else { "" };
        format!("flags\t: {flag}")
    });
    let lines = KEYS.iter().filter_map(of_key).map(str::to_owned);
    lines
        .chain(machine)
        .chain(flags)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Whether the flags of an x86 CPU show a hypervisor; `None` on other architectures.
pub(crate) fn parse_guest_flag(cpuinfo: &str) -> Option<bool> {
    let flags = cpuinfo
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == "flags")?;
    Some(flags.1.split_whitespace().any(|flag| flag == "hypervisor"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn accounting_is_exact_only_when_built_in_and_not_switched_off() {
        let on = "CONFIG_A=y\nCONFIG_IRQ_TIME_ACCOUNTING=y\n";
        let off = "CONFIG_A=y\n# CONFIG_IRQ_TIME_ACCOUNTING is not set\n";
        assert_eq!(parse_accounting(on, "quiet"), Some(true));
        assert_eq!(parse_accounting(on, "quiet tsc=noirqtime"), Some(false));
        assert_eq!(parse_accounting(off, ""), Some(false));
        assert_eq!(parse_accounting("", ""), None);
    }

    #[test]
    fn the_model_is_found_on_every_architecture() {
        let model = |text| parse_cpu_model(text);
        assert_eq!(
            model("processor\t: 0\nmodel name\t: AMD EPYC 7763\n").as_deref(),
            Some("AMD EPYC 7763")
        );
        assert_eq!(
            model("processor\t: 0\ncpu\t\t: POWER9, altivec supported\n").as_deref(),
            Some("POWER9, altivec supported")
        );
        let s390 = "vendor_id       : IBM/S390\nprocessor 0: version = 00,  machine = 2817\n";
        assert_eq!(model(s390).as_deref(), Some("IBM/S390 2817"));
        assert_eq!(model("processor : 0\nBogoMIPS : 50.00"), None);
    }

    proptest! {
        #[test]
        fn no_text_panics_and_the_kept_lines_say_the_same(
            lines in proptest::collection::vec(
                "#? ?CONFIG_(IRQ_TIME_ACCOUNTING|VIRT_CPU_ACCOUNTING_NATIVE|X)(=y|=m| is not set).{0,4}",
                0..8,
            ),
            text in ".{0,60}",
        ) {
            let config = lines.join("\n");
            prop_assert_eq!(
                parse_accounting(&config, &text),
                parse_accounting(&used_config_lines(&config), &text)
            );
            let _ = parse_cpu_model(&text);
        }

        #[test]
        fn the_kept_lines_of_cpuinfo_name_the_same_model(lines in proptest::collection::vec(
            "(model name|cpu|Processor|vendor_id|processor 0|flags|x)\t: ?(IBM/S390|A 7|id = 1, machine = 2817|fpu hypervisor)?",
            0..8,
        )) {
            let text = lines.join("\n");
            let kept = used_cpuinfo_lines(&text);
            prop_assert_eq!(parse_cpu_model(&text), parse_cpu_model(&kept));
            prop_assert_eq!(parse_guest_flag(&text), parse_guest_flag(&kept));
            prop_assert!(!kept.contains("processor"));
        }
    }
}
