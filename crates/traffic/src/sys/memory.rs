//! Memory of our own whose node is chosen: mmap(2), mbind(2), and move_pages(2) to see where it is.

use linerate_model::ids::NodeId;
use linerate_model::known::{Cause, Known};
use linerate_model::units::Bytes;
use linerate_model::workload::MemoryPolicy;
use rustix::fs::{MemfdFlags, fstatfs, memfd_create};
use rustix::io::Errno;

use super::last_errno;

/// Nodes that a node mask can name here: what the largest kernel is built for.
const NODES_MAX: u32 = 1024;
const WORD_BITS: u32 = u64::BITS;
/// The default huge page of x86-64, and of arm64 with pages of 4 KiB: used if the kernel does not report its own.
const HUGE_PAGE: usize = 2 << 20;
const NODE_WORDS: usize = (NODES_MAX / WORD_BITS) as usize;

/// Whole pages of anonymous memory.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: *mut libc::c_void,
    length: usize,
}

// SAFETY: the mapping is plain memory that this value alone owns; any thread may use or unmap it.
unsafe impl Send for Mapping {}

// SAFETY: the mapping stays where it is until it is dropped, and only `bytes` and `payload` of this value reach it
// else, which nobody has while a device has it: a region gives out its addresses alone.
unsafe impl linerate_verbs::Memory for Mapping {
    fn start(&self) -> *mut u8 {
        self.start.cast()
    }

    fn length(&self) -> usize {
        self.length
    }
}

/// The bytes of a huge page of the default size: the block of a file of them (`memfd_create(2)`).
fn default_huge_page() -> usize {
    let flags = MemfdFlags::HUGETLB | MemfdFlags::CLOEXEC;
    let told = memfd_create("linerate-huge-page", flags).and_then(fstatfs);
    let bytes = told
        .ok()
        .and_then(|told| usize::try_from(told.f_bsize).ok());
    bytes
        .filter(|bytes| bytes.is_power_of_two())
        .unwrap_or(HUGE_PAGE)
}

/// A policy as mbind(2) and set_mempolicy(2) take it.
struct Mode {
    number: libc::c_int,
    mask: [u64; NODE_WORDS],
    names_nodes: bool,
    /// Whether a kernel without NUMA, whose only node is 0, keeps it anyway.
    is_kept_without_numa: bool,
}

impl Mode {
    /// None of the default policy, which is no policy.
    fn of(policy: &MemoryPolicy) -> Result<Option<Self>, Errno> {
        let (number, nodes): (libc::c_int, &[NodeId]) = match policy {
            MemoryPolicy::Default => return Ok(None),
            MemoryPolicy::Local => (libc::MPOL_LOCAL, &[]),
            MemoryPolicy::Bind(nodes) => (libc::MPOL_BIND, nodes),
            MemoryPolicy::Interleave(nodes) => (libc::MPOL_INTERLEAVE, nodes),
            MemoryPolicy::Preferred(node) => (libc::MPOL_PREFERRED, std::slice::from_ref(node)),
        };
        let mut mask = [0u64; NODE_WORDS];
        for node in nodes {
            let word = mask
                .get_mut((node.0 / WORD_BITS) as usize)
                .ok_or(Errno::INVAL)?;
            *word |= 1 << (node.0 % WORD_BITS);
        }
        Ok(Some(Self {
            number,
            mask,
            names_nodes: !nodes.is_empty(),
            is_kept_without_numa: nodes.iter().all(|node| node.0 == 0),
        }))
    }

    /// The mask and its size. The kernel counts one bit more than the mask has.
    fn nodes(&self) -> (*const u64, libc::c_ulong) {
        if self.names_nodes {
            (self.mask.as_ptr(), libc::c_ulong::from(NODES_MAX) + 1)
        } else {
            (std::ptr::null(), 0)
        }
    }

    fn outcome(&self, result: libc::c_long) -> Result<(), Errno> {
        match result {
            0 => Ok(()),
            _ if last_errno() == Errno::NOSYS && self.is_kept_without_numa => Ok(()),
            _ => Err(last_errno()),
        }
    }
}

/// Sets the policy of the calling thread; processes that it starts inherit it, also across execve(2)
/// (set_mempolicy(2)). The default policy leaves it as it is.
pub(crate) fn set_thread_policy(policy: &MemoryPolicy) -> Result<(), Errno> {
    let Some(mode) = Mode::of(policy)? else {
        return Ok(());
    };
    let (mask, bits) = mode.nodes();
    // SAFETY: the mask, where there is one, is an initialized array of `NODES_MAX` bits that outlives the call,
    // which only reads it.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode.number, mask, bits) };
    mode.outcome(result)
}

impl Mapping {
    /// `length` bytes (at least one page), zeroed, no page of them there yet.
    pub(crate) fn new(length: usize) -> Result<Self, Errno> {
        let length = length.max(1);
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches no memory of ours.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(last_errno());
        }
        Ok(Self { start, length })
    }

    /// The same of huge pages of the default size, which the administrator has set aside
    /// (`vm.nr_hugepages`): so many bytes as fill whole ones.
    pub(crate) fn of_huge_pages(length: usize) -> Result<Self, Errno> {
        let length = length.max(1).next_multiple_of(default_huge_page());
        // SAFETY: as in `new`.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(last_errno());
        }
        Ok(Self { start, length })
    }

    /// Has the kernel take the pages by `policy` when they are touched. A kernel without NUMA has one
    /// node, 0, and needs no policy.
    pub(crate) fn set_policy(&self, policy: &MemoryPolicy) -> Result<(), Errno> {
        let Some(mode) = Mode::of(policy)? else {
            return Ok(());
        };
        let (mask, bits) = mode.nodes();
        // SAFETY: the mapping is ours; the mask, where there is one, is an initialized array of `NODES_MAX`
        // bits that outlives the call, which only reads it.
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.start,
                self.length,
                mode.number,
                mask,
                bits,
                0,
            )
        };
        mode.outcome(result)
    }

    /// Asks for huge pages; a kernel without them refuses, no harm done.
    pub(crate) fn prefer_huge_pages(&self) {
        // SAFETY: advice about our own whole mapping.
        unsafe { libc::madvise(self.start, self.length, libc::MADV_HUGEPAGE) };
    }

    /// The node that the first page is on; it must have been touched.
    pub(crate) fn node(&self) -> Known<NodeId> {
        node_of(self.start.cast())
    }

    /// Its bytes.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is readable and writable, as long as stated, initialized by the kernel (with
        // zeroes), and lives as long as `self`, of which this is the only borrow.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast(), self.length) }
    }

    /// Its bytes, to be read only.
    pub(crate) fn payload(&self) -> &[u8] {
        // SAFETY: as above; it is written through `&mut self` alone.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.length) }
    }

    /// Its whole words.
    fn words(&mut self) -> &mut [u64] {
        let words = self.length / size_of::<u64>();
        // SAFETY: as above, and a mapping starts on a page, so its words are aligned.
        unsafe { std::slice::from_raw_parts_mut(self.start.cast(), words) }
    }
}

/// The node that the page at `start` is on; it must have been touched.
pub(crate) fn node_of(start: *const u8) -> Known<NodeId> {
    const PATH: &str = "move_pages(2)";
    let mut status: libc::c_int = -1;
    // SAFETY: the kernel only looks up which page the address is of; `status` takes the one answer, and without
    // a list of nodes nothing is moved.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            1 as libc::c_ulong,
            &raw const start,
            std::ptr::null::<libc::c_int>(),
            &raw mut status,
            0,
        )
    };
    if result != 0 {
        let errno = last_errno();
        let cause = if errno == Errno::NOSYS {
            Cause::Absent
        } else {
            Cause::Unreadable
        };
        return Known::unknown(cause, PATH, errno.to_string());
    }
    match u32::try_from(status) {
        Ok(node) => Known::Value(NodeId(node)),
        Err(_) => Known::unknown(
            Cause::NotSaid,
            PATH,
            Errno::from_raw_os_error(-status).to_string(),
        ),
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length, and nothing borrows it any more.
        unsafe { libc::munmap(self.start, self.length) };
    }
}

/// Memory of one NUMA node, whole pages, every one of them touched there.
#[derive(Debug)]
pub(crate) struct NodeBuffer(Mapping);

impl NodeBuffer {
    /// `size` bytes on `node`. A kernel without NUMA has one node, 0.
    pub(crate) fn new(size: Bytes, node: NodeId) -> Result<Self, Errno> {
        let length = usize::try_from(size.as_u64()).map_err(|_| Errno::NOMEM)?;
        let mut mapping = Mapping::new(length)?;
        mapping.set_policy(&MemoryPolicy::Bind(vec![node]))?;
        mapping.prefer_huge_pages();
        mapping.words().fill(1);
        match mapping.node() {
            Known::Value(other) if other != node => Err(Errno::NOMEM),
            _ => Ok(Self(mapping)),
        }
    }

    /// Its words.
    pub(crate) fn words(&mut self) -> &mut [u64] {
        self.0.words()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "what the kernel says elsewhere is the test's measure"
    )]
    fn huge_pages_have_the_size_that_the_kernel_tells() {
        let facts = std::fs::read_to_string("/proc/meminfo").expect("facts");
        let line = (facts.lines()).find_map(|line| line.strip_prefix("Hugepagesize:"));
        // A kernel without huge pages reports none.
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        let told = kib.map_or(HUGE_PAGE, |kib: usize| kib * 1_024);
        assert_eq!(default_huge_page(), told);
    }
}
