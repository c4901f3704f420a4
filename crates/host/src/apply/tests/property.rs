//! On a simulated machine: whatever goes wrong, the settings end old or new, and changes by other processes are kept.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use linerate_model::plan::{Change, Plan};
use linerate_model::setting::{SettingKey, Settings, Value};
use proptest::prelude::*;

use crate::apply::fake::{FakeMachine, Fault, Mortal};
use crate::apply::{
    ApplyError, Ending, Header, JournalError, JournalOptions, NetnsIdentity, Outcome, REVERTING,
    Reach, Recovered, Surroundings, Transaction, UnrestoredWhy, folder_of, journal_listing,
    recover, undo_committed,
};

pub(super) static NOBODY: JournalOptions = JournalOptions::NOBODY;

pub(super) const SYSCTLS: [&str; 3] = ["sysctl/net.a.x", "sysctl/net.a.y", "sysctl/net.a.z"];
const CHECKSUM: &str = "nic/eth0/feature/tx-checksum-ip-generic";
const TSO: &str = "nic/eth0/feature/tx-tcp-segmentation";
pub(super) const CHANNELS: &str = "nic/eth0/channels/combined";
pub(super) const XPS: &str = "nic/eth0/queue/tx-0/xps-cpus";
const GRO: &str = "nic/eth0/feature/rx-gro";

pub(super) fn key(text: &str) -> SettingKey {
    text.parse().expect("a key")
}

pub(super) fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}

/// A state directory on tmpfs if there is one: hundreds of cases, each with a dozen syncs.
pub(super) fn state() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() {
        tempfile::tempdir_in(memory)
    } else {
        tempfile::tempdir()
    };
    made.expect("a state folder")
}

pub(super) fn machine(switches: [bool; 3], faults: Vec<Fault>) -> Rc<FakeMachine> {
    let mut settings = Settings::new();
    for sysctl in SYSCTLS {
        settings.insert(key(sysctl), text("old"));
    }
    for (name, on) in [CHECKSUM, TSO, GRO].into_iter().zip(switches) {
        settings.insert(key(name), Value::Switch(on));
    }
    settings.insert(key(CHANNELS), Value::Integer(4));
    settings.insert(key(XPS), text("3"));
    let machine = FakeMachine::new(settings, faults)
        .couple(key(TSO), key(CHECKSUM))
        .reset(key(CHANNELS), key(XPS), text(""));
    Rc::new(machine)
}

fn any_setting() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        SYSCTLS[0], SYSCTLS[1], SYSCTLS[2], CHECKSUM, TSO, GRO, CHANNELS, XPS,
    ])
}

fn any_fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        (0usize..9).prop_map(Fault::RefuseWrite),
        (0usize..9).prop_map(Fault::IgnoreWrite),
        (0usize..9).prop_map(|n| Fault::LieAfterWrite(n, text("lie"))),
        (0usize..9, 0usize..3).prop_map(|(n, which)| Fault::Foreign(
            n,
            key(SYSCTLS[which]),
            text("foreign")
        )),
    ]
}

#[derive(Debug, Clone)]
struct Case {
    switches: [bool; 3],
    order: Vec<&'static str>,
    faults: Vec<Fault>,
    die_at: usize,
    die_again_at: usize,
    commit: bool,
    meanwhile: Meanwhile,
}

/// What happens to the interface between the crash and the recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meanwhile {
    Nothing,
    Rename,
    /// To another network namespace, and back after a recovery.
    Move,
}

fn any_meanwhile() -> impl Strategy<Value = Meanwhile> {
    prop::sample::select(vec![Meanwhile::Nothing, Meanwhile::Rename, Meanwhile::Move])
}

fn any_case() -> impl Strategy<Value = Case> {
    (
        any::<[bool; 3]>(),
        proptest::collection::vec(any_setting(), 1..5),
        proptest::collection::vec(any_fault(), 0..3),
        // Beyond the last step: no crash.
        0usize..160,
        0usize..80,
        any::<bool>(),
        any_meanwhile(),
    )
        .prop_map(
            |(switches, mut order, faults, die_at, die_again_at, commit, meanwhile)| {
                let mut seen = Vec::new();
                order.retain(|one| {
                    !seen.contains(one) && {
                        seen.push(one);
                        true
                    }
                });
                Case {
                    switches,
                    order,
                    faults,
                    die_at,
                    die_again_at,
                    commit,
                    meanwhile,
                }
            },
        )
}

pub(super) fn plan(machine: &FakeMachine, order: &[&str]) -> Plan {
    let settings = machine.settings();
    let change = |name: &&str| {
        let setting = key(name);
        let from = settings[&setting].clone();
        let to = match &from {
            Value::Switch(on) => Value::Switch(!on),
            Value::Integer(count) => Value::Integer(count / 2),
            _ => text("new"),
        };
        Change { setting, from, to }
    };
    Plan::new(order.iter().map(change).collect()).expect("every setting once")
}

pub(super) fn header() -> Header {
    Header::here(1).expect("this process")
}

pub(super) fn around<'a>(
    boot_id: &'a str,
    reach: &'a dyn Fn(&NetnsIdentity) -> Reach,
) -> Surroundings<'a> {
    Surroundings {
        boot_id,
        // The crashed process in these tests is this one.
        is_alive: &|_| false,
        reach,
        patience: REVERTING,
        beside: &NOBODY,
    }
}

fn die() {
    // Not a message for the test's output.
    panic_any(());
}

/// Applies, may crash, recovers until there is nothing more to do.
fn live_and_die(case: &Case, machine: &Rc<FakeMachine>, state: &Path) -> bool {
    let plan = plan(machine, &case.order);
    let mortal = Mortal::new(Rc::clone(machine), case.die_at, die);
    let mut transaction =
        Transaction::begin(mortal, state, &header(), &NOBODY).expect("a writable state folder");
    let committed = match catch_unwind(AssertUnwindSafe(|| transaction.apply(&plan))) {
        Err(_) => {
            transaction.die();
            false
        }
        Ok(Ok(())) if case.commit => {
            transaction.commit().expect("a writable journal");
            true
        }
        Ok(_) => {
            // Rolled back already, or by the drop; the machine may crash in that too.
            drop(catch_unwind(AssertUnwindSafe(|| drop(transaction))));
            false
        }
    };
    match case.meanwhile {
        Meanwhile::Nothing => {}
        Meanwhile::Rename => machine.rename("eth0", "lan0"),
        Meanwhile::Move => machine.move_away("eth0"),
    }
    let boot_id = header().boot_id;
    let dying = |_: &_| {
        Reach::Machine(Box::new(Mortal::new(
            Rc::clone(machine),
            case.die_again_at,
            die,
        )))
    };
    drop(catch_unwind(AssertUnwindSafe(|| {
        recover(state, &around(&boot_id, &dying))
    })));
    let healthy = |_: &_| Reach::Machine(Box::new(Rc::clone(machine)));
    recover(state, &around(&boot_id, &healthy)).expect("a readable state folder");
    machine.move_back();
    for _ in 0..=case.faults.len() {
        recover(state, &around(&boot_id, &healthy)).expect("a readable state folder");
    }
    if case.meanwhile == Meanwhile::Rename {
        machine.rename("lan0", "eth0");
    }
    committed
}

fn quietly<T>(work: impl FnOnce() -> T) -> T {
    use std::sync::Once;
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !info.payload().is::<()>() {
                usual(info);
            }
        }));
    });
    work()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]
    #[test]
    fn whatever_goes_wrong_the_settings_end_old_or_new_and_what_others_set_stays(case in any_case()) {
        let machine = machine(case.switches, case.faults.clone());
        let old = machine.settings();
        let new = {
            let ideal = self::machine(case.switches, Vec::new());
            let plan = plan(&ideal, &case.order);
            let state = state();
            let mut transaction =
                Transaction::begin(&*ideal, state.path(), &header(), &NOBODY).expect("a state folder");
            match transaction.apply(&plan) {
                Ok(()) => transaction.commit().expect("a writable journal"),
                Err(_) => drop(transaction),
            }
            ideal.settings()
        };
        let state = state();
        let committed = quietly(|| live_and_die(&case, &machine, state.path()));
        let end = machine.settings();
        let wanted = if committed { &new } else { &old };
        let foreign = machine.foreign();
        for (setting, value) in &end {
            let wanted = foreign.get(setting).unwrap_or(&wanted[setting]);
            prop_assert_eq!(value, wanted, "{}", setting);
        }
        for listed in journal_listing(state.path()).expect("a readable folder") {
            let told = listed.journal.expect("a whole journal");
            prop_assert_ne!(told.ending, Ending::Open);
        }
    }
}

#[test]
fn a_plan_that_starts_elsewhere_changes_nothing() {
    let (machine, state) = (machine([true; 3], Vec::new()), state());
    let plan = plan(&machine, &SYSCTLS);
    machine.set(&key(SYSCTLS[2]), text("moved"));
    let before = machine.settings();
    let mut transaction =
        Transaction::begin(&*machine, state.path(), &header(), &NOBODY).expect("a state folder");
    let error = transaction.apply(&plan).expect_err("the start has moved");
    assert!(matches!(error, ApplyError::Untouched { .. }));
    assert_eq!(
        error.to_string(),
        "cannot change sysctl/net.a.z: it is moved, the plan expects old; nothing was changed"
    );
    assert_eq!(machine.settings(), before);
}

#[test]
fn what_somebody_else_changed_meanwhile_is_reported_and_stays() {
    let (machine, state) = (machine([true; 3], Vec::new()), state());
    let plan = plan(&machine, &SYSCTLS[..2]);
    let mut transaction =
        Transaction::begin(&*machine, state.path(), &header(), &NOBODY).expect("a state folder");
    transaction.apply(&plan).expect("no fault");
    machine.set(&key(SYSCTLS[0]), text("theirs"));
    let undone = transaction.undo().expect("nothing failed");
    assert_eq!(undone.restored, [key(SYSCTLS[1])]);
    assert_eq!(
        undone.left[0].to_string(),
        "sysctl/net.a.x is theirs: another program changed it, so it was not restored to old"
    );
    assert_eq!(
        undone.left[0].by_hand().as_deref(),
        Some("sysctl -w net.a.x=old")
    );
    assert_eq!(machine.settings()[&key(SYSCTLS[0])], text("theirs"));
}

#[test]
fn a_restore_that_keeps_failing_says_what_is_left_and_how_to_complete_it() {
    let refusals = (1..9).map(Fault::RefuseWrite).collect();
    let (machine, state) = (machine([true; 3], refusals), state());
    let old = machine.settings();
    let plan = plan(&machine, &SYSCTLS[..2]);
    let mut transaction = Transaction::begin(Rc::clone(&machine), state.path(), &header(), &NOBODY)
        .expect("a state folder");
    let error = transaction
        .apply(&plan)
        .expect_err("the second write is refused");
    let ApplyError::RestoreIncomplete { left, command, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(command, "linerate tune recover");
    assert!(
        matches!(&left[0].why, UnrestoredWhy::Failed { .. }),
        "{left:?}"
    );
    drop(transaction);
    let boot_id = header().boot_id;
    let reach = |_: &_| Reach::Machine(Box::new(Rc::clone(&machine)));
    let around = Surroundings {
        // It has given up, so whether it runs does not matter.
        is_alive: &|_| true,
        ..around(&boot_id, &reach)
    };
    let mut rounds = 0;
    while machine.settings() != old {
        recover(state.path(), &around).expect("a readable folder");
        rounds += 1;
        assert!(rounds < 9, "{:?}", machine.settings());
    }
}

#[test]
fn a_transaction_of_another_boot_or_a_living_owner_is_not_touched() {
    let (machine, state) = (machine([true; 3], Vec::new()), state());
    let mut transaction =
        Transaction::begin(&*machine, state.path(), &header(), &NOBODY).expect("a state folder");
    transaction
        .apply(&plan(&machine, &SYSCTLS))
        .expect("no fault");
    transaction.die();
    let changed = machine.settings();
    let reach = |_: &_| -> Reach { panic!("nobody may reach for it") };
    let boot_id = header().boot_id;
    let alive = Surroundings {
        is_alive: &|_| true,
        ..around(&boot_id, &reach)
    };
    let told = recover(state.path(), &alive).expect("a readable folder");
    assert!(
        matches!(told[0].outcome, Outcome::OwnerAlive(_)),
        "{told:?}"
    );
    let told = recover(state.path(), &around("another", &reach)).expect("a readable folder");
    assert!(
        matches!(told[0].outcome, Outcome::NothingLeft(_)),
        "{told:?}"
    );
    assert_eq!(machine.settings(), changed);
    let again = recover(state.path(), &around(&boot_id, &reach)).expect("a readable folder");
    assert!(again.is_empty(), "{again:?}");
}

#[test]
fn a_committed_transaction_that_changed_nothing_here_outlives_a_reboot() {
    let (machine, state) = (machine([true; 3], Vec::new()), state());
    // It belongs to changes of another host, which this host's reboot is nothing to.
    let of_another_host = Transaction::begin(&*machine, state.path(), &header(), &NOBODY);
    let of_another_host = of_another_host.expect("a state folder");
    let id = of_another_host.id();
    of_another_host.commit().expect("committed");
    let mut of_this_host =
        Transaction::begin(&*machine, state.path(), &header(), &NOBODY).expect("a state folder");
    of_this_host
        .apply(&plan(&machine, &SYSCTLS))
        .expect("no fault");
    of_this_host.commit().expect("committed");
    let reach = |_: &_| -> Reach { panic!("nobody may reach for it") };
    let rebooted = around("another", &reach);
    let told = recover(state.path(), &rebooted).expect("a readable folder");
    assert!(told.is_empty(), "{told:?}");
    let left = journal_listing(state.path()).expect("a readable folder");
    let left: Vec<_> = left.iter().map(|listed| &listed.id).collect();
    assert_eq!(left, [&id]);
    let undone = undo_committed(state.path(), Some(&id), &rebooted).expect("a readable folder");
    assert!(
        matches!(undone[0].outcome, Outcome::NothingLeft(_)),
        "{undone:?}"
    );
    let left = journal_listing(state.path()).expect("a readable folder");
    assert!(left.is_empty());
}

#[test]
fn a_journal_that_another_process_holds_is_waited_for_only_so_long() {
    let (machine, state) = (machine([true; 3], Vec::new()), state());
    let old = machine.settings();
    let boot_id = header().boot_id;
    let reach = |_: &_| Reach::Machine(Box::new(Rc::clone(&machine)));
    // A child of another test may share the descriptor until it calls exec: this is temporary.
    let around = around(&boot_id, &reach);
    let impatient = Surroundings {
        patience: Duration::ZERO,
        ..around
    };
    let changed = || {
        let mut transaction =
            Transaction::begin(Rc::clone(&machine), state.path(), &header(), &NOBODY)
                .expect("a state folder");
        transaction
            .apply(&plan(&machine, &SYSCTLS))
            .expect("no fault");
        transaction
    };
    // A file opened a second time can be locked against the first descriptor, like another process.
    let hold = |id: &str| {
        let journal = File::open(folder_of(state.path(), id).join("journal")).expect("a journal");
        journal.lock().expect("nobody has it");
        journal
    };
    let transaction = changed();
    let id = transaction.id();
    transaction.die();
    let other = hold(&id);
    let told = recover(state.path(), &impatient).expect("a readable folder");
    let [
        Recovered {
            outcome: Outcome::Busy(why),
            ..
        },
    ] = &told[..]
    else {
        panic!("{told:?}");
    };
    assert!(why.contains(&id) && why.contains("may hang"), "{why}");
    assert_ne!(machine.settings(), old, "it is the other one's to put back");
    drop(other);
    recover(state.path(), &around).expect("a readable folder");
    assert_eq!(machine.settings(), old);

    let transaction = changed();
    let id = transaction.id();
    transaction.commit().expect("a writable journal");
    let other = hold(&id);
    let busy = undo_committed(state.path(), None, &impatient);
    assert!(matches!(busy, Err(JournalError::Busy { .. })), "{busy:?}");
    drop(other);
    undo_committed(state.path(), None, &around).expect("a readable folder");
    assert_eq!(machine.settings(), old);
}

#[test]
fn a_committed_transaction_can_be_undone_later() {
    let (machine, state) = (machine([true; 3], Vec::new()), state());
    let old = machine.settings();
    let mut transaction =
        Transaction::begin(&*machine, state.path(), &header(), &NOBODY).expect("a state folder");
    transaction
        .apply(&plan(&machine, &[SYSCTLS[0], CHECKSUM]))
        .expect("no fault");
    transaction.commit().expect("a writable journal");
    assert_ne!(machine.settings(), old);
    let boot_id = header().boot_id;
    let reach = |_: &_| Reach::Machine(Box::new(Rc::clone(&machine)));
    let around = around(&boot_id, &reach);
    assert!(recover(state.path(), &around).expect("readable").is_empty());
    let undone = undo_committed(state.path(), None, &around).expect("readable");
    assert!(
        matches!(undone[..], [ref one] if matches!(one.outcome, Outcome::Restored(_))),
        "{undone:?}"
    );
    assert_eq!(machine.settings(), old);
    assert!(
        undo_committed(state.path(), None, &around)
            .expect("readable")
            .is_empty()
    );
}

#[test]
fn what_a_write_brought_along_is_taken_back_along() {
    let (machine, state) = (machine([true; 3], Vec::new()), state());
    let old = machine.settings();
    let mut transaction =
        Transaction::begin(&*machine, state.path(), &header(), &NOBODY).expect("a state folder");
    transaction
        .apply(&plan(&machine, &[CHECKSUM, TSO]))
        .expect("no fault");
    assert_eq!(machine.settings()[&key(TSO)], Value::Switch(false));
    assert_eq!(transaction.changes().count(), 1, "TSO fell with checksums");
    transaction.undo().expect("nothing failed");
    assert_eq!(machine.settings(), old);
}

#[test]
fn a_later_change_that_moves_an_earlier_one_is_named_and_all_is_taken_back() {
    let cases = [
        (
            [XPS, CHANNELS],
            "nic/eth0/queue/tx-0/xps-cpus was set to `new`, but after all changes it is `none`; \
             the later change of nic/eth0/channels/combined modified it; all changes were rolled back",
        ),
        (
            [TSO, CHECKSUM],
            "nic/eth0/feature/tx-tcp-segmentation was set to `on`, but after all changes it is `off`; \
             the later change of nic/eth0/feature/tx-checksum-ip-generic modified it; \
             all changes were rolled back",
        ),
    ];
    for (order, told) in cases {
        let (machine, state) = (machine([true, false, true], Vec::new()), state());
        let old = machine.settings();
        let mut transaction = Transaction::begin(&*machine, state.path(), &header(), &NOBODY)
            .expect("a state folder");
        let error = transaction
            .apply(&plan(&machine, &order))
            .expect_err("the second change moves the first");
        assert_eq!(error.to_string(), told);
        assert_eq!(machine.settings(), old);
    }
    // One queue's value is reported for all.
    let (all, one) = ("nic/eth0/coalesce/rx-usecs", "nic/eth0/queue/rx-0/rx-usecs");
    for (told_of_all, holds) in [(32, true), (5, false)] {
        let both = Settings::from([(key(all), Value::Integer(8)), (key(one), Value::Integer(8))]);
        let machine = FakeMachine::new(both, Vec::new()).reset(
            key(one),
            key(all),
            Value::Integer(told_of_all),
        );
        let change = |setting: &str, to| Change {
            setting: key(setting),
            from: Value::Integer(8),
            to: Value::Integer(to),
        };
        let plan = Plan::new(vec![change(all, 100), change(one, 32)]).expect("two settings");
        let state = state();
        let mut transaction =
            Transaction::begin(&machine, state.path(), &header(), &NOBODY).expect("a state folder");
        assert_eq!(transaction.apply(&plan).is_ok(), holds, "{told_of_all}");
    }
    // In the other direction both hold.
    let (machine, state) = (machine([true; 3], Vec::new()), state());
    let mut transaction =
        Transaction::begin(&*machine, state.path(), &header(), &NOBODY).expect("a state folder");
    let both = plan(&machine, &[CHANNELS, XPS]);
    transaction.apply(&both).expect("no fault");
    assert_eq!(machine.settings()[&key(XPS)], text("new"));
}

#[test]
fn what_somebody_else_changes_amid_a_plan_is_nobodys_later_change_and_stays() {
    let theirs = Fault::Foreign(1, key(SYSCTLS[0]), text("theirs"));
    let (machine, state) = (machine([true; 3], vec![theirs]), state());
    let mut transaction =
        Transaction::begin(&*machine, state.path(), &header(), &NOBODY).expect("a state folder");
    let error = transaction
        .apply(&plan(&machine, &SYSCTLS))
        .expect_err("the first change did not stay");
    assert_eq!(
        error.to_string(),
        "sysctl/net.a.x was set to `new`, but after all changes it is `theirs`; no later change \
         affects it, so another program may have changed it; all changes were rolled back; sysctl/net.a.x is theirs: \
         another program changed it, so it was not restored to old"
    );
    let now = machine.settings();
    assert_eq!(now[&key(SYSCTLS[0])], text("theirs"));
    assert_eq!(now[&key(SYSCTLS[1])], text("old"));
}

#[test]
fn what_somebody_else_changed_before_the_commit_is_told_and_stays() {
    let (machine, state) = (machine([true; 3], Vec::new()), state());
    let mut transaction =
        Transaction::begin(&*machine, state.path(), &header(), &NOBODY).expect("a state folder");
    transaction
        .apply(&plan(&machine, &SYSCTLS[..2]))
        .expect("no fault");
    assert_eq!(transaction.moved(), []);
    machine.set(&key(SYSCTLS[0]), text("theirs"));
    let told: Vec<String> = (transaction.moved().iter())
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        told,
        [
            "sysctl/net.a.x is theirs: another program changed it after it was set to new, so it is not restored"
        ]
    );
    transaction.commit().expect("a writable journal");
    assert_eq!(machine.settings()[&key(SYSCTLS[0])], text("theirs"));
}

#[test]
fn what_could_not_be_taken_back_is_not_made() {
    let scope = key("sysctl/kernel.yama.ptrace_scope");
    let settings = Settings::from([(scope.clone(), text("1"))]);
    let (machine, state) = (FakeMachine::new(settings, Vec::new()), state());
    let change = Change {
        setting: scope.clone(),
        from: text("1"),
        to: text("3"),
    };
    let mut transaction =
        Transaction::begin(&machine, state.path(), &header(), &NOBODY).expect("a state folder");
    let error = transaction
        .apply(&Plan::new(vec![change]).expect("one change"))
        .expect_err("it stays until the next boot");
    assert!(error.is_unsupported());
    assert_eq!(
        error.to_string(),
        "cannot set sysctl/kernel.yama.ptrace_scope: the kernel resets it only at the next boot; \
         nothing was changed"
    );
    assert_eq!(machine.settings()[&scope], text("1"));
}

#[test]
fn what_has_gone_with_its_device_is_told_and_the_rest_is_put_back() {
    let (machine, state) = (machine([true; 3], Vec::new()), state());
    let old = machine.settings();
    let mut transaction =
        Transaction::begin(&*machine, state.path(), &header(), &NOBODY).expect("a state folder");
    transaction
        .apply(&plan(&machine, &[SYSCTLS[0], XPS]))
        .expect("no fault");
    machine.remove(&key(XPS));
    let undone = transaction
        .undo()
        .expect("what is gone is nobody's to put back");
    assert_eq!(undone.restored, [key(SYSCTLS[0])]);
    let left: Vec<String> = undone.left.iter().map(ToString::to_string).collect();
    assert_eq!(
        left,
        ["nic/eth0/queue/tx-0/xps-cpus was 3 and no longer exists"]
    );
    assert_eq!(machine.settings()[&key(SYSCTLS[0])], old[&key(SYSCTLS[0])]);
}
