//! A loop with a known name, kernels that refuse, and records of every type.

use std::hint::black_box;

use linerate_model::sample::Hot;
use proptest::prelude::*;

use super::*;
use crate::root::LiveHost;
use crate::root::tree::Tree;

/// The function to be found.
#[inline(never)]
fn a_loop_that_is_busy(time: Duration) -> u64 {
    // Its own time: on a busy machine it has the CPU for a part only.
    let on_cpu = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::try_from(now).unwrap_or_default()
    };
    let start = on_cpu();
    let mut value = 1u64;
    while on_cpu().saturating_sub(start) < time {
        for _ in 0..100_000 {
            value = black_box(
                value
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1),
            );
        }
    }
    value
}

#[expect(clippy::print_stderr, reason = "a skip is a result, and said")]
fn skip(why: &str) {
    eprintln!("skipped: {why}");
}

#[test]
fn a_busy_loop_shows_up_under_its_name() {
    let live = LiveHost::open().expect("the root folder");
    let online = live.root().read("sys/devices/system/cpu/online");
    let online: CpuSet = match online.value().and_then(|text| text.parse().ok()) {
        Some(online) => online,
        None => return skip("the kernel does not say which CPUs are online"),
    };
    let profiler = match Profiler::start(live.root(), &online, 500) {
        Known::Value(profiler) => profiler,
        Known::Unknown(gap) => return skip(&gap.to_string()),
    };
    black_box(a_loop_that_is_busy(Duration::from_millis(500)));
    let profile = profiler.stop().name(live.root(), &CpuSet::default());
    assert!(["cycles", "cpu-clock"].contains(&profile.event.as_str()));
    let own = |hot: &&Hot| hot.symbol.contains("a_loop_that_is_busy");
    let found = profile.symbols.iter().find(own);
    let found = found.unwrap_or_else(|| panic!("not among {profile:?}"));
    assert!(!found.kernel && found.samples > 0 && found.samples <= profile.samples);
    assert!(found.place.contains("linerate_host"), "{}", found.place);
}

fn host(files: &[(&str, &str)]) -> HostRoot {
    let mut tree = Tree::new(true);
    for (path, text) in files {
        tree.edit(path, Some(*text));
    }
    HostRoot::in_memory(tree)
}

#[test]
fn a_kernel_that_forbids_everything_says_by_which_setting() {
    let root = host(&[(PARANOID, "4")]);
    let two = "0-1".parse().expect("a list");
    let denied = |_, _, _| Err(io::Error::from_raw_os_error(libc::EACCES));
    let gap = open_best(&root, &two, &denied).expect_err("all was denied");
    assert_eq!(gap.cause, Cause::Denied);
    assert!(gap.reason.contains("perf_event_paranoid is 4"), "{gap}");
    let none = |_, _, _| Err(io::Error::from_raw_os_error(libc::ENOSYS));
    let gap = open_best(&root, &two, &none).expect_err("there is no such call");
    assert_eq!(gap.cause, Cause::Absent);
}

#[test]
fn a_processor_without_counters_and_a_user_without_rights_get_less_and_hear_why() {
    let root = host(&[(PARANOID, "2")]);
    let asked = std::cell::RefCell::new(Vec::new());
    let open = |event, whose, _| {
        asked.borrow_mut().push((event, whose));
        Err(io::Error::from_raw_os_error(match (event, whose) {
            (_, Whose::All | Whose::Own { user_only: false }) => libc::EACCES,
            _ => libc::ENOENT,
        }))
    };
    let gap = open_best(&root, &CpuSet::one(CpuId(0)), &open);
    assert_eq!(gap.expect_err("nothing opens").cause, Cause::Denied);
    let asked = asked.into_inner();
    assert_eq!(asked.first(), Some(&(Event::Cycles, Whose::All)));
    assert_eq!(
        asked.last(),
        Some(&(Event::CpuClock, Whose::Own { user_only: true }))
    );
}

fn record(kind: u32, mode: u16, body: &[u64]) -> Vec<u8> {
    let size = u16::try_from(8 + 8 * body.len()).expect("small");
    let mut bytes = kind.to_ne_bytes().to_vec();
    bytes.extend(mode.to_ne_bytes());
    bytes.extend(size.to_ne_bytes());
    bytes.extend(body.iter().flat_map(|word| word.to_ne_bytes()));
    bytes
}

#[test]
fn samples_are_counted_by_place_and_idle_ones_left_out() {
    let kallsyms = "ffffffff81000000 T tcp_sendmsg\nffffffff81000100 t pv_native_safe_halt\n\
                    ffffffff81000200 t net_rx_action";
    let root = host(&[("proc/kallsyms", kallsyms)]);
    let address = |offset: u64| 0xffff_ffff_8100_0000 + offset;
    let process = |pid: u32| {
        u64::from_ne_bytes({
            let mut both = [0; 8];
            both[..4].copy_from_slice(&pid.to_ne_bytes());
            both
        })
    };
    let mut counts = Counts::default();
    let records = [
        record(SAMPLE, MODE_KERNEL, &[address(0x10), process(77)]),
        record(SAMPLE, MODE_KERNEL, &[address(0x20), process(78)]),
        record(SAMPLE, MODE_KERNEL, &[address(0x110), process(0)]),
        // A packet received while the CPU was idle is work.
        record(SAMPLE, MODE_KERNEL, &[address(0x210), process(0)]),
        record(LOST, 0, &[1, 5]),
        record(4, 0, &[9, 9]),
    ];
    counts.add(CpuId(0), &records.concat());
    let mut gaps = Vec::new();
    let named = name_all(&root, &counts.at, None, &mut gaps);
    let found: Vec<_> = (named.symbols)
        .iter()
        .map(|hot| (hot.symbol.as_str(), hot.samples))
        .collect();
    assert_eq!(found, [("tcp_sendmsg", 2), ("net_rx_action", 1)]);
    assert_eq!((named.samples, counts.lost, gaps), (3, 5, Vec::new()));
}

#[test]
fn other_processes_and_softirqs_on_other_cpus_are_not_the_trials() {
    let kallsyms = "ffffffff81000000 T tcp_sendmsg\nffffffff81000100 T net_rx_action\n\
                    ffffffff81000200 T vfs_read\nffffffff81000300 t default_idle";
    let root = host(&[
        ("proc/kallsyms", kallsyms),
        ("proc/15/comm", "ksoftirqd/0\n"),
        ("proc/99/comm", "cc1\n"),
    ]);
    let kernel =
        |process, offset: u64, cpu| (true, process, 0xffff_ffff_8100_0000 + offset, CpuId(cpu));
    let at = HashMap::from([
        (kernel(77, 0x10, 0), 100),
        // Softirqs of an idle CPU and of ksoftirqd, where the trial runs, and where packets arrive.
        (kernel(0, 0x110, 0), 20),
        (kernel(15, 0x110, 0), 3),
        (kernel(0, 0x110, 2), 7),
        // A CPU that the trial does not use, another program, and an idle CPU.
        (kernel(0, 0x110, 3), 1_000),
        (kernel(99, 0x210, 0), 50),
        (kernel(0, 0x310, 0), 9_000),
    ]);
    let scope = Scope::of(&root, 77, &at, &CpuSet::one(CpuId(2)));
    let named = name_all(&root, &at, Some(&scope), &mut Vec::new());
    let found: Vec<_> = (named.symbols)
        .iter()
        .map(|hot| (hot.symbol.as_str(), hot.samples))
        .collect();
    assert_eq!(found, [("tcp_sendmsg", 100), ("net_rx_action", 30)]);
    assert_eq!((named.samples, named.elsewhere), (130, 1_050));
}

#[test]
fn a_kernel_that_hides_its_addresses_leaves_a_reason_and_numbers() {
    let root = host(&[("proc/kallsyms", "0000000000000000 T tcp_sendmsg")]);
    let at = HashMap::from([
        ((true, 1, 0xffff_ffff_8100_0010, CpuId(0)), 3),
        ((true, 0, 0xffff_ffff_8100_0020, CpuId(0)), 4),
    ]);
    let mut gaps = Vec::new();
    let named = name_all(&root, &at, None, &mut gaps);
    assert_eq!((named.samples, named.symbols.len()), (3, 1));
    assert!(gaps[0].reason.contains("kptr_restrict"), "{}", gaps[0]);
}

proptest! {
    #[test]
    fn no_record_panics(records in proptest::collection::vec(any::<u8>(), 0..200)) {
        Counts::default().add(CpuId(0), &records);
    }
}
