#!/usr/bin/env bash
# One directory with many names, on a store and in a vault there: made, looked at, listed and removed. Prints two rows of a table.
# Usage: names.sh PLACE COUNT, where PLACE is a directory on the store. Needs warpcrypt in the path, and gcc.
set -euo pipefail
export LC_ALL=C

place=$(mktemp -d "$1/warpcrypt-names-XXXXXX") count=$2 tools=$(mktemp -d)
mkdir "$place/bare" "$tools/mount"
end() {
    warpcrypt umount "$tools/mount" 2>/dev/null || true
    rm -rf --one-file-system "$place" "$tools"
}
trap end EXIT
trap 'exit 130' INT TERM
gcc -O2 -pthread -DTHREADS="${THREADS:-4}" -o "$tools/files" "$(dirname "$0")/files.c"
head -c 64 /dev/urandom >"$tools/key"

seconds() { # COMMAND...
    local start=$EPOCHREALTIME
    "$@" >&2
    bc <<<"scale=1; ($EPOCHREALTIME - $start) / 1"
}
list() { [ "$(find "$1" -type f | wc -l)" = "$count" ]; }

row() { # NAME DIRECTORY
    local made looked listed removed
    made=$("$tools/files" make "$2" "$count" "$count")
    looked=$("$tools/files" stat "$2" "$count" "$count")
    listed=$(seconds list "$2")
    removed=$(seconds rm -r "$2/directory 00000")
    echo "|$1|$count|$made|$looked|$listed|$removed|"
}

echo '| |names|made, s|10,000 looked at, s|listed, s|removed, s|'
echo '|---|---|---|---|---|---|'
row bare "$place/bare"
warpcrypt init "$place/vault" --key-file "$tools/key" >&2
warpcrypt mount "$place/vault" "$tools/mount" --key-file "$tools/key" >&2
row vault "$tools/mount"
