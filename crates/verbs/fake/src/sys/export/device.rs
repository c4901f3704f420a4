//! Devices: their list, what they are, what happens to them.

use std::ffi::{CStr, c_char, c_int};
use std::sync::Arc;

use linerate_verbs::sys::abi::{
    IBV_LINK_LAYER_ETHERNET, IBV_PORT_ACTIVE, ibv_async_event, ibv_context, ibv_device,
    ibv_device_attr, ibv_gid_entry, ibv_port_attr,
};

use super::{device_of, fails, give, is_gone, take_back};
use crate::sys::completion::Teller;
use crate::sys::device::SUBNET_MANAGER;
use crate::sys::number::{LINK_LAYER_INFINIBAND, MTU_1024, MTU_4096, PORT_DOWN};
use crate::sys::world::{Context, ContextObject, DeviceEvent, Kind, event_of, operations, world};
use crate::{COMPLETIONS_MAX, DEPTH_MAX, Fault, Link};

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    let world = world();
    if world.no_kernel {
        return fails(libc::ENOSYS);
    }
    let mut list: Vec<*mut ibv_device> = (world.devices.iter())
        .map(|device| std::ptr::with_exposed_provenance_mut(device.address))
        .collect();
    let known = c_int::try_from(list.len()).expect("few devices");
    list.push(std::ptr::null_mut());
    // SAFETY: the caller's place for a number.
    unsafe { count.write(known) };
    Box::into_raw(list.into_boxed_slice()).cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: it came from `ibv_get_device_list`: so many entries up to null.
    unsafe {
        let mut count = 0;
        while !(*list.add(count)).is_null() {
            count += 1;
        }
        take_back(std::ptr::slice_from_raw_parts_mut(list, count + 1));
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    let mut world = world();
    let own = world.devices.iter();
    let number = own
        .clone()
        .position(|own| own.address == device.addr())
        .expect("a device of a list");
    if world.devices[number].has(Fault::OpenDenied) {
        return fails(libc::EACCES);
    }
    if world.devices[number].has(Fault::NodeMissing) {
        return fails(libc::ENOENT);
    }
    if is_gone(&world, number) {
        return fails(libc::ENODEV);
    }
    let teller = Arc::new(Teller::new());
    let (raw, address) = give(ContextObject {
        base: ibv_context {
            device,
            ops: operations(),
            cmd_fd: -1,
            async_fd: teller.fd,
            num_comp_vectors: 1,
        },
        teller: Arc::clone(&teller),
    });
    world.contexts.insert(
        address,
        Context {
            device: number,
            teller,
            children: 0,
        },
    );
    world.born(number, Kind::Context);
    raw.cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    let mut world = world();
    let own = world.contexts.get(&context.addr());
    let own = own.expect("a context that is open");
    let device = own.device;
    if own.children > 0 {
        return libc::EBUSY;
    }
    world.contexts.remove(&context.addr());
    world.died(device, Kind::Context);
    // SAFETY: it was given out as such and is removed.
    unsafe { take_back(context.cast::<ContextObject>()) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    into: *mut ibv_device_attr,
) -> c_int {
    let world = world();
    let device = device_of(&world, context);
    if is_gone(&world, device) {
        return libc::EIO;
    }
    let is_iwarp = world.devices[device].link == Link::Iwarp;
    let number = |value: u32| c_int::try_from(value).unwrap_or(c_int::MAX);
    // SAFETY: the caller's structure, of which every bit pattern is a value.
    unsafe {
        into.write_bytes(0, 1);
        (*into).max_mr_size = u64::MAX;
        (*into).max_qp = 1024;
        (*into).max_qp_wr = number(DEPTH_MAX);
        (*into).max_sge = 4;
        (*into).max_cq = 1024;
        (*into).max_cqe = number(COMPLETIONS_MAX);
        (*into).max_mr = 1024;
        (*into).max_pd = 1024;
        (*into).max_qp_rd_atom = 16;
        (*into).max_qp_init_rd_atom = 16;
        (*into).atomic_cap = c_int::from(!is_iwarp);
        (*into).max_ah = if is_iwarp { 0 } else { 1024 };
        (*into).max_pkeys = 1;
        (*into).phys_port_cnt = 1;
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port: u8,
    into: *mut ibv_port_attr,
) -> c_int {
    let world = world();
    let device = device_of(&world, context);
    if is_gone(&world, device) {
        return libc::EIO;
    }
    if port != 1 {
        return libc::EINVAL;
    }
    let own = &world.devices[device];
    let is_down = own.has(Fault::PortDown);
    let is_infiniband = own.link == Link::Infiniband;
    // SAFETY: the caller's structure, of which every bit pattern is a value.
    unsafe {
        into.write_bytes(0, 1);
        (*into).state = if is_down { PORT_DOWN } else { IBV_PORT_ACTIVE };
        (*into).max_mtu = MTU_4096;
        (*into).active_mtu = MTU_1024;
        (*into).gid_tbl_len = c_int::try_from(own.gids.len()).expect("few");
        (*into).max_msg_sz = 1 << 31;
        (*into).pkey_tbl_len = 1;
        (*into).active_width = 2;
        (*into).active_speed = 32;
        (*into).phys_state = if is_down { 3 } else { 5 };
        (*into).link_layer = if is_infiniband {
            (*into).sm_lid = SUBNET_MANAGER;
            (*into).lid = own.lid;
            LINK_LAYER_INFINIBAND
        } else {
            IBV_LINK_LAYER_ETHERNET
        };
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    into: *mut ibv_gid_entry,
    room: usize,
    flags: u32,
    size: usize,
) -> isize {
    let world = world();
    let errno = |errno: c_int| -(errno as isize);
    let device = device_of(&world, context);
    if is_gone(&world, device) {
        return errno(libc::EIO);
    }
    let table = &world.devices[device].gids;
    if flags != 0 || size != size_of::<ibv_gid_entry>() || room < table.len() {
        return errno(libc::EINVAL);
    }
    // SAFETY: the caller has room for so many.
    unsafe { into.copy_from_nonoverlapping(table.as_ptr(), table.len()) };
    isize::try_from(table.len()).expect("few")
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_async_event(
    context: *mut ibv_context,
    into: *mut ibv_async_event,
) -> c_int {
    // SAFETY: the caller's context is open, so it is such an object.
    let teller = unsafe { Arc::clone(&(*context.cast::<ContextObject>()).teller) };
    let Some(told) = teller.take() else {
        return -1;
    };
    let mut world = world();
    let device = device_of(&world, context);
    world.born(device, Kind::Event);
    // The acknowledgement names no context: it is distinguished by its device.
    world.unacknowledged.push((told, device));
    // SAFETY: the caller's structure.
    unsafe { into.write(event_of(told)) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    let mut world = world();
    // SAFETY: the caller's structure.
    let told = unsafe {
        DeviceEvent {
            kind: (*event).event_type,
            element: (*event).element.addr(),
        }
    };
    let position = world
        .unacknowledged
        .iter()
        .position(|(own, _)| *own == told);
    let (_, device) = world
        .unacknowledged
        .remove(position.expect("an event that was taken and is not acknowledged"));
    world.died(device, Kind::Event);
}

#[unsafe(no_mangle)]
extern "C" fn ibv_event_type_str(kind: c_int) -> *const c_char {
    let text: &CStr = match kind {
        0 => c"CQ error",
        3 => c"local access violation work queue error",
        8 => c"local catastrophic error",
        9 => c"port active",
        10 => c"port error",
        _ => c"unknown",
    };
    text.as_ptr()
}
