//! The table of a heat map: each sender with each receiver, relative to most pairs.

use linerate_model::mesh::{HostState, MeshHost};
use linerate_stats::two_way::take_median;

use super::Gathered;

/// One directed pair.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CellState {
    /// The rate relative to the median of all: -0.15 is 15 % less.
    Measured(f32),
    /// No flow got through.
    Failed,
    /// It was not tried.
    NotTried,
}

/// All directed pairs, in the order of a picture: by switch or rack, then as listed.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    /// The host of each row and column.
    pub order: Vec<usize>,
    /// Row by row; not a number for a pair that was not tried, negative infinity for one that failed.
    cells: Vec<f32>,
}

impl Matrix {
    /// The table of what was gathered, of several rates of a pair the last.
    pub fn of(hosts: &[MeshHost], states: &[HostState], gathered: &Gathered) -> Self {
        let count = hosts.len();
        let mut order: Vec<usize> = (0..count).collect();
        // Hosts that were lost belong to their switch, too.
        order.sort_by_key(|host| {
            let host = &hosts[*host];
            (
                host.switch.is_none(),
                host.switch.clone(),
                host.rack.clone(),
            )
        });
        let mut place = vec![0; count];
        for (position, host) in order.iter().enumerate() {
            place[*host] = position;
        }
        let mut logs: Vec<f64> = gathered
            .judged()
            .iter()
            .map(|entry| f64::from(entry.log_rate))
            .collect();
        let center = take_median(&mut logs).unwrap_or(0.0);
        let mut cells = vec![f32::NAN; count * count];
        let mut set = |from: usize, to: usize, value: f32| {
            cells[place[from] * count + place[to]] = value;
        };
        for flow in &gathered.failed {
            let is_joined = |host: usize| states.get(host) == Some(&HostState::Joined);
            let (from, to) = (flow.from.position(), flow.to.position());
            if is_joined(from) && is_joined(to) {
                set(from, to, f32::NEG_INFINITY);
            }
        }
        for entry in gathered.judged() {
            #[expect(clippy::cast_possible_truncation, reason = "a color has a few steps")]
            let relative = (f64::from(entry.log_rate) - center).exp_m1() as f32;
            set(entry.from.into(), entry.to.into(), relative);
        }
        Self { order, cells }
    }

    /// How many hosts there are.
    pub const fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The cell at a row (sender) and a column (receiver).
    pub fn cell(&self, row: usize, column: usize) -> CellState {
        let value = self.cells[row * self.order.len() + column];
        if value.is_nan() {
            CellState::NotTried
        } else if value.is_finite() {
            CellState::Measured(value)
        } else {
            CellState::Failed
        }
    }
}
