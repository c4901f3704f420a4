//! Registered memory: what may be done with it, and doing it.

use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use linerate_verbs::sys::abi::{IBV_ACCESS_LOCAL_WRITE, ibv_sge};

use super::number::{WC_LOC_LEN_ERR, WC_LOC_PROT_ERR, WC_REM_ACCESS_ERR};
use super::world::World;

/// A registration. It is looked up under the lock of the world whenever it is used: after it was returned
/// its memory is not touched.
pub(super) struct Region {
    pub(super) device: usize,
    pub(super) domain: usize,
    pub(super) start: usize,
    pub(super) length: usize,
    /// What the region's first byte is called by those who use it.
    pub(super) virtual_start: u64,
    pub(super) access: c_uint,
    /// Bytes that count against the limit.
    pub(super) pinned: u64,
}

/// A part of a region, checked.
#[derive(Clone, Copy)]
struct Part {
    start: usize,
    length: usize,
}

impl World {
    fn part(
        &self,
        domain: usize,
        key: u32,
        (address, length): (u64, usize),
        access: c_uint,
    ) -> Option<Part> {
        let region = self.regions.get(&key)?;
        let offset = usize::try_from(address.checked_sub(region.virtual_start)?).ok()?;
        let end = offset.checked_add(length)?;
        let is_allowed = region.domain == domain && region.access & access == access;
        (is_allowed && end <= region.length).then_some(Part {
            start: region.start + offset,
            length,
        })
    }

    fn parts(&self, domain: usize, pieces: &[ibv_sge], access: c_uint) -> Result<Vec<Part>, c_int> {
        let part = |piece: &ibv_sge| {
            let range = (piece.addr, piece.length as usize);
            self.part(domain, piece.lkey, range, access)
                .ok_or(WC_LOC_PROT_ERR)
        };
        pieces.iter().map(part).collect()
    }

    /// Whether all of this end's pieces may be used like that.
    pub(super) fn allow(
        &self,
        domain: usize,
        pieces: &[ibv_sge],
        access: c_uint,
    ) -> Result<(), c_int> {
        self.parts(domain, pieces, access).map(|_| ())
    }

    /// Collects the bytes of this end's pieces.
    pub(super) fn gather(
        &self,
        domain: usize,
        pieces: &[ibv_sge],
        into: &mut Vec<u8>,
    ) -> Result<(), c_int> {
        into.clear();
        for part in self.parts(domain, pieces, 0)? {
            read(part, into);
        }
        Ok(())
    }

    /// Fills this end's pieces.
    pub(super) fn scatter(
        &self,
        domain: usize,
        pieces: &[ibv_sge],
        bytes: &[u8],
    ) -> Result<(), c_int> {
        let parts = self.parts(domain, pieces, IBV_ACCESS_LOCAL_WRITE)?;
        let room: usize = parts.iter().map(|part| part.length).sum();
        if bytes.len() > room {
            return Err(WC_LOC_LEN_ERR);
        }
        let mut rest = bytes;
        for part in parts {
            let (now, later) = rest.split_at(part.length.min(rest.len()));
            write(part, now);
            rest = later;
        }
        Ok(())
    }

    /// Reads the remote end's memory.
    pub(super) fn fetch(
        &self,
        domain: usize,
        key: u32,
        range: (u64, usize),
        access: c_uint,
        into: &mut Vec<u8>,
    ) -> Result<(), c_int> {
        into.clear();
        if range.1 > 0 {
            let part = self.part(domain, key, range, access);
            read(part.ok_or(WC_REM_ACCESS_ERR)?, into);
        }
        Ok(())
    }

    /// Writes the remote end's memory.
    pub(super) fn store(
        &self,
        domain: usize,
        (key, address): (u32, u64),
        access: c_uint,
        bytes: &[u8],
    ) -> Result<(), c_int> {
        if !bytes.is_empty() {
            let part = self.part(domain, key, (address, bytes.len()), access);
            write(part.ok_or(WC_REM_ACCESS_ERR)?, bytes);
        }
        Ok(())
    }

    /// Adds to a number in the remote end's memory; what was there.
    pub(super) fn add(
        &self,
        domain: usize,
        (key, address): (u32, u64),
        access: c_uint,
        amount: u64,
    ) -> Result<u64, c_int> {
        let part = self.part(domain, key, (address, 8), access);
        let start = part.ok_or(WC_REM_ACCESS_ERR)?.start;
        // SAFETY: 8 bytes of a registered region, aligned because their address is (checked before); all of
        // this library go there atomically, and so must the program.
        let number = unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(start)) };
        Ok(number.fetch_add(amount, Ordering::AcqRel))
    }
}

fn read(part: Part, into: &mut Vec<u8>) {
    let from: *const u8 = std::ptr::with_exposed_provenance(part.start);
    into.reserve(part.length);
    // SAFETY: the region is registered, so its memory is there; as of a device, the program may change it
    // meanwhile, which changes bytes and nothing else. The room was just reserved.
    unsafe {
        let end = into.as_mut_ptr().add(into.len());
        std::ptr::copy_nonoverlapping(from, end, part.length);
        into.set_len(into.len() + part.length);
    }
}

/// The last byte comes last, as with real devices; programs that poll memory rely on that.
fn write(part: Part, bytes: &[u8]) {
    let Some((last, before)) = bytes.split_last() else {
        return;
    };
    let to: *mut u8 = std::ptr::with_exposed_provenance_mut(part.start);
    // SAFETY: the region is registered and long enough (checked by the callers); see `read`.
    unsafe {
        std::ptr::copy_nonoverlapping(before.as_ptr(), to, before.len());
        fence(Ordering::Release);
        to.add(before.len()).write_volatile(*last);
    }
}
