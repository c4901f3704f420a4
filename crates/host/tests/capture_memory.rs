//! Small untrusted files do not use much memory: captured hosts that expand from few bytes, opened and read while
//! every allocation of this process is counted.

mod sys {
    pub(crate) mod counting;
}

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use bzip2::Compression;
use bzip2::write::BzEncoder;
use linerate_host::capture::{CaptureError, Captured};
use linerate_model::host::Host;
use sys::counting::{alone, peak_of};
use tar::{Builder, EntryType, Header};

const MIB: usize = 1 << 20;
/// The memory limit for opening a captured host: its files, twice if one is assembled from pieces.
const OPEN_BYTES_MAX: usize = 512 * MIB;

/// A builder of a compressed tar file.
struct Packed(Builder<BzEncoder<Vec<u8>>>);

impl Packed {
    fn new() -> Self {
        Self(Builder::new(BzEncoder::new(
            Vec::new(),
            Compression::best(),
        )))
    }

    fn file(mut self, path: &str, text: &[u8]) -> Self {
        let mut header = Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(text.len() as u64);
        self.0
            .append_data(&mut header, path, text)
            .expect("appended");
        self
    }

    fn link(mut self, kind: EntryType, path: &str, target: &str) -> Self {
        let mut header = Header::new_gnu();
        header.set_mode(0o777);
        header.set_size(0);
        header.set_entry_type(kind);
        self.0
            .append_link(&mut header, path, target)
            .expect("appended");
        self
    }

    fn bytes(self) -> Vec<u8> {
        let packer = self.0.into_inner().expect("ended");
        packer.finish().expect("ended")
    }
}

/// The result of opening a captured host with these bytes, and the memory used.
fn opened(bytes: &[u8]) -> (Result<Captured, CaptureError>, usize) {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(bytes).expect("written");
    peak_of(|| Captured::open(file.path()))
}

/// The same for opening and reading it.
fn read(bytes: &[u8]) -> (Result<Host, CaptureError>, usize) {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(bytes).expect("written");
    peak_of(|| Captured::open(file.path()).and_then(|captured| captured.host()))
}

fn refusal<T>(result: Result<T, CaptureError>) -> String {
    match result {
        Ok(_) => panic!("it was read"),
        Err(error) => error.to_string(),
    }
}

/// An archive with one `file` or other entry.
fn archive(entry: &str) -> Vec<u8> {
    format!("linerate capture 1\nby linerate 0\npseudonyms no\n{entry}end x\n").into_bytes()
}

#[test]
fn a_hundred_hard_links_to_a_file_take_its_memory_once() {
    let _alone = alone();
    let text = vec![b'7'; 8 * MIB];
    let mut packed = Packed::new().file("sys/first", &text);
    for link in 0..100 {
        packed = packed.link(EntryType::Link, &format!("sys/{link}"), "sys/first");
    }
    let bytes = packed.bytes();
    drop(text);
    assert!(bytes.len() < 4096, "{}", bytes.len());
    let (captured, peak) = opened(&bytes);
    let captured = captured.expect("a host");
    let text = captured.root().read("sys/99");
    assert_eq!(text.value().map(String::len), Some(8 * MIB));
    assert!(peak < 64 * MIB, "{peak}");
}

#[test]
fn a_path_of_very_many_folders_is_refused_by_its_length_or_depth() {
    let _alone = alone();
    for (path, limit) in [
        (
            "sys/".to_owned() + &"a/".repeat(20_000) + "x",
            "the length of a path in bytes is over 4095",
        ),
        (
            "sys/".to_owned() + &"a/".repeat(200) + "x",
            "the depth of a path in folders is over 128",
        ),
    ] {
        let (refused, peak) = opened(&Packed::new().file(&path, b"").bytes());
        let said = refusal(refused);
        assert!(said.contains(limit) && said.contains("pack only"), "{said}");
        assert!(peak < 16 * MIB, "{peak}");
        let (refused, peak) = opened(&archive(&format!("absent /{path}\n")));
        let said = refusal(refused);
        assert!(said.contains(limit) && said.contains("line 4"), "{said}");
        assert!(peak < 16 * MIB, "{peak}");
    }
}

#[test]
fn a_name_that_fills_the_tar_file_is_refused_before_it_is_held() {
    let _alone = alone();
    let name = "a".repeat(4 * MIB);
    let packed = Packed::new().link(EntryType::Symlink, "sys/x", &name);
    let bytes = packed.bytes();
    drop(name);
    let (refused, peak) = opened(&bytes);
    let said = refusal(refused);
    assert!(
        said.contains("the headers of one file in bytes is over 262144"),
        "{said}"
    );
    assert!(peak < 16 * MIB, "{peak}");
}

#[test]
fn files_that_take_more_memory_than_a_host_has_are_refused_in_any_form() {
    let _alone = alone();
    let folders = "a/".repeat(100);
    let mut packed = Packed::new();
    for file in 0..8_000 {
        packed = packed.file(&format!("sys/{file}/{folders}x"), b"");
    }
    let (refused, peak) = opened(&packed.bytes());
    let said = refusal(refused);
    assert!(said.contains("is over"), "{said}");
    assert!(peak < OPEN_BYTES_MAX, "{peak}");

    let names = 4 << 20;
    let mut entry = format!("folder 755 {names} /sys\n");
    for name in 0..names {
        let _ = writeln!(entry, "{name:x}");
    }
    let bytes = archive(&entry);
    drop(entry);
    let (refused, peak) = opened(&bytes);
    let said = refusal(refused);
    assert!(
        said.contains("the memory for its files in bytes is over"),
        "{said}"
    );
    assert!(peak < OPEN_BYTES_MAX, "{peak}");
}

#[test]
fn answers_that_are_all_brackets_are_refused_by_their_length() {
    let _alone = alone();
    let line = "[[],".repeat(1000) + "\n";
    let entry = format!("nic 4000 eth0\n{}", line.repeat(4000));
    let (refused, peak) = opened(&archive(&entry));
    let said = refusal(refused);
    assert!(
        said.contains("the JSON of one interface or device in bytes is over"),
        "{said}"
    );
    assert!(peak < 64 * MIB, "{peak}");
}

#[test]
fn links_that_make_a_host_of_a_million_queues_are_refused() {
    let _alone = alone();
    let mut packed = Packed::new();
    for queue in 0..1000 {
        packed = packed.file(&format!("sys/d/queues/rx-{queue}/rps_cpus"), b"0\n");
    }
    for nic in 0..1000 {
        packed = packed.link(
            EntryType::Symlink,
            &format!("sys/class/net/e{nic}"),
            "../../d",
        );
    }
    let (refused, peak) = read(&packed.bytes());
    let said = refusal(refused);
    assert!(
        said.contains("the memory for what is read of it in bytes is over"),
        "{said}"
    );
    assert!(peak < OPEN_BYTES_MAX, "{peak}");
}

#[test]
fn more_interfaces_than_a_host_has_are_refused() {
    let _alone = alone();
    let mut packed = Packed::new().file("sys/d/mtu", b"1500\n");
    for nic in 0..17_000 {
        packed = packed.link(
            EntryType::Symlink,
            &format!("sys/class/net/e{nic}"),
            "../../d",
        );
    }
    let (refused, peak) = read(&packed.bytes());
    let said = refusal(refused);
    assert!(
        said.contains("the number of files in one folder is over 16384"),
        "{said}"
    );
    assert!(peak < OPEN_BYTES_MAX, "{peak}");
}

#[test]
fn a_fixture_takes_less_memory_than_its_estimate_allows() {
    let _alone = alone();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts/vm-router.lrcap");
    let (host, peak) = peak_of(|| Captured::open(&path).and_then(|captured| captured.host()));
    assert!(host.is_ok_and(|host| !host.nics.is_empty()));
    assert!(peak < 16 * MIB, "{peak}");
}
