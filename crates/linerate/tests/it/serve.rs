//! `report --serve` and clients of every kind: what they are shown of runs that are over and of one that grows, and
//! what those get who ask for more.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::{fs, thread};

use linerate_analysis::record::{Record, StoredRun};
use linerate_store::{self as store, Log, Run};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, geteuid, kill_process};

use crate::job::{linerate, run};
use crate::lab::text;

/// A server that ends with the test.
struct Server {
    child: Child,
    address: SocketAddr,
}

/// What came back.
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Server {
    fn start(state: &Path) -> Self {
        let mut command = linerate(&["--quiet", "--state", text(state), "report", "--serve"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut said = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        said.read_line(&mut line).expect("it prints its address");
        let address = line.trim().strip_prefix("http://");
        let address = address.and_then(|rest| rest.strip_suffix('/'));
        let address = address.and_then(|address| address.parse().ok());
        let address = address.unwrap_or_else(|| panic!("no address: {line:?}"));
        Self { child, address }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).expect("it listens")
    }

    /// Sends bytes as they are and reads to the end.
    #[track_caller]
    fn say(&self, bytes: &[u8]) -> Answer {
        let mut stream = self.connect();
        stream.write_all(bytes).expect("it reads");
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("it answers and closes");
        let all = String::from_utf8(all).expect("text");
        let (head, body) = all.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        Answer {
            status: status.unwrap_or_else(|| panic!("no status: {head}")),
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }

    #[track_caller]
    fn get(&self, path: &str) -> Answer {
        let answer =
            self.say(format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address).as_bytes());
        let length = format!("Content-Length: {}", answer.body.len());
        assert!(answer.head.contains(&length), "{}", answer.head);
        answer
    }

    /// Asks it to end as Ctrl-C does, and gives its exit code.
    fn end(mut self) -> Option<i32> {
        let pid = i32::try_from(self.child.id()).expect("small");
        kill_process(Pid::from_raw(pid).expect("not 0"), Signal::INT).expect("our own child");
        self.child.wait().expect("our own child").code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/runs/lab-1")
}

fn stored() -> StoredRun {
    store::read(&fixture()).expect("the fixture is in the repository")
}

/// A state folder with the fixture as a run of this name.
fn state_with(name: &str) -> tempfile::TempDir {
    let state = tempfile::tempdir().expect("a temporary folder");
    let folder = state.path().join("runs").join(name);
    fs::create_dir_all(&folder).expect("a folder");
    for file in ["run.json", "records.jsonl"] {
        fs::copy(fixture().join(file), folder.join(file)).expect("a copy");
    }
    state
}

#[test]
fn every_run_is_listed_and_shown_under_a_policy_that_loads_nothing() {
    let state = state_with("one & <two>");
    let server = Server::start(state.path());
    let list = server.get("/");
    assert_eq!(list.status, 200);
    assert!(
        list.body
            .contains("href=\"/runs/one%20%26%20%3Ctwo%3E\">one &amp; &lt;two&gt;</a>")
    );
    assert!(list.body.contains("No run in progress."));
    let page = server.get("/runs/one%20%26%20%3Ctwo%3E");
    assert_eq!(page.status, 200);
    assert!(page.body.contains("Effects on rate") && page.body.contains("All 12 trials"));
    let same = server.get("/runs/one%20%26%20%3Ctwo%3E/report?x=y");
    assert_eq!(same.body, page.body);
    for (answer, connect) in [(&list, true), (&page, false)] {
        let line = answer
            .head
            .lines()
            .find(|line| line.starts_with("Content-Security-Policy:"));
        let policy = line.expect("a policy");
        for words in [
            "default-src 'none'",
            "script-src 'sha256-",
            "frame-ancestors 'none'",
        ] {
            assert!(policy.contains(words), "{policy}");
        }
        assert!(
            !policy.contains("unsafe-eval") && !policy.contains("http"),
            "{policy}"
        );
        assert_eq!(policy.contains("connect-src 'self'"), connect, "{policy}");
        for words in ["nosniff", "no-store", "same-origin", "no-referrer"] {
            assert!(answer.head.contains(words), "{words}");
        }
    }
    let host = server.address;
    let head = server.say(format!("HEAD / HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    // Nothing was written for it.
    assert!(!state.path().join("runs/one & <two>/report.html").exists());
    assert_eq!(server.end(), Some(0));
}

#[test]
fn a_run_is_seen_to_grow_record_by_record_and_gives_its_report_when_it_is_over() {
    let state = tempfile::tempdir().expect("a temporary folder");
    let server = Server::start(state.path());
    assert!(server.get("/").body.contains("0 stored runs"));
    let stored = stored();
    let folder = state.path().join("runs/2026-lab-7");
    let mut run = Run::create(&folder, &stored.header).expect("a new run");
    let mut made = 0;
    for record in stored.records {
        let is_trial = matches!(record, Record::Cell { .. });
        run.add(record).expect("a record");
        made += u32::from(is_trial);
        if !is_trial && made == 0 {
            continue;
        }
        let list = server.get("/progress").body;
        assert!(list.contains("data-state=\"2026-lab-7\""), "{list}");
        let page = server.get("/runs/2026-lab-7");
        let part = server.get("/runs/2026-lab-7/progress").body;
        let words = format!("{made} of 12 trials");
        for (place, text) in [("list", &list), ("page", &page.body), ("part", &part)] {
            assert!(
                text.contains(&words),
                "{place} without {words}: {text:.2000}"
            );
            assert!(
                text.contains(&format!("max=\"12\" value=\"{made}\"")),
                "{place}"
            );
        }
        assert!(page.head.contains("connect-src 'self'"));
        assert!(part.starts_with("<section data-live=\"/runs/2026-lab-7/progress\""));
        // What there is so far can be read as a report, too.
        assert_eq!(server.get("/runs/2026-lab-7/report").status, 200);
    }
    assert_eq!(made, 12);
    drop(run);
    let over = server.get("/runs/2026-lab-7/progress");
    assert_eq!((over.status, over.body.as_str()), (200, ""));
    assert!(
        server
            .get("/runs/2026-lab-7")
            .body
            .contains("All 12 trials")
    );
    let list = server.get("/").body;
    assert!(list.contains("No run in progress.") && list.contains("1 stored run"));
}

#[test]
fn a_run_whose_records_are_no_file_is_not_waited_for() {
    let state = state_with("run");
    let runs = state.path().join("runs");
    let pipe = runs.join("pipe");
    fs::create_dir(&pipe).expect("a folder");
    fs::copy(runs.join("run/run.json"), pipe.join("run.json")).expect("a header");
    let made = Command::new("mkfifo")
        .arg(pipe.join("records.jsonl"))
        .status();
    assert!(made.expect("mkfifo of coreutils").success());
    let server = Server::start(state.path());
    for path in ["/runs/pipe", "/runs/pipe/progress", "/runs/pipe/report"] {
        server.get(path);
    }
    let list = server.get("/");
    assert_eq!(list.status, 200);
    assert!(list.body.contains("not a regular file"), "{}", list.body);
}

#[test]
fn hostile_requests_are_refused_each_with_its_status_and_the_server_goes_on() {
    let state = state_with("run");
    let server = Server::start(state.path());
    let own = server.address;
    let with_host = |host: &str| format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let long = format!(
        "GET / HTTP/1.1\r\nHost: {own}\r\nX: {}\r\n\r\n",
        "a".repeat(64 << 10)
    );
    let many = format!(
        "GET / HTTP/1.1\r\nHost: {own}\r\n{}\r\n",
        "A: b\r\n".repeat(10_000)
    );
    for (request, status) in [
        (with_host("evil.example"), 421),
        (with_host(&format!("evil.example:{}", own.port())), 421),
        (with_host("127.0.0.1.evil.example"), 421),
        (with_host(""), 421),
        ("GET / HTTP/1.0\r\n\r\n".to_owned(), 421),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), 400),
        (
            format!("GET / HTTP/1.1\r\nHost: {own}\r\nHost: evil.example\r\n\r\n"),
            400,
        ),
        (
            format!("GET http://{own}/ HTTP/1.1\r\nHost: {own}\r\n\r\n"),
            400,
        ),
        (
            format!("POST / HTTP/1.1\r\nHost: {own}\r\nContent-Length: 0\r\n\r\n"),
            405,
        ),
        (
            format!("DELETE /runs/run HTTP/1.1\r\nHost: {own}\r\n\r\n"),
            405,
        ),
        (
            format!("GET / HTTP/1.1\r\nHost: {own}\r\nContent-Length: 5\r\n\r\nhello"),
            413,
        ),
        (
            format!("GET / HTTP/1.1\r\nHost: {own}\r\nTransfer-Encoding: chunked\r\n\r\n"),
            413,
        ),
        (format!("GET / HTTP/2.0\r\nHost: {own}\r\n\r\n"), 505),
        (long, 431),
        (many, 431),
        ("\u{16}\u{3}\u{1}\r\n".to_owned(), 400),
        (with_host(&own.to_string()), 200),
        (with_host("localhost:1"), 200),
    ] {
        let answer = server.say(request.as_bytes());
        assert_eq!(answer.status, status, "{request:.80}");
        assert!(answer.head.contains("default-src 'none'"));
        assert_eq!(answer.head.contains("Allow: GET, HEAD"), status == 405);
    }
    assert_eq!(server.get("/runs/run").status, 200);
}

#[test]
fn no_path_leads_to_anything_but_the_pages_of_runs() {
    let state = state_with("run");
    fs::write(state.path().join("secret"), "secret").expect("a file");
    fs::write(state.path().join("runs/secret"), "secret").expect("a file");
    let server = Server::start(state.path());
    for path in [
        "/runs/../secret",
        "/runs/..%2fsecret",
        "/runs/%2e%2e",
        "/runs/%2e%2e/report",
        "/runs/.",
        "/runs/",
        "/runs/secret",
        "/runs/run/run.json",
        "/runs/run/records.jsonl",
        "/runs/run%00",
        "/runs/run%2f",
        "/runs/%ff",
        "/runs/%2Fetc%2Fpasswd",
        "//etc/passwd",
        "/index.sqlite",
    ] {
        let answer = server.get(path);
        assert_eq!(answer.status, 404, "{path}");
        assert!(!answer.body.contains("root:") && !answer.body.contains("\"seed\""));
    }
    assert_eq!(server.get("/runs/run").status, 200);
}

#[test]
fn clients_that_say_nothing_or_go_away_keep_nobody_from_the_pages_nor_the_end_from_coming() {
    let state = state_with("run");
    let server = Server::start(state.path());
    // More than are talked with at once.
    let silent: Vec<TcpStream> = (0..20).map(|_| server.connect()).collect();
    let mut half = server.connect();
    half.write_all(b"GET / HT").expect("it listens");
    for path in ["/", "/runs/run"] {
        let mut gone = server.connect();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", server.address);
        gone.write_all(request.as_bytes()).expect("it listens");
    }
    assert_eq!(server.get("/").status, 200);
    assert_eq!(server.end(), Some(0));
    drop((silent, half));
}

#[test]
fn many_who_ask_at_once_all_get_their_answer() {
    let state = state_with("run");
    let server = Server::start(state.path());
    thread::scope(|scope| {
        let ask = || server.get("/runs/run").status;
        let all: Vec<_> = (0..24).map(|_| scope.spawn(ask)).collect();
        for one in all {
            assert_eq!(one.join().expect("no panic"), 200);
        }
    });
}

#[test]
fn another_user_of_the_machine_is_turned_away() {
    if !geteuid().is_root() {
        eprintln!("SKIP: only root can ask as another user");
        return;
    }
    let state = state_with("run");
    let server = Server::start(state.path());
    let port = server.address.port();
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'GET / HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n' >&3; cat <&3"
    );
    let ask = |user: u32| {
        let mut bash = Command::new("bash");
        bash.args(["-c", &script])
            .current_dir("/")
            .uid(user)
            .gid(user);
        run(bash).expect_code(0).out
    };
    let nobody = ask(65_534);
    assert!(
        nobody.starts_with("HTTP/1.1 403 Forbidden"),
        "{nobody:.300}"
    );
    assert!(
        nobody.contains("runs as UID 65534") && !nobody.contains("/runs/run"),
        "{nobody:.300}"
    );
    assert!(ask(0).starts_with("HTTP/1.1 200 OK"));
}

#[test]
fn a_run_that_is_damaged_says_so_and_the_others_are_shown() {
    let state = state_with("run");
    let damaged = state.path().join("runs/damaged");
    fs::create_dir(&damaged).expect("a folder");
    fs::copy(fixture().join("run.json"), damaged.join("run.json")).expect("a copy");
    fs::write(damaged.join("records.jsonl"), "00000000 {}\n00000000 {}\n").expect("a file");
    let server = Server::start(state.path());
    let list = server.get("/").body;
    assert!(list.contains("Unreadable runs") && list.contains("1 stored run"));
    let page = server.get("/runs/damaged");
    assert_eq!(page.status, 500);
    assert!(
        page.body.contains("line 1: checksum mismatch"),
        "{}",
        page.body
    );
    assert_eq!(server.get("/runs/run").status, 200);
}

#[test]
fn a_port_that_is_taken_is_exit_code_41_and_one_that_anybody_could_reach_2() {
    let state = tempfile::tempdir().expect("a temporary folder");
    let holder = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = holder.local_addr().expect("bound").to_string();
    for (words, code, said) in [
        (&["report", "--serve", &taken][..], 41, "pass another port"),
        (
            &["report", "--serve", "0.0.0.0:0"],
            2,
            "is not a loopback address",
        ),
        (
            &["report", "--serve", "[::]:80"],
            2,
            "ssh -L 80:127.0.0.1:80",
        ),
        (&["report", "--serve", "--format", "json"], 2, "not JSON"),
        (&["report", "run", "--serve"], 2, "cannot be used with"),
        (&["report"], 2, "<RUN>"),
    ] {
        let mut command = linerate(&["--state", text(state.path())]);
        command.args(words);
        let done = run(command).expect_code(code);
        assert!(done.err.contains(said), "{words:?}: {}", done.err);
    }
    drop(holder);
}

#[test]
fn a_run_whose_header_is_a_fifo_holds_up_neither_the_others_nor_the_end() {
    let state = state_with("sound");
    let folder = state.path().join("runs/fifo");
    fs::create_dir(&folder).expect("a folder");
    let (header, mode) = (folder.join("run.json"), Mode::RUSR | Mode::WUSR);
    mknodat(CWD, &header, FileType::Fifo, mode, 0).expect("a FIFO");
    fs::copy(
        fixture().join("records.jsonl"),
        folder.join("records.jsonl"),
    )
    .expect("a copy");
    let server = Server::start(state.path());
    let list = server.get("/");
    assert_eq!(list.status, 200);
    assert!(list.body.contains("/runs/sound"), "{}", list.body);
    for path in ["/runs/fifo", "/runs/fifo/report", "/runs/fifo/progress"] {
        assert_ne!(server.get(path).status, 200, "{path}");
    }
    assert_eq!(server.end(), Some(0));
}
