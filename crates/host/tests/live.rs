//! This machine: reading it, capturing it, reading the capture; and malicious hosts.

#![expect(
    clippy::disallowed_methods,
    reason = "a test starts programs and reads its own environment"
)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use common::{FakeNics, nic, skip};
use linerate_host::capture::{Archive, CaptureError, CaptureOptions, Captured, NicAnswers, record};
use linerate_host::counters::{CpuCounters, NicCounters, read_softnet};
use linerate_host::read::read_host;
use linerate_host::root::{HostRoot, LiveHost};
use linerate_model::build::assert_same;
use linerate_model::host::{Host, NicKind};
use linerate_model::known::{Cause, Known};

fn options(pseudonyms: bool) -> CaptureOptions {
    CaptureOptions {
        version: "0.1.0".to_owned(),
        pseudonyms,
    }
}

fn some_nics() -> FakeNics {
    let lo = nic("lo");
    let mut answers = NicAnswers::not_asked(&lo);
    answers.addresses = Known::Value(vec!["127.0.0.1/8".to_owned(), "10.20.30.40/24".to_owned()]);
    FakeNics(BTreeMap::from([(lo, answers)]))
}

fn replayed(archive: &Archive) -> Host {
    let text = archive.to_text();
    let captured = Archive::parse(text.as_bytes())
        .expect("an archive")
        .into_captured();
    read_host(captured.root(), &captured)
}

#[test]
fn this_machine_is_read() {
    let live = LiveHost::open().expect("the root folder");
    let host = read_host(live.root(), &FakeNics::default());
    assert!(!host.online_cpus().is_empty(), "{:?}", host.gaps);
    let architecture = host.identity.architecture.value().map(String::as_str);
    assert_eq!(architecture, Some(std::env::consts::ARCH));
    let lo = host.nic(&nic("lo"));
    match lo {
        Some(lo) => assert_eq!((lo.kind, lo.index.get()), (NicKind::Loopback, Some(1))),
        None => skip("no loopback is visible below /sys/class/net"),
    }
}

#[test]
fn a_capture_of_this_machine_reads_as_the_machine_did() {
    let live = LiveHost::open().expect("the root folder");
    let (host, archive) = record(live.root(), &some_nics(), &options(false));
    assert_eq!(replayed(&archive), host);
}

#[test]
fn pseudonyms_change_names_and_nothing_else() {
    let live = LiveHost::open().expect("the root folder");
    let (mut host, archive) = record(live.root(), &some_nics(), &options(true));
    let mut read = replayed(&archive);
    let text = archive.to_text();
    for secret in [&host.identity.boot_id, &host.identity.hostname] {
        if let Known::Value(secret) = secret {
            assert!(!text.lines().any(|line| line == secret), "{secret}");
        }
    }
    assert!(!text.contains("10.20.30.40") && text.contains("127.0.0.1"));
    read.identity = host.identity.clone();
    for nic in read.nics.iter_mut().chain(&mut host.nics) {
        nic.addresses = Known::not_asked("replaced");
        if let Some(bond) = &mut nic.stack.bond {
            bond.partner_mac = Known::not_asked("replaced");
        }
    }
    for device in read.rdma.iter_mut().chain(&mut host.rdma) {
        for port in &mut device.ports {
            port.gids = Known::not_asked("replaced");
        }
    }
    // Names chosen by users of this machine are replaced.
    for software in [&mut read.software, &mut host.software] {
        if let Known::Value(lines) = &mut software.sysctl_lines {
            for line in lines {
                line.file.clear();
            }
        }
        if let Known::Value(owners) = &mut software.owners {
            for owner in owners {
                owner.detail = None;
            }
        }
    }
    assert_same("this machine, replayed", &read, &host);
}

#[test]
fn an_archive_on_disk_that_was_cut_short_says_so() {
    let live = LiveHost::open().expect("the root folder");
    let (_, archive) = record(live.root(), &some_nics(), &options(true));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("host.lrcap");
    let text = archive.to_text();
    fs::write(&path, &text).expect("a file");
    assert!(Captured::open(&path).is_ok());
    fs::write(&path, &text[..text.len() / 2]).expect("a file");
    let error = Captured::open(&path).expect_err("half an archive");
    assert!(matches!(error, CaptureError::CutShort { .. }), "{error}");
    fs::write(&path, "hello").expect("a file");
    assert!(matches!(
        Captured::open(&path),
        Err(CaptureError::NotACapture { .. })
    ));
    assert!(matches!(
        Captured::open(folder.path()),
        Err(CaptureError::NoRoot { .. })
    ));
}

#[test]
fn counters_of_this_machine_go_forward() {
    let live = LiveHost::open().expect("the root folder");
    let (Known::Value(then), Known::Value(now)) = (
        CpuCounters::read(live.root()),
        CpuCounters::read(live.root()),
    ) else {
        skip("no /proc/stat");
        return;
    };
    assert!(!now.since(&then).is_empty());
    assert!(read_softnet(live.root()).value().is_some());
    if let Known::Value(lo) = NicCounters::read(live.root(), &nic("lo")) {
        assert!(lo.get("rx_bytes").value().is_some());
        assert_eq!(lo.since(&lo)["rx_bytes"], Known::Value(0));
    }
}

#[test]
fn hostile_files_leave_gaps() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |path: &str| folder.path().join(path);
    for path in [
        "sys/class/net/eth0",
        "sys/devices/system/cpu/cpu0/topology",
        "proc/sys/kernel",
    ] {
        fs::create_dir_all(at(path)).expect("a folder");
    }
    fs::write(at("sys/class/net/eth0/mtu"), [0xff, 0xfe]).expect("binary");
    fs::write(at("sys/class/net/eth0/speed"), "9".repeat(100_000)).expect("a huge number");
    fs::write(at("sys/class/net/eth0/ifindex"), "").expect("empty");
    symlink("device", at("sys/class/net/eth0/device")).expect("a circle");
    symlink("../b", at("sys/class/net/a")).expect("a link");
    symlink("class/a", at("sys/b")).expect("a link");
    symlink("/etc/passwd", at("proc/sys/kernel/hostname")).expect("a way out");
    let pipe = at("proc/cpuinfo");
    let made = rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from(0o644));
    assert!(made.is_ok(), "a pipe that nobody writes to");
    let huge = fs::File::create(at("proc/cmdline")).expect("a file");
    huge.set_len(65 << 20).expect("a sparse file");
    fs::write(at("sys/devices/system/cpu/online"), "0-4294967295").expect("every CPU");

    let root = HostRoot::open(folder.path()).expect("a folder");
    let host = read_host(&root, &FakeNics::default());
    let cause = |gap: Option<&linerate_model::known::Gap>| gap.map(|gap| gap.cause);
    let eth0 = host.nic(&nic("eth0")).expect("an interface");
    assert_eq!(cause(eth0.mtu.gap()), Some(Cause::Unreadable));
    assert_eq!(cause(eth0.link_bit_per_s.gap()), Some(Cause::Unreadable));
    assert_eq!(cause(eth0.index.gap()), Some(Cause::Unreadable));
    assert_eq!(
        cause(host.identity.hostname.gap()),
        Some(Cause::Absent),
        "the way out is closed"
    );
    assert_eq!(
        cause(host.identity.command_line.gap()),
        Some(Cause::Unreadable)
    );
    assert_eq!(cause(host.cpus[0].online.gap()), Some(Cause::Unreadable));
    let (again, archive) = record(&root, &FakeNics::default(), &options(false));
    assert_same("read while recorded", &again, &host);
    assert_same("replayed", &replayed(&archive), &host);
}

#[test]
fn what_may_not_be_read_is_denied_in_the_capture_too() {
    if rustix::process::geteuid().is_root() {
        skip("root may read everything");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let at = |path: &str| folder.path().join(path);
    fs::create_dir_all(at("sys")).expect("a folder");
    fs::create_dir_all(at("proc")).expect("a folder");
    fs::write(at("proc/cmdline"), "secret").expect("a file");
    fs::set_permissions(at("proc/cmdline"), fs::Permissions::from_mode(0o000)).expect("its mode");
    let root = HostRoot::open(folder.path()).expect("a folder");
    let (host, archive) = record(&root, &FakeNics::default(), &options(false));
    let cause = host.identity.command_line.gap().map(|gap| gap.cause);
    assert_eq!(cause, Some(Cause::Denied));
    assert_eq!(replayed(&archive), host);
}
