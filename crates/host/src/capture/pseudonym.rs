//! Pseudonyms: replace everything that identifies a machine by values of the same form.
//!
//! Each is a hash of the original, keyed by the boot ID: equal values stay equal inside an archive and between
//! archives of one boot (two namespaces of one kernel), and without the boot ID no guess can be tested. IP addresses
//! keep their common prefixes (as in Crypto-PAn: a bit is flipped depending on the bits before it), so that two ends
//! of a subnet stay in one subnet.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use linerate_model::known::Known;

use super::answers::{CapturedNics, CapturedRdma};
use super::archive::Archive;
use crate::procfs::nfs;
use crate::procfs::owners::TUNED_PROFILE;
use crate::rdma::RdmaAnswers;
use crate::root::tree::{Entry, Tree};
use crate::sysctl_files;
use crate::sysfs::cgroups;

const HOSTNAME: &str = "proc/sys/kernel/hostname";
const BOOT_ID: &str = "proc/sys/kernel/random/boot_id";
const COMMAND_LINE: &str = "proc/cmdline";

/// Kernel parameters whose values are read by rules and do not identify the machine.
const KEPT_PARAMETERS: [&str; 30] = [
    "amd_iommu",
    "amd_pstate",
    "audit",
    "clocksource",
    "default_hugepagesz",
    "hugepages",
    "hugepagesz",
    "idle",
    "intel_idle.max_cstate",
    "intel_iommu",
    "intel_pstate",
    "iommu",
    "iommu.passthrough",
    "iommu.strict",
    "irqaffinity",
    "irqtime",
    "isolcpus",
    "kthread_cpus",
    "mitigations",
    "nohz",
    "nohz_full",
    "numa_balancing",
    "pci",
    "pcie_aspm",
    "preempt",
    "processor.max_cstate",
    "rcu_nocbs",
    "spectre_v2",
    "transparent_hugepage",
    "tsc",
];

/// Profiles that are shipped with TuneD; others may contain their owner's name.
const STOCK_PROFILES: [&str; 15] = [
    "accelerator-performance",
    "aws",
    "balanced",
    "cpu-partitioning",
    "desktop",
    "hpc-compute",
    "latency-performance",
    "network-latency",
    "network-throughput",
    "openshift-node",
    "powersave",
    "realtime",
    "realtime-virtual-host",
    "throughput-performance",
    "virtual-guest",
];

/// Files in `/etc/sysctl.d` with the same name on every machine that has them.
const KNOWN_SYSCTL_FILES: [&str; 2] = ["90-linerate.conf", "99-sysctl.conf"];

/// The pseudonyms of one boot of one host.
#[derive(Debug)]
pub(crate) struct Pseudonyms {
    key: u64,
}

impl Pseudonyms {
    /// The pseudonyms for `archive`.
    pub(crate) fn of(archive: &Archive) -> Self {
        let tree = &archive.tree;
        let secret = tree.read(BOOT_ID).or_else(|_| tree.read(HOSTNAME));
        let mut hasher = DefaultHasher::new();
        secret.unwrap_or("no boot id").hash(&mut hasher);
        Self {
            key: hasher.finish(),
        }
    }

    /// `archive` with pseudonyms.
    pub(crate) fn applied(&self, archive: Archive) -> Archive {
        let mut tree = Tree::new(false);
        let withheld = withheld_sysctl_files(&archive.tree);
        for (path, entry) in archive.tree.iter() {
            let (to, entry) = (self.path(path), self.entry(path, entry));
            if withheld.is_empty() {
                tree.put(&to, entry);
            } else {
                tree.put(
                    &renamed(&to, &withheld),
                    names_renamed(path, entry, &withheld),
                );
            }
        }
        let mut nics = BTreeMap::new();
        for (nic, mut answers) in archive.nics.0 {
            if let Known::Value(addresses) = &mut answers.addresses {
                for address in addresses {
                    *address = self.address(address);
                }
            }
            let name = self.text(nic.as_str()).parse().unwrap_or(nic);
            nics.insert(name, answers);
        }
        Archive {
            version: archive.version,
            pseudonyms: true,
            tree,
            nics: CapturedNics(nics),
            rdma: CapturedRdma(self.rdma(archive.rdma.0)),
        }
    }

    fn rdma(&self, devices: BTreeMap<String, RdmaAnswers>) -> BTreeMap<String, RdmaAnswers> {
        let renamed = |(name, mut answers): (String, RdmaAnswers)| {
            for port in answers.ports.values_mut() {
                if let Known::Value(netdev) = &mut port.netdev {
                    *netdev = self.text(netdev.as_str()).parse().unwrap_or(netdev.clone());
                }
            }
            (self.text(&name), answers)
        };
        devices.into_iter().map(renamed).collect()
    }

    fn entry(&self, path: &str, entry: &Entry) -> Entry {
        match entry {
            Entry::File { mode, text } => {
                let text = match path {
                    HOSTNAME if !text.is_empty() => self.hostname(text),
                    COMMAND_LINE => self.command_line(text),
                    cgroups::OWN => self.control_groups(text),
                    nfs::MOUNTS => self.mounts(text),
                    TUNED_PROFILE if !STOCK_PROFILES.contains(&text.as_ref()) => {
                        format!("withheld-{:08x}", self.hash("profile", text.as_ref()) >> 32)
                    }
                    _ => self.text(text),
                };
                Entry::File {
                    mode: *mode,
                    text: text.into(),
                }
            }
            Entry::Folder { mode, names } => Entry::Folder {
                mode: *mode,
                names: names.iter().map(|name| self.text(name)).collect(),
            },
            Entry::Link { target } => Entry::Link {
                target: self.text(target),
            },
            Entry::Gap { cause, reason } => Entry::Gap {
                cause: *cause,
                reason: self.text(reason),
            },
        }
    }

    fn hash(&self, what: &str, of: impl Hash) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.key, what).hash(&mut hasher);
        of.hash(&mut hasher);
        hasher.finish()
    }

    /// The path of a file. Control groups are named after services, users and containers.
    fn path(&self, path: &str) -> String {
        let below = path.strip_prefix(cgroups::MOUNT);
        let Some((groups, file)) = below.and_then(|below| below.rsplit_once('/')) else {
            return self.text(path);
        };
        let (controllers, groups) = cgroups::controllers_of(groups);
        format!(
            "{}{controllers}{}/{file}",
            cgroups::MOUNT,
            self.groups(groups)
        )
    }

    /// `/system.slice/app.service` of a control group, name by name.
    fn groups(&self, path: &str) -> String {
        let name = |name: &str| match name {
            "" => String::new(),
            name => format!("group-{:08x}", self.hash("control group", name) >> 32),
        };
        path.split('/').map(name).collect::<Vec<_>>().join("/")
    }

    fn control_groups(&self, text: &str) -> String {
        let line = |line: &str| match line.match_indices(':').nth(1) {
            Some((at, _)) => format!("{}{}", &line[..=at], self.groups(&line[at + 1..])),
            None => String::new(),
        };
        text.lines().map(line).collect::<Vec<_>>().join("\n")
    }

    /// The mounts, of which a capture has no servers ([`nfs::used_mounts`]).
    fn mounts(&self, text: &str) -> String {
        let line = |line: &str| {
            let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            if let Some(place) = words.get_mut(1) {
                *place = format!("/mount-{:08x}", self.hash("mount point", &*place) >> 32);
            }
            words.join(" ")
        };
        text.lines().map(line).collect::<Vec<_>>().join("\n")
    }

    fn hostname(&self, name: &str) -> String {
        format!("host-{:08x}", self.hash("hostname", name) >> 32)
    }

    /// Replaces every UUID, MAC address, RDMA identifier and interface name that contains one.
    pub(crate) fn text(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        let mut before: Option<char> = None;
        while let Some(c) = rest.chars().next() {
            let starts_word = before.is_none_or(|c| !c.is_ascii_alphanumeric());
            let found = if starts_word && c.is_ascii_alphanumeric() {
                self.at_start(rest)
            } else {
                None
            };
            let taken = if let Some((length, pseudonym)) = found {
                out.push_str(&pseudonym);
                length
            } else {
                out.push(c);
                c.len_utf8()
            };
            before = rest[..taken].chars().next_back();
            rest = &rest[taken..];
        }
        out
    }

    /// The length of the identifier at the start of `text`, and its replacement.
    fn at_start(&self, text: &str) -> Option<(usize, String)> {
        let found = [
            gid(text).map(|gid| (GID_CHARS, self.gid(gid))),
            hardware_address(text).map(|length| (length, self.hardware_address(&text[..length]))),
            uuid(text).map(|length| (length, self.uuid(&text[..length]))),
            // systemd names an interface without a better name by its MAC address: enx781dba0a0b0c. udev can name an
            // RDMA device by its GUID, which contains one: rocex525400c0fe123455.
            hex_name(text).map(|(prefix, length)| {
                let digits = self.hash("name", &text[prefix..length]);
                let hidden = format!("{digits:016x}")[16 - (length - prefix)..].to_owned();
                (length, format!("{}{hidden}", &text[..prefix]))
            }),
        ];
        let (length, pseudonym) = found.into_iter().flatten().next()?;
        let ends_word = !text[length..].starts_with(|c: char| c.is_ascii_alphanumeric());
        ends_word.then_some((length, pseudonym))
    }

    fn uuid(&self, uuid: &str) -> String {
        let hash = self.hash("uuid", uuid.to_ascii_lowercase());
        let (high, low) = (hash >> 48 & 0xfff, hash & 0xffff_ffff_ffff);
        format!("00000000-0000-4000-8{high:03x}-{low:012x}")
    }

    fn hardware_address(&self, address: &str) -> String {
        let is_plain = address.bytes().all(|b| matches!(b, b'0' | b':'))
            || address.bytes().all(|b| matches!(b, b'f' | b':'));
        if is_plain {
            return address.to_owned();
        }
        let bytes = address.split(':').count();
        let mut pseudonym = vec!["02".to_owned()];
        for index in 1..bytes {
            let byte = self.hash("hardware address", (address.to_ascii_lowercase(), index)) & 0xff;
            pseudonym.push(format!("{byte:02x}"));
        }
        pseudonym.join(":")
    }

    /// The GID of an RDMA port is an IPv6 address, or an IPv4-mapped one: its pseudonym is the same as that of its
    /// interface's address.
    fn gid(&self, gid: Ipv6Addr) -> String {
        let address = match gid.to_ipv4_mapped() {
            Some(v4) => match self.ip(IpAddr::V4(v4)) {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => v6,
            },
            None => match self.ip(IpAddr::V6(gid)) {
                IpAddr::V6(v6) => v6,
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            },
        };
        let groups = address.segments().map(|group| format!("{group:04x}"));
        groups.join(":")
    }

    /// An IP address with or without its prefix length.
    pub(crate) fn address(&self, text: &str) -> String {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, format!("/{length}")),
            None => (text, String::new()),
        };
        match address.parse::<IpAddr>() {
            Ok(address) => format!("{}{length}", self.ip(address)),
            Err(_) => "withheld".to_owned(),
        }
    }

    fn ip(&self, address: IpAddr) -> IpAddr {
        if address.is_loopback() || address.is_unspecified() || address.is_multicast() {
            return address;
        }
        match address {
            IpAddr::V4(v4) => {
                let kept = match v4.octets() {
                    [169, 254, ..] | [192, 168, ..] => 16,
                    _ => 8,
                };
                let bits = self.flipped(u128::from(v4.to_bits()), 32, kept);
                IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(bits).unwrap_or_default()))
            }
            IpAddr::V6(v6) => {
                let kept = if v6.is_unicast_link_local() { 64 } else { 16 };
                IpAddr::V6(Ipv6Addr::from_bits(self.flipped(v6.to_bits(), 128, kept)))
            }
        }
    }

    fn flipped(&self, address: u128, bits: u32, kept: u32) -> u128 {
        (kept..bits).fold(address, |out, bit| {
            let prefix = address.checked_shr(bits - bit).unwrap_or(0);
            let flip = u128::from(self.hash("ip", (bits, bit, prefix)) & 1);
            out ^ flip << (bits - bit - 1)
        })
    }

    /// The command line with the values of the parameters that rules read; all other values are withheld, including
    /// numbers (a PIN is one), and init's arguments.
    fn command_line(&self, text: &str) -> String {
        let words = text.split_whitespace().take_while(|word| *word != "--");
        let kept: Vec<String> = words
            .map(|word| {
                let (key, value) = word.split_once('=').unwrap_or((word, ""));
                let is_plain_word = value.is_empty() && !key.contains(['.', '/', ':', '@']);
                if KEPT_PARAMETERS.contains(&key) || is_plain_word {
                    self.text(word)
                } else {
                    let value = self.hash("parameter", value) >> 32;
                    format!("{}=withheld-{value:08x}", self.text(key))
                }
            })
            .collect();
        kept.join(" ")
    }
}

/// Replacement names for sysctl files that do not belong to a package.
fn withheld_sysctl_files(tree: &Tree) -> BTreeMap<String, String> {
    let names = |folder: &&str| tree.list(folder).unwrap_or_default();
    let all: BTreeSet<String> = sysctl_files::FOLDERS.iter().flat_map(names).collect();
    let packaged: BTreeSet<String> = sysctl_files::PACKAGED.iter().flat_map(names).collect();
    sysctl_files::withheld_names(all.iter().map(String::as_str), |name| {
        packaged.contains(name) || KNOWN_SYSCTL_FILES.contains(&name)
    })
}

fn renamed(path: &str, withheld: &BTreeMap<String, String>) -> String {
    match path.rsplit_once('/') {
        Some((folder, name)) if sysctl_files::FOLDERS.contains(&folder) => {
            let name = withheld.get(name).map_or(name, String::as_str);
            format!("{folder}/{name}")
        }
        _ => path.to_owned(),
    }
}

fn names_renamed(path: &str, entry: Entry, withheld: &BTreeMap<String, String>) -> Entry {
    match entry {
        Entry::Folder { mode, names } if sysctl_files::FOLDERS.contains(&path) => {
            let name = |name: String| withheld.get(&name).cloned().unwrap_or(name);
            Entry::Folder {
                mode,
                names: names.into_iter().map(name).collect(),
            }
        }
        entry => entry,
    }
}

/// The length of six or more pairs of hexadecimal digits with colons between (20 for InfiniBand).
fn hardware_address(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let is_pair = |at: usize| {
        bytes
            .get(at..at + 2)
            .is_some_and(|p| p.iter().all(u8::is_ascii_hexdigit))
    };
    let mut end = 0;
    let mut pairs = 0;
    while is_pair(end) {
        pairs += 1;
        end += 2;
        if bytes.get(end) == Some(&b':') && is_pair(end + 1) {
            end += 1;
        } else {
            break;
        }
    }
    (pairs >= 6).then_some(end)
}

/// The kernel prints a GID as an IPv6 address of eight full groups.
const GID_CHARS: usize = 39;

fn gid(text: &str) -> Option<Ipv6Addr> {
    let gid = text.get(..GID_CHARS)?;
    let is_whole = gid.split(':').count() == 8 && gid.split(':').all(|group| group.len() == 4);
    if is_whole { gid.parse().ok() } else { None }
}

fn uuid(text: &str) -> Option<usize> {
    let uuid = text.as_bytes().get(..36)?;
    let fits = uuid.iter().enumerate().all(|(at, byte)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    });
    fits.then_some(36)
}

/// Digits of a MAC address (12) or of a GUID (16) in a name; udev omits the leading zeros of a GUID, of which a
/// vendor's OUI has up to five.
const NAME_DIGITS: std::ops::RangeInclusive<usize> = 11..=16;
/// `en`, `wl`, `ww`, `ib`, `iw`, `opa`, `roce`, `usnic`.
const NAME_PREFIX: std::ops::RangeInclusive<usize> = 2..=5;

/// A name that is a prefix of letters, an `x` and a hexadecimal number: the start and end of the number.
fn hex_name(text: &str) -> Option<(usize, usize)> {
    let bytes = text.as_bytes();
    let letters = bytes.iter().take_while(|byte| byte.is_ascii_lowercase());
    let prefix = bytes[..letters.count()]
        .iter()
        .position(|byte| *byte == b'x')?;
    let start = prefix + 1;
    let digits = bytes[start..].iter();
    let digits = digits.take_while(|byte| byte.is_ascii_hexdigit()).count();
    (NAME_PREFIX.contains(&prefix) && NAME_DIGITS.contains(&digits))
        .then_some((start, start + digits))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NAMES: Pseudonyms = Pseudonyms { key: 7 };

    #[test]
    fn addresses_of_one_subnet_stay_in_one_subnet() {
        let (a, b) = (
            NAMES.address("10.20.30.1/24"),
            NAMES.address("10.20.30.2/24"),
        );
        let net = |text: &str| text.rsplit_once('.').map(|(net, _)| net.to_owned());
        assert_eq!(net(&a), net(&b));
        assert_ne!(a, b);
        assert!(!a.contains("20.30"), "{a}");
        assert_eq!(NAMES.address("127.0.0.1/8"), "127.0.0.1/8");
        assert_eq!(NAMES.address("::1/128"), "::1/128");
        assert!(NAMES.address("fe80::1234/64").starts_with("fe80::"));
    }

    #[test]
    fn uuids_hardware_addresses_and_names_made_of_them_are_replaced_alike() {
        let text =
            "root=UUID=5f2c1cdd-3a0c-4b7e-9c3e-0123456789ab 78:2b:cb:38:ac:1b enx782bcb38ac1b";
        let out = NAMES.text(text);
        assert!(!out.contains("5f2c1cdd") && !out.contains("2b:cb") && !out.contains("782bcb"));
        assert_eq!(out, NAMES.text(text));
        assert_eq!(
            out.split(' ').map(str::len).collect::<Vec<_>>(),
            [46, 17, 15]
        );
    }

    #[test]
    fn names_of_rdma_devices_keep_their_form_and_lose_their_address() {
        for (name, prefix) in [
            ("rocex525400c0fe123455", "rocex"),
            ("ibx2c90300a1b2c3", "ibx"),
            ("iwx525400c0fe12", "iwx"),
            ("usnicx0123456789abcdef", "usnicx"),
        ] {
            let out = NAMES.text(&format!("sys/class/infiniband/{name}/ports/1"));
            let out = out.split('/').nth(3).expect("a name");
            assert_ne!(out, name);
            assert_eq!((out.len(), &out[..prefix.len()]), (name.len(), prefix));
            assert_eq!(out, NAMES.text(name), "alike wherever it stands");
        }
        let digits = |name: &str| {
            NAMES
                .text(name)
                .split_once('x')
                .map(|(_, hex)| hex.to_owned())
        };
        assert_eq!(digits("enx782bcb38ac1b"), digits("rocex782bcb38ac1b"));
        for plain in [
            "ibp23s0",
            "rocep129s0f0",
            "mlx5_0",
            "linux6123456789",
            "0x0123456789ab",
        ] {
            assert_eq!(NAMES.text(plain), plain);
        }
    }

    #[test]
    fn identifiers_of_rdma_ports_are_replaced_as_the_addresses_that_they_are() {
        let link_local = NAMES.text("fe80:0000:0000:0000:0202:c9ff:fe0b:4d01");
        assert!(link_local.starts_with("fe80:0000:0000:0000:") && !link_local.contains("c9ff"));
        let same = NAMES.address("fe80::202:c9ff:fe0b:4d01");
        assert_eq!(link_local.parse::<Ipv6Addr>().ok(), same.parse().ok());
        let mapped = NAMES.text("0000:0000:0000:0000:0000:ffff:0a14:1e01");
        let v4 = mapped.parse::<Ipv6Addr>().expect("an address");
        let v4 = v4.to_ipv4_mapped().expect("a mapped one").to_string();
        assert_eq!(v4, NAMES.address("10.20.30.1"));
        for empty in [
            "fe80:0000:0000:0000:0000:0000:0000:0000",
            "0000:0000:0000:0000:0000:0000:0000:0000",
        ] {
            assert_eq!(NAMES.text(empty)[..19], empty[..19]);
        }
    }

    #[test]
    fn control_groups_and_mount_points_are_replaced_alike_wherever_they_stand() {
        let file = NAMES.path("sys/fs/cgroup/system.slice/acme.service/cpu.max");
        let own = NAMES.control_groups("4:cpu,cpuacct:/a\n0::/system.slice/acme.service");
        let group = own.rsplit_once("::").expect("the second version").1;
        assert_eq!(file, format!("sys/fs/cgroup{group}/cpu.max"));
        assert!(
            !own.contains("acme") && own.starts_with("4:cpu,cpuacct:/group-"),
            "{own}"
        );
        let first = NAMES.path("sys/fs/cgroup/cpu,cpuacct/a/cpu.stat");
        let group = own.lines().next().and_then(|line| line.rsplit(':').next());
        let group = group.expect("the first version");
        assert_eq!(first, format!("sys/fs/cgroup/cpu,cpuacct{group}/cpu.stat"));
        assert_eq!(NAMES.path("sys/fs/cgroup/cpu.max"), "sys/fs/cgroup/cpu.max");
        assert_eq!(NAMES.control_groups("0::/"), "0::/");
        let mounts = NAMES.mounts("- /home/acme nfs4 proto=tcp\n- /x nfs proto=udp");
        assert!(
            !mounts.contains("acme") && mounts.contains("nfs4 proto=tcp\n- /mount-"),
            "{mounts}"
        );
    }

    #[test]
    fn device_addresses_and_cpu_lists_are_left_as_they_are() {
        for text in [
            "mlx5_comp3@pci:0000:81:00.0",
            "0-3,8",
            "00000001,00000003",
            "../../0000:16:00.0",
        ] {
            assert_eq!(NAMES.text(text), text);
        }
    }

    #[test]
    fn a_command_line_keeps_what_rules_read_and_withholds_the_rest() {
        let line = "root=/dev/mapper/acme-root isolcpus=2-5 nfsroot=10.1.1.1:/srv quiet iommu=pt luks.pin=271828 -- --secret x";
        let out = NAMES.command_line(line);
        assert!(out.contains("isolcpus=2-5") && out.contains("quiet") && out.contains("iommu=pt"));
        for told in ["acme", "10.1.1.1", "secret", "271828"] {
            assert!(!out.contains(told), "{out}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,60}") {
            let _ = (NAMES.text(&text), NAMES.address(&text), NAMES.command_line(&text));
            let _ = (NAMES.path(&format!("sys/fs/cgroup/{text}")), NAMES.control_groups(&text), NAMES.mounts(&text));
        }

        #[test]
        fn common_prefixes_of_addresses_survive(a in any::<u128>(), b in any::<u128>()) {
            let (x, y) = (NAMES.flipped(a, 128, 0), NAMES.flipped(b, 128, 0));
            prop_assert_eq!((a ^ b).leading_zeros(), (x ^ y).leading_zeros());
        }
    }
}
