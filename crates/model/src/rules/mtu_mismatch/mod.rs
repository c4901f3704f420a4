//! `mtu-mismatch`: MTUs along one path do not match. MTUs from `/sys/class/net/IFACE/mtu`; what tunnels
//! add from RFC 7348 (VXLAN), RFC 8926 (Geneve), RFC 2784 (GRE), RFC 2003 (IPIP).

mod subnet;

use subnet::share_a_subnet;

use super::judged::{Judged, growth, judge_each};
use super::{ALWAYS, Draft, remedy, subject};
use crate::finding::{
    Basis, Context, Evidence, Fix, Outcome, Remedy, Rule, Severity, Stage, Status,
};
use crate::host::{Nic, NicKind};
use crate::known::Gap;
use crate::setting::{Class, NicKnob, SettingKey, Value};

pub(super) const RULE: Rule = Rule {
    id: "mtu-mismatch",
    number: 33,
    status: Status::Implemented,
    title: "MTUs along one path do not match",
    severity: Severity::Crit,
    stage: Stage::Errors,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts, Basis::Counters],
    threshold: "an MTU above what the lower interface carries, a port that differs from its bond, two ends of \
                one subnet that differ, or received frames longer than the MTU (crit); a port that differs \
                from its bridge (warn)",
    effect: "frames that are too long are dropped silently, or every packet is fragmented",
    source: "RFC 7348; RFC 8926; Documentation/networking/bonding.rst; \
             Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst",
    fix: Fix::Proposed(&[Class::R3]),
    persist: "a systemd .network or .link file (MTUBytes=) or nmcli 802-3-ethernet.mtu",
    contested: None,
    page: include_str!("../../../../../docs/rules/mtu-mismatch.md"),
    check,
};

/// Counters of received frames above this end's MTU.
const TOO_LONG: [&str; 3] = [
    "driver/rx_oversize_pkts_phy",
    "driver/rx_oversize_pkts_sw_drop",
    "mac/FrameTooLongErrors",
];

/// A pair of MTUs that does not match.
struct Misfit {
    severity: Severity,
    words: String,
    evidence: Vec<Evidence>,
    remedy: Option<Remedy>,
}

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    judge_each(rule, context, |nic| check_nic(context, nic))
}

fn check_nic(context: &Context<'_>, nic: &Nic) -> Judged {
    let mut misfits = stacked(context, nic)?;
    // With one interface selected, its upper interfaces matter too.
    if context.nic.is_some() {
        for upper in context
            .host
            .nics
            .iter()
            .filter(|own| own.lower().contains(&nic.name))
        {
            misfits.extend(stacked(context, upper)?);
        }
    }
    misfits.extend(far_end(context, nic));
    misfits.extend(too_long(context, nic));
    let Some(severity) = misfits.iter().map(|misfit| misfit.severity).max() else {
        return Ok(None);
    };
    let worst = misfits.iter().find(|misfit| misfit.severity == severity);
    let words = worst.map_or("", |misfit| misfit.words.as_str());
    let summary = match misfits.len() {
        0 | 1 => words.to_owned(),
        all => format!("{words} (and {} more)", all - 1),
    };
    let mut evidence: Vec<Evidence> = Vec::new();
    for seen in misfits.iter().flat_map(|misfit| &misfit.evidence) {
        if !evidence.contains(seen) {
            evidence.push(seen.clone());
        }
    }
    Ok(Some(Draft {
        severity,
        subject: subject(nic),
        summary,
        evidence,
        remedies: misfits
            .into_iter()
            .filter_map(|misfit| misfit.remedy)
            .collect(),
    }))
}

/// The mismatches between `nic` and its lower interfaces.
fn stacked(context: &Context<'_>, nic: &Nic) -> Result<Vec<Misfit>, Gap> {
    let named = |name: &crate::ids::NicName| context.host.nic(name);
    let up = |own: &&Nic| own.operstate.value().is_none_or(|state| state != "down");
    let lower: Vec<&Nic> = nic.lower().iter().filter_map(named).filter(up).collect();
    match nic.kind {
        NicKind::Vlan | NicKind::Macvlan => above(context, nic, &lower, 0),
        NicKind::Tunnel | NicKind::Other => {
            let tunnel = nic.stack.tunnel.as_ref();
            // Its own link if it has one, otherwise its known lower interfaces.
            let link = tunnel.and_then(|tunnel| tunnel.link.value());
            let below = link.or(nic.lower().first()).and_then(named);
            match (overhead(nic), below) {
                (Some(more), Some(below)) => above(context, nic, &[below], more),
                _ => Ok(Vec::new()),
            }
        }
        NicKind::Bond | NicKind::Team => ports(context, nic, &lower, Severity::Crit),
        NicKind::Bridge => ports(context, nic, &lower, Severity::Warn),
        _ => Ok(Vec::new()),
    }
}

/// The tunnel's overhead per packet, bytes, if its kind is known. A [`NicKind::Tunnel`] without a kind is a VXLAN or
/// Geneve.
fn overhead(nic: &Nic) -> Option<u32> {
    let tunnel = nic.stack.tunnel.as_ref();
    let kind = tunnel.and_then(|tunnel| tunnel.kind.value());
    let over_ipv4 = match kind.map(String::as_str) {
        Some("vxlan" | "geneve") => 50,
        Some("gretap") => 38,
        Some("gre") => 24,
        Some("ipip" | "sit") => 20,
        None if nic.kind == NicKind::Tunnel => 50,
        _ => return None,
    };
    let ends = tunnel.map(|tunnel| [tunnel.local.value(), tunnel.remote.value()]);
    let ends = ends.into_iter().flatten().flatten();
    let over_ipv6 = ends.into_iter().any(|end| end.contains(':'));
    Some(if over_ipv6 { over_ipv4 + 20 } else { over_ipv4 })
}

/// `nic` sends packets of its MTU plus `more` bytes through `lower`.
fn above(context: &Context<'_>, nic: &Nic, lower: &[&Nic], more: u32) -> Result<Vec<Misfit>, Gap> {
    let mut misfits = Vec::new();
    for below in lower {
        let (own, carries) = (mtu(nic)?, mtu(below)?);
        if own.saturating_add(more) <= carries {
            continue;
        }
        let to = carries.saturating_sub(more);
        let with = if more == 0 {
            String::new()
        } else {
            format!(" plus {more} bytes of tunnel headers")
        };
        misfits.push(Misfit {
            severity: Severity::Crit,
            words: format!(
                "MTU {own} of {}{with} exceeds {carries} of {}: set it to {to}",
                nic.name, below.name
            ),
            evidence: vec![said(nic, own), said(below, carries)],
            remedy: change(context, nic, to),
        });
    }
    Ok(misfits)
}

/// A bond's ports must have its MTU; a bridge's ports must be equal to each other and not below its MTU.
fn ports(
    context: &Context<'_>,
    nic: &Nic,
    ports: &[&Nic],
    severity: Severity,
) -> Result<Vec<Misfit>, Gap> {
    let mut least: Option<(&Nic, u32)> = None;
    let mut most = mtu(nic)?;
    for port in ports {
        let own = mtu(port)?;
        if nic.kind == NicKind::Bridge {
            most = most.max(own);
        }
        if least.is_none_or(|(_, least)| own < least) {
            least = Some((*port, own));
        }
    }
    let Some((port, least)) = least else {
        return Ok(Vec::new());
    };
    let differs = match nic.kind {
        NicKind::Bridge => least < most,
        _ => ports.iter().any(|port| port.mtu.get() != Some(most)),
    };
    if !differs {
        return Ok(Vec::new());
    }
    let mut evidence = vec![said(nic, mtu(nic)?)];
    evidence.extend(
        ports
            .iter()
            .filter_map(|port| Some(said(port, port.mtu.get()?))),
    );
    if nic.kind == NicKind::Bridge {
        return Ok(vec![Misfit {
            severity,
            words: format!(
                "{} bridges MTUs {least} ({}) and {most}, and drops frames above {least}: make them equal",
                nic.name, port.name
            ),
            evidence,
            remedy: None,
        }]);
    }
    let wrong = ports.iter().filter(|port| port.mtu.get() != Some(most));
    Ok(wrong
        .map(|port| Misfit {
            severity,
            words: format!(
                "{} has MTU {} in {}, which has MTU {most}: set it to {most}",
                port.name,
                port.mtu.get().unwrap_or_default(),
                nic.name
            ),
            evidence: evidence.clone(),
            remedy: change(context, port, most),
        })
        .collect())
}

/// An interface of the peer in the same subnet with another MTU.
fn far_end(context: &Context<'_>, nic: &Nic) -> Option<Misfit> {
    let own = nic.mtu.get()?;
    let other = context.other?;
    let stays_inside = |host: &crate::host::Host, nic: &Nic| {
        // A bridge of containers or guests often has the same subnet on many hosts, without a connection between
        // them.
        let leads_out = |name| host.nic(name).is_some_and(|port| port.kind.has_wire());
        nic.kind == NicKind::Bridge && !nic.lower().iter().any(leads_out)
    };
    let far = other.nics.iter().find(|far| {
        far.kind != NicKind::Loopback
            && far.operstate.value().is_none_or(|state| state != "down")
            && far.mtu.get().is_some_and(|mtu| mtu != own)
            && share_a_subnet(nic, far)
            && !stays_inside(context.host, nic)
            && !stays_inside(other, far)
    })?;
    let theirs = far.mtu.get()?;
    let fits = nic.stack.mtu_max.get().is_none_or(|most| theirs <= most);
    let mut evidence = vec![said(nic, own)];
    evidence.push(Evidence::new(
        format!("MTU of {} at the other end", far.name),
        format!("{theirs} bytes"),
        format!("/sys/class/net/{}/mtu", far.name),
    ));
    Some(Misfit {
        severity: Severity::Crit,
        words: format!(
            "{} has MTU {own}, {} in the same subnet on the remote end {theirs}: set both to the same value, \
             raising the smaller one",
            nic.name, far.name
        ),
        evidence,
        remedy: (own < theirs && fits)
            .then(|| change(context, nic, theirs))
            .flatten(),
    })
}

/// Received frames above this end's MTU, if the counters were read.
fn too_long(context: &Context<'_>, nic: &Nic) -> Option<Misfit> {
    let watch = context.watch.filter(|_| nic.kind.has_wire())?;
    let seen = growth(watch, nic, &TOO_LONG);
    (!seen.grew.is_empty()).then(|| Misfit {
        severity: Severity::Crit,
        words: format!(
            "{} receives frames longer than its MTU ({}), so the sender's MTU is larger: raise this one",
            nic.name,
            seen.words()
        ),
        evidence: seen.evidence(),
        remedy: None,
    })
}

fn mtu(nic: &Nic) -> Result<u32, Gap> {
    nic.mtu.ok().copied().map_err(Clone::clone)
}

fn said(nic: &Nic, mtu: u32) -> Evidence {
    Evidence::new(
        format!("MTU of {}", nic.name),
        format!("{mtu} bytes"),
        format!("/sys/class/net/{}/mtu", nic.name),
    )
}

fn change(context: &Context<'_>, nic: &Nic, to: u32) -> Option<Remedy> {
    let key = SettingKey::Nic(nic.name.clone(), NicKnob::Mtu);
    remedy(context, key, Value::Integer(u64::from(to)))
}

#[cfg(test)]
pub(super) mod tests;
