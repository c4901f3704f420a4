//! What is compared: each case is one piece of work, done by linerate and by every peer that can do it. All
//! run in the same two namespaces (or over one loopback); what they print is read by `figures`.

use std::path::PathBuf;
use std::thread::available_parallelism;

use linerate_bench_shared::ratios::Better;

use crate::figures::{
    Figure, iperf2_bulk, iperf3_bulk, iperf3_datagrams, linerate_bulk, linerate_datagrams,
    linerate_operations, linerate_pingpong, mpi_pingpong, neper_bulk, neper_operations,
    qperf_operations, qperf_pingpong, sockperf_operations, wrk_requests,
};

/// The remote end's address.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// Where the server side listens.
    pub(crate) address: String,
    /// How linerate names the remote end.
    pub(crate) peer: String,
    /// Seconds of each trial.
    pub(crate) seconds: u32,
    /// linerate's program.
    pub(crate) linerate: PathBuf,
    /// Where it keeps its journals.
    pub(crate) state: PathBuf,
    /// The first and the last CPU that may be used.
    pub(crate) cpus: (u32, u32),
    /// How a plain MPI ping-pong is started, up to its own arguments.
    pub(crate) mpi: Option<Vec<String>>,
}

/// One piece of work.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// The unit of the figure.
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    /// linerate first.
    pub(crate) contestants: Vec<Contestant>,
}

/// One program that does the work.
#[derive(Debug, Clone)]
pub(crate) struct Contestant {
    pub(crate) name: &'static str,
    /// The Debian package that has it, or where it comes from.
    pub(crate) from: &'static str,
    /// Started at the remote end first, and killed afterwards; waited for until it listens on the port.
    pub(crate) server: Option<(Vec<String>, u16)>,
    /// Started at the local end; what it prints holds the figure.
    pub(crate) client: Vec<String>,
    pub(crate) figure: fn(&str) -> Option<Figure>,
}

impl Contestant {
    /// The programs that must be there.
    pub(crate) fn programs(&self) -> impl Iterator<Item = &str> {
        let server = self.server.as_ref().map(|(command, _)| command.as_slice());
        [Some(self.client.as_slice()), server]
            .into_iter()
            .flatten()
            .flat_map(|command| {
                // After `taskset -c CPU` comes the program itself.
                let own = if command.first().is_some_and(|word| word == "taskset") {
                    3
                } else {
                    0
                };
                [command.first(), command.get(own)]
            })
            .flatten()
            .map(String::as_str)
    }
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// All cases.
pub(crate) fn all(place: &Place) -> Vec<Case> {
    let mut cases = Vec::new();
    for flows in [1, 4, 64, 1_000, 4_000] {
        cases.push(stream(place, flows));
    }
    cases.push(stream_uncopied(place));
    for bytes in [1, 64] {
        cases.push(rr(place, bytes, false));
        cases.push(rr(place, bytes, true));
    }
    for (bytes, name) in [(4, "4 B"), (4 << 20, "4 MiB")] {
        cases.extend([false, true].map(|spinning| pingpong(place, bytes, name, spinning)));
    }
    for batch in ["gso", "mmsg", "single"] {
        cases.push(udp(place, batch));
    }
    cases.push(http_client(place));
    cases.push(http_server(place));
    cases
}

/// linerate with these arguments.
pub(crate) fn linerate(
    place: &Place,
    arguments: &str,
    figure: fn(&str) -> Option<Figure>,
) -> Contestant {
    let mut client = vec![place.linerate.display().to_string()];
    client.extend(words("--quiet --format json --state"));
    client.push(place.state.display().to_string());
    client.extend(words(arguments));
    Contestant {
        name: "linerate",
        from: "this project",
        server: None,
        client,
        figure,
    }
}

fn iperf3_server(place: &Place, program: &str) -> (Vec<String>, u16) {
    let command = format!("{program} --server --one-off --bind {}", place.address);
    (words(&command), 5201)
}

/// The most flows of an iperf3 client.
const IPERF3_FLOWS: u32 = 128;

/// A stream of iperf3, as the `program` of one version.
fn iperf3(place: &Place, program: &'static str, from: &'static str, flows: u32) -> Contestant {
    let Place {
        address, seconds, ..
    } = place;
    Contestant {
        name: program,
        from,
        server: Some(iperf3_server(place, program)),
        client: words(&format!(
            "{program} --client {address} --json --time {seconds} --parallel {flows} --length 131072"
        )),
        figure: iperf3_bulk,
    }
}

/// A stream of iperf2.
fn iperf2(place: &Place, flows: u32) -> Contestant {
    let Place {
        address, seconds, ..
    } = place;
    Contestant {
        name: "iperf2",
        from: "Debian: iperf",
        server: Some((words(&format!("iperf -s -B {address} -l 131072")), 5001)),
        client: words(&format!(
            "iperf -c {address} -t {seconds} -P {flows} -l 131072 -y C"
        )),
        figure: iperf2_bulk,
    }
}

fn neper(
    place: &Place,
    program: &str,
    options: &str,
    figure: fn(&str) -> Option<Figure>,
) -> Contestant {
    let seconds = place.seconds;
    Contestant {
        name: "neper",
        from: "github.com/google/neper, built and put on the path",
        server: Some((words(&format!("{program} {options} -l {seconds}")), 12866)),
        client: words(&format!(
            "{program} -c -H {} {options} -l {seconds}",
            place.address
        )),
        figure,
    }
}

fn stream(place: &Place, flows: u32) -> Case {
    let Place {
        address,
        seconds,
        peer,
        ..
    } = place;
    let plural = if flows == 1 { "" } else { "s" };
    let mut contestants = vec![linerate(
        place,
        &format!(
            "measure --no-store stream {peer} --address {address} --time {seconds} --flows {flows}"
        ),
        linerate_bulk,
    )];
    if flows <= IPERF3_FLOWS {
        let newest = "github.com/esnet/iperf, built and put on the path under this name";
        contestants.push(iperf3(place, "iperf3", "Debian: iperf3", flows));
        contestants.push(iperf3(place, "iperf3-newest", newest, flows));
        contestants.push(iperf2(place, flows));
    }
    // As many threads as linerate has by itself.
    let cpus = available_parallelism().map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(1));
    let threads = flows.min(cpus);
    let options = format!("-B 131072 -F {flows} -T {threads}");
    contestants.push(neper(place, "tcp_stream", &options, neper_bulk));
    Case {
        name: format!("stream, {flows} flow{plural}"),
        unit: "Gb/s",
        better: Better::More,
        contestants,
    }
}

/// The payload is thrown away in the receiving kernel.
fn stream_uncopied(place: &Place) -> Case {
    let Place {
        address,
        seconds,
        peer,
        ..
    } = place;
    Case {
        name: "stream, 1 flow, not copied on receive".to_owned(),
        unit: "Gb/s",
        better: Better::More,
        contestants: vec![
            linerate(
                place,
                &format!(
                    "measure --no-store stream {peer} --address {address} --time {seconds} --receive trunc"
                ),
                linerate_bulk,
            ),
            neper(
                place,
                "tcp_stream",
                "-B 131072 -F 1 -T 1 --skip-rx-copy",
                neper_bulk,
            ),
        ],
    }
}

fn rr(place: &Place, bytes: u32, spinning: bool) -> Case {
    let Place {
        address,
        seconds,
        peer,
        ..
    } = place;
    let wait = if spinning { "spin" } else { "blocking" };
    let mut contestants = vec![linerate(
        place,
        &format!(
            "measure --no-store rr {peer} --address {address} --time {seconds} --request {bytes}B \
             --response {bytes}B --wait {wait}"
        ),
        linerate_operations,
    )];
    // qperf and neper cannot spin; sockperf has no message below 14 bytes.
    if !spinning {
        contestants.push(Contestant {
            name: "qperf",
            from: "Debian: qperf",
            server: Some((words("qperf"), 19765)),
            client: words(&format!(
                "qperf {address} -t {seconds} -m {bytes} -v -uu tcp_lat"
            )),
            figure: qperf_operations,
        });
        contestants.push(neper(
            place,
            "tcp_rr",
            &format!("-F 1 -T 1 -Q {bytes} -R {bytes}"),
            neper_operations,
        ));
    }
    if bytes >= 14 {
        let how = if spinning { " --nonblocked" } else { "" };
        contestants.push(Contestant {
            name: "sockperf",
            from: "Debian: sockperf",
            server: Some((
                words(&format!("sockperf server --tcp -i {address} -p 11111{how}")),
                11111,
            )),
            client: words(&format!(
                "sockperf ping-pong --tcp -i {address} -p 11111 -t {seconds} -m {bytes}{how}"
            )),
            figure: sockperf_operations,
        });
    }
    Case {
        name: format!("rr, {bytes} B, {wait}"),
        unit: "1/s",
        better: Better::More,
        contestants,
    }
}

/// qperf blocks, Open MPI polls: each is compared with linerate in the same waiting mode.
fn pingpong(place: &Place, bytes: u32, name: &str, spinning: bool) -> Case {
    let Place {
        address,
        seconds,
        peer,
        ..
    } = place;
    // About as many as go into the others' time.
    let each_us = if bytes > 1 << 20 { 1_000 } else { 10 };
    let repetitions = (seconds * 1_000_000 / (2 * each_us)).max(10);
    let qperf = || Contestant {
        name: "qperf",
        from: "Debian: qperf",
        server: Some((words("qperf"), 19765)),
        client: words(&format!(
            "qperf {address} -t {seconds} -m {bytes} -v -uu tcp_lat"
        )),
        figure: qperf_pingpong,
    };
    let mpi = |mut client: Vec<String>| {
        client.extend([bytes.to_string(), repetitions.to_string()]);
        Contestant {
            name: "Open MPI",
            from: "Debian: openmpi-bin, libopenmpi-dev",
            server: None,
            client,
            figure: mpi_pingpong,
        }
    };
    let (wait, peer_of_ours) = if spinning {
        ("spin", place.mpi.clone().map(mpi))
    } else {
        ("blocking", Some(qperf()))
    };
    let ours = linerate(
        place,
        &format!(
            "measure pingpong {peer} --address {address} --sizes {bytes}B --wait {wait} \
             --repetitions {repetitions} --volume 1TiB"
        ),
        linerate_pingpong,
    );
    Case {
        name: format!("pingpong, {name}, {wait}"),
        unit: "us one way",
        better: Better::Less,
        contestants: std::iter::once(ours).chain(peer_of_ours).collect(),
    }
}

fn udp(place: &Place, batch: &str) -> Case {
    let Place {
        address,
        seconds,
        peer,
        ..
    } = place;
    Case {
        name: format!("udp, 1448 B, 1 flow, {batch}"),
        unit: "datagrams/s",
        better: Better::More,
        contestants: vec![
            linerate(
                place,
                &format!(
                    "measure udp {peer} --address {address} --time {seconds} --size 1448B --batch {batch}"
                ),
                linerate_datagrams,
            ),
            Contestant {
                name: "iperf3",
                from: "Debian: iperf3",
                server: Some(iperf3_server(place, "iperf3")),
                client: words(&format!(
                    "iperf3 --client {address} --json --time {seconds} --udp --bandwidth 0 --length 1448"
                )),
                figure: iperf3_datagrams,
            },
        ],
    }
}

/// The port of the server that is loaded.
const HTTP_PORT: u16 = 8088;
const CONNECTIONS: u32 = 100;

fn wrk(place: &Place, server: (Vec<String>, u16), name: &'static str) -> Contestant {
    let Place {
        address, seconds, ..
    } = place;
    Contestant {
        name,
        from: "Debian: wrk, nginx-light",
        server: Some(server),
        client: words(&format!(
            "wrk --threads 1 --connections {CONNECTIONS} --duration {seconds}s \
             http://{address}:{HTTP_PORT}/"
        )),
        figure: wrk_requests,
    }
}

fn nginx(place: &Place) -> (Vec<String>, u16) {
    let file = place.state.join("nginx.conf");
    (words(&format!("nginx -c {}", file.display())), HTTP_PORT)
}

/// What nginx answers: nothing from a disk, nothing logged, a connection for ever.
pub(crate) fn nginx_configuration(place: &Place) -> String {
    let folder = place.state.display();
    format!(
        "master_process off;\ndaemon off;\nuser root;\npid {folder}/nginx.pid;\nerror_log /dev/null;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n  access_log off;\n  keepalive_requests 1000000000;\n  keepalive_timeout 1h;\n\
         \x20 client_body_temp_path {folder}/b;\n  proxy_temp_path {folder}/p;\n\
         \x20 fastcgi_temp_path {folder}/f;\n  uwsgi_temp_path {folder}/u;\n  scgi_temp_path {folder}/s;\n\
         \x20 server {{ listen {}:{HTTP_PORT}; location / {{ return 200 \"{}\"; }} }}\n}}\n",
        place.address,
        "x".repeat(64)
    )
}

/// The client on the first CPU, the server on the last: where they compete for one, the scheduler is measured.
fn on_cpus(place: &Place, mut one: Contestant) -> Contestant {
    let pinned = |command: Vec<String>, cpu: u32| {
        let mut all = words(&format!("taskset -c {cpu}"));
        all.extend(command);
        all
    };
    let (first, last) = place.cpus;
    one.client = pinned(one.client, first);
    one.server = one
        .server
        .map(|(command, port)| (pinned(command, last), port));
    one
}

fn http_client(place: &Place) -> Case {
    let Place {
        address, seconds, ..
    } = place;
    let ours = linerate(
        place,
        &format!(
            "measure http http://{address}:{HTTP_PORT}/ --time {seconds} --connections {CONNECTIONS} \
             --threads 1"
        ),
        linerate_operations,
    );
    Case {
        name: format!("http client, {CONNECTIONS} connections, nginx"),
        unit: "requests/s",
        better: Better::More,
        contestants: vec![
            on_cpus(
                place,
                Contestant {
                    server: Some(nginx(place)),
                    ..ours
                },
            ),
            on_cpus(place, wrk(place, nginx(place), "wrk")),
        ],
    }
}

fn http_server(place: &Place) -> Case {
    let serve = linerate(
        place,
        &format!("agent --http {}:{HTTP_PORT} --threads 1", place.address),
        wrk_requests,
    );
    Case {
        name: format!("http server, {CONNECTIONS} connections, wrk"),
        unit: "requests/s",
        better: Better::More,
        contestants: vec![
            on_cpus(place, wrk(place, (serve.client, HTTP_PORT), "linerate")),
            on_cpus(place, wrk(place, nginx(place), "nginx")),
        ],
    }
}
