//! The settings of the machine, its CPUs, block devices and RDMA devices, and of a measurement.

use super::BASE;
use crate::setting::fact::field;
use crate::setting::knobs::knobs;
use crate::setting::spec::{Access, ByHand, Class, Domain, Effects, Keeping, Scope, SettingSpec};
use crate::setting::{Fact, Form, by_hand};

/// Settings that all namespaces share.
const OF_MACHINE: SettingSpec = SettingSpec {
    scope: Scope::Machine,
    ..BASE
};

/// How linerate itself measures: where its threads run, and its socket options. An application has equivalent ones.
const OF_TRIAL: SettingSpec = SettingSpec {
    class: Class::R0,
    scope: Scope::Trial,
    keeping: Keeping::Never("it belongs to a measurement"),
    ..BASE
};

/// What to do instead of changing netfilter rules.
const NETFILTER: &str =
    "linerate does not change netfilter rules: see `nft list ruleset` and `iptables-save`";

/// `sysctl/net.NAME`.
pub(crate) const SYSCTL_NET: SettingSpec = SettingSpec {
    pattern: "sysctl/net.NAME",
    about: "a network sysctl of the namespace",
    domain: Domain::Text,
    scope: Scope::Netns,
    access: Access::FoundFile,
    by_hand: ByHand::Code(by_hand::by_sysctl),
    fact: Fact::Sysctl,
    effects: Effects::Sysctl,
    source: "Documentation/networking/ip-sysctl.rst",
    ..OF_MACHINE
};

/// Any other sysctl.
pub(crate) const SYSCTL: SettingSpec = SettingSpec {
    pattern: "sysctl/NAME",
    about: "a sysctl of the machine",
    domain: Domain::Text,
    access: Access::FoundFile,
    by_hand: ByHand::Code(by_hand::by_sysctl),
    fact: Fact::Sysctl,
    effects: Effects::Sysctl,
    source: "Documentation/admin-guide/sysctl",
    ..OF_MACHINE
};

/// `irq/NUMBER/cpus`.
pub(crate) const IRQ_CPUS: SettingSpec = SettingSpec {
    pattern: "irq/NUMBER/cpus",
    about: "CPU affinity of an interrupt; its number is valid until the next boot",
    domain: Domain::Cpus,
    access: Access::File("proc/irq/NUMBER/smp_affinity_list", Form::CpuList),
    fact: Fact::Interrupt,
    keeping: Keeping::Never("interrupt numbers change at the next boot"),
    source: "Documentation/core-api/irq/irq-affinity.rst",
    ..OF_MACHINE
};

/// `rdma/NAME/cm-defaults`.
pub(crate) const RDMA_DEFAULTS: SettingSpec = SettingSpec {
    pattern: "rdma/NAME/cm-defaults",
    about: "whether configfs has a folder for what rdma_cm takes by default on a device: the next two are read and written in it",
    domain: Domain::Switch,
    access: Access::Folder("sys/kernel/config/rdma_cm/NAME"),
    source: "Documentation/ABI/testing/configfs-rdma_cm",
    ..OF_MACHINE
};

knobs!(
    #[derive(Copy)]
    MachineKnob,
    0,
    Turbo = SettingSpec {
        pattern: "cpu/turbo",
        about: "turbo boost",
        domain: Domain::Switch,
        access: Access::FoundFile,
        fact: Fact::Host(field!(power.turbo)),
        source: "Documentation/admin-guide/pm/cpufreq.rst",
        ..OF_MACHINE
    },
    Smt = SettingSpec {
        pattern: "cpu/smt",
        about: "SMT: `on`, `off`; threads pinned to removed CPUs stay unpinned when they return",
        domain: Domain::Text,
        class: Class::R4,
        access: Access::File("sys/devices/system/cpu/smt/control", Form::Words),
        fact: Fact::Host(field!(power.smt)),
        effects: Effects::Smt,
        source: "Documentation/ABI/testing/sysfs-devices-system-cpu",
        ..OF_MACHINE
    },
    MaxLatencyUs = SettingSpec {
        pattern: "cpu/max-latency-us",
        about: "maximum C-state exit latency, microseconds; held while linerate runs",
        class: Class::R0,
        access: Access::Held,
        fact: Fact::Host(field!(power.latency_limit_us)),
        keeping: Keeping::Never("it lasts as long as a process holds it"),
        source: "Documentation/power/pm_qos_interface.rst",
        ..OF_MACHINE
    },
    IrqbalancePaused = SettingSpec {
        pattern: "irqbalance/paused",
        about: "whether irqbalance is stopped (SIGSTOP), so that it moves no interrupt",
        domain: Domain::Switch,
        access: Access::Irqbalance,
        source: "irqbalance(1)",
        ..OF_MACHINE
    },
    IrqbalanceBans = SettingSpec {
        pattern: "irqbalance/banned-irqs",
        about: "interrupts banned from irqbalance: `24 25`; until it restarts",
        domain: Domain::Text,
        access: Access::Irqbalance,
        source: "irqbalance.c, sock_handle",
        ..OF_MACHINE
    },
    Clocksource = SettingSpec {
        pattern: "cpu/clocksource",
        about: "the kernel's clocksource",
        domain: Domain::Text,
        access: Access::File(
            "sys/devices/system/clocksource/clocksource0/current_clocksource",
            Form::Words
        ),
        fact: Fact::Host(field!(kernel.clocksource)),
        source: "Documentation/ABI/testing/sysfs-devices-system-clocksource",
        ..OF_MACHINE
    },
    TransparentHugepages = SettingSpec {
        pattern: "memory/transparent-hugepages",
        about: "transparent huge pages: `always`, `madvise`, `never`",
        domain: Domain::Text,
        access: Access::File("sys/kernel/mm/transparent_hugepage/enabled", Form::Chosen),
        fact: Fact::Host(field!(kernel.transparent_hugepages)),
        source: "Documentation/admin-guide/mm/transhuge.rst",
        ..OF_MACHINE
    },
    Mitigations = SettingSpec {
        pattern: "cpu/mitigations",
        about: "CPU vulnerability mitigations from the kernel command line: `auto`, `off`, `auto,nosmt`",
        domain: Domain::Text,
        class: Class::R4,
        access: Access::Reported(
            "only the kernel command line sets it: boot with `mitigations=VALUE`; `linerate \
 explain cpu-mitigations` shows the cost"
        ),
        keeping: Keeping::CommandLine,
        source: "Documentation/admin-guide/kernel-parameters.txt",
        ..OF_MACHINE
    },
    IntelIdleMaxCstate = SettingSpec {
        pattern: "cpu/intel-idle-max-cstate",
        about: "intel_idle.max_cstate from the kernel command line; 0 disables intel_idle",
        class: Class::R4,
        access: Access::Reported(
            "only the kernel command line sets it: boot with `intel_idle.max_cstate=VALUE`. \
 Without a reboot, `cpu/CPU/resume-latency-us` limits the C-states of one CPU and \
 `linerate tune hold` those of all"
        ),
        keeping: Keeping::CommandLine,
        source: "Documentation/admin-guide/kernel-parameters.txt",
        ..OF_MACHINE
    },
    AcpiMaxCstate = SettingSpec {
        pattern: "cpu/acpi-max-cstate",
        about: "processor.max_cstate from the kernel command line",
        class: Class::R4,
        access: Access::Reported(
            "only the kernel command line sets it: boot with `processor.max_cstate=VALUE`. \
 Without a reboot, `cpu/CPU/resume-latency-us` limits the C-states of one CPU and \
 `linerate tune hold` those of all"
        ),
        keeping: Keeping::CommandLine,
        source: "Documentation/admin-guide/kernel-parameters.txt",
        ..OF_MACHINE
    },
    TrackConnections = SettingSpec {
        pattern: "netfilter/track-connections",
        about: "whether a table of linerate's own, `inet linerate_conntrack`, makes the kernel track connections; others may",
        domain: Domain::Switch,
        scope: Scope::Netns,
        access: Access::Netlink,
        by_hand: ByHand::Code(by_hand::by_nft),
        source: "nft(8), CONNTRACK EXPRESSIONS",
        ..OF_MACHINE
    },
    NftRules = SettingSpec {
        pattern: "netfilter/nft-rules",
        about: "number of nf_tables rules in all tables; reading requires CAP_NET_ADMIN",
        scope: Scope::Netns,
        access: Access::Reported(NETFILTER),
        keeping: Keeping::Never("another program manages it"),
        source: "nft(8)",
        ..OF_MACHINE
    },
    IptablesTables = SettingSpec {
        pattern: "netfilter/iptables-tables",
        about: "legacy iptables tables in use: `filter nat`; reading requires root",
        domain: Domain::Text,
        scope: Scope::Netns,
        access: Access::Reported(NETFILTER),
        keeping: Keeping::Never("another program manages it"),
        source: "iptables(8)",
        ..OF_MACHINE
    },
);

knobs!(
    #[derive(Copy)]
    CpuKnob,
    2,
    ResumeLatencyUs = SettingSpec {
        pattern: "cpu/CPU/resume-latency-us",
        about: "maximum C-state exit latency of one CPU, microseconds; 0: no limit, `n/a`: no idle states",
        domain: Domain::Text,
        access: Access::File(
            "sys/devices/system/cpu/CPU/power/pm_qos_resume_latency_us",
            Form::Words
        ),
        source: "Documentation/ABI/testing/sysfs-devices-power",
        ..OF_MACHINE
    },
    Online = SettingSpec {
        pattern: "cpu/CPU/online",
        about: "whether a CPU is online; threads pinned only to it stay unpinned when it returns",
        domain: Domain::Switch,
        class: Class::R4,
        access: Access::File("sys/devices/system/cpu/CPU/online", Form::Switch),
        fact: Fact::Cpu(field!(online)),
        effects: Effects::Offline,
        source: "Documentation/core-api/cpu_hotplug.rst",
        ..OF_MACHINE
    },
);

knobs!(
    #[derive(Copy)]
    PolicyKnob,
    2,
    Governor = SettingSpec {
        pattern: "cpu/POLICY/governor",
        about: "cpufreq governor of a policy",
        domain: Domain::Text,
        access: Access::File(
            "sys/devices/system/cpu/cpufreq/POLICY/scaling_governor",
            Form::Words
        ),
        fact: Fact::Policy(field!(governor)),
        effects: Effects::Siblings(&["cpu/POLICY/energy-preference"]),
        source: "Documentation/admin-guide/pm/cpufreq.rst",
        ..OF_MACHINE
    },
    EnergyPreference = SettingSpec {
        pattern: "cpu/POLICY/energy-preference",
        about: "energy performance preference of a policy",
        domain: Domain::Text,
        access: Access::File(
            "sys/devices/system/cpu/cpufreq/POLICY/energy_performance_preference",
            Form::Words
        ),
        fact: Fact::Policy(field!(energy_preference)),
        source: "Documentation/admin-guide/pm/intel_pstate.rst",
        ..OF_MACHINE
    },
);

knobs!(
    #[derive(Copy)]
    BlockKnob,
    2,
    Scheduler = SettingSpec {
        pattern: "block/NAME/scheduler",
        about: "the I/O scheduler",
        domain: Domain::Text,
        access: Access::File("sys/block/NAME/queue/scheduler", Form::Scheduler),
        fact: Fact::Block(field!(scheduler)),
        effects: Effects::Siblings(&["block/NAME/nr-requests"]),
        source: "Documentation/ABI/stable/sysfs-block",
        ..OF_MACHINE
    },
    Nomerges = SettingSpec {
        pattern: "block/NAME/nomerges",
        about: "request merging: 0 all, 1 simple, 2 none",
        access: Access::File("sys/block/NAME/queue/nomerges", Form::Number),
        fact: Fact::Block(field!(nomerges)),
        source: "Documentation/ABI/stable/sysfs-block",
        ..OF_MACHINE
    },
    RqAffinity = SettingSpec {
        pattern: "block/NAME/rq-affinity",
        about: "completion CPU of requests: 1 same group, 2 the submitting CPU",
        access: Access::File("sys/block/NAME/queue/rq_affinity", Form::Number),
        fact: Fact::Block(field!(rq_affinity)),
        source: "Documentation/ABI/stable/sysfs-block",
        ..OF_MACHINE
    },
    NrRequests = SettingSpec {
        pattern: "block/NAME/nr-requests",
        about: "requests per queue; a scheduler change resets it",
        access: Access::File("sys/block/NAME/queue/nr_requests", Form::Number),
        fact: Fact::Block(field!(nr_requests)),
        source: "Documentation/ABI/stable/sysfs-block",
        ..OF_MACHINE
    },
    IoPolicy = SettingSpec {
        pattern: "block/NAME/io-policy",
        about: "NVMe multipath I/O policy",
        domain: Domain::Text,
        access: Access::FoundFile,
        fact: Fact::Block(field!(io_policy)),
        source: "Documentation/admin-guide/nvme-multipath.rst",
        ..OF_MACHINE
    },
);

knobs!(
    #[derive(Copy)]
    RdmaKnob,
    3,
    DefaultGidType = SettingSpec {
        pattern: "rdma/NAME/PORT/default-gid-type",
        about: "the GID type that rdma_cm uses: `IB/RoCE v1`, `RoCE v2`",
        domain: Domain::Text,
        access: Access::File(
            "sys/kernel/config/rdma_cm/NAME/ports/PORT/default_roce_mode",
            Form::Words
        ),
        fact: Fact::RdmaPort(field!(default_gid_type)),
        source: "Documentation/ABI/testing/configfs-rdma_cm",
        ..OF_MACHINE
    },
    DefaultRoceTos = SettingSpec {
        pattern: "rdma/NAME/PORT/default-roce-tos",
        about: "the type of service (DSCP and ECN bits) that rdma_cm gives to connections over RoCE",
        access: Access::File(
            "sys/kernel/config/rdma_cm/NAME/ports/PORT/default_roce_tos",
            Form::Number
        ),
        source: "Documentation/ABI/testing/configfs-rdma_cm",
        ..OF_MACHINE
    },
);

knobs!(
    #[derive(Copy)]
    TrialKnob,
    0,
    SenderCpus = SettingSpec {
        pattern: "placement/sender-cpus",
        about: "CPUs of linerate's sending threads",
        domain: Domain::Cpus,
        class: Class::R0,
        access: Access::Trial,
        source: "sched_setaffinity(2)",
        ..OF_TRIAL
    },
    ReceiverCpus = SettingSpec {
        pattern: "placement/receiver-cpus",
        about: "CPUs of linerate's receiving threads",
        domain: Domain::Cpus,
        class: Class::R0,
        access: Access::Trial,
        source: "sched_setaffinity(2)",
        ..OF_TRIAL
    },
    CongestionControl = SettingSpec {
        pattern: "stream/congestion-control",
        about: "congestion control of the stream's own sockets",
        domain: Domain::Text,
        class: Class::R0,
        access: Access::Trial,
        source: "tcp(7), TCP_CONGESTION",
        ..OF_TRIAL
    },
);
