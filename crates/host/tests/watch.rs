//! This machine's counters, read twice.

#![expect(
    clippy::disallowed_methods,
    reason = "the helpers that tests share read the environment"
)]

mod common;

use std::time::Instant;

use common::{FakeNics, nic, skip};
use linerate_host::netlink::Netlink;
use linerate_host::read::read_host;
use linerate_host::root::LiveHost;
use linerate_host::watch::{Reading, read_counters};
use linerate_model::known::Known;
use linerate_model::units::Nanoseconds;

#[test]
fn this_machines_counters_are_watched_and_run_forward() {
    let live = LiveHost::open().expect("the root folder");
    let root = live.root();
    let host = read_host(root, &FakeNics::default());
    let start = Instant::now();
    let first = read_counters(root, &FakeNics::default(), &host);
    // Work between the readings, so that something moves.
    let text = serde_json::to_string(&first).expect("plain data");
    let again: Reading = serde_json::from_str(&text).expect("what was written");
    assert_eq!(again, first);
    let second = read_counters(root, &FakeNics::default(), &host);
    let watch = second.since(&first, Nanoseconds::from(start.elapsed()));
    assert!(watch.span_ns.as_u64() > 0);
    let cpu = host.online_cpus().first().expect("a CPU is online");
    for name in ["time/user", "time/idle"] {
        let key = format!("cpu/{cpu}/{name}");
        match watch.grown(&key) {
            Known::Value(_) => {}
            Known::Unknown(gap) => skip(&format!("{key}: {gap}")),
        }
    }
    if host.nic(&nic("lo")).is_none() {
        return skip("no loopback is visible below /sys/class/net");
    }
    let grown = watch.grown("nic/lo/stat/rx_bytes");
    assert!(grown.value().is_some(), "{grown:?}");
}

#[test]
fn what_netlink_counts_is_watched_too() {
    let live = LiveHost::open().expect("the root folder");
    let Ok(netlink) = Netlink::open() else {
        return skip("no netlink here");
    };
    let host = read_host(live.root(), &netlink);
    let first = read_counters(live.root(), &netlink, &host);
    let second = read_counters(live.root(), &netlink, &host);
    let watch = second.since(&first, Nanoseconds::new(1));
    let of_netlink = |key: &&String| watch.path(key).starts_with("netlink/");
    if !watch.counters.keys().any(|key| of_netlink(&key)) {
        skip("no interface here has a counter of netlink's");
    }
}
