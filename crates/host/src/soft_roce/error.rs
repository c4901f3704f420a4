//! Why soft-RoCE could not be set up or removed.

use std::io;
use std::path::PathBuf;

use linerate_model::ids::NicName;

/// The kind of obstacle, for an exit code or a skip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// This kernel or system does not have it.
    NotSupported,
    /// A privilege is missing.
    Permission,
    /// The request is invalid.
    BadInput,
    /// It failed.
    Failed,
    /// It failed, and left something behind.
    Incomplete,
}

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum SoftRoceError {
    /// The kernel has no such module.
    #[error(
        "this kernel ({release}) has no module {name}: there is no such file below \
         /lib/modules/{release}; distributions keep it in the package of extra modules, or build \
         with CONFIG_RDMA_RXE"
    )]
    NoModule {
        /// Its name.
        name: String,
        /// The kernel's release.
        release: String,
    },
    /// There is no modprobe.
    #[error("cannot load the module {name}: `modprobe` (package kmod) is not installed")]
    NoModprobe {
        /// The module.
        name: String,
    },
    /// A privilege is missing.
    #[error("cannot load the module {name}: only root of the machine itself may (CAP_SYS_MODULE)")]
    MayNotLoad {
        /// The module.
        name: String,
    },
    /// It exists but could not be loaded.
    #[error("cannot load the module {name}: {why}")]
    NotLoaded {
        /// The module.
        name: String,
        /// modprobe's message.
        why: String,
    },
    /// There is no such interface.
    #[error("no interface `{nic}` in this network namespace")]
    NoInterface {
        /// Its name.
        nic: NicName,
    },
    /// An RDMA device with that name exists already.
    #[error("an RDMA device `{name}` already exists: choose another name with `--name`")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// The interface has an RDMA device already.
    #[error("the interface `{nic}` already has an RDMA device: `{name}`")]
    InterfaceTaken {
        /// The interface.
        nic: NicName,
        /// Its device.
        name: String,
    },
    /// A pair exists already.
    #[error("a pair already exists: remove it with `linerate testbed rxe remove --all`")]
    PairThere,
    /// Addresses or names of the wire conflict with existing ones.
    #[error("cannot create the veth pair: {why}")]
    WireTaken {
        /// The conflict.
        why: String,
    },
    /// The device was not created here.
    #[error(
        "linerate did not create a soft-RoCE device `{name}`: `linerate testbed rxe list` lists \
         those it created; remove others with `rdma link delete`"
    )]
    NotOurs {
        /// Its name.
        name: String,
    },
    /// Devices were created in another network namespace.
    #[error(
        "the devices in {path} were created in another network namespace: run this there, or \
         delete that file if the namespace is gone"
    )]
    ElsewhereMade {
        /// The record.
        path: PathBuf,
    },
    /// The record is invalid.
    #[error("cannot understand {path}: {why}")]
    Record {
        /// The record.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A step failed, and so did its rollback.
    #[error("{first}; cleanup was incomplete: {second}")]
    NotUndone {
        /// Why it failed.
        first: Box<SoftRoceError>,
        /// Why the rollback failed.
        second: Box<SoftRoceError>,
    },
    /// The kernel refused, or a file could not be used.
    #[error("cannot {doing}: {source}")]
    Step {
        /// The operation.
        doing: String,
        /// The reason.
        source: io::Error,
    },
}

impl SoftRoceError {
    pub(super) fn doing(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Step { doing, source }
    }

    /// The kind of obstacle.
    pub fn obstacle(&self) -> Obstacle {
        match self {
            Self::NoModule { .. } | Self::NoModprobe { .. } | Self::NotLoaded { .. } => {
                Obstacle::NotSupported
            }
            Self::MayNotLoad { .. } => Obstacle::Permission,
            Self::NoInterface { .. }
            | Self::NameTaken { .. }
            | Self::InterfaceTaken { .. }
            | Self::PairThere
            | Self::WireTaken { .. }
            | Self::NotOurs { .. }
            | Self::ElsewhereMade { .. }
            | Self::Record { .. } => Obstacle::BadInput,
            Self::NotUndone { .. } => Obstacle::Incomplete,
            Self::Step { source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                    Obstacle::Permission
                }
                io::ErrorKind::Unsupported => Obstacle::NotSupported,
                _ => Obstacle::Failed,
            },
        }
    }
}
