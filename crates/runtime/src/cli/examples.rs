//! The examples that each page of `--help` ends with.

/// Three command lines for each page, by the words that name the page.
pub(super) const EXAMPLES: &[(&str, [&str; 3])] = &[
    (
        "",
        [
            "linerate                        # check this host",
            "linerate measure stream HOST    # how fast is the path, and what limits it?",
            "linerate prove HOST             # test every fix, keep those that help",
        ],
    ),
    (
        "demo",
        [
            "linerate demo",
            "linerate demo mesh    # the slow one of eight hosts",
            "linerate demo --seed 7",
        ],
    ),
    (
        "map",
        [
            "linerate map eth2",
            "linerate map --watch 10",
            "linerate --format svg map > host.svg",
        ],
    ),
    (
        "nic",
        [
            "linerate nic eth2",
            "linerate nic eth2 --from host.lrcap --then later.lrcap",
            "linerate nic eth2 --opcode 1036    # what mlxlink printed",
        ],
    ),
    (
        "doctor",
        [
            "linerate doctor",
            "linerate doctor eth2 --role latency --verbose",
            "linerate doctor --from host.lrcap --fail-on crit",
        ],
    ),
    (
        "explain",
        [
            "linerate explain rules",
            "linerate explain irq-remote-numa",
            "linerate explain exit-codes",
        ],
    ),
    (
        "ceiling",
        [
            "linerate ceiling eth2",
            "linerate ceiling --peer HOST",
            "linerate ceiling --speed 100G --mtu 9000 --pcie 3x8 --rate 59Gb/s",
        ],
    ),
    (
        "measure",
        [
            "linerate measure stream HOST",
            "linerate measure rr HOST -P 16",
            "linerate measure udp HOST -b 1Gb/s",
        ],
    ),
    (
        "measure stream",
        [
            "linerate measure stream HOST -P 4 -t 30 --why",
            "linerate measure stream HOST --nic eth2,eth3 -J > nics.json",
            "linerate measure stream HOST --until-ci 1% --require 'rate>=9.4Gb/s'",
        ],
    ),
    (
        "measure rr",
        [
            "linerate measure rr HOST",
            "linerate measure rr HOST -P 64 --rate 100000    # open loop",
            "linerate measure rr HOST --require 'p99<=100us'",
        ],
    ),
    (
        "measure pingpong",
        [
            "linerate measure pingpong HOST",
            "linerate measure pingpong HOST --sizes 4B,64KiB,4MiB",
            "linerate measure pingpong HOST --transport verbs",
        ],
    ),
    (
        "measure http",
        [
            "linerate measure http HOST -P 100",
            "linerate measure http http://192.0.2.1:8080/ -t 30",
            "linerate measure http HOST --rate 20000 --body 4KiB",
        ],
    ),
    (
        "measure transfer",
        [
            "linerate measure transfer HOST",
            "linerate measure transfer HOST --bytes 64MiB --repetitions 100",
            "linerate measure transfer HOST --transport verbs --data-check",
        ],
    ),
    (
        "measure diffusion",
        [
            "linerate measure diffusion HOST",
            "linerate measure diffusion HOST --repetitions 1000 --overhead",
            "linerate measure diffusion HOST -P 4 --no-compute",
        ],
    ),
    (
        "measure udp",
        [
            "linerate measure udp HOST -b 1Gb/s -t 30",
            "linerate measure udp HOST -b 100MB/s -l 1400 -P 4",
            "linerate measure udp HOST --batch single -R",
        ],
    ),
    (
        "measure block",
        [
            "linerate measure block nvme0n1",
            "linerate measure block /dev/nvme0n1 --jobs per-queue --place near -J",
            "linerate measure block sdb --write sdb --pattern sequential --block-size 1MiB    # destroys its data",
        ],
    ),
    (
        "measure rdma-write",
        [
            "linerate measure rdma-write HOST",
            "linerate measure rdma-write HOST --sweep",
            "linerate measure rdma-write HOST --latency --device mlx5_0",
        ],
    ),
    (
        "measure rdma-read",
        [
            "linerate measure rdma-read HOST",
            "linerate measure rdma-read HOST --sizes 4KiB,1MiB --depth 16",
            "linerate measure rdma-read HOST --latency",
        ],
    ),
    (
        "measure rdma-send",
        [
            "linerate measure rdma-send HOST",
            "linerate measure rdma-send HOST --service ud",
            "linerate measure rdma-send HOST --latency --wait blocking",
        ],
    ),
    (
        "measure rdma-atomic",
        [
            "linerate measure rdma-atomic HOST",
            "linerate measure rdma-atomic HOST --latency",
            "linerate measure rdma-atomic HOST -P 4 --depth 16",
        ],
    ),
    (
        "prove",
        [
            "linerate prove HOST",
            "linerate prove HOST --undo --trials 9",
            "linerate prove /dev/nvme0n1     # the fixes of a block device",
        ],
    ),
    (
        "lab",
        [
            "linerate lab list",
            "linerate lab run stack-parameters HOST --quick",
            "linerate lab show /var/lib/linerate/runs/RUN",
        ],
    ),
    (
        "lab list",
        [
            "linerate lab list",
            "linerate lab list -J",
            "linerate lab run stack-parameters --plan",
        ],
    ),
    (
        "lab run",
        [
            "linerate lab run stack-parameters --quick    # between two namespaces",
            "linerate lab run blk-mq /dev/nvme0n1 --quick",
            "linerate lab run memory-policy-rfs HOST --server 'nginx -g \"daemon off;\"' --url http://192.0.2.1/",
        ],
    ),
    (
        "lab resume",
        [
            "linerate lab resume /var/lib/linerate/runs/RUN",
            "linerate lab resume ./RUN netns:far",
            "linerate lab resume ./RUN ssh://root@HOST",
        ],
    ),
    (
        "lab show",
        [
            "linerate lab show /var/lib/linerate/runs/RUN",
            "linerate lab show ./RUN -J",
            "linerate report ./RUN    # the same as a page",
        ],
    ),
    (
        "compare",
        [
            "linerate compare a1,a2,a3 b1,b2,b3",
            "linerate compare a1,a2,a3 b1,b2,b3 --margin 5%",
            "linerate compare last~1 last",
        ],
    ),
    (
        "tune",
        [
            "linerate tune plan",
            "linerate tune apply",
            "linerate tune undo",
        ],
    ),
    (
        "tune plan",
        [
            "linerate tune plan",
            "linerate tune plan --role latency",
            "linerate tune plan --from plan.toml",
        ],
    ),
    (
        "tune apply",
        [
            "linerate tune apply",
            "linerate tune apply --from plan.toml --deadline 2min",
            "linerate tune apply --prove HOST",
        ],
    ),
    (
        "tune search",
        [
            "linerate tune search HOST",
            "linerate tune search HOST --budget 1h",
            "linerate tune search HOST --rr --undo",
        ],
    ),
    (
        "tune hold",
        [
            "linerate tune hold -- iperf3 -c HOST",
            "linerate tune hold --role latency -- ./benchmark",
            "linerate tune hold --from plan.toml",
        ],
    ),
    (
        "tune confirm",
        [
            "linerate tune confirm",
            "linerate tune status    # which one waits",
            "linerate tune undo      # instead",
        ],
    ),
    (
        "tune affinity",
        [
            "linerate tune affinity eth2 --dry-run",
            "linerate tune affinity eth2",
            "linerate tune affinity eth2 --persist",
        ],
    ),
    (
        "tune persist",
        [
            "linerate tune persist",
            "linerate tune persist --probe 192.0.2.1:22 --deadline 2min",
            "linerate tune persist --remove",
        ],
    ),
    (
        "tune boot",
        [
            "linerate tune boot",
            "linerate tune persist             # creates the unit that runs it",
            "linerate tune persist --remove    # removes the unit",
        ],
    ),
    (
        "tune undo",
        [
            "linerate tune undo",
            "linerate tune undo ID",
            "linerate tune undo ID --peer exec:COMMAND",
        ],
    ),
    (
        "tune recover",
        [
            "linerate tune recover",
            "linerate tune recover --peer HOST",
            "linerate tune status",
        ],
    ),
    (
        "failover",
        [
            "linerate failover HOST --do 'ip link set eth0 down' --restore 'ip link set eth0 up'",
            "linerate failover HOST --time 5min    # what happens by itself",
            "linerate failover HOST --do ./fail --restore ./restore --require 'gap<200ms'",
        ],
    ),
    (
        "mesh",
        [
            "linerate mesh node1 node2 node3 node4",
            "linerate mesh --hosts hosts.toml --time 5s --repeats 3",
            "linerate mesh --size 16 -- srun -N 16 --ntasks-per-node=1 linerate mesh",
        ],
    ),
    (
        "qos",
        [
            "linerate qos plan storage.toml",
            "linerate qos apply storage.toml",
            "linerate qos verify storage.toml HOST",
        ],
    ),
    (
        "qos plan",
        [
            "linerate qos plan storage.toml",
            "linerate qos plan storage.toml -J",
            "linerate qos apply storage.toml",
        ],
    ),
    (
        "qos apply",
        [
            "linerate qos apply storage.toml",
            "linerate qos apply storage.toml --deadline 2min",
            "linerate qos apply storage.toml --no-confirm --persist",
        ],
    ),
    (
        "qos confirm",
        [
            "linerate qos confirm",
            "linerate qos status    # what waits",
            "linerate qos undo      # instead",
        ],
    ),
    (
        "qos verify",
        [
            "linerate qos verify storage.toml HOST",
            "linerate qos verify storage.toml HOST --within 2% --rounds 9",
            "linerate qos verify storage.toml HOST --bidir -J",
        ],
    ),
    (
        "qos status",
        [
            "linerate qos status",
            "linerate qos status -J",
            "linerate qos undo eth1",
        ],
    ),
    (
        "qos persist",
        [
            "linerate qos persist",
            "linerate qos persist --probe 192.0.2.1:22 --deadline 2min",
            "linerate qos persist --remove",
        ],
    ),
    (
        "qos undo",
        [
            "linerate qos undo",
            "linerate qos undo eth1",
            "linerate qos status",
        ],
    ),
    (
        "qos import",
        [
            "linerate qos import eth1",
            "linerate qos import eth1 > storage.toml",
            "linerate qos plan storage.toml",
        ],
    ),
    (
        "tune status",
        [
            "linerate tune status",
            "linerate tune status -J",
            "linerate tune undo ID",
        ],
    ),
    (
        "agent",
        [
            "linerate agent --listen                    # for paired hosts; prints a pairing line",
            "linerate agent --iperf3 192.0.2.1:5201",
            "linerate agent --http 192.0.2.1:8080 --body 4KiB",
        ],
    ),
    (
        "agent pair",
        [
            "linerate agent pair",
            "linerate agent pair --advertise gateway.example:6000",
            "linerate agent pair --pair-within 2min",
        ],
    ),
    (
        "agent paired",
        [
            "linerate agent paired",
            "linerate agent paired -J",
            "linerate agent forget 192.0.2.1",
        ],
    ),
    (
        "agent forget",
        [
            "linerate agent forget 192.0.2.1",
            "linerate agent forget 64b7a0e1",
            "linerate agent paired",
        ],
    ),
    (
        "peers",
        [
            "linerate peers list",
            "linerate peers pair LINE",
            "linerate peers forget 192.0.2.1:5210",
        ],
    ),
    (
        "peers list",
        [
            "linerate peers list",
            "linerate peers list -J",
            "linerate measure stream tls://192.0.2.1",
        ],
    ),
    (
        "peers pair",
        [
            "linerate peers pair LINE",
            "linerate peers pair LINE --at gateway.example:6000",
            "linerate measure stream tls://192.0.2.1 --pair LINE",
        ],
    ),
    (
        "peers forget",
        [
            "linerate peers forget 192.0.2.1:5210",
            "linerate peers forget 64b7a0e1",
            "linerate peers list",
        ],
    ),
    (
        "testbed",
        [
            "linerate testbed rxe pair",
            "linerate testbed rxe remove --all",
            "linerate testbed redundant add vrrp",
        ],
    ),
    (
        "testbed mesh",
        [
            "linerate testbed mesh add 8 --fault send:2",
            "linerate testbed mesh list",
            "linerate testbed mesh remove",
        ],
    ),
    (
        "testbed mesh add",
        [
            "linerate testbed mesh add 8 --fault send:2",
            "linerate testbed mesh add 8 --fault pair:0-3 --fault loss:5",
            "linerate testbed mesh remove",
        ],
    ),
    (
        "testbed mesh remove",
        [
            "linerate testbed mesh remove",
            "linerate testbed mesh list",
            "linerate testbed mesh add 4",
        ],
    ),
    (
        "testbed mesh list",
        [
            "linerate testbed mesh list",
            "linerate testbed mesh list -J",
            "linerate testbed mesh remove",
        ],
    ),
    (
        "testbed redundant",
        [
            "linerate testbed redundant add vrrp --advert 100ms",
            "linerate testbed redundant list",
            "linerate testbed redundant remove",
        ],
    ),
    (
        "testbed redundant add",
        [
            "linerate testbed redundant add ecmp",
            "linerate testbed redundant add mlag",
            "linerate testbed redundant remove",
        ],
    ),
    (
        "testbed redundant add vrrp",
        [
            "linerate testbed redundant add vrrp",
            "linerate testbed redundant add vrrp --advert 100ms",
            "linerate testbed redundant list",
        ],
    ),
    (
        "testbed redundant add ecmp",
        [
            "linerate testbed redundant add ecmp --bfd off",
            "linerate testbed redundant add ecmp --igp ospf --bfd 300ms",
            "linerate testbed redundant add ecmp --igp static --resilient",
        ],
    ),
    (
        "testbed redundant add magp",
        [
            "linerate testbed redundant add magp",
            "linerate testbed redundant list",
            "linerate testbed redundant remove",
        ],
    ),
    (
        "testbed redundant add mlag",
        [
            "linerate testbed redundant add mlag",
            "linerate testbed redundant add mlag --lag openvswitch",
            "linerate testbed redundant add mlag --lacp-rate slow",
        ],
    ),
    (
        "testbed redundant add active-backup",
        [
            "linerate testbed redundant add active-backup",
            "linerate testbed redundant add active-backup --miimon 1s",
            "linerate testbed redundant add active-backup --miimon off",
        ],
    ),
    (
        "testbed redundant remove",
        [
            "linerate testbed redundant remove",
            "linerate testbed redundant remove -J",
            "linerate testbed redundant list",
        ],
    ),
    (
        "testbed redundant list",
        [
            "linerate testbed redundant list",
            "linerate testbed redundant list -J",
            "linerate testbed redundant remove",
        ],
    ),
    (
        "testbed redundant stop",
        [
            "linerate testbed redundant stop lr-r1",
            "linerate testbed redundant stop lr-r1 --kill",
            "linerate testbed redundant start lr-r1",
        ],
    ),
    (
        "testbed redundant start",
        [
            "linerate testbed redundant start lr-r1",
            "linerate testbed redundant stop lr-r1",
            "linerate testbed redundant list",
        ],
    ),
    (
        "testbed rxe",
        [
            "linerate testbed rxe add eth2",
            "linerate testbed rxe pair --mtu 4200",
            "linerate testbed rxe remove --all",
        ],
    ),
    (
        "testbed rxe add",
        [
            "linerate testbed rxe add eth2",
            "linerate testbed rxe add eth2 --name rxe7",
            "linerate testbed rxe list",
        ],
    ),
    (
        "testbed rxe pair",
        [
            "linerate testbed rxe pair",
            "linerate testbed rxe pair --mtu 4200",
            "linerate testbed rxe pair --network 198.18.7.0",
        ],
    ),
    (
        "testbed rxe remove",
        [
            "linerate testbed rxe remove rxe0",
            "linerate testbed rxe remove --all",
            "linerate testbed rxe list",
        ],
    ),
    (
        "testbed rxe list",
        [
            "linerate testbed rxe list",
            "linerate testbed rxe list -J",
            "linerate testbed rxe remove --all",
        ],
    ),
    (
        "capture",
        [
            "linerate capture host.lrcap",
            "linerate doctor --from host.lrcap",
            "linerate map --diff host.lrcap    # what has changed since",
        ],
    ),
    (
        "report",
        [
            "linerate report last",
            "linerate report ./RUN --out run.html",
            "linerate report --serve 8080",
        ],
    ),
    (
        "runs",
        [
            "linerate runs",
            "linerate runs --workload stream --since 2026-11-01",
            "linerate runs --host HOST -J",
        ],
    ),
    (
        "export",
        [
            "linerate export last > trials.csv",
            "linerate export ./RUN1 ./RUN2 --out trials.parquet",
            "linerate export ./RUN --to jsonl",
        ],
    ),
    (
        "completions",
        [
            "linerate completions bash > /etc/bash_completion.d/linerate",
            "linerate completions zsh > _linerate",
            "linerate completions fish > linerate.fish",
        ],
    ),
];
