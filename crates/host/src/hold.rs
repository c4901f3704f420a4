//! Settings held by a process that end with it: the CPU wake-up latency limit
//! (Documentation/power/pm_qos_interface.rst, `/dev/cpu_dma_latency`).

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};

const DEVICE: &str = "/dev/cpu_dma_latency";

/// A limit that applies while this value lives. The kernel releases it however the process ends.
#[derive(Debug)]
pub struct LatencyLimit {
    /// The limit ends when this descriptor is closed.
    device: File,
}

impl LatencyLimit {
    /// Keeps CPUs out of idle states with an exit latency above this many microseconds; with 0 they only poll.
    pub fn hold(microseconds: u32) -> io::Result<Self> {
        let limit = i32::try_from(microseconds)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let mut device = OpenOptions::new().read(true).write(true).open(DEVICE)?;
        device.write_all(&limit.to_ne_bytes())?;
        Ok(Self { device })
    }

    /// The effective limit, in microseconds: this one, or a stricter one of another process.
    pub fn in_force(&mut self) -> io::Result<i32> {
        let mut limit = [0; 4];
        self.device.read_exact(&mut limit)?;
        Ok(i32::from_ne_bytes(limit))
    }
}
