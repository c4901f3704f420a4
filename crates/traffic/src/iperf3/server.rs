//! A server for iperf3 clients: many concurrent tests, each on its own threads.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::thread;

use super::desk::{Desk, Most};
use super::door::{Caller, Door, refuse};
use super::session::{self, Finished};
use crate::{Abort, TrafficError};

/// Tests at the same time, and their streams.
const TOGETHER: Most = Most {
    tests: 64,
    streams: 1_024,
};

/// Those of one client, so that it does not shut out the others; iperf3's own limit of a test is 128 streams each way.
const OF_ONE: Most = Most {
    tests: 16,
    streams: 512,
};

/// A server for iperf3 clients. Anyone who can reach its port may run tests: bind it to the
/// address of the network that shall.
#[derive(Debug)]
pub struct Iperf3Server {
    door: Door,
}

impl Iperf3Server {
    /// Listens on `bind` for TCP and UDP; with port 0 on one of the kernel's choice.
    pub fn open(bind: SocketAddr) -> Result<Self, TrafficError> {
        Door::open(bind).map(|door| Self { door })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.door.address
    }

    /// Serves clients until `abort`, which also aborts the running tests and notifies their clients.
    /// `on_done` is called for each test when it is over, one at a time.
    pub fn serve(
        &self,
        abort: &Abort,
        on_done: impl Fn(Finished) + Send,
    ) -> Result<(), TrafficError> {
        let desk = Desk::new(TOGETHER, OF_ONE);
        let on_done = Mutex::new(on_done);
        let done = |finished| {
            let on_done = on_done
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            on_done(finished);
        };
        thread::scope(|scope| {
            self.door.keep(&desk, abort, |caller: Caller| {
                let place = desk.open(caller.cookie, caller.client.ip(), caller.own);
                let Ok(Some(place)) = place else {
                    refuse(&caller.socket);
                    return;
                };
                let (desk, done) = (&desk, &done);
                let kept = std::sync::Arc::clone(&place);
                let test = move || {
                    let finished = session::serve(caller, &kept, desk, abort);
                    desk.close(&kept);
                    done(finished);
                };
                let name = "linerate-iperf3".to_owned();
                if thread::Builder::new()
                    .name(name)
                    .spawn_scoped(scope, test)
                    .is_err()
                {
                    // No thread is left: the connection was closed with the closure that held it.
                    desk.close(&place);
                }
            })
        })
    }
}
