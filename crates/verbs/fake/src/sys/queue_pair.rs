//! Queue pairs: their requests in flight and their states.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use linerate_verbs::sys::abi::{
    IBV_QP_ACCESS_FLAGS, IBV_QP_AV, IBV_QP_DEST_QPN, IBV_QP_MAX_DEST_RD_ATOMIC,
    IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_MIN_RNR_TIMER, IBV_QP_PATH_MTU, IBV_QP_PKEY_INDEX, IBV_QP_PORT,
    IBV_QP_QKEY, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_RQ_PSN, IBV_QP_SQ_PSN, IBV_QP_STATE,
    IBV_QP_TIMEOUT, IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, IBV_WC_RECV, ibv_ah_attr,
    ibv_qp_attr, ibv_qp_cap, ibv_sge, ibv_wc,
};

use super::completion::Slot;
use super::device::Device;
use super::number::{
    MTU_1024, QP_ALT_PATH, QP_CUR_STATE, QP_PATH_MIG_STATE, QPS_RESET, WC_WR_FLUSH_ERR,
};
use super::world::World;
use crate::Link;

/// What is to be done, as it was posted.
pub(super) enum Task {
    Write {
        address: u64,
        key: u32,
    },
    Read {
        address: u64,
        key: u32,
    },
    Send {
        number: Option<u32>,
    },
    Datagram {
        number: Option<u32>,
        to: u32,
        key: u32,
        way: ibv_ah_attr,
    },
    FetchAdd {
        address: u64,
        key: u32,
        add: u64,
    },
}

pub(super) struct Job {
    pub(super) id: u64,
    pub(super) task: Task,
    pub(super) pieces: Vec<ibv_sge>,
    /// The bytes of one that travels in the request.
    pub(super) inline: Option<Vec<u8>>,
    pub(super) signaled: bool,
    pub(super) slot: u64,
    /// Until when it is tried to reach a remote end that does not answer, once it was tried.
    pub(super) until: Option<Instant>,
}

pub(super) struct Room {
    pub(super) id: u64,
    pub(super) pieces: Vec<ibv_sge>,
    pub(super) slot: u64,
}

/// The slots of one of the two queues.
#[derive(Default)]
pub(super) struct Slots {
    posted: u64,
    freed: Arc<AtomicU64>,
}

impl Slots {
    /// Takes one; `None` when all of them are in use.
    pub(super) fn take(&mut self, room: u32) -> Option<u64> {
        let used = self.posted - self.freed.load(Ordering::Relaxed);
        (used < u64::from(room)).then(|| {
            self.posted += 1;
            self.posted
        })
    }

    fn slot(&self, upto: u64) -> Slot {
        Slot {
            freed: Arc::clone(&self.freed),
            upto,
        }
    }
}

pub(super) struct QueuePair {
    pub(super) address: usize,
    pub(super) device: usize,
    pub(super) domain: usize,
    pub(super) datagrams: bool,
    pub(super) signals_all: bool,
    pub(super) send_queue: usize,
    pub(super) receive_queue: usize,
    pub(super) room: ibv_qp_cap,
    pub(super) state: c_int,
    pub(super) set: ibv_qp_attr,
    pub(super) jobs: VecDeque<Job>,
    pub(super) rooms: VecDeque<Room>,
    pub(super) sends: Slots,
    pub(super) receives: Slots,
}

/// What a transition of iWARP may have beside the state: no program names a way, or makes its queue pair ready to
/// send.
fn transition_of_iwarp(from: c_int, to: c_int) -> Option<(c_int, c_int)> {
    let common = IBV_QP_ACCESS_FLAGS | IBV_QP_PORT;
    Some(match (from, to) {
        (_, QPS_RESET | IBV_QPS_ERR) => (0, 0),
        (QPS_RESET, IBV_QPS_INIT) => (0, common | IBV_QP_PKEY_INDEX),
        (IBV_QPS_INIT, IBV_QPS_INIT | IBV_QPS_RTR)
        | (IBV_QPS_RTR, IBV_QPS_RTR)
        | (IBV_QPS_RTS, IBV_QPS_RTS) => (0, common),
        _ => return None,
    })
}

/// The attributes that a transition requires besides the state, and those that it may have.
fn transition(datagrams: bool, from: c_int, to: c_int) -> Option<(c_int, c_int)> {
    let common = IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    Some(match (from, to, datagrams) {
        (_, QPS_RESET | IBV_QPS_ERR, _) => (0, 0),
        (QPS_RESET, IBV_QPS_INIT, false) => (common | IBV_QP_ACCESS_FLAGS, 0),
        (QPS_RESET, IBV_QPS_INIT, true) => (common | IBV_QP_QKEY, 0),
        (IBV_QPS_INIT, IBV_QPS_INIT, false) => (0, common | IBV_QP_ACCESS_FLAGS),
        (IBV_QPS_INIT, IBV_QPS_INIT, true) => (0, common | IBV_QP_QKEY),
        (IBV_QPS_INIT, IBV_QPS_RTR, false) => (
            IBV_QP_AV
                | IBV_QP_PATH_MTU
                | IBV_QP_DEST_QPN
                | IBV_QP_RQ_PSN
                | IBV_QP_MAX_DEST_RD_ATOMIC
                | IBV_QP_MIN_RNR_TIMER,
            QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX,
        ),
        (IBV_QPS_INIT, IBV_QPS_RTR, true) => (0, IBV_QP_PKEY_INDEX | IBV_QP_QKEY),
        (IBV_QPS_RTR, IBV_QPS_RTS, false) => (
            IBV_QP_SQ_PSN
                | IBV_QP_TIMEOUT
                | IBV_QP_RETRY_CNT
                | IBV_QP_RNR_RETRY
                | IBV_QP_MAX_QP_RD_ATOMIC,
            QP_CUR_STATE
                | QP_ALT_PATH
                | IBV_QP_ACCESS_FLAGS
                | IBV_QP_MIN_RNR_TIMER
                | QP_PATH_MIG_STATE,
        ),
        (IBV_QPS_RTR, IBV_QPS_RTS, true) => (IBV_QP_SQ_PSN, QP_CUR_STATE | IBV_QP_QKEY),
        (IBV_QPS_RTS, IBV_QPS_RTS, false) => (
            0,
            QP_CUR_STATE | QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER,
        ),
        (IBV_QPS_RTS, IBV_QPS_RTS, true) => (0, QP_CUR_STATE | IBV_QP_QKEY),
        _ => return None,
    })
}

/// Whether the values make sense.
fn are_valid(given: &ibv_qp_attr, mask: c_int, device: &Device) -> bool {
    let has = |bit| mask & bit != 0;
    !(has(IBV_QP_PORT) && given.port_num != 1
        || has(IBV_QP_PKEY_INDEX) && given.pkey_index != 0
        || has(IBV_QP_PATH_MTU) && !(1..=MTU_1024).contains(&given.path_mtu)
        || has(IBV_QP_AV) && !device.takes(&given.ah_attr)
        || has(IBV_QP_RETRY_CNT) && given.retry_cnt > 7
        || has(IBV_QP_RNR_RETRY) && given.rnr_retry > 7
        || has(IBV_QP_TIMEOUT) && given.timeout > 31
        || has(IBV_QP_RQ_PSN) && given.rq_psn >= 1 << 24
        || has(IBV_QP_SQ_PSN) && given.sq_psn >= 1 << 24)
}

fn keep(own: &mut ibv_qp_attr, given: &ibv_qp_attr, mask: c_int) {
    macro_rules! keep {
        ($($bit:ident $field:ident),+) => {$(
            if mask & $bit != 0 {
                own.$field = given.$field;
            }
        )+};
    }
    keep!(
        IBV_QP_ACCESS_FLAGS qp_access_flags, IBV_QP_PORT port_num, IBV_QP_QKEY qkey, IBV_QP_AV ah_attr,
        IBV_QP_DEST_QPN dest_qp_num, IBV_QP_PATH_MTU path_mtu, IBV_QP_RNR_RETRY rnr_retry,
        IBV_QP_MAX_DEST_RD_ATOMIC max_dest_rd_atomic, IBV_QP_MAX_QP_RD_ATOMIC max_rd_atomic
    );
}

impl World {
    /// Takes a queue pair to another state; the error number of what is not allowed.
    pub(super) fn modify(
        &mut self,
        number: u32,
        given: &ibv_qp_attr,
        mask: c_int,
    ) -> Result<(), c_int> {
        let own = self.queue_pairs.get_mut(&number).expect("it is alive");
        let target = if mask & IBV_QP_STATE == 0 {
            own.state
        } else {
            given.qp_state
        };
        let device = &self.devices[own.device];
        let transition = if device.link == Link::Iwarp {
            transition_of_iwarp(own.state, target)
        } else {
            transition(own.datagrams, own.state, target)
        };
        let (needed, allowed) = transition.ok_or(libc::EINVAL)?;
        let extra = mask & !(needed | allowed | IBV_QP_STATE);
        if mask & needed != needed || extra != 0 || !are_valid(given, mask, device) {
            return Err(libc::EINVAL);
        }
        keep(&mut own.set, given, mask);
        own.state = target;
        match target {
            QPS_RESET => {
                own.jobs.clear();
                own.rooms.clear();
                own.sends = Slots::default();
                own.receives = Slots::default();
            }
            IBV_QPS_ERR => self.fail(number),
            _ => {}
        }
        self.wake();
        Ok(())
    }

    /// Joins two queue pairs of iWARP, as the kernel does when their connection is there.
    pub(super) fn join(&mut self, one: u32, other: u32) -> Result<(), c_int> {
        for (number, far) in [(one, other), (other, one)] {
            let own = self.queue_pairs.get_mut(&number).ok_or(libc::EINVAL)?;
            if !matches!(own.state, IBV_QPS_INIT | IBV_QPS_RTR) {
                return Err(libc::EINVAL);
            }
            own.state = IBV_QPS_RTS;
            own.set.dest_qp_num = far;
            // A message without a posted receive ends the connection.
            own.set.rnr_retry = 0;
        }
        Ok(())
    }

    /// A queue pair of iWARP that is no more takes the one that it was joined to with it: they share a connection.
    pub(super) fn hang_up(&mut self, number: u32) {
        let is_joined = |own: &QueuePair| {
            own.set.dest_qp_num == number
                && own.state == IBV_QPS_RTS
                && self.devices[own.device].link == Link::Iwarp
        };
        let mut all = self.queue_pairs.iter();
        if let Some((&far, _)) = all.find(|(_, own)| is_joined(own)) {
            self.fail(far);
        }
    }

    /// Ends a queue pair after a failure: what is in flight is flushed.
    pub(super) fn fail(&mut self, number: u32) {
        if let Some(own) = self.queue_pairs.get_mut(&number) {
            own.state = IBV_QPS_ERR;
            self.flush(number);
            self.hang_up(number);
        }
    }

    /// Flushes everything that a queue pair in the error state has in flight.
    pub(super) fn flush(&mut self, number: u32) {
        let own = self.queue_pairs.get_mut(&number).expect("it is alive");
        let (jobs, rooms) = (
            std::mem::take(&mut own.jobs),
            std::mem::take(&mut own.rooms),
        );
        for job in jobs {
            self.end_send(number, &job, WC_WR_FLUSH_ERR, 0, 0);
        }
        for room in rooms {
            let entry = ibv_wc {
                status: WC_WR_FLUSH_ERR,
                ..ibv_wc::default()
            };
            self.end_receive(number, &room, entry);
        }
    }

    /// Completes a request of the sending side.
    pub(super) fn end_send(
        &mut self,
        number: u32,
        job: &Job,
        status: c_int,
        opcode: c_int,
        length: usize,
    ) {
        let own = &self.queue_pairs[&number];
        if status == 0 && !job.signaled && !own.signals_all {
            return;
        }
        let entry = ibv_wc {
            wr_id: job.id,
            status,
            opcode,
            byte_len: u32::try_from(length).unwrap_or(u32::MAX),
            qp_num: number,
            ..ibv_wc::default()
        };
        let slot = own.sends.slot(job.slot);
        self.complete(own.device, own.send_queue, entry, slot);
    }

    /// Completes a request of the receiving side.
    pub(super) fn end_receive(&mut self, number: u32, room: &Room, entry: ibv_wc) {
        let own = &self.queue_pairs[&number];
        let entry = ibv_wc {
            wr_id: room.id,
            // Of one that failed it means nothing, and devices leave there what was there.
            opcode: if entry.status == 0 { IBV_WC_RECV } else { 0 },
            qp_num: number,
            ..entry
        };
        let slot = own.receives.slot(room.slot);
        self.complete(own.device, own.receive_queue, entry, slot);
    }
}
