#!/bin/sh
# Tests what `make dist` left in dist/ (or in the folder that is the argument): each package is installed, upgraded and
# removed in a root of its own, each program runs. As root, in namespaces and folders that go with it. `make dist-test`.
# The last line is `N passed, N failed, N skipped`; a test that cannot run here prints `SKIP: reason`.
set -u
cd "$(dirname "$0")/.."
root=$PWD
dist=$(cd "${1:-dist}" && pwd) || exit 2
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
machine=$(uname -m)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fixture=fixtures/hosts/two-socket-remote-irqs-narrow-pcie.lrcap

passed=0 failed=0 skipped=0
# test 'SENTENCE' FUNCTION [ARGUMENT...]
test_that() {
    sentence=$1
    shift
    (set -e; "$@") >"$work/log" 2>&1
    case $? in
        0) passed=$((passed + 1)); echo "ok      $sentence" ;;
        77) skipped=$((skipped + 1)); echo "skipped $sentence"; grep '^SKIP: ' "$work/log" ;;
        *) failed=$((failed + 1)); echo "FAILED  $sentence"; sed 's/^/        /' "$work/log" ;;
    esac
}
skip() {
    echo "SKIP: $1"
    exit 77
}
need() {
    for program; do
        PATH=$PATH:/usr/sbin:/sbin command -v "$program" >/dev/null || skip "$program is not installed"
    done
}
need_root() { [ "$(id -u)" = 0 ] || skip "this needs root"; }
die() {
    echo "$1"
    exit 1
}
# The unpacked archive of a target, in $unpacked.
unpack() {
    archive=$dist/linerate-$version-$1.tar.gz
    [ -e "$archive" ] || skip "$dist has no build for $1"
    unpacked=$work/$1
    [ -d "$unpacked" ] || { mkdir "$unpacked" && tar -C "$unpacked" --strip-components=1 -xzf "$archive"; }
}
# Every file of a root but what package managers keep for themselves.
listing() {
    (cd "$1" && find . -xdev \( -path ./var/lib/dpkg -o -path ./var/lib/rpm -o -path ./usr/lib/sysimage -o -path ./var/log \
        -o -path ./var/cache -o -path ./root/.rpmdb -o -path ./proc -o -path ./sys \) -prune -o -print | sort)
}

sums() { cd "$dist" && sha256sum --quiet --check SHA256SUMS; }

# What runs a program of this target here: nothing for this machine's own.
runner() {
    case $1 in
        "$machine"-*) run= ;;
        aarch64-*-musl) need qemu-aarch64-static; run=qemu-aarch64-static ;;
        aarch64-*)
            need qemu-aarch64-static
            [ -d /usr/aarch64-linux-gnu/lib ] || skip "glibc for aarch64 is not installed (libc6-arm64-cross)"
            run="qemu-aarch64-static -L /usr/aarch64-linux-gnu"
            ;;
        *) skip "no emulator for $1 here" ;;
    esac
}
runs() {
    unpack "$1"
    runner "$1"
    shown=$($run "$unpacked/linerate" --version)
    echo "$shown"
    [ "$(echo "$shown" | head -n 1)" = "linerate $version" ] || die "it has another version"
    echo "$shown" | grep -qx "target:   $1" || die "it has another target"
    echo "$shown" | grep -q '^commit:   [0-9a-f]\{12\}' || die "it has no commit"
    $run "$unpacked/linerate" doctor --from "$fixture" >"$work/found-$1" || [ $? = 10 ] || die "doctor failed"
    grep -q irq-remote-numa "$work/found-$1" || die "no finding"
    # The same findings on each architecture.
    [ ! -e "$work/found" ] || cmp "$work/found" "$work/found-$1"
    cp "$work/found-$1" "$work/found"
}

old_glibc() {
    unpack "$1"
    OBJDUMP=${1%%-*}-linux-gnu-objdump
    command -v "$OBJDUMP" >/dev/null || OBJDUMP=objdump
    export OBJDUMP
    packaging/check-glibc.sh "$unpacked/linerate" 2.28
}

needs_nothing() {
    unpack "$1"
    need readelf
    ! readelf -lW "$unpacked/linerate" | grep INTERP || die "it has a dynamic loader"
    ! readelf -dW "$unpacked/linerate" | grep NEEDED || die "it needs libraries"
}

# In a network namespace of its own with one known fault, without any file but the program and the kernel's.
empty_root() {
    need_root
    need unshare
    unpack "$machine-unknown-linux-musl"
    mkdir "$work/empty" "$work/empty/proc" "$work/empty/sys"
    cp "$unpacked/linerate" "$work/empty"
    status=0
    unshare --mount --net --fork sh -ec '
        echo 0 >/proc/sys/net/ipv4/tcp_sack
        mount -t proc proc "$1/proc"; mount -t sysfs sysfs "$1/sys"
        exec chroot "$1" /linerate doctor --watch 0' sh "$work/empty" || status=$?
    [ $status = 10 ] || die "exit code $status"
    [ "$(find "$work/empty" -xdev -type f)" = "$work/empty/linerate" ] || die "it left files behind"
}
no_verbs() {
    unpack "$machine-unknown-linux-musl"
    status=0
    "$unpacked/linerate" --state "$work/state" measure rdma-write local --time 1 --no-record 2>"$work/refused" || status=$?
    cat "$work/refused"
    [ $status = 22 ] || die "exit code $status"
    grep -q 'linux-gnu' "$work/refused" || die "it does not name the other build"
}

# A bare Debian, made once. The mirror is that of this machine.
debian() {
    need_root
    need debootstrap dpkg-deb
    if [ ! -d "$work/debian" ]; then
        mirror=$(sed -n 's/^deb  *\(\[[^]]*\] *\)\{0,1\}\(https\{0,1\}:[^ ]*\) .*/\2/p; s/^URIs: *\([^ ]*\).*/\1/p' \
            /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | head -n 1)
        suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
        debootstrap --variant=minbase "$suite" "$work/debian.new" "$mirror" >"$work/debootstrap" 2>&1 || {
            tail -n 3 "$work/debootstrap"
            skip "debootstrap cannot make a root here"
        }
        mv "$work/debian.new" "$work/debian"
    fi
    cp -a "$work/debian" "$work/$1"
    made=$work/$1
}
inactive() {
    ! find "$1/etc/systemd" -name '*linerate*' 2>/dev/null | grep . || die "a unit is active"
}
works_in() {
    chroot "$1" linerate --version
    chroot "$1" linerate doctor --watch 0 >/dev/null || [ $? = 10 ]
    inactive "$1"
}
deb() {
    debian deb
    architecture=$(dpkg --print-architecture)
    package=$dist/linerate_$version-1_$architecture.deb
    [ -e "$package" ] || die "no $package"
    # An older one, of the same program.
    unpack "$machine-unknown-linux-gnu"
    mkdir "$work/older"
    VERSION=0.0.1 DEB_COMPRESSION=none packaging/package.sh deb "$unpacked/linerate" "$machine-unknown-linux-gnu" "$work/older"
    listing "$made" >"$work/before"
    for file in "$work"/older/*.deb "$package"; do
        cp "$file" "$made/var/cache/linerate.deb"
        chroot "$made" dpkg -i /var/cache/linerate.deb
        works_in "$made"
    done
    [ "$(chroot "$made" dpkg-query -W -f '${Version}' linerate)" = "$version-1" ]
    chroot "$made" dpkg --remove linerate
    listing "$made" | diff "$work/before" - || die "it left files behind"
    # Runs stay until the package is purged.
    chroot "$made" dpkg -i /var/cache/linerate.deb
    mkdir -p "$made/var/lib/linerate/runs/one"
    chroot "$made" dpkg --remove linerate
    [ -d "$made/var/lib/linerate/runs/one" ] || die "runs were removed"
    chroot "$made" dpkg --purge linerate
    listing "$made" | diff "$work/before" - || die "it left files behind"
    rm -rf "$made"
}
rpm_lifecycle() {
    need rpm rpmbuild
    debian rpm
    package=$dist/linerate-$version-1.$machine.rpm
    [ -e "$package" ] || die "no $package"
    unpack "$machine-unknown-linux-gnu"
    mkdir "$work/older-rpm"
    VERSION=0.0.1 packaging/package.sh rpm "$unpacked/linerate" "$machine-unknown-linux-gnu" "$work/older-rpm"
    listing "$made" >"$work/before"
    # The root has glibc from dpkg, of which rpm does not know.
    for file in "$work"/older-rpm/*.rpm "$package"; do
        rpm --root "$made" --nodeps --nosignature -U "$file"
        works_in "$made"
    done
    [ "$(rpm --root "$made" -q linerate)" = "linerate-$version-1.$machine" ]
    rpm --root "$made" -e linerate
    listing "$made" | diff "$work/before" - || die "it left files behind"
    rm -rf "$made"
}
lint_deb() {
    need lintian
    set -- "$dist"/linerate_*.deb
    [ -e "$1" ] || die "no package"
    # The exceptions are in the package, each with its reason: packaging/deb.lintian-overrides.
    lintian --allow-root --fail-on error,warning --tag-display-limit 0 "$@"
}
lint_rpm() {
    need rpmlint
    set -- "$dist"/linerate-*.rpm
    [ -e "$1" ] || die "no package"
    rpmlint --strict --config packaging/rpmlint.toml "$@"
}

image() {
    need_root
    need buildah setpriv
    archive=$dist/linerate-$version-image.tar
    [ -e "$archive" ] || skip "$dist has no image"
    [ "$(stat -c %s "$archive")" -le 25000000 ] || die "it is larger than 25 MB: $(stat -c %s "$archive")"
    buildah="buildah --root $work/storage --runroot $work/storage-run --storage-driver vfs"
    container=$($buildah from --pull-never "oci-archive:$archive" 2>/dev/null || $buildah from "oci-archive:$archive")
    user=$($buildah inspect --format '{{.OCIv1.Config.User}}' "$container")
    [ "$user" = 65532:65532 ] || die "it runs as $user"
    folder=$($buildah mount "$container")
    setpriv --reuid 65532 --regid 65532 --clear-groups chroot "$folder" /usr/bin/linerate --version ||
        unshare --mount chroot --userspec=65532:65532 "$folder" /usr/bin/linerate --version
    cp "$fixture" "$folder/tmp/host.lrcap"
    status=0
    chroot --userspec=65532:65532 "$folder" /usr/bin/linerate doctor --from /tmp/host.lrcap >"$work/in-image" || status=$?
    [ $status = 10 ] && grep -q irq-remote-numa "$work/in-image" || die "no finding, exit code $status"
    # Its user can keep runs and keys.
    XDG_STATE_HOME=/tmp chroot --userspec=65532:65532 "$folder" /usr/bin/linerate agent pair --advertise host |
        grep -q '^tls://host:5210#' || die "it can store nothing"
    $buildah umount "$container" && $buildah rm "$container"
}
installer() {
    sh "$dist/install.sh" "$dist" "$work/prefix"
    "$work/prefix/bin/linerate" doctor --from "$fixture" >/dev/null || [ $? = 10 ]
    sh "$dist/install.sh" --uninstall "$work/prefix"
    ! find "$work/prefix" -type f | grep . || die "it left files behind"
}
no_path_of_ours() {
    unpack "$1"
    ! grep -c -a -F -e "$root/" -e "$HOME/.cargo" -e "$HOME/.rustup" "$unpacked/linerate" || die "a path of this machine is in the program"
}
sbom() {
    need python3
    python3 - "$dist/linerate-$version.cdx.json" <<'PYTHON'
import json, sys
document = json.load(open(sys.argv[1]))
assert document["bomFormat"] == "CycloneDX", document["bomFormat"]
names = {one["name"] for one in document["components"]}
assert "clap" in names and "proptest" not in names, sorted(names)
known = {one["bom-ref"] for one in document["components"]} | {document["metadata"]["component"]["bom-ref"]}
for one in document["dependencies"]:
    assert known >= {one["ref"], *one["dependsOn"]}, one
PYTHON
}

test_that "every file has the sum of SHA256SUMS" sums
for target in x86_64-unknown-linux-gnu x86_64-unknown-linux-musl aarch64-unknown-linux-gnu aarch64-unknown-linux-musl; do
    test_that "$target runs, has its version, commit and target, and finds the same as the others" runs $target
    test_that "$target has no path of this machine in it" no_path_of_ours $target
    case $target in
        *-gnu) test_that "$target runs with glibc 2.28" old_glibc $target ;;
        *) test_that "$target needs no loader and no library" needs_nothing $target ;;
    esac
done
test_that "the static program finds a fault in a root that has no other file" empty_root
test_that "the static program refuses RDMA with exit code 22 and names the other build" no_verbs
test_that "the Debian package is installed, upgraded and removed, starts nothing and leaves nothing" deb
test_that "the RPM is installed, upgraded and removed, starts nothing and leaves nothing" rpm_lifecycle
test_that "lintian has no objection but those listed" lint_deb
test_that "rpmlint has no objection but those listed" lint_rpm
test_that "the image has at most 25 MB, and runs and stores as an ordinary user" image
test_that "the installer installs from the folder and removes all of it" installer
test_that "the SBOM lists what the program contains, and every reference in it is defined" sbom

echo
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
