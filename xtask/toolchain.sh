#!/bin/sh
# Whether there is a Rust toolchain of at least the version given, and if not, exactly what to do.
# A distribution's own cargo does not read rust-toolchain.toml, so the version is asked for.
wanted=$1

advice() {
    echo "error: $1" >&2
    echo "hint: linerate needs Rust $wanted or newer. $2" >&2
    exit 1
}

rustup_hint="Install it for this user with
  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal
or, where the distribution has it (Debian 13, Ubuntu 24.04), with
  sudo apt-get install rustup && rustup toolchain install stable"

if ! command -v cargo >/dev/null; then
    advice "there is no cargo on the PATH" "$rustup_hint"
fi
if ! found=$(cargo --version 2>&1); then
    # rustup's proxy explains itself, as when its toolchain is not installed.
    advice "cargo does not run: $found" "Run: rustup toolchain install (rust-toolchain.toml names the version; RUSTUP_TOOLCHAIN=stable takes another)"
fi
version=$(echo "$found" | cut -d' ' -f2 | cut -d- -f1)
if [ "$(printf '%s\n%s\n' "$wanted" "$version" | sort -V | head -n1)" != "$wanted" ]; then
    if command -v rustup >/dev/null; then
        advice "cargo is $version" "Run: rustup update stable"
    fi
    advice "cargo is $version ($(command -v cargo))" "$rustup_hint"
fi
