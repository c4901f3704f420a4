//! How long a host is disconnected by a change that breaks its management path, until it is reachable again.

use std::fmt;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use linerate_bench_shared::{Trouble, child_of};
use rustix::process::{Pid, Signal, kill_process};

use crate::host::Host;
use crate::kinds::Kind;
use crate::namespace::{NEAR, Namespace};

/// A frame of this size passes before and after, and not while the change is there.
const PAYLOAD: [u8; 1_400] = [7; 1_400];
/// How often one is sent.
const EVERY: Duration = Duration::from_millis(10);
/// How much longer than the deadline is watched.
const AFTER: Duration = Duration::from_secs(2);
/// Larger frames are dropped, and the remote end is not notified.
const CUT: Kind = Kind {
    name: "MTU",
    key: "nic/near0/mtu",
    to: "1280",
};

/// What is done to the process that made the change.
#[derive(Debug, Clone, Copy)]
enum Fate {
    /// Nothing: the change is not confirmed.
    Waits,
    /// SIGKILL.
    Killed,
    /// SIGSTOP.
    Hangs,
    /// Its reverter gets SIGKILL.
    Alone,
}

/// How long nothing came through.
#[derive(Debug)]
pub(crate) struct Gap {
    fate: Fate,
    pub(crate) longest: Duration,
    deadline: Duration,
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.fate {
            Fate::Waits => "no confirmation",
            Fate::Killed => "the process that made it is killed",
            Fate::Hangs => "the process that made it is stopped",
            Fate::Alone => "its reverter is killed",
        };
        write!(
            f,
            "change that disconnects the host, {what}: unreachable for {:.2} s of at most {} s",
            self.longest.as_secs_f64(),
            self.deadline.as_secs()
        )
    }
}

/// The longest time without a frame, for each fate.
pub(crate) fn gaps(host: &mut Namespace, deadline: Duration) -> Result<Vec<Gap>, Trouble> {
    let fates = [Fate::Waits, Fate::Killed, Fate::Hangs, Fate::Alone];
    let gap = |fate| {
        Ok(Gap {
            fate,
            longest: longest(host, fate, deadline)?,
            deadline,
        })
    };
    fates.into_iter().map(gap).collect()
}

fn longest(host: &mut Namespace, fate: Fate, deadline: Duration) -> Result<Duration, Trouble> {
    let trouble = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| Trouble(format!("{what}: {error}"))
    };
    let port = 7_777;
    let near = host
        .near
        .inside(|| UdpSocket::bind((NEAR, port)))
        .and_then(|bound| bound)
        .map_err(trouble("open a socket on the local host"))?;
    let far = host
        .far
        .inside(|| UdpSocket::bind("0.0.0.0:0"))
        .and_then(|bound| bound)
        .map_err(trouble("open a socket on the remote host"))?;
    near.set_read_timeout(Some(EVERY))
        .map_err(trouble("set a timeout"))?;
    let file = (host as &mut dyn Host).plan(&[CUT])?;
    let limit = deadline.as_secs().to_string();
    let arguments = ["tune", "apply", "--from", &file, "--deadline", &limit];
    let mut command = host.command(&arguments);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    host.near
        .enter_in_child(&mut command)
        .map_err(trouble("enter the local host"))?;
    let mut maker = command.spawn().map_err(trouble("start linerate"))?;
    let begun = Instant::now();
    let (mut last, mut longest, mut is_struck) = (begun, Duration::ZERO, false);
    let mut buffer = [0; 2_000];
    while begun.elapsed() < deadline + AFTER {
        // A frame that does not fit is what is waited for, not an error.
        let _ = far.send_to(&PAYLOAD, (NEAR, port));
        match near.recv(&mut buffer) {
            Ok(_) => {
                longest = longest.max(last.elapsed());
                last = Instant::now();
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => return Err(Trouble(format!("read from the remote host: {error}"))),
        }
        // It is cut off: now it happens.
        if !is_struck && last.elapsed() > 10 * EVERY {
            strike(fate, &maker);
            is_struck = true;
        }
    }
    if !is_struck {
        return Err(Trouble("cut the host off".to_owned()));
    }
    longest = longest.max(last.elapsed());
    let _ = maker.kill();
    maker.wait().map_err(trouble("wait for linerate"))?;
    Ok(longest)
}

fn strike(fate: Fate, maker: &Child) {
    let (pid, signal) = match fate {
        Fate::Waits => return,
        Fate::Killed => (Some(maker.id()), Signal::KILL),
        Fate::Hangs => (Some(maker.id()), Signal::STOP),
        Fate::Alone => (child_of(maker.id()), Signal::KILL),
    };
    let pid = pid
        .and_then(|pid| i32::try_from(pid).ok())
        .and_then(Pid::from_raw);
    if let Some(pid) = pid {
        let _ = kill_process(pid, signal);
    }
}
