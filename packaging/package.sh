#!/bin/sh
# Builds packages from a program, without compiling anything:
#   package.sh stage  PROGRAM FOLDER            the tree that packages install, in FOLDER
#   package.sh deb    PROGRAM TARGET OUT        linerate_VERSION-1_ARCHITECTURE.deb in OUT
#   package.sh rpm    PROGRAM TARGET OUT        linerate-VERSION-1.ARCHITECTURE.rpm in OUT
#   package.sh tar    PROGRAM TARGET OUT        linerate-VERSION-TARGET.tar.gz in OUT
# dpkg-deb and rpmbuild build both from one tree, on any architecture. cargo-deb and cargo-generate-rpm would have to be
# compiled first; so the tests of each run can build real packages.
# GENERATOR is a linerate that runs on this machine and writes the manual pages and completions [default: PROGRAM].
# SOURCE_DATE_EPOCH is the time of every file [default: that of the commit], so that packages are reproducible.
# VERSION is that of the package [default: that of Cargo.toml].
# DEB_COMPRESSION is that of dpkg-deb [default: xz].
# SBOM is the list of dependencies that the packages contain, if any.
set -eu
here=$(cd "$(dirname "$0")" && pwd) root=$(dirname "$here")
version=${VERSION:-$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml" | head -n 1)}
glibc=2.28
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022

if [ -z "${SOURCE_DATE_EPOCH:-}" ]; then
    SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct 2>/dev/null) || SOURCE_DATE_EPOCH=$(stat -c %Y "$root/CHANGELOG.md")
fi
export SOURCE_DATE_EPOCH
date=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%d)

need() {
    command -v "$1" >/dev/null || {
        echo "error: cannot build the package: $1 is missing" >&2
        echo "hint: sudo apt-get install $2" >&2
        exit 1
    }
}

# Manual pages, completions: stage_text FOLDER/man FOLDER/completions
generated() {
    mkdir -p "$1/man" "$1/completions"
    "$generator" manual --date "$date" "$1/man"
    for shell in bash zsh fish; do
        "$generator" completions $shell >"$1/completions/linerate.$shell"
    done
}

documents() {
    mkdir -p "$1"
    cp "$root/README.md" "$root/CHANGELOG.md" "$root/SECURITY.md" "$1"
    cp -r "$root/docs" "$1/docs"
    [ -z "${SBOM:-}" ] || cp "$SBOM" "$1/linerate.cdx.json"
}

# Every file with the same time and rights, whatever the umask of the tree.
settle() {
    find "$1" -type d -exec chmod 755 {} +
    find "$1" -type f ! -path "$1/usr/bin/*" ! -path "$1/linerate" ! -path '*/DEBIAN/p*' -exec chmod 644 {} +
    find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

stage() {
    generator=${GENERATOR:-$1} folder=$2
    install -D -m 755 "$1" "$folder/usr/bin/linerate"
    generated "$work/generated"
    for page in "$work"/generated/man/*.1; do
        mkdir -p "$folder/usr/share/man/man1"
        gzip -9n <"$page" >"$folder/usr/share/man/man1/$(basename "$page").gz"
    done
    completions=$work/generated/completions share=$folder/usr/share
    install -D "$completions/linerate.bash" "$share/bash-completion/completions/linerate"
    install -D "$completions/linerate.fish" "$share/fish/vendor_completions.d/linerate.fish"
    install -D "$completions/linerate.zsh" "$share/${ZSH_FOLDER:-zsh/site-functions}/_linerate"
    for unit in doctor.service doctor.timer agent.service agent.socket; do
        install -D "$here/linerate-$unit" "$folder/usr/lib/systemd/system/linerate-$unit"
    done
    install -D "$here/linerate-agent.sysusers" "$folder/usr/lib/sysusers.d/linerate-agent.conf"
    documents "$share/doc/linerate"
    settle "$folder"
}

deb() {
    need dpkg-deb dpkg
    case $2 in
        x86_64-*) architecture=amd64 ;;
        aarch64-*) architecture=arm64 ;;
        *) echo "error: cannot name the Debian architecture of $2" >&2; exit 2 ;;
    esac
    tree=$work/deb doc=$work/deb/usr/share/doc/linerate
    ZSH_FOLDER=zsh/vendor-completions stage "$1" "$tree"
    gzip -9n "$doc/CHANGELOG.md"
    mv "$doc/CHANGELOG.md.gz" "$doc/changelog.gz"
    printf 'linerate (%s-1) stable; urgency=medium\n\n  * See changelog.gz.\n\n -- %s  %s\n' "$version" \
        "$(sed -n 's/^Maintainer: //p' "$here/deb.control")" "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" |
        gzip -9n >"$doc/changelog.Debian.gz"
    [ ! -e "$doc/linerate.cdx.json" ] || gzip -9n "$doc/linerate.cdx.json"
    # The text of the license, in the form of the file: indented, with dots for empty lines.
    sed 's/^$/./; s/^/ /' "$root/LICENSE-MIT" >"$work/mit"
    sed -e "/@MIT@/{r $work/mit" -e 'd}' "$here/deb.copyright" >"$doc/copyright"
    install -D -m 644 "$here/deb.lintian-overrides" "$tree/usr/share/lintian/overrides/linerate"
    mkdir "$tree/DEBIAN"
    size=$(du -sk --apparent-size "$tree" | cut -f1)
    sed -e "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@SIZE@/$size/; s/@GLIBC@/$glibc/" \
        "$here/deb.control" >"$tree/DEBIAN/control"
    for script in postinst prerm postrm; do
        install -m 755 "$here/deb.$script" "$tree/DEBIAN/$script"
    done
    settle "$tree"
    (cd "$tree" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$tree/DEBIAN/md5sums"
    chmod 644 "$tree/DEBIAN/md5sums"
    dpkg-deb --root-owner-group "-Z${DEB_COMPRESSION:-xz}" --build "$tree" "$3/linerate_$version-1_$architecture.deb" >/dev/null
}

rpm() {
    need rpmbuild rpm
    architecture=${2%%-*}
    tree=$work/rpm
    stage "$1" "$tree"
    mkdir -p "$tree/usr/share/licenses/linerate"
    cp "$root/LICENSE-MIT" "$root/LICENSE-APACHE" "$tree/usr/share/licenses/linerate"
    settle "$tree"
    sed -e "s/@VERSION@/$version/g; s/@GLIBC@/$glibc/" \
        -e "s/@RPMDATE@/$(LC_ALL=C date -u -d "@$SOURCE_DATE_EPOCH" '+%a %b %d %Y')/" \
        "$here/linerate.spec" >"$work/linerate.spec"
    rpmbuild -bb --quiet --target "$architecture-linux" --define "_topdir $work/rpmbuild" --define "staged $tree" \
        --define '_buildhost localhost' --define 'use_source_date_epoch_as_buildtime 1' \
        --define 'clamp_mtime_to_source_date_epoch 1' --define '_binary_payload w9.xzdio' \
        --define "__spec_install_pre %{___build_pre}" --nodebuginfo "$work/linerate.spec" >"$work/rpm.log" 2>&1 ||
        { cat "$work/rpm.log" >&2; exit 1; }
    mv "$work/rpmbuild/RPMS/$architecture/linerate-$version-1.$architecture.rpm" "$3"
}

tar_gz() {
    generator=${GENERATOR:-$1} name=linerate-$version-$2
    mkdir "$work/$name"
    install -m 755 "$1" "$work/$name/linerate"
    generated "$work/$name"
    cp "$root/LICENSE-MIT" "$root/LICENSE-APACHE" "$root/README.md" "$root/CHANGELOG.md" "$work/$name"
    settle "$work/$name"
    tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner -cf - "$name" | gzip -9n >"$3/$name.tar.gz"
}

case ${1:-} in
    stage) stage "$2" "$3" ;;
    deb) deb "$2" "$3" "$4" ;;
    rpm) rpm "$2" "$3" "$4" ;;
    tar) tar_gz "$2" "$3" "$4" ;;
    *) sed -n '2,13s/^# //p' "$0" >&2; exit 2 ;;
esac
