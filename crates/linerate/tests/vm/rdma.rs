//! RDMA over soft-RoCE: the map and the diagnosis of a device, and traffic between two of them.

use serde_json::json;

use crate::guest::{DOCTOR, Guest, SOFT_RDMA, entry, finding};

/// Two soft-RoCE devices that reach each other, as long as the guest is up: `rxa` on `va` with 10.9.0.1,
/// `rxb` on `vb` with 10.9.0.2.
pub(crate) fn pair(guest: &Guest) {
    let warm_up = warm_up();
    guest.shell(&format!(
        "[ -e /sys/class/infiniband/rxb ] || {{ {SOFT_RDMA} up rxe; {warm_up}; }}"
    ));
}

/// A first trial over verbs between the two devices, for a script. It reads every file that another one needs: while the
/// guest waits for a file of its host, its clock leaps to the next timer, so the first trial may give up its peer.
pub(crate) fn warm_up() -> String {
    let command = Guest::command();
    format!(
        "{command} measure --no-store rdma-write --time 0.2 --address 10.9.0.2 local >/run/none 2>&1 || true"
    )
}

pub(crate) fn soft_roce_is_an_rdma_device_of_its_nic(guest: &Guest) {
    guest.shell("modprobe rdma_rxe; ip link set n0 up; rdma link add rxe0 type rxe netdev n0");
    guest
        .shell("until grep -q ACTIVE /sys/class/infiniband/rxe0/ports/1/state; do sleep 0.1; done");
    let host = guest.map();
    let device = entry(&host["rdma"], "name", "rxe0");
    let port = entry(&device["ports"], "port", 1);
    assert_eq!(port["state"], "ACTIVE");
    assert_eq!(port["link_layer"], "Ethernet");
    assert_eq!(port["netdev"], "n0");
    assert_eq!(port["mtu_active"], 1024);
    assert_eq!(port["mtu_max"], 4096);
    let gid = entry(&port["gids"], "index", 0);
    assert_eq!(gid["kind"], "RoCE v2");
    assert_eq!(gid["netdev"], "n0");
    assert_eq!(entry(&host["nics"], "name", "n0")["rdma"], "rxe0");

    // No address and a small MTU on the interface, and hardly any memory that may be locked.
    let doctor = DOCTOR.join(" ");
    let command = Guest::command();
    let out = guest.shell(&format!("ulimit -l 64; {command} --format json {doctor}"));
    let diagnosis: serde_json::Value = serde_json::from_str(&out).expect("a document");
    let findings = &diagnosis["findings"];
    assert_eq!(
        finding(findings, "rdma-gid-type", "rdma/rxe0/1")["severity"],
        "note"
    );
    let small = finding(findings, "rdma-mtu", "rdma/rxe0/1");
    assert_eq!(
        entry(&small["remedies"], "setting", "nic/n0/mtu")["to"],
        9000
    );
    let locked = &finding(findings, "rdma-limits-and-caps", "host")["summary"];
    assert!(
        locked.to_string().contains("limit here is 64 KiB"),
        "{locked}"
    );
    guest.shell("rdma link delete rxe0");
}

pub(crate) fn what_rdma_cm_takes_by_default_is_set_and_put_back(guest: &Guest) {
    const PORT: &str =
        "cd /sys/kernel/config/rdma_cm/rxa/ports/1; cat default_roce_mode default_roce_tos";
    pair(guest);
    guest.shell(
        "modprobe rdma_cm; mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
        plan() { printf '[settings]\n\"rdma/rxa/%s\" = %s\n' \"$2\" \"$3\" >/run/$1.toml; }
        plan folder cm-defaults true
        plan tos 1/default-roce-tos 104
        plan same 1/default-gid-type '\"RoCE v2\"'
        plan other 1/default-gid-type '\"IB/RoCE v1\"'",
    );
    let apply = |file: &str| guest.apply(file);
    let refused = |file: &str| {
        let script = Guest::command_to_apply(file);
        guest.run(&["bash", "-c", &script]).code
    };
    // What nobody can read nobody changes.
    assert_eq!(refused("/run/tos.toml"), 22);
    apply("/run/folder.toml");
    let before = guest.shell(PORT);
    assert_eq!(before, "RoCE v2\n0\n");
    // Soft-RoCE has one type of GIDs.
    assert_eq!(apply("/run/same.toml")["changes"], json!([]));
    assert_eq!(refused("/run/other.toml"), 30);
    assert_eq!(guest.shell(PORT), before);

    apply("/run/tos.toml");
    assert_eq!(guest.shell(PORT), "RoCE v2\n104\n");
    guest.linerate(&["tune", "undo"]);
    assert_eq!(guest.shell(PORT), before);
    guest.linerate(&["tune", "undo"]);
    guest.shell("! [ -e /sys/kernel/config/rdma_cm/rxa ]; umount /sys/kernel/config");
}

pub(crate) fn two_soft_roce_devices_reach_each_other(guest: &Guest) {
    pair(guest);
    let host = guest.map();
    for (device, nic, gid) in [("rxa", "va", "0a09:0001"), ("rxb", "vb", "0a09:0002")] {
        let port = &entry(&host["rdma"], "name", device)["ports"][0];
        assert_eq!(port["state"], "ACTIVE");
        let own = entry(&port["gids"], "index", 1);
        assert_eq!(own["kind"], "RoCE v2");
        assert_eq!(own["netdev"], nic);
        let told = own["gid"].as_str().expect("a GID");
        assert!(told.ends_with(&format!("ffff:{gid}")), "{told}");
    }
    let said = guest.shell(
        "rping -s -a 10.9.0.2 -C 3 >/run/rping 2>&1 & server=$!
        until rdma resource show cm_id | grep -q LISTEN; do kill -0 $server; done
        rping -c -v -a 10.9.0.2 -I 10.9.0.1 -C 3
        wait $server
        cat /sys/class/infiniband/rxa/ports/1/hw_counters/rcvd_pkts",
    );
    assert_eq!(said.matches("ping data: rdma-ping-").count(), 3, "{said}");
    // What came from the other device came by this one.
    let packets = said
        .lines()
        .last()
        .and_then(|line| line.parse::<u64>().ok());
    assert!(packets > Some(0), "{said}");
}
