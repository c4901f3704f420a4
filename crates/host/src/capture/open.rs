//! Opens a captured host in any supported form: an archive, an unpacked directory, or a tar file of one.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use linerate_model::host::{
    Card, Channels, Coalesce, Dispatch, Feature, Host, NicKind, Qdisc, Rings, Shaping, Stack, Wire,
};
use linerate_model::ids::NicName;
use linerate_model::known::Known;

use super::answers::{CapturedNics, CapturedRdma};
use super::archive::{Archive, MAGIC};
use super::error::CaptureError;
use super::tarball;
use crate::nic_control::{NicCounts, NicRead};
use crate::rdma::RdmaRead;
use crate::read::read_host;
use crate::regular_file;
use crate::root::HostRoot;
use crate::watch::{Reading, read_counters};

/// The maximum number of directories above the one that contains `sys`.
pub(crate) const FOLDERS_ABOVE_MAX: usize = 2;

/// A captured host: read its files through [`Captured::root`]; it is also its own netlink reader.
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

    /// Opens an archive of `linerate capture`, a directory that contains `sys` (at most two levels down), or a `.tar`
    /// or `.tar.bz2` of such a directory; the content decides, not the name.
    pub fn open(path: &Path) -> Result<Self, CaptureError> {
        let io = |source| CaptureError::Io {
            path: path.to_owned(),
            source,
        };
        let kind = fs::metadata(path).map_err(io)?.file_type();
        if kind.is_dir() {
            let folder = folder_with_sys(path).ok_or_else(|| CaptureError::NoRoot {
                path: path.to_owned(),
            })?;
            let root = HostRoot::open(&folder).map_err(io)?;
            return Ok(Self::without_answers(root));
        }
        if !kind.is_file() {
            return Err(CaptureError::NoFile {
                path: path.to_owned(),
            });
        }
        let mut file = regular_file::open(path).map_err(io)?;
        let mut start = Vec::new();
        (&mut file).take(512).read_to_end(&mut start).map_err(io)?;
        file.rewind().map_err(io)?;
        let from = BufReader::new(file);
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

    /// Reads the host, unless that exceeds the memory limit.
    pub fn host(&self) -> Result<Host, CaptureError> {
        let host = read_host(&self.root, self);
        self.within_limits().map(|()| host)
    }

    /// Reads the counters of `host`, which is this one, with the same limit.
    pub fn counters(&self, host: &Host) -> Result<Reading, CaptureError> {
        let reading = read_counters(&self.root, self, host);
        self.within_limits().map(|()| reading)
    }

    fn within_limits(&self) -> Result<(), CaptureError> {
        self.root.broken_limit().map_or(Ok(()), |limit| {
            Err(CaptureError::Answers {
                what: limit.what,
                limit: limit.most,
            })
        })
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    fn fifo(path: &Path) {
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a FIFO");
    }

    #[test]
    fn a_pipe_or_a_device_given_as_a_captured_host_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("host.lrcap");
        fifo(&pipe);
        let zero = folder.path().join("host.tar");
        symlink("/dev/zero", &zero).expect("a link");
        for path in [pipe, zero] {
            let refused = Captured::open(&path).expect_err("no file");
            assert!(matches!(refused, CaptureError::NoFile { .. }), "{refused}");
        }
    }

    #[test]
    #[expect(clippy::print_stderr, reason = "a skip is a result, and said")]
    fn a_pipe_a_device_or_a_circle_in_an_unpacked_folder_is_a_gap_and_not_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let (sys, dev) = (folder.path().join("sys"), folder.path().join("dev"));
        fs::create_dir(&sys).expect("a folder");
        fs::create_dir(&dev).expect("a folder");
        fifo(&sys.join("fifo"));
        // A pipe whose write end is open has no end of file.
        let _writer = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(sys.join("fifo"))
            .expect("both ends");
        symlink("circle", sys.join("circle")).expect("a link");
        let device = mknodat(
            CWD,
            dev.join("zero"),
            FileType::CharacterDevice,
            Mode::RUSR | Mode::WUSR,
            rustix::fs::makedev(1, 5),
        );
        symlink("/dev/zero", sys.join("zero")).expect("a link");
        let captured = Captured::open(folder.path()).expect("a host");
        for name in ["fifo", "circle"] {
            let path = format!("sys/{name}");
            assert!(captured.root().read(&path).value().is_none(), "{name}");
            let (text, _) = captured.root().read_with_mode(&path);
            assert!(text.value().is_none(), "{name}");
        }
        if let Err(error) = device {
            eprintln!("SKIP: a device cannot be made here: {error}");
            return;
        }
        match captured.root().read("sys/zero") {
            Known::Unknown(gap) => assert_eq!(gap.reason, "not a regular file"),
            Known::Value(_) => panic!("a device was read"),
        }
    }
}
