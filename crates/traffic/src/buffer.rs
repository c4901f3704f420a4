//! The memory that payload is sent from and received into.

use linerate_model::ids::NodeId;
use linerate_model::known::Known;
use linerate_model::units::Bytes;
use linerate_model::workload::MemoryPolicy;
use rustix::io::Errno;

use crate::TrafficError;
use crate::sys::Mapping;

/// A buffer that starts on a page and whose every page is there, placed by the trial's policy: by default
/// on the node of the thread that makes it, for the kernel places a page at its first touch.
#[derive(Debug)]
pub(crate) struct Buffer {
    mapping: Mapping,
    size: usize,
}

impl Buffer {
    /// `size` bytes, filled with data that does not repeat within a page's reach, so that nothing on the path can
    /// gain from compressing it.
    pub(crate) fn new(size: Bytes, policy: &MemoryPolicy) -> Result<Self, TrafficError> {
        let full = TrafficError::OutOfMemory {
            doing: "allocate a data thread's buffer",
        };
        let Ok(size) = usize::try_from(size.as_u64()) else {
            return Err(full);
        };
        Self::of(Mapping::new(size), size, policy, full)
    }

    /// The same with huge pages, of which there must be enough.
    pub(crate) fn of_huge_pages(size: usize, policy: &MemoryPolicy) -> Result<Self, TrafficError> {
        let full = TrafficError::not_supported(
            "have a buffer of huge pages",
            "not enough are free; set some aside (`sysctl vm.nr_hugepages=N`, per node below \
             /sys/devices/system/node)",
        );
        Self::of(Mapping::of_huge_pages(size), size, policy, full)
    }

    fn of(
        mapping: Result<Mapping, Errno>,
        size: usize,
        policy: &MemoryPolicy,
        full: TrafficError,
    ) -> Result<Self, TrafficError> {
        let mapping = match mapping {
            Ok(mapping) => mapping,
            Err(Errno::NOMEM) => return Err(full),
            Err(errno) => return Err(TrafficError::of_errno("map a buffer", errno)),
        };
        mapping
            .set_policy(policy)
            .map_err(|errno| TrafficError::of_errno("bind a buffer to its node", errno))?;
        let mut buffer = Self { mapping, size };
        fill(buffer.bytes());
        Ok(buffer)
    }

    /// Its bytes.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.mapping.bytes()[..self.size]
    }

    /// Its bytes, as what is sent.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.mapping.payload()[..self.size]
    }

    /// Its memory, to be passed to the kernel.
    pub(crate) fn into_mapping(self) -> Mapping {
        self.mapping
    }

    /// The node that its first page is on.
    pub(crate) fn node(&self) -> Known<NodeId> {
        self.mapping.node()
    }
}

/// xorshift64 (Marsaglia 2003, "Xorshift RNGs").
fn fill(buffer: &mut [u8]) {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    for chunk in buffer.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        chunk.copy_from_slice(&state.to_ne_bytes()[..chunk.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_of_any_size_starts_on_a_page_and_is_there() {
        for size in [1, 7, 4096, 128 * 1024 + 3] {
            let policy = MemoryPolicy::Default;
            let mut buffer = Buffer::new(Bytes::new(size), &policy).expect("memory");
            let bytes = buffer.bytes();
            assert_eq!(
                (bytes.len() as u64, bytes.as_ptr().addr() % 4096),
                (size, 0)
            );
            assert!(bytes.iter().any(|&byte| byte != 0));
        }
    }

    #[test]
    fn a_buffer_larger_than_memory_is_refused() {
        let outcome = Buffer::new(Bytes::new(1 << 62), &MemoryPolicy::Default);
        assert!(matches!(outcome, Err(TrafficError::OutOfMemory { .. })));
    }

    #[test]
    fn the_kernel_says_which_node_a_bound_buffer_is_on() {
        let policy = MemoryPolicy::Bind(vec![NodeId(0)]);
        let buffer = Buffer::new(Bytes::kib(64), &policy).expect("every machine has node 0");
        if let Known::Value(node) = buffer.node() {
            assert_eq!(node, NodeId(0));
        }
    }
}
