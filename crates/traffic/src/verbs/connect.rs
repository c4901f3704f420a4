//! How the two ends of queue pairs find each other: by messages over the companions, or by the
//! connection manager.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Instant;

use linerate_model::ports::PortRange;
use linerate_model::workload::{Connect, Service, Verbs};
use linerate_verbs::{
    AddressHandle, Attributes, Calling, Connection, Gid, Listener, Path, Patience,
    ProtectionDomain, Step, VerbsError,
};

use super::choose::Chosen;
use super::hello::{Hello, meet};
use super::thread_device::{ConnectedPath, Fresh};
use super::verbs_of;
use crate::TrafficError;
use crate::tcp::Side;
use crate::tcp::words::{local_of, peer_of, random, with_port};
use crate::trial::DataThread;

/// Packets are numbered by 24 bits.
const PACKET_NUMBERS: u32 = 0xFF_FFFF;

/// Connects all queue pairs of a thread.
pub(super) fn connect(
    data_thread: &DataThread<'_>,
    side: Side,
    chosen: &Chosen,
    domain: &ProtectionDomain,
    fresh: &[Fresh<'_>],
    deadline: Instant,
) -> Result<Vec<ConnectedPath>, TrafficError> {
    let verbs = verbs_of(data_thread.spec)?;
    let managed = verbs.connect == Connect::Cm || chosen.device.is_iwarp();
    if managed && verbs.service == Service::Ud {
        return Err(TrafficError::not_supported(
            "connect datagrams by the connection manager",
            "they need no connection; leave `--connect` out",
        ));
    }
    let listener = (managed && side == Side::Listening)
        .then(|| {
            let flow = fresh[0].one.flow;
            listen_within(local_of(&flow.socket)?, flow.ports)
        })
        .transpose()?;
    let own = (fresh.iter())
        .map(|one| hello(verbs, chosen, one, listener.as_ref()))
        .collect::<Result<Vec<_>, _>>()?;
    // First all send, then all receive: so little fits into the connections' buffers.
    for (one, hello) in fresh.iter().zip(&own) {
        hello.tell(&one.one)?;
    }
    let mut ways = Vec::with_capacity(fresh.len());
    for (one, own) in fresh.iter().zip(&own) {
        let theirs = Hello::await_from(&one.one, deadline, &data_thread.shared_state.abort)?;
        let mtu = own.mtu.min(theirs.mtu);
        let path = path(verbs, chosen, own, &theirs, mtu);
        check_gids(chosen, own, &theirs)?;
        let mut handle = None;
        let mut connection = None;
        let mut gid = chosen.gid;
        if managed {
            let patience = Patience {
                until: deadline,
                stop: data_thread.shared_state.abort.as_fd(),
            };
            let (made, index) = match &listener {
                Some(listener) => answer(listener, chosen, one, own, &path, patience)?,
                None => call(chosen, one, &theirs, verbs, &path, patience)?,
            };
            connection = Some(made);
            // The manager has chosen by its own rules (`default_roce_mode`).
            gid = (chosen.device.gids()?.into_iter())
                .find(|entry| entry.port == chosen.port_number && Some(entry.index) == index);
        } else {
            one.pair.initialize(path.port, one.access, own.key)?;
            one.pair.connect(&path)?;
            if verbs.service == Service::Ud {
                let way = AddressHandle::new(domain, &path)?;
                handle = Some((way, theirs.queue_pair, theirs.key));
            }
        }
        ways.push(ConnectedPath {
            far: theirs.memory,
            far_bytes: theirs.memory_bytes,
            mtu,
            gid,
            handle,
            connection,
        });
    }
    meet(data_thread, fresh, deadline)?;
    Ok(ways)
}

/// Listens at a free port; of `ports`, if there are such.
fn listen_within(local: SocketAddr, ports: Option<PortRange>) -> Result<Listener, TrafficError> {
    let Some(ports) = ports else {
        return Ok(Listener::new(with_port(local, 0))?);
    };
    let mut last = Err(TrafficError::PortsTaken { ports });
    for port in ports.all() {
        let made = Listener::new(with_port(local, port));
        if let Ok(made) = made {
            last = Ok(made);
            break;
        }
    }
    last
}

fn hello(
    verbs: &Verbs,
    chosen: &Chosen,
    one: &Fresh<'_>,
    listener: Option<&Listener>,
) -> Result<Hello, TrafficError> {
    let drawn = random()?;
    let low = u32::try_from(drawn & u64::from(PACKET_NUMBERS)).unwrap_or(0);
    let key = u32::try_from(drawn >> 33).unwrap_or(1);
    Ok(Hello {
        queue_pair: one.pair.number(),
        packet_number: low,
        // The highest bit would make it a key that only privileged programs may use.
        key,
        gid: chosen.gid.map_or(Gid::default(), |entry| entry.gid),
        lid: chosen.port.lid,
        mtu: verbs.mtu.unwrap_or(chosen.port.mtu),
        memory: one.region.remote(0),
        memory_bytes: one.region.length() as u64,
        reads_asked: chosen.attributes.reads_asked_max,
        reads_answered: chosen.attributes.reads_answered_max,
        port: listener.map_or(0, Listener::port),
        secret: random()?,
    })
}

fn path(verbs: &Verbs, chosen: &Chosen, own: &Hello, theirs: &Hello, mtu: u32) -> Path {
    Path {
        port: chosen.port_number,
        gid_index: chosen.gid.map(|entry| entry.index),
        mtu,
        gid: theirs.gid,
        lid: theirs.lid,
        queue_pair: theirs.queue_pair,
        receive_packet_number: theirs.packet_number,
        send_packet_number: own.packet_number,
        traffic_class: verbs.traffic_class,
        service_level: verbs.service_level,
        ack_timeout: verbs.ack_timeout,
        reads_asked: own.reads_asked.min(theirs.reads_answered),
        reads_answered: own.reads_answered.min(theirs.reads_asked),
    }
}

/// Without a GID InfiniBand uses addresses within its subnet: so both ends have one, or neither.
fn check_gids(chosen: &Chosen, own: &Hello, theirs: &Hello) -> Result<(), TrafficError> {
    let [own, far] = [own.gid, theirs.gid].map(|gid| gid != Gid::default());
    if own == far || chosen.port.is_ethernet || chosen.device.is_iwarp() {
        return Ok(());
    }
    Err(TrafficError::not_supported(
        "connect InfiniBand by a GID of one end",
        "the other end has none; `--gid-index` and `--gid-index-remote` go together there",
    ))
}

fn reads(path: &Path) -> (u8, u8) {
    (path.reads_asked, path.reads_answered)
}

/// A queue pair belongs to a device: the manager may have found another one on its route.
fn is_chosen(chosen: &Chosen, found: Option<String>) -> Result<(), TrafficError> {
    let own = chosen.device.name();
    match found {
        Some(name) if name != own => Err(goes_over(chosen, &name)),
        _ => Ok(()),
    }
}

/// And a port's, where the manager reports which.
fn is_chosen_port(chosen: &Chosen, first: &Attributes) -> Result<(), TrafficError> {
    match first.port() {
        port if port == chosen.port_number || port == 0 => Ok(()),
        port => Err(goes_over(chosen, &format!("port {port}"))),
    }
}

fn goes_over(chosen: &Chosen, what: &str) -> TrafficError {
    TrafficError::not_supported(
        format!(
            "connect port {} of {} by the connection manager",
            chosen.port_number,
            chosen.device.name()
        ),
        format!("its route uses {what}; choose that one, or an address of the chosen one"),
    )
}

/// Calls the listening end; also returns the index of the GID that the path begins with.
fn call(
    chosen: &Chosen,
    one: &Fresh<'_>,
    theirs: &Hello,
    verbs: &Verbs,
    path: &Path,
    patience: Patience<'_>,
) -> Result<(Connection, Option<u32>), TrafficError> {
    let socket = &one.one.flow.socket;
    let from: SocketAddr = with_port(local_of(socket)?, 0);
    let to = with_port(peer_of(socket)?, theirs.port);
    let mut calling = Calling::new(from, to, verbs.traffic_class, patience)?;
    is_chosen(chosen, calling.device())?;
    let mut first = calling.attributes(Step::Initialize, one.access)?;
    is_chosen_port(chosen, &first)?;
    first.mtu = Some(path.mtu);
    first.ack_timeout = path.ack_timeout;
    one.pair.follow(&first)?;
    let secret = theirs.secret.to_be_bytes();
    let mut index = None;
    let wanted = calling.call(one.pair.number(), &secret, reads(path), patience)?;
    if wanted {
        for step in [Step::Receive, Step::Send] {
            let mut next = calling.attributes(step, one.access)?;
            next.mtu = Some(path.mtu);
            next.ack_timeout = path.ack_timeout;
            index = index.or(next.gid_index());
            one.pair.follow(&next)?;
        }
    }
    Ok((calling.establish(wanted)?, index))
}

/// Waits for the call with our secret, and answers it; also the index of the GID. Others are turned away.
fn answer(
    listener: &Listener,
    chosen: &Chosen,
    one: &Fresh<'_>,
    own: &Hello,
    path: &Path,
    patience: Patience<'_>,
) -> Result<(Connection, Option<u32>), TrafficError> {
    let request = loop {
        let request = listener.next_request(patience)?;
        if request.private().starts_with(&own.secret.to_be_bytes()) {
            break request;
        }
    };
    is_chosen(chosen, request.device())?;
    let mut index = None;
    for step in [Step::Initialize, Step::Receive, Step::Send] {
        match request.attributes(step, one.access) {
            Ok(mut next) => {
                if step == Step::Initialize {
                    is_chosen_port(chosen, &next)?;
                }
                next.mtu = Some(path.mtu);
                next.ack_timeout = path.ack_timeout;
                index = index.or(next.gid_index());
                one.pair.follow(&next)?;
            }
            // iWARP: the kernel completes the queue pair's connection by itself.
            Err(_) if step != Step::Initialize => break,
            Err(error) => return Err(error.into()),
        }
    }
    let accepted: Result<Connection, VerbsError> =
        request.accept(one.pair.number(), reads(path), patience);
    Ok((accepted?, index))
}
