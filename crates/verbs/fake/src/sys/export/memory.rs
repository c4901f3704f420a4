//! Protection domains, and what is in them besides queue pairs: regions, address handles.

use std::ffi::{c_int, c_uint, c_void};

use linerate_verbs::sys::abi::{
    IBV_ACCESS_LOCAL_WRITE, IBV_ACCESS_ON_DEMAND, IBV_ACCESS_REMOTE_ATOMIC,
    IBV_ACCESS_REMOTE_WRITE, ibv_ah, ibv_ah_attr, ibv_context, ibv_mr, ibv_pd,
};

use super::{child_born, child_died, device_of, fails, give, is_gone, take_back};
use crate::Fault;
use crate::sys::region::Region;
use crate::sys::world::{Domain, Handle, Kind, world};

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    let mut world = world();
    let device = device_of(&world, context);
    if is_gone(&world, device) {
        return fails(libc::EIO);
    }
    let (raw, address) = give(ibv_pd { context, handle: 0 });
    let own = world.contexts.get_mut(&context.addr());
    own.expect("it was there").children += 1;
    let domain = Domain {
        context: context.addr(),
        children: 0,
    };
    world.domains.insert(address, domain);
    world.born(device, Kind::Domain);
    raw
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dealloc_pd(domain: *mut ibv_pd) -> c_int {
    let mut world = world();
    let device = world.device_of_domain(domain.addr());
    if world.domains[&domain.addr()].children > 0 {
        return libc::EBUSY;
    }
    let own = world.domains.remove(&domain.addr()).expect("it was there");
    let context = world.contexts.get_mut(&own.context);
    context.expect("a domain keeps it open").children -= 1;
    world.died(device, Kind::Domain);
    // SAFETY: it was given out as such and is removed.
    unsafe { take_back(domain) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr_iova2(
    domain: *mut ibv_pd,
    start: *mut c_void,
    length: usize,
    virtual_start: u64,
    access: c_uint,
) -> *mut ibv_mr {
    let mut world = world();
    let device = world.device_of_domain(domain.addr());
    if is_gone(&world, device) {
        return fails(libc::EIO);
    }
    let changes = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
    if access & changes != 0 && access & IBV_ACCESS_LOCAL_WRITE == 0 {
        return fails(libc::EINVAL);
    }
    let is_pinned = access & IBV_ACCESS_ON_DEMAND == 0;
    let refusal = world.devices[device].fault(Fault::PagingRefused);
    if !is_pinned && refusal != 0 {
        return fails(c_int::try_from(refusal).unwrap_or(libc::EINVAL));
    }
    let pinned = if is_pinned { length as u64 } else { 0 };
    let own = &mut world.devices[device];
    let limit = own.fault(Fault::Memlock);
    if limit != 0 && own.pinned + pinned > limit {
        return fails(libc::ENOMEM);
    }
    own.pinned += pinned;
    // As devices have it: the last 8 bits are not the index.
    let key = world.next_number() << 8 | 0x5a;
    let region = Region {
        device,
        domain: domain.addr(),
        start: start.expose_provenance(),
        length,
        virtual_start,
        access,
        pinned,
    };
    world.regions.insert(key, region);
    child_born(&mut world, domain, Kind::Region);
    // SAFETY: the domain is alive (looked up above).
    let context = unsafe { (*domain).context };
    let (raw, _) = give(ibv_mr {
        context,
        pd: domain,
        addr: start,
        length,
        handle: 0,
        lkey: key,
        rkey: key,
    });
    raw
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dereg_mr(registration: *mut ibv_mr) -> c_int {
    let mut world = world();
    // SAFETY: the caller's registration, not released yet.
    let key = unsafe { (*registration).lkey };
    let own = world.regions.remove(&key);
    let own = own.expect("a region that is registered");
    world.devices[own.device].pinned -= own.pinned;
    child_died(&mut world, own.domain, Kind::Region);
    // SAFETY: it was given out as such and is removed.
    unsafe { take_back(registration) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_ah(domain: *mut ibv_pd, way: *mut ibv_ah_attr) -> *mut ibv_ah {
    let mut world = world();
    let device = world.device_of_domain(domain.addr());
    if is_gone(&world, device) {
        return fails(libc::EIO);
    }
    // SAFETY: the caller's structure.
    let way = unsafe { *way };
    if !world.devices[device].takes(&way) {
        return fails(libc::EINVAL);
    }
    // SAFETY: the domain is alive (looked up above).
    let context = unsafe { (*domain).context };
    let (raw, address) = give(ibv_ah {
        context,
        pd: domain,
        handle: 0,
    });
    let handle = Handle {
        domain: domain.addr(),
        way,
    };
    world.handles.insert(address, handle);
    child_born(&mut world, domain, Kind::Handle);
    raw
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_ah(handle: *mut ibv_ah) -> c_int {
    let mut world = world();
    let own = world.handles.remove(&handle.addr());
    let own = own.expect("an address handle that is alive");
    child_died(&mut world, own.domain, Kind::Handle);
    // SAFETY: it was given out as such and is removed.
    unsafe { take_back(handle) };
    0
}
