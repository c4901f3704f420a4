//! stub
use crate::nic_control::NicRead;
use crate::root::HostRoot;
use linerate_model::host::Host;
use linerate_model::units::Nanoseconds;
use linerate_model::watch::Watch;
/// stub
#[derive(Debug)]
pub struct Reading {
    /// stub
    pub uptime_ns: Option<u64>,
}
/// stub
pub fn read_counters(_root: &HostRoot, _nics: &dyn NicRead, _host: &Host) -> Reading {
    Reading { uptime_ns: None }
}
impl Reading {
    /// stub
    pub fn since(&self, _earlier: &Self, span: Nanoseconds) -> Watch {
        Watch {
            span_ns: span,
            counters: Default::default(),
            gaps: Default::default(),
        }
    }
}
