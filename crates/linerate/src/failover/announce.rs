//! What will happen, before it does: the probes, the duration, and a management path that the failure may take.

use std::net::ToSocketAddrs;

use linerate_analysis::text::words::{count, seconds_in_words};
use linerate_model::peer_address::PeerAddress;
use linerate_model::units::Nanoseconds;
use linerate_model::workload::TrialSpec;
use linerate_runtime::cli::FailoverArgs;
use linerate_runtime::console::say::Say;
use linerate_runtime::endpoint::trial::{PeerPath, source_towards};

use super::step_of;

/// Says what will happen, and how long it takes.
pub(super) fn announce(
    args: &FailoverArgs,
    path: &PeerPath,
    spec: &TrialSpec,
    repeats: u32,
    say: &Say,
) {
    let total = Nanoseconds::new(args.time.as_u64().saturating_mul(repeats.into()));
    let step = step_of(spec);
    let length = match repeats {
        u32::MAX if args.until_event => format!(
            "in trials of {} until one shows an interruption (between two trials nothing is sent)",
            seconds_in_words(args.time)
        ),
        _ if args.until_event => format!(
            "in at most {} of {} until one shows an interruption (between two trials nothing is sent)",
            count(repeats as usize, "trial"),
            seconds_in_words(args.time)
        ),
        1 => format!("for {}", seconds_in_words(args.time)),
        _ => format!(
            "{} of {}, {} in all",
            count(repeats as usize, "trial"),
            seconds_in_words(args.time),
            seconds_in_words(total)
        ),
    };
    let cause = args.cause.as_ref().or(args.cause_remote.as_ref());
    let restore = args.restore.as_ref().or(args.restore_remote.as_ref());
    let restore = match (cause, restore) {
        (Some(_), None) => "; without --restore the failure is not ended",
        (Some(_), Some(_)) => "; Ctrl-C runs --restore and ends early",
        _ => "; Ctrl-C ends early",
    };
    say.note(&format!(
        "probing {} to {} ({}) in both directions, {} with a packet every {step}, {length}{restore}",
        path.local_nic,
        path.address,
        args.peer.peer,
        count(spec.flows as usize, "flow"),
    ));
}

/// Warns of connections that use the interface of the probes: a failure of the path may take them.
pub(super) fn warn_of_management_path(args: &FailoverArgs, path: &PeerPath, say: &Say) {
    let nic = &path.local_nic;
    if control_address(&args.peer.peer).is_some_and(|source| {
        let own = path.local.nic_with_address(&source);
        own.is_some_and(|own| own.name == *nic)
    }) {
        say.note(&format!(
            "warning: the control connection to {} uses {nic}, too: if a failure takes it for more than about 15 s, the peer's \
             record is fetched after the trial; to avoid that, name the peer by another address, and this one by `--address {}`",
            args.peer.peer, path.address
        ));
    }
    if path.endpoint.way_in().contains(nic) {
        say.note(&format!(
            "warning: your own ssh connection uses {nic}, too, and may end with the failure: start linerate under tmux or nohup"
        ));
    }
}

/// The address of this host that the control connection is from; none if it does not cross a network.
fn control_address(peer: &PeerAddress) -> Option<String> {
    let resolved = match peer {
        PeerAddress::Ssh { destination, .. } => {
            let host = destination.rsplit('@').next()?;
            (host, 0).to_socket_addrs().ok()?.next()?
        }
        PeerAddress::Tls { at, .. } => {
            (at.host.as_str(), at.port).to_socket_addrs().ok()?.next()?
        }
        _ => return None,
    };
    Some(source_towards(resolved.ip()).ok()?.to_string())
}
