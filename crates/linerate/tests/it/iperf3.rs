//! iperf3 at the other end: the document that its readers get, compared with the real one's, and the
//! server's own word for what it did.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use linerate_model::ids::NicName;
use linerate_model::known::{Cause, Known};
use linerate_model::units::{BitRate, Bytes, Nanoseconds};
use linerate_model::workload::{DatagramBatch, Direction, TrialSpec, Udp, Workload};
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::say::{Format, Say};
use linerate_runtime::endpoint::iperf3::{
    Iperf3Run, iperf3_json, measure_foreign, serve, test_document,
};
use linerate_traffic::iperf3::Iperf3Server;
use serde_json::Value;

use crate::assert_fits;

const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// What later versions of iperf3 added, which Debian's may not have.
const LATER: [&str; 9] = [
    "/start/fq_rate",
    "/start/timestamp/timemillisecs",
    "/start/test_start/bidir",
    "/start/test_start/fqrate",
    "/start/test_start/interval",
    "/start/test_start/gso",
    "/start/test_start/gro",
    "/intervals[]/streams[]/reorder",
    "/end/streams[]/sender/reorder",
];

fn iperf3_is_here() -> bool {
    let here = Command::new("iperf3").arg("--version").output().is_ok();
    if !here {
        eprintln!("SKIP: there is no iperf3");
    }
    here
}

fn free_port() -> SocketAddr {
    let free = TcpListener::bind((LOOPBACK, 0)).expect("a free port");
    free.local_addr().expect("bound")
}

/// A real server.
struct RealServer(Child);

impl RealServer {
    /// For one test.
    fn start(address: SocketAddr) -> Self {
        Self::start_with(address, &["-1"])
    }

    fn start_with(address: SocketAddr, more: &[&str]) -> Self {
        let port = address.port().to_string();
        let mut child = Command::new("iperf3")
            .args(["-s", "-p", &port, "--forceflush"])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it is here");
        wait_for_listening(&mut child);
        Self(child)
    }
}

/// Waits until a real server listens.
#[track_caller]
pub(crate) fn wait_for_listening(server: &mut Child) {
    let mut said = BufReader::new(server.stdout.take().expect("piped"));
    let mut line = String::new();
    while !line.contains("listening") {
        line.clear();
        let read = said.read_line(&mut line).expect("it talks");
        assert!(read > 0, "it ended before it listened");
    }
    // Its further output must be drained.
    thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
}

impl Drop for RealServer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a real client prints of a test with a real server.
fn real_document(arguments: &[&str]) -> Value {
    let address = free_port();
    let _server = RealServer::start(address);
    let done = Command::new("iperf3")
        .args(["-J", "-c", "127.0.0.1", "-p", &address.port().to_string()])
        .args(["-t", "2", "-i", "1"])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("it is here");
    serde_json::from_slice(&done.stdout).expect("JSON")
}

/// What we print of the same test.
fn our_document(spec: &TrialSpec) -> Value {
    let address = free_port();
    let _server = RealServer::start(address);
    let interrupt = Interrupt::listen().expect("signals");
    let measured = measure_foreign(spec, address, &interrupt).expect("it measures");
    iperf3_json(&Iperf3Run {
        sample: &measured.sample,
        foreign: Some(&measured.foreign),
        peer: address,
        began_unix_s: measured.began_unix_s,
        interval: Nanoseconds::from_millis(1_000),
    })
}

/// The type of each key of a document, whatever the lists' lengths.
fn types(value: &Value, path: &str, into: &mut BTreeMap<String, &'static str>) {
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "a flag",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(items) => {
            for item in items {
                types(item, &format!("{path}[]"), into);
            }
            "a list"
        }
        Value::Object(keys) => {
            for (key, value) in keys {
                types(value, &format!("{path}/{key}"), into);
            }
            "an object"
        }
    };
    into.insert(path.to_owned(), kind);
}

fn types_of(document: &Value) -> BTreeMap<String, &'static str> {
    let mut all = BTreeMap::new();
    types(document, "", &mut all);
    all
}

fn spec(direction: Direction, workload: Workload) -> TrialSpec {
    TrialSpec {
        workload,
        flows: 2,
        direction,
        duration_ns: Nanoseconds::from_millis(2_000),
        ..TrialSpec::default()
    }
}

#[track_caller]
fn assert_like_the_real_one(arguments: &[&str], spec: &TrialSpec) {
    let (real, ours) = (real_document(arguments), our_document(spec));
    let (real, ours) = (types_of(&real), types_of(&ours));
    for (path, kind) in &real {
        assert_eq!(ours.get(path), Some(kind), "{arguments:?}: {path}");
    }
    let more: Vec<&String> = ours
        .keys()
        .filter(|path| !real.contains_key(*path) && !LATER.contains(&path.as_str()))
        .collect();
    assert!(
        more.is_empty(),
        "{arguments:?}: more than iperf3 has: {more:?}"
    );
}

#[test]
fn our_document_of_a_tcp_test_has_iperf3s_keys_and_types() {
    if !iperf3_is_here() {
        return;
    }
    for (arguments, direction) in [
        (&["-P", "2"][..], Direction::Forward),
        (&["-P", "2", "-R"], Direction::Reverse),
        (&["-P", "2", "--bidir"], Direction::Bidirectional),
    ] {
        assert_like_the_real_one(arguments, &spec(direction, Workload::default()));
    }
}

#[test]
fn our_document_of_a_udp_test_has_iperf3s_keys_and_types() {
    if !iperf3_is_here() {
        return;
    }
    let udp = Workload::Udp(Udp {
        datagram_bytes: Bytes::new(1_000),
        rate_bit_per_s: Some(BitRate::from_mbit_per_s(4)),
        batch: DatagramBatch::Single,
        probe: None,
    });
    for (arguments, direction) in [
        (
            &["-P", "2", "-u", "-b", "4M", "-l", "1000"][..],
            Direction::Forward,
        ),
        (
            &["-P", "2", "-u", "-b", "4M", "-l", "1000", "-R"],
            Direction::Reverse,
        ),
        (
            &["-P", "2", "-u", "-b", "4M", "-l", "1000", "--bidir"],
            Direction::Bidirectional,
        ),
    ] {
        assert_like_the_real_one(arguments, &spec(direction, udp.clone()));
    }
}

#[test]
fn the_figures_of_our_document_agree_with_each_other() {
    if !iperf3_is_here() {
        return;
    }
    let document = our_document(&spec(Direction::Forward, Workload::default()));
    let bytes = |value: &Value| value["bytes"].as_u64().expect("a count");
    let intervals = document["intervals"].as_array().expect("a list");
    // Their number depends on how busy the machine is.
    assert!(!intervals.is_empty(), "{document:#}");
    let in_intervals: u64 = intervals.iter().map(|one| bytes(&one["sum"])).sum();
    let end = &document["end"];
    assert_eq!(in_intervals, bytes(&end["sum_sent"]));
    assert!(bytes(&end["sum_received"]) <= bytes(&end["sum_sent"]));
    let streams = end["streams"].as_array().expect("a list");
    let of_streams: u64 = streams.iter().map(|one| bytes(&one["sender"])).sum();
    assert_eq!(of_streams, bytes(&end["sum_sent"]));
    let rate = end["sum_sent"]["bits_per_second"].as_f64().expect("a rate");
    let seconds = end["sum_sent"]["seconds"].as_f64().expect("a time");
    #[expect(clippy::cast_precision_loss, reason = "a comparison to a millionth")]
    let sent = bytes(&end["sum_sent"]) as f64;
    assert!((rate * seconds / 8.0 / sent - 1.0).abs() < 1e-6);
}

#[test]
fn this_end_is_recorded_as_any_and_what_the_far_end_cannot_tell_is_a_gap() {
    if !iperf3_is_here() {
        return;
    }
    let asked = TrialSpec {
        profile_hz: Some(499),
        ..spec(Direction::Forward, Workload::default())
    };
    let address = free_port();
    let _server = RealServer::start(address);
    let interrupt = Interrupt::listen().expect("signals");
    let measured = measure_foreign(&asked, address, &interrupt).expect("it measures");
    let (near, far) = (&measured.sample.local, &measured.sample.remote);
    assert_eq!(near.interface.as_ref().map(NicName::as_str), Some("lo"));
    let counters = near.counters.value().expect("the counters were read");
    let seen = counters.grown("nic/lo/stat/rx_bytes").get();
    assert!(seen >= Some(near.flows[0].total().as_u64()), "{seen:?}");
    let cpus = near.cpu.machine.value().expect("/proc/stat was read");
    assert!(cpus.iter().any(|cpu| cpu.busy() > Nanoseconds::new(0)));
    assert!(!near.cpu.series.is_empty());
    match &near.profile {
        Known::Value(profile) => assert!(profile.samples > 0, "{profile:?}"),
        Known::Unknown(gap) => assert!(gap.reason.contains("perf_event"), "{gap}"),
    }
    for gap in [far.counters.gap(), far.cpu.machine.gap(), far.profile.gap()] {
        assert_eq!(gap.map(|gap| gap.cause), Some(Cause::NotSaid));
    }
}

#[test]
fn tests_with_one_server_are_repeated_until_the_time_is_over() {
    if !iperf3_is_here() {
        return;
    }
    let address = free_port();
    let _server = RealServer::start_with(address, &[]);
    let done = Command::new(crate::LINERATE)
        .args([
            "--format",
            "json",
            "measure",
            "--no-store",
            "stream",
            "--iperf3",
        ])
        .arg(address.to_string())
        .args(["--time", "1", "--until-ci", "50%", "--max-time", "6"])
        .args(["--perf", "99"])
        .stdin(Stdio::null())
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&done.stderr);
    let code = done.status.code();
    // Six tests have no interval, however steady the machine.
    assert_eq!(code, Some(12), "{said}");
    let document = crate::fitting(&String::from_utf8_lossy(&done.stdout));
    let trials = document["repeats"]["trials"].as_u64();
    assert!(trials >= Some(6), "{document:#}");
}

#[test]
fn the_server_serves_until_it_is_interrupted() {
    if !iperf3_is_here() {
        return;
    }
    let address = free_port();
    let interrupt = Interrupt::listen().expect("signals");
    let say = Say {
        format: Format::Json,
        quiet: true,
    };
    thread::scope(|scope| {
        let serving = scope.spawn(|| serve(address, &interrupt, &say));
        // It listens when it can be connected to.
        while std::net::TcpStream::connect(address).is_err() {
            assert!(!serving.is_finished(), "it does not serve");
        }
        let done = Command::new("iperf3")
            .args([
                "-J",
                "-c",
                "127.0.0.1",
                "-p",
                &address.port().to_string(),
                "-t",
                "1",
            ])
            .stdin(Stdio::null())
            .output()
            .expect("it is here");
        interrupt.abort().trigger();
        serving.join().expect("no panic").expect("it served");
        assert!(done.status.success());
    });
}

#[test]
fn what_the_server_says_of_a_test_fits_its_schema() {
    let server = Iperf3Server::open((LOOPBACK, 0).into()).expect("a free port");
    let interrupt = Interrupt::listen().expect("signals");
    let (done, finished) = mpsc::channel();
    thread::scope(|scope| {
        let serving = scope.spawn(|| {
            server.serve(interrupt.abort(), |one| {
                done.send(test_document(&one)).expect("somebody listens");
            })
        });
        let spec = spec(Direction::Bidirectional, Workload::default());
        // A separate one: the server's ends the server.
        let own = Interrupt::listen().expect("signals");
        measure_foreign(&spec, server.address(), &own).expect("it measures");
        let good = finished.recv().expect("a document");
        interrupt.abort().trigger();
        serving.join().expect("no panic").expect("it served");
        assert_fits(&good);
        assert_eq!(
            (&good["flows"], &good["error"]),
            (&Value::from(2), &Value::Null)
        );
        assert!(good["sent_bytes"].as_u64() > Some(0), "{good}");
    });
}

#[test]
fn nobody_at_the_other_end_is_an_error_with_a_hint() {
    let interrupt = Interrupt::listen().expect("signals");
    let nobody = free_port();
    let stop = measure_foreign(&TrialSpec::default(), nobody, &interrupt).expect_err("nobody");
    assert_eq!(stop.code, linerate_model::exit::Code::PeerUnreachable);
    assert!(stop.to_string().contains("iperf3 -s"), "{stop}");
    let taken = TcpListener::bind((LOOPBACK, 0)).expect("a free port");
    let address = taken.local_addr().expect("bound");
    let say = Say {
        format: Format::Text,
        quiet: true,
    };
    let stop = serve(address, &interrupt, &say).expect_err("the port is taken");
    assert_eq!(stop.code, linerate_model::exit::Code::Resource);
}
