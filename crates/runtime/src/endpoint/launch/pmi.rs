//! PMI-1, the wire protocol between a launcher and the processes that it starts (MPICH's Hydra, Intel MPI, Slurm's pmi2 plugin): lines
//! of `key=value` words. Only what a rendezvous needs: put a value, wait for all, get it.
//!
//! Source: MPICH, `src/pmi/src/pmi_v1.c` and `pmi_wire.c`.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use linerate_model::exit::{Code, Outcome, Stop};

/// The longest line: PMI's own limit is 1,024 for a value.
const LINE_BYTES_MAX: usize = 4096;

/// The key of the root's pairing line.
const KEY: &str = "linerate-root";

/// Passes the pairing line from the root, which has one, to all others; returns it. Every process of the launcher must take part.
pub(super) fn exchange(
    stream: impl Read + Write,
    id: Option<&str>,
    line: Option<&str>,
) -> Outcome<String> {
    let mut client = Client { stream };
    if let Some(id) = id {
        client.ask(&format!("cmd=initack pmiid={id}"))?;
    }
    client.ask("cmd=init pmi_version=1 pmi_subversion=1")?;
    let mut names = client.ask("cmd=get_my_kvsname")?;
    let name = names
        .remove("kvsname")
        .ok_or_else(|| failed("it names no key-value space"))?;
    if let Some(line) = line {
        client.ask(&format!("cmd=put kvsname={name} key={KEY} value={line}"))?;
    }
    client.ask("cmd=barrier_in")?;
    let mut found = client.ask(&format!("cmd=get kvsname={name} key={KEY}"))?;
    let line = found
        .remove("value")
        .ok_or_else(|| failed("rank 0 has put no pairing line"))?;
    // After it the launcher takes the end of this process for a regular one.
    client.ask("cmd=finalize")?;
    Ok(line)
}

struct Client<S> {
    stream: S,
}

impl<S: Read + Write> Client<S> {
    /// Sends a command and reads its answer.
    fn ask(&mut self, command: &str) -> Outcome<BTreeMap<String, String>> {
        let word = command.split(' ').next().unwrap_or_default().to_owned();
        let cannot = |error: io::Error| {
            Stop::new(
                Code::PeerUnreachable,
                format!("cannot ask the launcher over PMI (`{word}`)"),
            )
            .because(error)
        };
        let sent = self.stream.write_all(format!("{command}\n").as_bytes());
        sent.and_then(|()| self.stream.flush()).map_err(cannot)?;
        let line = self.line().map_err(cannot)?;
        let words = line
            .split_whitespace()
            .filter_map(|word| word.split_once('='));
        let answer: BTreeMap<String, String> = words
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        match answer.get("rc").map(String::as_str) {
            None | Some("0") => Ok(answer),
            Some(_) => Err(failed(&format!(
                "`{word}` is answered by `{}`",
                line.trim()
            ))),
        }
    }

    /// Byte by byte: what follows the line belongs to the next answer.
    fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        let mut byte = [0];
        while line.len() < LINE_BYTES_MAX {
            match self.stream.read(&mut byte) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) if byte[0] == b'\n' => return Ok(String::from_utf8_lossy(&line).into_owned()),
                Ok(_) => line.push(byte[0]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the answer has no end",
        ))
    }
}

fn failed(why: &str) -> Stop {
    Stop::new(Code::PeerUnreachable, format!("cannot find the root over PMI: {why}")).hint(
        "start every process by the same launcher, one on each host, with `linerate mesh` as its program",
    )
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A launcher that answers each command by `answers`; returns the commands.
    fn launcher(stream: UnixStream, answers: &[(&str, &str)]) -> Vec<String> {
        let mut commands = Vec::new();
        let mut to = stream.try_clone().expect("a handle");
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let answer = answers.iter().find(|(start, _)| line.starts_with(start));
            if let Some((_, answer)) = answer {
                to.write_all(answer.as_bytes()).expect("it listens");
            }
            commands.push(line);
        }
        commands
    }

    const ANSWERS: [(&str, &str); 6] = [
        (
            "cmd=init",
            "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n",
        ),
        ("cmd=get_my_kvsname", "cmd=my_kvsname kvsname=kvs_7\n"),
        ("cmd=put", "cmd=put_result rc=0 msg=success\n"),
        ("cmd=barrier_in", "cmd=barrier_out\n"),
        (
            "cmd=get ",
            "cmd=get_result rc=0 msg=success value=tls://h1:1#k.t.9\n",
        ),
        ("cmd=finalize", "cmd=finalize_ack\n"),
    ];

    /// What a process gets, and what the launcher is asked.
    fn exchanged(line: Option<&str>, answers: &[(&str, &str)]) -> (Outcome<String>, Vec<String>) {
        let (near, far) = UnixStream::pair().expect("a pair");
        std::thread::scope(|scope| {
            let launcher = scope.spawn(move || launcher(far, answers));
            let got = exchange(near, None, line);
            (got, launcher.join().expect("no panic"))
        })
    }

    #[test]
    fn the_root_puts_its_line_before_the_barrier_and_all_get_it_after_it() {
        let (got, commands) = exchanged(Some("tls://h1:1#k.t.9"), &ANSWERS);
        assert_eq!(got.expect("a line"), "tls://h1:1#k.t.9");
        let words: Vec<&str> = commands
            .iter()
            .filter_map(|line| line.split(' ').next())
            .collect();
        assert_eq!(
            words,
            [
                "cmd=init",
                "cmd=get_my_kvsname",
                "cmd=put",
                "cmd=barrier_in",
                "cmd=get",
                "cmd=finalize"
            ]
        );
        assert_eq!(
            commands[2],
            "cmd=put kvsname=kvs_7 key=linerate-root value=tls://h1:1#k.t.9"
        );
        let (got, commands) = exchanged(None, &ANSWERS);
        assert_eq!(got.expect("a line"), "tls://h1:1#k.t.9");
        assert!(
            !commands.iter().any(|line| line.starts_with("cmd=put")),
            "{commands:?}"
        );
    }

    #[test]
    fn a_launcher_that_refuses_or_goes_away_is_an_error_that_names_the_command() {
        let refuses = [("cmd=init", "cmd=response_to_init rc=-1\n")];
        let (got, _) = exchanged(None, &refuses);
        let stop = got.expect_err("refused");
        assert!(stop.message.contains("`cmd=init`"), "{}", stop.message);
        let (near, far) = UnixStream::pair().expect("a pair");
        drop(far);
        let stop = exchange(near, None, None).expect_err("gone");
        assert_eq!(stop.code, Code::PeerUnreachable);
        let endless = [("cmd=init", &*"x".repeat(LINE_BYTES_MAX + 1))];
        let (got, _) = exchanged(None, &endless);
        assert_eq!(got.expect_err("endless").code, Code::PeerUnreachable);
    }
}
