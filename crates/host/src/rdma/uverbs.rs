//! Parses uverbs responses: `struct ib_uverbs_query_device_resp` and `struct ib_uverbs_query_port_resp`
//! (`<rdma/ib_user_verbs.h>`). Numbers are in host byte order, except the two GUIDs, which identify the machine and
//! are not read.

use std::collections::BTreeMap;

use linerate_model::units::Bytes;

/// The fields of a device's response after its GUIDs: bytes and name, in order; unnamed ones are skipped.
const DEVICE: [(usize, &str); 43] = [
    (8, "fw_ver"),
    (8, ""), // node_guid
    (8, ""), // sys_image_guid
    (8, "max_mr_size"),
    (8, "page_size_cap"),
    (4, "vendor_id"),
    (4, "vendor_part_id"),
    (4, "hw_ver"),
    (4, "max_qp"),
    (4, "max_qp_wr"),
    (4, "device_cap_flags"),
    (4, "max_sge"),
    (4, "max_sge_rd"),
    (4, "max_cq"),
    (4, "max_cqe"),
    (4, "max_mr"),
    (4, "max_pd"),
    (4, "max_qp_rd_atom"),
    (4, "max_ee_rd_atom"),
    (4, "max_res_rd_atom"),
    (4, "max_qp_init_rd_atom"),
    (4, "max_ee_init_rd_atom"),
    (4, "atomic_cap"),
    (4, "max_ee"),
    (4, "max_rdd"),
    (4, "max_mw"),
    (4, "max_raw_ipv6_qp"),
    (4, "max_raw_ethy_qp"),
    (4, "max_mcast_grp"),
    (4, "max_mcast_qp_attach"),
    (4, "max_total_mcast_qp_attach"),
    (4, "max_ah"),
    (4, ""), // max_fmr, always 0 since 5.8
    (4, ""), // max_map_per_fmr
    (4, "max_srq"),
    (4, "max_srq_wr"),
    (4, "max_srq_sge"),
    (2, "max_pkeys"),
    (1, "local_ca_ack_delay"),
    (1, "phys_port_cnt"),
    (1, ""), // reserved, four bytes
    (1, ""),
    (2, ""),
];

/// The fields of a port's response.
const PORT: [(usize, &str); 13] = [
    (4, "port_cap_flags"),
    (4, "max_msg_sz"),
    (4, ""), // bad_pkey_cntr, a counter
    (4, ""), // qkey_viol_cntr
    (4, "gid_tbl_len"),
    (2, "pkey_tbl_len"),
    (2, ""), // lid
    (2, ""), // sm_lid
    (1, ""), // state
    (1, MTU_MAX),
    (1, MTU_ACTIVE),
    (1, "lmc"),
    (1, "max_vl_num"),
];
const MTU_MAX: &str = "max_mtu";
const MTU_ACTIVE: &str = "active_mtu";

/// `struct ib_uverbs_gid_entry`: the GID, its index, its port, its type and its interface.
pub(crate) const GID_ENTRY_BYTES: usize = 32;
/// The length of a device's response.
pub(crate) const DEVICE_BYTES: usize = 176;
/// The length of a port's response.
pub(crate) const PORT_BYTES: usize = 40;

/// The data of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PortSaid {
    /// `enum ib_mtu`.
    pub(crate) mtu_active: u8,
    /// `enum ib_mtu`.
    pub(crate) mtu_max: u8,
    /// The other limits.
    pub(crate) limits: BTreeMap<String, u64>,
}

/// The limits of a device; `None` if the response is truncated.
pub(crate) fn parse_device(bytes: &[u8]) -> Option<BTreeMap<String, u64>> {
    fields(bytes, &DEVICE)
}

/// The data of a port; `None` if the response is truncated.
pub(crate) fn parse_port(bytes: &[u8]) -> Option<PortSaid> {
    let mut limits = fields(bytes, &PORT)?;
    let mut code = |name| u8::try_from(limits.remove(name)?).ok();
    Some(PortSaid {
        mtu_max: code(MTU_MAX)?,
        mtu_active: code(MTU_ACTIVE)?,
        limits,
    })
}

/// The indices of the set GIDs of each port, ascending; `None` if the response is truncated.
pub(crate) fn parse_gids(bytes: &[u8]) -> Option<BTreeMap<u32, Vec<u32>>> {
    let entries = bytes.chunks_exact(GID_ENTRY_BYTES);
    if !entries.remainder().is_empty() {
        return None;
    }
    let mut ports: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in entries {
        let word = |at: usize| {
            entry
                .get(at..at + 4)?
                .try_into()
                .ok()
                .map(u32::from_ne_bytes)
        };
        ports.entry(word(20)?).or_default().push(word(16)?);
    }
    for indices in ports.values_mut() {
        indices.sort_unstable();
        indices.dedup();
    }
    Some(ports)
}

/// The bytes for a code of `enum ib_mtu`.
pub(crate) fn mtu(code: u8) -> Option<Bytes> {
    (1..=5).contains(&code).then(|| Bytes::new(128 << code))
}

fn fields(bytes: &[u8], fields: &[(usize, &str)]) -> Option<BTreeMap<String, u64>> {
    let mut rest = bytes;
    let mut named = BTreeMap::new();
    for (length, name) in fields {
        let (field, behind) = rest.split_at_checked(*length)?;
        rest = behind;
        if !name.is_empty() {
            named.insert((*name).to_owned(), number(field)?);
        }
    }
    Some(named)
}

fn number(field: &[u8]) -> Option<u64> {
    match field {
        [byte] => Some(u64::from(*byte)),
        [_, _] => Some(u64::from(u16::from_ne_bytes(field.try_into().ok()?))),
        [_, _, _, _] => Some(u64::from(u32::from_ne_bytes(field.try_into().ok()?))),
        _ => Some(u64::from_ne_bytes(field.try_into().ok()?)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_fields_are_as_long_as_the_headers_structures() {
        let length: usize = DEVICE.iter().map(|(length, _)| length).sum();
        assert_eq!(length, DEVICE_BYTES);
        assert_eq!(mtu(1), Some(Bytes::new(256)));
        assert_eq!(mtu(5), Some(Bytes::new(4096)));
        assert_eq!((mtu(0), mtu(6)), (None, None));
    }

    /// Captured from soft-RoCE and soft-iWARP (Linux 6.1, x86-64), and compared with the output of `ibv_devinfo -v`.
    #[cfg(target_endian = "little")]
    #[test]
    fn the_answers_of_soft_roce_and_soft_iwarp_are_read_as_ibv_devinfo_reads_them() {
        use crate::netlink::captured::bytes;

        let rxe = parse_device(&bytes(include_str!("captured/device-rxe.hex"))).expect("whole");
        for (name, value) in [
            ("max_mr_size", u64::MAX),
            ("page_size_cap", 0xffff_f000),
            ("vendor_id", 0xff_ffff),
            ("max_qp", 1_048_560),
            ("max_qp_wr", 1_048_576),
            ("device_cap_flags", 0x0122_3c76),
            ("max_sge", 32),
            ("max_cq", 1_048_576),
            ("max_cqe", 32_767),
            ("max_mr", 524_287),
            ("max_qp_rd_atom", 128),
            ("max_res_rd_atom", 258_048),
            ("atomic_cap", 1),
            ("max_total_mcast_qp_attach", 458_752),
            ("max_srq", 917_503),
            ("max_srq_sge", 27),
            ("max_pkeys", 64),
            ("local_ca_ack_delay", 15),
            ("phys_port_cnt", 1),
        ] {
            assert_eq!(rxe.get(name), Some(&value), "{name}");
        }
        assert!(
            !rxe.keys()
                .any(|name| name.contains("guid") || name.is_empty())
        );
        let port = parse_port(&bytes(include_str!("captured/port-rxe.hex"))).expect("whole");
        assert_eq!((port.mtu_active, port.mtu_max), (3, 5));
        assert_eq!(port.limits.get("max_msg_sz"), Some(&0x80_0000));
        assert_eq!(port.limits.get("gid_tbl_len"), Some(&1024));
        assert_eq!(port.limits.get("port_cap_flags"), Some(&0x0001_0000));
        assert_eq!(port.limits.get("max_vl_num"), Some(&1));
        let siw = parse_device(&bytes(include_str!("captured/device-siw.hex"))).expect("whole");
        assert_eq!(siw.get("max_qp_rd_atom"), Some(&128));
        let port = parse_port(&bytes(include_str!("captured/port-siw.hex"))).expect("whole");
        assert_eq!((port.mtu_active, port.mtu_max), (3, 3));
    }

    #[test]
    fn the_set_gids_of_each_port_are_their_indices() {
        let entry = |port: u32, index: u32| {
            let mut bytes = vec![0xfe; 16];
            for word in [index, port, 2, 7] {
                bytes.extend(word.to_ne_bytes());
            }
            bytes
        };
        let table = [entry(1, 0), entry(2, 3), entry(1, 255), entry(1, 2)].concat();
        let ports = parse_gids(&table).expect("whole");
        assert_eq!(ports, BTreeMap::from([(1, vec![0, 2, 255]), (2, vec![3])]));
        assert_eq!(parse_gids(&[]), Some(BTreeMap::new()));
        assert_eq!(parse_gids(&table[1..]), None);
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in vec(any::<u8>(), 0..256)) {
            let device = parse_device(&bytes);
            prop_assert_eq!(device.is_some(), bytes.len() >= DEVICE_BYTES);
            let _ = parse_port(&bytes).and_then(|port| mtu(port.mtu_active));
            let _ = parse_gids(&bytes);
        }
    }
}
