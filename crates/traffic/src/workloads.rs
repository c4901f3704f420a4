//! Which code runs which workload: the only place that knows them all.

use linerate_model::sample::SideSample;
use linerate_model::workload::Workload;

use crate::tcp::Connected;
use crate::udp::FlowAddresses;
use crate::{Abort, TrafficError};
use crate::{exchange, http, rdma, stream, trial, udp};

impl Connected {
    /// Carries out the trial and records it. The peer must run its end within 10 s, and this end comes
    /// back at the latest 12 s after the duration, also when the peer vanished. An abort ends it at once.
    ///
    /// The record holds what this crate can see: `cpu.machine` and `counters` are the caller's to fill.
    pub fn run(self, abort: &Abort) -> Result<SideSample, TrafficError> {
        let mut side = self.carry_out(abort)?;
        self.settle(&mut side, abort);
        Ok(side)
    }

    /// [`Connected::run`] without its end, [`Connected::settle`]: the caller's watching ends between the two.
    pub fn carry_out(&self, abort: &Abort) -> Result<SideSample, TrafficError> {
        self.carry_out_with(abort, &|_| ())
    }

    /// [`Connected::carry_out`]; `on_flow` is called with each flow of probes that this end sends, before the first packet.
    pub fn carry_out_with(
        &self,
        abort: &Abort,
        on_flow: &(dyn Fn(FlowAddresses) + Sync),
    ) -> Result<SideSample, TrafficError> {
        let probe = |thread: &mut trial::DataThread<'_>| udp::probe::work(thread, on_flow);
        let work: &trial::Work<'_> = match self.spec().workload {
            Workload::Stream(_) if self.spec().verbs.is_some() => &rdma::stream,
            Workload::Stream(_) => &stream::work,
            Workload::Rr(_)
            | Workload::Pingpong(_)
            | Workload::Transfer(_)
            | Workload::Diffusion(_) => &exchange::work,
            Workload::Http(_) => &http::work,
            Workload::Udp(ref udp) if udp.probe.is_some() => &probe,
            Workload::Udp(_) => &udp::work,
            Workload::Rdma(_) => &rdma::work,
            Workload::Block(_) => return Err(TrafficError::NotBuilt),
        };
        trial::carry_out(self.spec(), self.flows(), work, abort)
    }
}
