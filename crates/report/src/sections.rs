//! The page, top to bottom: verdict, path, remedies, rates, CPU, findings, ceilings, hosts, trials, how to
//! get each number by hand.

use linerate_analysis::text::visible::visible;
use linerate_analysis::text::words::count;
use linerate_model::finding::{Evidence, Finding};
use linerate_model::prove::ProveDocument;
use linerate_model::setting::fold_blanks;
use serde_json::Value;

use super::data::{EndData, ReportData};
use super::figures::{cost, cpu_bars, fix_name, flag, rate};
use super::html::{code, escape, section, table};
use super::map::picture::{Layout, PathEnd, path_svg};
use super::map::text::{link_text, qdisc_text, show};
use super::prove_charts;
use super::verdict::{remedies, verdict};

/// Everything between `<body>` and the data; its charts are added to `drawn`.
pub(super) fn body(data: &ReportData, drawn: &mut Vec<Value>) -> String {
    let parts = [
        verdict(data, drawn),
        path(data),
        remedies(&data.prove, drawn),
        rates(data, drawn),
        cpu(data, drawn),
        findings(data),
        ceilings(data),
        hosts(data),
        trials(data),
        reproduce(data),
    ];
    format!(
        "<a class=\"skip\" href=\"#verdict\">Skip to the result</a>\n<header class=\"top\"><p class=\"brand\">linerate <span>report</span></p><p>{} · {} to {}</p></header>\n<main>\n{}</main>\n{}",
        escape(&data.created),
        escape(&data.local.name),
        escape(&data.remote.name),
        parts.concat(),
        footer(data)
    )
}

fn path(data: &ReportData) -> String {
    let near = map_end(&data.local);
    let far = map_end(&data.remote);
    let picture = |layout| path_svg(&near, Some((&far, &data.wire)), layout);
    let evidence = bottleneck(&data.prove);
    section(
        "path",
        "The path",
        "S marks CPUs with sending threads, R with receiving threads. Solid lines connect queues \
         to the CPUs of their interrupts, dashed lines to CPUs selected by RPS or XPS; arrowheads \
         mark CPUs on another NUMA node than the NIC. A ? marks a value that could not be read: \
         hover for the reason.",
        &format!(
            "<div class=\"map wide\">{}</div><div class=\"map narrow\">{}</div>{evidence}",
            picture(Layout::Beside),
            picture(Layout::Stacked)
        ),
    )
}

/// The evidence of what limits the path. What a finding is about, too, stands there only.
fn bottleneck(prove: &ProveDocument) -> String {
    let of_finding = |line: &Evidence| {
        let mut all = prove.findings.iter();
        all.find(|finding| finding.evidence.contains(line))
    };
    let (shown, own): (Vec<&Evidence>, Vec<&Evidence>) =
        (prove.limit.evidence.iter()).partition(|line| of_finding(line).is_some());
    let caption = format!("Bottleneck before any change: {}", prove.limit.in_words());
    let table = if own.is_empty() {
        format!("<p>{}.</p>", escape(&caption))
    } else {
        evidence_table(&caption, own)
    };
    let mut rules: Vec<&str> = (shown.iter().filter_map(|line| of_finding(line)))
        .map(|finding| finding.rule.as_str())
        .collect();
    rules.dedup();
    if rules.is_empty() {
        return table;
    }
    let number = count(shown.len(), "more figure");
    let rules: Vec<String> = rules.into_iter().map(code).collect();
    format!(
        "{table}<p class=\"note\">{number} with the <a href=\"#findings\">finding</a> {}.</p>",
        rules.join(", ")
    )
}

fn map_end(end: &EndData) -> PathEnd<'_> {
    PathEnd {
        name: &end.name,
        host: &end.host,
        nic: end.nic.as_ref(),
        sender_cpus: &end.sender_cpus,
        receiver_cpus: &end.receiver_cpus,
        hot: None,
    }
}

fn evidence_table<'a>(caption: &str, evidence: impl IntoIterator<Item = &'a Evidence>) -> String {
    let rows: Vec<Vec<String>> = evidence
        .into_iter()
        .map(|line| vec![escape(&line.what), escape(&line.value), code(&line.path)])
        .collect();
    table(caption, &["Metric", "Value", "Source"], &rows)
}

fn rates(data: &ReportData, drawn: &mut Vec<Value>) -> String {
    let charts = prove_charts::over_time(data, drawn);
    section(
        "rates",
        "Rates over time",
        "All trials overlaid. The shaded part was cut as warm-up and is excluded from all \
         figures. The dashed line is the ceiling; with ↑ it is far above the chart.",
        &format!(
            "<div class=\"grid\">{charts}</div><noscript><p class=\"note\">The charts need \
             JavaScript; the tables have all of their figures.</p></noscript>"
        ),
    )
}

fn cpu(data: &ReportData, drawn: &mut Vec<Value>) -> String {
    let bars = cpu_bars(data);
    let rows: Vec<Vec<String>> = (bars.iter())
        .map(|bar| {
            vec![
                format!("{}, {}", bar.arm.word(), escape(&bar.end)),
                bar.kind.to_owned(),
                bar.s_per_gb
                    .map_or("unknown".to_owned(), |[mean, _, _]| cost(mean)),
                bar.s_per_gb.map_or("unknown".to_owned(), |[_, low, high]| {
                    format!(
                        "{} to {}, {}",
                        cost(low),
                        cost(high),
                        count(bar.trials, "trial")
                    )
                }),
            ]
        })
        .collect();
    section(
        "cpu",
        "CPU cost",
        "CPU time per gigabyte (10⁹ bytes) moved, by kind and end: mean, minimum and maximum of \
         the trials.",
        &format!(
            "{}{}",
            prove_charts::cpu(&bars, drawn),
            table(
                "CPU seconds per gigabyte",
                &["When and where", "Kind", "Mean", "Min to max"],
                &rows
            )
        ),
    )
}

fn findings(data: &ReportData) -> String {
    let mut body: String = data.prove.findings.iter().map(finding).collect();
    if !data.undetermined.is_empty() {
        let rows: Vec<Vec<String>> = data
            .undetermined
            .iter()
            .map(|rule| {
                let missing: Vec<String> = rule
                    .missing
                    .iter()
                    .map(|gap| {
                        format!(
                            "{}: {} ({})",
                            code(&gap.path),
                            gap.cause,
                            escape(&gap.reason)
                        )
                    })
                    .collect();
                vec![
                    escape(&rule.rule),
                    format!("{}, {}", rule.end, escape(&rule.subject)),
                    missing.join("<br>"),
                ]
            })
            .collect();
        body.push_str(&table(
            "Skipped checks (not the same as passed)",
            &["Rule", "Subject", "Missing data"],
            &rows,
        ));
    }
    let lead = if data.prove.findings.is_empty() {
        "No findings."
    } else {
        "Findings on both hosts before any change, worst first, with their evidence."
    };
    section("findings", "Findings", lead, &body)
}

fn finding(finding: &Finding) -> String {
    let remedies: Vec<String> = finding
        .remedies
        .iter()
        .map(|remedy| {
            format!(
                "<li>{}: {} <span class=\"soft\">({}: {})</span></li>",
                remedy.end,
                code(&remedy.change.to_string()),
                remedy.class,
                remedy.class.words()
            )
        })
        .collect();
    let remedies = if remedies.is_empty() {
        "<p class=\"soft\">No fix that linerate can test.</p>".to_owned()
    } else {
        format!("<ul class=\"changes\">{}</ul>", remedies.concat())
    };
    format!(
        "<article class=\"finding {severity}\"><h3><span class=\"severity\">{severity}</span> {} <span class=\"soft\">{}, {}</span></h3><p>{}</p>{}<p class=\"soft\">Threshold: {}</p>{remedies}</article>",
        escape(&finding.rule),
        finding.end,
        escape(&finding.subject),
        escape(&finding.summary),
        evidence_table(&format!("Evidence for {}", finding.rule), &finding.evidence),
        escape(&finding.threshold),
        severity = finding.severity,
    )
}

fn ceilings(data: &ReportData) -> String {
    let lowest = data.prove.ceiling.bit_per_s;
    let rows: Vec<Vec<String>> = data
        .ceilings
        .iter()
        .map(|ceiling| {
            let bound = ceiling.bit_per_s.map_or("none".to_owned(), rate);
            let is_lowest = ceiling.bit_per_s.is_some() && ceiling.bit_per_s == lowest;
            vec![
                escape(&ceiling.name),
                if is_lowest {
                    format!("<strong>{bound}</strong> ◀ the ceiling")
                } else {
                    bound
                },
                escape(&ceiling.reason),
            ]
        })
        .collect();
    section(
        "ceilings",
        "Ceilings",
        "Computed upper bounds of the path. The ceiling is the lowest bound that still applies \
         with the fixes that helped.",
        &table(
            "All bounds considered",
            &["Bound", "Rate", "Arithmetic"],
            &rows,
        ),
    )
}

fn hosts(data: &ReportData) -> String {
    let ends = [&data.local, &data.remote];
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = |name: &str, text: &dyn Fn(&EndData) -> String| {
        let mut cells = vec![name.to_owned()];
        cells.extend(ends.iter().map(|end| escape(&text(end))));
        rows.push(cells);
    };
    row("Host name", &|end| show(&end.host.identity.hostname));
    row("Kernel", &|end| show(&end.host.identity.kernel_release));
    row("CPU", &|end| {
        format!(
            "{}, {}",
            show(&end.host.identity.cpu_model),
            count(end.host.cpus.len(), "CPU")
        )
    });
    row("NUMA nodes", &|end| end.host.nodes.len().to_string());
    row("Kernel command line", &|end| {
        show(&end.host.identity.command_line)
    });
    row("Boot id", &|end| show(&end.host.identity.boot_id));
    row("Interrupt time accounting", &|end| {
        super::map::text::show_with(&end.host.identity.irq_time_accounting, |exact| {
            if *exact { "exact" } else { "by ticks" }.to_owned()
        })
    });
    let nic = |text: &dyn Fn(&linerate_model::host::Nic) -> String, end: &EndData| {
        end.path_nic()
            .map_or_else(|| "? (unknown)".to_owned(), text)
    };
    row("Interface of the path", &|end| {
        nic(
            &|nic| format!("{}, driver {}", nic.name, show(&nic.driver)),
            end,
        )
    });
    row("Link", &|end| nic(&link_text, end));
    row("MTU", &|end| nic(&|nic| show(&nic.mtu), end));
    row("Qdisc", &|end| nic(&qdisc_text, end));
    row("Sending threads on", &|end| cpus_text(&end.sender_cpus));
    row("Receiving threads on", &|end| cpus_text(&end.receiver_cpus));
    let sysctls: std::collections::BTreeSet<&String> = ends
        .iter()
        .flat_map(|end| end.host.sysctls.keys())
        .collect();
    let settings: Vec<Vec<String>> = sysctls
        .into_iter()
        .map(|name| {
            let mut cells = vec![code(name)];
            cells.extend(ends.iter().map(|end| escape(&sysctl_text(end, name))));
            cells
        })
        .collect();
    let head = ["What", &data.local.name, &data.remote.name];
    let mut body = table("Both hosts, baseline", &head, &rows);
    if !settings.is_empty() {
        body.push_str(&format!(
            "<details><summary>Kernel settings of both hosts ({})</summary>{}</details>",
            settings.len(),
            table("Kernel settings (sysctl)", &head, &settings)
        ));
    }
    section(
        "hosts",
        "Hosts",
        "The environment is part of the result.",
        &body,
    )
}

/// The kernel separates the numbers of a sysctl by tabs.
fn sysctl_text(end: &EndData, name: &str) -> String {
    super::map::text::show_with(&end.host.sysctl(name), |text| visible(&fold_blanks(text)))
}

fn cpus_text(cpus: &linerate_model::ids::CpuSet) -> String {
    if cpus.is_empty() {
        "not pinned".to_owned()
    } else {
        format!("CPU {cpus}")
    }
}

fn trials(data: &ReportData) -> String {
    let mut trials: Vec<_> = data.trials.iter().collect();
    trials.sort_by_key(|trial| trial.order);
    let mut flags: Vec<_> = trials
        .iter()
        .flat_map(|trial| trial.flags.iter().copied())
        .collect();
    flags.sort_unstable();
    flags.dedup();
    let rows: Vec<Vec<String>> = flags
        .iter()
        .map(|which| {
            let marked = trials
                .iter()
                .filter(|trial| trial.flags.contains(which))
                .count();
            let (name, meaning) = flag(*which);
            vec![
                name.to_owned(),
                meaning.to_owned(),
                format!("{marked} of {}", count(trials.len(), "trial")),
            ]
        })
        .collect();
    let flags_part = if rows.is_empty() {
        "<p>No trial has a flag.</p>".to_owned()
    } else {
        table(
            "Flags: trials that may be invalid or need a caveat",
            &["Flag", "Meaning", "Trials"],
            &rows,
        )
    };
    let rows: Vec<Vec<String>> = trials
        .iter()
        .map(|trial| {
            let of = trial
                .remedy_index
                .and_then(|index| data.prove.remedies.get(index))
                .map_or_else(String::new, |remedy| {
                    format!(" {}", escape(&fix_name(remedy)))
                });
            let names: Vec<&str> = trial.flags.iter().map(|which| flag(*which).0).collect();
            vec![
                escape(&trial.label),
                format!("{}{of}", trial.arm.word()),
                rate(trial.mean_bit_per_s),
                if names.is_empty() {
                    "none".to_owned()
                } else {
                    names.join(", ")
                },
            ]
        })
        .collect();
    section(
        "trials",
        "Trials and their flags",
        "Flags mark trials that need caution. Flagged trials are included in the figures, except \
         one that was repeated.",
        &format!(
            "{flags_part}<details><summary>All trials in run order ({})</summary>{}</details>",
            trials.len(),
            table(
                "All trials",
                &["Trial", "Phase", "Mean rate, warm-up cut", "Flags"],
                &rows
            )
        ),
    )
}

fn reproduce(data: &ReportData) -> String {
    let items: Vec<String> = data
        .reproduce
        .iter()
        .map(|line| {
            format!(
                "<li><p>{}</p><pre tabindex=\"0\"><code>{}</code></pre></li>",
                escape(&line.what),
                // A command may have several lines.
                line.command
                    .lines()
                    .map(escape)
                    .collect::<Vec<_>>()
                    .join("\n")
            )
        })
        .collect();
    section(
        "reproduce",
        "By hand",
        "How to get each number without linerate.",
        &format!("<ol class=\"reproduce\">{}</ol>", items.concat()),
    )
}

fn footer(data: &ReportData) -> String {
    let run = data
        .prove
        .run
        .as_ref()
        .map_or_else(String::new, |run| format!(" · run {}", code(run)));
    format!(
        "<footer><p>linerate {} · seed {}{run}</p><p>This page is self-contained (data: \
         <code>#linerate-data</code>, JSON) and loads no external resources. Charts: Vega and \
         Vega-Lite, BSD-3-Clause; the script starts with their licenses.</p></footer>\n",
        escape(&data.linerate_version),
        data.prove.seed
    )
}
