//! What the kernel allows this process: its CPUs (`/proc/self/status`, proc_pid_status(5)) and CPU quotas.

use linerate_model::host::Process;
use linerate_model::ids::CpuSet;

use super::sockets::parse_status;
use crate::attributes::understood;
use crate::root::HostRoot;
use crate::sysfs::cgroups::read_quotas;

const STATUS: &str = "proc/self/status";
const ALLOWED: &str = "Cpus_allowed_list";

/// Reads it.
pub(crate) fn read_process(root: &HostRoot) -> Process {
    Process {
        cpus_allowed: root.read_used(STATUS, used_status).and_then(|text| {
            understood(STATUS, &text, |text| {
                let cpus = parse_status(text, ALLOWED)?;
                cpus.parse::<CpuSet>().map_err(|error| error.to_string())
            })
        }),
        cpu_quotas: read_quotas(root),
    }
}

/// The line that is used here.
pub(crate) fn used_status(text: &str) -> String {
    let cpus = parse_status(text, ALLOWED).unwrap_or_default();
    format!("{ALLOWED}:\t{cpus}")
}
