//! All trials for a person: the answer, the counts and the resolution in three lines, then a table.

use linerate_analysis::text::words::count;
use linerate_model::units::Nanoseconds;
use linerate_model::workload::Direction;

use super::document::{
    FailoverDocument, PartResult, PhaseResult, PhaseWord, Summary, TrialResult, WorkloadWord,
};
use super::require::Verdict;

/// Text of `document`; with each trial if `verbose`.
pub(super) fn text(document: &FailoverDocument, verbose: bool) -> String {
    let mut lines = vec![
        answer(document, PhaseWord::Failure),
        answer(document, PhaseWord::Return),
        answer(document, PhaseWord::NoEvent),
    ];
    lines.retain(|line| !line.is_empty());
    lines.push(counts(document));
    lines.push(resolution(document));
    lines.push(String::new());
    lines.extend(table(&document.summary, &document.trials));
    for one in &document.requirements {
        let verdict = match one.verdict {
            Verdict::Kept => "kept",
            Verdict::Broken => "BROKEN",
            Verdict::CannotTell => "inconclusive",
        };
        lines.push(format!("{}: {verdict}", one.requirement));
    }
    if verbose {
        for (number, trial) in (1..).zip(&document.trials) {
            lines.push(String::new());
            lines.extend(one_trial(number, trial));
        }
    }
    lines.join("\n")
}

fn of_udp(trial: &TrialResult) -> impl Iterator<Item = &PartResult> {
    let parts = trial.parts.iter();
    parts.filter(|part| part.workload == WorkloadWord::Udp)
}

/// The line of a phase: the longest interruption of UDP in either direction.
fn answer(document: &FailoverDocument, phase: PhaseWord) -> String {
    let rows = document.summary.iter();
    let rows = rows.filter(|row| row.phase == phase && row.workload == WorkloadWord::Udp);
    let Some(worst) = rows.max_by_key(|row| row.max_ns) else {
        return String::new();
    };
    let name = match phase {
        PhaseWord::Failure => "failure",
        PhaseWord::Return => "return",
        PhaseWord::NoEvent if document.summary.iter().any(|row| row.phase != phase) => {
            "apart from the event"
        }
        PhaseWord::NoEvent => "no event",
    };
    let phases = || {
        let parts = document.trials.iter().flat_map(of_udp);
        let phases = parts.flat_map(|part| &part.phases);
        phases.filter(|one| one.phase == phase)
    };
    if phases().all(|one| one.gaps.count == 0) {
        return format!(
            "{name}: no packet lost or late, resolution {}",
            document.step_ns
        );
    }
    let affected = phases().map(|one| one.flows_affected).max().unwrap_or(0);
    let mut line = format!(
        "{name}: interrupted for {} ({}), {affected} of {} affected",
        worst.max_ns,
        direction_word(worst.direction),
        count(document.flows as usize, "flow"),
    );
    if worst.trials > 1 {
        line = format!(
            "{line}; in {} of {} not longer (median {}); with 95 % confidence at least {:.0} % are not longer",
            worst.trials,
            count(usize::try_from(worst.trials).unwrap_or(usize::MAX), "trial"),
            or_none(Some(worst.median_ns)),
            worst.share_at_least * 100.0
        );
    }
    if worst.not_over > 0 {
        line.push_str("; not all flows were back at the end");
    }
    line
}

/// What became of all datagrams.
fn counts(document: &FailoverDocument) -> String {
    let parts = || document.trials.iter().flat_map(of_udp);
    let sum = |value: fn(&PartResult) -> u64| parts().map(value).sum::<u64>();
    let drops: u64 = parts().filter_map(|part| part.hosts.socket_drops).sum();
    let own = if drops > 0 {
        format!(" ({drops} of them by the receiver's own socket)")
    } else {
        String::new()
    };
    format!(
        "UDP: {} of {} packets lost{own}, {} late, {} duplicated, {} reordered",
        sum(|part| part.lost),
        sum(|part| part.sent),
        sum(|part| part.late),
        sum(|part| part.duplicated),
        sum(|part| part.reordered),
    )
}

/// How exact the times are.
fn resolution(document: &FailoverDocument) -> String {
    let hosts = || {
        document
            .trials
            .iter()
            .flat_map(of_udp)
            .map(|part| &part.hosts)
    };
    let gap = hosts().filter_map(|one| one.longest_send_gap_ns).max();
    let stall = hosts().filter_map(|one| one.longest_stall_ns).max();
    let turn = document.step_ns.as_u64() / u64::from(document.flows.max(1));
    format!(
        "resolution {} for a flow, {} for all together; longest send gap {}, longest arrival gap without loss {}",
        document.step_ns,
        Nanoseconds::new(turn),
        or_none(gap),
        or_none(stall),
    )
}

fn or_none(time: Option<Nanoseconds>) -> String {
    match time {
        Some(time) if time > Nanoseconds::new(0) => time.to_string(),
        _ => "none".to_owned(),
    }
}

fn direction_word(direction: Direction) -> &'static str {
    match direction {
        Direction::Reverse => "from the peer",
        _ => "to the peer",
    }
}

fn phase_word(phase: PhaseWord) -> &'static str {
    match phase {
        PhaseWord::Failure => "failure",
        PhaseWord::Return => "return",
        PhaseWord::NoEvent => "no event",
    }
}

fn workload_word(workload: WorkloadWord) -> &'static str {
    match workload {
        WorkloadWord::Udp => "udp",
        WorkloadWord::Tcp => "tcp",
        WorkloadWord::Connect => "connect",
    }
}

fn row(cells: [&str; 9]) -> String {
    let [phase, direction, workload, rest @ ..] = cells;
    let mut line = format!("{phase:<9} {direction:<14} {workload:<8}");
    for cell in rest {
        line = format!("{line} {cell:>10}");
    }
    line.trim_end().to_owned()
}

/// A row for each phase, direction and workload.
fn table(summary: &[Summary], trials: &[TrialResult]) -> Vec<String> {
    let mut lines = vec![row([
        "phase",
        "direction",
        "workload",
        "gaps",
        "median",
        "maximum",
        "all back",
        "lost",
        "late",
    ])];
    for one in summary {
        let phases = || {
            let parts = trials.iter().flat_map(|trial| &trial.parts);
            let own = parts
                .filter(|part| (part.direction, part.workload) == (one.direction, one.workload));
            let phases = own.flat_map(|part| &part.phases);
            phases.filter(|phase| phase.phase == one.phase)
        };
        let sum = |value: fn(&PhaseResult) -> u64| phases().map(value).sum::<u64>().to_string();
        let back = phases().filter_map(|phase| phase.all_back_ns).max();
        let back = match back {
            _ if one.not_over > 0 => "not back".to_owned(),
            Some(back) => Nanoseconds::new(back.unsigned_abs()).to_string(),
            None => "-".to_owned(),
        };
        lines.push(row([
            phase_word(one.phase),
            direction_word(one.direction),
            workload_word(one.workload),
            &sum(|phase| phase.gaps.count),
            &or_none(Some(one.median_ns)),
            &or_none(Some(one.max_ns)),
            &back,
            &sum(|phase| phase.lost),
            &sum(|phase| phase.late),
        ]));
    }
    lines
}

/// The evidence of one trial.
fn one_trial(number: u32, trial: &TrialResult) -> Vec<String> {
    let mut lines = vec![format!("trial {number}")];
    for event in &trial.events {
        lines.push(format!(
            "  {}: `{}` took {}",
            phase_word(event.phase),
            event.command,
            event.took_ns
        ));
    }
    match (trial.clock.offset_ns, trial.clock.within_ns) {
        _ if trial.clock.is_shared => {}
        (Some(_), Some(within)) => {
            lines.push(format!(
                "  clocks of the two hosts compared to within {within}"
            ));
        }
        _ => lines.push("  clocks of the two hosts not compared: no packet arrived".to_owned()),
    }
    for part in &trial.parts {
        let name = format!(
            "{} {}",
            workload_word(part.workload),
            direction_word(part.direction)
        );
        for phase in &part.phases {
            lines.push(phase_line(&name, part, phase));
        }
        let hosts = &part.hosts;
        lines.push(format!(
            "  {name}: longest send gap {}, {} skipped; {} above 10 ms without loss, longest {}",
            or_none(hosts.longest_send_gap_ns),
            hosts.skipped,
            count(
                usize::try_from(hosts.stalls).unwrap_or(usize::MAX),
                "arrival gap"
            ),
            or_none(hosts.longest_stall_ns),
        ));
        for error in &hosts.send_errors {
            lines.push(format!(
                "  {name}: {} refused by the kernel: {}",
                count(usize::try_from(error.count).unwrap_or(usize::MAX), "packet"),
                error.error
            ));
        }
        if hosts.ignored > 0 {
            lines.push(format!(
                "  {name}: {} packets of others ignored",
                hosts.ignored
            ));
        }
        if part.unrecorded > 0 {
            lines.push(format!(
                "  {name}: {} lost or late packets beyond the limit of recorded interruptions",
                part.unrecorded
            ));
        }
    }
    lines
}

fn phase_line(name: &str, part: &PartResult, phase: &PhaseResult) -> String {
    if phase.gaps.count == 0 {
        return format!(
            "  {name}, {}: no packet lost or late, resolution {}",
            phase_word(phase.phase),
            part.step_ns
        );
    }
    let all = match (phase.all_flows_ns, phase.all_flows_within_ns) {
        (Some(length), Some(within)) => {
            format!(", all flows at once for {length} (within {within})")
        }
        _ => String::new(),
    };
    format!(
        "  {name}, {}: {}, longest {} (within {}){all}, {} of {} affected, {} lost, {} late",
        phase_word(phase.phase),
        count(
            usize::try_from(phase.gaps.count).unwrap_or(usize::MAX),
            "interruption"
        ),
        phase.gaps.longest_ns,
        part.step_ns,
        phase.flows_affected,
        count(part.flows as usize, "flow"),
        phase.lost,
        phase.late,
    )
}
