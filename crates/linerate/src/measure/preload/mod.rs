//! `measure stream PEER --preload rsocket`: the same plain program twice, over the kernel's TCP and with
//! librspreload preloaded at both ends (rsocket(7)), to show the effect of kernel bypass on an unmodified
//! program.
//!
//! linerate's own workloads call the kernel without the C library, so such a library would never see the calls; and it
//! supports neither epoll nor io_uring. So both ends are movers ([`mover`]), one process each. What the kernel's
//! TCP would report is unknown: no record, no limit, no ceiling.

pub(crate) mod mover;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::Path as FilePath;
use std::process::{Child, ChildStdin};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use linerate_analysis::record::Measurement;
use linerate_analysis::trial::figure::Figures;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::lab::Response;
use linerate_model::peer_address::PeerAddress;
use linerate_model::workload::TrialSpec;
use linerate_runtime::cli::{MeasureStream, PeerArgs, PreloadArg};
use linerate_runtime::console::clock::now_unix_s;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::console::random::fresh_token;
use linerate_runtime::console::say::Format;
use linerate_runtime::endpoint::peer::{
    FAREWELL, FarStderr, end_within, program_command, spawn_piped,
};
use linerate_runtime::endpoint::trial::open_path;
use linerate_traffic::mover::{Carried, Order};
use mover::{MoverReport, Role, Task};
use serde::Serialize;

use super::EarlyEnd;
use super::keep::{Between, Keeper};
use super::live::confirm_early_end;

/// How much longer than its time a trial may take.
const GRACE: Duration = Duration::from_secs(30);
/// How long a mover may take until it listens.
const LISTENS: Duration = Duration::from_secs(20);
/// How often Ctrl-C is listened for.
const BEAT: Duration = Duration::from_millis(100);

/// What `linerate measure stream PEER --preload rsocket --format json` prints: the same program over the kernel's TCP
/// and with a preloaded library.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PreloadDocument {
    schema: &'static str,
    #[cfg_attr(test, schemars(extend("enum" = ["stream"])))]
    workload: &'static str,
    peer: String,
    address: String,
    flows: u32,
    /// The kernel's TCP first. Only that if it was interrupted before the library carried anything.
    #[cfg_attr(test, schemars(length(min = 1, max = 2)))]
    carriers: Vec<Carrier>,
    /// The rate with the library over the rate of the kernel's TCP, one trial of each; null if there is only one.
    ratio: Option<f64>,
    /// Whether Ctrl-C or SIGTERM ended the last trial early.
    interrupted: bool,
}

/// What carried the stream, and how fast.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Carrier {
    #[serde(rename = "carrier")]
    #[cfg_attr(test, schemars(extend("enum" = ["tcp", "rsocket"])))]
    name: &'static str,
    /// As the receiver counted.
    bytes: u64,
    /// The receiver's, until the last connection ends.
    seconds: f64,
    rate_bit_per_s: f64,
    /// CPU seconds of the sender's process; work of the kernel outside of it is not included.
    cpu_local_s: f64,
    /// The same for the receiver.
    cpu_remote_s: f64,
}

impl Carrier {
    /// What is kept of it: its process has no other counters.
    fn measurement(&self) -> Measurement {
        #[expect(
            clippy::cast_precision_loss,
            reason = "an amount has no 53 bits that count"
        )]
        let gb = self.bytes as f64 / 1e9;
        let mut figures = Figures::default();
        let costs = [
            (Response::Rate, self.rate_bit_per_s),
            (Response::CpuLocal, self.cpu_local_s / gb),
            (Response::CpuPeer, self.cpu_remote_s / gb),
        ];
        for (response, value) in costs {
            if value.is_finite() && value > 0.0 {
                figures.push(response, value);
            }
        }
        Measurement {
            label: Some(self.name.to_owned()),
            workload: "stream".to_owned(),
            response: Response::Rate,
            figures,
            sample: None,
            limit: None,
            foreign: None,
        }
    }
}

/// Carries out `measure stream --preload`; `asked` is what the other options ask for.
pub(crate) fn stream(
    args: &MeasureStream,
    asked: &TrialSpec,
    preload: PreloadArg,
    keep: Keeper<'_>,
) -> Outcome<()> {
    let Keeper { state, say, .. } = keep;
    let peer = peer_of(args)?;
    check(asked)?;
    let interrupt = Interrupt::listen()?;
    let path = open_path(&peer, state, &interrupt, say)?;
    let address = SocketAddr::new(path.address, path.port.unwrap_or(0));
    say.note(&format!(
        "measuring stream to {} ({}), {} each over plain TCP and rsocket; Ctrl-C ends it early",
        path.address, peer.peer, asked.duration_ns
    ));
    let began_unix_s = now_unix_s();
    confirm_early_end(&interrupt, say, None);
    let trial = |preload: Option<PreloadArg>| {
        let ends = Ends {
            peer: &peer.peer,
            push: peer.reach.push,
            state,
            preload,
            interrupt: &interrupt,
        };
        ends.trial(address, asked)
    };
    let mut carriers = Vec::new();
    for (name, preload) in [("tcp", None), ("rsocket", Some(preload))] {
        if !interrupt.is_ending_early() {
            carriers.extend(trial(preload)?.map(|ends| carrier(name, ends)));
        }
    }
    let results = carriers.iter().map(Carrier::measurement).collect();
    keep.keep(
        began_unix_s,
        || Between::ends(&path, &peer, None),
        results,
        &[],
    );
    path.peer.leave_after_result(say)?;
    let Some(last) = carriers.last() else {
        return Err(Stop::interrupted());
    };
    let end = if interrupt.is_ending_early() {
        EarlyEnd::at(format!("{:.1} s of {}", last.seconds, last.name))
    } else {
        EarlyEnd(None)
    };
    let ratio = match &carriers[..] {
        [tcp, rsocket] => Some(rsocket.rate_bit_per_s / tcp.rate_bit_per_s),
        _ => None,
    };
    let document = PreloadDocument {
        schema: "linerate.preload/1",
        workload: "stream",
        peer: peer.peer.to_string(),
        address: address.ip().to_string(),
        flows: asked.flows,
        ratio,
        carriers,
        interrupted: !end.is_none(),
    };
    if say.format == Format::Json {
        say.json(&document)?;
    } else {
        say.lines(&in_words(&document))?;
    }
    end.or(say, || Ok(()))
}

/// A peer at which another program can be started.
fn peer_of(args: &MeasureStream) -> Outcome<PeerArgs> {
    let Some(peer) = args.peer.peer() else {
        let why = "`--preload` needs a linerate PEER, not `--iperf3`";
        return Err(Stop::new(Code::Usage, why));
    };
    if matches!(peer.peer, PeerAddress::Exec(_)) {
        let why =
            "`--preload` does not work with `exec:` peers: it must start another program there";
        return Err(Stop::new(Code::NotSupported, why).hint("use an ssh or netns peer"));
    }
    Ok(peer)
}

/// Only what a mover does can be requested.
fn check(asked: &TrialSpec) -> Outcome<()> {
    let plain = TrialSpec {
        flows: asked.flows,
        duration_ns: asked.duration_ns,
        interval_ns: asked.interval_ns,
        buffer_bytes: asked.buffer_bytes,
        unrecorded: asked.unrecorded,
        ..TrialSpec::default()
    };
    if *asked == plain {
        return Ok(());
    }
    let why = "`--preload` streams forward with plain blocking calls: only `--time`, `--flows`, \
        `--buffer`, `--address` and `--port` apply";
    Err(Stop::new(Code::Usage, why))
}

fn carrier(name: &'static str, (near, far): (Carried, Carried)) -> Carrier {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a rate has no 53 bits that count"
    )]
    let bits = far.bytes as f64 * 8.0;
    Carrier {
        name,
        bytes: far.bytes,
        seconds: far.seconds,
        rate_bit_per_s: bits / far.seconds,
        cpu_local_s: near.cpu_s,
        cpu_remote_s: far.cpu_s,
    }
}

fn in_words(document: &PreloadDocument) -> String {
    use linerate_model::units::BitRate;
    let mut lines = Vec::new();
    for one in &document.carriers {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rate is positive and far below 2^64"
        )]
        let rate = BitRate::from_bit_per_s(one.rate_bit_per_s as u64);
        lines.push(format!(
            "{:<8}  {rate}   ({:.1} s; CPU of the programs: local {:.2} s, remote {:.2} s)",
            one.name, one.seconds, one.cpu_local_s, one.cpu_remote_s
        ));
    }
    if let Some(ratio) = document.ratio {
        let trials = if document.interrupted {
            "one trial of each, the second one ended early"
        } else {
            "one trial of each"
        };
        lines.push(format!(
            "ratio     {ratio:.3}   (rsocket over tcp, {trials})"
        ));
    }
    lines.join("\n")
}

/// Both ends of one trial.
struct Ends<'a> {
    peer: &'a PeerAddress,
    push: bool,
    state: &'a FilePath,
    preload: Option<PreloadArg>,
    interrupt: &'a Interrupt,
}

impl Ends<'_> {
    /// What the sender here and the receiver there did; none if it was ended early before anything was sent.
    fn trial(&self, address: SocketAddr, asked: &TrialSpec) -> Outcome<Option<(Carried, Carried)>> {
        let order = Order {
            flows: asked.flows,
            buffer_bytes: asked.buffer_bytes,
            duration_ns: asked.duration_ns,
            token: fresh_token()?,
        };
        let mut far = Mover::start(self, self.peer, address, Role::Receives, &order)?;
        let MoverReport::Listens(port) = far.hear(LISTENS, self.interrupt)? else {
            return Err(far.nonsense());
        };
        let target = SocketAddr::new(address.ip(), port);
        let mut near = Mover::start(self, &PeerAddress::Local, target, Role::Sends, &order)?;
        let limit = Duration::from(order.duration_ns) + GRACE;
        let ends_early = self.interrupt.during_trial(near.early_end());
        let near = near.carried(limit, self.interrupt)?;
        let far = far.carried(limit, self.interrupt)?;
        drop(ends_early);
        if far.bytes == 0 && self.interrupt.is_ending_early() {
            return Ok(None);
        }
        if self.preload.is_some() && (near.by_kernel || far.by_kernel) {
            let why = "librspreload fell back to kernel TCP: no RDMA path between the ends at \
                this address, or the module rdma_ucm is not loaded";
            return Err(Stop::new(Code::NotSupported, why)
                .hint("create a device with `linerate testbed rxe`; check rdma_cm with `rping`"));
        }
        Ok(Some((near, far)))
    }
}

/// A mover that runs. It ends with its standard input.
struct Mover {
    name: String,
    child: Child,
    input: Option<Arc<ChildStdin>>,
    said: Receiver<String>,
    stderr: FarStderr,
}

impl Mover {
    fn start(
        ends: &Ends<'_>,
        at: &PeerAddress,
        address: SocketAddr,
        role: Role,
        order: &Order,
    ) -> Outcome<Self> {
        let words: &[&str] = match ends.preload {
            None => &["--quiet", "mover"],
            Some(PreloadArg::Rsocket) => &["--quiet", "mover", "--preload", "rsocket"],
        };
        let push = ends.push && matches!(at, PeerAddress::Ssh { .. });
        let mut command = program_command(at, push, ends.state, words, ends.interrupt)?;
        linerate_testbed::shield_from_interrupts(&mut command);
        let mut child = spawn_piped(&mut command)
            .map_err(|error| Stop::io(format!("start a mover at {at}"), error))?;
        let task = Task {
            address,
            role,
            order: order.clone(),
        };
        let mut line = serde_json::to_vec(&task)
            .map_err(|error| Stop::new(Code::Bug, "cannot write a task").because(error))?;
        line.push(b'\n');
        let said = listen(child.stdout.take());
        let stderr = FarStderr::read(child.stderr.take());
        let input = child.stdin.take().map(Arc::new);
        if let Some(input) = &input {
            // If it has ended, the reason is reported below.
            let _ = input.as_ref().write_all(&line);
        }
        let name = match role {
            Role::Receives => format!("the peer {at} reports: "),
            Role::Sends => String::new(),
        };
        Ok(Self {
            name,
            child,
            input,
            said,
            stderr,
        })
    }

    /// How it is made to stop sending.
    fn early_end(&self) -> impl FnOnce() + Send + 'static + use<> {
        let input = self.input.as_ref().map(Arc::downgrade);
        move || {
            if let Some(input) = input.and_then(|input| input.upgrade()) {
                // One that has ended sends nothing.
                let _ = input.as_ref().write_all(b"end\n");
            }
        }
    }

    /// Its next message.
    fn hear(&mut self, limit: Duration, interrupt: &Interrupt) -> Outcome<MoverReport> {
        let deadline = Instant::now() + limit;
        loop {
            match self.said.recv_timeout(BEAT) {
                Ok(line) => return serde_json::from_str(&line).map_err(|_| self.nonsense()),
                Err(mpsc::RecvTimeoutError::Timeout) if Instant::now() < deadline => {
                    interrupt.check()?;
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let why = format!("{}nothing within {} s", self.name, limit.as_secs());
                    return Err(Stop::new(Code::TimeOut, why));
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    return Err(self.failure().unwrap_or_else(|| self.nonsense()));
                }
            }
        }
    }

    fn carried(&mut self, limit: Duration, interrupt: &Interrupt) -> Outcome<Carried> {
        match self.hear(limit, interrupt)? {
            MoverReport::Carried(carried) => Ok(carried),
            MoverReport::Listens(_) => Err(self.nonsense()),
        }
    }

    /// Why it exited, in its own words and with its own code; none when it succeeded.
    fn failure(&mut self) -> Option<Stop> {
        // It may still run: with its input it ends.
        self.input = None;
        let number = end_within(&mut self.child, FAREWELL)?.code();
        let code = Code::ALL
            .into_iter()
            .find(|code| number == Some(code.number().into()))
            .unwrap_or(Code::FailedRestored);
        let text = self.stderr.text();
        let text = text.trim_start_matches("error: ");
        (code != Code::Done && !text.is_empty())
            .then(|| Stop::new(code, format!("{}{text}", self.name)))
    }

    fn nonsense(&self) -> Stop {
        let why = format!(
            "{}an invalid message: both ends must run the same version of linerate",
            self.name
        );
        Stop::new(Code::PeerUnreachable, why)
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A longer line is no mover's.
const LINE_BYTES_MAX: u64 = 64 << 10;

/// The lines of a stream, read in a separate thread.
fn listen(stream: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (tell, lines) = mpsc::channel();
    if let Some(stream) = stream {
        std::thread::spawn(move || {
            for line in BufReader::new(stream.take(LINE_BYTES_MAX)).lines() {
                let Ok(line) = line else { break };
                if tell.send(line).is_err() {
                    break;
                }
            }
        });
    }
    lines
}
