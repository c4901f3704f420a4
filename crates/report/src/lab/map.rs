//! Of an experiment's page: both hosts with the path of the data drawn in, and where the work was done in each
//! combination.

use std::collections::{BTreeMap, BTreeSet};

use linerate_analysis::experiment::document::LabDocument;
use linerate_analysis::record::Header;
use linerate_analysis::trial::operations::real;
use linerate_model::host::{Host, NicKind};
use linerate_model::ids::{CpuId, CpuSet, NicName};

use super::data::{EndOfTrial, LabData, Trial, set};
use super::draw::{name, varied};
use crate::html::{escape, section, table};
use crate::map::picture::{HotPath, Layout, PathEnd, path_svg};

/// Interrupts that are a smaller share than this of all on the path are not drawn.
const SHARE_DRAWN: f64 = 0.02;

/// One end of all trials together.
struct EndPlacement {
    senders: CpuSet,
    receivers: CpuSet,
    hot: HotPath,
}

impl EndPlacement {
    fn of<'t>(
        ends: impl Iterator<Item = &'t EndOfTrial> + Clone,
        host: &Host,
        nic: &NicName,
    ) -> Self {
        // Only what the path's own queues raise is on the path.
        let queues = host.nic(nic).map_or(&[][..], |nic| &nic.queues);
        let own: BTreeSet<u32> = queues
            .iter()
            .filter_map(|queue| Some(queue.irq.get()?.0))
            .collect();
        let mut counts: BTreeMap<(u32, CpuId), u64> = BTreeMap::new();
        for (place, count) in ends.clone().flat_map(|end| &end.interrupts) {
            if own.contains(&place.0) {
                *counts.entry(*place).or_default() += count;
            }
        }
        let all: f64 = counts.values().map(|count| real(*count)).sum();
        let shares = counts
            .into_iter()
            .map(|((irq, cpu), count)| (irq, cpu, real(count) / all));
        Self {
            senders: set(ends.clone().flat_map(|end| &end.senders)),
            receivers: set(ends.clone().flat_map(|end| &end.receivers)),
            hot: HotPath {
                packets: set(ends.flat_map(|end| &end.packets)),
                interrupts: shares.filter(|(.., share)| *share >= SHARE_DRAWN).collect(),
            },
        }
    }
}

/// The section with the map.
pub(super) fn path(document: &LabDocument, header: &Header, seen: &LabData) -> String {
    let Some((local, remote)) = &seen.hosts else {
        return String::new();
    };
    // Another host than the peer is not in the picture.
    let trials: Vec<&Trial> = seen.trials().filter(|trial| trial.peer.is_none()).collect();
    let ends = |end: usize| trials.iter().map(move |trial| &trial.ends[end]);
    let here = EndPlacement::of(ends(0), local, &header.local_nic);
    let there = EndPlacement::of(ends(1), remote, &header.remote_nic);
    let near = map_end("this host", local, &header.local_nic, &here);
    let far = map_end(&header.peer, remote, &header.remote_nic, &there);
    let kind = local.nic(&header.local_nic).map(|nic| nic.kind);
    let wire = match kind {
        Some(NicKind::Veth) => "veth pair",
        Some(NicKind::Loopback) => "loopback",
        _ => "network",
    };
    let picture = |layout| path_svg(&near, Some((&far, wire)), layout);
    let of = if seen.peers.is_empty() {
        "All trials combined."
    } else {
        "All trials with the peer combined; trials with other hosts appear only in the table."
    };
    let lead = format!(
        "{of} S marks CPUs where a thread sent, R where a thread received, P where the kernel \
         processed received packets. Thick lines show the observed path of packets from a queue \
         to a CPU; thin lines show paths that the settings allow: solid for interrupts, dashed \
         for RPS and XPS, with arrowheads on another NUMA node than the NIC's. A ? marks a value that could not be read: hover for the reason."
    );
    section(
        "path",
        "Data path",
        &lead,
        &format!(
            "<div class=\"map wide\">{}</div><div class=\"map narrow\">{}</div>{}",
            picture(Layout::Beside),
            picture(Layout::Stacked),
            places(document, seen)
        ),
    )
}

fn map_end<'a>(
    name: &'a str,
    host: &'a Host,
    nic: &'a NicName,
    placement: &'a EndPlacement,
) -> PathEnd<'a> {
    PathEnd {
        name,
        host,
        nic: Some(nic),
        sender_cpus: &placement.senders,
        receiver_cpus: &placement.receivers,
        hot: Some(&placement.hot),
    }
}

/// Where the work of each combination was done.
fn places(document: &LabDocument, seen: &LabData) -> String {
    let by_levels = seen.by_combination();
    let factors = varied(document);
    let cells = document.responses.iter().take(1);
    let mut rows: Vec<Vec<String>> = Vec::new();
    for cell in cells.flat_map(|response| &response.cells) {
        let Some(trials) = by_levels.get(&cell.levels) else {
            continue;
        };
        let mut row = vec![escape(&name(document, &cell.levels, &factors))];
        for end in 0..2 {
            let of = |pick: fn(&EndOfTrial) -> &BTreeSet<CpuId>| {
                words(&set(trials.iter().flat_map(|trial| pick(&trial.ends[end]))))
            };
            row.extend([
                of(|end| &end.senders),
                of(|end| &end.receivers),
                of(|end| &end.packets),
            ]);
        }
        rows.push(row);
    }
    let same = rows.windows(2).all(|pair| pair[0][1..] == pair[1][1..]);
    if same {
        // The map states it for all of them.
        return String::new();
    }
    let head = [
        "combination",
        "sends here",
        "receives here",
        "packets here",
        "sends at the peer",
        "receives at the peer",
        "packets at the peer",
    ];
    let table = table(
        "CPUs of each combination over all of its trials",
        &head,
        &rows,
    );
    format!(
        "<details><summary>CPUs used, {} combinations</summary>{table}</details>",
        rows.len()
    )
}

fn words(cpus: &CpuSet) -> String {
    if cpus.is_empty() {
        "-".to_owned()
    } else {
        cpus.to_string()
    }
}

#[cfg(test)]
mod tests {
    use linerate_model::build;

    use super::*;

    #[test]
    fn the_way_is_what_the_interrupts_of_the_path_s_own_queues_did() {
        let host = build::host()
            .nodes(1, 4)
            .nic("eth2", |nic| nic.gbit(100).queues(&[0, 1]))
            .build();
        let nic: NicName = "eth2".parse().expect("a name");
        let own = host.nic(&nic).expect("it was built").queues[0].irq.get();
        let own = own.expect("a queue with an interrupt").0;
        let mut end = EndOfTrial::default();
        end.interrupts.insert((own, CpuId(2)), 99);
        end.interrupts.insert((own, CpuId(3)), 1);
        end.interrupts.insert((own + 1_000, CpuId(1)), 1_000_000);
        end.senders.insert(CpuId(1));
        let placement = EndPlacement::of([&end].into_iter(), &host, &nic);
        assert_eq!(placement.hot.interrupts, [(own, CpuId(2), 0.99)]);
        assert_eq!(placement.senders.to_string(), "1");
        let svg = path_svg(
            &map_end("<here>", &host, &nic, &placement),
            None,
            Layout::Beside,
        );
        assert!(svg.contains("packets of eth2 were processed on CPU 2"));
        assert!(!svg.contains("on CPU 3<") && !svg.contains("<here>"));
    }

    #[test]
    fn an_interface_without_interrupts_shows_where_its_packets_were_taken_in() {
        let (near, _) = build::veth_pair();
        let nic: NicName = "near0".parse().expect("a name");
        let mut end = EndOfTrial::default();
        end.packets.insert(near.cpus[0].id);
        let placement = EndPlacement::of([&end].into_iter(), &near, &nic);
        let svg = path_svg(
            &map_end("near", &near, &nic, &placement),
            None,
            Layout::Stacked,
        );
        assert!(svg.contains("P processes packets: CPU 0"), "{svg}");
        assert!(svg.contains("packets of near0 were processed on CPU 0"));
    }
}
