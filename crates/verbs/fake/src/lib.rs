//! A replacement of libibverbs and librdmacm, for tests: devices whose queue pairs are connected within one process,
//! so that both ends of a trial in that process communicate over them, with faults on demand. It tests that a
//! program uses the library correctly and reports failures well; the behavior of real devices is tested elsewhere.
//!
//! A test has this crate among its `[dev-dependencies]`: cargo then builds the dynamic library next to the
//! test's own program (`target/*/deps`), and [`Fake::install`] has `linerate_verbs` load it.
//!
//! ```no_run
//! use linerate_verbs_fake::{Fake, Fault};
//!
//! let fake = Fake::install(); // before any RDMA call; may be called repeatedly
//! let device = fake.device(); // this test's own
//! device.set(Fault::CorruptEvery, 3);
//! // ... `linerate_verbs::Device::open(device.name())` ...
//! assert_eq!(device.alive(), []); // everything was released
//! ```
//!
//! Another program is configured by its environment: `LINERATE_LIBIBVERBS` and `LINERATE_LIBRDMACM` are [`library`],
//! and `LINERATE_VERBS_FAKE` lists the setup, as words separated by commas: `devices=2` (one by default,
//! none with 0), `no-kernel` (the list of devices is unavailable), and for every device the name of a [`Link`] and
//! those of [`Fault`] (`infiniband,memlock=65536,port-down-after=1000`).
//!
//! What it does as a device: port 1 with the RoCE v1 and v2 GIDs of `127.0.0.1`, `::1` and an address of its
//! own ([`FakeDevice::address`]), an active MTU of [`MTU`], [`INLINE_MAX`] bytes inline; RC with send, write,
//! read and fetch-and-add; UD with send. A separate thread executes what is posted. It is strict where
//! devices are: a slot of a queue is free again when a later completion was taken, a full completion queue
//! breaks, a transition needs exactly its attributes, nothing is destroyed while it is in use. Wrong use of a pointer
//! (freed twice, never returned by the library) ends the process with a message.
//!
//! Devices of InfiniBand and iWARP ([`Fake::device_of`]) have the same addresses and other GIDs; [`Link`] lists what
//! else they lack or require.
//!
//! The connection manager finds listeners of this process by address and port, and the device by the address: the
//! first one that has it.

mod sys;

use std::net::IpAddr;
use std::path::PathBuf;

pub use sys::{Buffer, Fake};

/// Maximum bytes of inline data.
pub const INLINE_MAX: u32 = 64;
/// The active MTU in bytes, the maximum of a datagram.
pub const MTU: u32 = 1024;
/// Maximum requests of a queue.
pub const DEPTH_MAX: u32 = 16_384;
/// Maximum completions of a queue.
pub const COMPLETIONS_MAX: u32 = 65_536;

/// What a device's port is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Link {
    /// RoCE: Ethernet, and its GIDs are its IP addresses.
    Roce,
    /// RoCE whose table of GIDs is empty.
    RoceWithoutGids,
    /// InfiniBand: within the subnet it is reached by its LID; its one GID is none of its IP addresses.
    Infiniband,
    /// iWARP: only the connection manager connects it, the kernel takes its queue pairs on, and one that goes takes
    /// that at its other end with it; neither datagrams nor atomics.
    Iwarp,
}

impl Link {
    /// All there are.
    pub const ALL: [Self; 4] = [
        Self::Roce,
        Self::RoceWithoutGids,
        Self::Infiniband,
        Self::Iwarp,
    ];

    /// Its name in `LINERATE_VERBS_FAKE`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Roce => "roce",
            Self::RoceWithoutGids => "no-gids",
            Self::Infiniband => "infiniband",
            Self::Iwarp => "iwarp",
        }
    }
}

/// What can be wrong with a device; 0 is nothing, else 1 or the number stated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Fault {
    /// It cannot be opened: `EACCES`.
    OpenDenied,
    /// So many bytes can be registered, what is more is `ENOMEM`.
    Memlock,
    /// So many queue pairs can be made, one more is `ENOMEM`.
    QueuePairs,
    /// Its port is down: requests get no answer. Raises an event.
    PortDown,
    /// It was removed: raises an event, then nothing completes any more and everything is `EIO`.
    Gone,
    /// As `PortDown`, after so many of its messages.
    PortDownAfter,
    /// As `Gone`, after so many of its messages.
    GoneAfter,
    /// A byte of each such message of its queue pairs is changed.
    CorruptEvery,
    /// Each such datagram of its queue pairs is lost.
    LoseEvery,
    /// Completions come so many microseconds late.
    DelayMicroseconds,
    /// Requests are taken but nothing ever ends: a device that hangs.
    Hang,
    /// After so many of its messages an event reports that its port 2 is down; port 1 is up.
    OtherPortDownAfter,
    /// It cannot be opened: `ENOENT`, as where its file is missing.
    NodeMissing,
    /// Memory that is not pinned cannot be registered: this error number.
    PagingRefused,
    /// So many ports that the connection manager chooses for it are TCP's already: `EADDRINUSE` once they are used.
    PortsTaken,
}

impl Fault {
    /// All there are.
    pub const ALL: [Self; 15] = [
        Self::OpenDenied,
        Self::Memlock,
        Self::QueuePairs,
        Self::PortDown,
        Self::Gone,
        Self::PortDownAfter,
        Self::GoneAfter,
        Self::CorruptEvery,
        Self::LoseEvery,
        Self::DelayMicroseconds,
        Self::Hang,
        Self::OtherPortDownAfter,
        Self::NodeMissing,
        Self::PagingRefused,
        Self::PortsTaken,
    ];

    /// Its name in `LINERATE_VERBS_FAKE`.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenDenied => "open-denied",
            Self::Memlock => "memlock",
            Self::QueuePairs => "queue-pairs",
            Self::PortDown => "port-down",
            Self::Gone => "gone",
            Self::PortDownAfter => "port-down-after",
            Self::GoneAfter => "gone-after",
            Self::CorruptEvery => "corrupt-every",
            Self::LoseEvery => "lose-every",
            Self::DelayMicroseconds => "delay-us",
            Self::Hang => "hang",
            Self::OtherPortDownAfter => "other-port-down-after",
            Self::NodeMissing => "node-missing",
            Self::PagingRefused => "paging-refused",
            Self::PortsTaken => "ports-taken",
        }
    }
}

/// Kinds of objects that a device creates and that must be destroyed.
const KINDS: [&str; 8] = [
    "contexts",
    "protection domains",
    "regions",
    "completion channels",
    "completion queues",
    "queue pairs",
    "address handles",
    "events not acknowledged",
];

/// The file of the dynamic library: cargo puts it next to the program of the test that depends on this crate,
/// or, for another program of the same build, into the folder `deps` next to that.
pub fn library() -> PathBuf {
    let program = std::env::current_exe().expect("a running program has a file");
    let folder = program.parent().expect("a file lies in a folder");
    let name = "liblinerate_verbs_fake.so";
    let places = [folder.join(name), folder.join("deps").join(name)];
    (places.into_iter().find(|file| file.is_file()))
        .unwrap_or_else(|| panic!("{name} is not in {}", folder.display()))
}

/// A device of the fake.
#[derive(Debug, Clone)]
pub struct FakeDevice {
    fake: Fake,
    number: u32,
    name: String,
}

impl Fake {
    /// One more RoCE device, for this caller only.
    pub fn device(&self) -> FakeDevice {
        self.device_of(Link::Roce)
    }

    /// One more device, for this caller only.
    pub fn device_of(&self, link: Link) -> FakeDevice {
        let number = self.add_device(link);
        self.numbered(number)
    }

    /// The device `fakeN`, one of those that were there before.
    pub fn numbered(&self, number: u32) -> FakeDevice {
        FakeDevice {
            fake: *self,
            number,
            name: format!("fake{number}"),
        }
    }
}

impl FakeDevice {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address that it alone has, in addition to `127.0.0.1` and `::1`: of `fakeN` it is `127.0.0.1` plus N.
    pub fn address(&self) -> IpAddr {
        sys::own_address(self.number)
    }

    /// Has something go wrong from now on, or no longer (0).
    pub fn set(&self, fault: Fault, value: u64) {
        self.fake.set(self.number, fault, value);
    }

    /// What it gave out and has not got back: each kind with its number.
    pub fn alive(&self) -> Vec<(&'static str, u64)> {
        (0..)
            .zip(KINDS)
            .map(|(kind, name)| (name, self.fake.alive(self.number, kind)))
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    /// How many messages its queue pairs sent, read or changed at their remote end.
    pub fn messages(&self) -> u64 {
        self.fake.messages(self.number)
    }
}
