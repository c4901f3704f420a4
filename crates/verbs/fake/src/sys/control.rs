//! The test's side: loads the dynamic library as `linerate_verbs` will, and calls the functions that no real
//! library has.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use crate::{Fault, Link, library};

/// The fake, loaded.
#[derive(Debug, Clone, Copy)]
pub struct Fake {
    add_device: unsafe extern "C" fn(u32) -> u32,
    set: unsafe extern "C" fn(u32, u32, u64),
    objects_alive: unsafe extern "C" fn(u32, u32) -> u64,
    manager_alive: unsafe extern "C" fn() -> u64,
    messages: unsafe extern "C" fn(u32) -> u64,
}

fn find(handle: *mut c_void, name: &'static CStr) -> *mut c_void {
    // SAFETY: the handle is of a library that is never closed, the name is a string.
    let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
    assert!(!address.is_null(), "{name:?} is not in the library");
    address
}

#[expect(
    clippy::disallowed_methods,
    reason = "once, before the library is loaded, in a test; only the loader of `linerate_verbs` reads it"
)]
fn load() -> Fake {
    let file = library();
    let path = CString::new(file.as_os_str().as_bytes()).expect("a path has no null byte");
    // SAFETY: the standard library serializes its own accesses to the environment, and nothing here reads it
    // otherwise; the file is this crate's library, which has no constructors. Its functions have the
    // signatures that `export.rs` gives them.
    unsafe {
        std::env::set_var("LINERATE_LIBIBVERBS", &file);
        std::env::set_var("LINERATE_LIBRDMACM", &file);
        let handle = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        assert!(!handle.is_null(), "{} cannot be loaded", file.display());
        Fake {
            add_device: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(u32) -> u32>(find(
                handle,
                c"fake_add_device",
            )),
            set: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(u32, u32, u64)>(find(
                handle,
                c"fake_set",
            )),
            objects_alive: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(u32, u32) -> u64>(
                find(handle, c"fake_objects_alive"),
            ),
            manager_alive: std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> u64>(find(
                handle,
                c"fake_manager_alive",
            )),
            messages: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(u32) -> u64>(find(
                handle,
                c"fake_messages",
            )),
        }
    }
}

impl Fake {
    /// Puts it in the place of libibverbs and librdmacm in this process.
    pub fn install() -> Self {
        static LOADED: OnceLock<Fake> = OnceLock::new();
        *LOADED.get_or_init(load)
    }

    /// How many channels, identifiers and events of the connection manager were not released.
    pub fn manager_alive(&self) -> u64 {
        // SAFETY: the function has no conditions.
        unsafe { (self.manager_alive)() }
    }

    pub(crate) fn add_device(&self, link: Link) -> u32 {
        // SAFETY: the function has no conditions.
        unsafe { (self.add_device)(link as u32) }
    }

    pub(crate) fn set(&self, device: u32, fault: Fault, value: u64) {
        // SAFETY: as above.
        unsafe { (self.set)(device, fault as u32, value) };
    }

    pub(crate) fn alive(&self, device: u32, kind: u32) -> u64 {
        // SAFETY: as above.
        unsafe { (self.objects_alive)(device, kind) }
    }

    pub(crate) fn messages(&self, device: u32) -> u64 {
        // SAFETY: as above.
        unsafe { (self.messages)(device) }
    }
}
