//! The queues of one interface in the text map: neighbors with the same values, and neighbors whose
//! interrupts and CPUs increase step by step, share one line.

use std::fmt::Display;

use linerate_model::host::{Nic, Queue};
use linerate_model::ids::CpuSet;
use linerate_model::known::Known;

use super::text::{Branch, queue_name, show_with};

/// The values of one queue, or of each of its neighbors in turn. Of a virtual interface's queues only RPS and XPS
/// matter.
#[derive(Debug, Clone, PartialEq)]
struct QueueRows {
    irq: Option<Row<u32>>,
    /// Why the interrupt or its CPUs are not known, in words.
    lost: Option<String>,
    cpus: Option<Row<CpuSet>>,
    rps: Option<Row<CpuSet>>,
    xps: Option<Row<CpuSet>>,
}

/// A value of the first of some queues and of the last; in between it increases by `step`.
#[derive(Debug, Clone, PartialEq)]
struct Row<T> {
    first: T,
    last: T,
    step: Option<i64>,
}

/// What can go on by a step.
trait Stepped: PartialEq + Clone {
    /// By how much `self` exceeds `before`, if it continues the same sequence.
    fn after(&self, before: &Self) -> Option<i64>;
}

impl Stepped for u32 {
    fn after(&self, before: &Self) -> Option<i64> {
        Some(i64::from(*self) - i64::from(*before))
    }
}

impl Stepped for CpuSet {
    fn after(&self, before: &Self) -> Option<i64> {
        let step = i64::from(self.first()?.0) - i64::from(before.first()?.0);
        let moved = before.iter().map(|cpu| i64::from(cpu.0) + step);
        let own = self.iter().map(|cpu| i64::from(cpu.0));
        own.eq(moved).then_some(step)
    }
}

impl<T: Stepped> Row<T> {
    fn one(value: T) -> Self {
        Self {
            last: value.clone(),
            first: value,
            step: None,
        }
    }

    /// This row with one more value, if that continues the sequence.
    fn and(&self, next: &Self) -> Option<Self> {
        let step = next.first.after(&self.last)?;
        if next.step.is_some() || self.step.is_some_and(|own| own != step) {
            return None;
        }
        Some(Self {
            first: self.first.clone(),
            last: next.last.clone(),
            step: Some(step),
        })
    }

    fn is_constant(&self) -> bool {
        self.step.is_none_or(|step| step == 0)
    }
}

/// The lines of an interface's queues.
pub(super) fn queue_branches(nic: &Nic) -> Vec<Branch> {
    let said: Vec<(&Queue, QueueRows)> = nic
        .queues
        .iter()
        .map(|queue| (queue, said(nic, queue)))
        .filter(|(_, said)| !said.text().is_empty())
        .collect();
    let mut lines = Vec::new();
    let mut rest = said.as_slice();
    while let Some(((first, one), others)) = rest.split_first() {
        let mut all = one.clone();
        let mut taken = 0;
        for (queue, next) in others {
            match all.and(next) {
                Some(more) if queue.kind == first.kind => all = more,
                _ => break,
            }
            taken += 1;
        }
        // Any two numbers are a step apart: what moves needs a third to be a row.
        if taken == 1 && !all.is_constant() {
            (all, taken) = (one.clone(), 0);
        }
        let last = others.iter().take(taken).next_back();
        let names = last.map_or_else(
            || queue_name(first),
            |(last, _)| format!("{} to {}", queue_name(first), queue_name(last)),
        );
        lines.push(Branch::leaf(format!("{names}: {}", all.text())));
        rest = others.get(taken..).unwrap_or_default();
    }
    lines
}

fn said(nic: &Nic, queue: &Queue) -> QueueRows {
    let steered =
        |set: &Known<CpuSet>| Some(Row::one(set.value().filter(|set| !set.is_empty())?.clone()));
    let mut said = QueueRows {
        irq: None,
        lost: None,
        cpus: None,
        rps: steered(&queue.rps_cpus),
        xps: steered(&queue.xps_cpus),
    };
    if nic.kind.has_wire() || queue.irq.value().is_some() {
        said.irq = queue.irq.value().map(|irq| Row::one(irq.0));
        said.cpus = queue.cpus.value().cloned().map(Row::one);
        said.lost = match (&queue.irq, &queue.cpus) {
            (Known::Unknown(irq), Known::Unknown(cpus)) if irq.cause == cpus.cause => {
                Some(format!("irq and its CPUs ? ({})", irq.cause))
            }
            (Known::Unknown(_), _) => Some(format!("irq {}", show_with(&queue.irq, text_of))),
            (_, Known::Unknown(_)) => Some(format!("CPUs {}", show_with(&queue.cpus, text_of))),
            _ => None,
        };
    }
    said
}

fn text_of<T: Display>(value: &T) -> String {
    value.to_string()
}

impl QueueRows {
    /// These queues and the next one, if every fact continues the sequence.
    fn and(&self, next: &Self) -> Option<Self> {
        Some(Self {
            irq: both(self.irq.as_ref(), next.irq.as_ref())?,
            lost: (self.lost == next.lost).then(|| self.lost.clone())?,
            cpus: both(self.cpus.as_ref(), next.cpus.as_ref())?,
            rps: both(self.rps.as_ref(), next.rps.as_ref())?,
            xps: both(self.xps.as_ref(), next.xps.as_ref())?,
        })
    }

    fn is_constant(&self) -> bool {
        let sets = [&self.cpus, &self.rps, &self.xps];
        self.irq.as_ref().is_none_or(Row::is_constant)
            && sets.into_iter().flatten().all(Row::is_constant)
    }

    fn text(&self) -> String {
        let mut way = Vec::new();
        match &self.irq {
            Some(row) => way.push(irqs(row)),
            None => way.extend(self.lost.clone()),
        }
        way.extend(self.cpus.as_ref().map(|row| {
            // Many interrupts that each go to all of these CPUs are not spread over them.
            let is_shared =
                row.is_constant() && self.irq.as_ref().is_some_and(|irq| !irq.is_constant());
            format!("{}{}", if is_shared { "each " } else { "" }, cpus(row))
        }));
        if self.irq.is_some() {
            way.extend(self.lost.clone());
        }
        let mut parts = Vec::new();
        if !way.is_empty() {
            parts.push(way.join(" -> "));
        }
        parts.extend(self.rps.as_ref().map(|row| format!("RPS {}", cpus(row))));
        parts.extend(self.xps.as_ref().map(|row| format!("XPS {}", cpus(row))));
        parts.join(", ")
    }
}

/// Nothing and nothing go on as nothing.
#[expect(
    clippy::option_option,
    reason = "no row at all, and rows that do not go on, are two things"
)]
fn both<T: Stepped>(one: Option<&Row<T>>, next: Option<&Row<T>>) -> Option<Option<Row<T>>> {
    match (one, next) {
        (None, None) => Some(None),
        (Some(one), Some(next)) => one.and(next).map(Some),
        _ => None,
    }
}

fn irqs(row: &Row<u32>) -> String {
    match row.step {
        None | Some(0) => format!("irq {}", row.first),
        Some(1) => format!("irqs {}-{}", row.first, row.last),
        Some(step) => format!("irqs {} to {} by {step}", row.first, row.last),
    }
}

fn cpus(row: &Row<CpuSet>) -> String {
    let (first, last) = (&row.first, &row.last);
    let is_one = first.len() == 1;
    match row.step {
        None | Some(0) if is_one => format!("CPU {first}"),
        None | Some(0) if first.is_empty() => "CPUs none".to_owned(),
        None | Some(0) => format!("CPUs {first}"),
        Some(1) if is_one => format!("CPUs {first}-{last}, one each"),
        Some(step) if is_one => format!("CPUs {first} to {last} by {step}"),
        Some(step) => format!("CPUs {first} to {last}, offset {step}"),
    }
}

#[cfg(test)]
mod tests {
    use linerate_model::build;
    use linerate_model::host::QueueKind;
    use linerate_model::ids::{CpuId, IrqNumber};
    use linerate_model::known::Cause;

    use super::*;

    /// The lines of receive queues with these interrupts and CPUs.
    fn lines(queues: &[(u32, &str)]) -> Vec<String> {
        let made = queues.iter().zip(0..).map(|((irq, cpus), index)| Queue {
            index,
            kind: QueueKind::Rx,
            irq: Known::Value(IrqNumber(*irq)),
            cpus: Known::Value(cpus.parse().expect("CPUs")),
            rps_cpus: Known::Value(CpuSet::empty()),
            rps_flow_cnt: Known::default(),
            xps_cpus: Known::default(),
            xps_rxqs: Known::default(),
            tx_timeout: Known::not_asked("tx_timeout"),
            max_bit_per_s: Known::default(),
            napi: Known::default(),
        });
        of(made.collect())
    }

    fn of(queues: Vec<Queue>) -> Vec<String> {
        let host = build::host()
            .nic("eth2", |nic| nic.with(|nic| nic.queues = queues))
            .build();
        let branches = host.nics.iter().flat_map(queue_branches);
        branches.map(|branch| branch.text).collect()
    }

    #[test]
    fn queues_that_go_on_one_by_one_are_one_line_for_each_run_of_cpus() {
        let cpus: Vec<String> = (0..16).chain(32..48).map(|cpu| cpu.to_string()).collect();
        let queues: Vec<(u32, &str)> = (120..).zip(cpus.iter().map(String::as_str)).collect();
        assert_eq!(
            lines(&queues),
            [
                "rx-0 to rx-15: irqs 120-135 -> CPUs 0-15, one each",
                "rx-16 to rx-31: irqs 136-151 -> CPUs 32-47, one each",
            ]
        );
    }

    #[test]
    fn other_steps_and_shared_cpus_are_said_as_they_are() {
        assert_eq!(
            lines(&[(40, "1"), (42, "3"), (44, "5"), (46, "7")]),
            ["rx-0 to rx-3: irqs 40 to 46 by 2 -> CPUs 1 to 7 by 2"]
        );
        assert_eq!(
            lines(&[(40, "0-7"), (41, "0-7"), (42, "0-7")]),
            ["rx-0 to rx-2: irqs 40-42 -> each CPUs 0-7"]
        );
        assert_eq!(
            lines(&[(40, "0,8"), (41, "1,9"), (42, "2,10")]),
            ["rx-0 to rx-2: irqs 40-42 -> CPUs 0,8 to 2,10, offset 1"]
        );
        assert_eq!(
            lines(&[(40, "0"), (40, "0")]),
            ["rx-0 to rx-1: irq 40 -> CPU 0"]
        );
    }

    #[test]
    fn what_goes_no_regular_way_keeps_its_lines() {
        assert_eq!(
            lines(&[(40, "4"), (41, "0")]),
            ["rx-0: irq 40 -> CPU 4", "rx-1: irq 41 -> CPU 0"]
        );
        assert_eq!(
            lines(&[(40, "4"), (41, "0"), (45, "1"), (42, "7")]).len(),
            4
        );
    }

    #[test]
    fn directions_and_unknown_interrupts_are_not_mixed_with_others() {
        let queue = |kind, index, irq| Queue {
            index,
            kind,
            irq,
            cpus: Known::Value(CpuSet::one(CpuId(3))),
            rps_cpus: Known::default(),
            rps_flow_cnt: Known::default(),
            xps_cpus: Known::default(),
            xps_rxqs: Known::default(),
            tx_timeout: Known::not_asked("tx_timeout"),
            max_bit_per_s: Known::default(),
            napi: Known::default(),
        };
        let denied = || Known::unknown(Cause::Denied, "", "");
        let said = of(vec![
            queue(QueueKind::Rx, 0, Known::Value(IrqNumber(9))),
            queue(QueueKind::Rx, 1, denied()),
            queue(QueueKind::Rx, 2, denied()),
            queue(QueueKind::Tx, 0, denied()),
        ]);
        assert_eq!(
            said,
            [
                "rx-0: irq 9 -> CPU 3",
                "rx-1 to rx-2: irq ? (permission denied) -> CPU 3",
                "tx-0: irq ? (permission denied) -> CPU 3",
            ]
        );
    }
}
