//! The kept set and the files around it: a crash after every step.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, symlink};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use linerate_model::plan::Change;
use linerate_model::setting::Value;

use crate::apply::kept::turn;
use crate::apply::{
    BootFiles, Faults, JournalOptions, KeptError, Moment, PersistentSet, device_of, forget, keep,
    kept_set, tidy,
};
use crate::root::HostRoot;

/// A machine's directories.
struct Folders {
    all: tempfile::TempDir,
}

impl Folders {
    fn new() -> Self {
        let all = tempfile::tempdir().expect("a folder");
        for folder in ["state", "etc/systemd/system"] {
            fs::create_dir_all(all.path().join(folder)).expect("a folder");
        }
        Self { all }
    }

    fn state(&self) -> PathBuf {
        self.all.path().join("state")
    }

    fn etc(&self) -> PathBuf {
        self.all.path().join("etc")
    }

    fn keep(&self, id: &str, beside: &JournalOptions) -> Result<(), KeptError> {
        let program = Path::new("/usr/bin/it's 100% linerate");
        let files = BootFiles {
            etc: &self.etc(),
            program,
        };
        keep(&self.state(), files, kept(id), beside)
    }

    /// Every file with its mode and content.
    fn dump(&self) -> BTreeMap<PathBuf, String> {
        let mut dump = BTreeMap::new();
        let mut folders = vec![self.all.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                let data = fs::symlink_metadata(&path).expect("it is there");
                let what = if data.is_dir() {
                    folders.push(path.clone());
                    String::new()
                } else if data.is_symlink() {
                    format!("-> {}", fs::read_link(&path).expect("a link").display())
                } else {
                    fs::read_to_string(&path).expect("a text")
                };
                dump.insert(path, format!("{:o} {what}", data.mode()));
            }
        }
        dump
    }

    fn kept(&self) -> Vec<String> {
        let set = kept_set(&self.state()).expect("a readable set");
        let kept = set.map_or_else(Vec::new, |(set, _)| set.kept);
        kept.into_iter().map(|kept| kept.id).collect()
    }
}

fn kept(id: &str) -> PersistentSet {
    PersistentSet {
        id: id.to_owned(),
        changes: vec![Change {
            setting: "nic/eth2/ring/rx".parse().expect("a key"),
            from: Value::Integer(256),
            to: Value::Integer(512),
        }],
        devices: BTreeMap::from([(
            "eth2".parse().expect("a name"),
            "0000:3b:00.0 port 0".to_owned(),
        )]),
        up: vec!["eth2".parse().expect("a name")],
        probes: Vec::new(),
        deadline_s: 60,
    }
}

#[test]
fn what_is_kept_and_forgotten_again_leaves_no_trace() {
    let folders = Folders::new();
    let before = folders.dump();
    folders.keep("1", &JournalOptions::NOBODY).expect("room");
    let with_one = folders.dump();
    let etc = folders.etc();
    let script = &with_one[&etc.join("linerate/boot")];
    assert!(script.starts_with("100755 #!/bin/sh\n"), "{script}");
    assert!(
        script.contains(r"'/usr/bin/it'\''s 100% linerate'"),
        "{script}"
    );
    let unit = &with_one[&etc.join("systemd/system/linerate.service")];
    assert!(unit.contains("ExecStart=\"/"), "{unit}");
    let link = etc.join("systemd/system/multi-user.target.wants/linerate.service");
    assert!(fs::read_to_string(link).is_ok_and(|text| unit.ends_with(&text)));

    folders.keep("2", &JournalOptions::NOBODY).expect("room");
    assert_eq!(folders.kept(), ["1", "2"]);
    let gone = forget(&folders.state(), Some("2"), &JournalOptions::NOBODY).expect("room");
    assert_eq!(gone, ["2"]);
    assert_eq!(folders.dump(), with_one);
    let gone = forget(&folders.state(), None, &JournalOptions::NOBODY).expect("room");
    assert_eq!(gone, ["1"]);
    assert_eq!(folders.dump(), before);
    assert!(
        forget(&folders.state(), None, &JournalOptions::NOBODY)
            .expect("nothing")
            .is_empty()
    );
    assert_eq!(folders.dump(), before);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a skip must be seen")]
fn the_unit_is_one_that_systemd_takes() {
    let folders = Folders::new();
    folders.keep("1", &JournalOptions::NOBODY).expect("room");
    let unit = folders.etc().join("systemd/system/linerate.service");
    let mut analyze = std::process::Command::new("systemd-analyze");
    let Ok(output) = analyze.arg("verify").arg(&unit).output() else {
        use std::io::Write;
        writeln!(std::io::stderr(), "SKIP: systemd-analyze is not there").expect("stderr");
        return;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    let about_ours: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("linerate"))
        .collect();
    assert!(about_ours.is_empty(), "{said}");
}

#[test]
fn an_earlier_versions_files_are_replaced_and_come_back_byte_for_byte() {
    let folders = Folders::new();
    let unit = folders.etc().join("systemd/system/linerate.service");
    fs::write(
        &unit,
        "# Written by `linerate tune persist` long ago\n\u{e9}\n",
    )
    .expect("room");
    let before = folders.dump();
    folders.keep("1", &JournalOptions::NOBODY).expect("room");
    assert_ne!(folders.dump()[&unit], before[&unit]);
    forget(&folders.state(), None, &JournalOptions::NOBODY).expect("room");
    assert_eq!(folders.dump(), before);
}

#[test]
fn a_file_that_is_not_linerates_is_left_alone_and_nothing_is_kept() {
    let folders = Folders::new();
    let units = folders.etc().join("systemd/system");
    let foreign: [&dyn Fn(); 3] = [
        &|| fs::write(units.join("linerate.service"), "[Unit]\n").expect("room"),
        &|| fs::create_dir(units.join("linerate.service")).expect("room"),
        &|| symlink("/elsewhere", units.join("linerate.service")).expect("room"),
    ];
    for make in foreign {
        make();
        let before = folders.dump();
        let refused = folders
            .keep("1", &JournalOptions::NOBODY)
            .expect_err("it is not ours");
        assert!(matches!(refused, KeptError::Foreign { .. }), "{refused}");
        assert!(folders.kept().is_empty());
        tidy(&folders.state(), &JournalOptions::NOBODY).expect("nothing to do");
        assert_eq!(folders.dump(), before);
        let path = units.join("linerate.service");
        let _ = fs::remove_dir(&path).or_else(|_| fs::remove_file(&path));
    }
}

#[test]
fn a_place_that_cannot_be_had_leaves_nothing_laid() {
    let folders = Folders::new();
    let wanted = folders.etc().join("systemd/system/multi-user.target.wants");
    symlink("nowhere", wanted).expect("room");
    let before = folders.dump();
    let refused = folders
        .keep("1", &JournalOptions::NOBODY)
        .expect_err("the link cannot be made");
    assert!(refused.io_kind().is_some(), "{refused}");
    assert_eq!(folders.dump(), before);
}

#[test]
fn what_somebody_changed_since_stays() {
    let folders = Folders::new();
    folders.keep("1", &JournalOptions::NOBODY).expect("room");
    let unit = folders.etc().join("systemd/system/linerate.service");
    let script = folders.etc().join("linerate/boot");
    fs::write(&unit, "[Unit]\n").expect("room");
    forget(&folders.state(), None, &JournalOptions::NOBODY).expect("room");
    assert_eq!(fs::read_to_string(&unit).ok().as_deref(), Some("[Unit]\n"));
    assert!(!script.exists());
    assert!(!folders.state().join("boot").exists());
}

/// Runs a tidy-up at a step, as a recovery does that another command begins with.
#[derive(Debug)]
struct Tidied {
    state: PathBuf,
    at: u32,
    steps: AtomicU32,
    other: Mutex<Option<std::thread::JoinHandle<()>>>,
}

impl Faults for Tidied {
    fn lets(&self, _: Moment<'_>) -> bool {
        if self.steps.fetch_add(1, Ordering::SeqCst) + 1 == self.at {
            let state = self.state.clone();
            let tidied = move || tidy(&state, &JournalOptions::NOBODY).expect("room");
            *self.other.lock().expect("nobody died") = Some(std::thread::spawn(tidied));
        }
        true
    }
}

#[test]
fn whoever_does_not_get_the_turn_in_time_is_told_so() {
    let folders = Folders::new();
    folders.keep("one", &JournalOptions::NOBODY).expect("kept");
    let first = turn(&folders.state(), Duration::ZERO).expect("nobody else is there");
    let refused = turn(&folders.state(), Duration::ZERO).expect_err("one at a time");
    assert_eq!(refused.io_kind(), Some(ErrorKind::WouldBlock));
    assert!(refused.to_string().contains("may hang"), "{refused}");
    drop(first);
    assert!(turn(&folders.state(), Duration::ZERO).is_ok());
}

#[test]
fn whoever_tidies_up_meanwhile_takes_nothing_away_from_one_who_keeps() {
    for at in 1..30 {
        let folders = Folders::new();
        let tidied = Arc::new(Tidied {
            state: folders.state(),
            at,
            steps: AtomicU32::new(0),
            other: Mutex::default(),
        });
        let beside = JournalOptions {
            guard: None,
            faults: Some(Arc::clone(&tidied) as Arc<dyn Faults>),
        };
        folders.keep("1", &beside).expect("room");
        if let Some(other) = tidied.other.lock().expect("nobody died").take() {
            other.join().expect("it tidied");
        }
        let has = |path: &str| folders.etc().join(path).exists();
        assert!(has("linerate/boot"), "step {at}");
        assert!(has("systemd/system/linerate.service"), "step {at}");
        assert_eq!(folders.kept(), ["1"]);
    }
}

/// Crashes at a step.
#[derive(Debug)]
struct Dying {
    at: u32,
    steps: AtomicU32,
}

impl Faults for Dying {
    fn lets(&self, _: Moment<'_>) -> bool {
        assert_ne!(self.steps.fetch_add(1, Ordering::SeqCst) + 1, self.at);
        true
    }
}

fn dying(at: u32) -> JournalOptions {
    let steps = AtomicU32::new(0);
    JournalOptions {
        guard: None,
        faults: Some(Arc::new(Dying { at, steps })),
    }
}

#[test]
fn whoever_dies_at_whatever_step_of_keeping_and_forgetting_it_is_all_kept_or_without_a_trace() {
    let mut steps = 0;
    for at in 1.. {
        let folders = Folders::new();
        let before = folders.dump();
        let done = catch_unwind(AssertUnwindSafe(|| folders.keep("1", &dying(at))));
        let is_kept = folders.kept() == ["1"];
        tidy(&folders.state(), &JournalOptions::NOBODY).expect("room");
        if is_kept {
            // It is complete: the next boot finds everything that it needs.
            let has = |path: &str| folders.etc().join(path).exists();
            assert!(has("linerate/boot") && has("systemd/system/linerate.service"));
            assert!(has(
                "systemd/system/multi-user.target.wants/linerate.service"
            ));
            forget(&folders.state(), None, &JournalOptions::NOBODY).expect("room");
        }
        assert_eq!(folders.dump(), before, "step {at} of keeping");
        if done.is_ok() {
            steps = at;
            break;
        }
    }
    assert!(steps > 15, "{steps} steps");
    for at in 1.. {
        let folders = Folders::new();
        let before = folders.dump();
        folders.keep("1", &JournalOptions::NOBODY).expect("room");
        let with_one = folders.dump();
        let forgetting = || forget(&folders.state(), None, &dying(at));
        let done = catch_unwind(AssertUnwindSafe(forgetting));
        tidy(&folders.state(), &JournalOptions::NOBODY).expect("room");
        let expected = if folders.kept().is_empty() {
            &before
        } else {
            &with_one
        };
        assert_eq!(&folders.dump(), expected, "step {at} of forgetting");
        if done.is_ok() {
            assert!(at > 8, "{at} steps");
            break;
        }
    }
}

#[test]
fn a_card_is_known_by_its_place_whatever_it_is_called() {
    let folder = tempfile::tempdir().expect("a folder");
    let net = folder.path().join("sys/class/net");
    fs::create_dir_all(&net).expect("a folder");
    let card = |name: &str, place: &str, port: &str| {
        let device = format!("sys/devices/pci0000:00/{place}/net/{name}");
        let path = folder.path().join(&device);
        fs::create_dir_all(&path).expect("a folder");
        fs::write(path.join("dev_port"), format!("{port}\n")).expect("a file");
        symlink(format!("../../../{device}"), net.join(name)).expect("a link");
    };
    card("eth0", "0000:00:03.0/virtio0", "0");
    card("eth7", "0000:3b:00.0", "0");
    card("eth8", "0000:3b:00.0", "1");
    let root = HostRoot::open(folder.path()).expect("the folder that was just made");
    let device = |name: &str| device_of(&root, &name.parse().expect("a name"));
    assert_eq!(device("eth0").as_deref(), Some("0000:00:03.0 port 0"));
    assert_eq!(device("eth8").as_deref(), Some("0000:3b:00.0 port 1"));

    let here = kept("1").here(&root);
    assert_eq!(here.changes[0].setting.to_string(), "nic/eth7/ring/rx");
    assert_eq!(here.up, ["eth7".parse().expect("a name")]);
    let mut moved = kept("1");
    for place in moved.devices.values_mut() {
        "0000:af:00.0 port 0".clone_into(place);
    }
    let here = moved.here(&root);
    assert!(here.changes.is_empty() && here.gone.len() == 1, "{here:?}");
}
