//! All trials for a person: the answer, the counts and the resolution in three lines, then a table.

use linerate_analysis::text::words::count;
use linerate_model::end::End;
use linerate_model::failover::RUNS_MAX;
use linerate_model::units::Nanoseconds;
use linerate_model::workload::Direction;

use super::document::{
    EventResult, FailoverDocument, PartResult, Summary, TrialResult, TriggerResult, TriggerWord,
    WorkloadWord,
};
use super::next_hops::in_words;
use super::picture::picture;
use super::require::Verdict;
use super::tcp;

/// Text of `document`; with each trial if `verbose`.
pub(super) fn text(document: &FailoverDocument, verbose: bool) -> String {
    let mut lines = answers(document);
    lines.push(String::new());
    let rows = rows(&document.summary, &document.trials);
    lines.push(row(HEAD));
    lines.extend(
        rows.iter()
            .map(|cells| row(cells.each_ref().map(String::as_str))),
    );
    if let Some((number, trial)) = document.longest().filter(|_| !verbose) {
        let of = match document.trials.len() {
            1 => String::new(),
            _ => format!("trial {number}, with the longest interruption: "),
        };
        lines.push(String::new());
        lines.push(format!("{of}flows over time"));
        lines.extend(picture(&trial.timeline));
    }
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
            lines.extend(evidence(number, trial));
            lines.extend(picture(&trial.timeline));
        }
    }
    lines.join("\n")
}

const TRIGGERS: [TriggerWord; 3] = [
    TriggerWord::Failure,
    TriggerWord::Return,
    TriggerWord::NoEvent,
];

/// What was found, how many packets were lost, and how exact the times are.
pub(super) fn answers(document: &FailoverDocument) -> Vec<String> {
    let mut lines = Vec::new();
    for trigger in TRIGGERS {
        lines.push(answer(document, trigger));
        lines.extend(by_next_hop(document, trigger));
        lines.extend(held_up(document, trigger));
    }
    lines.retain(|line| !line.is_empty());
    lines.push(counts(document));
    lines.push(resolution(document));
    lines.extend(not_recorded(document));
    let skipped = document.skipped.iter();
    lines.extend(skipped.map(|one| format!("{}: skipped, {}", one.workload, one.reason)));
    lines
}

/// The result in a few words, for a list of runs.
pub(super) fn headline(document: &FailoverDocument) -> String {
    let words = TRIGGERS.into_iter().filter_map(|trigger| {
        let worst = worst(document, trigger)?;
        let name = trigger_word(trigger);
        let longest = or_none(Some(worst.max_ns));
        Some(match worst.trials {
            1 => format!("{name} {longest}"),
            _ if worst.max_ns == Nanoseconds::new(0) => format!("{name} {longest}"),
            _ => format!(
                "{name} {longest} (median {})",
                or_none(Some(worst.median_ns))
            ),
        })
    });
    words.collect::<Vec<_>>().join(", ")
}

/// The row of UDP with the longest interruption.
fn worst(document: &FailoverDocument, trigger: TriggerWord) -> Option<&Summary> {
    let rows = document.summary.iter();
    let rows = rows.filter(|row| row.trigger == trigger && row.workload == WorkloadWord::Udp);
    rows.max_by_key(|row| row.max_ns)
}

fn of_udp(trial: &TrialResult) -> impl Iterator<Item = &PartResult> {
    let parts = trial.parts.iter();
    parts.filter(|part| part.workload == WorkloadWord::Udp)
}

/// The line of a trigger: the longest interruption of UDP in either direction.
fn answer(document: &FailoverDocument, trigger: TriggerWord) -> String {
    let Some(worst) = worst(document, trigger) else {
        return String::new();
    };
    let name = match trigger {
        TriggerWord::Failure => "failure",
        TriggerWord::Return => "return",
        TriggerWord::NoEvent if document.summary.iter().any(|row| row.trigger != trigger) => {
            "apart from the event"
        }
        TriggerWord::NoEvent => "no event",
    };
    let triggers = || {
        let parts = document.trials.iter().flat_map(of_udp);
        let triggers = parts.flat_map(|part| &part.triggers);
        triggers.filter(|one| one.trigger == trigger)
    };
    if triggers().all(|one| one.gaps.count == 0) {
        return format!(
            "{name}: no packet lost or late, resolution {}",
            document.step_ns
        );
    }
    let affected = longest(document, trigger).map_or(0, |one| one.flows_affected);
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

/// The longest interruption of UDP.
fn longest(document: &FailoverDocument, trigger: TriggerWord) -> Option<&TriggerResult> {
    let parts = document.trials.iter().flat_map(of_udp);
    let results = parts.flat_map(|part| &part.triggers);
    let own = results.filter(|one| one.trigger == trigger && one.gaps.count > 0);
    own.max_by_key(|one| one.gaps.longest_ns)
}

/// The flows of the longest interruption by next hop, if there are several.
fn by_next_hop(document: &FailoverDocument, trigger: TriggerWord) -> Option<String> {
    let hops = longest(document, trigger)?.by_next_hop.as_deref()?;
    Some(format!("  flows affected by next hop: {}", in_words(hops)?))
}

/// What held up the longest interruption, and what would shorten it.
fn held_up(document: &FailoverDocument, trigger: TriggerWord) -> Vec<String> {
    let longest = longest(document, trigger);
    let Some(verdict) = longest.and_then(|one| one.held_up.as_ref()) else {
        return Vec::new();
    };
    let advice = verdict.advice.iter();
    let advice = advice.map(|advice| format!("  to shorten it: {advice}"));
    let mut lines = vec![format!("  phase: {}", verdict.summary)];
    lines.extend(advice);
    lines
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
    let mut line = format!(
        "UDP: {} of {} packets lost{own}, {} late, {} duplicated, {} reordered",
        sum(|part| part.lost),
        sum(|part| part.sent),
        sum(|part| part.late),
        sum(|part| part.duplicated),
        sum(|part| part.reordered),
    );
    let unrecorded = sum(|part| part.unrecorded);
    if unrecorded > 0 {
        line = format!(
            "{line}; {unrecorded} more lost or late after the first {RUNS_MAX} interruptions of a flow, at times that are \
             not known"
        );
    }
    line
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

/// What an end could not record in any trial: without it a phase may not be found.
fn not_recorded(document: &FailoverDocument) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for one in document.trials.iter().flat_map(|trial| &trial.not_recorded) {
        let whose = match one.end {
            End::Local => "here",
            End::Remote => "at the peer",
        };
        let line = format!("not recorded {whose}: {}: {}", one.path, one.reason);
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

fn or_none(time: Option<Nanoseconds>) -> String {
    match time {
        Some(time) if time > Nanoseconds::new(0) => time.to_string(),
        _ => "none".to_owned(),
    }
}

pub(super) fn direction_word(direction: Direction) -> &'static str {
    match direction {
        Direction::Reverse => "from the peer",
        _ => "to the peer",
    }
}

pub(super) fn trigger_word(trigger: TriggerWord) -> &'static str {
    match trigger {
        TriggerWord::Failure => "failure",
        TriggerWord::Return => "return",
        TriggerWord::NoEvent => "no event",
    }
}

/// 80 columns, unless a count has more than six digits.
fn row(cells: [&str; 9]) -> String {
    let [trigger, direction, workload, gaps, times @ .., lost, late] = cells;
    let mut line = format!("{trigger:<8} {direction:<13} {workload:<8} {gaps:>4}");
    for time in times {
        line = format!("{line} {time:>9}");
    }
    format!("{line} {lost:>6} {late:>5}")
}

/// The columns of [`rows`].
pub(super) const HEAD: [&str; 9] = [
    "trigger",
    "direction",
    "workload",
    "gaps",
    "median",
    "maximum",
    "all back",
    "lost",
    "late",
];

/// A row for each trigger, direction and workload.
pub(super) fn rows(summary: &[Summary], trials: &[TrialResult]) -> Vec<[String; 9]> {
    let mut rows = Vec::new();
    for one in summary {
        let triggers = || {
            let parts = trials.iter().flat_map(|trial| &trial.parts);
            let own = parts
                .filter(|part| (part.direction, part.workload) == (one.direction, one.workload));
            let triggers = own.flat_map(|part| &part.triggers);
            triggers.filter(|trigger| trigger.trigger == one.trigger)
        };
        let sum = |value: fn(&TriggerResult) -> u64| triggers().map(value).sum::<u64>().to_string();
        let back = triggers().filter_map(|trigger| trigger.all_back_ns).max();
        let back = match back {
            _ if one.not_over > 0 => "not back".to_owned(),
            Some(back) => Nanoseconds::new(back.unsigned_abs()).to_string(),
            None => "-".to_owned(),
        };
        rows.push([
            trigger_word(one.trigger).to_owned(),
            direction_word(one.direction).to_owned(),
            one.workload.word().to_owned(),
            sum(|trigger| trigger.gaps.count),
            or_none(Some(one.median_ns)),
            or_none(Some(one.max_ns)),
            back,
            sum(|trigger| trigger.lost),
            sum(|trigger| trigger.late),
        ]);
    }
    rows
}

/// The evidence of one trial.
pub(super) fn evidence(number: u32, trial: &TrialResult) -> Vec<String> {
    let cut = if trial.cut_short { ", cut short" } else { "" };
    let mut lines = vec![format!("trial {number}{cut}")];
    for event in &trial.events {
        lines.extend(event_lines(event));
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
            part.workload.word(),
            direction_word(part.direction)
        );
        for trigger in &part.triggers {
            let line = trigger_line(&name, part, trigger);
            lines.extend(match course(trigger) {
                Some(words) if trigger.gaps.count == 0 => vec![format!("{line}, {words}")],
                Some(words) => vec![line, format!("    {words}")],
                None => vec![line],
            });
            let evidence = trigger.held_up.iter().flat_map(|one| &one.evidence);
            lines.extend(
                evidence.map(|one| format!("    {}: {} ({})", one.what, one.value, one.path)),
            );
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
        let tcp = part.tcp.iter().flat_map(tcp::in_words);
        lines.extend(tcp.map(|words| format!("  {name}: {words}")));
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
    }
    lines
}

/// When the interruption of a trigger was, how far throughput fell, and the latency before and after it.
pub(super) fn course(trigger: &TriggerResult) -> Option<String> {
    let signed = |at: i64| {
        let sign = if at < 0 { "-" } else { "+" };
        format!("{sign}{}", Nanoseconds::new(at.unsigned_abs()))
    };
    let mut words = Vec::new();
    if let (Some(first), Some(last)) = (trigger.first_affected_ns, trigger.last_affected_ns) {
        let (first, last) = (signed(first), signed(last));
        words.push(format!("affected packets sent from {first} to {last}"));
    }
    if let Some(back) = trigger.all_back_ns.filter(|_| trigger.is_over) {
        words.push(format!("all flows back at {}", signed(back)));
    }
    if trigger.gaps.count > 0 {
        let least = trigger.throughput_min_share * 100.0;
        // Few of many flows are not none.
        let digits = if least > 0.0 && least < 1.0 { 2 } else { 0 };
        words.push(format!("throughput down to {least:.digits$} %"));
    }
    let latency = &trigger.latency;
    if let (Some(before), Some(after)) = (latency.before_ns, latency.after_ns) {
        let within = latency.within_ns.filter(|one| one.as_u64() > 0);
        let within = within.map(|one| format!(" (both within {one})"));
        let within = within.unwrap_or_default();
        words.push(format!(
            "median latency {before} before, {after} after{within}"
        ));
    }
    (!words.is_empty()).then(|| words.join(", "))
}

/// A command that was run, and what it printed.
fn event_lines(event: &EventResult) -> Vec<String> {
    let at = match event.end {
        End::Remote => " at the peer",
        End::Local => "",
    };
    let mut lines = vec![format!(
        "  {}: `{}`{at} took {}",
        trigger_word(event.trigger),
        event.command,
        event.took_ns
    )];
    if !event.output.is_empty() {
        lines.push(format!("    {}", event.output));
    }
    lines
}

fn trigger_line(name: &str, part: &PartResult, trigger: &TriggerResult) -> String {
    if trigger.gaps.count == 0 {
        return format!(
            "  {name}, {}: no packet lost or late, resolution {}",
            trigger_word(trigger.trigger),
            part.step_ns
        );
    }
    let all = match (trigger.all_flows_ns, trigger.all_flows_within_ns) {
        (Some(length), Some(within)) => {
            format!(", all flows at once for {length} (within {within})")
        }
        _ => String::new(),
    };
    format!(
        "  {name}, {}: {}, longest {} (within {}){all}, {} of {} affected, {} lost, {} late",
        trigger_word(trigger.trigger),
        count(
            usize::try_from(trigger.gaps.count).unwrap_or(usize::MAX),
            "interruption"
        ),
        trigger.gaps.longest_ns,
        part.step_ns,
        trigger.flows_affected,
        count(part.flows as usize, "flow"),
        trigger.lost,
        trigger.late,
    )
}

#[cfg(test)]
mod tests {
    use super::super::document::{Gaps, LatencyResult};
    use super::*;

    /// An interruption of three quarters of the flows, over before the return.
    fn interruption() -> TriggerResult {
        let us = |us: u64| Nanoseconds::from_micros(us);
        TriggerResult {
            trigger: TriggerWord::Failure,
            gaps: Gaps {
                count: 1,
                longest_ns: us(400_000),
                total_ns: us(400_000),
            },
            lost: 20,
            late: 0,
            flows_affected: 48,
            by_next_hop: None,
            all_flows_ns: None,
            all_flows_within_ns: None,
            first_affected_ns: Some(-1_000_000),
            all_back_ns: Some(405_000_000),
            last_affected_ns: Some(400_000_000),
            is_over: true,
            throughput_min_share: 0.25,
            latency: LatencyResult {
                before_ns: Some(us(20)),
                after_ns: Some(us(30)),
                within_ns: Some(us(4)),
                packets_before: 9,
                packets_after: 9,
            },
            held_up: None,
        }
    }

    #[test]
    fn the_course_has_times_dip_and_latency_and_leaves_out_what_is_not_known() {
        let whole = "affected packets sent from -1.00 ms to +400.0 ms, all flows back at +405.0 ms, throughput down to \
                     25 %, median latency 20.00 us before, 30.00 us after (both within 4.00 us)";
        assert_eq!(course(&interruption()).as_deref(), Some(whole));
        let mut open = interruption();
        open.is_over = false;
        open.latency.after_ns = None;
        let words = "affected packets sent from -1.00 ms to +400.0 ms, throughput down to 25 %";
        assert_eq!(course(&open).as_deref(), Some(words));
        let nothing = TriggerResult {
            gaps: Gaps {
                count: 0,
                ..open.gaps
            },
            first_affected_ns: None,
            last_affected_ns: None,
            all_back_ns: None,
            ..open
        };
        assert_eq!(course(&nothing), None);
    }
}
