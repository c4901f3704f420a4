#!/bin/sh
# image.sh PROGRAM ARCHIVE: a container image of the static program, as an OCI archive (`podman load`, `docker load`).
# buildah needs no daemon, and uses no network: no step of the Containerfile runs a program.
set -eu
here=$(cd "$(dirname "$0")" && pwd) root=$(dirname "$here")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml" | head -n 1)
work=$(mktemp -d)
# The storage of the build is not that of the user's images, and goes with it.
buildah="buildah --root $work/storage --runroot $work/run --storage-driver vfs"
trap 'rm -rf "$work"' EXIT
mkdir "$work/context"
mkdir -m 755 "$work/context/root"
mkdir -m 1777 "$work/context/root/tmp"
cp "$1" "$work/context/linerate"
cp "$root/LICENSE-MIT" "$root/LICENSE-APACHE" "$work/context"
$buildah build --quiet --isolation chroot --network host --timestamp "${SOURCE_DATE_EPOCH:-0}" \
    --label org.opencontainers.image.title=linerate --label org.opencontainers.image.version="$version" \
    --label org.opencontainers.image.licenses='MIT OR Apache-2.0' \
    --tag "linerate:$version" -f "$here/Containerfile" "$work/context" >/dev/null
$buildah push --quiet "linerate:$version" "oci-archive:$2:linerate:$version"
