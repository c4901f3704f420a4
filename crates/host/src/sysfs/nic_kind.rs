//! The kind of an interface, as far as sysfs shows it; rtnetlink provides the rest.

use linerate_model::host::NicKind;

/// `include/uapi/linux/if_arp.h`.
const ARPHRD_INFINIBAND: u32 = 32;
const ARPHRD_LOOPBACK: u32 = 772;
/// IPIP, IP6IP6, SIT, GRE and GRE over IPv6.
const ARPHRD_TUNNELS: [u32; 5] = [768, 769, 776, 778, 823];

/// The sysfs data on an interface's kind.
pub(crate) struct KindEvidence<'a> {
    pub(crate) hardware: Option<u32>,
    pub(crate) device_type: Option<String>,
    pub(crate) names: &'a [String],
    pub(crate) has_device: bool,
    pub(crate) is_virtual_function: bool,
}

impl KindEvidence<'_> {
    /// The kind, if sysfs shows it.
    pub(crate) fn kind(&self) -> Option<NicKind> {
        let has = |name: &str| self.names.iter().any(|own| own == name);
        match self.hardware {
            Some(ARPHRD_LOOPBACK) => return Some(NicKind::Loopback),
            Some(ARPHRD_INFINIBAND) => return Some(NicKind::Ipoib),
            Some(hardware) if ARPHRD_TUNNELS.contains(&hardware) => return Some(NicKind::Tunnel),
            _ => {}
        }
        match self.device_type.as_deref() {
            Some("vlan") => return Some(NicKind::Vlan),
            Some("vxlan" | "geneve" | "gretap" | "erspan" | "ip6gretap" | "ip6erspan") => {
                return Some(NicKind::Tunnel);
            }
            Some("bridge") => return Some(NicKind::Bridge),
            Some("bond") => return Some(NicKind::Bond),
            Some("macvlan" | "ipvlan" | "ipvtap" | "macvtap") => return Some(NicKind::Macvlan),
            _ => {}
        }
        if has("bonding") {
            Some(NicKind::Bond)
        } else if has("bridge") {
            Some(NicKind::Bridge)
        } else if has("tun_flags") {
            Some(NicKind::Tun)
        } else if self.is_virtual_function {
            Some(NicKind::Virtual)
        } else if self.has_device {
            Some(NicKind::Physical)
        } else {
            None
        }
    }
}

/// The line `DEVTYPE=vlan` of a uevent file.
pub(crate) fn parse_device_type(text: &str) -> Option<String> {
    text.lines()
        .find_map(|line| line.strip_prefix("DEVTYPE="))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kind(
        hardware: u32,
        device_type: Option<&str>,
        names: &[&str],
        has_device: bool,
    ) -> Option<NicKind> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        KindEvidence {
            hardware: Some(hardware),
            device_type: device_type.map(str::to_owned),
            names: &names,
            has_device,
            is_virtual_function: names.iter().any(|name| name == "vf"),
        }
        .kind()
    }

    #[test]
    fn the_kind_is_told_from_sysfs_where_sysfs_tells() {
        assert_eq!(kind(772, None, &[], false), Some(NicKind::Loopback));
        assert_eq!(kind(32, None, &["device"], true), Some(NicKind::Ipoib));
        assert_eq!(kind(1, Some("vlan"), &[], false), Some(NicKind::Vlan));
        assert_eq!(kind(1, None, &["bonding"], false), Some(NicKind::Bond));
        assert_eq!(kind(1, None, &["tun_flags"], false), Some(NicKind::Tun));
        assert_eq!(kind(1, None, &["brport"], true), Some(NicKind::Physical));
        assert_eq!(kind(1, None, &["vf"], true), Some(NicKind::Virtual));
        assert_eq!(kind(778, None, &[], false), Some(NicKind::Tunnel));
        assert_eq!(
            kind(1, None, &[], false),
            None,
            "a veth shows nothing of itself in sysfs"
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(DEVTYPE=)?.{0,24}") {
            let _ = parse_device_type(&text);
        }
    }
}
