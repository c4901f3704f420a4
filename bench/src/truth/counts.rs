//! Do the programs, the sockets and the interfaces count the same bytes?
//!
//! * The two programs: exactly, flow by flow.
//! * The sockets (TCP_INFO): what was sent once equals what the receiver's kernel got, exactly. In addition to the payload
//!   a connection carries linerate's handshake (at most [`SIGNS_MAX`] bytes), and the end of the
//!   stream takes a place in TCP's sequence, which `tcpi_bytes_received` counts as a byte.
//! * The interfaces: a veth pair counts each packet as it is, many segments under one header. Less
//!   one header per packet there remains the payload; retransmissions, handshakes and neighbor
//!   discovery ([`NEIGHBOURS_MAX`]) are the bound.

use linerate_model::sample::{FlowRecord, Role, Sample, SideSample};
use linerate_model::units::Bytes;
use linerate_model::watch::Watch;
use linerate_model::workload::Workload;

use crate::Trouble;
use crate::hosts::{Bench, FAR_NIC, Hosts, NEAR_NIC};
use crate::line::{Line, Verdict};

/// Greeting (28), ready, go, and the place of the end.
const SIGNS_MAX: u64 = 31;
/// ARP and neighbor discovery, in all.
const NEIGHBOURS_MAX: u64 = 4_096;
const ETHERNET: u64 = 14;
/// IPv4, and TCP with timestamps; or UDP.
const TCP_HEADERS: u64 = 20 + 32;
const UDP_HEADERS: u64 = 20 + 8;

/// The trials: a name, and the arguments of each.
const CASES: [(&str, &str); 5] = [
    ("1 flow", "stream PEER --time 1"),
    ("4 flows back", "stream PEER --time 1 --flows 4 --reverse"),
    (
        "2 flows both ways",
        "stream PEER --time 1 --flows 2 --bidir",
    ),
    ("300 MB, 3 flows", "stream PEER --bytes 300MB --flows 3"),
    ("udp, 1 flow", "udp PEER --time 1 --rate 200Mbit"),
];
/// One more, through a lossy relay: its packets have no Ethernet header. (A queue at the sender is
/// no such thing: what it drops, the kernel counts as sent and not as retransmitted.)
const LOSSY: (&str, &str) = ("2 flows, loss of 0.1 %", "stream PEER --time 1 --flows 2");
const LOSS: f64 = 0.001;

pub(crate) fn run(bench: &Bench, lines: &mut Vec<Line>) -> Result<(), Trouble> {
    let hosts = bench.hosts()?;
    for (name, words) in CASES {
        let udp = words.starts_with("udp");
        let headers = if udp { UDP_HEADERS } else { TCP_HEADERS };
        case(&hosts, name, words, ETHERNET + headers, lines)?;
    }
    let (name, words) = LOSSY;
    case(
        &bench.hosts_that_lose(LOSS)?,
        name,
        words,
        TCP_HEADERS,
        lines,
    )
}

fn case(
    hosts: &Hosts<'_>,
    name: &str,
    words: &str,
    headers: u64,
    lines: &mut Vec<Line>,
) -> Result<(), Trouble> {
    let sample = hosts.measure(&words.replace("PEER", &hosts.peer()))?.raw;
    let udp = matches!(sample.spec.workload, Workload::Udp(_));
    lines.push(programs(name, &sample, udp));
    if !udp {
        lines.push(sockets(name, &sample)?);
    }
    lines.push(interfaces(name, &sample, udp, headers)?);
    Ok(())
}

/// The sending and the receiving record of each flow.
fn pairs(sample: &Sample) -> Vec<(&FlowRecord, &FlowRecord)> {
    let ways = [
        (&sample.local, &sample.remote),
        (&sample.remote, &sample.local),
    ];
    let of = |(from, to): (&'_ SideSample, &'_ SideSample)| -> Vec<(usize, usize)> {
        let senders = from.flows.iter().enumerate();
        let senders = senders.filter(|(_, flow)| flow.role == Role::Sender);
        senders
            .filter_map(|(at, sender)| {
                let receives =
                    |flow: &FlowRecord| flow.role == Role::Receiver && flow.flow == sender.flow;
                Some((at, to.flows.iter().position(receives)?))
            })
            .collect()
    };
    ways.into_iter()
        .flat_map(|(from, to)| {
            of((from, to))
                .into_iter()
                .map(|(at, other)| (&from.flows[at], &to.flows[other]))
        })
        .collect()
}

fn sum(
    pairs: &[(&FlowRecord, &FlowRecord)],
    pick: impl Fn(&FlowRecord, &FlowRecord) -> u64,
) -> u64 {
    pairs.iter().map(|(from, to)| pick(from, to)).sum()
}

fn sent_again(pairs: &[(&FlowRecord, &FlowRecord)]) -> u64 {
    sum(pairs, |from, _| {
        let drained = from.drained;
        drained.map_or(0, |drained| drained.bytes_retransmitted.as_u64())
    })
}

fn programs(name: &str, sample: &Sample, udp: bool) -> Line {
    let pairs = pairs(sample);
    let sent = sum(&pairs, |from, _| from.total().as_u64());
    // A datagram that was lost was counted as such; one that came twice is none of the sent ones.
    let size = match &sample.spec.workload {
        Workload::Udp(spec) => spec.datagram_bytes.as_u64(),
        _ => 0,
    };
    let got = |to: &FlowRecord| match &to.datagrams {
        Some(seen) if udp => (seen.count + seen.lost).saturating_sub(seen.duplicated) * size,
        _ => to.total().as_u64(),
    };
    let apart = sum(&pairs, |from, to| from.total().as_u64().abs_diff(got(to)));
    let expected = usize::try_from(sample.spec.flows).unwrap_or(usize::MAX);
    let lost = if udp { ", including losses" } else { "" };
    Line::new(
        format!("bytes of both programs, {name}"),
        format!("{sent} B sent and received{lost}: differ by {apart} B"),
        "exactly",
        Verdict::of(apart == 0 && sent > 0 && pairs.len() >= expected),
    )
}

fn sockets(name: &str, sample: &Sample) -> Result<Line, Trouble> {
    let pairs = pairs(sample);
    let mut apart = 0;
    let mut signs = (u64::MAX, 0);
    let mut holds = !pairs.is_empty();
    for (from, to) in &pairs {
        let receiver = to.tcp.value();
        let receiver =
            receiver.ok_or_else(|| Trouble("read TCP_INFO of the receiver".to_owned()))?;
        let drained = from.drained;
        let drained = drained
            .ok_or_else(|| Trouble("find what had been sent when all had come".to_owned()))?;
        let sent = drained.bytes_sent.as_u64() - drained.bytes_retransmitted.as_u64();
        let received = receiver.bytes_received.map_or(0, Bytes::as_u64);
        // The receiver's count has the place of the end.
        let difference = received.abs_diff(sent);
        apart = apart.max(difference);
        let beside = received.saturating_sub(to.total().as_u64());
        signs = (signs.0.min(beside), signs.1.max(beside));
        holds &= difference <= 1 && received >= to.total().as_u64() && beside <= SIGNS_MAX;
    }
    let again = sent_again(&pairs);
    Ok(Line::new(
        format!("bytes of the sockets, {name}"),
        format!(
            "sent once and received differ by {apart} B, {} to {} B more than the program's ({again} B retransmitted)",
            signs.0, signs.1
        ),
        format!("1 B for the end; {SIGNS_MAX} B of handshake per connection"),
        Verdict::of(holds),
    ))
}

fn interfaces(name: &str, sample: &Sample, udp: bool, headers: u64) -> Result<Line, Trouble> {
    let local = counted(&sample.local)?;
    let remote = counted(&sample.remote)?;
    let payload = |watch: &Watch, nic: &str, way: &str| -> Result<u64, Trouble> {
        let grown = |what: &str| {
            let key = format!("nic/{nic}/stat/{way}_{what}");
            let grown = watch.grown(&key).get();
            grown.ok_or_else(|| Trouble(format!("find the counter {key} in the record")))
        };
        Ok(grown("bytes")?.saturating_sub(headers * grown("packets")?))
    };
    let all = pairs(sample);
    let again = sent_again(&all);
    let sent = sum(&all, |from, _| from.total().as_u64());
    let received = sum(&all, |_, to| to.total().as_u64());
    let out = payload(local, NEAR_NIC, "tx")? + payload(remote, FAR_NIC, "tx")?;
    let came = payload(remote, FAR_NIC, "rx")? + payload(local, NEAR_NIC, "rx")?;
    let flows = u64::try_from(all.len()).unwrap_or(u64::MAX);
    let bound = again + SIGNS_MAX * flows + NEIGHBOURS_MAX;
    // What a queue before the interface dropped was retransmitted, or, with UDP, never passed it.
    let holds = out.abs_diff(sent) <= bound && came.abs_diff(received) <= bound;
    let (out_off, came_off) = (out.abs_diff(sent), came.abs_diff(received));
    let verdict = match (holds, udp) {
        (true, _) => Verdict::Yes,
        // A socket whose buffer is full drops what the interface has counted.
        (false, true) if out_off <= bound && came > received => Verdict::Undecided,
        (false, _) => Verdict::No,
    };
    Ok(Line::new(
        format!("bytes of the interfaces, {name}"),
        format!(
            "less headers, sent differs by {out_off} B and received by {came_off} B from the programs'"
        ),
        format!("{bound} B: retransmissions, handshakes, and ARP or neighbor discovery"),
        verdict,
    ))
}

fn counted(side: &SideSample) -> Result<&Watch, Trouble> {
    let watch = side.counters.value();
    watch.ok_or_else(|| Trouble("find the interfaces' counters in the record".to_owned()))
}
