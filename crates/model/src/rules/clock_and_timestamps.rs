//! `clock-and-timestamps`: slow clocksource, or no hardware receive timestamps.
//! Documentation/timers/timekeeping.rst; Documentation/networking/timestamping.rst.

use super::facts::{answer, answer_one, need};
use super::{ALWAYS, Draft, each_nic, remedy, subject};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Profile, Rule, Severity, Stage, Status,
};
use crate::host::{Nic, NicKind};
use crate::setting::{Class, MachineKnob, SettingKey, Value};

pub(super) const RULE: Rule = Rule {
    id: "clock-and-timestamps",
    number: 54,
    status: Status::Implemented,
    title: "slow clocksource, or no hardware receive timestamps",
    severity: Severity::Warn,
    stage: Stage::Saturation,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts],
    threshold: "clocksource hpet, acpi_pm, pit or jiffies; role measurement: also a NIC without hardware \
                receive timestamps",
    effect: "each read of hpet or acpi_pm accesses a device instead of a CPU register, several times per \
             packet; measure it",
    source: "Documentation/timers/timekeeping.rst; Documentation/networking/ethtool-netlink.rst \
             (TSINFO_GET)",
    fix: Fix::Proposed(&[Class::R1]),
    persist: "clocksource=tsc on the kernel command line, if the kernel considers the TSC stable",
    contested: None,
    page: include_str!("../../../../docs/rules/clock-and-timestamps.md"),
    check,
};

const SLOW: [&str; 5] = ["hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies"];
/// Clocksources that are read without leaving the processor, in order of preference.
const QUICK: [&str; 3] = ["tsc", "kvm-clock", "arch_sys_counter"];
const FOLDER: &str = "/sys/devices/system/clocksource/clocksource0";

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let mut missing = Vec::new();
    let clock = need(&context.host.kernel.clocksource, &mut missing);
    let said = clock.and_then(|clock| slow(context, clock));
    let mut outcomes = answer(rule, context, "host", said, missing);
    if context.profile == Profile::Measurement {
        outcomes.extend(each_nic(rule, context, |nic| stamps(rule, context, nic)));
    }
    outcomes
}

fn slow(context: &Context<'_>, clock: &str) -> Option<Draft> {
    if !SLOW.contains(&clock) {
        return None;
    }
    let available = context.host.kernel.clocksources.value();
    let offers = |name: &&&str| available.is_some_and(|all| all.iter().any(|own| own == **name));
    let quick = QUICK.iter().find(offers);
    let mut evidence = vec![Evidence::new(
        "clocksource",
        clock,
        format!("{FOLDER}/current_clocksource"),
    )];
    evidence.extend(available.map(|all| {
        let path = format!("{FOLDER}/available_clocksource");
        Evidence::new("available clocksources", all.join(" "), path)
    }));
    let key = SettingKey::Machine(MachineKnob::Clocksource);
    let advice = match quick {
        Some(quick) => format!("use {quick}"),
        None => "search the kernel log for `Marking clocksource 'tsc' as unstable`".to_owned(),
    };
    Some(Draft {
        severity: Severity::Warn,
        subject: "host".to_owned(),
        summary: format!("clocksource {clock} is slow to read, several times per packet: {advice}"),
        evidence,
        remedies: quick
            .and_then(|quick| remedy(context, key, Value::Text((*quick).to_owned())))
            .into_iter()
            .collect(),
    })
}

fn stamps(rule: &Rule, context: &Context<'_>, nic: &Nic) -> Option<Outcome> {
    if nic.kind != NicKind::Physical {
        return None;
    }
    let mut missing = Vec::new();
    let said = need(&nic.wire.timestamping, &mut missing).and_then(|stamps| {
        let hardware = stamps.capabilities.iter().any(|one| one == "hardware-receive");
        (!hardware).then(|| Draft {
            severity: Severity::Note,
            subject: subject(nic),
            summary: format!(
                "{} has no hardware receive timestamps, so packet times include interrupt and CPU delay",
                nic.name
            ),
            evidence: vec![Evidence::new(
                "timestamping",
                format!("[{}]", stamps.capabilities.join(" ")),
                format!("ETHTOOL_MSG_TSINFO_GET {}", nic.name),
            )],
            remedies: Vec::new(),
        })
    });
    answer_one(rule, context, subject(nic), said, missing)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding, remedies};
    use super::*;
    use crate::build;
    use crate::host::Host;
    use crate::known::{Cause, Known};

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("hpet", || World::of(host("hpet"))),
            ("a card without stamps on a host that measures", || {
                let mut host = build::host().nic("eth2", |nic| nic).build();
                if let Known::Value(stamps) = &mut host.nics[0].wire.timestamping {
                    stamps.capabilities = vec!["software-receive".to_owned()];
                }
                World::of(host).profile(Profile::Measurement)
            }),
        ],
        silent: &[
            ("tsc", || World::of(host("tsc"))),
            ("a guest's clock", || World::of(host("kvm-clock"))),
            ("Arm", || World::of(host("arch_sys_counter"))),
            ("POWER", || World::of(host("timebase"))),
        ],
        undetermined: &[("not read", || {
            let mut host = host("tsc");
            let path = "current_clocksource";
            host.kernel.clocksource = Known::unknown(Cause::Unreadable, path, "not text");
            World::of(host)
        })],
    };

    fn host(clock: &str) -> Host {
        let mut host = build::host().build();
        host.kernel.clocksource = Known::Value(clock.to_owned());
        host
    }

    #[test]
    fn the_quick_clock_is_proposed_where_the_kernel_offers_it() {
        let mut host = host("hpet");
        let said = finding(ID, &context(&host));
        assert_eq!(remedies(&said), ["cpu/clocksource: hpet -> tsc"]);
        host.kernel.clocksources = Known::Value(vec!["hpet".to_owned(), "acpi_pm".to_owned()]);
        let said = finding(ID, &context(&host));
        assert!(said.remedies.is_empty());
        assert!(said.summary.contains("unstable"), "{}", said.summary);
    }
}
