//! The reverter's privileges: the capabilities needed for restoring, and nothing else (capabilities(7)). Everything
//! here is best effort: dropping privileges needs none.

use std::path::Path;

use linerate_model::setting::needs;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// The capability with that name, among those that settings need.
fn capability(name: &str) -> CapabilitySet {
    match name {
        needs::NET_ADMIN => CapabilitySet::NET_ADMIN,
        needs::DAC_OVERRIDE => CapabilitySet::DAC_OVERRIDE,
        needs::SYS_ADMIN => CapabilitySet::SYS_ADMIN,
        needs::KILL => CapabilitySet::KILL,
        _ => CapabilitySet::empty(),
    }
}

/// Those of the capabilities `names` that this process does not have.
pub fn missing(names: &[&'static str]) -> Vec<&'static str> {
    let own = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
    let lacks = |name: &&&'static str| !own.contains(capability(name));
    names.iter().filter(lacks).copied().collect()
}

/// Permanently drops everything but the capabilities `names`, and what is needed to write to the journals below
/// `state`.
pub(super) fn keep_only(names: &[String], state: &Path) {
    let _ = set_no_new_privs(true);
    let _ = clear_ambient_capability_set();
    let Ok(CapabilitySets { permitted, .. }) = capabilities(None) else {
        return;
    };
    let asked = names.iter().map(|name| capability(name));
    let mut kept = asked.fold(CapabilitySet::empty(), |all, one| all | one) & permitted;
    let hold = |effective, permitted| {
        let sets = CapabilitySets {
            effective,
            permitted,
            inheritable: CapabilitySet::empty(),
        };
        set_capabilities(None, sets)
    };
    // The state directory may belong to another user.
    let _ = hold(kept, permitted);
    if !may_write(state) {
        kept |= CapabilitySet::DAC_OVERRIDE & permitted;
    }
    // Reducing the bounding set needs one more capability.
    let _ = hold(permitted, permitted);
    for one in (0..u64::BITS).map(|bit| CapabilitySet::from_bits_retain(1 << bit)) {
        if !kept.contains(one) {
            let _ = remove_capability_from_bounding_set(one);
        }
    }
    let _ = hold(kept, kept);
}

/// Whether this process can write to a directory, or create it.
fn may_write(folder: &Path) -> bool {
    let access = Access::WRITE_OK | Access::EXEC_OK;
    let there = folder.ancestors().find_map(|folder| {
        let folder = if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        };
        match accessat(CWD, folder, access, AtFlags::EACCESS) {
            Err(rustix::io::Errno::NOENT) => None,
            answer => Some(answer.is_ok()),
        }
    });
    there.unwrap_or(false)
}
