//! Entry points of the fuzz targets (`fuzz/` at the root of the repository): arbitrary bytes as a remote end, a
//! plan file, a stored run or a host as JSON, and everything that is then computed and printed.
//! Only with the feature `fuzz`.

mod edits;

use std::path::PathBuf;
use std::time::Duration;

pub use edits::facts;
use linerate_analysis::record::{Header, Record, SCHEMA, StoredRun};
use linerate_analysis::{experiment, proof};
use linerate_channel::frame::{Decoder, encode};
use linerate_host::fuzz::{PROFILES, judge};
use linerate_model::build;
use linerate_model::finding::{Context, Diagnosis};
use linerate_model::greeting::token_in;
use linerate_model::host::Host;
use linerate_model::ids::{CpuSet, NicName, PciAddress};
use linerate_model::pairing::Pairing;
use linerate_model::peer_address::PeerAddress;
use linerate_model::plan::{End, Plan};
use linerate_model::protocol::{Request, request_bytes_max};
use linerate_model::qos::{
    Manager, ManagerKind, Mechanism, Qos, manager_files, manager_notes, plan as qos_plan,
};
use linerate_model::rules::diagnose;
use linerate_model::sample::Sample;
use linerate_model::setting::{
    QdiscSpec, SettingKey, Settings, class_rule_words, parse_class_rules,
};
use linerate_model::talk::{AgentTalk, Lines, answer};
use linerate_model::units::{BitRate, Bytes, Nanoseconds};
use linerate_model::watch::Watch;
use linerate_report::doctor::{CheckedHost, doctor_json, doctor_junit, doctor_sarif, doctor_text};
use linerate_report::metrics::{Exposition, doctor_metrics};
use linerate_report::{self as report, fill, flat};
use linerate_runtime::endpoint::peer::reply_from;
use linerate_store as store;
use linerate_traffic::iperf3::{Account, Header as DatagramHeader};
use linerate_traffic::iperf3_protocol::{
    COOKIE_BYTES, ClientTalk, Cookie, Frame, Parameters, Results, ServerTalk,
};

use crate::metrics::provenance;
use crate::prove::intent;
use crate::qos::{parse_file, stored};

/// What strangers send to a listening agent, and lines that people paste: frames, pairing lines, greetings.
pub fn channel(bytes: &[u8]) {
    let mut decoder = Decoder::default();
    let cut = bytes.first().map_or(1, |&byte| usize::from(byte) + 1);
    for piece in bytes.chunks(cut) {
        decoder.push(piece);
        while let Ok(Some(frame)) = decoder.next_frame() {
            let mut again = Vec::new();
            encode(frame.kind, &frame.payload, &mut again);
            let mut second = Decoder::default();
            second.push(&again);
            assert_eq!(second.next_frame(), Ok(Some(frame)));
        }
    }
    if let Some(greeting) = bytes.first_chunk() {
        let _ = token_in(greeting);
    }
    if let Ok(text) = str::from_utf8(bytes) {
        if let Ok(pairing) = text.parse::<Pairing>() {
            assert_eq!(pairing.to_string().parse(), Ok(pairing));
        }
        let _ = text.parse::<PeerAddress>();
    }
}

/// A host as JSON, as a remote end or a stored run gives it: analyzed, bounded, and shown in every form.
pub fn host_json(bytes: &[u8]) {
    if let Ok(host) = serde_json::from_slice::<Host>(bytes) {
        judge(&host, None);
        show(&host, None, None);
    }
}

/// Shows a host and its findings in every form.
fn show(host: &Host, watch: Option<&Watch>, sample: Option<&Sample>) {
    let _ = report::map_json(host);
    let _ = report::map_text(host);
    let _ = report::map_dot(host);
    let _ = report::map_svg(host);
    let _ = flat::facts(host);
    let _ = flat::changes(host, host);
    let diagnosis = diagnose(&Context {
        end: End::Local,
        host,
        nic: None,
        other: Some(host),
        sample,
        watch,
        profile: PROFILES[0],
        owns_shapers: true,
    });
    show_diagnosis(&diagnosis, watch);
}

fn show_diagnosis(diagnosis: &Diagnosis, watch: Option<&Watch>) {
    let visit = CheckedHost {
        profile: PROFILES[0],
        watched_s: watch.map(|watch| watch.span_ns.as_secs_f64()),
        is_captured: false,
        diagnosis,
    };
    let _ = serde_json::to_value(doctor_json(&visit));
    let _ = doctor_text(&visit, true, Some(80));
    let _ = doctor_sarif(&visit);
    let _ = doctor_junit(&visit);
    let metrics = doctor_metrics(&visit, None, &provenance());
    let _ = metrics.render(Exposition::OpenMetrics);
}

/// Bytes of the control channel, in pieces of a size that the first byte gives: the agent's side
/// takes its lines as requests, the controller's as replies.
pub fn protocol(bytes: &[u8]) {
    let Some((size, stream)) = bytes.split_first() else {
        return;
    };
    let asked = [
        Request::ReadHost,
        Request::ReadSettings(Vec::new()),
        Request::Undo,
        Request::Commit,
        Request::Start,
        Request::EndEarly,
        Request::Abort,
    ];
    let mut lines = Lines::default();
    let mut agent = AgentTalk::new("0.0.0");
    for piece in stream.chunks(usize::from(*size).max(1)) {
        if lines.push(piece, request_bytes_max).is_err() {
            return;
        }
        while let Some(line) = lines.next_line() {
            let _ = agent.on_line(&line);
            if let Ok(reply) = reply_from(&line) {
                for request in &asked {
                    let _ = answer(request, reply.clone());
                }
            }
        }
    }
}

/// Bytes of an iperf3 client or server, in pieces of a size that the first byte gives: a cookie, JSON with a length
/// prefix as parameters and as results, states in any order, and datagrams. What is understood is
/// written and read again.
pub fn iperf3(bytes: &[u8]) {
    let Some((size, stream)) = bytes.split_first() else {
        return;
    };
    if let Some(cookie) = stream.first_chunk::<COOKIE_BYTES>() {
        let _ = Cookie::read(cookie);
    }
    let mut frame = Frame::new(Frame::PARAMETERS_MAX);
    for piece in stream.chunks(usize::from(*size).max(1)) {
        if frame.push(piece).is_err() {
            break;
        }
    }
    let json = frame.into_body();
    if let Ok(asked) = Parameters::read(&json) {
        assert_eq!(Parameters::read(asked.write().as_bytes()), Ok(asked));
    }
    if let Ok(told) = Results::read(&json) {
        let again = Results::read(told.write().as_bytes()).expect("our own words");
        assert_eq!(again.streams.len(), told.streams.len());
    }
    let (mut talk, mut account) = (ClientTalk::default(), Account::default());
    for &byte in stream {
        let _ = talk.hear(byte);
        let _ = ServerTalk::Running.hear(byte);
    }
    for datagram in stream.chunks(16) {
        let wide = size % 2 == 0;
        if let Some(header) = DatagramHeader::read(datagram, wide) {
            account.take(header, Duration::from_secs(u64::from(*size)));
        }
    }
    let _ = account.record();
}

/// A plan file; and the change to it from other settings and back, which must end where it began.
pub fn plan(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(experiment) = experiment::definition::parse(&text) {
        let laid = experiment::judge::laid(&experiment, &[]);
        let _ = laid.map(|laid| laid.confounding(&experiment));
        assert_eq!(experiment.quick().check(), Ok(()), "the short form is none");
    }
    let Ok((local, peer)) = intent::wanted_settings(&text) else {
        return;
    };
    for wanted in [local, peer] {
        let now: Settings = wanted
            .iter()
            .zip(wanted.values().rev())
            .map(|((key, _), value)| (key.clone(), value.clone()))
            .collect();
        if let Ok(plan) = Plan::towards(&now, &wanted) {
            let there = plan.apply(&now);
            let back = there.and_then(|there| plan.undo().apply(&there));
            assert_eq!(back, Ok(now), "undo does not restore the settings");
        }
    }
}

/// The name of a setting and, after a line's end, a value of it; and the other small texts that people
/// and remote end write: sizes, rates, times, CPUs, addresses.
pub fn setting_key(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (name, value) = text.split_once('\n').unwrap_or((&text, ""));
    if let Ok(key) = name.parse::<SettingKey>() {
        assert_eq!(key.to_string().parse(), Ok(key.clone()), "{key}");
        let _ = key.spec();
        let _ = key.parse_value(value);
    }
    let _ = (name.parse::<Bytes>(), name.parse::<BitRate>());
    let _ = (name.parse::<Nanoseconds>(), name.parse::<NicName>());
    let _ = (name.parse::<PeerAddress>(), name.parse::<PciAddress>());
    if let Ok(cpus) = name.parse::<CpuSet>() {
        assert_eq!(cpus.to_string().parse(), Ok(cpus.clone()), "{cpus}");
        let _ = CpuSet::from_mask(name);
    }
}

/// The words of a qdisc hierarchy, class rules, and a file of classes: what is understood is written and read again, and a file
/// is planned on a made-up host by each mechanism.
pub fn qos(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Some(spec) = QdiscSpec::parse(&text) {
        let words = spec.to_string();
        assert_eq!(QdiscSpec::parse(&words).as_ref(), Some(&spec), "{words}");
    }
    if let Some(rules) = parse_class_rules(&text) {
        let words = class_rule_words(&rules);
        assert_eq!(parse_class_rules(&words), Some(rules), "{words}");
    }
    let Ok(qos) = parse_file(&text, "fuzz") else {
        return;
    };
    let host = build::host().nic(qos.interface.as_str(), |nic| nic).build();
    for mechanism in [
        None,
        Some(Mechanism::Htb),
        Some(Mechanism::Mqprio),
        Some(Mechanism::Dcb),
        Some(Mechanism::Offload),
    ] {
        let asked = Qos {
            mechanism: mechanism.or(qos.mechanism),
            ..qos.clone()
        };
        let Ok(plan) = qos_plan(&asked, &host, |_| true) else {
            continue;
        };
        for planned in &plan.settings {
            let key = planned.key.parse::<SettingKey>();
            let value = key.as_ref().map(|key| key.parse_value(&planned.value));
            assert!(matches!(value, Ok(Ok(_))), "{planned:?}");
        }
    }
    for name in [ManagerKind::Networkd, ManagerKind::NetworkManager] {
        let manager = Manager {
            name,
            interface: qos.interface.clone(),
            configuration: None,
            path: String::new(),
        };
        let _ = manager_notes(&manager, &manager_files(&qos, &manager));
    }
}

/// The records of a stored run, as they are and with the right checksums; then the run's document, page
/// and text.
pub fn store(bytes: &[u8]) {
    let _ = store::parse_records(bytes);
    let with_sums: String = String::from_utf8_lossy(bytes)
        .lines()
        .map(store::with_checksum)
        .collect();
    if let Ok((records, torn)) = store::parse_records(with_sums.as_bytes()) {
        show_run(records, torn);
    }
}

fn show_run(records: Vec<Record>, torn: bool) {
    let Ok(nic) = "eth2".parse::<NicName>() else {
        return;
    };
    let header = Header {
        schema: SCHEMA.to_owned(),
        version: "0.0.0".to_owned(),
        created_unix_s: u64::MAX,
        command: Vec::new(),
        seed: 1,
        trials: 3,
        peer: "local".to_owned(),
        local_nic: nic.clone(),
        remote_nic: nic,
        address: "192.0.2.1".to_owned(),
        copy_bit_per_s: Some(1),
    };
    let document = proof::document(&header, &records);
    let _ = report::render_text(&document, 80, true);
    let _ = serde_json::to_value(&document);
    if let Ok(document) = experiment::judge::document(&header, &records) {
        let _ = serde_json::to_value(&document);
        let _ = report::lab_page(&document, &header, &report::LabData::of(&records));
    }
    let _ = stored::page_of_records(&records, &header);
    let _ = crate::failover::stored::page_of_records(&records, &header);
    let _ = crate::mesh::stored::page_of_records(&records, &header);
    let stored = StoredRun {
        folder: PathBuf::from("run"),
        header,
        records,
        torn,
    };
    if let Some(data) = fill::report_data(&stored, &document) {
        let _ = report::render_page(&data);
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_panic_what_reads_them(bytes in vec(any::<u8>(), 0..600)) {
            channel(&bytes);
            host_json(&bytes);
            protocol(&bytes);
            iperf3(&bytes);
            plan(&bytes);
            setting_key(&bytes);
            qos(&bytes);
            store(&bytes);
        }

        #[test]
        fn no_frame_panics_a_listening_agent(
            cut in any::<u8>(),
            frames in vec((0u8..11, vec(any::<u8>(), 0..40)), 0..9),
        ) {
            let mut bytes = vec![cut];
            for (kind, payload) in frames {
                bytes.extend([kind, 0, u8::try_from(payload.len()).expect("short")]);
                bytes.extend(payload);
            }
            channel(&bytes);
            // The first byte is that of a frame, too.
            channel(&bytes[1..]);
        }

        #[test]
        fn no_file_of_classes_panics(
            classes in vec(
                "(vlan = [0-9]{1,4}\n)?(address = \"[0-9.:/]{1,16}\"\n)?(priority = [0-9]\n|dscp = \"(af21|ef|[0-9]{2})\"\n|ports = \\[[0-9]{1,5}\\]\n|mark = [0-9]\n)?(limit = \"([0-9]{1,4}mbit|[0-9]{1,3} %|none)\"\n)?(guarantee = \"[0-9]{1,3}mbit\"\n)?",
                0..5,
            ),
        ) {
            let tables = classes.iter().enumerate();
            let tables = tables.map(|(number, class)| format!("[[class]]\nname = \"c{number}\"\n{class}"));
            let tables: String = tables.collect();
            qos(format!("[qos]\ninterface = \"eth0\"\n{tables}").as_bytes());
        }

        #[test]
        fn no_words_of_classes_panic(
            words in vec("htb|mqprio|default|num_tc|map|queues|class|rate|ceil|1:|1:10|root|parent|leaf|fq_codel|pfifo|limit|[0-9]{1,3}|[0-9]{1,3}[mkg]bit|priority|vlan|dscp|->|;", 0..24),
        ) {
            qos(words.join(" ").as_bytes());
        }

        #[test]
        fn no_pairing_line_panics(
            line in "tls://[a-z0-9.:\\[\\]-]{0,20}#[0-9a-f]{63,65}\\.[0-9a-f]{31,33}\\.[0-9]{0,13}",
        ) {
            channel(line.as_bytes());
        }
    }
}
