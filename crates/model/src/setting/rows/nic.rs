//! The settings of a network interface, in the order in which a plan changes them: settings that recreate others come
//! first, private flags and queue counts before the settings of queues, settings of all queues before those of a single
//! queue.

use super::BASE;
use crate::host::QueueKind;
use crate::setting::applications::applications_of;
use crate::setting::fact::{
    FEATURE, PRIVATE_FLAG, aspm, bond_hash_policy, computed, field, hash_fields, ipoib_mode,
    known_text, part, vlan_egress, words,
};
use crate::setting::knobs::knobs;
use crate::setting::link::link_words;
use crate::setting::numbers::{ethtool, link};
use crate::setting::priorities::{classes_of, priority_words, rate_words};
use crate::setting::spec::{
    Access, ByHand, Class, Domain, Effects, EthtoolRequest, Scope, SettingSpec,
};
use crate::setting::words::{fec_words, table_words};
use crate::setting::{Fact, Form, Value, by_hand};

/// Most settings of an interface belong to its network namespace and are requests of ethtool.
const OF_NIC: SettingSpec = SettingSpec {
    scope: Scope::Netns,
    source: "Documentation/networking/ethtool-netlink.rst",
    ..BASE
};

knobs!(
    NicKnob,
    2,
    VlanLink = SettingSpec {
        pattern: "nic/NAME/vlan/link",
        about: "the VLAN device itself: `eth1 id 10` creates it, `none` removes it",
        domain: Domain::VlanLink,
        class: Class::R3,
        access: Access::Netlink,
        by_hand: ByHand::Code(by_hand::by_vlan_link),
        effects: Effects::Device,
        source: "ip-link(8), type vlan",
        ..OF_NIC
    },
    Up = SettingSpec {
        pattern: "nic/NAME/up",
        about: "administrative state; setting it to `off` disconnects the interface",
        domain: Domain::Switch,
        class: Class::R3,
        access: Access::Netlink,
        by_hand: ByHand::Code(by_hand::by_up),
        effects: Effects::Siblings(&["nic/NAME/addresses"]),
        source: "ip-link(8), up and down",
        ..OF_NIC
    },
    Addresses = SettingSpec {
        pattern: "nic/NAME/addresses",
        about: "static global addresses with prefix length; dynamic ones are neither shown nor changed",
        domain: Domain::Addresses,
        class: Class::R2,
        access: Access::Netlink,
        by_hand: ByHand::Code(by_hand::by_addresses),
        source: "ip-address(8)",
        ..OF_NIC
    },
    PrivateFlag(String) = SettingSpec {
        pattern: "nic/NAME/private-flag/FLAG",
        about: "a private flag of the driver",
        domain: Domain::Switch,
        class: Class::R2,
        access: Access::Netlink,
        by_hand: ByHand::Command("ethtool --set-priv-flags NAME FLAG VALUE"),
        fact: Fact::PrivateFlags(PRIVATE_FLAG),
        effects: Effects::Features,
        ..OF_NIC
    },
    Mtu = SettingSpec {
        pattern: "nic/NAME/mtu",
        about: "MTU, bytes",
        class: Class::R3,
        access: Access::Netlink,
        by_hand: ByHand::Command("ip link set dev NAME mtu VALUE"),
        fact: Fact::Nic(field!(mtu)),
        effects: Effects::Mtu,
        source: "Documentation/networking/netdevices.rst",
        ..OF_NIC
    },
    Feature(String) = SettingSpec {
        pattern: "nic/NAME/feature/FEATURE",
        about: "an offload feature",
        domain: Domain::Switch,
        class: Class::R2,
        access: Access::Netlink,
        by_hand: ByHand::Command("ethtool -K NAME FEATURE VALUE"),
        fact: Fact::Features(FEATURE),
        effects: Effects::Features,
        source: "Documentation/networking/netdev-features.rst",
        ..OF_NIC
    },
    LinkAutoneg = SettingSpec {
        pattern: "nic/NAME/link/autoneg",
        about: "link autonegotiation",
        domain: Domain::Switch,
        class: Class::R3,
        access: Access::Ethtool(EthtoolRequest::LinkModes, ethtool::LINK_AUTONEG),
        by_hand: ByHand::Command("ethtool -s NAME autoneg VALUE"),
        fact: Fact::LinkModes(field!(autoneg)),
        effects: Effects::Siblings(&["nic/NAME/link/speed"]),
        ..OF_NIC
    },
    LinkSpeed = SettingSpec {
        pattern: "nic/NAME/link/speed",
        about: "advertised link modes, or a forced speed in Mb/s and duplex",
        domain: Domain::LinkSpeed,
        class: Class::R3,
        access: Access::Netlink,
        by_hand: ByHand::Code(by_hand::by_link),
        fact: Fact::LinkModes(computed(|modes, _| link_words(modes).map(Value::Text))),
        effects: Effects::Siblings(&["nic/NAME/link/autoneg"]),
        ..OF_NIC
    },
    ChannelsCombined = SettingSpec {
        pattern: "nic/NAME/channels/combined",
        about: "combined channels",
        class: Class::R2,
        access: Access::Ethtool(EthtoolRequest::Channels, ethtool::CHANNELS_COMBINED),
        by_hand: ByHand::Command("ethtool -L NAME combined VALUE"),
        fact: Fact::Channels(field!(combined)),
        effects: Effects::Channels,
        ..OF_NIC
    },
    ChannelsRx = SettingSpec {
        pattern: "nic/NAME/channels/rx",
        about: "RX channels",
        class: Class::R2,
        access: Access::Ethtool(EthtoolRequest::Channels, ethtool::CHANNELS_RX),
        by_hand: ByHand::Command("ethtool -L NAME rx VALUE"),
        fact: Fact::Channels(field!(rx)),
        effects: Effects::Channels,
        ..OF_NIC
    },
    ChannelsTx = SettingSpec {
        pattern: "nic/NAME/channels/tx",
        about: "TX channels",
        class: Class::R2,
        access: Access::Ethtool(EthtoolRequest::Channels, ethtool::CHANNELS_TX),
        by_hand: ByHand::Command("ethtool -L NAME tx VALUE"),
        fact: Fact::Channels(field!(tx)),
        effects: Effects::Channels,
        ..OF_NIC
    },
    RingRx = SettingSpec {
        pattern: "nic/NAME/ring/rx",
        about: "RX ring size, descriptors",
        class: Class::R2,
        access: Access::Ethtool(EthtoolRequest::Rings, ethtool::RINGS_RX),
        by_hand: ByHand::Command("ethtool -G NAME rx VALUE"),
        fact: Fact::Rings(field!(rx)),
        is_rounded: true,
        ..OF_NIC
    },
    RingTx = SettingSpec {
        pattern: "nic/NAME/ring/tx",
        about: "TX ring size, descriptors",
        class: Class::R2,
        access: Access::Ethtool(EthtoolRequest::Rings, ethtool::RINGS_TX),
        by_hand: ByHand::Command("ethtool -G NAME tx VALUE"),
        fact: Fact::Rings(field!(tx)),
        is_rounded: true,
        ..OF_NIC
    },
    TcpDataSplit = SettingSpec {
        pattern: "nic/NAME/ring/tcp-data-split",
        about: "TCP header-data split: `on`, `off`, `auto`",
        domain: Domain::Text,
        class: Class::R2,
        access: Access::Netlink,
        by_hand: ByHand::Command("ethtool -G NAME tcp-data-split VALUE"),
        fact: Fact::Nic(field!(dispatch.tcp_data_split)),
        ..OF_NIC
    },
    DcbPfc = SettingSpec {
        pattern: "nic/NAME/dcb/pfc",
        about: "PFC priorities (lossless); the link partner must use the same",
        domain: Domain::Priorities,
        class: Class::R3,
        access: Access::Netlink,
        by_hand: ByHand::Code(by_hand::by_dcb_pfc),
        fact: Fact::Dcb(computed(|dcb, _| dcb
            .pfc_enabled
            .clone()
            .map(|mask| Value::Text(priority_words(mask))))),
        effects: Effects::Pause,
        source: "dcb-pfc(8)",
        ..OF_NIC
    },
    DcbEts = SettingSpec {
        pattern: "nic/NAME/dcb/ets",
        about: "ETS: traffic class of each priority, bandwidth share and algorithm of each class",
        domain: Domain::Classes,
        class: Class::R2,
        access: Access::Netlink,
        by_hand: ByHand::Code(by_hand::by_dcb_ets),
        fact: Fact::Dcb(computed(|dcb, _| classes_of(dcb).map(Value::Text))),
        effects: Effects::Queues,
        source: "dcb-ets(8)",
        ..OF_NIC
    },
    DcbMaxRate = SettingSpec {
        pattern: "nic/NAME/dcb/maxrate",
        about: "maximum rate of each traffic class: `1gbit 5gbit none`",
        domain: Domain::ClassRates,
        class: Class::R2,
        access: Access::Netlink,
        by_hand: ByHand::Code(by_hand::by_dcb_maxrate),
        fact: Fact::Dcb(computed(|dcb, _| {
            let rates = dcb.class_max_bit_per_s.clone();
            rates.map(|rates| Value::Text(rate_words(&rates)))
        })),
        source: "dcb-maxrate(8)",
        ..OF_NIC
    },
    DcbApp = SettingSpec {
        pattern: "nic/NAME/dcb/app",
        about: "application priorities by EtherType, port, DSCP or PCP",
        domain: Domain::Applications,
        class: Class::R2,
        access: Access::Netlink,
        by_hand: ByHand::Code(by_hand::by_dcb_app),
        fact: Fact::Dcb(computed(|dcb, _| applications_of(dcb).map(Value::Text))),
        source: "dcb-app(8)",
        ..OF_NIC
    },
    CoalesceAdaptiveRx = SettingSpec {
        pattern: "nic/NAME/coalesce/adaptive-rx",
        about: "adaptive RX interrupt coalescing",
        domain: Domain::Switch,
        access: Access::Ethtool(EthtoolRequest::Coalesce, ethtool::COALESCE_ADAPTIVE_RX),
        by_hand: ByHand::Command("ethtool -C NAME adaptive-rx VALUE"),
        fact: Fact::Coalesce(field!(adaptive_rx)),
        effects: Effects::Coalescing,
        ..OF_NIC
    },
    CoalesceAdaptiveTx = SettingSpec {
        pattern: "nic/NAME/coalesce/adaptive-tx",
        about: "adaptive TX interrupt coalescing",
        domain: Domain::Switch,
        access: Access::Ethtool(EthtoolRequest::Coalesce, ethtool::COALESCE_ADAPTIVE_TX),
        by_hand: ByHand::Command("ethtool -C NAME adaptive-tx VALUE"),
        fact: Fact::Coalesce(field!(adaptive_tx)),
        effects: Effects::Coalescing,
        ..OF_NIC
    },
    CoalesceRxUsecs = SettingSpec {
        pattern: "nic/NAME/coalesce/rx-usecs",
        about: "rx-usecs: delay of an RX interrupt after a packet, microseconds",
        access: Access::Ethtool(EthtoolRequest::Coalesce, ethtool::COALESCE_RX_USECS),
        by_hand: ByHand::Command("ethtool -C NAME rx-usecs VALUE"),
        fact: Fact::Coalesce(field!(rx_usecs)),
        effects: Effects::Coalescing,
        is_rounded: true,
        ..OF_NIC
    },
    CoalesceTxUsecs = SettingSpec {
        pattern: "nic/NAME/coalesce/tx-usecs",
        about: "tx-usecs: delay of a TX interrupt after a packet, microseconds",
        access: Access::Ethtool(EthtoolRequest::Coalesce, ethtool::COALESCE_TX_USECS),
        by_hand: ByHand::Command("ethtool -C NAME tx-usecs VALUE"),
        fact: Fact::Coalesce(field!(tx_usecs)),
        effects: Effects::Coalescing,
        is_rounded: true,
        ..OF_NIC
    },
    CoalesceRxFrames = SettingSpec {
        pattern: "nic/NAME/coalesce/rx-frames",
        about: "rx-frames: packets before an RX interrupt fires",
        access: Access::Ethtool(EthtoolRequest::Coalesce, ethtool::COALESCE_RX_FRAMES),
        by_hand: ByHand::Command("ethtool -C NAME rx-frames VALUE"),
        fact: Fact::Coalesce(field!(rx_frames)),
        effects: Effects::Coalescing,
        is_rounded: true,
        ..OF_NIC
    },
    CoalesceTxFrames = SettingSpec {
        pattern: "nic/NAME/coalesce/tx-frames",
        about: "tx-frames: packets before a TX interrupt fires",
        access: Access::Ethtool(EthtoolRequest::Coalesce, ethtool::COALESCE_TX_FRAMES),
        by_hand: ByHand::Command("ethtool -C NAME tx-frames VALUE"),
        fact: Fact::Coalesce(field!(tx_frames)),
        effects: Effects::Coalescing,
        is_rounded: true,
        ..OF_NIC
    },
    RssKey = SettingSpec {
        pattern: "nic/NAME/rss/key",
        about: "RSS hash key; an attacker who knows it can steer flows to one queue",
        domain: Domain::HashKey,
        class: Class::R2,
        access: Access::Netlink,
        by_hand: ByHand::Command("ethtool -X NAME hkey VALUE"),
        source: "ethtool(8), hkey",
        ..OF_NIC
    },
    RssTable = SettingSpec {
        pattern: "nic/NAME/rss/table",
        about: "RSS indirection table: `equal N` or its queues",
        domain: Domain::Queues,
        class: Class::R2,
        access: Access::Netlink,
        by_hand: ByHand::Code(by_hand::by_rss_table),
        fact: Fact::Rss(computed(|rss, _| {
            part(&rss.table, |table| known_text(table_words(table)))
        })),
        source: "Documentation/networking/scaling.rst",
        ..OF_NIC
    },
    RssFields(String) = SettingSpec {
        pattern: "nic/NAME/rss/fields/KIND",
        about: "RSS hash fields of a flow type (`sdfn`)",
        domain: Domain::Text,
        access: Access::Netlink,
        by_hand: ByHand::Command("ethtool -N NAME rx-flow-hash KIND VALUE"),
        fact: Fact::Rss(computed(|rss, kind| part(&rss.fields, |fields| {
            hash_fields(fields, kind)
        }))),
        source: "ethtool(8), rx-flow-hash",
        ..OF_NIC
    },
    IrqCpus(QueueKind, u32) = SettingSpec {
        pattern: "nic/NAME/queue/QUEUE/irq-cpus",
        about: "CPU affinity of the queue's interrupt",
        domain: Domain::Cpus,
        scope: Scope::Machine,
        access: Access::FoundFile,
        fact: Fact::Interrupt,
        effects: Effects::Interrupt,
        source: "Documentation/core-api/irq/irq-affinity.rst",
        ..OF_NIC
    },
    RpsCpus(u32) = SettingSpec {
        pattern: "nic/NAME/queue/rx-N/rps-cpus",
        about: "RPS CPUs of the RX queue",
        domain: Domain::Cpus,
        access: Access::File("sys/class/net/NAME/queues/rx-N/rps_cpus", Form::CpuMask),
        fact: Fact::Queue(field!(rps_cpus)),
        source: "Documentation/networking/scaling.rst",
        ..OF_NIC
    },
    RpsFlowCnt(u32) = SettingSpec {
        pattern: "nic/NAME/queue/rx-N/rps-flow-cnt",
        about: "RFS flow table entries of the RX queue",
        access: Access::File("sys/class/net/NAME/queues/rx-N/rps_flow_cnt", Form::Number),
        fact: Fact::Queue(field!(rps_flow_cnt)),
        is_rounded: true,
        source: "Documentation/networking/scaling.rst",
        ..OF_NIC
    },
    XpsCpus(u32) = SettingSpec {
        pattern: "nic/NAME/queue/tx-N/xps-cpus",
        about: "XPS CPUs of the TX queue",
        domain: Domain::Cpus,
        access: Access::File("sys/class/net/NAME/queues/tx-N/xps_cpus", Form::CpuMask),
        fact: Fact::Queue(field!(xps_cpus)),
        source: "Documentation/networking/scaling.rst",
        ..OF_NIC
    },
    XpsRxqs(u32) = SettingSpec {
        pattern: "nic/NAME/queue/tx-N/xps-rxqs",
        about: "RX queues mapped to the TX queue (XPS)",
        domain: Domain::Text,
        access: Access::File("sys/class/net/NAME/queues/tx-N/xps_rxqs", Form::QueueMask),
        fact: Fact::Queue(computed(|queue, _| part(
            &queue.xps_rxqs,
            |own| known_text(words(own))
        ))),
        source: "Documentation/networking/scaling.rst",
        ..OF_NIC
    },
    TxMaxrate(u32) = SettingSpec {
        pattern: "nic/NAME/queue/tx-N/tx-maxrate",
        about: "rate limit of the TX queue in the NIC, Mb/s; 0: no limit",
        access: Access::File("sys/class/net/NAME/queues/tx-N/tx_maxrate", Form::Number),
        fact: Fact::Queue(computed(|queue, _| {
            let rate = queue.max_bit_per_s.clone();
            rate.map(|rate| Value::Integer(rate.as_bit_per_s() / 1_000_000))
        })),
        source: "Documentation/ABI/testing/sysfs-class-net-queues",
        ..OF_NIC
    },
    QueueAdaptiveRx(u32) = SettingSpec {
        pattern: "nic/NAME/queue/rx-N/adaptive-rx",
        about: "adaptive RX coalescing of one queue; `coalesce/adaptive-rx` sets all queues",
        domain: Domain::Switch,
        access: Access::Netlink,
        by_hand: ByHand::Command(
            "ethtool --per-queue NAME queue_mask MASK --coalesce adaptive-rx VALUE"
        ),
        fact: Fact::QueueCoalesce(field!(adaptive_rx)),
        effects: Effects::QueueCoalescing,
        source: "ethtool(8), --per-queue",
        ..OF_NIC
    },
    QueueAdaptiveTx(u32) = SettingSpec {
        pattern: "nic/NAME/queue/tx-N/adaptive-tx",
        about: "adaptive TX coalescing of one queue; `coalesce/adaptive-tx` sets all queues",
        domain: Domain::Switch,
        access: Access::Netlink,
        by_hand: ByHand::Command(
            "ethtool --per-queue NAME queue_mask MASK --coalesce adaptive-tx VALUE"
        ),
        fact: Fact::QueueCoalesce(field!(adaptive_tx)),
        effects: Effects::QueueCoalescing,
        source: "ethtool(8), --per-queue",
        ..OF_NIC
    },
    QueueRxUsecs(u32) = SettingSpec {
        pattern: "nic/NAME/queue/rx-N/rx-usecs",
        about: "rx-usecs of one queue; `coalesce/rx-usecs` sets all queues",
        access: Access::Netlink,
        by_hand: ByHand::Command(
            "ethtool --per-queue NAME queue_mask MASK --coalesce rx-usecs VALUE"
        ),
        fact: Fact::QueueCoalesce(field!(rx_usecs)),
        effects: Effects::QueueCoalescing,
        is_rounded: true,
        source: "ethtool(8), --per-queue",
        ..OF_NIC
    },
    QueueTxUsecs(u32) = SettingSpec {
        pattern: "nic/NAME/queue/tx-N/tx-usecs",
        about: "tx-usecs of one queue; `coalesce/tx-usecs` sets all queues",
        access: Access::Netlink,
        by_hand: ByHand::Command(
            "ethtool --per-queue NAME queue_mask MASK --coalesce tx-usecs VALUE"
        ),
        fact: Fact::QueueCoalesce(field!(tx_usecs)),
        effects: Effects::QueueCoalescing,
        is_rounded: true,
        source: "ethtool(8), --per-queue",
        ..OF_NIC
    },
    QueueRxFrames(u32) = SettingSpec {
        pattern: "nic/NAME/queue/rx-N/rx-frames",
        about: "rx-frames of one queue; `coalesce/rx-frames` sets all queues",
        access: Access::Netlink,
        by_hand: ByHand::Command(
            "ethtool --per-queue NAME queue_mask MASK --coalesce rx-frames VALUE"
        ),
        fact: Fact::QueueCoalesce(field!(rx_frames)),
        effects: Effects::QueueCoalescing,
        is_rounded: true,
        source: "ethtool(8), --per-queue",
        ..OF_NIC
    },
    QueueTxFrames(u32) = SettingSpec {
        pattern: "nic/NAME/queue/tx-N/tx-frames",
        about: "tx-frames of one queue; `coalesce/tx-frames` sets all queues",
        access: Access::Netlink,
        by_hand: ByHand::Command(
            "ethtool --per-queue NAME queue_mask MASK --coalesce tx-frames VALUE"
        ),
        fact: Fact::QueueCoalesce(field!(tx_frames)),
        effects: Effects::QueueCoalescing,
        is_rounded: true,
        source: "ethtool(8), --per-queue",
        ..OF_NIC
    },
    VlanEgress = SettingSpec {
        pattern: "nic/NAME/vlan/egress",
        about: "egress priority map of a VLAN, socket priority to PCP: `0:1 3:3`; unlisted priorities map to 0",
        domain: Domain::EgressMap,
        access: Access::Netlink,
        by_hand: ByHand::Command("ip link set dev NAME type vlan egress-qos-map VALUE"),
        fact: Fact::Stack(computed(vlan_egress)),
        source: "ip-link(8), egress-qos-map",
        ..OF_NIC
    },
    Qdisc = SettingSpec {
        pattern: "nic/NAME/qdisc",
        about: "root qdisc with classes and leaves, in tc(8) syntax: `tbf rate 1gbit burst 128k latency 50ms`, `htb default 30 class 1 rate 10gbit class 10 parent 1 rate 50mbit leaf pfifo limit 100 class 30 parent 1 rate 5gbit ceil 10gbit`",
        domain: Domain::Qdisc,
        class: Class::R2,
        access: Access::Netlink,
        by_hand: ByHand::Code(by_hand::by_tc),
        fact: Fact::Nic(field!(qdisc)),
        source: "tc(8)",
        ..OF_NIC
    },
    ClassRules = SettingSpec {
        pattern: "nic/NAME/class-rules",
        about: "which packets go to which class of the root qdisc, by linerate's own nf_tables table: `priority 1 -> 1:10; vlan 10 -> 1:20; dscp af21 -> 1:20; port 5001 -> 1:30; mark 1 -> 1:30`; the first match decides",
        domain: Domain::ClassRules,
        access: Access::Netlink,
        by_hand: ByHand::Code(by_hand::by_class_rules),
        source: "nft(8), netdev egress; tc-htb(8), classification",
        ..OF_NIC
    },
    GroFlushTimeoutNs = SettingSpec {
        pattern: "nic/NAME/napi/gro-flush-timeout-ns",
        about: "GRO flush timeout before interrupts are re-enabled, nanoseconds",
        access: Access::File("sys/class/net/NAME/gro_flush_timeout", Form::Number),
        fact: Fact::Nic(field!(dispatch.gro_flush_timeout_ns)),
        source: "Documentation/networking/napi.rst",
        ..OF_NIC
    },
    DeferHardIrqs = SettingSpec {
        pattern: "nic/NAME/napi/defer-hard-irqs",
        about: "empty polls before interrupts are re-enabled",
        access: Access::File("sys/class/net/NAME/napi_defer_hard_irqs", Form::Number),
        fact: Fact::Nic(field!(dispatch.defer_hard_irqs)),
        source: "Documentation/networking/napi.rst",
        ..OF_NIC
    },
    Threaded = SettingSpec {
        pattern: "nic/NAME/napi/threaded",
        about: "threaded NAPI",
        domain: Domain::Switch,
        class: Class::R2,
        access: Access::File("sys/class/net/NAME/threaded", Form::Switch),
        fact: Fact::Nic(field!(dispatch.threaded)),
        source: "Documentation/networking/napi.rst",
        ..OF_NIC
    },
    PauseAutoneg = SettingSpec {
        pattern: "nic/NAME/pause/autoneg",
        about: "pause frame autonegotiation",
        domain: Domain::Switch,
        class: Class::R3,
        access: Access::Ethtool(EthtoolRequest::Pause, ethtool::PAUSE_AUTONEG),
        by_hand: ByHand::Command("ethtool -A NAME autoneg VALUE"),
        fact: Fact::Pause(field!(autoneg)),
        effects: Effects::Pause,
        ..OF_NIC
    },
    PauseRx = SettingSpec {
        pattern: "nic/NAME/pause/rx",
        about: "honor received pause frames (802.3x)",
        domain: Domain::Switch,
        class: Class::R3,
        access: Access::Ethtool(EthtoolRequest::Pause, ethtool::PAUSE_RX),
        by_hand: ByHand::Command("ethtool -A NAME rx VALUE"),
        fact: Fact::Pause(field!(rx)),
        effects: Effects::Pause,
        ..OF_NIC
    },
    PauseTx = SettingSpec {
        pattern: "nic/NAME/pause/tx",
        about: "send pause frames (802.3x)",
        domain: Domain::Switch,
        class: Class::R3,
        access: Access::Ethtool(EthtoolRequest::Pause, ethtool::PAUSE_TX),
        by_hand: ByHand::Command("ethtool -A NAME tx VALUE"),
        fact: Fact::Pause(field!(tx)),
        effects: Effects::Pause,
        ..OF_NIC
    },
    Eee = SettingSpec {
        pattern: "nic/NAME/eee",
        about: "Energy-Efficient Ethernet (EEE)",
        domain: Domain::Switch,
        class: Class::R3,
        access: Access::Ethtool(EthtoolRequest::Eee, ethtool::EEE_ENABLED),
        by_hand: ByHand::Command("ethtool --set-eee NAME eee VALUE"),
        fact: Fact::Eee(field!(enabled)),
        ..OF_NIC
    },
    Fec = SettingSpec {
        pattern: "nic/NAME/fec",
        about: "allowed FEC modes: `RS BASER`, `auto`",
        domain: Domain::Text,
        class: Class::R3,
        access: Access::Netlink,
        by_hand: ByHand::Command("ethtool --set-fec NAME encoding VALUE"),
        fact: Fact::Fec(computed(|fec, _| known_text(fec_words(fec)))),
        ..OF_NIC
    },
    GsoMaxBytes = SettingSpec {
        pattern: "nic/NAME/gso-max-bytes",
        about: "maximum GSO size, IPv6 and others",
        access: Access::Link(link::GSO_MAX_SIZE),
        by_hand: ByHand::Command("ip link set dev NAME gso_max_size VALUE"),
        fact: Fact::Stack(field!(gso_max_bytes)),
        effects: Effects::Siblings(&["nic/NAME/gso-ipv4-max-bytes"]),
        source: "ip-link(8)",
        ..OF_NIC
    },
    GsoIpv4MaxBytes = SettingSpec {
        pattern: "nic/NAME/gso-ipv4-max-bytes",
        about: "maximum GSO size, IPv4",
        access: Access::Link(link::GSO_IPV4_MAX_SIZE),
        by_hand: ByHand::Command("ip link set dev NAME gso_ipv4_max_size VALUE"),
        fact: Fact::Stack(field!(gso_ipv4_max_bytes)),
        source: "ip-link(8)",
        ..OF_NIC
    },
    GroMaxBytes = SettingSpec {
        pattern: "nic/NAME/gro-max-bytes",
        about: "maximum GRO size",
        access: Access::Link(link::GRO_MAX_SIZE),
        by_hand: ByHand::Command("ip link set dev NAME gro_max_size VALUE"),
        fact: Fact::Stack(field!(gro_max_bytes)),
        effects: Effects::Siblings(&["nic/NAME/gro-ipv4-max-bytes"]),
        source: "ip-link(8)",
        ..OF_NIC
    },
    GroIpv4MaxBytes = SettingSpec {
        pattern: "nic/NAME/gro-ipv4-max-bytes",
        about: "maximum GRO size, IPv4",
        access: Access::Link(link::GRO_IPV4_MAX_SIZE),
        by_hand: ByHand::Command("ip link set dev NAME gro_ipv4_max_size VALUE"),
        fact: Fact::Stack(field!(gro_ipv4_max_bytes)),
        source: "ip-link(8)",
        ..OF_NIC
    },
    BondHashPolicy = SettingSpec {
        pattern: "nic/NAME/bond/hash-policy",
        about: "bond transmit hash policy",
        domain: Domain::Text,
        class: Class::R2,
        access: Access::File("sys/class/net/NAME/bonding/xmit_hash_policy", Form::Named),
        fact: Fact::Stack(computed(bond_hash_policy)),
        source: "Documentation/networking/bonding.rst",
        ..OF_NIC
    },
    IpoibMode = SettingSpec {
        pattern: "nic/NAME/ipoib/mode",
        about: "`datagram` or `connected`",
        domain: Domain::Text,
        class: Class::R3,
        access: Access::File("sys/class/net/NAME/mode", Form::Words),
        fact: Fact::Stack(computed(ipoib_mode)),
        source: "Documentation/infiniband/ipoib.rst",
        ..OF_NIC
    },
    Aspm(String) = SettingSpec {
        pattern: "nic/NAME/pci/STATE",
        about: "ASPM state of the NIC's PCIe link",
        domain: Domain::Switch,
        scope: Scope::Machine,
        access: Access::File("sys/class/net/NAME/device/link/STATE", Form::Switch),
        fact: Fact::Nic(computed(aspm)),
        source: "Documentation/ABI/testing/sysfs-bus-pci",
        ..OF_NIC
    },
);
