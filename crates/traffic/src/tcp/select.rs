//! Connections chosen by the CPUs that the kernel receives them on (`SO_INCOMING_CPU`, socket(7)).
//!
//! Which queue, and so which CPU, a connection's packets arrive on is decided by the NIC's hash of its
//! ports, or by RPS: it cannot be requested, but it can be retried. The ends open
//! more connections than the trial needs, exchange the receive CPUs, and keep those that share
//! as few CPUs as possible:
//!
//! ```text
//! connecting end                      listening end
//!   (greeted and accepted on every candidate)
//!                               <--   OFFER, receive CPU    on every candidate
//!   KEEP, flow number           -->                         on those that were chosen
//!   DROP                        -->                         on the others, which both close
//! ```
//!
//! Each data thread then runs on the CPU that its (first) connection is received on. Where a device has
//! one queue and nothing steers, every connection arrives on that queue's CPU: there is no choice,
//! and all threads share it; RPS (`rps_cpus`) or more queues change that. Over loopback
//! and veth without steering the receive CPU is the one that the *sender* was on when it sent, here the
//! one that opened the connections: the choice then determines where threads run, not where packets arrive.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use linerate_model::ids::{CpuId, CpuSet};
use linerate_model::workload::TrialSpec;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::socket::{Woken, wait};
use super::{connections, info};
use crate::{Abort, TrafficError};

/// More than these beyond what is needed are not opened: the last draws add little, and files are few.
const SPARE_MAX: u32 = 1_024;

/// The receive CPU of a candidate, as the listening end has it.
const OFFER: u8 = 0x4F;
/// A candidate that becomes a flow.
const KEEP: u8 = 0x4B;
/// A candidate that was not chosen.
const DROP: u8 = 0x44;
/// Stands for a CPU that the kernel does not report.
const NOWHERE: u32 = u32::MAX;

/// A word and a number, big endian.
const WORD_BYTES: usize = 5;

/// A connection that became a flow of the trial.
#[derive(Debug)]
pub(super) struct SelectedConnection {
    pub(super) number: u32,
    pub(super) socket: OwnedFd,
    /// The CPU that its packets arrive on, if the trial is placed by it.
    pub(super) cpu: Option<CpuId>,
}

/// How many connections are opened for a trial of `spec`.
pub(super) fn candidates(spec: &TrialSpec) -> u32 {
    let needed = connections(spec);
    if spec.placement.by_receive_cpu {
        needed + (3 * needed + 16).min(SPARE_MAX)
    } else {
        needed
    }
}

/// The connecting end chooses among `sockets`, which the listening end has all accepted.
pub(super) fn ask(
    spec: &TrialSpec,
    sockets: Vec<OwnedFd>,
    deadline: Instant,
    abort: &Abort,
) -> Result<Vec<SelectedConnection>, TrafficError> {
    if !spec.placement.by_receive_cpu {
        return Ok(all_of(sockets));
    }
    let offers = hear(&sockets, deadline, abort)?;
    let mut arrivals = Vec::new();
    for (socket, offer) in sockets.iter().zip(offers) {
        let (OFFER, there) = offer else {
            return Err(TrafficError::Misunderstood { doing: CHOOSING });
        };
        arrivals.push((receive_cpu(socket), there));
    }
    let chosen = choose(&arrivals, connections(spec) as usize);
    let mut numbers: BTreeMap<usize, u32> = chosen.into_iter().zip(0u32..).collect();
    let mut kept = Vec::new();
    for (index, socket) in sockets.into_iter().enumerate() {
        let Some(number) = numbers.remove(&index) else {
            say(&socket, DROP, 0)?;
            continue;
        };
        say(&socket, KEEP, number)?;
        kept.push(SelectedConnection {
            number,
            socket,
            cpu: known(arrivals[index].0),
        });
    }
    kept.sort_by_key(|one| one.number);
    Ok(kept)
}

/// The listening end offers `sockets` and keeps what the other end chooses.
pub(super) fn answer(
    spec: &TrialSpec,
    sockets: Vec<OwnedFd>,
    deadline: Instant,
    abort: &Abort,
) -> Result<Vec<SelectedConnection>, TrafficError> {
    if !spec.placement.by_receive_cpu {
        return Ok(all_of(sockets));
    }
    let own: Vec<u32> = sockets.iter().map(receive_cpu).collect();
    for (socket, &cpu) in sockets.iter().zip(&own) {
        say(socket, OFFER, cpu)?;
    }
    let verdicts = hear(&sockets, deadline, abort)?;
    let nonsense = || TrafficError::Misunderstood { doing: CHOOSING };
    let needed = connections(spec);
    let mut kept = BTreeMap::new();
    for ((socket, cpu), verdict) in sockets.into_iter().zip(own).zip(verdicts) {
        let number = match verdict {
            (KEEP, number) if number < needed => number,
            (DROP, _) => continue,
            _ => return Err(nonsense()),
        };
        let cpu = known(cpu);
        let one = SelectedConnection {
            number,
            socket,
            cpu,
        };
        if kept.insert(number, one).is_some() {
            return Err(nonsense());
        }
    }
    if kept.len() < needed as usize {
        return Err(nonsense());
    }
    Ok(kept.into_values().collect())
}

const CHOOSING: &str = "choose connections by their receive CPU";

fn all_of(sockets: Vec<OwnedFd>) -> Vec<SelectedConnection> {
    let keep = |(number, socket)| SelectedConnection {
        number,
        socket,
        cpu: None,
    };
    (0u32..).zip(sockets).map(keep).collect()
}

fn receive_cpu(socket: &OwnedFd) -> u32 {
    info::incoming_cpu(socket)
        .get()
        .map_or(NOWHERE, |cpu| cpu.0)
}

fn known(cpu: u32) -> Option<CpuId> {
    Some(CpuId(cpu)).filter(|_| cpu <= CpuSet::CPU_MAX)
}

/// The send buffer of a connection that has moved next to nothing takes a word whole.
fn say(socket: &OwnedFd, word: u8, number: u32) -> Result<(), TrafficError> {
    let mut bytes = [word; WORD_BYTES];
    bytes[1..].copy_from_slice(&number.to_be_bytes());
    match send(socket, &bytes, SendFlags::NOSIGNAL) {
        Ok(WORD_BYTES) => Ok(()),
        Ok(_) => Err(TrafficError::of_errno(CHOOSING, Errno::AGAIN)),
        Err(errno) => Err(TrafficError::of_errno(CHOOSING, errno)),
    }
}

/// Waits until a word has come on each of `sockets`.
fn hear(
    sockets: &[OwnedFd],
    deadline: Instant,
    abort: &Abort,
) -> Result<Vec<(u8, u32)>, TrafficError> {
    let begun = Instant::now();
    let mut heard = vec![([0u8; WORD_BYTES], 0usize); sockets.len()];
    let mut silent: Vec<usize> = (0..sockets.len()).collect();
    let mut ready = Vec::new();
    while !silent.is_empty() {
        if Instant::now() >= deadline {
            let waited = begun.elapsed();
            return Err(TrafficError::StartTimeOut { waited });
        }
        let waited = silent
            .iter()
            .map(|&at| (sockets[at].as_fd(), PollFlags::IN));
        if wait(waited, deadline, abort, &mut ready)? == Woken::Aborted {
            return Err(TrafficError::Aborted);
        }
        let mut still_silent = Vec::new();
        for (at, has_news) in silent.into_iter().zip(&ready) {
            let (bytes, filled) = &mut heard[at];
            if *has_news {
                match recv(&sockets[at], &mut bytes[*filled..], RecvFlags::DONTWAIT) {
                    Ok((count, _)) if count > 0 => *filled += count,
                    Err(Errno::AGAIN | Errno::INTR) => {}
                    _ => {
                        let flow = u32::try_from(at).unwrap_or(u32::MAX);
                        let after = Duration::ZERO;
                        return Err(TrafficError::PeerClosed { flow, after });
                    }
                }
            }
            if *filled < WORD_BYTES {
                still_silent.push(at);
            }
        }
        silent = still_silent;
    }
    let read =
        |([word, number @ ..], _): ([u8; WORD_BYTES], usize)| (word, u32::from_be_bytes(number));
    Ok(heard.into_iter().map(read).collect())
}

/// Which of the connections, each given by its receive CPU at both ends, `wanted` flows shall be: as many
/// as possible that share no CPU at either end; what is still wanted then, again as many as possible that
/// share none among themselves, and so on. All of them when there are fewer.
fn choose(arrivals: &[(u32, u32)], wanted: usize) -> Vec<usize> {
    // Connections with the same two CPUs are as good as each other; the last comes first.
    let mut alike: BTreeMap<(u32, u32), Vec<usize>> = BTreeMap::new();
    for (index, &pair) in arrivals.iter().enumerate() {
        alike.entry(pair).or_default().push(index);
    }
    let mut chosen = Vec::new();
    while chosen.len() < wanted && !alike.is_empty() {
        for pair in matching(alike.keys().copied()) {
            if chosen.len() < wanted
                && let Some(same) = alike.get_mut(&pair)
            {
                chosen.extend(same.pop());
            }
        }
        alike.retain(|_, same| !same.is_empty());
    }
    chosen
}

/// A largest set of `pairs` no two of which share their first or their second part: a maximum matching of
/// the bipartite graph, by augmenting paths (Kuhn 1955).
fn matching(pairs: impl Iterator<Item = (u32, u32)>) -> Vec<(u32, u32)> {
    let mut ways: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (here, there) in pairs {
        ways.entry(here).or_default().push(there);
    }
    let mut taken: BTreeMap<u32, u32> = BTreeMap::new();
    for &here in ways.keys() {
        augment(here, &ways, &mut taken);
    }
    taken
        .into_iter()
        .map(|(there, here)| (here, there))
        .collect()
}

/// Finds a partner for `from`, moving others to another partner where they have one. Breadth first and
/// without recursion: there may be thousands of CPUs.
fn augment(from: u32, ways: &BTreeMap<u32, Vec<u32>>, taken: &mut BTreeMap<u32, u32>) {
    // From whom each partner was reached first.
    let mut reached: BTreeMap<u32, u32> = BTreeMap::new();
    let mut next = std::collections::VecDeque::from([from]);
    while let Some(here) = next.pop_front() {
        for &there in &ways[&here] {
            if reached.contains_key(&there) {
                continue;
            }
            reached.insert(there, here);
            if let Some(&other) = taken.get(&there) {
                next.push_back(other);
                continue;
            }
            // A free one: every connection on the way here moves on by one.
            let mut free = there;
            loop {
                let here = reached[&free];
                let left = taken.iter().find(|(_, taker)| **taker == here);
                let left = left.map(|(there, _)| *there);
                taken.insert(free, here);
                match left {
                    Some(there) => free = there,
                    None => return,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn disjoint(pairs: &[(u32, u32)]) -> bool {
        let here: BTreeSet<u32> = pairs.iter().map(|pair| pair.0).collect();
        let there: BTreeSet<u32> = pairs.iter().map(|pair| pair.1).collect();
        here.len() == pairs.len() && there.len() == pairs.len()
    }

    /// The size of the largest disjoint set, by trying every one.
    fn largest(pairs: &[(u32, u32)]) -> usize {
        (0u32..1 << pairs.len())
            .map(|set| {
                let of_set = (0..pairs.len()).filter(|bit| set >> bit & 1 == 1);
                of_set.map(|bit| pairs[bit]).collect::<Vec<_>>()
            })
            .filter(|set| disjoint(set))
            .map(|set| set.len())
            .max()
            .unwrap_or(0)
    }

    #[test]
    fn a_choice_that_greed_would_miss_is_found() {
        // Taking (0, 0) first would leave only one of the others.
        let arrivals = [(0, 0), (0, 1), (1, 0), (1, 0)];
        let chosen: Vec<_> = choose(&arrivals, 2)
            .into_iter()
            .map(|at| arrivals[at])
            .collect();
        assert!(disjoint(&chosen), "{chosen:?}");
    }

    #[test]
    fn one_queue_leaves_nothing_to_choose_and_still_gives_every_flow() {
        assert_eq!(choose(&[(3, 5); 20], 4).len(), 4);
    }

    #[test]
    fn what_must_share_cpus_shares_them_evenly() {
        let arrivals: Vec<_> = (0..40).map(|n| (n % 2, n / 2 % 2)).collect();
        let chosen = choose(&arrivals, 8);
        for end in [|pair: (u32, u32)| pair.0, |pair: (u32, u32)| pair.1] {
            let on_0 = chosen.iter().filter(|&&at| end(arrivals[at]) == 0).count();
            assert_eq!(on_0, 4);
        }
    }

    #[test]
    fn without_the_wish_no_connection_is_opened_in_vain() {
        let mut spec = TrialSpec {
            flows: 4,
            ..TrialSpec::default()
        };
        assert_eq!(candidates(&spec), 4);
        spec.placement.by_receive_cpu = true;
        assert_eq!(candidates(&spec), 32);
        spec.flows = TrialSpec::FLOWS_MAX;
        assert_eq!(candidates(&spec), TrialSpec::FLOWS_MAX + SPARE_MAX);
    }

    proptest! {
        #[test]
        fn as_many_as_possible_share_no_cpu(
            arrivals in proptest::collection::vec((0u32..5, 0u32..5), 0..11),
            wanted in 0usize..12,
        ) {
            let chosen = choose(&arrivals, wanted);
            let once: BTreeSet<_> = chosen.iter().collect();
            prop_assert_eq!(once.len(), chosen.len());
            prop_assert_eq!(chosen.len(), wanted.min(arrivals.len()));
            let first = largest(&arrivals).min(wanted);
            let pairs: Vec<_> = chosen[..first].iter().map(|&at| arrivals[at]).collect();
            prop_assert!(disjoint(&pairs), "{:?} of {:?}", pairs, arrivals);
        }
    }
}
