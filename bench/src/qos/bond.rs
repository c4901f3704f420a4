//! VLANs on a bond of two ports, in a kernel that has both (the virtual machine): the classes as `qos apply` makes them, and one thing
//! forgotten.

use std::path::Path;
use std::process::{Command, Stdio};

use linerate_bench_shared::{Trouble, run_inside};
use linerate_testbed::Netns;

use super::plant::{OF_BOND, Wrong};

/// The classes: name, VLAN, limit in Mb/s and priority. A third one has the rest.
const CLASSES: [(&str, u16, u32, u8); 2] = [(OF_BOND[0], 10, 10, 1), (OF_BOND[1], 20, 30, 3)];

/// The ports of the bond.
const PORTS: [&str; 2] = ["f0", "f2"];

/// The file of the classes.
pub(super) fn file() -> String {
    let class = |(name, vlan, limit, priority): &(&str, u16, u32, u8)| {
        format!(
            "[[class]]\nname = \"{name}\"\nvlan = {vlan}\naddress = \"12.0.{vlan}.2/24\"\nlimit = \"{limit}mbit\"\n\
             priority = {priority}\n"
        )
    };
    let classes: String = CLASSES.iter().map(class).collect();
    format!("[qos]\ninterface = \"b0\"\n{classes}")
}

/// Makes the bond, active-backup, and the same VLANs behind a bridge at the other host.
pub(super) fn make(near: &Netns, far: &Netns) -> Result<(), Trouble> {
    let at = |host, words: &str| run_inside(host, "ip", words).map(drop).map_err(Trouble);
    at(
        near,
        "link add b0 type bond mode active-backup miimon 50 num_grat_arp 0",
    )?;
    at(far, "link add br0 type bridge")?;
    for (port, other) in PORTS.into_iter().zip(["f1", "f3"]) {
        at(
            near,
            &format!(
                "link add {port} numtxqueues 4 numrxqueues 4 type veth peer name {other} numtxqueues 4 numrxqueues 4"
            ),
        )?;
        at(near, &format!("link set {other} netns far"))?;
        at(near, &format!("link set {port} master b0"))?;
        at(far, &format!("link set {other} master br0"))?;
        at(near, &format!("link set {port} up"))?;
        at(far, &format!("link set {other} up"))?;
    }
    at(near, "link set b0 up")?;
    at(far, "link set br0 up")?;
    for (_, vlan, ..) in CLASSES {
        at(
            far,
            &format!("link add link br0 name br0.{vlan} type vlan id {vlan}"),
        )?;
        at(far, &format!("addr add 12.0.{vlan}.1/24 dev br0.{vlan}"))?;
        at(far, &format!("link set br0.{vlan} up"))?;
    }
    Ok(())
}

/// Makes the classes, of which what was forgotten before is made again, and forgets one thing.
pub(super) fn forget(
    near: &Netns,
    linerate: &Path,
    state: &str,
    (wrong, index): (Wrong, usize),
) -> Result<(), Trouble> {
    let mut command = Command::new(linerate);
    command.args(["--state", state, "--quiet", "qos", "apply"]);
    command.args([
        &format!("{state}/file"),
        "--no-confirm",
        "--deadline",
        "36000",
    ]);
    command.stdin(Stdio::null());
    near.enter_in_child(&mut command)
        .map_err(|error| Trouble(format!("enter a namespace: {error}")))?;
    let done = command
        .output()
        .map_err(|error| Trouble(format!("run linerate: {error}")))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        return Err(Trouble(format!("make the classes: {}", said.trim())));
    }
    let (program, words) = match wrong {
        Wrong::Port => {
            let port = PORTS[index % PORTS.len()];
            ("tc", format!("qdisc del dev {port} root"))
        }
        Wrong::Map => {
            let (_, vlan, ..) = CLASSES[index % CLASSES.len()];
            (
                "ip",
                format!("link set b0.{vlan} type vlan egress-qos-map 0:0"),
            )
        }
        _ => return Ok(()),
    };
    run_inside(near, program, &words).map(drop).map_err(Trouble)
}
