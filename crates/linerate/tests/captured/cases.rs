//! The table of cases: rules shown firing, silent and undetermined, each by one changed line of a
//! captured host. That every rule has all three stands in its own file (`CASES`, in `crates/model`); here
//! it is shown that the lines of a real host reach the rule.

mod card;
mod machine;

use linerate_model::build;
use linerate_model::finding::{Profile, Severity};
use linerate_model::host::Qdisc;
use linerate_model::known::{Cause, Known};
use linerate_model::sample::Sample;
use linerate_model::units::BitRate;

use super::archives::Edit;

/// One case of one rule.
pub(crate) struct Case {
    /// The rule's id.
    pub(crate) rule: &'static str,
    /// The captured host that is judged, as the local end.
    pub(crate) fixture: &'static str,
    /// The captured host at the other end, for rules that ask about a pair.
    pub(crate) other: Option<&'static str>,
    /// The line that is changed on the judged host.
    pub(crate) edit: Edit,
    /// The trial in view, when there is one.
    pub(crate) sample: Option<fn() -> Sample>,
    /// What the host is used for.
    pub(crate) profile: Profile,
    /// What the rule must say.
    pub(crate) expect: Expect,
}

/// What a rule must say.
pub(crate) enum Expect {
    /// One finding.
    Fires {
        severity: Severity,
        subject: &'static str,
        /// Evidence with this value ...
        value: &'static str,
        /// ... from this place: the very line that was changed.
        path: &'static str,
        /// Every remedy, in words.
        remedies: &'static [&'static str],
    },
    /// Nothing.
    Silent,
    /// That this place did not tell.
    Undetermined { path: &'static str },
}

impl Expect {
    /// The kind's word.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Fires { .. } => "firing",
            Self::Silent => "silent",
            Self::Undetermined { .. } => "undetermined",
        }
    }
}

const SERVER: &str = "two-socket-healthy";
const NEAR: &str = "veth-pair-near";
const VM: &str = "vm-two-cpus";

const ROOT_PORT_SPEED: &str = "sys/devices/pci0000:80/0000:80:01.0/current_link_speed";
const ROOT_PORT_WIDTH: &str = "sys/devices/pci0000:80/0000:80:01.0/current_link_width";
const IRQ_61: &str = "proc/irq/61/effective_affinity_list";
const NEAR_RPS: &str = "sys/class/net/near0/queues/rx-0/rps_cpus";
const WMEM: &str = "proc/sys/net/ipv4/tcp_wmem";
const RMEM: &str = "proc/sys/net/ipv4/tcp_rmem";
const CONTROL: &str = "proc/sys/net/ipv4/tcp_congestion_control";
const ONLINE: &str = "sys/devices/system/cpu/online";

const fn case(rule: &'static str, fixture: &'static str, edit: Edit, expect: Expect) -> Case {
    Case {
        rule,
        fixture,
        other: None,
        edit,
        sample: None,
        profile: Profile::Throughput,
        expect,
    }
}

/// The same for another use of the host.
const fn used_for(profile: Profile, case: Case) -> Case {
    Case { profile, ..case }
}

/// A finding with no remedy that linerate could try.
const fn advice(
    severity: Severity,
    subject: &'static str,
    value: &'static str,
    path: &'static str,
) -> Expect {
    Expect::Fires {
        severity,
        subject,
        value,
        path,
        remedies: &[],
    }
}

/// A finding with what would mend it.
const fn mended(
    severity: Severity,
    subject: &'static str,
    value: &'static str,
    path: &'static str,
    remedies: &'static [&'static str],
) -> Expect {
    Expect::Fires {
        severity,
        subject,
        value,
        path,
        remedies,
    }
}

/// The same with a trial towards `other`.
const fn pair(other: &'static str, sample: fn() -> Sample, case: Case) -> Case {
    Case {
        other: Some(other),
        sample: Some(sample),
        ..case
    }
}

/// Both threads of one flow pinned to CPU 0.
fn on_one_cpu() -> Sample {
    let sample = build::sample().shared_kernel().cpus(0, 0).pinned();
    sample.cpu_share(0.5, 0.5).build()
}

/// A trial that reached what a shaper of 1 Gb/s lets pass.
fn at_the_shaper() -> Sample {
    build::sample().shared_kernel().mbit(950).build()
}

/// A trial whose flow was held by the send buffer over 1 ms of round trip.
fn held_by_the_send_buffer() -> Sample {
    let sample = build::sample().limited(0.0, 0.9).tcp(|tcp| {
        tcp.rtt_min_ns = linerate_model::units::Nanoseconds::from_micros(10_000);
    });
    sample.build()
}

/// Every case.
pub(crate) fn all() -> Vec<Case> {
    let mut all = Vec::new();
    all.extend(shaper());
    all.extend(pcie());
    all.extend(endpoints());
    all.extend(interrupts());
    all.extend(steering());
    all.extend(offloads());
    all.extend(buffers());
    all.extend(congestion_control());
    all.extend(machine::all());
    all.extend(card::all());
    all
}

fn shaper() -> Vec<Case> {
    const RULE: &str = "qdisc-shaper";
    const TBF: Edit = Edit::Nic("near0", |nic| {
        nic.qdisc = Known::Value(build::tbf(1000));
    });
    let shaped = |severity| Expect::Fires {
        severity,
        subject: "nic/near0",
        value: "1.00 Gb/s",
        path: "tc qdisc show dev near0",
        remedies: &["nic/near0/qdisc: tbf 1.00 Gb/s -> noqueue"],
    };
    vec![
        case(RULE, NEAR, TBF, shaped(Severity::Warn)),
        pair(
            "veth-pair-far",
            at_the_shaper,
            case(RULE, NEAR, TBF, shaped(Severity::Crit)),
        ),
        // A wire slower than its shaper is not held by it.
        case(
            RULE,
            SERVER,
            Edit::Nic("eth2", |nic| {
                nic.qdisc = Known::Value(build::tbf(100_000));
            }),
            Expect::Silent,
        ),
        case(
            RULE,
            NEAR,
            Edit::Nic("near0", |nic| {
                nic.qdisc = Known::unknown(Cause::Denied, "netlink/qdisc/near0", "refused");
            }),
            Expect::Undetermined {
                path: "netlink/qdisc/near0",
            },
        ),
        // The rate of a classful shaper stands in classes.
        case(
            RULE,
            NEAR,
            Edit::Nic("near0", |nic| {
                nic.qdisc = Known::Value(Qdisc::plain("htb"));
            }),
            Expect::Undetermined {
                path: "tc class show dev near0",
            },
        ),
        // On a card whose speed nobody knows, a shaper may be the wider of both.
        case(
            RULE,
            VM,
            Edit::Nic("eth0", |nic| {
                nic.qdisc = Known::Value(Qdisc {
                    rate_bit_per_s: Some(BitRate::from_mbit_per_s(100)),
                    ..build::tbf(100)
                });
            }),
            Expect::Undetermined {
                path: "/sys/class/net/eth0/speed",
            },
        ),
    ]
}

fn pcie() -> Vec<Case> {
    const RULE: &str = "pcie-link-degraded";
    vec![
        case(
            RULE,
            SERVER,
            Edit::File(ROOT_PORT_WIDTH, Some("4")),
            Expect::Fires {
                severity: Severity::Crit,
                subject: "nic/eth2",
                value: "x4",
                path: ROOT_PORT_WIDTH,
                remedies: &[],
            },
        ),
        case(
            RULE,
            SERVER,
            Edit::File(ROOT_PORT_SPEED, Some("8.0 GT/s PCIe")),
            Expect::Fires {
                severity: Severity::Warn,
                subject: "nic/eth2",
                value: "8.0 GT/s",
                path: ROOT_PORT_SPEED,
                remedies: &[],
            },
        ),
        // A link above the card that is faster than the card takes nothing away.
        case(
            RULE,
            SERVER,
            Edit::File(ROOT_PORT_SPEED, Some("32.0 GT/s PCIe")),
            Expect::Silent,
        ),
        case(
            RULE,
            SERVER,
            Edit::File(ROOT_PORT_SPEED, None),
            Expect::Undetermined {
                path: ROOT_PORT_SPEED,
            },
        ),
    ]
}

fn endpoints() -> Vec<Case> {
    const RULE: &str = "endpoints-share-cpu";
    vec![
        pair(
            SERVER,
            on_one_cpu,
            case(
                RULE,
                SERVER,
                Edit::File(ONLINE, Some("0,5")),
                Expect::Fires {
                    severity: Severity::Warn,
                    subject: "cpu/0",
                    value: "0,5",
                    path: ONLINE,
                    remedies: &["placement/sender-cpus: 0 -> 5"],
                },
            ),
        ),
        // With one CPU there is no better place.
        pair(
            "veth-pair-far",
            on_one_cpu,
            case(RULE, NEAR, Edit::File(ONLINE, Some("0")), Expect::Silent),
        ),
        pair(
            "veth-pair-far",
            on_one_cpu,
            case(
                RULE,
                NEAR,
                Edit::File(ONLINE, Some("what")),
                Expect::Undetermined { path: ONLINE },
            ),
        ),
    ]
}

fn interrupts() -> Vec<Case> {
    const RULE: &str = "irq-remote-numa";
    vec![
        case(
            RULE,
            SERVER,
            Edit::Irq(61, "1"),
            Expect::Fires {
                severity: Severity::Warn,
                subject: "nic/eth2",
                value: "1",
                path: IRQ_61,
                remedies: &["nic/eth2/queue/rx-1/irq-cpus: 1 -> 5"],
            },
        ),
        // Another CPU of the card's own node.
        case(RULE, SERVER, Edit::File(IRQ_61, Some("7")), Expect::Silent),
        case(
            RULE,
            SERVER,
            Edit::File(IRQ_61, None),
            Expect::Undetermined { path: IRQ_61 },
        ),
        // The CPUs that the firmware calls close to the card still tell its node.
        case(
            RULE,
            SERVER,
            Edit::File("sys/class/net/eth2/device/numa_node", Some("-1")),
            Expect::Silent,
        ),
    ]
}

fn steering() -> Vec<Case> {
    const RULE: &str = "rps-wrong";
    vec![
        case(
            RULE,
            NEAR,
            Edit::File(NEAR_RPS, Some("2")),
            Expect::Fires {
                severity: Severity::Warn,
                subject: "nic/near0",
                value: "1",
                path: NEAR_RPS,
                remedies: &["nic/near0/queue/rx-0/rps-cpus: 1 -> none"],
            },
        ),
        // One queue spread over both CPUs is what steering is for.
        case(RULE, NEAR, Edit::File(NEAR_RPS, Some("3")), Expect::Silent),
        case(
            RULE,
            NEAR,
            Edit::File(NEAR_RPS, None),
            Expect::Undetermined { path: NEAR_RPS },
        ),
    ]
}

fn offloads() -> Vec<Case> {
    const RULE: &str = "tx-segmentation-or-csum-off";
    vec![
        case(
            RULE,
            NEAR,
            Edit::Nic("near0", |nic| {
                if let Known::Value(features) = &mut nic.features
                    && let Some(tso) = features.get_mut("tx-tcp-segmentation")
                {
                    tso.active = false;
                }
            }),
            Expect::Fires {
                severity: Severity::Warn,
                subject: "nic/near0",
                value: "off, could be on",
                path: "ethtool -k near0",
                remedies: &["nic/near0/feature/tx-tcp-segmentation: off -> on"],
            },
        ),
        // What the driver cannot do is no fault.
        case(
            RULE,
            NEAR,
            Edit::Nic("near0", |nic| {
                if let Known::Value(features) = &mut nic.features
                    && let Some(tso) = features.get_mut("tx-tcp-segmentation")
                {
                    tso.active = false;
                    tso.changeable = false;
                }
            }),
            Expect::Silent,
        ),
        case(
            RULE,
            NEAR,
            Edit::Nic("near0", |nic| {
                nic.features = Known::unknown(Cause::Denied, "netlink/features/near0", "refused");
            }),
            Expect::Undetermined {
                path: "netlink/features/near0",
            },
        ),
    ]
}

fn buffers() -> Vec<Case> {
    const RULE: &str = "tcp-buffer-below-bdp";
    vec![
        case(
            RULE,
            NEAR,
            Edit::File(WMEM, Some("4096\t16384\t65536")),
            Expect::Fires {
                severity: Severity::Warn,
                subject: "host",
                value: "4096 16384 65536",
                path: WMEM,
                remedies: &["sysctl/net.ipv4.tcp_wmem: 4096 16384 65536 -> 4096 16384 4194304"],
            },
        ),
        // What a trial over 10 ms asks for is more than any default: 4 x 10 Gb/s x 10 ms, rounded up.
        pair(
            "veth-pair-far",
            held_by_the_send_buffer,
            case(
                RULE,
                NEAR,
                Edit::File(WMEM, Some("4096\t16384\t8388608")),
                Expect::Fires {
                    severity: Severity::Warn,
                    subject: "host",
                    value: "4096 16384 8388608",
                    path: WMEM,
                    remedies: &[
                        "sysctl/net.ipv4.tcp_wmem: 4096 16384 8388608 -> 4096 16384 67108864",
                    ],
                },
            ),
        ),
        case(
            RULE,
            NEAR,
            Edit::File(WMEM, Some("4096\t16384\t8388608")),
            Expect::Silent,
        ),
        case(
            RULE,
            NEAR,
            Edit::File(RMEM, None),
            Expect::Undetermined { path: RMEM },
        ),
        case(
            RULE,
            NEAR,
            Edit::File(RMEM, Some("4096 131072")),
            Expect::Undetermined { path: RMEM },
        ),
    ]
}

fn congestion_control() -> Vec<Case> {
    const RULE: &str = "tcp-cc-qdisc";
    vec![
        case(
            RULE,
            SERVER,
            Edit::File(CONTROL, Some("reno")),
            Expect::Fires {
                severity: Severity::Note,
                subject: "host",
                value: "reno",
                path: CONTROL,
                remedies: &["sysctl/net.ipv4.tcp_congestion_control: reno -> cubic"],
            },
        ),
        // The captured namespace runs bbr and may not have cubic as its default: nothing to set there.
        case(
            RULE,
            NEAR,
            Edit::File(CONTROL, Some("reno")),
            Expect::Fires {
                severity: Severity::Note,
                subject: "host",
                value: "reno",
                path: CONTROL,
                remedies: &[],
            },
        ),
        case(
            RULE,
            NEAR,
            Edit::File(CONTROL, Some("cubic")),
            Expect::Silent,
        ),
        case(
            RULE,
            NEAR,
            Edit::Nic("near0", |nic| {
                nic.qdisc = Known::Value(Qdisc::plain("fq"));
            }),
            Expect::Silent,
        ),
        case(
            RULE,
            NEAR,
            Edit::File(CONTROL, None),
            Expect::Undetermined { path: CONTROL },
        ),
    ]
}
