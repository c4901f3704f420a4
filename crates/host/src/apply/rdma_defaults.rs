//! rdma_cm's defaults for a device (drivers/infiniband/core/cma_configfs.c,
//! Documentation/ABI/testing/configfs-rdma_cm): files in a configfs directory that exists once a user creates it.
//!
//! The kernel keeps the values with the device and not with the directory: removing the directory hides a value, but
//! does not change it. So the directory is a setting itself, which comes first: its values are read before they are
//! changed, and restored before it is removed.

use linerate_model::known::{Cause, Gap, Known};
use linerate_model::setting::SettingKey;

use crate::root::{HostRoot, absolute};

const CONFIGFS: &str = "sys/kernel/config";

/// The directory of a device.
pub(super) fn folder(device: &str) -> String {
    let folder = SettingKey::RdmaDefaults(device.to_owned()).folder();
    folder.expect("the row of this setting is a directory")
}

/// Whether the directory exists; a gap if it cannot be created.
pub(super) fn is_shown(root: &HostRoot, device: &str) -> Known<bool> {
    let folder = folder(device);
    if root.exists(&folder) {
        return Known::Value(true);
    }
    let absent = |reason: &str| Known::unknown(Cause::Absent, absolute(&folder), reason);
    if !root.exists(&format!("sys/class/infiniband/{device}")) {
        return absent("no such RDMA device");
    }
    if root.exists(&format!("{CONFIGFS}/rdma_cm")) {
        return Known::Value(false);
    }
    match root.list(CONFIGFS) {
        Known::Unknown(_) => absent("the kernel has no configfs, or its module is not loaded"),
        Known::Value(names) if names.is_empty() => {
            absent("configfs is not mounted at /sys/kernel/config, or nothing uses it")
        }
        Known::Value(_) => absent("the module rdma_cm is not loaded"),
    }
}

/// Why the files of a device are missing, if they are.
pub(super) fn no_folder(root: &HostRoot, device: &str) -> Option<Gap> {
    match is_shown(root, device) {
        Known::Value(true) => None,
        Known::Value(false) => Some(Gap::new(
            Cause::Absent,
            absolute(&folder(device)),
            format!(
                "the configfs directory does not exist: enable rdma/{device}/cm-defaults first"
            ),
        )),
        Known::Unknown(gap) => Some(gap),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use linerate_model::setting::Value;

    use super::*;
    use crate::apply::fake::NoNics;
    use crate::apply::settings::read;

    #[test]
    fn defaults_are_known_once_their_folder_is_made_and_each_lack_has_its_cause() {
        let host = tempfile::tempdir().expect("a folder for the captured host");
        let make = |path: &str| {
            fs::create_dir_all(host.path().join(path)).expect("a folder");
        };
        let root = HostRoot::open(host.path()).expect("the folder that was just made");
        let now = |name: &str| read(&root, &NoNics, &name.parse().expect("a key"));
        let reason = |name: &str| now(name).gap().map(|gap| gap.reason.clone());
        let shown = "rdma/rxe0/cm-defaults";

        let said = |what: &str| {
            assert!(
                reason(shown).is_some_and(|why| why.contains(what)),
                "{what}"
            );
        };
        said("no such RDMA device");
        make("sys/class/infiniband/rxe0");
        said("no configfs");
        make("sys/kernel/config");
        said("not mounted");
        make("sys/kernel/config/nvmet");
        said("rdma_cm is not loaded");
        make("sys/kernel/config/rdma_cm");
        assert_eq!(now(shown), Known::Value(Value::Switch(false)));
        let tos = "rdma/rxe0/1/default-roce-tos";
        assert!(reason(tos).is_some_and(|why| why.contains("cm-defaults first")));

        let port = "sys/kernel/config/rdma_cm/rxe0/ports/1";
        make(port);
        for (file, text) in [
            ("default_roce_mode", "IB/RoCE v1\n"),
            ("default_roce_tos", "0\n"),
        ] {
            fs::write(host.path().join(port).join(file), text).expect("a file");
        }
        assert_eq!(now(shown), Known::Value(Value::Switch(true)));
        assert_eq!(now(tos), Known::Value(Value::Integer(0)));
        let mode = now("rdma/rxe0/1/default-gid-type");
        assert_eq!(mode, Known::Value(Value::Text("IB/RoCE v1".to_owned())));
    }
}
