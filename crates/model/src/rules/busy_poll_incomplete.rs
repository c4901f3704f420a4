//! `busy-poll-incomplete`: busy polling is partially configured, or configured with only empty polls. Sources:
//! Documentation/admin-guide/sysctl/net.rst (`busy_read`, `busy_poll`) and Documentation/networking/napi.rst.

use super::spreading::needed;
use super::{ALWAYS, Draft, found, remedy, undetermined};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Profile, Rule, Severity, Stage, Status,
};
use crate::known::{Cause, Gap, Known};
use crate::setting::{Class, SettingKey, Value};

pub(super) const RULE: Rule = Rule {
    id: "busy-poll-incomplete",
    number: 19,
    status: Status::InPart(
        "`irq-suspend-timeout` is not checked: which program uses it cannot be read",
    ),
    title: "busy polling is partially configured, or configured and never finds a packet",
    severity: Severity::Note,
    stage: Stage::Tuning,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts, Basis::Counters],
    threshold: "net.core.busy_poll above 0 with net.core.busy_read 0; role latency: also both above 0 while \
                BusyPollRxPackets does not grow",
    effect: "only sockets with SO_BUSY_POLL are polled until both are set; no general figure",
    source: "Documentation/networking/napi.rst (busy polling); \
             Documentation/admin-guide/sysctl/net.rst (busy_poll, busy_read); amzn-drivers, \
             ENA_Linux_Best_Practices.rst",
    fix: Fix::Proposed(&[Class::R1]),
    persist: "the program's own SO_BUSY_POLL; or sysctl.d",
    contested: None,
    page: include_str!("../../../../docs/rules/busy-poll-incomplete.md"),
    check,
};

const POLL: &str = "net.core.busy_poll";
const READ: &str = "net.core.busy_read";
const POLLED: &str = "netstat/TcpExt/BusyPollRxPackets";

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let (poll, read) = match (number(context, POLL), number(context, READ)) {
        (Known::Value(poll), Known::Value(read)) => (poll, read),
        (Known::Value(0), _) => return Vec::new(),
        // A kernel without busy polling, or a namespace without this sysctl.
        (Known::Unknown(gap), _) | (_, Known::Unknown(gap)) => {
            return match needed(&gap) {
                Some(gap) => vec![undetermined(rule, context, "host".to_owned(), vec![gap])],
                None => Vec::new(),
            };
        }
    };
    let mut evidence = vec![
        Evidence::new(POLL, format!("{poll} us"), "/proc/sys/net/core/busy_poll"),
        Evidence::new(READ, format!("{read} us"), "/proc/sys/net/core/busy_read"),
    ];
    let summary = match (poll, read) {
        (0, _) => return Vec::new(),
        (_, 0) => format!(
            "{POLL} is {poll} us but {READ} is 0, so only sockets with SO_BUSY_POLL are polled: set both or \
             neither"
        ),
        _ => {
            let watch = context
                .watch
                .filter(|_| context.profile == Profile::Latency);
            let Some(0) = watch.and_then(|watch| watch.grown(POLLED).get()) else {
                return Vec::new();
            };
            let path = watch.map(|watch| watch.path(POLLED)).unwrap_or_default();
            evidence.push(Evidence::new("packets found by busy polling", 0, path));
            "busy polling is on but found no packet while watched, so it may only burn CPU time: measure it"
                .to_owned()
        }
    };
    let remedies = if read == 0 {
        let key = SettingKey::Sysctl(READ.to_owned());
        remedy(context, key, Value::Text(poll.to_string()))
    } else {
        None
    };
    let said = Draft {
        severity: Severity::Note,
        subject: "host".to_owned(),
        summary,
        evidence,
        remedies: remedies.into_iter().collect(),
    };
    vec![found(rule, context, said)]
}

fn number(context: &Context<'_>, name: &str) -> Known<u64> {
    context.host.sysctl(name).and_then(|text| {
        text.trim().parse().map_or_else(
            |_| {
                let path = format!("/proc/sys/{}", name.replace('.', "/"));
                Known::Unknown(Gap::new(Cause::Unreadable, path, "not a number"))
            },
            Known::Value,
        )
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, context, finding, remedies, silent};
    use super::*;
    use crate::build;
    use crate::host::Host;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("poll without read", || World::of(host("50", "0"))),
            ("both, and nothing is found", || {
                World::of(host("50", "50"))
                    .profile(Profile::Latency)
                    .watched(|watch| watch)
            }),
        ],
        silent: &[
            ("off", || World::of(host("0", "0"))),
            ("both", || World::of(host("50", "50"))),
            ("both, and packets are found", || {
                World::of(host("50", "50"))
                    .profile(Profile::Latency)
                    .watched(|watch| watch.grew(POLLED, 7))
            }),
        ],
        undetermined: &[("the sysctl was not read", || {
            let mut host = host("50", "0");
            host.sysctls.remove(READ);
            World::of(host)
        })],
    };

    fn host(poll: &str, read: &str) -> Host {
        build::host().sysctl(POLL, poll).sysctl(READ, read).build()
    }

    #[test]
    fn the_other_half_is_proposed() {
        let said = finding(ID, &context(&host("50", "0")));
        assert_eq!(said.severity, Severity::Note);
        assert_eq!(remedies(&said), ["sysctl/net.core.busy_read: 0 -> 50"]);
        let absent = build::host().without_sysctl(POLL).without_sysctl(READ);
        assert!(silent(ID, &context(&absent.build())));
    }
}
