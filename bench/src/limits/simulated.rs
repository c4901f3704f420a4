//! Bottlenecks that need a NIC: only simulated hosts and samples have them here, and they are counted separately.

use linerate_model::analysis::rate_after;
use linerate_model::build::{self, pcie_link};
use linerate_model::ceiling::{PathFacts, ceilings_of_path};
use linerate_model::host::Host;
use linerate_model::limit::{LimitKind, name_limit};
use linerate_stats::Random;

use crate::data::Kind;
use crate::table::Verdict;

const PCIE: &str = "pcie";
const WIRE: &str = "wire";

/// The kinds.
pub(crate) fn kinds() -> [Kind; 2] {
    [(PCIE, LimitKind::Pcie), (WIRE, LimitKind::Wire)].map(|(name, right)| Kind {
        name: name.to_owned(),
        right: vec![right.to_string()],
        ..Kind::default()
    })
}

/// One made trial of `kind` with random figures.
pub(crate) fn run(kind: &Kind, random: &mut Random) -> Verdict {
    let pick = |random: &mut Random, from: &[u64]| {
        let index = random.below(from.len() as u64);
        from[usize::try_from(index).unwrap_or(0)]
    };
    // The NIC's speed, and its narrow PCIe link.
    let (gbit, lanes) = match kind.name.as_str() {
        PCIE => (100, u32::try_from(pick(random, &[2, 4, 8])).unwrap_or(4)),
        _ => (pick(random, &[10, 25, 40, 100]), 16),
    };
    let host = |id: &str| {
        let link = pcie_link((8_000, lanes), (8_000, 16));
        build::host()
            .boot_id(id)
            .nic("eth0", |nic| nic.gbit(gbit).pcie(link))
            .build()
    };
    let (near, far) = (host("near"), host("far"));
    // What is left of the bound: of a link nearly all, of PCIe its packets take a part.
    let (bound, least) = match kind.name.as_str() {
        PCIE => (7.876 * f64::from(lanes), 0.84),
        #[expect(clippy::cast_precision_loss, reason = "gigabits")]
        _ => (gbit as f64 * 1448.0 / 1538.0, 0.93),
    };
    let mbit = bound * 1000.0 * (least + (0.995 - least) * random.unit());
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "megabits"
    )]
    let mbit = mbit as u64;
    let share = |random: &mut Random| 0.2 + 0.65 * random.unit();
    let (sender, receiver) = (share(random), share(random));
    let (window, buffer) = (random.unit() * 0.5, random.unit() * 0.5);
    let sample = build::sample()
        .mbit(mbit)
        .flows(u32::try_from(pick(random, &[1, 2, 4, 8])).unwrap_or(1))
        .cpu_share(sender, receiver)
        .limited(window, buffer)
        .build();
    let nic = |host: &Host| host.nics[0].name.clone();
    let facts = PathFacts {
        local: &near,
        local_nic: &nic(&near),
        remote: &far,
        remote_nic: &nic(&far),
        flows: sample.spec.flows,
        direction: sample.spec.direction,
        ipv6: false,
        datagram_bytes: None,
        copy_bandwidth: None,
        sample: Some(&sample),
    };
    let ceilings = ceilings_of_path(&facts).ceilings;
    let rate = rate_after(&sample, 0).unwrap_or_default();
    let limit = name_limit(&sample, &near, &far, &ceilings, rate);
    Verdict::Named {
        what: limit.what.to_string(),
        proved: false,
    }
}

#[cfg(test)]
mod tests {
    use linerate_stats::Seed;

    use super::*;
    use crate::table::Table;

    #[test]
    fn full_links_and_full_slots_are_named() {
        let mut random = Random::new(Seed(3));
        let mut table = Table::default();
        let kinds = kinds();
        for kind in &kinds {
            for _ in 0..40 {
                let verdict = run(kind, &mut random);
                if let Verdict::Named { what, .. } = &verdict {
                    assert_eq!(kind.is_right(what), Some(true), "{}: {what}", kind.name);
                }
                table.add(kind, verdict);
            }
        }
        assert!(table.reaches_the_aims(&kinds));
    }
}
