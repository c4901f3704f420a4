//! Entry points for the fuzz targets (`fuzz/` at the root of the repository) and the property tests below: one
//! function for each kind of reader. None may panic, hang or use much memory, for any input. Only compiled with the
//! feature `fuzz`.

mod texts;

use std::path::Path;

use linerate_model::ceiling::{Packets, ceilings_of_nic};
use linerate_model::failover::events::Source;
use linerate_model::finding::{Context, Profile};
use linerate_model::host::Host;
use linerate_model::known::Known;
use linerate_model::plan::End;
use linerate_model::rules::diagnose;
use linerate_model::units::Nanoseconds;
use linerate_model::watch::Watch;
pub use texts::sysfs_text;

use crate::capture::answers::{CapturedNics, CapturedRdma};
use crate::capture::pseudonym::Pseudonyms;
use crate::capture::tarball::{self, Form};
use crate::capture::{Archive, CaptureError, Captured};
use crate::eeprom::{HALF_BYTES, Pages};
use crate::events::{log::Log, packet};
use crate::netlink::monitor::parse_notifications;
use crate::netlink::{Netlink, take_apart};
use crate::nic_control::NicRead;
use crate::read::read_host;
use crate::root::HostRoot;
use crate::sysfs::config_space;
use crate::watch::{Reading, read_counters};

/// All roles.
pub const PROFILES: [Profile; 7] = [
    Profile::Throughput,
    Profile::Latency,
    Profile::Forwarding,
    Profile::Rdma,
    Profile::Storage,
    Profile::Mixed,
    Profile::Measurement,
];

const PACKETS: Packets = Packets {
    mtu: None,
    options_bytes: 12,
    ipv6: true,
    vlan_tags: 1,
    tunnel: None,
    outer_ipv6: false,
    flows: 3,
    datagram_bytes: None,
};

/// Checks a host in every role and computes the ceilings of its interfaces.
pub fn judge(host: &Host, watch: Option<&Watch>) {
    for profile in PROFILES {
        let _ = diagnose(&Context {
            end: End::Local,
            host,
            nic: None,
            other: (profile == Profile::Throughput).then_some(host),
            sample: None,
            watch,
            profile,
            owns_shapers: profile == Profile::Mixed,
        });
    }
    for nic in &host.nics {
        let _ = ceilings_of_nic(host, nic, PACKETS);
    }
}

/// Kernel responses: the first byte selects the request, the rest is the response (`netlink/script.rs`), and a
/// datagram.
pub fn netlink(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else {
        return;
    };
    take_apart(rest);
    let Ok(kernel) = Netlink::scripted(rest) else {
        return;
    };
    let Ok(nic) = "eth0".parse() else {
        return;
    };
    match which % 14 {
        0 => drop(kernel.kind(&nic)),
        1 => drop(kernel.addresses(&nic)),
        2 => drop(kernel.features(&nic)),
        3 => drop(kernel.rings(&nic)),
        4 => drop(kernel.channels(&nic)),
        5 => drop(kernel.coalesce(&nic)),
        6 => drop(kernel.qdisc(&nic)),
        7 => drop(kernel.card(&nic)),
        8 => drop(kernel.wire(&nic)),
        9 => drop(kernel.stack(&nic)),
        10 => drop(kernel.dispatch(&nic)),
        11 => drop(kernel.shaping(&nic)),
        12 => drop(kernel.rss_key(&nic)),
        _ => drop(kernel.counts(&nic)),
    }
}

/// What a recorder of events receives: by the first byte, a datagram of rtnetlink's notifications, an ARP packet, an IPv4
/// or an IPv6 packet.
pub fn events(bytes: &[u8]) {
    let Some((which, rest)) = bytes.split_first() else {
        return;
    };
    let mut log = Log::new((which & 4 != 0).then_some([10, 0, 0, 1].into()));
    let packet = match which % 4 {
        0 => {
            for (time, change) in (0u64..).zip(parse_notifications(rest)) {
                log.take(Nanoseconds::new(time), Source::Rtnetlink, change);
            }
            None
        }
        1 => packet::parse_arp(rest),
        2 => packet::parse_ip4(rest),
        _ => packet::parse_ip6(rest),
    };
    if let Some(packet) = packet {
        log.hear(Nanoseconds::new(1), 1, &[2, 0, 0, 0, 0, 1], packet);
    }
    let record = log.finish();
    assert_eq!(record.check(), Ok(()), "a record that would be refused");
}

/// A module's EEPROM, its half pages in the order in which they are requested; the last may be short, and missing
/// parts count as unreadable.
pub fn eeprom(bytes: &[u8]) {
    let mut pages = Pages::new("module".to_owned());
    let mut halves = bytes.chunks(HALF_BYTES as usize);
    // Far more than any module has: the test includes termination.
    for _ in 0..64 {
        let Some(half) = crate::eeprom::next(&pages) else {
            break;
        };
        let bytes = match halves.next() {
            Some(bytes) => Known::Value(bytes.to_vec()),
            None => Known::not_asked("module"),
        };
        pages.insert(half, bytes);
        let _ = crate::eeprom::decode(&pages);
    }
    assert!(
        crate::eeprom::next(&pages).is_none(),
        "a module of endless pages"
    );
}

/// A PCI function's configuration space.
pub fn pcie_config(space: &[u8]) {
    let told = config_space::parse_config(space);
    let kept = config_space::used_bytes(space);
    assert_eq!(
        config_space::parse_config(&kept).is_ok(),
        told.is_ok(),
        "a capture tells another story"
    );
}

/// The text of an archive, with or without its header and with a wrong checksum at its end: it is parsed, and the
/// host is checked; and the same again with pseudonyms.
pub fn archive(text: &[u8]) {
    let _ = Archive::parse(text);
    if let Some(archive) = mended(text) {
        let again = Archive::parse(archive.to_text().as_bytes());
        assert!(again.is_ok(), "what was written is refused: {again:?}");
        let hidden = Pseudonyms::of(&archive).applied(archive.clone());
        let captured = archive.into_captured();
        read_and_judge(captured.root(), &captured);
        let _ = read_host(hidden.into_captured().root(), &captured);
    }
}

/// The archive with `text` as its body: the checksum covers all bytes, so random changes to a complete archive would
/// all be rejected.
fn mended(text: &[u8]) -> Option<Archive> {
    let mut whole = b"linerate capture 1\nby linerate 0\npseudonyms no\n".to_vec();
    whole.extend_from_slice(text);
    if !whole.ends_with(b"\n") {
        whole.push(b'\n');
    }
    let body = whole.len();
    whole.extend_from_slice(b"end x\n");
    match Archive::parse(whole.as_slice()) {
        Err(CaptureError::Changed { found, .. }) => {
            whole.truncate(body);
            whole.extend_from_slice(format!("end {found}\n").as_bytes());
            Archive::parse(whole.as_slice()).ok()
        }
        _ => None,
    }
}

/// A tar file of a host's files, compressed or not, with correct header checksums.
pub fn tarball(bytes: &[u8]) {
    let form = tarball::form(bytes);
    let mended = if form == Some(Form::TarBzip2) {
        bytes.to_vec()
    } else {
        with_tar_checksums(bytes)
    };
    if let Ok(tree) = tarball::read(
        Path::new("x.tar"),
        mended.as_slice(),
        form.unwrap_or(Form::Tar),
    ) {
        let root = HostRoot::in_memory(tree);
        let captured = Captured::of(root, CapturedNics::default(), CapturedRdma::default());
        read_and_judge(captured.root(), &captured);
    }
}

/// Writes the correct checksum (POSIX ustar: bytes 148 to 155, counted as spaces) into every block that looks like a
/// header.
fn with_tar_checksums(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for block in bytes.chunks_exact_mut(512) {
        if block.get(257..262) != Some(b"ustar") {
            continue;
        }
        if let Some(field) = block.get_mut(148..156) {
            field.fill(b' ');
        }
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        if let Some(field) = block.get_mut(148..156) {
            field.copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
    bytes
}

/// Reads a host and its counters twice, the second time with all of them changed, and checks it.
pub fn read_and_judge(root: &HostRoot, nics: &dyn NicRead) {
    let host = read_host(root, nics);
    judge(&host, None);
    let before = read_counters(root, nics, &host);
    let after = moved(&before);
    let _ = after.span_since(&before);
    for span in [0, 1, 5_000_000_000, u64::MAX] {
        judge(&host, Some(&after.since(&before, Nanoseconds::new(span))));
    }
}

/// The same counters, each increased by its own value, some of them decreased.
fn moved(before: &Reading) -> Reading {
    let mut after = before.clone();
    for (place, (value, _)) in after.counters.values_mut().enumerate() {
        *value = match place % 3 {
            0 => value.saturating_mul(1000),
            1 => value.saturating_add(*value / 2 + 1),
            _ => *value / 2,
        };
    }
    for interrupts in after.interrupts.values_mut() {
        for count in interrupts.cpus.values_mut() {
            *count = count.saturating_mul(7);
        }
    }
    after
}

#[cfg(test)]
mod tests;
