#!/bin/sh
# Builds the x86-64 glibc program twice, from two folders with two target folders, and compares the bytes.
# `make dist-reproduce`. PROFILE is the cargo profile [default: release].
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export NO_IMAGE=1 TARGETS="${TARGETS:-x86_64-unknown-linux-gnu}"
commit=$(git rev-parse --short=12 HEAD)
# The time of the commit: the archives have no git to ask.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct "$commit")
export LINERATE_COMMIT="$commit" SOURCE_DATE_EPOCH
for name in one another-folder; do
    mkdir "$work/$name"
    git archive "$commit" | tar -x -C "$work/$name"
    echo "== building in $work/$name"
    OUT="$work/$name/dist" CARGO_TARGET_DIR="$work/$name/target" \
        ZIG_GLOBAL_CACHE_DIR="$work/$name/zig" "$work/$name/xtask/dist.sh"
    (cd "$work/$name/dist" && sha256sum -- *) >"$work/$name.sums"
    rm -rf "$work/$name/target"
done
if ! cmp -s "$work/one.sums" "$work/another-folder.sums"; then
    echo "error: the two builds differ" >&2
    diff "$work/one.sums" "$work/another-folder.sums" >&2 || true
    exit 1
fi
echo "two builds are equal, byte for byte:"
cat "$work/one.sums"
