//! Packages and the installer, made from the program under test: `packaging/`. `make dist-test` tests those of a release.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::LINERATE;
use crate::lab::text;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A target of this machine.
fn target() -> String {
    format!("{}-unknown-linux-gnu", std::env::consts::ARCH)
}

fn package(words: &[&str]) -> Output {
    let mut command = Command::new(root().join("packaging/package.sh"));
    command
        .args(words)
        .env("GENERATOR", LINERATE)
        .env("SOURCE_DATE_EPOCH", "1700000000")
        .env("DEB_COMPRESSION", "none");
    command.output().expect("a shell")
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let out = shown(&output.stdout);
    assert!(output.status.success(), "{out}{}", shown(&output.stderr));
    out
}

fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("SKIP: {program} is not installed");
    }
    found
}

/// A program that only knows its version, so that an archive of it is small.
fn small_program(folder: &Path) -> PathBuf {
    let program = folder.join("small");
    crate::job::script(&program, "echo linerate 9");
    program
}

#[test]
fn a_debian_package_has_the_program_its_pages_completions_and_units_and_starts_nothing() {
    if !has("dpkg-deb") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = small_program(folder.path());
    let out = text(folder.path());
    for again in [false, true] {
        succeeded(&package(&["deb", text(&program), &target(), out]));
        let made = fs::read_dir(out).expect("a folder").flatten();
        let mut made = made.map(|entry| entry.path());
        let made = made.find(|path| path.extension().is_some_and(|end| end == "deb"));
        let made = made.expect("a package");
        if !again {
            fs::rename(&made, folder.path().join("first")).expect("ours");
            continue;
        }
        let first = fs::read(folder.path().join("first")).expect("it is there");
        assert!(
            first == fs::read(&made).expect("it is there"),
            "it is not reproducible"
        );
        let list = Command::new("dpkg-deb")
            .arg("-c")
            .arg(&made)
            .output()
            .expect("it starts");
        let list = succeeded(&list);
        let ends = |end: &str| list.lines().find(|line| line.ends_with(end));
        for file in [
            "./usr/bin/linerate",
            "./usr/share/man/man1/linerate.1.gz",
            "./usr/share/man/man1/linerate-measure-stream.1.gz",
            "./usr/share/bash-completion/completions/linerate",
            "./usr/share/zsh/vendor-completions/_linerate",
            "./usr/share/fish/vendor_completions.d/linerate.fish",
            "./usr/lib/systemd/system/linerate-doctor.timer",
            "./usr/lib/systemd/system/linerate-agent.service",
            "./usr/lib/systemd/system/linerate-agent.socket",
            "./usr/lib/sysusers.d/linerate-agent.conf",
            "./usr/share/doc/linerate/copyright",
            "./usr/share/doc/linerate/docs/book/start.md",
        ] {
            assert!(ends(file).is_some(), "no {file}:\n{list}");
        }
        assert!(
            list.lines().all(|line| line.contains(" root/root ")),
            "{list}"
        );
        assert!(ends("./usr/bin/linerate").is_some_and(|line| line.starts_with("-rwxr-xr-x")));
        // Nothing that systemd starts, nothing below /etc.
        assert!(
            !list.contains(".wants/") && !list.contains(" ./etc"),
            "{list}"
        );
        let script = Command::new("dpkg-deb")
            .arg("-I")
            .arg(&made)
            .arg("postinst")
            .output();
        let script = succeeded(&script.expect("it starts"));
        assert!(!script.contains("systemctl"), "{script}");
    }
}

#[test]
fn an_rpm_has_the_same_files_and_no_dependency_but_glibc() {
    if !has("rpmbuild") || !has("rpm") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = small_program(folder.path());
    let architecture = std::env::consts::ARCH;
    succeeded(&package(&[
        "rpm",
        text(&program),
        &target(),
        text(folder.path()),
    ]));
    let made = fs::read_dir(folder.path()).expect("a folder").flatten();
    let mut made = made.map(|entry| entry.path());
    let made = made.find(|path| text(path).ends_with(&format!(".{architecture}.rpm")));
    let made = made.expect("a package");
    let asked = |what: &[&str]| {
        let home = folder.path().join("home");
        let mut rpm = Command::new("rpm");
        rpm.arg("--dbpath").arg(home).args(["-qp", "--nosignature"]);
        succeeded(&rpm.args(what).arg(&made).output().expect("it starts"))
    };
    let list = asked(&["--list"]);
    for file in [
        "/usr/bin/linerate",
        "/usr/share/man/man1/linerate-prove.1.gz",
        "/usr/share/licenses/linerate/LICENSE-MIT",
    ] {
        assert!(list.lines().any(|line| line == file), "no {file}:\n{list}");
    }
    let requires = asked(&["--requires"]);
    let named = requires
        .lines()
        .filter(|line| !line.starts_with("rpmlib(") && *line != "/bin/sh");
    assert_eq!(named.collect::<Vec<_>>(), ["glibc >= 2.28"], "{requires}");
}

#[test]
fn the_units_are_ones_that_systemd_takes() {
    if !has("systemd-analyze") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let units = [
        "linerate-doctor.service",
        "linerate-doctor.timer",
        "linerate-agent.service",
        "linerate-agent.socket",
    ];
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no"]);
    for unit in units {
        let source = fs::read_to_string(root().join("packaging").join(unit)).expect("it is there");
        let here = source.replace("/usr/bin/linerate", LINERATE);
        let file = folder.path().join(unit);
        fs::write(&file, here).expect("room");
        verify.arg(file);
    }
    let output = verify.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    // It looks at the units of this machine too.
    let ours: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("linerate-"))
        .collect();
    assert!(ours.is_empty(), "{said}");
}

#[test]
fn a_program_that_needs_a_newer_glibc_is_refused() {
    if !has("objdump") {
        return;
    }
    let check = |program: &str, version: &str| {
        let mut command = Command::new(root().join("packaging/check-glibc.sh"));
        command.args([program, version]).output().expect("a shell")
    };
    assert!(check(LINERATE, "99.9").status.success());
    let refused = check(LINERATE, "2.3");
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("newer than 2.3:") && said.lines().count() > 1,
        "{said}"
    );
    assert!(!check("/nonexistent", "99.9").status.success());
}

/// A release in a folder: an archive, its sum and the installer.
fn release(folder: &Path) -> PathBuf {
    let release = folder.join("release");
    fs::create_dir(&release).expect("room");
    succeeded(&package(&[
        "tar",
        text(&small_program(folder)),
        &target(),
        text(&release),
    ]));
    let script = fs::read_to_string(root().join("packaging/install.sh")).expect("it is there");
    let script = script.replace("@VERSION@", env!("CARGO_PKG_VERSION"));
    fs::write(release.join("install.sh"), script).expect("room");
    let sums = Command::new("sh")
        .args(["-c", "sha256sum *.tar.gz >SHA256SUMS"])
        .current_dir(&release)
        .status();
    assert!(sums.expect("a shell").success());
    release
}

fn archive(release: &Path) -> PathBuf {
    release.join(format!(
        "linerate-{}-{}.tar.gz",
        env!("CARGO_PKG_VERSION"),
        target()
    ))
}

fn install(release: &Path, from: &str, prefix: &Path) -> Output {
    let mut command = Command::new("sh");
    command
        .arg(release.join("install.sh"))
        .args([from, text(prefix)])
        .env("LINERATE_TARGET", "linux-gnu")
        .env("no_proxy", "127.0.0.1");
    command.output().expect("a shell")
}

/// Serves the files of a folder to whoever asks, until the test ends.
fn serve(folder: PathBuf) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(&stream);
            let mut request = String::new();
            let mut line = String::new();
            while reader.read_line(&mut line).is_ok_and(|count| count > 2) {
                if request.is_empty() {
                    request.clone_from(&line);
                }
                line.clear();
            }
            let path = request
                .split(' ')
                .nth(1)
                .unwrap_or_default()
                .trim_start_matches('/');
            let mut stream = &stream;
            // A client that has gone away ends its own request only.
            let _: std::io::Result<()> = match fs::read(folder.join(path)) {
                Ok(bytes) => write!(
                    stream,
                    "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n",
                    bytes.len()
                )
                .and_then(|()| stream.write_all(&bytes)),
                Err(_) => write!(
                    stream,
                    "HTTP/1.0 404 Not Found\r\nContent-Length: 0\r\n\r\n"
                ),
            };
        }
    });
    address
}

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let entries = entries.map(|entry| entry.path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                files(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

#[test]
fn the_installer_takes_a_folder_or_an_address_and_uninstalls_what_it_installed() {
    if !has("curl") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let release = release(folder.path());
    let address = format!("http://{}", serve(release.clone()));
    let prefix = folder.path().join("prefix");
    for from in [text(&release), &address] {
        let out = succeeded(&install(&release, from, &prefix));
        assert!(out.contains("installed linerate 9 in"), "{out}");
        let installed = files(&prefix);
        for end in [
            "bin/linerate",
            "man/man1/linerate-runs.1",
            "completions/linerate",
            "_linerate",
        ] {
            assert!(
                installed.iter().any(|file| file.ends_with(end)),
                "{end}: {installed:?}"
            );
        }
        let mut uninstall = Command::new("sh");
        uninstall
            .arg(release.join("install.sh"))
            .args(["--uninstall", text(&prefix)]);
        succeeded(&uninstall.output().expect("a shell"));
        assert_eq!(files(&prefix), Vec::<PathBuf>::new());
    }
}

#[test]
fn the_installer_changes_nothing_when_the_sum_is_wrong_or_a_file_is_missing() {
    let folder = tempfile::tempdir().expect("a folder");
    let release = release(folder.path());
    let prefix = folder.path().join("prefix");
    let refused = |why: &str| {
        let output = install(&release, text(&release), &prefix);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.contains("error: "),
            "{said}"
        );
        assert!(said.contains(why), "{said}");
        assert_eq!(files(&prefix), Vec::<PathBuf>::new());
    };
    let archive = archive(&release);
    let whole = fs::read(&archive).expect("it is there");
    let mut file = File::options().append(true).open(&archive).expect("ours");
    file.write_all(b"x").expect("room");
    refused("is damaged or was replaced");
    fs::write(&archive, whole).expect("room");
    let sums = release.join("SHA256SUMS");
    let right = fs::read_to_string(&sums).expect("it is there");
    fs::write(&sums, right.replace("unknown-linux-gnu", "other")).expect("room");
    refused("SHA256SUMS has no line for");
    fs::remove_file(&sums).expect("ours");
    refused("cannot get SHA256SUMS");
    fs::write(&sums, right).expect("room");
    fs::remove_file(&archive).expect("ours");
    refused("cannot get linerate-");
}

#[test]
fn the_installer_names_a_folder_that_it_cannot_write_to() {
    let folder = tempfile::tempdir().expect("a folder");
    let release = release(folder.path());
    let prefix = folder.path().join("file");
    fs::write(&prefix, "").expect("room");
    let output = install(&release, text(&release), &prefix);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    assert!(
        said.contains("error: cannot write to") && said.contains("hint: "),
        "{said}"
    );
}

#[test]
fn the_unit_of_the_agent_is_hardened() {
    if !has("systemd-analyze") {
        return;
    }
    let unit = root().join("packaging/linerate-agent.service");
    let mut analyze = Command::new("systemd-analyze");
    analyze.args(["security", "--no-pager", "--offline=true", "--threshold=20"]);
    let done = analyze.arg(&unit).output().expect("it starts");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (said(&done.stdout), said(&done.stderr));
    if err.contains("unrecognized option") {
        eprintln!("SKIP: this systemd-analyze judges running units only");
        return;
    }
    assert!(done.status.success(), "{out}{err}");
}
