//! What `measure` shows while it runs: on a terminal (script(1)), without one, and with `--interval`.

use crate::LINERATE;
use crate::job::run;
use crate::lab::{Lab, text};

/// What a terminal shows of `measure` with these arguments; none without script(1).
#[track_caller]
fn on_terminal(lab: &Lab, words: &str) -> Option<String> {
    if std::process::Command::new("script")
        .arg("--version")
        .output()
        .is_err()
    {
        eprintln!("SKIP: there is no script(1)");
        return None;
    }
    let state = lab.state();
    let command = format!("{LINERATE} --state {} {words}", text(&state));
    let mut script = lab.on("near", "script");
    script.args(["-qec", &command, "/dev/null"]);
    Some(run(script).expect_code(0).out)
}

#[test]
fn a_terminal_shows_the_rate_the_time_left_and_the_cpu_of_both_ends() {
    let Some(lab) = Lab::new() else { return };
    let Some(shown) = on_terminal(&lab, "measure stream netns:far --time 3") else {
        return;
    };
    for words in [
        "b/s   ",
        " s left",
        " retransmits",
        "CPU ",
        " % local",
        " % remote",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let quiet = on_terminal(&lab, "--quiet measure stream netns:far --time 1.5");
    assert!(quiet.is_some_and(|shown| !shown.contains(" left")));
}

#[test]
fn requests_show_their_latency_and_repeated_trials_what_they_come_to() {
    let Some(lab) = Lab::new() else { return };
    let Some(shown) = on_terminal(&lab, "measure rr netns:far --time 3.5") else {
        return;
    };
    assert!(
        shown.contains(" per second   ") && shown.contains("p99 "),
        "{shown}"
    );
    let words = "measure rr netns:far --time 0.1 --rate 100 --until-ci 50%";
    let shown = on_terminal(&lab, words).expect("script is here");
    assert!(shown.contains("trial 3 of at least 20"), "{shown}");
}

#[test]
fn without_a_terminal_nothing_is_shown_but_the_intervals_that_were_requested() {
    let Some(lab) = Lab::new() else { return };
    let plain = lab
        .run(&["measure", "stream", "netns:far", "--time", "1.5"])
        .expect_code(0);
    assert!(
        !plain.err.contains("left") && !plain.err.contains('\r'),
        "{}",
        plain.err
    );
    let words = [
        "measure",
        "stream",
        "netns:far",
        "--time",
        "2",
        "--interval",
        "0.5",
    ];
    let done = lab.run(&words).expect_code(0);
    let rows: Vec<&str> = done
        .out
        .lines()
        .filter(|line| line.contains(" s  "))
        .collect();
    // Each once, before the result; one that ends with the trial may be missing.
    assert!((2..=4).contains(&rows.len()), "{}", done.out);
    let result = done.out.find("rate  ").expect("a result");
    assert!(
        done.out.find(rows[0]).is_some_and(|row| row < result),
        "{}",
        done.out
    );
}
