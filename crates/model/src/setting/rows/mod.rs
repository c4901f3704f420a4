//! The rows of the catalog: one for each setting, with all that is known of it.

mod machine;
mod nic;

pub use machine::{BlockKnob, CpuKnob, MachineKnob, PolicyKnob, RdmaKnob, TrialKnob};
pub(super) use machine::{IRQ_CPUS, RDMA_DEFAULTS, SYSCTL, SYSCTL_NET};
pub use nic::NicKnob;

use super::Fact;
use super::spec::{Access, ByHand, Class, Domain, Effects, Keeping, Scope, SettingSpec};

/// What holds for a setting unless its row says otherwise.
const BASE: SettingSpec = SettingSpec {
    pattern: "",
    about: "",
    domain: Domain::Integer,
    class: Class::R1,
    scope: Scope::Machine,
    access: Access::Trial,
    by_hand: ByHand::Nothing,
    fact: Fact::NotRead,
    effects: Effects::Nothing,
    is_rounded: false,
    keeping: Keeping::Persist,
    source: "",
};

/// Every setting that linerate knows.
pub fn catalogue() -> impl Iterator<Item = &'static SettingSpec> {
    const TABLES: [&[SettingSpec]; 9] = [
        &[SYSCTL_NET, SYSCTL],
        NicKnob::ROWS,
        MachineKnob::ROWS,
        CpuKnob::ROWS,
        PolicyKnob::ROWS,
        &[IRQ_CPUS],
        BlockKnob::ROWS,
        &[RDMA_DEFAULTS],
        RdmaKnob::ROWS,
    ];
    TABLES.into_iter().flatten().chain(TrialKnob::ROWS)
}
