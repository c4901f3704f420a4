//! Placement and the figures of a made-up device.

use linerate_model::build;
use linerate_model::ids::{CpuId, CpuSet};

use super::document::queue_of;

fn cpus(list: &str) -> CpuSet {
    list.parse().expect("a list")
}

#[test]
fn a_cpu_with_a_polled_queue_too_uses_it_only_for_polled_operations() {
    let queues = [cpus("0-1"), cpus("2-3"), cpus("0-3")];
    assert_eq!(queue_of(CpuId(2), &queues, false), Some(1));
    assert_eq!(queue_of(CpuId(2), &queues, true), Some(2));
    assert_eq!(queue_of(CpuId(4), &queues, false), None);
    let three = [cpus("0"), cpus("0"), cpus("0")];
    assert_eq!(queue_of(CpuId(0), &three, false), None);
}
