//! RDMA over TCP between two devices of siw: the map of one, traffic, and what iWARP does not support.

use serde_json::Value;

use crate::guest::{Guest, SOFT_RDMA, entry};
use crate::rdma::warm_up;
use crate::verbs::{assert_nothing_is_held, measure_after, refuse, spoiling_library};

/// `swa` on `va` with 10.9.0.1 and `swb` on `vb` with 10.9.0.2, in the place of soft-RoCE; where the guest has no siw,
/// the test is a skip.
fn pair(guest: &Guest) -> bool {
    let there = !guest
        // Only looked for: one that is there and cannot be loaded is a failure.
        .shell("modprobe -qn siw && echo there || true")
        .is_empty();
    if there {
        let warm_up = warm_up();
        guest.shell(&format!(
            "[ -e /sys/class/infiniband/swb ] || {{ {SOFT_RDMA} down; {SOFT_RDMA} up siw; {PINS} {warm_up}; }}"
        ));
    } else {
        println!(
            "SKIP: the guest has no siw: its module could not be made (gcc, make, the kernel's headers and its sources \
             are needed)"
        );
    }
    there
}

/// siw counts what it pins against the limit of whoever asks, root too.
const PINS: &str = "ulimit -l unlimited;";

/// What carries every byte: the verbs, and the workloads that are the same over TCP.
const ROWS: [&str; 14] = [
    "rdma-write --sizes 7B,5000B --repetitions 20",
    "rdma-write --latency --sizes 7B,5000B --repetitions 20",
    "rdma-write --wait blocking --sizes 5000B --repetitions 20",
    "rdma-read --sizes 7B,5000B --repetitions 20",
    "rdma-read --latency --wait blocking --sizes 7B,5000B --repetitions 20",
    "rdma-read --bidir --flows 3 --threads 2 --sizes 5000B --repetitions 20",
    "rdma-send --sizes 7B,5000B --repetitions 20",
    "rdma-send --latency --wait blocking --sizes 7B,5000B --repetitions 20",
    "rdma-send --reverse --flows 2 --threads 1 --sizes 5000B --cq-mod 1 --inline 0B --repetitions 20",
    "rdma-write --connect cm --traffic-class 104 --sizes 5000B --repetitions 20",
    "pingpong --transport verbs --sizes 0B,1B,4096B,100000B --repetitions 10",
    "stream --transport verbs --buffer 20000B --bytes 1000000B",
    "transfer --transport verbs --bytes 100001B --repetitions 4 --flows 2 --threads 1",
    "diffusion --transport verbs --buffer 64KiB --repetitions 4",
];

pub(crate) fn an_iwarp_device_is_one_of_its_nic_and_carries_every_byte(guest: &Guest) {
    if !pair(guest) {
        return;
    }
    let host = guest.map();
    for (device, nic) in [("swa", "va"), ("swb", "vb")] {
        let device = entry(&host["rdma"], "name", device);
        assert_eq!(device["node_type"], "RNIC");
        let port = entry(&device["ports"], "port", 1);
        assert_eq!(
            (&port["state"], &port["netdev"]),
            (&"ACTIVE".into(), &nic.into())
        );
    }
    // What only RoCE has is not asked of it.
    let findings = guest.findings();
    let of_it = |found: &&Value| found["subject"].to_string().contains("rdma/sw");
    let found: Vec<&Value> = findings
        .as_array()
        .expect("a list")
        .iter()
        .filter(of_it)
        .collect();
    assert!(found.is_empty(), "{found:#?}");
    for row in ROWS {
        let told = measure_after(guest, PINS, &format!("{row} --data-check --time 20"));
        assert_eq!(told["transport"], "verbs", "{row}");
        for (end, device) in [("local", "swa"), ("remote", "swb")] {
            let end = &told["verbs"][end];
            assert_eq!(end["device"], device, "{row}");
            assert_eq!(end["mtu"], Value::Null, "{row}: TCP has its own");
        }
    }
    assert_nothing_is_held(guest);
}

/// No device of iWARP holds a message back until there is room for it.
pub(crate) fn messages_of_iwarp_are_sent_when_there_is_room_for_them(guest: &Guest) {
    if !pair(guest) {
        return;
    }
    for row in [
        "rdma-send --sizes 8B,65536B --depth 3 --repetitions 300 --flows 2 --threads 1",
        "rdma-send --bidir --sizes 1KiB --repetitions 1000",
        "stream --transport verbs --buffer 8KiB --bytes 5000001B",
    ] {
        let told = measure_after(guest, PINS, &format!("{row} --time 60"));
        assert_eq!(told["transport"], "verbs", "{row}");
    }
    assert_nothing_is_held(guest);
}

/// iWARP's connections have ports of TCP, which rdma_cm chooses without checking those that TCP has in use.
pub(crate) fn ports_that_tcp_has_are_passed_over_by_iwarp(guest: &Guest) {
    if !pair(guest) {
        return;
    }
    let command = Guest::command();
    // Of 200 ports each end has 150 in use, a few maybe by connections that ended just now: that all nine that are
    // chosen are free is one chance in 260,000.
    let out = guest.shell(&format!(
        "{PINS} range=/proc/sys/net/ipv4/ip_local_port_range
        before=$(cat $range)
        trap 'echo $before >$range; kill $(jobs -p); rm /run/taken' EXIT
        echo 50000 50199 >$range
        mkfifo /run/taken
        perl -MIO::Socket::INET -e '
            foreach my $end (qw(10.9.0.1 10.9.0.2)) {{ foreach my $port (50000 .. 50149) {{
                my $own = IO::Socket::INET->new(LocalAddr => $end, LocalPort => $port, Listen => 1);
                push @held, $own if $own;
                $own or $!{{EADDRINUSE}} or die $!;
            }} }}
            print \"taken\\n\"; close STDOUT; sleep' >/run/taken &
        read -r _ </run/taken
        {command} --format json measure --no-store rdma-write --flows 8 --sizes 64B --repetitions 10 --time 20 \
            --address 10.9.0.2 local"
    ));
    let told: Value = serde_json::from_str(&out).expect("a document");
    assert_eq!(told["flows"].as_array().map(Vec::len), Some(8), "{told:#}");
    assert_nothing_is_held(guest);
}

pub(crate) fn a_changed_byte_over_iwarp_fails(guest: &Guest) {
    if !pair(guest) {
        return;
    }
    let library = spoiling_library(guest);
    for row in [
        "rdma-write --sizes 5000B --repetitions 20",
        "rdma-read --sizes 5000B --repetitions 20",
        "rdma-send --latency --sizes 5000B --repetitions 20",
        "pingpong --transport verbs --sizes 4096B --repetitions 20",
        "stream --transport verbs --buffer 5000B --bytes 100000B",
        "transfer --transport verbs --bytes 5000B --repetitions 20",
        "diffusion --transport verbs --buffer 64KiB --repetitions 20",
    ] {
        let (code, said) = refuse(
            guest,
            &format!(
                "{PINS} LINERATE_LIBIBVERBS={library} {} measure --no-store {row} --data-check --time 20 --address 10.9.0.2 local",
                Guest::command()
            ),
        );
        assert!(said.contains("arrived as"), "{row}: {code}: {said}");
    }
    assert_nothing_is_held(guest);
}

pub(crate) fn what_iwarp_does_not_have_is_said_and_a_killed_end_leaves_nothing(guest: &Guest) {
    if !pair(guest) {
        return;
    }
    let command = Guest::command();
    for (row, words) in [
        ("rdma-send --service ud --sizes 64B", "--service ud"),
        ("rdma-write --mtu 512", "--mtu"),
        ("rdma-write --sl 3", "--sl"),
        ("rdma-write --gid-index 0", "--gid-index"),
        ("rdma-write --ack-timeout 14", "--ack-timeout"),
        ("rdma-atomic", "atomic"),
    ] {
        let row =
            format!("{PINS} {command} measure --no-store {row} --time 5 --address 10.9.0.2 local");
        let (code, said) = refuse(guest, &row);
        assert_eq!(code, 22, "{row}: {said}");
        assert!(said.contains(words), "{row}: {said}");
    }
    assert_nothing_is_held(guest);
    let sent = "/sys/class/net/va/statistics/tx_packets";
    let said = guest.shell(&format!(
        "{PINS} {command} measure --no-store rdma-send --sizes 4096B --time 60 --address 10.9.0.2 local >/run/out 2>/run/err & near=$!
        from=$(cat {sent})
        until [ $(($(cat {sent}) - from)) -gt 2000 ]; do kill -0 $near || {{ cat /run/err >&2; exit 1; }}; done
        pkill -KILL -f '[a]gent --stdio'
        wait $near && echo 0 || echo $?"
    ));
    assert_eq!(said, "20\n");
    assert_nothing_is_held(guest);
    guest.shell(&format!("{SOFT_RDMA} down; modprobe -r siw"));
}
