//! From the samples of a trial to what is judged: rates in the file's bytes, and the classes that the bytes passed.

use linerate_analysis::qos::series::{ClassSeries, class_series};
use linerate_analysis::qos::verification::Readings;
use linerate_analysis::qos::{Probed, Strayed, Streamed};
use linerate_analysis::trial::figure::times;
use linerate_analysis::trial::operations::{ops_per_s, real};
use linerate_host::netlink::class_name;
use linerate_model::analysis::{OneWay, rate_series, ways};
use linerate_model::end::End;
use linerate_model::host::Host;
use linerate_model::ids::NicName;
use linerate_model::known::Known;
use linerate_model::sample::{Sample, SideSample};
use linerate_model::trust::fairness;
use linerate_model::units::Nanoseconds;
use linerate_model::watch::{Watch, total};
use linerate_model::workload::Workload;
use linerate_stats::summary::{mean, median, quantile};

use super::arms::WARM_UP;
use super::set_up::{SetUp, class_of, framed};

/// The low part of the first handle that `mqprio` gives its traffic classes; those below are queues.
const TRAFFIC_CLASS: u32 = 0xffe0;
/// A class has the traffic of a trial if this share of the bytes passed it: other programs send, too.
const OWN_SHARE: f64 = 0.9;
/// An interface with a smaller share of the bytes did not carry the trial.
const CARRIED: f64 = 0.05;
/// A CPU that is busy for this share of a trial, and a machine that is idle for no more than the other, bound its rate.
const THREAD_BUSY: f64 = 0.85;
const MACHINE_IDLE: f64 = 0.08;
/// A CPU that is busy for the first share of a trial and in interrupts for the second one bounds it, too: it sends or receives
/// for threads elsewhere. (A CPU that only another program keeps busy does not.)
const CPU_BUSY: f64 = 0.9;
const CPU_IN_INTERRUPTS: f64 = 0.2;
/// Ethernet, UDP, TCP and its timestamps; the maximum segment where it is not known.
const ETHERNET: f64 = 14.0;
const UDP: f64 = 8.0;
const TCP: f64 = 20.0;
const TIMESTAMPS: f64 = 12.0;
const MSS: f64 = 1_448.0;
/// The largest packet, as TSO makes it: a queue counts it as a whole.
const PACKET_MAX: f64 = 65_536.0;
/// The base transport header and the invariant CRC of a packet of RoCE v2, which is in UDP (InfiniBand Annex A17).
const ROCE: f64 = 12.0 + 4.0;

/// A class of an interface.
pub(super) type ClassOf = (NicName, u32);

/// One class that sent in a trial.
pub(super) struct Sent<'a> {
    pub(super) set_up: &'a SetUp,
    /// Its number among the classes.
    pub(super) at: usize,
    pub(super) sample: &'a Sample,
    /// Where its bytes are counted; empty if not known.
    pub(super) own: &'a [ClassOf],
    /// Of the classes of this host.
    pub(super) readings: &'a Readings,
    pub(super) is_ipv6: bool,
    pub(super) counted: Nanoseconds,
}

impl Sent<'_> {
    /// What is judged of it.
    pub(super) fn streamed(&self) -> Streamed {
        let all = ways(self.sample);
        let Some(way) = all.first() else {
            return Streamed::default();
        };
        let points = rate_series(self.sample).total;
        let warm_up = WARM_UP.as_u64();
        let rates: Vec<f64> = points
            .iter()
            .filter(|point| point.at_ns.as_u64() > warm_up + warm_up / 50)
            .map(|point| point.bit_per_s.as_f64())
            .collect();
        let payload = mean(&rates).ok();
        let series = class_series(
            &self.readings.of(self.own),
            WARM_UP.as_secs_f64(),
            self.counted.as_secs_f64(),
        );
        let series = series.filter(|_| way.from == End::Local);
        let (rate, mean) = match (&series, payload) {
            (Some(series), Some(payload)) => (
                Some(self.by_class(series, series.bytes_per_s, payload)),
                Some(self.by_class(series, series.mean_bytes_per_s, payload)),
            ),
            (_, payload) => {
                let rate = payload.map(|payload| payload * self.frames(way));
                (rate, rate)
            }
        };
        let upper = if let (Some(series), Some(payload)) = (&series, payload) {
            let upper = series.upper_bytes_per_s;
            upper.map(|upper| self.by_class(series, upper, payload))
        } else {
            let upper = quantile(&rates, 0.75).ok();
            upper.map(|upper| upper * self.frames(way))
        };
        let totals: Vec<f64> = way
            .counted()
            .map(|flow| real(flow.total().as_u64()))
            .collect();
        let is_unbound =
            self.set_up.expected[self.at].limit_bit_per_s.is_none() && !self.set_up.has_line;
        Streamed {
            rate_bit_per_s: rate,
            mean_bit_per_s: mean,
            payload_bit_per_s: payload,
            step_bit_per_s: PACKET_MAX * 8.0 / self.counted.as_secs_f64(),
            waiting_share: series.map(|series| series.waiting_share),
            upper_bit_per_s: upper,
            delay_s: series.map(|series| series.delay_s).or_else(|| rtt(way)),
            fairness: fairness(&totals),
            is_cpu_bound: is_unbound || is_cpu_bound(self.sample),
            strayed: None,
        }
    }

    /// What the class counted, in the file's bytes.
    fn by_class(&self, series: &ClassSeries, bytes_per_s: f64, payload: f64) -> f64 {
        let part = payload / 8.0 / series.mean_bytes_per_s;
        let framing = self.set_up.qos.limit_of;
        let packets = bytes_per_s * series.packets_per_byte;
        framed(
            framing,
            bytes_per_s,
            packets,
            bytes_per_s * part,
            self.is_tagged(),
        ) * 8.0
    }

    fn is_tagged(&self) -> bool {
        self.set_up.qos.classes[self.at].vlan.is_some()
    }

    /// The file's bytes for each byte of payload, by the sizes of segments and headers.
    fn frames(&self, way: &OneWay<'_>) -> f64 {
        let ip = if self.is_ipv6 { 40.0 } else { 20.0 };
        let mut senders = way.sender.senders();
        let roce = senders.find_map(|flow| flow.verbs.as_ref()?.mtu);
        let (segment, headers) = if let Some(mtu) = roce {
            // A message that is shorter than a packet is one.
            let message = real(self.sample.spec.buffer_bytes.as_u64());
            (f64::from(mtu).min(message), ip + UDP + ROCE)
        } else if let Workload::Udp(udp) = &self.sample.spec.workload {
            (real(udp.datagram_bytes.as_u64()), ip + UDP)
        } else {
            let tcp = way.first_tcp();
            let segment = tcp.map(|tcp| real(tcp.snd_mss_bytes.as_u64()));
            let segment = segment.filter(|segment| *segment > 0.0).unwrap_or(MSS);
            let stamps = tcp.is_none_or(|tcp| tcp.timestamps);
            (segment, ip + TCP + if stamps { TIMESTAMPS } else { 0.0 })
        };
        let bytes = 1.0 + (headers + ETHERNET) / segment;
        let framing = self.set_up.qos.limit_of;
        framed(framing, bytes, 1.0 / segment, 1.0, self.is_tagged())
    }

    /// The end that sent, and its host.
    fn sender<'s>(&'s self, local: &'s Host, remote: &'s Host) -> (&'s SideSample, &'s Host) {
        let is_local = ways(self.sample)
            .first()
            .is_none_or(|way| way.from == End::Local);
        if is_local {
            (&self.sample.local, local)
        } else {
            (&self.sample.remote, remote)
        }
    }

    fn payload_bytes(&self) -> f64 {
        let all = ways(self.sample);
        let flows = all.iter().flat_map(OneWay::counted);
        real(total(flows.map(|flow| flow.total().as_u64())))
    }

    /// Where most of the bytes passed.
    pub(super) fn busiest(&self, local: &Host, remote: &Host) -> Option<ClassOf> {
        let (side, host) = self.sender(local, remote);
        let payload = self.payload_bytes();
        let all = passed(side, host).into_iter().flat_map(|passed| {
            let nic = passed.nic;
            passed
                .leaves
                .into_iter()
                .map(move |(handle, bytes)| ((nic.clone(), handle), bytes))
        });
        let most = all.max_by_key(|(_, bytes)| *bytes)?;
        (real(most.1) > payload / 2.0).then_some(most.0)
    }

    /// Where its bytes passed, if not through its own class.
    pub(super) fn strayed(&self, local: &Host, remote: &Host) -> Option<Strayed> {
        let (side, host) = self.sender(local, remote);
        let payload = self.payload_bytes();
        let all = passed(side, host);
        if all.is_empty() {
            return self.of_priorities(side, payload);
        }
        let several = self.set_up.holders.len() > 1;
        for passed in &all {
            let sum = real(total(passed.leaves.iter().map(|(_, bytes)| *bytes)));
            if real(passed.sent) < payload * CARRIED {
                continue;
            }
            if sum < payload * CARRIED {
                return Some(Strayed {
                    into: format!("no class of {}", passed.nic),
                    class: None,
                });
            }
            let nic = host.nic(&passed.nic);
            let Some(own) = nic.and_then(|nic| class_of(nic, self.set_up.numbers[self.at])) else {
                continue;
            };
            let bytes_of = |handle| passed.leaves.iter().find(|(own, _)| *own == handle);
            let own = bytes_of(own.handle).map_or(0, |(_, bytes)| *bytes);
            if real(own) >= OWN_SHARE * sum.min(payload) {
                continue;
            }
            let other = passed.leaves.iter().max_by_key(|(_, bytes)| *bytes)?;
            let mut strayed = into(self.set_up, &passed.nic, other.0);
            if several {
                strayed.into = format!("{} on {}", strayed.into, passed.nic);
            }
            return Some(strayed);
        }
        None
    }

    /// The same by the NIC's counters of each priority, where it has them (`tx_prio3_bytes`).
    fn of_priorities(&self, side: &SideSample, payload: f64) -> Option<Strayed> {
        let own = self.set_up.qos.classes[self.at].priority?;
        let watch = side.counters.value()?;
        let mut all: Vec<(u8, u64)> = Vec::new();
        for (key, bytes, _) in watch.below("nic/") {
            let counter = key.split_once("/driver/tx_prio").map(|(_, rest)| rest);
            let priority = counter.and_then(|rest| rest.strip_suffix("_bytes")?.parse().ok());
            all.extend(priority.map(|priority| (priority, bytes)));
        }
        let most = all.iter().max_by_key(|(_, bytes)| *bytes)?;
        (most.0 != own && real(most.1) > payload / 2.0).then(|| Strayed {
            into: format!("priority {} of the NIC, not {own}", most.0),
            class: None,
        })
    }
}

/// A class in words, and which one of the file it is.
pub(super) fn into(set_up: &SetUp, nic: &NicName, handle: u32) -> Strayed {
    let number = handle & 0xffff;
    let class = set_up
        .numbers
        .iter()
        .position(|own| u32::from(*own) == number);
    let handle = class_name(handle);
    Strayed {
        into: match class {
            Some(class) => format!("class {} ({handle})", set_up.expected[class].name),
            None => format!("class {handle} of {nic}"),
        },
        class,
    }
}

/// What an interface sent in a trial.
struct Passed {
    nic: NicName,
    /// The classes that hold packets, not those that only divide a rate.
    leaves: Vec<(u32, u64)>,
    sent: u64,
}

/// The interfaces with classes.
fn passed(side: &SideSample, host: &Host) -> Vec<Passed> {
    let Known::Value(watch) = &side.counters else {
        return Vec::new();
    };
    let mut all: Vec<Passed> = Vec::new();
    for (key, bytes, _) in watch.below("nic/") {
        let Some((nic, handle)) = class_key(key) else {
            continue;
        };
        if !all.iter().any(|passed| passed.nic == nic) {
            all.push(Passed {
                leaves: Vec::new(),
                sent: sent(watch, &nic),
                nic: nic.clone(),
            });
        }
        let own = all.iter_mut().find(|passed| passed.nic == nic);
        if let Some(own) = own {
            own.leaves.push((handle, bytes));
        }
    }
    for passed in &mut all {
        let has_traffic_classes = passed
            .leaves
            .iter()
            .any(|(handle, _)| handle & 0xffff >= TRAFFIC_CLASS);
        let classes = host
            .nic(&passed.nic)
            .and_then(|nic| nic.shaping.classes.value());
        let is_parent =
            |handle: u32| classes.is_some_and(|all| all.iter().any(|class| class.parent == handle));
        passed.leaves.retain(|(handle, _)| {
            if has_traffic_classes {
                handle & 0xffff >= TRAFFIC_CLASS
            } else {
                !is_parent(*handle)
            }
        });
    }
    all
}

fn sent(watch: &Watch, nic: &NicName) -> u64 {
    let bytes = watch.grown(&format!("nic/{nic}/stat/tx_bytes"));
    bytes.get().unwrap_or(0)
}

/// The interface and the handle of `eth0/class/1:10/bytes`.
fn class_key(key: &str) -> Option<(NicName, u32)> {
    let (nic, rest) = key.split_once("/class/")?;
    let (major, minor) = rest.strip_suffix("/bytes")?.split_once(':')?;
    let part = |text: &str| u32::from_str_radix(text, 16).ok();
    Some((nic.parse().ok()?, part(major)? << 16 | part(minor)?))
}

/// The median round trip of the flows that sent.
fn rtt(way: &OneWay<'_>) -> Option<f64> {
    let all = way.sender.senders();
    let all = all.filter_map(|flow| Some(flow.tcp.value()?.rtt_ns.as_secs_f64()));
    median(&all.collect::<Vec<f64>>()).ok()
}

/// Whether a thread of either end, a CPU that handles interrupts, or either machine, was busy all the time.
fn is_cpu_bound(sample: &Sample) -> bool {
    [&sample.local, &sample.remote].into_iter().any(|side| {
        let elapsed = side.elapsed_ns.as_secs_f64();
        let is_busy = side.threads.iter().any(|thread| {
            let used = thread.user_ns.as_secs_f64() + thread.system_ns.as_secs_f64();
            used > elapsed * THREAD_BUSY
        });
        let machine = side.cpu.machine.value();
        let idle = machine.into_iter().flatten();
        let (mut idle_s, mut all_s, mut is_full) = (0.0, 0.0, false);
        for cpu in idle {
            let own_idle_s = cpu.idle_ns.as_secs_f64();
            let own_s = cpu.busy().as_secs_f64() + own_idle_s + cpu.steal_ns.as_secs_f64();
            let interrupts_s = cpu.softirq_ns.as_secs_f64() + cpu.irq_ns.as_secs_f64();
            is_full |= own_s > 0.0
                && own_idle_s < own_s * (1.0 - CPU_BUSY)
                && interrupts_s > own_s * CPU_IN_INTERRUPTS;
            idle_s += own_idle_s;
            all_s += own_s;
        }
        is_busy || is_full || (all_s > 0.0 && idle_s < all_s * MACHINE_IDLE)
    })
}

/// The round trips of a class.
pub(super) fn probed(sample: &Sample) -> Option<Probed> {
    let times = times(sample);
    Some(Probed {
        p50_s: times.quantile(0.5)?.as_secs_f64(),
        p99_s: times.quantile(0.99)?.as_secs_f64(),
        per_s: ops_per_s(sample)?,
    })
}

#[cfg(test)]
mod tests {
    use linerate_model::build;

    use super::*;

    #[test]
    fn a_cpu_full_of_interrupts_bounds_a_sender_and_one_that_another_program_polls_on_does_not() {
        let bound = |first| {
            let mut sample = build::sample().cpu_share(0.3, 0.3).build();
            let second = build::cpu_times(1, 200, 0, 1_800);
            sample.local.cpu.machine = Known::Value(vec![first, second]);
            is_cpu_bound(&sample)
        };
        assert!(bound(build::cpu_times(0, 400, 1_550, 50)));
        assert!(!bound(build::cpu_times(0, 400, 1_200, 400)));
        assert!(!bound(build::cpu_times(0, 2_000, 0, 0)));
    }
}
