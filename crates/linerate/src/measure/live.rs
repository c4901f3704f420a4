//! What is shown while a measurement runs: on a terminal one line that changes each second, with `--interval` a line for
//! each interval.

use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linerate_analysis::text::words::seconds_in_words;
use linerate_analysis::trial::operations::real;
use linerate_model::exit::{Outcome, Stop};
use linerate_model::plan::End;
use linerate_model::protocol::Progress;
use linerate_model::units::{BitRate, Nanoseconds};
use linerate_model::workload::{Direction, TrialSpec};
use linerate_runtime::cli::UntilArgs;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::say::{Format, LiveLine, Say};
use linerate_runtime::endpoint::watch::Watch;
use linerate_stats::sequential::{FIRST_LOOK, look, next_look};

use super::OutputOptions;
use super::over_time::interval_in_words;
use super::text::{per_second, rate, time};

/// How often the line changes.
const EVERY: Duration = Duration::from_secs(1);
/// Events that may wait to be shown; reports beyond it are dropped.
const EVENTS_WAITING_MAX: usize = 16;

/// What is shown while a measurement runs.
#[derive(Debug)]
pub(super) struct Live {
    say: Say,
    line: Option<LiveLine>,
    shows: Option<Shows>,
}

/// The thread that shows it.
#[derive(Debug)]
struct Shows {
    events: SyncSender<Event>,
    every: Duration,
    thread: Option<JoinHandle<()>>,
    has_rows: bool,
}

#[derive(Debug)]
enum Event {
    Report(End, Progress),
    /// A trial begins, counted from 0.
    Trial(usize),
    /// What a whole trial gave.
    Result(f64),
    Over,
}

impl Live {
    /// Shows trials of `spec`. Where `both` ends do not report, this one does.
    pub(super) fn start(
        output: OutputOptions<'_>,
        spec: &TrialSpec,
        until: &UntilArgs,
        both: bool,
    ) -> Outcome<Self> {
        let say = output.say.clone();
        let repeated = until.until_ci.is_some() || !until.require.is_empty();
        let rows = until
            .interval
            .filter(|_| !repeated && say.format == Format::Text && !output.as_iperf3 && !say.quiet);
        let line = if rows.is_some() {
            None
        } else {
            say.live_line()
        };
        let shows = if spec.unrecorded || (rows.is_none() && line.is_none()) {
            None
        } else {
            let (events, heard) = mpsc::sync_channel(EVENTS_WAITING_MAX);
            let screen = Screen {
                say: say.clone(),
                line: line.clone(),
                state: State::new(spec, until, both),
            };
            let thread = std::thread::Builder::new()
                .name("live".to_owned())
                .spawn(move || screen.show(&heard))
                .map_err(|error| Stop::io("start a thread", error))?;
            Some(Shows {
                events,
                every: rows.map_or(EVERY, Duration::from),
                thread: Some(thread),
                has_rows: rows.is_some(),
            })
        };
        Ok(Self { say, line, shows })
    }

    /// Shows trials of which only this end reports, and keeps what was measured on Ctrl-C.
    pub(super) fn start_alone(
        output: OutputOptions<'_>,
        spec: &TrialSpec,
        until: &UntilArgs,
        interrupt: &Interrupt,
    ) -> Outcome<Self> {
        let live = Self::start(output, spec, until, false)?;
        live.confirm(interrupt);
        if let Some(watch) = live.watch() {
            watch.this_end(interrupt.abort());
        }
        Ok(live)
    }

    /// What both ends report to.
    pub(super) fn watch(&self) -> Option<Watch> {
        let shows = self.shows.as_ref()?;
        let events = shows.events.clone();
        // A report that comes while the terminal is stopped is not shown.
        Some(Watch::new(shows.every, move |end, progress| {
            let _ = events.try_send(Event::Report(end, progress));
        }))
    }

    /// The first Ctrl-C ends the measurement early, and is confirmed.
    pub(super) fn confirm(&self, interrupt: &Interrupt) {
        confirm_early_end(interrupt, &self.say, self.line.clone());
    }

    /// A trial begins.
    pub(super) fn trial(&self, number: usize) {
        self.send(Event::Trial(number));
    }

    /// A trial has ended with this result.
    pub(super) fn result(&self, result: Option<f64>) {
        if let Some(result) = result {
            self.send(Event::Result(result));
        }
    }

    fn send(&self, event: Event) {
        if let Some(shows) = &self.shows {
            // The thread ends only after the last event.
            let _ = shows.events.send(event);
        }
    }

    /// The end of it; whether it has shown every interval.
    pub(super) fn end(mut self) -> bool {
        self.stop();
        self.shows.as_ref().is_some_and(|shows| shows.has_rows)
    }

    fn stop(&mut self) {
        self.send(Event::Over);
        if let Some(thread) = self.shows.as_mut().and_then(|shows| shows.thread.take()) {
            // Its panic was printed.
            let _ = thread.join();
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if self
            .shows
            .as_ref()
            .is_some_and(|shows| shows.thread.is_some())
        {
            self.stop();
        }
    }
}

/// The first Ctrl-C ends the measurement early from now on, and is confirmed above `line`.
pub(super) fn confirm_early_end(interrupt: &Interrupt, say: &Say, line: Option<LiveLine>) {
    let say = say.clone();
    interrupt.keep_what_was_measured(move || {
        let text = "ending early; Ctrl-C again aborts";
        match &line {
            Some(line) => line.note(text),
            None => say.note(text),
        }
    });
}

/// Where it is shown.
struct Screen {
    say: Say,
    /// None: a row for each interval.
    line: Option<LiveLine>,
    state: State,
}

impl Screen {
    fn show(mut self, events: &Receiver<Event>) {
        for event in events {
            let counts =
                matches!(&event, Event::Report(end, _) if *end == self.state.counting_end());
            match event {
                Event::Over => break,
                Event::Report(end, progress) => self.state.take(end, progress),
                Event::Trial(number) => self.state.begin(number),
                Event::Result(result) => self.state.results.push(result),
            }
            match &self.line {
                Some(line) => line.show(&self.state.parts(Instant::now())),
                // A reader that has gone away is no reason to end the trial.
                None if counts => {
                    let _ = self.state.row().map(|row| self.say.data(&row));
                }
                None => {}
            }
        }
        if let Some(line) = &self.line {
            line.clear();
        }
    }
}

/// The last two reports of an end: what it did between them.
#[derive(Debug, Clone, Copy, Default)]
struct Reports {
    before: Progress,
    now: Option<Progress>,
}

impl Reports {
    fn take(&mut self, progress: Progress) {
        self.before = self.now.unwrap_or_default();
        self.now = Some(progress);
    }

    /// What grew by how much in a second.
    fn per_second(&self, what: fn(&Progress) -> u64) -> Option<f64> {
        let now = self.now.as_ref()?;
        let span = now.at_ns.as_secs_f64() - self.before.at_ns.as_secs_f64();
        let grown = what(now).saturating_sub(what(&self.before));
        (span > 0.0).then(|| real(grown) / span)
    }
}

/// A count of a report.
type Count = fn(&Progress) -> u64;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counts {
    /// The bytes that arrive.
    Received,
    /// The bytes that are sent, where the other end sees nothing of them.
    Sent,
    Operations,
}

/// Everything that is known of a running measurement.
struct State {
    counts: Counts,
    direction: Direction,
    /// None if it ends by itself.
    planned: Option<Nanoseconds>,
    /// Whether the remote end reports.
    both: bool,
    asked: Option<f64>,
    is_repeated: bool,
    max_time: Nanoseconds,
    begun: Instant,
    trial: usize,
    results: Vec<f64>,
    local: Reports,
    remote: Reports,
}

impl State {
    fn new(spec: &TrialSpec, until: &UntilArgs, both: bool) -> Self {
        Self {
            counts: match &spec.workload {
                workload if !workload.is_bulk() => Counts::Operations,
                workload if workload.is_one_sided() => Counts::Sent,
                _ => Counts::Received,
            },
            direction: spec.direction,
            planned: (!spec.workload.ends_by_itself()).then_some(spec.duration_ns),
            both,
            asked: until.until_ci,
            is_repeated: until.until_ci.is_some() || !until.require.is_empty(),
            max_time: until.max_time,
            begun: Instant::now(),
            trial: 0,
            results: Vec::new(),
            local: Reports::default(),
            remote: Reports::default(),
        }
    }

    fn begin(&mut self, number: usize) {
        self.trial = number;
        self.local = Reports::default();
        self.remote = Reports::default();
    }

    fn take(&mut self, end: End, progress: Progress) {
        match end {
            End::Local => self.local.take(progress),
            End::Remote => self.remote.take(progress),
        }
    }

    /// The end whose reports complete a row: the one that counts what arrives, or the operations.
    fn counting_end(&self) -> End {
        let sends = match self.direction {
            Direction::Forward => End::Local,
            Direction::Reverse => End::Remote,
            Direction::Bidirectional => return End::Local,
        };
        match (self.both, self.counts, sends) {
            (true, Counts::Received, End::Local) => End::Remote,
            (true, Counts::Sent | Counts::Operations, _) => sends,
            _ => End::Local,
        }
    }

    fn reports(&self, end: End) -> &Reports {
        match end {
            End::Local => &self.local,
            End::Remote => &self.remote,
        }
    }

    /// Bits or operations a second, in words.
    fn figure(&self) -> Option<String> {
        let sum = |count: Count| {
            let ends = [self.local, self.remote].map(|end| end.per_second(count));
            ends.into_iter().flatten().reduce(|one, other| one + other)
        };
        if self.counts == Counts::Operations {
            let operations = sum(|report| report.operations)?;
            return Some(format!("{} per second", per_second(operations)));
        }
        let (received, sent): (Count, Count) =
            (|report| report.received_bytes, |report| report.sent_bytes);
        let counting = self.reports(self.counting_end());
        let bytes = match (self.direction, self.both) {
            (Direction::Bidirectional, true) => sum(received),
            (Direction::Bidirectional, false) => {
                Some(counting.per_second(received)? + counting.per_second(sent)?)
            }
            (Direction::Forward, false) => counting.per_second(sent),
            _ if self.counts == Counts::Sent => counting.per_second(sent),
            _ => counting.per_second(received),
        }?;
        Some(rate(BitRate::from_f64(bytes * 8.0)))
    }

    fn retransmits(&self, of: impl Fn(&Reports) -> Option<u64>) -> Option<String> {
        let ends = [of(&self.local), of(&self.remote)];
        let sum = ends
            .into_iter()
            .flatten()
            .reduce(|one, other| one + other)?;
        Some(format!("{sum} retransmits"))
    }

    /// A row of the counting end's last interval.
    fn row(&self) -> Option<String> {
        let counting = self.reports(self.counting_end());
        let span = (counting.before.at_ns, counting.now?.at_ns);
        let since = |end: &Reports| {
            let all = end.now?.retransmits?;
            Some(all.saturating_sub(end.before.retransmits.unwrap_or(0)))
        };
        let more = self.retransmits(since).map(|words| format!("  {words}"));
        let (from, to) = (span.0.as_secs_f64(), span.1.as_secs_f64());
        let figure = self.figure()?;
        Some(interval_in_words(from, to, &figure) + &more.unwrap_or_default())
    }

    /// The parts of the line, the most important first.
    fn parts(&self, now: Instant) -> Vec<String> {
        let mut parts: Vec<String> = Vec::new();
        if self.is_repeated {
            parts.push(self.repeats(now));
        }
        parts.extend(self.figure());
        if !self.is_repeated {
            parts.extend(self.left());
        }
        let p99 = [self.local, self.remote]
            .iter()
            .filter_map(|end| end.now?.p99_ns)
            .max();
        parts.extend(p99.map(|p99| format!("p99 {}", time(real(p99.as_u64())))));
        parts.extend(self.retransmits(|end| end.now?.retransmits));
        parts.extend(self.cpu());
        if parts.is_empty() {
            parts.push("starting".to_owned());
        }
        parts
    }

    /// How long the trial still runs, or how long one without a fixed duration has run.
    fn left(&self) -> Option<String> {
        let at = self.local.now.or(self.remote.now)?.at_ns;
        Some(match self.planned {
            Some(planned) => {
                let left = planned.as_u64().saturating_sub(at.as_u64());
                format!("{} left", whole_seconds(left))
            }
            None => format!("after {}", whole_seconds(at.as_u64())),
        })
    }

    /// The CPU time of both ends' processes, relative to one CPU.
    fn cpu(&self) -> Option<String> {
        let of = |end: &Reports, name: &str| {
            let cpu = end.per_second(|report| report.cpu_ns.as_u64())?;
            Some(format!("{:.0} % {name}", cpu / 1e7))
        };
        let ends = [of(&self.local, "local"), of(&self.remote, "remote")];
        let ends: Vec<String> = ends.into_iter().flatten().collect();
        (!ends.is_empty()).then(|| format!("CPU {}", ends.join(", ")))
    }

    /// What the trials so far come to, and how long they may still take.
    fn repeats(&self, now: Instant) -> String {
        let done = self.results.len();
        let trial = self.trial + 1;
        let (Some(asked), Ok(look)) = (self.asked, look(&self.results)) else {
            return format!("trial {trial} of at least {FIRST_LOOK}");
        };
        let reached = (look.high - look.low) / 2.0 / look.median.abs().max(f64::MIN_POSITIVE);
        let figure = match self.counts {
            Counts::Operations => format!("{} per second", per_second(look.median)),
            _ => rate(BitRate::from_f64(look.median)),
        };
        let spent = now.duration_since(self.begun);
        let most = Duration::from(self.max_time).saturating_sub(spent);
        let left = spent.mul_f64(trials_left(done, reached / asked) / real(done.max(1) as u64));
        let about = if left > most { "at most" } else { "about" };
        let left = u64::try_from(left.min(most).as_nanos()).unwrap_or(u64::MAX);
        format!(
            "trial {trial}: median {figure} +-{:.2} % (requested {:.2} %), {about} {} left",
            reached * 100.0,
            asked * 100.0,
            whole_seconds(left)
        )
    }
}

/// How many more trials it may take when the interval is `excess` times as wide as requested: it narrows with the root
/// of their number, and is looked at now and then only.
fn trials_left(done: usize, excess: f64) -> f64 {
    let needed = real(done as u64) * excess.max(1.0).powi(2);
    let mut look_at = FIRST_LOOK;
    while real(look_at as u64) < needed || look_at < done {
        look_at = next_look(look_at);
    }
    real((look_at - done.min(look_at)) as u64)
}

/// A time to the second.
fn whole_seconds(nanoseconds: u64) -> String {
    let seconds = (nanoseconds.saturating_add(500_000_000)) / 1_000_000_000;
    seconds_in_words(Nanoseconds::new(seconds.saturating_mul(1_000_000_000)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until(until_ci: Option<f64>) -> UntilArgs {
        UntilArgs {
            until_ci,
            max_time: Nanoseconds::from_millis(600_000),
            ..UntilArgs::once()
        }
    }

    fn report(seconds: u64, bytes: u64) -> Progress {
        Progress {
            at_ns: Nanoseconds::from_millis(seconds * 1_000),
            sent_bytes: bytes,
            received_bytes: bytes,
            retransmits: Some(seconds),
            cpu_ns: Nanoseconds::from_millis(seconds * 500),
            ..Progress::default()
        }
    }

    fn state(both: bool) -> State {
        State::new(&TrialSpec::default(), &until(None), both)
    }

    #[test]
    fn the_rate_is_what_arrived_in_the_last_second_and_what_was_sent_where_only_this_end_reports() {
        let mut both = state(true);
        both.take(End::Local, report(1, 1_000_000_000));
        assert_eq!(both.figure(), None, "nothing has arrived yet");
        both.take(End::Remote, report(1, 125_000_000));
        both.take(End::Remote, report(2, 375_000_000));
        assert_eq!(both.figure().as_deref(), Some("2.00 Gb/s"));
        let mut alone = state(false);
        alone.take(End::Local, report(1, 125_000_000));
        assert_eq!(alone.figure().as_deref(), Some("1.00 Gb/s"));
    }

    #[test]
    fn the_line_has_the_time_left_the_retransmits_and_the_cpu_of_both_ends() {
        let mut state = state(true);
        state.planned = Some(Nanoseconds::from_millis(10_000));
        state.take(End::Local, report(3, 0));
        state.take(End::Remote, report(3, 375_000_000));
        let line = state.parts(Instant::now()).join(" | ");
        let expected = "1.00 Gb/s | 7 s left | 6 retransmits | CPU 50 % local, 50 % remote";
        assert_eq!(line, expected);
    }

    #[test]
    fn a_row_is_the_interval_of_the_end_that_counts() {
        let mut state = state(true);
        assert_eq!(state.row(), None);
        state.take(End::Local, report(1, 5));
        state.take(End::Remote, report(1, 125_000_000));
        state.take(End::Remote, report(2, 375_000_000));
        let row = state.row().expect("a row");
        assert!(row.contains("1.00 -   2.00 s  2.00 Gb/s"), "{row}");
    }

    #[test]
    fn repeated_trials_show_the_interval_and_when_it_may_be_narrow_enough() {
        let mut state = State::new(&TrialSpec::default(), &until(Some(0.01)), true);
        state.begin(2);
        state.results = vec![1e9; 2];
        let few = state.parts(Instant::now());
        assert_eq!(few, ["trial 3 of at least 20"]);
        state.begin(30);
        state.results = (0..30_u32).map(|n| 1e9 + f64::from(n % 7) * 1e7).collect();
        let now = state.begun + Duration::from_secs(30);
        let line = state.parts(now).join(" ");
        assert!(line.starts_with("trial 31: median 1.03 Gb/s +-"), "{line}");
        assert!(
            line.contains("(requested 1.00 %), about ") && line.ends_with(" left"),
            "{line}"
        );
    }

    #[test]
    fn an_interval_twice_as_wide_as_requested_takes_four_times_the_trials_up_to_the_next_look() {
        assert!((trials_left(20, 1.0) - 0.0).abs() < 1e-9);
        assert!((trials_left(5, 0.1) - 15.0).abs() < 1e-9);
        // 80 are needed; the looks are at 20, 27, 36, 48, 64 and 86.
        assert!((trials_left(20, 2.0) - 66.0).abs() < 1e-9);
    }
}
