//! The settings of the profile `measurement`, for repeatable results: a fixed clock frequency, no deep idle states
//! (held by a process: `cpu/max-latency-us`), and interrupts with fixed affinity and fixed coalescing
//! (Documentation/admin-guide/pm/cpuidle.rst, irqbalance(1), Documentation/networking/ethtool-netlink.rst).

use crate::host::{Host, Nic};
use crate::setting::{MachineKnob, NicKnob, PolicyKnob, SettingKey, Value};

/// The settings with their target values, applied where the host has them.
pub fn steady(host: &Host) -> Vec<(SettingKey, Value)> {
    let off = Value::Switch(false);
    let mut wanted = vec![(SettingKey::Machine(MachineKnob::Turbo), off.clone())];
    let policies = host.power.frequency.value().into_iter().flatten();
    for number in policies.filter_map(|policy| policy.number.get()) {
        let key = SettingKey::Policy(number, PolicyKnob::Governor);
        wanted.push((key, Value::Text("performance".to_owned())));
    }
    let paused = SettingKey::Machine(MachineKnob::IrqbalancePaused);
    wanted.push((paused, Value::Switch(true)));
    let with_wire = |nic: &&Nic| nic.kind.has_wire();
    for nic in host.nics.iter().filter(with_wire) {
        for knob in [NicKnob::CoalesceAdaptiveRx, NicKnob::CoalesceAdaptiveTx] {
            wanted.push((SettingKey::Nic(nic.name.clone(), knob), off.clone()));
        }
    }
    wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{self, NicBuilder};

    #[test]
    fn cards_get_fixed_intervals_and_virtual_interfaces_nothing() {
        let host = build::host()
            .nic("eth0", |nic| nic)
            .nic("veth0", NicBuilder::veth)
            .build();
        let keys: Vec<String> = steady(&host)
            .iter()
            .map(|(key, _)| key.to_string())
            .collect();
        assert!(keys.contains(&"cpu/turbo".to_owned()), "{keys:?}");
        assert!(keys.contains(&"irqbalance/paused".to_owned()), "{keys:?}");
        assert!(keys.contains(&"nic/eth0/coalesce/adaptive-rx".to_owned()));
        assert!(!keys.iter().any(|key| key.contains("veth0")), "{keys:?}");
    }
}
