//! Devices below a made-up root: what may be written to, and what may not.

use std::fs;
use std::os::unix::fs::symlink;

use super::*;

/// Two disks: `sda` with two partitions, of which `dm-0` is made of the second and holds the root file system, and
/// `sdb` without any.
struct Made {
    folder: tempfile::TempDir,
}

impl Made {
    fn new() -> Self {
        let made = Self {
            folder: tempfile::tempdir().expect("a folder"),
        };
        made.device("pci0/sda", "8:0", None);
        made.device("pci0/sda/sda1", "8:1", Some("1"));
        made.device("pci0/sda/sda2", "8:2", Some("2"));
        made.device("pci0/sdb", "8:16", None);
        made.device("virtual/dm-0", "253:0", None);
        made.folder_at("sys/devices/virtual/dm-0/slaves/sda2");
        made.folder_at("sys/devices/pci0/sda/sda2/holders/dm-0");
        made.file("proc/swaps", "Filename Type\n");
        made.mount("253:0 / / rw - ext4 /dev/mapper/root rw");
        made
    }

    fn device(&self, place: &str, number: &str, partition: Option<&str>) {
        let folder = format!("sys/devices/{place}");
        let name = last_name(place);
        self.file(&format!("{folder}/size"), "131072\n");
        self.file(&format!("{folder}/ro"), "0\n");
        self.folder_at(&format!("{folder}/holders"));
        self.folder_at("sys/dev/block");
        self.folder_at(CLASS);
        if let Some(number) = partition {
            self.file(&format!("{folder}/partition"), number);
        } else {
            self.folder_at(&format!("{folder}/slaves"));
            self.file(&format!("{folder}/queue/logical_block_size"), "512\n");
            self.folder_at("sys/block");
            self.link(&format!("../devices/{place}"), &format!("sys/block/{name}"));
        }
        self.link(
            &format!("../../devices/{place}"),
            &format!("sys/dev/block/{number}"),
        );
        self.link(
            &format!("../../devices/{place}"),
            &format!("{CLASS}/{name}"),
        );
    }

    fn folder_at(&self, path: &str) {
        fs::create_dir_all(self.folder.path().join(path)).expect("a folder");
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs::write(path, text).expect("a file");
    }

    fn link(&self, target: &str, path: &str) {
        symlink(target, self.folder.path().join(path)).expect("a link");
    }

    /// Replaces the mounts.
    fn mount(&self, line: &str) {
        self.file("proc/self/mountinfo", &format!("20 1 {line}\n"));
    }

    fn root(&self) -> HostRoot {
        HostRoot::open(self.folder.path()).expect("a root")
    }

    fn found(&self, number: (u32, u32)) -> Device {
        describe(&self.root(), PathBuf::from("/dev/it"), number).expect("a device")
    }

    fn users(&self, number: (u32, u32)) -> Option<InUse> {
        users::first(&self.root(), &self.found(number))
    }
}

const CLASS: &str = "sys/class/block";
const SDA: (u32, u32) = (8, 0);
const SDA1: (u32, u32) = (8, 1);
const SDB: (u32, u32) = (8, 16);

#[test]
fn a_partition_is_on_its_disk_and_has_its_logical_block_size() {
    let made = Made::new();
    let device = made.found(SDA1);
    assert_eq!(
        (device.name.as_str(), device.disk.as_str()),
        ("sda1", "sda")
    );
    assert_eq!(device.size, Bytes::mib(64));
    assert_eq!(device.logical_block, Bytes::new(512));
}

#[test]
fn an_unused_disk_may_be_written_to() {
    assert_eq!(Made::new().users(SDB), None);
}

#[test]
fn the_disk_of_the_root_file_system_is_never_written_to_through_any_layer() {
    let made = Made::new();
    let of_root = Some(InUse::RootDisk("sda".to_owned()));
    assert_eq!(made.users(SDA), of_root);
    assert_eq!(made.users(SDA1), of_root);
    let whole = made.users((253, 0));
    assert!(matches!(whole, Some(InUse::RootDisk(_))), "{whole:?}");
}

#[test]
fn btrfs_is_found_by_its_source_and_a_root_that_is_not_found_forbids_all() {
    let made = Made::new();
    made.mount("0:30 / / rw - btrfs /dev/sdb rw");
    assert_eq!(made.users(SDB), Some(InUse::RootDisk("sdb".to_owned())));
    for unknown in [
        "0:31 / / rw - overlay overlay rw",
        "0:31 / / rw - zfs tank/root rw",
    ] {
        made.mount(unknown);
        let users = made.users(SDB);
        assert!(matches!(users, Some(InUse::RootUnknown(_))), "{users:?}");
    }
    made.mount("0:32 / / rw - nfs4 server:/root rw");
    assert_eq!(made.users(SDB), None);
}

#[test]
fn a_mount_swap_or_holder_of_a_partition_is_one_of_its_disk() {
    let made = Made::new();
    made.mount("0:32 / / rw - tmpfs tmpfs rw");
    let held = made.users(SDA);
    let expected = InUse::Held {
        name: "sda2".to_owned(),
        holder: "dm-0".to_owned(),
    };
    assert_eq!(held, Some(expected));
    made.file("proc/swaps", "Filename Type\n/dev/sda1 partition 8 0 -2\n");
    assert_eq!(made.users(SDA), Some(InUse::Swap("sda1".to_owned())));
    let mounts = "0:32 / / rw - tmpfs tmpfs rw\n21 20 8:1 / /data rw - xfs /dev/sda1 rw";
    made.mount(mounts);
    let mounted = made.users(SDA).expect("mounted").to_string();
    assert_eq!(mounted, "sda1 is mounted on /data");
    // The other disk has nothing to do with it.
    assert_eq!(made.users(SDB), None);
}

#[test]
fn a_read_only_or_zoned_disk_and_missing_facts_forbid_writes() {
    let made = Made::new();
    made.file("sys/devices/pci0/sdb/queue/zoned", "host-managed\n");
    assert_eq!(
        made.users(SDB),
        Some(InUse::Zoned("host-managed".to_owned()))
    );
    made.file("sys/devices/pci0/sdb/ro", "1\n");
    assert_eq!(made.users(SDB), Some(InUse::ReadOnly("sdb".to_owned())));
    fs::remove_file(made.folder.path().join("proc/self/mountinfo")).expect("a file");
    let users = made.users(SDB);
    assert!(matches!(users, Some(InUse::Unknown(_))), "{users:?}");
}

#[test]
fn a_device_without_polled_queues_names_the_parameter_that_makes_them() {
    let made = Made::new();
    let mut device = made.found(SDB);
    made.file("sys/devices/pci0/sdb/queue/io_poll", "0\n");
    let why = device.why_not_polled(&made.root()).expect("none");
    assert!(
        why.contains("io_poll is 0") && why.contains("no polled queues"),
        "{why}"
    );
    device.disk = "nvme0n1".to_owned();
    made.file("sys/block/nvme0n1/queue/io_poll", "0\n");
    made.file("sys/module/nvme/parameters/poll_queues", "0\n");
    let why = device.why_not_polled(&made.root()).expect("none");
    assert!(why.contains("poll_queues=N (now 0)"), "{why}");
    made.file("sys/devices/pci0/sdb/queue/io_poll", "1\n");
    device.disk = "sdb".to_owned();
    assert_eq!(device.why_not_polled(&made.root()), None);
}

#[test]
fn other_files_and_missing_ones_are_no_devices() {
    let made = Made::new();
    let root = made.root();
    let missing = find(&root, Path::new("no-such-device"));
    assert!(
        matches!(missing, Err(DeviceError::Missing(_))),
        "{missing:?}"
    );
    let folder = find(&root, made.folder.path())
        .expect_err("a folder")
        .to_string();
    assert!(
        folder.contains("it is a directory, not a block device"),
        "{folder}"
    );
}
