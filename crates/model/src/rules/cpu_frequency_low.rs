//! `cpu-frequency-low`: CPUs run below their maximum frequency. Documentation/admin-guide/pm/cpufreq.rst,
//! intel_pstate.rst, amd-pstate.rst: `powersave` of `intel_pstate` or `amd_pstate` in active mode is the
//! normal choice, not a slow one.

use super::facts::{answer, if_read, need};
use super::{ALWAYS, Draft, remedy};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Profile, Remedy, Rule, Severity, Stage, Status,
};
use crate::host::{FrequencyPolicy, Host};
use crate::ids::{CpuId, CpuSet};
use crate::setting::{Class, MachineKnob, PolicyKnob, SettingKey, Value};
use crate::units::{BitRate, real};
use crate::watch::Watch;

pub(super) const RULE: Rule = Rule {
    id: "cpu-frequency-low",
    number: 51,
    status: Status::InPart("the frequency under load is not checked"),
    title: "CPUs run below their maximum frequency",
    severity: Severity::Warn,
    stage: Stage::Saturation,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts, Basis::Counters],
    threshold: "governor powersave or conservative (except intel_pstate and amd_pstate in active mode); energy \
                preference power or balance_power; turbo off; max_perf_pct of intel_pstate below 95; scaling_max_freq below 95 % of cpuinfo_max_freq \
                (with acpi-cpufreq, of the highest P-state below boost; 55 % of cpuinfo_max_freq where it is not \
                known); thermal throttling while watched. \
                Note if all links are below 10 Gb/s and no CPU throttles more than 10 times per second",
    effect: "about 30 Gb/s per flow needs 3 GHz or more (fasterdata.es.net)",
    source: "Documentation/admin-guide/pm/cpufreq.rst; Documentation/admin-guide/pm/intel_pstate.rst; \
             fasterdata.es.net, 100G tuning",
    fix: Fix::Proposed(&[Class::R1]),
    persist: "a systemd unit at boot, or the active TuneD profile",
    contested: None,
    page: include_str!("../../../../docs/rules/cpu-frequency-low.md"),
    check,
};

/// Below this link speed, any core is fast enough.
const CONCERNED: BitRate = super::facts::gbit(10);
/// A limit below this share of the hardware maximum was set by a user.
const HELD_PERCENT: u128 = 95;
/// Throttling events per second of a CPU from which it runs slower all the time, whatever the link speed.
const THROTTLED_PER_SECOND: f64 = 10.0;
/// The highest P-state of server processors is at least this share of their boost frequency (AMD EPYC 9845: 57 %).
const HELD_PERCENT_BOOST: u128 = 55;
const FOLDER: &str = "/sys/devices/system/cpu";

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let power = &context.host.power;
    let mut missing = Vec::new();
    let policies = need(&power.frequency, &mut missing).map_or(&[][..], Vec::as_slice);
    let mut said = Vec::new();
    said.extend(governor(context, policies));
    said.extend(preference(context, policies));
    said.extend(turbo(context, policies));
    said.extend(limited(context, policies));
    said.extend(capped(context));
    said.extend(context.watch.and_then(|watch| throttled(context, watch)));
    answer(rule, context, "host", said, missing)
}

/// A warning, or a note where no link needs a fast core.
fn severity(context: &Context<'_>) -> Severity {
    let rates = |host: &Host| {
        let wired = host.nics.iter().filter(|nic| nic.kind.has_wire());
        let rates: Vec<BitRate> = wired.filter_map(|nic| nic.link_bit_per_s.get()).collect();
        rates
    };
    let rates = rates(context.host);
    let slow = !rates.is_empty() && rates.iter().all(|rate| *rate < CONCERNED);
    if slow || context.profile == Profile::Mixed {
        Severity::Note
    } else {
        Severity::Warn
    }
}

fn finding(
    severity: Severity,
    summary: String,
    evidence: Vec<Evidence>,
    remedies: Vec<Remedy>,
) -> Draft {
    Draft {
        severity,
        subject: "host".to_owned(),
        summary,
        evidence,
        remedies,
    }
}

/// A file of a policy, as evidence. Older kernels have it below the policy's first CPU.
fn fact(policy: &FrequencyPolicy, file: &str, value: impl std::fmt::Display) -> Evidence {
    let cpus = policy.cpus.value();
    let first = cpus.and_then(CpuSet::first).unwrap_or(CpuId(0));
    let of = cpus.map_or_else(String::new, |cpus| format!(" of CPUs {cpus}"));
    let folder = match policy.number.get() {
        Some(number) => format!("{FOLDER}/cpufreq/policy{number}"),
        None => format!("{FOLDER}/cpu{first}/cpufreq"),
    };
    Evidence::new(format!("{file}{of}"), value, format!("{folder}/{file}"))
}

/// Whether the driver chooses the frequency itself, with hardware feedback.
fn active_mode(context: &Context<'_>, policy: &FrequencyPolicy) -> bool {
    match policy.driver.value().map(String::as_str) {
        Some("intel_pstate" | "amd-pstate-epp" | "amd_pstate_epp") => true,
        Some("intel_cpufreq" | "amd-pstate" | "acpi-cpufreq") => false,
        _ => context
            .host
            .power
            .pstate_mode
            .value()
            .is_some_and(|mode| mode == "active"),
    }
}

fn governor(context: &Context<'_>, policies: &[FrequencyPolicy]) -> Option<Draft> {
    let slow = |policy: &&FrequencyPolicy| {
        let governor = policy.governor.value().map(String::as_str);
        matches!(governor, Some("powersave" | "conservative")) && !active_mode(context, policy)
    };
    let slow: Vec<&FrequencyPolicy> = policies.iter().filter(slow).collect();
    let name = slow.first()?.governor.value()?;
    Some(finding(
        severity(context),
        format!(
            "governor {name} keeps {} of {} cpufreq policies below maximum frequency: use performance or \
             schedutil",
            slow.len(),
            policies.len()
        ),
        slow.iter()
            .flat_map(|policy| {
                let driver = policy.driver.value();
                let driver = driver.map(|driver| fact(policy, "scaling_driver", driver));
                [fact(policy, "scaling_governor", name)]
                    .into_iter()
                    .chain(driver)
            })
            .collect(),
        to_performance(context, &slow, PolicyKnob::Governor),
    ))
}

/// The change to a fast setting for each of these policies; they are tested together.
fn to_performance(
    context: &Context<'_>,
    policies: &[&FrequencyPolicy],
    knob: PolicyKnob,
) -> Vec<Remedy> {
    let to_fast = |policy: &&FrequencyPolicy| {
        let key = SettingKey::Policy(policy.number.get()?, knob);
        remedy(context, key, Value::Text("performance".to_owned()))
    };
    policies.iter().filter_map(to_fast).collect()
}

fn preference(context: &Context<'_>, policies: &[FrequencyPolicy]) -> Option<Draft> {
    let thrifty = |policy: &&FrequencyPolicy| {
        let wish = policy.energy_preference.value().map(String::as_str);
        matches!(wish, Some("power" | "balance_power"))
    };
    let thrifty: Vec<&FrequencyPolicy> = policies.iter().filter(thrifty).collect();
    let name = thrifty.first()?.energy_preference.value()?;
    Some(finding(
        severity(context),
        format!(
            "{} of {} cpufreq policies prefer saving energy ({name}): set energy_performance_preference to \
             performance",
            thrifty.len(),
            policies.len()
        ),
        thrifty
            .iter()
            .map(|policy| fact(policy, "energy_performance_preference", name))
            .collect(),
        to_performance(context, &thrifty, PolicyKnob::EnergyPreference),
    ))
}

fn turbo(context: &Context<'_>, policies: &[FrequencyPolicy]) -> Option<Draft> {
    if context.host.power.turbo.get()? {
        return None;
    }
    let first = policies.first()?;
    // `no_turbo` is 1 also if the processor has no turbo; and boost may have nothing above the nominal performance.
    let perf = policies
        .iter()
        .filter_map(|policy| policy.highest_perf.get().zip(policy.nominal_perf.get()));
    let perf: Vec<(u64, u64)> = perf.collect();
    if !perf.is_empty() && perf.iter().all(|(highest, nominal)| highest <= nominal) {
        return None;
    }
    let above_base = first
        .hardware_max_khz
        .get()
        .zip(first.base_khz.get())
        .is_some_and(|(most, base)| most > base);
    let by_pstate = first
        .driver
        .value()
        .is_some_and(|driver| driver.starts_with("intel_"));
    // For low latency, a constant frequency may be better than a high one.
    let steady = matches!(context.profile, Profile::Latency | Profile::Measurement);
    let path = if by_pstate {
        "/sys/devices/system/cpu/intel_pstate/no_turbo"
    } else {
        "/sys/devices/system/cpu/cpufreq/boost"
    };
    let mut evidence = vec![Evidence::new("turbo", "off", path)];
    let known = |file, khz: Option<u64>| khz.map(|khz| fact(first, file, format!("{khz} kHz")));
    evidence.extend(known("cpuinfo_max_freq", first.hardware_max_khz.get()));
    evidence.extend(known("base_frequency", first.base_khz.get()));
    let sure = (above_base || !by_pstate) && !steady;
    Some(finding(
        if sure { severity(context) } else { Severity::Note },
        "turbo is off, so CPUs stay at base frequency: turn it on, unless a constant frequency is intended"
            .to_owned(),
        evidence,
        Vec::from_iter(remedy(
            context,
            SettingKey::Machine(MachineKnob::Turbo),
            Value::Switch(true),
        )),
    ))
}

/// The frequency that `scaling_max_freq` can be set to, and the per cent of it below which a user set a limit.
fn reach(policy: &FrequencyPolicy, all: &[FrequencyPolicy]) -> Option<(u64, u128)> {
    let hardware = policy.hardware_max_khz.get()?;
    if policy.driver.value()? != "acpi-cpufreq" {
        return Some((hardware, HELD_PERCENT));
    }
    // Its hardware maximum includes boost, which is above every P-state that can be set.
    let state = policy.available_max_khz.get().or(policy.base_khz.get());
    if let Some(state) = state {
        return Some((state.min(hardware), HELD_PERCENT));
    }
    // Policies of one kind of processor have the same P-states.
    let alike = all
        .iter()
        .filter(|other| other.hardware_max_khz.get() == Some(hardware));
    let fastest = alike.filter_map(|other| other.max_khz.get()).max()?;
    let of_boost = u64::try_from(u128::from(hardware) * HELD_PERCENT_BOOST / HELD_PERCENT).ok()?;
    Some((fastest.max(of_boost), HELD_PERCENT))
}

fn limited(context: &Context<'_>, policies: &[FrequencyPolicy]) -> Option<Draft> {
    let turbo_off = context.host.power.turbo.get() == Some(false);
    let held = |policy: &&FrequencyPolicy| {
        let most = policy.max_khz.get().zip(reach(policy, policies));
        most.is_some_and(|(allowed, (reach, share))| {
            // Without turbo the base frequency is the maximum; that is another finding.
            let by_turbo = turbo_off && policy.base_khz.get().is_some_and(|base| allowed >= base);
            u128::from(allowed) * 100 < u128::from(reach) * share && !by_turbo
        })
    };
    let held: Vec<&FrequencyPolicy> = policies.iter().filter(held).collect();
    let first = held.first()?;
    let (allowed, (hardware, _)) = (first.max_khz.get()?, reach(first, policies)?);
    Some(finding(
        severity(context),
        format!(
            "{} of {} cpufreq policies are limited to {allowed} kHz of {hardware} kHz: raise scaling_max_freq",
            held.len(),
            policies.len()
        ),
        held.iter()
            .flat_map(|policy| {
                let files = [
                    ("scaling_max_freq", policy.max_khz.get()),
                    ("cpuinfo_max_freq", policy.hardware_max_khz.get()),
                    (
                        "scaling_available_frequencies",
                        policy.available_max_khz.get(),
                    ),
                ];
                files
                    .into_iter()
                    .filter_map(|(file, khz)| Some(fact(policy, file, format!("{} kHz", khz?))))
            })
            .collect(),
        Vec::new(),
    ))
}

/// Documentation/admin-guide/pm/intel_pstate.rst, `max_perf_pct`: a limit of all CPUs beside `scaling_max_freq`.
fn capped(context: &Context<'_>) -> Option<Draft> {
    let percent = *if_read(&context.host.power.pstate_max_percent)?;
    (u128::from(percent) < HELD_PERCENT).then(|| {
        let path = format!("{FOLDER}/intel_pstate/max_perf_pct");
        finding(
            severity(context),
            format!(
                "intel_pstate limits all CPUs to {percent} % of their highest performance: set max_perf_pct to 100"
            ),
            vec![Evidence::new("max_perf_pct", format!("{percent} %"), path)],
            Vec::new(),
        )
    })
}

fn throttled(context: &Context<'_>, watch: &Watch) -> Option<Draft> {
    let seconds = watch.span_ns.as_secs_f64();
    let often = watch.below("cpu/").any(|(key, by, _)| {
        key.contains("/throttle/") && real(by) > THROTTLED_PER_SECOND * seconds
    });
    let grew: Vec<Evidence> = watch
        .below("cpu/")
        .filter(|(key, by, _)| key.contains("/throttle/") && *by > 0)
        .map(|(key, by, counter)| {
            let value = format!("+{by} in {}", watch.span_ns);
            Evidence::new(
                format!("throttling events, cpu/{key}"),
                value,
                &*counter.path,
            )
        })
        .collect();
    (!grew.is_empty()).then(|| {
        let summary = format!(
            "{} thermal throttling counters grew in {}: check cooling and power limits",
            grew.len(),
            watch.span_ns
        );
        let severity = if often {
            Severity::Warn
        } else {
            severity(context)
        };
        finding(severity, summary, grew, Vec::new())
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding, remedies, silent};
    use super::*;
    use crate::build;
    use crate::known::{Cause, Known};

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("40 % of intel_pstate", || {
                let host = build::host().with(|host| {
                    host.power.pstate_max_percent = Known::Value(40);
                });
                World::of(host.build())
            }),
            ("powersave of acpi-cpufreq", || {
                World::of(with(|p| set(p, "acpi-cpufreq", "powersave", "performance")))
            }),
            ("told to save energy", || {
                World::of(with(|p| {
                    set(p, "intel_pstate", "powersave", "balance_power");
                }))
            }),
            ("no turbo", || {
                let mut host = with(|_| {});
                host.power.turbo = Known::Value(false);
                World::of(host)
            }),
            ("held below what it could do", || {
                World::of(with(|p| p.max_khz = Known::Value(2_000_000)))
            }),
            ("52 % of the boost frequency under acpi-cpufreq", || {
                World::of(with(|p| {
                    set(p, "acpi-cpufreq", "schedutil", "");
                    p.max_khz = Known::Value(1_768_000);
                    p.hardware_max_khz = Known::Value(3_400_000);
                    p.base_khz = Known::unknown(Cause::Absent, "base_frequency", "no such file");
                }))
            }),
            ("a P-state below the highest", || {
                World::of(with(|p| {
                    set(p, "acpi-cpufreq", "schedutil", "");
                    p.max_khz = Known::Value(2_000_000);
                    p.hardware_max_khz = Known::Value(3_400_000);
                    p.available_max_khz = Known::Value(2_250_000);
                }))
            }),
            ("throttled by heat", || {
                World::of(with(|_| {})).watched(|w| w.grew("cpu/0/throttle/core", 7))
            }),
        ],
        silent: &[
            ("powersave of intel_pstate", || {
                World::of(with(|p| {
                    set(p, "intel_pstate", "powersave", "balance_performance");
                }))
            }),
            (
                "the highest P-state of acpi-cpufreq, with boost above it",
                || {
                    World::of(with(|p| {
                        set(p, "acpi-cpufreq", "schedutil", "");
                        p.max_khz = Known::Value(2_250_000);
                        p.hardware_max_khz = Known::Value(3_400_000);
                        p.available_max_khz = Known::Value(2_250_000);
                    }))
                },
            ),
            ("the same where the P-states are not known", || {
                World::of(with(|p| {
                    set(p, "acpi-cpufreq", "schedutil", "");
                    p.max_khz = Known::Value(2_250_000);
                    p.hardware_max_khz = Known::Value(3_400_000);
                    p.base_khz = Known::unknown(Cause::Absent, "base_frequency", "no such file");
                }))
            }),
            (
                "boost is off, and has nothing above the nominal performance",
                || {
                    let mut host = with(|p| {
                        set(p, "acpi-cpufreq", "schedutil", "");
                        (p.highest_perf, p.nominal_perf) = (Known::Value(255), Known::Value(255));
                    });
                    host.power.turbo = Known::Value(false);
                    World::of(host)
                },
            ),
            ("schedutil", || {
                World::of(with(|p| set(p, "acpi-cpufreq", "schedutil", "")))
            }),
            ("a guest without frequencies", || {
                World::of(unknown(Cause::Absent))
            }),
        ],
        undetermined: &[("not read", || World::of(unknown(Cause::NotAsked)))],
    };

    fn with(change: impl FnOnce(&mut FrequencyPolicy)) -> Host {
        let mut host = build::host().nic("eth2", |nic| nic.gbit(100)).build();
        if let Known::Value(policies) = &mut host.power.frequency {
            change(&mut policies[0]);
        }
        host
    }

    fn set(policy: &mut FrequencyPolicy, driver: &str, governor: &str, preference: &str) {
        policy.driver = Known::Value(driver.to_owned());
        policy.governor = Known::Value(governor.to_owned());
        policy.energy_preference = Known::Value(preference.to_owned());
    }

    fn unknown(cause: Cause) -> Host {
        let mut host = with(|_| {});
        host.power.frequency = Known::unknown(cause, FOLDER, "no such folder");
        host.power.turbo = Known::unknown(cause, "boost", "no such file");
        host
    }

    #[test]
    fn the_governor_is_named_with_its_driver_and_changed() {
        let host = with(|p| set(p, "acpi-cpufreq", "powersave", "performance"));
        let said = finding(ID, &context(&host));
        assert_eq!(said.severity, Severity::Warn);
        assert_eq!(
            remedies(&said),
            ["cpu/policy0/governor: powersave -> performance"]
        );
        assert_eq!(
            said.evidence[0].path,
            format!("{FOLDER}/cpufreq/policy0/scaling_governor")
        );
    }

    #[test]
    fn a_policy_of_an_old_kernel_is_named_by_its_cpu_and_not_changed() {
        let host = with(|p| {
            set(p, "acpi-cpufreq", "powersave", "");
            p.number = Known::unknown(Cause::Absent, "cpu0/cpufreq", "no number");
            p.cpus = Known::Value("2-3".parse().expect("a list"));
        });
        let said = finding(ID, &context(&host));
        assert_eq!(remedies(&said), [""; 0]);
        assert_eq!(
            said.evidence[0].path,
            "/sys/devices/system/cpu/cpu2/cpufreq/scaling_governor"
        );
    }

    #[test]
    fn a_laptop_is_only_noted() {
        let mut host = with(|p| set(p, "intel_pstate", "powersave", "balance_power"));
        host.nics[0].link_bit_per_s = Known::Value(super::super::facts::gbit(1));
        assert_eq!(finding(ID, &context(&host)).severity, Severity::Note);
    }

    #[test]
    fn without_turbo_the_base_frequency_is_no_second_finding() {
        let mut host = with(|p| p.max_khz = Known::Value(3_000_000));
        host.power.turbo = Known::Value(false);
        let said = finding(ID, &context(&host));
        assert!(said.summary.starts_with("turbo"), "{}", said.summary);
        host.power.turbo = Known::Value(true);
        assert!(!silent(ID, &context(&host)));
    }
}
