//! Boots of the virtual machine with `qos persist`: each must make the same classes, and an undo leaves no trace.

use std::path::Path;

use linerate_bench_shared::Trouble;

use crate::guest::{Guest, INSTALLED};
use crate::power::DISK;

/// One VLAN with one class, of which a boot is quick.
const FILE: &str = "printf '%s\\n' '[qos]' 'interface = \"n0\"' 'mechanism = \"htb\"' '[[class]]' 'name = \"low\"' \
    'vlan = 10' 'address = \"12.0.10.2/24\"' 'limit = \"10mbit\"' 'priority = 1' >/run/classes.toml";
/// The link has a carrier, and its own IPv6 address is known to be unique.
const UP: &str = "ip link set n0 up; until [ \"$(cat /sys/class/net/n0/carrier)\" = 1 ]; do :; done
    while ip -6 addr show dev n0 | grep -q tentative; do sleep 0.1; done";
/// What is made, without what is counted or numbered at each boot.
const LOOK: &str = "tc -d class show dev n0 | grep htb | sort; tc -d qdisc show dev n0 | grep -o 'qdisc htb.*default [^ ]*'
    nft list ruleset
    ip -d link show n0.10 2>&1 | sed 1d; ip addr show n0.10 2>&1 | grep 'inet '
    ls /run/disk/etc/linerate 2>&1; true";

/// Boots `count` times; how many made exactly what `qos apply` had made.
pub(crate) fn boots(linerate: &Path, count: u32) -> Result<u32, Trouble> {
    let mut guest = Guest::boot(linerate)?;
    let linerate = format!("{INSTALLED} --quiet --state {DISK}/state");
    guest.must(&format!("mkdir -p {DISK}/etc/systemd/system; {FILE}; {UP}"))?;
    let without = guest.must(LOOK)?;
    guest.must(&format!(
        "{linerate} qos apply /run/classes.toml --no-confirm && {linerate} qos persist --etc {DISK}/etc"
    ))?;
    let with = guest.must(LOOK)?;
    if with == without {
        return Err(Trouble("make the classes".to_owned()));
    }
    let mut equal = 0;
    for boot in 1..=count {
        guest.cut_power()?;
        guest.must(UP)?;
        let (code, said) = guest.run(&format!("{DISK}/etc/linerate/boot >&2"))?;
        let now = guest.must(LOOK)?;
        if code == 0 && now == with {
            equal += 1;
        } else {
            eprintln!("boot {boot}: exit code {code}: {said}\n{now}");
        }
    }
    guest.must(&format!("{linerate} qos undo"))?;
    let now = guest.must(LOOK)?;
    if now != without {
        return Err(Trouble(format!("undo without a trace: {now}")));
    }
    Ok(equal)
}
