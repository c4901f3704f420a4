//! A block device in place of a peer, for experiments and proofs: this host is the end that is measured and changed, and
//! the other end is the device, which reports nothing and has no settings.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use linerate_host::block_device::{self, Device};
use linerate_host::root::{HostRoot, LiveHost};
use linerate_model::block::{Access, BlockSpec};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::finding::{Context, Diagnosis, Profile};
use linerate_model::host::Host;
use linerate_model::ids::NicName;
use linerate_model::known::Known;
use linerate_model::plan::{End, Plan};
use linerate_model::sample::{Sample, SideSample};
use linerate_model::setting::{SettingKey, Value};
use linerate_model::units::Nanoseconds;
use linerate_model::workload::{TrialSpec, Workload};
use linerate_runtime::cli::BlockTrialArgs;
use linerate_runtime::cli::place_word::{MemoryWhere, Where};
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::random::fresh_seed;
use linerate_runtime::endpoint::ends::Ends;
use linerate_runtime::endpoint::one_host::OneHost;
use linerate_runtime::endpoint::record::record;
use linerate_traffic::block::read;

use super::place::Site;
use super::stop_of;

/// What is at the other end.
pub(crate) const BLOCK_DEVICE: &str = "a block device";

/// This host, and the block devices that trials read.
#[derive(Debug)]
pub(crate) struct DeviceEnds {
    here: OneHost,
    /// The disk of the first device, in place of an interface.
    disk: String,
    disk_as_nic: NicName,
    /// By the names of the trials, opened to read.
    devices: BTreeMap<String, (Device, OwnedFd)>,
    interrupt: Interrupt,
}

/// The options of a trial: its operations, and where its jobs and buffers are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockOptions<'a> {
    pub(crate) trial: &'a BlockTrialArgs,
    pub(crate) place: Option<&'a Where>,
    pub(crate) memory: Option<&'a MemoryWhere>,
    pub(crate) time: Nanoseconds,
}

impl BlockOptions<'_> {
    /// The trial on a device of this host.
    pub(crate) fn trial(self, device: &str, host: &Host) -> Outcome<TrialSpec> {
        let live = LiveHost::open().map_err(|error| Stop::io("open the root directory", error))?;
        let root = live.root();
        let found = find(root, device)?;
        super::check_polled(self.trial, root, &found)?;
        let facts = host.block.iter().find(|one| one.name == found.disk);
        let site = Site::of(host, facts, &found, root);
        let args = self.trial;
        let block = BlockSpec {
            access: Access::Read,
            pattern: args.pattern.into(),
            block: args.block_size,
            depth: args.depth,
            polled: args.poll,
            seed: fresh_seed()?,
            duration_ns: self.time,
            area: found.whole(),
            jobs: site.jobs(args.jobs, self.place, args.poll)?,
            memory: site.memory(self.memory)?,
        };
        let bad = |why: String| {
            let why = format!("cannot measure {device}: {why}");
            Stop::new(Code::BadInput, why)
        };
        (block.check(found.logical_block)).map_err(|error| bad(error.to_string()))?;
        let spec = TrialSpec::of_block(device, &block);
        spec.check().map_err(|error| bad(error.to_string()))?;
        Ok(spec)
    }
}

impl DeviceEnds {
    /// Opens the device. `includes_way_in` permits changes that may disrupt the management path.
    pub(crate) fn open(
        device: &str,
        includes_way_in: bool,
        state: &Path,
        interrupt: &Interrupt,
    ) -> Outcome<Self> {
        let here = OneHost::open(state, includes_way_in, BLOCK_DEVICE)?;
        let disk = find(here.endpoint.root(), device)?.disk;
        let mut ends = Self {
            disk_as_nic: disk.parse().unwrap_or_else(|_| NicName::unheard()),
            disk,
            here,
            devices: BTreeMap::new(),
            interrupt: interrupt.clone(),
        };
        ends.add(device)?;
        Ok(ends)
    }

    /// Opens another device, and returns the name of its disk.
    pub(crate) fn add(&mut self, device: &str) -> Outcome<String> {
        if let Some((found, _)) = self.devices.get(device) {
            return Ok(found.disk.clone());
        }
        let found = find(self.here.endpoint.root(), device)?;
        let opened = found.open_to_read().map_err(|error| stop_of(&error))?;
        let disk = found.disk.clone();
        self.devices.insert(device.to_owned(), (found, opened));
        Ok(disk)
    }
}

fn find(root: &HostRoot, device: &str) -> Outcome<Device> {
    block_device::find(root, Path::new(device)).map_err(|error| stop_of(&error))
}

impl Ends for DeviceEnds {
    fn host(&self, end: End) -> &Host {
        self.here.host(end)
    }

    fn nic(&self, end: End) -> &NicName {
        match end {
            End::Local => &self.disk_as_nic,
            End::Remote => &self.here.remote_nic,
        }
    }

    fn address(&self) -> IpAddr {
        Ipv4Addr::UNSPECIFIED.into()
    }

    fn read_again(&mut self) -> Outcome<()> {
        self.here.read_again();
        Ok(())
    }

    fn settings(&mut self, end: End, keys: &[SettingKey]) -> Outcome<Vec<Known<Value>>> {
        self.here.settings(end, keys)
    }

    /// What the rules find about the disk: a trial shows nothing of the others.
    fn diagnosis(&self, _: Option<&Sample>, owns_shapers: bool) -> Diagnosis {
        let mut diagnosis = linerate_model::rules::diagnose(&Context {
            end: End::Local,
            host: &self.here.local,
            nic: None,
            other: None,
            sample: None,
            watch: None,
            profile: Profile::Storage,
            owns_shapers,
        });
        let own = format!("block/{}", self.disk);
        diagnosis.findings.retain(|finding| finding.subject == own);
        diagnosis
            .undetermined
            .retain(|unsure| unsure.subject == own);
        diagnosis
    }

    fn trial(&mut self, spec: &TrialSpec) -> Outcome<Sample> {
        self.interrupt.check()?;
        let Workload::Block(block) = &spec.workload else {
            return Err(Stop::new(
                Code::Bug,
                "a trial of two ends on a block device",
            ));
        };
        let Some((device, opened)) = self.devices.get(&block.device) else {
            let why = format!("{} was not opened", block.device);
            return Err(Stop::new(Code::Bug, why));
        };
        let area = (device.whole(), device.logical_block);
        let local = record(spec, None, None, || {
            read(spec, opened.as_fd(), area, self.interrupt.abort())
        });
        self.interrupt.check()?;
        Ok(Sample {
            spec: spec.clone(),
            local: local?,
            remote: SideSample::unheard(BLOCK_DEVICE),
            shared_kernel: false,
            flags: Vec::new(),
        })
    }

    fn apply(&mut self, end: End, plan: &Plan) -> Outcome<()> {
        self.here.apply(end, plan)
    }

    fn undo(&mut self, end: End) -> Outcome<()> {
        self.here.undo(end)
    }

    fn commit(&mut self, end: End) -> Outcome<()> {
        self.here.commit(end)
    }
}
