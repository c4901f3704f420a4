//! The units of a listening agent, as packages install them, under a real systemd.

use crate::guards::SYSTEMD;
use crate::guest::{AWAKE, DISK, Guest};
use crate::rdma::pair;

const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging");
/// The state of the agent: what its unit has.
const STATE: &str = "/var/lib/linerate-agent";

pub(crate) fn a_host_is_paired_and_measures_by_the_socket_unit_that_packages_install(
    guest: &Guest,
) {
    let program = Guest::PROGRAM;
    guest.shell(&format!(
        "install -D {program} /usr/bin/linerate
        install -D -m 644 {PACKAGING}/linerate-agent.sysusers /usr/lib/sysusers.d/linerate-agent.conf
        install -m 644 {PACKAGING}/linerate-agent.service {PACKAGING}/linerate-agent.socket /etc/systemd/system
        systemd-sysusers linerate-agent.conf
        [ \"$(cat /proc/1/comm)\" = systemd ] || touch /run/systemd-next"
    ));
    guest.shell(&format!("{SYSTEMD}; systemctl start linerate-agent.socket"));
    let active = "systemctl is-active linerate-agent.service || true";
    assert_eq!(
        guest.shell(active),
        "inactive\n",
        "only the socket was started"
    );
    // The first connection starts it, which is that of a host that is not paired: then its state folder is there.
    let near = format!("'{program}' --quiet --state {DISK}/near");
    let line = format!(
        "tls://127.0.0.1#{}.{}.9999999999",
        "a5".repeat(32),
        "0f".repeat(16)
    );
    guest.shell(&format!(
        "{AWAKE}! {near} peers pair '{line}' 2>/run/refused; grep -q 'has the key' /run/refused"
    ));
    assert_eq!(guest.shell(active), "active\n");
    let user = guest.shell("ps -o user= -C linerate | sort -u");
    assert!(
        user.starts_with("linerat") && user.lines().count() == 1,
        "{user}"
    );
    let pair = format!(
        "runuser -u linerate-agent -- /usr/bin/linerate --quiet --state {STATE} agent pair --advertise 127.0.0.1"
    );
    guest.shell(&format!(
        "line=$({pair}); {near} measure stream \"$line\" --no-store --time 0.2 >/dev/null"
    ));
    for words in ["udp --rate 1Mb/s", "rr --wait epoll", "http"] {
        guest.shell(&format!(
            "{near} measure {words} tls://127.0.0.1 --no-store --time 0.2 >/dev/null"
        ));
    }
    // Its sandbox holds: a change of a setting is refused by the agent, and its journal has no error.
    guest.shell(&format!(
        "printf '[peer.settings]\\n\"sysctl/net.ipv4.tcp_sack\" = 0\\n' >/run/sack.toml
        ! {near} tune apply --peer tls://127.0.0.1 --from /run/sack.toml 2>/run/refused
        grep -q allow-changes /run/refused
        systemctl stop linerate-agent.socket linerate-agent.service
        [ \"$(systemctl show -P ExecMainStatus linerate-agent.service)\" = 0 ]"
    ));
    // With the drop-in that the unit's comment describes it changes settings, and rolls them back. A host has one transaction
    // at a time; the near end has a /run of its own, as another host has.
    guest.shell(&format!(
        "dropin=/etc/systemd/system/linerate-agent.service.d/changes.conf
        mkdir -p ${{dropin%/*}}
        unit={PACKAGING}/linerate-agent.service
        {{ echo '[Service]'
          sed -n '/^# --allow-changes needs/,/^# RDMA/s/^#   //p' $unit
          echo ExecStart=; sed -n '/^ExecStart=/s/$/ --allow-changes/p' $unit; }} >$dropin
        grep -q ^User=root $dropin
        systemctl daemon-reload
        systemctl start linerate-agent.socket linerate-agent.service
        sack() {{ [ \"$(sysctl -n net.ipv4.tcp_sack)\" = $1 ]; }}
        near() {{ unshare --mount sh -ec 'mkdir -p /run/linerate; mount -t tmpfs -o mode=700 near /run/linerate; exec {program} --quiet --state {DISK}/near \"$@\"' near \"$@\"; }}
        sack 1
        near tune apply --peer tls://127.0.0.1 --from /run/sack.toml
        sack 0
        near tune undo
        sack 1
        systemctl stop linerate-agent.socket linerate-agent.service
        rm -r ${{dropin%/*}}; systemctl daemon-reload"
    ));
}

pub(crate) fn verbs_are_measured_with_a_listening_agent(guest: &Guest) {
    pair(guest);
    let program = Guest::PROGRAM;
    let (near, far) = (
        format!("'{program}' --quiet --state {DISK}/near"),
        format!("'{program}' --quiet --state {DISK}/far"),
    );
    guest.shell(&format!(
        "'{program}' --state {DISK}/far agent --listen 10.9.0.2:5300 --no-pairing --data-ports 5301-5310 2>/run/agent.log &
        echo $! >/run/agent.pid
        until grep -q listening /run/agent.log; do kill -0 $(cat /run/agent.pid); done
        {near} peers pair $({far} agent pair --advertise 10.9.0.2:5300)"
    ));
    for words in [
        "rdma-write --sizes 5000B",
        "rdma-read --sizes 5000B --connect cm",
        "rdma-send --sizes 5000B --reverse",
        "rdma-atomic",
        "transfer --bytes 5000B --repetitions 4 --transport verbs",
    ] {
        guest.shell(&format!(
            "{near} measure --no-store {words} tls://10.9.0.2:5300 --time 0.3 >/dev/null"
        ));
    }
    guest.shell("kill $(cat /run/agent.pid)");
}
