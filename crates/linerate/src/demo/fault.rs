//! The faults that the demo can plant, as data: each is something seen to slow a veth pair down.

use linerate_host::netlink::Netlink;
use linerate_host::nic_control::{NicRead, NicWrite};
use linerate_model::exit::{Code, Outcome, Stop};
use linerate_model::host::{Host, Qdisc};
use linerate_model::ids::{CpuId, CpuSet, NicName};
use linerate_model::known::Known;
use linerate_model::plan::{Change, End};
use linerate_model::prove::EndChange;
use linerate_model::setting::{SettingKey, Value, current};
use linerate_model::units::{BitRate, Bytes};
use linerate_runtime::endpoint::trial::PeerPath;

/// A fault: the rule that should find it, and what makes it.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    /// The rule.
    pub rule: &'static str,
    /// What to change on the hosts.
    pub changes: Vec<EndChange>,
    /// The CPU that both ends' threads are confined to.
    pub confine: Option<CpuId>,
}

/// Every fault that this kernel and user can make, with the clean rate at hand.
pub(super) fn candidates(path: &PeerPath, clean: BitRate) -> Outcome<Vec<Fault>> {
    let mut faults = vec![
        settings_fault(
            path,
            "tx-segmentation-or-csum-off",
            &[
                (End::Local, "feature/tso", "off"),
                (End::Local, "feature/gso", "off"),
            ],
        ),
        buffers(path),
        congestion_control(path, End::Local, "bbr").map(|change| Fault {
            rule: "tcp-cc-qdisc",
            changes: vec![change],
            confine: None,
        }),
        rps(path),
    ];
    faults.push(Some(shaper(path, clean)?));
    let cpus = path.local.online_cpus();
    if cpus.len() > 1 {
        let confine = cpus.first();
        faults.push(Some(Fault {
            rule: "endpoints-share-cpu",
            changes: Vec::new(),
            confine,
        }));
    }
    Ok(faults.into_iter().flatten().collect())
}

/// A fault made of settings; `None` where a setting is not there, cannot be written, or has the value.
fn settings_fault(
    path: &PeerPath,
    rule: &'static str,
    settings: &[(End, &str, &str)],
) -> Option<Fault> {
    let changes: Option<Vec<EndChange>> = settings
        .iter()
        .map(|(end, key, to)| {
            let (host, nic) = end_of(path, *end);
            let text = if key.starts_with("sysctl/") {
                (*key).to_owned()
            } else {
                format!("nic/{nic}/{key}")
            };
            let setting: SettingKey = text.parse().ok()?;
            let from = current(host, &setting).value()?.clone();
            let to = setting.parse_value(to).ok()?;
            (from != to).then_some(EndChange {
                end: *end,
                change: Change { setting, from, to },
            })
        })
        .collect();
    changes.map(|changes| Fault {
        rule,
        changes,
        confine: None,
    })
}

/// Another congestion control as the default of an end; `None` where it is the default already, or where
/// the kernel does not let a namespace choose it (tcp_allowed_congestion_control).
pub(super) fn congestion_control(path: &PeerPath, end: End, wanted: &str) -> Option<EndChange> {
    let (host, _) = end_of(path, end);
    let allowed = host.sysctl("net.ipv4.tcp_allowed_congestion_control");
    let may = allowed
        .value()
        .is_some_and(|all| all.split_whitespace().any(|one| one == wanted));
    let setting = SettingKey::Sysctl("net.ipv4.tcp_congestion_control".to_owned());
    let from = current(host, &setting).value()?.clone();
    let to = Value::Text(wanted.to_owned());
    (may && from != to).then_some(EndChange {
        end,
        change: Change { setting, from, to },
    })
}

/// Buffers whose largest size is far below what the path needs.
fn buffers(path: &PeerPath) -> Option<Fault> {
    settings_fault(
        path,
        "tcp-buffer-below-bdp",
        &[
            (End::Local, "sysctl/net.ipv4.tcp_wmem", "4096 16384 16384"),
            (End::Remote, "sysctl/net.ipv4.tcp_rmem", "4096 16384 16384"),
        ],
    )
}

/// Received packets sent on to the CPU that the sender keeps busy. Writing it needs real root.
fn rps(path: &PeerPath) -> Option<Fault> {
    let initial = fs_is_initial_user_namespace();
    let cpus = path.local.online_cpus();
    let target = cpus.iter().last().filter(|_| cpus.len() > 1 && initial)?;
    settings_fault(
        path,
        "rps-wrong",
        &[(
            End::Remote,
            "queue/rx-0/rps-cpus",
            &CpuSet::one(target).to_string(),
        )],
    )
}

/// Whether this is the initial user namespace: its map covers every id.
fn fs_is_initial_user_namespace() -> bool {
    std::fs::read_to_string("/proc/self/uid_map")
        .is_ok_and(|map| map.split_whitespace().eq(["0", "0", "4294967295"]))
}

/// A token bucket at a fifth of the clean rate. It is made once and taken away again, so that its value
/// is known as the kernel writes it.
fn shaper(path: &PeerPath, clean: BitRate) -> Outcome<Fault> {
    let nic = path.local_nic.clone();
    let failed = |error| Stop::io("make a shaper", error);
    let netlink = Netlink::open().map_err(failed)?;
    let known = |fact: Known<Qdisc>| match fact {
        Known::Value(qdisc) => Ok(qdisc),
        Known::Unknown(gap) => Err(Stop::new(Code::NotSupported, gap.to_string())),
    };
    let from = known(netlink.qdisc(&nic))?;
    let rate = BitRate::from_bit_per_s(clean.as_bit_per_s() / 5);
    netlink
        .add_tbf(&nic, rate, Bytes::mib(1), Bytes::mib(4), 0x8001_0000)
        .map_err(failed)?;
    let to = known(netlink.qdisc(&nic));
    netlink.set_qdisc(&nic, &from).map_err(failed)?;
    let setting = SettingKey::Nic(nic, linerate_model::setting::NicKnob::Qdisc);
    let change = Change {
        setting,
        from: Value::Qdisc(from),
        to: Value::Qdisc(to?),
    };
    Ok(Fault {
        rule: "qdisc-shaper",
        changes: vec![EndChange {
            end: End::Local,
            change,
        }],
        confine: None,
    })
}

fn end_of(path: &PeerPath, end: End) -> (&Host, &NicName) {
    match end {
        End::Local => (&path.local, &path.local_nic),
        End::Remote => (&path.remote, &path.remote_nic),
    }
}
