//! `fec-health`: FEC is off, near its limit, or had uncorrectable errors. Modes and counters from
//! `ETHTOOL_MSG_FEC_GET` (Documentation/networking/ethtool-netlink.rst) and mlx5 counters.rst; rates by
//! [`crate::ber`].

use super::judged::{Growth, Judged, ethtool, growth, judge_each, offered, runs_at, speed};
use super::{ALWAYS, Draft, nics, subject, watched};
use crate::ber::{self, ErrorRate, Limits};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::Nic;
use crate::setting::Class;
use crate::watch::Watch;

pub(super) const RULE: Rule = Rule {
    id: "fec-health",
    number: 38,
    status: Status::InPart("the FEC modes of the two ends are not compared"),
    title: "FEC is off, near its limit, or had uncorrectable errors",
    severity: Severity::Crit,
    stage: Stage::Errors,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts, Basis::Counters],
    threshold: "any uncorrectable block (crit); pre-FEC BER above 1e-6 (note) or 1e-5 (warn), ten times that \
                on lanes of 50 Gb/s and more; no FEC at 200 Gb/s and more (warn), at 25 Gb/s and more (note)",
    effect: "each uncorrectable block loses frames, and each lost frame slows its connection; no figure",
    source: "Documentation/networking/ethtool-netlink.rst (FEC_GET); \
             Documentation/networking/device_drivers/ethernet/mellanox/mlx5/counters.rst",
    fix: Fix::Advised(&[Class::R3]),
    persist: "a systemd unit that runs `ethtool --set-fec` on both ends at boot; or the cable",
    contested: None,
    page: include_str!("../../../../docs/rules/fec-health.md"),
    check,
};

/// From these speeds, in Gb/s, links usually have FEC, and the standard requires it.
const USUAL_FROM: u64 = 25;
const NEEDED_FROM: u64 = 200;

/// Uncorrectable blocks.
const LOST: [&str; 2] = ["fec/uncorrectable", "driver/rx_pcs_symbol_err_phy"];
/// Corrected bits; blocks are a lower bound of them.
const MENDED: [&str; 3] = [
    "fec/corrected-bits",
    "driver/rx_corrected_bits_phy",
    "fec/corrected",
];

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let mut said = judge_each(rule, context, |nic| check_nic(context, nic));
    let corrects = |nic: &Nic| nic.kind.has_wire() && is_on(nic);
    if context.watch.is_none() && nics(context).into_iter().any(corrects) {
        said.extend(watched(rule, context).err().into_iter().flatten());
    }
    said
}

fn is_on(nic: &Nic) -> bool {
    let active = nic.wire.fec.value().and_then(|fec| fec.active.value());
    active.is_some_and(|mode| !is_none(mode))
}

fn is_none(mode: &str) -> bool {
    mode.eq_ignore_ascii_case("none") || mode.eq_ignore_ascii_case("off")
}

fn check_nic(context: &Context<'_>, nic: &Nic) -> Judged {
    if !nic.kind.has_wire() {
        return Ok(None);
    }
    if let Some(watch) = context.watch
        && let Some(said) = errors(nic, watch)?
    {
        return Ok(Some(said));
    }
    if !runs_at(nic, USUAL_FROM)? {
        return Ok(None);
    }
    let Some(fec) = offered(&nic.wire.fec)? else {
        return Ok(None);
    };
    // 40 Gb/s has no FEC of its own; without a link none is active.
    let has_none = fec.active.value().is_some_and(|mode| is_none(mode));
    let is_40 = runs_at(nic, 40)? && !runs_at(nic, 41)?;
    if !has_none || is_40 {
        return Ok(None);
    }
    let needed = runs_at(nic, NEEDED_FROM)?;
    let mut evidence: Vec<Evidence> = speed(nic).into_iter().collect();
    evidence.push(Evidence::new("active FEC", "none", ethtool(nic, "fec")));
    let (severity, advice) = if needed {
        (
            Severity::Warn,
            "the standard requires it: set the same mode on both ends",
        )
    } else {
        (
            Severity::Note,
            "some optics and short cables need none; watch the error counters",
        )
    };
    Ok(Some(Draft {
        severity,
        subject: subject(nic),
        summary: format!("{} runs without FEC: {advice}", nic.name),
        evidence,
        remedies: Vec::new(),
    }))
}

/// The result of the counters.
fn errors(nic: &Nic, watch: &Watch) -> Judged {
    let (lost, mended) = (growth(watch, nic, &LOST), growth(watch, nic, &MENDED));
    let Some(link) = nic.link_bit_per_s.get() else {
        return Ok(None);
    };
    let lanes = nic.wire.modes.value().and_then(|modes| modes.lanes.get());
    let limits = ber::limits(link, lanes);
    let rate = |count: u64| ber::error_rate(count, link, watch.span_ns);
    // Uncorrectable errors also count as errors before correction.
    let before = rate(mended.most().saturating_add(lost.most()));
    let after = rate(lost.most());
    let severity = match before {
        _ if lost.most() > 0 => Severity::Crit,
        Some(before) if before.lower > limits.warn => Severity::Warn,
        Some(before) if before.lower > limits.note => Severity::Note,
        _ if is_on(nic) => {
            lost.quiet()?;
            return Ok(None);
        }
        _ => return Ok(None),
    };
    let rates = (before.as_ref(), after.as_ref());
    Ok(Some(Draft {
        severity,
        subject: subject(nic),
        summary: words(nic, &lost, rates, limits),
        evidence: evidence(nic, &lost, &mended, rates),
        remedies: Vec::new(),
    }))
}

type Rates<'a> = (Option<&'a ErrorRate>, Option<&'a ErrorRate>);

fn words(nic: &Nic, lost: &Growth, (before, after): Rates<'_>, limits: Limits) -> String {
    let what = if lost.grew.is_empty() {
        let rate = before.and_then(|before| before.rate).unwrap_or_default();
        format!("pre-FEC bit error rate {rate:.1e} on {}", nic.name)
    } else {
        format!("uncorrectable errors on {} ({})", nic.name, lost.words())
    };
    format!("{what}. {}", ber::advice(before, after, limits))
}

fn evidence(
    nic: &Nic,
    lost: &Growth,
    mended: &Growth,
    (before, after): Rates<'_>,
) -> Vec<Evidence> {
    let mut evidence = lost.evidence();
    evidence.extend(mended.evidence());
    let path = format!("computed from these and the speed of {}", nic.name);
    for (what, rate) in [("before", before), ("after", after)] {
        evidence.extend(rate.map(|rate| {
            let what = format!("bit error rate {what} FEC, 95 % CI");
            Evidence::new(what, rate, path.clone())
        }));
    }
    let fec = nic.wire.fec.value().and_then(|fec| fec.active.value());
    evidence.extend(fec.map(|mode| Evidence::new("active FEC", mode, ethtool(nic, "fec"))));
    evidence
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding};
    use super::*;
    use crate::build;
    use crate::host::Host;
    use crate::known::{Cause, Known};

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("a block was lost", || {
                World::of(card(100, 4)).watched(|w| w.grew("nic/eth0/fec/uncorrectable", 1))
            }),
            ("many bits are mended", || {
                World::of(card(100, 4))
                    .watched(|w| w.grew("nic/eth0/fec/corrected-bits", 20_000_000))
            }),
            ("no correction at 400 Gb/s", || {
                World::of(without(400)).watched(|w| w)
            }),
        ],
        silent: &[
            ("nothing lost, little mended", || {
                World::of(card(100, 4)).watched(|w| w.grew("nic/eth0/fec/corrected-bits", 1_000))
            }),
            ("errors that lanes of four levels always have", || {
                World::of(card(100, 1))
                    .watched(|w| w.grew("nic/eth0/fec/corrected-bits", 5_000_000))
            }),
            ("40 Gb/s has none", || World::of(without(40))),
            ("a card without FEC", || {
                let mut host = card(100, 4);
                host.nics[0].wire.fec = Known::unknown(Cause::Absent, "fec", "none");
                World::of(host)
            }),
        ],
        undetermined: &[
            ("counters not watched", || World::of(card(100, 4))),
            ("the mode not asked for", || {
                let mut host = card(100, 4);
                host.nics[0].wire.fec = Known::not_asked("netlink/ethtool/eth0/fec");
                World::of(host)
            }),
            ("the counters may not be read", || {
                World::of(card(100, 4))
                    .watched(|w| w.denied("nic/eth0/fec").without("nic/eth0/driver"))
            }),
        ],
    };

    fn card(gbit: u64, lanes: u32) -> Host {
        let mut host = build::host().nic("eth0", |nic| nic.gbit(gbit)).build();
        if let Known::Value(modes) = &mut host.nics[0].wire.modes {
            modes.lanes = Known::Value(lanes);
        }
        host
    }

    fn without(gbit: u64) -> Host {
        let mut host = card(gbit, 4);
        if let Known::Value(fec) = &mut host.nics[0].wire.fec {
            fec.active = Known::Value("None".to_owned());
        }
        host
    }

    #[test]
    fn the_rates_before_and_after_correction_decide() {
        // 1e12 bits pass in ten seconds at 100 Gb/s.
        for (bits, severity) in [(2_000_000, Severity::Note), (20_000_000, Severity::Warn)] {
            let world = World::of(card(100, 4))
                .watched(|w| w.grew("nic/eth0/driver/rx_corrected_bits_phy", bits));
            let said = finding(RULE.id, &world.context());
            assert_eq!(said.severity, severity);
            let rate = |e: &&Evidence| e.what.starts_with("bit error rate");
            let rates: Vec<&str> = said
                .evidence
                .iter()
                .filter(rate)
                .map(|e| e.value.as_str())
                .collect();
            assert_eq!(rates.len(), 2);
            assert_eq!(rates[1], "below 3.0e-12 (no error seen)");
        }
        let world = World::of(card(100, 4)).watched(|w| w.grew("nic/eth0/fec/uncorrectable", 1));
        assert_eq!(finding(RULE.id, &world.context()).severity, Severity::Crit);
    }

    #[test]
    fn no_correction_is_a_note_where_some_links_need_none() {
        let world = World::of(without(100)).watched(|w| w);
        assert_eq!(finding(RULE.id, &world.context()).severity, Severity::Note);
    }
}
