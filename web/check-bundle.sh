#!/bin/sh
# Rebuilds the script of the report page and compares it with the committed one, byte for byte, so that
# nobody has to trust a minified file. Building linerate itself never needs Node.
set -eu

web=$(cd "$(dirname "$0")" && pwd)
committed=$web/../crates/report/src

if ! command -v node >/dev/null 2>&1 || ! command -v npm >/dev/null 2>&1; then
    echo "SKIP: no node: the committed bundle was not rebuilt (apt-get install nodejs npm)" >&2
    exit 0
fi

# A lock file that names where packages were fetched from would tie the build to one registry.
if grep -q '"resolved"' "$web/package-lock.json"; then
    echo "error: package-lock.json names download addresses; remove its \"resolved\" lines" >&2
    exit 1
fi

cd "$web"
if [ ! -d node_modules ] || ! npm ls >/dev/null 2>&1; then
    npm ci --no-audit --no-fund
fi

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT INT TERM
npx --no-install tsc --noEmit
node scripts/build.mjs "$fresh"

for file in bundle.js bundle.sha256; do
    if ! cmp "$fresh/$file" "$committed/$file"; then
        echo "error: $file is not what web/ builds; run \`npm ci && npm run build\` in web/ and commit it" >&2
        exit 1
    fi
done
echo "the committed bundle is what web/ builds"
