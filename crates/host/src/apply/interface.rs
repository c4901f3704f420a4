//! The identity of the interface that a setting was changed on. Interfaces can be renamed or moved to another network
//! namespace, and another interface can get the name, so an undo finds it by other attributes.
//!
//! Sources: an index is unique in a namespace, and an interface keeps it when renamed. When it moves
//! (`dev_change_net_namespace()`, net/core/dev.c) it keeps the index only if that is free, and its former index can
//! go to another interface that moves in. VLANs and macvlans of one device share its MAC address, but have other
//! kinds.

use super::identity;
use super::located::Located;
use crate::netlink::Interface;

impl Interface {
    /// Whether `other`, in the same or another namespace, is this interface by its MAC address.
    fn has_address_of(&self, other: &Self) -> bool {
        self.address.is_some() && self.address == other.address && self.kind == other.kind
    }

    /// Finds it among the interfaces of its namespace; none if it is not there.
    pub(super) fn among(&self, all: &[Self]) -> Option<Located> {
        let here = |found: &Self| Some(Located::Named(found.name.clone()));
        let with_index = all
            .iter()
            .find(|one| one.index == self.index && one.kind == self.kind);
        if let Some(one) = with_index
            && (one.has_address_of(self) || one.name == self.name)
        {
            return here(one);
        }
        let with_address: Vec<&Self> = all.iter().filter(|one| one.has_address_of(self)).collect();
        let named = with_address.iter().find(|one| one.name == self.name);
        match (&with_address[..], named, with_index) {
            (_, Some(one), _) | ([one], None, _) => here(one),
            ([], None, None) => None,
            ([], None, Some(one)) => Some(Located::Lost(format!(
                "interface {} was {} and is now {}, with another hardware address: linerate cannot tell whether it is the \
                 same one",
                self.index, self.name, one.name
            ))),
            (several, None, _) => Some(Located::Lost(format!(
                "{} does not exist, and {} interfaces have its hardware address",
                self.name,
                several.len()
            ))),
        }
    }

    /// Its identity in another namespace, where index and name mean nothing; none if nothing remains.
    pub(super) fn by_address_alone(&self) -> Option<Self> {
        self.address.is_some().then(|| Self {
            // No interface has this index.
            index: 0,
            ..self.clone()
        })
    }

    /// Finds it in the other network namespaces of this machine.
    pub(super) fn elsewhere(&self) -> Located {
        // A physical device moves to the initial namespace when its own ends.
        let is_on_bus = self.kind.is_none();
        let (found, hidden) = identity::in_other_netns(is_on_bus, || {
            let all = crate::netlink::interfaces().ok()?;
            all.into_iter().find(|one| one.has_address_of(self))
        });
        match (found, hidden) {
            (Some(one), _) => Located::Lost(format!(
                "{} is in another network namespace now, as {}: move it back first",
                self.name, one.name
            )),
            (None, 0) => Located::Gone,
            // Moving it into a namespace that an ordinary user cannot inspect requires CAP_NET_ADMIN over that one
            // (user_namespaces(7)).
            (None, _) if !identity::is_root_of_the_machine() => Located::Gone,
            (None, processes) => Located::Lost(format!(
                "{} is not in this network namespace, and those of {processes} processes cannot be searched: run as root",
                self.name
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(index: u32, name: &str, address: &str, kind: &str) -> Interface {
        Interface {
            index,
            name: name.parse().expect("a name"),
            address: Some(address.to_owned()).filter(|address| !address.is_empty()),
            kind: Some(kind.to_owned()).filter(|kind| !kind.is_empty()),
        }
    }

    fn here(name: &str) -> Located {
        Located::Named(name.parse().expect("a name"))
    }

    #[test]
    fn an_interface_is_found_under_any_name_and_no_other_one_is_taken_for_it() {
        let eth0 = interface(7, "eth0", "02:00:00:00:00:07", "");
        let tun0 = interface(9, "tun0", "", "tun");
        let among = |of: &Interface, all: &[(u32, &str, &str, &str)]| {
            let all: Vec<Interface> = all
                .iter()
                .map(|&(index, name, address, kind)| interface(index, name, address, kind))
                .collect();
            of.among(&all)
        };
        let (own, other) = ("02:00:00:00:00:07", "02:00:00:00:00:99");
        // Renamed, and another interface has the name.
        let renamed = [(8, "eth0", other, ""), (7, "lan0", own, "")];
        assert_eq!(among(&eth0, &renamed), Some(here("lan0")));
        // The MAC address was changed by a user.
        assert_eq!(among(&eth0, &[(7, "eth0", other, "")]), Some(here("eth0")));
        // Moved out of the namespace and back with a new index; another interface has the old one.
        let back = [(12, "eth0", own, ""), (7, "veth1", other, "veth")];
        assert_eq!(among(&eth0, &back), Some(here("eth0")));
        // The VLANs of a device have its MAC address but are not the same.
        assert_eq!(among(&eth0, &[(20, "eth0.5", own, "vlan")]), None);
        // Removed, and another one created with its name, its index, or both.
        assert_eq!(among(&eth0, &[(8, "eth0", other, "")]), None);
        assert_eq!(among(&eth0, &[(7, "veth1", other, "veth")]), None);
        assert_eq!(among(&eth0, &[(7, "eth0", other, "veth")]), None);
        // Without a MAC address only the index and the name identify it.
        assert_eq!(among(&tun0, &[(9, "tun0", "", "tun")]), Some(here("tun0")));
        assert_eq!(among(&tun0, &[(10, "tun0", "", "tun")]), None);
        // In another namespace only the MAC address identifies it.
        let moved = eth0.by_address_alone().expect("it has an address");
        assert_eq!(among(&moved, &[(7, "eth0", other, "")]), None);
        assert_eq!(among(&moved, &[(3, "ens1", own, "")]), Some(here("ens1")));
        assert_eq!(tun0.by_address_alone(), None);
        // Ambiguous: the same device with another name and MAC address, or another one that moved in.
        let doubtful = among(&eth0, &[(7, "lan0", other, "")]);
        assert!(matches!(doubtful, Some(Located::Lost(_))), "{doubtful:?}");
        let twins = among(&eth0, &[(8, "a", own, ""), (9, "b", own, "")]);
        assert!(matches!(twins, Some(Located::Lost(_))), "{twins:?}");
    }
}
