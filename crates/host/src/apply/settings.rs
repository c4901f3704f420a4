//! Reads and writes one setting of the machine: the only reader that a transaction trusts, and the only writer in the
//! project.
//!
//! Text has the form of [`linerate_model::setting::current`], so a plan made from a host compares equal with what is
//! read here: sysctls with single spaces, CPU sets in list form, features as booleans. Some settings are files
//! (`files.rs`), most of the others are netlink requests about an interface (`nic_values.rs`): the row of a setting
//! says which (`Access`).

use std::io;

use linerate_model::known::{Cause, Known};
use linerate_model::setting::{
    Access, LinkSpeed, MachineKnob, NicKnob, SettingKey, Value, is_untold,
};

use super::write_error::{WriteError, as_switch, as_text, misfit, not_supported, refused};
use super::{cpus, daemon, files, nic_values, rdma_defaults, reported};
use crate::nic_control::{NicRead, NicWrite};
use crate::root::{HostRoot, LiveHost};

/// Why a setting that lasts as long as a process holds it is not written.
const NOT_WRITABLE: &str = "linerate can read it but not write it";
/// The gap of a setting that nothing here reads: a test shows that the catalog has none.
pub(super) const NO_READER: &str = "linerate does not read it";
/// Why a setting that belongs to a process is not.
const HELD: &str = "it needs a process that holds it: use `linerate tune hold`";

impl WriteError {
    /// Whether linerate, the kernel or the device cannot write it.
    pub fn is_unsupported(&self) -> bool {
        match self {
            Self::NotSupported { .. } => true,
            Self::Kernel { source, .. } => source.kind() == io::ErrorKind::Unsupported,
            Self::Trial { .. } | Self::Value { .. } => false,
        }
    }

    /// Whether more privileges would have helped.
    pub fn is_permission(&self) -> bool {
        matches!(self, Self::Kernel { source, .. }
            if source.kind() == io::ErrorKind::PermissionDenied)
    }
}

/// The error of a write to a setting whose name now belongs to another interface or device.
pub(super) fn is_of_another(key: &SettingKey, value: &Value) -> WriteError {
    let source = io::Error::new(
        io::ErrorKind::NotFound,
        "it was removed or renamed meanwhile",
    );
    refused(key, value, key.to_string(), source)
}

/// The current value of `key`.
pub fn read(root: &HostRoot, nics: &dyn NicRead, key: &SettingKey) -> Known<Value> {
    if let Some(file) = files::file_of(root, nics, key) {
        let value = file.and_then(|file| files::read(root, &file));
        return match value.gap().and_then(|gap| cpus::out_of_use(root, key, gap)) {
            Some(gap) => Known::Unknown(gap),
            None => value,
        };
    }
    match (key, key.spec().access) {
        (SettingKey::Nic(nic, knob), _) => nic_values::read(root, nics, key, nic, knob),
        (SettingKey::RdmaDefaults(device), _) => {
            rdma_defaults::is_shown(root, device).map(Value::Switch)
        }
        (SettingKey::Machine(MachineKnob::IrqbalancePaused), _) => daemon::is_paused(root),
        (SettingKey::Machine(MachineKnob::IrqbalanceBans), _) => daemon::bans(root),
        (SettingKey::Machine(MachineKnob::TrackConnections), _) => {
            nics.tracks_connections().map(Value::Switch)
        }
        (SettingKey::Machine(knob), Access::Reported(_)) => reported::read(root, nics, *knob),
        (_, Access::Held) => Known::unknown(Cause::NotAsked, key.to_string(), HELD),
        (SettingKey::Trial(_), _) => Known::unknown(
            Cause::Absent,
            key.to_string(),
            "a placement belongs to a measurement, not to a host",
        ),
        _ => Known::unknown(Cause::NotAsked, key.to_string(), NO_READER),
    }
}

/// What to do instead of writing a setting that linerate only reports; none for other settings.
pub fn advice(key: &SettingKey) -> Option<&'static str> {
    match key.spec().access {
        Access::Reported(advice) => Some(advice),
        _ => None,
    }
}

/// Sets `key` to `value`. The caller reads it back to verify.
pub fn write(
    live: &LiveHost,
    nics: &dyn NicWrite,
    key: &SettingKey,
    value: &Value,
) -> Result<(), WriteError> {
    if let Some(file) = files::file_of(live.root(), nics, key) {
        let file = match file {
            Known::Value(file) => file,
            Known::Unknown(gap) => {
                let source = io::Error::new(io::ErrorKind::NotFound, gap.reason);
                return Err(refused(key, value, gap.path, source));
            }
        };
        let text = file.text(value).ok_or_else(|| misfit(key, value))?;
        if let Some(why) = cpus::refusal(live.root(), key, &text) {
            return Err(not_supported(key, why));
        }
        return live
            .write(&file.path, &text)
            .map_err(|source| refused(key, value, format!("/{}", file.path), source));
    }
    match key {
        SettingKey::Trial(_) => Err(WriteError::Trial {
            setting: key.clone(),
        }),
        SettingKey::RdmaDefaults(device) => {
            let folder = rdma_defaults::folder(device);
            let done = if as_switch(key, value)? {
                live.make_folder(&folder)
            } else {
                live.remove_folder(&folder)
            };
            done.map_err(|source| refused(key, value, format!("/{folder}"), source))
        }
        SettingKey::Nic(nic, knob) => nic_values::write(live.root(), nics, key, nic, knob, value),
        SettingKey::Machine(MachineKnob::IrqbalancePaused) => {
            let paused = as_switch(key, value)?;
            daemon::pause(live.root(), paused)
                .map_err(|source| refused(key, value, "a signal to irqbalance".to_owned(), source))
        }
        SettingKey::Machine(MachineKnob::IrqbalanceBans) => {
            let bans = as_text(key, value)?;
            daemon::ban(live.root(), bans)
                .map_err(|source| refused(key, value, "irqbalance's socket".to_owned(), source))
        }
        SettingKey::Machine(MachineKnob::TrackConnections) => nics
            .track_connections(as_switch(key, value)?)
            .map_err(|source| refused(key, value, "nf_tables".to_owned(), source)),
        _ => Err(not_writable(key)),
    }
}

fn not_writable(key: &SettingKey) -> WriteError {
    not_supported(key, advice(key).unwrap_or(NOT_WRITABLE))
}

/// Why `key` could not be restored to its current value `found`; nothing if it could.
pub(super) fn one_way(key: &SettingKey, found: &Value) -> Option<&'static str> {
    match (key, found) {
        (SettingKey::Nic(_, NicKnob::LinkSpeed), Value::Text(words))
            if LinkSpeed::parse(words).is_none() =>
        {
            Some("the driver does not report the current value, so it could not be restored")
        }
        _ => None,
    }
}

/// Why `key` could not be restored after it was set to `to`, which the kernel keeps until the next boot, or which is
/// an action and not a state (Documentation/admin-guide/sysctl, Documentation/admin-guide/LSM/Yama.rst).
pub(super) fn for_good(key: &SettingKey, to: &Value) -> Option<&'static str> {
    const KEPT: &str = "the kernel resets it only at the next boot";
    const DONE: &str = "it is a one-time action that cannot be rolled back";
    let SettingKey::Sysctl(name) = key else {
        return None;
    };
    let to = to.to_string();
    match (name.as_str(), to.as_str()) {
        (
            "kernel.modules_disabled"
            | "kernel.kexec_load_disabled"
            | "kernel.kexec_load_limit_panic"
            | "kernel.kexec_load_limit_reboot",
            _,
        )
        | ("kernel.unprivileged_bpf_disabled", "1")
        | ("kernel.yama.ptrace_scope", "3") => Some(KEPT),
        ("vm.drop_caches" | "vm.compact_memory" | "net.ipv4.route.flush", _) => Some(DONE),
        _ => None,
    }
}

/// Whether `found` in a port's speed may be `wrote`: without a link some drivers do not report a forced speed.
pub(super) fn is_speed_untold(key: &SettingKey, wrote: &Value, found: &Value) -> bool {
    match (key, wrote, found) {
        (SettingKey::Nic(_, NicKnob::LinkSpeed), Value::Text(wrote), Value::Text(found)) => {
            is_untold(found) && matches!(LinkSpeed::parse(wrote), Some(LinkSpeed::Forced { .. }))
        }
        _ => false,
    }
}

/// Whether `found` is the result of writing `wrote`: the same, or the kernel's adjustment of it.
///
/// A qdisc requested without handle or parameters gets the kernel's. Drivers round ring sizes and delays to what the
/// hardware supports, and the kernel rounds a flow table up to a power of two (`store_rps_dev_flow_table_cnt`): up to
/// a factor of two counts as rounding.
pub(super) fn agrees(key: &SettingKey, wrote: &Value, found: &Value) -> bool {
    if wrote.is_met_by(found) || is_speed_untold(key, wrote, found) {
        return true;
    }
    match (wrote, found) {
        (Value::Integer(wrote), Value::Integer(found)) => {
            let rounds = key.spec().is_rounded;
            rounds && *wrote > 0 && *found >= wrote / 2 && *found <= wrote.saturating_mul(2)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use linerate_model::setting::catalogue;

    use super::*;

    fn captured(files: &[(&str, &str)]) -> (tempfile::TempDir, HostRoot) {
        let folder = tempfile::tempdir().expect("a folder for the captured host");
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        let root = HostRoot::open(folder.path()).expect("the folder that was just made");
        (folder, root)
    }

    fn key(text: &str) -> SettingKey {
        text.parse().expect("a key")
    }

    #[test]
    fn a_sysctl_of_an_interface_with_dots_in_its_name_is_found() {
        let (_folder, root) = captured(&[
            ("proc/sys/net/ipv4/conf/eth0/forwarding", "0\n"),
            ("proc/sys/net/ipv4/conf/eth0.100/forwarding", "1\n"),
            ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
        ]);
        let nics = crate::apply::fake::NoNics;
        let text = |name: &str| read(&root, &nics, &key(&format!("sysctl/{name}")));
        assert_eq!(
            text("net.ipv4.conf.eth0.100.forwarding").value(),
            Some(&Value::Text("1".to_owned()))
        );
        assert_eq!(
            text("net.ipv4.conf.eth0.forwarding").value(),
            Some(&Value::Text("0".to_owned()))
        );
        assert_eq!(
            text("net.ipv4.tcp_rmem").value(),
            Some(&Value::Text("4096 131072 6291456".to_owned()))
        );
        let gap = text("net.ipv4.no_such").gap().cloned().expect("a gap");
        assert_eq!(gap.cause, Cause::Absent);
        assert_eq!(gap.path, "/proc/sys/net/ipv4/no_such");
    }

    #[test]
    fn a_queues_mask_is_read_as_a_list() {
        let (_folder, root) = captured(&[
            (
                "sys/class/net/eth2/queues/rx-0/rps_cpus",
                "00000000,00000f01\n",
            ),
            ("sys/class/net/eth2/mtu", "9000\n"),
        ]);
        let nics = crate::apply::fake::NoNics;
        assert_eq!(
            read(&root, &nics, &key("nic/eth2/queue/rx-0/rps-cpus")).value(),
            Some(&Value::Text("0,8-11".to_owned()))
        );
        assert_eq!(
            read(&root, &nics, &key("nic/eth2/mtu")).value(),
            Some(&Value::Integer(9000))
        );
    }

    #[test]
    fn a_group_of_cpus_has_a_governor_and_a_preference() {
        let folder = "sys/devices/system/cpu/cpufreq/policy4";
        let (_folder, root) = captured(&[
            (&format!("{folder}/scaling_governor"), "powersave\n"),
            (
                &format!("{folder}/energy_performance_preference"),
                "balance_power\n",
            ),
        ]);
        let nics = crate::apply::fake::NoNics;
        let text = |name: &str| read(&root, &nics, &key(&format!("cpu/{name}")));
        assert_eq!(
            text("policy4/governor").value(),
            Some(&Value::Text("powersave".to_owned()))
        );
        assert_eq!(
            text("policy4/energy-preference").value(),
            Some(&Value::Text("balance_power".to_owned()))
        );
        assert!(text("policy5/governor").gap().is_some());
    }

    #[test]
    fn a_group_whose_cpus_are_out_of_use_says_how_they_come_back() {
        // A directory in place of the file cannot be read either.
        let governor = "sys/devices/system/cpu/cpufreq/policy4/scaling_governor/busy";
        let said = |online: &str| {
            let (_folder, root) = captured(&[
                (governor, ""),
                ("sys/devices/system/cpu/cpu4/online", online),
            ]);
            let value = read(
                &root,
                &crate::apply::fake::NoNics,
                &key("cpu/policy4/governor"),
            );
            value.gap().expect("it cannot be read").reason.clone()
        };
        assert!(said("0\n").contains("cpu4/online"), "{}", said("0\n"));
        assert!(!said("1\n").contains("cpu4/online"), "{}", said("1\n"));
    }

    #[test]
    fn a_hostile_sysctl_name_reads_nothing() {
        let (_folder, root) = captured(&[("proc/sys/a", "1"), ("secret", "x")]);
        for name in ["../../secret", "..", "", "a\0b"] {
            let path = files::sysctl_path(&root, name);
            assert!(path.gap().is_some(), "{name:?}: {path:?}");
        }
    }

    #[test]
    fn each_row_of_the_catalogue_is_read_and_only_what_is_held_is_refused() {
        let (_folder, root) = captured(&[]);
        let nics = crate::apply::fake::NoNics;
        for spec in catalogue() {
            let key = key(&spec.example());
            let answer = read(&root, &nics, &key);
            let is_refused = answer.gap().is_some_and(|gap| gap.reason == HELD);
            assert_eq!(matches!(spec.access, Access::Held), is_refused, "{key}");
            assert!(
                answer.gap().is_none_or(|gap| gap.reason != NO_READER),
                "{key}"
            );
        }
    }

    #[test]
    fn a_forced_speed_that_is_not_told_agrees_and_could_not_be_put_back() {
        let speed = key("nic/eth2/link/speed");
        let text = |text: &str| Value::Text(text.to_owned());
        let silent = text("forced");
        assert!(agrees(&speed, &text("1000 full"), &silent));
        assert!(!agrees(&speed, &text("auto 1000baseT/Full"), &silent));
        assert!(one_way(&speed, &silent).is_some());
        assert!(one_way(&speed, &text("1000 full")).is_none());
    }

    #[test]
    fn what_only_a_boot_takes_back_is_not_made() {
        let why = |name: &str, to: &str| for_good(&key(name), &Value::Text(to.to_owned()));
        assert!(why("sysctl/kernel.modules_disabled", "1").is_some());
        assert!(why("sysctl/kernel.yama.ptrace_scope", "3").is_some());
        assert!(why("sysctl/kernel.yama.ptrace_scope", "2").is_none());
        assert!(why("sysctl/vm.drop_caches", "1").is_some());
        assert!(why("sysctl/net.ipv4.tcp_sack", "1").is_none());
    }

    #[test]
    fn a_placement_is_not_a_hosts() {
        let live = LiveHost::open().expect("this machine");
        let error = write(
            &live,
            &crate::apply::fake::NoNics,
            &key("placement/sender-cpus"),
            &Value::Text("0".to_owned()),
        )
        .expect_err("not a host's");
        assert_eq!(
            error.to_string(),
            "cannot set placement/sender-cpus: it belongs to a measurement, not to a host"
        );
    }

    #[test]
    fn a_rounded_ring_agrees_and_a_rounded_mtu_does_not() {
        let (ring, mtu) = (key("nic/eth2/ring/rx"), key("nic/eth2/mtu"));
        let (asked, got) = (Value::Integer(1000), Value::Integer(1024));
        assert!(agrees(&ring, &asked, &got));
        assert!(!agrees(&mtu, &asked, &got));
        assert!(!agrees(&ring, &asked, &Value::Integer(4096)));
    }
}
