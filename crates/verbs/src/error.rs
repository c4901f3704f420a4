//! What can go wrong with the libraries and the devices: what was being done, on what, why.

use rustix::io::Errno;

/// Why an RDMA operation or resource is not available.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VerbsError {
    /// The library is not installed, or cannot be loaded.
    #[error(
        "the library {library} cannot be loaded ({reason}); install rdma-core (Debian: ibverbs-providers, librdmacm1)"
    )]
    LibraryMissing {
        /// Its file name.
        library: &'static str,
        /// The loader's reason.
        reason: String,
    },
    /// A statically linked program has no dynamic loader.
    #[error(
        "this is the static build of linerate, which cannot load {library}; use the glibc build \
         (linux-gnu, also in the .deb and .rpm packages)"
    )]
    StaticBuild {
        /// The library's file name.
        library: &'static str,
    },
    /// The library is older than what is used of it.
    #[error("the library {library} has no function {function}: rdma-core 32 or newer is needed")]
    FunctionMissing {
        /// Its file name.
        library: &'static str,
        /// The function.
        function: String,
    },
    /// The kernel has no RDMA, or no device.
    #[error(
        "this host has no RDMA device; the module rdma_rxe can create one over any Ethernet interface: \
         `linerate testbed rxe`"
    )]
    NoDevice,
    /// The kernel has devices, but does not expose them to programs.
    #[error(
        "the kernel has RDMA devices ({present}), but the module ib_uverbs is not loaded; run \
         `modprobe ib_uverbs`"
    )]
    ModuleMissing {
        /// The devices in sysfs.
        present: String,
    },
    /// The kernel exposes devices to programs, and the library has a provider for none of them.
    #[error(
        "libibverbs supports none of this host's RDMA devices ({present}): install their provider \
         library (Debian: ibverbs-providers)"
    )]
    ProviderMissing {
        /// The devices in sysfs.
        present: String,
    },
    /// A device's file is not where this program runs.
    #[error(
        "cannot open the RDMA device {device}: its file {node} is not in this container or mount namespace; \
         pass it to the container (`--device /dev/infiniband` of Docker and Podman)"
    )]
    NodeMissing {
        /// The device.
        device: String,
        /// The path of its file.
        node: String,
    },
    /// The device lacks what was requested.
    #[error("cannot {doing} on {device}: {errno}; {hint}")]
    NotSupported {
        /// What was being done.
        doing: &'static str,
        /// On which device.
        device: String,
        /// The kernel's reason.
        errno: Errno,
        /// What to do about it.
        hint: &'static str,
    },
    /// No device of this name.
    #[error("no RDMA device `{name}`; this host has {present}")]
    NoSuchDevice {
        /// The name.
        name: String,
        /// Those that there are.
        present: String,
    },
    /// The kernel or the device refused.
    #[error("cannot {doing} on {device}: {errno}{hint}")]
    Refused {
        /// What was being done.
        doing: &'static str,
        /// On which device.
        device: String,
        /// The kernel's reason.
        errno: Errno,
        /// What to do about it; empty, or beginning with `; `.
        hint: String,
    },
    /// The connection manager refused.
    #[error("the RDMA connection manager cannot {doing}: {event} ({reason})")]
    Manager {
        /// What was being done.
        doing: &'static str,
        /// The event that came instead of the one expected.
        event: String,
        /// Its status.
        reason: String,
    },
}

impl VerbsError {
    /// The kernel's or the device's refusal.
    pub(crate) fn refused(doing: &'static str, device: &str, errno: Errno) -> Self {
        let hint = match errno {
            Errno::NOMEM | Errno::AGAIN => {
                "; pinned memory counts against `ulimit -l`, and devices limit the number of \
                 queues and memory regions"
            }
            Errno::ACCESS | Errno::PERM => {
                "; the nodes below /dev/infiniband must be readable and writable for this user"
            }
            Errno::NOENT => "; its node below /dev/infiniband is missing or not accessible",
            Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH => {
                "; the remote address (GID) is not reachable from this port"
            }
            Errno::NODEV | Errno::IO => "; the device was removed or reset",
            _ => "",
        };
        Self::Refused {
            doing,
            device: device.to_owned(),
            errno,
            hint: hint.to_owned(),
        }
    }

    /// Whether permission is the cause.
    pub fn is_permission(&self) -> bool {
        matches!(self, Self::Refused { errno, .. } if matches!(*errno, Errno::ACCESS | Errno::PERM))
    }

    /// Whether there is no more of what was requested.
    pub fn is_resource(&self) -> bool {
        matches!(self, Self::Refused { errno, .. } if matches!(*errno, Errno::NOMEM | Errno::AGAIN | Errno::MFILE))
    }
}
