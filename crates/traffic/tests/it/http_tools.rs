//! Our server under wrk and curl, and our client against nginx, where they are installed.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::Command;

use linerate_model::units::Bytes;
use linerate_traffic::http::{SOURCE_BODY, Target, load};

use crate::both_ends::abort;
use crate::http::{check_operations, http_spec, operations, skip};
use crate::http_server::with_server;

/// The output of a program; `None` with a message if it is not installed.
fn run(program: &str, arguments: &[&str]) -> Option<String> {
    match Command::new(program).args(arguments).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{program} {arguments:?}: {said}");
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Err(error) => {
            skip(&format!("{program}: {error} (Debian package `{program}`)"));
            None
        }
    }
}

#[test]
fn wrk_loads_the_server_without_an_error() {
    let served = with_server(2, SOURCE_BODY, |address| {
        let url = format!("http://{address}/");
        let Some(said) = run("wrk", &["-t2", "-c20", "-d1", &url]) else {
            return;
        };
        assert!(said.contains("Requests/sec"), "{said}");
        assert!(
            !said.contains("Socket errors") && !said.contains("Non-2xx"),
            "{said}"
        );
    });
    assert_eq!(served.refused, 0);
}

#[test]
fn curl_reads_heads_and_bodies_of_any_size() {
    for body in [0u64, 1, 111, 300_000, 5 << 20] {
        with_server(1, Bytes::new(body), |address| {
            let url = format!("http://{address}/any/path?x=y");
            let Some(said) = run("curl", &["-sf", &url, &url]) else {
                return;
            };
            assert_eq!(said.len() as u64, 2 * body);
            let head = run("curl", &["-sfI", &url]).expect("it is there");
            assert!(head.contains(&format!("Content-Length: {body}")), "{head}");
            let old = run("curl", &["-sf", "--http1.0", &url]).expect("it is there");
            assert_eq!(old.len() as u64, body);
        });
    }
}

/// An nginx of our own, until dropped.
struct Nginx {
    folder: tempfile::TempDir,
    address: SocketAddr,
}

impl Nginx {
    /// Returns when it listens; `None` with a message if it is not installed.
    fn start(locations: &str) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = free.local_addr().expect("bound");
        drop(free);
        let here = folder.path().display();
        let temporary: Vec<String> = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|name| format!("{name}_temp_path {here}/{name};"))
            .collect();
        let temporary = temporary.concat();
        let text = format!(
            "worker_processes 1; pid {here}/pid; error_log {here}/error.log;\
             events {{ worker_connections 1000; }}\
             http {{ access_log off; {temporary} server {{ listen {address}; {locations} }} }}"
        );
        fs::write(folder.path().join("conf"), text).expect("a file");
        let nginx = Self { folder, address };
        let conf = nginx.conf();
        run("nginx", &["-c", &conf, "-e", "stderr"]).map(|_| nginx)
    }

    fn conf(&self) -> String {
        self.folder.path().join("conf").display().to_string()
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // It fails where it never started.
        let _ = Command::new("nginx")
            .args(["-c", &self.conf(), "-s", "stop"])
            .output();
    }
}

#[test]
fn nginx_is_loaded_and_its_errors_are_counted() {
    let Some(nginx) = Nginx::start(
        "keepalive_requests 50; location / { return 200 \"hello\"; } location /no { return 404; }",
    ) else {
        return;
    };
    for (path, is_good) in [("/", true), ("/no", false)] {
        let url = format!("http://{}{path}", nginx.address);
        let (target, path) = Target::parse(&url).expect("an address");
        let mut spec = http_spec(8, 2);
        if let linerate_model::workload::Workload::Http(http) = &mut spec.workload {
            http.path = path;
        }
        let side = load(&spec, &target, &abort()).expect("nginx answers");
        check_operations(&side, &spec);
        let asked = operations(&side);
        // Every 50 requests nginx sends `Connection: close`: connecting again is no failure.
        assert_eq!(
            (asked.completed > 0, asked.failed > 0),
            (is_good, !is_good),
            "{url}"
        );
    }
}
