//! The libraries' functions, found when they are first needed: a host without them runs everything else.

use std::ffi::{CStr, CString, OsString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use super::abi::{
    ibv_ah, ibv_ah_attr, ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq, ibv_device,
    ibv_device_attr, ibv_gid_entry, ibv_mr, ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_attr,
    ibv_qp_init_attr, rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel,
};
use crate::VerbsError;

/// A library that stays loaded for as long as this program runs: its providers have their own threads and
/// exit handlers.
struct Loaded {
    handle: *mut c_void,
    name: &'static str,
}

/// Which file a library is: the name that distributions install. Only in a debug build, for the tests, the environment
/// may name another one: what it names runs in this process, perhaps as root.
fn file_of(variable: &str, name: &'static str) -> OsString {
    let named = cfg!(debug_assertions).then(|| std::env::var_os(variable));
    named.flatten().unwrap_or_else(|| name.into())
}

/// The last error of the loader.
fn loader_error() -> String {
    // SAFETY: dlerror returns null or a string that lives until the next call of this thread to the loader.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason was given".to_owned();
    }
    // SAFETY: not null, so it is such a string.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

impl Loaded {
    fn open(variable: &'static str, name: &'static str) -> Result<Self, VerbsError> {
        if cfg!(target_feature = "crt-static") {
            return Err(VerbsError::StaticBuild { library: name });
        }
        let missing = |reason: String| VerbsError::LibraryMissing {
            library: name,
            reason,
        };
        let file = file_of(variable, name);
        let path = CString::new(file.as_bytes())
            .map_err(|_| missing(format!("{variable} holds a null byte")))?;
        // SAFETY: the path is a string; the library's constructors are those of rdma-core, or of what a
        // test names instead.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(missing(loader_error()));
        }
        Ok(Self { handle, name })
    }

    /// The address of a function in its default version.
    fn find(&self, function: &'static CStr) -> Result<*mut c_void, VerbsError> {
        // SAFETY: the handle is never closed, the name is a string.
        let address = unsafe { libc::dlsym(self.handle, function.as_ptr()) };
        if address.is_null() {
            return Err(VerbsError::FunctionMissing {
                library: self.name,
                function: function.to_string_lossy().into_owned(),
            });
        }
        Ok(address)
    }
}

macro_rules! functions {
    ($(#[$about:meta])* $table:ident { $($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)+ }) => {
        $(#[$about])*
        #[allow(clippy::struct_field_names, reason = "the names are the library's, each with a manual page")]
        #[derive(Debug, Clone, Copy)]
        pub(crate) struct $table {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)+
        }

        impl $table {
            fn of(library: &Loaded) -> Result<Self, VerbsError> {
                Ok(Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        let name = CStr::from_bytes_with_nul(name.as_bytes()).expect("one null");
                        let address = library.find(name)?;
                        // SAFETY: the library exports it with this signature; the test of the layout compares
                        // the declarations with its headers.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($argument),*) $(-> $result)?,
                            >(address)
                        }
                    },)+
                })
            }
        }
    };
}

functions! {
    /// What is used of libibverbs; sending, receiving and polling are functions of the device's provider.
    Ibverbs {
        ibv_get_device_list: fn(*mut c_int) -> *mut *mut ibv_device;
        ibv_free_device_list: fn(*mut *mut ibv_device);
        ibv_open_device: fn(*mut ibv_device) -> *mut ibv_context;
        ibv_close_device: fn(*mut ibv_context) -> c_int;
        ibv_query_device: fn(*mut ibv_context, *mut ibv_device_attr) -> c_int;
        ibv_query_port: fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int;
        _ibv_query_gid_table: fn(*mut ibv_context, *mut ibv_gid_entry, usize, u32, usize) -> isize;
        ibv_get_async_event: fn(*mut ibv_context, *mut ibv_async_event) -> c_int;
        ibv_ack_async_event: fn(*mut ibv_async_event);
        ibv_alloc_pd: fn(*mut ibv_context) -> *mut ibv_pd;
        ibv_dealloc_pd: fn(*mut ibv_pd) -> c_int;
        ibv_reg_mr_iova2: fn(*mut ibv_pd, *mut c_void, usize, u64, c_uint) -> *mut ibv_mr;
        ibv_dereg_mr: fn(*mut ibv_mr) -> c_int;
        ibv_create_comp_channel: fn(*mut ibv_context) -> *mut ibv_comp_channel;
        ibv_destroy_comp_channel: fn(*mut ibv_comp_channel) -> c_int;
        ibv_create_cq: fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;
        ibv_destroy_cq: fn(*mut ibv_cq) -> c_int;
        ibv_get_cq_event: fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int;
        ibv_ack_cq_events: fn(*mut ibv_cq, c_uint);
        ibv_create_qp: fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp;
        ibv_modify_qp: fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int;
        ibv_destroy_qp: fn(*mut ibv_qp) -> c_int;
        ibv_create_ah: fn(*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah;
        ibv_destroy_ah: fn(*mut ibv_ah) -> c_int;
        ibv_event_type_str: fn(c_int) -> *const c_char;
    }
}

functions! {
    /// What is used of librdmacm.
    Rdmacm {
        rdma_create_event_channel: fn() -> *mut rdma_event_channel;
        rdma_destroy_event_channel: fn(*mut rdma_event_channel);
        rdma_create_id: fn(*mut rdma_event_channel, *mut *mut rdma_cm_id, *mut c_void, c_int) -> c_int;
        rdma_destroy_id: fn(*mut rdma_cm_id) -> c_int;
        rdma_bind_addr: fn(*mut rdma_cm_id, *mut libc::sockaddr) -> c_int;
        rdma_resolve_addr: fn(*mut rdma_cm_id, *mut libc::sockaddr, *mut libc::sockaddr, c_int) -> c_int;
        rdma_resolve_route: fn(*mut rdma_cm_id, c_int) -> c_int;
        rdma_listen: fn(*mut rdma_cm_id, c_int) -> c_int;
        rdma_get_src_port: fn(*mut rdma_cm_id) -> u16;
        rdma_init_qp_attr: fn(*mut rdma_cm_id, *mut ibv_qp_attr, *mut c_int) -> c_int;
        rdma_connect: fn(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
        rdma_establish: fn(*mut rdma_cm_id) -> c_int;
        rdma_accept: fn(*mut rdma_cm_id, *mut rdma_conn_param) -> c_int;
        rdma_disconnect: fn(*mut rdma_cm_id) -> c_int;
        rdma_set_option: fn(*mut rdma_cm_id, c_int, c_int, *mut c_void, usize) -> c_int;
        rdma_get_cm_event: fn(*mut rdma_event_channel, *mut *mut rdma_cm_event) -> c_int;
        rdma_ack_cm_event: fn(*mut rdma_cm_event) -> c_int;
        rdma_event_str: fn(c_int) -> *const c_char;
    }
}

/// libibverbs, or why it is not available; determined once.
pub(crate) fn ibverbs() -> Result<&'static Ibverbs, VerbsError> {
    static LIBRARY: OnceLock<Result<Ibverbs, VerbsError>> = OnceLock::new();
    let load = || Ibverbs::of(&Loaded::open("LINERATE_LIBIBVERBS", "libibverbs.so.1")?);
    LIBRARY.get_or_init(load).as_ref().map_err(Clone::clone)
}

/// librdmacm, or why it is not available; determined once.
pub(crate) fn rdmacm() -> Result<&'static Rdmacm, VerbsError> {
    static LIBRARY: OnceLock<Result<Rdmacm, VerbsError>> = OnceLock::new();
    let load = || Rdmacm::of(&Loaded::open("LINERATE_LIBRDMACM", "librdmacm.so.1")?);
    LIBRARY.get_or_init(load).as_ref().map_err(Clone::clone)
}

/// A text that a library keeps for ever.
///
/// # Safety
///
/// `text` is null or a string that is never freed.
pub(super) unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return "without a name".to_owned();
    }
    // SAFETY: see above.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_debug_build_takes_a_library_from_the_environment() {
        // A variable that every test run has.
        let found = file_of("CARGO_MANIFEST_DIR", "libibverbs.so.1");
        assert_eq!(found == "libibverbs.so.1", !cfg!(debug_assertions));
    }
}
