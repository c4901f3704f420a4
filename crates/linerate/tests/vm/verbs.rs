//! Traffic over verbs between two soft-RoCE devices: transfers, reports, and failures.

use serde_json::Value;

use crate::agent::LastingAgent;
use crate::guest::{Guest, SOFT_RDMA, entry};
use crate::rdma::pair;

/// What every measurement here has in common.
const COMMON: &str = "--address 10.9.0.2 local";

/// The library that changes what verbs move, in the guest's memory.
pub(crate) fn spoiling_library(guest: &Guest) -> String {
    let library = format!("'{}'", linerate_verbs_spoil::library().display());
    guest.read_ahead(&library);
    library
}

/// Waits until `$near` moves data, and fails with its output if it ended before.
const UNTIL_IT_FLOWS: &str = "counter=/sys/class/infiniband/rxa/ports/1/hw_counters/sent_pkts
    from=$(cat $counter)
    until [ $(($(cat $counter) - from)) -gt 200 ]; do
        kill -0 $near 2>/run/none || { cat /run/err >&2; exit 1; }
    done";

/// Waits for both ends: the remote end of a wire learns up to a second later that it has a carrier again.
const UNTIL_THE_PORTS_ARE_UP: &str = "for device in rxa rxb; do
        until grep -q ACTIVE /sys/class/infiniband/$device/ports/1/state; do :; done
    done";

/// How long after a fault a command ends, in seconds, as docs/book/cards/rdma.md states it.
mod at_most {
    /// What an end finds itself or its device reports: then it waits for the remote end's report for 2 s.
    pub(super) const ANSWERED: f64 = 2.0;
    /// The device gives up after 2 s without an answer, and the remote end's report is awaited for 2 s.
    pub(super) const UNANSWERED: f64 = 4.0;
    /// Before the start the ends wait 10 s for each other, and 2 s for the reason.
    pub(super) const BEFORE_THE_START: f64 = 12.0;
    /// What a test adds: an emulated guest's clock leaps to its next timer whenever it waits for files of a busy host.
    /// With it a command still ends before the 160 s of its trial, so that it has noticed the fault.
    pub(super) const BESIDES: f64 = 100.0;
}

/// The guest's monotonic clock: `fault` is when the fault was made, `over` reports when its command had ended.
const CLOCK: &str = "fault() { read -r made _ </proc/uptime; }
    over() { read -r ended _ </proc/uptime; echo \"seconds $made $ended\"; }";

/// The verbs with what each is given, and whether the end that waits must poll for it.
const MODES: [(&str, &str); 7] = [
    ("rdma-write", "--sizes 7B,5000B"),
    ("rdma-write", "--latency --sizes 7B,5000B"),
    ("rdma-read", "--sizes 7B,5000B"),
    ("rdma-read", "--latency --sizes 7B,5000B"),
    ("rdma-send", "--sizes 7B,5000B"),
    ("rdma-send", "--latency --sizes 7B,5000B"),
    ("rdma-atomic", ""),
];

/// A command line in the guest behind `before`, and what it printed as a document.
pub(crate) fn measure_after(guest: &Guest, before: &str, what: &str) -> Value {
    let command = Guest::command();
    let out = guest.shell(&format!(
        "{before} {command} --format json measure --no-store {what} {COMMON}"
    ));
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error} in {out}"))
}

fn measure(guest: &Guest, what: &str) -> Value {
    measure_after(guest, "", what)
}

/// How a measurement that must fail ends: its exit code and its output.
pub(crate) fn refuse(guest: &Guest, script: &str) -> (i32, String) {
    let done = guest.run(&["bash", "-c", script]);
    assert_ne!(done.code, 0, "{script}\n{}", done.out);
    (done.code, done.err)
}

/// The same of a fault that is there from the start: the command ends within its time and leaves nothing behind.
/// What `before` makes `after` takes away.
fn refuse_in_time(
    guest: &Guest,
    limit: f64,
    (before, command, after): (&str, &str, &str),
) -> (i32, String) {
    let script = format!(
        "{CLOCK}
        {before}
        fault; ( {command} ) >/run/out; code=$?; over
        {after}
        exit $code"
    );
    let done = guest.run(&["bash", "-c", &script]);
    assert_ne!(done.code, 0, "{script}\n{}", done.out);
    assert_in_time(&done.out, limit);
    assert_nothing_is_held(guest);
    (done.code, done.err)
}

/// Checks the output of `over`: no more than `limit` seconds passed since the fault.
#[track_caller]
fn assert_in_time(said: &str, limit: f64) {
    let line = said.lines().find_map(|line| line.strip_prefix("seconds "));
    let times: Vec<f64> = (line.unwrap_or_default().split(' '))
        .filter_map(|word| word.parse().ok())
        .collect();
    let [made, ended] = times[..] else {
        panic!("no times in {said}");
    };
    let took = ended - made;
    assert!(took <= limit + at_most::BESIDES, "{took} s: {said}");
}

/// All rows of verbs and modes that there are.
fn rows() -> Vec<String> {
    let mut rows: Vec<String> = MODES
        .iter()
        .map(|(verb, options)| format!("{verb} {options}"))
        .collect();
    // Sleeping until a completion event, which the remote end of a write never gets.
    rows.extend([
        "rdma-write --sizes 5000B --wait blocking".to_owned(),
        "rdma-read --latency --sizes 5000B --wait blocking".to_owned(),
        "rdma-send --latency --sizes 5000B --wait blocking".to_owned(),
        "rdma-atomic --latency".to_owned(),
        "rdma-send --service ud --sizes 7B,1024B".to_owned(),
        "rdma-send --service ud --latency --sizes 7B,1024B".to_owned(),
    ]);
    rows.extend(MORE.map(str::to_owned));
    rows
}

/// Ways of connecting and waiting, directions, numbers of queue pairs and threads, and options of them, each with every
/// verb that has it.
const MORE: [&str; 13] = [
    "rdma-write --connect cm --sizes 5000B",
    "rdma-read --connect cm --wait blocking --sizes 5000B",
    "rdma-send --connect cm --wait blocking --cq-mod 4 --sizes 5000B",
    "rdma-atomic --connect cm --wait blocking --reverse",
    "rdma-write --reverse --flows 3 --threads 2 --depth 8 --sizes 5000B",
    "rdma-read --bidir --flows 3 --threads 2 --sizes 5000B",
    "rdma-read --reverse --mtu 512 --gid-index 1 --gid-index-remote 1 --sizes 5000B",
    "rdma-send --reverse --flows 2 --threads 1 --cq-mod 1 --inline 0B --sizes 5000B",
    "rdma-write --bidir --inline 64B --sizes 48B",
    "rdma-send --bidir --traffic-class 104 --sl 3 --relaxed-ordering --sizes 5000B",
    "rdma-atomic --bidir --flows 2 --threads 1",
    "rdma-send --service ud --bidir --wait blocking --sizes 1024B",
    "rdma-send --service ud --latency --reverse --wait blocking --sizes 1024B",
];

pub(crate) fn every_byte_of_every_verb_and_mode_is_the_right_one(guest: &Guest) {
    pair(guest);
    for row in rows() {
        let told = measure(
            guest,
            &format!("{row} --data-check --repetitions 20 --time 20"),
        );
        assert_eq!(told["transport"], "verbs", "{row}");
        let sizes = told["sizes"].as_array().expect("a row of sizes");
        for size in sizes {
            let flows = if row.contains("--flows") { 2 } else { 1 };
            let repetitions = size["repetitions"].as_u64().expect("a count");
            assert!(repetitions >= 20 * flows, "{row}: {size}");
        }
        if row.contains("--service ud") {
            let came = told["datagrams"]["received"].as_u64();
            assert!(came.is_some_and(|came| came > 0), "{row}: {told:#}");
        }
        assert_eq!(
            sizes.len(),
            1 + usize::from(row.contains("--sizes 7B,")),
            "{row}"
        );
    }
}

pub(crate) fn a_changed_byte_fails_every_verb_and_mode(guest: &Guest) {
    pair(guest);
    let library = spoiling_library(guest);
    // Of each end's requests the third is changed, in its middle. Of `transfer` and `diffusion` that is the
    // answering end's write of what it restores; of `pingpong` and `stream` a message.
    let more = [
        "transfer --transport verbs --bytes 5000B --repetitions 20",
        "diffusion --transport verbs --buffer 64KiB --repetitions 20",
        "pingpong --transport verbs --sizes 4096B --repetitions 20",
        "stream --transport verbs --buffer 5000B --bytes 100000B",
    ];
    let rows = rows().into_iter().map(|row| row + " --repetitions 20");
    for row in rows.chain(more.map(str::to_owned)) {
        let (code, said) = refuse(
            guest,
            &format!(
                "LINERATE_LIBIBVERBS={library} {} measure --no-store {row} --data-check --time 20 {COMMON}",
                Guest::command()
            ),
        );
        assert!(said.contains("arrived as"), "{row}: {code}: {said}");
    }
    assert_nothing_is_held(guest);
}

/// What a measurement reports about a real trial in addition to its bytes: perftest's figures, and further ones.
pub(crate) fn a_measurement_over_verbs_tells_what_it_cost_and_what_limits_it(guest: &Guest) {
    pair(guest);
    let number = |told: &Value, place: &str| {
        let found = told.pointer(place).and_then(Value::as_f64);
        found.unwrap_or_else(|| panic!("no number at {place} in {told:#}"))
    };
    let rate = measure(guest, "rdma-write --sizes 4096B --place 0:2 --time 2");
    let average = number(&rate, "/sizes/0/rate_bit_per_s");
    assert!(average > 0.0);
    assert!(number(&rate, "/sizes/0/peak_bit_per_s") >= average * 0.999);
    let messages = number(&rate, "/sizes/0/messages_per_s");
    assert!((messages * 4096.0 * 8.0 / average - 1.0).abs() < 0.001);
    assert!(number(&rate, "/ceiling/bit_per_s") >= average);
    assert!(rate["ceiling"]["reason"].is_string());
    assert!(rate["limit"]["what"].is_string());
    for end in ["local", "remote"] {
        assert!(!rate["placement"][end].is_null(), "{rate:#}");
        let counters = rate["rdma_counters"][end].as_array();
        let grew = counters.is_some_and(|counters| !counters.is_empty());
        assert!(grew, "{end}: {:#}", rate["rdma_counters"]);
    }
    // The writing end's program and its kernel work.
    let system = number(&rate, "/cpu/local/system_s");
    let user = number(&rate, "/cpu/local/user_s");
    // The kernel splits a thread's time by what its ticks found: either part may be 0.
    assert!(system + user > 0.0);
    assert!(number(&rate, "/cpu/local/s_per_gb") > 0.0);
    let flags = rate["flags"].to_string();
    assert!(flags.contains("shared-kernel"), "{flags}");

    let latency = measure(
        guest,
        "rdma-send --latency --sizes 8B --repetitions 200 --time 30",
    );
    let of = |name: &str| number(&latency, &format!("/latency_ns/{name}"));
    assert!(of("count") >= 200.0);
    let rising = ["min", "p50", "p90", "p99", "p999", "max"].map(of);
    assert!(rising.is_sorted() && rising[0] > 0.0, "{rising:?}");
    assert!(rising[0] <= of("mean") && of("mean") <= rising[5]);
}

/// The device reads and writes them, so they lie on its node, wherever the threads run.
pub(crate) fn buffers_lie_on_the_node_of_the_device(guest: &Guest) {
    guest.shell(
        "modprobe -a rdma_rxe rdma_ucm ib_uverbs
        ip address add 198.51.100.1/24 dev n0; ip link set n0 up; ip link set n1 up
        rdma link add rxn type rxe netdev n0
        until grep -q ACTIVE /sys/class/infiniband/rxn/ports/1/state; do :; done",
    );
    for place in ["0:1", "2:3"] {
        let out = guest.shell(&format!(
            "{} --format json measure --no-store rdma-write --sizes 4096B --repetitions 10 --time 20 --data-check \
             --place {place} --address 198.51.100.1 local",
            Guest::command()
        ));
        let told: Value =
            serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error} in {out}"));
        for end in ["local", "remote"] {
            assert_eq!(told["verbs"][end]["device"], "rxn");
            assert_eq!(
                told["threads"][end][0]["memory_node"], 1,
                "{place}: {told:#}"
            );
        }
    }
    guest.shell("rdma link delete rxn; ip address del 198.51.100.1/24 dev n0");
    assert_nothing_is_held(guest);
}

/// Options that no other test passes to a device, and their values in the document.
const OPTIONS: [(&str, &[(&str, &str)]); 5] = [
    (
        "rdma-write --sizes 5000B --mtu 512 --gid-index 1 --gid-index-remote 1 --data-check",
        &[
            ("/verbs/local/mtu", "512"),
            ("/verbs/remote/mtu", "512"),
            ("/verbs/local/gid_index", "1"),
            ("/verbs/remote/gid_index", "1"),
            // The first device has that index too, and not the address.
            ("/verbs/remote/device", "\"rxb\""),
        ],
    ),
    (
        "rdma-read --sizes 5000B --traffic-class 104 --sl 3 --relaxed-ordering --data-check",
        &[
            ("/verbs/traffic_class", "104"),
            ("/verbs/service_level", "3"),
            ("/verbs/relaxed_ordering", "true"),
        ],
    ),
    (
        "rdma-send --sizes 5000B --huge-pages --data-check",
        &[("/verbs/huge_pages", "true")],
    ),
    (
        "rdma-write --sizes 5000B --connect cm --traffic-class 104 --data-check",
        &[
            ("/verbs/connect", "\"cm\""),
            ("/verbs/traffic_class", "104"),
            ("/verbs/local/gid_kind", "\"RoCE v2\""),
            ("/verbs/remote/gid_kind", "\"RoCE v2\""),
        ],
    ),
    // One message under way: 128 of 8 MiB are a minute of an emulated device.
    (
        "rdma-write --sweep --depth 1",
        &[
            ("/sizes/0/bytes", "2"),
            ("/sizes/22/bytes", "8388608"),
            ("/sizes/22/repetitions", "1"),
        ],
    ),
];

pub(crate) fn options_of_queue_pairs_reach_the_device_or_are_refused(guest: &Guest) {
    pair(guest);
    // Of 2 MiB, on both nodes.
    guest.shell("sysctl -qw vm.nr_hugepages=16");
    for (row, expected) in OPTIONS {
        let repetitions = if row.contains("--sweep") { 1 } else { 20 };
        let told = measure(
            guest,
            &format!("{row} --repetitions {repetitions} --time 60"),
        );
        for (place, value) in expected {
            let found = told.pointer(place).map(Value::to_string);
            assert_eq!(found.as_deref(), Some(*value), "{row}: {place}");
        }
    }
    guest.shell("sysctl -qw vm.nr_hugepages=0");
    // Soft-RoCE of this kernel pins all memory.
    let (code, said) = refuse_in_time(
        guest,
        at_most::ANSWERED,
        (
            "",
            &format!(
                "{} measure --no-store rdma-write --on-demand --time 160 {COMMON}",
                Guest::command()
            ),
            "",
        ),
    );
    assert_eq!(code, 22, "{said}");
    assert!(said.contains("leave `--on-demand` out"), "{said}");
}

pub(crate) fn workloads_are_the_same_over_verbs_and_over_tcp(guest: &Guest) {
    pair(guest);
    for what in [
        "transfer --bytes 100001B --repetitions 4 --data-check --flows 2 --threads 1",
        "pingpong --sizes 0B,1B,4096B,100000B --repetitions 10 --data-check",
        "stream --buffer 20000B --bytes 1000000B --data-check",
    ] {
        let [tcp, verbs] = ["tcp", "verbs"]
            .map(|transport| measure(guest, &format!("{what} --time 30 --transport {transport}")));
        assert_eq!(verbs["transport"], "verbs");
        assert!(verbs["verbs"].is_object(), "{what}");
        if what.starts_with("stream") {
            for told in [&tcp, &verbs] {
                assert_eq!(told["total"]["bytes"], 1_000_000, "{what}");
            }
        }
        for key in ["workload", "sizes"] {
            let shape = |told: &Value| {
                let sizes = told[key].as_array().cloned().unwrap_or_default();
                let of = |size: &Value| (size["bytes"].clone(), size["repetitions"].clone());
                (
                    told["workload"].clone(),
                    sizes.iter().map(of).collect::<Vec<_>>(),
                )
            };
            assert_eq!(shape(&tcp), shape(&verbs), "{what}");
        }
        let keys = |told: &Value| {
            let object = told.as_object().expect("a document").keys();
            object.cloned().collect::<Vec<_>>()
        };
        let (tcp, verbs) = (keys(&tcp), keys(&verbs));
        let missing: Vec<_> = tcp.iter().filter(|key| !verbs.contains(key)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
    let told = measure(guest, "rr --depth 4 --time 1 --transport verbs");
    assert!(told["verbs"].is_object(), "{told:#}");
}

pub(crate) fn a_grid_is_the_same_over_verbs_and_over_tcp_bit_for_bit(guest: &Guest) {
    pair(guest);
    let what = "diffusion --buffer 64KiB --repetitions 20 --flows 2 --data-check --time 60";
    let [tcp, verbs] = ["tcp", "verbs"].map(|transport| {
        let told = measure(guest, &format!("{what} --transport {transport}"));
        assert_eq!(told["transport"], transport);
        let found = told["diffusion"].clone();
        assert_eq!(found["same_grid"], true, "{found:#}");
        assert_eq!(found["repetitions"], 20, "{found:#}");
        found
    });
    let checksums = &tcp["local"]["checksums"];
    assert_eq!(checksums.as_array().map(Vec::len), Some(2));
    for end in ["local", "remote"] {
        assert_eq!(&tcp[end]["checksums"], checksums, "{end}");
        assert_eq!(&verbs[end]["checksums"], checksums, "{end}");
    }
}

pub(crate) fn memory_that_may_not_be_pinned_is_said_with_its_limit(guest: &Guest) {
    pair(guest);
    let command = format!("{} {COMMON}", pinning_too_much());
    let (code, said) = refuse_in_time(guest, at_most::ANSWERED, (FOR_NOBODY, &command, ""));
    assert_eq!(code, 41, "{said}");
    assert!(
        said.contains("register memory") && said.contains("ulimit -l"),
        "{said}"
    );
}

/// Gives an ordinary user access to the devices, and a separate state folder.
const FOR_NOBODY: &str = "chmod 666 /dev/infiniband/*; mkdir -p /run/own; chmod 777 /run/own";

/// An ordinary user's measurement, without its peer, that pins more than its limit.
fn pinning_too_much() -> String {
    format!(
        "ulimit -l 64; exec setpriv --reuid 65534 --clear-groups {} --state /run/own/state \
         measure --no-store rdma-write --sizes 1MiB --time 160",
        plain()
    )
}

/// The command line without its state, which an ordinary user may not write.
fn plain() -> String {
    let command = Guest::command();
    let (program, _) = command.split_once(" --state").expect("it has one");
    program.to_owned()
}

pub(crate) fn a_port_that_is_down_and_a_peer_that_is_out_of_reach_are_told_apart(guest: &Guest) {
    pair(guest);
    let command = Guest::command();
    let agent = LastingAgent::start(guest);
    let peer = format!("--time 160 --address 10.9.0.2 {}", LastingAgent::PEER);
    // The address stays, its device's port does not: TCP goes on over the other interface's address.
    let (code, said) = refuse_in_time(
        guest,
        at_most::ANSWERED,
        (
            "ip link add dummy9 type dummy; ip link set dummy9 up; rdma link add rxd type rxe netdev dummy9
            ip link set dummy9 down",
            &format!("{command} measure --no-store rdma-write --device rxd --gid-index 0 {peer}"),
            "rdma link delete rxd; ip link del dummy9",
        ),
    );
    assert_eq!(code, 22, "{said}");
    assert!(
        said.contains("it is DOWN") || said.contains("no port of rxd"),
        "{said}"
    );
    // A GID that the remote end has no way back to.
    let (code, said) = refuse_in_time(
        guest,
        at_most::BEFORE_THE_START,
        (
            "ip address add 203.0.113.9/32 dev va
            until grep -q cb00:7109 /sys/class/infiniband/rxa/ports/1/gids/*; do :; done
            index=$(basename $(grep -l cb00:7109 /sys/class/infiniband/rxa/ports/1/gids/*))
            ip route add blackhole 203.0.113.9 table 91; ip rule add pref 5 to 203.0.113.9 lookup 91",
            &format!("{command} measure --no-store rdma-write --gid-index $index {peer}"),
            "ip rule del pref 5; ip route flush table 91; ip address del 203.0.113.9/32 dev va",
        ),
    );
    // The kernel has no route there, or the device receives nothing from there.
    assert!(matches!(code, 30 | 40), "{code}: {said}");
    assert!(
        said.contains("not reachable") || said.contains("retry count exceeded"),
        "{said}"
    );
    agent_goes_on(guest, agent);
}

pub(crate) fn a_key_that_the_far_end_did_not_give_is_refused_by_its_device(guest: &Guest) {
    pair(guest);
    for verb in ["rdma-write", "rdma-read"] {
        let command = format!("{} {COMMON}", with_wrong_keys(guest, verb));
        let (code, said) = refuse_in_time(guest, at_most::ANSWERED, ("", &command, ""));
        assert_eq!(code, 30, "{said}");
        assert!(said.contains("wrong key"), "{said}");
    }
}

/// A measurement, without its peer, that changes keys of the remote end's memory.
fn with_wrong_keys(guest: &Guest, verb: &str) -> String {
    format!(
        "LINERATE_SPOIL=key LINERATE_LIBIBVERBS={} {} measure --no-store {verb} --sizes 4096B --time 160",
        spoiling_library(guest),
        Guest::command()
    )
}

/// Fails unless the kernel reports registered memory of a program, as it does while data flows: if it reports
/// nothing, [`assert_nothing_is_held`] proves nothing.
const HOLDS: &str =
    "rdma resource show mr | grep -qv 'comm \\[' || { echo 'no region is told of' >&2; exit 1; }";

/// No program has anything left with the kernel: what is the kernel's own has its owner in brackets. (A name of
/// ours would not do: what a thread made that is gone has none.)
#[track_caller]
pub(crate) fn assert_nothing_is_held(guest: &Guest) {
    // The resources of a killed process are released shortly after it is seen to be gone.
    let held = guest.shell(
        "held() { for kind in mr qp cq pd; do rdma resource show $kind || echo not told; done | grep -v 'comm \\[' || true; }
        end=$((SECONDS + 60))
        while [ -n \"$(held)\" ] && [ $SECONDS -lt $end ]; do :; done
        held",
    );
    assert_eq!(held, "");
}

pub(crate) fn one_agent_lives_on_from_fault_to_fault(guest: &Guest) {
    pair(guest);
    let agent = LastingAgent::start(guest);
    let peer = format!("--address 10.9.0.2 {}", LastingAgent::PEER);
    let faults = [
        (
            "",
            format!("{} {peer}", with_wrong_keys(guest, "rdma-write")),
            (30, "wrong key"),
        ),
        (
            FOR_NOBODY,
            format!("{} {peer}", pinning_too_much()),
            (41, "ulimit -l"),
        ),
    ];
    for (before, command, (code, words)) in faults {
        // Nothing is held while the agent is there.
        let (found, said) = refuse_in_time(guest, at_most::ANSWERED, (before, &command, ""));
        assert_eq!(found, code, "{said}");
        assert!(said.contains(words), "{said}");
        agent.assert_alive();
    }
    agent_goes_on(guest, agent);
}

/// An agent whose trials have failed carries out the next one, and has nothing left of any.
#[track_caller]
fn agent_goes_on(guest: &Guest, agent: LastingAgent<'_>) {
    let out = guest.shell(&format!(
        "{} --format json measure --no-store rdma-write --sizes 4096B --repetitions 10 --time 20 --data-check \
         --address 10.9.0.2 {}",
        Guest::command(),
        LastingAgent::PEER
    ));
    let told: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error} in {out}"));
    assert_eq!(entry(&told["sizes"], "bytes", 4096)["repetitions"], 10);
    assert_nothing_is_held(guest);
    agent.end();
}

pub(crate) fn an_end_that_is_killed_leaves_nothing_registered(guest: &Guest) {
    pair(guest);
    let command = Guest::command();
    for (kill, waiting) in [
        ("pkill -KILL -f '[a]gent --stdio'", "spin"),
        ("pkill -KILL -f '[a]gent --stdio'", "blocking"),
        ("kill -KILL $near", "spin"),
    ] {
        let script = format!(
            "{CLOCK}
            {command} measure --no-store rdma-send --sizes 4096B --time 160 --wait {waiting} {COMMON} >/run/out 2>/run/err & near=$!
            {UNTIL_IT_FLOWS}
            {HOLDS}
            fault; {kill}
            wait $near; echo $?; cat /run/err
            while pgrep -f '[a]gent --stdio' >/run/none; do :; done
            echo; over"
        );
        let said = guest.run(&["bash", "-c", &script]);
        let code = said.out.lines().next().unwrap_or_default().to_owned();
        assert_eq!(said.code, 0, "{said:#?}");
        assert_in_time(&said.out, at_most::ANSWERED);
        if kill.contains("gent") {
            assert_eq!(code, "20", "{}", said.out);
        } else {
            assert_eq!(code, "137", "{}", said.out);
        }
        assert_nothing_is_held(guest);
    }
}

pub(crate) fn a_device_that_goes_away_in_mid_run_ends_the_trial_and_the_agent_lives_on(
    guest: &Guest,
) {
    pair(guest);
    let command = Guest::command();
    let agent = LastingAgent::start(guest);
    let peer = LastingAgent::PEER;
    let script = format!(
        "{CLOCK}
        {command} measure --no-store rdma-write --sizes 4096B --time 160 --address 10.9.0.2 {peer} >/run/out 2>/run/err & near=$!
        {UNTIL_IT_FLOWS}
        fault; ip link set vb down
        wait $near; echo $?; over; cat /run/err
        ip link set vb up
        {UNTIL_THE_PORTS_ARE_UP}"
    );
    let said = guest.run(&["bash", "-c", &script]);
    assert_eq!(said.code, 0, "{said:#?}");
    let code = said.out.lines().next().unwrap_or_default();
    assert!(matches!(code, "30" | "40" | "41"), "{}", said.out);
    assert_in_time(&said.out, at_most::UNANSWERED);
    // Which end notices, and of what, is the device's affair.
    let says = [
        "retry count exceeded",
        "reported an event",
        "its interface is down",
    ];
    assert!(
        says.iter().any(|one| said.out.contains(one)),
        "{}",
        said.out
    );
    assert_nothing_is_held(guest);
    // The wire is there again, and so is everything else.
    guest.shell("ip route replace 10.9.0.1 dev vb src 10.9.0.2 table 902");
    agent_goes_on(guest, agent);
}

/// Neither the driver nor a device of soft-RoCE is taken from under a program that has it open: the kernel refuses to
/// unload the one, and waits with the end of the other until the program has ended. So the trial goes on, and what it
/// must not do is keep them any longer.
pub(crate) fn a_device_that_is_deleted_in_mid_run_is_let_go_of(guest: &Guest) {
    const TIME: u8 = 5;
    pair(guest);
    let command = Guest::command();
    let said = guest.run(&[
        "bash",
        "-c",
        &format!(
            "{CLOCK}
            {command} measure --no-store rdma-write --sizes 4096B --time {TIME} {COMMON} >/run/out 2>/run/err & near=$!
            {UNTIL_IT_FLOWS}
            fault; timeout 60 modprobe -r rdma_rxe; echo unloaded $?
            timeout 60 rdma link delete rxb; echo deleted $?
            wait $near; echo ended $?; over; cat /run/err
            ls /sys/class/infiniband"
        ),
    ]);
    assert_eq!(said.code, 0, "{said:#?}");
    for words in ["unloaded 1\n", "deleted 0\n", "ended 0\n"] {
        assert!(said.out.contains(words), "{words}: {said:#?}");
    }
    assert!(said.err.contains("in use"), "{}", said.err);
    assert_in_time(&said.out, f64::from(TIME) + at_most::ANSWERED);
    assert_nothing_is_held(guest);
    // Nobody has it open now: the driver goes, and comes back with other devices.
    guest.shell(&format!("{SOFT_RDMA} down; modprobe -r rdma_rxe"));
    guest.linerate(&["testbed", "rxe", "pair"]);
    let out = guest.shell(&format!(
        "{command} --format json measure --no-store rdma-write --sizes 4096B --repetitions 10 --time 20 --data-check \
         --address 198.18.0.2 local"
    ));
    let told: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error} in {out}"));
    assert_eq!(entry(&told["sizes"], "bytes", 4096)["repetitions"], 10);
    guest.linerate(&["testbed", "rxe", "remove", "--all"]);
}

pub(crate) fn a_user_who_may_not_use_the_device_is_told_so(guest: &Guest) {
    pair(guest);
    let (code, said) = refuse(
        guest,
        &format!(
            "chmod 600 /dev/infiniband/*; mkdir -p /run/own; chmod 777 /run/own
            setpriv --reuid 65534 --clear-groups {} --state /run/own/state measure --no-store rdma-write --time 1 {COMMON}; code=$?
            chmod 666 /dev/infiniband/*; exit $code",
            plain()
        ),
    );
    assert_eq!(code, 21, "{said}");
    assert!(said.contains("/dev/infiniband"), "{said}");
}
