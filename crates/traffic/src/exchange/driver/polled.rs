//! Many connections and one epoll instance.

use std::os::fd::BorrowedFd;

use rustix::event::epoll::EventFlags;
use rustix::net::{RecvFlags, SendFlags};

use super::{Agenda, Failed, STOP, pull, push};
use crate::exchange::conversation::{Conversation, Fault};
use crate::waiting::{Event, Poller};

/// One run of them.
#[derive(Debug)]
pub(super) struct Polled<'a> {
    sockets: &'a [BorrowedFd<'a>],
    memory: &'a mut [u8],
    poller: &'a Poller,
    /// Those that wait for space in the socket's buffer.
    writes: Vec<bool>,
    over: Vec<bool>,
    agenda: Agenda,
    live: usize,
}

impl<'a> Polled<'a> {
    pub(super) fn new(
        sockets: &'a [BorrowedFd<'a>],
        memory: &'a mut [u8],
        poller: &'a Poller,
    ) -> Self {
        let count = sockets.len();
        Self {
            sockets,
            memory,
            poller,
            writes: vec![false; count],
            over: vec![false; count],
            agenda: Agenda::new(count),
            live: count,
        }
    }

    pub(super) fn run<C: Conversation>(
        mut self,
        all: &mut [C],
        ledger: &mut C::Ledger,
        events: &mut Vec<Event>,
    ) -> Result<(), Failed> {
        self.settle_all(all)?;
        while self.live > 0 {
            let waited = self.poller.wait(events, self.agenda.rest());
            waited.map_err(|error| (0, Fault::Own(error)))?;
            for event in events.iter() {
                let Ok(index) = usize::try_from(event.data.u64()) else {
                    continue;
                };
                if event.data.u64() == STOP {
                    self.settle_all(all)?;
                } else if !self.over[index] {
                    self.serve(index, &mut all[index], ledger)
                        .map_err(|fault| (index, fault))?;
                }
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

    fn serve<C: Conversation>(
        &mut self,
        index: usize,
        one: &mut C,
        ledger: &mut C::Ledger,
    ) -> Result<(), Fault> {
        let socket = self.sockets[index];
        pull(socket, self.memory, one, ledger, RecvFlags::DONTWAIT)?;
        self.settle(index, one)
    }

    /// Sends what there is, and watches for what the conversation needs next.
    fn settle<C: Conversation>(&mut self, index: usize, one: &mut C) -> Result<(), Fault> {
        if self.over[index] {
            return Ok(());
        }
        let socket = self.sockets[index];
        let how = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let writes = !push(socket, self.memory, one, how)?;
        if one.is_over() {
            self.over[index] = true;
            self.live -= 1;
            if self.live > 0 {
                // Its end of file would be news again and again.
                self.poller.remove(socket)?;
            } else if std::mem::take(&mut self.writes[index]) {
                // The next step on this socket waits for what comes first.
                self.poller.modify(socket, index as u64, EventFlags::IN)?;
            }
        } else if writes != std::mem::replace(&mut self.writes[index], writes) {
            let mut flags = EventFlags::IN;
            flags.set(EventFlags::OUT, writes);
            self.poller.modify(socket, index as u64, flags)?;
        }
        self.agenda.enter(index, one.due());
        Ok(())
    }
}
