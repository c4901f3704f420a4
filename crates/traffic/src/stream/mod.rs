//! The `stream` workload: bulk transfer. A data thread allocates and touches its buffer (so that the pages
//! are on its own node: the kernel places them at first touch), waits at the gate, and from then on does
//! nothing but move payload and store a counter.
//!
//! * [`lane`]: one flow of a thread, from its share of the amount to its record.
//! * [`send`], [`receive`]: the methods of moving payload into and out of the kernel by a system call.
//! * [`checked`]: the plain ones of them with every byte compared.
//! * [`drive`]: the loops over those methods, for one flow and for many.
//! * [`ring`]: the same through io_uring.

mod checked;
mod drive;
mod lane;
mod receive;
mod ring;
mod send;

use lane::RunningFlow;
pub(crate) use lane::share;
use linerate_model::sample::Role;
use linerate_model::workload::{ReceiveMode, SendMode, Stream, TrialSpec, Waiting, Workload};

use crate::TrafficError;
use crate::buffer::Buffer;
use crate::trial::{DataThread, WorkResult};
use crate::waiting::prepare_socket;

/// What runs on each data thread of a stream over TCP.
pub(crate) fn work(data_thread: &mut DataThread<'_>) -> Result<Option<WorkResult>, TrafficError> {
    let stream = stream_of(data_thread.spec);
    for one in &data_thread.flows {
        prepare_socket(&one.flow.socket, data_thread.spec.waiting)?;
    }
    let lanes: Vec<RunningFlow<'_>> = data_thread
        .flows
        .iter()
        .map(|&one| RunningFlow::new(one, data_thread.spec, &stream))
        .collect();
    let through_ring = through_ring(data_thread.role, &stream, data_thread.spec.waiting)?;
    let buffer = Buffer::new(data_thread.spec.buffer_bytes, data_thread.memory())?;
    let node = buffer.node();
    let lanes = match data_thread.role {
        _ if through_ring => ring::carry(data_thread, &stream, lanes, buffer),
        Role::Sender if stream.data_check => drive::carry(data_thread, lanes, |data_thread| {
            Ok(checked::Write::new(checked::places(data_thread), buffer))
        }),
        Role::Receiver if stream.data_check => drive::carry(data_thread, lanes, |data_thread| {
            Ok(checked::Read::new(checked::places(data_thread), buffer))
        }),
        Role::Sender => match stream.send {
            SendMode::Zerocopy => drive::carry(data_thread, lanes, |data_thread| {
                send::Zerocopy::new(data_thread, buffer)
            }),
            SendMode::Sendfile => {
                drive::carry(data_thread, lanes, |_| send::Sendfile::new(&buffer))
            }
            SendMode::Splice => drive::carry(data_thread, lanes, |_| send::Splice::new(buffer)),
            _ => drive::carry(data_thread, lanes, |_| Ok(send::Write::new(buffer))),
        },
        Role::Receiver => match stream.receive {
            ReceiveMode::Trunc => drive::carry(data_thread, lanes, |_| {
                Ok(receive::Read::truncating(buffer))
            }),
            ReceiveMode::Zerocopy => drive::carry(data_thread, lanes, |data_thread| {
                receive::Mapped::new(data_thread, buffer)
            }),
            _ => drive::carry(data_thread, lanes, |_| Ok(receive::Read::copying(buffer))),
        },
    }?;
    let Some(lanes) = lanes else { return Ok(None) };
    Ok(Some(WorkResult {
        flows: lanes.into_iter().map(RunningFlow::into_end).collect(),
        operations: None,
        memory_node: node,
    }))
}

pub(crate) fn stream_of(spec: &TrialSpec) -> Stream {
    match &spec.workload {
        Workload::Stream(stream) => stream.clone(),
        _ => Stream::default(),
    }
}

/// Whether payload uses io_uring; an error if the transfer mode and the waiting mode
/// contradict each other.
fn through_ring(role: Role, stream: &Stream, waiting: Waiting) -> Result<bool, TrafficError> {
    let (by_ring, plain, mode) = match role {
        Role::Sender => (
            matches!(stream.send, SendMode::Uring | SendMode::UringZerocopy),
            stream.send == SendMode::Write,
            format!("send by `{}`", stream.send),
        ),
        Role::Receiver => (
            stream.receive == ReceiveMode::Uring,
            stream.receive == ReceiveMode::Read,
            format!("receive by `{}`", stream.receive),
        ),
    };
    let waits_by_ring = matches!(waiting, Waiting::Uring | Waiting::UringSqpoll);
    let refused = |why: &str| {
        Err(TrafficError::NotSupported {
            what: format!("wait by `{waiting}` and {mode}"),
            why: why.to_owned(),
        })
    };
    if waits_by_ring && !by_ring && !plain {
        return refused(
            "only plain sends and reads have an io_uring form; use another waiting mode",
        );
    }
    if by_ring && waiting == Waiting::Epoll {
        return refused(
            "what io_uring carries is not waited for by epoll; wait by `blocking` or `uring`",
        );
    }
    Ok(by_ring || waits_by_ring)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_by_io_uring_carries_plain_sends_and_nothing_that_has_no_such_form() {
        let mut stream = Stream::default();
        let sender = |stream: &Stream, waiting| through_ring(Role::Sender, stream, waiting);
        assert!(!sender(&stream, Waiting::Blocking).expect("the default"));
        assert!(sender(&stream, Waiting::UringSqpoll).expect("plain sends"));
        stream.send = SendMode::UringZerocopy;
        assert!(sender(&stream, Waiting::Blocking).expect("its own form"));
        assert!(sender(&stream, Waiting::Epoll).is_err());
        stream.send = SendMode::Splice;
        let refused = sender(&stream, Waiting::Uring).expect_err("no such form");
        assert!(refused.to_string().contains("`splice`"), "{refused}");
    }
}
