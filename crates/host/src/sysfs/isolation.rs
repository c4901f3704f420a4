//! CPU isolation (Documentation/admin-guide/cpu-isolation.rst, kernel-parameters.txt;
//! Documentation/core-api/irq/irq-affinity.rst; Documentation/core-api/workqueue.rst).

use linerate_model::host::{Cpu, Isolation};
use linerate_model::ids::{CpuSet, IdError};
use linerate_model::known::{Cause, Known};

use super::cpus::FOLDER;
use crate::attributes::{cpu_mask, parsed};
use crate::root::{HostRoot, absolute};

/// Reads the isolation settings.
pub(crate) fn read_isolation(root: &HostRoot, cpus: &[Cpu]) -> Isolation {
    Isolation {
        isolated: parsed(root, &format!("{FOLDER}/isolated"), parse_list),
        nohz_full: parsed(root, &format!("{FOLDER}/nohz_full"), parse_list),
        offline: offline(cpus),
        default_irq_cpus: cpu_mask(root, "proc/irq/default_smp_affinity"),
        workqueue_cpus: cpu_mask(root, "sys/devices/virtual/workqueue/cpumask"),
    }
}

/// The kernel's own list of offline CPUs includes possible CPUs that are not present. A CPU whose online state an old
/// kernel does not show cannot be taken offline.
fn offline(cpus: &[Cpu]) -> Known<CpuSet> {
    let is_any_known = cpus.iter().any(|cpu| cpu.online.value().is_some());
    let mut offline = Vec::new();
    for cpu in cpus {
        match &cpu.online {
            Known::Value(true) => {}
            Known::Value(false) => offline.push(cpu.id),
            Known::Unknown(gap) if is_any_known && gap.cause == Cause::Absent => {}
            Known::Unknown(gap) => return Known::Unknown(gap.clone()),
        }
    }
    if cpus.is_empty() {
        return Known::unknown(Cause::Absent, absolute(FOLDER), "no CPU is listed");
    }
    Known::Value(offline.into_iter().collect())
}

/// A CPU list. Without `nohz_full=` it is empty, which some kernels print as `(null)`.
pub(crate) fn parse_list(text: &str) -> Result<CpuSet, IdError> {
    match text.trim() {
        "(null)" => Ok(CpuSet::empty()),
        list => list.parse(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_list_is_no_cpu() {
        assert_eq!(parse_list(" (null)\n"), Ok(CpuSet::empty()));
        assert_eq!(parse_list(""), Ok(CpuSet::empty()));
        assert_eq!(parse_list("2-3").map(|set| set.len()), Ok(2));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[(null)0-9,-]{0,12}|.{0,20}") {
            let _ = parse_list(&text);
        }
    }
}
