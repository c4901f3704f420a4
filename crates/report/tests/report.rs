//! The reports of a run, made from the sample under `fixtures/report`: what a reader must find in them,
//! and that nothing a host reports can steer a page or a terminal. How the page looks and behaves in a real
//! browser is tested in `web/test`.

#![expect(clippy::disallowed_methods, reason = "tests read fixtures")]

use std::path::PathBuf;

use linerate_analysis::text::visible::visible_styled;
use linerate_model::host::Host;
use linerate_model::ids::CpuSet;
use linerate_model::known::{Cause, Known};
use linerate_report::data::{Arm, ReportData, SCHEMA};
use linerate_report::{
    Layout, MAP_SCHEMA, PathEnd, map_dot, map_json, map_text, path_svg, render_page, render_text,
};
use serde_json::Value;

fn fixture(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/report")
        .join(name);
    std::fs::read_to_string(&path).expect("the fixture is in the repository")
}

fn sample() -> ReportData {
    serde_json::from_str(&fixture("sample.json")).expect("the sample is report data")
}

fn physical_host() -> Host {
    serde_json::from_str(&fixture("physical-host.json")).expect("the fixture is a host")
}

const HOSTILE: &str =
    "</script><script>alert(1)</script>\"'&<img src=x onerror=alert(1)>\u{1b}[2J\u{202e}\0";

/// Everything between `<body>` and the data: what Rust wrote for people.
fn readable(page: &str) -> &str {
    let start = page.find("<body>").expect("a body");
    let end = page.find("<script").expect("the data follows");
    &page[start..end]
}

/// The data that a page holds.
fn data_of(page: &str) -> Value {
    let (_, rest) = page.split_once("id=\"linerate-data\">").expect("data");
    let (json, _) = rest.split_once("</script>").expect("to its end");
    serde_json::from_str(json).expect("whole JSON")
}

/// Text without its line breaks.
fn flat(text: &str) -> String {
    let words: Vec<&str> = text
        .split(['\n', ' ', '│'])
        .filter(|word| !word.is_empty())
        .collect();
    words.join(" ")
}

#[test]
fn report_data_survives_the_store() {
    let data = sample();
    assert_eq!(data.schema, SCHEMA);
    let text = serde_json::to_string(&data).expect("plain data");
    assert_eq!(
        serde_json::from_str::<ReportData>(&text).expect("what was written"),
        data
    );
}

#[test]
fn the_page_says_everything_essential_without_its_script() {
    let data = sample();
    let page = render_page(&data);
    let text = readable(&page);
    let rates = data
        .trials
        .iter()
        .filter(|trial| trial.arm == Arm::With)
        .count();
    assert!(rates > 0, "the sample holds trials with all fixes");
    for remedy in &data.prove.remedies {
        assert!(text.contains(&remedy.rule), "{}", remedy.rule);
    }
    for finding in &data.prove.findings {
        for evidence in &finding.evidence {
            assert!(text.contains(&evidence.value), "{}", evidence.value);
        }
    }
    for words in [
        "injected and found",
        "not tried",
        "not significant",
        "shared-kernel",
        "taskset -c 5 iperf3",
        "20261121",
    ] {
        assert!(text.contains(words), "the page does not say {words}");
    }
    assert_eq!(
        text.matches("<table").count(),
        text.matches("<caption>").count()
    );
}

#[test]
fn the_page_may_load_nothing_and_run_only_its_own_script() {
    let page = render_page(&sample());
    assert!(page.contains("default-src 'none'; script-src 'sha256-"));
    let policy = page.split("script-src").nth(1).expect("a policy");
    let scripts = policy.split(';').next().expect("its sources");
    assert!(!scripts.contains("unsafe"), "{scripts}");
    // The name of the SVG namespace is no address that anything is loaded from.
    let text = readable(&page).replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    for loader in ["http", "src=", "url(", "@import", "<link"] {
        assert!(!text.contains(loader), "{loader}");
    }
    let (before_bundle, _) = page.rsplit_once("<script>").expect("the bundle is last");
    assert_eq!(
        before_bundle.matches("<script").count(),
        1,
        "the data and nothing else"
    );
}

#[test]
fn hostile_text_from_a_host_stays_text() {
    let mut data = sample();
    data.title = HOSTILE.to_owned();
    data.wire = HOSTILE.to_owned();
    data.created = HOSTILE.to_owned();
    data.linerate_version = HOSTILE.to_owned();
    for end in [&mut data.local, &mut data.remote] {
        end.name = HOSTILE.to_owned();
        end.host.identity.hostname = Known::Value(HOSTILE.to_owned());
        end.host.identity.kernel_release = Known::unknown(Cause::Unreadable, HOSTILE, HOSTILE);
        for value in end.host.sysctls.values_mut() {
            *value = Known::Value(HOSTILE.to_owned());
        }
        let nic = &mut end.host.nics[0];
        nic.name = "<b>\"'&\u{202e}".parse().expect("the kernel allows it");
        nic.driver = Known::Value(HOSTILE.to_owned());
        end.nic = Some(nic.name.clone());
    }
    data.prove.limit.what = HOSTILE.to_owned();
    data.prove.ceiling.reason = HOSTILE.to_owned();
    data.prove.planted = vec![HOSTILE.to_owned()];
    for remedy in &mut data.prove.remedies {
        remedy.rule = HOSTILE.to_owned();
        remedy.note = Some(HOSTILE.to_owned());
        remedy.changes.clear();
        remedy.setting = HOSTILE.to_owned();
    }
    for finding in &mut data.prove.findings {
        finding.summary = HOSTILE.to_owned();
        finding.subject = HOSTILE.to_owned();
        finding.evidence[0].path = HOSTILE.to_owned();
    }
    data.ceilings[0].reason = HOSTILE.to_owned();
    data.reproduce[0].command = HOSTILE.to_owned();
    data.trials[0].label = HOSTILE.to_owned();

    let page = render_page(&data);
    let value = data_of(&page);
    let text = readable(&page);
    for bad in ["<img", "<script", "<b>", "\u{1b}", "\u{202e}", "\0"] {
        assert!(!text.contains(bad), "{bad:?} got through");
    }
    assert_eq!(value["report"]["title"], HOSTILE);

    let terminal = render_text(&data.prove, 80, false);
    assert!(
        !terminal.contains(['\u{1b}', '\u{202e}', '\0']),
        "{terminal}"
    );
}

#[test]
fn the_page_stands_what_is_not_a_number_and_what_is_not_there() {
    let mut data = sample();
    data.prove.before.rate_bit_per_s = f64::NAN;
    data.prove.after.high_bit_per_s = f64::INFINITY;
    data.prove.ceiling.bit_per_s = None;
    data.prove.ceiling.share = None;
    data.prove.remedies[0]
        .effect
        .as_mut()
        .expect("an effect")
        .low = f64::NAN;
    data.trials[0].remedy_index = Some(99);
    data.trials[1].at_s.clear();
    data.trials[2].first_kept = usize::MAX;
    data.local.nic = None;
    data.remote.host.cpus.clear();
    data.remote.host.nodes.clear();
    let page = render_page(&data);
    assert!(!readable(&page).contains("NaN"));
    assert!(readable(&page).contains("The ceiling is unknown"));
    let text = render_text(&data.prove, 80, true);
    assert!(!text.contains("NaN") && text.contains("unknown"), "{text}");

    data.trials.clear();
    data.prove.remedies.clear();
    data.prove.findings.clear();
    data.ceilings.clear();
    assert!(render_page(&data).contains("No fix was tried."));
}

#[test]
fn a_ceiling_below_the_measured_rate_is_called_wrong() {
    let mut data = sample();
    data.prove.ceiling.share = Some(1.2);
    assert!(render_page(&data).contains("is wrong: the measurement reached 120.0 % of it"));
    assert!(flat(&render_text(&data.prove, 80, false)).contains("this ceiling is wrong"));
    // Not by what a right one may be exceeded by.
    data.prove.ceiling.share = Some(1.002);
    data.prove.ceiling.tolerance = 0.003;
    assert!(!render_page(&data).contains("is wrong: the measurement"));
    assert!(!flat(&render_text(&data.prove, 80, false)).contains("this ceiling is wrong"));
}

#[test]
fn a_long_trial_is_thinned_and_keeps_its_mean() {
    let mut data = sample();
    let trial = &mut data.trials[0];
    trial.at_s = (1..=6000).map(f64::from).collect();
    trial.rate_bit_per_s = (1..=6000).map(f64::from).collect();
    trial.first_kept = 15;
    let value = data_of(&render_page(&data));
    let shown = &value["report"]["trials"][0];
    let rates: Vec<f64> = serde_json::from_value(shown["rate_bit_per_s"].clone()).expect("rates");
    assert_eq!(rates.len(), 600);
    assert!((rates.iter().sum::<f64>() / 600.0 - 3000.5).abs() < 1e-6);
    assert_eq!(shown["first_kept"], 2);
    assert_eq!(shown["at_s"][599], 6000.0);
    // Its chart is narrower than that.
    let mut charts = value["drawn"].as_array().expect("a list").iter();
    let drawn = charts.find_map(|chart| {
        let mut rows = chart["data"].as_array()?.iter();
        rows.find(|row| row["at"].as_array().is_some_and(|at| at.len() > 100))
    });
    let rates = &drawn.expect("the trial is drawn")["rate"];
    let rates: Vec<f64> = serde_json::from_value(rates.clone()).expect("rates");
    assert_eq!(rates.len(), 300);
    assert!((rates.iter().sum::<f64>() / 300.0 * 1e9 - 3000.5).abs() < 0.5);
}

#[test]
fn every_place_for_a_chart_has_one_with_data_and_what_is_not_measured_has_none() {
    let mut data = sample();
    let places = |data: &ReportData| {
        let page = render_page(data);
        let charts = data_of(&page)["drawn"].as_array().expect("a list").clone();
        for (index, chart) in charts.iter().enumerate() {
            assert!(
                !chart["data"].as_array().expect("a list").is_empty(),
                "{chart}"
            );
            assert!(page.contains(&format!("data-chart=\"{index}\"")));
        }
        assert_eq!(page.matches("data-chart=").count(), charts.len());
        charts.len()
    };
    // Bars, effects, trials, before and after, six fixes, CPU cost.
    assert_eq!(places(&data), 11);
    data.trials.clear();
    assert_eq!(places(&data), 3);
    for remedy in &mut data.prove.remedies {
        remedy.effect = None;
        remedy.without_bit_per_s.clear();
        remedy.with_bit_per_s.clear();
    }
    assert_eq!(places(&data), 1);
}

#[test]
fn the_terminal_says_the_verdict_within_its_width_and_without_colour_if_asked() {
    let prove = sample().prove;
    for width in [40, 60, 80, 100] {
        let text = render_text(&prove, width, false);
        assert!(!text.contains('\u{1b}'));
        for line in text
            .lines()
            .filter(|line| !line.starts_with("run") && !line.starts_with("report"))
        {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
        let flat = flat(&text);
        for words in [
            "Gb/s, 8.0x",
            "3 of 3 injected faults found",
            "not tried",
            "not significant",
            "no setting differs from the baseline",
        ] {
            assert!(
                flat.contains(words),
                "{width}: {words} is missing in\n{text}"
            );
        }
    }
    // Color adds nothing but color.
    let plain = render_text(&prove, 80, false);
    let coloured = render_text(&prove, 80, true);
    assert!(coloured.contains("\u{1b}[32m") && coloured.contains("\u{1b}[2m"));
    // A terminal gets every style as it is.
    assert_eq!(visible_styled(&coloured), coloured);
    let mut stripped = String::new();
    for (index, part) in coloured.split('\u{1b}').enumerate() {
        let text = if index == 0 {
            part
        } else {
            part.split_once('m').expect("a colour").1
        };
        stripped.push_str(text);
    }
    assert_eq!(stripped, plain);
}

#[test]
fn the_end_state_says_whether_fixes_that_helped_stay_applied() {
    let mut prove = sample().prove;
    assert!(prove.remedies.iter().any(|remedy| remedy.kept));
    let undone = flat(&render_text(&prove, 80, false));
    assert!(
        undone.contains("all changes were rolled back (--undo)"),
        "{undone}"
    );
    prove.keeps = true;
    let kept = flat(&render_text(&prove, 80, false));
    assert!(
        kept.contains("stay applied") && kept.contains("no other setting"),
        "{kept}"
    );
}

#[test]
fn the_tabs_within_a_sysctl_are_blanks_on_the_page() {
    let mut data = sample();
    let name = "net.ipv4.tcp_rmem".to_owned();
    let value = Known::Value("4096\t131072\t6291456".to_owned());
    data.local.host.sysctls.insert(name, value);
    let page = render_page(&data);
    let text = readable(&page);
    assert!(text.contains("4096 131072 6291456"));
    assert!(!text.contains("u{9}"));
}

#[test]
fn a_host_that_could_not_be_restored_is_loud() {
    let mut prove = sample().prove;
    prove.restored = false;
    let text = render_text(&prove, 80, false);
    assert!(text.contains("NOT RESTORED: run `linerate tune"), "{text}");
}

#[test]
fn the_text_map_fits_80_columns_and_names_the_cause_of_every_unknown() {
    for host in [physical_host(), sample().local.host] {
        let text = map_text(&host);
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert!(!text.contains("? ()"));
    }
    let text = map_text(&physical_host());
    let flat = flat(&text);
    for words in [
        "node 1: CPUs 8-15",
        "limited by the link at 0000:16:02.0",
        "rx-0 to rx-5: irqs 120-125 -> CPUs 8-13, one each",
        "tx-0 to tx-7: irq and its CPUs ? (permission denied), XPS CPUs 0-7",
        "nvme0n1: NUMA node unknown",
        "RDMA mlx5_0",
        "8.0 GT/s x8 (max ? (unreadable) x16)",
    ] {
        assert!(flat.contains(words), "{words} is missing in\n{text}");
    }
}

#[test]
fn the_json_map_has_null_and_a_gap_for_every_unknown_and_nothing_else() {
    let host = physical_host();
    let map = map_json(&host);
    assert_eq!(map["schema"], MAP_SCHEMA);
    assert_eq!(map["host"]["nics"][0]["queues"][0]["cpus"], "8");
    assert_eq!(
        map["host"]["nics"][0]["pcie"]["available_bit_per_s"],
        63_008_000_000_u64
    );
    assert_eq!(
        map["host"]["nics"][0]["pcie"]["links"][1]["transfer_max_mt_per_s"],
        Value::Null
    );
    let text = map["host"].to_string();
    assert!(!text.contains("\"unknown\""), "a gap is left in the host");
    let gaps = map["gaps"].as_array().expect("a list");
    let raw = serde_json::to_string(&host).expect("plain data");
    let mut fields = 0;
    let mut without = 0;
    for gap in gaps {
        let object = gap.as_object().expect("an object");
        assert!(
            object["path"].is_string()
                && object["reason"].is_string()
                && object["cause"].is_string()
        );
        let own = object["fields"].as_array().expect("a list");
        (fields, without) = (fields + own.len(), without + usize::from(own.is_empty()));
        for field in own {
            let field = field.as_str().expect("a pointer");
            assert_eq!(map["host"].pointer(field), Some(&Value::Null), "{field}");
        }
    }
    assert_eq!(fields + without, raw.matches("\"unknown\":").count());
    assert!(gaps.len() < fields, "nothing was gathered");
}

#[test]
fn a_sysctl_that_is_called_unknown_is_not_taken_for_a_gap() {
    let mut host = physical_host();
    host.sysctls
        .insert("unknown".to_owned(), Known::Value("denied".to_owned()));
    host.sysctls
        .insert("path".to_owned(), Known::Value("x".to_owned()));
    host.sysctls
        .insert("reason".to_owned(), Known::Value("y".to_owned()));
    host.sysctls.insert("a/b".to_owned(), Known::not_asked("z"));
    let map = map_json(&host);
    assert_eq!(map["host"]["sysctls"]["unknown"], "denied");
    assert!(
        map["gaps"]
            .as_array()
            .expect("a list")
            .iter()
            .any(|gap| gap["fields"][0] == "/sysctls/a~1b")
    );
}

#[test]
fn the_dot_map_quotes_what_a_host_says() {
    let mut host = physical_host();
    host.nics[0].driver = Known::Value("x\"]; evil [label=\"\\".to_owned());
    let dot = map_dot(&host);
    assert!(dot.contains("x\\\"]; evil [label=\\\"\\\\"), "{dot}");
    assert!(dot.contains("\"nic/ens2f0np0/pcie/0000:16:02.0\""));
    // The graph itself and a cluster for each node.
    assert_eq!(dot.matches('{').count(), 1 + host.nodes.len());
}

#[test]
fn the_picture_is_well_formed_and_gives_the_cause_of_its_question_marks() {
    let host = physical_host();
    let (senders, none) = (CpuSet::one(linerate_model::ids::CpuId(8)), CpuSet::empty());
    let near = PathEnd {
        name: "storage7",
        host: &host,
        nic: None,
        sender_cpus: &senders,
        receiver_cpus: &none,
        hot: None,
    };
    let other = sample();
    let far = PathEnd {
        name: "<far>",
        host: &other.remote.host,
        nic: other.remote.nic.as_ref(),
        sender_cpus: &none,
        receiver_cpus: &none,
        hot: None,
    };
    let pictures = [
        path_svg(&near, None, Layout::Beside),
        path_svg(&near, Some((&far, "cable")), Layout::Beside),
        path_svg(&far, Some((&near, "cable")), Layout::Stacked),
    ];
    for svg in &pictures {
        assert!(svg.contains("8 S") && svg.contains("S sends: CPU 8"));
        assert!(
            svg.contains("permission denied: run as root"),
            "the cause of the unknown interrupts"
        );
        assert!(svg.contains("narrowest (filled): 63.01 Gb/s"));
        assert!(svg.contains("NUMA node ?"), "CPU 7 has no node");
        for tag in ["g", "title", "text", "svg"] {
            let (open, close) = (
                svg.matches(&format!("<{tag} ")).count() + svg.matches(&format!("<{tag}>")).count(),
                svg.matches(&format!("</{tag}>")).count(),
            );
            assert_eq!(open, close, "{tag}");
        }
    }
}

#[test]
fn a_machine_of_any_size_can_be_drawn() {
    let mut host = physical_host();
    let cpu = host.cpus[0].clone();
    host.cpus = (0..16_384)
        .map(|id| {
            let mut one = cpu.clone();
            one.id.0 = id;
            one
        })
        .collect();
    let queue = host.nics[0].queues[0].clone();
    host.nics[0].queues = (0..5000)
        .map(|index| {
            let mut one = queue.clone();
            one.index = index;
            one
        })
        .collect();
    let none = CpuSet::empty();
    let end = PathEnd {
        name: "large",
        host: &host,
        nic: None,
        sender_cpus: &none,
        receiver_cpus: &none,
        hot: None,
    };
    let svg = path_svg(&end, Some((&end, "cable")), Layout::Stacked);
    assert!(svg.contains("more not shown") && svg.contains("; 4988 more queues"));
    assert!(map_text(&host).contains("rx-0 to rx-4999"));
}

#[test]
fn a_run_without_a_difference_on_a_machine_with_other_work_is_inconclusive() {
    let mut data = sample();
    data.prove.after = data.prove.before.clone();
    for remedy in &mut data.prove.remedies {
        remedy.kept = false;
    }
    let first_line = |data: &ReportData| {
        let text = flat(&render_text(&data.prove, 100, false));
        text.split("before").next().unwrap_or_default().to_owned()
    };
    data.prove.cpu_other_work = Some(0.05);
    assert!(
        first_line(&data).contains("not significant"),
        "{}",
        first_line(&data)
    );
    data.prove.cpu_other_work = Some(0.97);
    let words = "inconclusive: CPUs 97 % busy with other work; try again when the machine is quiet";
    assert!(first_line(&data).contains(words), "{}", first_line(&data));
    let page = render_page(&data);
    let text = readable(&page);
    assert!(text.contains("<span class=\"times\">inconclusive</span>"));
    assert!(text.contains("Inconclusive: CPUs 97 % busy with other work"));
    // What was seen in spite of the other work stays.
    let mut seen = sample();
    seen.prove.cpu_other_work = Some(0.97);
    assert!(first_line(&seen).contains("8.0x"), "{}", first_line(&seen));
}

#[test]
fn an_effect_whose_interval_spans_more_than_ten_times_has_no_figures() {
    let mut data = sample();
    let remedy = &mut data.prove.remedies[1];
    let effect = remedy.effect.as_mut().expect("it was tried");
    (effect.low, effect.high, effect.relative) = (-0.6, 61.5, 12.25);
    let text = flat(&render_text(&data.prove, 100, false));
    assert!(text.contains("too noisy to tell"), "{text}");
    let page = render_page(&data);
    for text in [&text[..], readable(&page)] {
        assert!(!text.contains("13.2") && !text.contains("62.5"), "{text}");
    }
    let drawn = data_of(&page)["drawn"].to_string();
    assert!(drawn.contains("too noisy to tell, helped"));
}

#[test]
fn the_page_lists_its_sections_after_the_result() {
    let page = render_page(&sample());
    let text = readable(&page);
    let (result, rest) = text.split_once("<nav class=\"contents\"").expect("a list");
    assert!(result.contains("id=\"verdict\"") && !result.contains("<h2"));
    let (list, rest) = rest.split_once("</nav>").expect("its end");
    for heading in rest.split("<h2 id=\"").skip(1) {
        let (id, _) = heading.split_once('"').expect("an id");
        assert!(list.contains(&format!("href=\"#{id}\"")), "{id}");
    }
}

#[test]
fn evidence_of_the_bottleneck_that_a_finding_has_too_stands_there_only() {
    let mut data = sample();
    let shared = data.prove.findings[0].evidence[1].clone();
    data.prove.limit.evidence.push(shared.clone());
    let page = render_page(&data);
    assert_eq!(readable(&page).matches(&shared.path).count(), 1);
    assert!(readable(&page).contains("1 more figure with the <a href=\"#findings\">finding</a>"));
}
