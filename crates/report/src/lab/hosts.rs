//! Part of an experiment's page: both hosts with their settings and differences, the experiment's settings, and how to
//! reproduce it, also by hand.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;

use linerate_analysis::experiment::document::{CellDocument, LabDocument};
use linerate_analysis::experiment::resolve::{RequestedSetting, Resolver};
use linerate_analysis::proof::moved_settings;
use linerate_analysis::record::Header;
use linerate_analysis::text::words::count;
use linerate_model::host::Host;
use linerate_model::ids::NicName;
use linerate_model::lab::{Experiment, LevelTable, OfPeer, Word};
use linerate_model::path::PathView;
use linerate_model::plan::End;
use linerate_model::setting::{SettingKey, by_hand, current};
use linerate_model::shell::{quoted, quoted_path};

use super::data::{EarlierHosts, LabData};
use super::draw::{name, varied};
use crate::fill::typed_again;
use crate::flat::{facts, is_reading, shown};
use crate::html::{code, escape, section, table};

/// Settings of one level that are shown at once: those of many queues are alike.
const SETTINGS_SHOWN: usize = 4;
/// Rows of a table of settings: some megabytes of the page. Hosts with more are those of thousands of queues.
const ROWS_MAX: usize = 4_000;

/// The compared facts of a host; `nic` is the interface of the path. A name that ends in `/` matches all below it.
const COMPARED: [&str; 34] = [
    "identity/architecture",
    "identity/cpu_model",
    "identity/kernel_release",
    "identity/command_line",
    "identity/irq_time_accounting",
    "isolation/",
    "kernel/",
    "process/",
    "power/turbo",
    "power/smt",
    "power/pstate_mode",
    "power/pstate_max_percent",
    "power/idle_driver",
    "power/latency_limit_us",
    "power/frequency/",
    "nic/card/firmware",
    "nic/channels/",
    "nic/coalesce/",
    "nic/dispatch/defer_hard_irqs",
    "nic/dispatch/gro_flush_timeout_ns",
    "nic/dispatch/threaded",
    "nic/driver",
    "nic/features/",
    "nic/kind",
    "nic/link_bit_per_s",
    "nic/mtu",
    "nic/numa_node",
    "nic/pcie/available_bit_per_s",
    "nic/qdisc/",
    "nic/rings/",
    "nic/stack/bridge_port_state",
    "nic/stack/ipoib_mode",
    "nic/stack/tx_queue_len",
    "sysctls/",
];

/// What of a compared branch is no setting.
fn is_aside(key: &str) -> bool {
    // Whether a feature can be switched depends on the driver; the bytes of a qdisc are covered by its words.
    key.ends_with("/changeable") || matches!(key, "nic/qdisc/options" | "nic/qdisc/handle")
}

/// The compared facts of a host, by keys that are the same on both.
fn compared(host: &Host, nic: &NicName) -> BTreeMap<String, String> {
    let own = format!("nics/{nic}/");
    let of_host = facts(host).into_iter().filter(|(key, _)| !is_reading(key));
    let told = of_host.filter_map(|(key, fact)| {
        let key = match key.strip_prefix(&own) {
            Some(rest) => format!("nic/{rest}"),
            None => key,
        };
        let is_it = |name: &str| key == name || (name.ends_with('/') && key.starts_with(name));
        if is_aside(&key) || !COMPARED.into_iter().any(is_it) {
            return None;
        }
        let value = match &fact.value {
            Ok(value) => shown(value),
            Err(gap) => format!("? ({})", gap.cause),
        };
        Some((key, value))
    });
    let mut all: BTreeMap<String, String> = told.collect();
    all.insert("CPUs".to_owned(), host.cpus.len().to_string());
    all.insert("NUMA nodes".to_owned(), host.nodes.len().to_string());
    all
}

/// The baseline of both hosts: first what differs, then what is the same.
pub(super) fn both_hosts(document: &LabDocument, header: &Header, seen: &LabData) -> String {
    let Some((local, remote)) = &seen.hosts else {
        return String::new();
    };
    let (here, there) = (
        compared(local, &header.local_nic),
        compared(remote, &header.remote_nic),
    );
    let (mut differ, mut same) = (Vec::new(), Vec::new());
    let keys: std::collections::BTreeSet<&String> = here.keys().chain(there.keys()).collect();
    for key in keys {
        let of = |host: &BTreeMap<String, String>| host.get(key).cloned();
        let (one, other) = (of(&here), of(&there));
        let word = |value: Option<String>| escape(&value.unwrap_or_else(|| "none".to_owned()));
        if one == other {
            same.push(vec![code(key), word(one)]);
        } else {
            differ.push(vec![code(key), word(one), word(other)]);
        }
    }
    let name = |host: &Host| {
        let name = host.identity.hostname.value();
        name.map_or("?", String::as_str).to_owned()
    };
    let head = [
        "setting",
        &format!("local: {}", name(local)),
        &format!("peer: {}", name(remote)),
    ];
    let differences = if differ.is_empty() {
        "<p>The settings of both hosts are the same.</p>".to_owned()
    } else {
        table(
            &format!("{} differences", count(differ.len(), "setting")),
            &head,
            &differ,
        )
    };
    let alike = format!(
        "<details><summary>{} identical on both</summary>{}</details>",
        if same.len() == 1 {
            "1 setting is".to_owned()
        } else {
            format!("{} settings are", same.len())
        },
        table("Identical on both", &["setting", "value"], &same)
    );
    section(
        "hosts",
        "Both hosts",
        "Baseline, before any change; nic is the interface of the path on each end.",
        &format!(
            "{differences}{alike}{}{}",
            then_and_now(seen),
            changed(document, header, seen)
        ),
    )
}

/// The settings in which the hosts of earlier runs differed from now.
fn then_and_now(seen: &LabData) -> String {
    let (Some(experiment), Some((local, remote))) = (&seen.experiment, &seen.hosts) else {
        return String::new();
    };
    let of_run = |earlier: &EarlierHosts| {
        let (factor, level) = earlier.level;
        let factor = experiment.factors.get(factor)?;
        let name = format!("{} {}", factor.name(), factor.level(level)?.name);
        let rows_of = |end: End, then: &Host, now: &Host| {
            let value = |host: &Host, key: &SettingKey| {
                let value = current(host, key);
                escape(&value.value().map_or("?".to_owned(), ToString::to_string))
            };
            let row = |(_, key): (End, SettingKey)| {
                let values = [value(then, &key), value(now, &key)];
                let [then, now] = values;
                vec![code(&key.to_string()), escape(end_word(end)), then, now]
            };
            let moved = moved_settings(then, now, end, &[]).into_iter();
            moved.map(row).collect::<Vec<_>>()
        };
        let mut rows = rows_of(End::Local, &earlier.local, local);
        rows.extend(rows_of(End::Remote, &earlier.remote, remote));
        let differ = count(rows.len(), "setting");
        let summary = format!("{name}: {differ} differed then");
        let caption = format!("{name}: the settings that differ");
        let head = ["setting", "host", "then", "now"];
        (!rows.is_empty()).then(|| unfolded(&summary, &caption, &head, &rows))
    };
    seen.earlier.iter().filter_map(of_run).collect()
}

/// A collapsed table of settings; truncated if it is too long.
fn unfolded(summary: &str, caption: &str, head: &[&str], rows: &[Vec<String>]) -> String {
    let rest = rows.len().saturating_sub(ROWS_MAX);
    let rest = match rest {
        0 => String::new(),
        rest => format!("<p>{rest} more are in the run's records only.</p>"),
    };
    let shown = &rows[..rows.len().min(ROWS_MAX)];
    format!(
        "<details><summary>{}</summary>{}{rest}</details>",
        escape(summary),
        table(caption, head, shown)
    )
}

/// Resolves the levels' settings.
fn resolver(header: &Header, seen: &LabData) -> Option<Resolver> {
    let (local, remote) = seen.hosts.as_ref()?;
    let path = |local_nic, remote, remote_nic, address: Option<IpAddr>| PathView {
        local,
        remote,
        local_nic,
        remote_nic,
        ipv6: header.is_ipv6(address),
    };
    let home = path(&header.local_nic, remote, &header.remote_nic, None);
    let mut resolver = Resolver::new(*seen.experiment.clone()?, home);
    for other in &seen.peers {
        let way = path(
            &other.local_nic,
            &other.host,
            &other.remote_nic,
            other.address,
        );
        resolver = resolver.with_other(&other.at, Ok(way));
    }
    Some(resolver)
}

/// The experiment's settings on either host, level by level.
fn changed(document: &LabDocument, header: &Header, seen: &LabData) -> String {
    let (Some(resolver), Some((local, remote))) = (resolver(header, seen), &seen.hosts) else {
        return String::new();
    };
    let (mut rows, mut all): (Vec<Vec<String>>, Vec<Vec<String>>) = Default::default();
    let mut tell = |name: &str, level: &LevelTable| {
        let mut rows_of = |of: End, end: &str, host: &Host, level: &LevelTable| {
            // A level without a counterpart here has no settings here.
            let wanted = resolver.settings_of(level).unwrap_or_default();
            let of_end: Vec<&RequestedSetting> =
                wanted.iter().filter(|(end, ..)| *end == of).collect();
            let row = |what: String, found: String, value: String| {
                vec![escape(name), escape(end), what, found, value]
            };
            let told = of_end.iter().map(|(_, key, value)| {
                let found = current(host, key);
                let found = found.value().map_or("?".to_owned(), ToString::to_string);
                let value = escape(&value.to_string());
                row(code(&key.to_string()), escape(&found), value)
            });
            all.extend(told);
            let first = all.len() - of_end.len();
            rows.extend(all[first..].iter().take(SETTINGS_SHOWN).cloned());
            if of_end.len() > SETTINGS_SHOWN {
                let more = format!("and {} more, below", of_end.len() - SETTINGS_SHOWN);
                rows.push(row(more, String::new(), String::new()));
            }
        };
        let here = level.peer.at.as_ref();
        rows_of(End::Local, end_word(End::Local), local, level);
        if here.is_none() {
            rows_of(End::Remote, end_word(End::Remote), remote, level);
        }
        // A level that names no host is applied on each of them.
        for other in &seen.peers {
            if here.is_none_or(|at| *at == other.at) {
                let mut level = level.clone();
                level.peer.at = Some(other.at.clone());
                rows_of(End::Remote, &other.at, &other.host, &level);
            }
        }
    };
    let of_all = LevelTable {
        settings: resolver.experiment.settings.clone(),
        peer: OfPeer {
            at: None,
            settings: resolver.experiment.peer.settings.clone(),
        },
        ..LevelTable::default()
    };
    tell("every trial", &of_all);
    let factors = resolver.experiment.factors.iter();
    for (factor, of_document) in factors.zip(&document.factors) {
        for (place, of_document) in of_document.levels.iter().enumerate() {
            if of_document.skipped.is_some() {
                continue;
            }
            let level = factor.level(place).unwrap_or_default();
            tell(&format!("{} {}", factor.name(), level.name), &level);
        }
    }
    if rows.is_empty() {
        return "<p>The experiment changed no setting of either host.</p>".to_owned();
    }
    let head = ["level", "host", "setting", "baseline", "set to"];
    let caption = "Settings applied by the experiment and rolled back after each trial";
    let shown = table(caption, &head, &rows);
    if rows == all {
        return shown;
    }
    let summary = format!("All {} settings of its levels", all.len());
    let caption = "All settings that the experiment changed";
    format!("{shown}{}", unfolded(&summary, caption, &head, &all))
}

fn end_word(end: End) -> &'static str {
    match end {
        End::Local => "here",
        End::Remote => "peer",
    }
}

/// How to reproduce it: the run, its page, one trial of it, and that trial's settings and rate by hand.
pub(super) fn again(document: &LabDocument, header: &Header, seen: &LabData) -> String {
    let run = document.run.as_deref().unwrap_or("RUN");
    let run = quoted_path(Path::new(run));
    let best = (seen.experiment.as_deref())
        .and_then(|experiment| Some((best(document, experiment)?, experiment)));
    let what = best.map_or_else(String::new, |(levels, _)| {
        format!(
            "One trial of `{}`",
            name(document, levels, &varied(document))
        )
    });
    let mut items = vec![
        ("Repeat the run in the same order", command(header, seen)),
        (
            "Analyze the raw records again and regenerate this page",
            format!("linerate lab show {run}\nlinerate report {run}"),
        ),
    ];
    if let Some((levels, experiment)) = best {
        let cell = places(experiment, levels);
        let at = experiment.at(&cell);
        let peer = at.peer.at.as_deref().unwrap_or(&header.peer);
        items.push((&what, measure(&at, peer)));
        let wanted = resolver(header, seen).and_then(|one| one.settings(&cell).ok());
        let wanted = wanted.unwrap_or_default();
        for (end, title) in [
            (End::Local, "Its settings by hand, on this host"),
            (End::Remote, "Its settings by hand, on the peer"),
        ] {
            let of_end = wanted.iter().filter(|(of, ..)| *of == end);
            let lines: Vec<String> = of_end
                .filter_map(|(_, key, value)| by_hand(key, value))
                .collect();
            if !lines.is_empty() {
                items.push((title, lines.join("\n")));
            }
        }
        let is_tcp = !at.options.contains_key("transport");
        let is_usual = at.peer.at.is_none() && at.address.is_none();
        if at.workload.as_deref() == Some("stream") && is_tcp && is_usual {
            let flows = at
                .options
                .get("flows")
                .map_or("1".to_owned(), Word::to_string);
            items.push((
                "Its rate with another program: the first command on the peer, the second on this \
                 host",
                format!(
                    "iperf3 -s\niperf3 -c {} -P {} -l 128K -t 10",
                    quoted(&header.address),
                    quoted(&flows)
                ),
            ));
        }
    }
    let item = |(what, command): &(&str, String)| {
        format!(
            "<li><p>{}</p><pre tabindex=\"0\"><code>{}</code></pre></li>",
            escape(what),
            command.lines().map(escape).collect::<Vec<_>>().join("\n")
        )
    };
    let list = items.iter().map(item).collect::<Vec<_>>().concat();
    section(
        "again",
        "Reproduce",
        "The whole run, or one trial by hand.",
        &format!("<ol class=\"reproduce\">{list}</ol>"),
    )
}

/// The command line of the run with its seed. For a run between its own hosts the name of the peer is one of an inner
/// step.
fn command(header: &Header, seen: &LabData) -> String {
    let mut words: Vec<&str> = (header.command.iter())
        .map(String::as_str)
        .filter(|word| !word.starts_with("--step"))
        .collect();
    if seen.own_hosts && words.last().is_some_and(|last| *last == header.peer) {
        words.pop();
    }
    let has_seed = words.iter().any(|word| word.starts_with("--seed"));
    let mut line = typed_again(words);
    if !has_seed {
        line.push_str(&format!(" --seed {}", header.seed));
    }
    line
}

/// The combination with the best mean of the first figure.
fn best<'d>(document: &'d LabDocument, experiment: &Experiment) -> Option<&'d [String]> {
    let response = document.responses.first()?;
    // An earlier run is not repeated here.
    let is_of_this_run = |cell: &&CellDocument| {
        experiment
            .at(&places(experiment, &cell.levels))
            .run
            .is_none()
    };
    let told = response.cells.iter().filter(is_of_this_run);
    let told = told.filter_map(|cell| Some((cell.mean?, &cell.levels[..])));
    let better = |one: &(f64, &[String]), other: &(f64, &[String])| {
        let order = one.0.total_cmp(&other.0);
        if response.more_is_better {
            order
        } else {
            order.reverse()
        }
    };
    told.max_by(better).map(|(_, levels)| levels)
}

/// The levels of a combination by their indices; one past the last if a factor has none of them.
fn places(experiment: &Experiment, levels: &[String]) -> Vec<usize> {
    let factors = experiment.factors.iter().zip(levels);
    factors
        .map(|(factor, name)| {
            let all = factor.levels.len();
            let is_it = |at: &usize| factor.level(*at).is_some_and(|level| level.name == *name);
            (0..all).find(is_it).unwrap_or(all)
        })
        .collect()
}

/// The `linerate measure` command for such a trial.
fn measure(at: &LevelTable, peer: &str) -> String {
    let workload = at.workload.as_deref().unwrap_or_default();
    let mut words = vec![
        "linerate measure".to_owned(),
        quoted(workload),
        quoted(peer),
    ];
    let text = |word: &Word| match word {
        Word::List(list) => {
            let each: Vec<String> = list.iter().map(Word::to_string).collect();
            each.join(",")
        }
        word => word.to_string(),
    };
    for (option, word) in &at.options {
        match word {
            Word::Switch(true) => words.push(quoted(&format!("--{option}"))),
            Word::Switch(false) => {}
            word => words.push(quoted(&format!("--{option}={}", text(word)))),
        }
    }
    let address = at.address.as_deref().filter(|text| !text.starts_with('@'));
    words.extend(address.map(|address| quoted(&format!("--address={address}"))));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use linerate_analysis::experiment::judge;
    use linerate_analysis::made_up;
    use linerate_analysis::record::{Earlier, Record};
    use linerate_model::build;
    use linerate_model::known::Known;

    use super::*;

    fn seen(records: &[Record]) -> LabData {
        LabData::of(records)
    }

    #[test]
    fn settings_that_differ_stand_apart_from_those_that_are_the_same() {
        let (local, mut remote) = build::veth_pair();
        remote.nics[0].mtu = Known::Value(9000);
        let records = [Record::Hosts {
            local: Box::new(local),
            remote: Box::new(remote),
        }];
        let header = made_up::header(1, 0);
        let of_lab = made_up::experiment("flows");
        let document = judge::document(&header, &of_lab).expect("an experiment");
        let page = both_hosts(&document, &header, &seen(&records));
        let (differ, same) = page.split_once("<details>").expect("both parts");
        assert!(differ.contains("<code>nic/mtu</code>"), "{differ}");
        assert!(differ.contains("<div>9000</div>"));
        assert!(same.contains("<code>nic/kind</code>") && !differ.contains("nic/kind"));
        assert!(
            !page.contains("nics/near0"),
            "names of interfaces differ always"
        );
    }

    /// An experiment that steers six queues of this host, with an earlier run as a level.
    fn of_many_queues() -> Vec<Record> {
        let text = "title = \"t\"\nworkload = \"stream\"\n[[factors]]\nname = \"day\"\n\
                    levels = [{ name = \"now\" }, { name = \"then\", run = \"old\" }]\n\
                    [[factors]]\nname = \"steering\"\nsetting = \"nic/@/queue/rx-*/rps-cpus\"\non = \"local\"\n\
                    levels = [\"@none\", \"0-3\"]\n";
        let host = |nic: &str, mtu| {
            let host = build::host().nodes(1, 4);
            Box::new(
                host.nic(nic, |nic| {
                    nic.queues(&[0, 1, 2, 3, 0, 1])
                        .with(|nic| nic.mtu = Known::Value(mtu))
                })
                .sysctl("net.ipv4.tcp_sack", &mtu.to_string())
                .build(),
            )
        };
        vec![
            Record::Lab {
                experiment: Box::new(
                    linerate_analysis::experiment::definition::parse(text)
                        .expect("a sound experiment"),
                ),
                include_way_in: false,
                own_hosts: false,
            },
            Record::Hosts {
                local: host("near0", 1500),
                remote: host("far0", 1500),
            },
            Record::Earlier(Box::new(Earlier {
                factor: 0,
                level: 1,
                run: "old".to_owned(),
                header: made_up::header(1, 0),
                local: host("near0", 9000),
                remote: host("far0", 1500),
                trials: Vec::new(),
            })),
        ]
    }

    #[test]
    fn settings_of_many_queues_are_shown_shortly_and_all_of_them_when_they_are_asked_for() {
        let records = of_many_queues();
        let header = made_up::header(1, 0);
        let document = judge::document(&header, &records).expect("an experiment");
        let page = changed(&document, &header, &seen(&records));
        let (shown, all) = page.split_once("<details>").expect("both tables");
        assert_eq!(shown.matches("and 2 more, below").count(), 2, "{shown}");
        assert!(!shown.contains("rx-5/"));
        assert!(all.starts_with("<summary>All 12 settings"), "{all}");
        for queue in 0..6 {
            let key = format!("<code>nic/near0/queue/rx-{queue}/rps-cpus</code>");
            assert_eq!(all.matches(&key).count(), 2, "{all}");
        }
        assert!(!all.contains("more"), "{all}");
    }

    #[test]
    fn what_an_earlier_runs_hosts_were_set_to_is_told_setting_by_setting() {
        let page = then_and_now(&seen(&of_many_queues()));
        assert!(
            page.starts_with("<details><summary>day then: 2 settings differed"),
            "{page}"
        );
        let row = |key: &str| {
            let (_, rest) = page.split_once(key).expect("a row");
            rest.split("</tr>").next().unwrap_or_default().to_owned()
        };
        let mtu = row("<code>nic/near0/mtu</code>");
        assert!(mtu.contains("here") && mtu.contains("9000") && mtu.contains("1500"));
        assert!(row("<code>sysctl/net.ipv4.tcp_sack</code>").contains("here"));
    }

    #[test]
    fn of_far_too_many_settings_the_page_says_how_many_it_leaves_out() {
        let rows: Vec<Vec<String>> = (0..ROWS_MAX + 7).map(|at| vec![at.to_string()]).collect();
        let page = unfolded("all", "all", &["setting"], &rows);
        assert_eq!(page.matches("scope=\"row\"").count(), ROWS_MAX);
        assert!(page.contains("<p>7 more are in the run's records only.</p>"));
    }

    #[test]
    fn a_run_between_hosts_of_its_own_is_repeated_as_a_person_typed_it() {
        let mut header = made_up::header(7, 0);
        let typed = [
            "linerate",
            "lab",
            "run",
            "my file.toml",
            "--step=inside",
            "netns:far",
        ];
        header.command = typed.map(str::to_owned).to_vec();
        let mut own = LabData::default();
        assert_eq!(
            command(&header, &own),
            "linerate lab run 'my file.toml' netns:far --seed 7"
        );
        own.own_hosts = true;
        assert_eq!(
            command(&header, &own),
            "linerate lab run 'my file.toml' --seed 7"
        );
        header.command.push("--seed=9".to_owned());
        assert!(command(&header, &own).ends_with("--seed=9"));
    }

    #[test]
    fn a_trial_is_measured_again_by_its_own_options() {
        let records = made_up::experiment("flows");
        let seen = seen(&records);
        let experiment = seen.experiment.as_deref().expect("the records hold one");
        let cell = places(experiment, &["12".to_owned()]);
        assert_eq!(cell, [1]);
        let line = measure(&experiment.at(&cell), &made_up::header(1, 0).peer);
        assert_eq!(line, "linerate measure stream netns:far --flows=12");
    }
}
