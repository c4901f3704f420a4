//! Opens a captured host in any of its forms: an archive, an unpacked folder, a tar of one.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use linerate_model::host::{
    Card, Channels, Coalesce, Dispatch, Feature, NicKind, Qdisc, Rings, Shaping, Stack, Wire,
};
use linerate_model::ids::NicName;
use linerate_model::known::Known;

use super::answers::{CapturedNics, CapturedRdma};
use super::archive::{Archive, MAGIC};
use super::error::CaptureError;
use super::tarball;
use crate::nic_control::{NicCounts, NicRead};
use crate::rdma::RdmaRead;
use crate::root::HostRoot;

/// How many folders may stand above the one that holds `sys`.
pub(crate) const FOLDERS_ABOVE_MAX: usize = 2;

/// A captured host: read its files through [`Captured::root`]; it answers for netlink itself.
#[derive(Debug)]
pub struct Captured {
    root: HostRoot,
    nics: CapturedNics,
    rdma: CapturedRdma,
}

impl Captured {
    pub(crate) fn of(root: HostRoot, nics: CapturedNics, rdma: CapturedRdma) -> Self {
        Self { root, nics, rdma }
    }

    fn without_answers(root: HostRoot) -> Self {
        Self::of(root, CapturedNics::default(), CapturedRdma::default())
    }

    /// Opens an archive of `linerate capture`, a folder that holds `sys` (at most two folders down),
    /// or a `.tar` or `.tar.bz2` of such a folder; the content decides, not the name.
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        let io = |source| CaptureError::Io {
            path: path.to_owned(),
            source,
        };
        if fs::metadata(path).map_err(io)?.is_dir() {
            let folder = folder_with_sys(path).ok_or_else(|| CaptureError::NoRoot {
                path: path.to_owned(),
            })?;
            let root = HostRoot::open(&folder).map_err(io)?;
            return Ok(Self::without_answers(root));
        }
        let mut start = Vec::new();
        let mut file = File::open(path).map_err(io)?;
        (&mut file).take(512).read_to_end(&mut start).map_err(io)?;
        let from = BufReader::new(File::open(path).map_err(io)?);
        if start.starts_with(MAGIC.as_bytes()) {
            return Ok(Archive::parse(from)?.into_captured());
        }
        let tree = match tarball::form(&start) {
            Some(form) => tarball::read(path, from, form)?,
            None => {
                return Err(CaptureError::NotACapture {
                    path: path.to_owned(),
                });
            }
        };
        Ok(Self::without_answers(HostRoot::in_memory(tree)))
    }

    /// The host's files.
    pub fn root(&self) -> &HostRoot {
        &self.root
    }
}

fn folder_with_sys(folder: &Path) -> Option<PathBuf> {
    let mut level = vec![folder.to_owned()];
    for _ in 0..=FOLDERS_ABOVE_MAX {
        if let Some(found) = level.iter().find(|folder| folder.join("sys").is_dir()) {
            return Some(found.clone());
        }
        level = level.iter().flat_map(|folder| folders_in(folder)).collect();
    }
    None
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_dir() && !path.is_symlink())
        .collect();
    folders.sort();
    folders
}

impl NicRead for Captured {
    fn kind(&self, nic: &NicName) -> Known<NicKind> {
        self.nics.kind(nic)
    }
    fn addresses(&self, nic: &NicName) -> Known<Vec<String>> {
        self.nics.addresses(nic)
    }
    fn features(&self, nic: &NicName) -> Known<BTreeMap<String, Feature>> {
        self.nics.features(nic)
    }
    fn rings(&self, nic: &NicName) -> Known<Rings> {
        self.nics.rings(nic)
    }
    fn channels(&self, nic: &NicName) -> Known<Channels> {
        self.nics.channels(nic)
    }
    fn coalesce(&self, nic: &NicName) -> Known<Coalesce> {
        self.nics.coalesce(nic)
    }
    fn qdisc(&self, nic: &NicName) -> Known<Qdisc> {
        self.nics.qdisc(nic)
    }
    fn card(&self, nic: &NicName) -> Card {
        self.nics.card(nic)
    }
    fn wire(&self, nic: &NicName) -> Wire {
        self.nics.wire(nic)
    }
    fn stack(&self, nic: &NicName) -> Stack {
        self.nics.stack(nic)
    }
    fn dispatch(&self, nic: &NicName) -> Dispatch {
        self.nics.dispatch(nic)
    }
    fn shaping(&self, nic: &NicName) -> Shaping {
        self.nics.shaping(nic)
    }
    fn rdma(&self) -> &dyn RdmaRead {
        &self.rdma
    }
    fn counts(&self, nic: &NicName) -> NicCounts {
        self.nics.counts(nic)
    }
}
