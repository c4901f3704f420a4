//! When what was written is at the remote end. InfiniBand and RoCE have acknowledgements that report it; a write of iWARP has
//! ended for its device once TCP has taken it (RFC 5040, 5.5), and what is read behind it comes when it is there.

use std::time::Instant;

use linerate_model::workload::Verb;
use linerate_verbs::{Send, Sends, Work};

use super::job::{Job, message};
use super::rate::take;
use crate::TrafficError;
use crate::trial::{DataThread, Start};
use crate::verbs::{ThreadDevice, VerbsFlow};

/// Waits until all writes of these lanes, which have ended here, are at the remote end: when that was, where it had to be
/// waited for.
pub(super) fn await_written(
    data_thread: &DataThread<'_>,
    thread_device: &mut ThreadDevice<'_>,
    lanes: &[VerbsFlow<'_>],
    job: &Job,
    start: Start,
) -> Result<Option<Instant>, TrafficError> {
    if !thread_device.is_iwarp || job.verb != Verb::Write {
        return Ok(None);
    }
    let mut reads = Vec::with_capacity(lanes.len());
    for (number, lane) in (0u64..).zip(lanes) {
        let mut read = Sends::new(&[Send {
            id: number,
            local: message(job, lane, 0, 0, 1),
            work: Work::Read(lane.far),
            signaled: true,
            inline: false,
        }]);
        (read.post(&lane.pair, 0, 1)).map_err(|refused| thread_device.refused(refused))?;
        reads.push(read);
    }
    let mut left = lanes.len();
    while left > 0 {
        let count = take(data_thread, thread_device, start)?;
        for index in 0..count {
            let completion = thread_device.taker.taken(index);
            let number = usize::try_from(completion.id()).unwrap_or(0);
            let flow = lanes[number].one.flow.number;
            let doing = "read behind what was written";
            (completion.status()).map_err(|status| thread_device.failed(doing, flow, status))?;
        }
        left -= count;
    }
    Ok(Some(Instant::now()))
}
