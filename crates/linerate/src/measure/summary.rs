//! The result in a few lines: the rate or the operations, the limit with the figures that decide it, the CPU time of
//! both ends, and what is wrong with the trial. `-v` prints the rest.

use linerate_analysis::text::visible::{BOLD, GREEN, PLAIN, RED};
use linerate_model::ceiling::Bound;
use linerate_model::finding::Evidence;
use linerate_model::limit::why::{Hypothesis, INTERVENTIONS, Verdict};
use linerate_model::limit::{Limit, LimitKind};
use linerate_model::units::Ratio;
use linerate_report::{EXPECTED_FLAGS, Nulled, flag_name};

use super::document::{EndCost, MeasureDocument};
use super::measured::Measured;
use super::over_time::{intervals, range};
use super::repeat::Repeats;
use super::text::{count, datagram_counts, flow_spread, profile, rate, requests, time, verdicts};
use super::{diffusion, verbs};

/// The figures that are shown of a limit.
const DECIDING: usize = 2;
/// The ceilings of memory copies and of window and RTT are shown from this share on: below it they explain nothing.
const CEILING_SHOWN_SHARE: Ratio = Ratio::new(0.5);

/// The lines of output.
pub(super) fn text(
    measured: &Measured<'_>,
    document: &MeasureDocument<'_>,
    repeats: Option<&Repeats>,
) -> String {
    let mut lines = Vec::new();
    let sample = &measured.sample;
    if let Some(rdma) = verbs::rdma(sample) {
        if !rdma.latency && rdma.sizes.len() == 1 {
            bulk(&mut lines, measured);
        }
        verbs::text::table(&mut lines, sample, rdma);
    } else if sample.spec.workload.is_bulk() {
        bulk(&mut lines, measured);
    } else {
        requests(&mut lines, measured);
        diffusion::text(&mut lines, measured);
    }
    intervals(&mut lines, measured);
    verdicts(&mut lines, measured, document, repeats);
    if let Some(limit) = &measured.limit {
        lines.push(format!("limit     {}", limit_in_words(measured, limit)));
    }
    cpu(&mut lines, document);
    profile(&mut lines, measured);
    let flags: Vec<&str> = sample.flags.iter().copied().map(flag_name).collect();
    if !flags.is_empty() {
        lines.push(format!("flags     {}", flags.join(", ")));
    }
    lines.join("\n")
}

/// A line with linerate's colors: its label bold, and red where something is wrong.
pub(super) fn style(line: &str) -> String {
    let Some((label, rest)) = line.split_once(' ').filter(|(label, _)| !label.is_empty()) else {
        return line.to_owned();
    };
    let has = |words: &[&str]| words.iter().any(|word| rest.contains(word));
    let color = match label {
        "drift" => RED,
        "flags"
            if !rest
                .split(", ")
                .all(|flag| EXPECTED_FLAGS.contains(&flag.trim())) =>
        {
            RED
        }
        "require" if has(&["BROKEN"]) => RED,
        "require" if has(&[": kept"]) => GREEN,
        _ => "",
    };
    format!("{BOLD}{color}{label}{PLAIN} {rest}")
}

fn bulk(lines: &mut Vec<String>, measured: &Measured<'_>) {
    let spec = &measured.sample.spec;
    let noun = if spec.verbs.is_some() {
        "queue pair"
    } else {
        "flow"
    };
    let seconds = measured.sample.local.elapsed_ns.as_secs_f64();
    let details = [
        range(measured),
        Some(count(u64::from(spec.flows), noun)),
        Some(format!("{seconds:.1} s")),
        ceiling(measured),
    ];
    let details: Vec<String> = details.into_iter().flatten().collect();
    lines.push(format!(
        "rate      {}   ({})",
        rate(measured.rate),
        details.join(", ")
    ));
    flow_spread(lines, measured);
    datagram_counts(lines, measured);
}

/// The share of the lowest ceiling, if it is shown.
fn ceiling(measured: &Measured<'_>) -> Option<String> {
    let (ceiling, share) = (measured.ceiling()?, measured.reached()?);
    let is_shown =
        !matches!(ceiling.bound, Bound::Copy | Bound::WindowRtt) || share >= CEILING_SHOWN_SHARE;
    is_shown.then(|| {
        format!(
            "{share} of the ceiling of {} ({})",
            ceiling.bit_per_s, ceiling.bound
        )
    })
}

/// The limit with the figures that decide it: with `--why` the interventions that few other limits predicted.
fn limit_in_words(measured: &Measured<'_>, limit: &Limit) -> String {
    let name = limit.status.qualified(&limit.what.to_string());
    let verdict = measured.why.as_ref().map(|why| &why.verdict);
    if limit.what == LimitKind::NotDetermined {
        let standing = verdict.map(Verdict::standing).unwrap_or_default();
        let standing: Vec<String> = standing.iter().map(ToString::to_string).collect();
        return match verdict {
            None => format!("{name}: no figure exceeded its threshold"),
            Some(_) if standing.is_empty() => format!("{name}: every bottleneck was refuted"),
            Some(_) => format!("{name}: not refuted: {}", standing.join(", ")),
        };
    }
    let own =
        verdict.and_then(|verdict| verdict.hypotheses.iter().find(|one| one.what == limit.what));
    let decided: Vec<String> = (own.map(Hypothesis::deciding).unwrap_or_default().iter())
        .map(|intervention| format!("with {intervention}"))
        .collect();
    let all = || limit.evidence.iter();
    let mut shown: Vec<&Evidence> = decided
        .iter()
        .filter_map(|what| all().find(|evidence| evidence.what == *what))
        .collect();
    // The trial's own.
    shown.extend(all().filter(|evidence| evidence.path != INTERVENTIONS));
    let figures = shown.iter().take(DECIDING);
    let figures: Vec<String> = figures
        .map(|evidence| format!("{}: {}", evidence.what, evidence.value))
        .collect();
    if figures.is_empty() {
        return name;
    }
    format!("{name}: {}", figures.join("; "))
}

fn cpu(lines: &mut Vec<String>, document: &MeasureDocument<'_>) {
    let ends = [
        ("local", &document.cpu.local),
        ("remote", &document.cpu.remote),
    ];
    let each = ends.into_iter().filter_map(|(end, cost)| {
        let EndCost {
            cost: Nulled(cost),
            s_per_operation,
            ..
        } = cost.as_ref()?;
        let words = match s_per_operation {
            Some(s) => format!("{} each", time(s * 1e9)),
            None => format!("{:.3} s per GB", cost.s_per_gb?),
        };
        Some(format!("{end} {words}"))
    });
    let each: Vec<String> = each.collect();
    if !each.is_empty() {
        lines.push(format!("cpu       {}", each.join(", ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_only_repeat_what_the_words_say() {
        let lines = [
            "rate      9.41 Gb/s   (1 flow)",
            "          continued",
            "require   rate>=9Gb/s: BROKEN, 8.00 Gb/s",
            "",
        ];
        for line in lines {
            let styled = style(line);
            let plain = ["\u{1b}[1m", "\u{1b}[31m", "\u{1b}[0m"];
            let plain = plain
                .iter()
                .fold(styled.clone(), |text, code| text.replace(code, ""));
            assert_eq!(plain, line);
        }
        assert!(style(lines[2]).starts_with("\u{1b}[1m\u{1b}[31mrequire"));
        assert!(!style(lines[0]).contains("\u{1b}[31m"));
        assert!(!style("flags     shared-kernel, tick-accounting").contains("\u{1b}[31m"));
        assert!(style("flags     shared-kernel, cut-short").contains("\u{1b}[31m"));
    }
}
