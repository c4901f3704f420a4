//! Which program manages an interface: systemd-networkd keeps `/run/systemd/netif/links/IFINDEX` for each link that it knows
//! (sd-network reads it), NetworkManager `/run/NetworkManager/devices/IFINDEX` (a keyfile).
//!
//! Both are of the network namespace that the program runs in.

use linerate_model::ids::NicName;
use linerate_model::known::Known;
use linerate_model::qos::{Manager, ManagerKind};

use super::owners::read_owners;
use crate::root::{HostRoot, absolute};

/// Finds in a manager's state of a link what configures it; none if it does not manage the link.
type Parser = fn(&str) -> Option<Configuration>;

/// A manager's file or connection for a link that it manages, if it has one.
#[derive(Debug, PartialEq, Eq)]
struct Configuration(Option<String>);

/// The programs that manage `nic`.
pub fn read_managers(root: &HostRoot, nic: &NicName) -> Known<Vec<Manager>> {
    let index = root.read(&format!("sys/class/net/{nic}/ifindex"));
    let index = index.map(|text| text.trim().to_owned());
    let index = match index {
        Known::Value(index) => index,
        Known::Unknown(gap) => return Known::Unknown(gap),
    };
    read_owners(root).map(|owners| {
        let mut found = Vec::new();
        for owner in owners {
            let (name, path, parse): (_, _, Parser) = match owner.name.as_str() {
                "systemd-networkd" => (
                    ManagerKind::Networkd,
                    format!("run/systemd/netif/links/{index}"),
                    parse_networkd,
                ),
                "NetworkManager" => (
                    ManagerKind::NetworkManager,
                    format!("run/NetworkManager/devices/{index}"),
                    parse_network_manager,
                ),
                _ => continue,
            };
            if !is_of_this_namespace(root, owner.pid) {
                continue;
            }
            let text = root.read(&path);
            let Some(Configuration(configuration)) = text.value().and_then(|text| parse(text))
            else {
                continue;
            };
            found.push(Manager {
                name,
                interface: nic.clone(),
                configuration,
                path: absolute(&path),
            });
        }
        found
    })
}

/// Whether a process is in the network namespace of this one. Only its owner may see that: without that, it is assumed.
fn is_of_this_namespace(root: &HostRoot, pid: u32) -> bool {
    let namespace = |process: &str| root.link(&format!("proc/{process}/ns/net"));
    match (
        namespace(&pid.to_string()).value(),
        namespace("self").value(),
    ) {
        (Some(one), Some(other)) => one == other,
        _ => true,
    }
}

/// The `.network` file of a link, if networkd manages it.
fn parse_networkd(text: &str) -> Option<Configuration> {
    let value = |key: &str| {
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
    };
    // A link that is `pending` or `initialized` has no file yet, and may never get one.
    let state = value("ADMIN_STATE").unwrap_or("unmanaged");
    let is_managed = !matches!(state, "unmanaged" | "pending" | "initialized");
    is_managed.then(|| Configuration(value("NETWORK_FILE").map(ToOwned::to_owned)))
}

/// The UUID of a device's connection, if `NetworkManager` manages it.
fn parse_network_manager(text: &str) -> Option<Configuration> {
    let mut is_device = false;
    let (mut is_managed, mut connection) = (false, None);
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            is_device = line == "[device]";
        } else if let (true, Some((key, value))) = (is_device, line.split_once('=')) {
            match key.trim() {
                "managed" => is_managed = matches!(value.trim(), "true" | "1"),
                "connection-uuid" => connection = Some(value.trim().to_owned()),
                _ => {}
            }
        }
    }
    is_managed.then_some(Configuration(connection))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networkd_manages_a_link_whose_state_says_so() {
        let link = "# This is private data. Do not parse.\nADMIN_STATE=configured\nOPER_STATE=routable\nNETWORK_FILE=/etc/systemd/network/10-eth1.network\n";
        let file = "/etc/systemd/network/10-eth1.network".to_owned();
        assert_eq!(parse_networkd(link), Some(Configuration(Some(file))));
        assert_eq!(parse_networkd("ADMIN_STATE=unmanaged\n"), None);
        assert_eq!(parse_networkd("ADMIN_STATE=pending\n"), None);
        assert_eq!(
            parse_networkd("ADMIN_STATE=failed\n"),
            Some(Configuration(None))
        );
        assert_eq!(parse_networkd(""), None);
    }

    #[test]
    fn network_manager_manages_a_device_that_is_managed() {
        let device = "[device]\nmanaged=true\nconnection-uuid=1b2c\nnm-owned=true\nroute-metric-default-aspired=100\n";
        assert_eq!(
            parse_network_manager(device),
            Some(Configuration(Some("1b2c".to_owned())))
        );
        assert_eq!(
            parse_network_manager("[device]\nmanaged=true\n"),
            Some(Configuration(None))
        );
        assert_eq!(parse_network_manager("[device]\nmanaged=false\n"), None);
        assert_eq!(parse_network_manager("[dhcp]\nmanaged=true\n"), None);
    }
}
