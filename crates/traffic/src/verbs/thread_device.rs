//! The verbs resources of a data thread: its device, its completion queue, and a `VerbsFlow` for each of its flows.

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::Instant;

use linerate_model::ids::NodeId;
use linerate_model::known::Known;
use linerate_model::sample::VerbsRecord;
use linerate_model::units::Bytes;
use linerate_model::workload::{DeviceChoice, Service, Verbs};
use linerate_verbs::{
    Access, AddressHandle, CompletionQueue, Connection, GidEntry, ProtectionDomain, QueuePair,
    QueuePairNeeds, Region, Remote, Status, To,
};
use rustix::io::Errno;

use super::choose::{Chosen, choose};
use super::{Taker, connect, spins, verbs_of};
use crate::TrafficError;
use crate::buffer::Buffer;
use crate::sys::{Mapping, node_of};
use crate::tcp::words::{WORDS_MAX, local_of};
use crate::tcp::{Side, role};
use crate::trial::{DataThread, ThreadFlow};

/// Bytes before a received datagram: its route header (InfiniBand Architecture Specification, 11.4.1.2).
pub(crate) const ROUTE_HEADER: usize = 40;

/// What a workload needs from each of its lanes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needs {
    /// Bytes of its memory.
    pub(crate) memory: usize,
    /// Requests of the sending side in flight.
    pub(crate) sends: u32,
    /// Requests of the receiving side.
    pub(crate) receives: u32,
    /// The largest message that is sent inline; the device may support less.
    pub(crate) inline: u32,
    /// How the remote end accesses the memory.
    pub(crate) access: Access,
}

impl Needs {
    /// Work requests of `flows` lanes that may complete at once: what their completion queue must hold.
    fn completions(self, flows: u32) -> u32 {
        let of_one = self.sends.saturating_add(self.receives);
        of_one.saturating_mul(flows).max(1)
    }
}

/// A thread's device and completion queue.
#[derive(Debug)]
pub(crate) struct ThreadDevice<'a> {
    pub(crate) taker: Taker<'a>,
    /// The longest message of the port.
    pub(crate) message_max: usize,
    pub(crate) has_atomics: bool,
    /// Whether a message without a posted receive ends the connection.
    pub(crate) is_iwarp: bool,
    device_name: String,
}

/// A flow's queue pair and its memory.
#[derive(Debug)]
pub(crate) struct VerbsFlow<'a> {
    pub(crate) one: ThreadFlow<'a>,
    pub(crate) pair: QueuePair,
    pub(crate) region: Region<Mapping>,
    /// The remote end's memory ...
    pub(crate) far: Remote,
    /// ... and its length.
    pub(crate) far_bytes: u64,
    /// The destination of datagrams.
    handle: Option<(AddressHandle, u32, u32)>,
    /// The path MTU.
    pub(crate) mtu: u32,
    record: VerbsRecord,
    _connection: Option<Connection>,
}

/// Which end of its connections a data thread is at.
pub(super) fn side_of(data_thread: &DataThread<'_>) -> Side {
    let first = data_thread.flows.first().map_or(0, |one| one.flow.number);
    if role(data_thread.spec, Side::Connecting, first) == data_thread.role {
        Side::Connecting
    } else {
        Side::Listening
    }
}

fn choice_of(verbs: &Verbs, side: Side) -> &DeviceChoice {
    match side {
        Side::Connecting => &verbs.local,
        Side::Listening => &verbs.remote,
    }
}

/// This end's address of the thread's first connection.
fn address_of(data_thread: &DataThread<'_>) -> Result<IpAddr, TrafficError> {
    let Some(first) = data_thread.flows.first() else {
        return Err(TrafficError::NotBuilt);
    };
    Ok(local_of(&first.flow.socket)?.ip().to_canonical())
}

/// A queue pair whose path is not known yet.
pub(super) struct Fresh<'a> {
    pub(super) one: ThreadFlow<'a>,
    pub(super) pair: QueuePair,
    pub(super) region: Region<Mapping>,
    pub(super) access: Access,
}

/// A queue pair's path, once it is connected.
pub(super) struct ConnectedPath {
    pub(super) far: Remote,
    pub(super) far_bytes: u64,
    pub(super) mtu: u32,
    /// This end's GID, if it uses one.
    pub(super) gid: Option<GidEntry>,
    pub(super) handle: Option<(AddressHandle, u32, u32)>,
    pub(super) connection: Option<Connection>,
}

impl<'a> ThreadDevice<'a> {
    /// Chooses the device, creates and connects a queue pair for each flow of the data thread. The remote end must do the
    /// same meanwhile.
    pub(crate) fn open(
        data_thread: &DataThread<'a>,
        needs: Needs,
    ) -> Result<(Self, Vec<VerbsFlow<'a>>), TrafficError> {
        Self::open_for(data_thread, &data_thread.flows, needs)
    }

    /// The same for some of its flows, of which there is one at least.
    pub(crate) fn open_for(
        data_thread: &DataThread<'a>,
        flows: &[ThreadFlow<'a>],
        needs: Needs,
    ) -> Result<(Self, Vec<VerbsFlow<'a>>), TrafficError> {
        let verbs = verbs_of(data_thread.spec)?;
        let deadline = Instant::now() + WORDS_MAX;
        let side = side_of(data_thread);
        let chosen = choose(choice_of(verbs, side), address_of(data_thread)?)?;
        let count = u32::try_from(flows.len()).unwrap_or(u32::MAX);
        check_needs(&chosen, verbs, needs, count)?;
        let spins = spins(data_thread.spec)?;
        let queue = CompletionQueue::new(&chosen.device, needs.completions(count), !spins)?;
        let domain = ProtectionDomain::new(&chosen.device)?;
        let fresh = (flows.iter())
            .map(|&one| fresh(data_thread, &domain, &queue, one, needs))
            .collect::<Result<Vec<_>, _>>()?;
        let ways = connect::connect(data_thread, side, &chosen, &domain, &fresh, deadline)?;
        let lanes = (fresh.into_iter().zip(ways))
            .map(|(fresh, way)| lane(&chosen, fresh, way))
            .collect();
        let companion = flows[0].flow.socket.as_fd();
        let device_name = chosen.device.name().to_owned();
        let is_iwarp = chosen.device.is_iwarp();
        let device = (chosen.device, chosen.port_number);
        let taker = Taker::new(queue, device, data_thread.shared_state, companion, spins);
        Ok((
            Self {
                taker,
                message_max: usize::try_from(chosen.port.message_max).unwrap_or(usize::MAX),
                has_atomics: chosen.attributes.atomics,
                is_iwarp,
                device_name,
            },
            lanes,
        ))
    }

    /// A request that failed on the lane of `flow`.
    pub(crate) fn failed(&self, doing: &'static str, flow: u32, status: Status) -> TrafficError {
        TrafficError::WorkRequest {
            doing,
            flow,
            device: self.device_name.clone(),
            status,
        }
    }

    /// A request that could not be posted.
    pub(crate) fn refused(&self, (_, errno): (usize, Errno)) -> TrafficError {
        TrafficError::Post {
            device: self.device_name.clone(),
            errno,
        }
    }
}

/// What the device cannot provide for the `flows` of a thread is reported before anything is created.
fn check_needs(
    chosen: &Chosen,
    verbs: &Verbs,
    needs: Needs,
    flows: u32,
) -> Result<(), TrafficError> {
    check_iwarp(chosen, verbs)?;
    let most = chosen.attributes.queue_depth_max;
    let wanted = needs.sends.max(needs.receives);
    if wanted > most {
        return Err(TrafficError::not_supported(
            format!("keep {wanted} work requests in flight"),
            format!("a queue pair of {} holds {most}", chosen.device.name()),
        ));
    }
    // A smaller one overflows when a failure ends all of them at once.
    let most = chosen.attributes.completions_max;
    let wanted = needs.completions(flows);
    if wanted > most {
        return Err(TrafficError::not_supported(
            format!(
                "create a completion queue for {wanted} work requests ({} to send and {} to receive, on each of \
                 {flows} flows of a thread)",
                needs.sends, needs.receives
            ),
            format!(
                "one of {} holds {most}; use a smaller depth, fewer flows, or more threads",
                chosen.device.name()
            ),
        ));
    }
    if let Some(mtu) = verbs.mtu.filter(|mtu| *mtu > chosen.port.mtu) {
        return Err(TrafficError::not_supported(
            format!("use a path MTU of {mtu} bytes"),
            format!(
                "port {} of {} has {} (the MTU of its interface, less the headers)",
                chosen.port_number,
                chosen.device.name(),
                chosen.port.mtu
            ),
        ));
    }
    Ok(())
}

/// iWARP is RDMA over TCP: it lacks the features of InfiniBand's packets.
fn check_iwarp(chosen: &Chosen, verbs: &Verbs) -> Result<(), TrafficError> {
    if !chosen.device.is_iwarp() {
        return Ok(());
    }
    let chosen_gid = verbs.local.gid_index.or(verbs.remote.gid_index);
    let wanted = if verbs.service == Service::Ud {
        "send datagrams (`--service ud`)".to_owned()
    } else if let Some(mtu) = verbs.mtu {
        format!("use a path MTU of {mtu} bytes (`--mtu`)")
    } else if verbs.service_level > 0 {
        format!("use service level {} (`--sl`)", verbs.service_level)
    } else if let Some(n) = verbs.ack_timeout {
        format!("wait 4.096 us x 2^{n} for an acknowledgement (`--ack-timeout`)")
    } else if let Some(index) = chosen_gid {
        format!("use GID {index} (`--gid-index`)")
    } else {
        return Ok(());
    };
    Err(TrafficError::not_supported(
        wanted,
        format!(
            "{} is an iWARP device, which runs over TCP and has none; omit the option",
            chosen.device.name()
        ),
    ))
}

fn fresh<'a>(
    data_thread: &DataThread<'_>,
    domain: &ProtectionDomain,
    queue: &CompletionQueue,
    one: ThreadFlow<'a>,
    needs: Needs,
) -> Result<Fresh<'a>, TrafficError> {
    let verbs = verbs_of(data_thread.spec)?;
    let registration = verbs.memory;
    let buffer = if registration.huge_pages {
        Buffer::of_huge_pages(needs.memory, data_thread.memory())?
    } else {
        Buffer::new(Bytes::new(needs.memory as u64), data_thread.memory())?
    };
    let is_iwarp = domain.device().is_iwarp();
    // With iWARP a read follows what was written, and the data of a read is written with the key of this end's
    // memory.
    let remote_read = needs.access.remote_read || (needs.access.remote_write && is_iwarp);
    let access = Access {
        remote_read,
        remote_write: needs.access.remote_write || (remote_read && is_iwarp),
        on_demand: registration.on_demand,
        huge_pages: registration.huge_pages && registration.on_demand,
        relaxed_ordering: registration.relaxed_ordering,
        ..needs.access
    };
    let region = Region::new(domain, buffer.into_mapping(), access)?;
    let pair = QueuePair::new(
        domain,
        queue,
        QueuePairNeeds {
            datagrams: verbs.service == Service::Ud,
            sends: needs.sends,
            receives: needs.receives,
            inline: needs.inline,
        },
    )?;
    // The device may support less than what an end chooses by itself, but not than what was requested.
    if verbs.inline_bytes.is_some() && pair.inline() < needs.inline {
        return Err(TrafficError::not_supported(
            format!("send messages of {} bytes inline", needs.inline),
            format!(
                "{} supports {} bytes inline at a depth of {}",
                domain.device().name(),
                pair.inline(),
                needs.sends
            ),
        ));
    }
    Ok(Fresh {
        one,
        pair,
        region,
        access,
    })
}

fn lane<'a>(chosen: &Chosen, fresh: Fresh<'a>, way: ConnectedPath) -> VerbsFlow<'a> {
    let record = VerbsRecord {
        device: chosen.device.name().to_owned(),
        port: chosen.port_number,
        gid_index: way.gid.map(|entry| entry.index),
        gid: way.gid.map(|entry| entry.gid.to_string()),
        gid_kind: way.gid.map(|entry| entry.kind.to_string()),
        queue_pair: fresh.pair.number(),
        mtu: (!chosen.device.is_iwarp()).then_some(way.mtu),
        registered_bytes: Bytes::new(fresh.region.length() as u64),
        ..VerbsRecord::default()
    };
    VerbsFlow {
        one: fresh.one,
        pair: fresh.pair,
        region: fresh.region,
        far: way.far,
        far_bytes: way.far_bytes,
        handle: way.handle,
        mtu: way.mtu,
        record,
        _connection: way.connection,
    }
}

impl VerbsFlow<'_> {
    /// The destination of its datagrams, with this number; `None` for a reliable connection.
    pub(crate) fn to(&self, number: Option<u32>) -> Option<To<'_>> {
        let (handle, queue_pair, key) = self.handle.as_ref()?;
        Some(To {
            handle,
            queue_pair: *queue_pair,
            key: *key,
            number,
        })
    }

    /// The node of its memory.
    pub(crate) fn node(&self) -> Known<NodeId> {
        node_of(self.region.start())
    }

    /// What was chosen for it; the caller adds what its thread did.
    pub(crate) fn record(&self) -> VerbsRecord {
        self.record.clone()
    }
}
