//! The netdev family of generic netlink: NAPI instances with their queues, XDP, and the counters of queues and page
//! pools (Documentation/netlink/specs/netdev.yaml, Documentation/networking/napi.rst; Linux 6.3 for XDP, 6.8 to 6.13
//! for the rest).

use std::collections::BTreeMap;

use linerate_model::host::{Dispatch, Napi};
use linerate_model::ids::{IrqNumber, NicName};
use linerate_model::known::{Cause, Known};

use super::error::Failure;
use super::families::{Families, GENERIC_HEADER_BYTES};
use super::message::{Attributes, Request};
use super::response::{ResponseAttributes, uint};
use super::socket::Answer;
use super::{Netlink, link, lock};
use crate::nic_control::NicCounts;

const NO_FAMILY: &str = "this kernel has no netdev family (Linux 6.3 or later)";
const NO_COMMAND: &str = "not reported by this kernel or driver";

const COMMAND_DEVICE: u8 = 1;
const COMMAND_PAGE_POOL_STATS: u8 = 9;
const COMMAND_QUEUE: u8 = 10;
const COMMAND_NAPI: u8 = 11;
const COMMAND_QSTATS: u8 = 12;

/// The interface's index: the same attribute number in every request except for queues.
const INDEX: u16 = 1;
const DEVICE_XDP_FEATURES: u16 = 3;
const NAPI_ID: u16 = 2;
const NAPI_IRQ: u16 = 3;
const NAPI_PID: u16 = 4;
const NAPI_DEFER_HARD_IRQS: u16 = 5;
const NAPI_GRO_FLUSH_TIMEOUT: u16 = 6;
const NAPI_IRQ_SUSPEND_TIMEOUT: u16 = 7;
const QUEUE_ID: u16 = 1;
const QUEUE_INDEX: u16 = 2;
const QUEUE_TYPE: u16 = 3;
const QUEUE_NAPI: u16 = 4;
const QSTATS_TYPE: u16 = 2;
const QSTATS_ID: u16 = 3;
const QSTATS_SCOPE: u16 = 4;
/// `NETDEV_QSTATS_SCOPE_QUEUE`.
const SCOPE_QUEUE: u32 = 1;
const POOL_STATS_INFO: u16 = 1;
const POOL_INDEX: u16 = 2;
/// The first counter of both kinds of statistics.
const FIRST_COUNTER: u16 = 8;

/// Bits of `enum netdev_xdp_act`.
const XDP_FEATURES: [&str; 7] = [
    "basic",
    "redirect",
    "ndo-xmit",
    "xsk-zerocopy",
    "hw-offload",
    "rx-sg",
    "ndo-xmit-sg",
];

/// Counters of a queue, from [`FIRST_COUNTER`].
const QSTATS: [&str; 27] = [
    "rx-packets",
    "rx-bytes",
    "tx-packets",
    "tx-bytes",
    "rx-alloc-fail",
    "rx-hw-drops",
    "rx-hw-drop-overruns",
    "rx-csum-complete",
    "rx-csum-unnecessary",
    "rx-csum-none",
    "rx-csum-bad",
    "rx-hw-gro-packets",
    "rx-hw-gro-bytes",
    "rx-hw-gro-wire-packets",
    "rx-hw-gro-wire-bytes",
    "rx-hw-drop-ratelimits",
    "tx-hw-drops",
    "tx-hw-drop-errors",
    "tx-csum-none",
    "tx-needs-csum",
    "tx-hw-gso-packets",
    "tx-hw-gso-bytes",
    "tx-hw-gso-wire-packets",
    "tx-hw-gso-wire-bytes",
    "tx-hw-drop-ratelimits",
    "tx-stop",
    "tx-wake",
];

/// Counters of a page pool, from [`FIRST_COUNTER`].
const POOL_STATS: [&str; 11] = [
    "alloc-fast",
    "alloc-slow",
    "alloc-slow-high-order",
    "alloc-empty",
    "alloc-refill",
    "alloc-waive",
    "recycle-cached",
    "recycle-cache-full",
    "recycle-ring",
    "recycle-ring-full",
    "recycle-released-refcnt",
];

/// Counters by their names.
type Counters = BTreeMap<String, u64>;

impl Netlink {
    /// Adds the netdev family's data on queues.
    pub(super) fn fill_dispatch_by_netdev(&self, nic: &NicName, dispatch: &mut Dispatch) {
        let path = format!("netlink/netdev/{nic}");
        dispatch.napis = self.read_netdev(nic, "napi", |netdev, family, index| {
            let by_index = |request: &mut Request| {
                request.put_u32(INDEX, index);
            };
            let napis = netdev.dump(family, COMMAND_NAPI, by_index)?;
            let queues = netdev.dump(family, COMMAND_QUEUE, |request| {
                request.put_u32(QUEUE_INDEX, index);
            })?;
            napis_of(&napis, &queues, &path)
        });
        dispatch.xdp_features = self.read_netdev(nic, "xdp-features", |netdev, family, index| {
            let answers = netdev.ask(family, COMMAND_DEVICE, |request| {
                request.put_u32(INDEX, index);
            })?;
            let answer = answers
                .first()
                .ok_or(Failure::Malformed("no message before the end of the dump"))?;
            xdp_features(&answer.body)
        });
    }

    /// The counters of queues, page pools, qdiscs and health reporters.
    pub(super) fn counts_of_netdev(&self, nic: &NicName, counts: &mut NicCounts) {
        let qstats = |scope: Option<u32>| {
            move |netdev: &mut Families, family, index| {
                let answers = netdev.dump(family, COMMAND_QSTATS, |request| {
                    request.put_u32(INDEX, index);
                    if let Some(scope) = scope {
                        request.put_u32(QSTATS_SCOPE, scope);
                    }
                })?;
                summed(&answers, |body| queue_counters(body, index))
            }
        };
        let of_queues = self.read_netdev(nic, "qstats-of-queues", qstats(Some(SCOPE_QUEUE)));
        let of_nic = self.read_netdev(nic, "qstats", qstats(None));
        let of_pools = self.read_netdev(nic, "page-pool-stats", |netdev, family, index| {
            let answers = netdev.dump(family, COMMAND_PAGE_POOL_STATS, |_| ())?;
            summed(&answers, |body| pool_counters(body, index))
        });
        let groups = [
            ("queue", "qstats-of-queues", of_queues),
            ("qstat", "qstats", of_nic),
            ("page-pool", "page-pool-stats", of_pools),
        ];
        for (group, request, counters) in groups {
            match counters {
                Known::Value(counters) => {
                    let path = format!("netlink/netdev/{nic}/{request}");
                    let keyed = counters
                        .into_iter()
                        .map(|(name, value)| (format!("{group}/{name}"), (value, path.clone())));
                    counts.values.extend(keyed);
                }
                Known::Unknown(gap) => {
                    counts.gaps.insert(group.to_owned(), gap);
                }
            }
        }
        self.counts_of_qdiscs(nic, counts);
        self.counts_of_devlink(nic, counts);
    }

    fn read_netdev<T>(
        &self,
        nic: &NicName,
        what: &str,
        read: impl FnOnce(&mut Families, u16, u32) -> Result<T, Failure>,
    ) -> Known<T> {
        let path = format!("netlink/netdev/{nic}/{what}");
        let index = link::read(&mut lock(&self.route), nic).map(|link| link.index);
        let families = &mut *lock(&self.families);
        let result = match (families.number("netdev"), index) {
            (Ok(None), _) => return Known::unknown(Cause::Absent, path, NO_FAMILY),
            (Ok(Some(family)), Ok(index)) => read(families, family, index),
            (Err(failure), _) | (_, Err(failure)) => Err(failure),
        };
        super::known(result, path, NO_COMMAND)
    }
}

/// The NAPI instances with their queues, by ID.
fn napis_of(napis: &[Answer], queues: &[Answer], path: &str) -> Result<Vec<Napi>, Failure> {
    let mut all = BTreeMap::new();
    for answer in napis {
        if let Some(napi) = parse_napi(&answer.body, path)? {
            all.insert(napi.id, napi);
        }
    }
    for answer in queues {
        let attributes = Attributes::after(&answer.body, GENERIC_HEADER_BYTES)?;
        let ids = (attributes.u32(QUEUE_NAPI)?, attributes.u32(QUEUE_ID)?);
        let (Some(napi), Some(queue)) = ids else {
            continue; // nothing polls it, such as a queue that is stopped
        };
        let Some(napi) = all.get_mut(&napi) else {
            continue;
        };
        match attributes.u32(QUEUE_TYPE)? {
            Some(0) => napi.rx_queues.push(queue),
            Some(1) => napi.tx_queues.push(queue),
            _ => {}
        }
    }
    Ok(all
        .into_values()
        .map(|mut napi| {
            napi.rx_queues.sort_unstable();
            napi.tx_queues.sort_unstable();
            napi
        })
        .collect())
}

fn parse_napi(body: &[u8], path: &str) -> Result<Option<Napi>, Failure> {
    let attributes = Attributes::after(body, GENERIC_HEADER_BYTES)?;
    let Some(id) = attributes.u32(NAPI_ID)? else {
        return Ok(None);
    };
    let path = format!("{path}/napi/{id}");
    let said = ResponseAttributes::after(body, GENERIC_HEADER_BYTES, &path, NO_COMMAND);
    let thread = said.u32(NAPI_PID, "pid");
    Ok(Some(Napi {
        id,
        irq: said.u32(NAPI_IRQ, "irq").map(IrqNumber),
        thread_cpus: match &thread {
            Known::Value(pid) => Known::not_asked(format!("/proc/{pid}/status")),
            Known::Unknown(gap) => Known::Unknown(gap.clone()),
        },
        thread,
        rx_queues: Vec::new(),
        tx_queues: Vec::new(),
        gro_flush_timeout_ns: said.uint(NAPI_GRO_FLUSH_TIMEOUT, "gro-flush-timeout"),
        defer_hard_irqs: said.u32(NAPI_DEFER_HARD_IRQS, "defer-hard-irqs"),
        irq_suspend_timeout_ns: said.uint(NAPI_IRQ_SUSPEND_TIMEOUT, "irq-suspend-timeout"),
    }))
}

fn xdp_features(body: &[u8]) -> Result<Vec<String>, Failure> {
    let attributes = Attributes::after(body, GENERIC_HEADER_BYTES)?;
    let bits = attributes
        .u64(DEVICE_XDP_FEATURES)?
        .ok_or(Failure::Malformed("the XDP features are missing"))?;
    let set = (0..64_usize).filter(|bit| bits >> bit & 1 == 1);
    Ok(set
        .map(|bit| match XDP_FEATURES.get(bit) {
            Some(word) => (*word).to_owned(),
            None => format!("bit {bit}"),
        })
        .collect())
}

/// The counters of several responses, summed by name.
fn summed(
    answers: &[Answer],
    read: impl Fn(&[u8]) -> Result<Counters, Failure>,
) -> Result<Counters, Failure> {
    let mut sums = Counters::new();
    for answer in answers {
        for (name, value) in read(&answer.body)? {
            let sum = sums.entry(name).or_default();
            *sum = sum.saturating_add(value);
        }
    }
    Ok(sums)
}

fn named_counters(
    attributes: &Attributes<'_>,
    names: &[&'static str],
) -> Result<Vec<(&'static str, u64)>, Failure> {
    let mut found = Vec::new();
    for (kind, name) in (FIRST_COUNTER..).zip(names) {
        if let Some(value) = uint(attributes, kind)? {
            found.push((*name, value));
        }
    }
    Ok(found)
}

/// The counters of one queue (`rx-3/packets`) or of the whole interface (`rx-packets`).
fn queue_counters(body: &[u8], index: u32) -> Result<Counters, Failure> {
    let attributes = Attributes::after(body, GENERIC_HEADER_BYTES)?;
    if attributes.u32(INDEX)? != Some(index) {
        return Ok(Counters::new());
    }
    let direction = match attributes.u32(QSTATS_TYPE)? {
        Some(0) => Some("rx-"),
        Some(1) => Some("tx-"),
        _ => None,
    };
    let queue = direction.zip(attributes.u32(QSTATS_ID)?);
    let counters = named_counters(&attributes, &QSTATS)?.into_iter();
    Ok(counters
        .map(|(name, value)| match queue {
            Some((direction, queue)) => {
                let own = name.strip_prefix(direction).unwrap_or(name);
                (format!("{direction}{queue}/{own}"), value)
            }
            None => (name.to_owned(), value),
        })
        .collect())
}

/// The counters of one page pool, if it belongs to the interface.
fn pool_counters(body: &[u8], index: u32) -> Result<Counters, Failure> {
    let attributes = Attributes::after(body, GENERIC_HEADER_BYTES)?;
    let pool = attributes.nest(POOL_STATS_INFO)?;
    if pool.u32(POOL_INDEX)? != Some(index) {
        return Ok(Counters::new());
    }
    let counters = named_counters(&attributes, &POOL_STATS)?.into_iter();
    Ok(counters
        .map(|(name, value)| (name.to_owned(), value))
        .collect())
}

#[cfg(test)]
mod tests;
