//! The file of a setting on this machine, if it is one: most paths are the same everywhere ([`SettingKey::fixed_file`]), some
//! depend on the machine.

use linerate_model::host::QueueKind;
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Known};
use linerate_model::setting::{
    BlockKnob, Form, MachineKnob, NicKnob, SettingFile, SettingKey, Value,
};

use super::rdma_defaults;
use crate::attributes::followed;
use crate::nic_control::NicRead;
use crate::root::{HostRoot, absolute};
use crate::sysfs::nics::irqs_of_queues;
use crate::sysfs::nvme::read_nvme;

const NO_TURBO: &str = "sys/devices/system/cpu/intel_pstate/no_turbo";
const BOOST: &str = "sys/devices/system/cpu/cpufreq/boost";

/// A sysctl name has fewer components than this; it bounds the search for the file of an untrusted name.
const SYSCTL_WORDS_MAX: usize = 16;

/// The value that the file has.
pub(super) fn read(root: &HostRoot, file: &SettingFile) -> Known<Value> {
    root.read(&file.path)
        .and_then(|text| match file.form.value(&text) {
            Ok(value) => Known::Value(value),
            Err(why) => Known::unknown(Cause::Unreadable, absolute(&file.path), why),
        })
}

/// The file of `key`: `None` for a setting that is not a file, a gap if this machine does not have it.
pub(super) fn file_of(
    root: &HostRoot,
    nics: &dyn NicRead,
    key: &SettingKey,
) -> Option<Known<SettingFile>> {
    if let SettingKey::Rdma(device, ..) = key
        && let Some(gap) = rdma_defaults::no_folder(root, device)
    {
        return Some(Known::Unknown(gap));
    }
    if let Some(file) = key.fixed_file() {
        return Some(Known::Value(file));
    }
    match key {
        SettingKey::Sysctl(name) => {
            Some(sysctl_path(root, name).map(|path| SettingFile::new(path, Form::Words)))
        }
        SettingKey::Nic(nic, NicKnob::IrqCpus(kind, index)) => {
            Some(irq_file(root, nics, key, nic, *kind, *index))
        }
        SettingKey::Machine(MachineKnob::Turbo) => Some(Known::Value(if root.exists(NO_TURBO) {
            SettingFile::new(NO_TURBO, Form::Opposite)
        } else {
            SettingFile::new(BOOST, Form::Switch)
        })),
        SettingKey::Block(device, BlockKnob::IoPolicy) => Some(io_policy_file(root, device)),
        _ => None,
    }
}

/// The file with an interface's MTU; it is set over netlink, which reports why it is refused.
pub(super) fn mtu(nic: &NicName) -> SettingFile {
    SettingFile::new(format!("sys/class/net/{nic}/mtu"), Form::Number)
}

fn irq_file(
    root: &HostRoot,
    nics: &dyn NicRead,
    key: &SettingKey,
    nic: &NicName,
    kind: QueueKind,
    index: u32,
) -> Known<SettingFile> {
    match irqs_of_queues(root, nics, nic).remove(&(kind, index)) {
        Some(irq) => irq.map(|number| {
            SettingFile::new(
                format!("proc/irq/{number}/smp_affinity_list"),
                Form::CpuList,
            )
        }),
        None => Known::unknown(Cause::Absent, key.to_string(), "no such queue"),
    }
}

/// Whether the interface has that queue.
pub(super) fn has_queue(root: &HostRoot, nic: &NicName, queue: (QueueKind, u32)) -> bool {
    let kind = match queue.0 {
        QueueKind::Rx => "rx",
        QueueKind::Tx => "tx",
    };
    root.exists(&format!("sys/class/net/{nic}/queues/{kind}-{}", queue.1))
}

/// The queues of the interface that share an interrupt with this queue, including itself.
pub(super) fn queues_of_same_irq(
    root: &HostRoot,
    nics: &dyn NicRead,
    nic: &NicName,
    kind: QueueKind,
    index: u32,
) -> Vec<(QueueKind, u32)> {
    let irqs = irqs_of_queues(root, nics, nic);
    let Some(irq) = irqs.get(&(kind, index)).and_then(Known::get) else {
        return Vec::new();
    };
    let shares = irqs.iter().filter(|(_, other)| other.get() == Some(irq));
    shares.map(|(queue, _)| *queue).collect()
}

/// The policy of the subsystem that the device, or a controller of it, belongs to.
fn io_policy_file(root: &HostRoot, device: &str) -> Known<SettingFile> {
    followed(root, "sys/block", device)
        .and_then(|folder| read_nvme(root).policy_file(&folder))
        .map(|path| SettingFile::new(path, Form::Words))
}

/// The file of a sysctl, relative to the root.
///
/// The components of a name become directories. An interface name may contain dots
/// (`net.ipv4.conf.eth0.100.forwarding`): a component that is not a directory, or leads to no file, is joined with
/// the next one, so the existing file decides. sysctl(8)'s other form, with slashes, is not a setting key. For a name
/// without a file, the path with every dot as a slash is reported as absent.
pub(super) fn sysctl_path(root: &HostRoot, name: &str) -> Known<String> {
    let words: Vec<&str> = name.split('.').collect();
    let plain = format!("proc/sys/{}", words.join("/"));
    let hostile = words
        .iter()
        .any(|word| word.is_empty() || word.contains(['/', '\0']));
    if hostile || words.len() > SYSCTL_WORDS_MAX {
        return Known::unknown(Cause::Absent, name, "not a sysctl's name");
    }
    if root.exists(&plain) {
        return Known::Value(plain);
    }
    match descend(root, "proc/sys".to_owned(), &words) {
        Some(path) => Known::Value(path),
        None => Known::unknown(
            Cause::Absent,
            format!("/{plain}"),
            "this kernel or network namespace has no such sysctl",
        ),
    }
}

fn descend(root: &HostRoot, folder: String, words: &[&str]) -> Option<String> {
    if words.is_empty() {
        return Some(folder);
    }
    (1..=words.len()).find_map(|taken| {
        let path = format!("{folder}/{}", words[..taken].join("."));
        root.exists(&path)
            .then(|| descend(root, path, &words[taken..]))
            .flatten()
    })
}
