//! What is held by a process and goes with it: the longest wake-up that the CPUs may take
//! (Documentation/power/pm_qos_interface.rst, `/dev/cpu_dma_latency`).

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};

const DEVICE: &str = "/dev/cpu_dma_latency";

/// A limit that holds as long as this lives. The kernel takes it back however the process ends.
#[derive(Debug)]
pub struct LatencyLimit {
    /// Its descriptor is the limit.
    device: File,
}

impl LatencyLimit {
    /// From now on no CPU enters an idle state that takes longer than so many microseconds to leave; with 0 they
    /// only poll.
    pub fn hold(microseconds: u32) -> io::Result<Self> {
        let limit = i32::try_from(microseconds)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut device = OpenOptions::new().read(true).write(true).open(DEVICE)?;
        device.write_all(&limit.to_ne_bytes())?;
        Ok(Self { device })
    }

    /// The limit that holds, in microseconds: this one, or a stricter one of another process.
    pub fn in_force(&mut self) -> io::Result<i32> {
        let mut limit = [0; 4];
        self.device.read_exact(&mut limit)?;
        Ok(i32::from_ne_bytes(limit))
    }
}
