//! `pmtu-blackhole`: path MTU black hole: packets too large for the path are dropped silently. This part
//! judges what the host's own TCP found (`TCPMTUPSuccess`, `TCPMTUPFail`, RFC 4821 as in
//! net/ipv4/tcp_timer.c and tcp_output.c); a probe of the path needs traffic.

use super::{ALWAYS, Draft, NOT_WATCHED, UNWATCHED, found, remedy, undetermined};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::known::{Cause, Gap, Known};
use crate::setting::{Class, SettingKey, Value};
use crate::units::real;
use crate::watch::Watch;

pub(super) const RULE: Rule = Rule {
    id: "pmtu-blackhole",
    number: 35,
    status: Status::InPart("checks counters; does not probe the path with DF packets"),
    title: "path MTU black hole: packets too large for the path are dropped silently",
    severity: Severity::Warn,
    stage: Stage::Errors,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts, Basis::Counters],
    threshold: "TCP probed the path MTU after suspecting a black hole (tcp_mtu_probing 1, warn); path MTU \
                discovery off (note)",
    effect: "connections that stall at the first full-size packet continue; no figure",
    source: "Documentation/networking/ip-sysctl.rst (tcp_mtu_probing, ip_no_pmtu_disc); RFC 4821",
    fix: Fix::Proposed(&[Class::R1]),
    persist: "/etc/sysctl.d (net.ipv4.tcp_mtu_probing)",
    contested: None,
    page: include_str!("../../../../docs/rules/pmtu-blackhole.md"),
    check,
};

const PROBING: &str = "net.ipv4.tcp_mtu_probing";
const NO_DISCOVERY: &str = "net.ipv4.ip_no_pmtu_disc";
/// Failed reassemblies per second from which senders fragment regularly.
const FRAGMENTS_PER_SECOND: f64 = 1.0;
const PROBES: [&str; 2] = ["TCPMTUPFail", "TCPMTUPSuccess"];

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let said = |said: Draft| vec![found(rule, context, said)];
    match judge(context) {
        Ok(Some(whole)) => said(whole),
        Ok(None) => Vec::new(),
        Err(gap) => vec![undetermined(rule, context, "host".to_owned(), vec![gap])],
    }
}

fn judge(context: &Context<'_>) -> Result<Option<Draft>, Gap> {
    if let Some(said) = discovery_off(context)? {
        return Ok(Some(said));
    }
    if let Some(said) = fragments_lost(context) {
        return Ok(Some(said));
    }
    // 0 never probes; 2 always does, so its counters increase in normal operation.
    if number(context, PROBING)? != Some(1) {
        return Ok(None);
    }
    let Some(watch) = context.watch else {
        return Err(Gap::new(Cause::NotAsked, UNWATCHED, NOT_WATCHED));
    };
    let grown = PROBES.map(|name| (name, watch.grown(&key(name))));
    if let [(_, Known::Unknown(gap)), (_, Known::Unknown(_))] = &grown {
        return Err(gap.clone());
    }
    let mut evidence: Vec<Evidence> = grown
        .iter()
        .filter_map(|(name, grown)| Some((name, grown.get().filter(|by| *by > 0)?)))
        .map(|(name, by)| seen(watch, name, by))
        .collect();
    if evidence.is_empty() {
        return Ok(None);
    }
    evidence.push(Evidence::new(PROBING, 1, crate::buffers::path(PROBING)));
    Ok(Some(Draft {
        severity: Severity::Warn,
        subject: "host".to_owned(),
        summary: "TCP suspected a path MTU black hole and probed: find what drops ICMP `too big`, or lower the \
                  MTU of the route"
            .to_owned(),
        evidence,
        remedies: Vec::new(),
    }))
}

/// Fragments that were never completed: each costs the whole datagram, and memory for `ipfrag_time`.
fn fragments_lost(context: &Context<'_>) -> Option<Draft> {
    let watch = context.watch?;
    let grown = |name: &str| watch.grown(&format!("snmp/Ip/{name}")).get().unwrap_or(0);
    let failed = grown("ReasmFails");
    if real(failed) <= FRAGMENTS_PER_SECOND * watch.span_ns.as_secs_f64() {
        return None;
    }
    let names = ["ReasmFails", "ReasmReqds", "ReasmOKs", "ReasmTimeout"];
    let evidence = names.iter().filter(|name| grown(name) > 0).map(|name| {
        let value = format!("+{} in {}", grown(name), watch.span_ns);
        Evidence::new(*name, value, watch.path(&format!("snmp/Ip/{name}")))
    });
    Some(Draft {
        severity: Severity::Warn,
        subject: "host".to_owned(),
        summary: format!(
            "reassembly of {failed} fragmented packets failed in {}: send datagrams that fit the path MTU, or find \
             where fragments are lost",
            watch.span_ns
        ),
        evidence: evidence.collect(),
        remedies: Vec::new(),
    })
}

fn key(name: &str) -> String {
    format!("netstat/TcpExt/{name}")
}

fn seen(watch: &Watch, name: &str, by: u64) -> Evidence {
    let value = format!("+{by} in {}", watch.span_ns);
    Evidence::new(name, value, watch.path(&key(name)))
}

/// 1 sends without the DF bit and ignores ICMP messages with a smaller MTU.
fn discovery_off(context: &Context<'_>) -> Result<Option<Draft>, Gap> {
    if number(context, NO_DISCOVERY)? != Some(1) {
        return Ok(None);
    }
    let key = SettingKey::Sysctl(NO_DISCOVERY.to_owned());
    Ok(Some(Draft {
        severity: Severity::Note,
        subject: "host".to_owned(),
        summary: format!("{NO_DISCOVERY} is 1, so routers fragment packets: set it to 0"),
        evidence: vec![Evidence::new(
            NO_DISCOVERY,
            1,
            crate::buffers::path(NO_DISCOVERY),
        )],
        remedies: remedy(context, key, Value::Text("0".to_owned()))
            .into_iter()
            .collect(),
    }))
}

/// A sysctl's number; `None` if this kernel does not have it.
fn number(context: &Context<'_>, name: &str) -> Result<Option<u32>, Gap> {
    match context.host.sysctl(name) {
        Known::Value(text) => Ok(text.trim().parse().ok()),
        Known::Unknown(gap) if !gap.leaves_a_question() => Ok(None),
        Known::Unknown(gap) => Err(gap),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding, remedies};
    use super::*;
    use crate::build;
    use crate::host::Host;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("TCP probes after a black hole", || {
                World::of(probing("1")).watched(|w| w.grew("netstat/TcpExt/TCPMTUPSuccess", 2))
            }),
            ("fragments are lost", || {
                World::of(probing("0")).watched(|w| w.grew("snmp/Ip/ReasmFails", 2_000))
            }),
            ("discovery off", || {
                World::of(build::host().sysctl(NO_DISCOVERY, "1").build())
            }),
        ],
        silent: &[
            ("no probing, as the kernel has it", || {
                World::of(probing("0"))
            }),
            ("it always probes", || {
                World::of(probing("2")).watched(|w| w.grew("netstat/TcpExt/TCPMTUPFail", 2))
            }),
            ("no black hole", || World::of(probing("1")).watched(|w| w)),
        ],
        undetermined: &[
            ("counters not watched", || World::of(probing("1"))),
            ("the sysctl not read", || {
                let mut host = probing("1");
                host.sysctls.remove(PROBING);
                World::of(host)
            }),
            ("the counters may not be read", || {
                World::of(probing("1")).watched(|w| w.denied("netstat"))
            }),
        ],
    };

    fn probing(how: &str) -> Host {
        build::host().sysctl(PROBING, how).build()
    }

    #[test]
    fn discovery_is_switched_on_again() {
        let world = World::of(build::host().sysctl(NO_DISCOVERY, "1").build());
        let said = finding(RULE.id, &world.context());
        assert_eq!(said.severity, Severity::Note);
        assert_eq!(remedies(&said), ["sysctl/net.ipv4.ip_no_pmtu_disc: 1 -> 0"]);
    }
}
