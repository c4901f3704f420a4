//! Where the limits of an interface are: on itself, or on the ports of a bond.

use super::super::plan::{holders_of, ports_of};
use super::Held;
use crate::host::{Host, Nic};
use crate::ids::NicName;
use crate::setting::qdisc_spec::{Htb, Mqprio};
use crate::setting::{ClassRule, QdiscSpec};
use crate::units::BitRate;

/// The traffic classes of a NIC.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TrafficClasses {
    /// The class of each priority.
    pub(super) of_priority: Vec<u32>,
    /// The rate limit of each class; 0 is no limit.
    pub(super) rates: Vec<BitRate>,
    /// The ETS share of each class, per cent; none for a class that is strict, or the vendor's.
    pub(super) shares: Vec<Option<u32>>,
}

impl TrafficClasses {
    fn of(nic: &Nic) -> Option<Self> {
        let dcb = nic.shaping.dcb.value()?;
        let services = dcb.class_algorithm.value();
        let shares = dcb.class_bandwidth.value().into_iter().flatten();
        let shares = shares.enumerate().map(|(at, share)| {
            let service = services.and_then(|all| all.get(at));
            service.filter(|word| *word == "ets").map(|_| *share)
        });
        Some(Self {
            of_priority: dcb.priority_class.value()?.clone(),
            rates: dcb.class_max_bit_per_s.value()?.clone(),
            shares: shares.collect(),
        })
    }

    /// The limit of a class.
    pub(super) fn rate(&self, class: u32) -> Option<BitRate> {
        let rate = self.rates.get(usize::try_from(class).ok()?)?;
        (rate.as_bit_per_s() > 0).then_some(*rate)
    }

    /// The ETS share of a class; a share of 0 is none.
    pub(super) fn share(&self, class: u32) -> Option<u32> {
        let share = *self.shares.get(usize::try_from(class).ok()?)?;
        share.filter(|share| *share > 0)
    }

    fn is_limited(&self) -> bool {
        let mut classes = self.of_priority.iter();
        classes.any(|class| self.rate(*class).is_some())
    }

    /// Whether several classes have shares of the line.
    fn is_shared(&self) -> bool {
        let shared = |class: &&u32| self.share(**class).is_some();
        let mut classes = self.of_priority.iter().filter(shared);
        let first = classes.next();
        classes.any(|class| Some(class) != first)
    }
}

/// What limits an interface.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Limits {
    Dcb(TrafficClasses),
    Mqprio(Mqprio, Vec<ClassRule>),
    Htb(Htb, Vec<ClassRule>),
    None,
}

impl Limits {
    /// Maximum rates of the NIC go first; its shares alone only without a qdisc with classes.
    fn of(nic: &Nic, held: Held) -> Self {
        let dcb = TrafficClasses::of(nic);
        match (dcb, held.qdisc) {
            (Some(dcb), _) if dcb.is_limited() => Self::Dcb(dcb),
            (_, Some(QdiscSpec::Htb(htb))) => Self::Htb(htb, held.rules),
            (_, Some(QdiscSpec::Mqprio(mqprio))) => Self::Mqprio(mqprio, held.rules),
            (Some(dcb), _) if dcb.is_shared() => Self::Dcb(dcb),
            _ => Self::None,
        }
    }
}

/// The limits, and the interface that has them.
pub(super) struct Found<'h> {
    pub(super) nic: &'h Nic,
    pub(super) limits: Limits,
}

/// The limits of an interface: where a plan would make them, or else on itself or on its ports.
pub(super) fn found_limits<'h>(
    host: &'h Host,
    nic: &'h Nic,
    held: impl Fn(&NicName) -> Held,
    notes: &mut Vec<String>,
) -> Found<'h> {
    let (holders, _) = holders_of(host, nic);
    let ports = ports_of(host, nic);
    let mut names: Vec<&NicName> = holders.iter().collect();
    for name in [&nic.name].into_iter().chain(&ports) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let of = |name: &NicName| {
        let nic = host.nic(name)?;
        Some((nic, Limits::of(nic, held(name))))
    };
    let mut all = names.into_iter().filter_map(of);
    let Some((at, limits)) = all.find(|(_, limits)| *limits != Limits::None) else {
        return Found {
            nic,
            limits: Limits::None,
        };
    };
    if ports.contains(&at.name) {
        let others = ports.iter().filter(|port| **port != at.name);
        let other = |port: &&NicName| of(port).is_none_or(|(_, other)| other != limits);
        let others: Vec<&str> = others.filter(other).map(NicName::as_str).collect();
        if !others.is_empty() {
            notes.push(format!(
                "the file has the limits of {}; other ports of {} have others: {}",
                at.name,
                nic.name,
                others.join(", ")
            ));
        }
    }
    if !holders.contains(&at.name) {
        let (there, planned) = if at.name == nic.name {
            ("the bond itself", "each of its ports")
        } else {
            (
                "each port of the bond",
                "the bond itself, for all of its ports together",
            )
        };
        notes.push(format!(
            "the limits are those of {there}; `qos plan` has them on {planned}"
        ));
    }
    Found { nic: at, limits }
}
