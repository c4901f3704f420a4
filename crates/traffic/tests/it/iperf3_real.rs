//! Against the real iperf3, where it is installed: our client with its server, its clients with our server.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::thread;

use linerate_model::sample::{Role, SideSample};
use linerate_model::units::{BitRate, Bytes, Nanoseconds};
use linerate_model::workload::{Direction, Stream, TrialSpec, Workload};
use linerate_traffic::iperf3::{Finished, Foreign, measure};
use serde_json::Value;

use crate::both_ends::{abort, spec};
use crate::iperf3::{loopback, next, udp, with_server};

/// Whether iperf3 is here; reports it when it is not.
pub(crate) fn iperf3_is_here() -> bool {
    let here = Command::new("iperf3").arg("--version").output().is_ok();
    if !here {
        eprintln!("SKIP: there is no iperf3");
    }
    here
}

/// Starts a real iperf3, and waits for a line of its with `word`.
fn started(arguments: &[&str], word: &str) -> Child {
    let mut child = Command::new("iperf3")
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it is here");
    let mut said = std::io::BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    while !line.contains(word) {
        line.clear();
        let read = std::io::BufRead::read_line(&mut said, &mut line).expect("it talks");
        assert!(read > 0, "it ended before it said `{word}`");
    }
    // Its further output must be drained.
    thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    child
}

/// A real server on its own port.
struct RealServer {
    child: Child,
    address: SocketAddr,
}

impl RealServer {
    fn start() -> Self {
        let free = TcpListener::bind(loopback()).expect("a free port");
        let port = free.local_addr().expect("bound").port();
        drop(free);
        // Its second line reports that it listens.
        let child = started(
            &["-s", "-p", &port.to_string(), "--forceflush"],
            "listening",
        );
        let address = (Ipv4Addr::LOCALHOST, port).into();
        Self { child, address }
    }
}

impl Drop for RealServer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Measures with a separate real server: between two tests one refuses clients for a short time.
fn measured(spec: &TrialSpec) -> Foreign {
    let server = RealServer::start();
    measure(spec, server.address, &abort()).expect("it measures")
}

fn sum(side: &SideSample, sender: bool) -> u64 {
    let flows = side.flows.iter();
    let flows = flows.filter(|flow| (flow.role == Role::Sender) == sender);
    flows.map(|flow| flow.total().as_u64()).sum()
}

/// What arrived is what was sent, but for what was on the way when the test ended.
#[track_caller]
fn assert_close(arrived: u64, sent: u64) {
    assert!(arrived > 0 && arrived <= sent, "{arrived} of {sent}");
    let lost = sent - arrived;
    assert!(lost <= sent / 4 + (32 << 20), "{arrived} of {sent}");
}

#[test]
fn our_client_measures_tcp_with_a_real_server_in_every_direction() {
    if !iperf3_is_here() {
        return;
    }
    for direction in [
        Direction::Forward,
        Direction::Reverse,
        Direction::Bidirectional,
    ] {
        for flows in [1, 4] {
            let spec = TrialSpec {
                duration_ns: Nanoseconds::from_millis(400),
                ..spec(flows, direction)
            };
            let foreign = measured(&spec);
            let far = foreign.remote(&spec);
            assert_eq!(far.flows.len(), foreign.local.flows.len());
            if direction != Direction::Reverse {
                assert_close(sum(&far, false), sum(&foreign.local, true));
            }
            if direction != Direction::Forward {
                assert_close(sum(&foreign.local, false), sum(&far, true));
            }
            assert!(foreign.server.cpu_percent > 0.0);
            assert!(foreign.server.congestion.is_some());
        }
    }
}

#[test]
fn our_client_sends_an_amount_to_a_real_server() {
    if !iperf3_is_here() {
        return;
    }
    let amount = Bytes::mib(16);
    for direction in [Direction::Forward, Direction::Reverse] {
        let spec = TrialSpec {
            workload: Workload::Stream(Stream {
                bytes: Some(amount),
                ..Stream::default()
            }),
            duration_ns: Nanoseconds::from_millis(30_000),
            ..spec(2, direction)
        };
        let foreign = measured(&spec);
        let moved = foreign.local.flows.iter().map(|flow| flow.total().as_u64());
        let moved: u64 = moved.sum();
        assert!(moved >= amount.as_u64());
        assert!(foreign.local.elapsed_ns < spec.duration_ns);
        if direction == Direction::Forward {
            assert_eq!(moved, amount.as_u64());
        }
    }
}

#[test]
fn our_client_measures_udp_with_a_real_server_in_every_direction() {
    if !iperf3_is_here() {
        return;
    }
    for direction in [
        Direction::Forward,
        Direction::Reverse,
        Direction::Bidirectional,
    ] {
        let spec = TrialSpec {
            // All datagrams of a flow fit into its socket buffer (212,992 bytes, about 2,300 for each): a reader that
            // does not get a CPU for as long as that loses none.
            workload: udp(Some(BitRate::from_mbit_per_s(2))),
            duration_ns: Nanoseconds::from_millis(400),
            ..spec(2, direction)
        };
        let foreign = measured(&spec);
        let far = foreign.remote(&spec);
        for (here, there) in foreign.local.flows.iter().zip(&far.flows) {
            let role = here.role;
            let (here, there) = (
                here.datagrams.as_ref().expect("UDP"),
                there.datagrams.as_ref().expect("UDP"),
            );
            assert_eq!((here.lost, there.lost), (0, 0));
            // Those on the way when the test ends are in the sender's count only.
            let (sent, received) = match role {
                Role::Sender => (here.count, there.count),
                Role::Receiver => (there.count, here.count),
            };
            assert!(20 < received && received <= sent, "{here:?} {there:?}");
        }
    }
}

#[test]
fn a_busy_real_server_is_an_error_that_says_so() {
    if !iperf3_is_here() {
        return;
    }
    let server = RealServer::start();
    let (host, port) = (
        server.address.ip().to_string(),
        server.address.port().to_string(),
    );
    // The line of an interval shows that its test runs.
    let mut first = started(
        &[
            "-c",
            &host,
            "-p",
            &port,
            "-R",
            "-t",
            "60",
            "-i",
            "0.1",
            "--forceflush",
        ],
        "sec",
    );
    let refused = measure(&spec(1, Direction::Forward), server.address, &abort());
    first.kill().expect("it runs for a minute");
    first.wait().expect("it was killed");
    let refused = refused.expect_err("a real server does one test at a time");
    assert!(refused.to_string().contains("busy"), "{refused}");
}

/// Runs a real client against `server` and returns what `-J` printed.
pub(crate) fn real_client(server: SocketAddr, arguments: &[&str]) -> Value {
    let (host, port) = (server.ip().to_string(), server.port().to_string());
    let done = Command::new("iperf3")
        .args(["-J", "-c", &host, "-p", &port])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("it is here");
    let text = String::from_utf8_lossy(&done.stdout);
    let document: Value = serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!(
            "{arguments:?}: {error} in {text}, {}",
            String::from_utf8_lossy(&done.stderr)
        )
    });
    assert!(
        done.status.success() && document.get("error").is_none(),
        "{arguments:?}: {document:#}"
    );
    document
}

fn bytes(document: &Value, key: &str) -> u64 {
    let bytes = &document["end"][key]["bytes"];
    bytes
        .as_u64()
        .unwrap_or_else(|| panic!("{key}: {document:#}"))
}

fn finished_well(one: Finished) -> (SideSample, Finished) {
    one.outcome.as_ref().expect("it came to its end");
    (one.local.clone().expect("a record"), one)
}

#[test]
fn real_clients_measure_tcp_with_our_server_and_both_agree() {
    if !iperf3_is_here() {
        return;
    }
    with_server(loopback(), |address, finished| {
        for arguments in [
            &["-t", "1"][..],
            &["-t", "1", "-P", "4"],
            &["-t", "1", "-R"],
            &["-t", "1", "-R", "-P", "4"],
            &["-n", "64M"],
            &["-n", "64M", "-R"],
            &["-k", "100"],
            &["-t", "1", "-b", "100M", "-R"],
            &[
                "-t", "1", "-w", "64K", "-l", "8K", "-M", "1000", "-C", "reno", "-N",
            ],
            &["-t", "1", "-Z", "--get-server-output"],
            &["-t", "1", "-O", "1", "-R", "-b", "80M"],
            &["-t", "1", "-P", "128"],
        ] {
            let document = real_client(address, arguments);
            let (local, _) = finished_well(next(finished));
            let (sent, received) = (
                bytes(&document, "sum_sent"),
                bytes(&document, "sum_received"),
            );
            assert!(sent > 0 && received > 0, "{arguments:?}");
            if arguments.contains(&"-O") {
                // A second of two: half of what was sent, by both ends' word.
                let all = sum(&local, true);
                assert!(sent < all * 3 / 4 && sent > all / 4, "{sent} of {all}");
            } else if arguments.contains(&"-R") {
                assert_eq!(sent, sum(&local, true), "{arguments:?}");
            } else {
                assert_eq!(received, sum(&local, false), "{arguments:?}");
                assert_close(received, sent);
            }
            if arguments.contains(&"-b") {
                let rate = document["end"]["sum_received"]["bits_per_second"].as_f64();
                assert!(rate.is_some_and(|rate| rate < 120e6), "{rate:?}");
            }
        }
    });
}

#[test]
fn real_clients_measure_both_directions_at_once_with_our_server() {
    if !iperf3_is_here() {
        return;
    }
    with_server(loopback(), |address, finished| {
        for arguments in [
            &["-t", "1", "--bidir"][..],
            &["-t", "1", "--bidir", "-P", "2"],
        ] {
            let document = real_client(address, arguments);
            let (local, _) = finished_well(next(finished));
            assert_eq!(bytes(&document, "sum_received"), sum(&local, false));
            assert_eq!(
                bytes(&document, "sum_sent_bidir_reverse"),
                sum(&local, true)
            );
            assert_close(
                bytes(&document, "sum_received_bidir_reverse"),
                sum(&local, true),
            );
        }
    });
}

#[test]
fn real_clients_measure_udp_with_our_server_in_every_direction() {
    if !iperf3_is_here() {
        return;
    }
    with_server(loopback(), |address, finished| {
        for arguments in [
            &["-u", "-t", "1", "-b", "10M"][..],
            &[
                "-u",
                "-t",
                "1",
                "-b",
                "10M",
                "-P",
                "2",
                "--udp-counters-64bit",
            ],
            &["-u", "-t", "1", "-b", "10M", "-R", "-P", "2"],
            &["-u", "-t", "1", "-b", "10M", "-R", "--udp-counters-64bit"],
            &["-u", "-t", "1", "-b", "10M", "--bidir"],
            &["-u", "-t", "1", "-b", "10M", "-O", "1"],
            &["-u", "-t", "1", "-b", "0", "-l", "1000"],
        ] {
            let document = real_client(address, arguments);
            let (local, _) = finished_well(next(finished));
            let sum = &document["end"]["sum"];
            let packets = sum["packets"].as_u64().expect("a count");
            assert!(packets > 10, "{arguments:?}: {document:#}");
            if !arguments.contains(&"0") {
                // A machine with other work loses some even so.
                let lost = sum["lost_packets"].as_u64().expect("a count");
                assert!(lost * 2 < packets, "{arguments:?}: {document:#}");
            }
            for flow in &local.flows {
                let counted = flow.datagrams.as_ref().expect("UDP");
                assert_eq!(
                    (counted.reordered, counted.duplicated),
                    (0, 0),
                    "{arguments:?}"
                );
            }
        }
    });
}

#[test]
fn eight_real_clients_at_once_are_all_served() {
    if !iperf3_is_here() {
        return;
    }
    with_server(loopback(), |address, finished| {
        thread::scope(|scope| {
            for number in 0..8 {
                scope.spawn(move || {
                    let kinds: [&[&str]; 4] = [
                        &["-t", "1"],
                        &["-t", "1", "-R", "-P", "2"],
                        &["-t", "1", "-u", "-b", "5M", "-P", "2"],
                        &["-t", "1", "--bidir"],
                    ];
                    real_client(address, kinds[number % 4]);
                });
            }
        });
        for _ in 0..8 {
            next(finished).outcome.expect("it came to its end");
        }
    });
}
