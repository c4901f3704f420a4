//! Memory that a device may read and write.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Range;

use rustix::io::Errno;

use super::abi::{
    IBV_ACCESS_HUGETLB, IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_ON_DEMAND, IBV_ACCESS_RELAXED_ORDERING,
    IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, ibv_mr,
};
use super::device::Device;
use super::queue::ProtectionDomain;
use super::work::Remote;
use super::{last_errno, outcome};
use crate::VerbsError;

/// Memory that can be registered.
///
/// # Safety
///
/// `start` and `length` name memory that the value alone owns, that any program part may read and write, and
/// that stays where it is, whatever is done with the value, until the value is dropped.
pub unsafe trait Memory {
    /// Its first byte.
    fn start(&self) -> *mut u8;

    /// Its length in bytes.
    fn length(&self) -> usize;
}

/// What devices may do with a region; writing to it by this host's own requests is always allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of ibv_reg_mr(3), in any combination"
)]
pub struct Access {
    /// The remote end may write it.
    pub remote_write: bool,
    /// The remote end may read it.
    pub remote_read: bool,
    /// The remote end may change 8 bytes of it at a time.
    pub remote_atomic: bool,
    /// Its pages are not pinned: the device asks for them.
    pub on_demand: bool,
    /// It is of huge pages.
    pub huge_pages: bool,
    /// Writes to it may be reordered on PCIe. A device that cannot do this is free to ignore it.
    pub relaxed_ordering: bool,
}

impl Access {
    /// What the remote end may do, as the bits that a queue pair takes.
    pub(super) fn remote_bits(self) -> u32 {
        [
            (self.remote_write, IBV_ACCESS_REMOTE_WRITE),
            (self.remote_read, IBV_ACCESS_REMOTE_READ),
            (self.remote_atomic, IBV_ACCESS_REMOTE_ATOMIC),
        ]
        .into_iter()
        .filter(|(set, _)| *set)
        .fold(IBV_ACCESS_LOCAL_WRITE, |all, (_, bit)| all | bit)
    }

    fn bits(self) -> u32 {
        [
            (self.on_demand, IBV_ACCESS_ON_DEMAND),
            (self.huge_pages, IBV_ACCESS_HUGETLB),
            (self.relaxed_ordering, IBV_ACCESS_RELAXED_ORDERING),
        ]
        .into_iter()
        .filter(|(set, _)| *set)
        .fold(self.remote_bits(), |all, (_, bit)| all | bit)
    }
}

/// Memory, registered with a device. What the remote end writes there changes it at any time, so no safe function gives a
/// reference to it: bytes are copied in and out.
///
/// ```compile_fail
/// fn view(region: &mut linerate_verbs::Region<impl linerate_verbs::Memory>) -> &mut [u8] {
///     region.view(0..8) // takes `unsafe`: a device may write there
/// }
/// ```
pub struct Region<M: Memory> {
    registration: *mut ibv_mr,
    domain: ProtectionDomain,
    memory: ManuallyDrop<M>,
}

impl<M: Memory> fmt::Debug for Region<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("length", &self.memory.length())
            .finish_non_exhaustive()
    }
}

/// Why memory was not registered: what was requested beyond registering it may be what the device lacks.
fn refusal(device: &Device, access: Access, errno: Errno) -> VerbsError {
    let lacks = |doing, hint| VerbsError::NotSupported {
        doing,
        device: device.name().to_owned(),
        errno,
        hint,
    };
    let is_unknown = matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS);
    // The kernel reports that it is invalid where the device has none of it.
    if access.on_demand && (is_unknown || errno == Errno::INVAL) {
        return lacks(
            "register memory that is not pinned",
            "the device has no on-demand paging for this; leave `--on-demand` out",
        );
    }
    if access.relaxed_ordering && is_unknown {
        return lacks(
            "register memory for relaxed ordering",
            "the device does not reorder its writes; leave `--relaxed-ordering` out",
        );
    }
    device.refused("register memory", errno)
}

/// A part of a region, for this end's requests.
#[derive(Debug, Clone, Copy)]
pub struct Slice<'r> {
    pub(super) address: u64,
    pub(super) length: u32,
    pub(super) key: u32,
    /// Borrowed, and of the region's thread: the processor reads what travels in a request.
    pub(super) region: PhantomData<(&'r (), *const u8)>,
}

impl<M: Memory> Region<M> {
    /// Registers all of `memory`.
    pub fn new(domain: &ProtectionDomain, memory: M, access: Access) -> Result<Self, VerbsError> {
        let device = domain.device();
        let start = memory.start();
        // SAFETY: the domain is alive, and so is the memory until after the registration's end, by the
        // contract of `Memory` and the order in `drop`.
        let registration = unsafe {
            (device.library().ibv_reg_mr_iova2)(
                domain.raw(),
                start.cast(),
                memory.length(),
                start.expose_provenance() as u64,
                access.bits(),
            )
        };
        if registration.is_null() {
            return Err(refusal(device, access, last_errno()));
        }
        Ok(Self {
            registration,
            domain: domain.clone(),
            memory: ManuallyDrop::new(memory),
        })
    }

    /// Its length in bytes.
    pub fn length(&self) -> usize {
        self.memory.length()
    }

    /// Where it begins, to ask the kernel about its pages.
    pub fn start(&self) -> *const u8 {
        self.memory.start()
    }

    fn check(&self, range: &Range<usize>) {
        let length = self.memory.length();
        assert!(
            range.start <= range.end && range.end <= length,
            "{range:?} is not within a region of {length} bytes"
        );
    }

    /// A part of it, for this end's requests. Panics when it is not within the region, or longer than a
    /// message can be (4 GiB).
    pub fn slice(&self, range: Range<usize>) -> Slice<'_> {
        self.check(&range);
        // SAFETY: the registration lives as long as `self`.
        let key = unsafe { (*self.registration).lkey };
        Slice {
            address: self.memory.start().addr() as u64 + range.start as u64,
            length: u32::try_from(range.len()).expect("a message is shorter than 4 GiB"),
            key,
            region: PhantomData,
        }
    }

    /// Where the remote end finds its byte `at`.
    pub fn remote(&self, at: usize) -> Remote {
        self.check(&(at..at));
        // SAFETY: the registration lives as long as `self`.
        let key = unsafe { (*self.registration).rkey };
        Remote {
            address: self.memory.start().addr() as u64 + at as u64,
            key,
        }
    }

    /// Its bytes in `range`, to be worked on where they are.
    ///
    /// # Safety
    ///
    /// As long as the view lives, no request of this end that writes there (a receive, a read, an atomic) is under way,
    /// and no remote end that may write to the region does.
    pub unsafe fn view(&mut self, range: Range<usize>) -> &mut [u8] {
        self.check(&range);
        // SAFETY: within the memory, which is ours alone by the contract of `Memory`; `self` is borrowed, so no slice of
        // it is made meanwhile; the caller promises that no device writes there.
        unsafe { std::slice::from_raw_parts_mut(self.memory.start().add(range.start), range.len()) }
    }

    /// Copies `bytes` to its byte `at` and behind, while requests hold slices of it.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        self.check(&(at..at.saturating_add(bytes.len())));
        // SAFETY: within the memory, which is ours by the contract of `Memory` and does not overlap with
        // what others own.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.memory.start().add(at), bytes.len());
        }
    }

    /// Copies from its byte `at` and behind, while requests hold slices of it.
    pub fn read(&self, at: usize, into: &mut [u8]) {
        self.check(&(at..at.saturating_add(into.len())));
        // SAFETY: as in `write`.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.memory.start().add(at),
                into.as_mut_ptr(),
                into.len(),
            );
        }
    }

    /// Its byte `at`, as it is now: for one who waits for the remote end to write it.
    #[inline]
    pub fn look(&self, at: usize) -> u8 {
        assert!(at < self.memory.length(), "a byte within the region");
        // SAFETY: within the memory; volatile, because the device changes it behind the compiler's back.
        unsafe { self.memory.start().add(at).read_volatile() }
    }

    /// Sets its byte `at`.
    #[inline]
    pub fn set(&self, at: usize, byte: u8) {
        assert!(at < self.memory.length(), "a byte within the region");
        // SAFETY: as in `look`.
        unsafe { self.memory.start().add(at).write_volatile(byte) };
    }
}

impl<M: Memory> Drop for Region<M> {
    fn drop(&mut self) {
        let library = self.domain.device().library();
        // SAFETY: it was registered by `new` and is returned once, before the memory is dropped. Of a device
        // that is gone the library reports that it was returned.
        let ended = outcome(unsafe { (library.ibv_dereg_mr)(self.registration) });
        if ended.is_ok() {
            // SAFETY: it is dropped here only. Memory that a device may still write is never freed.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        }
    }
}
