//! Cases of a card: its place, its bus, its queues, its offloads, its port.

use linerate_host::capture::NicAnswers;
use linerate_model::finding::{Profile, Severity};
use linerate_model::host::{Channels, Coalesce, Eee, Feature, Fec, HealthReporter, LinkModes, Rss};
use linerate_model::known::{Cause, Known};
use linerate_model::units::BitRate;

use super::super::archives::Edit;
use super::{Case, Expect, IRQ_61, SERVER, VM, advice, case, mended, used_for};

/// A guest whose card has two queues.
const GUEST: &str = "vm-virtio";
const NODE: &str = "sys/class/net/eth2/device/numa_node";
const MTU: &str = "sys/class/net/eth2/mtu";
const XPS_0: &str = "sys/class/net/eth2/queues/tx-0/xps_cpus";
const IOMMU: &str = "sys/class/net/eth2/device/iommu_group/type";
const ASPM: &str = "sys/class/net/eth2/device/link/l1_aspm";
const IRQ_33: &str = "proc/irq/33/effective_affinity_list";

/// Every case of a card.
pub(super) fn all() -> Vec<Case> {
    [place(), bus(), queues(), dispatch(), offloads(), port()]
        .into_iter()
        .flatten()
        .collect()
}

fn place() -> Vec<Case> {
    vec![
        case(
            "nic-numa-unknown",
            SERVER,
            Edit::File(NODE, Some("-1")),
            advice(Severity::Note, "nic/eth2", "-1", NODE),
        ),
        case(
            "irq-cpu-collision",
            SERVER,
            Edit::Irq(61, "4"),
            mended(
                Severity::Note,
                "nic/eth2",
                "4",
                IRQ_61,
                &["nic/eth2/queue/rx-1/irq-cpus: 4 -> 5"],
            ),
        ),
        case(
            "irq-single-cpu",
            GUEST,
            Edit::Irq(33, "0"),
            mended(
                Severity::Warn,
                "nic/ens3",
                "0",
                IRQ_33,
                &["nic/ens3/queue/rx-1/irq-cpus: 0 -> 1"],
            ),
        ),
        // Two of four on one CPU are not all on one.
        case("irq-single-cpu", SERVER, Edit::Irq(61, "4"), Expect::Silent),
    ]
}

fn bus() -> Vec<Case> {
    let latency = |case| used_for(Profile::Latency, case);
    vec![
        case(
            "iommu-strict",
            SERVER,
            Edit::File(IOMMU, Some("DMA")),
            advice(Severity::Warn, "nic/eth2", "DMA", IOMMU),
        ),
        case(
            "iommu-strict",
            SERVER,
            Edit::File(IOMMU, Some("DMA-FQ")),
            Expect::Silent,
        ),
        latency(case(
            "pcie-aspm",
            SERVER,
            Edit::File(ASPM, Some("1")),
            mended(
                Severity::Note,
                "nic/eth2",
                "1",
                ASPM,
                &["nic/eth2/pci/l1-aspm: on -> off"],
            ),
        )),
    ]
}

/// Its number of queues in use.
fn combined(nic: &mut NicAnswers, count: u32) {
    if let Known::Value(Channels { combined, .. }) = &mut nic.channels {
        *combined = Known::Value(count);
    }
}

fn queues() -> Vec<Case> {
    vec![
        case(
            "xps-misaligned",
            SERVER,
            Edit::File(XPS_0, Some("01")),
            mended(
                Severity::Note,
                "nic/eth2",
                "0",
                XPS_0,
                &["nic/eth2/queue/tx-0/xps-cpus: 0 -> 4"],
            ),
        ),
        case(
            "queues-too-few",
            SERVER,
            Edit::Nic("eth2", |nic| combined(nic, 1)),
            mended(
                Severity::Warn,
                "nic/eth2",
                "1",
                "netlink ethtool CHANNELS_GET eth2",
                &["nic/eth2/channels/combined: 1 -> 4"],
            ),
        ),
        case(
            "virtio-single-queue",
            GUEST,
            Edit::Nic("ens3", |nic| combined(nic, 1)),
            mended(
                Severity::Note,
                "nic/ens3",
                "1",
                "ETHTOOL_MSG_CHANNELS_GET ens3",
                &["nic/ens3/channels/combined: 1 -> 2"],
            ),
        ),
    ]
}

/// A receive hash whose table goes round so many queues.
fn hash_over(queues: u32) -> Known<Rss> {
    Known::Value(Rss {
        table: Known::Value((0..queues).cycle().take(128).collect()),
        function: Known::Value("toeplitz".to_owned()),
        key_bytes: Known::Value(40),
        symmetric: Known::Value(false),
        fields: Known::default(),
    })
}

fn dispatch() -> Vec<Case> {
    vec![
        case(
            "coalesce-profile-mismatch",
            SERVER,
            Edit::Nic("eth2", |nic| {
                if let Known::Value(Coalesce {
                    rx_usecs,
                    adaptive_rx,
                    ..
                }) = &mut nic.coalesce
                {
                    (*rx_usecs, *adaptive_rx) = (Known::Value(0), Known::Value(false));
                }
            }),
            mended(
                Severity::Note,
                "nic/eth2",
                "0 us",
                "netlink ethtool COALESCE_GET eth2",
                &["nic/eth2/coalesce/adaptive-rx: off -> on"],
            ),
        ),
        case(
            "rss-table-uneven",
            SERVER,
            Edit::Nic("eth2", |nic| nic.dispatch.rss = hash_over(2)),
            mended(
                Severity::Warn,
                "nic/eth2",
                "0: 64, 1: 64",
                "netlink ethtool RSS_GET eth2",
                &["nic/eth2/rss/table: equal 2 -> equal 4"],
            ),
        ),
        case(
            "rss-table-uneven",
            SERVER,
            Edit::Nic("eth2", |nic| nic.dispatch.rss = hash_over(4)),
            Expect::Silent,
        ),
        case(
            "rss-table-uneven",
            SERVER,
            Edit::Nic("eth2", |nic| {
                nic.dispatch.rss = Known::unknown(Cause::Denied, "netlink/rss/eth2", "refused");
            }),
            Expect::Undetermined {
                path: "netlink/rss/eth2",
            },
        ),
    ]
}

/// A feature that may be switched, as it is now.
fn feature(nic: &mut NicAnswers, name: &str, active: bool) {
    if let Known::Value(features) = &mut nic.features {
        let changeable = true;
        features.insert(name.to_owned(), Feature { active, changeable });
    }
}

fn offloads() -> Vec<Case> {
    vec![
        case(
            "gro-off",
            SERVER,
            Edit::Nic("eth2", |nic| feature(nic, "rx-gro", false)),
            mended(
                Severity::Warn,
                "nic/eth2",
                "off, could be on",
                "netlink/ethtool/eth2/features",
                &["nic/eth2/feature/rx-gro: off -> on"],
            ),
        ),
        // A host that passes nothing on may merge as it likes ...
        case(
            "lro-on-forwarder",
            SERVER,
            Edit::Nic("eth2", |nic| feature(nic, "rx-lro", true)),
            Expect::Silent,
        ),
        // ... and this one was not asked about IPv6.
        case(
            "lro-on-forwarder",
            VM,
            Edit::Nic("eth0", |nic| feature(nic, "rx-lro", true)),
            Expect::Undetermined {
                path: "/proc/sys/net/ipv6/conf/all/forwarding",
            },
        ),
        used_for(
            Profile::Rdma,
            case(
                "rdma-mtu",
                SERVER,
                Edit::File(MTU, Some("1500")),
                advice(
                    Severity::Warn,
                    "rdma/mlx5_0/1",
                    "1500 bytes, which allows an RDMA MTU of 1024 bytes",
                    MTU,
                ),
            ),
        ),
    ]
}

/// A link of 25 Gb/s between ports of 100 Gb/s.
fn slow_link() -> Known<LinkModes> {
    let modes = || {
        vec![
            "25000baseCR/Full".to_owned(),
            "100000baseCR4/Full".to_owned(),
        ]
    };
    Known::Value(LinkModes {
        autoneg: Known::Value(true),
        speed_bit_per_s: Known::Value(BitRate::from_mbit_per_s(25_000)),
        duplex: Known::Value("full".to_owned()),
        lanes: Known::Value(1),
        supported: modes(),
        advertised: modes(),
        partner: modes(),
        port: Known::Value("Direct Attach Copper".to_owned()),
    })
}

fn port() -> Vec<Case> {
    vec![
        used_for(
            Profile::Latency,
            case(
                "eee-on",
                SERVER,
                Edit::Nic("eth2", |nic| {
                    nic.wire.eee = Known::Value(Eee {
                        enabled: Known::Value(true),
                        active: Known::Value(true),
                    });
                }),
                mended(
                    Severity::Note,
                    "nic/eth2",
                    "active",
                    "netlink/ethtool/eth2/eee",
                    &["nic/eth2/eee: on -> off"],
                ),
            ),
        ),
        case(
            "link-speed-below-capability",
            SERVER,
            Edit::Nic("eth2", |nic| nic.wire.modes = slow_link()),
            advice(
                Severity::Warn,
                "nic/eth2",
                "25.00 Gb/s",
                "netlink/ethtool/eth2/linkmodes",
            ),
        ),
        case(
            "fec-health",
            SERVER,
            Edit::Nic("eth2", |nic| {
                nic.wire.fec = Known::Value(Fec {
                    active: Known::Value("None".to_owned()),
                    configured: vec!["Auto".to_owned()],
                    auto: Known::Value(true),
                });
            }),
            advice(
                Severity::Note,
                "nic/eth2",
                "none",
                "netlink/ethtool/eth2/fec",
            ),
        ),
        case(
            "driver-firmware-health-and-owners",
            SERVER,
            Edit::Nic("eth2", |nic| {
                nic.card.health = Known::Value(vec![HealthReporter {
                    name: "fw".to_owned(),
                    state: Known::Value("error".to_owned()),
                    errors: Known::Value(3),
                    recoveries: Known::Value(1),
                }]);
            }),
            advice(
                Severity::Crit,
                "nic/eth2",
                "error",
                "devlink health show eth2: fw",
            ),
        ),
    ]
}
