//! The CPUs and the memory of a program that is started for a trial. Both are inherited by child processes and kept by
//! execve(2): sched_setaffinity(2), set_mempolicy(2); numactl(8) and taskset(1) do the same.

use linerate_model::ids::CpuSet;
use linerate_model::workload::MemoryPolicy;
use rustix::io::Errno;

use crate::TrafficError;
use crate::sys::{pin_thread, set_thread_policy};

/// Places the calling thread, and every process that it starts from now on. An empty set and the default policy change
/// nothing.
pub fn place_this_thread(cpus: &CpuSet, memory: &MemoryPolicy) -> Result<(), TrafficError> {
    if let Some(first) = cpus.first() {
        pin_thread(cpus).map_err(|errno| match errno {
            Errno::INVAL => TrafficError::NoSuchCpu { cpu: first },
            _ => TrafficError::of_errno("set the CPUs of a program", errno),
        })?;
    }
    set_thread_policy(memory)
        .map_err(|errno| TrafficError::of_errno("set the memory policy of a program", errno))
}
