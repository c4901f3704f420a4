//! Idle states: `cpuN/cpuidle/stateM` (Documentation/admin-guide/pm/cpuidle.rst).

use linerate_model::host::IdleState;
use linerate_model::ids::{CpuId, CpuSet};
use linerate_model::known::{Cause, Known};

use super::cpus::FOLDER;
use crate::attributes::{number, numbered};
use crate::parallel;
use crate::root::{HostRoot, absolute};

/// Reads the idle states of the first of `cpus` (the online ones), and the CPUs on which each is disabled.
pub(crate) fn read_idle_states(root: &HostRoot, cpus: &[CpuId]) -> Known<Vec<IdleState>> {
    let Some(first) = cpus.first() else {
        let reason = "no CPU is known to be online";
        return Known::unknown(Cause::Absent, absolute(FOLDER), reason);
    };
    let folder = format!("{FOLDER}/cpu{first}/cpuidle");
    let states = match root.list(&folder) {
        Known::Value(names) => numbered(&names, "state"),
        Known::Unknown(gap) => return Known::Unknown(gap),
    };
    let mut read = Vec::new();
    for state in &states {
        let folder = format!("{folder}/state{state}");
        read.push(IdleState {
            name: match root.read(&format!("{folder}/name")) {
                Known::Value(name) => name,
                Known::Unknown(gap) => return Known::Unknown(gap),
            },
            exit_latency_us: number(root, &format!("{folder}/latency")),
            disabled_on: Known::Value(CpuSet::empty()),
        });
    }
    let disabled = parallel::each(cpus, |cpu| disabled_states(root, *cpu, &states));
    for (at, state) in read.iter_mut().enumerate() {
        let of_state = disabled.iter().map(|of_cpu| of_cpu.get(at));
        state.disabled_on = gathered(cpus, of_state);
    }
    Known::Value(read)
}

/// Whether each state is disabled on `cpu`; `None` if the CPU does not have it.
fn disabled_states(root: &HostRoot, cpu: CpuId, states: &[u32]) -> Vec<Option<Known<bool>>> {
    let read = |state: &u32| {
        let path = format!("{FOLDER}/cpu{cpu}/cpuidle/state{state}/disable");
        match number::<u64>(root, &path) {
            // The efficiency cores of a hybrid processor may have fewer states.
            Known::Unknown(gap) if gap.cause == Cause::Absent => None,
            answer => Some(answer.map(|disable| disable != 0)),
        }
    };
    states.iter().map(read).collect()
}

fn gathered<'a>(
    cpus: &[CpuId],
    disabled: impl Iterator<Item = Option<&'a Option<Known<bool>>>>,
) -> Known<CpuSet> {
    let mut set = Vec::new();
    for (cpu, disabled) in cpus.iter().zip(disabled) {
        match disabled {
            Some(Some(Known::Value(true))) => set.push(*cpu),
            Some(Some(Known::Unknown(gap))) => return Known::Unknown(gap.clone()),
            _ => {}
        }
    }
    Known::Value(set.into_iter().collect())
}
