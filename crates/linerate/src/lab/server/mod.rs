//! Any HTTP server as the machine under test of an experiment: `lab run --url URL --server COMMAND`.
//!
//! The command runs on this host, under the memory policy and on the CPUs of each trial, and the peer loads it: the
//! agent at the peer executes nothing, and connects to no other host than this one. `process` is the started server,
//! `launcher` the process above it, `elsewhere` a server on a host that linerate does not run on.

pub(super) mod elsewhere;
pub(crate) mod launcher;
mod process;

use std::net::IpAddr;

use linerate_host::processes::CpuUse;
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::lab::{Experiment, LoadedServer, ServerAt, Word, Words};
use linerate_model::protocol::Failure;
use linerate_model::sample::{Sample, SideSample};
use linerate_model::units::Nanoseconds;
use linerate_model::workload::{OtherServer, TrialSpec, Workload};
use linerate_runtime::cli::LabRunArgs;
use linerate_runtime::console::interrupt::Interrupt;
use linerate_runtime::endpoint::trial::{PeerPath, source_towards};
use linerate_traffic::http::Target;

use self::launcher::Job;
use self::process::ServerProcess;

/// Options that place the server, with the value that leaves it as it is.
const OF_THE_SERVER: [(&str, &str); 2] = [("memory", "default"), ("place", "free")];
/// The same of the load generator: nothing but what the experiment asks for.
const OF_THE_LOAD: [(&str, &str); 2] = [("memory-remote", "default"), ("place-remote", "free")];

/// The server that the command line requests. Where it runs is found out when the path is known: see [`placed`].
pub(super) fn requested(
    args: &LabRunArgs,
    experiment: &Experiment,
) -> Outcome<Option<LoadedServer>> {
    let Some(url) = &args.url else {
        return Ok(None);
    };
    let (target, path) = Target::parse(url).map_err(|error| Stop::from(Failure::from(&error)))?;
    experiment.check_for_server().map_err(|error| {
        Stop::new(Code::Usage, format!("cannot use `--url`: {}", error.why))
            .hint("use an experiment with the workload `http`, such as memory-policy-rfs")
    })?;
    Ok(Some(LoadedServer {
        url: url.clone(),
        address: target.address,
        host: target.host,
        path,
        command: args.server.clone(),
        at: ServerAt::Elsewhere,
    }))
}

/// The server on the path: at this end, which the peer loads, or at the other.
pub(super) fn placed(mut server: LoadedServer, path: &PeerPath) -> Outcome<LoadedServer> {
    let here = source_towards(path.address)
        .map_err(|error| Stop::io(format!("find the path to {}", path.address), error))?;
    let named = server.address.ip();
    server.at = if named == here {
        ServerAt::Here
    } else if named == path.address && server.command.is_none() {
        ServerAt::Peer
    } else {
        return Err(not_on_the_path(&server, here, path.address));
    };
    Ok(server)
}

fn not_on_the_path(server: &LoadedServer, here: IpAddr, there: IpAddr) -> Stop {
    let LoadedServer { address, path, .. } = server;
    let (why, host) = if address.ip() == there {
        let why = format!(
            "cannot start the server at {address}: that is the peer, and `--server` starts a \
             command on this host only"
        );
        (why, here)
    } else {
        let why = format!(
            "cannot load the server at {address}: on the path to the peer, this host has the \
             address {here} and the peer {there}"
        );
        (why, here)
    };
    let at = std::net::SocketAddr::new(host, address.port());
    Stop::new(Code::BadInput, why).hint(format!("use `--url http://{at}{path}`"))
}

/// The options of a trial that loads the server. A level that would place a server that runs already is not available.
pub(super) fn options(server: &LoadedServer, options: &mut Words) -> Outcome<()> {
    let text = |text: &str| Word::Text(text.to_owned());
    if server.command.is_none() {
        for (name, neutral) in OF_THE_SERVER {
            match options.remove(name) {
                Some(word) if word.to_string() != neutral => {
                    let why = format!(
                        "`{name} = {word}` needs `--server`: linerate does not start this server"
                    );
                    return Err(Stop::new(Code::NotSupported, why));
                }
                _ => {}
            }
        }
    }
    if server.at == ServerAt::Here {
        options.insert("reverse".to_owned(), Word::Switch(true));
        for (name, neutral) in OF_THE_LOAD {
            options.entry(name.to_owned()).or_insert(text(neutral));
        }
    }
    options.insert("path".to_owned(), text(&server.path));
    Ok(())
}

/// Has a trial load the server.
pub(super) fn load(server: &LoadedServer, spec: &mut TrialSpec) -> Outcome<()> {
    if spec.placement.by_receive_cpu {
        let why = "`by-rx-cpu` places linerate's own threads, and another program is the server";
        return Err(Stop::new(Code::NotSupported, why));
    }
    if let Workload::Http(http) = &mut spec.workload
        && server.at != ServerAt::Elsewhere
    {
        http.server = Some(OtherServer {
            port: server.address.port(),
            host: server.host.clone(),
        });
    }
    Ok(())
}

/// Runs the trials of `run` with the server: started for them, and stopped however they end.
pub(super) fn with_server(
    server: &LoadedServer,
    specs: &[TrialSpec],
    interrupt: &Interrupt,
    run: impl FnOnce() -> Outcome<Vec<Sample>>,
) -> Outcome<Vec<Sample>> {
    let (Some(command), Some(spec)) = (&server.command, specs.first()) else {
        let mut samples = run()?;
        if let Some(sample) = samples.first_mut() {
            set_cpu_use(server_side(server, sample), None);
        }
        return Ok(samples);
    };
    let job = Job {
        command: command.clone(),
        cpus: spec.placement.receiver_cpus.clone(),
        memory: spec.placement.receiver_memory.clone(),
    };
    let process = ServerProcess::start(&job, server.address, interrupt)?;
    let before = process.cpu_use();
    let samples = run();
    let after = process.cpu_use();
    let ended = process.ended();
    let stopped = process.stop();
    // That the server ended is the cause of whatever the trial reports.
    if let Some(ended) = ended
        && samples.as_ref().err().map(|stop| stop.code) != Some(Code::Interrupted)
    {
        let why = format!("the server did not survive the trial: it {ended}");
        return Err(Stop::new(Code::FailedRestored, why));
    }
    let mut samples = match (samples, stopped) {
        (Ok(samples), Ok(())) => samples,
        (Err(stop), Ok(())) => return Err(stop),
        (Ok(_), Err(left)) => return Err(left),
        (Err(stop), Err(left)) => return Err(left.after(&stop.message)),
    };
    if let Some(sample) = samples.first_mut() {
        let used = before.and_then(|before| Ok(after?.since(before))).ok();
        set_cpu_use(server_side(server, sample), used);
    }
    Ok(samples)
}

fn server_side<'a>(server: &LoadedServer, sample: &'a mut Sample) -> &'a mut SideSample {
    match server.at {
        ServerAt::Here => &mut sample.local,
        ServerAt::Peer | ServerAt::Elsewhere => &mut sample.remote,
    }
}

/// The CPU time of the server instead of that of linerate's threads, which only wait; without it, none is known.
fn set_cpu_use(side: &mut SideSample, used: Option<CpuUse>) {
    let used = used.unwrap_or_default();
    side.threads.clear();
    side.cpu.threads_user_ns = used.user;
    side.cpu.threads_system_ns = used.system;
    for flow in &mut side.flows {
        flow.user_ns = Nanoseconds::default();
        flow.system_ns = Nanoseconds::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(command: Option<&str>, at: ServerAt) -> LoadedServer {
        LoadedServer {
            url: "http://10.77.0.1:8080/a".to_owned(),
            address: "10.77.0.1:8080".parse().expect("an address"),
            host: "10.77.0.1:8080".to_owned(),
            path: "/a".to_owned(),
            command: command.map(str::to_owned),
            at,
        }
    }

    fn words(pairs: &[(&str, &str)]) -> Words {
        let pair =
            |(name, word): &(&str, &str)| ((*name).to_owned(), Word::Text((*word).to_owned()));
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn only_a_server_that_linerate_starts_can_be_placed() {
        let mut placed = words(&[("memory", "local"), ("place", "near")]);
        options(&server(Some("nginx"), ServerAt::Here), &mut placed).expect("it is started");
        let text = |name: &str| placed[name].to_string();
        assert_eq!(
            (text("memory"), text("place")),
            ("local".to_owned(), "near".to_owned())
        );
        assert_eq!(
            text("memory-remote"),
            "default",
            "the load generator is not placed"
        );
        assert_eq!(placed["reverse"], Word::Switch(true));

        for at in [ServerAt::Here, ServerAt::Peer, ServerAt::Elsewhere] {
            let running = server(None, at);
            let mut free = words(&[("memory", "default"), ("place", "free")]);
            options(&running, &mut free).expect("nothing to place");
            let stop = options(&running, &mut words(&[("memory", "local")])).expect_err("it runs");
            assert_eq!(stop.code, Code::NotSupported);
            assert!(stop.message.contains("--server"), "{stop}");
        }
    }

    #[test]
    fn an_address_beside_the_path_is_refused_with_the_url_that_fits() {
        let [here, there] = ["10.1.0.1", "10.1.0.2"].map(|ip| ip.parse().expect("an address"));
        let stop = not_on_the_path(&server(None, ServerAt::Elsewhere), here, there);
        assert_eq!(
            stop.hint.as_deref(),
            Some("use `--url http://10.1.0.1:8080/a`")
        );
    }
}
