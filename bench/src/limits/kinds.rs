//! The injected bottlenecks, and the ranges of their random parameters: always where the injected one is
//! clearly the tightest, because a bottleneck between two regimes has no right name.

use std::time::Duration;

use linerate_model::limit::LimitKind;
use linerate_stats::Random;

/// One kind of plant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    SendBuffer,
    ReceiveBuffer,
    SmallBuffers,
    Tbf,
    Htb,
    BusySender,
    BusyReceiver,
    StallingSender,
    StallingReceiver,
    Loss,
    RoundTrip,
    CongestionWindow,
    SharedCpu,
    Machine,
    /// A shaper where the receiver's data comes in: ingress, redirected to ifb0 with tbf.
    IngressShaper,
    /// Loss far below 0.1 % on a long path.
    SmallLoss,
    /// A receive buffer that is never enlarged (tcp_moderate_rcvbuf = 0).
    FixedReceiveBuffer,
    /// Simulated hosts and samples only.
    Pcie,
    /// Simulated hosts and samples only.
    Wire,
}

impl Kind {
    /// Those that are injected in namespaces.
    pub(crate) const LIVE: [Self; 17] = [
        Self::SendBuffer,
        Self::ReceiveBuffer,
        Self::SmallBuffers,
        Self::Tbf,
        Self::Htb,
        Self::BusySender,
        Self::BusyReceiver,
        Self::StallingSender,
        Self::StallingReceiver,
        Self::Loss,
        Self::RoundTrip,
        Self::CongestionWindow,
        Self::SharedCpu,
        Self::Machine,
        Self::IngressShaper,
        Self::SmallLoss,
        Self::FixedReceiveBuffer,
    ];
    /// Those that are only figures.
    pub(crate) const SIMULATED: [Self; 2] = [Self::Pcie, Self::Wire];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SendBuffer => "send-buffer",
            Self::ReceiveBuffer => "receive-buffer",
            Self::SmallBuffers => "small-buffers",
            Self::Tbf => "tbf",
            Self::Htb => "htb",
            Self::BusySender => "busy-sender",
            Self::BusyReceiver => "busy-receiver",
            Self::StallingSender => "stalling-sender",
            Self::StallingReceiver => "stalling-receiver",
            Self::Loss => "loss",
            Self::RoundTrip => "round-trip",
            Self::CongestionWindow => "congestion-window",
            Self::SharedCpu => "shared-cpu",
            Self::Machine => "machine",
            Self::IngressShaper => "ingress-shaper",
            Self::SmallLoss => "small-loss",
            Self::FixedReceiveBuffer => "fixed-receive-buffer",
            Self::Pcie => "pcie",
            Self::Wire => "wire",
        }
    }

    /// The names that are right.
    pub(crate) fn right(self) -> &'static [LimitKind] {
        match self {
            Self::SendBuffer => &[LimitKind::SendBuffer],
            Self::ReceiveBuffer | Self::FixedReceiveBuffer => &[LimitKind::ReceiveWindow],
            Self::SmallBuffers => &[LimitKind::SendBuffer, LimitKind::ReceiveWindow],
            Self::Tbf | Self::Htb | Self::IngressShaper => &[LimitKind::Shaper],
            Self::BusySender => &[LimitKind::SenderCpu],
            Self::BusyReceiver => &[LimitKind::ReceiverCpu],
            Self::StallingSender => &[LimitKind::SenderProgram],
            Self::StallingReceiver => &[LimitKind::ReceiverProgram],
            Self::Loss | Self::SmallLoss => &[LimitKind::Loss],
            Self::RoundTrip => &[LimitKind::WindowRtt],
            Self::CongestionWindow => &[LimitKind::CongestionControl],
            Self::SharedCpu => &[LimitKind::SharedCpu],
            Self::Machine => &[LimitKind::Machine],
            Self::Pcie => &[LimitKind::Pcie],
            Self::Wire => &[LimitKind::Wire],
        }
    }

    /// Whether the injected bottleneck works by using up CPUs: then the CPU times show whether it took effect, not
    /// the rate.
    pub(crate) fn fills_cpus(self) -> bool {
        matches!(self, Self::SharedCpu | Self::Machine)
    }

    /// Whether threads wait for a CPU because of the injected bottleneck. In all other kinds they do so because
    /// other programs use the machine.
    pub(crate) fn is_of_cpus(self) -> bool {
        self.fills_cpus() || matches!(self, Self::BusySender | Self::BusyReceiver)
    }
}

/// A plant with its parameters.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct InjectedLimit {
    pub(crate) kind: Kind,
    /// `tcp_wmem`'s largest at the sender, bytes.
    pub(crate) send_buffer: Option<u64>,
    /// `tcp_rmem`'s largest at the receiver, bytes.
    pub(crate) receive_buffer: Option<u64>,
    /// `tcp_rmem`'s default at the receiver in bytes, with its autotuning off.
    pub(crate) fixed_receive_buffer: Option<u64>,
    /// Arguments of `tc` for the sender's interface, one command per entry.
    pub(crate) shaper: Vec<String>,
    /// Mb/s of a shaper for what comes in at the receiver.
    pub(crate) ingress: Option<u64>,
    /// The relay's one-way delay and loss.
    pub(crate) relay: Option<(Duration, f64)>,
    /// The CPUs that other programs compute on, and how many on each.
    pub(crate) busy: Option<(u32, usize)>,
    /// How long the program runs and is stopped, in turn, and whether it is the sender's.
    pub(crate) stalls: Option<(Duration, Duration, bool)>,
    /// Segments, of a congestion window that is held.
    pub(crate) congestion_window: Option<u64>,
    /// The sender's and the receiver's CPU.
    pub(crate) place: Option<(u32, u32)>,
    pub(crate) flows: u64,
    pub(crate) congestion_control: &'static str,
}

/// From `low` to `high`, evenly.
fn between(random: &mut Random, low: u64, high: u64) -> u64 {
    low + random.below(high - low + 1)
}

/// From `low` to `high`, each doubling as likely as any other.
fn doublings(random: &mut Random, low: f64, high: f64) -> f64 {
    low * (high / low).powf(random.unit())
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "sizes and rates of the ranges below"
)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

impl InjectedLimit {
    /// Parameters of `kind`.
    pub(crate) fn draw(kind: Kind, random: &mut Random) -> Self {
        let coin = |random: &mut Random| random.below(2) == 0;
        // Both are common in practice; the plants that need one of them name it.
        let congestion_control = if coin(random) { "cubic" } else { "bbr" };
        let mut plant = Self {
            kind,
            send_buffer: None,
            receive_buffer: None,
            fixed_receive_buffer: None,
            shaper: Vec::new(),
            ingress: None,
            relay: None,
            busy: None,
            stalls: None,
            congestion_window: None,
            place: coin(random).then_some((0, 1)),
            flows: 1,
            congestion_control,
        };
        let small = |random: &mut Random| whole(doublings(random, 8192.0, 49_152.0));
        match kind {
            Kind::SendBuffer => plant.send_buffer = Some(small(random)),
            Kind::ReceiveBuffer => plant.receive_buffer = Some(small(random)),
            Kind::SmallBuffers => {
                plant.send_buffer = Some(small(random));
                plant.receive_buffer = Some(small(random));
            }
            Kind::Tbf | Kind::Htb => plant.shape(random),
            Kind::BusySender => plant.be_busy(0, random),
            Kind::BusyReceiver => plant.be_busy(1, random),
            Kind::StallingSender => plant.stall(true, random),
            Kind::StallingReceiver => {
                plant.stall(false, random);
                // BBR paces, and the kernel does not count that as limited by the closed window: there
                // "not determined" is the honest answer.
                plant.congestion_control = "cubic";
            }
            Kind::Loss => {
                let delay = Duration::from_micros(between(random, 1_000, 10_000));
                plant.relay = Some((delay, doublings(random, 0.001, 0.03)));
                plant.congestion_control = if coin(random) { "cubic" } else { "reno" };
            }
            Kind::RoundTrip => {
                let delay = Duration::from_micros(between(random, 2_000, 20_000));
                plant.relay = Some((delay, 0.0));
                let window = Some(whole(doublings(random, 65_536.0, 524_288.0)));
                if coin(random) {
                    plant.send_buffer = window;
                } else {
                    plant.receive_buffer = window;
                }
            }
            Kind::CongestionWindow => {
                plant.congestion_window = Some(between(random, 4, 10));
                plant.congestion_control = "cubic";
            }
            Kind::SharedCpu => {
                let cpu = u32::from(coin(random));
                plant.place = Some((cpu, cpu));
            }
            Kind::Machine => {
                plant.place = None;
                plant.flows = between(random, 6, 24);
            }
            Kind::IngressShaper => plant.ingress = Some(whole(doublings(random, 300.0, 1_500.0))),
            Kind::SmallLoss => {
                plant.relay = Some((Duration::from_millis(10), doublings(random, 0.0002, 0.0005)));
                plant.congestion_control = if coin(random) { "cubic" } else { "reno" };
            }
            Kind::FixedReceiveBuffer => plant.fixed_receive_buffer = Some(small(random)),
            Kind::Pcie | Kind::Wire => {}
        }
        plant
    }

    fn shape(&mut self, random: &mut Random) {
        let rate = whole(doublings(random, 200.0, 5_000.0));
        // Four milliseconds' worth, or the bucket overflows between two looks.
        let burst = (rate * 1000 / 8 * 4).max(128 * 1024);
        let bucket = format!("rate {rate}mbit burst {burst}b");
        self.shaper = match self.kind {
            Kind::Tbf => vec![format!("qdisc add dev NIC root tbf {bucket} latency 20ms")],
            _ => vec![
                "qdisc add dev NIC root handle 1: htb default 10 r2q 1000".to_owned(),
                format!("class add dev NIC parent 1: classid 1:10 htb {bucket} cburst {burst}b"),
            ],
        };
    }

    fn be_busy(&mut self, cpu: u32, random: &mut Random) {
        self.place = Some((0, 1));
        let programs = usize::try_from(between(random, 1, 4)).unwrap_or(1);
        self.busy = Some((cpu, programs));
    }

    fn stall(&mut self, sender: bool, random: &mut Random) {
        let run = Duration::from_millis(between(random, 2, 10));
        let stop = Duration::from_millis(between(random, 15, 60));
        self.stalls = Some((run, stop, sender));
    }

    /// The same path without the injected bottleneck.
    pub(crate) fn unplanted(&self) -> Self {
        Self {
            send_buffer: None,
            receive_buffer: None,
            fixed_receive_buffer: None,
            shaper: Vec::new(),
            ingress: None,
            relay: self.relay.map(|(delay, _)| (delay, 0.0)),
            busy: None,
            stalls: None,
            congestion_window: None,
            // A path that must ramp up within the trial: the control that does it fastest.
            congestion_control: if self.relay.is_some() {
                "bbr"
            } else {
                self.congestion_control
            },
            ..self.clone()
        }
    }

    /// Its parameters, for a line.
    pub(crate) fn words(&self) -> String {
        let mut words = vec![self.congestion_control.to_owned()];
        let mut say = |what: Option<String>| words.extend(what);
        say(self.place.map(|(from, to)| format!("CPUs {from}:{to}")));
        say((self.flows > 1).then(|| format!("{} flows", self.flows)));
        say(self
            .send_buffer
            .map(|bytes| format!("send buffer {bytes} B")));
        say(self
            .receive_buffer
            .map(|bytes| format!("receive buffer {bytes} B")));
        say(self
            .fixed_receive_buffer
            .map(|bytes| format!("receive buffer fixed at {bytes} B")));
        say(self.shaper.last().cloned());
        say(self
            .ingress
            .map(|rate| format!("ingress to ifb0, tbf {rate} Mb/s")));
        say(self
            .relay
            .map(|(delay, loss)| format!("delay {delay:?} each way, loss {:.2} %", loss * 100.0)));
        say(self
            .busy
            .map(|(cpu, programs)| format!("{programs} programs on CPU {cpu}")));
        say(self
            .stalls
            .map(|(run, stop, _)| format!("runs {run:?}, stopped {stop:?}")));
        say(self
            .congestion_window
            .map(|segments| format!("window {segments} segments")));
        words.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use linerate_stats::Seed;

    use super::*;

    #[test]
    fn the_same_seed_plants_the_same() {
        let draw = |kind| InjectedLimit::draw(kind, &mut Random::new(Seed(5)));
        for kind in Kind::LIVE {
            assert_eq!(draw(kind), draw(kind), "{}", kind.name());
        }
    }

    #[test]
    fn every_plant_can_be_told_from_the_path_without_it() {
        let mut random = Random::new(Seed(1));
        for kind in Kind::LIVE.into_iter().filter(|kind| !kind.fills_cpus()) {
            let plant = InjectedLimit::draw(kind, &mut random);
            assert_ne!(plant, plant.unplanted(), "{}", kind.name());
            assert!(!kind.right().is_empty());
        }
    }
}
