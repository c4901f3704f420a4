//! Where connections find their test: the door brings each stream here, the tests wait for theirs.
//!
//! A TCP stream presents its test's cookie. A UDP stream presents nothing, so of all tests of one address
//! only one at a time may open some (its *turn*), and what comes from that address then is its own.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::TrafficError;
use crate::abort::{new_event, signal};
use crate::iperf3_protocol::Cookie;
use crate::source::Source;

/// A test, as the door knows it.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) cookie: Cookie,
    /// Where its client is.
    pub(super) client: IpAddr,
    /// Its state.
    pub(super) own: SocketAddr,
    /// Signalled when a stream has come, or when a turn is free.
    pub(super) news: OwnedFd,
    /// Streams that it has been given.
    streams: AtomicU32,
    inbox: Mutex<Inbox>,
}

/// What a test waits for.
#[derive(Debug, Default)]
struct Inbox {
    /// How many streams it still expects, and of which kind.
    wanted: usize,
    udp: bool,
    turn: bool,
    arrived: Vec<OwnedFd>,
}

impl Place {
    fn source(&self) -> Source {
        self.client.into()
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on `streams` TCP streams may come.
    pub(super) fn want_tcp(&self, streams: usize) {
        let mut inbox = self.inbox();
        (inbox.wanted, inbox.udp) = (streams, false);
    }

    /// Whether all streams have come.
    pub(super) fn is_complete(&self) -> bool {
        self.inbox().wanted == 0
    }

    /// The streams that have come, in their order.
    pub(super) fn take(&self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.inbox().arrived)
    }

    /// A stream has arrived; an unexpected one is returned.
    pub(super) fn put(&self, socket: OwnedFd, udp: bool) -> Result<(), OwnedFd> {
        let mut inbox = self.inbox();
        if inbox.wanted == 0 || inbox.udp != udp {
            return Err(socket);
        }
        inbox.wanted -= 1;
        inbox.arrived.push(socket);
        drop(inbox);
        signal(&self.news);
        Ok(())
    }
}

/// What tests may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Most {
    pub(super) tests: usize,
    /// Each stream has a thread.
    pub(super) streams: u32,
}

/// All tests of a server, and what they may have.
#[derive(Debug)]
pub(super) struct Desk {
    places: Mutex<Vec<Arc<Place>>>,
    together: Most,
    /// The tests of one source.
    of_one: Most,
}

impl Desk {
    pub(super) fn new(together: Most, of_one: Most) -> Self {
        Self {
            places: Mutex::default(),
            together,
            of_one,
        }
    }

    fn places(&self) -> MutexGuard<'_, Vec<Arc<Place>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a new test; none when there are too many, of all clients or of this one.
    pub(super) fn open(
        &self,
        cookie: Cookie,
        client: IpAddr,
        own: SocketAddr,
    ) -> Result<Option<Arc<Place>>, TrafficError> {
        let mut places = self.places();
        let source = Source::from(client);
        let of_one = places.iter().filter(|place| place.source() == source);
        if places.len() >= self.together.tests || of_one.count() >= self.of_one.tests {
            return Ok(None);
        }
        let place = Arc::new(Place {
            cookie,
            client: client.to_canonical(),
            own,
            news: new_event()?,
            streams: AtomicU32::new(0),
            inbox: Mutex::default(),
        });
        places.push(Arc::clone(&place));
        Ok(Some(place))
    }

    /// The test is over.
    pub(super) fn close(&self, place: &Arc<Place>) {
        self.end_turn(place);
        self.places().retain(|other| !Arc::ptr_eq(other, place));
    }

    /// The test that `cookie` belongs to.
    pub(super) fn find(&self, cookie: &Cookie) -> Option<Arc<Place>> {
        let places = self.places();
        places.iter().find(|one| one.cookie == *cookie).cloned()
    }

    /// The test that a UDP stream from `client` would belong to.
    pub(super) fn awaits_udp(&self, client: IpAddr) -> Option<Arc<Place>> {
        let client = client.to_canonical();
        let places = self.places();
        let mut of_client = places.iter().filter(|place| place.client == client);
        of_client
            .find(|place| {
                let inbox = place.inbox();
                inbox.turn && inbox.wanted > 0
            })
            .cloned()
    }

    /// Whether `place` may have its UDP streams opened now; it remains so until [`Desk::end_turn`].
    pub(super) fn take_turn(&self, place: &Arc<Place>, streams: usize) -> bool {
        let places = self.places();
        let taken = places.iter().any(|other| {
            !Arc::ptr_eq(other, place) && other.client == place.client && other.inbox().turn
        });
        if !taken {
            let mut inbox = place.inbox();
            (inbox.turn, inbox.udp, inbox.wanted) = (true, true, streams);
        }
        !taken
    }

    /// Lets the next test of this client have its turn.
    pub(super) fn end_turn(&self, place: &Arc<Place>) {
        let places = self.places();
        if std::mem::take(&mut place.inbox().turn) {
            let others = places.iter().filter(|other| other.client == place.client);
            others.for_each(|other| signal(&other.news));
        }
    }

    /// Assigns streams to `place` until it is closed; false if too few are left, in total or for this client.
    pub(super) fn give_streams(&self, place: &Place, streams: u32) -> bool {
        let places = self.places();
        let open = |of_one: bool| {
            let counted = places
                .iter()
                .filter(|one| !of_one || one.source() == place.source());
            let open = counted.map(|one| one.streams.load(Ordering::SeqCst));
            open.fold(streams, u32::saturating_add)
        };
        let is_room = open(false) <= self.together.streams && open(true) <= self.of_one.streams;
        if is_room {
            place.streams.store(streams, Ordering::SeqCst);
        }
        is_room
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::iperf3_protocol::COOKIE_BYTES;

    const WIDE: Most = Most {
        tests: 10,
        streams: 100,
    };

    /// A test of the client 10.0.0.`client`.
    fn open(desk: &Desk, client: u8, number: u8) -> Option<Arc<Place>> {
        let cookie = Cookie::of_random(&[number; COOKIE_BYTES - 1]);
        let client = IpAddr::from([10, 0, 0, client]);
        let own = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        desk.open(cookie, client, own).expect("an eventfd")
    }

    fn place(desk: &Desk, number: u8) -> Arc<Place> {
        open(desk, 1, number).expect("room")
    }

    #[test]
    fn two_tests_of_one_address_open_their_udp_streams_one_after_the_other() {
        let desk = Desk::new(WIDE, WIDE);
        let (first, second) = (place(&desk, 1), place(&desk, 2));
        assert!(desk.take_turn(&first, 1));
        assert!(!desk.take_turn(&second, 1));
        let mapped = "::ffff:10.0.0.1".parse().expect("an address");
        let found = desk.awaits_udp(mapped).expect("the first");
        assert!(Arc::ptr_eq(&found, &first));
        desk.close(&first);
        assert!(desk.take_turn(&second, 1));
    }

    #[test]
    fn there_are_never_more_tests_or_streams_than_allowed() {
        let most = Most {
            tests: 2,
            streams: 10,
        };
        let desk = Desk::new(most, WIDE);
        let (first, second) = (place(&desk, 1), place(&desk, 2));
        assert!(open(&desk, 2, 3).is_none());
        assert!(desk.give_streams(&first, 8));
        assert!(!desk.give_streams(&second, 3));
        desk.close(&first);
        assert!(desk.give_streams(&second, 10));
    }

    #[test]
    fn what_one_client_may_have_leaves_room_for_others() {
        let most = Most {
            tests: 2,
            streams: 10,
        };
        let desk = Desk::new(WIDE, most);
        let (first, second) = (place(&desk, 1), place(&desk, 2));
        assert!(open(&desk, 1, 3).is_none(), "a third of one client");
        let other = open(&desk, 2, 3).expect("room for another client");
        assert!(desk.give_streams(&first, 8));
        assert!(!desk.give_streams(&second, 3));
        assert!(desk.give_streams(&other, 10));
        desk.close(&first);
        assert!(open(&desk, 1, 4).is_some());
    }
}
