#!/bin/sh
# check-glibc.sh PROGRAM VERSION: whether PROGRAM runs with glibc VERSION, that is, whether each symbol that it takes from
# glibc has at most that version. OBJDUMP is an objdump for the program's architecture.
set -eu
objdump=${OBJDUMP:-objdump}
command -v "$objdump" >/dev/null || {
    echo "error: cannot read the symbols of $1: $objdump is missing" >&2
    echo "hint: sudo apt-get install binutils" >&2
    exit 1
}
symbols=$("$objdump" -T "$1" | sed -n 's/.*(\{0,1\}GLIBC_\([0-9.]*\))\{0,1\} *\(.*\)/\1 \2/p')
[ -n "$symbols" ] || {
    echo "error: $1 takes no symbol from glibc: it is not a dynamic glibc program" >&2
    exit 1
}
newest=$(echo "$symbols" | cut -d' ' -f1 | sort -Vu | tail -n 1)
if [ "$(printf '%s\n%s\n' "$newest" "$2" | sort -V | tail -n 1)" != "$2" ]; then
    echo "error: $1 needs glibc $newest, newer than $2:" >&2
    echo "$symbols" | sort -Vu | awk -v limit="$2" '{ split($1, a, "."); split(limit, b, ".")
        if (a[1] > b[1] || (a[1] == b[1] && a[2]+0 > b[2]+0)) print "  " $2 " (" $1 ")" }' >&2
    exit 1
fi
echo "$1 needs glibc $newest or newer"
