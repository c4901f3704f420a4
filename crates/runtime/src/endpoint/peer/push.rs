//! `--push`: copies this program to the remote end, unless a copy of the same build is there already.
//!
//! The remote end's part is a shell script, `push.sh`. It accepts only a folder that no other user can write to, and
//! the copy gets its name (version and the start of its SHA-256) only after the checksum of the whole file, as it is
//! at the remote end, is that of the program that runs here. The same check of an older copy decides whether anything
//! is sent. Neither end trusts the copy's own report: it does not run before that.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};
use std::process::{Child, ChildStdout, Command};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::peer_address::PeerAddress;

use super::start::{cannot_start, spawn_piped, ssh};
use super::stderr::FarStderr;
use super::{FAREWELL, GREETING, end_within, printable};
use crate::console::interrupt::Interrupt;
use crate::console::random::fresh_token;

/// The cache folder in the remote end's home.
const FOLDER: &str = ".cache/linerate";
/// How often Ctrl-C is checked.
const BEAT: Duration = Duration::from_millis(100);
/// What the remote end's shell may print in all, a greeting among it.
const OUTPUT_BYTES_MAX: u64 = 64 << 10;

/// Makes sure that the remote end has this program, and returns its path there, for the remote end's shell.
pub(super) fn push(destination: &str, port: Option<u16>, interrupt: &Interrupt) -> Outcome<String> {
    let (program, sum) = own_program()?;
    let name = format!("linerate-{}-{}", env!("CARGO_PKG_VERSION"), &sum[..16]);
    let unique = format!("{:032x}", u128::from_be_bytes(fresh_token()?.0));
    let mut command = ssh(destination, port)?;
    command.arg(format!(
        "exec sh -c '{}' push {name} {sum} {name}.{unique}",
        script()
    ));
    let mut far = FarScript::start(command, destination, port)?;
    let mut answer = far.answer(Some(GREETING), interrupt)?;
    if answer == "want" {
        far.send(program);
        answer = far.answer(None, interrupt)?;
    }
    if answer == "have" {
        Ok(format!("~/{FOLDER}/{name}"))
    } else {
        Err(refused(destination, &answer))
    }
}

/// `push.sh` as one line.
fn script() -> String {
    let lines = include_str!("push.sh").lines();
    let code: Vec<&str> = lines.filter(|line| !line.starts_with('#')).collect();
    code.join(" ")
}

/// The file of the program that runs, also when another has taken its name since, and its SHA-256.
fn own_program() -> Outcome<(File, String)> {
    let reading = |error| Stop::io("read the file of this program", error);
    let mut program = File::open("/proc/self/exe").map_err(reading)?;
    let input = program.try_clone().map_err(reading)?;
    let output = Command::new("sha256sum")
        .stdin(input)
        .output()
        .map_err(|error| {
            Stop::new(Code::NotSupported, "cannot start `sha256sum`").because(error)
        })?;
    program.rewind().map_err(reading)?;
    let sum = String::from_utf8_lossy(&output.stdout);
    match sum.split_whitespace().next() {
        Some(sum) if sum.len() == 64 && sum.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            Ok((program, sum.to_owned()))
        }
        _ => Err(Stop::new(
            Code::NotSupported,
            "cannot compute the checksum of this program: `sha256sum` printed none",
        )),
    }
}

/// The stop for an answer that is no consent.
fn refused(destination: &str, answer: &str) -> Stop {
    let (kind, folder) = answer.split_once(' ').unwrap_or((answer, ""));
    let stop = |code, why: &str| {
        Stop::new(
            code,
            format!("cannot copy linerate to {destination}: {why}"),
        )
    };
    match kind {
        "link" => stop(
            Code::PermissionMissing,
            &format!("{folder} is a symbolic link"),
        )
        .hint("remove the link there"),
        "owner" => stop(
            Code::PermissionMissing,
            &format!("{folder} belongs to another user"),
        )
        .hint(format!(
            "run `sudo chown USER {folder}` there and empty ~/{FOLDER}"
        )),
        "writable" => stop(
            Code::PermissionMissing,
            &format!("{folder} is writable by other users"),
        )
        .hint(format!(
            "run `chmod go-w {folder}` there and empty ~/{FOLDER}"
        )),
        "no-sha256sum" => stop(
            Code::NotSupported,
            "no `sha256sum` there to verify the copy",
        )
        .hint("install coreutils there, or linerate itself"),
        "damaged" => stop(Code::PeerUnreachable, "checksum mismatch after the copy")
            .hint("run the command again"),
        _ => stop(Code::PeerUnreachable, "unexpected response"),
    }
}

/// The running script.
struct FarScript<'a> {
    destination: &'a str,
    child: Child,
    answers: Receiver<String>,
    stderr: FarStderr,
}

impl<'a> FarScript<'a> {
    fn start(mut command: Command, destination: &'a str, port: Option<u16>) -> Outcome<Self> {
        let mut child = spawn_piped(&mut command).map_err(|error| {
            let destination = destination.to_owned();
            cannot_start(&PeerAddress::Ssh { destination, port }, error)
        })?;
        let answers = listen(child.stdout.take());
        let stderr = FarStderr::read(child.stderr.take());
        Ok(Self {
            destination,
            child,
            answers,
            stderr,
        })
    }

    /// Sends the program in a separate thread: the remote end may answer before it has read it all.
    fn send(&mut self, mut program: File) {
        if let Some(mut input) = self.child.stdin.take() {
            // A remote end that stops reading reports why, or is asked for its checksum.
            std::thread::spawn(move || std::io::copy(&mut program, &mut input));
        }
    }

    /// The next answer, which may take `limit`.
    fn answer(&mut self, limit: Option<Duration>, interrupt: &Interrupt) -> Outcome<String> {
        let begin = Instant::now();
        loop {
            match self.answers.recv_timeout(BEAT) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Disconnected) => return Err(self.ended()),
                Err(RecvTimeoutError::Timeout) => interrupt.check()?,
            }
            if let Some(limit) = limit
                && begin.elapsed() >= limit
            {
                return Err(Stop::new(
                    Code::TimeOut,
                    format!(
                        "{} did not answer within {} s",
                        self.destination,
                        limit.as_secs()
                    ),
                ));
            }
        }
    }

    /// The stop for a script that closed its output without an answer.
    fn ended(&mut self) -> Stop {
        // Its last output arrives until then.
        let _ = end_within(&mut self.child, FAREWELL);
        let why = self.stderr.text();
        let why = if why.is_empty() {
            "the connection closed early"
        } else {
            &why
        };
        Stop::new(
            Code::PeerUnreachable,
            format!("cannot copy linerate to {}: {why}", self.destination),
        )
    }
}

impl Drop for FarScript<'_> {
    fn drop(&mut self) {
        // It has answered, has ended, or is given up.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The script's answers; whatever else a shell prints at its start is passed over.
fn listen(output: Option<ChildStdout>) -> Receiver<String> {
    let (tell, answers) = mpsc::sync_channel(1);
    if let Some(output) = output {
        std::thread::spawn(move || {
            let mut lines = BufReader::new(output.take(OUTPUT_BYTES_MAX)).split(b'\n');
            while let Some(Ok(line)) = lines.next() {
                let line = printable(&String::from_utf8_lossy(&line));
                if let Some(answer) = line.strip_prefix("linerate-push ")
                    && tell.send(answer.trim_end().to_owned()).is_err()
                {
                    return;
                }
            }
        });
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_one_line_for_any_login_shell() {
        let script = script();
        assert!(!script.contains(['\'', '!', '\n', '#']), "{script}");
    }
}
