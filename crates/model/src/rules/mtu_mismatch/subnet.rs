//! Whether two interfaces are in one subnet, by their addresses.

use std::net::IpAddr;

use crate::host::Nic;

/// Whether two interfaces of two hosts have different addresses in one subnet. Addresses that every host has
/// (link-local, loopback) do not count.
pub(super) fn share_a_subnet(one: &Nic, other: &Nic) -> bool {
    let of = |nic: &Nic| -> Vec<(IpAddr, u32)> {
        let all = nic.addresses.value();
        all.into_iter()
            .flatten()
            .filter_map(|text| parse(text))
            .collect()
    };
    let others = of(other);
    of(one).iter().any(|(own, length)| {
        others.iter().any(|(far, far_length)| {
            own != far
                && length == far_length
                && network(*own, *length).is_some()
                && network(*own, *length) == network(*far, *length)
        })
    })
}

fn parse(text: &str) -> Option<(IpAddr, u32)> {
    let (address, length) = text.split_once('/')?;
    let (address, length): (IpAddr, u32) = (address.parse().ok()?, length.parse().ok()?);
    let everywhere = match address {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local() || v4.is_unspecified(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local() || v6.is_unspecified(),
    };
    (!everywhere).then_some((address, length))
}

/// The network's number with its family's width; none for a prefix of 0 or longer than the address.
fn network(address: IpAddr, length: u32) -> Option<(u32, u128)> {
    let (width, bits) = match address {
        IpAddr::V4(v4) => (32, u128::from(u32::from(v4))),
        IpAddr::V6(v6) => (128, u128::from(v6)),
    };
    if length == 0 || length > width {
        return None;
    }
    Some((width, bits >> (width - length)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build;

    fn with(address: &str) -> Nic {
        let host = build::host().nic("eth0", |nic| {
            nic.with(|nic| nic.addresses = vec![address.to_owned()].into())
        });
        host.build().nics.remove(0)
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(one in "\\PC*", other in "[0-9a-f.:]{0,20}/[0-9]{0,4}") {
            let _ = share_a_subnet(&with(&one), &with(&other));
            let _ = share_a_subnet(&with(&other), &with(&other));
        }
    }

    #[test]
    fn only_different_addresses_of_one_network_share_it() {
        let share = |one: &str, other: &str| share_a_subnet(&with(one), &with(other));
        assert!(share("10.0.0.1/24", "10.0.0.2/24"));
        assert!(share("2001:db8::1/64", "2001:db8::2/64"));
        assert!(!share("10.0.0.1/24", "10.0.1.2/24"));
        assert!(!share("172.17.0.1/16", "172.17.0.1/16"));
        assert!(!share("10.0.0.1/24", "10.0.0.2/16"));
        assert!(!share("fe80::1/64", "fe80::2/64"));
        assert!(!share("10.0.0.1/0", "11.0.0.2/0"));
        assert!(!share("10.0.0.1/99", "10.0.0.2/99"));
        assert!(!share("nonsense", ""));
    }
}
