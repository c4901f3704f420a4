//! What every trial does, whichever program does it, and where the far end is.

use serde::{Deserialize, Serialize};

/// The far end's name; the near one has no need of one.
pub(crate) const FAR: &str = "far";
pub(crate) const FAR_ADDRESS: &str = "10.78.0.2";

/// What every case has in common.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Work {
    /// How long each trial moves bytes.
    pub(crate) seconds: u32,
    /// How much of its start is not compared.
    pub(crate) warmup_s: f64,
    /// The size of each `send` and `recv`.
    pub(crate) buffer_bytes: u64,
    /// Of all data connections.
    pub(crate) congestion_control: String,
}

impl Work {
    /// The part of a trial that is compared: from and to, seconds since its start.
    pub(crate) fn window(&self) -> (f64, f64) {
        (self.warmup_s, f64::from(self.seconds))
    }
}

#[cfg(test)]
pub(crate) fn work_for_tests() -> Work {
    Work {
        seconds: 2,
        warmup_s: 0.5,
        buffer_bytes: 131_072,
        congestion_control: "cubic".to_owned(),
    }
}
