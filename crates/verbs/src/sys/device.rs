//! Devices: which there are, what they can do, what happens to them.

use std::ffi::{CStr, c_int, c_void};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::abi::{
    IBV_GID_TYPE_ROCE_V1, IBV_GID_TYPE_ROCE_V2, IBV_LINK_LAYER_ETHERNET, IBV_NODE_RNIC,
    IBV_PORT_ACTIVE, ibv_async_event, ibv_context, ibv_device, ibv_device_attr, ibv_gid_entry,
    ibv_port_attr,
};
use super::load::{Ibverbs, ibverbs, text};
use super::{last_errno, outcome};
use crate::VerbsError;
use crate::gid::{Gid, GidEntry, GidKind};

/// Where the kernel has the devices' files.
const NODES: &str = "dev/infiniband";
/// Where it has the devices themselves ...
const DEVICES: &str = "sys/class/infiniband";
/// ... and how its module `ib_uverbs` exposes them to programs.
const FOR_PROGRAMS: &str = "sys/class/infiniband_verbs";

/// `enum ibv_event_type`: a completion queue has lost completions.
const CQ_ERR: u32 = 0;
/// `enum ibv_event_type`: the device was removed.
const DEVICE_FATAL: u32 = 8;
/// `enum ibv_event_type`: a port is no longer active.
const PORT_ERR: u32 = 10;

/// The list that the library returns, freed at the end.
struct List {
    library: &'static Ibverbs,
    first: *mut *mut ibv_device,
    count: usize,
}

impl List {
    fn new() -> Result<Self, VerbsError> {
        let library = ibverbs()?;
        let mut count: c_int = 0;
        // SAFETY: the library writes the number of entries and returns a list of so many.
        let first = unsafe { (library.ibv_get_device_list)(&raw mut count) };
        if first.is_null() {
            return Err(match last_errno() {
                // The kernel has no RDMA at all, or keeps it from programs.
                Errno::NOSYS | Errno::NOENT | Errno::OPNOTSUPP => none_shown(Path::new("/")),
                errno => VerbsError::refused("list the RDMA devices", "this host", errno),
            });
        }
        let count = usize::try_from(count).unwrap_or(0);
        Ok(Self {
            library,
            first,
            count,
        })
    }

    fn devices(&self) -> impl Iterator<Item = (*mut ibv_device, String)> {
        (0..self.count).map(|index| {
            // SAFETY: the list has `count` entries, each of which lives until the list is returned; the name
            // is an array that ends with a null byte.
            let (device, name) = unsafe {
                let device = *self.first.add(index);
                (device, CStr::from_ptr((&raw const (*device).name).cast()))
            };
            (device, name.to_string_lossy().into_owned())
        })
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: it came from `ibv_get_device_list` and is returned once; opened devices stay.
        unsafe { (self.library.ibv_free_device_list)(self.first) };
    }
}

/// The names of this host's devices, as programs may open them; at least one.
pub fn device_names() -> Result<Vec<String>, VerbsError> {
    let names: Vec<String> = List::new()?.devices().map(|(_, name)| name).collect();
    if names.is_empty() {
        return Err(none_shown(Path::new("/")));
    }
    Ok(names)
}

/// Why the library shows no device: there is none, or the kernel has some (below `root`) and what connects
/// them to programs is missing.
fn none_shown(root: &Path) -> VerbsError {
    let entries = std::fs::read_dir(root.join(DEVICES));
    let mut present: Vec<String> = (entries.into_iter().flatten().flatten())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    if present.is_empty() {
        return VerbsError::NoDevice;
    }
    present.sort_unstable();
    let present = present.join(", ");
    if root.join(FOR_PROGRAMS).join("abi_version").exists() {
        VerbsError::ProviderMissing { present }
    } else {
        VerbsError::ModuleMissing { present }
    }
}

/// An open device. Clones share it; it is closed with the last object that was created from it.
#[derive(Clone)]
pub struct Device(Arc<Opened>);

struct Opened {
    library: &'static Ibverbs,
    context: *mut ibv_context,
    name: String,
    is_iwarp: bool,
}

// SAFETY: the library's functions on a context may be called by any thread at any time
// (Documentation of rdma-core: "libibverbs is fully thread safe").
unsafe impl Send for Opened {}
// SAFETY: see above.
unsafe impl Sync for Opened {}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: everything made from the context holds this value, so nothing is left.
        unsafe { (self.library.ibv_close_device)(self.context) };
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Device").field(&self.0.name).finish()
    }
}

/// What a device can have at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceAttributes {
    /// Work requests of a queue pair, in each direction.
    pub queue_depth_max: u32,
    /// Completions of a completion queue.
    pub completions_max: u32,
    /// Reads and atomics that a queue pair answers at a time.
    pub reads_answered_max: u8,
    /// Reads and atomics that a queue pair has in flight.
    pub reads_asked_max: u8,
    /// Whether atomic operations are answered.
    pub atomics: bool,
    /// Ports.
    pub ports: u8,
}

/// A port as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortAttributes {
    /// Whether it carries data.
    pub is_active: bool,
    /// `NOP`, `DOWN`, `INIT`, `ARMED`, `ACTIVE` as a number (`enum ibv_port_state`).
    pub state: u32,
    /// The MTU in use, in bytes.
    pub mtu: u32,
    /// Its address within an InfiniBand subnet; 0 on Ethernet.
    pub lid: u16,
    /// Whether it is Ethernet.
    pub is_ethernet: bool,
    /// The longest message, in bytes.
    pub message_max: u32,
}

/// Something that happened to a device, a port or a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AsyncEvent {
    /// The library's name for it.
    pub what: String,
    /// Its number (`enum ibv_event_type`).
    pub kind: u32,
    /// The port that it is about, from 1; `None` of an event of the device, a queue or a queue pair.
    pub port: Option<u8>,
}

impl AsyncEvent {
    /// Whether nothing can be moved over `port` (from 1) after it: the device, that port or a completion queue
    /// is gone.
    pub fn is_fatal_for(&self, port: u8) -> bool {
        match self.kind {
            DEVICE_FATAL | CQ_ERR => true,
            PORT_ERR => self.port.is_none_or(|own| own == port),
            _ => false,
        }
    }
}

/// The port that an event of this number is about, from its union.
fn port_of(kind: u32, element: *mut c_void) -> Option<u8> {
    // `IBV_EVENT_PORT_ACTIVE` to `IBV_EVENT_SM_CHANGE`, `IBV_EVENT_CLIENT_REREGISTER`, `IBV_EVENT_GID_CHANGE`.
    if !matches!(kind, 9..=13 | 17 | 18) {
        return None;
    }
    // An `int` in the first bytes, whatever the order of bytes is; the others are not written.
    let bytes = element.addr().to_ne_bytes();
    let number = c_int::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    u8::try_from(number).ok()
}

impl Device {
    /// Opens the device of this name.
    pub fn open(name: &str) -> Result<Self, VerbsError> {
        let list = List::new()?;
        let Some((device, _)) = list.devices().find(|(_, own)| own == name) else {
            let present: Vec<String> = list.devices().map(|(_, name)| name).collect();
            if present.is_empty() {
                return Err(none_shown(Path::new("/")));
            }
            return Err(VerbsError::NoSuchDevice {
                name: name.to_owned(),
                present: present.join(", "),
            });
        };
        // SAFETY: the device is of the list, which is still there; the name ends with a null byte.
        let node = unsafe { CStr::from_ptr((&raw const (*device).dev_name).cast()) };
        let node = node.to_string_lossy();
        let refused = |errno: Errno| match errno {
            Errno::NOENT => VerbsError::NodeMissing {
                device: name.to_owned(),
                node: format!("/{NODES}/{node}"),
            },
            errno => VerbsError::refused("open the device", name, errno),
        };
        may_use(Path::new("/"), &node).map_err(refused)?;
        // SAFETY: the device is of the list, which is still there; its node type is a plain number.
        let (context, node_type) =
            unsafe { ((list.library.ibv_open_device)(device), (*device).node_type) };
        if context.is_null() {
            return Err(refused(last_errno()));
        }
        // SAFETY: the context was just opened and has this descriptor for as long as it is open. Events are
        // looked for, never waited for.
        let events = unsafe { BorrowedFd::borrow_raw((*context).async_fd) };
        let device = Self(Arc::new(Opened {
            library: list.library,
            context,
            name: name.to_owned(),
            is_iwarp: node_type == IBV_NODE_RNIC,
        }));
        rustix::io::ioctl_fionbio(events, true)
            .map_err(|errno| VerbsError::refused("listen for events", name, errno))?;
        Ok(device)
    }

    /// Its name, `mlx5_0`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether it is iWARP: RDMA over TCP, connected by the connection manager alone.
    pub fn is_iwarp(&self) -> bool {
        self.0.is_iwarp
    }

    pub(super) fn library(&self) -> &'static Ibverbs {
        self.0.library
    }

    pub(super) fn context(&self) -> *mut ibv_context {
        self.0.context
    }

    pub(super) fn refused(&self, doing: &'static str, errno: Errno) -> VerbsError {
        VerbsError::refused(doing, &self.0.name, errno)
    }

    /// What it can have at most.
    pub fn attributes(&self) -> Result<DeviceAttributes, VerbsError> {
        let mut found = std::mem::MaybeUninit::<ibv_device_attr>::zeroed();
        // SAFETY: the library fills the structure, which has its layout.
        outcome(unsafe { (self.library().ibv_query_device)(self.context(), found.as_mut_ptr()) })
            .map_err(|errno| self.refused("query the device", errno))?;
        // SAFETY: it was zeroed, and any bit pattern is a value of it.
        let found = unsafe { found.assume_init() };
        let count = |value: c_int| u32::try_from(value).unwrap_or(0);
        let small = |value: c_int| u8::try_from(value.clamp(0, 255)).unwrap_or(u8::MAX);
        Ok(DeviceAttributes {
            queue_depth_max: count(found.max_qp_wr),
            completions_max: count(found.max_cqe),
            reads_answered_max: small(found.max_qp_rd_atom),
            reads_asked_max: small(found.max_qp_init_rd_atom),
            atomics: found.atomic_cap != 0,
            ports: found.phys_port_cnt,
        })
    }

    /// A port as it is now.
    pub fn port(&self, port: u8) -> Result<PortAttributes, VerbsError> {
        let mut found = std::mem::MaybeUninit::<ibv_port_attr>::zeroed();
        // SAFETY: the library fills the first part of the structure, which has its layout.
        outcome(unsafe {
            (self.library().ibv_query_port)(self.context(), port, found.as_mut_ptr())
        })
        .map_err(|errno| self.refused("query the port", errno))?;
        // SAFETY: it was zeroed, and any bit pattern is a value of it.
        let found = unsafe { found.assume_init() };
        Ok(PortAttributes {
            is_active: found.state == IBV_PORT_ACTIVE,
            state: u32::try_from(found.state).unwrap_or(0),
            mtu: bytes_of_mtu(found.active_mtu),
            lid: found.lid,
            is_ethernet: found.link_layer == IBV_LINK_LAYER_ETHERNET,
            message_max: found.max_msg_sz,
        })
    }

    /// The GIDs of all its ports.
    pub fn gids(&self) -> Result<Vec<GidEntry>, VerbsError> {
        let mut room = 256;
        loop {
            let mut found = vec![ibv_gid_entry::default(); room];
            // SAFETY: the library writes at most `room` entries of the size stated.
            let count = unsafe {
                (self.library()._ibv_query_gid_table)(
                    self.context(),
                    found.as_mut_ptr(),
                    room,
                    0,
                    size_of::<ibv_gid_entry>(),
                )
            };
            let Ok(count) = usize::try_from(count) else {
                let errno = i32::try_from(count.saturating_abs()).unwrap_or(libc::EIO);
                // Too small for the table.
                if errno == libc::EINVAL && room < 65_536 {
                    room *= 16;
                    continue;
                }
                let errno = Errno::from_raw_os_error(errno);
                return Err(self.refused("read the table of GIDs", errno));
            };
            found.truncate(count);
            return Ok(found.into_iter().map(entry).collect());
        }
    }

    /// Readable when [`Device::next_event`] has something.
    pub fn events(&self) -> BorrowedFd<'_> {
        // SAFETY: the context is open for as long as `self` is there, and has this descriptor.
        unsafe { BorrowedFd::borrow_raw((*self.context()).async_fd) }
    }

    /// What happened, without waiting; `None` when nothing did.
    pub fn next_event(&self) -> Option<AsyncEvent> {
        let mut event = ibv_async_event {
            element: std::ptr::null_mut(),
            event_type: 0,
        };
        // SAFETY: the library fills the structure and wants it back by the second call; the text lives for
        // ever. The descriptor does not block.
        unsafe {
            if (self.library().ibv_get_async_event)(self.context(), &raw mut event) != 0 {
                return None;
            }
            let what = text((self.library().ibv_event_type_str)(event.event_type));
            let kind = u32::try_from(event.event_type).unwrap_or(u32::MAX);
            let port = port_of(kind, event.element);
            (self.library().ibv_ack_async_event)(&raw mut event);
            Some(AsyncEvent { what, kind, port })
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events()
    }
}

/// Whether this user may use the device's node below `root`. The library would wait 5 s for the node to appear,
/// and then report that it does not exist.
fn may_use(root: &Path, node: &str) -> Result<(), Errno> {
    // A library without nodes, as that of the tests.
    if node.is_empty() {
        return Ok(());
    }
    let path = root.join(NODES).join(node);
    match access(path.as_path(), Access::READ_OK | Access::WRITE_OK) {
        Err(errno @ (Errno::ACCESS | Errno::PERM)) => Err(errno),
        Err(Errno::NOENT) if !is_elsewhere(root, node) => Err(Errno::NOENT),
        _ => Ok(()),
    }
}

/// Whether the library may find a node in another place: by the number of its device. Without that number it is
/// left to the library.
fn is_elsewhere(root: &Path, node: &str) -> bool {
    let Ok(number) = std::fs::read_to_string(root.join(FOR_PROGRAMS).join(node).join("dev")) else {
        return true;
    };
    root.join("dev/char").join(number.trim()).exists()
}

fn entry(found: ibv_gid_entry) -> GidEntry {
    GidEntry {
        port: u8::try_from(found.port_num).unwrap_or(0),
        index: found.gid_index,
        gid: Gid(found.gid.0),
        kind: match found.gid_type {
            IBV_GID_TYPE_ROCE_V1 => GidKind::RoceV1,
            IBV_GID_TYPE_ROCE_V2 => GidKind::RoceV2,
            _ => GidKind::Infiniband,
        },
        interface: found.ndev_ifindex,
    }
}

/// `enum ibv_mtu`: 1 is 256 bytes, each further one the double.
fn bytes_of_mtu(mtu: c_int) -> u32 {
    match mtu {
        1..=5 => 128 << mtu,
        _ => 0,
    }
}

/// The reverse; a value in between is rounded down.
pub(super) fn mtu_of_bytes(bytes: u32) -> c_int {
    match bytes {
        4096.. => 5,
        2048.. => 4,
        1024.. => 3,
        512.. => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_mtus_are_those_of_the_header_both_ways() {
        for (number, bytes) in [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)] {
            assert_eq!(bytes_of_mtu(number), bytes);
            assert_eq!(mtu_of_bytes(bytes), number);
        }
        assert_eq!((bytes_of_mtu(0), bytes_of_mtu(6)), (0, 0));
        assert_eq!((mtu_of_bytes(1500), mtu_of_bytes(u32::MAX)), (3, 5));
    }

    /// What the library writes of a port's number: an `int`, the bytes behind it as they were.
    fn element(port: c_int) -> *mut c_void {
        let mut bytes = [0; size_of::<usize>()];
        bytes[..4].copy_from_slice(&port.to_ne_bytes());
        std::ptr::without_provenance_mut(usize::from_ne_bytes(bytes))
    }

    #[test]
    fn events_of_ports_have_their_number_and_no_others() {
        assert_eq!(port_of(PORT_ERR, element(2)), Some(2));
        assert_eq!(port_of(18, element(1)), Some(1));
        assert_eq!(port_of(PORT_ERR, element(-1)), None);
        assert_eq!(port_of(DEVICE_FATAL, element(1)), None);
        assert_eq!(port_of(0, element(1)), None);
    }

    #[test]
    fn a_port_ends_what_goes_over_it_and_a_device_everything() {
        let event = |kind, port| AsyncEvent {
            what: String::new(),
            kind,
            port,
        };
        assert!(event(PORT_ERR, Some(1)).is_fatal_for(1));
        assert!(!event(PORT_ERR, Some(2)).is_fatal_for(1));
        assert!(event(PORT_ERR, None).is_fatal_for(1));
        assert!(event(DEVICE_FATAL, None).is_fatal_for(1));
        assert!(!event(9, Some(1)).is_fatal_for(1));
    }

    /// A host's files, of which these exist and are empty.
    fn host(files: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        for file in files {
            let path = root.path().join(file);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, "").expect("a file");
        }
        root
    }

    #[test]
    fn devices_that_only_the_kernel_knows_are_told_with_what_is_missing() {
        let none = host(&[]);
        assert_eq!(none_shown(none.path()), VerbsError::NoDevice);
        let present = "mlx5_0, mlx5_1".to_owned();
        let devices = ["sys/class/infiniband/mlx5_1", "sys/class/infiniband/mlx5_0"];
        let without_module = none_shown(host(&devices).path());
        assert!(without_module.to_string().contains("`modprobe ib_uverbs`"));
        assert_eq!(
            without_module,
            VerbsError::ModuleMissing {
                present: present.clone()
            }
        );
        let [first, second] = devices;
        let module = "sys/class/infiniband_verbs/abi_version";
        let without_provider = none_shown(host(&[first, second, module]).path());
        assert!(without_provider.to_string().contains("ibverbs-providers"));
        assert_eq!(without_provider, VerbsError::ProviderMissing { present });
    }

    #[test]
    fn a_node_is_missing_where_neither_its_name_nor_its_number_is_there() {
        let number = "sys/class/infiniband_verbs/uverbs0/dev";
        let numbered = |files: &[&str]| {
            let root = host(files);
            std::fs::write(root.path().join(number), "231:192\n").expect("a file");
            root
        };
        let may = |root: &tempfile::TempDir| may_use(root.path(), "uverbs0");
        assert_eq!(may(&numbered(&[number])), Err(Errno::NOENT));
        assert_eq!(may(&numbered(&[number, "dev/char/231:192"])), Ok(()));
        assert_eq!(may(&numbered(&[number, "dev/infiniband/uverbs0"])), Ok(()));
        // Nothing is known of it: the library tries.
        assert_eq!(may(&host(&[])), Ok(()));
        assert_eq!(may_use(host(&[]).path(), ""), Ok(()));
    }
}
