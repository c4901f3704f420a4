//! `sysctl-legacy-or-harmful`: a sysctl file sets an obsolete or harmful value.
//! Documentation/networking/ip-sysctl.rst; sysctl.d(5): of several lines the last one wins.

use super::facts::{answer, need};
use super::{ALWAYS, Draft};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::{Host, SysctlLine};
use crate::known::Known;
use crate::setting::Class;

pub(super) const RULE: Rule = Rule {
    id: "sysctl-legacy-or-harmful",
    number: 63,
    status: Status::AdviceOnly,
    title: "a sysctl file sets an obsolete or harmful value",
    severity: Severity::Note,
    stage: Stage::Tuning,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "a line that sets tcp_low_latency, tcp_fack, tcp_tw_recycle, tcp_mem, tcp_timestamps=0, \
                tcp_adv_win_scale (since Linux 6.6), netdev_max_backlog of 250000 or more, or a tcp_rmem or \
                tcp_wmem with a maximum below its default",
    effect: "none by itself: such lines hide the effective configuration",
    source: "Documentation/networking/ip-sysctl.rst; sysctl.d(5)",
    fix: Fix::Advised(&[Class::R1]),
    persist: "remove the line from the file",
    contested: None,
    page: include_str!("../../../../docs/rules/sysctl-legacy-or-harmful.md"),
    check,
};

const BACKLOG_COPIED: u64 = 250_000;
/// Since this release, the kernel measures the window's share of a buffer.
const NO_WIN_SCALE: (u32, u32) = (6, 6);

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let mut missing = Vec::new();
    let lines = need(&context.host.software.sysctl_lines, &mut missing);
    let lines = lines.map_or(&[][..], Vec::as_slice);
    let said: Vec<Draft> = lines
        .iter()
        .enumerate()
        .filter_map(|(at, line)| {
            let why = fault(context.host, line)?;
            let later = lines.get(at.saturating_add(1)..).unwrap_or_default();
            let winner = later.iter().rev().find(|other| name(other) == name(line));
            Some(judge(context.host, line, winner, why))
        })
        .collect();
    answer(rule, context, "host", said, missing)
}

/// `net/ipv4/tcp_sack` and a leading `-` are alternative forms.
fn name(line: &SysctlLine) -> String {
    line.name.trim_start_matches('-').replace('/', ".")
}

fn fault(host: &Host, line: &SysctlLine) -> Option<&'static str> {
    let numbers: Vec<u64> = line
        .value
        .split_whitespace()
        .filter_map(|number| number.parse().ok())
        .collect();
    match name(line).as_str() {
        "net.ipv4.tcp_low_latency" | "net.ipv4.tcp_fack" => Some("it no longer has an effect"),
        "net.ipv4.tcp_tw_recycle" => Some("removed in Linux 4.12"),
        "net.ipv4.tcp_adv_win_scale" if release(host).is_some_and(|own| own >= NO_WIN_SCALE) => {
            Some("unused since Linux 6.6")
        }
        "net.ipv4.tcp_mem" => {
            Some("it counts pages for all of TCP, and the kernel sizes it by memory")
        }
        "net.ipv4.tcp_timestamps" if numbers == [0] => {
            Some("without timestamps RTT is sampled rarely")
        }
        "net.core.netdev_max_backlog" if numbers.first() >= Some(&BACKLOG_COPIED) => {
            Some("a queue that long only adds latency")
        }
        "net.ipv4.tcp_rmem" | "net.ipv4.tcp_wmem" => match numbers.as_slice() {
            [_, start, most] if most < start => Some("its maximum is below its default"),
            _ => None,
        },
        _ => None,
    }
}

/// The kernel's major and minor release.
fn release(host: &Host) -> Option<(u32, u32)> {
    let text = host.identity.kernel_release.value()?;
    let mut parts = text.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn judge(host: &Host, line: &SysctlLine, winner: Option<&SysctlLine>, why: &str) -> Draft {
    let place = |line: &SysctlLine| {
        let what = format!("line {} sets {}", line.line, name(line));
        Evidence::new(what, format!("`{}`", line.value), &*line.file)
    };
    let mut evidence = vec![place(line)];
    evidence.extend(winner.map(place));
    if let Known::Value(running) = host.sysctl(&name(line)) {
        let running = format!("`{}`", crate::setting::fold_blanks(&running));
        let path = crate::buffers::path(&name(line));
        evidence.push(Evidence::new("running value", running, path));
    }
    let wins = if winner.is_some() {
        " (overridden by a later line)"
    } else {
        ""
    };
    // The evidence has long paths in full.
    let file = line.file.rsplit('/').next().unwrap_or(&line.file);
    let file: String = file.chars().take(40).collect();
    Draft {
        severity: Severity::Note,
        subject: "host".to_owned(),
        summary: format!(
            "{file}:{} sets {}{wins}: {why}; remove the line",
            line.line,
            name(line)
        ),
        evidence,
        remedies: Vec::new(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding};
    use super::*;
    use crate::build;
    use crate::known::Cause;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("one that has no effect", || {
                World::of(host(&[("net.ipv4.tcp_low_latency", "1")]))
            }),
            ("pages taken for octets", || {
                World::of(host(&[("net.ipv4.tcp_mem", "16777216 16777216 16777216")]))
            }),
            ("a maximum below the default", || {
                World::of(host(&[("net/ipv4/tcp_rmem", "4096 131072 65536")]))
            }),
        ],
        silent: &[
            ("no lines", || World::of(build::host().build())),
            ("sensible lines", || {
                let lines = [
                    ("net.core.default_qdisc", "fq"),
                    ("net.ipv4.tcp_rmem", "4096 131072 67108864"),
                    ("net.ipv4.tcp_timestamps", "1"),
                    ("net.core.netdev_max_backlog", "5000"),
                ];
                World::of(host(&lines))
            }),
            ("no files", || World::of(unknown(Cause::Absent))),
        ],
        undetermined: &[("not readable", || World::of(unknown(Cause::Denied)))],
    };

    fn host(lines: &[(&str, &str)]) -> Host {
        let mut host = build::host().build();
        let line = |(line, (name, value)): (u32, &(&str, &str))| SysctlLine {
            file: "/etc/sysctl.d/99-tuning.conf".to_owned(),
            line,
            name: (*name).to_owned(),
            value: (*value).to_owned(),
        };
        host.software.sysctl_lines = Known::Value((1u32..).zip(lines).map(line).collect());
        host
    }

    fn unknown(cause: Cause) -> Host {
        let mut host = build::host().build();
        host.software.sysctl_lines = Known::unknown(cause, "/etc/sysctl.d", "not read");
        host
    }

    #[test]
    fn the_line_the_winner_and_the_running_value_are_shown() {
        let host = host(&[
            ("net.ipv4.tcp_timestamps", "0"),
            ("net.ipv4.tcp_timestamps", "1"),
        ]);
        let said = finding(ID, &context(&host));
        assert_eq!(said.severity, Severity::Note);
        assert!(
            said.summary.contains("overridden by a later line"),
            "{}",
            said.summary
        );
        let values: Vec<&str> = said.evidence.iter().map(|e| e.value.as_str()).collect();
        assert_eq!(values, ["`0`", "`1`", "`1`"]);
    }

    #[test]
    fn a_kernel_that_still_uses_it_is_not_told_otherwise() {
        let mut host = host(&[("net.ipv4.tcp_adv_win_scale", "1")]);
        assert!(finding(ID, &context(&host)).summary.contains("6.6"));
        host.identity.kernel_release = Known::Value("5.14.0-427.el9".to_owned());
        assert!(super::super::testing::silent(ID, &context(&host)));
    }
}
