//! Two network namespaces of a test, joined by a veth pair, and the tools whose output is compared with linerate's.
//!
//! Needs the privilege to create a network namespace: as root, or else in a user namespace by running the test binary
//! again under `unshare(1)`.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use linerate_host::netlink::Netlink;
use linerate_model::ids::NicName;
use serde_json::Value;

/// Set when the test binary runs again inside a user namespace.
const INSIDE: &str = "LINERATE_TEST_IN_USER_NAMESPACE";

/// The local end of a veth pair (`near0`), in the namespace of this thread; `far0` is in another.
pub(crate) struct Lab {
    pub(crate) netlink: Netlink,
    pub(crate) nic: NicName,
    pub(crate) far: File,
}

pub(crate) fn name(text: &str) -> NicName {
    text.parse().expect("a valid name")
}

/// Prints that something was not tested, bypassing the capture of a passing test's output.
pub(crate) fn skip(reason: &str) {
    writeln!(std::io::stderr(), "SKIP: {reason}").expect("stderr is open");
}

/// Runs `test` in a lab, in a new thread, since a namespace belongs to a thread.
pub(crate) fn in_lab<Test: FnOnce(&Lab) + Send>(test: Test) {
    let made = std::thread::scope(|scope| {
        let thread = scope.spawn(|| match Lab::new() {
            Ok(lab) => {
                test(&lab);
                Ok(())
            }
            Err(error) => Err(error),
        });
        thread.join()
    });
    match made {
        Ok(Ok(())) => {}
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            in_user_namespace(&name_of_test::<Test>());
        }
        Ok(Err(error)) => panic!("cannot make the lab: {error}"),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn in_user_namespace(test_name: &str) {
    if std::env::var_os(INSIDE).is_some() {
        return skip("a user namespace may not make network namespaces here");
    }
    let unshare = ["--user", "--map-root-user", "--net"];
    let possible = Command::new("unshare")
        .args(unshare)
        .arg("true")
        .stderr(Stdio::null())
        .status();
    if !possible.is_ok_and(|status| status.success()) {
        return skip("needs root, or unshare(1) and user namespaces");
    }
    let output = Command::new("unshare")
        .args(unshare)
        .arg(std::env::current_exe().expect("a running test has a file"))
        .args(["--exact", test_name, "--nocapture"])
        .env(INSIDE, "1")
        .stderr(Stdio::inherit())
        .output()
        .expect("it could be run before");
    let text = String::from_utf8_lossy(&output.stdout);
    // A name that matches no test would pass too.
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}"
    );
}

/// The test's name in the test harness, from the type of the closure in it: `netlink::qdisc::a_test::{{closure}}`.
fn name_of_test<Test>() -> String {
    let path = std::any::type_name::<Test>();
    let path = path.strip_suffix("::{{closure}}").unwrap_or(path);
    let (_crate, name) = path.split_once("::").unwrap_or(("", path));
    name.to_owned()
}

impl Lab {
    fn new() -> std::io::Result<Self> {
        let netns = || File::open("/proc/thread-self/ns/net");
        sys::new_network_namespace()?;
        let far = netns()?;
        sys::new_network_namespace()?;
        let lab = Self {
            netlink: Netlink::open()?,
            nic: name("near0"),
            far,
        };
        lab.netlink
            .create_veth(&lab.nic, &name("far0"), Some(lab.far.as_fd()))?;
        lab.netlink.set_up(&lab.nic)?;
        Ok(lab)
    }
}

/// A tool's output, in this thread's namespace; `None`, with a skip, if it is not installed.
pub(crate) fn tool(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    let program = words.next().expect("a command line has a first word");
    let Ok(output) = Command::new(program).args(words).output() else {
        skip(&format!("`{program}` is not installed"));
        return None;
    };
    assert!(
        output.status.success(),
        "`{line}`: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(String::from_utf8(output.stdout).expect("tools print text"))
}

/// A tool's output as JSON.
pub(crate) fn json(line: &str) -> Option<Value> {
    let text = tool(line)?;
    Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("`{line}`: {error}: {text}")))
}

mod sys {
    //! Moving this thread to a new namespace.
    #![allow(unsafe_code, reason = "unshare(2) has no safe form")]

    use rustix::thread::{UnshareFlags, unshare_unsafe};

    pub(super) fn new_network_namespace() -> std::io::Result<()> {
        // SAFETY: a network namespace is shared with no memory and no open file; only sockets that
        // this thread opens later see it, and the thread ends with the test.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
        Ok(())
    }
}
