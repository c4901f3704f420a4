//! Requests are executed in the order in which they were posted, however they were posted, and complete as requested.

use linerate_verbs::{Opcode, Receive, Receives, Region, Send, Sends, Work};
use linerate_verbs_fake::Buffer;
use proptest::prelude::*;
use rustix::io::Errno;

use crate::ends::{End, Plan, device, pair};

/// So many writes, each of a different byte to the same place, with its index as number.
fn writes<'r>(near: &'r Region<Buffer>, far: &End, count: usize) -> Vec<Send<'r>> {
    (0..count)
        .map(|index| Send {
            id: index as u64,
            local: near.slice(index..index + 1),
            work: Work::Write(far.region.remote(0)),
            signaled: false,
            inline: false,
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn ranges_of_a_chain_are_posted_whole_and_in_order(
        steps in proptest::collection::vec((0_usize..16, 0_usize..16, any::<u16>()), 1..12)
    ) {
        let (_fake, device) = device();
        let (near, far) = pair(&device, Plan::default());
        for at in 0..16 {
            near.region.set(at, 100 + u8::try_from(at).expect("small"));
        }
        let mut sends = Sends::new(&writes(&near.region, &far, 16));
        for (first, last, signals) in steps {
            let (first, last) = (first.min(last), first.max(last));
            // The last of each step is signaled, so that all slots become free.
            let is_told = |index: usize| index == last || signals & (1 << index) != 0;
            for index in first..=last {
                sends.set_signaled(index, is_told(index));
            }
            sends.post(&near.queue_pair, first, last - first + 1).expect("a post");
            let told: Vec<u64> = (first..=last).filter(|index| is_told(*index)).map(|index| index as u64).collect();
            let ends = near.ends(told.len());
            let ids: Vec<u64> = ends.iter().map(linerate_verbs::Completion::id).collect();
            prop_assert_eq!(ids, told);
            prop_assert!(ends.iter().all(|end| end.status().is_ok()));
            prop_assert_eq!(usize::from(far.region.look(0)), 100 + last);
        }
    }

    #[test]
    fn messages_come_in_the_order_they_went_whenever_there_is_room(
        batches in proptest::collection::vec((1_usize..8, 1_usize..8), 1..10)
    ) {
        let (_fake, device) = device();
        let (near, far) = pair(&device, Plan { depth: 128, ..Plan::default() });
        let message = |id: u64| Send {
            id,
            local: near.region.slice(0..8),
            work: Work::SendNumber(u32::try_from(id).expect("small")),
            signaled: false,
            inline: false,
        };
        let (mut sent, mut given) = (0_u64, 0_u64);
        for (sends, receives) in batches {
            let chain: Vec<Send<'_>> = (0..sends as u64).map(|index| message(sent + index)).collect();
            Sends::new(&chain).post(&near.queue_pair, 0, sends).expect("a post");
            let rooms: Vec<Receive<'_>> = (0..receives as u64)
                .map(|index| Receive { id: given + index, local: far.region.slice(0..8) })
                .collect();
            Receives::new(&rooms).post(&far.queue_pair, 0, receives).expect("a post");
            sent += sends as u64;
            given += receives as u64;
        }
        let ends = far.ends(usize::try_from(sent.min(given)).expect("small"));
        for (index, end) in (0_u32..).zip(ends) {
            prop_assert_eq!((end.id(), end.number()), (index.into(), Some(index)));
        }
    }
}

#[test]
fn a_full_queue_says_how_many_it_took_and_is_free_again_when_a_later_end_was_taken() {
    let (_fake, device) = device();
    let plan = Plan {
        depth: 4,
        ..Plan::default()
    };
    let (near, far) = pair(&device, plan);
    let mut sends = Sends::new(&writes(&near.region, &far, 6));
    sends.set_signaled(3, true);
    sends.set_id(3, 77);
    let refused = sends.post(&near.queue_pair, 0, 6);
    assert_eq!(refused, Err((4, Errno::NOMEM)));
    assert_eq!(near.end(), (77, Ok(Opcode::Sent)));
    sends.set_signaled(5, true);
    sends.post(&near.queue_pair, 4, 2).expect("there is room");
    assert_eq!(near.end(), (5, Ok(Opcode::Sent)));

    let rooms = [Receive {
        id: 0,
        local: far.region.slice(0..8),
    }; 6];
    let refused = Receives::new(&rooms).post(&far.queue_pair, 0, 6);
    assert_eq!(refused, Err((4, Errno::NOMEM)));
}

#[test]
fn nothing_is_posted_of_an_empty_range_and_none_beyond_the_chain() {
    let (fake, device) = device();
    let (near, far) = pair(&device, Plan::default());
    let mut sends = Sends::new(&writes(&near.region, &far, 2));
    assert_eq!((sends.len(), sends.is_empty()), (2, false));
    sends.post(&near.queue_pair, 2, 0).expect("nothing");
    let mut none = Receives::new(&[]);
    assert!(none.is_empty());
    none.post(&far.queue_pair, 0, 0).expect("nothing");
    for (first, count) in [(1, 2), (3, 0), (usize::MAX, 2)] {
        let beyond = std::panic::AssertUnwindSafe(|| sends.post(&near.queue_pair, first, count));
        let panicked = std::panic::catch_unwind(beyond).is_err();
        assert!(panicked, "{count} from {first}");
        sends = Sends::new(&writes(&near.region, &far, 2));
    }
    assert_eq!(fake.messages(), 0);
}

#[test]
fn what_travels_in_its_request_is_taken_when_it_is_posted() {
    let (_fake, device) = device();
    let plan = Plan {
        inline: 8,
        ..Plan::default()
    };
    let (near, far) = pair(&device, plan);
    let mut sends = Sends::new(&[Send {
        id: 1,
        local: near.region.slice(0..8),
        work: Work::Send,
        signaled: true,
        inline: true,
    }]);
    near.region.write(0, b"inlined!");
    sends.post(&near.queue_pair, 0, 1).expect("a post");
    // There is no room for it yet, so nothing of it has moved.
    near.region.write(0, b"changed.");
    let mut rooms = Receives::new(&[Receive {
        id: 2,
        local: far.region.slice(16..24),
    }]);
    rooms.post(&far.queue_pair, 0, 1).expect("a post");
    assert_eq!(far.end(), (2, Ok(Opcode::Received)));
    let mut came = [0; 8];
    far.region.read(16, &mut came);
    assert_eq!(&came, b"inlined!");
}

#[test]
fn single_requests_go_between_those_of_a_chain() {
    let (_fake, device) = device();
    let plan = Plan {
        depth: 4,
        ..Plan::default()
    };
    let (near, far) = pair(&device, plan);
    for id in 0..3 {
        let local = far.region.slice(8..16);
        let room = Receive { id, local };
        far.queue_pair.receive(&room).expect("room");
    }
    let one = |number: u32| Send {
        id: number.into(),
        local: near.region.slice(0..8),
        work: Work::SendNumber(number),
        signaled: false,
        inline: false,
    };
    near.queue_pair.send(&one(0)).expect("a post");
    let mut chain = Sends::new(&[one(1)]);
    chain.post(&near.queue_pair, 0, 1).expect("a post");
    near.queue_pair.send(&one(2)).expect("a post");
    let numbers: Vec<Option<u32>> = (far.ends(3).iter())
        .map(linerate_verbs::Completion::number)
        .collect();
    assert_eq!(numbers, [Some(0), Some(1), Some(2)]);
    near.queue_pair.send(&one(3)).expect("a post");
    let refused = near.queue_pair.send(&one(4));
    assert_eq!(refused, Err(Errno::NOMEM), "no end was asked for and taken");
}
