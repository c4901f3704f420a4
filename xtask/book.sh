#!/bin/sh
# Builds the documentation as a site with search in target/book: docs/book with the reference, the rules and the
# decisions. `make book`. Links are checked by `make check`, without mdBook.
set -eu
cd "$(dirname "$0")/.."
command -v mdbook >/dev/null || {
    echo "error: cannot build the book: mdbook is missing" >&2
    echo "hint: cargo install --locked mdbook" >&2
    exit 1
}
# The same folders as in the repository, so that links lead to the same files.
source=target/book-source
rm -rf "$source"
mkdir -p "$source/src/bench/planted.d"
cp -r docs ./*.md LICENSE-* schema "$source/src"
cp bench/*.md "$source/src/bench"
cp bench/planted.d/*.md "$source/src/bench/planted.d"
mkdir -p "$source/src/fuzz" "$source/src/fixtures/rules"
cp fuzz/README.md "$source/src/fuzz"
cp fixtures/rules/README.md "$source/src/fixtures/rules"
cp docs/book/book.toml "$source/book.toml"

# A list of pages, each by its first heading: entries FOLDER
entries() {
    for page in "docs/$1"/*.md; do
        [ "$(basename "$page")" = README.md ] || echo "  - [$(sed -n '1s/^# //p' "$page")]($page)"
    done
}
{
    # docs/book/SUMMARY.md, seen from the root.
    sed -e 's|](\.\./|](docs/|' -e 's|](\([a-z-]*\(/[a-z-]*\)*\.md\))|](docs/book/\1)|' -e 's|(docs/book/docs/|(docs/|' \
        docs/book/SUMMARY.md
    entries rules
    printf '\n# Development\n\n- [Contributing](CONTRIBUTING.md)\n- [Architecture](docs/ARCHITECTURE.md)\n'
    entries decisions
    printf -- '- [Benchmarks](bench/README.md)\n  - [Results](bench/RESULTS.md)\n  - [Injected faults, first score](bench/planted.d/60-fresh-first-score.md)\n- [Cases of the rules](fixtures/rules/README.md)\n- [Fuzzing](fuzz/README.md)\n- [Security](SECURITY.md)\n- [Changes](CHANGELOG.md)\n'
} >"$source/src/SUMMARY.md"
mdbook build --dest-dir "$PWD/target/book" "$source"
# mdBook calls a README index.html, and leaves the links to it as they are.
find target/book -mindepth 2 -name index.html | while read -r page; do
    cp "$page" "$(dirname "$page")/README.html"
done
echo "target/book/index.html"
