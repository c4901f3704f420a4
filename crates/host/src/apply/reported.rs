//! Settings that linerate reports but does not write: those that only the kernel command line sets
//! (Documentation/admin-guide/kernel-parameters.txt), so that they need a reboot, and netfilter rules, which belong
//! to other programs.

use linerate_model::known::{Cause, Known};
use linerate_model::setting::{MachineKnob, Value};

use super::settings::NO_READER;
use crate::nic_control::NicRead;
use crate::root::{HostRoot, absolute};

const COMMAND_LINE: &str = "proc/cmdline";
const NF_TABLES: &str = "sys/module/nf_tables";

/// The value of one of them.
pub(super) fn read(root: &HostRoot, nics: &dyn NicRead, knob: MachineKnob) -> Known<Value> {
    let parameter = |path: &str| {
        root.read(path).and_then(|text| {
            let number = text.trim().parse();
            number.map_or_else(
                |_| Known::unknown(Cause::Unreadable, absolute(path), "not a whole number"),
                |number| Known::Value(Value::Integer(number)),
            )
        })
    };
    match knob {
        MachineKnob::Mitigations => root
            .read(COMMAND_LINE)
            .map(|line| Value::Text(last_word(&line, "mitigations=").to_owned())),
        MachineKnob::IntelIdleMaxCstate => parameter("sys/module/intel_idle/parameters/max_cstate"),
        MachineKnob::AcpiMaxCstate => parameter("sys/module/processor/parameters/max_cstate"),
        // A query would make the kernel load it, and reading must change nothing.
        MachineKnob::NftRules if !root.exists(NF_TABLES) => Known::unknown(
            Cause::Absent,
            absolute(NF_TABLES),
            "the module nf_tables is not loaded",
        ),
        MachineKnob::NftRules => nics.nft_rules().map(Value::Integer),
        MachineKnob::IptablesTables => root
            .read("proc/net/ip_tables_names")
            .map(|names| Value::Text(sorted_words(&names))),
        other => Known::unknown(Cause::NotAsked, other.to_string(), NO_READER),
    }
}

/// The last `mitigations=` on the command line; the kernel's default without one.
fn last_word<'l>(line: &'l str, name: &str) -> &'l str {
    let words = line.split_whitespace().rev();
    let mut values = words.filter_map(|word| word.strip_prefix(name));
    values.next().unwrap_or("auto")
}

/// The kernel lists the newest table first.
fn sorted_words(names: &str) -> String {
    let mut names: Vec<&str> = names.split_whitespace().collect();
    names.sort_unstable();
    names.join(" ")
}

#[cfg(test)]
mod tests {
    use linerate_model::setting::SettingKey;

    use super::*;
    use crate::apply::fake::NoNics;
    use crate::apply::settings::{advice, read};

    #[test]
    fn what_only_a_boot_changes_is_read_with_what_to_do() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a file is in a folder"))
                .expect("a folder");
            std::fs::write(path, text).expect("a file");
        };
        let told = |key: &str| {
            let root = HostRoot::open(folder.path()).expect("a folder");
            let key: SettingKey = key.parse().expect("a key");
            assert!(!key.is_writable(), "{key}");
            assert!(advice(&key).is_some(), "{key}");
            read(&root, &NoNics, &key)
        };
        file("proc/cmdline", "root=/dev/vda1 quiet\n");
        assert_eq!(
            told("cpu/mitigations").value().cloned(),
            Some(Value::Text("auto".to_owned()))
        );
        file("proc/cmdline", "mitigations=auto mitigations=off quiet\n");
        assert_eq!(
            told("cpu/mitigations").value().cloned(),
            Some(Value::Text("off".to_owned()))
        );
        assert!(told("cpu/intel-idle-max-cstate").gap().is_some());
        file("sys/module/intel_idle/parameters/max_cstate", "1\n");
        assert_eq!(
            told("cpu/intel-idle-max-cstate").value().cloned(),
            Some(Value::Integer(1))
        );
        file("proc/net/ip_tables_names", "nat\nfilter\n");
        assert_eq!(
            told("netfilter/iptables-tables").value().cloned(),
            Some(Value::Text("filter nat".to_owned()))
        );
        let gap = told("netfilter/nft-rules")
            .gap()
            .cloned()
            .expect("no module");
        assert_eq!(gap.cause, Cause::Absent);
    }
}
