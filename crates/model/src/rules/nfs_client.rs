//! `nfs-client`: NFS is mounted over UDP, or its client retransmits calls. Facts and counters from nfs(5),
//! proc_pid_mounts(5), proc_pid_mountstats(5) and nfsstat(8).

use super::devices::{Notice, judged, or_unwatched, unknown};
use super::{ALWAYS, spreading};
use crate::finding::{Basis, Context, Evidence, Fix, Outcome, Rule, Severity, Stage, Status};
use crate::host::NfsMount;
use crate::known::Known;
use crate::setting::Class;
use crate::units::{Ratio, real};
use crate::watch::Watch;

pub(super) const RULE: Rule = Rule {
    id: "nfs-client",
    number: 106,
    status: Status::AdviceOnly,
    title: "NFS is mounted over UDP, or the NFS client retransmits calls",
    severity: Severity::Warn,
    stage: Stage::Errors,
    profiles: ALWAYS,
    judges_by: &[Basis::Facts, Basis::Counters],
    threshold: "an NFS mount with proto=udp; 10 or more retransmitted calls, and more than 1 % of the calls (warn)",
    effect: "UDP: silent data corruption is possible from 1 Gb/s on (nfs(5)); a retransmitted call waits for the timeout, \
             0.7 s by default over UDP and 60 s over TCP",
    source: "nfs(5), \"TRANSPORT METHODS\" and timeo=; nfsstat(8); thresholds of linerate",
    fix: Fix::Advised(&[Class::R4]),
    persist: "proto=tcp in the options of the mount in /etc/fstab or of its .mount unit",
    contested: None,
    page: include_str!("../../../../docs/rules/nfs-client.md"),
    check,
};

const RETRANSMITTED: Ratio = Ratio::new(0.01);
/// A few retransmissions are a server that was restarted.
const RETRANSMITTED_FROM: u64 = 10;

const MOUNTS: &str = "/proc/self/mounts";

fn check(rule: &Rule, context: &Context<'_>) -> Vec<Outcome> {
    let mounts = &context.host.software.nfs_mounts;
    let mut missing = Vec::from_iter(unknown(mounts));
    let all = match mounts {
        Known::Value(all) => all.as_slice(),
        Known::Unknown(_) => &[],
    };
    missing.extend(all.iter().filter_map(|mount| unknown(&mount.protocol)));
    let mut notices = Vec::from_iter(over_udp(all));
    if let Some(watch) = context.watch {
        let sent = retransmitted(watch, all);
        // Without a mount no client needs to count.
        missing.extend(
            sent.as_ref()
                .err()
                .filter(|gap| gap.leaves_a_question() || !all.is_empty())
                .cloned(),
        );
        notices.extend(sent.ok().flatten());
    }
    let said = judged(rule, context, "host".to_owned(), notices, missing);
    let applies = !all.is_empty();
    or_unwatched(rule, context, applies, Vec::from_iter(said))
}

fn over_udp(all: &[NfsMount]) -> Option<Notice> {
    let is_udp = |mount: &&NfsMount| {
        let protocol = mount.protocol.value();
        protocol.is_some_and(|protocol| protocol.starts_with("udp"))
    };
    let mounts: Vec<&NfsMount> = all.iter().filter(is_udp).collect();
    let first = mounts.first()?;
    let names: Vec<String> = mounts.iter().map(|mount| shown(&mount.name)).collect();
    let summary = format!(
        "NFS on {} uses UDP, which can corrupt data on a fast network (IP fragments are mixed up): mount it with \
         `-o proto=tcp`",
        spreading::few(&names)
    );
    let option = |name: &str, value: Option<String>| {
        let what = format!("{name} of {}", shown(&first.name));
        value.map(|value| Evidence::new(what, value, MOUNTS))
    };
    let evidence = [
        option("proto", first.protocol.value().cloned()),
        option("rsize", first.rsize.get().map(|size| size.to_string())),
        option("wsize", first.wsize.get().map(|size| size.to_string())),
    ];
    Some(Notice::new(Severity::Warn, summary).with(evidence.into_iter().flatten()))
}

/// A mount point, which may have any length.
fn shown(name: &str) -> String {
    const ROOM: usize = 32;
    match name.chars().count() {
        0..=ROOM => name.to_owned(),
        _ => name.chars().take(ROOM).chain("...".chars()).collect(),
    }
}

/// Retransmissions of the client, and of the mount with most of them.
fn retransmitted(watch: &Watch, mounts: &[NfsMount]) -> Result<Option<Notice>, crate::known::Gap> {
    let of = |key: &str| match watch.grown(key) {
        Known::Value(by) => Ok(by),
        Known::Unknown(gap) => Err(gap),
    };
    let (calls, again) = (of("nfs/calls")?, of("nfs/retransmits")?);
    let share = Ratio::new(real(again) / real(calls.max(1)));
    if again < RETRANSMITTED_FROM || share.as_f64() <= RETRANSMITTED.as_f64() {
        return Ok(None);
    }
    let worst = (0..mounts.len())
        .filter_map(|at| Some((at, of(&format!("nfs/mount/{at}/retransmits")).ok()?)))
        .filter(|(_, by)| *by > 0)
        .max_by_key(|(_, by)| *by);
    let place = worst.and_then(|(at, _)| mounts.get(at));
    let summary = format!(
        "the NFS client retransmitted {share} of its calls ({again} of {calls}){}: check the server and the path with \
         `nfsstat -rc` and `mountstats`",
        place.map_or_else(String::new, |mount| format!(
            ", most of them to {}",
            shown(&mount.name)
        ))
    );
    let mut evidence = vec![
        super::devices::growth(watch, "calls retransmitted", "nfs/retransmits", again),
        super::devices::growth(watch, "calls", "nfs/calls", calls),
    ];
    if let Some(((at, by), mount)) = worst.zip(place) {
        let what = format!("calls retransmitted to {}", shown(&mount.name));
        let key = format!("nfs/mount/{at}/retransmits");
        evidence.push(super::devices::growth(watch, &what, &key, by));
    }
    Ok(Some(Notice::new(Severity::Warn, summary).with(evidence)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::testing::{Cases, World, finding};
    use super::*;
    use crate::build::{self, WatchBuilder};
    use crate::host::Host;
    use crate::units::Bytes;

    const ID: &str = RULE.id;

    pub(crate) const CASES: Cases = Cases {
        fires: &[
            ("mounted over UDP", || World::of(client("udp"))),
            ("4 % of the calls retransmitted", || {
                World::of(client("tcp")).watched(|watch| counted(watch, 100_000, 4_000))
            }),
        ],
        silent: &[
            ("no NFS", || World::of(build::host().build())),
            ("mounted over TCP without retransmissions", || {
                World::of(client("tcp")).watched(|watch| counted(watch, 100_000, 3))
            }),
        ],
        undetermined: &[
            ("the mounts were not captured", || {
                let mut host = client("udp");
                host.software.nfs_mounts = Known::not_asked(MOUNTS);
                World::of(host)
            }),
            ("mounted over TCP, and not watched", || {
                World::of(client("tcp"))
            }),
            ("mounted over TCP, and not counted", || {
                World::of(client("tcp")).watched(|watch| watch)
            }),
        ],
    };

    fn counted(watch: WatchBuilder, calls: u64, again: u64) -> WatchBuilder {
        watch
            .grew("nfs/calls", calls)
            .grew("nfs/retransmits", again)
            .grew("nfs/mount/0/retransmits", again)
    }

    fn client(protocol: &str) -> Host {
        let mount = NfsMount {
            name: "/data".to_owned(),
            protocol: Known::Value(protocol.to_owned()),
            rsize: Known::Value(Bytes::new(4096)),
            wsize: Known::Value(Bytes::new(4096)),
        };
        build::host()
            .with(|host| host.software.nfs_mounts = Known::Value(vec![mount]))
            .build()
    }

    #[test]
    fn the_mount_with_the_retransmissions_is_named() {
        let said = finding(ID, &(CASES.fires[1].1)().context());
        assert!(
            said.summary.contains("4.0 % of its calls") && said.summary.contains("to /data"),
            "{}",
            said.summary
        );
        assert_eq!(said.severity, Severity::Warn);
    }

    #[test]
    fn retransmissions_are_found_also_where_the_mounts_were_not_captured() {
        let mut host = client("tcp");
        host.software.nfs_mounts = Known::not_asked(MOUNTS);
        let world = World::of(host).watched(|watch| counted(watch, 100_000, 4_000));
        let said = finding(ID, &world.context());
        assert!(!said.summary.contains("most of them"), "{}", said.summary);
    }
}
