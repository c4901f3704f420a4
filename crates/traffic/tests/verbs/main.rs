//! Workloads over verbs, both ends in this process. `LINERATE_TEST_VERBS` is the address to listen on if there
//! are real devices (in the guest: 10.9.0.2); otherwise the fake library replaces them.

#![expect(
    clippy::disallowed_methods,
    reason = "where the devices are is for who runs the tests to say"
)]
#![expect(
    clippy::print_stderr,
    reason = "a test that cannot run reports it where the runner counts it"
)]

mod choice;
mod datagrams;

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use linerate_model::protocol::{FailureKind, Token};
use linerate_model::sample::{Checksum, SideSample};
use linerate_model::units::{Bytes, Nanoseconds};
use linerate_model::workload::{
    Connect, Diffusion, Direction, Pingpong, Rdma, Rr, Stream, Transfer, TrialSpec, Verb, Verbs,
    Waiting, Workload,
};
use linerate_traffic::tcp::{Connected, Listening};
use linerate_traffic::{Abort, TrafficError};
use linerate_verbs_fake::{Fake, FakeDevice, Fault};

const TOKEN: Token = Token([9; 16]);

/// Where the listening end listens.
fn address() -> String {
    std::env::var("LINERATE_TEST_VERBS").unwrap_or_else(|_| "127.0.0.1".to_owned())
}

/// Whether the devices are real.
fn is_real() -> bool {
    std::env::var_os("LINERATE_TEST_VERBS").is_some()
}

/// A device of the fake library, for one test.
fn device() -> Option<FakeDevice> {
    (!is_real()).then(|| Fake::install().device())
}

type Outcome = Result<SideSample, TrafficError>;

/// One trial at a time: the devices that stand in are served by one thread, and trials that poll take all CPUs.
static TURN: Mutex<()> = Mutex::new(());

/// Carries a trial out: what the connecting end recorded, and the listening one.
fn carry_out(spec: &TrialSpec, device: Option<&FakeDevice>) -> (Outcome, Outcome) {
    let mut spec = spec.clone();
    if let (Some(device), Some(verbs)) = (device, &mut spec.verbs) {
        for choice in [&mut verbs.local, &mut verbs.remote] {
            choice.device = Some(device.name().to_owned());
        }
    }
    carry_out_at(&address(), &spec)
}

/// The same at the address that the listening end uses.
fn carry_out_at(address: &str, spec: &TrialSpec) -> (Outcome, Outcome) {
    spec.check().expect("a trial that both ends take");
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let abort = Abort::new().expect("an eventfd");
    let guard = || Instant::now() + Duration::from_secs(60);
    let listening = Listening::open(spec, TOKEN, address).expect("a free port");
    let to: SocketAddr = format!("{address}:{}", listening.port())
        .parse()
        .expect("an address");
    thread::scope(|scope| {
        let far = scope.spawn(|| listening.accept(guard(), &abort)?.run(&abort));
        let near = Connected::connect(spec, to, TOKEN, guard(), &abort)
            .and_then(|connected| connected.run(&abort));
        (near, far.join().expect("the listening end does not panic"))
    })
}

/// The same where both ends must come to their end.
#[track_caller]
fn both(spec: &TrialSpec) -> (SideSample, SideSample) {
    let device = device();
    let outcome = carry_out(spec, device.as_ref());
    if let Some(device) = &device {
        assert_eq!(device.alive(), [], "everything was given back");
    }
    succeeded(spec, outcome)
}

/// What both ends recorded; neither may have failed.
#[track_caller]
fn succeeded(spec: &TrialSpec, outcome: (Outcome, Outcome)) -> (SideSample, SideSample) {
    match outcome {
        (Ok(near), Ok(far)) => (near, far),
        (near, far) => panic!(
            "{:?} of {:?}:\n near {:?}\n far {:?}",
            spec.workload,
            spec.verbs,
            near.err().map(|error| error.to_string()),
            far.err().map(|error| error.to_string())
        ),
    }
}

fn spec(workload: Workload) -> TrialSpec {
    TrialSpec {
        workload,
        duration_ns: Nanoseconds::from_millis(300),
        interval_ns: Nanoseconds::from_millis(50),
        verbs: Some(Verbs::default()),
        waiting: Waiting::Spin,
        ..TrialSpec::default()
    }
}

fn rdma(verb: Verb, sizes: &[u64]) -> Rdma {
    Rdma {
        verb,
        latency: false,
        sizes: sizes.iter().map(|size| Bytes::new(*size)).collect(),
        repetitions: None,
        data_check: false,
    }
}

fn sizes_of(verb: Verb) -> &'static [u64] {
    match verb {
        Verb::Atomic => &[8],
        _ => &[2, 4_096, 65_536],
    }
}

const VERBS: [Verb; 4] = [Verb::Write, Verb::Read, Verb::Send, Verb::Atomic];

/// What every record of `rdma-*` holds.
#[track_caller]
fn check(spec: &TrialSpec, near: &SideSample, far: &SideSample) {
    let Workload::Rdma(rdma) = &spec.workload else {
        return;
    };
    let operations = near.operations.as_ref().expect("the asking end counts");
    // On a busy machine the time may be over before the last size.
    assert!(!operations.sizes.is_empty(), "{operations:?}");
    for (record, size) in operations.sizes.iter().zip(&rdma.sizes) {
        assert_eq!(record.bytes, *size);
        assert!(record.repetitions > 0 && record.elapsed_ns.as_u64() > 0);
        assert_eq!(record.one_way.count() > 0, rdma.latency);
    }
    assert!(far.operations.is_none());
    for side in [near, far] {
        for flow in &side.flows {
            let record = flow.verbs.as_ref().expect("what carried it");
            assert!(
                record.queue_pair > 0 && record.mtu.is_none_or(|mtu| mtu >= 256),
                "{record:?}"
            );
        }
    }
}

#[test]
fn every_verb_has_a_rate() {
    for verb in VERBS {
        for waiting in [Waiting::Spin, Waiting::Blocking] {
            let spec = TrialSpec {
                waiting,
                ..spec(Workload::Rdma(rdma(verb, sizes_of(verb))))
            };
            let (near, far) = both(&spec);
            check(&spec, &near, &far);
        }
    }
}

#[test]
fn every_verb_has_a_latency() {
    for verb in VERBS {
        for waiting in [Waiting::Spin, Waiting::Blocking] {
            if verb == Verb::Write && waiting == Waiting::Blocking {
                continue;
            }
            let spec = TrialSpec {
                waiting,
                ..spec(Workload::Rdma(Rdma {
                    latency: true,
                    ..rdma(verb, sizes_of(verb))
                }))
            };
            let (near, far) = both(&spec);
            check(&spec, &near, &far);
        }
    }
}

#[test]
fn every_byte_of_every_verb_is_the_right_one() {
    for verb in VERBS {
        for latency in [false, true] {
            let spec = spec(Workload::Rdma(Rdma {
                latency,
                data_check: true,
                ..rdma(verb, sizes_of(verb))
            }));
            let (near, far) = both(&spec);
            check(&spec, &near, &far);
        }
    }
}

#[test]
fn several_queue_pairs_share_threads_in_both_directions() {
    for direction in [
        Direction::Forward,
        Direction::Reverse,
        Direction::Bidirectional,
    ] {
        let spec = TrialSpec {
            flows: 4,
            threads: Some(2),
            direction,
            ..spec(Workload::Rdma(rdma(Verb::Write, &[4_096])))
        };
        let (near, far) = both(&spec);
        let asking = if direction == Direction::Reverse {
            &far
        } else {
            &near
        };
        assert_eq!(asking.senders().count(), 4);
        assert!(asking.senders().all(|flow| flow.total() > Bytes::new(0)));
    }
}

#[test]
fn so_many_messages_as_were_asked_for_are_sent() {
    for verb in VERBS {
        for latency in [false, true] {
            let spec = TrialSpec {
                flows: 2,
                duration_ns: Nanoseconds::from_millis(60_000),
                ..spec(Workload::Rdma(Rdma {
                    repetitions: Some(33),
                    latency,
                    ..rdma(verb, sizes_of(verb))
                }))
            };
            let (near, _) = both(&spec);
            let operations = near.operations.expect("the asking end counts");
            for size in operations.sizes {
                assert_eq!(size.repetitions, 66, "{verb:?}");
            }
        }
    }
}

#[test]
fn a_stream_arrives_whole() {
    // Few messages: beside busy loops each waits for a CPU, with spinning threads of every flow.
    for ((bytes, flows), data_check) in [(None, 1), (Some(100_001), 3)]
        .into_iter()
        .flat_map(|amount| [false, true].map(|data_check| (amount, data_check)))
    {
        for waiting in [Waiting::Spin, Waiting::Blocking] {
            let spec = TrialSpec {
                flows,
                waiting,
                // What is under way at the end must arrive within 10 s, on a busy machine too.
                buffer_bytes: Bytes::kib(8),
                ..spec(Workload::Stream(Stream {
                    bytes: bytes.map(Bytes::new),
                    data_check,
                    ..Stream::default()
                }))
            };
            let (near, far) = both(&spec);
            let sum = |side: &SideSample| {
                side.flows
                    .iter()
                    .map(|flow| flow.total().as_u64())
                    .sum::<u64>()
            };
            assert_eq!(sum(&near), sum(&far));
            if let Some(bytes) = bytes {
                assert_eq!(sum(&far), bytes);
            }
        }
    }
}

#[test]
fn requests_are_answered_over_verbs() {
    for (depth, flows) in [(1, 1), (16, 3)] {
        for waiting in [Waiting::Spin, Waiting::Blocking] {
            let spec = TrialSpec {
                flows,
                threads: Some(1),
                waiting,
                ..spec(Workload::Rr(Rr {
                    request_bytes: Bytes::new(100),
                    response_bytes: Bytes::new(3_000),
                    depth,
                    connect_each: false,
                    rate_per_s: None,
                }))
            };
            let (near, far) = both(&spec);
            let operations = near.operations.expect("the asking end counts");
            assert!(operations.completed > 0);
            for (near, far) in near.flows.iter().zip(&far.flows) {
                assert_eq!(near.total(), far.total());
                assert!(near.verbs.is_some() && far.verbs.is_some());
            }
        }
    }
}

#[test]
fn messages_go_to_and_fro_over_verbs_as_over_tcp() {
    for waiting in [Waiting::Spin, Waiting::Blocking] {
        let mut spec = TrialSpec {
            waiting,
            duration_ns: Nanoseconds::from_millis(20_000),
            ..spec(Workload::Pingpong(Pingpong {
                sizes: [0, 1, 4_096, 300_000].map(Bytes::new).to_vec(),
                repetitions: 20,
                volume_bytes: Bytes::mib(40),
                data_check: false,
            }))
        };
        let (over_verbs, _) = both(&spec);
        spec.verbs = None;
        let (over_tcp, _) = both(&spec);
        let counts = |side: SideSample| {
            let operations = side.operations.expect("the asking end counts");
            let bytes = side.flows[0].total();
            let sizes = operations.sizes.into_iter();
            let sizes: Vec<_> = sizes.map(|size| (size.bytes, size.repetitions)).collect();
            (bytes, sizes)
        };
        assert_eq!(counts(over_verbs), counts(over_tcp));
    }
}

#[test]
fn every_byte_of_messages_to_and_fro_over_verbs_is_compared() {
    for waiting in [Waiting::Spin, Waiting::Blocking] {
        for flows in [1, 3] {
            let spec = TrialSpec {
                flows,
                threads: Some(1),
                waiting,
                duration_ns: Nanoseconds::from_millis(20_000),
                ..spec(compared_pingpong())
            };
            let (near, far) = both(&spec);
            let operations = near.operations.expect("the asking end counts");
            assert_eq!(operations.completed, u64::from(flows) * 4 * 20);
            for (near, far) in near.flows.iter().zip(&far.flows) {
                assert_eq!(near.total(), far.total());
            }
        }
    }
}

fn compared_pingpong() -> Workload {
    Workload::Pingpong(Pingpong {
        sizes: [0, 1, 4_099, 300_001].map(Bytes::new).to_vec(),
        repetitions: 20,
        volume_bytes: Bytes::mib(40),
        data_check: true,
    })
}

#[test]
fn a_changed_byte_of_a_stream_or_of_a_message_to_and_fro_is_found() {
    if is_real() {
        eprintln!("SKIP: a real device changes no bytes on demand");
        return;
    }
    let stream = Workload::Stream(Stream {
        bytes: Some(Bytes::new(1_000_001)),
        data_check: true,
        ..Stream::default()
    });
    for workload in [stream, compared_pingpong()] {
        let spec = TrialSpec {
            buffer_bytes: Bytes::kib(8),
            duration_ns: Nanoseconds::from_millis(20_000),
            ..spec(workload)
        };
        let errors = wrong(&spec, Fault::CorruptEvery, 3).join("; ");
        assert!(errors.contains("arrived as"), "{errors}");
    }
}

#[test]
fn a_buffer_goes_there_and_back_over_verbs_and_every_byte_is_compared() {
    for waiting in [Waiting::Spin, Waiting::Blocking] {
        let spec = TrialSpec {
            flows: 2,
            threads: Some(1),
            waiting,
            duration_ns: Nanoseconds::from_millis(20_000),
            ..spec(Workload::Transfer(Transfer {
                bytes: Bytes::new(100_001),
                repetitions: Some(5),
                data_check: true,
            }))
        };
        let (near, far) = both(&spec);
        assert_eq!(
            near.operations.expect("the asking end counts").completed,
            10
        );
        for side in [&near.flows, &far.flows] {
            assert!(
                side.iter()
                    .all(|flow| flow.total() == Bytes::new(1_000_010))
            );
        }
    }
}

/// A grid of 176 x 176 in 256 KiB.
fn diffusion(repetitions: u64, data_check: bool) -> Workload {
    Workload::Diffusion(Diffusion {
        bytes: Bytes::kib(256),
        repetitions: Some(repetitions),
        work: true,
        data_check,
        pictures: false,
    })
}

fn checksums(side: &SideSample) -> Vec<Checksum> {
    let grids = side.flows.iter().map(|flow| flow.grid.as_ref());
    grids
        .map(|grid| grid.expect("its end tells").checksum)
        .collect()
}

#[test]
fn a_grid_is_the_same_over_verbs_and_over_tcp_bit_for_bit() {
    for waiting in [Waiting::Spin, Waiting::Blocking] {
        let mut spec = TrialSpec {
            flows: 2,
            threads: Some(1),
            waiting,
            duration_ns: Nanoseconds::from_millis(20_000),
            ..spec(diffusion(30, true))
        };
        let (near, far) = both(&spec);
        let over_verbs = (checksums(&near), checksums(&far));
        assert!(near.flows.iter().all(|flow| flow.verbs.is_some()));
        spec.verbs = None;
        let (near, far) = both(&spec);
        assert_eq!(over_verbs, (checksums(&near), checksums(&far)));
        assert_eq!(over_verbs.0, over_verbs.1);
    }
}

#[test]
fn a_grid_that_changes_on_the_way_back_is_another_at_each_end() {
    if is_real() {
        eprintln!("SKIP: a real device changes no bytes on demand");
        return;
    }
    // Which message is the grid's way back is the protocol's: one of these rhythms meets it alone.
    let differ = (2..=6).any(|every| {
        let device = Fake::install().device();
        device.set(Fault::CorruptEvery, every);
        let (near, far) = carry_out(&spec(diffusion(1, false)), Some(&device));
        assert_eq!(device.alive(), [], "everything was given back");
        let both = near.ok().zip(far.ok());
        both.is_some_and(|(near, far)| checksums(&near) != checksums(&far))
    });
    assert!(differ, "no change was met");
}

#[test]
fn the_connection_manager_connects_where_there_is_one() {
    if !is_real() {
        eprintln!("SKIP: the manager of the library that stands in is tried with `linerate-verbs`");
        return;
    }
    let mut spec = TrialSpec {
        flows: 3,
        threads: Some(1),
        ..spec(Workload::Rdma(rdma(Verb::Write, &[4_096])))
    };
    spec.verbs.get_or_insert_default().connect = Connect::Cm;
    let (near, far) = both(&spec);
    check(&spec, &near, &far);
}

/// What goes wrong at either end, with a fault of the device set.
#[track_caller]
fn wrong(spec: &TrialSpec, fault: Fault, number: u64) -> Vec<String> {
    let device = Fake::install().device();
    device.set(fault, number);
    let (near, far) = carry_out(spec, Some(&device));
    assert_eq!(device.alive(), [], "everything was given back");
    let errors = [near, far].into_iter().filter_map(Result::err);
    errors.map(|error| error.to_string()).collect()
}

#[test]
fn a_changed_byte_is_found_in_every_verb_and_mode() {
    if is_real() {
        eprintln!("SKIP: a real device changes no bytes on demand");
        return;
    }
    for verb in VERBS {
        for latency in [false, true] {
            let spec = spec(Workload::Rdma(Rdma {
                latency,
                data_check: true,
                ..rdma(verb, &sizes_of(verb)[..1])
            }));
            let errors = wrong(&spec, Fault::CorruptEvery, 3).join("; ");
            assert!(
                errors.contains("arrived as"),
                "{verb:?} {latency}: {errors}"
            );
        }
    }
    let transfer = spec(Workload::Transfer(Transfer {
        bytes: Bytes::kib(64),
        repetitions: None,
        data_check: true,
    }));
    // Which messages are the buffer's, and which are words, is the protocol's: one of these rhythms meets it.
    let errors = (2..=5).flat_map(|every| wrong(&transfer, Fault::CorruptEvery, every));
    let errors = errors.collect::<Vec<_>>().join("; ");
    assert!(errors.contains("arrived as"), "{errors}");
}

#[test]
fn a_device_that_fails_in_mid_run_ends_the_trial_with_its_reason() {
    if is_real() {
        eprintln!("SKIP: a real device does not fail on demand");
        return;
    }
    for waiting in [Waiting::Spin, Waiting::Blocking] {
        for fault in [Fault::PortDownAfter, Fault::GoneAfter] {
            let spec = TrialSpec {
                waiting,
                duration_ns: Nanoseconds::from_millis(20_000),
                ..spec(Workload::Rdma(rdma(Verb::Send, &[4_096])))
            };
            let errors = wrong(&spec, fault, 1_000).join("; ");
            let says = [
                "reported an event",
                "retry count exceeded",
                "cannot post",
                "removed",
            ];
            assert!(
                says.iter().any(|one| errors.contains(one)),
                "{fault:?}: {errors}"
            );
        }
    }
}

#[test]
fn memory_that_may_not_be_pinned_is_said_with_the_limit() {
    if is_real() {
        eprintln!("SKIP: the limit is set by the library that stands in");
        return;
    }
    let spec = spec(Workload::Rdma(rdma(Verb::Write, &[1 << 20])));
    let errors = wrong(&spec, Fault::Memlock, 4_096).join("; ");
    assert!(
        errors.contains("register memory") && errors.contains("ulimit -l"),
        "{errors}"
    );
}

#[test]
fn another_port_of_the_device_that_fails_does_not_end_the_trial() {
    if is_real() {
        eprintln!("SKIP: a real device does not fail on demand");
        return;
    }
    for waiting in [Waiting::Spin, Waiting::Blocking] {
        let device = Fake::install().device();
        device.set(Fault::OtherPortDownAfter, 10);
        let spec = TrialSpec {
            waiting,
            ..spec(Workload::Rdma(rdma(Verb::Write, &[64])))
        };
        let (near, far) = carry_out(&spec, Some(&device));
        near.expect("port 1 is well");
        far.expect("port 1 is well");
        assert!(device.messages() > 10, "the other port has failed");
    }
}

/// The error for what a device does not support.
#[track_caller]
fn not_supported(spec: &TrialSpec, fault: Option<(Fault, u64)>) -> String {
    let device = Fake::install().device();
    if let Some((fault, number)) = fault {
        device.set(fault, number);
    }
    let (near, far) = carry_out(spec, Some(&device));
    assert_eq!(device.alive(), [], "everything was given back");
    // One end may notice that the other one is gone before it uses the device.
    let errors = [near, far].into_iter().filter_map(Result::err);
    let errors: Vec<(FailureKind, String)> = errors
        .map(|error| (error.kind(), error.to_string()))
        .collect();
    let said = errors
        .iter()
        .find(|(kind, _)| *kind == FailureKind::NotSupported);
    let (_, said) = said.unwrap_or_else(|| panic!("not as what cannot be had: {errors:?}"));
    said.clone()
}

#[test]
fn what_a_device_cannot_have_is_said_and_not_changed() {
    if is_real() {
        eprintln!("SKIP: a real device has limits of its own");
        return;
    }
    // 8192 to send and 16384 to receive on each flow; the queue holds 65536.
    let mut deep = TrialSpec {
        flows: 3,
        threads: Some(1),
        ..spec(Workload::Rdma(rdma(Verb::Send, &[64])))
    };
    deep.verbs.get_or_insert_default().depth = 8_192;
    let said = not_supported(&deep, None);
    assert!(said.contains("73728") && said.contains("65536"), "{said}");
    let mut inline = spec(Workload::Rdma(rdma(Verb::Write, &[64])));
    inline.verbs.get_or_insert_default().inline_bytes = Some(Bytes::new(4_096));
    let said = not_supported(&inline, None);
    assert!(said.contains("4096") && said.contains("64"), "{said}");
    let mut on_demand = spec(Workload::Rdma(rdma(Verb::Write, &[64])));
    on_demand.verbs.get_or_insert_default().memory.on_demand = true;
    let refused = u64::from(libc::EOPNOTSUPP.unsigned_abs());
    let said = not_supported(&on_demand, Some((Fault::PagingRefused, refused)));
    assert!(said.contains("`--on-demand`"), "{said}");
    let plain = spec(Workload::Rdma(rdma(Verb::Write, &[64])));
    let said = not_supported(&plain, Some((Fault::NodeMissing, 1)));
    assert!(said.contains("is not in this container"), "{said}");
}
