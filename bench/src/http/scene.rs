//! The two hosts, the servers that wait in one of them, and a load by either client.

use std::fs;
use std::path::{Path as FilePath, PathBuf};
use std::process::{Child, Command};
use std::str::FromStr;
use std::time::{Duration, Instant};

use linerate_model::ids::NicName;
use linerate_testbed::{Netns, Stage};

use crate::figures::Path;
use crate::trial::{BenchError, finish, start, successful, wait_until};

const FAR_ADDRESS: &str = "10.78.0.2";
const NGINX_PORT: u16 = 8080;
const LINERATE_PORT: u16 = 8081;
/// How much longer than its duration a load may take.
const GRACE: Duration = Duration::from_secs(30);
/// How often we look whether a server listens.
const LOOK: Duration = Duration::from_millis(5);
/// Where nginx has its files: in the folder that the stage covers with a tmpfs of its own, so that they
/// vanish with it, however it ends.
const FOLDER: &str = "/run/netns/.linerate-bench-http";

/// What every client of a pair is asked alike.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) connections: u32,
    pub(crate) seconds: u32,
    pub(crate) threads: u32,
    pub(crate) cpus: Vec<u32>,
}

/// Two hosts, and in the far one nginx and linerate, which wait on the same CPUs: the one that is not asked
/// sleeps.
#[derive(Debug)]
pub(crate) struct Scene {
    near: Netns,
    far: Netns,
    linerate: PathBuf,
    servers: Vec<Child>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        for server in &mut self.servers {
            // One that has ended already is as good.
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

impl Scene {
    pub(crate) fn set(
        stage: &Stage,
        linerate: &FilePath,
        threads: u32,
        cpus: &[u32],
        body: u32,
    ) -> Result<Self, BenchError> {
        let near = stage.add_host(&format!("near{threads}"))?;
        let far = stage.add_host(&format!("far{threads}"))?;
        let nic = |name| NicName::from_str(name).expect("a short name of letters and digits");
        linerate_testbed::join(
            (&near, &nic("near0"), "10.78.0.1/24"),
            (&far, &nic("far0"), &format!("{FAR_ADDRESS}/24")),
        )
        .map_err(BenchError::io("join the two hosts by a veth pair"))?;
        let mut scene = Self {
            near,
            far,
            linerate: linerate.to_owned(),
            servers: Vec::new(),
        };
        let mut nginx = pinned(FilePath::new("nginx"), cpus);
        let folder = format!("{FOLDER}-{threads}");
        let conf = nginx_conf(&folder, threads, body);
        fs::create_dir_all(&folder)
            .and_then(|()| fs::write(format!("{folder}/conf"), conf))
            .map_err(BenchError::io(format!("write into {folder}")))?;
        nginx.args(["-e", "stderr", "-c", &format!("{folder}/conf")]);
        scene.serve(nginx, "nginx", NGINX_PORT)?;
        let mut own = pinned(linerate, cpus);
        let address = format!("{FAR_ADDRESS}:{LINERATE_PORT}");
        own.args([
            "serve",
            &address,
            &threads.to_string(),
            &body.to_string(),
            &list(cpus),
        ]);
        scene.serve(own, "linerate", LINERATE_PORT)?;
        Ok(scene)
    }

    /// Starts a server in the far host and waits until it listens.
    fn serve(
        &mut self,
        mut command: Command,
        name: &'static str,
        port: u16,
    ) -> Result<(), BenchError> {
        enter(&self.far, &mut command)?;
        let server = start(&mut command, name)?;
        let until = Instant::now() + GRACE;
        loop {
            let tables = self
                .far
                .inside(|| fs::read_to_string("/proc/thread-self/net/tcp"))
                .and_then(|text| text)
                .map_err(BenchError::io("read the sockets of the far host"))?;
            if has_listener(&tables, port) {
                self.servers.push(server);
                return Ok(());
            }
            if wait_until(&server, LOOK)? || Instant::now() > until {
                let output = finish(server, name, Duration::ZERO)?;
                successful(output, name)?;
                return Err(BenchError::Overdue {
                    program: name,
                    limit: GRACE,
                });
            }
        }
    }

    /// The requests per second that linerate's client makes at nginx.
    pub(crate) fn load_by_linerate(&self, path: Path, asked: &Asked) -> Result<f64, BenchError> {
        let mut command = pinned(&self.linerate, &asked.cpus);
        command.args([
            "load",
            &format!("http://{FAR_ADDRESS}:{NGINX_PORT}/"),
            &asked.connections.to_string(),
            &asked.threads.to_string(),
            &asked.seconds.to_string(),
            "-",
            &list(&asked.cpus),
        ]);
        let said = self.run(command, "linerate", path, asked)?;
        figure_after(&said, "requests/s", "linerate")
    }

    /// The requests per second that wrk makes at linerate's server, or at nginx.
    pub(crate) fn load_by_wrk(
        &self,
        path: Path,
        at_linerate: bool,
        asked: &Asked,
    ) -> Result<f64, BenchError> {
        let port = if at_linerate {
            LINERATE_PORT
        } else {
            NGINX_PORT
        };
        let mut command = pinned(FilePath::new("wrk"), &asked.cpus);
        command.args([
            format!("-t{}", asked.threads),
            format!("-c{}", asked.connections),
            format!("-d{}", asked.seconds),
            format!("http://{FAR_ADDRESS}:{port}/"),
        ]);
        let said = self.run(command, "wrk", path, asked)?;
        if said.contains("Socket errors") || said.contains("Non-2xx") {
            return Err(BenchError::Unreadable {
                program: "wrk",
                what: said,
            });
        }
        figure_after(&said, "Requests/sec:", "wrk")
    }

    fn run(
        &self,
        mut command: Command,
        name: &'static str,
        path: Path,
        asked: &Asked,
    ) -> Result<String, BenchError> {
        let host = match path {
            Path::Loopback => &self.far,
            Path::Veth => &self.near,
        };
        enter(host, &mut command)?;
        let limit = Duration::from_secs(asked.seconds.into()) + GRACE;
        let child = start(&mut command, name)?;
        let printed = successful(finish(child, name, limit)?, name)?;
        Ok(String::from_utf8_lossy(&printed).into_owned())
    }
}

/// As it is configured where speed counts: no log, connections that are kept, one worker a CPU.
fn nginx_conf(folder: &str, workers: u32, body: u32) -> String {
    let temporary: Vec<String> = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|name| format!("{name}_temp_path {folder}/{name};\n"))
        .collect();
    format!(
        "daemon off; worker_processes {workers}; pid {folder}/pid; error_log stderr error;\n\
         events {{ worker_connections 20000; }}\n\
         http {{ access_log off; keepalive_requests 1000000000; {}\n\
         server {{ listen {FAR_ADDRESS}:{NGINX_PORT}; location / {{ return 200 \"{}\"; }} }} }}\n",
        temporary.concat(),
        "x".repeat(body as usize),
    )
}

fn list(cpus: &[u32]) -> String {
    let cpus: Vec<String> = cpus.iter().map(u32::to_string).collect();
    cpus.join(",")
}

/// `program` on `cpus` only, by taskset(1).
fn pinned(program: &FilePath, cpus: &[u32]) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &list(cpus)]).arg(program);
    command
}

fn enter(host: &Netns, command: &mut Command) -> Result<(), BenchError> {
    host.enter_in_child(command).map_err(BenchError::io(format!(
        "enter the namespace `{}`",
        host.name()
    )))
}

/// The number that follows `name` in what a program printed.
fn figure_after(said: &str, name: &str, program: &'static str) -> Result<f64, BenchError> {
    said.split_once(name)
        .and_then(|(_, rest)| rest.split_ascii_whitespace().next()?.parse().ok())
        .filter(|figure| *figure > 0.0)
        .ok_or_else(|| BenchError::Unreadable {
            program,
            what: format!("no figure after `{name}` in:\n{said}"),
        })
}

/// Whether a socket listens on `port`: state 0A in /proc/net/tcp (include/net/tcp_states.h).
fn has_listener(table: &str, port: u16) -> bool {
    let ending = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let local = fields.next().unwrap_or_default();
        local.ends_with(&ending) && fields.nth(1) == Some("0A")
    })
}

/// The first peer that is not installed, and its Debian package.
pub(crate) fn missing() -> Option<(&'static str, &'static str)> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    [
        ("wrk", "wrk"),
        ("nginx", "nginx-light"),
        ("taskset", "util-linux"),
    ]
    .into_iter()
    .find(|(name, _)| !folders.iter().any(|folder| folder.join(name).is_file()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figure_is_found_in_what_either_client_prints() {
        let wrk = "  100 requests in 1.00s\nRequests/sec:  22193.25\nTransfer/sec: 3.1MB\n";
        let found = figure_after(wrk, "Requests/sec:", "wrk").expect("a figure");
        assert!((found - 22_193.25).abs() < 1e-9);
        for text in ["", "Requests/sec:", "Requests/sec: x", "Requests/sec: 0.00"] {
            assert!(
                figure_after(text, "Requests/sec:", "wrk").is_err(),
                "{text}"
            );
        }
    }

    #[test]
    fn nginx_answers_with_the_body_that_is_asked_for() {
        let conf = nginx_conf("/run/x", 2, 5);
        assert!(conf.contains("worker_processes 2;") && conf.contains("\"xxxxx\""));
    }
}
