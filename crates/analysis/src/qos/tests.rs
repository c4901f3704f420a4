//! Rounds of known truth, and what is judged of them.

use super::*;

const MBIT: f64 = 1e6;

fn expected() -> Vec<ExpectedClass> {
    let class = |name: &str, limit: Option<f64>, guarantee: Option<f64>| ExpectedClass {
        name: name.to_owned(),
        limit_bit_per_s: limit,
        guarantee_bit_per_s: guarantee,
        check: format!("the filter of {name}"),
        wrong: Vec::new(),
        configured: None,
    };
    vec![
        class("storage", Some(20.0 * MBIT), Some(20.0 * MBIT)),
        class("backup", Some(50.0 * MBIT), Some(50.0 * MBIT)),
        class("rest", None, None),
    ]
}

fn streamed(rate: f64) -> Streamed {
    Streamed {
        rate_bit_per_s: Some(rate),
        mean_bit_per_s: Some(rate),
        payload_bit_per_s: Some(rate * 0.95),
        step_bit_per_s: 0.1 * MBIT,
        waiting_share: Some(0.98),
        upper_bit_per_s: Some(rate * 1.01),
        delay_s: Some(0.02),
        fairness: Some(0.97),
        is_cpu_bound: false,
        strayed: None,
    }
}

fn probed(p50_s: f64) -> Probed {
    Probed {
        p50_s,
        p99_s: p50_s * 4.0,
        per_s: 500.0,
    }
}

/// Six clean rounds, each changed by `change`, which gets the number of the round.
fn rounds(change: impl Fn(usize, &mut Round)) -> Vec<Round> {
    let of = |number: u32| {
        let noise = 1.0 + 0.0005 * f64::from(number % 3);
        let mut rest = streamed(2_000.0 * MBIT * noise);
        rest.delay_s = Some(0.0001);
        rest.is_cpu_bound = true;
        let mut round = Round {
            alone: vec![
                Some(streamed(20.0 * MBIT * noise)),
                Some(streamed(50.0 * MBIT / noise)),
                Some(rest.clone()),
            ],
            together: vec![
                Some(streamed(20.0 * MBIT * noise)),
                Some(streamed(50.0 * MBIT / noise)),
                Some(Streamed {
                    is_cpu_bound: true,
                    ..streamed(1_935.0 * MBIT * noise)
                }),
            ],
            quiet: vec![Some(probed(50e-6)); 3],
            beside: vec![vec![Some(probed(80e-6)); 3]; 3],
        };
        for at in 0..3 {
            round.beside[at][at] = None;
        }
        change(number as usize, &mut round);
        round
    };
    (0..6).map(of).collect()
}

#[track_caller]
fn only_reason(results: &[ClassResult], at: usize) -> &Reason {
    for (number, result) in results.iter().enumerate() {
        if number != at {
            assert_eq!(result.verdict, Verdict::Holds, "{result:?}");
        }
    }
    let [reason] = &results[at].reasons[..] else {
        panic!("one reason: {:?}", results[at]);
    };
    assert_eq!(results[at].verdict, reason.verdict);
    reason
}

#[test]
fn a_clean_set_up_holds() {
    let results = judge(&expected(), &rounds(|_, _| ()), 0.01);
    assert_eq!(overall(&results), Verdict::Holds, "{results:?}");
    let share = results[0].share_of_limit.expect("a limit");
    assert!(
        (share.median - 1.0).abs() < 0.001 && share.low.is_some(),
        "{share:?}"
    );
    assert_eq!(results[2].share_of_limit, None);
    assert_eq!(results[0].others.len(), 2);
    assert!((results[0].others[0].p99_after_s - 320e-6).abs() < 1e-9);
}

#[test]
fn what_one_packet_adds_in_a_short_trial_is_no_wrong_limit() {
    let off = |_: usize, round: &mut Round| {
        let short = |factor: f64| Streamed {
            // 64 KiB in 200 ms.
            step_bit_per_s: 2.6 * MBIT,
            ..streamed(50.0 * MBIT * factor)
        };
        (round.alone[1], round.together[1]) = (Some(short(1.02)), Some(short(0.98)));
    };
    let results = judge(&expected(), &rounds(off), 0.01);
    assert_eq!(results[1].verdict, Verdict::CannotTell, "{results:?}");
    let reason = &results[1].reasons[0].what;
    assert!(
        reason.contains("one packet of 64 KiB is 5.2 % of it"),
        "{reason}"
    );
}

#[test]
fn a_limit_that_is_off_by_five_per_cent_is_named() {
    for factor in [0.95, 1.05] {
        let off = |_: usize, round: &mut Round| {
            for trial in [&mut round.alone[1], &mut round.together[1]] {
                *trial = Some(streamed(50.0 * MBIT * factor));
            }
        };
        let mut classes = expected();
        classes[1].configured = Some("its class 1:20 has a ceil of 52.5 Mb/s".to_owned());
        let results = judge(&classes, &rounds(off), 0.01);
        let reason = only_reason(&results, 1);
        assert_eq!(
            (reason.check, reason.verdict),
            (Check::Alone, Verdict::Fails)
        );
        assert!(reason.what.contains("1:20"), "{}", reason.what);
    }
}

#[test]
fn a_sender_that_is_too_slow_is_no_wrong_limit() {
    let slow = |_: usize, round: &mut Round| {
        for trial in [&mut round.alone[1], &mut round.together[1]] {
            *trial = Some(Streamed {
                waiting_share: Some(0.02),
                is_cpu_bound: true,
                ..streamed(30.0 * MBIT)
            });
        }
    };
    let results = judge(&expected(), &rounds(slow), 0.01);
    let reason = only_reason(&results, 1);
    assert_eq!(reason.verdict, Verdict::CannotTell);
    assert!(
        reason.what.contains("a CPU bounds the sender"),
        "{}",
        reason.what
    );
    // The same where no class is counted: it stalls.
    let stalls = |_: usize, round: &mut Round| {
        for trial in [&mut round.alone[1], &mut round.together[1]] {
            *trial = Some(Streamed {
                waiting_share: None,
                upper_bit_per_s: Some(50.4 * MBIT),
                ..streamed(48.0 * MBIT)
            });
        }
    };
    let results = judge(&expected(), &rounds(stalls), 0.01);
    assert_eq!(only_reason(&results, 1).verdict, Verdict::CannotTell);
}

#[test]
fn an_interval_that_reaches_the_limit_is_not_judged() {
    let noisy = |number: usize, round: &mut Round| {
        let rate = if number == 0 { 50.0 } else { 48.0 };
        round.alone[1] = Some(streamed(rate * MBIT));
    };
    let results = judge(&expected(), &rounds(noisy), 0.01);
    assert_eq!(only_reason(&results, 1).verdict, Verdict::CannotTell);
}

#[test]
fn traffic_that_passes_another_class_is_named_with_what_to_check() {
    let stray = |_: usize, round: &mut Round| {
        let strayed = Strayed {
            into: "class rest (1:30)".to_owned(),
            class: Some(2),
        };
        round.alone[0] = Some(Streamed {
            strayed: Some(strayed),
            ..streamed(2_000.0 * MBIT)
        });
        round.together[2] = Some(streamed(900.0 * MBIT));
    };
    let results = judge(&expected(), &rounds(stray), 0.01);
    assert_eq!(results[0].verdict, Verdict::Fails);
    assert_eq!(
        results[0].reasons[0].what,
        "its traffic passed class rest (1:30): check the filter of storage"
    );
    assert_eq!(results[2].verdict, Verdict::CannotTell, "{:?}", results[2]);
    assert!(
        results[2].reasons[0]
            .what
            .contains("class storage passes it, too")
    );
    assert_eq!(results[1].verdict, Verdict::Holds);
}

#[test]
fn classes_that_share_a_parent_without_a_guarantee_are_found() {
    let shared = |_: usize, round: &mut Round| {
        round.together[1] = Some(streamed(35.0 * MBIT));
    };
    let results = judge(&expected(), &rounds(shared), 0.01);
    let reason = only_reason(&results, 1);
    assert_eq!(
        (reason.check, reason.verdict),
        (Check::Together, Verdict::Fails)
    );
    assert!(
        reason.what.contains("70.0 % of the 50.0"),
        "{}",
        reason.what
    );
}

#[test]
fn a_class_that_waits_in_the_queue_of_another_is_not_isolated() {
    let queued = |_: usize, round: &mut Round| {
        round.beside[1][0] = Some(probed(19e-3));
    };
    let results = judge(&expected(), &rounds(queued), 0.01);
    let reason = only_reason(&results, 0);
    assert_eq!(
        (reason.check, reason.verdict),
        (Check::Isolation, Verdict::Fails)
    );
    assert!(reason.what.contains("class backup"), "{}", reason.what);
}

#[test]
fn isolation_is_judged_by_the_interval_of_the_rounds() {
    // The packets of `backup` wait 20 ms: half of it is the bound.
    let of = |count: usize, late: usize, rise: f64| {
        let queued = |number: usize, round: &mut Round| {
            if number < late {
                round.beside[1][0] = Some(probed(50e-6 + rise));
            }
        };
        let rounds: Vec<Round> = rounds(queued).into_iter().take(count).collect();
        judge(&expected(), &rounds, 0.01)
    };
    // The 95 % CI of a median of six values is all of them; a few rounds that other work made late do not count.
    for (count, late, rise, verdict) in [
        (6, 6, 10.1e-3, Some(Verdict::Fails)),
        (3, 3, 10.1e-3, Some(Verdict::Fails)),
        (6, 5, 15e-3, Some(Verdict::CannotTell)),
        (3, 2, 15e-3, Some(Verdict::CannotTell)),
        (6, 2, 15e-3, Some(Verdict::CannotTell)),
        (6, 1, 15e-3, None),
        (6, 6, 9.9e-3, None),
    ] {
        let results = of(count, late, rise);
        let Some(verdict) = verdict else {
            assert_eq!(overall(&results), Verdict::Holds, "{results:?}");
            continue;
        };
        let reason = only_reason(&results, 0);
        assert_eq!(reason.check, Check::Isolation);
        assert_eq!(reason.verdict, verdict, "{count} {late} {rise}");
    }
    let straddles = of(6, 5, 15e-3);
    let reason = only_reason(&straddles, 0);
    assert_eq!(
        reason.what,
        "while class backup sends, its median round trip rises by 15.0 ms [0.03, 15.0]; the packets of that class wait 20.0 ms: \
         use more `--rounds` to see whether it shares their queue"
    );
}

#[test]
fn a_class_without_a_limit_gets_what_the_others_leave() {
    let starved = |bound: bool| {
        move |_: usize, round: &mut Round| {
            round.together[2] = Some(Streamed {
                is_cpu_bound: bound,
                ..streamed(1_000.0 * MBIT)
            });
        }
    };
    for (bound, verdict) in [(false, Verdict::Fails), (true, Verdict::CannotTell)] {
        let results = judge(&expected(), &rounds(starved(bound)), 0.01);
        assert_eq!(only_reason(&results, 2).verdict, verdict);
    }
}

#[test]
fn what_the_configuration_shows_is_reported() {
    let mut classes = expected();
    classes[0].wrong.push("eth2 has no class of it".to_owned());
    let results = judge(&classes, &rounds(|_, _| ()), 0.01);
    assert_eq!(only_reason(&results, 0).check, Check::Configuration);
    assert_eq!(overall(&[]), Verdict::CannotTell);
}

#[test]
fn of_three_rounds_each_must_be_outside() {
    let low = |lows: usize| {
        move |number: usize, round: &mut Round| {
            if number < lows {
                round.together[0] = Some(streamed(19.5 * MBIT));
            }
        }
    };
    for (lows, verdict) in [(2, Verdict::CannotTell), (3, Verdict::Fails)] {
        let rounds: Vec<Round> = rounds(low(lows)).into_iter().take(3).collect();
        let results = judge(&expected(), &rounds, 0.01);
        assert_eq!(only_reason(&results, 0).verdict, verdict, "{lows}");
    }
}

#[test]
fn what_was_not_tried_before_the_end_does_not_hold() {
    let ended = |tried: usize| {
        move |number: usize, round: &mut Round| {
            if number >= tried {
                round.together = vec![None; 3];
                round.beside[1][0] = None;
            }
        }
    };
    for (tried, verdict) in [(0, Verdict::NotTried), (2, Verdict::CannotTell)] {
        let results = judge(&expected(), &rounds(ended(tried)), 0.01);
        let all: Vec<&str> = results[0]
            .reasons
            .iter()
            .map(|reason| reason.what.as_str())
            .collect();
        let why = ["not tried", "", "only 2 trials, 3 are needed"][tried];
        let isolation = format!("its round trips while class backup sends: {why}");
        assert_eq!(all, [format!("while all send: {why}"), isolation]);
        assert_eq!(results[0].verdict, verdict);
        assert_eq!(overall(&results), verdict);
        // What was tried is shown.
        assert!(results[0].alone_bit_per_s.is_some());
    }
    let all = judge(&expected(), &[], 0.01);
    assert_eq!(overall(&all), Verdict::NotTried);
}
