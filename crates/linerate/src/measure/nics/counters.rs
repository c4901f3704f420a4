//! What every interface of this host has carried (Documentation/ABI/testing/sysfs-class-net-statistics): to name the one
//! that carried the bytes of another.

use std::collections::BTreeMap;

use linerate_host::root::HostRoot;
use linerate_model::ids::NicName;

const CLASS: &str = "sys/class/net";

/// The bytes that each interface has sent and received.
#[derive(Debug, Default)]
pub(super) struct Counters(BTreeMap<NicName, (u64, u64)>);

impl Counters {
    /// Reads them; an interface whose counters cannot be read is left out.
    pub(super) fn read(root: &HostRoot) -> Self {
        let names = root.list(CLASS);
        let names = names.value().into_iter().flatten();
        let counter = |name: &NicName, file: &str| -> Option<u64> {
            let text = root.read(&format!("{CLASS}/{name}/statistics/{file}"));
            text.value()?.trim().parse().ok()
        };
        let all = names.filter_map(|name| {
            let name: NicName = name.parse().ok()?;
            let both = (counter(&name, "tx_bytes")?, counter(&name, "rx_bytes")?);
            Some((name, both))
        });
        Self(all.collect())
    }

    /// The bytes that each interface has sent and received since `before`.
    pub(super) fn since(&self, before: &Self) -> Vec<(NicName, u64, u64)> {
        let grown = self.0.iter().filter_map(|(name, now)| {
            let then = before.0.get(name)?;
            let sent = now.0.checked_sub(then.0)?;
            Some((name.clone(), sent, now.1.checked_sub(then.1)?))
        });
        grown.collect()
    }
}
