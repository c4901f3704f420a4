//! Resolves a combination of levels into settings of both hosts of its path.

use std::collections::{BTreeMap, BTreeSet};

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::Host;
use linerate_model::ids::NicName;
use linerate_model::known::Gap;
use linerate_model::lab::{Experiment, LevelTable, Words};
use linerate_model::path::PathView;
use linerate_model::plan::End;
use linerate_model::setting::{Scope, SettingKey, Value};

use super::host_settings::{keys, lacking, value, without_ipoib_mode};
use super::judge::without_factors;

/// The value that leaves a setting at its baseline.
const AS_FOUND: &str = "baseline";

/// An experiment on its paths: the meaning of its levels there.
#[derive(Debug)]
pub struct Resolver {
    /// The experiment.
    pub experiment: Experiment,
    home: PathBaseline,
    /// The paths to the other hosts that are levels, as the experiment names them, or why there is none.
    others: BTreeMap<String, Result<PathBaseline, (Code, String)>>,
    /// The disks of block devices, as the experiment names the devices, or why there is none.
    disks: BTreeMap<String, Result<String, (Code, String)>>,
}

/// The baseline of a path.
#[derive(Debug)]
struct PathBaseline {
    local: Host,
    remote: Host,
    local_nic: NicName,
    remote_nic: NicName,
    ipv6: bool,
}

impl PathBaseline {
    fn of(path: PathView<'_>) -> Self {
        Self {
            local: path.local.clone(),
            remote: path.remote.clone(),
            local_nic: path.local_nic.clone(),
            remote_nic: path.remote_nic.clone(),
            ipv6: path.ipv6,
        }
    }

    fn path(&self) -> PathView<'_> {
        PathView {
            local: &self.local,
            remote: &self.remote,
            local_nic: &self.local_nic,
            remote_nic: &self.remote_nic,
            ipv6: self.ipv6,
        }
    }

    fn shares_kernel(&self) -> bool {
        let boot = |host: &Host| host.identity.boot_id.value().cloned();
        boot(&self.local).is_some_and(|id| boot(&self.remote) == Some(id))
    }
}

/// A setting of an end, and the requested value.
pub type RequestedSetting = (End, SettingKey, Value);

impl Resolver {
    /// The experiment on the baseline of the path to its peer.
    pub fn new(experiment: Experiment, path: PathView<'_>) -> Self {
        Self {
            experiment,
            home: PathBaseline::of(path),
            others: BTreeMap::new(),
            disks: BTreeMap::new(),
        }
    }

    /// Adds a block device with the name of its disk, or why there is none.
    #[must_use]
    pub fn with_disk(mut self, device: &str, disk: Result<&str, &Stop>) -> Self {
        let disk = disk.map(str::to_owned);
        let disk = disk.map_err(|stop| (stop.code, stop.message.clone()));
        self.disks.insert(device.to_owned(), disk);
        self
    }

    /// Adds the path to another host, or why there is none.
    #[must_use]
    pub fn with_other(mut self, name: &str, way: Result<PathView<'_>, &Stop>) -> Self {
        let way = way.map(PathBaseline::of);
        let way = way.map_err(|stop| (stop.code, stop.message.clone()));
        self.others.insert(name.to_owned(), way);
        self
    }

    /// The other hosts that can be reached.
    pub fn others(&self) -> impl Iterator<Item = &str> {
        let reached = self.others.iter().filter(|(_, way)| way.is_ok());
        reached.map(|(name, _)| name.as_str())
    }

    /// The paths to the other hosts that can be reached, for a person.
    pub fn others_in_words(&self) -> Vec<String> {
        let words = |(name, way): (&String, &Result<PathBaseline, _>)| {
            let PathBaseline {
                local_nic,
                remote_nic,
                ..
            } = way.as_ref().ok()?;
            Some(format!(
                "another host: {local_nic} -> {remote_nic} of {name}"
            ))
        };
        self.others.iter().filter_map(words).collect()
    }

    /// The path to a peer as an experiment names it, or to its own.
    pub fn path(&self, peer: Option<&str>) -> Outcome<PathView<'_>> {
        self.ground(peer).map(PathBaseline::path)
    }

    fn ground(&self, peer: Option<&str>) -> Outcome<&PathBaseline> {
        let Some(peer) = peer else {
            return Ok(&self.home);
        };
        match self.others.get(peer) {
            Some(Ok(ground)) => Ok(ground),
            Some(Err((code, why))) => Err(Stop::new(*code, format!("{peer}: {why}"))),
            None => {
                let why = format!("no path to {peer} was resolved");
                Err(Stop::new(Code::Bug, why))
            }
        }
    }

    /// Whether the remote end of a combination was unreachable from the start, or its device missing.
    pub fn is_out_of_reach(&self, cell: &[usize]) -> bool {
        let at = self.experiment.at(cell);
        let is_missing = |device| matches!(self.disks.get(&device), Some(Err(_)));
        let is_unreachable = |peer| matches!(self.others.get(&peer), Some(Err(_)));
        at.peer.at.is_some_and(is_unreachable) || at.device.is_some_and(is_missing)
    }

    /// What `@` is in the settings of this host: the interface of the path, or the disk of the device.
    fn noun<'s>(&'s self, at: &'s LevelTable, ground: &'s PathBaseline) -> Outcome<&'s str> {
        let device = at.device.as_ref().or(self.experiment.device.as_ref());
        let Some(device) = device else {
            return Ok(ground.local_nic.as_str());
        };
        match self.disks.get(device) {
            Some(Ok(disk)) => Ok(disk),
            Some(Err((code, why))) => Err(Stop::new(*code, why)),
            // An analysis has the record only: a name in /dev is that of the disk, except for partitions and links.
            None => Ok(device.rsplit('/').next().unwrap_or(device)),
        }
    }

    /// The settings of a combination, of both ends.
    pub fn settings(&self, cell: &[usize]) -> Outcome<Vec<RequestedSetting>> {
        self.settings_of(&self.experiment.at(cell))
    }

    /// The settings that a table requests, of both ends.
    pub fn settings_of(&self, at: &LevelTable) -> Outcome<Vec<RequestedSetting>> {
        let mut wanted = Vec::new();
        let ground = self.ground(at.peer.at.as_deref())?;
        let noun = self.noun(at, ground)?;
        for (end, host, nic, settings) in ends(at, ground) {
            let noun = if end == End::Local {
                noun
            } else {
                nic.as_str()
            };
            for (key, word) in settings {
                if word.to_string() == AS_FOUND {
                    continue;
                }
                let is_optional = self.experiment.optional.contains(key);
                for key in keys(key, host, nic, noun)? {
                    if is_optional && lacking(host, &key).is_some() {
                        continue;
                    }
                    let value = value(&key, word, host, nic)?;
                    wanted.push((end, key, value));
                }
            }
        }
        if ground.shares_kernel() {
            // A machine-wide setting belongs to both ends: one of them changes it.
            let is_here_too = |key: &SettingKey, value: &Value, wanted: &[RequestedSetting]| {
                wanted
                    .iter()
                    .any(|(end, k, v)| *end == End::Local && (k, v) == (key, value))
            };
            let all = wanted.clone();
            wanted.retain(|(end, key, value)| {
                *end == End::Local
                    || key.spec().scope != Scope::Machine
                    || !is_here_too(key, value, &all)
            });
        }
        Ok(wanted)
    }

    /// Whether a level is an earlier run, which is not repeated here.
    pub fn is_earlier(&self, factor: usize, level: usize) -> bool {
        let of = self.experiment.factors.get(factor);
        of.is_some_and(|factor| factor.runs().any(|(run, _)| run == level))
    }

    /// The levels that a host is known not to support: factor, level, and why. Others are found out when they are tried.
    pub fn unsupported(&self) -> Vec<(usize, usize, String)> {
        let alone = without_factors(&self.experiment);
        let levels = alone.iter().enumerate();
        let levels =
            levels.flat_map(|(factor, count)| (0..*count).map(move |level| (factor, level)));
        let why = |(factor, level): (usize, usize)| {
            let mut cell = alone.clone();
            cell[factor] = level;
            let at = self.experiment.at(&cell);
            if let Some(Err((_, why))) = at.device.as_ref().and_then(|at| self.disks.get(at)) {
                return Some((factor, level, why.clone()));
            }
            if self.is_earlier(factor, level) || self.is_out_of_reach(&cell) {
                return None;
            }
            let ground = self.ground(at.peer.at.as_deref()).ok()?;
            let why = match self.settings_of(&at) {
                Err(stop) => (stop.code == Code::NotSupported).then_some(stop.message),
                Ok(settings) => settings.iter().find_map(|(end, key, value)| {
                    let host = match end {
                        End::Local => &ground.local,
                        End::Remote => &ground.remote,
                    };
                    let of_ipoib = || without_ipoib_mode(host, key, value);
                    let why = of_ipoib().or_else(|| Some(lacking(host, key)?.to_string()))?;
                    Some(format!("cannot change {key} of the {end} end: {why}"))
                }),
            };
            let why = why.or_else(|| self.leaves_nothing(ground, factor, level))?;
            Some((factor, level, why))
        };
        levels.filter_map(why).collect()
    }

    /// Why nothing is left of a level: it changes settings only, and its host has none of them.
    fn leaves_nothing(&self, ground: &PathBaseline, factor: usize, level: usize) -> Option<String> {
        let table = self.experiment.factors.get(factor)?.level(level)?;
        let changes_settings_only = table.options.is_empty()
            && table.workload.is_none()
            && table.address.is_none()
            && table.device.is_none()
            && table.peer.at.is_none();
        let own = self.own_settings(&table, ground)?;
        let (first_end, first, gap) = own
            .iter()
            .find_map(|(end, key, gap)| gap.as_ref().map(|gap| (*end, key, gap)))?;
        let is_empty = own.iter().all(|(.., gap)| gap.is_some());
        (changes_settings_only && is_empty)
            .then(|| format!("cannot change {first} of the {first_end} end: {gap}"))
    }

    /// The settings that a level itself names, each with the gap of a host that does not have it; none if one has no key
    /// here.
    fn own_settings(
        &self,
        table: &LevelTable,
        ground: &PathBaseline,
    ) -> Option<Vec<(End, SettingKey, Option<Gap>)>> {
        let disk = self.noun(table, ground).ok()?;
        let mut own = Vec::new();
        for (end, host, nic, settings) in ends(table, ground) {
            let noun = if end == End::Local {
                disk
            } else {
                nic.as_str()
            };
            for (key, word) in settings {
                if word.to_string() == AS_FOUND {
                    continue;
                }
                for key in keys(key, host, nic, noun).ok()? {
                    let gap = lacking(host, &key);
                    own.push((end, key, gap));
                }
            }
        }
        Some(own)
    }

    /// A setting of a level's own that its host does not have.
    pub(super) fn went_without(&self, factor: usize, level: usize) -> Option<String> {
        let table = self.experiment.factors.get(factor)?.level(level)?;
        let ground = self.ground(table.peer.at.as_deref()).ok()?;
        let own = self.own_settings(&table, ground)?.into_iter();
        let mut missing = own.filter(|(.., gap)| gap.is_some());
        missing.next().map(|(_, key, _)| key.to_string())
    }

    /// The optional settings that a host of a path does not have, and why, as text.
    pub fn goes_without_in_words(&self) -> Vec<String> {
        let others = self.others.values().filter_map(|way| way.as_ref().ok());
        let mut lines: Vec<String> = Vec::new();
        for ground in std::iter::once(&self.home).chain(others) {
            let none = LevelTable::default();
            for (end, host, nic, _) in ends(&none, ground) {
                let noun = match self.noun(&none, ground) {
                    Ok(noun) if end == End::Local => noun,
                    _ => nic.as_str(),
                };
                let changed = self.experiment.changed_on(end);
                let optional = self.experiment.optional.iter();
                let optional = optional.filter(|key| changed.contains(key.as_str()));
                let keys = optional.flat_map(|key| keys(key, host, nic, noun).unwrap_or_default());
                let without = keys.filter_map(|key| {
                    let gap = lacking(host, &key)?;
                    Some(format!(
                        "without {key}, which this host does not have: {gap}"
                    ))
                });
                lines.extend(without);
            }
        }
        // Two ends of one kernel lack the same.
        let mut seen = BTreeSet::new();
        lines.retain(|line| seen.insert(line.clone()));
        lines
    }

    /// Every setting that some combination changes, with its values, as text.
    pub fn changed_in_words(&self) -> Vec<String> {
        let mut lines: Vec<(String, Vec<String>)> = Vec::new();
        let base = LevelTable {
            settings: self.experiment.settings.clone(),
            peer: self.experiment.peer.clone(),
            ..LevelTable::default()
        };
        let skipped = self.unsupported();
        let is_skipped =
            |factor, level| skipped.iter().any(|(f, l, _)| (*f, *l) == (factor, level));
        let factors = self.experiment.factors.iter().enumerate();
        let levels = factors.flat_map(|(number, factor)| {
            let levels = (0..factor.levels.len()).filter(move |level| !is_skipped(number, *level));
            levels.filter_map(|level| factor.level(level))
        });
        let tables: Vec<LevelTable> = levels.chain([base]).collect();
        let peers = std::iter::once(None).chain(self.others().map(Some));
        let devices = self.disks.keys().map(|device| (None, Some(device)));
        let places = peers.map(|peer| (peer, None)).chain(devices);
        let all = places.flat_map(|place| tables.iter().map(move |table| (place, table)));
        for ((peer, device), table) in all {
            let mut at = table.clone();
            at.peer.at = peer.map(str::to_owned);
            at.device = device.cloned();
            for (end, key, value) in self.settings_of(&at).unwrap_or_default() {
                let host = match (end, peer) {
                    (End::Remote, Some(peer)) => peer.to_owned(),
                    (end, _) => end.to_string(),
                };
                let (key, value) = (format!("{host} {key}"), value.to_string());
                match lines.iter_mut().find(|(known, _)| *known == key) {
                    Some((_, values)) if values.contains(&value) => {}
                    Some((_, values)) => values.push(value),
                    None => lines.push((key, vec![value])),
                }
            }
        }
        let line = |(key, values): (String, Vec<String>)| format!("{key}: {}", values.join(", "));
        lines.into_iter().map(line).collect()
    }
}

/// The settings of a table for each end, with its host and interface.
fn ends<'a>(
    at: &'a LevelTable,
    ground: &'a PathBaseline,
) -> [(End, &'a Host, &'a NicName, &'a Words); 2] {
    [
        (End::Local, &ground.local, &ground.local_nic, &at.settings),
        (
            End::Remote,
            &ground.remote,
            &ground.remote_nic,
            &at.peer.settings,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use linerate_model::build;
    use linerate_model::host::{Channels, NicKind};
    use linerate_model::known::Known;

    use super::*;

    #[test]
    fn a_level_goes_without_an_optional_setting_that_a_host_does_not_have() {
        let (near, far) = build::veth_pair();
        let nics = ["near0", "far0"].map(|name| name.parse::<NicName>().expect("a name"));
        let path = PathView {
            local: &near,
            remote: &far,
            local_nic: &nics[0],
            remote_nic: &nics[1],
            ipv6: false,
        };
        // A veth has an MTU, and no interrupt to moderate.
        let text = r#"
            title = "t"
            workload = "stream"
            optional = ["nic/@/coalesce/adaptive-rx"]
            [[factors]]
            name = "delay"
            levels = [
                { name = "as it is" },
                { name = "both", settings = { "nic/@/coalesce/adaptive-rx" = false, "nic/@/mtu" = 9000 } },
            ]"#;
        let mut experiment: Experiment = toml::from_str(text).expect("an experiment");
        experiment.check().expect("consistent");
        let changed = |experiment: &Experiment| {
            let resolver = Resolver::new(experiment.clone(), path);
            let settings = resolver.settings(&[1]).expect("settings");
            let keys = settings.iter().map(|(_, key, _)| key.to_string());
            (keys.collect::<Vec<_>>(), resolver.goes_without_in_words())
        };
        let (keys, notes) = changed(&experiment);
        assert_eq!(keys, ["nic/near0/mtu"]);
        assert!(
            notes[0].starts_with(
                "without nic/near0/coalesce/adaptive-rx, which this host does not have: "
            ),
            "{notes:?}"
        );
        experiment.optional.clear();
        let (keys, notes) = changed(&experiment);
        assert_eq!(keys.len(), 2);
        assert!(notes.is_empty());
        experiment.optional.push("nic/@/ring/rx".to_owned());
        let error = experiment.check().expect_err("nothing changes it");
        assert!(error.to_string().contains("nic/@/ring/rx"), "{error}");
    }

    #[test]
    fn a_key_stands_for_the_disk_of_each_device_and_a_device_that_is_not_there_is_no_level() {
        let disk = |name: &str| build::block(name, "nvme");
        let host = build::host().with(|host| host.block = vec![disk("nvme0n1"), disk("nvme1n1")]);
        let (host, remote) = (host.build(), Host::unheard("a block device"));
        let nics = ["nvme0n1".parse().expect("a name"), NicName::unheard()];
        let path = PathView {
            local: &host,
            remote: &remote,
            local_nic: &nics[0],
            remote_nic: &nics[1],
            ipv6: false,
        };
        let text = r#"
            title = "t"
            workload = "block"
            device = "/dev/nvme0n1p1"
            [[factors]]
            name = "device"
            levels = [{ name = "first" }, { name = "second", device = "/dev/nvme1n1" }, { name = "none", device = "/dev/none" }]
            [[factors]]
            setting = "block/@/scheduler"
            on = "local"
            levels = ["none", "mq-deadline"]"#;
        let experiment: Experiment = toml::from_str(text).expect("an experiment");
        experiment.check().expect("consistent");
        let missing = Stop::new(Code::BadInput, "no such file");
        let resolver = Resolver::new(experiment.clone(), path)
            .with_disk("/dev/nvme0n1p1", Ok("nvme0n1"))
            .with_disk("/dev/nvme1n1", Ok("nvme1n1"))
            .with_disk("/dev/none", Err(&missing));
        let changed = |resolver: &Resolver, device: usize| {
            let settings = resolver.settings(&[device, 1]).expect("settings");
            let settings = settings.iter();
            let words = settings.map(|(_, key, value)| format!("{key} {value}"));
            words.collect::<Vec<_>>().join(", ")
        };
        assert_eq!(changed(&resolver, 0), "block/nvme0n1/scheduler mq-deadline");
        assert_eq!(changed(&resolver, 1), "block/nvme1n1/scheduler mq-deadline");
        assert!(resolver.is_out_of_reach(&[2, 0]) && !resolver.is_out_of_reach(&[1, 0]));
        assert_eq!(resolver.unsupported(), [(0, 2, "no such file".to_owned())]);
        // An analysis knows the names of the devices only.
        let of_record = Resolver::new(experiment, path);
        assert_eq!(
            changed(&of_record, 1),
            "block/nvme1n1/scheduler mq-deadline"
        );
    }

    #[test]
    fn a_skipped_mode_of_ipoib_names_the_missing_device_or_the_nic_without_connected_mode() {
        let (mut near, mut far) = build::veth_pair();
        let text = r#"
            title = "t"
            workload = "stream"
            [[factors]]
            name = "mode"
            levels = [
                { name = "datagram", settings = { "nic/@/ipoib/mode" = "datagram" } },
                { name = "connected", settings = { "nic/@/ipoib/mode" = "connected" } },
            ]"#;
        let experiment: Experiment = toml::from_str(text).expect("an experiment");
        let nics = ["near0", "far0"].map(|name| name.parse::<NicName>().expect("a name"));
        let skipped = |near: &Host, far: &Host| {
            let path = PathView {
                local: near,
                remote: far,
                local_nic: &nics[0],
                remote_nic: &nics[1],
                ipv6: false,
            };
            let skipped = Resolver::new(experiment.clone(), path)
                .unsupported()
                .into_iter();
            skipped
                .map(|(_, level, why)| (level, why))
                .collect::<Vec<_>>()
        };
        let none = skipped(&near, &far);
        assert_eq!(none.len(), 2);
        assert!(
            none[1].1.ends_with("this host has no IPoIB device"),
            "{none:?}"
        );
        for host in [&mut near, &mut far] {
            for nic in &mut host.nics {
                nic.kind = NicKind::Ipoib;
                nic.stack.ipoib_mode = Some(Known::Value("datagram".to_owned()));
                nic.stack.ipoib_connected = Some(Known::Value(true));
            }
        }
        assert_eq!(skipped(&near, &far), []);
        near.nics[0].stack.ipoib_connected = Some(Known::Value(false));
        let [(level, why)] = &skipped(&near, &far)[..] else {
            panic!("datagram mode is there");
        };
        assert_eq!(*level, 1);
        assert!(
            why.contains("datagram mode only") && why.contains("ConnectX-4"),
            "{why}"
        );
    }

    #[test]
    fn combined_channels_are_receive_and_transmit_channels_of_a_driver_without_them() {
        let mut host = build::host().nic("eth0", |nic| nic).build();
        let nic: NicName = "eth0".parse().expect("a name");
        let of = |host: &Host| {
            let keys = keys("nic/@/channels/combined", host, &nic, nic.as_str()).expect("a key");
            keys.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(of(&host), ["nic/eth0/channels/combined"]);
        host.nics[0].channels = Known::Value(Channels {
            rx: Known::Value(4),
            tx: Known::Value(4),
            combined: Known::Value(0),
            rx_max: Known::Value(8),
            tx_max: Known::Value(8),
            combined_max: Known::Value(0),
        });
        assert_eq!(of(&host), ["nic/eth0/channels/rx", "nic/eth0/channels/tx"]);
    }

    #[test]
    fn a_key_stands_for_the_path_s_own_interface_and_for_all_of_its_queues() {
        let (near, _) = build::veth_pair();
        let nic = "near0".parse().expect("a name");
        let keys = |text| {
            let keys = keys(text, &near, &nic, nic.as_str()).map_err(|stop| stop.message)?;
            Ok::<_, String>(keys.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        assert_eq!(keys("nic/@/mtu"), Ok(vec!["nic/near0/mtu".to_owned()]));
        let queues = keys("nic/@/queue/rx-*/rps-cpus").expect("queues");
        assert!(
            queues.contains(&"nic/near0/queue/rx-0/rps-cpus".to_owned()),
            "{queues:?}"
        );
        assert!(
            keys("placement/sender-cpus")
                .expect_err("of a trial")
                .contains("option")
        );
        assert!(keys("nic/@/mtus").is_err());
    }
}
