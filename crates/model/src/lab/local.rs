//! Experiments on this host alone: a workload without a peer.

use super::{Experiment, ExperimentError, LOCAL_WORKLOAD, LevelTable, OfPeer, wrong};

impl Experiment {
    /// A workload without a peer is that of every trial, and nothing is changed on a peer.
    pub(super) fn check_local(&self) -> Result<(), ExperimentError> {
        let levels = self.factors.iter().flat_map(|factor| {
            (0..factor.levels.len()).filter_map(|at| Some((factor.name(), factor.level(at)?)))
        });
        let base = LevelTable {
            device: self.device.clone(),
            peer: self.peer.clone(),
            ..LevelTable::default()
        };
        for (place, level) in std::iter::once(("experiment", base)).chain(levels) {
            let other = |workload: &String| (workload == LOCAL_WORKLOAD) != self.is_local();
            if level.workload.as_ref().is_some_and(other) {
                let why = format!(
                    "`{LOCAL_WORKLOAD}` has no peer, so it is the workload of every trial or of none"
                );
                return Err(wrong(place, why));
            }
            let has_peer = level.peer != OfPeer::default() || level.address.is_some();
            if self.is_local() && has_peer {
                let why = format!(
                    "`{LOCAL_WORKLOAD}` has no peer to reach or change: a factor with a `setting` takes `on = \"local\"`"
                );
                return Err(wrong(place, why));
            }
            if !self.is_local() && level.device.is_some() {
                return Err(wrong(
                    place,
                    format!("`device` is for the workload `{LOCAL_WORKLOAD}`"),
                ));
            }
        }
        match self.beside.first() {
            Some(_) if self.is_local() => Err(wrong(
                "beside",
                format!("nothing runs at the same time as `{LOCAL_WORKLOAD}`"),
            )),
            _ => Ok(()),
        }
    }
}
