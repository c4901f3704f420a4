//! From a stored run to what its page shows.

use linerate_analysis::proof::{ProofRecords, ceilings, median_sample, sort};
use linerate_analysis::record::{Record, StoredRun};
use linerate_analysis::text::timestamp::utc;
use linerate_analysis::trial::{first_kept, rate_of};
use linerate_model::analysis::{cost_of_local, cost_of_remote, rate_series};
use linerate_model::finding::Undetermined;
use linerate_model::host::Host;
use linerate_model::ids::CpuSet;
use linerate_model::known::Known;
use linerate_model::prove::ProveDocument;
use linerate_model::sample::{Sample, SideSample};
use linerate_model::setting::by_hand;
use linerate_model::shell::{quoted, quoted_path};
use linerate_model::units::BitRate;

use super::data::{
    Arm, CeilingLine, CpuCost, EndData, ReportData, Reproduce, SCHEMA, TrialCpu, TrialSeries,
};

/// Everything that the page of a run shows; `None` when the run ended before both hosts were read.
pub fn report_data(stored: &StoredRun, document: &ProveDocument) -> Option<ReportData> {
    let sorted = sort(&stored.records);
    let (local, remote) = sorted.hosts?;
    let header = &stored.header;
    let demo = !sorted.planted.is_empty();
    let title = if demo {
        "linerate demo".to_owned()
    } else {
        format!("linerate prove {}", header.peer)
    };
    let placement = sorted
        .before
        .first()
        .map(|sample| sample.spec.placement.clone());
    let placement = placement.unwrap_or_default();
    let end = |host: &Host, name: &str, nic, sends: bool| EndData {
        name: name.to_owned(),
        host: host.clone(),
        nic: Some(nic),
        sender_cpus: if sends {
            placement.sender_cpus.clone()
        } else {
            CpuSet::empty()
        },
        receiver_cpus: if sends {
            CpuSet::empty()
        } else {
            placement.receiver_cpus.clone()
        },
    };
    Some(ReportData {
        schema: SCHEMA.to_owned(),
        linerate_version: header.version.clone(),
        title,
        created: utc(header.created_unix_s),
        prove: document.clone(),
        local: end(
            local,
            if demo { "near" } else { "this host" },
            header.local_nic.clone(),
            true,
        ),
        remote: end(remote, &header.peer, header.remote_nic.clone(), false),
        wire: wire(local, &header.local_nic),
        trials: trials(&stored.records),
        ceilings: ceiling_lines(stored, &sorted),
        undetermined: undetermined(&sorted),
        reproduce: reproduce(stored, document),
    })
}

pub(crate) fn wire(local: &Host, nic: &linerate_model::ids::NicName) -> String {
    use linerate_model::host::NicKind;
    match local.nic(nic).map(|nic| nic.kind) {
        Some(NicKind::Veth) => "veth pair".to_owned(),
        Some(NicKind::Loopback) => "loopback".to_owned(),
        _ => "network".to_owned(),
    }
}

fn trials(records: &[Record]) -> Vec<TrialSeries> {
    let sampled = records.iter().filter_map(|record| match record {
        Record::Before(sample) => Some((Arm::Before, None, None, &**sample)),
        Record::After(sample) => Some((Arm::After, None, None, &**sample)),
        Record::Staged {
            stage,
            without,
            sample,
            ..
        } => {
            let (arm, remedy) = match without.as_slice() {
                [] => (Arm::With, None),
                [remedy] => (Arm::Without, Some(*remedy)),
                _ => (Arm::Without, None),
            };
            Some((arm, remedy, Some(*stage), &**sample))
        }
        _ => None,
    });
    let mut trials = Vec::new();
    for (order, (arm, remedy_index, stage, sample)) in sampled.enumerate() {
        let trial = trial(order, arm, sample);
        trials.extend(trial.map(|trial| TrialSeries {
            remedy_index,
            stage,
            ..trial
        }));
    }
    trials
}

fn trial(order: usize, arm: Arm, sample: &Sample) -> Option<TrialSeries> {
    let series = rate_series(sample).total;
    Some(TrialSeries {
        label: format!("trial {}", order + 1),
        arm,
        remedy_index: None,
        stage: None,
        order,
        at_s: series
            .iter()
            .map(|point| point.at_ns.as_secs_f64())
            .collect(),
        rate_bit_per_s: series
            .iter()
            .map(|point| point.bit_per_s.as_f64())
            .collect(),
        first_kept: first_kept(sample),
        mean_bit_per_s: rate_of(sample)?.as_f64(),
        cpu: cpu(sample),
        flags: sample.flags.clone(),
    })
}

fn cpu(sample: &Sample) -> TrialCpu {
    let (local, remote) = (cost_of_local(sample), cost_of_remote(sample));
    let gigabytes = [&sample.local, &sample.remote]
        .into_iter()
        .flat_map(SideSample::receivers)
        .map(|flow| BitRate::from_bit_per_s(flow.total().as_u64()).as_f64() / 1e9)
        .sum::<f64>();
    let per_gb = |seconds: f64| (gigabytes > 0.0).then(|| seconds / gigabytes);
    let machine = |cost: &linerate_model::analysis::SideCost| {
        let of = |fact: &Known<f64>| fact.get().and_then(per_gb);
        CpuCost {
            softirq_s_per_gb: of(&cost.softirq_s),
            irq_s_per_gb: of(&cost.irq_s),
            steal_s_per_gb: of(&cost.steal_s),
            ..CpuCost::default()
        }
    };
    let threads = |cost: &linerate_model::analysis::SideCost| {
        let own = if sample.shared_kernel {
            CpuCost::default()
        } else {
            machine(cost)
        };
        CpuCost {
            user_s_per_gb: per_gb(cost.user_s),
            system_s_per_gb: per_gb(cost.system_s),
            ..own
        }
    };
    TrialCpu {
        local: threads(&local),
        remote: threads(&remote),
        shared: sample.shared_kernel.then(|| machine(&local)),
    }
}

fn ceiling_lines(stored: &StoredRun, sorted: &ProofRecords<'_>) -> Vec<CeilingLine> {
    let all = ceilings(&stored.header, sorted, median_sample(&sorted.before));
    let known = all.ceilings.iter().map(|ceiling| CeilingLine {
        name: ceiling.bound.to_string(),
        bit_per_s: Some(ceiling.bit_per_s.as_f64()),
        reason: ceiling.reason.clone(),
    });
    let unknown = all.undetermined.iter().map(|unknown| CeilingLine {
        name: unknown.bound.to_string(),
        bit_per_s: None,
        reason: unknown.missing.to_string(),
    });
    known.chain(unknown).collect()
}

fn undetermined(sorted: &ProofRecords<'_>) -> Vec<Undetermined> {
    sorted
        .diagnoses
        .first()
        .map(|first| first.undetermined.clone())
        .unwrap_or_default()
}

/// The command line of a run, to be pasted. A run may come from anyone: the program is always linerate.
pub(crate) fn typed_again<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    let words = words.into_iter().skip(1).map(quoted);
    let all: Vec<String> = std::iter::once("linerate".to_owned())
        .chain(words)
        .collect();
    all.join(" ")
}

/// How to get the numbers without linerate.
fn reproduce(stored: &StoredRun, document: &ProveDocument) -> Vec<Reproduce> {
    let header = &stored.header;
    let line = |what: &str, command: String| Reproduce {
        what: what.to_owned(),
        command,
    };
    let mut lines = vec![
        line(
            "repeat this run with the same trial order",
            typed_again(header.command.iter().map(String::as_str)),
        ),
        line(
            "regenerate this page from the raw records",
            format!("linerate report {}", quoted_path(&stored.folder)),
        ),
        line("measure the rate, on the peer", "iperf3 -s".to_owned()),
        line(
            "measure the rate, on this host",
            format!("iperf3 -c {} -l 128K -t 10", quoted(&header.address)),
        ),
    ];
    for remedy in &document.remedies {
        for change in &remedy.changes {
            if let Some(command) = by_hand(&change.change.setting, &change.change.to) {
                lines.push(line(
                    &format!("the fix of {} ({} end)", remedy.rule, change.end),
                    command,
                ));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_of_a_run_starts_linerate_and_no_word_of_it_is_more_than_a_word() {
        let words = ["rm", "prove", "exec:ssh b 'x'", "$(reboot)"];
        assert_eq!(
            typed_again(words),
            r"linerate prove 'exec:ssh b '\''x'\''' '$(reboot)'"
        );
    }
}
