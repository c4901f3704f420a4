//! Connections and one io_uring: each has at most one send and one receive in flight.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};

use super::{Agenda, Failed, STOP};
use crate::TrafficError;
use crate::exchange::conversation::{Conversation, Fault};
use crate::sys::{ExchangeRing, Finished};

/// The operations in flight on one connection.
#[derive(Debug, Clone, Copy, Default)]
struct UnderWay {
    send: bool,
    receive: bool,
    over: bool,
}

/// One run of them.
#[derive(Debug)]
pub(super) struct Ringed<'a> {
    sockets: &'a [BorrowedFd<'a>],
    ring: &'a mut ExchangeRing,
    states: Vec<UnderWay>,
    agenda: Agenda,
    live: usize,
}

impl<'a> Ringed<'a> {
    pub(super) fn new(sockets: &'a [BorrowedFd<'a>], ring: &'a mut ExchangeRing) -> Self {
        Self {
            sockets,
            ring,
            states: vec![UnderWay::default(); sockets.len()],
            agenda: Agenda::new(sockets.len()),
            live: sockets.len(),
        }
    }

    pub(super) fn run<C: Conversation>(
        mut self,
        all: &mut [C],
        ledger: &mut C::Ledger,
    ) -> Result<(), Failed> {
        self.settle_all(all)?;
        // Also after the last one is over: the kernel may still hold places of the memory.
        while self.live > 0 || self.ring.is_busy() {
            let waited = self.ring.wait(self.agenda.rest());
            waited.map_err(|error| (0, TrafficError::from(error).into()))?;
            while let Some(done) = self.ring.finished() {
                if done.token == STOP {
                    self.settle_all(all)?;
                    continue;
                }
                let index = usize::try_from(done.token).unwrap_or(usize::MAX);
                let Some(one) = all.get_mut(index) else {
                    continue;
                };
                self.note(index, one, done, ledger)
                    .and_then(|()| self.settle(index, one))
                    .map_err(|fault| (index, fault))?;
            }
            while let Some(index) = self.agenda.take() {
                self.settle(index, &mut all[index])
                    .map_err(|fault| (index, fault))?;
            }
        }
        Ok(())
    }

    fn settle_all<C: Conversation>(&mut self, all: &mut [C]) -> Result<(), Failed> {
        for (index, one) in all.iter_mut().enumerate() {
            self.settle(index, one).map_err(|fault| (index, fault))?;
        }
        Ok(())
    }

    /// Takes the result of an operation.
    fn note<C: Conversation>(
        &mut self,
        index: usize,
        one: &mut C,
        done: Finished,
        ledger: &mut C::Ledger,
    ) -> Result<(), Fault> {
        let state = &mut self.states[index];
        if done.sent {
            state.send = false;
        } else {
            state.receive = false;
        }
        match done.result {
            Err(Errno::INTR | Errno::AGAIN) => Ok(()),
            _ if state.over => Ok(()),
            Ok(count) if done.sent => {
                one.sent(count);
                Ok(())
            }
            Ok(0) => one.peer_ended(),
            Ok(count) => one.received(count, ledger),
            Err(errno) => Err(Fault::of(errno)),
        }
    }

    /// Sets going what the conversation wants next.
    fn settle<C: Conversation>(&mut self, index: usize, one: &mut C) -> Result<(), Fault> {
        let (socket, token) = (self.sockets[index], index as u64);
        let state = &mut self.states[index];
        if state.over {
            return Ok(());
        }
        if !state.send {
            // Here it also comes when a send has ended.
            one.attend(self.ring)?;
            let range = one.to_send();
            if !range.is_empty() {
                self.ring.send(token, socket, range).map_err(own)?;
                state.send = true;
            } else if one.is_over() {
                state.over = true;
                self.live -= 1;
                if state.receive {
                    // Nothing more will arrive, and the kernel must release the memory.
                    let _ = shutdown(socket, Shutdown::Read);
                }
                return Ok(());
            }
        }
        let range = one.to_receive();
        if !state.receive && !range.is_empty() {
            let whole = one.takes_whole();
            self.ring
                .receive(token, socket, range, whole)
                .map_err(own)?;
            state.receive = true;
        }
        self.agenda.enter(index, one.due());
        Ok(())
    }
}

fn own(missing: crate::sys::NotThere) -> Fault {
    Fault::Own(missing.into())
}
