//! The CPUs that the kernel allows this process (`/proc/self/status`, proc_pid_status(5)).

use linerate_model::ids::CpuSet;
use linerate_model::known::Known;

use super::sockets::parse_status;
use crate::attributes::understood;
use crate::root::HostRoot;

const STATUS: &str = "proc/self/status";
const ALLOWED: &str = "Cpus_allowed_list";

/// Reads them.
pub(crate) fn read_cpus_allowed(root: &HostRoot) -> Known<CpuSet> {
    root.read_used(STATUS, used_status).and_then(|text| {
        understood(STATUS, &text, |text| {
            let cpus = parse_status(text, ALLOWED)?;
            cpus.parse::<CpuSet>().map_err(|error| error.to_string())
        })
    })
}

/// The line that is used here.
pub(crate) fn used_status(text: &str) -> String {
    let cpus = parse_status(text, ALLOWED).unwrap_or_default();
    format!("{ALLOWED}:\t{cpus}")
}
