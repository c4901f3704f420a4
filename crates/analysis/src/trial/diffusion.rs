//! The figures of a trial of `diffusion`: what each end took, whether both hold the same grid, and its pictures.

use linerate_model::sample::{Checksum, GridPicture, GridRecord, Sample, SideSample, Vectors};
use linerate_model::units::BitRate;
use linerate_model::workload::{Diffusion, Workload};

use super::operations::{askers, real};

/// What of a sample is a diffusion.
pub fn of(sample: &Sample) -> Option<&Diffusion> {
    match &sample.spec.workload {
        Workload::Diffusion(diffusion) => Some(diffusion),
        _ => None,
    }
}

/// One end's row of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct EndFigures {
    /// From the start to the end of its last pair.
    pub real_s: f64,
    /// User time of all its data threads.
    pub user_s: f64,
    /// System time of all its data threads.
    pub system_s: f64,
    /// Time that it worked on the grids, of all pairs.
    pub work_s: f64,
    /// What it made steps with.
    pub vectors: Option<Vectors>,
    /// Of each pair.
    pub checksums: Vec<(u32, Checksum)>,
}

/// What a trial gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// The local end.
    pub local: EndFigures,
    /// The remote end.
    pub remote: EndFigures,
    /// Bytes of all pairs, both directions together.
    pub bytes: u64,
    /// How long that took the ends that ask.
    pub real_s: f64,
}

impl Figures {
    /// Both directions and all pairs together.
    pub fn rate(&self) -> Option<BitRate> {
        BitRate::from_f64(real(self.bytes) * 8.0 / self.real_s).filter(|_| self.real_s > 0.0)
    }

    /// Whether every pair's ends hold the same grid; none if an end does not report it.
    pub fn is_same(&self) -> Option<bool> {
        let (local, remote) = (&self.local.checksums, &self.remote.checksums);
        (!local.is_empty() && local.len() == remote.len()).then_some(local == remote)
    }
}

/// The figures of a trial of diffusion.
pub fn figures(sample: &Sample) -> Option<Figures> {
    let buffer = of(sample)?.bytes.as_u64();
    // A remote end may claim any number.
    let journeys = askers(sample)
        .flat_map(|(side, _)| side.senders().filter_map(|flow| flow.grid.as_ref()))
        .fold(0, |sum: u64, grid| sum.saturating_add(grid.repetitions));
    let times = askers(sample).map(|(side, _)| end(side).real_s);
    Some(Figures {
        local: end(&sample.local),
        remote: end(&sample.remote),
        bytes: journeys.saturating_mul(buffer).saturating_mul(2),
        real_s: times.fold(0.0, f64::max),
    })
}

fn end(side: &SideSample) -> EndFigures {
    let last = side.flows.iter().filter_map(|flow| flow.at_ns.last()).max();
    let grids = |pick: fn(&GridRecord) -> f64| {
        let grids = side.flows.iter().filter_map(|flow| flow.grid.as_ref());
        grids.map(pick).sum::<f64>()
    };
    let known = side.flows.iter();
    EndFigures {
        real_s: last.copied().unwrap_or_default().as_secs_f64(),
        user_s: side.cpu.threads_user_ns.as_secs_f64(),
        system_s: side.cpu.threads_system_ns.as_secs_f64(),
        work_s: grids(|grid| grid.work_ns.as_secs_f64()),
        vectors: known.clone().find_map(|flow| flow.grid.as_ref()?.vectors),
        checksums: known
            .filter_map(|flow| Some((flow.flow, flow.grid.as_ref()?.checksum)))
            .collect(),
    }
}

/// The pictures of the first grid.
pub fn pictures(sample: &Sample) -> &[GridPicture] {
    let flows = sample.local.flows.iter().chain(&sample.remote.flows);
    let mut grids = flows.filter_map(|flow| flow.grid.as_ref());
    grids
        .find(|grid| !grid.pictures.is_empty())
        .map_or(&[], |grid| &grid.pictures)
}

/// How often every grid went there and back: the fewest of all pairs.
pub fn repetitions(sample: &Sample) -> Option<u64> {
    let flows = sample.local.flows.iter().chain(&sample.remote.flows);
    let all = flows.filter_map(|flow| Some(flow.grid.as_ref()?.repetitions));
    all.min()
}
