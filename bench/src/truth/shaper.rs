//! Through a shaper of known rate: is the rate that linerate reports the payload's share of it?
//!
//! TBF and HTB count `qdisc_pkt_len`: of a packet that the kernel segments later, the headers of every segment
//! (`qdisc_pkt_len_init`, net/core/dev.c), with the Ethernet header, without preamble and check sum. At MTU 1500
//! that is 1514 bytes for each full segment, of which 1448 are payload where TCP timestamps are on. A full
//! bucket lets [`BUCKET_MS`] of the rate pass at once; the trial is long in comparison, and mostly it falls into
//! the warm-up that linerate discards.

use std::time::{Duration, Instant};

use linerate_bench_shared::{pause, run_inside};
use linerate_model::units::Bytes;
use serde_json::Value;

use crate::Trouble;
use crate::hosts::{Bench, Hosts, Measured, NEAR_NIC};
use crate::line::{Line, Verdict, real};

/// Ethernet, IPv4 and TCP headers with timestamps.
const HEADERS: f64 = 66.0;
/// What the bucket holds, as time of the rate.
const BUCKET_MS: u32 = 5;
const SECONDS: u32 = 5;
/// How far the result may be off.
const OFF_MAX: f64 = 0.005;
/// How far the shaper itself may be off its rate before it cannot be a measure of anything.
const SHAPER_OFF_MAX: f64 = 0.003;
/// When the shaper's own counter is read.
const FIRST_LOOK: Duration = Duration::from_millis(1_500);
const BETWEEN_LOOKS: Duration = Duration::from_millis(2_500);

pub(crate) fn run(bench: &Bench, lines: &mut Vec<Line>) -> Result<(), Trouble> {
    for kind in ["TBF", "HTB"] {
        for gigabits in [1, 5] {
            lines.push(through(bench, kind, gigabits)?);
        }
    }
    Ok(())
}

fn through(bench: &Bench, kind: &str, gigabits: u32) -> Result<Line, Trouble> {
    let hosts = bench.hosts()?;
    let bucket = gigabits * 125_000 * BUCKET_MS;
    let shape = format!("rate {gigabits}gbit burst {bucket}b");
    let commands = match kind {
        // Its queue is so long that nothing is lost in it: the window ends at the socket's buffer.
        "TBF" => vec![format!(
            "qdisc add dev {NEAR_NIC} root tbf {shape} limit 64mb"
        )],
        _ => vec![
            format!("qdisc add dev {NEAR_NIC} root handle 1: htb default 10 r2q 1000"),
            format!("class add dev {NEAR_NIC} parent 1: classid 1:10 htb {shape} cburst {bucket}b"),
            format!("qdisc add dev {NEAR_NIC} parent 1:10 bfifo limit 64mb"),
        ],
    };
    for command in commands {
        run_inside(&hosts.near, "tc", &command).map_err(Trouble)?;
    }
    let running = hosts.start(&format!(
        "stream {} --time {SECONDS}{}",
        hosts.peer(),
        unpaced(&hosts)
    ))?;
    pause(FIRST_LOOK);
    let first = passed(&hosts)?;
    pause(BETWEEN_LOOKS);
    let second = passed(&hosts)?;
    let measured = running.finish()?;
    let bits = 8.0 * real(second.bytes.saturating_sub(first.bytes));
    let shaper = bits / (second.at - first.at).as_secs_f64();
    judge(kind, f64::from(gigabits) * 1e9, shaper, &measured)
}

/// A congestion control that does not pace: what bbr sends is its own estimate, and it stops now and then to
/// measure the round trip.
fn unpaced(hosts: &Hosts<'_>) -> String {
    let file = "net.ipv4.tcp_allowed_congestion_control";
    let allowed = run_inside(&hosts.near, "sysctl", &format!("-n {file}")).unwrap_or_default();
    let mut wanted = ["cubic", "reno"].into_iter();
    wanted
        .find(|name| allowed.split_whitespace().any(|one| one == *name))
        .map_or_else(String::new, |name| format!(" --cc {name}"))
}

/// The shaper's counters at one point in time.
struct Passed {
    at: Instant,
    bytes: u64,
}

fn passed(hosts: &Hosts<'_>) -> Result<Passed, Trouble> {
    let words = format!("-s -j qdisc show dev {NEAR_NIC}");
    let printed = run_inside(&hosts.near, "tc", &words).map_err(Trouble)?;
    let at = Instant::now();
    let all: Value = serde_json::from_str(&printed)
        .map_err(|error| Trouble(format!("understand tc: {error}")))?;
    let root = all.as_array().into_iter().flatten();
    let mut root = root.filter(|one| one["root"].as_bool() == Some(true));
    let bytes = root.next().and_then(|one| one["bytes"].as_u64());
    let bytes =
        bytes.ok_or_else(|| Trouble("find the shaper's counter in tc's words".to_owned()))?;
    Ok(Passed { at, bytes })
}

fn judge(kind: &str, rate: f64, shaper: f64, measured: &Measured) -> Result<Line, Trouble> {
    let sender = measured.raw.local.senders().next();
    let tcp = sender.and_then(|flow| flow.tcp.value());
    let tcp = tcp.ok_or_else(|| Trouble("read TCP_INFO of the sender".to_owned()))?;
    let payload = real(tcp.snd_mss_bytes.as_u64());
    // Retransmissions pass the shaper, too.
    let again = real(tcp.bytes_retransmitted.as_u64()) / real(tcp.bytes_sent.as_u64().max(1));
    let expected = rate * payload / (payload + HEADERS) * (1.0 - again);
    let said = measured.total.rate_bit_per_s.unwrap_or(0.0);
    let off = said / expected - 1.0;
    let shaper_off = shaper / rate - 1.0;
    let plain = tcp.timestamps && tcp.snd_mss_bytes == Bytes::new(1_448);
    let verdict = if plain && off.abs() <= OFF_MAX {
        Verdict::Yes
    } else if !plain || shaper_off.abs() > SHAPER_OFF_MAX {
        Verdict::Undecided
    } else {
        Verdict::No
    };
    Ok(Line::new(
        format!("rate through {kind} at {:.0} Gb/s", rate / 1e9),
        format!(
            "{:.4} Gb/s, {:+.2} % of {:.4} (payload {payload:.0} of {:.0}, {:.3} % retransmitted, {:.2} s of \
             warm-up cut); the shaper's own counter {:+.2} % of its rate",
            said / 1e9,
            off * 100.0,
            expected / 1e9,
            payload + HEADERS,
            again * 100.0,
            measured.total.warmup_s,
            shaper_off * 100.0,
        ),
        format!(
            "0.5 %; the initial bucket is at most {:.2} % of all bytes",
            f64::from(BUCKET_MS) / f64::from(SECONDS * 10)
        ),
        verdict,
    ))
}
