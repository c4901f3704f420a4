//! What a host did between two readings of its counters: traffic of each interface and queue, interrupt placement,
//! errors, and CPU time. Measurements only; the rules judge them.

mod link;

use crate::units::real;
use serde::{Deserialize, Serialize};

pub use self::link::{Counted, CountedRate, LinkErrors};
use crate::host::{Host, Napi, Nic, Queue, QueueKind};
use crate::ids::{CpuId, IrqNumber, NicName};
use crate::known::{Cause, Gap, Known};
use crate::watch::Watch;

/// What a host did during an interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Activity {
    /// The length of the interval.
    pub seconds: f64,
    /// Its interfaces, in the order of the host.
    pub nics: Vec<NicActivity>,
    /// The CPUs that were busy for at least 1 % of the interval, busiest first.
    pub cpus: Vec<CpuActivity>,
    /// What could not be counted and has no field of its own.
    #[cfg_attr(feature = "schema", schemars(skip))]
    pub gaps: Vec<Gap>,
}

/// The traffic of an interface.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NicActivity {
    /// Its name.
    pub name: NicName,
    /// Bits received per second, as counted by `rx_bytes`.
    pub rx_bit_per_s: Known<f64>,
    /// Bits sent per second.
    pub tx_bit_per_s: Known<f64>,
    /// Packets received per second.
    pub rx_packets_per_s: Known<f64>,
    /// Packets sent per second.
    pub tx_packets_per_s: Known<f64>,
    /// Its queues.
    pub queues: Vec<QueueActivity>,
    /// Counters of errors and drops that grew.
    pub errors: Vec<Grown>,
    /// Its link errors; none for an interface without a physical link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bit_error_rate: Option<LinkErrors>,
}

/// The traffic of a queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QueueActivity {
    /// Its direction.
    pub kind: QueueKind,
    /// Its number within its direction.
    pub index: u32,
    /// Its NAPI instance.
    pub napi: Known<u32>,
    /// Its interrupt.
    pub irq: Known<IrqNumber>,
    /// Its interrupt rate per second; queues that share an interrupt show the same rate.
    pub interrupts_per_s: Known<f64>,
    /// The CPUs that handled the interrupt.
    pub taken_by: Vec<Taken>,
    /// Packets per second.
    pub packets_per_s: Known<f64>,
    /// Bits per second.
    pub bit_per_s: Known<f64>,
}

/// The interrupt rate on one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Taken {
    /// The CPU.
    pub cpu: CpuId,
    /// Interrupts per second.
    pub per_s: f64,
}

/// A counter that grew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Grown {
    /// Its name below the interface: `stat/rx_missed_errors`.
    pub counter: String,
    /// The increase.
    pub grown: u64,
    /// Where it was read.
    pub path: String,
}

/// The shares of a CPU's time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CpuActivity {
    /// The CPU.
    pub cpu: CpuId,
    /// User.
    pub user_share: f64,
    /// System.
    pub system_share: f64,
    /// Hard interrupts.
    pub irq_share: f64,
    /// Softirqs.
    pub softirq_share: f64,
    /// Steal.
    pub steal_share: f64,
    /// Idle.
    pub idle_share: f64,
}

impl CpuActivity {
    /// All shares with their names, in a fixed order.
    pub fn kinds(&self) -> [(&'static str, f64); 5] {
        [
            ("user", self.user_share),
            ("system", self.system_share),
            ("irq", self.irq_share),
            ("softirq", self.softirq_share),
            ("steal", self.steal_share),
        ]
    }
}

/// A CPU below this share counts as idle: with ticks of 10 ms, one second resolves nothing finer.
const IDLE_FROM: f64 = 0.99;

/// The bit errors of the link of `nic`; none for an interface without a physical link.
pub fn link_errors(nic: &Nic, watch: &Watch) -> Option<LinkErrors> {
    nic.kind.has_wire().then(|| link::errors(nic, watch))
}

/// What `host` did according to `watch`.
pub fn activity(host: &Host, watch: &Watch) -> Activity {
    let mut cpus: Vec<CpuActivity> = host
        .cpus
        .iter()
        .filter_map(|cpu| of_cpu(cpu.id, watch))
        .filter(|cpu| cpu.idle_share < IDLE_FROM)
        .collect();
    cpus.sort_by(|one, other| one.idle_share.total_cmp(&other.idle_share));
    let shown = |key: &str| {
        let of_nic = |nic: &Nic| {
            let rest = key.strip_prefix("nic/").unwrap_or_default();
            rest.split('/').next() == Some(nic.name.as_str())
        };
        key.starts_with("irq")
            || (key.starts_with("cpu/") && key.ends_with("/time"))
            || host.nics.iter().any(of_nic)
    };
    let mut gaps: Vec<Gap> = watch
        .gaps
        .iter()
        .filter(|(key, _)| shown(key))
        .map(|(_, gap)| gap.clone())
        .collect();
    gaps.sort();
    gaps.dedup();
    Activity {
        seconds: watch.span_ns.as_secs_f64(),
        nics: host.nics.iter().map(|nic| of_nic(nic, watch)).collect(),
        cpus,
        gaps,
    }
}

fn of_nic(nic: &Nic, watch: &Watch) -> NicActivity {
    let stat = |name: &str| watch.per_second(&format!("nic/{}/stat/{name}", nic.name));
    NicActivity {
        name: nic.name.clone(),
        rx_bit_per_s: stat("rx_bytes").map(in_bits),
        tx_bit_per_s: stat("tx_bytes").map(in_bits),
        rx_packets_per_s: stat("rx_packets"),
        tx_packets_per_s: stat("tx_packets"),
        queues: nic
            .queues
            .iter()
            .map(|queue| of_queue(nic, queue, watch))
            .collect(),
        errors: errors(nic, watch),
        bit_error_rate: link_errors(nic, watch),
    }
}

fn in_bits(bytes: f64) -> f64 {
    bytes * 8.0
}

fn of_queue(nic: &Nic, queue: &Queue, watch: &Watch) -> QueueActivity {
    let napis = nic.dispatch.napis.value().map_or(&[][..], Vec::as_slice);
    let serves = |napi: &&Napi| {
        let own = match queue.kind {
            QueueKind::Rx => &napi.rx_queues,
            QueueKind::Tx => &napi.tx_queues,
        };
        queue.napi.get() == Some(napi.id) || own.contains(&queue.index)
    };
    let napi = napis.iter().find(serves);
    // Both come from netdev netlink, the interrupt also from sysfs: whichever is known.
    let irq = match (&queue.irq, napi) {
        (Known::Unknown(_), Some(napi)) if napi.irq.value().is_some() => napi.irq.clone(),
        (irq, _) => irq.clone(),
    };
    let interrupts = irq.clone().and_then(|irq| taken(irq, watch));
    QueueActivity {
        kind: queue.kind,
        index: queue.index,
        napi: match (&queue.napi, napi) {
            (Known::Unknown(_), Some(napi)) => Known::Value(napi.id),
            (known, _) => known.clone(),
        },
        irq,
        interrupts_per_s: interrupts
            .clone()
            .map(|all| all.iter().map(|one| one.per_s).sum()),
        taken_by: interrupts.value().cloned().unwrap_or_default(),
        packets_per_s: of_queue_counter(nic, queue, "packets", watch),
        bit_per_s: of_queue_counter(nic, queue, "bytes", watch).map(in_bits),
    }
}

/// The CPUs that handled an interrupt. An interrupt that has not fired since boot has no counter at all.
fn taken(irq: IrqNumber, watch: &Watch) -> Known<Vec<Taken>> {
    let key = format!("irq/{irq}");
    let seconds = watch.span_ns.as_secs_f64();
    let of_irq = watch.gaps.get(&key).or_else(|| watch.gaps.get("irq"));
    if let Some(gap) = of_irq {
        return Known::Unknown(gap.clone());
    }
    if seconds <= 0.0 {
        let why = "no time passed between the readings";
        return Known::unknown(Cause::NotSaid, key, why);
    }
    let prefix = format!("{key}/cpu/");
    let grown = watch.below(&prefix).filter(|(_, by, _)| *by > 0);
    let mut all: Vec<Taken> = grown
        .filter_map(|(cpu, by, _)| {
            Some(Taken {
                cpu: CpuId(cpu.parse().ok()?),
                per_s: real(by) / seconds,
            })
        })
        .collect();
    all.sort_by(|one, other| other.per_s.total_cmp(&one.per_s));
    Known::Value(all)
}

/// Netdev netlink counts queues for some drivers; others name them in their own statistics: virtio and
/// ixgbe `rx_queue_0_packets`, mlx5 `rx0_packets`, i40e `rx-0.packets`.
fn of_queue_counter(nic: &Nic, queue: &Queue, what: &str, watch: &Watch) -> Known<f64> {
    let way = match queue.kind {
        QueueKind::Rx => "rx",
        QueueKind::Tx => "tx",
    };
    let (name, index) = (&nic.name, queue.index);
    let standard = watch.per_second(&format!("nic/{name}/queue/{way}-{index}/{what}"));
    if standard.value().is_some() {
        return standard;
    }
    let own = [
        format!("{way}_queue_{index}_{what}"),
        format!("{way}{index}_{what}"),
        format!("{way}-{index}.{what}"),
    ];
    own.iter()
        .map(|own| watch.per_second(&format!("nic/{name}/driver/{own}")))
        .find(|rate| rate.value().is_some())
        .unwrap_or(standard)
}

/// Substrings of the names that the kernel and drivers give to error and drop counters.
const BAD: [&str; 17] = [
    "err",
    "drop",
    "discard",
    "miss",
    "fifo",
    "crc",
    "overrun",
    "overflow",
    "out_of_buffer",
    "timeout",
    "stall",
    "uncorrectable",
    "collision",
    "carrier_changes",
    "down",
    "fail",
    "exceeded",
];

fn errors(nic: &Nic, watch: &Watch) -> Vec<Grown> {
    let is_bad = |name: &str| {
        let name = name.to_ascii_lowercase();
        BAD.iter().any(|part| name.contains(part))
    };
    let grown = |prefix: &str, all: bool| -> Vec<Grown> {
        let moved = watch.below(prefix);
        moved
            .filter(|(name, by, _)| *by > 0 && (all || is_bad(name)))
            .map(|(name, by, counter)| Grown {
                counter: name.to_owned(),
                grown: by,
                path: counter.path.clone(),
            })
            .collect()
    };
    let mut errors = grown(&format!("nic/{}/", nic.name), false);
    if let Some(address) = nic.pci_address.value() {
        errors.extend(grown(&format!("pci/{address}/"), true));
    }
    errors
}

fn of_cpu(cpu: CpuId, watch: &Watch) -> Option<CpuActivity> {
    let spent = |kind: &str| watch.grown(&format!("cpu/{cpu}/time/{kind}")).get();
    let kinds = ["user", "system", "irq", "softirq", "steal", "idle"];
    let times = kinds.map(|kind| spent(kind).map(real));
    // The sum is unknown if one of its parts is unknown.
    let whole: f64 = times.iter().copied().sum::<Option<f64>>()?;
    if whole <= 0.0 {
        return None;
    }
    let [user, system, irq, softirq, steal, idle] = times.map(|time| time.unwrap_or(0.0) / whole);
    Some(CpuActivity {
        cpu,
        user_share: user,
        system_share: system,
        irq_share: irq,
        softirq_share: softirq,
        steal_share: steal,
        idle_share: idle,
    })
}

#[cfg(test)]
mod tests;
