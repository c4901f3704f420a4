//! Block devices for tests.

use crate::host::BlockDevice;
use crate::ids::{CpuId, CpuSet, NodeId};
use crate::known::{Cause, Known};
use crate::units::Bytes;

/// A healthy block device of two hardware queues, without a scheduler and with one path.
pub fn block(name: &str, transport: &str) -> BlockDevice {
    let text = |word: &str| Known::Value(word.to_owned());
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let absent = || Known::unknown(Cause::Absent, "nvme-subsystem", "it has no other path");
    BlockDevice {
        name: name.to_owned(),
        numa_node: Known::Value(NodeId(0)),
        scheduler: text("none"),
        schedulers: Known::Value(words(&["none", "mq-deadline", "bfq"])),
        hardware_queues: Known::Value(2),
        queue_cpus: Known::Value(vec![CpuSet::one(CpuId(0)), CpuSet::one(CpuId(1))]),
        rq_affinity: Known::Value(1),
        nomerges: Known::Value(0),
        nr_requests: Known::Value(1023),
        rotational: Known::Value(false),
        size_bytes: Known::Value(Bytes::mib(1 << 20)),
        transport: text(transport),
        nvme_transport: text("pcie"),
        io_policy: text("numa"),
        paths: absent(),
    }
}
