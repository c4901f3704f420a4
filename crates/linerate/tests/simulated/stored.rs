//! Runs on a real disk: what a killed session leaves can be read, judged and shown.

use std::fs;

use linerate::prove::show::show;
use linerate_analysis::proof::document;
use linerate_analysis::record::Record;
use linerate_model::exit::Code;
use linerate_model::plan::End;
use linerate_runtime::console::say::{Format, Say};
use linerate_store::{self as store, Log, Run};

use crate::world::{Cost, World, put};
use crate::{header, options, prove};

fn world() -> World {
    let mut world = World::new(9, 25, |near, _| {
        put(near, "nic/near0/feature/tx-tcp-segmentation", "off");
    });
    world.costs = vec![Cost {
        end: End::Local,
        key: "nic/near0/feature/tx-tcp-segmentation",
        holds: |value| value == "off",
        factor: 0.6,
    }];
    world
}

fn quiet() -> Say {
    Say {
        format: Format::Json,
        quiet: true,
    }
}

#[test]
fn a_run_that_was_killed_after_any_record_is_judged_by_what_it_holds() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("run");
    let mut run = Run::create(&folder, &header(9)).expect("a new run");
    prove(&mut world(), &mut run, options(9)).expect("nothing goes wrong");
    let whole = fs::read(folder.join("records.jsonl")).expect("the records");
    let stored = store::read(&folder).expect("the run");
    assert_eq!(stored.records, run.records());
    for kept in 0..stored.records.len() {
        let said = document(&stored.header, &stored.records[..kept]);
        assert!(!said.restored, "after {kept} records nothing says so");
        assert!(
            said.limit_after.is_none() || said.after.trials > 0,
            "after {kept} records"
        );
        assert_eq!(said.after.rate_bit_per_s.is_nan(), said.after.trials == 0);
    }
    assert!(document(&stored.header, &stored.records).restored);
    // Cut at every line, and once within each: the page and the document are made all the same.
    let ends: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] == b'\n').collect();
    for (number, end) in ends.iter().enumerate().step_by(5) {
        for cut in [end + 1, end - 10] {
            fs::write(folder.join("records.jsonl"), &whole[..cut]).expect("the cut");
            let shown = show(&folder, &folder.join("report.html"), &quiet());
            let has_hosts = number > 0 || cut > *end;
            assert_eq!(shown.is_ok(), has_hosts, "cut at {cut}: {shown:?}");
        }
    }
}

#[test]
fn a_run_that_was_killed_before_its_first_record_says_so() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("run");
    drop(Run::create(&folder, &header(9)).expect("a new run"));
    let show = || show(&folder, &folder.join("report.html"), &quiet());
    let stop = show().expect_err("there is nothing to show");
    assert_eq!(stop.code, Code::Inconclusive);
    assert!(
        stop.message.contains("before both hosts were read"),
        "{stop}"
    );
    // Killed between the header and the file of records.
    fs::remove_file(folder.join("records.jsonl")).expect("the file");
    let stop = show().expect_err("there is nothing to show");
    assert_eq!(stop.code, Code::Inconclusive, "{stop}");
}

#[test]
fn a_stored_run_tells_why_it_stopped() {
    let place = tempfile::tempdir().expect("a folder");
    let folder = place.path().join("run");
    let mut run = Run::create(&folder, &header(9)).expect("a new run");
    let mut world = world();
    world.planned = Some(crate::world::Planned {
        fault: crate::world::Fault::Interrupt,
        at: 12,
    });
    let stop = prove(&mut world, &mut run, options(9)).expect_err("Ctrl-C");
    assert_eq!(stop.code, Code::Interrupted);
    let stored = store::read(&folder).expect("the run");
    let [.., Record::Stopped(why), Record::Ended { restored, kept }] = &stored.records[..] else {
        panic!("{:?}", stored.records.last());
    };
    assert_eq!(
        (why.as_str(), *restored, *kept),
        ("interrupted", true, false)
    );
    show(&folder, &folder.join("report.html"), &quiet()).expect("what there is");
}

#[test]
fn a_remedy_that_would_drop_the_link_is_listed_and_not_tried() {
    use linerate_model::prove::EndChange;
    use linerate_model::setting::Class;
    let change = serde_json::json!({
        "end": "local",
        "change": {"setting": "nic/near0/mtu", "from": 1500, "to": 9000},
    });
    let change: EndChange = serde_json::from_value(change).expect("a change");
    let records = [Record::HeldBack {
        rule: "mtu-small".to_owned(),
        changes: vec![change],
        class: Class::R3,
    }];
    let said = document(&header(1), &records);
    let remedy = &said.remedies[0];
    let note = remedy.note.as_deref().unwrap_or_default();
    assert!(
        note.starts_with("not tried: class R3, ") && note.contains("by hand"),
        "{note}"
    );
    assert_eq!((remedy.effect.clone(), remedy.kept), (None, false));
    assert_eq!(remedy.setting, "nic/near0/mtu");
}
