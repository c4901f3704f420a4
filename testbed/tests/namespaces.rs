//! Two hosts on this kernel, as root and as an ordinary user: their isolation, and that nothing outlives a SIGKILL.
//! This program is its own test, stage and child: the first argument selects the role.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test's main talks"
)]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use linerate_model::ids::NicName;
use linerate_testbed::{Netns, Obstacle, Stage, StageError, join, netns, pin_like, tie_to_parent};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

/// The user `nobody` of every distribution.
const NOBODY: u32 = 65_534;

fn main() {
    let task = std::env::args().nth(1).unwrap_or_default();
    match task.as_str() {
        "look-stage" => look_stage(),
        "look" => look(),
        "director" => director(),
        "pause-stage" => pause_stage(),
        "pause" => pause(),
        "threads-stage" => threads_stage(),
        "pinned" => println!("{}", allowed_cpus()),
        _ => all_tests(),
    }
}

fn all_tests() {
    type Test = (&'static str, fn(User));
    let tests: [Test; 3] = [
        (
            "each_host_sees_only_its_own_interfaces",
            each_host_sees_only_its_own_interfaces,
        ),
        ("nothing_outlives_a_sigkill", nothing_outlives_a_sigkill),
        (
            "a_process_with_threads_is_told_so",
            a_process_with_threads_is_told_so,
        ),
    ];
    for user in users() {
        for (name, test) in tests {
            // A failed assertion ends the program with the test's name above it.
            println!("test {name} ({user:?}) ...");
            test(user);
        }
    }
    println!("test a_child_is_pinned_like_another_process ...");
    a_child_is_pinned_like_another_process();
    println!("ok");
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum User {
    Own,
    Nobody,
}

/// Root also runs the tests as an ordinary user, if that user can run this program.
fn users() -> Vec<User> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIP: not root, so only this ordinary user is tested");
        return vec![User::Own];
    }
    match own("pinned", User::Nobody).output() {
        Ok(output) if output.status.success() => vec![User::Own, User::Nobody],
        other => {
            eprintln!("SKIP: nobody cannot run this program, so only root is tested: {other:?}");
            vec![User::Own]
        }
    }
}

fn own(task: &str, user: User) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.arg(task).stdin(Stdio::null());
    if user == User::Nobody {
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
    }
    command
}

/// Enters the stage, or exits with a skip that the test passes on.
fn stage() -> Stage {
    match Stage::enter() {
        Ok(stage) => stage,
        Err(error) if error.obstacle() != Obstacle::Failed => {
            println!("SKIP: {error}");
            #[expect(clippy::exit, reason = "a child process with nothing to drop")]
            std::process::exit(0);
        }
        Err(error) => panic!("{error}"),
    }
}

// --- what each host sees ---------------------------------------------------------------------------

fn each_host_sees_only_its_own_interfaces(user: User) {
    let mut command = own("look-stage", user);
    tie_to_parent(&mut command);
    let output = command.output().expect("this program runs again");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    if text.contains("SKIP") {
        eprint!("{text}");
    }
    for name in ["near", "far"] {
        let outside = netns::open(name);
        assert!(outside.is_err(), "{name} is seen outside: {outside:?}");
    }
    assert!(
        !mounts().contains("/run/netns/near"),
        "a mount is seen outside"
    );
}

fn mounts() -> String {
    fs::read_to_string("/proc/self/mounts").expect("proc is mounted")
}

fn name(text: &str) -> NicName {
    text.parse().expect("an interface's name")
}

fn look_stage() {
    let stage = stage();
    let near = stage.add_host("near").expect("a namespace");
    let far = stage.add_host("far").expect("another namespace");
    assert!(
        matches!(stage.add_host("near"), Err(StageError::Step { .. })),
        "a name is given once"
    );
    let joined = Command::new("ip").arg("-V").output().is_ok();
    if joined {
        let (near_nic, far_nic) = (name("near0"), name("far0"));
        join(
            (&near, &near_nic, "10.77.0.1/24"),
            (&far, &far_nic, "10.77.0.2/24"),
        )
        .expect("a virtual pair");
    } else {
        println!("SKIP: no `ip` here, so the hosts are not joined");
    }
    let before = (mounts(), sack());
    // By name, as a peer `netns:near` opens it.
    let (near, far) = (
        netns::open("near").expect("by name"),
        netns::open("far").expect("by name"),
    );
    let (near, far) = (seen_by(&near), seen_by(&far));
    for seen in [&near, &far] {
        assert_eq!(
            seen.sysfs, seen.procfs,
            "sysfs shows another namespace than procfs"
        );
        assert!(seen.sysfs.contains("lo"));
    }
    assert_eq!(near.sysfs.contains("near0"), joined);
    assert!(!near.sysfs.contains("far0"));
    assert_eq!(far.sysfs.contains("far0"), joined);
    let inside = Command::new("ip")
        .args(["netns", "exec", "near", "true"])
        .status();
    assert!(
        !joined || inside.is_ok_and(|status| status.success()),
        "ip netns exec works inside"
    );
    assert_eq!(
        (mounts(), sack()),
        before,
        "a host's mount or sysctl is seen in the stage"
    );
}

fn sack() -> String {
    fs::read_to_string("/proc/sys/net/ipv4/tcp_sack").expect("proc is mounted")
}

struct Seen {
    sysfs: BTreeSet<String>,
    procfs: BTreeSet<String>,
}

fn seen_by(host: &Netns) -> Seen {
    let mut command = own("look", User::Own);
    host.enter_in_child(&mut command).expect("a descriptor");
    let output = command.output().expect("a child in the namespace");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    let line = |start: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(start));
        let words = line.expect("both lines").split_whitespace();
        words.map(str::to_owned).collect()
    };
    Seen {
        sysfs: line("sysfs"),
        procfs: line("procfs"),
    }
}

fn look() {
    let entries = fs::read_dir("/sys/class/net").expect("sysfs is mounted");
    print!("sysfs");
    for entry in entries {
        let entry = entry.expect("a folder that holds still");
        // `bonding_masters` is a file among the links to interfaces.
        if entry.file_type().expect("its type").is_symlink() {
            print!(" {}", entry.file_name().to_string_lossy());
        }
    }
    print!("\nprocfs");
    let table = fs::read_to_string("/proc/self/net/dev").expect("proc is mounted");
    for line in table.lines().skip(2) {
        print!(" {}", line.split(':').next().unwrap_or_default().trim());
    }
    println!();
    fs::write("/proc/sys/net/ipv4/tcp_sack", "0")
        .expect("root of its namespace may set its sysctls");
}

// --- what a kill leaves ------------------------------------------------------------------------------

fn nothing_outlives_a_sigkill(user: User) {
    let mut director = own("director", user);
    let mut director = director
        .stdout(Stdio::piped())
        .spawn()
        .expect("this program runs again");
    let mut lines = BufReader::new(director.stdout.take().expect("piped")).lines();
    let line = lines.next().expect("a line").expect("text");
    if line.starts_with("SKIP") {
        eprintln!("{line}");
        director.wait().expect("our child");
        return;
    }
    let numbers: Vec<u64> = line
        .split(' ')
        .map(|n| n.parse().expect("a number"))
        .collect();
    let [stage, child, netns] = numbers[..] else {
        panic!("{line}");
    };
    assert!(
        holders(netns) > 0,
        "nobody is in the namespace that was made"
    );
    let pid = |number: u64| {
        Pid::from_raw(i32::try_from(number).expect("a process number")).expect("not 0")
    };
    let open = |number| pidfd_open(pid(number), PidfdFlags::empty()).expect("it lives");
    let ends = [open(stage), open(child)];
    // While this is open, no other namespace gets the inode.
    let _pinned = fs::File::open(format!("/proc/{child}/ns/net")).expect("it lives");
    kill_process(pid(u64::from(director.id())), Signal::KILL).expect("our child");
    for end in &ends {
        // A pidfd becomes readable when its process ends.
        let mut wait = [PollFd::new(end, PollFlags::IN)];
        poll(&mut wait, None).expect("nothing interrupts");
    }
    director.wait().expect("our child");
    assert_eq!(holders(netns), 0, "a process is still in the namespace");
    assert!(netns::open("near").is_err());
}

/// The number of processes in the namespace with this inode.
fn holders(inode: u64) -> usize {
    use std::os::unix::fs::MetadataExt;
    let processes = fs::read_dir("/proc").expect("proc is mounted");
    let net = processes.filter_map(|entry| fs::metadata(entry.ok()?.path().join("ns/net")).ok());
    net.filter(|data| data.ino() == inode).count()
}

fn director() {
    let mut stage = own("pause-stage", User::Own);
    tie_to_parent(&mut stage);
    let mut stage = stage.spawn().expect("this program runs again");
    stage.wait().expect("our child");
}

fn pause_stage() {
    let stage = stage();
    let near = stage.add_host("near").expect("a namespace");
    let mut child = own("pause", User::Own);
    child.stdout(Stdio::piped());
    near.enter_in_child(&mut child).expect("a descriptor");
    let mut child = child.spawn().expect("a child in the namespace");
    let mut ready = BufReader::new(child.stdout.take().expect("piped"));
    ready
        .read_line(&mut String::new())
        .expect("it says that it runs");
    let inode = rustix::fs::fstat(near.as_fd())
        .expect("an open file")
        .st_ino;
    println!("{} {} {inode}", std::process::id(), child.id());
    child.wait().expect("our child, killed with us");
}

fn pause() {
    println!("here");
    loop {
        std::thread::park();
    }
}

// --- the rest ------------------------------------------------------------------------------------

fn a_process_with_threads_is_told_so(user: User) {
    let output = own("threads-stage", user)
        .output()
        .expect("this program runs again");
    let text = String::from_utf8_lossy(&output.stdout);
    let ordinary = user == User::Nobody || !rustix::process::geteuid().is_root();
    let wanted = if ordinary {
        "cannot make a user namespace: this process has more than one thread\n"
    } else {
        // Root makes no user namespace, and a mount table can be left by one thread.
        "entered\n"
    };
    assert_eq!(text, wanted);
}

fn threads_stage() {
    let (keep, until) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || until.recv());
    match Stage::enter() {
        Ok(_) => println!("entered"),
        Err(error) => println!("{error}"),
    }
    drop(keep);
    assert!(thread.join().expect("no panic").is_err());
}

fn allowed_cpus() -> String {
    let status = fs::read_to_string("/proc/self/status").expect("proc is mounted");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.expect("every kernel has it").trim().to_owned()
}

fn a_child_is_pinned_like_another_process() {
    let mut command = own("pinned", User::Own);
    pin_like(&mut command, std::process::id()).expect("our own");
    let output = command.output().expect("this program runs again");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        allowed_cpus()
    );
    let error = pin_like(&mut own("pinned", User::Own), u32::MAX).expect_err("no such process");
    eprintln!("(expected: {error})");
}
