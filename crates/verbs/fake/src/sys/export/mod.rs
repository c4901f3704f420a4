//! The functions of libibverbs that `linerate_verbs` looks up, with the conventions of their manual pages, and
//! four of our own for tests.

mod device;
mod memory;
mod queue;

use std::ffi::c_int;

use linerate_verbs::sys::abi::{ibv_context, ibv_pd};

use super::world::{Kind, World, world};
use crate::{Fault, Link};

/// How a function that returns a pointer fails.
pub(super) fn fails<T>(errno: c_int) -> *mut T {
    // SAFETY: this thread's own `errno`.
    unsafe { *libc::__errno_location() = errno };
    std::ptr::null_mut()
}

pub(super) fn give<T>(object: T) -> (*mut T, usize) {
    let raw = Box::into_raw(Box::new(object));
    (raw, raw.expose_provenance())
}

/// # Safety
///
/// `raw` was given out by `give`, as that type, and is not used any more.
pub(super) unsafe fn take_back<T: ?Sized>(raw: *mut T) {
    // SAFETY: the caller's word.
    drop(unsafe { Box::from_raw(raw) });
}

pub(super) fn is_gone(world: &World, device: usize) -> bool {
    world.devices[device].has(Fault::Gone)
}

#[unsafe(no_mangle)]
extern "C" fn fake_add_device(link: u32) -> u32 {
    world().add_device(Link::ALL[link as usize])
}

#[unsafe(no_mangle)]
extern "C" fn fake_set(device: u32, fault: u32, value: u64) {
    let fault = Fault::ALL[fault as usize];
    world().set(device as usize, fault, value);
}

#[unsafe(no_mangle)]
extern "C" fn fake_objects_alive(device: u32, kind: u32) -> u64 {
    world().devices[device as usize].alive[kind as usize]
}

#[unsafe(no_mangle)]
extern "C" fn fake_messages(device: u32) -> u64 {
    world().devices[device as usize].messages
}

pub(super) fn device_of(world: &World, context: *mut ibv_context) -> usize {
    let own = world.contexts.get(&context.addr());
    own.expect("a context that is open").device
}

pub(super) fn child_born(world: &mut World, domain: *mut ibv_pd, kind: Kind) {
    let own = world.domains.get_mut(&domain.addr());
    own.expect("a domain that is alive").children += 1;
    let device = world.device_of_domain(domain.addr());
    world.born(device, kind);
}

pub(super) fn child_died(world: &mut World, domain: usize, kind: Kind) {
    let own = world.domains.get_mut(&domain);
    own.expect("what is in it keeps it alive").children -= 1;
    let device = world.device_of_domain(domain);
    world.died(device, kind);
}
