//! The GIDs of an RDMA port: `ports/P/gids` and `gid_attrs` (Documentation/ABI/stable/sysfs-class-infiniband).

use std::net::Ipv6Addr;

use linerate_model::host::Gid;
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Known};

use crate::attributes::{numbered, parsed};
use crate::root::HostRoot;

/// Reads the GIDs that are set. A RoCE port has a table of a few hundred to a thousand, most of them unset: `set` are the
/// indices of the others, where the kernel reports them in one answer.
pub(crate) fn read_gids(root: &HostRoot, port: &str, set: &Known<Vec<u32>>) -> Known<Vec<Gid>> {
    let folder = format!("{port}/gids");
    let names = match root.list(&folder) {
        Known::Value(names) => names,
        Known::Unknown(gap) => return Known::Unknown(gap),
    };
    let mut gids = Vec::new();
    let all = numbered(&names, "");
    let is_set_by_table = |index: &u32| set.value().is_none_or(|set| set.contains(index));
    for index in all.into_iter().filter(is_set_by_table) {
        let gid = match root.read(&format!("{folder}/{index}")) {
            Known::Value(gid) if is_set(&gid) => gid,
            Known::Value(_) => continue,
            // RoCE drivers return an error for unset entries.
            Known::Unknown(gap) if gap.cause == Cause::Unreadable => continue,
            Known::Unknown(gap) => return Known::Unknown(gap),
        };
        let attribute = |name: &str| format!("{port}/gid_attrs/{name}/{index}");
        gids.push(Gid {
            index,
            kind: root.read(&attribute("types")),
            netdev: parsed(root, &attribute("ndevs"), str::parse::<NicName>),
            gid,
        });
    }
    Known::Value(gids)
}

/// The port's GID directory with a file named by index.
pub(crate) fn folder_of(path: &str) -> Option<&str> {
    let (folder, index) = path.rsplit_once('/')?;
    let is_number = !index.is_empty() && index.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && folder.ends_with("/gids")).then_some(folder)
}

/// Whether a GID is set: an unset one has a zero interface ID, and InfiniBand's default prefix or zero before it.
pub(crate) fn is_set(gid: &str) -> bool {
    gid.parse::<Ipv6Addr>()
        .is_ok_and(|gid| gid.to_bits() & u128::from(u64::MAX) != 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_gid_without_an_interface_id_is_not_set() {
        assert!(is_set("fe80:0000:0000:0000:0002:c903:00ef:1ab1"));
        assert!(is_set("0000:0000:0000:0000:0000:ffff:0a00:0001"));
        assert!(!is_set("fe80:0000:0000:0000:0000:0000:0000:0000"));
        assert!(!is_set("0000:0000:0000:0000:0000:0000:0000:0000"));
        assert!(!is_set(""));
    }

    #[test]
    fn a_gid_is_told_by_its_place() {
        let gids = "sys/devices/x/infiniband/mlx5_0/ports/1/gids";
        assert_eq!(folder_of(&format!("{gids}/12")), Some(gids));
        assert_eq!(folder_of("sys/devices/x/ports/1/gid_attrs/types/0"), None);
        assert_eq!(folder_of(gids), None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9a-f:]{0,40}|.{0,12}") {
            let _ = is_set(&text);
        }
    }
}
