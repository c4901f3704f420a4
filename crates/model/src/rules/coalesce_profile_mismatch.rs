//! `coalesce-profile-mismatch`: interrupt coalescing does not fit the host's role. Facts from the guides
//! of Amazon's ENA driver and Intel's ice driver; `ETHTOOL_MSG_COALESCE_GET`.

use super::spreading::{in_use, irq_counts, needed, taken};
use super::{ALWAYS, BULK, Draft, each_nic, found, remedy, subject, undetermined};
use crate::ceiling::gigabits;
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Profile, Remedy, Rule, Severity, Stage, Status,
};
use crate::host::{Coalesce, Nic, QueueKind};
use crate::known::Known;
use crate::setting::{Class, NicKnob, SettingKey, Value};
use crate::units::{BitRate, real};
use crate::watch::total;

pub(super) const RULE: Rule = Rule {
    id: "coalesce-profile-mismatch",
    number: 15,
    status: Status::Implemented,
    title: "interrupt coalescing does not fit the host's role",
    severity: Severity::Warn,
    stage: Stage::Tuning,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts, Basis::Counters],
    threshold: "role latency: rx-usecs above 8 (warn), adaptive-rx on (note); bulk roles: adaptive-rx off with \
                rx-usecs 0 at 10 Gb/s or more (warn; note in a guest); all but latency: more than 50000 \
                interrupts per second and queue (warn)",
    effect: "up to rx-usecs per round trip; 80 us allow 12500 interrupts per second and queue, 10 us 100000 \
             (ice)",
    source: "Documentation/networking/ethtool-netlink.rst (COALESCE_GET); amzn-drivers, \
             ENA_Linux_Best_Practices.rst; \
             Documentation/networking/device_drivers/ethernet/intel/ice.rst; fasterdata.es.net, 100G \
             tuning",
    fix: Fix::Proposed(&[Class::R1]),
    persist: "a .link file, or NetworkManager's ethtool.coalesce-* properties",
    contested: Some(
        "for bulk, fasterdata and the ENA guide recommend adaptive-rx on; for latency, the ENA and ice guides \
         recommend it off with rx-usecs 0",
    ),
    page: include_str!("../../../../docs/rules/coalesce-profile-mismatch.md"),
    check,
};

/// The maximum delay for a low-latency host, microseconds.
const LATENCY_USECS: u32 = 8;

/// Above this many interrupts per second, a queue's rate is high.
const MANY_PER_S: f64 = 50_000.0;

/// Below this packet rate a NIC without a delay costs little.
const FAST: BitRate = BitRate::from_mbit_per_s(10_000);

/// A delay that limits each queue to 20000 interrupts per second.
const BULK_USECS: u64 = 50;

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    each_nic(rule, context, |nic| check_nic(rule, context, nic))
}

fn check_nic(rule: &Rule, context: &Context<'_>, nic: &Nic) -> Option<Outcome> {
    if !nic.kind.has_wire() {
        return None;
    }
    let latency = context.profile == Profile::Latency;
    let flooded = if latency { None } else { flood(context, nic) };
    let coalesce = match nic.coalesce.ok() {
        Ok(coalesce) => coalesce,
        // A device without a coalescing delay has nothing to set.
        Err(gap) if flooded.is_none() => {
            let judged = latency || BULK.contains(&context.profile);
            let gap = needed(gap).filter(|_| judged)?;
            return Some(undetermined(rule, context, subject(nic), vec![gap]));
        }
        Err(_) => &Coalesce {
            rx_usecs: Known::default(),
            tx_usecs: Known::default(),
            adaptive_rx: Known::default(),
            adaptive_tx: Known::default(),
            rx_frames: Known::default(),
            tx_frames: Known::default(),
        },
    };
    let usecs = coalesce.rx_usecs.get();
    let adaptive = coalesce.adaptive_rx.get();
    let (severity, why) = if latency {
        too_long(usecs, adaptive)?
    } else if let Some(rate) = &flooded {
        (
            Severity::Warn,
            format!("too many interrupts ({})", rate.value),
        )
    } else {
        // A guest's interrupts may be delayed by the hypervisor.
        let guest = context.host.kernel.hypervisor.value();
        let severity = match guest.map(String::as_str) {
            Some("none") => Severity::Warn,
            _ => Severity::Note,
        };
        (severity, too_short(context, nic, usecs, adaptive)?)
    };
    let request = format!("netlink ethtool COALESCE_GET {}", nic.name);
    let mut evidence: Vec<Evidence> = flooded.into_iter().collect();
    evidence.extend(usecs.map(|us| Evidence::new("rx-usecs", format!("{us} us"), request.clone())));
    evidence.extend(adaptive.map(|on| {
        let word = if on { "on" } else { "off" };
        Evidence::new("adaptive-rx", word, request)
    }));
    evidence.extend(nic.link_bit_per_s.get().map(|rate| {
        let path = format!("/sys/class/net/{}/speed", nic.name);
        Evidence::new("link speed", gigabits(rate), path)
    }));
    let said = Draft {
        severity,
        subject: subject(nic),
        summary: format!("interrupt coalescing of {}: {why}; measure it", nic.name),
        evidence,
        remedies: remedies(context, nic, latency, adaptive),
    };
    Some(found(rule, context, said))
}

fn too_long(usecs: Option<u32>, adaptive: Option<bool>) -> Option<(Severity, String)> {
    if adaptive == Some(true) {
        let why = "adaptive-rx is on, which adds latency; try it off with rx-usecs 0";
        return Some((Severity::Note, why.to_owned()));
    }
    let usecs = usecs.filter(|us| *us > LATENCY_USECS)?;
    let why = format!("rx-usecs adds up to {usecs} us to every round trip; try 0");
    Some((Severity::Warn, why))
}

/// Without a delay each packet may cause an interrupt. A paravirtual NIC has no timer and reports 0; a slow NIC does
/// not need one.
fn too_short(
    context: &Context<'_>,
    nic: &Nic,
    usecs: Option<u32>,
    adaptive: Option<bool>,
) -> Option<String> {
    let driver = nic.driver.value().map_or("", String::as_str);
    let paravirtual = ["virtio_net", "vmxnet3", "hv_netvsc"].contains(&driver);
    let fast = nic.link_bit_per_s.get().is_some_and(|rate| rate >= FAST);
    let bulk = BULK.contains(&context.profile);
    let none = usecs == Some(0) && adaptive == Some(false);
    (none && bulk && fast && !paravirtual)
        .then(|| "rx-usecs is 0 and adaptive-rx off, so each packet may raise an interrupt; try adaptive-rx on".to_owned())
}

/// The queue with the highest interrupt rate, if that is too high.
fn flood(context: &Context<'_>, nic: &Nic) -> Option<Evidence> {
    let watch = context.watch?;
    let seconds = watch.span_ns.as_secs_f64();
    let all = taken(&in_use(nic, QueueKind::Rx));
    let counts = all.iter().map(|taken| {
        let count = total(irq_counts(watch, taken.irq).into_values());
        (taken.irq, real(count) / seconds)
    });
    let (irq, rate) = counts.max_by(|one, other| one.1.total_cmp(&other.1))?;
    (rate.is_finite() && rate > MANY_PER_S).then(|| {
        Evidence::new(
            format!("interrupts per second, IRQ {irq}"),
            format!("{rate:.0} per second"),
            format!("/sys/kernel/irq/{irq}/per_cpu_count"),
        )
    })
}

fn remedies(
    context: &Context<'_>,
    nic: &Nic,
    latency: bool,
    adaptive: Option<bool>,
) -> Vec<Remedy> {
    let set = |knob, to| remedy(context, SettingKey::Nic(nic.name.clone(), knob), to);
    let adapt = set(NicKnob::CoalesceAdaptiveRx, Value::Switch(!latency));
    let delay = match (latency, adaptive) {
        (true, _) => set(NicKnob::CoalesceRxUsecs, Value::Integer(0)),
        // With adaptive coalescing, the driver sets the delay itself.
        (false, Some(false)) => None,
        (false, _) => set(NicKnob::CoalesceRxUsecs, Value::Integer(BULK_USECS)),
    };
    adapt.into_iter().chain(delay).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{self, Cases, World, context, finding};
    use super::*;
    use crate::build;
    use crate::host::Host;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("50 us where latency matters", || {
                World::of(server(Some(50), false)).profile(Profile::Latency)
            }),
            ("no delay at all in bulk", || {
                World::of(server(Some(0), false))
            }),
            ("60000 interrupts in a second", || {
                World::of(server(Some(0), false)).watched(|w| w.grew("irq/100/cpu/0", 600_000))
            }),
        ],
        silent: &[
            ("adaptive in bulk", || World::of(server(Some(8), true))),
            ("no delay where latency matters", || {
                World::of(server(Some(0), false)).profile(Profile::Latency)
            }),
            ("a paravirtual card without a timer", || {
                let mut host = server(Some(0), false);
                host.nics[0].driver = Known::Value("virtio_net".to_owned());
                World::of(host)
            }),
            ("a pair without interrupts", || {
                World::of(build::veth_pair().0)
            }),
        ],
        undetermined: &[("not queried", || {
            let mut host = server(None, false);
            host.nics[0].coalesce = Known::not_asked("netlink ethtool COALESCE_GET eth2");
            World::of(host)
        })],
    };

    fn server(usecs: Option<u32>, adaptive: bool) -> Host {
        build::host()
            .nic("eth2", |nic| {
                nic.gbit(25).with(|nic| {
                    if let (Known::Value(coalesce), Some(usecs)) = (&mut nic.coalesce, usecs) {
                        coalesce.rx_usecs = Known::Value(usecs);
                        coalesce.adaptive_rx = Known::Value(adaptive);
                    }
                })
            })
            .build()
    }

    #[test]
    fn each_profile_is_given_its_own_remedy() {
        let world = World::of(server(Some(50), false)).profile(Profile::Latency);
        let said = finding(ID, &world.context());
        assert_eq!(said.severity, Severity::Warn);
        assert_eq!(
            testing::remedies(&said),
            ["nic/eth2/coalesce/rx-usecs: 50 -> 0"]
        );
        let said = finding(ID, &context(&server(Some(0), false)));
        assert_eq!(
            testing::remedies(&said),
            ["nic/eth2/coalesce/adaptive-rx: off -> on"]
        );
        let world = World::of(server(Some(8), true)).profile(Profile::Latency);
        assert_eq!(finding(ID, &world.context()).severity, Severity::Note);
    }
}
