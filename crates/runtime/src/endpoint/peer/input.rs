//! The standard input of an agent, through which it gets requests.

use std::io::{self, Write as _};
use std::process::ChildStdin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::protocol::Request;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// The standard input of the agent; none when it is closed. Ctrl-C writes to it from another thread.
#[derive(Debug, Clone)]
pub(super) struct Input(Arc<Mutex<Option<ChildStdin>>>);

impl Input {
    pub(super) fn of(input: Option<ChildStdin>) -> Self {
        if let Some(input) = &input {
            // If this fails, a write may wait for longer than it should.
            let _ =
                fcntl_getfl(input).and_then(|flags| fcntl_setfl(input, flags | OFlags::NONBLOCK));
        }
        Self(Arc::new(Mutex::new(input)))
    }

    /// Writes a request. An agent that does not read it within `limit` gets no other one: the rest of a line is not written.
    pub(super) fn write(&self, request: &Request, limit: Duration) -> Outcome<io::Result<()>> {
        let mut line = serde_json::to_vec(request)
            .map_err(|e| Stop::new(Code::Bug, "cannot write a request").because(e))?;
        line.push(b'\n');
        let mut input = self.lock();
        let written = match &mut *input {
            Some(input) => write_within(input, &line, limit),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        if written.is_err() {
            *input = None;
        }
        Ok(written)
    }

    pub(super) fn close(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<ChildStdin>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write_within(input: &mut ChildStdin, mut bytes: &[u8], limit: Duration) -> io::Result<()> {
    let deadline = Instant::now() + limit;
    while !bytes.is_empty() {
        match input.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                let wait = Timespec::try_from(left).unwrap_or_default();
                match poll(&mut [PollFd::new(input, PollFlags::OUT)], Some(&wait)) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn child(program: &str) -> Child {
        Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("it is installed")
    }

    /// More than a pipe holds.
    fn large() -> Request {
        Request::Keep(vec!["x".repeat(1 << 20)])
    }

    #[test]
    fn a_request_that_nobody_reads_ends_at_its_limit_and_closes_the_stream() {
        let mut child = child("yes");
        let input = Input::of(child.stdin.take());
        let limit = Duration::from_millis(50);
        let written = input.write(&large(), limit).expect("it is a request");
        assert_eq!(
            written.expect_err("nobody reads").kind(),
            io::ErrorKind::TimedOut
        );
        let written = input.write(&Request::Bye, limit).expect("it is a request");
        assert_eq!(
            written.expect_err("it is closed").kind(),
            io::ErrorKind::BrokenPipe
        );
        child.kill().expect("it runs");
        child.wait().expect("it was killed");
    }

    #[test]
    fn a_request_larger_than_the_pipe_is_written_whole() {
        let mut child = Command::new("wc")
            .arg("-c")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it is installed");
        let input = Input::of(child.stdin.take());
        let limit = Duration::from_secs(3_600);
        let written = input.write(&large(), limit).expect("it is a request");
        written.expect("it is read");
        input.close();
        let counted = child.wait_with_output().expect("it ends");
        let length = serde_json::to_vec(&large()).expect("it is valid").len() + 1;
        assert_eq!(
            String::from_utf8_lossy(&counted.stdout).trim(),
            length.to_string()
        );
    }
}
