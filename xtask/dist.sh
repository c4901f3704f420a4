#!/bin/sh
# dist.sh PROGRAM FOLDER: PROGRAM stripped in FOLDER, as it is shipped, with its symbols in NAME.debug beside it, where
# gdb and perf look for them (.gnu_debuglink).
set -eu
program=$1 folder=$2 name=$(basename "$1")
command -v objcopy >/dev/null || {
    echo "error: cannot strip $program: objcopy is missing" >&2
    echo "hint: sudo apt-get install binutils" >&2
    exit 1
}
mkdir -p "$folder"
objcopy --only-keep-debug "$program" "$folder/$name.debug"
objcopy --strip-all "$program" "$folder/$name"
(cd "$folder" && objcopy --add-gnu-debuglink="$name.debug" "$name")
[ ! -e "$program.dwp" ] || cp "$program.dwp" "$folder/$name.debug.dwp"
ls -l "$folder/$name"
