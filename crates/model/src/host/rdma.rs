//! Finds the RDMA port of an interface.

use super::{Host, Nic, RdmaDevice, RdmaPort};
use crate::ids::NicName;
use crate::workload::DeviceChoice;

/// A VLAN on a bond on its ports; an untrusted capture may contain a loop.
const DEPTH_MAX: usize = 8;

impl Host {
    /// The RDMA device and port that `choice` names; if it names none, that of the interface `nic`, or of its lower
    /// interfaces.
    pub fn rdma_port(
        &self,
        nic: &NicName,
        choice: &DeviceChoice,
    ) -> Option<(&RdmaDevice, &RdmaPort)> {
        let named = choice.device.as_deref();
        let wanted = |port: &&RdmaPort| choice.port.is_none_or(|own| port.port == u32::from(own));
        let mut level = vec![nic];
        for _ in 0..DEPTH_MAX {
            for nic in &level {
                let found = self.rdma.iter().find_map(|device| {
                    let is_asked = named.is_none_or(|name| device.name == name);
                    let mut ports = device.ports.iter().filter(wanted);
                    let port = ports.find(|port| port.is_of(nic))?;
                    is_asked.then_some((device, port))
                });
                if found.is_some() {
                    return found;
                }
            }
            let above = level.iter().filter_map(|nic| self.nic(nic));
            level = above.flat_map(Nic::lower).collect();
        }
        // A device with another interface or none: InfiniBand without IPoIB on the path.
        let device = self.rdma.iter().find(|device| named == Some(&device.name));
        device.and_then(|device| Some((device, device.ports.iter().find(wanted)?)))
    }
}

impl RdmaPort {
    /// Whether it is the port of the interface `nic`, or has an address of it.
    pub(crate) fn is_of(&self, nic: &NicName) -> bool {
        let gids = self.gids.value().into_iter().flatten();
        self.netdev.value() == Some(nic)
            || gids
                .map(|gid| &gid.netdev)
                .any(|own| own.value() == Some(nic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;

    fn found(host: &Host, nic: &str, choice: &DeviceChoice) -> Option<String> {
        let nic = nic.parse().expect("a name");
        let (device, port) = host.rdma_port(&nic, choice)?;
        Some(format!("{}/{}", device.name, port.port))
    }

    #[test]
    fn the_port_is_that_of_the_interface_or_of_what_it_stands_on() {
        let host = build::host()
            .nic("eth2", |nic| nic.gbit(100))
            .nic("eth3", |nic| nic.gbit(100))
            .nic("eth2.7", |nic| {
                nic.with(|nic| nic.lower = vec!["eth2".parse().expect("a name")].into())
            })
            .with(|host| {
                host.rdma = vec![build::roce("mlx5_0", "eth2"), build::roce("mlx5_1", "eth3")];
            })
            .build();
        let free = DeviceChoice::default();
        assert_eq!(found(&host, "eth3", &free).as_deref(), Some("mlx5_1/1"));
        assert_eq!(found(&host, "eth2.7", &free).as_deref(), Some("mlx5_0/1"));
        let named = |name: &str, port| DeviceChoice {
            device: Some(name.to_owned()),
            port,
            gid_index: None,
        };
        let other = named("mlx5_1", None);
        assert_eq!(found(&host, "eth2", &other).as_deref(), Some("mlx5_1/1"));
        assert_eq!(found(&host, "eth2", &named("mlx5_1", Some(2))), None);
        assert_eq!(found(&host, "eth2", &named("mlx5_9", None)), None);
        assert_eq!(found(&host, "eth9", &free), None);
    }
}
