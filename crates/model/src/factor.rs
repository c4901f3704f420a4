//! The factors of a search: each setting of a path, with the values that are worth a trial.
//!
//! The values are those recommended in documents and field reports (Documentation/networking/scaling.rst,
//! ip-sysctl.rst, napi.rst; the rules cite the rest), not every possible one: a search takes minutes. It does not
//! depend on the rules: its purpose is to find what they do not cover.

use serde::{Deserialize, Serialize};

use crate::host::{Host, Nic, NicKind, Qdisc, QueueKind};
use crate::ids::{CpuSet, NicName};
use crate::plan::{Change, End};
use crate::propose::Permit;
use crate::prove::EndChange;
use crate::setting::{MachineKnob, NicKnob, PolicyKnob, Scope, SettingKey, Value, current};

/// Something that can be tried at several levels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Factor {
    /// Its name: the end and its settings.
    pub name: String,
    /// The levels; the first is the baseline and changes nothing.
    pub levels: Vec<Level>,
}

/// One level of a factor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Level {
    /// Its values, as displayed.
    pub words: String,
    /// The changes it needs.
    pub changes: Vec<EndChange>,
}

/// An end of the path that is searched.
#[derive(Debug, Clone, Copy)]
pub struct Site<'a> {
    /// Which end.
    pub end: End,
    /// The host at that end, baseline.
    pub host: &'a Host,
    /// The interface of the path.
    pub nic: &'a NicName,
}

/// Sysctls of a network namespace and the values worth a trial. Buffers: a small one, the kernel's default, one for a
/// path with a large BDP (Documentation/networking/ip-sysctl.rst).
const SYSCTLS: &[(&str, &[&str])] = &[
    (
        "net.ipv4.tcp_rmem",
        &[
            "4096 65536 524288",
            "4096 131072 6291456",
            "4096 131072 33554432",
        ],
    ),
    (
        "net.ipv4.tcp_wmem",
        &[
            "4096 16384 524288",
            "4096 16384 4194304",
            "4096 65536 33554432",
        ],
    ),
    ("net.ipv4.tcp_window_scaling", &["1"]),
    ("net.ipv4.tcp_sack", &["1"]),
    ("net.ipv4.tcp_moderate_rcvbuf", &["1"]),
    ("net.ipv4.tcp_limit_output_bytes", &["1048576", "4194304"]),
    ("net.ipv4.tcp_slow_start_after_idle", &["0", "1"]),
    // Machine-wide.
    ("net.core.netdev_max_backlog", &["1000", "10000"]),
    ("net.core.netdev_budget", &["300", "1200"]),
    ("kernel.numa_balancing", &["0"]),
];
/// Features that a search may toggle. Turning off others (checksums, scatter-gather) turns these off too.
const FEATURES: [&str; 5] = [
    "tx-tcp-segmentation",
    "tx-generic-segmentation",
    "rx-gro",
    "rx-gro-hw",
    "rx-lro",
];
/// Qdiscs without a rate.
const QDISCS: [&str; 4] = ["fq", "fq_codel", "mq", "noqueue"];

/// The factors of a path, in the order of its ends. `owns_shapers`: a shaper on the path may be replaced.
pub fn factors(sites: &[Site<'_>], permit: Permit, owns_shapers: bool) -> Vec<Factor> {
    let mut factors = Vec::new();
    for (place, site) in sites.iter().enumerate() {
        let of_machine = place == 0 || !permit.shared_kernel;
        let wanted = EndScope {
            site: *site,
            permit,
            of_machine,
        };
        for (name, values) in SYSCTLS {
            let values = values.iter().map(|value| Value::Text((*value).to_owned()));
            factors.extend(wanted.one(&SettingKey::Sysctl((*name).to_owned()), values.collect()));
        }
        factors.extend(wanted.congestion_control());
        if let Some(nic) = site.host.nic(site.nic) {
            factors.extend(wanted.of_nic(nic, owns_shapers));
        }
        factors.extend(wanted.of_cpus());
    }
    factors
}

/// One end, and what may be changed there.
struct EndScope<'a> {
    site: Site<'a>,
    permit: Permit,
    /// Whether machine-wide settings may be varied at this end.
    of_machine: bool,
}

impl EndScope<'_> {
    fn congestion_control(&self) -> Option<Factor> {
        let available = SettingKey::Sysctl("net.ipv4.tcp_available_congestion_control".to_owned());
        let Some(Value::Text(available)) = current(self.site.host, &available).value().cloned()
        else {
            return None;
        };
        let known = ["cubic", "bbr"];
        let known = known
            .into_iter()
            .filter(|name| available.split(' ').any(|one| one == *name));
        let key = SettingKey::Sysctl("net.ipv4.tcp_congestion_control".to_owned());
        self.one(
            &key,
            known.map(|name| Value::Text(name.to_owned())).collect(),
        )
    }

    fn of_nic(&self, nic: &Nic, owns_shapers: bool) -> Vec<Factor> {
        let key = |knob: NicKnob| SettingKey::Nic(nic.name.clone(), knob);
        let mut factors: Vec<Option<Factor>> = Vec::new();
        let features = nic.features.value();
        for name in FEATURES {
            let feature = features.and_then(|all| all.get(name));
            if feature.is_some_and(|feature| feature.changeable) {
                let key = key(NicKnob::Feature(name.to_owned()));
                factors.push(self.one(&key, vec![Value::Switch(true), Value::Switch(false)]));
            }
        }
        factors.push(self.qdisc(nic, owns_shapers));
        let largest = |largest: Option<u32>| largest.map(|size| Value::Integer(size.into()));
        if let Some(rings) = nic.rings.value() {
            let rx = (key(NicKnob::RingRx), largest(rings.rx_max.get()));
            let tx = (key(NicKnob::RingTx), largest(rings.tx_max.get()));
            let wanted = [rx, tx].into_iter();
            let wanted = wanted.filter_map(|(key, value)| Some((key, value?)));
            factors.push(self.together("ring", vec![wanted.collect()]));
        }
        if nic.coalesce.value().is_some() {
            let fixed = |usecs| {
                vec![
                    (key(NicKnob::CoalesceAdaptiveRx), Value::Switch(false)),
                    (key(NicKnob::CoalesceRxUsecs), Value::Integer(usecs)),
                ]
            };
            let adaptive = vec![(key(NicKnob::CoalesceAdaptiveRx), Value::Switch(true))];
            factors
                .push(self.together("coalesce", vec![adaptive, fixed(0), fixed(20), fixed(100)]));
        }
        let poll = |nanoseconds, empty| {
            vec![
                (key(NicKnob::GroFlushTimeoutNs), Value::Integer(nanoseconds)),
                (key(NicKnob::DeferHardIrqs), Value::Integer(empty)),
            ]
        };
        factors.push(self.together(
            "napi/defer",
            vec![poll(0, 0), poll(20_000, 2), poll(200_000, 2)],
        ));
        factors.push(self.one(
            &key(NicKnob::Threaded),
            vec![Value::Switch(false), Value::Switch(true)],
        ));
        factors.push(self.steering(nic));
        factors.into_iter().flatten().collect()
    }

    fn qdisc(&self, nic: &Nic, owns_shapers: bool) -> Option<Factor> {
        let now = nic.qdisc.value()?;
        if now.shapes() && !owns_shapers {
            return None;
        }
        let several = nic
            .queues
            .iter()
            .filter(|queue| queue.kind == QueueKind::Tx)
            .count()
            > 1;
        let fits = |kind: &&str| match *kind {
            "mq" => several,
            "noqueue" => nic.kind == NicKind::Veth,
            _ => true,
        };
        let kinds = QDISCS.into_iter().filter(fits);
        // With user-set parameters, the same kind is not the same qdisc.
        let kinds = kinds.filter(|kind| *kind != now.kind);
        let kinds = kinds.map(|kind| Value::Qdisc(Qdisc::plain(kind)));
        self.one(
            &SettingKey::Nic(nic.name.clone(), NicKnob::Qdisc),
            kinds.collect(),
        )
    }

    /// The CPUs for RPS: the interrupt's CPU (off), any CPU, or those of the NIC's node.
    fn steering(&self, nic: &Nic) -> Option<Factor> {
        let host = self.site.host;
        let all: CpuSet = host.cpus.iter().map(|cpu| cpu.id).collect();
        let near = nic.local_cpus.value().cloned().unwrap_or_default();
        let queues: Vec<u32> = (nic.queues.iter())
            .filter(|queue| queue.kind == QueueKind::Rx && queue.rps_cpus.value().is_some())
            .map(|queue| queue.index)
            .collect();
        let mut levels: Vec<Vec<(SettingKey, Value)>> = Vec::new();
        for cpus in [CpuSet::default(), all, near] {
            let on = |queue: &u32| {
                let key = SettingKey::Nic(nic.name.clone(), NicKnob::RpsCpus(*queue));
                (key, Value::Text(cpus.to_string()))
            };
            levels.push(queues.iter().map(on).collect());
        }
        self.together("rps-cpus", levels)
    }

    fn of_cpus(&self) -> Vec<Factor> {
        let turbo = SettingKey::Machine(MachineKnob::Turbo);
        let turbo = self.one(&turbo, vec![Value::Switch(true)]);
        let policies = self.site.host.power.frequency.value();
        let policies = policies.into_iter().flatten();
        let numbers = policies.filter_map(|policy| policy.number.get());
        let fast = numbers.map(|number| {
            let key = SettingKey::Policy(number, PolicyKnob::Governor);
            (key, Value::Text("performance".to_owned()))
        });
        let governor = self.together("cpu/governor", vec![fast.collect()]);
        [turbo, governor].into_iter().flatten().collect()
    }

    /// One setting with the values worth a trial.
    fn one(&self, key: &SettingKey, values: Vec<Value>) -> Option<Factor> {
        let name = key.to_string();
        let levels = values.into_iter().map(|value| vec![(key.clone(), value)]);
        self.together(&name, levels.collect())
    }

    /// Several settings that change together. A level without changes is the baseline.
    fn together(&self, name: &str, levels: Vec<Vec<(SettingKey, Value)>>) -> Option<Factor> {
        let end = self.site.end;
        let mut found: Vec<String> = Vec::new();
        let mut all: Vec<Level> = Vec::new();
        for level in levels {
            let mut changes = Vec::new();
            let mut words: Vec<String> = Vec::new();
            for (setting, to) in level {
                let spec = setting.spec();
                let shared = spec.scope == Scope::Machine;
                let permitted = spec.class <= self.permit.class_max
                    && setting.is_writable()
                    && !(shared && (!self.of_machine || self.permit.spares_machine));
                if !permitted {
                    return None;
                }
                let from = current(self.site.host, &setting).value()?.clone();
                if !found.contains(&from.to_string()) {
                    found.push(from.to_string());
                }
                if !words.contains(&to.to_string()) {
                    words.push(to.to_string());
                }
                if !to.is_met_by(&from) {
                    let change = Change { setting, from, to };
                    changes.push(EndChange { end, change });
                }
            }
            let is_new = all.iter().all(|other| other.changes != changes);
            if !changes.is_empty() && is_new {
                all.push(Level {
                    words: words.join(", "),
                    changes,
                });
            }
        }
        if all.is_empty() {
            return None;
        }
        let as_found = Level {
            words: format!("{} (current)", found.join(", ")),
            changes: Vec::new(),
        };
        all.insert(0, as_found);
        Some(Factor {
            name: format!("{end} {name}"),
            levels: all,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{self, NicBuilder};
    use crate::setting::Class;

    fn names(factors: &[Factor]) -> Vec<&str> {
        factors.iter().map(|factor| factor.name.as_str()).collect()
    }

    fn of(near: &Host, far: &Host, permit: Permit, owns_shapers: bool) -> Vec<Factor> {
        let site = |end, host| Site {
            end,
            host,
            nic: &host.nics[0].name,
        };
        let sites = [site(End::Local, near), site(End::Remote, far)];
        factors(&sites, permit, owns_shapers)
    }

    #[test]
    fn each_level_but_the_first_changes_what_is_not_so_already() {
        let (near, far) = build::veth_pair();
        let factors = of(&near, &far, Permit::default(), false);
        assert!(factors.len() > 4, "{:?}", names(&factors));
        for factor in &factors {
            assert!(factor.levels.len() > 1, "{factor:?}");
            assert!(factor.levels[0].changes.is_empty());
            for level in &factor.levels[1..] {
                assert!(!level.changes.is_empty(), "{factor:?}");
                for EndChange { change, .. } in &level.changes {
                    assert!(!change.to.is_met_by(&change.from), "{change}");
                    assert!(change.setting.spec().class <= Class::R2, "{change}");
                }
            }
        }
    }

    #[test]
    fn a_shaper_is_replaced_only_by_its_owner() {
        let shaped = build::host()
            .nic("near0", |nic| nic.veth().qdisc(build::tbf(1_000)))
            .build();
        let far = build::veth_pair().1;
        let has = |owns| {
            let factors = of(&shaped, &far, Permit::default(), owns);
            names(&factors).contains(&"local nic/near0/qdisc")
        };
        assert_eq!((has(false), has(true)), (false, true));
    }

    #[test]
    fn what_both_ends_share_is_varied_once_and_not_at_all_where_it_is_spared() {
        let host = || build::host().sysctl("kernel.numa_balancing", "1");
        let near = host().nic("near0", NicBuilder::veth).build();
        let far = host().nic("far0", NicBuilder::veth).build();
        let number = |permit: Permit| {
            let factors = of(&near, &far, permit, false);
            let of_machine = names(&factors).into_iter();
            of_machine
                .filter(|name| name.ends_with("numa_balancing"))
                .count()
        };
        let permit = Permit::default();
        let shared = Permit {
            shared_kernel: true,
            ..permit
        };
        let spared = Permit {
            spares_machine: true,
            ..permit
        };
        assert_eq!((number(permit), number(shared), number(spared)), (2, 1, 0));
    }
}
