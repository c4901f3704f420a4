//! Programs that change settings by themselves, found by process names (`/proc/PID/comm`, proc_pid_comm(5): at most
//! 15 bytes). Names of other processes are not reported: a capture contains only those of the programs listed here.
//!
//! Any user can give a program any name, so only processes of root count (in a user namespace, those of its own root:
//! no other can change settings there).

use std::collections::BTreeSet;

use linerate_model::host::Owner;
use linerate_model::known::Known;

use crate::root::{HostRoot, absolute};

const FOLDER: &str = "proc";

/// `comm`, the owner's name, and a detail if several programs share that name.
const PROGRAMS: [(&str, &str, Option<&str>); 15] = [
    ("irqbalance", "irqbalance", None),
    ("tuned", "tuned", None),
    ("NetworkManager", "NetworkManager", None),
    ("systemd-network", "systemd-networkd", None),
    ("lldpad", "lldpad", None),
    ("bpftune", "bpftune", None),
    ("numad", "numad", None),
    ("thermald", "thermald", None),
    ("power-profiles-", "power-profiles-daemon", None),
    ("google_guest_ag", "cloud-agent", Some("google_guest_agent")),
    ("google_guest_a", "cloud-agent", Some("google_guest_agent")),
    ("amazon-ssm-agen", "cloud-agent", Some("amazon-ssm-agent")),
    ("ssm-agent-worke", "cloud-agent", Some("amazon-ssm-agent")),
    ("waagent", "cloud-agent", Some("waagent")),
    ("cloud-init", "cloud-agent", Some("cloud-init")),
];

/// The one of them that does not run as root.
const HAS_ITS_OWN_USER: &str = "systemd-networkd";

/// The files with irqbalance's options: Debian, Red Hat, and its own unit.
const IRQBALANCE_FILES: [&str; 3] = [
    "etc/default/irqbalance",
    "etc/sysconfig/irqbalance",
    "etc/irqbalance.env",
];
pub(crate) const TUNED_PROFILE: &str = "etc/tuned/active_profile";

/// Finds the running programs.
pub fn read_owners(root: &HostRoot) -> Known<Vec<Owner>> {
    let listed = root.list_unlogged(FOLDER);
    let names = match &listed {
        Known::Value(names) => names,
        Known::Unknown(_) => {
            root.note_list(FOLDER, &listed);
            return listed.map(|_| Vec::new());
        }
    };
    let threads_of_the_kernel = kernel_threads(root);
    let mut found = Vec::new();
    for pid in process_ids(names) {
        if threads_of_the_kernel.contains(&pid) {
            continue;
        }
        let path = format!("{FOLDER}/{pid}/comm");
        let comm = root.read_unlogged(&path);
        let Some(program) = comm.value().and_then(|comm| program_of(comm)) else {
            continue;
        };
        // A capture has no such file, but was made with the same check.
        let status = root.read_unlogged(&format!("{FOLDER}/{pid}/status"));
        let is_foreign = status.value().is_some_and(|status| !is_of_root(status));
        if is_foreign && program.0 != HAS_ITS_OWN_USER {
            continue;
        }
        root.note(&path, &comm);
        found.push((pid, program));
    }
    // Entries that are not processes are kept: a partial list would imply that the rest does not exist.
    let kept = names.iter().filter(|name| match name.parse::<u32>() {
        Ok(pid) => found.iter().any(|(found, _)| *found == pid),
        Err(_) => true,
    });
    root.note_list(FOLDER, &Known::Value(kept.cloned().collect()));
    let owner = |(pid, (name, detail)): (u32, (&str, Option<&str>))| Owner {
        name: name.to_owned(),
        pid,
        detail: match name {
            "irqbalance" => read_irqbalance(root),
            "tuned" => root
                .read_used(TUNED_PROFILE, str::to_owned)
                .value()
                .cloned(),
            _ => detail.map(str::to_owned),
        }
        .filter(|detail| !detail.is_empty()),
        path: absolute(&format!("{FOLDER}/{pid}/comm")),
    };
    Known::Value(found.into_iter().map(owner).collect())
}

/// The processes in a listing of `/proc`, in order.
pub(crate) fn process_ids(names: &[String]) -> Vec<u32> {
    crate::attributes::numbered(names, "")
}

/// Kernel threads, which are most of the processes on a large machine and never an owner: the children of `kthreadd`
/// (proc_tid_children(5)). Without that file every process is checked.
pub(crate) fn kernel_threads(root: &HostRoot) -> BTreeSet<u32> {
    let is_kthreadd = root.read_unlogged("proc/2/comm") == Known::Value("kthreadd".to_owned());
    if !is_kthreadd {
        return BTreeSet::new();
    }
    let children = root.read_unlogged("proc/2/task/2/children");
    let children = children.value().map_or("", String::as_str);
    children
        .split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// A line of `/proc/PID/status` (proc_pid_status(5)).
pub(crate) fn line_of<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = status.lines();
    lines.find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
}

/// Whether the effective user in a `/proc/PID/status` is root, as seen from this user namespace.
pub(crate) fn is_of_root(status: &str) -> bool {
    // Real, effective, saved, file system.
    let users = line_of(status, "Uid").unwrap_or_default();
    users.split_ascii_whitespace().nth(1) == Some("0")
}

fn program_of(comm: &str) -> Option<(&'static str, Option<&'static str>)> {
    let found = PROGRAMS.iter().find(|(name, ..)| *name == comm);
    found.map(|(_, name, detail)| (*name, *detail))
}

fn read_irqbalance(root: &HostRoot) -> Option<String> {
    let texts = IRQBALANCE_FILES.map(|path| root.read_used(path, used_irqbalance_lines));
    let texts = texts.iter().filter_map(Known::value);
    let options: Vec<String> = texts.flat_map(|text| parse_irqbalance(text)).collect();
    (!options.is_empty()).then(|| options.join(" "))
}

/// The options of irqbalance(1) in an environment file, without the paths that some of them take: a path may identify
/// the machine.
pub(crate) fn parse_irqbalance(text: &str) -> Vec<String> {
    const PLAIN: [&str; 2] = ["IRQBALANCE_ONESHOT", "IRQBALANCE_DEBUG"];
    let mut options = Vec::new();
    for line in text.lines().map(str::trim) {
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        let value = value.trim_matches(['"', '\'', ' ', '\t', '\r']);
        if line.starts_with('#') || value.is_empty() {
            continue;
        }
        if PLAIN.contains(&key) || key.starts_with("IRQBALANCE_BANNED_") {
            let is_set = value
                .bytes()
                .all(|b| b.is_ascii_hexdigit() || b"-, ".contains(&b));
            let value = if is_set { value } else { "set" };
            options.push(format!("{key}={value}"));
        } else if matches!(key, "IRQBALANCE_ARGS" | "OPTIONS") {
            options.extend(value.split_whitespace().filter_map(known_option));
        }
    }
    options
}

fn known_option(word: &str) -> Option<String> {
    let (name, value) = word.split_once('=').unwrap_or((word, ""));
    let is_option = name.starts_with('-')
        && name.len() <= 24
        && name.bytes().all(|b| b == b'-' || b.is_ascii_lowercase());
    let is_number = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
    match (is_option, is_number) {
        (true, true) => Some(word.to_owned()),
        (true, false) => Some(name.to_owned()),
        (false, _) => None,
    }
}

/// An irqbalance environment file as stored in a capture: the options that are used, in a form that parses the same.
fn used_irqbalance_lines(text: &str) -> String {
    let options = parse_irqbalance(text);
    let (words, lines): (Vec<String>, Vec<String>) = options
        .into_iter()
        .partition(|option| option.starts_with('-'));
    let arguments = (!words.is_empty()).then(|| format!("IRQBALANCE_ARGS={}", words.join(" ")));
    lines
        .into_iter()
        .chain(arguments)
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn options_are_kept_and_paths_are_not() {
        let text = "# IRQBALANCE_ARGS=--debug\nIRQBALANCE_BANNED_CPULIST=2-5,8\n\
            IRQBALANCE_ARGS=\"--banirq=24 --policyscript=/opt/acme/irq.sh -j /srv\"\nSECRET=x";
        let options = parse_irqbalance(text);
        assert_eq!(
            options,
            [
                "IRQBALANCE_BANNED_CPULIST=2-5,8",
                "--banirq=24",
                "--policyscript",
                "-j"
            ]
        );
        assert_eq!(parse_irqbalance(&used_irqbalance_lines(text)), options);
    }

    #[test]
    fn a_name_cut_to_fifteen_bytes_is_the_whole_program() {
        let (name, _) = program_of("systemd-network").expect("systemd-networkd");
        assert_eq!(name, "systemd-networkd");
        assert!(PROGRAMS.iter().all(|(comm, ..)| comm.len() <= 15));
        assert_eq!(program_of("bash"), None);
    }

    proptest! {
        #[test]
        fn no_text_panics_and_what_is_kept_reads_the_same_again(
            lines in proptest::collection::vec(
                "(IRQBALANCE_(ARGS|ONESHOT|BANNED_CPUS)|OPTIONS)=[\"]?[-a-z0-9=/ ,]{0,20}[\"]?|.{0,20}", 0..5),
        ) {
            let kept = used_irqbalance_lines(&lines.join("\n"));
            prop_assert_eq!(used_irqbalance_lines(&kept), kept);
        }
    }
}
