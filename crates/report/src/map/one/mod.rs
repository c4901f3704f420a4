//! All settings of one interface (`linerate map eth0`): what the map of the whole host omits. A
//! fact that is not known is shown with its cause if the driver could have reported it, and omitted
//! if the interface has no such thing.

use std::collections::BTreeMap;

use linerate_analysis::text::visible::visible;
use linerate_analysis::text::words::count;
use linerate_model::host::{
    Coalesce, Dcb, Feature, Host, Napi, Nic, NicKind, QdiscClass, QdiscNode, QueueCoalesce, Rss,
    Stack, VirtualFunction,
};
use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Gap, Known};

use super::text::{Branch, kind_word, show, show_with};

/// Longer lists are truncated; `--format json` and `--why` have them in full.
const ENTRIES: usize = 32;

/// Further facts about an interface of `whole`; none when the whole host is shown.
pub(super) fn one_branches(nic: &Nic, whole: Option<&Host>) -> Vec<Branch> {
    let Some(whole) = whole else {
        return Vec::new();
    };
    let mut all = Vec::new();
    all.extend(chain(nic, whole));
    all.extend(slaves(nic, whole));
    all.extend(functions(nic));
    all.extend(rss(nic));
    all.extend(napis(nic));
    all.extend(coalesce(nic));
    all.extend(sizes(&nic.stack));
    all.extend(features_off(nic));
    all.extend(flags(nic));
    all.extend(tunnel_ports(nic));
    all.extend(timestamping(nic));
    all.extend(shaping(nic));
    all.extend(dcb(nic));
    all
}

/// A line with what is known; none if the interface has no such thing, the cause if it was not reported.
fn told<T>(
    what: &str,
    fact: &Known<T>,
    branch: impl FnOnce(&T) -> Option<Branch>,
) -> Option<Branch> {
    match fact {
        Known::Value(value) => branch(value),
        Known::Unknown(gap) if !gap.leaves_a_question() || gap.cause == Cause::NotAsked => None,
        Known::Unknown(gap) => Some(Branch::leaf(format!("{what} ? ({})", gap.cause))),
    }
}

/// Whether it exists, known or not.
fn is_offered<T>(fact: &Known<T>) -> bool {
    fact.gap().is_none_or(Gap::leaves_a_question)
}

fn leaf(what: &str, words: &[String]) -> Option<Branch> {
    (!words.is_empty()).then(|| Branch::leaf(format!("{what}: {}", words.join(", "))))
}

/// Leaves of at most [`ENTRIES`] entries.
fn leaves(text: String, all: Vec<String>) -> Branch {
    let rest = all.len().saturating_sub(ENTRIES);
    let mut below: Vec<Branch> = all.into_iter().take(ENTRIES).map(Branch::leaf).collect();
    if rest > 0 {
        below.push(Branch::leaf(format!("and {rest} more")));
    }
    Branch { text, below }
}

fn on_off(fact: &Known<bool>) -> String {
    show_with(fact, |on| if *on { "on" } else { "off" }.to_owned())
}

/// Everything above and below it, from the top to the wire.
fn chain(nic: &Nic, whole: &Host) -> Option<Branch> {
    let mut words = Vec::new();
    let mut seen = vec![&nic.name];
    steps(&nic.name, whole, true, &mut seen, &mut words);
    words.reverse();
    let own = words.len();
    words.push(format!("[{}]", visible(nic.name.as_str())));
    steps(&nic.name, whole, false, &mut seen, &mut words);
    (words.len() > 1 || own > 0)
        .then(|| Branch::leaf(format!("from top to bottom: {}", words.join(" > "))))
}

/// Level by level, each once: the report of a hostile host may contain a cycle.
fn steps<'a>(
    from: &'a NicName,
    whole: &'a Host,
    up: bool,
    seen: &mut Vec<&'a NicName>,
    words: &mut Vec<String>,
) {
    let mut level = vec![from];
    while !level.is_empty() && words.len() < ENTRIES {
        let mut next: Vec<&NicName> = Vec::new();
        for name in level {
            let nic = whole.nic(name);
            let beside = nic.map_or(&[][..], |nic| if up { nic.upper() } else { nic.lower() });
            for name in beside.iter().take(ENTRIES) {
                if !seen.contains(&name) {
                    seen.push(name);
                    next.push(name);
                }
            }
        }
        if !next.is_empty() {
            let names: Vec<String> = next
                .iter()
                .map(|name| {
                    let kind = whole
                        .nic(name)
                        .map_or_else(|| "elsewhere".to_owned(), kind_word);
                    format!("{} ({kind})", visible(name.as_str()))
                })
                .collect();
            words.push(names.join(" + "));
        }
        level = next;
    }
}

/// The slaves of a bond or team with their states.
fn slaves(nic: &Nic, whole: &Host) -> Option<Branch> {
    if !matches!(nic.kind, NicKind::Bond | NicKind::Team) {
        return None;
    }
    let mut all = Vec::new();
    for name in nic.lower() {
        let slave = whole.nic(name);
        let port = slave.and_then(|slave| slave.stack.bond_port.as_ref());
        let state = port.map_or_else(
            || "state ?".to_owned(),
            |port| {
                let mut text = format!("{}, link {}", show(&port.state), show(&port.mii_status));
                if is_offered(&port.aggregator) {
                    text += &format!(", aggregator {}", show(&port.aggregator));
                }
                if is_offered(&port.link_failures) {
                    text += &format!(", link lost {} times", show(&port.link_failures));
                }
                text
            },
        );
        let speed = slave.map_or_else(|| "?".to_owned(), |slave| show(&slave.link_bit_per_s));
        all.push(format!("{}: {state}, {speed}", visible(name.as_str())));
    }
    let bond = nic.stack.bond.as_ref();
    let extra = bond.map_or_else(String::new, |bond| {
        format!(
            ", miimon {} ms, LACP {}, active slave {}, aggregator {} with {} ports",
            show(&bond.miimon_ms),
            show(&bond.lacp_rate),
            show(&bond.active_slave),
            show(&bond.aggregator),
            show(&bond.aggregator_ports)
        )
    });
    let active = nic
        .stack
        .team
        .as_ref()
        .and_then(|team| team.active_port.as_ref());
    let extra = active.map_or(extra, |active| format!(", active port {}", show(active)));
    Some(leaves(
        format!("{}{extra}", count(nic.lower().len(), "slave")),
        all,
    ))
}

fn functions(nic: &Nic) -> Option<Branch> {
    let one = |function: &VirtualFunction| {
        let mut text = format!(
            "VF {}: link {}, spoof check {}, trusted {}",
            function.index,
            show(&function.link_state),
            on_off(&function.spoof_check),
            on_off(&function.trusted)
        );
        if let Some(vlan) = function.vlan.get().filter(|vlan| *vlan > 0) {
            text += &format!(", VLAN {vlan}");
        }
        if let Some(most) = function.max_bit_per_s.get() {
            text += &format!(", max rate {most}");
        }
        if let Some(least) = function.min_bit_per_s.get() {
            text += &format!(", min rate {least}");
        }
        text
    };
    told("virtual functions", &nic.stack.virtual_functions, |all| {
        (!all.is_empty()).then(|| {
            leaves(
                count(all.len(), "virtual function"),
                all.iter().map(one).collect(),
            )
        })
    })
}

fn rss(nic: &Nic) -> Option<Branch> {
    told("receive hash", &nic.dispatch.rss, |rss: &Rss| {
        let mut words = Vec::new();
        words.extend(rss.table.value().map(|table| table_text(table)));
        words.extend(rss.key_bytes.get().map(|bytes| format!("key of {bytes} B")));
        if rss.symmetric.get() == Some(true) {
            words.push("symmetric".to_owned());
        }
        if let Some(fields) = rss.fields.value() {
            // Flows with the same hash are grouped.
            let mut by_field: BTreeMap<&str, Vec<String>> = BTreeMap::new();
            for (flow, field) in fields {
                by_field.entry(field).or_default().push(visible(flow));
            }
            for (field, flows) in by_field {
                let field = if field.is_empty() { "nothing" } else { field };
                words.push(format!("{} by {}", flows.join(" "), visible(field)));
            }
        }
        let function = show(&rss.function);
        leaf(&format!("receive hash {function}"), &words)
    })
}

/// How many entries of the table each queue has: one figure if they are equal.
fn table_text(table: &[u32]) -> String {
    let mut shares: BTreeMap<u32, usize> = BTreeMap::new();
    for queue in table {
        *shares.entry(*queue).or_default() += 1;
    }
    let (least, most) = (shares.values().min(), shares.values().max());
    let spread = match (least, most) {
        (Some(least), Some(most)) if least == most => format!("{least} each"),
        (Some(least), Some(most)) => format!("{least} to {most} each"),
        _ => "none".to_owned(),
    };
    format!(
        "table of {} for {} ({spread})",
        count(table.len(), "entry").replace("entrys", "entries"),
        count(shares.len(), "queue")
    )
}

fn napis(nic: &Nic) -> Option<Branch> {
    let queues = |name: &str, all: &[u32]| -> String {
        let words: Vec<String> = all.iter().map(|queue| format!(" {name}-{queue}")).collect();
        words.concat()
    };
    let one = |napi: &Napi| {
        let mut text = format!("NAPI {}: irq {}", napi.id, show(&napi.irq));
        let own = queues("rx", &napi.rx_queues) + &queues("tx", &napi.tx_queues);
        if !own.is_empty() {
            text += &format!(",{own}");
        }
        if let Some(thread) = napi.thread.get() {
            text += &format!(", thread {thread} on CPUs {}", show(&napi.thread_cpus));
        }
        if let Some(timeout) = napi.gro_flush_timeout_ns.get().filter(|ns| *ns > 0) {
            text += &format!(", gro-flush-timeout {timeout} ns");
        }
        if let Some(polls) = napi.defer_hard_irqs.get().filter(|polls| *polls > 0) {
            text += &format!(", defer-hard-irqs {polls}");
        }
        if let Some(timeout) = napi.irq_suspend_timeout_ns.get().filter(|ns| *ns > 0) {
            text += &format!(", irq-suspend-timeout {timeout} ns");
        }
        text
    };
    told("NAPI instances", &nic.dispatch.napis, |all| {
        let text = format!(
            "{}, threads {}",
            count(all.len(), "NAPI instance"),
            on_off(&nic.dispatch.threaded)
        );
        (!all.is_empty()).then(|| leaves(text, all.iter().map(one).collect()))
    })
}

fn coalesce(nic: &Nic) -> Option<Branch> {
    told("interrupt coalescing", &nic.coalesce, |all: &Coalesce| {
        let text = format!(
            "coalescing: rx-usecs {} (adaptive {}), tx-usecs {} (adaptive {})",
            show(&all.rx_usecs),
            on_off(&all.adaptive_rx),
            show(&all.tx_usecs),
            on_off(&all.adaptive_tx)
        );
        let queues = nic.dispatch.queue_coalesce.value();
        Some(leaves(
            text,
            queues.map_or_else(Vec::new, |all| by_queue(all)),
        ))
    })
}

/// Neighbors with the same coalescing on one line.
fn by_queue(all: &[QueueCoalesce]) -> Vec<String> {
    let mut lines: Vec<(u32, u32, String)> = Vec::new();
    for one in all {
        let text = format!(
            "rx-usecs {} (adaptive {}), tx-usecs {}",
            show(&one.rx_usecs),
            on_off(&one.adaptive_rx),
            show(&one.tx_usecs)
        );
        match lines.last_mut() {
            Some((_, last, same)) if *same == text && last.checked_add(1) == Some(one.queue) => {
                *last = one.queue;
            }
            _ => lines.push((one.queue, one.queue, text)),
        }
    }
    lines
        .into_iter()
        .map(|(first, last, text)| {
            if first == last {
                format!("queue {first}: {text}")
            } else {
                format!("queues {first} to {last}: {text}")
            }
        })
        .collect()
}

fn sizes(stack: &Stack) -> Option<Branch> {
    let all = [
        ("GSO up to", &stack.gso_max_bytes),
        ("IPv4", &stack.gso_ipv4_max_bytes),
        ("GRO up to", &stack.gro_max_bytes),
        ("IPv4", &stack.gro_ipv4_max_bytes),
        ("TSO up to", &stack.tso_max_bytes),
    ];
    let mut words: Vec<String> = all
        .into_iter()
        .filter_map(|(what, size)| Some(format!("{what} {} B", size.get()?.as_u64())))
        .collect();
    let numbers = [
        ("maximum MTU", &stack.mtu_max),
        ("transmit queue", &stack.tx_queue_len),
    ];
    for (what, number) in numbers {
        words.extend(number.get().map(|number| format!("{what} {number}")));
    }
    if let Some(users) = stack.promiscuity.get().filter(|users| *users > 0) {
        words.push(format!("promiscuous for {users}"));
    }
    if let Some(xdp) = stack.xdp.value() {
        words.push(format!("XDP {}", visible(xdp)));
    }
    leaf("GSO and GRO sizes", &words)
}

/// Features that are off and that a user may enable.
fn features_off(nic: &Nic) -> Option<Branch> {
    told("features", &nic.features, |all| {
        let off = |feature: &Feature| !feature.active && feature.changeable;
        let names: Vec<String> = all
            .iter()
            .filter(|(_, feature)| off(feature))
            .map(|(name, _)| visible(name))
            .collect();
        let fixed = all.values().filter(|one| !one.active && !one.changeable);
        Some(Branch::leaf(format!(
            "offloads off but available: {} ({} on, {} not supported)",
            if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(", ")
            },
            all.values().filter(|feature| feature.active).count(),
            fixed.count()
        )))
    })
}

fn flags(nic: &Nic) -> Option<Branch> {
    told("private flags", &nic.dispatch.private_flags, |all| {
        let names = |wanted: bool| -> String {
            let own = all.iter().filter(|(_, on)| **on == wanted);
            let own: Vec<String> = own.map(|(name, _)| visible(name)).collect();
            if own.is_empty() {
                "none".to_owned()
            } else {
                own.join(", ")
            }
        };
        (!all.is_empty()).then(|| {
            Branch::leaf(format!(
                "private flags: on {}; off {}",
                names(true),
                names(false)
            ))
        })
    })
}

fn tunnel_ports(nic: &Nic) -> Option<Branch> {
    told("tunnel ports", &nic.dispatch.tunnel_ports, |all| {
        let words: Vec<String> = all
            .iter()
            .take(ENTRIES)
            .map(|one| format!("{} {}", visible(&one.kind), one.port))
            .collect();
        leaf("tunnel ports offloaded by the NIC", &words)
    })
}

fn timestamping(nic: &Nic) -> Option<Branch> {
    told("timestamping", &nic.wire.timestamping, |all| {
        let list = |words: &[String]| -> String {
            let words: Vec<String> = words.iter().map(|word| visible(word)).collect();
            if words.is_empty() {
                "none".to_owned()
            } else {
                words.join(" ")
            }
        };
        Some(Branch::leaf(format!(
            "timestamping: {}; sends {}; receives {}; hardware clock {}",
            list(&all.capabilities),
            list(&all.tx_types),
            list(&all.rx_filters),
            show(&all.phc_index)
        )))
    })
}

/// Every qdisc and class, if there is more than the root.
fn shaping(nic: &Nic) -> Option<Branch> {
    let of = |handle: u32| format!("{:x}:{:x}", handle >> 16, handle & 0xffff);
    let node = |one: &QdiscNode| {
        let rate = one
            .rate_bit_per_s
            .map_or_else(String::new, |rate| format!(", shaped to {rate}"));
        let parent = match one.parent {
            u32::MAX => "root".to_owned(),
            parent => format!("on {}", of(parent)),
        };
        format!(
            "{} {} {parent}{rate}: {} dropped, {} requeued, {} overlimits",
            visible(&one.kind),
            of(one.handle),
            show(&one.drops),
            show(&one.requeues),
            show(&one.overlimits)
        )
    };
    let class = |one: &QdiscClass| {
        let rate = |rate: Option<_>| {
            rate.map_or_else(
                || "?".to_owned(),
                |rate: linerate_model::units::BitRate| rate.to_string(),
            )
        };
        format!(
            "class {} {}: {}, ceil {}",
            visible(&one.kind),
            of(one.handle),
            rate(one.rate_bit_per_s),
            rate(one.ceil_bit_per_s)
        )
    };
    told("qdiscs", &nic.shaping.tree, |tree| {
        let mut all: Vec<String> = tree.iter().map(node).collect();
        all.extend(nic.shaping.classes.value().into_iter().flatten().map(class));
        (!all.is_empty()).then(|| leaves(count(tree.len(), "qdisc"), all))
    })
}

fn dcb(nic: &Nic) -> Option<Branch> {
    told("data centre bridging", &nic.shaping.dcb, |dcb: &Dcb| {
        let mut words = Vec::new();
        let list = |all: &[u32]| -> String {
            let words: Vec<String> = all.iter().map(ToString::to_string).collect();
            words.join(" ")
        };
        let bits = |mask: u32| -> String {
            let set: Vec<u32> = (0..8).filter(|bit| mask & (1 << bit) != 0).collect();
            if set.is_empty() {
                "none".to_owned()
            } else {
                list(&set)
            }
        };
        words.extend(
            dcb.pfc_enabled
                .get()
                .map(|mask| format!("PFC on priorities {}", bits(mask))),
        );
        words.extend(
            dcb.peer_pfc_enabled
                .get()
                .map(|mask| format!("the peer {}", bits(mask))),
        );
        words.extend(
            dcb.priority_class
                .value()
                .map(|all| format!("prio-tc {}", list(all))),
        );
        words.extend(
            dcb.class_bandwidth
                .value()
                .map(|all| format!("tc-bw {} %", list(all))),
        );
        words.extend(
            dcb.class_algorithm
                .value()
                .map(|all| format!("tc-tsa {}", visible(&all.join(" ")))),
        );
        words.extend(
            dcb.trust
                .value()
                .map(|all| format!("trusts {}", visible(&all.join(" ")))),
        );
        words.extend(
            dcb.willing
                .get()
                .map(|willing| if willing { "willing" } else { "not willing" }.to_owned()),
        );
        words.extend(
            dcb.dcbx
                .value()
                .map(|all| format!("DCBX {}", visible(&all.join(" ")))),
        );
        words.extend(dcb.app.value().filter(|all| !all.is_empty()).map(|all| {
            let rows = all.iter().take(ENTRIES);
            let rows: Vec<String> = rows
                .map(|(selector, protocol, priority)| {
                    format!("{} {protocol}:{priority}", visible(selector))
                })
                .collect();
            format!("applications {}", rows.join(" "))
        }));
        leaf("data centre bridging", &words)
    })
}

#[cfg(test)]
mod tests;
