//! Traffic over verbs between two soft-RoCE devices: what is moved, what it says, and what goes wrong.

use serde_json::Value;

use crate::guest::{Guest, entry};
use crate::rdma::pair;

/// What every measurement here has in common.
const COMMON: &str = "--address 10.9.0.2 local";

/// Waits until `$near` moves data, and fails with what it said when it ended before.
const UNTIL_IT_FLOWS: &str = "counter=/sys/class/infiniband/rxa/ports/1/hw_counters/sent_pkts
    from=$(cat $counter)
    until [ $(($(cat $counter) - from)) -gt 200 ]; do
        kill -0 $near 2>/run/none || { cat /run/err >&2; exit 1; }
    done";

/// Waits for both ends: the far end of a wire learns up to a second later that it has a carrier again.
const UNTIL_THE_PORTS_ARE_UP: &str = "for device in rxa rxb; do
        until grep -q ACTIVE /sys/class/infiniband/$device/ports/1/state; do :; done
    done";

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

/// A command line in the guest, and what it printed as a document.
fn measure(guest: &Guest, what: &str) -> Value {
    let command = Guest::command();
    let out = guest.shell(&format!("{command} --format json measure {what} {COMMON}"));
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error} in {out}"))
}

/// How a measurement that must fail ends: its exit code and what it says.
fn refuse(guest: &Guest, script: &str) -> (i32, String) {
    let done = guest.run(&["bash", "-c", script]);
    assert_ne!(done.code, 0, "{script}\n{}", done.out);
    (done.code, done.err)
}

/// All rows of verbs and modes that there are.
fn rows() -> Vec<String> {
    let mut rows: Vec<String> = MODES
        .iter()
        .map(|(verb, options)| format!("{verb} {options}"))
        .collect();
    // Sleeping until a completion is told of, which a write's far end never is.
    rows.extend([
        "rdma-write --sizes 5000B --wait blocking".to_owned(),
        "rdma-read --latency --sizes 5000B --wait blocking".to_owned(),
        "rdma-send --latency --sizes 5000B --wait blocking".to_owned(),
        "rdma-atomic --latency".to_owned(),
        "rdma-send --service ud --sizes 7B,1024B".to_owned(),
        "rdma-send --service ud --latency --sizes 7B,1024B".to_owned(),
    ]);
    rows
}

pub(crate) fn every_byte_of_every_verb_and_mode_is_the_right_one(guest: &Guest) {
    pair(guest);
    let more = [
        "rdma-write --connect cm --sizes 5000B",
        "rdma-read --bidir --flows 3 --threads 2 --sizes 5000B",
        "rdma-send --reverse --flows 2 --threads 1 --sizes 5000B --moderation 1 --inline 0B",
    ];
    for row in rows().into_iter().chain(more.map(str::to_owned)) {
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
        assert_eq!(
            sizes.len(),
            1 + usize::from(row.contains("--sizes 7B,")),
            "{row}"
        );
    }
}

pub(crate) fn a_changed_byte_fails_every_verb_and_mode(guest: &Guest) {
    pair(guest);
    let library = linerate_verbs_spoil::library();
    for row in rows() {
        let (code, said) = refuse(
            guest,
            &format!(
                "LINERATE_LIBIBVERBS='{}' {} measure {row} --data-check --repetitions 20 --time 20 {COMMON}",
                library.display(),
                Guest::command()
            ),
        );
        assert!(said.contains("arrived as"), "{row}: {code}: {said}");
    }
}

pub(crate) fn workloads_are_the_same_over_verbs_and_over_tcp(guest: &Guest) {
    pair(guest);
    for what in [
        "transfer --bytes 100001B --repetitions 4 --data-check --flows 2 --threads 1",
        "pingpong --sizes 0B,1B,4096B,100000B --repetitions 10",
    ] {
        let [tcp, verbs] = ["tcp", "verbs"]
            .map(|transport| measure(guest, &format!("{what} --time 30 --transport {transport}")));
        assert_eq!(verbs["transport"], "verbs");
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
    for what in ["stream --buffer 20000B", "rr --depth 4"] {
        let told = measure(guest, &format!("{what} --time 1 --transport verbs"));
        let flow = &told["flows"][0];
        assert!(
            flow["verbs"].is_object() || told["verbs"].is_object(),
            "{told:#}"
        );
    }
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
    let (code, said) = refuse(
        guest,
        &format!(
            "chmod 666 /dev/infiniband/*; mkdir -p /run/own; chmod 777 /run/own; ulimit -l 64
            exec setpriv --reuid 65534 --clear-groups {} --state /run/own/state measure rdma-write --sizes 1MiB --time 1 {COMMON}",
            plain()
        ),
    );
    assert_eq!(code, 41, "{said}");
    assert!(
        said.contains("register memory") && said.contains("ulimit -l"),
        "{said}"
    );
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
    // The address stays, its device's port does not: TCP goes on over the other interface's address.
    let (code, said) = refuse(
        guest,
        &format!(
            "ip link add dummy9 type dummy; ip link set dummy9 up; rdma link add rxd type rxe netdev dummy9
            ip link set dummy9 down
            {command} measure rdma-write --device rxd --gid-index 0 --time 1 {COMMON}; code=$?
            rdma link delete rxd; ip link del dummy9; exit $code"
        ),
    );
    assert_eq!(code, 22, "{said}");
    assert!(
        said.contains("it is DOWN") || said.contains("no port of rxd"),
        "{said}"
    );
    // A GID that the far end has no way back to.
    let (_, said) = refuse(
        guest,
        &format!(
            "ip address add 203.0.113.9/32 dev va
            until grep -q cb00:7109 /sys/class/infiniband/rxa/ports/1/gids/*; do :; done
            index=$(basename $(grep -l cb00:7109 /sys/class/infiniband/rxa/ports/1/gids/*))
            ip route add blackhole 203.0.113.9 table 91; ip rule add pref 5 to 203.0.113.9 lookup 91
            {command} measure rdma-write --gid-index $index --time 1 {COMMON}; code=$?
            ip rule del pref 5; ip route flush table 91; ip address del 203.0.113.9/32 dev va; exit $code"
        ),
    );
    assert!(
        said.contains("out of reach") || said.contains("did not answer"),
        "{said}"
    );
}

pub(crate) fn a_key_that_the_far_end_did_not_give_is_refused_by_its_device(guest: &Guest) {
    pair(guest);
    for verb in ["rdma-write", "rdma-read"] {
        let (code, said) = refuse(
            guest,
            &format!(
                "LINERATE_SPOIL=key LINERATE_LIBIBVERBS='{}' {} measure {verb} --sizes 4096B --time 20 {COMMON}",
                linerate_verbs_spoil::library().display(),
                Guest::command()
            ),
        );
        assert_eq!(code, 30, "{said}");
        assert!(said.contains("a wrong key"), "{said}");
        assert_nothing_is_held(guest);
    }
}

/// Nothing that a program had is left with the kernel.
fn assert_nothing_is_held(guest: &Guest) {
    let held = guest.shell(
        "for kind in mr qp cq pd; do rdma resource show $kind; done | grep -w pid | grep linerate || true",
    );
    assert_eq!(held, "");
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
            "{command} measure rdma-send --sizes 4096B --time 30 --wait {waiting} {COMMON} >/run/out 2>/run/err & near=$!
            {UNTIL_IT_FLOWS}
            {kill}
            wait $near; echo $?; cat /run/err
            while pgrep -f '[a]gent --stdio' >/run/none; do :; done"
        );
        let said = guest.run(&["bash", "-c", &script]);
        let code = said.out.lines().next().unwrap_or_default().to_owned();
        assert_eq!(said.code, 0, "{said:#?}");
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
    let script = format!(
        "{command} measure rdma-write --sizes 4096B --time 20 {COMMON} >/run/out 2>/run/err & near=$!
        {UNTIL_IT_FLOWS}
        ip link set vb down
        wait $near; echo $?; cat /run/err
        ip link set vb up
        {UNTIL_THE_PORTS_ARE_UP}"
    );
    let said = guest.run(&["bash", "-c", &script]);
    assert_eq!(said.code, 0, "{said:#?}");
    assert!(!said.out.starts_with('0'), "{}", said.out);
    // Which end notices, and of what, is the device's affair.
    let says = [
        "did not answer",
        "reported in the midst",
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
    let told = measure(
        guest,
        "rdma-write --sizes 4096B --repetitions 10 --time 10 --data-check",
    );
    let sizes = &told["sizes"];
    assert_eq!(entry(sizes, "bytes", 4096)["repetitions"], 10);
}

pub(crate) fn a_device_that_is_deleted_in_mid_run_is_let_go_of(guest: &Guest) {
    pair(guest);
    let command = Guest::command();
    // Soft-RoCE waits with its end until nobody has it open.
    let said = guest.run(&[
        "bash",
        "-c",
        &format!(
            "{command} measure rdma-write --sizes 4096B --time 5 {COMMON} >/run/out 2>/run/err & near=$!
            {UNTIL_IT_FLOWS}
            timeout 60 rdma link delete rxb; echo deleted $?
            wait $near; echo ended $?; cat /run/err
            ls /sys/class/infiniband
            rdma link add rxb type rxe netdev vb
            {UNTIL_THE_PORTS_ARE_UP}"
        ),
    ]);
    assert_eq!(said.code, 0, "{said:#?}");
    assert!(said.out.contains("deleted 0"), "{}", said.out);
    assert!(said.out.contains("ended 0"), "{}", said.out);
    assert_nothing_is_held(guest);
}

pub(crate) fn a_user_who_may_not_use_the_device_is_told_so(guest: &Guest) {
    pair(guest);
    let (code, said) = refuse(
        guest,
        &format!(
            "chmod 600 /dev/infiniband/*; mkdir -p /run/own; chmod 777 /run/own
            setpriv --reuid 65534 --clear-groups {} --state /run/own/state measure rdma-write --time 1 {COMMON}; code=$?
            chmod 666 /dev/infiniband/*; exit $code",
            plain()
        ),
    );
    assert_eq!(code, 21, "{said}");
    assert!(said.contains("/dev/infiniband"), "{said}");
}
