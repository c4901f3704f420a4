//! `linerate agent --listen`: what the owner permits becomes the terms of each session, a process of its own.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use linerate_analysis::text::words::seconds_in_words;
use linerate_channel::identity::Identity;
use linerate_channel::keys::{Listening, invite, listening_at};
use linerate_channel::listen::{AgentProcess, Caller, Event, Listen, bind, listen};
use linerate_channel::network::Network;
use linerate_host::apply::missing_rights;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::pairing::{DEFAULT_PORT, HostPort, Pairing, PairingToken};
use linerate_model::setting::needs;
use linerate_model::terms::{SessionTerms, TrialLimits};
use linerate_model::units::Nanoseconds;
use serde::Serialize;

use crate::cli::{ListenAddress, ListenArgs};
use crate::console::clock::now_unix_s;
use crate::console::interrupt::Interrupt;
use crate::console::random::fresh_token;
use crate::console::say::{Format, Say};
use crate::endpoint::local::LocalEndpoint;

/// Lines about refused callers in [`QUIET_AFTER`]; the rest is counted.
const REFUSALS_MAX: u32 = 10;
const QUIET_AFTER: Duration = Duration::from_secs(60);

/// How a session of a listening agent is started.
struct Sessions {
    state: PathBuf,
    changes: bool,
    commands: bool,
    limits: TrialLimits,
    ports: Option<linerate_model::ports::PortRange>,
}

impl AgentProcess for Sessions {
    fn command(&self, caller: &Caller) -> io::Result<(Command, Vec<u8>)> {
        let terms = SessionTerms {
            changes: self.changes,
            commands: self.commands,
            limits: self.limits.clone(),
            ports: self.ports,
            reached: caller.reached,
            listener_pid: std::process::id(),
        };
        // Also when the file of this program has been replaced meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command
            .arg("--state")
            .arg(&self.state)
            .args(["agent", "--stdio", "--session"]);
        linerate_testbed::tie_to_parent(&mut command);
        linerate_testbed::shield_from_interrupts(&mut command);
        Ok((command, serde_json::to_vec(&terms)?))
    }
}

/// `linerate agent --listen`.
pub fn run(
    args: &ListenArgs,
    address: Option<ListenAddress>,
    state: &Path,
    say: &Say,
) -> Outcome<()> {
    if args.allow_changes {
        require_rights()?;
    }
    let socket = socket(address)?;
    raise_file_limit();
    let at = socket
        .local_addr()
        .map_err(|error| Stop::io("read the address listened on", error))?;
    if let Some(ports) = args.data_ports.filter(|ports| ports.contains(at.port())) {
        let port = at.port();
        let why = format!("`--data-ports {ports}` contains port {port}, where this agent listens");
        return Err(Stop::new(Code::Usage, why).hint("give a range without it"));
    }
    // A path of another user, or a damaged key, is an error before anybody connects.
    Identity::of(state)?;
    let advertised = (args.advertise.clone()).map_or_else(|| advertised(at, state), Ok)?;
    let _listening = Listening::at(state, &advertised)?;
    let interrupt = Interrupt::listen()?;
    say.note(&format!(
        "listening on {at} (TLS 1.3, paired hosts only); {}; Ctrl-C stops it",
        permitted(args)
    ));
    if !args.no_pairing {
        print_pairing(state, advertised, args.pair_within, say)?;
    }
    let sessions = Sessions {
        state: state.to_owned(),
        changes: args.allow_changes,
        commands: args.allow_commands,
        limits: limits(args),
        ports: args.data_ports,
    };
    let listen_options = Listen {
        socket,
        state: state.to_owned(),
        networks: args.allow_from.clone(),
        sessions_max: usize::try_from(args.max_sessions).unwrap_or(usize::MAX),
    };
    let refusals = Mutex::new(Refusals::default());
    let report = |event| {
        let mut refusals = refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = refusals.line_of(&event, Instant::now()) {
            say.note(&line);
        }
    };
    let stop = interrupt.abort().as_fd();
    Ok(listen(&listen_options, &sessions, &report, stop)?)
}

/// A pairing line in JSON.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PairingDocument {
    schema: &'static str,
    /// The line: a secret.
    line: String,
    /// When it expires, by the clock of the agent's host.
    expires_unix_s: u64,
}

/// `linerate agent pair`: a line of the agent that runs with this state folder, or of the next one.
pub fn pair(
    state: &Path,
    advertise: Option<HostPort>,
    within: Nanoseconds,
    say: &Say,
) -> Outcome<()> {
    let listening = listening_at(state)?;
    let of = state.display();
    match &listening[..] {
        [_] => {}
        [] => say.note(&format!(
            "no agent is running with the state folder {of}: another `--state` is another agent, and `--advertise` sets another address \
             than the default"
        )),
        [first, others @ ..] if advertise.is_none() => {
            let others: Vec<_> = others.iter().map(HostPort::to_string).collect();
            say.note(&format!(
                "several agents are running with the state folder {of}: the line is for {first}; `--advertise` chooses another: {}",
                others.join(", ")
            ));
        }
        _ => {}
    }
    let at = advertise.or_else(|| listening.into_iter().next());
    let at = at.map_or_else(|| advertised(default_address(), state), Ok)?;
    print_pairing(state, at, within, say)
}

/// Makes a token that pairs one host, and prints its line.
fn print_pairing(state: &Path, at: HostPort, within: Nanoseconds, say: &Say) -> Outcome<()> {
    let token = PairingToken(fresh_token()?.0);
    let now = now_unix_s();
    let expires_unix_s = now.saturating_add(Duration::from(within).as_secs());
    let key = Identity::of(state)?.key();
    invite(state, token, now, expires_unix_s)?;
    let line = Pairing {
        at,
        key,
        token,
        expires_unix_s,
    }
    .to_string();
    if say.format == Format::Json {
        return say.json_line(&PairingDocument {
            schema: "linerate.pairing/1",
            line,
            expires_unix_s,
        });
    }
    say.note(&format!(
        "pairing line, a secret for one host, valid for {}; pass it there as the peer, once:",
        exactly(within)
    ));
    say.data(&line)
}

/// The address of this host in a pairing line, if it listens at `at`.
pub(super) fn advertised(at: SocketAddr, state: &Path) -> Outcome<HostPort> {
    let port = at.port();
    if !at.ip().is_unspecified() {
        let host = at.ip().to_canonical().to_string();
        return Ok(HostPort { host, port });
    }
    let addresses = LocalEndpoint::open(state)?.addresses();
    let parsed = addresses.iter().filter_map(|one| {
        let (address, _) = one.address.split_once('/')?;
        address.parse::<IpAddr>().ok()
    });
    let is_own = |address: &IpAddr| match address {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local(),
    };
    let (four, six): (Vec<_>, Vec<_>) = parsed.filter(is_own).partition(IpAddr::is_ipv4);
    let first = four.into_iter().chain(six).next();
    let host = first.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)).to_string();
    Ok(HostPort { host, port })
}

/// Where an agent listens by default.
fn default_address() -> SocketAddr {
    (Ipv6Addr::UNSPECIFIED, DEFAULT_PORT).into()
}

fn socket(address: Option<ListenAddress>) -> Outcome<TcpListener> {
    let inherited = linerate_traffic::inherited_listener()
        .map_err(|error| Stop::io("use the socket of the service manager", error))?;
    if let Some(socket) = inherited {
        return match address {
            None => Ok(socket),
            Some(_) => Err(Stop::new(
                Code::Usage,
                "the service manager has passed a socket: leave the address of `--listen` out",
            )),
        };
    }
    let address = address.map_or_else(default_address, |address| address.0);
    bind(address).map_err(|error| {
        let in_use = error.kind() == io::ErrorKind::AddrInUse;
        let stop = Stop::io(format!("listen on {address}"), error);
        if in_use {
            stop.hint(format!(
                "`ss -ltnp sport = :{}` shows who does",
                address.port()
            ))
        } else {
            stop
        }
    })
}

/// Hundreds of connections of a trial arrive at once, and some shells allow 256 descriptors. A limit that cannot be raised is
/// found when it is reached.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current, maximum });
}

/// An agent that may change settings needs the capabilities to write them: what it lacks would be found in the middle of
/// somebody's experiment.
fn require_rights() -> Outcome<()> {
    let missing = missing_rights(&needs::ALL);
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(", ");
    Err(Stop::new(
        Code::PermissionMissing,
        format!("cannot permit changes of settings: this process lacks {names}"),
    )
    .hint("run it as root, or grant them in its service (`AmbientCapabilities=`)"))
}

/// A limit as it holds: whole minutes as such, other times not rounded to them.
fn exactly(time: Nanoseconds) -> String {
    let seconds = Duration::from(time).as_secs_f64();
    if seconds % 60.0 == 0.0 {
        seconds_in_words(time)
    } else {
        format!("{seconds} s")
    }
}

fn limits(args: &ListenArgs) -> TrialLimits {
    TrialLimits {
        duration_ns: args.max_time,
        rate_bit_per_s: args.max_rate,
        flows: args.max_flows,
        memory_bytes: args.max_memory,
        workloads: args.workloads.clone(),
    }
}

/// What the owner permits, for people.
fn permitted(args: &ListenArgs) -> String {
    let mut all = vec![if args.allow_changes {
        "settings may be changed".to_owned()
    } else {
        "settings may not be changed".to_owned()
    }];
    if args.allow_commands {
        all.push("commands may be run".to_owned());
    }
    all.extend(
        args.max_time
            .map(|most| format!("trials of at most {}", exactly(most))),
    );
    all.extend(args.max_rate.map(|most| format!("at most {most}")));
    all.extend(args.max_flows.map(|most| format!("at most {most} flows")));
    all.extend(
        args.max_memory
            .map(|most| format!("buffers of at most {most}")),
    );
    if !args.workloads.is_empty() {
        all.push(format!("only {}", args.workloads.join(", ")));
    }
    all.extend(
        args.data_ports
            .map(|ports| format!("data at ports {ports} too")),
    );
    if !args.allow_from.is_empty() {
        let networks: Vec<_> = args.allow_from.iter().map(Network::to_string).collect();
        all.push(format!("callers from {} only", networks.join(", ")));
    }
    all.join(", ")
}

/// How many refusals were printed lately.
#[derive(Default)]
struct Refusals {
    since: Option<Instant>,
    count: u32,
}

impl Refusals {
    /// The line for an event; `None` for a refusal too many: whoever makes keys and calls without end fills no log.
    fn line_of(&mut self, event: &Event, now: Instant) -> Option<String> {
        let of = |caller: &Caller| format!("{} (key {}..)", caller.address, caller.key.short());
        match event {
            Event::Paired(caller) => Some(format!("paired with {}", of(caller))),
            Event::Began(caller) => Some(format!("session of {} began", of(caller))),
            Event::Ended(caller) => Some(format!("session of {} ended", of(caller))),
            Event::Failed(why) => Some(why.clone()),
            Event::Outside(address) => {
                self.refusal(now, || format!("refused {address}: not in `--allow-from`"))
            }
            Event::Refused(caller, why) => {
                self.refusal(now, || format!("refused {}: {why}", of(caller)))
            }
        }
    }

    fn refusal(&mut self, now: Instant, line: impl FnOnce() -> String) -> Option<String> {
        if self.since.is_none_or(|since| now - since >= QUIET_AFTER) {
            self.since = Some(now);
            self.count = 0;
        }
        self.count += 1;
        match self.count {
            REFUSALS_MAX => Some("more refusals: not shown for a minute".to_owned()),
            ..REFUSALS_MAX => Some(line()),
            _ => None,
        }
    }
}

/// `linerate channel`: what ssh is for other peers.
pub fn connect(at: &HostPort, state: &Path) -> Outcome<u8> {
    let stream = |file: io::Result<std::os::fd::OwnedFd>| {
        file.map_err(|error| Stop::io("use the standard streams", error))
    };
    let session = linerate_channel::client::open(state, at)?;
    let input = stream(io::stdin().as_fd().try_clone_to_owned())?;
    let output = stream(io::stdout().as_fd().try_clone_to_owned())?;
    let errors = stream(io::stderr().as_fd().try_clone_to_owned())?;
    // The codes of this end's own failures are not the agent's to choose.
    Ok(match session.run(input, output, errors)? {
        code if code == Code::Done.number() || code == Code::RestoreIncomplete.number() => code,
        _ => Code::FailedRestored.number(),
    })
}

#[cfg(test)]
mod tests {
    use linerate_model::pairing::PublicKey;

    use super::*;

    #[test]
    fn refusals_without_end_are_ten_lines_a_minute() {
        let address = IpAddr::from([10, 0, 0, 1]);
        let caller = Caller {
            key: PublicKey([7; 32]),
            address,
            reached: address,
        };
        let refused = Event::Refused(caller.clone(), "no".to_owned());
        let mut refusals = Refusals::default();
        let begun = Instant::now();
        let lines = |refusals: &mut Refusals, now| {
            (0..100)
                .filter_map(|_| refusals.line_of(&refused, now))
                .count()
        };
        assert_eq!(lines(&mut refusals, begun), 10);
        assert_eq!(lines(&mut refusals, begun + QUIET_AFTER / 2), 0);
        assert_eq!(lines(&mut refusals, begun + QUIET_AFTER), 10);
        assert!(refusals.line_of(&Event::Ended(caller), begun).is_some());
    }
}
