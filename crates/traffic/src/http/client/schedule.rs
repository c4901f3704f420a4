//! When requests are to begin in open loop. The times are fixed before the first request and do not move,
//! whatever the server does: a request that cannot begin in time is late, and its lateness is latency.

use crate::catch_up::due_before;

/// The intended times of one thread's requests. Request *k* belongs to connection *k* modulo their number,
/// so each connection sends at its own constant interval (as in wrk2).
#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    /// Of this thread.
    connections: u64,
    phase_ns: u64,
    /// Between two requests of this thread there are `numerator / denominator` nanoseconds.
    numerator: u128,
    denominator: u128,
}

/// A thread's part of the connections.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    /// Its connections; at least one.
    pub(super) own: u64,
    /// Those of all threads.
    pub(super) all: u64,
    /// The number of the thread.
    pub(super) index: u64,
}

impl Schedule {
    /// The schedule of one thread's `part` when all connections together make `rate_per_s` requests.
    pub(super) fn new(rate_per_s: u64, part: Part) -> Self {
        let rate = rate_per_s.max(1);
        Self {
            connections: part.own,
            // The threads' first requests do not all fall together.
            phase_ns: part.index * (1_000_000_000 / rate),
            numerator: 1_000_000_000 * u128::from(part.all),
            denominator: u128::from(rate) * u128::from(part.own),
        }
    }

    /// The intended time of request `number`, since the start.
    #[inline]
    pub(super) fn at_ns(&self, number: u64) -> u64 {
        let after = u128::from(number) * self.numerator / self.denominator;
        u64::try_from(after)
            .unwrap_or(u64::MAX)
            .saturating_add(self.phase_ns)
    }

    /// How many requests are due before `end_ns` since the start.
    pub(super) fn due_before_ns(&self, end_ns: u64) -> u64 {
        due_before(&end_ns, |number| self.at_ns(number))
    }

    /// The connection that makes request `number`.
    pub(super) fn connection(&self, number: u64) -> u64 {
        number % self.connections
    }

    /// The request that the same connection makes next.
    pub(super) fn after(&self, number: u64) -> u64 {
        number + self.connections
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threads_together_keep_the_rate() {
        let second = 1_000_000_000;
        let of = |own, index| {
            Schedule::new(
                30_001,
                Part {
                    own,
                    all: 10,
                    index,
                },
            )
        };
        let begun: u64 = [of(4, 0), of(3, 1), of(3, 2)]
            .iter()
            .map(|one| {
                (0..u64::from(u32::MAX))
                    .take_while(|&number| one.at_ns(number) < second)
                    .count() as u64
            })
            .sum();
        assert!((29_999..=30_003).contains(&begun), "{begun}");
    }

    #[test]
    fn a_connection_has_a_steady_beat() {
        let schedule = Schedule::new(
            1_000,
            Part {
                own: 4,
                all: 4,
                index: 0,
            },
        );
        let mut number = 2;
        for beat in 0..50 {
            assert_eq!(schedule.connection(number), 2);
            assert_eq!(schedule.at_ns(number), 2_000_000 + beat * 4_000_000);
            number = schedule.after(number);
        }
    }

    #[test]
    fn a_rate_of_one_an_hour_and_a_day_of_the_highest_do_not_overflow() {
        let part = Part {
            own: 1,
            all: 10_000,
            index: 1_023,
        };
        assert!(Schedule::new(1, part).at_ns(u64::MAX / 2) > 1 << 60);
        assert!(Schedule::new(100_000_000, part).at_ns(u64::MAX / 2) > 1 << 50);
    }
}
