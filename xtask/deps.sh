#!/bin/sh
# The programs that are not Rust: `deps.sh build` (needed) and `deps.sh test` (without them the tests
# that want them skip and say so). As root what is missing is installed with apt-get, otherwise the
# command that installs it is named. Nothing is done, and nothing printed, when all is there.
#
# linerate itself needs none of the tools of the second list: tests hold its results against theirs.

# program, or file by its whole path:Debian package
build="cc:gcc git:git"
test="ip:iproute2 ethtool:ethtool sysctl:procps setpriv:util-linux unshare:util-linux iperf3:iperf3 node:nodejs npm:npm chromium:chromium
    prometheus:prometheus promtool:prometheus prometheus-node-exporter:prometheus-node-exporter
    /usr/lib/python3/dist-packages/prometheus_client/openmetrics/parser.py:python3-prometheus-client
    keepalived:keepalived /usr/lib/frr/zebra:frr ovs-vswitchd:openvswitch-switch nft:nftables nginx:nginx-light wrk:wrk
    slurmctld:slurmctld slurmd:slurmd srun:slurm-client munged:munge mpirun.openmpi:openmpi-bin mpiexec.hydra:mpich
    pdsh:pdsh
    mandoc:mandoc zsh:zsh fish:fish rpmbuild:rpm curl:curl
    /usr/lib/python3/dist-packages/junitparser:python3-junitparser
    /usr/include/infiniband/verbs.h:libibverbs-dev /usr/include/rdma/rdma_cma.h:librdmacm-dev"

# Prints the packages of those programs that are not on the PATH, and of files that are not there.
missing() {
    for pair in $1; do
        program=${pair%%:*}
        found=$(PATH="$PATH:/usr/sbin:/sbin" command -v "$program")
        if [ "$program" = chromium ] && [ -z "$found" ]; then
            found=$(command -v chromium-browser || command -v google-chrome)
        elif [ -e "$program" ]; then
            found=$program
        fi
        [ -n "$found" ] || echo "${pair##*:}"
    done | sort -u | tr '\n' ' '
}

# Changes the state of a unit, where systemd runs.
unit() {
    [ ! -d /run/systemd/system ] || systemctl "$@" >/dev/null 2>&1 || :
}

# The services of a package that would run once it is installed.
units_of() {
    case $1 in
        prometheus* | keepalived | frr) echo "$1.service" ;;
        openvswitch-switch) echo "openvswitch-switch.service ovs-vswitchd.service ovsdb-server.service" ;;
        nginx-light) echo nginx.service ;;
        slurmctld | slurmd | munge) echo "$1.service" ;;
    esac
}

install() {
    export DEBIAN_FRONTEND=noninteractive
    log=$(mktemp)
    # One by one: a package that this release does not have must not keep the others out.
    for package in $1; do
        echo "installing $package"
        # The tests start their own: no server is to run on this machine because of them.
        units=$(units_of "$package")
        # shellcheck disable=SC2086 # one word for each unit
        [ -z "$units" ] || unit mask --runtime $units
        apt-get install -y --no-install-recommends "$package" >"$log" 2>&1 ||
            { apt-get update && apt-get install -y --no-install-recommends "$package"; } >"$log" 2>&1 ||
            { tail -n 5 "$log"; echo "could not install $package"; }
        if [ -n "$units" ]; then
            # shellcheck disable=SC2086
            unit unmask --runtime $units
            # shellcheck disable=SC2086
            unit disable $units
        fi
    done >&2
    rm -f "$log"
}

case $1 in
    build) wanted=$build ;;
    test) wanted=$test ;;
    *) echo "usage: deps.sh build|test" >&2; exit 2 ;;
esac

packages=$(missing "$wanted")
[ -n "$packages" ] || exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    install "$packages"
    packages=$(missing "$wanted")
    [ -n "$packages" ] || exit 0
fi
echo "missing: $packages" >&2
if command -v apt-get >/dev/null; then
    echo "hint: sudo apt-get install -y --no-install-recommends $packages" >&2
else
    echo "hint: these are Debian's names; install what provides them here" >&2
fi
if [ "$1" = build ]; then
    exit 1
fi
echo "going on: the tests that need them skip and say so" >&2
