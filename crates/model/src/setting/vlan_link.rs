//! A VLAN device as text: its parent and ID, `eth1 id 10`, with the words of ip-link(8) for what is not the default.

use std::fmt;

use crate::ids::NicName;

/// A VLAN device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VlanLink {
    /// The interface below it.
    pub parent: NicName,
    /// The VLAN ID.
    pub id: u16,
    /// Whether it is a service tag (802.1ad).
    pub is_service: bool,
    /// `VLAN_FLAG_*`.
    pub flags: u32,
}

/// The highest VLAN ID.
const ID_MAX: u16 = 4094;
/// `VLAN_FLAG_REORDER_HDR`: the default.
pub const FLAGS_DEFAULT: u32 = 1;
/// The flags by their names (`<linux/if_vlan.h>`).
const FLAGS: [(&str, u32); 5] = [
    ("reorder_hdr", 1),
    ("gvrp", 2),
    ("loose_binding", 4),
    ("mvrp", 8),
    ("bridge_binding", 16),
];
/// The flags that have names.
pub const FLAGS_KNOWN: u32 = 31;

impl VlanLink {
    /// Parses its text.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let parent = words.next()?.parse().ok()?;
        let id = match (words.next()?, words.next()?.parse()) {
            ("id", Ok(id)) if (1..=ID_MAX).contains(&id) => id,
            _ => return None,
        };
        let mut link = Self {
            parent,
            id,
            is_service: false,
            flags: FLAGS_DEFAULT,
        };
        while let Some(word) = words.next() {
            let value = words.next()?;
            if word == "protocol" {
                link.is_service = match value {
                    "802.1Q" => false,
                    "802.1ad" => true,
                    _ => return None,
                };
                continue;
            }
            let (_, flag) = FLAGS.iter().find(|(name, _)| *name == word)?;
            match value {
                "on" => link.flags |= flag,
                "off" => link.flags &= !flag,
                _ => return None,
            }
        }
        Some(link)
    }
}

impl fmt::Display for VlanLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} id {}", self.parent, self.id)?;
        if self.is_service {
            f.write_str(" protocol 802.1ad")?;
        }
        for (name, flag) in FLAGS {
            let is_on = self.flags & flag != 0;
            if is_on != (FLAGS_DEFAULT & flag != 0) {
                write!(f, " {name} {}", if is_on { "on" } else { "off" })?;
            }
        }
        Ok(())
    }
}

/// A device or none, as text.
pub fn vlan_link_words(link: Option<&VlanLink>) -> String {
    link.map_or_else(String::new, ToString::to_string)
}

/// Parses the text of [`vlan_link_words`], or `none`.
pub fn parse_vlan_link(text: &str) -> Option<Option<VlanLink>> {
    match text.trim() {
        "" | "none" => Some(None),
        text => VlanLink::parse(text).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_device_is_printed_as_it_is_parsed() {
        for (text, printed) in [
            ("eth1 id 10", Some("eth1 id 10")),
            (
                "bond0  id 4094 protocol 802.1ad gvrp on reorder_hdr off",
                Some("bond0 id 4094 protocol 802.1ad reorder_hdr off gvrp on"),
            ),
            (
                "eth1 id 1 protocol 802.1Q reorder_hdr on",
                Some("eth1 id 1"),
            ),
            ("none", Some("")),
            ("", Some("")),
            ("eth1", None),
            ("eth1 id 0", None),
            ("eth1 id 4095", None),
            ("eth1 10", None),
            ("eth1 id 10 gvrp", None),
            ("eth1 id 10 protocol ipv4", None),
            ("a/b id 10", None),
        ] {
            let parsed = parse_vlan_link(text).map(|link| vlan_link_words(link.as_ref()));
            assert_eq!(parsed.as_deref(), printed, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_device_reads_back_as_it_was_printed(id in 1..=ID_MAX, is_service: bool, flags in 0..=FLAGS_KNOWN) {
            let parent = "eth1.5".parse().expect("a name");
            let link = VlanLink { parent, id, is_service, flags };
            prop_assert_eq!(VlanLink::parse(&link.to_string()), Some(link));
        }

        #[test]
        fn no_words_panic(words in "[a-z0-9]{0,4} id [0-9]{0,5}( [a-z_]{1,11} (on|off))?|.{0,20}") {
            let _ = parse_vlan_link(&words);
        }
    }
}
