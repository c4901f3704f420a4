//! Transactions are undone newest first, whatever the wall clock does between them.

use std::rc::Rc;

use linerate_model::plan::{Change, Plan};
use linerate_model::setting::{SettingKey, Settings, Value};

use crate::apply::fake::FakeMachine;
use crate::apply::{
    Header, JournalOptions, NetnsIdentity, REVERTING, Reach, Surroundings, Transaction,
    journal_listing, recover, undo_committed,
};

static NOBODY: JournalOptions = JournalOptions::NOBODY;

/// Wall-clock times at which three transactions begin: normal, and set back by an hour before each.
const CLOCKS_NS: [[u64; 3]; 2] = [
    [
        1_000_000_000_000_000,
        1_000_060_000_000_000,
        1_000_120_000_000_000,
    ],
    [
        9_000_000_000_000_000,
        5_400_000_000_000_000,
        1_800_000_000_000_000,
    ],
];

fn reordering() -> SettingKey {
    "sysctl/net.ipv4.tcp_reordering".parse().expect("a key")
}

fn machine() -> Rc<FakeMachine> {
    let settings = Settings::from([(reordering(), Value::Integer(3))]);
    Rc::new(FakeMachine::new(settings, Vec::new()))
}

/// Changes 3 to 5, 5 to 7 and 7 to 9, each in its own transaction that begins at the given wall-clock time.
fn three(
    machine: &Rc<FakeMachine>,
    state: &std::path::Path,
    clock_ns: [u64; 3],
) -> Vec<Transaction<Rc<FakeMachine>>> {
    let begin = |(at_ns, from): (u64, u64)| {
        let header = Header::here(at_ns).expect("this process");
        let machine = Rc::clone(machine);
        let mut transaction =
            Transaction::begin(machine, state, &header, &NOBODY).expect("a state folder");
        let change = Change {
            setting: reordering(),
            from: Value::Integer(from),
            to: Value::Integer(from + 2),
        };
        let plan = Plan::new(vec![change]).expect("one change");
        transaction.apply(&plan).expect("no fault");
        transaction
    };
    clock_ns.into_iter().zip([3, 5, 7]).map(begin).collect()
}

fn with_surroundings<T>(machine: &Rc<FakeMachine>, work: impl FnOnce(&Surroundings<'_>) -> T) -> T {
    let boot_id = Header::here(1).expect("this process").boot_id;
    let reach = |_: &NetnsIdentity| Reach::Machine(Box::new(Rc::clone(machine)));
    work(&Surroundings {
        boot_id: &boot_id,
        is_alive: &|_| false,
        reach: &reach,
        patience: REVERTING,
        beside: &NOBODY,
    })
}

#[test]
fn recovery_undoes_the_newest_first_also_when_the_clock_was_set_back() {
    for clock_ns in CLOCKS_NS {
        let (machine, state) = (machine(), tempfile::tempdir().expect("a state folder"));
        for transaction in three(&machine, state.path(), clock_ns) {
            transaction.die();
        }
        with_surroundings(&machine, |around| recover(state.path(), around)).expect("readable");
        assert_eq!(machine.settings()[&reordering()], Value::Integer(3));
        let left = journal_listing(state.path()).expect("readable");
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn an_undo_undoes_the_newest_commit_also_when_the_clock_was_set_back() {
    for clock_ns in CLOCKS_NS {
        let (machine, state) = (machine(), tempfile::tempdir().expect("a state folder"));
        let mut ids = Vec::new();
        for transaction in three(&machine, state.path(), clock_ns) {
            ids.push(transaction.id());
            transaction.commit().expect("a writable journal");
        }
        let listed = journal_listing(state.path()).expect("readable");
        let listed: Vec<String> = listed.into_iter().map(|listed| listed.id).collect();
        assert_eq!(listed, ids);
        for (id, value) in ids.iter().rev().zip([7, 5, 3]) {
            let undone = with_surroundings(&machine, |around| {
                undo_committed(state.path(), None, around)
            });
            assert_eq!(undone.expect("readable")[0].id, *id);
            assert_eq!(machine.settings()[&reordering()], Value::Integer(value));
        }
    }
}

#[test]
fn a_transaction_that_begins_after_others_were_undone_comes_after_those_that_are_left() {
    let (machine, state) = (machine(), tempfile::tempdir().expect("a state folder"));
    let mut first = three(&machine, state.path(), CLOCKS_NS[0]).into_iter();
    let kept = first.next().expect("three");
    for transaction in first.rev() {
        transaction.undo().expect("no fault");
    }
    kept.commit().expect("a writable journal");
    let header = Header::here(0).expect("this process");
    let later = Transaction::begin(Rc::clone(&machine), state.path(), &header, &NOBODY)
        .expect("a state folder");
    let listed = journal_listing(state.path()).expect("readable");
    assert_eq!(listed.last().map(|listed| &listed.id), Some(&later.id()));
}
