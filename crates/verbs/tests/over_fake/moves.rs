//! Every verb moves the right bytes to the right place.

use linerate_verbs::{AddressHandle, Opcode, Receive, Receives, Send, Sends, To, Work};
use proptest::prelude::*;

use crate::ends::{End, KEY, Plan, all_of, device, pair, path};

/// Where a message comes from, goes to, and how long it is, within two regions of 4096 bytes.
fn place() -> impl Strategy<Value = (usize, usize, usize)> {
    (0_usize..=2048).prop_flat_map(|length| (0..=4096 - length, 0..=4096 - length, Just(length)))
}

/// Bytes of which none repeats its neighbors.
fn pattern(seed: u8) -> Vec<u8> {
    (0..4096_u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 11).to_le_bytes()[0] ^ seed)
        .collect()
}

/// Has `near` carry out one request, and waits for its end.
fn carry_out(near: &End, range: std::ops::Range<usize>, work: Work<'_>, inline: bool) {
    let mut sends = Sends::new(&[Send {
        id: 5,
        local: near.region.slice(range),
        work,
        signaled: true,
        inline,
    }]);
    sends.post(&near.queue_pair, 0, 1).expect("a post");
    assert_eq!(near.end(), (5, Ok(Opcode::Sent)));
}

/// What is expected where `length` bytes of `from` were copied into `to`.
fn copied(from: &[u8], to: &[u8], place: (usize, usize, usize)) -> Vec<u8> {
    let (source, target, length) = place;
    let mut all = to.to_vec();
    all[target..target + length].copy_from_slice(&from[source..source + length]);
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_write_and_a_read_move_exactly_their_bytes(place in place(), seed in any::<u8>()) {
        let (fake, device) = device();
        let (near, far) = pair(&device, Plan::default());
        let (ours, theirs) = (pattern(seed), pattern(!seed));
        near.region.write(0, &ours);
        far.region.write(0, &theirs);
        let (from, to, length) = place;

        carry_out(&near, from..from + length, Work::Write(far.region.remote(to)), false);
        let written = copied(&ours, &theirs, place);
        prop_assert_eq!(&all_of(&far.region), &written);
        prop_assert_eq!(&all_of(&near.region), &ours);

        carry_out(&near, to..to + length, Work::Read(far.region.remote(from)), false);
        prop_assert_eq!(all_of(&near.region), copied(&written, &ours, place));
        prop_assert_eq!(&all_of(&far.region), &written);
        drop((near, far, device));
        prop_assert_eq!(fake.alive(), []);
    }

    #[test]
    fn a_message_fills_the_memory_posted_for_it(
        place in place(), number in any::<Option<u32>>(), inline in any::<bool>()
    ) {
        let (_fake, device) = device();
        let plan = Plan { inline: 64, ..Plan::default() };
        let (near, far) = pair(&device, plan);
        near.region.write(0, &pattern(1));
        let (from, to, length) = place;
        let inline = inline && length <= 64;
        let mut room = Receives::new(&[Receive { id: 9, local: far.region.slice(to..to + length) }]);
        room.post(&far.queue_pair, 0, 1).expect("a post");
        let work = number.map_or(Work::Send, Work::SendNumber);
        carry_out(&near, from..from + length, work, inline);
        let end = far.ends(1)[0];
        prop_assert_eq!((end.id(), end.opcode()), (9, Opcode::Received));
        prop_assert_eq!((end.bytes() as usize, end.number()), (length, number));
        prop_assert_eq!(end.queue_pair(), far.queue_pair.number());
        drop(room);
        prop_assert_eq!(all_of(&far.region), copied(&pattern(1), &[0; 4096], place));
    }

    #[test]
    fn a_datagram_comes_behind_forty_bytes(length in 0_usize..=1024, told in any::<Option<u32>>()) {
        let (_fake, device) = device();
        let plan = Plan { datagrams: true, ..Plan::default() };
        let (near, far) = pair(&device, plan);
        near.region.write(0, &pattern(2));
        let mut room = Receives::new(&[Receive { id: 3, local: far.region.slice(0..1064) }]);
        room.post(&far.queue_pair, 0, 1).expect("a post");
        let number = far.queue_pair.number();
        let handle = AddressHandle::new(&near.domain, &path(&device, number)).expect("a handle");
        let to = To { handle: &handle, queue_pair: number, key: KEY, number: told };
        carry_out(&near, 0..length, Work::SendTo(to), false);
        let end = far.ends(1)[0];
        prop_assert_eq!((end.id(), end.bytes() as usize), (3, length + 40));
        prop_assert_eq!(end.number(), told);
        drop(room);
        prop_assert_eq!(&all_of(&far.region)[40..40 + length], &pattern(2)[..length]);
    }

    #[test]
    fn additions_sum_up_and_tell_what_was_there(amounts in proptest::collection::vec(any::<u64>(), 1..20)) {
        let (_fake, device) = device();
        let (near, far) = pair(&device, Plan::default());
        let mut sum = 0_u64;
        for amount in amounts {
            carry_out(&near, 8..16, Work::FetchAdd(far.region.remote(24), amount), false);
            let mut before = [0; 8];
            near.region.read(8, &mut before);
            prop_assert_eq!(u64::from_ne_bytes(before), sum);
            sum = sum.wrapping_add(amount);
        }
        let mut after = [0; 8];
        far.region.read(24, &mut after);
        prop_assert_eq!(u64::from_ne_bytes(after), sum);
    }
}
