//! Shared by the rules about rings, offloads and links: reading a value that not every interface has, and reading its
//! counters.

use super::{Draft, each_nic, found, nics, subject, undetermined, watched};
use crate::finding::{Context, Evidence, Outcome, Rule};
use crate::host::{Feature, Nic};
use crate::known::{self, Cause, Gap, Known};
use crate::units::BitRate;
use crate::watch::Watch;

/// The result of a rule for one interface: a fault, no fault (or not applicable), or the missing value.
pub(super) type Judged = Result<Option<Draft>, Gap>;

/// Calls `check` for each interface to check.
pub(super) fn judge_each<'a>(
    rule: &Rule,
    context: &Context<'a>,
    check: impl Fn(&'a Nic) -> Judged,
) -> Vec<Outcome> {
    each_nic(rule, context, |nic| outcome(rule, context, nic, check(nic)))
}

/// Calls `check` for each interface that `concerns` the rule, with its counters. If counters were not read, that is
/// reported once, and only if there is an interface to check.
pub(super) fn judge_watched<'a>(
    rule: &Rule,
    context: &Context<'a>,
    concerns: impl Fn(&Nic) -> bool,
    check: impl Fn(&'a Nic, &'a Watch) -> Judged,
) -> Vec<Outcome> {
    if !nics(context).into_iter().any(&concerns) {
        return each_nic(rule, context, |_| None);
    }
    let watch = match watched(rule, context) {
        Ok(watch) => watch,
        Err(unwatched) => return unwatched,
    };
    judge_each(rule, context, |nic| {
        if concerns(nic) {
            check(nic, watch)
        } else {
            Ok(None)
        }
    })
}

/// The result for `nic` as an outcome.
pub(super) fn outcome(
    rule: &Rule,
    context: &Context<'_>,
    nic: &Nic,
    judged: Judged,
) -> Option<Outcome> {
    match judged {
        Ok(said) => said.map(|said| found(rule, context, said)),
        Err(gap) => Some(undetermined(rule, context, subject(nic), vec![gap])),
    }
}

/// A value that not every interface has: `None` if it is absent.
pub(super) fn offered<T>(fact: &Known<T>) -> Result<Option<&T>, Gap> {
    match fact {
        Known::Value(value) => Ok(Some(value)),
        Known::Unknown(gap) if gap.leaves_a_question() => Err(gap.clone()),
        Known::Unknown(_) => Ok(None),
    }
}

/// Whether its link runs at `gbit` Gb/s or more. False for an interface without a speed (virtio, link down).
pub(super) fn runs_at(nic: &Nic, gbit: u64) -> Result<bool, Gap> {
    match &nic.link_bit_per_s {
        Known::Value(speed) => Ok(*speed >= BitRate::from_mbit_per_s(gbit * 1000)),
        Known::Unknown(gap) if matches!(gap.cause, Cause::NotAsked | Cause::Denied) => {
            Err(gap.clone())
        }
        Known::Unknown(_) => Ok(false),
    }
}

/// An offload feature, when the driver has it.
pub(super) fn feature(nic: &Nic, name: &str) -> Result<Option<Feature>, Gap> {
    Ok(offered(&nic.features)?.and_then(|all| all.get(name).copied()))
}

/// Whether a feature is off although it could be on.
pub(super) fn could_be_on(nic: &Nic, name: &str) -> Result<bool, Gap> {
    Ok(feature(nic, name)?.is_some_and(|feature| !feature.active && feature.changeable))
}

/// The netlink request for `what` of `nic`, as named in gaps.
pub(super) fn ethtool(nic: &Nic, what: &str) -> String {
    format!("netlink/ethtool/{}/{what}", nic.name)
}

/// The link's speed as evidence.
pub(super) fn speed(nic: &Nic) -> Option<Evidence> {
    let speed = nic.link_bit_per_s.get()?;
    Some(Evidence::new(
        "link speed",
        speed,
        format!("/sys/class/net/{}/speed", nic.name),
    ))
}

/// The maximum length of counters in a summary, in characters.
const WORDS_MAX: usize = 48;

/// The increase of some counters of an interface.
pub(super) struct Growth {
    /// Those that increased: the name below `nic/NAME/`, the increase, and the evidence.
    pub(super) grew: Vec<(String, u64, Evidence)>,
    /// How many could be read.
    read: usize,
    /// Why the others could not.
    gaps: Vec<Gap>,
}

/// The increase of the counters `names` of `nic` (keys of [`Watch`] below `nic/NAME/`). One that could not be read is
/// noted; one that was left out ([`Watch::without_still`]) did not increase.
pub(super) fn growth(watch: &Watch, nic: &Nic, names: &[&str]) -> Growth {
    let mut growth = Growth {
        grew: Vec::new(),
        read: 0,
        gaps: Vec::new(),
    };
    for name in names {
        let key = format!("nic/{}/{name}", nic.name);
        match watch.grown(&key) {
            Known::Value(by) => growth.add(watch, name, by, watch.path(&key)),
            Known::Unknown(gap) => {
                if gap.cause != Cause::NotSaid {
                    known::miss(&gap);
                }
                growth.gaps.push(gap);
            }
        }
    }
    growth
}

impl Growth {
    /// Adds the counters below `nic/NAME/FOLDER/` with a name accepted by `wanted`.
    pub(super) fn and_below(
        mut self,
        watch: &Watch,
        nic: &Nic,
        folder: &str,
        wanted: impl Fn(&str) -> bool,
    ) -> Self {
        let prefix = format!("nic/{}/{folder}/", nic.name);
        for (name, by, counter) in watch.below(&prefix) {
            let whole = format!("{folder}/{name}");
            if wanted(name) && self.by(&whole) == 0 {
                self.add(watch, &whole, by, counter.path.clone());
            }
        }
        self
    }

    fn add(&mut self, watch: &Watch, name: &str, by: u64, path: String) {
        self.read += 1;
        if by > 0 {
            let short = name.rsplit('/').next().unwrap_or(name);
            let evidence = Evidence::new(short, format!("+{by} in {}", watch.span_ns), path);
            self.grew.push((name.to_owned(), by, evidence));
        }
    }

    /// The increase of the counter `name`; 0 if it is unchanged or missing.
    pub(super) fn by(&self, name: &str) -> u64 {
        let own = self.grew.iter().find(|(own, ..)| own == name);
        own.map_or(0, |(_, by, _)| *by)
    }

    /// The largest increase: several counters often count the same events.
    pub(super) fn most(&self) -> u64 {
        self.grew.iter().map(|(_, by, _)| *by).max().unwrap_or(0)
    }

    /// The increases, as evidence.
    pub(super) fn evidence(&self) -> Vec<Evidence> {
        self.grew.iter().map(|(.., seen)| seen.clone()).collect()
    }

    /// The increases as text: the first, and more if they fit in a line.
    pub(super) fn words(&self) -> String {
        let mut words = String::new();
        let mut left = self.grew.len();
        for (name, by, _) in &self.grew {
            let word = format!("{} +{by}", name.rsplit('/').next().unwrap_or(name));
            if words.is_empty() {
                words = word;
            } else if words.len() + word.len() <= WORDS_MAX {
                words = format!("{words}, {word}");
            } else {
                break;
            }
            left -= 1;
        }
        match left {
            0 => words,
            more => format!("{words}, {more} more"),
        }
    }

    /// No increase; known only if something was read, or if there is no such counter here. Of several counters, those
    /// that could not be read were noted by [`growth`].
    pub(super) fn quiet(&self) -> Judged {
        let unread = self.gaps.iter().find(|gap| gap.leaves_a_question());
        match unread {
            Some(gap) if self.read == 0 => Err(gap.clone()),
            _ => Ok(None),
        }
    }

    /// The same for counters that every interface has: if they are missing, the result is unknown.
    pub(super) fn quiet_if_read(&self) -> Judged {
        match self.gaps.first() {
            Some(gap) if self.read == 0 => Err(gap.clone()),
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::World;
    use super::super::{RULES, judge};
    use super::*;
    use crate::build::{self, WatchBuilder};
    use crate::finding::{Profile, Severity};
    use crate::host::{Host, NicKind, Wire};

    #[test]
    fn counters_in_words_stay_short() {
        let host = build::host().nic("eth0", |nic| nic).build();
        let names: Vec<String> = (0..30)
            .map(|queue| format!("driver/rx{queue}_bad"))
            .collect();
        let watch = names
            .iter()
            .fold(build::watch(&host), |w, name| {
                w.grew(&format!("nic/eth0/{name}"), 7)
            })
            .build();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let words = growth(&watch, &host.nics[0], &names).words();
        assert_eq!(
            words,
            "rx0_bad +7, rx1_bad +7, rx2_bad +7, rx3_bad +7, 26 more"
        );
    }

    fn absent<T>() -> Known<T> {
        Known::unknown(Cause::Absent, "netlink/ethtool", "the driver has none")
    }

    fn plain_wire() -> Wire {
        Wire {
            modes: absent(),
            duplex: absent(),
            state: absent(),
            fec: absent(),
            pause: absent(),
            eee: absent(),
            module: absent(),
            timestamping: absent(),
        }
    }

    /// Copper at 1 Gb/s that starts without TSO and saves energy, a port without a cable, a bridge of
    /// containers, and forwarding for them.
    fn laptop() -> Host {
        build::host()
            .sysctl("net.ipv4.ip_forward", "1")
            .nic("enp2s0", |nic| {
                nic.gbit(1)
                    .feature("tx-tcp-segmentation", false, true)
                    .feature("tx-scatter-gather", false, true)
                    .with(|nic| {
                        if let Known::Value(eee) = &mut nic.wire.eee {
                            (eee.enabled, eee.active) = (true.into(), true.into());
                        }
                        if let Known::Value(modes) = &mut nic.wire.modes {
                            modes.speed_bit_per_s = BitRate::from_mbit_per_s(1_000).into();
                            modes.supported =
                                vec!["1000baseT/Full".into(), "2500baseT/Full".into()];
                            modes.partner = vec!["1000baseT/Full".into()];
                        }
                    })
            })
            .nic("enp3s0", |nic| {
                nic.with(|nic| {
                    nic.operstate = Known::Value("down".to_owned());
                    if let Known::Value(state) = &mut nic.wire.state {
                        state.link = Known::Value(false);
                        state.extended_state = Known::Value("No cable".to_owned());
                    }
                })
            })
            .nic("docker0", |nic| {
                nic.veth().with(|nic| nic.kind = NicKind::Bridge)
            })
            .nic("veth1", |nic| {
                nic.veth()
                    .feature("rx-gro", false, true)
                    .with(|nic| nic.stack.upper = vec!["docker0".parse().expect("a name")].into())
            })
            .nic("tun0", |nic| {
                nic.veth()
                    .feature("tx-tcp-segmentation", false, true)
                    .with(|nic| nic.kind = NicKind::Tun)
            })
            .build()
    }

    fn guest() -> Host {
        build::host()
            .nic("ens3", |nic| {
                nic.feature("tx-tcp-segmentation", false, false)
                    .with(|nic| {
                        nic.driver = Known::Value("virtio_net".to_owned());
                        nic.link_bit_per_s = Known::unknown(Cause::NotSaid, "speed", "-1");
                        nic.wire = plain_wire();
                    })
            })
            .build()
    }

    /// A captured directory: netlink data were not read.
    fn captured() -> Host {
        build::host()
            .nodes(2, 4)
            .nic("eth2", |nic| {
                nic.gbit(100).with(|nic| {
                    nic.features = Known::not_asked("netlink/ethtool/eth2/features");
                    nic.rings = Known::not_asked("netlink/ethtool/eth2/rings");
                    nic.wire = Wire::default();
                    nic.stack = crate::host::Stack::default();
                })
            })
            .build()
    }

    /// Busy, with only harmless counters increasing.
    fn busy(watch: WatchBuilder, nic: &Nic) -> WatchBuilder {
        let key = |name: &str| format!("nic/{}/{name}", nic.name);
        watch
            .grew(&key("stat/rx_packets"), 8_000_000)
            .grew(&key("stat/tx_packets"), 8_000_000)
            .grew(&key("fec/corrected-bits"), 900)
            .grew(&key("pause/rx-frames"), 3)
            .grew(&key("qstat/tx-stop"), 2_000)
            .grew(&key("page-pool/alloc-fast"), 5_000_000)
            .grew(&key("page-pool/alloc-slow"), 9_000)
    }

    #[test]
    fn a_healthy_host_of_any_shape_gets_no_warning() {
        let (near, far) = build::veth_pair();
        for host in [laptop(), guest(), captured(), near, far] {
            for profile in super::super::ALWAYS {
                let worlds = vec![
                    World::of(host.clone()),
                    World::of(host.clone()).watched(|w| w),
                    World::of(host.clone()).watched(|w| host.nics.iter().fold(w, busy)),
                ];
                for world in worlds {
                    let world = world.profile(*profile);
                    warns_of_nothing(&world, *profile);
                }
            }
        }
    }

    fn warns_of_nothing(world: &World, profile: Profile) {
        for rule in RULES.iter().filter(|rule| (22..=42).contains(&rule.number)) {
            for said in judge(rule, &world.context()) {
                if let Outcome::Finding(finding) = said {
                    assert_eq!(
                        finding.severity,
                        Severity::Note,
                        "{profile:?}: {finding:#?}"
                    );
                }
            }
        }
    }
}
