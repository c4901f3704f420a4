//! Errors on a host that lacks the library, a function of it, a device, or the right to use one. A library is
//! loaded once per process, so each of these is a separate process: this program again, with one test.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "what a child says to its test, and a skip"
)]

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use linerate_verbs::{Calling, Device, Listener, Patience, VerbsError, device_names};
use linerate_verbs_fake::library;

/// Set in a child only: what it tries.
const TRIES: &str = "LINERATE_TEST_TRIES";
const LIBIBVERBS: &str = "LINERATE_LIBIBVERBS";
const LIBRDMACM: &str = "LINERATE_LIBRDMACM";
const FAKE: &str = "LINERATE_VERBS_FAKE";

/// How an attempt ended, in a line.
fn word<T: std::fmt::Debug>(result: Result<T, VerbsError>) -> String {
    match result {
        Ok(had) => format!("had {had:?}"),
        Err(error) if error.is_permission() => format!("permission: {error}"),
        Err(error) => error.to_string(),
    }
}

/// In a child: tries it, and prints how that ended.
#[test]
fn child() {
    let Some(tries) = std::env::var_os(TRIES) else {
        return;
    };
    let here: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let said = match tries.to_str() {
        Some("names") => word(device_names()),
        Some("open") => word(Device::open("fake0")),
        Some("memory") => word(Device::open("fake0").and_then(|device| {
            let domain = linerate_verbs::ProtectionDomain::new(&device)?;
            let buffer = linerate_verbs_fake::Buffer::new(4096);
            linerate_verbs::Region::new(&domain, buffer, linerate_verbs::Access::default())
                .map(|region| region.length())
        })),
        Some("listen") => word(Listener::new(here)),
        Some("call") => {
            let stop = std::os::unix::net::UnixStream::pair().expect("sockets").0;
            let patience = Patience {
                until: Instant::now() + Duration::from_secs(60),
                stop: std::os::fd::AsFd::as_fd(&stop),
            };
            word(Calling::new(here, here, 0, patience))
        }
        other => panic!("{other:?} is none of its attempts"),
    };
    // The second call returns the same: the result is cached.
    if tries == "names" {
        assert_eq!(said, word(device_names()));
    }
    println!("SAID {said}");
}

/// The output of a child with these variables.
fn said(tries: &str, variables: &[(&str, &OsStr)]) -> String {
    let program = std::env::current_exe().expect("a running program has a file");
    let mut child = Command::new(program);
    child.args(["--exact", "child", "--nocapture"]);
    for variable in [LIBIBVERBS, LIBRDMACM, FAKE] {
        child.env_remove(variable);
    }
    child
        .env(TRIES, tries)
        .envs(variables.iter().map(|(name, value)| (name, value)));
    let output = child.output().expect("this program runs again");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let line = text.lines().find_map(|line| line.split_once("SAID "));
    let (_, said) = line.unwrap_or_else(|| panic!("it said nothing: {text}{errors}"));
    assert!(output.status.success(), "{errors}");
    said.to_owned()
}

/// The output of a child over the fake with these words.
fn over_fake(tries: &str, words: &str) -> String {
    let library = library();
    let variables = [(LIBIBVERBS, library.as_os_str()), (FAKE, words.as_ref())];
    said(tries, &variables)
}

#[test]
fn a_library_that_is_not_there_is_said_with_what_to_install() {
    let none = OsStr::new("/nonexistent/libibverbs.so.1");
    for (tries, variable, library) in [
        ("names", LIBIBVERBS, "libibverbs.so.1"),
        ("open", LIBIBVERBS, "libibverbs.so.1"),
        ("listen", LIBRDMACM, "librdmacm.so.1"),
        ("call", LIBRDMACM, "librdmacm.so.1"),
    ] {
        let said = said(tries, &[(variable, none)]);
        let begin = format!("the library {library} cannot be loaded (");
        assert!(said.starts_with(&begin), "{said}");
        assert!(said.contains("No such file or directory"), "{said}");
        assert!(said.contains("install rdma-core"), "{said}");
    }
}

#[test]
fn a_file_that_is_no_library_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("text.so");
    std::fs::write(&file, "not a library\n").expect("a file");
    let said = said("names", &[(LIBIBVERBS, file.as_os_str())]);
    assert!(said.contains("cannot be loaded ("), "{said}");
    assert!(said.contains("text.so"), "{said}");
}

/// A library without functions; `None` where none can be made.
fn empty_library(folder: &tempfile::TempDir) -> Option<PathBuf> {
    let (source, file) = (folder.path().join("none.c"), folder.path().join("none.so"));
    std::fs::write(&source, "int nothing;\n").expect("a file");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&file);
    match compiler.arg(&source).output() {
        Ok(built) if built.status.success() => Some(file),
        Ok(built) => panic!("{}", String::from_utf8_lossy(&built.stderr)),
        Err(error) => {
            eprintln!("SKIP: no C compiler: {error}");
            None
        }
    }
}

#[test]
fn a_library_that_is_too_old_is_said_with_the_function_that_it_lacks() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(file) = empty_library(&folder) else {
        return;
    };
    for (tries, variable, begin) in [
        (
            "names",
            LIBIBVERBS,
            "the library libibverbs.so.1 has no function ibv_",
        ),
        (
            "listen",
            LIBRDMACM,
            "the library librdmacm.so.1 has no function rdma_",
        ),
    ] {
        let said = said(tries, &[(variable, file.as_os_str())]);
        assert!(said.starts_with(begin), "{said}");
        assert!(said.ends_with("rdma-core 32 or newer is needed"), "{said}");
    }
}

/// Whether the kernel has devices.
fn has_devices() -> bool {
    let devices = std::fs::read_dir("/sys/class/infiniband");
    devices.is_ok_and(|mut all| all.next().is_some())
}

#[test]
fn a_host_without_a_device_is_told_how_to_get_one() {
    for words in ["devices=0", "no-kernel"] {
        for tries in ["names", "open"] {
            let said = over_fake(tries, words);
            if has_devices() {
                // The kernel's own, which this library does not show.
                let says = ["`modprobe ib_uverbs`", "ibverbs-providers"];
                let told = says.iter().any(|one| said.contains(one));
                assert!(told, "{words}: {said}");
                continue;
            }
            let begin = "this host has no RDMA device";
            assert!(said.starts_with(begin), "{words}: {said}");
            assert!(said.contains("`linerate testbed rxe`"), "{said}");
        }
    }
}

#[test]
fn the_environment_says_what_devices_there_are_and_what_is_wrong_with_them() {
    assert_eq!(over_fake("names", ""), r#"had ["fake0"]"#);
    assert_eq!(over_fake("names", "devices=2"), r#"had ["fake0", "fake1"]"#);
    assert_eq!(over_fake("open", "delay-us=5"), r#"had Device("fake0")"#);
    let denied = over_fake("open", "open-denied");
    assert!(
        denied.starts_with("permission: cannot open the device on fake0: "),
        "{denied}"
    );
    assert_eq!(over_fake("memory", "memlock=4096"), "had 4096");
    let limited = over_fake("memory", "memlock=4095");
    assert!(
        limited.starts_with("cannot register memory on fake0: "),
        "{limited}"
    );
    assert!(limited.contains("`ulimit -l`"), "{limited}");
}
