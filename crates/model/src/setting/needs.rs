//! The capabilities needed to write a setting (capabilities(7)), by the kernel's names.

use super::{Access, MachineKnob, SettingKey};

/// Configuring interfaces and the sysctls of a network namespace (`net_ctl_permissions`, net/sysctl_net.c).
pub const NET_ADMIN: &str = "CAP_NET_ADMIN";
/// Writing files that only root may write, for other users (sysfs, procfs).
pub const DAC_OVERRIDE: &str = "CAP_DAC_OVERRIDE";
/// Needed for a few sysctls in addition to write access to their files.
pub const SYS_ADMIN: &str = "CAP_SYS_ADMIN";
/// Signals to other users' processes.
pub const KILL: &str = "CAP_KILL";

/// The capabilities needed for any setting.
pub const ALL: [&str; 4] = [NET_ADMIN, DAC_OVERRIDE, SYS_ADMIN, KILL];

impl SettingKey {
    /// The capabilities needed to write it; none for settings of the measurement.
    pub fn needs(&self) -> &'static [&'static str] {
        match (self, self.spec().access) {
            // `sysctl_numa_balancing`, kernel/sched/core.c.
            (Self::Sysctl(name), _) if name.starts_with("kernel.numa_balancing") => {
                &[SYS_ADMIN, DAC_OVERRIDE]
            }
            (Self::Sysctl(name), _) if name.starts_with("net.") => &[NET_ADMIN],
            (Self::Nic(..), Access::File(..)) => &[NET_ADMIN, DAC_OVERRIDE],
            (_, Access::Ethtool(..) | Access::Link(_) | Access::Netlink) => &[NET_ADMIN],
            (Self::Machine(MachineKnob::IrqbalancePaused), _) => &[KILL],
            (_, Access::Trial) => &[],
            _ => &[DAC_OVERRIDE],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_names_the_rights_that_its_writer_asks_for() {
        let needs = |key: &str| key.parse::<SettingKey>().expect("a key").needs();
        assert_eq!(needs("sysctl/net.ipv4.tcp_rmem"), [NET_ADMIN]);
        assert_eq!(needs("nic/eth0/mtu"), [NET_ADMIN]);
        assert_eq!(
            needs("nic/eth0/queue/rx-0/rps-cpus"),
            [NET_ADMIN, DAC_OVERRIDE]
        );
        assert_eq!(needs("nic/eth0/queue/rx-0/irq-cpus"), [DAC_OVERRIDE]);
        assert_eq!(needs("cpu/turbo"), [DAC_OVERRIDE]);
        assert_eq!(needs("irqbalance/paused"), [KILL]);
        assert!(needs("placement/sender-cpus").is_empty());
    }

    #[test]
    fn no_setting_takes_what_a_reverter_never_holds() {
        for key in [
            "kernel.numa_balancing",
            "net.core.rmem_max",
            "vm.swappiness",
        ] {
            let key: SettingKey = format!("sysctl/{key}").parse().expect("a key");
            assert!(key.needs().iter().all(|need| ALL.contains(need)), "{key}");
        }
    }
}
