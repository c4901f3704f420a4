//! What the file asks for, and which of this host's classes should hold it.

use linerate_analysis::qos::ExpectedClass;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::{Host, Nic, QdiscClass};
use linerate_model::ids::NicName;
use linerate_model::qos::{
    Framing, Mechanism, NotApplicable, Qos, QosClass, Selector, plan, shared, unread_filters,
};

use super::configuration::configuration;

/// The low part of the handle of traffic class 0 of an `mqprio` (`TC_H_MIN_PRIORITY`, `<linux/pkt_sched.h>`).
const TRAFFIC_CLASS: u16 = 0xffe0;

/// The classes that are measured, and where they should be.
#[derive(Debug)]
pub(super) struct SetUp {
    pub(super) qos: Qos,
    pub(super) expected: Vec<ExpectedClass>,
    /// The low part of the handle of each class.
    pub(super) numbers: Vec<u16>,
    /// The interfaces that hold the limits.
    pub(super) holders: Vec<NicName>,
    /// Whether the line has a rate of its own.
    pub(super) has_line: bool,
    /// Classes that are left out, and why.
    pub(super) left_out: Vec<String>,
    /// What of this host's configuration is not read.
    pub(super) unread: Vec<String>,
}

/// The classes of `qos` on `host`, with their limits in the file's bytes.
pub(super) fn set_up(qos: Qos, host: &Host) -> Outcome<SetUp> {
    let bad = |error: String| Stop::new(Code::BadInput, error);
    let mut asked = qos.clone();
    if asked.mechanism.is_none() {
        asked.mechanism = mechanism_in_use(&qos, host);
    }
    // The mechanism is named or found: which kinds of qdisc the kernel could have does not matter.
    let planned = match plan(&asked, host, |_| true) {
        // Somebody made it in another way than `apply` would.
        Err(NotApplicable::Mechanism { .. }) if qos.mechanism.is_none() => {
            plan(&qos, host, |_| true)
        }
        planned => planned,
    };
    let planned = planned.map_err(|error| bad(error.to_string()))?;
    let shares = shared(&qos, planned.line).map_err(|error| bad(error.to_string()))?;
    let has_line = planned.holders.iter().any(|name| {
        let nic = host.nic(name);
        nic.is_some_and(|nic| nic.kind.has_wire())
    });
    let own = reachable(&qos, host);
    let mut left_out = Vec::new();
    let mut kept = Vec::new();
    let mut expected = Vec::new();
    let mut numbers = Vec::new();
    for (at, class) in qos.classes.iter().enumerate() {
        if class.selector == Selector::Rest && !own {
            left_out.push(format!(
                "class {} is left out: {} has no address of its own to send from",
                class.name, qos.interface
            ));
            continue;
        }
        let own = &planned.classes[at];
        let is_promised = class.limit.is_some() || class.guarantee.is_some() || has_line;
        // In the file's bytes: the mechanism counts others.
        let guarantee = own
            .guaranteed
            .filter(|_| is_promised)
            .map(|rate| shares[at].rate.as_f64() * (rate.as_f64() / own.rates.rate.as_f64()));
        let number = minor(planned.mechanism, own.number);
        let found = configuration(&planned, at, class, host, number);
        expected.push(ExpectedClass {
            name: class.name.clone(),
            limit_bit_per_s: class.limit.map(|limit| limit.on(planned.line).as_f64()),
            guarantee_bit_per_s: guarantee,
            check: check(class),
            wrong: found.wrong,
            configured: found.configured,
        });
        numbers.push(number);
        kept.push(class.clone());
    }
    let holders = planned.holders.iter().filter_map(|name| host.nic(name));
    let unread = holders.filter_map(unread_filters).collect();
    Ok(SetUp {
        expected,
        numbers,
        holders: planned.holders,
        has_line,
        left_out,
        unread,
        qos: Qos {
            classes: kept,
            ..qos
        },
    })
}

/// The mechanism that the interface has, whoever made it.
fn mechanism_in_use(qos: &Qos, host: &Host) -> Option<Mechanism> {
    let holds = |name: &NicName, kind: &str| {
        let tree = host.nic(name).and_then(|nic| nic.shaping.tree.value());
        tree.is_some_and(|tree| tree.iter().any(|node| node.kind == kind))
    };
    let below = host.nics.iter().filter(|nic| {
        let port = nic.stack.bond_port.as_ref();
        port.is_some_and(|port| port.bond.value() == Some(&qos.interface))
    });
    let all: Vec<&NicName> = std::iter::once(&qos.interface)
        .chain(below.map(|nic| &nic.name))
        .collect();
    let mut found = [Mechanism::Htb, Mechanism::Mqprio].into_iter();
    let found = found.find(|mechanism| all.iter().any(|name| holds(name, mechanism.word())))?;
    let is_limited_by_nic = |name: &&NicName| {
        let tree = host.nic(name).and_then(|nic| nic.shaping.tree.value());
        let mut classes = tree
            .into_iter()
            .flatten()
            .flat_map(|node| &node.traffic_classes);
        classes.any(|class| class.max_bit_per_s.is_some())
    };
    if found == Mechanism::Mqprio && all.iter().any(is_limited_by_nic) {
        return Some(Mechanism::Offload);
    }
    Some(found)
}

/// Whether untagged packets have an address to be sent from.
fn reachable(qos: &Qos, host: &Host) -> bool {
    let nic = host.nic(&qos.interface);
    let addresses = nic.and_then(|nic| nic.addresses.value());
    let is_usable = |text: &String| !text.to_ascii_lowercase().starts_with("fe80:");
    addresses.is_some_and(|all| all.iter().any(is_usable))
}

/// The low part of the handle of a class.
fn minor(mechanism: Mechanism, number: u16) -> u16 {
    match mechanism {
        Mechanism::Htb => number,
        Mechanism::Mqprio | Mechanism::Offload | Mechanism::Dcb => {
            TRAFFIC_CLASS.saturating_add(number)
        }
    }
}

/// The class of `nic` with that low part of its handle.
pub(super) fn class_of(nic: &Nic, number: u16) -> Option<&QdiscClass> {
    let classes = nic.shaping.classes.value()?;
    let mut own = classes.iter();
    own.find(|class| class.handle & 0xffff == u32::from(number))
}

/// What puts the packets of a class into it.
fn check(class: &QosClass) -> String {
    match (&class.selector, &class.vlan) {
        (Selector::Vlan, Some(vlan)) => match class.priority {
            Some(priority) => format!(
                "its filter for VLAN {}, and the egress map of {} to priority {priority}",
                vlan.id, vlan.device
            ),
            None => format!("its filter for VLAN {}", vlan.id),
        },
        (Selector::Rest, _) => "the default class of the qdisc".to_owned(),
        (other, _) => format!("its filter for {other}"),
    }
}

/// Frame bytes in the file's framing: `packets` frames of `bytes`, of which `payload` is what TCP or UDP carries.
pub(super) fn framed(
    framing: Framing,
    bytes: f64,
    packets: f64,
    payload: f64,
    tagged: bool,
) -> f64 {
    /// Preamble, frame check sequence and gap (IEEE 802.3), and a VLAN tag (802.1Q).
    const ON_THE_WIRE: f64 = 24.0;
    const TAG: f64 = 4.0;
    match framing {
        Framing::Payload => payload,
        Framing::Frame => bytes,
        Framing::Wire => bytes + packets * (ON_THE_WIRE + if tagged { TAG } else { 0.0 }),
    }
}
