//! A buffer that two ends of a queue pair use in turns. While it is lent, devices may write there, and no reference to it
//! exists; while it is ours, no request that writes there is in flight.

use linerate_verbs::Region;

use super::Mapping;

/// Whose turn it is with the first bytes of a region.
#[derive(Debug)]
pub(crate) struct Turns {
    length: usize,
    is_ours: bool,
}

impl Turns {
    /// The first `length` bytes of a region, which no request has yet been posted for. The rest is used as it comes.
    pub(crate) fn new(length: usize) -> Self {
        let is_ours = true;
        Self { length, is_ours }
    }

    /// Before a request that may write there is posted, or the remote end is asked to use it.
    pub(crate) fn lend(&mut self) {
        self.is_ours = false;
    }

    /// When all requests of this end have completed, and the remote end has reported that it is done.
    pub(crate) fn take_back(&mut self) {
        self.is_ours = true;
    }

    /// Its bytes, to work on. Panics while it is lent: a fault of the caller's, as an index out of range is.
    pub(crate) fn view<'r>(&self, region: &'r mut Region<Mapping>) -> &'r mut [u8] {
        assert!(self.is_ours, "devices may write to a buffer that is lent");
        // SAFETY: it is not lent, so requests of this end have completed, and of a region no slice is made while the view
        // borrows it. The remote end has ended its turn. One that writes all the same changes numbers that are compared and
        // computed with, and that no index, length or branch over memory is made of.
        unsafe { region.view(0..self.length) }
    }
}

#[cfg(test)]
mod tests {
    use linerate_verbs::{Access, Device, ProtectionDomain};
    use linerate_verbs_fake::Fake;

    use super::*;

    fn region() -> Region<Mapping> {
        let fake = Fake::install().device();
        let device = Device::open(fake.name()).expect("a device");
        let domain = ProtectionDomain::new(&device).expect("a domain");
        let memory = Mapping::new(4096).expect("a page");
        Region::new(&domain, memory, Access::default()).expect("registered")
    }

    #[test]
    #[should_panic(expected = "devices may write to a buffer that is lent")]
    fn a_buffer_that_is_lent_cannot_be_viewed() {
        let mut turns = Turns::new(100);
        turns.lend();
        turns.view(&mut region());
    }

    #[test]
    fn a_view_leaves_out_what_receives_are_posted_for() {
        let (mut turns, mut region) = (Turns::new(100), region());
        turns.lend();
        turns.take_back();
        turns.view(&mut region).fill(7);
        assert_eq!((region.look(99), region.look(100)), (7, 0));
    }
}
