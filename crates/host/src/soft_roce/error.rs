//! Why soft-RoCE cannot be had, or not be taken away.

use std::io;
use std::path::PathBuf;

use linerate_model::ids::NicName;

/// What stands in the way, for an exit code or a skip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// This kernel or system does not have it.
    NotSupported,
    /// A right is missing.
    Permission,
    /// What was asked for cannot be.
    BadInput,
    /// It failed.
    Failed,
    /// It failed, and something of it is still there.
    Incomplete,
}

/// Why it did not work.
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
    /// Nothing is there to load it with.
    #[error("cannot load the module {name}: `modprobe` (package kmod) is not installed")]
    NoModprobe {
        /// The module.
        name: String,
    },
    /// A right is missing.
    #[error("cannot load the module {name}: only root of the machine itself may (CAP_SYS_MODULE)")]
    MayNotLoad {
        /// The module.
        name: String,
    },
    /// It was there and could not be loaded.
    #[error("cannot load the module {name}: {why}")]
    NotLoaded {
        /// The module.
        name: String,
        /// modprobe's own words.
        why: String,
    },
    /// There is no such interface.
    #[error("no interface `{nic}` in this network namespace")]
    NoInterface {
        /// Its name.
        nic: NicName,
    },
    /// An RDMA device has that name already.
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
    /// There is a pair already.
    #[error("a pair already exists: remove it with `linerate testbed rxe remove --all`")]
    PairThere,
    /// Something of the wire would collide with what is there.
    #[error("cannot create the veth pair: {why}")]
    WireTaken {
        /// What is in the way.
        why: String,
    },
    /// The device was not made here.
    #[error(
        "linerate did not create a soft-RoCE device `{name}`: `linerate testbed rxe list` lists \
         those it created; remove others with `rdma link delete`"
    )]
    NotOurs {
        /// Its name.
        name: String,
    },
    /// What was made lies elsewhere.
    #[error(
        "the devices in {path} were created in another network namespace: run this there, or \
         delete that file if the namespace is gone"
    )]
    ElsewhereMade {
        /// The record.
        path: PathBuf,
    },
    /// The record is of no use.
    #[error("cannot understand {path}: {why}")]
    Record {
        /// The record.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A step failed, and so did going back.
    #[error("{first}; cleanup was incomplete: {second}")]
    NotUndone {
        /// Why it failed.
        first: Box<SoftRoceError>,
        /// Why going back failed.
        second: Box<SoftRoceError>,
    },
    /// The kernel said no, or a file could not be used.
    #[error("cannot {doing}: {source}")]
    Step {
        /// What was being done.
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

    /// What stands in the way.
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
