//! The highest rate that a thread kept up for a while.

use std::time::Instant;

use super::rate::real;

/// A window has so many times the messages that may be in flight: what had ended before it began, or ends after it,
/// is a part of a batch, and so of little weight.
const DEPTHS: u64 = 8;

/// The highest rate over windows, each of which begins when no completion was pending: what was
/// kept waiting while the thread did not run must not pass for what ended at once.
#[derive(Debug)]
pub(super) struct Peak {
    window: Option<Window>,
    /// Messages of a window.
    span: u64,
    best: Option<f64>,
}

#[derive(Debug)]
struct Window {
    began: Instant,
    messages: u64,
}

impl Window {
    fn rate(&self, end: Instant) -> Option<f64> {
        let seconds = end.duration_since(self.began).as_secs_f64();
        (seconds > 0.0 && self.messages > 0).then(|| real(self.messages) / seconds)
    }
}

impl Peak {
    /// Begins when the first message is posted; `under_way` is how many messages may be so at a time.
    pub(super) fn new(began: Instant, under_way: u64) -> Self {
        Self {
            window: Some(Window { began, messages: 0 }),
            span: DEPTHS * under_way,
            best: None,
        }
    }

    /// Whether the next look for completions may begin a window: then it wants to know when that was.
    #[inline]
    pub(super) fn wants_to_begin(&self) -> bool {
        self.window.is_none()
    }

    /// The look that began at `before` left nothing to be taken.
    #[inline]
    pub(super) fn begin(&mut self, before: Instant) {
        self.window = Some(Window {
            began: before,
            messages: 0,
        });
    }

    /// So many messages were taken until `now`.
    #[inline]
    pub(super) fn add(&mut self, messages: u64, now: Instant) {
        let Some(window) = &mut self.window else {
            return;
        };
        window.messages += messages;
        if window.messages >= self.span {
            let rate = window.rate(now);
            self.best = match (self.best, rate) {
                (Some(best), Some(rate)) => Some(best.max(rate)),
                (best, rate) => best.or(rate),
            };
            self.window = None;
        }
    }

    /// In messages per second. With fewer messages than a window has it is the rate of all, until `last`.
    pub(super) fn best(&self, last: Instant) -> Option<f64> {
        (self.best).or_else(|| self.window.as_ref()?.rate(last))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A clock that is set by hand, in microseconds.
    struct Clock(Instant);

    impl Clock {
        fn at(&self, microseconds: u64) -> Instant {
            self.0 + Duration::from_micros(microseconds)
        }
    }

    #[test]
    fn what_waited_for_a_thread_that_did_not_run_is_no_peak() {
        let clock = Clock(Instant::now());
        let mut peak = Peak::new(clock.0, 128);
        // One message a microsecond, but the thread sleeps from 1,000 to 2,000, by when all 128 in flight have ended.
        for now in 1..=1_000 {
            peak.add(1, clock.at(now));
        }
        peak.add(64, clock.at(2_000));
        assert!(peak.wants_to_begin(), "a window of 1,024 has ended");
        // The other half of what waited is taken by a look that leaves nothing: it is in no window.
        peak.add(64, clock.at(2_000));
        peak.begin(clock.at(2_000));
        for now in 2_001..=3_024 {
            peak.add(1, clock.at(now));
        }
        let best = peak.best(clock.at(3_024)).expect("two windows");
        assert!((0.99e6..1.01e6).contains(&best), "{best}");
    }

    #[test]
    fn a_trial_of_few_messages_has_their_rate_and_one_of_none_has_no_peak() {
        let clock = Clock(Instant::now());
        let mut peak = Peak::new(clock.0, 128);
        assert_eq!(peak.best(clock.at(10)), None);
        peak.add(5, clock.at(10));
        let best = peak.best(clock.at(20)).expect("five messages");
        assert!((249_999.0..250_001.0).contains(&best), "{best}");
    }
}
