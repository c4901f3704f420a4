#!/bin/sh
# Installs linerate @VERSION@: one program, its manual pages and its completions. Nothing is started.
#
#   install.sh FROM [PREFIX]
#
# FROM is the folder of the release: an https:// address, or a directory on this machine. PREFIX is where to install
# [default: /usr/local as root, else ~/.local]. LINERATE_TARGET chooses the build: linux-gnu (glibc 2.28 or newer; with
# RDMA) or linux-musl (static, for any Linux) [default: by what this machine has].
#
# The archive is unpacked only if its SHA-256 sum is the one in SHA256SUMS of the same folder.
# To uninstall: install.sh --uninstall [PREFIX]
set -eu
version=@VERSION@

fail() {
    echo "error: $1" >&2
    [ $# -lt 2 ] || echo "hint: $2" >&2
    exit 1
}

default_prefix() {
    if [ "$(id -u)" = 0 ]; then echo /usr/local; else echo "$HOME/.local"; fi
}

# Copies FILE of the release to DESTINATION.
get() {
    case $from in
        http://* | https://*)
            if command -v curl >/dev/null; then
                curl --fail --silent --show-error --location --proto '=https,http' --output "$2" "$from/$1"
            elif command -v wget >/dev/null; then
                wget --quiet --output-document="$2" "$from/$1"
            else
                fail "cannot download $1: neither curl nor wget is installed" "sudo apt-get install curl"
            fi
            ;;
        *) cp "$from/$1" "$2" ;;
    esac || fail "cannot get $1 from $from" "check the address, and that it holds version $version"
}

uninstall() {
    for file in bin/linerate share/bash-completion/completions/linerate share/zsh/site-functions/_linerate \
        share/fish/vendor_completions.d/linerate.fish; do
        rm -f "$prefix/$file"
    done
    rm -f "$prefix"/share/man/man1/linerate.1 "$prefix"/share/man/man1/linerate-*.1
    echo "removed linerate from $prefix"
}

case ${1:-} in
    --uninstall)
        prefix=${2:-$(default_prefix)}
        uninstall
        exit
        ;;
    '' | -*)
        sed -n '2,12s/^#\( \|$\)//p' "$0" >&2
        exit 2
        ;;
esac
from=${1%/} prefix=${2:-$(default_prefix)}

[ "$(uname -s)" = Linux ] || fail "linerate runs on Linux only"
machine=$(uname -m)
case $machine in
    x86_64 | aarch64) ;;
    *) fail "there is no build for $machine" "build it from source: make build" ;;
esac
# A dynamic loader at its place means glibc; its version is in the first line of what `getconf` or `ldd` prints.
libc=${LINERATE_TARGET:-}
if [ -z "$libc" ]; then
    glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed -n 's/^glibc //p') || glibc=
    oldest=$(printf '%s\n2.28\n' "${glibc:-0}" | sort -t. -k1,1n -k2,2n | head -n 1)
    if [ "$oldest" = 2.28 ]; then libc=linux-gnu; else libc=linux-musl; fi
fi
name=linerate-$version-$machine-unknown-$libc

mkdir -p "$prefix/bin" 2>/dev/null && [ -w "$prefix/bin" ] ||
    fail "cannot write to $prefix/bin" "run it as root, or give a directory of yours: $0 $from ~/.local"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
get SHA256SUMS "$work/SHA256SUMS"
get "$name.tar.gz" "$work/$name.tar.gz"
command -v sha256sum >/dev/null || fail "cannot verify $name.tar.gz: sha256sum is missing" "sudo apt-get install coreutils"
expected=$(sed -n "s/^\([0-9a-f]\{64\}\) [ *]$name\.tar\.gz\$/\1/p" "$work/SHA256SUMS")
[ -n "$expected" ] || fail "SHA256SUMS has no line for $name.tar.gz"
actual=$(sha256sum "$work/$name.tar.gz" | cut -d' ' -f1)
[ "$actual" = "$expected" ] ||
    fail "$name.tar.gz is damaged or was replaced: its SHA-256 sum is $actual, SHA256SUMS has $expected" "nothing was installed; get the release again"

tar -C "$work" -xzf "$work/$name.tar.gz"
put() {
    mkdir -p "$(dirname "$3")"
    # Renamed into place: a linerate that runs keeps its file.
    cp "$2" "$3.new" && chmod "$1" "$3.new" && mv -f "$3.new" "$3" ||
        fail "cannot write $3" "run it as root, or give a directory of yours: $0 $from ~/.local"
}
for page in "$work/$name"/man/*.1; do
    put 644 "$page" "$prefix/share/man/man1/$(basename "$page")"
done
put 644 "$work/$name/completions/linerate.bash" "$prefix/share/bash-completion/completions/linerate"
put 644 "$work/$name/completions/linerate.zsh" "$prefix/share/zsh/site-functions/_linerate"
put 644 "$work/$name/completions/linerate.fish" "$prefix/share/fish/vendor_completions.d/linerate.fish"
put 755 "$work/$name/linerate" "$prefix/bin/linerate"
echo "installed $("$prefix/bin/linerate" -V) in $prefix/bin"
case :$PATH: in
    *:"$prefix/bin":*) ;;
    *) echo "hint: add $prefix/bin to PATH" ;;
esac
