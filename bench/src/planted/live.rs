//! Faults in live network namespaces: a child in the namespace reads the host and changes its settings by
//! the project's own setters; the parent checks it. Requests and answers are lines.
//!
//! | asked | answer |
//! |---|---|
//! | `look` | the host and its counters, one line of JSON |
//! | `set KEY VALUE` | `ok`, or why not |
//! | `undo` | restores what was set, last first: `ok`, or why not |

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use linerate_host::apply::settings;
use linerate_host::netlink::Netlink;
use linerate_host::read::read_host;
use linerate_host::root::LiveHost;
use linerate_host::watch::{Reading, read_counters};
use linerate_model::finding::Diagnosis;
use linerate_model::host::Host;
use linerate_model::known::Known;
use linerate_model::setting::{SettingKey, Value};
use linerate_model::units::Nanoseconds;
use linerate_testbed::{Netns, Stage};

use crate::Trouble;
use crate::data::{Fault, Live, Plants};
use crate::score::{Score, ask};
use crate::shapes::WatchedHost;

/// The hidden option that makes this program the child.
pub(crate) const INSIDE: &str = "--inside";

/// Plants every live fault and asks about every live shape.
pub(crate) fn run(
    stage: &Stage,
    plants: &Plants,
    score: &mut Score,
    say: &mut Vec<String>,
) -> Result<(), Trouble> {
    for live in &plants.live {
        match LiveHosts::set(stage, live) {
            Ok(mut hosts) => hosts.run(plants, score, say)?,
            Err(Trouble(why)) => say.push(format!("SKIP: {}: cannot {why}", live.name)),
        }
    }
    Ok(())
}

struct LiveHosts {
    name: String,
    near: Netns,
    far: Netns,
    here: Inside,
    there: Inside,
}

impl LiveHosts {
    fn set(stage: &Stage, live: &Live) -> Result<Self, Trouble> {
        let host = |end: &str| {
            stage
                .add_host(&format!("{}-{end}", live.name))
                .map_err(|error| Trouble(error.to_string()))
        };
        let (near, far) = (host("near")?, host("far")?);
        for line in &live.make {
            command(line, &near, &far)?;
        }
        let (here, there) = (Inside::start(&near)?, Inside::start(&far)?);
        let name = live.name.clone();
        Ok(Self {
            name,
            near,
            far,
            here,
            there,
        })
    }

    fn run(
        &mut self,
        plants: &Plants,
        score: &mut Score,
        say: &mut Vec<String>,
    ) -> Result<(), Trouble> {
        let (host, before) = self.here.look()?;
        #[expect(clippy::disallowed_methods, reason = "a watch is of a time")]
        std::thread::sleep(Duration::from_secs(1));
        let (_, after) = self.here.look()?;
        let span = match after.span_since(&before) {
            Known::Value(span) => span,
            Known::Unknown(_) => Nanoseconds::from_millis(1000),
        };
        let watch = Some(after.since(&before, span));
        let seen = WatchedHost { host, watch };
        score.take_healthy(&self.name, &seen, &plants.stated, false);
        let name = self.name.clone();
        let own = plants.faults.iter().filter(|fault| fault.shape == name);
        for fault in own {
            if let Err(Trouble(why)) = self.plant(fault, score) {
                say.push(format!(
                    "SKIP: {} ({}): cannot {why}",
                    fault.what, self.name
                ));
            }
        }
        Ok(())
    }

    fn plant(&mut self, fault: &Fault, score: &mut Score) -> Result<(), Trouble> {
        let before = self.asked(fault)?;
        let planted = self.change(fault);
        let after = planted.and_then(|()| self.asked(fault));
        // Rolled back in any case: the next fault must be alone.
        let mut back = self.here.ask("undo");
        for line in &fault.undo {
            back = back.and(command(line, &self.near, &self.far));
        }
        score.take(fault, &before, &after?);
        back
    }

    fn change(&mut self, fault: &Fault) -> Result<(), Trouble> {
        for (key, value) in &fault.set {
            self.here.ask(&format!("set {key} {value}"))?;
        }
        for line in &fault.plant {
            command(line, &self.near, &self.far)?;
        }
        Ok(())
    }

    fn asked(&mut self, fault: &Fault) -> Result<Diagnosis, Trouble> {
        let (host, _) = self.here.look()?;
        let (other, _) = self.there.look()?;
        let seen = WatchedHost { host, watch: None };
        Ok(ask(&seen, Some(&other), fault.profile))
    }
}

/// Runs `near ip link ...` in the namespace that its first word names.
fn command(line: &str, near: &Netns, far: &Netns) -> Result<(), Trouble> {
    let trouble = |what: String| Trouble(format!("run `{line}`: {what}"));
    let mut words = line
        .split_whitespace()
        .map(|word| word.replace("NEAR", near.name()).replace("FAR", far.name()));
    let netns = match words.next().as_deref() {
        Some("near") => near,
        Some("far") => far,
        _ => return Err(trouble("its first word is near or far".to_owned())),
    };
    let program = words.next().unwrap_or_default();
    let mut command = Command::new(program);
    command.args(words).stdin(Stdio::null());
    netns
        .enter_in_child(&mut command)
        .map_err(|error| trouble(error.to_string()))?;
    let output = command
        .output()
        .map_err(|error| trouble(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(trouble(said))
}

/// The child in a namespace, from outside. It ends when its input does.
struct Inside {
    child: Child,
    asks: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Inside {
    fn start(netns: &Netns) -> Result<Self, Trouble> {
        let trouble = |error: std::io::Error| Trouble(format!("start a child: {error}"));
        let mut command = Command::new(std::env::current_exe().map_err(trouble)?);
        command
            .arg(INSIDE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        netns.enter_in_child(&mut command).map_err(trouble)?;
        let mut child = command.spawn().map_err(trouble)?;
        let asks = child.stdin.take();
        let answers = child.stdout.take();
        let answers = answers.ok_or_else(|| Trouble("read from the child".to_owned()))?;
        Ok(Self {
            child,
            asks,
            answers: BufReader::new(answers),
        })
    }

    fn line(&mut self, ask: &str) -> Result<String, Trouble> {
        let trouble = |error: std::io::Error| Trouble(format!("write to a child: {error}"));
        if let Some(asks) = &mut self.asks {
            writeln!(asks, "{ask}").map_err(trouble)?;
        }
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(trouble)?;
        Ok(line.trim_end().to_owned())
    }

    fn ask(&mut self, ask: &str) -> Result<(), Trouble> {
        match self.line(ask)?.as_str() {
            "ok" => Ok(()),
            why => Err(Trouble(format!("{ask}: {why}"))),
        }
    }

    fn look(&mut self) -> Result<(Host, Reading), Trouble> {
        let line = self.line("look")?;
        serde_json::from_str(&line)
            .map_err(|error| Trouble(format!("understand the child: {error}")))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.asks = None;
        // It may have ended already.
        let _ = self.child.wait();
    }
}

/// The child in a namespace: answers until its input ends.
pub(crate) fn inside() -> Result<(), Trouble> {
    let io = |error: std::io::Error| Trouble(format!("serve inside a namespace: {error}"));
    let live = LiveHost::open().map_err(io)?;
    let netlink = Netlink::open().map_err(io)?;
    let mut undo: Vec<(SettingKey, Value)> = Vec::new();
    let mut out = std::io::stdout();
    for line in std::io::stdin().lines() {
        let line = line.map_err(io)?;
        let answer = match line.split_once(' ') {
            None if line == "look" => {
                let host = read_host(live.root(), &netlink);
                let reading = read_counters(live.root(), &netlink, &host);
                serde_json::to_string(&(host, reading))
                    .map_err(|error| Trouble(format!("write the host: {error}")))?
            }
            Some(("set", rest)) => said(set(&live, &netlink, rest).map(|old| undo.push(old))),
            None if line == "undo" => {
                let mut all = Ok(());
                while let Some((key, value)) = undo.pop() {
                    let back = settings::write(&live, &netlink, &key, &value);
                    all = all.and(back.map_err(|error| Trouble(error.to_string())));
                }
                said(all)
            }
            _ => format!("`{line}` is not understood"),
        };
        writeln!(out, "{answer}").map_err(io)?;
    }
    Ok(())
}

fn said(result: Result<(), Trouble>) -> String {
    match result {
        Ok(()) => "ok".to_owned(),
        Err(Trouble(why)) => why.replace('\n', " "),
    }
}

/// Sets `KEY VALUE`; what it was before.
fn set(live: &LiveHost, netlink: &Netlink, words: &str) -> Result<(SettingKey, Value), Trouble> {
    let wrong = |what: String| Trouble(format!("set {words}: {what}"));
    let (key, value) = words
        .split_once(' ')
        .ok_or_else(|| wrong("it has no value".to_owned()))?;
    let key: SettingKey = key.parse().map_err(|error| wrong(format!("{error}")))?;
    let value = key
        .parse_value(value)
        .map_err(|error| wrong(error.to_string()))?;
    let old = match settings::read(live.root(), netlink, &key) {
        Known::Value(old) => old,
        Known::Unknown(gap) => return Err(wrong(gap.to_string())),
    };
    settings::write(live, netlink, &key, &value).map_err(|error| wrong(error.to_string()))?;
    Ok((key, old))
}
