//! Words for numbers and addresses of rtnetlink's messages.

/// `RTPROT_*` of `<linux/rtnetlink.h>`.
const PROTOCOLS: [(u8, &str); 15] = [
    (1, "redirect"),
    (2, "kernel"),
    (3, "boot"),
    (4, "static"),
    (9, "ra"),
    (11, "zebra"),
    (12, "bird"),
    (16, "dhcp"),
    (18, "keepalived"),
    (42, "babel"),
    (186, "bgp"),
    (187, "isis"),
    (188, "ospf"),
    (189, "rip"),
    (192, "eigrp"),
];

/// The program that made a route; its number where that has no name.
pub(crate) fn protocol_name(protocol: u8) -> String {
    let name = PROTOCOLS.iter().find(|(number, _)| *number == protocol);
    name.map_or_else(|| protocol.to_string(), |(_, name)| (*name).to_owned())
}

/// `02:00:00:00:00:01`.
pub(crate) fn mac_text(bytes: &[u8]) -> String {
    let pairs = bytes.iter().map(|byte| format!("{byte:02x}"));
    pairs.collect::<Vec<_>>().join(":")
}
