//! A small redundant network on one machine: a client and a server, and between them two routers, two next hops or two
//! switches, of which each can fail. The routing and the failover are those of real programs (keepalived, FRR, Open
//! vSwitch) and of the kernel. See `docs/book/guides/redundant-network.md`.
//!
//! Unlike a [`Stage`](crate::Stage), it outlives the process that makes it: namespaces with names, and daemons. Everything is
//! recorded before it is made, so that a removal finds all of it, also after a SIGKILL.

mod active_backup;
mod daemon;
mod ecmp;
pub(crate) mod error;
mod frr;
mod magp;
mod mlag;
mod plan;
pub(crate) mod program;
mod ready;
pub(crate) mod record;
mod spec;
mod vrrp;

use std::fs;
use std::io;
use std::path::Path;
use std::process::Child;

use rustix::thread::CapabilitySet;
use serde::Serialize;

pub use self::error::{RedundantError, RedundantObstacle};
use self::plan::{Daemon, Plan};
pub use self::plan::{Fault, Node};
pub use self::program::Program;
use self::program::{IP, MODPROBE, OVS_VSWITCHD};
use self::record::Record;
pub use self::spec::{Igp, LacpRate, Lag, Spec};
use crate::netns::{self, Netns};
use crate::sys;

/// A daemon of a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RunningDaemon {
    /// The namespace.
    pub namespace: String,
    /// The program.
    pub program: String,
    /// The process; null if it does not run.
    pub pid: Option<u32>,
    /// The file with its output.
    pub log: String,
}

/// An existing network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Network {
    /// Its kind and settings.
    pub spec: Spec,
    /// Whether it was ready when `add` ended; false if `add` or `remove` did not finish.
    pub ready: bool,
    /// The folder with the configuration and the output of the daemons.
    pub folder: String,
    /// The namespaces.
    pub nodes: Vec<Node>,
    /// The client's addresses.
    pub client: Vec<String>,
    /// The server's addresses.
    pub server: Vec<String>,
    /// The daemons.
    pub daemons: Vec<RunningDaemon>,
    /// Faults to inject.
    pub faults: Vec<Fault>,
}

/// The redundant network of a state folder. Other processes wait until this is dropped.
#[derive(Debug)]
pub struct Redundant {
    record: Record<Spec>,
}

impl Redundant {
    /// Reads the record in the directory `state`.
    pub fn open(state: &Path) -> Result<Self, RedundantError> {
        Ok(Self {
            record: Record::open(state)?,
        })
    }

    /// The network, if there is one.
    pub fn network(&self) -> Option<Network> {
        let made = self.record.made()?;
        let folder = self.record.folder();
        let plan = Plan::of(&made.spec, folder);
        let daemons = plan.daemons.iter().map(|daemon| RunningDaemon {
            namespace: daemon.node.to_owned(),
            program: daemon.program.name.to_owned(),
            pid: daemon::running(folder, daemon),
            log: plan::words(&folder.join(daemon.log())),
        });
        let (v4, v6) = plan.server.expect("each kind has a server");
        Some(Network {
            ready: made.ready,
            folder: plan::words(folder),
            client: vec![plan::CLIENT_V4.to_string(), plan::CLIENT_V6.to_string()],
            server: vec![v4.to_string(), v6.to_string()],
            daemons: daemons.collect(),
            nodes: plan.nodes,
            faults: plan.faults,
            spec: made.spec.clone(),
        })
    }

    /// What forms a LAG on this machine: bonding if the kernel has it, else Open vSwitch.
    pub fn lag(wanted: Option<Lag>) -> Result<Lag, RedundantError> {
        let release = || {
            let names = rustix::system::uname();
            names.release().to_string_lossy().into_owned()
        };
        match wanted {
            Some(Lag::Openvswitch) => Ok(Lag::Openvswitch),
            Some(Lag::Bonding) if !has_bonding()? => {
                Err(RedundantError::NoBonding { release: release() })
            }
            Some(Lag::Bonding) => Ok(Lag::Bonding),
            None if has_bonding()? => Ok(Lag::Bonding),
            None if OVS_VSWITCHD.is_there() => Ok(Lag::Openvswitch),
            None => Err(RedundantError::NoLacp { release: release() }),
        }
    }

    /// Whether this kernel can make a bond; an error names what is missing.
    pub fn check_bonding() -> Result<(), RedundantError> {
        Self::lag(Some(Lag::Bonding)).map(drop)
    }

    /// Makes a network and waits until it forwards. A failure removes what was made. `interrupted` is asked while it
    /// waits.
    pub fn add(
        &mut self,
        spec: &Spec,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), RedundantError> {
        check_privileges()?;
        if let Some(made) = self.record.made() {
            return Err(if made.ready {
                RedundantError::Exists {
                    words: made.spec.to_string(),
                }
            } else {
                RedundantError::HalfMade
            });
        }
        let plan = Plan::of(spec, self.record.folder());
        program::check(&plan.programs)?;
        for node in &plan.nodes {
            if netns::is_taken(node.namespace) {
                return Err(RedundantError::NameTaken {
                    name: node.namespace.to_owned(),
                });
            }
        }
        self.record.write(spec, false)?;
        let made = self.make(&plan, interrupted);
        match made.and_then(|()| self.record.write(spec, true)) {
            Ok(()) => Ok(()),
            Err(first) => Err(match self.remove() {
                Ok(_) => first,
                Err(second) => RedundantError::NotUndone {
                    first: Box::new(first),
                    second: Box::new(second),
                },
            }),
        }
    }

    fn make(&self, plan: &Plan, interrupted: &dyn Fn() -> bool) -> Result<(), RedundantError> {
        self.record.make_folder()?;
        let folder = self.record.folder();
        for node in &plan.nodes {
            IP.run(None, &["netns", "add", node.namespace])?;
            prepare(node)?;
            let home = folder.join(node.namespace);
            fs::create_dir(&home)
                .map_err(RedundantError::doing(format!("make {}", home.display())))?;
        }
        for batch in &plan.batches {
            let file = folder.join(&batch.file);
            write(&file, &(batch.lines.join("\n") + "\n"))?;
            let words = ["-n", batch.node, "-batch", &plan::words(&file)];
            IP.run(None, &words)?;
        }
        for file in &plan.files {
            write(&folder.join(&file.path), &file.text)?;
        }
        run_calls(&plan.prepare)?;
        let mut children = Vec::new();
        for daemon in &plan.daemons {
            let netns = open(daemon.node)?;
            let child = daemon::start(folder, daemon, &netns, interrupted)?;
            children.extend(child.map(|child| (daemon, child)));
        }
        run_calls(&plan.configure)?;
        ready::wait(
            plan,
            &mut || check(folder, &mut children, interrupted),
            &|| daemon::outputs(folder, &plan.daemons),
        )
    }

    /// Removes the network: ends its daemons, then deletes its namespaces and its files. Returns whether there was one.
    pub fn remove(&mut self) -> Result<bool, RedundantError> {
        let Some(made) = self.record.made() else {
            return Ok(false);
        };
        let spec = made.spec.clone();
        check_privileges()?;
        self.record.write(&spec, false)?;
        let folder = self.record.folder();
        let plan = Plan::of(&spec, folder);
        daemon::stop(folder, &plan.daemons, false)?;
        for node in &plan.nodes {
            if netns::is_taken(node.namespace) {
                IP.run(None, &["netns", "delete", node.namespace])?;
            }
        }
        self.record.clear()?;
        Ok(true)
    }

    /// Ends the daemons of a node, with SIGKILL if `is_kill`. Returns how many ran.
    pub fn stop(&self, node: &str, is_kill: bool) -> Result<usize, RedundantError> {
        let plan = self.plan()?;
        let daemons = daemons_of(&plan, node)?;
        daemon::stop(self.record.folder(), daemons, is_kill)
    }

    /// Starts the daemons of a node that do not run. Returns how many were started.
    pub fn start(
        &self,
        node: &str,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<usize, RedundantError> {
        check_privileges()?;
        let plan = self.plan()?;
        let folder = self.record.folder();
        let mut count = 0;
        for daemon in daemons_of(&plan, node)? {
            let netns = open(daemon.node)?;
            if daemon::start(folder, daemon, &netns, interrupted)?.is_some() {
                count += 1;
            }
        }
        Ok(count)
    }

    fn plan(&self) -> Result<Plan, RedundantError> {
        let made = self.record.made().ok_or(RedundantError::None)?;
        Ok(Plan::of(&made.spec, self.record.folder()))
    }
}

fn daemons_of<'a>(plan: &'a Plan, node: &str) -> Result<Vec<&'a Daemon>, RedundantError> {
    let of_node = plan.daemons.iter().filter(|daemon| daemon.node == node);
    let of_node: Vec<&Daemon> = of_node.collect();
    if of_node.is_empty() {
        let mut known: Vec<String> = plan
            .daemons
            .iter()
            .map(|daemon| daemon.node.to_owned())
            .collect();
        known.dedup();
        if known.is_empty() {
            known.push("no namespace of this network".to_owned());
        }
        return Err(RedundantError::NoNode {
            name: node.to_owned(),
            known,
        });
    }
    Ok(of_node)
}

fn check(
    folder: &Path,
    children: &mut [(&Daemon, Child)],
    interrupted: &dyn Fn() -> bool,
) -> Result<(), RedundantError> {
    for (daemon, child) in children {
        daemon::check_alive(folder, daemon, child)?;
    }
    if interrupted() {
        return Err(RedundantError::Interrupted);
    }
    Ok(())
}

pub(crate) fn check_privileges() -> Result<(), RedundantError> {
    let wanted = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    let has = rustix::thread::capabilities(None);
    if has.is_ok_and(|sets| sets.effective.contains(wanted)) {
        Ok(())
    } else {
        Err(RedundantError::Permission)
    }
}

pub(crate) fn open(node: &str) -> Result<Netns, RedundantError> {
    let opened = netns::open(node).map_err(io::Error::other);
    opened.map_err(RedundantError::doing("use a namespace"))
}

pub(crate) fn write(file: &Path, text: &str) -> Result<(), RedundantError> {
    let written = fs::write(file, text);
    written.map_err(RedundantError::doing(format!("write {}", file.display())))
}

fn run_calls(calls: &[plan::Call]) -> Result<(), RedundantError> {
    for call in calls {
        let netns = call.node.map(open).transpose()?;
        let arguments: Vec<&str> = call.arguments.iter().map(String::as_str).collect();
        call.program.run(netns.as_ref(), &arguments)?;
    }
    Ok(())
}

/// The settings of a namespace without interfaces, which those that are made later inherit
/// (Documentation/networking/ip-sysctl.rst).
fn prepare(node: &Node) -> Result<(), RedundantError> {
    // Addresses are usable at once, and are kept when an interface is set down for a while.
    let mut settings = vec![
        ("net/ipv6/conf/all/accept_dad", "0"),
        ("net/ipv6/conf/default/accept_dad", "0"),
        ("net/ipv6/conf/all/keep_addr_on_down", "1"),
        ("net/ipv6/conf/default/keep_addr_on_down", "1"),
    ];
    if node.is_router {
        settings.extend([
            ("net/ipv4/ip_forward", "1"),
            ("net/ipv6/conf/all/forwarding", "1"),
            ("net/ipv6/conf/default/forwarding", "1"),
            ("net/ipv4/conf/all/rp_filter", "0"),
            ("net/ipv4/conf/default/rp_filter", "0"),
            // Flows are spread by ports too.
            ("net/ipv4/fib_multipath_hash_policy", "1"),
            ("net/ipv6/fib_multipath_hash_policy", "1"),
            ("net/ipv4/conf/all/ignore_routes_with_linkdown", "1"),
            ("net/ipv6/conf/all/ignore_routes_with_linkdown", "1"),
            ("net/ipv4/conf/default/ignore_routes_with_linkdown", "1"),
            ("net/ipv6/conf/default/ignore_routes_with_linkdown", "1"),
            // An address is answered for by its own interface alone.
            ("net/ipv4/conf/all/arp_ignore", "1"),
            ("net/ipv4/conf/all/arp_announce", "2"),
        ]);
    }
    let write_all = || -> io::Result<()> {
        for (name, value) in settings {
            // The file is of the namespace of the thread that opens it.
            fs::write(format!("/proc/sys/{name}"), value)
                .map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))?;
        }
        Ok(())
    };
    let failed = || RedundantError::doing(format!("set sysctls in {}", node.namespace));
    let netns = open(node.namespace)?;
    netns.inside(write_all).map_err(failed())?.map_err(failed())
}

/// Whether the kernel can make a bond. The module is loaded without the `bond0` that it otherwise makes in the initial
/// namespace.
fn has_bonding() -> Result<bool, RedundantError> {
    check_privileges()?;
    if !Path::new("/sys/module/bonding").exists() && MODPROBE.is_there() {
        // A refusal shows in the attempt below.
        let _ = MODPROBE.run(None, &["--quiet", "bonding", "max_bonds=0"]);
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // A namespace that ends with this thread.
            sys::unshare_net().map_err(RedundantError::doing("make a network namespace"))?;
            match IP.run(None, &["link", "add", "name", "try", "type", "bond"]) {
                Ok(_) => Ok(true),
                Err(RedundantError::Refused { .. }) => Ok(false),
                Err(error) => Err(error),
            }
        });
        let panicked = |_| {
            Err(RedundantError::doing("try a bond")(io::Error::other(
                "a panic",
            )))
        };
        thread.join().unwrap_or_else(panicked)
    })
}
