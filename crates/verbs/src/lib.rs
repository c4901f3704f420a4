//! RDMA verbs and the RDMA connection manager (rdma-core's libibverbs and librdmacm), loaded when they are
//! first needed: the same program runs on hosts that lack them, and reports it.
//!
//! ```text
//! Device --> ProtectionDomain --> Region (memory that devices may reach)
//!    |             |------------> QueuePair --post--> Sends, Receives (requests, linked once)
//!    |------> CompletionQueue <------'  completions arrive here
//! ```
//!
//! Each value owns one object of the library, keeps alive what that was created from, and destroys it. What a
//! thread created stays in that thread; only a [`Device`] is shared. Nothing here waits, except for the
//! connection manager, which does so for a stated time.
//!
//! In a debug build `LINERATE_LIBIBVERBS` and `LINERATE_LIBRDMACM` name other files than the installed libraries: this is
//! how the tests replace them. The replacement is `fake/`: a crate that a test has among its
//! `[dev-dependencies]` and whose `Fake::install` loads it; cargo leaves its library in `target/*/deps`.

mod error;
mod gid;
mod status;
pub mod sys;

pub use error::VerbsError;
pub use gid::{Gid, GidEntry, GidKind, entry_of};
pub use status::Status;
pub use sys::{
    Access, AddressHandle, AsyncEvent, Attributes, Calling, Completion, CompletionQueue,
    Connection, Device, DeviceAttributes, Event, Listener, Memory, Opcode, Path, Patience,
    PortAttributes, ProtectionDomain, QueuePair, QueuePairNeeds, Receive, Receives, Region, Remote,
    Request, Send, Sends, Slice, Step, To, Work, device_names, device_of,
};
