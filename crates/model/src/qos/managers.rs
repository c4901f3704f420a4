//! Programs that manage an interface by files of their own, and the lines with which they make the VLANs of a file of classes.
//!
//! Formats: systemd.netdev(5), systemd.network(5), nm-settings-keyfile(5).

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::plan::PRIORITIES;
use super::{ClassVlan, Qos, QosClass};
use crate::ids::NicName;

/// A program that manages interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum ManagerKind {
    /// systemd-networkd(8).
    #[serde(rename = "systemd-networkd")]
    Networkd,
    /// NetworkManager(8).
    #[serde(rename = "NetworkManager")]
    NetworkManager,
}

impl ManagerKind {
    /// The name of its process.
    pub fn word(self) -> &'static str {
        match self {
            Self::Networkd => "systemd-networkd",
            Self::NetworkManager => "NetworkManager",
        }
    }
}

/// A program that manages an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Manager {
    /// The program.
    pub name: ManagerKind,
    /// The interface.
    pub interface: NicName,
    /// Its configuration of the interface: a `.network` file, or the UUID of a connection; null if that is not known.
    pub configuration: Option<String>,
    /// Where this is read from.
    pub path: String,
}

/// A file of a manager.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ManagerFile {
    /// Its path.
    pub path: String,
    /// Its lines; of a file that exists, those to add.
    pub lines: Vec<String>,
}

/// The files with which `manager` makes the VLANs of `qos`; empty without VLANs.
pub fn manager_files(qos: &Qos, manager: &Manager) -> Vec<ManagerFile> {
    let vlans = qos.classes.iter().filter_map(|class| {
        let vlan = class.vlan.as_ref()?;
        Some((class, vlan))
    });
    let vlans: Vec<(&QosClass, &ClassVlan)> = vlans.collect();
    if vlans.is_empty() {
        return Vec::new();
    }
    match manager.name {
        ManagerKind::Networkd => networkd(qos, &vlans, manager),
        ManagerKind::NetworkManager => {
            let profile = |(class, vlan): &(&QosClass, &ClassVlan)| profile(qos, class, vlan);
            vlans.iter().map(profile).collect()
        }
    }
}

/// The priorities that a map gives `class`'s PCP, and the PCP; none for no map.
fn map(class: &QosClass) -> Option<(std::ops::Range<u8>, u8)> {
    let priority = class.priority.filter(|priority| *priority != 0)?;
    Some((0..PRIORITIES, priority))
}

fn networkd(qos: &Qos, vlans: &[(&QosClass, &ClassVlan)], manager: &Manager) -> Vec<ManagerFile> {
    const FOLDER: &str = "/etc/systemd/network";
    let mut files = Vec::new();
    let mut port = vec!["[Network]".to_owned()];
    for (class, vlan) in vlans {
        let device = &vlan.device;
        let mut lines = vec![
            "[NetDev]".to_owned(),
            format!("Name={device}"),
            "Kind=vlan".to_owned(),
            "[VLAN]".to_owned(),
            format!("Id={}", vlan.id),
        ];
        if let Some((from, to)) = map(class) {
            let pairs: Vec<String> = from.map(|from| format!("{from}-{to}")).collect();
            lines.push(format!("EgressQOSMaps={}", pairs.join(" ")));
        }
        files.push(ManagerFile {
            path: format!("{FOLDER}/{device}.netdev"),
            lines,
        });
        let mut lines = vec![
            "[Match]".to_owned(),
            format!("Name={device}"),
            "[Network]".to_owned(),
        ];
        lines.extend(vlan.addresses.iter().map(|one| format!("Address={one}")));
        files.push(ManagerFile {
            path: format!("{FOLDER}/{device}.network"),
            lines,
        });
        port.push(format!("VLAN={device}"));
    }
    let of_port = manager.configuration.clone();
    files.push(ManagerFile {
        path: of_port.unwrap_or_else(|| format!("{FOLDER}/{}.network", qos.interface)),
        lines: port,
    });
    files
}

fn profile(qos: &Qos, class: &QosClass, vlan: &ClassVlan) -> ManagerFile {
    let device = &vlan.device;
    let mut lines = vec![
        "[connection]".to_owned(),
        format!("id={device}"),
        "type=vlan".to_owned(),
        format!("interface-name={device}"),
        "[vlan]".to_owned(),
        format!("id={}", vlan.id),
        format!("parent={}", qos.interface),
    ];
    if let Some((from, to)) = map(class) {
        let pairs: Vec<String> = from.map(|from| format!("{from}:{to}")).collect();
        lines.push(format!("egress-priority-map={}", pairs.join(",")));
    }
    for (section, is_own) in [("ipv4", false), ("ipv6", true)] {
        let own = vlan.addresses.iter();
        let own: Vec<&String> = own.filter(|one| one.contains(':') == is_own).collect();
        lines.push(format!("[{section}]"));
        for (number, address) in (1..).zip(&own) {
            lines.push(format!("address{number}={address}"));
        }
        let none = if is_own { "link-local" } else { "disabled" };
        let method = if own.is_empty() { none } else { "manual" };
        lines.push(format!("method={method}"));
    }
    ManagerFile {
        path: format!("/etc/NetworkManager/system-connections/{device}.nmconnection"),
        lines,
    }
}

/// What a manager does to what `qos` makes, and what to heed in its files.
pub fn manager_notes(manager: &Manager, files: &[ManagerFile]) -> Vec<String> {
    let name = manager.name.word();
    let mut first = format!("{name} manages {}", manager.interface);
    if let Some(configuration) = &manager.configuration {
        let _ = write!(first, " ({configuration})");
    }
    let mut notes = vec![match manager.name {
        ManagerKind::Networkd => format!(
            "{first}: when it reconfigures the interface it removes addresses that its files do not name"
        ),
        ManagerKind::NetworkManager => format!(
            "{first}: when it activates a connection it removes addresses that the connection does not name"
        ),
    }];
    let has_map = |key: &str| {
        let mut lines = files.iter().flat_map(|file| &file.lines);
        lines.any(|line| line.starts_with(key))
    };
    if has_map("EgressQOSMaps=") {
        notes.push(
            "systemd.netdev(5) asks for pairs FROM-TO with FROM not below TO in EgressQOSMaps=, but systemd-networkd takes all \
             pairs of these lines (tested with systemd 252); a VLAN device that exists keeps its map"
                .to_owned(),
        );
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qos::{Framing, Rate, Selector};
    use crate::units::BitRate;

    fn name(text: &str) -> NicName {
        text.parse().expect("a name")
    }

    fn qos(priority: Option<u8>) -> Qos {
        Qos {
            interface: name("eth1"),
            limit_of: Framing::Frame,
            mechanism: None,
            classes: vec![QosClass {
                name: "storage".to_owned(),
                selector: Selector::Vlan,
                vlan: Some(ClassVlan {
                    id: 10,
                    device: name("eth1.10"),
                    addresses: vec!["12.0.10.2/24".to_owned(), "fd00::2/64".to_owned()],
                }),
                priority,
                limit: Some(Rate::Bits(BitRate::from_bit_per_s(1_000_000_000))),
                guarantee: None,
            }],
        }
    }

    fn manager(name_of: ManagerKind, configuration: Option<&str>) -> Manager {
        Manager {
            name: name_of,
            interface: name("eth1"),
            configuration: configuration.map(ToOwned::to_owned),
            path: "/run".to_owned(),
        }
    }

    #[test]
    fn networkd_gets_a_netdev_a_network_and_a_line_for_the_port() {
        let own = manager(
            ManagerKind::Networkd,
            Some("/etc/systemd/network/10-eth1.network"),
        );
        let files = manager_files(&qos(Some(3)), &own);
        let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "/etc/systemd/network/eth1.10.netdev",
                "/etc/systemd/network/eth1.10.network",
                "/etc/systemd/network/10-eth1.network"
            ]
        );
        let map =
            "EgressQOSMaps=0-3 1-3 2-3 3-3 4-3 5-3 6-3 7-3 8-3 9-3 10-3 11-3 12-3 13-3 14-3 15-3";
        assert_eq!(files[0].lines.last().map(String::as_str), Some(map));
        assert!(files[1].lines.contains(&"Address=12.0.10.2/24".to_owned()));
        assert_eq!(files[2].lines, ["[Network]", "VLAN=eth1.10"]);
        assert_eq!(manager_notes(&own, &files).len(), 2);
    }

    #[test]
    fn network_manager_gets_a_profile_with_both_families() {
        let own = manager(ManagerKind::NetworkManager, None);
        let files = manager_files(&qos(Some(3)), &own);
        assert_eq!(files.len(), 1);
        let text = files[0].lines.join("\n");
        for part in [
            "egress-priority-map=0:3,1:3,",
            "parent=eth1",
            "[ipv4]\naddress1=12.0.10.2/24\nmethod=manual",
            "[ipv6]\naddress1=fd00::2/64\nmethod=manual",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(manager_notes(&own, &files).len(), 1);
    }

    #[test]
    fn without_a_priority_there_is_no_map_and_without_a_vlan_no_file() {
        for kind in [ManagerKind::Networkd, ManagerKind::NetworkManager] {
            let own = manager(kind, None);
            let text = format!("{:?}", manager_files(&qos(Some(0)), &own));
            assert!(!text.to_lowercase().contains("egress"), "{text}");
            let mut untagged = qos(None);
            untagged.classes[0].vlan = None;
            assert!(manager_files(&untagged, &own).is_empty());
        }
    }
}
