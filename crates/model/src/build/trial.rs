//! Samples for tests: a steady trial of two seconds.

use crate::ids::{CpuId, CpuSet};
use crate::known::Known;
use crate::sample::{
    CpuRecord, CpuTimes, FlowRecord, Role, Sample, SideSample, TcpInfo, ThreadRecord,
};
use crate::units::{BitRate, Bytes, Nanoseconds, Ratio};
use crate::workload::{Direction, Placement, TrialSpec};

const DURATION: Nanoseconds = Nanoseconds::from_millis(2_000);
const INTERVAL: Nanoseconds = Nanoseconds::from_millis(100);

/// A builder of a sample; see [`sample`].
#[derive(Debug, Clone)]
pub struct SampleBuilder {
    sample: Sample,
    mbit: u64,
    sender: Thread,
    receiver: Thread,
    tcp: TcpInfo,
    threads: Option<[(f64, u64); 2]>,
}

/// The builder's settings for the threads of one role.
#[derive(Debug, Clone, Copy)]
struct Thread {
    cpu: CpuId,
    pinned: bool,
    share: f64,
}

/// A CPU's time by kind, in milliseconds.
pub fn cpu_times(cpu: u32, user: u64, softirq: u64, idle: u64) -> CpuTimes {
    let none = Nanoseconds::new(0);
    CpuTimes {
        cpu: CpuId(cpu),
        user_ns: Nanoseconds::from_millis(user),
        system_ns: none,
        irq_ns: none,
        softirq_ns: Nanoseconds::from_millis(softirq),
        steal_ns: none,
        idle_ns: Nanoseconds::from_millis(idle),
    }
}

/// A forward trial of one flow at 10 Gb/s, the sender on CPU 0 and the receiver on CPU 1, each busy half of the time,
/// with no limit.
pub fn sample() -> SampleBuilder {
    let empty = || SideSample {
        flows: Vec::new(),
        cpu: CpuRecord {
            threads_user_ns: Nanoseconds::new(0),
            threads_system_ns: Nanoseconds::new(0),
            machine: Known::Value(Vec::new()),
            series: Vec::new(),
            frequency: Known::default(),
            recording_ns: Known::default(),
        },
        elapsed_ns: DURATION,
        threads: Vec::new(),
        operations: None,
        counters: Known::default(),
        profile: Known::default(),
        interface: None,
        events: None,
        commands: Vec::new(),
    };
    let thread = |cpu| Thread {
        cpu: CpuId(cpu),
        pinned: false,
        share: 0.5,
    };
    SampleBuilder {
        sample: Sample {
            spec: TrialSpec {
                duration_ns: DURATION,
                interval_ns: INTERVAL,
                ..TrialSpec::default()
            },
            local: empty(),
            remote: empty(),
            shared_kernel: false,
            flags: Vec::new(),
        },
        mbit: 10_000,
        threads: None,
        sender: thread(0),
        receiver: thread(1),
        tcp: TcpInfo {
            rtt_ns: Nanoseconds::from_micros(100),
            rtt_min_ns: Nanoseconds::from_micros(40),
            snd_mss_bytes: Bytes::new(1448),
            cwnd_segments: 1000,
            busy_ns: DURATION,
            rwnd_limited_ns: Nanoseconds::new(0),
            sndbuf_limited_ns: Nanoseconds::new(0),
            bytes_sent: Bytes::new(2_500_000_000),
            bytes_retransmitted: Bytes::new(0),
            segments_out: 1_700_000,
            retransmits: 0,
            delivery_rate_bit_per_s: BitRate::from_mbit_per_s(10_000),
            snd_wnd_bytes: Some(Bytes::mib(3)),
            congestion_control: Some("cubic".to_owned()),
            timestamps: true,
            ..TcpInfo::default()
        },
    }
}

impl SampleBuilder {
    /// How many flows share the rate.
    #[must_use]
    pub fn flows(mut self, flows: u32) -> Self {
        self.sample.spec.flows = flows;
        self
    }

    /// The direction of the data.
    #[must_use]
    pub fn direction(mut self, direction: Direction) -> Self {
        self.sample.spec.direction = direction;
        self
    }

    /// The rate of all flows of one direction, in Gb/s.
    #[must_use]
    pub fn gbit(self, gbit: u64) -> Self {
        self.mbit(gbit * 1000)
    }

    /// The rate of all flows of one direction, in Mb/s.
    #[must_use]
    pub fn mbit(mut self, mbit: u64) -> Self {
        self.mbit = mbit;
        self
    }

    /// The share of the time that each sending and each receiving thread was on its CPU.
    #[must_use]
    pub fn cpu_share(mut self, sender: f64, receiver: f64) -> Self {
        self.sender.share = sender;
        self.receiver.share = receiver;
        self
    }

    /// Gives each sending and each receiving thread its own record: the share of time spent waiting for a CPU, and
    /// the number of sleeps.
    #[must_use]
    pub fn threads(mut self, sender: (f64, u64), receiver: (f64, u64)) -> Self {
        self.threads = Some([sender, receiver]);
        self
    }

    /// The CPUs that the threads last ran on.
    #[must_use]
    pub fn cpus(mut self, sender: u32, receiver: u32) -> Self {
        self.sender.cpu = CpuId(sender);
        self.receiver.cpu = CpuId(receiver);
        self
    }

    /// Marks the threads as pinned to their CPUs.
    #[must_use]
    pub fn pinned(mut self) -> Self {
        self.sender.pinned = true;
        self.receiver.pinned = true;
        self.sample.spec.placement = Placement {
            sender_cpus: CpuSet::one(self.sender.cpu),
            receiver_cpus: CpuSet::one(self.receiver.cpu),
            ..Placement::default()
        };
        self
    }

    /// Both ends ran on one kernel.
    #[must_use]
    pub fn shared_kernel(mut self) -> Self {
        self.sample.shared_kernel = true;
        self
    }

    /// The shares of the busy time limited by the receive window and by the send buffer.
    #[must_use]
    pub fn limited(mut self, receive_window: f64, send_buffer: f64) -> Self {
        self.tcp.rwnd_limited_ns = part(DURATION, receive_window);
        self.tcp.sndbuf_limited_ns = part(DURATION, send_buffer);
        self
    }

    /// Changes the kernel's report on every sending connection.
    #[must_use]
    pub fn tcp(mut self, change: impl FnOnce(&mut TcpInfo)) -> Self {
        change(&mut self.tcp);
        self
    }

    /// Builds the sample.
    pub fn build(mut self) -> Sample {
        let direction = self.sample.spec.direction;
        let mut local = Vec::new();
        let mut remote = Vec::new();
        for flow in 0..self.sample.spec.flows {
            if direction != Direction::Reverse {
                local.push(self.record(flow, Role::Sender));
                remote.push(self.record(flow, Role::Receiver));
            }
            if direction != Direction::Forward {
                remote.push(self.record(flow, Role::Sender));
                local.push(self.record(flow, Role::Receiver));
            }
        }
        let shared = self.sample.shared_kernel;
        let everybody: Vec<FlowRecord> = local.iter().chain(&remote).cloned().collect();
        for (side, flows) in [
            (&mut self.sample.local, local),
            (&mut self.sample.remote, remote),
        ] {
            side.cpu = cpu_record(&flows, if shared { &everybody } else { &flows });
            if let Some(threads) = self.threads {
                side.threads = flows
                    .iter()
                    .map(|flow| thread_record(flow, threads))
                    .collect();
            }
            side.flows = flows;
        }
        self.sample
    }

    fn record(&self, flow: u32, role: Role) -> FlowRecord {
        let thread = match role {
            Role::Sender => self.sender,
            Role::Receiver => self.receiver,
        };
        let steps = DURATION.as_u64() / INTERVAL.as_u64();
        let flows = u64::from(self.sample.spec.flows.max(1));
        let step_bytes = self.mbit * 125_000 / 10 / flows;
        FlowRecord {
            flow,
            role,
            thread: flow,
            at_ns: (1..=steps)
                .map(|n| Nanoseconds::new(n * INTERVAL.as_u64()))
                .collect(),
            bytes: (1..=steps).map(|n| Bytes::new(n * step_bytes)).collect(),
            pinned_to: thread.pinned.then_some(thread.cpu),
            last_cpu: Known::Value(thread.cpu),
            incoming_cpu: Known::Value(thread.cpu),
            incoming_napi: Known::default(),
            user_ns: Nanoseconds::new(0),
            system_ns: part(DURATION, thread.share),
            tcp: Known::Value(self.tcp.clone()),
            copies: None,
            datagrams: None,
            drained: None,
            verbs: None,
            grid: None,
        }
    }
}

fn thread_record(flow: &FlowRecord, [sender, receiver]: [(f64, u64); 2]) -> ThreadRecord {
    let (waited, sleeps) = match flow.role {
        Role::Sender => sender,
        Role::Receiver => receiver,
    };
    ThreadRecord {
        thread: flow.thread,
        role: flow.role,
        pinned_to: flow.pinned_to,
        seen_on: flow.cpu().into_iter().collect(),
        moves_seen: 0,
        memory_node: Known::default(),
        user_ns: flow.user_ns,
        system_ns: flow.system_ns,
        voluntary_switches: sleeps,
        involuntary_switches: 0,
        polls_for: None,
        waited_for_cpu_ns: Known::Value(part(DURATION, waited)),
        minor_faults: 0,
        major_faults: 0,
    }
}

/// The threads' time, and a machine with two CPUs whose time is the sum of `all` the threads on it.
fn cpu_record(own: &[FlowRecord], all: &[FlowRecord]) -> CpuRecord {
    let system = |flows: &mut dyn Iterator<Item = &FlowRecord>| {
        Nanoseconds::new(flows.map(|flow| flow.system_ns.as_u64()).sum())
    };
    let cpu = |number: u32| {
        let busy = system(&mut all.iter().filter(|flow| flow.cpu() == Some(CpuId(number))));
        let none = Nanoseconds::new(0);
        CpuTimes {
            cpu: CpuId(number),
            user_ns: none,
            system_ns: busy,
            irq_ns: none,
            softirq_ns: none,
            steal_ns: none,
            idle_ns: Nanoseconds::new(DURATION.as_u64().saturating_sub(busy.as_u64())),
        }
    };
    CpuRecord {
        threads_user_ns: Nanoseconds::new(0),
        threads_system_ns: system(&mut own.iter()),
        machine: Known::Value(vec![cpu(0), cpu(1)]),
        series: Vec::new(),
        frequency: Known::default(),
        recording_ns: Known::default(),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a test's shares lie between 0 and a few"
)]
fn part(time: Nanoseconds, share: f64) -> Nanoseconds {
    Nanoseconds::new((time.as_u64() as f64 * Ratio::new(share).as_f64()) as u64)
}
