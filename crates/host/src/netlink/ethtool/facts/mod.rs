//! All ethtool data of an interface, grouped as in the model. Each failed request is a gap of its own.

use linerate_model::host::{Card, Dispatch, Wire};
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Gap, Known};

use super::stats;
use crate::netlink::{Netlink, lock};
use crate::nic_control::NicCounts;

impl Netlink {
    /// The driver and the running firmware; the rest does not come from ethtool.
    pub(in crate::netlink) fn card_of_ethtool(&self, nic: &NicName) -> Card {
        let info = self.read_control(nic, "driver", |control| control.driver_info(nic));
        let field = |text: Known<String>, what: &str| {
            text.and_then(|text| match text.as_str() {
                "" | "N/A" | "n/a" => Known::unknown(
                    Cause::NotSaid,
                    format!("ioctl/ethtool/{nic}/driver/{what}"),
                    "left empty by the driver",
                ),
                _ => Known::Value(text),
            })
        };
        // For a bond it is the version of the interface between kernel and ifenslave (`BOND_ABI_VERSION`).
        let bond = info.value().is_some_and(|info| info.driver == "bonding");
        Card {
            driver: field(info.clone().map(|info| info.driver), "name"),
            driver_version: field(info.clone().map(|info| info.version), "version"),
            firmware: if bond {
                field(Known::Value(String::new()), "firmware")
            } else {
                field(info.map(|info| info.firmware), "firmware")
            },
            ..Card::default()
        }
    }

    /// The port and the module in it.
    pub(in crate::netlink) fn wire_of_ethtool(&self, nic: &NicName) -> Wire {
        // A separate statement: inside the expression below the lock would be held to its end.
        let module = lock(&self.ethtool).module(nic);
        Wire {
            // Read from sysfs.
            duplex: Known::default(),
            module,
            modes: self.read_ethtool(nic, "modes", |ethtool| ethtool.modes(nic)),
            state: self.read_ethtool(nic, "state", |ethtool| ethtool.state(nic)),
            fec: self.read_ethtool(nic, "fec", |ethtool| ethtool.fec(nic)),
            pause: self.read_ethtool(nic, "pause", |ethtool| ethtool.pause(nic)),
            eee: self.read_ethtool(nic, "eee", |ethtool| ethtool.eee(nic)),
            timestamping: self
                .read_ethtool(nic, "timestamping", |ethtool| ethtool.timestamping(nic)),
        }
    }

    /// The ethtool part of the queue settings; the rest comes from netdev.
    pub(in crate::netlink) fn dispatch_of_ethtool(&self, nic: &NicName) -> Dispatch {
        Dispatch {
            rss: self.read_control(nic, "rss", |control| control.rss(nic)),
            private_flags: self
                .read_ethtool(nic, "private-flags", |ethtool| ethtool.private_flags(nic)),
            tunnel_ports: self
                .read_ethtool(nic, "tunnel-ports", |ethtool| ethtool.tunnel_ports(nic)),
            tcp_data_split: self
                .read_ethtool(nic, "rings", |ethtool| ethtool.tcp_data_split(nic))
                .and_then(|split| split),
            queue_coalesce: self.queue_coalesce_of_ethtool(nic),
            ..Dispatch::default()
        }
    }

    fn queue_coalesce_of_ethtool(
        &self,
        nic: &NicName,
    ) -> Known<Vec<linerate_model::host::QueueCoalesce>> {
        const WHAT: &str = "queue-coalesce";
        // Few drivers have it, so one queue is tried before all are read.
        self.read_control(nic, WHAT, |control| control.queue_coalesce(nic, 1))
            .and_then(|first| {
                let channels = self.read_ethtool(nic, "channels", |ethtool| ethtool.channels(nic));
                let count = |of: &Known<u32>| of.get().unwrap_or(0) as usize;
                let queues = channels.value().map_or(1, |channels| {
                    let own = count(&channels.rx).max(count(&channels.tx));
                    own.saturating_add(count(&channels.combined))
                });
                if queues <= 1 {
                    return Known::Value(first);
                }
                self.read_control(nic, WHAT, |control| control.queue_coalesce(nic, queues))
            })
    }

    /// All counters from ethtool.
    pub(in crate::netlink) fn counts_of_ethtool(&self, nic: &NicName, counts: &mut NicCounts) {
        let groups = [
            (
                "fec",
                self.read_ethtool(nic, "fec", |ethtool| ethtool.fec_counts(nic)),
            ),
            (
                "pause",
                self.read_ethtool(nic, "pause", |ethtool| ethtool.pause_counts(nic)),
            ),
            (
                "link",
                self.read_ethtool(nic, "state", |ethtool| ethtool.link_counts(nic)),
            ),
        ];
        for (group, told) in groups {
            put(
                counts,
                group,
                &format!("netlink/ethtool/{nic}/{group}"),
                told,
            );
        }
        let told = self.read_ethtool(nic, "stats", |ethtool| ethtool.standard_counts(nic));
        put_standard(counts, &format!("netlink/ethtool/{nic}/stats"), told);
        let told = self.read_control(nic, "stats", |control| control.statistics(nic));
        put(
            counts,
            "driver",
            &format!("ioctl/ethtool/{nic}/stats"),
            told,
        );
    }
}

/// The counters of one group, `GROUP/NAME`; a group without any counter is a gap.
fn put(counts: &mut NicCounts, group: &str, path: &str, told: Known<Vec<(String, u64)>>) {
    match told {
        Known::Value(told) if told.is_empty() => gap(counts, group, path),
        Known::Value(told) => {
            for (name, value) in told {
                // Some drivers have two counters with the same name, which cannot be distinguished, so the first is
                // used in every reading.
                let counter = counts.values.entry(format!("{group}/{name}"));
                counter.or_insert_with(|| (value, path.to_owned()));
            }
        }
        Known::Unknown(why) => drop(counts.gaps.insert(group.to_owned(), why)),
    }
}

/// The standard counters, whose names already contain their group.
fn put_standard(counts: &mut NicCounts, path: &str, told: Known<Vec<(String, u64)>>) {
    for (_, group, _) in stats::ALL {
        match &told {
            Known::Unknown(why) => drop(counts.gaps.insert(group.to_owned(), why.clone())),
            Known::Value(told) => {
                let has = |(name, _): &(String, u64)| name.split('/').next() == Some(group);
                if !told.iter().any(has) {
                    gap(counts, group, path);
                }
            }
        }
    }
    if let Known::Value(told) = told {
        let told = told.into_iter();
        counts
            .values
            .extend(told.map(|(key, value)| (key, (value, path.to_owned()))));
    }
}

fn gap(counts: &mut NicCounts, group: &str, path: &str) {
    let gap = Gap::new(Cause::Absent, path, "the driver has no such counters");
    counts.gaps.insert(group.to_owned(), gap);
}

#[cfg(test)]
mod tests;
