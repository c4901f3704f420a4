//! Trials over the loopback of this machine, recorded at both ends.

use std::net::Ipv4Addr;

use linerate_model::known::Cause;
use linerate_model::protocol::Token;
use linerate_model::sample::ProfileScope;
use linerate_traffic::tcp::Listening;

use super::*;

const TOKEN: Token = Token([0x7E; 16]);

fn spec(millis: u64) -> TrialSpec {
    TrialSpec {
        duration_ns: Nanoseconds::from_millis(millis),
        interval_ns: Nanoseconds::from_millis(50),
        ..TrialSpec::default()
    }
}

/// Both ends of a trial, recorded: the connecting one and the listening one.
fn recorded(spec: &TrialSpec) -> (SideSample, SideSample) {
    let abort = Abort::new().expect("an eventfd");
    let guard = Instant::now() + Duration::from_secs(60);
    let listening = Listening::open(spec, TOKEN, "127.0.0.1").expect("a free port");
    let address = (Ipv4Addr::LOCALHOST, listening.port()).into();
    thread::scope(|scope| {
        let far = scope.spawn(|| {
            let connected = listening.accept(guard, &abort).expect("it connects");
            record_side(connected, spec, &abort).expect("the far end")
        });
        let connected =
            Connected::connect(spec, address, TOKEN, guard, &abort).expect("it listens");
        let near = record_side(connected, spec, &abort).expect("the near end");
        (near, far.join().expect("it does not panic"))
    })
}

#[test]
fn a_record_holds_the_interface_its_counters_and_the_cpus_over_time() {
    let spec = spec(2_300);
    let (near, far) = recorded(&spec);
    for side in [&near, &far] {
        side.check(&spec).expect("a record within its bounds");
        assert_eq!(side.interface.as_ref().map(NicName::as_str), Some("lo"));
        let counters = side.counters.value().expect("the counters were read");
        assert!(counters.span_ns >= spec.duration_ns);
        let moved = side.flows[0].total().as_u64();
        let seen = counters
            .grown("nic/lo/stat/rx_bytes")
            .get()
            .expect("counted");
        assert!(seen >= moved, "{seen} seen of {moved}");
        for key in [
            "netstat/IpExt/InOctets",
            "snmp/Tcp/OutSegs",
            "stat/ctxt",
            "vmstat/pgfault",
        ] {
            assert!(counters.grown(key).get() > Some(0), "{key}");
        }
        let series = &side.cpu.series;
        assert!(
            series.len() >= 2,
            "a step a second and the rest: {}",
            series.len()
        );
        assert!(series.windows(2).all(|two| two[0].at_ns < two[1].at_ns));
        // The last is read when the trial is over, shortly after its end.
        let most = 2 * side.elapsed_ns.as_u64();
        assert!(series.iter().all(|step| step.at_ns.as_u64() <= most));
        // If the kernel reports no frequency that is recorded, and never 0.
        match &side.cpu.frequency {
            Known::Value(seen) => assert!(seen.iter().all(|cpu| cpu.lowest_khz > 0)),
            Known::Unknown(gap) => assert_ne!(gap.cause, Cause::NotAsked),
        }
        assert_eq!(
            side.profile.gap().map(|gap| gap.cause),
            Some(Cause::NotAsked)
        );
    }
}

#[test]
fn events_are_recorded_when_they_are_asked_for_on_the_clock_of_the_trial() {
    let spec = TrialSpec {
        events: true,
        ..spec(300)
    };
    let (near, far) = recorded(&spec);
    for side in [&near, &far] {
        side.check(&spec).expect("a record within its bounds");
        let events = side.events.as_ref().expect("they were asked for");
        let began = events.trial_began_ns.expect("an end that ended");
        assert!(events.began.monotonic_ns <= began, "{events:?}");
        assert!(
            events.ended.monotonic_ns.as_u64() >= began.as_u64() + side.elapsed_ns.as_u64(),
            "{events:?}"
        );
    }
    let (near, _) = recorded(&self::spec(100));
    assert_eq!(near.events, None);
}

#[test]
fn a_profile_is_taken_when_it_is_asked_for_or_says_why_not() {
    let spec = TrialSpec {
        profile_hz: Some(499),
        ..spec(600)
    };
    let (near, _) = recorded(&spec);
    match &near.profile {
        Known::Value(profile) => {
            // A stream's own code is so little that it may not be met once in such a trial.
            let hardly_any = profile.scope == ProfileScope::ProcessUser;
            assert!(profile.samples > 0 || hardly_any, "{profile:?}");
            assert_eq!(profile.symbols.is_empty(), profile.samples == 0);
            assert!(profile.symbols.len() <= 50);
        }
        Known::Unknown(gap) => assert!(gap.reason.contains("perf_event"), "{gap}"),
    }
}

#[test]
fn the_picture_of_the_cpus_is_as_fine_as_the_trial_and_the_machine_allow() {
    let seconds = |seconds: u64| TrialSpec {
        duration_ns: Nanoseconds::from_millis(seconds * 1_000),
        ..TrialSpec::default()
    };
    assert_eq!(step_of(&seconds(10), 4), Duration::from_secs(1));
    assert_eq!(step_of(&seconds(600), 4), Duration::from_secs(5));
    let day = step_of(&seconds(86_400), 256);
    assert!(86_400 / day.as_secs() * 256 <= 16_384, "{day:?}");
    let coarse = TrialSpec {
        interval_ns: Nanoseconds::from_millis(2_000),
        ..seconds(10)
    };
    assert_eq!(step_of(&coarse, 4), Duration::from_secs(2));
}
