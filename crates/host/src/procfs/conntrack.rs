//! Connection tracking: `/proc/sys/net/netfilter`
//! (Documentation/networking/nf_conntrack-sysctl.rst).

use linerate_model::host::Conntrack;
use linerate_model::known::{Cause, Known};

use crate::attributes::number;
use crate::root::{HostRoot, absolute};

const FOLDER: &str = "proc/sys/net/netfilter";

/// Reads the table's fill level; absent if the module is not loaded.
pub(crate) fn read_conntrack(root: &HostRoot) -> Known<Conntrack> {
    let of = |file: &str| number::<u64>(root, &format!("{FOLDER}/nf_conntrack_{file}"));
    let count = of("count");
    if let Known::Unknown(gap) = &count
        && gap.cause == Cause::Absent
    {
        return Known::unknown(
            Cause::Absent,
            absolute(&format!("{FOLDER}/nf_conntrack_count")),
            "connection tracking is not loaded",
        );
    }
    Known::Value(Conntrack {
        count,
        max: of("max"),
        buckets: of("buckets"),
    })
}
