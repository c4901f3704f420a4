#!/bin/sh
# The crates with `unsafe` under AddressSanitizer (reads and writes outside of what was allocated, or after it was
# freed), and under Miri (the rules of references and provenance) what it can run: it has no io_uring, mmap or C library.
# sanitize.sh [FILTER...] hands filters to the tests. Nothing is installed; what is missing is named.
set -u

target=$(rustc -vV | sed -n 's/^host: //p')
runtime=$(rustc --print sysroot)/lib/rustlib/$target/lib
failed=0

echo "== AddressSanitizer, $target"
# The runtime comes with the toolchain; the flag is an unstable one that stable rustc takes with RUSTC_BOOTSTRAP.
if ls "$runtime"/librustc-*_rt.asan.a >/dev/null 2>&1; then
    # With a target named, build scripts and macros are made without it. Rings that the kernel still holds are left to it
    # (`Ring::drop`), so memory that is never freed is no fault. The RDMA devices of tests are a library that is loaded,
    # which takes the runtime from the test's program (-rdynamic).
    RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address -Clink-arg=-rdynamic" ASAN_OPTIONS="detect_leaks=0:${ASAN_OPTIONS:-}" \
        cargo test --locked --quiet --no-fail-fast --target "$target" --target-dir target/sanitize --lib --tests \
        -p linerate-verbs -p linerate-traffic -- "$@" || failed=1
else
    echo "error: this toolchain has no AddressSanitizer for $target: no librustc-*_rt.asan.a in $runtime" >&2
    echo "hint: use rustup's toolchain: rustup toolchain install stable" >&2
    failed=1
fi

echo "== Miri"
if cargo +nightly miri --version >/dev/null 2>&1; then
    # Requests as C lists: plain memory and raw pointers.
    cargo +nightly miri test --locked --target-dir target/miri -p linerate-verbs --lib || failed=1
else
    echo "SKIP: Miri is not installed: rustup toolchain install nightly --component miri,rust-src" >&2
fi
exit "$failed"
