//! What a reverter may do: what putting back takes, and nothing else (capabilities(7)). Everything here is done as far
//! as the kernel lets it: no right is needed to have fewer.

use std::path::Path;

use linerate_model::setting::needs;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};

/// The capability of that name, of those that settings need.
fn capability(name: &str) -> CapabilitySet {
    match name {
        needs::NET_ADMIN => CapabilitySet::NET_ADMIN,
        needs::DAC_OVERRIDE => CapabilitySet::DAC_OVERRIDE,
        needs::SYS_ADMIN => CapabilitySet::SYS_ADMIN,
        needs::KILL => CapabilitySet::KILL,
        _ => CapabilitySet::empty(),
    }
}

/// Gives up everything but the capabilities `names`, and what it takes to write to the journals below `state`, for
/// good.
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
    // The state folder may be somebody else's.
    let _ = hold(kept, permitted);
    if !may_write(state) {
        kept |= CapabilitySet::DAC_OVERRIDE & permitted;
    }
    // It takes one more right to bound what a program could get that is run from here.
    let _ = hold(permitted, permitted);
    for one in (0..u64::BITS).map(|bit| CapabilitySet::from_bits_retain(1 << bit)) {
        if !kept.contains(one) {
            let _ = remove_capability_from_bounding_set(one);
        }
    }
    let _ = hold(kept, kept);
}

/// Whether this process could write to a folder, or make it.
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
