//! `linerate agent --stdio` alone: what it answers to nonsense, and that it restores what it changed
//! whatever becomes of its controller.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use linerate_model::protocol::PROTOCOL;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::job::linerate;
use crate::lab::{Lab, assert_same};

/// An agent, and the talk with it.
struct Agent {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Agent {
    fn start(mut command: Command) -> Self {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().expect("the agent starts");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self {
            child,
            input,
            output,
        }
    }

    fn say(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().expect("not closed yet");
        input
            .write_all(bytes)
            .and_then(|()| input.flush())
            .expect("the agent listens");
    }

    /// Its next line; none when it has ended.
    fn hear(&mut self) -> Option<Value> {
        let mut line = String::new();
        let count = self.output.read_line(&mut line).expect("text");
        (count > 0).then(|| serde_json::from_str(&line).expect("one document a line"))
    }

    fn ask(&mut self, request: &Value) -> Value {
        self.say(format!("{request}\n").as_bytes());
        self.hear().expect("an answer")
    }

    fn greet(&mut self) {
        let hello = json!({"hello": {"protocol": PROTOCOL, "version": "0.0.0"}});
        assert_eq!(self.ask(&hello)["hello"]["protocol"], PROTOCOL);
    }

    /// Closes its input and waits for its end.
    fn leave(mut self) -> Option<i32> {
        self.input = None;
        assert_eq!(self.hear(), None, "it speaks after the end");
        self.child.wait().expect("our own child").code()
    }
}

fn alone(state: &tempfile::TempDir) -> Agent {
    let mut command = linerate(&["--state"]);
    command.arg(state.path()).args(["agent", "--stdio"]);
    Agent::start(command)
}

#[test]
fn nonsense_is_answered_and_the_agent_goes_on() {
    let state = tempfile::tempdir().expect("a temporary folder");
    let mut agent = alone(&state);
    let nonsense: [&[u8]; 7] = [
        b"hello\n",
        b"{}\n",
        b"[]\n",
        b"\n",
        b"\xff\xfe\x00\n",
        b"{\"hello\":{\"protocol\":-1,\"version\":1}}\n",
        b"{\"start\":null}\n",
    ];
    for line in nonsense {
        agent.say(line);
        let reply = agent.hear().expect("an answer");
        assert_eq!(reply["failed"]["kind"], "bad-input", "{line:?}: {reply}");
    }
    agent.greet();
    // What comes in the wrong order is nonsense, too.
    for request in [
        json!("start"),
        json!({"hello": {"protocol": PROTOCOL, "version": "0.0.0"}}),
    ] {
        let reply = agent.ask(&request);
        assert_eq!(reply["failed"]["kind"], "bad-input", "{request}: {reply}");
    }
    assert!(agent.ask(&json!("read-host"))["host"].is_object());
    assert_eq!(agent.leave(), Some(0));
}

#[test]
fn another_protocol_is_refused_by_version() {
    let state = tempfile::tempdir().expect("a temporary folder");
    let mut agent = alone(&state);
    let reply = agent.ask(&json!({"hello": {"protocol": PROTOCOL + 1, "version": "9.9.9"}}));
    assert_eq!(reply["failed"]["kind"], "version", "{reply}");
    let message = reply["failed"]["message"].as_str().expect("words");
    assert!(
        message.contains("9.9.9") && message.contains(&format!("protocol {}", PROTOCOL + 1)),
        "{message}"
    );
    assert_eq!(agent.leave(), Some(0));
}

#[test]
fn a_message_without_end_is_given_up_at_its_limit() {
    let state = tempfile::tempdir().expect("a temporary folder");
    let mut agent = alone(&state);
    let mut input = agent.input.take().expect("piped");
    let block = vec![b'x'; 1 << 20];
    // It closes its ears at the limit; how much the pipe took before does not matter.
    let taken = (0..256)
        .take_while(|_| input.write_all(&block).is_ok())
        .count();
    assert!(taken < 256, "it listened to 256 MiB of one message");
    assert_eq!(agent.leave(), Some(23));
}

fn plan(lab: &Lab) -> Value {
    let now = lab.shell("far", "sysctl -n net.ipv4.tcp_rmem");
    let words: Vec<u64> = now
        .split_whitespace()
        .map(|n| n.parse().expect("a number"))
        .collect();
    let change = json!({
        "setting": "sysctl/net.ipv4.tcp_rmem",
        "from": format!("{} {} {}", words[0], words[1], words[2]),
        "to": "4096 65536 5000000",
    });
    json!({"apply": {"plan": {"changes": [change]}}})
}

/// An agent on `far` with a change applied.
#[track_caller]
fn changed(lab: &Lab) -> Agent {
    let mut command = lab.on("far", crate::LINERATE);
    command
        .arg("--state")
        .arg(lab.state())
        .args(["agent", "--stdio"]);
    let mut agent = Agent::start(command);
    agent.greet();
    assert_eq!(agent.ask(&plan(lab)), json!("applied"));
    let rmem = lab.shell("far", "sysctl -n net.ipv4.tcp_rmem");
    assert!(rmem.contains("5000000"), "{rmem}");
    agent
}

#[test]
fn a_controller_that_goes_away_in_mid_transaction_leaves_nothing_changed() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    assert_eq!(changed(&lab).leave(), Some(0));
    assert_same(&lab, &before, "after the end of its input");

    // In the middle of a message.
    let mut agent = changed(&lab);
    agent.say(b"{\"apply\":{\"plan\":");
    assert_eq!(agent.leave(), Some(0));
    assert_same(&lab, &before, "after half a message");

    // A terminal's hang-up and a service manager's end.
    for signal in [Signal::HUP, Signal::TERM] {
        let mut agent = changed(&lab);
        let pid = i32::try_from(agent.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a process number"), signal).expect("our own child");
        assert_eq!(agent.hear(), None);
        assert_eq!(agent.child.wait().expect("our own child").code(), Some(0));
        assert_same(&lab, &before, "after a signal");
    }
    let status = lab.run(&["tune", "status"]).expect_code(0).out;
    assert!(status.contains("no transactions"), "{status}");
}

#[test]
fn what_a_killed_agent_left_is_recovered_and_what_it_committed_is_undone_by_name() {
    let Some(lab) = Lab::new() else { return };
    let before = lab.dump();
    let mut agent = changed(&lab);
    agent.child.kill().expect("our own child");
    agent.child.wait().expect("our own child");
    // Its reverter does so too, sooner or later than this.
    lab.run(&["tune", "recover"]).expect_code(0);
    assert_same(&lab, &before, "after `tune recover`");

    let mut agent = changed(&lab);
    assert_eq!(agent.ask(&json!("commit")), json!("committed"));
    assert_eq!(agent.leave(), Some(0));
    assert!(
        lab.shell("far", "sysctl -n net.ipv4.tcp_rmem")
            .contains("5000000")
    );
    let status = lab.run(&["tune", "status"]).expect_code(0).out;
    let applied = status.lines().find(|line| line.contains("  applied  "));
    let id = applied.and_then(|line| line.split_whitespace().next());
    lab.run(&["tune", "undo", id.expect("its name")])
        .expect_code(0);
    assert_same(&lab, &before, "after `tune undo ID`");
}

#[test]
fn a_data_port_that_is_taken_ends_with_41_and_one_that_is_free_is_used() {
    let Some(lab) = Lab::new() else { return };
    // Another agent waits for the data of a trial that never begins.
    let mut holder = Agent::start({
        let mut command = lab.on("far", env!("CARGO_BIN_EXE_linerate"));
        command.args([
            "--state",
            crate::lab::text(&lab.state()),
            "agent",
            "--stdio",
        ]);
        command
    });
    holder.greet();
    let spec = json!({
        "flows": 1, "direction": "forward", "duration_ns": 200_000_000, "interval_ns": 10_000_000,
        "buffer_bytes": 131_072, "socket_buffer_bytes": null, "congestion_control": null,
        "placement": {"sender_cpus": "", "receiver_cpus": ""},
    });
    let prepare =
        json!({"prepare": {"spec": spec, "token": vec![7; 16], "bind": "10.77.0.2:5999"}});
    assert_eq!(holder.ask(&prepare)["prepared"]["port"], 5999);
    let measure = |port: &str| {
        lab.run(&[
            "measure",
            "stream",
            "netns:far",
            "--time",
            "0.2",
            "--port",
            port,
        ])
    };
    let taken = measure("5999").expect_code(41);
    assert!(taken.err.contains("10.77.0.2:5999"), "{}", taken.err);
    assert!(taken.err.contains("ss -ltnp"), "{}", taken.err);
    measure("5998").expect_code(0);
    assert_eq!(holder.leave(), Some(0));
}
