//! On a simulated machine: what an undo does if the interface was renamed, moved, removed or recreated meanwhile.

use std::path::Path;
use std::rc::Rc;

use linerate_model::setting::{SettingKey, Settings, Value};

use super::property::{
    CHANNELS, NOBODY, SYSCTLS, XPS, around, header, key, machine, plan, state, text,
};
use crate::apply::fake::{FakeMachine, Mortal};
use crate::apply::{
    NetnsIdentity, Outcome, Reach, Transaction, UnrestoredWhy, journal_listing, recover,
    undo_committed,
};

/// A committed transaction that has changed a sysctl and the number of queues, before the interface changes.
fn committed_on_an_interface() -> (Rc<FakeMachine>, tempfile::TempDir) {
    let (machine, state) = (machine([true; 3], Vec::new()), state());
    let mut transaction =
        Transaction::begin(&*machine, state.path(), &header(), &NOBODY).expect("a state folder");
    transaction
        .apply(&plan(&machine, &[SYSCTLS[0], CHANNELS]))
        .expect("no fault");
    transaction.commit().expect("a writable journal");
    (machine, state)
}

fn undo_newest(machine: &Rc<FakeMachine>, state: &Path) -> Vec<Outcome> {
    let boot_id = header().boot_id;
    let reach = |_: &_| Reach::Machine(Box::new(Rc::clone(machine)));
    let undone = undo_committed(state, None, &around(&boot_id, &reach));
    let undone = undone.expect("a readable folder").into_iter();
    undone.map(|one| one.outcome).collect()
}

#[test]
fn another_interface_that_has_the_name_now_is_left_alone() {
    let (machine, state) = committed_on_an_interface();
    machine.make_again("eth0");
    let outcomes = undo_newest(&machine, state.path());
    let [Outcome::Restored(undone)] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert_eq!(undone.restored, [key(SYSCTLS[0])]);
    let left: Vec<&SettingKey> = undone.left.iter().map(|left| &left.setting).collect();
    assert_eq!(left, [&key(CHANNELS), &key(XPS)]);
    assert!(
        undone
            .left
            .iter()
            .all(|left| left.why == UnrestoredWhy::Gone)
    );
    let now = machine.settings();
    assert_eq!(now[&key(CHANNELS)], Value::Integer(2));
    assert_eq!(now[&key(XPS)], text(""));
}

#[test]
fn a_renamed_interface_gets_its_old_values_back() {
    let (machine, state) = committed_on_an_interface();
    machine.rename("eth0", "lan0");
    let outcomes = undo_newest(&machine, state.path());
    let [Outcome::Restored(undone)] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert!(undone.left.is_empty(), "{undone:?}");
    let now = machine.settings();
    assert_eq!(now[&key("nic/lan0/channels/combined")], Value::Integer(4));
    assert_eq!(now[&key("nic/lan0/queue/tx-0/xps-cpus")], text("3"));
    assert!(journal_listing(state.path()).expect("readable").is_empty());
}

#[test]
fn an_interface_in_another_namespace_keeps_the_journal_open_until_it_is_back() {
    let (machine, state) = committed_on_an_interface();
    machine.move_away("eth0");
    let outcomes = undo_newest(&machine, state.path());
    let [Outcome::Incomplete(undone)] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert_eq!(undone.restored, [key(SYSCTLS[0])]);
    assert!(matches!(undone.left[0].why, UnrestoredWhy::Failed { .. }));
    machine.move_back();
    let boot_id = header().boot_id;
    let reach = |_: &_| Reach::Machine(Box::new(Rc::clone(&machine)));
    recover(state.path(), &around(&boot_id, &reach)).expect("a readable folder");
    let now = machine.settings();
    assert_eq!(now[&key(CHANNELS)], Value::Integer(4));
    assert_eq!(now[&key(XPS)], text("3"));
    assert!(journal_listing(state.path()).expect("readable").is_empty());
}

#[test]
fn what_was_removed_with_its_interface_is_reported_as_gone() {
    let (machine, state) = committed_on_an_interface();
    machine.remove_interface("eth0");
    let outcomes = undo_newest(&machine, state.path());
    let [Outcome::Restored(undone)] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert!(
        undone
            .left
            .iter()
            .all(|left| left.why == UnrestoredWhy::Gone)
    );
    assert_eq!(machine.settings()[&key(SYSCTLS[0])], text("old"));
}

#[test]
fn a_device_that_outlives_its_namespace_gets_its_old_values_back_and_nothing_else_is_touched() {
    let (machine, state) = committed_on_an_interface();
    // The contents of the initial namespace: the device with another index and name, and its own sysctls.
    machine.rename("eth0", "ens1");
    machine.move_away("ens1");
    machine.move_back();
    machine.set(&key(SYSCTLS[0]), text("new"));
    let gone = header().netns;
    let here = NetnsIdentity::current().expect("a namespace");
    let (boot_id, asked) = (header().boot_id, std::cell::Cell::new(0));
    let reach = |netns: &NetnsIdentity| {
        assert!(netns.is(&gone) && netns.is(&here));
        match asked.replace(asked.get() + 1) {
            0 | 1 => Reach::Gone,
            _ => Reach::Machine(Box::new(Rc::clone(&machine))),
        }
    };
    let undone = undo_committed(state.path(), None, &around(&boot_id, &reach));
    let undone = undone.expect("a readable folder");
    assert!(
        matches!(undone[0].outcome, Outcome::Restored(_)),
        "{undone:?}"
    );
    let now = machine.settings();
    assert_eq!(now[&key("nic/ens1/channels/combined")], Value::Integer(4));
    assert_eq!(now[&key("nic/ens1/queue/tx-0/xps-cpus")], text("3"));
    assert_eq!(now[&key(SYSCTLS[0])], text("new"));
}

#[test]
fn another_disk_that_has_the_name_now_is_left_alone() {
    let scheduler = key("block/sda/scheduler");
    let settings = Settings::from([(scheduler.clone(), text("mq-deadline"))]);
    let (machine, state) = (FakeMachine::new(settings, Vec::new()), state());
    let mut transaction =
        Transaction::begin(&machine, state.path(), &header(), &NOBODY).expect("a state folder");
    let plan = plan(&machine, &["block/sda/scheduler"]);
    transaction.apply(&plan).expect("no fault");
    machine.replace_devices();
    let undone = transaction.undo().expect("nothing failed");
    assert_eq!(undone.left[0].why, UnrestoredWhy::Gone);
    assert_eq!(machine.settings()[&scheduler], text("new"));
}

#[test]
fn an_interface_that_is_made_again_amid_a_change_is_not_written_to() {
    for step in 0..40 {
        let (machine, state) = (machine([true; 3], Vec::new()), state());
        let plan = plan(&machine, &[CHANNELS]);
        let made_with = std::cell::Cell::new(None);
        let make_again = || {
            machine.make_again("eth0");
            made_with.set(Some(machine.settings()));
        };
        let mortal = Mortal::new(Rc::clone(&machine), step, make_again);
        let mut transaction =
            Transaction::begin(mortal, state.path(), &header(), &NOBODY).expect("a state folder");
        if transaction.apply(&plan).is_ok() {
            transaction.undo().expect("what is gone is settled");
        }
        if let Some(settings) = made_with.take() {
            assert_eq!(machine.settings(), settings, "at step {step}");
        }
    }
}
