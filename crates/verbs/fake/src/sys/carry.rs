//! Executes what was posted, in a separate thread: message after message of a queue pair, until there is
//! none or the remote end makes it wait.

use std::ffi::{c_int, c_uint};
use std::time::{Duration, Instant};

use linerate_verbs::sys::abi::{
    IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_QPS_ERR,
    IBV_QPS_RTR, IBV_QPS_RTS, IBV_WC_WITH_IMM, ibv_gid_entry, ibv_wc,
};

use super::GRH;
use super::number::{
    EVENT_QP_ACCESS_ERR, WC_FETCH_ADD, WC_GRH, WC_LOC_LEN_ERR, WC_RDMA_READ, WC_RDMA_WRITE,
    WC_REM_ACCESS_ERR, WC_REM_INV_REQ_ERR, WC_REM_OP_ERR, WC_RETRY_EXC_ERR, WC_RNR_RETRY_EXC_ERR,
    WC_SEND, WC_SUCCESS,
};
use super::queue_pair::{Job, Task};
use super::world::{NEWS, World, world};
use crate::{Fault, Link, MTU};

/// How long a remote end is tried that is there and not ready, as devices repeat.
const PATIENCE: Duration = Duration::from_secs(5);
/// Messages of one queue pair before the others have their turn.
const TURN: usize = 32;

/// Why a request did not succeed now.
enum Stop {
    /// The remote end may become ready.
    Wait,
    Failed(c_int),
}

/// What a successful request was, and its bytes.
type Done = (c_int, usize);

/// Starts the thread, once.
pub(super) fn start(world: &mut World) {
    if !std::mem::replace(&mut world.works, true) {
        std::thread::Builder::new()
            .name("fake-verbs".to_owned())
            .spawn(work)
            .expect("the fake has no thread left");
    }
}

fn work() {
    let mut own = world();
    loop {
        let late = own.add_due();
        if let Some(number) = own.ready.pop_front() {
            own.carry_out(number);
            // Threads that poll or post get a turn too.
            drop(own);
            own = world();
            continue;
        }
        let patience = own.end_of_patience();
        let next = late.into_iter().chain(patience).min();
        let left = next.map(|due| due.saturating_duration_since(Instant::now()));
        own = match left {
            None => NEWS
                .wait(own)
                .unwrap_or_else(std::sync::PoisonError::into_inner),
            Some(left) => {
                let waited = NEWS.wait_timeout(own, left);
                waited.unwrap_or_else(std::sync::PoisonError::into_inner).0
            }
        };
    }
}

impl World {
    /// Has those look again whose time is over; when the next one's is.
    fn end_of_patience(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let mut next = None;
        for number in self.stalled.clone() {
            let own = self.queue_pairs.get(&number);
            let Some(until) = own.and_then(|own| own.jobs.front()?.until) else {
                continue;
            };
            if until <= now {
                self.stalled.remove(&number);
                self.ready.push_back(number);
                next = Some(now);
            } else {
                next = next.into_iter().chain([until]).min();
            }
        }
        next
    }

    /// Has the thread carry out what was posted to a queue pair.
    pub(super) fn leave(&mut self, number: u32) {
        self.ready.push_back(number);
        NEWS.notify_one();
    }

    fn carry_out(&mut self, number: u32) {
        let mut bytes = std::mem::take(&mut self.bytes);
        self.take_turn(number, &mut bytes);
        self.bytes = bytes;
    }

    fn take_turn(&mut self, number: u32, bytes: &mut Vec<u8>) {
        for _ in 0..TURN {
            let Some(own) = self.queue_pairs.get_mut(&number) else {
                return;
            };
            let device = &self.devices[own.device];
            if device.has(Fault::Hang) || device.has(Fault::Gone) {
                self.stalled.insert(number);
                return;
            }
            if own.state != IBV_QPS_RTS {
                return;
            }
            let Some(mut job) = own.jobs.pop_front() else {
                return;
            };
            match self.attempt(number, &mut job, bytes) {
                Ok((opcode, length)) => self.end_send(number, &job, WC_SUCCESS, opcode, length),
                Err(Stop::Wait) => {
                    let own = self.queue_pairs.get_mut(&number).expect("it was there");
                    own.jobs.push_front(job);
                    self.stalled.insert(number);
                    return;
                }
                Err(Stop::Failed(status)) => {
                    self.end_send(number, &job, status, 0, 0);
                    self.fail(number);
                    self.wake();
                    return;
                }
            }
        }
        self.ready.push_back(number);
    }

    fn attempt(&mut self, number: u32, job: &mut Job, bytes: &mut Vec<u8>) -> Result<Done, Stop> {
        if let Task::Datagram { number: told, .. } = job.task {
            return self.datagram(number, told, job, bytes);
        }
        let far = self.far_end(number, job)?;
        let done = match job.task {
            Task::Write { address, key } => self.write(number, far, job, (key, address), bytes),
            Task::Read { address, key } => self.read(number, far, job, (key, address), bytes),
            Task::FetchAdd { address, key, add } => {
                self.fetch_add(number, far, job, (key, address), add)
            }
            Task::Send { number: told } => self.send(number, far, job, told, bytes),
            Task::Datagram { .. } => unreachable!("it has no far end of its own"),
        };
        if matches!(done, Err(Stop::Failed(WC_REM_ACCESS_ERR))) {
            let own = &self.queue_pairs[&far];
            self.tell(own.device, EVENT_QP_ACCESS_ERR, own.address);
        }
        if matches!(
            done,
            Err(Stop::Failed(
                WC_REM_ACCESS_ERR | WC_REM_INV_REQ_ERR | WC_REM_OP_ERR
            ))
        ) {
            self.fail(far);
        }
        done
    }

    /// The queue pair at the other end, when it answers.
    fn far_end(&self, number: u32, job: &mut Job) -> Result<u32, Stop> {
        let own = &self.queue_pairs[&number];
        let no_answer = Err(Stop::Failed(WC_RETRY_EXC_ERR));
        let Some(far) = self.queue_pairs.get(&own.set.dest_qp_num) else {
            return no_answer;
        };
        let is_down = |device: usize| {
            let device = &self.devices[device];
            device.has(Fault::PortDown) || device.has(Fault::Gone)
        };
        let device = &self.devices[far.device];
        // The kernel has connected those of iWARP, which have no path of their own.
        let is_known = device.link == Link::Iwarp || device.is_at(&own.set.ah_attr);
        if is_down(own.device) || is_down(far.device) || !is_known || far.datagrams {
            return no_answer;
        }
        let is_silent = device.has(Fault::Hang);
        match far.state {
            IBV_QPS_RTR | IBV_QPS_RTS if !is_silent => {
                let is_mine = far.set.dest_qp_num == number;
                if is_mine {
                    Ok(own.set.dest_qp_num)
                } else {
                    no_answer
                }
            }
            IBV_QPS_ERR => no_answer,
            _ => {
                let until = *job.until.get_or_insert_with(|| Instant::now() + PATIENCE);
                if until <= Instant::now() {
                    return no_answer;
                }
                Err(Stop::Wait)
            }
        }
    }

    fn domain(&self, number: u32) -> usize {
        self.queue_pairs[&number].domain
    }

    /// Whether a queue pair lets the remote end do that at all.
    fn permits(&self, number: u32, access: c_uint) -> Result<(), Stop> {
        if self.queue_pairs[&number].set.qp_access_flags & access == 0 {
            return Err(Stop::Failed(WC_REM_INV_REQ_ERR));
        }
        Ok(())
    }

    /// Collects what a request carries.
    fn payload(&self, number: u32, job: &Job, into: &mut Vec<u8>) -> Result<(), Stop> {
        if let Some(inline) = &job.inline {
            into.clear();
            into.extend_from_slice(inline);
            return Ok(());
        }
        self.gather(self.domain(number), &job.pieces, into)
            .map_err(Stop::Failed)
    }

    /// Counts a message, and changes a byte of it when it is its turn.
    fn pass(&mut self, number: u32, bytes: &mut [u8]) {
        let device = self.queue_pairs[&number].device;
        self.count_message(device);
        let own = &self.devices[device];
        let every = own.fault(Fault::CorruptEvery);
        if own.messages.is_multiple_of(every) {
            let middle = bytes.len() / 2;
            if let Some(byte) = bytes.get_mut(middle) {
                *byte ^= 0x10;
            }
        }
    }

    fn write(
        &mut self,
        number: u32,
        far: u32,
        job: &Job,
        place: (u32, u64),
        bytes: &mut Vec<u8>,
    ) -> Result<Done, Stop> {
        self.payload(number, job, bytes)?;
        self.permits(far, IBV_ACCESS_REMOTE_WRITE)?;
        self.pass(number, bytes);
        self.store(self.domain(far), place, IBV_ACCESS_REMOTE_WRITE, bytes)
            .map_err(Stop::Failed)?;
        Ok((WC_RDMA_WRITE, bytes.len()))
    }

    fn read(
        &mut self,
        number: u32,
        far: u32,
        job: &Job,
        (key, address): (u32, u64),
        bytes: &mut Vec<u8>,
    ) -> Result<Done, Stop> {
        self.permits(far, IBV_ACCESS_REMOTE_READ)?;
        let own = &self.queue_pairs[&number];
        if self.devices[own.device].link == Link::Iwarp {
            // There its answer is a write by the key of this end's memory.
            self.allow(own.domain, &job.pieces, IBV_ACCESS_REMOTE_WRITE)
                .map_err(Stop::Failed)?;
        }
        let range = (address, length(job));
        let access = IBV_ACCESS_REMOTE_READ;
        self.fetch(self.domain(far), key, range, access, bytes)
            .map_err(Stop::Failed)?;
        self.pass(number, bytes);
        self.scatter(self.domain(number), &job.pieces, bytes)
            .map_err(Stop::Failed)?;
        Ok((WC_RDMA_READ, bytes.len()))
    }

    fn fetch_add(
        &mut self,
        number: u32,
        far: u32,
        job: &Job,
        place: (u32, u64),
        amount: u64,
    ) -> Result<Done, Stop> {
        if length(job) != 8 {
            return Err(Stop::Failed(WC_LOC_LEN_ERR));
        }
        self.permits(far, IBV_ACCESS_REMOTE_ATOMIC)?;
        if !place.1.is_multiple_of(8) {
            return Err(Stop::Failed(WC_REM_INV_REQ_ERR));
        }
        let before = self.add(self.domain(far), place, IBV_ACCESS_REMOTE_ATOMIC, amount);
        let mut before = before.map_err(Stop::Failed)?.to_ne_bytes();
        self.pass(number, &mut before);
        self.scatter(self.domain(number), &job.pieces, &before)
            .map_err(Stop::Failed)?;
        Ok((WC_FETCH_ADD, 8))
    }

    fn send(
        &mut self,
        number: u32,
        far: u32,
        job: &Job,
        told: Option<u32>,
        bytes: &mut Vec<u8>,
    ) -> Result<Done, Stop> {
        self.payload(number, job, bytes)?;
        let Some(room) = self.room(far) else {
            let repeats = self.queue_pairs[&number].set.rnr_retry;
            return Err(if repeats == 7 {
                Stop::Wait
            } else {
                Stop::Failed(WC_RNR_RETRY_EXC_ERR)
            });
        };
        self.pass(number, bytes);
        let filled = self.scatter(self.domain(far), &room.pieces, bytes);
        let entry = ibv_wc {
            status: filled.err().unwrap_or(WC_SUCCESS),
            byte_len: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            imm_data: told.unwrap_or(0),
            wc_flags: told.map_or(0, |_| IBV_WC_WITH_IMM),
            ..ibv_wc::default()
        };
        self.end_receive(far, &room, entry);
        match entry.status {
            WC_SUCCESS => Ok((WC_SEND, bytes.len())),
            WC_LOC_LEN_ERR => Err(Stop::Failed(WC_REM_INV_REQ_ERR)),
            _ => Err(Stop::Failed(WC_REM_OP_ERR)),
        }
    }

    fn room(&mut self, number: u32) -> Option<super::queue_pair::Room> {
        self.queue_pairs.get_mut(&number)?.rooms.pop_front()
    }

    /// Sends a datagram; a loss is not reported.
    fn datagram(
        &mut self,
        number: u32,
        told: Option<u32>,
        job: &Job,
        bytes: &mut Vec<u8>,
    ) -> Result<Done, Stop> {
        self.payload(number, job, bytes)?;
        let sent = bytes.len();
        if sent > MTU as usize {
            return Err(Stop::Failed(WC_LOC_LEN_ERR));
        }
        self.pass(number, bytes);
        let Some(far) = self.target(number, job) else {
            return Ok((WC_SEND, sent));
        };
        let Some(room) = self.room(far) else {
            return Ok((WC_SEND, sent));
        };
        let gids = &self.devices[self.queue_pairs[&number].device].gids;
        bytes.splice(..0, route_header(job, gids, sent));
        let filled = self.scatter(self.domain(far), &room.pieces, bytes);
        let has_header = is_global(job).then_some(WC_GRH);
        let entry = ibv_wc {
            status: filled.err().unwrap_or(WC_SUCCESS),
            byte_len: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            src_qp: number,
            imm_data: told.unwrap_or(0),
            wc_flags: has_header.unwrap_or(0) | told.map_or(0, |_| IBV_WC_WITH_IMM),
            ..ibv_wc::default()
        };
        self.end_receive(far, &room, entry);
        if filled.is_err() {
            self.fail(far);
        }
        Ok((WC_SEND, sent))
    }

    /// The queue pair that a datagram arrives at, if it does.
    fn target(&mut self, number: u32, job: &Job) -> Option<u32> {
        let Task::Datagram { to, key, way, .. } = job.task else {
            return None;
        };
        let device = self.queue_pairs[&number].device;
        let own = &mut self.devices[device];
        own.datagrams += 1;
        let every = own.fault(Fault::LoseEvery);
        let is_lost = own.has(Fault::PortDown) || own.datagrams.is_multiple_of(every);
        let far = self.queue_pairs.get(&to)?;
        let device = &self.devices[far.device];
        let hears = [Fault::PortDown, Fault::Gone, Fault::Hang]
            .into_iter()
            .all(|fault| !device.has(fault))
            && matches!(far.state, IBV_QPS_RTR | IBV_QPS_RTS)
            && far.datagrams
            && far.set.qkey == key
            && device.is_at(&way);
        (hears && !is_lost).then_some(to)
    }
}

fn length(job: &Job) -> usize {
    job.pieces.iter().map(|piece| piece.length as usize).sum()
}

/// Whether a datagram has a route header: within an InfiniBand subnet it needs none, and its place stays empty.
fn is_global(job: &Job) -> bool {
    matches!(&job.task, Task::Datagram { way, .. } if way.is_global != 0)
}

/// What RoCE v2 puts in front: an IPv6 header, or behind 20 bytes of nothing an IPv4 header.
fn route_header(job: &Job, gids: &[ibv_gid_entry], length: usize) -> [u8; GRH] {
    let mut header = [0; GRH];
    let Task::Datagram { way, .. } = job.task else {
        return header;
    };
    if way.is_global == 0 {
        return header;
    }
    let gid = way.grh.dgid.0;
    let own = gids[usize::from(way.grh.sgid_index)].gid.0;
    // The datagram's own headers: UDP 8, transport 12 and 8, check 4.
    let inner = u16::try_from(length + 32).unwrap_or(u16::MAX);
    if own[..10] == [0; 10] && own[10..12] == [0xff; 2] {
        header[20] = 0x45;
        header[22..24].copy_from_slice(&(inner + 20).to_be_bytes());
        header[28] = 64;
        header[29] = 17;
        header[32..36].copy_from_slice(&own[12..]);
        header[36..].copy_from_slice(&gid[12..]);
    } else {
        header[0] = 0x60;
        header[4..6].copy_from_slice(&inner.to_be_bytes());
        header[6] = 17;
        header[7] = 64;
        header[8..24].copy_from_slice(&own);
        header[24..].copy_from_slice(&gid);
    }
    header
}
