#!/bin/sh
# Fills dist/ with everything that a release has: programs, packages, a container image, debug symbols, an SBOM and their
# checksums. `make dist`.
#
# PROFILE is the cargo profile [default: release]; TARGETS the targets [default: all four]; OUT the folder
# [default: dist]. TAG, as in v0.1.0, must be the version of Cargo.toml.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
profile=${PROFILE:-release}
targets=${TARGETS:-x86_64-unknown-linux-gnu x86_64-unknown-linux-musl aarch64-unknown-linux-gnu aarch64-unknown-linux-musl}
out=${OUT:-dist}
# The oldest glibc: RHEL 8, Debian 10, Ubuntu 20.04 and newer. packaging/package.sh states it as a dependency.
glibc=2.28

fail() {
    echo "error: $1" >&2
    echo "hint: $2" >&2
    exit 1
}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
[ -z "${TAG:-}" ] || [ "$TAG" = "v$version" ] ||
    fail "the tag is $TAG, but Cargo.toml has version $version" "set version = \"${TAG#v}\" in Cargo.toml, or tag v$version"

# Every missing tool with the command that installs it, before anything is built.
missing=
want() {
    "$@" >/dev/null 2>&1 || missing="$missing
  $hint"
}
is_installed() { command -v "$1"; }
has_zig() { [ -n "${CARGO_ZIGBUILD_ZIG_PATH:-}" ] || python3 -m ziglang version || zig version; }
has_std() { ls "$(rustc --print target-libdir --target "$1")"/libstd-*.rlib; }
strip_of() {
    case $1 in
        "$(uname -m)"-*) echo objcopy ;;
        *) echo "${1%%-*}-linux-gnu-objcopy" ;;
    esac
}
hint='cargo install --locked cargo-zigbuild    # or: pip install cargo-zigbuild' want is_installed cargo-zigbuild
hint='pip install ziglang                      # zig: the linker and the libraries of old glibc' want has_zig
hint='sudo apt-get install dpkg rpm binutils' want is_installed dpkg-deb
hint='sudo apt-get install rpm' want is_installed rpmbuild
hint='sudo apt-get install buildah             # or NO_IMAGE=1' want [ -n "${NO_IMAGE:-$(command -v buildah)}" ]
for target in $targets; do
    architecture=${target%%-*}
    hint="rustup target add $target" want has_std "$target"
    hint="sudo apt-get install binutils-$(echo "$architecture" | tr _ -)-linux-gnu" want is_installed "$(strip_of "$target")"
done
if [ -n "$missing" ]; then
    echo "error: cannot build the release: tools are missing" >&2
    echo "hint: run$missing" >&2
    exit 1
fi

# The same bytes from any folder: no path of this machine in the program (nor in the C code of SQLite).
home=${CARGO_HOME:-$HOME/.cargo}
sysroot=$(rustc --print sysroot)
RUSTFLAGS="--remap-path-prefix=$root=/linerate --remap-path-prefix=$home=/cargo --remap-path-prefix=$sysroot=/rust"
CFLAGS="-g0 -ffile-prefix-map=$root=/linerate -ffile-prefix-map=$home=/cargo"
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}"
export RUSTFLAGS CFLAGS SOURCE_DATE_EPOCH

rm -rf "$out"
mkdir -p "$out/.work"
# zig compiles start files where it links, and their debug information names that folder: it links in the root folder.
zig=${CARGO_ZIGBUILD_ZIG_PATH:-}
if [ -z "$zig" ]; then
    if python3 -m ziglang version >/dev/null 2>&1; then zig='python3 -m ziglang'; else zig=$(command -v zig); fi
fi
CARGO_ZIGBUILD_ZIG_PATH=$(cd "$out/.work" && pwd)/zig
export CARGO_ZIGBUILD_ZIG_PATH
cat >"$CARGO_ZIGBUILD_ZIG_PATH" <<SCRIPT
#!/bin/sh
case " \$* " in
    *" -c "*) ;;
    " cc "* | " c++ "*) cd / ;;
esac
exec $zig "\$@"
SCRIPT
chmod 755 "$CARGO_ZIGBUILD_ZIG_PATH"
SBOM=$out/linerate-$version.cdx.json
export SBOM
RUSTFLAGS='' cargo run --locked --quiet --package xtask -- sbom >"$SBOM"

generator=
for target in $targets; do
    echo "== $target"
    case $target in
        *-gnu) floor=.$glibc ;;
        *) floor= ;;
    esac
    cargo zigbuild --locked --profile "$profile" --package linerate --target "$target$floor"
    folder=$profile
    [ "$profile" != dev ] || folder=debug
    built=${CARGO_TARGET_DIR:-target}/$target/$folder/linerate
    stripped=$out/.work/$target/linerate
    mkdir -p "$out/.work/$target"
    objcopy=$(strip_of "$target")
    "$objcopy" --strip-all "$built" "$stripped"
    if [ "$profile" = release ]; then
        # Symbols for gdb and perf, found by the link in the program.
        symbols=linerate-$version-$target.debug
        "$objcopy" --only-keep-debug "$built" "$out/$symbols"
        (cd "$out/.work/$target" && "$objcopy" --add-gnu-debuglink="../../$symbols" linerate)
        xz -T0 -f "$out/$symbols"
        [ ! -e "$built.dwp" ] || xz -T0 -c "$built.dwp" >"$out/linerate-$version-$target.debug.dwp.xz"
    fi
    [ -z "$floor" ] || OBJDUMP=${objcopy%copy}dump packaging/check-glibc.sh "$stripped" "$glibc"
    # The program that writes the manual pages and completions of all.
    if [ -z "$generator" ] && [ "${target%%-*}" = "$(uname -m)" ]; then
        generator=$stripped
    fi
done
[ -n "$generator" ] || fail "no program of $targets runs on this machine to write the manual pages" "add a target of $(uname -m) to TARGETS"
export GENERATOR="$root/$generator"
case $out in
    /*) GENERATOR=$generator ;;
esac

for target in $targets; do
    program=$out/.work/$target/linerate
    packaging/package.sh tar "$program" "$target" "$out"
    case $target in
        *-gnu)
            packaging/package.sh deb "$program" "$target" "$out"
            packaging/package.sh rpm "$program" "$target" "$out"
            ;;
        "$(uname -m)"-*-musl)
            [ -n "${NO_IMAGE:-}" ] || packaging/image.sh "$program" "$out/linerate-$version-image.tar"
            ;;
    esac
done
sed "s/@VERSION@/$version/" packaging/install.sh >"$out/install.sh"
chmod 755 "$out/install.sh"
rm -rf "$out/.work"
(cd "$out" && find . -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs sha256sum >SHA256SUMS)
ls -l "$out"
