//! Names the requests that were not made. An unpacked directory has no netlink data, and an archive of an older
//! version lacks newer groups: such a value names the request that would have provided it, so that the reader of "not
//! asked" knows what is missing.

use linerate_model::host::{Nic, Stack};
use linerate_model::known::{Cause, Known};

/// Sets the request name of every netlink value that was not read.
pub(crate) fn name_unasked(nic: &mut Nic) {
    let name = nic.name.clone();
    let path = |what: &str| format!("netlink: {what} of {name}");
    let card = &mut nic.card;
    place(&mut card.driver, || path("driver"));
    place(&mut card.driver_version, || path("driver"));
    place(&mut card.firmware, || path("driver"));
    place(&mut card.firmware_stored, || path("devlink info"));
    place(&mut card.board, || path("devlink info"));
    place(&mut card.psid, || path("devlink info"));
    place(&mut card.versions, || path("devlink info"));
    place(&mut card.port_type, || path("devlink port"));
    place(&mut card.port_type_desired, || path("devlink port"));
    place(&mut card.health, || path("devlink health"));
    place(&mut card.temperatures, || path("temperatures"));
    let wire = &mut nic.wire;
    place(&mut wire.modes, || path("link modes"));
    place(&mut wire.duplex, || path("duplex"));
    place(&mut wire.state, || path("link state"));
    place(&mut wire.fec, || path("fec"));
    place(&mut wire.pause, || path("pause"));
    place(&mut wire.eee, || path("eee"));
    place(&mut wire.module, || path("module"));
    place(&mut wire.timestamping, || path("timestamping"));
    let dispatch = &mut nic.dispatch;
    place(&mut dispatch.rss, || path("rss"));
    place(&mut dispatch.napis, || path("NAPI instances"));
    place(&mut dispatch.private_flags, || path("private flags"));
    place(&mut dispatch.tunnel_ports, || path("tunnel ports"));
    place(&mut dispatch.gro_flush_timeout_ns, || {
        path("NAPI instances")
    });
    place(&mut dispatch.defer_hard_irqs, || path("NAPI instances"));
    place(&mut dispatch.threaded, || path("NAPI instances"));
    place(&mut dispatch.tcp_data_split, || path("rings"));
    place(&mut dispatch.queue_coalesce, || {
        path("per-queue coalescing")
    });
    place(&mut dispatch.xdp_features, || path("device features"));
    let shaping = &mut nic.shaping;
    place(&mut shaping.tree, || path("qdiscs"));
    place(&mut shaping.classes, || path("traffic classes"));
    place(&mut shaping.dcb, || path("DCB"));
    place(&mut shaping.class_rules, || path("class rules"));
    name_link(&mut nic.stack, || path("link"));
}

/// The values from `RTM_GETLINK`.
fn name_link(stack: &mut Stack, path: impl Fn() -> String) {
    place(&mut stack.upper, &path);
    place(&mut stack.mtu_max, &path);
    place(&mut stack.gso_max_bytes, &path);
    place(&mut stack.gso_ipv4_max_bytes, &path);
    place(&mut stack.gro_max_bytes, &path);
    place(&mut stack.gro_ipv4_max_bytes, &path);
    place(&mut stack.tso_max_bytes, &path);
    place(&mut stack.tx_queue_len, &path);
    place(&mut stack.xdp, &path);
    place(&mut stack.promiscuity, &path);
    place(&mut stack.virtual_functions, &path);
}

fn place<T>(fact: &mut Known<T>, path: impl FnOnce() -> String) {
    if let Known::Unknown(gap) = fact
        && gap.cause == Cause::NotAsked
        && gap.path.is_empty()
    {
        gap.path = path();
    }
}

#[cfg(test)]
mod tests {
    use linerate_model::build;
    use linerate_model::host::{Card, Dispatch, Shaping, Wire};

    use super::*;

    #[test]
    fn no_request_that_nobody_made_stays_without_a_name() {
        let made = build::host().nic("eth2", |nic| nic.gbit(100)).build();
        let mut nic = made.nics.into_iter().next().expect("an interface");
        nic.card = Card::default();
        nic.wire = Wire::default();
        nic.stack = Stack::default();
        nic.dispatch = Dispatch::default();
        nic.shaping = Shaping::default();
        name_unasked(&mut nic);
        let groups = [
            serde_json::to_string(&nic.card),
            serde_json::to_string(&nic.wire),
            serde_json::to_string(&nic.stack),
            serde_json::to_string(&nic.dispatch),
            serde_json::to_string(&nic.shaping),
        ];
        for text in groups.map(|text| text.expect("plain data")) {
            assert!(text.contains("of eth2\""), "{text}");
            assert!(!text.contains("\"path\":\"\""), "{text}");
        }
    }
}
