//! Results that last: every `measure` is stored, listed, shown again, compared and exported by name.

use serde_json::Value;

use crate::job::run;
use crate::lab::{Lab, text};
use crate::{LINERATE, fitting};

fn list(lab: &Lab) -> Vec<Value> {
    let mut document = fitting(&lab.run(&["--format", "json", "runs"]).expect_code(0).out);
    match document["runs"].take() {
        Value::Array(runs) => runs,
        other => panic!("{other:#}"),
    }
}

#[test]
fn every_measurement_is_stored_with_its_headline_and_shown_again_as_it_was_printed() {
    let Some(lab) = Lab::new() else { return };
    let first = lab.run(&["measure", "stream", "netns:far", "-t", "0.3"]);
    let first = first.expect_code(0).out;
    let named = ["measure", "rr", "netns:far", "-t", "0.3", "--name", "quiet"];
    let second = lab.run(&named).expect_code(0);
    assert!(second.err.contains("stored as `quiet`"), "{}", second.err);
    lab.run(&["measure", "--no-store", "rr", "netns:far", "-t", "0.3"])
        .expect_code(0);

    let runs = list(&lab);
    let of = |key: &str| -> Vec<&str> { runs.iter().filter_map(|run| run[key].as_str()).collect() };
    assert_eq!(of("kind"), ["measure", "measure"]);
    assert!(of("run").contains(&"quiet"), "{:?}", of("run"));
    assert!(
        of("headline").iter().any(|one| one.contains("b/s, ")),
        "{:?}",
        of("headline")
    );
    assert_eq!(lab.run(&["report", "last~1"]).expect_code(0).out, first);
    assert_eq!(lab.run(&["report", "qui"]).expect_code(0).out, second.out);
    let page = std::fs::read_to_string(lab.state().join("runs/quiet/report.html"));
    let page = page.expect("the page");
    assert!(page.contains("linerate measure rr netns:far"));
    let document = fitting(&lab.run(&["--json", "report", "quiet"]).expect_code(0).out);
    let result = &document["results"][0];
    assert_eq!(result["response"], "operations");
    assert_eq!(result["median"], result["trial"]["total"]["ops_per_s"]);
    let table = lab
        .run(&["export", "last", "--to", "jsonl"])
        .expect_code(0)
        .out;
    assert!(table.contains("\"kind\":\"measured\""), "{table}");

    // A name that is taken keeps what has it, and the measurement all the same has its result.
    let again = lab.run(&named).expect_code(0);
    assert!(again.out.contains("requests"), "{}", again.out);
    assert!(
        again.err.contains("the result is not stored: "),
        "{}",
        again.err
    );
    assert_eq!(lab.run(&["report", "quiet"]).expect_code(0).out, second.out);
}

#[test]
fn two_measurements_are_compared_with_what_differs_and_single_trials_tell_nothing() {
    let Some(lab) = Lab::new() else { return };
    let measure = |more: &[&str]| {
        let words = ["measure", "stream", "netns:far", "-t", "0.2"];
        lab.run(&[&words, more].concat()).expect_code(0);
    };
    measure(&[]);
    lab.shell("near", "ip link set near0 mtu 1400");
    measure(&["-P", "2"]);
    let compare = |before: &str, after: &str| lab.run(&["--json", "compare", before, after]);
    let done = compare("last~1", "last").expect_code(12);
    let document = fitting(&done.out);
    assert_eq!(document["verdict"], "cannot-tell");
    assert_eq!(document["uncertain"][0]["levels"][0], "stream");
    let differences = document["differences"].as_array().expect("a list");
    let of = |what: &str| {
        let found = differences.iter().find(|one| one["what"] == what);
        found
            .unwrap_or_else(|| panic!("no {what} in {differences:#?}"))
            .clone()
    };
    assert_eq!(of("option flows")["after"], "2");
    assert_eq!(of("local nic/near0/mtu")["after"], "1400");
    assert!(done.err.contains("one trial each"), "{}", done.err);

    // Three and three have a verdict, if each has a rate.
    for rate in [None, Some("20Mb/s")] {
        let limit = rate.map_or(vec![], |rate| vec!["-b", rate]);
        let words = ["measure", "stream", "netns:far", "-t", "1"];
        for _ in 0..3 {
            lab.run(&[&words[..], &limit].concat()).expect_code(0);
        }
    }
    let (before, after) = ("last~5,last~4,last~3", "last~2,last~1,last");
    let document = fitting(&compare(before, after).expect_code(11).out);
    assert_eq!(
        (&document["unit"], &document["verdict"]),
        (&"run".into(), &"worse".into())
    );
    let other = lab.run(&["measure", "rr", "netns:far", "-t", "0.2"]);
    other.expect_code(0);
    let done = compare("last~1", "last").expect_code(23);
    assert!(
        done.err.contains("its workload is rr, not stream"),
        "{}",
        done.err
    );
}

#[test]
fn a_ladder_and_a_comparison_of_work_are_stored_as_several_results() {
    let Some(lab) = Lab::new() else { return };
    let words = [
        "measure",
        "stream",
        "netns:far",
        "--ladder",
        "--rounds",
        "3",
        // Every trial has a rate then, also where other work stalls it.
        "--bytes",
        "2MB",
    ];
    lab.run(&words).expect_code(0);
    let document = fitting(&lab.run(&["--json", "report", "last"]).expect_code(0).out);
    let results = document["results"].as_array().expect("a list");
    assert!(results.len() > 3, "{results:#?}");
    assert_eq!(
        results[0]["figures"]["rate"].as_array().map(Vec::len),
        Some(3)
    );
    let lines = lab.run(&["report", "last"]).expect_code(0).out;
    assert_eq!(lines.lines().count(), results.len(), "{lines}");
    assert!(
        list(&lab)[0]["headline"]
            .as_str()
            .is_some_and(|one| one.contains("(best of "))
    );
}

#[test]
fn a_full_or_read_only_disk_costs_a_line_and_never_the_result() {
    let Some(lab) = Lab::new() else { return };
    let disk = lab.small_disk("disk", "128k");
    let fill = "mkdir -m 700 runs; head -c 65536 /dev/zero > filler";
    lab.shell("near", &format!("cd '{}'; {fill}", disk.display()));
    let measured = |why: &str| {
        let mut command = lab.on("near", LINERATE);
        command.args([
            "--state",
            text(&disk),
            "measure",
            "rr",
            "netns:far",
            "-t",
            "0.2",
        ]);
        let done = run(command).expect_code(0);
        assert!(done.out.starts_with("requests"), "{}", done.out);
        let lines: Vec<&str> = done.err.lines().collect();
        let stored = lines
            .iter()
            .filter(|line| line.contains("the result is not stored"));
        assert_eq!(stored.count(), 1, "{lines:?}");
        assert!(done.err.contains(why), "{}", done.err);
    };
    measured("o space left");
    // Half of a result is none.
    let left = lab.shell("near", &format!("ls '{}/runs'", disk.display()));
    assert_eq!(left, "");
    let mut remount = lab.outside("mount");
    remount.args(["-o", "remount,bind,ro"]).arg(&disk);
    run(remount).expect_code(0);
    measured("Read-only file system");
}

#[test]
fn old_measurements_make_room_and_that_is_said_once() {
    let Some(lab) = Lab::new() else { return };
    let measure = |more: &[&str]| {
        let words = [
            "measure",
            "rr",
            "netns:far",
            "-t",
            "0.1",
            "--store-limit",
            "1KB",
        ];
        lab.run(&[&words, more].concat()).expect_code(0).err
    };
    measure(&["--name", "kept"]);
    measure(&[]);
    let says = |err: &str| err.contains("the oldest are removed from now on");
    assert!(says(&measure(&[])));
    assert!(!says(&measure(&[])));
    let runs = list(&lab);
    let names: Vec<&str> = runs.iter().filter_map(|run| run["run"].as_str()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names.contains(&"kept"), "{names:?}");
}
