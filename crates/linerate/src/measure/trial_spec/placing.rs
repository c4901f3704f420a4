//! Where a measurement runs: from the placement words of the command line, and what both ends' maps allow.

use std::net::SocketAddr;

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::Host;
use linerate_model::path::PathView;
use linerate_model::workload::{
    DeviceChoice, Direction, MemoryPolicy, Placement, TrialSpec, Verbs, Workload,
};
use linerate_runtime::cli::place_word::{MemoryWhere, Where};
use linerate_runtime::cli::{Placing, TrialArgs};
use linerate_runtime::endpoint::place::{self, Site, allowed_here};

/// A trial of `spec` with its threads and their places, as the arguments request and both maps allow.
pub(crate) fn placed(
    args: &TrialArgs,
    mut spec: TrialSpec,
    path: PathView<'_>,
) -> Outcome<TrialSpec> {
    let by_receive_cpu = matches!(args.place, Some(Placing::At(Where::ByReceiveCpu)))
        || args.place_remote == Some(Where::ByReceiveCpu);
    if !by_receive_cpu {
        let remote = path.remote.online_cpus().len();
        share_threads(&mut spec, allowed_here().len().max(remote));
    }
    spec.placement = placement(args, &spec, path)?;
    Ok(spec)
}

/// Unless the arguments set them: a thread for each flow, up to the CPUs of the end that has more.
fn share_threads(spec: &mut TrialSpec, cpus: usize) {
    let can_share = match spec.workload {
        Workload::Stream(_) | Workload::Rr(_) | Workload::Pingpong(_) | Workload::Udp(_) => true,
        // Pairs of a thread take turns, and `http` has its own default.
        _ => false,
    };
    if can_share && spec.verbs.is_none() && spec.threads.is_none() {
        let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
        let threads = spec.flows.min(cpus).clamp(1, TrialSpec::THREADS_MAX);
        spec.threads = Some(threads);
    }
}

fn placement<'a>(args: &TrialArgs, spec: &TrialSpec, path: PathView<'a>) -> Outcome<Placement> {
    let here = match &args.place {
        Some(Placing::At(place)) => place.clone(),
        Some(Placing::Roles(..)) | None => Where::Free,
    };
    let there = args.place_remote.clone().unwrap_or_else(|| here.clone());
    let memory = |given: &Option<MemoryWhere>| given.clone().unwrap_or_default();
    let memory_here = memory(&args.memory);
    let memory_there = memory(if args.memory_remote.is_some() {
        &args.memory_remote
    } else {
        &args.memory
    });
    let allowed = allowed_here();
    let device = |host: &'a Host, nic, choice: fn(&Verbs) -> &DeviceChoice| {
        let choice = spec.verbs.as_ref().map(choice)?;
        host.rdma_port(nic, choice).map(|(device, _)| device)
    };
    let local = Site {
        host: path.local,
        nic: path.local_nic,
        rdma: device(path.local, path.local_nic, |verbs| &verbs.local),
        allowed: Some(&allowed),
        cpus: &here,
        memory: &memory_here,
        threads: spec.threads(),
    };
    let remote = Site {
        host: path.remote,
        nic: path.remote_nic,
        rdma: device(path.remote, path.remote_nic, |verbs| &verbs.remote),
        allowed: None,
        cpus: &there,
        memory: &memory_there,
        threads: spec.threads_remote(),
    };
    let mut placed = place::placement(spec.direction, &local, &remote)?;
    if spec.verbs.is_some() && args.memory.is_none() && args.memory_remote.is_none() {
        (placed.sender_memory, placed.receiver_memory) =
            memory_of_devices(spec.direction, &local, &remote);
    }
    Ok(match &args.place {
        Some(Placing::Roles(sender_cpus, receiver_cpus)) => Placement {
            sender_cpus: sender_cpus.clone(),
            receiver_cpus: receiver_cpus.clone(),
            ..placed
        },
        _ => placed,
    })
}

/// The senders' and the receivers' memory on the nodes of the devices. Both at one end share one policy: where
/// the two ends' nodes differ, there is none for them.
fn memory_of_devices(
    direction: Direction,
    local: &Site<'_>,
    remote: &Site<'_>,
) -> (MemoryPolicy, MemoryPolicy) {
    let (here, there) = (local.memory_of_device(), remote.memory_of_device());
    match direction {
        Direction::Forward => (here, there),
        Direction::Reverse => (there, here),
        Direction::Bidirectional if here == there => (here, there),
        Direction::Bidirectional => Default::default(),
    }
}

/// What is asked of an end that is not ours cannot be done there.
fn refuse_remote(trial: &TrialArgs) -> Outcome<()> {
    if trial.place_remote.is_some()
        || trial.memory_remote.is_some()
        || trial.threads_remote.is_some()
        || trial.wait_remote.is_some()
    {
        return Err(Stop::new(
            Code::Usage,
            "the remote end is not linerate: its threads and memory cannot be set from here",
        ));
    }
    Ok(())
}

/// The placement of this end's threads and buffers with a foreign remote end.
pub(crate) fn placement_alone(
    trial: &TrialArgs,
    spec: &TrialSpec,
    far: SocketAddr,
) -> Outcome<Placement> {
    refuse_remote(trial)?;
    if trial.place.is_none() && trial.memory.is_none() {
        return Ok(Placement::default());
    }
    let host = linerate_runtime::endpoint::host_source::host_from(None)?;
    let nic = linerate_runtime::endpoint::trial::outgoing_nic(&host, far.ip())?;
    let (here, free) = match &trial.place {
        Some(Placing::At(Where::ByReceiveCpu)) => {
            return Err(Stop::new(
                Code::Usage,
                "`by-rx-cpu` needs linerate on both ends",
            ));
        }
        Some(Placing::At(place)) => (place.clone(), Where::Free),
        Some(Placing::Roles(..)) | None => (Where::Free, Where::Free),
    };
    let memory = trial.memory.clone().unwrap_or_default();
    let (no_memory, allowed) = (MemoryWhere::default(), allowed_here());
    let site = |cpus, memory| Site {
        host: &host,
        nic: &nic,
        rdma: None,
        allowed: Some(&allowed),
        cpus,
        memory,
        threads: spec.threads(),
    };
    let placed = place::placement(
        spec.direction,
        &site(&here, &memory),
        &site(&free, &no_memory),
    )?;
    Ok(match &trial.place {
        Some(Placing::Roles(sender_cpus, receiver_cpus)) => Placement {
            sender_cpus: sender_cpus.clone(),
            receiver_cpus: receiver_cpus.clone(),
            ..placed
        },
        _ => placed,
    })
}

#[cfg(test)]
mod tests {
    use linerate_model::units::Bytes;
    use linerate_model::workload::Transfer;

    use super::*;

    fn threads(spec: TrialSpec, cpus: usize) -> Option<u32> {
        let mut spec = spec;
        share_threads(&mut spec, cpus);
        spec.threads
    }

    #[test]
    fn flows_beyond_the_cpus_share_threads_unless_the_arguments_set_them() {
        let flows = |flows| TrialSpec {
            flows,
            ..TrialSpec::default()
        };
        assert_eq!(threads(flows(1), 8), Some(1));
        assert_eq!(threads(flows(8), 8), Some(8));
        assert_eq!(threads(flows(4_000), 8), Some(8));
        let asked = TrialSpec {
            threads: Some(3),
            ..flows(4_000)
        };
        assert_eq!(threads(asked, 8), Some(3));
        let pairs = TrialSpec {
            workload: Workload::Transfer(Transfer {
                bytes: Bytes::new(8),
                repetitions: None,
                data_check: false,
            }),
            ..flows(64)
        };
        assert_eq!(threads(pairs, 2), None);
    }
}
